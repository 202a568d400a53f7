//! Trains Gaussians on a COLMAP model of undistorted pictures and writes a `.ply`:
//!
//! ```text
//! cargo run --release --example train -- SPARSE_FOLDER IMAGE_FOLDER scene.ply \
//!     [--device auto|cpu|gpu|NAME] [--checkpoint FILE] [--evaluate-every STEPS] [OPTIONS as JSON]
//! cargo run --release --example train -- sparse images scene.ply '{"training_num_steps": 7000, "test_every": 8}'
//! ```
//!
//! With `test_every`, the held-out views are scored at the end (and on the way).
#![allow(clippy::print_stdout)]

use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::Instant;

use libreconstruct::raster::{DeviceChoice, open};
use libreconstruct::train::{Dataset, TrainOptions, Trainer};
use libreconstruct::{Control, Error, Event, Result};

fn main() {
    if let Err(error) = run() {
        eprintln!("error: {error}");
        std::process::exit(error.kind().exit_code().into());
    }
}

fn run() -> Result<()> {
    let mut device = DeviceChoice::Auto;
    let mut checkpoint: Option<PathBuf> = None;
    let mut evaluate_every = None;
    let mut plain = Vec::new();
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        let mut value =
            || arguments.next().ok_or_else(|| Error::argument(format!("{argument} needs a value")));
        match argument.as_str() {
            "--device" => device = value()?.parse()?,
            "--checkpoint" => checkpoint = Some(value()?.into()),
            "--evaluate-every" => {
                let steps = value()?;
                let number: u32 = steps.parse().map_err(|_| {
                    Error::argument(format!("--evaluate-every is {steps:?}")).hint("a number of steps")
                })?;
                evaluate_every = Some(number.max(1));
            }
            _ => plain.push(argument),
        }
    }
    let [sparse, images, output, rest @ ..] = plain.as_slice() else {
        return Err(
            Error::argument("three arguments are needed").hint("SPARSE_FOLDER IMAGE_FOLDER SCENE.ply")
        );
    };
    let options: TrainOptions = match rest {
        [] => TrainOptions::default(),
        [json] => serde_json::from_str(json)
            .map_err(|e| Error::argument(format!("the options are no JSON of training options: {e}")))?,
        _ => return Err(Error::argument("too many arguments")),
    };

    let dataset = Dataset::open(Path::new(sparse), Path::new(images), options.test_every)?;
    println!(
        "{} views to train on, {} held out, {} points",
        dataset.train.len(),
        dataset.test.len(),
        dataset.points.len()
    );
    let last = Mutex::new(Instant::now());
    let control = Control::new().with_listener(move |event| {
        let mut last = last.lock().unwrap_or_else(|e| e.into_inner());
        match event {
            Event::Progress { message: Some(message), .. } if last.elapsed().as_secs() >= 5 => {
                println!("{message}");
                *last = Instant::now();
            }
            Event::Warning { warning, .. } => println!("warning: {}", warning.message),
            Event::Progress { .. } => {}
        }
    });
    let began = Instant::now();
    let rasteriser = open(&device)?;
    let has_test = !dataset.test.is_empty();
    let mut trainer = match checkpoint.as_deref().filter(|p| p.is_file()) {
        Some(path) => Trainer::resume(dataset, options, rasteriser, path)?,
        None => Trainer::new(dataset, options, rasteriser, &control)?,
    };
    println!(
        "{}, {} Gaussians, begun in {:.1} s",
        trainer.device(),
        trainer.len(),
        began.elapsed().as_secs_f64()
    );
    let score = |trainer: &mut Trainer| -> Result<()> {
        let e = trainer.evaluate(&control)?;
        println!("step {}: PSNR {:.3} dB, SSIM {:.4}, {} Gaussians", e.step, e.psnr, e.ssim, e.splats);
        Ok(())
    };
    if let Some(every) = evaluate_every.filter(|_| has_test) {
        let mut seconds = 0.0;
        while !trainer.is_finished() {
            let began = Instant::now();
            let first = trainer.steps_done();
            while !trainer.is_finished() && trainer.steps_done() < first + every {
                trainer.step(&control)?;
            }
            seconds += began.elapsed().as_secs_f64();
            print!("{seconds:.1} s, ");
            score(&mut trainer)?;
        }
    } else {
        let report = trainer.run(&control, checkpoint.as_deref())?;
        println!("{} steps, {:.1} steps/s", report.steps, report.steps_per_second);
        if has_test {
            score(&mut trainer)?;
        }
    }
    trainer.splats()?.write_ply(Path::new(output))
}
