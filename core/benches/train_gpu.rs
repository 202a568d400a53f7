//! A whole training on a graphics device as users have it: a room of which a picture shows a part, pictures from files,
//! growth, checkpoints; then the passes of a step on what came out, by the device's own clock, with the bytes that they must
//! move at least and the speed that this makes: to be held against the speed of the device's memory.
//! `cargo bench -p libreconstruct --bench train_gpu -- [DEVICE [SPLATS WIDTH HEIGHT PICTURES STEPS [FOLDER]]]`
//!
//! The pictures and their COLMAP model stay in FOLDER, so that other trainers can be given the same.

#![allow(missing_docs, clippy::print_stdout, clippy::unwrap_used, clippy::expect_used)]

#[expect(dead_code, reason = "the other benchmarks use the rest")]
mod shared;

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Instant;

use libreconstruct::camera::{Camera, CameraModel, Image, Point2D, Point3D, Pose, SparseModel};
use libreconstruct::glam::{DVec3, dvec3, vec4};
use libreconstruct::raster::gpu::{GpuRasteriser, PassTime};
use libreconstruct::raster::{DeviceChoice, LossOptions, Rasteriser, TrainState, View, open};
use libreconstruct::splats::{SH_C0, Splats};
use libreconstruct::train::{Dataset, TrainOptions, Trainer};
use libreconstruct::{Control, Result};
use nalgebra::{Vector2, Vector3};
use rayon::prelude::*;

use shared::{Random, SH_DEGREE, step};

/// Half the length, height and width of the room.
const ROOM: DVec3 = DVec3::new(4.0, 1.5, 3.0);
/// Points of the sparse model.
const POINTS: usize = 100_000;

/// A colour that varies over all scales, of a place on a surface.
fn colour(at: DVec3, face: f64) -> [f64; 3] {
    let mut value = [0.5 + 0.2 * face.sin(), 0.5 + 0.2 * (1.7 * face).cos(), 0.45];
    for octave in 0..7 {
        let frequency = 1.7 * 2f64.powi(octave);
        let wave = (frequency * (at.x + 0.37 * at.y) + face).sin()
            * (frequency * (at.z - 0.53 * at.y) + 2.0 * face).cos();
        for (channel, value) in value.iter_mut().enumerate() {
            *value +=
                0.16 * 0.8f64.powi(octave) * wave * (1.0 + 0.4 * (channel as f64 + f64::from(octave)).sin());
        }
    }
    value.map(|v| v.clamp(0.02, 0.98))
}

/// A room with boxes in it, `count` splats on its surfaces.
fn room(count: usize) -> Splats {
    let mut random = Random(11);
    let mut boxes = vec![(DVec3::ZERO, ROOM)];
    for i in 0..14 {
        let turn = std::f64::consts::TAU * f64::from(i) / 14.0;
        let half =
            dvec3(0.1 + 0.3 * random.uniform(), 0.1 + 0.4 * random.uniform(), 0.1 + 0.3 * random.uniform());
        let along = 0.35 + 0.4 * random.uniform();
        boxes.push((dvec3(along * 3.6 * turn.cos(), ROOM.y - half.y, along * 2.6 * turn.sin()), half));
    }
    let area = |half: &DVec3| 8.0 * (half.x * half.y + half.y * half.z + half.z * half.x);
    let total: f64 = boxes.iter().map(|(_, half)| area(half)).sum();
    let scale = 0.6 * (total / count as f64).sqrt();
    let mut splats = Splats::with_capacity(count, SH_DEGREE);
    splats.sh_degree = SH_DEGREE;
    for _ in 0..count {
        let mut pick = total * random.uniform();
        let (number, (centre, half)) = boxes
            .iter()
            .enumerate()
            .find(|(_, (_, half))| {
                pick -= area(half);
                pick < 0.0
            })
            .unwrap_or((0, &boxes[0]));
        let [a, b, c] = [half.y * half.z, half.z * half.x, half.x * half.y];
        let side = (a + b + c) * random.uniform();
        let axis = if side < a {
            0
        } else if side < a + b {
            1
        } else {
            2
        };
        let mut at = dvec3(random.uniform(), random.uniform(), random.uniform()) * 2.0 - 1.0;
        at[axis] = at[axis].signum();
        let at = *centre + at * *half;
        let rgb = colour(at, (3 * number + axis) as f64);
        let mut log_scales = [scale.ln(); 3];
        log_scales[axis] -= 2.0;
        splats.means.push(at.as_vec3());
        splats.log_scales.push(log_scales.map(|s| (s + 0.3 * random.normal()) as f32).into());
        splats.rotations.push(vec4(1.0, 0.0, 0.0, 0.0));
        splats.opacities.push(3.0);
        splats.sh.extend(rgb.map(|v| (v as f32 - 0.5) / SH_C0));
        splats.sh.extend((3..48).map(|_| (0.02 * random.normal()) as f32));
    }
    splats
}

/// A walk around the room that looks across it.
fn poses(count: u32) -> Vec<Pose> {
    (0..count)
        .map(|i| {
            let turn = std::f64::consts::TAU * f64::from(i) / f64::from(count);
            let position = Vector3::new(2.9 * turn.cos(), -0.2 + 0.4 * (3.0 * turn).sin(), 2.0 * turn.sin());
            let target = Vector3::new(1.2 * (turn + 2.4).cos(), 0.3, 0.9 * (turn + 2.4).sin());
            Pose::look_at(&position, &target, &-Vector3::y()).expect("looks somewhere")
        })
        .collect()
}

/// Films the room into `folder`: `images/` and `sparse/`.
fn film(
    choice: &DeviceChoice,
    folder: &Path,
    splats: usize,
    (width, height): (u32, u32),
    pictures: u32,
) -> Result<()> {
    let images = folder.join("images");
    std::fs::create_dir_all(&images).expect("a folder that can be written");
    let truth = room(splats);
    let camera = Camera::from_focal(CameraModel::Pinhole, 0.85 * f64::from(width), width, height);
    let mut rasteriser = open(choice)?;
    libreconstruct::raster::load_for_viewing(rasteriser.as_mut(), &truth)?;
    let poses = poses(pictures);
    let name = |i: usize| format!("{i:04}.jpg");
    rayon::scope(|scope| -> Result<()> {
        for (i, pose) in poses.iter().enumerate() {
            let picture = rasteriser.render(&View::new(&camera, pose), SH_DEGREE, [0.0; 3])?;
            let path = images.join(name(i));
            scope.spawn(move |_| {
                let rgb: Vec<u8> = picture
                    .rgba
                    .iter()
                    .flat_map(|p| [p[0], p[1], p[2]].map(|v| (v.clamp(0.0, 1.0) * 255.0 + 0.5) as u8))
                    .collect();
                let file = std::io::BufWriter::new(std::fs::File::create(path).expect("a picture"));
                let mut encoder = image::codecs::jpeg::JpegEncoder::new_with_quality(file, 95);
                encoder.encode(&rgb, width, height, image::ExtendedColorType::Rgb8).expect("a picture");
            });
        }
        Ok(())
    })?;
    let mut model = SparseModel::default();
    let views: Vec<View> = poses.iter().map(|pose| View::new(&camera, pose)).collect();
    model.cameras.insert(1, camera);
    for (i, pose) in (0..).zip(poses) {
        model
            .images
            .insert(i + 1, Image { name: name(i as usize), camera_id: 1, pose, points2d: Vec::new() });
    }
    // A point is in every picture that it lies in the frame of; walls between do not matter to the benchmark.
    let seen: Vec<Vec<(u32, Vector2<f64>)>> = truth.means[..POINTS.min(truth.len())]
        .par_iter()
        .map(|mean| {
            let mean = Vector3::new(f64::from(mean.x), f64::from(mean.y), f64::from(mean.z));
            let inside = |(id, view): (u32, &View)| {
                let (x, y, _) = view.project(&mean)?;
                view.pixel(x, y).map(|_| (id, Vector2::new(x, y)))
            };
            (1..).zip(&views).step_by(10).filter_map(inside).collect()
        })
        .collect();
    for (number, track) in (1..).zip(seen).filter(|(_, track)| track.len() > 1) {
        let at = number as usize - 1;
        let track = track.into_iter().map(|(id, xy)| {
            let image = model.images.get_mut(&id).expect("one of them");
            image.points2d.push(Point2D { xy, point3d: Some(number) });
            (id, image.points2d.len() as u32 - 1)
        });
        let track = track.collect();
        let mean = truth.means[at];
        let rgb = [0, 1, 2].map(|c: usize| ((truth.sh[48 * at + c] * SH_C0 + 0.5) * 255.0) as u8);
        let xyz = Vector3::new(f64::from(mean.x), f64::from(mean.y), f64::from(mean.z));
        model.points.insert(number, Point3D { xyz, rgb, error: 0.5, track });
    }
    model.write_binary(&folder.join("sparse"))
}

/// Bytes that a step must move at least, by pass: the passes whose time the memory bounds.
fn bytes(splats: f64, visible: f64, pairs: f64, pixels: f64) -> BTreeMap<&'static str, f64> {
    let planes = 240.0;
    BTreeMap::from([
        // What tells whether a splat is visible; of visible ones everything, and the record.
        ("project", 24.0 * splats + visible * (planes - 16.0 + 48.0)),
        ("compact", 8.0 * splats + visible * (16.0 + 8.0)),
        ("emit", pairs * 8.0 + visible * 56.0),
        ("rasterise", pairs * 8.0 + visible * 48.0 + pixels * 20.0),
        ("compare", pixels * (16.0 + 4.0 + 36.0)),
        ("differentiate", pixels * (36.0 + 16.0 + 4.0 + 16.0 + 4.0)),
        ("rasterise_backward", pairs * (12.0 + 40.0) + visible * 48.0 + pixels * 40.0),
        ("update", pairs * 40.0 + 8.0 * splats + visible * (6.0 * planes + 32.0)),
    ])
}

/// The passes of steps through `views`, on `splats`.
fn time_passes(
    choice: &DeviceChoice,
    splats: &Splats,
    dataset: &Dataset,
    options: &TrainOptions,
) -> Result<()> {
    let mut r = GpuRasteriser::new(choice)?;
    r.load(&TrainState { splats: splats.clone(), ..TrainState::default() })?;
    let mut dataset = dataset.clone();
    dataset.train = dataset.train.iter().copied().step_by((dataset.train.len() / 40).max(1)).collect();
    r.set_targets(dataset.targets(options.max_resolution, &Control::new())?)?;
    let views: Vec<View> =
        dataset.train.iter().map(|&i| dataset.view_at(i, options.max_resolution)).collect();
    let walk = |r: &mut GpuRasteriser, first: u32| -> Result<(u32, f64, f64, f64)> {
        let (mut count, mut visible, mut pairs) = (0, 0.0, 0.0);
        let began = Instant::now();
        for (target, view) in views.iter().enumerate() {
            r.project(view, SH_DEGREE)?;
            r.intersect()?;
            r.sort()?;
            r.rasterise([0.0; 3])?;
            r.loss(target as u32, &LossOptions { ssim_weight: 0.2, alpha_weight: 0.0, exposure: None })?;
            r.rasterise_backward()?;
            r.update(&step(first + count))?;
            count += 1;
            if first == 1 {
                let seen = r.statistics()?;
                visible += seen.visible as f64;
                pairs += seen.intersections as f64;
            }
        }
        r.statistics()?;
        let ms = 1e3 * began.elapsed().as_secs_f64() / f64::from(count);
        Ok((count, visible / f64::from(count), pairs / f64::from(count), ms))
    };
    let (_, visible, pairs, _) = walk(&mut r, 1)?;
    let (_, _, _, whole) = walk(&mut r, 1000)?;
    let pixels = f64::from(views[0].width) * f64::from(views[0].height);
    println!(
        "{} splats, {}x{}: {visible:.0} visible, {pairs:.0} pairs, {:.1} a tile; a step {whole:.3} ms",
        splats.len(),
        views[0].width,
        views[0].height,
        pairs / (pixels / 256.0)
    );
    if let Err(error) = r.time_passes() {
        println!("    {error}");
        return Ok(());
    }
    let (count, ..) = walk(&mut r, 2000)?;
    let times = r.pass_times();
    println!("    {:<22} {:>9} {:>7} {:>8} {:>6}", "pass", "ms a step", "part", "MB", "GB/s");
    let total: f64 = times.values().map(|t| t.seconds).sum();
    let bytes = bytes(splats.len() as f64, visible, pairs, pixels);
    let mut sorted: Vec<(&str, PassTime)> = times.into_iter().collect();
    sorted.sort_by(|a, b| b.1.seconds.total_cmp(&a.1.seconds));
    for (name, time) in sorted {
        let ms = 1e3 * time.seconds / f64::from(count);
        print!("    {name:<22} {ms:9.4} {:6.1}%", 100.0 * time.seconds / total);
        match bytes.get(name) {
            Some(bytes) => println!(" {:8.1} {:6.0}", 1e-6 * bytes, 1e-6 * bytes / ms),
            None => println!(),
        }
    }
    println!("    {:<22} {:9.4}", "all", 1e3 * total / f64::from(count));
    Ok(())
}

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|a| a != "--bench").collect();
    let choice: DeviceChoice = arguments.first().map_or("gpu", String::as_str).parse()?;
    let number =
        |at: usize, default: u32| arguments.get(at).map_or(default, |a| a.parse().expect("a number"));
    let size = (number(2, 160), number(3, 96));
    let temporary = tempfile::tempdir().expect("a folder");
    let folder = arguments.get(6).map_or(temporary.path(), Path::new);
    let began = Instant::now();
    if !folder.join("sparse").is_dir() {
        film(&choice, folder, number(1, 5_000) as usize, size, number(4, 12))?;
        println!("filmed in {:.1} s", began.elapsed().as_secs_f64());
    }
    let options = TrainOptions {
        training_num_steps: number(5, 60),
        training_max_num_gaussians: number(1, 5_000),
        max_resolution: Some(size.0.max(size.1)),
        // The stereo of the start computes on the host, whatever the device.
        dense_initialisation: false,
        test_every: Some(30),
        ..TrainOptions::default()
    };
    let dataset = Dataset::open(&folder.join("sparse"), &folder.join("images"), options.test_every)?;
    let control = Control::new();
    let rasteriser = open(&choice)?;
    println!("{}", rasteriser.name());
    let mut trainer = Trainer::new(dataset.clone(), options.clone(), rasteriser, &control)?;
    let first = trainer.len();
    let checkpoint = temporary.path().join("train.checkpoint");
    let began = Instant::now();
    let report = trainer.run(&control, Some(&checkpoint))?;
    let seconds = began.elapsed().as_secs_f64();
    let score = trainer.evaluate(&control)?;
    println!(
        "{} steps, {first} to {} splats, {} pictures: {seconds:.2} s, {:.3} ms a step all in; held out {:.2} dB, SSIM {:.4}",
        report.steps,
        report.splats,
        dataset.train.len(),
        1e3 * seconds / f64::from(report.steps),
        score.psnr,
        score.ssim
    );
    let splats = trainer.splats()?;
    drop(trainer);
    time_passes(&choice, &splats, &dataset, &options)
}
