//! In which order to eliminate the nodes of a graph so that little fills up: always one with the fewest neighbours
//! (Tinney & Walker, Proc. IEEE 1967; George & Liu, "The evolution of the minimum degree ordering algorithm", SIAM Review
//! 1989). Degrees are exact and ties go to the lowest node, so there is one answer.

use super::graph::Graph;

/// An order of elimination and what it leads to.
#[derive(Debug)]
pub(super) struct Order {
    /// The nodes, first eliminated first.
    pub(super) nodes: Vec<u32>,
    /// For every node of the order the nodes that it still meets when it is eliminated, in the order of elimination.
    pub(super) later: Vec<Vec<u32>>,
}

/// The order for `graph`, or `None` once the factorisation is known to take more than `most` operations; each node has
/// `block` unknowns.
pub(super) fn minimum_degree(mut graph: Graph, block: usize, most: f64) -> Option<Order> {
    let count = graph.nodes();
    let mut degree: Vec<usize> = (0..count).map(|v| graph.degree(v)).collect();
    let mut open: Vec<u32> = (0..count as u32).collect();
    let mut order = Order { nodes: Vec::with_capacity(count), later: Vec::with_capacity(count) };
    let mut operations = 0.0;
    while let Some(at) = (0..open.len()).min_by_key(|&at| (degree[open[at] as usize], open[at])) {
        let node = open.swap_remove(at);
        let neighbours: Vec<u32> = graph.neighbours(node as usize).map(|v| v as u32).collect();
        operations += operations_of_column(neighbours.len(), block);
        if operations > most {
            return None;
        }
        graph.eliminate(node as usize, &neighbours);
        neighbours.iter().for_each(|&v| degree[v as usize] = graph.degree(v as usize));
        order.nodes.push(node);
        order.later.push(neighbours);
    }
    let mut rank = vec![0u32; count];
    order.nodes.iter().zip(0..).for_each(|(&node, r)| rank[node as usize] = r);
    order.later.iter_mut().for_each(|later| later.sort_unstable_by_key(|&v| rank[v as usize]));
    Some(order)
}

/// Multiplications of a column of blocks that has `below` blocks under its diagonal. Over all columns of a dense matrix of
/// n unknowns these add up to n^3 / 3, the square of the triangle counted whole.
fn operations_of_column(below: usize, block: usize) -> f64 {
    let (s, d) = (below as f64, block as f64);
    d.powi(3) * (s * s + s + 1.0 / 3.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `nodes` in a circle, each meets the `reach` next ones on both sides.
    fn ring(nodes: usize, reach: usize) -> Graph {
        let mut graph = Graph::new(nodes);
        (0..nodes).for_each(|a| (1..=reach).for_each(|k| graph.join(a, (a + k) % nodes)));
        graph
    }

    #[test]
    fn a_tree_does_not_fill_up() {
        let mut graph = Graph::new(7);
        [(0, 1), (0, 2), (1, 3), (1, 4), (2, 5), (2, 6)].iter().for_each(|&(a, b)| graph.join(a, b));
        let order = minimum_degree(graph, 1, f64::INFINITY).unwrap();
        assert_eq!(order.later.iter().map(Vec::len).sum::<usize>(), 6);
    }

    #[test]
    fn the_work_of_a_ring_grows_with_its_length_and_a_clique_costs_the_cube() {
        let work = |graph: Graph| {
            let order = minimum_degree(graph, 6, f64::INFINITY).unwrap();
            order.later.iter().map(|l| operations_of_column(l.len(), 6)).sum::<f64>()
        };
        let ratio = work(ring(2000, 12)) / work(ring(500, 12));
        assert!((3.5..4.8).contains(&ratio), "{ratio}");
        let dense = work(ring(101, 50));
        assert!((dense / (606f64.powi(3) / 3.0) - 1.0).abs() < 0.01);
        assert!(minimum_degree(ring(101, 50), 6, 0.5 * dense).is_none());
    }
}
