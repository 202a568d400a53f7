//! Pictures in several sizes, to be read between pixels.

use image::GrayImage;
use nalgebra::{Matrix2, Vector2};

/// A picture at full size, half of it, a quarter, ...
pub(super) struct Pyramid {
    levels: Vec<Level>,
}

/// One size of a picture as a cubic spline: what lies between pixels is exact for all but the finest patterns. Straight
/// lines and cubic convolution shift patterns of a few pixels by hundredths of a pixel, towards where the pixels are
/// (Unser, "Splines: a perfect fit for signal and image processing", IEEE Signal Processing Magazine 1999).
pub(super) struct Level {
    width: usize,
    height: usize,
    /// Coefficients of the spline, row by row.
    spline: Vec<f32>,
}

impl Pyramid {
    pub(super) fn new(picture: &GrayImage) -> Self {
        let values = picture.as_raw().iter().map(|v| f32::from(*v)).collect();
        let (mut width, mut height) = (picture.width() as usize, picture.height() as usize);
        let mut pictures: Vec<(usize, usize, Vec<f32>)> = vec![(width, height, values)];
        while let Some((_, _, last)) =
            pictures.last().filter(|_| pictures.len() < 5 && width.min(height) >= 64)
        {
            let half = half(last, width, height);
            (width, height) = (width / 2, height / 2);
            pictures.push((width, height, half));
        }
        Self { levels: pictures.into_iter().map(|(width, height, v)| Level::new(width, height, v)).collect() }
    }

    /// The level on which samples so many pixels apart are one or two apart, and the size of its pixels.
    pub(super) fn level(&self, spacing: f64) -> (&Level, f64) {
        let k = (spacing.max(1.0).log2() as usize).min(self.levels.len() - 1);
        (&self.levels[k], f64::from(1u32 << k))
    }
}

/// A picture of half the size, whose pixels are means of four.
fn half(values: &[f32], width: usize, height: usize) -> Vec<f32> {
    let mut halved = Vec::with_capacity((width / 2) * (height / 2));
    for y in 0..height / 2 {
        let (upper, lower) = (&values[2 * y * width..], &values[(2 * y + 1) * width..]);
        halved.extend(
            (0..width / 2)
                .map(|x| 0.25 * (upper[2 * x] + upper[2 * x + 1] + lower[2 * x] + lower[2 * x + 1])),
        );
    }
    halved
}

/// Lines that are transformed together: the recursion goes along a line, so vector instructions need several.
const LINES: usize = 16;

/// From values to the coefficients of the cubic spline through them, in place, for each of several lines side by side:
/// value `k` of line `l` is `values[k][l]`. Mirrored at both ends.
#[inline(always)]
fn to_spline(values: &mut [[f32; LINES]]) {
    const POLE: f32 = -0.267_949_2;
    let length = values.len();
    if length < 2 {
        return;
    }
    // The mirrored line before the first value; farther away its weight is nothing.
    let mut first = [0.0; LINES];
    for value in values[1..length.min(16)].iter().rev() {
        (0..LINES).for_each(|l| first[l] = POLE * (first[l] + value[l]));
    }
    (0..LINES).for_each(|l| values[0][l] += first[l]);
    for k in 1..length {
        let before = values[k - 1];
        (0..LINES).for_each(|l| values[k][l] += POLE * before[l]);
    }
    let before = values[length - 2];
    let last = &mut values[length - 1];
    (0..LINES).for_each(|l| last[l] = POLE / (POLE * POLE - 1.0) * (last[l] + POLE * before[l]));
    for k in (0..length - 1).rev() {
        let after = values[k + 1];
        (0..LINES).for_each(|l| values[k][l] = POLE * (after[l] - values[k][l]));
    }
    values.as_flattened_mut().iter_mut().for_each(|v| *v *= 6.0);
}

/// Transforms all rows, then all columns.
#[inline(always)]
fn transform(values: &mut [f32], width: usize, height: usize) {
    if width == 0 {
        return;
    }
    let mut lines = vec![[0.0; LINES]; width.max(height)];
    for rows in values.chunks_mut(LINES * width) {
        let lines = &mut lines[..width];
        for (l, row) in rows.chunks_exact(width).enumerate() {
            lines.iter_mut().zip(row).for_each(|(line, v)| line[l] = *v);
        }
        to_spline(lines);
        for (l, row) in rows.chunks_exact_mut(width).enumerate() {
            row.iter_mut().zip(&*lines).for_each(|(v, line)| *v = line[l]);
        }
    }
    for first in (0..width).step_by(LINES) {
        let lines = &mut lines[..height];
        let count = LINES.min(width - first);
        for (line, row) in lines.iter_mut().zip(values.chunks_exact(width)) {
            line[..count].copy_from_slice(&row[first..first + count]);
        }
        to_spline(lines);
        for (line, row) in lines.iter().zip(values.chunks_exact_mut(width)) {
            row[first..first + count].copy_from_slice(&line[..count]);
        }
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn transform_avx2(values: &mut [f32], width: usize, height: usize) {
    transform(values, width, height);
}

/// As [`transform`], with the vector instructions that there are; the bits are the same.
fn transform_fast(values: &mut [f32], width: usize, height: usize) {
    #[cfg(target_arch = "x86_64")]
    if is_x86_feature_detected!("avx2") {
        // SAFETY: the processor has the instructions.
        return unsafe { transform_avx2(values, width, height) };
    }
    transform(values, width, height);
}

impl Level {
    fn new(width: usize, height: usize, mut values: Vec<f32>) -> Self {
        transform_fast(&mut values, width, height);
        Self { width, height, spline: values }
    }

    /// Whether (x, y), which counts from the centre of the first pixel, lies within the picture and not at its border.
    fn has(&self, x: f32, y: f32) -> bool {
        // Neither holds for NaN; what is too large for the types ends at their largest value.
        x >= 1.0
            && y >= 1.0
            && (x as usize).saturating_add(2) < self.width
            && (y as usize).saturating_add(2) < self.height
    }

    /// Samples at `middle` + `by` * (column, row), where both go from -(`SIDE` / 2) to `SIDE` / 2. `None` if any is outside.
    #[inline(always)]
    pub(super) fn grid<const SIDE: usize, const N: usize>(
        &self,
        size: f64,
        middle: &Vector2<f64>,
        by: &Matrix2<f64>,
        samples: &mut [f32; N],
    ) -> Option<()> {
        const { assert!(N == SIDE * SIDE && N <= BLOCKS * TOGETHER) };
        let by = by / size;
        let first = middle / size - Vector2::repeat(0.5) - by * Vector2::repeat((SIDE / 2) as f64);
        let grid = Grid { first: first.cast(), by: by.cast() };
        // Each sum of a place grows or falls along a row and along a column, also as it is rounded: all samples are inside if
        // the corners are.
        let last = (SIDE - 1) as f32;
        let corners = [(0.0, 0.0), (last, 0.0), (0.0, last), (last, last)];
        if !corners.iter().map(|&(column, row)| grid.place(column, row)).all(|(x, y)| self.has(x, y)) {
            return None;
        }
        for (samples, [columns, rows]) in samples.chunks_mut(TOGETHER).zip(&Samples::<SIDE>::BLOCKS) {
            // SAFETY: these samples lie between the corners.
            let values = unsafe { self.values(&grid, columns, rows) };
            samples.copy_from_slice(&values[..samples.len()]);
        }
        Some(())
    }

    /// The values at samples in these columns and rows of a grid.
    ///
    /// # Safety
    /// The level has all of these places.
    #[inline(always)]
    unsafe fn values(
        &self,
        grid: &Grid,
        columns: &[f32; TOGETHER],
        rows: &[f32; TOGETHER],
    ) -> [f32; TOGETHER] {
        // What is before the place, by sample, and the weights of the four coefficients around it, by coefficient and sample.
        let (mut lefts, mut tops) = ([0; TOGETHER], [0; TOGETHER]);
        let (mut across, mut down) = ([[0.0; TOGETHER]; 4], [[0.0; TOGETHER]; 4]);
        for l in 0..TOGETHER {
            let (x, y) = grid.place(columns[l], rows[l]);
            // SAFETY: neither is negative, nor larger than a picture.
            (lefts[l], tops[l]) = unsafe { (x.to_int_unchecked::<i32>(), y.to_int_unchecked::<i32>()) };
            let (x, y) = (x - lefts[l] as f32, y - tops[l] as f32);
            for k in 0..4 {
                across[k][l] = cubic(k, x);
                down[k][l] = cubic(k, y);
            }
        }
        let mut sums = [[0.0; 4]; TOGETHER];
        for l in 0..TOGETHER {
            let first = (tops[l] as usize - 1) * self.width + lefts[l] as usize - 1;
            let rows = &self.spline[first..];
            for r in 0..4 {
                let pixels = &rows[r * self.width..][..4];
                (0..4).for_each(|k| sums[l][k] += down[r][l] * pixels[k]);
            }
        }
        let mut values = [0.0; TOGETHER];
        for l in 0..TOGETHER {
            let [a, b, c, d] = sums[l];
            values[l] = (a * across[0][l] + c * across[2][l]) + (b * across[1][l] + d * across[3][l]);
        }
        values
    }
}

/// Samples that are read at once, so that vector instructions can find the places and the weights of all of them.
const TOGETHER: usize = 8;
/// As many of those as the largest grid needs.
const BLOCKS: usize = 16;

/// The columns and the rows of the samples of a grid, row by row. The last of them is repeated to the end of a block.
struct Samples<const SIDE: usize>;

impl<const SIDE: usize> Samples<SIDE> {
    const BLOCKS: [[[f32; TOGETHER]; 2]; BLOCKS] = {
        let mut blocks = [[[0.0; TOGETHER]; 2]; BLOCKS];
        let mut k = 0;
        while k < BLOCKS * TOGETHER {
            let sample = if k < SIDE * SIDE { k } else { SIDE * SIDE - 1 };
            blocks[k / TOGETHER][0][k % TOGETHER] = (sample % SIDE) as f32;
            blocks[k / TOGETHER][1][k % TOGETHER] = (sample / SIDE) as f32;
            k += 1;
        }
        blocks
    };
}

/// Where the samples of a grid are, from the centre of the first pixel.
struct Grid {
    first: Vector2<f32>,
    by: Matrix2<f32>,
}

impl Grid {
    #[inline(always)]
    fn place(&self, column: f32, row: f32) -> (f32, f32) {
        let (first, by) = (&self.first, &self.by);
        (first.x + by.m11 * column + by.m12 * row, first.y + by.m21 * column + by.m22 * row)
    }
}

/// The weight of coefficient `k` of the four around a place that is `t` (0 to 1) behind the second.
#[inline(always)]
fn cubic(k: usize, t: f32) -> f32 {
    /// Of the powers of `t`, by coefficient.
    const POWERS: [[f32; 4]; 4] = [
        [1.0 / 6.0, 2.0 / 3.0, 1.0 / 6.0, 0.0],
        [-0.5, 0.0, 0.5, 0.0],
        [0.5, -1.0, 0.5, 0.0],
        [-1.0 / 6.0, 0.5, -0.5, 1.0 / 6.0],
    ];
    POWERS[0][k] + t * (POWERS[1][k] + t * (POWERS[2][k] + t * POWERS[3][k]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn vector_and_portable_transforms_agree() {
        for (width, height) in [(1, 1), (1, 40), (33, 2), (50, 37)] {
            let values: Vec<f32> = (0..width * height).map(|k| (k * k % 251) as f32).collect();
            let (mut fast, mut portable) = (values.clone(), values);
            transform_fast(&mut fast, width, height);
            transform(&mut portable, width, height);
            assert_eq!(fast, portable);
        }
    }

    #[test]
    fn the_samples_of_a_grid_lie_row_by_row_around_its_middle() {
        let values = (0..60 * 50).map(|k| (3 * (k % 60) + 5 * (k / 60)) as f32).collect();
        let level = Level::new(60, 50, values);
        let (middle, by) = (Vector2::new(30.2, 24.9), Matrix2::new(1.1, 0.3, -0.2, 1.4));
        let mut samples = [0.0; 11 * 11];
        level.grid::<11, 121>(2.0, &(2.0 * middle), &(2.0 * by), &mut samples).unwrap();
        for (k, sample) in samples.into_iter().enumerate() {
            let place = middle + by * Vector2::new((k % 11) as f64 - 5.0, (k / 11) as f64 - 5.0);
            let truth = 3.0 * (place.x - 0.5) + 5.0 * (place.y - 0.5);
            assert!((f64::from(sample) - truth).abs() < 1e-3, "{sample}, not {truth}: sample {k}");
        }
        assert!(level.grid::<11, 121>(2.0, &Vector2::new(10.0, 50.0), &(2.0 * by), &mut samples).is_none());
    }

    #[test]
    fn the_spline_goes_through_the_pixels_and_smoothly_between_them() {
        let wave = |x: f64, y: f64| (120.0 + 60.0 * (0.9 * x + 0.4 * y).sin()) as f32;
        let values = (0..30 * 40).map(|k| wave(f64::from(k % 40), f64::from(k / 40))).collect();
        let level = Level::new(40, 30, values);
        // Nine samples at one place, which counts from the corner of the first pixel there.
        let read = |x: f64, y: f64| {
            let mut samples = [0.0; 9];
            level
                .grid::<3, 9>(1.0, &Vector2::new(x + 0.5, y + 0.5), &Matrix2::zeros(), &mut samples)
                .unwrap();
            assert_eq!(samples, [samples[0]; 9]);
            samples[0]
        };
        for (x, y) in [(1, 1), (7, 9), (37, 27), (1, 27)] {
            let value = read(f64::from(x), f64::from(y));
            assert!((value - wave(f64::from(x), f64::from(y))).abs() < 0.01, "{value} at {x}, {y}");
        }
        for (x, y) in [(12.5, 10.5), (20.25, 17.75), (9.1, 15.9)] {
            let value = read(x, y);
            assert!((value - wave(x, y)).abs() < 0.5, "{value}, not {} at {x}, {y}", wave(x, y));
        }
        assert!(
            level.has(37.9, 27.9) && !level.has(38.0, 5.0) && !level.has(5.0, 28.0) && !level.has(0.5, 5.0)
        );
        assert!(!level.has(f32::NAN, 5.0) && !level.has(f32::INFINITY, 5.0) && !level.has(5.0, 1e30));
    }
}
