//! Analytic gradients against central differences.

use super::super::*;
use crate::random::Random;
use crate::raster::parity::{self, Case};

/// The loss of a case as a function of the parameters inside `r`.
fn loss_of(r: &mut CpuRasteriser<f64>, case: &Case) -> f64 {
    r.project(&case.view, case.sh_degree).unwrap();
    r.intersect().unwrap();
    r.sort().unwrap();
    r.rasterise(case.background).unwrap();
    r.loss(0, &case.loss).unwrap();
    r.statistics().unwrap().loss
}

type Access<'a> = &'a dyn for<'r> Fn(&'r mut CpuRasteriser<f64>, usize) -> &'r mut f64;

/// Compares analytic derivatives with central differences of the loss; returns the largest error relative to the
/// derivative (or to a thousandth of the largest one, if that is more).
fn derivative_error(r: &mut CpuRasteriser<f64>, case: &Case, analytic: &[f64], access: Access) -> f64 {
    let scale = analytic.iter().fold(0.0f64, |m, v| m.max(v.abs()));
    assert!(scale > 0.0, "all gradients are zero");
    let mut worst = 0.0f64;
    for (i, &expected) in analytic.iter().enumerate() {
        let original = *access(r, i);
        let mut at = |offset: f64| {
            *access(r, i) = original + offset;
            loss_of(r, case)
        };
        // Fourth order: the truncation error is far below the rounding error.
        let h = 1e-4;
        let numeric = (8.0 * (at(h) - at(-h)) - (at(2.0 * h) - at(-2.0 * h))) / (12.0 * h);
        *access(r, i) = original;
        worst = worst.max((numeric - expected).abs() / expected.abs().max(1e-3 * scale));
    }
    worst
}

/// Makes the loss of a case smooth around its parameters: every contribution stays above the least alpha in all pixels
/// or does not exist, nothing is near the cap, and no colour near the clamp.
fn smooth_case(seed: u64, sh_degree: u32) -> Case {
    let mut case = parity::cloud(seed, 14, sh_degree, 21, 18);
    let mut random = Random::new(seed);
    let splats = &mut case.state.splats;
    for i in 0..splats.len() {
        splats.means[i] = [0; 3].map(|_| (0.35 * random.normal()) as f32).into();
        splats.log_scales[i] = [0; 3].map(|_| (0.1 + 0.2 * random.normal()) as f32).into();
        splats.opacities[i] = (-0.8 + 0.5 * random.normal()) as f32;
    }
    let per_splat = splats.sh.len() / splats.len();
    for (i, v) in splats.sh.iter_mut().enumerate() {
        *v = if i % per_splat < 3 { (0.2 * random.normal()) as f32 } else { (0.1 * random.normal()) as f32 };
    }
    case
}

fn geometry_access(k: usize) -> impl for<'r> Fn(&'r mut CpuRasteriser<f64>, usize) -> &'r mut f64 {
    move |r, i| &mut r.scene.parameters.geometry[i][k]
}

#[test]
fn gradients_are_those_of_central_differences() {
    let mut exposed = smooth_case(31, 1);
    exposed.target = parity::target(5, 21, 18, true);
    exposed.state.exposures = vec![[0.9, 0.05, 0.0, 0.02, -0.03, 1.1, 0.02, 0.0, 0.01, 0.0, 0.8, 0.05]];
    exposed.loss = LossOptions { ssim_weight: 0.4, alpha_weight: 0.3, exposure: Some(0) };
    let mut partial = smooth_case(32, 3);
    partial.sh_degree = 2;
    let mut cases = vec![exposed, partial];
    cases.extend((0..4).map(|degree| smooth_case(33 + u64::from(degree), degree)));
    for case in cases {
        let mut r = CpuRasteriser::<f64>::new();
        r.load(&case.state).unwrap();
        r.set_targets(vec![case.target.clone()]).unwrap();
        loss_of(&mut r, &case);
        r.rasterise_backward().unwrap();
        let gradient = update::gradient(r.isa, &r.scene, &r.projection, &r.gradients.splats).unwrap();
        let (exposure, degree) = (r.loss.exposure, case.sh_degree);
        println!("{}, degree {degree} in use", case.name);
        let mut check = |what: &str, analytic: &[f64], access: Access| {
            let error = derivative_error(&mut r, &case, analytic, access);
            println!("    {what:<12} {error:.1e}");
            assert!(error < 1e-5, "{what}: {error:.2e}");
        };
        let names =
            ["mean x", "mean y", "mean z", "logit", "w", "x", "y", "z", "scale x", "scale y", "scale z"];
        for (k, name) in names.into_iter().enumerate() {
            let analytic: Vec<f64> = gradient.geometry.iter().map(|g| g[k]).collect();
            check(name, &analytic, &geometry_access(k));
        }
        let analytic: Vec<f64> = gradient.sh.iter().flatten().flat_map(|row| row.0).collect();
        check("SH", &analytic, &|r, i| &mut r.scene.parameters.sh[i / 48][i / 16 % 3][i % 16]);
        if let Some((_, by_exposure)) = exposure {
            check("exposure", &by_exposure, &|r, i| &mut r.scene.exposures[0][i]);
        }
    }
}
