//! What two images know about each other: epipolar geometry with its inliers.
//!
//! ```text
//! PairMatches ─ verify_pairs ─▶ TwoViewGeometry (F, H; focal lengths unknown)
//!             ─ calibration::estimate_focal ─▶ focal length
//!             ─ estimate_relative_poses ─▶ TwoViewGeometry (R, t; inliers counted anew)
//! ```
//!
//! Called by the mapper. Minimal solvers stand in a file each; `ransac` is the loop around them, `score` and `refine`
//! its hot inner parts.

mod cheirality;
mod essential;
mod focal_profile;
mod fundamental;
mod homography;
mod linear;
pub(crate) mod p3p;
mod polynomial;
mod ransac;
mod refine;
mod relative_pose;
mod score;
#[cfg(test)]
pub(crate) mod synthetic;
mod verify;

use nalgebra::Matrix3;
use serde::Serialize;

use super::features::Features;
use crate::camera::{Camera, Pose};
use crate::defaults::with_defaults;

pub(crate) use focal_profile::FocalProfile;
pub use relative_pose::estimate_relative_poses;
pub use verify::{verify_pair, verify_pairs};

/// The images, as two-view geometry sees them.
#[derive(Debug, Clone, Copy)]
pub struct Views<'a> {
    /// By image; only the keypoints are used. Pixels of the image, not undistorted.
    pub features: &'a [Features],
    /// By image: its camera as an index into `cameras`.
    pub camera_of: &'a [usize],
    /// The cameras. [`verify_pairs`] and the calibration use only their size and principal point.
    pub cameras: &'a [Camera],
}

impl Views<'_> {
    /// The camera of an image, which must exist.
    pub fn camera(&self, image: u32) -> &Camera {
        &self.cameras[self.camera_of[image as usize]]
    }

    /// The pixel of a keypoint, which must exist.
    fn pixel(&self, image: u32, keypoint: u32) -> nalgebra::Vector2<f64> {
        let k = &self.features[image as usize].keypoints[keypoint as usize];
        nalgebra::Vector2::new(f64::from(k.x), f64::from(k.y))
    }
}

with_defaults! {
    /// How strict two-view geometry is.
    #[derive(Debug, Clone, PartialEq, Serialize)]
    pub struct TwoViewOptions {
        /// Largest Sampson (F) or transfer (H) error in pixels while the focal length is unknown. Generous: lens
        /// distortion is not modelled.
        pub max_error: f64 = 4.0,
        /// Largest Sampson error in pixels once the focal length is known.
        pub max_calibrated_error: f64 = 2.0,
        /// Fewer inliers make a pair degenerate.
        pub min_inliers: usize = 15,
        /// A smaller fraction of inliers makes a pair degenerate.
        pub min_inlier_ratio: f64 = 0.25,
        /// A homography with more than this fraction of the inliers makes a pair planar or panoramic.
        pub max_homography_ratio: f64 = 0.8,
        /// Probability with which RANSAC is to draw a sample without outliers; 0.99 at most where a verified pair gives a pose to
        /// begin with, which was itself found with this.
        pub confidence: f64 = 0.9999,
        /// At most this many samples per model.
        pub max_iterations: usize = 5000,
        /// Matches closer than this to an epipole (radians) are dropped: there the epipolar constraint says nothing.
        pub min_epipole_angle: f64 = 3f64.to_radians(),
        /// Seed of the random samples; each pair derives its own from it.
        pub seed: u64 = 0,
    }
}

/// Samples drawn for a model at least, where none is known to begin with. Chosen by hand.
const MIN_ITERATIONS: usize = 40;

impl TwoViewOptions {
    fn stopping(&self) -> ransac::Stopping {
        ransac::Stopping {
            confidence: self.confidence,
            min_inliers: self.min_inliers,
            min_inlier_ratio: self.min_inlier_ratio,
            min_iterations: MIN_ITERATIONS,
            max_iterations: self.max_iterations,
        }
    }

    /// A seed that only the pair and the purpose decide.
    fn seed_of(&self, first: u32, second: u32, purpose: u64) -> u64 {
        use crate::random::hash;
        hash(hash(self.seed ^ purpose.rotate_left(32)) ^ (u64::from(first) << 32 | u64::from(second)))
    }
}

/// What explains the matches of a pair.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TwoViewConfig {
    /// Too few inliers, or geometry that says nothing.
    Degenerate,
    /// A fundamental matrix; focal lengths unknown.
    Uncalibrated,
    /// An essential matrix with the known (or estimated) focal length.
    Calibrated,
    /// A homography explains it: the scene is a plane or the camera only turned.
    PlanarOrPanoramic,
}

/// Verified geometry of the pair (first, second), first < second.
#[derive(Debug, Clone, PartialEq)]
pub struct TwoViewGeometry {
    /// Index of the first image.
    pub first: u32,
    /// Index of the second image.
    pub second: u32,
    /// Which model was chosen.
    pub config: TwoViewConfig,
    /// Fundamental matrix in pixels: `x2ᵀ F x1 = 0`.
    pub fundamental: Option<Matrix3<f64>>,
    /// Homography in pixels: `x2 ~ H x1`.
    pub homography: Option<Matrix3<f64>>,
    /// Pose of the second camera relative to the first (`x2 = R x1 + t`, |t| = 1), once the focal length is known.
    pub second_from_first: Option<Pose>,
    /// Inlier matches (keypoint of the first, keypoint of the second).
    pub inliers: Vec<[u32; 2]>,
    /// Number of inliers of the best homography, to tell planar and panoramic pairs.
    pub homography_inliers: usize,
    /// Median angle between the two rays of the inliers in radians, once the pose is known.
    pub median_parallax: f64,
}

impl TwoViewGeometry {
    /// The pair without any geometry.
    pub fn degenerate(first: u32, second: u32) -> Self {
        Self {
            first,
            second,
            config: TwoViewConfig::Degenerate,
            fundamental: None,
            homography: None,
            second_from_first: None,
            inliers: Vec::new(),
            homography_inliers: 0,
            median_parallax: 0.0,
        }
    }
}
