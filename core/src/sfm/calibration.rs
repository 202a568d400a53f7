//! The focal length of a camera that nobody has calibrated, by profile likelihood.
//!
//! For every candidate focal length the relative poses of pairs are refined on their matches; the error that remains
//! tells how well the candidate explains them. Unlike votes of fundamental matrices (by their singular values or
//! Kruppa's equations), this weighs every match by its noise, and a pair that says nothing about the focal length has a
//! flat profile and does not disturb the others.
//!
//! Where a camera circles its object, hardly any pair says something: with the optical axes meeting at equal distances,
//! every focal length explains a pair, with a larger or smaller turn (Sturm, "Critical motion sequences for monocular
//! self-calibration", CVPR 1997). The turns of several pairs then decide: they must fit together, all the more where
//! the circle closes.

use rayon::prelude::*;

use super::rotation_averaging::{RelativeRotation, RotationAveragingOptions, average_rotations};
use super::two_view::{FocalProfile, TwoViewConfig, TwoViewGeometry, Views};
use crate::control::Control;
use crate::error::Result;

/// What the pairs say about the focal length.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct FocalEstimate {
    /// In pixels.
    pub focal: f64,
    /// Standard deviation of its natural logarithm, so about of its relative error. From how far the pairs disagree: it
    /// covers what they get wrong independently of each other, not what all of them share (lens distortion).
    pub deviation: f64,
    /// Whether the pairs by themselves left it open and their rotations had to decide.
    pub by_rotations: bool,
}

/// Candidates, over the longer side of the picture: a field of view of 118° to 11°.
const RANGE: (f64, f64) = (0.3, 5.0);
/// Steps between candidates, in the logarithm: less than the width of the minimum that well-conditioned pairs make.
const COARSE: f64 = 0.06;
/// The same near the best of them.
const FINE: f64 = 0.01;
/// Pairs that take part, and matches of each: matches of one pair share their errors, so more say hardly more.
const PAIRS: usize = 80;
const MATCHES: usize = 256;
/// Candidates this many standard deviations from the best one remain possible.
const POSSIBLE: f64 = 3.0;
/// A cost larger by less than this fraction may come from what all pairs share: lens distortion, a principal point off
/// the centre.
const MODEL_ERROR: f64 = 0.02;
/// The pairs leave the focal length open if the possible candidates reach this far from the best one, in the logarithm:
/// relative poses bear such an error, and bundle adjustment takes it away.
const OPEN: f64 = 0.15;
/// Matches per pair where only its rotation is asked for.
const ROTATION_MATCHES: usize = 64;
/// A rotation that disagrees by more (radians) is wrong for another reason than the focal length.
const WRONG_ROTATION: f64 = 0.35;
/// Prior of the focal length over the longer side: mean and standard deviation of its logarithm. Phones and cameras at
/// their usual zoom have 0.7 to 1.5; 0.35 and 3.3 are at two deviations. It only matters where the capture says next to
/// nothing.
const PRIOR: (f64, f64) = (1.1, 0.55);
/// A focal length that came out within this part of what it is known to be is that one.
pub(crate) const FAR_FROM_KNOWN: f64 = 0.25;

/// What pairs by themselves say about the focal length.
struct Profiles {
    pairs: Vec<FocalProfile>,
    /// In pixels, [`COARSE`] apart.
    candidates: Vec<f64>,
    /// The candidate with the least cost of all pairs.
    best: usize,
    /// By candidate: how many standard deviations it is worse than that.
    distances: Vec<f64>,
}

impl Profiles {
    /// Of at most so many pairs, with so many matches of each. `None` if too few show depth.
    ///
    /// # Errors
    /// `Cancelled`.
    fn of(
        views: &Views,
        geometries: &[TwoViewGeometry],
        (pairs, matches): (usize, usize),
        control: &Control,
    ) -> Result<Option<Self>> {
        let Some(camera) = views.cameras.first() else { return Ok(None) };
        let side = f64::from(camera.width.max(camera.height));
        let steps = ((RANGE.1 / RANGE.0).ln() / COARSE).ceil() as usize;
        let candidates: Vec<f64> = (0..=steps).map(|k| side * RANGE.0 * (COARSE * k as f64).exp()).collect();
        let pairs: Vec<FocalProfile> = with_depth(geometries, views.features.len(), pairs)
            .into_iter()
            .filter_map(|g| FocalProfile::new(views, g, matches))
            .collect();
        let coarse = costs(&pairs, &candidates);
        let Some(best) = lowest(&coarse) else { return Ok(None) };
        control.check()?;
        let distances = (0..candidates.len()).map(|k| deviations_between(&coarse, best, k)).collect();
        Ok(Some(Self { pairs, candidates, best, distances }))
    }

    /// Whether the pairs determine the focal length, rather than to leave it open.
    fn is_determined(&self) -> bool {
        let reach = (0..self.candidates.len())
            .filter(|&k| self.distances[k] < POSSIBLE)
            .map(|k| COARSE * k.abs_diff(self.best) as f64)
            .fold(0.0, f64::max);
        reach < OPEN
    }

    /// The focal length that they determine.
    fn minimum(&self) -> Option<FocalEstimate> {
        let best = self.candidates[self.best];
        let fine: Vec<f64> = (-8..=8).map(|k| best * (FINE * f64::from(k)).exp()).collect();
        minimum(&fine, &costs(&self.pairs, &fine))
    }

    /// Whether this focal length is possible, or not far from the best one.
    fn allows(&self, focal: f64) -> bool {
        let off = |k: usize| (self.candidates[k] / focal).ln().abs();
        let nearest = (0..self.candidates.len()).min_by(|&a, &b| off(a).total_cmp(&off(b)));
        nearest.is_none_or(|k| self.distances[k] < POSSIBLE) || !is_far(self.candidates[self.best], focal)
    }
}

/// By pair and focal length.
fn costs(pairs: &[FocalProfile], focals: &[f64]) -> Vec<Vec<f64>> {
    pairs.par_iter().map(|p| p.at(focals).iter().map(|point| point.cost).collect()).collect()
}

/// Estimates the focal length of the one camera that took all pictures (`views` gives its size and principal point)
/// from verified pairs. `None` if they say nothing: too few show depth.
///
/// # Errors
/// `Cancelled`.
pub fn estimate_focal(
    views: &Views,
    geometries: &[TwoViewGeometry],
    control: &Control,
) -> Result<Option<FocalEstimate>> {
    let Some(camera) = views.cameras.first() else { return Ok(None) };
    let side = f64::from(camera.width.max(camera.height));
    let Some(profiles) = Profiles::of(views, geometries, (PAIRS, MATCHES), control)? else { return Ok(None) };
    if profiles.is_determined() {
        return Ok(profiles.minimum());
    }
    let Profiles { candidates, distances, .. } = &profiles;

    let prior = |focal: f64| ((focal / side / PRIOR.0).ln() / PRIOR.1).powi(2);
    let possible: Vec<usize> = (0..candidates.len()).filter(|&k| distances[k] < POSSIBLE).collect();
    let focals: Vec<f64> = possible.iter().map(|&k| candidates[k]).collect();
    let disagreement = rotation_disagreement(views, geometries, &focals, control)?;
    // Twice the negative logarithm of the posterior.
    let total: Vec<f64> = (0..focals.len())
        .map(|i| distances[possible[i]].powi(2) + disagreement[i] + prior(focals[i]))
        .collect();
    let Some(at) = (0..focals.len()).min_by(|&a, &b| total[a].total_cmp(&total[b])) else { return Ok(None) };
    // Mean and variance of the posterior on the candidates around its maximum.
    let near = (0..focals.len()).filter(|i| i.abs_diff(at) <= 3);
    let weight = |i: usize| (-0.5 * (total[i] - total[at])).exp();
    let sum: f64 = near.clone().map(weight).sum();
    let mean = near.clone().map(|i| weight(i) * focals[i].ln()).sum::<f64>() / sum;
    let variance = near.map(|i| weight(i) * (focals[i].ln() - mean).powi(2)).sum::<f64>() / sum;
    let deviation = (variance + COARSE * COARSE / 12.0).sqrt();
    Ok(Some(FocalEstimate { focal: mean.exp(), deviation, by_rotations: true }))
}

/// The focal length that the verified pairs determine by themselves, if it is another one than is `known`: far from it, and by more than
/// these allow for. What EXIF data say may be of another lens, or of the picture before it was cropped.
///
/// A few matches of a few pairs are asked first, for a sixteenth of the work: where they allow what is known, no more are.
///
/// # Errors
/// `Cancelled`.
pub(crate) fn contradicting_focal(
    views: &Views,
    geometries: &[TwoViewGeometry],
    known: f64,
    control: &Control,
) -> Result<Option<FocalEstimate>> {
    for part in [4, 1] {
        let of = (PAIRS / part, MATCHES / part);
        let Some(profiles) = Profiles::of(views, geometries, of, control)? else { return Ok(None) };
        if profiles.allows(known) {
            return Ok(None);
        }
        if part == 1 && profiles.is_determined() {
            let is_another = |found: &FocalEstimate| {
                is_far(found.focal, known) && (found.focal / known).ln().abs() > POSSIBLE * found.deviation
            };
            return Ok(profiles.minimum().filter(is_another));
        }
    }
    Ok(None)
}

/// Whether a focal length is another one than is known.
fn is_far(focal: f64, known: f64) -> bool {
    (focal / known).ln().abs() > (1.0 + FAR_FROM_KNOWN).ln()
}

/// At most so many `pairs`, those with most matches that no homography explains (depth is what tells the focal length), spread over the
/// pictures.
fn with_depth(geometries: &[TwoViewGeometry], pictures: usize, pairs: usize) -> Vec<&TwoViewGeometry> {
    let depth = |g: &TwoViewGeometry| g.inliers.len().saturating_sub(g.homography_inliers);
    let mut chosen: Vec<&TwoViewGeometry> =
        geometries.iter().filter(|g| g.config == TwoViewConfig::Uncalibrated && depth(g) > 0).collect();
    chosen.sort_by_key(|g| std::cmp::Reverse(depth(g)));
    let most = (2 * pairs).div_ceil(pictures.max(1)) + 2;
    let mut used = vec![0; pictures];
    chosen.retain(|g| {
        let ends = [g.first as usize, g.second as usize];
        let free = ends.iter().all(|&i| used[i] < most);
        ends.iter().for_each(|&i| used[i] += usize::from(free));
        free
    });
    chosen.truncate(pairs);
    chosen
}

/// The candidate with the least cost of all pairs.
fn lowest(costs: &[Vec<f64>]) -> Option<usize> {
    let candidates = costs.first()?.len();
    let total = |k: usize| costs.iter().map(|c| c[k]).sum::<f64>();
    (0..candidates).min_by(|&a, &b| total(a).total_cmp(&total(b)))
}

/// How many standard deviations candidate `k` is worse than the `best` one: of the scatter of independent pairs, or of
/// the error of the model, whichever says less. Close to the minimum the cost grows with the square of the distance and
/// its scatter with the distance itself, hence the factor 2.
fn deviations_between(costs: &[Vec<f64>], best: usize, k: usize) -> f64 {
    if k == best {
        return 0.0;
    }
    let n = costs.len() as f64;
    let excess: f64 = costs.iter().map(|c| c[k] - c[best]).sum();
    let scatter: f64 = costs.iter().map(|c| (c[k] - c[best] - excess / n).powi(2)).sum();
    let model = MODEL_ERROR * costs.iter().map(|c| c[best]).sum::<f64>();
    (2.0 * excess / scatter.sqrt().max(f64::MIN_POSITIVE)).min(excess / model.max(f64::MIN_POSITIVE))
}

/// The minimum of the sum of the costs, by a parabola, and its deviation by the sandwich estimator: what the slopes of
/// the pairs scatter at the minimum, over the curvature of the sum. `focals` are [`FINE`] apart. `None` if there is no
/// minimum.
fn minimum(focals: &[f64], costs: &[Vec<f64>]) -> Option<FocalEstimate> {
    let at = lowest(costs)?.clamp(1, focals.len() - 2);
    let slope = |c: &Vec<f64>| 0.5 * (c[at + 1] - c[at - 1]);
    let slopes: Vec<f64> = costs.iter().map(slope).collect();
    let curvature: f64 = costs.iter().map(|c| c[at + 1] - 2.0 * c[at] + c[at - 1]).sum();
    if curvature.is_nan() || curvature <= 0.0 {
        return None;
    }
    let sum: f64 = slopes.iter().sum();
    let n = slopes.len() as f64;
    let scatter = slopes.iter().map(|s| (s - sum / n).powi(2)).sum::<f64>() * n / (n - 1.0).max(1.0);
    let step = (-sum / curvature).clamp(-1.0, 1.0);
    Some(FocalEstimate {
        focal: focals[at] * (FINE * step).exp(),
        // One pair alone has no scatter, and says nothing about its error.
        deviation: if costs.len() > 1 { FINE * scatter.sqrt() / curvature } else { f64::INFINITY },
        by_rotations: false,
    })
}

/// For each focal length twice the negative log-likelihood of the rotations of all pairs: how far they are from
/// rotations of the pictures, if their errors have a Laplace distribution of unknown width. Only as many count as there
/// are independent cycles.
fn rotation_disagreement(
    views: &Views,
    geometries: &[TwoViewGeometry],
    focals: &[f64],
    control: &Control,
) -> Result<Vec<f64>> {
    let profiles: Vec<(&TwoViewGeometry, Vec<_>)> = geometries
        .par_iter()
        .filter(|g| g.config != TwoViewConfig::Degenerate)
        .filter_map(|g| Some((g, FocalProfile::new(views, g, ROTATION_MATCHES)?.at(focals))))
        .collect();
    let pictures = views.features.len();
    let one = |k: usize| -> Result<f64> {
        let pairs: Vec<RelativeRotation> = profiles
            .iter()
            .filter_map(|(g, points)| {
                Some(RelativeRotation {
                    first: g.first,
                    second: g.second,
                    second_from_first: points[k].pose?.pose().rotation,
                    weight: g.inliers.len() as f64,
                })
            })
            .collect();
        let averaged = average_rotations(pictures, &pairs, &RotationAveragingOptions::default(), control)?;
        let rotations = &averaged.cam_from_world;
        let errors: Vec<f64> = pairs
            .iter()
            .filter_map(|p| {
                let (a, b) = (rotations[p.first as usize]?, rotations[p.second as usize]?);
                Some((b * a.inverse()).angle_to(&p.second_from_first).min(WRONG_ROTATION))
            })
            .collect();
        let placed = rotations.iter().flatten().count();
        let cycles = (errors.len() + 1).saturating_sub(placed) as f64;
        // Pictures that had to be left out agree with nothing.
        let lost = (pairs.len() - errors.len()) as f64;
        let sum = errors.iter().sum::<f64>() + lost * WRONG_ROTATION;
        let mean = sum / (pairs.len() as f64).max(1.0);
        Ok(2.0 * cycles * mean.max(1e-4).ln())
    };
    (0..focals.len()).into_par_iter().map(one).collect()
}

#[cfg(test)]
pub(crate) mod tests {
    use nalgebra::Vector3;

    use super::*;
    use crate::camera::{Camera, CameraModel, Pose};
    use crate::random::Random;
    use crate::sfm::features::{Features, Keypoint};
    use crate::sfm::matching::PairMatches;
    use crate::sfm::two_view::{TwoViewOptions, verify_pairs};

    /// What `ask` says of what pictures of 1000x800 pixels show of a ball of points, with half a pixel of noise, by
    /// pairs at most `window` apart.
    pub(crate) fn asked<T>(
        poses: &[Pose],
        focal: f64,
        window: usize,
        seed: u64,
        ask: impl Fn(&Views, &[TwoViewGeometry]) -> T,
    ) -> T {
        let mut random = Random::new(seed);
        let points: Vec<Vector3<f64>> = (0..300)
            .map(|_| Vector3::from_fn(|_, _| 2.0 * random.uniform() - 1.0) * 0.28 * 1000.0 / focal * 4.0)
            .collect();
        let camera = Camera::from_focal(CameraModel::SimplePinhole, focal, 1000, 800);
        let mut features = vec![Features::default(); poses.len()];
        let mut seen = vec![vec![None; points.len()]; poses.len()];
        for (i, pose) in poses.iter().enumerate() {
            for (p, point) in points.iter().enumerate() {
                let Some(pixel) = camera.project(&pose.transform(point)) else { continue };
                let (x, y) = (pixel.x + 0.5 * random.normal(), pixel.y + 0.5 * random.normal());
                if x < 0.0 || y < 0.0 || x > 1000.0 || y > 800.0 {
                    continue;
                }
                seen[i][p] = Some(features[i].keypoints.len() as u32);
                features[i].keypoints.push(Keypoint {
                    x: x as f32,
                    y: y as f32,
                    scale: 2.0,
                    orientation: 0.0,
                });
            }
        }
        let n = poses.len();
        let apart = |i: usize, j: usize| (j - i).min(n + i - j);
        let matches: Vec<PairMatches> = (0..n)
            .flat_map(|i| (i + 1..n).filter(move |&j| apart(i, j) <= window).map(move |j| (i, j)))
            .map(|(i, j)| PairMatches {
                first: i as u32,
                second: j as u32,
                matches: seen[i].iter().zip(&seen[j]).filter_map(|(a, b)| Some([(*a)?, (*b)?])).collect(),
            })
            .collect();
        let guess = [Camera::from_focal(CameraModel::SimplePinhole, 1200.0, 1000, 800)];
        let views = Views { features: &features, camera_of: &vec![0; n], cameras: &guess };
        let verified = verify_pairs(&views, &matches, &TwoViewOptions::default(), &Control::new()).unwrap();
        ask(&views, &verified)
    }

    fn estimate(poses: &[Pose], focal: f64, window: usize, seed: u64) -> Option<FocalEstimate> {
        asked(poses, focal, window, seed, |views, verified| {
            estimate_focal(views, verified, &Control::new()).unwrap()
        })
    }

    /// Ten cameras that come closer and go away.
    pub(crate) fn coming_closer(seed: u64) -> Vec<Pose> {
        let mut random = Random::new(seed);
        let at = |i: i32| {
            let angle = 0.15 * f64::from(i);
            let away = 3.2 + 1.6 * random.uniform();
            let position = Vector3::new(away * angle.sin(), 0.5 * random.normal(), -away * angle.cos());
            looking_at_the_middle(position)
        };
        (0..10).map(at).collect()
    }

    /// 24 cameras on a circle.
    fn circle() -> Vec<Pose> {
        (0..24)
            .map(|i| f64::from(i) * std::f64::consts::TAU / 24.0)
            .map(|angle| looking_at_the_middle(Vector3::new(4.0 * angle.sin(), 0.3, -4.0 * angle.cos())))
            .collect()
    }

    fn looking_at_the_middle(position: Vector3<f64>) -> Pose {
        Pose::look_at(&position, &Vector3::zeros(), &-Vector3::y()).unwrap()
    }

    #[test]
    fn cameras_that_come_closer_and_look_aside_tell_their_focal_length() {
        for (seed, focal) in [(1, 450.0), (2, 900.0), (3, 2500.0)] {
            let found = estimate(&coming_closer(seed), focal, 9, seed).unwrap();
            let error = (found.focal / focal).ln();
            assert!(!found.by_rotations, "{found:?}");
            assert!(error.abs() < 0.02 && error.abs() < 4.0 * found.deviation, "{focal}: {found:?}");
            assert!(found.deviation < 0.02, "{focal}: {found:?}");
        }
    }

    #[test]
    fn a_closed_circle_tells_the_focal_length_by_its_rotations() {
        for (seed, focal) in [(1, 700.0), (2, 2000.0)] {
            let found = estimate(&circle(), focal, 2, seed).unwrap();
            let error = (found.focal / focal).ln();
            assert!(error.abs() < 0.08 && error.abs() < 3.0 * found.deviation, "{focal}: {found:?}");
        }
    }

    #[test]
    fn what_exif_says_is_believed_unless_the_pairs_determine_another_focal_length() {
        let another = |poses: &[Pose], window, known| {
            asked(poses, 900.0, window, 2, |views, verified| {
                contradicting_focal(views, verified, known, &Control::new()).unwrap()
            })
        };
        let poses = coming_closer(2);
        for known in [360.0, 600.0, 1500.0, 2250.0] {
            let found = another(&poses, 9, known).unwrap();
            assert!((found.focal / 900.0).ln().abs() < 0.02 && !found.by_rotations, "{known}: {found:?}");
        }
        for known in [780.0, 900.0, 1040.0] {
            assert_eq!(another(&poses, 9, known), None, "{known}");
        }
        // A circle leaves it open.
        for known in [900.0, 2250.0] {
            assert_eq!(another(&circle(), 2, known), None, "{known}");
        }
    }

    #[test]
    fn pictures_of_a_turn_say_nothing() {
        let poses: Vec<Pose> = (0..8)
            .map(|i| {
                looking_at_the_middle(Vector3::new(0.0, 0.0, -4.0)).rotation.inverse()
                    * nalgebra::UnitQuaternion::from_euler_angles(0.0, 0.02 * f64::from(i), 0.0)
            })
            .map(|rotation| Pose::from_centre(rotation, &Vector3::new(0.0, 0.0, -4.0)))
            .collect();
        assert_eq!(estimate(&poses, 900.0, 7, 1), None);
    }
}
