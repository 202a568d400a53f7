//! Measures how true the verdicts on reconstructions are: films captures of many kinds, sound and impossible ones, with
//! known poses, and compares. `verdict-study --help` tells more.

#![allow(clippy::print_stdout)]

use std::collections::{BTreeMap, BTreeSet};
use std::fs::OpenOptions;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use clap::{Parser, Subcommand};
use libreconstruct::camera::Pose;
use libreconstruct::sfm::{Reconstruction, SfmOptions, reconstruct};
use libreconstruct::video::{FrameOptions, Frames, extract_frames};
use libreconstruct::{Control, Error, ErrorKind, Result};
use libreconstruct_tests::alignment::{AlignedErrors, aligned_errors};
use libreconstruct_tests::exit_code;
use libreconstruct_tests::pose_error::{number_of, read_poses};
use libreconstruct_tests::risk::{Curve, Outcome, risk_curve, risk_picture};
use libreconstruct_tests::synthetic::{CaptureOptions, Film, Scenery, Staging, SubjectKind, film_frames};
use serde_json::{Value, json};

/// Measure how true the verdicts on reconstructions are.
///
/// One line of JSON a capture: its kind and seed, the figures that the verdict follows from, the verdict, and the true
/// errors. What is in the file already is not done again.
#[derive(Parser)]
struct Arguments {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// Film synthetic captures of all kinds
    Synthetic {
        /// Folder for the captures; those that are there are used again
        #[arg(short, long)]
        output: PathBuf,
        /// File of the results
        #[arg(short, long)]
        results: PathBuf,
        /// First seed
        #[arg(long, default_value_t = 1)]
        first: u64,
        /// Number of seeds
        #[arg(long, default_value_t = 8)]
        seeds: u64,
        /// Only these kinds
        #[arg(long, value_delimiter = ',')]
        kinds: Vec<String>,
        /// Picture width; the height is 3/4 of it
        #[arg(long, default_value_t = 400)]
        width: u32,
    },
    /// Tables of results
    Summary {
        /// Files of results
        results: Vec<PathBuf>,
    },
    /// Constants that results ask for, fitted on one half and tried on the other, and the picture of risk against coverage
    Calibration {
        /// Files of results
        results: Vec<PathBuf>,
        /// File of the picture (SVG)
        #[arg(long)]
        picture: Option<PathBuf>,
    },
    /// Videos or folders of pictures, with poses.json beside them or without
    Real {
        /// Folder for their frames
        #[arg(short, long)]
        output: PathBuf,
        /// File of the results
        #[arg(short, long)]
        results: PathBuf,
        /// Long side of the frames
        #[arg(long, default_value_t = 800)]
        max_resolution: u32,
        /// Frames at most
        #[arg(long, default_value_t = 100)]
        max_frames: usize,
        /// What to reconstruct
        inputs: Vec<PathBuf>,
    },
}

fn main() -> ExitCode {
    exit_code(match Arguments::parse().what {
        What::Synthetic { output, results, first, seeds, kinds, width } => {
            synthetic(&output, &results, first..first + seeds, &kinds, width)
        }
        What::Summary { results } => summary(&results),
        What::Calibration { results, picture } => calibration(&results, picture.as_deref()),
        What::Real { output, results, max_resolution, max_frames, inputs } => {
            real(&inputs, &output, &results, &FrameOptions { max_frames, max_resolution })
        }
    })
}

/// What a kind of capture is in the study.
#[derive(Clone, Copy, PartialEq)]
enum Group {
    Good,
    Hard,
    Impossible,
}

impl Group {
    fn name(self) -> &'static str {
        match self {
            Group::Good => "good",
            Group::Hard => "hard",
            Group::Impossible => "impossible",
        }
    }
}

/// A kind of capture: its name, group, and what it changes.
type Kind = (&'static str, Group, fn(&mut CaptureOptions));

/// Those that share a scenery follow each other.
const KINDS: &[Kind] = &[
    ("arc", Group::Good, |o| o.arc_degrees = 90.0),
    ("long_arc", Group::Good, |o| (o.arc_degrees, o.frames) = (170.0, 32)),
    ("orbit", Group::Good, |o| (o.arc_degrees, o.frames) = (360.0, 44)),
    ("wide_lens", Group::Good, |o| (o.arc_degrees, o.relative_focal) = (110.0, 0.6)),
    ("along", Group::Good, |o| (o.staging, o.arc_degrees) = (Staging::Along, 90.0)),
    ("noise", Group::Hard, |o| (o.arc_degrees, o.noise) = (90.0, 9.0)),
    ("blur", Group::Hard, |o| (o.arc_degrees, o.shutter) = (90.0, 0.07)),
    ("rolling", Group::Hard, |o| (o.arc_degrees, o.rolling_shutter) = (110.0, 0.03)),
    ("short_arc", Group::Hard, |o| o.arc_degrees = 14.0),
    ("hardly", Group::Hard, |o| o.arc_degrees = 5.0),
    ("few", Group::Hard, |o| (o.arc_degrees, o.frames) = (50.0, 7)),
    ("sparse", Group::Hard, |o| (o.arc_degrees, o.frames) = (180.0, 12)),
    ("dark", Group::Hard, |o| (o.arc_degrees, o.noise, o.exposure_drift) = (70.0, 14.0, 1.5)),
    ("bent_lens", Group::Hard, |o| (o.arc_degrees, o.distortion) = (90.0, -0.25)),
    ("cropped", Group::Hard, |o| (o.arc_degrees, o.off_centre) = (90.0, [0.07, 0.04])),
    ("zoom", Group::Impossible, |o| (o.arc_degrees, o.zoom) = (80.0, 1.5)),
    ("slow_zoom", Group::Impossible, |o| (o.arc_degrees, o.zoom) = (80.0, 1.12)),
    ("on_the_spot", Group::Impossible, |o| (o.staging, o.arc_degrees) = (Staging::OnTheSpot, 80.0)),
    ("bare_room", Group::Hard, |o| (o.arc_degrees, o.plain_walls) = (90.0, true)),
    ("turned", Group::Impossible, |o| (o.staging, o.arc_degrees) = (Staging::Turned, 110.0)),
    ("turned_far", Group::Impossible, |o| {
        (o.staging, o.arc_degrees, o.relative_focal, o.frames) = (Staging::Turned, 200.0, 0.7, 36);
    }),
    ("turned_plain", Group::Impossible, |o| {
        (o.staging, o.arc_degrees, o.plain_walls) = (Staging::Turned, 110.0, true);
    }),
    ("photograph", Group::Impossible, |o| o.staging = Staging::Photograph),
    ("joined", Group::Impossible, |o| (o.arc_degrees, o.frames) = (60.0, 18)),
    ("two_rooms", Group::Impossible, |o| (o.arc_degrees, o.frames) = (80.0, 20)),
    ("twin", Group::Impossible, |o| (o.arc_degrees, o.frames, o.twin) = (330.0, 44, true)),
];

/// What decides a scenery.
fn scenery_key(o: &CaptureOptions) -> String {
    let room = matches!(o.staging, Staging::Around | Staging::Along | Staging::OnTheSpot);
    format!(
        "{} {} {} {}",
        o.seed,
        o.plain_walls,
        o.twin,
        if room { "room".into() } else { format!("{:?}", o.staging) }
    )
}

fn synthetic(
    output: &Path,
    results: &Path,
    seeds: std::ops::Range<u64>,
    kinds: &[String],
    width: u32,
) -> Result<()> {
    let done = done(results)?;
    for seed in seeds {
        let mut built: Option<(String, Arc<Scenery>)> = None;
        for (name, group, change) in KINDS {
            let id = format!("{name}-{seed}");
            if done.contains(&id) || !(kinds.is_empty() || kinds.iter().any(|k| k == name)) {
                continue;
            }
            let mut options = CaptureOptions {
                seed,
                width,
                height: (width * 3 / 4) & !1,
                frames: 24,
                frame_rate: 8.0,
                subject: SubjectKind::StillLife,
                ..Default::default()
            };
            change(&mut options);
            let folder = output.join(&id);
            let poses = folder.join("poses.json");
            if !poses.is_file() {
                let key = scenery_key(&options);
                let scenery = match &built {
                    Some((k, scenery)) if *k == key => scenery.clone(),
                    _ => Scenery::build(&options),
                };
                built = Some((key, scenery.clone()));
                let mut films = vec![Film::in_scenery(scenery, &options)];
                if *name == "joined" {
                    // Not another room, which would be furnished alike.
                    let other = CaptureOptions { staging: Staging::Photograph, ..options.clone() };
                    films.push(Film::new(&other));
                }
                if *name == "two_rooms" {
                    let other = CaptureOptions { mirrored: true, frames: 14, ..options.clone() };
                    films.push(Film::new(&other));
                }
                let (_, truth) = film_frames(&films, &folder)?;
                write_poses(&poses, &truth)?;
            }
            let frames = Frames::load(&folder)?;
            let truth = read_poses(&poses)?;
            let line = measure(&id, group.name(), &frames, Some(&truth));
            append(results, &line)?;
        }
    }
    Ok(())
}

fn write_poses(path: &Path, poses: &[Pose]) -> Result<()> {
    let frames: Vec<Value> = poses
        .iter()
        .enumerate()
        .map(|(k, pose)| {
            let m = pose.inverse().to_matrix4();
            let rows: Vec<[f64; 4]> = (0..4).map(|r| std::array::from_fn(|c| m[(r, c)])).collect();
            json!({ "file": format!("{k:06}"), "c2w": rows })
        })
        .collect();
    std::fs::write(path, json!({ "frames": frames }).to_string()).map_err(|e| Error::io("write", path, e))
}

fn real(inputs: &[PathBuf], output: &Path, results: &Path, options: &FrameOptions) -> Result<()> {
    let done = done(results)?;
    for input in inputs {
        let name =
            |path: &Path| path.file_stem().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
        let above = input.parent().unwrap_or(Path::new("."));
        let id = format!("{}/{}", name(above), name(input));
        if done.contains(&id) {
            continue;
        }
        let folder = output.join(id.replace('/', "-"));
        let group = if id.starts_with("negative") { "impossible" } else { "good" };
        let frames = match Frames::load(&folder) {
            Ok(frames) => frames,
            Err(_) => match extract_frames(input, &folder, options, &Control::new()) {
                Ok(frames) => frames,
                Err(error) => {
                    let line = json!({
                        "id": id, "group": group, "error": error.kind().slug(), "message": error.message()
                    });
                    append(results, &line)?;
                    continue;
                }
            },
        };
        let poses = above.join("poses.json");
        // Some name their pictures otherwise: those are judged without truth.
        let truth = read_poses(&poses).ok();
        append(results, &measure(&id, group, &frames, truth.as_ref()))?;
    }
    Ok(())
}

/// A sound reconstruction: rotations within a degree, places within 2 % of the camera path.
fn is_sound(line: &Value) -> Option<bool> {
    Some(line["true_rotation"].as_f64()? <= 1.0 && line["true_position"].as_f64()? <= 0.02)
}

/// The figures of the verdict were tuned on captures up to this seed; those beyond are held out.
const TUNED_SEEDS: u64 = 4;

/// Tables by group and half (tuned on, held out): grades, and how many expected errors are within
/// a factor of two of the true ones.
fn summary(results: &[PathBuf]) -> Result<()> {
    let lines = read(results)?;
    let mut rows: BTreeMap<(String, &str), Vec<&Value>> = BTreeMap::new();
    for line in &lines {
        let half = half(line);
        rows.entry((line["group"].as_str().unwrap_or_default().to_owned(), half)).or_default().push(line);
    }
    println!(
        "| group | half | captures | refused | good | doubtful | broken | unsound in good | within x2 | cost |"
    );
    println!("| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |");
    for ((group, half), lines) in &rows {
        let graded = |grade: &str| lines.iter().filter(|l| l["verdict"]["grade"] == grade).count();
        let unsound = |l: &&&Value| l["verdict"]["grade"] == "good" && is_sound(l) == Some(false);
        let near = |l: &Value, own: &str, truth: &str| {
            let ratio = l["verdict"][own].as_f64()? / l[truth].as_f64()?;
            Some((0.5..=2.0).contains(&ratio))
        };
        let compared: Vec<bool> = lines
            .iter()
            .flat_map(|l| {
                [
                    near(l, "rotation_error_degrees", "true_rotation"),
                    near(l, "position_error", "true_position"),
                ]
            })
            .flatten()
            .collect();
        let sum = |key: &str| lines.iter().filter_map(|l| l[key].as_f64()).sum::<f64>();
        println!(
            "| {group} | {half} | {} | {} | {} | {} | {} | {} | {} of {} | {:.1} % |",
            lines.len(),
            lines.iter().filter(|l| l["error"].is_string()).count(),
            graded("good"),
            graded("doubtful"),
            graded("broken"),
            lines.iter().filter(unsound).count(),
            compared.iter().filter(|c| **c).count(),
            compared.len(),
            100.0 * sum("verdict_seconds") / sum("seconds").max(1e-9)
        );
    }
    Ok(())
}

fn read(results: &[PathBuf]) -> Result<Vec<Value>> {
    let mut lines = Vec::new();
    for path in results {
        let text = std::fs::read_to_string(path).map_err(|e| Error::io("read", path, e))?;
        lines.extend(text.lines().filter_map(|l| serde_json::from_str::<Value>(l).ok()));
    }
    Ok(lines)
}

/// Which half of the study a capture belongs to.
fn half(line: &Value) -> &'static str {
    let seed = line["id"].as_str().and_then(|id| id.rsplit('-').next()?.parse::<u64>().ok());
    seed.map_or("real", |s| if s <= TUNED_SEEDS { TUNED } else { HELD_OUT })
}

const TUNED: &str = "tuned on";
const HELD_OUT: &str = "held out";

/// True errors over what the spread alone expects, of captures with depth and one lens: rotation, place.
fn ratios(line: &Value) -> Option<[f64; 2]> {
    let evidence = &line["verdict"]["evidence"];
    let largest = |key: &str| {
        let values = evidence[key].as_array()?;
        values.iter().filter_map(Value::as_f64).reduce(f64::max).filter(|v| *v > 0.0)
    };
    let bias = 1.0 + evidence["patch_bias"].as_f64()? / evidence["noise"].as_f64()?.max(1e-6);
    Some([
        line["true_rotation"].as_f64()? / largest("rotation_spread")?,
        line["true_position"].as_f64()? / (bias.min(10.0) * largest("position_spread")?),
    ])
}

/// Fits the factors and the bound to one half, and says how well they do on both.
fn calibration(results: &[PathBuf], picture: Option<&Path>) -> Result<()> {
    let lines = read(results)?;
    // What speaks against a capture speaks against its figures.
    let is_clean = |l: &&Value| {
        let reasons = l["verdict"]["reasons"].as_array();
        reasons.is_some_and(|r| r.iter().all(|r| r["doubt"] == "imprecise_poses"))
    };
    let of = |wanted: &str| -> Vec<[f64; 2]> {
        lines.iter().filter(|l| half(l) == wanted).filter(is_clean).filter_map(ratios).collect()
    };
    let (tuned, held_out) = (of(TUNED), of(HELD_OUT));
    for (k, what) in ["rotation", "position"].into_iter().enumerate() {
        let column = |rows: &[[f64; 2]]| {
            let mut values: Vec<f64> = rows.iter().map(|r| r[k]).collect();
            values.sort_by(f64::total_cmp);
            values
        };
        let (own, other) = (column(&tuned), column(&held_out));
        // The factor within two of which most lie.
        let near = |values: &[f64], factor: f64| {
            values.iter().filter(|&&v| (0.5..=2.0).contains(&(v / factor))).count()
        };
        let candidates = || (0..=80).map(|step| 0.3 * 1.04f64.powi(step));
        let most = candidates().map(|f| near(&own, f)).max().unwrap_or(0);
        let best: Vec<f64> = candidates().filter(|&f| near(&own, f) == most).collect();
        let Some(&factor) = best.get(best.len() / 2) else { continue };
        // Conformal: with n captures, one more exceeds the (n + 1) 0.95-th of them once in twenty times at most.
        let rank = ((own.len() + 1) as f64 * 0.95).ceil() as usize;
        let bound = own.get(rank.saturating_sub(1)).map_or(f64::INFINITY, |v| v / factor);
        let above = other.iter().filter(|&&v| v > bound * factor).count();
        println!(
            "{what}: factor {factor:.2}, bound {bound:.2}; within a factor of two {} of {} tuned on, {} of {} held out; \
             above the bound {above} of {} held out",
            near(&own, factor),
            own.len(),
            near(&other, factor),
            other.len(),
            other.len()
        );
    }
    let curve = |wanted: &str| {
        // Without truth nothing can be said of what should come out well.
        let is_known = |l: &&Value| {
            l["true_rotation"].is_number() || l["error"].is_string() || l["group"] == "impossible"
        };
        let own = lines.iter().filter(|l| half(l) == wanted).filter(is_known);
        risk_curve(&own.map(outcome).collect::<Vec<_>>())
    };
    if let Some(path) = picture {
        let named = |name, colour| Curve { name, colour, points: curve(name) };
        let curves = [named(TUNED, "#777"), named(HELD_OUT, "#c33"), named("real", "#27c")];
        std::fs::write(path, risk_picture(&curves)).map_err(|e| Error::io("write", path, e))?;
    }
    Ok(())
}

/// How doubtful a capture is said to be: by its grade, then by what its errors stay below.
fn outcome(line: &Value) -> Outcome {
    let verdict = &line["verdict"];
    let grade = match verdict["grade"].as_str() {
        Some("good") => 0.0,
        Some("doubtful") => 1.0,
        _ => f64::INFINITY,
    };
    let bound = |key: &str, limit: f64| verdict[key].as_f64().unwrap_or(f64::INFINITY) / limit;
    let worst = bound("rotation_bound_degrees", 1.0).max(bound("position_bound", 0.02));
    // Any bound comes after those of a better grade.
    Outcome { doubt: grade + worst / (1.0 + worst), is_sound: is_sound(line) == Some(true) }
}

/// Reconstructs, and says how it went.
fn measure(id: &str, group: &str, frames: &Frames, truth: Option<&BTreeMap<u64, Pose>>) -> Value {
    let options = SfmOptions { keep_broken: true, ..Default::default() };
    let mut line = json!({ "id": id, "group": group, "frames": frames.frames.len() });
    match reconstruct(frames, &options, &Control::new()) {
        Ok(found) => {
            let seconds = |of: &dyn Fn(&str) -> bool| {
                found
                    .report
                    .times
                    .iter()
                    .filter(|t| of(&t.step))
                    .map(|t| t.cpu_s.unwrap_or(t.wall_s))
                    .sum::<f64>()
            };
            line["registered"] = json!(found.report.registered);
            line["seconds"] = json!(seconds(&|_| true));
            line["verdict_seconds"] = json!(seconds(&|s| s == "verdict"));
            line["warnings"] = json!(found.report.warnings);
            line["verdict"] = json!(found.report.verdict);
            let errors = truth.and_then(|truth| errors(&found, frames, truth));
            line["true_rotation"] = json!(errors.as_ref().map(|e| e.rotation_degrees));
            line["true_position"] = json!(errors.as_ref().map(|e| e.position));
            line["true_frames"] = json!(errors.map(|e| e.images.into_values().collect::<Vec<_>>()));
        }
        Err(error) => {
            line["error"] = json!(error.kind().slug());
            line["message"] = json!(error.message());
        }
    }
    line
}

fn errors(found: &Reconstruction, frames: &Frames, truth: &BTreeMap<u64, Pose>) -> Option<AlignedErrors> {
    let numbers: BTreeMap<&str, u64> =
        frames.frames.iter().map(|f| (f.name.as_str(), number_of(&f.name).unwrap_or(f.index))).collect();
    let images = found.model.images.values();
    let poses = images.filter_map(|i| Some((*numbers.get(i.name.as_str())?, i.pose))).collect();
    aligned_errors(truth, &poses)
}

fn done(results: &Path) -> Result<BTreeSet<String>> {
    match std::fs::read_to_string(results) {
        Ok(text) => Ok(text
            .lines()
            .filter_map(|l| Some(serde_json::from_str::<Value>(l).ok()?["id"].as_str()?.to_owned()))
            .collect()),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(BTreeSet::new()),
        Err(e) => Err(Error::io("read", results, e)),
    }
}

fn append(results: &Path, line: &Value) -> Result<()> {
    let text = |key: &str| line[key].as_f64().map_or("-".into(), |v| format!("{v:.4}"));
    println!(
        "{:24} {:10} {} rot {} pos {} {}",
        line["id"].as_str().unwrap_or_default(),
        line["verdict"]["grade"].as_str().or(line["error"].as_str()).unwrap_or_default(),
        line["registered"],
        text("true_rotation"),
        text("true_position"),
        line["message"].as_str().unwrap_or_default(),
    );
    let mut file = OpenOptions::new()
        .create(true)
        .append(true)
        .open(results)
        .map_err(|e| Error::io("open", results, e))?;
    writeln!(file, "{line}").map_err(|e| Error::new(ErrorKind::Io, e.to_string()))
}
