//! The whole stage: frames in, a sparse model and its figures out.

use serde::{Deserialize, Serialize};

use crate::camera::{Camera, CameraModel, SparseModel};
use crate::control::{Control, Stage};
use crate::error::{Error, ErrorKind, Result};
use crate::video::Frames;

use super::features::FeatureOptions;
use super::front_end::{
    Pictures, absolute_rotations, initial_camera, match_pictures, read_pictures, relative_poses, vote_focal,
};
use super::gate;
use super::incremental::map_incrementally;
use super::map::{Map, median, quantile};
use super::mapper::{Evidence, MAX_ERROR, complete, map_globally, refine_principal_point};
use super::matching::PairMatches;
use super::output::{normalise, sparse_model};
use super::pairing::PairingOptions;
use super::report::{MappingMethod, SfmReport, Stopwatch, ranges};
use super::support::support_of_pairs;
use super::triangulation::Views as TriangulationViews;
use super::two_view::{TwoViewGeometry, TwoViewOptions, Views, verify_pairs};

/// How to reconstruct.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct SfmOptions {
    /// The mapper to begin with. [`MappingMethod::Global`] falls back to the incremental one where it finds no sound model.
    pub method: MappingMethod,
    /// The lens model of the camera, which all frames share.
    pub camera_model: CameraModel,
    /// Focal length in pixels of the frames, if known. It is refined.
    pub focal: Option<f64>,
    /// Whether the principal point may leave the image centre, where the capture determines it.
    pub refine_principal_point: bool,
    /// Features per frame at most, largest first.
    pub max_features: usize,
    /// Seed of everything random.
    pub seed: u64,
}

impl Default for SfmOptions {
    fn default() -> Self {
        Self {
            method: MappingMethod::Global,
            camera_model: CameraModel::SimpleRadial,
            focal: None,
            refine_principal_point: true,
            max_features: 8192,
            seed: 0,
        }
    }
}

impl SfmOptions {
    /// # Errors
    /// [`ErrorKind::InvalidArgument`] for a focal length that is not a positive number, or fewer than 100 features.
    pub fn validate(&self) -> Result<()> {
        if let Some(focal) = self.focal.filter(|f| !(f.is_finite() && *f > 0.0)) {
            return Err(Error::argument(format!(
                "the focal length is {focal}; it must be a positive number of pixels"
            )));
        }
        if !(100..=100_000).contains(&self.max_features) {
            return Err(Error::argument(format!(
                "max_features is {}; it must be 100 to 100000",
                self.max_features
            )));
        }
        Ok(())
    }
}

/// A sparse model and how it came about.
#[derive(Debug, Clone, PartialEq)]
pub struct Reconstruction {
    /// Camera, poses and points. The world is level (+y is down) and has no metric scale: a camera is 5 units (median) from
    /// what it sees, and the origin is the mean of the camera centres. Image ids are frame numbers plus 1.
    pub model: SparseModel,
    /// Figures.
    pub report: SfmReport,
}

/// Finds the camera, its poses and scene points from `frames`, which one camera with one focal length has made.
///
/// Blocks for seconds to minutes on the current rayon pool. The result does not depend on its number of threads.
///
/// # Errors
/// [`ErrorKind::InvalidArgument`]; [`ErrorKind::InvalidMedia`] if frames differ in size or cannot be read;
/// [`ErrorKind::TooFewFrames`], [`ErrorKind::InsufficientFeatures`], [`ErrorKind::InsufficientParallax`],
/// [`ErrorKind::PartialReconstruction`], [`ErrorKind::IntrinsicsUnreliable`],
/// [`ErrorKind::UnreliableReconstruction`] if no sound model can be made, with what to change in the hint;
/// [`ErrorKind::Cancelled`].
pub fn reconstruct(frames: &Frames, options: &SfmOptions, control: &Control) -> Result<Reconstruction> {
    run(frames, options, control).map_err(|e| e.at(Stage::Sfm))
}

fn run(frames: &Frames, options: &SfmOptions, control: &Control) -> Result<Reconstruction> {
    options.validate()?;
    gate::check_frames(frames)?;
    let mut watch = Stopwatch::new();
    let features = FeatureOptions { max_num_features: options.max_features, ..Default::default() };
    let pictures = read_pictures(frames, &features, control, 0.4)?;
    watch.lap("features");
    gate::check_features(&pictures.features, frames)?;
    control.progress(Stage::Sfm, "matching", 0.4);
    let sequential = frames.is_sequential();
    let matches = match_pictures(&pictures, sequential, &PairingOptions::default(), &control.part(0.4, 0.6))?;
    watch.lap("matching");

    control.progress(Stage::Sfm, "two-view geometry", 0.6);
    let (mut camera, known_focal) = initial_camera(frames, options);
    let two_view = TwoViewOptions { seed: options.seed, ..Default::default() };
    let views = Views {
        features: &pictures.features,
        camera_of: &vec![0; frames.frames.len()],
        cameras: &[camera.clone()],
    };
    let verified = verify_pairs(&views, &matches, &two_view, control)?;
    watch.lap("verification");
    let rotation_only = gate::rotation_only_pairs(&verified, &camera);
    gate::check_pairs(&verified, rotation_only, frames)?;
    if !known_focal {
        vote_focal(&mut camera, &verified);
    }
    watch.lap("calibration");
    let pairs = relative_poses(&pictures, &camera, &matches, &verified, &two_view, control)?;
    watch.lap("relative poses");

    let job = Job { frames, options, pictures: &pictures, matches: &matches, rotation_only };
    job.map_all(camera, pairs, watch, control)
}

/// What stays the same whichever mapper is tried.
struct Job<'a> {
    frames: &'a Frames,
    options: &'a SfmOptions,
    pictures: &'a Pictures,
    matches: &'a [PairMatches],
    rotation_only: f64,
}

/// Up to this many images the incremental path is cheap, and always tried too.
const FEW_IMAGES: usize = 40;
/// Where a smaller fraction of the verified matches agrees with the global map, the incremental path is tried too: maps in two
/// pieces of different scale pass every other figure.
const AGREEING: f64 = 0.93;

impl Job<'_> {
    fn map_all(
        &self,
        camera: Camera,
        pairs: Vec<TwoViewGeometry>,
        mut watch: Stopwatch,
        control: &Control,
    ) -> Result<Reconstruction> {
        let count = self.frames.frames.len();
        let mut consistent = pairs.clone();
        let rotations = absolute_rotations(count, &mut consistent, control)?;
        watch.lap("rotation averaging");
        let evidence = |pairs, rotations| Evidence {
            keypoints: &self.pictures.keypoints,
            matches: self.matches,
            pairs,
            camera: camera.clone(),
            rotations,
        };

        let mut best: Option<Result<(Map, SfmReport)>> = None;
        if self.options.method == MappingMethod::Global {
            control.progress(Stage::Sfm, "global mapping", 0.75);
            let evidence = evidence(&consistent, &rotations);
            let mut map = map_globally(&evidence, self.options.seed, control)?;
            watch.lap("global mapping");
            complete(&mut map, &evidence, control)?;
            watch.lap("refinement");
            best = Some(self.judge(map, MappingMethod::Global, &pairs));
        }
        let wanting = match &best {
            None | Some(Err(_)) => true,
            Some(Ok((_, report))) => count <= FEW_IMAGES || report.agreeing_matches < AGREEING,
        };
        if wanting {
            control.progress(Stage::Sfm, "incremental mapping", 0.85);
            let evidence = evidence(&pairs, &rotations);
            let mut map = map_incrementally(&evidence, control)?;
            watch.lap("incremental mapping");
            complete(&mut map, &evidence, control)?;
            watch.lap("refinement");
            let other = self.judge(map, MappingMethod::Incremental, &pairs);
            let better = match (&best, &other) {
                (None | Some(Err(_)), _) => true,
                (Some(Ok(_)), Err(_)) => false,
                (Some(Ok((a, _))), Ok((b, _))) => {
                    let quality = |m: &Map| gate::quality(m, &self.pictures.keypoints);
                    quality(b) > quality(a)
                }
            };
            if better {
                best = Some(other);
            }
        }
        let no_model = || Error::new(ErrorKind::Internal, "no mapper ran");
        let (mut map, mut report) = best.ok_or_else(no_model)??;
        if self.options.refine_principal_point {
            control.progress(Stage::Sfm, "principal point", 0.95);
            let evidence = evidence(&pairs, &rotations);
            let result = refine_principal_point(&mut map, &evidence, control)?;
            let method = report.method;
            (map, report) = self.judge(map, method, &pairs)?;
            report.principal_point_refined = result.refined;
            watch.lap("principal point");
        }
        normalise(&mut map);
        let model = sparse_model(&map, &self.pictures.keypoints, &self.pictures.colors, self.frames);
        watch.lap("output");
        report.times = watch.times();
        for warning in &report.warnings {
            control.warn(Stage::Sfm, warning.clone());
        }
        control.progress(Stage::Sfm, "done", 1.0);
        Ok(Reconstruction { model, report })
    }

    /// The figures of a map, if it is sound.
    fn judge(&self, map: Map, method: MappingMethod, pairs: &[TwoViewGeometry]) -> Result<(Map, SfmReport)> {
        let mut report = self.report(&map, method, pairs);
        report.warnings = gate::check_model(&report, &map, self.frames)?;
        Ok((map, report))
    }

    fn report(&self, map: &Map, method: MappingMethod, pairs: &[TwoViewGeometry]) -> SfmReport {
        let keypoints = &self.pictures.keypoints;
        let views = TriangulationViews::new(map, keypoints);
        let mut errors: Vec<f64> = map
            .points
            .iter()
            .flat_map(|p| p.track.iter().map(|o| views.squared_error(o, &p.xyz).sqrt()))
            .collect();
        let mut angles: Vec<f64> =
            map.points.iter().map(|p| views.widest_angle(&p.track, &p.xyz).to_degrees()).collect();
        let mut lengths: Vec<f64> = map.points.iter().map(|p| p.track.len() as f64).collect();
        let mut features: Vec<f64> = keypoints.iter().map(|k| k.len() as f64).collect();
        let mut seen: Vec<f64> = map
            .observations_by_image()
            .into_iter()
            .zip(&map.poses)
            .filter_map(|(n, pose)| pose.map(|_| n as f64))
            .collect();
        let support = support_of_pairs(map, keypoints, pairs, 2.0 * MAX_ERROR);
        let (agreeing, all) = support.iter().fold((0, 0), |sum, s| (sum.0 + s.agreeing, sum.1 + s.matches));
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
            principal_point_refined: false,
            warnings: Vec::new(),
            times: Vec::new(),
        }
    }
}
