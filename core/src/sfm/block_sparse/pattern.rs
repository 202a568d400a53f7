//! Which blocks of a symmetric matrix may be other than zero, and how it is to be factored.

use super::elimination::Elimination;
use super::graph::Graph;
use super::minimum_degree::minimum_degree;

/// A sparse factorisation has to take so many times fewer operations than a dense one, which takes less time for each.
/// Chosen by hand.
const LEAST_GAIN: f64 = 3.0;

/// The blocks of a symmetric matrix on and right of its diagonal.
#[derive(Debug)]
pub(crate) struct Pattern {
    /// Unknowns of a node.
    block: usize,
    /// The blocks of row `r` are `start[r]..start[r + 1]`.
    start: Vec<usize>,
    /// Column of every block: in a row increasing, the diagonal first.
    columns: Vec<u32>,
    /// How to factor it; `None` as a dense matrix.
    elimination: Option<Elimination>,
}

impl Pattern {
    /// A matrix with `block` unknowns for each node of `graph`, and a block wherever two nodes meet. It is factored as a
    /// dense one if that takes no more than `few` operations.
    pub(crate) fn new(graph: Graph, block: usize, few: f64) -> Self {
        let nodes = graph.nodes();
        let mut start = Vec::with_capacity(nodes + 1);
        let mut columns = Vec::new();
        start.push(0);
        for row in 0..nodes {
            columns.push(row as u32);
            columns.extend(graph.neighbours(row).filter(|&column| column > row).map(|column| column as u32));
            start.push(columns.len());
        }
        let dense = ((nodes * block) as f64).powi(3) / 3.0;
        let order = if dense > few { minimum_degree(graph, block, dense / LEAST_GAIN) } else { None };
        let elimination = order.map(|order| Elimination::new(&order, &start, &columns));
        Self { block, start, columns, elimination }
    }

    pub(crate) fn nodes(&self) -> usize {
        self.start.len() - 1
    }

    pub(crate) fn block(&self) -> usize {
        self.block
    }

    /// Number of blocks.
    pub(crate) fn blocks(&self) -> usize {
        self.columns.len()
    }

    /// The blocks of a row.
    pub(crate) fn of_row(&self, row: usize) -> std::ops::Range<usize> {
        self.start[row]..self.start[row + 1]
    }

    /// The columns of a row's blocks.
    pub(crate) fn columns(&self, row: usize) -> &[u32] {
        &self.columns[self.of_row(row)]
    }

    /// Whether it is factored as a sparse matrix.
    pub(crate) fn is_sparse(&self) -> bool {
        self.elimination.is_some()
    }

    pub(super) fn elimination(&self) -> Option<&Elimination> {
        self.elimination.as_ref()
    }
}
