//! Tests of the passes against definitions written a second time, and of the paths against each other.

use super::*;
use crate::random::Random;
use crate::raster::parity::{self, Case};
use crate::raster::{ALPHA_MAX, ALPHA_MIN, DILATION, NEAR, TRANSMITTANCE_MIN};

/// The definition of the picture, one pixel and one splat at a time, in double precision and without any shortcut:
/// (r, g, b, alpha) row by row.
fn scalar_rendering(splats: &Splats, view: &View, sh_degree: u32, background: [f32; 3]) -> Vec<[f64; 4]> {
    struct Flat {
        depth: f64,
        u: f64,
        v: f64,
        covariance: [f64; 3],
        opacity: f64,
        rgb: [f64; 3],
    }
    let w = view.rotation;
    let t = view.translation;
    let centre: Vec<f64> = (0..3).map(|i| -(0..3).map(|k| w[k][i] * t[k]).sum::<f64>()).collect();
    let mut flats = Vec::new();
    for i in 0..splats.len() {
        let m = splats.means[i].map(f64::from);
        let p: Vec<f64> = (0..3).map(|r| (0..3).map(|k| w[r][k] * m[k]).sum::<f64>() + t[r]).collect();
        if p[2] <= NEAR {
            continue;
        }
        let q = splats.rotations[i].map(f64::from);
        let n = q.iter().map(|v| v * v).sum::<f64>().sqrt();
        let [a, b, c, d] = q.map(|v| v / n);
        let r = [
            [a * a + b * b - c * c - d * d, 2.0 * (b * c - a * d), 2.0 * (b * d + a * c)],
            [2.0 * (b * c + a * d), a * a - b * b + c * c - d * d, 2.0 * (c * d - a * b)],
            [2.0 * (b * d - a * c), 2.0 * (c * d + a * b), a * a - b * b - c * c + d * d],
        ];
        let s = splats.log_scales[i].map(|v| f64::from(v).exp().powi(2));
        let mut world = [[0.0; 3]; 3];
        for x in 0..3 {
            for y in 0..3 {
                world[x][y] = (0..3).map(|k| r[x][k] * s[k] * r[y][k]).sum();
            }
        }
        let limit = |v: f64, size: u32, f: f64| {
            let bound = 1.3 * f64::from(size) / (2.0 * f);
            v.clamp(-bound, bound)
        };
        let (sx, sy) = (limit(p[0] / p[2], view.width, view.fx), limit(p[1] / p[2], view.height, view.fy));
        let j = [[view.fx / p[2], 0.0, -view.fx * sx / p[2]], [0.0, view.fy / p[2], -view.fy * sy / p[2]]];
        let mut jw = [[0.0; 3]; 2];
        for x in 0..2 {
            for y in 0..3 {
                jw[x][y] = (0..3).map(|k| j[x][k] * w[k][y]).sum();
            }
        }
        let entry = |x: usize, y: usize| -> f64 {
            (0..3).map(|k| (0..3).map(|l| jw[x][k] * world[k][l] * jw[y][l]).sum::<f64>()).sum()
        };
        let covariance = [entry(0, 0) + DILATION, entry(0, 1), entry(1, 1) + DILATION];
        let to: Vec<f64> = (0..3).map(|k| m[k] - centre[k]).collect();
        let length = to.iter().map(|v| v * v).sum::<f64>().sqrt();
        let [x, y, z] = [to[0] / length, to[1] / length, to[2] / length];
        let basis = [
            0.28209479177387814,
            -0.4886025119029199 * y,
            0.4886025119029199 * z,
            -0.4886025119029199 * x,
            1.0925484305920792 * x * y,
            -1.0925484305920792 * y * z,
            0.31539156525252005 * (3.0 * z * z - 1.0),
            -1.0925484305920792 * x * z,
            0.5462742152960396 * (x * x - y * y),
            -0.5900435899266435 * y * (3.0 * x * x - y * y),
            2.890611442640554 * x * y * z,
            -0.4570457994644658 * y * (5.0 * z * z - 1.0),
            0.3731763325901154 * z * (5.0 * z * z - 3.0),
            -0.4570457994644658 * x * (5.0 * z * z - 1.0),
            1.445305721320277 * z * (x * x - y * y),
            -0.5900435899266435 * x * (x * x - 3.0 * y * y),
        ];
        let stride = 3 * ((splats.sh_degree + 1) * (splats.sh_degree + 1)) as usize;
        let used = ((sh_degree + 1) * (sh_degree + 1)) as usize;
        let rgb = [0, 1, 2].map(|channel| {
            let sum: f64 =
                (0..used).map(|k| basis[k] * f64::from(splats.sh[i * stride + 3 * k + channel])).sum();
            f64::max(0.0, 0.5 + sum)
        });
        flats.push(Flat {
            depth: p[2],
            u: view.fx * p[0] / p[2] + view.cx,
            v: view.fy * p[1] / p[2] + view.cy,
            covariance,
            opacity: 1.0 / (1.0 + (-f64::from(splats.opacities[i])).exp()),
            rgb,
        });
    }
    flats.sort_by(|a, b| a.depth.total_cmp(&b.depth)); // stable: ties by number
    let mut out = Vec::new();
    for row in 0..view.height {
        for column in 0..view.width {
            let mut left = 1.0;
            let mut rgb = [0.0; 3];
            for f in &flats {
                let (dx, dy) = (f64::from(column) + 0.5 - f.u, f64::from(row) + 0.5 - f.v);
                let [a, b, c] = f.covariance;
                let power = 0.5 * (c * dx * dx - 2.0 * b * dx * dy + a * dy * dy) / (a * c - b * b);
                let alpha = f64::min(ALPHA_MAX, f.opacity * (-power).exp());
                if alpha < ALPHA_MIN {
                    continue;
                }
                if left * (1.0 - alpha) < TRANSMITTANCE_MIN {
                    break;
                }
                for channel in 0..3 {
                    rgb[channel] += left * alpha * f.rgb[channel];
                }
                left *= 1.0 - alpha;
            }
            let over = |channel: usize| rgb[channel] + left * f64::from(background[channel]);
            out.push([over(0), over(1), over(2), 1.0 - left]);
        }
    }
    out
}

#[test]
fn the_picture_is_that_of_the_definition() {
    for case in parity::cases() {
        let expected = scalar_rendering(&case.state.splats, &case.view, case.sh_degree, case.background);
        let mut worst = [0.0f64; 2];
        let mut outliers = 0;
        let mut double = CpuRasteriser::<f64>::new();
        let mut single = CpuRasteriser::<f32>::new();
        for (k, r) in [&mut double as &mut dyn Rasteriser, &mut single].into_iter().enumerate() {
            r.load(&case.state).unwrap();
            let rendering = r.render(&case.view, case.sh_degree, case.background).unwrap();
            assert_eq!(rendering.rgba.len(), expected.len());
            for (have, want) in rendering.rgba.iter().zip(&expected) {
                for channel in 0..4 {
                    let d = (f64::from(have[channel]) - want[channel]).abs();
                    worst[k] = worst[k].max(d);
                    outliers += usize::from(k == 1 && d > 1e-4);
                }
            }
        }
        println!("{}: f64 {:.1e}, f32 {:.1e}, {outliers} above 1e-4", case.name, worst[0], worst[1]);
        // The seam rounds the picture to single precision. A splat may fall on the other side of a threshold in
        // single precision, but not more than a few.
        assert!(worst[0] < 2e-7, "{}", worst[0]);
        assert!(worst[1] < 2e-2 && outliers < expected.len() / 500, "{} {outliers}", worst[1]);
    }
}

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
        splats.means[i] = [0; 3].map(|_| (0.35 * random.normal()) as f32);
        splats.log_scales[i] = [0; 3].map(|_| (0.1 + 0.2 * random.normal()) as f32);
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
        check("SH", &gradient.sh, &|r, i| &mut r.scene.parameters.sh[i]);
        if let Some((_, by_exposure)) = exposure {
            check("exposure", &by_exposure, &|r, i| &mut r.scene.exposures[0][i]);
        }
    }
}

#[test]
fn single_precision_agrees_with_double_pass_by_pass() {
    for case in parity::cases() {
        let differences =
            parity::compare(&mut CpuRasteriser::<f32>::new(), &mut CpuRasteriser::<f64>::new(), &case);
        differences.assert_below(1e-2);
    }
}

#[test]
fn instruction_sets_agree_pass_by_pass() {
    for isa in Isa::available() {
        for case in parity::cases() {
            let mut portable = CpuRasteriser::<f32>::with_isa(Isa::Portable);
            parity::compare(&mut CpuRasteriser::<f32>::with_isa(isa), &mut portable, &case)
                .assert_below(5e-3);
        }
    }
}
