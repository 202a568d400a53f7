//! A symmetric matrix of blocks with a dense border.

use std::sync::Arc;

use super::pattern::Pattern;

/// A symmetric matrix over the unknowns of the nodes and a border of shared ones. Only its upper triangle counts.
#[derive(Debug, Clone)]
pub(crate) struct BlockMatrix {
    pub(super) pattern: Arc<Pattern>,
    /// Number of shared unknowns.
    pub(super) border: usize,
    /// The blocks of the pattern, each row after row.
    pub(crate) blocks: Vec<f64>,
    /// What the nodes share with the border: a row of `border` values for each of their unknowns.
    pub(crate) border_rows: Vec<f64>,
    /// The border with itself, row after row.
    pub(crate) corner: Vec<f64>,
}

impl BlockMatrix {
    pub(crate) fn zeros(pattern: Arc<Pattern>, border: usize) -> Self {
        let (block, nodes) = (pattern.block(), pattern.nodes());
        Self {
            border,
            blocks: vec![0.0; pattern.blocks() * block * block],
            border_rows: vec![0.0; nodes * block * border],
            corner: vec![0.0; border * border],
            pattern,
        }
    }

    /// Number of unknowns of the nodes.
    pub(crate) fn inner(&self) -> usize {
        self.pattern.nodes() * self.pattern.block()
    }

    /// Number of unknowns.
    pub(crate) fn size(&self) -> usize {
        self.inner() + self.border
    }

    /// The same with `more` unknowns at the end of the border, which meet nothing yet.
    pub(crate) fn with_border(&self, more: usize) -> Self {
        let mut wide = Self::zeros(Arc::clone(&self.pattern), self.border + more);
        wide.blocks.copy_from_slice(&self.blocks);
        let copy = |from: &[f64], to: &mut [f64]| {
            if self.border > 0 {
                let rows = to.chunks_exact_mut(self.border + more).zip(from.chunks_exact(self.border));
                rows.for_each(|(to, from)| to[..self.border].copy_from_slice(from));
            }
        };
        copy(&self.border_rows, &mut wide.border_rows);
        copy(&self.corner, &mut wide.corner);
        wide
    }

    /// The entry of the unknowns `a <= b`; nodes that do not meet have none.
    pub(crate) fn entry(&mut self, a: usize, b: usize) -> Option<&mut f64> {
        let (block, inner) = (self.pattern.block(), self.inner());
        if a >= inner {
            return self.corner.get_mut((a - inner) * self.border + b - inner);
        }
        if b >= inner {
            return self.border_rows.get_mut(a * self.border + b - inner);
        }
        let (row, column) = (a / block, (b / block) as u32);
        let at = self.pattern.columns(row).binary_search(&column).ok()?;
        let first = (self.pattern.of_row(row).start + at) * block * block;
        self.blocks.get_mut(first + a % block * block + b % block)
    }

    /// All of it as a dense matrix: the lower triangle, column after column.
    pub(super) fn dense(&self) -> Vec<f64> {
        let (block, inner, size) = (self.pattern.block(), self.inner(), self.size());
        // Row-major upper rows are column-major lower columns.
        let mut matrix = vec![0.0; size * size];
        for row in 0..self.pattern.nodes() {
            for (k, &column) in self.pattern.of_row(row).zip(self.pattern.columns(row)) {
                let values = &self.blocks[k * block * block..][..block * block];
                for (a, values) in values.chunks_exact(block).enumerate() {
                    let first = (row * block + a) * size + column as usize * block;
                    matrix[first..first + block].copy_from_slice(values);
                }
            }
        }
        if self.border > 0 {
            let rows =
                self.border_rows.chunks_exact(self.border).chain(self.corner.chunks_exact(self.border));
            for (a, values) in rows.enumerate() {
                matrix[a * size + inner..(a + 1) * size].copy_from_slice(values);
            }
        }
        matrix
    }
}
