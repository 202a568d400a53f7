//! Density control: where Gaussians are moved to and where new ones appear.
//!
//! After 3D Gaussian Splatting as Markov chain Monte Carlo (Kheradmand et al., NeurIPS 2024): Gaussians that became
//! transparent are moved onto others, and the scene grows in the same way until its cap. A Gaussian that is to become
//! three or more gets the opacity and scale with which so many copies at one place look like it did (eq. 9). One that is to become
//! two is split along its longest axis: copies at one place have nearly the same gradients, and are long in coming apart.
//!
//! Where they go is sampled by how much of the pictures' error each Gaussian carries (the blending weight times the
//! error of the pixel, summed; as in Rota Bulò et al., ECCV 2024), so that detail is added where it is missing.

use crate::random::Random;
use crate::raster::{DensityScores, SplatEdit};

/// No Gaussian becomes more than this many at once.
const MAX_COPIES: u32 = 16;

/// What one round of density control is to do.
#[derive(Debug, Clone, Copy)]
pub(crate) struct DensityPlan {
    /// How many Gaussians there should be afterwards (no fewer than there are).
    pub(crate) target_count: usize,
    /// Gaussians below this opacity are moved.
    pub(crate) dead_opacity: f32,
    /// The halves of a Gaussian are this many standard deviations from its centre, along its longest axis; 0 = at one place.
    pub(crate) split: f32,
    /// Fixes what is sampled.
    pub(crate) seed: u64,
}

/// The edits that carry out `plan`.
pub(crate) fn edits(scores: &DensityScores, plan: &DensityPlan) -> Vec<SplatEdit> {
    let n = scores.opacities.len();
    let opacity = |i: usize| 1.0 / (1.0 + (-f64::from(scores.opacities[i])).exp());
    // Compared as logits: a million exponentials are spared.
    let dead_opacity = f64::from(plan.dead_opacity);
    let dead_logit = (dead_opacity / (1.0 - dead_opacity)).ln();
    // Written so that an opacity that is no number counts as dead.
    let alive = |i: usize| f64::from(scores.opacities[i]) >= dead_logit;
    let mut dead = Vec::new();
    let mut weights = Vec::with_capacity(n);
    for i in 0..n {
        if !alive(i) {
            dead.push(i as u32);
        }
        let error = f64::from(scores.error[i]);
        weights.push(if alive(i) && error.is_finite() { error.max(0.0) } else { 0.0 });
    }
    if weights.iter().all(|w| *w == 0.0) {
        // Nothing was seen since the last round: fall back to the opacity.
        for (i, w) in weights.iter_mut().enumerate() {
            *w = if alive(i) { opacity(i) } else { 0.0 };
        }
    }
    let grown = (n..plan.target_count.max(n)).map(|i| i as u32);
    let destinations: Vec<u32> = dead.into_iter().chain(grown).collect();
    let sources = sample(&weights, destinations.len(), &mut Random::new(plan.seed));
    let mut edits = Vec::with_capacity(2 * sources.len());
    let mut first = 0;
    while first < sources.len() {
        let source = sources[first];
        let same = sources[first..].iter().take_while(|s| **s == source).count();
        let is_split = same == 1 && plan.split > 0.0;
        let before = opacity(source as usize);
        let (new_opacity, factor) = if is_split {
            (halved(before, f64::from(plan.split)), 1.0)
        } else {
            relocated(before, same as u32 + 1)
        };
        let edit = |destination, shift| SplatEdit {
            destination,
            source,
            shift,
            log_scale_offset: factor.ln() as f32,
            opacity: (new_opacity / (1.0 - new_opacity)).ln() as f32,
        };
        let shift = if is_split { plan.split } else { 0.0 };
        edits.push(edit(source, shift));
        edits.extend(destinations[first..first + same].iter().map(|d| edit(*d, -shift)));
        first += same;
    }
    edits.sort_unstable_by_key(|e| e.destination);
    edits
}

/// `count` indices, ascending, drawn in proportion to their weights with one random offset (systematic sampling: an
/// index with the share s comes up floor(s) or ceil(s) times); at most `MAX_COPIES - 1` times each. May return fewer.
fn sample(weights: &[f64], count: usize, random: &mut Random) -> Vec<u32> {
    let total: f64 = weights.iter().sum();
    if count == 0 || !(total > 0.0 && total.is_finite()) {
        return Vec::new();
    }
    let step = total / count as f64;
    let mut next = random.uniform() * step;
    let mut sum = 0.0;
    let mut drawn = Vec::with_capacity(count);
    for (i, w) in weights.iter().enumerate() {
        sum += w;
        let mut copies = 1;
        while next < sum && drawn.len() < count {
            if copies < MAX_COPIES {
                drawn.push(i as u32);
            }
            copies += 1;
            next += step;
        }
    }
    drawn
}

/// Opacity o' of the halves of a Gaussian of opacity o, `split` standard deviations from its centre: each is √(1 - split²) times as
/// long, and the two have about the optical depth of the one, summed along the axis: -2 √(1 - split²) ln(1 - o') = -ln(1 - o).
fn halved(opacity: f64, split: f64) -> f64 {
    let length = (1.0 - split * split).sqrt();
    1.0 - (1.0 - opacity.clamp(1e-6, 0.9999)).powf(0.5 / length)
}

/// Opacity, and factor of the scale, with which `copies` Gaussians at one place look like one of opacity `opacity`
/// (3DGS-MCMC eq. 9).
fn relocated(opacity: f64, copies: u32) -> (f64, f64) {
    let opacity = opacity.clamp(1e-6, 0.9999);
    let each = 1.0 - (1.0 - opacity).powf(1.0 / f64::from(copies));
    let mut sum = 0.0;
    for i in 1..=copies {
        let mut binomial = 1.0; // (i-1 over k), with the sign of (-1)^k
        for k in 0..i {
            sum += binomial * each.powi(k as i32 + 1) / f64::from(k + 1).sqrt();
            binomial *= -f64::from(i - 1 - k) / f64::from(k + 1);
        }
    }
    (each, opacity / sum)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Integral along a line through the centre of what `copies` Gaussians of unit scale and opacity o blend to.
    fn line_integral(opacity: f64, scale: f64, copies: u32) -> f64 {
        let h = 1e-3;
        (-8000..=8000)
            .map(|i| {
                let x = f64::from(i) * h / scale;
                1.0 - (1.0 - opacity * (-0.5 * x * x).exp()).powi(copies as i32)
            })
            .sum::<f64>()
            * h
    }

    #[test]
    fn copies_look_like_the_one_they_came_from() {
        for opacity in [0.02, 0.3, 0.9, 0.99] {
            for copies in [1, 2, 3, 8, 16] {
                let (each, factor) = relocated(opacity, copies);
                let at_centre = 1.0 - (1.0 - each).powi(copies as i32);
                assert!((at_centre - opacity).abs() < 1e-9);
                let (one, many) = (line_integral(opacity, 1.0, 1), line_integral(each, factor, copies));
                assert!((one - many).abs() < 1e-6 * one, "{opacity} {copies}: {one} {many}");
            }
        }
    }

    #[test]
    fn halves_look_nearly_like_the_one_they_came_from() {
        let shift = 0.5f64;
        let length = (1.0 - shift * shift).sqrt();
        // The root of the mean square of what changes along the axis, as a fraction of the picture; and of all light.
        for (opacity, picture, light) in [(0.1, 0.03, 0.01), (0.5, 0.07, 0.05), (0.9, 0.17, 0.16)] {
            let (mut changed, mut all, mut one_sum, mut two_sum) = (0.0f64, 0.0, 0.0, 0.0);
            for i in -800..=800 {
                let x = 0.01 * f64::from(i);
                let alpha = |centre: f64, length: f64, opacity: f64| {
                    opacity * (-0.5 * ((x - centre) / length).powi(2)).exp()
                };
                let one = alpha(0.0, 1.0, opacity);
                let half = |centre| 1.0 - alpha(centre, length, halved(opacity, shift));
                let two = 1.0 - half(shift) * half(-shift);
                changed += (two - one).powi(2);
                all += one * one;
                (one_sum, two_sum) = (one_sum + one, two_sum + two);
            }
            assert!((changed / all).sqrt() < picture, "{opacity}: {}", (changed / all).sqrt());
            assert!((two_sum / one_sum - 1.0).abs() < light, "{opacity}: {}", two_sum / one_sum);
        }
    }

    fn scores(opacities: &[f64], error: &[f32]) -> DensityScores {
        DensityScores {
            opacities: opacities.iter().map(|o| (o / (1.0 - o)).ln() as f32).collect(),
            error: error.to_vec(),
        }
    }

    #[test]
    fn the_dead_move_and_the_new_appear_where_the_error_is() {
        let s = scores(&[0.001, 0.5, 0.8, 0.002, 0.9], &[9.0, 1.0, 3.0, 9.0, 0.0]);
        let plan = DensityPlan { target_count: 7, dead_opacity: 0.005, split: 0.5, seed: 1 };
        let edits = edits(&s, &plan);
        let destinations: Vec<u32> = edits.iter().map(|e| e.destination).collect();
        assert_eq!(destinations, [0, 1, 2, 3, 5, 6]);
        assert!(edits.iter().all(|e| e.source == 1 || e.source == 2));
        // Four are placed, in the proportion 1 to 3.
        let of = |source| edits.iter().filter(|e| e.source == source).count();
        assert_eq!((of(1), of(2)), (2, 4));
        // Those of one source are alike, and dimmer than it was; where there are two, they go apart.
        for e in &edits {
            let twin = edits.iter().find(|t| t.destination == e.source).unwrap();
            assert_eq!((e.opacity, e.log_scale_offset), (twin.opacity, twin.log_scale_offset));
            assert!(e.opacity < s.opacities[e.source as usize]);
            let (own, other) = if e.source == 1 { (0.5, -0.5) } else { (0.0, 0.0) };
            assert_eq!(e.shift, if e.destination == e.source { own } else { other });
        }
        assert_eq!(edits, super::edits(&s, &plan));
        // Not split, two are as three: at one place, and shorter.
        let together = super::edits(&s, &DensityPlan { split: 0.0, ..plan });
        assert!(together.iter().all(|e| e.shift == 0.0 && e.log_scale_offset < 0.0));
    }

    #[test]
    fn a_scene_without_anything_alive_or_seen_is_left_alone_or_uses_the_opacity() {
        let plan = DensityPlan { target_count: 4, dead_opacity: 0.005, split: 0.5, seed: 1 };
        assert!(edits(&scores(&[0.001, 0.001], &[1.0, 1.0]), &plan).is_empty());
        let unseen = edits(&scores(&[0.5, 0.001], &[0.0, 0.0]), &plan);
        assert!(unseen.iter().all(|e| e.source == 0));
        assert_eq!(unseen.len(), 4);
        let mut broken = scores(&[0.5, 0.5], &[1.0, f32::NAN]);
        broken.opacities[1] = f32::NAN;
        assert!(edits(&broken, &plan).iter().all(|e| e.source == 0));
    }

    #[test]
    fn no_gaussian_becomes_too_many_and_growth_leaves_no_gap() {
        let s = scores(&[0.5, 0.5], &[1.0, 0.0]);
        let edits = edits(&s, &DensityPlan { target_count: 100, dead_opacity: 0.005, split: 0.5, seed: 2 });
        let mut destinations: Vec<u32> = edits.iter().map(|e| e.destination).collect();
        destinations.retain(|d| *d >= 2);
        assert_eq!(destinations, (2..2 + destinations.len() as u32).collect::<Vec<_>>());
        assert_eq!(destinations.len() as u32, MAX_COPIES - 1);
    }
}
