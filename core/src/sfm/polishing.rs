//! The last adjustments of a map, and the intrinsics that a capture may tell or not.

use rayon::prelude::*;

use crate::camera::{Camera, CameraModel};
use crate::control::Control;
use crate::error::Result;

use super::bundle_adjustment::{
    ASSUMED_NOISE, BundleOptions, PoseUnknowns, RefineIntrinsics, adjust, intrinsics_deviations,
    other_intrinsics_deviations, principal_point_index,
};
use super::filters::{filter_images, filter_points};
use super::map::{Keypoints, Map, MapPoint, Observation};
use super::mapper_options::MapperOptions;
use super::projection::Loss;
use crate::statistics::{MEDIAN_OF_RAYLEIGH, median};

/// Standard deviation of a keypoint's x and y in pixels, as the reprojection errors of most show it; `None` for a map
/// without points.
pub(crate) fn keypoint_noise(map: &Map, keypoints: &Keypoints) -> Option<f64> {
    let errors = |p: &MapPoint| {
        let error = |o: &Observation| {
            let image = o.image as usize;
            map.reprojection_error(image, &p.xyz, &keypoints[image][o.keypoint as usize])
        };
        p.track.iter().map(error).collect::<Vec<f64>>()
    };
    let mut errors: Vec<f64> = map.points.par_iter().flat_map_iter(errors).collect();
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
        noise: if noise.is_finite() { noise } else { ASSUMED_NOISE },
        stopping: options.polishing.stopping,
        rest: options.polishing.rest,
        poses: PoseUnknowns::All,
        intrinsics: RefineIntrinsics {
            focal: options.refine_focal,
            distortion: Some(options.distortion_prior),
            principal_point,
        },
        other_centres: Vec::new(),
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

/// Intrinsics beyond the focal length and what the camera has of distortion.
#[derive(Clone, Copy, PartialEq)]
struct Lens {
    /// The principal point is beside the image centre.
    off_centre: bool,
    /// There is a second radial coefficient, where there was one.
    bent: bool,
}

/// Adjusts a map to the end, with the intrinsics that the capture tells: the principal point, if it `may_move`, and of a
/// SIMPLE_RADIAL camera the second radial coefficient, which makes it RADIAL (the same of a fisheye). Left out, they bend the focal length, the poses
/// and the scale.
///
/// All are free together at first, because what a lens model leaves out moves what it has: a lens that is bent more looks
/// like one that is off the centre, and the other way round. What is not told then is taken back. Each camera of the map is asked for
/// itself. Returns what became of the principal point of each, the one that made most images first; `None` where it may not move
/// and where no picture of the camera has a place.
///
/// # Errors
/// [`crate::ErrorKind::Cancelled`].
pub(crate) fn refine_lens(
    map: &mut Map,
    keypoints: &Keypoints,
    options: &MapperOptions,
    may_move: bool,
    control: &Control,
) -> Result<Vec<Option<PrincipalPoint>>> {
    let priors: Vec<f64> = map.cameras().map(|camera| principal_point_prior(camera, options)).collect();
    let with_second: Vec<_> = map.cameras().map(|camera| second_radial(camera.model)).collect();
    let placed: Vec<usize> =
        (0..map.poses.len()).filter(|&i| map.poses[i].is_some()).map(|i| map.others.index(i)).collect();
    let of_camera = |(k, second): (usize, &Option<CameraModel>)| {
        let told_of = placed.contains(&k);
        Lens { off_centre: told_of && may_move, bent: told_of && second.is_some() }
    };
    let mut lenses: Vec<Lens> = with_second.iter().enumerate().map(of_camera).collect();
    let before: Vec<Camera> = map.cameras().cloned().collect();
    for ((camera, lens), second) in map.cameras_mut().zip(&lenses).zip(&with_second) {
        if let Some(model) = second.filter(|_| lens.bent) {
            camera.model = model;
            camera.params.push(0.0);
        }
    }
    let mut found = vec![None; lenses.len()];
    loop {
        let mut centres = lenses.iter().zip(&priors).map(|(lens, prior)| lens.off_centre.then_some(*prior));
        let own_centre = centres.next().flatten();
        let mut bundle = bundle_options(map, keypoints, options, own_centre);
        bundle.other_centres = centres.collect();
        adjust(map, keypoints, &bundle, control)?;
        let mut told = lenses.clone();
        let cameras = told.iter_mut().zip(map.cameras()).zip(&priors).zip(&mut found);
        for (k, (((lens, camera), prior), centre)) in cameras.enumerate() {
            if !lens.off_centre && !lens.bent {
                continue;
            }
            let deviations = match k {
                0 => intrinsics_deviations(map, keypoints, &bundle),
                _ => other_intrinsics_deviations(map, keypoints, &bundle, k - 1),
            };
            if lens.off_centre {
                let of_camera = principal_point(camera, deviations.as_deref(), *prior, options);
                lens.off_centre = of_camera.refined;
                *centre = Some(of_camera);
            }
            if lens.bent {
                lens.bent = deviations.is_some_and(|all| has_second_radial(camera, &all, options));
            }
        }
        // Each time round there is less to tell.
        if told == lenses {
            filter_points(map, keypoints, options.max_error, options.min_angle);
            filter_images(map, options.min_observations);
            return Ok(found);
        }
        for (((camera, before), lens), told) in map.cameras_mut().zip(&before).zip(&lenses).zip(&told) {
            lens.take_back(told, camera, before);
        }
        lenses = told;
    }
}

impl Lens {
    /// Makes those parameters of `camera` what they were `before` that are refined here and not in `told`.
    fn take_back(&self, told: &Self, camera: &mut Camera, before: &Camera) {
        if self.bent && !told.bent {
            camera.model = before.model;
            camera.params.truncate(before.params.len());
        }
        if self.off_centre && !told.off_centre {
            let x = principal_point_index(before.model);
            if let (Some(now), Some(before)) = (camera.params.get_mut(x..x + 2), before.params.get(x..x + 2))
            {
                now.copy_from_slice(before);
            }
        }
    }
}

/// The model with a second radial coefficient beside the first.
fn second_radial(model: CameraModel) -> Option<CameraModel> {
    match model {
        CameraModel::SimpleRadial => Some(CameraModel::Radial),
        CameraModel::SimpleRadialFisheye => Some(CameraModel::RadialFisheye),
        _ => None,
    }
}

/// Whether the capture tells the second radial coefficient of a RADIAL camera from zero. `deviations` are those of the
/// parameters, by their index.
fn has_second_radial(camera: &Camera, deviations: &[(usize, f64)], options: &MapperOptions) -> bool {
    let told = |value: &f64, sigma: f64| value.abs() > options.polishing.significance * sigma;
    deviations
        .iter()
        .any(|&(k, sigma)| k == 4 && camera.params.get(k).is_some_and(|value| told(value, sigma)))
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

    /// A walk filmed through a lens with a second radial coefficient `k2`, `off` pixels from the image centre.
    fn filmed(k2: f64, off: [f64; 2]) -> (Capture, Map) {
        let mut capture = Capture::walk(20, 1500, 0.2, 3);
        let map = capture.true_map_with_points();
        let straight = capture.camera.clone();
        let mut params = straight.params.clone();
        params.push(k2);
        params[1] += off[0];
        params[2] += off[1];
        let lens = Camera { model: CameraModel::Radial, params, ..straight.clone() };
        let Capture { poses, points, keypoints, seen, .. } = &mut capture;
        for (pose, (keypoints, seen)) in poses.iter().zip(keypoints.iter_mut().zip(seen.iter())) {
            for (keypoint, &point) in keypoints.iter_mut().zip(seen) {
                let point = pose.transform(&points[point]);
                *keypoint += lens.project(&point).unwrap() - straight.project(&point).unwrap();
            }
        }
        (capture, map)
    }

    #[test]
    fn what_the_lens_has_is_refined_and_nothing_else() {
        let options = MapperOptions::default();
        for (k2, off) in [(0.0, [0.0, 0.0]), (-0.1, [0.0, 0.0]), (0.0, [9.0, -14.0]), (-0.1, [9.0, -14.0])] {
            let (capture, mut map) = filmed(k2, off);
            let control = Control::new();
            adapt(&mut map, &capture.keypoints, &options, &control).unwrap();
            let centre = refine_lens(&mut map, &capture.keypoints, &options, true, &control).unwrap();
            let [Some(centre)] = centre[..] else { panic!("{centre:?}") };
            let camera = &map.camera;
            assert_eq!(centre.refined, off != [0.0, 0.0], "{k2}, {off:?}: {camera:?}");
            let model = if k2 == 0.0 { CameraModel::SimpleRadial } else { CameraModel::Radial };
            assert_eq!(camera.model, model, "{k2}, {off:?}: {camera:?}");
            assert!((camera.mean_focal() / 700.0 - 1.0).abs() < 2e-3, "{camera:?}");
            for (found, (real, off)) in
                camera.params[1..3].iter().zip(capture.camera.params[1..3].iter().zip(off))
            {
                assert!((found - real - off).abs() < 1.5, "{k2}, {off:?}: {camera:?}");
            }
            if let Some(found) = camera.params.get(4) {
                assert!((found / k2 - 1.0).abs() < 0.2, "{camera:?}");
            }
        }
    }

    #[test]
    fn a_principal_point_that_may_not_move_stays() {
        let options = MapperOptions::default();
        let (capture, mut map) = filmed(-0.1, [9.0, -14.0]);
        let control = Control::new();
        adapt(&mut map, &capture.keypoints, &options, &control).unwrap();
        assert_eq!(refine_lens(&mut map, &capture.keypoints, &options, false, &control).unwrap(), [None]);
        assert_eq!(map.camera.params[1..3], capture.camera.params[1..3]);
    }
}
