//! Camera poses from the object alone, where its masks allow it; else from whole frames.

use serde::{Deserialize, Serialize};

use super::frame_masks::FrameMasks;
use crate::control::{Control, Warning};
use crate::error::Result;
use crate::fiducial::Tags;
use crate::sfm::{self, ObjectMasks, Reconstruction, SfmOptions};
use crate::stage::Stage;
use crate::video::Frames;

/// What the poses were found from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PosesFrom {
    /// Features on the object.
    Object,
    /// Features of the whole frames; the masks are used in training only.
    Frame,
}

/// Camera poses, and what they were found from.
pub struct ObjectPoses {
    /// The model.
    pub reconstruction: Reconstruction,
    /// What it was found from.
    pub from: PosesFrom,
    /// Why it was not found from the object.
    pub warning: Option<Warning>,
}

impl ObjectPoses {
    /// Poses that were found from whole frames, as intended.
    pub fn of_frame(reconstruction: Reconstruction) -> Self {
        Self { reconstruction, from: PosesFrom::Frame, warning: None }
    }
}

/// If the maps of neighbouring frames overlap less than this (mean intersection over union), which features they keep
/// is a matter of chance. Chosen by hand.
const LEAST_AGREEMENT: f64 = 0.6;
/// Number of features on the object that a frame must have (median) for its pose to be as good as from the whole frame.
/// Chosen by hand.
const LEAST_FEATURES: usize = 1000;
/// The same for masks that the user gave, who wants them to be used. Chosen by hand.
const LEAST_FEATURES_GIVEN: usize = 300;

/// Finds the cameras of `frames` from features on the object; from whole frames if the maps of neighbouring frames
/// contradict each other, if too few features are on the object, or if these make no sound model. The warning says
/// which.
///
/// # Errors
/// Those of [`sfm::reconstruct_with_tags`].
pub fn reconstruct_object(
    frames: &Frames,
    tags: Option<&Tags>,
    masks: &FrameMasks,
    options: &SfmOptions,
    control: &Control,
) -> Result<ObjectPoses> {
    let unsure = masks.agreement < LEAST_AGREEMENT && !masks.given;
    let (reconstruction, reason) = if unsure {
        let reason = format!(
            "the masks of neighbouring frames overlap by {:.0} % only ({:.0} % are needed)",
            100.0 * masks.agreement,
            100.0 * LEAST_AGREEMENT
        );
        let found = match tags {
            Some(tags) => sfm::reconstruct_with_tags(frames, tags, options, control)?,
            None => sfm::reconstruct(frames, options, control)?,
        };
        (found, Some(reason))
    } else {
        let least = if masks.given { LEAST_FEATURES_GIVEN } else { LEAST_FEATURES };
        let object = ObjectMasks { masks: &masks.for_features(), least };
        let (found, why) = sfm::reconstruct_object(frames, tags, object, options, control)?;
        (found, why.map(|e| e.message().to_owned()))
    };
    let Some(reason) = reason else {
        return Ok(ObjectPoses { reconstruction, from: PosesFrom::Object, warning: None });
    };
    let message =
        format!("camera poses come from the whole frames, the masks are used for training only: {reason}");
    let warning = Warning::new("poses_from_whole_frame", message);
    control.warn(Stage::Sfm, warning.clone());
    Ok(ObjectPoses { reconstruction, from: PosesFrom::Frame, warning: Some(warning) })
}
