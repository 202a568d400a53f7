//! The picture, the pairs and SSIM against their definitions.

use super::super::*;
use crate::raster::{ALPHA_MAX, ALPHA_MIN, DILATION, NEAR, TILE, TRANSMITTANCE_MIN, parity};

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
    // Row by row.
    let w = view.rotation.transpose().to_cols_array_2d();
    let t = view.translation;
    let centre: Vec<f64> = (0..3).map(|i| -(0..3).map(|k| w[k][i] * t[k]).sum::<f64>()).collect();
    let mut flats = Vec::new();
    for i in 0..splats.len() {
        let m = splats.means[i].as_dvec3();
        let p: Vec<f64> = (0..3).map(|r| (0..3).map(|k| w[r][k] * m[k]).sum::<f64>() + t[r]).collect();
        if p[2] <= NEAR {
            continue;
        }
        let q = splats.rotations[i].as_dvec4().to_array();
        let n = q.iter().map(|v| v * v).sum::<f64>().sqrt();
        let [a, b, c, d] = q.map(|v| v / n);
        let r = [
            [a * a + b * b - c * c - d * d, 2.0 * (b * c - a * d), 2.0 * (b * d + a * c)],
            [2.0 * (b * c + a * d), a * a - b * b + c * c - d * d, 2.0 * (c * d - a * b)],
            [2.0 * (b * d - a * c), 2.0 * (c * d + a * b), a * a - b * b - c * c + d * d],
        ];
        let s = splats.log_scales[i].to_array().map(|v| f64::from(v).exp().powi(2));
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
        let determinant =
            |dilation: f64| (entry(0, 0) + dilation) * (entry(1, 1) + dilation) - entry(0, 1) * entry(0, 1);
        let filter =
            if splats.antialiased { (determinant(0.0).max(0.0) / determinant(DILATION)).sqrt() } else { 1.0 };
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
            opacity: filter / (1.0 + (-f64::from(splats.opacities[i])).exp()),
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

#[test]
fn small_splats_are_as_faint_as_the_anti_aliasing_filter_says() {
    let (splats, view, alpha) = parity::filtered_splat();
    let mut double = CpuRasteriser::<f64>::new();
    let mut single = CpuRasteriser::<f32>::new();
    for r in [&mut double as &mut dyn Rasteriser, &mut single] {
        for (antialiased, expected) in [(true, alpha), (false, 0.5)] {
            let splats = Splats { antialiased, ..splats.clone() };
            r.load(&TrainState { splats, ..TrainState::default() }).unwrap();
            let shown = r.render(&view, 0, [0.0; 3]).unwrap().rgba[40][3];
            assert!((shown - expected).abs() < 1e-5, "{}: {shown}, not {expected}", r.name());
        }
    }
    let mut case = parity::cloud(9, 600, 1, 77, 53);
    case.state.splats.antialiased = true;
    case.state.splats.log_scales.iter_mut().for_each(|scale| *scale -= 2.0);
    let expected = scalar_rendering(&case.state.splats, &case.view, 1, case.background);
    double.load(&case.state).unwrap();
    double.set_targets(vec![case.target.clone()]).unwrap();
    let rendering = double.render(&case.view, 1, case.background).unwrap();
    let both = rendering.rgba.iter().flatten().zip(expected.iter().flatten());
    let worst = both.map(|(have, want)| (f64::from(*have) - want).abs()).fold(0.0, f64::max);
    assert!(worst < 2e-7, "{worst}");
    // Their gradients would be others.
    double.loss(0, &case.loss).unwrap();
    assert_eq!(double.rasterise_backward().unwrap_err().kind(), ErrorKind::InvalidArgument);
}

/// Every tile in which a pixel's alpha reaches the least one is in the list of the splat, and hardly any other.
#[test]
fn pairs_are_exact() {
    for case in parity::cases() {
        let mut r = CpuRasteriser::<f64>::new();
        r.load(&case.state).unwrap();
        r.render(&case.view, case.sh_degree, case.background).unwrap();
        let listed: std::collections::BTreeSet<(u32, u32)> =
            r.inspect_intersections().unwrap().into_iter().collect();
        let tiles_x = case.view.width.div_ceil(TILE);
        let mut needed = std::collections::BTreeSet::new();
        for s in r.inspect_projected().unwrap() {
            let [a, b, c] = s.conic;
            for row in 0..case.view.height {
                for column in 0..case.view.width {
                    let (dx, dy) = (f64::from(column) + 0.5 - s.mean[0], f64::from(row) + 0.5 - s.mean[1]);
                    let power = 0.5 * (a * dx * dx + c * dy * dy) + b * dx * dy;
                    if s.opacity * (-power).exp() >= ALPHA_MIN {
                        needed.insert((row / TILE * tiles_x + column / TILE, s.index));
                    }
                }
            }
        }
        assert!(needed.is_subset(&listed), "{}: a pair is missing", case.name);
        let spare = listed.len() - needed.len();
        println!("{}: {} pairs, {spare} of them without a pixel", case.name, listed.len());
        // What is left is an ellipse that passes between the pixel centres of a tile.
        assert!(spare * 10 <= listed.len(), "{}: {spare} of {} pairs are idle", case.name, listed.len());
    }
}

/// Mean SSIM by its definition: every window is summed anew, pixels outside count as zero.
pub(crate) fn scalar_ssim(a: &[[f64; 3]], b: &[[f64; 3]], width: usize, height: usize) -> f64 {
    let tap = |k: i64| (-0.5 * (k as f64 / 1.5).powi(2)).exp();
    let norm: f64 = (-5..=5).map(tap).sum();
    let mut total = 0.0;
    for channel in 0..3 {
        for y in 0..height as i64 {
            for x in 0..width as i64 {
                let mut sums = [0.0; 5];
                for dy in -5..=5 {
                    for dx in -5..=5 {
                        let (sx, sy) = (x + dx, y + dy);
                        if sx < 0 || sy < 0 || sx >= width as i64 || sy >= height as i64 {
                            continue;
                        }
                        let weight = tap(dx) * tap(dy) / (norm * norm);
                        let at = sy as usize * width + sx as usize;
                        let (p, q) = (a[at][channel], b[at][channel]);
                        for (sum, v) in sums.iter_mut().zip([p, q, p * p, q * q, p * q]) {
                            *sum += weight * v;
                        }
                    }
                }
                let [ma, mb, aa, bb, ab] = sums;
                let (va, vb, cov) = (aa - ma * ma, bb - mb * mb, ab - ma * mb);
                let (c1, c2) = (1e-4, 9e-4);
                total +=
                    (2.0 * ma * mb + c1) * (2.0 * cov + c2) / ((ma * ma + mb * mb + c1) * (va + vb + c2));
            }
        }
    }
    total / (3 * width * height) as f64
}

#[test]
fn hidden_pixels_are_compared_with_nothing() {
    let (width, height) = (37, 29);
    let is_hidden = |pixel: usize| (9..24).contains(&(pixel % 37)) && (5..20).contains(&(pixel / 37));
    let mut case = parity::cloud(3, 60, 0, width, height);
    case.target = parity::target(1, width, height, true);
    case.target.hides = true;
    case.loss = LossOptions { ssim_weight: 0.3, alpha_weight: 0.25, exposure: None };
    let alpha = case.target.alpha.as_mut().unwrap();
    for (pixel, (alpha, rgb)) in alpha.iter_mut().zip(case.target.rgb.chunks_exact_mut(3)).enumerate() {
        if is_hidden(pixel) {
            *alpha = 0;
            rgb.fill(255);
        } else {
            *alpha = (*alpha).max(1);
        }
    }
    for single in [false, true] {
        let mut r: Box<dyn Inspect> = if single {
            Box::new(CpuRasteriser::<f32>::new())
        } else {
            Box::new(CpuRasteriser::<f64>::new())
        };
        r.load(&case.state).unwrap();
        r.set_targets(vec![case.target.clone()]).unwrap();
        let rendering = r.render(&case.view, 0, case.background).unwrap();
        r.loss(0, &case.loss).unwrap();
        let gradient = r.inspect_loss_gradient().unwrap();
        let s = r.statistics().unwrap();
        let have: Vec<[f64; 3]> =
            rendering.rgba.iter().map(|p| [0, 1, 2].map(|c: usize| f64::from(p[c]))).collect();
        let (alpha, rgb) = (case.target.alpha.as_ref().unwrap(), &case.target.rgb);
        let want = |pixel: usize| {
            let a = f64::from(alpha[pixel]) / 255.0;
            [0, 1, 2].map(|c: usize| {
                a * f64::from(rgb[3 * pixel + c]) / 255.0 + (1.0 - a) * f64::from(case.background[c])
            })
        };
        let want: Vec<[f64; 3]> =
            (0..have.len()).map(|pixel| if is_hidden(pixel) { have[pixel] } else { want(pixel) }).collect();
        let pixels = have.len() as f64;
        let l1 = have.iter().flatten().zip(want.iter().flatten()).map(|(a, b)| (a - b).abs()).sum::<f64>()
            / (3.0 * pixels);
        let ssim = scalar_ssim(&have, &want, width as usize, height as usize);
        let alpha_l1 = (0..have.len())
            .filter(|pixel| !is_hidden(*pixel))
            .map(|pixel| (f64::from(rendering.rgba[pixel][3]) - f64::from(alpha[pixel]) / 255.0).abs())
            .sum::<f64>()
            / pixels;
        let loss = 0.7 * l1 + 0.3 * (1.0 - ssim) + 0.25 * alpha_l1;
        assert!((s.l1 - l1).abs() < 2e-5 && (s.loss - loss).abs() < 2e-5, "{} of {loss}", s.loss);
        for (pixel, by_pixel) in gradient.iter().enumerate() {
            let is_zero = by_pixel.iter().all(|v| *v == 0.0);
            assert_eq!(is_zero, is_hidden(pixel), "{pixel}: {by_pixel:?}");
        }
        // What is not said to be hidden is the scene's background, whatever its colour.
        r.set_targets(vec![Target { hides: false, ..case.target.clone() }]).unwrap();
        r.loss(0, &case.loss).unwrap();
        assert!(r.statistics().unwrap().loss > s.loss + 1e-3);
    }
}

#[test]
fn the_loss_is_that_of_its_definition_for_any_size() {
    for (width, height) in [(1, 1), (5, 3), (16, 16), (17, 33), (40, 9), (31, 47)] {
        let mut case = parity::cloud(3, 60, 0, width, height);
        case.target = parity::target(1, width, height, true);
        let m: [f32; 12] = [0.9, 0.05, 0.0, 0.02, -0.03, 1.1, 0.02, 0.0, 0.01, 0.0, 0.8, 0.05];
        case.state.exposures = vec![m];
        for (single, exposure) in [(false, None), (true, None), (false, Some(0)), (true, Some(0))] {
            case.loss = LossOptions { ssim_weight: 0.3, alpha_weight: 0.25, exposure };
            let mut r: Box<dyn Rasteriser> = if single {
                Box::new(CpuRasteriser::<f32>::new())
            } else {
                Box::new(CpuRasteriser::<f64>::new())
            };
            r.load(&case.state).unwrap();
            r.set_targets(vec![case.target.clone()]).unwrap();
            let rendering = r.render(&case.view, 0, case.background).unwrap();
            r.loss(0, &case.loss).unwrap();
            let s = r.statistics().unwrap();

            let alpha = case.target.alpha.clone().unwrap();
            let exposed = |p: [f64; 4]| {
                let behind = [0, 1, 2].map(|c: usize| (1.0 - p[3]) * f64::from(case.background[c]));
                let scene = [p[0] - behind[0], p[1] - behind[1], p[2] - behind[2], p[3]];
                [0, 1, 2].map(|c: usize| {
                    behind[c] + (0..4).map(|k| f64::from(m[4 * c + k]) * scene[k]).sum::<f64>()
                })
            };
            let shown = |p: [f64; 4]| if exposure.is_some() { exposed(p) } else { [p[0], p[1], p[2]] };
            let have: Vec<[f64; 3]> = rendering.rgba.iter().map(|p| shown(p.map(f64::from))).collect();
            let want: Vec<[f64; 3]> = (0..have.len())
                .map(|i| {
                    let a = f64::from(alpha[i]) / 255.0;
                    [0, 1, 2].map(|c: usize| {
                        a * f64::from(case.target.rgb[3 * i + c]) / 255.0
                            + (1.0 - a) * f64::from(case.background[c])
                    })
                })
                .collect();
            let pixels = have.len() as f64;
            let l1 =
                have.iter().flatten().zip(want.iter().flatten()).map(|(a, b)| (a - b).abs()).sum::<f64>()
                    / (3.0 * pixels);
            let ssim = scalar_ssim(&have, &want, width as usize, height as usize);
            let alpha_l1 = (0..have.len())
                .map(|i| (f64::from(rendering.rgba[i][3]) - f64::from(alpha[i]) / 255.0).abs())
                .sum::<f64>()
                / pixels;
            let (w, aw) = (f64::from(case.loss.ssim_weight), f64::from(case.loss.alpha_weight));
            let loss = (1.0 - w) * l1 + w * (1.0 - ssim) + aw * alpha_l1;
            println!("{width}x{height}: SSIM {:.9} of {ssim:.9}, loss {:.9} of {loss:.9}", s.ssim, s.loss);
            let tolerance = if single { 2e-5 } else { 1e-6 };
            assert!((s.l1 - l1).abs() < tolerance && (s.ssim - ssim).abs() < tolerance);
            assert!((s.loss - loss).abs() < tolerance);
        }
    }
}
