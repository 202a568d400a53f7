//! Measures what a rolling shutter costs and what its correction gives back, and prints a table. `shutter-study --help`
//! tells more.

#![allow(clippy::print_stdout)]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use libreconstruct::camera::Pose;
use libreconstruct::sfm::{Reconstruction, SfmOptions, reconstruct};
use libreconstruct::video::{FrameOptions, Frames, extract_frames};
use libreconstruct::{Control, Result};
use libreconstruct_tests::pose_error::{compare, read_poses, trajectory_error};
use libreconstruct_tests::synthetic::{CaptureOptions, generate};

/// Measure what a rolling shutter costs and what its correction gives back.
#[derive(Parser)]
struct Arguments {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// Film synthetic rooms and compare with their exact truth
    Synthetic {
        /// Folder for the captures; those that are there are used again
        #[arg(short, long)]
        output: PathBuf,
        /// Seeds of the captures
        #[arg(long, value_delimiter = ',', default_value = "1,2,3,4,5,6")]
        seeds: Vec<u64>,
        /// Readout times in milliseconds
        #[arg(long, value_delimiter = ',', default_value = "0,10,20,30")]
        readouts: Vec<f64>,
        /// Picture width; the height is 9/16 of it
        #[arg(long, default_value_t = 480)]
        width: u32,
        /// Video frames, 15 a second
        #[arg(long, default_value_t = 45)]
        frames: u32,
        /// Degrees walked around the table
        #[arg(long, default_value_t = 82.0)]
        arc: f64,
        /// Key frames at most
        #[arg(long, default_value_t = 150)]
        max_frames: usize,
    },
    /// A video; writes the models with and without the correction, if there is one
    Real {
        /// The video
        video: PathBuf,
        /// Folder for the frames and models
        #[arg(short, long)]
        output: PathBuf,
        /// Key frames at most
        #[arg(long, default_value_t = 150)]
        max_frames: usize,
    },
}

fn main() -> ExitCode {
    let result = match Arguments::parse().what {
        What::Synthetic { output, seeds, readouts, width, frames, arc, max_frames } => {
            let base = CaptureOptions {
                width,
                height: (width * 9 / 16) & !1,
                frames,
                arc_degrees: arc,
                ..Default::default()
            };
            let captures = seeds.iter().flat_map(|&seed| readouts.iter().map(move |&ms| (seed, ms)));
            captures
                .map(|(seed, ms)| CaptureOptions { seed, rolling_shutter: ms / 1e3, ..base.clone() })
                .try_for_each(|capture| synthetic(&output, &capture, max_frames))
        }
        What::Real { video, output, max_frames } => real(&video, &output, max_frames),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::from(error.kind().exit_code())
        }
    }
}

/// The key frames of a video in `folder`, made if they are not there.
fn frames_of(video: &Path, folder: &Path, max_frames: usize) -> Result<Frames> {
    let folder = folder.join(format!("frames-{max_frames}"));
    Frames::load(&folder).or_else(|_| {
        let options = FrameOptions { max_frames, ..Default::default() };
        extract_frames(video, &folder, &options, &Control::new())
    })
}

/// With the correction where there is one to make, and without.
fn both(frames: &Frames) -> Result<(Reconstruction, Option<Reconstruction>)> {
    let control = Control::new();
    let found = reconstruct(frames, &SfmOptions::default(), &control)?;
    let without = SfmOptions { rolling_shutter_ms: Some(0.0), ..Default::default() };
    let applied = found.report.rolling_shutter.as_ref().is_some_and(|s| s.applied);
    let plain = applied.then(|| reconstruct(frames, &without, &control)).transpose()?;
    Ok((found, plain))
}

/// What was found of the shutter, and how long that took.
fn shutter(found: &Reconstruction) -> String {
    let Some(shutter) = &found.report.rolling_shutter else { return "not examined".to_owned() };
    let seconds = |step: &str| {
        found.report.times.iter().filter(|t| step.is_empty() || t.step == step).map(|t| t.wall_s).sum::<f64>()
    };
    format!(
        "{:.2} ms (known to {:.2}) {:?}, shift {:.3} px, gain {:.1} %, {:.1} of {:.1} s {}",
        shutter.readout_ms,
        shutter.deviation_ms.unwrap_or(f64::NAN),
        shutter.direction,
        shutter.shift,
        100.0 * shutter.gain.unwrap_or(0.0),
        seconds("rolling shutter"),
        seconds(""),
        shutter.refusal.as_deref().unwrap_or_default(),
    )
}

fn synthetic(output: &Path, capture: &CaptureOptions, max_frames: usize) -> Result<()> {
    let CaptureOptions { seed, width, frames, frame_rate, arc_degrees, rolling_shutter, .. } = *capture;
    let name = format!("{seed}-{width}-{frames}x{frame_rate}-{arc_degrees}-{}ms", 1e3 * rolling_shutter);
    let folder = output.join(&name);
    if !folder.join("capture.json").is_file() {
        generate(&folder, capture, &Control::new())?;
    }
    let frames = frames_of(&folder.join("video.mp4"), &folder, max_frames)?;
    let truth = read_poses(&folder.join("poses.json"))?;
    let numbers: BTreeMap<&str, u64> = frames.frames.iter().map(|f| (f.name.as_str(), f.index)).collect();
    let wanted: Vec<u64> = numbers.values().copied().collect();
    let figures = |found: &Reconstruction| {
        let images = found.model.images.values();
        let poses: BTreeMap<u64, Pose> =
            images.filter_map(|i| Some((*numbers.get(i.name.as_str())?, i.pose))).collect();
        let error = compare(&truth, &poses, &wanted);
        (trajectory_error(&truth, &poses).unwrap_or(f64::NAN), error.auc[0])
    };
    let (found, plain) = both(&frames)?;
    let (after, auc_after) = figures(&found);
    let (before, auc_before) = plain.as_ref().map_or((after, auc_after), figures);
    println!(
        "{name:26} {:3} frames  position {before:.6} {after:.6} ({:5.2} x)  AUC@1 {auc_before:.1} {auc_after:.1}  {}",
        wanted.len(),
        before / after,
        shutter(&found)
    );
    Ok(())
}

fn real(video: &Path, output: &Path, max_frames: usize) -> Result<()> {
    let frames = frames_of(video, output, max_frames)?;
    let (found, plain) = both(&frames)?;
    found.model.write_binary(&output.join("corrected"))?;
    if let Some(plain) = plain {
        plain.model.write_binary(&output.join("plain"))?;
    }
    println!("{} frames, {}", frames.frames.len(), shutter(&found));
    Ok(())
}
