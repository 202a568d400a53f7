//! The figures of a map: how much of the capture it has, and how well that fits.

use super::{Reconstructor, ViewGraph};
use crate::camera::Camera;
use crate::sfm::gate;
use crate::sfm::map::{Keypoints, Map};
use crate::sfm::options::MappingMethod;
use crate::sfm::other_cameras::OtherCameras;
use crate::sfm::path::broken_steps;
use crate::sfm::report::{SfmReport, ranges};
use crate::sfm::spots::Spots;
use crate::sfm::support::support_of_pairs;
use crate::sfm::triangulation::Views;
use crate::sfm::two_view::TwoViewGeometry;
use crate::statistics::{median, quantile};

impl Reconstructor<'_> {
    /// The figures of `map`, made of the pairs of `graph` by `method`; what comes of later steps is left open.
    pub(super) fn report(
        &self,
        map: &Map,
        keypoints: &Keypoints,
        method: MappingMethod,
        graph: &ViewGraph,
    ) -> SfmReport {
        let pairs = &graph.pairs;
        let views = Views::new(map, keypoints);
        let mut errors: Vec<f64> = map
            .points
            .iter()
            .flat_map(|p| p.track.iter().map(|o| views.squared_error(o, &p.xyz).sqrt()))
            .collect();
        let mut angles: Vec<f64> =
            map.points.iter().map(|p| views.widest_angle(&p.track, &p.xyz).to_degrees()).collect();
        let mut lengths: Vec<f64> = map.points.iter().map(|p| p.track.len() as f64).collect();
        let mut features: Vec<f64> = keypoints.iter().map(|k| k.len() as f64).collect();
        let is_placed = |station: usize| map.poses[map.rig.images_of(station).start].is_some();
        let mut seen: Vec<f64> = map
            .observations_by_station()
            .into_iter()
            .enumerate()
            .filter_map(|(station, n)| is_placed(station).then_some(n as f64))
            .collect();
        let support = support_of_pairs(map, keypoints, pairs, self.mapper.max_epipolar_error);
        let (agreeing, all) = support.iter().fold((0, 0), |sum, s| (sum.0 + s.agreeing, sum.1 + s.matches));
        let broken_steps =
            if graph.is_ordered { broken_steps(&map.rig, &map.others, pairs, &support) } else { Vec::new() };
        let observations = map.observations();
        SfmReport {
            frames: self.frames.frames.len(),
            registered: map.registered(),
            unregistered: ranges((0..map.poses.len()).filter(|&i| map.poses[i].is_none())),
            method,
            median_features: median(&mut features).unwrap_or(0.0) as usize,
            candidate_pairs: self.matches.len(),
            verified_pairs: pairs.len(),
            rotation_only_pairs: graph.rotation_only,
            agreeing_matches: agreeing as f64 / (all as f64).max(1.0),
            points: map.points.len(),
            observations,
            mean_track_length: observations as f64 / map.points.len().max(1) as f64,
            median_track_length: median(&mut lengths).unwrap_or(0.0) as usize,
            median_observations: median(&mut seen).unwrap_or(0.0) as usize,
            few_observations: quantile(&mut seen, 0.05).unwrap_or(0.0) as usize,
            mean_reprojection_error: errors.iter().sum::<f64>() / errors.len().max(1) as f64,
            median_reprojection_error: median(&mut errors).unwrap_or(0.0),
            median_parallax_degrees: median(&mut angles).unwrap_or(0.0),
            camera_model: map.camera.model,
            camera_params: map.camera.params.clone(),
            other_cameras: Self::other_cameras(map),
            principal_point_refined: false,
            principal_point_deviation: None,
            principal_point_shift: None,
            broken_steps,
            components: Vec::new(),
            attempts: Vec::new(),
            rolling_shutter: None,
            scale: None,
            verdict: None,
            warnings: Vec::new(),
            times: Vec::new(),
        }
    }

    /// The fraction of the wide pairs that a camera turning on the spot would explain. Within a burst nobody went anywhere, which
    /// says nothing of the path: where there are bursts, it is that of the other pairs by `camera`, which made most images. `pairs`
    /// have relative poses.
    pub(super) fn rotation_only_of(
        &self,
        pairs: &[TwoViewGeometry],
        camera: &Camera,
        others: &OtherCameras,
    ) -> f64 {
        if self.frames.is_sequential() {
            return self.rotation_only;
        }
        let bursts = Spots::of_photographs(&self.rig, pairs).pairs_of_bursts(&self.rig, pairs);
        if bursts.is_empty() {
            return self.rotation_only;
        }
        let is_by_camera = |image: u32| others.index(image as usize) == 0;
        let is_of_path = |pair: &&TwoViewGeometry| {
            let is_of_burst = bursts.contains(&(pair.first, pair.second));
            is_by_camera(pair.first) && is_by_camera(pair.second) && !is_of_burst
        };
        gate::rotation_only_pairs(self.verified.iter().filter(is_of_path), camera)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use nalgebra::{Matrix3, UnitQuaternion};

    use super::*;
    use crate::sfm::components::Matched;
    use crate::sfm::front_end::Pictures;
    use crate::sfm::options::SfmOptions;
    use crate::sfm::synthetic::Capture;
    use crate::video::{Frame, Frames};

    #[test]
    fn a_burst_is_no_turn_on_the_spot() {
        let capture = Capture::bursts(24, 3000, 0.0, 4);
        let is_of_burst = |pair: &TwoViewGeometry| pair.first / 3 == pair.second / 3;
        // From spot to spot little is matched.
        let mut pairs = capture.pairs(4);
        pairs.retain(|p| is_of_burst(p) || p.second - p.first == 3 && p.first % 3 < 2);
        for pair in pairs.iter_mut().filter(|pair| is_of_burst(pair)) {
            pair.homography = Some(Matrix3::identity());
            pair.homography_inliers = pair.inliers.len();
        }
        let all = gate::rotation_only_pairs(&pairs, &capture.camera);
        assert!(all > 0.55, "{all}");
        let of = |i: usize| Frame::new(format!("{i}.jpg"), i as u64, 800, 600);
        let frames = Frames::of_images("", (0..72).map(of).collect());
        let pictures = Pictures { features: Vec::new(), keypoints: Vec::new(), colors: Vec::new() };
        let matched =
            Matched { frames: &frames, pictures: &pictures, matches: &[], verified: &pairs, tags: None };
        let options = SfmOptions::default();
        let reconstructor =
            Reconstructor::new(&matched, Arc::clone(&capture.rig), (all, vec![None]), &options);
        let share = |pairs: &[TwoViewGeometry]| {
            reconstructor.rotation_only_of(pairs, &capture.camera, &capture.others)
        };
        assert_eq!(share(&pairs), 0.0);
        // Who turns from picture to picture looks around.
        let mut turned = pairs.clone();
        for pose in turned.iter_mut().filter_map(|pair| pair.second_from_first.as_mut()) {
            pose.rotation = UnitQuaternion::from_euler_angles(0.0, 0.2, 0.0);
        }
        assert_eq!(share(&turned), all);
    }
}
