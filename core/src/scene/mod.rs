//! Gaussian scenes: the splats, their files, pictures of them.
//!
//! The world frame of the splats is that of the [`crate::camera::SparseModel`] they were trained on (levelled, y down);
//! `scene.ply` is written in it, `.spz` is converted as that format demands.

mod io;
mod ply;
mod splats;
mod spz;
#[cfg(test)]
pub(crate) mod test_scenes;

pub use splats::{SH_C0, Splats, sh_coefficients};
pub use spz::{SpzFrame, SpzOptions, SpzVersion};
