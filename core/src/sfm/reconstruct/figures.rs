//! The figures of a map: how much of the capture it has, and how well that fits.

use super::{Reconstructor, ViewGraph};
use crate::sfm::map::{Keypoints, Map};
use crate::sfm::options::MappingMethod;
use crate::sfm::path::broken_steps;
use crate::sfm::report::{SfmReport, ranges};
use crate::sfm::support::support_of_pairs;
use crate::sfm::triangulation::Views;
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
            rotation_only_pairs: self.rotation_only,
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
}
