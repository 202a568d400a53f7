//! A capture by several cameras: the pictures of one make a map, and those of the others join it. Where no camera made enough for that,
//! all are mapped at once.

use std::borrow::Cow;
use std::cmp::Reverse;

use crate::camera::Camera;
use crate::control::{Control, Warning};
use crate::error::{Error, ErrorKind, Result};
use crate::stage::Stage;

use super::{Candidate, Found, Reconstructor, ViewGraph};
use crate::sfm::bundle_adjustment::{BundleOptions, intrinsics_deviations, other_intrinsics_deviations};
use crate::sfm::completion::complete;
use crate::sfm::components::{Matched, Part};
use crate::sfm::filters::filter_images;
use crate::sfm::front_end::{InitialCameras, calibrated};
use crate::sfm::gate;
use crate::sfm::joining::{JoiningInput, join_cameras};
use crate::sfm::map::{Keypoints, Map, MapPoint, Observation};
use crate::sfm::options::{MappingMethod, SfmOptions};
use crate::sfm::other_cameras::OtherCameras;
use crate::sfm::path::{Trusted, is_ordered};
use crate::sfm::polishing::{PrincipalPoint, bundle_options, refine_lens};
use crate::sfm::progress;
use crate::sfm::reconstruction::Reconstruction;
use crate::sfm::report::{Attempt, CameraReport, Stopwatch, ranges};
use crate::sfm::rig::Rig;
use crate::sfm::two_view::TwoViewGeometry;

/// Cameras whose pictures are tried as the first, at most.
const LEADERS: usize = 3;
/// Fewer pictures make no map.
const LEAST: usize = 3;
/// Part of all pictures that must be placed where all are mapped at once, as it must be of those by one camera.
const LEAST_PLACED: f64 = 0.5;
/// Largest standard deviation of another camera's focal length, as a part of it: with a worse one the poses of its pictures are
/// anyone's guess. Chosen by hand.
const UNSURE_FOCAL: f64 = 0.03;

impl Reconstructor<'_> {
    /// Makes the model of a capture by several cameras.
    ///
    /// # Errors
    /// As [`crate::sfm::reconstruct`]: what is wrong with all pictures together.
    pub(super) fn reconstruct_several(
        capture: &Matched<'_>,
        initial: InitialCameras,
        options: &SfmOptions,
        mut watch: Stopwatch,
        control: &Control,
    ) -> Result<Reconstruction> {
        // The first camera made most.
        if initial.images_of(0).len() < LEAST {
            return Err(Error::new(ErrorKind::TooFewFrames, "no camera made three of the pictures")
                .hint("give at least three pictures by each camera"));
        }
        let mut of_first = None;
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
                    // What is wrong with most of the pictures is wrong with the capture.
                    let makes_most = leader == 0 && 2 * images.len() >= capture.frames.frames.len();
                    of_first = of_first.or(makes_most.then_some(error));
                }
            }
        }
        let of_all = Reconstructor::of_all(capture, initial, options, &mut watch, control);
        let (whole, found) = of_all.map_err(|error| match of_first {
            Some(first) if error.kind() != ErrorKind::Cancelled => first,
            _ => error,
        })?;
        whole.finish(found, watch, control)
    }

    /// The map of the pictures of all cameras at once: of a capture of which none made enough for a map of its own, as through a zoom
    /// lens. Each camera begins as `initial` has it. The one whose images the map is said to be of becomes the first of `self`, too.
    ///
    /// # Errors
    /// `PartialReconstruction` if fewer than half of all pictures find their place, and as [`gate::check_model`].
    fn at_once(
        &mut self,
        initial: InitialCameras,
        watch: &mut Stopwatch,
        control: &Control,
    ) -> Result<Found> {
        control.progress(Stage::Sfm, "relative poses", progress::RELATIVE_POSES);
        let mut start = Map::new(initial.cameras[0].clone(), &self.rig, self.frames.frames.len());
        start.others = initial.others();
        let graph = self.graph_of(&start, &initial, control)?;
        watch.lap("relative poses");
        let mut attempts = Vec::new();
        let Candidate { mut map, report, verdict, given_up, .. } =
            self.map(&graph, &mut attempts, watch, control)?;
        if given_up {
            verdict?;
        }
        self.check_share(&map)?;
        let initial = self.led_by_surest(&mut map, initial)?;
        self.leave_out_unsure(&mut map);
        self.check_share(&map)?;
        // From here on it is judged as one that other cameras join: with the lenses that were found, pictures that are missing may find
        // their place, and relative poses are exact.
        let found = self.joined_to(map, report.method, attempts, &initial, watch, control)?;
        self.check_share(&found.candidate.map)?;
        Ok(found)
    }

    /// # Errors
    /// `PartialReconstruction` if `map` has too few of all pictures, whichever camera made them.
    fn check_share(&self, map: &Map) -> Result<()> {
        let (placed, count) = (map.registered(), self.frames.frames.len());
        if placed >= LEAST && placed as f64 >= LEAST_PLACED * count as f64 {
            return Ok(());
        }
        let missing = ranges((0..map.poses.len()).filter(|&image| map.poses[image].is_none()));
        let message = format!(
            "only {placed} of {count} frames could be placed; not {}",
            gate::describe(&missing, self.frames)
        );
        Err(Error::new(ErrorKind::PartialReconstruction, message)
            .hint("take more pictures that show the same things, and several through each lens"))
    }

    /// Makes the camera the first of `map`, of `self` and of `initial` that made most images of `map`, of those whose focal length it
    /// tells: that of the first is not asked for later.
    ///
    /// # Errors
    /// `IntrinsicsUnreliable` if it tells that of none.
    fn led_by_surest(&mut self, map: &mut Map, initial: InitialCameras) -> Result<InitialCameras> {
        let bundle = bundle_options(map, &self.pictures.keypoints, &self.mapper, None);
        let impossible = gate::impossible_cameras(map, &self.known_focals);
        let may_lead = |&k: &usize| !impossible.contains(&k) && self.tells_focal(map, &bundle, k);
        let leader = (0..initial.cameras.len())
            .filter(may_lead)
            .max_by_key(|&k| (map.registered_by(k).count(), Reverse(k)));
        let Some(leader) = leader else {
            let message = format!(
                "{} pictures by {} cameras were placed, and they tell the focal length of none of these",
                map.registered(),
                initial.cameras.len()
            );
            return Err(Error::new(ErrorKind::IntrinsicsUnreliable, message)
                .hint("take more pictures through each lens, from more directions"));
        };
        let initial = initial.led_by(leader);
        self.known_focals.swap(0, leader);
        // The map has as many cameras as `initial`.
        let mut cameras: Vec<Camera> = map.cameras().cloned().collect();
        cameras.swap(0, leader);
        map.camera = cameras.remove(0);
        map.others = OtherCameras::new(cameras, &initial.of_image);
        Ok(initial)
    }

    /// The relative poses through the cameras of `map`, which made the images as `initial` says.
    fn graph_of(&self, map: &Map, initial: &InitialCameras, control: &Control) -> Result<ViewGraph> {
        let cameras: Vec<Camera> = map.cameras().cloned().collect();
        let pairs = self.relative_poses((&cameras, &initial.of_image), control)?;
        let is_ordered = is_ordered(&self.rig, &pairs);
        let (camera, others) = (map.camera.clone(), map.others.clone());
        let rotation_only = self.rotation_only_of(&pairs, &camera, &others);
        Ok(ViewGraph { camera, others, pairs, is_ordered, rotation_only })
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
        let graph = self.graph_of(&map, initial, control)?;
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
        let bundle = bundle_options(map, &self.pictures.keypoints, &self.mapper, None);
        for camera in 1..=map.others.cameras.len() {
            let own: Vec<usize> = map.registered_by(camera).collect();
            if !own.is_empty() && !self.tells_focal(map, &bundle, camera) {
                map.unregister(&own);
            }
        }
    }

    /// Whether `map`, adjusted so, tells the focal length of a camera (0 is the first one) that made some of its images.
    fn tells_focal(&self, map: &Map, bundle: &BundleOptions, camera: usize) -> bool {
        if map.registered_by(camera).next().is_none() {
            return false;
        }
        if !self.mapper.refine_focal {
            return true;
        }
        let keypoints = &self.pictures.keypoints;
        let deviations = match camera.checked_sub(1) {
            None => intrinsics_deviations(map, keypoints, bundle),
            Some(other) => other_intrinsics_deviations(map, keypoints, bundle, other),
        };
        let deviation = deviations.and_then(|all| all.iter().find(|d| d.0 == 0).map(|d| d.1));
        let focal = map.cameras().nth(camera).map_or(0.0, Camera::mean_focal);
        log::debug!("camera {camera}: focal length {focal} of deviation {deviation:?}");
        deviation.is_some_and(|sigma| sigma <= UNSURE_FOCAL * focal)
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

impl<'a> Reconstructor<'a> {
    /// That of a capture of which no camera by itself makes a map, and the map of all its pictures.
    ///
    /// # Errors
    /// As [`Reconstructor::at_once`] and [`gate::check_pairs`].
    fn of_all(
        capture: &Matched<'a>,
        initial: InitialCameras,
        options: &'a SfmOptions,
        watch: &mut Stopwatch,
        control: &Control,
    ) -> Result<(Self, Found)> {
        let rig = Rig::of_frames(capture.frames);
        let rotation_only = rotation_only_within(capture.verified, &initial);
        gate::check_pairs(&rig, capture.verified, rotation_only, capture.frames)?;
        let (initial, about_focal) = each_calibrated(capture, initial, control)?;
        watch.lap("calibration");
        let known = (rotation_only, initial.known_focals.clone());
        let mut whole = Self::new(capture, rig, known, options);
        whole.about_focal = about_focal;
        let found = whole.at_once(initial, watch, control)?;
        Ok((whole, found))
    }
}

/// The fraction of the verified pairs by one camera each that a rotation explains. Who turns on the spot and zooms makes pairs that no
/// rotation explains, so those by two cameras say nothing of it.
fn rotation_only_within(verified: &[TwoViewGeometry], initial: &InitialCameras) -> f64 {
    let (mut explained, mut all) = (0.0, 0.0);
    for (k, camera) in initial.cameras.iter().enumerate() {
        let is_own = |image: u32| initial.of_image.get(image as usize) == Some(&k);
        let is_within = |p: &&TwoViewGeometry| !p.inliers.is_empty() && is_own(p.first) && is_own(p.second);
        let own: Vec<&TwoViewGeometry> = verified.iter().filter(is_within).collect();
        let count = own.len() as f64;
        explained += count * gate::rotation_only_pairs(own, camera);
        all += count;
    }
    if all > 0.0 { explained / all } else { 0.0 }
}

/// The cameras, each with the focal length that its own pictures allow or tell ([`calibrated`]), and what is to be said of the first
/// that EXIF data are wrong about.
///
/// # Errors
/// `Cancelled`.
fn each_calibrated(
    capture: &Matched<'_>,
    mut initial: InitialCameras,
    control: &Control,
) -> Result<(InitialCameras, Option<Warning>)> {
    let mut about_focal = None;
    for k in 0..initial.cameras.len() {
        let part = Part::new(capture, &initial.images_of(k));
        let own = part.matched();
        let begun = calibrated(&initial, k, own.pictures, own.verified, control)?;
        about_focal = about_focal.or_else(|| begun.warning());
        initial.known_focals[k] = begun.known;
        initial.cameras[k] = begun.camera;
    }
    Ok((initial, about_focal))
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
    use crate::sfm::front_end::{Pictures, initial_cameras};
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

    /// How often each focal length of a zoom lens fits into that of its camera `k` of eight.
    fn zoom(k: usize) -> f64 {
        1.0 + 0.12 * k as f64
    }

    /// An orbit of 40 pictures through a zoom lens, each with another focal length than the seven after it.
    fn zoomed() -> Capture {
        let single = Capture::orbit(40, 2000, 0.3, 7);
        let lens = |k: usize| {
            let mut lens = single.camera.clone();
            lens.params[0] *= zoom(k);
            lens
        };
        let others = (1..8).map(lens).collect();
        single.with_other_cameras(others, |i| i % 8)
    }

    /// Maps the pictures of `capture` at once, by those of its pairs that `is_matched`, after none of the cameras made a map by itself.
    /// EXIF data say the focal lengths.
    fn at_once(
        capture: &Capture,
        is_matched: impl Fn(&TwoViewGeometry) -> bool,
    ) -> Result<(Vec<Option<f64>>, Map)> {
        let frame = |i: usize| Frame {
            camera: i as u32 % 8,
            focal_prior: Some(700.0 * zoom(i % 8)),
            ..Frame::new(format!("{i}.jpg"), i as u64, 800, 600)
        };
        let frames = Frames::of_images("", (0..capture.poses.len()).map(frame).collect());
        let pictures = capture.pictures();
        let mut pairs = capture.pairs(6);
        pairs.retain(is_matched);
        let (verified, matches) = Capture::with_matches(pairs);
        let matched = Matched {
            frames: &frames,
            pictures: &pictures,
            matches: &matches,
            verified: &verified,
            tags: None,
        };
        let (options, control) = (SfmOptions::default(), Control::new());
        let initial = initial_cameras(&frames, &options);
        for leader in 0..8 {
            let mut watch = Stopwatch::new();
            assert!(lead(&matched, &initial, leader, &options, &mut watch, &control).is_err(), "{leader}");
        }
        let (whole, found) =
            Reconstructor::of_all(&matched, initial, &options, &mut Stopwatch::new(), &control)?;
        Ok((whole.known_focals, found.candidate.map))
    }

    #[test]
    fn pictures_through_a_zoom_lens_of_which_no_focal_length_made_enough_become_one_map() {
        let capture = zoomed();
        let (known, map) = at_once(&capture, |_| true).unwrap();
        assert_eq!(map.registered(), 40);
        let (centres, rotations) = capture.errors(&map);
        assert!(centres < 0.02 && rotations < 0.3, "{centres} {rotations}");
        for i in 0..40 {
            let (found, truth) = (map.camera_of(i).mean_focal(), 700.0 * zoom(i % 8));
            assert!((found / truth - 1.0).abs() < 0.03, "{i}: {found} for {truth}");
            assert_eq!(known[map.others.index(i)], Some(truth), "{i}");
        }
    }

    #[test]
    fn a_capture_of_which_less_than_half_hangs_together_is_refused_as_a_whole() {
        // Beyond the first 14 each picture is matched with one other.
        let is_matched = |p: &TwoViewGeometry| {
            p.second < 14 || p.first >= 14 && p.first.is_multiple_of(2) && p.second == p.first + 1
        };
        let error = at_once(&zoomed(), is_matched).map(|(_, map)| map.registered()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::PartialReconstruction, "{error}");
        assert!(error.message().contains(" of 40 frames"), "{error}");
    }

    #[test]
    fn a_turn_on_the_spot_is_known_by_the_pairs_of_each_lens() {
        let (capture, frames) = (zoomed(), 40);
        let cameras: Vec<Camera> = capture.true_map().cameras().cloned().collect();
        let initial = InitialCameras {
            known_focals: vec![None; cameras.len()],
            is_of_exif: vec![false; cameras.len()],
            of_image: (0..frames).map(|i| i % 8).collect(),
            cameras,
        };
        // Nothing moved but the zoom.
        let still = |first: u32, second: u32| {
            let scale = zoom(second as usize % 8) / zoom(first as usize % 8);
            let mut homography = nalgebra::Matrix3::from_diagonal(&nalgebra::Vector3::new(scale, scale, 1.0));
            homography[(0, 2)] = 400.0 * (1.0 - scale);
            homography[(1, 2)] = 300.0 * (1.0 - scale);
            TwoViewGeometry {
                inliers: vec![[0, 0]; 20],
                homography: Some(homography),
                homography_inliers: 20,
                ..TwoViewGeometry::degenerate(first, second)
            }
        };
        let mut pairs: Vec<TwoViewGeometry> = (0..30).map(|i| still(i, i + 1)).collect();
        pairs.extend((0..30).map(|i| still(i, i + 8)));
        assert!(gate::rotation_only_pairs(&pairs, &capture.camera) < 0.6);
        assert_eq!(rotation_only_within(&pairs, &initial), 1.0);
    }
}
