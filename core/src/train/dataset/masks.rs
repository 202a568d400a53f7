//! The masks of the training pictures, read once to know which views and points belong to the object.

use std::path::{Path, PathBuf};

use image::GrayImage;
use rayon::prelude::*;
use sha2::{Digest, Sha256};

use super::parts::{DatasetView, SeedPoint};
use crate::control::Control;
use crate::error::{Error, ErrorKind, Result};
use crate::masks::{LEAST_COVERAGE, coverage, find_masks, is_object, is_object_point, read_mask};

/// With fewer points on the object than this, training begins with all points.
const FEW_POINTS: usize = 20;

/// What is known of a view's mask.
pub(super) struct ViewMask {
    pub(super) path: PathBuf,
    pub(super) digest: [u8; 32],
    pub(super) shows_object: bool,
    mask: GrayImage,
}

/// Reads the masks of all `views`.
pub(super) fn read(views: &[DatasetView], folder: &Path, control: &Control) -> Result<Vec<ViewMask>> {
    let found = find_masks(folder, views.iter().map(|v| v.name.as_str()))?;
    found
        .into_par_iter()
        .zip(views)
        .map(|(path, view)| {
            control.check()?;
            let mask = read_mask(&path)?;
            if mask.dimensions() != (view.view.width, view.view.height) {
                let (w, h) = mask.dimensions();
                return Err(Error::new(
                    ErrorKind::InvalidMedia,
                    format!(
                        "the mask {} is {w}x{h}, its picture {}x{}",
                        path.display(),
                        view.view.width,
                        view.view.height
                    ),
                )
                .hint("masks for training belong to the undistorted pictures"));
            }
            let digest = Sha256::digest(mask.as_raw()).into();
            Ok(ViewMask { path, digest, shows_object: coverage(&mask) > LEAST_COVERAGE, mask })
        })
        .collect()
}

/// Keeps the points on the object ([`is_object_point`]).
pub(super) fn keep_object_points(points: &mut Vec<SeedPoint>, views: &[DatasetView], masks: &[ViewMask]) {
    let is_object = |point: &SeedPoint| {
        let on = |&&v: &&u32| {
            let (view, mask) = (&views[v as usize].view, &masks[v as usize].mask);
            // The mask is of the view's size.
            let pixel = view.project(&point.position).and_then(|(x, y, _)| view.pixel(x, y));
            pixel.and_then(|pixel| mask.as_raw().get(pixel)).is_some_and(|value| is_object(*value))
        };
        is_object_point(point.views.iter().filter(on).count(), point.views.len())
    };
    let kept: Vec<bool> = points.par_iter().map(is_object).collect();
    if kept.iter().filter(|k| **k).count() >= FEW_POINTS {
        let mut kept = kept.into_iter();
        points.retain(|_| kept.next().unwrap_or(true));
    }
}
