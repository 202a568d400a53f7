//! Small linear algebra that the minimal solvers share.

use nalgebra::{Matrix3, SMatrix, SVector};

/// An orthonormal basis of the null space of `N` rows of nine numbers: the last `K = 9 - N` columns of Q in the
/// Householder factorisation of the transposed rows.
pub(crate) fn null_space<const N: usize, const K: usize>(rows: &[[f64; 9]; N]) -> [[f64; 9]; K] {
    const { assert!(N + K == 9) };
    let mut a = *rows; // a[i] is column i of the transposed matrix
    let mut reflectors = [[0.0; 9]; N];
    for i in 0..N {
        let norm = a[i][i..].iter().map(|v| v * v).sum::<f64>().sqrt();
        let mut v = [0.0; 9];
        v[i..].copy_from_slice(&a[i][i..]);
        v[i] += norm.copysign(v[i]);
        let length = v[i..].iter().map(|v| v * v).sum::<f64>().sqrt();
        if length > 0.0 {
            v[i..].iter_mut().for_each(|x| *x /= length);
        }
        for column in &mut a[i + 1..] {
            reflect(&v, column, i);
        }
        reflectors[i] = v;
    }
    std::array::from_fn(|k| {
        let mut column = [0.0; 9];
        column[N + k] = 1.0;
        for i in (0..N).rev() {
            reflect(&reflectors[i], &mut column, i);
        }
        column
    })
}

#[inline(always)]
fn reflect(v: &[f64; 9], x: &mut [f64; 9], from: usize) {
    let dot: f64 = v[from..].iter().zip(&x[from..]).map(|(a, b)| a * b).sum();
    for k in from..9 {
        x[k] -= 2.0 * dot * v[k];
    }
}

/// The unit vector that makes `|A v|` smallest, given `AᵀA` (9x9), as a 3x3 matrix row by row. `None` if not finite.
pub(crate) fn smallest_eigenvector(normal: &SMatrix<f64, 9, 9>) -> Option<Matrix3<f64>> {
    if !normal.iter().all(|v| v.is_finite()) {
        return None;
    }
    let eigen = normal.symmetric_eigen();
    let smallest = eigen.eigenvalues.imin();
    let v: SVector<f64, 9> = eigen.eigenvectors.column(smallest).into_owned();
    Some(Matrix3::from_row_slice(v.as_slice()))
}

/// Solves `(A + damping · diag A) x = b` for a small symmetric positive definite A by Cholesky. `None` if it is not
/// definite.
pub(crate) fn solve_damped<const K: usize>(
    a: &[[f64; K]; K],
    b: &[f64; K],
    damping: f64,
) -> Option<[f64; K]> {
    let mut l = [[0.0; K]; K];
    for i in 0..K {
        for j in 0..=i {
            let mut sum = a[i][j];
            if i == j {
                sum += damping * a[i][i];
            }
            for k in 0..j {
                sum -= l[i][k] * l[j][k];
            }
            if i == j {
                if !(sum > 0.0 && sum.is_finite()) {
                    return None;
                }
                l[i][i] = sum.sqrt();
            } else {
                l[i][j] = sum / l[j][j];
            }
        }
    }
    let mut x = *b;
    for i in 0..K {
        for k in 0..i {
            x[i] -= l[i][k] * x[k];
        }
        x[i] /= l[i][i];
    }
    for i in (0..K).rev() {
        for k in i + 1..K {
            x[i] -= l[k][i] * x[k];
        }
        x[i] /= l[i][i];
    }
    Some(x)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;

    #[test]
    fn the_null_space_is_orthonormal_and_orthogonal_to_the_rows() {
        let mut random = Random::new(3);
        let rows: [[f64; 9]; 7] = std::array::from_fn(|_| std::array::from_fn(|_| random.normal()));
        let basis: [[f64; 9]; 2] = null_space(&rows);
        let dot = |a: &[f64; 9], b: &[f64; 9]| a.iter().zip(b).map(|(x, y)| x * y).sum::<f64>();
        for (i, a) in basis.iter().enumerate() {
            assert!(rows.iter().all(|r| dot(r, a).abs() < 1e-12));
            assert!(
                basis
                    .iter()
                    .enumerate()
                    .all(|(j, b)| (dot(a, b) - f64::from(u8::from(i == j))).abs() < 1e-12)
            );
        }
    }

    #[test]
    fn a_damped_system_is_solved_and_an_indefinite_one_refused() {
        let a = [[4.0, 1.0], [1.0, 3.0]];
        let x = solve_damped(&a, &[1.0, 2.0], 0.5).unwrap();
        assert!((6.0 * x[0] + x[1] - 1.0).abs() < 1e-14 && (x[0] + 4.5 * x[1] - 2.0).abs() < 1e-14);
        assert_eq!(solve_damped(&[[1.0, 2.0], [2.0, 1.0]], &[0.0, 0.0], 0.0), None);
    }
}
