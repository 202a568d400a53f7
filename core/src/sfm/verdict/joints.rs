//! Where a model hangs together by little, and where frames are near each other and do not see the same.
//!
//! A place that is taken for another that looks alike is laid over it. Its frames then stand among those of the other
//! place, look the same way, and share nothing that is in one of the places only (Jiang, Tan & Cheong, "Seeing double
//! without confusion", CVPR 2012: what should be seen in common and is not).

use rayon::prelude::*;

use crate::sfm::map::Map;
use crate::sfm::spots::Spots;
use crate::statistics::median;

/// Frames this far apart in their order are not neighbours in time.
const APART: usize = 8;
/// Frames nearer than this many usual steps stand at one place.
const NEAR_STEPS: f64 = 2.0;
/// Largest angle between two optical axes that look the same way, as its cosine: 35 degrees.
const SAME_WAY: f64 = 0.82;
/// Two frames see something in common if they share this part of the points of the one that has fewer.
const COMMON: f64 = 0.02;
/// Frames with fewer points are not judged.
const LEAST_POINTS: usize = 50;

/// What was found.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Joints {
    /// Points that are seen on both sides of the weakest step from a frame to the next.
    pub(super) weakest_step: usize,
    /// Pairs far apart in time and near in the model.
    pub(super) near: usize,
    /// Share of them that see nothing in common.
    pub(super) missing: f64,
}

/// `is_ordered`: whether the images are in the order of the path; else there are no steps. What is usual is taken from `spots`.
pub(super) fn joints(map: &Map, spots: &Spots, is_ordered: bool) -> Joints {
    let placed: Vec<usize> = (0..map.poses.len()).filter(|&i| map.poses[i].is_some()).collect();
    let mut slot = vec![usize::MAX; map.poses.len()];
    placed.iter().enumerate().for_each(|(s, &i)| slot[i] = s);
    let n = placed.len();
    let mut shared = vec![0u32; n * n];
    let mut crossing = vec![0i64; n + 1];
    for point in &map.points {
        // Only registered images are in tracks, ordered by image.
        let seen: Vec<usize> =
            point.track.iter().map(|o| slot[o.image as usize]).filter(|&s| s < n).collect();
        for (k, &a) in seen.iter().enumerate() {
            seen[k..].iter().for_each(|&b| shared[a.min(b) * n + a.max(b)] += 1);
        }
        if let (Some(&first), Some(&last)) = (seen.first(), seen.last()) {
            crossing[first] += 1;
            crossing[last] -= 1;
        }
    }
    let mut weakest_step = usize::MAX;
    let mut open = 0;
    for change in crossing.iter().take(n.saturating_sub(1)) {
        open += change;
        weakest_step = weakest_step.min(open.max(0) as usize);
    }
    if !is_ordered || weakest_step == usize::MAX {
        weakest_step = 0;
    }
    // `placed` are the images that have a pose.
    let poses: Vec<_> = placed.iter().filter_map(|&i| map.poses[i]).collect();
    let centres: Vec<_> = poses.iter().map(|p| p.centre()).collect();
    let spots: Vec<_> =
        spots.placed(map).into_iter().filter_map(|(_, image)| Some(map.poses[image]?.centre())).collect();
    let nearest = |k: usize| {
        let others = spots.iter().enumerate().filter(|&(other, _)| other != k);
        others.map(|(_, other)| (other - spots[k]).norm()).fold(f64::INFINITY, f64::min)
    };
    // Of photographs in no order, the next in the list may stand anywhere.
    let mut steps: Vec<f64> = match is_ordered {
        true => spots.windows(2).map(|w| (w[1] - w[0]).norm()).collect(),
        false => (0..spots.len()).into_par_iter().map(nearest).filter(|d| d.is_finite()).collect(),
    };
    let limit = NEAR_STEPS * median(&mut steps).unwrap_or(0.0);
    let (mut near, mut missing) = (0usize, 0usize);
    for a in 0..n {
        for b in a + 1..n {
            let apart = map.rig.station_of(placed[b]) - map.rig.station_of(placed[a]) > APART;
            let fewer = shared[a * n + a].min(shared[b * n + b]);
            if !apart
                || (centres[a] - centres[b]).norm() > limit
                || poses[a].forward().dot(&poses[b].forward()) < SAME_WAY
                || (fewer as usize) < LEAST_POINTS
            {
                continue;
            }
            near += 1;
            missing += usize::from(f64::from(shared[a * n + b]) < COMMON * f64::from(fewer));
        }
    }
    Joints { weakest_step, near, missing: missing as f64 / near.max(1) as f64 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::camera::Pose;
    use crate::sfm::synthetic::Capture;

    fn joints(map: &Map, is_ordered: bool) -> Joints {
        super::joints(map, &Spots::of_stations(&map.rig), is_ordered)
    }

    #[test]
    fn what_is_near_is_not_told_by_the_steps_within_a_burst() {
        let capture = Capture::bursts(24, 6000, 0.0, 3);
        let mut map = capture.true_map_with_points();
        let spots = Spots::of_photographs(&map.rig, &capture.pairs(8));
        // Back on the way that it went, a little beside it.
        for i in 36..72 {
            let there = map.poses[71 - i].unwrap();
            let beside = there.centre() + nalgebra::Vector3::new(0.0, 0.1, 0.0);
            map.poses[i] = Some(Pose::from_centre(there.rotation, &beside));
        }
        assert_eq!(joints(&map, true).near, 0);
        let found = super::joints(&map, &spots, true);
        assert!(found.near > 100 && found.missing > 0.5, "{found:?}");
    }

    #[test]
    fn a_stretch_laid_over_another_misses_its_overlap() {
        let capture = Capture::turn(60, 6000, 0.0, 3);
        let mut map = capture.true_map_with_points();
        // The tracks of this capture do not go on from its end to its beginning.
        (54..60).for_each(|i| map.poses[i] = None);
        let right = joints(&map, true);
        assert_eq!(right.missing, 0.0);
        assert!(right.weakest_step > 20, "{right:?}");
        (35..50).for_each(|i| map.poses[i] = Some(capture.behind(i)));
        let folded = joints(&map, true);
        assert!(folded.near > 10 && folded.missing > 0.5, "{folded:?}");
        map.points.retain(|p| p.track.iter().all(|o| o.image < 20) || p.track.iter().all(|o| o.image >= 20));
        assert_eq!(joints(&map, true).weakest_step, 0);
    }

    #[test]
    fn the_order_of_photographs_says_nothing() {
        let capture = Capture::walk(60, 6000, 0.0, 3);
        let map = capture.true_map_with_points();
        // 7 has no divisor in common with 60.
        let place = |image: usize| image * 7 % 60;
        let mut shuffled = map.clone();
        (0..60).for_each(|i| shuffled.poses[place(i)] = map.poses[i]);
        for observation in shuffled.points.iter_mut().flat_map(|p| &mut p.track) {
            observation.image = place(observation.image as usize) as u32;
        }
        shuffled.points.iter_mut().for_each(|p| p.track.sort_by_key(|o| o.image));
        let (before, after) = (joints(&map, false), joints(&shuffled, false));
        assert_eq!(before.missing, 0.0);
        // Which pairs are far apart in the list depends on it, what is near in the world does not.
        assert!(after.near > 0 && after.missing < 0.05, "{before:?} {after:?}");
    }
}
