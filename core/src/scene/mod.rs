//! Gaussian scenes: the splats, their files, pictures of them.
//!
//! The world frame of the splats is that of the [`crate::camera::SparseModel`] they were trained on (levelled, y down);
//! `scene.ply` is written in it, `.spz` is converted as that format demands.

mod camera_data;
mod capture;
mod io;
mod ply;
mod preview;
mod splats;
mod spz;
#[cfg(test)]
pub(crate) mod test_scenes;
mod transform;
mod turntable;

pub use camera_data::{CameraData, CameraType, Xyz};
pub use capture::choose_preview_image;
pub use io::SceneFormat;
pub(crate) use preview::write_jpeg;
pub use preview::{PREVIEW_SIDE, load_for_viewing, write_preview};
pub use splats::{SH_C0, Splats, sh_coefficients};
pub use spz::{SpzFrame, SpzOptions, SpzVersion};
pub use turntable::{TurntableOptions, turntable_path, write_turntable};
