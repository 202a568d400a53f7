//! The fundamental matrix: from seven points, and least squares from eight or more (Hartley & Zisserman, chapter 11).

use nalgebra::{Matrix3, SMatrix, SVector};

use super::essential::epipolar_row;
use super::linear::{null_space, smallest_eigenvector};
use super::polynomial::real_roots;

/// The fundamental matrices (one to three, unit norm) with `x2ᵀ F x1 = 0` for seven pairs of points, whose coordinates
/// should be about 1.
pub(crate) fn seven_point_fundamental(
    x1: &[[f64; 2]; 7],
    x2: &[[f64; 2]; 7],
    solutions: &mut Vec<Matrix3<f64>>,
) {
    solutions.clear();
    let rows: [[f64; 9]; 7] = std::array::from_fn(|i| epipolar_row(x1[i], x2[i]));
    let [a, b]: [[f64; 9]; 2] = null_space(&rows);
    // det(λ A + B) = 0, a cubic in λ: the determinant is linear in every row, so take rows from A or B.
    let mut cubic = [0.0; 4];
    for choice in 0..8u32 {
        let row = |r: usize| {
            let m = if choice >> r & 1 == 1 { &a } else { &b };
            [m[3 * r], m[3 * r + 1], m[3 * r + 2]]
        };
        let (p, q, s) = (row(0), row(1), row(2));
        cubic[choice.count_ones() as usize] += p[0] * (q[1] * s[2] - q[2] * s[1])
            - p[1] * (q[0] * s[2] - q[2] * s[0])
            + p[2] * (q[0] * s[1] - q[1] * s[0]);
    }
    let mut roots = Vec::with_capacity(3);
    real_roots(&cubic, &mut roots);
    for root in roots {
        let f = Matrix3::from_row_iterator((0..9).map(|k| root * a[k] + b[k]));
        let norm = f.norm();
        if norm.is_finite() && norm > 0.0 {
            solutions.push(f / norm);
        }
    }
}

/// The normalised eight-point algorithm (Hartley, PAMI 1997) on the pairs (x1, y1, x2, y2); rank 2 is enforced. `None`
/// for fewer than eight pairs or points that coincide.
pub(crate) fn eight_point_fundamental(pairs: impl Iterator<Item = [f64; 4]> + Clone) -> Option<Matrix3<f64>> {
    let normalizer = Normalizer::of(pairs.clone(), 8)?;
    let mut normal = SMatrix::<f64, 9, 9>::zeros();
    for pair in pairs {
        let (x1, x2) = normalizer.apply(pair);
        let row = SVector::<f64, 9>::from(epipolar_row(x1, x2));
        normal.ger(1.0, &row, &row, 1.0);
    }
    let f = nearest_rank_two(&smallest_eigenvector(&normal)?)?;
    let f = normalizer.second.transpose() * f * normalizer.first;
    let norm = f.norm();
    (norm.is_finite() && norm > 0.0).then(|| f / norm)
}

/// The nearest matrix of rank 2 in Frobenius norm.
pub(crate) fn nearest_rank_two(f: &Matrix3<f64>) -> Option<Matrix3<f64>> {
    if !f.iter().all(|v| v.is_finite()) {
        return None;
    }
    let mut svd = f.svd(true, true);
    let smallest = svd.singular_values.imin();
    svd.singular_values[smallest] = 0.0;
    svd.recompose().ok()
}

/// Hartley's similarity transforms: mean 0 and root mean square distance √2 in each image.
pub(crate) struct Normalizer {
    /// Of the first image.
    pub(crate) first: Matrix3<f64>,
    /// Of the second image.
    pub(crate) second: Matrix3<f64>,
}

impl Normalizer {
    /// `None` for fewer than `minimum` pairs, or if all points of an image coincide.
    pub(crate) fn of(pairs: impl Iterator<Item = [f64; 4]> + Clone, minimum: usize) -> Option<Self> {
        let (mut count, mut mean, mut square) = (0usize, [0.0; 4], [0.0; 4]);
        for pair in pairs.clone() {
            count += 1;
            for k in 0..4 {
                mean[k] += pair[k];
            }
        }
        if count < minimum {
            return None;
        }
        mean.iter_mut().for_each(|m| *m /= count as f64);
        for pair in pairs {
            for k in 0..4 {
                square[k] += (pair[k] - mean[k]).powi(2);
            }
        }
        let transform = |x: usize| {
            let scale = (2.0 * count as f64 / (square[x] + square[x + 1])).sqrt();
            scale.is_finite().then(|| {
                Matrix3::new(scale, 0.0, -scale * mean[x], 0.0, scale, -scale * mean[x + 1], 0.0, 0.0, 1.0)
            })
        };
        Some(Self { first: transform(0)?, second: transform(2)? })
    }

    /// Both points of a pair, normalised.
    pub(crate) fn apply(&self, [x1, y1, x2, y2]: [f64; 4]) -> ([f64; 2], [f64; 2]) {
        let (a, b) = (&self.first, &self.second);
        (
            [a[(0, 0)] * x1 + a[(0, 2)], a[(1, 1)] * y1 + a[(1, 2)]],
            [b[(0, 0)] * x2 + b[(0, 2)], b[(1, 1)] * y2 + b[(1, 2)]],
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sfm::two_view::essential::essential_from_pose;
    use crate::sfm::two_view::synthetic::{Scene, essential_distance};

    #[test]
    fn seven_points_give_the_true_fundamental_matrix() {
        let mut solutions = Vec::new();
        let mut good = 0;
        for seed in 0..1000 {
            let scene = Scene::random(seed, 7);
            let (x1, x2) = scene.normalized::<7>();
            seven_point_fundamental(&x1, &x2, &mut solutions);
            let truth = essential_from_pose(&scene.pose).normalize();
            let best = solutions.iter().map(|f| essential_distance(f, &truth)).fold(f64::INFINITY, f64::min);
            good += usize::from(best < 1e-8);
        }
        println!("seven-point: {good} of 1000");
        assert!(good >= 999, "{good} of 1000");
    }

    #[test]
    fn many_points_give_the_fundamental_matrix_by_least_squares() {
        let mut good = 0;
        for seed in 0..1000 {
            let scene = Scene::random(seed, 20);
            let pairs = scene.pairs.iter().map(|p| p.map(|v| 500.0 * v + 320.0));
            let f = eight_point_fundamental(pairs).unwrap();
            let k = Matrix3::new(500.0, 0.0, 320.0, 0.0, 500.0, 320.0, 0.0, 0.0, 1.0);
            let e = (k.transpose() * f * k).normalize();
            good += usize::from(essential_distance(&e, &essential_from_pose(&scene.pose).normalize()) < 1e-8);
        }
        println!("eight-point: {good} of 1000");
        assert!(good >= 999, "{good} of 1000");
        assert!(eight_point_fundamental([[0.0; 4]; 7].into_iter()).is_none());
        assert!(eight_point_fundamental([[1.0; 4]; 9].into_iter()).is_none());
    }
}
