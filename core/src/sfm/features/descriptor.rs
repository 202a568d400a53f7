//! The RootSIFT descriptor of an oriented keypoint (Lowe 2004, section 6; Arandjelović & Zisserman, CVPR 2012).

use super::Descriptor;
use super::detector::Extremum;
use super::gradient::Gradients;

/// Spatial cells per side.
const CELLS: usize = 4;
/// Orientation bins per cell.
const BINS: usize = 8;
/// Width of a cell in units of the keypoint's scale.
const CELL_WIDTH: f32 = 3.0;
/// Components above this share of the length are cut: a single strong edge must not decide.
const CUT: f32 = 0.2;
/// Cells per side with a margin of one, so that samples beyond the outer cells need no special case.
const PADDED: usize = CELLS + 2;
/// A row of bins with one more, to which the last bin spills; it is folded back at the end.
const STRIDE: usize = BINS + 1;

/// Buffers for one row of samples, reused.
#[derive(Default)]
pub(super) struct Scratch {
    /// Index of the first of the eight bins a sample contributes to.
    index: Vec<u32>,
    /// Its position between the bins, along (x, y, orientation).
    part: [Vec<f32>; 3],
    weight: Vec<f32>,
    column_window: Vec<f32>,
}

/// Describes the surroundings of a keypoint, turned by `orientation` (radians).
pub(super) fn describe(
    gradients: &Gradients,
    keypoint: &Extremum,
    orientation: f32,
    scratch: &mut Scratch,
) -> Descriptor {
    let (width, height) = (gradients.turn.width as f32, gradients.turn.height as f32);
    let cell = CELL_WIDTH * keypoint.sigma;
    let (sin, cos) = orientation.sin_cos();
    let (sin_per_cell, cos_per_cell) = (sin / cell, cos / cell);
    // Samples within 2.5 cells along both axes of the turned square count.
    let half = 0.5 * (CELLS + 1) as f32;
    let reach = half * cell * (sin.abs() + cos.abs());
    let (top, bottom) =
        ((keypoint.y - reach).ceil().max(1.0), (keypoint.y + reach).floor().min(height - 2.0));
    let (leftmost, rightmost) =
        ((keypoint.x - reach).ceil().max(1.0), (keypoint.x + reach).floor().min(width - 2.0));
    let mut histogram = [0.0f32; PADDED * PADDED * STRIDE];
    if top <= bottom && leftmost <= rightmost {
        // The window is a Gaussian of two cells: the product of one factor per column and one per row.
        let falloff = -0.5 / (0.5 * CELLS as f32 * cell).powi(2);
        scratch.column_window.clear();
        scratch.column_window.extend(
            (leftmost as usize..=rightmost as usize)
                .map(|x| ((x as f32 - keypoint.x).powi(2) * falloff).exp()),
        );
        for y in top as usize..=bottom as usize {
            let dy = y as f32 - keypoint.y;
            // |dx cos + dy sin| < half · cell and |dy cos − dx sin| < half · cell bound dx on this row.
            let (mut low, mut high) = (leftmost - keypoint.x, rightmost - keypoint.x);
            for (along, across) in [(cos, dy * sin), (-sin, dy * cos)] {
                if along.abs() > 1e-6 {
                    let (a, b) = ((-half * cell - across) / along, (half * cell - across) / along);
                    low = low.max(a.min(b));
                    high = high.min(a.max(b));
                }
            }
            let (first, last) =
                ((low + keypoint.x).ceil().max(leftmost), (high + keypoint.x).floor().min(rightmost));
            if first > last {
                continue;
            }
            let (first, last) = (first as usize, last as usize);
            let frame = RowFrame {
                dx: first as f32 - keypoint.x,
                dy,
                sin: sin_per_cell,
                cos: cos_per_cell,
                turn: orientation / std::f32::consts::TAU,
                window: (dy * dy * falloff).exp(),
            };
            let window = &scratch.column_window[first - leftmost as usize..=last - leftmost as usize];
            place_row(
                &frame,
                &gradients.magnitude.row(y)[first..=last],
                &gradients.turn.row(y)[first..=last],
                window,
                &mut scratch.index,
                &mut scratch.part,
                &mut scratch.weight,
            );
            scatter(scratch, last - first + 1, &mut histogram);
        }
    }
    quantise(&histogram)
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

vectorised! {
    /// Computes index, parts and weight of each sample of a row: the part of the work that vectorises.
    fn place_row(frame: &RowFrame, magnitude: &[f32], turn: &[f32], window: &[f32], index: &mut Vec<u32>, part: &mut [Vec<f32>; 3], weight: &mut Vec<f32>) {
        let count = magnitude.len();
        if index.len() < count {
            index.resize(count, 0);
            weight.resize(count, 0.0);
            part.iter_mut().for_each(|part| part.resize(count, 0.0));
        }
        let [part_x, part_y, part_t] = part;
        let (index, weight) = (&mut index[..count], &mut weight[..count]);
        let (part_x, part_y, part_t) = (&mut part_x[..count], &mut part_y[..count], &mut part_t[..count]);
        let (turn, window) = (&turn[..count], &window[..count]);
        // Cell c of the padded grid has its centre at c − 2.5 cells from the keypoint.
        let offset = 0.5 * (PADDED - 1) as f32;
        let largest = (PADDED - 2) as f32;
        for i in 0..count {
            let dx = frame.dx + i as f32;
            let x = dx * frame.cos + frame.dy * frame.sin + offset;
            let y = frame.dy * frame.cos - dx * frame.sin + offset;
            // Rounding may carry a sample a hair out of the grid.
            let x0 = if x < 0.0 { 0.0 } else { x.floor() };
            let x0 = if x0 > largest { largest } else { x0 };
            let y0 = if y < 0.0 { 0.0 } else { y.floor() };
            let y0 = if y0 > largest { largest } else { y0 };
            let t = turn[i] - frame.turn;
            let t = (t - t.floor()) * BINS as f32;
            let t0 = t.floor();
            let t0 = if t0 > (BINS - 1) as f32 { (BINS - 1) as f32 } else { t0 };
            part_x[i] = x - x0;
            part_y[i] = y - y0;
            part_t[i] = t - t0;
            weight[i] = magnitude[i] * window[i] * frame.window;
            // SAFETY: all three are within 0…7.
            let (x0, y0, t0) = unsafe {
                (x0.to_int_unchecked::<i32>(), y0.to_int_unchecked::<i32>(), t0.to_int_unchecked::<i32>())
            };
            index[i] = ((y0 * PADDED as i32 + x0) * STRIDE as i32 + t0) as u32;
        }
    }
}

/// Adds the first `count` samples to the histogram by trilinear interpolation.
fn scatter(scratch: &Scratch, count: usize, histogram: &mut [f32; PADDED * PADDED * STRIDE]) {
    let [part_x, part_y, part_t] = &scratch.part;
    for i in 0..count {
        let weight = scratch.weight[i];
        let (x, y, t) = (part_x[i], part_y[i], part_t[i]);
        let base = scratch.index[i] as usize;
        let bins = &mut histogram[base..base + (PADDED + 1) * STRIDE + 2];
        let (bottom, top) = (weight * y, weight - weight * y);
        for (offset, row) in [(0, top), (PADDED * STRIDE, bottom)] {
            let (right, left) = (row * x, row - row * x);
            for (offset, cell) in [(offset, left), (offset + STRIDE, right)] {
                let upper = cell * t;
                bins[offset] += cell - upper;
                bins[offset + 1] += upper;
            }
        }
    }
}

/// Cut, L1-normalised, square root, times 512.
fn quantise(histogram: &[f32; PADDED * PADDED * STRIDE]) -> Descriptor {
    let mut values = [0.0f32; CELLS * CELLS * BINS];
    for (c, bins) in values.chunks_exact_mut(BINS).enumerate() {
        let start = ((c / CELLS + 1) * PADDED + c % CELLS + 1) * STRIDE;
        bins.copy_from_slice(&histogram[start..start + BINS]);
        bins[0] += histogram[start + BINS];
    }
    let length = values.iter().map(|v| v * v).sum::<f32>().sqrt();
    let mut total = 0.0;
    for value in &mut values {
        *value = value.min(CUT * length);
        total += *value;
    }
    let mut descriptor = [0; CELLS * CELLS * BINS];
    if total > 0.0 {
        for (quantised, value) in descriptor.iter_mut().zip(&values) {
            *quantised = (512.0 * (value / total).sqrt()).round().min(255.0) as u8;
        }
    }
    descriptor
}
