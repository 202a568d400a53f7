//! Scenes, views and calls that make no sense: nothing panics, and what is sound stays sound.

use glam::{Vec3, Vec4, dvec3, vec3, vec4};

use super::super::*;
use crate::error::ErrorKind;
use crate::raster::parity::{self, Case};
use crate::splats::IDENTITY;

fn run(r: &mut dyn Rasteriser, case: &Case) {
    r.load(&case.state).unwrap();
    r.set_targets(vec![case.target.clone()]).unwrap();
    r.render(&case.view, case.sh_degree, case.background).unwrap();
    r.loss(0, &case.loss).unwrap();
    r.rasterise_backward().unwrap();
    r.update(&StepOptions { noise: 1e4, ..case.step }).unwrap();
}

fn all_finite(splats: &Splats, index: usize) -> bool {
    let stride = splats.sh.len() / splats.len();
    splats.means[index].is_finite()
        && splats.log_scales[index].is_finite()
        && splats.rotations[index].is_finite()
        && splats.opacities[index].is_finite()
        && splats.sh[index * stride..(index + 1) * stride].iter().all(|v| v.is_finite())
}

#[test]
fn broken_splats_are_not_seen_and_harm_no_other() {
    let clean = parity::cloud(50, 100, 1, 48, 40);
    let mut reference = CpuRasteriser::<f32>::new();
    run(&mut reference, &clean);
    let expected = (reference.rendering().unwrap(), reference.store().unwrap());
    let (nan, inf) = (f32::NAN, f32::INFINITY);
    type Harm = Box<dyn Fn(&mut Splats)>;
    let harms: Vec<(&str, Harm)> = vec![
        ("mean NaN", Box::new(move |s| s.means[100] = vec3(nan, 0.0, 0.0))),
        ("mean infinite", Box::new(move |s| s.means[100] = vec3(0.0, inf, 0.0))),
        ("mean far beyond", Box::new(|s| s.means[100] = vec3(3e38, 0.0, 3e38))),
        ("scale NaN", Box::new(move |s| s.log_scales[100] = Vec3::splat(nan))),
        ("scale infinite", Box::new(move |s| s.log_scales[100] = vec3(inf, 0.0, 0.0))),
        ("scale overflows", Box::new(|s| s.log_scales[100] = vec3(1e30, 0.0, 0.0))),
        ("scale minus infinity", Box::new(|s| s.log_scales[100] = Vec3::splat(f32::NEG_INFINITY))),
        ("quaternion zero", Box::new(|s| s.rotations[100] = Vec4::splat(0.0))),
        ("quaternion NaN", Box::new(move |s| s.rotations[100] = vec4(nan, 1.0, 0.0, 0.0))),
        ("opacity NaN", Box::new(move |s| s.opacities[100] = nan)),
        ("opacity infinite", Box::new(move |s| s.opacities[100] = inf)),
        ("colour NaN", Box::new(move |s| s.sh[1200] = nan)),
        ("colour infinite", Box::new(move |s| s.sh[1201] = -inf)),
    ];
    for (name, harm) in harms {
        let mut case = clean.clone();
        let s = &mut case.state.splats;
        s.means.push(Vec3::ZERO);
        s.log_scales.push(Vec3::splat(-2.0));
        s.rotations.push(IDENTITY);
        s.opacities.push(1.0);
        s.sh.extend([0.3; 12]);
        harm(s);
        for isa in Isa::available() {
            let mut r = CpuRasteriser::<f32>::with_isa(isa);
            run(&mut r, &case);
            let rendering = r.rendering().unwrap();
            let after = r.splats().unwrap();
            assert!((0..100).all(|i| all_finite(&after, i)), "{name} spread ({isa:?})");
            if isa == f32::best_isa() {
                assert!(rendering == expected.0, "{name} is seen");
                // Scales and opacities have regularisers that divide by the number of splats, which is one more.
                assert_eq!(after.means[..100], expected.1.splats.means[..], "{name} moved another splat");
            }
        }
    }
}

#[test]
fn absurd_but_finite_splats_break_nothing() {
    let mut case = parity::cloud(51, 120, 1, 48, 40);
    let s = &mut case.state.splats;
    s.log_scales[0] = Vec3::splat(20.0); // fills every picture
    s.log_scales[1] = vec3(30.0, -30.0, -30.0); // a needle without end
    s.log_scales[2] = Vec3::splat(-60.0); // a point
    s.opacities[3] = 80.0; // opaque beyond the cap
    s.opacities[4] = -80.0;
    s.rotations[5] = vec4(1e-18, 0.0, 0.0, 0.0);
    s.rotations[6] = vec4(1e18, 1e18, 0.0, 0.0);
    s.sh[12 * 7] = 1e20; // brighter than squares can be
    s.means[8] = vec3(1e15, 0.0, 1e15);
    for isa in Isa::available() {
        let mut r = CpuRasteriser::<f32>::with_isa(isa);
        run(&mut r, &case);
        let after = r.splats().unwrap();
        for i in 0..after.len() {
            assert!(all_finite(&after, i), "splat {i} is not finite any more ({isa:?})");
        }
        assert!(r.store().unwrap().second_moments.sh.iter().all(|v| v.is_finite()));
    }
    run(&mut CpuRasteriser::<f64>::new(), &case);
}

#[test]
fn nothing_to_see_is_the_background() {
    let mut away = parity::cloud(52, 50, 2, 37, 21);
    away.state.splats.means.iter_mut().for_each(|m| m.z = -50.0);
    let mut empty = parity::cloud(53, 50, 0, 37, 21);
    empty.state.splats = Splats::with_capacity(0, 0);
    for case in [away, empty] {
        let mut r = CpuRasteriser::<f32>::new();
        run(&mut r, &case);
        let [a, b, c] = case.background;
        assert!(r.rendering().unwrap().rgba.iter().all(|p| *p == [a, b, c, 0.0]));
        assert_eq!((r.statistics().unwrap().visible, r.statistics().unwrap().intersections), (0, 0));
        assert_eq!(r.splats().unwrap(), case.state.splats);
    }
}

#[test]
fn everything_in_one_tile() {
    let mut case = parity::cloud(54, 5000, 0, 64, 64);
    for i in 0..5000 {
        case.state.splats.means[i] = Vec3::splat(0.0);
        case.state.splats.log_scales[i] = Vec3::splat(-5.0);
        case.state.splats.opacities[i] = -3.0;
    }
    let mut r = CpuRasteriser::<f32>::new();
    run(&mut r, &case);
    let rendering = r.rendering().unwrap();
    assert!(rendering.rgba.iter().any(|p| p[3] > 0.99));
    assert!(rendering.rgba.iter().flatten().all(|v| v.is_finite()));
    // Equal depths: by number.
    r.load(&case.state).unwrap();
    r.render(&case.view, 0, case.background).unwrap();
    let pairs = r.inspect_intersections().unwrap();
    assert!(!pairs.is_empty() && pairs.windows(2).all(|w| w[0] < w[1]));
}

#[test]
fn wrong_calls_are_refused() {
    let case = parity::cloud(55, 20, 1, 32, 24);
    let mut r = CpuRasteriser::<f32>::new();
    let kind = |result: Result<()>| result.unwrap_err().kind();
    assert_eq!(kind(r.intersect()), ErrorKind::Internal);
    assert_eq!(kind(r.rendering().map(|_| ())), ErrorKind::Internal);
    r.load(&case.state).unwrap();
    for pass in [
        &mut |r: &mut CpuRasteriser<f32>| r.intersect() as Result<()>,
        &mut |r: &mut CpuRasteriser<f32>| r.sort(),
        &mut |r: &mut CpuRasteriser<f32>| r.rasterise([0.0; 3]),
        &mut |r: &mut CpuRasteriser<f32>| r.loss(0, &case.loss),
        &mut |r: &mut CpuRasteriser<f32>| r.rasterise_backward(),
        &mut |r: &mut CpuRasteriser<f32>| r.update(&case.step),
        &mut |r: &mut CpuRasteriser<f32>| r.inspect_gradient().map(|_| ()),
    ] as [&mut dyn FnMut(&mut CpuRasteriser<f32>) -> Result<()>; 7]
    {
        assert_eq!(kind(pass(&mut r)), ErrorKind::Internal);
    }
    assert_eq!(kind(r.project(&case.view, 2)), ErrorKind::InvalidArgument);
    for broken in [
        View { fx: 0.0, ..case.view },
        View { fy: f64::NAN, ..case.view },
        View { width: 0, ..case.view },
        View { height: 1 << 20, ..case.view },
        View { translation: dvec3(f64::INFINITY, 0.0, 0.0), ..case.view },
    ] {
        assert_eq!(kind(r.project(&broken, 1)), ErrorKind::InvalidArgument);
    }
    r.render(&case.view, 1, case.background).unwrap();
    assert_eq!(kind(r.rasterise([f32::NAN, 0.0, 0.0])), ErrorKind::InvalidArgument);
    assert_eq!(kind(r.loss(0, &case.loss)), ErrorKind::InvalidArgument);
    r.set_targets(vec![parity::target(0, 31, 24, false), case.target.clone()]).unwrap();
    assert_eq!(kind(r.loss(0, &case.loss)), ErrorKind::InvalidArgument);
    let exposed = LossOptions { exposure: Some(0), ..case.loss };
    assert_eq!(kind(r.loss(1, &exposed)), ErrorKind::InvalidArgument);
    r.loss(1, &case.loss).unwrap();
    r.rasterise_backward().unwrap();
    assert_eq!(kind(r.update(&StepOptions { step: 0, ..case.step })), ErrorKind::InvalidArgument);
    r.update(&case.step).unwrap();
    assert_eq!(kind(r.update(&case.step)), ErrorKind::Internal);

    let bad = Target { rgb: vec![0; 5], ..case.target.clone() };
    assert_eq!(kind(r.set_targets(vec![bad])), ErrorKind::InvalidArgument);
    let bad = Target { alpha: Some(vec![0; 5]), ..case.target.clone() };
    assert_eq!(kind(r.set_targets(vec![bad])), ErrorKind::InvalidArgument);
    let good = r.store().unwrap();
    let mut bad = good.clone();
    bad.first_moments.means.pop();
    assert_eq!(kind(r.load(&bad)), ErrorKind::InvalidFile);
    let mut bad = good.clone();
    bad.exposure_first_moments = vec![[0.0; 12]];
    assert_eq!(kind(r.load(&bad)), ErrorKind::InvalidFile);
    let mut bad = good.clone();
    bad.statistics.radius.pop();
    assert_eq!(kind(r.load(&bad)), ErrorKind::InvalidFile);
    assert!(r.store().unwrap() == good);
}
