//! Semi-global matching (Hirschmüller, PAMI 2008): costs summed along straight paths through the picture, on which a
//! change of depth has a price.

use super::small_view::SmallView;
use super::sweep::Volume;

/// The price of moving by one plane from pixel to pixel.
const SMALL: f32 = 0.02;
/// The price of moving farther, where the picture is uniform; it falls with the step in brightness,
const LARGE: f32 = 0.5;
/// halved at this one.
const EDGE: f32 = 0.08;

/// Values that are compared at once.
const LANES: usize = 16;

/// The sums of the costs along the eight directions, in the order of the volume.
pub(super) fn along_paths(volume: &Volume, frame: &SmallView) -> Vec<f32> {
    let mut total = vec![0.0f32; volume.cost.len()];
    // Twice through the picture, each time along the four directions whose paths come from pixels that were visited: the
    // volume is larger than caches are.
    sweep_rows(volume, frame, false, &mut total);
    sweep_rows(volume, frame, true, &mut total);
    total
}

/// The costs of the paths that end in the pixels of one row.
struct Row {
    /// Pixel by pixel: for every plane, between two that no path takes.
    costs: Vec<f32>,
    /// The least of each pixel.
    least: Vec<f32>,
}

impl Row {
    fn new(width: usize, planes: usize) -> Self {
        Self { costs: vec![f32::INFINITY; width * (planes + 2)], least: vec![0.0; width] }
    }
}

widest!(sweep_rows, add_paths, (volume: &Volume, frame: &SmallView, back: bool, total: &mut [f32]));

/// Adds the costs along the paths from the left, and from the three pixels above; turned around, if `back`.
#[inline(always)]
fn add_paths(volume: &Volume, frame: &SmallView, back: bool, total: &mut [f32]) {
    let (w, h, planes) = (volume.width, volume.height, volume.planes);
    let padded = planes + 2;
    let large = |a: usize, b: usize| {
        let edge = (frame.grey[a] - frame.grey[b]).abs();
        (LARGE / (1.0 + edge / EDGE)).max(SMALL)
    };
    // Where the paths of each direction come from, in columns of the row before and of this row.
    const ABOVE: [i32; 3] = [0, -1, 1];
    let mut before = ABOVE.map(|_| Row::new(w, planes));
    let mut rows = ABOVE.map(|_| Row::new(w, planes));
    let mut left = Row::new(w, planes);
    for n in 0..h {
        let y = if back { h - 1 - n } else { n };
        for m in 0..w {
            let x = if back { w - 1 - m } else { m };
            let pixel = y * w + x;
            let costs = &volume.cost[pixel * planes..][..planes];
            let sum = &mut total[pixel * planes..][..planes];
            let step =
                |first: bool, from: &[f32], least: f32, other: usize, to: &mut [f32], sum: &mut [f32]| {
                    if first {
                        to[1..=planes].copy_from_slice(costs);
                    } else {
                        extend(costs, from, to, least, large(pixel, other));
                    }
                    let to = &to[1..=planes];
                    sum.iter_mut().zip(to).for_each(|(s, v)| *s += v);
                    smallest(to)
                };
            let (from, to) = if m == 0 {
                (&[][..], &mut left.costs[..padded])
            } else {
                let (from, to) = left.costs.split_at_mut(m * padded);
                (&from[(m - 1) * padded..], &mut to[..padded])
            };
            let (least, other) = match (m, back) {
                (0, _) => (0.0, pixel),
                (_, false) => (left.least[m - 1], pixel - 1),
                (_, true) => (left.least[m - 1], pixel + 1),
            };
            left.least[m] = step(m == 0, from, least, other, to, sum);
            for ((dx, before), row) in ABOVE.iter().zip(&before).zip(&mut rows) {
                let px = x as i32 + dx;
                let to = &mut row.costs[x * padded..][..padded];
                row.least[x] = if n == 0 || px < 0 || px >= w as i32 {
                    step(true, &[], 0.0, pixel, to, sum)
                } else {
                    let px = px as usize;
                    let other = if back { (y + 1) * w + px } else { (y - 1) * w + px };
                    step(false, &before.costs[px * padded..][..padded], before.least[px], other, to, sum)
                };
            }
        }
        std::mem::swap(&mut before, &mut rows);
    }
}

/// One step along a path: `to = costs + min(from, its neighbours + SMALL, least + large) - least`.
#[inline(always)]
fn extend(costs: &[f32], from: &[f32], to: &mut [f32], least: f32, large: f32) {
    let planes = costs.len();
    let bound = least + large;
    let (below, same, above) = (&from[..planes], &from[1..=planes], &from[2..planes + 2]);
    let to = &mut to[1..=planes];
    for k in 0..planes {
        let moved = lesser(below[k], above[k]) + SMALL;
        to[k] = costs[k] + lesser(lesser(same[k], moved), bound) - least;
    }
}

/// The lesser of two numbers: unlike [`f32::min`] one instruction.
#[inline(always)]
fn lesser(a: f32, b: f32) -> f32 {
    if a < b { a } else { b }
}

/// The least of some numbers.
#[inline(always)]
fn smallest(values: &[f32]) -> f32 {
    let mut lanes = [f32::INFINITY; LANES];
    let (chunks, rest) = values.as_chunks::<LANES>();
    for chunk in chunks {
        for (lane, value) in lanes.iter_mut().zip(chunk) {
            *lane = lesser(*lane, *value);
        }
    }
    rest.iter().chain(&lanes).copied().fold(f32::INFINITY, lesser)
}

#[cfg(test)]
mod tests {
    use glam::{DMat3, DVec3};

    use super::*;
    use crate::random::Random;
    use crate::raster::View;

    /// The costs along all paths of one direction, by the definition.
    fn along(volume: &Volume, frame: &SmallView, dx: i32, dy: i32) -> Vec<f64> {
        let (w, h, planes) = (volume.width as i32, volume.height as i32, volume.planes);
        let mut paths = vec![0.0f64; volume.cost.len()];
        for n in 0..w * h {
            // Whatever the direction, the pixel before is visited before.
            let n = if dy < 0 || (dy == 0 && dx < 0) { w * h - 1 - n } else { n };
            let (x, y) = (n % w - dx, n / w - dy);
            let inside = (0..w).contains(&x) && (0..h).contains(&y);
            let (here, from) = (n as usize, (y * w + x) as usize);
            for k in 0..planes {
                let mut cost = f64::from(volume.cost[here * planes + k]);
                if inside {
                    let before = &paths[from * planes..][..planes];
                    let edge = f64::from((frame.grey[here] - frame.grey[from]).abs());
                    let large = (f64::from(LARGE) / (1.0 + edge / f64::from(EDGE))).max(f64::from(SMALL));
                    let least = before.iter().copied().fold(f64::INFINITY, f64::min);
                    let price = |j: usize| match j.abs_diff(k) {
                        0 => 0.0,
                        1 => f64::from(SMALL).min(large),
                        _ => large,
                    };
                    let best = (0..planes).map(|j| before[j] + price(j)).fold(f64::INFINITY, f64::min);
                    cost += best - least;
                }
                paths[here * planes + k] = cost;
            }
        }
        paths
    }

    #[test]
    fn the_sums_are_those_of_the_eight_directions() {
        let mut random = Random::new(11);
        let view = View {
            rotation: DMat3::IDENTITY,
            translation: DVec3::ZERO,
            fx: 1.0,
            fy: 1.0,
            cx: 0.0,
            cy: 0.0,
            width: 0,
            height: 0,
        };
        for (width, height, planes) in [(1, 5, 3), (6, 1, 33), (7, 5, 32), (9, 8, 41)] {
            let mut values =
                |count: usize| -> Vec<f32> { (0..count).map(|_| random.uniform() as f32).collect() };
            let frame = SmallView { view, rgb: Vec::new(), grey: values(width * height), alpha: None };
            let cost = values(width * height * planes);
            let volume = Volume { width, height, planes, inverse: (1.0, 0.1), cost };
            let mut expected = vec![0.0f64; volume.cost.len()];
            for (dx, dy) in [(1, 0), (-1, 0), (0, 1), (0, -1), (1, 1), (-1, -1), (1, -1), (-1, 1)] {
                expected.iter_mut().zip(along(&volume, &frame, dx, dy)).for_each(|(e, v)| *e += v);
            }
            for (n, (sum, expected)) in along_paths(&volume, &frame).iter().zip(&expected).enumerate() {
                assert!(
                    (f64::from(*sum) - expected).abs() < 1e-4,
                    "{sum} {expected} at {n} of {width}x{height}"
                );
            }
        }
    }
}
