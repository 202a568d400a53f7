//! Random scenes with known geometry for the tests of this part.

use nalgebra::{Matrix3, UnitQuaternion, Vector2, Vector3};

use super::Views;
use super::score::{Residual, Sampson};
use crate::camera::{Camera, CameraModel, Pose};
use crate::random::Random;
use crate::sfm::features::{Features, Keypoint};
use crate::sfm::matching::PairMatches;

/// Two cameras and the points that both see, without noise.
pub(crate) struct Scene {
    /// Second-from-first, |t| = 1.
    pub(crate) pose: Pose,
    /// In the first camera's frame.
    pub(crate) points: Vec<Vector3<f64>>,
    /// (x1, y1, x2, y2) on the planes z = 1.
    pub(crate) pairs: Vec<[f64; 4]>,
}

pub(crate) fn random_direction(random: &mut Random) -> Vector3<f64> {
    Vector3::new(random.normal(), random.normal(), random.normal()).normalize()
}

pub(crate) fn random_rotation(random: &mut Random, largest: f64) -> UnitQuaternion<f64> {
    let axis = nalgebra::Unit::new_normalize(random_direction(random));
    UnitQuaternion::from_axis_angle(&axis, largest * random.uniform())
}

impl Scene {
    /// Rotation up to 0.6 rad, points 2 to 8 baselines away within a field of view of 77°.
    pub(crate) fn random(seed: u64, count: usize) -> Self {
        let mut random = Random::new(seed);
        let rotation = random_rotation(&mut random, 0.6);
        let pose = Pose { rotation, translation: random_direction(&mut random) };
        Self::with(pose, count, &mut random, |random| 2.0 + 6.0 * random.uniform())
    }

    /// Like [`Scene::random`], all points on a plane; with the homography of the planes z = 1.
    pub(crate) fn planar(seed: u64, count: usize) -> (Self, Matrix3<f64>) {
        let mut random = Random::new(seed);
        let rotation = random_rotation(&mut random, 0.6);
        let pose = Pose { rotation, translation: random_direction(&mut random) };
        // The plane n·x = 1, about 4 in front of the first camera.
        let n = Vector3::new(0.1 * random.normal(), 0.1 * random.normal(), 0.25);
        let mut scene = Self { pose, points: Vec::new(), pairs: Vec::new() };
        while scene.points.len() < count {
            let ray = Vector3::new(1.6 * random.uniform() - 0.8, 1.6 * random.uniform() - 0.8, 1.0);
            scene.push_if_seen(ray / n.dot(&ray));
        }
        (scene, pose.rotation_matrix() + pose.translation * n.transpose())
    }

    /// Points at random pixels of the first image at the depths that `depth` draws, so far as the second one sees them.
    pub(crate) fn with(
        pose: Pose,
        count: usize,
        random: &mut Random,
        mut depth: impl FnMut(&mut Random) -> f64,
    ) -> Self {
        let mut scene = Self { pose, points: Vec::new(), pairs: Vec::new() };
        for _ in 0..10_000 * count {
            if scene.points.len() == count {
                return scene;
            }
            let ray = Vector3::new(1.6 * random.uniform() - 0.8, 1.6 * random.uniform() - 0.8, 1.0);
            let point = ray * depth(random);
            scene.push_if_seen(point);
        }
        panic!("the second camera sees nothing of what the first one sees");
    }

    fn push_if_seen(&mut self, point: Vector3<f64>) {
        let second = self.pose.transform(&point);
        let (a, b) = (point.xy() / point.z, second.xy() / second.z);
        if point.z > 0.5 && second.z > 0.5 && b.amax() < 0.9 {
            self.points.push(point);
            self.pairs.push([a.x, a.y, b.x, b.y]);
        }
    }

    /// The first `N` pairs, apart.
    pub(crate) fn normalized<const N: usize>(&self) -> ([[f64; 2]; N], [[f64; 2]; N]) {
        (
            std::array::from_fn(|i| [self.pairs[i][0], self.pairs[i][1]]),
            std::array::from_fn(|i| [self.pairs[i][2], self.pairs[i][3]]),
        )
    }
}

/// Distance of two unit-norm matrices up to sign.
pub(crate) fn essential_distance(a: &Matrix3<f64>, b: &Matrix3<f64>) -> f64 {
    (a - b).norm().min((a + b).norm())
}

/// How the two cameras of a [`Pair`] stand.
#[derive(Debug, Clone, Copy)]
pub(crate) enum PairKind {
    /// Points 4 to 12 baselines away, some turn.
    General,
    /// Both cameras look at the same point from the same distance, 15° apart.
    Orbit,
    /// Along the view axis.
    Forward,
    /// A plane in front.
    Planar,
    /// A turn without any motion.
    Rotation,
}

/// A pair of images with noisy keypoints and shuffled-in wrong matches.
pub(crate) struct Pair {
    pub(crate) camera: Camera,
    pub(crate) pose: Pose,
    pub(crate) features: Vec<Features>,
    pub(crate) matches: PairMatches,
    /// Noise-free pixels of the right matches.
    clean: Vec<[f64; 4]>,
    right: Vec<bool>,
}

impl Pair {
    /// `count` matches of which the fraction `outliers` is wrong, `noise` pixels of normal noise, 1000x800 pixels,
    /// focal length 900.
    pub(crate) fn new(kind: PairKind, seed: u64, count: usize, outliers: f64, noise: f64) -> Self {
        let mut random = Random::new(seed * 7919 + kind as u64);
        let camera = Camera::from_focal(CameraModel::SimplePinhole, 900.0, 1000, 800);
        let turn = random_rotation(&mut random, 0.15);
        let pose = match kind {
            PairKind::General | PairKind::Planar => {
                let side = Vector3::new(1.0, 0.4 * random.normal(), 0.3 * random.normal());
                Pose { rotation: turn, translation: side.normalize() }
            }
            PairKind::Rotation => Pose { rotation: turn, translation: Vector3::zeros() },
            PairKind::Forward => {
                let rotation = random_rotation(&mut random, 0.03);
                Pose { rotation, translation: Vector3::new(0.05, 0.02, -1.0).normalize() }
            }
            PairKind::Orbit => {
                let angle = 15f64.to_radians();
                let radius = 0.5 / (0.5 * angle).sin();
                let rotation = UnitQuaternion::from_axis_angle(&Vector3::y_axis(), angle);
                let target = Vector3::new(0.0, 0.0, radius);
                Pose { rotation, translation: target - rotation * target }
            }
        };
        let normal = Vector3::new(0.05 * random.normal(), 0.05 * random.normal(), 0.2);
        let (mut features, mut matches) = (vec![Features::default(); 2], Vec::new());
        let (mut clean, mut right) = (Vec::new(), Vec::new());
        let anywhere =
            |random: &mut Random| Vector2::new(1000.0 * random.uniform(), 800.0 * random.uniform());
        while matches.len() < count {
            let mut pixels = [anywhere(&mut random), anywhere(&mut random)];
            let is_right = random.uniform() >= outliers;
            if is_right {
                let ray = camera.ray(&pixels[0]);
                let depth = match kind {
                    PairKind::Planar => 1.0 / normal.dot(&ray),
                    PairKind::Forward => 3.0 + 20.0 * random.uniform(),
                    _ => 3.0 + 5.0 * random.uniform(),
                };
                let point = ray * depth;
                let Some(seen) = camera.project(&pose.transform(&point)) else { continue };
                if seen.x < 0.0 || seen.x > 1000.0 || seen.y < 0.0 || seen.y > 800.0 {
                    continue;
                }
                pixels[1] = seen;
                clean.push([pixels[0].x, pixels[0].y, seen.x, seen.y]);
                for p in &mut pixels {
                    *p += noise * Vector2::new(random.normal(), random.normal());
                }
            }
            matches.push([matches.len() as u32; 2]);
            right.push(is_right);
            for (f, p) in features.iter_mut().zip(pixels) {
                f.keypoints.push(Keypoint { x: p.x as f32, y: p.y as f32, scale: 2.0, orientation: 0.0 });
            }
        }
        Self { camera, pose, features, matches: PairMatches { first: 0, second: 1, matches }, clean, right }
    }

    pub(crate) fn views(&self) -> Views<'_> {
        Views { features: &self.features, camera_of: &[0, 0], cameras: std::slice::from_ref(&self.camera) }
    }

    /// Which fraction of the right matches is among the inliers, and which fraction of the inliers is wrong.
    pub(crate) fn recall_and_error(&self, inliers: &[[u32; 2]]) -> (f64, f64) {
        let right = inliers.iter().filter(|m| self.right[m[0] as usize]).count();
        (right as f64 / self.clean.len() as f64, 1.0 - right as f64 / inliers.len() as f64)
    }

    /// The true fundamental matrix in pixels.
    pub(crate) fn fundamental(&self) -> Matrix3<f64> {
        let (f, c) = (self.camera.mean_focal(), self.camera.principal_point());
        let inverse = Matrix3::new(f, 0.0, c.x, 0.0, f, c.y, 0.0, 0.0, 1.0).try_inverse().unwrap();
        inverse.transpose() * super::essential::essential_from_pose(&self.pose) * inverse
    }

    /// Median Sampson error of the right matches without noise, in pixels.
    pub(crate) fn median_epipolar_error(&self, f: &Matrix3<f64>) -> f64 {
        let sampson = Sampson::new(f);
        let mut errors: Vec<f64> = self.clean.iter().map(|row| sampson.squared(*row).sqrt()).collect();
        errors.sort_by(f64::total_cmp);
        errors[errors.len() / 2]
    }
}
