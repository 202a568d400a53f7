//! Whole trainings on a small synthetic capture, on the CPU.

use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use glam::{DVec3, Vec3, vec4};
use nalgebra::Vector3;

use super::*;
use crate::camera::{Camera, CameraModel, Image, Point3D, Pose, SparseModel};
use crate::control::tests::{assert_seconds_were_told, told_slowly};
use crate::control::{CancelToken, Control, Event};
use crate::error::ErrorKind;
use crate::random::Random;
use crate::raster::cpu::CpuRasteriser;
use crate::raster::{DeviceChoice, Rasteriser, open};
use crate::splats::{SH_C0, Splats};

const SIZE: (u32, u32) = (64, 48);

/// A ball of coloured Gaussians.
fn scene() -> Splats {
    let mut random = Random::new(5);
    let mut splats = Splats::with_capacity(400, 0);
    for _ in 0..400 {
        let direction = Vector3::from_fn(|_, _| random.normal()).normalize();
        splats.means.push(DVec3::from_array(direction.into()).as_vec3());
        let scales = std::array::from_fn(|_| (0.06 + 0.06 * random.uniform() as f32).ln());
        splats.log_scales.push(Vec3::from_array(scales));
        splats.rotations.push(vec4(1.0, 0.3, -0.2, 0.1));
        splats.opacities.push(3.0);
        let colour = |phase: f64| 0.5 + 0.4 * (3.0 * direction.x + 4.0 * direction.y + phase).sin();
        splats.sh.extend([0.0, 2.0, 4.0].map(|p| (colour(p) as f32 - 0.5) / SH_C0));
    }
    splats
}

/// Ten pictures around the ball and a quarter of its Gaussians as sparse points. `exposure` changes the colours of a
/// picture by its number; `alpha` keeps what belongs to the ball.
fn capture(folder: &Path, exposure: impl Fn(u32) -> f32, alpha: bool) -> SparseModel {
    let truth = scene();
    let mut rasteriser = CpuRasteriser::<f32>::new();
    rasteriser.load(&crate::raster::TrainState { splats: truth.clone(), ..Default::default() }).unwrap();
    let mut model = SparseModel::default();
    model.cameras.insert(1, Camera::from_focal(CameraModel::Pinhole, 60.0, SIZE.0, SIZE.1));
    for i in 0..10u32 {
        let angle = f64::from(i) * 0.2;
        let position = Vector3::new(3.0 * angle.sin(), -0.5 * (f64::from(i) * 0.9).sin(), -3.0 * angle.cos());
        let pose = Pose::look_at(&position, &Vector3::zeros(), &-Vector3::y()).unwrap();
        let name = format!("{i:02}.png");
        model.images.insert(i + 1, Image { name, camera_id: 1, pose, points2d: Vec::new() });
    }
    for k in (0..truth.len()).step_by(4) {
        let track = (1..=10).map(|i| (i, 0)).collect();
        let xyz = Vector3::from(truth.means[k].as_dvec3().to_array());
        model.points.insert(k as u64 + 1, Point3D { xyz, rgb: [128; 3], error: 0.5, track });
    }
    for image in model.images.values() {
        std::fs::write(folder.join(&image.name), "").unwrap();
    }
    let views = Dataset::from_model(&model, folder, None).unwrap().views;
    for (i, view) in views.iter().enumerate() {
        let rendering = rasteriser.render(&view.view, 0, [0.0; 3]).unwrap();
        let gain = exposure(i as u32);
        let mut picture = image::RgbaImage::new(SIZE.0, SIZE.1);
        for (pixel, p) in picture.pixels_mut().zip(&rendering.rgba) {
            let cover = if alpha { p[3] } else { 1.0 };
            let byte = |v: f32| (v * gain / cover.max(1e-3) * 255.0 + 0.5) as u8;
            *pixel = image::Rgba([byte(p[0]), byte(p[1]), byte(p[2]), (cover * 255.0 + 0.5) as u8]);
        }
        picture.save(&view.path).unwrap();
    }
    model
}

fn options(steps: u32) -> TrainOptions {
    TrainOptions {
        training_num_steps: steps,
        training_max_num_gaussians: 1000,
        sh_degree: 1,
        test_every: Some(5),
        exposure_compensation: false,
        tuning: Tuning { max_gaussians_per_pixel: 1.0, ..Tuning::default() },
        ..TrainOptions::default()
    }
}

fn trainer(model: &SparseModel, folder: &Path, options: &TrainOptions) -> Trainer {
    let dataset = Dataset::from_model(model, folder, options.test_every).unwrap();
    let rasteriser = open(&DeviceChoice::Cpu).unwrap();
    Trainer::new(dataset, options.clone(), rasteriser, &Control::new()).unwrap()
}

#[test]
fn scores_name_the_size_at_which_they_come_again() {
    let folder = tempfile::tempdir().unwrap();
    let model = capture(folder.path(), |_| 1.0, false);
    let small = TrainOptions { max_resolution: Some(32), ..options(1) };
    let scored = trainer(&model, folder.path(), &small).evaluate(&Control::new()).unwrap();
    assert_eq!(scored.longest_side, 32);
    let dataset = Dataset::from_model(&model, folder.path(), Some(5)).unwrap();
    let score = |side: Option<u32>| {
        let mut rasteriser = open(&DeviceChoice::Cpu).unwrap();
        evaluate_splats(&scene(), &dataset, side, rasteriser.as_mut(), &Control::new()).unwrap()
    };
    let whole = score(None);
    assert_eq!(whole.longest_side, SIZE.0);
    assert_eq!(score(Some(whole.longest_side)), whole);
    let half = score(Some(scored.longest_side));
    assert!(half.longest_side == 32 && half.psnr != whole.psnr);
}

#[test]
fn held_out_views_are_learnt() {
    let folder = tempfile::tempdir().unwrap();
    let model = capture(folder.path(), |_| 1.0, false);
    let mut trainer = trainer(&model, folder.path(), &options(400));
    let before = trainer.evaluate(&Control::new()).unwrap();
    let report = trainer.run(&Control::new(), None).unwrap();
    let after = trainer.evaluate(&Control::new()).unwrap();
    println!("{:.2} -> {:.2} dB, SSIM {:.3} -> {:.3}", before.psnr, after.psnr, before.ssim, after.ssim);
    assert_eq!((report.steps, after.step, after.views.len()), (400, 400, 2));
    assert_eq!(report.splats, 1000, "the scene has grown to its cap");
    assert!(after.psnr > 25.5 && after.psnr > before.psnr + 5.0, "{:.2} -> {:.2}", before.psnr, after.psnr);
    assert!(after.ssim > 0.87, "{}", after.ssim);
    // What is exported scores the same as what was trained.
    let splats = trainer.splats().unwrap();
    assert!(splats.len() > 500);
    let mut rasteriser = CpuRasteriser::<f32>::new();
    rasteriser.load(&crate::raster::TrainState { splats, ..Default::default() }).unwrap();
    let dataset = Dataset::from_model(&model, folder.path(), Some(5)).unwrap();
    let rendering = rasteriser.render(&dataset.view_at(0, None), 1, [0.0; 3]).unwrap();
    let shown: Vec<[f32; 3]> =
        rendering.rgba.iter().map(|p| [p[0], p[1], p[2]].map(|v| v.clamp(0.0, 1.0))).collect();
    let score = psnr(&shown, &dataset.picture(0, None).unwrap().over([0.0; 3]));
    assert!((score - after.views[0].psnr).abs() < 0.05, "{score} {}", after.views[0].psnr);
}

#[test]
fn an_interrupted_run_ends_bit_for_bit_like_a_straight_one() {
    let folder = tempfile::tempdir().unwrap();
    let model = capture(folder.path(), |i| 1.0 - 0.03 * i as f32, false);
    let options = TrainOptions { exposure_compensation: true, ..options(120) };
    let control = Control::new();
    let mut straight = trainer(&model, folder.path(), &options);
    straight.run(&control, None).unwrap();

    let path = folder.path().join("train.checkpoint");
    let mut first = trainer(&model, folder.path(), &options);
    // Between two rounds of density control, so that gathered statistics have to survive.
    for _ in 0..59 {
        first.step(&control).unwrap();
    }
    first.save(&path).unwrap();
    drop(first);
    let dataset = Dataset::from_model(&model, folder.path(), options.test_every).unwrap();
    let rasteriser = open(&DeviceChoice::Cpu).unwrap();
    let mut second = Trainer::resume(dataset.clone(), options.clone(), rasteriser, &path).unwrap();
    assert_eq!(second.steps_done(), 59);
    second.run(&control, None).unwrap();
    // No `assert_eq!`: it would print them.
    assert!(straight.splats().unwrap() == second.splats().unwrap(), "the scenes differ");
    assert_eq!(straight.evaluate(&control).unwrap(), second.evaluate(&control).unwrap());

    let other = TrainOptions { seed: 9, ..options };
    let rasteriser = open(&DeviceChoice::Cpu).unwrap();
    let refused = Trainer::resume(dataset, other, rasteriser, &path).err().unwrap();
    assert_eq!(refused.kind(), ErrorKind::InvalidArgument);
}

#[test]
fn a_run_with_little_time_is_cut_down_and_goes_on_so() {
    let folder = tempfile::tempdir().unwrap();
    let model = capture(folder.path(), |_| 1.0, false);
    let path = folder.path().join("train.checkpoint");
    let asked = TrainOptions {
        training_max_num_gaussians: 10_000_000,
        time_budget_seconds: Some(2),
        ..options(200_000)
    };
    let mut first = trainer(&model, folder.path(), &asked);
    let cut = first.options().clone();
    assert!((500..200_000).contains(&cut.training_num_steps), "{cut:?}");
    assert!((5000..10_000_000).contains(&cut.training_max_num_gaussians), "{cut:?}");
    assert!(first.warnings().iter().any(|w| w.code == "time_budget"), "{:?}", first.warnings());
    let control = Control::new();
    for _ in 0..3 {
        first.step(&control).unwrap();
    }
    first.save(&path).unwrap();
    drop(first);
    // Whatever the speed is now.
    let dataset = Dataset::from_model(&model, folder.path(), asked.test_every).unwrap();
    let rasteriser = open(&DeviceChoice::Cpu).unwrap();
    let mut second = Trainer::open(dataset, asked, rasteriser, &path, &control).unwrap();
    assert_eq!((second.steps_done(), second.options()), (3, &cut));
    let report = second.run(&control, None).unwrap();
    let left = second.options().clone();
    assert_eq!(report.steps, left.training_num_steps);
    // On the way only the number of steps follows what they take.
    assert_eq!(left, TrainOptions { training_num_steps: left.training_num_steps, ..cut });
    let told: Vec<_> = report.warnings.iter().filter(|w| w.code == "time_budget").collect();
    assert_eq!(told.len(), 1, "{:?}", report.warnings);
    assert!(told[0].message.contains(&format!("{} of 200000 steps", report.steps)), "{told:?}");
    assert_eq!(second.warnings(), report.warnings);
    // Placing the first Gaussians counts, and what was done before the break.
    assert!(report.seconds > f64::from(report.steps) / report.steps_per_second, "{report:?}");
}

#[test]
fn colours_keep_their_degree_when_there_turns_out_to_be_time_for_more_steps() {
    let folder = tempfile::tempdir().unwrap();
    let model = capture(folder.path(), |_| 1.0, false);
    let path = folder.path().join("train.checkpoint");
    let asked = TrainOptions { time_budget_seconds: Some(2_592_000), ..options(200_000) };
    let dataset = Dataset::from_model(&model, folder.path(), asked.test_every).unwrap();
    // 60 steps of a run that was cut down to 500, though there is time for all of them.
    trainer(&model, folder.path(), &options(200_000)).save(&path).unwrap();
    let unlimited = options(200_000).hash().unwrap();
    let mut checkpoint = Checkpoint::read(&path, &unlimited, dataset.hash()).unwrap();
    checkpoint.progress.step = 60;
    checkpoint.progress.plan = Some(budget::Plan { steps: 500, gaussians: 1000, side: None });
    checkpoint.write(&path, &asked.hash().unwrap(), dataset.hash()).unwrap();
    let opened = || {
        let rasteriser = open(&DeviceChoice::Cpu).unwrap();
        Trainer::resume(dataset.clone(), asked.clone(), rasteriser, &path).unwrap()
    };
    let mut trainer = opened();
    assert_eq!(trainer.options().training_num_steps, 500);
    for _ in 0..30 {
        trainer.step(&Control::new()).unwrap();
    }
    assert_eq!(trainer.options().training_num_steps, 200_000, "the plan has grown");
    // It is shown with the colours that it has learnt, and so it is by who goes on.
    let view = dataset.view_at(0, None);
    let shown = trainer.render(&view).unwrap().rgba;
    let splats = trainer.splats().unwrap();
    let mut rasteriser = CpuRasteriser::<f32>::new();
    rasteriser.load(&crate::raster::TrainState { splats, ..Default::default() }).unwrap();
    let mut apart = |degree| {
        let rendering = rasteriser.render(&view, degree, [0.0; 3]).unwrap();
        let pixels = rendering.rgba.iter().zip(&shown);
        pixels
            .flat_map(|(a, b)| [0, 1, 2].map(|c: usize| (a[c].clamp(0.0, 1.0) - b[c]).abs()))
            .fold(0.0, f32::max)
    };
    let (first, constant) = (apart(1), apart(0));
    assert!(first < 1e-5 && constant > 1e-4, "{first} from degree 1, {constant} from degree 0");
    trainer.save(&path).unwrap();
    assert!(opened().render(&view).unwrap().rgba == shown, "who goes on sees something else");
}

#[test]
fn as_many_steps_are_made_as_fit_into_the_time() {
    let folder = tempfile::tempdir().unwrap();
    let mut model = capture(folder.path(), |_| 1.0, false);
    // Large enough for smaller ones to come first; none is read.
    for camera in model.cameras.values_mut() {
        *camera = Camera::from_focal(CameraModel::Pinhole, 600.0, 800, 600);
    }
    let options = TrainOptions { training_max_num_gaussians: 20_000, ..options(10_000) };
    let dataset = Dataset::from_model(&model, folder.path(), options.test_every).unwrap();
    let rasteriser = open(&DeviceChoice::Cpu).unwrap();
    let plan = budget::Plan { steps: 4_000, gaussians: 10_000, side: None };
    let (before, now) =
        (budget::Mark { step: 1_000, seconds: 20.0 }, budget::Mark { step: 1_200, seconds: 30.0 });
    let steps = |seconds| {
        let asked = budget::Asked { options: &options, initial_count: 1_000, seconds };
        budget::steps_in_time(&dataset, &asked, plan, (before, now), rasteriser.as_ref())
    };
    // 20 steps a second, and slower as Gaussians are added.
    let some = steps(100.0);
    assert!((1_600..2_600).contains(&some), "{some}");
    assert!(steps(90.0) < some && some < steps(110.0));
    // All that was asked for and no more; none that is undone; the pictures do not become smaller again.
    assert_eq!(steps(31.0), 1_200);
    // The last pictures began after 1,199 steps at the latest: 15 % of 7,996.
    assert_eq!(steps(1e6), 7_996);
    let late = budget::Mark { step: 3_000, ..now };
    let asked = budget::Asked { options: &options, initial_count: 1_000, seconds: 1e6 };
    assert_eq!(budget::steps_in_time(&dataset, &asked, plan, (before, late), rasteriser.as_ref()), 10_000);
}

#[test]
fn any_number_of_threads_gives_the_same_scene() {
    let folder = tempfile::tempdir().unwrap();
    let model = capture(folder.path(), |_| 1.0, false);
    let with_threads = |threads| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        pool.install(|| {
            let mut trainer = trainer(&model, folder.path(), &options(40));
            trainer.run(&Control::new(), None).unwrap();
            trainer.splats().unwrap()
        })
    };
    assert!(with_threads(1) == with_threads(3), "the scenes differ");
}

/// The ball with `count` Gaussians in the free space before it: small ones that several views see, some faint as haze.
fn with_floaters(count: usize) -> Splats {
    let mut splats = scene();
    let mut random = Random::new(8);
    for i in 0..count {
        // Between the ball and the first four cameras, all of which see the ball behind them.
        let angle = 0.25 + 0.1 * random.uniform();
        let distance = 1.3 + 0.1 * random.uniform();
        let place = DVec3::new(angle.sin(), 0.2 * (random.uniform() - 0.5), -angle.cos()) * distance;
        splats.means.push(place.as_vec3());
        splats.log_scales.push(Vec3::splat(-3.5));
        splats.rotations.push(vec4(1.0, 0.0, 0.0, 0.0));
        splats.opacities.push(if i % 2 == 0 { -2.0 } else { -1.0 });
        splats.sh.extend([1.0, -1.0, 0.5]);
    }
    splats
}

#[test]
fn planted_floaters_are_found_and_surfaces_are_not() {
    let folder = tempfile::tempdir().unwrap();
    let model = capture(folder.path(), |_| 1.0, false);
    let mut dataset = Dataset::from_model(&model, folder.path(), None).unwrap();
    dataset.train = vec![0, 1, 2, 3];
    let (surface, splats) = (scene().len(), with_floaters(40));
    let found = |threads| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        pool.install(|| clean::floaters(&splats, &dataset, (None, 0), &Control::new()).unwrap())
    };
    let floaters = found(1);
    assert_eq!(floaters, found(2));
    let planted = floaters.iter().filter(|&&i| i >= surface).count();
    assert!(planted >= 38, "{planted} of 40 were found");
    // Whatever is said of those on the far side: no view sees them.
    let towards = dataset.views[1].view.centre().normalize();
    let is_seen = |i: usize| Vector3::from(splats.means[i].as_dvec3().to_array()).dot(&towards) > 0.5;
    let seen = (0..surface).filter(|&i| is_seen(i)).count();
    let wrong = floaters.iter().filter(|&&i| i < surface && is_seen(i)).count();
    println!("{planted} of 40 were found, {wrong} of {seen} on the surface were taken for floaters");
    assert!(seen > 60 && wrong <= seen / 20, "{wrong} of {seen} on the surface were taken for floaters");
    let cancelled = CancelToken::new();
    cancelled.cancel();
    let control = Control::new().with_cancel(cancelled);
    let stopped = clean::floaters(&splats, &dataset, (None, 0), &control).unwrap_err();
    assert_eq!(stopped.kind(), ErrorKind::Cancelled);
}

#[test]
fn what_is_for_one_picture_alone_is_found() {
    let folder = tempfile::tempdir().unwrap();
    // The first picture is brighter than the others.
    let model = capture(folder.path(), |i| if i == 0 { 1.4 } else { 1.0 }, false);
    let mut dataset = Dataset::from_model(&model, folder.path(), None).unwrap();
    let first = dataset.views[0].view.centre();
    // Just above the surface where the first camera looks at it: only to it, it is a bright spot in place.
    let mut splats = scene();
    let spot = (first.normalize() * 1.06).map(|v| v as f32);
    splats.means.push(Vec3::from_array(spot.into()));
    splats.log_scales.push(Vec3::splat(-2.5));
    splats.rotations.push(vec4(1.0, 0.0, 0.0, 0.0));
    splats.opacities.push(-1.0);
    splats.sh.extend([2.0; 3]);
    dataset.train = vec![0, 1, 2];
    let floaters = clean::floaters(&splats, &dataset, (None, 0), &Control::new()).unwrap();
    assert!(floaters.contains(&scene().len()), "{floaters:?}");
}

#[test]
fn only_who_wants_it_has_the_scene_cleaned() {
    let folder = tempfile::tempdir().unwrap();
    let model = capture(folder.path(), |_| 1.0, false);
    let cleaned = |clean| {
        let options = TrainOptions { clean, ..options(200) };
        let mut trainer = trainer(&model, folder.path(), &options);
        let path = folder.path().join("train.checkpoint");
        let report = trainer.run(&Control::new(), Some(&path)).unwrap();
        // The count goes through the checkpoint.
        let dataset = Dataset::from_model(&model, folder.path(), options.test_every).unwrap();
        let rasteriser = open(&DeviceChoice::Cpu).unwrap();
        let again = Trainer::resume(dataset, options, rasteriser, &path).unwrap().run(&Control::new(), None);
        assert_eq!(again.unwrap().cleaned, report.cleaned);
        (report.cleaned, report.splats)
    };
    assert_eq!(cleaned(false), (0, 1000));
    let (count, left) = cleaned(true);
    assert!(count > 0 && count < 1000 && left == 1000, "{count} of {left}");
}

#[test]
fn a_checkpoint_that_is_not_used_is_told_of_and_one_that_cannot_be_read_is_kept() {
    let folder = tempfile::tempdir().unwrap();
    let model = capture(folder.path(), |_| 1.0, false);
    let path = folder.path().join("train.checkpoint");
    let options = options(30);
    let opened = |options: &TrainOptions, path: &Path| {
        let dataset = Dataset::from_model(&model, folder.path(), options.test_every).unwrap();
        Trainer::open(dataset, options.clone(), open(&DeviceChoice::Cpu).unwrap(), path, &Control::new())
    };
    let told = |options: &TrainOptions| {
        let trainer = opened(options, &path).unwrap();
        let warning = trainer.warnings().iter().find(|w| w.code == "checkpoint_not_used");
        (trainer.steps_done(), warning.map(|w| w.message.clone()))
    };
    assert_eq!(told(&options), (0, None), "there is none");
    let mut first = trainer(&model, folder.path(), &options);
    for _ in 0..3 {
        first.step(&Control::new()).unwrap();
    }
    first.save(&path).unwrap();
    assert_eq!(told(&options), (3, None));
    let (done, foreign) = told(&TrainOptions { seed: 9, ..options.clone() });
    let foreign = foreign.unwrap();
    assert!(
        done == 0 && foreign.contains("train.checkpoint was written for other training options"),
        "{foreign}"
    );
    assert!(!foreign.contains(&folder.path().display().to_string()), "{foreign}");
    let good = std::fs::read(&path).unwrap();
    std::fs::write(&path, &good[..good.len() - 4]).unwrap();
    let (done, damaged) = told(&options);
    assert!(done == 0 && damaged.as_ref().is_some_and(|why| why.contains("another size")), "{damaged:?}");
    // What the disk has against it says nothing about the file.
    #[cfg(unix)]
    {
        let error = opened(&options, &path.join("below a file")).err().unwrap();
        assert_eq!(error.kind(), ErrorKind::Io, "{error}");
    }
}

#[test]
fn a_file_that_is_no_checkpoint_is_not_written_over() {
    let folder = tempfile::tempdir().unwrap();
    let model = capture(folder.path(), |_| 1.0, false);
    let path = folder.path().join("kitchen.ply");
    let options = TrainOptions { dense_initialisation: false, ..options(3) };
    let opened = |in_workspace: bool| {
        let dataset = Dataset::from_model(&model, folder.path(), options.test_every).unwrap();
        let (rasteriser, control) = (open(&DeviceChoice::Cpu).unwrap(), Control::new());
        match in_workspace {
            true => Trainer::open_in_workspace(dataset, options.clone(), rasteriser, &path, &control),
            false => Trainer::open(dataset, options.clone(), rasteriser, &path, &control),
        }
    };
    let is_told = |trainer: Trainer| trainer.warnings().iter().any(|w| w.code == "checkpoint_not_used");
    // Of any length.
    for text in ["ply\nformat binary_little_endian 1.0\nelement vertex 100000\nproperty float x\n", "note"] {
        std::fs::write(&path, text).unwrap();
        let error = opened(false).err().unwrap();
        assert_eq!(error.kind(), ErrorKind::InvalidFile, "{error}");
        assert!(error.message().contains("kitchen.ply: it is no checkpoint"), "{error}");
        assert!(error.hint_text().is_some_and(|hint| hint.contains("stays as it is")), "{error}");
        assert_eq!(std::fs::read_to_string(&path).unwrap(), text);
        // In a folder of our own it can only be what is left of one.
        assert!(is_told(opened(true).unwrap()));
    }
    // So it is wherever it begins like one, and where nothing is lost with it.
    trainer(&model, folder.path(), &options).save(&path).unwrap();
    let whole = std::fs::read(&path).unwrap();
    for length in [0, 5, 20, whole.len() / 2] {
        std::fs::write(&path, &whole[..length]).unwrap();
        assert!(is_told(opened(false).unwrap()), "{length} bytes of one");
    }
}

#[test]
fn who_goes_on_after_the_end_is_told_what_the_last_step_found_out() {
    let folder = tempfile::tempdir().unwrap();
    let model = capture(folder.path(), |_| 1.0, false);
    let path = folder.path().join("train.checkpoint");
    let (options, control) = (options(40), Control::new());
    let mut first = trainer(&model, folder.path(), &options);
    assert!(!first.has_compared());
    first.save(&path).unwrap();
    let dataset = Dataset::from_model(&model, folder.path(), options.test_every).unwrap();
    let resumed = || {
        let rasteriser = open(&DeviceChoice::Cpu).unwrap();
        Trainer::resume(dataset.clone(), options.clone(), rasteriser, &path).unwrap()
    };
    assert!(!resumed().has_compared(), "nothing was compared before the first step");
    let whole = first.run(&control, Some(&path)).unwrap().statistics;
    let mut second = resumed();
    assert!(second.has_compared());
    // Pictures that are shown meanwhile have no part in it.
    second.render(&dataset.view_at(0, Some(20))).unwrap();
    second.save(&path).unwrap();
    for again in [second.run(&control, None), resumed().run(&control, None)] {
        let again = again.unwrap().statistics;
        assert!(again.loss > 0.0 && (again.loss - whole.loss).abs() < 1e-12, "{again:?}, not {whole:?}");
        assert_eq!((again.visible, again.intersections), (whole.visible, whole.intersections));
    }
}

#[test]
fn a_run_tells_the_seconds_that_are_left() {
    let folder = tempfile::tempdir().unwrap();
    let model = capture(folder.path(), |_| 1.0, false);
    // As long as it takes until the next step is told of, too.
    let (control, told) = told_slowly(Duration::from_millis(600));
    trainer(&model, folder.path(), &options(4)).run(&control, None).unwrap();
    assert_seconds_were_told(&told);
    assert_eq!(told.lock().unwrap().len(), 4);
}

#[test]
fn a_cancelled_run_leaves_a_checkpoint() {
    let folder = tempfile::tempdir().unwrap();
    let model = capture(folder.path(), |_| 1.0, false);
    let path = folder.path().join("train.checkpoint");
    let token = CancelToken::new();
    let cancel = token.clone();
    // The first report of progress comes within the run: it cancels it.
    let control = Control::new().with_cancel(token).with_listener(move |event| {
        if matches!(event, Event::Progress { .. }) {
            cancel.cancel();
        }
    });
    let options = options(200_000);
    let mut trainer = trainer(&model, folder.path(), &options);
    assert_eq!(trainer.run(&control, Some(&path)).unwrap_err().kind(), ErrorKind::Cancelled);
    let dataset = Dataset::from_model(&model, folder.path(), options.test_every).unwrap();
    let resumed = Trainer::resume(dataset, options, open(&DeviceChoice::Cpu).unwrap(), &path).unwrap();
    assert!(resumed.steps_done() > 0 && resumed.steps_done() == trainer.steps_done());
}

/// Whether the steps are made by `run` or one by one.
#[test]
fn who_trains_for_hours_is_told_once_the_speed_is_known() {
    let folder = tempfile::tempdir().unwrap();
    let model = capture(folder.path(), |_| 1.0, false);
    for one_by_one in [true, false] {
        let told = Arc::new(Mutex::new(0));
        let (token, heard) = (CancelToken::new(), told.clone());
        let cancel = token.clone();
        let control = Control::new().with_cancel(token).with_listener(move |event| {
            if matches!(event, Event::Warning { .. }) {
                *heard.lock().unwrap() += 1;
                cancel.cancel();
            }
        });
        let mut trainer = trainer(&model, folder.path(), &options(200_000));
        trainer.step(&control).unwrap();
        assert_eq!(*told.lock().unwrap(), 0, "nothing is known yet");
        // A machine on which a step takes most of a minute.
        trainer.seconds += 40.0;
        if one_by_one {
            trainer.step(&control).unwrap();
        } else {
            assert_eq!(trainer.run(&control, None).unwrap_err().kind(), ErrorKind::Cancelled);
        }
        assert_eq!(*told.lock().unwrap(), 1);
        let warnings: Vec<_> = trainer.warnings().iter().filter(|w| w.code == "long_training").collect();
        assert_eq!(warnings.len(), 1, "{warnings:?}");
    }
}

#[test]
fn a_cancel_while_floaters_are_sought_owes_the_round_to_who_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    let model = capture(folder.path(), |_| 1.0, false);
    let path = folder.path().join("train.checkpoint");
    let cancelled = Control::new();
    cancelled.cancel_token().cancel();
    // As they are sought in the middle of a run, and after its last step.
    let late = Tuning { refine_end: 1.0, ..options(25).tuning };
    for (at, options) in [(100, options(200)), (25, TrainOptions { tuning: late, ..options(25) })] {
        let mut straight = trainer(&model, folder.path(), &options);
        let whole = straight.run(&Control::new(), None).unwrap();
        let mut first = trainer(&model, folder.path(), &options);
        for _ in 1..at {
            first.step(&Control::new()).unwrap();
        }
        assert_eq!(first.step(&cancelled).unwrap_err().kind(), ErrorKind::Cancelled);
        assert!(first.steps_done() == at && !first.is_finished());
        first.save(&path).unwrap();
        drop(first);
        let dataset = Dataset::from_model(&model, folder.path(), options.test_every).unwrap();
        let mut second = Trainer::resume(dataset, options, open(&DeviceChoice::Cpu).unwrap(), &path).unwrap();
        assert_eq!(second.steps_done(), at);
        let rest = second.run(&Control::new(), None).unwrap();
        assert_eq!((rest.steps, rest.cleaned), (whole.steps, whole.cleaned));
        // No `assert_eq!`: it would print them.
        assert!(straight.splats().unwrap() == second.splats().unwrap(), "the scenes differ");
    }
}

#[test]
fn a_run_whose_held_out_views_do_not_show_the_object_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let model = capture(folder.path(), |_| 1.0, false);
    let masks = folder.path().join("masks");
    std::fs::create_dir(&masks).unwrap();
    for taken in model.images.values() {
        let value = if taken.name == "00.png" { 0 } else { 255 };
        let mask = image::GrayImage::from_pixel(SIZE.0, SIZE.1, image::Luma([value]));
        mask.save(masks.join(&taken.name)).unwrap();
    }
    let warned = |test_every, masked: bool| {
        let options = TrainOptions { test_every, ..options(1) };
        let mut dataset = Dataset::from_model(&model, folder.path(), test_every).unwrap();
        if masked {
            dataset = dataset.with_masks(&masks, &Control::new()).unwrap();
        }
        let rasteriser = open(&DeviceChoice::Cpu).unwrap();
        let mut trainer = Trainer::new(dataset, options, rasteriser, &Control::new()).unwrap();
        let report = trainer.run(&Control::new(), None).unwrap();
        report.warnings.iter().any(|w| w.code == "no_held_out_view")
    };
    // Of ten views only the first is held out, unless every fifth is.
    assert!(warned(Some(100), true));
    assert!(!warned(Some(5), true) && !warned(Some(100), false) && !warned(None, true));
}

#[test]
fn a_checkpoint_that_cannot_be_written_stops_the_run() {
    let folder = tempfile::tempdir().unwrap();
    let model = capture(folder.path(), |_| 1.0, false);
    let path = folder.path().join("no such folder").join("train.checkpoint");
    // The first is written aside after a second; that it was not is known when the second is due.
    let options = TrainOptions { checkpoint_interval_seconds: 1, ..options(200_000) };
    let mut trainer = trainer(&model, folder.path(), &options);
    let error = trainer.run(&Control::new(), Some(&path)).unwrap_err();
    assert!(error.to_string().contains("write the checkpoint"), "{error}");
    assert!(!trainer.is_finished());
}

/// Asserts that pictures of changing exposure make a better scene where it is compensated for. `alpha`: whether they know what belongs to
/// the scene, which is less than half of every picture.
fn check_exposure(alpha: bool) {
    let folder = tempfile::tempdir().unwrap();
    // The held-out views 0 and 5 are in the mean exposure, the others alternate around it.
    let gain = |i: u32| if i.is_multiple_of(5) { 0.8 } else { [0.65, 0.95][(i % 2) as usize] };
    let model = capture(folder.path(), gain, alpha);
    let score = |exposure_compensation| {
        let options = TrainOptions { exposure_compensation, ..options(400) };
        let mut trainer = trainer(&model, folder.path(), &options);
        trainer.run(&Control::new(), None).unwrap();
        trainer.evaluate(&Control::new()).unwrap().psnr
    };
    let (with, without) = (score(true), score(false));
    println!("with {with:.2} dB, without {without:.2} dB");
    assert!(with > without + 1.0, "with {with:.2} dB, without {without:.2} dB");
}

#[test]
fn changing_exposure_is_told_from_the_scene() {
    check_exposure(false);
}

#[test]
fn changing_exposure_is_told_from_the_scene_where_pictures_know_what_belongs_to_it() {
    check_exposure(true);
}

#[test]
fn what_does_not_belong_to_the_scene_stays_empty() {
    let folder = tempfile::tempdir().unwrap();
    let model = capture(folder.path(), |_| 1.0, true);
    let mut trainer = trainer(&model, folder.path(), &options(300));
    trainer.run(&Control::new(), None).unwrap();
    let splats = trainer.splats().unwrap();
    let mut rasteriser = CpuRasteriser::<f32>::new();
    rasteriser.load(&crate::raster::TrainState { splats, ..Default::default() }).unwrap();
    let dataset = Dataset::from_model(&model, folder.path(), Some(5)).unwrap();
    let rendering = rasteriser.render(&dataset.view_at(0, None), 1, [0.0; 3]).unwrap();
    let truth = dataset.picture(0, None).unwrap();
    let (mut outside, mut empty) = (0, 0.0f32);
    for (p, t) in rendering.rgba.iter().zip(truth.data.chunks_exact(4)) {
        if t[3] == 0.0 {
            outside += 1;
            empty += p[3];
        }
    }
    assert!(outside > 300);
    assert!(empty / (outside as f32) < 0.05, "mean alpha {} outside", empty / outside as f32);
}
