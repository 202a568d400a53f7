//! The scale space: a picture at every blur at which keypoints are sought.
//!
//! Levels of an octave are blurred by `1.6 · 2^(i/3)`, i = 0…5, in pixels of that octave; the next octave starts from level
//! 3 at half the size (Lowe 2004, section 3). Pixel (i, j) of an octave lies on pixel (2i, 2j) of the next finer one.

use image::GrayImage;

use super::blur::{blur, gaussian_half_kernel};

/// Levels per doubling of the scale.
pub(super) const SCALES_PER_OCTAVE: usize = 3;
/// Blur of the first level of an octave.
pub(super) const BASE_SIGMA: f32 = 1.6;
/// Blur that a camera picture is taken to have already.
const NOMINAL_SIGMA: f32 = 0.5;
/// Gaussian levels of an octave: extrema of three differences need five differences, these six levels.
const LEVELS: usize = SCALES_PER_OCTAVE + 3;
/// Octaves from the native one on. Keypoints of coarser ones would be few and badly localised.
const MAX_OCTAVE: i32 = 3;
/// An octave with a shorter side than this has no room for a descriptor.
const MIN_SIDE: usize = 16;

/// A grey picture of floats, row by row.
#[derive(Debug, Clone)]
pub(super) struct Plane {
    pub(super) width: usize,
    pub(super) height: usize,
    pub(super) data: Vec<f32>,
}

impl Plane {
    pub(super) fn new(width: usize, height: usize) -> Self {
        Self { width, height, data: vec![0.0; width * height] }
    }

    pub(super) fn row(&self, y: usize) -> &[f32] {
        &self.data[y * self.width..][..self.width]
    }
}

/// Blur of level `level` (fractions allowed) in pixels of its octave.
pub(super) fn sigma_of_level(level: f32) -> f32 {
    BASE_SIGMA * (level / SCALES_PER_OCTAVE as f32).exp2()
}

/// One octave.
pub(super) struct Octave {
    /// Pixels of the picture per pixel of the octave, as a power of two: −1 is the doubled picture.
    pub(super) index: i32,
    /// Gaussian levels 1, 2, 3: those at which keypoints are described.
    pub(super) gaussians: [Plane; SCALES_PER_OCTAVE],
    /// Level i + 1 minus level i, i = 0…4.
    pub(super) differences: [Plane; LEVELS - 1],
}

/// Calls `visit` with every octave of a picture, the finest first.
pub(super) fn for_each_octave(luma: &GrayImage, doubled: bool, mut visit: impl FnMut(Octave)) {
    let picture = to_plane(luma);
    let (picture, nominal, first) =
        if doubled { (double(&picture), 2.0 * NOMINAL_SIGMA, -1) } else { (picture, NOMINAL_SIGMA, 0) };
    if picture.width.min(picture.height) < MIN_SIDE {
        return;
    }
    let mut base = Plane::new(picture.width, picture.height);
    blur(&picture, &gaussian_half_kernel((BASE_SIGMA.powi(2) - nominal.powi(2)).sqrt()), &mut base, None);
    drop(picture);
    for index in first..=MAX_OCTAVE {
        let (width, height) = (base.width, base.height);
        let mut levels: [Plane; LEVELS] = std::array::from_fn(|_| Plane { width, height, data: Vec::new() });
        levels[0] = base;
        let differences = std::array::from_fn(|i| {
            let (from, to) = (sigma_of_level(i as f32), sigma_of_level(i as f32 + 1.0));
            let kernel = gaussian_half_kernel((to.powi(2) - from.powi(2)).sqrt());
            let (mut next, mut difference) = (Plane::new(width, height), Plane::new(width, height));
            blur(&levels[i], &kernel, &mut next, Some(&mut difference));
            levels[i + 1] = next;
            difference
        });
        base = halve(&levels[SCALES_PER_OCTAVE]);
        let [_, first, second, third, ..] = levels;
        visit(Octave { index, gaussians: [first, second, third], differences });
        if base.width.min(base.height) < MIN_SIDE {
            return;
        }
    }
}

/// Luma from 0 to 1.
fn to_plane(luma: &GrayImage) -> Plane {
    Plane {
        width: luma.width() as usize,
        height: luma.height() as usize,
        data: luma.as_raw().iter().map(|&value| f32::from(value) / 255.0).collect(),
    }
}

/// Every second pixel of every second row.
fn halve(plane: &Plane) -> Plane {
    let (width, height) = (plane.width.div_ceil(2), plane.height.div_ceil(2));
    let mut data = Vec::with_capacity(width * height);
    for y in 0..height {
        data.extend(plane.row(2 * y).iter().step_by(2));
    }
    Plane { width, height, data }
}

/// Twice the size (less one row and column): pixel (2i, 2j) is pixel (i, j), those between are interpolated by a cubic.
fn double(plane: &Plane) -> Plane {
    let (width, height) = (plane.width, plane.height);
    if width == 0 || height == 0 {
        return plane.clone();
    }
    let mut doubled = Plane::new(2 * width - 1, 2 * height - 1);
    let between = |a: f32, b: f32, c: f32, d: f32| 0.5625 * (b + c) - 0.0625 * (a + d);
    let mut wide = Plane::new(2 * width - 1, height);
    for (y, out) in wide.data.chunks_exact_mut(2 * width - 1).enumerate() {
        let row = plane.row(y);
        for x in 0..width {
            out[2 * x] = row[x];
            if x + 1 < width {
                out[2 * x + 1] =
                    between(row[x.saturating_sub(1)], row[x], row[x + 1], row[(x + 2).min(width - 1)]);
            }
        }
    }
    for (y, out) in doubled.data.chunks_exact_mut(2 * width - 1).enumerate() {
        let i = y / 2;
        if y % 2 == 0 {
            out.copy_from_slice(wide.row(i));
            continue;
        }
        let (a, b) = (wide.row(i.saturating_sub(1)), wide.row(i));
        let (c, d) = (wide.row(i + 1), wide.row((i + 2).min(height - 1)));
        for x in 0..out.len() {
            out[x] = between(a[x], b[x], c[x], d[x]);
        }
    }
    doubled
}
