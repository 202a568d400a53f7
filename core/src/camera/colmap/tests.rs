use std::fs;

use nalgebra::{UnitQuaternion, Vector2, Vector3};

use super::*;
use crate::camera::{Camera, CameraModel, Image, Point2D, Point3D, Pose};
use crate::random::Random;

/// A consistent model with every camera model, unused keypoints and odd names.
fn random_model(seed: u64, num_images: u32, num_points: u64) -> SparseModel {
    let mut random = Random::new(seed);
    let mut model = SparseModel::default();
    let lenses = [
        (CameraModel::SimplePinhole, vec![500.5, 320.0, 240.0]),
        (CameraModel::Pinhole, vec![500.0, 510.0, 321.0, 239.0]),
        (CameraModel::SimpleRadial, vec![1e-7, 320.0, 240.0, -0.1]),
        (CameraModel::Radial, vec![500.0, 320.0, 1.0 / 3.0, -0.1, 0.02]),
        (CameraModel::OpenCv, vec![500.0, 510.0, 320.0, 240.0, -0.1, 0.02, 0.001, -0.002]),
        (CameraModel::SimpleRadialFisheye, vec![300.0, 320.0, 240.0, 0.01]),
        (CameraModel::RadialFisheye, vec![300.0, 320.0, 240.0, 0.01, -0.002]),
        (CameraModel::OpenCvFisheye, vec![300.0, 310.0, 320.0, 240.0, -0.1, 0.02, 0.001, -0.002]),
    ];
    for (id, (lens, params)) in (1..).zip(lenses) {
        model.cameras.insert(id * 3, Camera { model: lens, width: 640, height: 480, params });
    }
    for id in 1..=num_images {
        let mut axis = || Vector3::new(random.normal(), random.normal(), random.normal());
        let pose = Pose { rotation: UnitQuaternion::new(axis()), translation: axis() };
        let name = format!("folder {}/frame {id}.jpg", id % 2);
        let camera_id = 3 * (1 + id % 8);
        model.images.insert(2 * id, Image { name, camera_id, pose, points2d: Vec::new() });
    }
    for id in (0..num_points).map(|k| 10 * k + 1) {
        let mut track = Vec::new();
        for image_id in (1..=num_images).map(|k| 2 * k) {
            let image = model.images.get_mut(&image_id).unwrap();
            let seen = random.uniform() < 0.4;
            if seen {
                track.push((image_id, image.points2d.len() as u32));
            }
            let xy = Vector2::new(640.0 * random.uniform(), 480.0 * random.uniform());
            image.points2d.push(Point2D { xy, point3d: seen.then_some(id) });
        }
        let xyz = Vector3::new(random.normal(), random.normal(), 1e-9 * random.normal());
        let rgb = [random.below(256) as u8, random.below(256) as u8, random.below(256) as u8];
        model.points.insert(id, Point3D { xyz, rgb, error: random.uniform(), track });
    }
    model
}

#[test]
fn both_forms_give_back_the_same_model_bit_for_bit() {
    for seed in 0..5 {
        let model = random_model(seed, 1 + seed as u32, 30 * seed);
        let folder = tempfile::tempdir().unwrap();
        model.write_text(folder.path()).unwrap();
        assert_eq!(SparseModel::read(folder.path()).unwrap(), model);
        // The text is no longer looked at once the binary files are there.
        fs::write(folder.path().join("images.txt"), "nonsense").unwrap();
        model.write_binary(folder.path()).unwrap();
        assert_eq!(SparseModel::read(folder.path()).unwrap(), model);
    }
}

/// The bytes as COLMAP's documentation lays them out.
#[test]
fn the_binary_files_have_exactly_these_bytes() {
    let mut model = SparseModel::default();
    let params = vec![2.0, 1.0, 1.0, 0.5];
    model.cameras.insert(1, Camera { model: CameraModel::SimpleRadial, width: 2, height: 3, params });
    let point2d = Point2D { xy: Vector2::new(0.5, 1.5), point3d: Some(7) };
    let lone = Point2D { xy: Vector2::new(1.0, 0.0), point3d: None };
    let pose = Pose { rotation: UnitQuaternion::identity(), translation: Vector3::new(1.0, 2.0, 3.0) };
    let image = Image { name: "a.jpg".into(), camera_id: 1, pose, points2d: vec![point2d, lone] };
    model.images.insert(4, image);
    let xyz = Vector3::new(-1.0, 0.0, 1.0);
    model.points.insert(7, Point3D { xyz, rgb: [1, 2, 3], error: 0.25, track: vec![(4, 0)] });
    let folder = tempfile::tempdir().unwrap();
    model.write_binary(folder.path()).unwrap();
    let bytes = |name: &str| fs::read(folder.path().join(name)).unwrap();
    let f = |values: &[f64]| values.iter().flat_map(|v| v.to_le_bytes()).collect::<Vec<u8>>();

    let mut cameras = vec![1, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0];
    cameras.extend([2, 0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0]);
    cameras.extend(f(&[2.0, 1.0, 1.0, 0.5]));
    assert_eq!(bytes("cameras.bin"), cameras);

    let mut images = vec![1, 0, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0];
    images.extend(f(&[1.0, 0.0, 0.0, 0.0, 1.0, 2.0, 3.0]));
    images.extend([1, 0, 0, 0]);
    images.extend(b"a.jpg\0\x02\0\0\0\0\0\0\0");
    images.extend(f(&[0.5, 1.5]));
    images.extend([7, 0, 0, 0, 0, 0, 0, 0]);
    images.extend(f(&[1.0, 0.0]));
    images.extend([255; 8]);
    assert_eq!(bytes("images.bin"), images);

    let mut points = vec![1, 0, 0, 0, 0, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0];
    points.extend(f(&[-1.0, 0.0, 1.0]));
    points.extend([1, 2, 3]);
    points.extend(f(&[0.25]));
    points.extend([1, 0, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(bytes("points3D.bin"), points);
}

#[test]
fn text_as_other_programs_write_it_is_read() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| fs::write(folder.path().join(name), text).unwrap();
    write("cameras.txt", "# comment\r\n\r\n1 PINHOLE 640 480 5e2 500 320 240\r\n");
    // Without keypoints the second line is empty, and the last one may be missing.
    write("images.txt", "1 2 0 0 0 0 0 1 1 a b.png\n\n2 -1 0 0 0 0 0 1 1 sub/c.png");
    write("points3D.txt", "# Number of points: 0\n");
    let model = SparseModel::read(folder.path()).unwrap();
    assert_eq!(model.images[&1].name, "a b.png");
    assert_eq!(model.images[&2].name, "sub/c.png");
    assert!((model.images[&1].pose.rotation.quaternion().w - 1.0).abs() < 1e-15);
    assert_eq!(model.cameras[&1].params, [500.0, 500.0, 320.0, 240.0]);
}

fn message(folder: &Path) -> String {
    let error = SparseModel::read(folder).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidFile, "{error}");
    error.to_string()
}

#[test]
fn damaged_text_is_refused_with_file_and_line() {
    let good = [
        ("cameras.txt", "1 PINHOLE 640 480 500 500 320 240\n"),
        ("images.txt", "1 1 0 0 0 0 0 1 1 a.png\n3 4 5\n"),
        ("points3D.txt", "5 0 0 2 9 9 9 0.5 1 0\n"),
    ];
    let bad = [
        ("cameras.txt", "# c\n1 FULL_OPENCV 640 480 1 1 1 1 0 0 0 0 0 0 0 0\n", "FULL_OPENCV"),
        ("cameras.txt", "# c\n1 PINHOLE 640 480 500 500 320\n", "parameter is missing (line 2)"),
        ("cameras.txt", "1 PINHOLE 640 480 500 500 320 240 7\n", "\"7\" follows (line 1)"),
        ("cameras.txt", "1 PINHOLE 640 99999999999 500 500 320 240\n", "99999999999"),
        ("cameras.txt", "1 PINHOLE 640 480 NaN 500 320 240\n", "finite"),
        ("cameras.txt", "1 PINHOLE 640 480 -500 500 320 240\n", "positive"),
        ("cameras.txt", "1 PINHOLE 640 480 5 5 3 2\n1 PINHOLE 640 480 5 5 3 2\n", "camera 1 is there twice"),
        ("cameras.txt", "2 PINHOLE 640 480 500 500 320 240\n", "names camera 1, which is not there"),
        ("images.txt", "1 0 0 0 0 0 0 1 1 a.png\n\n", "quaternion"),
        ("images.txt", "1 1 0 0 0 0 inf 1 1 a.png\n\n", "finite"),
        ("images.txt", "1 1 0 0 0 0 0 1 1 ../../etc/passwd\n\n", "inside the image folder"),
        ("images.txt", "1 1 0 0 0 0 0 1 1\n3 4 5\n", "inside the image folder"),
        ("images.txt", "1 1 0 0 0 0 0 1 1 a.png\n3 4 6\n", "names point 6, which is not there"),
        ("images.txt", "1 1 0 0 0 0 0 1 1 a.png\n3 4\n", "point id is missing"),
        ("images.txt", "1 1 0 0 0 0 0 1 1 a.png\nNaN 4 5\n", "not finite"),
        ("points3D.txt", "5 0 0 2 9 9 9 0.5 1 1\n", "keypoint 1 of image 1, which is not there"),
        ("points3D.txt", "5 0 0 2 9 9 9 0.5\n6 0 0 2 9 9 9 0.5 1 0\n", "belongs to another point"),
        ("points3D.txt", "5 0 0 2 9 9 256 0.5 1 0\n", "\"256\" is no colour"),
        ("points3D.txt", "5 0 0 nan 9 9 9 0.5 1 0\n", "not finite"),
    ];
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| fs::write(folder.path().join(name), text).unwrap();
    for (name, text, expected) in bad {
        for (name, text) in good {
            write(name, text);
        }
        SparseModel::read(folder.path()).unwrap();
        write(name, text);
        let message = message(folder.path());
        assert!(message.contains(expected), "{text:?}: {message}");
    }
    fs::remove_file(folder.path().join("images.txt")).unwrap();
    let error = SparseModel::read(folder.path()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
}

#[test]
fn a_promise_of_more_than_the_file_holds_is_refused_before_room_is_made() {
    let model = random_model(3, 3, 20);
    let folder = tempfile::tempdir().unwrap();
    for name in ["cameras.bin", "images.bin", "points3D.bin"] {
        for count in [u64::MAX, u64::MAX / 8, 1 << 40] {
            model.write_binary(folder.path()).unwrap();
            let path = folder.path().join(name);
            let mut bytes = fs::read(&path).unwrap();
            bytes[..8].copy_from_slice(&count.to_le_bytes());
            fs::write(&path, &bytes).unwrap();
            let message = message(folder.path());
            assert!(message.contains("promises") && message.contains(name), "{message}");
        }
    }
}

#[test]
fn truncated_and_altered_binary_files_never_panic() {
    let model = random_model(4, 3, 12);
    let folder = tempfile::tempdir().unwrap();
    let mut random = Random::new(5);
    for name in ["cameras.bin", "images.bin", "points3D.bin"] {
        model.write_binary(folder.path()).unwrap();
        let path = folder.path().join(name);
        let bytes = fs::read(&path).unwrap();
        for _ in 0..150 {
            fs::write(&path, &bytes[..random.below(bytes.len())]).unwrap();
            message(folder.path());
            let mut altered = bytes.clone();
            for _ in 0..1 + random.below(8) {
                altered[random.below(bytes.len())] = random.next_u64() as u8;
            }
            fs::write(&path, &altered).unwrap();
            // Many alterations give another valid model; none may give one with dangling references.
            if let Ok(model) = SparseModel::read(folder.path()) {
                for point in model.points.values() {
                    for (image, index) in &point.track {
                        assert!(model.images[image].points2d[*index as usize].point3d.is_some());
                    }
                }
            }
        }
        fs::write(&path, [&bytes[..], &[0]].concat()).unwrap();
        assert!(message(folder.path()).contains("follow the last"));
    }
}

/// COLMAP's own reader and writer in between change nothing but the last bits of the rotations.
#[test]
fn colmap_reads_and_writes_the_same_model() {
    let mut model = random_model(8, 6, 40);
    // COLMAP's text format ends names at the first space.
    model.images.values_mut().for_each(|image| image.name = image.name.replace(' ', "_"));
    for (form, extension) in [("bin", "bin"), ("txt", "txt"), ("bin", "txt")] {
        let folder = tempfile::tempdir().unwrap();
        let (ours, theirs) = (folder.path().join("ours"), folder.path().join("theirs"));
        fs::create_dir(&theirs).unwrap();
        if extension == "bin" {
            model.write_binary(&ours).unwrap()
        } else {
            model.write_text(&ours).unwrap()
        }
        let arguments = [ours.to_str().unwrap(), theirs.to_str().unwrap(), form];
        if !crate::interop::run("python3", "colmap_roundtrip.py", &arguments) {
            return;
        }
        let mut back = SparseModel::read(&theirs).unwrap();
        for (id, image) in &mut back.images {
            let pose = &model.images[id].pose;
            assert!(image.pose.rotation.angle_to(&pose.rotation) < 1e-12);
            assert!((image.pose.translation - pose.translation).norm() < 1e-12);
            image.pose = *pose;
        }
        assert_eq!((&back.cameras, &back.images), (&model.cameras, &model.images));
        assert_eq!(back.points.len(), model.points.len());
        for (id, point) in &back.points {
            let ours = &model.points[id];
            assert_eq!((point.xyz, point.rgb, &point.track), (ours.xyz, ours.rgb, &ours.track));
        }
    }
}
