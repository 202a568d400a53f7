//! Who meets whom: an undirected graph as rows of bits.

/// An undirected graph. A row of bits a node: at the sizes that occur (thousands) this is some megabytes, and joining the
/// neighbours of a node, which minimum degree does all the time, is a few hundred machine words.
#[derive(Debug, Clone)]
pub(crate) struct Graph {
    nodes: usize,
    /// Words per row.
    words: usize,
    bits: Vec<u64>,
}

impl Graph {
    /// Nodes without edges.
    pub(crate) fn new(nodes: usize) -> Self {
        let words = nodes.div_ceil(64);
        Self { nodes, words, bits: vec![0; nodes * words] }
    }

    pub(crate) fn nodes(&self) -> usize {
        self.nodes
    }

    /// Lets `a` and `b` meet.
    #[inline(always)]
    pub(crate) fn join(&mut self, a: usize, b: usize) {
        self.bits[a * self.words + b / 64] |= 1 << (b % 64);
        self.bits[b * self.words + a / 64] |= 1 << (a % 64);
    }

    /// The neighbours of `node` in increasing order.
    pub(crate) fn neighbours(&self, node: usize) -> impl Iterator<Item = usize> + '_ {
        let words = self.row(node).iter().enumerate();
        words.flat_map(|(w, &word)| Ones(word).map(move |bit| 64 * w + bit))
    }

    pub(super) fn degree(&self, node: usize) -> usize {
        self.row(node).iter().map(|w| w.count_ones() as usize).sum()
    }

    /// Takes `node` out and joins its `neighbours` with each other: what eliminating its unknowns does to the others.
    pub(super) fn eliminate(&mut self, node: usize, neighbours: &[u32]) {
        let clique = self.row(node).to_vec();
        for &neighbour in neighbours {
            let neighbour = neighbour as usize;
            let row = &mut self.bits[neighbour * self.words..][..self.words];
            row.iter_mut().zip(&clique).for_each(|(own, more)| *own |= more);
            row[neighbour / 64] &= !(1 << (neighbour % 64));
            row[node / 64] &= !(1 << (node % 64));
        }
    }

    fn row(&self, node: usize) -> &[u64] {
        &self.bits[node * self.words..][..self.words]
    }
}

/// The positions of the bits that are set, lowest first.
struct Ones(u64);

impl Iterator for Ones {
    type Item = usize;

    fn next(&mut self) -> Option<usize> {
        let bit = self.0.trailing_zeros();
        self.0 &= self.0.wrapping_sub(1);
        (bit < 64).then_some(bit as usize)
    }
}
