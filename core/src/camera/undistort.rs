//! From pictures with lens distortion to pinhole pictures: what the rasteriser can render and training compares with.
//!
//! In: a sparse model and the folder of its pictures. Out: `images/` with one pinhole picture per frame and `sparse/`
//! with the model that belongs to them, both in the output folder, complete on disk when [`undistort`] returns. Names
//! and ids stay. Every pixel of the result was seen by the camera: nothing has to be masked.

mod lens;
mod resample;
mod unroll;

use std::fs;
use std::io::Write;
use std::path::Path;
use std::sync::Mutex;

use image::{DynamicImage, ImageFormat, RgbImage, RgbaImage};
use rayon::prelude::*;

use super::{Camera, Image, RollingShutter, SparseModel};
use crate::control::Control;
use crate::error::{Error, ErrorKind, Result};
use crate::files;
use crate::jpeg;
use crate::picture_file;
use crate::stage::Stage;
use lens::Undistortion;
use resample::Premultiplied;
use unroll::unrolled_map;

/// Undistorts the pictures of `model`, which are in the folder `images`, into `output/images`, and writes the model that
/// describes them to `output/sparse`. Returns that model: the same ids, names, poses and points, PINHOLE cameras, and
/// keypoints where the undistorted pictures show them.
///
/// The focal length in pixels stays, so the middle of the picture keeps its resolution. The new frame is the largest
/// upright rectangle between the bent borders of the old one, so its size and principal point differ. Pictures of
/// cameras without distortion are copied byte for byte. JPEG stays JPEG, PNG stays PNG with its alpha.
///
/// # Errors
/// [`InvalidArgument`](ErrorKind::InvalidArgument) if `images` is, or is in, one of these two folders, whose pictures would be
/// replaced; [`NotFound`](ErrorKind::NotFound) or [`InvalidMedia`](ErrorKind::InvalidMedia) if a picture is missing, damaged or
/// not of its camera's size, [`IntrinsicsUnreliable`](ErrorKind::IntrinsicsUnreliable) if a lens folds so much of the
/// picture over itself that it cannot be undistorted, [`Cancelled`](ErrorKind::Cancelled).
pub fn undistort(
    model: &SparseModel,
    images: &Path,
    output: &Path,
    control: &Control,
) -> Result<SparseModel> {
    undistort_with(model, None, images, output, control)
}

/// As [`undistort`], for pictures that were read line by line: each also becomes what a global shutter would have shown at
/// the moment of its middle line. Exact where the points of the model tell the depth; between them depth is interpolated.
/// Up to as many pixels at the border as the motion shifts it are repeated.
///
/// # Errors
/// As [`undistort`].
pub fn undistort_unrolled(
    model: &SparseModel,
    shutter: &RollingShutter,
    images: &Path,
    output: &Path,
    control: &Control,
) -> Result<SparseModel> {
    undistort_with(model, Some(shutter), images, output, control)
}

fn undistort_with(
    model: &SparseModel,
    shutter: Option<&RollingShutter>,
    images: &Path,
    output: &Path,
    control: &Control,
) -> Result<SparseModel> {
    let control = control.with_remaining_time();
    let (folder, sparse) = (output.join("images"), output.join("sparse"));
    files::check_outside(images, &[&folder, &sparse])?;
    let mut undistorted = model.clone();
    let mut lenses = std::collections::BTreeMap::new();
    for (id, camera) in &model.cameras {
        let lens = Undistortion::new(camera)?;
        undistorted.cameras.insert(*id, lens.pinhole.clone());
        lenses.insert(*id, lens);
    }
    let lens_of = |image: &Image| {
        lenses.get(&image.camera_id).ok_or_else(|| {
            Error::argument(format!(
                "image {} names camera {}, which is not there",
                image.name, image.camera_id
            ))
        })
    };
    for image in undistorted.images.values_mut() {
        let lens = lens_of(image)?;
        for point in &mut image.points2d {
            point.xy = lens.undistort_pixel(&point.xy);
        }
    }

    let frames: Vec<(&u32, &Image)> = model.images.iter().collect();
    for (_, frame) in &frames {
        // Names may have folders in them.
        let parent = folder.join(&frame.name);
        let parent = parent.parent().unwrap_or(&folder);
        fs::create_dir_all(parent).map_err(|e| Error::io("create", parent, e))?;
    }
    let done = Mutex::new(0);
    frames.par_iter().try_for_each(|(id, frame)| {
        control.check()?;
        let lens = lens_of(frame)?;
        let moving = shutter.and_then(|s| Some((s.readout, s.motions.get(id)?)));
        let map = moving.map(|(readout, motion)| unrolled_map(lens, model, **id, readout, motion));
        let map = map.as_deref().unwrap_or(lens.map());
        undistort_file(lens, map, &images.join(&frame.name), &folder.join(&frame.name))?;
        if let Ok(mut done) = done.lock() {
            *done += 1;
            let message = format!("{done} of {} frames", frames.len());
            let fraction = *done as f32 / frames.len() as f32;
            control.progress_with(Stage::Sfm, "undistorting", fraction, message);
        }
        Ok(())
    })?;
    undistorted.write_binary(&sparse)?;
    Ok(undistorted)
}

/// `map`: where in the original each pixel of the result is seen; empty for the identity.
fn undistort_file(lens: &Undistortion, map: &[[f32; 2]], source: &Path, target: &Path) -> Result<()> {
    let (format, picture) = open(source, lens.camera(), map.is_empty())?;
    let Some(picture) = picture else {
        return files::replace_atomically(target, |temporary| {
            fs::copy(source, temporary).map(|_| ()).map_err(|e| Error::io("copy", source, e))
        });
    };
    let (width, height) = (lens.pinhole.width, lens.pinhole.height);
    let has_alpha = picture.color().has_alpha() && format != ImageFormat::Jpeg;
    let values = Premultiplied::new(&picture).resample(map, width, height, has_alpha);
    let invalid = || Error::new(ErrorKind::Internal, "the undistorted picture has the wrong size");
    let picture: DynamicImage = match has_alpha {
        true => RgbaImage::from_raw(width, height, values).ok_or_else(invalid)?.into(),
        false => {
            let picture = RgbImage::from_raw(width, height, values).ok_or_else(invalid)?;
            if format == ImageFormat::Jpeg {
                return jpeg::write(&picture, jpeg::UNDISTORTED_QUALITY, target);
            }
            picture.into()
        }
    };
    let mut bytes = std::io::Cursor::new(Vec::new());
    picture.write_to(&mut bytes, format).map_err(|e| {
        Error::new(ErrorKind::Internal, format!("cannot encode {}: {e}", target.display())).caused_by(e)
    })?;
    files::write_atomically(target, |out| out.write_all(bytes.get_ref()))
}

/// Looks at the file's size before anything is decoded. `None` in place of the picture if only the check was wanted.
fn open(path: &Path, camera: &Camera, check_only: bool) -> Result<(ImageFormat, Option<DynamicImage>)> {
    let file = picture_file::open(path)?;
    let (format, (width, height)) = (file.format, file.dimensions());
    if (width, height) != (camera.width, camera.height) {
        return Err(Error::new(
            ErrorKind::InvalidMedia,
            format!(
                "{} has {width} x {height} pixels, but its camera {} x {}",
                path.display(),
                camera.width,
                camera.height
            ),
        )
        .hint("use the pictures from which the model was made"));
    }
    let picture = if check_only { None } else { Some(file.decode()?) };
    Ok((format, picture))
}

#[cfg(test)]
mod tests;
