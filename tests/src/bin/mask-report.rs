//! Prints how close the masks of a reconstruction came to known ones, and how much of its scene lies beside the object.

#![allow(clippy::print_stdout)]

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use libreconstruct::Result;
use libreconstruct::splats::Splats;
use libreconstruct_tests::exit_code;
use libreconstruct_tests::masks::{MaskScore, known_masks, opacity_outside, scores};

/// Compare the masks of a reconstruction with known ones.
#[derive(Parser)]
struct Arguments {
    /// Folder that `reconstruct run` or `sfm` wrote with --remove-background
    result: PathBuf,
    /// Folder of the known masks, one for each picture as it was filmed
    masks: PathBuf,
    /// Pixels by which a splat may be beside a known mask
    #[arg(long, default_value_t = 4)]
    margin: u32,
    /// Print the overlap of every picture
    #[arg(long)]
    all: bool,
}

fn main() -> ExitCode {
    exit_code(run(&Arguments::parse()))
}

fn run(arguments: &Arguments) -> Result<()> {
    let known = known_masks(&arguments.result, &arguments.masks)?;
    let mut scores = scores(&known, &arguments.result.join("undistorted/masks"))?;
    scores.sort_by(|a, b| a.overlap.total_cmp(&b.overlap));
    let count = scores.len();
    println!("Overlap (intersection over union) with {count} known masks:");
    println!("  mean     {:.4}", scores.iter().map(|s| s.overlap).sum::<f64>() / count as f64);
    println!("  median   {:.4}", scores[count / 2].overlap);
    println!("  lowest   {:.4} ({})", scores[0].overlap, scores[0].name);
    println!("Boundary F: {:.4}", scores.iter().map(|s| s.boundary_f).sum::<f64>() / count as f64);
    println!("Clouds and holes: {}", scores.iter().map(|s| s.wrong_pieces).sum::<usize>());
    let percent = |value: fn(&MaskScore) -> f64| 100.0 * scores.iter().map(value).sum::<f64>() / count as f64;
    println!(
        "Of the object: {:.1} % too much, {:.1} % too little",
        percent(|s| s.surplus),
        percent(|s| s.lack)
    );
    if arguments.all {
        for MaskScore { name, overlap, boundary_f, wrong_pieces, surplus, lack, coverage } in &scores {
            println!(
                "  {name}  {overlap:.4}  boundary {boundary_f:.3}  {wrong_pieces} wrong  too much {surplus:.3}, too little {lack:.3}  \
                 (object in {:.1} % of the picture)",
                100.0 * coverage
            );
        }
    }
    let scene = arguments.result.join("scene.ply");
    if scene.is_file() {
        let splats = Splats::read(&scene)?;
        let outside = opacity_outside(&splats, &known, arguments.margin);
        println!(
            "Scene: {} splats, {:.3} % of their opacity beside the object",
            splats.len(),
            100.0 * outside
        );
    }
    Ok(())
}
