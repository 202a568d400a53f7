//! The essential matrix: from five points (Nistér, PAMI 2004), and apart into a pose.

use nalgebra::{Matrix3, Vector3};

use super::linear::{null_space, solve_damped};
use super::polynomial::real_roots;
use super::refine::RelativePose;
use crate::camera::Pose;
use crate::sfm::geometry::skew;

/// Powers of (x, y, z) of the monomials of degree at most 1, 2 and 3. The order of the cubic ones is Nistér's:
/// elimination of the first ten leaves polynomials in z alone as coefficients of x, y and 1.
const LINEAR: [[u8; 3]; 4] = [[1, 0, 0], [0, 1, 0], [0, 0, 1], [0, 0, 0]];
const QUADRATIC: [[u8; 3]; 10] = [
    [2, 0, 0],
    [1, 1, 0],
    [1, 0, 1],
    [0, 2, 0],
    [0, 1, 1],
    [0, 0, 2],
    [1, 0, 0],
    [0, 1, 0],
    [0, 0, 1],
    [0, 0, 0],
];
const CUBIC: [[u8; 3]; 20] = [
    [3, 0, 0],
    [0, 3, 0],
    [2, 1, 0],
    [1, 2, 0],
    [2, 0, 1],
    [2, 0, 0],
    [0, 2, 1],
    [0, 2, 0],
    [1, 1, 1],
    [1, 1, 0],
    [1, 0, 2],
    [1, 0, 1],
    [1, 0, 0],
    [0, 1, 2],
    [0, 1, 1],
    [0, 1, 0],
    [0, 0, 3],
    [0, 0, 2],
    [0, 0, 1],
    [0, 0, 0],
];

/// Where the product of monomial `i` of `a` and monomial `j` of [`LINEAR`] stands in `product`.
const fn product_table<const A: usize, const P: usize>(
    a: &[[u8; 3]; A],
    product: &[[u8; 3]; P],
) -> [[usize; 4]; A] {
    let mut table = [[0; 4]; A];
    let mut i = 0;
    while i < A {
        let mut j = 0;
        while j < 4 {
            let mut k = 0;
            while !(product[k][0] == a[i][0] + LINEAR[j][0]
                && product[k][1] == a[i][1] + LINEAR[j][1]
                && product[k][2] == a[i][2] + LINEAR[j][2])
            {
                k += 1;
            }
            table[i][j] = k;
            j += 1;
        }
        i += 1;
    }
    table
}

const LINEAR_BY_LINEAR: [[usize; 4]; 4] = product_table(&LINEAR, &QUADRATIC);
const QUADRATIC_BY_LINEAR: [[usize; 4]; 10] = product_table(&QUADRATIC, &CUBIC);

type Linear = [f64; 4];
type Quadratic = [f64; 10];
type Cubic = [f64; 20];

#[inline(always)]
fn add_linear_product(sum: &mut Quadratic, factor: f64, a: &Linear, b: &Linear) {
    for i in 0..4 {
        for j in 0..4 {
            sum[LINEAR_BY_LINEAR[i][j]] += factor * a[i] * b[j];
        }
    }
}

#[inline(always)]
fn add_quadratic_product(sum: &mut Cubic, a: &Quadratic, b: &Linear) {
    for i in 0..10 {
        for j in 0..4 {
            sum[QUADRATIC_BY_LINEAR[i][j]] += a[i] * b[j];
        }
    }
}

/// The essential matrices (at most ten, unit norm) with `x2ᵀ E x1 = 0` for five pairs of points of the plane z = 1.
pub(crate) fn five_point_essential(
    x1: &[[f64; 2]; 5],
    x2: &[[f64; 2]; 5],
    solutions: &mut Vec<Matrix3<f64>>,
) {
    solutions.clear();
    let rows: [[f64; 9]; 5] = std::array::from_fn(|i| epipolar_row(x1[i], x2[i]));
    let basis: [[f64; 9]; 4] = null_space(&rows);
    // E = x·basis0 + y·basis1 + z·basis2 + basis3: every entry is a linear polynomial.
    let e: [Linear; 9] = std::array::from_fn(|k| std::array::from_fn(|b| basis[b][k]));

    // det E = 0 and (E Eᵀ - ½ trace(E Eᵀ) I) E = 0: ten cubic equations.
    let mut equations = [[0.0; 20]; 10];
    for (k, (i, j)) in [(1, 2), (2, 0), (0, 1)].into_iter().enumerate() {
        let mut minor = [0.0; 10];
        add_linear_product(&mut minor, 1.0, &e[i], &e[3 + j]);
        add_linear_product(&mut minor, -1.0, &e[j], &e[3 + i]);
        add_quadratic_product(&mut equations[9], &minor, &e[6 + k]);
    }
    let mut product = [[[0.0; 10]; 3]; 3];
    for i in 0..3 {
        for j in 0..=i {
            for k in 0..3 {
                add_linear_product(&mut product[i][j], 1.0, &e[3 * i + k], &e[3 * j + k]);
            }
            product[j][i] = product[i][j];
        }
    }
    for m in 0..10 {
        let half_trace = 0.5 * (product[0][0][m] + product[1][1][m] + product[2][2][m]);
        for i in 0..3 {
            product[i][i][m] -= half_trace;
        }
    }
    for i in 0..3 {
        for j in 0..3 {
            for k in 0..3 {
                add_quadratic_product(&mut equations[3 * i + j], &product[i][k], &e[3 * k + j]);
            }
        }
    }
    let original = equations;
    if !eliminate(&mut equations) {
        return;
    }

    // Rows 4 to 9 now express x²z, x², y²z, y², xyz, xy; e - z f and the like are free of products of x and y.
    let mut b = [([0.0; 4], [0.0; 4], [0.0; 5]); 3];
    for (k, (upper, lower)) in [(4, 5), (6, 7), (8, 9)].into_iter().enumerate() {
        let (u, l) = (&equations[upper][10..], &equations[lower][10..]);
        b[k].0 = [u[2], u[1] - l[2], u[0] - l[1], -l[0]];
        b[k].1 = [u[5], u[4] - l[5], u[3] - l[4], -l[3]];
        b[k].2 = [u[9], u[8] - l[9], u[7] - l[8], u[6] - l[7], -l[6]];
    }
    let mut determinant = [0.0; 11];
    for (i, j, k) in [(0, 1, 2), (1, 2, 0), (2, 0, 1)] {
        let mut minor = [0.0; 7];
        for p in 0..4 {
            for q in 0..4 {
                minor[p + q] += b[i].0[p] * b[j].1[q] - b[i].1[p] * b[j].0[q];
            }
        }
        for p in 0..7 {
            for q in 0..5 {
                determinant[p + q] += minor[p] * b[k].2[q];
            }
        }
    }
    let mut roots = Vec::with_capacity(10);
    real_roots(&determinant, &mut roots);
    for z in roots {
        let horner = |p: &[f64]| p.iter().rev().fold(0.0, |v, c| v * z + c);
        let rows: [Vector3<f64>; 3] =
            std::array::from_fn(|k| Vector3::new(horner(&b[k].0), horner(&b[k].1), horner(&b[k].2)));
        let crosses = [rows[0].cross(&rows[1]), rows[1].cross(&rows[2]), rows[2].cross(&rows[0])];
        let Some(v) = crosses.into_iter().max_by(|a, b| a.z.abs().total_cmp(&b.z.abs())) else { continue };
        let [x, y, z] = polish([v.x / v.z, v.y / v.z, z], &original);
        let matrix = Matrix3::from_row_iterator(
            (0..9).map(|m| x * basis[0][m] + y * basis[1][m] + z * basis[2][m] + basis[3][m]),
        );
        let norm = matrix.norm();
        if norm.is_finite() && norm > 0.0 {
            solutions.push(matrix / norm);
        }
    }
}

/// The row of `x2ᵀ E x1 = 0` for the nine entries of E, row by row.
#[inline(always)]
pub(crate) fn epipolar_row(x1: [f64; 2], x2: [f64; 2]) -> [f64; 9] {
    let ([a, b], [c, d]) = (x1, x2);
    [c * a, c * b, c, d * a, d * b, d, a, b, 1.0]
}

/// Two Gauss-Newton steps on the ten cubic equations: elimination loses digits where points are close to degenerate.
fn polish(mut at: [f64; 3], equations: &[Cubic; 10]) -> [f64; 3] {
    for _ in 0..2 {
        let powers: [[f64; 4]; 3] = at.map(|v| [1.0, v, v * v, v * v * v]);
        let slopes: [[f64; 4]; 3] = at.map(|v| [0.0, 1.0, 2.0 * v, 3.0 * v * v]);
        // Each monomial and its derivatives by x, y, z: side by side, so that the sums over them do not wait for each other.
        let monomials: [[f64; 4]; 20] = CUBIC.map(|m| {
            let p: [f64; 3] = std::array::from_fn(|v| powers[v][m[v] as usize]);
            let d: [f64; 3] = std::array::from_fn(|v| slopes[v][m[v] as usize]);
            [p[0] * p[1] * p[2], d[0] * p[1] * p[2], p[0] * d[1] * p[2], p[0] * p[1] * d[2]]
        });
        let (mut normal, mut gradient) = ([[0.0; 3]; 3], [0.0; 3]);
        for equation in equations {
            let mut sums = [0.0; 4];
            for (factor, monomial) in equation.iter().zip(&monomials) {
                for (sum, value) in sums.iter_mut().zip(monomial) {
                    *sum += factor * value;
                }
            }
            let [r, jx, jy, jz] = sums;
            let j = [jx, jy, jz];
            for a in 0..3 {
                gradient[a] += j[a] * r;
                for b in 0..3 {
                    normal[a][b] += j[a] * j[b];
                }
            }
        }
        let Some(step) = solve_damped(&normal, &gradient, 0.0) else { break };
        at = std::array::from_fn(|v| at[v] - step[v]);
    }
    at
}

/// Gauss-Jordan elimination of the first ten columns with row pivoting; only the rows 4 to 9 are fully reduced. `false`
/// if singular.
fn eliminate(m: &mut [Cubic; 10]) -> bool {
    for c in 0..10 {
        let mut pivot = c;
        for r in c + 1..10 {
            if m[r][c].abs() > m[pivot][c].abs() {
                pivot = r;
            }
        }
        if m[pivot][c].abs() < 1e-14 {
            return false;
        }
        m.swap(c, pivot);
        let inverse = 1.0 / m[c][c];
        let row: Cubic = std::array::from_fn(|k| m[c][k] * inverse);
        m[c] = row;
        for r in (4..10).chain(c + 1..4) {
            if r == c || (r < c && r < 4) {
                continue;
            }
            let factor = m[r][c];
            if factor != 0.0 {
                for k in c..20 {
                    m[r][k] -= factor * row[k];
                }
            }
        }
    }
    true
}

/// `E = [t]ₓ R` of the pose second-from-first.
#[cfg(test)]
pub(crate) fn essential_from_pose(pose: &Pose) -> Matrix3<f64> {
    skew(&pose.translation) * pose.rotation_matrix()
}

/// The four relative poses of an exact essential matrix of unit norm, in closed form (Horn, "Recovering Baseline and
/// Orientation from Essential Matrix", 1990).
pub(crate) fn relative_poses_of_essential(essential: &Matrix3<f64>) -> [RelativePose; 4] {
    // E = [b]ₓ R with |b| = 1. The columns of E are perpendicular to b, and those of the matrix of cofactors are
    // multiples of it.
    let e = essential * std::f64::consts::SQRT_2;
    let [c0, c1, c2] = [0, 1, 2].map(|k| e.column(k).into_owned());
    let cofactors = [c1.cross(&c2), c2.cross(&c0), c0.cross(&c1)];
    let mut b = cofactors[0];
    for c in &cofactors[1..] {
        if c.norm_squared() > b.norm_squared() {
            b = *c;
        }
    }
    b.normalize_mut();
    // cof E = b bᵀ R and [b]ₓ E = (b bᵀ - I) R; -b gives the other rotation.
    let (sum, turned) = (Matrix3::from_columns(&cofactors), skew(&b) * e);
    [(sum - turned, b), (sum - turned, -b), (sum + turned, b), (sum + turned, -b)]
        .map(|(rotation, direction)| RelativePose { rotation, direction })
}

/// The four poses (|t| = 1) of an essential matrix (Hartley & Zisserman, 9.14). `None` if it is not finite.
pub(crate) fn poses_from_essential(essential: &Matrix3<f64>) -> Option<[Pose; 4]> {
    if !essential.iter().all(|v| v.is_finite()) {
        return None;
    }
    let svd = essential.svd(true, true);
    let (mut u, mut vt) = (svd.u?, svd.v_t?);
    if u.determinant() < 0.0 {
        u.column_mut(2).neg_mut();
    }
    if vt.determinant() < 0.0 {
        vt.row_mut(2).neg_mut();
    }
    let w = Matrix3::new(0.0, -1.0, 0.0, 1.0, 0.0, 0.0, 0.0, 0.0, 1.0);
    let t: Vector3<f64> = u.column(2).into_owned();
    let (a, b) = (u * w * vt, u * w.transpose() * vt);
    Some([
        Pose::from_matrix(&a, t),
        Pose::from_matrix(&a, -t),
        Pose::from_matrix(&b, t),
        Pose::from_matrix(&b, -t),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sfm::two_view::synthetic::{Scene, essential_distance};

    #[test]
    fn five_points_give_the_true_essential_matrix() {
        let mut solutions = Vec::new();
        let mut good = 0;
        for seed in 0..1000 {
            let scene = Scene::random(seed, 5);
            let (x1, x2) = scene.normalized::<5>();
            five_point_essential(&x1, &x2, &mut solutions);
            assert!(solutions.len() <= 10);
            let truth = essential_from_pose(&scene.pose).normalize();
            let best = solutions.iter().map(|e| essential_distance(e, &truth)).fold(f64::INFINITY, f64::min);
            good += usize::from(best < 1e-8);
        }
        println!("five-point: {good} of 1000");
        assert!(good >= 999, "{good} of 1000");
    }

    #[test]
    fn an_essential_matrix_comes_apart_into_its_pose() {
        for seed in 0..100 {
            let scene = Scene::random(seed, 1);
            let poses = poses_from_essential(&essential_from_pose(&scene.pose)).unwrap();
            let direction = scene.pose.translation.normalize();
            let hits = poses.iter().filter(|p| {
                p.rotation.angle_to(&scene.pose.rotation) < 1e-7 && (p.translation - direction).norm() < 1e-7
            });
            assert_eq!(hits.count(), 1);
            let essential = essential_from_pose(&scene.pose).normalize();
            for e in [essential, -essential] {
                let closed = relative_poses_of_essential(&e);
                for pose in &closed {
                    assert!((pose.rotation.determinant() - 1.0).abs() < 1e-9);
                    assert!(essential_distance(&pose.essential().normalize(), &e) < 1e-9);
                }
                let rotation = scene.pose.rotation_matrix();
                let hits = closed.iter().filter(|p| {
                    (p.rotation - rotation).norm() < 1e-9 && (p.direction - direction).norm() < 1e-9
                });
                assert_eq!(hits.count(), 1);
            }
        }
    }
}
