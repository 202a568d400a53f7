//! The general lens: every camera model is one with some of these numbers zero or equal.
//!
//! The innermost code of bundle adjustment runs through here, so all of it is inlined. The order of the operations is
//! part of the result: changing it changes the last bits of poses.

/// Focal lengths and principal point in pixels, radial (k1, k2) and tangential (p1, p2) distortion of the plane z = 1
/// (Brown-Conrady; zero where a model lacks them).
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
}

impl Lens {
    /// Whether it bends straight lines.
    pub(super) fn has_distortion(&self) -> bool {
        self.k1 != 0.0 || self.k2 != 0.0 || self.p1 != 0.0 || self.p2 != 0.0
    }

    /// The radial factor at the squared distance `r2` from the axis.
    #[inline(always)]
    pub(crate) fn radial(&self, r2: f64) -> f64 {
        1.0 + r2 * (self.k1 + r2 * self.k2)
    }

    /// Where a point of the plane z = 1 is seen to be on that plane.
    #[inline(always)]
    pub(crate) fn distort(&self, x: f64, y: f64) -> [f64; 2] {
        let r2 = x * x + y * y;
        let radial = self.radial(r2);
        [
            x * radial + 2.0 * self.p1 * x * y + self.p2 * (r2 + 2.0 * x * x),
            y * radial + 2.0 * self.p2 * x * y + self.p1 * (r2 + 2.0 * y * y),
        ]
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
