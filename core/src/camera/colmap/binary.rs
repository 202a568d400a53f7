//! The `.bin` files.

use std::io::{self, Write};
use std::path::Path;

use nalgebra::{Vector2, Vector3};

use super::parts::{Parts, camera, damaged, file, image_name, load, pose, unknown_model};
use crate::camera::{Camera, CameraModel, Image, Point2D, Point3D, SparseModel};
use crate::error::Result;

/// How COLMAP stores "no point" of a keypoint.
const NO_POINT: u64 = u64::MAX;

pub(super) fn read(folder: &Path) -> Result<Parts> {
    Ok(Parts {
        cameras: read_list(&file(folder, "cameras", "bin"), "cameras", 4 + 4 + 8 + 8 + 3 * 8, read_camera)?,
        images: read_list(&file(folder, "images", "bin"), "images", 4 + 7 * 8 + 4 + 2 + 8, read_image)?,
        points: read_list(&file(folder, "points3D", "bin"), "points", 8 + 3 * 8 + 3 + 8 + 8, read_point)?,
    })
}

fn read_list<T>(
    path: &Path,
    things: &str,
    least_size: usize,
    mut read_one: impl FnMut(&mut Reader<'_>) -> Result<T>,
) -> Result<Vec<T>> {
    let bytes = load(path)?;
    let mut reader = Reader { path, bytes: &bytes, at: 0 };
    let count = reader.count(things, least_size)?;
    let mut list = Vec::with_capacity(count);
    for _ in 0..count {
        list.push(read_one(&mut reader)?);
    }
    match bytes.len() - reader.at {
        0 => Ok(list),
        rest => Err(reader.fail(format!("{rest} bytes follow the last of the {things}"))),
    }
}

fn read_camera(r: &mut Reader<'_>) -> Result<(u32, Camera)> {
    let id = r.u32()?;
    let model = r.u32()? as i32;
    let model = CameraModel::from_id(model).ok_or_else(|| r.fail(unknown_model(model)))?;
    let (width, height) = (r.u64()?, r.u64()?);
    let params = (0..model.num_params()).map(|_| r.f64()).collect::<Result<Vec<f64>>>()?;
    Ok((id, camera(model, width, height, params).map_err(|why| r.fail(why))?))
}

fn read_image(r: &mut Reader<'_>) -> Result<(u32, Image)> {
    let id = r.u32()?;
    let quaternion = [r.f64()?, r.f64()?, r.f64()?, r.f64()?];
    let translation = [r.f64()?, r.f64()?, r.f64()?];
    let pose = pose(quaternion, translation).map_err(|why| r.fail(why))?;
    let camera_id = r.u32()?;
    let name = r.name()?;
    let count = r.count("keypoints", 24)?;
    let mut points2d = Vec::with_capacity(count);
    for _ in 0..count {
        let xy = Vector2::new(r.f64()?, r.f64()?);
        if !xy.iter().all(|v| v.is_finite()) {
            return Err(r.fail(format!("keypoint {xy:?} of image {id} is not finite")));
        }
        let point = r.u64()?;
        points2d.push(Point2D { xy, point3d: (point != NO_POINT).then_some(point) });
    }
    Ok((id, Image { name, camera_id, pose, points2d }))
}

fn read_point(r: &mut Reader<'_>) -> Result<(u64, Point3D)> {
    let id = r.u64()?;
    let xyz = Vector3::new(r.f64()?, r.f64()?, r.f64()?);
    let rgb = r.take::<3>()?;
    let error = r.f64()?;
    if !xyz.iter().all(|v| v.is_finite()) || error.is_nan() {
        return Err(r.fail(format!("point {id} at {xyz:?} with error {error} is not finite")));
    }
    let count = r.count("observations", 8)?;
    let mut track = Vec::with_capacity(count);
    for _ in 0..count {
        track.push((r.u32()?, r.u32()?));
    }
    Ok((id, Point3D { xyz, rgb, error, track }))
}

/// A position in a file that is in memory.
struct Reader<'a> {
    path: &'a Path,
    bytes: &'a [u8],
    at: usize,
}

impl Reader<'_> {
    fn fail(&self, what: impl std::fmt::Display) -> crate::Error {
        damaged(self.path, format!("{what} (at byte {})", self.at))
    }

    fn take<const N: usize>(&mut self) -> Result<[u8; N]> {
        let taken = self.bytes.get(self.at..).and_then(|rest| rest.first_chunk::<N>());
        let taken = *taken.ok_or_else(|| self.fail("the file ends too early"))?;
        self.at += N;
        Ok(taken)
    }

    fn u32(&mut self) -> Result<u32> {
        Ok(u32::from_le_bytes(self.take()?))
    }

    fn u64(&mut self) -> Result<u64> {
        Ok(u64::from_le_bytes(self.take()?))
    }

    fn f64(&mut self) -> Result<f64> {
        Ok(f64::from_le_bytes(self.take()?))
    }

    /// A number of things of at least `least_size` bytes each. What does not fit into the rest of the file is refused,
    /// so that room may be reserved for that many.
    fn count(&mut self, things: &str, least_size: usize) -> Result<usize> {
        let count = self.u64()?;
        let room = (self.bytes.len() - self.at) / least_size;
        match usize::try_from(count) {
            Ok(count) if count <= room => Ok(count),
            _ => Err(self.fail(format!("it promises {count} {things}, but has room for {room} at most"))),
        }
    }

    fn name(&mut self) -> Result<String> {
        let rest = &self.bytes[self.at..];
        let length =
            rest.iter().position(|&b| b == 0).ok_or_else(|| self.fail("an image name has no end"))?;
        let name =
            std::str::from_utf8(&rest[..length]).map_err(|_| self.fail("an image name is not UTF-8"))?;
        let name = image_name(name).map_err(|why| self.fail(why))?;
        self.at += length + 1;
        Ok(name)
    }
}

pub(super) fn write_cameras(model: &SparseModel, out: &mut dyn Write) -> io::Result<()> {
    out.write_all(&(model.cameras.len() as u64).to_le_bytes())?;
    for (id, camera) in &model.cameras {
        out.write_all(&id.to_le_bytes())?;
        out.write_all(&camera.model.id().to_le_bytes())?;
        out.write_all(&u64::from(camera.width).to_le_bytes())?;
        out.write_all(&u64::from(camera.height).to_le_bytes())?;
        write_f64s(out, &camera.params)?;
    }
    Ok(())
}

pub(super) fn write_images(model: &SparseModel, out: &mut dyn Write) -> io::Result<()> {
    out.write_all(&(model.images.len() as u64).to_le_bytes())?;
    for (id, image) in &model.images {
        let (q, t) = (image.pose.rotation.quaternion(), &image.pose.translation);
        out.write_all(&id.to_le_bytes())?;
        write_f64s(out, &[q.w, q.i, q.j, q.k, t.x, t.y, t.z])?;
        out.write_all(&image.camera_id.to_le_bytes())?;
        out.write_all(image.name.as_bytes())?;
        out.write_all(&[0])?;
        out.write_all(&(image.points2d.len() as u64).to_le_bytes())?;
        for point in &image.points2d {
            write_f64s(out, &[point.xy.x, point.xy.y])?;
            out.write_all(&point.point3d.unwrap_or(NO_POINT).to_le_bytes())?;
        }
    }
    Ok(())
}

pub(super) fn write_points(model: &SparseModel, out: &mut dyn Write) -> io::Result<()> {
    out.write_all(&(model.points.len() as u64).to_le_bytes())?;
    for (id, point) in &model.points {
        out.write_all(&id.to_le_bytes())?;
        write_f64s(out, point.xyz.as_slice())?;
        out.write_all(&point.rgb)?;
        write_f64s(out, &[point.error])?;
        out.write_all(&(point.track.len() as u64).to_le_bytes())?;
        for (image, index) in &point.track {
            out.write_all(&image.to_le_bytes())?;
            out.write_all(&index.to_le_bytes())?;
        }
    }
    Ok(())
}

fn write_f64s(out: &mut dyn Write, values: &[f64]) -> io::Result<()> {
    values.iter().try_for_each(|v| out.write_all(&v.to_le_bytes()))
}
