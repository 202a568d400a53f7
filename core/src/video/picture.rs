//! Small helpers on pictures: read a file of one, shrink by area averaging, encode, write so that a file is whole or not there.

use std::io::{Cursor, Write};
use std::path::Path;

use image::codecs::png::PngEncoder;
use image::{GrayImage, ImageEncoder, RgbImage, RgbaImage};

use crate::error::{Error, ErrorKind, Result};
use crate::files::{self, write_atomically};

/// Longest file of a picture that is read.
const MAX_BYTES: u64 = 512 << 20;

/// The bytes of an image file.
pub(super) fn read_whole(path: &Path) -> Result<Vec<u8>> {
    files::read_at_most(path, MAX_BYTES)?.ok_or_else(|| {
        let most = MAX_BYTES >> 20;
        Error::new(
            ErrorKind::InvalidMedia,
            format!("{} has more than the {most} MB that are read", path.display()),
        )
    })
}

/// The size that `width` x `height` takes so that its long side is at most `longest`: the same, or smaller.
pub(super) fn fit(width: u32, height: u32, longest: u32) -> (u32, u32) {
    let long = width.max(height);
    if long <= longest {
        return (width, height);
    }
    let scaled = |side: u32| ((f64::from(side) * f64::from(longest) / f64::from(long)).round() as u32).max(1);
    (scaled(width), scaled(height))
}

/// Mean over the area of each new pixel; `channels` samples a pixel, new size at most the old one.
pub(super) fn shrink(
    samples: &[u8],
    (width, height): (u32, u32),
    channels: usize,
    (new_width, new_height): (u32, u32),
) -> Vec<u8> {
    let (width, height) = (width as usize, height as usize);
    let (new_width, new_height) = (new_width as usize, new_height as usize);
    let columns = coverage(width, new_width);
    let rows = coverage(height, new_height);
    let mut out = Vec::with_capacity(new_width * new_height * channels);
    let mut summed = vec![0.0f32; width * channels];
    for row in &rows {
        summed.fill(0.0);
        for (offset, &weight) in row.weights.iter().enumerate() {
            let line = &samples[(row.first + offset) * width * channels..][..width * channels];
            for (sum, &sample) in summed.iter_mut().zip(line) {
                *sum += weight * f32::from(sample);
            }
        }
        for column in &columns {
            for channel in 0..channels {
                let value: f32 = column
                    .weights
                    .iter()
                    .enumerate()
                    .map(|(offset, weight)| weight * summed[(column.first + offset) * channels + channel])
                    .sum();
                out.push((value + 0.5) as u8);
            }
        }
    }
    out
}

/// The old samples under one new one.
struct Covered {
    first: usize,
    weights: Vec<f32>,
}

fn coverage(old: usize, new: usize) -> Vec<Covered> {
    let ratio = old as f64 / new as f64;
    (0..new)
        .map(|i| {
            let (from, to) = (i as f64 * ratio, (i + 1) as f64 * ratio);
            let (first, end) = (from.floor() as usize, (to.ceil() as usize).min(old));
            let weights = (first..end)
                .map(|k| (((k + 1) as f64).min(to) - (k as f64).max(from)).max(0.0) / ratio)
                .map(|w| w as f32)
                .collect();
            Covered { first, weights }
        })
        .collect()
}

/// Shrinks to `longest` if it is larger.
pub(super) fn shrink_rgb(picture: RgbImage, longest: u32) -> RgbImage {
    let size = fit(picture.width(), picture.height(), longest);
    if size == picture.dimensions() {
        return picture;
    }
    let samples = shrink(picture.as_raw(), picture.dimensions(), 3, size);
    RgbImage::from_fn(size.0, size.1, |x, y| {
        let at = (y as usize * size.0 as usize + x as usize) * 3;
        image::Rgb([samples[at], samples[at + 1], samples[at + 2]])
    })
}

/// Like [`shrink_rgb`]; colours count by their alpha, so that what is cut out does not bleed in.
pub(super) fn shrink_rgba(mut picture: RgbaImage, longest: u32) -> RgbaImage {
    let size = fit(picture.width(), picture.height(), longest);
    if size == picture.dimensions() {
        return picture;
    }
    for pixel in picture.pixels_mut() {
        let alpha = u16::from(pixel[3]);
        for channel in 0..3 {
            pixel[channel] = ((u16::from(pixel[channel]) * alpha + 127) / 255) as u8;
        }
    }
    let samples = shrink(picture.as_raw(), picture.dimensions(), 4, size);
    RgbaImage::from_fn(size.0, size.1, |x, y| {
        let at = (y as usize * size.0 as usize + x as usize) * 4;
        let alpha = u16::from(samples[at + 3]);
        let colour = |k: usize| match alpha {
            0 => 0,
            _ => (u16::from(samples[at + k]) * 255 / alpha).min(255) as u8,
        };
        image::Rgba([colour(0), colour(1), colour(2), samples[at + 3]])
    })
}

/// Luma with BT.709 weights on the stored values, rounded down: what `image::imageops::grayscale` gives,
/// without its steps from pixel to pixel.
pub(crate) fn luma(picture: &RgbImage) -> GrayImage {
    let mut luma = GrayImage::new(picture.width(), picture.height());
    for (to, rgb) in luma.iter_mut().zip(picture.as_raw().chunks_exact(3)) {
        let [r, g, b] = [rgb[0], rgb[1], rgb[2]].map(u32::from);
        // At most 255, for the weights add up to the divisor.
        *to = ((2126 * r + 7152 * g + 722 * b) / 10_000) as u8;
    }
    luma
}

/// The picture as PNG with alpha.
pub(super) fn png(picture: &RgbaImage) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    PngEncoder::new(Cursor::new(&mut bytes))
        .write_image(picture.as_raw(), picture.width(), picture.height(), image::ExtendedColorType::Rgba8)
        .map_err(|e| Error::new(ErrorKind::Internal, format!("cannot encode a PNG picture: {e}")))?;
    Ok(bytes)
}

/// Writes `bytes` to `folder/name`, which appears whole or not at all.
pub(crate) fn write(folder: &Path, name: &str, bytes: &[u8]) -> Result<()> {
    write_atomically(&folder.join(name), |out| out.write_all(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shrinking_averages_areas_exactly() {
        let samples: Vec<u8> = vec![0, 100, 200, 40, 80, 120];
        assert_eq!(shrink(&samples, (6, 1), 1, (3, 1)), [50, 120, 100]);
        // 3 -> 2: each new sample covers one and a half old ones.
        assert_eq!(shrink(&[0, 90, 240], (3, 1), 1, (2, 1)), [30, 190]);
        assert_eq!(shrink(&[10, 20, 30, 40], (2, 2), 1, (1, 1)), [25]);
        assert_eq!(shrink(&samples, (6, 1), 1, (6, 1)), samples);
    }

    #[test]
    fn luma_is_that_of_the_library_for_all_colours() {
        // All reds and greens, and every blue with each of them somewhere.
        let blue = |x: u32, y: u32| (7 * x + 31 * y) as u8;
        let picture = RgbImage::from_fn(256, 256, |x, y| image::Rgb([x as u8, y as u8, blue(x, y)]));
        assert_eq!(luma(&picture), image::imageops::grayscale(&picture));
    }

    #[test]
    fn sizes_shrink_but_never_grow() {
        assert_eq!(fit(1920, 1080, 1600), (1600, 900));
        assert_eq!(fit(1080, 1920, 960), (540, 960));
        assert_eq!(fit(640, 480, 1600), (640, 480));
        assert_eq!(fit(8000, 2, 100), (100, 1));
    }

    #[test]
    fn what_is_cut_out_does_not_bleed_into_the_edge() {
        let picture = RgbaImage::from_fn(4, 1, |x, _| match x {
            0 => image::Rgba([200, 100, 50, 255]),
            _ => image::Rgba([0, 255, 0, 0]),
        });
        let small = shrink_rgba(picture, 2);
        assert_eq!(small.get_pixel(0, 0)[3], 128);
        let near = |a: u8, b: u8| a.abs_diff(b) <= 2;
        assert!(near(small.get_pixel(0, 0)[0], 200) && near(small.get_pixel(0, 0)[1], 100));
    }
}
