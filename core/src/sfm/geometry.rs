//! Small geometry that several parts use.

use nalgebra::{Matrix3, Vector3};

/// Angle between two vectors in radians, exact also near 0 and pi. 0 if one of them is zero.
pub(crate) fn angle_between(a: &Vector3<f64>, b: &Vector3<f64>) -> f64 {
    a.cross(b).norm().atan2(a.dot(b))
}

/// `[v]ₓ`: the matrix with `[v]ₓ w = v × w`.
pub(crate) fn skew(v: &Vector3<f64>) -> Matrix3<f64> {
    Matrix3::new(0.0, -v.z, v.y, v.z, 0.0, -v.x, -v.y, v.x, 0.0)
}

/// The larger of the angles of two rays to each other's epipolar plane, as sines.
pub(crate) fn epipolar_angle(a: &Vector3<f64>, b: &Vector3<f64>, baseline: &Vector3<f64>) -> f64 {
    let triple = a.cross(b).dot(baseline).abs();
    // |triple| / |baseline x b| is the distance of the unit vector a from the plane of baseline and b.
    let smaller = baseline.cross(a).norm().min(baseline.cross(b).norm());
    if smaller <= 0.0 { 0.0 } else { triple / smaller }
}
