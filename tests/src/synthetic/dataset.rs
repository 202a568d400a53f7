//! Films straight to a dataset: undistorted pictures with a sparse model and known masks, without a search for poses.

use std::path::Path;

use image::codecs::jpeg::JpegEncoder;
use image::{GrayImage, RgbImage};
use libreconstruct::camera::{Camera, CameraModel, Image, Point2D, Point3D, Pose, SparseModel};
use libreconstruct::video::Frames;
use libreconstruct::{Error, Result};
use nalgebra::{Vector2, Vector3};
use rayon::prelude::*;

use super::Film;
use super::texture::uniform;

/// Quality of the pictures: what key frames have.
const QUALITY: u8 = 93;
/// Points that are sought in each picture.
const TRIES: u64 = 400;
/// Least difference (0 to 255) between a pixel's neighbours for it to be a feature.
const CONTRAST: i32 = 24;
/// How far behind the surface that a view shows a point may be to be seen in it, as a part of its depth.
const DEPTH_MARGIN: f64 = 0.005;

/// Writes `images/`, `sparse/` and `masks/` (255 = subject) into `folder`: the model that structure from motion would
/// find at best. Its poses are the true ones, its points are on true surfaces where the pictures have contrast.
///
/// # Errors
/// A lens with distortion; a folder that cannot be written.
pub fn film_dataset(film: &Film, folder: &Path) -> Result<SparseModel> {
    let (options, poses) = (film.options(), film.poses());
    let lens = options.camera();
    if options.distortion != 0.0 || options.zoom != 1.0 || options.mirrored {
        return Err(Error::argument("a dataset is filmed through a lens without distortion or zoom"));
    }
    let (fx, _) = lens.focal();
    let mut camera = Camera::from_focal(CameraModel::Pinhole, fx, options.width, options.height);
    let centre = lens.principal_point();
    (camera.params[2], camera.params[3]) = (centre.x, centre.y);
    for part in ["images", "masks", "sparse"] {
        let path = folder.join(part);
        std::fs::create_dir_all(&path).map_err(|e| Error::io("create", &path, e))?;
    }
    let mut pictures = Vec::new();
    for k in 0..options.frames {
        let (picture, mask) = film.expose(k);
        write(&folder.join("images").join(Frames::name_of(u64::from(k))), &picture, &mask, folder)?;
        pictures.push(picture);
    }
    let found: Vec<Vec<Point>> =
        (0..poses.len()).into_par_iter().map(|k| points_of(film, &camera, &poses, &pictures, k)).collect();
    let mut model = SparseModel { cameras: [(1, camera)].into(), ..SparseModel::default() };
    for (k, pose) in poses.iter().enumerate() {
        let name = Frames::name_of(k as u64);
        model.images.insert(k as u32 + 1, Image { name, camera_id: 1, pose: *pose, points2d: Vec::new() });
    }
    for (id, point) in (1u64..).zip(found.into_iter().flatten()) {
        let mut track = Vec::new();
        for (view, xy) in point.seen {
            if let Some(image) = model.images.get_mut(&(view as u32 + 1)) {
                track.push((view as u32 + 1, image.points2d.len() as u32));
                image.points2d.push(Point2D { xy, point3d: Some(id) });
            }
        }
        model.points.insert(id, Point3D { xyz: point.place, rgb: point.colour, error: 0.5, track });
    }
    model.write_binary(&folder.join("sparse"))?;
    Ok(model)
}

fn write(path: &Path, picture: &RgbImage, mask: &GrayImage, folder: &Path) -> Result<()> {
    let mut bytes = Vec::new();
    JpegEncoder::new_with_quality(&mut bytes, QUALITY)
        .encode_image(picture)
        .map_err(|e| Error::io("encode", path, std::io::Error::other(e)))?;
    std::fs::write(path, bytes).map_err(|e| Error::io("write", path, e))?;
    let name = path.with_extension("png");
    let path = folder.join("masks").join(name.file_name().unwrap_or_default());
    mask.save(&path).map_err(|e| Error::io("write", &path, std::io::Error::other(e)))
}

struct Point {
    place: Vector3<f64>,
    colour: [u8; 3],
    /// The views that see it, and where.
    seen: Vec<(usize, Vector2<f64>)>,
}

/// Points at places of contrast in picture `k` that at least three views see.
fn points_of(film: &Film, camera: &Camera, poses: &[Pose], pictures: &[RgbImage], k: usize) -> Vec<Point> {
    let scene = film.scenery.standing();
    let (width, height) = (camera.width, camera.height);
    let (from, turn) = (poses[k].centre(), poses[k].rotation_matrix().transpose());
    let mut points = Vec::new();
    for n in 0..TRIES {
        let key = 2 * (k as u64 * TRIES + n);
        let x = 1 + (uniform(91, key) * f64::from(width - 2)) as u32;
        let y = 1 + (uniform(91, key + 1) * f64::from(height - 2)) as u32;
        let grey = |x: u32, y: u32| i32::from(pictures[k].get_pixel(x, y).0[1]);
        let contrast = (grey(x + 1, y) - grey(x - 1, y)).abs().max((grey(x, y + 1) - grey(x, y - 1)).abs());
        if contrast < CONTRAST {
            continue;
        }
        let ray = (turn * camera.ray(&Vector2::new(f64::from(x) + 0.5, f64::from(y) + 0.5))).normalize();
        let Some((_, hit)) = scene.cast(&from, &ray, f64::MAX) else { continue };
        let place = from + hit.distance * ray;
        let sees = |pose: &Pose| {
            let pixel = camera.project(&pose.transform(&place))?;
            let inside =
                pixel.x >= 0.0 && pixel.y >= 0.0 && pixel.x < f64::from(width) && pixel.y < f64::from(height);
            let (way, centre) = (place - pose.centre(), pose.centre());
            let near = (1.0 - DEPTH_MARGIN) * way.norm();
            (inside && !scene.is_blocked(&centre, &way.normalize(), near)).then_some(pixel)
        };
        let seen: Vec<_> =
            poses.iter().enumerate().filter_map(|(view, pose)| Some((view, sees(pose)?))).collect();
        if seen.len() >= 3 {
            points.push(Point { place, colour: pictures[k].get_pixel(x, y).0, seen });
        }
    }
    points
}
