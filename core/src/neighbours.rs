//! Nearest neighbours of 3D points: a k-d tree over indices.

use nalgebra::Vector3;

/// A balanced k-d tree: the median of every range is its node, children lie on both sides of it.
pub(crate) struct Neighbours<'a> {
    points: &'a [Vector3<f64>],
    order: Vec<u32>,
    axes: Vec<u8>,
}

/// Ranges of at most this many points are searched one by one.
const LEAF: usize = 8;

impl<'a> Neighbours<'a> {
    /// Builds the tree; all coordinates must be finite.
    pub(crate) fn new(points: &'a [Vector3<f64>]) -> Self {
        let mut tree =
            Self { points, order: (0..points.len() as u32).collect(), axes: vec![0; points.len()] };
        build(points, &mut tree.order, &mut tree.axes);
        tree
    }

    /// The `k` nearest points to `query` as (squared distance, index), nearest first; equal distances by index.
    pub(crate) fn nearest(&self, query: &Vector3<f64>, k: usize) -> Vec<(f64, u32)> {
        let mut best = Vec::with_capacity(k + 1);
        if k > 0 {
            self.search(query, k, 0, self.order.len(), &mut best);
        }
        best
    }

    fn search(&self, query: &Vector3<f64>, k: usize, low: usize, high: usize, best: &mut Vec<(f64, u32)>) {
        let mut consider = |slot: usize| {
            let index = self.order[slot];
            let entry = ((self.points[index as usize] - query).norm_squared(), index);
            if best.len() < k || best.last().is_some_and(|worst| entry < *worst) {
                let place = best.partition_point(|e| *e < entry);
                best.insert(place, entry);
                best.truncate(k);
            }
        };
        if high - low <= LEAF {
            (low..high).for_each(consider);
            return;
        }
        let middle = (low + high) / 2;
        consider(middle);
        let axis = usize::from(self.axes[middle]);
        let offset = query[axis] - self.points[self.order[middle] as usize][axis];
        let (near, far) = if offset < 0.0 {
            ((low, middle), (middle + 1, high))
        } else {
            ((middle + 1, high), (low, middle))
        };
        self.search(query, k, near.0, near.1, best);
        // `<=`: a point at exactly the worst distance may have the smaller index.
        if best.len() < k || best.last().is_some_and(|worst| offset * offset <= worst.0) {
            self.search(query, k, far.0, far.1, best);
        }
    }
}

fn build(points: &[Vector3<f64>], order: &mut [u32], axes: &mut [u8]) {
    if order.len() <= LEAF {
        return;
    }
    let mut low = points[order[0] as usize];
    let mut high = low;
    for &i in order.iter() {
        low = low.inf(&points[i as usize]);
        high = high.sup(&points[i as usize]);
    }
    let axis = (high - low).imax();
    let middle = order.len() / 2;
    order.select_nth_unstable_by(middle, |a, b| {
        points[*a as usize][axis].total_cmp(&points[*b as usize][axis]).then(a.cmp(b))
    });
    axes[middle] = axis as u8;
    let (left, right) = order.split_at_mut(middle);
    let (left_axes, right_axes) = axes.split_at_mut(middle);
    build(points, left, left_axes);
    build(points, &mut right[1..], &mut right_axes[1..]);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;

    #[test]
    fn finds_what_an_exhaustive_search_finds() {
        let mut random = Random::new(3);
        // Coordinates on a coarse grid: many equal distances and coincident points.
        let mut points = Vec::new();
        for _ in 0..700 {
            points.push(Vector3::from_fn(|_, _| (random.uniform() * 6.0).floor()));
        }
        for _ in 0..700 {
            points.push(Vector3::from_fn(|_, _| random.normal()));
        }
        let tree = Neighbours::new(&points);
        for i in (0..points.len()).step_by(13) {
            let mut all: Vec<(f64, u32)> =
                points.iter().enumerate().map(|(j, p)| ((p - points[i]).norm_squared(), j as u32)).collect();
            all.sort_by(|a, b| a.partial_cmp(b).unwrap());
            assert_eq!(tree.nearest(&points[i], 5), all[..5]);
        }
        assert_eq!(Neighbours::new(&points[..2]).nearest(&points[0], 5).len(), 2);
        assert!(Neighbours::new(&[]).nearest(&Vector3::zeros(), 3).is_empty());
    }
}
