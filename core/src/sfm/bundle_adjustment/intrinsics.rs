//! Which intrinsics of each camera are unknowns, and where they are among all unknowns.
//!
//! Those of the camera that made most images are the border of the reduced camera system: nearly every point is seen by it. Each
//! other camera is a block of the system like a station. A point that it saw has one more observation, by that block, in which
//! the derivatives of all its images by the intrinsics are summed: so the points are eliminated as ever, and an adjustment with
//! any number of cameras costs no more than one with as many more images.

use crate::camera::{Camera, CameraModel};
use crate::sfm::map::Map;

/// Which intrinsics are unknowns.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(crate) struct RefineIntrinsics {
    /// Focal lengths.
    pub(crate) focal: bool,
    /// The distortion, held near zero by a prior of this standard deviation (of the plane z = 1); infinite for none.
    pub(crate) distortion: Option<f64>,
    /// The principal point, held near where it starts by a prior of this standard deviation in pixels.
    pub(crate) principal_point: Option<f64>,
}

/// Standard deviation of a keypoint's coordinate, pixels, while it is not measured: what features of a sharp picture have about.
/// The prior of the distortion is always weighed against it: a narrow lens could else be bent by what its model leaves out, and take
/// the principal point along. Chosen by hand.
pub(crate) const ASSUMED_NOISE: f64 = 0.5;

/// Unknowns of a block of the reduced camera system.
const BLOCK: usize = 6;

/// What is known of an intrinsic parameter before.
#[derive(Debug)]
pub(super) struct Prior {
    /// Index into [`Intrinsics::free`].
    pub(super) k: usize,
    pub(super) value: f64,
    /// Beside squared residuals in pixels.
    pub(super) weight: f64,
    /// Standard deviation.
    pub(super) sigma: f64,
}

/// The unknown intrinsics of one camera.
#[derive(Debug)]
pub(super) struct Intrinsics {
    /// Indices of the parameters that are unknowns.
    pub(super) free: Vec<usize>,
    pub(super) priors: Vec<Prior>,
    /// Width and height of the picture, pixels.
    pub(super) size: (f64, f64),
}

impl Intrinsics {
    /// At most `room` unknowns: where a lens has more, the principal point stays where it is. `noise` is the standard deviation
    /// of a keypoint's coordinate, pixels.
    pub(super) fn new(camera: &Camera, mut refine: RefineIntrinsics, noise: f64, room: usize) -> Self {
        if free_parameters(camera.model, refine).len() > room {
            refine.principal_point = None;
        }
        let free = free_parameters(camera.model, refine);
        let centre = principal_point_index(camera.model);
        let reach = corner_radius(camera);
        let prior = |(k, &param): (usize, &usize)| {
            let (value, sigma) = match param {
                _ if param == centre => (f64::from(camera.width) / 2.0, refine.principal_point?),
                _ if param == centre + 1 => (f64::from(camera.height) / 2.0, refine.principal_point?),
                // The second radial coefficient may bend the corners as much as the first.
                _ if param == centre + 3 => (0.0, refine.distortion? / (reach * reach)),
                _ if param > centre + 1 => (0.0, refine.distortion?),
                _ => return None, // focal lengths
            };
            let noise = if (centre..centre + 2).contains(&param) { noise } else { ASSUMED_NOISE };
            Some(Prior { k, value, weight: (noise / sigma).powi(2), sigma })
        };
        let priors = free.iter().enumerate().filter_map(prior).collect();
        Self { free, priors, size: (f64::from(camera.width), f64::from(camera.height)) }
    }

    /// What the priors add to twice the cost.
    pub(super) fn cost(&self, camera: &Camera) -> f64 {
        self.priors.iter().map(|p| p.weight * (camera.params[self.free[p.k]] - p.value).powi(2)).sum()
    }

    /// (unknown, weight, gradient) of every prior.
    pub(super) fn pulls<'a>(&'a self, camera: &'a Camera) -> impl Iterator<Item = (usize, f64, f64)> + 'a {
        self.priors.iter().map(|p| {
            let off = camera.params[self.free[p.k]] - p.value;
            (p.k, p.weight, p.weight * off)
        })
    }

    /// Adds the changes of the unknowns to the parameters.
    pub(super) fn change(&self, camera: &mut Camera, changes: &[f64]) {
        for (&param, change) in self.free.iter().zip(changes) {
            camera.params[param] += change;
        }
    }

    /// Derivatives by the unknowns, of those by all parameters, times `weight`; zero beyond.
    #[inline(always)]
    pub(super) fn by_unknowns<const N: usize>(&self, by_parameters: &[f64; N], weight: f64) -> [f64; N] {
        let mut by = [0.0; N];
        for (value, &param) in by.iter_mut().zip(&self.free) {
            *value = weight * by_parameters[param];
        }
        by
    }
}

/// The cameras beside the one that made most images.
#[derive(Debug, Default)]
pub(super) struct OtherIntrinsics {
    /// By place among the registered images: 0 for the camera of most images, `k + 1` for `of_camera[k]`; empty without any.
    of_place: Vec<u32>,
    pub(super) of_camera: Vec<Intrinsics>,
}

impl OtherIntrinsics {
    /// Of the registered `images` of `map`. `refine` says what is unknown of each camera.
    pub(super) fn new(
        map: &Map,
        images: &[usize],
        refine: impl Fn(usize) -> RefineIntrinsics,
        noise: f64,
    ) -> Self {
        let cameras = map.others.cameras.iter().enumerate();
        let of_camera: Vec<_> =
            cameras.map(|(k, camera)| Intrinsics::new(camera, refine(k), noise, BLOCK)).collect();
        let of = |&image: &usize| map.others.index(image) as u32;
        let of_place = if of_camera.is_empty() { Vec::new() } else { images.iter().map(of).collect() };
        Self { of_place, of_camera }
    }

    /// Which camera made the image at this place: 0 the one that made most, `k + 1` for `of_camera[k]`.
    #[inline(always)]
    pub(super) fn index(&self, place: usize) -> usize {
        self.of_place.get(place).map_or(0, |&k| k as usize)
    }

    /// How many there are.
    pub(super) fn count(&self) -> usize {
        self.of_camera.len()
    }
}

/// Index of the principal point's x among the parameters of `model`; y follows.
pub(crate) fn principal_point_index(model: CameraModel) -> usize {
    match model {
        CameraModel::SimplePinhole
        | CameraModel::SimpleRadial
        | CameraModel::Radial
        | CameraModel::SimpleRadialFisheye
        | CameraModel::RadialFisheye => 1,
        CameraModel::Pinhole | CameraModel::OpenCv | CameraModel::OpenCvFisheye => 2,
    }
}

/// Distance of the picture's corners from its middle on the plane z = 1.
fn corner_radius(camera: &Camera) -> f64 {
    0.5 * f64::from(camera.width).hypot(f64::from(camera.height)) / camera.mean_focal()
}

/// Indices of the parameters of `model` that are unknowns.
fn free_parameters(model: CameraModel, refine: RefineIntrinsics) -> Vec<usize> {
    let centre = principal_point_index(model);
    (0..model.num_params())
        .filter(|&k| match k {
            k if k < centre => refine.focal,
            k if k < centre + 2 => refine.principal_point.is_some(),
            _ => refine.distortion.is_some(),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::camera::Pose;
    use crate::control::Control;
    use crate::random::Random;
    use crate::sfm::bundle_adjustment::{
        BundleOptions, Draw, PoseUnknowns, adjust, intrinsics_deviations, other_intrinsics_deviations,
        pose_draws,
    };
    use crate::sfm::levenberg_marquardt::Stopping;
    use crate::sfm::projection::Loss;
    use crate::sfm::synthetic::Capture;
    use nalgebra::{UnitQuaternion, Vector3};

    fn options() -> BundleOptions {
        BundleOptions {
            loss: Loss::Huber(1.0),
            noise: ASSUMED_NOISE,
            rest: 0.0,
            stopping: Stopping { max_iterations: 60, tolerance: 1e-9 },
            poses: PoseUnknowns::All,
            intrinsics: RefineIntrinsics {
                focal: true,
                distortion: Some(f64::INFINITY),
                principal_point: None,
            },
            other_centres: Vec::new(),
        }
    }

    /// An orbit of which every second picture was made by another camera.
    fn mixed(noise: f64, seed: u64) -> Capture {
        let params = vec![930.0, 520.0, 380.0, 0.04];
        let lens = Camera { model: CameraModel::SimpleRadial, width: 1040, height: 760, params };
        Capture::orbit(16, 500, noise, seed).with_other_camera(lens, |i| i % 2 == 1)
    }

    /// The truth with other lenses, poses and points.
    fn spoiled(capture: &Capture) -> Map {
        let mut random = Random::new(3);
        let mut map = capture.true_map_with_points();
        let mut noise = || 0.03 * Vector3::new(random.normal(), random.normal(), random.normal());
        for pose in map.poses.iter_mut().flatten() {
            let turn = UnitQuaternion::from_scaled_axis(0.3 * noise());
            *pose = Pose::from_centre(turn * pose.rotation, &(pose.centre() + noise()));
        }
        map.points.iter_mut().for_each(|point| point.xyz += noise());
        map.camera.params[0] *= 1.04;
        map.others.cameras[0].params[0] *= 0.95;
        map.others.cameras[0].params[3] = 0.0;
        map
    }

    #[test]
    fn every_camera_gets_the_lens_it_had() {
        let capture = mixed(0.0, 1);
        let mut map = spoiled(&capture);
        let summary = adjust(&mut map, &capture.keypoints, &options(), &Control::new()).unwrap();
        assert!(summary.converged && summary.final_cost < 1e-10, "{summary:?}");
        let (centres, rotations) = capture.errors(&map);
        assert!(centres < 1e-6 && rotations < 1e-5, "{centres} {rotations}");
        for (found, truth) in map.cameras().zip(capture.true_map().cameras()) {
            for (a, b) in found.params.iter().zip(&truth.params) {
                assert!((a - b).abs() < 1e-4 * b.abs().max(1.0), "{found:?}");
            }
        }
    }

    #[test]
    fn the_others_get_theirs_where_the_first_has_no_image() {
        let capture = mixed(0.0, 1);
        let mut map = spoiled(&capture);
        map.unregister(&(0..16).step_by(2).collect::<Vec<_>>());
        let before = map.camera.clone();
        adjust(&mut map, &capture.keypoints, &options(), &Control::new()).unwrap();
        assert!((map.others.cameras[0].params[0] / 930.0 - 1.0).abs() < 1e-3, "{:?}", map.others);
        assert_eq!(map.camera, before);
        let told = other_intrinsics_deviations(&map, &capture.keypoints, &options(), 0);
        assert!(told.is_some_and(|all| all.iter().all(|d| d.1.is_finite())));
    }

    #[test]
    fn it_takes_as_many_steps_as_with_one_camera() {
        // Without the second derivatives between the poses and a lens it would take many more.
        let steps = |capture: &Capture, mut map: Map| {
            adjust(&mut map, &capture.keypoints, &options(), &Control::new()).unwrap().iterations
        };
        let single = Capture::orbit(16, 500, 0.5, 1);
        let mut map = spoiled(&mixed(0.5, 1));
        map.camera.params = single.camera.params.clone();
        map.camera.params[0] *= 1.04;
        map.others = Default::default();
        let with_one = steps(&single, map);
        let several = mixed(0.5, 1);
        let with_two = steps(&several, spoiled(&several));
        assert!(with_two <= with_one + 5, "{with_two} and {with_one}");
    }

    #[test]
    fn only_the_principal_point_that_is_free_moves() {
        let mut capture = mixed(0.2, 4);
        for keypoints in capture.keypoints.iter_mut().skip(1).step_by(2) {
            keypoints.iter_mut().for_each(|p| p.x += 12.0);
        }
        let found = |other_centres: Vec<Option<f64>>| {
            let mut map = spoiled(&capture);
            let options = BundleOptions { other_centres, ..options() };
            adjust(&mut map, &capture.keypoints, &options, &Control::new()).unwrap();
            map.cameras().map(|camera| camera.params[1]).collect::<Vec<_>>()
        };
        assert_eq!(found(vec![]), [400.0, 520.0]);
        let [own, other] = found(vec![Some(30.0)])[..] else { panic!() };
        assert!(own == 400.0 && (other - 532.0).abs() < 1.5, "{own} {other}");
    }

    #[test]
    fn what_is_known_of_a_lens_does_not_depend_on_which_camera_is_the_first() {
        // Two cameras of one kind, which see the same from places between each other.
        let twin = Capture::orbit(16, 500, 0.3, 7);
        let lens = twin.camera.clone();
        let capture = twin.with_other_camera(lens, |i| i % 2 == 1);
        let mut map = capture.true_map_with_points();
        let options = options();
        adjust(&mut map, &capture.keypoints, &options, &Control::new()).unwrap();
        let own = intrinsics_deviations(&map, &capture.keypoints, &options).unwrap();
        let other = other_intrinsics_deviations(&map, &capture.keypoints, &options, 0).unwrap();
        for ((k, a), (l, b)) in own.iter().zip(&other) {
            assert!(k == l && (0.6..1.6).contains(&(a / b)), "parameter {k}: {a} and {b}");
        }
        // The poses spread as they do with one camera, which knows its lens a little better.
        let spread = |map: &Map| {
            let draws = pose_draws(map, &capture.keypoints, &options).unwrap();
            let squares = |d: &Draw| d.turns.iter().map(|t| t.norm_squared()).sum::<f64>();
            draws[..3].iter().flatten().map(squares).sum::<f64>().sqrt()
        };
        let mut single = map.clone();
        single.others = Default::default();
        adjust(&mut single, &capture.keypoints, &options, &Control::new()).unwrap();
        let ratio = spread(&map) / spread(&single);
        assert!((0.8..1.8).contains(&ratio), "{ratio}");
        // Draws of the whole: of the other camera's pictures as of the first's.
        let mut swapped = map.clone();
        let of_image: Vec<usize> = (0..16).map(|i| usize::from(i % 2 == 0)).collect();
        swapped.others = crate::sfm::other_cameras::OtherCameras::new(vec![map.camera.clone()], &of_image);
        swapped.camera = map.others.cameras[0].clone();
        let ratio = spread(&map) / spread(&swapped);
        assert!((ratio - 1.0).abs() < 1e-3, "{ratio}");
    }

    #[test]
    fn the_result_does_not_depend_on_the_number_of_threads() {
        let capture = mixed(0.5, 6);
        let run = |threads| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            let mut map = spoiled(&capture);
            pool.install(|| adjust(&mut map, &capture.keypoints, &options(), &Control::new())).unwrap();
            map
        };
        let (one, four) = (run(1), run(4));
        assert_eq!((one.poses, one.points), (four.poses, four.points));
        assert_eq!((one.camera, one.others), (four.camera, four.others));
    }
}
