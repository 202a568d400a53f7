//! Measures how true the scale from AprilTags is, and prints a table. `scale-study --help` tells more.

#![allow(clippy::print_stdout)]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use libreconstruct::camera::Pose;
use libreconstruct::fiducial::{Tags, detect_tags};
use libreconstruct::sfm::{Reconstruction, SfmOptions, reconstruct_with_tags};
use libreconstruct::video::{FrameOptions, Frames, extract_frames};
use libreconstruct::{Control, Error, Result};
use libreconstruct_tests::pose_error::{read_poses, scale};
use libreconstruct_tests::synthetic::{CaptureOptions, TagOptions, generate};

/// Measure how true the scale from AprilTags is.
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
        /// Number of rooms
        #[arg(long, default_value_t = 20)]
        captures: u64,
        /// Numbers of tags, taken in turn
        #[arg(long, value_delimiter = ',', default_value = "1,2,5")]
        tags: Vec<u32>,
        /// Sizes of the tags in millimetres, taken in turn
        #[arg(long, value_delimiter = ',', default_value = "110,125,140")]
        sizes: Vec<f64>,
        /// Picture width; the height is 9/16 of it
        #[arg(long, default_value_t = 640)]
        width: u32,
        /// Video frames
        #[arg(long, default_value_t = 40)]
        frames: u32,
        /// Degrees walked around the table
        #[arg(long, default_value_t = 110.0)]
        arc: f64,
    },
    /// Pictures with tags, poses.json and a list of the tags that are seen
    Real {
        /// Folder of the pictures
        pictures: PathBuf,
        /// True poses; none to measure detection only
        #[arg(long)]
        poses: Option<PathBuf>,
        /// Tags that are seen: frames with ids and corners, whose pixels count from the centre of the first
        #[arg(long)]
        tags: Option<PathBuf>,
        /// Edge of the inner white square, millimetres
        #[arg(long)]
        size: Option<f64>,
        /// Long side of the stored frames
        #[arg(long, default_value_t = 1600)]
        max_resolution: u32,
    },
}

fn main() -> ExitCode {
    let result = match Arguments::parse().what {
        What::Synthetic { output, captures, tags, sizes, width, frames, arc } => {
            let height = (width * 9 / 16) & !1;
            let base = CaptureOptions {
                width,
                height,
                frames,
                frame_rate: 8.0,
                arc_degrees: arc,
                ..Default::default()
            };
            synthetic(&output, &base, captures, &tags, &sizes)
        }
        What::Real { pictures, poses, tags, size, max_resolution } => {
            real(&pictures, poses.as_deref(), tags.as_deref(), size, max_resolution)
        }
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::from(error.kind().exit_code())
        }
    }
}

/// Makes the poses of a video or folder of pictures in metres. With the number of each frame.
fn measure(
    input: &Path,
    frames: &Frames,
    size_mm: f64,
    seed: u64,
) -> Result<(Tags, Reconstruction, BTreeMap<u64, Pose>)> {
    let control = Control::new();
    let tags = detect_tags(frames, Some(input), &control)?;
    let options = SfmOptions { apriltag_size_mm: Some(size_mm), seed, ..Default::default() };
    let found = reconstruct_with_tags(frames, &tags, &options, &control)?;
    let numbers: BTreeMap<&str, u64> = frames
        .frames
        .iter()
        .map(|f| {
            let stem = Path::new(&f.name).file_stem().and_then(|s| s.to_str()?.parse().ok());
            (f.name.as_str(), stem.unwrap_or(f.index))
        })
        .collect();
    let poses =
        found.model.images.values().filter_map(|i| Some((*numbers.get(i.name.as_str())?, i.pose))).collect();
    Ok((tags, found, poses))
}

fn row(
    name: &str,
    found: &Reconstruction,
    truth: &BTreeMap<u64, Pose>,
    poses: &BTreeMap<u64, Pose>,
) -> Option<bool> {
    let report = found.report.scale.as_ref()?;
    let used: Vec<_> = report.tags.iter().filter(|t| t.used).collect();
    let views: usize = used.iter().map(|t| t.views).sum();
    if !report.applied {
        let why = found.report.warnings.iter().map(|w| w.code.as_ref()).collect::<Vec<_>>().join(" ");
        println!("{name:28} no scale: {why}");
        return None;
    }
    // Lengths of the model over true ones.
    let error = 1.0 / scale(truth, poses)? - 1.0;
    let sigma = report.relative_sigma?;
    println!(
        "{name:28} {:2} of {:2} tags, {views:3} views  error {:+.3} %  sigma {:.3} %  {:4.1} sigma  pp {}",
        used.len(),
        report.tags.len(),
        100.0 * error,
        100.0 * sigma,
        error.abs() / sigma,
        if found.report.principal_point_refined { "refined" } else { "central" },
    );
    Some(error.abs() <= 2.0 * sigma)
}

fn synthetic(
    output: &Path,
    base: &CaptureOptions,
    captures: u64,
    counts: &[u32],
    sizes: &[f64],
) -> Result<()> {
    let control = Control::new();
    let (mut measured, mut inside) = (0, 0);
    for k in 0..captures {
        let count = counts.get(k as usize % counts.len().max(1)).copied().unwrap_or(1);
        let turn = k as usize / counts.len().max(1);
        let size = sizes.get(turn % sizes.len().max(1)).copied().unwrap_or(125.0);
        let tags = TagOptions { count, size: size / 1000.0, bend: 0.0, distractor: true };
        let options = CaptureOptions { seed: k + 1, tags: Some(tags), ..base.clone() };
        let folder = output.join(format!("{}-{}-{count}x{size}", options.width, k + 1));
        if !folder.join("capture.json").is_file() {
            generate(&folder, &options, &control)?;
        }
        let video = folder.join("video.mp4");
        let frames = extract_frames(&video, &folder.join("frames"), &FrameOptions::default(), &control)?;
        let truth = read_poses(&folder.join("poses.json"))?;
        let name = format!("room {}, {count} x {size} mm", k + 1);
        let found = match measure(&video, &frames, size, 0) {
            Ok((_, found, _)) => found,
            Err(error) => {
                println!("{name:28} {error}");
                continue;
            }
        };
        let numbers: BTreeMap<&str, u64> = frames.frames.iter().map(|f| (f.name.as_str(), f.index)).collect();
        let poses = found
            .model
            .images
            .values()
            .filter_map(|i| Some((*numbers.get(i.name.as_str())?, i.pose)))
            .collect();
        if let Some(good) = row(&name, &found, &truth, &poses) {
            measured += 1;
            inside += u32::from(good);
        }
    }
    println!("{measured} of {captures} captures have a scale; {inside} of them are within 2 sigma");
    Ok(())
}

fn real(
    pictures: &Path,
    poses: Option<&Path>,
    list: Option<&Path>,
    size: Option<f64>,
    max_resolution: u32,
) -> Result<()> {
    let control = Control::new();
    let folder = std::env::temp_dir().join(format!("scale-study-{}", std::process::id()));
    let options = FrameOptions { max_frames: 5000, max_resolution, ..FrameOptions::default() };
    let frames = extract_frames(pictures, &folder, &options, &control)?;
    if let Some(list) = list {
        detection(&detect_tags(&frames, Some(pictures), &control)?, list)?;
    }
    if let (Some(poses), Some(size)) = (poses, size) {
        let truth = read_poses(poses)?;
        let (_, found, estimate) = measure(pictures, &frames, size, 0)?;
        row(&pictures.display().to_string(), &found, &truth, &estimate);
        for tag in found.report.scale.iter().flat_map(|s| &s.tags) {
            println!("  {tag:?}");
        }
        println!("  camera {:?}", found.report.camera_params);
        found.report.warnings.iter().for_each(|w| println!("  {}: {}", w.code, w.message));
    }
    std::fs::remove_dir_all(&folder).map_err(|e| Error::io("remove", &folder, e))
}

/// Compares what was found with the list: every tag that is wholly visible must be found, and nothing else.
fn detection(tags: &Tags, list: &Path) -> Result<()> {
    let text = std::fs::read_to_string(list).map_err(|e| Error::io("read", list, e))?;
    let value: serde_json::Value =
        serde_json::from_str(&text).map_err(|e| Error::argument(format!("{}: {e}", list.display())))?;
    let (mut all, mut found, mut distances) = (0, 0, Vec::new());
    let mut surplus: BTreeMap<u32, usize> = BTreeMap::new();
    for frame in value["frames"].as_array().into_iter().flatten() {
        let stem = |name: &str| Path::new(name).file_stem().map(|s| s.to_owned());
        let name = frame["file"].as_str().unwrap_or_default();
        let Some(seen) = tags.frames.iter().find(|f| stem(&f.name) == stem(name)) else { continue };
        let mut open: Vec<_> = seen.tags.iter().collect();
        for tag in frame["tags"].as_array().into_iter().flatten() {
            let expected = tag["fully_visible"].as_bool().unwrap_or(true)
                && tag["detected_by_apriltag3"].as_bool().unwrap_or(true);
            all += usize::from(expected);
            let Some(at) = open.iter().position(|t| tag["id"] == t.id) else { continue };
            let detected = open.remove(at);
            found += usize::from(expected);
            // The list's corners, in whatever order, half a pixel off.
            let corners: Vec<[f64; 2]> =
                serde_json::from_value(tag["corners_px"].clone()).unwrap_or_default();
            for corner in detected.corners {
                let distance = |c: &[f64; 2]| (c[0] + 0.5 - corner[0]).hypot(c[1] + 0.5 - corner[1]);
                distances.push(corners.iter().map(distance).fold(f64::INFINITY, f64::min));
            }
        }
        open.iter().for_each(|t| *surplus.entry(t.id).or_default() += 1);
    }
    distances.sort_by(f64::total_cmp);
    let margins = tags.frames.iter().flat_map(|f| &f.tags).map(|t| t.decision_margin);
    println!(
        "{}: {found} of {all} tags found, surplus {surplus:?}, corners off by {:.2} px (median), {:.2} px (95 %), least margin {:.0}",
        list.display(),
        distances.get(distances.len() / 2).copied().unwrap_or(f64::NAN),
        distances.get(distances.len() * 95 / 100).copied().unwrap_or(f64::NAN),
        margins.fold(f32::INFINITY, f32::min)
    );
    Ok(())
}
