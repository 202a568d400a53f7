//! Films a synthetic room: a video with known camera poses. `synthetic-capture --help` tells more.

#![allow(clippy::print_stdout)]

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, ValueEnum};
use libreconstruct::{Control, Error, Result};
use libreconstruct_tests::exit_code;
use libreconstruct_tests::synthetic::{CaptureOptions, Film, SubjectKind, TagOptions, generate};

/// Film a furnished room along a hand-held camera path, with known poses.
///
/// Writes video.mp4, poses.json (camera-to-world per frame, metres), capture.json (what was filmed and how) and, if
/// asked for, masks/ of the things on the table.
#[derive(Parser)]
struct Arguments {
    /// Folder to write into
    #[arg(short, long)]
    output: PathBuf,
    /// Decides the room, the path and the noise
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Picture width in pixels
    #[arg(long, default_value_t = 960)]
    width: u32,
    /// Picture height in pixels
    #[arg(long, default_value_t = 540)]
    height: u32,
    /// Number of video frames
    #[arg(long, default_value_t = 150)]
    frames: u32,
    /// Frames per second
    #[arg(long, default_value_t = 15.0)]
    frame_rate: f64,
    /// Degrees walked around the table
    #[arg(long, default_value_t = 230.0)]
    arc: f64,
    /// Radial distortion of the lens
    #[arg(long, default_value_t = -0.04, allow_negative_numbers = true)]
    distortion: f64,
    /// Seconds for which the shutter is open (motion blur)
    #[arg(long, default_value_t = 0.005)]
    shutter: f64,
    /// Seconds from the first to the last row (0 = global shutter)
    #[arg(long, default_value_t = 0.0)]
    rolling_shutter: f64,
    /// Sensor noise, standard deviation in 8-bit steps
    #[arg(long, default_value_t = 1.5)]
    noise: f64,
    /// Drift of the exposure over the clip, in stops
    #[arg(long, default_value_t = 0.15)]
    exposure_drift: f64,
    /// Put an AprilTag (tagStandard41h12) on the table with this inner white square, in millimetres (5 to 150)
    #[arg(long)]
    tag_mm: Option<f64>,
    /// Number of tags, 1 to 5; the third lies flat, the others are tilted
    #[arg(long, default_value_t = 1, requires = "tag_mm")]
    tags: u32,
    /// Degrees by which the sheets of the tags are bent
    #[arg(long, default_value_t = 0.0, requires = "tag_mm")]
    tag_bend: f64,
    /// Put a tag of another family beside them
    #[arg(long, requires = "tag_mm")]
    tag_distractor: bool,
    /// What stands on the table
    #[arg(long, value_enum, default_value_t = Subject::StillLife)]
    subject: Subject,
    /// Turn away from the table in this part of the clip, at its end (0 to 1)
    #[arg(long, default_value_t = 0.0)]
    look_away: f64,
    /// Write masks of the things on the table
    #[arg(long)]
    masks: bool,
    /// Film all directions as an equirectangular panorama, twice as wide as high; the poses are those of its front
    #[arg(long)]
    panorama: bool,
    /// Film through a fisheye; the focal length is then that of an angle of one radian
    #[arg(long, conflicts_with = "panorama")]
    fisheye: bool,
    /// Go through a house of so many rooms (1 or an even number) and back, once around the table of each
    #[arg(long, conflicts_with_all = ["masks", "tag_mm", "look_away"])]
    rooms: Option<u32>,
    /// Focal length over the long side of the picture
    #[arg(long, default_value_t = CaptureOptions::default().relative_focal)]
    focal: f64,
    /// Write only this frame, as still.png
    #[arg(long)]
    still: Option<u32>,
}

#[derive(Clone, Copy, ValueEnum)]
enum Subject {
    /// A vase on a stone, a globe, books and a cup
    StillLife,
    /// A white figure without any texture
    Plain,
    /// A candlestick: rods of 16 to 24 mm
    Thin,
}

impl From<Subject> for SubjectKind {
    fn from(subject: Subject) -> Self {
        match subject {
            Subject::StillLife => Self::StillLife,
            Subject::Plain => Self::Plain,
            Subject::Thin => Self::Thin,
        }
    }
}

fn main() -> ExitCode {
    exit_code(run(&Arguments::parse()))
}

fn run(arguments: &Arguments) -> Result<()> {
    let options = CaptureOptions {
        seed: arguments.seed,
        width: arguments.width,
        height: arguments.height,
        frames: arguments.frames,
        frame_rate: arguments.frame_rate,
        arc_degrees: arguments.arc,
        distortion: arguments.distortion,
        shutter: arguments.shutter,
        rolling_shutter: arguments.rolling_shutter,
        noise: arguments.noise,
        exposure_drift: arguments.exposure_drift,
        tags: arguments.tag_mm.map(|mm| TagOptions {
            count: arguments.tags,
            size: mm / 1000.0,
            bend: arguments.tag_bend.to_radians(),
            distractor: arguments.tag_distractor,
        }),
        masks: arguments.masks,
        subject: arguments.subject.into(),
        look_away: arguments.look_away,
        panorama: arguments.panorama,
        fisheye: arguments.fisheye,
        rooms: arguments.rooms,
        relative_focal: arguments.focal,
        ..CaptureOptions::default()
    };
    if let Some(frame) = arguments.still {
        let path = arguments.output.join("still.png");
        std::fs::create_dir_all(&arguments.output).map_err(|e| Error::io("create", &arguments.output, e))?;
        let (picture, _) = Film::new(&options).expose(frame);
        return picture.save(&path).map_err(|e| Error::io("write", &path, std::io::Error::other(e)));
    }
    generate(&arguments.output, &options, &Control::new())?;
    println!("{} frames in {}", options.frames, arguments.output.join("video.mp4").display());
    Ok(())
}
