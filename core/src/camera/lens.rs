//! The general lens: every camera model is one with some of these numbers zero or equal.
//!
//! The innermost code of bundle adjustment runs through here, so all of it is inlined. The order of the operations is
//! part of the result: changing it changes the last bits of poses.

/// Focal lengths and principal point in pixels, radial (k1, k2) and tangential (p1, p2) distortion of the plane z = 1
/// (Brown-Conrady; zero where a model lacks them). A fisheye bends by angles instead, and has k3 and k4 where others have p1
/// and p2.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Lens {
    pub(crate) fx: f64,
    pub(crate) fy: f64,
    pub(crate) cx: f64,
    pub(crate) cy: f64,
    pub(crate) k1: f64,
    pub(crate) k2: f64,
    pub(crate) p1: f64,
    pub(crate) p2: f64,
    pub(crate) fisheye: bool,
}

/// Where a fisheye shows a point of the plane z = 1.
pub(crate) struct Bent {
    /// On that plane.
    pub(crate) point: [f64; 2],
    /// Its derivatives (rows) by the undistorted point.
    pub(crate) derivatives: [[f64; 2]; 2],
    /// Its derivative by k1, k2, k3, k4, over the direction from the axis: the third, fifth, ... powers of the angle.
    pub(crate) powers: [f64; 4],
    /// That direction, of unit length; zero on the axis.
    pub(crate) direction: [f64; 2],
}

/// A fisheye sees nothing on the plane z = 1 that is farther from the axis than this, radians: 89 degrees.
const EDGE: f64 = 1.553;
/// Nearer to the axis than this (on the plane z = 1) derivatives are those on it: what is left out is below rounding.
const ON_AXIS: f64 = 1e-6;

impl Lens {
    /// Whether it bends straight lines.
    pub(super) fn has_distortion(&self) -> bool {
        self.fisheye || self.k1 != 0.0 || self.k2 != 0.0 || self.p1 != 0.0 || self.p2 != 0.0
    }

    /// The radial factor at the squared distance `r2` from the axis.
    #[inline(always)]
    pub(crate) fn radial(&self, r2: f64) -> f64 {
        1.0 + r2 * (self.k1 + r2 * self.k2)
    }

    /// Where a point of the plane z = 1 is seen to be on that plane.
    #[inline(always)]
    pub(crate) fn distort(&self, x: f64, y: f64) -> [f64; 2] {
        if self.fisheye {
            let r = x.hypot(y);
            let scale = if r > ON_AXIS { self.bent_angle(r.atan()).0 / r } else { 1.0 };
            return [scale * x, scale * y];
        }
        let r2 = x * x + y * y;
        let radial = self.radial(r2);
        [
            x * radial + 2.0 * self.p1 * x * y + self.p2 * (r2 + 2.0 * x * x),
            y * radial + 2.0 * self.p2 * x * y + self.p1 * (r2 + 2.0 * y * y),
        ]
    }

    /// How far from the axis a fisheye shows what is seen at this angle from it, and the derivative.
    #[inline(always)]
    fn bent_angle(&self, angle: f64) -> (f64, f64) {
        let t2 = angle * angle;
        let (k3, k4) = (self.p1, self.p2);
        let factor = 1.0 + t2 * (self.k1 + t2 * (self.k2 + t2 * (k3 + t2 * k4)));
        let slope = 1.0 + t2 * (3.0 * self.k1 + t2 * (5.0 * self.k2 + t2 * (7.0 * k3 + t2 * 9.0 * k4)));
        (angle * factor, slope)
    }

    /// [`Lens::distort`] of a fisheye, with its derivatives.
    #[inline(always)]
    pub(crate) fn bend(&self, x: f64, y: f64) -> Bent {
        let r = x.hypot(y);
        if r <= ON_AXIS {
            let derivatives = [[1.0, 0.0], [0.0, 1.0]];
            return Bent { point: [x, y], derivatives, powers: [0.0; 4], direction: [0.0; 2] };
        }
        let angle = r.atan();
        let (bent, by_angle) = self.bent_angle(angle);
        let along = by_angle / (1.0 + r * r); // by r
        let across = bent / r;
        let [u, v] = [x / r, y / r];
        let difference = along - across;
        let (t2, t3) = (angle * angle, angle * angle * angle);
        Bent {
            point: [across * x, across * y],
            derivatives: [
                [across + difference * u * u, difference * u * v],
                [difference * u * v, across + difference * v * v],
            ],
            powers: [t3, t3 * t2, t3 * t2 * t2, t3 * t2 * t2 * t2],
            direction: [u, v],
        }
    }

    /// Derivatives of the distorted point (rows) by the undistorted one. `radial` is the radial factor there, which the
    /// caller has already.
    #[inline(always)]
    pub(crate) fn derivatives(&self, x: f64, y: f64, radial: f64) -> [[f64; 2]; 2] {
        let (x2, y2, xy) = (x * x, y * y, x * y);
        let slope = self.k1 + 2.0 * (x2 + y2) * self.k2; // of the radial factor, by r2
        let cross = 2.0 * xy * slope + 2.0 * self.p1 * x + 2.0 * self.p2 * y;
        [
            [radial + 2.0 * x2 * slope + 2.0 * self.p1 * y + 6.0 * self.p2 * x, cross],
            [cross, radial + 2.0 * y2 * slope + 2.0 * self.p2 * x + 6.0 * self.p1 * y],
        ]
    }

    /// What a point of the plane z = 1 that is seen at this distance from the axis is to be multiplied by, to be where it
    /// would be seen without distortion; `None` where that is not along the radius. Newton's steps are those that
    /// [`super::Camera::undistort`] takes in the plane.
    #[inline(always)]
    pub(super) fn undistorting_scale(&self, distorted: f64) -> Option<f64> {
        if self.fisheye {
            let mut angle = distorted.min(EDGE);
            for _ in 0..20 {
                let (bent, slope) = self.bent_angle(angle);
                if slope == 0.0 {
                    break;
                }
                let step = (bent - distorted) / slope;
                angle = (angle - step).clamp(0.0, EDGE);
                if step * step < 1e-24 {
                    break;
                }
            }
            return Some(if distorted > 0.0 { angle.tan() / distorted } else { 1.0 });
        }
        if self.p1 != 0.0 || self.p2 != 0.0 {
            return None;
        }
        let mut r = distorted;
        for _ in 0..20 {
            let r2 = r * r;
            let radial = self.radial(r2);
            let slope = radial + 2.0 * r2 * (self.k1 + 2.0 * r2 * self.k2);
            if slope == 0.0 {
                break;
            }
            let step = (r * radial - distorted) / slope;
            r -= step;
            if step * step < 1e-24 {
                break;
            }
        }
        Some(if distorted > 0.0 { r / distorted } else { 1.0 })
    }

    /// The pixel of a point of the plane z = 1 that is distorted already.
    #[inline(always)]
    pub(crate) fn pixel(&self, [x, y]: [f64; 2]) -> [f64; 2] {
        [self.fx * x + self.cx, self.fy * y + self.cy]
    }
}
