//! Captures with known cameras and points, for tests.

use std::sync::Arc;

use nalgebra::{UnitQuaternion, Vector2, Vector3};

use crate::camera::panorama::{Side, side_camera};
use crate::camera::{Camera, CameraModel, Pose};
use crate::random::Random;

use super::features::{Features, Keypoint};
use super::front_end::Pictures;
use super::map::{Map, MapPoint, Observation};
use super::mapper_input::MapperInput;
use super::matching::PairMatches;
use super::other_cameras::OtherCameras;
use super::rig::Rig;
use super::two_view::{TwoViewConfig, TwoViewGeometry};
use crate::statistics::median;

/// Known cameras and points, and what the cameras see of them.
pub(crate) struct Capture {
    pub(crate) camera: Camera,
    /// Cameras that made some of the images.
    pub(crate) others: OtherCameras,
    pub(crate) rig: Arc<Rig>,
    pub(crate) poses: Vec<Pose>,
    pub(crate) points: Vec<Vector3<f64>>,
    /// Measured pixels by image and keypoint.
    pub(crate) keypoints: Vec<Vec<Vector2<f64>>>,
    /// Point of every keypoint.
    pub(crate) seen: Vec<Vec<usize>>,
}

impl Capture {
    /// `images` cameras on 120 degrees of a slightly wavy circle around a ball of `points`; every point is seen by a
    /// run of neighbouring images. `noise` in pixels.
    pub(crate) fn orbit(images: usize, points: usize, noise: f64, seed: u64) -> Self {
        let poses = (0..images).map(|i| {
            let angle = 2.1 * i as f64 / images as f64;
            let position = Vector3::new(4.0 * angle.sin(), 0.4 * (3.0 * angle).sin(), -4.0 * angle.cos());
            Pose::look_at(&position, &Vector3::new(0.0, 0.1, 0.0), &-Vector3::y()).unwrap()
        });
        Self::new(poses.collect(), points, 1.2, noise, seed)
    }

    /// `images` cameras on a full turn around a ball of `points` that looks the same after half a turn
    /// ([`Capture::behind`]): points 2k and 2k + 1 stand for each other.
    pub(crate) fn turn(images: usize, points: usize, noise: f64, seed: u64) -> Self {
        let poses = (0..images).map(|i| {
            let angle = std::f64::consts::TAU * i as f64 / images as f64;
            let position =
                Vector3::new(4.0 * angle.sin(), 0.4 * (3.0 * angle).sin() - 1.0, -4.0 * angle.cos());
            Pose::look_at(&position, &Vector3::zeros(), &-Vector3::y()).unwrap()
        });
        let poses: Vec<Pose> = poses.collect();
        let mut random = Random::new(seed);
        let mut side = || 1.2 * (2.0 * random.uniform() - 1.0);
        let half = (0..points / 2).map(|_| Vector3::new(side(), side(), side()));
        let points = half.flat_map(|x| [x, Vector3::new(-x.x, x.y, -x.z)]).collect();
        Self::observe(poses, points, noise, seed)
    }

    /// Where camera `image` of [`Capture::turn`] would be if what it sees were the opposite side.
    pub(crate) fn behind(&self, image: usize) -> Pose {
        let half = UnitQuaternion::from_axis_angle(&Vector3::y_axis(), std::f64::consts::PI);
        self.poses[image].in_moved_world(1.0, &half, &Vector3::zeros())
    }

    /// `images` cameras that walk along x and look along z at things 2 to 6 ahead.
    pub(crate) fn walk(images: usize, points: usize, noise: f64, seed: u64) -> Self {
        let poses: Vec<Pose> = (0..images)
            .map(|i| {
                let position = Vector3::new(0.4 * i as f64, 0.1 * (i as f64).sin(), 0.0);
                let turn = UnitQuaternion::from_euler_angles(
                    0.02 * (1.3 * i as f64).sin(),
                    0.05 * (0.7 * i as f64).cos(),
                    0.0,
                );
                Pose::from_centre(turn, &position)
            })
            .collect();
        let mut random = Random::new(seed);
        let length = 0.4 * images as f64;
        let points = (0..points)
            .map(|_| {
                let depth = 2.0 + 4.0 * random.uniform();
                Vector3::new(-2.0 + (length + 4.0) * random.uniform(), 3.0 * random.uniform() - 1.5, depth)
            })
            .collect();
        Self::observe(poses, points, noise, seed)
    }

    /// `images` cameras on 100 degrees of a circle of this `radius`, which look outwards at things 2 to 6 from its middle.
    pub(crate) fn look_around(images: usize, radius: f64, points: usize, noise: f64, seed: u64) -> Self {
        let poses = (0..images).map(|i| {
            let angle = 1.75 * (i as f64 / (images - 1) as f64 - 0.5);
            let ahead = Vector3::new(angle.sin(), 0.05 * (3.0 * angle).sin(), angle.cos());
            Pose::look_at(&(radius * ahead), &(6.0 * ahead), &-Vector3::y()).unwrap()
        });
        let poses = poses.collect();
        let mut random = Random::new(seed);
        let points = (0..points)
            .map(|_| {
                let (angle, up) = (3.0 * (random.uniform() - 0.5), random.uniform() - 0.5);
                (2.0 + 4.0 * random.uniform()) * Vector3::new(angle.sin(), up, angle.cos())
            })
            .collect();
        Self::observe(poses, points, noise, seed)
    }

    /// [`Capture::walk`] with three images at each of its `spots`, a ten-thousandth apart.
    pub(crate) fn bursts(spots: usize, points: usize, noise: f64, seed: u64) -> Self {
        let walk = Self::walk(spots, points, noise, seed);
        let burst = |pose: &Pose| {
            [0.0, 1e-4, 2e-4].map(|x| {
                let centre = pose.centre() + Vector3::new(x, 0.0, 0.0);
                Pose::from_centre(pose.rotation, &centre)
            })
        };
        Self::observe(walk.poses.iter().flat_map(burst).collect(), walk.points, noise, seed)
    }

    /// [`Capture::walk`] of two steps for each of its `stops`, at each of which it waits for five images, a hundredth apart.
    pub(crate) fn stop_and_go(stops: usize, points: usize, noise: f64, seed: u64) -> Self {
        let walk = Self::walk(2 * stops, points, noise, seed);
        let wait = |(i, pose): (usize, &Pose)| {
            let images = if i.is_multiple_of(2) { 5 } else { 1 };
            let at = |k: usize| pose.centre() + Vector3::new(0.0, 0.01 * (k % 2) as f64, 0.0);
            (0..images).map(|k| Pose::from_centre(pose.rotation, &at(k))).collect::<Vec<_>>()
        };
        Self::observe(walk.poses.iter().enumerate().flat_map(wait).collect(), walk.points, noise, seed)
    }

    /// `images` cameras on a closed walk of steps of 0.4, along a wall that they look at: the last ones see what the first
    /// ones see. There are `points` for each image, each seen by 6 to 15 images that follow each other.
    pub(crate) fn circuit(images: usize, points: usize, noise: f64, seed: u64) -> Self {
        let radius = 0.4 * images as f64 / std::f64::consts::TAU;
        let at = |angle: f64, radius: f64, height: f64| {
            Vector3::new(radius * angle.sin(), height, radius * angle.cos())
        };
        let turn_of = |i: f64| std::f64::consts::TAU * i / images as f64;
        let poses = (0..images).map(|i| {
            let i = i as f64;
            let centre = at(turn_of(i), radius, 0.1 * i.sin());
            let ahead = at(turn_of(i + 0.5 * (0.7 * i).cos()), radius + 4.0, 0.1 * (1.3 * i).sin());
            Pose::look_at(&centre, &ahead, &-Vector3::y()).unwrap()
        });
        let mut capture = Self::observe(poses.collect(), Vec::new(), noise, seed);
        let mut random = Random::new(seed);
        for _ in 0..images * points {
            let place = random.below(images);
            let depth = 2.0 + 4.0 * random.uniform();
            let point = at(turn_of(place as f64), radius + depth, 3.0 * random.uniform() - 1.5);
            let length = 6 + random.below(10);
            let p = capture.points.len();
            capture.points.push(point);
            for k in 0..length {
                let i = (place + images + k - length / 2) % images;
                let pixel = capture.camera.project(&capture.poses[i].transform(&point));
                let inside = |p: &Vector2<f64>| (0.0..800.0).contains(&p.x) && (0.0..600.0).contains(&p.y);
                let Some(pixel) = pixel.filter(inside) else { continue };
                capture.keypoints[i].push(pixel + noise * Vector2::new(random.normal(), random.normal()));
                capture.seen[i].push(p);
            }
        }
        capture
    }

    /// `stations` panoramas on a walk through a room, each in its six sides, with `points` on its walls, floor and ceiling.
    pub(crate) fn panoramas(stations: usize, points: usize, noise: f64, seed: u64) -> Self {
        let mut random = Random::new(seed);
        let camera = side_camera(600);
        let half = Vector3::new(1.0 + 0.2 * stations as f64, 1.5, 2.5);
        let points: Vec<Vector3<f64>> = (0..points)
            .map(|_| {
                let mut at = half.map(|h| h * (2.0 * random.uniform() - 1.0));
                let wall = random.below(3);
                at[wall] = half[wall].copysign(at[wall]);
                at
            })
            .collect();
        let (mut poses, mut frames) = (Vec::new(), Vec::new());
        for k in 0..stations {
            let along = 0.4 * (k as f64 - 0.5 * stations as f64);
            let centre = Vector3::new(along, 0.1 * (k as f64).sin(), 0.8 * (0.5 * k as f64).sin());
            let turn = UnitQuaternion::from_euler_angles(0.05 * (1.1 * k as f64).cos(), 0.3 * k as f64, 0.03);
            for side in Side::ALL {
                poses.push(Pose::from_centre(side.side_from_panorama() * turn, &centre));
                frames.push((k as u64, Some(side)));
            }
        }
        let mut capture = Self {
            camera,
            others: OtherCameras::default(),
            rig: Rig::of_sides(frames.into_iter()),
            keypoints: vec![Vec::new(); poses.len()],
            seen: vec![Vec::new(); poses.len()],
            poses,
            points,
        };
        for (p, point) in capture.points.iter().enumerate() {
            let first = random.below(stations);
            let length = 3 + random.below(6);
            for i in 6 * first..6 * (first + length).min(stations) {
                let pixel = capture.camera.project(&capture.poses[i].transform(point));
                let inside = |p: &Vector2<f64>| (0.0..600.0).contains(&p.x) && (0.0..600.0).contains(&p.y);
                let Some(pixel) = pixel.filter(inside) else { continue };
                capture.keypoints[i].push(pixel + noise * Vector2::new(random.normal(), random.normal()));
                capture.seen[i].push(p);
            }
        }
        capture
    }

    fn new(poses: Vec<Pose>, points: usize, radius: f64, noise: f64, seed: u64) -> Self {
        let mut random = Random::new(seed);
        let points = (0..points)
            .map(|_| {
                radius
                    * Vector3::new(
                        2.0 * random.uniform() - 1.0,
                        2.0 * random.uniform() - 1.0,
                        2.0 * random.uniform() - 1.0,
                    )
            })
            .collect();
        Self::observe(poses, points, noise, seed)
    }

    fn observe(poses: Vec<Pose>, points: Vec<Vector3<f64>>, noise: f64, seed: u64) -> Self {
        let camera = Camera {
            model: CameraModel::SimpleRadial,
            width: 800,
            height: 600,
            params: vec![700.0, 400.0, 300.0, -0.05],
        };
        let mut random = Random::new(seed + 1);
        let mut capture = Self {
            camera,
            others: OtherCameras::default(),
            rig: Rig::of_single_images(poses.len()),
            keypoints: vec![Vec::new(); poses.len()],
            seen: vec![Vec::new(); poses.len()],
            poses,
            points,
        };
        for (p, point) in capture.points.iter().enumerate() {
            let first = random.below(capture.poses.len());
            let length = 3 + random.below(6);
            for i in first.saturating_sub(length / 2)..(first + length).min(capture.poses.len()) {
                let Some(pixel) = capture.camera.project(&capture.poses[i].transform(point)) else {
                    continue;
                };
                if pixel.x < 0.0 || pixel.y < 0.0 || pixel.x > 800.0 || pixel.y > 600.0 {
                    continue;
                }
                let error = Vector2::new(random.normal(), random.normal());
                capture.keypoints[i].push(pixel + noise * error);
                capture.seen[i].push(p);
            }
        }
        capture
    }

    /// The same capture, of which some images were made by another camera; what was measured in them is off by the same pixels.
    pub(crate) fn with_other_camera(self, camera: Camera, is_other: impl Fn(usize) -> bool) -> Self {
        self.with_other_cameras(vec![camera], |i| usize::from(is_other(i)))
    }

    /// The same by several: `camera_of` says which camera made an image, 0 the one it was made by before, `k + 1` that of `cameras[k]`.
    pub(crate) fn with_other_cameras(
        mut self,
        cameras: Vec<Camera>,
        camera_of: impl Fn(usize) -> usize,
    ) -> Self {
        let of_image: Vec<usize> = (0..self.poses.len()).map(camera_of).collect();
        let others = OtherCameras::new(cameras, &of_image);
        for (i, (seen, keypoints)) in self.seen.iter().zip(&mut self.keypoints).enumerate() {
            let Some(camera) = others.of(i) else { continue };
            for (&p, keypoint) in seen.iter().zip(keypoints) {
                let [was, is] = [&self.camera, camera]
                    .map(|camera| camera.project(&self.poses[i].transform(&self.points[p])).unwrap());
                *keypoint += is - was;
            }
        }
        self.others = others;
        self
    }

    /// The true poses and cameras, no points.
    pub(crate) fn true_map(&self) -> Map {
        let mut map = Map::new(self.camera.clone(), &self.rig, self.poses.len());
        map.others = self.others.clone();
        map.poses = self.poses.iter().copied().map(Some).collect();
        map
    }

    /// The truth with the points that at least two images see.
    pub(crate) fn true_map_with_points(&self) -> Map {
        let mut map = self.true_map();
        let tracks = self.tracks();
        map.points =
            tracks.into_iter().map(|track| MapPoint { xyz: self.point_of(&track[0]), track }).collect();
        map
    }

    /// The true tracks of at least two images.
    pub(crate) fn tracks(&self) -> Vec<Vec<Observation>> {
        let mut tracks = vec![Vec::new(); self.points.len()];
        for (i, seen) in self.seen.iter().enumerate() {
            for (k, &p) in seen.iter().enumerate() {
                tracks[p].push(Observation::new(i as u32, k as u32));
            }
        }
        tracks.retain(|t| t.len() >= 2);
        tracks
    }

    /// The true position of what an observation saw.
    pub(crate) fn point_of(&self, o: &Observation) -> Vector3<f64> {
        self.points[self.seen[o.image as usize][o.keypoint as usize]]
    }

    /// What the cameras of `map` would see, in the order of [`Capture::keypoints`].
    pub(crate) fn project_all(&self, map: &Map) -> Vec<Vec<Vector2<f64>>> {
        let see = |(i, seen): (usize, &Vec<usize>)| {
            let pose = map.poses[i].unwrap();
            seen.iter()
                .map(|&p| map.camera_of(i).project(&pose.transform(&self.points[p])).unwrap())
                .collect()
        };
        self.seen.iter().enumerate().map(see).collect()
    }

    /// What a mapper gets of it: the measured keypoints, and what is given.
    pub(crate) fn input<'a>(
        &'a self,
        (pairs, matches): (&'a [TwoViewGeometry], &'a [PairMatches]),
        camera: Camera,
        rotations: &'a [Option<UnitQuaternion<f64>>],
    ) -> MapperInput<'a> {
        let (keypoints, others) = (&self.keypoints[..], self.others.clone());
        MapperInput { keypoints, rig: &self.rig, matches, pairs, camera, others, rotations }
    }

    /// Verified pairs of images at most `window` apart, and the candidate matches that they are made of.
    pub(crate) fn pairs_and_matches(&self, window: usize) -> (Vec<TwoViewGeometry>, Vec<PairMatches>) {
        Self::with_matches(self.pairs(window))
    }

    /// Its keypoints as features without descriptors.
    pub(crate) fn pictures(&self) -> Pictures {
        let keypoint =
            |p: &Vector2<f64>| Keypoint { x: p.x as f32, y: p.y as f32, scale: 2.0, orientation: 0.0 };
        let features = |own: &Vec<Vector2<f64>>| Features {
            keypoints: own.iter().map(keypoint).collect(),
            descriptors: Vec::new(),
        };
        Pictures {
            features: self.keypoints.iter().map(features).collect(),
            keypoints: self.keypoints.clone(),
            colors: vec![Vec::new(); self.keypoints.len()],
        }
    }

    /// These pairs and the candidate matches that they are made of.
    pub(crate) fn with_matches(pairs: Vec<TwoViewGeometry>) -> (Vec<TwoViewGeometry>, Vec<PairMatches>) {
        let matches_of = |p: &TwoViewGeometry| PairMatches {
            first: p.first,
            second: p.second,
            matches: p.inliers.clone(),
        };
        let matches = pairs.iter().map(matches_of).collect();
        (pairs, matches)
    }

    /// Exact two-view geometry of all pairs at most `window` apart with at least 12 points in common.
    pub(crate) fn pairs(&self, window: usize) -> Vec<TwoViewGeometry> {
        let near = |i: usize| (i + 1..(i + window + 1).min(self.poses.len())).map(move |j| (i, j));
        self.pairs_of((0..self.poses.len()).flat_map(near))
    }

    /// As [`Capture::pairs`] where the last image is followed by the first one.
    pub(crate) fn pairs_around(&self, window: usize) -> Vec<TwoViewGeometry> {
        let images = self.poses.len();
        let near = |i: usize| (i + 1..=i + window).map(move |j| (i.min(j % images), i.max(j % images)));
        self.pairs_of((0..images).flat_map(near))
    }

    fn pairs_of(&self, ends: impl Iterator<Item = (usize, usize)>) -> Vec<TwoViewGeometry> {
        ends.filter_map(|(i, j)| self.pair(i, j, &self.poses[i], |p| p)).collect()
    }

    /// Pairs of the `mistaken` images of [`Capture::turn`] with those on the opposite side, up to `window` images away
    /// from the exact opposite: what matching finds where it mistakes one side for the other.
    pub(crate) fn mistaken_pairs(
        &self,
        mistaken: std::ops::Range<usize>,
        window: usize,
    ) -> Vec<TwoViewGeometry> {
        let half = self.poses.len() / 2;
        let opposite = |i: usize| (i + half - window..i + half + window + 1).map(move |j| (i, j));
        let all = mistaken.flat_map(opposite).filter(|&(i, j)| i < j && j < self.poses.len());
        all.filter_map(|(i, j)| self.pair(i, j, &self.behind(i), |p| p ^ 1)).collect()
    }

    /// The pair (i, j) if image `i` had the pose `first` and its points were those named by `same`.
    fn pair(
        &self,
        i: usize,
        j: usize,
        first: &Pose,
        same: impl Fn(usize) -> usize,
    ) -> Option<TwoViewGeometry> {
        let matching = |(a, &p): (usize, &usize)| {
            // What an image sees is ordered by point.
            Some([a as u32, self.seen[j].binary_search(&same(p)).ok()? as u32])
        };
        let inliers: Vec<[u32; 2]> = self.seen[i].iter().enumerate().filter_map(matching).collect();
        if inliers.len() < 12 {
            return None;
        }
        let mut relative = self.poses[j].after(&first.inverse());
        relative.translation.normalize_mut();
        let mut angles: Vec<f64> = inliers
            .iter()
            .map(|m| {
                let x = self.points[self.seen[j][m[1] as usize]];
                (x - first.centre()).angle(&(x - self.poses[j].centre()))
            })
            .collect();
        Some(TwoViewGeometry {
            first: i as u32,
            second: j as u32,
            config: TwoViewConfig::Calibrated,
            fundamental: None,
            homography: None,
            second_from_first: Some(relative),
            homography_inliers: inliers.len() / 3,
            median_parallax: median(&mut angles).unwrap(),
            inliers,
        })
    }

    /// Root-mean-square distance of the centres of `map` to the truth after a similarity, relative to their spread, and
    /// the largest relative rotation error to the first image in degrees.
    pub(crate) fn errors(&self, map: &Map) -> (f64, f64) {
        let registered: Vec<usize> = (0..self.poses.len()).filter(|&i| map.poses[i].is_some()).collect();
        let estimate: Vec<_> = registered.iter().map(|&i| map.poses[i].unwrap().centre()).collect();
        let truth: Vec<_> = registered.iter().map(|&i| self.poses[i].centre()).collect();
        let mean = |v: &[Vector3<f64>]| v.iter().sum::<Vector3<f64>>() / v.len() as f64;
        let (me, mt) = (mean(&estimate), mean(&truth));
        let mut correlation = nalgebra::Matrix3::zeros();
        let (mut se, mut st) = (0.0, 0.0);
        for (e, t) in estimate.iter().zip(&truth) {
            correlation += (t - mt) * (e - me).transpose();
            se += (e - me).norm_squared();
            st += (t - mt).norm_squared();
        }
        let svd = correlation.svd(true, true);
        let (u, v) = (svd.u.unwrap(), svd.v_t.unwrap());
        let sign = (u * v).determinant().signum();
        let d = nalgebra::Matrix3::from_diagonal(&Vector3::new(1.0, 1.0, sign));
        let rotation = u * d * v;
        let scale = (nalgebra::Matrix3::from_diagonal(&svd.singular_values) * d).trace() / se;
        let off: f64 = estimate
            .iter()
            .zip(&truth)
            .map(|(e, t)| (scale * (rotation * (e - me)) - (t - mt)).norm_squared())
            .sum();
        let turn = |i: usize| {
            let first = registered[0];
            let estimated = map.poses[i].unwrap().rotation * map.poses[first].unwrap().rotation.inverse();
            let true_turn = self.poses[i].rotation * self.poses[first].rotation.inverse();
            estimated.angle_to(&true_turn).to_degrees()
        };
        ((off / st).sqrt(), registered.iter().map(|&i| turn(i)).fold(0.0, f64::max))
    }
}
