//! The views in which the object is sought: small cameras with what the network saw, and masks of large pictures from
//! evidence at small size.

use image::{GrayImage, RgbImage};
use nalgebra::{Vector2, Vector3};

use super::guided_filter::GuidedFilter;
use crate::camera::Camera;
use crate::raster;

/// Radius of the guided filter as a part of the long side, and the contrast (variance) at which it stops.
const FILTER_RADIUS: f64 = 0.0125;
const FILTER_EPSILON: f32 = 1e-3;
/// What is seen of the scene is known to this part: the evidence of a pixel (log odds) stays within bounds.
const DOUBT: f32 = 0.03;
/// The network speaks for pixels of which the scene says little.
const NETWORK: f32 = 0.3;

/// One picture of the capture at working size.
pub(super) struct View {
    /// The camera, pixels of this size.
    pub(super) camera: raster::View,
    /// What the network says, 255 = object.
    pub(super) saliency: Vec<u8>,
}

impl View {
    /// `camera` says the working size, which `saliency` has.
    pub(super) fn new(camera: raster::View, saliency: GrayImage) -> Self {
        Self { camera, saliency: saliency.into_raw() }
    }

    /// Log odds of every pixel, from how much of it shows Gaussians of the object, and such of which it cannot be told. What it
    /// shows of no Gaussian is background: training is over black.
    pub(super) fn odds(&self, seen: &[[f32; 4]]) -> Vec<f32> {
        let odds = |([object, unknown, ..], saliency): (&[f32; 4], &u8)| {
            let background = (1.0 - object - unknown).max(0.0);
            // Little where the network sees nothing, for it misses much.
            let network = (4.5 * (f32::from(*saliency) / 255.0 - 0.2)).clamp(-1.0, 3.0);
            ((object + DOUBT) / (background + DOUBT)).ln() + NETWORK * network
        };
        seen.iter().zip(&self.saliency).map(odds).collect()
    }
}

/// The radius of the guided filter for a picture of that size.
fn filter_radius(width: usize, height: usize) -> usize {
    ((FILTER_RADIUS * width.max(height) as f64).round() as usize).max(2)
}

/// The mask of a picture from the evidence at working size (`width` x `height`): smoothed along the picture's own edges,
/// soft over about a pixel.
pub(super) fn mask_of(picture: &RgbImage, evidence: &[f32], width: usize, height: usize) -> GrayImage {
    let (wide, high) = (picture.width() as usize, picture.height() as usize);
    let mut large = Vec::with_capacity(wide * high);
    for y in 0..high {
        let v = (y as f32 + 0.5) * height as f32 / high as f32 - 0.5;
        let (top, fy) = cell(v, height);
        let bottom = (top + 1).min(height - 1);
        for x in 0..wide {
            let (left, fx) = cell((x as f32 + 0.5) * width as f32 / wide as f32 - 0.5, width);
            let right = (left + 1).min(width - 1);
            let row = |y: usize| (1.0 - fx) * evidence[y * width + left] + fx * evidence[y * width + right];
            large.push((1.0 - fy) * row(top) + fy * row(bottom));
        }
    }
    let rgb: Vec<[u8; 3]> = picture.pixels().map(|p| p.0).collect();
    let filter = GuidedFilter::new(&rgb, wide, high, filter_radius(wide, high), FILTER_EPSILON);
    let smooth = filter.apply(&large);
    GrayImage::from_fn(picture.width(), picture.height(), |x, y| {
        // From background to object over log odds of -1 to 1.
        let odds = smooth[y as usize * wide + x as usize].clamp(-1.0, 1.0);
        image::Luma([(127.5 * (odds + 1.0) + 0.5) as u8])
    })
}

/// Index and fraction of a coordinate between samples, within 0..count.
fn cell(at: f32, count: usize) -> (usize, f32) {
    let at = at.clamp(0.0, (count - 1) as f32);
    (at as usize, at.fract())
}

/// The map of a picture that `lens` made, stretched over it, as the pinhole camera `view` sees it.
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

/// Where a world point is seen: x and y in pixels, and its depth.
pub(super) fn project(camera: &raster::View, point: &Vector3<f64>) -> Option<(f64, f64, f64)> {
    let p = crate::train::to_camera(camera, point);
    (p.z > 1e-9).then(|| (camera.fx * p.x / p.z + camera.cx, camera.fy * p.y / p.z + camera.cy, p.z))
}

/// The index, row by row, of the pixel of `camera` at (x, y), if it is inside.
pub(super) fn pixel(camera: &raster::View, x: f64, y: f64) -> Option<usize> {
    let (width, height) = (camera.width, camera.height);
    // Comparisons that fail for what is not a number.
    let inside = x >= 0.0 && y >= 0.0 && x < f64::from(width) && y < f64::from(height);
    inside.then(|| y as usize * width as usize + x as usize)
}
