//! Times of the CPU rasteriser's passes: wall and CPU milliseconds, what a pass must at least compute and move, and how
//! near it comes to what this machine can do. `cargo bench -p libreconstruct --bench raster [-- STEPS]`.

#![allow(missing_docs, clippy::print_stdout, clippy::unwrap_used, clippy::expect_used)]

mod shared;

use std::hint::black_box;
use std::time::Instant;

use libreconstruct::Result;
use libreconstruct::raster::cpu::CpuRasteriser;
use libreconstruct::raster::{Inspect, LossOptions, Rasteriser, TrainState};

use shared::{SH_DEGREE, scene, step, target, view};

const PASSES: [&str; 7] =
    ["project", "intersect", "sort", "rasterise", "loss", "rasterise backward", "update"];

/// Seconds that all threads of this process have run.
fn cpu_seconds() -> f64 {
    #[cfg(unix)]
    {
        let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: the call writes to `time` only.
        if unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &mut time) } == 0 {
            return time.tv_sec as f64 + 1e-9 * time.tv_nsec as f64;
        }
    }
    f64::NAN
}

/// How many blocks of 4x4 pixels the splats reach in their tiles, in all (early stops not counted).
fn blocks_of_pixels(r: &mut CpuRasteriser<f32>, width: u32) -> Result<u64> {
    let splats: std::collections::BTreeMap<u32, _> =
        r.inspect_projected()?.into_iter().map(|s| (s.index, s)).collect();
    let tiles_x = width.div_ceil(16);
    let blocks = r.inspect_intersections()?.into_iter().map(|(tile, splat)| {
        let s = &splats[&splat];
        let [xx, xy, yy] = s.conic;
        let reach = 2.0 * (255.0 * s.opacity).ln();
        let [left, top] = [tile % tiles_x, tile / tiles_x].map(|t| f64::from(t * 16) + 0.5);
        let mut reached = 0u16;
        for pixel in 0..256u32 {
            let (x, y) = (pixel % 16, pixel / 16);
            let (dx, dy) = (left + f64::from(x) - s.mean[0], top + f64::from(y) - s.mean[1]);
            reached |=
                u16::from(xx * dx * dx + 2.0 * xy * dx * dy + yy * dy * dy <= reach) << (y / 4 * 4 + x / 4);
        }
        u64::from(reached.count_ones())
    });
    Ok(blocks.sum())
}

/// Floating-point operations per second of one core, by independent multiply-adds.
fn peak_flops() -> f64 {
    #[cfg(target_arch = "x86_64")]
    {
        #[target_feature(enable = "avx2,fma")]
        fn work(rounds: usize, x: f32) -> f32 {
            let mut sums = [[0f32; 8]; 12];
            for _ in 0..rounds {
                for sum in &mut sums {
                    for lane in sum {
                        *lane = lane.mul_add(x, 1.0);
                    }
                }
            }
            sums.iter().flatten().sum()
        }
        if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") {
            let best = (0..5).map(|_| {
                let rounds = 2_000_000;
                let start = cpu_seconds();
                // SAFETY: the processor was asked for the instructions.
                black_box(unsafe { work(rounds, black_box(0.5)) });
                (rounds * 12 * 8 * 2) as f64 / (cpu_seconds() - start)
            });
            return best.fold(0.0, f64::max);
        }
    }
    f64::NAN
}

/// Bytes per second read and written by all cores, each working alone, by changing a large array in place.
fn peak_bandwidth() -> f64 {
    use rayon::prelude::*;
    let mut values = vec![1u64; 1 << 24];
    let best = (0..5).map(|_| {
        let start = cpu_seconds();
        values.par_chunks_mut(1 << 16).for_each(|chunk| chunk.iter_mut().for_each(|v| *v += 1));
        black_box(&values);
        let seconds = (cpu_seconds() - start) / rayon::current_num_threads() as f64;
        (2 * values.len() * 8) as f64 / seconds
    });
    best.fold(0.0, f64::max)
}

fn main() -> Result<()> {
    let steps: u32 = std::env::args().filter_map(|a| a.parse().ok()).next().unwrap_or(30);
    let cores = rayon::current_num_threads() as f64;
    let (flops, bandwidth) = (cores * peak_flops(), peak_bandwidth());
    println!(
        "{}; {cores} threads, {:.0} GFLOP/s, {:.1} GB/s (in place)\n",
        CpuRasteriser::<f32>::new().name(),
        1e-9 * flops,
        1e-9 * bandwidth
    );
    for (width, height, counts) in
        [(270, 480, &[12_000, 50_000][..]), (540, 960, &[12_000, 50_000]), (1080, 1920, &[1_000_000])]
    {
        for &count in counts {
            let mut r = CpuRasteriser::<f32>::new();
            r.load(&TrainState { splats: scene(count, [0.95, 1.75]), ..TrainState::default() })?;
            r.set_targets(vec![target(width, height)])?;
            let view = view(width, height, 1.2);
            let loss = LossOptions { ssim_weight: 0.2, alpha_weight: 0.0, exposure: None };
            let (mut wall, mut cpu) = ([0.0; 7], [0.0; 7]);
            let mut blocks = 0;
            for number in 0..=steps {
                for pass in 0..7 {
                    let (start, cpu_start) = (Instant::now(), cpu_seconds());
                    match pass {
                        0 => r.project(&view, SH_DEGREE),
                        1 => r.intersect(),
                        2 => r.sort(),
                        3 => r.rasterise([0.0; 3]),
                        4 => r.loss(0, &loss),
                        5 => r.rasterise_backward(),
                        _ => r.update(&step(number.max(1))),
                    }?;
                    // The first step warms up.
                    if number > 0 {
                        wall[pass] += start.elapsed().as_secs_f64();
                        cpu[pass] += cpu_seconds() - cpu_start;
                    }
                    if number == 0 && pass == 2 {
                        blocks = blocks_of_pixels(&mut r, width)?;
                    }
                }
            }
            let s = r.statistics()?;
            let pixels = f64::from(width * height);
            let (n, visible, pairs) = (count as f64, s.visible as f64, s.intersections as f64);
            println!(
                "{count} splats, degree {SH_DEGREE}, {width}x{height}: {} visible, {} pairs, {blocks} blocks of 4x4 pixels",
                s.visible, s.intersections
            );
            // Operations and bytes per splat, pair, block of 16 pixels and pixel: counted in the source of the passes.
            let blocks = blocks as f64;
            let flop = [
                220.0 * n + 130.0 * visible,
                40.0 * pairs,
                0.0,
                16.0 * (31.0 * blocks + 32.0 * pairs),
                3.0 * pixels * (11.0 * 10.0 + 4.0 * 22.0 + 6.0 * 22.0 + 60.0),
                16.0 * 54.0 * blocks + 170.0 * pairs,
                visible * (450.0 + 59.0 * 12.0),
            ];
            let bytes = [
                64.0 * n + (192.0 + 64.0) * visible,
                64.0 * visible + 8.0 * pairs,
                6.0 * 16.0 * visible + 24.0 * pairs,
                68.0 * pairs + 16.0 * pixels,
                pixels * (16.0 + 3.0 + 2.0 * 24.0 + 2.0 * 36.0 + 20.0),
                (68.0 + 80.0) * pairs + 128.0 * visible + 36.0 * pixels,
                visible * (6.0 * 64.0 * 4.0 + 128.0),
            ];
            println!(
                "{:<20}{:>9}{:>9}{:>10}{:>9}{:>10}",
                "pass", "wall ms", "CPU ms", "GFLOP/s", "GB/s", "of limit"
            );
            for pass in 0..7 {
                let seconds = cpu[pass] / f64::from(steps) / cores;
                let limit = (flop[pass] / flops).max(bytes[pass] / bandwidth);
                println!(
                    "{:<20}{:>9.2}{:>9.2}{:>10.1}{:>9.1}{:>8.0} %",
                    PASSES[pass],
                    1e3 * wall[pass] / f64::from(steps),
                    1e3 * cpu[pass] / f64::from(steps),
                    1e-9 * flop[pass] / seconds,
                    1e-9 * bytes[pass] / seconds,
                    100.0 * limit / seconds
                );
            }
            let (wall, cpu): (f64, f64) = (wall.iter().sum(), cpu.iter().sum());
            println!(
                "{:<20}{:>9.2}{:>9.2}   {:.1} steps/s; {:.1} if the threads had their cores alone\n",
                "step",
                1e3 * wall / f64::from(steps),
                1e3 * cpu / f64::from(steps),
                f64::from(steps) / wall,
                cores * f64::from(steps) / cpu
            );
        }
    }
    Ok(())
}
