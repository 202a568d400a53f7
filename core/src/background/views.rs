//! The views in which the object is sought: small cameras and pictures with what the network saw, and masks of large
//! pictures from odds at small size.

use std::sync::Arc;

use image::imageops::{FilterType, resize};
use image::{GrayImage, RgbImage};
use nalgebra::{Vector2, Vector3};

use super::guided_filter::GuidedFilter;
use crate::camera::Camera;
use crate::defaults::with_defaults;
use crate::raster;

with_defaults! {
    /// The guided filter that fits masks to the edges of pictures. Chosen by hand.
    #[derive(Debug, Clone, PartialEq)]
    pub(super) struct EdgeOptions {
        /// Radius as a part (0 to 1) of the picture's long side.
        radius: f64 = 0.0125,
        /// Least radius in pixels.
        least_radius: usize = 2,
        /// Variance of the picture's colours (0 to 1) from which on the filter takes a change for an edge.
        epsilon: f32 = 1e-3,
    }
}

/// One picture of the capture at working size.
pub(super) struct SalientView {
    /// The camera, pixels of this size.
    pub(super) camera: raster::View,
    /// What the network says, 255 = object.
    pub(super) saliency: Vec<u8>,
    /// The picture, red, green, blue.
    pub(super) colours: Arc<[[u8; 3]]>,
}

impl SalientView {
    /// `camera` says the working size, which `saliency` has; `picture` is of any size.
    pub(super) fn new(camera: raster::View, saliency: GrayImage, picture: &RgbImage) -> Self {
        let small = match picture.dimensions() == (camera.width, camera.height) {
            true => picture.clone(),
            false => resize(picture, camera.width, camera.height, FilterType::Triangle),
        };
        let colours = small.pixels().map(|p| p.0).collect();
        Self { camera, saliency: saliency.into_raw(), colours }
    }

    /// Width and height, pixels.
    pub(super) fn size(&self) -> (usize, usize) {
        (self.camera.width as usize, self.camera.height as usize)
    }

    /// Whether the point is in the picture.
    pub(super) fn shows(&self, point: &Vector3<f64>) -> bool {
        self.camera.project(point).is_some_and(|(x, y, _)| self.camera.pixel(x, y).is_some())
    }
}

/// The mask of a picture from the log odds of its pixels at working size (`width` x `height`): smoothed along the
/// picture's own edges, soft over about a pixel.
pub(super) fn mask_of(
    picture: &RgbImage,
    log_odds: &[f32],
    width: usize,
    height: usize,
    options: &EdgeOptions,
) -> GrayImage {
    let (wide, high) = (picture.width() as usize, picture.height() as usize);
    let mut large = Vec::with_capacity(wide * high);
    for y in 0..high {
        let v = (y as f32 + 0.5) * height as f32 / high as f32 - 0.5;
        let (top, fy) = cell(v, height);
        let bottom = (top + 1).min(height - 1);
        for x in 0..wide {
            let (left, fx) = cell((x as f32 + 0.5) * width as f32 / wide as f32 - 0.5, width);
            let right = (left + 1).min(width - 1);
            let row = |y: usize| (1.0 - fx) * log_odds[y * width + left] + fx * log_odds[y * width + right];
            large.push((1.0 - fy) * row(top) + fy * row(bottom));
        }
    }
    let rgb: Vec<[u8; 3]> = picture.pixels().map(|p| p.0).collect();
    let smooth = smooth(&rgb, &large, wide, high, options);
    GrayImage::from_fn(picture.width(), picture.height(), |x, y| {
        // From background to object over log odds of -1 to 1.
        let odds = smooth[y as usize * wide + x as usize].clamp(-1.0, 1.0);
        image::Luma([(127.5 * (odds + 1.0) + 0.5) as u8])
    })
}

/// The log odds of the pixels of a picture, smoothed along its edges.
pub(super) fn smooth(
    rgb: &[[u8; 3]],
    log_odds: &[f32],
    width: usize,
    height: usize,
    options: &EdgeOptions,
) -> Vec<f32> {
    let radius = ((options.radius * width.max(height) as f64).round() as usize).max(options.least_radius);
    GuidedFilter::new(rgb, width, height, radius, options.epsilon).apply(log_odds)
}

/// Index and fraction of a coordinate between samples, within 0..count.
fn cell(at: f32, count: usize) -> (usize, f32) {
    let at = at.clamp(0.0, (count - 1) as f32);
    (at as usize, at.fract())
}

/// The map of a picture that was taken through `lens`, as the pinhole camera `view` sees it. The map covers the whole
/// picture, at any size.
pub(super) fn through_lens(map: &GrayImage, lens: &Camera, view: &raster::View) -> GrayImage {
    let (sx, sy) =
        (f64::from(map.width()) / f64::from(lens.width), f64::from(map.height()) / f64::from(lens.height));
    GrayImage::from_fn(view.width, view.height, |x, y| {
        let ray = Vector3::new(
            (f64::from(x) + 0.5 - view.cx) / view.fx,
            (f64::from(y) + 0.5 - view.cy) / view.fy,
            1.0,
        );
        let pixel = lens.project(&ray).unwrap_or_else(|| Vector2::new(-1.0, -1.0));
        image::Luma([bilinear(map, (pixel.x * sx) as f32, (pixel.y * sy) as f32)])
    })
}

/// The value at (x, y), pixels with the centre of the first at 0.5.
fn bilinear(map: &GrayImage, x: f32, y: f32) -> u8 {
    let (width, height) = (map.width() as usize, map.height() as usize);
    let ((left, fx), (top, fy)) = (cell(x - 0.5, width), cell(y - 0.5, height));
    let (right, bottom) = ((left + 1).min(width - 1), (top + 1).min(height - 1));
    let at = |x: usize, y: usize| f32::from(map.as_raw()[y * width + x]);
    let upper = (1.0 - fx) * at(left, top) + fx * at(right, top);
    let lower = (1.0 - fx) * at(left, bottom) + fx * at(right, bottom);
    ((1.0 - fy) * upper + fy * lower + 0.5) as u8
}
