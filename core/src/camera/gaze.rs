//! Where the cameras of a capture look, from how far, and which way is up.
//!
//! One answer for all who ask: the turntable goes round this place, the viewer's camera turns about it, and the object
//! whose background is removed stands there.

use nalgebra::{Matrix3, Vector3};

use super::level::{gravity, gravity_of_turned};
use super::{Camera, Pose, SparseModel};
use crate::defaults::with_defaults;
use crate::statistics::median;

/// Up in a levelled scene: the world is y down.
pub(crate) const WORLD_UP: Vector3<f64> = Vector3::new(0.0, -1.0, 0.0);

with_defaults! {
    /// How the place is sought, and when the cameras are said to look at one place at all.
    ///
    /// "Measured" means: on the reference poses of fourteen real captures (videos and photographs, of which nine go
    /// round something and five are walks or views that hardly change), and on the poses that this engine found for six
    /// of them.
    #[derive(Debug, Clone, Copy, PartialEq)]
    pub(crate) struct GazeOptions {
        /// A camera that sees a point this far from its principal point counts half, as a part of the picture's long
        /// side (0 to 1). Chosen by hand.
        pub(crate) middle: f64 = 0.1,
        /// Number of cameras, evenly chosen, whose pairs are tried as a first guess: at most 2016 pairs. Chosen by
        /// hand.
        pub(crate) paired: usize = 64,
        /// Number of weighted fits after the first guess. Chosen by hand.
        pub(crate) refits: usize = 10,
        /// Number of cameras without which nothing is said to converge: two rays always come near each other somewhere.
        pub(crate) least_cameras: usize = 3,
        /// Mean squared sine of the angles between the viewing rays and the direction that they have in common; with
        /// less they are too parallel to meet at a certain distance. 0.005 is an angle of 4 degrees. Measured: 0.11 to
        /// 0.51 where the camera goes round something, 0.003 at most in a walk straight ahead and in a view that hardly
        /// changes.
        pub(crate) least_parallax: f64 = 0.005,
        /// Part of the cameras (0 to 1) that must have the place in their picture. Measured: 1 where the camera goes
        /// round something, 0 to 0.25 in the walks.
        pub(crate) least_showing: f64 = 0.8,
        /// A scene whose up is this near (degrees) to that of the world is taken for level: exactly level looks better
        /// than the mean of a shaky hand. Measured: 0.00 for every model of this engine, which levels them by the same
        /// rule; 10 to 94 for twelve of the reference models, which nobody levelled, and 3 to 4 for two that happen to
        /// be level.
        pub(crate) level_within: f64 = 5.0,
    }
}

/// Where most cameras look. World units and axes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Gaze {
    /// The point that most cameras look at; where they look at none, the point nearest to all viewing rays.
    pub(crate) focus: Vector3<f64>,
    /// Whether they do look at it: nearly all show it, from different sides.
    pub(crate) converges: bool,
    /// Median distance from the focus of the cameras that show it, above 0.
    pub(crate) distance: f64,
    /// The scene's up, unit length.
    pub(crate) up: Vector3<f64>,
}

impl Gaze {
    /// That of all images of `model` that have a camera.
    pub(crate) fn of(model: &SparseModel) -> Option<Self> {
        let images = model.images.values();
        let cameras: Vec<(&Pose, &Camera)> =
            images.filter_map(|image| Some((&image.pose, model.cameras.get(&image.camera_id)?))).collect();
        Self::of_cameras(&cameras, &GazeOptions::default())
    }

    /// `None` without cameras, or if all stand in one point.
    pub(crate) fn of_cameras(cameras: &[(&Pose, &Camera)], options: &GazeOptions) -> Option<Self> {
        let up = scene_up(cameras.iter().map(|(pose, _)| *pose), options)?;
        let observers: Vec<Observer> =
            cameras.iter().map(|(pose, camera)| Observer::new(pose, camera)).collect();
        let focus = most_looked_at(&observers, options)?;
        let showing: Vec<&Observer> = observers.iter().filter(|o| o.shows(&focus)).collect();
        let converges = observers.len() >= options.least_cameras
            && showing.len() as f64 >= options.least_showing * observers.len() as f64
            && parallax(&showing) >= options.least_parallax;
        // Cameras that turn on the spot: none has the focus before it.
        let near = if showing.is_empty() { observers.iter().collect() } else { showing };
        let distance = median(&mut near.iter().map(|o| (o.centre - focus).norm()).collect::<Vec<_>>())?;
        (distance > 0.0 && focus.iter().all(|v| v.is_finite())).then_some(Self {
            focus,
            converges,
            distance,
            up,
        })
    }
}

/// The up of a scene (unit length) in which the pictures' rows are level, or the columns of those that lie on their side;
/// that of the world if they are so there, too.
/// `None` without cameras.
pub(crate) fn scene_up<'a>(
    poses: impl Iterator<Item = &'a Pose> + Clone,
    options: &GazeOptions,
) -> Option<Vector3<f64>> {
    poses.clone().next()?;
    let is_level = |up: &Vector3<f64>| up.angle(&WORLD_UP) <= options.level_within.to_radians();
    let up = gravity(poses.clone()).map_or(WORLD_UP, |down| -down);
    if is_level(&up) {
        return Some(WORLD_UP);
    }
    // Nobody levelled the model, or pictures of it lie on their side: a model's files do not say which.
    let poses: Vec<Pose> = poses.copied().collect();
    let up = gravity_of_turned(&poses, &-WORLD_UP).map_or(up, |down| -down);
    Some(if is_level(&up) { WORLD_UP } else { up })
}

/// A camera without the distortion of its lens, which far from the middle may fold back into the picture what is not in
/// it.
struct Observer {
    centre: Vector3<f64>,
    /// World to camera; the rows are the camera's axes in the world.
    rotation: Matrix3<f64>,
    translation: Vector3<f64>,
    focal: (f64, f64),
    /// Width and height in pixels.
    size: (f64, f64),
    principal: (f64, f64),
}

impl Observer {
    fn new(pose: &Pose, camera: &Camera) -> Self {
        let rotation = pose.rotation_matrix();
        let principal = camera.principal_point();
        Self {
            centre: -(rotation.transpose() * pose.translation),
            rotation,
            translation: pose.translation,
            focal: camera.focal(),
            size: (f64::from(camera.width), f64::from(camera.height)),
            principal: (principal.x, principal.y),
        }
    }

    fn forward(&self) -> Vector3<f64> {
        self.rotation.row(2).transpose()
    }

    /// Where in its picture it sees the point, pixels from the principal point; `None` if it is not in the picture.
    fn sees(&self, point: &Vector3<f64>) -> Option<(f64, f64)> {
        let p = self.rotation * point + self.translation;
        let (x, y) = (self.focal.0 * p.x / p.z, self.focal.1 * p.y / p.z);
        let within = |v: f64, size: f64| v >= 0.0 && v < size;
        (p.z > 1e-9 && within(x + self.principal.0, self.size.0) && within(y + self.principal.1, self.size.1))
            .then_some((x, y))
    }

    fn shows(&self, point: &Vector3<f64>) -> bool {
        self.sees(point).is_some()
    }

    /// How near to the principal point it sees the point: 1 there, 1/2 at the distance `middle`, 0 outside the picture.
    fn centred(&self, point: &Vector3<f64>, middle: f64) -> f64 {
        let long = middle * self.size.0.max(self.size.1);
        self.sees(point).map_or(0.0, |(x, y)| 1.0 / (1.0 + (x / long).powi(2) + (y / long).powi(2)))
    }

    /// Takes from a vector what lies along the viewing ray.
    fn across(&self) -> Matrix3<f64> {
        let forward = self.forward();
        Matrix3::identity() - forward * forward.transpose()
    }
}

/// The point that most cameras look at. If all have the point nearest to all viewing rays in their picture, it is that.
/// Else some look elsewhere and would pull it with them: of the points nearest to two rays, the one that most have in
/// the middle of their picture is the first guess, which is then fitted to the rays that pass near it.
fn most_looked_at(observers: &[Observer], options: &GazeOptions) -> Option<Vector3<f64>> {
    let weigh = |point: &Vector3<f64>| -> Vec<f64> {
        observers.iter().map(|o| o.centred(point, options.middle)).collect()
    };
    let mut focus = nearest_to_rays(observers.iter().map(|o| (o, 1.0)))?;
    if observers.iter().all(|o| o.shows(&focus)) {
        return Some(focus);
    }
    let mut most = weigh(&focus).iter().sum::<f64>();
    let stride = observers.len().div_ceil(options.paired.max(1)).max(1);
    let some: Vec<&Observer> = observers.iter().step_by(stride).collect();
    for (k, a) in some.iter().enumerate() {
        for b in &some[k + 1..] {
            let Some(point) = nearest_to_rays([(*a, 1.0), (*b, 1.0)]) else { continue };
            let centred = weigh(&point).iter().sum::<f64>();
            if centred > most {
                (focus, most) = (point, centred);
            }
        }
    }
    for _ in 0..options.refits {
        let Some(point) = nearest_to_rays(observers.iter().zip(weigh(&focus))) else { break };
        focus = point;
    }
    Some(focus)
}

/// The point with the least weighted sum of squared distances from the viewing rays.
fn nearest_to_rays<'a>(observers: impl IntoIterator<Item = (&'a Observer, f64)>) -> Option<Vector3<f64>> {
    let (mut a, mut b) = (Matrix3::<f64>::zeros(), Vector3::<f64>::zeros());
    let (mut centres, mut weights) = (Vector3::<f64>::zeros(), 0.0);
    for (observer, weight) in observers {
        let across = weight * observer.across();
        a += across;
        b += across * observer.centre;
        centres += weight * observer.centre;
        weights += weight;
    }
    // Parallel rays meet nowhere: this keeps the point near the cameras then. So little moves no other point.
    let inverse: Matrix3<f64> = (a + Matrix3::<f64>::identity() * (1e-9 * weights)).try_inverse()?;
    Some(inverse * (b + centres * 1e-9))
}

/// Mean squared sine of the angles between the viewing rays and the direction to which they are nearest; 0 without
/// rays.
fn parallax(observers: &[&Observer]) -> f64 {
    let sum: Matrix3<f64> = observers.iter().map(|o| o.across()).sum();
    (sum / observers.len().max(1) as f64).symmetric_eigenvalues().min()
}

#[cfg(test)]
mod tests {
    use nalgebra::UnitQuaternion;

    use super::*;
    use crate::camera::CameraModel;
    use crate::camera::level::levelling;

    /// A camera on a circle around the origin, somewhat above it.
    fn pose(angle: f64, target: &Vector3<f64>) -> Pose {
        let position = Vector3::new(3.0 * angle.cos(), -1.5 - 0.5 * (3.0 * angle).sin(), 3.0 * angle.sin());
        Pose::look_at(&position, target, &WORLD_UP).unwrap()
    }

    fn lens() -> Camera {
        Camera::from_focal(CameraModel::Pinhole, 180.0, 160, 120)
    }

    fn gaze(poses: &[Pose]) -> Option<Gaze> {
        let lens = lens();
        let cameras: Vec<_> = poses.iter().map(|pose| (pose, &lens)).collect();
        Gaze::of_cameras(&cameras, &GazeOptions::default())
    }

    /// Whether the focus is in the picture.
    fn shows(pose: &Pose, point: &Vector3<f64>) -> bool {
        Observer::new(pose, &lens()).shows(point)
    }

    #[test]
    fn where_most_look_is_found_though_the_mean_of_all_rays_is_elsewhere() {
        let around = |count: u32| (0..count).map(|i| pose(f64::from(i) * 0.2, &Vector3::zeros()));
        let away =
            |count: u32| (0..count).map(|i| pose(2.0 + f64::from(i) * 0.02, &Vector3::new(-9.0, 0.0, 4.0)));
        // All cameras that look at one place have it as their mean, without any choice.
        let all: Vec<Pose> = around(30).collect();
        let place = gaze(&all).unwrap();
        assert!(place.focus.norm() < 1e-4 && place.converges && place.up == WORLD_UP, "{place:?}");
        assert!((place.distance - 3.35).abs() < 0.2, "{place:?}");
        let turning: Vec<Pose> = around(30).chain(away(20)).collect();
        let place = gaze(&turning).unwrap();
        assert!(place.focus.norm() < 1e-4 && !place.converges, "{place:?}");
        assert!(shows(&turning[0], &place.focus) && !shows(&turning[40], &place.focus));
        // What is behind the object is in more pictures than the object, those that turn to it included, and yet not
        // what most look at.
        let before = (0..30).map(|i| pose(2.64 + f64::from(i) / 30.0, &Vector3::zeros()));
        let behind = Vector3::new(5.0, 0.0, 0.0);
        let turned = (0..20).map(|i| pose(1.0 + f64::from(i) * 0.02, &behind));
        let poses: Vec<Pose> = before.chain(turned).collect();
        let place = gaze(&poses).unwrap();
        assert!(place.focus.norm() < 0.05, "{place:?}");
        let showing = |point| poses.iter().filter(|pose| shows(pose, point)).count();
        assert!(showing(&behind) > showing(&place.focus));
        // Going near and away changes nothing: the object stays in the picture.
        let mut near = all;
        for (i, pose) in near.iter_mut().enumerate() {
            pose.translation.z *= 0.3 + 0.1 * (i % 12) as f64;
        }
        let place = gaze(&near).unwrap();
        assert!(place.focus.norm() < 1e-4 && near.iter().all(|p| shows(p, &place.focus)), "{place:?}");
        assert!(gaze(&[]).is_none());
    }

    #[test]
    fn rays_that_are_parallel_or_go_outwards_do_not_converge() {
        let walk: Vec<Pose> = (0..30)
            .map(|k| {
                let position = Vector3::new(0.05 * f64::from(k % 2), 0.0, 0.1 * f64::from(k));
                Pose::look_at(&position, &(position + Vector3::z()), &WORLD_UP).unwrap()
            })
            .collect();
        assert!(!gaze(&walk).unwrap().converges);
        let outwards: Vec<Pose> = (0..30)
            .map(|k| {
                let position = pose(0.2 * f64::from(k), &Vector3::zeros()).centre();
                Pose::look_at(&position, &(2.0 * position), &WORLD_UP).unwrap()
            })
            .collect();
        assert!(!gaze(&outwards).unwrap().converges);
        // Two rays come near each other somewhere by chance.
        let two: Vec<Pose> = [0.0, 1.0].map(|angle| pose(angle, &Vector3::zeros())).into();
        assert!(!gaze(&two).unwrap().converges);
    }

    #[test]
    fn up_is_where_the_rows_of_the_pictures_are_level() {
        // Cameras on one side that look steeply down: their mean up is 36 degrees from that of the scene.
        let steep: Vec<Pose> = (0..12)
            .map(|k| {
                let angle = 0.15 * f64::from(k);
                let position = Vector3::new(3.0 * angle.sin(), -2.5, -3.0 * angle.cos());
                Pose::look_at(&position, &Vector3::zeros(), &WORLD_UP).unwrap()
            })
            .collect();
        let options = GazeOptions::default();
        assert_eq!(scene_up(steep.iter(), &options), Some(WORLD_UP));
        let turned = |degrees: f64| -> Vec<Pose> {
            let world = UnitQuaternion::from_euler_angles(degrees.to_radians(), 0.0, 0.0);
            steep.iter().map(|p| p.in_moved_world(1.0, &world, &Vector3::zeros())).collect()
        };
        assert_eq!(scene_up(turned(4.0).iter(), &options), Some(WORLD_UP));
        for degrees in [7.0, 25.0, 120.0] {
            let up = scene_up(turned(degrees).iter(), &options).unwrap();
            assert!((up.angle(&WORLD_UP).to_degrees() - degrees).abs() < 1.5, "{degrees}: {up:?}");
        }
        // Every sixth picture lies on its side: as in a model of this engine, and in one that nobody levelled.
        let on_side = |poses: Vec<Pose>| -> Vec<Pose> {
            poses.iter().enumerate().map(|(k, p)| p.turned_back(if k % 6 == 2 { 3 } else { 0 })).collect()
        };
        assert_eq!(scene_up(on_side(steep.clone()).iter(), &options), Some(WORLD_UP));
        let up = scene_up(on_side(turned(25.0)).iter(), &options).unwrap();
        assert!((up.angle(&WORLD_UP).to_degrees() - 25.0).abs() < 1.5, "{up:?}");
        // Of one side alone, where rows hardly say what is level: the engine levelled the model by what it knew of the turns.
        let front: Vec<Pose> = (0..12)
            .map(|k| {
                let angle = 0.03 * f64::from(k);
                let position = Vector3::new(3.0 * angle.sin(), -0.6, -3.0 * angle.cos());
                Pose::look_at(&position, &Vector3::zeros(), &WORLD_UP).unwrap()
            })
            .collect();
        let level = levelling(&gravity(front.iter()).unwrap());
        let levelled = front.iter().map(|p| p.in_moved_world(1.0, &level, &Vector3::zeros()));
        let stored: Vec<Pose> =
            levelled.enumerate().map(|(k, p)| p.turned_back(if k % 3 == 1 { 3 } else { 0 })).collect();
        assert!(gravity(stored.iter()).unwrap().angle(&-WORLD_UP).to_degrees() > 20.0);
        assert_eq!(scene_up(stored.iter(), &options), Some(WORLD_UP));
        assert!(scene_up([].iter(), &options).is_none());
    }
}
