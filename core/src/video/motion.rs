//! How far the picture moves from frame to frame: corners followed by pyramidal Lucas-Kanade.
//!
//! In: small luma pictures in their order. Out: a *position* for each, the way the picture has gone since the first
//! frame as a fraction of its long side. It grows only with net motion: each frame is compared with a reference frame,
//! which is renewed when the picture has gone [`RENEWAL`] away from it, so that the trembling of a hand and the noise of
//! a still camera do not add up.
//!
//! Alignment is by inverse composition (Baker and Matthews, IJCV 2004): gradients and the normal matrix of a corner's
//! patch are computed once, on the reference. The patch means are subtracted, so that a change of exposure is no motion.

use crate::statistics::median;
/// Corners looked for: one in each cell of a grid with about this many cells.
const CELLS: usize = 200;
/// Patches reach this far from the corner, pixels at each pyramid level.
const RADIUS: i32 = 4;
const SIDE: usize = 2 * RADIUS as usize + 1;
const PATCH: usize = SIDE * SIDE;
/// Coarsest pyramid level is at least this high or wide.
const COARSEST: usize = 24;
const ITERATIONS: usize = 8;
/// Smaller eigenvalue of a corner's mean gradient matrix, squared grey levels per squared pixel, at least.
const LEAST_CORNER: f32 = 6.0;

/// The reference frame is renewed when the median corner has moved this fraction of the long side.
const RENEWAL: f32 = 0.02;
/// With fewer corners than this fraction still seen, the motion is unknown.
const LEAST_SEEN: f32 = 0.35;
/// The way that is assumed when the motion is unknown: a cut, or far more than frames should be apart.
const LOST_STEP: f32 = 0.15;
/// A corner that moved less than this fraction of the long side stands still.
const STILL: f32 = 0.004;

/// A picture in several sizes, each half of the one before.
#[derive(Debug, Clone)]
pub(super) struct Pyramid {
    levels: Vec<Level>,
}

#[derive(Debug, Clone)]
struct Level {
    width: usize,
    height: usize,
    pixels: Vec<f32>,
}

impl Pyramid {
    /// The pyramid of a luma picture.
    pub(super) fn new(luma: &[u8], width: usize, height: usize) -> Pyramid {
        let pixels = luma.iter().map(|&v| f32::from(v)).collect();
        let mut levels = vec![Level { width, height, pixels }];
        while let Some(last) = levels.last()
            && last.width.min(last.height) / 2 >= COARSEST
        {
            let half = last.half();
            levels.push(half);
        }
        Pyramid { levels }
    }

    fn long_side(&self) -> f32 {
        self.levels[0].width.max(self.levels[0].height) as f32
    }
}

impl Level {
    /// Mean of 2x2 pixels; a last odd row or column is left out.
    fn half(&self) -> Level {
        let (width, height) = (self.width / 2, self.height / 2);
        let mut pixels = Vec::with_capacity(width * height);
        for y in 0..height {
            let (a, b) = (&self.pixels[2 * y * self.width..], &self.pixels[(2 * y + 1) * self.width..]);
            pixels.extend((0..width).map(|x| 0.25 * (a[2 * x] + a[2 * x + 1] + b[2 * x] + b[2 * x + 1])));
        }
        Level { width, height, pixels }
    }

    /// The square of `side` x `side` samples around (x, y) by bilinear interpolation; false if it leaves the picture.
    fn sample(&self, x: f32, y: f32, side: usize, out: &mut [f32]) -> bool {
        let reach = (side / 2) as f32;
        let (left, top) = (x - reach, y - reach);
        // Written so that NaN is refused too.
        if !(left >= 0.0 && top >= 0.0) {
            return false;
        }
        let (column, row) = (left as usize, top as usize);
        if column + side >= self.width || row + side >= self.height {
            return false;
        }
        let (fx, fy) = (left - column as f32, top - row as f32);
        let weights = [(1.0 - fx) * (1.0 - fy), fx * (1.0 - fy), (1.0 - fx) * fy, fx * fy];
        for j in 0..side {
            let a = &self.pixels[(row + j) * self.width + column..][..side + 1];
            let b = &self.pixels[(row + j + 1) * self.width + column..][..side + 1];
            for (i, out) in out[j * side..][..side].iter_mut().enumerate() {
                *out = weights[0] * a[i] + weights[1] * a[i + 1] + weights[2] * b[i] + weights[3] * b[i + 1];
            }
        }
        true
    }
}

/// A corner's patch at one level of the reference: values and gradients without their means, and what solves for the step.
struct Patch {
    values: [f32; PATCH],
    gradient: [[f32; PATCH]; 2],
    /// Inverse of the normal matrix: xx, xy, yy.
    inverse: [f32; 3],
    variance: f32,
}

impl Patch {
    fn new(level: &Level, x: f32, y: f32) -> Option<Patch> {
        const WIDE: usize = SIDE + 2;
        let mut wide = [0.0; WIDE * WIDE];
        if !level.sample(x, y, WIDE, &mut wide) {
            return None;
        }
        let mut patch =
            Patch { values: [0.0; PATCH], gradient: [[0.0; PATCH]; 2], inverse: [0.0; 3], variance: 0.0 };
        for j in 0..SIDE {
            for i in 0..SIDE {
                let at = (j + 1) * WIDE + i + 1;
                patch.values[j * SIDE + i] = wide[at];
                patch.gradient[0][j * SIDE + i] = 0.5 * (wide[at + 1] - wide[at - 1]);
                patch.gradient[1][j * SIDE + i] = 0.5 * (wide[at + WIDE] - wide[at - WIDE]);
            }
        }
        remove_mean(&mut patch.values);
        let [gx, gy] = &mut patch.gradient;
        remove_mean(gx);
        remove_mean(gy);
        patch.variance = patch.values.iter().map(|v| v * v).sum::<f32>() / PATCH as f32;
        let (mut xx, mut xy, mut yy) = (0.0, 0.0, 0.0);
        for (gx, gy) in gx.iter().zip(gy.iter()) {
            xx += gx * gx;
            xy += gx * gy;
            yy += gy * gy;
        }
        let determinant = xx * yy - xy * xy;
        if determinant <= 1e-3 * (xx + yy) * (xx + yy) || xx + yy < PATCH as f32 {
            return None;
        }
        patch.inverse = [yy / determinant, -xy / determinant, xx / determinant];
        Some(patch)
    }

    /// Refines where this patch is in `level`, from the guess (x, y). None if it leaves the picture.
    fn align(&self, level: &Level, mut x: f32, mut y: f32) -> Option<Aligned> {
        let mut values = [0.0; PATCH];
        let mut residual = 0.0;
        for _ in 0..ITERATIONS {
            if !level.sample(x, y, SIDE, &mut values) {
                return None;
            }
            remove_mean(&mut values);
            let (mut bx, mut by) = (0.0, 0.0);
            residual = 0.0;
            for k in 0..PATCH {
                let difference = values[k] - self.values[k];
                bx += difference * self.gradient[0][k];
                by += difference * self.gradient[1][k];
                residual += difference * difference;
            }
            let dx = self.inverse[0] * bx + self.inverse[1] * by;
            let dy = self.inverse[1] * bx + self.inverse[2] * by;
            // A step beyond the patch is no longer an estimate.
            let shorten = (RADIUS as f32 / dx.hypot(dy).max(1e-9)).min(1.0);
            x -= dx * shorten;
            y -= dy * shorten;
            if dx * dx + dy * dy < 0.02 * 0.02 {
                break;
            }
        }
        Some(Aligned { x, y, residual: residual / PATCH as f32 })
    }
}

struct Aligned {
    x: f32,
    y: f32,
    /// Mean square difference, grey levels squared.
    residual: f32,
}

fn remove_mean(values: &mut [f32; PATCH]) {
    let mean = values.iter().sum::<f32>() / PATCH as f32;
    values.iter_mut().for_each(|v| *v -= mean);
}

/// A frame with the corners that are to be found again in others.
pub(super) struct Reference {
    corners: Vec<Corner>,
    long_side: f32,
}

struct Corner {
    x: f32,
    y: f32,
    /// From the finest level to the coarsest on which the patch lies inside and has texture.
    patches: Vec<Patch>,
    /// Where it was last seen, relative to (x, y).
    moved: [f32; 2],
}

/// How the corners of a reference lie in another frame.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Shift {
    /// Median length of the corners' motion as a fraction of the long side.
    pub(super) median: f32,
    /// The same of their motion since they were last looked for.
    pub(super) step: f32,
    /// Fraction of the corners that were found again.
    pub(super) seen: f32,
    /// Fraction of the corners that stand still.
    pub(super) still: f32,
}

impl Reference {
    /// Takes the corners of a frame, at most one in each cell of a grid.
    pub(super) fn new(frame: &Pyramid) -> Reference {
        let corners = find_corners(frame)
            .into_iter()
            .filter_map(|(x, y)| {
                let patches: Vec<Patch> = frame
                    .levels
                    .iter()
                    .enumerate()
                    .map_while(|(l, level)| {
                        let scale = 1.0 / (1u32 << l) as f32;
                        Patch::new(level, (x + 0.5) * scale - 0.5, (y + 0.5) * scale - 0.5)
                    })
                    .collect();
                (!patches.is_empty()).then_some(Corner { x, y, patches, moved: [0.0; 2] })
            })
            .collect();
        Reference { corners, long_side: frame.long_side() }
    }

    /// Finds the corners in `frame`, from where they were seen last. None if there are too few to say anything.
    pub(super) fn shift(&mut self, frame: &Pyramid) -> Option<Shift> {
        let total = self.corners.len();
        if total < 8 {
            return None;
        }
        let (mut lengths, mut steps): (Vec<f32>, Vec<f32>) =
            self.corners.iter_mut().filter_map(|corner| corner.follow(frame)).unzip();
        let seen = lengths.len() as f32 / total as f32;
        let still = lengths.iter().filter(|&&l| l < STILL * self.long_side).count() as f32 / total as f32;
        Some(Shift {
            median: median(&mut lengths).unwrap_or(0.0) / self.long_side,
            step: median(&mut steps).unwrap_or(0.0) / self.long_side,
            seen,
            still,
        })
    }
}

impl Corner {
    /// How far it has moved in `frame`, and how far since the frame before, pixels; none if it is not seen there.
    fn follow(&mut self, frame: &Pyramid) -> Option<(f32, f32)> {
        let mut moved = self.moved;
        let mut residual = f32::INFINITY;
        for (l, (patch, level)) in self.patches.iter().zip(&frame.levels).enumerate().rev() {
            let scale = 1.0 / (1u32 << l) as f32;
            let (x, y) = ((self.x + 0.5) * scale - 0.5, (self.y + 0.5) * scale - 0.5);
            match patch.align(level, x + moved[0] * scale, y + moved[1] * scale) {
                Some(found) => {
                    moved = [(found.x - x) / scale, (found.y - y) / scale];
                    residual = found.residual;
                }
                // Out of a coarse level the corner may still be inside a finer one.
                None if l > 0 => {}
                None => return None,
            }
        }
        // More than half of the patch's contrast must be explained; noise is not held against it.
        if residual > 0.4 * self.patches[0].variance + 9.0 {
            self.moved = [0.0; 2];
            return None;
        }
        let step = (moved[0] - self.moved[0]).hypot(moved[1] - self.moved[1]);
        self.moved = moved;
        Some((moved[0].hypot(moved[1]), step))
    }
}

/// The best corner of each cell by the smaller eigenvalue of the gradient matrix (Shi and Tomasi, CVPR 1994), found at
/// half size; coordinates of the full-size picture.
fn find_corners(frame: &Pyramid) -> Vec<(f32, f32)> {
    let (level, scale) = match frame.levels.get(1) {
        Some(half) => (half, 2.0),
        None => (&frame.levels[0], 1.0),
    };
    let (width, height) = (level.width, level.height);
    let margin = RADIUS as usize + 2;
    if width <= 2 * margin + 3 || height <= 2 * margin + 3 {
        return Vec::new();
    }
    let cell = (((width * height) as f32 / CELLS as f32).sqrt().ceil() as usize).max(4);
    let (columns, rows) = (width.div_ceil(cell), height.div_ceil(cell));
    let mut best = vec![(LEAST_CORNER, 0usize, 0usize); columns * rows];

    // Gradient products summed over 5 rows in each column, then over 5 columns.
    const WINDOW: usize = 5;
    let products = |y: usize, x: usize| -> [f32; 3] {
        let p = &level.pixels;
        let gx = 0.5 * (p[y * width + x + 1] - p[y * width + x - 1]);
        let gy = 0.5 * (p[(y + 1) * width + x] - p[(y - 1) * width + x]);
        [gx * gx, gx * gy, gy * gy]
    };
    let mut rows_of_products: Vec<Vec<[f32; 3]>> = Vec::with_capacity(height);
    for y in 0..height {
        let inside = y > 0 && y + 1 < height;
        let value = |x: usize| if inside && x > 0 && x + 1 < width { products(y, x) } else { [0.0; 3] };
        rows_of_products.push((0..width).map(value).collect());
    }
    let mut sums = vec![[0.0f32; 3]; width];
    for y in margin..height - margin {
        for (x, sum) in sums.iter_mut().enumerate() {
            *sum = [0.0; 3];
            for row in &rows_of_products[y - WINDOW / 2..=y + WINDOW / 2] {
                for k in 0..3 {
                    sum[k] += row[x][k];
                }
            }
        }
        for x in margin..width - margin {
            let mut m = [0.0f32; 3];
            for sum in &sums[x - WINDOW / 2..=x + WINDOW / 2] {
                for k in 0..3 {
                    m[k] += sum[k];
                }
            }
            let n = (WINDOW * WINDOW) as f32;
            let [xx, xy, yy] = [m[0] / n, m[1] / n, m[2] / n];
            let smaller = 0.5 * (xx + yy - ((xx - yy) * (xx - yy) + 4.0 * xy * xy).sqrt());
            let slot = &mut best[(y / cell) * columns + x / cell];
            if smaller > slot.0 {
                *slot = (smaller, x, y);
            }
        }
    }
    best.into_iter()
        .filter(|&(strength, ..)| strength > LEAST_CORNER)
        .map(|(_, x, y)| ((x as f32 + 0.5) * scale - 0.5, (y as f32 + 0.5) * scale - 0.5))
        .collect()
}

/// Follows the picture through the video.
#[derive(Default)]
pub(super) struct Tracker {
    reference: Option<Reference>,
    /// Position of the reference frame.
    start: f32,
    /// Position of the last frame.
    position: f32,
    previous: Option<Pyramid>,
}

impl Tracker {
    /// The position of the next frame (the net way of the picture so far) and its step from the frame before, in long
    /// sides of the picture.
    pub(super) fn advance(&mut self, frame: Pyramid) -> (f32, f32) {
        let Some(reference) = &mut self.reference else {
            self.reference = Some(Reference::new(&frame));
            self.previous = Some(frame);
            return (self.position, 0.0);
        };
        let mut shift = reference.shift(&frame);
        let usable = |shift: &Option<Shift>| shift.is_some_and(|s| s.seen >= LEAST_SEEN);
        if !usable(&shift)
            && let Some(previous) = &self.previous
        {
            // The reference has gone out of sight: go on from the frame before this one.
            let mut nearer = Reference::new(previous);
            shift = nearer.shift(&frame);
            self.start = self.position;
            self.reference = Some(nearer);
        }
        let (moved, step, renew) = match shift {
            Some(shift) if shift.seen >= LEAST_SEEN => (shift.median, shift.step, shift.median >= RENEWAL),
            // Too few corners at all (a blank picture) is no sign of motion; corners that vanish are.
            None => (0.0, 0.0, true),
            Some(_) => (LOST_STEP, LOST_STEP, true),
        };
        self.position = self.position.max(self.start + moved);
        if renew {
            self.reference = Some(Reference::new(&frame));
            self.start = self.position;
        }
        self.previous = Some(frame);
        (self.position, step)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Smooth noise (three octaves of values on a lattice), shifted by (dx, dy) pixels.
    fn texture(width: usize, height: usize, dx: f32, dy: f32, gain: f32) -> Pyramid {
        let value = |cell: f32, i: i64, j: i64| {
            let key = (cell as u64) << 48 ^ (i as u64 & 0xff_ffff) << 24 ^ (j as u64 & 0xff_ffff);
            (crate::random::hash(key) % 256) as f32
        };
        let noise = |cell: f32, x: f32, y: f32| {
            let (u, v) = (x / cell, y / cell);
            let (i, j) = (u.floor(), v.floor());
            let ease = |t: f32| t * t * (3.0 - 2.0 * t);
            let (s, t) = (ease(u - i), ease(v - j));
            let (i, j) = (i as i64, j as i64);
            let row = |j| value(cell, i, j) * (1.0 - s) + value(cell, i + 1, j) * s;
            row(j) * (1.0 - t) + row(j + 1) * t
        };
        let luma: Vec<u8> = (0..width * height)
            .map(|k| {
                let (x, y) = ((k % width) as f32 - dx, (k / width) as f32 - dy);
                let value = 0.25 * noise(7.0, x, y) + 0.35 * noise(17.0, x, y) + 0.4 * noise(41.0, x, y);
                (gain * value).clamp(0.0, 255.0) as u8
            })
            .collect();
        Pyramid::new(&luma, width, height)
    }

    #[test]
    fn a_shift_is_measured_to_a_tenth_of_a_pixel_whatever_the_exposure() {
        let mut reference = Reference::new(&texture(320, 240, 0.0, 0.0, 1.0));
        assert!(reference.corners.len() > 60, "{} corners", reference.corners.len());
        for (dx, dy, gain) in [(0.3f32, 0.0f32, 1.0), (3.5, -2.25, 1.0), (14.0, 9.0, 1.0), (4.0, 1.0, 0.85)] {
            let shift = reference.shift(&texture(320, 240, dx, dy, gain)).unwrap();
            let expected = dx.hypot(dy) / 320.0;
            assert!((shift.median - expected).abs() < 0.1 / 320.0, "({dx}, {dy}, {gain}): {shift:?}");
            assert!(shift.seen > 0.8, "{shift:?}");
        }
    }

    #[test]
    fn trembling_does_not_add_up_but_a_pan_does() {
        let mut tracker = Tracker::default();
        let mut end = 0.0;
        for i in 0..40 {
            (end, _) = tracker.advance(texture(320, 240, (i % 2) as f32 * 1.5, 0.0, 1.0));
        }
        assert!(end < 0.007, "trembling by 1.5 pixels adds up to {end}");
        let mut tracker = Tracker::default();
        for i in 0..41 {
            (end, _) = tracker.advance(texture(320, 240, i as f32 * 4.0, 0.0, 1.0));
        }
        assert!((end - 0.5).abs() < 0.01, "a pan over half the width came out as {end}");
    }

    #[test]
    fn a_cut_counts_as_a_long_way_and_a_blank_picture_as_none() {
        let mut tracker = Tracker::default();
        tracker.advance(texture(320, 240, 0.0, 0.0, 1.0));
        let (cut, step) = tracker.advance(texture(320, 240, 4000.0, 7000.0, 1.0));
        assert!(cut >= 0.03 && step >= 0.03, "{cut} {step}");
        let mut tracker = Tracker::default();
        for _ in 0..5 {
            assert_eq!(tracker.advance(Pyramid::new(&[7; 320 * 240], 320, 240)), (0.0, 0.0));
        }
        // Pictures too small for a single patch must not panic.
        tracker.advance(Pyramid::new(&[7; 16 * 16], 16, 16));
    }
}
