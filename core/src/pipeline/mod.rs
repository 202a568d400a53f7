//! Runs the stages of a reconstruction in a folder, resumably.
//!
//! In: a video (or a folder of images) and [`ReconstructionOptions`]. Out, in the folder: `frames/`, `frames.jpg`,
//! `sparse/`, `undistorted/`, `poses.jpg`, `scene.ply`, `scene.spz`, `preview.jpg`, `camera.json`, `turntable.mp4`,
//! `report.json`; `tags.json` where scale was asked for; `undistorted/masks/` and `masks.jpg` where the background is removed, with
//! `undistorted/masks_hidden/` where another thing hides the object.
//! Called on a thread of the caller's. When [`reconstruct`] returns `Ok`, all of it is on the disk. If
//! the process is killed, the same call continues: at the first stage that is not finished, inside the search for poses with the
//! features, matches and verified pairs that were found, and inside training at the last checkpoint; on the CPU the scene is the
//! same, bit for bit.
//!
//! ```
//! use libreconstruct::pipeline::{Quality, ReconstructionOptions, reconstruct};
//! use libreconstruct::{Control, ErrorKind, Stage};
//!
//! let mut options = ReconstructionOptions::with_quality(Quality::Preview);
//! options.sh_degree = 4;
//! assert_eq!(options.check().unwrap_err().kind(), ErrorKind::InvalidArgument);
//!
//! // As the REST interface and the manifests write them: what is absent is the default.
//! let options: ReconstructionOptions = serde_json::from_str(r#"{"device": "cpu", "seed": 7}"#).unwrap();
//! # let folder = tempfile::tempdir().unwrap();
//! # let folder = folder.path();
//! let error = reconstruct("kitchen.mp4".as_ref(), folder, &options, &Control::new()).unwrap_err();
//! assert_eq!((error.kind(), error.stage()), (ErrorKind::NotFound, Some(Stage::Frames)));
//! ```

mod cost;
pub mod files;
mod handover;
mod keys;
mod options;
mod poses;
mod progress;
mod report;
mod workspace;

use std::path::{Path, PathBuf};

#[cfg(all(test, feature = "service"))]
pub(crate) use handover::finish_stage;
pub use handover::{FinishedStage, StageArrival, StateArrival, TrainingState, is_finished};
pub use keys::StageKeys;
pub use options::{Quality, ReconstructionMethod, ReconstructionOptions};
pub use poses::{
    PosedModels, PosesOptions, PosesReport, find_poses, frames_added_to, frames_for, frames_of,
    poses_in_folder, poses_in_memory,
};
pub use report::{ExportReport, FramesReport, Report, StageCosts, TrainStageReport};
pub use workspace::StageCost;
pub(crate) use workspace::write_json;

use crate::background::{self, FinishedScene, ObjectOutline};
use crate::camera::SparseModel;
use crate::control::Control;
use crate::error::{Error, ErrorKind, Result};
use crate::files::check_outside;
use crate::presentation::{
    CameraData, FrameCamera, PREVIEW_SIDE, choose_preview_image, write_preview, write_turntable,
};
use crate::raster;
use crate::raster::load_for_viewing;
use crate::splats::Splats;
use crate::stage::Stage;
use crate::train::{Dataset, TrainOptions, Trainer};
use crate::video::{Frames, extract_frames};
use cost::Meter;
use keys::Keyring;
use poses::{check_apart, find_poses_keeping};
use workspace::{
    CHECKPOINT, Key, Manifest, Workspace, check_own_outputs, input_key, read_value, remove_if_there,
    remove_kept, stage_key,
};

/// Makes a scene of `input` in the folder `output`.
///
/// # Errors
/// Options out of range, an input that lies where results are written or is that folder, or that is no usable video; a folder
/// `frames`, `sparse` or `undistorted` in `output` with something in it that no run of this program has left: it stays
/// ([`InvalidArgument`](ErrorKind::InvalidArgument)); a scene that cannot be reconstructed, a full disk, cancellation. The error names
/// its stage. What was finished stays and is used by the next call.
pub fn reconstruct(
    input: &Path,
    output: &Path,
    options: &ReconstructionOptions,
    control: &Control,
) -> Result<Report> {
    options.check()?;
    let removal = options.mask_options();
    let given = removal.as_ref().into_iter().flat_map(|removal| [&removal.masks, &removal.model]).flatten();
    let written =
        [files::FRAMES, files::SPARSE, files::UNDISTORTED, files::TURNTABLE].map(|name| output.join(name));
    for named in [input].into_iter().chain(given.map(PathBuf::as_path)) {
        check_outside(named, &written.each_ref().map(PathBuf::as_path))?;
    }
    check_apart(input, output)?;
    check_own_outputs(output, &[files::FRAMES, files::SPARSE, files::UNDISTORTED])?;
    // A device that is not there is said before anything else takes time.
    let keyring = Keyring::new(options)?;
    let run = Run { workspace: Workspace::open(output)?, options, keyring, control };
    let source = input_key(input).map_err(|e| e.at(Stage::Frames))?;
    let (frames_key, frames) = run.frames(input, &source).map_err(|e| e.at(Stage::Frames))?;
    let (sfm_key, poses) = run.sfm(input, &frames_key).map_err(|e| e.at(Stage::Sfm))?;
    let spent = frames.cost.seconds + poses.cost.seconds;
    let (train_key, training) = run.train(&sfm_key, spent).map_err(|e| e.at(Stage::Train))?;
    let exported = run.export(&train_key).map_err(|e| e.at(Stage::Export))?;

    let title = options.title.clone().unwrap_or_else(|| title_of(input));
    let costs =
        StageCosts { frames: frames.cost, sfm: poses.cost, train: training.cost, export: exported.cost };
    let poses_report: PosesReport = read_value(poses.report, "the report of the poses")?;
    let report = Report {
        version: crate::VERSION.into(),
        title,
        input: input.to_owned(),
        options: options.clone(),
        frames: read_value(frames.report, "the report of the frames")?,
        sfm: poses_report.sfm,
        background: poses_report.background,
        train: read_value(training.report, "the report of the training")?,
        export: read_value(exported.report, "the report of the export")?,
        costs,
    };
    write_json(&run.workspace.path(files::REPORT), &report)?;
    Ok(report)
}

/// The file name without its extension, as far as it is text.
fn title_of(input: &Path) -> String {
    input.file_stem().map_or_else(|| "video".into(), |name| name.to_string_lossy().into_owned())
}

/// One call of [`reconstruct`].
struct Run<'a> {
    workspace: Workspace,
    options: &'a ReconstructionOptions,
    keyring: Keyring<'a>,
    control: &'a Control,
}

impl Run<'_> {
    /// Takes over `stage` if it is finished with this key, else clears its outputs and does it.
    fn stage<R: serde::Serialize>(
        &self,
        stage: Stage,
        key: Key,
        outputs: &[&str],
        work: impl FnOnce(&Control) -> Result<R>,
    ) -> Result<(Key, Manifest)> {
        self.control.check()?;
        let control = progress::stage_control(self.control);
        if let Some(manifest) = self.workspace.finished(stage, &key) {
            control.progress_with(stage, "finished earlier", 1.0, "taken over");
            return Ok((key, manifest));
        }
        self.workspace.forget_from(stage)?;
        remove_if_there(&self.workspace.path(files::REPORT))?;
        for output in outputs {
            remove_if_there(&self.workspace.path(output))?;
        }
        let meter = Meter::start();
        let report = work(&control)?;
        let report = serde_json::to_value(report).map_err(|e| {
            Error::new(ErrorKind::Internal, "a report cannot be written as JSON").caused_by(e)
        })?;
        let manifest = self.workspace.finish(stage, key.clone(), outputs, report, meter.read())?;
        control.progress(stage, "finished", 1.0);
        Ok((key, manifest))
    }

    fn frames(&self, input: &Path, source: &Key) -> Result<(Key, Manifest)> {
        let options = self.options.frame_options(self.keyring.is_on_gpu());
        let key = self.keyring.frames(source)?;
        self.stage(Stage::Frames, key, &[files::FRAMES, files::FRAMES_SHEET], |control| {
            let frames = extract_frames(input, &self.workspace.path(files::FRAMES), &options, control)?;
            // The contact sheet is for people; the folder holds frames only.
            let sheet = self.workspace.path(files::FRAMES_SHEET);
            std::fs::rename(frames.folder.join("frames.jpg"), &sheet)
                .map_err(|e| Error::io("write", &sheet, e))?;
            Ok(FramesReport::new(&frames))
        })
    }

    fn sfm(&self, input: &Path, frames_key: &Key) -> Result<(Key, Manifest)> {
        let options = self.options.poses_options();
        let key = self.keyring.sfm(frames_key)?;
        let mut outputs = vec![files::SPARSE, files::UNDISTORTED, files::POSES];
        if options.sfm.apriltag_size_mm.is_some() {
            outputs.push(files::TAGS);
        }
        let folder = self.workspace.path("");
        let finished = self.stage(Stage::Sfm, key, &outputs, |control| {
            let frames = Frames::load(&self.workspace.path(files::FRAMES))?;
            find_poses_keeping(&frames, Some(input), &options, &folder, control)
        })?;
        remove_kept(&folder);
        Ok(finished)
    }

    /// The folder of the object's masks, if the background was removed: it stays where no object was found.
    fn masks(&self) -> Option<PathBuf> {
        let masks = self.workspace.path(files::UNDISTORTED).join(background::MASKS);
        (self.options.mask_options().is_some() && masks.is_dir()).then_some(masks)
    }

    /// The colour behind the scene in its pictures: an object without background stands before white.
    fn behind_the_scene(&self) -> [f32; 3] {
        if self.masks().is_some() { [1.0; 3] } else { [0.0; 3] }
    }

    /// `spent` are the seconds of the stages before.
    fn train(&self, sfm_key: &Key, spent: f64) -> Result<(Key, Manifest)> {
        let time_budget_seconds = self.options.training_budget(spent);
        let options = TrainOptions { time_budget_seconds, ..self.options.train_options() };
        let key = self.keyring.train(sfm_key)?;
        let checkpoint = self.workspace.path(CHECKPOINT);
        let finished = self.stage(Stage::Train, key, &[files::PLY], |control| {
            let folder = self.workspace.path(files::UNDISTORTED);
            let mut dataset =
                Dataset::open(&folder.join("sparse"), &folder.join("images"), options.test_every)?;
            let outline = match self.masks() {
                Some(masks) => {
                    dataset = dataset.with_masks(&masks, control)?;
                    ObjectOutline::of(&dataset, control)?
                }
                None => None,
            };
            let rasteriser = raster::open(&self.options.device)?;
            let mut trainer =
                Trainer::open_in_workspace(dataset, options.clone(), rasteriser, &checkpoint, control)?;
            let training = trainer.run(control, Some(&checkpoint))?;
            let device = trainer.device();
            let FinishedScene { splats, opacity_removed, evaluation } =
                FinishedScene::of(trainer, outline.as_ref(), control)?;
            splats.write(&self.workspace.path(files::PLY))?;
            Ok(TrainStageReport { device, training, evaluation, opacity_removed })
        })?;
        remove_if_there(&checkpoint)?;
        Ok(finished)
    }

    fn export(&self, train_key: &Key) -> Result<Manifest> {
        let camera_type = self.options.camera_type.unwrap_or_default();
        let key = stage_key(Stage::Export, &[train_key], &(camera_type, self.options.turntable))?;
        let scores = Default::default();
        let mut outputs = vec![files::SPZ, files::PREVIEW, files::CAMERA];
        if self.options.turntable {
            outputs.push(files::TURNTABLE);
        }
        let (_, manifest) = self.stage(Stage::Export, key, &outputs, |control| {
            if !self.options.turntable {
                // That of an earlier run shows another scene.
                remove_if_there(&self.workspace.path(files::TURNTABLE))?;
            }
            let splats = Splats::read(&self.workspace.path(files::PLY))?;
            control.progress(Stage::Export, "compressing", 0.0);
            splats.write(&self.workspace.path(files::SPZ))?;
            let model = SparseModel::read(&self.workspace.path(files::UNDISTORTED).join("sparse"))?;
            let image =
                choose_preview_image(&model, &scores).and_then(|id| Some((id, model.images.get(&id)?)));
            let (id, image, camera) = image
                .and_then(|(id, image)| Some((id, image, model.cameras.get(&image.camera_id)?)))
                .ok_or_else(|| Error::new(ErrorKind::InvalidFile, "the undistorted model has no image"))?;
            let mut rasteriser = raster::open(&self.options.device)?;
            load_for_viewing(rasteriser.as_mut(), &splats)?;
            let preview = self.workspace.path(files::PREVIEW);
            let (degree, behind) = (splats.sh_degree, self.behind_the_scene());
            write_preview(rasteriser.as_mut(), degree, camera, &image.pose, behind, PREVIEW_SIDE, &preview)?;
            let camera_data = CameraData::from_model(&model, id, camera_type);
            write_json(&self.workspace.path(files::CAMERA), &camera_data)?;
            if self.options.turntable {
                let path = self.workspace.path(files::TURNTABLE);
                let options = self.options.turntable_options(behind);
                write_turntable(rasteriser.as_mut(), degree, &model, &options, &path, control)?;
            }
            Ok(ExportReport {
                splats: splats.len(),
                camera_data,
                preview_image: image.name.clone(),
                cameras: FrameCamera::all_of(&model),
            })
        })?;
        Ok(manifest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Some pictures, written into a new folder.
    fn pictures(folder: &Path) {
        std::fs::create_dir_all(folder).unwrap();
        for k in 0..3 {
            image::GrayImage::new(64, 48).save(folder.join(format!("{k}.png"))).unwrap();
        }
    }

    #[test]
    fn what_would_be_cleared_is_no_input() {
        let folder = tempfile::tempdir().unwrap();
        let (output, film) = (folder.path().join("castle"), folder.path().join("film.mp4"));
        std::fs::write(&film, "no film").unwrap();
        let refused = |input: &Path, options: &ReconstructionOptions| {
            let error = reconstruct(input, &output, options, &Control::new()).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
            assert!(error.message().contains("written anew"), "{error}");
        };
        for place in ["frames", "undistorted/images", "sparse"] {
            pictures(&output.join(place));
            refused(&output.join(place), &ReconstructionOptions::default());
            assert_eq!(std::fs::read_dir(output.join(place)).unwrap().count(), 3, "{place}");
        }
        let masks = output.join("undistorted/masks");
        pictures(&masks);
        refused(&film, &ReconstructionOptions { mask_dir: Some(masks.clone()), ..Default::default() });
        assert_eq!(std::fs::read_dir(masks).unwrap().count(), 3);
        std::fs::write(output.join(files::TURNTABLE), "a film").unwrap();
        refused(&output.join(files::TURNTABLE), &ReconstructionOptions::default());
        assert!(output.join(files::TURNTABLE).exists());
    }

    #[test]
    fn a_scene_whose_background_stayed_is_not_shown_before_white() {
        let folder = tempfile::tempdir().unwrap();
        let options = ReconstructionOptions {
            remove_background: true,
            device: "cpu".parse().unwrap(),
            ..Default::default()
        };
        let (keyring, control) = (Keyring::new(&options).unwrap(), Control::new());
        let workspace = Workspace::open(folder.path()).unwrap();
        let run = Run { workspace, options: &options, keyring, control: &control };
        assert_eq!((run.masks(), run.behind_the_scene()), (None, [0.0; 3]), "no object was found");
        std::fs::create_dir_all(run.workspace.path(files::UNDISTORTED).join(background::MASKS)).unwrap();
        assert!(run.masks().is_some());
        assert_eq!(run.behind_the_scene(), [1.0; 3]);
    }

    #[test]
    fn the_folder_of_the_results_is_no_input_nor_is_one_of_them() {
        let folder = tempfile::tempdir().unwrap();
        let output = folder.path().join("castle");
        pictures(&output);
        // Photographs that are called as results are.
        for name in [files::FRAMES_SHEET, files::POSES, files::PREVIEW, files::MASKS_SHEET] {
            std::fs::write(output.join(name), "a photograph").unwrap();
        }
        std::fs::write(output.join(files::PLY), "a film").unwrap();
        let names = || {
            let entries = std::fs::read_dir(&output).unwrap();
            let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name()).collect();
            names.sort();
            names
        };
        let before = names();
        let refused = |error: Error| {
            assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
            assert!(error.hint_text().is_some(), "{error}");
            assert_eq!(names(), before);
        };
        let (run, control) = (ReconstructionOptions::default(), Control::new());
        let elsewhere = folder.path().join("elsewhere/../castle");
        std::fs::create_dir(folder.path().join("elsewhere")).unwrap();
        for input in [&output, &elsewhere, &output.join(files::PLY)] {
            refused(reconstruct(input, &output, &run, &control).unwrap_err());
            let frames = run.frame_options(false);
            refused(poses_in_folder(input, &output, &frames, &run.poses_options(), &control).unwrap_err());
        }
        // What poses.jpg is written over may be a frame that was stored there.
        let frame = crate::video::Frame::new(files::POSES, 0, 64, 48);
        let stored = Frames::of_images(&output, vec![frame]);
        refused(find_poses(&stored, None, &run.poses_options(), &output, &control).unwrap_err());
    }

    #[test]
    fn what_no_run_has_left_is_never_cleared() {
        let place = tempfile::tempdir().unwrap();
        let (project, elsewhere) = (place.path().join("project"), place.path().join("elsewhere"));
        let missing = place.path().join("missing.mp4");
        pictures(&elsewhere);
        let options = ReconstructionOptions { device: "cpu".parse().unwrap(), ..Default::default() };
        let (frames, poses, control) =
            (options.frame_options(false), options.poses_options(), Control::new());
        let run = || reconstruct(&missing, &project, &options, &control).unwrap_err();
        let sfm = || poses_in_folder(&missing, &project, &frames, &poses, &control).unwrap_err();
        let stored: Vec<_> =
            (0..3).map(|k| crate::video::Frame::new(format!("{k}.png"), k, 64, 48)).collect();
        let stored = Frames::of_images(&elsewhere, stored);
        let find = || find_poses(&stored, None, &poses, &project, &control).unwrap_err();
        let choose = || frames_of(&elsewhere, &project, &frames, &control).unwrap_err();
        let refused = |error: Error, name: &str| {
            assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
            assert!(error.message().contains(&project.join(name).display().to_string()), "{error}");
            assert!(error.message().contains("not made by a run of this program"), "{error}");
            let left: Vec<_> = std::fs::read_dir(&project).unwrap().map(|e| e.unwrap().file_name()).collect();
            assert_eq!(left, [name], "nothing was written");
            assert_eq!(std::fs::read_dir(project.join(name)).unwrap().count(), 3);
        };
        for name in [files::FRAMES, files::SPARSE, files::UNDISTORTED] {
            pictures(&project.join(name));
            refused(run(), name);
            refused(sfm(), name);
            match name {
                files::FRAMES => refused(choose(), name),
                _ => refused(find(), name),
            }
            std::fs::remove_dir_all(&project).unwrap();
        }
        // An empty one is in nobody's way; what each command leaves says that all is its own.
        let gone_on = |error: Error| assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
        std::fs::create_dir_all(project.join(files::SPARSE)).unwrap();
        gone_on(sfm());
        for name in [files::SPARSE, files::UNDISTORTED] {
            pictures(&project.join(name));
        }
        std::fs::write(project.join(files::POSES), "left by sfm").unwrap();
        gone_on(sfm());
        gone_on(run());
        std::fs::remove_file(project.join(files::POSES)).unwrap();
        pictures(&project.join(files::FRAMES));
        assert!(project.join(".reconstruct/lock").is_file(), "left by the run");
        gone_on(run());
        // Of a search for poses that came to no end there is no model: this one somebody else has put there since.
        std::fs::remove_file(project.join(".reconstruct/lock")).unwrap();
        std::fs::create_dir(project.join(".reconstruct/sfm")).unwrap();
        assert_eq!(sfm().kind(), ErrorKind::InvalidArgument);
    }
}
