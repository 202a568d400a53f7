//! Scenes for tests.

use glam::{vec3, vec4};

use super::harmonics::sh_coefficients;
use super::values::{Splats, normalised};
use crate::random::Random;

/// Splats in about the ranges of trained scenes, with unit quaternions.
pub(crate) fn random_splats(seed: u64, count: usize, sh_degree: u32) -> Splats {
    let mut random = Random::new(seed);
    let mut normal = || random.normal() as f32;
    let mut splats = Splats::with_capacity(count, sh_degree);
    for _ in 0..count {
        splats.means.push(vec3(normal(), normal(), normal()) * 2.0);
        splats.log_scales.push(vec3(normal(), normal(), normal()) - 4.0);
        splats.rotations.push(normalised(vec4(normal(), normal(), normal(), normal())));
        splats.opacities.push(2.0 * normal());
        for k in 0..3 * sh_coefficients(sh_degree) {
            splats.sh.push(if k < 3 { normal() } else { 0.2 * normal() });
        }
    }
    splats
}
