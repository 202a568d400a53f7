//! The stage of the camera poses: from frames to a sparse model and undistorted pictures, in a folder. Tags and masks,
//! where they are asked for, come before.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::files;
use super::workspace::{KEPT, check_own_outputs, remove_if_there, remove_kept};
use crate::background::{
    FrameMasks, MASKS, MaskOptions, MaskReport, ObjectPoses, mask_frames, reconstruct_object,
};
use crate::camera::{SparseModel, plot_doubtful_poses, undistort, undistort_unrolled};
use crate::control::Control;
use crate::error::{Error, Result};
use crate::fiducial::{Tags, detect_tags};
use crate::files::check_outside;
use crate::masks::hidden_folder;
use crate::sfm::{self, Given, Reconstruction, SfmOptions, SfmReport, Verdict};
use crate::video::{FrameOptions, Frames, add_frames, extract_frames};

/// The folders that [`find_poses`] clears, and fills.
const OUTPUTS: [&str; 2] = [files::SPARSE, files::UNDISTORTED];

/// How to find the poses.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PosesOptions {
    /// Structure from motion, and the size of the tags.
    pub sfm: SfmOptions,
    /// How to make masks of the object; `None` keeps the background.
    pub background: Option<MaskOptions>,
    /// The folder of an earlier result, with its `frames` and `sparse`: the frames are added to that model.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub add_to: Option<PathBuf>,
}

impl PosesOptions {
    /// Says before any work what cannot be done.
    ///
    /// # Errors
    /// Those of [`SfmOptions::validate`] and [`MaskOptions::check`].
    pub fn check(&self) -> Result<()> {
        self.sfm.validate()?;
        self.background.as_ref().map_or(Ok(()), MaskOptions::check)
    }
}

/// Figures of the camera poses, and of the masks.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PosesReport {
    /// Structure from motion.
    #[serde(flatten)]
    pub sfm: SfmReport,
    /// How masks of the object were made, if the background is removed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub background: Option<MaskReport>,
}

/// The frames that poses are found of: those of a folder that [`extract_frames`] has filled, or, of a video or a folder of
/// pictures, key frames that are chosen into `folder/frames`. In the second case the source comes along: tags are looked for
/// there, since it may be larger than the frames.
///
/// # Errors
/// Those of [`Frames::load`] and [`extract_frames`]; [`InvalidArgument`](crate::ErrorKind::InvalidArgument) if key frames would be
/// chosen from what is in `folder` itself: results come to lie there; and if `folder/frames` is not empty and no run of this program
/// has filled it.
pub fn frames_of<'a>(
    given: &'a Path,
    folder: &Path,
    options: &FrameOptions,
    control: &Control,
) -> Result<(Frames, Option<&'a Path>)> {
    std::fs::create_dir_all(folder).map_err(|e| Error::io("create", folder, e))?;
    if Frames::description_path(given).is_file() {
        return Ok((Frames::load(given)?, None));
    }
    check_apart(given, folder)?;
    check_own_outputs(folder, &[files::FRAMES])?;
    Ok((extract_frames(given, &folder.join(files::FRAMES), options, control)?, Some(given)))
}

/// The frames of an earlier result in the folder `earlier`, and key frames that are chosen from a video or a folder of pictures
/// beside them: all of them in `folder/frames`.
///
/// # Errors
/// [`NotFound`](crate::ErrorKind::NotFound) if the earlier frames are not there; those of [`Frames::load`] and [`add_frames`];
/// [`InvalidArgument`](crate::ErrorKind::InvalidArgument) if `given` is `folder`, and if `folder/frames` is not empty and no run of
/// this program has filled it.
pub fn frames_added_to(
    earlier: &Path,
    given: &Path,
    folder: &Path,
    options: &FrameOptions,
    control: &Control,
) -> Result<Frames> {
    check_apart(given, folder)?;
    check_own_outputs(folder, &[files::FRAMES])?;
    let place = earlier.join(files::FRAMES);
    if !Frames::description_path(&place).is_file() {
        let what = format!(
            "there are no frames to add to: {} is missing",
            Frames::description_path(&place).display()
        );
        return Err(Error::new(crate::ErrorKind::NotFound, what)
            .hint("name the folder of a result that was made from a video or pictures, with its frames/ and sparse/"));
    }
    add_frames(&Frames::load(&place)?, given, &folder.join(files::FRAMES), options, control)
}

/// The frames that `options` ask for: those of [`frames_of`] with their source, or, if they are added to a model, those of
/// [`frames_added_to`]. [`find_poses`] then finds their poses in the same folder.
///
/// # Errors
/// Those of these two; [`InvalidArgument`](crate::ErrorKind::InvalidArgument) if `sparse` or `undistorted` in `folder` is not empty and
/// no run of this program has left it, so that [`find_poses`] would refuse it after all the frames were chosen.
pub fn frames_for<'a>(
    given: &'a Path,
    folder: &Path,
    frame_options: &FrameOptions,
    options: &PosesOptions,
    control: &Control,
) -> Result<(Frames, Option<&'a Path>)> {
    check_own_outputs(folder, &OUTPUTS)?;
    choose_frames(given, folder, frame_options, options, control)
}

/// [`frames_for`], where nothing but the frames will be written.
fn choose_frames<'a>(
    given: &'a Path,
    folder: &Path,
    frame_options: &FrameOptions,
    options: &PosesOptions,
    control: &Control,
) -> Result<(Frames, Option<&'a Path>)> {
    match &options.add_to {
        Some(earlier) => Ok((frames_added_to(earlier, given, folder, frame_options, control)?, None)),
        None => frames_of(given, folder, frame_options, control),
    }
}

/// What structure from motion finds, in memory.
#[derive(Debug, Clone, PartialEq)]
pub struct PosedModels {
    /// The model.
    pub model: SparseModel,
    /// Those of other places that the capture shows, in the order of `report.components`, each in a world of its own.
    pub components: Vec<SparseModel>,
    /// Figures.
    pub report: SfmReport,
}

/// Finds the camera poses of a video, a folder of pictures and videos, or a folder of frames ([`frames_of`]), and leaves in `folder` what
/// [`find_poses`] leaves.
///
/// # Errors
/// Those of [`frames_of`] and [`find_poses`].
pub fn poses_in_folder(
    input: &Path,
    folder: &Path,
    frame_options: &FrameOptions,
    options: &PosesOptions,
    control: &Control,
) -> Result<PosedModels> {
    options.check()?;
    let (frames, source) = frames_for(input, folder, frame_options, options, control)?;
    let report = find_poses(&frames, source, options, folder, control)?.sfm;
    let sparse = folder.join(files::SPARSE);
    let component = |number: usize| SparseModel::read(&sparse.join(number.to_string()));
    let components = (1..=report.components.len()).map(component).collect::<Result<_>>()?;
    Ok(PosedModels { model: SparseModel::read(&sparse)?, components, report })
}

/// The same in memory alone, without masks. `folder` is for frames that have yet to be chosen; nothing else is written.
///
/// # Errors
/// Those of [`frames_of`], [`PosesOptions::check`], [`sfm::reconstruct`] and [`detect_tags`];
/// [`InvalidArgument`](crate::ErrorKind::InvalidArgument) where masks are wanted: they are files.
pub fn poses_in_memory(
    input: &Path,
    folder: &Path,
    frame_options: &FrameOptions,
    options: &PosesOptions,
    control: &Control,
) -> Result<PosedModels> {
    options.check()?;
    if options.background.is_some() {
        return Err(Error::argument("masks are files: they need a folder for the results").hint("name one"));
    }
    let (frames, source) = choose_frames(input, folder, frame_options, options, control)?;
    let control = control.with_remaining_time();
    let tags = match options.sfm.apriltag_size_mm {
        Some(_) => Some(detect_tags(&frames, source, &control.part(0.0, 0.15))?),
        None => None,
    };
    let begin = if tags.is_some() { 0.15 } else { 0.0 };
    let found = solve_poses(&frames, tags.as_ref(), options, None, &control.part(begin, 1.0))?;
    Ok(PosedModels { model: found.model, components: found.components, report: found.report })
}

/// # Errors
/// `InvalidArgument` if results in the folder `output` would come to lie among what they are made of: `input` is that folder, or a
/// file in it that is called as one of them is.
pub(super) fn check_apart(input: &Path, output: &Path) -> Result<()> {
    // A folder that is not there holds nothing.
    let (Ok(real), Ok(folder)) = (input.canonicalize(), output.canonicalize()) else { return Ok(()) };
    let is_called = |name: &str| real.file_name().is_some_and(|own| own.eq_ignore_ascii_case(name));
    let message = if real == folder {
        format!("{} is both the input and the folder for the results", input.display())
    } else if real.parent() == Some(folder.as_path())
        && real.is_file()
        && files::ALL.into_iter().any(is_called)
    {
        format!("{} would be written over: a result is called so", input.display())
    } else {
        return Ok(());
    };
    Err(Error::argument(message).hint("give another folder for the results"))
}

/// Finds the camera poses of `frames`, by their tags where there are any, and writes nothing but what is kept in `keep_in`.
fn solve_poses(
    frames: &Frames,
    tags: Option<&Tags>,
    options: &PosesOptions,
    keep_in: Option<&Path>,
    control: &Control,
) -> Result<Reconstruction> {
    let base = options.add_to.as_ref().map(|earlier| SparseModel::read(&earlier.join(files::SPARSE)));
    let base = base.transpose()?;
    // All frames are at hand: of the earlier result the model is enough, if need be.
    let earlier = options.add_to.as_ref().and_then(|earlier| Frames::load(&earlier.join(files::FRAMES)).ok());
    let given = Given { tags, base: base.as_ref(), earlier: earlier.as_ref(), keep_in, ..Given::default() };
    sfm::reconstruct_given(frames, &given, &options.sfm, control).map(|(found, _)| found)
}

/// Finds the camera poses of `frames` and writes into `folder` what the stage leaves: `sparse/`, `undistorted/` and
/// `poses.jpg`; with tags `tags.json`; with an object `undistorted/masks/` and `masks.jpg`. Models of other
/// places that the capture shows go to `sparse/1/`, `sparse/2/` and so on. Tags are looked for in `source`, the video or
/// folder that the frames were chosen from, where it is at hand: it may be larger than they are.
///
/// Until all of it is there, `folder/.reconstruct/sfm` has the features, matches and verified pairs that were found: the same call, or
/// one with other options for what comes after them, goes on from there ([`Given::keep_in`]).
///
/// # Errors
/// Those of [`PosesOptions::check`], [`sfm::reconstruct`], [`detect_tags`], [`FrameMasks::of`] and [`mask_frames`];
/// [`InvalidArgument`](crate::ErrorKind::InvalidArgument) if frames or source would be written over, or if `sparse` or `undistorted`
/// in `folder` is not empty and no run of this program has left it.
pub fn find_poses(
    frames: &Frames,
    source: Option<&Path>,
    options: &PosesOptions,
    folder: &Path,
    control: &Control,
) -> Result<PosesReport> {
    let report = find_poses_keeping(frames, source, options, folder, &control.with_remaining_time())?;
    remove_kept(folder);
    Ok(report)
}

/// [`find_poses`], after which what was kept is still there: until the caller has noted that the poses are.
pub(super) fn find_poses_keeping(
    frames: &Frames,
    source: Option<&Path>,
    options: &PosesOptions,
    folder: &Path,
    control: &Control,
) -> Result<PosesReport> {
    options.check()?;
    let at = |name: &str| folder.join(name);
    let undistorted = at(files::UNDISTORTED);
    let given = options.background.as_ref().and_then(|background| background.masks.as_deref());
    let earlier = options.add_to.as_ref().map(|folder| folder.join(files::SPARSE));
    for input in [Some(frames.folder.as_path()), source, given, earlier.as_deref()].into_iter().flatten() {
        check_outside(input, &[&at(files::SPARSE), &undistorted])?;
    }
    for k in 0..frames.frames.len() {
        check_apart(&frames.path(k), folder)?;
    }
    if let Some(source) = source {
        check_apart(source, folder)?;
    }
    check_own_outputs(folder, &OUTPUTS)?;
    // What an earlier run left belongs to other options.
    let masks = undistorted.join(MASKS);
    for old in [at(files::TAGS), at(files::MASKS_SHEET), hidden_folder(&masks), masks] {
        remove_if_there(&old)?;
    }
    let masks = match &options.background {
        Some(options) => Some(FrameMasks::of(frames, options, &control.part(0.0, 0.3))?),
        None => None,
    };
    let (mut begin, end) = if masks.is_some() { (0.3, 0.7) } else { (0.0, 0.9) };
    let mut tags = None;
    if options.sfm.apriltag_size_mm.is_some() {
        let found = detect_tags(frames, source, &control.part(begin, begin + 0.15))?;
        found.write(&at(files::TAGS))?;
        begin += 0.15;
        tags = Some(found);
    }
    let part = control.part(begin, end);
    let kept = at(KEPT);
    let found = match &masks {
        // A model that is added to was made of what surrounds the object, too.
        Some(masks) if options.add_to.is_none() => {
            reconstruct_object(frames, tags.as_ref(), masks, &options.sfm, Some(&kept), &part)?
        }
        _ => ObjectPoses::of_frame(solve_poses(frames, tags.as_ref(), options, Some(&kept), &part)?),
    };
    let model = &found.reconstruction.model;
    let doubts = found.reconstruction.report.verdict.as_ref().map(Verdict::image_doubts).unwrap_or_default();
    // Before the model: whoever finds that model knows by the picture that it may be replaced.
    plot_doubtful_poses(model, &doubts, &at(files::POSES))?;
    // What is not written anew would be taken for a part of this: models of other places, pictures of other frames.
    for old in OUTPUTS {
        remove_if_there(&at(old))?;
    }
    model.write_binary(&at(files::SPARSE))?;
    for (component, number) in found.reconstruction.components.iter().zip(1..) {
        component.write_binary(&at(files::SPARSE).join(format!("{number}")))?;
    }
    let masks_begin = if masks.is_some() { 0.75 } else { 1.0 };
    let part = control.part(end, masks_begin);
    match &found.reconstruction.shutter {
        Some(shutter) => undistort_unrolled(model, shutter, &frames.folder, &undistorted, &part)?,
        None => undistort(model, &frames.folder, &undistorted, &part)?,
    };
    let background = match &masks {
        Some(masks) => {
            let part = control.part(masks_begin, 1.0);
            Some(mask_frames(frames, masks, &found, &undistorted, &at(files::MASKS_SHEET), &part)?)
        }
        None => None,
    };
    Ok(PosesReport { sfm: found.reconstruction.report, background })
}
