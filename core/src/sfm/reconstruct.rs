//! The whole stage: frames in, a sparse model and its figures out.

mod added_frames;
mod attempts;
mod figures;
mod model;
mod other_focals;
mod several_cameras;

use std::path::Path;
use std::sync::Arc;

use crate::camera::{Camera, SparseModel};
use crate::control::{Control, Warning};
use crate::error::{Error, ErrorKind, Result};
use crate::fiducial::{Tags, detect_tags};
use crate::memory::Memory;
use crate::stage::Stage;
use crate::video::Frames;

use super::base_model::Base;
use super::components::{Matched, add_components, frames_elsewhere};
use super::features::FeatureOptions;
use super::fisheye::as_fisheye;
use super::front_end::{
    Pictures, calibrated, initial_cameras, leading_camera, read_pictures, relative_poses,
};
use super::gate;
use super::kept::{Kept, KeptPairs};
use super::map::Map;
use super::mapper_options::MapperOptions;
use super::matching::PairMatches;
use super::memory_needed;
use super::object_features::{ObjectMasks, keep_object};
use super::options::SfmOptions;
use super::other_cameras::OtherCameras;
use super::pairs_of_pictures::{MatchingOptions, find_matches, find_verified};
use super::path::{cuts, is_cut_between, is_ordered};
use super::progress;
use super::reconstruction::Reconstruction;
use super::report::{Attempt, SfmReport, Stopwatch};
use super::rig::Rig;
use super::spots::Spots;
use super::two_view::{TwoViewGeometry, TwoViewOptions};
use super::verdict::{Doubt, Grade};
use other_focals::{explains_more, may_have_a_wrong_focal, other_starts};

/// Finds the cameras, their poses and scene points from `frames`. Which camera made each is known ([`crate::video::Frame::camera`]);
/// while it did, its focal length did not change.
///
/// Blocks for seconds to minutes on the current rayon pool. The result does not depend on its number of threads.
///
/// # Errors
/// [`ErrorKind::InvalidArgument`]; [`ErrorKind::InvalidMedia`] if frames differ in size or cannot be read;
/// [`ErrorKind::TooFewFrames`], [`ErrorKind::InsufficientFeatures`], [`ErrorKind::InsufficientParallax`],
/// [`ErrorKind::PartialReconstruction`], [`ErrorKind::IntrinsicsUnreliable`],
/// [`ErrorKind::UnreliableReconstruction`] if no sound model can be made, with what to change in the hint;
/// [`ErrorKind::Cancelled`].
///
/// With [`SfmOptions::apriltag_size_mm`] tags are looked for in the frames as they are stored. If these were made from
/// a larger source, [`crate::fiducial::detect_tags`] finds more, and more exactly: [`reconstruct_with_tags`].
pub fn reconstruct(frames: &Frames, options: &SfmOptions, control: &Control) -> Result<Reconstruction> {
    let tags = || -> Result<Option<Tags>> {
        options.validate()?;
        if options.apriltag_size_mm.is_none() {
            return Ok(None);
        }
        detect_tags(frames, None, &control.part(0.0, 0.0)).map(Some)
    };
    let found = tags()
        .and_then(|tags| run(frames, &Given { tags: tags.as_ref(), ..Given::default() }, options, control));
    found.map(|(model, _)| model).map_err(|e| e.at(Stage::Sfm))
}

/// Like [`reconstruct`], with the tags that [`crate::fiducial::detect_tags`] found in the frames. They are used if the
/// options give their size.
///
/// # Errors
/// As for [`reconstruct`]; [`ErrorKind::InvalidArgument`] if `tags` are not those of these frames.
pub fn reconstruct_with_tags(
    frames: &Frames,
    tags: &Tags,
    options: &SfmOptions,
    control: &Control,
) -> Result<Reconstruction> {
    let given = Given { tags: Some(tags), ..Given::default() };
    run(frames, &given, options, control).map(|(model, _)| model).map_err(|e| e.at(Stage::Sfm))
}

/// Like [`reconstruct_with_tags`], from the features on the object alone. Where these are too few, or give no sound
/// model, it is made of all features after all; the error then says why.
///
/// # Errors
/// As for [`reconstruct_with_tags`]; [`ErrorKind::InvalidArgument`] unless there is a mask for every frame.
pub fn reconstruct_object(
    frames: &Frames,
    tags: Option<&Tags>,
    object: ObjectMasks<'_>,
    options: &SfmOptions,
    control: &Control,
) -> Result<(Reconstruction, Option<Error>)> {
    let given = Given { tags, object: Some(object), ..Given::default() };
    reconstruct_given(frames, &given, options, control)
}

/// Adds frames to `base`, a model of some of `frames`: those that have the names of its images. The others find their place in it,
/// whichever camera made them, and all of it is adjusted. What is handed over is the model of all `frames` in the world of `base`,
/// with its unit of length unless tags give metres.
///
/// The first frames are not mapped again, unless the model contradicts what the new ones show: features are extracted and matched, the
/// poses and lenses of `base` are where the adjustment begins. New frames that find no place are no such contradiction. With the tags
/// that [`crate::fiducial::detect_tags`] found in the frames, if there are any.
///
/// Frames that `base` had left out may find their place now, but are not new. Which these are, [`Given::earlier`] tells. Here the cameras
/// do: new are the frames by cameras that made no image of `base`, or, if there are none, all that have no image in it.
///
/// # Errors
/// As for [`reconstruct`]; [`ErrorKind::InvalidArgument`] if `base` is not of these frames, or of 360° pictures;
/// [`ErrorKind::PartialReconstruction`] if none of the new frames finds its place.
pub fn add_to_model(
    frames: &Frames,
    base: &SparseModel,
    tags: Option<&Tags>,
    options: &SfmOptions,
    control: &Control,
) -> Result<Reconstruction> {
    let given = Given { tags, base: Some(base), ..Given::default() };
    run(frames, &given, options, control).map(|(model, _)| model).map_err(|e| e.at(Stage::Sfm))
}

/// What there may be beside the frames.
#[derive(Clone, Copy, Default)]
pub struct Given<'a> {
    /// As for [`reconstruct_with_tags`].
    pub tags: Option<&'a Tags>,
    /// As for [`reconstruct_object`]. A model that is added to is made of what surrounds the object, too: with a base model
    /// masks are not used.
    pub object: Option<ObjectMasks<'a>>,
    /// As for [`add_to_model`].
    pub base: Option<&'a SparseModel>,
    /// The frames that `base` was made of, those that it left out, too: all others are new. Their names alone count.
    pub earlier: Option<&'a Frames>,
    /// A folder in which features, matches and verified pairs are kept as soon as they are found. A run that was stopped goes on from
    /// them when it is started again with the same folder; its result is that of a run that was never stopped, to the bit. What is
    /// of other pictures or options, of another version, or torn is found anew. About a megabyte a frame; the folder is the
    /// caller's to remove.
    pub keep_in: Option<&'a Path>,
}

/// Like [`reconstruct`], with all that there is. With masks, where all features were needed after all, the error says why.
///
/// # Errors
/// As for [`reconstruct`] and the functions that [`Given`] names; those of making the folder to keep things in. What cannot be written
/// there is no error: it is found anew if the run is stopped.
pub fn reconstruct_given(
    frames: &Frames,
    given: &Given<'_>,
    options: &SfmOptions,
    control: &Control,
) -> Result<(Reconstruction, Option<Error>)> {
    run(frames, given, options, control).map_err(|e| e.at(Stage::Sfm))
}

fn run(
    frames: &Frames,
    given: &Given<'_>,
    options: &SfmOptions,
    control: &Control,
) -> Result<(Reconstruction, Option<Error>)> {
    let control = &control.with_remaining_time();
    options.validate()?;
    gate::check_frames(frames)?;
    let &Given { tags, object, base, earlier, keep_in } = given;
    let object = object.filter(|_| base.is_none());
    let base = base.map(|model| Base::of(model, frames, earlier)).transpose()?;
    if let Some(tags) = tags {
        check_tags(tags, frames, options)?;
    }
    if let Some(object) = object {
        object.check(frames)?;
    }
    let mut watch = Stopwatch::new();
    let features = FeatureOptions { max_num_features: options.max_features, ..Default::default() };
    let kept = match keep_in {
        Some(folder) => Kept::open(folder, frames, &features, control)?,
        None => Kept::nowhere(),
    };
    let pictures = read_pictures(frames, &features, &kept, control, progress::MATCHING)?;
    watch.lap("features");
    if let Some(warning) = memory_needed::warning(&pictures.features, Memory::of_this_machine().free) {
        control.warn(Stage::Sfm, warning);
    }
    let matching = MatchingOptions::default();
    let of = |pictures: Pictures, object: Option<ObjectMasks<'_>>, watch: Stopwatch| {
        let kept = kept.pairs(frames, object.map(|object| object.masks), &matching)?;
        reconstruct_pictures(frames, pictures, tags, base.as_ref(), &matching, &kept, options, watch, control)
    };
    let Some(object) = object else {
        return Ok((finish(of(pictures, None, watch)?, control), None));
    };
    let of_object = keep_object(&pictures, frames, object)
        .and_then(|on_object| of(on_object, Some(object), watch.clone()));
    let found = match of_object {
        Ok(found) => (found, None),
        Err(error) if error.kind() == ErrorKind::Cancelled => return Err(error),
        Err(why) => {
            watch.lap("object alone");
            (of(pictures, None, watch)?, Some(why))
        }
    };
    Ok((finish(found.0, control), found.1))
}

/// Tells that it is done, and what the user should know.
fn finish(found: Reconstruction, control: &Control) -> Reconstruction {
    for warning in &found.report.warnings {
        control.warn(Stage::Sfm, warning.clone());
    }
    control.progress(Stage::Sfm, "done", 1.0);
    found
}

/// Everything after the features.
fn reconstruct_pictures(
    frames: &Frames,
    mut pictures: Pictures,
    tags: Option<&Tags>,
    base: Option<&Base<'_>>,
    matching: &MatchingOptions,
    kept: &KeptPairs<'_>,
    options: &SfmOptions,
    mut watch: Stopwatch,
    control: &Control,
) -> Result<Reconstruction> {
    gate::check_features(&pictures.features, frames)?;
    let matches = find_matches(frames, &pictures, matching, kept, control)?;
    pictures.forget_descriptors();
    watch.lap("matching");
    let initial = initial_cameras(frames, options);
    let two_view = two_view_options(options);
    let verified = find_verified(&pictures, &matches, &initial, &two_view, kept, control)?;
    watch.lap("verification");
    let rig = Rig::of_frames(frames);
    let sequential = frames.is_sequential();
    let whole = Matched { frames, pictures: &pictures, matches: &matches, verified: &verified, tags };
    let cuts = match sequential && base.is_none() {
        true => cuts(&rig, &Spots::of_stations(&rig), &verified),
        false => Vec::new(),
    };
    log::debug!("cuts after frames {cuts:?}");
    let falls_apart = |found: &Result<Reconstruction>| {
        let few =
            |model: &Reconstruction| (model.report.registered as f64) < MOST * model.report.frames as f64;
        !cuts.is_empty() && doubt(found) == Grade::Broken && found.as_ref().is_ok_and(few)
    };
    let found = match base {
        Some(base) => Reconstructor::reconstruct_onto(base, &whole, options, watch, control),
        // What places that do not belong together make of the lens no other focal length mends: these are for the clips by themselves.
        None => reconstruct_matched(&whole, options, falls_apart, watch, control),
    };
    let mut watch = Stopwatch::new();
    let joined = |a: u32, b: u32| !is_cut_between(&cuts, a, b);
    let (own_matches, own_verified);
    let (mut found, capture) = if cuts.is_empty() || !may_be_two_places(&found) {
        (found?, whole)
    } else {
        // What the clips seem to share may be what two places have in common: is each by itself without such doubt?
        own_matches = matches.iter().filter(|m| joined(m.first, m.second)).cloned().collect::<Vec<_>>();
        own_verified = verified.iter().filter(|p| joined(p.first, p.second)).cloned().collect::<Vec<_>>();
        let clips = Matched { matches: &own_matches, verified: &own_verified, ..whole };
        let apart = reconstruct_matched(&clips, options, |_| false, Stopwatch::new(), control);
        watch.lap("clips apart");
        match apart {
            Err(error) if error.kind() == ErrorKind::Cancelled => return Err(error),
            apart if doubt(&apart) < doubt(&found) && has_most(&apart, &found, &own_verified) => {
                (apart?, clips)
            }
            _ => (found?, whole),
        }
    };
    let reconstruct = |part: &Matched<'_>, control: &Control| {
        let options = options_of_part(options, frames, part.frames);
        reconstruct_matched(part, &options, |_| false, Stopwatch::new(), control)
    };
    add_components(&mut found, &capture, reconstruct, control)?;
    watch.lap("other places");
    found.report.times.extend(watch.times());
    Ok(found)
}

/// Clips that have less than this share of the frames of the model of the whole have lost something, and so has a model of less of all frames.
const MOST: f64 = 0.8;

/// Whether the model of one of several clips and the other clips, which become models of their own, have most of the frames that the model
/// of the whole has: a piece of it is easily free of doubt.
fn has_most(
    apart: &Result<Reconstruction>,
    whole: &Result<Reconstruction>,
    of_clips: &[TwoViewGeometry],
) -> bool {
    let (Ok(apart), Ok(whole)) = (apart, whole) else { return true };
    let placed: Vec<bool> =
        (1..).take(apart.report.frames).map(|id| apart.model.images.contains_key(&id)).collect();
    let of_all = apart.report.registered + frames_elsewhere(&placed, of_clips);
    MOST * whole.report.registered as f64 <= of_all as f64
}

/// The options for the frames of another place. What is asked of the model that is wanted must not cost this one, and the focal length is
/// that of the camera that made most of all frames.
fn options_of_part(options: &SfmOptions, all: &Frames, part: &Frames) -> SfmOptions {
    let focal = options.focal.filter(|_| leading_camera(part) == leading_camera(all));
    SfmOptions { require_scale: false, strict: false, focal, ..options.clone() }
}

/// Whether there is no model, or one that may have taken one place for another and whose parts may leave less doubt. To take one
/// apart whose poses are only imprecise would lose half of the capture: shorter parts are always more precise, but where that is
/// because of the lens, of which they tell less.
fn may_be_two_places(found: &Result<Reconstruction>) -> bool {
    let Ok(model) = found else { return true };
    let Some(verdict) = &model.report.verdict else { return false };
    let is_of_two =
        |doubt| matches!(doubt, Doubt::MissingOverlap | Doubt::ContradictingPairs | Doubt::LooseParts);
    verdict.reasons.iter().any(|r| is_of_two(r.doubt)) && verdict.grade_by_lens() < doubt(found)
}

/// How grave the doubts about a model are, but for that it leaves frames out; the gravest where there is none.
fn doubt(found: &Result<Reconstruction>) -> Grade {
    let Ok(found) = found else { return Grade::Broken };
    let reasons = found.report.verdict.iter().flat_map(|verdict| &verdict.reasons);
    reasons.filter(|r| r.doubt != Doubt::FewFrames).map(|r| r.grade).max().unwrap_or(Grade::Good)
}

fn two_view_options(options: &SfmOptions) -> TwoViewOptions {
    TwoViewOptions { seed: options.seed, ..Default::default() }
}

/// Everything after the verified pairs. Other focal lengths are not begun with where what was found `is_mended_otherwise`.
pub(super) fn reconstruct_matched(
    capture: &Matched<'_>,
    options: &SfmOptions,
    is_mended_otherwise: impl Fn(&Result<Reconstruction>) -> bool,
    mut watch: Stopwatch,
    control: &Control,
) -> Result<Reconstruction> {
    let initial = initial_cameras(capture.frames, options);
    if initial.cameras.len() > 1 {
        return Reconstructor::reconstruct_several(capture, initial, options, watch, control);
    }
    // Frames have a camera, as many as there are.
    let rotation_only = gate::rotation_only_pairs(capture.verified, &initial.cameras[0]);
    let rig = Rig::of_frames(capture.frames);
    gate::check_pairs(&rig, capture.verified, rotation_only, capture.frames)?;
    let begun = calibrated(&initial, 0, capture.pictures, capture.verified, control)?;
    watch.lap("calibration");
    let mut reconstructor = Reconstructor::new(capture, rig, (rotation_only, vec![begun.known]), options);
    reconstructor.about_focal = begun.warning();
    reconstructor.may_show_other_places = true;
    let mut attempt = |camera: Camera| {
        let found = reconstructor.find(camera, &mut watch, control)?;
        reconstructor.model_of(found, &mut watch, control)
    };
    let is_known = begun.known.is_some();
    let others = other_starts(&begun.camera);
    let mut best = attempt(begun.camera);
    for camera in others {
        if is_known || !may_have_a_wrong_focal(&best) || is_mended_otherwise(&best) {
            break;
        }
        log::debug!("begins again with a focal length of {:.0}", camera.mean_focal());
        match attempt(camera) {
            Err(error) if error.kind() == ErrorKind::Cancelled => return Err(error),
            other if explains_more(&other, &best) => best = other,
            _ => {}
        }
    }
    let mut best = best?;
    best.report.times = watch.times();
    reconstructor.accepted(best)
}

/// # Errors
/// `InvalidArgument` for tags of other frames; where a scale is required and no tag was found,
/// `UnreliableReconstruction` now rather than after all the work.
fn check_tags(tags: &Tags, frames: &Frames, options: &SfmOptions) -> Result<()> {
    let same = tags.frames.len() == frames.frames.len()
        && tags.frames.iter().zip(&frames.frames).all(|(t, f)| t.name == f.name);
    if !same {
        return Err(Error::argument(format!(
            "the tags are those of {} other frames: look for tags in these {}",
            tags.frames.len(),
            frames.frames.len()
        )));
    }
    if options.require_scale && tags.count() == 0 {
        return Err(scale_missing(&format!(
            "no AprilTag of the family tagStandard41h12 is in any of the {} frames",
            frames.frames.len()
        )));
    }
    Ok(())
}

/// A scale was required, and there is none.
fn scale_missing(why: &str) -> Error {
    Error::new(ErrorKind::UnreliableReconstruction, format!("the required scale is missing: {why}")).hint(
        "see `reconstruct tags` for what is found in the frames; without require_scale the scene is made in arbitrary units",
    )
}

/// What stays the same whichever mapper is tried.
struct Reconstructor<'a> {
    frames: &'a Frames,
    options: &'a SfmOptions,
    /// Size in millimetres, and where they were seen.
    tags: Option<(f64, &'a Tags)>,
    pictures: &'a Pictures,
    matches: &'a [PairMatches],
    /// Verified pairs, found without a focal length.
    verified: &'a [TwoViewGeometry],
    rig: Arc<Rig>,
    two_view: TwoViewOptions,
    mapper: MapperOptions,
    /// Fraction of the verified pairs that a rotation explains, bursts or not.
    rotation_only: f64,
    /// By camera of a map: the focal length in pixels that the caller or EXIF names.
    known_focals: Vec<Option<f64>>,
    /// That EXIF names another one, which is not believed.
    about_focal: Option<Warning>,
    /// The model that is added to, if there is one, whose world stays.
    base: Option<&'a Base<'a>>,
    /// Whether frames that hang together without the map become models of their own. Those of one of several cameras may belong to
    /// it by way of pictures by another.
    may_show_other_places: bool,
}

/// A map and what is thought of it.
struct Candidate {
    map: Map,
    report: SfmReport,
    /// The warnings, or why it is not sound.
    verdict: Result<Vec<Warning>>,
    /// Whether it tears the camera's path, and was given up before it was completed.
    given_up: bool,
    /// Which of the attempts it is.
    attempt: usize,
}

impl Candidate {
    /// Whether it is sound, and tears the camera's path nowhere.
    fn is_whole(&self) -> bool {
        self.verdict.is_ok() && self.report.broken_steps.is_empty()
    }
}

/// The relative poses for calibrated cameras, and whether the images are in the order of the camera's path.
struct ViewGraph {
    camera: Camera,
    others: OtherCameras,
    pairs: Vec<TwoViewGeometry>,
    is_ordered: bool,
    /// [`Reconstructor::rotation_only_of`] these pairs.
    rotation_only: f64,
}

/// The map that is taken, the pairs it was made of, and all that were made.
struct Found {
    candidate: Candidate,
    graph: ViewGraph,
    attempts: Vec<Attempt>,
}

impl<'a> Reconstructor<'a> {
    /// Of a capture whose stations are `rig`. With the fraction of its verified pairs that a rotation explains, and by camera the
    /// focal length in pixels, if it is known.
    fn new(
        capture: &Matched<'a>,
        rig: Arc<Rig>,
        (rotation_only, known_focals): (f64, Vec<Option<f64>>),
        options: &'a SfmOptions,
    ) -> Self {
        let Matched { frames, pictures, matches, verified, tags } = *capture;
        Self {
            frames,
            options,
            tags: options.apriltag_size_mm.zip(tags),
            pictures,
            matches,
            verified,
            two_view: two_view_options(options),
            mapper: MapperOptions { refine_focal: !rig.is_panoramic(), ..MapperOptions::default() },
            rig,
            rotation_only,
            known_focals,
            about_focal: None,
            base: None,
            may_show_other_places: false,
        }
    }

    /// How many frames show other places than `map`, if they become models of their own.
    fn elsewhere(&self, map: &Map) -> usize {
        // Of 360° pictures some sides may match nothing though their station is placed.
        if !self.may_show_other_places || self.rig.is_panoramic() {
            return 0;
        }
        let placed: Vec<bool> = map.poses.iter().map(Option::is_some).collect();
        frames_elsewhere(&placed, self.verified)
    }

    /// The best map from verified pairs, as far as its keypoints go.
    ///
    /// # Errors
    /// As [`gate::check_model`], where no map is sound.
    fn find(&self, mut camera: Camera, watch: &mut Stopwatch, control: &Control) -> Result<Found> {
        let mut attempts = Vec::new();
        let mut best: Option<(Candidate, ViewGraph)> = None;
        let of_image = vec![0; self.frames.frames.len()];
        for _ in 0..self.mapper.attempts.focal_rounds {
            control.progress(Stage::Sfm, "relative poses", progress::RELATIVE_POSES);
            let pairs = self.relative_poses((std::slice::from_ref(&camera), &of_image), control)?;
            watch.lap("relative poses");
            let is_ordered = self.frames.is_sequential() || is_ordered(&self.rig, &pairs);
            let others = OtherCameras::default();
            let rotation_only = self.rotation_only_of(&pairs, &camera, &others);
            let graph = ViewGraph { camera, others, pairs, is_ordered, rotation_only };
            let found = self.map(&graph, &mut attempts, watch, control)?;
            camera = found.map.camera.clone();
            let fisheye = as_fisheye(&found.map, &self.pictures.keypoints, &self.mapper, control)?;
            watch.lap("kind of lens");
            let moved = (camera.mean_focal() / graph.camera.mean_focal()).ln().abs();
            // A map that leaves out most images says little about the focal length.
            let again =
                moved > self.mapper.attempts.focal_change && found.verdict.is_ok() || fisheye.is_some();
            camera = fisheye.unwrap_or(camera);
            if best.as_ref().is_none_or(|(b, _)| self.is_better(&found, b)) {
                best = Some((found, graph));
            }
            if !again {
                break;
            }
        }
        let no_model = || Error::new(ErrorKind::Internal, "no mapper ran");
        let (candidate, graph) = best.ok_or_else(no_model)?;
        match candidate.verdict {
            Ok(_) => Ok(Found { candidate, graph, attempts }),
            Err(why) => Err(why),
        }
    }

    /// Relative poses of the verified pairs, through these cameras, which made the images so.
    fn relative_poses(
        &self,
        cameras: (&[Camera], &[usize]),
        control: &Control,
    ) -> Result<Vec<TwoViewGeometry>> {
        relative_poses(self.pictures, cameras, self.matches, self.verified, &self.two_view, control)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::video::Frame;

    #[test]
    fn a_focal_length_is_that_of_one_camera_wherever_it_was() {
        let frames = |cameras: &[u32]| {
            let of = |&camera: &u32| Frame { camera, ..Frame::new("a.jpg", 0, 800, 600) };
            Frames::of_images("", cameras.iter().map(of).collect())
        };
        let options = SfmOptions { focal: Some(640.0), strict: true, ..SfmOptions::default() };
        let all = frames(&[3, 3, 3, 3, 1, 1]);
        for (part, focal) in [(frames(&[3, 3, 1]), Some(640.0)), (frames(&[1, 1, 3]), None)] {
            let of_part = options_of_part(&options, &all, &part);
            assert_eq!((of_part.focal, of_part.strict), (focal, false));
        }
    }
}
