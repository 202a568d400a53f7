//! Places that look alike, passed one after the other: rooms of one kind, floors of a staircase.
//!
//! Pairs of pictures of two such places agree in every match, and in their rotations too, where the places are turned alike. A
//! map that believes them puts the places into one spot and is torn where the path leads from one to the next. The path itself
//! cannot be mistaken: neighbours in time are neighbours in space. So the path is cut into stretches where the map is torn, and only
//! what matches within a stretch, or between frames near each other on the path, is believed at first. That gives a map in which
//! each place has a spot of its own. Of the other pairs those are right whose two frames see the same points in the same
//! spot of that map, up to its drift: they close loops. The others saw two places that look alike.

use std::borrow::Cow;
use std::collections::BTreeSet;

use rayon::prelude::*;

use super::map::{Keypoints, Map};
use super::matching::PairMatches;
use super::path::Trusted;
use super::resection::{NO_POINT, points_of_keypoints};
use super::rig::Rig;
use super::two_view::TwoViewGeometry;
use crate::statistics::median;

/// Frames up to this far apart on the path are near each other: as far as frames are matched by their order.
const NEAR: usize = 24;
/// Fewer matches whose points are known on both sides say nothing.
const LEAST_POINTS: usize = 10;
/// What two frames see is in one spot if its points lie closer together than this share of their distance from the camera (median).
/// Drift over a loop of some rooms is up to a third of that; places that look alike are at least their own size apart, which is more
/// than a camera in them can step back. Chosen by hand.
const ONE_SPOT: f64 = 0.5;

/// The pairs within the stretches between the `torn` steps (`k`: after image `k`), and those of frames near each other on the
/// path; and the matches of these.
pub(crate) fn along_the_path(
    rig: &Rig,
    pairs: &[TwoViewGeometry],
    matches: &[PairMatches],
    torn: &BTreeSet<usize>,
) -> Trusted<'static> {
    let is_along = |first: u32, second: u32| {
        let stations = rig.station_of(second as usize).abs_diff(rig.station_of(first as usize));
        stations <= NEAR || torn.range(first as usize..second as usize).next().is_none()
    };
    let pairs = pairs.iter().filter(|p| is_along(p.first, p.second)).cloned().collect();
    let matches = matches.iter().filter(|m| is_along(m.first, m.second)).cloned().collect();
    Trusted { pairs: Cow::Owned(pairs), matches: Cow::Owned(matches) }
}

/// What `trusted`, pairs along the path that gave `map`, has beside it: those of `pairs` that close a loop of that map.
/// `None` if there are none.
pub(crate) fn with_loops(
    trusted: &Trusted<'_>,
    map: &Map,
    keypoints: &Keypoints,
    pairs: &[TwoViewGeometry],
    matches: &[PairMatches],
) -> Option<Trusted<'static>> {
    let known: BTreeSet<(u32, u32)> = trusted.pairs.iter().map(|p| (p.first, p.second)).collect();
    let points = points_of_keypoints(map, keypoints);
    let loops: BTreeSet<(u32, u32)> = pairs
        .par_iter()
        .filter(|p| !known.contains(&(p.first, p.second)) && sees_one_spot(map, &points, p))
        .map(|p| (p.first, p.second))
        .collect();
    if loops.is_empty() {
        return None;
    }
    let is_right = |pair: (u32, u32)| known.contains(&pair) || loops.contains(&pair);
    // What was matched along the path without a relative pose stays, as it was.
    let along: BTreeSet<(u32, u32)> = trusted.matches.iter().map(|m| (m.first, m.second)).collect();
    let pairs = pairs.iter().filter(|p| is_right((p.first, p.second))).cloned().collect();
    let of = |m: &&PairMatches| along.contains(&(m.first, m.second)) || loops.contains(&(m.first, m.second));
    Some(Trusted {
        pairs: Cow::Owned(pairs),
        matches: Cow::Owned(matches.iter().filter(of).cloned().collect()),
    })
}

/// Whether what both frames of a pair see is in the same spot of the map.
fn sees_one_spot(map: &Map, points: &[Vec<u32>], pair: &TwoViewGeometry) -> bool {
    let (first, second) = (pair.first as usize, pair.second as usize);
    let Some(pose) = map.poses[first] else { return false };
    let apart = |m: &[u32; 2]| {
        let (a, b) = (points[first][m[0] as usize], points[second][m[1] as usize]);
        if a == NO_POINT || b == NO_POINT {
            return None;
        }
        let (a, b) = (&map.points[a as usize].xyz, &map.points[b as usize].xyz);
        Some((a - b).norm() / (a - pose.centre()).norm())
    };
    let mut apart: Vec<f64> = pair.inliers.iter().filter_map(apart).collect();
    apart.len() >= LEAST_POINTS && median(&mut apart).is_some_and(|middle| middle < ONE_SPOT)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sfm::synthetic::Capture;

    // Those opposite each other are not near each other on the path.
    const IMAGES: usize = 60;

    /// Once around, with pairs that lead over the end, and pairs of each image with the opposite one in which keypoints match
    /// that show other things.
    fn with_mistaken_pairs() -> (Capture, Vec<TwoViewGeometry>, Vec<PairMatches>, usize) {
        let capture = Capture::circuit(IMAGES, 60, 0.3, 3);
        let mut pairs = capture.pairs_around(4);
        let right = pairs.len();
        let mistaken = |i: usize| {
            let like = pairs.iter().find(|p| p.first as usize == i)?;
            let most = capture.keypoints[i].len().min(capture.keypoints[i + IMAGES / 2].len()) as u32;
            let inliers = (0..most).map(|k| [k, k]).collect();
            Some(TwoViewGeometry { second: (i + IMAGES / 2) as u32, inliers, ..like.clone() })
        };
        let mistaken: Vec<_> = (0..IMAGES / 2).filter_map(mistaken).collect();
        assert_eq!(mistaken.len(), IMAGES / 2);
        pairs.extend(mistaken);
        let (pairs, matches) = Capture::with_matches(pairs);
        (capture, pairs, matches, right)
    }

    #[test]
    fn between_stretches_only_neighbours_on_the_path_are_believed() {
        let (capture, pairs, matches, _) = with_mistaken_pairs();
        let trusted = along_the_path(&capture.rig, &pairs, &matches, &BTreeSet::from([20]));
        let near = |first: u32, second: u32| second - first <= NEAR as u32;
        let within = |first: u32, second: u32| second <= 20 || first > 20;
        assert!(trusted.pairs.iter().all(|p| near(p.first, p.second) || within(p.first, p.second)));
        let wanted = pairs.iter().filter(|p| near(p.first, p.second) || within(p.first, p.second)).count();
        assert!(wanted < pairs.len());
        assert_eq!((trusted.pairs.len(), trusted.matches.len()), (wanted, wanted));
    }

    #[test]
    fn loops_close_and_places_that_look_alike_stay_apart() {
        let (capture, pairs, matches, right) = with_mistaken_pairs();
        let map = capture.true_map_with_points();
        let along = along_the_path(&capture.rig, &pairs, &matches, &BTreeSet::from([10, 30]));
        assert!(along.pairs.len() < right);
        let closed = with_loops(&along, &map, &capture.keypoints, &pairs, &matches).unwrap();
        let ends =
            |pairs: &[TwoViewGeometry]| pairs.iter().map(|p| (p.first, p.second)).collect::<BTreeSet<_>>();
        assert_eq!(ends(&closed.pairs), ends(&pairs[..right]));
        assert_eq!(closed.matches.len(), right);
        // Nothing is left where there is no loop.
        let open: Vec<_> = closed.pairs.iter().filter(|p| p.second - p.first <= 4).cloned().collect();
        let path = Trusted { pairs: Cow::Borrowed(&open), matches: Cow::Borrowed(&matches) };
        let mistaken: Vec<_> = pairs[right..].iter().chain(&open).cloned().collect();
        assert!(with_loops(&path, &map, &capture.keypoints, &mistaken, &matches).is_none());
    }
}
