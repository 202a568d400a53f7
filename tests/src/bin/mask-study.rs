//! Measures the masks of the object on films of things on tables, whose masks, poses and surfaces are known, and on real
//! captures, whose masks were drawn by hand; and what making them costs.

#![allow(clippy::print_stdout)]

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Parser, ValueEnum};
use libreconstruct::background::{MaskOptions, ObjectPoint, mask_dataset};
use libreconstruct::masks::{mask_path, read_mask};
use libreconstruct::video::Frames;
use libreconstruct::{Control, Error, Result};
use libreconstruct_tests::cost::{MeasuredCost, Meter};
use libreconstruct_tests::drawn_masks::DRAWN_CAPTURES;
use libreconstruct_tests::exit_code;
use libreconstruct_tests::masks::{MaskScore, pixel_of_object};
use libreconstruct_tests::object_scene::ObjectScene;
use libreconstruct_tests::synthetic::{CaptureOptions, Film, SubjectKind, TableKind, film_dataset};

/// Films things on tables, makes masks of them and prints how close these are to the truth, and what making them took.
///
/// That is without filming, poses and scoring: seconds of processor time and of wall clock, and the peak of resident memory, which
/// has what earlier cases left.
///
/// The cases of a kind are in alphabetical order. What is tuned, is tuned on those in odd places; those in even places are the test.
#[derive(Parser)]
struct Arguments {
    /// Folder for the films; those that are there are not made again
    folder: PathBuf,
    /// The mask model
    #[arg(long)]
    mask_model: Option<PathBuf>,
    /// Which films: each kind is a table of its own
    #[arg(long, value_enum, default_value_t = Kind::Usual)]
    kind: Kind,
    /// Others of the same kinds: each subject on another table, with other textures, seen from another path
    #[arg(long, default_value_t = 0)]
    shift: u32,
    /// Point at the subject in the first picture: 0 = at the pixel of it that is nearest to its middle, 100 = at the farthest
    #[arg(long, value_name = "PERCENT", value_parser = clap::value_parser!(u32).range(0..=100))]
    point: Option<u32>,
    /// Train a scene of the object alone and one of everything for so many steps, and print how much of the first one's opacity
    /// is on the object and the PSNR of the object in both
    #[arg(long)]
    train: Option<u32>,
    /// Only these cases
    #[arg(long)]
    case: Vec<String>,
    /// Judge real captures in this folder instead, by their masks in `tests/drawn_masks`; FOLDER is for what is made of them
    #[arg(long, value_name = "CAPTURES", conflicts_with_all = ["kind", "shift", "train"])]
    captures: Option<PathBuf>,
}

impl Arguments {
    fn is_asked_for(&self, case: &str) -> bool {
        self.case.is_empty() || self.case.iter().any(|c| c == case)
    }
}

/// Films that are alike in what is hard about them.
#[derive(Clone, Copy, ValueEnum)]
enum Kind {
    /// Things alone, between others, and so near that pictures cut them
    Usual,
    /// Things that others hide in some pictures, and such that are nearly as long as the camera's round is wide
    Hard,
}

/// What stands on the table besides the subject or before it, or how close the camera is.
#[derive(Clone, Copy, PartialEq)]
enum Around {
    /// Nothing, in a room full of things.
    Room,
    /// Nothing, in a room with plain walls.
    Bare,
    /// A bowl, a bottle and a box.
    Neighbours,
    /// The camera is so close that pictures cut the subject: by this relative focal length.
    Cut(f64),
    /// A bottle, a plant and a post between the camera and the table, each of which hides the subject in some neighbouring pictures.
    /// The walk is filmed in this number of pictures.
    Hidden(u32),
    /// The camera goes close around the subject with a wide lens: half of its length is three quarters of the camera's distance.
    Long,
}

/// The films of a kind by name; `shift` makes others like them: each subject on another table, other textures, another path.
fn cases(kind: Kind, shift: u32) -> Vec<(String, CaptureOptions)> {
    use Around::{Bare, Cut, Hidden, Long, Neighbours, Room};
    use SubjectKind::{Bricks, Dark, Plain, StillLife, Thin, Train};
    use TableKind::{Blank, Cloth, Glossy, Ground, Oak};
    const TABLES: [TableKind; 5] = [Blank, Cloth, Glossy, Ground, Oak];
    /// How long the walk takes, seconds.
    const DURATION: f64 = 6.25;
    let usual = [
        (Blank, Bricks, Bare),
        (Blank, Dark, Room),
        (Blank, StillLife, Room),
        (Blank, Plain, Room),
        (Cloth, Bricks, Neighbours),
        (Cloth, Dark, Cut(2.3)),
        (Cloth, Thin, Room),
        (Cloth, Plain, Neighbours),
        (Glossy, Dark, Neighbours),
        (Glossy, StillLife, Bare),
        (Glossy, Plain, Room),
        (Ground, Bricks, Room),
        (Ground, StillLife, Cut(2.0)),
        (Ground, Thin, Room),
        (Oak, Bricks, Cut(2.3)),
        (Oak, Dark, Neighbours),
    ];
    let hard = [
        (Cloth, Bricks, Hidden(26)),
        (Cloth, StillLife, Hidden(26)),
        (Cloth, Train, Long),
        (Ground, Bricks, Hidden(50)),
        (Ground, StillLife, Hidden(50)),
        (Ground, StillLife, Long),
    ];
    let (first, films) = match kind {
        Kind::Usual => (21u32, usual.as_slice()),
        Kind::Hard => (41, hard.as_slice()),
    };
    let film = |(number, (table, subject, around)): (u32, (TableKind, SubjectKind, Around))| {
        let place = TABLES.iter().position(|t| *t == table).unwrap_or(0);
        let table = TABLES[(place + shift as usize) % TABLES.len()];
        let frames = if let Hidden(frames) = around { frames } else { 26 };
        let options = CaptureOptions {
            seed: u64::from(number + 100 * shift),
            table,
            subject,
            neighbours: around == Neighbours,
            occluders: matches!(around, Hidden(_)),
            plain_walls: around == Bare,
            relative_focal: match around {
                Cut(focal) => focal,
                Long => 0.45,
                _ => 1.35,
            },
            path_scale: if around == Long { 0.41 } else { 1.0 },
            width: 320,
            height: 240,
            frames,
            frame_rate: f64::from(frames - 1) / DURATION,
            arc_degrees: 330.0,
            distortion: 0.0,
            ..CaptureOptions::default()
        };
        let how = match around {
            Room => String::new(),
            Bare => "-bare".into(),
            Neighbours => "-neighbours".into(),
            Cut(_) => "-cut".into(),
            Hidden(frames) => format!("-hidden-{frames}"),
            Long => "-long".into(),
        };
        (format!("{table:?}-{subject:?}{how}").to_lowercase(), options)
    };
    let mut cases: Vec<_> = (first..).zip(films.iter().copied()).map(film).collect();
    cases.sort_by(|a, b| a.0.cmp(&b.0));
    cases
}

fn main() -> ExitCode {
    exit_code(run(&Arguments::parse()))
}

/// Points at this part of the subject in the first picture.
fn point_at_subject(folder: &Path, percent: u32) -> Result<ObjectPoint> {
    let mask = read_mask(&mask_path(&folder.join("masks"), &Frames::name_of(0)))?;
    let (x, y) = pixel_of_object(&mask, percent)
        .ok_or_else(|| Error::argument("the first picture does not show the subject"))?;
    Ok(ObjectPoint { x, y, frame: None })
}

fn mean(scores: &[MaskScore], value: fn(&MaskScore) -> f64) -> f64 {
    scores.iter().map(value).sum::<f64>() / scores.len() as f64
}

fn lowest(scores: &[MaskScore]) -> f64 {
    scores.iter().map(|s| s.overlap).fold(1.0, f64::min)
}

fn judge_captures(arguments: &Arguments, captures: &Path) -> Result<()> {
    println!(
        "capture           pictures  overlap  lowest  boundary  wrong/50  too much  too little  agreement  determined  {}",
        MeasuredCost::HEADING
    );
    for capture in DRAWN_CAPTURES {
        if !arguments.is_asked_for(capture.name) {
            continue;
        }
        let masks = MaskOptions { model: arguments.mask_model.clone(), ..MaskOptions::default() };
        let folder = arguments.folder.join(capture.name);
        let (scores, report, cost) =
            capture.judge(captures, &masks, arguments.point, &folder, &Control::new())?;
        let (agreement, determined) = report.background.map_or((0.0, 0.0), |b| (b.agreement, b.determined));
        println!(
            "{:16}  {:8}  {:7.4}  {:6.3}  {:8.3}  {:8.1}  {:8.3}  {:10.3}  {agreement:9.3}  {determined:10.3}  {cost}",
            capture.name,
            scores.len(),
            mean(&scores, |s| s.overlap),
            lowest(&scores),
            mean(&scores, |s| s.boundary_f),
            50.0 * mean(&scores, |s| s.wrong_pieces as f64),
            mean(&scores, |s| s.surplus),
            mean(&scores, |s| s.lack),
        );
    }
    Ok(())
}

fn run(arguments: &Arguments) -> Result<()> {
    if let Some(captures) = &arguments.captures {
        return judge_captures(arguments, captures);
    }
    let trained = if arguments.train.is_some() { "  opacity inside  object dB  of everything" } else { "" };
    println!(
        "case                       half  overlap  lowest  boundary  wrong/50  agreement  {}{trained}",
        MeasuredCost::HEADING
    );
    for (place, (name, options)) in (1..).zip(cases(arguments.kind, arguments.shift)) {
        if !arguments.is_asked_for(&name) {
            continue;
        }
        let folder = arguments.folder.join(format!("{name}-{}", arguments.shift));
        if !folder.join("sparse/points3D.bin").is_file() {
            film_dataset(&Film::new(&options), &folder)?;
        }
        let masks = MaskOptions {
            model: arguments.mask_model.clone(),
            object_at: arguments.point.map(|percent| point_at_subject(&folder, percent)).transpose()?,
            ..MaskOptions::default()
        };
        let (found, sheet) = (folder.join("found"), folder.join("masks.jpg"));
        let meter = Meter::start();
        let report = mask_dataset(&folder, &masks, &found, &sheet, &Control::new())?;
        let cost = meter.read();
        let mut scores = Vec::new();
        for frame in 0..options.frames {
            let name = Frames::name_of(u64::from(frame));
            let known = read_mask(&mask_path(&folder.join("masks"), &name))?;
            // No mask at all is one that shows nothing.
            let mask = match report.masks {
                0 => image::GrayImage::new(known.width(), known.height()),
                _ => read_mask(&mask_path(&found, &name))?,
            };
            scores.push(MaskScore::of(&name, &mask, &known));
        }
        let trained = match arguments.train {
            Some(steps) if report.masks > 0 => {
                let scene = ObjectScene::train(&folder, &found, steps, &Control::new())?;
                let inside = 1.0 - scene.opacity_outside;
                format!("  {inside:14.4}  {:9.2}  {:13.2}", scene.psnr, scene.psnr_of_everything)
            }
            _ => String::new(),
        };
        println!(
            "{name:26} {}  {:7.4}  {:6.3}  {:8.3}  {:8.1}  {:9.3}  {cost}{trained}",
            if place % 2 == 1 { "tune" } else { "test" },
            mean(&scores, |s| s.overlap),
            lowest(&scores),
            mean(&scores, |s| s.boundary_f),
            50.0 * mean(&scores, |s| s.wrong_pieces as f64),
            report.agreement,
        );
    }
    Ok(())
}
