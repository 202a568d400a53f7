//! Every figure that a user or a judge wants.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::options::ReconstructionOptions;
use super::workspace::StageCost;
use crate::background::MaskReport;
use crate::control::Warning;
use crate::presentation::{CameraData, FrameCamera};
use crate::sfm::SfmReport;
use crate::train::{Evaluation, TrainReport};
use crate::video::{FrameSource, Frames};

/// What a reconstruction found and cost; `report.json`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// The program that made it.
    pub version: String,
    /// Title of the scene.
    pub title: String,
    /// The video or folder.
    pub input: PathBuf,
    /// What was asked for.
    pub options: ReconstructionOptions,
    /// The key frames.
    pub frames: FramesReport,
    /// The camera poses.
    pub sfm: SfmReport,
    /// How masks of the object were made, if the background is removed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub background: Option<MaskReport>,
    /// The training.
    pub train: TrainStageReport,
    /// The files made from the scene.
    pub export: ExportReport,
    /// What each stage cost.
    pub costs: StageCosts,
}

/// What each stage cost.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct StageCosts {
    /// Choosing frames.
    pub frames: StageCost,
    /// Poses.
    pub sfm: StageCost,
    /// Training.
    pub train: StageCost,
    /// Files and pictures.
    pub export: StageCost,
}

/// The key frames.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FramesReport {
    /// Where they came from.
    pub source: FrameSource,
    /// Frames of the source.
    pub total: u64,
    /// Frames that were chosen.
    pub used: usize,
    /// How many panoramas these are the sides of; absent for ordinary pictures.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub panoramas: Option<usize>,
    /// Width in pixels (of the first).
    pub width: u32,
    /// Height in pixels (of the first).
    pub height: u32,
    /// What the user should know.
    pub warnings: Vec<Warning>,
}

impl FramesReport {
    pub(super) fn new(frames: &Frames) -> Self {
        let first = frames.frames.first();
        Self {
            source: frames.source.clone(),
            total: frames.total,
            used: frames.frames.len(),
            panoramas: frames.is_panoramic().then(|| frames.chosen()),
            width: first.map_or(0, |f| f.width),
            height: first.map_or(0, |f| f.height),
            warnings: frames.warnings.clone(),
        }
    }
}

/// The training.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TrainStageReport {
    /// What it ran on.
    pub device: String,
    /// Steps, splats, loss.
    #[serde(flatten)]
    pub training: TrainReport,
    /// Scores of the scene that is written on the held-out views, if views were held out and show what was trained.
    pub evaluation: Option<Evaluation>,
    /// Where the background was removed: the part of all opacity that was outside the object at the end of training, and
    /// is not in the scene.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub opacity_removed: Option<f64>,
}

/// The files made from the scene.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ExportReport {
    /// Splats in the files.
    pub splats: usize,
    /// Where a viewer starts.
    pub camera_data: CameraData,
    /// The frame from whose place the preview is seen.
    pub preview_image: String,
    /// From where the frames were taken, in the order of their names.
    #[serde(default)]
    pub cameras: Vec<FrameCamera>,
}
