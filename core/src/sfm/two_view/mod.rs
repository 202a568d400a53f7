//! What two pictures know about each other: epipolar geometry with its inliers.

use nalgebra::Matrix3;

use crate::camera::Pose;

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
    /// Index of the first picture.
    pub first: u32,
    /// Index of the second picture.
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
