//! Another start for a map whose parts hang together by little: a camera that goes on as it went.
//!
//! A point that two stations see alone says nothing of the length of the step between them. Where few are seen by three,
//! positioning can leave a stretch of the path in one spot, or the parts before and after a step in different scales: the
//! directions of all steps are right, matches agree with their epipolar lines, and what contradicts is not in the map. No
//! adjustment leads out of it. A camera in motion moves on about as fast as it did, so with steps as long as those beside
//! them the adjustment begins near enough to what is true.

use nalgebra::Vector3;

use crate::camera::Pose;

use super::map::Map;
use super::mapper_options::EvenStepsOptions;
use super::spots::Spots;
use super::two_view::TwoViewGeometry;
use crate::statistics::median;

/// Steps on either side from which the usual length follows. Chosen by hand.
const BESIDE: usize = 3;

/// The poses of `map`, whose stations are in the order of the path, with every weak step as long as those beside it, and
/// the parts between weak steps in the scale that makes them so; `None` where no step is weak. Without points. A step is weak
/// that few points span; of a video, whose frames are chosen at equal motion, one that is much longer than those beside
/// it, too.
pub(crate) fn with_even_steps(
    map: &Map,
    pairs: &[TwoViewGeometry],
    is_video: bool,
    options: &EvenStepsOptions,
) -> Option<Map> {
    let placed = placed_stations(map);
    let lengths = lengths(&placed, &steps(map));
    let is_weak: Vec<bool> = crossing(map, &placed)
        .into_iter()
        .zip(over_those_beside(&lengths))
        .map(|(points, longer)| points < options.weak_step || is_video && longer > options.long_step)
        .collect();
    if placed.len() < 3 || !is_weak.contains(&true) {
        return None;
    }
    Some(evened(map, pairs, &is_weak))
}

/// The poses of `map`, of a video whose frames are chosen at equal motion, with steps that are all of one length; `None` where its own
/// are even enough and it is not `doubted`, and for long paths: the camera of one is nearer to what it sees now, and farther then.
/// Without points.
///
/// Where places look alike, pairs that take one for another can leave whole stretches of a path shrunken, and no step of these is longer
/// than those beside it but the one that leads there; where they shrink little by little, not even that one.
pub(crate) fn with_equal_steps(
    map: &Map,
    pairs: &[TwoViewGeometry],
    doubted: bool,
    options: &EvenStepsOptions,
) -> Option<Map> {
    let placed = placed_stations(map);
    let is_short = (3..=options.most_equal).contains(&placed.len());
    (is_short && (doubted || most_lone_step(map) > options.uneven_step))
        .then(|| evened(map, pairs, &vec![true; placed.len() - 1]))
}

/// From each placed station to the next.
fn steps(map: &Map) -> Vec<Vector3<f64>> {
    map.rig.placed_centres(&map.poses).windows(2).map(|w| w[1] - w[0]).collect()
}

/// The poses with every weak step as long as those beside it. Without points.
fn evened(map: &Map, pairs: &[TwoViewGeometry], is_weak: &[bool]) -> Map {
    let placed = placed_stations(map);
    let old = map.rig.placed_centres(&map.poses);
    let steps = steps(map);
    let (lengths, counts) = (lengths(&placed, &steps), counts(&placed));
    let directions = directions(map, pairs, &placed);
    // Usual length of the strong steps of a part, from a step on in either direction, up to a weak one.
    let usual = |of: &mut dyn Iterator<Item = usize>| {
        let near = of.take_while(|&k| !is_weak[k]).take(BESIDE);
        median(&mut near.map(|k| lengths[k]).collect::<Vec<_>>())
    };
    let first_strong = is_weak.iter().position(|weak| !weak);
    let mut length =
        first_strong.and_then(|k| usual(&mut (k..steps.len()))).filter(|l| *l > 0.0).unwrap_or(1.0);
    let mut scale = 1.0;
    let mut centres = old[..1].to_vec();
    let mut direction = Vector3::x();
    for (k, step) in steps.iter().enumerate() {
        let last = centres[k];
        if !is_weak[k] {
            centres.push(last + scale * step);
            continue;
        }
        if let Some(before) = usual(&mut (0..k).rev()) {
            length = scale * before;
        }
        if let Some(after) = usual(&mut (k + 1..steps.len())).filter(|l| *l > 0.0) {
            scale = length / after;
        }
        direction = directions[k].or_else(|| step.try_normalize(0.0)).unwrap_or(direction);
        centres.push(last + counts[k] * length * direction);
    }
    let mut evened = map.with_points(Vec::new());
    for (&station, centre) in placed.iter().zip(&centres) {
        for pose in evened.poses[map.rig.images_of(station)].iter_mut().flatten() {
            *pose = Pose::from_centre(pose.rotation, centre);
        }
    }
    evened
}

/// The largest of [`lone_steps`]. 0 without two steps.
fn most_lone_step(map: &Map) -> f64 {
    lone_steps(map).into_iter().map(|(_, longer)| longer).fold(0.0, f64::max)
}

/// Every step of the path, by the station where it begins, over the usual one of those beside it, of three on either side.
pub(crate) fn lone_steps(map: &Map) -> Vec<(usize, f64)> {
    let placed = placed_stations(map);
    let longer = over_those_beside(&lengths(&placed, &steps(map)));
    placed.into_iter().zip(longer).collect()
}

/// The lengths of the steps that a camera went from one spot with a pose to the next, with the image from which each begins. Past
/// missing spots a step counts as so many, but as no more than `most`.
pub(crate) fn one_camera_steps(map: &Map, spots: &Spots, most: usize) -> Vec<(usize, f64)> {
    let step = |from: (usize, usize), to: (usize, usize)| {
        let went = map.others.index(from.1) == map.others.index(to.1);
        let (a, b) = (map.poses[from.1].filter(|_| went)?.centre(), map.poses[to.1]?.centre());
        Some((from.1, (b - a).norm() / (to.0 - from.0).min(most) as f64))
    };
    spots.placed(map).windows(2).filter_map(|w| step(w[0], w[1])).collect()
}

fn placed_stations(map: &Map) -> Vec<usize> {
    (0..map.rig.stations()).filter(|&s| map.poses[map.rig.images_of(s).start].is_some()).collect()
}

/// Of each step from one of the `placed` stations to the next: how many it would be if none were missing.
fn counts(placed: &[usize]) -> Vec<f64> {
    placed.windows(2).map(|w| (w[1] - w[0]) as f64).collect()
}

/// Where stations are missing, the step past them counts as so many.
fn lengths(placed: &[usize], steps: &[Vector3<f64>]) -> Vec<f64> {
    steps.iter().zip(counts(placed)).map(|(step, count)| step.norm() / count).collect()
}

/// Each of `lengths` over the median of those beside it; 0 where nothing moves there.
fn over_those_beside(lengths: &[f64]) -> Vec<f64> {
    let over = |k: usize| {
        let beside = k.saturating_sub(BESIDE)..(k + 1 + BESIDE).min(lengths.len());
        let mut others: Vec<f64> = beside.filter(|&other| other != k).map(|other| lengths[other]).collect();
        median(&mut others).filter(|&usual| usual > 0.0).map_or(0.0, |usual| lengths[k] / usual)
    };
    (0..lengths.len()).map(over).collect()
}

/// For every step from one of the `placed` stations to the next: the points that are seen on both sides, by three
/// stations or more.
fn crossing(map: &Map, placed: &[usize]) -> Vec<usize> {
    let mut slot = vec![0; map.rig.stations()];
    placed.iter().enumerate().for_each(|(k, &station)| slot[station] = k);
    let mut changes = vec![0i64; placed.len()];
    for point in &map.points {
        // Ordered, as the images of a track are.
        let mut seen: Vec<usize> =
            point.track.iter().map(|o| slot[map.rig.station_of(o.image as usize)]).collect();
        seen.dedup();
        if let ([first, .., last], true) = (seen.as_slice(), seen.len() > 2) {
            changes[*first] += 1;
            changes[*last] -= 1;
        }
    }
    let mut open = 0;
    let steps = changes.iter().take(placed.len().saturating_sub(1));
    steps
        .map(|change| {
            open += change;
            open.max(0) as usize
        })
        .collect()
}

/// The direction of every step in the world, as the verified pair with most inliers has it.
fn directions(map: &Map, pairs: &[TwoViewGeometry], placed: &[usize]) -> Vec<Option<Vector3<f64>>> {
    let mut best: Vec<(usize, Option<Vector3<f64>>)> = vec![(0, None); placed.len().saturating_sub(1)];
    for pair in pairs {
        let stations = [pair.first, pair.second].map(|image| map.rig.station_of(image as usize));
        let (Some(relative), Some(pose)) = (&pair.second_from_first, map.poses[pair.second as usize]) else {
            continue;
        };
        let Ok(k) = placed.binary_search(&stations[0].min(stations[1])) else { continue };
        if placed.get(k + 1) != Some(&stations[0].max(stations[1])) || pair.inliers.len() <= best[k].0 {
            continue;
        }
        // Of the first image as the second sees it: the translation.
        let forward = pose.rotation.inverse() * -relative.translation;
        let direction = if stations[0] < stations[1] { forward } else { -forward };
        best[k] = (pair.inliers.len(), direction.try_normalize(0.0));
    }
    best.into_iter().map(|(_, direction)| direction).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::Control;
    use crate::sfm::completion::complete;
    use crate::sfm::global_mapper::adjust_start;
    use crate::sfm::mapper_options::MapperOptions;
    use crate::sfm::other_cameras::OtherCameras;
    use crate::sfm::synthetic::Capture;

    /// A walk, of which few tracks go across the step after image 7, and its pairs.
    fn weakly_joined() -> (Capture, Vec<TwoViewGeometry>) {
        let capture = Capture::walk(16, 1500, 0.3, 4);
        let mut pairs = capture.pairs(4);
        for pair in pairs.iter_mut().filter(|p| p.first <= 7 && p.second > 7) {
            let one_of = if pair.second == pair.first + 1 { 5 } else { 20 };
            let seen = &capture.seen[pair.first as usize];
            pair.inliers.retain(|m| seen[m[0] as usize].is_multiple_of(one_of));
        }
        pairs.retain(|p| p.inliers.len() >= 8);
        (capture, pairs)
    }

    /// The true map with what follows image 7 in another scale, and the tracks that fit it.
    fn slipped(capture: &Capture, scale: f64) -> Map {
        let mut map = capture.true_map_with_points();
        let hinge = map.poses[8].unwrap().centre();
        for pose in map.poses[8..].iter_mut().flatten() {
            *pose = Pose::from_centre(pose.rotation, &(hinge + scale * (pose.centre() - hinge)));
        }
        map.points.retain(|p| p.track.iter().all(|o| o.image < 8) || p.track.iter().all(|o| o.image >= 8));
        map
    }

    #[test]
    fn parts_in_different_scales_come_together() {
        let (capture, pairs) = weakly_joined();
        let options = MapperOptions::default();
        for scale in [0.2, 5.0] {
            let map = slipped(&capture, scale);
            let evened = with_even_steps(&map, &pairs, false, &options.even_steps).unwrap();
            // The steps of the walk are not all the same.
            let (centres, rotations) = capture.errors(&evened);
            assert!(centres < 0.1 && rotations < 1e-3, "{centres} {rotations}");
            assert!(capture.errors(&map).0 > 0.3, "{:?}", capture.errors(&map));

            let matches = Capture::with_matches(pairs.clone()).1;
            let input = capture.input((&pairs, &matches), capture.camera.clone(), &[]);
            let mut adjusted = adjust_start(evened, &input, &options, &Control::new()).unwrap();
            complete(&mut adjusted, &input, &options, &Control::new()).unwrap();
            assert_eq!(adjusted.registered(), 16);
            let (centres, rotations) = capture.errors(&adjusted);
            assert!(centres < 0.02 && rotations < 0.2, "{centres} {rotations}");
        }
    }

    #[test]
    fn images_in_one_spot_are_drawn_apart() {
        let (capture, pairs) = weakly_joined();
        let mut map = slipped(&capture, 1.0);
        let spot = map.poses[0].unwrap().centre();
        map.points.retain(|p| p.track.iter().all(|o| o.image >= 8));
        for pose in map.poses[..8].iter_mut().flatten() {
            *pose = Pose::from_centre(pose.rotation, &spot);
        }
        let evened = with_even_steps(&map, &pairs, false, &MapperOptions::default().even_steps).unwrap();
        assert!(capture.errors(&evened).0 < 0.1, "{:?}", capture.errors(&evened));
    }

    #[test]
    fn a_leap_is_taken_back_however_many_points_span_it() {
        let capture = Capture::walk(16, 3000, 0.3, 4);
        let mut map = capture.true_map_with_points();
        assert!(most_lone_step(&map) < 2.0);
        let leap = 15.0 * (map.poses[8].unwrap().centre() - map.poses[7].unwrap().centre());
        for pose in map.poses[8..].iter_mut().flatten() {
            *pose = Pose::from_centre(pose.rotation, &(pose.centre() + leap));
        }
        assert!(most_lone_step(&map) > 10.0);
        let (pairs, options) = (capture.pairs(4), MapperOptions::default().even_steps);
        assert!(with_even_steps(&map, &pairs, false, &options).is_none());
        let evened = with_even_steps(&map, &pairs, true, &options).unwrap();
        let (centres, rotations) = capture.errors(&evened);
        assert!(centres < 0.05 && rotations < 1e-3, "{centres} {rotations}");
    }

    #[test]
    fn stretches_that_shrank_become_as_long_as_the_others() {
        let capture = Capture::walk(16, 3000, 0.3, 4);
        let mut map = capture.true_map_with_points();
        let (pairs, options) = (capture.pairs(4), MapperOptions::default().even_steps);
        assert!(with_equal_steps(&map, &pairs, false, &options).is_none());
        assert!(with_equal_steps(&map, &pairs, true, &options).is_some());
        let spot = map.poses[5].unwrap().centre();
        let after = 0.9 * (map.poses[10].unwrap().centre() - spot);
        for pose in map.poses[6..11].iter_mut().flatten() {
            *pose = Pose::from_centre(pose.rotation, &(spot + 0.1 * (pose.centre() - spot)));
        }
        for pose in map.poses[11..].iter_mut().flatten() {
            *pose = Pose::from_centre(pose.rotation, &(pose.centre() + after));
        }
        assert!(capture.errors(&map).0 > 0.2, "{:?}", capture.errors(&map));
        let equal = with_equal_steps(&map, &pairs, false, &options).unwrap();
        let (centres, rotations) = capture.errors(&equal);
        assert!(centres < 0.1 && rotations < 1e-3, "{centres} {rotations}");
        let few = EvenStepsOptions { most_equal: 15, ..options };
        assert!(with_equal_steps(&map, &pairs, true, &few).is_none());
    }

    #[test]
    fn from_one_camera_to_another_nobody_steps() {
        let mut map = Capture::walk(24, 3000, 0.3, 4).true_map_with_points();
        let leap = Vector3::new(0.0, 0.0, 500.0);
        for pose in map.poses[12..].iter_mut().flatten() {
            *pose = Pose::from_centre(pose.rotation, &(pose.centre() + leap));
        }
        let spots = Spots::of_stations(&map.rig);
        let steps = |map: &Map| one_camera_steps(map, &spots, 1);
        let longest = |map: &Map| steps(map).into_iter().map(|step| step.1).fold(0.0, f64::max);
        assert!(steps(&map).len() == 23 && longest(&map) > 400.0);
        let of_image: Vec<usize> = (0..24).map(|i| usize::from(i >= 12)).collect();
        map.others = OtherCameras::new(vec![map.camera.clone()], &of_image);
        assert!(steps(&map).len() == 22 && longest(&map) < 1.0);
    }

    #[test]
    fn a_step_past_missing_images_is_no_leap() {
        let capture = Capture::walk(24, 3000, 0.3, 4);
        let mut map = capture.true_map_with_points();
        map.unregister(&(9..19).collect::<Vec<_>>());
        assert!(most_lone_step(&map) < 2.0, "{}", most_lone_step(&map));
    }

    #[test]
    fn a_map_that_holds_together_is_left_as_it_is() {
        let capture = Capture::walk(16, 3000, 0.3, 4);
        let map = capture.true_map_with_points();
        assert!(
            with_even_steps(&map, &capture.pairs(4), true, &MapperOptions::default().even_steps).is_none()
        );
        let mut two = map;
        two.unregister(&(2..16).collect::<Vec<_>>());
        assert!(
            with_even_steps(&two, &capture.pairs(4), true, &MapperOptions::default().even_steps).is_none()
        );
    }
}
