//! One file a command.

pub(crate) mod backup;
pub(crate) mod convert;
pub(crate) mod data;
pub(crate) mod devices;
pub(crate) mod doctor;
pub(crate) mod download;
pub(crate) mod eval;
pub(crate) mod frames;
pub(crate) mod info;
pub(crate) mod jobs;
pub(crate) mod keys;
mod masks;
pub(crate) mod migrate;
mod on_server;
pub(crate) mod render;
pub(crate) mod restore;
pub(crate) mod run;
pub(crate) mod serve;
pub(crate) mod sfm;
pub(crate) mod status;
pub(crate) mod submit;
pub(crate) mod tags;
pub(crate) mod train;
pub(crate) mod users;
pub(crate) mod worker;

use clap::{Args, ValueEnum};
use libreconstruct::camera::ReadoutDirection;
use libreconstruct::pipeline::{Quality, files};
use libreconstruct::sfm::{ComponentReport, Grade, ScaleReport, SfmReport, ShutterReport, Verdict};
use libreconstruct::video::Projection;
pub(crate) use masks::{MaskArguments, mask_summary, masks_of};

/// What sets the scale.
#[derive(Args)]
pub(crate) struct ScaleArguments {
    /// Edge of the inner white square of the AprilTags (tagStandard41h12) in the scene in millimetres, 1 to 1000: makes the
    /// scene metric. It is 5/9 of the printed width (`reconstruct tags --print` makes tags)
    #[arg(long, value_name = "MM")]
    apriltag_size_mm: Option<f64>,
    /// Fail where the tags give no scale, instead of making the scene in arbitrary units
    #[arg(long, requires = "apriltag_size_mm")]
    require_scale: bool,
}

/// What is known of the shutter.
#[derive(Args)]
pub(crate) struct ShutterArguments {
    /// Milliseconds from the first line of a picture to the last one, 0 to 100; 0 for a global shutter [default: that of a
    /// video is estimated where it matters]
    #[arg(long, value_name = "MS")]
    rolling_shutter_ms: Option<f64>,
}

/// How the pictures of a video show directions.
#[derive(Args)]
pub(crate) struct ProjectionArguments {
    /// How the pictures of the video show directions
    #[arg(long, value_enum, default_value = "auto")]
    projection: ProjectionArgument,
}

#[derive(Clone, Copy, ValueEnum)]
enum ProjectionArgument {
    /// As the file says, or as its pictures look where it says nothing
    Auto,
    /// As an ordinary lens does
    Flat,
    /// All directions around the camera (360° video)
    Equirectangular,
}

impl ProjectionArguments {
    /// The projection, if one is named.
    pub(crate) fn named(&self) -> Option<Projection> {
        match self.projection {
            ProjectionArgument::Auto => None,
            ProjectionArgument::Flat => Some(Projection::Flat),
            ProjectionArgument::Equirectangular => Some(Projection::Equirectangular),
        }
    }
}

/// The shutter that was corrected, for people.
pub(crate) fn shutter_line(shutter: &ShutterReport) -> String {
    let direction = match shutter.direction {
        ReadoutDirection::Down => "downwards",
        ReadoutDirection::Up => "upwards",
        ReadoutDirection::Right => "to the right",
        ReadoutDirection::Left => "to the left",
    };
    format!("{:.1} ms {direction}, corrected by {:.2} px", shutter.readout_ms, shutter.shift)
}

/// The scale, for people.
pub(crate) fn scale_line(scale: &ScaleReport) -> String {
    let used: Vec<_> = scale.tags.iter().filter(|t| t.used).collect();
    if !scale.applied {
        return format!("none: arbitrary units ({} sightings of AprilTags)", scale.sightings);
    }
    let views: usize = used.iter().map(|t| t.views).sum();
    let spread = used.iter().filter_map(|t| t.relative_residual).map(f64::abs).fold(0.0, f64::max);
    format!(
        "metric, known to {:.2} % (1 sigma), by {} AprilTags of {} mm in {views} views, which differ by {:.2} % at most",
        100.0 * scale.relative_sigma.unwrap_or(0.0),
        used.len(),
        scale.apriltag_size_mm,
        100.0 * spread
    )
}

/// The verdict on the poses, for people.
pub(crate) fn verdict_line(verdict: &Verdict) -> String {
    let grade = match verdict.grade {
        Grade::Good => "good",
        Grade::Doubtful => "doubtful",
        Grade::Broken => "broken",
    };
    format!(
        "{grade}: expected to be off by {:.2} degrees and {:.2} % of the camera path",
        verdict.rotation_error_degrees,
        100.0 * verdict.position_error
    )
}

/// The focal lengths of all cameras, for people.
pub(crate) fn lens_line(sfm: &SfmReport) -> String {
    // The focal length is the first parameter of every lens model.
    let others = sfm.other_cameras.iter().map(|camera| camera.camera_params[0]);
    let all: Vec<String> =
        std::iter::once(sfm.camera_params[0]).chain(others).map(|focal| format!("{focal:.1}")).collect();
    match all.as_slice() {
        [focal] => format!("focal length {focal} px"),
        several => format!("{} cameras with focal lengths of {} px", several.len(), several.join(", ")),
    }
}

/// Another place that the capture shows, for people; its model is number `number`.
pub(crate) fn component_line(component: &ComponentReport, number: usize) -> String {
    let points = component.points;
    let grade = component.verdict.as_ref().map(verdict_line).unwrap_or_default();
    format!("{} frames, {points} points, in {}/{number}; {grade}", component.registered, files::SPARSE)
}

/// A preset as it is written on the command line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum QualityArgument {
    /// 100 frames, 480 px, 50,000 Gaussians, 2,000 steps: minutes on a CPU
    Preview,
    /// 300 frames (150 on a CPU), 1600 px, 1,000,000 Gaussians, 25,000 steps: for a GPU
    Standard,
    /// 600 frames, 2560 px, 3,000,000 Gaussians, 40,000 steps
    High,
}

impl From<QualityArgument> for Quality {
    fn from(argument: QualityArgument) -> Self {
        match argument {
            QualityArgument::Preview => Quality::Preview,
            QualityArgument::Standard => Quality::Standard,
            QualityArgument::High => Quality::High,
        }
    }
}
