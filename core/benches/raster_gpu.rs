//! Times of the passes on a graphics device: milliseconds per pass, and per whole step with several steps on their way.
//! `cargo bench -p libreconstruct --bench raster_gpu -- [DEVICE [SPLATS WIDTH HEIGHT [STEPS]]]`

#![allow(missing_docs, clippy::print_stdout, clippy::unwrap_used, clippy::expect_used)]

mod shared;

use std::time::Instant;

use libreconstruct::Result;
use libreconstruct::raster::{DeviceChoice, LossOptions, Rasteriser, TrainState, View, open};

use shared::{SH_DEGREE, scene, step, target, view};

const PASSES: [&str; 7] =
    ["project", "intersect", "sort", "rasterise", "loss", "rasterise backward", "update"];

/// Seconds that this thread has run.
fn thread_seconds() -> f64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    text.split(' ').next().and_then(|ns| ns.parse().ok()).map_or(f64::NAN, |ns: f64| 1e-9 * ns)
}

/// Runs the first `passes` passes of a step.
fn run(r: &mut dyn Rasteriser, view: &View, number: u32, passes: usize) -> Result<()> {
    for pass in 0..passes {
        match pass {
            0 => r.project(view, SH_DEGREE),
            1 => r.intersect(),
            2 => r.sort(),
            3 => r.rasterise([0.0; 3]),
            4 => r.loss(0, &LossOptions { ssim_weight: 0.2, alpha_weight: 0.0, exposure: None }),
            5 => r.rasterise_backward(),
            _ => r.update(&step(number)),
        }?;
    }
    Ok(())
}

fn bench(r: &mut dyn Rasteriser, splats: usize, width: u32, height: u32, steps: u32) -> Result<()> {
    r.load(&TrainState {
        splats: scene(splats, [0.95, 0.95 * f64::from(height) / f64::from(width)]),
        ..TrainState::default()
    })?;
    r.set_targets(vec![target(width, height)])?;
    let view = view(width, height, 1.05);
    // The first steps compile and find out how much room is needed.
    for number in 1..=2 {
        run(r, &view, number, PASSES.len())?;
        r.statistics()?;
    }
    let seen = r.statistics()?;
    println!(
        "{splats} splats, {width}x{height}: {} visible, {} pairs, {:.1} per tile",
        seen.visible,
        seen.intersections,
        seen.intersections as f64 / f64::from(width.div_ceil(16) * height.div_ceil(16))
    );
    // Asking for the statistics waits for the device; a pass is the difference of what it takes with and without it.
    let mut before = 0.0;
    for passes in 0..=PASSES.len() {
        let mut times: Vec<f64> = (0..steps)
            .map(|number| {
                let start = Instant::now();
                run(r, &view, 3 + number, passes)?;
                r.statistics()?;
                Ok(1e3 * start.elapsed().as_secs_f64())
            })
            .collect::<Result<_>>()?;
        times.sort_by(f64::total_cmp);
        let median = times[times.len() / 2];
        if passes > 0 {
            println!("    {:<20} {:9.3} ms", PASSES[passes - 1], median - before);
        }
        before = median;
    }
    let (start, host) = (Instant::now(), thread_seconds());
    for number in 0..steps {
        run(r, &view, 100 + number, PASSES.len())?;
    }
    let host = thread_seconds() - host;
    r.statistics()?;
    println!(
        "    {:<20} {:9.3} ms, of which the host computes for {:.3} ms",
        "whole step",
        1e3 * start.elapsed().as_secs_f64() / f64::from(steps),
        1e3 * host / f64::from(steps)
    );
    Ok(())
}

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|a| a != "--bench").collect();
    let choice: DeviceChoice = arguments.first().map_or("gpu", String::as_str).parse()?;
    let number =
        |at: usize, default: u32| arguments.get(at).map_or(default, |a| a.parse().expect("a number"));
    let mut r = open(&choice)?;
    println!("{}", r.name());
    let steps = number(4, 7);
    if arguments.len() > 1 {
        return bench(&mut *r, number(1, 0) as usize, number(2, 640), number(3, 360), steps);
    }
    for (splats, width, height) in [(4_000, 128, 96), (12_000, 270, 480)] {
        bench(&mut *r, splats, width, height, steps)?;
    }
    Ok(())
}
