//! The pose of a calibrated camera from three points (P3P).
//!
//! With unknown depths λ of the three unit rays, the three known distances give three quadratic forms in λ. Two
//! homogeneous combinations of them are conics that meet in the solutions; a degenerate member of their pencil is a
//! pair of lines, so that only a cubic and quadratics have to be solved (Persson & Nordberg, "Lambda Twist", ECCV 2018;
//! Ding et al., "Revisiting the P3P problem", CVPR 2023).

use nalgebra::{Matrix3, Vector3};

use super::polynomial::real_roots;
use crate::camera::Pose;

/// The world-to-camera poses (at most four) that see the three world points along the three unit rays.
pub(crate) fn p3p(rays: &[Vector3<f64>; 3], points: &[Vector3<f64>; 3], solutions: &mut Vec<Pose>) {
    solutions.clear();
    const PAIRS: [(usize, usize); 3] = [(0, 1), (0, 2), (1, 2)];
    let mut forms = [Matrix3::zeros(); 3];
    let mut distances = [0.0; 3];
    for (k, (i, j)) in PAIRS.into_iter().enumerate() {
        distances[k] = (points[i] - points[j]).norm_squared();
        let cosine = rays[i].dot(&rays[j]);
        forms[k][(i, i)] = 1.0;
        forms[k][(j, j)] = 1.0;
        forms[k][(i, j)] = -cosine;
        forms[k][(j, i)] = -cosine;
    }
    // Unit: the longest distance, so that the conics are well scaled.
    let unit = distances.iter().fold(0.0f64, |m, d| m.max(*d));
    if !(unit > 0.0 && unit.is_finite()) || distances.iter().any(|d| *d < 1e-16 * unit) {
        return;
    }
    distances.iter_mut().for_each(|d| *d /= unit);
    let d1 = forms[0] * distances[2] - forms[2] * distances[0];
    let d2 = forms[1] * distances[2] - forms[2] * distances[1];

    // det(D1 + γ D2) as a cubic in γ.
    let (a1, a2) = (adjugate(&d1), adjugate(&d2));
    let trace_of_product = |a: &Matrix3<f64>, b: &Matrix3<f64>| a.component_mul(b).sum();
    let cubic = [d1.determinant(), trace_of_product(&a1, &d2), trace_of_product(&a2, &d1), d2.determinant()];
    let mut gammas = Vec::with_capacity(3);
    real_roots(&cubic, &mut gammas);

    for gamma in gammas {
        // The larger of the two conics' coefficients is 1: γ may be huge.
        let degenerate = if gamma.abs() > 1.0 { d1 / gamma + d2 } else { d1 + d2 * gamma };
        let Some(lines) = split_degenerate_conic(&degenerate) else { continue };
        for line in lines {
            for direction in line_meets_conic(&line, if gamma.abs() > 1.0 { &d1 } else { &d2 }) {
                let direction = if direction.sum() < 0.0 { -direction } else { direction };
                if direction.min() <= 0.0 {
                    continue;
                }
                let total: Matrix3<f64> = forms[0] + forms[1] + forms[2];
                let scale = distances.iter().sum::<f64>() / (direction.dot(&(total * direction)));
                if !(scale > 0.0 && scale.is_finite()) {
                    continue;
                }
                let depths = polish(direction * scale.sqrt(), rays, &distances) * unit.sqrt();
                if depths.min() > 0.0
                    && let Some(pose) = pose_from_depths(rays, points, &depths)
                {
                    solutions.push(pose);
                }
            }
        }
        // The first degenerate conic that is a real pair of lines has all the intersections.
        break;
    }
}

/// Two Newton steps on the three distance equations.
fn polish(mut depths: Vector3<f64>, rays: &[Vector3<f64>; 3], distances: &[f64; 3]) -> Vector3<f64> {
    let (c01, c02, c12) = (rays[0].dot(&rays[1]), rays[0].dot(&rays[2]), rays[1].dot(&rays[2]));
    for _ in 0..3 {
        let [a, b, c] = [depths.x, depths.y, depths.z];
        let residual = Vector3::new(
            a * a + b * b - 2.0 * a * b * c01 - distances[0],
            a * a + c * c - 2.0 * a * c * c02 - distances[1],
            b * b + c * c - 2.0 * b * c * c12 - distances[2],
        );
        let jacobian = 2.0
            * Matrix3::new(
                a - b * c01,
                b - a * c01,
                0.0,
                a - c * c02,
                0.0,
                c - a * c02,
                0.0,
                b - c * c12,
                c - b * c12,
            );
        let Some(inverse) = jacobian.try_inverse() else { break };
        let next = depths - inverse * residual;
        if !next.iter().all(|v| v.is_finite()) {
            break;
        }
        depths = next;
    }
    depths
}

/// The pose that takes the world triangle to the camera triangle; both are congruent.
fn pose_from_depths(
    rays: &[Vector3<f64>; 3],
    points: &[Vector3<f64>; 3],
    depths: &Vector3<f64>,
) -> Option<Pose> {
    let frame = |p: [Vector3<f64>; 3]| {
        let x = (p[1] - p[0]).try_normalize(0.0)?;
        let z = x.cross(&(p[2] - p[0])).try_normalize(0.0)?;
        Some(Matrix3::from_columns(&[x, z.cross(&x), z]))
    };
    let seen: [Vector3<f64>; 3] = std::array::from_fn(|k| rays[k] * depths[k]);
    let rotation = frame(seen)? * frame(*points)?.transpose();
    let translation = seen[0] - rotation * points[0];
    let pose = Pose::from_matrix(&rotation, translation);
    pose.is_finite().then_some(pose)
}

/// The matrix with `adj(A) A = det(A) I`, for symmetric A.
fn adjugate(a: &Matrix3<f64>) -> Matrix3<f64> {
    let rows: [Vector3<f64>; 3] = std::array::from_fn(|k| a.row(k).transpose());
    Matrix3::from_columns(&[rows[1].cross(&rows[2]), rows[2].cross(&rows[0]), rows[0].cross(&rows[1])])
}

/// The two real lines of a degenerate conic; `None` if they are complex (Richter-Gebert, Perspectives on Projective
/// Geometry, 11.1).
fn split_degenerate_conic(conic: &Matrix3<f64>) -> Option<[Vector3<f64>; 2]> {
    let adjugate = -adjugate(conic);
    let k = adjugate.diagonal().imax();
    let square = adjugate[(k, k)];
    let size = conic.norm();
    if square < -1e-14 * size * size {
        return None;
    }
    // A double line has a vanishing adjugate.
    let meet =
        if square > 1e-28 * size * size { adjugate.column(k) / square.sqrt() } else { Vector3::zeros() };
    let rank_one = conic + crate::sfm::geometry::skew(&meet);
    let (row, column) = rank_one.abs().iamax_full();
    Some([rank_one.row(row).transpose(), rank_one.column(column).into_owned()])
}

/// The points (homogeneous, any sign) at which a line meets a conic.
fn line_meets_conic(line: &Vector3<f64>, conic: &Matrix3<f64>) -> impl Iterator<Item = Vector3<f64>> + use<> {
    let mut axis = Vector3::zeros();
    axis[line.abs().imin()] = 1.0;
    let u = line.cross(&axis).normalize();
    let v = line.cross(&u).normalize();
    let (a, b, c) = (u.dot(&(conic * u)), u.dot(&(conic * v)), v.dot(&(conic * v)));
    // a s² + 2 b s t + c t² = 0 with (s : t) homogeneous, so that neither a = 0 nor c = 0 is special.
    let discriminant = b * b - a * c;
    let size = a * a + b * b + c * c;
    let points = if discriminant < -1e-14 * size {
        None
    } else {
        let q = -(b + discriminant.max(0.0).sqrt().copysign(b));
        Some([u * q + v * a, u * c + v * q])
    };
    points.into_iter().flatten()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;
    use crate::sfm::two_view::synthetic::{Scene, random_direction, random_rotation};

    #[test]
    fn three_points_give_the_true_pose() {
        let mut solutions = Vec::new();
        let (mut good, mut total) = (0, 0);
        for seed in 0..1000 {
            let scene = Scene::random(seed, 3);
            let mut random = Random::new(seed + 5000);
            let world = Pose {
                rotation: random_rotation(&mut random, 3.0),
                translation: 10.0 * random_direction(&mut random),
            };
            let rays: [Vector3<f64>; 3] = std::array::from_fn(|k| scene.points[k].normalize());
            let points: [Vector3<f64>; 3] =
                std::array::from_fn(|k| world.inverse().transform(&scene.points[k]));
            p3p(&rays, &points, &mut solutions);
            total += solutions.len();
            good += usize::from(solutions.iter().any(|p| {
                p.rotation.angle_to(&world.rotation) < 1e-7
                    && (p.translation - world.translation).norm() < 1e-7
            }));
            for p in &solutions {
                for k in 0..3 {
                    assert!(p.transform(&points[k]).normalize().dot(&rays[k]) > 1.0 - 1e-8);
                }
            }
        }
        println!("P3P: {good} of 1000, {total} solutions");
        assert!(good >= 999, "{good} of 1000");
        assert!(total < 3000, "{total}");
    }

    #[test]
    fn coincident_points_give_nothing() {
        let mut solutions = vec![Pose::identity()];
        p3p(&[Vector3::z(); 3], &[Vector3::x(); 3], &mut solutions);
        assert!(solutions.is_empty());
    }
}
