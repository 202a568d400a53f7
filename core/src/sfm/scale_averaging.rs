//! A first guess of all camera centres from pairwise geometry, without a random start.
//!
//! A pair of images knows its baseline's direction but not its length. Two pairs that share an image and see the same
//! keypoint in it measure the same depth in two units, which gives the ratio of their baselines. All ratios together
//! give every baseline's length, then the centres follow from `c_j - c_i = length * direction`. Both systems are linear
//! and solved robustly (L1 by iterative reweighting), so there is no local minimum to fall into and collinear motion is
//! no special case. (The idea of Cui & Tan, "Global Structure-from-Motion by Similarity Averaging", ICCV 2015.)

use std::collections::BTreeMap;

use nalgebra::{Matrix3, UnitQuaternion, Vector3};
use rayon::prelude::*;

use super::geometry::angle_between;
use super::laplacian::{Coarse, solve_laplacian};
use super::rig::Rig;
use super::two_view::TwoViewGeometry;
use crate::statistics::median;

/// A depth counts if its two rays meet at this angle at least (radians).
const MIN_ANGLE: f64 = 0.015;
/// Keypoints that two pairs must share to compare their baselines.
const MIN_SHARED: usize = 5;
/// Rays further than this from their common epipolar plane (radians) are not used.
const MAX_EPIPOLAR: f64 = 0.01;
/// Rounds of iteratively reweighted least squares. Chosen by hand.
const REWEIGHTINGS: usize = 20;

/// A pair with its baseline in world axes and depths in units of the baseline.
struct Baseline {
    first: usize,
    second: usize,
    /// Unit vector from the first centre to the second, world axes.
    direction: Vector3<f64>,
    /// (keypoint, depth along its ray over baseline), ordered by keypoint, in the first and in the second image.
    depths: [Vec<(u32, f64)>; 2],
    /// Median angle between the rays of the inliers.
    parallax: f64,
}

/// Camera centres of all images that have a rotation and are connected by pairs with parallax; the scale is arbitrary
/// (the median baseline of neighbouring pairs is 1). `rays` are the unit rays of the keypoints in camera coordinates.
pub(crate) fn initial_centres(
    rig: &Rig,
    rotations: &[Option<UnitQuaternion<f64>>],
    pairs: &[TwoViewGeometry],
    rays: &[Vec<Vector3<f64>>],
) -> Vec<Option<Vector3<f64>>> {
    let mut edges: Vec<Baseline> = pairs.par_iter().filter_map(|p| baseline(p, rotations, rays)).collect();
    // The unit of the depths of a pair without parallax says nothing: such pairs only help where there is nothing else.
    let weak = edges.iter().filter(|e| e.depths[0].len() < 2 * MIN_SHARED).count();
    if weak < edges.len() {
        edges.retain(|e| e.depths[0].len() >= 2 * MIN_SHARED);
    }
    let mut ratios = baseline_ratios(&edges, rotations.len());
    ratios.extend(same_steps(rig, &edges));
    let image_of: Vec<usize> = edges.iter().map(|e| e.first).collect();
    let (component, log_lengths) = solve_lengths(&image_of, rotations.len(), &ratios);
    // Lengths are comparable within a component only: the largest one is used.
    let mut sizes = vec![0usize; edges.len()];
    component.iter().for_each(|&c| sizes[c] += 1);
    let Some(largest) = (0..sizes.len()).max_by_key(|&c| (sizes[c], std::cmp::Reverse(c))) else {
        return vec![None; rotations.len()];
    };
    let moves: Vec<Difference> = (0..edges.len())
        .filter(|&e| component[e] == largest)
        .map(|e| {
            let length = log_lengths[e].exp();
            let edge = &edges[e];
            let count = edge.depths[0].len() as f64;
            // A direction's error turns into a position error in proportion to the length.
            let weight = count.min(200.0).sqrt() * edge.parallax.min(0.2) / length;
            let (from, to) = (rig.station_of(edge.first), rig.station_of(edge.second));
            Difference { from, to, value: length * edge.direction, weight }
        })
        .collect();
    rig.by_image(&solve_positions(rig.stations(), &moves))
}

fn baseline(
    pair: &TwoViewGeometry,
    rotations: &[Option<UnitQuaternion<f64>>],
    rays: &[Vec<Vector3<f64>>],
) -> Option<Baseline> {
    let (i, j) = (pair.first as usize, pair.second as usize);
    let to_world = [rotations[i]?.inverse(), rotations[j]?.inverse()];
    let relative = pair.second_from_first?;
    let turned: Vec<_> = pair
        .inliers
        .iter()
        .map(|m| (to_world[0] * rays[i][m[0] as usize], to_world[1] * rays[j][m[1] as usize], *m))
        .collect();
    let start = -(to_world[1] * relative.translation).try_normalize(1e-12)?;
    let direction = refine_direction(&turned, start);
    let mut depths = [Vec::new(), Vec::new()];
    let mut angles = Vec::with_capacity(turned.len());
    for (a, b, m) in &turned {
        let angle = angle_between(a, b);
        angles.push(angle);
        let normal = a.cross(b);
        if angle < MIN_ANGLE || normal.dot(&direction).abs() > MAX_EPIPOLAR * normal.norm() {
            continue;
        }
        // Depths along the rays: ta a - tb b = direction in the least-squares sense.
        let c = a.dot(b);
        let (wa, wb) = (direction.dot(a), direction.dot(b));
        let ta = (wa - c * wb) / (1.0 - c * c);
        let tb = (c * wa - wb) / (1.0 - c * c);
        if ta > 0.0 && tb > 0.0 {
            depths[0].push((m[0], ta));
            depths[1].push((m[1], tb));
        }
    }
    depths.iter_mut().for_each(|d| d.sort_unstable_by_key(|&(k, _)| k));
    Some(Baseline { first: i, second: j, direction, depths, parallax: median(&mut angles)? })
}

/// The baseline's direction when the rotations are known: it lies in the plane of every pair of rays. Smallest
/// eigenvector, reweighted towards the pairs of rays that agree.
fn refine_direction(rays: &[(Vector3<f64>, Vector3<f64>, [u32; 2])], start: Vector3<f64>) -> Vector3<f64> {
    let mut direction = start;
    for _ in 0..5 {
        let mut m = Matrix3::zeros();
        for (a, b, _) in rays {
            let n = a.cross(b);
            // |n . t| over the distance of the rays from parallel is the angle to the epipolar plane.
            let off = n.dot(&direction) / (n.norm() + 1e-4);
            let weight = 1.0 / (1.0 + (off / 0.003).powi(2));
            m += weight * n * n.transpose();
        }
        let eigen = m.symmetric_eigen();
        let smallest = eigen.eigenvalues.imin();
        let found: Vector3<f64> = eigen.eigenvectors.column(smallest).into();
        let found = if found.dot(&start) < 0.0 { -found } else { found };
        if !found.iter().all(|v| v.is_finite()) || found.dot(&start) < 0.5 {
            return start; // hardly any parallax: the pair's own answer is as good
        }
        direction = found;
    }
    direction
}

/// `log length[a] - log length[b] = value`
struct Ratio {
    a: usize,
    b: usize,
    value: f64,
    weight: f64,
}

fn baseline_ratios(edges: &[Baseline], images: usize) -> Vec<Ratio> {
    let mut at = vec![Vec::new(); images];
    for (e, edge) in edges.iter().enumerate() {
        at[edge.first].push((e, 0usize));
        at[edge.second].push((e, 1usize));
    }
    at.par_iter()
        .map(|sides| {
            let mut ratios = Vec::new();
            for (k, &(a, side_a)) in sides.iter().enumerate() {
                for &(b, side_b) in &sides[k + 1..] {
                    let mut logs = shared_ratios(&edges[a].depths[side_a], &edges[b].depths[side_b]);
                    if logs.len() < MIN_SHARED {
                        continue;
                    }
                    let weight = (logs.len() as f64).sqrt();
                    // depth_a * length_a = depth_b * length_b
                    if let Some(value) = median(&mut logs) {
                        ratios.push(Ratio { a, b, value, weight });
                    }
                }
            }
            ratios
        })
        .collect::<Vec<_>>()
        .into_iter()
        .flatten()
        .collect()
}

/// The sides of two stations see one step: pairs of their images are as long as each other, whatever these show.
fn same_steps(rig: &Rig, edges: &[Baseline]) -> Vec<Ratio> {
    if !rig.is_panoramic() {
        return Vec::new();
    }
    let mut of_step: BTreeMap<(usize, usize), Vec<usize>> = BTreeMap::new();
    for (e, edge) in edges.iter().enumerate() {
        let (a, b) = (rig.station_of(edge.first), rig.station_of(edge.second));
        of_step.entry((a.min(b), a.max(b))).or_default().push(e);
    }
    let shared = |e: usize| edges[e].depths[0].len();
    let of_two = |pair: &[usize]| {
        let weight = (shared(pair[0]).min(shared(pair[1])) as f64).sqrt();
        Ratio { a: pair[0], b: pair[1], value: 0.0, weight }
    };
    of_step.values().flat_map(|edges| edges.windows(2)).map(of_two).collect()
}

/// `ln(depth_b / depth_a)` of the keypoints that both lists hold.
fn shared_ratios(a: &[(u32, f64)], b: &[(u32, f64)]) -> Vec<f64> {
    let (mut i, mut j) = (0, 0);
    let mut logs = Vec::new();
    while let (Some(x), Some(y)) = (a.get(i), b.get(j)) {
        match x.0.cmp(&y.0) {
            std::cmp::Ordering::Less => i += 1,
            std::cmp::Ordering::Greater => j += 1,
            std::cmp::Ordering::Equal => {
                logs.push((y.1 / x.1).ln());
                i += 1;
                j += 1;
            }
        }
    }
    logs
}

/// Component of every edge, and its log-length with the first edge of the component at 0. An image of every edge is given.
fn solve_lengths(image_of: &[usize], images: usize, ratios: &[Ratio]) -> (Vec<usize>, Vec<f64>) {
    let edges = image_of.len();
    let links: Vec<(usize, usize)> = ratios.iter().map(|r| (r.a, r.b)).collect();
    let component = components(edges, &links);
    let coarse = Coarse::new(image_of, images, &links);
    let mut solution = vec![0.0; edges];
    let mut weights: Vec<f64> = ratios.iter().map(|r| r.weight).collect();
    for _ in 0..REWEIGHTINGS {
        let rhs: Vec<f64> = ratios.iter().zip(&weights).map(|(r, w)| w * r.value).collect();
        let mut b = vec![0.0; edges];
        for (k, &(i, j)) in links.iter().enumerate() {
            b[i] += rhs[k];
            b[j] -= rhs[k];
        }
        solution = solve_laplacian(&links, &weights, &b, solution, coarse.as_ref());
        for (k, r) in ratios.iter().enumerate() {
            let residual = (solution[r.a] - solution[r.b] - r.value).abs();
            weights[k] = r.weight / residual.max(0.01);
        }
    }
    (component, solution)
}

/// `position[to] - position[from] = value`
struct Difference {
    from: usize,
    to: usize,
    value: Vector3<f64>,
    weight: f64,
}

/// Positions in the largest connected component, robustly (L1 of the distances).
fn solve_positions(images: usize, moves: &[Difference]) -> Vec<Option<Vector3<f64>>> {
    let links: Vec<(usize, usize)> = moves.iter().map(|m| (m.to, m.from)).collect();
    let component = components(images, &links);
    let own: Vec<usize> = (0..images).collect();
    let coarse = Coarse::new(&own, images, &links);
    let mut weights: Vec<f64> = moves.iter().map(|m| m.weight * m.weight).collect();
    let mut axes = [vec![0.0; images], vec![0.0; images], vec![0.0; images]];
    for _ in 0..REWEIGHTINGS {
        for (axis, x) in axes.iter_mut().enumerate() {
            let mut b = vec![0.0; images];
            for (k, m) in moves.iter().enumerate() {
                b[m.to] += weights[k] * m.value[axis];
                b[m.from] -= weights[k] * m.value[axis];
            }
            *x = solve_laplacian(&links, &weights, &b, std::mem::take(x), coarse.as_ref());
        }
        for (k, m) in moves.iter().enumerate() {
            let found = Vector3::from_fn(|r, _| axes[r][m.to] - axes[r][m.from]);
            let residual = m.weight * (found - m.value).norm();
            weights[k] = m.weight * m.weight / residual.max(1e-3);
        }
    }
    let mut sizes = vec![0usize; images];
    component.iter().for_each(|&c| sizes[c] += 1);
    let largest = (0..images).max_by_key(|&c| (sizes[c], std::cmp::Reverse(c)));
    (0..images)
        .map(|i| {
            (Some(component[i]) == largest && sizes[component[i]] > 1)
                .then(|| Vector3::from_fn(|r, _| axes[r][i]))
        })
        .collect()
}

/// The smallest node of every node's connected component.
pub(crate) fn components(nodes: usize, links: &[(usize, usize)]) -> Vec<usize> {
    let mut parent: Vec<usize> = (0..nodes).collect();
    fn root(parent: &mut [usize], mut node: usize) -> usize {
        while parent[node] != node {
            parent[node] = parent[parent[node]];
            node = parent[node];
        }
        node
    }
    for &(a, b) in links {
        let (ra, rb) = (root(&mut parent, a), root(&mut parent, b));
        let (low, high) = (ra.min(rb), ra.max(rb));
        parent[high] = low;
    }
    (0..nodes).map(|n| root(&mut parent, n)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::camera::Pose;
    use crate::random::Random;
    use crate::sfm::synthetic::Capture;
    use crate::sfm::triangulation::keypoint_rays;

    fn error_of(capture: &Capture, pairs: &[TwoViewGeometry]) -> f64 {
        let rotations: Vec<_> = capture.poses.iter().map(|p| Some(p.rotation)).collect();
        let rays = keypoint_rays(&capture.camera, &capture.others, &capture.keypoints);
        let centres = initial_centres(&capture.rig, &rotations, pairs, &rays);
        let mut map = capture.true_map();
        for (pose, (rotation, centre)) in map.poses.iter_mut().zip(rotations.iter().zip(&centres)) {
            *pose = Some(Pose::from_centre(rotation.unwrap(), &centre.unwrap()));
        }
        capture.errors(&map).0
    }

    #[test]
    fn exact_pairs_give_the_centres() {
        for capture in [Capture::orbit(20, 800, 0.0, 1), Capture::walk(20, 1200, 0.0, 1)] {
            let error = error_of(&capture, &capture.pairs(5));
            assert!(error < 1e-5, "{error}");
        }
    }

    #[test]
    fn wrong_pairs_are_outvoted() {
        let capture = Capture::orbit(24, 1500, 0.3, 2);
        let mut pairs = capture.pairs(6);
        let mut random = Random::new(4);
        for pair in pairs.iter_mut().filter(|p| p.second - p.first > 1).step_by(6) {
            let pose = pair.second_from_first.as_mut().unwrap();
            pose.translation = Vector3::new(random.normal(), random.normal(), random.normal()).normalize();
        }
        let error = error_of(&capture, &pairs);
        assert!(error < 0.02, "{error}");
    }

    #[test]
    fn components_are_found() {
        assert_eq!(components(6, &[(0, 3), (4, 5), (3, 1)]), vec![0, 0, 2, 0, 4, 4]);
    }
}
