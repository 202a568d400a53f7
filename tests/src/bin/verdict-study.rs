//! Measures how true the verdicts on reconstructions are: films captures of many kinds, sound and impossible ones, with
//! known poses, and compares. `verdict-study --help` tells more.

#![allow(clippy::print_stdout)]

use std::collections::{BTreeMap, BTreeSet};
use std::fs::OpenOptions;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Instant;

use clap::{Args, Parser, Subcommand};
use libreconstruct::camera::Pose;
use libreconstruct::sfm::{Reconstruction, SfmOptions, reconstruct};
use libreconstruct::video::{FrameOptions, Frames, extract_frames};
use libreconstruct::{Control, Error, ErrorKind, Result};
use libreconstruct_tests::alignment::{AlignedErrors, aligned_errors};
use libreconstruct_tests::drawn_captures::{KINDS, draw, scenery_key, taken_by};
use libreconstruct_tests::exit_code;
use libreconstruct_tests::judgements::{Half, Judgement, read_judgements, refusals, surprises, tables};
use libreconstruct_tests::pose_error::{number_of, read_poses, write_poses};
use libreconstruct_tests::risk::{Curve, risk_curve, risk_picture};
use libreconstruct_tests::synthetic::{Film, Scenery, film_frames, take_photographs};
use serde_json::{Value, json};

/// Measure how true the verdicts on reconstructions are.
///
/// One line of JSON a capture: its kind and seed, the figures that the verdict follows from, the verdict, the true errors, and the
/// time it took, also to an error. What is in the file already is not done again.
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
        #[command(flatten)]
        seeds: Seeds,
        /// Only these kinds
        #[arg(long, value_delimiter = ',')]
        kinds: Vec<String>,
        /// Long side of the pictures; the other is 3/4 of it
        #[arg(long, default_value_t = 320)]
        side: u32,
    },
    /// Tables of results, graded anew by the figures they recorded
    Summary {
        /// Files of results
        results: Vec<PathBuf>,
        /// Also names the captures that were called good and are not, and the sound ones that were not
        #[arg(long)]
        surprises: bool,
        /// File of the picture of risk against coverage (SVG)
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

/// Which captures of each kind.
#[derive(Args)]
struct Seeds {
    /// First seed. The figures of the verdict may be tuned on odd seeds; even ones are held out
    #[arg(long, default_value_t = 1)]
    first: u64,
    /// Number of seeds
    #[arg(long, default_value_t = 8)]
    seeds: u64,
    /// From one seed to the next
    #[arg(long, default_value_t = 1)]
    step: usize,
}

impl Seeds {
    fn all(&self) -> impl Iterator<Item = u64> {
        (self.first..).step_by(self.step.max(1)).zip(0..self.seeds).map(|(seed, _)| seed)
    }
}

fn main() -> ExitCode {
    exit_code(match Arguments::parse().what {
        What::Synthetic { output, results, seeds, kinds, side } => {
            synthetic(&output, &results, &seeds, &kinds, side)
        }
        What::Summary { results, surprises, picture } => summary(&results, surprises, picture.as_deref()),
        What::Real { output, results, max_resolution, max_frames, inputs } => real(
            &inputs,
            &output,
            &results,
            &FrameOptions { max_frames, max_resolution, ..FrameOptions::default() },
        ),
    })
}

fn synthetic(output: &Path, results: &Path, seeds: &Seeds, kinds: &[String], side: u32) -> Result<()> {
    let done = done(results)?;
    for seed in seeds.all() {
        let mut built: Option<(String, Arc<Scenery>)> = None;
        for kind in KINDS {
            let id = format!("{}-{seed}", kind.name);
            if done.contains(&id) || !(kinds.is_empty() || kinds.iter().any(|k| k == kind.name)) {
                continue;
            }
            let clips = draw(kind, seed, side);
            let folder = output.join(&id);
            let poses = folder.join("poses.json");
            if !poses.is_file() {
                let mut films = Vec::new();
                for clip in &clips {
                    let key = scenery_key(clip);
                    let scenery = match &built {
                        Some((k, scenery)) if *k == key => scenery.clone(),
                        _ => Scenery::build(clip),
                    };
                    built = Some((key, scenery.clone()));
                    films.push(Film::in_scenery(scenery, clip));
                }
                let (_, truth) = match kind.name {
                    "two_cameras" => take_photographs(&films, &folder, |k| taken_by(&clips, k))?,
                    _ => film_frames(&films, &folder)?,
                };
                write_poses(&poses, &truth)?;
            }
            let frames = Frames::load(&folder)?;
            let truth = read_poses(&poses)?;
            let mut line = measure(&id, kind.group.name(), &frames, Some(&truth));
            line["captured"] = json!(clips);
            append(results, &line)?;
        }
    }
    Ok(())
}

fn summary(results: &[PathBuf], with_surprises: bool, file: Option<&Path>) -> Result<()> {
    let judgements = read_judgements(results)?;
    println!("{}\n{}", tables(&judgements), refusals(&judgements));
    if with_surprises {
        println!("{}", surprises(&judgements));
    }
    file.map_or(Ok(()), |file| picture(&judgements, file))
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
        let started = Instant::now();
        let frames = match Frames::load(&folder) {
            Ok(frames) => frames,
            Err(_) => match extract_frames(input, &folder, options, &Control::new()) {
                Ok(frames) => frames,
                Err(error) => {
                    let line = json!({
                        "id": id, "group": group, "error": error.kind().slug(), "message": error.message(),
                        "wall_seconds": started.elapsed().as_secs_f64()
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

/// The picture of risk against coverage.
fn picture(judgements: &[Judgement], path: &Path) -> Result<()> {
    let curve = |half: Half, colour| {
        // Without truth nothing can be said of what should come out well.
        let is_known = |j: &&Judgement| j.errors.is_some() || j.refusal.is_some() || j.is_impossible;
        let own = judgements.iter().filter(|j| j.half == half).filter(is_known);
        Curve {
            name: half.name(),
            colour,
            points: risk_curve(&own.map(Judgement::outcome).collect::<Vec<_>>()),
        }
    };
    let curves = [curve(Half::Tuned, "#777"), curve(Half::HeldOut, "#c33"), curve(Half::Real, "#27c")];
    std::fs::write(path, risk_picture(&curves)).map_err(|e| Error::io("write", path, e))
}

/// Reconstructs, and says how it went.
fn measure(id: &str, group: &str, frames: &Frames, truth: Option<&BTreeMap<u64, Pose>>) -> Value {
    let options = SfmOptions { keep_broken: true, ..Default::default() };
    let mut line = json!({ "id": id, "group": group, "frames": frames.frames.len() });
    let started = Instant::now();
    let result = reconstruct(frames, &options, &Control::new());
    line["wall_seconds"] = json!(started.elapsed().as_secs_f64());
    match result {
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
