//! Times of the passes on a graphics device: milliseconds per pass, and per whole step with several steps on their way.
//! `cargo bench -p libreconstruct --bench raster_gpu -- [DEVICE [SPLATS WIDTH HEIGHT [STEPS]]]`

#![allow(missing_docs, clippy::print_stdout, clippy::unwrap_used, clippy::expect_used)]

use std::time::Instant;

use libreconstruct::Result;
use libreconstruct::glam::{DMat3, DVec3, dvec3};
use libreconstruct::raster::{
    DeviceChoice, LossOptions, Rasteriser, StepOptions, Target, TrainState, View, open,
};
use libreconstruct::splats::{Splats, sh_coefficients};

const SH_DEGREE: u32 = 3;
const PASSES: [&str; 7] =
    ["project", "intersect", "sort", "rasterise", "loss", "rasterise backward", "update"];

struct Random(u64);

impl Random {
    fn uniform(&mut self) -> f64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 11) as f64 / (1u64 << 53) as f64
    }

    fn normal(&mut self) -> f64 {
        (-2.0 * (1.0 - self.uniform()).ln()).sqrt() * (std::f64::consts::TAU * self.uniform()).cos()
    }
}

/// Splats at depths of 2 to 8, a little more than the field of view, about as large as their distance on the picture.
fn scene(count: usize, width: u32, height: u32) -> Splats {
    let mut random = Random(count as u64);
    let mut splats = Splats::with_capacity(count, SH_DEGREE);
    splats.sh_degree = SH_DEGREE;
    let aspect = f64::from(height) / f64::from(width);
    for _ in 0..count {
        let depth = 2.0 + 6.0 * random.uniform().powi(2);
        let (x, y) = (0.95 * (random.uniform() - 0.5), 0.95 * aspect * (random.uniform() - 0.5));
        splats.means.push(dvec3(x * depth, y * depth, depth).as_vec3());
        let scale = 0.8 * depth * (0.95 * 0.95 * aspect * 2.0 / count as f64).sqrt();
        let scales = [0.0, 0.0, -1.5].map(|flat| (scale.ln() + flat + 0.5 * random.normal()) as f32);
        splats.log_scales.push(scales.into());
        splats.rotations.push([0; 4].map(|_| random.normal() as f32).into());
        splats.opacities.push((0.5 + 1.5 * random.normal()) as f32);
        for _ in 0..sh_coefficients(SH_DEGREE) * 3 {
            splats.sh.push((0.2 * random.normal()) as f32);
        }
    }
    splats
}

fn step(number: u32) -> StepOptions {
    StepOptions {
        step: number,
        lr_means: 1e-6,
        lr_scales: 1e-5,
        lr_rotations: 1e-5,
        lr_opacities: 1e-5,
        lr_sh_dc: 1e-5,
        lr_sh_rest: 1e-6,
        lr_exposure: 0.0,
        beta1: 0.9,
        beta2: 0.999,
        epsilon: 1e-15,
        opacity_regularisation: 0.01,
        scale_regularisation: 0.01,
        noise: 1.0,
        seed: 1,
    }
}

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
    r.load(&TrainState { splats: scene(splats, width, height), ..TrainState::default() })?;
    let mut random = Random(7);
    let rgb = (0..width * height * 3).map(|_| (random.uniform() * 255.0) as u8).collect();
    r.set_targets(vec![Target { width, height, rgb, alpha: None }])?;
    let focal = 1.05 * f64::from(width);
    let view = View {
        rotation: DMat3::IDENTITY,
        translation: DVec3::ZERO,
        fx: focal,
        fy: focal,
        cx: 0.5 * f64::from(width),
        cy: 0.5 * f64::from(height),
        width,
        height,
    };
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
