//! The working model of the mapper: cameras, poses by image index, points with their observations.
//!
//! Everything after the view graph reads and changes this; [`crate::camera::SparseModel`] is made from it at the end.

use std::sync::Arc;

use nalgebra::{UnitQuaternion, Vector2, Vector3};

use crate::camera::{Camera, Pose};

use super::other_cameras::OtherCameras;
use super::rig::Rig;

/// A keypoint of an image.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Observation {
    /// Index of the image.
    pub(crate) image: u32,
    /// Index of the keypoint in that image.
    pub(crate) keypoint: u32,
}

impl Observation {
    pub(crate) fn new(image: u32, keypoint: u32) -> Self {
        Self { image, keypoint }
    }
}

/// A scene point and where it was seen, at most once in an image.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct MapPoint {
    /// World position.
    pub(crate) xyz: Vector3<f64>,
    /// Observations, ordered by image.
    pub(crate) track: Vec<Observation>,
}

/// Pixel positions of all keypoints, by image.
pub(crate) type Keypoints = [Vec<Vector2<f64>>];

/// The model while it is made.
#[derive(Debug, Clone)]
pub(crate) struct Map {
    /// The camera of all images, or of most of them.
    pub(crate) camera: Camera,
    /// Cameras of images that this one did not make.
    pub(crate) others: OtherCameras,
    /// Which images are of one station: they are registered together, and turned against each other as it says.
    pub(crate) rig: Arc<Rig>,
    /// World-to-camera by image; `None` while an image is not registered.
    pub(crate) poses: Vec<Option<Pose>>,
    /// Scene points. Only registered images are in their tracks.
    pub(crate) points: Vec<MapPoint>,
}

impl Map {
    /// A map without poses and points.
    pub(crate) fn new(camera: Camera, rig: &Arc<Rig>, images: usize) -> Self {
        let others = OtherCameras::default();
        Self { camera, others, rig: Arc::clone(rig), poses: vec![None; images], points: Vec::new() }
    }

    /// The cameras of this map with other points.
    pub(crate) fn with_points(&self, points: Vec<MapPoint>) -> Self {
        let (others, poses) = (self.others.clone(), self.poses.clone());
        Self { camera: self.camera.clone(), others, rig: Arc::clone(&self.rig), poses, points }
    }

    /// Scales, turns, then shifts the world.
    pub(crate) fn move_world(
        &mut self,
        scale: f64,
        rotation: &UnitQuaternion<f64>,
        translation: &Vector3<f64>,
    ) {
        for pose in self.poses.iter_mut().flatten() {
            *pose = pose.in_moved_world(scale, rotation, translation);
        }
        for point in &mut self.points {
            point.xyz = scale * (rotation * point.xyz) + translation;
        }
    }

    /// The camera that made an image.
    pub(crate) fn camera_of(&self, image: usize) -> &Camera {
        self.others.of(image).unwrap_or(&self.camera)
    }

    /// All cameras, that of most images first.
    pub(crate) fn cameras(&self) -> impl Iterator<Item = &Camera> {
        std::iter::once(&self.camera).chain(&self.others.cameras)
    }

    /// All cameras, to be changed, in the same order.
    pub(crate) fn cameras_mut(&mut self) -> impl Iterator<Item = &mut Camera> {
        std::iter::once(&mut self.camera).chain(&mut self.others.cameras)
    }

    /// Gives an image its pose, and with it the other images of its station.
    pub(crate) fn register(&mut self, image: usize, pose: &Pose) {
        for (i, pose) in self.rig.poses_of_station(image, pose) {
            self.poses[i] = Some(pose);
        }
    }

    /// Images by other cameras than the first that have no pose. They are no fault of the map: it is of what the first one saw.
    pub(crate) fn strays(&self) -> impl Iterator<Item = usize> {
        (0..self.poses.len()).filter(|&i| self.poses[i].is_none() && self.others.index(i) > 0)
    }

    /// The registered images that a camera made: 0 is the first one, `k + 1` the one that is `others.cameras[k]`.
    pub(crate) fn registered_by(&self, camera: usize) -> impl Iterator<Item = usize> {
        (0..self.poses.len()).filter(move |&i| self.poses[i].is_some() && self.others.index(i) == camera)
    }

    /// Number of registered images.
    pub(crate) fn registered(&self) -> usize {
        self.poses.iter().flatten().count()
    }

    /// Number of observations of all points.
    pub(crate) fn observations(&self) -> usize {
        self.points.iter().map(|p| p.track.len()).sum()
    }

    /// Number of observations of every station.
    pub(crate) fn observations_by_station(&self) -> Vec<usize> {
        let mut counts = vec![0; self.rig.stations()];
        for (image, n) in self.observations_by_image().into_iter().enumerate() {
            counts[self.rig.station_of(image)] += n;
        }
        counts
    }

    /// Number of observations of every image.
    pub(crate) fn observations_by_image(&self) -> Vec<usize> {
        let mut counts = vec![0; self.poses.len()];
        for observation in self.points.iter().flat_map(|p| &p.track) {
            counts[observation.image as usize] += 1;
        }
        counts
    }

    /// Reprojection error of a world point in pixels; infinite where the point is not in front of a registered camera.
    pub(crate) fn reprojection_error(&self, image: usize, xyz: &Vector3<f64>, pixel: &Vector2<f64>) -> f64 {
        let seen = self.poses[image].and_then(|pose| self.camera_of(image).project(&pose.transform(xyz)));
        seen.map_or(f64::INFINITY, |seen| (seen - pixel).norm())
    }

    /// Takes images out, and with them the other images of their stations: their poses, their observations, and the points
    /// that are left with fewer than two.
    pub(crate) fn unregister(&mut self, images: &[usize]) {
        if images.is_empty() {
            return;
        }
        let mut is_out = vec![false; self.poses.len()];
        for &image in images {
            let station = self.rig.images_of(self.rig.station_of(image));
            self.poses[station.clone()].fill(None);
            is_out[station].fill(true);
        }
        // All in one pass: there may be a thousand images, and a million points.
        self.points.retain_mut(|point| {
            point.track.retain(|o| !is_out[o.image as usize]);
            point.track.len() >= 2
        });
    }
}

/// The angle of so many pixels in the middle of two images: the mean of theirs.
pub(crate) fn angle_of_pixels(map: &Map, pixels: f64, first: usize, second: usize) -> f64 {
    0.5 * pixels / map.camera_of(first).mean_focal() + 0.5 * pixels / map.camera_of(second).mean_focal()
}
