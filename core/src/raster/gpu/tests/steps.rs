//! Many steps: bits that do not depend on the room there is, agreement with the CPU, edits, checkpoints.

use super::rasteriser;
use crate::error::ErrorKind;
use crate::random::Random;
use crate::raster::cpu::CpuRasteriser;
use crate::raster::gpu::GpuRasteriser;
use crate::raster::gpu::device::Gpu;
use crate::raster::gpu::gradient_buffers::SlotBuffer;
use crate::raster::gpu::scene::{Page, SceneBuffers};
use crate::raster::parity::{self, Case};
use crate::raster::{
    DeviceChoice, Inspect, Rasteriser, SplatEdit, StepOptions, TrainState, View, load_for_viewing,
};
use crate::splats::Splats;

/// A view of the same cloud from nearer or farther: more or fewer pairs.
fn nearer(case: &Case, depth: f64) -> View {
    let mut view = case.view;
    view.translation[2] = depth;
    view
}

/// A scene whose target is a rendering of it before it was disturbed: it can be learned.
fn learnable(count: usize) -> Case {
    let mut case = parity::cloud(50, count, 1, 64, 48);
    let mut r = CpuRasteriser::<f64>::new();
    r.load(&case.state).unwrap();
    let picture = r.render(&case.view, 1, case.background).unwrap();
    case.target.rgb =
        picture.rgba.iter().flat_map(|p| [0, 1, 2].map(|c: usize| (p[c] * 255.0).round() as u8)).collect();
    let mut random = Random::new(51);
    for coefficient in &mut case.state.splats.sh {
        *coefficient += (0.3 * random.normal()) as f32;
    }
    for opacity in &mut case.state.splats.opacities {
        *opacity += random.normal() as f32;
    }
    case.state.exposures = vec![[1.0, 0.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 0.0, 1.0, 0.0]];
    case.loss.exposure = Some(0);
    case.step.noise = 5e4;
    case.step.lr_sh_dc = 0.02;
    case
}

/// The passes of a step up to its loss.
fn measure(r: &mut dyn Rasteriser, case: &Case, view: &View) {
    r.project(view, case.sh_degree).unwrap();
    r.intersect().unwrap();
    r.sort().unwrap();
    r.rasterise(case.background).unwrap();
    r.loss(0, &case.loss).unwrap();
}

/// Steps `from..=to` of training; returns the losses if they are asked for (asking waits for the device).
fn train(
    r: &mut dyn Rasteriser,
    case: &Case,
    steps: std::ops::RangeInclusive<u32>,
    views: &[View],
    ask: bool,
) -> Vec<f64> {
    let mut losses = Vec::new();
    for step in steps {
        measure(r, case, &views[step as usize % views.len()]);
        r.rasterise_backward().unwrap();
        r.update(&StepOptions { step, ..case.step }).unwrap();
        if ask {
            losses.push(r.statistics().unwrap().loss);
        }
    }
    losses
}

fn start(r: &mut dyn Rasteriser, case: &Case) {
    r.load(&case.state).unwrap();
    r.set_targets(vec![case.target.clone()]).unwrap();
}

#[test]
fn training_lowers_the_loss_as_on_the_cpu() {
    let case = learnable(400);
    let Some(mut gpu) = rasteriser(1 << 14) else { return };
    let mut cpu = CpuRasteriser::<f64>::new();
    start(&mut gpu, &case);
    start(&mut cpu, &case);
    let on_gpu = train(&mut gpu, &case, 1..=20, &[case.view], true);
    let on_cpu = train(&mut cpu, &case, 1..=20, &[case.view], true);
    let worst = on_gpu.iter().zip(&on_cpu).map(|(g, c)| (g - c).abs() / c).fold(0.0, f64::max);
    println!(
        "loss {:.5} -> {:.5} (CPU, f64: {:.5}); largest relative difference {worst:.1e}",
        on_gpu[0], on_gpu[19], on_cpu[19]
    );
    assert!(on_gpu[19] < 0.7 * on_gpu[0]);
    assert!(worst < 1e-3);
    let (a, b) = (gpu.statistics().unwrap(), cpu.statistics().unwrap());
    assert_eq!((a.visible, a.intersections), (b.visible, b.intersections));
    let render = |r: &mut dyn Rasteriser| r.render(&case.view, 1, case.background).unwrap().rgba;
    let (a, b) = (render(&mut gpu), render(&mut cpu));
    let apart = a.iter().flatten().zip(b.iter().flatten()).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
    println!("largest difference of a rendered value after 20 steps {apart:.1e}");
    assert!(apart < 0.02);
}

#[test]
fn a_loss_outlives_the_pictures_that_are_rendered_after_it() {
    let case = learnable(400);
    let small = case.view.scaled(Some(24));
    // With ample room, and with none, so that all is run again.
    for room in [1 << 14, 1] {
        let Some(mut gpu) = rasteriser(room) else { return };
        let mut cpu = CpuRasteriser::<f32>::new();
        for r in [&mut gpu as &mut dyn Rasteriser, &mut cpu] {
            start(r, &case);
            let losses = train(r, &case, 1..=3, &[case.view], true);
            r.render(&small, 1, case.background).unwrap();
            assert_eq!(r.statistics().unwrap().loss, losses[2], "{}", r.name());
            assert!(losses[2] > 0.0);
            // And of a step that went no further.
            measure(r, &case, &case.view);
            r.render(&small, 1, case.background).unwrap();
            let after = r.statistics().unwrap().loss;
            measure(r, &case, &case.view);
            assert_eq!(r.statistics().unwrap().loss, after, "{}", r.name());
        }
    }
}

#[test]
fn neither_the_room_nor_the_run_changes_a_bit() {
    let case = learnable(500);
    let views = [case.view, nearer(&case, 12.0), nearer(&case, 3.0), nearer(&case, 30.0)];
    let mut outcome: Option<TrainState> = None;
    // Ample; ample again; none at all: the first step is run again; enough for the far views only.
    for room in [1 << 16, 1 << 16, 1, 1000] {
        let Some(mut r) = rasteriser(room) else { return };
        start(&mut r, &case);
        train(&mut r, &case, 1..=5, &views, false);
        r.edit(&[edit(500, 3), edit(7, 3), edit(501, 500 - 1)]).unwrap();
        train(&mut r, &case, 6..=9, &views, false);
        let intersections = r.statistics().unwrap().intersections;
        println!("room for {room}: now for {}, last step needed {intersections}", r.work.intersections.room);
        let state = r.store().unwrap();
        match &outcome {
            None => outcome = Some(state),
            Some(expected) => assert!(state == *expected, "room for {room}"),
        }
    }
}

#[test]
fn pictures_take_each_others_place_where_memory_is_short_and_change_no_bit() {
    let case = learnable(300);
    let darker = |by: u8| {
        let mut target = case.target.clone();
        target.rgb.iter_mut().for_each(|v| *v = v.saturating_sub(by));
        target
    };
    let mut outcome: Option<TrainState> = None;
    for (memory, stay) in [(None, 3), (Some(0), 1)] {
        let Ok(mut gpu) = Gpu::open(&DeviceChoice::Gpu) else { return };
        gpu.memory = memory;
        let mut r = GpuRasteriser::on(gpu, 1 << 14).unwrap();
        r.load(&case.state).unwrap();
        r.set_targets(vec![darker(0), darker(40), darker(90)]).unwrap();
        for step in 1..=7 {
            r.project(&case.view, case.sh_degree).unwrap();
            r.intersect().unwrap();
            r.sort().unwrap();
            r.rasterise(case.background).unwrap();
            r.loss(step % 3, &case.loss).unwrap();
            r.rasterise_backward().unwrap();
            r.update(&StepOptions { step, ..case.step }).unwrap();
        }
        let state = r.store().unwrap();
        assert_eq!(r.targets.resident(), stay);
        match &outcome {
            None => outcome = Some(state),
            Some(expected) => assert!(state == *expected),
        }
    }
}

#[test]
fn who_only_renders_needs_no_room_for_gradients() {
    let mut case = parity::cloud(50, 500, 0, 64, 48);
    // Most splats are across all tiles: their gradients are the largest of all buffers.
    case.state.splats.log_scales.iter_mut().for_each(|s| *s += 2.5);
    let Some(mut ample) = rasteriser(1 << 16) else { return };
    start(&mut ample, &case);
    let picture = ample.render(&case.view, 0, case.background).unwrap();
    let needed = ample.statistics().unwrap().intersections;
    println!("{needed} pairs");
    assert!(needed > 64 * 48, "{needed} pairs need less than the pixels");
    assert!(ample.work.slots.room == 0 && ample.work.loss.derivatives.size() < 64);

    // A device that can bind what the pairs need, but not their gradients.
    let mut gpu = Gpu::open(&DeviceChoice::Gpu).unwrap();
    gpu.max_binding = 36 * needed;
    let mut narrow = GpuRasteriser::on(gpu, 1).unwrap();
    start(&mut narrow, &case);
    assert!(narrow.render(&case.view, 0, case.background).unwrap() == picture);
    narrow.loss(0, &case.loss).unwrap();
    let error = narrow.statistics().unwrap_err();
    println!("{error}");
    assert_eq!(error.kind(), ErrorKind::Gpu);
    assert!(error.message().contains(&format!("the view has {needed} pairs")), "{error}");

    // And one that can bind them too, but not for all the room that there was for rendering.
    let mut gpu = Gpu::open(&DeviceChoice::Gpu).unwrap();
    gpu.max_binding = 64 * needed;
    let mut roomy = GpuRasteriser::on(gpu, 7 * needed as u32).unwrap();
    for r in [&mut ample, &mut roomy] {
        start(r, &case);
        assert!(r.render(&case.view, 0, case.background).unwrap() == picture);
        // Of the picture that is there.
        r.loss(0, &case.loss).unwrap();
        r.rasterise_backward().unwrap();
        r.update(&StepOptions { step: 1, ..case.step }).unwrap();
        train(r, &case, 2..=4, &[case.view], false);
    }
    assert!(ample.store().unwrap() == roomy.store().unwrap());
    let limit = SlotBuffer::limit(&roomy.gpu);
    assert!(roomy.work.intersections.room <= limit && u64::from(roomy.work.slots.room) >= needed);
}

#[test]
fn what_is_read_in_the_middle_of_a_step_does_not_depend_on_the_room() {
    let case = learnable(500);
    let (Some(mut ample), Some(mut scant)) = (rasteriser(1 << 16), rasteriser(1)) else { return };
    for r in [&mut ample, &mut scant] {
        start(r, &case);
        train(r, &case, 1..=2, &[case.view], false);
        r.project(&case.view, 1).unwrap();
        r.intersect().unwrap();
        r.sort().unwrap();
    }
    assert_eq!(ample.inspect_intersections().unwrap(), scant.inspect_intersections().unwrap());
    for r in [&mut ample, &mut scant] {
        r.rasterise(case.background).unwrap();
        r.loss(0, &case.loss).unwrap();
        r.rasterise_backward().unwrap();
    }
    assert_eq!(ample.rendering().unwrap(), scant.rendering().unwrap());
    assert_eq!(ample.inspect_gradient().unwrap(), scant.inspect_gradient().unwrap());
    // A pass out of turn, and arguments that make no sense.
    assert_eq!(
        ample.update(&StepOptions { step: 0, ..case.step }).unwrap_err().kind(),
        ErrorKind::InvalidArgument
    );
    ample.update(&case.step).unwrap();
    assert_eq!(ample.update(&case.step).unwrap_err().kind(), ErrorKind::Internal);
    assert_eq!(ample.rasterise([0.0; 3]).unwrap_err().kind(), ErrorKind::Internal);
    assert_eq!(ample.project(&case.view, 2).unwrap_err().kind(), ErrorKind::InvalidArgument);
    let mut view = case.view;
    view.fx = f64::NAN;
    assert_eq!(ample.project(&view, 1).unwrap_err().kind(), ErrorKind::InvalidArgument);
}

fn edit(destination: u32, source: u32) -> SplatEdit {
    SplatEdit { destination, source, shift: 0.0, log_scale_offset: -0.3, opacity: -1.5 }
}

/// Every number different.
fn full_state(count: usize, sh_degree: u32) -> TrainState {
    let mut random = Random::new(9);
    let mut state = TrainState {
        splats: parity::splats(1, count, sh_degree, 1.0, -2.0),
        first_moments: parity::splats(2, count, sh_degree, 1.0, -2.0),
        second_moments: parity::splats(3, count, sh_degree, 1.0, -2.0),
        exposures: vec![[0.0; 12]; 3],
        exposure_first_moments: vec![[0.0; 12]; 3],
        exposure_second_moments: vec![[0.0; 12]; 3],
        ..TrainState::default()
    };
    let TrainState { exposures, exposure_first_moments, exposure_second_moments, .. } = &mut state;
    for value in [exposures, exposure_first_moments, exposure_second_moments].into_iter().flatten().flatten()
    {
        *value = random.normal() as f32;
    }
    state.statistics.gradient = (0..count).map(|_| random.uniform() as f32).collect();
    state.statistics.error = (0..count).map(|_| random.uniform() as f32).collect();
    state.statistics.radius = (0..count).map(|_| random.uniform() as f32).collect();
    state.statistics.visible = (0..count).map(|_| random.below(1000) as u32).collect();
    state
}

#[test]
fn a_scene_that_was_loaded_is_on_the_device_once() {
    let Some(mut r) = rasteriser(256) else { return };
    let allocated = |r: &GpuRasteriser| {
        r.gpu.device.generate_allocator_report().map(|report| report.total_allocated_bytes)
    };
    // Not every driver is asked through an allocator that knows.
    let Some(before) = allocated(&r) else { return };
    let state = full_state(100_000, 0);
    let scene = SceneBuffers::load(&r.gpu, &mut r.recorder, &state).unwrap();
    let taken = allocated(&r).unwrap().saturating_sub(before);
    let pages = scene.pages.iter().map(|p| p.parameters.size() + p.moments.size() + p.statistics.size());
    let buffers: u64 = pages.sum();
    println!("{taken} bytes for buffers of {buffers}");
    assert!(taken < buffers + buffers / 4, "{taken} bytes for buffers of {buffers}");
}

#[test]
fn a_scene_that_is_only_looked_at_has_no_moments_and_is_trained_as_any() {
    let (Some(mut seen), Some(mut given)) = (rasteriser(1 << 16), rasteriser(1 << 16)) else { return };
    let case = parity::cloud(50, 512, 3, 64, 48);
    let bytes_a_splat = |r: &GpuRasteriser| r.scene.pages.iter().map(Page::bytes).sum::<u64>() / 512;
    load_for_viewing(&mut seen, &case.state.splats).unwrap();
    let picture = seen.render(&case.view, 3, case.background).unwrap();
    // What is read of it is zero, and reading it makes nothing.
    let state = seen.store().unwrap();
    assert!(state.splats == case.state.splats);
    for moments in [&state.first_moments, &state.second_moments] {
        assert_eq!((moments.len(), moments.sh.len()), (512, state.splats.sh.len()));
        assert!(moments.sh.iter().chain(&moments.opacities).all(|&v| v == 0.0));
    }
    assert!(state.statistics.visible == [0; 512] && state.statistics.error == [0.0; 512]);
    let scores = seen.density_scores().unwrap();
    assert!(scores.opacities == state.splats.opacities && scores.error == state.statistics.error);
    seen.reset_density_statistics().unwrap();
    assert!(bytes_a_splat(&seen) < 300, "{} bytes a splat", bytes_a_splat(&seen));

    // Zeros that were given are there; training makes the same of them, and of those that are made for it.
    for edits in [&[][..], &[edit(512, 3)][..]] {
        load_for_viewing(&mut seen, &case.state.splats).unwrap();
        given.load(&state).unwrap();
        assert!(bytes_a_splat(&given) > 700 && bytes_a_splat(&seen) < 300);
        assert!(given.store().unwrap() == state);
        for r in [&mut seen, &mut given] {
            r.set_targets(vec![case.target.clone()]).unwrap();
            assert!(r.render(&case.view, 3, case.background).unwrap() == picture);
            if !edits.is_empty() {
                r.edit(edits).unwrap();
            }
            train(r, &case, 1..=3, &[case.view], false);
        }
        let trained = seen.store().unwrap();
        assert!(trained.first_moments.sh.iter().any(|&v| v != 0.0));
        assert!(trained == given.store().unwrap());
    }
}

#[test]
fn a_state_survives_bit_for_bit_and_edits_are_those_of_the_cpu() {
    let Some(mut gpu) = rasteriser(256) else { return };
    let mut cpu = CpuRasteriser::<f32>::new();
    for (count, sh_degree) in [(0, 0), (1, 3), (256, 0), (700, 2)] {
        let state = full_state(count, sh_degree);
        gpu.load(&state).unwrap();
        let stored = gpu.store().unwrap();
        assert!(stored == state, "{count} splats of degree {sh_degree}");
        if count < 700 {
            continue;
        }
        cpu.load(&state).unwrap();
        // In place, chained, past the end in any order, and more than the page has room for.
        let mut edits = vec![edit(5, 6), edit(6, 7), edit(701, 5), edit(700, 699), edit(0, 0)];
        edits.extend((702..1500).map(|i| edit(i, i % 700)));
        gpu.edit(&edits).unwrap();
        cpu.edit(&edits).unwrap();
        assert_eq!(gpu.len(), 1500);
        let (a, b) = (gpu.store().unwrap(), cpu.store().unwrap());
        assert!(a.splats == b.splats);
        assert!(a == b);
        // Halves, on every axis. The device computes in single precision.
        let halves: Vec<SplatEdit> = (0..700)
            .map(|i| SplatEdit { shift: if i % 2 == 0 { 0.5 } else { -0.3 }, ..edit(i, i) })
            .collect();
        gpu.edit(&halves).unwrap();
        cpu.edit(&halves).unwrap();
        let (a, b) = (gpu.splats().unwrap(), cpu.splats().unwrap());
        for i in 0..a.len() {
            let size = b.log_scales[i].max_element().exp() + b.means[i].length();
            assert!((a.means[i] - b.means[i]).length() < 1e-5 * size, "{i}");
            assert!((a.log_scales[i] - b.log_scales[i]).length() < 1e-5, "{i}");
        }
        assert!((a.rotations == b.rotations) && (a.opacities == b.opacities) && (a.sh == b.sh));
        for wrong in [vec![edit(2, 1), edit(2, 3)], vec![edit(1501, 0)], vec![edit(0, 1500)]] {
            assert_eq!(gpu.edit(&wrong).unwrap_err().kind(), ErrorKind::InvalidArgument);
        }
        gpu.reset_density_statistics().unwrap();
        assert!(gpu.store().unwrap().statistics.visible.iter().all(|&v| v == 0));
        let mut torn = state.clone();
        torn.first_moments = Splats { sh_degree: 1, ..Splats::default() };
        torn.statistics.error.pop();
        assert_eq!(gpu.load(&torn).unwrap_err().kind(), ErrorKind::InvalidFile);
    }
}
