//! Bundle adjustment: poses, points and the shared intrinsics that make the reprojection error smallest.
//!
//! Levenberg-Marquardt on robustly weighted pixel residuals; points are eliminated ([`super::schur`]), the intrinsics
//! are a border of the reduced camera system. A camera's six unknowns are a rotation in its own frame and its centre.
//! No gauge is fixed: damping keeps the equations solvable, and the seven free motions do not change the cost.

mod covariance;
mod equations;
mod intrinsics;
mod readout;
mod settling;
mod spread;
pub(crate) mod squares;
mod stations;
mod steps;
mod workspace;

use nalgebra::{UnitQuaternion, Vector3};
use rayon::prelude::*;

use crate::camera::{Camera, Pose};
use crate::control::Control;
use crate::error::Result;

use super::levenberg_marquardt::{Reach, Step, Stopping, Summary, minimise};
use super::map::{Keypoints, Map};
use super::projection::{Extrinsics, Linearised, Loss, LossSum, Projector};
use super::schur::{self, BORDER, CHUNK, Structure};

pub(crate) use covariance::{intrinsics_deviations, other_intrinsics_deviations};
pub(crate) use intrinsics::{ASSUMED_NOISE, RefineIntrinsics, principal_point_index};
use intrinsics::{Intrinsics, OtherIntrinsics};
pub(crate) use readout::{adjust_with_readout, intrinsics_deviations_with, readout_deviations};
pub(crate) use spread::{Clustering, Draw, centre_responses, extra_response, pose_draws};
use stations::Stations;
use workspace::Workspace;

pub(crate) use squares::{CORNERS, Square, SquareView, Squares, adjust_with_squares, scale_deviation};

/// What to adjust and how.
#[derive(Debug, Clone)]
pub(crate) struct BundleOptions {
    /// How large residuals count; scales in pixels.
    pub(crate) loss: Loss,
    /// Standard deviation of a keypoint's coordinate, pixels: the prior of the principal point is weighed against it. Too large a
    /// one makes that too strong, by its square, and pulls the principal point of a cropped picture to the middle.
    pub(crate) noise: f64,
    /// When to stop.
    pub(crate) stopping: Stopping,
    /// Cameras are at rest, and the adjustment ends, where an undamped step moves them and the intrinsics by less than this many
    /// standard deviations, all of them together (the square root of the Newton decrement). Points may still move then. Standard deviations
    /// are those of keypoints with `noise`, independent of each other. 0 where only the cost says when to stop.
    pub(crate) rest: f64,
    /// What of the poses are unknowns.
    pub(crate) poses: PoseUnknowns,
    /// Which intrinsics are unknowns.
    pub(crate) intrinsics: RefineIntrinsics,
    /// What holds the principal point of each other camera of the map ([`RefineIntrinsics::principal_point`]); `None`, and for
    /// those that are not named, where it stays as it is. The rest is as for the camera of most images.
    pub(crate) other_centres: Vec<Option<f64>>,
}

/// What of the poses an adjustment changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PoseUnknowns {
    All,
    /// Rotations stay as they are.
    Centres,
    /// Centres stay where they are.
    Rotations,
}

/// A residual that cannot be computed (point behind the camera) counts as this many pixels, so that no step gains by
/// pushing points through a camera. Far above what a loss tells apart.
const BEHIND: f64 = 1e3;

/// Adjusts `map` in place.
///
/// # Errors
/// [`crate::ErrorKind::Cancelled`].
pub(crate) fn adjust(
    map: &mut Map,
    keypoints: &Keypoints,
    options: &BundleOptions,
    control: &Control,
) -> Result<Summary> {
    let Some(problem) = Problem::new(map, keypoints, options) else {
        return Ok(Summary { initial_cost: 0.0, final_cost: 0.0, iterations: 0, converged: true });
    };
    let start = problem.state(map);
    let mut work = Workspace::new(&problem.structure, problem.border());
    let (state, summary) = minimise(
        start,
        options.stopping,
        problem.reach(),
        control,
        |s| problem.cost(s),
        |s, damping| problem.step(s, damping, &mut work),
    )?;
    problem.store(&state, map);
    Ok(summary)
}

struct Problem<'a> {
    options: &'a BundleOptions,
    structure: Structure,
    /// Measured pixel by observation.
    pixels: Vec<[f64; 2]>,
    /// How many observations there are: beside those of the map the structure has some of other cameras' lenses.
    observations: usize,
    /// The registered images; the cameras of the structure are their stations, and after them the lenses of other cameras.
    stations: Stations,
    /// By observation: the place of its image among the registered ones; empty where each is a camera of its own.
    place: Vec<u32>,
    /// Of the camera that made most images.
    intrinsics: Intrinsics,
    others: OtherIntrinsics,
    /// How residuals change with the shared unknowns that are no parameters of the camera, by observation.
    slopes: Vec<Slopes>,
    /// How many such unknowns there are, at most [`EXTRA`]; without any, `slopes` is empty.
    extra: usize,
}

/// Shared unknowns that are no parameters of the camera, at most.
const EXTRA: usize = 2;

/// Derivatives of a residual (x, y) by each of them.
type Slopes = [[f64; 2]; EXTRA];

#[derive(Clone)]
struct State {
    /// The camera that made most images.
    camera: Camera,
    others: Vec<Camera>,
    /// By registered image.
    extrinsics: Vec<Extrinsics>,
    /// By station.
    rotations: Vec<UnitQuaternion<f64>>,
    points: Vec<[f64; 3]>,
    /// The shared unknowns that are no parameters of the camera: their change since the start.
    extra: [f64; EXTRA],
}

/// The cameras of a state, for fast projection: the one that made most images, then the others.
fn projectors(state: &State) -> Vec<Projector> {
    std::iter::once(&state.camera).chain(&state.others).map(Projector::new).collect()
}

impl<'a> Problem<'a> {
    fn new(map: &Map, keypoints: &Keypoints, options: &'a BundleOptions) -> Option<Self> {
        Self::with_room_for(0, map, keypoints, options)
    }

    /// The problem, in whose border there is room for `extra` more shared unknowns: where the lens has too many, the
    /// principal point stays where it is.
    fn with_room_for(
        extra: usize,
        map: &Map,
        keypoints: &Keypoints,
        options: &'a BundleOptions,
    ) -> Option<Self> {
        let stations = Stations::new(map);
        if stations.images.is_empty() || map.points.is_empty() {
            return None;
        }
        let mut slot = vec![0; map.poses.len()];
        for (s, &image) in stations.images.iter().enumerate() {
            slot[image] = s as u32;
        }
        let refine = |k: usize| RefineIntrinsics {
            principal_point: options.other_centres.get(k).copied().flatten(),
            ..options.intrinsics
        };
        let others = OtherIntrinsics::new(map, &stations.images, refine, options.noise);
        let all = map.observations();
        let mut start = Vec::with_capacity(map.points.len() + 1);
        let (mut camera, mut pixels) = (Vec::with_capacity(all), Vec::with_capacity(all));
        let mut observations = 0;
        start.push(0);
        let (mut track, mut place) = (Vec::new(), Vec::new());
        for point in &map.points {
            track.clear();
            track.extend(point.track.iter().map(|o| (slot[o.image as usize], *o)));
            track.sort_unstable();
            if map.rig.is_panoramic() {
                // Two images of one station may show a point, at the edge between them; once is enough.
                track.dedup_by_key(|(s, _)| stations.camera(*s as usize));
                place.extend(track.iter().map(|(s, _)| *s));
            }
            for (s, o) in &track {
                camera.push(stations.camera(*s as usize) as u32);
                pixels.push(keypoints[o.image as usize][o.keypoint as usize].into());
            }
            observations += track.len();
            // Each lens that the point was seen through, but the one of the border, once.
            for lens in 1..=others.count() {
                if track.iter().any(|(s, _)| others.index(*s as usize) == lens) {
                    camera.push((stations.count() + lens - 1) as u32);
                    pixels.push([0.0; 2]);
                }
            }
            start.push(camera.len() as u32);
        }
        let room = BORDER - extra;
        // Nothing tells of a lens through which nothing is seen: as unknowns its parameters would make the equations singular.
        let is_seen_through = stations.images.iter().any(|&image| map.others.index(image) == 0);
        let refined = if is_seen_through { options.intrinsics } else { RefineIntrinsics::default() };
        let intrinsics = Intrinsics::new(&map.camera, refined, options.noise, room);
        let structure = Structure::new(stations.count() + others.count(), 6, start, camera);
        let (slopes, extra) = (Vec::new(), 0);
        Some(Self {
            options,
            structure,
            pixels,
            observations,
            stations,
            place,
            intrinsics,
            others,
            slopes,
            extra,
        })
    }

    fn state(&self, map: &Map) -> State {
        // Every image in `images` is registered: `new` chose them so.
        let poses: Vec<Pose> = self.stations.images.iter().filter_map(|&i| map.poses[i]).collect();
        let of_station = |c: usize| self.stations.rotation(c, &poses[self.stations.first(c)].rotation);
        State {
            camera: map.camera.clone(),
            others: map.others.cameras.clone(),
            extrinsics: poses.iter().map(Extrinsics::from_pose).collect(),
            rotations: (0..self.stations.count()).map(of_station).collect(),
            points: map.points.iter().map(|p| p.xyz.into()).collect(),
            extra: [0.0; EXTRA],
        }
    }

    /// With rotations that stay, long bends would follow their errors: better they stay, too.
    fn reach(&self) -> Reach {
        if self.options.poses == PoseUnknowns::Centres { Reach::Short } else { self.structure.reach() }
    }

    /// Number of shared unknowns.
    fn border(&self) -> usize {
        self.intrinsics.free.len() + self.extra
    }

    /// The observations of point `p` by images: without those of lenses, which are the last.
    #[inline(always)]
    fn seen(&self, p: usize) -> std::ops::Range<usize> {
        let mut range = self.structure.of_point(p);
        if self.others.count() > 0 {
            while range.end > range.start
                && self.structure.camera[range.end - 1] as usize >= self.stations.count()
            {
                range.end -= 1;
            }
        }
        range
    }

    /// Which camera made the image that observation `o` is in: 0 the one that made most, `k + 1` the k-th of the others.
    #[inline(always)]
    fn lens(&self, o: usize) -> usize {
        self.others.index(self.place(o))
    }

    /// The intrinsics of a camera, counted like this.
    #[inline(always)]
    fn intrinsics_of(&self, lens: usize) -> &Intrinsics {
        match lens {
            0 => &self.intrinsics,
            _ => &self.others.of_camera[lens - 1],
        }
    }

    /// The camera of the structure that stands for a lens but the first.
    #[inline(always)]
    fn node(&self, lens: usize) -> usize {
        self.stations.count() + lens - 1
    }

    /// Where among all unknowns the intrinsics of a camera begin.
    fn first_unknown(&self, lens: usize) -> usize {
        6 * if lens == 0 { self.structure.cameras() } else { self.node(lens) }
    }

    /// What the unknowns that are no parameters of the camera add to the residual of observation `o`.
    #[inline(always)]
    fn add_extra(&self, state: &State, o: usize, residual: &mut [f64; 2]) {
        if let Some(slopes) = self.slopes.get(o) {
            for (slope, value) in slopes.iter().zip(&state.extra) {
                residual[0] += slope[0] * value;
                residual[1] += slope[1] * value;
            }
        }
    }

    /// The centre of station `c`.
    fn centre(&self, state: &State, c: usize) -> Vector3<f64> {
        Vector3::from(state.extrinsics[self.stations.first(c)].centre)
    }

    /// The place among the registered images of the one that observation `o` is in.
    #[inline(always)]
    fn place(&self, o: usize) -> usize {
        self.place.get(o).map_or(self.structure.camera[o] as usize, |&place| place as usize)
    }

    /// The residual of observation `o`, of point `p`; `None` behind the camera.
    #[inline(always)]
    fn residual(&self, projectors: &[Projector], state: &State, o: usize, p: usize) -> Option<[f64; 2]> {
        let place = self.place(o);
        let pose = &state.extrinsics[place];
        let projector = &projectors[self.others.index(place)];
        let mut residual = projector.residual(pose, &state.points[p], &self.pixels[o])?;
        self.add_extra(state, o, &mut residual);
        Some(residual)
    }

    fn store(&self, state: &State, map: &mut Map) {
        map.camera = state.camera.clone();
        map.others.cameras.clone_from(&state.others);
        for (place, &image) in self.stations.images.iter().enumerate() {
            let centre = Vector3::from(state.extrinsics[place].centre);
            let rotation = &state.rotations[self.stations.camera(place)];
            map.poses[image] = Some(self.stations.pose(place, rotation, &centre));
        }
        for (point, xyz) in map.points.iter_mut().zip(&state.points) {
            point.xyz = Vector3::from(*xyz);
        }
    }

    /// Half the sum of the losses, and the priors.
    fn cost(&self, state: &State) -> f64 {
        let projectors = projectors(state);
        let sums: Vec<f64> = (0..self.structure.points().div_ceil(CHUNK))
            .into_par_iter()
            .map(|chunk| {
                let last = self.structure.points().min((chunk + 1) * CHUNK);
                let mut sum = LossSum::new(self.options.loss);
                for p in chunk * CHUNK..last {
                    for o in self.seen(p) {
                        let squared = match self.residual(&projectors, state, o, p) {
                            Some(r) => r[0] * r[0] + r[1] * r[1],
                            None => BEHIND * BEHIND,
                        };
                        sum.add(squared);
                    }
                }
                sum.total()
            })
            .collect();
        let others = self.others.of_camera.iter().zip(&state.others);
        let priors = self.intrinsics.cost(&state.camera) + others.map(|(i, c)| i.cost(c)).sum::<f64>();
        0.5 * (sums.iter().sum::<f64>() + priors)
    }

    /// Residual and derivatives of observation `o`, scaled by the root of its robust weight. Those by the intrinsics are
    /// by the unknowns of its lens, in their order, with the shared unknowns that are no parameters of it after them; zero beyond.
    #[inline(always)]
    fn linearise(&self, projectors: &[Projector], state: &State, o: usize, p: usize) -> Option<Linearised> {
        let place = self.place(o);
        let lens = self.others.index(place);
        let (projector, intrinsics) = (&projectors[lens], self.intrinsics_of(lens));
        let mut l = projector.linearise(&state.extrinsics[place], &state.points[p], &self.pixels[o])?;
        l.by_rotation = self.stations.by_station(place, l.by_rotation);
        self.add_extra(state, o, &mut l.residual);
        let squared = l.residual[0] * l.residual[0] + l.residual[1] * l.residual[1];
        let w = self.options.loss.at(squared).1.sqrt();
        let turn = if self.options.poses == PoseUnknowns::Centres { 0.0 } else { w };
        for i in 0..2 {
            l.residual[i] *= w;
            l.by_rotation[i].iter_mut().for_each(|v| *v *= turn);
            l.by_point[i].iter_mut().for_each(|v| *v *= w);
            let mut shared = intrinsics.by_unknowns(&l.by_intrinsics[i], w);
            if let Some(slopes) = self.slopes.get(o) {
                let extra = shared[intrinsics.free.len()..].iter_mut().take(self.extra);
                extra.zip(slopes).for_each(|(value, slope)| *value = w * slope[i]);
            }
            l.by_intrinsics[i] = shared;
        }
        Some(l)
    }

    /// A damped Gauss-Newton step, after which points settle.
    fn step(&self, state: &State, damping: f64, work: &mut Workspace) -> Option<Step<State>> {
        let reduced = self.equations_in(state, damping, work);
        let x = reduced.solve()?;
        let moves = schur::back_substitute::<6, 8>(&self.structure, &work.points, &x);
        let mut next = self.moved(state, &x, &moves)?;
        self.settle(&mut next, &work.points.y);
        Some(Step { state: next, is_at_rest: self.is_at_rest(&x, &reduced.rhs) })
    }

    /// Whether the step `x` is so short that cameras are at rest. `rhs` is the right-hand side that it belongs to.
    fn is_at_rest(&self, x: &[f64], rhs: &[f64]) -> bool {
        let squared: f64 = x.iter().zip(rhs).map(|(x, r)| x * r).sum();
        squared < (self.options.rest * self.options.noise).powi(2)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;
    use crate::sfm::synthetic::Capture;

    fn options() -> BundleOptions {
        BundleOptions {
            loss: Loss::Huber(1.0),
            noise: ASSUMED_NOISE,
            rest: 0.0,
            stopping: Stopping { max_iterations: 60, tolerance: 1e-9 },
            poses: PoseUnknowns::All,
            intrinsics: RefineIntrinsics {
                focal: true,
                distortion: Some(f64::INFINITY),
                principal_point: None,
            },
            other_centres: Vec::new(),
        }
    }

    /// The truth, spoiled: poses, points, focal length and distortion.
    fn spoiled(capture: &Capture, amount: f64) -> Map {
        let mut random = Random::new(11);
        let mut map = capture.true_map_with_points();
        let mut noise = || Vector3::new(random.normal(), random.normal(), random.normal());
        for pose in map.poses.iter_mut().flatten() {
            let turn = UnitQuaternion::from_scaled_axis(0.3 * amount * noise());
            *pose = Pose::from_centre(turn * pose.rotation, &(pose.centre() + amount * noise()));
        }
        for point in &mut map.points {
            point.xyz += amount * noise();
        }
        map.camera.params[0] *= 1.0 + amount;
        map.camera.params[3] = 0.0;
        map
    }

    #[test]
    fn exact_measurements_give_the_exact_model() {
        let capture = Capture::orbit(12, 300, 0.0, 1);
        let mut map = spoiled(&capture, 0.05);
        let summary = adjust(&mut map, &capture.keypoints, &options(), &Control::new()).unwrap();
        assert!(summary.converged && summary.final_cost < 1e-10, "{summary:?}");
        let (centres, rotations) = capture.errors(&map);
        assert!(centres < 1e-6 && rotations < 1e-5, "{centres} {rotations}");
        for (a, b) in map.camera.params.iter().zip(&capture.camera.params) {
            assert!((a - b).abs() < 1e-4 * b.abs().max(1.0), "{a} {b}");
        }
    }

    #[test]
    fn noise_and_wrong_observations_do_little_harm() {
        let capture = Capture::orbit(15, 600, 0.5, 2);
        let mut map = spoiled(&capture, 0.03);
        let mut keypoints = capture.keypoints.clone();
        for point in map.points.iter().step_by(20) {
            let o = point.track[0];
            keypoints[o.image as usize][o.keypoint as usize].x += 40.0;
        }
        let robust = BundleOptions { loss: Loss::Cauchy(1.0), ..options() };
        adjust(&mut map, &keypoints, &robust, &Control::new()).unwrap();
        let (centres, rotations) = capture.errors(&map);
        assert!(centres < 5e-3 && rotations < 0.1, "{centres} {rotations}");
        assert!((map.camera.params[0] / 700.0 - 1.0).abs() < 5e-3, "{:?}", map.camera);
    }

    #[test]
    fn rotations_stay_unless_they_are_unknowns() {
        let capture = Capture::orbit(10, 200, 0.2, 3);
        let start = spoiled(&capture, 0.02);
        let mut map = start.clone();
        let centres_only = BundleOptions { poses: PoseUnknowns::Centres, ..options() };
        adjust(&mut map, &capture.keypoints, &centres_only, &Control::new()).unwrap();
        for (a, b) in map.poses.iter().flatten().zip(start.poses.iter().flatten()) {
            assert!(a.rotation.angle_to(&b.rotation) < 1e-12 && a.translation != b.translation);
        }
    }

    #[test]
    fn the_principal_point_is_found_or_known_to_be_unknown() {
        let mut capture = Capture::orbit(20, 800, 0.3, 4);
        capture.keypoints.iter_mut().flatten().for_each(|p| p.x += 9.0);
        let mut map = spoiled(&capture, 0.01);
        let mut free = options();
        free.intrinsics.principal_point = Some(16.0);
        adjust(&mut map, &capture.keypoints, &free, &Control::new()).unwrap();
        assert!((map.camera.params[1] - 409.0).abs() < 1.5, "{:?}", map.camera);
        let sigma = intrinsics_deviations(&map, &capture.keypoints, &free).unwrap();
        assert_eq!(sigma.iter().map(|s| s.0).collect::<Vec<_>>(), vec![0, 1, 2, 3]);
        assert!(sigma[1].1 < 2.0 && sigma[1].1 > 0.01, "{sigma:?}");
    }

    #[test]
    fn the_result_does_not_depend_on_the_number_of_threads() {
        let capture = Capture::orbit(12, 900, 0.5, 6);
        let run = |threads| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            let mut map = spoiled(&capture, 0.02);
            pool.install(|| adjust(&mut map, &capture.keypoints, &options(), &Control::new())).unwrap();
            map
        };
        let (one, four) = (run(1), run(4));
        assert_eq!(one.poses, four.poses);
        assert_eq!(one.points, four.points);
        assert_eq!(one.camera, four.camera);
    }
}
