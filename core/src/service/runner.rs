//! What a worker runs: the pipeline, behind a seam, so that the worker can be tested with something quick.

use std::path::{Path, PathBuf};

use super::ReconstructionDefaults;
use super::packing::pack;
use crate::control::{Control, Warning};
use crate::error::Result;
use crate::job::{ArtifactKind, CameraData};
use crate::pipeline::{self, ReconstructionOptions, Report, files, write_json};
use crate::raster::{self, DeviceChoice};
use crate::{background, video};

/// Makes a scene of a video.
pub trait Runner: Send + Sync {
    /// Works in `workspace`, where an earlier call may have left part of the work, and stops soon after `control` is
    /// cancelled. Runs on the worker's rayon pool.
    ///
    /// # Errors
    /// Those of [`pipeline::reconstruct`].
    fn run(
        &self,
        video: &Path,
        workspace: &Path,
        options: &ReconstructionOptions,
        control: &Control,
    ) -> Result<Outcome>;

    /// Tries out what every job needs of this machine: the programs, the device.
    ///
    /// # Errors
    /// What is missing or does not work.
    fn check(&self, _defaults: &ReconstructionDefaults) -> Result<()> {
        Ok(())
    }

    /// Whether there is what removing the background needs.
    fn can_make_masks(&self) -> bool {
        true
    }
}

/// What came out.
#[derive(Debug, Clone, PartialEq)]
pub struct Outcome {
    /// Complete files in the workspace: a `.ply` and a `.spz` at least. They are not changed any more.
    pub files: Vec<(ArtifactKind, PathBuf)>,
    /// Where a viewer starts.
    pub camera: CameraData,
    /// What the user should know.
    pub warnings: Vec<Warning>,
}

/// The real one: [`pipeline::reconstruct`].
#[derive(Debug, Clone, Copy, Default)]
pub struct PipelineRunner;

/// The report as the owner of the job may see it.
const SHOWN_REPORT: &str = "report-shown.json";

/// What is packed of the folder, under which name.
const CAMERAS: &str = "cameras.zip";
const MASKS: &str = "masks.zip";

/// The report without the paths of this machine.
fn shown(mut report: Report) -> Report {
    report.input = report.input.file_name().map_or_else(PathBuf::new, PathBuf::from);
    report.options.mask_model = None;
    report.options.mask_dir = None;
    report
}

impl Runner for PipelineRunner {
    fn run(
        &self,
        video: &Path,
        workspace: &Path,
        options: &ReconstructionOptions,
        control: &Control,
    ) -> Result<Outcome> {
        let report = pipeline::reconstruct(video, workspace, options, control)?;
        write_json(&workspace.join(SHOWN_REPORT), &shown(report.clone()))?;
        let mut made = vec![
            (ArtifactKind::Ply, files::PLY),
            (ArtifactKind::Spz, files::SPZ),
            (ArtifactKind::Preview, files::PREVIEW),
            (ArtifactKind::Report, SHOWN_REPORT),
        ];
        if pack(&workspace.join(files::SPARSE), &["bin"], &workspace.join(CAMERAS))? {
            made.push((ArtifactKind::Cameras, CAMERAS));
        }
        let masks = workspace.join(files::UNDISTORTED).join(background::MASKS);
        if options.remove_background && pack(&masks, &["png"], &workspace.join(MASKS))? {
            made.push((ArtifactKind::Masks, MASKS));
        }
        if options.turntable {
            made.push((ArtifactKind::Turntable, files::TURNTABLE));
        }
        // A stage that was finished by an earlier attempt sends its warnings to nobody; the report has them all.
        let of_masks = report.background.map(|b| b.warnings).unwrap_or_default();
        let warnings =
            [report.frames.warnings, report.sfm.warnings, of_masks, report.train.training.warnings];
        Ok(Outcome {
            files: made.into_iter().map(|(kind, name)| (kind, workspace.join(name))).collect(),
            camera: report.export.camera_data,
            warnings: warnings.into_iter().flatten().collect(),
        })
    }

    fn check(&self, defaults: &ReconstructionDefaults) -> Result<()> {
        video::check_tools()?;
        match defaults.device {
            DeviceChoice::Gpu | DeviceChoice::Adapter(_) => raster::open(&defaults.device).map(drop),
            // There is always one.
            DeviceChoice::Auto | DeviceChoice::Cpu => Ok(()),
        }
    }

    fn can_make_masks(&self) -> bool {
        background::find_model(None).is_ok()
    }
}
