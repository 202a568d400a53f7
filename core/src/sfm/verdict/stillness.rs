//! Whether the camera stood still (or turned on its tripod) while what was reconstructed moved before it.
//!
//! A turntable and a walk around look alike in all that is reconstructed: the matches that agree with the model do not
//! tell. Those that contradict it do. Where the camera stood, they lie still in the picture, or turn as a whole, and
//! they are spread over it, to its borders, while what moves is in the middle. So what counts is area, not number:
//! cells of the picture in which something is.
//!
//! Matches of a pattern that repeats itself, each with the thing beside the right one, agree in a turn, too: a wall of bricks by one brick.
//! But the turns of a camera follow from each other from pair to pair, and these do not, as each is off by the same brick whether its
//! pictures are near or far apart. So turns count that rotations of the frames explain.

use std::collections::BTreeSet;

use nalgebra::{Rotation3, UnitQuaternion, Vector3};
use rayon::prelude::*;

use crate::camera::Camera;
use crate::control::Control;
use crate::random::{Random, hash};
use crate::sfm::geometry::epipolar_angle;
use crate::sfm::map::{Keypoints, Map};
use crate::sfm::matching::PairMatches;
use crate::sfm::rotation_averaging::{RelativeRotation, RotationAveragingOptions, average_rotations};
use crate::sfm::triangulation::keypoint_rays;
use crate::statistics::median;

/// Pairs that are looked at, evenly chosen.
const PAIRS: usize = 400;
/// Cells across and down.
const GRID: usize = 8;
/// A match agrees with the model within this, pixels: as everywhere in a finished map ([`super::super::mapper_options`]).
const AGREES: f64 = 4.0;
/// A match lies still within this share of the picture's longer side ...
const STILL: f64 = 0.002;
/// ... at least this many pixels.
const STILL_PIXELS: f64 = 1.5;
/// Something has moved over more than this share of the longer side.
const MOVED: f64 = 0.015;
/// A pair tells if so many matches moved as the model says.
const MOVERS: usize = 10;
/// Fewer matches in common motion are chance.
const LEAST_STILL: usize = 6;
/// Turns of the camera that are tried for the matches that contradict the model.
const TURNS: usize = 40;
/// A turn is one of the camera if it is off by no more than this many times what a match may be, of which two say how large it is.
const FOLLOWS: f64 = 3.0;
/// Turns over frames, from which they tell whether they are of one camera.
const TURNS_OF_FRAME: usize = 3;
/// From this part of the occupied picture on, a pair speaks.
const MUCH: f64 = 0.2;

/// What was found.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Stillness {
    /// Pairs in which something moves as the model says.
    pub(super) pairs: usize,
    /// Part of the occupied picture that stood still against the model, median of these pairs.
    pub(super) area: f64,
    /// The same of the picture's border.
    pub(super) border: f64,
    /// Share of the pairs with much of it.
    pub(super) share: f64,
}

/// Looks at the candidate matches, before anything was thrown out of them.
pub(super) fn stillness(map: &Map, keypoints: &Keypoints, matches: &[PairMatches]) -> Stillness {
    let placed = |m: &&PairMatches| {
        map.poses[m.first as usize].is_some()
            && map.poses[m.second as usize].is_some()
            && m.matches.len() >= MOVERS
    };
    let usable: Vec<&PairMatches> = matches.iter().filter(placed).collect();
    let step = usable.len().div_ceil(PAIRS).max(1);
    let chosen: Vec<&PairMatches> = usable.into_iter().step_by(step).collect();
    let rays = keypoint_rays(&map.camera, &map.others, keypoints);
    let of_pairs: Vec<Option<OfPair>> =
        chosen.par_iter().map(|pair| of_pair(map, keypoints, &rays, pair)).collect();
    let told: Vec<(&PairMatches, OfPair)> =
        chosen.into_iter().zip(of_pairs).filter_map(|(pair, of)| Some((pair, of?))).collect();
    let (followed, by_chance) = turns_of_one_camera(map.poses.len(), &told);
    // Where the turn is not of the camera nothing stands still.
    let told = told.iter().zip(followed).map(|((_, of), follows)| if follows { *of } else { of.moving() });
    let told: Vec<OfPair> = told.collect();
    let mut areas: Vec<f64> = told.iter().map(|t| t.area).collect();
    let mut borders: Vec<f64> = told.iter().filter_map(|t| t.border).collect();
    let much = areas.iter().filter(|&&a| a >= MUCH).count().saturating_sub(by_chance);
    Stillness {
        pairs: told.len(),
        share: much as f64 / told.len().max(1) as f64,
        area: median(&mut areas).unwrap_or(0.0),
        border: median(&mut borders).unwrap_or(0.0),
    }
}

/// What a pair says.
#[derive(Clone, Copy)]
struct OfPair {
    /// Part of the occupied picture that stands still against the model.
    area: f64,
    /// The same of the picture's border; `None` where nothing is there.
    border: Option<f64>,
    /// How the camera turned if it stood, second-from-first, and the angle (radians) within which a match lies still.
    turn: Option<(UnitQuaternion<f64>, f64)>,
}

impl OfPair {
    fn moving(self) -> Self {
        Self { area: 0.0, border: self.border.map(|_| 0.0), turn: None }
    }
}

/// By pair, whether its turn is one of a camera that stood: whether rotations of the frames explain it as they do the others. Also how many
/// they explain of any turns: as many as it takes to get from a frame to all others. Where there are hardly more turns than that they
/// tell nothing, and all count.
fn turns_of_one_camera(images: usize, told: &[(&PairMatches, OfPair)]) -> (Vec<bool>, usize) {
    let turned = || told.iter().enumerate().filter_map(|(k, (pair, of))| Some((k, pair, of.turn?)));
    let turns: Vec<RelativeRotation> = turned()
        .map(|(_, pair, (turn, _))| RelativeRotation {
            first: pair.first,
            second: pair.second,
            second_from_first: turn,
            weight: 1.0,
        })
        .collect();
    let frames: BTreeSet<u32> = turns.iter().flat_map(|turn| [turn.first, turn.second]).collect();
    if turns.len() < TURNS_OF_FRAME * frames.len() {
        return (vec![true; told.len()], 0);
    }
    let still = turned().map(|(_, _, (_, still))| still).fold(0.0, f64::max);
    let options = RotationAveragingOptions { loss_angle: still, max_error: FOLLOWS * still };
    let mut follows = vec![false; told.len()];
    // Without rotations that explain them, none is.
    if let Ok(averaged) = average_rotations(images, &turns, &options, &Control::new()) {
        turned().zip(averaged.kept).for_each(|((k, ..), kept)| follows[k] = kept);
    }
    (follows, frames.len().saturating_sub(1))
}

/// What stands still in a pair against the model; `None` where too little moves.
fn of_pair(
    map: &Map,
    keypoints: &Keypoints,
    rays: &[Vec<Vector3<f64>>],
    pair: &PairMatches,
) -> Option<OfPair> {
    let (i, j) = (pair.first as usize, pair.second as usize);
    let (a, b) = (map.poses[i]?, map.poses[j]?);
    let camera = map.camera_of(i);
    let focal = camera.mean_focal();
    let side = f64::from(camera.width.max(camera.height));
    let still = (STILL * side).max(STILL_PIXELS) / focal;
    let baseline = b.centre() - a.centre();
    let (mut agreeing, mut against, mut movers) = (Vec::new(), Vec::new(), 0);
    for m in &pair.matches {
        let (p, q) = (&keypoints[i][m[0] as usize], &keypoints[j][m[1] as usize]);
        let (ra, rb) = (rays[i][m[0] as usize], rays[j][m[1] as usize]);
        let (wa, wb) = (a.rotation.inverse() * ra, b.rotation.inverse() * rb);
        let turned = |angle: f64| wa.cross(&wb).norm() < angle;
        if epipolar_angle(&wa, &wb, &baseline) * focal <= AGREES && wa.dot(&wb) > 0.0 {
            agreeing.push(cell(camera, p));
            movers += usize::from((p - q).norm() > MOVED * side && !turned(still));
        } else {
            against.push((ra, rb, cell(camera, p)));
        }
    }
    if movers < MOVERS {
        return None;
    }
    let turn = common_turn(&against, still, hash(u64::from(pair.first) << 32 | u64::from(pair.second)));
    let mut cells = [(0usize, 0usize); GRID * GRID];
    agreeing.iter().for_each(|&c| cells[c].0 += 1);
    if let Some(turn) = turn {
        against.iter().filter(|m| fits(&turn, m, still)).for_each(|m| cells[m.2].1 += 1);
    }
    let part = |is_in: &dyn Fn(usize) -> bool| {
        let occupied = || cells.iter().enumerate().filter(|(k, c)| is_in(*k) && c.0 + c.1 > 0);
        let stand = occupied().filter(|(_, c)| c.1 > c.0).count();
        let all = occupied().count();
        (all > 0).then(|| stand as f64 / all as f64)
    };
    let outer = |k: usize| {
        let (x, y) = (k % GRID, k / GRID);
        x == 0 || y == 0 || x == GRID - 1 || y == GRID - 1
    };
    Some(OfPair { area: part(&|_| true)?, border: part(&outer), turn: turn.map(|turn| (turn, still)) })
}

/// The cell of a pixel, below the square of [`GRID`].
fn cell(camera: &Camera, p: &nalgebra::Vector2<f64>) -> usize {
    let index = |v: f64, size: u32| ((v / f64::from(size) * GRID as f64).max(0.0) as usize).min(GRID - 1);
    index(p.y, camera.height) * GRID + index(p.x, camera.width)
}

type Match = (Vector3<f64>, Vector3<f64>, usize);

fn fits(turn: &UnitQuaternion<f64>, m: &Match, limit: f64) -> bool {
    (turn * m.0).cross(&m.1).norm() < limit
}

/// The turn on the spot that most matches agree in, standing still first; `None` where these are few.
fn common_turn(matches: &[Match], limit: f64, seed: u64) -> Option<UnitQuaternion<f64>> {
    let support = |turn: &UnitQuaternion<f64>| matches.iter().filter(|m| fits(turn, m, limit)).count();
    let mut best = (support(&UnitQuaternion::identity()), UnitQuaternion::identity());
    let mut random = Random::new(seed);
    for _ in 0..TURNS {
        if matches.len() < LEAST_STILL {
            break;
        }
        let (m, n) = (&matches[random.below(matches.len())], &matches[random.below(matches.len())]);
        let Some(turn) = turn_of(m, n) else { continue };
        let count = support(&turn);
        if count > best.0 {
            best = (count, turn);
        }
    }
    (best.0 >= LEAST_STILL).then_some(best.1)
}

/// The rotation that takes the rays of two matches onto their partners.
fn turn_of(m: &Match, n: &Match) -> Option<UnitQuaternion<f64>> {
    let basis = |a: &Vector3<f64>, b: &Vector3<f64>| {
        let across = a.cross(b).try_normalize(1e-3)?;
        let middle = (a + b).try_normalize(1e-9)?;
        Some(nalgebra::Matrix3::from_columns(&[middle, across, middle.cross(&across)]))
    };
    let rotation = basis(&m.1, &n.1)? * basis(&m.0, &n.0)?.transpose();
    Some(UnitQuaternion::from_rotation_matrix(&Rotation3::from_matrix_unchecked(rotation)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sfm::synthetic::Capture;
    use nalgebra::Vector2;

    #[test]
    fn a_background_that_stands_is_told_from_one_that_moves_with_the_scene() {
        let capture = Capture::orbit(12, 800, 0.2, 3);
        let map = capture.true_map();
        let (_, matches) = capture.pairs_and_matches(4);
        let moved = stillness(&map, &capture.keypoints, &matches);
        assert!(moved.pairs > 10 && moved.area < 0.05 && moved.share < 0.05, "{moved:?}");
        // A wall behind it that does not move in the picture, or as a whole: the camera stood, or turned on its tripod.
        for turn in [0.0, 0.02] {
            let (mut keypoints, mut matches) = (capture.keypoints.clone(), matches.clone());
            for (i, image) in keypoints.iter_mut().enumerate() {
                let turn = UnitQuaternion::from_axis_angle(&Vector3::y_axis(), turn * i as f64);
                image.extend((0..200).map(|k| {
                    let pixel =
                        Vector2::new(10.0 + 39.0 * f64::from(k % 20), 20.0 + 58.0 * f64::from(k / 20));
                    map.camera.project(&(turn * map.camera.ray(&pixel))).unwrap()
                }));
            }
            for pair in &mut matches {
                let first = |image: u32| capture.keypoints[image as usize].len() as u32;
                let (a, b) = (first(pair.first), first(pair.second));
                pair.matches.extend((0..200).map(|k| [a + k, b + k]));
            }
            let stood = stillness(&map, &keypoints, &matches);
            assert!(stood.area > 0.3 && stood.border > 0.6 && stood.share > 0.7, "{turn}: {stood:?}");
        }
    }

    /// A strip of wallpaper whose pattern repeats itself, each match with the one beside it.
    #[test]
    fn a_pattern_that_repeats_itself_is_no_camera_that_stood() {
        let capture = Capture::orbit(12, 800, 0.2, 3);
        let map = capture.true_map();
        let (_, mut matches) = capture.pairs_and_matches(4);
        let mut keypoints = capture.keypoints.clone();
        let about_y = |angle: f64| UnitQuaternion::from_axis_angle(&Vector3::y_axis(), angle);
        let mut random = Random::new(1);
        let focal = map.camera.mean_focal();
        for (i, image) in keypoints.iter_mut().enumerate() {
            // It goes by, and its columns are at equal angles, so that a turn takes each to the one beside it.
            image.extend((0..200).map(|k| {
                let angle = 39.0 / focal * (f64::from(k % 20) - 9.5) + 0.02 * i as f64;
                let height = (58.0 * f64::from(k / 20) - 261.0) / focal;
                map.camera.project(&(about_y(angle) * Vector3::new(0.0, height, 1.0))).unwrap()
            }));
        }
        for pair in &mut matches {
            let first = |image: u32| capture.keypoints[image as usize].len() as u32;
            let (a, b) = (first(pair.first), first(pair.second));
            // By one to the left or to the right, as it happens.
            let is_left = random.below(2) == 0;
            let beside = |k: u32| if is_left { [a + k, b + k + 1] } else { [a + k + 1, b + k] };
            pair.matches.extend((0..200).filter(|k| k % 20 < 19).map(beside));
        }
        // Each pair by itself says that the camera stood.
        let rays = keypoint_rays(&map.camera, &map.others, &keypoints);
        let alone: Vec<OfPair> =
            matches.iter().filter_map(|pair| of_pair(&map, &keypoints, &rays, pair)).collect();
        let stood = alone.iter().filter(|of| of.area >= MUCH).count();
        assert!(stood > 10 && 2 * stood > alone.len(), "{stood} of {}", alone.len());
        let found = stillness(&map, &keypoints, &matches);
        assert!(found.pairs > 10 && found.share < 0.2, "{found:?}");
    }

    #[test]
    fn two_matches_give_their_rotation() {
        let turn = UnitQuaternion::from_euler_angles(0.1, -0.2, 0.3);
        let ray = |x: f64, y: f64| Vector3::new(x, y, 1.0).normalize();
        let of = |r: Vector3<f64>| (r, turn * r, 0);
        let found = turn_of(&of(ray(0.3, 0.1)), &of(ray(-0.2, 0.4))).unwrap();
        assert!(found.angle_to(&turn) < 1e-12);
        assert!(turn_of(&of(ray(0.3, 0.1)), &of(ray(0.3, 0.1))).is_none());
    }
}
