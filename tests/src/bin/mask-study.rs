//! Measures the masks of the object on films of things on tables, whose masks, poses and surfaces are known.

#![allow(clippy::print_stdout)]

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use libreconstruct::background::{MaskOptions, mask_dataset};
use libreconstruct::masks::{mask_path, read_mask};
use libreconstruct::{Control, Result};
use libreconstruct_tests::exit_code;
use libreconstruct_tests::masks::MaskScore;
use libreconstruct_tests::synthetic::{CaptureOptions, Film, SubjectKind, TableKind, film_dataset};

/// Films things on tables, makes masks of them and prints how close these are to the truth.
///
/// The cases are in alphabetical order. What is tuned, is tuned on those in odd places; those in even places are the test.
#[derive(Parser)]
struct Arguments {
    /// Folder for the films; those that are there are not made again
    folder: PathBuf,
    /// The mask model
    #[arg(long)]
    mask_model: Option<PathBuf>,
    /// Only these cases
    #[arg(long)]
    case: Vec<String>,
}

/// The films by name.
fn cases() -> Vec<(&'static str, CaptureOptions)> {
    use SubjectKind::{Bricks, Dark, Plain, StillLife, Thin};
    use TableKind::{Blank, Cloth, Glossy, Ground, Oak};
    let base = |seed, table, subject| CaptureOptions {
        seed,
        table,
        subject,
        width: 320,
        height: 240,
        frames: 26,
        frame_rate: 4.0,
        arc_degrees: 330.0,
        distortion: 0.0,
        relative_focal: 1.35,
        ..CaptureOptions::default()
    };
    let bare = |options| CaptureOptions { plain_walls: true, ..options };
    let beside = |options| CaptureOptions { neighbours: true, ..options };
    let close = |relative_focal, options| CaptureOptions { relative_focal, ..options };
    vec![
        ("blank-bricks", bare(base(21, Blank, Bricks))),
        ("blank-dark", base(22, Blank, Dark)),
        ("blank-still", base(23, Blank, StillLife)),
        ("blank-white", base(24, Blank, Plain)),
        ("cloth-bricks-neighbours", beside(base(25, Cloth, Bricks))),
        ("cloth-dark-cut", close(2.3, base(26, Cloth, Dark))),
        ("cloth-thin", base(27, Cloth, Thin)),
        ("cloth-white-neighbours", beside(base(28, Cloth, Plain))),
        ("glossy-dark-neighbours", beside(base(29, Glossy, Dark))),
        ("glossy-still", bare(base(30, Glossy, StillLife))),
        ("glossy-white", base(31, Glossy, Plain)),
        ("ground-bricks", base(32, Ground, Bricks)),
        ("ground-still-cut", close(2.0, base(33, Ground, StillLife))),
        ("ground-thin", base(34, Ground, Thin)),
        ("oak-bricks-cut", close(2.3, base(35, Oak, Bricks))),
        ("oak-dark-neighbours", beside(base(36, Oak, Dark))),
    ]
}

fn main() -> ExitCode {
    exit_code(run(&Arguments::parse()))
}

fn run(arguments: &Arguments) -> Result<()> {
    println!("case                       half  overlap  lowest  boundary  wrong/50");
    for (place, (name, options)) in (1..).zip(cases()) {
        if !arguments.case.is_empty() && !arguments.case.iter().any(|c| c == name) {
            continue;
        }
        let folder = arguments.folder.join(name);
        if !folder.join("sparse/points3D.bin").is_file() {
            film_dataset(&Film::new(&options), &folder)?;
        }
        let masks = MaskOptions { model: arguments.mask_model.clone(), masks: None };
        let (found, sheet) = (folder.join("found"), folder.join("masks.jpg"));
        let report = mask_dataset(&folder, &masks, &found, &sheet, &Control::new())?;
        let mut scores = Vec::new();
        for frame in 0..options.frames {
            let name = libreconstruct::video::Frames::name_of(u64::from(frame));
            let known = read_mask(&mask_path(&folder.join("masks"), &name))?;
            // No mask at all is one that shows nothing.
            let mask = match report.masks {
                0 => image::GrayImage::new(known.width(), known.height()),
                _ => read_mask(&mask_path(&found, &name))?,
            };
            scores.push(MaskScore::of(&name, &mask, &known));
        }
        let mean = |value: fn(&MaskScore) -> f64| scores.iter().map(value).sum::<f64>() / scores.len() as f64;
        println!(
            "{name:26} {}  {:7.4}  {:6.3}  {:8.3}  {:8.1}",
            if place % 2 == 1 { "tune" } else { "test" },
            mean(|s| s.overlap),
            scores.iter().map(|s| s.overlap).fold(1.0, f64::min),
            mean(|s| s.boundary_f),
            50.0 * mean(|s| s.wrong_pieces as f64),
        );
    }
    Ok(())
}
