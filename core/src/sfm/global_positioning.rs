//! Global positioning: all camera centres and points at once when the rotations are known.
//!
//! Minimises the bilinear angle residual `v - d (X - c)` (BATA; Zhuang, Cheong & Lee, "Baseline Desensitizing in
//! Translation Averaging", CVPR 2018, as used in GLOMAP, Pan et al., ECCV 2024, section 3.3) over centres `c`, points
//! `X` and a positive scale `d` per observation; `v` is the world-frame view ray. At the best `d` it is the sine of the
//! angle between the ray and the direction to the point, at most 1, hence robust. Scales are eliminated one by one,
//! points by 3x3 blocks ([`super::schur`]), and a dense system over the centres remains.

use nalgebra::{UnitQuaternion, Vector3};
use rayon::prelude::*;

use crate::control::Control;
use crate::error::Result;
use crate::random::Random;

use super::levenberg_marquardt::{Reach, Step, Stopping, minimise};
use super::map::Observation;
use super::projection::Loss;
use super::rig::Rig;
use super::schur::{self, CHUNK, CameraTerms, PointTerms, Reduced, Structure};

/// How residuals count, which are sines of angles. GLOMAP's.
const LOSS: Loss = Loss::Huber(0.1);
/// Scales are not smaller than this: they are positive, so that points stay ahead of their cameras. GLOMAP's.
const SMALLEST_SCALE: f64 = 1e-5;
/// When to stop. The iterations are GLOMAP's, which says that 50 to 70 are usual.
const STOPPING: Stopping = Stopping { max_iterations: 100, tolerance: 1e-4 };
/// The same from known centres of images in long chains. How these bend as a whole is better known from the pairs than from
/// rays whose rotations are fixed: what little is gained late goes into bends that follow the rotations' errors.
const STOPPING_OF_CHAINS: Stopping = Stopping { max_iterations: 100, tolerance: 1e-2 };

/// Where centres and points are, and how well rays agree with it.
#[derive(Debug, Clone)]
pub(crate) struct Positions {
    /// By image; `None` where the image has no rotation or no track.
    pub(crate) centres: Vec<Option<Vector3<f64>>>,
    /// Fraction of the observations whose ray is within 2 degrees of the direction to its point.
    pub(crate) agreeing: f64,
}

/// How to begin.
pub(crate) enum Start<'a> {
    /// Centres known roughly (missing ones begin near the middle).
    Centres(&'a [Option<Vector3<f64>>]),
    /// Everything uniformly at random in a cube, as in GLOMAP.
    Random(u64),
}

/// Finds positions from `tracks` of keypoints with camera-frame unit `rays`.
///
/// # Errors
/// [`crate::ErrorKind::Cancelled`].
pub(crate) fn position(
    rig: &Rig,
    rotations: &[Option<UnitQuaternion<f64>>],
    rays: &[Vec<Vector3<f64>>],
    tracks: &[Vec<Observation>],
    start: Start<'_>,
    control: &Control,
) -> Result<Positions> {
    let Some(problem) = Problem::new(rig, rotations, rays, tracks) else {
        return Ok(Positions { centres: vec![None; rotations.len()], agreeing: 0.0 });
    };
    let (begin, stopping) = match start {
        Start::Centres(centres) => {
            let is_long = problem.structure.reach() == Reach::Long;
            let stopping = if is_long { STOPPING_OF_CHAINS } else { STOPPING };
            let of_stations: Vec<_> = (0..rig.stations()).map(|s| centres[rig.images_of(s).start]).collect();
            (problem.around_centres(&of_stations), stopping)
        }
        Start::Random(seed) => (problem.at_random(seed), STOPPING),
    };
    let step = |s: &State, damping: f64| problem.step(s, damping).map(Step::to);
    let (state, _) = minimise(begin, stopping, Reach::Short, control, |s| problem.cost(s), step)?;
    let mut centres = vec![None; rig.stations()];
    for (&station, c) in problem.stations.iter().zip(&state.centres) {
        centres[station] = Some(Vector3::from(*c));
    }
    Ok(Positions { centres: rig.by_image(&centres), agreeing: problem.agreeing(&state) })
}

struct Problem {
    structure: Structure,
    stations: Vec<usize>,
    /// World-frame unit ray by observation.
    rays: Vec<[f64; 3]>,
}

#[derive(Clone)]
struct State {
    centres: Vec<[f64; 3]>,
    points: Vec<[f64; 3]>,
    scales: Vec<f64>,
}

/// One observation: `s = X - c`, residual, robust weight.
struct Term {
    s: [f64; 3],
    r: [f64; 3],
    weight: f64,
}

impl Problem {
    fn new(
        rig: &Rig,
        rotations: &[Option<UnitQuaternion<f64>>],
        rays: &[Vec<Vector3<f64>>],
        tracks: &[Vec<Observation>],
    ) -> Option<Self> {
        let mut sees = vec![false; rig.stations()];
        let station = |o: &Observation| rig.station_of(o.image as usize);
        let usable = |o: &&Observation| rotations[o.image as usize].is_some();
        tracks.iter().flatten().filter(usable).for_each(|o| sees[station(o)] = true);
        let stations: Vec<usize> = (0..rig.stations()).filter(|&s| sees[s]).collect();
        let mut slot = vec![0u32; rig.stations()];
        stations.iter().enumerate().for_each(|(s, &i)| slot[i] = s as u32);
        let (mut start, mut camera, mut world) = (vec![0], Vec::new(), Vec::new());
        for track in tracks {
            let first = camera.len();
            // Tracks are ordered by image, hence by slot.
            for o in track.iter().filter(usable) {
                let Some(rotation) = rotations[o.image as usize] else { continue };
                let own = slot[station(o)];
                // Two images of one station may show a point, at the edge between them; once is enough.
                if camera.len() > first && camera.last() == Some(&own) {
                    continue;
                }
                camera.push(own);
                world.push((rotation.inverse() * rays[o.image as usize][o.keypoint as usize]).into());
            }
            start.push(camera.len() as u32);
        }
        if stations.len() < 2 || camera.is_empty() {
            return None;
        }
        Some(Self { structure: Structure::new(stations.len(), 3, start, camera), stations, rays: world })
    }

    fn at_random(&self, seed: u64) -> State {
        let mut random = Random::new(seed);
        let mut cube = || std::array::from_fn(|_| 2.0 * random.uniform() - 1.0);
        let centres = self.stations.iter().map(|_| cube()).collect();
        let points = (0..self.structure.points()).map(|_| cube()).collect();
        State { centres, points, scales: vec![1.0; self.rays.len()] }
    }

    fn around_centres(&self, centres: &[Option<Vector3<f64>>]) -> State {
        let known: Vec<Vector3<f64>> = self.stations.iter().filter_map(|&i| centres[i]).collect();
        let middle = known.iter().sum::<Vector3<f64>>() / known.len().max(1) as f64;
        let centres: Vec<[f64; 3]> =
            self.stations.iter().map(|&i| centres[i].unwrap_or(middle).into()).collect();
        let spread = known.iter().map(|c| (c - middle).norm()).sum::<f64>() / known.len().max(1) as f64;
        let points: Vec<[f64; 3]> = (0..self.structure.points())
            .into_par_iter()
            .map(|p| self.nearest_to_rays(&centres, p, spread.max(1e-6)))
            .collect();
        let mut state = State { centres, points, scales: vec![1.0; self.rays.len()] };
        for o in 0..self.rays.len() {
            let s = self.offset(&state, o);
            let along = dot(&s, &self.rays[o]) / dot(&s, &s).max(1e-12);
            // An observation that looks away from its point begins with the scale that its distance suggests.
            let distance = dot(&s, &s).sqrt().max(1e-6);
            state.scales[o] = along.max(0.1 / distance).max(SMALLEST_SCALE);
        }
        state
    }

    /// The point nearest to the rays of track `p`, in front of its first camera; `spread` is how far apart cameras are.
    fn nearest_to_rays(&self, centres: &[[f64; 3]], p: usize, spread: f64) -> [f64; 3] {
        let mut a = nalgebra::Matrix3::zeros();
        let mut b = Vector3::zeros();
        let mut ahead = Vector3::zeros();
        let range = self.structure.of_point(p);
        let count = range.len().max(1) as f64;
        for o in range {
            let v = Vector3::from(self.rays[o]);
            let c = Vector3::from(centres[self.structure.camera[o] as usize]);
            let across = nalgebra::Matrix3::identity() - v * v.transpose();
            a += across;
            b += across * c;
            ahead += (c + spread * v) / count;
        }
        // A pull, weak against half a degree of parallax, to where the cameras look.
        let pull = 1e-4 * count;
        let x = (a + nalgebra::Matrix3::from_diagonal_element(pull))
            .cholesky()
            .map_or(ahead, |chol| chol.solve(&(b + pull * ahead)));
        x.into()
    }

    #[inline(always)]
    fn offset(&self, state: &State, o: usize) -> [f64; 3] {
        let x = &state.points[self.structure.point[o] as usize];
        let c = &state.centres[self.structure.camera[o] as usize];
        [x[0] - c[0], x[1] - c[1], x[2] - c[2]]
    }

    #[inline(always)]
    fn term(&self, state: &State, o: usize) -> Term {
        let s = self.offset(state, o);
        let v = &self.rays[o];
        let d = state.scales[o];
        let r = [v[0] - d * s[0], v[1] - d * s[1], v[2] - d * s[2]];
        Term { s, r, weight: LOSS.at(dot(&r, &r)).1 }
    }

    fn cost(&self, state: &State) -> f64 {
        let sums: Vec<f64> = state
            .scales
            .par_chunks(16 * CHUNK)
            .enumerate()
            .map(|(chunk, scales)| {
                let first = chunk * 16 * CHUNK;
                (first..first + scales.len())
                    .map(|o| {
                        let t = self.term(state, o);
                        LOSS.at(dot(&t.r, &t.r)).0
                    })
                    .sum()
            })
            .collect();
        0.5 * sums.iter().sum::<f64>()
    }

    fn agreeing(&self, state: &State) -> f64 {
        let good = (0..self.rays.len())
            .filter(|&o| {
                let s = self.offset(state, o);
                dot(&s, &self.rays[o]) > 2f64.to_radians().cos() * dot(&s, &s).sqrt()
            })
            .count();
        good as f64 / self.rays.len().max(1) as f64
    }

    /// Normal-equation block `A` of an observation after its scale is eliminated, with the gradient `g` by the point:
    /// point-point and centre-centre blocks are `A`, the cross block is `-A`, the gradient by the centre is `-g`. The
    /// third value is the diagonal before elimination, which damping is relative to.
    #[inline(always)]
    fn blocks(&self, state: &State, o: usize, damping: f64) -> ([[f64; 3]; 3], [f64; 3], f64) {
        let t = self.term(state, o);
        let d = state.scales[o];
        let stiffness = t.weight * d * d;
        let f = 1.0 / (dot(&t.s, &t.s) * (1.0 + damping)).max(1e-300);
        let along = dot(&t.s, &t.r) * f;
        let mut a = [[0.0; 3]; 3];
        for i in 0..3 {
            for j in 0..3 {
                a[i][j] = -stiffness * f * t.s[i] * t.s[j];
            }
            a[i][i] += stiffness;
        }
        let g = [0, 1, 2].map(|i| -t.weight * d * (t.r[i] - t.s[i] * along));
        (a, g, stiffness)
    }

    fn equations(&self, state: &State, damping: f64) -> (Reduced, PointTerms<4>) {
        let structure = &self.structure;
        let mut points = PointTerms::<4>::new(structure, 0);
        let mut rest = points.z.as_mut_slice();
        let mut tasks = Vec::new();
        for (chunk, (y, factor)) in
            points.y.chunks_mut(CHUNK).zip(points.factor.chunks_mut(CHUNK)).enumerate()
        {
            let first = chunk * CHUNK;
            let count = structure.point_start[first + y.len()] - structure.point_start[first];
            let (z, after) = rest.split_at_mut(count as usize);
            rest = after;
            tasks.push((first, y, factor, z));
        }
        tasks.into_par_iter().for_each(|(first, y, factor, z)| {
            let base = structure.point_start[first] as usize;
            for (i, p) in (first..first + y.len()).enumerate() {
                let mut v = [0.0; 6];
                let mut g = [0.0; 3];
                let mut diagonal = 0.0;
                for o in structure.of_point(p) {
                    let (a, go, stiffness) = self.blocks(state, o, damping);
                    diagonal += stiffness;
                    let lower = [a[0][0], a[1][0], a[1][1], a[2][0], a[2][1], a[2][2]];
                    (0..6).for_each(|k| v[k] += lower[k]);
                    (0..3).for_each(|k| g[k] += go[k]);
                    let block = &mut z[o - base];
                    for k in 0..3 {
                        (0..3).for_each(|r| block[k][r] = -a[r][k]);
                    }
                }
                for k in [0, 2, 5] {
                    v[k] += (damping + 1e-9) * diagonal + f64::MIN_POSITIVE;
                }
                let range = structure.of_point(p).start - base..structure.of_point(p).end - base;
                match schur::factor3(&v) {
                    Some(l) => {
                        z[range].iter_mut().for_each(|b| schur::whiten(b, &l));
                        y[i] = schur::whiten_vector(&g, &l);
                        factor[i] = l;
                    }
                    None => {
                        z[range].fill([[0.0; 4]; 3]);
                        factor[i] = [1.0, 0.0, 1.0, 0.0, 0.0, 1.0];
                    }
                }
            }
        });
        let reduced = schur::reduce::<3, 4>(structure, &points, 0, |c| {
            let mut sum = CameraTerms::<3, 4>::zero();
            let mut diagonal = 0.0;
            for &o in structure.of_camera(c) {
                let (a, g, stiffness) = self.blocks(state, o as usize, damping);
                diagonal += stiffness;
                for i in 0..3 {
                    sum.gradient[i] -= g[i];
                    (0..3).for_each(|j| sum.u[i][j] += a[i][j]);
                }
            }
            (0..3).for_each(|i| sum.u[i][i] += (damping + 1e-9) * diagonal + f64::MIN_POSITIVE);
            sum
        });
        (reduced, points)
    }

    fn step(&self, state: &State, damping: f64) -> Option<State> {
        let (reduced, points) = self.equations(state, damping);
        let x = reduced.solve()?;
        let moves = schur::back_substitute::<3, 4>(&self.structure, &points, &x);
        let mut next = state.clone();
        next.scales.par_iter_mut().with_min_len(4096).enumerate().for_each(|(o, d)| {
            let t = self.term(state, o);
            let c = self.structure.camera[o] as usize;
            let m = &moves[self.structure.point[o] as usize];
            let change = [0, 1, 2].map(|k| m[k] - x[3 * c + k]);
            let f = 1.0 / (dot(&t.s, &t.s) * (1.0 + damping)).max(1e-300);
            *d = (*d + f * (dot(&t.s, &t.r) - *d * dot(&t.s, &change))).max(SMALLEST_SCALE);
        });
        for (c, centre) in next.centres.iter_mut().enumerate() {
            (0..3).for_each(|k| centre[k] += x[3 * c + k]);
        }
        for (point, m) in next.points.iter_mut().zip(&moves) {
            (0..3).for_each(|k| point[k] += m[k]);
        }
        Some(next)
    }
}

#[inline(always)]
fn dot(a: &[f64; 3], b: &[f64; 3]) -> f64 {
    a[0] * b[0] + a[1] * b[1] + a[2] * b[2]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::camera::Pose;
    use crate::sfm::synthetic::Capture;
    use crate::sfm::triangulation::keypoint_rays;

    fn error_of(capture: &Capture, tracks: &[Vec<Observation>], start: Start<'_>) -> (f64, f64) {
        let rotations: Vec<_> = capture.poses.iter().map(|p| Some(p.rotation)).collect();
        let rays = keypoint_rays(&capture.camera, &capture.others, &capture.keypoints);
        let found = position(&capture.rig, &rotations, &rays, tracks, start, &Control::new()).unwrap();
        let mut map = capture.true_map();
        for (pose, (rotation, centre)) in map.poses.iter_mut().zip(rotations.iter().zip(&found.centres)) {
            *pose = Some(Pose::from_centre(rotation.unwrap(), &centre.unwrap()));
        }
        (capture.errors(&map).0, found.agreeing)
    }

    #[test]
    fn a_random_start_finds_the_centres_of_an_orbit() {
        let capture = Capture::orbit(20, 800, 0.0, 1);
        let (error, agreeing) = error_of(&capture, &capture.tracks(), Start::Random(1));
        assert!(error < 0.01 && agreeing > 0.99, "{error} {agreeing}");
    }

    #[test]
    fn a_rough_start_is_refined_despite_wrong_tracks() {
        for mut capture in [Capture::orbit(20, 1000, 0.5, 1), Capture::walk(20, 1500, 0.5, 1)] {
            let mut random = Random::new(9);
            let tracks = capture.tracks();
            for track in tracks.iter().step_by(8) {
                let o = track[track.len() / 2];
                let pixel = &mut capture.keypoints[o.image as usize][o.keypoint as usize];
                *pixel = nalgebra::Vector2::new(800.0 * random.uniform(), 600.0 * random.uniform());
            }
            let rough: Vec<_> = capture
                .poses
                .iter()
                .map(|p| {
                    Some(p.centre() + 0.3 * Vector3::new(random.normal(), random.normal(), random.normal()))
                })
                .collect();
            let (error, agreeing) = error_of(&capture, &tracks, Start::Centres(&rough));
            assert!(error < 0.02 && agreeing > 0.9, "{error} {agreeing}");
        }
    }
}
