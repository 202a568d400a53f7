//! Compares the picture with its target: L1, SSIM (Wang et al. 2004) and alpha, and their gradient by the picture.
//!
//! SSIM needs four blurred fields (a, b, a² + b², ab: the two variances only ever appear as a sum) and its gradient
//! three. Blurs are separable: a row is blurred across rows first, straight from the planes, then along itself. Rows
//! are grouped into bands as high as a tile; a band is a task, and its sums are added in the order of the bands.

use rayon::prelude::*;

use super::isa::Isa;
use super::lanes::{Kernel, LANES, Lanes, Row, each};
use super::project::Camera;
use super::rasterise::{Picture, ROWS, TilePixels, TilePlane};
use super::real::Real;
use super::scalar::Scalar;
use super::state::TargetPlanes;
use crate::raster::LossOptions;

/// Reach of the window to each side.
const RADIUS: usize = 5;
const C1: f64 = 0.01 * 0.01;
const C2: f64 = 0.03 * 0.03;

/// Gradient by the pixels of a tile, before exposure and over the background, and by their alpha; zero outside of the picture.
#[derive(Debug, Clone)]
pub(super) struct TileGradient<T> {
    pub(super) rgb: [TilePlane<T>; 3],
    pub(super) alpha: TilePlane<T>,
    /// Mean over the channels of the absolute colour error (no gradient, but needed in the same place).
    pub(super) error: TilePlane<T>,
}

impl<T: Scalar> Default for TileGradient<T> {
    fn default() -> Self {
        let zero = [Row::default(); ROWS];
        Self { rgb: [zero; 3], alpha: zero, error: zero }
    }
}

/// The output of the pass.
#[derive(Debug, Default)]
pub(super) struct Loss<T> {
    pub(super) tiles: Vec<TileGradient<T>>,
    /// Number of the exposure that was applied, and the gradient by it.
    pub(super) exposure: Option<(usize, [T; 12])>,
    pub(super) value: f64,
    pub(super) l1: f64,
    pub(super) ssim: f64,
    // Rendering after exposure and target, by channel; rows padded with zeros to whole tiles.
    rendered: [Plane<T>; 3],
    target: [Plane<T>; 3],
    // Derivative of the loss by the blurred a, a² + b² and ab.
    maps: [[Plane<T>; 3]; 3],
}

/// One channel of a picture, row by row, 16 pixels at a time.
type Plane<T> = Vec<Row<T>>;

/// Sums over a band: |colour error|, |alpha error|.
type BandSums = [f64; 2];

impl<T: Scalar> Loss<T> {
    /// `exposure` is the matrix that `options` name; the sizes of camera, picture and target agree.
    pub(super) fn run(
        &mut self,
        isa: Isa,
        camera: &Camera<T>,
        picture: &Picture<T>,
        target: &TargetPlanes,
        options: &LossOptions,
        exposure: Option<[T; 12]>,
    ) {
        let (width, height) = (camera.width as usize, camera.height as usize);
        let stride = camera.tiles_x as usize;
        let pixels = (width * height) as f64;
        self.tiles.resize_with(camera.tiles(), TileGradient::default);
        for plane in self.rendered.iter_mut().chain(&mut self.target).chain(self.maps.iter_mut().flatten()) {
            plane.resize(stride * height, Row::default());
        }
        let (ssim_weight, l1_weight) = (f64::from(options.ssim_weight), 1.0 - f64::from(options.ssim_weight));
        let alpha_weight = target.alpha.as_ref().map_or(0.0, |_| f64::from(options.alpha_weight));
        let shape = Shape { width, height, stride };

        let per_row = camera.tiles_x as usize;
        let [r0, r1, r2] = &mut self.rendered;
        let [t0, t1, t2] = &mut self.target;
        let band = stride * ROWS;
        let sums: Vec<BandSums> = self
            .tiles
            .par_chunks_mut(per_row)
            .zip(picture.tiles.par_chunks(per_row))
            .zip(r0.par_chunks_mut(band).zip(r1.par_chunks_mut(band)).zip(r2.par_chunks_mut(band)))
            .zip(t0.par_chunks_mut(band).zip(t1.par_chunks_mut(band)).zip(t2.par_chunks_mut(band)))
            .enumerate()
            .map(|(band, (((gradient, pixels_of), ((r0, r1), r2)), ((t0, t1), t2)))| {
                let kernel = CompareBand {
                    shape,
                    first_row: band * ROWS,
                    pixels: pixels_of,
                    gradient,
                    rendered: [r0, r1, r2],
                    target_rows: [t0, t1, t2],
                    target,
                    background: picture.background,
                    exposure,
                    by_alpha: T::of(alpha_weight / pixels),
                };
                T::run(isa, kernel)
            })
            .collect();
        let total = sums.iter().fold([0.0; 2], |t, s| [t[0] + s[0], t[1] + s[1]]);
        self.l1 = total[0] / (3.0 * pixels);

        let bands = height.div_ceil(ROWS);
        let by_ssim = -ssim_weight / (3.0 * pixels);
        let (rendered, target_planes) = (&self.rendered, &self.target);
        let mut tasks = Vec::with_capacity(3 * bands);
        for (channel, [by_mean, by_square, by_product]) in self.maps.iter_mut().enumerate() {
            let chunks =
                by_mean.chunks_mut(band).zip(by_square.chunks_mut(band)).zip(by_product.chunks_mut(band));
            for (index, ((by_mean, by_square), by_product)) in chunks.enumerate() {
                tasks.push((channel, index, [by_mean, by_square, by_product]));
            }
        }
        let similarity: Vec<f64> = tasks
            .into_par_iter()
            .map(|(channel, index, maps)| {
                let (a, b) = (&rendered[channel], &target_planes[channel]);
                let first_row = index * ROWS;
                T::run(isa, SimilarityBand { shape, first_row, a, b, maps, by_ssim: T::of(by_ssim) })
            })
            .collect();
        self.ssim = similarity.iter().sum::<f64>() / (3.0 * pixels);

        let maps = &self.maps;
        let exposures: Vec<[T; 12]> = self
            .tiles
            .par_chunks_mut(per_row)
            .zip(picture.tiles.par_chunks(per_row))
            .enumerate()
            .map(|(band, (gradient, pixels_of))| {
                let kernel = GradientBand {
                    shape,
                    first_row: band * ROWS,
                    pixels: pixels_of,
                    gradient,
                    rendered,
                    target: target_planes,
                    target_bytes: target,
                    maps,
                    background: picture.background,
                    exposure,
                    by_l1: T::of(l1_weight / (3.0 * pixels)),
                };
                T::run(isa, kernel)
            })
            .collect();
        self.exposure = options.exposure.map(|index| {
            let mut sum = [T::default(); 12];
            for part in &exposures {
                for k in 0..12 {
                    sum[k] += part[k];
                }
            }
            (index as usize, sum)
        });
        self.value = l1_weight * self.l1 + ssim_weight * (1.0 - self.ssim) + alpha_weight * total[1] / pixels;
    }

    /// By r, g, b and alpha, row by row.
    pub(super) fn gradient(&self, camera: &Camera<T>) -> Vec<[f32; 4]> {
        let (width, height) = (camera.width as usize, camera.height as usize);
        let pixel = |at: usize| {
            let (x, y) = (at % width, at / width);
            let tile = &self.tiles[y / ROWS * camera.tiles_x as usize + x / LANES];
            let (row, lane) = (y % ROWS, x % LANES);
            let [r, g, b] = [0, 1, 2].map(|c: usize| tile.rgb[c][row][lane].f32());
            [r, g, b, tile.alpha[row][lane].f32()]
        };
        (0..width * height).map(pixel).collect()
    }
}

#[derive(Clone, Copy)]
struct Shape {
    width: usize,
    height: usize,
    /// Tiles in a row of pixels.
    stride: usize,
}

/// The 16 values from `at` on.
#[inline(always)]
fn window<T>(values: &[T], at: usize) -> &[T; LANES] {
    match values[at..].first_chunk() {
        Some(window) => window,
        None => panic!("a padded row ends with a tile of zeros"),
    }
}

/// The blended colours of a row of a tile over the background.
#[inline(always)]
fn over_background<V: Lanes>(pixels: &TilePixels<V::T>, row: usize, background: [V::T; 3]) -> [V; 3] {
    let left = V::load(&pixels.transmittance[row]);
    each!(c in 3 => left.fma(V::splat(background[c]), V::load(&pixels.rgb[c][row])))
}

/// `M [rgb alpha]` of a row of a tile, over the background: that is in no camera's exposure.
#[inline(always)]
fn expose<V: Lanes>(m: &[V::T; 12], pixels: &TilePixels<V::T>, row: usize, background: [V::T; 3]) -> [V; 3] {
    let rgb = each!(c in 3 => V::load(&pixels.rgb[c][row]));
    let left = V::load(&pixels.transmittance[row]);
    let alpha = V::of(1.0) - left;
    each!(i in 3 => {
        let [a, b, c, d] = each!(j in 4 => V::splat(m[4 * i + j]));
        let exposed = a.fma(rgb[0], b.fma(rgb[1], c.fma(rgb[2], d * alpha)));
        left.fma(V::splat(background[i]), exposed)
    })
}

/// -1, 0 or 1.
#[inline(always)]
fn sign<V: Lanes>(x: V) -> V {
    let (zero, one) = (V::zero(), V::of(1.0));
    one.keep(x.ge(zero)) - one.keep(zero.ge(x))
}

/// Up to 16 bytes as numbers from 0 to 1.
#[inline(always)]
fn shares<V: Lanes>(bytes: &[u8]) -> V {
    let mut values = [V::T::default(); LANES];
    for (value, &byte) in values.iter_mut().zip(bytes) {
        *value = V::T::from_i32(i32::from(byte));
    }
    V::load(&values) * V::of(1.0 / 255.0)
}

/// Fills the planes, the errors and the gradient by alpha.
struct CompareBand<'a, T> {
    shape: Shape,
    first_row: usize,
    pixels: &'a [TilePixels<T>],
    gradient: &'a mut [TileGradient<T>],
    rendered: [&'a mut [Row<T>]; 3],
    target_rows: [&'a mut [Row<T>]; 3],
    target: &'a TargetPlanes,
    background: [T; 3],
    exposure: Option<[T; 12]>,
    by_alpha: T,
}

impl<T: Scalar> Kernel<T> for CompareBand<'_, T> {
    type Output = BandSums;

    #[inline(always)]
    fn run<V: Lanes<T = T>>(self) -> BandSums {
        let Shape { width, height, stride } = self.shape;
        let one = V::of(1.0);
        let mut sums = [0.0; 2];
        for row in 0..ROWS.min(height - self.first_row) {
            let mut row_sums = [V::zero(); 2];
            for (tile, (pixels, gradient)) in self.pixels.iter().zip(self.gradient.iter_mut()).enumerate() {
                let x = tile * LANES;
                let inside_count = LANES.min(width - x);
                let inside_bits = ((1u32 << inside_count) - 1) as u16;
                let inside = V::from_bits(inside_bits);
                let start = (self.first_row + row) * width + x;
                let pixels_of_row = start..start + inside_count;
                let hidden_bits = self.target.hidden(pixels_of_row.clone());
                let known = V::from_bits(inside_bits & !hidden_bits);
                let rgb = match &self.exposure {
                    Some(matrix) => expose::<V>(matrix, pixels, row, self.background),
                    None => over_background::<V>(pixels, row, self.background),
                };
                let mut target_alpha = None;
                if let Some(plane) = &self.target.alpha {
                    target_alpha = Some(shares::<V>(&plane[pixels_of_row.clone()]));
                }
                let mut error = V::zero();
                for channel in 0..3 {
                    let mut wanted = shares::<V>(&self.target.rgb[channel][pixels_of_row.clone()]);
                    if let Some(alpha) = target_alpha {
                        let background = V::splat(self.background[channel]);
                        wanted = alpha.fma(wanted - background, background);
                    }
                    let have = rgb[channel].keep(inside);
                    wanted = wanted.keep(known);
                    if hidden_bits != 0 {
                        // What is rendered there is right, whatever it is.
                        wanted = wanted + have.keep(V::from_bits(hidden_bits));
                    }
                    error = error + (have - wanted).abs();
                    have.store(&mut self.rendered[channel][row * stride + tile]);
                    wanted.store(&mut self.target_rows[channel][row * stride + tile]);
                }
                (error * V::of(1.0 / 3.0)).store(&mut gradient.error[row]);
                row_sums[0] = row_sums[0] + error;
                let mut by_alpha = V::zero();
                if let Some(target_alpha) = target_alpha {
                    let alpha = one - V::load(&pixels.transmittance[row]);
                    let difference = (alpha - target_alpha).keep(known);
                    row_sums[1] = row_sums[1] + difference.abs();
                    by_alpha = V::splat(self.by_alpha) * sign(difference);
                }
                by_alpha.store(&mut gradient.alpha[row]);
            }
            sums[0] += row_sums[0].sum().f64();
            sums[1] += row_sums[1].sum().f64();
        }
        sums
    }
}

/// The Gaussian window of SSIM: sigma 1.5, sum 1.
#[inline(always)]
fn taps<V: Lanes>() -> [V; 2 * RADIUS + 1] {
    let weight = |k: usize| (-0.5 * ((k as f64 - RADIUS as f64) / 1.5).powi(2)).exp();
    let sum: f64 = (0..=2 * RADIUS).map(weight).sum();
    let mut taps = [V::zero(); 2 * RADIUS + 1];
    for k in 0..=2 * RADIUS {
        taps[k] = V::of(weight(k) / sum);
    }
    taps
}

/// A row with a tile of zeros at both ends, so that windows may reach past the picture.
fn padded_row<T: Scalar>(stride: usize) -> Vec<T> {
    vec![T::default(); (stride + 2) * LANES]
}

/// The 16 pixels of a tile in a padded row, to write.
#[inline(always)]
fn tile_of<T>(row: &mut [T], tile: usize) -> &mut [T; LANES] {
    match row[(tile + 1) * LANES..].first_chunk_mut() {
        Some(pixels) => pixels,
        None => panic!("a padded row ends with a tile of zeros"),
    }
}

/// The window along a padded row, around the pixels of a tile.
#[inline(always)]
fn blur_along<V: Lanes>(row: &[V::T], tile: usize, taps: &[V; 2 * RADIUS + 1]) -> V {
    let x = (tile + 1) * LANES;
    let row = &row[x - RADIUS..x + LANES + RADIUS];
    let mut sum = V::zero();
    for k in 0..=2 * RADIUS {
        sum = V::load(window(row, k)).fma(taps[k], sum);
    }
    sum
}

/// SSIM and its derivative by the blurred fields.
struct SimilarityBand<'a, T> {
    shape: Shape,
    first_row: usize,
    a: &'a [Row<T>],
    b: &'a [Row<T>],
    maps: [&'a mut [Row<T>]; 3],
    by_ssim: T,
}

impl<T: Scalar> Kernel<T> for SimilarityBand<'_, T> {
    type Output = f64;

    #[inline(always)]
    fn run<V: Lanes<T = T>>(self) -> f64 {
        let Shape { width, height, stride } = self.shape;
        let taps = taps::<V>();
        let mut fields: [Vec<T>; 4] = std::array::from_fn(|_| padded_row(stride));
        let (two, c1, c2) = (V::of(2.0), V::of(C1), V::of(C2));
        let by_ssim = V::splat(self.by_ssim);
        let mut total = 0.0;
        for row in 0..ROWS.min(height - self.first_row) {
            let y = self.first_row + row;
            let above = y.saturating_sub(RADIUS);
            let below = (y + RADIUS).min(height - 1);
            for tile in 0..stride {
                let mut sums = [V::zero(); 4];
                for source in above..=below {
                    let tap = taps[source + RADIUS - y];
                    let a = V::load(&self.a[source * stride + tile]);
                    let b = V::load(&self.b[source * stride + tile]);
                    sums[0] = a.fma(tap, sums[0]);
                    sums[1] = b.fma(tap, sums[1]);
                    sums[2] = a.fma(a, b * b).fma(tap, sums[2]);
                    sums[3] = (a * b).fma(tap, sums[3]);
                }
                for k in 0..4 {
                    sums[k].store(tile_of(&mut fields[k], tile));
                }
            }
            let mut row_sum = V::zero();
            for tile in 0..stride {
                let inside = V::from_bits(((1u32 << LANES.min(width - tile * LANES)) - 1) as u16);
                let [ma, mb, square, product] = each!(k in 4 => blur_along::<V>(&fields[k], tile, &taps));
                let means = ma.fma(ma, mb * mb);
                let a1 = (two * ma).fma(mb, c1);
                let a2 = ma.fnma(mb, product).fma(two, c2);
                let b1 = means + c1;
                let b2 = square - means + c2;
                let (inverse1, inverse2) = (V::of(1.0) / b1, V::of(1.0) / b2);
                let inverse = inverse1 * inverse2;
                let s = (a1 * a2 * inverse).keep(inside);
                row_sum = row_sum + s;
                let scale = by_ssim.keep(inside);
                let by_mean = two * (mb * (a2 - a1) * inverse - ma * s * (inverse1 - inverse2));
                (scale * by_mean).store(&mut self.maps[0][row * stride + tile]);
                (V::zero() - scale * s * inverse2).store(&mut self.maps[1][row * stride + tile]);
                (scale * two * a1 * inverse).store(&mut self.maps[2][row * stride + tile]);
            }
            total += row_sum.sum().f64();
        }
        total
    }
}

/// The gradient by the pixels, and by the exposure.
struct GradientBand<'a, T> {
    shape: Shape,
    first_row: usize,
    pixels: &'a [TilePixels<T>],
    gradient: &'a mut [TileGradient<T>],
    rendered: &'a [Plane<T>; 3],
    target: &'a [Plane<T>; 3],
    target_bytes: &'a TargetPlanes,
    maps: &'a [[Plane<T>; 3]; 3],
    background: [T; 3],
    exposure: Option<[T; 12]>,
    by_l1: T,
}

impl<T: Scalar> Kernel<T> for GradientBand<'_, T> {
    type Output = [T; 12];

    #[inline(always)]
    fn run<V: Lanes<T = T>>(self) -> [T; 12] {
        let Shape { width, height, stride } = self.shape;
        let taps = taps::<V>();
        let mut fields: [[Vec<T>; 3]; 3] =
            std::array::from_fn(|_| std::array::from_fn(|_| padded_row(stride)));
        let two = V::of(2.0);
        let by_l1 = V::splat(self.by_l1);
        let mut by_exposure = [V::zero(); 12];
        let rows = ROWS.min(height - self.first_row);
        for row in 0..rows {
            let y = self.first_row + row;
            let above = y.saturating_sub(RADIUS);
            let below = (y + RADIUS).min(height - 1);
            for (maps, fields) in self.maps.iter().zip(&mut fields) {
                for tile in 0..stride {
                    let mut sums = [V::zero(); 3];
                    for source in above..=below {
                        let tap = taps[source + RADIUS - y];
                        for k in 0..3 {
                            sums[k] = V::load(&maps[k][source * stride + tile]).fma(tap, sums[k]);
                        }
                    }
                    for k in 0..3 {
                        sums[k].store(tile_of(&mut fields[k], tile));
                    }
                }
            }
            for (tile, (pixels, gradient)) in self.pixels.iter().zip(self.gradient.iter_mut()).enumerate() {
                let inside_count = LANES.min(width - tile * LANES);
                let start = y * width + tile * LANES;
                // Windows around other pixels reach over the hidden ones, too.
                let hidden_bits = self.target_bytes.hidden(start..start + inside_count);
                let known = V::from_bits(((1u32 << inside_count) - 1) as u16 & !hidden_bits);
                let mut by_rgb = each!(channel in 3 => {
                    let at = y * stride + tile;
                    let a = V::load(&self.rendered[channel][at]);
                    let b = V::load(&self.target[channel][at]);
                    let [mean, square, product] =
                        each!(k in 3 => blur_along::<V>(&fields[channel][k], tile, &taps));
                    let by_ssim = (two * a).fma(square, b.fma(product, mean));
                    by_l1.fma(sign(a - b), by_ssim).keep(known)
                });
                if let Some(m) = &self.exposure {
                    let alpha = V::of(1.0) - V::load(&pixels.transmittance[row]);
                    for i in 0..3 {
                        for j in 0..3 {
                            let rgb = V::load(&pixels.rgb[j][row]);
                            by_exposure[4 * i + j] = by_rgb[i].fma(rgb, by_exposure[4 * i + j]);
                        }
                        by_exposure[4 * i + 3] = by_rgb[i].fma(alpha, by_exposure[4 * i + 3]);
                    }
                    let by_exposed = by_rgb;
                    by_rgb = each!(j in 3 => {
                        let column = each!(i in 3 => V::splat(m[4 * i + j]));
                        by_exposed[0].fma(column[0], by_exposed[1].fma(column[1], by_exposed[2] * column[2]))
                    });
                    // The gradient is one by the colour over the background, and the exposure leaves the background as it is: how
                    // much of it alpha covers, and what offset alpha brings, is added to the gradient by alpha.
                    let mut by_alpha = V::load(&gradient.alpha[row]);
                    for i in 0..3 {
                        by_alpha = by_exposed[i].fma(V::splat(m[4 * i + 3]), by_alpha);
                        by_alpha = (by_rgb[i] - by_exposed[i]).fma(V::splat(self.background[i]), by_alpha);
                    }
                    by_alpha.store(&mut gradient.alpha[row]);
                }
                for channel in 0..3 {
                    by_rgb[channel].store(&mut gradient.rgb[channel][row]);
                }
            }
        }
        for gradient in self.gradient.iter_mut() {
            for row in rows..ROWS {
                let zero = Row::default();
                for channel in 0..3 {
                    gradient.rgb[channel][row] = zero;
                }
                (gradient.alpha[row], gradient.error[row]) = (zero, zero);
            }
        }
        let mut out = [T::default(); 12];
        for k in 0..12 {
            out[k] = by_exposure[k].sum();
        }
        out
    }
}
