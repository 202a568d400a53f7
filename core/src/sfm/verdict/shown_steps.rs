//! How far the camera went from frame to frame by what the pictures show, whatever the map says.
//!
//! Frames of a film that has no more of them than are wanted are all taken, at equal times: who waits and goes on by turns leaves many
//! short steps and a few long ones, and a long one is no jump if both of its pictures show it. Where a map falls apart they do not.

use std::collections::BTreeMap;

use crate::sfm::map::Map;
use crate::sfm::two_view::TwoViewGeometry;
use crate::statistics::median;

/// Pairs with less parallax (radians, half a degree) may show nothing but noise: of how far the camera went they say nothing.
const LEAST_PARALLAX: f64 = 0.0087;
/// Nor do those with fewer matches.
const LEAST_MATCHES: usize = 50;
/// Stations with a pose on either side of a step of which the one that sees the nearest things tells its depth. Beside a jump others
/// may see the scene in another scale.
const BESIDE: usize = 3;

/// By station: the step from there to the next one with a pose over the one that parallax and depth show, at least 1; infinite where the
/// pictures do not tell. `pairs` have relative poses.
pub(super) fn over_shown_steps(map: &Map, pairs: &[TwoViewGeometry]) -> Vec<f64> {
    let first_image = |station: usize| map.rig.images_of(station).start;
    let placed: Vec<usize> =
        (0..map.rig.stations()).filter(|&s| map.poses[first_image(s)].is_some()).collect();
    let centres = map.rig.placed_centres(&map.poses);
    let depths = depths(map, &placed);
    let parallax = parallax(map, pairs);
    let mut over = vec![f64::INFINITY; map.rig.stations()];
    for (k, ends) in placed.windows(2).enumerate() {
        let Some(&(_, parallax)) = parallax.get(&(ends[0], ends[1])) else { continue };
        let beside = (k + 1).saturating_sub(BESIDE)..(k + 1 + BESIDE).min(placed.len());
        let depth = depths[beside].iter().copied().fold(f64::INFINITY, f64::min);
        let shown = parallax * depth;
        if parallax >= LEAST_PARALLAX && shown > 0.0 && shown.is_finite() {
            over[ends[0]] = ((centres[k + 1] - centres[k]).norm() / shown).max(1.0);
        }
    }
    over
}

/// How far away what each of the `placed` stations sees is: the median; infinite where it sees nothing.
fn depths(map: &Map, placed: &[usize]) -> Vec<f64> {
    let mut distances: Vec<Vec<f64>> = vec![Vec::new(); map.rig.stations()];
    for point in &map.points {
        for image in point.track.iter().map(|o| o.image as usize) {
            let distance = map.poses[image].map(|pose| (pose.centre() - point.xyz).norm());
            distances[map.rig.station_of(image)].extend(distance);
        }
    }
    placed.iter().map(|&station| median(&mut distances[station]).unwrap_or(f64::INFINITY)).collect()
}

/// Matches and median parallax (radians) of two stations, the first one first, by the pair with most matches.
fn parallax(map: &Map, pairs: &[TwoViewGeometry]) -> BTreeMap<(usize, usize), (usize, f64)> {
    let mut best: BTreeMap<(usize, usize), (usize, f64)> = BTreeMap::new();
    for pair in pairs {
        let stations = [pair.first, pair.second].map(|image| map.rig.station_of(image as usize));
        let ends = (stations[0].min(stations[1]), stations[0].max(stations[1]));
        let matches = pair.inliers.len();
        let is_more = best.get(&ends).is_none_or(|before| matches > before.0);
        if matches >= LEAST_MATCHES && pair.second_from_first.is_some() && is_more {
            best.insert(ends, (matches, pair.median_parallax));
        }
    }
    best
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sfm::synthetic::Capture;

    #[test]
    fn a_step_is_what_both_of_its_pictures_show() {
        let capture = Capture::walk(24, 4000, 0.0, 4);
        let map = capture.true_map_with_points();
        let over = over_shown_steps(&map, &capture.pairs(2));
        assert_eq!((over.len(), over[23]), (24, f64::INFINITY));
        assert!(over[..23].iter().all(|over| (1.0..3.0).contains(over)), "{over:?}");
        // Past missing frames, too.
        let mut sparse = map.clone();
        sparse.unregister(&[7]);
        let over = over_shown_steps(&sparse, &capture.pairs(2));
        assert!(over[6] < 3.0 && over[7] == f64::INFINITY, "{over:?}");
        // Without pairs nothing is shown, nor by those without parallax.
        assert!(over_shown_steps(&map, &[]).iter().all(|over| *over == f64::INFINITY));
        let mut pairs = capture.pairs(2);
        pairs.iter_mut().for_each(|pair| pair.median_parallax = 0.002);
        assert!(over_shown_steps(&map, &pairs).iter().all(|over| *over == f64::INFINITY));
    }
}
