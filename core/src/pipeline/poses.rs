//! The stage of the camera poses: from frames to a sparse model and undistorted pictures, in a folder. Tags and masks,
//! where they are asked for, come before.

use std::collections::BTreeMap;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::files;
use super::workspace::remove_if_there;
use crate::background::{
    FrameMasks, MASKS, MaskOptions, MaskReport, ObjectPoses, mask_frames, reconstruct_object,
};
use crate::camera::{plot_doubtful_poses, undistort, undistort_unrolled};
use crate::control::Control;
use crate::error::Result;
use crate::fiducial::detect_tags;
use crate::sfm::{self, SfmOptions, SfmReport};
use crate::video::Frames;

/// How to find the poses.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PosesOptions {
    /// Structure from motion, and the size of the tags.
    pub sfm: SfmOptions,
    /// How to make masks of the object; `None` keeps the background.
    pub background: Option<MaskOptions>,
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

/// Finds the camera poses of `frames` and writes into `folder` what the stage leaves: `sparse/`, `undistorted/` and
/// `poses.jpg`; with tags `tags.json`; with an object `undistorted/masks/` and `masks.jpg`. Models of other
/// places that the capture shows go to `sparse/1/`, `sparse/2/` and so on. Tags are looked for in `source`, the video or
/// folder that the frames were chosen from, where it is at hand: it may be larger than they are.
///
/// # Errors
/// Those of [`PosesOptions::check`], [`sfm::reconstruct`], [`detect_tags`], [`FrameMasks::of`] and [`mask_frames`].
pub fn find_poses(
    frames: &Frames,
    source: Option<&Path>,
    options: &PosesOptions,
    folder: &Path,
    control: &Control,
) -> Result<PosesReport> {
    options.check()?;
    let at = |name: &str| folder.join(name);
    let undistorted = at(files::UNDISTORTED);
    // What an earlier run left belongs to other options.
    for old in [at(files::TAGS), at(files::MASKS_SHEET), undistorted.join(MASKS)] {
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
    let found = match (&masks, &tags) {
        (Some(masks), tags) => reconstruct_object(frames, tags.as_ref(), masks, &options.sfm, &part)?,
        (None, Some(tags)) => {
            ObjectPoses::of_frame(sfm::reconstruct_with_tags(frames, tags, &options.sfm, &part)?)
        }
        (None, None) => ObjectPoses::of_frame(sfm::reconstruct(frames, &options.sfm, &part)?),
    };
    let model = &found.reconstruction.model;
    model.write_binary(&at(files::SPARSE))?;
    for (component, number) in found.reconstruction.components.iter().zip(1..) {
        component.write_binary(&at(files::SPARSE).join(format!("{number}")))?;
    }
    plot_doubtful_poses(model, &doubts(&found.reconstruction.report), &at(files::POSES))?;
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

/// How doubtful the pose of each image is, by its id: the number of its frame plus 1.
fn doubts(report: &SfmReport) -> BTreeMap<u32, f64> {
    let frames = report.verdict.iter().flat_map(|verdict| verdict.frame_doubts());
    frames.filter_map(|(frame, doubt)| Some((u32::try_from(frame + 1).ok()?, doubt))).collect()
}
