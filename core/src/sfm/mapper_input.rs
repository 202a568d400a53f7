//! What the mappers work on: what the front end found in the pictures.

use std::sync::Arc;

use nalgebra::UnitQuaternion;

use crate::camera::Camera;

use super::map::{Keypoints, Map, Observation};
use super::matching::PairMatches;
use super::other_cameras::OtherCameras;
use super::rig::Rig;
use super::tracks::build_tracks;
use super::two_view::TwoViewGeometry;

/// Keypoints, matches and pairs of all images.
pub(crate) struct MapperInput<'a> {
    /// Pixels of all keypoints, by image.
    pub(crate) keypoints: &'a Keypoints,
    /// Which images are of one station.
    pub(crate) rig: &'a Arc<Rig>,
    /// All candidate matches.
    pub(crate) matches: &'a [PairMatches],
    /// Verified pairs with relative poses.
    pub(crate) pairs: &'a [TwoViewGeometry],
    /// The camera of all images, or of most of them, focal length calibrated.
    pub(crate) camera: Camera,
    /// Cameras of images that this one did not make, calibrated as well.
    pub(crate) others: OtherCameras,
    /// Absolute rotations (world to camera) by image; the incremental mapper does not use them.
    pub(crate) rotations: &'a [Option<UnitQuaternion<f64>>],
}

impl MapperInput<'_> {
    /// Number of images.
    pub(crate) fn images(&self) -> usize {
        self.keypoints.len()
    }

    /// A map of these images without poses and points.
    pub(crate) fn empty_map(&self) -> Map {
        let map = Map::new(self.camera.clone(), self.rig, self.images());
        Map { others: self.others.clone(), ..map }
    }

    /// Tracks of all verified matches; the pairs with most inliers are joined first.
    pub(crate) fn tracks(&self) -> Vec<Vec<Observation>> {
        let mut pairs: Vec<&TwoViewGeometry> = self.pairs.iter().collect();
        pairs.sort_by_key(|p| std::cmp::Reverse(p.inliers.len()));
        build_tracks(self.keypoints, pairs.iter().map(|p| (p.first, p.second, p.inliers.as_slice())))
    }
}
