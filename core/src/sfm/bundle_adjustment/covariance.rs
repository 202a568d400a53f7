//! How well adjusted intrinsics are known.
//!
//! The inverse of the normal equations is the covariance only if residuals are independent, normal and of one known
//! size. They are not: a keypoint drifts along its track, an image is blurred or sheared as a whole, neighbouring
//! frames err alike. The cluster-robust ("sandwich") estimate takes the residuals as they are and only assumes that
//! *clusters* of them are independent: `H^-1 (sum over clusters of g g^T) H^-1` with `g` the gradient that a cluster
//! contributes (Liang & Zeger, "Longitudinal data analysis using generalized linear models", Biometrika 1986). It is
//! taken with tracks, with regions of the scene (contours and coarse textures mislead all tracks on them alike), with
//! images and with stretches of images as clusters, and the largest counts.

use std::collections::BTreeMap;
use std::ops::Range;

use rayon::prelude::*;

use crate::sfm::map::{Keypoints, Map};
use crate::sfm::projection::{Linearised, Projector};
use crate::sfm::schur::{self, BORDER, CHUNK};

use super::{BundleOptions, Problem, State, projectors};

/// Stretches of consecutive images that count as clusters.
const STRETCHES: usize = 10;
/// Halvings of the points, by their place: 2 to this power regions are clusters.
const HALVINGS: u32 = 5;

/// (parameter, standard deviation) of the refined intrinsics at the minimum `map`, in the order of the parameters;
/// priors are counted. `None` where the equations are singular.
pub(crate) fn intrinsics_deviations(
    map: &Map,
    keypoints: &Keypoints,
    options: &BundleOptions,
) -> Option<Vec<(usize, f64)>> {
    let problem = Problem::new(map, keypoints, options)?;
    let deviations = border_deviations(&problem, &problem.state(map))?;
    Some(problem.intrinsics.free.iter().copied().zip(deviations).collect())
}

/// The same of the `k`-th of the other cameras of `map`.
pub(crate) fn other_intrinsics_deviations(
    map: &Map,
    keypoints: &Keypoints,
    options: &BundleOptions,
    k: usize,
) -> Option<Vec<(usize, f64)>> {
    let problem = Problem::new(map, keypoints, options)?;
    let free = &problem.others.of_camera.get(k)?.free;
    let first = problem.first_unknown(k + 1);
    let deviations = deviations(&problem, &problem.state(map), first..first + free.len())?;
    Some(free.iter().copied().zip(deviations).collect())
}

/// Standard deviations of the shared unknowns of `problem` at its minimum `state`, in their order.
pub(super) fn border_deviations(problem: &Problem<'_>, state: &State) -> Option<Vec<f64>> {
    let first = problem.first_unknown(0);
    deviations(problem, state, first..first + problem.border())
}

/// Those of some of the unknowns, at most [`BORDER`] of them.
fn deviations(problem: &Problem<'_>, state: &State, unknowns: Range<usize>) -> Option<Vec<f64>> {
    // The gauge freedoms do not touch the intrinsics, so a little damping does not change their covariance.
    let (reduced, mut points) = problem.equations(state, 1e-9);
    let factor = reduced.matrix.factor()?;
    points.y.fill([0.0; 3]);
    let count = unknowns.len();
    // Columns of the inverse: how cameras, border and points answer to a unit gradient of each intrinsic parameter.
    let mut columns = Vec::with_capacity(count);
    for unknown in unknowns {
        let mut rhs = vec![0.0; reduced.size()];
        rhs[unknown] = 1.0;
        let x = schur::solve_by(&factor, rhs)?;
        let moves = schur::back_substitute::<6, 8>(&problem.structure, &points, &x);
        columns.push(Column { x, moves });
    }
    let sums = problem.cluster_sums(state, &columns);
    let clusterings = sums.deviations();
    let largest = |k: usize| clusterings.iter().map(|c| c[k]).fold(0.0, f64::max) / sums.curvature;
    Some((0..count).map(largest).collect())
}

/// Response of all unknowns.
pub(super) struct Column {
    /// Of cameras and border.
    pub(super) x: Vec<f64>,
    /// Of the points.
    pub(super) moves: Vec<[f64; 3]>,
}

/// Influence of clusters of observations on the intrinsics.
pub(super) struct ClusterSums {
    /// Sum of squares over the tracks.
    pub(super) tracks: [f64; BORDER],
    /// Sum by region of the scene.
    pub(super) regions: Vec<[f64; BORDER]>,
    /// Sum by image.
    pub(super) images: Vec<[f64; BORDER]>,
    /// Curvature of the loss over that of its quadratic approximation, by which the equations were made: below 1 for a
    /// loss that flattens.
    pub(super) curvature: f64,
}

impl ClusterSums {
    /// Deviations with tracks, regions, images, and stretches of images as clusters.
    pub(super) fn deviations(&self) -> [[f64; BORDER]; 4] {
        let spread = |sums: &[[f64; BORDER]]| {
            let n = sums.len() as f64;
            std::array::from_fn(|k| {
                let mean = sums.iter().map(|s| s[k]).sum::<f64>() / n;
                let squares: f64 = sums.iter().map(|s| (s[k] - mean).powi(2)).sum();
                (squares * n / (n - 1.0).max(1.0)).sqrt()
            })
        };
        let length = self.images.len().div_ceil(STRETCHES).max(1);
        let add =
            |stretch: &[[f64; BORDER]]| std::array::from_fn(|k| stretch.iter().map(|s| s[k]).sum::<f64>());
        let stretches: Vec<[f64; BORDER]> = self.images.chunks(length).map(add).collect();
        [self.tracks.map(f64::sqrt), spread(&self.regions), spread(&self.images), spread(&stretches)]
    }
}

/// What a chunk of points adds to [`ClusterSums`], with the sums of the robust weights and of their squares.
struct Part {
    tracks: [f64; BORDER],
    regions: Vec<[f64; BORDER]>,
    /// By camera of the structure, those that see a point of the chunk.
    images: BTreeMap<u32, [f64; BORDER]>,
    weights: [f64; 2],
}

impl Problem<'_> {
    pub(super) fn cluster_sums(&self, state: &State, columns: &[Column]) -> ClusterSums {
        let stations = self.stations.count();
        let regions = regions(&state.points);
        let parts: Vec<Part> = (0..self.structure.points().div_ceil(CHUNK))
            .into_par_iter()
            .map(|chunk| self.part(state, columns, &regions, chunk))
            .collect();
        let mut sums = ClusterSums {
            tracks: [0.0; BORDER],
            regions: vec![[0.0; BORDER]; 1 << HALVINGS],
            images: vec![[0.0; BORDER]; stations],
            curvature: 1.0,
        };
        let add = |sum: &mut [f64; BORDER], part: &[f64; BORDER]| {
            sum.iter_mut().zip(part).for_each(|(s, p)| *s += p);
        };
        for part in &parts {
            add(&mut sums.tracks, &part.tracks);
            sums.regions.iter_mut().zip(&part.regions).for_each(|(sum, region)| add(sum, region));
            part.images.iter().for_each(|(&camera, image)| add(&mut sums.images[camera as usize], image));
        }
        let weights = |k: usize| parts.iter().map(|p| p.weights[k]).sum::<f64>();
        // With Cauchy's weight w = 1 / (1 + r^2 / s^2) the mean curvature of the loss is w^2, that of its approximation
        // w.
        sums.curvature = weights(1) / weights(0).max(f64::MIN_POSITIVE);
        sums
    }

    fn part(&self, state: &State, columns: &[Column], regions: &[u32], chunk: usize) -> Part {
        let projectors = projectors(state);
        let mut part = Part {
            tracks: [0.0; BORDER],
            regions: vec![[0.0; BORDER]; 1 << HALVINGS],
            images: BTreeMap::new(),
            weights: [0.0; 2],
        };
        for p in chunk * CHUNK..self.structure.points().min((chunk + 1) * CHUNK) {
            let mut track = [0.0; BORDER];
            for o in self.seen(p) {
                let c = self.structure.camera[o] as usize;
                let Some(l) = self.linearise(&projectors, state, o, p) else { continue };
                let weight = self.weight(&projectors, state, o, p);
                part.weights[0] += weight;
                part.weights[1] += weight * weight;
                let shared = self.first_unknown(self.lens(o));
                let image = part.images.entry(c as u32).or_insert([0.0; BORDER]);
                for (k, column) in columns.iter().enumerate() {
                    let influence = influence(&l, column, c, shared, p);
                    track[k] += influence;
                    image[k] += influence;
                }
            }
            for (k, t) in track.into_iter().enumerate() {
                part.tracks[k] += t * t;
                part.regions[regions[p] as usize][k] += t;
            }
        }
        part
    }

    /// The robust weight of an observation.
    pub(super) fn weight(&self, projectors: &[Projector], state: &State, o: usize, p: usize) -> f64 {
        let residual = self.residual(projectors, state, o, p);
        residual.map_or(0.0, |r| self.options.loss.at(r[0] * r[0] + r[1] * r[1]).1)
    }
}

/// The region of every point, below 2 to the power of [`HALVINGS`]: halves of halves along the longer axis.
pub(super) fn regions(points: &[[f64; 3]]) -> Vec<u32> {
    let mut region = vec![0; points.len()];
    let mut all: Vec<u32> = (0..points.len() as u32).collect();
    halve(points, &mut all, HALVINGS, 0, &mut region);
    region
}

fn halve(points: &[[f64; 3]], part: &mut [u32], halvings: u32, name: u32, region: &mut [u32]) {
    if halvings == 0 || part.len() < 2 {
        part.iter().for_each(|&p| region[p as usize] = name);
        return;
    }
    // Distances to the middle, of which a few far points are no measure.
    let spread = |axis: usize| {
        let mean = part.iter().map(|&p| points[p as usize][axis]).sum::<f64>() / part.len() as f64;
        part.iter().map(|&p| (points[p as usize][axis] - mean).abs()).sum::<f64>()
    };
    let axis = (0..3).max_by(|&a, &b| spread(a).total_cmp(&spread(b))).unwrap_or(0);
    let (middle, along) = (part.len() / 2, |p: &u32| points[*p as usize][axis]);
    part.select_nth_unstable_by(middle, |a, b| along(a).total_cmp(&along(b)).then(a.cmp(b)));
    let (low, high) = part.split_at_mut(middle);
    halve(points, low, halvings - 1, 2 * name, region);
    halve(points, high, halvings - 1, 2 * name + 1, region);
}

/// How much an observation of point `p` in camera `c` pulls at the parameter of `column`. The unknowns of its lens begin at
/// `shared`.
fn influence(l: &Linearised, column: &Column, c: usize, shared: usize, p: usize) -> f64 {
    let camera = &column.x[6 * c..6 * c + 6];
    let shared = &column.x[shared..];
    let point = &column.moves[p];
    (0..2)
        .map(|r| {
            let pose: f64 =
                (0..3).map(|a| l.by_rotation[r][a] * camera[a] - l.by_point[r][a] * camera[3 + a]).sum();
            let points: f64 = l.by_point[r].iter().zip(point).map(|(j, x)| j * x).sum();
            let intrinsics: f64 = l.by_intrinsics[r].iter().zip(shared).map(|(j, x)| j * x).sum();
            l.residual[r] * (pose + points + intrinsics)
        })
        .sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::Control;
    use crate::random::Random;
    use crate::sfm::bundle_adjustment::{ASSUMED_NOISE, PoseUnknowns, RefineIntrinsics, adjust};
    use crate::sfm::levenberg_marquardt::Stopping;
    use crate::sfm::projection::Loss;
    use crate::sfm::synthetic::Capture;

    /// Root-mean-square error of the principal point's x over its deviation, for captures whose keypoints drift along
    /// their track by steps of `drift` pixels.
    fn calibration(drift: f64) -> f64 {
        let options = BundleOptions {
            loss: Loss::Cauchy(1.0),
            noise: ASSUMED_NOISE,
            rest: 0.0,
            stopping: Stopping { max_iterations: 20, tolerance: 1e-8 },
            poses: PoseUnknowns::All,
            intrinsics: RefineIntrinsics { focal: true, distortion: None, principal_point: Some(50.0) },
            other_centres: Vec::new(),
        };
        let one = |seed| {
            let mut capture = Capture::orbit(12, 200, 0.2, seed);
            let mut random = Random::new(seed);
            let mut map = capture.true_map_with_points();
            for point in &map.points {
                let mut off = nalgebra::Vector2::zeros();
                for o in &point.track {
                    off += drift * nalgebra::Vector2::new(random.normal(), random.normal());
                    capture.keypoints[o.image as usize][o.keypoint as usize] += off;
                }
            }
            adjust(&mut map, &capture.keypoints, &options, &Control::new()).unwrap();
            let deviations = intrinsics_deviations(&map, &capture.keypoints, &options).unwrap();
            assert_eq!(deviations.iter().map(|d| d.0).collect::<Vec<_>>(), [0, 1, 2]);
            (map.camera.params[1] - 400.0) / deviations[1].1
        };
        let squares: Vec<f64> = (0..24).map(|seed| f64::powi(one(seed), 2)).collect();
        (squares.iter().sum::<f64>() / squares.len() as f64).sqrt()
    }

    #[test]
    fn deviations_are_true_also_where_errors_of_a_track_are_alike() {
        for drift in [0.0, 0.3] {
            let ratio = calibration(drift);
            assert!((0.5..1.4).contains(&ratio), "drift {drift}: errors are {ratio} deviations");
        }
    }
}
