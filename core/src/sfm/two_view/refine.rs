//! Non-linear refinement of epipolar geometry: Levenberg-Marquardt on the Sampson errors of all matches under the loss
//! of Geman and McClure, `ρ(r²) = r² / (1 + r²/s²)`, which outliers cannot pull.
//!
//! The nine derivatives by the entries of the matrix are accumulated once; each kind of geometry then projects them
//! onto its own tangent space: 5 dimensions for a relative pose, 7 for a fundamental matrix.

use nalgebra::{Matrix3, Rotation3, UnitQuaternion, Vector3};

use super::linear::solve_damped;
use super::score::{EpipolarTerms, LANES, PointPairs};
use crate::camera::Pose;
use crate::sfm::geometry::skew;

/// A matrix `M` of epipolar geometry with `K` degrees of freedom.
trait Manifold<const K: usize>: Sized {
    fn matrix(&self) -> Matrix3<f64>;
    /// Derivatives of the matrix by the `K` parameters.
    fn tangents(&self) -> [Matrix3<f64>; K];
    fn moved(&self, step: &[f64; K]) -> Self;
}

/// A relative pose (second-from-first) up to the length of its baseline.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RelativePose {
    pub(crate) rotation: Matrix3<f64>,
    /// Translation, unit length.
    pub(crate) direction: Vector3<f64>,
}

impl RelativePose {
    pub(crate) fn of(pose: &Pose) -> Self {
        Self { rotation: pose.rotation_matrix(), direction: pose.translation.normalize() }
    }

    pub(crate) fn pose(&self) -> Pose {
        Pose::from_matrix(&self.rotation, self.direction)
    }

    /// `E = [t]ₓ R`.
    pub(crate) fn essential(&self) -> Matrix3<f64> {
        skew(&self.direction) * self.rotation
    }

    /// Two directions perpendicular to the baseline and to each other.
    fn perpendicular(&self) -> [Vector3<f64>; 2] {
        let mut axis = Vector3::zeros();
        axis[self.direction.abs().imin()] = 1.0;
        let first = self.direction.cross(&axis).normalize();
        [first, self.direction.cross(&first)]
    }
}

impl Manifold<5> for RelativePose {
    fn matrix(&self) -> Matrix3<f64> {
        self.essential()
    }

    fn tangents(&self) -> [Matrix3<f64>; 5] {
        let e = self.matrix();
        let [b1, b2] = self.perpendicular();
        let turn = |k: usize| e * skew(&Vector3::ith(k, 1.0));
        [turn(0), turn(1), turn(2), skew(&b1) * self.rotation, skew(&b2) * self.rotation]
    }

    fn moved(&self, s: &[f64; 5]) -> Self {
        let [b1, b2] = self.perpendicular();
        Self {
            rotation: self.rotation * rotation_of(Vector3::new(s[0], s[1], s[2])),
            direction: (self.direction + b1 * s[3] + b2 * s[4]).normalize(),
        }
    }
}

/// `F = U diag(1, s, 0) Vᵀ` (Bartoli & Sturm, PAMI 2004).
struct RankTwo {
    u: Matrix3<f64>,
    v: Matrix3<f64>,
    s: f64,
}

impl Manifold<7> for RankTwo {
    fn matrix(&self) -> Matrix3<f64> {
        self.u * Matrix3::from_diagonal(&Vector3::new(1.0, self.s, 0.0)) * self.v.transpose()
    }

    fn tangents(&self) -> [Matrix3<f64>; 7] {
        let d = Matrix3::from_diagonal(&Vector3::new(1.0, self.s, 0.0));
        std::array::from_fn(|k| match k {
            0..3 => self.u * skew(&Vector3::ith(k, 1.0)) * d * self.v.transpose(),
            3..6 => -self.u * d * skew(&Vector3::ith(k - 3, 1.0)) * self.v.transpose(),
            _ => self.u.column(1) * self.v.column(1).transpose(),
        })
    }

    fn moved(&self, p: &[f64; 7]) -> Self {
        Self {
            u: self.u * rotation_of(Vector3::new(p[0], p[1], p[2])),
            v: self.v * rotation_of(Vector3::new(p[3], p[4], p[5])),
            s: self.s + p[6],
        }
    }
}

fn rotation_of(v: Vector3<f64>) -> Matrix3<f64> {
    UnitQuaternion::from_scaled_axis(v).to_rotation_matrix().into_inner()
}

/// Refines a relative pose on pairs of points of the planes z = 1; also the cost. `scale`: the residual at which a
/// match loses its influence.
pub(crate) fn refine_pose(
    pose: &RelativePose,
    pairs: &PointPairs,
    scale: f64,
    iterations: usize,
) -> (RelativePose, f64) {
    let (refined, cost) = levenberg_marquardt(*pose, pairs, scale, iterations);
    // Products of many rotation matrices drift; by way of a quaternion it is a rotation again.
    let rotation = Rotation3::from_matrix_unchecked(refined.rotation);
    let rotation = UnitQuaternion::from_rotation_matrix(&rotation).to_rotation_matrix().into_inner();
    (RelativePose { rotation, ..refined }, cost)
}

/// Refines a fundamental matrix on pairs of points of the same unit. `scale` as in [`refine_pose`].
pub(crate) fn refine_fundamental(
    fundamental: &Matrix3<f64>,
    pairs: &PointPairs,
    scale: f64,
    iterations: usize,
) -> Option<Matrix3<f64>> {
    if !fundamental.iter().all(|v| v.is_finite()) {
        return None;
    }
    let svd = fundamental.svd(true, true);
    let (mut u, mut v) = (svd.u?, svd.v_t?.transpose());
    // The third column does not enter F, so its sign is free: make both proper rotations.
    for m in [&mut u, &mut v] {
        if m.determinant() < 0.0 {
            m.column_mut(2).neg_mut();
        }
    }
    let start = RankTwo { u, v, s: svd.singular_values[1] / svd.singular_values[0] };
    let matrix = levenberg_marquardt(start, pairs, scale, iterations).0.matrix();
    matrix.iter().all(|v| v.is_finite()).then(|| matrix.normalize())
}

fn levenberg_marquardt<const K: usize, M: Manifold<K>>(
    start: M,
    pairs: &PointPairs,
    scale: f64,
    iterations: usize,
) -> (M, f64) {
    let weight = 1.0 / (scale * scale);
    let mut at = start;
    let mut sums = normal_equations(pairs, &at.matrix(), weight);
    let mut damping = 1e-4;
    for _ in 0..iterations {
        let tangents = at.tangents();
        let mut normal = [[0.0; K]; K];
        let mut gradient = [0.0; K];
        let mut images = [[0.0; 9]; K];
        for (image, tangent) in images.iter_mut().zip(&tangents) {
            for (r, row) in image.iter_mut().enumerate() {
                *row = (0..9).map(|c| sums.normal(r, c) * tangent[(c / 3, c % 3)]).sum();
            }
        }
        for a in 0..K {
            gradient[a] = -(0..9).map(|c| tangents[a][(c / 3, c % 3)] * sums.gradient[c]).sum::<f64>();
            for b in 0..K {
                normal[a][b] = (0..9).map(|c| tangents[a][(c / 3, c % 3)] * images[b][c]).sum();
            }
        }
        let Some(step) = solve_damped(&normal, &gradient, damping) else {
            damping *= 100.0;
            if damping > 1e8 {
                break;
            }
            continue;
        };
        let candidate = at.moved(&step);
        let new = normal_equations(pairs, &candidate.matrix(), weight);
        if new.cost < sums.cost {
            let gain = sums.cost - new.cost;
            at = candidate;
            sums = new;
            damping = (damping * 0.1).max(1e-10);
            if gain < 1e-7 * sums.cost {
                break;
            }
        } else {
            damping *= 10.0;
            if damping > 1e4 {
                break;
            }
        }
    }
    (at, sums.cost)
}

/// Number of entries of the upper triangle of a 9x9 matrix.
const TRIANGLE: usize = 45;

struct NormalEquations {
    cost: f64,
    triangle: [f64; TRIANGLE],
    gradient: [f64; 9],
}

impl NormalEquations {
    fn normal(&self, r: usize, c: usize) -> f64 {
        let (r, c) = (r.min(c), r.max(c));
        self.triangle[r * 9 - r * (r + 1) / 2 + c]
    }
}

/// Cost, `JᵀWJ` and `JᵀWr` of all Sampson errors by the nine entries of `matrix`, row by row. `weight` is 1/s² of the
/// loss.
fn normal_equations(pairs: &PointPairs, matrix: &Matrix3<f64>, weight: f64) -> NormalEquations {
    #[cfg(target_arch = "x86_64")]
    if std::arch::is_x86_feature_detected!("avx2") {
        // SAFETY: the processor has AVX2.
        return unsafe { normal_equations_avx2(pairs, matrix, weight) };
    }
    normal_equations_body(pairs, matrix, weight)
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn normal_equations_avx2(pairs: &PointPairs, matrix: &Matrix3<f64>, weight: f64) -> NormalEquations {
    normal_equations_body(pairs, matrix, weight)
}

#[inline(always)]
fn normal_equations_body(pairs: &PointPairs, matrix: &Matrix3<f64>, weight: f64) -> NormalEquations {
    let m: [f64; 9] = std::array::from_fn(|k| matrix[(k / 3, k % 3)]);
    let mut cost = [0.0; LANES];
    let mut triangle = [[0.0; LANES]; TRIANGLE];
    let mut gradient = [[0.0; LANES]; 9];
    for block in pairs.blocks() {
        let mut jacobian = [[0.0; LANES]; 9];
        let (mut residual, mut influence) = ([0.0; LANES], [0.0; LANES]);
        for lane in 0..LANES {
            let [x1, y1, x2, y2] = [block[0][lane], block[1][lane], block[2][lane], block[3][lane]];
            let EpipolarTerms { a: [a0, a1], b: [b0, b1], c, square } =
                EpipolarTerms::new(&m, [x1, y1, x2, y2]);
            // The padding is NaN and a pair at both epipoles has no error: neither may count.
            let valid = square > 1e-30;
            let inverse = if valid { 1.0 / square.sqrt() } else { 0.0 };
            let r = if valid { c * inverse } else { 0.0 };
            let robust = 1.0 / (1.0 + r * r * weight);
            cost[lane] += r * r * robust;
            residual[lane] = r;
            influence[lane] = robust * robust;
            // d r / d M = x2 x1ᵀ / n - r / n² (d n / d M) n, with n² = a0² + a1² + b0² + b1².
            let k = r * inverse * inverse;
            let zero = |v: f64| if valid { v } else { 0.0 };
            jacobian[0][lane] = zero(x2 * x1 * inverse - k * (a0 * x1 + b0 * x2));
            jacobian[1][lane] = zero(x2 * y1 * inverse - k * (a0 * y1 + b1 * x2));
            jacobian[2][lane] = zero(x2 * inverse - k * a0);
            jacobian[3][lane] = zero(y2 * x1 * inverse - k * (a1 * x1 + b0 * y2));
            jacobian[4][lane] = zero(y2 * y1 * inverse - k * (a1 * y1 + b1 * y2));
            jacobian[5][lane] = zero(y2 * inverse - k * a1);
            jacobian[6][lane] = zero(x1 * inverse - k * b0);
            jacobian[7][lane] = zero(y1 * inverse - k * b1);
            jacobian[8][lane] = zero(inverse);
        }
        let mut entry = 0;
        for r in 0..9 {
            let weighted: [f64; LANES] = std::array::from_fn(|lane| jacobian[r][lane] * influence[lane]);
            for lane in 0..LANES {
                gradient[r][lane] += weighted[lane] * residual[lane];
            }
            for c in r..9 {
                for lane in 0..LANES {
                    triangle[entry][lane] += weighted[lane] * jacobian[c][lane];
                }
                entry += 1;
            }
        }
    }
    NormalEquations {
        cost: cost.iter().sum(),
        triangle: triangle.map(|lanes| lanes.iter().sum()),
        gradient: gradient.map(|lanes| lanes.iter().sum()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;
    use crate::sfm::two_view::essential::essential_from_pose;
    use crate::sfm::two_view::score::{Residual, Sampson};
    use crate::sfm::two_view::synthetic::{Scene, random_direction, random_rotation};

    /// Cost as a function of the matrix alone.
    fn cost(pairs: &PointPairs, m: &Matrix3<f64>) -> f64 {
        normal_equations(pairs, m, 100.0).cost
    }

    #[test]
    fn the_gradient_agrees_with_central_differences() {
        let scene = Scene::random(4, 37);
        let mut random = Random::new(8);
        let pairs = PointPairs::new(scene.pairs.iter().map(|p| p.map(|v| v + 0.02 * random.normal())));
        let m = essential_from_pose(&scene.pose);
        let sums = normal_equations(&pairs, &m, 100.0);
        let portable = normal_equations_body(&pairs, &m, 100.0);
        assert_eq!((sums.cost, sums.triangle), (portable.cost, portable.triangle));
        for k in 0..9 {
            let mut step = Matrix3::zeros();
            step[(k / 3, k % 3)] = 1e-6;
            let numeric = (cost(&pairs, &(m + step)) - cost(&pairs, &(m - step))) / 2e-6;
            assert!((2.0 * sums.gradient[k] - numeric).abs() < 1e-6, "{} {numeric}", 2.0 * sums.gradient[k]);
        }
    }

    #[test]
    fn both_manifolds_have_the_tangents_they_claim() {
        fn check<const K: usize>(m: &impl Manifold<K>) {
            for (k, tangent) in m.tangents().iter().enumerate() {
                let step = |h: f64| std::array::from_fn(|i| if i == k { h } else { 0.0 });
                let numeric = (m.moved(&step(1e-6)).matrix() - m.moved(&step(-1e-6)).matrix()) / 2e-6;
                assert!((tangent - numeric).norm() < 1e-8, "parameter {k}");
            }
        }
        let mut random = Random::new(2);
        let turn = |random: &mut Random| random_rotation(random, 3.0).to_rotation_matrix().into_inner();
        check(&RelativePose { rotation: turn(&mut random), direction: random_direction(&mut random) });
        check(&RankTwo { u: turn(&mut random), v: turn(&mut random), s: 0.6 });
    }

    #[test]
    fn a_disturbed_geometry_comes_back_despite_outliers() {
        for seed in 0..50 {
            let scene = Scene::random(seed, 100);
            let mut random = Random::new(seed);
            let mut rows = scene.pairs.clone();
            let sampson = Sampson::new(&essential_from_pose(&scene.pose));
            for row in rows.iter_mut().take(20) {
                // Not along the epipolar line, where it would be no outlier; some geometries have hardly another place.
                for _ in 0..200 {
                    if sampson.squared(*row) >= 0.03 {
                        break;
                    }
                    row[2] = 1.8 * random.uniform() - 0.9;
                    row[3] = 1.8 * random.uniform() - 0.9;
                }
            }
            let pairs = PointPairs::new(rows.into_iter());
            let start = Pose {
                rotation: scene.pose.rotation * random_rotation(&mut random, 0.01),
                translation: scene.pose.translation + 0.02 * random_direction(&mut random),
            };
            // The motion itself can be ill-conditioned; what it says about the right matches is not.
            let pose = refine_pose(&RelativePose::of(&start), &pairs, 0.05, 50).0.pose();
            let f = refine_fundamental(&essential_from_pose(&start), &pairs, 0.05, 50).unwrap();
            for matrix in [essential_from_pose(&pose), f] {
                let refined = Sampson::new(&matrix);
                let mut errors: Vec<f64> = scene.pairs.iter().map(|r| refined.squared(*r).sqrt()).collect();
                errors.sort_by(f64::total_cmp);
                assert!(errors[50] < 6e-3 && errors[95] < 0.03, "seed {seed}: {} {}", errors[50], errors[95]);
            }
        }
    }
}
