//! The splats of a Gaussian scene: their values, what holds of them without a picture, and their files.
//!
//! The world frame of the splats is that of the [`crate::camera::SparseModel`] they were trained on (levelled, y down);
//! `scene.ply` is written in it, `.spz` is converted as that format demands.

pub(crate) mod harmonics;
mod io;
mod ply;
mod spz;
#[cfg(test)]
pub(crate) mod test_scenes;
mod transform;
mod values;

pub use harmonics::{SH_C0, sh_coefficients};
pub use io::SceneFormat;
pub use spz::{SpzFrame, SpzOptions, SpzVersion};
pub use values::{OPACITY_MIN, Splats};
