//! Plane sweep: how well a view matches its neighbours if everything lay at one depth, for many depths.

use super::Frame;
use crate::raster::View;

/// Half the side of the square windows that are compared.
const RADIUS: usize = 2;
/// Fewest and most planes.
const PLANES: (usize, usize) = (32, 96);
/// The match of a pixel is the mean of so many best neighbours: the others may not see it.
const BEST: usize = 2;

/// Costs (0 matches, 1 does not) of every pixel at every plane.
pub(super) struct Volume {
    pub(super) width: usize,
    pub(super) height: usize,
    /// Number of planes.
    pub(super) planes: usize,
    /// Inverse depth of the first plane, and the step to the next.
    inverse: (f64, f64),
    /// Pixel by pixel, plane by plane.
    pub(super) cost: Vec<f32>,
}

impl Volume {
    /// The depth of least `total` cost per pixel, refined between planes by a parabola through the matching costs
    /// around it (sums along paths would pull it to a plane); 0 where that is at the end of the range.
    pub(super) fn depths(&self, total: &[f32]) -> Vec<f32> {
        total
            .chunks_exact(self.planes)
            .zip(self.cost.chunks_exact(self.planes))
            .map(|(total, costs)| {
                let best = (0..total.len()).min_by(|&a, &b| total[a].total_cmp(&total[b])).unwrap_or(0);
                if best == 0 || best + 1 == total.len() {
                    return 0.0;
                }
                let (a, b, c) = (costs[best - 1], costs[best], costs[best + 1]);
                let curvature = a - 2.0 * b + c;
                let offset =
                    if curvature > 1e-4 { (0.5 * (a - c) / curvature).clamp(-1.0, 1.0) } else { 0.0 };
                (1.0 / (self.inverse.0 + (best as f64 + f64::from(offset)) * self.inverse.1)) as f32
            })
            .collect()
    }
}

/// Compares `frame` with `others` over planes between the depths `range` (near, far), evenly spaced in inverse depth,
/// about one pixel apart in the neighbours. The measure is zero-mean normalised cross-correlation, which does not see
/// exposure.
pub(super) fn costs(frame: &Frame, others: &[&Frame], range: (f64, f64)) -> Volume {
    let (width, height) = (frame.width(), frame.height());
    let (near, far) = (1.0 / range.0, 1.0 / range.1);
    let relative: Vec<Relative> = others.iter().map(|o| Relative::new(&frame.view, &o.view)).collect();
    let shift = relative
        .iter()
        .map(|r| r.translation.iter().take(2).map(|t| t * t).sum::<f64>().sqrt() * (near - far) * r.fx)
        .fold(0.0, f64::max);
    let planes = (shift.ceil() as usize).clamp(PLANES.0, PLANES.1);
    let step = (near - far) / (planes - 1) as f64;
    let mut volume =
        Volume { width, height, planes, inverse: (far, step), cost: vec![1.0; width * height * planes] };

    let mut windows = Windows::new(width, height);
    let mean = windows.sum(&frame.grey);
    let squares: Vec<f32> = frame.grey.iter().map(|v| v * v).collect();
    let square = windows.sum(&squares);
    let area = ((2 * RADIUS + 1) * (2 * RADIUS + 1)) as f32;
    let variance: Vec<f32> = mean.iter().zip(&square).map(|(m, s)| s - m * m / area).collect();

    let mut warped = vec![0.0f32; width * height];
    let mut inside = vec![false; width * height];
    let mut product = vec![0.0f32; width * height];
    // The `BEST` best correlations of a pixel so far, best first; -2 = none.
    let mut best = vec![[-2.0f32; BEST]; width * height];
    for plane in 0..planes {
        let inverse_depth = far + plane as f64 * step;
        best.fill([-2.0; BEST]);
        for (other, relative) in others.iter().zip(&relative) {
            warp(other, relative, inverse_depth, width, &mut warped, &mut inside);
            let sum = windows.sum(&warped);
            for (p, (a, b)) in product.iter_mut().zip(warped.iter().zip(&frame.grey)) {
                *p = a * b;
            }
            let cross = windows.sum(&product);
            for (p, a) in product.iter_mut().zip(&warped) {
                *p = a * a;
            }
            let square = windows.sum(&product);
            for i in 0..best.len() {
                if !inside[i] {
                    continue;
                }
                let spread = (square[i] - sum[i] * sum[i] / area) * variance[i];
                // Below about half a grey level of noise there is no texture to compare.
                let correlation = (cross[i] - sum[i] * mean[i] / area) / (spread.max(0.0).sqrt() + 2e-3);
                let mut value = correlation;
                for slot in &mut best[i] {
                    if value > *slot {
                        std::mem::swap(&mut value, slot);
                    }
                }
            }
        }
        for (i, slots) in best.iter().enumerate() {
            let known = slots.iter().filter(|v| **v > -2.0);
            let count = known.clone().count();
            if count > 0 {
                let correlation = known.sum::<f32>() / count as f32;
                volume.cost[i * planes + plane] = (1.0 - correlation).clamp(0.0, 1.0);
            }
        }
    }
    volume
}

/// Pixels of a reference to pixels of a neighbour: `x = row * (u, v, 1) + translation / depth`, in the neighbour's
/// homogeneous pixels.
struct Relative {
    matrix: [[f64; 3]; 3],
    translation: [f64; 3],
    fx: f64,
    offset: [f64; 3],
}

impl Relative {
    fn new(from: &View, to: &View) -> Self {
        let mut rotation = [[0.0; 3]; 3];
        let mut translation = to.translation;
        for r in 0..3 {
            for c in 0..3 {
                rotation[r][c] = (0..3).map(|k| to.rotation[r][k] * from.rotation[c][k]).sum();
            }
            translation[r] -= (0..3).map(|k| rotation[r][k] * from.translation[k]).sum::<f64>();
        }
        // K_to R K_from⁻¹ and K_to t.
        let pixel = |v: [f64; 3]| [to.fx * v[0] + to.cx * v[2], to.fy * v[1] + to.cy * v[2], v[2]];
        let column =
            |v: [f64; 3]| pixel(std::array::from_fn(|r| (0..3).map(|k| rotation[r][k] * v[k]).sum()));
        let columns = [
            column([1.0 / from.fx, 0.0, 0.0]),
            column([0.0, 1.0 / from.fy, 0.0]),
            column([-from.cx / from.fx, -from.cy / from.fy, 1.0]),
        ];
        Self {
            matrix: std::array::from_fn(|r| std::array::from_fn(|c| columns[c][r])),
            offset: pixel(translation),
            translation,
            fx: to.fx,
        }
    }
}

/// What the neighbour shows where the reference's pixels would be if they lay on the plane.
fn warp(
    other: &Frame,
    relative: &Relative,
    inverse_depth: f64,
    width: usize,
    warped: &mut [f32],
    inside: &mut [bool],
) {
    let (w, h) = (other.width(), other.height());
    let (right, bottom) = ((w - 1) as f32, (h - 1) as f32);
    let m = &relative.matrix;
    let step: [f32; 3] = std::array::from_fn(|r| m[r][0] as f32);
    for (row, (out, valid)) in warped.chunks_exact_mut(width).zip(inside.chunks_exact_mut(width)).enumerate()
    {
        let start: [f32; 3] = std::array::from_fn(|r| {
            (0.5 * m[r][0] + (row as f64 + 0.5) * m[r][1] + m[r][2] + inverse_depth * relative.offset[r])
                as f32
        });
        for (column, (value, valid)) in out.iter_mut().zip(valid.iter_mut()).enumerate() {
            let k = column as f32;
            let z = start[2] + k * step[2];
            let (x, y) = ((start[0] + k * step[0]) / z - 0.5, (start[1] + k * step[1]) / z - 0.5);
            *valid = z > 0.0 && x >= 0.0 && y >= 0.0 && x <= right && y <= bottom;
            // Also for pixels outside, so that the windows at the border have something to compare; `max` takes the
            // place of what is no number.
            let (x, y) = (x.max(0.0).min(right), y.max(0.0).min(bottom));
            let (i, j) = ((x as usize).min(w.saturating_sub(2)), (y as usize).min(h.saturating_sub(2)));
            let (fx, fy) = (x - i as f32, y - j as f32);
            let at = j * w + i;
            let (dx, dy) = (usize::from(w > 1), if h > 1 { w } else { 0 });
            let g = &other.grey;
            let top = g[at] + fx * (g[at + dx] - g[at]);
            let low = g[at + dy] + fx * (g[at + dy + dx] - g[at + dy]);
            *value = top + fy * (low - top);
        }
    }
}

/// Sums over square windows, whose parts outside repeat the border.
struct Windows {
    width: usize,
    height: usize,
    rows: Vec<f32>,
}

impl Windows {
    fn new(width: usize, height: usize) -> Self {
        Self { width, height, rows: vec![0.0; width * height] }
    }

    fn sum(&mut self, values: &[f32]) -> Vec<f32> {
        let (w, h, r) = (self.width, self.height, RADIUS);
        for (source, out) in values.chunks_exact(w).zip(self.rows.chunks_exact_mut(w)) {
            if w > 2 * r {
                for (o, window) in out[r..w - r].iter_mut().zip(source.windows(2 * r + 1)) {
                    *o = window.iter().sum();
                }
            }
            for x in (0..r.min(w)).chain(w.saturating_sub(r).max(r.min(w))..w) {
                out[x] = (0..=2 * r).map(|k| source[(x + k).saturating_sub(r).min(w - 1)]).sum();
            }
        }
        let mut result = vec![0.0f32; w * h];
        for (y, out) in result.chunks_exact_mut(w).enumerate() {
            for k in 0..=2 * r {
                let row = (y + k).saturating_sub(r).min(h - 1);
                for (o, v) in out.iter_mut().zip(&self.rows[row * w..(row + 1) * w]) {
                    *o += v;
                }
            }
        }
        result
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn window_sums_repeat_the_border() {
        let (w, h) = (7, 6);
        let values: Vec<f32> = (0..w * h).map(|i| ((i * 37) % 11) as f32).collect();
        let sums = Windows::new(w, h).sum(&values);
        for y in 0..h {
            for x in 0..w {
                let mut expected = 0.0;
                for dy in -(RADIUS as i32)..=RADIUS as i32 {
                    for dx in -(RADIUS as i32)..=RADIUS as i32 {
                        let i = (x as i32 + dx).clamp(0, w as i32 - 1) as usize;
                        let j = (y as i32 + dy).clamp(0, h as i32 - 1) as usize;
                        expected += values[j * w + i];
                    }
                }
                assert_eq!(sums[y * w + x], expected, "{x} {y}");
            }
        }
    }
}
