//! Absolute rotations from relative ones: robust rotation averaging (Chatterjee & Govindu, ICCV 2013, PAMI 2018).
//!
//! In: rotations between pairs of images, some of them wrong. Out: one rotation per image that the pairs agree on, and
//! which pairs do not. A maximum spanning tree gives the start; minimising the sum of the absolute angles brings it
//! near the answer whatever the outliers do; iteratively reweighted least squares with the loss of Geman and McClure
//! finishes. The mapper calls it.

use std::collections::VecDeque;
use std::sync::Arc;

use nalgebra::{UnitQuaternion, Vector3};

use crate::control::Control;
use crate::defaults::with_defaults;
use crate::error::{Error, ErrorKind, Result};

use super::block_sparse::{BlockMatrix, Graph, Pattern};

/// The rotation of one pair.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RelativeRotation {
    /// Index of the first image.
    pub first: u32,
    /// Index of the second image.
    pub second: u32,
    /// Rotation from the first camera's axes to the second's.
    pub second_from_first: UnitQuaternion<f64>,
    /// How much the pair is worth; the spanning tree prefers large ones (number of inliers). Positive.
    pub weight: f64,
}

impl RelativeRotation {
    /// The rotation vector (first image's axes) that takes the estimate of the pair to its measurement.
    fn residual(&self, rotations: &[UnitQuaternion<f64>]) -> Vector3<f64> {
        let (r1, r2) = (rotations[self.first as usize], rotations[self.second as usize]);
        (r2.inverse() * self.second_from_first * r1).scaled_axis()
    }
}

with_defaults! {
    /// How to average.
    #[derive(Debug, Clone, PartialEq)]
    pub struct RotationAveragingOptions {
        /// Angle (radians) at which a pair loses its influence.
        pub loss_angle: f64 = 5f64.to_radians(),
        /// Pairs that disagree by more than this (radians) are dropped.
        pub max_error: f64 = 10f64.to_radians(),
    }
}

/// The rotations the pairs agree on.
#[derive(Debug, Clone, PartialEq)]
pub struct AveragedRotations {
    /// World-to-camera rotation by image; `None` outside the largest connected component. The world has the axes of the
    /// first camera in it.
    pub cam_from_world: Vec<Option<UnitQuaternion<f64>>>,
    /// For every pair that came in whether it agrees and belongs to that component.
    pub kept: Vec<bool>,
}

/// Averages the rotations of `pairs` over `images` images; twice, with the pairs that disagree dropped in between.
///
/// # Errors
/// `InvalidArgument` for pairs of images that do not exist; `UnreliableReconstruction` if the normal equations cannot
/// be solved; `Cancelled`.
pub fn average_rotations(
    images: usize,
    pairs: &[RelativeRotation],
    options: &RotationAveragingOptions,
    control: &Control,
) -> Result<AveragedRotations> {
    for pair in pairs {
        let (a, b) = (pair.first as usize, pair.second as usize);
        if a >= images || b >= images || a == b {
            return Err(Error::argument(format!("a pair ({a}, {b}) among {images} images")));
        }
        if !(pair.weight > 0.0 && pair.weight.is_finite()) {
            return Err(Error::argument(format!("the pair ({a}, {b}) has the weight {}", pair.weight)));
        }
    }
    let ends: Vec<_> = pairs.iter().map(|p| (p.first, p.second)).collect();
    let mut kept = vec![true; pairs.len()];
    let mut rotations = vec![UnitQuaternion::identity(); images];
    for _ in 0..2 {
        let component = largest_component(images, &ends, &kept);
        for (keep, &(a, _)) in kept.iter_mut().zip(&ends) {
            *keep &= component[a as usize];
        }
        let used: Vec<RelativeRotation> = (0..pairs.len()).filter(|&k| kept[k]).map(|k| pairs[k]).collect();
        Averaging::new(images, &component, used, options).run(&mut rotations, control)?;
        for (keep, pair) in kept.iter_mut().zip(pairs) {
            *keep &= pair.residual(&rotations).norm() <= options.max_error;
        }
    }
    let component = largest_component(images, &ends, &kept);
    for (keep, &(a, _)) in kept.iter_mut().zip(&ends) {
        *keep &= component[a as usize];
    }
    let origin = component.iter().position(|c| *c).map(|k| rotations[k].inverse());
    let cam_from_world =
        (0..images).map(|k| origin.filter(|_| component[k]).map(|origin| rotations[k] * origin)).collect();
    Ok(AveragedRotations { cam_from_world, kept })
}

/// For every image whether it belongs to the largest set that the kept pairs connect (of equal ones the one with the
/// first image). All `false` without kept pairs.
pub(crate) fn largest_component(images: usize, pairs: &[(u32, u32)], kept: &[bool]) -> Vec<bool> {
    let mut neighbours = vec![Vec::new(); images];
    for (&(a, b), _) in pairs.iter().zip(kept).filter(|(_, keep)| **keep) {
        neighbours[a as usize].push(b as usize);
        neighbours[b as usize].push(a as usize);
    }
    let mut label = vec![usize::MAX; images];
    let mut best = (0, usize::MAX);
    for start in 0..images {
        if label[start] != usize::MAX || neighbours[start].is_empty() {
            continue;
        }
        label[start] = start;
        let mut queue = VecDeque::from([start]);
        let mut size = 0;
        while let Some(at) = queue.pop_front() {
            size += 1;
            for &next in &neighbours[at] {
                if label[next] == usize::MAX {
                    label[next] = start;
                    queue.push_back(next);
                }
            }
        }
        if size > best.0 {
            best = (size, start);
        }
    }
    label.into_iter().map(|l| l != usize::MAX && l == best.1).collect()
}

/// One averaging of a connected set.
struct Averaging<'a> {
    pairs: Vec<RelativeRotation>,
    /// By image: its unknown; the first image of the set has none.
    unknown: Vec<Option<usize>>,
    unknowns: usize,
    /// Unknowns that meet in a pair.
    pattern: Arc<Pattern>,
    root: usize,
    options: &'a RotationAveragingOptions,
}

/// Operations of a dense factorisation up to which it is taken anyway, as many as 390 images take. There may be two
/// hundred of them.
const FEW_OPERATIONS: f64 = 2e7;
/// Largest mean step (radians) at which an iteration counts as converged.
const CONVERGED: f64 = 1e-6;

impl<'a> Averaging<'a> {
    fn new(
        images: usize,
        component: &[bool],
        pairs: Vec<RelativeRotation>,
        options: &'a RotationAveragingOptions,
    ) -> Self {
        let root = component.iter().position(|c| *c).unwrap_or(0);
        let mut unknowns = 0;
        let unknown: Vec<Option<usize>> = (0..images)
            .map(|k| {
                (component[k] && k != root).then(|| {
                    unknowns += 1;
                    unknowns - 1
                })
            })
            .collect();
        let mut graph = Graph::new(unknowns);
        for pair in &pairs {
            if let (Some(a), Some(b)) = (unknown[pair.first as usize], unknown[pair.second as usize]) {
                graph.join(a, b);
            }
        }
        let pattern = Arc::new(Pattern::new(graph, 1, FEW_OPERATIONS));
        Self { pairs, unknown, unknowns, pattern, root, options }
    }

    fn run(&self, rotations: &mut [UnitQuaternion<f64>], control: &Control) -> Result<()> {
        if self.unknowns == 0 {
            return Ok(());
        }
        self.start_from_spanning_tree(rotations);
        // Sum of absolute angles: weights 1/|r|, bounded so that exact pairs do not stall the others.
        for floor in [1e-2, 1e-2, 1e-3, 1e-3, 1e-3, 1e-4, 1e-4, 1e-4, 1e-4, 1e-4] {
            control.check()?;
            self.step(rotations, |angle| 1.0 / angle.max(floor))?;
        }
        let s2 = self.options.loss_angle.powi(2);
        for _ in 0..100 {
            control.check()?;
            let moved = self.step(rotations, |angle| (s2 / (angle * angle + s2)).powi(2))?;
            if moved < CONVERGED {
                break;
            }
        }
        Ok(())
    }

    /// Composes rotations along the maximum spanning tree (Kruskal), breadth first from the root.
    fn start_from_spanning_tree(&self, rotations: &mut [UnitQuaternion<f64>]) {
        let mut order: Vec<usize> = (0..self.pairs.len()).collect();
        order.sort_by(|&a, &b| self.pairs[b].weight.total_cmp(&self.pairs[a].weight).then(a.cmp(&b)));
        let mut parent: Vec<usize> = (0..rotations.len()).collect();
        fn find(parent: &mut [usize], mut k: usize) -> usize {
            while parent[k] != k {
                parent[k] = parent[parent[k]];
                k = parent[k];
            }
            k
        }
        let mut tree = vec![Vec::new(); rotations.len()];
        for k in order {
            let pair = &self.pairs[k];
            let (a, b) = (pair.first as usize, pair.second as usize);
            let (ra, rb) = (find(&mut parent, a), find(&mut parent, b));
            if ra != rb {
                parent[ra] = rb;
                tree[a].push((b, pair.second_from_first));
                tree[b].push((a, pair.second_from_first.inverse()));
            }
        }
        rotations[self.root] = UnitQuaternion::identity();
        let mut visited = vec![false; rotations.len()];
        visited[self.root] = true;
        let mut queue = VecDeque::from([self.root]);
        while let Some(at) = queue.pop_front() {
            for &(next, rotation) in &tree[at] {
                if !visited[next] {
                    visited[next] = true;
                    rotations[next] = rotation * rotations[at];
                    queue.push_back(next);
                }
            }
        }
    }

    /// One weighted least-squares step; returns the mean angle by which the rotations moved.
    ///
    /// With `R_k ← R_k exp(x_k)` the residual of a pair is to first order `r - (x_second - x_first)`, the same scalar
    /// coefficients for all three components: one factorisation of a Laplacian serves the three right-hand
    /// sides.
    fn step(&self, rotations: &mut [UnitQuaternion<f64>], weight: impl Fn(f64) -> f64) -> Result<f64> {
        let n = self.unknowns;
        let mut laplacian = BlockMatrix::zeros(Arc::clone(&self.pattern), 0);
        let mut add = |a: usize, b: usize, value: f64| {
            // The pattern has all pairs.
            if let Some(entry) = laplacian.entry(a.min(b), a.max(b)) {
                *entry += value;
            }
        };
        let mut diagonal = vec![0.0; n];
        // The right-hand sides of the three axes, one after the other.
        let mut solution = vec![0.0; 3 * n];
        for pair in &self.pairs {
            let r = pair.residual(rotations);
            let w = weight(r.norm());
            let ends = [(self.unknown[pair.first as usize], -1.0), (self.unknown[pair.second as usize], 1.0)];
            for (i, sign) in ends {
                let Some(i) = i else { continue };
                diagonal[i] += w;
                for axis in 0..3 {
                    solution[axis * n + i] += sign * w * r[axis];
                }
            }
            if let (Some(a), Some(b)) = (ends[0].0, ends[1].0) {
                add(a, b, -w);
            }
        }
        // Long chains of images make the Laplacian nearly singular; this little is enough to factor it.
        let largest = diagonal.iter().fold(0.0f64, |m, &v| m.max(v));
        diagonal.iter().enumerate().for_each(|(i, v)| add(i, i, v + 1e-9 * largest.max(1e-12)));
        let contradiction = || {
            Error::new(
                ErrorKind::UnreliableReconstruction,
                "the rotations between the images contradict each other",
            )
            .hint("film slowly, and let neighbouring frames show the same things")
        };
        let factor = laplacian.factor().ok_or_else(contradiction)?;
        factor.solve_in_place(&mut solution, 3).ok_or_else(contradiction)?;
        let mut moved = 0.0;
        for (rotation, unknown) in rotations.iter_mut().zip(&self.unknown) {
            let Some(k) = *unknown else { continue };
            let x = Vector3::new(solution[k], solution[n + k], solution[2 * n + k]);
            moved += x.norm();
            *rotation *= UnitQuaternion::from_scaled_axis(x);
            rotation.renormalize();
        }
        Ok(moved / n as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;
    use crate::sfm::two_view::synthetic::{random_direction, random_rotation};

    /// Random cameras, pairs (i, i+1..=window) and `extra` random ones, noise in radians and a fraction of wrong pairs.
    fn graph(
        seed: u64,
        n: usize,
        window: usize,
        extra: usize,
        noise: f64,
        wrong: f64,
    ) -> (Vec<UnitQuaternion<f64>>, Vec<RelativeRotation>, Vec<bool>) {
        let mut random = Random::new(seed);
        let truth: Vec<_> = (0..n).map(|_| random_rotation(&mut random, 3.0)).collect();
        let mut ends = Vec::new();
        for i in 0..n {
            ends.extend((i + 1..n.min(i + 1 + window)).map(|j| (i, j)));
        }
        for _ in 0..extra {
            let (i, j) = (random.below(n), random.below(n));
            if i < j && !ends.contains(&(i, j)) {
                ends.push((i, j));
            }
        }
        let (mut pairs, mut right) = (Vec::new(), Vec::new());
        for (i, j) in ends {
            // The chain itself is right, so that the graph stays connected.
            let good = j == i + 1 || random.uniform() >= wrong;
            let disturbance = if good {
                UnitQuaternion::from_scaled_axis(noise * random.normal() * random_direction(&mut random))
            } else {
                random_rotation(&mut random, 3.0)
            };
            pairs.push(RelativeRotation {
                first: i as u32,
                second: j as u32,
                second_from_first: disturbance * truth[j] * truth[i].inverse(),
                weight: if good { 100.0 } else { 60.0 },
            });
            // A wrong pair can by chance be nearly right.
            right.push(disturbance.angle() < RotationAveragingOptions::default().max_error);
        }
        (truth, pairs, right)
    }

    fn worst_error(truth: &[UnitQuaternion<f64>], found: &[Option<UnitQuaternion<f64>>]) -> f64 {
        let gauge = truth[0].inverse() * found[0].unwrap();
        truth.iter().zip(found).map(|(t, f)| f.unwrap().angle_to(&(t * gauge))).fold(0.0, f64::max)
    }

    #[test]
    fn exact_pairs_give_exact_rotations() {
        let (truth, pairs, _) = graph(1, 60, 3, 50, 0.0, 0.0);
        let found =
            average_rotations(60, &pairs, &RotationAveragingOptions::default(), &Control::new()).unwrap();
        assert!(worst_error(&truth, &found.cam_from_world) < 1e-6);
        assert!(found.kept.iter().all(|k| *k));
    }

    #[test]
    fn wrong_pairs_are_found_and_do_no_harm() {
        for seed in 0..5 {
            let (truth, pairs, right) = graph(seed, 80, 4, 300, 0.005, 0.25);
            let found =
                average_rotations(80, &pairs, &RotationAveragingOptions::default(), &Control::new()).unwrap();
            let error = worst_error(&truth, &found.cam_from_world).to_degrees();
            assert!(error < 1.0, "seed {seed}: {error}°");
            let disagreements = found.kept.iter().zip(&right).filter(|(k, r)| k != r).count();
            assert!(disagreements <= 2, "seed {seed}: {disagreements}");
        }
    }

    #[test]
    fn a_long_chain_and_a_lone_picture_are_handled() {
        let (truth, pairs, _) = graph(3, 400, 1, 0, 0.0, 0.0);
        let found =
            average_rotations(401, &pairs, &RotationAveragingOptions::default(), &Control::new()).unwrap();
        assert!(found.cam_from_world[400].is_none());
        assert!(worst_error(&truth, &found.cam_from_world[..400]) < 1e-5);
        let none = average_rotations(3, &[], &RotationAveragingOptions::default(), &Control::new()).unwrap();
        assert_eq!(none.cam_from_world, vec![None; 3]);
        let beyond = average_rotations(100, &pairs, &RotationAveragingOptions::default(), &Control::new());
        assert_eq!(beyond.unwrap_err().kind(), ErrorKind::InvalidArgument);
    }
}
