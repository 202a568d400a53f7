//! The orientations of keypoints (Lowe 2004, section 5).

use std::f32::consts::TAU;

use super::detector::Extremum;
use super::gradient::gradient_row;
use super::plane::{LANES, Plane};
use super::window::gaussian_window;

/// Bins of the orientation histogram.
const BINS: usize = 36;

/// Buffers for the samples of a row, reused.
#[derive(Default)]
pub(super) struct Scratch {
    magnitude: Vec<f32>,
    turn: Vec<f32>,
    column_window: Vec<f32>,
    row_window: Vec<f32>,
    /// What each sample adds to which bin and to the next one.
    bin: Vec<u32>,
    lower: Vec<f32>,
    upper: Vec<f32>,
}

/// The dominant directions at a keypoint in radians in [0, 2π), the strongest first: all peaks of the histogram within
/// 80 % of the highest, at most `max_count`.
pub(super) fn orientations(
    plane: &Plane,
    keypoint: &Extremum,
    max_count: usize,
    scratch: &mut Scratch,
) -> Vec<f32> {
    let mut histogram = histogram(plane, keypoint, scratch);
    for _ in 0..6 {
        // With the last bin before the first one and the first one after the last.
        let mut before = [0.0; BINS + 2];
        before[1..=BINS].copy_from_slice(&histogram);
        (before[0], before[BINS + 1]) = (before[BINS], before[1]);
        for (i, bin) in histogram.iter_mut().enumerate() {
            *bin = (before[i] + before[i + 1] + before[i + 2]) / 3.0;
        }
    }
    let highest = histogram.iter().copied().fold(0.0, f32::max);
    let mut peaks: Vec<(f32, f32)> = Vec::new();
    for i in 0..BINS {
        let (before, here, after) =
            (histogram[(i + BINS - 1) % BINS], histogram[i], histogram[(i + 1) % BINS]);
        if here >= 0.8 * highest && here > before && here >= after {
            let shift = 0.5 * (before - after) / (before - 2.0 * here + after);
            peaks.push((here, ((i as f32 + 0.5 + shift) / BINS as f32).rem_euclid(1.0) * TAU));
        }
    }
    peaks.sort_by(|a, b| b.0.total_cmp(&a.0));
    peaks.iter().take(max_count).map(|&(_, angle)| angle).collect()
}

vectorised! {
    /// How much gradient there is in each direction around a keypoint.
    fn histogram(plane: &Plane, keypoint: &Extremum, scratch: &mut Scratch) -> [f32; BINS] {
        let window = 1.5 * keypoint.sigma;
        let radius = (3.0 * window).max(1.0);
        let bounds = |centre: f32, size: usize| {
            let low = (centre - radius).ceil().max(1.0) as usize;
            let high = ((centre + radius).floor().max(0.0) as usize).min(size.saturating_sub(2));
            low..high + 1
        };
        let (columns, rows) = (bounds(keypoint.x, plane.width), bounds(keypoint.y, plane.height));
        let count = columns.len();
        // Whole vectors; what is beyond the columns is not counted.
        let padded = count.next_multiple_of(LANES);
        let falloff = -0.5 / (window * window);
        let Scratch { magnitude, turn, column_window, row_window, bin, lower, upper } = scratch;
        for buffer in [&mut *magnitude, turn, column_window, lower, upper] {
            buffer.resize(padded, 0.0);
        }
        bin.resize(padded, 0);
        row_window.resize(rows.len(), 0.0);
        gaussian_window(columns.start as f32 - keypoint.x, falloff, column_window);
        gaussian_window(rows.start as f32 - keypoint.y, falloff, row_window);
        // What goes to a bin and to the next one is kept side by side, and samples go to two histograms by turns: so they
        // seldom wait for the one before. There are bins for two turns; see below.
        let mut histograms = [[[0.0f32; 2]; 2 * BINS]; 2];
        for (y, row_window) in rows.zip(&*row_window) {
            gradient_row(plane, y, columns.start, magnitude, turn);
            place_row(magnitude, turn, column_window, *row_window, bin, lower, upper);
            let (bin, lower, upper) = (&bin[..count], &lower[..count], &upper[..count]);
            for i in 0..count {
                let pair = &mut histograms[i % 2][bin[i] as usize];
                pair[0] += lower[i];
                pair[1] += upper[i];
            }
        }
        let mut sum = [0.0; BINS];
        for histogram in &histograms {
            for (i, [lower, upper]) in histogram.iter().enumerate() {
                sum[i % BINS] += lower;
                sum[(i + 1) % BINS] += upper;
            }
        }
        sum
    }
}

/// Computes what each sample of a row adds to which bin.
#[inline(always)]
fn place_row(
    magnitude: &[f32],
    turn: &[f32],
    column_window: &[f32],
    row_window: f32,
    bin: &mut [u32],
    lower: &mut [f32],
    upper: &mut [f32],
) {
    let count = magnitude.len();
    let (turn, column_window) = (&turn[..count], &column_window[..count]);
    let (bin, lower, upper) = (&mut bin[..count], &mut lower[..count], &mut upper[..count]);
    for i in 0..count {
        // Half a bin down, a full turn up: positive, so that the conversion rounds down.
        let place = turn[i] * BINS as f32 + (BINS as f32 - 0.5);
        // SAFETY: a turn is from 0 to 1.
        let low = unsafe { place.to_int_unchecked::<i32>() };
        let weight = magnitude[i] * column_window[i] * row_window;
        bin[i] = low as u32;
        upper[i] = (place - low as f32) * weight;
        lower[i] = weight - upper[i];
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ramp_points_uphill() {
        for degrees in (0..360).step_by(7) {
            let direction = (degrees as f32).to_radians();
            let (sin, cos) = direction.sin_cos();
            let ramp = |i| 0.01 * ((i % 41) as f32 * cos + (i / 41) as f32 * sin);
            let plane = Plane::of(41, 41, (0..41 * 41).map(ramp));
            let keypoint = Extremum { x: 20.2, y: 19.7, sigma: 2.0, contrast: 0.1, level: 0 };
            let found = orientations(&plane, &keypoint, 2, &mut Scratch::default());
            assert_eq!(found.len(), 1);
            let error = (found[0] - direction + std::f32::consts::PI).rem_euclid(TAU) - std::f32::consts::PI;
            assert!(error.abs() < 0.03, "{degrees}: {}", found[0].to_degrees());
        }
    }
}
