//! What a factorisation does, apart from the numbers: a forest of fronts.
//!
//! A front is a small dense matrix: the nodes that are eliminated in it and those that they still meet. What the
//! elimination does to the latter is handed to the front in which the first of them is eliminated (Duff & Reid, "The
//! multifrontal solution of indefinite sparse symmetric linear equations", ACM TOMS 1983; Liu, "The multifrontal method
//! for sparse matrix solution", SIAM Review 1992).

use super::minimum_degree::Order;

/// Share of a front's columns that may be zeros which a node brings by joining it: larger fronts are faster per
/// operation. Chosen by hand.
const RELAXATION: f64 = 0.2;

/// A block of the matrix and where it goes in its front.
#[derive(Debug)]
pub(super) struct Entry {
    /// Which block of the matrix.
    pub(super) block: u32,
    /// Place in the front of the node that is eliminated later.
    pub(super) row: u32,
    /// Place of the one that is eliminated here.
    pub(super) column: u32,
    /// Whether the block's rows are the column's unknowns.
    pub(super) is_transposed: bool,
}

/// A front whose remaining part is added to another one.
#[derive(Debug)]
pub(super) struct Child {
    pub(super) front: usize,
    /// Place in the other front of every node that remains.
    pub(super) places: Vec<u32>,
}

#[derive(Debug, Default)]
pub(super) struct Front {
    /// In the order of elimination: those eliminated here, then those that remain.
    pub(super) nodes: Vec<u32>,
    /// How many are eliminated here.
    pub(super) pivots: usize,
    pub(super) entries: Vec<Entry>,
    pub(super) children: Vec<Child>,
}

/// The fronts, and which of them may be worked on at once.
#[derive(Debug)]
pub(super) struct Elimination {
    pub(super) fronts: Vec<Front>,
    /// Numbers of fronts; those of a level need the ones of levels before it only.
    pub(super) levels: Vec<Vec<usize>>,
}

impl Elimination {
    /// For a matrix whose row `r` has the blocks `start[r]..start[r + 1]`, with these `columns`.
    pub(super) fn new(order: &Order, start: &[usize], columns: &[u32]) -> Self {
        let count = order.nodes.len();
        let mut rank = vec![0usize; count];
        order.nodes.iter().enumerate().for_each(|(r, &node)| rank[node as usize] = r);
        let (mut fronts, front_of) = fronts(order, &rank);
        // The blocks by the node that is eliminated first.
        let mut blocks: Vec<Vec<(u32, u32, bool)>> = vec![Vec::new(); count];
        for row in 0..count {
            for k in start[row]..start[row + 1] {
                let column = columns[k] as usize;
                if rank[row] <= rank[column] {
                    blocks[row].push((k as u32, column as u32, true));
                } else {
                    blocks[column].push((k as u32, row as u32, false));
                }
            }
        }
        let mut place = vec![0u32; count];
        let mut level = vec![0; fronts.len()];
        // By their last pivot: a front comes after all that are handed to it.
        let mut by_rank: Vec<usize> = (0..fronts.len()).collect();
        by_rank.sort_by_key(|&f| rank[fronts[f].nodes[fronts[f].pivots - 1] as usize]);
        let mut levels: Vec<Vec<usize>> = Vec::new();
        for &f in &by_rank {
            let Front { nodes, pivots, .. } = &fronts[f];
            nodes.iter().zip(0..).for_each(|(&node, at)| place[node as usize] = at);
            let entries = nodes[..*pivots].iter().zip(0..).flat_map(|(&node, column)| {
                let entry = move |&(block, row, is_transposed): &(u32, u32, bool)| {
                    (block, row, column, is_transposed)
                };
                blocks[node as usize].iter().map(entry)
            });
            let entries = entries
                .map(|(block, row, column, is_transposed)| Entry {
                    block,
                    row: place[row as usize],
                    column,
                    is_transposed,
                })
                .collect();
            let children: Vec<Child> = std::mem::take(&mut fronts[f].children)
                .into_iter()
                .map(|child| {
                    let Front { nodes, pivots, .. } = &fronts[child.front];
                    let places = nodes[*pivots..].iter().map(|&node| place[node as usize]).collect();
                    Child { places, ..child }
                })
                .collect();
            level[f] = children.iter().map(|c| level[c.front] + 1).max().unwrap_or(0);
            if levels.len() <= level[f] {
                levels.push(Vec::new());
            }
            levels[level[f]].push(f);
            fronts[f].entries = entries;
            fronts[f].children = children;
            // What remains is handed to the front that eliminates the first of it.
            if let Some(&next) = fronts[f].nodes.get(fronts[f].pivots) {
                let parent = front_of[next as usize];
                fronts[parent].children.push(Child { front: f, places: Vec::new() });
            }
        }
        Self { fronts, levels }
    }
}

/// The fronts, with their nodes only, and the front in which every node is eliminated.
fn fronts(order: &Order, rank: &[usize]) -> (Vec<Front>, Vec<usize>) {
    let mut fronts: Vec<Front> = Vec::new();
    let mut front_of = vec![usize::MAX; rank.len()];
    /// Blocks in the columns of a front, and how many of them are zero.
    #[derive(Default, Clone, Copy)]
    struct Size {
        blocks: usize,
        zeros: usize,
    }
    let mut sizes: Vec<Size> = Vec::new();
    // From the last one on, so that the front of what a node meets next is there.
    for (&node, later) in order.nodes.iter().zip(&order.later).rev() {
        let next = later.first().map(|&next| front_of[next as usize]);
        // All that it still meets is in that front. (Meeting v first, it meets nothing that v does not meet.)
        let joined = next.and_then(|f| {
            let length = fronts[f].nodes.len();
            let size =
                Size { blocks: sizes[f].blocks + length + 1, zeros: sizes[f].zeros + length - later.len() };
            (size.zeros as f64 <= RELAXATION * size.blocks as f64).then_some((f, size))
        });
        let f = match joined {
            Some((f, size)) => {
                sizes[f] = size;
                f
            }
            None => {
                sizes.push(Size { blocks: later.len() + 1, zeros: 0 });
                fronts.push(Front { nodes: later.iter().rev().copied().collect(), ..Front::default() });
                fronts.len() - 1
            }
        };
        // Last one first, until all are there.
        fronts[f].nodes.push(node);
        fronts[f].pivots += 1;
        front_of[node as usize] = f;
    }
    fronts.iter_mut().for_each(|front| front.nodes.reverse());
    (fronts, front_of)
}
