//! Scenes for tests.

use super::harmonics::sh_coefficients;
use super::values::Splats;
use crate::random::Random;

/// Splats in about the ranges of trained scenes, with unit quaternions.
pub(crate) fn random_splats(seed: u64, count: usize, sh_degree: u32) -> Splats {
    let mut random = Random::new(seed);
    let mut normal = || random.normal() as f32;
    let mut splats = Splats::with_capacity(count, sh_degree);
    for _ in 0..count {
        splats.means.push(std::array::from_fn(|_| 2.0 * normal()));
        splats.log_scales.push(std::array::from_fn(|_| -4.0 + normal()));
        splats.rotations.push(super::ply::normalised(std::array::from_fn(|_| normal())));
        splats.opacities.push(2.0 * normal());
        for k in 0..3 * sh_coefficients(sh_degree) {
            splats.sh.push(if k < 3 { normal() } else { 0.2 * normal() });
        }
    }
    splats
}
