//! The splats as a structure of arrays.

use glam::{Quat, Vec3, Vec4, vec4};
use rayon::prelude::*;

use super::harmonics::sh_coefficients;
use crate::error::{Error, ErrorKind, Result};

/// A splat more transparent than this, even in its middle, is in no picture: one step of an 8-bit colour.
pub const OPACITY_MIN: f64 = 1.0 / 255.0;

/// Opacity is 1 to the last bit of f32 above this logit; it stands for an infinite one, which some files have.
pub(super) const MAX_LOGIT: f32 = 20.0;

/// Stands for the logarithm of a scale of zero, which some files have. Nothing that small is ever seen.
pub(super) const MIN_LOG_SCALE: f32 = -40.0;

/// No rotation, as [`Splats::rotations`] has it.
pub(crate) const IDENTITY: Vec4 = vec4(1.0, 0.0, 0.0, 0.0);

/// A Gaussian scene. All vectors have one entry per splat, except `sh`.
///
/// A splat is `opacity * exp(-½ (x-mean)ᵀ Σ⁻¹ (x-mean))` with `Σ = R diag(scale²) Rᵀ`, in the world frame of
/// [`crate::camera`]. Values are stored as they are trained, in the parametrisation of the INRIA `.ply`.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Splats {
    /// Centres, world units.
    pub means: Vec<Vec3>,
    /// Natural logarithms of the standard deviations along the axes, world units.
    pub log_scales: Vec<Vec3>,
    /// Quaternions, splat-to-world, as (w, x, y, z): the vector's x is the quaternion's w. Not [`Quat`], which has w last and
    /// is for unit quaternions: these are trained and so of any length, and files, the device and the arrays of the C and
    /// the Python face have w first. [`Splats::rotation`] converts.
    pub rotations: Vec<Vec4>,
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

    /// The rotation of splat `i`, of unit length; the identity where the stored quaternion is zero.
    ///
    /// # Panics
    /// If there is no splat `i`.
    pub fn rotation(&self, i: usize) -> Quat {
        let [w, x, y, z] = normalised(self.rotations[i]).to_array();
        Quat::from_xyzw(x, y, z, w)
    }

    /// Keeps the splats whose numbers satisfy `keep`, in their order.
    pub fn retain(&mut self, keep: impl Fn(usize) -> bool) {
        fn retain<T: Copy>(values: &mut Vec<T>, per_splat: usize, keep: impl Fn(usize) -> bool) {
            let mut kept = 0;
            for i in (0..values.len() / per_splat).filter(|&i| keep(i)) {
                values.copy_within(i * per_splat..(i + 1) * per_splat, kept);
                kept += per_splat;
            }
            values.truncate(kept);
        }
        retain(&mut self.means, 1, &keep);
        retain(&mut self.log_scales, 1, &keep);
        retain(&mut self.rotations, 1, &keep);
        retain(&mut self.opacities, 1, &keep);
        retain(&mut self.sh, 3 * sh_coefficients(self.sh_degree), &keep);
    }

    /// Removes the splats that no picture shows: fainter than [`OPACITY_MIN`] even in their middle, or with a value that is
    /// not a number. Done once before a scene is exported, all its files have the same splats.
    pub(crate) fn remove_invisible(&mut self) {
        let per_splat = 3 * sh_coefficients(self.sh_degree);
        let faintest = (OPACITY_MIN / (1.0 - OPACITY_MIN)).ln() as f32;
        let shown: Vec<bool> = (0..self.len())
            .map(|i| {
                let finite = self.means[i].is_finite()
                    && self.log_scales[i].is_finite()
                    && self.rotations[i].is_finite()
                    && self.sh[i * per_splat..(i + 1) * per_splat].iter().all(|v| v.is_finite());
                self.opacities[i] >= faintest && finite
            })
            .collect();
        self.retain(|i| shown[i]);
    }

    /// The first splat with a value that is not finite.
    pub(super) fn first_not_finite(&self) -> Option<usize> {
        (0..self.len()).into_par_iter().position_first(|i| !self.is_finite_at(i))
    }

    /// Whether all values of splat `i` are finite.
    pub(super) fn is_finite_at(&self, i: usize) -> bool {
        let sh = self.sh.len() / self.len();
        self.means[i].is_finite()
            && self.log_scales[i].is_finite()
            && self.rotations[i].is_finite()
            && self.opacities[i].is_finite()
            && self.sh[i * sh..][..sh].iter().all(|v| v.is_finite())
    }

    /// Whether the scene can be written in a format that has neither empty scenes nor values that are not finite;
    /// `extension` is that of its files.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`] if there are no splats, [`ErrorKind::InvalidFile`] if a value is not finite or those of
    /// [`Splats::check`].
    pub(super) fn check_for_export(&self, extension: &str) -> Result<()> {
        self.check()?;
        if self.is_empty() {
            let message = format!("an {extension} file cannot hold a scene without splats");
            return Err(Error::argument(message).hint("write a .ply file"));
        }
        match self.first_not_finite() {
            None => Ok(()),
            Some(index) => {
                Err(Error::new(ErrorKind::InvalidFile, format!("a value of splat {index} is not finite")))
            }
        }
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

/// The unit quaternion (w, x, y, z) of the same direction; what is of unit length to rounding is kept bit for bit. Zero
/// becomes the identity.
pub(super) fn normalised(q: Vec4) -> Vec4 {
    let norm = q.as_dvec4().length();
    if (norm - 1.0).abs() < 2e-7 {
        return q;
    }
    if norm < 1e-20 {
        return IDENTITY;
    }
    (q.as_dvec4() / norm).as_vec4()
}

#[cfg(test)]
mod tests {
    use glam::vec3;

    use super::super::test_scenes::random_splats;
    use super::*;

    #[test]
    fn rotations_are_quaternions_with_w_first_of_any_length() {
        let half = std::f32::consts::FRAC_1_SQRT_2;
        let rotations = vec![vec4(3.0 * half, 0.0, 0.0, 3.0 * half), Vec4::ZERO];
        let splats = Splats { rotations, ..Splats::default() };
        // A quarter turn about z.
        assert!((splats.rotation(0) * vec3(1.0, 0.0, 0.0) - vec3(0.0, 1.0, 0.0)).length() < 1e-6);
        assert!(splats.rotation(0).is_normalized());
        assert_eq!(splats.rotation(1), Quat::IDENTITY);
    }

    #[test]
    fn invisible_splats_are_removed_and_the_others_keep_all_their_values() {
        let mut splats = random_splats(1, 100, 2);
        splats.opacities.iter_mut().for_each(|v| *v = v.max(-5.0));
        splats.opacities[0] = -5.55; // 1 / 258
        splats.opacities[1] = -5.53; // 1 / 253
        splats.opacities[50] = f32::NEG_INFINITY;
        splats.opacities[98] = f32::NAN;
        splats.sh[99 * 27 + 26] = f32::INFINITY;
        let whole = splats.clone();
        splats.remove_invisible();
        splats.check().unwrap();
        assert_eq!(splats.len(), 96);
        for (new, old) in (0..96).map(|i| (i, if i < 49 { i + 1 } else { i + 2 })) {
            assert_eq!(splats.means[new], whole.means[old]);
            assert_eq!(splats.log_scales[new], whole.log_scales[old]);
            assert_eq!(splats.rotations[new], whole.rotations[old]);
            assert_eq!(splats.opacities[new].to_bits(), whole.opacities[old].to_bits());
            assert_eq!(splats.sh[new * 27..new * 27 + 27], whole.sh[old * 27..old * 27 + 27]);
        }
    }
}
