//! What a worker runs: the pipeline, behind a seam, so that the worker can be tested with something quick.

use std::path::{Path, PathBuf};

use super::ReconstructionDefaults;
use super::known_adapter::KnownAdapter;
use super::packing::pack;
use crate::control::{Control, Warning};
use crate::error::Result;
use crate::job::{ArtifactKind, CameraData};
use crate::pipeline::{self, ReconstructionOptions, Report, files, write_json};
use crate::raster::{self, DeviceChoice};
use crate::splats::{SceneFormat, Splats};
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

    /// Whether there is what removing the background needs, and it can be used. Asked often, so it must cost little.
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
#[derive(Debug, Clone, Default)]
pub struct PipelineRunner {
    /// In which formats each scene is made, beside `.ply` and `.spz`.
    pub formats: Vec<SceneFormat>,
    /// What `auto` has found.
    adapter: KnownAdapter,
}

/// The report as the owner of the job may see it.
const SHOWN_REPORT: &str = "report-shown.json";

/// So many splats come over a slow line within seconds, and are drawn at once by any device.
const FIRST_LOOK_SPLATS: usize = 50_000;
const FIRST_LOOK: &str = "first_look.spz";

impl PipelineRunner {
    /// One that makes each scene in these formats, beside `.ply` and `.spz`.
    pub fn new(formats: Vec<SceneFormat>) -> Self {
        Self { formats, adapter: KnownAdapter::default() }
    }

    /// Writes the scene in other ways than the pipeline does.
    fn write_more(
        &self,
        workspace: &Path,
        splats: usize,
        made: &mut Vec<(ArtifactKind, &'static str)>,
    ) -> Result<()> {
        let mut more = Vec::new();
        for format in SceneFormat::ALL.into_iter().filter(|format| self.formats.contains(format)) {
            match format {
                // The pipeline has written them.
                SceneFormat::Ply | SceneFormat::Spz => {}
                SceneFormat::Glb => more.push((ArtifactKind::Glb, "scene.glb")),
                SceneFormat::Sog => more.push((ArtifactKind::Sog, "scene.sog")),
            }
        }
        if splats > 2 * FIRST_LOOK_SPLATS {
            more.push((ArtifactKind::FirstLook, FIRST_LOOK));
        }
        if more.is_empty() {
            return Ok(());
        }
        let splats = Splats::read(&workspace.join(files::PLY))?;
        for (kind, name) in more {
            let file = workspace.join(name);
            match kind {
                ArtifactKind::FirstLook => splats.thinned(FIRST_LOOK_SPLATS).write(&file)?,
                _ => splats.write(&file)?,
            }
            made.push((kind, name));
        }
        Ok(())
    }
}

/// What is packed of the folder, under which name.
const CAMERAS: &str = "cameras.zip";
const MASKS: &str = "masks.zip";

/// The report without the paths of this machine, and with the device that was asked for.
fn shown(mut report: Report, device: &DeviceChoice) -> Report {
    report.options.device = device.clone();
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
        let asked = &options.device;
        let options = &ReconstructionOptions { device: self.adapter.device(asked), ..options.clone() };
        let report = pipeline::reconstruct(video, workspace, options, control)?;
        write_json(&workspace.join(SHOWN_REPORT), &shown(report.clone(), asked))?;
        let mut made = vec![
            (ArtifactKind::Ply, files::PLY),
            (ArtifactKind::Spz, files::SPZ),
            (ArtifactKind::Preview, files::PREVIEW),
            (ArtifactKind::Report, SHOWN_REPORT),
            (ArtifactKind::Poses, files::POSES),
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
        self.write_more(workspace, report.export.splats, &mut made)?;
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
            DeviceChoice::Auto => self.adapter.look(raster::adapter_of_auto),
            // There is always one.
            DeviceChoice::Cpu => Ok(()),
        }
    }

    fn can_make_masks(&self) -> bool {
        background::check_model().is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;
    use crate::splats::test_scenes::random_splats;

    /// What is made of a scene of so many splats, for an operator who asked for all formats, and again by the next attempt.
    fn more_of(splats: usize, workspace: &Path) -> Vec<(ArtifactKind, &'static str)> {
        random_splats(1, splats, 0).write(&workspace.join(files::PLY)).unwrap();
        let runner = PipelineRunner::new([SceneFormat::ALL, SceneFormat::ALL].concat());
        let mut made = Vec::new();
        runner.write_more(workspace, splats, &mut made).unwrap();
        let mut again = Vec::new();
        runner.write_more(workspace, splats, &mut again).unwrap();
        assert_eq!(made, again);
        made
    }

    #[test]
    fn each_format_is_made_once_and_the_same_scene() {
        let folder = tempfile::tempdir().unwrap();
        let made = more_of(100, folder.path());
        assert_eq!(made, [(ArtifactKind::Glb, "scene.glb"), (ArtifactKind::Sog, "scene.sog")]);
        for (_, name) in made {
            assert_eq!(Splats::read(&folder.path().join(name)).unwrap().len(), 100, "{name}");
        }
    }

    #[test]
    fn a_job_does_not_go_to_the_processor_when_the_adapter_of_its_worker_is_lost() {
        let folder = tempfile::tempdir().unwrap();
        let pictures = folder.path().join("pictures");
        std::fs::create_dir(&pictures).unwrap();
        for k in 0..3 {
            image::GrayImage::new(64, 48).save(pictures.join(format!("{k}.png"))).unwrap();
        }
        let runner = PipelineRunner::default();
        runner.adapter.look(|| Ok("no such adapter".to_owned())).unwrap();
        let (options, control) = (ReconstructionOptions::default(), Control::new());
        let lost = runner.run(&pictures, &folder.path().join("run"), &options, &control).unwrap_err();
        assert_eq!(lost.kind(), ErrorKind::NoGpu);
    }

    #[test]
    fn only_a_large_scene_has_a_first_look() {
        let folder = tempfile::tempdir().unwrap();
        let made = more_of(2 * FIRST_LOOK_SPLATS, folder.path());
        assert!(made.iter().all(|(kind, _)| *kind != ArtifactKind::FirstLook));
        let made = more_of(2 * FIRST_LOOK_SPLATS + 1, folder.path());
        assert!(made.contains(&(ArtifactKind::FirstLook, FIRST_LOOK)));
        let few = Splats::read(&folder.path().join(FIRST_LOOK)).unwrap();
        assert!((FIRST_LOOK_SPLATS - 10..=FIRST_LOOK_SPLATS).contains(&few.len()), "{}", few.len());
    }
}
