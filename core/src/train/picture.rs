//! Pictures as the trainer needs them: decoded, averaged down, as floats.

use std::path::Path;

use image::{DynamicImage, GrayImage};

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
    /// By pixel: whether something else hides the scene there, where that is known of any. Their alpha is 0.
    pub hidden: Option<Vec<bool>>,
}

impl Picture {
    /// Reads a picture and averages it down (or up) to `width` x `height`.
    ///
    /// # Errors
    /// `NotFound` or `Io` if it cannot be read, `InvalidMedia` if it is no picture.
    pub fn read(path: &Path, width: u32, height: u32) -> Result<Self> {
        Self::read_masked(path, None, width, height)
    }

    /// [`Picture::read`] with the alpha of `mask`, a grey picture of the same shape, which may be smaller or larger.
    ///
    /// # Errors
    /// Those of [`Picture::read`]; `InvalidMedia` if the mask has another shape.
    pub fn read_masked(path: &Path, mask: Option<&Path>, width: u32, height: u32) -> Result<Self> {
        let decoded = decode(path)?;
        let size = (decoded.width(), decoded.height());
        let mask = mask.map(|mask| read_mask_of(("picture", size), mask)).transpose()?;
        Ok(Self::averaged(with_alpha(decoded, mask), width, height))
    }

    /// [`Picture::read_masked`] of what a camera of the size `camera` (width, height) took, with the mask of the object and that of what
    /// hides it.
    ///
    /// # Errors
    /// Those of [`Picture::read`]; `InvalidMedia` if the picture or its mask has not the shape of the camera.
    pub(super) fn read_of(
        camera: (u32, u32),
        path: &Path,
        (mask, hidden): (Option<&Path>, Option<&Path>),
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
        let read = |mask: &Path| read_mask_of(("camera", camera), mask);
        let (mask, hidden) = (mask.map(read).transpose()?, hidden.map(read).transpose()?);
        let picture = Self::averaged(with_alpha(decoded, mask), width, height);
        Ok(match hidden {
            Some(hidden) => picture.hiding(&hidden),
            None => picture,
        })
    }

    /// With the pixels hidden of which any part is in this mask.
    fn hiding(mut self, mask: &GrayImage) -> Self {
        let (w, h) = mask.dimensions();
        let covered = area_resize(mask, w, h, 1, self.width, self.height).data;
        let hidden: Vec<bool> = covered.into_iter().map(|part| byte(part) > 0).collect();
        if !hidden.contains(&true) {
            return self;
        }
        let pixels = self.data.chunks_exact(self.channels).zip(&hidden);
        let rgba = |(p, hidden): (&[f32], &bool)| {
            let alpha = p.get(3).copied().unwrap_or(1.0);
            [p[0], p[1], p[2], if *hidden { 0.0 } else { alpha }]
        };
        self.data = pixels.flat_map(rgba).collect();
        (self.channels, self.hidden) = (4, Some(hidden));
        self
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
        let pixels = self.data.chunks_exact(self.channels);
        let mut rgb: Vec<u8> = pixels.clone().flat_map(|p| [byte(p[0]), byte(p[1]), byte(p[2])]).collect();
        let alpha: Option<Vec<u8>> = (self.channels == 4).then(|| pixels.map(|p| byte(p[3])).collect());
        if let (Some(hidden), Some(alpha)) = (&self.hidden, &alpha) {
            // The colour of a transparent pixel says whether it is hidden.
            for ((colour, alpha), hidden) in rgb.chunks_exact_mut(3).zip(alpha).zip(hidden) {
                if *alpha == 0 {
                    colour.fill(if *hidden { 255 } else { 0 });
                }
            }
        }
        Target { width: self.width, height: self.height, rgb, alpha, hides: self.hidden.is_some() }
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

/// A value in 0..1 as 8 bits.
fn byte(value: f32) -> u8 {
    (value * 255.0 + 0.5) as u8
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

/// Reads the mask at `path`, which must have the shape of what it belongs to: its picture or its camera, of that size (width, height).
///
/// # Errors
/// Those of [`read_mask`]; `InvalidMedia` if it has another shape.
pub(super) fn read_mask_of((what, (width, height)): (&str, (u32, u32)), path: &Path) -> Result<GrayImage> {
    let mask = read_mask(path)?;
    let (w, h) = mask.dimensions();
    if have_one_shape((w, h), (width, height)) {
        return Ok(mask);
    }
    Err(Error::new(
        ErrorKind::InvalidMedia,
        format!("the mask {} is {w}x{h}, its {what} {width}x{height}", path.display()),
    )
    .hint("masks for training belong to the undistorted pictures; they may be smaller or larger, with their shape kept"))
}

/// The picture with the mask, if there is one, as its alpha, on top of what alpha it has. A mask of another size is averaged to that of
/// the picture.
fn with_alpha(picture: DynamicImage, mask: Option<GrayImage>) -> DynamicImage {
    let Some(mask) = mask else { return picture };
    let mut picture = picture.into_rgba8();
    let ((w, h), (width, height)) = (mask.dimensions(), picture.dimensions());
    let alpha = if (w, h) == (width, height) {
        mask.into_raw()
    } else {
        area_resize(&mask, w, h, 1, width, height).data.into_iter().map(byte).collect()
    };
    for (pixel, alpha) in picture.pixels_mut().zip(alpha) {
        pixel[3] = ((u16::from(pixel[3]) * u16::from(alpha) + 127) / 255) as u8;
    }
    picture.into()
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
    Picture { width, height, channels, data, hidden: None }
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
    fn a_mask_is_averaged_to_the_size_of_its_picture_and_has_its_shape() {
        let folder = tempfile::tempdir().unwrap();
        let (path, mask) = (folder.path().join("picture.png"), folder.path().join("mask.png"));
        image::RgbImage::from_pixel(4, 2, image::Rgb([9; 3])).save(&path).unwrap();
        let masked = |width, height, object: u32| {
            let value = |x: u32| image::Luma([255 * u8::from(x < object)]);
            GrayImage::from_fn(width, height, |x, _| value(x)).save(&mask).unwrap();
            Picture::read_masked(&path, Some(&mask), 4, 2).map(|picture| picture.to_target().alpha.unwrap())
        };
        assert_eq!(masked(4, 2, 2).unwrap(), [255, 255, 0, 0, 255, 255, 0, 0]);
        assert_eq!(masked(2, 1, 1).unwrap(), [255, 255, 0, 0, 255, 255, 0, 0]);
        let larger = masked(8, 4, 3).unwrap();
        assert!(larger[0] == 255 && (127..=128).contains(&larger[1]) && larger[2] == 0, "{larger:?}");
        let turned = masked(2, 4, 1).unwrap_err();
        assert_eq!(turned.kind(), ErrorKind::InvalidMedia);
        assert!(turned.message().contains("mask.png is 2x4, its picture 4x2"), "{turned}");
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
