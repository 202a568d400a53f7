//! How good a rendering is: PSNR and SSIM against held-out pictures.
//!
//! Both as is usual for radiance fields: on values clamped to 0..1 but not rounded, per picture, then averaged over
//! pictures.

use std::ops::Range;

use rayon::prelude::*;
use serde::{Deserialize, Serialize};

use super::dataset::Dataset;
use super::picture::Picture;
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
    /// Long side in pixels of the largest picture that was scored: smaller ones of the same scene have other scores. 0 in reports of
    /// versions that did not say it.
    #[serde(default)]
    pub longest_side: u32,
    /// Mean over the views, dB.
    pub psnr: f64,
    /// Mean over the views.
    pub ssim: f64,
    /// One by one, by name.
    pub views: Vec<ViewScore>,
}

impl Evaluation {
    pub(crate) fn from_views(step: u32, splats: usize, longest_side: u32, views: Vec<ViewScore>) -> Self {
        let n = views.len().max(1) as f64;
        let psnr = views.iter().map(|v| v.psnr).sum::<f64>() / n;
        let ssim = views.iter().map(|v| v.ssim).sum::<f64>() / n;
        Self { step, splats, longest_side, psnr, ssim, views }
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
    let mut longest_side = 0;
    for &index in &dataset.test {
        control.check()?;
        let picture = dataset.picture(index, max_side)?;
        let rendered = render(&dataset.view_at(index, max_side))?;
        longest_side = longest_side.max(picture.width.max(picture.height));
        let name = dataset.views[index].name.clone();
        let (psnr, ssim) = (psnr_of(&picture, &rendered), ssim_of(&picture, rendered));
        scores.push(ViewScore { name, psnr, ssim });
    }
    Ok(Evaluation::from_views(step, splats, longest_side, scores))
}

/// [`psnr`] of a rendering over black, of the pixels of `picture` that are not hidden.
pub(super) fn psnr_of(picture: &Picture, rendered: &[[f32; 3]]) -> f64 {
    let truth = picture.over([0.0; 3]);
    let Some(hidden) = &picture.hidden else { return psnr(rendered, &truth) };
    let seen = |pixels: &[[f32; 3]]| -> Vec<[f32; 3]> {
        pixels.iter().zip(hidden).filter(|(_, hidden)| !**hidden).map(|(pixel, _)| *pixel).collect()
    };
    psnr(&seen(rendered), &seen(&truth))
}

/// [`ssim`] of a rendering over black, of the pixels of `picture` that are not hidden. In windows around them hidden pixels are right.
pub(super) fn ssim_of(picture: &Picture, mut rendered: Vec<[f32; 3]>) -> f64 {
    let truth = picture.over([0.0; 3]);
    let (width, height) = (picture.width as usize, picture.height as usize);
    let Some(hidden) = &picture.hidden else { return ssim(&rendered, &truth, width, height) };
    for ((rendered, truth), hidden) in rendered.iter_mut().zip(&truth).zip(hidden) {
        if *hidden {
            *rendered = *truth;
        }
    }
    let seen = hidden.iter().filter(|hidden| !**hidden).count();
    let (a, b) = (rendered.as_slice(), truth.as_slice());
    let pictures = Pictures { a, b, hidden: Some(hidden), width, height, window: window() };
    pictures.total() / (3.0 * seen.max(1) as f64)
}

/// -10 log10 of the mean squared difference; infinite for equal pictures.
pub fn psnr(a: &[[f32; 3]], b: &[[f32; 3]]) -> f64 {
    let square = |(x, y): (&[f32; 3], &[f32; 3])| {
        (0..3).map(|c| (f64::from(x[c]) - f64::from(y[c])).powi(2)).sum::<f64>()
    };
    let sum: f64 = a.iter().zip(b).map(square).sum();
    -10.0 * (sum / (3.0 * a.len().max(1) as f64)).log10()
}

/// Taps of SSIM's window, and how far it reaches to either side of its middle.
const TAPS: usize = 11;
const REACH: usize = TAPS / 2;
/// Side of the patches in which pictures are compared, pixels: what is kept of one, 130 kB, fits into the cache next to a core, and
/// the ten rows around it, which are blurred for its neighbours too, are 4 % of them.
const PATCH: usize = 256;
/// What is averaged over the window: both values, their squares and their product.
const MOMENTS: usize = 5;

/// SSIM (Wang et al. 2004) with an 11x11 Gaussian window of sigma 1.5, zero padding, K1 0.01, K2 0.03; mean over
/// pixels and channels. Both pictures row by row, `width * height` pixels. The same for any number of threads.
///
/// # Panics
/// If a picture has fewer pixels.
pub fn ssim(a: &[[f32; 3]], b: &[[f32; 3]], width: usize, height: usize) -> f64 {
    let pictures = Pictures { a, b, hidden: None, width, height, window: window() };
    pictures.total() / (3.0 * a.len().max(1) as f64)
}

/// A Gaussian of sigma 1.5, sum 1.
fn window() -> [f64; TAPS] {
    let weights: [f64; TAPS] =
        std::array::from_fn(|k| (-0.5 * ((k as f64 - REACH as f64) / 1.5).powi(2)).exp());
    let sum: f64 = weights.iter().sum();
    weights.map(|weight| weight / sum)
}

/// Two pictures that are compared.
struct Pictures<'a> {
    a: &'a [[f32; 3]],
    b: &'a [[f32; 3]],
    /// By pixel: whether it does not count, if any does not.
    hidden: Option<&'a [bool]>,
    width: usize,
    height: usize,
    window: [f64; TAPS],
}

impl Pictures<'_> {
    /// The sum of SSIM over all channels and pixels that count.
    fn total(&self) -> f64 {
        let (width, height) = (self.width, self.height);
        let (across, down) = (width.div_ceil(PATCH), height.div_ceil(PATCH));
        // A sum of each patch and channel, added up in their order.
        let sums: Vec<f64> = (0..across * down * 3)
            .into_par_iter()
            .map(|k| {
                let (patch, channel) = (k / 3, k % 3);
                let (left, top) = (patch % across * PATCH, patch / across * PATCH);
                self.sum(channel, left..(left + PATCH).min(width), top..(top + PATCH).min(height))
            })
            .collect();
        sums.iter().sum()
    }

    /// The sum of SSIM over one channel of these pixels.
    fn sum(&self, channel: usize, columns: Range<usize>, rows: Range<usize>) -> f64 {
        let wide = columns.len();
        let size = MOMENTS * wide;
        let mut lines: [Vec<f64>; MOMENTS] = std::array::from_fn(|_| vec![0.0; wide + 2 * REACH]);
        // The last rows, blurred along them, each in the place of its number modulo their count.
        let mut blurred = vec![0.0; TAPS * size];
        let mut means = vec![0.0; size];
        let place = |row: usize| row % TAPS * size..(row % TAPS + 1) * size;
        let mut next = rows.start.saturating_sub(REACH);
        let mut sum = 0.0;
        for y in rows {
            let around = y.saturating_sub(REACH)..(y + REACH + 1).min(self.height);
            for row in next..around.end {
                self.blur_along(channel, row, &columns, &mut lines, &mut blurred[place(row)]);
            }
            next = around.end;
            means.fill(0.0);
            for row in around {
                let weight = self.window[row + REACH - y];
                for (mean, value) in means.iter_mut().zip(&blurred[place(row)]) {
                    *mean += weight * value;
                }
            }
            let counts = |x: &usize| {
                let pixel = y * self.width + columns.start + x;
                self.hidden.is_none_or(|hidden| !hidden[pixel])
            };
            let similarity = |x: usize| similarity(std::array::from_fn(|k| means[k * wide + x]));
            sum += (0..wide).filter(counts).map(similarity).sum::<f64>();
        }
        sum
    }

    /// The moments of one channel of a row, blurred along it: those of `columns`, moment by moment. `lines` are as long as the
    /// columns and the window's reach on either side of them, and zero where that is beside the picture.
    fn blur_along(
        &self,
        channel: usize,
        row: usize,
        columns: &Range<usize>,
        lines: &mut [Vec<f64>; MOMENTS],
        out: &mut [f64],
    ) {
        let (first, last) = (columns.start.saturating_sub(REACH), (columns.end + REACH).min(self.width));
        let pixels = row * self.width + first..row * self.width + last;
        let beside = first + REACH - columns.start;
        for (x, (p, q)) in (beside..).zip(self.a[pixels.clone()].iter().zip(&self.b[pixels])) {
            let (p, q) = (f64::from(p[channel]), f64::from(q[channel]));
            for (line, value) in lines.iter_mut().zip([p, q, p * p, q * q, p * q]) {
                line[x] = value;
            }
        }
        for (line, out) in lines.iter().zip(out.chunks_exact_mut(columns.len())) {
            for (blurred, values) in out.iter_mut().zip(line.windows(TAPS)) {
                *blurred = self.window.iter().zip(values).map(|(weight, value)| weight * value).sum();
            }
        }
    }
}

/// SSIM of a pixel by the means around it.
fn similarity([x, y, xx, yy, xy]: [f64; MOMENTS]) -> f64 {
    let (c1, c2) = (0.01f64.powi(2), 0.03f64.powi(2));
    let (mean, square) = (x * y, x * x + y * y);
    let variance = xx + yy - square;
    (2.0 * mean + c1) * (2.0 * (xy - mean) + c2) / ((square + c1) * (variance + c2))
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
    fn what_is_hidden_changes_no_score() {
        let (width, height) = (24, 18);
        let hidden: Vec<bool> = (0..width * height).map(|pixel| pixel % width < 9).collect();
        let alpha = |hidden: &bool| if *hidden { 0.0 } else { 1.0 };
        let data = hidden.iter().flat_map(|hidden| [0.3, 0.6, 0.2, alpha(hidden)]).collect();
        let (w, h) = (width as u32, height as u32);
        let picture = Picture { width: w, height: h, channels: 4, data, hidden: Some(hidden) };
        let scores = |x: usize, y: usize| {
            let mut rendered = picture.over([0.0; 3]);
            // A difference that is always there.
            for pixel in [17, x + width * y] {
                rendered[pixel] = [1.0, 0.0, 1.0];
            }
            (psnr_of(&picture, &rendered), ssim_of(&picture, rendered))
        };
        let (of_hidden, beside) = (scores(5, 9), scores(15, 9));
        assert_eq!(of_hidden, scores(17, 0));
        assert!(of_hidden.0 > beside.0 + 2.0 && of_hidden.1 > beside.1, "{of_hidden:?} {beside:?}");
        // Those that are seen are all that count.
        let square = (0.7f64.powi(2) + 0.6f64.powi(2) + 0.8f64.powi(2)) / (3.0 * 15.0 * 18.0);
        assert!((of_hidden.0 + 10.0 * square.log10()).abs() < 1e-4, "{of_hidden:?}");
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

    #[test]
    fn ssim_of_pictures_of_several_patches_is_that_of_the_definition_with_any_number_of_threads() {
        // The last patches are narrower than the window reaches.
        for (w, h) in [(PATCH + 3, 21), (19, PATCH + 4)] {
            let a = noise(3, w * h);
            let mixed = |(p, q): (&[f32; 3], &[f32; 3])| std::array::from_fn(|c| 0.8 * p[c] + 0.2 * q[c]);
            let b: Vec<[f32; 3]> = a.iter().zip(&noise(4, w * h)).map(mixed).collect();
            let with = |threads: usize| {
                let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
                pool.install(|| ssim(&a, &b, w, h))
            };
            let (one, two) = (with(1), with(2));
            assert_eq!(one.to_bits(), two.to_bits());
            let wide = |pixels: &[[f32; 3]]| pixels.iter().map(|p| p.map(f64::from)).collect::<Vec<_>>();
            let definition = scalar_ssim(&wide(&a), &wide(&b), w, h);
            assert!((one - definition).abs() < 1e-12 * definition, "{w}x{h}: {one}, not {definition}");
        }
        assert_eq!(ssim(&[], &[], 0, 0), 0.0);
    }
}
