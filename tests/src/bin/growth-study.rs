//! Measures what structure from motion costs as a capture grows: films houses of more and more rooms, whose camera poses are
//! known, and reconstructs them. `growth-study --help` tells more.

#![allow(clippy::print_stdout)]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Parser;
use libreconstruct::camera::Pose;
use libreconstruct::sfm::{Reconstruction, SfmOptions, reconstruct};
use libreconstruct::video::Frames;
use libreconstruct::{Control, Error, Result};
use libreconstruct_tests::alignment::{AlignedErrors, aligned_errors};
use libreconstruct_tests::cost::Meter;
use libreconstruct_tests::exit_code;
use libreconstruct_tests::growth::{Cost, growth_picture};
use libreconstruct_tests::pose_error::write_poses;
use libreconstruct_tests::synthetic::{CaptureOptions, Film, film_missing_frames};
use serde_json::{Value, json};

/// Measure time, memory and drift of structure from motion on walks through houses.
///
/// A walk goes through all rooms of a house, once around the table of each, and back to where it began. Every frame is a key
/// frame. Prints a table: seconds of one processor by step, peak memory, and how far the cameras are off, over the length of the
/// way. With --results, one line of JSON a walk.
#[derive(Parser)]
struct Arguments {
    /// Folder for the films; those that are there are used again
    #[arg(short, long)]
    output: PathBuf,
    /// Rooms and frames of each walk, as 2x300; 150 frames a room are 10 cm from one to the next
    #[arg(default_values = ["2x300", "6x1000", "20x3000"], value_parser = walk)]
    walks: Vec<(u32, u32)>,
    /// Decides the rooms, the sway and the noise
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Picture width in pixels; the height is 3/4 of it
    #[arg(long, default_value_t = 400)]
    width: u32,
    /// File of results
    #[arg(long)]
    results: Option<PathBuf>,
    /// SVG file for the curves of time and memory, of all walks of this seed in the file of results
    #[arg(long, requires = "results")]
    picture: Option<PathBuf>,
    /// Only film
    #[arg(long)]
    film: bool,
}

fn walk(text: &str) -> std::result::Result<(u32, u32), String> {
    let parts =
        text.split_once('x').and_then(|(rooms, frames)| Some((rooms.parse().ok()?, frames.parse().ok()?)));
    parts.ok_or_else(|| format!("{text:?}: rooms and frames are needed, as in 2x300"))
}

fn main() -> ExitCode {
    exit_code(run(&Arguments::parse()))
}

fn run(arguments: &Arguments) -> Result<()> {
    for &(rooms, frames) in &arguments.walks {
        let options = CaptureOptions {
            seed: arguments.seed,
            width: arguments.width,
            height: (arguments.width * 3 / 4) & !1,
            frames,
            frame_rate: 10.0,
            relative_focal: 0.7,
            rooms: Some(rooms),
            ..CaptureOptions::default()
        };
        options.check()?;
        let folder =
            arguments.output.join(format!("{rooms}x{frames}-{}-{}", arguments.width, arguments.seed));
        let film = || film_missing_frames(&[Film::new(&options)], &folder).map(|(frames, _)| frames);
        let filmed = Frames::load(&folder).or_else(|_| film())?;
        let poses = Film::poses_of(&options);
        write_poses(&folder.join("poses.json"), &poses)?;
        if arguments.film {
            continue;
        }
        let truth: BTreeMap<u64, Pose> = (0..).zip(poses).collect();
        // Making the film took memory, too.
        let meter = Meter::start();
        let found =
            reconstruct(&filmed, &SfmOptions { keep_broken: true, ..Default::default() }, &Control::new());
        let peak_mib = meter.read().peak_mib;
        let line = match &found {
            Ok(found) => {
                let mut line = line(found, &filmed, &truth);
                line["peak_mib"] = json!(peak_mib);
                line
            }
            Err(error) => json!({ "error": error.kind().slug(), "message": error.message() }),
        };
        println!("{rooms} rooms, {frames} frames\n{}", table(&line));
        if let Some(file) = &arguments.results {
            append(
                file,
                &json!({ "rooms": rooms, "frames": frames, "seed": arguments.seed, "found": line }),
            )?;
        }
    }
    if let (Some(file), Some(results)) = (&arguments.picture, &arguments.results) {
        let picture = growth_picture(&costs_in(results, arguments.seed)?);
        std::fs::write(file, picture).map_err(|e| Error::io("write", file, e))?;
    }
    Ok(())
}

/// What the walks of a seed took, by the last result of each number of frames.
fn costs_in(results: &Path, seed: u64) -> Result<Vec<Cost>> {
    let text = std::fs::read_to_string(results).map_err(|e| Error::io("read", results, e))?;
    let mut costs = BTreeMap::new();
    for line in text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok()) {
        let (Some(frames), Some(seconds)) = (line["frames"].as_u64(), line["found"]["seconds"].as_f64())
        else {
            continue;
        };
        let megabytes = line["found"]["peak_mib"].as_f64().map(|mib| mib * 1.048_576);
        if line["seed"] == seed {
            costs.insert(frames, Cost { frames: frames as f64, seconds, megabytes });
        }
    }
    Ok(costs.into_values().collect())
}

fn line(found: &Reconstruction, frames: &Frames, truth: &BTreeMap<u64, Pose>) -> Value {
    let poses = poses(found, frames);
    let errors = aligned_errors(truth, &poses);
    let report = &found.report;
    let mut seconds: BTreeMap<&str, f64> = BTreeMap::new();
    for time in &report.times {
        *seconds.entry(&time.step).or_default() += time.cpu_s.unwrap_or(time.wall_s);
    }
    json!({
        "registered": report.registered,
        "components": report.components.iter().map(|c| c.registered).collect::<Vec<_>>(),
        "points": report.points,
        "grade": report.verdict.as_ref().map(|v| v.grade),
        "reasons": report.verdict.as_ref().map(|v| v.reasons.iter().map(|r| r.doubt).collect::<Vec<_>>()),
        "expected": report.verdict.as_ref().map(|v| [v.rotation_error_degrees, v.position_error]),
        "rotation_degrees": errors.as_ref().map(|e| e.rotation_degrees),
        "drift_percent": errors.as_ref().map(|e| 100.0 * drift(e, truth)),
        "seconds": seconds.values().sum::<f64>(),
        "steps": seconds,
    })
}

fn poses(found: &Reconstruction, frames: &Frames) -> BTreeMap<u64, Pose> {
    let numbers: BTreeMap<&str, u64> = frames.frames.iter().map(|f| (f.name.as_str(), f.index)).collect();
    let images = found.model.images.values();
    images.filter_map(|i| Some((*numbers.get(i.name.as_str())?, i.pose))).collect()
}

/// Root mean square distance of the cameras from where they were, over the length of the way.
fn drift(errors: &AlignedErrors, truth: &BTreeMap<u64, Pose>) -> f64 {
    let centres: Vec<_> = truth.values().map(Pose::centre).collect();
    let mean = centres.iter().sum::<nalgebra::Vector3<f64>>() / centres.len() as f64;
    let radius =
        (centres.iter().map(|c| (c - mean).norm_squared()).sum::<f64>() / centres.len() as f64).sqrt();
    let length: f64 = centres.windows(2).map(|pair| (pair[1] - pair[0]).norm()).sum();
    errors.position * radius / length
}

fn table(line: &Value) -> String {
    let Some(steps) = line["steps"].as_object() else { return format!("  {line}") };
    let mut text = String::new();
    for (name, value) in line.as_object().into_iter().flatten().filter(|(name, _)| *name != "steps") {
        text += &format!("  {name:22} {value}\n");
    }
    for (name, seconds) in steps {
        text += &format!("    {name:26} {:8.1} s\n", seconds.as_f64().unwrap_or(f64::NAN));
    }
    text
}

fn append(file: &Path, line: &Value) -> Result<()> {
    use std::io::Write;
    let opened = std::fs::OpenOptions::new().create(true).append(true).open(file);
    opened.and_then(|mut f| writeln!(f, "{line}")).map_err(|e| Error::io("write", file, e))
}
