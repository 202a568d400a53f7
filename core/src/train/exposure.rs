//! Affine exposures: `rgb' = M [rgb alpha]`, a 3x4 matrix row by row for every training picture, of what the scene shows
//! in a pixel over black. What is behind the scene is as it is in all of them.
//!
//! They take up what the camera's automatic exposure and white balance changed between pictures. Only their
//! differences mean something: a common factor could as well be in the scene. So their mean over the training pictures
//! is moved into the colours when the scene is shown or exported, which is then in the mean exposure.

use crate::splats::{SH_C0, Splats};

/// Changes nothing.
pub(crate) const IDENTITY: [f32; 12] = [1.0, 0.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 0.0, 1.0, 0.0];

/// The mean matrix; the identity if there is none.
pub(crate) fn mean(exposures: &[[f32; 12]]) -> [f32; 12] {
    if exposures.is_empty() {
        return IDENTITY;
    }
    std::array::from_fn(|k| {
        (exposures.iter().map(|e| f64::from(e[k])).sum::<f64>() / exposures.len() as f64) as f32
    })
}

/// What `bake` does to every Gaussian, done to a pixel of a rendering over black: the offset counts as far as the pixel
/// is covered.
pub(crate) fn apply(m: &[f32; 12], rgb: [f32; 3], alpha: f32) -> [f32; 3] {
    std::array::from_fn(|r| {
        m[4 * r] * rgb[0] + m[4 * r + 1] * rgb[1] + m[4 * r + 2] * rgb[2] + m[4 * r + 3] * alpha
    })
}

/// Changes the colours of the Gaussians by an exposure.
pub(crate) fn bake(splats: &mut Splats, m: &[f32; 12]) {
    if *m == IDENTITY || splats.is_empty() {
        return;
    }
    let per_splat = splats.sh.len() / splats.len();
    for sh in splats.sh.chunks_exact_mut(per_splat) {
        for c in sh.chunks_exact_mut(3) {
            let rotated = apply(m, [c[0], c[1], c[2]], 0.0);
            c.copy_from_slice(&rotated);
        }
        // colour = 0.5 + C0 dc + ...: the half and the offset go into the constant coefficient.
        let shift = apply(m, [0.5; 3], 1.0);
        for c in 0..3 {
            sh[c] += (shift[c] - 0.5) / SH_C0;
        }
    }
}

#[cfg(test)]
mod tests {
    use glam::Vec3;

    use super::*;
    use crate::splats::IDENTITY as NO_ROTATION;

    #[test]
    fn baked_colours_are_the_exposed_ones() {
        let m: [f32; 12] = [0.9, 0.1, -0.05, 0.02, 0.0, 1.1, 0.1, -0.03, 0.05, 0.0, 0.8, 0.1];
        let sh: Vec<f32> = (0..12).map(|i| (i as f32 * 0.7).sin() * 0.5).collect();
        let mut splats = Splats {
            means: vec![Vec3::ZERO],
            log_scales: vec![Vec3::ZERO],
            rotations: vec![NO_ROTATION],
            opacities: vec![0.0],
            sh_degree: 1,
            sh: sh.clone(),
            antialiased: false,
        };
        bake(&mut splats, &m);
        let basis = [SH_C0, 0.3, -0.2, 0.1];
        let colour = |sh: &[f32]| -> [f32; 3] {
            std::array::from_fn(|c| 0.5 + (0..4).map(|k| basis[k] * sh[3 * k + c]).sum::<f32>())
        };
        let expected = apply(&m, colour(&sh), 1.0);
        for (a, b) in colour(&splats.sh).iter().zip(expected) {
            assert!((a - b).abs() < 1e-5);
        }
        assert_eq!(mean(&[IDENTITY, m])[3], 0.01);
        assert_eq!(mean(&[]), IDENTITY);
    }
}
