//! Gradients of a Gaussian level.

use super::plane::Plane;

/// Computes the gradient at as many columns of a row as the slices are long, from column `x` on, by central differences:
/// its length, in luma per pixel, and its direction as a fraction of a full turn in [0, 1), from +x towards +y.
///
/// It is computed where it is needed: planes of it would take longer to write and to read than this takes. The slices may
/// reach up to [`LANES`](super::plane::LANES) beyond the row, where the gradient has no meaning.
#[inline(always)]
pub(super) fn gradient_row(plane: &Plane, y: usize, x: usize, magnitude: &mut [f32], turn: &mut [f32]) {
    let count = magnitude.len();
    let turn = &mut turn[..count];
    let (left, right) = (plane.from(x - 1, y, count), plane.from(x + 1, y, count));
    let (above, below) = (plane.from(x, y - 1, count), plane.from(x, y + 1, count));
    for i in 0..count {
        let dx = 0.5 * (right[i] - left[i]);
        let dy = 0.5 * (below[i] - above[i]);
        magnitude[i] = (dx * dx + dy * dy).sqrt();
        turn[i] = turn_of(dx, dy);
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
}
