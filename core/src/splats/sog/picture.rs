//! One picture of a scene: values in its bytes, row by row.

use std::io::Cursor;

use image::codecs::webp::WebPDecoder;
use image::{ColorType, ImageDecoder};

/// Pixels of four bytes: red, green, blue, alpha.
pub(super) struct Picture {
    pub(super) width: usize,
    pub(super) height: usize,
    pub(super) pixels: Vec<[u8; 4]>,
}

impl Picture {
    /// A picture of these pixels in about a square. What is left over is filled with the last one.
    pub(super) fn square(mut pixels: Vec<[u8; 4]>) -> Self {
        // Sides of whole blocks of four suit graphics devices.
        let side = |length: f64| (length.ceil() as usize).next_multiple_of(4).max(4);
        let width = side((pixels.len() as f64).sqrt());
        let height = side(pixels.len() as f64 / width as f64);
        pixels.resize(width * height, pixels.last().copied().unwrap_or([0, 0, 0, 255]));
        Self { width, height, pixels }
    }

    /// Decodes a WebP picture, if its size is one that `fits` (width, height in pixels): it is asked before room is made.
    pub(super) fn decode(bytes: &[u8], fits: impl Fn(usize, usize) -> bool) -> Result<Self, String> {
        let damaged = |e: image::ImageError| format!("is damaged: {e}");
        let decoder = WebPDecoder::new(Cursor::new(bytes)).map_err(damaged)?;
        if decoder.has_animation() {
            return Err("is a film".into());
        }
        let (width, height) = decoder.dimensions();
        let (width, height) = (width as usize, height as usize);
        if !fits(width, height) {
            return Err(format!("is {width}x{height}, which does not suit the numbers in the description"));
        }
        // Sides are at most 16384.
        let pixels = match decoder.color_type() {
            ColorType::Rgba8 => {
                let mut pixels = vec![[0; 4]; width * height];
                decoder.read_image(pixels.as_flattened_mut()).map_err(damaged)?;
                pixels
            }
            // Programs leave out an alpha that is the same everywhere.
            ColorType::Rgb8 => {
                let mut opaque = vec![[0; 3]; width * height];
                decoder.read_image(opaque.as_flattened_mut()).map_err(damaged)?;
                opaque.into_iter().map(|[r, g, b]| [r, g, b, 255]).collect()
            }
            _ => return Err("is of an unusual kind".into()),
        };
        Ok(Self { width, height, pixels })
    }
}
