//! The whole chain, pass by pass, against the CPU implementation in double precision.

use glam::{Vec3, Vec4, dvec3};

use super::{portable_rasteriser, rasteriser};
use crate::error::ErrorKind;
use crate::raster::cpu::CpuRasteriser;
use crate::raster::gpu::GpuRasteriser;
use crate::raster::gpu::kernels::PAGE;
use crate::raster::parity::{Case, cases, cloud, compare, filtered_splat};
use crate::raster::{Rasteriser, TrainState};
use crate::splats::IDENTITY;

/// Largest relative difference; 2e-5 was seen on an H100, and on lavapipe.
const TOLERANCE: f64 = 2e-4;

#[test]
fn every_pass_agrees_with_double_precision() {
    let Some(gpu) = rasteriser(1 << 16) else { return };
    println!("{}", gpu.name());
    every_pass_agrees(gpu);
    if let Some(portable) = portable_rasteriser(1 << 16) {
        println!("with what every device can do:");
        every_pass_agrees(portable);
    }
}

fn every_pass_agrees(mut gpu: GpuRasteriser) {
    let mut reference = CpuRasteriser::<f64>::new();
    for case in cases() {
        compare(&mut gpu, &mut reference, &case).assert_below(TOLERANCE);
    }
    let mut noisy = cloud(60, 500, 1, 64, 48);
    noisy.name += ", with noise";
    noisy.step.noise = 5e5;
    noisy.step.seed = 0x0123_4567_89ab_cdef;
    compare(&mut gpu, &mut reference, &noisy).assert_below(TOLERANCE);
    let mut wide = cloud(64, 60, 0, 176, 128);
    wide.name += ", most across all tiles: whole runs of slots";
    wide.state.splats.log_scales.iter_mut().for_each(|s| *s += 2.5);
    wide.state.splats.opacities.iter_mut().for_each(|o| *o -= 2.0);
    for case in [wide, absurd(), nothing()] {
        compare(&mut gpu, &mut reference, &case).assert_below(TOLERANCE);
    }
}

/// Splats that no training should make, among ordinary ones.
fn absurd() -> Case {
    let mut case = cloud(61, 200, 1, 40, 40);
    case.name += ", some absurd";
    let splats = &mut case.state.splats;
    splats.means[0][1] = f32::NAN;
    splats.means[1][2] = f32::INFINITY;
    splats.rotations[2] = Vec4::splat(0.0);
    splats.rotations[3][0] = f32::NAN;
    splats.log_scales[4] = Vec3::splat(200.0);
    splats.log_scales[5] = Vec3::splat(-200.0);
    splats.opacities[6] = f32::NAN;
    splats.opacities[7] = f32::NEG_INFINITY;
    splats.sh[8 * 12] = f32::NAN;
    splats.sh[9 * 12 + 5] = f32::INFINITY;
    case
}

/// A view in which there is nothing.
fn nothing() -> Case {
    let mut case = cloud(62, 100, 0, 33, 17);
    case.name += ", none in view";
    case.view.translation[2] = -100.0;
    case.background = [0.2013, 0.5021, 0.7987]; // between the 8-bit values: no difference is zero
    case
}

#[test]
fn the_anti_aliasing_filter_is_that_of_the_reference() {
    let Some(mut gpu) = rasteriser(1 << 14) else { return };
    let (splats, view, alpha) = filtered_splat();
    gpu.load(&TrainState { splats, ..TrainState::default() }).unwrap();
    let shown = gpu.render(&view, 0, [0.0; 3]).unwrap().rgba[40][3];
    assert!((shown - alpha).abs() < 1e-5, "{shown}, not {alpha}");

    let mut case = cloud(9, 600, 1, 77, 53);
    case.state.splats.antialiased = true;
    case.state.splats.log_scales.iter_mut().for_each(|scale| *scale -= 2.0);
    let mut reference = CpuRasteriser::<f64>::new();
    let render = |r: &mut dyn Rasteriser| {
        r.load(&case.state).unwrap();
        r.set_targets(vec![case.target.clone()]).unwrap();
        r.render(&case.view, 1, case.background).unwrap().rgba
    };
    let (a, b) = (render(&mut gpu), render(&mut reference));
    let apart: Vec<f32> = a.iter().flatten().zip(b.iter().flatten()).map(|(a, b)| (a - b).abs()).collect();
    // A splat may fall on the other side of a threshold.
    let far = apart.iter().filter(|apart| **apart > 1e-4).count();
    assert!(far < apart.len() / 500, "{far} of {} values differ", apart.len());
    gpu.loss(0, &case.loss).unwrap();
    assert_eq!(gpu.rasterise_backward().unwrap_err().kind(), ErrorKind::InvalidArgument);
}

#[test]
fn a_scene_of_more_than_one_page_agrees() {
    let count = PAGE as usize + 300;
    let mut case = cloud(63, 300, 0, 48, 32);
    // All but 600 are behind the camera; those in front are at both ends.
    let splats = &mut case.state.splats;
    let few = splats.clone();
    // The world point that is at (0, 0, -50) in the camera frame.
    let behind = case.view.rotation.transpose() * (dvec3(0.0, 0.0, -50.0) - case.view.translation);
    splats.means.resize(PAGE as usize, behind.as_vec3());
    splats.log_scales.resize(PAGE as usize, Vec3::splat(-3.0));
    splats.rotations.resize(PAGE as usize, IDENTITY);
    splats.opacities.resize(PAGE as usize, 0.0);
    splats.sh.resize(3 * PAGE as usize, 0.5);
    for i in 0..300 {
        splats.means.push(0.9 * few.means[i]);
        splats.log_scales.push(few.log_scales[i]);
        splats.rotations.push(few.rotations[i]);
        splats.opacities.push(few.opacities[i]);
    }
    splats.sh.extend_from_slice(&few.sh);
    assert_eq!(splats.len(), count);
    case.name = format!("{count} splats in two pages");
    let Some(mut gpu) = rasteriser(1 << 14) else { return };
    compare(&mut gpu, &mut CpuRasteriser::<f64>::new(), &case).assert_below(TOLERANCE);
}
