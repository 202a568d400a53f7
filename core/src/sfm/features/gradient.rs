//! Gradients of a Gaussian level and, from them, the orientations of keypoints (Lowe 2004, section 5).

use std::f32::consts::TAU;
use std::ops::Range;

use super::detector::Extremum;
use super::plane::{LANES, Plane};

/// The gradient of part of a row by central differences, computed where it is needed: planes of it would take longer to
/// write and to read than the gradient takes.
#[derive(Default)]
pub(super) struct GradientRow {
    magnitude: Vec<f32>,
    turn: Vec<f32>,
}

impl GradientRow {
    /// Length, in luma per pixel, and direction as a fraction of a full turn in [0, 1), from +x towards +y, at some
    /// columns of a row, none of them on the border of the plane. As many as whole vectors hold: those beyond the
    /// columns asked for have no meaning.
    pub(super) fn compute(&mut self, plane: &Plane, y: usize, columns: Range<usize>) -> (&[f32], &[f32]) {
        let count = columns.len().next_multiple_of(LANES);
        if self.turn.len() < count {
            self.magnitude.resize(count, 0.0);
            self.turn.resize(count, 0.0);
        }
        let (magnitude, turn) = (&mut self.magnitude[..count], &mut self.turn[..count]);
        let from = |x: usize, y: usize| plane.from(x, y, count);
        let horizontal = [from(columns.start - 1, y), from(columns.start + 1, y)];
        let vertical = [from(columns.start, y - 1), from(columns.start, y + 1)];
        gradient_row(horizontal, vertical, magnitude, turn);
        (magnitude, turn)
    }
}

vectorised! {
    /// The gradient at pixels, given their neighbours on either side.
    fn gradient_row(horizontal: [&[f32]; 2], vertical: [&[f32]; 2], magnitude: &mut [f32], turn: &mut [f32]) {
        let count = magnitude.len();
        let ([left, right], [above, below]) =
            (horizontal.map(|row| &row[..count]), vertical.map(|row| &row[..count]));
        let turn = &mut turn[..count];
        for i in 0..count {
            let dx = 0.5 * (right[i] - left[i]);
            let dy = 0.5 * (below[i] - above[i]);
            magnitude[i] = (dx * dx + dy * dy).sqrt();
            turn[i] = turn_of(dx, dy);
        }
    }
}

/// `atan2(y, x) / 2π` in [0, 1) without branches; wrong by less than 2e-6 of a turn. The polynomial is a least-squares
/// fit to atan(a) / 2πa in a² at Chebyshev nodes of [0, 1].
#[inline(always)]
fn turn_of(x: f32, y: f32) -> f32 {
    let (ax, ay) = (x.abs(), y.abs());
    let (small, large) = if ax < ay { (ax, ay) } else { (ay, ax) };
    // The smallest normal number: 0/0 becomes 0.
    let a = small / if large > f32::MIN_POSITIVE { large } else { f32::MIN_POSITIVE };
    let q = a * a;
    let mut p = TURN_POLYNOMIAL[5];
    p = p * q + TURN_POLYNOMIAL[4];
    p = p * q + TURN_POLYNOMIAL[3];
    p = p * q + TURN_POLYNOMIAL[2];
    p = p * q + TURN_POLYNOMIAL[1];
    p = p * q + TURN_POLYNOMIAL[0];
    let turn = p * a;
    let turn = if ax < ay { 0.25 - turn } else { turn };
    let turn = if x < 0.0 { 0.5 - turn } else { turn };
    let turn = if y < 0.0 { 1.0 - turn } else { turn };
    if turn >= 1.0 { 0.0 } else { turn }
}

const TURN_POLYNOMIAL: [f32; 6] =
    [1.591508832e-01, -5.292989150e-02, 3.075435195e-02, -1.841891266e-02, 8.268183977e-03, -1.824840286e-03];

/// Bins of the orientation histogram.
const BINS: usize = 36;

/// The dominant directions at a keypoint in radians in [0, 2π), the strongest first: all peaks of the histogram within
/// 80 % of the highest, at most `max_count`.
pub(super) fn orientations(
    plane: &Plane,
    keypoint: &Extremum,
    max_count: usize,
    gradients: &mut GradientRow,
) -> Vec<f32> {
    let (width, height) = (plane.width, plane.height);
    let window = 1.5 * keypoint.sigma;
    let radius = (3.0 * window).max(1.0);
    let bounds = |centre: f32, size: usize| {
        let low = (centre - radius).ceil().max(1.0) as usize;
        let high = ((centre + radius).floor().max(0.0) as usize).min(size.saturating_sub(2));
        low..high + 1
    };
    let mut histogram = [0.0f32; BINS];
    // The window is a Gaussian: the product of one factor per column and one per row.
    let falloff = -0.5 / (window * window);
    let columns = bounds(keypoint.x, width);
    let column_window: Vec<f32> =
        columns.clone().map(|x| ((x as f32 - keypoint.x).powi(2) * falloff).exp()).collect();
    for y in bounds(keypoint.y, height) {
        let row_window = ((y as f32 - keypoint.y).powi(2) * falloff).exp();
        let (magnitudes, turns) = gradients.compute(plane, y, columns.clone());
        for ((magnitude, turn), column_window) in magnitudes.iter().zip(turns).zip(&column_window) {
            // Half a bin down, a full turn up: positive, so that the conversion rounds down.
            let bin = turn * BINS as f32 + (BINS as f32 - 0.5);
            let low = bin as usize;
            let weight = magnitude * column_window * row_window;
            let upper = (bin - low as f32) * weight;
            histogram[low % BINS] += weight - upper;
            histogram[(low + 1) % BINS] += upper;
        }
    }
    for _ in 0..6 {
        let before = histogram;
        for i in 0..BINS {
            histogram[i] = (before[(i + BINS - 1) % BINS] + before[i] + before[(i + 1) % BINS]) / 3.0;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn turn_of_is_atan2() {
        for i in 0..10_000 {
            let angle = i as f64 / 10_000.0;
            let (y, x) = (angle * std::f64::consts::TAU).sin_cos();
            let error = (f64::from(turn_of(x as f32 * 0.01, y as f32 * 0.01)) - angle).abs();
            assert!(error.min(1.0 - error) < 2e-6, "{angle}: {error}");
        }
        assert_eq!(turn_of(0.0, 0.0), 0.0);
        assert_eq!(turn_of(1.0, -1e-30), 0.0);
    }

    #[test]
    fn a_ramp_points_uphill() {
        for degrees in (0..360).step_by(7) {
            let direction = (degrees as f32).to_radians();
            let (sin, cos) = direction.sin_cos();
            let ramp = |i| 0.01 * ((i % 41) as f32 * cos + (i / 41) as f32 * sin);
            let plane = Plane::of(41, 41, (0..41 * 41).map(ramp));
            let keypoint = Extremum { x: 20.2, y: 19.7, sigma: 2.0, contrast: 0.1, level: 0 };
            let found = orientations(&plane, &keypoint, 2, &mut GradientRow::default());
            assert_eq!(found.len(), 1);
            let error = (found[0] - direction + std::f32::consts::PI).rem_euclid(TAU) - std::f32::consts::PI;
            assert!(error.abs() < 0.03, "{degrees}: {}", found[0].to_degrees());
        }
    }
}
