//! From the gradient by the projected splats to the gradient by the parameters, and one optimiser step on them.
//!
//! Works on the visible splats only, and touches every byte of their parameters and moments once. Gradients are computed with
//! a lane per splat, sixteen at a time; the optimiser works with a lane per parameter. Coefficients of spherical harmonics above the active degree are neither read nor written.

use rayon::prelude::*;

use super::harmonics;
use super::isa::Isa;
use super::lanes::{Kernel, LANES, Lanes, Portable, columns, each};
use super::project::{
    CHUNK, Camera, Geometric, Projected, Projection, direction, dot, geometric, projected_columns, rotation,
};
use super::rasterise_backward::ProjectedGradient;
use super::real::Real;
use super::scalar::Scalar;
use super::state::{Geometry, Harmonics, MEAN, OPACITY, Parameters, ROTATION, SCALE, Scene};
use crate::error::Result;
use crate::raster::StepOptions;
use crate::splats::harmonics::{MAX_COEFFICIENTS, basis, sh_coefficients};

/// Splats more opaque than this get no noise: its factor would be below 1e-21.
const NOISE_OPACITY_MAX: f64 = 0.5;

/// Gradient by the parameters of all splats; zero for those that are not visible.
pub(super) fn gradient<T: Scalar>(
    isa: Isa,
    scene: &Scene<T>,
    projection: &Projection<T>,
    gradients: &[ProjectedGradient<T>],
) -> Result<Parameters<T>> {
    let camera = projection.camera()?;
    let mut out = Parameters::zero(scene.len());
    out.geometry
        .par_chunks_mut(CHUNK)
        .zip(out.sh.par_chunks_mut(CHUNK))
        .zip(scene.parameters.geometry.par_chunks(CHUNK))
        .zip(scene.parameters.sh.par_chunks(CHUNK))
        .zip(projection.chunk_starts.par_windows(2))
        .enumerate()
        .for_each(|(chunk, ((((out_geometry, out_sh), geometry), sh), range))| {
            let input = Chunk::new(&camera, projection, gradients, chunk, range);
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
    let step = Step::new(options, scene.len());
    scene.fill_moments();
    let Scene { parameters, first, second, .. } = scene;
    parameters
        .geometry
        .par_chunks_mut(CHUNK)
        .zip(parameters.sh.par_chunks_mut(CHUNK))
        .zip(first.geometry.par_chunks_mut(CHUNK).zip(first.sh.par_chunks_mut(CHUNK)))
        .zip(second.geometry.par_chunks_mut(CHUNK).zip(second.sh.par_chunks_mut(CHUNK)))
        .zip(projection.chunk_starts.par_windows(2))
        .enumerate()
        .for_each(|(chunk, ((((geometry, sh), first), second), range))| {
            let input = Chunk::new(&camera, projection, gradients, chunk, range);
            T::run(isa, StepChunk { input, step: &step, geometry, sh, first, second });
        });
    if let Some((index, gradient)) = exposure {
        let (p, m, v) = (
            &mut scene.exposures[index],
            &mut scene.exposures_first[index],
            &mut scene.exposures_second[index],
        );
        let squares = gradient.iter().fold(T::default(), |sum, &g| sum + g * g);
        if squares.is_finite() {
            step.adam_once(p, m, v, &gradient, T::of_f32(options.lr_exposure));
        }
    }
    Ok(())
}

/// The visible splats of one chunk and what came back to them.
struct Chunk<'a, T> {
    camera: &'a Camera<T>,
    projected: &'a [Projected<T>],
    sh_degree: u32,
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
    ) -> Self {
        Self {
            camera,
            projected: &projection.projected,
            sh_degree: projection.sh_degree,
            first_splat: chunk * CHUNK,
            visible: &projection.visible[range[0]..range[1]],
            gradients: &gradients[range[0]..range[1]],
        }
    }

    /// Coefficients of spherical harmonics per channel that are in use.
    fn coefficients(&self) -> usize {
        sh_coefficients(self.sh_degree)
    }

    /// What came back to up to 16 splats.
    #[inline(always)]
    fn block<V: Lanes<T = T>>(
        &self,
        splats: &[u32],
        gradients: &[ProjectedGradient<T>],
        geometry: &[Geometry<T>],
        sh: &[Harmonics<T>],
    ) -> Block<V> {
        let zero = V::zero();
        let g = columns::<V>(splats.iter().map(|&s| &geometry[s as usize - self.first_splat]));
        let gradient = columns::<V>(gradients.iter());
        let s = projected_columns::<V>(self.projected, splats);
        let (mut by, scale) = geometry_gradient(self.camera, &g, &gradient);
        // A colour that was clamped to zero moves with nothing.
        let by_rgb = each!(c in 3 => gradient[6 + c].keep(V::from_bits(!V::bits(zero.ge(s.rgb[c])))));

        let (d, inverse) = direction(self.camera, &g);
        let basis = basis(self.sh_degree, d, V::of);
        if self.sh_degree > 0 {
            let by_channel = each!(c in 3 => by_rgb[c].array());
            let mut weights = [zero; LANES];
            for (lane, &splat) in splats.iter().enumerate() {
                for (sh, by) in sh[splat as usize - self.first_splat].iter().zip(&by_channel) {
                    weights[lane] = V::load(sh).fma(V::splat(by[lane]), weights[lane]);
                }
            }
            let by_d = harmonics::gradient(self.sh_degree, d, &V::transpose(weights));
            let along = dot(by_d, d);
            for i in 0..3 {
                by[MEAN + i] = along.fnma(d[i], by_d[i]).fma(inverse, by[MEAN + i]);
            }
        }
        Block { geometry: by, basis, by_rgb, opacity: s.opacity, scale }
    }
}

/// What came back to 16 splats, a lane each.
struct Block<V> {
    /// Gradient by the geometry.
    geometry: [V; LANES],
    /// Of spherical harmonics: the gradient by a coefficient is its function times the gradient by the colour.
    basis: [V; MAX_COEFFICIENTS],
    by_rgb: [V; 3],
    opacity: V,
    scale: [V; 3],
}

/// Gradient by mean, logit, quaternion and log scales from that by (mean2d, covariance, opacity), without the part that
/// comes through the colour; and the scales.
#[inline(always)]
fn geometry_gradient<V: Lanes>(
    camera: &Camera<V::T>,
    g: &[V; LANES],
    by: &[V; LANES],
) -> ([V; LANES], [V; 3]) {
    let Geometric { p, inverse_z, m, quaternion, inverse_norm, rotation, scale, half, .. } =
        geometric(camera, g);
    let (zero, one, two) = (V::zero(), V::of(1.0), V::of(2.0));
    let [by_u, by_v, by_xx, by_xy, by_yy, by_opacity, ..] = *by;

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
    let mut out = [zero; LANES];
    out[MEAN..MEAN + 3].copy_from_slice(&by_mean);
    out[OPACITY] = by_logit;
    out[ROTATION..ROTATION + 4].copy_from_slice(&by_rotation);
    out[SCALE..SCALE + 3].copy_from_slice(&by_scale);
    (out, scale)
}

/// Writes the gradient down.
struct CollectChunk<'a, T> {
    input: Chunk<'a, T>,
    geometry: &'a [Geometry<T>],
    sh: &'a [Harmonics<T>],
    out_geometry: &'a mut [Geometry<T>],
    out_sh: &'a mut [Harmonics<T>],
}

impl<T: Scalar> Kernel<T> for CollectChunk<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<V: Lanes<T = T>>(self) {
        let Self { input, geometry, sh, out_geometry, out_sh } = self;
        for (splats, gradients) in input.visible.chunks(LANES).zip(input.gradients.chunks(LANES)) {
            let block = input.block::<V>(splats, gradients, geometry, sh);
            let (by_geometry, basis) = (V::transpose(block.geometry), V::transpose(block.basis));
            let by_rgb = each!(c in 3 => block.by_rgb[c].array());
            for (lane, &splat) in splats.iter().enumerate() {
                let local = splat as usize - input.first_splat;
                by_geometry[lane].store(&mut out_geometry[local]);
                for (sh, by) in out_sh[local].iter_mut().zip(&by_rgb) {
                    (basis[lane] * V::splat(by[lane])).store(sh);
                }
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
    geometry_rates: [T; LANES],
    /// Of the coefficients of a channel.
    sh_rates: [T; LANES],
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
        let mut geometry_rates = [T::default(); LANES];
        geometry_rates[MEAN..MEAN + 3].fill(of(options.lr_means));
        geometry_rates[OPACITY] = of(options.lr_opacities);
        geometry_rates[ROTATION..ROTATION + 4].fill(of(options.lr_rotations));
        geometry_rates[SCALE..SCALE + 3].fill(of(options.lr_scales));
        let mut sh_rates = [of(options.lr_sh_rest); LANES];
        sh_rates[0] = of(options.lr_sh_dc);
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

    /// Adam on a few values with one rate.
    fn adam_once(&self, p: &mut [T], m: &mut [T], v: &mut [T], g: &[T], rate: T) {
        let mut records = [[T::default(); LANES]; 4];
        for (record, values) in records.iter_mut().zip([&*p, m, v, g]) {
            record[..values.len()].copy_from_slice(values);
        }
        let [p_record, m_record, v_record, g] = &mut records;
        self.adam(LANES, p_record, m_record, v_record, Portable::load(g), &[rate; LANES]);
        for (values, record) in [p, m, v].into_iter().zip(&records) {
            values.copy_from_slice(&record[..values.len()]);
        }
    }

    /// Adam on the first `used` of 16 values.
    #[inline(always)]
    fn adam<V: Lanes<T = T>>(
        &self,
        used: usize,
        p: &mut [T; LANES],
        m: &mut [T; LANES],
        v: &mut [T; LANES],
        g: V,
        rates: &[T; LANES],
    ) {
        let one = T::of(1.0);
        let first = V::load(m).fma(V::splat(self.beta1), V::splat(one - self.beta1) * g);
        let second = V::load(v).fma(V::splat(self.beta2), V::splat(one - self.beta2) * (g * g));
        let size = second.sqrt().fma(V::splat(self.correction2), V::splat(self.epsilon));
        let rate = V::load(rates) * V::splat(self.correction1);
        let moved = (rate * first).fnma(size.inverse(), V::load(p));
        first.store_first(&mut m[..used]);
        second.store_first(&mut v[..used]);
        moved.store_first(&mut p[..used]);
    }
}

/// Geometry and spherical harmonics of a chunk.
type Both<'a, T> = (&'a mut [Geometry<T>], &'a mut [Harmonics<T>]);

/// Steps.
struct StepChunk<'a, T> {
    input: Chunk<'a, T>,
    step: &'a Step<T>,
    geometry: &'a mut [Geometry<T>],
    sh: &'a mut [Harmonics<T>],
    first: Both<'a, T>,
    second: Both<'a, T>,
}

impl<T: Scalar> Kernel<T> for StepChunk<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<V: Lanes<T = T>>(self) {
        let Self { input, step, geometry, sh, first, second } = self;
        let used = input.coefficients();
        let zero = V::zero();
        for (index, (splats, gradients)) in
            input.visible.chunks(LANES).zip(input.gradients.chunks(LANES)).enumerate()
        {
            let Block { geometry: mut by, basis, by_rgb, opacity, scale } =
                input.block::<V>(splats, gradients, geometry, sh);
            let by_logit = V::splat(step.by_opacity) * opacity;
            by[OPACITY] = by_logit.fma(V::of(1.0) - opacity, by[OPACITY]);
            for k in 0..3 {
                by[SCALE + k] = scale[k].fma(V::splat(step.by_scale), by[SCALE + k]);
            }
            // A gradient that is not finite (a splat of absurd brightness or size) must not enter the moments.
            let (mut size, mut of_basis) = (zero, zero);
            for (by, basis) in by.iter().zip(&basis) {
                size = by.fma(*by, size);
                of_basis = basis.fma(*basis, of_basis);
            }
            size = dot(by_rgb, by_rgb).fma(of_basis, size);
            let finite = V::bits((size * zero).ge(zero));
            let (by, basis) = (V::transpose(by), V::transpose(basis));
            let by_rgb = each!(c in 3 => by_rgb[c].array());
            for (lane, &splat) in splats.iter().enumerate() {
                if let Some(&ahead) = input.visible.get((index + 1) * LANES + lane) {
                    let local = ahead as usize - input.first_splat;
                    for row in [&*sh, &*first.1, &*second.1].into_iter().flat_map(|sh| &sh[local]) {
                        V::prefetch(row);
                    }
                    for geometry in [&*geometry, &*first.0, &*second.0] {
                        V::prefetch(&geometry[local]);
                    }
                    V::prefetch(&input.projected[ahead as usize]);
                    V::prefetch(&input.gradients[(index + 1) * LANES + lane]);
                }
                if finite >> lane & 1 == 0 {
                    continue;
                }
                let local = splat as usize - input.first_splat;
                let (m, v) = (&mut first.0[local], &mut second.0[local]);
                step.adam(LANES, &mut geometry[local], m, v, by[lane], &step.geometry_rates);
                for channel in 0..3 {
                    let (m, v) = (&mut first.1[local][channel], &mut second.1[local][channel]);
                    let by = basis[lane] * V::splat(by_rgb[channel][lane]);
                    step.adam(used, &mut sh[local][channel], m, v, by, &step.sh_rates);
                }
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
    let g = columns::<V>(splats.iter().map(|&s| &geometry[s as usize - first_splat]));
    let opacity = V::of(1.0) / (V::of(1.0) + (V::zero() - g[OPACITY]).exp());
    let chosen = V::bits(V::of(NOISE_OPACITY_MAX).ge(opacity)) & ((1u32 << splats.len()) - 1) as u16;
    if chosen == 0 {
        return;
    }
    let normals = normals::<V>(step.seed, step.step, splats);
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

/// Three standard normal numbers for each of up to 16 splats, fixed by their key: `pcg4d` (Jarzynski & Olano, JCGT 2020)
/// and Box-Muller.
#[inline(always)]
fn normals<V: Lanes>(seed: u64, step: u32, splats: &[u32]) -> [V; 3] {
    let mut key = [[0, step, seed as u32, (seed >> 32) as u32]; LANES];
    for (key, &splat) in key.iter_mut().zip(splats) {
        key[0] = splat;
    }
    let mut columns = [[V::T::default(); LANES]; 4];
    for lane in 0..LANES {
        let words = pcg4d(key[lane]);
        for k in 0..4 {
            columns[k][lane] = V::T::from_i32((words[k] >> 8) as i32);
        }
    }
    // In (0, 1].
    let uniform = each!(k in 4 => (V::load(&columns[k]) + V::of(0.5)) * V::of(1.0 / f64::from(1 << 24)));
    let radius = each!(k in 2 => {
        (V::of(-2.0 * std::f64::consts::LN_2) * uniform[2 * k].log2()).max(V::zero()).sqrt()
    });
    let [sine0, cosine0] = uniform[1].sin_cos_of_turns();
    let [_, cosine1] = uniform[3].sin_cos_of_turns();
    [radius[0] * cosine0, radius[0] * sine0, radius[1] * cosine1]
}

/// Mixes four words.
#[inline(always)]
fn pcg4d(key: [u32; 4]) -> [u32; 4] {
    let mut v = key;
    for k in 0..4 {
        v[k] = v[k].wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
    }
    for round in 0..2 {
        v[0] = v[0].wrapping_add(v[1].wrapping_mul(v[3]));
        v[1] = v[1].wrapping_add(v[2].wrapping_mul(v[0]));
        v[2] = v[2].wrapping_add(v[0].wrapping_mul(v[1]));
        v[3] = v[3].wrapping_add(v[1].wrapping_mul(v[2]));
        if round == 0 {
            for word in &mut v {
                *word ^= *word >> 16;
            }
        }
    }
    v
}
