//! How good a rendering is: PSNR and SSIM against held-out pictures.
//!
//! Both as is usual for radiance fields: on values clamped to 0..1 but not rounded, per picture, then averaged over
//! pictures.

use rayon::prelude::*;
use serde::{Deserialize, Serialize};

/// The score of one held-out view.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ViewScore {
    /// Name of its picture.
    pub name: String,
    /// Peak signal-to-noise ratio in dB.
    pub psnr: f64,
    /// Structural similarity, at most 1.
    pub ssim: f64,
}

/// Scores of all held-out views.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Evaluation {
    /// Optimiser steps that were done.
    pub step: u32,
    /// Number of Gaussians.
    pub splats: usize,
    /// Mean over the views, dB.
    pub psnr: f64,
    /// Mean over the views.
    pub ssim: f64,
    /// One by one, by name.
    pub views: Vec<ViewScore>,
}

impl Evaluation {
    pub(crate) fn from_views(step: u32, splats: usize, views: Vec<ViewScore>) -> Self {
        let n = views.len().max(1) as f64;
        let psnr = views.iter().map(|v| v.psnr).sum::<f64>() / n;
        let ssim = views.iter().map(|v| v.ssim).sum::<f64>() / n;
        Self { step, splats, psnr, ssim, views }
    }
}

/// -10 log10 of the mean squared difference; infinite for equal pictures.
pub fn psnr(a: &[[f32; 3]], b: &[[f32; 3]]) -> f64 {
    let square = |(x, y): (&[f32; 3], &[f32; 3])| {
        (0..3).map(|c| (f64::from(x[c]) - f64::from(y[c])).powi(2)).sum::<f64>()
    };
    let sum: f64 = a.iter().zip(b).map(square).sum();
    -10.0 * (sum / (3.0 * a.len().max(1) as f64)).log10()
}

/// SSIM (Wang et al. 2004) with an 11x11 Gaussian window of sigma 1.5, zero padding, K1 0.01, K2 0.03; mean over
/// pixels and channels.
pub fn ssim(a: &[[f32; 3]], b: &[[f32; 3]], width: usize, height: usize) -> f64 {
    let channels: Vec<f64> = (0..3usize)
        .into_par_iter()
        .map(|c| {
            let x: Vec<f64> = a.iter().map(|p| f64::from(p[c])).collect();
            let y: Vec<f64> = b.iter().map(|p| f64::from(p[c])).collect();
            let blur =
                |f: &dyn Fn(usize) -> f64| blur(&(0..x.len()).map(f).collect::<Vec<f64>>(), width, height);
            let (mx, my) = (blur(&|i| x[i]), blur(&|i| y[i]));
            let (xx, yy, xy) = (blur(&|i| x[i] * x[i]), blur(&|i| y[i] * y[i]), blur(&|i| x[i] * y[i]));
            let (c1, c2) = (0.01f64.powi(2), 0.03f64.powi(2));
            (0..x.len())
                .map(|i| {
                    let (mean, square) = (mx[i] * my[i], mx[i] * mx[i] + my[i] * my[i]);
                    let variance = xx[i] + yy[i] - square;
                    (2.0 * mean + c1) * (2.0 * (xy[i] - mean) + c2) / ((square + c1) * (variance + c2))
                })
                .sum::<f64>()
        })
        .collect();
    channels.iter().sum::<f64>() / (3.0 * a.len().max(1) as f64)
}

/// Separable Gaussian blur, zero outside.
fn blur(values: &[f64], width: usize, height: usize) -> Vec<f64> {
    let mut kernel: [f64; 11] = std::array::from_fn(|k| (-0.5 * ((k as f64 - 5.0) / 1.5).powi(2)).exp());
    let sum: f64 = kernel.iter().sum();
    kernel.iter_mut().for_each(|k| *k /= sum);
    let mut rows = vec![0.0; values.len()];
    for (source, out) in values.chunks_exact(width).zip(rows.chunks_exact_mut(width)) {
        for (x, o) in out.iter_mut().enumerate() {
            let (low, high) = (x.saturating_sub(5), (x + 6).min(width));
            *o = (low..high).map(|i| kernel[i + 5 - x] * source[i]).sum();
        }
    }
    let mut result = vec![0.0; values.len()];
    for (y, out) in result.chunks_exact_mut(width).enumerate() {
        for i in y.saturating_sub(5)..(y + 6).min(height) {
            let weight = kernel[i + 5 - y];
            for (o, v) in out.iter_mut().zip(&rows[i * width..(i + 1) * width]) {
                *o += weight * v;
            }
        }
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;

    fn noise(seed: u64, n: usize) -> Vec<[f32; 3]> {
        let mut random = Random::new(seed);
        (0..n).map(|_| std::array::from_fn(|_| random.uniform() as f32)).collect()
    }

    #[test]
    fn psnr_of_a_known_difference() {
        let a = noise(1, 100);
        let b: Vec<[f32; 3]> = a.iter().map(|p| p.map(|v| v + 0.1)).collect();
        assert!((psnr(&a, &b) - 20.0).abs() < 1e-4);
        assert!(psnr(&a, &a).is_infinite());
    }

    #[test]
    fn ssim_is_one_for_equal_pictures_and_agrees_with_the_definition() {
        let (w, h) = (23, 17);
        let (a, b) = (noise(1, w * h), noise(2, w * h));
        assert!((ssim(&a, &a, w, h) - 1.0).abs() < 1e-12);
        // The definition, pixel by pixel, without separating the window.
        let g = |d: f64| (-0.5 * (d / 1.5).powi(2)).exp();
        let norm: f64 = (-5..=5).map(|d| g(f64::from(d))).sum();
        let mut sum = 0.0;
        for c in 0..3 {
            for y in 0..h as i32 {
                for x in 0..w as i32 {
                    let mut m = [0.0; 5];
                    for dy in -5..=5 {
                        for dx in -5..=5 {
                            let (i, j) = (x + dx, y + dy);
                            if i < 0 || j < 0 || i >= w as i32 || j >= h as i32 {
                                continue;
                            }
                            let k = g(f64::from(dx)) * g(f64::from(dy)) / (norm * norm);
                            let p = f64::from(a[j as usize * w + i as usize][c]);
                            let q = f64::from(b[j as usize * w + i as usize][c]);
                            for (s, v) in m.iter_mut().zip([p, q, p * p, q * q, p * q]) {
                                *s += k * v;
                            }
                        }
                    }
                    let (vx, vy, cov) = (m[2] - m[0] * m[0], m[3] - m[1] * m[1], m[4] - m[0] * m[1]);
                    sum += (2.0 * m[0] * m[1] + 1e-4) * (2.0 * cov + 9e-4)
                        / ((m[0] * m[0] + m[1] * m[1] + 1e-4) * (vx + vy + 9e-4));
                }
            }
        }
        assert!((ssim(&a, &b, w, h) - sum / (3 * w * h) as f64).abs() < 1e-12);
    }
}
