//! The RootSIFT descriptor of an oriented keypoint (Lowe 2004, section 6; Arandjelović & Zisserman, CVPR 2012).

use std::f32::consts::TAU;

use super::Descriptor;
use super::detector::Extremum;
use super::gradient::gradient_row;
use super::plane::{LANES, Plane};
use super::window::gaussian_window;

/// Spatial cells per side.
const CELLS: usize = 4;
/// Orientation bins per cell.
const BINS: usize = 8;
/// Width of a cell in units of the keypoint's scale.
const CELL_WIDTH: f32 = 3.0;
/// Components above this share of the length are cut: a single strong edge must not decide.
const CUT: f32 = 0.2;
/// Squares between the centres of neighbouring cells, along each axis: a sample lies in one, and its corners are the
/// cells that it counts for. Those at the edge have corners beyond the outer cells, which are left out at the end.
const SQUARES: usize = CELLS + 1;
/// Samples that are added up at a time: what is known of them stays in the first-level cache.
const BATCH: usize = 512;

/// Samples of a keypoint, and buffers to compute them in, reused.
pub(super) struct Scratch {
    magnitude: Vec<f32>,
    turn: Vec<f32>,
    column_window: Vec<f32>,
    row_window: Vec<f32>,
    samples: Samples,
    cubes: Cubes,
}

impl Scratch {
    pub(super) fn new() -> Self {
        Self {
            magnitude: Vec::new(),
            turn: Vec::new(),
            column_window: Vec::new(),
            row_window: Vec::new(),
            samples: Samples::default(),
            cubes: [[0.0; 8]; CUBES],
        }
    }
}

/// What samples add to which cube.
#[derive(Default)]
struct Samples {
    /// The index of the cube.
    cube: Vec<u32>,
    /// The share of each of the four cells.
    shares: Vec<[f32; 4]>,
    /// How far it is from the lower to the upper one of the two orientations.
    part: Vec<f32>,
}

/// A sample counts for eight bins: four cells and two orientations, the corners of a cube. Were it added to them, each
/// addition would wait for the one before where neighbours count for the same bins, and there would be eight. Instead,
/// every cube has its own eight sums side by side, and the cubes are added up when all samples are in.
///
/// The cube of square (x, y) and orientation t is `(SQUARES y + x) BINS + t`; sums 0 to 3 are those of the cells
/// (x, y), (x + 1, y), (x, y + 1), (x + 1, y + 1) at orientation t, and 4 to 7 at the next one.
type Cubes = [[f32; 8]; CUBES];
const CUBES: usize = SQUARES * SQUARES * BINS;

vectorised! {
    /// Describes the surroundings of a keypoint, turned by `orientation` (radians).
    pub(super) fn describe(plane: &Plane, keypoint: &Extremum, orientation: f32, scratch: &mut Scratch) -> Descriptor {
        let (width, height) = (plane.width as f32, plane.height as f32);
        let cell = CELL_WIDTH * keypoint.sigma;
        let (sin, cos) = orientation.sin_cos();
        let (sin_per_cell, cos_per_cell) = (sin / cell, cos / cell);
        // Samples within 2.5 cells along both axes of the turned square count.
        let half = 0.5 * SQUARES as f32;
        let reach = half * cell * (sin.abs() + cos.abs());
        let (top, bottom) =
            ((keypoint.y - reach).ceil().max(1.0), (keypoint.y + reach).floor().min(height - 2.0));
        let (leftmost, rightmost) =
            ((keypoint.x - reach).ceil().max(1.0), (keypoint.x + reach).floor().min(width - 2.0));
        let Scratch { magnitude, turn, column_window, row_window, samples, cubes } = scratch;
        cubes.fill([0.0; 8]);
        if top <= bottom && leftmost <= rightmost {
            // The window is a Gaussian of two cells.
            let falloff = -0.5 / (0.5 * CELLS as f32 * cell).powi(2);
            column_window.resize((rightmost - leftmost) as usize + 1 + LANES, 0.0);
            row_window.resize((bottom - top) as usize + 1, 0.0);
            gaussian_window(leftmost - keypoint.x, falloff, column_window);
            gaussian_window(top - keypoint.y, falloff, row_window);
            // A row runs along both axes of the turned square, a little even where it is parallel to one.
            let inverse = |along: f32| 1.0 / along.abs().max(1e-6).copysign(along);
            let axes = [(inverse(cos), sin), (inverse(-sin), cos)];
            let mut count = 0;
            for (y, row_window) in (top as usize..).zip(&*row_window) {
                let dy = y as f32 - keypoint.y;
                // |dx cos + dy sin| < half · cell and |dy cos − dx sin| < half · cell bound dx on this row.
                let (mut low, mut high) = (leftmost - keypoint.x, rightmost - keypoint.x);
                for (inverse, across) in axes {
                    let (middle, most) = (-dy * across * inverse, half * cell * inverse.abs());
                    low = if middle - most > low { middle - most } else { low };
                    high = if middle + most < high { middle + most } else { high };
                }
                let (first, last) = ((low + keypoint.x).ceil(), (high + keypoint.x).floor());
                let first = if first > leftmost { first } else { leftmost };
                let last = if last < rightmost { last } else { rightmost };
                if first > last {
                    continue;
                }
                let (first, last) = (first as usize, last as usize);
                let frame = RowFrame {
                    dx: first as f32 - keypoint.x,
                    dy,
                    sin: sin_per_cell,
                    cos: cos_per_cell,
                    turn: orientation / TAU,
                    window: *row_window,
                };
                // Whole vectors; what is beyond the row's samples is overwritten by those of the next one.
                let padded = (last + 1 - first).next_multiple_of(LANES);
                magnitude.resize(padded, 0.0);
                turn.resize(padded, 0.0);
                gradient_row(plane, y, first, magnitude, turn);
                let window = &column_window[first - leftmost as usize..][..padded];
                samples.place_row(count, &frame, magnitude, turn, window);
                count += last + 1 - first;
                if count >= BATCH {
                    samples.add_up(count, cubes);
                    count = 0;
                }
            }
            samples.add_up(count, cubes);
        }
        quantise(cubes)
    }
}

/// What the samples of a row have in common; lengths of `sin` and `cos` are in cells per pixel.
struct RowFrame {
    dx: f32,
    dy: f32,
    sin: f32,
    cos: f32,
    turn: f32,
    window: f32,
}

impl Samples {
    /// Computes what the samples of a row add to which cube, and puts them from place `start` on.
    #[inline(always)]
    fn place_row(&mut self, start: usize, frame: &RowFrame, magnitude: &[f32], turn: &[f32], window: &[f32]) {
        let count = magnitude.len();
        if self.part.len() < start + count {
            self.cube.resize(start + count, 0);
            self.shares.resize(start + count, [0.0; 4]);
            self.part.resize(start + count, 0.0);
        }
        let (turn, window) = (&turn[..count], &window[..count]);
        let (cube, shares, part) = (
            &mut self.cube[start..][..count],
            &mut self.shares[start..][..count],
            &mut self.part[start..][..count],
        );
        // Square c begins c − 2.5 cells from the keypoint.
        let offset = 0.5 * SQUARES as f32;
        let largest = (SQUARES - 1) as f32;
        for i in 0..count {
            let dx = frame.dx + i as i32 as f32;
            let x = dx * frame.cos + frame.dy * frame.sin + offset;
            let y = frame.dy * frame.cos - dx * frame.sin + offset;
            // Rounding may carry a sample a hair out of the squares.
            let x0 = truncate(if x < 0.0 { 0.0 } else { x });
            let x0 = if x0 > largest { largest } else { x0 };
            let y0 = truncate(if y < 0.0 { 0.0 } else { y });
            let y0 = if y0 > largest { largest } else { y0 };
            let t = turn[i] - frame.turn;
            let t = (if t < 0.0 { t + 1.0 } else { t }) * BINS as f32;
            let t0 = truncate(t);
            let t0 = if t0 > (BINS - 1) as f32 { (BINS - 1) as f32 } else { t0 };
            part[i] = t - t0;
            let weight = magnitude[i] * window[i] * frame.window;
            let (x, y) = (x - x0, y - y0);
            let bottom = weight * y;
            let top = weight - bottom;
            let (top_right, bottom_right) = (top * x, bottom * x);
            shares[i] = [top - top_right, top_right, bottom - bottom_right, bottom_right];
            let index = (y0 * SQUARES as f32 + x0) * BINS as f32 + t0;
            // SAFETY: x0 and y0 are within 0…4 and t0 within 0…7, so this is within 0…199.
            cube[i] = unsafe { index.to_int_unchecked::<i32>() } as u32;
        }
    }

    /// Adds the first `count` samples to their cubes.
    #[inline(always)]
    fn add_up(&self, count: usize, cubes: &mut Cubes) {
        let mut add = |cube: u32, shares: &[f32; 4], part: f32| {
            let sums = &mut cubes[cube as usize];
            for j in 0..4 {
                let upper = shares[j] * part;
                sums[j] += shares[j] - upper;
                sums[j + 4] += upper;
            }
        };
        // Neighbouring samples often lie in one cube: taking turns, none waits for the sums of the one before.
        let quarter = count / 4;
        let [a, b, c, d] = [0, 1, 2, 3].map(|i| {
            let quarter = i * quarter..(i + 1) * quarter;
            let shares = self.shares[quarter.clone()].iter();
            self.cube[quarter.clone()].iter().zip(shares).zip(&self.part[quarter])
        });
        for (((a, b), c), d) in a.zip(b).zip(c).zip(d) {
            for ((cube, shares), part) in [a, b, c, d] {
                add(*cube, shares, *part);
            }
        }
        for i in 4 * quarter..count {
            add(self.cube[i], &self.shares[i], self.part[i]);
        }
    }
}

/// The whole number below one that is not negative. Every processor converts numbers in vectors, but not every one rounds.
#[inline(always)]
fn truncate(value: f32) -> f32 {
    // SAFETY: places of samples are finite, and at most some hundred.
    (unsafe { value.to_int_unchecked::<i32>() }) as f32
}

/// Sums up the cubes of every bin; cut, L1-normalised, square root, times 512.
#[inline(always)]
fn quantise(cubes: &Cubes) -> Descriptor {
    // A bin is the lower orientation of its own cubes and the upper one of those before.
    let mut squares = [[[0.0f32; 4]; BINS]; SQUARES * SQUARES];
    for (square, cubes) in squares.iter_mut().zip(cubes.as_chunks::<BINS>().0) {
        for t in 0..BINS {
            let (own, before) = (&cubes[t], &cubes[(t + BINS - 1) % BINS]);
            square[t] = std::array::from_fn(|j| own[j] + before[j + 4]);
        }
    }
    let mut values = [0.0f32; CELLS * CELLS * BINS];
    for (c, bins) in values.as_chunks_mut::<BINS>().0.iter_mut().enumerate() {
        // The square whose first corner is the cell, and so on to the one whose last corner it is.
        let last = c / CELLS * SQUARES + c % CELLS;
        let first = last + SQUARES + 1;
        for (t, bin) in bins.iter_mut().enumerate() {
            *bin = (squares[first][t][0] + squares[first - 1][t][1])
                + (squares[last + 1][t][2] + squares[last][t][3]);
        }
    }
    let most = CUT * sum(&values.map(|value| value * value)).sqrt();
    // A sample that lies a hair outside counts a little less than nothing.
    let values = values.map(|value| if value < most { value } else { most }).map(|value| value.max(0.0));
    let total = sum(&values);
    let mut descriptor = [0; CELLS * CELLS * BINS];
    if total > 0.0 {
        for (quantised, value) in descriptor.iter_mut().zip(&values) {
            *quantised = (512.0 * (value / total).sqrt() + 0.5).min(255.0) as u8;
        }
    }
    descriptor
}

/// Their sum, in vectors first.
#[inline(always)]
fn sum(values: &[f32; CELLS * CELLS * BINS]) -> f32 {
    let mut sums = [0.0f32; LANES];
    for values in values.as_chunks::<LANES>().0 {
        for (sum, value) in sums.iter_mut().zip(values) {
            *sum += value;
        }
    }
    sums.iter().sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;

    /// The descriptor as the paper has it: each sample added to the eight bins around it, in f64.
    fn reference(plane: &Plane, keypoint: &Extremum, orientation: f32) -> Vec<f64> {
        let (sin, cos) = f64::from(orientation).sin_cos();
        let cell = f64::from(CELL_WIDTH * keypoint.sigma);
        let at = |x: usize, y: usize| f64::from(plane.row(y)[x]);
        let mut bins = vec![0.0f64; CELLS * CELLS * BINS];
        for y in 1..plane.height - 1 {
            for x in 1..plane.width - 1 {
                let (dx, dy) = (x as f64 - f64::from(keypoint.x), y as f64 - f64::from(keypoint.y));
                let place = [(dx * cos + dy * sin) / cell + 1.5, (dy * cos - dx * sin) / cell + 1.5];
                let (gx, gy) = (at(x + 1, y) - at(x - 1, y), at(x, y + 1) - at(x, y - 1));
                let turn = (gy.atan2(gx) - f64::from(orientation)) / std::f64::consts::TAU * BINS as f64;
                let weight = gx.hypot(gy) * (-0.5 * (dx * dx + dy * dy) / (2.0 * cell).powi(2)).exp();
                for (c, cell_bins) in bins.chunks_exact_mut(BINS).enumerate() {
                    let near = |place: f64, cell: usize| (1.0 - (place - cell as f64).abs()).max(0.0);
                    let share = near(place[0], c % CELLS) * near(place[1], c / CELLS);
                    for (t, bin) in cell_bins.iter_mut().enumerate() {
                        let apart = (turn - t as f64).rem_euclid(BINS as f64);
                        *bin += weight * share * (1.0 - apart.min(BINS as f64 - apart)).max(0.0);
                    }
                }
            }
        }
        let length = bins.iter().map(|bin| bin * bin).sum::<f64>().sqrt();
        bins.iter_mut().for_each(|bin| *bin = bin.min(f64::from(CUT) * length));
        let total: f64 = bins.iter().sum();
        bins.iter().map(|bin| (512.0 * (bin / total).sqrt()).min(255.0)).collect()
    }

    #[test]
    fn it_is_the_histogram_of_the_paper_anywhere_at_any_turn() {
        let mut random = Random::new(11);
        let (width, height) = (90, 80);
        let pixels = (0..width * height).map(|i| (0.02 * i as f64).sin() + 0.3 * random.uniform());
        let plane = Plane::of(width, height, pixels.map(|value| value as f32).collect::<Vec<_>>());
        let mut scratch = Scratch::new();
        for (x, y, sigma) in [(44.3, 40.8, 2.1), (41.0, 37.0, 3.4), (5.2, 8.9, 1.8), (86.0, 74.5, 2.9)] {
            let keypoint = Extremum { x, y, sigma, contrast: 0.1, level: 0 };
            for turn in [0.0, 0.05, 0.25, 0.32, 0.5, 0.64, 0.75, 0.99999] {
                let orientation = TAU * turn;
                let described = describe(&plane, &keypoint, orientation, &mut scratch);
                for (value, expected) in described.iter().zip(reference(&plane, &keypoint, orientation)) {
                    assert!((f64::from(*value) - expected).abs() < 0.7, "{value} for {expected}");
                }
            }
        }
    }
}
