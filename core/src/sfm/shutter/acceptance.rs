//! Whether a shutter is true, or only one more way to bend a map.

use nalgebra::{Matrix3, Vector3};

use crate::sfm::bundle_adjustment::{BundleOptions, intrinsics_deviations};
use crate::sfm::map::{Keypoints, Map, Observation};
use crate::sfm::triangulation::{TriangulationOptions, Views, triangulate_tracks};
use crate::statistics::median;

/// One track of this many takes no part in the estimate.
const HELD_OUT: usize = 5;
/// The error of these tracks must fall by this part.
const LEAST_GAIN: f64 = 0.05;
/// The flatness of the scene may change by this part: free motions can press it flat.
const MOST_FLATTENING: f64 = 0.2;
/// The focal length may change by this part: a shear along the picture looks like another aspect. On generated captures
/// with a shutter of 10 to 30 ms, it takes back an error of up to 2 % that the shutter had caused.
const MOST_ZOOM: f64 = 0.03;
/// ... or by this many standard deviations to which it was known without the shutter: a camera that moves little tells
/// little of it. Chosen by hand.
const MOST_DEVIATIONS: f64 = 3.0;
/// Points farther from the middle than this many median distances do not count for the flatness.
const FAR: f64 = 3.0;

/// `map` without some of its points, and their tracks.
pub(super) fn hold_out(map: &Map) -> (Map, Vec<Vec<Observation>>) {
    let is_held_out = |p: usize| p.is_multiple_of(HELD_OUT);
    let points = map.points.iter().enumerate();
    let kept = points.clone().filter(|(p, _)| !is_held_out(*p)).map(|(_, point)| point.clone());
    let kept = map.with_points(kept.collect());
    (kept, points.filter(|(p, _)| is_held_out(*p)).map(|(_, point)| point.track.clone()).collect())
}

/// Median error of the `tracks`, triangulated anew with the cameras of `map`, pixels. An observation that does not fit at
/// all counts with the largest error. The mean would be that of the few that are mistaken.
fn held_out_error(
    map: &Map,
    keypoints: &Keypoints,
    tracks: &[Vec<Observation>],
    limits: &TriangulationOptions,
) -> f64 {
    let points = triangulate_tracks(map, keypoints, tracks, limits);
    let views = Views::new(map, keypoints);
    let fitting = points.iter().flat_map(|p| p.track.iter().map(move |o| (p, o)));
    let mut errors: Vec<f64> = fitting.map(|(p, o)| views.squared_error(o, &p.xyz).sqrt()).collect();
    let all: usize = tracks.iter().map(Vec::len).sum();
    errors.resize(all.max(errors.len()), limits.max_error);
    median(&mut errors).unwrap_or(f64::INFINITY)
}

/// Extent of the points along the shortest of their axes over that along the longest.
fn flatness(map: &Map) -> f64 {
    let along = |axis: usize| -> Option<f64> {
        median(&mut map.points.iter().map(|p| p.xyz[axis]).collect::<Vec<f64>>())
    };
    let (Some(x), Some(y), Some(z)) = (along(0), along(1), along(2)) else { return 1.0 };
    let middle = Vector3::new(x, y, z);
    let mut distances: Vec<f64> = map.points.iter().map(|p| (p.xyz - middle).norm()).collect();
    let reach = FAR * median(&mut distances).unwrap_or(0.0);
    let arms = map.points.iter().map(|p| p.xyz - middle).filter(|arm| arm.norm() <= reach);
    let spread = arms.map(|arm| arm * arm.transpose()).sum::<Matrix3<f64>>();
    let extents = spread.symmetric_eigenvalues();
    (extents.min().max(0.0) / extents.max().max(f64::MIN_POSITIVE)).sqrt()
}

/// Standard deviation of the focal length of a map in which it is as free as `bundle` says, as a part of it.
/// 0 where it is fixed, or where that cannot be said.
pub(super) fn focal_deviation((map, keypoints): (&Map, &Keypoints), bundle: &BundleOptions) -> f64 {
    let deviations = intrinsics_deviations(map, keypoints, bundle);
    // The first parameter of every camera is a focal length.
    let of_focal = deviations.as_ref().and_then(|d| d.iter().find(|(parameter, _)| *parameter == 0));
    of_focal.map_or(0.0, |(_, deviation)| deviation / map.camera.mean_focal())
}

/// What the comparison of a map with the same map without the shutter's distortion shows.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Comparison {
    /// By which part the error of tracks falls that took no part.
    pub(super) gain: f64,
    /// Flatness with over that without the distortion, and ...
    pub(super) flattening: f64,
    /// ... focal length.
    pub(super) zoom: f64,
}

impl Comparison {
    /// `before` and `after` are the maps, each with its keypoints; the tracks were held out of `after`.
    pub(super) fn new(
        before: (&Map, &Keypoints),
        after: (&Map, &Keypoints),
        tracks: &[Vec<Observation>],
        limits: &TriangulationOptions,
    ) -> Self {
        let error = |(map, keypoints): (&Map, &Keypoints)| held_out_error(map, keypoints, tracks, limits);
        Self {
            gain: 1.0 - error(after) / error(before).max(f64::MIN_POSITIVE),
            flattening: flatness(after.0) / flatness(before.0).max(f64::MIN_POSITIVE),
            zoom: after.0.camera.mean_focal() / before.0.camera.mean_focal(),
        }
    }

    /// Why the shutter is not believed; `None` if it is. One that is known must only not be worse. `focal_deviation` is how well the
    /// focal length is known without it ([`focal_deviation`]).
    pub(super) fn refusal(&self, is_known: bool, focal_deviation: f64) -> Option<String> {
        let least_gain = if is_known { 0.0 } else { LEAST_GAIN };
        let too_different = |ratio: f64, most: f64| ratio.ln().abs() > (1.0 + most).ln();
        if self.gain.is_nan() || self.gain < least_gain {
            return Some(format!(
                "the error of tracks that took no part changes by {:+.1} %, and has to fall by {:.0} % at least",
                -100.0 * self.gain,
                100.0 * least_gain
            ));
        }
        if too_different(self.flattening, MOST_FLATTENING) {
            return Some(format!("the scene would be {:.2} times as flat", 1.0 / self.flattening));
        }
        let most_zoom = MOST_ZOOM.max(MOST_DEVIATIONS * focal_deviation);
        too_different(self.zoom, most_zoom).then(|| {
            format!(
                "the focal length would be {:.3} times as long, and is known to {:.1} % without a shutter",
                self.zoom,
                100.0 * focal_deviation
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_focal_length_may_change_by_what_it_was_known_to() {
        let zoomed = |zoom: f64| Comparison { gain: 0.4, flattening: 1.0, zoom };
        let why = zoomed(0.96).refusal(false, 0.005).unwrap();
        assert!(why.contains("0.960 times as long, and is known to 0.5 %"), "{why}");
        assert!(zoomed(0.98).refusal(false, 0.005).is_none());
        assert!(zoomed(0.96).refusal(false, 0.019).is_none());
        assert!(zoomed(0.94).refusal(false, 0.019).is_some());
        // Where nothing is known of it the usual limit holds, and the other conditions hold anyway.
        assert!(zoomed(0.96).refusal(false, 0.0).is_some());
        assert!(Comparison { gain: 0.04, ..zoomed(0.99) }.refusal(false, 0.5).is_some());
        assert!(Comparison { flattening: 0.7, ..zoomed(0.99) }.refusal(true, 0.5).is_some());
    }
}
