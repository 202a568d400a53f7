use nalgebra::{UnitQuaternion, Vector2, Vector3};

use super::*;
use crate::camera::{Camera, Pose};
use crate::fiducial::{FrameTags, Tag};
use crate::random::Random;
use crate::sfm::polishing::{adapt, refine_lens};
use crate::sfm::synthetic::Capture;
use crate::video::{Frame, VideoInfo};

const RATE: f64 = 10.0;

/// Where a hand holds the camera after `time` seconds: a walk around, with a wobble.
fn held(time: f64) -> Pose {
    let angle = 0.35 * time;
    let place = Vector3::new(
        4.0 * angle.sin() + 0.05 * (3.1 * time).sin(),
        0.3 * (1.7 * time).sin(),
        -4.0 * angle.cos() + 0.04 * (2.3 * time).cos(),
    );
    let target = Vector3::new(0.15 * (4.0 * time).sin(), 0.12 * (5.3 * time).cos(), 0.1 * (3.0 * time).cos());
    Pose::look_at(&place, &target, &-Vector3::y()).unwrap()
}

/// Where a rail holds it: no turns, always the same velocity.
fn on_a_rail(time: f64) -> Pose {
    Pose::from_centre(UnitQuaternion::identity(), &Vector3::new(0.4 * time - 1.0, 0.0, -4.0))
}

/// Where frame `i` shows `point`.
fn see(
    path: fn(f64) -> Pose,
    readout: &Readout,
    camera: &Camera,
    i: usize,
    point: &Vector3<f64>,
) -> Vector2<f64> {
    // The line in which the point is seen decides when it is seen.
    let mut pixel = Vector2::new(400.0, 300.0);
    for _ in 0..8 {
        let time = i as f64 / RATE + readout.seconds * readout.phase(&pixel, camera);
        pixel = camera.project(&path(time).transform(point)).unwrap();
    }
    pixel
}

/// What `readout` shows of a cloud of points, along a path.
fn film(path: fn(f64) -> Pose, readout: Readout, noise: f64) -> Capture {
    film_by(Camera::from_focal(CameraModel::SimpleRadial, 700.0, 800, 600), path, readout, noise)
}

/// The same by any camera of that size.
fn film_by(camera: Camera, path: fn(f64) -> Pose, readout: Readout, noise: f64) -> Capture {
    let mut random = Random::new(5);
    let mut side = || 1.4 * (2.0 * random.uniform() - 1.0);
    let points: Vec<Vector3<f64>> = (0..700).map(|_| Vector3::new(side(), side(), side())).collect();
    let poses: Vec<Pose> = (0..40).map(|i| path(f64::from(i) / RATE)).collect();
    let mut capture = Capture {
        camera,
        others: Default::default(),
        rig: crate::sfm::rig::Rig::of_single_images(poses.len()),
        keypoints: vec![Vec::new(); poses.len()],
        seen: vec![Vec::new(); poses.len()],
        poses,
        points,
    };
    for i in 0..capture.poses.len() {
        for (p, point) in capture.points.iter().enumerate().filter(|(p, _)| (p + i) % 3 != 0) {
            let pixel = see(path, &readout, &capture.camera, i, point);
            if (0.0..800.0).contains(&pixel.x) && (0.0..600.0).contains(&pixel.y) {
                capture.keypoints[i].push(pixel + noise * Vector2::new(random.normal(), random.normal()));
                capture.seen[i].push(p);
            }
        }
    }
    capture
}

fn frames(capture: &Capture) -> Frames {
    let frame = |i: usize| Frame {
        timestamp: Some(i as f64 / RATE),
        ..Frame::new(Frames::name_of(i as u64), i as u64, 800, 600)
    };
    let info = VideoInfo {
        container: "mov".to_owned(),
        codec: "h264".to_owned(),
        width: 800,
        height: 600,
        rotation: 0,
        duration: 4.0,
        frame_rate: RATE,
        hdr: false,
        projection: Default::default(),
        file: None,
    };
    Frames {
        folder: std::path::PathBuf::new(),
        source: FrameSource::Video(info),
        total: 40,
        frames: (0..capture.poses.len()).map(frame).collect(),
        warnings: Vec::new(),
    }
}

/// The map as a global shutter explains the capture best, and what is found in it.
fn find(capture: &Capture, frames: &Frames, known: Option<f64>) -> (Map, Shutter) {
    let options = MapperOptions::default();
    let mut map = capture.true_map_with_points();
    map.camera.params[1..3].copy_from_slice(&[400.0, 300.0]);
    adapt(&mut map, &capture.keypoints, &options, &Control::new()).unwrap();
    let centres = refine_lens(&mut map, &capture.keypoints, &options, true, &Control::new()).unwrap();
    let input = ShutterInput {
        map: &map,
        points: &[],
        keypoints: &capture.keypoints,
        frames,
        options: &options,
        centre: centres[0],
        known,
    };
    let found = find_shutter(&input, &Control::new()).unwrap();
    (map, found)
}

#[test]
fn a_principal_point_beside_the_middle_is_not_taken_for_a_shutter() {
    let readout = |ms: f64| Readout { seconds: 1e-3 * ms, direction: ReadoutDirection::Down };
    for off in [[24.0, 0.0], [-10.0, 20.0]] {
        let mut camera = Camera::from_focal(CameraModel::SimpleRadial, 700.0, 800, 600);
        (camera.params[1], camera.params[2]) = (400.0 + off[0], 300.0 + off[1]);
        let capture = film_by(camera.clone(), held, readout(0.0), 0.2);
        let (_, found) = find(&capture, &frames(&capture), None);
        let report = found.report.unwrap();
        assert!(!report.applied && found.unrolled.is_none(), "{off:?}: {report:?}");
        // Both at once: the shutter is still seen, and the principal point with it.
        let capture = film_by(camera, held, readout(20.0), 0.2);
        let (_, found) = find(&capture, &frames(&capture), None);
        let report = found.report.unwrap();
        assert!(report.applied && (report.readout_ms / 20.0 - 1.0).abs() < 0.15, "{off:?}: {report:?}");
        let params = found.unrolled.unwrap().map.camera.params;
        let left = (params[1] - 400.0 - off[0]).hypot(params[2] - 300.0 - off[1]);
        assert!(left < 6.0, "{off:?}: {params:?}");
    }
}

#[test]
fn a_shutter_is_not_taken_for_a_principal_point_beside_the_middle() {
    let capture = film(held, Readout { seconds: 0.02, direction: ReadoutDirection::Down }, 0.2);
    let unrolled = find(&capture, &frames(&capture), None).1.unrolled.unwrap();
    assert!(!unrolled.centre.unwrap().refined, "{:?}", unrolled.centre);
    assert_eq!(unrolled.map.camera.params[1..3], [400.0, 300.0]);
}

/// By which factors the principal point is less known than with known motions, where the path says so much of them.
fn looseness(readout: Readout, variance: f64) -> [f64; 2] {
    let capture = film(held, readout, 0.2);
    let map = capture.true_map_with_points();
    let times: Vec<f64> = (0..map.poses.len()).map(|i| i as f64 / RATE).collect();
    let mut path = path_motions(&times, &map.poses, LONGEST_STEP);
    for motion in path.iter_mut().flatten() {
        (motion.turn_variance, motion.drift_variance) = (variance, variance);
    }
    let motions: Vec<Option<Motion>> = path.iter().map(|p| p.map(|p| p.motion)).collect();
    let depths = depths(&map, &[], &capture.keypoints);
    let corrected = correct_keypoints(&map, &capture.keypoints, &depths, &motions, &readout);
    let seen = own_motion::Seen {
        map: &map,
        measured: &capture.keypoints,
        corrected: &corrected,
        motions: &motions,
        readout,
    };
    let loss = MapperOptions::default().completion.loss;
    centre_looseness(seen, &path, loss, 0.2)
}

#[test]
fn motions_that_are_not_known_leave_the_principal_point_loose_across_the_lines() {
    let readout = |ms: f64, direction| Readout { seconds: 1e-3 * ms, direction };
    let one = |factors: [f64; 2]| factors.iter().all(|f| (f - 1.0).abs() < 1e-3);
    assert!(one(looseness(readout(0.0, ReadoutDirection::Down), 1.0)));
    assert!(one(looseness(readout(20.0, ReadoutDirection::Down), 1e-9)));
    for (direction, along) in [(ReadoutDirection::Down, 1), (ReadoutDirection::Right, 0)] {
        let [short, long] = [10.0, 30.0].map(|ms| looseness(readout(ms, direction), 0.01));
        assert!(short[along] > 1.2 && long[along] > short[along], "{direction:?}: {short:?} {long:?}");
        assert!(long[along] > long[1 - along], "{direction:?}: {long:?}");
    }
}

#[test]
fn a_shutter_is_found_along_any_axis_and_its_error_goes() {
    use ReadoutDirection::{Down, Left, Right, Up};
    for (direction, ms) in [(Down, 20.0), (Up, 30.0), (Left, 20.0), (Right, 10.0)] {
        let readout = Readout { seconds: 1e-3 * ms, direction };
        let capture = film(held, readout, 0.2);
        let (before, found) = find(&capture, &frames(&capture), None);
        let report = found.report.unwrap();
        assert!(report.applied && report.direction == direction, "{ms} ms {direction:?}: {report:?}");
        assert!((report.readout_ms / ms - 1.0).abs() < 0.06, "{report:?}");
        let said = report.deviation_ms.unwrap();
        assert!((report.readout_ms - ms).abs() < 3.0 * said && said < 0.1 * ms, "{report:?}");
        let unrolled = found.unrolled.unwrap();
        let (bad, good) = (capture.errors(&before).0, capture.errors(&unrolled.map).0);
        assert!(good < 0.25 * bad, "{direction:?}: {bad} before, {good} after");
        // What a global shutter would have shown, but for the noise.
        let exact = film(held, Readout { seconds: 0.0, direction }, 0.0);
        let mut distances = Vec::new();
        for i in 0..capture.poses.len() {
            for (k, p) in capture.seen[i].iter().enumerate() {
                if let Some(other) = exact.seen[i].iter().position(|q| q == p) {
                    distances.push((unrolled.keypoints[i][k] - exact.keypoints[i][other]).norm());
                }
            }
        }
        let usual = crate::statistics::median(&mut distances).unwrap();
        assert!(usual < 0.35, "{direction:?}: keypoints are off by {usual} pixels");
    }
}

#[test]
fn of_frames_that_are_seconds_apart_nothing_is_corrected_and_the_doubt_remains() {
    let capture = film(held, Readout { seconds: 0.02, direction: ReadoutDirection::Down }, 0.2);
    let mut frames = frames(&capture);
    frames.frames.iter_mut().for_each(|f| f.timestamp = f.timestamp.map(|time| 20.0 * time));
    let (map, found) = find(&capture, &frames, None);
    let report = found.report.as_ref().unwrap();
    assert!(!report.applied && found.unrolled.is_none());
    assert!(report.refusal.as_ref().is_some_and(|why| why.contains("2.0 seconds apart")), "{report:?}");
    let options = MapperOptions::default();
    let input = ShutterInput {
        map: &map,
        points: &[],
        keypoints: &capture.keypoints,
        frames: &frames,
        options: &options,
        centre: None,
        known: None,
    };
    let doubt = shutter_doubt(&input, &found).unwrap();
    assert_eq!((doubt.seconds, doubt.deviation, doubt.is_corrected), (0.0, 1.0 / RATE, false));
    // The camera goes round by a degree a second and looks at the middle of the points: what is off it moves by some pixels, of which
    // half counts for the first and the last line, and none for those between.
    let mut slopes: Vec<f64> = doubt.slopes.iter().flatten().map(|slope| slope.norm()).collect();
    let usual = median(&mut slopes).unwrap();
    assert!((0.3..6.0).contains(&usual), "{usual} pixels a second");
}

#[test]
fn a_global_shutter_is_left_alone_and_photographs_are_not_examined() {
    let none = Readout { seconds: 0.0, direction: ReadoutDirection::Down };
    for path in [held, on_a_rail] {
        let capture = film(path, none, 0.2);
        let (_, found) = find(&capture, &frames(&capture), None);
        assert!(found.unrolled.is_none(), "{:?}", found.report);
        assert!(found.report.is_some_and(|r| !r.applied && r.refusal.is_some()));
    }
    let capture = film(held, Readout { seconds: 0.02, ..none }, 0.2);
    let video = frames(&capture);
    let photographs = Frames { source: FrameSource::Images, ..video.clone() };
    assert!(find(&capture, &photographs, None).1.report.is_none());
    assert!(find(&capture, &video, Some(0.0)).1.report.is_none());
}

/// A steady walk around that looks at the middle.
fn around(time: f64) -> Pose {
    let angle = 0.4 * time;
    let place = Vector3::new(4.0 * angle.sin(), 0.2 * time, -4.0 * angle.cos());
    Pose::look_at(&place, &Vector3::zeros(), &-Vector3::y()).unwrap()
}

#[test]
fn a_zoom_is_told_from_a_shutter_by_tracks_that_took_no_part() {
    let (options, control) = (MapperOptions::default(), Control::new());
    // Whether a zoom lowers the error of these tracks by three tenths or more.
    let explains = |capture: &Capture| {
        let mut map = capture.true_map_with_points();
        adapt(&mut map, &capture.keypoints, &options, &control).unwrap();
        let video = frames(capture);
        let (_, times) = times(&video).unwrap();
        let keypoints = &capture.keypoints[..];
        let input = ShutterInput {
            map: &map,
            points: &[],
            keypoints,
            frames: &video,
            options: &options,
            centre: None,
            known: None,
        };
        let estimator = Estimator {
            input: &input,
            centre_prior: None,
            keypoints,
            points: &[],
            times: &times,
            control: &control,
        };
        let MapperOptions { max_error, min_angle, .. } = options;
        let limits = TriangulationOptions { max_error, min_angle };
        estimator.better_zoom(&map, &hold_out(&map).1, &limits, 0.3).unwrap()
    };
    let readout = |ms: f64| Readout { seconds: 1e-3 * ms, direction: ReadoutDirection::Down };
    let growth = -0.17f64;
    let mut capture = film(around, readout(0.0), 0.2);
    let last = (capture.poses.len() - 1) as f64;
    let centre = Vector2::new(400.0, 300.0);
    for (i, image) in capture.keypoints.iter_mut().enumerate() {
        let grow = f64::exp(growth * (i as f64 / last - 0.5));
        image.iter_mut().for_each(|p| *p = centre + grow * (*p - centre));
    }
    let why = explains(&capture).unwrap();
    assert!(why.contains("changes by -15") || why.contains("changes by -16"), "{why}");
    assert_eq!(explains(&film(held, readout(20.0), 0.2)), None);
}

#[test]
fn a_known_readout_is_taken_as_it_is() {
    let capture = film(held, Readout { seconds: 0.02, direction: ReadoutDirection::Up }, 0.2);
    let (before, found) = find(&capture, &frames(&capture), Some(0.02));
    let report = found.report.unwrap();
    assert_eq!((report.applied, report.direction), (true, ReadoutDirection::Up), "{report:?}");
    assert!((report.readout_ms - 20.0).abs() < 1e-9);
    assert!(capture.errors(&found.unrolled.unwrap().map).0 < 0.25 * capture.errors(&before).0);
}

#[test]
fn a_readout_longer_than_a_frame_is_refused() {
    let capture = film(held, Readout { seconds: 0.02, direction: ReadoutDirection::Down }, 0.2);
    let mut video = frames(&capture);
    let FrameSource::Video(info) = &mut video.source else { return };
    info.frame_rate = 100.0;
    let (_, found) = find(&capture, &video, None);
    assert!(found.unrolled.is_none() && found.report.is_some_and(|r| r.refusal.is_some()));
}

#[test]
fn a_readout_that_is_longer_than_a_frame_by_less_than_it_is_known_to_takes_all_of_the_frame() {
    let capture = film(held, Readout { seconds: 0.02, direction: ReadoutDirection::Down }, 0.2);
    let mut video = frames(&capture);
    let FrameSource::Video(info) = &mut video.source else { return };
    info.frame_rate = 51.0;
    let (before, found) = find(&capture, &video, None);
    let report = found.report.unwrap();
    assert!(report.applied && report.readout_ms <= 1e3 / 51.0, "{report:?}");
    assert!(capture.errors(&found.unrolled.unwrap().map).0 < 0.25 * capture.errors(&before).0);
    // Which one is taken makes no difference to what pictures show.
    let (_, usual) = find(&capture, &frames(&capture), None);
    assert_eq!(usual.report.unwrap().shift, report.shift);
}

#[test]
fn the_result_does_not_depend_on_the_number_of_threads() {
    let capture = film(held, Readout { seconds: 0.02, direction: ReadoutDirection::Down }, 0.2);
    let video = frames(&capture);
    let run = |threads| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        let found = pool.install(|| find(&capture, &video, None).1);
        let unrolled = found.unrolled.unwrap();
        (unrolled.map.poses, unrolled.map.points, unrolled.keypoints, found.report)
    };
    assert_eq!(run(1), run(2));
}

#[test]
fn corners_of_tags_are_corrected_as_keypoints_are() {
    let readout = Readout { seconds: 0.03, direction: ReadoutDirection::Down };
    let capture = film(held, readout, 0.0);
    let found = find(&capture, &frames(&capture), None).1.unrolled.unwrap();
    let none = Readout { seconds: 0.0, ..readout };
    let square = [[0.0, 0.3], [0.3, 0.3], [0.3, 0.0], [0.0, 0.0]].map(|[x, y]| Vector3::new(x, y, -0.9));
    let shown = |readout: &Readout, i: usize| square.map(|p| see(held, readout, &capture.camera, i, &p));
    let video = frames(&capture);
    let tags_of = |(i, frame): (usize, &Frame)| {
        let corners = shown(&readout, i).map(Into::into);
        let tag = Tag { id: 0, hamming: 0, decision_margin: 50.0, edge: 40.0, corners };
        FrameTags { name: frame.name.clone(), tags: vec![tag] }
    };
    let tags = Tags { family: String::new(), frames: video.frames.iter().enumerate().map(tags_of).collect() };
    let corrected = found.tags(&tags, &capture.keypoints);
    let (mut shifts, mut errors) = (0.0, 0.0);
    for (i, frame) in corrected.frames.iter().enumerate() {
        let seen = shown(&readout, i).into_iter().zip(shown(&none, i));
        for (corner, (rolling, global)) in frame.tags[0].corners.iter().zip(seen) {
            shifts += (rolling - global).norm();
            errors += (Vector2::from(*corner) - global).norm();
        }
    }
    assert!(errors < 0.25 * shifts, "off by {errors} pixels of {shifts}");
}
