//! What people are shown of a scene: a preview picture, a turntable film, where a viewer starts, and from where the frames were taken.

mod camera_data;
mod capture;
mod frame_camera;
mod preview;
mod turntable;

pub use camera_data::{CameraData, CameraType, Xyz};
pub use capture::choose_preview_image;
pub use frame_camera::FrameCamera;
pub use preview::{PREVIEW_SIDE, write_preview};
pub use turntable::{TurntableOptions, turntable_path, write_turntable};
