//! The `.txt` files: one thing a line (two lines for an image), `#` starts a comment line.

use std::io::{self, Write};
use std::path::Path;
use std::str::{FromStr, SplitAsciiWhitespace};

use nalgebra::{Vector2, Vector3};

use super::parts::{Parts, camera, damaged, file, image_name, load, pose, unknown_model};
use crate::camera::{Camera, CameraModel, Image, Point2D, Point3D, SparseModel};
use crate::error::Result;

pub(super) fn read(folder: &Path) -> Result<Parts> {
    let cameras = read_lines(&file(folder, "cameras", "txt"), |line, _| camera_from(line))?;
    // The line of keypoints belongs to the image before it even if it is empty.
    let images = read_lines(&file(folder, "images", "txt"), |line, following| {
        image_from(line, following.next().unwrap_or(""))
    })?;
    let points = read_lines(&file(folder, "points3D", "txt"), |line, _| point_from(line))?;
    Ok(Parts { cameras, images, points })
}

/// The lines of the file with their numbers taken out of it, as an iterator whose position is known.
struct Lines<'a> {
    lines: std::str::Lines<'a>,
    number: usize,
}

impl<'a> Iterator for Lines<'a> {
    type Item = &'a str;

    fn next(&mut self) -> Option<&'a str> {
        self.number += 1;
        self.lines.next()
    }
}

fn read_lines<T>(
    path: &Path,
    mut parse: impl FnMut(&str, &mut Lines<'_>) -> Result<T, String>,
) -> Result<Vec<T>> {
    let bytes = load(path)?;
    let text = std::str::from_utf8(&bytes)
        .map_err(|e| damaged(path, format!("it is not text in UTF-8 (at byte {})", e.valid_up_to())))?;
    let mut lines = Lines { lines: text.lines(), number: 0 };
    let mut list = Vec::new();
    while let Some(line) = lines.next() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let number = lines.number;
        let parsed = parse(line, &mut lines);
        list.push(parsed.map_err(|why| damaged(path, format!("{why} (line {number})")))?);
    }
    Ok(list)
}

fn camera_from(line: &str) -> Result<(u32, Camera), String> {
    let mut words = Words(line.split_ascii_whitespace());
    let id = words.number("camera id")?;
    let model = words.word("camera model")?;
    let model = CameraModel::from_name(model).ok_or_else(|| unknown_model(model))?;
    let (width, height) = (words.number("width")?, words.number("height")?);
    let params =
        (0..model.num_params()).map(|_| words.number("parameter")).collect::<Result<Vec<f64>, _>>()?;
    if let Some(extra) = words.0.next() {
        return Err(format!("{} has {} parameters, but {extra:?} follows", model.name(), model.num_params()));
    }
    Ok((id, camera(model, width, height, params)?))
}

fn image_from(line: &str, keypoints: &str) -> Result<(u32, Image), String> {
    let mut words = Words(line.split_ascii_whitespace());
    let id = words.number("image id")?;
    let mut value = || words.number::<f64>("pose");
    let quaternion = [value()?, value()?, value()?, value()?];
    let translation = [value()?, value()?, value()?];
    let pose = pose(quaternion, translation)?;
    let camera_id = words.number("camera id")?;
    // Names may contain spaces: the name is all that follows the ninth word.
    let name = image_name(after_words(line, 9))?;
    let mut words = Words(keypoints.split_ascii_whitespace());
    let mut points2d = Vec::new();
    while let Some(x) = words.0.next() {
        let xy = Vector2::new(parse(x, "keypoint")?, words.number("keypoint")?);
        if !xy.iter().all(|v: &f64| v.is_finite()) {
            return Err(format!("keypoint {} {} of image {id} is not finite", xy.x, xy.y));
        }
        let point: i64 = words.number("point id")?;
        points2d.push(Point2D { xy, point3d: u64::try_from(point).ok() });
    }
    Ok((id, Image { name, camera_id, pose, points2d }))
}

fn point_from(line: &str) -> Result<(u64, Point3D), String> {
    let mut words = Words(line.split_ascii_whitespace());
    let id = words.number("point id")?;
    let mut value = || words.number::<f64>("position");
    let xyz = Vector3::new(value()?, value()?, value()?);
    let mut colour = || words.number::<u8>("colour");
    let rgb = [colour()?, colour()?, colour()?];
    let error: f64 = words.number("error")?;
    if !xyz.iter().all(|v| v.is_finite()) || error.is_nan() {
        return Err(format!("point {id} at {} {} {} with error {error} is not finite", xyz.x, xyz.y, xyz.z));
    }
    let mut track = Vec::new();
    while let Some(image) = words.0.next() {
        track.push((parse(image, "image id")?, words.number("keypoint index")?));
    }
    Ok((id, Point3D { xyz, rgb, error, track }))
}

struct Words<'a>(SplitAsciiWhitespace<'a>);

impl<'a> Words<'a> {
    fn word(&mut self, what: &str) -> Result<&'a str, String> {
        self.0.next().ok_or_else(|| format!("the {what} is missing"))
    }

    fn number<T: FromStr>(&mut self, what: &str) -> Result<T, String> {
        parse(self.word(what)?, what)
    }
}

fn parse<T: FromStr>(word: &str, what: &str) -> Result<T, String> {
    word.parse().map_err(|_| format!("{word:?} is no {what}"))
}

/// What follows the first `count` words of a trimmed line.
fn after_words(line: &str, count: usize) -> &str {
    (0..count).fold(line, |rest, _| {
        rest.split_once(|c: char| c.is_ascii_whitespace()).map_or("", |(_, rest)| rest.trim_start())
    })
}

// Debug formatting of f64 is the shortest text that reads back as the same bits, with an exponent where that is short.

pub(super) fn write_cameras(model: &SparseModel, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "# Camera list with one line of data per camera:")?;
    writeln!(out, "#   CAMERA_ID, MODEL, WIDTH, HEIGHT, PARAMS[]")?;
    writeln!(out, "# Number of cameras: {}", model.cameras.len())?;
    for (id, camera) in &model.cameras {
        write!(out, "{id} {} {} {}", camera.model.name(), camera.width, camera.height)?;
        for value in &camera.params {
            write!(out, " {value:?}")?;
        }
        writeln!(out)?;
    }
    Ok(())
}

pub(super) fn write_images(model: &SparseModel, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "# Image list with two lines of data per image:")?;
    writeln!(out, "#   IMAGE_ID, QW, QX, QY, QZ, TX, TY, TZ, CAMERA_ID, NAME")?;
    writeln!(out, "#   POINTS2D[] as (X, Y, POINT3D_ID), -1 for none")?;
    writeln!(out, "# Number of images: {}", model.images.len())?;
    for (id, image) in &model.images {
        let (q, t) = (image.pose.rotation.quaternion(), &image.pose.translation);
        write!(out, "{id} {:?} {:?} {:?} {:?} {:?} {:?} {:?}", q.w, q.i, q.j, q.k, t.x, t.y, t.z)?;
        writeln!(out, " {} {}", image.camera_id, image.name)?;
        for (k, point) in image.points2d.iter().enumerate() {
            let space = if k > 0 { " " } else { "" };
            write!(out, "{space}{:?} {:?} ", point.xy.x, point.xy.y)?;
            match point.point3d {
                Some(id) => write!(out, "{id}")?,
                None => write!(out, "-1")?,
            }
        }
        writeln!(out)?;
    }
    Ok(())
}

pub(super) fn write_points(model: &SparseModel, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "# 3D point list with one line of data per point:")?;
    writeln!(out, "#   POINT3D_ID, X, Y, Z, R, G, B, ERROR, TRACK[] as (IMAGE_ID, POINT2D_IDX)")?;
    writeln!(out, "# Number of points: {}", model.points.len())?;
    for (id, point) in &model.points {
        let ([r, g, b], p) = (point.rgb, &point.xyz);
        write!(out, "{id} {:?} {:?} {:?} {r} {g} {b} {:?}", p.x, p.y, p.z, point.error)?;
        for (image, index) in &point.track {
            write!(out, " {image} {index}")?;
        }
        writeln!(out)?;
    }
    Ok(())
}
