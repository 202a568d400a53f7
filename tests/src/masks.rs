//! How far masks of undistorted pictures are from known ones of the pictures as they were filmed.

use std::path::Path;

use image::GrayImage;
use libreconstruct::camera::{Camera, Image, Pose, SparseModel};
use libreconstruct::masks::{coverage, find_mask, intersection_over_union, read_mask};
use libreconstruct::splats::Splats;
use libreconstruct::{Error, ErrorKind, Result};
use nalgebra::{Vector2, Vector3};
use rayon::prelude::*;

/// The known mask of one picture, as the undistorted picture shows it.
pub struct KnownMask {
    /// Name of the picture.
    pub name: String,
    /// The undistorted camera, and its pose.
    pub camera: Camera,
    /// World-to-camera.
    pub pose: Pose,
    /// 255 = object.
    pub mask: GrayImage,
}

/// Known masks from the folder `known` for the pictures of a reconstruction's folder (`sparse/`, `undistorted/`) that have one.
///
/// # Errors
/// Models or masks that cannot be read; none of the pictures has a mask.
pub fn known_masks(result: &Path, known: &Path) -> Result<Vec<KnownMask>> {
    let filmed = SparseModel::read(&result.join("sparse"))?;
    let undistorted = SparseModel::read(&result.join("undistorted/sparse"))?;
    let read = |(id, image): (&u32, &Image)| {
        let path = find_mask(known, &image.name)?;
        let (lens, camera) = (
            filmed.cameras.get(&filmed.images.get(id)?.camera_id)?,
            undistorted.cameras.get(&image.camera_id)?,
        );
        Some(read_mask(&path).map(|mask| KnownMask {
            name: image.name.clone(),
            mask: undistort_mask(&mask, lens, camera),
            camera: camera.clone(),
            pose: image.pose,
        }))
    };
    let masks = undistorted.images.iter().filter_map(read).collect::<Result<Vec<_>>>()?;
    if masks.is_empty() {
        let message = format!("{} has a mask of none of the pictures", known.display());
        return Err(Error::new(ErrorKind::NotFound, message));
    }
    Ok(masks)
}

fn undistort_mask(mask: &GrayImage, lens: &Camera, camera: &Camera) -> GrayImage {
    let lens = lens.scaled_to(mask.width(), mask.height());
    GrayImage::from_fn(camera.width, camera.height, |x, y| {
        let ray = camera.ray(&Vector2::new(f64::from(x) + 0.5, f64::from(y) + 0.5));
        let pixel = lens.project(&ray).unwrap_or_else(Vector2::zeros);
        let (u, v) = (pixel.x.max(0.0) as u32, pixel.y.max(0.0) as u32);
        *mask.get_pixel(u.min(mask.width() - 1), v.min(mask.height() - 1))
    })
}

/// (name, overlap with the known mask, part of the picture that is object in it) by picture.
///
/// # Errors
/// A mask that is missing or cannot be read.
pub fn overlaps(known: &[KnownMask], masks: &Path) -> Result<Vec<(String, f64, f64)>> {
    known
        .par_iter()
        .map(|k| {
            let path = find_mask(masks, &k.name).ok_or_else(|| {
                Error::new(ErrorKind::NotFound, format!("{} has no mask in {}", k.name, masks.display()))
            })?;
            Ok((k.name.clone(), intersection_over_union(&read_mask(&path)?, &k.mask), coverage(&k.mask)))
        })
        .collect()
}

/// The part of all opacity whose splats are outside the object's known outline: beside the known mask, by more than `margin`
/// pixels, in more than a tenth of the pictures that see them (the visual hull of the known masks).
pub fn opacity_outside(splats: &Splats, known: &[KnownMask], margin: u32) -> f64 {
    let wide: Vec<GrayImage> = known.par_iter().map(|k| widened(&k.mask, margin)).collect();
    let outside: Vec<(f64, f64)> = splats
        .means
        .par_iter()
        .zip(&splats.opacities)
        .map(|(mean, logit)| {
            let opacity = 1.0 / (1.0 + f64::from(-logit).exp());
            let point = Vector3::from(mean.as_dvec3().to_array());
            let (mut seen, mut beside) = (0u32, 0u32);
            for (k, mask) in known.iter().zip(&wide) {
                let Some(pixel) = k.camera.project(&k.pose.transform(&point)) else { continue };
                if pixel.x >= 0.0
                    && pixel.y >= 0.0
                    && let Some(value) = mask.get_pixel_checked(pixel.x as u32, pixel.y as u32)
                {
                    seen += 1;
                    beside += u32::from(value[0] < 128);
                }
            }
            let is_outside = seen == 0 || 10 * beside > seen;
            (opacity, if is_outside { opacity } else { 0.0 })
        })
        .collect();
    let (all, out) = outside.iter().fold((0.0, 0.0), |sum, o| (sum.0 + o.0, sum.1 + o.1));
    out / f64::max(all, 1e-12)
}

/// Object wherever it is within `margin` pixels along rows and columns.
fn widened(mask: &GrayImage, margin: u32) -> GrayImage {
    let spread = |mask: &GrayImage, dx: u32, dy: u32| {
        GrayImage::from_fn(mask.width(), mask.height(), |x, y| {
            let columns = x.saturating_sub(dx)..=(x + dx).min(mask.width() - 1);
            let rows = y.saturating_sub(dy)..=(y + dy).min(mask.height() - 1);
            let mut pixels = rows.flat_map(|v| columns.clone().map(move |u| mask.get_pixel(u, v)[0]));
            image::Luma([255 * u8::from(pixels.any(|v| v > 127))])
        })
    };
    spread(&spread(mask, margin, 0), 0, margin)
}
