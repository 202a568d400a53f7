//! Frames at which the network does not look: neighbouring frames of a long video show nearly the same, so it looks at some, evenly
//! chosen, and what it would have said of the others is made of what it said of these.
//!
//! Before the cameras are known, a map between two others is their mean, weighted by how near each is ([`in_between`]). Once there is
//! a scene, it is what the views at which the network looked say of the scene's Gaussians, as the view sees them ([`foretell`]).

use image::GrayImage;
use rayon::prelude::*;

use super::labelling::{LabelOptions, saliency};
use super::quick_scene::QuickScene;
use super::views::SalientView;
use crate::camera::Gaze;
use crate::error::Result;

/// The frames of `count` at which the network looks: `most` at most, among them the first and the last one.
pub(super) fn sampled(count: usize, most: usize) -> Vec<usize> {
    match most.max(2) {
        most if most < count => (0..most).map(|k| (k * (count - 1) + (most - 1) / 2) / (most - 1)).collect(),
        _ => (0..count).collect(),
    }
}

/// Maps of `count` frames from those of some, by frame and in order. All have one size.
pub(super) fn in_between(maps: &[(usize, GrayImage)], count: usize) -> Vec<GrayImage> {
    let map = |frame: usize| {
        let next = maps.partition_point(|(at, _)| *at < frame);
        let (before, after) = (next.checked_sub(1).and_then(|k| maps.get(k)), maps.get(next));
        match (before, after) {
            (_, Some((at, map))) if *at == frame => map.clone(),
            (Some((from, a)), Some((to, b))) => mixed(a, b, (frame - from) as f32 / (to - from) as f32),
            (Some((_, map)), None) | (None, Some((_, map))) => map.clone(),
            (None, None) => GrayImage::default(),
        }
    };
    (0..count).into_par_iter().map(map).collect()
}

/// `1 - part` of `a` and `part` of `b`.
fn mixed(a: &GrayImage, b: &GrayImage, part: f32) -> GrayImage {
    let mut map = a.clone();
    for (value, other) in map.iter_mut().zip(b.as_raw()) {
        // Within 0..=255, as both are.
        *value = (f32::from(*value) * (1.0 - part) + f32::from(*other) * part + 0.5) as u8;
    }
    map
}

/// Gives the views at which the network has not `looked` maps of what those say at which it has, as far as the scene shows a surface;
/// elsewhere they keep theirs.
///
/// # Errors
/// Those of the rasteriser.
pub(super) fn foretell(
    views: &mut [SalientView],
    looked: &[bool],
    scene: &QuickScene,
    gaze: &Gaze,
    options: &LabelOptions,
) -> Result<()> {
    if !looked.contains(&false) || !looked.contains(&true) {
        return Ok(());
    }
    let asked = views.iter().zip(looked).filter(|(_, looked)| **looked).map(|(view, _)| view);
    let votes = saliency(scene, asked, gaze, options)?;
    let mut painted = scene.painted(|gaussian| [votes[gaussian].mean(); 3])?;
    for (view, _) in views.iter_mut().zip(looked).filter(|(_, looked)| !**looked) {
        let pixels = painted.seen_by(&view.camera)?;
        for (value, [salient, _, _, weight]) in view.saliency.iter_mut().zip(pixels) {
            if f64::from(weight) > options.opaque {
                // `as` saturates.
                *value = (255.0 * salient / weight + 0.5) as u8;
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_chosen_evenly_with_both_ends() {
        assert_eq!(sampled(5, 40), [0, 1, 2, 3, 4]);
        assert_eq!(sampled(40, 40), (0..40).collect::<Vec<_>>());
        for (count, most) in [(41, 40), (103, 40), (1000, 40), (9, 2), (7, 3)] {
            let chosen = sampled(count, most);
            let steps: Vec<usize> = chosen.windows(2).map(|pair| pair[1] - pair[0]).collect();
            assert_eq!((chosen.len(), chosen[0], chosen[most - 1]), (most, 0, count - 1));
            let (least, largest) = (steps.iter().min().unwrap(), steps.iter().max().unwrap());
            assert!(*least > 0 && largest - least <= 1, "{count} {most}: {chosen:?}");
        }
        assert!(sampled(0, 40).is_empty());
    }

    #[test]
    fn maps_between_others_are_nearer_to_the_nearer_one() {
        let flat = |value| GrayImage::from_pixel(4, 4, image::Luma([value]));
        let maps = in_between(&[(1, flat(0)), (5, flat(200))], 7);
        let values: Vec<u8> = maps.iter().map(|map| map.as_raw()[0]).collect();
        assert_eq!(values, [0, 0, 50, 100, 150, 200, 200]);
    }
}
