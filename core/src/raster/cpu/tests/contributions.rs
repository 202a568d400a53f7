//! What a splat contributes, against pictures without it.

use glam::{Vec3, vec3, vec4};

use super::*;
use crate::camera::{Camera, CameraModel, Pose};
use crate::random::Random;
use crate::raster::load_for_viewing;

const BLACK: [f32; 3] = [0.0; 3];

fn view() -> View {
    View::new(&Camera::from_focal(CameraModel::Pinhole, 45.0, 50, 37), &Pose::identity())
}

/// Splats of many sizes before the camera.
fn cloud(count: usize) -> Splats {
    let mut random = Random::new(11);
    let mut splats = Splats::with_capacity(count, 0);
    for _ in 0..count {
        let z = 1.0 + 3.0 * random.uniform();
        let across = |v: f64| ((v - 0.5) * z) as f32;
        splats.means.push(vec3(across(random.uniform()), across(random.uniform()), z as f32));
        splats
            .log_scales
            .push(Vec3::from_array(std::array::from_fn(|_| -4.0 + 2.5 * random.uniform() as f32)));
        splats.rotations.push(vec4(1.0, random.normal() as f32, random.normal() as f32, 0.3));
        splats.opacities.push(random.normal() as f32);
        splats.sh.extend((0..3).map(|_| random.normal() as f32));
    }
    splats
}

fn squared_error(splats: &Splats, truth: &[[f32; 3]]) -> f64 {
    let mut rasteriser = CpuRasteriser::<f64>::new();
    load_for_viewing(&mut rasteriser, splats).unwrap();
    let rendering = rasteriser.render(&view(), 0, BLACK).unwrap();
    let square = |(p, t): (&[f32; 4], &[f32; 3])| {
        (0..3).map(|c| (f64::from(p[c]) - f64::from(t[c])).powi(2)).sum::<f64>()
    };
    rendering.rgba.iter().zip(truth).map(square).sum()
}

#[test]
fn the_error_rises_by_as_much_as_was_said() {
    let splats = cloud(120);
    let mut random = Random::new(3);
    let pixels = (view().width * view().height) as usize;
    let truth: Vec<[f32; 3]> =
        (0..pixels).map(|_| std::array::from_fn(|_| random.uniform() as f32)).collect();
    let mut rasteriser = CpuRasteriser::<f32>::new();
    load_for_viewing(&mut rasteriser, &splats).unwrap();
    assert!(rasteriser.contributions(&truth, 0.9).is_err(), "nothing was rasterised");
    let rendering = rasteriser.render(&view(), 0, BLACK).unwrap();
    assert!(rasteriser.contributions(&truth[1..], 0.9).is_err(), "a picture of another size");
    let contributions = rasteriser.contributions(&truth, 0.9).unwrap();
    let before = squared_error(&splats, &truth);
    let (mut weight, mut seen) = (0.0, 0);
    for c in &contributions {
        assert!(c.in_front <= c.weight && c.largest <= c.weight, "{c:?}");
        weight += f64::from(c.weight);
        let mut others = splats.clone();
        others.retain(|i| i != c.index as usize);
        let rise = squared_error(&others, &truth) - before;
        assert!((f64::from(c.rise) - rise).abs() < 1e-3 * (1.0 + rise.abs()), "{c:?}: {rise}");
        seen += usize::from(rise.abs() > 0.1);
    }
    assert!(seen > 50, "{seen} splats matter");
    let alpha: f64 = rendering.rgba.iter().map(|p| f64::from(p[3])).sum();
    assert!((weight - alpha).abs() < 1e-4 * alpha, "{weight} of {alpha}");
}

#[test]
fn in_front_is_what_is_nearer_than_the_median_depth() {
    // A wall, faint splats just and well before it, and one behind it.
    let mut splats = Splats::default();
    for (z, log_scale, opacity) in [(4.0, 1.0, 6.0), (3.8, -1.5, -2.0), (2.0, -2.0, -2.0), (5.0, 1.0, 6.0)] {
        splats.means.push(vec3(0.0, 0.0, z));
        splats.log_scales.push(vec3(log_scale, log_scale, -5.0));
        splats.rotations.push(vec4(1.0, 0.0, 0.0, 0.0));
        splats.opacities.push(opacity);
        splats.sh.extend([0.5; 3]);
    }
    let truth = vec![BLACK; (view().width * view().height) as usize];
    let mut rasteriser = CpuRasteriser::<f32>::new();
    load_for_viewing(&mut rasteriser, &splats).unwrap();
    rasteriser.render(&view(), 0, BLACK).unwrap();
    let shares: Vec<f32> =
        rasteriser.contributions(&truth, 0.9).unwrap().iter().map(|c| c.in_front / c.weight).collect();
    assert_eq!(shares, [0.0, 0.0, 1.0, 0.0]);
}
