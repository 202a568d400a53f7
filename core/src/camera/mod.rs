//! Cameras: intrinsics, poses, sparse models and their files.
//!
//! **The one frame convention of the engine** (COLMAP's and OpenCV's): camera axes x right, y down, z forward; a
//! [`Pose`] is world-to-camera, `x_cam = R x_world + t`; quaternions are w, x, y, z; the centre of the top-left pixel
//! is at (0.5, 0.5). Everything inside uses it, and it is converted only where a file format demands another one.
//!
//! ```
//! # fn main() -> libreconstruct::Result<()> {
//! use libreconstruct::camera::{Camera, CameraModel, Image, Point3D, Pose, SparseModel};
//! use nalgebra::{UnitQuaternion, Vector3};
//!
//! let (position, target) = (Vector3::new(0.0, 0.0, -3.0), Vector3::zeros());
//! let pose = Pose::look_at(&position, &target, &-Vector3::y()).unwrap(); // y points down, so up is -y
//! let camera = Camera::from_focal(CameraModel::Pinhole, 500.0, 640, 480);
//! let point = Point3D { xyz: target, rgb: [255; 3], error: 0.0, track: Vec::new() };
//! let mut model = SparseModel::default();
//! model.cameras.insert(1, camera);
//! model.images.insert(1, Image { name: "1.jpg".into(), camera_id: 1, pose, points2d: Vec::new() });
//! model.points.insert(1, point);
//!
//! // The world twice as large: what the camera sees stays.
//! model.transform(2.0, &UnitQuaternion::identity(), &Vector3::zeros());
//! let pixel = model.cameras[&1].project(&model.images[&1].pose.transform(&model.points[&1].xyz)).unwrap();
//! assert!((pixel.x - 320.0).abs() < 1e-9 && (pixel.y - 240.0).abs() < 1e-9);
//! # let folder = tempfile::tempdir().unwrap();
//! # let folder = folder.path();
//! model.write_binary(folder)?; // COLMAP's cameras.bin, images.bin, points3D.bin
//! assert_eq!(SparseModel::read(folder)?.images.len(), 1);
//! # Ok(())
//! # }
//! ```

mod colmap;
mod gaze;
mod lens;
mod level;
mod model;
pub mod panorama;
mod plot;
mod pose;
mod readout;
mod sparse;
mod undistort;

#[cfg(test)]
pub(crate) use gaze::WORLD_UP;
pub(crate) use gaze::{Gaze, GazeOptions, scene_up};
pub(crate) use lens::{Bent, Lens};
pub(crate) use level::{gravity, levelling};
pub use model::{Camera, CameraModel};
pub use plot::{draw_poses, plot_doubtful_poses, plot_poses};
pub use pose::Pose;
pub use readout::{LineMotion, Readout, ReadoutDirection, RollingShutter};
pub use sparse::{Image, Point2D, Point3D, SparseModel};
pub use undistort::{undistort, undistort_unrolled};
