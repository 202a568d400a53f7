//! Camera poses from the object alone, where its masks allow it; else from whole frames.

use std::path::Path;

use serde::{Deserialize, Serialize};

use super::frame_masks::FrameMasks;
use crate::control::{Control, Warning};
use crate::error::Result;
use crate::fiducial::Tags;
use crate::sfm::{self, Given, ObjectMasks, Reconstruction, SfmOptions};
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
/// which. What is found on the way is kept in `keep_in` ([`Given::keep_in`]).
///
/// # Errors
/// Those of [`sfm::reconstruct_given`].
pub fn reconstruct_object(
    frames: &Frames,
    tags: Option<&Tags>,
    masks: &FrameMasks,
    options: &SfmOptions,
    keep_in: Option<&Path>,
    control: &Control,
) -> Result<ObjectPoses> {
    let given = Given { tags, keep_in, ..Given::default() };
    let unsure = masks.agreement < LEAST_AGREEMENT && !masks.given;
    let (reconstruction, reason) = if unsure {
        let reason = format!(
            "the masks of neighbouring frames overlap by {:.0} % only ({:.0} % are needed)",
            100.0 * masks.agreement,
            100.0 * LEAST_AGREEMENT
        );
        (sfm::reconstruct_given(frames, &given, options, control)?.0, Some(reason))
    } else {
        let least = if masks.given { LEAST_FEATURES_GIVEN } else { LEAST_FEATURES };
        let object = Some(ObjectMasks { masks: &masks.for_features(), least });
        let (found, why) = sfm::reconstruct_given(frames, &Given { object, ..given }, options, control)?;
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
