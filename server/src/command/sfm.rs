//! `reconstruct sfm`: camera poses.

use std::path::PathBuf;

use clap::Args;
use libreconstruct::Result;
use libreconstruct::camera::CameraModel;
use libreconstruct::pipeline::{PosesOptions, ReconstructionMethod, files, find_poses, frames_for};
use libreconstruct::sfm::SfmOptions;
use libreconstruct::video::FrameOptions;

use super::{
    MaskArguments, ProjectionArguments, ScaleArguments, ShutterArguments, component_line, lens_line,
    mask_summary, scale_line, shutter_line, verdict_line,
};
use crate::context::Context;

/// Find camera poses and sparse points
///
/// Takes a folder that `reconstruct frames` wrote, a video, or a folder of pictures, videos or both: those of one size, taken
/// with one lens, are by one camera, and each gets a lens of its own. Writes a COLMAP model (sparse/),
/// the undistorted frames with their PINHOLE model (undistorted/images, undistorted/sparse) and poses.jpg. With
/// --apriltag-size-mm all of it is in metres, and tags.json has the tags that were found; with --remove-background masks of
/// the object go into undistorted/masks/ (and masks.jpg). Stopped or killed, the same command goes on with the features and matches
/// that it had found. Where FOLDER has a frames/, sparse/ or undistorted/ that this program has not left and would write anew, it is an
/// error, and they stay.
#[derive(Args)]
pub(crate) struct Arguments {
    /// Folder of frames or pictures, or a video
    frames: PathBuf,
    /// Folder for the results
    #[arg(short, long, value_name = "FOLDER")]
    output: PathBuf,
    /// The folder of an earlier result (with its frames/ and sparse/): FRAMES, a further video or folder of pictures of the same
    /// scene, is added to that model, whose world stays as it is
    #[arg(long, visible_alias = "add", value_name = "EARLIER")]
    add_to: Option<PathBuf>,
    /// glomap (global) or colmap (incremental) structure from motion
    #[arg(long, default_value = "glomap")]
    reconstruction_method: ReconstructionMethod,
    /// At most this many frames, where they still have to be chosen [default: 150, or up to 450 where neighbouring ones would share
    /// too little]
    #[arg(long, value_name = "N")]
    max_frames: Option<usize>,
    /// Long side of the frames in pixels at most, where they still have to be made
    #[arg(long, value_name = "PIXELS", default_value_t = 1600)]
    max_resolution: u32,
    #[command(flatten)]
    projection: ProjectionArguments,
    #[command(flatten)]
    scale: ScaleArguments,
    #[command(flatten)]
    shutter: ShutterArguments,
    #[command(flatten)]
    masks: MaskArguments,
    /// The kind of lens, by COLMAP's name: SIMPLE_PINHOLE and PINHOLE for pictures without distortion, OPENCV, ...
    /// SIMPLE_RADIAL becomes RADIAL, or a fisheye, where the capture asks for it
    #[arg(long, value_name = "MODEL", default_value = "SIMPLE_RADIAL", value_parser = camera_model)]
    camera_model: CameraModel,
    /// Focal length in pixels of the frames (those of the camera that made most), if known; it is refined
    #[arg(long, value_name = "PIXELS")]
    focal: Option<f64>,
    /// Fail where the poses are doubtful, instead of warning
    #[arg(long)]
    strict: bool,
    /// Write a model that is broken, too, rather than fail: to look at it
    #[arg(long)]
    keep_broken: bool,
    /// Fixes every random choice
    #[arg(long, default_value_t = 0)]
    seed: u64,
}

fn camera_model(name: &str) -> std::result::Result<CameraModel, String> {
    CameraModel::from_name(name).ok_or_else(|| {
        let known: Vec<&str> = CameraModel::ALL.into_iter().map(CameraModel::name).collect();
        format!("one of {} is known", known.join(", "))
    })
}

impl Arguments {
    pub(crate) fn run(&self, context: &Context<'_>) -> Result<()> {
        let control = context.control;
        let sfm = SfmOptions {
            method: self.reconstruction_method.mapping(),
            seed: self.seed,
            apriltag_size_mm: self.scale.apriltag_size_mm,
            require_scale: self.scale.require_scale,
            strict: self.strict,
            camera_model: self.camera_model,
            focal: self.focal,
            keep_broken: self.keep_broken,
            rolling_shutter_ms: self.shutter.rolling_shutter_ms,
            ..SfmOptions::default()
        };
        let options = PosesOptions { sfm, background: self.masks.options(), add_to: self.add_to.clone() };
        options.check()?;
        let wanted = FrameOptions {
            max_resolution: self.max_resolution,
            projection: self.projection.named(),
            ..FrameOptions::of_at_most(self.max_frames)
        };
        let (frames, source) = frames_for(&self.frames, &self.output, &wanted, &options, control)?;
        let report = find_poses(&frames, source, &options, &self.output, control)?;
        let sfm = &report.sfm;
        let text = format!(
            "{} of {} frames registered, {} points, reprojection error {:.2} px, {}\n{}{}{}{}{}model {}\n\
             for training {}",
            sfm.registered,
            frames.frames.len(),
            sfm.points,
            sfm.mean_reprojection_error,
            lens_line(sfm),
            sfm.verdict.as_ref().map(|v| format!("poses {}\n", verdict_line(v))).unwrap_or_default(),
            sfm.components
                .iter()
                .zip(1..)
                .map(|(c, number)| format!("another place {}\n", component_line(c, number)))
                .collect::<String>(),
            sfm.rolling_shutter
                .as_ref()
                .filter(|s| s.applied)
                .map(|s| format!("rolling shutter {}\n", shutter_line(s)))
                .unwrap_or_default(),
            sfm.scale.as_ref().map(|s| format!("scale {}\n", scale_line(s))).unwrap_or_default(),
            report.background.as_ref().map(|b| format!("object {}\n", mask_summary(b))).unwrap_or_default(),
            self.output.join(files::SPARSE).display(),
            self.output.join(files::UNDISTORTED).display()
        );
        context.result(&report, &text);
        Ok(())
    }
}
