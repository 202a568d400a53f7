//! The steps together, on a scene whose geometry is known exactly: a ball on a table.

use image::{GrayImage, Luma, Rgb, RgbImage};
use nalgebra::Vector3;

use super::consistency::agree;
use super::evidence::{Label, ScenePoint, Stage, weigh};
use super::hull::{Cube, Hull, Silhouette};
use super::views::{View, mask_of, project};
use crate::camera::Pose;
use crate::control::Control;
use crate::masks::intersection_over_union;
use crate::random::hash;
use crate::raster;
use crate::train::centre;

const BALL: Vector3<f64> = Vector3::new(0.1, 0.0, -0.1);
const RADIUS: f64 = 0.5;
/// The table is the plane y = 0.5: the ball lies on it.
const TABLE: f64 = 0.5;
const WIDTH: u32 = 160;
const HEIGHT: u32 = 120;

/// A camera on a circle around the scene, somewhat above.
fn camera(index: usize, count: usize) -> raster::View {
    let angle = std::f64::consts::TAU * index as f64 / count as f64;
    let position = Vector3::new(3.0 * angle.cos(), -1.5 - 0.5 * (3.0 * angle).sin(), 3.0 * angle.sin());
    let pose = Pose::look_at(&position, &Vector3::zeros(), &-Vector3::y()).unwrap();
    let rotation = pose.rotation_matrix();
    raster::View {
        rotation: std::array::from_fn(|r| std::array::from_fn(|c| rotation[(r, c)])),
        translation: pose.translation.into(),
        fx: 180.0,
        fy: 180.0,
        cx: 80.0,
        cy: 60.0,
        width: WIDTH,
        height: HEIGHT,
    }
}

/// What the ray of a pixel hits: the ball or the table, if any.
fn hit(view: &raster::View, x: f64, y: f64) -> Option<(Vector3<f64>, Label)> {
    let d = Vector3::new((x - view.cx) / view.fx, (y - view.cy) / view.fy, 1.0);
    let r = &view.rotation;
    let d = Vector3::from_fn(|c, _| r[0][c] * d.x + r[1][c] * d.y + r[2][c] * d.z).normalize();
    let o = centre(view);
    let (b, c) = ((o - BALL).dot(&d), (o - BALL).norm_squared() - RADIUS * RADIUS);
    let root = b * b - c;
    if root > 0.0 {
        return Some((o + (-b - root.sqrt()) * d, Label::Object));
    }
    let t = (TABLE - o.y) / d.y;
    (t > 0.0).then(|| (o + t * d, Label::Background))
}

fn truth(view: &raster::View) -> GrayImage {
    GrayImage::from_fn(view.width, view.height, |x, y| {
        let object = hit(view, f64::from(x) + 0.5, f64::from(y) + 0.5).is_some_and(|h| h.1 == Label::Object);
        Luma([255 * u8::from(object)])
    })
}

/// A reddish ball on a wooden table before a grey room, with some noise.
fn picture(view: &raster::View) -> RgbImage {
    RgbImage::from_fn(view.width, view.height, |x, y| {
        let noise = (hash(u64::from(x) * 7919 + u64::from(y)) % 16) as u8;
        match hit(view, f64::from(x) + 0.5, f64::from(y) + 0.5) {
            Some((_, Label::Object)) => Rgb([180 + noise, 60 + noise, 50]),
            Some(_) => Rgb([150 + noise, 110 + noise, 60]),
            None => Rgb([100 + noise, 100 + noise, 110]),
        }
    })
}

/// What a network might say: the ball, in some views only its left half, in some nothing, and the shadow beside it.
fn saliency(view: &raster::View, index: usize) -> GrayImage {
    let mut map = truth(view);
    for (x, y, pixel) in map.enumerate_pixels_mut() {
        match index % 4 {
            0 if x > 80 => pixel[0] = 0,
            1 if (75..100).contains(&y) && (20..60).contains(&x) => pixel[0] = 230,
            3 if index % 8 == 3 => pixel[0] = 0,
            _ => {}
        }
    }
    map
}

/// Points on the surfaces, seen from where they are not hidden.
fn points(cameras: &[raster::View], textured_table: bool) -> Vec<ScenePoint> {
    let mut points = Vec::new();
    for (index, view) in cameras.iter().enumerate() {
        for k in 0..250u64 {
            let key = hash(index as u64 * 1000 + k);
            let (x, y) = (key % 16_000, (key >> 20) % 12_000);
            let Some((position, label)) = hit(view, x as f64 / 100.0, y as f64 / 100.0) else { continue };
            if (position - BALL).norm() > 2.0 || (label == Label::Background && !textured_table) {
                continue;
            }
            let seen = cameras
                .iter()
                .enumerate()
                .filter_map(|(other, view)| {
                    let (x, y, _) = project(view, &position)?;
                    let visible = hit(view, x, y).is_some_and(|h| (h.0 - position).norm() < 1e-3);
                    let inside = x >= 0.0 && y >= 0.0 && x < 160.0 && y < 120.0;
                    (visible && inside).then_some((other as u32, (x / 160.0) as f32, (y / 120.0) as f32))
                })
                .collect();
            points.push(ScenePoint { position, seen });
        }
    }
    points
}

fn capture(count: usize) -> (Vec<raster::View>, Vec<View>) {
    let cameras: Vec<raster::View> = (0..count).map(|i| camera(i, count)).collect();
    let views = cameras
        .iter()
        .enumerate()
        .map(|(i, view)| View::new(*view, &picture(view), &saliency(view, i)))
        .collect();
    (cameras, views)
}

#[test]
fn the_hull_of_exact_masks_is_the_object_and_wrong_views_are_outvoted() {
    let (cameras, mut views) = capture(24);
    for (view, camera) in views.iter_mut().zip(&cameras) {
        view.probability = truth(camera).into_raw();
    }
    let reach = Vector3::repeat(0.8);
    let exact = Hull::carve(&views, &(BALL - reach), &(BALL + reach), None);
    let cube = 1.6f64 / 128.0;
    // From one ring of cameras the hull is a little more than the ball.
    let ball = 4.0 / 3.0 * std::f64::consts::PI * RADIUS.powi(3) / cube.powi(3);
    let count = |hull: &Hull| hull.cubes.iter().filter(|c| **c != Cube::Empty).count() as f64;
    let ratio = count(&exact) / ball;
    assert!((0.98..1.3).contains(&ratio), "{ratio}");
    // Two of 24 masks see nothing of the right half; two are empty and say nothing.
    for index in [3, 11] {
        for (k, p) in views[index].probability.iter_mut().enumerate() {
            *p *= u8::from(k % 160 < 80);
        }
    }
    views[5].probability.fill(0);
    views[17].probability.fill(0);
    let voted = Hull::carve(&views, &(BALL - reach), &(BALL + reach), None);
    let ratio = count(&voted) / count(&exact);
    assert!((0.97..1.3).contains(&ratio), "{ratio}");
    // Seen again from the cameras, it covers the ball and little else.
    for (view, camera) in views.iter().zip(&cameras) {
        let (seen, truth) = (exact.seen_in(view), truth(camera));
        let pixels = || seen.iter().zip(truth.pixels());
        let object = pixels().filter(|(_, t)| t[0] == 255).count();
        // Hardly a pixel of the ball is outside, and nothing inside is beside the ball.
        let missed = pixels().filter(|(s, t)| **s == Silhouette::Outside && t[0] == 255).count();
        let wrong = pixels().filter(|(s, t)| **s == Silhouette::Inside && t[0] == 0).count();
        let inside = pixels().filter(|(s, _)| **s == Silhouette::Inside).count();
        let possible = pixels().filter(|(s, _)| **s != Silhouette::Outside).count();
        assert!(50 * missed < object && 50 * wrong < object, "{missed}, {wrong} of {object}");
        assert!(10 * inside > 8 * object && 10 * possible < 12 * object, "{inside}, {possible}, {object}");
    }
}

#[test]
fn views_agree_on_the_object_where_single_ones_are_wrong() {
    for textured_table in [true, false] {
        let (cameras, mut views) = capture(24);
        let points = points(&cameras, textured_table);
        let stage = Stage::of(&cameras).unwrap();
        assert!(stage.focus.norm() < 0.1 && (stage.distance - 3.35).abs() < 0.2, "{stage:?}");
        let evidence = weigh(&points, points.len(), &views, &stage, &cameras);
        assert_eq!(evidence.plane.is_some(), textured_table);
        if let Some(plane) = &evidence.plane {
            assert!(plane.height(&Vector3::new(0.0, TABLE, 0.0)).abs() < 0.01, "{plane:?}");
        }
        agree(&mut views, &points, points.len(), &evidence, &stage, &Control::new()).unwrap();
        let mut overlaps = Vec::new();
        for (index, (view, camera)) in views.iter().zip(&cameras).enumerate() {
            let mask = GrayImage::from_raw(WIDTH, HEIGHT, view.probability.clone()).unwrap();
            let single = intersection_over_union(&saliency(camera, index), &truth(camera));
            overlaps.push((intersection_over_union(&mask, &truth(camera)), single));
        }
        let worst = overlaps.iter().map(|o| o.0).fold(1.0, f64::min);
        let mean = overlaps.iter().map(|o| o.0).sum::<f64>() / overlaps.len() as f64;
        assert!(mean > 0.95 && worst > 0.9, "{textured_table}: mean {mean}, worst {worst}");
        assert!(overlaps.iter().any(|o| o.1 == 0.0), "some single masks are empty");
    }
}

#[test]
fn the_number_of_threads_changes_nothing() {
    let run = |threads: usize| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        pool.install(|| {
            let (cameras, mut views) = capture(8);
            let points = points(&cameras, true);
            let stage = Stage::of(&cameras).unwrap();
            let evidence = weigh(&points, points.len(), &views, &stage, &cameras);
            agree(&mut views, &points, points.len(), &evidence, &stage, &Control::new()).unwrap();
            views.into_iter().map(|v| v.probability).collect::<Vec<_>>()
        })
    };
    assert_eq!(run(1), run(3));
}

#[test]
fn points_of_stereo_are_believed_where_views_confirm_them() {
    let (cameras, views) = capture(12);
    let stage = Stage::of(&cameras).unwrap();
    let mut points = points(&cameras, true);
    let exact = points.len();
    // Two that float in the air above the table, seen by two views each.
    for position in [Vector3::new(0.1, -0.9, -0.1), Vector3::new(0.9, 0.1, -0.1)] {
        let seen = [0u32, 1].map(|v| {
            let (x, y, _) = project(&cameras[v as usize], &position).unwrap();
            (v, (x / 160.0) as f32, (y / 120.0) as f32)
        });
        points.push(ScenePoint { position, seen: seen.into() });
    }
    let evidence = weigh(&points, 0, &views, &stage, &cameras);
    let labels = &evidence.labels;
    // The top one stands against the sky, of which nothing is known; through the other the table is seen.
    assert_ne!(labels[exact + 1], Label::Object);
    let kept = points[..exact].iter().zip(labels).filter(|(_, l)| **l == Label::Object);
    let on_ball = |p: &ScenePoint| ((p.position - BALL).norm() - RADIUS).abs() < 1e-6;
    let kept: Vec<bool> = kept.map(|(p, _)| on_ball(p)).collect();
    assert!(kept.len() > 150 && kept.iter().all(|k| *k), "{}", kept.len());
}

#[test]
fn a_mask_follows_the_edges_of_the_larger_picture() {
    let edge = |x: u32| if x < 203 { Rgb([200, 50, 40]) } else { Rgb([60, 90, 200]) };
    let picture = RgbImage::from_fn(400, 300, |x, _| edge(x));
    // At a quarter of the size the edge cannot be in its place.
    let odds: Vec<f32> = (0..100 * 75).map(|k| if k % 100 < 51 { 2.0 } else { -2.0 }).collect();
    let mask = mask_of(&picture, &odds, 100, 75);
    let at = |x: u32| mask.get_pixel(x, 150).0[0];
    assert!(at(200) > 250 && at(206) < 5, "{} {}", at(200), at(206));
}
