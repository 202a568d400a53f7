//! What a reconstruction can be asked for. Names, defaults and limits are those of the service's specification.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::poses::PosesOptions;
use crate::background::{MaskOptions, ObjectPoint};
use crate::error::{Error, Result};
use crate::presentation::{CameraType, TurntableOptions};
use crate::raster::DeviceChoice;
use crate::sfm::{MappingMethod, SfmOptions};
use crate::train::TrainOptions;
use crate::video::{FrameOptions, Projection};

/// A set of options that go together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Quality {
    /// A small scene in a few minutes on a CPU.
    Preview,
    /// The defaults of the specification: made for a GPU.
    Standard,
    /// More frames, pixels, Gaussians and steps.
    High,
}

/// How camera poses are found, under the names that the specification uses.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReconstructionMethod {
    /// Global structure from motion, as GLOMAP does it; the incremental one where it finds no sound model.
    #[default]
    Glomap,
    /// Incremental structure from motion, as COLMAP does it.
    Colmap,
}

impl ReconstructionMethod {
    /// The mapper that it begins with.
    pub fn mapping(self) -> MappingMethod {
        match self {
            ReconstructionMethod::Glomap => MappingMethod::Global,
            ReconstructionMethod::Colmap => MappingMethod::Incremental,
        }
    }
}

impl std::str::FromStr for ReconstructionMethod {
    type Err = Error;

    /// Reads the name as the service does: whatever its case.
    fn from_str(text: &str) -> Result<Self> {
        match text.to_ascii_lowercase().as_str() {
            "glomap" => Ok(Self::Glomap),
            "colmap" => Ok(Self::Colmap),
            _ => Err(Error::argument(format!(
                "reconstruction_method is {text:?}: glomap and colmap are known"
            ))),
        }
    }
}

/// What to make of a video, and how.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ReconstructionOptions {
    /// Title for the report; the input's file name if absent.
    pub title: Option<String>,
    /// How camera poses are found.
    pub reconstruction_method: ReconstructionMethod,
    /// Largest number of Gaussians, 1,000 to 10,000,000.
    pub training_max_num_gaussians: u32,
    /// Number of training steps, 1 to 200,000.
    pub training_num_steps: u32,
    /// Seconds, 1 to 2,592,000, within which all stages together are to end: the training makes fewer steps with fewer Gaussians
    /// on smaller pictures if this machine cannot do what was asked for in the time that the stages before it leave. Absent =
    /// all that was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub time_budget_seconds: Option<u32>,
    /// Edge of the inner white square of the AprilTags (tagStandard41h12) in the scene in millimetres, 1 to 1000: the scene is
    /// then in metres. It is 5/9 of the printed width. Absent = no scale.
    pub apriltag_size_mm: Option<f64>,
    /// Whether to fail where the tags give no scale; else the scene is made in arbitrary units, with a warning.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub require_scale: bool,
    /// Whether to fail where the poses are doubtful; else the scene is made all the same, with a warning.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub strict: bool,
    /// Milliseconds from the first line of a picture to the last one, 0 to 100, if known; 0 = a global shutter. Absent = that of
    /// a video is estimated where it matters.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rolling_shutter_ms: Option<f64>,
    /// Focal length in pixels of the frames, if known: of those of the camera that made most. It is refined. Absent = EXIF data
    /// say it, or it is found.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub focal: Option<f64>,
    /// Whether to remove the background from the frames first.
    pub remove_background: bool,
    /// The file of the mask model; absent = the installed one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mask_model: Option<PathBuf>,
    /// A folder with a mask of the object for every frame, to use in place of the mask model.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mask_dir: Option<PathBuf>,
    /// Where the object is in one frame, as `X,Y` or `X,Y,FRAME` in pixels, where it is not what catches the eye most. Removes
    /// the background, too.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub object_at: Option<ObjectPoint>,
    /// A disc of the ground to keep under the object, so many times as wide as the object (more than 0, at most 20). Removes
    /// the rest of the background, too.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub keep_floor: Option<f64>,
    /// How a viewer moves; drone if absent.
    pub camera_type: Option<CameraType>,
    /// At most this many key frames; absent = 150 where training runs on the CPU, 300 on a GPU.
    pub max_frames: Option<usize>,
    /// Whether up to three times as many are taken of a video whose picture would move by more than a tenth of its longer side from one to
    /// the next. On in presets; who names a number means it (`more_frames` off).
    pub more_frames: bool,
    /// Long side of the frames in pixels at most.
    pub max_resolution: u32,
    /// How the pictures of the video show directions, `flat` or `equirectangular` (360° video). Absent = as the file says, or as
    /// its pictures look where it says nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub projection: Option<Projection>,
    /// Long side of the training pictures in pixels at most.
    pub training_max_resolution: u32,
    /// Degree of the spherical harmonics, 0 to 3.
    pub sh_degree: u32,
    /// Hold out every n-th image (from the first) and score the scene on them; absent = train on all.
    pub test_every: Option<u32>,
    /// Whether Gaussians that hang in free space are moved to where they are needed ([`TrainOptions::clean`]).
    #[serde(skip_serializing_if = "is_on")]
    pub clean: bool,
    /// Fixes every random choice.
    pub seed: u64,
    /// Where training runs.
    pub device: DeviceChoice,
    /// Whether to render `turntable.mp4`.
    pub turntable: bool,
}

/// A switch that is on by default, and only named where it is off.
fn is_on(switch: &bool) -> bool {
    *switch
}

impl Default for ReconstructionOptions {
    fn default() -> Self {
        Self::with_quality(Quality::Standard)
    }
}

impl ReconstructionOptions {
    /// The options of a preset.
    pub fn with_quality(quality: Quality) -> Self {
        let standard = Self {
            title: None,
            reconstruction_method: ReconstructionMethod::default(),
            training_max_num_gaussians: 1_000_000,
            training_num_steps: 25_000,
            time_budget_seconds: None,
            apriltag_size_mm: None,
            require_scale: false,
            strict: false,
            rolling_shutter_ms: None,
            focal: None,
            remove_background: false,
            mask_model: None,
            mask_dir: None,
            object_at: None,
            keep_floor: None,
            camera_type: None,
            max_frames: None,
            more_frames: true,
            max_resolution: 1600,
            projection: None,
            training_max_resolution: 1600,
            sh_degree: 3,
            test_every: None,
            clean: true,
            seed: 0,
            device: DeviceChoice::Auto,
            turntable: true,
        };
        match quality {
            Quality::Preview => Self {
                training_max_num_gaussians: 50_000,
                training_num_steps: 2_000,
                max_frames: Some(100),
                max_resolution: 1000,
                training_max_resolution: 480,
                ..standard
            },
            Quality::Standard => standard,
            Quality::High => Self {
                training_max_num_gaussians: 3_000_000,
                training_num_steps: 40_000,
                max_frames: Some(600),
                max_resolution: 2560,
                training_max_resolution: 2560,
                ..standard
            },
        }
    }

    /// # Errors
    /// `InvalidArgument` with the option, its value and its range; `NotFound` if what removes the background is not there.
    pub fn check(&self) -> Result<()> {
        if let Some(title) = &self.title {
            let length = title.trim().chars().count();
            if !(1..=255).contains(&length) || title.chars().any(char::is_control) {
                return Err(Error::argument(format!(
                    "title has {length} characters: 1 to 255 are allowed, without control characters"
                )));
            }
        }
        // As on a GPU, where there are more frames unless a number is named.
        self.frame_options(true).validate()?;
        self.poses_options().check()?;
        // The training has a resolution, too, and calls it as the frames call theirs.
        let side = self.training_max_resolution;
        if !(16..=16_384).contains(&side) {
            return Err(Error::argument(format!(
                "training_max_resolution is {side}; it must be 16 to 16384 pixels"
            )));
        }
        self.train_options().validate()
    }

    pub(super) fn frame_options(&self, on_gpu: bool) -> FrameOptions {
        let max_frames = self.max_frames.unwrap_or(if on_gpu { 300 } else { 150 });
        FrameOptions {
            max_frames,
            more_frames: self.more_frames,
            max_resolution: self.max_resolution,
            projection: self.projection,
        }
    }

    /// How to make masks of the object, if the background is to be removed: asked for, or masks were given.
    pub(super) fn mask_options(&self) -> Option<MaskOptions> {
        let options = MaskOptions {
            model: self.mask_model.clone(),
            masks: self.mask_dir.clone(),
            object_at: self.object_at.clone(),
            keep_floor: self.keep_floor,
        };
        options.wanted(self.remove_background)
    }

    /// How to find the poses.
    pub(super) fn poses_options(&self) -> PosesOptions {
        PosesOptions { sfm: self.sfm_options(), background: self.mask_options(), add_to: None }
    }

    fn sfm_options(&self) -> SfmOptions {
        SfmOptions {
            method: self.reconstruction_method.mapping(),
            seed: self.seed,
            apriltag_size_mm: self.apriltag_size_mm,
            require_scale: self.require_scale,
            strict: self.strict,
            rolling_shutter_ms: self.rolling_shutter_ms,
            focal: self.focal,
            ..SfmOptions::default()
        }
    }

    /// A turntable is a picture of the training result: as large as the pictures it was trained on, over the same `background` as
    /// the preview.
    pub(super) fn turntable_options(&self, background: [f32; 3]) -> TurntableOptions {
        let standard = TurntableOptions::default();
        TurntableOptions {
            max_side: standard.max_side.min(self.training_max_resolution),
            background,
            ..standard
        }
    }

    /// Seconds for the training, where there is a limit and the stages before took `spent` seconds: a tenth of all is kept for the
    /// files, and a tenth is left at least.
    pub(super) fn training_budget(&self, spent: f64) -> Option<u32> {
        let whole = f64::from(self.time_budget_seconds?);
        Some((0.9 * whole - spent).max(0.1 * whole).ceil() as u32)
    }

    pub(super) fn train_options(&self) -> TrainOptions {
        TrainOptions {
            training_num_steps: self.training_num_steps,
            training_max_num_gaussians: self.training_max_num_gaussians,
            time_budget_seconds: self.time_budget_seconds,
            sh_degree: self.sh_degree,
            max_resolution: Some(self.training_max_resolution),
            test_every: self.test_every,
            clean: self.clean,
            seed: self.seed,
            ..TrainOptions::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;

    #[test]
    fn the_defaults_are_those_of_the_specification() {
        let options = ReconstructionOptions::default();
        assert_eq!(options.training_max_num_gaussians, 1_000_000);
        assert_eq!(options.training_num_steps, 25_000);
        assert!(!options.remove_background && options.apriltag_size_mm.is_none());
        assert_eq!(serde_json::to_value(options.reconstruction_method).unwrap(), "glomap");
        options.check().unwrap();
    }

    #[test]
    fn what_removing_the_background_needs_is_looked_for_at_once() {
        let good = ReconstructionOptions::default();
        assert_eq!(good.mask_options(), None);
        let nowhere = Some(PathBuf::from("/nowhere/model.onnx"));
        let asked = ReconstructionOptions { remove_background: true, mask_model: nowhere, ..good.clone() };
        let error = asked.check().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotFound);
        assert!(error.hint_text().is_some_and(|h| h.contains("make mask-model")), "{error}");
        let folder = tempfile::tempdir().unwrap();
        // Masks of one's own need no model, and are wish enough.
        let given = ReconstructionOptions { mask_dir: Some(folder.path().into()), ..good.clone() };
        given.check().unwrap();
        assert_eq!(given.mask_options().and_then(|b| b.masks), Some(folder.path().into()));
        // So is a hand that points, but not at masks.
        let point = Some("3,4".parse().unwrap());
        let pointed = ReconstructionOptions { object_at: point.clone(), ..good.clone() };
        assert_eq!(pointed.mask_options().and_then(|b| b.object_at), point);
        let both = ReconstructionOptions { object_at: point, ..given };
        assert_eq!(both.check().unwrap_err().kind(), ErrorKind::InvalidArgument);
        let missing = ReconstructionOptions { mask_dir: Some("/nowhere/masks".into()), ..good };
        assert_eq!(missing.check().unwrap_err().kind(), ErrorKind::NotFound);
    }

    #[test]
    fn every_limit_is_inclusive_and_its_message_names_the_value() {
        let good = ReconstructionOptions::default();
        for gaussians in [1_000, 10_000_000] {
            ReconstructionOptions { training_max_num_gaussians: gaussians, ..good.clone() }.check().unwrap();
        }
        for gaussians in [999, 10_000_001] {
            let error = ReconstructionOptions { training_max_num_gaussians: gaussians, ..good.clone() }
                .check()
                .unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidArgument);
            assert!(error.message().contains("training_max_num_gaussians"), "{error}");
        }
        for steps in [0, 200_001] {
            let error =
                ReconstructionOptions { training_num_steps: steps, ..good.clone() }.check().unwrap_err();
            assert!(error.message().contains("training_num_steps"), "{error}");
        }
        // Those of the frames and of the training, which both have a resolution.
        let sides = |frames, training| {
            let max_frames = Some(3);
            ReconstructionOptions {
                max_frames,
                max_resolution: frames,
                training_max_resolution: training,
                ..good.clone()
            }
            .check()
        };
        sides(64, 16).unwrap();
        sides(8192, 16_384).unwrap();
        for (frames, training, said) in [
            (63, 480, "max_resolution is 63"),
            (8193, 480, "max_resolution is 8193"),
            (480, 5, "training_max_resolution is 5"),
            (480, 16_385, "training_max_resolution is 16385"),
        ] {
            let error = sides(frames, training).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidArgument);
            assert!(error.message().starts_with(said), "{error}");
        }
        for max_frames in [0, 2, 5001] {
            let error =
                ReconstructionOptions { max_frames: Some(max_frames), ..good.clone() }.check().unwrap_err();
            assert!(error.message().contains(&format!("max_frames is {max_frames}")), "{error}");
        }
        let title = Some("a\u{7}".to_owned());
        assert!(ReconstructionOptions { title, ..good.clone() }.check().is_err());
        for size in [0.0, 1000.1, f64::NAN] {
            let error =
                ReconstructionOptions { apriltag_size_mm: Some(size), ..good.clone() }.check().unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidArgument);
        }
        for size in [1.0, 1000.0] {
            ReconstructionOptions { apriltag_size_mm: Some(size), require_scale: true, ..good.clone() }
                .check()
                .unwrap();
        }
        let error = ReconstructionOptions { require_scale: true, ..good.clone() }.check().unwrap_err();
        assert!(error.message().contains("apriltag_size_mm"), "{error}");
    }

    #[test]
    fn training_has_the_time_that_the_stages_before_it_leave() {
        let none = ReconstructionOptions::default();
        assert_eq!(none.training_budget(50.0), None);
        let asked = ReconstructionOptions { time_budget_seconds: Some(600), ..none };
        assert_eq!(asked.training_budget(100.0), Some(440));
        // However long they took, it is something.
        assert_eq!(asked.training_budget(1000.0), Some(60));
        for (seconds, allowed) in [(0, false), (1, true), (2_592_000, true), (2_592_001, false)] {
            let asked = ReconstructionOptions { time_budget_seconds: Some(seconds), ..asked.clone() };
            assert_eq!(asked.check().is_ok(), allowed, "{seconds}");
        }
    }

    #[test]
    fn a_projection_is_part_of_what_frames_are_made_by_only_if_it_is_named() {
        // Keys of stages are made of these, too.
        let written =
            |options: &ReconstructionOptions| serde_json::to_string(&options.frame_options(false)).unwrap();
        let usual = ReconstructionOptions::default();
        assert_eq!(written(&usual), r#"{"max_frames":150,"more_frames":true,"max_resolution":1600}"#);
        assert!(!serde_json::to_string(&usual).unwrap().contains("projection"));
        let asked: ReconstructionOptions =
            serde_json::from_str(r#"{"projection":"equirectangular"}"#).unwrap();
        assert_eq!(asked.projection, Some(Projection::Equirectangular));
        assert!(written(&asked).contains(r#""projection":"equirectangular""#));
        assert!(serde_json::from_str::<ReconstructionOptions>(r#"{"projection":"cubemap"}"#).is_err());
    }

    #[test]
    fn the_search_for_poses_begins_with_a_focal_length_that_is_known() {
        let usual = ReconstructionOptions::default();
        assert_eq!(usual.poses_options().sfm.focal, None);
        assert!(!serde_json::to_string(&usual).unwrap().contains("focal"));
        let asked: ReconstructionOptions = serde_json::from_str(r#"{"focal":800}"#).unwrap();
        assert_eq!(asked.poses_options().sfm.focal, Some(800.0));
        asked.check().unwrap();
        for focal in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            let error = ReconstructionOptions { focal: Some(focal), ..usual.clone() }.check().unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidArgument);
            assert!(error.message().starts_with(&format!("the focal length is {focal};")), "{error}");
        }
    }

    #[test]
    fn floaters_are_sought_unless_it_is_said() {
        let usual = ReconstructionOptions::default();
        assert!(usual.train_options().clean);
        assert!(!serde_json::to_string(&usual).unwrap().contains("clean"));
        let asked: ReconstructionOptions = serde_json::from_str(r#"{"clean":false}"#).unwrap();
        assert_eq!(asked, ReconstructionOptions { clean: false, ..usual });
        assert!(!asked.train_options().clean);
        assert!(serde_json::to_string(&asked).unwrap().contains(r#""clean":false"#));
    }

    #[test]
    fn options_without_tags_are_written_as_ever() {
        // Keys of stages are made of them: finished stages of old folders stay valid.
        let without = serde_json::to_string(&ReconstructionOptions::default().sfm_options()).unwrap();
        assert!(!without.contains("apriltag") && !without.contains("require_scale"), "{without}");
    }
}
