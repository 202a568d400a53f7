//! One tag by itself, with the cameras as they are: its corners, whether they form a flat square, and how large it is.

use nalgebra::{Matrix3, SMatrix, SVector, UnitQuaternion, Vector3};

use crate::camera::Pose;
use crate::control::Control;
use crate::sfm::bundle_adjustment::CORNERS;
use crate::sfm::geometry::angle_between;
use crate::sfm::levenberg_marquardt::{Reach, Step, Stopping, minimise};
use crate::sfm::map::Map;
use crate::sfm::projection::{Extrinsics, Loss, Projectors};
use crate::statistics::{MEDIAN_OF_RAYLEIGH, median};

use super::sightings::Sighting;

/// Positions of four corners, in the detector's order.
pub(super) type Corners = [Vector3<f64>; 4];

/// Errors above this many pixels count less.
const LOSS: Loss = Loss::Huber(1.5);
/// Corners are not known better than this many pixels, however small the residuals are.
const MIN_NOISE: f64 = 0.05;

/// A corner that was triangulated by itself.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Corner {
    pub(super) position: Vector3<f64>,
    /// Covariance of the position for a noise of one pixel.
    pub(super) covariance: Matrix3<f64>,
}

/// A square that was fitted to its sightings, the cameras being known.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Fit {
    /// From the square's axes (x right, y down) to those of the world.
    pub(super) rotation: UnitQuaternion<f64>,
    pub(super) centre: Vector3<f64>,
    /// Length of its edge, world units.
    pub(super) edge: f64,
    /// Standard deviation of the edge relative to it, from the residuals alone.
    pub(super) deviation: f64,
    /// Noise of a corner's coordinate in pixels, from the median residual.
    pub(super) noise: f64,
    /// Mean distance of the corners from where they are seen, pixels.
    pub(super) error: f64,
    /// Widest angle at which its middle is seen, radians.
    pub(super) parallax: f64,
}

/// How four corners differ from a flat square. All five ways in which they can, relative to the edge, each with its
/// standard deviation.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Shape {
    /// Width over height (logarithm).
    pub(super) aspect: (f64, f64),
    /// One diagonal over the other (logarithm).
    pub(super) shear: (f64, f64),
    /// Bottom over top edge, right over left edge (logarithms).
    pub(super) taper: [(f64, f64); 2],
    /// Distance of the corners from their plane.
    pub(super) bend: (f64, f64),
}

/// The cameras, prepared for projection.
pub(super) struct Rays {
    projectors: Projectors,
    extrinsics: Vec<Option<Extrinsics>>,
}

impl Rays {
    pub(super) fn new(map: &Map) -> Self {
        let extrinsics =
            map.poses.iter().map(|p: &Option<Pose>| p.as_ref().map(Extrinsics::from_pose)).collect();
        Self { projectors: Projectors::new(&map.camera, &map.others), extrinsics }
    }

    fn pose(&self, sighting: &Sighting) -> Option<&Extrinsics> {
        self.extrinsics[sighting.image].as_ref()
    }

    /// Each corner by itself, by Gauss-Newton from `start`.
    pub(super) fn triangulate(&self, seen: &[&Sighting], start: &Corners) -> [Corner; 4] {
        std::array::from_fn(|k| {
            let mut position = start[k];
            let mut covariance = Matrix3::zeros();
            for _ in 0..6 {
                let (mut h, mut g) = (Matrix3::zeros(), Vector3::zeros());
                for sighting in seen {
                    let Some(pose) = self.pose(sighting) else { continue };
                    let pixel = sighting.corners[k].into();
                    let Some(l) =
                        self.projectors.of(sighting.image).linearise(pose, &position.into(), &pixel)
                    else {
                        continue;
                    };
                    l.add_to_point(LOSS, &mut h, &mut g);
                }
                let floor = 1e-12 * h.trace();
                let Some(inverse) = (h + Matrix3::from_diagonal_element(floor)).try_inverse() else { break };
                covariance = inverse;
                position -= inverse * g;
            }
            Corner { position, covariance }
        })
    }

    /// Mean square distance in pixels of the corners of a sighting from `corners`; infinite behind the camera.
    fn mean_square(&self, sighting: &Sighting, corners: &Corners) -> f64 {
        let Some(pose) = self.pose(sighting) else { return f64::INFINITY };
        let squared = |(corner, pixel): (&Vector3<f64>, &nalgebra::Vector2<f64>)| {
            let residual =
                self.projectors.of(sighting.image).residual(pose, &(*corner).into(), &(*pixel).into());
            residual.map_or(f64::INFINITY, |r| r[0] * r[0] + r[1] * r[1])
        };
        corners.iter().zip(&sighting.corners).map(squared).sum::<f64>() / 4.0
    }

    /// Distance in pixels of every corner from where it is seen.
    fn errors(&self, seen: &[&Sighting], corners: &Corners) -> Option<Vec<f64>> {
        let mut errors = Vec::with_capacity(4 * seen.len());
        for sighting in seen {
            let pose = self.pose(sighting)?;
            for (corner, pixel) in corners.iter().zip(&sighting.corners) {
                let r =
                    self.projectors.of(sighting.image).residual(pose, &(*corner).into(), &(*pixel).into())?;
                errors.push(r[0].hypot(r[1]));
            }
        }
        Some(errors)
    }

    /// How four corners that were triangulated by themselves differ from a flat square.
    pub(super) fn shape(&self, seen: &[&Sighting], corners: &[Corner; 4]) -> Option<Shape> {
        let mut errors = self.errors(seen, &corners.map(|c| c.position))?;
        shape(corners, noise(&mut errors, 12)?)
    }

    /// The square that all sightings fit best, begun at the corners `start`. `None` if it is seen from behind, or
    /// cannot be fitted.
    pub(super) fn fit(&self, seen: &[&Sighting], start: &Corners) -> Option<Fit> {
        let begin = nearest_square(start)?;
        let cost = |s: &Placed| {
            let corners = s.corners();
            2.0 * seen.iter().map(|v| LOSS.at(self.mean_square(v, &corners).min(1e12)).0).sum::<f64>()
        };
        let stopping = Stopping { max_iterations: 50, tolerance: 1e-12 };
        let step = |s: &Placed, damping: f64| {
            let (mut h, g) = self.equations(seen, s);
            for k in 0..7 {
                h[(k, k)] *= 1.0 + damping;
            }
            Some(Step::to(s.moved(&-h.cholesky()?.solve(&g))))
        };
        let (square, _) = minimise(begin, stopping, Reach::Short, &Control::new(), cost, step).ok()?;
        let corners = square.corners();
        let normal = square.rotation * Vector3::z();
        let centres: Vec<Vector3<f64>> =
            seen.iter().filter_map(|v| Some(self.pose(v)?.centre.into())).collect();
        if centres.iter().any(|c| normal.dot(&(square.centre - c)) <= 0.0) {
            return None;
        }
        let mut errors = self.errors(seen, &corners)?;
        let error = errors.iter().sum::<f64>() / errors.len() as f64;
        let noise = noise(&mut errors, 7)?;
        let (h, _) = self.equations(seen, &square);
        let covariance = h.try_inverse()?;
        let deviation = noise * covariance[(6, 6)].max(0.0).sqrt();
        let parallax = centres
            .iter()
            .enumerate()
            .flat_map(|(i, a)| centres[i + 1..].iter().map(move |b| (a, b)))
            .map(|(a, b)| angle_between(&(square.centre - a), &(square.centre - b)))
            .fold(0.0, f64::max);
        let fit = Fit {
            rotation: square.rotation,
            centre: square.centre,
            edge: square.edge,
            deviation,
            noise,
            error,
            parallax,
        };
        [fit.edge, fit.deviation, fit.noise, fit.error]
            .iter()
            .all(|v| v.is_finite() && *v > 0.0)
            .then_some(fit)
    }

    /// Weighted normal equations of a turn, a shift and the logarithm of the edge.
    fn equations(&self, seen: &[&Sighting], s: &Placed) -> (SMatrix<f64, 7, 7>, SVector<f64, 7>) {
        let (mut h, mut g) = (SMatrix::<f64, 7, 7>::zeros(), SVector::<f64, 7>::zeros());
        let corners = s.corners();
        for sighting in seen {
            let Some(pose) = self.pose(sighting) else { continue };
            let weight = LOSS.at(self.mean_square(sighting, &corners).min(1e12)).1;
            for (corner, pixel) in corners.iter().zip(&sighting.corners) {
                let Some(l) =
                    self.projectors.of(sighting.image).linearise(pose, &(*corner).into(), &(*pixel).into())
                else {
                    continue;
                };
                let arm = corner - s.centre;
                for r in 0..2 {
                    let q = Vector3::from(l.by_point[r]);
                    let turn = arm.cross(&q);
                    let j = SVector::<f64, 7>::from([turn.x, turn.y, turn.z, q.x, q.y, q.z, q.dot(&arm)]);
                    h += weight * j * j.transpose();
                    g += weight * l.residual[r] * j;
                }
            }
        }
        (h, g)
    }
}

/// Standard deviation of a pixel coordinate from the distances of points of which `fitted` numbers were fitted.
fn noise(errors: &mut [f64], fitted: usize) -> Option<f64> {
    let numbers = 2.0 * errors.len() as f64;
    let freedom = (numbers / (numbers - fitted as f64).max(1.0)).sqrt();
    Some((median(errors)? / MEDIAN_OF_RAYLEIGH * freedom).max(MIN_NOISE))
}

/// A square in the world.
#[derive(Debug, Clone, Copy)]
struct Placed {
    rotation: UnitQuaternion<f64>,
    centre: Vector3<f64>,
    edge: f64,
}

impl Placed {
    fn corners(&self) -> Corners {
        CORNERS.map(|[x, y]| self.centre + self.rotation * Vector3::new(self.edge * x, self.edge * y, 0.0))
    }

    fn moved(&self, x: &SVector<f64, 7>) -> Self {
        let turn = UnitQuaternion::from_scaled_axis(Vector3::new(x[0], x[1], x[2]));
        Self {
            rotation: UnitQuaternion::new_normalize((turn * self.rotation).into_inner()),
            centre: self.centre + Vector3::new(x[3], x[4], x[5]),
            edge: self.edge * x[6].clamp(-1.0, 1.0).exp(),
        }
    }
}

/// The square next to four points (Umeyama, "Least-squares estimation of transformation parameters between two point
/// patterns", PAMI 1991).
fn nearest_square(corners: &Corners) -> Option<Placed> {
    let centre = corners.iter().sum::<Vector3<f64>>() / 4.0;
    let mut correlation = Matrix3::zeros();
    for (corner, [x, y]) in corners.iter().zip(CORNERS) {
        correlation += (corner - centre) * Vector3::new(x, y, 0.0).transpose();
    }
    let svd = correlation.svd(true, true);
    let (u, v) = (svd.u?, svd.v_t?);
    let side = Vector3::new(1.0, 1.0, (u * v).determinant().signum());
    let rotation = u * Matrix3::from_diagonal(&side) * v;
    // The squares of the unit square's corners sum to 2.
    let edge = svd.singular_values.dot(&side) / 2.0;
    let rotation = UnitQuaternion::from_matrix(&rotation);
    (edge.is_finite() && edge > 0.0).then_some(Placed { rotation, centre, edge })
}

/// How the corners differ from a square, for a noise of so many pixels.
fn shape(corners: &[Corner; 4], noise: f64) -> Option<Shape> {
    let p = corners.map(|c| c.position);
    let at = |k: usize| p[k % 4];
    let length = |a: usize, b: usize| (at(a) - at(b)).norm();
    let (bottom, right, top, left) = (length(0, 1), length(1, 2), length(2, 3), length(3, 0));
    let (one, other) = (length(0, 2), length(1, 3));
    let edge = 0.25 * (bottom + right + top + left);
    if !(edge.is_finite() && bottom.min(right).min(top).min(left) > 0.0) {
        return None;
    }
    let normal = (p[0] - p[2]).cross(&(p[1] - p[3])).try_normalize(1e-300)?;
    // Standard deviation of a quantity from its derivatives by the corners.
    let deviation = |by: [Vector3<f64>; 4]| {
        let variance: f64 = corners.iter().zip(&by).map(|(c, d)| d.dot(&(c.covariance * d))).sum();
        noise * variance.max(0.0).sqrt()
    };
    // Derivative of `w ln|p_a - p_b|` for each pair.
    let of_lengths = |pairs: &[(usize, usize, f64)]| {
        let mut by = [Vector3::zeros(); 4];
        for &(a, b, weight) in pairs {
            let d = (p[a] - p[b]) / (p[a] - p[b]).norm_squared() * weight;
            by[a] += d;
            by[b] -= d;
        }
        deviation(by)
    };
    let height = normal.dot(&(p[0] - p[1] + p[2] - p[3])) / 4.0 / edge;
    let part = normal / (4.0 * edge);
    Some(Shape {
        aspect: (
            0.5 * (bottom * top / (left * right)).ln(),
            of_lengths(&[(0, 1, 0.5), (2, 3, 0.5), (1, 2, -0.5), (3, 0, -0.5)]),
        ),
        shear: ((one / other).ln(), of_lengths(&[(0, 2, 1.0), (1, 3, -1.0)])),
        taper: [
            ((bottom / top).ln(), of_lengths(&[(0, 1, 1.0), (2, 3, -1.0)])),
            ((right / left).ln(), of_lengths(&[(1, 2, 1.0), (3, 0, -1.0)])),
        ],
        bend: (height, deviation([part, -part, part, -part])),
    })
}

/// A print that differs from a flat square by more than this is bent or distorted (relative; [`Shape`]), ...
const DEFORMED: f64 = 0.03;
/// ... if it is this many standard deviations.
const CERTAIN: f64 = 3.0;

impl Shape {
    fn measures(&self) -> [(f64, f64); 5] {
        [self.aspect, self.shear, self.taper[0], self.taper[1], self.bend]
    }

    /// The largest difference from a square that is certain, relative to the edge; 0 if none is.
    pub(super) fn deformation(&self) -> f64 {
        let certain =
            |(value, sigma): (f64, f64)| if value.abs() > CERTAIN * sigma { value.abs() } else { 0.0 };
        self.measures().into_iter().map(certain).fold(0.0, f64::max)
    }

    pub(super) fn is_deformed(&self) -> bool {
        self.deformation() > DEFORMED
    }
}
