//! The last adjustments of a map, and the intrinsics that a capture may tell or not.

use crate::camera::{Camera, CameraModel};
use crate::control::Control;
use crate::error::Result;

use super::bundle_adjustment::{
    BundleOptions, RefineIntrinsics, adjust, intrinsics_deviations, principal_point_index,
};
use super::filters::{filter_images, filter_points};
use super::map::{Keypoints, Map, MapPoint, Observation};
use super::mapper_options::MapperOptions;
use super::projection::Loss;
use crate::statistics::{MEDIAN_OF_RAYLEIGH, median};

/// Standard deviation of a keypoint's x and y in pixels, as the reprojection errors of most show it; `None` for a map
/// without points.
pub(crate) fn keypoint_noise(map: &Map, keypoints: &Keypoints) -> Option<f64> {
    let observations = map.points.iter().flat_map(|p| p.track.iter().map(move |o| (p, o)));
    let error = |(p, o): (&MapPoint, &Observation)| {
        map.reprojection_error(o.image as usize, &p.xyz, &keypoints[o.image as usize][o.keypoint as usize])
    };
    let mut errors: Vec<f64> = observations.map(error).collect();
    median(&mut errors).map(|error| error / MEDIAN_OF_RAYLEIGH)
}

/// What became of the principal point.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct PrincipalPoint {
    /// Whether it was refined; else it is the image centre.
    pub(crate) refined: bool,
    /// Across and down when it was free: distance in pixels from the image centre, and standard deviation; `None` where
    /// the capture says nothing.
    pub(crate) axes: Option<[(f64, f64); 2]>,
}

impl PrincipalPoint {
    /// Standard deviation in pixels when it was free: the larger of x and y.
    pub(crate) fn deviation(&self) -> Option<f64> {
        self.axes.map(|[across, down]| across.1.max(down.1))
    }

    /// Distance in pixels from the image centre when it was free.
    pub(crate) fn shift(&self) -> Option<f64> {
        self.axes.map(|[across, down]| across.0.hypot(down.0))
    }
}

/// Standard deviation of the principal point's prior in pixels.
pub(crate) fn principal_point_prior(camera: &Camera, options: &MapperOptions) -> f64 {
    options.polishing.principal_point_prior * f64::from(camera.width.max(camera.height))
}

/// How a finished map is adjusted, with the principal point free under its prior (its standard deviation in pixels) or
/// fixed. Errors of keypoints are not normal: most are of some tenths of a pixel, and some, on contours and at coarse
/// scales, of pixels. How large they may be to count fully follows from what is usual in the map.
pub(crate) fn bundle_options(
    map: &Map,
    keypoints: &Keypoints,
    options: &MapperOptions,
    principal_point: Option<f64>,
) -> BundleOptions {
    let (least, most) = options.polishing.loss_pixels;
    let noise = keypoint_noise(map, keypoints).unwrap_or(f64::INFINITY);
    BundleOptions {
        loss: Loss::Cauchy((options.polishing.loss_scale * noise).clamp(least, most)),
        stopping: options.polishing.stopping,
        rotations: true,
        intrinsics: RefineIntrinsics {
            focal: true,
            distortion: Some(options.distortion_prior),
            principal_point,
        },
    }
}

/// Adjusts a finished map to keypoints that have become better, as far as it takes to know how large their errors are.
///
/// # Errors
/// [`crate::ErrorKind::Cancelled`].
pub(crate) fn adapt(
    map: &mut Map,
    keypoints: &Keypoints,
    options: &MapperOptions,
    control: &Control,
) -> Result<()> {
    let stopping = options.polishing.first_stopping;
    let bundle = BundleOptions { stopping, ..bundle_options(map, keypoints, options, None) };
    adjust(map, keypoints, &bundle, control)?;
    filter_points(map, keypoints, options.max_error, options.min_angle);
    filter_images(map, options.min_observations);
    Ok(())
}

/// Adjusts a map to the end after [`adapt`], with the intrinsics that it has.
///
/// # Errors
/// [`crate::ErrorKind::Cancelled`].
pub(crate) fn polish(
    map: &mut Map,
    keypoints: &Keypoints,
    options: &MapperOptions,
    control: &Control,
) -> Result<()> {
    adjust(map, keypoints, &bundle_options(map, keypoints, options, None), control)?;
    filter_points(map, keypoints, options.max_error, options.min_angle);
    filter_images(map, options.min_observations);
    Ok(())
}

/// Gives a SIMPLE_RADIAL camera its second radial coefficient, which makes it RADIAL, if the capture tells it from
/// zero: left out, it bends the focal length, the poses and the scale. The principal point was decided before, and is
/// free here only if it was refined. Returns whether there is one.
///
/// # Errors
/// [`crate::ErrorKind::Cancelled`].
pub(crate) fn refine_second_radial(
    map: &mut Map,
    keypoints: &Keypoints,
    options: &MapperOptions,
    is_centre_free: bool,
    control: &Control,
) -> Result<bool> {
    let (CameraModel::SimpleRadial, [focal, x, y, k1]) = (map.camera.model, &map.camera.params[..]) else {
        return Ok(false);
    };
    let mut free = map.clone();
    free.camera.params = vec![*focal, *x, *y, *k1, 0.0];
    free.camera.model = CameraModel::Radial;
    let principal_point = is_centre_free.then(|| principal_point_prior(&map.camera, options));
    let bundle = bundle_options(map, keypoints, options, principal_point);
    adjust(&mut free, keypoints, &bundle, control)?;
    let Some(deviations) = intrinsics_deviations(&free, keypoints, &bundle) else { return Ok(false) };
    let told = |&(k, sigma): &(usize, f64)| {
        k == 4 && free.camera.params[k].abs() > options.polishing.significance * sigma
    };
    let refined = deviations.iter().any(told);
    if refined {
        *map = free;
        filter_points(map, keypoints, options.max_error, options.min_angle);
    }
    Ok(refined)
}

/// Frees the principal point under its prior, and keeps the result if the capture determines it and it is not the image
/// centre.
///
/// # Errors
/// [`crate::ErrorKind::Cancelled`].
pub(crate) fn refine_principal_point(
    map: &mut Map,
    keypoints: &Keypoints,
    options: &MapperOptions,
    control: &Control,
) -> Result<PrincipalPoint> {
    let prior = principal_point_prior(&map.camera, options);
    let bundle = bundle_options(map, keypoints, options, Some(prior));
    let mut free = map.clone();
    adjust(&mut free, keypoints, &bundle, control)?;
    let deviations = intrinsics_deviations(&free, keypoints, &bundle);
    let found = principal_point(&free.camera, deviations.as_deref(), prior, options);
    if found.refined {
        *map = free;
        filter_points(map, keypoints, options.max_error, options.min_angle);
    }
    Ok(found)
}

/// What is to become of the principal point of `camera`, which was free under a prior of standard deviation `prior` pixels:
/// it is believed if the capture determines it and it is not the image centre. `deviations` are those of the
/// parameters, by their index; `None` where the capture says nothing.
pub(crate) fn principal_point(
    camera: &Camera,
    deviations: Option<&[(usize, f64)]>,
    prior: f64,
    options: &MapperOptions,
) -> PrincipalPoint {
    let x = principal_point_index(camera.model);
    let of = |k: usize, side: u32| -> Option<(f64, f64)> {
        let deviation = deviations?.iter().find(|d| d.0 == k)?.1;
        Some(((camera.params.get(k)? - f64::from(side) / 2.0).abs(), deviation))
    };
    let (Some(across), Some(down)) = (of(x, camera.width), of(x + 1, camera.height)) else {
        return PrincipalPoint { refined: false, axes: None };
    };
    let deviation = across.1.max(down.1);
    let distance = (across.0 / across.1).max(down.0 / down.1);
    let polishing = &options.polishing;
    let refined = distance > polishing.certainty
        || (deviation < polishing.principal_point_gain * prior && distance > polishing.significance);
    PrincipalPoint { refined, axes: Some([across, down]) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sfm::synthetic::Capture;

    #[test]
    fn the_second_radial_coefficient_is_refined_where_the_lens_has_one() {
        let options = MapperOptions::default();
        for (k2, refined) in [(0.0, false), (-0.1, true)] {
            let mut capture = Capture::walk(20, 1500, 0.2, 3);
            let mut map = capture.true_map_with_points();
            let straight = capture.camera.clone();
            let mut params = straight.params.clone();
            params.push(k2);
            let bent = Camera { model: CameraModel::Radial, params, ..straight.clone() };
            let Capture { poses, points, keypoints, seen, .. } = &mut capture;
            for (pose, (keypoints, seen)) in poses.iter().zip(keypoints.iter_mut().zip(seen.iter())) {
                for (keypoint, &point) in keypoints.iter_mut().zip(seen) {
                    let point = pose.transform(&points[point]);
                    *keypoint += bent.project(&point).unwrap() - straight.project(&point).unwrap();
                }
            }
            let control = Control::new();
            adapt(&mut map, &capture.keypoints, &options, &control).unwrap();
            let found =
                refine_second_radial(&mut map, &capture.keypoints, &options, false, &control).unwrap();
            assert_eq!(found, refined);
            if refined {
                assert_eq!(map.camera.model, CameraModel::Radial);
                assert!((map.camera.params[4] / k2 - 1.0).abs() < 0.2, "{:?}", map.camera);
                assert!((map.camera.mean_focal() / 700.0 - 1.0).abs() < 2e-3, "{:?}", map.camera);
            } else {
                assert_eq!(map.camera.model, CameraModel::SimpleRadial);
            }
        }
    }
}
