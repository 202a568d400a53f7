//! The splats as a structure of arrays.

use crate::error::{Error, ErrorKind, Result};

/// Value of the constant spherical harmonic; colour = 0.5 + `SH_C0` * f_dc + ...
pub const SH_C0: f32 = 0.282_094_79;

/// Number of spherical-harmonics coefficients per channel of `degree` (0 to 3): 1, 4, 9, 16.
pub const fn sh_coefficients(degree: u32) -> usize {
    ((degree + 1) * (degree + 1)) as usize
}

/// A Gaussian scene. All vectors have one entry per splat, except `sh`.
///
/// A splat is `opacity * exp(-½ (x-mean)ᵀ Σ⁻¹ (x-mean))` with `Σ = R diag(scale²) Rᵀ`, in the world frame of
/// [`crate::camera`]. Values are stored as they are trained, in the parametrisation of the INRIA `.ply`.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Splats {
    /// Centres, world units.
    pub means: Vec<[f32; 3]>,
    /// Natural logarithms of the standard deviations along the axes, world units.
    pub log_scales: Vec<[f32; 3]>,
    /// Quaternions w, x, y, z, splat-to-world; not necessarily of unit length.
    pub rotations: Vec<[f32; 4]>,
    /// Logits of the opacities.
    pub opacities: Vec<f32>,
    /// Degree of the spherical harmonics, 0 to 3.
    pub sh_degree: u32,
    /// `len * sh_coefficients(sh_degree) * 3` values: per splat coefficient by coefficient, r g b within each. The
    /// basis and its signs are INRIA's, the direction is from the camera centre to the mean.
    pub sh: Vec<f32>,
    /// Whether they were trained with the anti-aliasing (mip) filter and must be rendered with it.
    pub antialiased: bool,
}

impl Splats {
    /// No splats, with room for `capacity`.
    pub fn with_capacity(capacity: usize, sh_degree: u32) -> Self {
        Self {
            means: Vec::with_capacity(capacity),
            log_scales: Vec::with_capacity(capacity),
            rotations: Vec::with_capacity(capacity),
            opacities: Vec::with_capacity(capacity),
            sh_degree,
            sh: Vec::with_capacity(capacity * sh_coefficients(sh_degree) * 3),
            antialiased: false,
        }
    }

    /// Number of splats.
    pub fn len(&self) -> usize {
        self.means.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.means.is_empty()
    }

    /// # Errors
    /// [`ErrorKind::InvalidFile`] if the vectors do not belong together or the degree is not 0 to 3.
    pub fn check(&self) -> Result<()> {
        let n = self.len();
        let consistent = self.sh_degree <= 3
            && self.log_scales.len() == n
            && self.rotations.len() == n
            && self.opacities.len() == n
            && self.sh.len() == n * sh_coefficients(self.sh_degree) * 3;
        if consistent {
            return Ok(());
        }
        Err(Error::new(
            ErrorKind::InvalidFile,
            format!(
                "the arrays of the scene do not belong together: {n} means, {} scales, {} rotations, {} opacities, {} \
                 colour values of degree {}",
                self.log_scales.len(),
                self.rotations.len(),
                self.opacities.len(),
                self.sh.len(),
                self.sh_degree
            ),
        ))
    }
}
