//! What the surroundings of a keypoint look like, and where another picture looks like that.

use nalgebra::{Matrix2, SMatrix, SVector, Vector2};

use super::pyramid::Pyramid;

/// Samples of a pattern on both sides of its middle.
const HALF: usize = 4;
/// Samples on a side.
const SIDE: usize = 2 * HALF + 1;
/// With a border for the gradients.
const WIDE: usize = SIDE + 2;
/// Steps of the alignment at most. Chosen by hand.
const ITERATIONS: usize = 15;
/// A step below this many pixels is the last.
const CONVERGED: f64 = 0.005;
/// How alike (normalised cross-correlation) pattern and picture must be in the end.
const ALIKE: f32 = 0.9;
/// How far a keypoint moves at most, in distances of samples.
const FARTHEST: f64 = 1.5;
/// How much its surroundings may be deformed against what the map expects (Frobenius norm).
const DEFORMATION: f64 = 0.6;
/// Standard deviation of the brightness (of 255) below which there is no pattern.
const FLAT: f32 = 1.0;

/// Sums that are kept beside each other, so that vector instructions can add to all of them at once.
const LANES: usize = 8;

/// Sum of the products.
#[inline(always)]
fn dot<const N: usize>(a: &[f32; N], b: &[f32; N]) -> f32 {
    let ((a, a_rest), (b, b_rest)) = (a.as_chunks::<LANES>(), b.as_chunks::<LANES>());
    let mut sums = [0.0; LANES];
    for (a, b) in a.iter().zip(b) {
        (0..LANES).for_each(|k| sums[k] += a[k] * b[k]);
    }
    let rest: f32 = a_rest.iter().zip(b_rest).map(|(a, b)| a * b).sum();
    let [a, b, c, d, e, f, g, h] = sums;
    ((a + e) + (c + g)) + ((b + f) + (d + h)) + rest
}

/// Takes the mean away and divides by the norm, which is given back.
#[inline(always)]
fn normalise<const N: usize>(values: &mut [f32; N]) -> f32 {
    let mean = dot(values, &[1.0; N]) / N as f32;
    values.iter_mut().for_each(|v| *v -= mean);
    let norm = dot(values, values).sqrt();
    let factor = 1.0 / norm.max(1e-6);
    values.iter_mut().for_each(|v| *v *= factor);
    norm
}

/// What the surroundings of a keypoint look like.
pub(super) struct Pattern {
    /// Distance of the samples in pixels.
    pub(super) spacing: f64,
    samples: Box<[f32; WIDE * WIDE]>,
}

impl Pattern {
    /// `None` at the edge of the picture, and where nothing is to be seen.
    pub(super) fn new(pyramid: &Pyramid, middle: &Vector2<f64>, spacing: f64) -> Option<Self> {
        #[cfg(target_arch = "x86_64")]
        if is_x86_feature_detected!("avx2") {
            // SAFETY: the processor has the instructions.
            return unsafe { Self::new_avx2(pyramid, middle, spacing) };
        }
        Self::new_portable(pyramid, middle, spacing)
    }

    /// As [`new_portable`](Self::new_portable), to the same bits.
    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx2")]
    fn new_avx2(pyramid: &Pyramid, middle: &Vector2<f64>, spacing: f64) -> Option<Self> {
        Self::new_portable(pyramid, middle, spacing)
    }

    #[inline(always)]
    fn new_portable(pyramid: &Pyramid, middle: &Vector2<f64>, spacing: f64) -> Option<Self> {
        let mut samples = Box::new([0.0; WIDE * WIDE]);
        let (level, size) = pyramid.level(spacing);
        level.grid::<WIDE, _>(size, middle, &(Matrix2::identity() * spacing), &mut samples)?;
        let mut all = *samples;
        (normalise(&mut all) > FLAT * (all.len() as f32).sqrt()).then_some(Self { spacing, samples })
    }

    /// Where the picture looks like this, near `start`; `by` says how pixels move with samples there.
    pub(super) fn find(
        &self,
        pyramid: &Pyramid,
        start: &Vector2<f64>,
        by: &Matrix2<f64>,
    ) -> Option<Vector2<f64>> {
        #[cfg(target_arch = "x86_64")]
        if is_x86_feature_detected!("avx2") {
            // SAFETY: the processor has the instructions.
            return unsafe { self.find_avx2(pyramid, start, by) };
        }
        self.find_portable(pyramid, start, by)
    }

    /// As [`find_portable`](Self::find_portable), to the same bits.
    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx2")]
    fn find_avx2(&self, pyramid: &Pyramid, start: &Vector2<f64>, by: &Matrix2<f64>) -> Option<Vector2<f64>> {
        self.find_portable(pyramid, start, by)
    }

    #[inline(always)]
    fn find_portable(
        &self,
        pyramid: &Pyramid,
        start: &Vector2<f64>,
        by: &Matrix2<f64>,
    ) -> Option<Vector2<f64>> {
        const COUNT: usize = SIDE * SIDE;
        let wide = |x: usize, y: usize| self.samples[y * WIDE + x];
        let mut pattern = [0.0; COUNT];
        let mut slopes = [[0.0f32; COUNT]; 2];
        for k in 0..COUNT {
            let (x, y) = (k % SIDE + 1, k / SIDE + 1);
            pattern[k] = wide(x, y);
            slopes[0][k] = 0.5 * (wide(x + 1, y) - wide(x - 1, y));
            slopes[1][k] = 0.5 * (wide(x, y + 1) - wide(x, y - 1));
        }
        let norm = normalise(&mut pattern);
        // How the normalised pattern changes with [d, D], where samples move from p to p + d + D p.
        let mut changes = [[0.0f32; COUNT]; 6];
        for k in 0..COUNT {
            let (x, y) = ((k % SIDE) as f32 - HALF as f32, (k / SIDE) as f32 - HALF as f32);
            let (gx, gy) = (slopes[0][k] / norm, slopes[1][k] / norm);
            for (change, value) in changes.iter_mut().zip([gx, gy, gx * x, gx * y, gy * x, gy * y]) {
                change[k] = value;
            }
        }
        // What gain and offset explain is no motion.
        for change in &mut changes {
            let mean = dot(change, &[1.0; COUNT]) / COUNT as f32;
            let along = dot(change, &pattern);
            change.iter_mut().zip(&pattern).for_each(|(c, p)| *c -= mean + along * p);
        }
        let mut hessian = SMatrix::<f64, 6, 6>::zeros();
        for r in 0..6 {
            for c in 0..=r {
                hessian[(r, c)] = f64::from(dot(&changes[r], &changes[c]));
            }
        }
        // It reads the lower triangle only.
        let hessian = hessian.cholesky()?;

        let spacing = by.determinant().abs().sqrt();
        let (level, size) = pyramid.level(spacing);
        let (mut middle, mut warp) = (*start, *by);
        let mut seen = [0.0; COUNT];
        let mut alike = 0.0;
        let mut converged = false;
        for _ in 0..ITERATIONS {
            level.grid::<SIDE, _>(size, &middle, &warp, &mut seen)?;
            if normalise(&mut seen) < FLAT * SIDE as f32 {
                return None;
            }
            alike = dot(&seen, &pattern);
            seen.iter_mut().zip(&pattern).for_each(|(s, p)| *s -= p);
            let step = hessian.solve(&SVector::<f64, 6>::from_fn(|r, _| f64::from(dot(&changes[r], &seen))));
            let turn = Matrix2::new(1.0 + step[2], step[3], step[4], 1.0 + step[5]).try_inverse()?;
            warp *= turn;
            let shift = warp * Vector2::new(step[0], step[1]);
            middle -= shift;
            if (middle - start).norm() > FARTHEST * spacing.max(1.0) {
                return None;
            }
            // How alike both are hardly changes with the last step.
            converged = shift.norm() < CONVERGED;
            if converged {
                break;
            }
        }
        let deformation = (by.try_inverse()? * warp - Matrix2::identity()).norm();
        (converged && alike > ALIKE && deformation < DEFORMATION).then_some(middle)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;
    use image::{GrayImage, Luma};

    /// A smooth random texture over the plane.
    fn texture(x: f64, y: f64) -> f64 {
        let mut random = Random::new(5);
        let waves = (0..40).map(|_| {
            let (u, v) = (0.5 * random.normal(), 0.5 * random.normal());
            (u * x + v * y + 6.3 * random.uniform()).sin()
        });
        128.0 + 7.0 * waves.sum::<f64>()
    }

    /// The picture of which pixel `p` shows the texture at `a` * (`p` - `middle`), brightness changed.
    fn picture(middle: Vector2<f64>, a: Matrix2<f64>, gain: f64, noise: f64) -> GrayImage {
        let mut random = Random::new(9);
        GrayImage::from_fn(80, 70, |x, y| {
            let p = a * (Vector2::new(f64::from(x) + 0.5, f64::from(y) + 0.5) - middle);
            let value = gain * texture(p.x, p.y) + 10.0 + noise * random.normal();
            Luma([value.round().clamp(0.0, 255.0) as u8])
        })
    }

    #[test]
    fn a_pattern_is_found_to_hundredths_of_a_pixel_under_affine_maps_and_other_light() {
        let middle = Vector2::new(40.3, 33.8);
        let maps = [
            Matrix2::identity(),
            Matrix2::new(0.9, 0.1, -0.15, 1.1),
            Matrix2::new(0.7, 0.2, 0.0, 0.8),
            Matrix2::new(1.3, -0.2, 0.2, 1.2),
        ];
        for (noise, limit) in [(0.0, 0.01), (1.0, 0.06)] {
            let reference = Pyramid::new(&picture(middle, Matrix2::identity(), 0.8, noise));
            let pattern = Pattern::new(&reference, &middle, 1.0).unwrap();
            for a in maps {
                let truth = Vector2::new(38.61, 36.27);
                let other = Pyramid::new(&picture(truth, a, 0.6, noise));
                let start = truth + Vector2::new(0.4, -0.5);
                // The map knows how the surroundings are deformed to a tenth or so.
                let by = a.try_inverse().unwrap() * Matrix2::new(1.08, 0.05, -0.04, 0.94);
                let found = pattern.find(&other, &start, &by).unwrap();
                assert!((found - truth).norm() < limit, "{a}, noise {noise}: {:?}", found - truth);
            }
        }
    }

    #[test]
    fn vector_instructions_give_the_same_bits() {
        let middle = Vector2::new(40.3, 33.8);
        let pyramid = Pyramid::new(&picture(middle, Matrix2::identity(), 0.8, 1.0));
        let other = Pyramid::new(&picture(middle, Matrix2::new(0.9, 0.1, -0.15, 1.1), 0.6, 1.0));
        let start = middle + Vector2::new(0.4, -0.5);
        let by = Matrix2::new(0.9, 0.1, -0.15, 1.1).try_inverse().unwrap();
        let pattern = Pattern::new(&pyramid, &middle, 1.0).unwrap();
        let portable = Pattern::new_portable(&pyramid, &middle, 1.0).unwrap();
        assert_eq!(pattern.samples, portable.samples);
        let found = pattern.find(&other, &start, &by);
        assert!(found.is_some() && found == portable.find_portable(&other, &start, &by), "{found:?}");
    }

    #[test]
    fn what_does_not_look_alike_stays_where_it_is() {
        let middle = Vector2::new(40.3, 33.8);
        let pyramid = Pyramid::new(&picture(middle, Matrix2::identity(), 0.8, 1.0));
        let pattern = Pattern::new(&pyramid, &middle, 1.0).unwrap();
        let elsewhere =
            Pyramid::new(&picture(middle + Vector2::new(7.0, 9.0), Matrix2::identity(), 0.8, 1.0));
        assert!(pattern.find(&elsewhere, &middle, &Matrix2::identity()).is_none(), "another place");
        let mut half = picture(middle, Matrix2::identity(), 0.8, 1.0);
        half.enumerate_pixels_mut().filter(|(x, ..)| *x < 40).for_each(|(_, _, p)| *p = Luma([90]));
        let half = Pyramid::new(&half);
        assert!(pattern.find(&half, &middle, &Matrix2::identity()).is_none(), "half of it is covered");
        let flat = Pyramid::new(&GrayImage::from_pixel(80, 70, Luma([90])));
        assert!(pattern.find(&flat, &middle, &Matrix2::identity()).is_none(), "nothing");
        assert!(Pattern::new(&flat, &middle, 1.0).is_none(), "no pattern");
        assert!(Pattern::new(&pyramid, &Vector2::new(3.0, 30.0), 1.0).is_none(), "at the edge");
        let edge = Vector2::new(78.5, 30.0);
        assert!(pattern.find(&pyramid, &edge, &Matrix2::identity()).is_none(), "at the edge");
    }
}
