//! Measures all that a verdict follows from.

use crate::sfm::bundle_adjustment::BundleOptions;
use crate::sfm::even_steps::{lone_steps, one_camera_steps};
use crate::sfm::map::{Keypoints, Map};
use crate::sfm::matching::PairMatches;
use crate::sfm::path::cuts;
use crate::sfm::polishing::PrincipalPoint;
use crate::sfm::report::SfmReport;
use crate::sfm::shutter::ShutterDoubt;
use crate::sfm::spots::Spots;
use crate::sfm::steady_zoom::zoom_slopes;
use crate::sfm::support::support_of_pairs;
use crate::sfm::triangulation::Views;
use crate::sfm::two_view::TwoViewGeometry;
use crate::sfm::wide_pairs::{share_of, wide_pairs};
use crate::statistics::{MEDIAN_OF_RAYLEIGH, median};

use super::calibrated::central;
use super::evidence::{Evidence, TURNING_PAIRS};
use super::flatness::flat_points;
use super::hinges::weakest_hinge;
use super::joints::joints;
use super::overlap::overlap;
use super::pairs::agreement;
use super::residuals::bias;
use super::shown_steps::over_shown_steps;
use super::spread::{ClusterSpread, centre_spread, extra_spread, path, spreads};
use super::stillness::stillness;
use super::turning::turning_excess;
use super::zoom::{steady_zoom, zoom};

/// Homography inliers over all inliers from which a pair shows no depth.
const FLAT_PAIR: f64 = 0.9;
/// What cannot be computed counts as this many radii of the path off, and no more is said of what can.
const LARGEST: f64 = 10.0;
/// The same of rotations, degrees.
const LARGEST_ANGLE: f64 = 180.0;
/// Errors that are so many times as large say that it is not so.
const LARGEST_EXCESS: f64 = 1e6;
/// A step past missing frames counts as so many steps at most: of a path whose parts have come apart the frames between them are often the
/// ones that are missing, and the more these are, the smaller would the leap over them be.
const MOST_MISSING: usize = 3;

/// A finished map and what it was made of.
pub(crate) struct Judged<'a> {
    /// The map at the minimum of its last adjustment, with the observations that took part.
    pub(crate) adjusted: &'a Map,
    /// The same poses with all points that fit them.
    pub(crate) complete: &'a Map,
    pub(crate) keypoints: &'a Keypoints,
    /// How it was adjusted.
    pub(crate) bundle: &'a BundleOptions,
    /// Standard deviation of the principal point's prior, pixels.
    pub(crate) centre_prior: f64,
    /// What became of the principal point; `None` where it was not asked for.
    pub(crate) centre: Option<PrincipalPoint>,
    /// The prior and what became of the principal point, by camera beside the one that made most images.
    pub(crate) other_centres: &'a [(f64, Option<PrincipalPoint>)],
    /// What is not known of a rolling shutter; `None` where there is none or it is known.
    pub(crate) shutter: Option<&'a ShutterDoubt>,
    /// Candidate matches.
    pub(crate) matches: &'a [PairMatches],
    /// Verified pairs, found without a focal length.
    pub(crate) verified: &'a [TwoViewGeometry],
    /// Pairs with relative poses.
    pub(crate) pairs: &'a [TwoViewGeometry],
    /// Largest distance from the epipolar plane at which a match agrees, pixels.
    pub(crate) max_epipolar_error: f64,
    /// Whether the images are in the order of the path.
    pub(crate) is_ordered: bool,
    /// Whether they are of a video: chosen at equal motion where it has more frames than were wanted.
    pub(crate) is_video: bool,
    pub(crate) report: &'a SfmReport,
}

/// Expected errors of a frame by spread alone: rotation (degrees) and place (share of the radius).
pub(super) type FrameSpread = (f64, f64);

/// The figures, and the spread of every registered frame.
pub(super) fn gather(judged: &Judged<'_>) -> (Evidence, Vec<FrameSpread>) {
    let Judged { adjusted, complete, keypoints, report, .. } = *judged;
    let (_, radius) = path(complete);
    let found = spreads(adjusted, keypoints, judged.bundle).unwrap_or_default();
    let of = |k: usize, what: fn(&ClusterSpread) -> f64, largest: f64| {
        found.get(k).map_or(largest, what).min(largest)
    };
    let registered = adjusted.registered();
    let frames = (0..registered)
        .map(|i| {
            let worst = |what: fn(&(f64, f64)) -> f64| {
                found.iter().filter_map(|f| f.frames.get(i)).map(what).fold(0.0, f64::max)
            };
            if found.is_empty() { (LARGEST_ANGLE, LARGEST) } else { (worst(|f| f.0), worst(|f| f.1)) }
        })
        .collect();
    let centre = centre(judged).unwrap_or_default();
    let others = other_centres(judged);
    let views = Views::new(adjusted, keypoints);
    let mut errors: Vec<f64> = Vec::with_capacity(adjusted.observations());
    for point in &adjusted.points {
        errors.extend(point.track.iter().map(|o| views.squared_error(o, &point.xyz).sqrt()));
    }
    let noise = median(&mut errors).unwrap_or(0.0) / MEDIAN_OF_RAYLEIGH;
    let bias = bias(adjusted, keypoints, (5.0 * noise).max(1.0));
    let support = support_of_pairs(complete, keypoints, judged.pairs, judged.max_epipolar_error);
    let agreement = agreement(complete, judged.pairs, &support);
    let still = stillness(complete, keypoints, judged.matches);
    // The sides of panoramas have no lens that could zoom.
    let has_lens = !adjusted.rig.is_panoramic();
    let steady =
        (judged.is_ordered && has_lens).then(|| steady_zoom(adjusted, keypoints, judged.bundle)).flatten();
    let steady = steady.unwrap_or_default();
    let zoomed = zoom_slopes(adjusted, keypoints);
    let zoomed = (steady.deviation > 0.0)
        .then(|| extra_spread(adjusted, keypoints, judged.bundle, &zoomed))
        .flatten()
        .unwrap_or_default();
    let most_zoom = steady.change.hypot(steady.deviation);
    let rolled = judged.shutter.and_then(|s| extra_spread(adjusted, keypoints, judged.bundle, &s.slopes));
    let shutter = judged.shutter.filter(|_| rolled.is_some());
    let rolled = rolled.unwrap_or_default();
    let stations = Spots::of_stations(&adjusted.rig);
    let bursts = (!judged.is_video).then(|| Spots::of_photographs(&adjusted.rig, judged.pairs));
    let spots = bursts.as_ref().unwrap_or(&stations);
    let cuts = if judged.is_ordered { cuts(&adjusted.rig, spots, judged.verified) } else { Vec::new() };
    let overlap = overlap(complete, judged.matches, &cuts);
    let joints = joints(complete, spots, judged.is_ordered);
    // Where the camera turns, parallax may be an illusion, and excuses no step.
    let shows_steps = judged.is_video && report.rotation_only_pairs <= TURNING_PAIRS;
    let over_shown = if shows_steps { over_shown_steps(complete, judged.pairs) } else { Vec::new() };
    let (largest_step, farthest_step) =
        if judged.is_ordered { largest_steps(adjusted, spots, &over_shown) } else { (0.0, 0.0) };
    // An adjustment of its own, which would take a tenth of all the time of a sound capture.
    let may_only_turn = report.rotation_only_pairs > TURNING_PAIRS;
    let turning = may_only_turn.then(|| turning_excess(adjusted, keypoints, judged.bundle)).flatten();
    let is_flat = |p: &TwoViewGeometry| p.homography_inliers as f64 >= FLAT_PAIR * p.inliers.len() as f64;
    let evidence = Evidence {
        frames: report.frames,
        registered: registered as f64 / expected_frames(report.frames, adjusted.strays().count()) as f64,
        few_observations: report.few_observations as f64,
        parallax_degrees: report.median_parallax_degrees,
        relative_radius: relative_radius(complete, radius),
        noise,
        rotation_spread: std::array::from_fn(|k| of(k, |s| s.rotation, LARGEST_ANGLE)),
        position_spread: std::array::from_fn(|k| of(k, |s| s.position, LARGEST)),
        centre_rotation: centre.rotation.min(LARGEST_ANGLE),
        centre_position: centre.position.min(LARGEST),
        centre_is_refined: report.principal_point_refined,
        other_centres_rotation: others.0.min(LARGEST_ANGLE),
        other_centres_position: others.1.min(LARGEST),
        // Slopes are for a second.
        shutter_rotation: (1e-3 * rolled.rotation).min(LARGEST_ANGLE),
        shutter_position: (1e-3 * rolled.position).min(LARGEST),
        shutter_ms: shutter.map_or(0.0, |s| 1e3 * s.seconds),
        shutter_deviation_ms: shutter.map_or(0.0, |s| 1e3 * s.deviation),
        shutter_is_corrected: shutter.is_some_and(|s| s.is_corrected),
        focal_spread: (0..5).map(|k| of(k, |s| s.focal, LARGEST)).fold(0.0, f64::max),
        lens_bias: bias.lens,
        patch_bias: bias.patches,
        pair_rotation: agreement.rotation,
        pair_rotation_tail: agreement.rotation_tail,
        contradicting_pairs: agreement.contradicting,
        agreeing_matches: report.agreeing_matches,
        worst_frame_agreement: agreement.worst_image,
        moving_pairs: still.pairs,
        still_area: still.area,
        still_border: still.border,
        still_pairs: still.share,
        flat_points: flat_points(complete),
        flat_pairs: share_of(&wide_pairs(judged.verified, &adjusted.camera), is_flat),
        rotation_only_pairs: report.rotation_only_pairs,
        turning_excess: turning.unwrap_or(0.0).min(LARGEST_EXCESS),
        largest_step,
        farthest_step,
        lone_step: if judged.is_video { lone_step(adjusted, &over_shown) } else { 0.0 },
        zoom: if has_lens { zoom(adjusted, keypoints, judged.bundle.loss) } else { 0.0 },
        zoom_change: steady.change.clamp(-LARGEST, LARGEST),
        zoom_deviation: steady.deviation.min(LARGEST),
        zoom_rotation: (most_zoom * zoomed.rotation).min(LARGEST_ANGLE),
        zoom_position: (most_zoom * zoomed.position).min(LARGEST),
        weakest_step: joints.weakest_step,
        weakest_hinge: weakest_hinge(complete),
        near_pairs: joints.near,
        missing_overlap: joints.missing,
        pairs_across_cuts: overlap.pairs,
        common_across_cuts: overlap.expected,
        shared_across_cuts: overlap.shared / overlap.expected.max(1.0),
    };
    (evidence, frames)
}

/// Of how many frames a model should be. Pictures by other cameras are no fault of it, unless most of the capture is theirs.
fn expected_frames(frames: usize, strays: usize) -> usize {
    if 2 * strays > frames { frames } else { (frames - strays).max(1) }
}

/// [`Evidence::largest_step`] and [`Evidence::farthest_step`]. The second tells of cameras that turned on the spot, where a parallax may
/// be an illusion: it is not held against what the pictures show.
fn largest_steps(map: &Map, spots: &Spots, over_shown: &[f64]) -> (f64, f64) {
    (largest_step(map, spots, MOST_MISSING, over_shown), largest_step(map, spots, 1, &[]))
}

/// The largest step from a spot with a pose to the next over the median one, or over what the pictures show of it if that is less, as
/// `over_shown` says by station, as far as it goes. Past missing spots it counts as so many, but as no more than `most`, and nobody
/// went from where one camera was to where another began.
fn largest_step(map: &Map, spots: &Spots, most: usize, over_shown: &[f64]) -> f64 {
    let steps = one_camera_steps(map, spots, most);
    let mut lengths: Vec<f64> = steps.iter().map(|step| step.1).collect();
    let Some(usual) = median(&mut lengths).filter(|&usual| usual > 0.0) else { return 0.0 };
    let longer = steps.iter().map(|&(from, length)| (map.rig.station_of(from), length / usual));
    largest_unshown(longer, over_shown)
}

/// [`Evidence::lone_step`].
fn lone_step(map: &Map, over_shown: &[f64]) -> f64 {
    largest_unshown(lone_steps(map).into_iter(), over_shown)
}

/// The largest of steps, by the station where each begins over a usual one, none of which counts for more than it is over what the
/// pictures show of it.
fn largest_unshown(longer: impl Iterator<Item = (usize, f64)>, over_shown: &[f64]) -> f64 {
    let unshown =
        |(from, longer): (usize, f64)| over_shown.get(from).map_or(longer, |&over| longer.min(over));
    longer.map(unshown).fold(0.0, f64::max).min(1e6)
}

/// What a principal point does that is off by as much as it may. One that was left in the middle of the picture may be where
/// the capture would put it, and as far from there as the capture does not know; one that was refined is off by its
/// deviation.
fn centre(judged: &Judged<'_>) -> Option<ClusterSpread> {
    let Judged { adjusted, keypoints, report, centre_prior, .. } = *judged;
    if adjusted.rig.is_panoramic() {
        return None; // the middle of a side is where it is by definition
    }
    let axes = judged.centre.and_then(|c| c.axes).unwrap_or([(0.0, centre_prior); 2]);
    let pixels = may_be_off(axes, centre_prior, report.principal_point_refined);
    let mut free = judged.bundle.clone();
    free.intrinsics.principal_point = Some(centre_prior);
    centre_spread(adjusted, keypoints, &free, 0, pixels)
}

/// The same of all other cameras together: rotations (degrees) and places (share of the radius). Of one that was left in the middle
/// as much counts as of the first.
fn other_centres(judged: &Judged<'_>) -> (f64, f64) {
    let Judged { adjusted, keypoints, .. } = *judged;
    let of_camera = |(k, &(prior, centre)): (usize, &(f64, Option<PrincipalPoint>))| {
        let centre = centre?;
        let pixels = may_be_off(centre.axes.unwrap_or([(0.0, prior); 2]), prior, centre.refined);
        let mut free = judged.bundle.clone();
        *free.other_centres.get_mut(k)? = Some(prior);
        let share = central(centre.refined);
        let spread = centre_spread(adjusted, keypoints, &free, k + 1, pixels)?;
        Some((share * spread.rotation, share * spread.position))
    };
    let all = judged.other_centres.iter().enumerate().filter_map(of_camera);
    all.fold((0.0, 0.0), |sum, of| (f64::hypot(sum.0, of.0), f64::hypot(sum.1, of.1)))
}

/// By how many pixels a principal point may be off, across and down: `axes` are how far it was from the middle when it was free, and
/// the standard deviation of that.
fn may_be_off(axes: [(f64, f64); 2], prior: f64, is_refined: bool) -> [f64; 2] {
    axes.map(|(shift, deviation)| {
        let deviation = deviation.min(prior);
        if is_refined { deviation } else { shift.hypot(deviation) }
    })
}

/// Radius of the path over the median distance of a point from a camera that sees it.
fn relative_radius(map: &Map, radius: f64) -> f64 {
    let mut distances: Vec<f64> = Vec::with_capacity(map.points.len());
    for point in &map.points {
        let nearest = point.track.first().and_then(|o| map.poses[o.image as usize]);
        distances.extend(nearest.map(|pose| (pose.centre() - point.xyz).norm()));
    }
    median(&mut distances).filter(|&d| d > 0.0).map_or(0.0, |d| radius / d)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::camera::Pose;
    use crate::sfm::synthetic::Capture;
    use crate::sfm::verdict::Verdict;
    use crate::sfm::verdict::statement::{Doubt, Grade};

    /// What a model whose path has these steps is worth, if a turn on the spot explains most pairs.
    fn grade_of_turning((largest_step, farthest_step): (f64, f64)) -> Grade {
        let weakest_hinge = 1000;
        let (rotation_only_pairs, figures) = (0.55, Evidence::default());
        Verdict::of(Evidence { rotation_only_pairs, largest_step, farthest_step, weakest_hinge, ..figures })
            .grade
    }

    #[test]
    fn parts_that_came_apart_where_frames_are_missing_are_told() {
        let mut map = Capture::walk(100, 3000, 0.3, 4).true_map_with_points();
        let spots = Spots::of_stations(&map.rig);
        let step = |map: &Map, most: usize| largest_step(map, &spots, most, &[]);
        let is_loose = |map: &Map| {
            let (largest_step, farthest_step) = (step(map, MOST_MISSING), step(map, 1));
            let evidence =
                Evidence { largest_step, farthest_step, weakest_hinge: 1000, ..Evidence::default() };
            Verdict::of(evidence).reasons.iter().any(|reason| reason.doubt == Doubt::LooseParts)
        };
        map.unregister(&(45..58).collect::<Vec<_>>());
        assert!(!is_loose(&map) && step(&map, 1) > 10.0, "{}", step(&map, 1));
        let leap = nalgebra::Vector3::new(300.0 * 0.4, 0.0, 0.0);
        for pose in map.poses[58..].iter_mut().flatten() {
            *pose = Pose::from_centre(pose.rotation, &(pose.centre() + leap));
        }
        assert!(is_loose(&map), "{} {}", step(&map, MOST_MISSING), step(&map, usize::MAX));
    }

    #[test]
    fn to_walk_on_where_frames_are_missing_breaks_no_capture_of_turns() {
        let mut map = Capture::walk(100, 3000, 0.3, 4).true_map_with_points();
        let spots = Spots::of_stations(&map.rig);
        map.unregister(&(45..58).collect::<Vec<_>>());
        // Before and after, somebody looked around and hardly moved.
        let hinges = [44, 58].map(|i| map.poses[i].unwrap().centre());
        for (i, pose) in map.poses.iter_mut().enumerate() {
            let hinge = hinges[usize::from(i >= 58)];
            *pose = pose.map(|p| Pose::from_centre(p.rotation, &(hinge + 0.1 * (p.centre() - hinge))));
        }
        let steps = largest_steps(&map, &spots, &[]);
        assert!(steps.1 > 100.0, "{steps:?}");
        assert_eq!(grade_of_turning(steps), Grade::Doubtful, "{steps:?}");
        // As far as parts are apart that turns on the spot leave.
        let leap = nalgebra::Vector3::new(600.0 * 0.04, 0.0, 0.0);
        for pose in map.poses[58..].iter_mut().flatten() {
            *pose = Pose::from_centre(pose.rotation, &(pose.centre() + leap));
        }
        let steps = largest_steps(&map, &spots, &[]);
        assert_eq!(grade_of_turning(steps), Grade::Broken, "{steps:?}");
    }

    #[test]
    fn steps_within_a_burst_are_no_steps_of_the_path() {
        let capture = Capture::bursts(24, 3000, 0.0, 4);
        let map = capture.true_map_with_points();
        let steps = |spots: &Spots| largest_steps(&map, spots, &[]);
        let (largest, farthest) = steps(&Spots::of_stations(&map.rig));
        assert!(largest > 1000.0 && farthest > 1000.0);
        let of_bursts = steps(&Spots::of_photographs(&map.rig, &capture.pairs(8)));
        assert!(of_bursts.0 < 5.0 && of_bursts.1 < 5.0, "{of_bursts:?}");
        assert_eq!(grade_of_turning(of_bursts), Grade::Doubtful);
    }

    /// What is said of the steps of a film, if its pictures show what these pairs say.
    fn steps_of_film(map: &Map, pairs: &[TwoViewGeometry]) -> [f64; 2] {
        let over_shown = over_shown_steps(map, pairs);
        let (largest, _) = largest_steps(map, &Spots::of_stations(&map.rig), &over_shown);
        [largest, lone_step(map, &over_shown)]
    }

    #[test]
    fn who_waits_and_goes_on_by_turns_does_not_jump() {
        let capture = Capture::stop_and_go(12, 12_000, 0.0, 4);
        let map = capture.true_map_with_points();
        let raw = steps_of_film(&map, &[]);
        assert!(raw.iter().all(|step| *step > 20.0), "the example is too easy: {raw:?}");
        let steps = steps_of_film(&map, &capture.pairs(2));
        assert!(steps.iter().all(|step| *step < 4.0), "{steps:?}");
    }

    #[test]
    fn a_jump_is_told_among_waits_and_steps() {
        let capture = Capture::stop_and_go(12, 12_000, 0.0, 4);
        let pairs = capture.pairs(2);
        // Between a step and the next one, and within a wait.
        for last in [5 * 6 + 5, 5 * 6 + 2] {
            let mut map = capture.true_map_with_points();
            let leap = nalgebra::Vector3::new(15.0 * 0.4, 0.0, 0.0);
            // What no frame before it sees leaps along.
            for point in map.points.iter_mut().filter(|p| p.track[0].image as usize > last) {
                point.xyz += leap;
            }
            for pose in map.poses[last + 1..].iter_mut().flatten() {
                *pose = Pose::from_centre(pose.rotation, &(pose.centre() + leap));
            }
            let [largest_step, lone_step] = steps_of_film(&map, &pairs);
            let evidence = Evidence { largest_step, lone_step, weakest_hinge: 1000, ..Evidence::default() };
            let reasons = Verdict::of(evidence).reasons;
            let is_told = reasons.iter().any(|reason| reason.doubt == Doubt::LooseParts);
            assert!(is_told, "{last}: {largest_step} {lone_step}");
        }
    }
}
