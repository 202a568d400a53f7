//! A capture by several cameras: the pictures of one make a map, and those of the others join it.

use std::borrow::Cow;

use crate::camera::Camera;
use crate::control::{Control, Warning};
use crate::error::{Error, ErrorKind, Result};
use crate::stage::Stage;

use super::{Found, Reconstructor, ViewGraph};
use crate::sfm::bundle_adjustment::other_intrinsics_deviations;
use crate::sfm::completion::complete;
use crate::sfm::components::{Matched, Part};
use crate::sfm::front_end::{InitialCameras, calibrated};
use crate::sfm::gate;
use crate::sfm::joining::{JoiningInput, join_cameras};
use crate::sfm::map::{Map, MapPoint, Observation};
use crate::sfm::options::{MappingMethod, SfmOptions};
use crate::sfm::path::{Trusted, is_ordered};
use crate::sfm::polishing::bundle_options;
use crate::sfm::progress;
use crate::sfm::reconstruction::Reconstruction;
use crate::sfm::report::{Attempt, CameraReport, Stopwatch, ranges};
use crate::sfm::rig::Rig;

/// Cameras whose pictures are tried as the first, at most.
const LEADERS: usize = 3;
/// Fewer pictures make no map.
const LEAST: usize = 3;
/// Largest standard deviation of another camera's focal length, as a part of it: with a worse one the poses of its pictures are
/// anyone's guess. Chosen by hand.
const UNSURE_FOCAL: f64 = 0.03;

impl Reconstructor<'_> {
    /// Makes the model of a capture by several cameras.
    ///
    /// # Errors
    /// As [`crate::sfm::reconstruct`]: what is wrong with the pictures of the camera that made most.
    pub(super) fn reconstruct_several(
        capture: &Matched<'_>,
        initial: InitialCameras,
        options: &SfmOptions,
        mut watch: Stopwatch,
        control: &Control,
    ) -> Result<Reconstruction> {
        let mut first_error = None;
        for leader in 0..initial.cameras.len().min(LEADERS) {
            let images = initial.images_of(leader);
            if images.len() < LEAST {
                break;
            }
            match lead(capture, &initial, leader, options, &mut watch, control) {
                Ok(Led { found, known, about_focal }) => {
                    let initial = initial.led_by(leader);
                    let rig = Rig::of_frames(capture.frames);
                    let mut whole = Reconstructor::new(capture, rig, known, options);
                    whole.about_focal = about_focal;
                    let found = whole.joined(found, &images, &initial, &mut watch, control)?;
                    return whole.finish(found, watch, control);
                }
                Err(error) if error.kind() == ErrorKind::Cancelled => return Err(error),
                Err(error) => {
                    log::debug!("camera {leader}, {} pictures: {error}", images.len());
                    first_error.get_or_insert(error);
                }
            }
        }
        let too_few = || {
            Error::new(ErrorKind::TooFewFrames, "no camera made three of the pictures")
                .hint("give at least three pictures by each camera")
        };
        Err(first_error.unwrap_or_else(too_few))
    }

    /// `found`, a map of `images`, joined by the pictures of all other cameras that find their place; without them, if it
    /// would not be sound with them.
    fn joined(
        &self,
        found: Found,
        images: &[usize],
        initial: &InitialCameras,
        watch: &mut Stopwatch,
        control: &Control,
    ) -> Result<Found> {
        let Found { candidate, attempts, .. } = found;
        let alone = self.in_whole(&candidate.map, images, initial);
        self.joined_to(alone, candidate.report.method, attempts, initial, watch, control)
    }

    /// `alone`, a map of some images of the capture that was made so after these attempts, joined by all others that find their place;
    /// without them, if it would not be sound with them.
    pub(super) fn joined_to(
        &self,
        alone: Map,
        method: MappingMethod,
        mut attempts: Vec<Attempt>,
        initial: &InitialCameras,
        watch: &mut Stopwatch,
        control: &Control,
    ) -> Result<Found> {
        control.progress(Stage::Sfm, "other cameras", progress::OTHER_CAMERAS);
        let mut map = alone.clone();
        let input = JoiningInput {
            keypoints: &self.pictures.keypoints,
            matches: self.matches,
            verified: self.verified,
            known_focals: &initial.known_focals,
        };
        join_cameras(&mut map, &input, &self.mapper, control)?;
        let cameras: Vec<Camera> = map.cameras().cloned().collect();
        let pairs = self.relative_poses((&cameras, &initial.of_image), control)?;
        let is_ordered = is_ordered(&self.rig, &pairs);
        let (camera, others) = (map.camera.clone(), map.others.clone());
        let graph = ViewGraph { camera, others, pairs, is_ordered };
        let all = Trusted { pairs: Cow::Borrowed(&graph.pairs), matches: Cow::Borrowed(self.matches) };
        complete(&mut map, &self.input(&all, &graph), &self.mapper, control)?;
        self.leave_out_unsure(&mut map);
        let mut best = self.candidate(map, method, &all, &graph, &mut attempts);
        watch.lap("other cameras");
        // Pictures that joined one by one may have taken one place for another. Now that the lenses are known, all may be mapped
        // as one camera's are.
        if !best.verdict.as_ref().is_ok_and(Vec::is_empty) {
            log::debug!("one by one: {:?}", best.verdict);
            let mut other = self.map(&graph, &mut attempts, watch, control)?;
            self.leave_out_unsure(&mut other.map);
            other = self.candidate(other.map, other.report.method, &all, &graph, &mut attempts);
            if self.is_better(&other, &best) {
                best = other;
            }
        }
        let mut candidate = best;
        if let Err(why) = &candidate.verdict {
            log::debug!("with the pictures of the other cameras: {why}");
            candidate = self.candidate(alone, method, &all, &graph, &mut attempts);
        }
        match candidate.verdict {
            Ok(_) => Ok(Found { candidate, graph, attempts }),
            Err(why) => Err(why),
        }
    }

    /// `map`, whose images are `images` of the capture, as a map of the whole capture.
    fn in_whole(&self, map: &Map, images: &[usize], initial: &InitialCameras) -> Map {
        let mut whole = Map::new(map.camera.clone(), &self.rig, self.frames.frames.len());
        whole.others = initial.others();
        for (&image, pose) in images.iter().zip(&map.poses) {
            whole.poses[image] = *pose;
        }
        let renumbered = |o: &Observation| Observation::new(images[o.image as usize] as u32, o.keypoint);
        whole.points = map
            .points
            .iter()
            .map(|point| MapPoint { xyz: point.xyz, track: point.track.iter().map(renumbered).collect() })
            .collect();
        whole
    }

    /// Takes out the pictures of cameras whose focal length the capture does not tell.
    fn leave_out_unsure(&self, map: &mut Map) {
        let keypoints = &self.pictures.keypoints;
        let bundle = bundle_options(map, keypoints, &self.mapper, None);
        for other in 0..map.others.cameras.len() {
            let own: Vec<usize> = (0..map.poses.len())
                .filter(|&i| map.poses[i].is_some() && map.others.index(i) == other + 1)
                .collect();
            if own.is_empty() {
                continue;
            }
            let focal = map.others.cameras[other].mean_focal();
            let deviation = other_intrinsics_deviations(map, keypoints, &bundle, other)
                .and_then(|all| all.iter().find(|d| d.0 == 0).map(|d| d.1));
            log::debug!("another camera: focal length {focal} of deviation {deviation:?}");
            if deviation.is_none_or(|sigma| sigma > UNSURE_FOCAL * focal) && self.mapper.refine_focal {
                map.unregister(&own);
            }
        }
    }

    /// The cameras of `map` beside the one that made most pictures, those that have pictures with a pose.
    pub(super) fn other_cameras(map: &Map) -> Vec<CameraReport> {
        let of_camera = |(k, camera): (usize, &Camera)| {
            let own = || (0..map.poses.len()).filter(move |&i| map.others.index(i) == k + 1);
            let registered = own().filter(|&i| map.poses[i].is_some()).count();
            (registered > 0).then(|| CameraReport {
                images: ranges(own()),
                registered,
                camera_model: camera.model,
                camera_params: camera.params.clone(),
            })
        };
        map.others.cameras.iter().enumerate().filter_map(of_camera).collect()
    }
}

/// The map of the pictures of one camera.
struct Led {
    found: Found,
    /// What [`Reconstructor::new`] is told of them.
    known: (f64, Option<f64>),
    /// What is to be said of the focal length.
    about_focal: Option<Warning>,
}

fn lead(
    capture: &Matched<'_>,
    initial: &InitialCameras,
    leader: usize,
    options: &SfmOptions,
    watch: &mut Stopwatch,
    control: &Control,
) -> Result<Led> {
    let part = Part::new(capture, &initial.images_of(leader));
    let own = part.matched();
    let rotation_only = gate::rotation_only_pairs(own.verified, &initial.cameras[leader]);
    let rig = Rig::of_frames(own.frames);
    gate::check_pairs(&rig, own.verified, rotation_only, own.frames)?;
    let begun = calibrated(initial, leader, own.pictures, own.verified, control)?;
    watch.lap("calibration");
    let (known, about_focal) = ((rotation_only, begun.known), begun.warning());
    let reconstructor = Reconstructor::new(&own, rig, known, options);
    Ok(Led { found: reconstructor.find(begun.camera, watch, control)?, known, about_focal })
}
