//! Separable Gaussian blur: the bulk of the work on a scale space.
//!
//! Called by [`super::scale_space`]. A row of the result is the vertical sum of rows of the source, kept in a padded
//! buffer, and then the horizontal sum over that buffer: the picture passes through memory once. Both sums have one
//! form, [`symmetric_sum`], which is where the vector instructions are.

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

/// `source` convolved with the kernel, its border pixels repeated outwards; that less `source` becomes `difference`.
pub(super) fn blur(source: &Plane, half_kernel: &[f32], difference: Option<&mut Plane>) -> Plane {
    let (width, height) = (source.width, source.height);
    let radius = half_kernel.len() - 1;
    let sum = symmetric_sum_for_this_cpu();
    let mut padded = vec![0.0; width + 2 * radius];
    let (mut blurred, mut out) = (Plane::with_capacity(width, height), vec![0.0; width]);
    let mut difference = difference.map(|plane| {
        *plane = Plane::with_capacity(width, height);
        plane
    });
    for y in 0..height {
        let mut taps: [(&[f32], &[f32]); MAX_RADIUS + 1] = [(&[], &[]); MAX_RADIUS + 1];
        for (i, tap) in taps[..=radius].iter_mut().enumerate() {
            *tap = (source.row(y.saturating_sub(i)), source.row((y + i).min(height - 1)));
        }
        sum(half_kernel, &taps[..=radius], &mut padded[radius..radius + width]);
        let (first, last) = (padded[radius], padded[radius + width - 1]);
        padded[..radius].fill(first);
        padded[radius + width..].fill(last);
        for (i, tap) in taps[..=radius].iter_mut().enumerate() {
            *tap = (&padded[radius - i..][..width], &padded[radius + i..][..width]);
        }
        sum(half_kernel, &taps[..=radius], &mut out);
        blurred.push_row(&out);
        if let Some(difference) = &mut difference {
            out.iter_mut().zip(source.row(y)).for_each(|(b, s)| *b -= s);
            difference.push_row(&out);
        }
    }
    blurred
}

/// `out[x] = Σᵢ kernel[i] · (taps[i].0[x] + taps[i].1[x])`; every slice has the length of `out`.
type SymmetricSum = fn(&[f32], &[(&[f32], &[f32])], &mut [f32]);

fn symmetric_sum_for_this_cpu() -> SymmetricSum {
    #[cfg(target_arch = "x86_64")]
    if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") {
        // SAFETY: the CPU has the instructions.
        return |kernel, taps, out| unsafe { symmetric_sum_avx2(kernel, taps, out) };
    }
    symmetric_sum
}

fn symmetric_sum(kernel: &[f32], taps: &[(&[f32], &[f32])], out: &mut [f32]) {
    out.fill(0.0);
    for (&k, &(left, right)) in kernel.iter().zip(taps) {
        for ((o, l), r) in out.iter_mut().zip(left).zip(right) {
            *o += k * (l + r);
        }
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
fn symmetric_sum_avx2(kernel: &[f32], taps: &[(&[f32], &[f32])], out: &mut [f32]) {
    use std::arch::x86_64::*;
    /// Pixels at a time: four registers of eight.
    const CHUNK: usize = 32;
    let width = out.len();
    assert!(taps.iter().all(|(left, right)| left.len() == width && right.len() == width));
    if width < CHUNK {
        return symmetric_sum(kernel, taps, out);
    }
    for chunk in 0..width.div_ceil(CHUNK) {
        // The last chunk overlaps the one before it rather than reach beyond the row.
        let x = (chunk * CHUNK).min(width - CHUNK);
        // SAFETY: x + 32 ≤ width, the length of every slice.
        unsafe {
            let mut sums = [_mm256_setzero_ps(); 4];
            for (&k, &(left, right)) in kernel.iter().zip(taps) {
                let k = _mm256_set1_ps(k);
                let (left, right) = (left.as_ptr().add(x), right.as_ptr().add(x));
                for (j, sum) in sums.iter_mut().enumerate() {
                    let pair =
                        _mm256_add_ps(_mm256_loadu_ps(left.add(8 * j)), _mm256_loadu_ps(right.add(8 * j)));
                    *sum = _mm256_fmadd_ps(k, pair, *sum);
                }
            }
            for (j, sum) in sums.iter().enumerate() {
                _mm256_storeu_ps(out.as_mut_ptr().add(x + 8 * j), *sum);
            }
        }
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

    #[test]
    fn it_is_the_convolution_with_a_gaussian_at_any_width() {
        for (width, height, sigma) in [(3, 5, 1.2), (31, 4, 1.6), (32, 9, 3.1), (70, 33, 2.4)] {
            let source = noise(width, height);
            let mut difference = Plane::with_capacity(0, 0);
            let blurred = blur(&source, &gaussian_half_kernel(sigma), Some(&mut difference));
            assert_eq!((difference.width, difference.height), (width, height));
            let radius = (4.0 * sigma).ceil() as i64;
            let weight = |i: i64| (-0.5 * (i as f64 / f64::from(sigma)).powi(2)).exp();
            let total: f64 = (-radius..=radius).map(weight).sum();
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
                    let (x, y) = (x as usize, y as usize);
                    assert!((f64::from(blurred.row(y)[x]) - expected).abs() < 1e-5);
                    assert_eq!(difference.row(y)[x], blurred.row(y)[x] - source.row(y)[x]);
                }
            }
        }
    }

    #[test]
    fn vector_and_portable_sums_agree() {
        let source = noise(77, 20);
        let kernel = gaussian_half_kernel(1.9);
        let taps: Vec<_> = (0..kernel.len()).map(|i| (source.row(9 - i), source.row(9 + i))).collect();
        let (mut portable, mut chosen) = (vec![0.0; 77], vec![0.0; 77]);
        symmetric_sum(&kernel, &taps, &mut portable);
        symmetric_sum_for_this_cpu()(&kernel, &taps, &mut chosen);
        assert!(portable.iter().zip(&chosen).all(|(a, b)| (a - b).abs() < 1e-6));
    }
}
