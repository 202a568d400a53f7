//! The turn between the frame of the scene (x right, y down, z forward) and glTF's (x left, y up, z forward): 180 degrees
//! about z, the same there and back.

use glam::{Vec3, Vec4, vec3, vec4};
use rayon::prelude::*;

use crate::splats::harmonics::sh_coefficients;
use crate::splats::values::Splats;

/// What the turn does to the coefficients of degree 1 to 3: negative where the basis function is odd in x and y together,
/// which is where the order is odd.
const SH_SIGNS: [f32; 15] = {
    const P: f32 = 1.0;
    const N: f32 = -1.0;
    [N, P, N, P, N, P, N, P, N, P, N, P, N, P, N]
};

/// A place in the other frame.
pub(super) fn turned_position(mean: Vec3) -> Vec3 {
    vec3(-mean.x, -mean.y, mean.z)
}

/// A quaternion (w, x, y, z) in the other frame. The axes of the splat are turned along with the world, so that nothing but
/// signs changes: an axis that points the other way is the same axis of a Gaussian.
pub(super) fn turned_rotation(rotation: Vec4) -> Vec4 {
    let [w, x, y, z] = rotation.to_array();
    vec4(w, -x, -y, z)
}

/// By what coefficient `k` of the spherical harmonics is multiplied; 0 is the constant one.
pub(super) fn sh_sign(k: usize) -> f32 {
    match k.checked_sub(1) {
        None => 1.0,
        Some(k) => SH_SIGNS.get(k).copied().unwrap_or(1.0),
    }
}

/// Turns a whole scene.
pub(super) fn turn(splats: &mut Splats) {
    splats.means.par_iter_mut().for_each(|mean| *mean = turned_position(*mean));
    splats.rotations.par_iter_mut().for_each(|rotation| *rotation = turned_rotation(*rotation));
    splats.sh.par_chunks_exact_mut(3 * sh_coefficients(splats.sh_degree)).for_each(|colours| {
        for (k, colour) in colours.chunks_exact_mut(3).enumerate() {
            colour.iter_mut().for_each(|value| *value *= sh_sign(k));
        }
    });
}
