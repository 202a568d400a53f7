//! Throwing out what contradicts the model.

use rayon::prelude::*;

use super::map::{Keypoints, Map};
use super::triangulation::Views;

/// Removes observations with a reprojection error above `max_error` pixels or behind their camera, then points with
/// fewer than two observations or whose rays never meet at `min_angle` radians. Returns how many observations went.
pub(crate) fn filter_points(map: &mut Map, keypoints: &Keypoints, max_error: f64, min_angle: f64) -> usize {
    let before = map.observations();
    let views = Views::new(map, keypoints);
    let limit = max_error * max_error;
    map.points.par_iter_mut().for_each(|point| {
        let xyz = point.xyz;
        point.track.retain(|o| views.squared_error(o, &xyz) <= limit);
        if point.track.len() < 2 || views.widest_angle(&point.track, &xyz) < min_angle {
            point.track.clear();
        }
    });
    drop(views);
    map.points.retain(|p| !p.track.is_empty());
    before - map.observations()
}

/// Takes out stations with fewer than `min_observations` observations, again and again until none is left; returns their
/// images.
pub(crate) fn filter_images(map: &mut Map, min_observations: usize) -> Vec<usize> {
    let mut removed = Vec::new();
    loop {
        let counts = map.observations_by_station();
        let is_weak = |&i: &usize| map.poses[i].is_some() && counts[map.rig.station_of(i)] < min_observations;
        let weak: Vec<usize> = (0..map.poses.len()).filter(is_weak).collect();
        if weak.is_empty() {
            removed.sort_unstable();
            return removed;
        }
        map.unregister(&weak);
        removed.extend(weak);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sfm::synthetic::Capture;

    #[test]
    fn wrong_observations_go_and_right_ones_stay() {
        let capture = Capture::orbit(8, 100, 0.3, 2);
        let mut map = capture.true_map_with_points();
        let all = map.observations();
        assert_eq!(filter_points(&mut map, &capture.keypoints, 4.0, 0.01), 0);
        let mut keypoints = capture.keypoints.clone();
        for point in map.points.iter().step_by(10) {
            let o = point.track[0];
            keypoints[o.image as usize][o.keypoint as usize].y += 9.0;
        }
        let wrong = map.points.len().div_ceil(10);
        let lost = filter_points(&mut map, &keypoints, 4.0, 0.01);
        assert!(lost >= wrong && lost <= 3 * wrong, "{lost} of {all} observations for {wrong} wrong ones");
    }

    #[test]
    fn an_image_that_sees_nothing_is_taken_out() {
        let capture = Capture::orbit(8, 100, 0.0, 2);
        let mut map = capture.true_map_with_points();
        for point in &mut map.points {
            point.track.retain(|o| o.image != 3);
        }
        assert_eq!(filter_images(&mut map, 10), vec![3]);
        assert!(map.poses[3].is_none());
        assert_eq!(map.registered(), 7);
    }
}
