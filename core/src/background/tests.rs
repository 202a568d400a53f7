//! The steps together, on a scene whose geometry is known exactly: a ball on a table, and another one elsewhere.

use std::path::Path;

use glam::DVec3;
use image::{GrayImage, Luma, Rgb, RgbImage};
use nalgebra::{Matrix3, Vector3};

use super::agreement::{Agreed, AgreementOptions, agree_at, agree_on};
use super::evidence::Odds;
use super::finished_scene::FinishedScene;
use super::labelling::{LabelOptions, ObjectLabels, Votes, find_plane, label};
use super::outside::ObjectOutline;
use super::pieces::{Choice, Sought};
use super::pointing::Pointed;
use super::quick_scene::QuickScene;
use super::sampled_maps::foretell;
use super::support_plane::SupportPlane;
use super::views::{EdgeOptions, SalientView, mask_of};
use crate::camera::{Camera, CameraModel, Gaze, GazeOptions, Image, Point3D, Pose, SparseModel};
use crate::control::Control;
use crate::masks::{LEAST_COVERAGE, coverage, intersection_over_union, mask_path, write_mask};
use crate::random::{Random, hash};
use crate::raster;
use crate::splats::{IDENTITY, SH_C0, Splats};
use crate::train::{Dataset, TrainOptions, Trainer, evaluate_splats};

const BALL: Vector3<f64> = Vector3::new(0.1, 0.0, -0.1);
const RADIUS: f64 = 0.5;
/// The table is the plane y = 0.5: the ball lies on it.
const TABLE: f64 = 0.5;
const WIDTH: u32 = 160;
const HEIGHT: u32 = 120;

/// A second ball, in the air behind the cameras on one side, which some of them turn to.
const OTHER: Vector3<f64> = Vector3::new(3.6, 0.0, 0.0);

fn lens() -> Camera {
    Camera::from_focal(CameraModel::Pinhole, 180.0, WIDTH, HEIGHT)
}

/// A camera at `angle` on a circle around the scene, somewhat above.
fn camera(angle: f64, target: &Vector3<f64>) -> raster::View {
    let position = Vector3::new(3.0 * angle.cos(), -1.5 - 0.5 * (3.0 * angle).sin(), 3.0 * angle.sin());
    let pose = Pose::look_at(&position, target, &-Vector3::y()).unwrap();
    raster::View::new(&lens(), &pose)
}

#[derive(Debug, PartialEq)]
enum Thing {
    Ball,
    Other,
    Table,
}

/// The ray of a pixel: from where, and in which direction (unit length).
fn ray(view: &raster::View, x: f64, y: f64) -> (Vector3<f64>, Vector3<f64>) {
    let centre = view.centre();
    (centre, (view.unproject(x, y, 1.0) - centre).normalize())
}

/// What the ray of a pixel hits, if anything.
fn hit(view: &raster::View, x: f64, y: f64) -> Option<Thing> {
    let (o, d) = ray(view, x, y);
    let ball = |middle: Vector3<f64>| {
        let (b, c) = ((o - middle).dot(&d), (o - middle).norm_squared() - RADIUS * RADIUS);
        (b < 0.0 && b * b > c).then_some(-b)
    };
    match (ball(BALL), ball(OTHER)) {
        (Some(near), Some(far)) if far < near => Some(Thing::Other),
        (Some(_), _) => Some(Thing::Ball),
        (None, Some(_)) => Some(Thing::Other),
        (None, None) => ((TABLE - o.y) / d.y > 0.0).then_some(Thing::Table),
    }
}

/// The mask of `thing`.
fn outline(view: &raster::View, thing: &Thing) -> GrayImage {
    GrayImage::from_fn(view.width, view.height, |x, y| {
        let seen = hit(view, f64::from(x) + 0.5, f64::from(y) + 0.5);
        Luma([255 * u8::from(seen.as_ref() == Some(thing))])
    })
}

fn truth(view: &raster::View) -> GrayImage {
    outline(view, &Thing::Ball)
}

/// A reddish ball on a wooden table before a grey room, with some noise.
fn picture(view: &raster::View) -> RgbImage {
    RgbImage::from_fn(view.width, view.height, |x, y| {
        let noise = (hash(u64::from(x) * 7919 + u64::from(y)) % 16) as u8;
        match hit(view, f64::from(x) + 0.5, f64::from(y) + 0.5) {
            Some(Thing::Ball | Thing::Other) => Rgb([180 + noise, 60 + noise, 50]),
            Some(Thing::Table) => Rgb([150 + noise, 110 + noise, 60]),
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

/// The scene as training might leave it: small Gaussians on the balls, flat ones on the table.
fn scene(table: bool) -> QuickScene {
    shaded_scene(table, |_| 0.7)
}

/// With a brightness (0 to 1) for each place.
fn shaded_scene(table: bool, shade: impl Fn(&Vector3<f64>) -> f32) -> QuickScene {
    QuickScene::of(shaded_splats(table, shade))
}

fn shaded_splats(table: bool, shade: impl Fn(&Vector3<f64>) -> f32) -> Splats {
    let mut random = Random::new(5);
    let mut unit = || 2.0 * random.uniform() - 1.0;
    let mut splats = Splats { sh_degree: 0, ..Splats::default() };
    let mut add =
        |mean: Vector3<f64>, scales: [f64; 3]| add_gaussian(&mut splats, &mean, scales, shade(&mean));
    for _ in 0..6000 {
        let Some(direction) = Vector3::new(unit(), unit(), unit()).try_normalize(0.1) else { continue };
        // Their middles are below the surface, which they reach by their size and the blur of a pixel: together they
        // are half transparent where it is.
        add(BALL + (RADIUS - 0.03) * direction, [0.012; 3]);
        add(OTHER + (RADIUS - 0.03) * direction, [0.012; 3]);
        if table {
            add(Vector3::new(2.0 * unit(), TABLE + 0.002 * unit(), 2.0 * unit()), [0.03, 0.001, 0.03]);
        }
    }
    splats
}

fn add_gaussian(splats: &mut Splats, mean: &Vector3<f64>, scales: [f64; 3], shade: f32) {
    splats.means.push(DVec3::from_array((*mean).into()).as_vec3());
    splats.log_scales.push(scales.map(|s| s.ln() as f32).into());
    splats.rotations.push(IDENTITY);
    splats.opacities.push(3.0);
    splats.sh.extend([(shade - 0.5) / SH_C0; 3]);
}

fn views(count: usize) -> Vec<SalientView> {
    let angle = |i: usize| std::f64::consts::TAU * i as f64 / count as f64;
    let cameras = (0..count).map(|i| camera(angle(i), &Vector3::zeros()));
    cameras.enumerate().map(|(i, c)| SalientView::new(c, saliency(&c, i), &picture(&c))).collect()
}

fn pose(camera: &raster::View) -> Pose {
    let rotation = Matrix3::from(camera.rotation.to_cols_array_2d());
    Pose::from_matrix(&rotation, camera.translation.to_array().into())
}

fn gaze(views: &[SalientView]) -> Gaze {
    let camera = lens();
    let poses: Vec<Pose> = views.iter().map(|view| pose(&view.camera)).collect();
    let cameras: Vec<(&Pose, &Camera)> = poses.iter().map(|pose| (pose, &camera)).collect();
    Gaze::of_cameras(&cameras, &GazeOptions::default()).unwrap()
}

fn labels(scene: &QuickScene, views: &[SalientView]) -> (ObjectLabels, Option<SupportPlane>) {
    let (gaze, options) = (gaze(views), LabelOptions::default());
    let votes = super::labelling::saliency(scene, views, &gaze, &options).unwrap();
    let plane = find_plane(scene, &votes, views, &gaze, &options);
    (label(scene, &votes, views, &gaze, plane.as_ref(), None, &options), plane)
}

fn agreed(scene: &QuickScene, views: &[SalientView]) -> Agreed {
    let sought = Sought { gaze: &gaze(views), choice: Choice::Watched };
    agree_on(scene, views, sought, &AgreementOptions::default(), &Control::new()).unwrap()
}

/// The masks of all views.
fn masks(scene: &QuickScene, views: &[SalientView], expect_plane: bool) -> Vec<GrayImage> {
    let agreed = agreed(scene, views);
    assert_eq!(agreed.plane.is_some(), expect_plane);
    if let Some(plane) = &agreed.plane {
        assert!(plane.height(&Vector3::new(0.0, TABLE, 0.0)).abs() < 0.01, "{plane:?}");
    }
    assert!(agreed.found.contains(&BALL) && !agreed.found.contains(&OTHER));
    let mask = |(view, odds): (&SalientView, &Vec<Odds>)| {
        let odds: Vec<f32> = odds.iter().map(|o| o.log_odds()).collect();
        mask_of(&picture(&view.camera), &odds, WIDTH as usize, HEIGHT as usize, &EdgeOptions::default())
    };
    views.iter().zip(&agreed.found.odds).map(mask).collect()
}

#[test]
fn what_the_network_would_have_said_is_foretold_from_other_views() {
    let (scene, mut views) = (scene(true), views(24));
    let looked: Vec<bool> = (0..24).map(|i| i % 3 == 0).collect();
    for (view, looked) in views.iter_mut().zip(&looked) {
        let map = if *looked { truth(&view.camera) } else { GrayImage::new(WIDTH, HEIGHT) };
        view.saliency = map.into_raw();
    }
    let place = gaze(&views);
    foretell(&mut views, &looked, &scene, &place, &LabelOptions::default()).unwrap();
    let overlaps: Vec<f64> = views
        .iter()
        .map(|view| {
            let map = GrayImage::from_raw(WIDTH, HEIGHT, view.saliency.clone()).unwrap();
            intersection_over_union(&map, &truth(&view.camera))
        })
        .collect();
    let worst =
        |of: bool| overlaps.iter().zip(&looked).filter(|o| *o.1 == of).map(|o| *o.0).fold(1.0, f64::min);
    assert!(worst(true) == 1.0 && worst(false) > 0.85, "{overlaps:?}");
    // Where nobody looked nothing is foretold.
    let before = views[1].saliency.clone();
    foretell(&mut views, &[false; 24], &scene, &place, &LabelOptions::default()).unwrap();
    assert_eq!(views[1].saliency, before);
}

#[test]
fn views_agree_on_the_object_where_single_ones_are_wrong() {
    for table in [true, false] {
        let views = views(24);
        let place = gaze(&views);
        assert!(place.focus.norm() < 0.1 && (place.distance - 3.35).abs() < 0.2, "{place:?}");
        let mut overlaps = Vec::new();
        for (index, (view, mask)) in views.iter().zip(masks(&scene(table), &views, table)).enumerate() {
            let truth = truth(&view.camera);
            let single = intersection_over_union(&saliency(&view.camera, index), &truth);
            overlaps.push((intersection_over_union(&mask, &truth), single));
        }
        let worst = overlaps.iter().map(|o| o.0).fold(1.0, f64::min);
        let mean = overlaps.iter().map(|o| o.0).sum::<f64>() / overlaps.len() as f64;
        println!("table {table}: mean {mean:.3}, worst {worst:.3}");
        assert!(mean > 0.95 && worst > 0.9, "{table}: mean {mean}, worst {worst}");
        assert!(overlaps.iter().any(|o| o.1 == 0.0), "some single masks are empty");
    }
}

#[test]
fn views_that_turn_to_something_else_have_no_vote_and_no_object() {
    for table in [true, false] {
        let mut views = views(24);
        // A third of the film shows the other ball, which is then as salient as can be.
        for i in 0..12 {
            let angle = if i < 6 { 0.9 } else { -1.3 } + 0.07 * f64::from(i % 6);
            let away = camera(angle, &OTHER);
            assert!(coverage(&truth(&away)) == 0.0);
            views.push(SalientView::new(away, outline(&away, &Thing::Other), &picture(&away)));
        }
        let place = gaze(&views);
        assert!(place.focus.norm() < 0.1 && (place.distance - 3.35).abs() < 0.2, "{place:?}");
        for (index, (view, mask)) in views.iter().zip(masks(&scene(table), &views, table)).enumerate() {
            let overlap = intersection_over_union(&mask, &truth(&view.camera));
            let seen = coverage(&mask);
            if index < 24 {
                assert!(overlap > 0.9, "{table}: {overlap} in view {index}");
            } else {
                assert!(seen <= LEAST_COVERAGE, "{table}: {seen} of view {index} is no object");
            }
        }
    }
}

/// The radius of a pillar on the table, and where it ends above.
const PILLAR: (f64, f64) = (0.25, -1.7);

/// Whether a pixel shows the pillar around `axis`.
fn shows_pillar(view: &raster::View, x: f64, y: f64, axis: &Vector3<f64>) -> bool {
    let (radius, top) = PILLAR;
    let (o, d) = ray(view, x, y);
    let from = o - axis;
    let (a, b) = (d.x * d.x + d.z * d.z, from.x * d.x + from.z * d.z);
    let square = b * b - a * (from.x * from.x + from.z * from.z - radius * radius);
    let off = (-b - square.max(0.0).sqrt()) / a;
    let is_hit = square > 0.0 && off > 0.0 && (top..TABLE).contains(&(o.y + off * d.y));
    is_hit && (off < (BALL - o).norm() || hit(view, x, y) != Some(Thing::Ball))
}

#[test]
fn a_thing_before_the_object_takes_nothing_from_it() {
    // On the way from the first camera to the ball stands a pillar with a texture, which no view finds salient.
    let mut views = views(50);
    let before = BALL + 0.6 * (views[0].camera.centre() - BALL);
    let axis = Vector3::new(before.x, 0.0, before.z);
    for view in &mut views {
        let camera = view.camera;
        let mut picture = picture(&camera);
        view.saliency = truth(&camera).into_raw();
        for (k, saliency) in view.saliency.iter_mut().enumerate() {
            let (x, y) = (k as u32 % WIDTH, k as u32 / WIDTH);
            if shows_pillar(&camera, f64::from(x) + 0.5, f64::from(y) + 0.5, &axis) {
                let shade = (hash(k as u64) % 80) as u8;
                picture.put_pixel(x, y, Rgb([60 + shade, 100 + shade, 60]));
                *saliency = 0;
            }
        }
        view.colours = picture.pixels().map(|p| p.0).collect();
    }
    let mut splats = shaded_splats(true, |_| 0.7);
    let mut random = Random::new(11);
    let (radius, top) = PILLAR;
    for _ in 0..9000 {
        let (sin, cos) = (std::f64::consts::TAU * random.uniform()).sin_cos();
        let (beside, height) = ((radius - 0.03) * Vector3::new(cos, 0.0, sin), random.uniform());
        let mean = axis + beside + Vector3::new(0.0, top + height * (TABLE - top), 0.0);
        add_gaussian(&mut splats, &mean, [0.012; 3], 0.2);
    }
    let found = agreed(&QuickScene::of(splats), &views).found;
    let (x, y, z) = (Vector3::x(), Vector3::y(), Vector3::z());
    for direction in [Vector3::zeros(), x, y, z, -x, -y, -z] {
        assert!(found.contains(&(BALL + 0.8 * RADIUS * direction)), "{direction:?}");
        assert!(direction == Vector3::zeros() || !found.contains(&(BALL + 1.4 * RADIUS * direction)));
    }
    assert!(!found.contains(&before));
    // The pillar itself is no object in the picture.
    let camera = &views[0].camera;
    let (x, y, _) = camera.project(&BALL).unwrap();
    assert!(found.odds[0][camera.pixel(x, y).unwrap()].log_odds() < 0.0);
}

/// What the views agree on where a person points at a place in one of them.
fn agreed_at(scene: &QuickScene, views: &[SalientView], view: usize, place: &Vector3<f64>) -> Option<Agreed> {
    let (x, y, _) = views[view].camera.project(place).unwrap();
    let pointed = Pointed { view, x, y };
    agree_at(scene, views, &gaze(views), pointed, &AgreementOptions::default(), &Control::new()).unwrap()
}

#[test]
fn what_a_person_points_at_is_the_object() {
    let (mut views, scene) = (views(24), scene(false));
    // So many turn to the other ball that it can be known.
    for i in 0..12 {
        let away = camera(0.5 * f64::from(i), &OTHER);
        views.push(SalientView::new(away, outline(&away, &Thing::Other), &picture(&away)));
    }
    let at = |view: usize, thing: &Vector3<f64>| agreed_at(&scene, &views, view, thing);
    let (ball, other) = (at(0, &BALL).unwrap().found, at(30, &OTHER).unwrap().found);
    assert!(ball.contains(&BALL) && !ball.contains(&OTHER));
    assert!(other.contains(&OTHER) && !other.contains(&BALL));
    assert!(at(0, &(BALL + Vector3::new(0.0, -0.9, 0.0))).is_none(), "nothing is there");
}

#[test]
fn what_a_person_points_at_is_found_where_the_network_sees_nothing() {
    let mut views = views(24);
    for view in &mut views {
        view.saliency.fill(0);
    }
    let found = agreed_at(&scene(false), &views, 0, &BALL).unwrap().found;
    assert!(found.contains(&BALL) && !found.contains(&OTHER));
    assert!(!found.contains(&(BALL - Vector3::new(0.0, 1.4 * RADIUS, 0.0))));
}

/// The labels of a scene with a table in which a person points at the top of the ball and no plane is known.
fn labels_at_top(scene: &QuickScene, votes: &[Votes]) -> ObjectLabels {
    let gaze = Gaze { focus: BALL, converges: true, distance: 3.3, up: -Vector3::y() };
    let top = BALL - Vector3::new(0.0, RADIUS, 0.0);
    label(scene, votes, &[], &gaze, None, Some(&top), &LabelOptions::default())
}

fn is_on_table(place: &Vector3<f64>) -> bool {
    (place.y - TABLE).abs() < 0.003
}

/// A scene with a table that is darker than the balls.
fn scene_on_dark_table() -> QuickScene {
    shaded_scene(true, |p| if is_on_table(p) { 0.4 } else { 0.7 })
}

#[test]
fn what_is_pointed_at_is_connected_by_its_colour() {
    let scene = scene_on_dark_table();
    let labels = labels_at_top(&scene, &vec![Votes::default(); scene.centres.len()]);
    let is_object = |there: &dyn Fn(&Vector3<f64>) -> bool| {
        let of = scene.centres.iter().zip(&labels.object).filter(|(p, _)| there(p));
        let object: Vec<bool> = of.map(|(_, object)| *object == Some(1.0)).collect();
        object.iter().filter(|is_object| **is_object).count() as f64 / object.len() as f64
    };
    assert!(is_object(&|p| (p - BALL).norm() < RADIUS && !is_on_table(p)) > 0.95);
    assert_eq!((is_object(&is_on_table), is_object(&|p| (p - OTHER).norm() < RADIUS)), (0.0, 0.0));
}

#[test]
fn a_table_of_the_colour_of_what_is_pointed_at_is_no_part_of_it() {
    // Nothing tells where the ball ends: better nothing than the ball with a table.
    let scene = scene(true);
    let labels = labels_at_top(&scene, &vec![Votes::default(); scene.centres.len()]);
    assert!(labels.object.iter().all(|object| *object == Some(0.0)));
}

#[test]
fn where_the_network_sees_what_a_person_points_at_its_word_stands() {
    let (scene, views) = (scene_on_dark_table(), views(24));
    let (place, options) = (gaze(&views), LabelOptions::default());
    let votes = super::labelling::saliency(&scene, &views, &place, &options).unwrap();
    let top = BALL - Vector3::new(0.0, RADIUS, 0.0);
    let [asked, not_asked] =
        [Some(&top), None].map(|at| label(&scene, &votes, &views, &place, None, at, &options).object);
    assert!(asked.contains(&Some(1.0)));
    assert_eq!(asked, not_asked);
}

/// Views whose network sees the ball as it is, and whose pictures have texture on the balls and none elsewhere, which would tell the
/// depth of what is there.
fn views_with_blank_room() -> Vec<SalientView> {
    let mut views = views(24);
    for view in &mut views {
        let mut picture = picture(&view.camera);
        for (x, y, pixel) in picture.enumerate_pixels_mut() {
            if !matches!(
                hit(&view.camera, f64::from(x) + 0.5, f64::from(y) + 0.5),
                Some(Thing::Ball | Thing::Other)
            ) {
                *pixel = Rgb([100, 100, 110]);
            }
        }
        *view = SalientView::new(view.camera, truth(&view.camera), &picture);
    }
    views
}

/// The balls, and a knob in the air.
fn scene_with_knob(middle: &Vector3<f64>, radius: f64) -> QuickScene {
    let mut splats = shaded_splats(false, |_| 0.7);
    let mut random = Random::new(3);
    for _ in 0..800 {
        let direction = Vector3::from_fn(|_, _| 2.0 * random.uniform() - 1.0);
        let Some(direction) = direction.try_normalize(0.1) else { continue };
        add_gaussian(&mut splats, &(middle + radius * direction), [0.012; 3], 0.2);
    }
    QuickScene::of(splats)
}

#[test]
fn a_thing_beside_the_place_is_not_what_a_person_points_at() {
    let views = views_with_blank_room();
    let knob = BALL - Vector3::new(0.0, 0.9, 0.0);
    let scene = scene_with_knob(&knob, 0.1);
    assert!(agreed_at(&scene, &views, 0, &BALL).is_some_and(|agreed| agreed.found.contains(&BALL)));
    assert!(agreed_at(&scene, &views, 0, &knob).is_none());
}

#[test]
fn a_hand_just_beside_a_thing_means_the_thing() {
    // Some pixels beside the ball's outline there is a bit of something, which the views do not agree on.
    let views = views_with_blank_room();
    let beside = (BALL - views[0].camera.centre()).cross(&Vector3::y()).normalize();
    let knob = BALL + (RADIUS + 0.07) * beside;
    let found = agreed_at(&scene_with_knob(&knob, 0.02), &views, 0, &knob).unwrap().found;
    assert!(found.contains(&BALL) && !found.contains(&OTHER));
}

#[test]
fn what_no_view_finds_salient_is_background() {
    let mut views = views(12);
    for view in &mut views {
        view.saliency.fill(0);
    }
    let scene = scene(false);
    let (labels, plane) = labels(&scene, &views);
    assert!(plane.is_none() && labels.object.iter().all(|o| *o == Some(0.0)));
    assert!(!agreed(&scene, &views).found.is_found());
}

#[test]
fn a_foot_in_the_tables_plane_is_object_and_a_sheet_of_paper_is_not() {
    // A dish of the ball's colour under it, and a white sheet beside the dish, both flat and salient in all views.
    let under = Vector3::new(BALL.x, TABLE, BALL.z);
    let beside = under + Vector3::new(0.6, 0.0, 0.0);
    let in_dish = |p: &Vector3<f64>| (p - under).norm() < 0.3;
    let in_sheet = |p: &Vector3<f64>| (p - beside).norm() < 0.3;
    let on_table = |p: &Vector3<f64>| (p.y - TABLE).abs() < 0.003;
    let scene = shaded_scene(true, |p| match on_table(p) {
        true if in_sheet(p) => 1.0,
        true if !in_dish(p) => 0.4,
        _ => 0.7,
    });
    let mut views = views(24);
    for view in &mut views {
        let camera = view.camera;
        for (k, saliency) in view.saliency.iter_mut().enumerate() {
            let (x, y) = ((k as u32 % WIDTH) as f64 + 0.5, (k as u32 / WIDTH) as f64 + 0.5);
            let (o, d) = ray(&camera, x, y);
            let place = o + d * ((TABLE - o.y) / d.y);
            if hit(&camera, x, y) == Some(Thing::Table) && (in_dish(&place) || in_sheet(&place)) {
                *saliency = 255;
            }
        }
    }
    let (labels, plane) = labels(&scene, &views);
    assert!(plane.is_some());
    let part = |there: &dyn Fn(&Vector3<f64>) -> bool| {
        let all = scene.centres.iter().zip(&labels.object).filter(|(p, _)| on_table(p) && there(p));
        let object: Vec<f32> = all.map(|(_, object)| object.unwrap_or(0.5)).collect();
        assert!(object.len() > 30, "{}", object.len());
        object.iter().sum::<f32>() / object.len() as f32
    };
    // What is right under the ball is seen by nobody.
    let dish = part(&|p| in_dish(p) && (p - under).norm() > 0.15);
    let (sheet, table) = (part(&in_sheet), part(&|p| !in_dish(p) && !in_sheet(p)));
    println!("object: {dish} of the dish, {sheet} of the sheet, {table} of the table");
    assert!(dish > 0.9 && sheet < 0.05 && table < 0.05, "{dish}, {sheet}, {table}");
}

#[test]
fn what_is_printed_on_a_wall_is_no_object_and_what_hangs_there_is() {
    // With up along the table, this is a wall before which the ball hangs; a white sheet on it is salient in all views.
    let sheet = Vector3::new(BALL.x + 0.6, TABLE, BALL.z);
    let in_sheet = |p: &Vector3<f64>| (p - sheet).norm() < 0.3;
    let scene = scene(true);
    let mut views = views(24);
    for view in &mut views {
        let camera = view.camera;
        for (k, saliency) in view.saliency.iter_mut().enumerate() {
            let (x, y) = ((k as u32 % WIDTH) as f64 + 0.5, (k as u32 / WIDTH) as f64 + 0.5);
            let (o, d) = ray(&camera, x, y);
            if hit(&camera, x, y) == Some(Thing::Table) && in_sheet(&(o + d * ((TABLE - o.y) / d.y))) {
                *saliency = 255;
            }
        }
    }
    let (gaze, options) = (Gaze { up: Vector3::x(), ..gaze(&views) }, LabelOptions::default());
    let votes = super::labelling::saliency(&scene, &views, &gaze, &options).unwrap();
    let wall = find_plane(&scene, &votes, &views, &gaze, &options).unwrap();
    assert!(wall.is_wall && wall.height(&Vector3::new(0.0, TABLE, 0.0)).abs() < 0.01, "{wall:?}");
    let mean = |wall: Option<&SupportPlane>, there: &dyn Fn(&Vector3<f64>) -> bool| {
        let labels = label(&scene, &votes, &views, &gaze, wall, None, &options);
        let object: Vec<f32> = (scene.centres.iter().zip(&labels.object))
            .filter(|(p, _)| there(p))
            .filter_map(|(_, object)| *object)
            .collect();
        object.iter().sum::<f32>() / object.len() as f32
    };
    let on_ball = |p: &Vector3<f64>| (p - BALL).norm() < RADIUS && p.y < TABLE - 0.1;
    let on_sheet = |p: &Vector3<f64>| (p.y - TABLE).abs() < 0.003 && in_sheet(p);
    assert!(mean(Some(&wall), &on_ball) > 0.9 && mean(Some(&wall), &on_sheet) == 0.0);
    assert!(mean(None, &on_sheet) > 0.5, "salience alone takes it for object");
}

#[test]
fn the_number_of_threads_changes_nothing() {
    let run = |threads: usize| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        pool.install(|| masks(&scene(true), &views(8), true))
    };
    assert_eq!(run(1), run(3));
}

#[test]
fn a_mask_follows_the_edges_of_the_larger_picture() {
    let edge = |x: u32| if x < 203 { Rgb([200, 50, 40]) } else { Rgb([60, 90, 200]) };
    let picture = RgbImage::from_fn(400, 300, |x, _| edge(x));
    // At a quarter of the size the edge cannot be in its place.
    let odds: Vec<f32> = (0..100 * 75).map(|k| if k % 100 < 51 { 2.0 } else { -2.0 }).collect();
    let mask = mask_of(&picture, &odds, 100, 75, &EdgeOptions::default());
    let at = |x: u32| mask.get_pixel(x, 150).0[0];
    assert!(at(200) > 250 && at(206) < 5, "{} {}", at(200), at(206));
}

/// What these cameras see, as pictures and masks in `folder`, with points on the ball and on the table; every fourth is held out.
fn dataset(folder: &Path, cameras: &[raster::View], masks: &[GrayImage]) -> Dataset {
    let mut model = SparseModel::default();
    model.cameras.insert(1, lens());
    for (i, (camera, mask)) in cameras.iter().zip(masks).enumerate() {
        let name = format!("{i:02}.jpg");
        picture(camera).save(folder.join(&name)).unwrap();
        write_mask(&mask_path(folder, &name), mask).unwrap();
        model
            .images
            .insert(i as u32 + 1, Image { name, camera_id: 1, pose: pose(camera), points2d: Vec::new() });
    }
    let mut random = Random::new(7);
    let mut unit = || 2.0 * random.uniform() - 1.0;
    for id in 1..=600u64 {
        let (x, y, z) = (unit(), unit(), unit());
        let Some(direction) = Vector3::new(x, y, z).try_normalize(0.1) else { continue };
        let (xyz, rgb) = if id % 3 > 0 {
            (BALL + RADIUS * direction, [188, 68, 50])
        } else {
            (Vector3::new(2.0 * x, TABLE, 2.0 * z), [158, 118, 68])
        };
        let track = model.images.keys().map(|image| (*image, 0)).collect();
        model.points.insert(id, Point3D { xyz, rgb, error: 0.5, track });
    }
    let dataset = Dataset::from_model(&model, folder, Some(4)).unwrap();
    dataset.with_masks(folder, &Control::new()).unwrap()
}

#[test]
fn masks_that_are_smaller_than_the_cameras_outline_the_same_object() {
    let cameras: Vec<raster::View> =
        (0..16).map(|i| camera(std::f64::consts::TAU * f64::from(i) / 16.0, &Vector3::zeros())).collect();
    let (x, y, z) = (Vector3::x(), Vector3::y(), Vector3::z());
    for side in [WIDTH, WIDTH / 2] {
        let folder = tempfile::tempdir().unwrap();
        let masks: Vec<GrayImage> = cameras.iter().map(|c| truth(&c.scaled(Some(side)))).collect();
        let masked = dataset(folder.path(), &cameras, &masks);
        let outline = ObjectOutline::of(&masked, &Control::new()).unwrap().unwrap();
        for direction in [x, y, z, -x, -y, -z] {
            assert!(outline.contains(&(BALL + 0.8 * RADIUS * direction)), "{side}: {direction:?}");
            assert!(!outline.contains(&(BALL + 1.5 * RADIUS * direction)), "{side}: {direction:?}");
        }
    }
}

#[test]
fn the_scores_of_an_object_are_those_of_the_scene_that_is_written() {
    let folder = tempfile::tempdir().unwrap();
    let control = Control::new();
    let angle = |i: u32| std::f64::consts::TAU * f64::from(i) / 16.0;
    let cameras: Vec<raster::View> = (0..16).map(|i| camera(angle(i), &Vector3::zeros())).collect();
    let mut masks: Vec<GrayImage> = cameras.iter().map(truth).collect();
    // A quarter of the twelve views that are trained on lack one half of the ball: where two of them agree, it is cut off.
    for mask in &mut masks[1..4] {
        mask.enumerate_pixels_mut().filter(|(x, ..)| *x < WIDTH / 2).for_each(|(_, _, value)| value[0] = 0);
    }
    let dataset = dataset(folder.path(), &cameras, &masks);
    let outline = ObjectOutline::of(&dataset, &control).unwrap();
    let options = TrainOptions {
        training_num_steps: 100,
        training_max_num_gaussians: 2000,
        sh_degree: 0,
        test_every: Some(4),
        dense_initialisation: false,
        ..TrainOptions::default()
    };
    let side = options.max_resolution;
    let open = || raster::open(&raster::DeviceChoice::Cpu).unwrap();
    let mut trainer = Trainer::new(dataset.clone(), options, open(), &control).unwrap();
    trainer.run(&control, None).unwrap();
    let uncut = trainer.evaluate(&control).unwrap();
    let (cut, _) = outline.as_ref().unwrap().cut(trainer.splats().unwrap());
    let beside = trainer.evaluate_scene_on(&cut, open().as_mut(), &control).unwrap();
    // What was trained is still there.
    assert_eq!(trainer.evaluate(&control).unwrap(), uncut);
    let finished = FinishedScene::of(trainer, outline.as_ref(), &control).unwrap();
    let (reported, removed) = (finished.evaluation.unwrap(), finished.opacity_removed.unwrap());
    assert_eq!(beside, reported);
    println!("{:.2} dB, {:.2} dB without {removed:.2} of the opacity", uncut.psnr, reported.psnr);
    let path = folder.path().join("scene.ply");
    finished.splats.write(&path).unwrap();
    let written = Splats::read(&path).unwrap();
    let scored = evaluate_splats(&written, &dataset, side, open().as_mut(), &control).unwrap();
    assert_eq!((reported.step, reported.splats), (100, written.len()));
    // Files have unit quaternions.
    assert!((reported.psnr - scored.psnr).abs() < 1e-3, "{} dB, not {} dB", reported.psnr, scored.psnr);
    assert!(removed > 0.05 && (uncut.psnr - scored.psnr).abs() > 0.1, "{removed} cut: {} dB", uncut.psnr);
}
