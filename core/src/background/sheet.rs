//! The contact sheet: all masks at a glance.

use std::path::Path;

use image::imageops::{FilterType, resize};
use image::{GrayImage, Rgb, RgbImage};

use crate::error::Result;
use crate::jpeg;

/// Long side of a picture on the sheet, pixels.
const THUMBNAIL: u32 = 144;
/// Pixels between pictures.
const GAP: u32 = 4;
/// Colour of the sheet.
const SHEET: Rgb<u8> = Rgb([24, 24, 24]);
/// The colour (0 to 255) that tints the background of a picture.
const REMOVED: [f32; 3] = [30.0, 90.0, 200.0];

/// A picture for the sheet: its background becomes blue.
pub(super) fn thumbnail(picture: &RgbImage, mask: &GrayImage) -> RgbImage {
    let long = picture.width().max(picture.height()).max(1);
    let scaled = |side: u32| (u64::from(side) * u64::from(THUMBNAIL) / u64::from(long)).max(1) as u32;
    let (width, height) = (scaled(picture.width()), scaled(picture.height()));
    let mut small = resize(picture, width, height, FilterType::Triangle);
    let mask = resize(mask, width, height, FilterType::Triangle);
    for (pixel, alpha) in small.pixels_mut().zip(mask.pixels()) {
        let alpha = f32::from(alpha[0]) / 255.0;
        for c in 0..3 {
            let removed = 0.25 * f32::from(pixel[c]) + 0.75 * REMOVED[c];
            pixel[c] = (alpha * f32::from(pixel[c]) + (1.0 - alpha) * removed + 0.5) as u8;
        }
    }
    small
}

/// Writes all thumbnails on one sheet, row by row.
pub(super) fn write_sheet(thumbnails: &[&RgbImage], path: &Path) -> Result<()> {
    let widest = thumbnails.iter().map(|t| t.width()).max().unwrap_or(THUMBNAIL) + GAP;
    let highest = thumbnails.iter().map(|t| t.height()).max().unwrap_or(THUMBNAIL) + GAP;
    let count = (thumbnails.len() as u32).max(1);
    let columns =
        ((f64::from(count) * f64::from(highest) / f64::from(widest)).sqrt().ceil() as u32).clamp(1, count);
    let rows = count.div_ceil(columns);
    let mut sheet = RgbImage::from_pixel(columns * widest + GAP, rows * highest + GAP, SHEET);
    for (cell, thumbnail) in (0u32..).zip(thumbnails) {
        let (left, top) = (GAP + cell % columns * widest, GAP + cell / columns * highest);
        image::imageops::replace(&mut sheet, *thumbnail, i64::from(left), i64::from(top));
    }
    jpeg::write(&sheet, jpeg::VIEWING_QUALITY, path)
}
