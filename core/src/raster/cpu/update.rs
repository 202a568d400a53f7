//! From the gradient by the projected splats to the gradient by the parameters, and one optimiser step on them.
//!
//! Works on the visible splats only, sixteen at a time, and touches every byte of their parameters and moments once.
//! Coefficients of spherical harmonics above the active degree are neither read nor written.

use rayon::prelude::*;

use super::harmonics;
use super::isa::Isa;
use super::lanes::{Kernel, LANES, Lanes, each};
use super::project::{
    CHUNK, Camera, Geometric, Projected, Projection, direction, dot, gather, geometric, rotation,
};
use super::rasterise_backward::ProjectedGradient;
use super::real::Real;
use super::scalar::Scalar;
use super::state::{GEOMETRY, Geometry, MEAN, OPACITY, Parameters, ROTATION, SCALE, Scene};
use crate::error::Result;
use crate::raster::StepOptions;
use crate::splats::harmonics::{MAX_COEFFICIENTS, basis};

/// Splats more opaque than this get no noise: its factor would be below 1e-21.
const NOISE_OPACITY_MAX: f64 = 0.5;

/// Values of spherical harmonics of one splat.
const SH: usize = 3 * MAX_COEFFICIENTS;

/// Gradient by the parameters of all splats; zero for those that are not visible.
pub(super) fn gradient<T: Scalar>(
    isa: Isa,
    scene: &Scene<T>,
    projection: &Projection<T>,
    gradients: &[ProjectedGradient<T>],
) -> Result<Parameters<T>> {
    let camera = projection.camera()?;
    let mut out = Parameters::zero(scene.len(), scene.sh_degree);
    let stride = scene.sh_stride();
    out.geometry
        .par_chunks_mut(CHUNK)
        .zip(out.sh.par_chunks_mut(CHUNK * stride))
        .zip(scene.parameters.geometry.par_chunks(CHUNK))
        .zip(scene.parameters.sh.par_chunks(CHUNK * stride))
        .zip(projection.chunk_starts.par_windows(2))
        .enumerate()
        .for_each(|(chunk, ((((out_geometry, out_sh), geometry), sh), range))| {
            let input = Chunk::new(&camera, projection, gradients, chunk, range, stride);
            T::run(isa, CollectChunk { input, geometry, sh, out_geometry, out_sh });
        });
    Ok(out)
}

/// One optimiser step on the visible splats and the exposure, then the noise.
pub(super) fn update<T: Scalar>(
    isa: Isa,
    scene: &mut Scene<T>,
    projection: &Projection<T>,
    gradients: &[ProjectedGradient<T>],
    exposure: Option<(usize, [T; 12])>,
    options: &StepOptions,
) -> Result<()> {
    let camera = projection.camera()?;
    let stride = scene.sh_stride();
    let step = Step::new(options, scene.len());
    let Scene { parameters, first, second, .. } = scene;
    parameters
        .geometry
        .par_chunks_mut(CHUNK)
        .zip(parameters.sh.par_chunks_mut(CHUNK * stride))
        .zip(first.geometry.par_chunks_mut(CHUNK).zip(first.sh.par_chunks_mut(CHUNK * stride)))
        .zip(second.geometry.par_chunks_mut(CHUNK).zip(second.sh.par_chunks_mut(CHUNK * stride)))
        .zip(projection.chunk_starts.par_windows(2))
        .enumerate()
        .for_each(|(chunk, ((((geometry, sh), first), second), range))| {
            let input = Chunk::new(&camera, projection, gradients, chunk, range, stride);
            T::run(isa, StepChunk { input, step: &step, geometry, sh, first, second });
        });
    if let Some((index, gradient)) = exposure {
        let rates = [T::of_f32(options.lr_exposure); 12];
        let (p, m, v) = (
            &mut scene.exposures[index],
            &mut scene.exposures_first[index],
            &mut scene.exposures_second[index],
        );
        if squared_norm(&gradient).is_finite() {
            step.adam(p, m, v, &gradient, &rates);
        }
    }
    Ok(())
}

/// The visible splats of one chunk and what came back to them.
struct Chunk<'a, T> {
    camera: &'a Camera<T>,
    projected: &'a [Projected<T>],
    sh_degree: u32,
    sh_stride: usize,
    first_splat: usize,
    visible: &'a [u32],
    gradients: &'a [ProjectedGradient<T>],
}

impl<'a, T: Scalar> Chunk<'a, T> {
    fn new(
        camera: &'a Camera<T>,
        projection: &'a Projection<T>,
        gradients: &'a [ProjectedGradient<T>],
        chunk: usize,
        range: &[usize],
        sh_stride: usize,
    ) -> Self {
        Self {
            camera,
            projected: &projection.projected,
            sh_degree: projection.sh_degree,
            sh_stride,
            first_splat: chunk * CHUNK,
            visible: &projection.visible[range[0]..range[1]],
            gradients: &gradients[range[0]..range[1]],
        }
    }

    /// Values of spherical harmonics that are in use.
    fn sh_used(&self) -> usize {
        3 * ((self.sh_degree + 1) * (self.sh_degree + 1)) as usize
    }

    /// Gradients of up to 16 splats: by the geometry (first member), and by the colour after its clamp (second).
    #[inline(always)]
    fn block<V: Lanes<T = T>>(
        &self,
        splats: &[u32],
        gradients: &[ProjectedGradient<T>],
        geometry: &[Geometry<T>],
    ) -> [Geometry<T>; LANES] {
        let g = gather::<V>(splats.iter().map(|&s| geometry[s as usize - self.first_splat]));
        let mut columns = [[T::default(); LANES]; 6];
        for (lane, gradient) in gradients.iter().enumerate() {
            for k in 0..6 {
                columns[k][lane] = gradient[k];
            }
        }
        let mut by = [V::zero(); 6];
        for k in 0..6 {
            by[k] = V::load(&columns[k]);
        }
        let gradient = geometry_gradient(self.camera, &g, by);
        let mut out = [[T::default(); GEOMETRY]; LANES];
        for k in 0..GEOMETRY {
            let column = gradient[k].array();
            for lane in 0..LANES {
                out[lane][k] = column[lane];
            }
        }
        out
    }

    /// Gradient by the spherical harmonics of a splat; adds their part (through the direction) to that by the mean.
    #[inline(always)]
    fn colour(
        &self,
        splat: u32,
        gradient: &ProjectedGradient<T>,
        geometry: &Geometry<T>,
        sh: &[T],
        by_geometry: &mut Geometry<T>,
    ) -> [T; SH] {
        let s = &self.projected[splat as usize];
        let zero = T::default();
        let by_rgb = each!(c in 3 => if s.rgb[c] > zero { gradient[6 + c] } else { zero });
        let (d, inverse) = direction(self.camera, geometry);
        let basis = basis(self.sh_degree, d, T::of);
        let mut by_sh = [zero; SH];
        for k in 0..MAX_COEFFICIENTS {
            for c in 0..3 {
                by_sh[3 * k + c] = basis[k] * by_rgb[c];
            }
        }
        if self.sh_degree > 0 {
            let mut weights = [zero; MAX_COEFFICIENTS];
            for (weight, sh) in weights.iter_mut().zip(sh[..self.sh_used()].chunks_exact(3)) {
                *weight = sh[0] * by_rgb[0] + sh[1] * by_rgb[1] + sh[2] * by_rgb[2];
            }
            let by_d = harmonics::gradient(self.sh_degree, d, &weights);
            let along = by_d[0] * d[0] + by_d[1] * d[1] + by_d[2] * d[2];
            for i in 0..3 {
                by_geometry[MEAN + i] += (by_d[i] - along * d[i]) * inverse;
            }
        }
        by_sh
    }
}

/// Gradient by mean, logit, quaternion and log scales from that by (mean2d, covariance, opacity), without the part that
/// comes through the colour.
#[inline(always)]
fn geometry_gradient<V: Lanes>(camera: &Camera<V::T>, g: &[V; GEOMETRY], by: [V; 6]) -> [V; GEOMETRY] {
    let Geometric { p, inverse_z, m, quaternion, inverse_norm, rotation, scale, half, .. } =
        geometric(camera, g);
    let (zero, one, two) = (V::zero(), V::of(1.0), V::of(2.0));
    let [by_u, by_v, by_xx, by_xy, by_yy, by_opacity] = by;

    // covariance = half halfᵀ + dilation.
    let [h0, h1] = half;
    let d0 = each!(i in 3 => two * by_xx * h0[i] + by_xy * h1[i]);
    let d1 = each!(i in 3 => by_xy * h0[i] + two * by_yy * h1[i]);

    let by_scale = each!(i in 3 => d0[i] * h0[i] + d1[i] * h1[i]);
    let e0 = each!(i in 3 => d0[i] * scale[i]);
    let e1 = each!(i in 3 => d1[i] * scale[i]);
    let r = each!(i in 3 => each!(j in 3 => m[0][i] * e0[j] + m[1][i] * e1[j]));
    let by_m = [each!(i in 3 => dot(rotation[i], e0)), each!(i in 3 => dot(rotation[i], e1))];

    // Jacobian and centre.
    let world_z = each!(i in 3 => V::splat(camera.rotation[2][i]));
    let (fx, fy) = (V::splat(camera.fx), V::splat(camera.fy));
    let raw = [p[0] * inverse_z, p[1] * inverse_z];
    let slope_x =
        (zero - fx * inverse_z * dot(by_m[0], world_z)).keep(V::splat(camera.limit_x).ge(raw[0].abs()));
    let slope_y =
        (zero - fy * inverse_z * dot(by_m[1], world_z)).keep(V::splat(camera.limit_y).ge(raw[1].abs()));
    let (by_sx, by_sy) = (by_u.fma(fx, slope_x), by_v.fma(fy, slope_y));
    let by_p = [
        by_sx * inverse_z,
        by_sy * inverse_z,
        zero - inverse_z * (by_sx * raw[0] + by_sy * raw[1] + dot(by_m[0], m[0]) + dot(by_m[1], m[1])),
    ];
    let by_mean = each!(i in 3 => {
        let column = each!(j in 3 => V::splat(camera.rotation[j][i]));
        dot(column, by_p)
    });

    let [w, x, y, z] = quaternion;
    let half_by_unit = [
        x * (r[2][1] - r[1][2]) + y * (r[0][2] - r[2][0]) + z * (r[1][0] - r[0][1]),
        y * (r[0][1] + r[1][0]) + z * (r[0][2] + r[2][0]) + w * (r[2][1] - r[1][2])
            - two * x * (r[1][1] + r[2][2]),
        x * (r[0][1] + r[1][0]) + z * (r[1][2] + r[2][1]) + w * (r[0][2] - r[2][0])
            - two * y * (r[0][0] + r[2][2]),
        x * (r[0][2] + r[2][0]) + y * (r[1][2] + r[2][1]) + w * (r[1][0] - r[0][1])
            - two * z * (r[0][0] + r[1][1]),
    ];
    let by_unit = each!(i in 4 => two * half_by_unit[i]);
    let along = by_unit[0] * w + by_unit[1] * x + by_unit[2] * y + by_unit[3] * z;
    let by_rotation = each!(i in 4 => (by_unit[i] - along * quaternion[i]) * inverse_norm);

    let opacity = one / (one + (zero - g[OPACITY]).exp());
    let by_logit = by_opacity * opacity * (one - opacity);
    let mut out = [zero; GEOMETRY];
    out[MEAN..MEAN + 3].copy_from_slice(&by_mean);
    out[OPACITY] = by_logit;
    out[ROTATION..ROTATION + 4].copy_from_slice(&by_rotation);
    out[SCALE..SCALE + 3].copy_from_slice(&by_scale);
    out
}

#[inline(always)]
fn squared_norm<T: Scalar>(values: &[T]) -> T {
    let mut sum = T::default();
    for &v in values {
        sum += v * v;
    }
    sum
}

/// Writes the gradient down.
struct CollectChunk<'a, T> {
    input: Chunk<'a, T>,
    geometry: &'a [Geometry<T>],
    sh: &'a [T],
    out_geometry: &'a mut [Geometry<T>],
    out_sh: &'a mut [T],
}

impl<T: Scalar> Kernel<T> for CollectChunk<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<V: Lanes<T = T>>(self) {
        let Self { input, geometry, sh, out_geometry, out_sh } = self;
        let (stride, used) = (input.sh_stride, input.sh_used());
        for (splats, gradients) in input.visible.chunks(LANES).zip(input.gradients.chunks(LANES)) {
            let mut block = input.block::<V>(splats, gradients, geometry);
            for (lane, &splat) in splats.iter().enumerate() {
                let local = splat as usize - input.first_splat;
                let sh = &sh[local * stride..][..used];
                let by_sh = input.colour(splat, &gradients[lane], &geometry[local], sh, &mut block[lane]);
                out_geometry[local] = block[lane];
                out_sh[local * stride..][..used].copy_from_slice(&by_sh[..used]);
            }
        }
    }
}

/// The options of a step in the form in which the formulas use them.
struct Step<T> {
    beta1: T,
    beta2: T,
    /// 1 / (1 - beta1^step), and the root of 1 / (1 - beta2^step).
    correction1: T,
    correction2: T,
    epsilon: T,
    geometry_rates: Geometry<T>,
    sh_rates: [T; SH],
    by_opacity: T,
    by_scale: T,
    noise: T,
    step: u32,
    seed: u64,
}

impl<T: Scalar> Step<T> {
    fn new(options: &StepOptions, splats: usize) -> Self {
        let of = T::of_f32;
        let power = |beta: f32| f64::from(beta).powf(f64::from(options.step));
        let mut geometry_rates = [T::default(); GEOMETRY];
        geometry_rates[MEAN..MEAN + 3].fill(of(options.lr_means));
        geometry_rates[OPACITY] = of(options.lr_opacities);
        geometry_rates[ROTATION..ROTATION + 4].fill(of(options.lr_rotations));
        geometry_rates[SCALE..SCALE + 3].fill(of(options.lr_scales));
        let mut sh_rates = [of(options.lr_sh_rest); SH];
        sh_rates[..3].fill(of(options.lr_sh_dc));
        Self {
            beta1: of(options.beta1),
            beta2: of(options.beta2),
            correction1: T::of(1.0 / (1.0 - power(options.beta1))),
            correction2: T::of((1.0 / (1.0 - power(options.beta2))).sqrt()),
            epsilon: of(options.epsilon),
            geometry_rates,
            sh_rates,
            by_opacity: T::of(f64::from(options.opacity_regularisation) / splats as f64),
            by_scale: T::of(f64::from(options.scale_regularisation) / (3 * splats) as f64),
            noise: T::of(f64::from(options.noise) * f64::from(options.lr_means)),
            step: options.step,
            seed: options.seed,
        }
    }

    /// Adam on `g.len()` values.
    #[inline(always)]
    fn adam(&self, p: &mut [T], m: &mut [T], v: &mut [T], g: &[T], rates: &[T]) {
        let n = g.len();
        let (p, m, v, rates) = (&mut p[..n], &mut m[..n], &mut v[..n], &rates[..n]);
        let one = T::of(1.0);
        for i in 0..n {
            m[i] = self.beta1 * m[i] + (one - self.beta1) * g[i];
            v[i] = self.beta2 * v[i] + (one - self.beta2) * (g[i] * g[i]);
            p[i] -= rates[i] * self.correction1 * m[i] / (v[i].sqrt() * self.correction2 + self.epsilon);
        }
    }
}

/// Geometry and spherical harmonics of a chunk.
type Both<'a, T> = (&'a mut [Geometry<T>], &'a mut [T]);

/// Steps.
struct StepChunk<'a, T> {
    input: Chunk<'a, T>,
    step: &'a Step<T>,
    geometry: &'a mut [Geometry<T>],
    sh: &'a mut [T],
    first: Both<'a, T>,
    second: Both<'a, T>,
}

impl<T: Scalar> Kernel<T> for StepChunk<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<V: Lanes<T = T>>(self) {
        let Self { input, step, geometry, sh, first, second } = self;
        let (stride, used) = (input.sh_stride, input.sh_used());
        for (splats, gradients) in input.visible.chunks(LANES).zip(input.gradients.chunks(LANES)) {
            let mut block = input.block::<V>(splats, gradients, geometry);
            for (lane, &splat) in splats.iter().enumerate() {
                let local = splat as usize - input.first_splat;
                let range = local * stride..local * stride + used;
                let parameters = &mut geometry[local];
                let by_geometry = &mut block[lane];
                let by_sh =
                    input.colour(splat, &gradients[lane], parameters, &sh[range.clone()], by_geometry);
                let opacity = input.projected[splat as usize].opacity;
                by_geometry[OPACITY] += step.by_opacity * opacity * (T::of(1.0) - opacity);
                for k in SCALE..SCALE + 3 {
                    by_geometry[k] += step.by_scale * parameters[k].exp();
                }
                // A gradient that is not finite (a splat of absurd brightness or size) must not enter the moments.
                let size = squared_norm(by_geometry) + squared_norm(&by_sh[..used]);
                if !size.is_finite() {
                    continue;
                }
                let (m, v) = (&mut first.0[local], &mut second.0[local]);
                step.adam(parameters, m, v, by_geometry, &step.geometry_rates);
                let (m, v) = (&mut first.1[range.clone()], &mut second.1[range.clone()]);
                step.adam(&mut sh[range], m, v, &by_sh[..used], &step.sh_rates);
            }
            if step.noise > T::default() {
                perturb::<V>(step, splats, input.first_splat, geometry);
            }
        }
    }
}

/// The noise of 3DGS-MCMC on the means of up to 16 splats.
#[inline(always)]
fn perturb<V: Lanes>(step: &Step<V::T>, splats: &[u32], first_splat: usize, geometry: &mut [Geometry<V::T>]) {
    let g = gather::<V>(splats.iter().map(|&s| geometry[s as usize - first_splat]));
    let opacity = V::of(1.0) / (V::of(1.0) + (V::zero() - g[OPACITY]).exp());
    let chosen = V::bits(V::of(NOISE_OPACITY_MAX).ge(opacity)) & ((1u32 << splats.len()) - 1) as u16;
    if chosen == 0 {
        return;
    }
    let mut normals = [[V::T::default(); LANES]; 3];
    for (lane, &splat) in splats.iter().enumerate() {
        if chosen >> lane & 1 == 1 {
            let n = normal3::<V::T>(step.seed, step.step, splat);
            for i in 0..3 {
                normals[i][lane] = n[i];
            }
        }
    }
    let normals = each!(i in 3 => V::load(&normals[i]));
    // sigmoid(-100 (opacity - 0.005))
    let factor = V::splat(step.noise) / (V::of(1.0) + (V::of(100.0) * (opacity - V::of(0.005))).exp());
    let q = [g[4], g[5], g[6], g[7]];
    let inverse = V::of(1.0) / (q[0] * q[0] + q[1] * q[1] + q[2] * q[2] + q[3] * q[3]).sqrt();
    let r = rotation(each!(i in 4 => q[i] * inverse));
    let local = each!(j in 3 => {
        let scale = g[SCALE + j].exp();
        scale * scale * dot([r[0][j], r[1][j], r[2][j]], normals)
    });
    let offset = each!(i in 3 => (factor * dot(r[i], local)).array());
    for (lane, &splat) in splats.iter().enumerate() {
        let move_by = [offset[0][lane], offset[1][lane], offset[2][lane]];
        if chosen >> lane & 1 == 1 && move_by.iter().all(|v| v.is_finite()) {
            for i in 0..3 {
                geometry[splat as usize - first_splat][MEAN + i] += move_by[i];
            }
        }
    }
}

/// Three standard normal numbers fixed by their key: `pcg4d` (Jarzynski & Olano, JCGT 2020) and Box-Muller.
fn normal3<T: Real>(seed: u64, step: u32, splat: u32) -> [T; 3] {
    let [a, b, c, d] = pcg4d([splat, step, seed as u32, (seed >> 32) as u32]);
    // In (0, 1).
    let uniform = |bits: u32| T::of((f64::from(bits >> 8) + 0.5) / f64::from(1 << 24));
    let radius = |bits: u32| (T::of(-2.0 * std::f64::consts::LN_2) * uniform(bits).log2()).sqrt();
    let angle = |bits: u32| (T::of(std::f64::consts::TAU) * uniform(bits)).sin_cos();
    let ((r0, (sin0, cos0)), (r1, (_, cos1))) = ((radius(a), angle(b)), (radius(c), angle(d)));
    [r0 * cos0, r0 * sin0, r1 * cos1]
}

/// Mixes four words.
fn pcg4d(key: [u32; 4]) -> [u32; 4] {
    let mut v = key.map(|x| x.wrapping_mul(1_664_525).wrapping_add(1_013_904_223));
    let round = |v: &mut [u32; 4]| {
        v[0] = v[0].wrapping_add(v[1].wrapping_mul(v[3]));
        v[1] = v[1].wrapping_add(v[2].wrapping_mul(v[0]));
        v[2] = v[2].wrapping_add(v[0].wrapping_mul(v[1]));
        v[3] = v[3].wrapping_add(v[1].wrapping_mul(v[2]));
    };
    round(&mut v);
    v = v.map(|x| x ^ (x >> 16));
    round(&mut v);
    v
}
