//! `reconstruct run`: everything.

use std::path::PathBuf;

use clap::Args;
use libreconstruct::Result;
use libreconstruct::pipeline::{ReconstructionMethod, ReconstructionOptions, Report, files, reconstruct};
use libreconstruct::presentation::CameraType;
use libreconstruct::raster::DeviceChoice;

use super::{
    MaskArguments, ProjectionArguments, QualityArgument, ScaleArguments, ShutterArguments, component_line,
    lens_line, mask_summary, scale_line, shutter_line,
};
use crate::context::Context;
use crate::ui;

/// Make a scene from a video, or a folder of pictures, videos or both
///
/// Writes into FOLDER: frames/ and frames.jpg (the key frames), sparse/ (COLMAP model), undistorted/ (frames for any
/// trainer), masks.jpg (with --remove-background), poses.jpg, scene.ply, scene.spz, preview.jpg, camera.json, turntable.mp4, report.json. Run again with the
/// same options it continues where it was stopped; with other options it redoes what they change. Where FOLDER has a frames/,
/// sparse/ or undistorted/ that no such run has left, it is an error, and they stay.
#[derive(Args)]
pub(crate) struct Arguments {
    /// Video file (mp4, mov, m4v, mkv, webm, avi), or folder of pictures (jpg, png, webp), videos or both, by one camera or several
    video: PathBuf,
    /// Folder for the results
    #[arg(short, long, value_name = "FOLDER")]
    output: PathBuf,
    /// Sets all of the following that are not given
    #[arg(long, value_enum, default_value = "standard")]
    quality: QualityArgument,
    /// Title of the scene [default: the file's name]
    #[arg(long)]
    title: Option<String>,
    /// How camera poses are found: glomap (global) or colmap (incremental) structure from motion
    #[arg(long, default_value = "glomap")]
    reconstruction_method: ReconstructionMethod,
    /// Time for all of it: 5m, 90s, 1h30m. Training makes fewer steps with fewer Gaussians on smaller pictures if this machine
    /// would take longer
    #[arg(long, value_name = "TIME", value_parser = time_budget)]
    time_budget: Option<u32>,
    /// Training steps, 1 to 200,000
    #[arg(long, value_name = "N")]
    training_num_steps: Option<u32>,
    /// Largest number of Gaussians, 1,000 to 10,000,000
    #[arg(long, value_name = "N")]
    training_max_num_gaussians: Option<u32>,
    #[command(flatten)]
    scale: ScaleArguments,
    #[command(flatten)]
    shutter: ShutterArguments,
    #[command(flatten)]
    masks: MaskArguments,
    /// Focal length in pixels of the frames (those of the camera that made most), if known; it is refined
    #[arg(long, value_name = "PIXELS")]
    focal: Option<f64>,
    /// Fail where the poses are doubtful, instead of warning
    #[arg(long)]
    strict: bool,
    /// How a viewer moves: orbital or drone [default: drone]
    #[arg(long, value_parser = camera_type)]
    camera_type: Option<CameraType>,
    /// At most this many key frames [default: 100 for preview, 150 or on a GPU 300 for standard, 600 for high; up to three times as
    /// many where neighbouring ones would share too little]
    #[arg(long, value_name = "N")]
    max_frames: Option<usize>,
    /// Long side of the frames in pixels at most (training pictures are no larger)
    #[arg(long, value_name = "PIXELS")]
    max_resolution: Option<u32>,
    #[command(flatten)]
    projection: ProjectionArguments,
    /// Hold out every Nth image, from the first, and score the scene on them
    #[arg(long, value_name = "N")]
    test_every: Option<u32>,
    /// Degree of the colours' dependence on the direction of view, 0 to 3 [default: the quality's]
    #[arg(long, value_name = "N")]
    sh_degree: Option<u32>,
    /// Leave Gaussians that hang in free space where they are (on a graphics device they are left in any case)
    #[arg(long)]
    no_clean: bool,
    /// Fixes every random choice
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Where to train: auto, cpu, gpu, or part of a graphics adapter's name (see `reconstruct devices`)
    #[arg(long, default_value = "auto")]
    device: DeviceChoice,
    /// Do not render turntable.mp4
    #[arg(long)]
    no_turntable: bool,
}

/// Whole seconds of a time with its units.
pub(super) fn time_budget(text: &str) -> std::result::Result<u32, String> {
    let how = "a time with its unit: 5m, 90s, 1h30m";
    let time: jiff::SignedDuration = text.parse().map_err(|_| how.to_owned())?;
    u32::try_from(time.as_secs()).ok().filter(|&seconds| seconds > 0).ok_or_else(|| how.to_owned())
}

pub(super) fn camera_type(text: &str) -> std::result::Result<CameraType, String> {
    let name = serde_json::Value::String(text.to_owned());
    serde_json::from_value(name).map_err(|_| "orbital and drone are known".to_owned())
}

impl Arguments {
    fn options(&self) -> ReconstructionOptions {
        let preset = ReconstructionOptions::with_quality(self.quality.into());
        let max_resolution = self.max_resolution.unwrap_or(preset.max_resolution);
        ReconstructionOptions {
            title: self.title.clone(),
            reconstruction_method: self.reconstruction_method,
            time_budget_seconds: self.time_budget,
            training_num_steps: self.training_num_steps.unwrap_or(preset.training_num_steps),
            training_max_num_gaussians: self
                .training_max_num_gaussians
                .unwrap_or(preset.training_max_num_gaussians),
            apriltag_size_mm: self.scale.apriltag_size_mm,
            require_scale: self.scale.require_scale,
            strict: self.strict,
            rolling_shutter_ms: self.shutter.rolling_shutter_ms,
            focal: self.focal,
            remove_background: self.masks.remove_background,
            mask_model: self.masks.mask_model.clone(),
            mask_dir: self.masks.mask_dir.clone(),
            object_at: self.masks.object_at.clone(),
            keep_floor: self.masks.keep_floor,
            camera_type: self.camera_type,
            max_frames: self.max_frames.or(preset.max_frames),
            more_frames: self.max_frames.is_none(),
            max_resolution,
            projection: self.projection.named(),
            training_max_resolution: preset.training_max_resolution.min(max_resolution),
            test_every: self.test_every,
            sh_degree: self.sh_degree.unwrap_or(preset.sh_degree),
            clean: !self.no_clean,
            seed: self.seed,
            device: self.device.clone(),
            turntable: !self.no_turntable,
        }
    }

    pub(crate) fn run(&self, context: &Context<'_>) -> Result<()> {
        let report = reconstruct(&self.video, &self.output, &self.options(), context.control)?;
        context.result(&report, &self.summary(&report));
        Ok(())
    }

    fn summary(&self, report: &Report) -> String {
        let (frames, sfm, train, object) =
            (&report.frames, &report.sfm, &report.train, report.background.as_ref());
        let costs = &report.costs;
        let all = [costs.frames, costs.sfm, costs.train, costs.export];
        let seconds: f64 = all.iter().map(|c| c.seconds).sum();
        let memory = all.iter().filter_map(|c| c.peak_memory_mib).fold(0.0, f64::max);
        let score = train
            .evaluation
            .as_ref()
            .map(|e| {
                format!(", held-out PSNR {:.2} dB, SSIM {:.4}, at {} pixels", e.psnr, e.ssim, e.longest_side)
            })
            .unwrap_or_default();
        let at = |name: &str| self.output.join(name).display().to_string();
        let used = frames.panoramas.unwrap_or(frames.used);
        let sides =
            frames.panoramas.map(|_| format!("{} sides of panoramas, ", frames.used)).unwrap_or_default();
        format!(
            "{}\n  frames   {} of {} used, {sides}{}x{}\n  poses    {} registered, {} points, reprojection error {:.2} px, \
             {}\n{}{}{}{}  scene    {} splats after {} steps on {}{score}\n  cost     {} in all, {:.0} MiB \
             at most\nResults:\n  {}\n  {}\n  {}\n  {}\n  {}",
            report.title,
            used,
            frames.total,
            frames.width,
            frames.height,
            sfm.registered,
            sfm.points,
            sfm.mean_reprojection_error,
            lens_line(sfm),
            sfm.components
                .iter()
                .zip(1..)
                .map(|(c, number)| format!("  another  place: {}\n", component_line(c, number)))
                .collect::<String>(),
            sfm.rolling_shutter
                .as_ref()
                .filter(|s| s.applied)
                .map(|s| format!("  shutter  rolling, {}\n", shutter_line(s)))
                .unwrap_or_default(),
            sfm.scale.as_ref().map(|s| format!("  scale    {}\n", scale_line(s))).unwrap_or_default(),
            object.map(|b| format!("  object   {}\n", mask_summary(b))).unwrap_or_default(),
            report.export.splats,
            train.training.steps,
            train.device,
            ui::duration(seconds),
            memory,
            at(files::PLY),
            at(files::SPZ),
            at(files::PREVIEW),
            if self.no_turntable { at(files::FRAMES_SHEET) } else { at(files::TURNTABLE) },
            at(files::REPORT),
        )
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Command {
        #[command(flatten)]
        arguments: Arguments,
    }

    fn options(more: &[&str]) -> ReconstructionOptions {
        let words = ["run", "garden.mp4", "-o", "garden"].iter().chain(more);
        Command::try_parse_from(words).unwrap().arguments.options()
    }

    #[test]
    fn floaters_are_left_where_that_is_asked() {
        assert!(options(&[]).clean && !options(&["--no-clean"]).clean);
    }

    #[test]
    fn a_focal_length_can_be_given() {
        assert_eq!(options(&[]).focal, None);
        assert_eq!(options(&["--focal", "812.5"]).focal, Some(812.5));
    }
}
