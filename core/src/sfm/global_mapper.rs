//! The global mapper: from rotations and verified pairs to a map of all images at once.

use crate::camera::{Camera, Pose};
use crate::control::Control;
use crate::error::Result;
use crate::random::hash;

use super::bundle_adjustment::{ASSUMED_NOISE, BundleOptions, PoseUnknowns, RefineIntrinsics, adjust};
use super::filters::{filter_images, filter_points};
use super::global_positioning::{Positions, Start, position};
use super::map::{Map, Observation};
use super::mapper_input::MapperInput;
use super::mapper_options::{GlobalOptions, MapperOptions, Tolerance};
use super::projection::Loss;
use super::scale_averaging::initial_centres;
use super::tracks::select_tracks;
use super::triangulation::{TriangulationOptions, keypoint_rays, triangulate_tracks};

impl Tolerance {
    /// In pixels of `camera`.
    fn pixels(&self, camera: &Camera) -> f64 {
        let degree = camera.mean_focal() * 1f64.to_radians();
        (self.degrees * degree).max(self.pixels)
    }
}

/// A map whose poses are right in the rough only: what is torn is seen, and nothing measured.
pub(crate) struct RoughMap {
    pub(crate) map: Map,
    /// The tracks by which it is adjusted.
    tracks: Vec<Vec<Observation>>,
}

/// Maps all images that have a rotation at once.
///
/// # Errors
/// [`crate::ErrorKind::Cancelled`].
#[cfg(test)]
pub(crate) fn map_globally(
    input: &MapperInput<'_>,
    options: &MapperOptions,
    seed: u64,
    control: &Control,
) -> Result<Map> {
    map_roughly(input, options, seed, control)?.narrowed(input, options, control)
}

/// Places all images that have a rotation at once.
///
/// # Errors
/// [`crate::ErrorKind::Cancelled`].
pub(crate) fn map_roughly(
    input: &MapperInput<'_>,
    options: &MapperOptions,
    seed: u64,
    control: &Control,
) -> Result<RoughMap> {
    let mut map = input.empty_map();
    let tracks = input.tracks();
    let positions = find_positions(input, &tracks, &options.global, seed, control)?;
    for (i, pose) in map.poses.iter_mut().enumerate() {
        if let (Some(rotation), Some(centre)) = (input.rotations[i], positions.centres[i]) {
            *pose = Some(Pose::from_centre(rotation, &centre));
        }
    }
    RoughMap::adjusted(map, input, &tracks, options, control)
}

/// Adjusts poses of which the positions are only guessed, from all verified matches.
///
/// # Errors
/// [`crate::ErrorKind::Cancelled`].
pub(crate) fn adjust_start(
    map: Map,
    input: &MapperInput<'_>,
    options: &MapperOptions,
    control: &Control,
) -> Result<Map> {
    RoughMap::adjusted(map, input, &input.tracks(), options, control)?.narrowed(input, options, control)
}

/// Adjusts poses that are right but for their drift, from all verified matches: those among them that take it away fit only roughly.
///
/// # Errors
/// [`crate::ErrorKind::Cancelled`].
pub(crate) fn adjust_drift(
    map: Map,
    input: &MapperInput<'_>,
    options: &MapperOptions,
    control: &Control,
) -> Result<Map> {
    let mut rough = rough_map(map, input, options);
    rough.adjust(
        input,
        &BundleOptions { poses: PoseUnknowns::All, ..first_bundle(&options.global) },
        options,
        control,
    )?;
    rough.narrowed(input, options, control)
}

/// A map of known poses, from all verified matches.
pub(crate) fn rough_map(map: Map, input: &MapperInput<'_>, options: &MapperOptions) -> RoughMap {
    RoughMap::of(map, input, &input.tracks(), options)
}

/// How points are triangulated where errors may be `max_error` pixels.
fn limits(options: &MapperOptions, max_error: f64) -> TriangulationOptions {
    TriangulationOptions { max_error, min_angle: options.min_angle }
}

/// How a map is adjusted whose rotations may be trusted more than its positions.
fn first_bundle(options: &GlobalOptions) -> BundleOptions {
    BundleOptions {
        loss: options.first_loss,
        noise: ASSUMED_NOISE,
        rest: 0.0,
        stopping: options.first_stopping,
        poses: PoseUnknowns::Centres,
        intrinsics: RefineIntrinsics::default(),
        other_centres: Vec::new(),
    }
}

impl RoughMap {
    /// A map that needs no more than narrowing, and the longest of the `tracks`.
    fn of(map: Map, input: &MapperInput<'_>, tracks: &[Vec<Observation>], options: &MapperOptions) -> Self {
        let chosen = select_tracks(tracks, input.images(), options.global.adjustment_tracks);
        Self { map, tracks: chosen.into_iter().map(|t| tracks[t].clone()).collect() }
    }

    /// The map of guessed positions `map`: these are adjusted to the longest of the `tracks`, then the rotations too.
    fn adjusted(
        map: Map,
        input: &MapperInput<'_>,
        tracks: &[Vec<Observation>],
        options: &MapperOptions,
        control: &Control,
    ) -> Result<Self> {
        let mut rough = Self::of(map, input, tracks, options);
        let mut bundle = first_bundle(&options.global);
        rough.adjust(input, &bundle, options, control)?;
        bundle.poses = PoseUnknowns::All;
        adjust(&mut rough.map, input.keypoints, &bundle, control)?;
        Ok(rough)
    }

    /// Adjusts the map to tracks that may be off by what is allowed at first.
    fn adjust(
        &mut self,
        input: &MapperInput<'_>,
        bundle: &BundleOptions,
        options: &MapperOptions,
        control: &Control,
    ) -> Result<()> {
        let tolerance = options.global.first_tolerance.pixels(&input.camera);
        self.map.points =
            triangulate_tracks(&self.map, input.keypoints, &self.tracks, &limits(options, tolerance));
        adjust(&mut self.map, input.keypoints, bundle, control)?;
        Ok(())
    }

    /// The map, adjusted to ever nearer observations.
    ///
    /// # Errors
    /// [`crate::ErrorKind::Cancelled`].
    pub(crate) fn narrowed(
        self,
        input: &MapperInput<'_>,
        options: &MapperOptions,
        control: &Control,
    ) -> Result<Map> {
        let MapperOptions { max_error, min_angle, min_observations, global, .. } = options;
        let (Self { mut map, tracks }, keypoints) = (self, input.keypoints);
        let mut bundle = BundleOptions {
            stopping: global.stopping,
            poses: PoseUnknowns::All,
            intrinsics: RefineIntrinsics {
                focal: options.refine_focal,
                distortion: Some(options.distortion_prior),
                principal_point: None,
            },
            ..first_bundle(global)
        };
        for round in &global.rounds {
            let tolerance = round.tolerance.pixels(&input.camera).max(*max_error);
            map.points = triangulate_tracks(&map, keypoints, &tracks, &limits(options, tolerance));
            filter_images(&mut map, *min_observations);
            bundle.loss = Loss::Cauchy(round.loss_scale);
            adjust(&mut map, keypoints, &bundle, control)?;
        }
        filter_points(&mut map, keypoints, *max_error, *min_angle);
        filter_images(&mut map, *min_observations);
        Ok(map)
    }
}

fn find_positions(
    input: &MapperInput<'_>,
    tracks: &[Vec<Observation>],
    options: &GlobalOptions,
    seed: u64,
    control: &Control,
) -> Result<Positions> {
    let rays = keypoint_rays(&input.camera, &input.others, input.keypoints);
    // Two rays meet wherever the cameras are: only tracks of three images or more say where they are.
    let long: Vec<_> = tracks.iter().filter(|t| t.len() >= 3).cloned().collect();
    let chosen: Vec<_> = select_tracks(&long, input.images(), options.positioning_tracks)
        .into_iter()
        .map(|t| long[t].clone())
        .collect();
    let centres = initial_centres(input.rig, input.rotations, input.pairs, &rays);
    let start = Start::Centres(&centres);
    let mut best = position(input.rig, input.rotations, &rays, &chosen, start, control)?;
    for k in 0..options.random_starts {
        if best.agreeing >= options.good_agreement {
            break;
        }
        let start = Start::Random(hash(seed ^ k));
        let other = position(input.rig, input.rotations, &rays, &chosen, start, control)?;
        if other.agreeing > best.agreeing {
            best = other;
        }
    }
    Ok(best)
}
