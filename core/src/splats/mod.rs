//! The splats of a Gaussian scene: their values, what holds of them without a picture, and their files.
//!
//! The world frame of the splats is that of the [`crate::camera::SparseModel`] they were trained on (levelled, y down);
//! `scene.ply` is written in it, `.spz` and `.glb` are converted as those formats demand.
//!
//! ```
//! # fn main() -> libreconstruct::Result<()> {
//! use libreconstruct::glam::{Vec3, vec3, vec4};
//! use libreconstruct::splats::Splats;
//!
//! let mut scene = Splats {
//!     means: vec![vec3(0.0, 0.0, 2.0), vec3(0.5, 0.0, 2.0)],
//!     log_scales: vec![Vec3::splat(-2.0); 2], // 0.14 world units along each axis
//!     rotations: vec![vec4(1.0, 0.0, 0.0, 0.0); 2],
//!     opacities: vec![3.0, -3.0], // logits: 95 % and 5 %
//!     sh: vec![0.5; 2 * 3],       // degree 0: one coefficient for each of red, green, blue
//!     ..Splats::default()
//! };
//! let opacities = scene.opacities.clone();
//! scene.retain(|i| opacities[i] > 0.0);
//! # let folder = tempfile::tempdir().unwrap();
//! # let file = folder.path().join("scene.ply");
//! scene.write(&file)?; // .ply, .spz, .glb or .sog, by its name
//! assert_eq!(Splats::read(&file)?, scene);
//! # Ok(())
//! # }
//! ```

mod glb;
pub(crate) mod harmonics;
mod io;
mod order;
mod ply;
mod sog;
mod source;
mod spz;
#[cfg(test)]
pub(crate) mod test_scenes;
mod thin;
mod transform;
mod values;

pub use harmonics::{SH_C0, sh_coefficients};
pub use io::SceneFormat;
pub use spz::{SpzFrame, SpzOptions, SpzVersion};
pub(crate) use values::IDENTITY;
pub use values::{OPACITY_MIN, Splats};
