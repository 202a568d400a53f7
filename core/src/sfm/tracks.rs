//! From pairwise matches to tracks: which keypoints of which images are the same scene point.
//!
//! Union-find over (image, keypoint). A union that would give a track two keypoints of one image that are far apart is
//! refused, so that one wrong match cannot spoil two good tracks. Matches are joined in the order in which they come:
//! the most trustworthy pairs first.

use nalgebra::Vector2;

use super::map::{Keypoints, Observation};

/// Keypoints of one image nearer than this (pixels) may be one feature, found at two scales or orientations.
/// GLOMAP drops a track whose keypoints of one image are more than 10 pixels apart; chosen by hand.
const SAME_FEATURE: f64 = 4.0;

/// Joins `matches` ((first image, second image, keypoint pairs), best first) to tracks of at least two images. A track
/// has one keypoint per image, ordered by image; tracks are ordered by their first observation.
pub(crate) fn build_tracks<'a>(
    keypoints: &Keypoints,
    matches: impl IntoIterator<Item = (u32, u32, &'a [[u32; 2]])>,
) -> Vec<Vec<Observation>> {
    let mut forest = Forest::new(keypoints);
    for (first, second, pairs) in matches {
        for &[a, b] in pairs {
            forest.join(Observation::new(first, a), Observation::new(second, b));
        }
    }
    forest.into_tracks()
}

struct Forest<'a> {
    keypoints: &'a Keypoints,
    /// Node of an image's first keypoint.
    base: Vec<u32>,
    parent: Vec<u32>,
    /// Members by root, ordered; empty for a single keypoint.
    members: Vec<Vec<Observation>>,
}

impl<'a> Forest<'a> {
    fn new(keypoints: &'a Keypoints) -> Self {
        let mut base = Vec::with_capacity(keypoints.len());
        let mut nodes = 0u32;
        for image in keypoints {
            base.push(nodes);
            nodes += image.len() as u32;
        }
        Self { keypoints, base, parent: (0..nodes).collect(), members: vec![Vec::new(); nodes as usize] }
    }

    fn root(&mut self, observation: Observation) -> u32 {
        let mut node = self.base[observation.image as usize] + observation.keypoint;
        while self.parent[node as usize] != node {
            let above = self.parent[self.parent[node as usize] as usize];
            self.parent[node as usize] = above;
            node = above;
        }
        node
    }

    fn pixel(&self, o: &Observation) -> &Vector2<f64> {
        &self.keypoints[o.image as usize][o.keypoint as usize]
    }

    fn join(&mut self, a: Observation, b: Observation) {
        let (ra, rb) = (self.root(a), self.root(b));
        if ra == rb {
            return;
        }
        let mut first = std::mem::take(&mut self.members[ra as usize]);
        let mut second = std::mem::take(&mut self.members[rb as usize]);
        if first.is_empty() {
            first.push(a);
        }
        if second.is_empty() {
            second.push(b);
        }
        if self.conflict(&first, &second) {
            self.members[ra as usize] = first;
            self.members[rb as usize] = second;
            return;
        }
        let (keep, gone) = if first.len() >= second.len() { (ra, rb) } else { (rb, ra) };
        let (mut all, other) = if keep == ra { (first, second) } else { (second, first) };
        all.extend(other);
        all.sort_unstable();
        self.parent[gone as usize] = keep;
        self.members[keep as usize] = all;
    }

    /// Whether two ordered lists hold keypoints of one image that cannot be one feature.
    fn conflict(&self, a: &[Observation], b: &[Observation]) -> bool {
        let (mut i, mut j) = (0, 0);
        while let (Some(x), Some(y)) = (a.get(i), b.get(j)) {
            if x.image == y.image && (self.pixel(x) - self.pixel(y)).norm() > SAME_FEATURE {
                return true;
            }
            // Within an image only neighbours in the list are compared: features found twice are few.
            if x <= y {
                i += 1;
            } else {
                j += 1;
            }
        }
        false
    }

    fn into_tracks(self) -> Vec<Vec<Observation>> {
        let mut tracks: Vec<_> = self
            .members
            .into_iter()
            .map(|mut track| {
                track.dedup_by_key(|o| o.image);
                track
            })
            .filter(|track| track.len() >= 2)
            .collect();
        tracks.sort_unstable();
        tracks
    }
}

/// Chooses tracks so that no image needs more than about `per_image`: longest first, a track is taken if at least one
/// of its images still wants more. Returns indices in increasing order.
pub(crate) fn select_tracks(tracks: &[Vec<Observation>], images: usize, per_image: usize) -> Vec<usize> {
    let mut order: Vec<usize> = (0..tracks.len()).collect();
    order.sort_by_key(|&t| (std::cmp::Reverse(tracks[t].len()), t));
    let mut have = vec![0usize; images];
    let mut chosen: Vec<usize> = order
        .into_iter()
        .filter(|&t| {
            let wanted = tracks[t].iter().any(|o| have[o.image as usize] < per_image);
            if wanted {
                tracks[t].iter().for_each(|o| have[o.image as usize] += 1);
            }
            wanted
        })
        .collect();
    chosen.sort_unstable();
    chosen
}

#[cfg(test)]
mod tests {
    use super::*;

    fn observation(image: u32, keypoint: u32) -> Observation {
        Observation::new(image, keypoint)
    }

    fn grid(images: usize) -> Vec<Vec<Vector2<f64>>> {
        vec![(0..4).map(|k| Vector2::new(100.0 * f64::from(k), 50.0)).collect(); images]
    }

    #[test]
    fn chains_become_tracks_and_a_wrong_match_is_refused() {
        let keypoints = grid(3);
        let (good, more, wrong) = ([[0, 0], [1, 1]], [[0, 0], [1, 1]], [[0, 1]]);
        let tracks = build_tracks(&keypoints, [(0, 1, &good[..]), (1, 2, &more[..]), (0, 2, &wrong[..])]);
        let expected: Vec<Vec<_>> = (0..2).map(|k| (0..3).map(|i| observation(i, k)).collect()).collect();
        assert_eq!(tracks, expected);
    }

    #[test]
    fn a_feature_found_twice_counts_once() {
        let mut keypoints = grid(2);
        keypoints[1].push(Vector2::new(101.0, 50.0)); // beside keypoint 1
        let tracks = build_tracks(&keypoints, [(0, 1, &[[1, 1], [1, 4]][..])]);
        assert_eq!(tracks, vec![vec![observation(0, 1), observation(1, 1)]]);
    }

    #[test]
    fn selection_prefers_long_tracks_and_fills_every_image() {
        let long: Vec<_> = (0..3).map(|i| observation(i, 0)).collect();
        let short: Vec<_> = (0..2).map(|i| observation(i, 1)).collect();
        let other = vec![observation(2, 3), observation(3, 3)];
        let tracks = vec![short, long, other];
        assert_eq!(select_tracks(&tracks, 4, 1), vec![1, 2]);
        assert_eq!(select_tracks(&tracks, 4, 2), vec![0, 1, 2]);
    }
}
