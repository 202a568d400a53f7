//! A short film of the scene that ends where it began.
//!
//! Captures that go around something are shown by a round of their own, fitted to where the cameras were; all others by
//! a smooth move along the camera's path and back. Either way the camera stays where the scene was filmed from, because
//! nowhere else do splats look right.

use std::f64::consts::TAU;
use std::path::Path;

use nalgebra::{Matrix3, Vector3};

use super::capture::{Capture, choose_preview_image};
use super::preview::{fitted, picture};
use crate::camera::{Camera, CameraModel, Pose, SparseModel};
use crate::control::Control;
use crate::defaults::with_defaults;
use crate::error::{Error, Result};
use crate::raster::{Rasteriser, View};
use crate::stage::Stage;
use crate::video::VideoWriter;

with_defaults! {
    /// How the camera of the film moves. All chosen by hand.
    #[derive(Debug, Clone, PartialEq)]
    struct PathOptions {
        /// Cameras all around, but for a gap of this angle (radians) at most, make a round: 109 degrees.
        largest_gap: f64 = 1.9,
        /// How far along the round (radians) cameras count for its shape.
        round_width: f64 = 0.4,
        /// The same along a path, as a part of its length (0 to 1).
        path_width: f64 = 0.07,
        /// A path is at most this long, in units of the distance to the scene: longer ones would race.
        longest_path: f64 = 3.0,
        /// The cameras are passed along their longest extent and not in the order of capture if that way is shorter
        /// than this part (0 to 1) of the other.
        much_shorter: f64 = 0.6,
    }
}

with_defaults! {
    /// How the film looks.
    #[derive(Debug, Clone, Copy, PartialEq)]
    pub struct TurntableOptions {
        /// Number of pictures.
        pub frames: usize = 240,
        /// Pictures per second.
        pub frame_rate: f64 = 30.0,
        /// Long side in pixels at most.
        pub max_side: u32 = 960,
        /// What is behind the scene, 0 to 1.
        pub background: [f32; 3] = [0.0; 3],
    }
}

/// The poses of a closed film of `frames` pictures through the scene that `model`'s cameras filmed. Consecutive poses
/// are near each other, the last and the first too. Empty if the model has no images.
pub fn turntable_path(model: &SparseModel, frames: usize) -> Vec<Pose> {
    let Some(capture) = Capture::of(model) else { return Vec::new() };
    let preview = choose_preview_image(model, &Default::default());
    let start = capture.images.iter().position(|(id, _)| Some(*id) == preview).unwrap_or(0);
    let options = PathOptions::default();
    let round = if capture.converges { Round::of(&capture, start, &options) } else { None };
    let pose = |position: Vector3<f64>, target: Vector3<f64>| {
        // Looking straight up or down there is no level; turn as little as possible then.
        Pose::look_at(&position, &target, &capture.up)
            .or_else(|| Pose::look_at(&position, &target, &capture.images[start].1.pose.up()))
            .unwrap_or(capture.images[start].1.pose)
    };
    let phases = (0..frames).map(|k| k as f64 / frames as f64);
    match round {
        Some(round) => phases.map(|phase| pose(round.position(phase), capture.focus)).collect(),
        None => {
            let path = Walk::of(&capture, start, &options);
            // Slow at both ends, where it turns round.
            let there_and_back = phases.map(|phase| 0.5 - 0.5 * (TAU * phase).cos());
            there_and_back
                .map(|at| {
                    let (position, forward) = path.at(at);
                    pose(position, position + forward)
                })
                .collect()
        }
    }
}

/// Renders the loaded scene along [`turntable_path`] into an H.264 video at `path`, under a temporary name first.
///
/// # Errors
/// [`InvalidArgument`](crate::ErrorKind::InvalidArgument) if the model has no images or the options make no video;
/// those of the rasteriser and of [`VideoWriter`]; [`Cancelled`](crate::ErrorKind::Cancelled).
pub fn write_turntable(
    rasteriser: &mut dyn Rasteriser,
    sh_degree: u32,
    model: &SparseModel,
    options: &TurntableOptions,
    path: &Path,
    control: &Control,
) -> Result<()> {
    let control = control.with_remaining_time();
    let poses = turntable_path(model, options.frames);
    let preview = choose_preview_image(model, &Default::default());
    let camera = preview.and_then(|id| model.cameras.get(&model.images.get(&id)?.camera_id));
    let camera = camera.ok_or_else(|| Error::argument("a model without images has no path to film"))?;
    // In the middle of the picture, and of even size as video wants it.
    let fitted = fitted(camera, options.max_side);
    let even = |side: u32| (side & !1).max(2);
    let camera = Camera::from_focal(
        CameraModel::Pinhole,
        fitted.mean_focal(),
        even(fitted.width),
        even(fitted.height),
    );
    let mut video = VideoWriter::create(path, camera.width, camera.height, options.frame_rate)?;
    for (k, pose) in poses.iter().enumerate() {
        control.check()?;
        let rendering = rasteriser.render(&View::new(&camera, pose), sh_degree, options.background)?;
        video.write(&picture(&rendering)?)?;
        control.progress(Stage::Export, "turntable", (k + 1) as f32 / poses.len() as f32);
    }
    video.finish()
}

/// A closed way around the focus: distance and height by angle.
struct Round {
    focus: Vector3<f64>,
    /// Two directions that span the level, and up.
    axes: [Vector3<f64>; 3],
    /// Angle, distance from the axis, height above the focus of every camera.
    cameras: Vec<[f64; 3]>,
    start: f64,
    /// 1 or -1: the way the capture went.
    direction: f64,
    /// How far along the round (radians) cameras count for its shape.
    width: f64,
}

impl Round {
    /// `None` if the cameras do not go around.
    fn of(capture: &Capture<'_>, start: usize, options: &PathOptions) -> Option<Self> {
        let up = capture.up;
        let across = if up.x.abs() < 0.9 { Vector3::x() } else { Vector3::z() };
        let first = (across - up * up.dot(&across)).normalize();
        let axes = [first, up.cross(&first), up];
        let cameras: Vec<[f64; 3]> = capture
            .images
            .iter()
            .map(|(_, image)| {
                let [x, y, z] = axes.map(|axis| axis.dot(&(image.pose.centre() - capture.focus)));
                [y.atan2(x), x.hypot(y), z]
            })
            .collect();
        let mut angles: Vec<f64> = cameras.iter().map(|c| c[0]).collect();
        angles.sort_by(f64::total_cmp);
        let around = angles.first()? + TAU;
        let next = angles.iter().skip(1).chain(std::iter::once(&around));
        let largest_gap = angles.iter().zip(next).map(|(a, b)| b - a).fold(0.0, f64::max);
        let turn: f64 = cameras.windows(2).map(|pair| signed_angle(pair[1][0] - pair[0][0])).sum();
        (largest_gap <= options.largest_gap).then(|| Self {
            focus: capture.focus,
            axes,
            start: cameras[start][0],
            direction: if turn < 0.0 { -1.0 } else { 1.0 },
            width: options.round_width,
            cameras,
        })
    }

    /// Where the camera is after the part `phase` (0 to 1) of the round.
    fn position(&self, phase: f64) -> Vector3<f64> {
        let angle = self.start + self.direction * TAU * phase;
        let (mut distance, mut height, mut total) = (0.0, 0.0, 0.0);
        for [at, camera_distance, camera_height] in &self.cameras {
            // A Gaussian around the circle (von Mises).
            let weight = (((angle - at).cos() - 1.0) / (self.width * self.width)).exp();
            distance += weight * camera_distance;
            height += weight * camera_height;
            total += weight;
        }
        let level = self.axes[0] * angle.cos() + self.axes[1] * angle.sin();
        self.focus + (level * distance + self.axes[2] * height) / total
    }
}

fn signed_angle(angle: f64) -> f64 {
    angle.sin().atan2(angle.cos())
}

/// A smooth path from one end of (a part of) the capture to the other.
struct Walk {
    /// How far along the path each camera is, 0 to 1; its centre; the direction of its view.
    cameras: Vec<(f64, Vector3<f64>, Vector3<f64>)>,
    /// How far along the path, as a part of it, cameras count.
    width: f64,
}

impl Walk {
    fn of(capture: &Capture<'_>, start: usize, options: &PathOptions) -> Self {
        let poses: Vec<&Pose> = capture.images.iter().map(|(_, image)| &image.pose).collect();
        let centres: Vec<Vector3<f64>> = poses.iter().map(|pose| pose.centre()).collect();
        let order = shorter_order(&centres, options.much_shorter);
        // As much of the path around the start as can be shown at ease.
        let at = order.iter().position(|&k| k == start).unwrap_or(0);
        let hop = |k: usize| (centres[order[k + 1]] - centres[order[k]]).norm();
        let (mut first, mut last, mut length) = (at, at, 0.0);
        loop {
            let (before, after) = (first > 0, last + 1 < order.len());
            if !(before || after) || length > options.longest_path * capture.depth {
                break;
            }
            // Evenly to both sides, as long as there are two.
            if before && (!after || at - first <= last - at) {
                first -= 1;
                length += hop(first);
            } else {
                length += hop(last);
                last += 1;
            }
        }
        let mut so_far = 0.0;
        let cameras = (first..=last)
            .map(|k| {
                let part = if length > 0.0 { so_far / length } else { 0.5 };
                so_far += if k < last { hop(k) } else { 0.0 };
                (part, centres[order[k]], poses[order[k]].forward())
            })
            .collect();
        Self { cameras, width: options.path_width }
    }

    /// Position and direction of view at `at` (0 to 1).
    fn at(&self, at: f64) -> (Vector3<f64>, Vector3<f64>) {
        let (mut position, mut forward, mut total) = (Vector3::zeros(), Vector3::zeros(), 0.0);
        for (part, centre, direction) in &self.cameras {
            let weight = (-0.5 * ((at - part) / self.width).powi(2)).exp() + 1e-12;
            position += centre * weight;
            forward += direction * weight;
            total += weight;
        }
        // Directions that cancel each other out: any of them.
        let forward = forward.try_normalize(1e-6).unwrap_or_else(|| self.cameras[0].2);
        (position / total, forward)
    }
}

/// The order of capture, unless going along the longest extent of the cameras is shorter than the part `much_shorter`
/// of that: photographs are often not in any order.
fn shorter_order(centres: &[Vector3<f64>], much_shorter: f64) -> Vec<usize> {
    let captured: Vec<usize> = (0..centres.len()).collect();
    let mean = centres.iter().sum::<Vector3<f64>>() / centres.len() as f64;
    let scatter: Matrix3<f64> = centres.iter().map(|c| (c - mean) * (c - mean).transpose()).sum();
    let eigen = scatter.symmetric_eigen();
    let axis = eigen.eigenvectors.column(eigen.eigenvalues.imax()).into_owned();
    let mut along = captured.clone();
    along.sort_by(|&a, &b| axis.dot(&centres[a]).total_cmp(&axis.dot(&centres[b])));
    let length = |order: &[usize]| -> f64 {
        order.windows(2).map(|pair| (centres[pair[1]] - centres[pair[0]]).norm()).sum()
    };
    if length(&along) < much_shorter * length(&captured) { along } else { captured }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::capture::tests::{model_of, orbit};
    use super::*;
    use crate::control::tests::{assert_seconds_were_told, told_slowly};

    fn assert_smooth_and_closed(poses: &[Pose], longest_step: f64) {
        for (k, pose) in poses.iter().enumerate() {
            let next = &poses[(k + 1) % poses.len()];
            let step = (next.centre() - pose.centre()).norm();
            assert!(step < longest_step, "{step} from {k}");
            assert!(next.rotation.angle_to(&pose.rotation) < 0.15, "turn from {k}");
            assert!(pose.is_finite());
        }
    }

    #[test]
    fn a_round_follows_the_cameras_and_looks_at_what_they_look_at() {
        let middle = Vector3::new(1.0, 0.0, 2.0);
        // Higher and nearer on one side, and a gap of 70 degrees.
        let mut poses = orbit(60, 5.05, middle);
        for pose in &mut poses {
            let from = pose.centre() - middle;
            let position = middle + from * (1.0 - 0.1 * from.x / 4.0) + Vector3::new(0.0, -0.2 * from.x, 0.0);
            *pose = Pose::look_at(&position, &middle, &-Vector3::y()).unwrap();
        }
        let path = turntable_path(&model_of(&poses, middle), 120);
        assert_eq!(path.len(), 120);
        assert_smooth_and_closed(&path, 0.4);
        for pose in &path {
            let seen = pose.transform(&middle);
            assert!(seen.z > 3.0 && seen.xy().norm() < 1e-3 * seen.z, "{seen:?}");
            assert!(pose.up().y < -0.8);
        }
        // Where there were cameras the path is near them.
        for camera in &poses[5..55] {
            let nearest = path.iter().map(|p| (p.centre() - camera.centre()).norm()).fold(f64::MAX, f64::min);
            assert!(nearest < 0.35, "{nearest}");
        }
        // All the way round, in the direction of the capture.
        let turned: f64 = path
            .windows(2)
            .map(|p| {
                let [a, b] = [p[0].centre() - middle, p[1].centre() - middle];
                a.x.mul_add(b.z, -a.z * b.x).atan2(a.x * b.x + a.z * b.z)
            })
            .sum();
        assert!(turned > 6.1, "{turned}");
    }

    #[test]
    fn a_walk_is_gone_along_and_back() {
        let walk: Vec<Pose> = (0..60)
            .map(|k| {
                let shake = 0.02 * f64::from(k * 7919 % 13 - 6);
                let position = Vector3::new(shake, 0.5 * shake, 0.05 * f64::from(k));
                let target = position + Vector3::new(shake, shake, 1.0);
                Pose::look_at(&position, &target, &-Vector3::y()).unwrap()
            })
            .collect();
        let path = turntable_path(&model_of(&walk, Vector3::new(0.0, 0.0, 9.0)), 100);
        assert_smooth_and_closed(&path, 0.15);
        let depth = |k: usize| path[k].centre().z;
        assert!(depth(0) < 0.5 && depth(50) > 2.4, "{} {}", depth(0), depth(50));
        for pose in &path {
            assert!(pose.centre().x.abs() < 0.06 && pose.forward().z > 0.99);
            assert!((-0.01..=2.96).contains(&pose.centre().z));
        }
    }

    #[test]
    fn photographs_in_no_order_are_passed_in_a_row() {
        let row: Vec<Pose> = (0..17)
            .map(|k| {
                let position = Vector3::new(0.2 * f64::from(k * 5 % 17), 0.0, 0.0);
                Pose::look_at(&position, &(position + Vector3::z()), &-Vector3::y()).unwrap()
            })
            .collect();
        assert_smooth_and_closed(&turntable_path(&model_of(&row, Vector3::new(1.6, 0.0, 6.0)), 100), 0.15);
    }

    #[test]
    fn a_model_of_one_image_stands_still_and_one_of_none_has_no_film() {
        let model = model_of(&orbit(1, 1.0, Vector3::zeros()), Vector3::zeros());
        let path = turntable_path(&model, 10);
        assert!(path.iter().all(|p| (p.centre() - model.images[&1].pose.centre()).norm() < 1e-9));
        assert!(turntable_path(&SparseModel::default(), 10).is_empty());
    }

    #[test]
    fn the_film_shows_the_scene_from_all_sides() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("turntable.mp4");
        let model = model_of(&orbit(30, 6.2, Vector3::zeros()), Vector3::zeros());
        let options = TurntableOptions { frames: 6, frame_rate: 10.0, max_side: 161, background: [1.0; 3] };
        let mut rasteriser = super::super::preview::tests::two_balls();
        let cancelled = crate::CancelToken::new();
        cancelled.cancel();
        let control = Control::new().with_cancel(cancelled);
        let error = write_turntable(&mut rasteriser, 0, &model, &options, &path, &control).unwrap_err();
        assert_eq!(error.kind(), crate::ErrorKind::Cancelled);
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
        let (control, told) = told_slowly(Duration::ZERO);
        write_turntable(&mut rasteriser, 0, &model, &options, &path, &control).unwrap();
        assert_seconds_were_told(&told);
        let info = crate::video::probe(&path).unwrap();
        assert_eq!((info.width, info.height), (160, 120));
        assert!((info.duration - 0.6).abs() < 0.05, "{}", info.duration);
        let empty = SparseModel::default();
        let error =
            write_turntable(&mut rasteriser, 0, &empty, &options, &path, &Control::new()).unwrap_err();
        assert_eq!(error.kind(), crate::ErrorKind::InvalidArgument);
    }
}
