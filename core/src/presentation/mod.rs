//! What people are shown of a scene: a preview picture, a turntable film, and where a viewer starts.

mod camera_data;
mod capture;
mod preview;
mod turntable;

pub use camera_data::{CameraData, CameraType, Xyz};
pub use capture::choose_preview_image;
pub use preview::{PREVIEW_SIDE, write_preview};
pub use turntable::{TurntableOptions, turntable_path, write_turntable};
