//! The global mapper: from rotations and verified pairs to a map of all images at once.

use crate::camera::{Camera, Pose};
use crate::control::Control;
use crate::error::Result;
use crate::random::hash;

use super::bundle_adjustment::{ASSUMED_NOISE, BundleOptions, RefineIntrinsics, adjust};
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

/// Maps all images that have a rotation at once.
///
/// # Errors
/// [`crate::ErrorKind::Cancelled`].
pub(crate) fn map_globally(
    input: &MapperInput<'_>,
    options: &MapperOptions,
    seed: u64,
    control: &Control,
) -> Result<Map> {
    let mut map = input.empty_map();
    let tracks = input.tracks();
    let positions = find_positions(input, &tracks, &options.global, seed, control)?;
    for (i, pose) in map.poses.iter_mut().enumerate() {
        if let (Some(rotation), Some(centre)) = (input.rotations[i], positions.centres[i]) {
            *pose = Some(Pose::from_centre(rotation, &centre));
        }
    }
    adjust_start(&mut map, input, &tracks, options, control)?;
    Ok(map)
}

/// Adjusts poses of which the positions are only guessed, from the tracks of all verified matches.
///
/// # Errors
/// [`crate::ErrorKind::Cancelled`].
pub(crate) fn adjust_start(
    map: &mut Map,
    input: &MapperInput<'_>,
    tracks: &[Vec<Observation>],
    options: &MapperOptions,
    control: &Control,
) -> Result<()> {
    let MapperOptions { max_error, min_angle, min_observations, global, .. } = options;
    let keypoints = input.keypoints;
    let chosen: Vec<_> = select_tracks(tracks, input.images(), global.adjustment_tracks)
        .into_iter()
        .map(|t| tracks[t].clone())
        .collect();
    // Begin with what is near enough, then narrow down.
    let limits = |max_error: f64| TriangulationOptions { max_error, min_angle: *min_angle };
    let first = global.first_tolerance.pixels(&input.camera);
    map.points = triangulate_tracks(map, keypoints, &chosen, &limits(first));
    let mut bundle = BundleOptions {
        loss: global.first_loss,
        noise: ASSUMED_NOISE,
        rest: 0.0,
        stopping: global.first_stopping,
        rotations: false,
        intrinsics: RefineIntrinsics::default(),
        other_centres: Vec::new(),
    };
    adjust(map, keypoints, &bundle, control)?;
    bundle.rotations = true;
    adjust(map, keypoints, &bundle, control)?;
    bundle.intrinsics = RefineIntrinsics {
        focal: options.refine_focal,
        distortion: Some(options.distortion_prior),
        principal_point: None,
    };
    bundle.stopping = global.stopping;
    for round in &global.rounds {
        let limits = limits(round.tolerance.pixels(&input.camera).max(*max_error));
        map.points = triangulate_tracks(map, keypoints, &chosen, &limits);
        filter_images(map, *min_observations);
        bundle.loss = Loss::Cauchy(round.loss_scale);
        adjust(map, keypoints, &bundle, control)?;
    }
    filter_points(map, keypoints, *max_error, *min_angle);
    filter_images(map, *min_observations);
    Ok(())
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
