//! How a scene was filmed, as far as showing it needs to know: which way is up, what the cameras look at, whether they
//! go around it, and which of them shows it best.

use std::collections::BTreeMap;

use nalgebra::Vector3;

use crate::camera::{Gaze, GazeOptions, Image, SparseModel, scene_up};
use crate::defaults::with_defaults;
use crate::statistics::median;

with_defaults! {
    /// What makes an image a good one to show. All chosen by hand; bells are exp(-(value / width)² / 2).
    #[derive(Debug, Clone, PartialEq)]
    pub(super) struct ScoreOptions {
        /// Number of images from which on a point counts as seen well.
        good_track: usize = 3,
        /// Points beyond this multiple of the usual number (median over the images) count no more.
        most_content: f64 = 1.5,
        /// What points count in an image where they are all in one place, beside 1 where they are everywhere.
        base_cover: f64 = 0.2,
        /// Width (radians) of the bell over the angle between the view and the direction of the focus.
        aim_width: f64 = 0.25,
        /// Width (natural logarithm) of the bell over the distance to the focus as a multiple of the usual one.
        distance_width: f64 = 0.4,
        /// Width (radians) of the bell over the angle to the mean direction of view, where there is no focus.
        forward_width: f64 = 0.8,
        /// Width (radians) of the bell over the roll.
        roll_width: f64 = 0.3,
        /// A rendering this much better (dB) than the usual one counts e times as much; no difference counts more.
        quality_width: f64 = 4.0,
        /// People are still raising or lowering the camera in the first and the last of so many parts of a film.
        settling_parts: usize = 30,
        /// Images of captures with no more than this are not from a film.
        fewest_in_film: usize = 10,
        /// What images count in which the camera is raised or lowered (0 to 1).
        settling: f64 = 0.6,
    }
}

/// A filmed scene. World units and axes throughout.
pub(super) struct Capture<'a> {
    /// Id and image, in the order of the names.
    pub(super) images: Vec<(u32, &'a Image)>,
    /// The scene's up, unit length.
    pub(super) up: Vector3<f64>,
    /// The point the cameras look at, or one in front of the middle one.
    pub(super) focus: Vector3<f64>,
    /// Whether (nearly) all cameras look at the focus.
    pub(super) converges: bool,
    /// Median distance of the cameras from the focus, if they look at it; else of what a camera sees.
    distance: f64,
    /// Median distance of what a camera sees.
    pub(super) depth: f64,
    model: &'a SparseModel,
}

impl<'a> Capture<'a> {
    /// `None` without images.
    pub(super) fn of(model: &'a SparseModel) -> Option<Self> {
        let mut images: Vec<(u32, &Image)> = model.images.iter().map(|(id, image)| (*id, image)).collect();
        images.sort_by(|a, b| a.1.name.cmp(&b.1.name));
        let centres: Vec<Vector3<f64>> = images.iter().map(|(_, i)| i.pose.centre()).collect();
        let middle = images.get(images.len() / 2)?.1;

        let mut depths: Vec<f64> =
            images.iter().filter_map(|(_, image)| median_depth(model, image)).collect();
        let mean = centres.iter().sum::<Vector3<f64>>() / centres.len() as f64;
        let mut spread: Vec<f64> = centres.iter().map(|c| (c - mean).norm()).collect();
        // Without points the cameras' own extent is the only length there is.
        let depth = median(&mut depths).or_else(|| median(&mut spread)).filter(|d| *d > 1e-9).unwrap_or(1.0);
        let gaze = Gaze::of(model).filter(|gaze| gaze.converges);
        Some(Self {
            up: scene_up(images.iter().map(|(_, i)| &i.pose), &GazeOptions::default())?,
            focus: gaze.map_or_else(|| middle.pose.centre() + depth * middle.pose.forward(), |g| g.focus),
            converges: gaze.is_some(),
            distance: gaze.map_or(depth, |g| g.distance),
            depth,
            images,
            model,
        })
    }

    /// How well every image would stand for the scene, in the order of `images`, all above 0. `quality` is the PSNR of
    /// a rendering of the image in dB, where it is known.
    pub(super) fn scores(&self, quality: &BTreeMap<u32, f64>) -> Vec<f64> {
        let options = ScoreOptions::default();
        let bell = |value: f64, width: f64| (-0.5 * (value / width).powi(2)).exp();
        let seen: Vec<[f64; 2]> =
            self.images.iter().map(|(_, image)| self.observations(image, options.good_track)).collect();
        let usual = median(&mut seen.iter().map(|s| s[0]).collect::<Vec<_>>()).unwrap_or(0.0).max(1.0);
        let usual_quality = median(&mut quality.values().copied().collect::<Vec<_>>()).unwrap_or(0.0);
        let mean_forward = self.images.iter().map(|(_, i)| i.pose.forward()).sum::<Vector3<f64>>();
        let count = self.images.len();
        let score = |k: usize| {
            let (id, image) = self.images[k];
            let (forward, [observations, cover]) = (image.pose.forward(), seen[k]);
            let content = (observations / usual).min(options.most_content) * (options.base_cover + cover);
            // Straight at the subject; if there is none, the way most cameras look.
            let aim = if self.converges {
                let to_focus = self.focus - image.pose.centre();
                bell(forward.angle(&to_focus), options.aim_width)
                    * bell((to_focus.norm().max(1e-9) / self.distance).ln(), options.distance_width)
            } else {
                bell(forward.angle(&mean_forward), options.forward_width)
            };
            let level = image.pose.up() - forward * forward.dot(&image.pose.up());
            let roll = level.angle(&(self.up - forward * forward.dot(&self.up)));
            let from_end = k.min(count - 1 - k);
            let settling = count > options.fewest_in_film && from_end * options.settling_parts < count;
            let rendered = quality
                .get(&id)
                .map_or(1.0, |q| ((q - usual_quality) / options.quality_width).clamp(-1.0, 1.0).exp());
            content
                * aim
                * bell(roll, options.roll_width)
                * rendered
                * if settling { options.settling } else { 1.0 }
                + 1e-12
        };
        (0..count).map(score).collect()
    }

    /// Number of points that the image shows and that `good_track` images see, and the part of its area (in 8 x 8
    /// cells) where they are.
    fn observations(&self, image: &Image, good_track: usize) -> [f64; 2] {
        let Some(camera) = self.model.cameras.get(&image.camera_id) else { return [0.0; 2] };
        let (mut count, mut cells) = (0, [false; 64]);
        for point2d in &image.points2d {
            let point = point2d.point3d.and_then(|id| self.model.points.get(&id));
            if point.is_some_and(|p| p.track.len() >= good_track) {
                count += 1;
                let cell = |v: f64, size: u32| ((v / f64::from(size) * 8.0) as usize).min(7);
                cells[cell(point2d.xy.y, camera.height) * 8 + cell(point2d.xy.x, camera.width)] = true;
            }
        }
        [f64::from(count), cells.iter().filter(|c| **c).count() as f64 / 64.0]
    }
}

/// The training image that shows the scene best: many well-observed points all over the picture, level, aimed at the
/// subject from the usual distance, rendered well; not one of the first or last. `quality` is the PSNR per image id in
/// dB where it is known, and may be empty. `None` if the model has no images.
pub fn choose_preview_image(model: &SparseModel, quality: &BTreeMap<u32, f64>) -> Option<u32> {
    let capture = Capture::of(model)?;
    let scores = capture.scores(quality);
    let best = (0..scores.len()).max_by(|&a, &b| scores[a].total_cmp(&scores[b]).then(b.cmp(&a)))?;
    Some(capture.images[best].0)
}

fn median_depth(model: &SparseModel, image: &Image) -> Option<f64> {
    let points = image.points2d.iter().filter_map(|p| model.points.get(&p.point3d?));
    let mut depths: Vec<f64> = points.map(|p| image.pose.transform(&p.xyz).z).filter(|z| *z > 0.0).collect();
    median(&mut depths)
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::camera::{Camera, CameraModel, Point2D, Point3D, Pose, WORLD_UP};
    use crate::random::Random;

    /// A model whose cameras have these poses, with points in a ball around `middle` seen by all that can.
    pub(crate) fn model_of(poses: &[Pose], middle: Vector3<f64>) -> SparseModel {
        let mut model = SparseModel::default();
        model.cameras.insert(1, Camera::from_focal(CameraModel::Pinhole, 500.0, 640, 480));
        for (k, pose) in poses.iter().enumerate() {
            let name = format!("frame_{k:06}.jpg");
            let image = Image { name, camera_id: 1, pose: *pose, points2d: Vec::new() };
            model.images.insert(k as u32 + 1, image);
        }
        let mut random = Random::new(9);
        for id in 1..=200 {
            let xyz = middle + Vector3::from_fn(|_, _| 0.7 * (2.0 * random.uniform() - 1.0));
            let mut track = Vec::new();
            for (image_id, image) in &mut model.images {
                let pixel = model.cameras[&1].project(&image.pose.transform(&xyz));
                let inside =
                    |p: &nalgebra::Vector2<f64>| p.x > 0.0 && p.y > 0.0 && p.x < 640.0 && p.y < 480.0;
                if let Some(xy) = pixel.filter(inside) {
                    track.push((*image_id, image.points2d.len() as u32));
                    image.points2d.push(Point2D { xy, point3d: Some(id) });
                }
            }
            model.points.insert(id, Point3D { xyz, rgb: [90, 120, 200], error: 0.5, track });
        }
        model
    }

    /// Cameras on `turn` radians of a circle around `middle`, somewhat above it.
    pub(crate) fn orbit(count: usize, turn: f64, middle: Vector3<f64>) -> Vec<Pose> {
        let pose = |k: usize| {
            let angle = turn * k as f64 / count as f64;
            let position = middle + Vector3::new(4.0 * angle.cos(), -1.0, 4.0 * angle.sin());
            Pose::look_at(&position, &middle, &WORLD_UP).unwrap()
        };
        (0..count).map(pose).collect()
    }

    #[test]
    fn the_focus_is_what_most_cameras_look_at() {
        let middle = Vector3::new(1.0, 2.0, -3.0);
        let mut poses = orbit(40, 3.0, middle);
        // Six look somewhere else.
        for k in [3, 8, 15, 22, 29, 36] {
            let rotation = nalgebra::UnitQuaternion::from_euler_angles(0.0, 0.9, 0.3) * poses[k].rotation;
            poses[k] = Pose::from_centre(rotation, &poses[k].centre());
        }
        let model = model_of(&poses, middle);
        let capture = Capture::of(&model).unwrap();
        assert!(capture.converges && (capture.focus - middle).norm() < 0.02, "{:?}", capture.focus);
        assert_eq!(capture.up, WORLD_UP);
        assert!((capture.depth - 17f64.sqrt()).abs() < 0.3, "{}", capture.depth);
    }

    #[test]
    fn rays_that_meet_nowhere_have_no_focus_but_a_scene_in_front() {
        let walk: Vec<Pose> = (0..30)
            .map(|k| {
                let position = Vector3::new(0.05 * f64::from(k % 2), 0.0, 0.1 * f64::from(k));
                Pose::look_at(&position, &(position + Vector3::z()), &WORLD_UP).unwrap()
            })
            .collect();
        let model = model_of(&walk, Vector3::new(0.0, 0.0, 8.0));
        let capture = Capture::of(&model).unwrap();
        assert!(!capture.converges);
        assert!((capture.focus - Vector3::new(0.0, 0.0, 8.0)).norm() < 1.0, "{:?}", capture.focus);
        let outwards: Vec<Pose> = orbit(30, 6.0, Vector3::zeros())
            .iter()
            .map(|p| Pose::look_at(&p.centre(), &(2.0 * p.centre()), &WORLD_UP).unwrap())
            .collect();
        assert!(!Capture::of(&model_of(&outwards, Vector3::zeros())).unwrap().converges);
        assert!(Capture::of(&SparseModel::default()).is_none());
    }

    #[test]
    fn the_preview_is_a_level_well_aimed_camera_that_sees_much() {
        let middle = Vector3::zeros();
        let mut poses = orbit(30, 2.0, middle);
        for (k, pose) in poses.iter_mut().enumerate() {
            if k != 17 {
                // Rolled, or turned away, or too far.
                let angles = [(0.0, 0.0, 0.4), (0.0, 0.5, 0.0), (0.3, 0.0, 0.1)][k % 3];
                let turn = nalgebra::UnitQuaternion::from_euler_angles(angles.0, angles.1, angles.2);
                *pose = Pose::from_centre(turn * pose.rotation, &pose.centre());
            }
        }
        let model = model_of(&poses, middle);
        assert_eq!(choose_preview_image(&model, &BTreeMap::new()), Some(18));
        // Of equal cameras the one that renders best.
        let model = model_of(&orbit(30, 2.0, middle), middle);
        let quality = BTreeMap::from([(9, 31.0), (12, 25.0), (20, 25.0), (21, 25.0)]);
        assert_eq!(choose_preview_image(&model, &quality), Some(9));
        assert_eq!(choose_preview_image(&SparseModel::default(), &BTreeMap::new()), None);
    }

    #[test]
    fn a_scene_that_is_not_levelled_has_the_up_of_its_cameras() {
        let turn = nalgebra::UnitQuaternion::from_euler_angles(1.2, 0.0, 0.0);
        let mut model = model_of(&orbit(20, 6.0, Vector3::zeros()), Vector3::zeros());
        model.transform(1.0, &turn, &Vector3::zeros());
        let capture = Capture::of(&model).unwrap();
        assert!((capture.up - turn * WORLD_UP).norm() < 0.05, "{:?}", capture.up);
    }
}
