use std::time::Duration;

use nalgebra::{UnitQuaternion, Vector2, Vector3};

use super::*;
use crate::camera::{CameraModel, Point2D, Point3D, Pose};
use crate::control::CancelToken;
use crate::control::tests::{assert_seconds_were_told, told_slowly};

fn camera(model: CameraModel, params: &[f64]) -> Camera {
    Camera { model, width: 320, height: 240, params: params.to_vec() }
}

fn bent_cameras() -> Vec<Camera> {
    vec![
        camera(CameraModel::SimpleRadial, &[260.0, 160.0, 120.0, -0.12]),
        camera(CameraModel::SimpleRadial, &[260.0, 150.0, 131.0, 0.15]),
        camera(CameraModel::Radial, &[260.0, 160.0, 120.0, -0.3, 0.1]),
        camera(CameraModel::OpenCv, &[250.0, 270.0, 165.0, 118.0, -0.1, 0.05, 0.01, -0.008]),
    ]
}

/// What the scene looks like in the direction (x, y, 1): smooth, different in every channel.
fn colour(direction: &Vector2<f64>) -> [f64; 3] {
    let (x, y) = (direction.x, direction.y);
    [
        127.5 + 100.0 * (25.0 * x + 3.0 * y).sin(),
        127.5 + 100.0 * (30.0 * y).cos(),
        127.5 + 100.0 * (18.0 * (x + y)).sin(),
    ]
}

/// What `camera` sees.
fn picture(camera: &Camera) -> RgbImage {
    RgbImage::from_fn(camera.width, camera.height, |i, j| {
        let direction = camera.unproject(&Vector2::new(f64::from(i) + 0.5, f64::from(j) + 0.5));
        image::Rgb(colour(&direction).map(|v| v.round() as u8))
    })
}

fn model_of(camera: &Camera, name: &str) -> SparseModel {
    let mut model = SparseModel::default();
    let pose =
        Pose { rotation: UnitQuaternion::from_euler_angles(0.1, 0.2, 0.3), translation: Vector3::zeros() };
    let mut points2d = Vec::new();
    for k in 0..20u32 {
        let direction = Vector3::new(0.03 * f64::from(k) - 0.3, 0.2 - 0.02 * f64::from(k), 1.0);
        let id = u64::from(k) + 1;
        points2d.push(Point2D { xy: camera.project(&direction).unwrap(), point3d: Some(id) });
        let xyz = pose.rotation.inverse() * direction;
        model.points.insert(id, Point3D { xyz, rgb: [9; 3], error: 0.0, track: vec![(7, k)] });
    }
    model.cameras.insert(3, camera.clone());
    model.images.insert(7, Image { name: name.into(), camera_id: 3, pose, points2d });
    model
}

#[test]
fn the_seconds_that_are_left_are_told() {
    let folder = tempfile::tempdir().unwrap();
    let (images, output) = (folder.path().join("in"), folder.path().join("out"));
    fs::create_dir(&images).unwrap();
    let lens = &bent_cameras()[0];
    let mut model = model_of(lens, "7.png");
    for id in [8, 9] {
        let (name, points2d) = (format!("{id}.png"), Vec::new());
        model.images.insert(id, Image { name, points2d, ..model.images[&7].clone() });
    }
    for image in model.images.values() {
        picture(lens).save(images.join(&image.name)).unwrap();
    }
    let (control, told) = told_slowly(Duration::ZERO);
    undistort(&model, &images, &output, &control).unwrap();
    assert_seconds_were_told(&told);
}

#[test]
fn undistorted_pictures_show_what_a_pinhole_camera_sees() {
    for lens in bent_cameras() {
        let folder = tempfile::tempdir().unwrap();
        let (images, output) = (folder.path().join("in"), folder.path().join("out"));
        fs::create_dir_all(images.join("a b")).unwrap();
        picture(&lens).save(images.join("a b/one.png")).unwrap();
        let model = model_of(&lens, "a b/one.png");
        let result = undistort(&model, &images, &output, &Control::new()).unwrap();
        assert_eq!(SparseModel::read(&output.join("sparse")).unwrap(), result);

        let pinhole = &result.cameras[&3];
        assert_eq!(pinhole.model, CameraModel::Pinhole);
        assert_eq!(pinhole.focal(), lens.focal());
        let seen = image::open(output.join("images/a b/one.png")).unwrap().to_rgb8();
        assert_eq!(seen.dimensions(), (pinhole.width, pinhole.height));
        let mut worst = 0.0f64;
        for (i, j, pixel) in seen.enumerate_pixels() {
            let direction = pinhole.unproject(&Vector2::new(f64::from(i) + 0.5, f64::from(j) + 0.5));
            // No pixel comes from outside the original.
            let source = lens.project(&Vector3::new(direction.x, direction.y, 1.0)).unwrap();
            assert!(
                source.x > 0.49 && source.x < 319.51 && source.y > 0.49 && source.y < 239.51,
                "{source:?}"
            );
            let inside = source.x > 3.0 && source.x < 317.0 && source.y > 3.0 && source.y < 237.0;
            let error = colour(&direction).into_iter().zip(pixel.0).map(|(a, b)| (a - f64::from(b)).abs());
            worst = worst.max(if inside { error.fold(0.0, f64::max) } else { 0.0 });
        }
        assert!(worst < 2.0, "{worst} grey levels, {:?}", lens.model);

        // Keypoints are where the new camera sees their points; everything else is untouched.
        let image = &result.images[&7];
        for point2d in &image.points2d {
            let point = image.pose.transform(&result.points[&point2d.point3d.unwrap()].xyz);
            assert!((pinhole.project(&point).unwrap() - point2d.xy).norm() < 1e-6);
        }
        assert_eq!((&image.name, image.pose), (&model.images[&7].name, model.images[&7].pose));
        assert_eq!(result.points, model.points);
    }
}

/// The frame is as large as it can be: a pixel more on any side would be blank somewhere.
#[test]
fn the_frame_touches_all_four_borders() {
    for lens in bent_cameras() {
        let pinhole = Undistortion::new(&lens).unwrap().pinhole;
        let (width, height) = (f64::from(pinhole.width), f64::from(pinhole.height));
        let blank = |x: f64, y: f64| {
            let u = pinhole.unproject(&Vector2::new(x, y));
            let p = lens.project(&Vector3::new(u.x, u.y, 1.0)).unwrap();
            p.x < 0.5 || p.y < 0.5 || p.x > 319.5 || p.y > 239.5
        };
        let along = |size: f64| (0..=1000).map(move |k| 0.5 + (size - 1.0) * f64::from(k) / 1000.0);
        assert!(along(height).any(|y| blank(-0.6, y)), "left, {:?}", lens.model);
        assert!(along(height).any(|y| blank(width + 0.6, y)), "right, {:?}", lens.model);
        assert!(along(width).any(|x| blank(x, -0.6)), "top, {:?}", lens.model);
        assert!(along(width).any(|x| blank(x, height + 0.6)), "bottom, {:?}", lens.model);
    }
}

#[test]
fn pictures_without_distortion_are_copied() {
    let folder = tempfile::tempdir().unwrap();
    let straight = [
        camera(CameraModel::SimplePinhole, &[260.0, 150.3, 120.0]),
        camera(CameraModel::OpenCv, &[260.0, 255.0, 150.3, 120.0, 0.0, 0.0, 0.0, 0.0]),
    ];
    for lens in straight {
        let path = folder.path().join("one.jpg");
        picture(&lens).save(&path).unwrap();
        let model = model_of(&lens, "one.jpg");
        let output = folder.path().join("out");
        let result = undistort(&model, folder.path(), &output, &Control::new()).unwrap();
        assert_eq!(fs::read(output.join("images/one.jpg")).unwrap(), fs::read(&path).unwrap());
        assert_eq!(result.images, model.images);
        assert_eq!(result.cameras[&3].model, CameraModel::Pinhole);
        assert_eq!(result.cameras[&3].focal(), lens.focal());
        assert_eq!(result.cameras[&3].principal_point(), lens.principal_point());
    }
}

#[test]
fn alpha_is_kept_and_hidden_colours_do_not_leak() {
    let lens = &bent_cameras()[0];
    let folder = tempfile::tempdir().unwrap();
    // Grey on the left, hidden bright red on the right.
    let cut = RgbaImage::from_fn(320, 240, |i, _| {
        image::Rgba(if i < 160 { [90, 90, 90, 255] } else { [255, 0, 0, 0] })
    });
    cut.save(folder.path().join("one.png")).unwrap();
    let output = folder.path().join("out");
    undistort(&model_of(lens, "one.png"), folder.path(), &output, &Control::new()).unwrap();
    let seen = image::open(output.join("images/one.png")).unwrap();
    assert!(seen.color().has_alpha());
    let (mut opaque, mut hidden) = (0, 0);
    for pixel in seen.to_rgba8().pixels() {
        let [r, g, b, a] = pixel.0;
        opaque += u32::from(a == 255);
        hidden += u32::from(a == 0);
        if a > 16 {
            assert!(r.abs_diff(90) <= 4 && g.abs_diff(90) <= 4 && b.abs_diff(90) <= 4, "{pixel:?}");
        }
    }
    let all = seen.width() * seen.height();
    assert!(opaque > all * 45 / 100 && hidden > all * 45 / 100, "{opaque} {hidden} of {all}");
}

#[test]
fn a_lens_that_folds_the_picture_is_cut_or_refused() {
    // Monotonic up to r = 1 / sqrt(3 * 0.6) = 0.745; the corners are at 0.77.
    let strong = camera(CameraModel::SimpleRadial, &[260.0, 160.0, 120.0, -0.6]);
    let lens = Undistortion::new(&strong).unwrap();
    for &[x, y] in lens.map() {
        assert!(x > 0.49 && x < 319.51 && y > 0.49 && y < 239.51);
    }
    let absurd = camera(CameraModel::SimpleRadial, &[260.0, 160.0, 120.0, -60.0]);
    assert_eq!(Undistortion::new(&absurd).err().unwrap().kind(), ErrorKind::IntrinsicsUnreliable);
    let off = camera(CameraModel::SimpleRadial, &[260.0, 1600.0, 120.0, -0.1]);
    assert_eq!(Undistortion::new(&off).err().unwrap().kind(), ErrorKind::IntrinsicsUnreliable);
    // Room for each of its pixels would be 30 GB.
    let huge = Camera { width: 65_535, height: 65_535, ..strong };
    assert_eq!(Undistortion::new(&huge).err().unwrap().kind(), ErrorKind::InvalidMedia);
}

#[test]
fn pictures_that_do_not_belong_are_refused() {
    let lens = &bent_cameras()[0];
    let folder = tempfile::tempdir().unwrap();
    let output = folder.path().join("out");
    let model = model_of(lens, "one.png");
    let path = folder.path().join("one.png");
    let kind = |control: &Control| undistort(&model, folder.path(), &output, control).unwrap_err().kind();
    assert_eq!(kind(&Control::new()), ErrorKind::NotFound);
    fs::write(&path, b"no picture").unwrap();
    assert_eq!(kind(&Control::new()), ErrorKind::InvalidMedia);
    RgbImage::new(319, 240).save(&path).unwrap();
    assert_eq!(kind(&Control::new()), ErrorKind::InvalidMedia);
    picture(lens).save(&path).unwrap();
    let bytes = fs::read(&path).unwrap();
    fs::write(&path, &bytes[..bytes.len() / 2]).unwrap();
    assert_eq!(kind(&Control::new()), ErrorKind::InvalidMedia);
    fs::write(&path, &bytes).unwrap();
    let cancel = CancelToken::new();
    cancel.cancel();
    assert_eq!(kind(&Control::new().with_cancel(cancel)), ErrorKind::Cancelled);
    assert!(!output.join("sparse").exists());
    assert_eq!(fs::read_dir(output.join("images")).unwrap().count(), 0);
}

/// `undistort(model, "castle/images", "castle")` would put other pictures in the place of the photographs.
#[test]
fn pictures_are_not_written_over_those_that_are_read() {
    let lens = &bent_cameras()[0];
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let model = model_of(lens, "one.png");
    for images in ["images", "images/day", "sparse"] {
        fs::create_dir_all(at(images)).unwrap();
        picture(lens).save(at(images).join("one.png")).unwrap();
        let before = fs::read(at(images).join("one.png")).unwrap();
        let error = undistort(&model, &at(images), folder.path(), &Control::new()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{images}");
        assert!(error.message().contains(images) && error.hint_text().is_some(), "{error}");
        assert_eq!(fs::read(at(images).join("one.png")).unwrap(), before);
    }
    assert!(!at("sparse/images.bin").exists());
    undistort(&model, &at("images"), &at("straight"), &Control::new()).unwrap();
}
