//! From where the frames were taken, for a viewer that shows it.

use nalgebra::Vector3;
use serde::{Deserialize, Serialize};

use crate::camera::SparseModel;

/// A camera of the capture, in the frame of `scene.ply` (as [`CameraData`](super::CameraData)).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FrameCamera {
    /// Id of the model's image.
    pub image: u32,
    /// Where it was, world units.
    pub position: [f32; 3],
    /// Where it looked; a unit vector.
    pub forward: [f32; 3],
    /// Down in its picture; a unit vector.
    pub down: [f32; 3],
    /// Half of the width and of the height of its picture, at a distance of 1.
    pub extent: [f32; 2],
}

impl FrameCamera {
    /// The cameras of a model whose pictures are undistorted, in the order of their names.
    pub fn all_of(model: &SparseModel) -> Vec<Self> {
        let mut images: Vec<_> = model.images.iter().collect();
        images.sort_by(|a, b| a.1.name.cmp(&b.1.name));
        let plain = |v: Vector3<f64>| [v.x as f32, v.y as f32, v.z as f32];
        let cameras = images.into_iter().filter_map(|(id, image)| {
            let camera = model.cameras.get(&image.camera_id)?;
            let (fx, fy) = camera.focal();
            let to_world = image.pose.rotation.inverse();
            Some(Self {
                image: *id,
                position: plain(image.pose.centre()),
                forward: plain(to_world * Vector3::z()),
                down: plain(to_world * Vector3::y()),
                extent: [
                    (0.5 * f64::from(camera.width) / fx) as f32,
                    (0.5 * f64::from(camera.height) / fy) as f32,
                ],
            })
        });
        cameras.collect()
    }
}

#[cfg(test)]
mod tests {
    use nalgebra::UnitQuaternion;

    use super::*;
    use crate::camera::{Camera, CameraModel, Image, Pose};

    #[test]
    fn cameras_are_in_the_order_of_the_way_and_look_where_they_looked() {
        let mut model = SparseModel::default();
        model.cameras.insert(1, Camera::from_focal(CameraModel::Pinhole, 100.0, 400, 200));
        // Turned to the right by a quarter: its z axis is the world's x axis.
        let turn = UnitQuaternion::from_axis_angle(&Vector3::y_axis(), -std::f64::consts::FRAC_PI_2);
        for (id, name, place) in [(1, "b.jpg", 2.0), (2, "a.jpg", 1.0)] {
            let pose = Pose::from_centre(turn, &Vector3::new(place, 0.0, 0.0));
            model
                .images
                .insert(id, Image { name: name.to_owned(), camera_id: 1, pose, points2d: Vec::new() });
        }
        let cameras = FrameCamera::all_of(&model);
        assert_eq!(cameras.iter().map(|camera| camera.image).collect::<Vec<_>>(), [2, 1]);
        let first = &cameras[0];
        let is_near = |a: [f32; 3], b: [f32; 3]| a.iter().zip(b).all(|(a, b)| (a - b).abs() < 1e-6);
        assert!(is_near(first.position, [1.0, 0.0, 0.0]), "{first:?}");
        assert!(is_near(first.forward, [1.0, 0.0, 0.0]) && is_near(first.down, [0.0, 1.0, 0.0]), "{first:?}");
        assert_eq!(first.extent, [2.0, 1.0]);
    }
}
