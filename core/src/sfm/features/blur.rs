//! Separable Gaussian blur.
//!
//! Called by [`super::scale_space`]. Rows are made a few at a time, by vertical sums of rows of the source, which are kept
//! in padded buffers, and then horizontal sums over those. The sums are where the vector instructions are.

use std::ops::Range;

use super::blur_sums::{BAND, horizontal_sums, vertical_sums};
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
use super::blur_vectors;
use super::plane::Plane;

/// Upper bound of the kernel's radius; the scale space needs 13.
const MAX_RADIUS: usize = 31;

/// The half `[k₀/2, k₁, …, k_r]` of a normalised Gaussian kernel cut at 4 standard deviations. The centre is halved
/// because the sums count it twice, as its own mirror image.
pub(super) fn gaussian_half_kernel(sigma: f32) -> Vec<f32> {
    let sigma = f64::from(sigma);
    let radius = ((4.0 * sigma).ceil() as usize).clamp(1, MAX_RADIUS);
    let mut kernel: Vec<f64> = (0..=radius).map(|i| (-0.5 * (i as f64 / sigma).powi(2)).exp()).collect();
    kernel[0] *= 0.5;
    let total = 2.0 * kernel.iter().sum::<f64>();
    kernel.iter().map(|k| (k / total) as f32).collect()
}

/// Rows of the source that a band depends on, at most.
const MAX_TAPS: usize = 2 * MAX_RADIUS + BAND;

/// A Gaussian blur of rows of one width, a band at a time.
pub(super) struct Blur {
    half_kernel: Vec<f32>,
    /// For each row of the source from `radius` before the band to `radius` after it, its weight in each row of the band.
    taps: Vec<[f32; BAND]>,
    /// The vertical sums, with the outermost ones repeated `radius` times.
    padded: [Vec<f32>; BAND],
    sums: Sums,
}

impl Blur {
    pub(super) fn new(sigma: f32, width: usize) -> Self {
        Self::with_sums(sigma, width, Sums::for_this_cpu())
    }

    fn with_sums(sigma: f32, width: usize, sums: Sums) -> Self {
        let half_kernel = gaussian_half_kernel(sigma);
        let radius = half_kernel.len() - 1;
        let weight = |distance: usize| match distance {
            0 => 2.0 * half_kernel[0],
            _ => half_kernel.get(distance).copied().unwrap_or(0.0),
        };
        let taps = (0..2 * radius + BAND)
            .map(|row| std::array::from_fn(|band_row| weight(row.abs_diff(band_row + radius))))
            .collect();
        let padded = std::array::from_fn(|_| vec![0.0; width + 2 * radius]);
        Self { half_kernel, taps, padded, sums }
    }

    pub(super) fn radius(&self) -> usize {
        self.half_kernel.len() - 1
    }

    /// Makes the next rows of `blurred`, a [`BAND`] or what is left: `source` convolved with the kernel, its border pixels
    /// repeated outwards. It must have the rows from [`Self::radius`] before to [`Self::radius`] after a whole band.
    pub(super) fn extend(&mut self, source: &Plane, blurred: &mut Plane) {
        let (width, radius) = (source.width, self.radius());
        let (first, end) = (blurred.rows(), source.height.min(blurred.rows() + BAND));
        let mut rows: [&[f32]; MAX_TAPS] = [&[]; MAX_TAPS];
        let rows = &mut rows[..self.taps.len()];
        for (i, row) in rows.iter_mut().enumerate() {
            *row = source.row((first + i).saturating_sub(radius).min(source.height - 1));
        }
        let inner = radius..radius + width;
        (self.sums.vertical)(&self.taps, rows, &mut self.padded, inner.clone());
        for padded in &mut self.padded[..end - first] {
            let (left, right) = (padded[inner.start], padded[inner.end - 1]);
            padded[..inner.start].fill(left);
            padded[inner.end..].fill(right);
            (self.sums.horizontal)(&self.half_kernel, padded, blurred.next_row());
        }
    }
}

/// A way to compute [`vertical_sums`].
type VerticalSums = fn(&[[f32; BAND]], &[&[f32]], &mut [Vec<f32>; BAND], Range<usize>);
/// A way to compute [`horizontal_sums`].
type HorizontalSums = fn(&[f32], &[f32], &mut [f32]);

/// Sums in the instructions of some processor.
#[derive(Clone, Copy)]
struct Sums {
    vertical: VerticalSums,
    horizontal: HorizontalSums,
}

impl Sums {
    const PORTABLE: Self = Self { vertical: vertical_sums, horizontal: horizontal_sums };

    fn for_this_cpu() -> Self {
        Self::available().last().copied().unwrap_or(Self::PORTABLE)
    }

    /// Those that this machine can run, the slowest first.
    fn available() -> Vec<Self> {
        #[allow(unused_mut)]
        let mut all = vec![Self::PORTABLE];
        #[cfg(target_arch = "x86_64")]
        if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") {
            all.push(Self {
                // SAFETY: the CPU has the instructions.
                vertical: |taps, rows, out, inner| unsafe {
                    blur_vectors::vertical_avx2(taps, rows, out, inner)
                },
                // SAFETY: as above.
                horizontal: |kernel, padded, out| unsafe {
                    blur_vectors::horizontal_avx2(kernel, padded, out)
                },
            });
            if is_x86_feature_detected!("avx512f") {
                all.push(Self {
                    // SAFETY: as above.
                    vertical: |taps, rows, out, inner| unsafe {
                        blur_vectors::vertical_avx512(taps, rows, out, inner)
                    },
                    // SAFETY: as above.
                    horizontal: |kernel, padded, out| unsafe {
                        blur_vectors::horizontal_avx512(kernel, padded, out)
                    },
                });
            }
        }
        #[cfg(target_arch = "aarch64")]
        all.push(Self {
            // SAFETY: every processor of this family has the instructions.
            vertical: |taps, rows, out, inner| unsafe { blur_vectors::vertical_neon(taps, rows, out, inner) },
            // SAFETY: as above.
            horizontal: |kernel, padded, out| unsafe { blur_vectors::horizontal_neon(kernel, padded, out) },
        });
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;

    fn noise(width: usize, height: usize) -> Plane {
        let mut random = Random::new(7);
        Plane::of(width, height, (0..width * height).map(|_| random.uniform() as f32))
    }

    fn blur(source: &Plane, sigma: f32, sums: Sums) -> Plane {
        let mut blurred = Plane::with_capacity(source.width, source.height);
        let mut blur = Blur::with_sums(sigma, source.width, sums);
        while blurred.rows() < source.height {
            blur.extend(source, &mut blurred);
        }
        blurred
    }

    #[test]
    fn it_is_the_convolution_with_a_gaussian_at_any_size() {
        for (width, height, sigma) in
            [(3, 5, 1.2f32), (31, 4, 1.6), (32, 9, 3.1), (70, 33, 2.4), (150, 18, 3.1)]
        {
            let source = noise(width, height);
            let radius = (4.0 * sigma).ceil() as i64;
            let weight = |i: i64| (-0.5 * (i as f64 / f64::from(sigma)).powi(2)).exp();
            let total: f64 = (-radius..=radius).map(weight).sum();
            for sums in Sums::available() {
                let blurred = blur(&source, sigma, sums);
                for y in 0..height as i64 {
                    for x in 0..width as i64 {
                        let mut expected = 0.0;
                        for dy in -radius..=radius {
                            for dx in -radius..=radius {
                                let row = (y + dy).clamp(0, height as i64 - 1) as usize;
                                let column = (x + dx).clamp(0, width as i64 - 1) as usize;
                                expected += weight(dx) * weight(dy) * f64::from(source.row(row)[column]);
                            }
                        }
                        expected /= total * total;
                        assert!((f64::from(blurred.row(y as usize)[x as usize]) - expected).abs() < 1e-5);
                    }
                }
            }
        }
    }

    /// With fused operations the last bits differ from those without.
    #[test]
    fn all_instructions_agree() {
        for width in [20, 40, 177] {
            let source = noise(width, 40);
            let blurred: Vec<_> =
                Sums::available().into_iter().map(|sums| blur(&source, 1.9, sums)).collect();
            let (portable, vectors) = blurred.split_first().unwrap();
            for y in 0..40 {
                for chosen in vectors {
                    assert!(portable.row(y).iter().zip(chosen.row(y)).all(|(a, b)| (a - b).abs() < 1e-6));
                    assert_eq!(chosen.row(y), vectors[0].row(y));
                }
            }
        }
    }
}
