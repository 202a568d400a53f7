//! How far estimated camera poses are from known ones, after they were moved, turned and scaled onto them.

use std::collections::BTreeMap;

use libreconstruct::camera::Pose;
use nalgebra::{Matrix3, Vector3};

/// Errors over the images that both have.
#[derive(Debug, Clone, PartialEq)]
pub struct AlignedErrors {
    /// Root mean square of the angles between the rotations, after the turn that suits all of them best, degrees.
    pub rotation_degrees: f64,
    /// Root mean square of the distances of the centres, after the similarity that suits all of them best (Umeyama,
    /// PAMI 1991), over the radius of the true path: the root mean square distance of its centres from their mean.
    pub position: f64,
    /// By image: the same two.
    pub images: BTreeMap<u64, (f64, f64)>,
}

/// Compares; `None` with fewer than three images in common or where they all have one centre.
pub fn aligned_errors(truth: &BTreeMap<u64, Pose>, estimate: &BTreeMap<u64, Pose>) -> Option<AlignedErrors> {
    let both: Vec<(u64, &Pose, &Pose)> =
        truth.iter().filter_map(|(k, t)| Some((*k, t, estimate.get(k)?))).collect();
    if both.len() < 3 {
        return None;
    }
    let count = both.len() as f64;
    let true_mean = both.iter().map(|b| b.1.centre()).sum::<Vector3<f64>>() / count;
    let own_mean = both.iter().map(|b| b.2.centre()).sum::<Vector3<f64>>() / count;
    let mut correlation = Matrix3::zeros();
    let (mut spread, mut radius) = (0.0, 0.0);
    let mut turns = Matrix3::zeros();
    for (_, t, e) in &both {
        let (u, v) = (t.centre() - true_mean, e.centre() - own_mean);
        correlation += u * v.transpose();
        spread += v.norm_squared();
        radius += u.norm_squared() / count;
        turns += t.rotation_matrix().transpose() * e.rotation_matrix();
    }
    let radius = radius.sqrt();
    if !(radius > 1e-9 && spread > 1e-18) {
        return None;
    }
    let (turn, trace) = nearest_rotation(&correlation)?;
    let scale = trace / spread;
    // Rotations take the world of the estimate to that of the truth: R_e = R_t T.
    let (world, _) = nearest_rotation(&turns)?;
    let images: BTreeMap<u64, (f64, f64)> = both
        .iter()
        .map(|(k, t, e)| {
            let off = scale * (turn * (e.centre() - own_mean)) - (t.centre() - true_mean);
            let between = t.rotation_matrix().transpose() * e.rotation_matrix() * world.transpose();
            // From the chord |R - I| = 2 sqrt(2) sin(angle / 2): exact near zero, where arccos is not.
            let chord = (between - Matrix3::identity()).norm() / 8f64.sqrt();
            let angle = 2.0 * chord.min(1.0).asin().to_degrees();
            (*k, (angle, off.norm() / radius))
        })
        .collect();
    let rms =
        |of: fn(&(f64, f64)) -> f64| (images.values().map(|i| of(i).powi(2)).sum::<f64>() / count).sqrt();
    Some(AlignedErrors { rotation_degrees: rms(|i| i.0), position: rms(|i| i.1), images })
}

/// The rotation next to `m`, and the trace of their product.
fn nearest_rotation(m: &Matrix3<f64>) -> Option<(Matrix3<f64>, f64)> {
    let svd = m.svd(true, true);
    let (u, v) = (svd.u?, svd.v_t?);
    let sign = (u * v).determinant().signum();
    let flip = Matrix3::from_diagonal(&Vector3::new(1.0, 1.0, sign));
    let s = svd.singular_values;
    Some((u * flip * v, s[0] + s[1] + sign * s[2]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use nalgebra::UnitQuaternion;

    fn ring() -> BTreeMap<u64, Pose> {
        (0..8u64)
            .map(|k| {
                let angle = k as f64 * 0.4;
                let position = Vector3::new(2.0 * angle.sin(), -0.2 * angle, 2.0 * angle.cos());
                (k, Pose::look_at(&position, &Vector3::zeros(), &Vector3::new(0.0, -1.0, 0.0)).unwrap())
            })
            .collect()
    }

    #[test]
    fn a_moved_world_is_no_error_and_a_turned_camera_is_one() {
        let truth = ring();
        let turn = UnitQuaternion::from_euler_angles(0.2, 0.4, -1.0);
        let mut moved: BTreeMap<u64, Pose> = truth
            .iter()
            .map(|(k, p)| (*k, p.in_moved_world(3.0, &turn, &Vector3::new(1.0, 2.0, 3.0))))
            .collect();
        let none = aligned_errors(&truth, &moved).unwrap();
        assert!(none.rotation_degrees < 1e-5 && none.position < 1e-9, "{none:?}");
        let degrees = UnitQuaternion::from_axis_angle(&Vector3::x_axis(), 8f64.to_radians());
        if let Some(pose) = moved.get_mut(&3) {
            *pose = Pose::from_centre(degrees * pose.rotation, &pose.centre());
        }
        // One of eight is off by 7 degrees once the turn of all took 1 of it.
        let error = aligned_errors(&truth, &moved).unwrap();
        assert!((error.rotation_degrees - 7f64.sqrt()).abs() < 0.05 && error.position < 1e-9, "{error:?}");
        assert!(error.images[&3].0 > 6.9);
    }

    #[test]
    fn a_camera_that_stood_has_no_path_to_compare_with() {
        let truth = ring();
        let still = truth.iter().map(|(k, p)| (*k, Pose::from_centre(p.rotation, &Vector3::x()))).collect();
        assert_eq!(aligned_errors(&still, &truth), None);
    }
}
