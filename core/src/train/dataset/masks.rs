//! The masks of the training pictures, read once to know which views and points belong to the object.

use std::path::{Path, PathBuf};

use image::GrayImage;
use rayon::prelude::*;
use sha2::{Digest, Sha256};

use super::parts::{DatasetView, SeedPoint};
use crate::control::Control;
use crate::error::Result;
use crate::masks::{
    LEAST_COVERAGE, coverage, find_mask, find_masks, hidden_folder, is_object, is_object_point,
};
use crate::raster::View;
use crate::train::picture::read_mask_of;

/// With fewer points on the object than this, training begins with all points.
const FEW_POINTS: usize = 20;

/// What is known of a view's mask.
pub(super) struct ViewMask {
    pub(super) path: PathBuf,
    pub(super) hidden: Option<PathBuf>,
    pub(super) digest: [u8; 32],
    pub(super) shows_object: bool,
    /// Indices of the points that it sees on the object.
    points: Vec<u32>,
}

/// Reads the masks of all `views`, one after the other on each thread: all of them at full size may be gigabytes.
pub(super) fn read(
    views: &[DatasetView],
    points: &[SeedPoint],
    folder: &Path,
    control: &Control,
) -> Result<Vec<ViewMask>> {
    let of_hidden = hidden_folder(folder);
    let found = find_masks(folder, views.iter().map(|v| v.name.as_str()))?;
    let mut seen: Vec<Vec<u32>> = vec![Vec::new(); views.len()];
    for (p, point) in points.iter().enumerate() {
        point.views.iter().for_each(|&v| seen[v as usize].push(p as u32));
    }
    found
        .into_par_iter()
        .zip(views)
        .zip(seen)
        .map(|((path, view), mut seen)| {
            control.check()?;
            let camera = ("camera", (view.view.width, view.view.height));
            let mask = read_mask_of(camera, &path)?;
            let mut digest = Sha256::new();
            digest.update(mask.as_raw());
            let hidden = find_mask(&of_hidden, &view.name);
            if let Some(hidden) = &hidden {
                digest.update(read_mask_of(camera, hidden)?.as_raw());
            }
            let digest = digest.finalize().into();
            let view = view.view.resized(mask.width(), mask.height());
            seen.retain(|&p| is_on_object(&points[p as usize], &view, &mask));
            let shows_object = coverage(&mask) > LEAST_COVERAGE;
            Ok(ViewMask { path, hidden, digest, shows_object, points: seen })
        })
        .collect()
}

/// Whether `view`, of whose size the `mask` is, sees the point on the object.
fn is_on_object(point: &SeedPoint, view: &View, mask: &GrayImage) -> bool {
    let pixel = view.project(&point.position).and_then(|(x, y, _)| view.pixel(x, y));
    pixel.and_then(|pixel| mask.as_raw().get(pixel)).is_some_and(|value| is_object(*value))
}

/// Keeps the points on the object ([`is_object_point`]).
pub(super) fn keep_object_points(points: &mut Vec<SeedPoint>, masks: &[ViewMask]) {
    let mut on_object = vec![0; points.len()];
    // Indices of these points, by `read`.
    masks.iter().flat_map(|mask| &mask.points).for_each(|&p| on_object[p as usize] += 1);
    let is_object = |(point, on): (&SeedPoint, &usize)| is_object_point(*on, point.views.len());
    let kept: Vec<bool> = points.iter().zip(&on_object).map(is_object).collect();
    if kept.iter().filter(|k| **k).count() >= FEW_POINTS {
        let mut kept = kept.into_iter();
        points.retain(|_| kept.next().unwrap_or(true));
    }
}
