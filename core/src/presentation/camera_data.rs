//! Where a viewer starts: the `camera_data` of a job.
//!
//! In the frame of `scene.ply`: that of the reconstruction, x right, y down, z forward, so that up is about (0, -1, 0) in
//! a levelled scene. A viewer of the `.spz` file, whose frame is x right, y up, z back, negates y and z.

use nalgebra::Vector3;
use serde::{Deserialize, Serialize};

use super::capture::Capture;
use crate::camera::{Pose, SparseModel};
use crate::error::{Error, Result};

/// How the viewer moves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CameraType {
    /// Around the point it looks at.
    Orbital,
    /// Freely.
    #[default]
    Drone,
}

/// A point or direction.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Xyz {
    /// To the right.
    pub x: f64,
    /// Down.
    pub y: f64,
    /// Forward.
    pub z: f64,
}

impl From<Vector3<f64>> for Xyz {
    fn from(v: Vector3<f64>) -> Self {
        Self { x: v.x, y: v.y, z: v.z }
    }
}

impl From<Xyz> for Vector3<f64> {
    fn from(v: Xyz) -> Self {
        Vector3::new(v.x, v.y, v.z)
    }
}

/// The viewer's camera, as JSON `{"position": {x, y, z}, "lookAt": .., "up": .., "cameraType": ..}`.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CameraData {
    /// Where the camera is, world units.
    pub position: Xyz,
    /// The point it looks at; the centre of an orbital camera.
    pub look_at: Xyz,
    /// The direction that is up.
    pub up: Xyz,
    /// How it moves.
    #[serde(default)]
    pub camera_type: CameraType,
}

impl Default for CameraData {
    /// What is said before the scene is known.
    fn default() -> Self {
        Self {
            position: Xyz { x: 0.0, y: 0.0, z: -3.0 },
            look_at: Xyz::default(),
            up: Xyz { x: 0.0, y: 1.0, z: 0.0 },
            camera_type: CameraType::default(),
        }
    }
}

impl CameraData {
    /// A good start for a viewer of `model`'s scene. Orbital: at the camera of the image `preview` (see
    /// [`super::choose_preview_image`]), looking at the point that the cameras look at. Drone: at the first camera that shows
    /// the scene well, looking the way it looked. The default if the model has no images.
    pub fn from_model(model: &SparseModel, preview: u32, camera_type: CameraType) -> Self {
        let Some(capture) = Capture::of(model) else { return Self { camera_type, ..Self::default() } };
        let scores = capture.scores(&Default::default());
        let best = scores.iter().copied().fold(0.0, f64::max);
        let first_good = scores.iter().position(|score| *score >= 0.5 * best).unwrap_or(0);
        let shown = capture.images.iter().position(|(id, _)| *id == preview).unwrap_or(first_good);
        let image = capture.images[if camera_type == CameraType::Orbital { shown } else { first_good }].1;
        let position = image.pose.centre();
        let look_at = match camera_type {
            CameraType::Orbital if capture.converges => capture.focus,
            _ => position + capture.depth * image.pose.forward(),
        };
        // Straight down or up there is no level; the picture's own up is then as good as any.
        let view = (look_at - position).normalize();
        let up = if view.cross(&capture.up).norm() > 0.1 { capture.up } else { image.pose.up() };
        Self { position: position.into(), look_at: look_at.into(), up: up.into(), camera_type }
    }

    /// Where a camera stands that shows this: world-to-camera, x right, y down, z forward.
    ///
    /// # Errors
    /// Those of [`check`](Self::check), and [`InvalidArgument`](crate::ErrorKind::InvalidArgument) if `up` points along the
    /// view, which leaves open how the camera is rolled.
    pub fn pose(&self) -> Result<Pose> {
        self.check()?;
        Pose::look_at(&self.position.into(), &self.look_at.into(), &self.up.into())
            .ok_or_else(|| Error::argument("camera_data.up points along the view from position to lookAt"))
    }

    /// Whether a viewer can use it.
    ///
    /// # Errors
    /// [`InvalidArgument`](crate::ErrorKind::InvalidArgument) if a number is not finite, `up` is zero, or `position` equals
    /// `lookAt`.
    pub fn check(&self) -> Result<()> {
        for (name, v) in [("position", self.position), ("lookAt", self.look_at), ("up", self.up)] {
            if ![v.x, v.y, v.z].iter().all(|v| v.is_finite()) {
                return Err(Error::argument(format!("camera_data.{name} has a number that is not finite")));
            }
        }
        if self.up == Xyz::default() {
            return Err(Error::argument("camera_data.up is zero"));
        }
        if self.position == self.look_at {
            return Err(Error::argument("camera_data.position and camera_data.lookAt are the same point"));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::capture::tests::{model_of, orbit};
    use super::super::choose_preview_image;
    use super::*;
    use crate::error::ErrorKind;

    #[test]
    fn the_json_has_the_names_of_the_interface() {
        let json = serde_json::to_string(&CameraData::default()).unwrap();
        let expected = r#"{"position":{"x":0.0,"y":0.0,"z":-3.0},"lookAt":{"x":0.0,"y":0.0,"z":0.0},"up":{"x":0.0,"y":1.0,"z":0.0},"cameraType":"drone"}"#;
        assert_eq!(json, expected);
        let text =
            r#"{"position":{"x":1,"y":0,"z":0},"lookAt":{"x":0,"y":0,"z":0},"up":{"x":0,"y":-1,"z":0}"#;
        let data: CameraData =
            serde_json::from_str(&format!("{text}, \"cameraType\":\"orbital\"}}")).unwrap();
        assert_eq!((data.position.x, data.camera_type), (1.0, CameraType::Orbital));
        serde_json::from_str::<CameraData>(&format!("{text}, \"fov\":3}}")).unwrap_err();
        serde_json::from_str::<CameraData>(&format!("{text}, \"cameraType\":\"car\"}}")).unwrap_err();
    }

    #[test]
    fn what_a_viewer_cannot_use_is_refused() {
        let good = CameraData::default();
        good.check().unwrap();
        let bad = [
            CameraData { position: Xyz { x: f64::NAN, ..good.position }, ..good },
            CameraData { up: Xyz::default(), ..good },
            CameraData { position: good.look_at, ..good },
        ];
        for data in bad {
            assert_eq!(data.check().unwrap_err().kind(), ErrorKind::InvalidArgument);
            assert_eq!(data.pose().unwrap_err().kind(), ErrorKind::InvalidArgument);
        }
        let along = CameraData { up: Xyz { x: 0.0, y: 0.0, z: 2.0 }, ..good };
        along.check().unwrap();
        assert_eq!(along.pose().unwrap_err().kind(), ErrorKind::InvalidArgument);
        for far in [1e308, -1e308, 1e200] {
            let data = CameraData { position: Xyz { x: far, y: -far, z: far }, ..good };
            data.check().unwrap();
            assert_eq!(data.pose().unwrap_err().kind(), ErrorKind::InvalidArgument);
        }
    }

    #[test]
    fn an_orbit_starts_at_a_training_camera_and_turns_about_what_they_look_at() {
        let middle = Vector3::new(0.5, 0.2, -1.0);
        let model = model_of(&orbit(40, 6.0, middle), middle);
        let preview = choose_preview_image(&model, &Default::default()).unwrap();
        let data = CameraData::from_model(&model, preview, CameraType::Orbital);
        data.check().unwrap();
        assert!((Vector3::from(data.look_at) - middle).norm() < 1e-6);
        assert_eq!(Vector3::from(data.position), model.images[&preview].pose.centre());
        assert_eq!(data.up, Xyz { x: 0.0, y: -1.0, z: 0.0 });
        let pose = data.pose().unwrap();
        assert!((pose.centre() - model.images[&preview].pose.centre()).norm() < 1e-9);
        let ahead = pose.transform(&middle);
        assert!(ahead.xy().norm() < 1e-6 && ahead.z > 4.0 && pose.up().y < -0.9, "{ahead}");

        let data = CameraData::from_model(&model, preview, CameraType::Drone);
        data.check().unwrap();
        let seen =
            |data: &CameraData| (Vector3::from(data.look_at) - Vector3::from(data.position)).normalize();
        let image = model.images.values().find(|i| i.pose.centre() == data.position.into()).unwrap();
        assert!((seen(&data) - image.pose.forward()).norm() < 1e-9);
        assert!(image.name.as_str() < "frame_000006.jpg", "{}", image.name);

        assert_eq!(
            CameraData::from_model(&SparseModel::default(), 1, CameraType::Drone),
            CameraData::default()
        );
    }

    #[test]
    fn straight_down_the_picture_says_what_is_up() {
        let poses: Vec<_> = (0..20)
            .map(|k| {
                let position = Vector3::new(0.1 * f64::from(k), -5.0, 0.0);
                crate::camera::Pose::look_at(&position, &(position + Vector3::y()), &Vector3::z()).unwrap()
            })
            .collect();
        let mut model = model_of(&poses, Vector3::new(1.0, 0.0, 0.0));
        // Levelled by something else than its cameras: their mean up is of no use.
        for image in model.images.values_mut().filter(|image| image.name.as_str() < "frame_000010") {
            let pose = crate::camera::Pose::look_at(
                &Vector3::new(0.0, 0.0, -9.0),
                &Vector3::zeros(),
                &-Vector3::y(),
            );
            image.pose = pose.unwrap();
        }
        for id in model.images.keys() {
            let data = CameraData::from_model(&model, *id, CameraType::Orbital);
            let view = Vector3::from(data.look_at) - Vector3::from(data.position);
            assert!(view.normalize().cross(&data.up.into()).norm() > 0.1, "{data:?}");
        }
    }
}
