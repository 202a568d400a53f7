//! What the pixels of each view say by themselves, as log odds of object against background: what the network saw there,
//! and what the Gaussians of the scene show there.

use nalgebra::Vector3;
use rayon::prelude::*;

use super::guided_filter::box_mean;
use super::labelling::ObjectLabels;
use super::quick_scene::QuickScene;
use super::views::SalientView;
use crate::defaults::with_defaults;
use crate::error::Result;

/// Log odds of object against background, in a byte: those of all pixels of all views are in memory at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Odds(i8);

impl Odds {
    /// Nothing can be said: something else is before what is asked for.
    pub(super) const HIDDEN: Self = Self(i8::MIN);
    /// Steps in which log odds are told apart.
    const STEP: f32 = 1.0 / 16.0;

    /// To the nearest step; beyond ±7.9 the odds are certain enough.
    pub(super) fn new(log_odds: f32) -> Self {
        Self((log_odds / Self::STEP).round().clamp(-127.0, 127.0) as i8)
    }

    /// The log odds; 0 where nothing can be said.
    pub(super) fn log_odds(self) -> f32 {
        if self == Self::HIDDEN { 0.0 } else { f32::from(self.0) * Self::STEP }
    }

    /// The probability (0 to 1) of object.
    pub(super) fn probability(self) -> f32 {
        1.0 / (1.0 + (-self.log_odds()).exp())
    }

    /// Its place in a table of 256 values.
    pub(super) fn index(self) -> usize {
        usize::from(self.0 as u8)
    }

    /// A table of a value for all odds, by [`index`](Self::index).
    pub(super) fn table(value: impl Fn(Self) -> f32) -> [f32; 256] {
        std::array::from_fn(|i| value(Self(i as u8 as i8)))
    }
}

with_defaults! {
    /// What a pixel's evidence is worth. Chosen by hand, unless it says otherwise.
    #[derive(Debug, Clone, PartialEq)]
    pub(super) struct EvidenceOptions {
        /// Saliency (0 to 1) at which the network's log odds are 0.
        pub(super) network_even: f32 = 0.3,
        /// Slope of the network's log odds over the saliency.
        pub(super) network_slope: f32 = 5.0,
        /// Least and most of the network's log odds: where it sees nothing it says little, because it misses much.
        pub(super) network_range: (f32, f32) = (-1.5, 3.0),
        /// Part of a pixel (0 to 1) by which what the scene shows may be wrong. Keeps the odds finite, within ±3.
        pub(super) doubt: f32 = 0.05,
        /// Radius (pixels) over which the texture of a picture is taken.
        pub(super) texture_radius: usize = 2,
        /// Mean difference between neighbouring pixels (0 to 255) up to which the depth of a surface that looks so is
        /// not known at all,
        pub(super) blank: f32 = 2.0,
        /// and from which on it is known.
        pub(super) textured: f32 = 8.0,
    }
}

/// The network's log odds by its saliency (0 to 255).
pub(super) fn network_odds(options: &EvidenceOptions) -> [f32; 256] {
    let (least, most) = options.network_range;
    std::array::from_fn(|s| {
        (options.network_slope * (s as f32 / 255.0 - options.network_even)).clamp(least, most)
    })
}

/// By view and pixel: what the Gaussians say that it shows, each as far as its depth is `known` ([`depth_known`]). Those on surfaces
/// without texture are not asked: training put them wherever their colour did no harm, and pixels that show such surfaces have log
/// odds of 0.
///
/// # Errors
/// Those of the rasteriser.
pub(super) fn scene_odds(
    scene: &QuickScene,
    labels: &ObjectLabels,
    known: &[f32],
    views: &[SalientView],
    options: &EvidenceOptions,
) -> Result<Vec<Vec<Odds>>> {
    let mut painted = scene.painted(|i| match labels.object[i] {
        Some(object) => [object * known[i], (1.0 - object) * known[i], 0.0],
        None => [0.0; 3],
    })?;
    let odds = |[object, background, ..]: &[f32; 4]| {
        Odds::new(((object + options.doubt) / (background + options.doubt)).ln())
    };
    views.iter().map(|v| Ok(painted.seen_by(&v.camera)?.iter().map(odds).collect())).collect()
}

/// The Gaussians that pin the object down: their centres, and how much (0 to 1) each is a part of it whose depth is `known`
/// ([`depth_known`]).
pub(super) fn pins(scene: &QuickScene, labels: &ObjectLabels, known: &[f32]) -> Vec<(Vector3<f64>, f32)> {
    (scene.centres.iter().zip(&labels.object).zip(known))
        .map(|((centre, object), known)| (*centre, object.unwrap_or(0.0) * known))
        .filter(|(_, pinned)| *pinned > 0.0)
        .collect()
}

/// By Gaussian: how well (0 to 1) its depth is known, by the texture of the pictures where they show it.
pub(super) fn depth_known(scene: &QuickScene, views: &[SalientView], options: &EvidenceOptions) -> Vec<f32> {
    let mut sums = vec![(0.0f32, 0u32); scene.centres.len()];
    for view in views {
        let texture = texture(view, options.texture_radius);
        sums.par_iter_mut().zip(&scene.centres).for_each(|((sum, count), centre)| {
            let Some((x, y, _)) = view.camera.project(centre) else { return };
            let Some(pixel) = view.camera.pixel(x, y) else { return };
            *sum += texture[pixel];
            *count += 1;
        });
    }
    let known = |mean: f32| ((mean - options.blank) / (options.textured - options.blank)).clamp(0.0, 1.0);
    sums.into_iter().map(|(sum, count)| known(sum / count.max(1) as f32)).collect()
}

/// By pixel of `view`: the mean difference (0 to 255) between neighbouring pixels around it, in the channel that differs
/// most.
fn texture(view: &SalientView, radius: usize) -> Vec<f32> {
    let (width, height) = view.size();
    let colours = &view.colours;
    let differ = |a: usize, b: usize| {
        (0..3).map(|c| f32::from(colours[a][c].abs_diff(colours[b][c]))).fold(0.0, f32::max)
    };
    let mut texture: Vec<f32> = (0..width * height)
        .map(|k| {
            let right = if k % width + 1 < width { differ(k, k + 1) } else { 0.0 };
            let below = if k + width < width * height { differ(k, k + width) } else { 0.0 };
            right.max(below)
        })
        .collect();
    box_mean(&mut texture, width, height, radius);
    texture
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn odds_keep_their_value_in_a_byte() {
        for value in [-7.5f32, -3.0, -0.4, 0.0, 0.7, 5.0] {
            assert!((Odds::new(value).log_odds() - value).abs() <= 1.0 / 32.0, "{value}");
        }
        assert_eq!(Odds::new(-20.0).log_odds(), -127.0 / 16.0);
        assert_eq!((Odds::HIDDEN.log_odds(), Odds::HIDDEN.probability()), (0.0, 0.5));
        let table = Odds::table(Odds::log_odds);
        assert_eq!(table[Odds::new(-2.0).index()], -2.0);
    }
}
