//! Whether clips that were joined show one place: what both see of it they must also have in common.
//!
//! Two rooms alike (a room and the same as in a mirror, the next storey) join by what they share, and all that was
//! matched agrees. What was not matched tells: points of one clip that lie before a frame of the other, seen from nearly
//! the same side and distance, and were not found there. Within a clip it is known how many are found again at such an
//! angle, so that texture, noise and lens do not matter.

use nalgebra::Vector3;

use crate::camera::Pose;
use crate::sfm::map::Map;
use crate::sfm::matching::PairMatches;
use crate::sfm::path::is_cut_between;

/// Angles between the two rays of a point, up to which they are counted together, radians: 3, 6, 10, 15, 22 degrees.
const ANGLES: [f64; 5] = [0.052, 0.105, 0.175, 0.262, 0.384];
/// A point is as large in both pictures if its distances differ by no more than this factor.
const AS_FAR: f64 = 1.5;
/// It lies this share of the picture's sides within their borders.
const MARGIN: f64 = 0.03;
/// With fewer points at an angle within the clips nothing is known of it.
const LEAST: f64 = 30.0;
/// Pairs of frames that are looked at, within clips and across, evenly chosen.
const PAIRS: usize = 400;

/// What clips have in common.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Overlap {
    /// Points that frames of different clips should have in common, by how many those of one clip have.
    pub(super) expected: f64,
    /// How many they have.
    pub(super) shared: f64,
    /// Pairs of frames of different clips, both in the model, that were held against each other.
    pub(super) pairs: usize,
}

/// By angle: points that should be seen in both images, and that are.
type Counts = [(f64, f64); ANGLES.len()];

/// `cuts` are where the capture was cut; only the pairs of `matches` were compared at all.
pub(super) fn overlap(map: &Map, matches: &[PairMatches], cuts: &[usize]) -> Overlap {
    if cuts.is_empty() {
        return Overlap::default();
    }
    let mut seen: Vec<Vec<usize>> = vec![Vec::new(); map.poses.len()];
    for (p, point) in map.points.iter().enumerate() {
        point.track.iter().for_each(|o| seen[o.image as usize].push(p));
    }
    let is_placed = |image: u32| map.poses.get(image as usize).is_some_and(Option::is_some);
    let compared = matches.iter().map(|m| (m.first, m.second)).filter(|&(a, b)| is_placed(a) && is_placed(b));
    let (across, within): (Vec<_>, Vec<_>) = compared.partition(|&(a, b)| is_cut_between(cuts, a, b));
    let (across, within) = (evenly(across), evenly(within));
    let count = |pairs: &[(u32, u32)]| -> Counts {
        let mut counts = Counts::default();
        for &(a, b) in pairs {
            for (from, to) in [(a as usize, b as usize), (b as usize, a as usize)] {
                // `is_placed` chose them.
                let (Some(own), Some(other)) = (map.poses[from], map.poses[to]) else { continue };
                add(&mut counts, map, &seen[from], to, (&own, &other));
            }
        }
        counts
    };
    let usual = count(&within);
    let mut found = Overlap { pairs: across.len(), ..Overlap::default() };
    for ((should, is), (all, again)) in count(&across).into_iter().zip(usual) {
        if all >= LEAST {
            found.expected += should * again / all;
            found.shared += is;
        }
    }
    found
}

/// At most [`PAIRS`] of them.
fn evenly(pairs: Vec<(u32, u32)>) -> Vec<(u32, u32)> {
    let every = pairs.len().div_ceil(PAIRS).max(1);
    pairs.into_iter().step_by(every).collect()
}

/// Adds the points `seen` from a pose that should be seen in image `to` from the other one.
fn add(counts: &mut Counts, map: &Map, seen: &[usize], to: usize, (own, other): (&Pose, &Pose)) {
    let (from_centre, to_centre) = (own.centre(), other.centre());
    let camera = map.camera_of(to);
    let (width, height) = (f64::from(camera.width), f64::from(camera.height));
    let within = |v: f64, side: f64| (MARGIN * side..(1.0 - MARGIN) * side).contains(&v);
    // Indices of points of the map, by `overlap`.
    for point in seen.iter().map(|&p| &map.points[p]) {
        let (a, b): (Vector3<f64>, Vector3<f64>) = (point.xyz - from_centre, point.xyz - to_centre);
        let (near, far) = (a.norm().min(b.norm()), a.norm().max(b.norm()));
        if far > AS_FAR * near {
            continue;
        }
        let angle = a.angle(&b);
        let Some(bin) = ANGLES.iter().position(|&limit| angle < limit) else { continue };
        let Some(pixel) = camera.project(&other.transform(&point.xyz)) else { continue };
        if within(pixel.x, width) && within(pixel.y, height) {
            counts[bin].0 += 1.0;
            counts[bin].1 += f64::from(u8::from(point.track.iter().any(|o| o.image as usize == to)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sfm::synthetic::Capture;

    #[test]
    fn clips_of_one_place_share_what_they_see_and_those_of_two_do_not() {
        let capture = Capture::orbit(24, 1500, 0.0, 4);
        let (_, matches) = capture.pairs_and_matches(24);
        let map = capture.true_map_with_points();
        assert_eq!(overlap(&map, &matches, &[]), Overlap::default());
        // Every other frame, and then the others: two clips along one path.
        let renamed = |image: u32| if image.is_multiple_of(2) { image / 2 } else { 12 + image / 2 };
        let mut clips = map.clone();
        for (image, pose) in map.poses.iter().enumerate() {
            clips.poses[renamed(image as u32) as usize] = *pose;
        }
        for point in &mut clips.points {
            point.track.iter_mut().for_each(|o| o.image = renamed(o.image));
            point.track.sort_unstable();
        }
        let matches: Vec<PairMatches> = matches
            .iter()
            .map(|m| {
                let (a, b) = (renamed(m.first), renamed(m.second));
                PairMatches { first: a.min(b), second: a.max(b), ..m.clone() }
            })
            .collect();
        let one = overlap(&clips, &matches, &[11]);
        assert!(one.pairs > 100 && one.expected > 500.0 && one.shared > 0.8 * one.expected, "{one:?}");
        // Of many pairs a part is looked at, and only these count.
        let more: Vec<PairMatches> = matches.iter().cycle().take(5 * PAIRS).cloned().collect();
        let sampled = overlap(&clips, &more, &[11]);
        assert!(sampled.pairs <= PAIRS, "{sampled:?}");
        let of_pair = |o: &Overlap| o.expected / o.pairs as f64;
        assert!((of_pair(&sampled) / of_pair(&one) - 1.0).abs() < 0.2, "{sampled:?} {one:?}");
        // The same poses, but of the points only one in ten is the same in both: the others are of either room alone.
        let mut two = clips.clone();
        two.points.clear();
        for (p, point) in clips.points.iter().enumerate() {
            if p % 10 == 0 {
                two.points.push(point.clone());
                continue;
            }
            for room in [0..12, 12..24] {
                let mut own = point.clone();
                own.track.retain(|o| room.contains(&o.image));
                two.points.push(own);
            }
        }
        two.points.retain(|p| p.track.len() > 1);
        let apart = overlap(&two, &matches, &[11]);
        assert!(apart.expected > 500.0 && apart.shared < 0.2 * apart.expected, "{apart:?}");
    }
}
