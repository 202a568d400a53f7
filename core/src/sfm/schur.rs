//! The reduced camera system of a least-squares problem over cameras and points.
//!
//! In normal equations `[U W; W^T V]` the points' block `V` is block-diagonal (3x3), so the points are eliminated: what
//! remains is `S = U - W V^-1 W^T` over the cameras and a border of a few shared unknowns (Triggs et al., "Bundle
//! Adjustment - A Modern Synthesis", 1999, section 6.1). With `V = L L^T` and `Z = W L^-T` this is `S = U - Z Z^T`, one
//! array instead of two. `S` has a block only for cameras that see a point in common ([`super::block_sparse`]).
//!
//! Cost: a 6x3 by 3x6 product for every pair of observations of a point. Every group of neighbouring cameras owns its
//! rows of `S`, so that threads never write to the same place and every sum has one order, whatever the number of
//! threads. A group goes through the points that it sees and fetches each block of `Z` once for all its cameras: in
//! large problems, waiting for `Z` is most of the time.
//!
//! `D` is the number of unknowns of a camera (3 or 6) and `P` the same padded to whole vector registers (4 or 8).

mod structure;

use std::sync::Arc;

use rayon::prelude::*;

use super::block_sparse::{BlockMatrix, Factor};
#[cfg(target_arch = "x86_64")]
use super::lanes::Avx2;
use super::lanes::{LANES, Lanes, Portable};

use structure::GROUP;
pub(crate) use structure::Structure;

/// Largest number of shared unknowns.
pub(crate) const BORDER: usize = 8;
/// Points per task where partial sums are kept: fixed, so that sums do not depend on the number of threads.
pub(crate) const CHUNK: usize = 256;

/// `Z` of an observation: one row of the array per point coordinate, padded with zeros.
pub(crate) type Block<const P: usize> = [[f64; P]; 3];

/// What the observations of one camera add to the normal equations.
pub(crate) struct CameraTerms<const D: usize, const P: usize> {
    /// `J_c^T J_c`
    pub(crate) u: [[f64; P]; D],
    /// `J_c^T J_border`
    pub(crate) u_border: [[f64; BORDER]; D],
    /// `J_border^T J_border`
    pub(crate) border: [[f64; BORDER]; BORDER],
    /// `J_c^T r`
    pub(crate) gradient: [f64; D],
    /// `J_border^T r`
    pub(crate) border_gradient: [f64; BORDER],
    /// Another camera that its observations depend on, further down and with a point in common, and `J_c^T J` of the two.
    pub(crate) beside: Option<(usize, [[f64; P]; D])>,
}

impl<const D: usize, const P: usize> CameraTerms<D, P> {
    pub(crate) fn zero() -> Self {
        Self {
            u: [[0.0; P]; D],
            u_border: [[0.0; BORDER]; D],
            border: [[0.0; BORDER]; BORDER],
            gradient: [0.0; D],
            border_gradient: [0.0; BORDER],
            beside: None,
        }
    }
}

/// What the points add: factors of the eliminated blocks.
pub(crate) struct PointTerms<const P: usize> {
    /// `Z` by observation.
    pub(crate) z: Vec<Block<P>>,
    /// `Z` of the border, by point; empty without a border.
    pub(crate) z_border: Vec<Block<BORDER>>,
    /// `L^-1 J_p^T r` by point.
    pub(crate) y: Vec<[f64; 3]>,
    /// Lower triangle of `L` by point: 00, 10, 11, 20, 21, 22.
    pub(crate) factor: Vec<[f64; 6]>,
}

impl<const P: usize> PointTerms<P> {
    pub(crate) fn new(structure: &Structure, border: usize) -> Self {
        let points = structure.points();
        Self {
            z: vec![[[0.0; P]; 3]; structure.camera.len()],
            z_border: vec![[[0.0; BORDER]; 3]; if border > 0 { points } else { 0 }],
            y: vec![[0.0; 3]; points],
            factor: vec![[0.0; 6]; points],
        }
    }
}

/// `S x = rhs`, over `D` unknowns per camera and then the border.
pub(crate) struct Reduced {
    pub(crate) matrix: BlockMatrix,
    /// Right-hand side.
    pub(crate) rhs: Vec<f64>,
}

impl Reduced {
    /// Number of unknowns.
    pub(crate) fn size(&self) -> usize {
        self.matrix.size()
    }

    /// The solution by Cholesky; `None` if the matrix is not positive definite.
    pub(crate) fn solve(&self) -> Option<Vec<f64>> {
        solve_by(&self.matrix.factor()?, self.rhs.clone())
    }
}

/// The solution for one right-hand side; `None` if it is not finite.
pub(crate) fn solve_by(factor: &Factor, rhs: Vec<f64>) -> Option<Vec<f64>> {
    let mut x = rhs;
    factor.solve_in_place(&mut x, 1)?;
    Some(x)
}

/// The rows of the cameras of a group, as they lie in the arrays of [`Reduced`].
struct GroupRows<'a> {
    blocks: &'a mut [f64],
    border: &'a mut [f64],
    rhs: &'a mut [f64],
}

/// Builds the reduced camera system with `border` shared unknowns. `terms` gives what camera `c` adds; damping belongs
/// into it already.
pub(crate) fn reduce<const D: usize, const P: usize>(
    structure: &Structure,
    points: &PointTerms<P>,
    border: usize,
    terms: impl Fn(usize) -> CameraTerms<D, P> + Sync,
) -> Reduced {
    let cameras = structure.cameras();
    let pattern = &structure.pattern;
    let mut matrix = BlockMatrix::zeros(Arc::clone(pattern), border);
    let mut rhs = vec![0.0; matrix.size()];
    let (camera_rhs, border_rhs) = rhs.split_at_mut(cameras * D);
    let mut groups = Vec::with_capacity(cameras.div_ceil(GROUP));
    let (mut blocks, mut border_rows) = (matrix.blocks.as_mut_slice(), matrix.border_rows.as_mut_slice());
    for (g, rhs) in camera_rhs.chunks_mut(GROUP * D).enumerate() {
        let last = cameras.min((g + 1) * GROUP);
        let count = pattern.of_row(last - 1).end - pattern.of_row(g * GROUP).start;
        let (own_blocks, rest) = blocks.split_at_mut(count * D * D);
        blocks = rest;
        let (own_border, rest) = border_rows.split_at_mut(rhs.len() * border);
        border_rows = rest;
        groups.push(GroupRows { blocks: own_blocks, border: own_border, rhs });
    }
    // Where the block of a camera is in each row of the group: only those that are read are ever set.
    let places = || vec![[0u32; GROUP]; cameras];
    let shared: Vec<_> = groups
        .into_par_iter()
        .enumerate()
        .map_init(places, |places, (g, rows)| {
            let first = g * GROUP;
            let mut shared = Vec::with_capacity(GROUP);
            let mut sums: Vec<RowSums<D, P>> = (first..cameras.min(first + GROUP))
                .map(|c| {
                    let own = terms(c);
                    let columns = pattern.columns(c);
                    columns.iter().zip(0..).for_each(|(&j, at)| places[j as usize][c - first] = at);
                    let mut row = vec![[[0.0; P]; D]; columns.len()];
                    row[0] = own.u; // the diagonal comes first
                    if let Some((other, block)) = own.beside
                        && let Ok(at) = columns.binary_search(&(other as u32))
                    {
                        row[at] = block;
                    }
                    shared.push((own.border, own.border_gradient));
                    let mut gradient = [0.0; P];
                    gradient[..D].copy_from_slice(&own.gradient);
                    RowSums { row, border: own.u_border, gradient }
                })
                .collect();
            accumulate_rows(structure, points, border, g, places, &mut sums);
            let GroupRows { mut blocks, border: border_rows, rhs } = rows;
            for (k, sums) in sums.iter().enumerate() {
                let (own, rest) = std::mem::take(&mut blocks).split_at_mut(sums.row.len() * D * D);
                blocks = rest;
                for (out, block) in own.chunks_exact_mut(D * D).zip(&sums.row) {
                    out.chunks_exact_mut(D)
                        .zip(block)
                        .for_each(|(out, line)| out.copy_from_slice(&line[..D]));
                }
                for a in 0..D {
                    border_rows[(k * D + a) * border..][..border].copy_from_slice(&sums.border[a][..border]);
                    rhs[k * D + a] = -sums.gradient[a];
                }
            }
            shared
        })
        .flatten_iter()
        .collect();
    if border > 0 {
        let mut block = [[0.0; BORDER]; BORDER];
        let mut gradient = [0.0; BORDER];
        for (own, own_gradient) in &shared {
            for a in 0..border {
                gradient[a] += own_gradient[a];
                for b in 0..border {
                    block[a][b] += own[a][b];
                }
            }
        }
        for (own, own_gradient) in border_of_points(points, border) {
            for a in 0..border {
                gradient[a] -= own_gradient[a];
                for b in 0..border {
                    block[a][b] -= own[a][b];
                }
            }
        }
        for (a, line) in matrix.corner.chunks_exact_mut(border).enumerate() {
            line.copy_from_slice(&block[a][..border]);
            border_rhs[a] = -gradient[a];
        }
    }
    Reduced { matrix, rhs }
}

type BorderSums = ([[f64; BORDER]; BORDER], [f64; BORDER]);

/// `Z_b Z_b^T` and `Z_b y`, summed over fixed chunks of points.
fn border_of_points<const P: usize>(points: &PointTerms<P>, border: usize) -> Vec<BorderSums> {
    points
        .z_border
        .par_chunks(CHUNK)
        .zip(points.y.par_chunks(CHUNK))
        .map(|(blocks, ys)| {
            let mut sum = ([[0.0; BORDER]; BORDER], [0.0; BORDER]);
            for (z, y) in blocks.iter().zip(ys) {
                for a in 0..border {
                    sum.1[a] += z[0][a] * y[0] + z[1][a] * y[1] + z[2][a] * y[2];
                    for b in 0..border {
                        sum.0[a][b] += z[0][a] * z[0][b] + z[1][a] * z[1][b] + z[2][a] * z[2][b];
                    }
                }
            }
            sum
        })
        .collect()
}

/// The change of the points that belongs to the change `x` of cameras and border: `-L^-T (y + Z^T x)`.
pub(crate) fn back_substitute<const D: usize, const P: usize>(
    structure: &Structure,
    points: &PointTerms<P>,
    x: &[f64],
) -> Vec<[f64; 3]> {
    let shared = &x[structure.cameras() * D..];
    (0..structure.points())
        .into_par_iter()
        .with_min_len(CHUNK)
        .map(|p| {
            let mut s = points.y[p];
            if let Some(z) = points.z_border.get(p) {
                for k in 0..3 {
                    s[k] += shared.iter().zip(&z[k]).map(|(x, z)| x * z).sum::<f64>();
                }
            }
            for o in structure.of_point(p) {
                let c = structure.camera[o] as usize;
                let step = &x[c * D..(c + 1) * D];
                for k in 0..3 {
                    s[k] += step.iter().zip(&points.z[o][k]).map(|(x, z)| x * z).sum::<f64>();
                }
            }
            unwhiten_vector(&s, &points.factor[p]).map(|x| -x)
        })
        .collect()
}

/// Cholesky factor of a symmetric 3x3 matrix given by its lower triangle (00, 10, 11, 20, 21, 22).
pub(crate) fn factor3(v: &[f64; 6]) -> Option<[f64; 6]> {
    let a = v[0].sqrt();
    let (b, d) = (v[1] / a, v[3] / a);
    let c = (v[2] - b * b).sqrt();
    let e = (v[4] - b * d) / c;
    let f = (v[5] - d * d - e * e).sqrt();
    let l = [a, b, c, d, e, f];
    (l.iter().all(|x| x.is_finite()) && a > 0.0 && c > 0.0 && f > 0.0).then_some(l)
}

/// `w -> w L^-T` for every row of `w` (stored by column: `w[k][row]`).
#[inline(always)]
pub(crate) fn whiten<const P: usize>(w: &mut Block<P>, l: &[f64; 6]) {
    let (i0, i1, i2) = (1.0 / l[0], 1.0 / l[2], 1.0 / l[5]);
    for r in 0..P {
        let a = w[0][r] * i0;
        let b = (w[1][r] - l[1] * a) * i1;
        w[2][r] = (w[2][r] - l[3] * a - l[4] * b) * i2;
        w[1][r] = b;
        w[0][r] = a;
    }
}

/// `L^-1 g`
pub(crate) fn whiten_vector(g: &[f64; 3], l: &[f64; 6]) -> [f64; 3] {
    let a = g[0] / l[0];
    let b = (g[1] - l[1] * a) / l[2];
    [a, b, (g[2] - l[3] * a - l[4] * b) / l[5]]
}

/// `L^-T y`
pub(crate) fn unwhiten_vector(y: &[f64; 3], l: &[f64; 6]) -> [f64; 3] {
    let c = y[2] / l[5];
    let b = (y[1] - l[4] * c) / l[2];
    [(y[0] - l[1] * b - l[3] * c) / l[0], b, c]
}

/// How many points before its turn the `Z` of a point is asked for: what a group sees lies all over an array that is larger than the
/// caches. Chosen by trials.
const AHEAD: usize = 3;

/// The rows of one camera.
struct RowSums<const D: usize, const P: usize> {
    /// The blocks of the row, as the pattern has them.
    row: Vec<[[f64; P]; D]>,
    border: [[f64; BORDER]; D],
    gradient: [f64; P],
}

/// Subtracts what the points seen by group `g` take from the rows of its cameras. `places` says where in each of these
/// rows the block of a camera is.
fn accumulate_rows<const D: usize, const P: usize>(
    structure: &Structure,
    points: &PointTerms<P>,
    border: usize,
    g: usize,
    places: &[[u32; GROUP]],
    sums: &mut [RowSums<D, P>],
) {
    #[cfg(target_arch = "x86_64")]
    if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") {
        // SAFETY: the processor has the features that the function is compiled for.
        return unsafe { accumulate_rows_avx2(structure, points, border, g, places, sums) };
    }
    accumulate_rows_in::<Portable, D, P>(structure, points, border, g, places, sums);
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
fn accumulate_rows_avx2<const D: usize, const P: usize>(
    structure: &Structure,
    points: &PointTerms<P>,
    border: usize,
    g: usize,
    places: &[[u32; GROUP]],
    sums: &mut [RowSums<D, P>],
) {
    accumulate_rows_in::<Avx2, D, P>(structure, points, border, g, places, sums);
}

#[inline(always)]
fn accumulate_rows_in<V: Lanes, const D: usize, const P: usize>(
    structure: &Structure,
    points: &PointTerms<P>,
    border: usize,
    g: usize,
    places: &[[u32; GROUP]],
    sums: &mut [RowSums<D, P>],
) {
    let first_camera = g * GROUP;
    let runs = structure.of_group(g);
    for (turn, run) in runs.iter().enumerate() {
        if let Some(soon) = runs.get(turn + AHEAD) {
            let point = structure.point[soon.first as usize] as usize;
            V::prefetch(&points.z[soon.first as usize..structure.of_point(point).end]);
        }
        let p = structure.point[run.first as usize] as usize;
        let last = structure.of_point(p).end;
        let [y0, y1, y2] = points.y[p];
        let y = [V::splat(y0), V::splat(y1), V::splat(y2)];
        for o in run.first as usize..(run.first + run.count) as usize {
            let own = &points.z[o];
            let k = structure.camera[o] as usize - first_camera;
            let sums = &mut sums[k];
            for (h, gradient) in sums.gradient.as_chunks_mut::<LANES>().0.iter_mut().enumerate() {
                let mut sum = V::load(gradient);
                for (z, y) in own.iter().zip(y) {
                    sum = V::load(&z.as_chunks().0[h]).taken_from(y, sum);
                }
                sum.store(gradient);
            }
            match border.div_ceil(LANES) {
                0 => {}
                1 => {
                    subtract_product::<V, 1, D, BORDER, P>(&mut sums.border, own, &points.z_border[p]);
                }
                _ => {
                    subtract_product::<V, 2, D, BORDER, P>(&mut sums.border, own, &points.z_border[p]);
                }
            }
            // Cameras are ordered within a point, so everything from here on is on or right of the diagonal.
            for (z, &j) in points.z[o..last].iter().zip(&structure.camera[o..last]) {
                let row = &mut sums.row[places[j as usize][k] as usize];
                match P / LANES {
                    1 => subtract_product::<V, 1, D, P, P>(row, own, z),
                    _ => subtract_product::<V, 2, D, P, P>(row, own, z),
                }
            }
        }
    }
}

/// `out -= a b^T`, of which the first `N` vectors of every row; zeros follow.
#[inline(always)]
fn subtract_product<V: Lanes, const N: usize, const D: usize, const P: usize, const Q: usize>(
    out: &mut [[f64; P]; D],
    a: &Block<Q>,
    b: &Block<P>,
) {
    let b: [[V; N]; 3] = [V::row(&b[0]), V::row(&b[1]), V::row(&b[2])];
    for (r, out) in out.iter_mut().enumerate() {
        let a = [V::splat(a[0][r]), V::splat(a[1][r]), V::splat(a[2][r])];
        for (h, out) in out.as_chunks_mut().0.iter_mut().take(N).enumerate() {
            let mut sum = V::load(out);
            for k in 0..3 {
                sum = b[k][h].taken_from(a[k], sum);
            }
            sum.store(out);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;
    use nalgebra::DMatrix;

    /// A random problem: 5 cameras of 6 unknowns, 40 points, a border of 3.
    struct Example {
        structure: Structure,
        jc: Vec<[[f64; 6]; 2]>,
        jp: Vec<[[f64; 3]; 2]>,
        jb: Vec<[[f64; 3]; 2]>,
        r: Vec<[f64; 2]>,
    }

    fn example() -> Example {
        let mut random = Random::new(7);
        let (mut start, mut camera) = (vec![0], Vec::new());
        for p in 0..40u32 {
            camera.extend((0..5).filter(|c| (p + c) % 3 != 0));
            start.push(camera.len() as u32);
        }
        let n = camera.len();
        let mut pair = || [random.normal(), random.normal()];
        let rows = |next: &mut dyn FnMut() -> [f64; 2], k: usize| {
            (0..n).map(|_| (0..k).map(|_| next()).collect::<Vec<_>>()).collect::<Vec<_>>()
        };
        let jc = rows(&mut pair, 6);
        let jp = rows(&mut pair, 3);
        let jb = rows(&mut pair, 3);
        fn fix<const K: usize>(v: Vec<Vec<[f64; 2]>>) -> Vec<[[f64; K]; 2]> {
            v.into_iter().map(|c| [0, 1].map(|i| std::array::from_fn(|k| c[k][i]))).collect()
        }
        let r = (0..n).map(|_| pair()).collect();
        Example { structure: Structure::new(5, 6, start, camera), jc: fix(jc), jp: fix(jp), jb: fix(jb), r }
    }

    /// Solution of the full normal equations, and by elimination.
    fn solve_both(e: &Example) -> (Vec<f64>, Vec<f64>) {
        let (cameras, points) = (5, e.structure.points());
        let unknowns = cameras * 6 + 3 + points * 3;
        let n = e.r.len();
        let mut j = DMatrix::zeros(2 * n, unknowns);
        let mut r = DMatrix::zeros(2 * n, 1);
        for o in 0..n {
            for i in 0..2 {
                r[(2 * o + i, 0)] = e.r[o][i];
                for k in 0..6 {
                    j[(2 * o + i, e.structure.camera[o] as usize * 6 + k)] = e.jc[o][i][k];
                }
                for k in 0..3 {
                    j[(2 * o + i, 30 + k)] = e.jb[o][i][k];
                    j[(2 * o + i, 33 + e.structure.point[o] as usize * 3 + k)] = e.jp[o][i][k];
                }
            }
        }
        let full = (j.transpose() * &j).lu().solve(&(-(j.transpose() * r))).unwrap();

        let mut terms = PointTerms::<8>::new(&e.structure, 3);
        for p in 0..points {
            let (mut v, mut g) = ([0.0; 6], [0.0; 3]);
            for o in e.structure.of_point(p) {
                for i in 0..2 {
                    let q = &e.jp[o][i];
                    let products =
                        [q[0] * q[0], q[1] * q[0], q[1] * q[1], q[2] * q[0], q[2] * q[1], q[2] * q[2]];
                    (0..6).for_each(|k| v[k] += products[k]);
                    for k in 0..3 {
                        g[k] += q[k] * e.r[o][i];
                        (0..6).for_each(|a| terms.z[o][k][a] += e.jc[o][i][a] * q[k]);
                        (0..3).for_each(|a| terms.z_border[p][k][a] += e.jb[o][i][a] * q[k]);
                    }
                }
            }
            let l = factor3(&v).unwrap();
            e.structure.of_point(p).for_each(|o| whiten(&mut terms.z[o], &l));
            whiten(&mut terms.z_border[p], &l);
            terms.y[p] = whiten_vector(&g, &l);
            terms.factor[p] = l;
        }
        let reduced = reduce::<6, 8>(&e.structure, &terms, 3, |c| {
            let mut sum = CameraTerms::zero();
            for o in e.structure.of_camera(c).iter().map(|&o| o as usize) {
                for i in 0..2 {
                    for a in 0..6 {
                        sum.gradient[a] += e.jc[o][i][a] * e.r[o][i];
                        (0..6).for_each(|b| sum.u[a][b] += e.jc[o][i][a] * e.jc[o][i][b]);
                        (0..3).for_each(|b| sum.u_border[a][b] += e.jc[o][i][a] * e.jb[o][i][b]);
                    }
                    for a in 0..3 {
                        sum.border_gradient[a] += e.jb[o][i][a] * e.r[o][i];
                        (0..3).for_each(|b| sum.border[a][b] += e.jb[o][i][a] * e.jb[o][i][b]);
                    }
                }
            }
            sum
        });
        let x = reduced.solve().unwrap();
        let steps = back_substitute::<6, 8>(&e.structure, &terms, &x);
        let solution = x.into_iter().chain(steps.into_iter().flatten()).collect();
        (full.iter().copied().collect(), solution)
    }

    #[test]
    fn elimination_gives_the_solution_of_the_full_equations() {
        let (full, reduced) = solve_both(&example());
        assert_eq!(full.len(), reduced.len());
        for (a, b) in full.iter().zip(&reduced) {
            assert!((a - b).abs() < 1e-9, "{a} and {b}");
        }
    }

    #[test]
    fn vector_and_portable_kernels_agree() {
        let mut random = Random::new(3);
        let mut block = || -> Block<8> { std::array::from_fn(|_| std::array::from_fn(|_| random.normal())) };
        let (a, b) = (block(), block());
        let (mut whole, mut first) = ([[1.0; 8]; 6], [[1.0; 8]; 6]);
        subtract_product::<Portable, 2, 6, 8, 8>(&mut whole, &a, &b);
        subtract_product::<Portable, 1, 6, 8, 8>(&mut first, &a, &b);
        for (whole, first) in whole.iter().zip(&first) {
            assert_eq!((&whole[..4], [1.0; 4]), (&first[..4], [first[4], first[5], first[6], first[7]]));
        }
        #[cfg(target_arch = "x86_64")]
        if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") {
            let mut with = [[1.0; 8]; 6];
            subtract_product::<Avx2, 2, 6, 8, 8>(&mut with, &a, &b);
            for (x, y) in with.as_flattened().iter().zip(whole.as_flattened()) {
                assert!((x - y).abs() < 1e-14);
            }
        }
    }

    #[test]
    fn the_result_does_not_depend_on_the_number_of_threads() {
        let run = |threads| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            pool.install(|| solve_both(&example()).1)
        };
        assert_eq!(run(1), run(4));
    }
}
