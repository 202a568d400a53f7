//! Plane sweep: how well a view matches its neighbours if everything lay at one depth, for many depths.

use glam::{DMat3, DVec3, dvec3};

use super::small_view::SmallView;
use crate::raster::View;

/// Half the side of the square windows that are compared.
const RADIUS: usize = 2;
/// Fewest and most planes.
const PLANES: (usize, usize) = (32, 96);

/// So many planes are written to the volume together: one plane of it is spread over all of its cache lines.
const AT_ONCE: usize = 16;

/// Costs (0 matches, 1 does not) of every pixel at every plane.
pub(super) struct Volume {
    pub(super) width: usize,
    pub(super) height: usize,
    /// Number of planes.
    pub(super) planes: usize,
    /// Inverse depth of the first plane, and the step to the next.
    pub(super) inverse: (f64, f64),
    /// Pixel by pixel, plane by plane.
    pub(super) cost: Vec<f32>,
}

impl Volume {
    /// The depth of least `total` cost per pixel, refined between planes by a parabola through the matching costs
    /// around it (sums along paths would pull it to a plane); 0 where that is at the near end of the range.
    pub(super) fn depths(&self, total: &[f32]) -> Vec<f32> {
        total
            .chunks_exact(self.planes)
            .zip(self.cost.chunks_exact(self.planes))
            .map(|(total, costs)| {
                let best = (0..total.len()).min_by(|&a, &b| total[a].total_cmp(&total[b])).unwrap_or(0);
                if best == 0 || best + 1 == total.len() {
                    // Nothing can be nearer than the range; what is farther is shown at its end.
                    return if best == 0 { (1.0 / self.inverse.0) as f32 } else { 0.0 };
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
/// exposure; the mean of the two neighbours that match best counts, since the others may not see the pixel.
pub(super) fn costs(frame: &SmallView, others: &[&SmallView], range: (f64, f64)) -> Volume {
    let (width, height) = (frame.width(), frame.height());
    let (near, far) = (1.0 / range.0, 1.0 / range.1);
    let relative: Vec<Relative> = others.iter().map(|o| Relative::new(&frame.view, &o.view)).collect();
    let shift =
        relative.iter().map(|r| r.translation.truncate().length() * (near - far) * r.fx).fold(0.0, f64::max);
    let planes = (shift.ceil() as usize).clamp(PLANES.0, PLANES.1);
    let step = (near - far) / (planes - 1) as f64;
    let mut volume =
        Volume { width, height, planes, inverse: (far, step), cost: vec![1.0; width * height * planes] };

    let reference = Reference::new(&frame.grey, width);
    let pixels = width * height;
    // The costs of some planes, plane by plane.
    let mut block = vec![1.0f32; AT_ONCE * pixels];
    let mut warped = vec![0.0f32; width * height];
    let mut inside = vec![false; width * height];
    // The two best correlations of every pixel so far; `NONE` where there is none.
    let (mut first, mut second) = (vec![NONE; width * height], vec![NONE; width * height]);
    for plane in 0..planes {
        let inverse_depth = far + plane as f64 * step;
        first.fill(NONE);
        second.fill(NONE);
        for (other, relative) in others.iter().zip(&relative) {
            warp(other, relative, inverse_depth, width, &mut warped, &mut inside);
            reference.correlate(&warped, &inside, &mut first, &mut second);
        }
        let slot = plane % AT_ONCE;
        for ((cost, a), b) in block[slot * pixels..].iter_mut().zip(&first).zip(&second) {
            let correlation = if *b > NONE { 0.5 * (a + b) } else { *a };
            *cost = if *a > NONE { (1.0 - correlation).clamp(0.0, 1.0) } else { 1.0 };
        }
        if slot + 1 == AT_ONCE || plane + 1 == planes {
            for (pixel, costs) in volume.cost.chunks_exact_mut(planes).enumerate() {
                for (n, cost) in costs[plane - slot..=plane].iter_mut().enumerate() {
                    *cost = block[n * pixels + pixel];
                }
            }
        }
    }
    volume
}

/// Stands for no correlation: less than any.
const NONE: f32 = -2.0;

/// Pixels of a reference to pixels of a neighbour: `matrix * (u, v, 1) + offset / depth`, in the neighbour's homogeneous
/// pixels.
struct Relative {
    matrix: DMat3,
    translation: DVec3,
    fx: f64,
    offset: DVec3,
}

impl Relative {
    fn new(from: &View, to: &View) -> Self {
        let rotation = to.rotation * from.rotation.transpose();
        let translation = to.translation - rotation * from.translation;
        // K_to R K_from⁻¹ and K_to t.
        let pixel = |v: DVec3| dvec3(to.fx * v.x + to.cx * v.z, to.fy * v.y + to.cy * v.z, v.z);
        let column = |x: f64, y: f64, z: f64| pixel(rotation * dvec3(x, y, z));
        Self {
            matrix: DMat3::from_cols(
                column(1.0 / from.fx, 0.0, 0.0),
                column(0.0, 1.0 / from.fy, 0.0),
                column(-from.cx / from.fx, -from.cy / from.fy, 1.0),
            ),
            offset: pixel(translation),
            translation,
            fx: to.fx,
        }
    }
}

widest!(warp, warp_rows, (
    other: &SmallView, relative: &Relative, inverse_depth: f64, width: usize, warped: &mut [f32], inside: &mut [bool]
));

/// What the neighbour shows where the reference's pixels would be if they lay on the plane.
#[inline(always)]
fn warp_rows(
    other: &SmallView,
    relative: &Relative,
    inverse_depth: f64,
    width: usize,
    warped: &mut [f32],
    inside: &mut [bool],
) {
    let (w, h) = (other.width(), other.height());
    let grey = other.grey.as_slice();
    assert!(w >= 2 && h >= 2 && grey.len() == w * h, "frames are at least 2x2");
    let (right, bottom) = ((w - 1) as f32, (h - 1) as f32);
    let (last_column, last_row) = (w as i32 - 2, h as i32 - 2);
    let m = &relative.matrix;
    let step = m.x_axis.as_vec3();
    for (row, (out, valid)) in warped.chunks_exact_mut(width).zip(inside.chunks_exact_mut(width)).enumerate()
    {
        let first = 0.5 * m.x_axis + (row as f64 + 0.5) * m.y_axis + m.z_axis;
        let start = (first + inverse_depth * relative.offset).as_vec3();
        for (column, (value, valid)) in out.iter_mut().zip(valid.iter_mut()).enumerate() {
            let k = column as i32 as f32;
            let z = start.z + k * step.z;
            let (x, y) = ((start.x + k * step.x) / z - 0.5, (start.y + k * step.y) / z - 0.5);
            *valid = (z > 0.0) & (x >= 0.0) & (y >= 0.0) & (x <= right) & (y <= bottom);
            // Also for pixels outside, so that the windows at the border have something to compare. `max` and `min`
            // return the number where the other side is none.
            let (x, y) = (x.max(0.0).min(right), y.max(0.0).min(bottom));
            // SAFETY: both are numbers from 0 to the last pixel, so they fit an i32; and (i, j), at most the last but
            // one, has a neighbour in both directions within the picture's w * h values.
            unsafe {
                let i = x.to_int_unchecked::<i32>().min(last_column);
                let j = y.to_int_unchecked::<i32>().min(last_row);
                let (fx, fy) = (x - i as f32, y - j as f32);
                let at = (j * w as i32 + i) as usize;
                let g = |offset: usize| *grey.get_unchecked(at + offset);
                let top = g(0) + fx * (g(1) - g(0));
                let low = g(w) + fx * (g(w + 1) - g(w));
                *value = top + fy * (low - top);
            }
        }
    }
}

/// The picture that others are compared with, and its window sums.
struct Reference<'a> {
    grey: &'a [f32],
    width: usize,
    sum: Vec<f32>,
    /// Sum of squared differences from the window's mean.
    variance: Vec<f32>,
}

const AREA: f32 = ((2 * RADIUS + 1) * (2 * RADIUS + 1)) as f32;

impl<'a> Reference<'a> {
    fn new(grey: &'a [f32], width: usize) -> Self {
        let mut reference = Self { grey, width, sum: vec![0.0; grey.len()], variance: vec![0.0; grey.len()] };
        let (mut sum, mut variance) = (vec![0.0; grey.len()], vec![0.0; grey.len()]);
        for_window_rows(width, grey, grey, |y, sums| {
            let out = y * width..(y + 1) * width;
            for ((s, v), (a, b)) in
                sum[out.clone()].iter_mut().zip(&mut variance[out]).zip(sums[0].iter().zip(&sums[1]))
            {
                (*s, *v) = (*a, b - a * a / AREA);
            }
        });
        (reference.sum, reference.variance) = (sum, variance);
        reference
    }

    /// Correlates the windows of a warped picture with those of the reference, and sorts the values into the two best.
    fn correlate(&self, warped: &[f32], inside: &[bool], first: &mut [f32], second: &mut [f32]) {
        correlate(self, warped, inside, first, second);
    }
}

widest!(correlate, correlate_rows, (
    reference: &Reference<'_>, warped: &[f32], inside: &[bool], first: &mut [f32], second: &mut [f32]
));

#[inline(always)]
fn correlate_rows(
    reference: &Reference<'_>,
    warped: &[f32],
    inside: &[bool],
    first: &mut [f32],
    second: &mut [f32],
) {
    let width = reference.width;
    for_window_rows(width, warped, reference.grey, |y, [sum, squares, cross]| {
        let row = y * width..(y + 1) * width;
        let (first, second) = (&mut first[row.clone()], &mut second[row.clone()]);
        let (mean, variance) = (&reference.sum[row.clone()], &reference.variance[row.clone()]);
        let inside = &inside[row];
        let (sum, squares, cross) = (&sum[..width], &squares[..width], &cross[..width]);
        for x in 0..width {
            let spread = (squares[x] - sum[x] * sum[x] / AREA) * variance[x];
            // Below about half a grey level of noise there is no texture to compare.
            let correlation = (cross[x] - sum[x] * mean[x] / AREA) / (spread.max(0.0).sqrt() + 2e-3);
            let value = if inside[x] { correlation } else { NONE };
            second[x] = second[x].max(first[x].min(value));
            first[x] = first[x].max(value);
        }
    });
}

/// Calls `visit` for every row with the sums over square windows of `a`, of `a²` and of `a b`. The parts of windows that
/// are outside repeat the border.
#[inline(always)]
fn for_window_rows(width: usize, a: &[f32], b: &[f32], mut visit: impl FnMut(usize, &[Vec<f32>; 3])) {
    const SIDE: usize = 2 * RADIUS + 1;
    let height = a.len() / width;
    let empty = || [vec![0.0f32; width], vec![0.0f32; width], vec![0.0f32; width]];
    // The horizontal sums of the rows of a window, by row number modulo their count.
    let mut rows: [[Vec<f32>; 3]; SIDE] = std::array::from_fn(|_| empty());
    let mut sums = empty();
    let mut padded = [
        vec![0.0f32; width + 2 * RADIUS],
        vec![0.0f32; width + 2 * RADIUS],
        vec![0.0f32; width + 2 * RADIUS],
    ];
    let mut next = 0;
    for y in 0..height {
        while next < height && next <= y + RADIUS {
            let (a, b) = (&a[next * width..(next + 1) * width], &b[next * width..(next + 1) * width]);
            let [p, q, r] = &mut padded;
            for (x, (a, b)) in a.iter().zip(b).enumerate() {
                p[x + RADIUS] = *a;
                q[x + RADIUS] = a * a;
                r[x + RADIUS] = a * b;
            }
            for (values, out) in padded.iter_mut().zip(&mut rows[next % SIDE]) {
                let (left, right) = (values[RADIUS], values[width + RADIUS - 1]);
                values[..RADIUS].fill(left);
                values[width + RADIUS..].fill(right);
                for (o, v) in out.iter_mut().zip(values.windows(SIDE)) {
                    *o = v[0] + v[1] + v[2] + v[3] + v[4];
                }
            }
            next += 1;
        }
        for (k, out) in sums.iter_mut().enumerate() {
            let row = |d: usize| &rows[(y + d).saturating_sub(RADIUS).min(height - 1) % SIDE][k][..width];
            let (r0, r1, r2, r3, r4) = (row(0), row(1), row(2), row(3), row(4));
            let out = &mut out[..width];
            for x in 0..width {
                out[x] = r0[x] + r1[x] + r2[x] + r3[x] + r4[x];
            }
        }
        visit(y, &sums);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn window_sums_repeat_the_border() {
        for (w, h) in [(7, 6), (3, 2), (5, 20)] {
            let a: Vec<f32> = (0..w * h).map(|i| ((i * 37) % 11) as f32).collect();
            let b: Vec<f32> = (0..w * h).map(|i| ((i * 17) % 7) as f32).collect();
            let mut rows = 0;
            for_window_rows(w, &a, &b, |y, sums| {
                rows += 1;
                for x in 0..w {
                    let mut expected = [0.0; 3];
                    for dy in -(RADIUS as i32)..=RADIUS as i32 {
                        for dx in -(RADIUS as i32)..=RADIUS as i32 {
                            let i = (x as i32 + dx).clamp(0, w as i32 - 1) as usize;
                            let j = (y as i32 + dy).clamp(0, h as i32 - 1) as usize;
                            let (a, b) = (a[j * w + i], b[j * w + i]);
                            for (e, v) in expected.iter_mut().zip([a, a * a, a * b]) {
                                *e += v;
                            }
                        }
                    }
                    assert_eq!([sums[0][x], sums[1][x], sums[2][x]], expected, "{x} {y} of {w}x{h}");
                }
            });
            assert_eq!(rows, h);
        }
    }
}
