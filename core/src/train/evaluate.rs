//! How good a rendering is: PSNR and SSIM against held-out pictures.
//!
//! Both as is usual for radiance fields: on values clamped to 0..1 but not rounded, per picture, then averaged over
//! pictures.

use rayon::prelude::*;
use serde::{Deserialize, Serialize};

use super::dataset::Dataset;
use crate::control::Control;
use crate::error::{Error, Result};
use crate::raster::load_for_viewing;
use crate::raster::{Rasteriser, View};
use crate::splats::Splats;

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

/// Renders the held-out views of `dataset` from a finished scene, at most `max_side` pixels long, over black, and scores
/// them. The scene is left loaded.
///
/// # Errors
/// `InvalidArgument` if no view is held out; what reading the pictures and the rasteriser report; `Cancelled`.
pub fn evaluate_splats(
    splats: &Splats,
    dataset: &Dataset,
    max_side: Option<u32>,
    rasteriser: &mut dyn Rasteriser,
    control: &Control,
) -> Result<Evaluation> {
    load_for_viewing(rasteriser, splats)?;
    evaluate_views(dataset, max_side, 0, splats.len(), control, |view| {
        let rendering = rasteriser.render(view, splats.sh_degree, [0.0; 3])?;
        Ok(rendering.rgba.iter().map(|p| [p[0], p[1], p[2]].map(|v| v.clamp(0.0, 1.0))).collect())
    })
}

/// Scores what `render` makes of every held-out view.
pub(super) fn evaluate_views(
    dataset: &Dataset,
    max_side: Option<u32>,
    step: u32,
    splats: usize,
    control: &Control,
    mut render: impl FnMut(&View) -> Result<Vec<[f32; 3]>>,
) -> Result<Evaluation> {
    if dataset.test.is_empty() {
        return Err(Error::argument("no view is held out").hint("set test_every, for example to 8"));
    }
    let mut scores = Vec::with_capacity(dataset.test.len());
    for &index in &dataset.test {
        control.check()?;
        let picture = dataset.picture(index, max_side)?;
        let truth = picture.over([0.0; 3]);
        let rendered = render(&dataset.view_at(index, max_side))?;
        let (width, height) = (picture.width as usize, picture.height as usize);
        scores.push(ViewScore {
            name: dataset.views[index].name.clone(),
            psnr: psnr(&rendered, &truth),
            ssim: ssim(&rendered, &truth, width, height),
        });
    }
    Ok(Evaluation::from_views(step, splats, scores))
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
    use crate::raster::cpu::tests::picture::scalar_ssim;

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
        let wide = |pixels: &[[f32; 3]]| pixels.iter().map(|p| p.map(f64::from)).collect::<Vec<_>>();
        let definition = scalar_ssim(&wide(&a), &wide(&b), w, h);
        assert!((ssim(&a, &b, w, h) - definition).abs() < 1e-12);
    }
}
