//! Cholesky factors, and solving by them.

use std::sync::Arc;

use faer::dyn_stack::{MemBuffer, MemStack};
use faer::linalg::cholesky::llt::factor::{cholesky_in_place, cholesky_in_place_scratch};
use faer::linalg::matmul::matmul;
use faer::linalg::matmul::triangular::{self, BlockStructure};
use faer::linalg::triangular_solve::{solve_lower_triangular_in_place, solve_upper_triangular_in_place};
use faer::prelude::{Reborrow, ReborrowMut};
use faer::{Accum, MatMut, MatRef, Par, Spec};
use rayon::prelude::*;

use super::elimination::{Elimination, Front};
use super::matrix::BlockMatrix;
use super::pattern::Pattern;

/// The Cholesky factor of a [`BlockMatrix`].
pub(crate) enum Factor {
    /// Column after column; what is above the diagonal says nothing.
    Dense(Vec<f64>),
    Sparse(Sparse),
}

impl BlockMatrix {
    /// Its Cholesky factor; `None` if it is not positive definite.
    pub(crate) fn factor(&self) -> Option<Factor> {
        Factor::new(self)
    }
}

impl Factor {
    fn new(matrix: &BlockMatrix) -> Option<Self> {
        match matrix.pattern.elimination() {
            Some(elimination) => Sparse::new(matrix, elimination).map(Self::Sparse),
            None => {
                let size = matrix.size();
                let mut dense = matrix.dense();
                factor_in_place(MatMut::from_column_major_slice_mut(&mut dense, size, size))?;
                Some(Self::Dense(dense))
            }
        }
    }

    /// Solves for right-hand sides, one after the other in `x`; `None` where a solution is not finite.
    pub(crate) fn solve_in_place(&self, x: &mut [f64], count: usize) -> Option<()> {
        let size = x.len() / count.max(1);
        match self {
            Self::Dense(factor) => {
                let factor = MatRef::from_column_major_slice(factor, size, size);
                let mut x = MatMut::from_column_major_slice_mut(x, size, count);
                solve_lower_triangular_in_place(factor, x.rb_mut(), Par::Seq);
                solve_upper_triangular_in_place(factor.transpose(), x, Par::Seq);
            }
            Self::Sparse(factor) => factor.solve_in_place(x, size, count),
        }
        x.iter().all(|v| v.is_finite()).then_some(())
    }
}

/// A factor front by front.
pub(crate) struct Sparse {
    pattern: Arc<Pattern>,
    border: usize,
    /// By front: the columns of its pivots, column after column; rows are its nodes and then the border.
    panels: Vec<Vec<f64>>,
    /// The border's own factor, column after column.
    corner: Vec<f64>,
}

/// What the pivots of a front leave to the rest of it: a square matrix, its lower triangle column after column.
type Rest = Vec<f64>;

/// A front after its pivots were eliminated.
struct Eliminated {
    panel: Vec<f64>,
    rest: Rest,
}

impl Sparse {
    fn new(matrix: &BlockMatrix, elimination: &Elimination) -> Option<Self> {
        let border = matrix.border;
        let mut panels: Vec<Vec<f64>> = vec![Vec::new(); elimination.fronts.len()];
        let mut rests: Vec<Option<Rest>> = vec![None; elimination.fronts.len()];
        for level in &elimination.levels {
            let tasks: Vec<(usize, Vec<Option<Rest>>)> = level
                .iter()
                .map(|&f| {
                    let children = &elimination.fronts[f].children;
                    (f, children.iter().map(|child| rests[child.front].take()).collect())
                })
                .collect();
            let done: Vec<(usize, Option<Eliminated>)> = tasks
                .into_par_iter()
                .map(|(f, children)| (f, eliminate(matrix, &elimination.fronts[f], &children)))
                .collect();
            for (f, result) in done {
                let Eliminated { panel, rest } = result?;
                panels[f] = panel;
                rests[f] = Some(rest);
            }
        }
        // What is left are the fronts that nothing remained of but the border.
        let mut corner = vec![0.0; border * border];
        for (a, row) in matrix.corner.chunks_exact(border.max(1)).enumerate() {
            (a..border).for_each(|b| corner[a * border + b] = row[b]);
        }
        for rest in rests.iter().flatten() {
            corner.iter_mut().zip(rest).for_each(|(sum, own)| *sum += own);
        }
        if border > 0 {
            factor_in_place(MatMut::from_column_major_slice_mut(&mut corner, border, border))?;
        }
        Some(Self { pattern: Arc::clone(&matrix.pattern), border, panels, corner })
    }

    fn solve_in_place(&self, x: &mut [f64], size: usize, count: usize) {
        // Only a pattern with an elimination leads here.
        let Some(elimination) = self.pattern.elimination() else { return };
        let (block, inner) = (self.pattern.block(), size - self.border);
        let order =
            || elimination.levels.iter().flatten().map(|&f| (&elimination.fronts[f], &self.panels[f]));
        let rows = |front: &Front, from: usize, to: usize| -> Vec<usize> {
            let nodes = front.nodes[from..to].iter();
            nodes.flat_map(|&node| node as usize * block..(node as usize + 1) * block).collect()
        };
        let gather = |x: &[f64], rows: &[usize]| -> Vec<f64> {
            x.chunks_exact(size).flat_map(|x| rows.iter().map(|&row| x[row])).collect()
        };
        for (front, panel) in order() {
            let pivots = rows(front, 0, front.pivots);
            let mut rest = rows(front, front.pivots, front.nodes.len());
            rest.extend(inner..size);
            let (p, r) = (pivots.len(), rest.len());
            let (top, bottom) = MatRef::from_column_major_slice(panel, p + r, p).split_at_row(p);
            let mut own = gather(x, &pivots);
            let mut own_mat = MatMut::from_column_major_slice_mut(&mut own, p, count);
            solve_lower_triangular_in_place(top, own_mat.rb_mut(), Par::Seq);
            let mut moved = vec![0.0; r * count];
            let moved_mat = MatMut::from_column_major_slice_mut(&mut moved, r, count);
            matmul(moved_mat, Accum::Replace, bottom, own_mat.rb(), 1.0, Par::Seq);
            for (k, x) in x.chunks_exact_mut(size).enumerate() {
                pivots.iter().zip(&own[k * p..]).for_each(|(&row, v)| x[row] = *v);
                rest.iter().zip(&moved[k * r..]).for_each(|(&row, v)| x[row] -= v);
            }
        }
        if self.border > 0 {
            let corner = MatRef::from_column_major_slice(&self.corner, self.border, self.border);
            for x in x.chunks_exact_mut(size) {
                let mut own = MatMut::from_column_major_slice_mut(&mut x[inner..], self.border, 1);
                solve_lower_triangular_in_place(corner, own.rb_mut(), Par::Seq);
                solve_upper_triangular_in_place(corner.transpose(), own, Par::Seq);
            }
        }
        for (front, panel) in order().rev() {
            let pivots = rows(front, 0, front.pivots);
            let mut rest = rows(front, front.pivots, front.nodes.len());
            rest.extend(inner..size);
            let (p, r) = (pivots.len(), rest.len());
            let (top, bottom) = MatRef::from_column_major_slice(panel, p + r, p).split_at_row(p);
            let mut own = gather(x, &pivots);
            let known = gather(x, &rest);
            let mut own_mat = MatMut::from_column_major_slice_mut(&mut own, p, count);
            let known = MatRef::from_column_major_slice(&known, r, count);
            matmul(own_mat.rb_mut(), Accum::Add, bottom.transpose(), known, -1.0, Par::Seq);
            solve_upper_triangular_in_place(top.transpose(), own_mat, Par::Seq);
            for (k, x) in x.chunks_exact_mut(size).enumerate() {
                pivots.iter().zip(&own[k * p..]).for_each(|(&row, v)| x[row] = *v);
            }
        }
    }
}

/// The Cholesky factor in the lower triangle; the upper one is not touched.
fn factor_in_place(mut matrix: MatMut<'_, f64>) -> Option<()> {
    let params: Spec<_, f64> = Spec::default();
    let mut memory = MemBuffer::new(cholesky_in_place_scratch::<f64>(matrix.nrows(), Par::Seq, params));
    let stack = MemStack::new(&mut memory);
    cholesky_in_place(matrix.rb_mut(), Default::default(), Par::Seq, stack, params).ok()?;
    Some(())
}

/// Assembles a front from the matrix and its children, and eliminates its pivots.
fn eliminate(matrix: &BlockMatrix, front: &Front, children: &[Option<Rest>]) -> Option<Eliminated> {
    let (block, border) = (matrix.pattern.block(), matrix.border);
    let pivots = front.pivots * block;
    let inner = front.nodes.len() * block;
    let size = inner + border;
    let rest_size = size - pivots;
    let mut panel = vec![0.0; size * pivots];
    let mut rest = vec![0.0; rest_size * rest_size];
    for entry in &front.entries {
        let values = &matrix.blocks[entry.block as usize * block * block..][..block * block];
        let (row, column) = (entry.row as usize * block, entry.column as usize * block);
        for a in 0..block {
            for b in 0..block {
                let value = if entry.is_transposed { values[a * block + b] } else { values[b * block + a] };
                panel[(column + a) * size + row + b] = value;
            }
        }
    }
    for (k, &node) in front.nodes[..front.pivots].iter().enumerate() {
        for a in 0..block {
            let from = &matrix.border_rows[(node as usize * block + a) * border..][..border];
            panel[(k * block + a) * size + inner..][..border].copy_from_slice(from);
        }
    }
    for (child, own) in front.children.iter().zip(children) {
        // Every child comes before: its rest was there.
        let own = own.as_ref()?;
        let own_size = child.places.len() * block + border;
        let places = &child.places;
        let rows = places.iter().flat_map(|&place| (0..block).map(move |a| place as usize * block + a));
        let rows: Vec<usize> = rows.chain(inner..size).collect();
        for (column, &to) in rows.iter().enumerate() {
            let from = &own[column * own_size + column..(column + 1) * own_size];
            let (into, shift) = match to < pivots {
                true => (&mut panel[to * size..(to + 1) * size], 0),
                false => (&mut rest[(to - pivots) * rest_size..(to - pivots + 1) * rest_size], pivots),
            };
            rows[column..].iter().zip(from).for_each(|(&row, value)| into[row - shift] += value);
        }
    }
    let whole = MatMut::from_column_major_slice_mut(&mut panel, size, pivots);
    let (mut top, mut bottom) = whole.split_at_row_mut(pivots);
    factor_in_place(top.rb_mut())?;
    solve_lower_triangular_in_place(top.rb(), bottom.rb_mut().transpose_mut(), Par::Seq);
    triangular::matmul(
        MatMut::from_column_major_slice_mut(&mut rest, rest_size, rest_size),
        BlockStructure::TriangularLower,
        Accum::Add,
        bottom.rb(),
        BlockStructure::Rectangular,
        bottom.rb().transpose(),
        BlockStructure::Rectangular,
        -1.0,
        Par::Seq,
    );
    Some(Eliminated { panel, rest })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;
    use crate::sfm::block_sparse::Graph;

    /// A positive definite matrix over `nodes` on a line, where each meets the `reach` next ones, the ends meet, and some
    /// meet others anywhere; all meet the border.
    fn example(nodes: usize, reach: usize, border: usize, few: f64) -> BlockMatrix {
        let block = 3;
        let mut random = Random::new(5);
        let mut graph = Graph::new(nodes);
        for a in 0..nodes - 3 {
            (a + 1..nodes.min(a + 1 + reach)).for_each(|b| graph.join(a, b));
        }
        graph.join(0, nodes - 4);
        (0..nodes / 20).for_each(|_| {
            let (a, b) = (random.below(nodes / 2), nodes / 2 + random.below(nodes / 2));
            graph.join(a, b);
        });
        let mut matrix = BlockMatrix::zeros(Arc::new(Pattern::new(graph, block, few)), border);
        let size = matrix.size();
        let mut diagonal = vec![1e-3; size];
        for a in 0..size {
            for b in a + 1..size {
                let Some(entry) = matrix.entry(a, b) else { continue };
                *entry = random.normal();
                let value = entry.abs();
                diagonal[a] += value;
                diagonal[b] += value;
            }
        }
        diagonal.iter().enumerate().for_each(|(a, v)| *matrix.entry(a, a).unwrap() = *v);
        matrix
    }

    fn solution(matrix: &BlockMatrix, count: usize) -> Vec<f64> {
        let mut random = Random::new(8);
        let mut x: Vec<f64> = (0..matrix.size() * count).map(|_| random.normal()).collect();
        matrix.factor().unwrap().solve_in_place(&mut x, count).unwrap();
        x
    }

    #[test]
    fn the_sparse_solution_is_the_dense_one() {
        for (nodes, reach, border) in [(80, 1, 0), (80, 4, 5), (300, 7, 40)] {
            let (sparse, dense) =
                (example(nodes, reach, border, 0.0), example(nodes, reach, border, f64::INFINITY));
            assert!(matches!(sparse.factor(), Some(Factor::Sparse(_))));
            assert!(matches!(dense.factor(), Some(Factor::Dense(_))));
            let (a, b) = (solution(&sparse, 3), solution(&dense, 3));
            let largest = b.iter().fold(0.0f64, |m, v| m.max(v.abs()));
            let off = a.iter().zip(&b).fold(0.0f64, |m, (a, b)| m.max((a - b).abs()));
            assert!(off < 1e-9 * largest, "{nodes} {border}: {off} of {largest}");
        }
    }

    #[test]
    fn the_solution_does_not_depend_on_the_number_of_threads() {
        let matrix = example(400, 9, 6, 0.0);
        let run = |threads| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            pool.install(|| solution(&matrix, 2))
        };
        assert_eq!(run(1), run(3));
    }

    #[test]
    fn what_is_not_positive_definite_has_no_factor() {
        let mut matrix = example(80, 3, 4, 0.0);
        *matrix.entry(120, 120).unwrap() = -1.0;
        assert!(matrix.factor().is_none());
        let mut matrix = example(80, 3, 4, 0.0);
        let last = matrix.size() - 1;
        *matrix.entry(last, last).unwrap() = -1.0;
        assert!(matrix.factor().is_none());
    }

    #[test]
    fn what_fills_up_is_factored_as_a_dense_matrix() {
        assert!(matches!(example(60, 40, 0, 0.0).factor(), Some(Factor::Dense(_))));
    }
}
