//! The homography: from four points, and least squares from more (Hartley & Zisserman, chapter 4).

use nalgebra::{Matrix3, SMatrix, SVector, Vector3};

use super::fundamental::Normalizer;
use super::linear::smallest_eigenvector;

/// The homography with `x2 ~ H x1` for four pairs of points (unit norm). `None` if three of a picture are collinear, or if it
/// mirrors: no camera does that to a plane in front of it.
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

/// The homography of least algebraic error on the pairs (x1, y1, x2, y2), normalised as Hartley does. `None` for fewer than four pairs or
/// points that coincide.
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
