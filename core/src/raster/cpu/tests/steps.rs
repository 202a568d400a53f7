//! The optimiser step, the noise, edits, and what is kept between steps.

use glam::{Mat3, Quat, Vec3, vec3, vec4};

use super::super::*;
use crate::error::ErrorKind;
use crate::raster::load_for_viewing;
use crate::raster::parity::{self, Case};

/// All passes of one step.
fn step(r: &mut dyn Rasteriser, case: &Case, options: &StepOptions) {
    r.project(&case.view, case.sh_degree).unwrap();
    r.intersect().unwrap();
    r.sort().unwrap();
    r.rasterise(case.background).unwrap();
    r.loss(0, &case.loss).unwrap();
    r.rasterise_backward().unwrap();
    r.update(options).unwrap();
}

fn loaded<T: Scalar>(case: &Case) -> CpuRasteriser<T> {
    let mut r = CpuRasteriser::<T>::new();
    r.load(&case.state).unwrap();
    r.set_targets(vec![case.target.clone()]).unwrap();
    r
}

#[test]
fn any_number_of_threads_gives_the_same_bits() {
    // More splats than a chunk, more rows than a band, noise, exposure and alpha.
    let mut case = parity::cloud(40, 2000, 2, 101, 75);
    case.target = parity::target(2, 101, 75, true);
    case.state.exposures = vec![[1.0, 0.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 0.0, 1.0, 0.0]];
    case.loss = LossOptions { ssim_weight: 0.2, alpha_weight: 0.1, exposure: Some(0) };
    let run = |threads: usize| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        pool.install(|| {
            let mut r = loaded::<f32>(&case);
            let mut losses = Vec::new();
            for number in 1..=3 {
                step(&mut r, &case, &StepOptions { step: number, noise: 1e4, ..case.step });
                losses.push(r.statistics().unwrap());
            }
            (r.store().unwrap(), r.rendering().unwrap(), losses)
        })
    };
    let one = run(1);
    assert!(one.0.splats != case.state.splats);
    for threads in [2, 5] {
        assert!(run(threads) == one, "{threads} threads give another result than one");
    }
}

#[test]
fn storing_and_loading_changes_no_bit() {
    let mut case = parity::cloud(41, 500, 3, 64, 48);
    case.state.exposures = vec![[1.0, 0.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 0.0, 1.0, 0.0]; 2];
    case.loss.exposure = Some(1);
    let mut r = loaded::<f32>(&case);
    step(&mut r, &case, &case.step);
    let state = r.store().unwrap();
    assert!(state.first_moments.sh.iter().any(|&v| v != 0.0));
    assert!(state.exposure_second_moments[1].iter().all(|&v| v > 0.0));
    assert_eq!(state.exposure_second_moments[0], [0.0; 12]);
    assert!(state.statistics.gradient.iter().any(|&v| v > 0.0));

    let mut again = CpuRasteriser::<f32>::new();
    again.load(&state).unwrap();
    again.set_targets(vec![case.target.clone()]).unwrap();
    assert!(again.store().unwrap() == state);
    assert!(again.splats().unwrap() == state.splats);
    // And it goes on as if nothing had happened.
    let next = StepOptions { step: 4, noise: 1e4, ..case.step };
    step(&mut r, &case, &next);
    step(&mut again, &case, &next);
    assert!(again.store().unwrap() == r.store().unwrap());
}

#[test]
fn a_scene_that_is_only_looked_at_has_no_moments() {
    let case = parity::cloud(41, 100, 1, 64, 48);
    let mut seen = loaded::<f32>(&case);
    seen.render(&case.view, 1, case.background).unwrap();
    assert!(seen.scene.first.geometry.is_empty() && seen.scene.second.sh.is_empty());
    // What is stored has them all, and training goes on with them as with any.
    let state = seen.store().unwrap();
    assert_eq!((state.first_moments.len(), state.second_moments.sh.len()), (100, state.splats.sh.len()));
    assert!(state.first_moments.sh.iter().chain(&state.second_moments.opacities).all(|&v| v == 0.0));
    let mut given = CpuRasteriser::<f32>::new();
    load_for_viewing(&mut given, &case.state.splats).unwrap();
    assert!(given.store().unwrap() == state);
    given.load(&state).unwrap();
    given.set_targets(vec![case.target.clone()]).unwrap();
    let grown = SplatEdit { destination: 100, source: 3, shift: 0.0, log_scale_offset: -0.1, opacity: 0.5 };
    for edits in [&[][..], &[grown][..]] {
        seen.load(&case.state).unwrap();
        given.load(&state).unwrap();
        seen.edit(edits).unwrap();
        given.edit(edits).unwrap();
        step(&mut seen, &case, &case.step);
        step(&mut given, &case, &case.step);
        assert!(seen.store().unwrap() == given.store().unwrap());
    }
}

/// Adam by its paper, on the gradient that `inspect_gradient` gives plus the regularisers.
#[test]
fn a_step_is_that_of_adam() {
    let case = parity::cloud(42, 200, 1, 48, 40);
    let mut r = loaded::<f64>(&case);
    step(&mut r, &case, &StepOptions { step: 1, ..case.step });
    let before = r.store().unwrap();
    r.load(&before).unwrap();
    r.project(&case.view, 1).unwrap();
    r.intersect().unwrap();
    r.sort().unwrap();
    r.rasterise(case.background).unwrap();
    r.loss(0, &case.loss).unwrap();
    r.rasterise_backward().unwrap();
    let (gradient, _) = r.inspect_gradient().unwrap();
    let visible: Vec<u32> = r.inspect_projected().unwrap().iter().map(|s| s.index).collect();
    assert!(!visible.is_empty() && visible.len() < 200);
    let options = StepOptions { step: 2, ..case.step };
    r.update(&options).unwrap();
    let after = r.store().unwrap();

    let mut worst = 0.0f64;
    let mut check = |p: f32, m: f32, v: f32, g: f64, rate: f32, new: [f32; 3]| {
        let (b1, b2) = (f64::from(options.beta1), f64::from(options.beta2));
        let m = b1 * f64::from(m) + (1.0 - b1) * g;
        let v = b2 * f64::from(v) + (1.0 - b2) * g * g;
        let (mh, vh) = (m / (1.0 - b1 * b1), v / (1.0 - b2 * b2));
        let p = f64::from(p) - f64::from(rate) * mh / (vh.sqrt() + f64::from(options.epsilon));
        for (have, want) in new.into_iter().zip([p, m, v]) {
            worst = worst.max((f64::from(have) - want).abs() / want.abs().max(1e-30));
        }
    };
    let (s, m, v) = (&before.splats, &before.first_moments, &before.second_moments);
    let (ns, nm, nv) = (&after.splats, &after.first_moments, &after.second_moments);
    let n = 200.0;
    for i in 0..200usize {
        if !visible.contains(&(i as u32)) {
            assert_eq!(s.means[i], ns.means[i]);
            assert_eq!(m.sh[12 * i..12 * i + 12], nm.sh[12 * i..12 * i + 12]);
            continue;
        }
        for k in 0..3 {
            let g = f64::from(gradient.means[i][k]);
            let new = [ns.means[i][k], nm.means[i][k], nv.means[i][k]];
            check(s.means[i][k], m.means[i][k], v.means[i][k], g, options.lr_means, new);
            let by_scale = f64::from(options.scale_regularisation) / (3.0 * n);
            let g = f64::from(gradient.log_scales[i][k]) + by_scale * f64::from(s.log_scales[i][k]).exp();
            let new = [ns.log_scales[i][k], nm.log_scales[i][k], nv.log_scales[i][k]];
            check(s.log_scales[i][k], m.log_scales[i][k], v.log_scales[i][k], g, options.lr_scales, new);
        }
        for k in 0..4 {
            let g = f64::from(gradient.rotations[i][k]);
            let new = [ns.rotations[i][k], nm.rotations[i][k], nv.rotations[i][k]];
            check(s.rotations[i][k], m.rotations[i][k], v.rotations[i][k], g, options.lr_rotations, new);
        }
        let o = 1.0 / (1.0 + (-f64::from(s.opacities[i])).exp());
        let g =
            f64::from(gradient.opacities[i]) + f64::from(options.opacity_regularisation) / n * o * (1.0 - o);
        let new = [ns.opacities[i], nm.opacities[i], nv.opacities[i]];
        check(s.opacities[i], m.opacities[i], v.opacities[i], g, options.lr_opacities, new);
        for k in 12 * i..12 * i + 12 {
            let rate = if k % 12 < 3 { options.lr_sh_dc } else { options.lr_sh_rest };
            check(s.sh[k], m.sh[k], v.sh[k], f64::from(gradient.sh[k]), rate, [ns.sh[k], nm.sh[k], nv.sh[k]]);
        }
    }
    println!("worst relative difference {worst:.1e}");
    // The seam rounds to single precision, also the gradient that this test starts from.
    assert!(worst < 1e-5, "{worst}");
}

#[test]
fn coefficients_above_the_degree_in_use_stay_as_they_are() {
    let mut case = parity::cloud(43, 100, 3, 40, 40);
    case.sh_degree = 1;
    let mut r = loaded::<f32>(&case);
    step(&mut r, &case, &case.step);
    let after = r.splats().unwrap();
    let mut moved = 0;
    for i in 0..100 {
        let (a, b) = (&case.state.splats.sh[48 * i..48 * i + 48], &after.sh[48 * i..48 * i + 48]);
        assert_eq!(a[12..], b[12..]);
        moved += usize::from(a[..12] != b[..12]);
    }
    assert!(moved > 20);
}

/// The noise of many steps has mean 0 and the covariance (factor Σ)(factor Σ)ᵀ.
#[test]
fn noise_is_normal_and_shaped_like_the_splat() {
    let mut case = parity::cloud(44, 1, 0, 32, 32);
    let splats = &mut case.state.splats;
    splats.means[0] = Vec3::splat(0.0);
    splats.log_scales[0] = vec3(-1.0, -2.0, -1.5);
    splats.rotations[0] = vec4(0.8, 0.3, -0.4, 0.2);
    splats.opacities[0] = -5.0;
    let mut r = loaded::<f64>(&case);
    let still = StepOptions { lr_scales: 0.0, lr_rotations: 0.0, lr_opacities: 0.0, ..case.step };
    let drift = |r: &mut CpuRasteriser<f64>, number: u32, noise: f32| {
        r.load(&case.state).unwrap();
        step(r, &case, &StepOptions { step: number, noise, ..still });
        [0, 1, 2].map(|k: usize| r.scene.parameters.geometry[0][k])
    };
    let samples = 4000;
    let (mut mean, mut covariance) = ([0.0; 3], [[0.0; 3]; 3]);
    for number in 1..=samples {
        let (quiet, noisy) = (drift(&mut r, number, 0.0), drift(&mut r, number, 1e5));
        let d = [0, 1, 2].map(|k: usize| noisy[k] - quiet[k]);
        for x in 0..3 {
            mean[x] += d[x] / f64::from(samples);
            for y in 0..3 {
                covariance[x][y] += d[x] * d[y] / f64::from(samples);
            }
        }
    }
    let o = 1.0 / (1.0 + 5f64.exp());
    let factor = 1e5 * f64::from(still.lr_means) / (1.0 + (100.0 * (o - 0.005)).exp());
    let q = [0.8, 0.3, -0.4, 0.2].map(|v: f64| v / (0.64f64 + 0.09 + 0.16 + 0.04).sqrt());
    let [w, x, y, z] = q;
    let r = [
        [1.0 - 2.0 * (y * y + z * z), 2.0 * (x * y - w * z), 2.0 * (x * z + w * y)],
        [2.0 * (x * y + w * z), 1.0 - 2.0 * (x * x + z * z), 2.0 * (y * z - w * x)],
        [2.0 * (x * z - w * y), 2.0 * (y * z + w * x), 1.0 - 2.0 * (x * x + y * y)],
    ];
    // (R S² Rᵀ)² = R S⁴ Rᵀ
    let s4 = [-1.0f64, -2.0, -1.5].map(|v| (4.0 * v).exp());
    let largest = factor * factor * s4[0];
    for x in 0..3 {
        assert!(mean[x].abs() < 4.0 * (largest / f64::from(samples)).sqrt(), "mean {mean:?}");
        for y in 0..3 {
            let want = factor * factor * (0..3).map(|k| r[x][k] * s4[k] * r[y][k]).sum::<f64>();
            assert!((covariance[x][y] - want).abs() < 0.1 * largest, "{covariance:?} at {x} {y}: {want}");
        }
    }
}

#[test]
fn two_halves_have_the_mean_and_the_covariance_of_the_one() {
    let case = parity::cloud(46, 40, 1, 64, 48);
    let mut r = loaded::<f64>(&case);
    let before = r.splats().unwrap();
    let half = |destination, source, shift| SplatEdit {
        destination,
        source,
        shift,
        log_scale_offset: 0.0,
        opacity: 0.0,
    };
    let edits: Vec<SplatEdit> = (0..40).flat_map(|i| [half(i, i, 0.6), half(40 + i, i, -0.6)]).collect();
    r.edit(&edits).unwrap();
    let after = r.splats().unwrap();
    let covariance = |splats: &Splats, i: usize| {
        let [w, x, y, z] = splats.rotations[i].to_array();
        let turn = Mat3::from_quat(Quat::from_xyzw(x, y, z, w).normalize());
        let axes = turn * Mat3::from_diagonal(splats.log_scales[i].exp());
        axes * axes.transpose()
    };
    for i in 0..40 {
        let (one, two) = (after.means[i], after.means[40 + i]);
        let size = before.log_scales[i].max_element().exp();
        assert!((0.5 * (one + two) - before.means[i]).length() < 1e-5 * size.max(1.0));
        assert!(((one - two).length() - 1.2 * size).abs() < 1e-4 * size);
        let apart = 0.5 * (one - two);
        let between = Mat3::from_cols(apart * apart.x, apart * apart.y, apart * apart.z);
        let error = covariance(&after, i) + between - covariance(&before, i);
        assert!(error.to_cols_array().iter().all(|e| e.abs() < 1e-4 * size * size), "{i}: {error}");
    }
    for shift in [1.0, f32::NAN] {
        let error = r.edit(&[half(0, 0, shift)]).unwrap_err();
        assert_eq!(error.kind(), crate::ErrorKind::InvalidArgument);
    }
}

#[test]
fn edits_copy_and_forget_moments() {
    let case = parity::cloud(45, 300, 1, 64, 48);
    let mut r = loaded::<f32>(&case);
    step(&mut r, &case, &case.step);
    let before = r.store().unwrap();
    let edit = |destination: u32, source: u32| SplatEdit {
        destination,
        source,
        shift: 0.0,
        log_scale_offset: -0.5,
        opacity: 0.75,
    };
    // A swap of two, and growth by two in any order: all sources are read first.
    let edits = [edit(3, 7), edit(7, 3), edit(301, 7), edit(300, 0)];
    r.edit(&edits).unwrap();
    assert_eq!(r.len(), 302);
    let after = r.store().unwrap();
    for e in &edits {
        let (d, s) = (e.destination as usize, e.source as usize);
        assert_eq!(after.splats.means[d], before.splats.means[s]);
        assert_eq!(after.splats.log_scales[d], before.splats.log_scales[s] + Vec3::splat(-0.5));
        assert_eq!(after.splats.rotations[d], before.splats.rotations[s]);
        assert_eq!(after.splats.opacities[d], 0.75);
        assert_eq!(after.splats.sh[12 * d..12 * d + 12], before.splats.sh[12 * s..12 * s + 12]);
        for moments in [&after.first_moments, &after.second_moments] {
            assert_eq!(moments.means[d], Vec3::ZERO);
            assert_eq!(moments.sh[12 * d..12 * d + 12], [0.0; 12]);
        }
        let s = &after.statistics;
        assert_eq!((s.gradient[d], s.error[d], s.visible[d], s.radius[d]), (0.0, 0.0, 0, 0.0));
    }
    assert_eq!(after.splats.means[4..7], before.splats.means[4..7]);
    assert_eq!(after.first_moments.means[8..300], before.first_moments.means[8..300]);
    step(&mut r, &case, &case.step);

    let state = r.store().unwrap();
    for wrong in [vec![edit(302, 0), edit(304, 0)], vec![edit(1, 2), edit(1, 3)], vec![edit(0, 302)]] {
        assert_eq!(r.edit(&wrong).unwrap_err().kind(), ErrorKind::InvalidArgument);
    }
    assert!(r.store().unwrap() == state, "a refused edit changed the scene");
}

#[test]
fn statistics_are_gathered_until_they_are_reset() {
    let case = parity::cloud(46, 200, 0, 64, 48);
    let mut r = loaded::<f32>(&case);
    let still = StepOptions {
        lr_means: 0.0,
        lr_scales: 0.0,
        lr_rotations: 0.0,
        lr_opacities: 0.0,
        lr_sh_dc: 0.0,
        ..case.step
    };
    step(&mut r, &case, &still);
    let once = r.store().unwrap().statistics;
    r.project(&case.view, 0).unwrap();
    let projected = r.inspect_projected().unwrap();
    step(&mut r, &case, &still);
    let twice = r.store().unwrap().statistics;
    for i in 0..200 {
        assert_eq!(twice.gradient[i], 2.0 * once.gradient[i]);
        assert_eq!(twice.error[i], 2.0 * once.error[i]);
        assert_eq!(twice.visible[i], 2 * once.visible[i]);
        assert_eq!(twice.radius[i], once.radius[i]);
    }
    for s in &projected {
        let [a, b, c] = s.conic;
        // The smaller eigenvalue of the conic is one over the variance along the long axis.
        let small = 0.5 * (a + c) - (0.25 * (a - c).powi(2) + b * b).sqrt();
        let radius = 3.0 / small.sqrt() / 64.0;
        let have = f64::from(once.radius[s.index as usize]);
        assert!((have - radius).abs() < 1e-3 * radius, "{have} {radius}");
    }
    assert_eq!(once.visible.iter().sum::<u32>() as usize, projected.len());
    assert!(once.error.iter().all(|&e| e >= 0.0) && once.error.iter().any(|&e| e > 0.0));
    let scores = r.density_scores().unwrap();
    assert_eq!(scores.error, twice.error);
    assert_eq!(scores.opacities, r.splats().unwrap().opacities);
    // Blend weights of a pixel add up to its alpha, so the errors add up to the error of the covered picture.
    r.reset_density_statistics().unwrap();
    let none = r.store().unwrap().statistics;
    assert!(none.gradient.iter().all(|&v| v == 0.0) && none.visible.iter().all(|&v| v == 0));
}
