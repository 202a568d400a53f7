//! A picture of the poses: the sparse points and the way of the camera, from above and from the side.

use std::collections::BTreeMap;
use std::path::Path;

use image::RgbImage;
use nalgebra::{Vector2, Vector3};

use super::{Image, SparseModel};
use crate::error::{Error, Result};
use crate::jpeg;

/// Side of each of the two square panels in pixels.
const PANEL: usize = 900;
const MARGIN: f64 = 40.0;
const PAPER: [f32; 3] = [250.0, 250.0, 248.0];
const GRID: [f32; 3] = [226.0, 228.0, 230.0];
/// Length of a drawn camera in pixels.
const CAMERA_LENGTH: f64 = 18.0;

/// Draws the model to `path` as JPEG of 1800 x 900 pixels: left from above (x to the right, z up), right from the side (the
/// longer level extent of the cameras to the right, up is up), at one scale. The way of the camera goes from blue to
/// orange in the order of the names; points have their own colours; the grid has ten lines.
///
/// # Errors
/// [`InvalidArgument`](crate::ErrorKind::InvalidArgument) if the model has no images, else the operating system's.
pub fn plot_poses(model: &SparseModel, path: &Path) -> Result<()> {
    plot_doubtful_poses(model, &BTreeMap::new(), path)
}

/// As [`plot_poses`], with each camera in the colour of its doubt instead of its place in the order: green where there is
/// none (0), over yellow, to red where it is as far off as a good model may be (1 and more). `doubts` are by image id; who
/// is not in it keeps the colour of the way.
///
/// # Errors
/// As [`plot_poses`].
pub fn plot_doubtful_poses(model: &SparseModel, doubts: &BTreeMap<u32, f64>, path: &Path) -> Result<()> {
    jpeg::write(&draw_poses(model, doubts)?, jpeg::VIEWING_QUALITY, path)
}

/// The picture that [`plot_doubtful_poses`] writes: 1800 x 900 pixels, sRGB.
///
/// # Errors
/// [`InvalidArgument`](crate::ErrorKind::InvalidArgument) if the model has no images.
pub fn draw_poses(model: &SparseModel, doubts: &BTreeMap<u32, f64>) -> Result<RgbImage> {
    let mut images: Vec<(u32, &Image)> = model.images.iter().map(|(id, image)| (*id, image)).collect();
    images.sort_by(|a, b| a.1.name.cmp(&b.1.name));
    if images.is_empty() {
        return Err(Error::argument("a model without images has no poses to draw"));
    }
    let centres: Vec<Vector3<f64>> = images.iter().map(|(_, image)| image.pose.centre()).collect();

    // All cameras, and the points but for the far tails.
    let range = |axis: &Vector3<f64>| {
        let mut values: Vec<f64> = model.points.values().map(|p| axis.dot(&p.xyz)).collect();
        values.sort_by(f64::total_cmp);
        let tail = values.len() / 20;
        let core = values.get(tail..values.len() - tail).unwrap_or_default();
        let all =
            centres.iter().map(|c| axis.dot(c)).chain(core.first().copied()).chain(core.last().copied());
        all.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), v| (low.min(v), high.max(v)))
    };
    let extent = |axis: &Vector3<f64>| {
        let (low, high) = range(axis);
        high - low
    };
    let (x, up, z) = (Vector3::x(), -Vector3::y(), Vector3::z());
    let level = if extent(&x) >= extent(&z) { x } else { z };
    let widest = extent(&x).max(extent(&z)).max(extent(&up)).max(1e-9);
    let scale = (PANEL as f64 - 2.0 * MARGIN) / widest;

    let mut canvas = Canvas::new(2 * PANEL, PANEL);
    for (panel, [right, upward]) in [[x, z], [level, up]].into_iter().enumerate() {
        let left = (panel * PANEL) as f64;
        let middle = |axis: &Vector3<f64>| {
            let (low, high) = range(axis);
            0.5 * (low + high)
        };
        let (middle_right, middle_up, half) = (middle(&right), middle(&upward), PANEL as f64 / 2.0);
        let place = |p: &Vector3<f64>| {
            let across = half + (right.dot(p) - middle_right) * scale;
            Vector2::new(left + across, half - (upward.dot(p) - middle_up) * scale)
        };
        canvas.clip = (left, left + PANEL as f64);
        for k in 0..=10 {
            let at = MARGIN + (PANEL as f64 - 2.0 * MARGIN) * f64::from(k) / 10.0;
            let (near, far) = (MARGIN, PANEL as f64 - MARGIN);
            canvas.line(Vector2::new(left + at, near), Vector2::new(left + at, far), 0.6, GRID, 1.0);
            canvas.line(Vector2::new(left + near, at), Vector2::new(left + far, at), 0.6, GRID, 1.0);
        }
        // Many points draw fainter, so that their density still shows.
        let strength = (60_000.0 / model.points.len().max(1) as f32).clamp(0.25, 0.8);
        for point in model.points.values() {
            // Light colours would vanish on the paper.
            let colour = point.rgb.map(|v| f32::from(v) * 0.85);
            canvas.disc(place(&point.xyz), 1.1, colour, strength);
        }
        let colour = |k: usize| warm(k as f32 / (images.len() - 1).max(1) as f32);
        for (k, pair) in centres.windows(2).enumerate() {
            canvas.line(place(&pair[0]), place(&pair[1]), 1.6, colour(k), 0.9);
        }
        for (k, (id, image)) in images.iter().enumerate() {
            let colour = doubts.get(id).map_or_else(|| colour(k), |doubt| alarming(*doubt as f32));
            let corners = frustum(model, image, CAMERA_LENGTH / scale).map(|corner| place(&corner));
            let centre = place(&centres[k]);
            for (j, corner) in corners.iter().enumerate() {
                canvas.line(centre, *corner, 0.9, colour, 0.75);
                canvas.line(*corner, corners[(j + 1) % 4], 0.9, colour, 0.75);
            }
            canvas.disc(centre, 2.4, colour, 1.0);
        }
    }
    canvas.clip = (0.0, 2.0 * PANEL as f64);
    let middle = PANEL as f64;
    canvas.line(Vector2::new(middle, 0.0), Vector2::new(middle, middle), 0.6, [190.0; 3], 1.0);
    Ok(canvas.into_picture())
}

/// The corners of the picture of `image`, `length` in front of its centre.
fn frustum(model: &SparseModel, image: &Image, length: f64) -> [Vector3<f64>; 4] {
    let (half_width, half_height) = model.cameras.get(&image.camera_id).map_or((0.5, 0.4), |camera| {
        let (fx, fy) = camera.focal();
        (0.5 * f64::from(camera.width) / fx, 0.5 * f64::from(camera.height) / fy)
    });
    let to_world = image.pose.inverse();
    [(-1.0, -1.0), (1.0, -1.0), (1.0, 1.0), (-1.0, 1.0)].map(|(x, y)| {
        let ray = Vector3::new(x * half_width, y * half_height, 1.0);
        to_world.transform(&(ray * length))
    })
}

/// Blue (0) over violet to orange (1).
fn warm(t: f32) -> [f32; 3] {
    between(&[[38.0, 84.0, 184.0], [122.0, 62.0, 170.0], [206.0, 66.0, 92.0], [238.0, 136.0, 36.0]], t)
}

/// Green (0) over yellow to red (1).
fn alarming(t: f32) -> [f32; 3] {
    between(&[[34.0, 139.0, 84.0], [214.0, 164.0, 22.0], [206.0, 36.0, 36.0]], t)
}

/// The colour at `t` (0 to 1; what is not a number counts as 1) between evenly spaced ones.
fn between<const N: usize>(stops: &[[f32; 3]; N], t: f32) -> [f32; 3] {
    let at = if t.is_nan() { 1.0 } else { t.clamp(0.0, 1.0) } * (N - 1) as f32;
    let k = (at as usize).min(N - 2);
    let part = at - k as f32;
    std::array::from_fn(|c| stops[k][c] * (1.0 - part) + stops[k + 1][c] * part)
}

struct Canvas {
    width: usize,
    height: usize,
    pixels: Vec<[f32; 3]>,
    /// Columns outside of this are not drawn on.
    clip: (f64, f64),
}

impl Canvas {
    fn new(width: usize, height: usize) -> Self {
        Self { width, height, pixels: vec![PAPER; width * height], clip: (0.0, width as f64) }
    }

    /// Blends `colour` over the pixels around `low..high`, each by how much of it is nearer than `radius` by `distance`.
    fn blend(
        &mut self,
        low: Vector2<f64>,
        high: Vector2<f64>,
        radius: f64,
        colour: [f32; 3],
        opacity: f32,
        distance: impl Fn(&Vector2<f64>) -> f64,
    ) {
        // Places far outside, and those that are not a number, give empty ranges.
        let columns = |v: f64| v.clamp(self.clip.0, self.clip.1.min(self.width as f64)) as usize;
        let rows = |v: f64| v.clamp(0.0, self.height as f64) as usize;
        let (left, right) = (columns(low.x - radius - 1.0), columns(high.x + radius + 2.0));
        let (top, bottom) = (rows(low.y - radius - 1.0), rows(high.y + radius + 2.0));
        for j in top..bottom {
            for i in left..right {
                let cover = radius + 0.5 - distance(&Vector2::new(i as f64 + 0.5, j as f64 + 0.5));
                let alpha = cover.clamp(0.0, 1.0) as f32 * opacity;
                if alpha > 0.0 {
                    let pixel = &mut self.pixels[j * self.width + i];
                    *pixel = std::array::from_fn(|c| pixel[c] + alpha * (colour[c] - pixel[c]));
                }
            }
        }
    }

    fn disc(&mut self, centre: Vector2<f64>, radius: f64, colour: [f32; 3], opacity: f32) {
        self.blend(centre, centre, radius, colour, opacity, |p| (p - centre).norm());
    }

    fn line(&mut self, from: Vector2<f64>, to: Vector2<f64>, radius: f64, colour: [f32; 3], opacity: f32) {
        let along = to - from;
        let length_squared = along.norm_squared();
        let distance = |p: &Vector2<f64>| {
            let t = if length_squared > 0.0 {
                ((p - from).dot(&along) / length_squared).clamp(0.0, 1.0)
            } else {
                0.0
            };
            (p - (from + along * t)).norm()
        };
        self.blend(from.inf(&to), from.sup(&to), radius, colour, opacity, distance);
    }

    fn into_picture(self) -> RgbImage {
        RgbImage::from_fn(self.width as u32, self.height as u32, |i, j| {
            let pixel = self.pixels[j as usize * self.width + i as usize];
            image::Rgb(pixel.map(|v| (v + 0.5) as u8))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::camera::{Camera, CameraModel, Point3D, Pose};

    fn model() -> SparseModel {
        let mut model = SparseModel::default();
        model.cameras.insert(1, Camera::from_focal(CameraModel::Pinhole, 500.0, 640, 480));
        // A quarter of a circle in the plane y = 0, around the origin, from +x to +z.
        for k in 0..=10u32 {
            let angle = f64::from(k) / 10.0 * std::f64::consts::FRAC_PI_2;
            let position = Vector3::new(4.0 * angle.cos(), 0.0, 4.0 * angle.sin());
            let pose = Pose::look_at(&position, &Vector3::zeros(), &-Vector3::y()).unwrap();
            let name = format!("{k:03}.jpg");
            model.images.insert(k + 1, Image { name, camera_id: 1, pose, points2d: Vec::new() });
        }
        for k in 0..100u64 {
            let xyz = Vector3::new(0.0, 0.01 * k as f64, 0.0);
            model.points.insert(k + 1, Point3D { xyz, rgb: [255, 0, 0], error: 0.0, track: Vec::new() });
        }
        // One far outlier must not shrink everything.
        let far = Point3D { xyz: Vector3::repeat(1e6), rgb: [0; 3], error: 0.0, track: Vec::new() };
        model.points.insert(999, far);
        model
    }

    #[test]
    fn cameras_and_points_are_where_they_should_be() {
        let picture = draw_poses(&model(), &BTreeMap::new()).unwrap();
        assert_eq!(picture.dimensions(), (1800, 900));
        // From above: 4 units are 820 pixels; the first camera is at the lower right, the last at the upper left.
        let is = |x: u32, y: u32, colour: [f32; 3]| {
            let pixel = picture.get_pixel(x, y).0;
            pixel.iter().zip(colour).all(|(a, b)| (f32::from(*a) - b).abs() < 3.0)
        };
        assert!(is(860, 860, warm(0.0)), "{:?}", picture.get_pixel(860, 860));
        assert!(is(40, 40, warm(1.0)), "{:?}", picture.get_pixel(40, 40));
        let red = |x: u32, y: u32| picture.get_pixel(x, y).0[0] > 180 && picture.get_pixel(x, y).0[1] < 100;
        assert!(red(40, 860));
        // From the side: the points go down from the height of the cameras, as y does.
        let column = |x: u32| (0..900).filter(move |&y| red(x, y)).collect::<Vec<u32>>();
        let (first, last) = (column(940)[0], *column(940).last().unwrap());
        assert!(last - first > 150 && last - first < 220, "{first} to {last}");
    }

    #[test]
    fn a_camera_has_the_colour_of_its_doubt_and_the_way_keeps_its_own() {
        let doubts = BTreeMap::from([(1, 0.0), (11, 7.0)]);
        let picture = draw_poses(&model(), &doubts).unwrap();
        let is = |x: u32, y: u32, colour: [f32; 3]| {
            picture.get_pixel(x, y).0.iter().zip(colour).all(|(a, b)| (f32::from(*a) - b).abs() < 3.0)
        };
        assert!(is(860, 860, alarming(0.0)) && is(40, 40, alarming(1.0)));
        // The sixth camera, whose doubt nobody knows, is at 45 degrees.
        let (x, y) = (40.0 + 820.0 * 0.5f64.sqrt(), 860.0 - 820.0 * 0.5f64.sqrt());
        assert!(is(x as u32, y as u32, warm(0.5)), "{:?}", picture.get_pixel(x as u32, y as u32));
        assert_eq!(alarming(f32::NAN), alarming(1.0));
    }

    #[test]
    fn odd_models_are_drawn_or_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("poses.jpg");
        let error = plot_poses(&SparseModel::default(), &path).unwrap_err();
        assert_eq!(error.kind(), crate::ErrorKind::InvalidArgument);
        let mut one = model();
        one.images.retain(|id, _| *id == 1);
        one.points.clear();
        plot_poses(&one, &path).unwrap();
        assert_eq!(image::open(&path).unwrap().to_rgb8().dimensions(), (1800, 900));
    }
}
