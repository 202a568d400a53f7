//! Cuts a panorama into the six sides of the cube around its place.
//!
//! In: an equirectangular picture. Out: six square pinhole pictures of 90 degrees, with which everything after this stage
//! can work. Where a side looks in the panorama is computed once for all panoramas of a size; a pixel is then the
//! interpolation between 16 of the panorama (Catmull and Rom's cubic, which keeps the fine detail that features are found in).

use image::RgbImage;
use nalgebra::{Vector2, Vector3};
use rayon::prelude::*;
use std::f64::consts::PI;
use std::path::Path;

use crate::camera::panorama::{Side, place_in_panorama, side_camera};
use crate::error::{Error, Result};
use crate::jpeg;

use super::{Frame, picture};

/// How far a panorama's width may be off twice its height, as a part of it: cameras and editors round.
const SHAPE_TOLERANCE: f64 = 0.01;

/// Whether a picture of this size can be a panorama: twice as wide as high.
pub(super) fn has_shape_of_panorama(width: u32, height: u32) -> bool {
    let (width, twice) = (f64::from(width), 2.0 * f64::from(height));
    (width - twice).abs() <= SHAPE_TOLERANCE * width
}

/// The size in which a panorama of `width` pixels is decoded, so that its sides have at most `longest` pixels: never larger
/// than it is, and exactly twice as wide as high.
pub(super) fn working_size(width: u32, longest: u32) -> (u32, u32) {
    let most = (PI * f64::from(longest)).floor() as u32;
    let even = (width.min(most) & !1).max(2);
    (even, even / 2)
}

/// Pixels along an edge of each side of a panorama that is `panorama_width` pixels wide: in the middle of a side they are as
/// fine as the panorama's there. Even, at least 2.
pub fn side_size(panorama_width: u32) -> u32 {
    ((f64::from(panorama_width) / PI).round() as u32 & !1).max(2)
}

/// How many panoramas see as much as so many frames. Six pictures are made of each; about half of them see what frames of
/// an ordinary video would be pointed at.
pub(super) fn panoramas(frames: usize) -> usize {
    frames.div_ceil(3).max(3)
}

/// The sides of an equirectangular picture, `size` x `size` pixels each (usually [`side_size`] of its width), in the order of
/// [`Side::ALL`], as the camera [`side_camera`] sees them.
///
/// # Errors
/// `InvalidArgument` for a picture that is not twice as wide as high (within 1 %), and for a `size` of 0.
pub fn cut_panorama(panorama: &RgbImage, size: u32) -> Result<[RgbImage; 6]> {
    let (width, height) = panorama.dimensions();
    if !has_shape_of_panorama(width, height) || width < 2 || size == 0 {
        return Err(Error::argument(format!(
            "a picture of {width}x{height} cannot be cut into sides of {size} pixels: a panorama is twice as wide as high"
        )));
    }
    let cutter = Cutter::new(width, height, size);
    Ok(Side::ALL.map(|side| cutter.cut(panorama, side)))
}

/// Where the pixels of the sides are in panoramas of one size.
pub(super) struct Cutter {
    width: u32,
    height: u32,
    size: u32,
    /// Of the front, row by row: column and row in the panorama in pixels from its corner. The sides around it are the same,
    /// quarters of the width away.
    front: Vec<[f32; 2]>,
    /// Of the side above. The one below is its mirror image.
    up: Vec<[f32; 2]>,
}

impl Cutter {
    /// For panoramas of `width` x `height` pixels and sides of `size` x `size`.
    pub(super) fn new(width: u32, height: u32, size: u32) -> Self {
        let places = |side| places(side, size, [f64::from(width), f64::from(height)]);
        Self { width, height, size, front: places(Side::Front), up: places(Side::Up) }
    }

    /// Width and height of the panoramas.
    pub(super) fn panorama_size(&self) -> (u32, u32) {
        (self.width, self.height)
    }

    /// Writes the sides of a panorama into the folder `output`, of which `whole` is what is known: its name without extension,
    /// and that of the side, are the name of each.
    pub(super) fn store(&self, panorama: &RgbImage, whole: &Frame, output: &Path) -> Result<Vec<Frame>> {
        let stem = whole.name.rsplit_once('.').map_or(whole.name.as_str(), |(stem, _)| stem);
        let store = |&side: &Side| {
            let name = format!("{stem}_{}.jpg", side.name());
            let picture = self.cut(panorama, side);
            picture::write(output, &name, &jpeg::encode(&picture, jpeg::WORKING_QUALITY)?)?;
            Ok(Frame { name, width: self.size, height: self.size, side: Some(side), ..whole.clone() })
        };
        Side::ALL.par_iter().map(store).collect()
    }

    /// One side of a panorama, which must have the size that this was made for.
    pub(super) fn cut(&self, panorama: &RgbImage, side: Side) -> RgbImage {
        debug_assert_eq!(panorama.dimensions(), (self.width, self.height));
        let samples =
            Samples { pixels: panorama.as_raw(), width: self.width as usize, height: self.height as usize };
        let size = self.size as usize;
        let quarters = |count: f32| 0.25 * count * self.width as f32;
        let (table, shift, is_below) = match side {
            Side::Front => (&self.front, 0.0, false),
            Side::Right => (&self.front, quarters(1.0), false),
            Side::Back => (&self.front, quarters(2.0), false),
            Side::Left => (&self.front, quarters(3.0), false),
            Side::Up => (&self.up, 0.0, false),
            Side::Down => (&self.up, 0.0, true),
        };
        let mut pixels = vec![0; size * size * 3];
        for (y, row) in pixels.chunks_exact_mut(3 * size).enumerate() {
            let places = &table[if is_below { size - 1 - y } else { y } * size..][..size];
            for (pixel, &[u, v]) in row.as_chunks_mut::<3>().0.iter_mut().zip(places) {
                *pixel = samples.at(u + shift, if is_below { self.height as f32 - v } else { v });
            }
        }
        // The buffer was made with exactly this size; an empty picture would be seen at once.
        RgbImage::from_raw(self.size, self.size, pixels).unwrap_or_default()
    }
}

/// Where a panorama of this size shows the pixels of a side, row by row.
fn places(side: Side, size: u32, [width, height]: [f64; 2]) -> Vec<[f32; 2]> {
    let camera = side_camera(size);
    let panorama_from_side = side.side_from_panorama().inverse();
    (0..size)
        .into_par_iter()
        .flat_map_iter(|y| {
            let camera = &camera;
            (0..size).map(move |x| {
                let ray = camera.unproject(&Vector2::new(f64::from(x) + 0.5, f64::from(y) + 0.5));
                let place = place_in_panorama(&(panorama_from_side * Vector3::new(ray.x, ray.y, 1.0)));
                [(place[0] * width) as f32, (place[1] * height) as f32]
            })
        })
        .collect()
}

/// The pixels of a panorama, which goes on beyond its edges: to the left and right round itself, above and below over the pole.
struct Samples<'a> {
    pixels: &'a [u8],
    width: usize,
    height: usize,
}

impl Samples<'_> {
    /// The colour at a column and row in pixels from the corner: the middle of the first pixel is at 0.5.
    fn at(&self, u: f32, v: f32) -> [u8; 3] {
        let (x, y) = (u - 0.5, v - 0.5);
        let (column, row) = (x.floor(), y.floor());
        let (across, down) = (catmull_rom(x - column), catmull_rom(y - row));
        // The four by four pixels around begin here.
        let (left, top) = (column as isize - 1, row as isize - 1);
        let (width, height) = (self.width as isize, self.height as isize);
        let is_inside = left >= 0 && top >= 0 && left + 4 <= width && top + 4 <= height;
        let mut sum = [0.0f32; 3];
        for (j, &weight) in (0isize..).zip(&down) {
            let mut line = [0.0f32; 3];
            if is_inside {
                let start = (((top + j) * width + left) * 3) as usize;
                for (pixel, &share) in self.pixels[start..start + 12].as_chunks::<3>().0.iter().zip(&across) {
                    (0..3).for_each(|c| line[c] += share * f32::from(pixel[c]));
                }
            } else {
                for (i, &share) in (0isize..).zip(&across) {
                    let pixel = self.beyond(left + i, top + j);
                    (0..3).for_each(|c| line[c] += share * f32::from(pixel[c]));
                }
            }
            (0..3).for_each(|c| sum[c] += weight * line[c]);
        }
        sum.map(|value| (value + 0.5).clamp(0.0, 255.0) as u8)
    }

    /// The pixel at a column and row that may lie beyond an edge.
    fn beyond(&self, column: isize, row: isize) -> &[u8] {
        let (width, height) = (self.width as isize, self.height as isize);
        // Over a pole the same meridian goes on, on the other side.
        let (row, turned) = match row {
            row if row < 0 => (-1 - row, width / 2),
            row if row >= height => (2 * height - 1 - row, width / 2),
            row => (row, 0),
        };
        // A panorama of two rows has nothing further away.
        let row = row.clamp(0, height - 1);
        let start = ((row * width + (column + turned).rem_euclid(width)) * 3) as usize;
        &self.pixels[start..start + 3]
    }
}

/// Weights of the four samples around a place that is `t` (0 to 1) behind the second (Catmull and Rom, 1974).
fn catmull_rom(t: f32) -> [f32; 4] {
    let (t2, t3) = (t * t, t * t * t);
    [
        0.5 * (-t3 + 2.0 * t2 - t),
        0.5 * (3.0 * t3 - 5.0 * t2 + 2.0),
        0.5 * (-3.0 * t3 + 4.0 * t2 + t),
        0.5 * (t3 - t2),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::camera::panorama::direction_in_panorama;
    use crate::error::ErrorKind;

    /// A colour that is a smooth function of the direction (unit length), different everywhere.
    fn colour(direction: &Vector3<f64>) -> [f64; 3] {
        let wave = |a: f64, b: f64, c: f64| {
            127.5 + 80.0 * (5.0 * (a * direction.x + b * direction.y + c * direction.z)).sin()
        };
        [wave(1.0, 0.3, -0.2), wave(-0.4, 1.1, 0.5), wave(0.2, -0.6, 0.9)]
    }

    fn panorama(width: u32, height: u32) -> RgbImage {
        RgbImage::from_fn(width, height, |x, y| {
            let place = [(f64::from(x) + 0.5) / f64::from(width), (f64::from(y) + 0.5) / f64::from(height)];
            image::Rgb(colour(&direction_in_panorama(place)).map(|v| v.round() as u8))
        })
    }

    #[test]
    fn every_pixel_of_every_side_has_the_colour_of_its_direction() {
        let picture = panorama(400, 200);
        let size = side_size(400);
        assert_eq!(size, 126);
        let sides = cut_panorama(&picture, size).unwrap();
        for (side, cut) in Side::ALL.into_iter().zip(&sides) {
            let camera = side_camera(size);
            let mut worst = 0.0f64;
            for (x, y, pixel) in cut.enumerate_pixels() {
                let ray = camera.unproject(&Vector2::new(f64::from(x) + 0.5, f64::from(y) + 0.5));
                let direction =
                    side.side_from_panorama().inverse() * Vector3::new(ray.x, ray.y, 1.0).normalize();
                let expected = colour(&direction);
                for c in 0..3 {
                    worst = worst.max((f64::from(pixel[c]) - expected[c]).abs());
                }
            }
            // Two roundings to a grey level; the seam crosses the back, the poles are in the middle of up and down.
            assert!(worst < 1.3, "{side:?}: off by {worst}");
        }
    }

    #[test]
    fn fine_detail_is_kept() {
        // Meridians and parallels of 6 pixels a period: what a linear interpolation would flatten by a quarter.
        let wave = |k: u32| (f64::from(k) * std::f64::consts::TAU / 6.0).sin();
        let picture = RgbImage::from_fn(600, 300, |x, y| {
            image::Rgb([(127.5 + 50.0 * (wave(x) + wave(y))).round() as u8; 3])
        });
        let deviation = |image: &RgbImage, range: std::ops::Range<u32>| {
            let values: Vec<f64> = range
                .clone()
                .flat_map(|y| range.clone().map(move |x| (x, y)))
                .map(|(x, y)| f64::from(image.get_pixel(x, y)[0]))
                .collect();
            let mean = values.iter().sum::<f64>() / values.len() as f64;
            (values.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / values.len() as f64).sqrt()
        };
        let front = &cut_panorama(&picture, side_size(600)).unwrap()[0];
        let (before, after) = (deviation(&picture, 120..180), deviation(front, 65..125));
        assert!(after > 0.9 * before, "{after} of {before}");
    }

    #[test]
    fn sizes_follow_the_panorama_up_to_the_limit() {
        assert_eq!(working_size(3840, 1600), (3840, 1920));
        assert_eq!(side_size(3840), 1222);
        assert_eq!(working_size(7680, 1600), (5026, 2513));
        for longest in [64, 1000, 1600, 2560, 8192] {
            let (width, height) = working_size(100_000, longest);
            assert_eq!(width, 2 * height);
            assert!(side_size(width) <= longest && side_size(width) + 2 >= longest, "{longest}");
        }
        assert!(has_shape_of_panorama(3840, 1920) && has_shape_of_panorama(3840, 1930));
        assert!(!has_shape_of_panorama(3840, 1960) && !has_shape_of_panorama(1920, 3840));
    }

    #[test]
    fn what_is_no_panorama_is_not_cut() {
        for (width, height, size) in [(300, 200, 100), (400, 200, 0), (0, 0, 10)] {
            let error = cut_panorama(&RgbImage::new(width, height), size).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidArgument);
            assert!(error.message().contains(&format!("{width}x{height}")), "{error}");
        }
        // The smallest one: every tap is beyond an edge.
        let smallest = RgbImage::from_pixel(2, 1, image::Rgb([10, 20, 30]));
        assert!(cut_panorama(&smallest, 4).unwrap().iter().all(|s| s.pixels().all(|p| p.0 == [10, 20, 30])));
    }
}
