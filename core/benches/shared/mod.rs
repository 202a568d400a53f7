//! What the benchmarks of the rasterisers share: a scene, a view, a target, a step.

use libreconstruct::camera::{Camera, CameraModel, Pose};
use libreconstruct::glam::dvec3;
use libreconstruct::raster::{StepOptions, Target, View};
use libreconstruct::splats::{Splats, sh_coefficients};

pub(crate) const SH_DEGREE: u32 = 3;

pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn uniform(&mut self) -> f64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 11) as f64 / (1u64 << 53) as f64
    }

    pub(crate) fn normal(&mut self) -> f64 {
        (-2.0 * (1.0 - self.uniform()).ln()).sqrt() * (std::f64::consts::TAU * self.uniform()).cos()
    }
}

/// A camera at the origin that looks along z, its focal length `focal` times the picture's width.
pub(crate) fn view(width: u32, height: u32, focal: f64) -> View {
    let camera = Camera::from_focal(CameraModel::Pinhole, focal * f64::from(width), width, height);
    View::new(&camera, &Pose::identity())
}

/// Splats on surfaces at depths of 2 to 8, as dense on the picture as a trained scene of that size: the standard
/// deviation of a splat is about 0.8 times the distance to its neighbours on the surface. `across` and `down` are the
/// angles that it fills (tangents of the whole angle): a little more than the field of view, so that some are not visible.
pub(crate) fn scene(count: usize, [across, down]: [f64; 2]) -> Splats {
    let mut random = Random(count as u64);
    let mut splats = Splats::with_capacity(count, SH_DEGREE);
    splats.sh_degree = SH_DEGREE;
    for _ in 0..count {
        let depth = 2.0 + 6.0 * random.uniform().powi(2);
        let (x, y) = (across * (random.uniform() - 0.5), down * (random.uniform() - 0.5));
        splats.means.push(dvec3(x * depth, y * depth, depth).as_vec3());
        let scale = 0.8 * depth * (across * down * 2.0 / count as f64).sqrt();
        let scales = [0.0, 0.0, -1.5].map(|flat| (scale.ln() + flat + 0.5 * random.normal()) as f32);
        splats.log_scales.push(scales.into());
        splats.rotations.push([0; 4].map(|_| random.normal() as f32).into());
        splats.opacities.push((0.5 + 1.5 * random.normal()) as f32);
        for _ in 0..sh_coefficients(SH_DEGREE) * 3 {
            splats.sh.push((0.2 * random.normal()) as f32);
        }
    }
    splats
}

pub(crate) fn target(width: u32, height: u32) -> Target {
    let mut random = Random(7);
    let rgb = (0..width * height * 3).map(|_| (random.uniform() * 255.0) as u8).collect();
    Target { width, height, rgb, alpha: None, hides: false }
}

pub(crate) fn step(number: u32) -> StepOptions {
    StepOptions {
        step: number,
        lr_means: 1e-6,
        lr_scales: 1e-5,
        lr_rotations: 1e-5,
        lr_opacities: 1e-5,
        lr_sh_dc: 1e-5,
        lr_sh_rest: 1e-6,
        lr_exposure: 0.0,
        beta1: 0.9,
        beta2: 0.999,
        epsilon: 1e-15,
        opacity_regularisation: 0.01,
        scale_regularisation: 0.01,
        noise: 1.0,
        seed: 1,
    }
}
