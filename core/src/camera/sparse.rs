//! The sparse model: what structure from motion knows about a scene. COLMAP's structure, so that its files can be
//! exchanged with other tools.

use std::collections::BTreeMap;

use nalgebra::{UnitQuaternion, Vector2, Vector3};

use super::{Camera, Pose};

/// A keypoint of an image, and the scene point it was seen to be.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Point2D {
    /// Pixel (centre of the top-left pixel at (0.5, 0.5)).
    pub xy: Vector2<f64>,
    /// The scene point, if the keypoint belongs to one.
    pub point3d: Option<u64>,
}

/// A registered image.
#[derive(Debug, Clone, PartialEq)]
pub struct Image {
    /// File name relative to the image folder.
    pub name: String,
    /// Its camera.
    pub camera_id: u32,
    /// World-to-camera.
    pub pose: Pose,
    /// Its keypoints.
    pub points2d: Vec<Point2D>,
}

/// A point of the scene.
#[derive(Debug, Clone, PartialEq)]
pub struct Point3D {
    /// World position.
    pub xyz: Vector3<f64>,
    /// Colour, sRGB.
    pub rgb: [u8; 3],
    /// Mean reprojection error in pixels.
    pub error: f64,
    /// (image id, index into its `points2d`) of every observation.
    pub track: Vec<(u32, u32)>,
}

/// Cameras, registered images and scene points. Ids start at 1; iteration is in their order.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct SparseModel {
    /// By camera id.
    pub cameras: BTreeMap<u32, Camera>,
    /// By image id. Only registered images are here.
    pub images: BTreeMap<u32, Image>,
    /// By point id.
    pub points: BTreeMap<u64, Point3D>,
}

impl SparseModel {
    /// Moves the world by the similarity `x' = scale * rotation * x + translation`. What every camera sees stays.
    pub fn transform(&mut self, scale: f64, rotation: &UnitQuaternion<f64>, translation: &Vector3<f64>) {
        for image in self.images.values_mut() {
            image.pose = image.pose.in_moved_world(scale, rotation, translation);
        }
        for point in self.points.values_mut() {
            point.xyz = scale * (rotation * point.xyz) + translation;
        }
    }

    /// Mean number of images that see a point; 0 without points.
    pub fn mean_track_length(&self) -> f64 {
        let observations: usize = self.points.values().map(|p| p.track.len()).sum();
        observations as f64 / self.points.len().max(1) as f64
    }

    /// Mean reprojection error over all points in pixels; 0 without points.
    pub fn mean_reprojection_error(&self) -> f64 {
        self.points.values().map(|p| p.error).sum::<f64>() / self.points.len().max(1) as f64
    }
}
