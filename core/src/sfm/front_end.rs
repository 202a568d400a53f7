//! From pictures to verified pairs, a focal length and rotations: everything before the mapper, in order.

use std::sync::atomic::{AtomicUsize, Ordering};

use image::RgbImage;
use nalgebra::{UnitQuaternion, Vector2};
use rayon::prelude::*;

use crate::camera::Camera;
use crate::control::Control;
use crate::error::Result;
use crate::stage::Stage;
use crate::video::Frames;

use super::calibration::estimate_focal;
use super::features::{FeatureOptions, Features, extract};
use super::matching::{MatchOptions, PairMatches, match_pairs};
use super::options::SfmOptions;
use super::pairing::{PairingOptions, candidate_pairs};
use super::rotation_averaging::{RelativeRotation, RotationAveragingOptions, average_rotations};
use super::two_view::{TwoViewGeometry, TwoViewOptions, Views, estimate_relative_poses};

/// What was read from the pictures, by image.
pub(crate) struct Pictures {
    pub(crate) features: Vec<Features>,
    /// Pixels of the keypoints.
    pub(crate) keypoints: Vec<Vec<Vector2<f64>>>,
    /// Colours at the keypoints.
    pub(crate) colors: Vec<Vec<[u8; 3]>>,
}

/// Reads every picture once: features, and colours at them. Progress goes from 0 to `to`.
pub(crate) fn read_pictures(
    frames: &Frames,
    options: &FeatureOptions,
    control: &Control,
    to: f32,
) -> Result<Pictures> {
    let count = frames.frames.len();
    let done = AtomicUsize::new(0);
    let read: Vec<(Features, Vec<[u8; 3]>)> = (0..count)
        .into_par_iter()
        .map(|i| {
            control.check()?;
            let picture = read_picture(frames, i)?;
            let found = extract(&image::imageops::grayscale(&picture), None, options);
            let colors = found.keypoints.iter().map(|k| color_at(&picture, k.x, k.y)).collect();
            let n = done.fetch_add(1, Ordering::Relaxed) + 1;
            let message = format!("{n} of {count} frames");
            control.progress_with(Stage::Sfm, "features", to * n as f32 / count as f32, message);
            Ok((found, colors))
        })
        .collect::<Result<_>>()?;
    let (features, colors): (Vec<_>, Vec<_>) = read.into_iter().unzip();
    let pixel = |k: &super::features::Keypoint| Vector2::new(f64::from(k.x), f64::from(k.y));
    let keypoints = features.iter().map(|f| f.keypoints.iter().map(pixel).collect()).collect();
    Ok(Pictures { features, keypoints, colors })
}

pub(crate) fn read_picture(frames: &Frames, index: usize) -> Result<RgbImage> {
    frames.rgb(index)
}

/// The colour of the pixel that contains (x, y).
fn color_at(picture: &RgbImage, x: f32, y: f32) -> [u8; 3] {
    let column = (x.max(0.0) as u32).min(picture.width().saturating_sub(1));
    let row = (y.max(0.0) as u32).min(picture.height().saturating_sub(1));
    picture.get_pixel(column, row).0
}

/// Candidate matches of the pairs worth comparing.
pub(crate) fn match_pictures(
    pictures: &Pictures,
    sequential: bool,
    pairing: &PairingOptions,
    control: &Control,
) -> Result<Vec<PairMatches>> {
    let pairs = candidate_pairs(&pictures.features, sequential, pairing);
    match_pairs(&pictures.features, &pairs, &MatchOptions::default(), control)
}

/// The camera to begin with: the focal length that the caller or EXIF names, else COLMAP's guess of 1.2 times the
/// longer side.
pub(crate) fn initial_camera(frames: &Frames, options: &SfmOptions) -> (Camera, bool) {
    let (width, height) = (frames.frames[0].width, frames.frames[0].height);
    let mut exif: Vec<f64> =
        frames.frames.iter().filter_map(|f| f.focal_prior).filter(|f| *f > 0.0).collect();
    let prior = options.focal.or_else(|| crate::statistics::median(&mut exif));
    let guess = 1.2 * f64::from(width.max(height));
    (Camera::from_focal(options.camera_model, prior.unwrap_or(guess), width, height), prior.is_some())
}

/// Sets the focal length that the verified pairs agree on; leaves the guess where they say nothing.
///
/// # Errors
/// [`ErrorKind::Cancelled`](crate::ErrorKind::Cancelled).
pub(crate) fn calibrate(
    camera: &mut Camera,
    pictures: &Pictures,
    verified: &[TwoViewGeometry],
    control: &Control,
) -> Result<()> {
    let camera_of = vec![0; pictures.features.len()];
    let cameras = [camera.clone()];
    let views = Views { features: &pictures.features, camera_of: &camera_of, cameras: &cameras };
    if let Some(estimate) = estimate_focal(&views, verified, control)? {
        camera.params = Camera::from_focal(camera.model, estimate.focal, camera.width, camera.height).params;
    }
    Ok(())
}

/// Relative poses of the verified pairs for the calibrated `camera`, in their order; degenerate pairs are left out.
pub(crate) fn relative_poses(
    pictures: &Pictures,
    camera: &Camera,
    matches: &[PairMatches],
    verified: &[TwoViewGeometry],
    options: &TwoViewOptions,
    control: &Control,
) -> Result<Vec<TwoViewGeometry>> {
    let camera_of = vec![0; pictures.features.len()];
    let cameras = [camera.clone()];
    let views = Views { features: &pictures.features, camera_of: &camera_of, cameras: &cameras };
    let mut pairs = estimate_relative_poses(&views, matches, verified, options, control)?;
    pairs.retain(|p| p.second_from_first.is_some() && !p.inliers.is_empty());
    Ok(pairs)
}

/// Absolute rotations; pairs that contradict them are taken out of `pairs`.
pub(crate) fn absolute_rotations(
    images: usize,
    pairs: &mut Vec<TwoViewGeometry>,
    control: &Control,
) -> Result<Vec<Option<UnitQuaternion<f64>>>> {
    let relative: Vec<RelativeRotation> = pairs
        .iter()
        .filter_map(|p| {
            Some(RelativeRotation {
                first: p.first,
                second: p.second,
                second_from_first: p.second_from_first?.rotation,
                weight: p.inliers.len() as f64,
            })
        })
        .collect();
    let averaged = average_rotations(images, &relative, &RotationAveragingOptions::default(), control)?;
    let mut kept = averaged.kept.iter();
    pairs.retain(|_| kept.next().copied().unwrap_or(false));
    Ok(averaged.cam_from_world)
}
