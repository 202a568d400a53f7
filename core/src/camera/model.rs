//! Camera models: how a direction becomes a pixel, named and parametrised as in COLMAP.

use nalgebra::{Matrix2, Vector2, Vector3};
use serde::{Deserialize, Serialize};

use super::lens::{Bent, Lens};

/// The parametrisation of the lens. The number of parameters and their order are COLMAP's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum CameraModel {
    /// f, cx, cy
    SimplePinhole,
    /// fx, fy, cx, cy
    Pinhole,
    /// f, cx, cy, k: `x_d = x (1 + k r^2)`
    SimpleRadial,
    /// f, cx, cy, k1, k2: `x_d = x (1 + k1 r^2 + k2 r^4)`
    Radial,
    /// fx, fy, cx, cy, k1, k2, p1, p2: radial and tangential (Brown-Conrady)
    #[serde(rename = "OPENCV")]
    OpenCv,
    /// f, cx, cy, k: a fisheye. What is seen at the angle t from the axis lies `t (1 + k t^2)` from it
    SimpleRadialFisheye,
    /// f, cx, cy, k1, k2: a fisheye with `t (1 + k1 t^2 + k2 t^4)`
    RadialFisheye,
    /// fx, fy, cx, cy, k1, k2, k3, k4: a fisheye with `t (1 + k1 t^2 + k2 t^4 + k3 t^6 + k4 t^8)` (Kannala & Brandt, "A generic
    /// camera model and calibration method", PAMI 2006)
    #[serde(rename = "OPENCV_FISHEYE")]
    OpenCvFisheye,
}

impl CameraModel {
    /// All of them.
    pub const ALL: [Self; 8] = [
        Self::SimplePinhole,
        Self::Pinhole,
        Self::SimpleRadial,
        Self::Radial,
        Self::OpenCv,
        Self::SimpleRadialFisheye,
        Self::RadialFisheye,
        Self::OpenCvFisheye,
    ];

    /// COLMAP's number of the model in `.bin` files.
    pub fn id(self) -> i32 {
        match self {
            CameraModel::SimplePinhole => 0,
            CameraModel::Pinhole => 1,
            CameraModel::SimpleRadial => 2,
            CameraModel::Radial => 3,
            CameraModel::OpenCv => 4,
            CameraModel::OpenCvFisheye => 5,
            CameraModel::SimpleRadialFisheye => 8,
            CameraModel::RadialFisheye => 9,
        }
    }

    /// The model with COLMAP's number `id`, if it is one of ours.
    pub fn from_id(id: i32) -> Option<Self> {
        Self::ALL.into_iter().find(|m| m.id() == id)
    }

    /// COLMAP's name of the model, for example `SIMPLE_RADIAL`.
    pub fn name(self) -> &'static str {
        match self {
            CameraModel::SimplePinhole => "SIMPLE_PINHOLE",
            CameraModel::Pinhole => "PINHOLE",
            CameraModel::SimpleRadial => "SIMPLE_RADIAL",
            CameraModel::Radial => "RADIAL",
            CameraModel::OpenCv => "OPENCV",
            CameraModel::SimpleRadialFisheye => "SIMPLE_RADIAL_FISHEYE",
            CameraModel::RadialFisheye => "RADIAL_FISHEYE",
            CameraModel::OpenCvFisheye => "OPENCV_FISHEYE",
        }
    }

    /// The model with COLMAP's name `name`, if it is one of ours.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|m| m.name() == name)
    }

    /// Number of parameters.
    pub fn num_params(self) -> usize {
        match self {
            CameraModel::SimplePinhole => 3,
            CameraModel::Pinhole | CameraModel::SimpleRadial | CameraModel::SimpleRadialFisheye => 4,
            CameraModel::Radial | CameraModel::RadialFisheye => 5,
            CameraModel::OpenCv | CameraModel::OpenCvFisheye => 8,
        }
    }

    /// Whether pixels are where angles from the axis say, rather than their tangents.
    pub fn is_fisheye(self) -> bool {
        matches!(
            self,
            CameraModel::SimpleRadialFisheye | CameraModel::RadialFisheye | CameraModel::OpenCvFisheye
        )
    }
}

/// Intrinsics of one camera. Pixels: the centre of the top-left pixel is (0.5, 0.5).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Camera {
    /// The lens model.
    pub model: CameraModel,
    /// Image width in pixels.
    pub width: u32,
    /// Image height in pixels.
    pub height: u32,
    /// Parameters in the model's order ([`CameraModel`]); lengths in pixels.
    pub params: Vec<f64>,
}

impl Camera {
    /// A camera with the given focal length in pixels, the principal point in the middle and no distortion.
    pub fn from_focal(model: CameraModel, focal: f64, width: u32, height: u32) -> Self {
        let (cx, cy) = (f64::from(width) / 2.0, f64::from(height) / 2.0);
        let params = match model {
            CameraModel::SimplePinhole => vec![focal, cx, cy],
            CameraModel::Pinhole => vec![focal, focal, cx, cy],
            CameraModel::SimpleRadial | CameraModel::SimpleRadialFisheye => vec![focal, cx, cy, 0.0],
            CameraModel::Radial | CameraModel::RadialFisheye => vec![focal, cx, cy, 0.0, 0.0],
            CameraModel::OpenCv | CameraModel::OpenCvFisheye => {
                vec![focal, focal, cx, cy, 0.0, 0.0, 0.0, 0.0]
            }
        };
        Self { model, width, height, params }
    }

    /// The general lens of which this one is a case.
    pub(crate) fn lens(&self) -> Lens {
        // `params` has the model's length: every constructor and the file readers see to it, so the indices are safe.
        let p = &self.params;
        let zero = Lens {
            fx: p[0],
            fy: p[0],
            cx: p[1],
            cy: p[2],
            k1: 0.0,
            k2: 0.0,
            p1: 0.0,
            p2: 0.0,
            fisheye: self.model.is_fisheye(),
        };
        match self.model {
            CameraModel::SimplePinhole => zero,
            CameraModel::Pinhole => Lens { fy: p[1], cx: p[2], cy: p[3], ..zero },
            CameraModel::SimpleRadial | CameraModel::SimpleRadialFisheye => Lens { k1: p[3], ..zero },
            CameraModel::Radial | CameraModel::RadialFisheye => Lens { k1: p[3], k2: p[4], ..zero },
            // The last two of a fisheye are k3 and k4, which stand where others have the tangential part.
            CameraModel::OpenCv | CameraModel::OpenCvFisheye => {
                Lens { fy: p[1], cx: p[2], cy: p[3], k1: p[4], k2: p[5], p1: p[6], p2: p[7], ..zero }
            }
        }
    }

    /// Focal lengths fx, fy in pixels.
    pub fn focal(&self) -> (f64, f64) {
        let l = self.lens();
        (l.fx, l.fy)
    }

    /// Mean of fx and fy in pixels.
    pub fn mean_focal(&self) -> f64 {
        let l = self.lens();
        0.5 * (l.fx + l.fy)
    }

    /// Principal point in pixels.
    pub fn principal_point(&self) -> Vector2<f64> {
        let l = self.lens();
        Vector2::new(l.cx, l.cy)
    }

    /// Whether the model bends straight lines.
    pub fn has_distortion(&self) -> bool {
        self.lens().has_distortion()
    }

    /// Distorts a point of the plane z = 1; also the Jacobian of the distorted by the undistorted point.
    pub fn distort(&self, u: &Vector2<f64>) -> (Vector2<f64>, Matrix2<f64>) {
        let l = self.lens();
        let (x, y) = (u.x, u.y);
        if l.fisheye {
            let Bent { point, derivatives: [[xx, xy], [yx, yy]], .. } = l.bend(x, y);
            return (point.into(), Matrix2::new(xx, xy, yx, yy));
        }
        let [[xx, xy], [yx, yy]] = l.derivatives(x, y, l.radial(x * x + y * y));
        (l.distort(x, y).into(), Matrix2::new(xx, xy, yx, yy))
    }

    /// Removes the distortion of a point of the plane z = 1 (Newton). Far outside the lens's valid range, where no
    /// inverse exists, the nearest iterate is returned.
    pub fn undistort(&self, distorted: &Vector2<f64>) -> Vector2<f64> {
        let lens = self.lens();
        if !lens.has_distortion() {
            return *distorted;
        }
        if let Some(scale) = lens.undistorting_scale(distorted.norm()) {
            return scale * distorted;
        }
        let mut u = *distorted;
        for _ in 0..20 {
            let (value, jacobian) = self.distort(&u);
            let error = value - distorted;
            let Some(inverse) = jacobian.try_inverse() else { break };
            let step = inverse * error;
            u -= step;
            if step.norm_squared() < 1e-24 {
                break;
            }
        }
        u
    }

    /// The pixel at which a point in camera coordinates is seen; `None` behind or on the camera plane.
    pub fn project(&self, camera_point: &Vector3<f64>) -> Option<Vector2<f64>> {
        if camera_point.z <= f64::EPSILON {
            return None;
        }
        let l = self.lens();
        let u = camera_point.xy() / camera_point.z;
        Some(l.pixel(l.distort(u.x, u.y)).into())
    }

    /// The point of the plane z = 1 (undistorted, camera coordinates) that is seen at `pixel`.
    pub fn unproject(&self, pixel: &Vector2<f64>) -> Vector2<f64> {
        let l = self.lens();
        self.undistort(&Vector2::new((pixel.x - l.cx) / l.fx, (pixel.y - l.cy) / l.fy))
    }

    /// The unit view ray (camera coordinates) of `pixel`.
    pub fn ray(&self, pixel: &Vector2<f64>) -> Vector3<f64> {
        let u = self.unproject(pixel);
        Vector3::new(u.x, u.y, 1.0).normalize()
    }

    /// The same camera for a picture scaled to `width` x `height` pixels. Exact with pixel centres at the half.
    #[must_use]
    pub fn scaled_to(&self, width: u32, height: u32) -> Self {
        let (sx, sy) = (f64::from(width) / f64::from(self.width), f64::from(height) / f64::from(self.height));
        let mut params = self.params.clone();
        match self.model {
            CameraModel::SimplePinhole
            | CameraModel::SimpleRadial
            | CameraModel::Radial
            | CameraModel::SimpleRadialFisheye
            | CameraModel::RadialFisheye => {
                params[0] *= 0.5 * (sx + sy);
                params[1] *= sx;
                params[2] *= sy;
            }
            CameraModel::Pinhole | CameraModel::OpenCv | CameraModel::OpenCvFisheye => {
                params[0] *= sx;
                params[1] *= sy;
                params[2] *= sx;
                params[3] *= sy;
            }
        }
        Self { model: self.model, width, height, params }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cameras() -> Vec<Camera> {
        let make = |model, params: &[f64]| Camera { model, width: 640, height: 480, params: params.to_vec() };
        vec![
            make(CameraModel::SimplePinhole, &[500.0, 320.0, 240.0]),
            make(CameraModel::Pinhole, &[500.0, 510.0, 321.0, 239.0]),
            make(CameraModel::SimpleRadial, &[500.0, 320.0, 240.0, -0.1]),
            make(CameraModel::Radial, &[500.0, 320.0, 240.0, -0.1, 0.02]),
            make(CameraModel::OpenCv, &[500.0, 510.0, 320.0, 240.0, -0.1, 0.02, 0.001, -0.002]),
            make(CameraModel::SimpleRadialFisheye, &[300.0, 320.0, 240.0, -0.03]),
            make(CameraModel::RadialFisheye, &[300.0, 320.0, 240.0, 0.05, -0.02]),
            make(CameraModel::OpenCvFisheye, &[300.0, 305.0, 321.0, 239.0, 0.05, -0.02, 0.01, -0.003]),
        ]
    }

    #[test]
    fn a_fisheye_without_coefficients_shows_angles() {
        let camera = Camera::from_focal(CameraModel::RadialFisheye, 300.0, 640, 480);
        for degrees in [0.0f64, 0.01, 10.0, 45.0, 80.0] {
            let angle = degrees.to_radians();
            let pixel = camera.project(&Vector3::new(angle.sin(), 0.0, angle.cos())).unwrap();
            assert!((pixel - Vector2::new(320.0 + 300.0 * angle, 240.0)).norm() < 1e-9, "{degrees}: {pixel}");
            assert!((camera.ray(&pixel).x - angle.sin()).abs() < 1e-9, "{degrees}");
        }
        // Beyond the half-space ahead of it there is nothing on the plane z = 1: the ray ends at its edge.
        let edge = camera.ray(&Vector2::new(320.0 + 300.0 * 1.7, 240.0));
        assert!(edge.iter().all(|v| v.is_finite()) && edge.x > 0.999, "{edge}");
    }

    #[test]
    fn every_model_is_known_by_its_name_and_number() {
        for model in CameraModel::ALL {
            assert_eq!(
                (CameraModel::from_name(model.name()), CameraModel::from_id(model.id())),
                (Some(model), Some(model))
            );
            assert_eq!(Camera::from_focal(model, 1.0, 2, 2).params.len(), model.num_params());
            assert_eq!(serde_json::to_value(model).unwrap(), model.name());
        }
    }

    #[test]
    fn a_radial_lens_is_undone_along_the_radius_as_in_the_plane() {
        let params = vec![500.0, 320.0, 240.0, -0.15, 0.04];
        let radial = Camera { model: CameraModel::Radial, width: 640, height: 480, params };
        // The same lens but for a tangential part that is next to nothing.
        let params = vec![500.0, 500.0, 320.0, 240.0, -0.15, 0.04, 1e-18, 0.0];
        let general = Camera { model: CameraModel::OpenCv, params, ..radial.clone() };
        for seen in [[0.0, 0.0], [0.3, -0.2], [-0.64, 0.48], [0.0, 0.7]].map(Vector2::from) {
            let (along, plane) = (radial.undistort(&seen), general.undistort(&seen));
            assert!((along - plane).norm() < 1e-14, "{along} {plane}");
        }
    }

    #[test]
    fn projection_and_its_inverse_are_inverse() {
        for camera in cameras() {
            for (x, y) in [(10.0, 10.0), (320.0, 240.0), (600.0, 100.0), (50.0, 470.0)] {
                let pixel = Vector2::new(x, y);
                let back = camera.project(&camera.ray(&pixel)).unwrap();
                assert!((back - pixel).norm() < 1e-8, "{:?}: {back:?} instead of {pixel:?}", camera.model);
            }
        }
    }

    #[test]
    fn distortion_jacobian_agrees_with_central_differences() {
        let h = 1e-6;
        for camera in cameras() {
            let u = Vector2::new(0.31, -0.22);
            let (_, jacobian) = camera.distort(&u);
            for k in 0..2 {
                let mut e = Vector2::zeros();
                e[k] = h;
                let numeric = (camera.distort(&(u + e)).0 - camera.distort(&(u - e)).0) / (2.0 * h);
                assert!((jacobian.column(k) - numeric).norm() < 1e-8, "{:?}", camera.model);
            }
        }
    }

    #[test]
    fn scaling_a_picture_scales_its_pixels() {
        for camera in cameras() {
            let half = camera.scaled_to(320, 240);
            let point = Vector3::new(0.2, -0.1, 1.5);
            let (a, b) = (camera.project(&point).unwrap(), half.project(&point).unwrap());
            assert!((a * 0.5 - b).norm() < 1e-9);
        }
    }
}
