//! What the order of the frames says about a map.
//!
//! Things that look alike from several sides (a box, a quadcopter, two doors) make pairs of pictures that agree in
//! every match and are wrong all the same: a stretch of the video is folded onto another. Nothing inside the stretch
//! tells; but where it begins and ends, neighbours in time, which see nearly the same, contradict the map. So
//! neighbours are asked at every step of the path. Where they contradict the map, the path is trusted first: rotations
//! along it, then those pairs of distant frames that fit them.

use std::borrow::Cow;
use std::collections::BTreeSet;

use crate::control::Control;
use crate::error::Result;

use super::front_end::absolute_rotations;
use super::matching::PairMatches;
use super::other_cameras::OtherCameras;
use super::rig::Rig;
use super::spots::Spots;
use super::support::Support;
use super::two_view::TwoViewGeometry;
use crate::statistics::median;

/// Pairs of frames up to this far apart say whether the path holds together between them.
const NEIGHBOURS: usize = 4;
/// Fewer matches across a step say nothing.
const MIN_MATCHES: usize = 50;
/// A step is broken if a smaller fraction of the matches across it agrees with the map.
const MIN_AGREEING: f64 = 0.4;
/// It is broken beyond doubt, which no later adjustment mends, if the fraction is smaller than this. Chosen by hand.
const MIN_HEALING: f64 = 0.2;
/// A path is torn between stretches of this many steps or more. Chosen by hand.
const FEWEST_STEPS: usize = 8;
/// A film is cut where its neighbours share less than this part of what they usually do. A hand that turns away quickly
/// leaves more. Chosen by hand.
const CUT: f64 = 0.15;
/// Frames up to this far apart are taken to see the same side of things.
const CHAIN: usize = 16;
/// Pairs of frames that contradict the rotations along the path by more than this (radians) join things that only look
/// alike. Rotations drift by tenths of a degree per frame; objects repeat themselves after a turn of 45 degrees or
/// more.
const MAX_LOOP_ANGLE: f64 = 0.5;
/// Pictures of which this fraction has a neighbour in the list among its best partners are in the order of the path.
const ORDERED: f64 = 0.8;
/// Partners of a picture, by number of inliers, that are asked for this.
const BEST_PARTNERS: usize = 3;

/// Whether neighbours in the list are neighbours on the camera's path, by what matches best.
pub(crate) fn is_ordered(rig: &Rig, pairs: &[TwoViewGeometry]) -> bool {
    let (stations, spots) = (rig.stations(), Spots::of_photographs(rig, pairs));
    let mut partners = vec![Vec::new(); stations];
    for p in pairs {
        let (first, second) = stations_of(rig, p);
        // Pictures of one spot match best, in whatever order the spots are.
        if first != second && spots.of(first) == spots.of(second) {
            continue;
        }
        partners[first].push((p.inliers.len(), second));
        partners[second].push((p.inliers.len(), first));
    }
    let beside_best = |(i, of): (usize, &mut Vec<(usize, usize)>)| {
        of.sort_unstable_by(|a, b| b.cmp(a));
        of.iter().take(BEST_PARTNERS).any(|&(_, j)| spots.of(i).abs_diff(spots.of(j)) == 1)
    };
    let ordered = partners.iter_mut().enumerate().map(beside_best).filter(|&b| b).count();
    spots.count() > 2 * BEST_PARTNERS && ordered as f64 >= ORDERED * stations as f64
}

/// The stations of a pair, which are in the order of its images.
fn stations_of(rig: &Rig, pair: &TwoViewGeometry) -> (usize, usize) {
    (rig.station_of(pair.first as usize), rig.station_of(pair.second as usize))
}

/// The stations of a pair that is near enough on the path to say whether this holds together between them.
fn neighbours(rig: &Rig, pair: &TwoViewGeometry) -> Option<std::ops::Range<usize>> {
    let (first, second) = stations_of(rig, pair);
    (second - first <= NEIGHBOURS).then_some(first..second)
}

/// Steps of the path (`k`: from image `k` to the next, of another station) across which neighbours by one camera contradict
/// the map. `others` says which camera made an image, `support` is that of `pairs`.
pub(crate) fn broken_steps(
    rig: &Rig,
    others: &OtherCameras,
    pairs: &[TwoViewGeometry],
    support: &[Support],
) -> Vec<usize> {
    steps_below(MIN_AGREEING, rig, others, pairs, support)
}

/// Those that are broken beyond doubt, in a map that is only rough: few of them. Where many are, all of the map is not right yet.
pub(crate) fn clearly_broken_steps(
    rig: &Rig,
    others: &OtherCameras,
    pairs: &[TwoViewGeometry],
    support: &[Support],
) -> Vec<usize> {
    let steps = steps_below(MIN_HEALING, rig, others, pairs, support);
    if steps.len() * FEWEST_STEPS > rig.stations() { Vec::new() } else { steps }
}

/// Those that rotations break with which only these of all `pairs` are `consistent`.
pub(crate) fn steps_broken_by_rotations(
    rig: &Rig,
    others: &OtherCameras,
    pairs: &[TwoViewGeometry],
    consistent: &[TwoViewGeometry],
) -> Vec<usize> {
    let kept: BTreeSet<(u32, u32)> = consistent.iter().map(|p| (p.first, p.second)).collect();
    let support = |p: &TwoViewGeometry| {
        let agreeing = if kept.contains(&(p.first, p.second)) { p.inliers.len() } else { 0 };
        Support { matches: p.inliers.len(), agreeing }
    };
    clearly_broken_steps(rig, others, pairs, &pairs.iter().map(support).collect::<Vec<_>>())
}

/// Steps across which less than this fraction of the matches of neighbours by one camera agrees with the map.
fn steps_below(
    least: f64,
    rig: &Rig,
    others: &OtherCameras,
    pairs: &[TwoViewGeometry],
    support: &[Support],
) -> Vec<usize> {
    let mut across = vec![Support::default(); rig.stations().saturating_sub(1)];
    for (pair, s) in pairs.iter().zip(support) {
        // Nobody walked from where one clip ends to where the next begins: its first frames may be anywhere.
        let is_by_one = others.index(pair.first as usize) == others.index(pair.second as usize);
        let Some(between) = neighbours(rig, pair).filter(|_| is_by_one) else { continue };
        for step in &mut across[between] {
            step.matches += s.matches;
            step.agreeing += s.agreeing;
        }
    }
    let broken = |s: &Support| s.matches >= MIN_MATCHES && s.ratio() < least;
    let suspects: Vec<usize> = (0..across.len()).filter(|&k| broken(&across[k])).collect();
    // Pairs across a broken step lie across its neighbours too: of a run of steps the worst one is meant.
    let worst =
        |run: &[usize]| run.iter().copied().min_by(|&a, &b| across[a].ratio().total_cmp(&across[b].ratio()));
    suspects.chunk_by(|a, b| b - a == 1).filter_map(worst).map(|k| rig.images_of(k).end - 1).collect()
}

/// Steps of the path (`k`: from image `k` to the next, of another spot) across which neighbours share next to nothing, of
/// the `verified` pairs: where a film was cut. What lies on either side may be one place or two.
pub(crate) fn cuts(rig: &Rig, spots: &Spots, verified: &[TwoViewGeometry]) -> Vec<usize> {
    let mut across = vec![0.0; spots.count().saturating_sub(1)];
    for pair in verified {
        let (first, second) = stations_of(rig, pair);
        let between = spots.of(first)..spots.of(second);
        if between.len() > NEIGHBOURS {
            continue;
        }
        for step in &mut across[between] {
            *step += pair.inliers.len() as f64;
        }
    }
    let least = CUT * median(&mut across.clone()).unwrap_or(0.0);
    let suspects: Vec<usize> = (0..across.len()).filter(|&k| across[k] < least).collect();
    let worst = |run: &[usize]| run.iter().copied().min_by(|&a, &b| across[a].total_cmp(&across[b]));
    suspects.chunk_by(|a, b| b - a == 1).filter_map(worst).map(|k| spots.last_image(rig, k)).collect()
}

/// Whether one of the `cuts` is between two images.
pub(crate) fn is_cut_between(cuts: &[usize], first: u32, second: u32) -> bool {
    let (first, second) = (first.min(second) as usize, first.max(second) as usize);
    cuts.iter().any(|cut| (first..second).contains(cut))
}

/// Pairs and matches that a mapper may use.
pub(crate) struct Trusted<'a> {
    /// Verified pairs with relative poses.
    pub(crate) pairs: Cow<'a, [TwoViewGeometry]>,
    /// Candidate matches.
    pub(crate) matches: Cow<'a, [PairMatches]>,
}

/// The pairs that fit the rotations along the path, and the matches without those of pairs that do not.
///
/// # Errors
/// As [`absolute_rotations`].
pub(crate) fn fitting_the_path(
    rig: &Rig,
    pairs: &[TwoViewGeometry],
    matches: &[PairMatches],
    control: &Control,
) -> Result<Trusted<'static>> {
    let near = |p: &&TwoViewGeometry| {
        let (first, second) = stations_of(rig, p);
        second - first <= CHAIN
    };
    let mut chain: Vec<TwoViewGeometry> = pairs.iter().filter(near).cloned().collect();
    let rotations = absolute_rotations(rig, &mut chain, control)?;
    let fits = |p: &TwoViewGeometry| {
        let (a, b) = (rotations[p.first as usize], rotations[p.second as usize]);
        let along = a.zip(b).map(|(a, b)| b * a.inverse());
        let pair = p.second_from_first.map(|pose| pose.rotation);
        // Where the path does not tell, the pair is believed.
        along.zip(pair).is_none_or(|(along, pair)| along.angle_to(&pair) <= MAX_LOOP_ANGLE)
    };
    let (fitting, unfit): (Vec<_>, Vec<_>) = pairs.iter().partition(|p| fits(p));
    let unfit: BTreeSet<(u32, u32)> = unfit.into_iter().map(|p| (p.first, p.second)).collect();
    let matches = matches.iter().filter(|m| !unfit.contains(&(m.first, m.second))).cloned().collect();
    Ok(Trusted { pairs: fitting.into_iter().cloned().collect(), matches: Cow::Owned(matches) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sfm::completion::complete;
    use crate::sfm::global_mapper::map_globally;
    use crate::sfm::map::Map;
    use crate::sfm::mapper_options::MapperOptions;
    use crate::sfm::support::support_of_pairs;
    use crate::sfm::synthetic::Capture;

    /// A full turn whose frames 2 to 13 are mistaken for the opposite side.
    fn folded() -> (Capture, Vec<TwoViewGeometry>) {
        let capture = Capture::turn(60, 3000, 0.4, 3);
        let mut pairs = capture.pairs(4);
        pairs.extend(capture.mistaken_pairs(2..14, 6));
        pairs.sort_by_key(|p| (p.first, p.second));
        (capture, pairs)
    }

    #[test]
    fn a_folded_map_is_broken_where_the_fold_begins_and_ends() {
        let (capture, pairs) = folded();
        let steps_of = |map: &Map, others: &OtherCameras| {
            let support = support_of_pairs(map, &capture.keypoints, &pairs, 8.0);
            broken_steps(&capture.rig, others, &pairs, &support)
        };
        let steps = |map: &Map| steps_of(map, &capture.others);
        let mut map = capture.true_map();
        assert_eq!(steps(&map), Vec::<usize>::new());
        (10..20).for_each(|i| map.poses[i] = Some(capture.behind(i)));
        assert_eq!(steps(&map), vec![9, 19]);
        // Two cameras that took turns went the same way.
        let in_turns: Vec<usize> = (0..60).map(|i| i % 2).collect();
        let in_turns = OtherCameras::new(vec![capture.camera.clone()], &in_turns);
        assert_eq!(steps_of(&map, &in_turns), vec![9, 19]);
        // A frame left out does not hide the step.
        map.poses[10] = None;
        assert_eq!(steps(&map), vec![9, 19]);
    }

    #[test]
    fn from_one_clip_to_the_next_no_step_is_broken() {
        let capture = Capture::walk(24, 3000, 0.3, 4);
        let is_joined = |p: &TwoViewGeometry| p.first < 12 && p.second >= 12;
        let mut pairs = capture.pairs(4);
        // All that the end of the first clip and the beginning of the second seem to share is mistaken.
        pairs.retain(|p| !is_joined(p) || p.first >= 10 && p.second < 14);
        for pair in pairs.iter_mut().filter(|p| is_joined(p)) {
            let [first, second] = [pair.first, pair.second].map(|i| capture.keypoints[i as usize].len());
            let most = first.min(second) as u32;
            pair.inliers = (0..most).map(|k| [k, most - 1 - k]).collect();
        }
        let support = support_of_pairs(&capture.true_map(), &capture.keypoints, &pairs, 8.0);
        let steps = |others: &OtherCameras| {
            let broken = broken_steps(&capture.rig, others, &pairs, &support);
            [broken, clearly_broken_steps(&capture.rig, others, &pairs, &support)]
        };
        assert_eq!(steps(&capture.others), [[11], [11]], "the example is too easy");
        let of_image: Vec<usize> = (0..24).map(|i| usize::from(i >= 12)).collect();
        let clips = OtherCameras::new(vec![capture.camera.clone()], &of_image);
        assert_eq!(steps(&clips), [Vec::<usize>::new(), Vec::new()]);
    }

    #[test]
    fn rotations_that_contradict_the_neighbours_of_a_step_break_it() {
        let (capture, pairs) = folded();
        let across = |p: &TwoViewGeometry, step: u32| p.first <= step && step < p.second;
        let without = |steps: &[u32]| {
            let kept =
                pairs.iter().filter(|p| p.second - p.first > 4 || !steps.iter().any(|&s| across(p, s)));
            kept.cloned().collect::<Vec<_>>()
        };
        let broken =
            |steps: &[u32]| steps_broken_by_rotations(&capture.rig, &capture.others, &pairs, &without(steps));
        assert_eq!(broken(&[]), Vec::<usize>::new());
        assert_eq!(broken(&[20, 40]), vec![20, 40]);
        // Where nearly everything contradicts, the path is not what is wrong.
        assert_eq!(broken(&(0..59).step_by(5).collect::<Vec<_>>()), Vec::<usize>::new());
    }

    #[test]
    fn a_fold_is_undone_by_trusting_the_path() {
        let (capture, pairs) = folded();
        let (_, matches) = capture.pairs_and_matches(4);
        let (control, options) = (Control::new(), MapperOptions::default());
        let map = |pairs: &[TwoViewGeometry], matches: &[PairMatches]| {
            let mut consistent = pairs.to_vec();
            let rotations = absolute_rotations(&capture.rig, &mut consistent, &control).unwrap();
            let input = capture.input((&consistent, matches), capture.camera.clone(), &rotations);
            let mut map = map_globally(&input, &options, 0, &control).unwrap();
            complete(&mut map, &input, &options, &control).unwrap();
            map
        };
        let steps = |map: &Map| {
            let support = support_of_pairs(map, &capture.keypoints, &pairs, 8.0);
            broken_steps(&capture.rig, &capture.others, &pairs, &support)
        };
        assert!(!steps(&map(&pairs, &matches)).is_empty(), "the example is too easy");
        let trusted = fitting_the_path(&capture.rig, &pairs, &matches, &control).unwrap();
        let map = map(&trusted.pairs, &trusted.matches);
        assert_eq!(steps(&map), Vec::<usize>::new());
        assert_eq!(map.registered(), 60);
        let (centres, rotations) = capture.errors(&map);
        assert!(centres < 0.02 && rotations < 0.5, "{centres} {rotations}");
    }

    #[test]
    fn the_order_of_a_path_is_seen_in_what_matches_best() {
        let capture = Capture::orbit(30, 900, 0.0, 4);
        let pairs = capture.pairs(8);
        assert!(is_ordered(&Rig::of_single_images(30), &pairs));
        let shuffled: Vec<TwoViewGeometry> = pairs
            .into_iter()
            .map(|p| {
                let (a, b) = (7 * p.first % 30, 7 * p.second % 30);
                TwoViewGeometry { first: a.min(b), second: a.max(b), ..p }
            })
            .collect();
        assert!(!is_ordered(&Rig::of_single_images(30), &shuffled));
    }

    #[test]
    fn bursts_are_in_the_order_of_their_spots() {
        let capture = Capture::bursts(24, 3000, 0.0, 4);
        let pairs = capture.pairs(8);
        assert!(is_ordered(&capture.rig, &pairs));
        let shuffled: Vec<TwoViewGeometry> = pairs
            .into_iter()
            .map(|p| {
                let place = |image: u32| 3 * (7 * (image / 3) % 24) + image % 3;
                let (a, b) = (place(p.first), place(p.second));
                TwoViewGeometry { first: a.min(b), second: a.max(b), ..p }
            })
            .collect();
        assert!(!is_ordered(&capture.rig, &shuffled));
    }

    #[test]
    fn from_spot_to_spot_nothing_is_cut_though_pictures_of_one_spot_share_more() {
        let pair = |first: u32, second: u32| {
            let (matches, median_parallax) = if first / 3 == second / 3 { (1000, 0.001) } else { (30, 0.1) };
            let inliers = vec![[0, 0]; matches];
            TwoViewGeometry { inliers, median_parallax, ..TwoViewGeometry::degenerate(first, second) }
        };
        let of = |i: u32| (i + 1..(3 * (i / 3 + 2)).min(24)).map(move |j| (i, j));
        let pairs: Vec<TwoViewGeometry> = (0..24).flat_map(of).map(|(i, j)| pair(i, j)).collect();
        let rig = Rig::of_single_images(24);
        assert!(!cuts(&rig, &Spots::of_stations(&rig), &pairs).is_empty(), "the example is too easy");
        let spots = Spots::of_photographs(&rig, &pairs);
        assert_eq!(cuts(&rig, &spots, &pairs), Vec::<usize>::new());
        let joined = |p: &TwoViewGeometry| (p.first < 12) == (p.second < 12);
        let apart: Vec<TwoViewGeometry> = pairs.into_iter().filter(joined).collect();
        assert_eq!(cuts(&rig, &spots, &apart), [11]);
    }
}
