//! How the poses of an adjusted map may be off: draws from their error, without a gauge.
//!
//! The wild bootstrap (Wu, "Jackknife, bootstrap and other resampling methods in regression analysis", Annals of
//! Statistics 1986; by clusters: Cameron, Gelbach & Miller, Review of Economics and Statistics 2008): the gradients that
//! clusters of observations contribute are given random signs, and the adjustment answers to their sum. The covariance
//! of such draws is the cluster-robust one ([`super::covariance`] has it for the intrinsics), for all poses at the price
//! of one factorisation. What one draw moves as a whole (the seven freedoms of the world) is for the caller to take out.

use nalgebra::Vector3;
use rayon::prelude::*;

use crate::random::hash;
use crate::sfm::map::{Keypoints, Map};
use crate::sfm::projection::Linearised;
use crate::sfm::schur::{self, BORDER, CHUNK, PointTerms};

use super::covariance::regions;
use super::{BundleOptions, Problem, State, principal_point_index, projectors};

/// Draws of each clustering: the root of their mean square is known to about a tenth.
pub(crate) const DRAWS: usize = 24;
/// Stretches of consecutive images that count as clusters.
const STRETCHES: usize = 10;
/// Cells of the picture across and down.
const CELLS: (usize, usize) = (8, 6);
/// Cells of one image across and down.
const PATCHES: (usize, usize) = (3, 3);

/// What errs alike.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Clustering {
    /// The observations of a point: keypoints drift along their track.
    Tracks,
    /// All points of a part of the scene: contours and coarse textures.
    Regions,
    /// All observations of a stretch of consecutive images.
    Stretches,
    /// What lies in one part of the picture, in whatever image: a lens that the camera model does not know.
    Cells,
    /// One part of one image: blur, a rolling shutter.
    Patches,
}

impl Clustering {
    pub(crate) const ALL: [Self; 5] =
        [Self::Tracks, Self::Regions, Self::Stretches, Self::Cells, Self::Patches];
}

/// One draw: by how much everything is off.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Draw {
    /// Rotations of the registered images, radians, in the camera's frame.
    pub(crate) turns: Vec<Vector3<f64>>,
    /// Shifts of their centres, units of the map.
    pub(crate) shifts: Vec<Vector3<f64>>,
    /// Of the focal length, as a fraction of it; 0 where it is no unknown.
    pub(crate) focal: f64,
}

/// The draws at the minimum `map`, by clustering in the order of [`Clustering::ALL`]; images without a pose are left
/// out. `None` where the equations are singular or the unknowns are not outnumbered.
pub(crate) fn pose_draws(
    map: &Map,
    keypoints: &Keypoints,
    options: &BundleOptions,
) -> Option<Vec<Vec<Draw>>> {
    let problem = Problem::new(map, keypoints, options)?;
    let state = problem.state(map);
    // The gauge freedoms are held by damping alone; draws do not push along them.
    let (reduced, points) = problem.equations(&state, 1e-9);
    let factor = reduced.matrix.factor()?;
    let unknowns = 3 * problem.structure.points() + reduced.size();
    let freedom = (2 * problem.observations).checked_sub(unknowns).filter(|&f| f > 0)?;
    // Residuals are smaller than the errors that made them, by the freedom that the unknowns took.
    let inflation = (2.0 * problem.observations as f64 / freedom as f64).sqrt() / problem.curvature(&state);
    let regions = regions(&state.points);
    let focal = problem.intrinsics.free.iter().position(|&parameter| parameter == 0);
    let cameras = problem.structure.cameras();
    let mut all = Vec::with_capacity(Clustering::ALL.len());
    for clustering in Clustering::ALL {
        let signs = Signs { clustering, problem: &problem, regions: &regions };
        let mut x = problem.signed_gradients(&state, &points, &signs);
        factor.solve_in_place(&mut x, DRAWS)?;
        let draw = |x: &[f64]| {
            let three = |c: usize, k: usize| {
                inflation * Vector3::new(x[6 * c + k], x[6 * c + k + 1], x[6 * c + k + 2])
            };
            let focal = focal.map_or(0.0, |k| inflation * x[6 * cameras + k] / state.camera.mean_focal());
            let all = |k: usize| -> Vec<_> { (0..cameras).map(|c| three(c, k)).collect() };
            let (turns, shifts) = problem.stations.by_image(&all(0), &all(3));
            Draw { turns, shifts, focal }
        };
        all.push(x.chunks_exact(reduced.size()).map(draw).collect());
    }
    Some(all)
}

/// How everything answers to a shift of the principal point by `pixels`, to the right and downwards, if it is free in
/// `options`. `None` where it is not, or where the equations are singular. `camera` 0 is the one that made most images.
pub(crate) fn centre_responses(
    map: &Map,
    keypoints: &Keypoints,
    options: &BundleOptions,
    camera: usize,
    [right, down]: [f64; 2],
) -> Option<[Draw; 2]> {
    let problem = Problem::new(map, keypoints, options)?;
    let x = principal_point_index(map.cameras().nth(camera)?.model);
    let free = match camera.checked_sub(1) {
        None => &problem.intrinsics.free,
        Some(other) => &problem.others.of_camera.get(other)?.free,
    };
    let first = problem.first_unknown(camera);
    let unknown = |parameter: usize| Some(first + free.iter().position(|&k| k == parameter)?);
    let [right, down] = [(unknown(x)?, right), (unknown(x + 1)?, down)];
    let mut responses = problem.responses(&problem.state(map), &[right, down])?.into_iter();
    Some([responses.next()?, responses.next()?])
}

/// How everything answers to 1 of a shared unknown that is no parameter of the camera, by which each keypoint moves by
/// its slope. `None` where the equations are singular.
pub(crate) fn extra_response(
    map: &Map,
    keypoints: &Keypoints,
    slopes: &Keypoints,
    options: &BundleOptions,
) -> Option<Draw> {
    let problem = Problem::with_extra(map, keypoints, &[slopes], options)?;
    problem
        .responses(&problem.state(map), &[(problem.first_unknown(0) + problem.intrinsics.free.len(), 1.0)])?
        .pop()
}

impl Problem<'_> {
    /// How everything answers if one of the unknowns that are no pose (its index among all) is off by an amount, one by one.
    fn responses(&self, state: &State, amounts: &[(usize, f64)]) -> Option<Vec<Draw>> {
        let (reduced, _) = self.equations(state, 1e-9);
        let factor = reduced.matrix.factor()?;
        let cameras = self.structure.cameras();
        let focal = self.intrinsics.free.iter().position(|&parameter| parameter == 0);
        let response = |&(own, amount): &(usize, f64)| -> Option<Draw> {
            let mut rhs = vec![0.0; reduced.size()];
            *rhs.get_mut(own)? = 1.0;
            let x = schur::solve_by(&factor, rhs)?;
            let scale = amount / x[own];
            let three = |at: usize| scale * Vector3::new(x[at], x[at + 1], x[at + 2]);
            let all = |k: usize| -> Vec<_> { (0..cameras).map(|c| three(6 * c + k)).collect() };
            let (turns, shifts) = self.stations.by_image(&all(0), &all(3));
            let focal = focal.map_or(0.0, |k| scale * x[6 * cameras + k] / state.camera.mean_focal());
            scale.is_finite().then_some(Draw { turns, shifts, focal })
        };
        amounts.iter().map(response).collect()
    }
}

/// The signs of the clusters.
struct Signs<'a> {
    clustering: Clustering,
    problem: &'a Problem<'a>,
    regions: &'a [u32],
}

impl Signs<'_> {
    /// A bit for every draw.
    fn of(&self, o: usize, p: usize) -> u64 {
        let structure = &self.problem.structure;
        let cameras = self.problem.stations.count();
        let station = structure.camera[o] as usize;
        let cluster = match self.clustering {
            Clustering::Tracks => p,
            Clustering::Regions => self.regions[p] as usize,
            Clustering::Stretches => station * STRETCHES / cameras,
            Clustering::Cells => self.cell(o, CELLS),
            Clustering::Patches => self.problem.place(o) * PATCHES.0 * PATCHES.1 + self.cell(o, PATCHES),
        };
        hash(hash(self.clustering as u64 + 1) ^ cluster as u64)
    }

    fn cell(&self, o: usize, (across, down): (usize, usize)) -> usize {
        let [x, y] = self.problem.pixels[o];
        let (width, height) = self.problem.intrinsics_of(self.problem.lens(o)).size;
        let index = |v: f64, size: f64, cells: usize| ((v / size * cells as f64) as usize).min(cells - 1);
        index(y, height, down) * across + index(x, width, across)
    }
}

/// 1 or -1, the sign of draw `k`.
fn sign(bits: u64, k: usize) -> f64 {
    if bits >> k & 1 == 0 { 1.0 } else { -1.0 }
}

impl Problem<'_> {
    /// Curvature of the loss over that of its quadratic approximation, by which the equations are made.
    fn curvature(&self, state: &State) -> f64 {
        let projectors = projectors(state);
        let sums: Vec<[f64; 2]> = (0..self.structure.points().div_ceil(CHUNK))
            .into_par_iter()
            .map(|chunk| {
                let mut sum = [0.0; 2];
                for p in chunk * CHUNK..self.structure.points().min((chunk + 1) * CHUNK) {
                    for o in self.seen(p) {
                        let w = self.weight(&projectors, state, o, p);
                        sum[0] += w;
                        sum[1] += w * w;
                    }
                }
                sum
            })
            .collect();
        let total = |k: usize| sums.iter().map(|s| s[k]).sum::<f64>();
        (total(1) / total(0).max(f64::MIN_POSITIVE)).max(1e-3)
    }

    /// The reduced gradients of all draws, one after the other.
    fn signed_gradients(&self, state: &State, points: &PointTerms<8>, signs: &Signs<'_>) -> Vec<f64> {
        let projectors = projectors(state);
        let structure = &self.structure;
        let (cameras, border) = (structure.cameras(), self.intrinsics.free.len());
        let size = 6 * cameras + border;
        let at = |o: usize, p: usize| -> Option<(Linearised, u64)> {
            Some((self.linearise(&projectors, state, o, p)?, signs.of(o, p)))
        };
        // What each point takes: `L^-1` times its signed gradient.
        let mut taken = vec![[[0.0; 3]; DRAWS]; structure.points()];
        taken.par_chunks_mut(CHUNK).enumerate().for_each(|(chunk, taken)| {
            for (i, own) in taken.iter_mut().enumerate() {
                let p = chunk * CHUNK + i;
                for (l, bits) in self.seen(p).filter_map(|o| at(o, p)) {
                    let g: [f64; 3] = std::array::from_fn(|a| {
                        l.by_point[0][a] * l.residual[0] + l.by_point[1][a] * l.residual[1]
                    });
                    for (k, sum) in own.iter_mut().enumerate() {
                        let s = sign(bits, k);
                        (0..3).for_each(|a| sum[a] += s * g[a]);
                    }
                }
                for sum in own.iter_mut() {
                    *sum = schur::whiten_vector(sum, &points.factor[p]);
                }
            }
        });
        let by_intrinsics = |l: &Linearised| -> [f64; BORDER] {
            let r = &l.residual;
            std::array::from_fn(|b| l.by_intrinsics[0][b] * r[0] + l.by_intrinsics[1][b] * r[1])
        };
        let mut by_camera = vec![([[0.0; 6]; DRAWS], [[0.0; BORDER]; DRAWS]); cameras];
        by_camera.par_iter_mut().enumerate().for_each(|(c, (own, shared))| {
            for &o in structure.of_camera(c) {
                let (o, p) = (o as usize, structure.point[o as usize] as usize);
                let z = &points.z[o];
                if let Some(lens) = c.checked_sub(self.stations.count()) {
                    // What the point takes from a lens, and what the images of that lens give it.
                    for (k, own) in own.iter_mut().enumerate() {
                        let y = &taken[p][k];
                        for a in 0..6 {
                            own[a] -= z[0][a] * y[0] + z[1][a] * y[1] + z[2][a] * y[2];
                        }
                    }
                    for o in self.seen(p).filter(|&o| self.lens(o) == lens + 1) {
                        let Some((l, bits)) = at(o, p) else { continue };
                        let gradient = by_intrinsics(&l);
                        for (k, own) in own.iter_mut().enumerate() {
                            (0..6).for_each(|a| own[a] += sign(bits, k) * gradient[a]);
                        }
                    }
                    continue;
                }
                let Some((l, bits)) = at(o, p) else { continue };
                let r = &l.residual;
                let (turn, q) = (&l.by_rotation, &l.by_point);
                let g: [f64; 6] = std::array::from_fn(|a| match a {
                    0..3 => turn[0][a] * r[0] + turn[1][a] * r[1],
                    _ => -(q[0][a - 3] * r[0] + q[1][a - 3] * r[1]),
                });
                let gb = if self.lens(o) == 0 { by_intrinsics(&l) } else { [0.0; BORDER] };
                for k in 0..DRAWS {
                    let (s, y) = (sign(bits, k), &taken[p][k]);
                    for a in 0..6 {
                        own[k][a] += s * g[a] - (z[0][a] * y[0] + z[1][a] * y[1] + z[2][a] * y[2]);
                    }
                    (0..border).for_each(|b| shared[k][b] += s * gb[b]);
                }
            }
        });
        let of_points: Vec<[[f64; BORDER]; DRAWS]> = points
            .z_border
            .par_chunks(CHUNK)
            .zip(taken.par_chunks(CHUNK))
            .map(|(blocks, taken)| {
                let mut sum = [[0.0; BORDER]; DRAWS];
                for (z, own) in blocks.iter().zip(taken) {
                    for (sum, y) in sum.iter_mut().zip(own) {
                        (0..border).for_each(|b| sum[b] += z[0][b] * y[0] + z[1][b] * y[1] + z[2][b] * y[2]);
                    }
                }
                sum
            })
            .collect();
        let mut gradients = vec![0.0; size * DRAWS];
        for (k, column) in gradients.chunks_exact_mut(size).enumerate() {
            for (c, (own, shared)) in by_camera.iter().enumerate() {
                column[6 * c..6 * c + 6].copy_from_slice(&own[k]);
                (0..border).for_each(|b| column[6 * cameras + b] += shared[k][b]);
            }
            for sum in &of_points {
                (0..border).for_each(|b| column[6 * cameras + b] -= sum[k][b]);
            }
        }
        gradients
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::camera::{Camera, CameraModel};
    use crate::control::Control;
    use crate::sfm::bundle_adjustment::{
        ASSUMED_NOISE, PoseUnknowns, RefineIntrinsics, adjust, intrinsics_deviations,
    };
    use crate::sfm::levenberg_marquardt::Stopping;
    use crate::sfm::projection::Loss;
    use crate::sfm::synthetic::Capture;

    fn options() -> BundleOptions {
        BundleOptions {
            loss: Loss::Cauchy(1.0),
            noise: ASSUMED_NOISE,
            rest: 0.0,
            stopping: Stopping { max_iterations: 20, tolerance: 1e-8 },
            poses: PoseUnknowns::All,
            intrinsics: RefineIntrinsics { focal: true, distortion: Some(0.05), principal_point: None },
            other_centres: Vec::new(),
        }
    }

    fn adjusted(seed: u64) -> (Capture, Map) {
        let capture = Capture::orbit(12, 300, 0.3, seed);
        let mut map = capture.true_map_with_points();
        adjust(&mut map, &capture.keypoints, &options(), &Control::new()).unwrap();
        (capture, map)
    }

    #[test]
    fn the_draws_of_the_focal_length_spread_as_its_deviation_says() {
        let (capture, map) = adjusted(3);
        let sigma = intrinsics_deviations(&map, &capture.keypoints, &options()).unwrap()[0].1;
        let draws = pose_draws(&map, &capture.keypoints, &options()).unwrap();
        let spread = |draws: &[Draw]| {
            (draws.iter().map(|d| d.focal * d.focal).sum::<f64>() / DRAWS as f64).sqrt()
                * map.camera.mean_focal()
        };
        let largest = draws[..3].iter().map(|d| spread(d)).fold(0.0, f64::max);
        assert!((0.5..2.0).contains(&(largest / sigma)), "{largest} and {sigma}");
    }

    #[test]
    fn more_noise_spreads_more() {
        let size = |noise: f64| {
            let capture = Capture::orbit(12, 300, noise, 5);
            let mut map = capture.true_map_with_points();
            adjust(&mut map, &capture.keypoints, &options(), &Control::new()).unwrap();
            let draws = pose_draws(&map, &capture.keypoints, &options()).unwrap();
            draws[0].iter().flat_map(|d| &d.turns).map(|t| t.norm_squared()).sum::<f64>().sqrt()
        };
        let ratio = size(0.4) / size(0.1);
        assert!((2.5..6.5).contains(&ratio), "{ratio}");
    }

    /// How an image has turned from one map to another, in the world.
    fn turned(before: &Map, after: &Map, c: usize) -> Vector3<f64> {
        let (before, after) = (before.poses[c].unwrap(), after.poses[c].unwrap());
        before.rotation.inverse() * (after.rotation * before.rotation.inverse()).scaled_axis()
    }

    #[test]
    fn poses_answer_to_a_shift_of_the_principal_point_as_an_adjustment_does() {
        let capture = Capture::walk(12, 800, 0.3, 6);
        let mut patient = options();
        patient.stopping = Stopping { max_iterations: 300, tolerance: 1e-13 };
        let mut map = capture.true_map_with_points();
        adjust(&mut map, &capture.keypoints, &patient, &Control::new()).unwrap();
        let mut free = options();
        free.intrinsics.principal_point = Some(1e4);
        let pixels = 1.0;
        let [right, _] = centre_responses(&map, &capture.keypoints, &free, 0, [pixels, 0.0]).unwrap();
        let mut shifted = map.clone();
        shifted.camera.params[1] += pixels;
        adjust(&mut shifted, &capture.keypoints, &patient, &Control::new()).unwrap();
        // Up to a turn of the world: how the turn of one camera differs from that of the next.
        let told = |c: usize| map.poses[c].unwrap().rotation.inverse() * right.turns[c];
        let apart = |of: &dyn Fn(usize) -> Vector3<f64>| of(6) - of(0);
        let (is, said) = (apart(&|c| turned(&map, &shifted, c)), apart(&told));
        assert!((is - said).norm() < 0.2 * is.norm() && is.norm() > 1e-5, "{is} {said}");
        assert!(centre_responses(&map, &capture.keypoints, &options(), 0, [1.0; 2]).is_none());
    }

    #[test]
    fn poses_answer_to_the_principal_point_of_another_camera() {
        let lens = Camera {
            model: CameraModel::SimpleRadial,
            width: 1040,
            height: 760,
            params: vec![930.0, 520.0, 380.0, 0.04],
        };
        let capture = Capture::orbit(16, 500, 0.3, 6).with_other_camera(lens, |i| i % 4 == 1);
        let mut patient = options();
        patient.stopping = Stopping { max_iterations: 300, tolerance: 1e-13 };
        let mut map = capture.true_map_with_points();
        adjust(&mut map, &capture.keypoints, &patient, &Control::new()).unwrap();
        let mut free = options();
        free.other_centres = vec![Some(1e4)];
        let [right, _] = centre_responses(&map, &capture.keypoints, &free, 1, [5.0, 0.0]).unwrap();
        let mut shifted = map.clone();
        shifted.others.cameras[0].params[1] += 5.0;
        adjust(&mut shifted, &capture.keypoints, &patient, &Control::new()).unwrap();
        let told = |c: usize| map.poses[c].unwrap().rotation.inverse() * right.turns[c];
        // The images of that camera turn against the others, by about the angle of 5 pixels.
        let apart = |of: &dyn Fn(usize) -> Vector3<f64>| of(5) - of(0);
        let (is, said) = (apart(&|c| turned(&map, &shifted, c)), apart(&told));
        assert!((is - said).norm() < 0.2 * is.norm() && is.norm() > 0.7 * 5.0 / 930.0, "{is} {said}");
        assert!(centre_responses(&map, &capture.keypoints, &options(), 1, [1.0; 2]).is_none());
        assert!(centre_responses(&map, &capture.keypoints, &free, 2, [1.0; 2]).is_none());
    }

    #[test]
    fn the_draws_do_not_depend_on_the_number_of_threads() {
        let (capture, map) = adjusted(4);
        let run = |threads| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            pool.install(|| pose_draws(&map, &capture.keypoints, &options()).unwrap())
        };
        assert_eq!(run(1), run(2));
    }
}
