//! Bundle adjustment with flat squares (fiducial tags) among the points: rigid, all of one unknown edge length.
//!
//! A square has six unknowns (where it lies) and all together one more, the logarithm of their edge. A corner is seen
//! like a point, so squares pull at poses and intrinsics as points do, and with their known shape. Their unknowns are
//! few: they join the reduced camera system, `[cameras | intrinsics | squares | edge]`, after the points are
//! eliminated.

use nalgebra::{UnitQuaternion, Vector2, Vector3};

use crate::control::Control;
use crate::error::Result;
use crate::sfm::levenberg_marquardt::{Step, Summary, minimise};
use crate::sfm::map::{Keypoints, Map};
use crate::sfm::projection::Projector;
use crate::sfm::schur::{self, Reduced};

use super::covariance::Column;
use super::steps::Surroundings;
use super::workspace::Workspace;
use super::{BEHIND, BundleOptions, Problem, State, projectors};

/// Corners of the square of edge 1 in its own plane, x right and y down, in the order of [`SquareView::corners`].
pub(crate) const CORNERS: [[f64; 2]; 4] = [[-0.5, 0.5], [0.5, 0.5], [0.5, -0.5], [-0.5, -0.5]];

/// A square as one image shows it.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct SquareView {
    /// Index of the image, which must be registered.
    pub(crate) image: usize,
    /// Pixels of its corners.
    pub(crate) corners: [Vector2<f64>; 4],
}

/// Where a square is, and who sees it.
#[derive(Debug, Clone)]
pub(crate) struct Square {
    /// From the axes of the square (x right, y down, z away from who reads it) to those of the world.
    pub(crate) rotation: UnitQuaternion<f64>,
    /// Its middle in the world.
    pub(crate) centre: Vector3<f64>,
    pub(crate) views: Vec<SquareView>,
}

impl Square {
    /// Its corners in the world, if it has this edge, relative to its middle.
    fn arms(&self, edge: f64) -> [Vector3<f64>; 4] {
        CORNERS.map(|[x, y]| self.rotation * Vector3::new(edge * x, edge * y, 0.0))
    }
}

/// Squares of one size.
#[derive(Debug, Clone)]
pub(crate) struct Squares {
    pub(crate) items: Vec<Square>,
    /// Their edge in units of the world.
    pub(crate) edge: f64,
    /// What a pixel of their corners' error counts in pixels of keypoints' error: how much more exactly they are
    /// measured.
    pub(crate) precision: f64,
}

/// Adjusts `map` and `squares` together, in place.
///
/// # Errors
/// [`crate::ErrorKind::Cancelled`].
pub(crate) fn adjust_with_squares(
    map: &mut Map,
    keypoints: &Keypoints,
    squares: &mut Squares,
    options: &BundleOptions,
    control: &Control,
) -> Result<Summary> {
    let Some(base) = Problem::new(map, keypoints, options) else {
        return Ok(Summary { initial_cost: 0.0, final_cost: 0.0, iterations: 0, converged: true });
    };
    let problem = Joint::new(base, squares, map.poses.len());
    let start = (problem.base.state(map), squares.clone());
    let mut work = Workspace::new(&problem.base.structure, problem.base.border());
    let (state, summary) = minimise(
        start,
        options.stopping,
        problem.base.reach(),
        control,
        |(s, squares)| problem.base.cost(s) + problem.cost(s, squares),
        |s, damping| problem.step(s, damping, &mut work),
    )?;
    problem.base.store(&state.0, map);
    *squares = state.1;
    Ok(summary)
}

/// Standard deviation of the logarithm of (extent of the camera path / edge of the squares) at the minimum that `map`
/// and `squares` are: the relative uncertainty of a scale that is taken from the edge. That of intrinsics, poses and
/// points is in it, as the residuals show it (cluster-robust, see [`super::covariance`]), and that of the priors.
/// `None` where the equations are singular.
pub(crate) fn scale_deviation(
    map: &Map,
    keypoints: &Keypoints,
    squares: &Squares,
    options: &BundleOptions,
) -> Option<f64> {
    let problem = Joint::new(Problem::new(map, keypoints, options)?, squares, map.poses.len());
    let base = &problem.base;
    let state = base.state(map);
    // The extent of the path in units of the edge does not change with the gauge, so a little damping does no harm.
    let (reduced, mut points) = base.equations(&state, 1e-9);
    let size = reduced.size();
    let mut system = problem.extend(&reduced, &state, squares, 1e-9);
    points.y.fill([0.0; 3]);
    // Gradient of ln(extent) - ln(edge).
    system.rhs.fill(0.0);
    let centres: Vec<Vector3<f64>> = (0..base.stations.count()).map(|c| base.centre(&state, c)).collect();
    let mean = centres.iter().sum::<Vector3<f64>>() / centres.len() as f64;
    let extent: f64 = centres.iter().map(|c| (c - mean).norm_squared()).sum();
    for (c, centre) in centres.iter().enumerate() {
        let pull = (centre - mean) / extent;
        system.rhs[6 * c + 3..6 * c + 6].copy_from_slice(pull.as_slice());
    }
    *system.rhs.last_mut()? = -1.0;
    // How all unknowns answer to it.
    let x = system.solve()?;
    let moves = schur::back_substitute::<6, 8>(&base.structure, &points, &x[..size]);
    let column = Column { x: x[..size].to_vec(), moves };
    let mut sums = base.cluster_sums(&state, std::slice::from_ref(&column));
    let projectors = projectors(&state);
    for (t, square) in squares.items.iter().enumerate() {
        // A corner may look the same wrong way in all pictures: its sightings are one cluster, as those of a point.
        let mut corners = [0.0; 4];
        for view in &square.views {
            let Some(rows) = problem.rows(&projectors, &state, squares, t, view) else { continue };
            for (row, k) in rows.iter().zip(0..) {
                let influence = row.residual * row.terms().map(|(at, value)| value * x[at]).sum::<f64>();
                corners[k / 2] += influence;
                sums.images[base.stations.camera(problem.slot[view.image])][0] += influence;
            }
        }
        sums.tracks[0] += corners.iter().map(|c| c * c).sum::<f64>();
        // A square is a region of its own.
        sums.regions.push(std::array::from_fn(|k| if k == 0 { corners.iter().sum() } else { 0.0 }));
    }
    let data = sums.deviations().iter().map(|c| c[0]).fold(0.0, f64::max) / sums.curvature;
    // A prior is an observation whose error has the prior's standard deviation.
    let priors = (0..=base.others.count()).flat_map(|lens| {
        let first = base.first_unknown(lens);
        base.intrinsics_of(lens).priors.iter().map(move |p| (first + p.k, p.weight * p.sigma))
    });
    let variance = data * data + priors.map(|(at, pull)| (x[at] * pull).powi(2)).sum::<f64>();
    variance.is_finite().then(|| variance.sqrt())
}

/// A line of the linearised problem that is no point's: which unknowns it depends on, and how.
struct Row {
    residual: f64,
    /// First unknown of each block, its length, and the derivatives.
    blocks: [(usize, usize, [f64; 8]); 4],
}

impl Row {
    /// (unknown, derivative)
    fn terms(&self) -> impl Iterator<Item = (usize, f64)> {
        self.blocks
            .iter()
            .flat_map(|(first, length, values)| (*first..first + length).zip(values.iter().copied()))
    }
}

/// Points and squares together.
struct Joint<'a> {
    base: Problem<'a>,
    /// By image: its place among the registered ones.
    slot: Vec<usize>,
    /// Unknowns of cameras and intrinsics.
    size: usize,
    /// Number of squares.
    count: usize,
}

impl<'a> Joint<'a> {
    fn new(base: Problem<'a>, squares: &Squares, images: usize) -> Self {
        let mut slot = vec![usize::MAX; images];
        base.stations.images.iter().enumerate().for_each(|(s, &image)| slot[image] = s);
        let size = 6 * base.structure.cameras() + base.intrinsics.free.len();
        Self { base, slot, size, count: squares.items.len() }
    }

    /// Half the sum of the losses of the squares. The four corners of a sighting are measured together, and count or
    /// fall together: the loss is that of their mean square.
    fn cost(&self, state: &State, squares: &Squares) -> f64 {
        let projectors = projectors(state);
        let mut sum = 0.0;
        for square in &squares.items {
            for view in &square.views {
                sum += 4.0
                    * self
                        .base
                        .options
                        .loss
                        .at(self.mean_square(&projectors, state, squares, square, view))
                        .0;
            }
        }
        0.5 * sum
    }

    fn mean_square(
        &self,
        projectors: &[Projector],
        state: &State,
        squares: &Squares,
        square: &Square,
        view: &SquareView,
    ) -> f64 {
        let place = self.slot[view.image];
        let (projector, pose) = (&projectors[self.base.others.index(place)], &state.extrinsics[place]);
        let mut sum = 0.0;
        for (arm, pixel) in square.arms(squares.edge).iter().zip(&view.corners) {
            let corner = square.centre + arm;
            let residual = projector.residual(pose, &corner.into(), &(*pixel).into());
            sum +=
                residual.map_or(BEHIND * BEHIND, |r| (r[0] * r[0] + r[1] * r[1]) * squares.precision.powi(2));
        }
        sum / 4.0
    }

    /// The eight lines of a sighting of square `t`, scaled by the root of their weight; `None` if it is behind the
    /// camera.
    fn rows(
        &self,
        projectors: &[Projector],
        state: &State,
        squares: &Squares,
        t: usize,
        view: &SquareView,
    ) -> Option<Vec<Row>> {
        let square = &squares.items[t];
        let weight = self.base.options.loss.at(self.mean_square(projectors, state, squares, square, view)).1;
        let w = weight.sqrt() * squares.precision;
        let place = self.slot[view.image];
        let (camera, pose) = (self.base.stations.camera(place), &state.extrinsics[place]);
        let lens = self.base.others.index(place);
        let (projector, intrinsics) = (&projectors[lens], self.base.intrinsics_of(lens));
        let first = self.base.first_unknown(lens);
        let mut rows = Vec::with_capacity(8);
        for (arm, pixel) in square.arms(squares.edge).iter().zip(&view.corners) {
            let corner = square.centre + arm;
            let mut l = projector.linearise(pose, &corner.into(), &(*pixel).into())?;
            l.by_rotation = self.base.stations.by_station(place, l.by_rotation);
            for r in 0..2 {
                let by_point = w * Vector3::from(l.by_point[r]);
                // A turn moves the corner by `turn x arm`, and `q . (turn x arm) = turn . (arm x q)`.
                let by_turn = arm.cross(&by_point);
                let (turn, q) = (l.by_rotation[r], by_point);
                let shared = intrinsics.by_unknowns(&l.by_intrinsics[r], w);
                rows.push(Row {
                    residual: w * l.residual[r],
                    blocks: [
                        (6 * camera, 6, [w * turn[0], w * turn[1], w * turn[2], -q.x, -q.y, -q.z, 0.0, 0.0]),
                        (first, intrinsics.free.len(), shared),
                        (self.size + 6 * t, 6, [by_turn.x, by_turn.y, by_turn.z, q.x, q.y, q.z, 0.0, 0.0]),
                        (self.size + 6 * self.count, 1, [q.dot(arm), 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0]),
                    ],
                });
            }
        }
        Some(rows)
    }

    /// The reduced system of the points with the squares added.
    fn extend(&self, reduced: &Reduced, state: &State, squares: &Squares, damping: f64) -> Reduced {
        let mut matrix = reduced.matrix.with_border(6 * self.count + 1);
        let mut rhs = reduced.rhs.clone();
        rhs.resize(matrix.size(), 0.0);
        let projectors = projectors(state);
        for (t, square) in squares.items.iter().enumerate() {
            for view in &square.views {
                for row in self.rows(&projectors, state, squares, t, view).into_iter().flatten() {
                    for (a, da) in row.terms() {
                        rhs[a] -= da * row.residual;
                        for (b, db) in row.terms().filter(|(b, _)| *b >= a) {
                            // A line has one station and one lens, whose blocks are there, and unknowns of the border.
                            let Some(entry) = matrix.entry(a, b) else { continue };
                            *entry += if a == b { (1.0 + damping) * da * db } else { da * db };
                        }
                    }
                }
            }
        }
        Reduced { matrix, rhs }
    }

    /// A damped Gauss-Newton step, after which points settle.
    fn step(
        &self,
        (state, squares): &(State, Squares),
        damping: f64,
        work: &mut Workspace,
    ) -> Option<Step<(State, Squares)>> {
        let reduced = self.base.equations_in(state, damping, work);
        let extended = self.extend(&reduced, state, squares, damping);
        let x = extended.solve()?;
        let moves = schur::back_substitute::<6, 8>(&self.base.structure, &work.points, &x[..self.size]);
        let mut next = self.base.moved(state, &x[..self.size], &moves)?;
        self.base.settle(&mut next, &work.points.y);
        let mut squares = squares.clone();
        for (square, step) in squares.items.iter_mut().zip(x[self.size..].chunks_exact(6)) {
            let around = Surroundings { turn: Vector3::new(step[0], step[1], step[2]), growth: 0.0 };
            let turn = UnitQuaternion::from_scaled_axis(around.turn);
            square.rotation = UnitQuaternion::new_normalize((turn * square.rotation).into_inner());
            square.centre += around.carry(&Vector3::new(step[3], step[4], step[5]));
        }
        squares.edge *= x.last()?.exp();
        let is_possible = squares.edge.is_finite() && squares.edge > 0.0;
        let is_at_rest = self.base.is_at_rest(&x, &extended.rhs);
        is_possible.then_some(Step { state: (next, squares), is_at_rest })
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::random::Random;
    use crate::sfm::bundle_adjustment::{ASSUMED_NOISE, PoseUnknowns, RefineIntrinsics};
    use crate::sfm::levenberg_marquardt::Stopping;
    use crate::sfm::projection::Loss;
    use crate::sfm::synthetic::Capture;

    /// `count` squares of the given edge among the points of `capture`, and all sightings of them with `noise` pixels
    /// of error.
    pub(crate) fn squares_in(capture: &Capture, count: usize, edge: f64, noise: f64, seed: u64) -> Squares {
        let mut random = Random::new(seed + 1000);
        let mut items = Vec::new();
        for t in 0..count {
            let angle = 0.4 + 2.1 * t as f64;
            let centre = Vector3::new(0.6 * angle.sin(), 0.3 * (t as f64 - 1.0), 0.6 * angle.cos());
            // It looks at about where the cameras are, tilted.
            let middle = capture.poses[capture.poses.len() / 2].centre();
            let up = Vector3::new(0.2, -1.0, 0.3 * t as f64);
            let facing = crate::camera::Pose::look_at(&middle, &centre, &up).unwrap().rotation.inverse();
            let tilt = UnitQuaternion::from_euler_angles(
                0.3 * random.normal(),
                0.3 * random.normal(),
                random.normal(),
            );
            let mut square = Square { rotation: facing * tilt, centre, views: Vec::new() };
            for (image, pose) in capture.poses.iter().enumerate() {
                let pixels = square
                    .arms(edge)
                    .map(|arm| capture.camera.project(&pose.transform(&(square.centre + arm))));
                let seen = pixels
                    .iter()
                    .flatten()
                    .filter(|p| p.x > 0.0 && p.y > 0.0 && p.x < 800.0 && p.y < 600.0)
                    .count();
                if seen == 4 {
                    let corners =
                        pixels.map(|p| p.unwrap() + noise * Vector2::new(random.normal(), random.normal()));
                    square.views.push(SquareView { image, corners });
                }
            }
            assert!(square.views.len() >= 3, "{}", square.views.len());
            items.push(square);
        }
        Squares { items, edge, precision: 2.0 }
    }

    fn options(principal_point: Option<f64>) -> BundleOptions {
        BundleOptions {
            loss: Loss::Cauchy(1.0),
            noise: ASSUMED_NOISE,
            rest: 0.0,
            stopping: Stopping { max_iterations: 50, tolerance: 1e-9 },
            poses: PoseUnknowns::All,
            intrinsics: RefineIntrinsics { focal: true, distortion: Some(0.05), principal_point },
            other_centres: Vec::new(),
        }
    }

    /// ln(extent of the path / edge)
    fn ratio(map: &Map, squares: &Squares) -> f64 {
        let centres: Vec<Vector3<f64>> = map.poses.iter().flatten().map(|p| p.centre()).collect();
        let mean = centres.iter().sum::<Vector3<f64>>() / centres.len() as f64;
        (centres.iter().map(|c| (c - mean).norm_squared()).sum::<f64>().sqrt() / squares.edge).ln()
    }

    #[test]
    fn exact_sightings_give_the_exact_edge_and_camera() {
        let capture = Capture::orbit(12, 300, 0.0, 1);
        let truth = squares_in(&capture, 3, 0.3, 0.0, 1);
        let mut map = capture.true_map_with_points();
        let expected = ratio(&map, &truth);
        let mut squares = truth.clone();
        let mut random = Random::new(5);
        let mut noise = |size: f64| size * Vector3::new(random.normal(), random.normal(), random.normal());
        for pose in map.poses.iter_mut().flatten() {
            let turn = UnitQuaternion::from_scaled_axis(noise(0.01));
            *pose = crate::camera::Pose::from_centre(turn * pose.rotation, &(pose.centre() + noise(0.03)));
        }
        map.points.iter_mut().for_each(|p| p.xyz += noise(0.03));
        map.camera.params[0] *= 1.03;
        for square in &mut squares.items {
            square.rotation = UnitQuaternion::from_scaled_axis(noise(0.1)) * square.rotation;
            square.centre += noise(0.03);
        }
        squares.edge *= 0.9;
        let mut free = options(None);
        // Without the prior, which pulls the distortion.
        free.intrinsics.distortion = Some(f64::INFINITY);
        let summary =
            adjust_with_squares(&mut map, &capture.keypoints, &mut squares, &free, &Control::new()).unwrap();
        assert!(summary.final_cost < 1e-9, "{summary:?}");
        assert!((ratio(&map, &squares) - expected).abs() < 1e-7);
        assert!((map.camera.params[0] / 700.0 - 1.0).abs() < 1e-6, "{:?}", map.camera);
    }

    #[test]
    fn derivatives_agree_with_central_differences() {
        for capture in [Capture::orbit(6, 60, 0.2, 3), Capture::panoramas(12, 300, 0.2, 3)] {
            check_derivatives(&capture);
        }
    }

    fn check_derivatives(capture: &Capture) {
        let map = capture.true_map_with_points();
        let mut squares = squares_in(capture, 2, 0.4, 0.5, 2);
        let options = BundleOptions { loss: Loss::Huber(1e6), ..options(Some(10.0)) };
        let problem =
            Joint::new(Problem::new(&map, &capture.keypoints, &options).unwrap(), &squares, map.poses.len());
        let state = problem.base.state(&map);
        squares.precision = 1.5;
        let view = squares.items[1].views[2].clone();
        let rows = |state: &State, squares: &Squares| {
            problem.rows(&projectors(state), state, squares, 1, &view).unwrap()
        };
        let here = rows(&state, &squares);
        let h = 1e-6;
        let size = problem.size + 6 * problem.count + 1;
        let still = vec![[0.0; 3]; map.points.len()];
        let moved = |unknown: usize, amount: f64| {
            let mut x = vec![0.0; size];
            x[unknown] = amount;
            let state = problem.base.moved(&state, &x[..problem.size], &still).unwrap();
            let mut squares = squares.clone();
            for (square, step) in squares.items.iter_mut().zip(x[problem.size..].chunks_exact(6)) {
                square.rotation = UnitQuaternion::from_scaled_axis(Vector3::new(step[0], step[1], step[2]))
                    * square.rotation;
                square.centre += Vector3::new(step[3], step[4], step[5]);
            }
            squares.edge *= x[size - 1].exp();
            rows(&state, &squares)
        };
        for unknown in 0..size {
            let (up, down) = (moved(unknown, h), moved(unknown, -h));
            for (k, row) in here.iter().enumerate() {
                let numeric = (up[k].residual - down[k].residual) / (2.0 * h);
                let analytic: f64 = row.terms().filter(|t| t.0 == unknown).map(|t| t.1).sum();
                assert!(
                    (analytic - numeric).abs() < 1e-4 * numeric.abs().max(1.0),
                    "unknown {unknown}, line {k}: {analytic} instead of {numeric}"
                );
            }
        }
    }

    #[test]
    fn the_deviation_of_the_scale_is_true() {
        // 1 of 3 squares, with a known and with a free principal point.
        for (count, principal_point) in [(1, None), (3, None), (2, Some(8.0))] {
            let ratios: Vec<f64> = (0..24)
                .map(|seed| {
                    let capture = Capture::orbit(12, 200, 0.4, seed);
                    let mut map = capture.true_map_with_points();
                    let mut squares = squares_in(&capture, count, 0.3, 0.2, seed);
                    let truth = ratio(&map, &squares);
                    let options = options(principal_point);
                    let control = Control::new();
                    adjust_with_squares(&mut map, &capture.keypoints, &mut squares, &options, &control)
                        .unwrap();
                    let deviation = scale_deviation(&map, &capture.keypoints, &squares, &options).unwrap();
                    assert!(deviation < 0.02, "{deviation}");
                    (ratio(&map, &squares) - truth) / deviation
                })
                .collect();
            let rms = (ratios.iter().map(|r| r * r).sum::<f64>() / ratios.len() as f64).sqrt();
            assert!((0.4..1.35).contains(&rms), "{count} squares: errors are {rms} deviations: {ratios:.2?}");
        }
    }

    #[test]
    fn the_result_does_not_depend_on_the_number_of_threads() {
        let capture = Capture::orbit(12, 900, 0.5, 6);
        let run = |threads| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            let mut map = capture.true_map_with_points();
            let mut squares = squares_in(&capture, 2, 0.3, 0.3, 1);
            let control = Control::new();
            pool.install(|| {
                adjust_with_squares(&mut map, &capture.keypoints, &mut squares, &options(None), &control)
                    .unwrap();
                let deviation = scale_deviation(&map, &capture.keypoints, &squares, &options(None));
                (squares.edge, map.poses, deviation)
            })
        };
        assert_eq!(run(1), run(4));
    }
}
