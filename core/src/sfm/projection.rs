//! The reprojection residual and its derivatives, the innermost code of bundle adjustment.

use nalgebra::{Matrix3, Vector3};

use crate::camera::{Bent, Camera, CameraModel, Lens, Pose};

use super::other_cameras::OtherCameras;
use super::schur::BORDER;

/// A pose as the kernels want it: rotation (row-major) and centre. `x_cam = R (x - c)`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Extrinsics {
    pub(crate) rotation: [[f64; 3]; 3],
    pub(crate) centre: [f64; 3],
}

impl Extrinsics {
    pub(crate) fn from_pose(pose: &Pose) -> Self {
        let r = pose.rotation_matrix();
        Self {
            rotation: std::array::from_fn(|i| std::array::from_fn(|j| r[(i, j)])),
            centre: pose.centre().into(),
        }
    }

    #[inline(always)]
    fn transform(&self, x: &[f64; 3]) -> [f64; 3] {
        let d = [x[0] - self.centre[0], x[1] - self.centre[1], x[2] - self.centre[2]];
        let [x, y, z] = &self.rotation;
        let along = |r: &[f64; 3]| r[0] * d[0] + r[1] * d[1] + r[2] * d[2];
        [along(x), along(y), along(z)]
    }
}

/// Residual of an observation (seen minus measured, pixels) and its derivatives.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Linearised {
    /// Residual x, y.
    pub(crate) residual: [f64; 2],
    /// By a rotation of the camera: `R <- exp(w) R`.
    pub(crate) by_rotation: [[f64; 3]; 2],
    /// By the point; minus this by the camera's centre.
    pub(crate) by_point: [[f64; 3]; 2],
    /// By the camera's parameters, in the model's order; zero beyond.
    pub(crate) by_intrinsics: [[f64; BORDER]; 2],
}

impl Linearised {
    /// Adds what this observation says of its point to the normal equations `h x = g`.
    pub(crate) fn add_to_point(&self, loss: Loss, h: &mut Matrix3<f64>, g: &mut Vector3<f64>) {
        let weight = loss.at(self.residual[0].powi(2) + self.residual[1].powi(2)).1;
        for r in 0..2 {
            let j = Vector3::from(self.by_point[r]);
            *h += weight * j * j.transpose();
            *g += weight * self.residual[r] * j;
        }
    }
}

/// The camera of an adjustment, for fast projection.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Projector {
    model: CameraModel,
    lens: Lens,
}

/// Points nearer than this to the camera plane (in units of the world) count as behind it.
const NEAR: f64 = 1e-9;

impl Projector {
    pub(crate) fn new(camera: &Camera) -> Self {
        Self { model: camera.model, lens: camera.lens() }
    }

    /// Residual alone; `None` behind the camera.
    #[inline(always)]
    pub(crate) fn residual(&self, pose: &Extrinsics, point: &[f64; 3], pixel: &[f64; 2]) -> Option<[f64; 2]> {
        let c = pose.transform(point);
        if c[2] < NEAR {
            return None;
        }
        let [u, v] = self.lens.pixel(self.lens.distort(c[0] / c[2], c[1] / c[2]));
        Some([u - pixel[0], v - pixel[1]])
    }

    /// Residual and derivatives; `None` behind the camera.
    #[inline(always)]
    pub(crate) fn linearise(
        &self,
        pose: &Extrinsics,
        point: &[f64; 3],
        pixel: &[f64; 2],
    ) -> Option<Linearised> {
        let c = pose.transform(point);
        if c[2] < NEAR {
            return None;
        }
        let iz = 1.0 / c[2];
        let (x, y) = (c[0] * iz, c[1] * iz);
        if self.lens.fisheye {
            let bent = self.lens.bend(x, y);
            let by_intrinsics = self.by_fisheye_intrinsics(&bent);
            return Some(self.chain(pose, &c, (x, y), bent.point, bent.derivatives, by_intrinsics, pixel));
        }
        let (x2, y2, xy) = (x * x, y * y, x * y);
        let r2 = x2 + y2;
        let r4 = r2 * r2;
        // Not `Lens::radial` and `Lens::distort`: here the products are wanted for the derivatives too, and the last
        // bits of every adjustment depend on the order of the operations.
        let Lens { fx, fy, k1, k2, p1, p2, .. } = self.lens;
        let radial = 1.0 + r2 * k1 + r4 * k2;
        let xd = x * radial + 2.0 * p1 * xy + p2 * (r2 + 2.0 * x2);
        let yd = y * radial + 2.0 * p2 * xy + p1 * (r2 + 2.0 * y2);
        let derivatives = self.lens.derivatives(x, y, radial);
        let mut by_intrinsics = [[0.0; BORDER]; 2];
        let [u, v] = &mut by_intrinsics;
        match self.model {
            CameraModel::SimplePinhole => {
                u[..2].copy_from_slice(&[xd, 1.0]);
                v[..3].copy_from_slice(&[yd, 0.0, 1.0]);
            }
            CameraModel::Pinhole => {
                u[..3].copy_from_slice(&[xd, 0.0, 1.0]);
                v[..4].copy_from_slice(&[0.0, yd, 0.0, 1.0]);
            }
            CameraModel::SimpleRadial => {
                u[..4].copy_from_slice(&[xd, 1.0, 0.0, fx * x * r2]);
                v[..4].copy_from_slice(&[yd, 0.0, 1.0, fy * y * r2]);
            }
            CameraModel::Radial => {
                u[..5].copy_from_slice(&[xd, 1.0, 0.0, fx * x * r2, fx * x * r4]);
                v[..5].copy_from_slice(&[yd, 0.0, 1.0, fy * y * r2, fy * y * r4]);
            }
            CameraModel::OpenCv => {
                *u = [xd, 0.0, 1.0, 0.0, fx * x * r2, fx * x * r4, fx * 2.0 * xy, fx * (r2 + 2.0 * x2)];
                *v = [0.0, yd, 0.0, 1.0, fy * y * r2, fy * y * r4, fy * (r2 + 2.0 * y2), fy * 2.0 * xy];
            }
            // Handled above.
            CameraModel::SimpleRadialFisheye | CameraModel::RadialFisheye | CameraModel::OpenCvFisheye => {}
        }
        Some(self.chain(pose, &c, (x, y), [xd, yd], derivatives, by_intrinsics, pixel))
    }

    /// Residual and derivatives of a point at `c` in camera coordinates, at (x, y) of the plane z = 1, which is seen at
    /// `distorted` of it.
    #[inline(always)]
    #[allow(clippy::too_many_arguments)] // one formula in two halves
    fn chain(
        &self,
        pose: &Extrinsics,
        c: &[f64; 3],
        (x, y): (f64, f64),
        distorted: [f64; 2],
        [[xx, cross], [_, yy]]: [[f64; 2]; 2],
        by_intrinsics: [[f64; BORDER]; 2],
        pixel: &[f64; 2],
    ) -> Linearised {
        let Lens { fx, fy, .. } = self.lens;
        let iz = 1.0 / c[2];
        // Pixel by the undistorted point of the plane z = 1, then by the point in camera coordinates.
        let by_plane = [[fx * xx, fx * cross], [fy * cross, fy * yy]];
        // Loops, since of closures the compiler makes functions here that it does not put in place.
        let r = &pose.rotation;
        let (mut by_rotation, mut by_point) = ([[0.0; 3]; 2], [[0.0; 3]; 2]);
        for i in 0..2 {
            let g = &by_plane[i];
            let g = [g[0] * iz, g[1] * iz, -(g[0] * x + g[1] * y) * iz];
            by_rotation[i] =
                [g[2] * c[1] - g[1] * c[2], g[0] * c[2] - g[2] * c[0], g[1] * c[0] - g[0] * c[1]];
            for j in 0..3 {
                by_point[i][j] = g[0] * r[0][j] + g[1] * r[1][j] + g[2] * r[2][j];
            }
        }
        let [u, v] = self.lens.pixel(distorted);
        let residual = [u - pixel[0], v - pixel[1]];
        Linearised { residual, by_rotation, by_point, by_intrinsics }
    }

    /// Derivatives of the pixel by the parameters of a fisheye.
    #[inline(always)]
    fn by_fisheye_intrinsics(&self, bent: &Bent) -> [[f64; BORDER]; 2] {
        let Lens { fx, fy, .. } = self.lens;
        let ([xd, yd], [x, y], t) = (bent.point, bent.direction, &bent.powers);
        let mut by_intrinsics = [[0.0; BORDER]; 2];
        let [u, v] = &mut by_intrinsics;
        match self.model {
            CameraModel::SimpleRadialFisheye => {
                u[..4].copy_from_slice(&[xd, 1.0, 0.0, fx * x * t[0]]);
                v[..4].copy_from_slice(&[yd, 0.0, 1.0, fy * y * t[0]]);
            }
            CameraModel::OpenCvFisheye => {
                *u = [xd, 0.0, 1.0, 0.0, fx * x * t[0], fx * x * t[1], fx * x * t[2], fx * x * t[3]];
                *v = [0.0, yd, 0.0, 1.0, fy * y * t[0], fy * y * t[1], fy * y * t[2], fy * y * t[3]];
            }
            // RADIAL_FISHEYE; no other is a fisheye.
            _ => {
                u[..5].copy_from_slice(&[xd, 1.0, 0.0, fx * x * t[0], fx * x * t[1]]);
                v[..5].copy_from_slice(&[yd, 0.0, 1.0, fy * y * t[0], fy * y * t[1]]);
            }
        }
        by_intrinsics
    }
}

/// The cameras of all images, for fast projection.
#[derive(Debug, Clone)]
pub(crate) struct Projectors {
    /// By camera; there is always one.
    of_camera: Vec<Projector>,
    others: OtherCameras,
}

impl Projectors {
    /// `camera` made most images, and `others` the rest.
    pub(crate) fn new(camera: &Camera, others: &OtherCameras) -> Self {
        let of_camera = std::iter::once(camera).chain(&others.cameras).map(Projector::new).collect();
        Self { of_camera, others: others.clone() }
    }

    /// That of an image.
    #[inline(always)]
    pub(crate) fn of(&self, image: usize) -> &Projector {
        // `OtherCameras` names none that it does not have.
        &self.of_camera[self.others.index(image)]
    }
}

/// How much a large residual counts.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Loss {
    /// Squared up to the scale, linear beyond.
    Huber(f64),
    /// `s^2 ln(1 + r^2 / s^2)`: large residuals hardly count.
    Cauchy(f64),
}

impl Loss {
    /// The loss of a squared residual and its derivative (the weight of the observation).
    #[inline(always)]
    pub(crate) fn at(self, squared: f64) -> (f64, f64) {
        match self {
            Loss::Huber(s) if squared <= s * s => (squared, 1.0),
            Loss::Huber(s) => {
                let r = squared.sqrt();
                (2.0 * s * r - s * s, s / r)
            }
            Loss::Cauchy(s) => {
                let t = squared / (s * s);
                (s * s * t.ln_1p(), 1.0 / (1.0 + t))
            }
        }
    }
}

/// Adds up losses: of Cauchy's the logarithm is taken of whole products, which costs less than one for each.
pub(crate) struct LossSum {
    loss: Loss,
    sum: f64,
    product: f64,
}

/// Factors and products beyond this would leave the range of numbers if multiplied.
const LARGE_PRODUCT: f64 = 1e150;

impl LossSum {
    pub(crate) fn new(loss: Loss) -> Self {
        Self { loss, sum: 0.0, product: 1.0 }
    }

    /// Adds the loss of a squared residual.
    #[inline(always)]
    pub(crate) fn add(&mut self, squared: f64) {
        match self.loss {
            Loss::Huber(_) => self.sum += self.loss.at(squared).0,
            Loss::Cauchy(s) => {
                let factor = 1.0 + squared / (s * s);
                if factor > LARGE_PRODUCT || self.product > LARGE_PRODUCT {
                    self.sum += self.product.ln();
                    self.product = 1.0;
                }
                self.product *= factor;
            }
        }
    }

    pub(crate) fn total(self) -> f64 {
        match self.loss {
            Loss::Huber(_) => self.sum,
            Loss::Cauchy(s) => s * s * (self.sum + self.product.ln()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nalgebra::{UnitQuaternion, Vector3};

    #[test]
    fn derivatives_agree_with_central_differences() {
        let cameras = [
            (CameraModel::SimplePinhole, vec![500.0, 320.0, 240.0]),
            (CameraModel::Pinhole, vec![500.0, 510.0, 321.0, 239.0]),
            (CameraModel::SimpleRadial, vec![500.0, 320.0, 240.0, -0.1]),
            (CameraModel::Radial, vec![500.0, 320.0, 240.0, -0.1, 0.02]),
            (CameraModel::OpenCv, vec![500.0, 510.0, 320.0, 240.0, -0.1, 0.02, 0.001, -0.002]),
            (CameraModel::SimpleRadialFisheye, vec![500.0, 320.0, 240.0, -0.1]),
            (CameraModel::RadialFisheye, vec![500.0, 320.0, 240.0, -0.1, 0.02]),
            (CameraModel::OpenCvFisheye, vec![500.0, 510.0, 320.0, 240.0, -0.1, 0.02, 0.001, -0.002]),
        ];
        let pose = Pose {
            rotation: UnitQuaternion::from_euler_angles(0.3, -0.2, 0.5),
            translation: Vector3::new(0.1, -0.3, 4.0),
        };
        let point = [0.7, -0.4, 0.6];
        let pixel = [300.0, 200.0];
        let h = 1e-6;
        for (model, params) in cameras {
            let camera = Camera { model, width: 640, height: 480, params };
            let at = |camera: &Camera, pose: &Pose, point: &[f64; 3]| {
                Projector::new(camera).residual(&Extrinsics::from_pose(pose), point, &pixel).unwrap()
            };
            let here =
                Projector::new(&camera).linearise(&Extrinsics::from_pose(&pose), &point, &pixel).unwrap();
            let check = |analytic: f64, up: f64, down: f64, what: &str| {
                let numeric = (up - down) / (2.0 * h);
                assert!(
                    (analytic - numeric).abs() < 1e-5 * numeric.abs().max(1.0),
                    "{model:?} {what}: {analytic} instead of {numeric}"
                );
            };
            assert_eq!(here.residual, at(&camera, &pose, &point));
            for k in 0..3 {
                let mut e = Vector3::zeros();
                e[k] = h;
                let turned = |s: f64| {
                    let rotation = UnitQuaternion::from_scaled_axis(s * e) * pose.rotation;
                    at(&camera, &Pose::from_centre(rotation, &pose.centre()), &point)
                };
                let moved =
                    |s: f64| at(&camera, &Pose::from_centre(pose.rotation, &(pose.centre() + s * e)), &point);
                let shifted = |s: f64| {
                    let mut p = point;
                    p[k] += s * h;
                    at(&camera, &pose, &p)
                };
                for i in 0..2 {
                    check(here.by_rotation[i][k], turned(1.0)[i], turned(-1.0)[i], "rotation");
                    check(here.by_point[i][k], shifted(1.0)[i], shifted(-1.0)[i], "point");
                    check(-here.by_point[i][k], moved(1.0)[i], moved(-1.0)[i], "centre");
                }
            }
            for k in 0..BORDER {
                let changed = |s: f64| {
                    let mut other = camera.clone();
                    if let Some(p) = other.params.get_mut(k) {
                        *p += s * h;
                    }
                    at(&other, &pose, &point)
                };
                for i in 0..2 {
                    check(here.by_intrinsics[i][k], changed(1.0)[i], changed(-1.0)[i], "intrinsics");
                }
            }
        }
    }

    #[test]
    fn a_sum_of_losses_is_the_sum_of_them() {
        let residuals: Vec<f64> =
            (0..400).map(|k| 1e-3 * f64::from(k * k)).chain([1e3, 1e160, 0.0]).collect();
        for loss in [Loss::Huber(1.5), Loss::Cauchy(0.1)] {
            let mut sum = LossSum::new(loss);
            residuals.iter().for_each(|&squared| sum.add(squared));
            let expected: f64 = residuals.iter().map(|&squared| loss.at(squared).0).sum();
            let total = sum.total();
            assert!((total / expected - 1.0).abs() < 1e-12, "{loss:?}: {total}, not {expected}");
        }
    }

    #[test]
    fn the_weight_is_the_derivative_of_the_loss() {
        for loss in [Loss::Huber(1.5), Loss::Cauchy(0.7)] {
            for s in [0.01, 1.0, 2.0, 5.0, 100.0] {
                let h = 1e-6 * s;
                let numeric = (loss.at(s + h).0 - loss.at(s - h).0) / (2.0 * h);
                assert!((loss.at(s).1 - numeric).abs() < 1e-7, "{loss:?} at {s}");
            }
        }
    }
}
