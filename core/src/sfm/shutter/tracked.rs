//! The tracks of a map with their keypoints alone.

use nalgebra::Vector2;

use crate::sfm::map::{Keypoints, Map, MapPoint, Observation};

/// A map whose keypoints are numbered anew: most keypoints of a picture are in no track, and to correct them in every
/// round of the estimate would be much of its work.
pub(super) struct Tracked {
    /// Its observations name [`Self::keypoints`].
    pub(super) map: Map,
    pub(super) keypoints: Vec<Vec<Vector2<f64>>>,
    /// The tracks of its points as they were.
    tracks: Vec<Vec<Observation>>,
}

impl Tracked {
    pub(super) fn new(map: &Map, keypoints: &Keypoints) -> Self {
        let mut own: Vec<Vec<Vector2<f64>>> = vec![Vec::new(); keypoints.len()];
        let mut renumbered = |o: &Observation| {
            let image = &mut own[o.image as usize];
            image.push(keypoints[o.image as usize][o.keypoint as usize]);
            Observation::new(o.image, image.len() as u32 - 1)
        };
        let mut point =
            |p: &MapPoint| MapPoint { xyz: p.xyz, track: p.track.iter().map(&mut renumbered).collect() };
        let points = map.points.iter().map(&mut point).collect();
        let tracks = map.points.iter().map(|p| p.track.clone()).collect();
        let map = map.with_points(points);
        Self { map, keypoints: own, tracks }
    }

    /// Gives the points of `map`, which was made from this one, the tracks that they had.
    pub(super) fn give_back_tracks(&self, map: &mut Map) {
        for (point, track) in map.points.iter_mut().zip(&self.tracks) {
            point.track.clone_from(track);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sfm::synthetic::Capture;

    #[test]
    fn the_same_pixels_are_seen_and_the_tracks_given_back() {
        let capture = Capture::orbit(8, 500, 0.3, 2);
        let mut map = capture.true_map_with_points();
        map.points.retain(|p| p.track.len() > 2);
        let tracked = Tracked::new(&map, &capture.keypoints);
        let count: usize = tracked.keypoints.iter().map(Vec::len).sum();
        assert_eq!(count, map.observations());
        let mut again = tracked.map.clone();
        tracked.give_back_tracks(&mut again);
        assert_eq!(again.points, map.points);
        for (renumbered, point) in tracked.map.points.iter().zip(&map.points) {
            for (a, b) in renumbered.track.iter().zip(&point.track) {
                let pixel = tracked.keypoints[a.image as usize][a.keypoint as usize];
                assert_eq!(pixel, capture.keypoints[b.image as usize][b.keypoint as usize]);
            }
        }
    }
}
