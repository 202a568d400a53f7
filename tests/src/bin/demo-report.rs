//! Prints how close a reconstruction of a synthetic capture came to its known truth.

#![allow(clippy::print_stdout)]

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use libreconstruct::camera::SparseModel;
use libreconstruct::video::Frames;
use libreconstruct::{Error, ErrorKind, Result};
use libreconstruct_tests::exit_code;
use libreconstruct_tests::pose_error::{compare, read_poses};

/// Compare a reconstruction with the known truth of its synthetic capture.
#[derive(Parser)]
struct Arguments {
    /// Folder that synthetic-capture wrote
    capture: PathBuf,
    /// Folder that `reconstruct run` wrote
    result: PathBuf,
    /// Print one JSON object instead of lines
    #[arg(long)]
    json: bool,
}

fn main() -> ExitCode {
    exit_code(run(&Arguments::parse()))
}

fn run(arguments: &Arguments) -> Result<()> {
    let truth = read_poses(&arguments.capture.join("poses.json"))?;
    let frames = Frames::load(&arguments.result.join("frames"))?;
    let numbers: BTreeMap<&str, u64> = frames.frames.iter().map(|f| (f.name.as_str(), f.index)).collect();
    let model = SparseModel::read(&arguments.result.join("sparse"))?;
    let estimate: BTreeMap<u64, _> = model
        .images
        .values()
        .filter_map(|image| Some((*numbers.get(image.name.as_str())?, image.pose)))
        .collect();
    let wanted: Vec<u64> = frames.frames.iter().map(|f| f.index).collect();
    let error = compare(&truth, &estimate, &wanted);

    let path = arguments.result.join("report.json");
    let text = std::fs::read_to_string(&path).map_err(|e| Error::io("read", &path, e))?;
    let report: serde_json::Value = serde_json::from_str(&text).map_err(|e| {
        Error::new(ErrorKind::InvalidFile, format!("{} is not a report", path.display())).caused_by(e)
    })?;
    let evaluation = &report["train"]["evaluation"];
    if arguments.json {
        let all = serde_json::json!({
            "frames": wanted.len(), "registered": error.registered, "auc1": error.auc[0], "auc3": error.auc[1],
            "auc5": error.auc[2], "auc10": error.auc[3], "rotation_median_deg": error.rotation_median,
            "psnr": evaluation["psnr"], "ssim": evaluation["ssim"],
        });
        println!("{all}");
        return Ok(());
    }
    println!("Against the known truth of the synthetic capture:");
    println!("  frames registered      {:.1} % of {}", 100.0 * error.registered, wanted.len());
    println!("  camera poses           AUC@1\u{b0} {:.2}, AUC@3\u{b0} {:.2}", error.auc[0], error.auc[1]);
    println!("  median rotation error  {:.4}\u{b0}", error.rotation_median);
    match (evaluation["psnr"].as_f64(), evaluation["ssim"].as_f64()) {
        (Some(psnr), Some(ssim)) => println!("  held-out pictures      PSNR {psnr:.2} dB, SSIM {ssim:.4}"),
        _ => println!("  held-out pictures      not evaluated (run with --test-every 8)"),
    }
    Ok(())
}
