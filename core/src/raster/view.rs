//! The pinhole view, in which what is estimated meets what is rendered.

use glam::{DMat3, DVec3};
use nalgebra::Vector3;
use serde::{Deserialize, Serialize};

use crate::camera::{Camera, Pose};

/// A pinhole view: where the camera is and the picture it takes.
///
/// Its fields are for rendering, its methods for estimation, whose points and axes are nalgebra's: they convert, so that
/// nobody else has to. The numbers are in double precision though pictures are rendered in single: depths, seeds and the
/// place the cameras look at are estimated through it, and the camera centre must come back to 1e-12. The rasterisers round
/// it once, where they begin with a view.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(from = "Written", into = "Written")]
pub struct View {
    /// World-to-camera rotation. Its rows are the camera's axes in the world (x right, y down, z forward); glam stores
    /// matrices column by column.
    pub rotation: DMat3,
    /// World-to-camera translation, world units.
    pub translation: DVec3,
    /// Focal length in pixels along x.
    pub fx: f64,
    /// Focal length in pixels along y.
    pub fy: f64,
    /// Principal point in pixels (centre of the top-left pixel at 0.5).
    pub cx: f64,
    /// Principal point in pixels.
    pub cy: f64,
    /// Picture width in pixels.
    pub width: u32,
    /// Picture height in pixels.
    pub height: u32,
}

impl View {
    /// What `camera` at `pose` sees, without the distortion of its lens.
    pub fn new(camera: &Camera, pose: &Pose) -> Self {
        let ((fx, fy), principal) = (camera.focal(), camera.principal_point());
        Self {
            // Both store column by column.
            rotation: DMat3::from_cols_array_2d(&pose.rotation_matrix().into()),
            translation: to_glam(&pose.translation),
            fx,
            fy,
            cx: principal.x,
            cy: principal.y,
            width: camera.width,
            height: camera.height,
        }
    }

    /// The camera centre, world.
    pub fn centre(&self) -> Vector3<f64> {
        to_nalgebra(-(self.rotation.transpose() * self.translation))
    }

    /// The camera's x axis, to the right in the picture: a unit vector of the world.
    pub fn right(&self) -> Vector3<f64> {
        to_nalgebra(self.rotation.row(0))
    }

    /// The camera's y axis, down in the picture: a unit vector of the world.
    pub fn down(&self) -> Vector3<f64> {
        to_nalgebra(self.rotation.row(1))
    }

    /// The camera's z axis, in which it looks: a unit vector of the world.
    pub fn forward(&self) -> Vector3<f64> {
        to_nalgebra(self.rotation.row(2))
    }

    /// A world point in camera coordinates.
    pub fn to_camera(&self, point: &Vector3<f64>) -> Vector3<f64> {
        to_nalgebra(self.rotation * to_glam(point) + self.translation)
    }

    /// Where a world point is seen, inside the picture or not: x and y in pixels, and its depth. `None` behind the camera.
    pub fn project(&self, point: &Vector3<f64>) -> Option<(f64, f64, f64)> {
        let p = self.to_camera(point);
        (p.z > 0.0).then(|| (self.fx * p.x / p.z + self.cx, self.fy * p.y / p.z + self.cy, p.z))
    }

    /// The world point that is seen at (x, y), in pixels, at that depth: the inverse of [`View::project`].
    pub fn unproject(&self, x: f64, y: f64, depth: f64) -> Vector3<f64> {
        let point = DVec3::new((x - self.cx) / self.fx * depth, (y - self.cy) / self.fy * depth, depth);
        to_nalgebra(self.rotation.transpose() * (point - self.translation))
    }

    /// The index, row by row, of the pixel at (x, y), if it is inside the picture.
    pub fn pixel(&self, x: f64, y: f64) -> Option<usize> {
        // Comparisons that fail for what is not a number.
        let inside = x >= 0.0 && y >= 0.0 && x < f64::from(self.width) && y < f64::from(self.height);
        inside.then(|| y as usize * self.width as usize + x as usize)
    }

    /// The view of the picture averaged down to a long side of at most `max_side` pixels: it sees the same rays.
    #[must_use]
    pub fn scaled(&self, max_side: Option<u32>) -> Self {
        let long = self.width.max(self.height);
        let k = max_side.map_or(1.0, |side| (f64::from(side) / f64::from(long)).min(1.0));
        let scaled = |v: u32| ((f64::from(v) * k).round_ties_even() as u32).max(1);
        self.resized(scaled(self.width), scaled(self.height))
    }

    /// The view of the picture resized to `width` x `height` pixels: it sees the same rays.
    #[must_use]
    pub(crate) fn resized(&self, width: u32, height: u32) -> Self {
        let (sx, sy) = (f64::from(width) / f64::from(self.width), f64::from(height) / f64::from(self.height));
        Self {
            width,
            height,
            fx: self.fx * sx,
            cx: self.cx * sx,
            fy: self.fy * sy,
            cy: self.cy * sy,
            ..*self
        }
    }
}

fn to_glam(v: &Vector3<f64>) -> DVec3 {
    DVec3::new(v.x, v.y, v.z)
}

fn to_nalgebra(v: DVec3) -> Vector3<f64> {
    Vector3::new(v.x, v.y, v.z)
}

/// A view as it is written: the rotation row by row.
#[derive(Serialize, Deserialize)]
struct Written {
    rotation: [[f64; 3]; 3],
    translation: [f64; 3],
    fx: f64,
    fy: f64,
    cx: f64,
    cy: f64,
    width: u32,
    height: u32,
}

impl From<View> for Written {
    fn from(view: View) -> Self {
        let View { rotation, translation, fx, fy, cx, cy, width, height } = view;
        let (rotation, translation) = (rotation.transpose().to_cols_array_2d(), translation.to_array());
        Self { rotation, translation, fx, fy, cx, cy, width, height }
    }
}

impl From<Written> for View {
    fn from(written: Written) -> Self {
        let Written { rotation, translation, fx, fy, cx, cy, width, height } = written;
        let rotation = DMat3::from_cols_array_2d(&rotation).transpose();
        Self { rotation, translation: translation.into(), fx, fy, cx, cy, width, height }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::camera::CameraModel;

    fn turned() -> (Camera, Pose, View) {
        let params = vec![700.0, 710.0, 330.0, 235.0];
        let camera = Camera { model: CameraModel::Pinhole, width: 640, height: 480, params };
        let position = Vector3::new(3.0, -1.0, -5.0);
        let pose = Pose::look_at(&position, &Vector3::new(0.3, 0.2, 0.1), &-Vector3::y()).unwrap();
        let view = View::new(&camera, &pose);
        (camera, pose, view)
    }

    #[test]
    fn a_view_is_the_camera_at_its_pose() {
        let (camera, pose, view) = turned();
        assert!((view.centre() - pose.centre()).norm() < 1e-12);
        assert!((view.forward() - pose.forward()).norm() < 1e-12 && (view.down() + pose.up()).norm() < 1e-12);
        assert!((view.right().cross(&view.down()) - view.forward()).norm() < 1e-12);
        assert!(view.to_camera(&view.centre()).norm() < 1e-12);
        let point = Vector3::new(0.5, -0.4, 0.3);
        let in_camera = pose.transform(&point);
        assert!((view.to_camera(&point) - in_camera).norm() < 1e-12);
        let (x, y, depth) = view.project(&point).unwrap();
        let expected = camera.project(&in_camera).unwrap();
        assert!((x - expected.x).abs() < 1e-9 && (y - expected.y).abs() < 1e-9);
        assert!((depth - in_camera.z).abs() < 1e-12);
        assert!((view.unproject(x, y, depth) - point).norm() < 1e-12);
        assert_eq!(view.project(&(2.0 * view.centre() - point)), None, "behind the camera");
    }

    #[test]
    fn pixels_are_inside_the_picture() {
        let view = turned().2;
        assert_eq!(view.pixel(0.0, 0.0), Some(0));
        assert_eq!(view.pixel(639.9, 479.9), Some(640 * 480 - 1));
        assert_eq!(view.pixel(2.5, 3.5), Some(3 * 640 + 2));
        for (x, y) in [(-0.1, 5.0), (5.0, -0.1), (640.0, 5.0), (5.0, 480.0), (f64::NAN, 5.0), (5.0, f64::NAN)]
        {
            assert_eq!(view.pixel(x, y), None, "{x} {y}");
        }
    }

    #[test]
    fn a_view_is_written_row_by_row() {
        let view = turned().2;
        let json = serde_json::to_value(view).unwrap();
        let right = view.right();
        assert_eq!(json["rotation"][0], serde_json::json!([right.x, right.y, right.z]));
        assert_eq!(json["translation"][2], view.translation.z);
        assert_eq!(serde_json::from_value::<View>(json).unwrap(), view);
    }
}
