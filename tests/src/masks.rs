//! How far masks of undistorted pictures are from known ones of the pictures as they were filmed.

use std::collections::HashSet;
use std::path::Path;

use image::GrayImage;
use libreconstruct::camera::{Camera, Image, Pose, SparseModel};
use libreconstruct::masks::{coverage, find_mask, intersection_over_union, is_object, read_mask};
use libreconstruct::splats::Splats;
use libreconstruct::{Error, ErrorKind, Result};
use nalgebra::{Vector2, Vector3};
use rayon::prelude::*;

/// The value of the pixels of a known mask that nobody could decide, such as grass before the foot of the object: they are not
/// judged.
pub const UNDECIDED: u8 = 128;

/// The known mask of one picture, as the undistorted picture shows it.
pub struct KnownMask {
    /// Name of the picture.
    pub name: String,
    /// The undistorted camera, and its pose.
    pub camera: Camera,
    /// World-to-camera.
    pub pose: Pose,
    /// 255 = object, [`UNDECIDED`] = not judged.
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

/// How close a mask came to a known one.
#[derive(Debug, Clone)]
pub struct MaskScore {
    /// Name of the picture.
    pub name: String,
    /// Intersection over union.
    pub overlap: f64,
    /// See [`boundary_f`].
    pub boundary_f: f64,
    /// See [`wrong_pieces`].
    pub wrong_pieces: usize,
    /// What is object in the mask only, as a part of the known object.
    pub surplus: f64,
    /// What is object in the known mask only, as a part of it.
    pub lack: f64,
    /// Part (0 to 1) of the picture that is object in the known mask.
    pub coverage: f64,
}

impl MaskScore {
    /// Of two masks of one size.
    pub fn of(name: &str, mask: &GrayImage, known: &GrayImage) -> Self {
        let (found, decided) = (without_undecided(mask, known), without_undecided(known, known));
        let object = decided.as_raw().iter().filter(|v| is_object(**v)).count().max(1) as f64;
        let only_in = |one: &GrayImage, other: &GrayImage| {
            let pairs = one.as_raw().iter().zip(other.as_raw());
            pairs.filter(|(a, b)| is_object(**a) && !is_object(**b)).count() as f64 / object
        };
        Self {
            name: name.to_owned(),
            overlap: intersection_over_union(&found, &decided),
            boundary_f: boundary_f(mask, known),
            wrong_pieces: wrong_pieces(mask, known),
            surplus: only_in(&found, &decided),
            lack: only_in(&decided, &found),
            coverage: coverage(&decided),
        }
    }
}

/// `mask` without an object where `known` is undecided.
fn without_undecided(mask: &GrayImage, known: &GrayImage) -> GrayImage {
    let mut decided = mask.clone();
    for (pixel, known) in decided.pixels_mut().zip(known.pixels()) {
        if known[0] == UNDECIDED {
            pixel[0] = 0;
        }
    }
    decided
}

/// By picture: how close the masks in a folder came to the known ones.
///
/// # Errors
/// A mask that is missing or cannot be read.
pub fn scores(known: &[KnownMask], masks: &Path) -> Result<Vec<MaskScore>> {
    known
        .par_iter()
        .map(|k| {
            let path = find_mask(masks, &k.name).ok_or_else(|| {
                Error::new(ErrorKind::NotFound, format!("{} has no mask in {}", k.name, masks.display()))
            })?;
            Ok(MaskScore::of(&k.name, &read_mask(&path)?, &k.mask))
        })
        .collect()
}

/// The middle of the pixel of the object than which this part of them (0 to 100 percent) is nearer to their mean; `None` where
/// there is no object.
pub fn pixel_of_object(mask: &GrayImage, percent: u32) -> Option<(f64, f64)> {
    let mut pixels: Vec<(f64, f64)> = mask
        .enumerate_pixels()
        .filter(|(.., value)| is_object(value[0]) && value[0] != UNDECIDED)
        .map(|(x, y, _)| (f64::from(x) + 0.5, f64::from(y) + 0.5))
        .collect();
    let count = pixels.len() as f64;
    let mean = pixels.iter().fold((0.0, 0.0), |sum, p| (sum.0 + p.0 / count, sum.1 + p.1 / count));
    let off = |p: &(f64, f64)| (p.0 - mean.0).hypot(p.1 - mean.1);
    pixels.sort_by(|a, b| off(a).total_cmp(&off(b)));
    pixels.get(pixels.len().saturating_sub(1) * percent as usize / 100).copied()
}

/// Pixels by which a boundary may be off.
const BOUNDARY: i32 = 2;

/// Harmonic mean of the part of the mask's boundary that is within two pixels of the known one's, and of the part of the
/// known one's that is within two pixels of the mask's (Perazzi et al., CVPR 2016). 1 where neither has a boundary. What is
/// within two pixels of an undecided pixel is not judged.
pub fn boundary_f(mask: &GrayImage, known: &GrayImage) -> f64 {
    let undecided: Vec<(i32, i32)> = known
        .enumerate_pixels()
        .filter(|(.., value)| value[0] == UNDECIDED)
        .map(|(x, y, _)| (x as i32, y as i32))
        .collect();
    let unjudged = around(&undecided);
    let judged = |mask: &GrayImage| -> Vec<(i32, i32)> {
        boundary(mask).into_iter().filter(|pixel| !unjudged.contains(pixel)).collect()
    };
    let (found, truth) = (judged(mask), judged(known));
    if found.is_empty() && truth.is_empty() {
        return 1.0;
    }
    let part_near = |from: &[(i32, i32)], to: &[(i32, i32)]| {
        let near = around(to);
        from.iter().filter(|pixel| near.contains(pixel)).count() as f64 / from.len().max(1) as f64
    };
    let (precision, recall) = (part_near(&found, &truth), part_near(&truth, &found));
    if precision + recall == 0.0 { 0.0 } else { 2.0 * precision * recall / (precision + recall) }
}

/// All pixels within [`BOUNDARY`] of these.
fn around(pixels: &[(i32, i32)]) -> HashSet<(i32, i32)> {
    let mut near = HashSet::new();
    for &(x, y) in pixels {
        for dy in -BOUNDARY..=BOUNDARY {
            for dx in -BOUNDARY..=BOUNDARY {
                if dx * dx + dy * dy <= BOUNDARY * BOUNDARY {
                    near.insert((x + dx, y + dy));
                }
            }
        }
    }
    near
}

/// Pixels of the object that have a side in common with one that is not; the picture's edge is no boundary.
fn boundary(mask: &GrayImage) -> Vec<(i32, i32)> {
    let is_background = |x: u32, y: u32| mask.get_pixel_checked(x, y).is_some_and(|p| !is_object(p[0]));
    mask.enumerate_pixels()
        .filter(|(x, y, p)| {
            is_object(p[0])
                && (is_background(x.wrapping_sub(1), *y)
                    || is_background(x + 1, *y)
                    || is_background(*x, y.wrapping_sub(1))
                    || is_background(*x, y + 1))
        })
        .map(|(x, y, _)| (x as i32, y as i32))
        .collect()
}

/// Part (0 to 1) of the picture from which on a piece that is wrong counts.
const LARGE: f64 = 0.005;

/// Number of connected pieces, of more than half a percent of the picture, that are object in one mask only: clouds and holes.
pub fn wrong_pieces(mask: &GrayImage, known: &GrayImage) -> usize {
    let width = mask.width() as usize;
    let mut wrong: Vec<i8> = mask
        .as_raw()
        .iter()
        .zip(known.as_raw())
        .map(|(a, b)| match *b {
            UNDECIDED => 0,
            b => i8::from(is_object(*a)) - i8::from(is_object(b)),
        })
        .collect();
    let mut count = 0;
    for first in 0..wrong.len() {
        let kind = std::mem::take(&mut wrong[first]);
        if kind == 0 {
            continue;
        }
        let (mut stack, mut size) = (vec![first], 0usize);
        while let Some(pixel) = stack.pop() {
            size += 1;
            let column = pixel % width;
            let beside = [
                (column > 0).then(|| pixel - 1),
                (column + 1 < width).then(|| pixel + 1),
                pixel.checked_sub(width),
                Some(pixel + width).filter(|p| *p < wrong.len()),
            ];
            for other in beside.into_iter().flatten() {
                if wrong[other] == kind {
                    wrong[other] = 0;
                    stack.push(other);
                }
            }
        }
        count += usize::from(size as f64 > LARGE * mask.as_raw().len() as f64);
    }
    count
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

#[cfg(test)]
mod tests {
    use super::*;

    /// A square of 40 pixels at column `x`, row 30.
    fn square(x: u32) -> GrayImage {
        GrayImage::from_fn(120, 100, |u, v| {
            image::Luma([255 * u8::from((x..x + 40).contains(&u) && (30..70).contains(&v))])
        })
    }

    #[test]
    fn a_boundary_may_be_two_pixels_off() {
        assert_eq!(boundary_f(&square(30), &square(32)), 1.0);
        // The left and the right side are too far, and what reaches over them above and below.
        let far = boundary_f(&square(30), &square(36));
        assert!(far > 0.4 && far < 0.6, "{far}");
        assert_eq!(boundary_f(&GrayImage::new(9, 9), &GrayImage::new(9, 9)), 1.0);
        assert_eq!(boundary_f(&GrayImage::new(120, 100), &square(30)), 0.0);
    }

    #[test]
    fn clouds_and_holes_are_counted_and_rims_are_not() {
        let known = square(30);
        let mut mask = square(30);
        assert_eq!(wrong_pieces(&mask, &square(31)), 0);
        for (x, y) in (0..10).flat_map(|x| (0..10).map(move |y| (x, y))) {
            mask.put_pixel(100 + x, 5 + y, image::Luma([255]));
            mask.put_pixel(40 + x, 40 + y, image::Luma([0]));
        }
        assert_eq!(wrong_pieces(&mask, &known), 2);
    }

    #[test]
    fn what_is_undecided_is_not_judged() {
        // A third of the square is undecided, and the mask says nothing right of it, or everything.
        let mut known = square(30);
        for (x, y) in (57..75).flat_map(|x| (25..75).map(move |y| (x, y))) {
            known.put_pixel(x, y, image::Luma([UNDECIDED]));
        }
        for mask in [
            square(30),
            square(35),
            GrayImage::from_fn(120, 100, |x, y| {
                image::Luma([255 * u8::from((30..57).contains(&x) && (30..70).contains(&y))])
            }),
        ] {
            let score = MaskScore::of("picture", &mask, &known);
            let shift = if mask.get_pixel(30, 40)[0] == 0 { 5.0 } else { 0.0 };
            assert!((score.overlap - (27.0 - shift) / 27.0).abs() < 1e-12, "{score:?}");
            assert!((score.boundary_f == 1.0) == (shift == 0.0), "{score:?}");
            assert_eq!(score.coverage, 27.0 * 40.0 / 12_000.0);
            assert_eq!((score.surplus, score.lack), (0.0, shift / 27.0));
        }
        let all = GrayImage::from_pixel(120, 100, image::Luma([255]));
        let surplus = MaskScore::of("picture", &all, &known).surplus;
        assert_eq!(surplus, (12_000.0 - 18.0 * 50.0 - 27.0 * 40.0) / (27.0 * 40.0));
        assert_eq!(wrong_pieces(&all, &GrayImage::from_pixel(120, 100, image::Luma([UNDECIDED]))), 0);
    }
}
