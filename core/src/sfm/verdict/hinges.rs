//! Whether one image alone holds two parts of a model together.
//!
//! Two parts that see the same points from one image only are like two rods on one hinge: each has a shape, and nothing says how
//! large one is beside the other. What does say it are points that both parts see. So an image is taken out, and the rest must
//! still hang together by points that two images share; of how many, decides.

use crate::sfm::map::Map;

/// So many points more are no stronger hold.
const ENOUGH: u32 = 1000;

/// The largest number of points for which the model hangs together by pairs of stations that share as many, whichever station is
/// taken out; at most [`ENOUGH`], and that where there are fewer than four stations.
pub(super) fn weakest_hinge(map: &Map) -> usize {
    let mut place = vec![usize::MAX; map.rig.stations()];
    let mut count = 0;
    for image in (0..map.poses.len()).filter(|&i| map.poses[i].is_some()) {
        let station = map.rig.station_of(image);
        if place[station] == usize::MAX {
            (place[station], count) = (count, count + 1);
        }
    }
    if count < 4 {
        return ENOUGH as usize;
    }
    let mut shared = vec![0u32; count * count];
    for point in &map.points {
        // Tracks are ordered by image, so their stations are in order, too.
        let mut seen: Vec<usize> = point
            .track
            .iter()
            .map(|o| place[map.rig.station_of(o.image as usize)])
            .filter(|&s| s < count)
            .collect();
        seen.dedup();
        for (k, &a) in seen.iter().enumerate() {
            seen[k + 1..].iter().for_each(|&b| shared[a * count + b] += 1);
        }
    }
    let holds = |least: u32| {
        let mut neighbours = vec![Vec::new(); count];
        for (pair, _) in shared.iter().enumerate().filter(|(_, points)| **points >= least) {
            let (a, b) = (pair / count, pair % count);
            neighbours[a].push(b);
            neighbours[b].push(a);
        }
        is_biconnected(&neighbours)
    };
    let (mut low, mut high) = (0, ENOUGH + 1);
    while high - low > 1 {
        let middle = low.midpoint(high);
        if holds(middle) { low = middle } else { high = middle }
    }
    low as usize
}

/// Whether a graph of at least two nodes is connected, and stays so whichever node is taken out (Hopcroft & Tarjan, "Efficient
/// algorithms for graph manipulation", CACM 1973). `neighbours` by node.
fn is_biconnected(neighbours: &[Vec<usize>]) -> bool {
    let count = neighbours.len();
    // When a node was found, counted from 1; 0 for not yet. And the first one that it and those behind it reach.
    let (mut found, mut reach) = (vec![0usize; count], vec![0usize; count]);
    (found[0], reach[0]) = (1, 1);
    let (mut clock, mut from_root) = (1, 0);
    // (node, where it was come from, how many neighbours were looked at)
    let mut path: Vec<(usize, usize, usize)> = vec![(0, 0, 0)];
    while let Some((node, parent, next)) = path.last_mut() {
        let (node, parent) = (*node, *parent);
        if let Some(&other) = neighbours[node].get(*next) {
            *next += 1;
            if found[other] == 0 {
                clock += 1;
                (found[other], reach[other]) = (clock, clock);
                from_root += usize::from(node == 0);
                path.push((other, node, 0));
            } else if other != parent {
                reach[node] = reach[node].min(found[other]);
            }
            continue;
        }
        path.pop();
        if node != 0 {
            if parent != 0 && reach[node] >= found[parent] {
                return false;
            }
            reach[parent] = reach[parent].min(reach[node]);
        }
    }
    // The root holds two parts together if both were found from it.
    clock == count && from_root < 2
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sfm::synthetic::Capture;

    fn graph(count: usize, links: &[(usize, usize)]) -> Vec<Vec<usize>> {
        let mut neighbours = vec![Vec::new(); count];
        for &(a, b) in links {
            neighbours[a].push(b);
            neighbours[b].push(a);
        }
        neighbours
    }

    #[test]
    fn a_node_that_holds_two_parts_together_is_found() {
        assert!(is_biconnected(&graph(4, &[(0, 1), (1, 2), (2, 3), (3, 0)])));
        assert!(!is_biconnected(&graph(4, &[(0, 1), (1, 2), (2, 3)])));
        // Two triangles that share a node: the first one, and another.
        assert!(!is_biconnected(&graph(5, &[(0, 1), (1, 2), (2, 0), (0, 3), (3, 4), (4, 0)])));
        assert!(!is_biconnected(&graph(5, &[(0, 1), (1, 2), (2, 0), (2, 3), (3, 4), (4, 2)])));
        assert!(is_biconnected(&graph(5, &[(0, 1), (1, 2), (2, 0), (2, 3), (3, 4), (4, 2), (4, 1)])));
        // In two pieces.
        assert!(!is_biconnected(&graph(6, &[(0, 1), (1, 2), (2, 0), (3, 4), (4, 5), (5, 3)])));
    }

    #[test]
    fn parts_that_one_image_joins_hang_by_the_points_that_both_see() {
        let capture = Capture::orbit(12, 3000, 0.0, 5);
        let map = capture.true_map_with_points();
        assert!(weakest_hinge(&map) > 100, "{}", weakest_hinge(&map));
        // Image 6 sees points with those before it and points with those after it, and few see all three.
        let mut hinged = map.clone();
        let mut both = 0;
        hinged.points.retain(|p| {
            let of = |side: &dyn Fn(u32) -> bool| p.track.iter().any(|o| side(o.image));
            let across = of(&|i| i < 6) && of(&|i| i > 6);
            both += usize::from(across);
            !across || both <= 7
        });
        assert!(weakest_hinge(&hinged) <= 7, "{}", weakest_hinge(&hinged));
    }
}
