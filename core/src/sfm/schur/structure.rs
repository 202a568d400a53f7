//! Who sees what, arranged for the reduced camera system.

use std::sync::Arc;

use crate::sfm::block_sparse::{Graph, Pattern};
use crate::sfm::levenberg_marquardt::Reach;

/// Neighbouring cameras whose rows are summed together. Neighbours see mostly the same points; the rows of more would
/// not stay in the cache.
pub(super) const GROUP: usize = 4;

/// Operations of a dense factorisation up to which it is taken anyway: as many as some 380 images take in a bundle
/// adjustment. It is a part of the time of a step there.
const FEW_OPERATIONS: f64 = 4e9;

/// Who sees what. Observations are stored point after point, ordered by camera within a point.
#[derive(Debug)]
pub(crate) struct Structure {
    /// The observations of point `p` are `point_start[p]..point_start[p + 1]`.
    pub(crate) point_start: Vec<u32>,
    /// Camera of an observation.
    pub(crate) camera: Vec<u32>,
    /// Point of an observation.
    pub(crate) point: Vec<u32>,
    /// The observations of camera `c` are `camera_observations[camera_start[c]..camera_start[c + 1]]`.
    camera_start: Vec<u32>,
    camera_observations: Vec<u32>,
    /// The runs of group `g` are `runs[group_start[g]..group_start[g + 1]]`.
    group_start: Vec<u32>,
    runs: Vec<Run>,
    /// The blocks of `S`: cameras that see a point in common.
    pub(super) pattern: Arc<Pattern>,
}

/// Successive observations of one point by cameras of one group.
#[derive(Debug, Clone, Copy)]
pub(super) struct Run {
    pub(super) first: u32,
    pub(super) count: u32,
}

impl Structure {
    /// From the camera of every observation, point after point. A camera has `unknowns`.
    pub(crate) fn new(cameras: usize, unknowns: usize, point_start: Vec<u32>, camera: Vec<u32>) -> Self {
        let mut point = vec![0; camera.len()];
        for p in 0..point_start.len() - 1 {
            point[point_start[p] as usize..point_start[p + 1] as usize].fill(p as u32);
        }
        let mut camera_start = vec![0u32; cameras + 1];
        for &c in &camera {
            camera_start[c as usize + 1] += 1;
        }
        for c in 0..cameras {
            camera_start[c + 1] += camera_start[c];
        }
        let mut next = camera_start.clone();
        let mut camera_observations = vec![0; camera_start[cameras] as usize];
        for (o, &c) in camera.iter().enumerate() {
            camera_observations[next[c as usize] as usize] = o as u32;
            next[c as usize] += 1;
        }
        let (group_start, runs) = runs(cameras, &point_start, &camera);
        let pattern =
            Arc::new(Pattern::new(covisibility(cameras, &point_start, &camera), unknowns, FEW_OPERATIONS));
        Self { point_start, camera, point, camera_start, camera_observations, group_start, runs, pattern }
    }

    /// Cameras that meet few others hang together in chains.
    pub(crate) fn reach(&self) -> Reach {
        if self.pattern.is_sparse() { Reach::Long } else { Reach::Short }
    }

    /// What the cameras of group `g` see, point after point.
    pub(super) fn of_group(&self, g: usize) -> &[Run] {
        &self.runs[self.group_start[g] as usize..self.group_start[g + 1] as usize]
    }

    pub(crate) fn points(&self) -> usize {
        self.point_start.len() - 1
    }

    pub(crate) fn cameras(&self) -> usize {
        self.camera_start.len() - 1
    }

    /// Observations of point `p`.
    pub(crate) fn of_point(&self, p: usize) -> std::ops::Range<usize> {
        self.point_start[p] as usize..self.point_start[p + 1] as usize
    }

    /// Observations of camera `c`, in the order of their points.
    pub(crate) fn of_camera(&self, c: usize) -> &[u32] {
        &self.camera_observations[self.camera_start[c] as usize..self.camera_start[c + 1] as usize]
    }
}

/// Which cameras see a point in common.
fn covisibility(cameras: usize, point_start: &[u32], camera: &[u32]) -> Graph {
    let mut graph = Graph::new(cameras);
    for range in point_start.windows(2) {
        let own = &camera[range[0] as usize..range[1] as usize];
        for (k, &a) in own.iter().enumerate() {
            // A camera may see a point twice; it does not meet itself.
            own[k + 1..].iter().filter(|&&b| b != a).for_each(|&b| graph.join(a as usize, b as usize));
        }
    }
    graph
}

/// The runs of all groups, group after group, and where each group begins.
fn runs(cameras: usize, point_start: &[u32], camera: &[u32]) -> (Vec<u32>, Vec<Run>) {
    let groups = cameras.div_ceil(GROUP);
    let mut by_group: Vec<Vec<Run>> = vec![Vec::new(); groups];
    for range in point_start.windows(2) {
        let mut first = range[0];
        while first < range[1] {
            let group = camera[first as usize] as usize / GROUP;
            let own = &camera[first as usize..range[1] as usize];
            let count = own.iter().take_while(|&&c| c as usize / GROUP == group).count() as u32;
            by_group[group].push(Run { first, count });
            first += count;
        }
    }
    let mut start = vec![0u32; groups + 1];
    for (g, own) in by_group.iter().enumerate() {
        start[g + 1] = start[g] + own.len() as u32;
    }
    (start, by_group.concat())
}
