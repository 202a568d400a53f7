//! Pictures as the trainer needs them: decoded, averaged down, as floats.

use std::path::Path;

use image::DynamicImage;

use crate::error::{Error, ErrorKind, Result};
use crate::masks::read_mask;
use crate::picture_file;
use crate::raster::Target;

/// A picture with `channels` (3 or 4) floats per pixel in 0..1, row by row; colour is not premultiplied.
#[derive(Debug, Clone, PartialEq)]
pub struct Picture {
    /// Width in pixels.
    pub width: u32,
    /// Height in pixels.
    pub height: u32,
    /// 3 (r, g, b) or 4 (r, g, b, alpha).
    pub channels: usize,
    /// `width * height * channels` values.
    pub data: Vec<f32>,
}

impl Picture {
    /// Reads a picture and averages it down (or up) to `width` x `height`.
    ///
    /// # Errors
    /// `NotFound` or `Io` if it cannot be read, `InvalidMedia` if it is no picture.
    pub fn read(path: &Path, width: u32, height: u32) -> Result<Self> {
        Self::read_masked(path, None, width, height)
    }

    /// [`Picture::read`] with the alpha of `mask`, a grey picture of the same size.
    ///
    /// # Errors
    /// Those of [`Picture::read`]; `InvalidMedia` if the mask has another size.
    pub fn read_masked(path: &Path, mask: Option<&Path>, width: u32, height: u32) -> Result<Self> {
        Ok(Self::averaged(with_alpha(decode(path)?, mask, path)?, width, height))
    }

    /// [`Picture::read_masked`] of what a camera of the size `camera` (width, height) took.
    ///
    /// # Errors
    /// Those of [`Picture::read_masked`]; `InvalidMedia` if the picture has not the shape of its camera.
    pub(super) fn read_of(
        camera: (u32, u32),
        path: &Path,
        mask: Option<&Path>,
        (width, height): (u32, u32),
    ) -> Result<Self> {
        let decoded = decode(path)?;
        let (w, h) = (decoded.width(), decoded.height());
        if !have_one_shape((w, h), camera) {
            return Err(Error::new(
                ErrorKind::InvalidMedia,
                format!("the picture {} is {w}x{h}, its camera {}x{}", path.display(), camera.0, camera.1),
            )
            .hint(
                "give the pictures that belong to this model, or make all of them smaller with their shape kept; one that was \
                 turned or cut needs a camera of its own",
            ));
        }
        Ok(Self::averaged(with_alpha(decoded, mask, path)?, width, height))
    }

    /// Averages a picture down (or up).
    fn averaged(decoded: DynamicImage, width: u32, height: u32) -> Self {
        let (w, h) = (decoded.width(), decoded.height());
        if !decoded.color().has_alpha() {
            return area_resize(&decoded.into_rgb8(), w, h, 3, width, height);
        }
        let mut pixels = decoded.into_rgba8().into_raw();
        if pixels.chunks_exact(4).all(|p| p[3] == 255) {
            let rgb: Vec<u8> = pixels.chunks_exact(4).flat_map(|p| [p[0], p[1], p[2]]).collect();
            return area_resize(&rgb, w, h, 3, width, height);
        }
        // Colours are averaged by how much of them is there: premultiply in 16 bits would be exact, 8 bits lose up to
        // half a level only where alpha is low, and there the loss is weighted by alpha.
        for p in pixels.chunks_exact_mut(4) {
            let alpha = u16::from(p[3]);
            for c in 0..3 {
                p[c] = ((u16::from(p[c]) * alpha + 127) / 255) as u8;
            }
        }
        let mut picture = area_resize(&pixels, w, h, 4, width, height);
        for p in picture.data.chunks_exact_mut(4) {
            if p[3] > 0.0 {
                for c in 0..3 {
                    p[c] = (p[c] / p[3]).min(1.0);
                }
            }
        }
        picture
    }

    /// As a target of the rasteriser: rounded to 8 bits.
    pub fn to_target(&self) -> Target {
        let byte = |v: f32| (v * 255.0 + 0.5) as u8;
        let pixels = self.data.chunks_exact(self.channels);
        let rgb = pixels.clone().flat_map(|p| [byte(p[0]), byte(p[1]), byte(p[2])]).collect();
        let alpha = (self.channels == 4).then(|| pixels.map(|p| byte(p[3])).collect());
        Target { width: self.width, height: self.height, rgb, alpha }
    }

    /// The colours over `background`, three floats per pixel.
    pub fn over(&self, background: [f32; 3]) -> Vec<[f32; 3]> {
        self.data
            .chunks_exact(self.channels)
            .map(|p| {
                let alpha = if self.channels == 4 { p[3] } else { 1.0 };
                std::array::from_fn(|c| p[c] * alpha + background[c] * (1.0 - alpha))
            })
            .collect()
    }
}

/// Reads a picture as it is.
fn decode(path: &Path) -> Result<DynamicImage> {
    picture_file::read(path).map_err(|e| match e.kind() {
        ErrorKind::InvalidMedia => e.hint(
            "the file is damaged or no JPEG, PNG or WebP picture; replace it or leave it out of the model",
        ),
        _ => e,
    })
}

/// Whether pictures of two sizes (width, height) have the same shape, to a hundredth and a pixel: so much is lost to rounding
/// where one was made smaller.
fn have_one_shape((w, h): (u32, u32), (width, height): (u32, u32)) -> bool {
    let [w, h, width, height] = [w, h, width, height].map(f64::from);
    let is_near = |is: f64, should: f64| (is - should).abs() <= 1.0 + 0.01 * should;
    // By either side: a pixel of the short one may be many of the long one.
    is_near(h, w * height / width) || is_near(w, h * width / height)
}

/// The picture with the mask at `mask`, if there is one, as its alpha, on top of what alpha it has.
fn with_alpha(picture: DynamicImage, mask: Option<&Path>, path: &Path) -> Result<DynamicImage> {
    let Some(mask) = mask else { return Ok(picture) };
    let alpha = read_mask(mask)?;
    let mut picture = picture.into_rgba8();
    if alpha.dimensions() != picture.dimensions() {
        let ((w, h), (mw, mh)) = (picture.dimensions(), alpha.dimensions());
        return Err(Error::new(
            ErrorKind::InvalidMedia,
            format!("the mask {} is {mw}x{mh}, its picture {} {w}x{h}", mask.display(), path.display()),
        )
        .hint("masks for training belong to the undistorted pictures"));
    }
    for (pixel, alpha) in picture.pixels_mut().zip(alpha.pixels()) {
        pixel[3] = ((u16::from(pixel[3]) * u16::from(alpha[0]) + 127) / 255) as u8;
    }
    Ok(picture.into())
}

/// For every target cell the source cells that it covers: the first one and their weights, which sum to 1.
fn area_weights(source: u32, target: u32) -> Vec<(usize, Vec<f32>)> {
    let ratio = f64::from(source) / f64::from(target);
    (0..target)
        .map(|i| {
            let (low, high) = (f64::from(i) * ratio, f64::from(i + 1) * ratio);
            let first = (low.floor() as u32).min(source - 1);
            let last = (high.ceil() as u32).clamp(first + 1, source);
            let cover: Vec<f64> = (first..last)
                .map(|c| (high.min(f64::from(c + 1)) - low.max(f64::from(c))).max(0.0))
                .collect();
            let sum: f64 = cover.iter().sum();
            (first as usize, cover.iter().map(|c| (c / sum) as f32).collect())
        })
        .collect()
}

/// Averages 8-bit pixels over the areas of the target's pixels; values 0..1.
fn area_resize(pixels: &[u8], w: u32, h: u32, channels: usize, width: u32, height: u32) -> Picture {
    let columns = area_weights(w, width);
    let rows = area_weights(h, height);
    let (stride, out_stride) = (w as usize * channels, width as usize * channels);
    let mut data = vec![0.0f32; out_stride * height as usize];
    let mut reduced = vec![0.0f32; out_stride];
    // A source row belongs to at most a few target rows that follow each other; it is reduced once.
    let mut done = usize::MAX;
    for (y, (first, weights)) in rows.iter().enumerate() {
        let out = &mut data[y * out_stride..(y + 1) * out_stride];
        for (k, weight) in weights.iter().enumerate() {
            if done != first + k {
                done = first + k;
                let source = &pixels[done * stride..(done + 1) * stride];
                for (x, (start, cover)) in columns.iter().enumerate() {
                    for c in 0..channels {
                        let sum: f32 = cover
                            .iter()
                            .enumerate()
                            .map(|(j, v)| v * f32::from(source[(start + j) * channels + c]))
                            .sum();
                        reduced[x * channels + c] = sum;
                    }
                }
            }
            for (o, r) in out.iter_mut().zip(&reduced) {
                *o += weight * r * (1.0 / 255.0);
            }
        }
    }
    for v in &mut data {
        *v = v.clamp(0.0, 1.0);
    }
    Picture { width, height, channels, data }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn averaging_weighs_by_covered_area() {
        let ramp: Vec<u8> = (0..12).flat_map(|v| [v, v, v]).collect();
        let third = area_resize(&ramp, 12, 1, 3, 3, 1);
        for (pixel, expected) in third.data.chunks_exact(3).zip([1.5, 5.5, 9.5]) {
            assert!((pixel[1] * 255.0 - expected).abs() < 1e-4);
        }
        // 3 cells on 2: each target cell has one whole and half of the middle one.
        let uneven = area_resize(&[0, 0, 0, 1, 1, 1, 2, 2, 2], 1, 3, 3, 1, 2);
        assert!((uneven.data[0] * 255.0 - 1.0 / 3.0).abs() < 1e-5);
        assert!((uneven.data[3] * 255.0 - 5.0 / 3.0).abs() < 1e-5);
    }

    #[test]
    fn same_size_keeps_every_value() {
        let pixels: Vec<u8> = (0..5 * 4 * 3).map(|i| (i * 7 % 256) as u8).collect();
        let same = area_resize(&pixels, 5, 4, 3, 5, 4);
        assert_eq!(same.to_target().rgb, pixels);
    }

    #[test]
    fn transparent_pixels_do_not_bleed_their_colour() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("half.png");
        let mut png = image::RgbaImage::new(2, 1);
        png.put_pixel(0, 0, image::Rgba([200, 100, 50, 255]));
        png.put_pixel(1, 0, image::Rgba([0, 255, 0, 0]));
        png.save(&path).unwrap();
        let target = Picture::read(&path, 1, 1).unwrap().to_target();
        assert_eq!(target.rgb, [200, 100, 50]);
        assert_eq!(target.alpha, Some(vec![128]));
    }

    #[test]
    fn rounding_leaves_a_shape_and_turning_does_not() {
        // Made smaller by 2, 3, 4 and 8, rounded either way.
        for (w, h) in [(2473, 1643), (1648, 1096), (1236, 821), (618, 411), (619, 410), (9890, 6572), (1, 1)]
        {
            assert!(have_one_shape((w, h), (4945, 3286)), "{w}x{h}");
        }
        assert!(have_one_shape((3, 100), (10, 300)) && have_one_shape((100, 3), (300, 10)));
        for (w, h) in [(3286, 4945), (1643, 2473), (4945, 2782), (4380, 3286), (2473, 1600)] {
            assert!(!have_one_shape((w, h), (4945, 3286)), "{w}x{h}");
        }
    }

    #[test]
    fn a_file_that_is_no_picture_says_so() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("text.jpg");
        std::fs::write(&path, "no picture").unwrap();
        let error = Picture::read(&path, 4, 4).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidMedia);
        assert!(error.to_string().contains("text.jpg"));
        assert_eq!(
            Picture::read(&folder.path().join("none.png"), 4, 4).unwrap_err().kind(),
            ErrorKind::NotFound
        );
    }
}
