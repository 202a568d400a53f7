//! The homography: from four points, and least squares from more (Hartley & Zisserman, chapter 4).

use nalgebra::{Matrix3, SMatrix, SVector, Vector3};

use super::fundamental::Normalizer;
use super::linear::smallest_eigenvector;
use super::refine::RelativePose;

/// The homography with `x2 ~ H x1` for four pairs of points (unit norm). `None` if three of an image are collinear, or
/// if it mirrors: no camera does that to a plane in front of it.
pub(crate) fn four_point_homography(x1: &[[f64; 2]; 4], x2: &[[f64; 2]; 4]) -> Option<Matrix3<f64>> {
    let (first, second) = (projective_basis(x1)?, projective_basis(x2)?);
    let h = second * first.try_inverse()?;
    let norm = h.norm();
    if !(norm > 0.0 && norm.is_finite()) {
        return None;
    }
    let h = h / norm;
    // Every point has to keep its side of the line that goes to infinity.
    let depth = |x: &[f64; 2]| h[(2, 0)] * x[0] + h[(2, 1)] * x[1] + h[(2, 2)];
    let side = depth(&x1[0]) > 0.0;
    x1[1..].iter().all(|x| (depth(x) > 0.0) == side).then_some(h)
}

/// The matrix that maps the unit vectors and (1, 1, 1) to the four points.
fn projective_basis(x: &[[f64; 2]; 4]) -> Option<Matrix3<f64>> {
    let column = |k: usize| Vector3::new(x[k][0], x[k][1], 1.0);
    let basis = Matrix3::from_columns(&[column(0), column(1), column(2)]);
    let weights = basis.try_inverse()? * column(3);
    if weights.iter().any(|w| w.abs() < 1e-9) {
        return None;
    }
    Some(basis * Matrix3::from_diagonal(&weights))
}

/// The homography of least algebraic error on the pairs (x1, y1, x2, y2), normalised as Hartley does. `None` for fewer
/// than four pairs or points that coincide.
pub(crate) fn least_squares_homography(
    pairs: impl Iterator<Item = [f64; 4]> + Clone,
) -> Option<Matrix3<f64>> {
    let normalizer = Normalizer::of(pairs.clone(), 4)?;
    let mut normal = SMatrix::<f64, 9, 9>::zeros();
    for pair in pairs {
        let ([x, y], [u, v]) = normalizer.apply(pair);
        let a = SVector::<f64, 9>::from([0.0, 0.0, 0.0, -x, -y, -1.0, v * x, v * y, v]);
        let b = SVector::<f64, 9>::from([x, y, 1.0, 0.0, 0.0, 0.0, -u * x, -u * y, -u]);
        normal.ger(1.0, &a, &a, 1.0);
        normal.ger(1.0, &b, &b, 1.0);
    }
    let h = normalizer.second.try_inverse()? * smallest_eigenvector(&normal)? * normalizer.first;
    let norm = h.norm();
    (norm > 0.0 && norm.is_finite()).then(|| h / norm)
}

/// The relative poses that explain a homography `x2 ~ H x1` of the planes z = 1: motions before a plane (two, each with
/// both signs of its baseline, as a plane behind the camera would have the other one; Ma, Soatto, Košecká & Sastry, "An
/// Invitation to 3-D Vision", 5.3). For a turn on the spot, whose baseline is nowhere, one along each axis. Empty if
/// `homography` is singular.
pub(crate) fn relative_poses_of_homography(homography: &Matrix3<f64>) -> Vec<RelativePose> {
    let svd = homography.svd(false, true);
    let (Some(vt), s) = (svd.v_t, svd.singular_values) else { return Vec::new() };
    if s[2].is_nan() || s[2] <= 1e-9 * s[0] {
        return Vec::new();
    }
    // Singular values in descending order; the middle one of R + t nᵀ is 1, and its determinant positive.
    let h = homography * (homography.determinant().signum() / s[1]);
    let (high, low) = ((s[0] / s[1]).powi(2), (s[2] / s[1]).powi(2));
    let mut poses = Vec::with_capacity(6);
    if high - low < NO_BASELINE {
        let turn = RelativePose { rotation: nearest_rotation(&h), direction: Vector3::x() };
        poses.extend((0..3).map(|k| RelativePose { direction: Vector3::ith(k, 1.0), ..turn }));
    }
    if high - low > 1e-12 {
        let [v1, v2, v3] = [0, 1, 2].map(|k| vt.row(k).transpose());
        for sign in [1.0, -1.0] {
            // Directions in the plane that keep their length.
            let u = (v1 * (1.0 - low).max(0.0).sqrt() + v3 * (sign * (high - 1.0).max(0.0).sqrt()))
                / (high - low).sqrt();
            let from = Matrix3::from_columns(&[v2, u, v2.cross(&u)]);
            let (a, b) = (h * v2, h * u);
            let to = Matrix3::from_columns(&[a, b, a.cross(&b)]);
            let rotation = to * from.transpose();
            let baseline = (h - rotation) * v2.cross(&u);
            if let Some(direction) = baseline.try_normalize(1e-9) {
                poses.push(RelativePose { rotation, direction });
            }
        }
    }
    let back: Vec<_> = poses.iter().map(|p| RelativePose { direction: -p.direction, ..*p }).collect();
    poses.extend(back);
    poses
}

/// Difference of the squared singular values below which a homography is as good as a rotation: noise of a pixel or two
/// makes it.
const NO_BASELINE: f64 = 0.02;

fn nearest_rotation(m: &Matrix3<f64>) -> Matrix3<f64> {
    let svd = m.svd(true, true);
    svd.u.zip(svd.v_t).map_or_else(Matrix3::identity, |(u, vt)| u * vt)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sfm::two_view::synthetic::{Scene, essential_distance};

    #[test]
    fn four_points_of_a_plane_give_its_homography() {
        let mut good = 0;
        for seed in 0..1000 {
            let (scene, truth) = Scene::planar(seed, 4);
            let (x1, x2) = scene.normalized::<4>();
            let h = four_point_homography(&x1, &x2);
            good += usize::from(h.is_some_and(|h| essential_distance(&h, &truth.normalize()) < 1e-8));
        }
        println!("four-point: {good} of 1000");
        assert!(good >= 999, "{good} of 1000");
        let line = [[0.0, 0.0], [1.0, 1.0], [2.0, 2.0], [0.0, 1.0]];
        assert!(four_point_homography(&line, &line).is_none());
    }

    #[test]
    fn a_homography_comes_apart_into_the_motion_before_its_plane() {
        for seed in 0..100 {
            let (scene, h) = Scene::planar(seed, 1);
            let motion = scene.pose.rotation_matrix();
            for h in [h, -3.0 * h] {
                let poses = relative_poses_of_homography(&h);
                assert!(poses.iter().all(|p| (p.rotation.determinant() - 1.0).abs() < 1e-9));
                let right = |p: &&RelativePose| {
                    (p.rotation - motion).norm() + (p.direction - scene.pose.translation).norm() < 1e-6
                };
                assert_eq!(poses.iter().filter(right).count(), 1, "{seed}");
            }
            let turns = relative_poses_of_homography(&motion);
            assert!(turns.iter().filter(|p| (p.rotation - motion).norm() < 1e-9).count() >= 6);
        }
        assert!(relative_poses_of_homography(&Matrix3::zeros()).is_empty());
    }

    #[test]
    fn many_points_of_a_plane_give_its_homography_by_least_squares() {
        let mut good = 0;
        for seed in 0..1000 {
            let (scene, truth) = Scene::planar(seed, 12);
            let h = least_squares_homography(scene.pairs.iter().copied()).unwrap();
            good += usize::from(essential_distance(&h, &truth.normalize()) < 1e-8);
        }
        assert!(good >= 999, "{good} of 1000");
    }
}
