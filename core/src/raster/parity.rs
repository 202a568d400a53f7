//! Compares two implementations of [`Rasteriser`] pass by pass, so that a difference is found in the pass where it is.
//!
//! A [`Case`] is a scene, a view and the options of one step. [`compare`] runs it on both implementations, prints one
//! line per quantity and returns the [`Differences`]; [`Differences::assert_below`] judges them.

use std::collections::BTreeSet;

use glam::{DMat3, Vec3, dvec3, vec3};

use super::{Inspect, LossOptions, StepOptions, Target, TrainState, View};
use crate::random::Random;
use crate::splats::{IDENTITY, Splats, sh_coefficients};

/// A scene, a view and one step.
#[derive(Debug, Clone)]
pub(crate) struct Case {
    pub(crate) name: String,
    pub(crate) state: TrainState,
    pub(crate) view: View,
    pub(crate) sh_degree: u32,
    pub(crate) background: [f32; 3],
    pub(crate) target: Target,
    pub(crate) loss: LossOptions,
    pub(crate) step: StepOptions,
}

/// A cloud of splats about the origin, `spread` wide, with log scales of mean `log_scale`.
pub(crate) fn splats(seed: u64, count: usize, sh_degree: u32, spread: f64, log_scale: f64) -> Splats {
    let mut random = Random::new(seed);
    let mut all = Splats::with_capacity(count, sh_degree);
    all.sh_degree = sh_degree;
    for _ in 0..count {
        let mut three =
            |scale: f64, middle: f64| Vec3::from([0; 3].map(|_| (middle + scale * random.normal()) as f32));
        all.means.push(three(spread, 0.0));
        all.log_scales.push(three(0.7, log_scale));
        // Quaternions of any length: they need not be normalised.
        all.rotations.push([0; 4].map(|_| (1.5 * random.normal()) as f32).into());
        all.opacities.push((1.5 * random.normal()) as f32);
        for coefficient in 0..sh_coefficients(sh_degree) {
            let scale = if coefficient == 0 { 0.8 } else { 0.15 };
            for _ in 0..3 {
                all.sh.push((scale * random.normal()) as f32);
            }
        }
    }
    all
}

/// A camera that looks at the origin from 4 units away, turned a little about all axes; field of view about 60°.
pub(crate) fn view(width: u32, height: u32) -> View {
    let (w, x, y, z) = (0.95, 0.1, -0.2, 0.15);
    let n: f64 = w * w + x * x + y * y + z * z;
    let s = 2.0 / n;
    let focal = 0.9 * f64::from(width.max(height));
    let rows = [
        [1.0 - s * (y * y + z * z), s * (x * y - w * z), s * (x * z + w * y)],
        [s * (x * y + w * z), 1.0 - s * (x * x + z * z), s * (y * z - w * x)],
        [s * (x * z - w * y), s * (y * z + w * x), 1.0 - s * (x * x + y * y)],
    ];
    View {
        rotation: DMat3::from_cols_array_2d(&rows).transpose(),
        translation: dvec3(0.1, -0.2, 4.0),
        fx: focal,
        fy: 1.03 * focal,
        cx: 0.5 * f64::from(width) + 1.3,
        cy: 0.5 * f64::from(height) - 0.7,
        width,
        height,
    }
}

/// A smooth picture with some texture, and alpha if asked for.
pub(crate) fn target(seed: u64, width: u32, height: u32, with_alpha: bool) -> Target {
    let mut random = Random::new(seed);
    let phase = [0; 6].map(|_| random.uniform() * 6.0);
    let mut rgb = Vec::new();
    let mut alpha = Vec::new();
    for y in 0..height {
        for x in 0..width {
            let (x, y) = (f64::from(x) / f64::from(width), f64::from(y) / f64::from(height));
            for c in 0..3 {
                let wave = (9.0 * x + phase[c]).sin() * (7.0 * y + phase[c + 3]).cos();
                rgb.push((127.0 + 90.0 * wave + 37.0 * random.uniform()) as u8);
            }
            alpha.push(if (x - 0.5).hypot(y - 0.5) < 0.35 { 255 } else { (random.uniform() * 100.0) as u8 });
        }
    }
    Target { width, height, rgb, alpha: with_alpha.then_some(alpha), hides: false }
}

/// The options of an ordinary step, with both regularisers and without noise.
pub(crate) fn step() -> StepOptions {
    StepOptions {
        step: 3,
        lr_means: 1.6e-4,
        lr_scales: 5e-3,
        lr_rotations: 1e-3,
        lr_opacities: 5e-2,
        lr_sh_dc: 2.5e-3,
        lr_sh_rest: 1.25e-4,
        lr_exposure: 1e-3,
        beta1: 0.9,
        beta2: 0.999,
        epsilon: 1e-15,
        opacity_regularisation: 0.01,
        scale_regularisation: 0.01,
        noise: 0.0,
        seed: 42,
    }
}

/// A cloud seen whole. Some splats lie behind and beside the camera.
pub(crate) fn cloud(seed: u64, count: usize, sh_degree: u32, width: u32, height: u32) -> Case {
    Case {
        name: format!("{count} splats, degree {sh_degree}, {width}x{height}"),
        state: TrainState { splats: splats(seed, count, sh_degree, 1.4, -2.2), ..TrainState::default() },
        view: view(width, height),
        sh_degree,
        background: [0.2, 0.5, 0.8],
        target: target(seed, width, height, false),
        loss: LossOptions { ssim_weight: 0.2, alpha_weight: 0.0, exposure: None },
        step: step(),
    }
}

/// A splat that was trained with the anti-aliasing filter, half opaque and a quarter of a pixel wide, in the middle of pixel 40 of
/// 9x9; and its alpha there.
pub(crate) fn filtered_splat() -> (Splats, View, f32) {
    let splats = Splats {
        means: vec![vec3(0.0, 0.0, 4.0)],
        log_scales: vec![Vec3::splat(0.01f32.ln())],
        rotations: vec![IDENTITY],
        opacities: vec![0.0],
        sh: vec![1.0; 3],
        antialiased: true,
        ..Splats::default()
    };
    let view = View {
        rotation: DMat3::IDENTITY,
        translation: dvec3(0.0, 0.0, 0.0),
        fx: 100.0,
        fy: 100.0,
        cx: 4.5,
        cy: 4.5,
        width: 9,
        height: 9,
    };
    // The variance is 1/16 px² along both axes, and 0.3 more with the dilation.
    (splats, view, 0.5 * 0.0625 / 0.3625)
}

/// The cases that every pair of implementations should agree on.
pub(crate) fn cases() -> Vec<Case> {
    let mut all: Vec<Case> = (0..4).map(|degree| cloud(7 + u64::from(degree), 600, degree, 77, 53)).collect();
    let mut exposed = cloud(21, 500, 1, 64, 48);
    exposed.name += ", exposure and alpha";
    exposed.target = target(5, 64, 48, true);
    exposed.state.exposures = vec![
        [1.0, 0.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 0.0, 1.0, 0.0],
        [0.9, 0.05, 0.0, 0.02, -0.03, 1.1, 0.02, 0.0, 0.01, 0.0, 0.8, 0.05],
    ];
    exposed.loss = LossOptions { ssim_weight: 0.3, alpha_weight: 0.1, exposure: Some(1) };
    all.push(exposed);
    let mut hidden = cloud(25, 500, 1, 70, 40);
    hidden.name += ", a part hidden";
    hidden.target = target(6, 70, 40, true);
    hidden.target.hides = true;
    for (pixel, rgb) in hidden.target.rgb.chunks_exact_mut(3).enumerate() {
        if let (Some(alpha), 20..50) = (&mut hidden.target.alpha, pixel % 70) {
            alpha[pixel] = 0;
            rgb.fill(255);
        }
    }
    hidden.loss = LossOptions { ssim_weight: 0.3, alpha_weight: 0.1, exposure: None };
    all.push(hidden);
    let mut low = cloud(22, 500, 3, 50, 70);
    low.name += ", degree 1 in use";
    low.sh_degree = 1;
    all.push(low);
    let mut dense = cloud(23, 3000, 0, 80, 60);
    dense.name += ", opaque: pixels stop early";
    dense.state.splats.opacities.iter_mut().for_each(|o| *o += 2.5);
    all.push(dense);
    let mut stretched = cloud(24, 300, 2, 96, 64);
    stretched.name += ", needles across many tiles";
    stretched.state.splats.log_scales.iter_mut().for_each(|s| *s += vec3(1.5, -2.0, -1.0));
    all.push(stretched);
    all
}

/// How far apart two lists of numbers are.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Difference {
    /// What was compared, after which pass.
    pub(crate) what: &'static str,
    /// |a - b| / |b| in the Euclidean norm.
    pub(crate) relative: f64,
    /// max |a - b| over max |b|.
    pub(crate) worst: f64,
    /// Share of the entries that differ by more than 1e-3 of max |b|.
    pub(crate) outliers: f64,
}

/// All that [`compare`] found.
#[derive(Debug, Default)]
pub(crate) struct Differences(pub(crate) Vec<Difference>);

impl Differences {
    fn add(&mut self, what: &'static str, pairs: impl Iterator<Item = (f64, f64)>) {
        let (mut apart, mut size, mut worst, mut largest) = (0.0, 0.0, 0.0f64, 0.0f64);
        let all: Vec<(f64, f64)> = pairs.collect();
        for &(a, b) in &all {
            // Numbers that are not finite must be the same on both sides.
            let d = if a == b || (a.is_nan() && b.is_nan()) { 0.0 } else { (a - b).abs() };
            apart += d * d;
            worst = worst.max(if d.is_nan() { f64::INFINITY } else { d });
            if b.is_finite() {
                size += b * b;
                largest = largest.max(b.abs());
            }
        }
        let scale = largest.max(f64::MIN_POSITIVE);
        let far = all.iter().filter(|(a, b)| (a - b).abs() > 1e-3 * scale).count();
        let difference = Difference {
            what,
            relative: if apart == 0.0 { 0.0 } else { (apart / size.max(f64::MIN_POSITIVE)).sqrt() },
            worst: worst / scale,
            outliers: far as f64 / all.len().max(1) as f64,
        };
        println!(
            "    {what:<24} relative {:.1e}  worst {:.1e}  outliers {:.4} %  ({} values)",
            difference.relative,
            difference.worst,
            100.0 * difference.outliers,
            all.len()
        );
        self.0.push(difference);
    }

    /// Panics if the relative difference of anything is above `relative`. (A splat whose alpha is near the least one, or
    /// two at nearly one depth, may fall on different sides: compare norms, not single values.)
    pub(crate) fn assert_below(&self, relative: f64) {
        for d in &self.0 {
            assert!(
                d.relative <= relative,
                "{} differ by {:.2e} (allowed {relative:.1e})",
                d.what,
                d.relative
            );
        }
    }
}

fn numbers<T: bytemuck::NoUninit>(values: &[T]) -> impl Iterator<Item = f64> {
    bytemuck::cast_slice::<T, f32>(values).iter().map(|&v| f64::from(v))
}

fn add_splats(out: &mut Differences, names: [&'static str; 5], a: &Splats, b: &Splats) {
    out.add(names[0], numbers(&a.means).zip(numbers(&b.means)));
    out.add(names[1], numbers(&a.log_scales).zip(numbers(&b.log_scales)));
    out.add(names[2], numbers(&a.rotations).zip(numbers(&b.rotations)));
    let f = |v: &f32| f64::from(*v);
    out.add(names[3], a.opacities.iter().map(f).zip(b.opacities.iter().map(f)));
    out.add(names[4], a.sh.iter().map(f).zip(b.sh.iter().map(f)));
}

/// Runs `case` on both, pass by pass, and compares everything that can be seen after each. `b` is the reference.
pub(crate) fn compare<'r>(
    a: &mut (dyn Inspect + 'r),
    b: &mut (dyn Inspect + 'r),
    case: &Case,
) -> Differences {
    println!("{} against {}: {}", a.name(), b.name(), case.name);
    let mut out = Differences::default();
    for r in [&mut *a, &mut *b] {
        r.load(&case.state).unwrap();
        r.set_targets(vec![case.target.clone()]).unwrap();
        r.project(&case.view, case.sh_degree).unwrap();
    }

    let (pa, pb) = (a.inspect_projected().unwrap(), b.inspect_projected().unwrap());
    let (ia, ib): (BTreeSet<u32>, BTreeSet<u32>) =
        (pa.iter().map(|s| s.index).collect(), pb.iter().map(|s| s.index).collect());
    let all = case.state.splats.len() as u32;
    out.add("visible", (0..all).map(|i| (f64::from(ia.contains(&i)), f64::from(ib.contains(&i)))));
    let (pa, pb): (Vec<_>, Vec<_>) = (
        pa.iter().filter(|s| ib.contains(&s.index)).collect(),
        pb.iter().filter(|s| ia.contains(&s.index)).collect(),
    );
    let both = || pa.iter().zip(&pb);
    out.add("mean2d", both().flat_map(|(a, b)| [0, 1].map(|k: usize| (a.mean[k], b.mean[k]))));
    out.add("conic", both().flat_map(|(a, b)| [0, 1, 2].map(|k: usize| (a.conic[k], b.conic[k]))));
    out.add("depth", both().map(|(a, b)| (a.depth, b.depth)));
    out.add("opacity", both().map(|(a, b)| (a.opacity, b.opacity)));
    out.add("colour", both().flat_map(|(a, b)| [0, 1, 2].map(|k: usize| (a.rgb[k], b.rgb[k]))));

    for r in [&mut *a, &mut *b] {
        r.intersect().unwrap();
        r.sort().unwrap();
    }
    let (la, lb) = (a.inspect_intersections().unwrap(), b.inspect_intersections().unwrap());
    assert!(la.windows(2).all(|w| w[0].0 <= w[1].0), "the pairs are not sorted by tile");
    let (sa, sb): (BTreeSet<_>, BTreeSet<_>) = (la.iter().collect(), lb.iter().collect());
    assert_eq!(sa.len(), la.len(), "a pair occurs twice");
    out.add("pairs", sa.union(&sb).map(|&p| (f64::from(sa.contains(p)), f64::from(sb.contains(p)))));
    let shared: (Vec<_>, Vec<_>) =
        (la.iter().filter(|p| sb.contains(p)).collect(), lb.iter().filter(|p| sa.contains(p)).collect());
    out.add("order", shared.0.iter().zip(&shared.1).map(|(a, b)| (f64::from(a == b), 1.0)));

    for r in [&mut *a, &mut *b] {
        r.rasterise(case.background).unwrap();
    }
    let (ra, rb) = (a.rendering().unwrap(), b.rendering().unwrap());
    assert_eq!((ra.width, ra.height), (case.view.width, case.view.height));
    out.add("rendering", numbers(&ra.rgba).zip(numbers(&rb.rgba)));

    for r in [&mut *a, &mut *b] {
        r.loss(0, &case.loss).unwrap();
    }
    let (ta, tb) = (a.statistics().unwrap(), b.statistics().unwrap());
    out.add("loss, L1, SSIM", [(ta.loss, tb.loss), (ta.l1, tb.l1), (ta.ssim, tb.ssim)].into_iter());
    let (ga, gb) = (a.inspect_loss_gradient().unwrap(), b.inspect_loss_gradient().unwrap());
    out.add("gradient of the loss", numbers(&ga).zip(numbers(&gb)));

    for r in [&mut *a, &mut *b] {
        r.rasterise_backward().unwrap();
    }
    let (ga, gb) = (a.inspect_projected_gradient().unwrap(), b.inspect_projected_gradient().unwrap());
    let parts = [
        ("gradient: mean2d", 0..2),
        ("gradient: covariance", 2..5),
        ("gradient: opacity", 5..6),
        ("gradient: colour", 6..9),
    ];
    for (what, range) in parts {
        let of = |g: &[f64; 9]| g[range.clone()].to_vec();
        out.add(what, ga.iter().flat_map(of).zip(gb.iter().flat_map(of)));
    }
    let ((sa, ea), (sb, eb)) = (a.inspect_gradient().unwrap(), b.inspect_gradient().unwrap());
    let names = [
        "gradient: means",
        "gradient: log scales",
        "gradient: rotations",
        "gradient: logits",
        "gradient: SH",
    ];
    add_splats(&mut out, names, &sa, &sb);
    out.add("gradient: exposure", numbers(&ea).zip(numbers(&eb)));

    for r in [&mut *a, &mut *b] {
        r.update(&case.step).unwrap();
    }
    let (sa, sb) = (a.store().unwrap(), b.store().unwrap());
    add_splats(&mut out, ["means", "log scales", "rotations", "logits", "SH"], &sa.splats, &sb.splats);
    let names = ["first: means", "first: log scales", "first: rotations", "first: logits", "first: SH"];
    add_splats(&mut out, names, &sa.first_moments, &sb.first_moments);
    let names = ["second: means", "second: log scales", "second: rotations", "second: logits", "second: SH"];
    add_splats(&mut out, names, &sa.second_moments, &sb.second_moments);
    out.add("exposures", numbers(&sa.exposures).zip(numbers(&sb.exposures)));

    let (da, db) = (&sa.statistics, &sb.statistics);
    let f = |v: &f32| f64::from(*v);
    out.add("density: gradient", da.gradient.iter().map(f).zip(db.gradient.iter().map(f)));
    out.add("density: error", da.error.iter().map(f).zip(db.error.iter().map(f)));
    out.add("density: radius", da.radius.iter().map(f).zip(db.radius.iter().map(f)));
    out.add(
        "density: visible",
        da.visible.iter().map(|&v| f64::from(v)).zip(db.visible.iter().map(|&v| f64::from(v))),
    );
    for (r, state) in [(a, &sa), (b, &sb)] {
        let scores = r.density_scores().unwrap();
        // Compared as bits: a case has splats that are no numbers.
        let bits = |values: &[f32]| values.iter().map(|v| v.to_bits()).collect::<Vec<_>>();
        assert_eq!(bits(&scores.error), bits(&state.statistics.error));
        assert_eq!(bits(&scores.opacities), bits(&state.splats.opacities));
    }
    out
}
