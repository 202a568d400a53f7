//! The views in which masks are made consistent: small pictures, what the network saw in them, and what is thought of
//! their pixels. One byte a number: hundreds of views are in memory at once.

use image::imageops::{FilterType, resize};
use image::{GrayImage, RgbImage};
use nalgebra::{Vector2, Vector3};

use super::evidence::{Label, ScenePoint};
use super::guided_filter::{GuidedFilter, Plane, blur};
use super::hull::Silhouette;
use crate::camera::Camera;
use crate::raster;

/// Units of one step of [`View::geometry`].
const GEOMETRY_STEP: f32 = 1.0 / 32.0;
/// Evidence of points is limited to this (log odds).
const GEOMETRY_LIMIT: f32 = 3.5;
/// Points speak for the pixels around them: nearly all near by, a little farther away. Parts of the long side.
const NEAR: f64 = 0.004;
const WIDE: f64 = 0.012;
/// The weight of the wide neighbourhood.
const WIDE_WEIGHT: f32 = 0.15;
/// Densities (in units of what is usual on the object) below which points say little, for some of them are wrong. Where there
/// are none, that speaks for the background: objects have texture.
const FEW_OBJECT: f32 = 0.05;
const FEW_REST: f32 = 0.15;
/// Radius of the guided filter as a part of the long side, and the contrast (variance) at which it stops.
const FILTER_RADIUS: f64 = 0.0125;
const FILTER_EPSILON: f32 = 1e-3;

/// One picture of the capture at working size.
pub(super) struct View {
    /// The camera, pixels of this size.
    pub(super) camera: raster::View,
    /// Colours, row by row.
    pub(super) rgb: Vec<[u8; 3]>,
    /// What the network says, 255 = object.
    pub(super) saliency: Vec<u8>,
    /// What the points say: log odds in steps of 1/32.
    geometry: Vec<i8>,
    /// What of the visual hull is seen at the pixel; empty as long as there is none.
    pub(super) hull: Vec<Silhouette>,
    /// The probability that the pixel shows the object, 0 to 255.
    pub(super) probability: Vec<u8>,
}

impl View {
    /// `picture` is of any size; `camera` says the working size, which `saliency` has.
    pub(super) fn new(camera: raster::View, picture: &RgbImage, saliency: &GrayImage) -> Self {
        let small = resize(picture, camera.width, camera.height, FilterType::Triangle);
        let saliency = saliency.as_raw().clone();
        Self {
            camera,
            rgb: small.pixels().map(|p| p.0).collect(),
            geometry: vec![0; saliency.len()],
            hull: Vec::new(),
            probability: saliency.clone(),
            saliency,
        }
    }

    pub(super) fn width(&self) -> usize {
        self.camera.width as usize
    }

    pub(super) fn height(&self) -> usize {
        self.camera.height as usize
    }

    /// The pixel at a place in parts of width and height, if it is inside.
    pub(super) fn pixel_at(&self, x: f32, y: f32) -> Option<usize> {
        let (x, y) = (x * self.width() as f32, y * self.height() as f32);
        self.pixel(f64::from(x), f64::from(y))
    }

    /// The pixel at (x, y), if it is inside.
    pub(super) fn pixel(&self, x: f64, y: f64) -> Option<usize> {
        // Comparisons that fail for what is not a number.
        let inside = x >= 0.0 && y >= 0.0 && x < self.width() as f64 && y < self.height() as f64;
        inside.then(|| y as usize * self.width() + x as usize)
    }

    /// Saliency (0 to 1) at a place in parts of width and height.
    pub(super) fn saliency_at(&self, x: f32, y: f32) -> Option<f32> {
        self.pixel_at(x, y).map(|k| f32::from(self.saliency[k]) / 255.0)
    }

    /// Takes in what the points say: all that belong to the object lie within its outline, seen or hidden, and where the
    /// background was seen, the object is not.
    pub(super) fn take_points(&mut self, index: usize, points: &[ScenePoint], labels: &[Label]) {
        let (width, height) = (self.width(), self.height());
        let (mut object, mut rest) = (vec![0.0f32; width * height], vec![0.0f32; width * height]);
        for (point, label) in points.iter().zip(labels) {
            match label {
                Label::Object => {
                    if let Some(k) =
                        project(&self.camera, &point.position).and_then(|(x, y, _)| self.pixel(x, y))
                    {
                        object[k] = 1.0;
                    }
                }
                Label::Background => {
                    for &(view, x, y) in &point.seen {
                        if view as usize == index
                            && let Some(k) = self.pixel_at(x, y)
                        {
                            rest[k] = 1.0;
                        }
                    }
                }
                Label::Unknown => {}
            }
        }
        let long = width.max(height) as f64;
        let blurred = |plane: &Plane, sigma: f64| {
            let mut plane = plane.clone();
            blur(&mut plane, width, height, sigma * long);
            plane
        };
        let (object_near, object_wide) = (blurred(&object, NEAR), blurred(&object, WIDE));
        let (rest_near, rest_wide) = (blurred(&rest, NEAR), blurred(&rest, WIDE));
        // What is usual at a point of the object is the unit.
        let usual = |blurred: &Plane| {
            let mut at: Vec<f32> =
                object.iter().zip(blurred).filter(|(o, _)| **o > 0.0).map(|(_, b)| *b).collect();
            at.sort_by(f32::total_cmp);
            at.get(at.len() / 2).copied().unwrap_or(1.0).max(1e-6)
        };
        let (near, wide) = (usual(&object_near), usual(&object_wide));
        for k in 0..width * height {
            let object = object_near[k] / near + WIDE_WEIGHT * object_wide[k] / wide;
            let rest = rest_near[k] / near + WIDE_WEIGHT * rest_wide[k] / wide;
            let odds =
                ((object + FEW_OBJECT) / (rest + FEW_REST)).ln().clamp(-GEOMETRY_LIMIT, GEOMETRY_LIMIT);
            self.geometry[k] = (odds / GEOMETRY_STEP).round() as i8;
        }
    }

    /// Log odds from the points.
    pub(super) fn geometry(&self, pixel: usize) -> f32 {
        f32::from(self.geometry[pixel]) * GEOMETRY_STEP
    }

    /// Log odds from the network: little where it sees nothing, for it misses much.
    pub(super) fn salience(&self, pixel: usize) -> f32 {
        (4.5 * (f32::from(self.saliency[pixel]) / 255.0 - 0.2)).clamp(-1.0, 3.0)
    }

    /// Smooths the evidence (log odds by pixel) up to the picture's edges; it becomes the probability.
    pub(super) fn decide(&mut self, evidence: &[f32]) {
        let radius = filter_radius(self.width(), self.height());
        let filter = GuidedFilter::new(&self.rgb, self.width(), self.height(), radius, FILTER_EPSILON);
        let smooth = filter.apply(evidence);
        self.probability = smooth.iter().map(|v| (255.0 / (1.0 + (-2.0 * v).exp()) + 0.5) as u8).collect();
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
