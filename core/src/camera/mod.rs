//! Cameras: intrinsics, poses, sparse models and their files.
//!
//! **The one frame convention of the engine** (COLMAP's and OpenCV's): camera axes x right, y down, z forward; a
//! [`Pose`] is world-to-camera, `x_cam = R x_world + t`; quaternions are w, x, y, z; the centre of the top-left pixel
//! is at (0.5, 0.5). Everything inside uses it, and it is converted only where a file format demands another one.

mod colmap;
mod lens;
mod model;
mod plot;
mod pose;
mod sparse;
mod undistort;

pub(crate) use lens::Lens;
pub use model::{Camera, CameraModel};
pub use plot::plot_poses;
pub use pose::Pose;
pub use sparse::{Image, Point2D, Point3D, SparseModel};
pub use undistort::undistort;
