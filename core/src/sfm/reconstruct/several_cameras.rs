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
use crate::sfm::filters::filter_images;
use crate::sfm::front_end::{InitialCameras, calibrated};
use crate::sfm::gate;
use crate::sfm::joining::{JoiningInput, join_cameras};
use crate::sfm::map::{Keypoints, Map, MapPoint, Observation};
use crate::sfm::options::{MappingMethod, SfmOptions};
use crate::sfm::path::{Trusted, is_ordered};
use crate::sfm::polishing::{PrincipalPoint, bundle_options, refine_lens};
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
                Ok(Led { found, rotation_only, known_focal, about_focal }) => {
                    let initial = initial.led_by(leader);
                    let rig = Rig::of_frames(capture.frames);
                    // What EXIF says of the leader was held against its pictures; of the others it is taken as it is.
                    let mut known_focals = initial.known_focals.clone();
                    if let Some(known) = known_focals.first_mut() {
                        *known = known_focal;
                    }
                    let known = (rotation_only, known_focals);
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
        let rotation_only = self.rotation_only_of(&pairs, &camera, &others);
        let graph = ViewGraph { camera, others, pairs, is_ordered, rotation_only };
        let all = Trusted { pairs: Cow::Borrowed(&graph.pairs), matches: Cow::Borrowed(self.matches) };
        complete(&mut map, &self.input(&all, &graph), &self.mapper, control)?;
        self.leave_out_unsure(&mut map);
        let mut best = self.candidate(map, method, &all, &graph, &mut attempts);
        watch.lap("other cameras");
        if let Some(base) = self.base {
            base.check_placed(|i| best.map.poses[i].is_some())?;
        }
        // Pictures that joined one by one may have taken one place for another. Now that the lenses are known, all may be mapped
        // as one camera's are.
        if self.is_to_be_mapped_anew(&best) {
            log::debug!("one by one: {:?}", best.verdict);
            let mut other = self.map(&graph, &mut attempts, watch, control)?;
            self.leave_out_unsure(&mut other.map);
            other = self.candidate(other.map, other.report.method, &all, &graph, &mut attempts);
            let is_of_base = self.base.is_none_or(|base| base.is_in(&other.map.poses));
            if is_of_base && self.is_better(&other, &best) {
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

    /// [`refine_lens`] without the pictures of other cameras that come out of it as none can be: with them the rest is bent.
    ///
    /// # Errors
    /// As [`refine_lens`].
    pub(super) fn refine_possible(
        &self,
        map: &mut Map,
        keypoints: &Keypoints,
        may_move: bool,
        control: &Control,
    ) -> Result<Vec<Option<PrincipalPoint>>> {
        loop {
            let unrefined = (!map.others.cameras.is_empty()).then(|| map.clone());
            let centres = refine_lens(map, keypoints, &self.mapper, may_move, control)?;
            let impossible = self.leave_out_impossible(map);
            let Some(before) = unrefined.filter(|_| !impossible.is_empty()) else { return Ok(centres) };
            // Each has pictures there: fewer are left each time round.
            let out: Vec<usize> =
                impossible.iter().flat_map(|&camera| before.registered_by(camera)).collect();
            *map = before;
            map.unregister(&out);
            filter_images(map, self.mapper.min_observations);
        }
    }

    /// Takes out the pictures of other cameras that came out as none can be, lest they cost all the others their model. Which cameras
    /// these are: `k + 1` for `map.others.cameras[k]`.
    fn leave_out_impossible(&self, map: &mut Map) -> Vec<usize> {
        let mut impossible = gate::impossible_cameras(map, &self.known_focals);
        // Without the first there is no map.
        impossible.retain(|&camera| camera > 0);
        if impossible.is_empty() {
            return impossible;
        }
        log::debug!(
            "cameras that cannot be what they came out as: {impossible:?} of {:?}",
            map.others.cameras
        );
        let is_own = |&image: &usize| impossible.contains(&map.others.index(image));
        let own: Vec<usize> = (0..map.poses.len()).filter(is_own).collect();
        map.unregister(&own);
        filter_images(map, self.mapper.min_observations);
        impossible
    }

    /// Takes out the pictures of other cameras that came out as none can be, and of those whose focal length the capture does not
    /// tell.
    fn leave_out_unsure(&self, map: &mut Map) {
        // First: they bend what is asked of the others.
        self.leave_out_impossible(map);
        let keypoints = &self.pictures.keypoints;
        let bundle = bundle_options(map, keypoints, &self.mapper, None);
        for other in 0..map.others.cameras.len() {
            let own: Vec<usize> = map.registered_by(other + 1).collect();
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
    /// The fraction of its verified pairs that a rotation explains.
    rotation_only: f64,
    /// The focal length in pixels, if it is known.
    known_focal: Option<f64>,
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
    let (known_focal, about_focal) = (begun.known, begun.warning());
    let reconstructor = Reconstructor::new(&own, rig, (rotation_only, vec![known_focal]), options);
    let found = reconstructor.find(begun.camera, watch, control)?;
    Ok(Led { found, rotation_only, known_focal, about_focal })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::camera::CameraModel;
    use crate::sfm::front_end::Pictures;
    use crate::sfm::other_cameras::OtherCameras;
    use crate::sfm::synthetic::Capture;
    use crate::video::{Frame, Frames};

    /// A walk of which three cameras took turns to take the pictures; the second and the third have this lens.
    fn by_three(lens: &Camera) -> (Capture, Map) {
        let capture = Capture::walk(24, 2500, 0.3, 5).with_other_camera(lens.clone(), |i| i % 3 > 0);
        let mut map = capture.true_map_with_points();
        let of_image: Vec<usize> = (0..24).map(|i| i % 3).collect();
        map.others = OtherCameras::new(vec![lens.clone(); 2], &of_image);
        (capture, map)
    }

    /// What a reconstructor of `capture` that knows these focal lengths does.
    fn asked<T>(
        capture: &Capture,
        known_focals: &[Option<f64>],
        ask: impl FnOnce(&Reconstructor<'_>) -> T,
    ) -> T {
        let count = capture.poses.len();
        let of = |i: usize| Frame::new(format!("{i}.jpg"), i as u64, 800, 600);
        let frames = Frames::of_images("", (0..count).map(of).collect());
        let pictures =
            Pictures { features: Vec::new(), keypoints: capture.keypoints.clone(), colors: Vec::new() };
        let matched =
            Matched { frames: &frames, pictures: &pictures, matches: &[], verified: &[], tags: None };
        let (rig, options) = (Arc::clone(&capture.rig), SfmOptions::default());
        ask(&Reconstructor::new(&matched, rig, (0.0, known_focals.to_vec()), &options))
    }

    #[test]
    fn a_lens_that_none_can_be_costs_its_own_pictures_only() {
        let lens = Camera::from_focal(CameraModel::SimpleRadial, 980.0, 1200, 900);
        let (capture, sound) = by_three(&lens);
        let mut bent = sound.clone();
        bent.others.cameras[1].params[3] = -0.9;
        for (mut map, left) in [(sound, 3), (bent, 2)] {
            asked(&capture, &[None; 3], |reconstructor| reconstructor.leave_out_unsure(&mut map));
            (0..24).for_each(|i| assert_eq!(map.poses[i].is_some(), i % 3 < left, "{i} {left}"));
        }
    }

    #[test]
    fn a_lens_that_none_can_be_bends_no_other() {
        let (capture, mut map) = by_three(&Camera::from_focal(CameraModel::SimpleRadial, 7000.0, 1200, 900));
        let mut alone = map.clone();
        alone.unregister(&(0..24).filter(|i| i % 3 > 0).collect::<Vec<_>>());
        asked(&capture, &[None; 3], |reconstructor| {
            for map in [&mut map, &mut alone] {
                let centres =
                    reconstructor.refine_possible(map, &capture.keypoints, true, &Control::new()).unwrap();
                assert!(centres[0].is_some() && centres[1].is_none() && centres[2].is_none());
            }
        });
        assert!((0..24).all(|i| map.poses[i].is_some() == (i % 3 == 0)));
        assert_eq!(map.camera, alone.camera);
    }

    #[test]
    fn a_telephoto_lens_stays_where_it_is_known() {
        let (capture, mut map) = by_three(&Camera::from_focal(CameraModel::SimpleRadial, 980.0, 1200, 900));
        map.others.cameras[0].params[0] = 7000.0;
        let left_out = |map: &mut Map, known_focals: &[Option<f64>]| {
            asked(&capture, known_focals, |reconstructor| reconstructor.leave_out_impossible(map))
        };
        assert_eq!(left_out(&mut map, &[None, Some(6900.0), None]), Vec::<usize>::new());
        assert_eq!(map.registered(), 24);
        assert_eq!(left_out(&mut map, &[None, None, Some(6900.0)]), [1]);
        assert!(map.registered() == 16 && (0..24).all(|i| map.poses[i].is_some() == (i % 3 != 1)));
    }
}
