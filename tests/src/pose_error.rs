//! How far estimated camera poses are from known ones, without aligning anything.
//!
//! The error of a pair of images is the larger of the angle between the relative rotations and the angle between the
//! relative translation directions; AUC@t is the area under its recall curve up to t degrees (Jin et al., IJCV 2021),
//! over all pairs of reference images. A missing image counts as an infinite error.

use std::collections::BTreeMap;
use std::path::Path;

use libreconstruct::camera::Pose;
use libreconstruct::{Error, ErrorKind, Result};
use nalgebra::{Matrix3, Vector3};
use rayon::prelude::*;

/// How good a set of poses is.
#[derive(Debug, Clone, PartialEq)]
pub struct PoseError {
    /// Fraction of the reference images that have a pose.
    pub registered: f64,
    /// AUC at 1, 3, 5 and 10 degrees, percent.
    pub auc: [f64; 4],
    /// Median angle between relative rotations over the pairs that have both, degrees.
    pub rotation_median: f64,
}

/// Reads camera-to-world poses by frame number from a `poses.json`.
///
/// # Errors
/// The file cannot be read or is not what this module's `truth` writes.
pub fn read_poses(path: &Path) -> Result<BTreeMap<u64, Pose>> {
    let text = std::fs::read_to_string(path).map_err(|e| Error::io("read", path, e))?;
    let bad = || Error::new(ErrorKind::InvalidFile, format!("{} is not a pose file", path.display()));
    let value: serde_json::Value = serde_json::from_str(&text).map_err(|e| bad().caused_by(e))?;
    let frames = value["frames"].as_array().ok_or_else(bad)?;
    let mut poses = BTreeMap::new();
    for frame in frames {
        let number = frame["file"].as_str().and_then(number_of).ok_or_else(bad)?;
        let rows: [[f64; 4]; 4] =
            serde_json::from_value(frame["c2w"].clone()).map_err(|e| bad().caused_by(e))?;
        let rotation = Matrix3::from_fn(|r, c| rows[r][c]);
        let centre = Vector3::new(rows[0][3], rows[1][3], rows[2][3]);
        poses.insert(number, Pose::from_matrix(&rotation, centre).inverse());
    }
    Ok(poses)
}

/// Writes what [`read_poses`] reads, of frames numbered from 0.
///
/// # Errors
/// A file that cannot be written.
pub fn write_poses(path: &Path, poses: &[Pose]) -> Result<()> {
    let frames: Vec<serde_json::Value> = poses
        .iter()
        .enumerate()
        .map(|(k, pose)| {
            let m = pose.inverse().to_matrix4();
            let rows: Vec<[f64; 4]> = (0..4).map(|r| std::array::from_fn(|c| m[(r, c)])).collect();
            serde_json::json!({ "file": format!("{k:06}"), "c2w": rows })
        })
        .collect();
    std::fs::write(path, serde_json::json!({ "frames": frames }).to_string())
        .map_err(|e| Error::io("write", path, e))
}

/// The number at the end of a picture's name: 12 of `images/IMG_0012.jpg`, and of `000012`.
pub fn number_of(file: &str) -> Option<u64> {
    let stem = Path::new(file).file_stem()?.to_str()?;
    stem.rsplit(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
}

/// Compares the poses of the images numbered `wanted` with the truth.
pub fn compare(truth: &BTreeMap<u64, Pose>, estimate: &BTreeMap<u64, Pose>, wanted: &[u64]) -> PoseError {
    let pairs: Vec<(u64, u64)> =
        wanted.iter().enumerate().flat_map(|(k, a)| wanted[k + 1..].iter().map(move |b| (*a, *b))).collect();
    let relative = |poses: &BTreeMap<u64, Pose>, a: u64, b: u64| -> Option<(Matrix3<f64>, Vector3<f64>)> {
        let (a, b) = (poses.get(&a)?, poses.get(&b)?);
        let rotation = b.rotation_matrix() * a.rotation_matrix().transpose();
        Some((rotation, a.rotation * (b.centre() - a.centre())))
    };
    let measured: Vec<(f64, Option<f64>)> = pairs
        .par_iter()
        .map(|(a, b)| {
            let (Some((r0, t0)), Some((r1, t1))) = (relative(truth, *a, *b), relative(estimate, *a, *b))
            else {
                return (f64::INFINITY, None);
            };
            // From the chord |R - I| = 2 sqrt(2) sin(angle / 2): exact near zero, where arccos is not.
            let chord = (r0 * r1.transpose() - Matrix3::identity()).norm() / (2.0 * 2f64.sqrt());
            let rotation = 2.0 * chord.min(1.0).asin().to_degrees();
            let direction = match (t0.norm() < 1e-9, t1.norm() < 1e-12) {
                (true, _) => 0.0,
                (false, true) => 180.0,
                _ => t0.cross(&t1).norm().atan2(t0.dot(&t1)).to_degrees(),
            };
            (rotation.max(direction), Some(rotation))
        })
        .collect();
    let mut errors: Vec<f64> = measured.iter().map(|m| m.0).collect();
    errors.sort_by(f64::total_cmp);
    let mut rotations: Vec<f64> = measured.iter().filter_map(|m| m.1).collect();
    rotations.sort_by(f64::total_cmp);
    let found = wanted.iter().filter(|n| estimate.contains_key(n)).count();
    PoseError {
        registered: found as f64 / wanted.len().max(1) as f64,
        auc: [1.0, 3.0, 5.0, 10.0].map(|limit| area_under_recall(&errors, limit)),
        rotation_median: rotations.get(rotations.len() / 2).copied().unwrap_or(f64::NAN),
    }
}

/// Units of the truth for one unit of the estimate: the scale of the similarity that brings the estimated camera centres next to
/// the true ones (Umeyama, PAMI 1991), over the images that both have. `None` where that says nothing.
pub fn scale(truth: &BTreeMap<u64, Pose>, estimate: &BTreeMap<u64, Pose>) -> Option<f64> {
    let pairs: Vec<(Vector3<f64>, Vector3<f64>)> =
        truth.iter().filter_map(|(k, t)| Some((t.centre(), estimate.get(k)?.centre()))).collect();
    let count = pairs.len() as f64;
    let (true_mean, mean) = pairs
        .iter()
        .fold((Vector3::zeros(), Vector3::zeros()), |sum, (t, e)| (sum.0 + t / count, sum.1 + e / count));
    let mut correlation = Matrix3::zeros();
    let mut spread = 0.0;
    for (t, e) in &pairs {
        correlation += (t - true_mean) * (e - mean).transpose();
        spread += (e - mean).norm_squared();
    }
    let svd = correlation.svd(true, true);
    let sign = (svd.u? * svd.v_t?).determinant().signum();
    let s = svd.singular_values;
    let scale = (s[0] + s[1] + sign * s[2]) / spread;
    (pairs.len() >= 3 && scale.is_finite() && scale > 0.0).then_some(scale)
}

/// Root mean square distance of the estimated camera centres from the true ones after the best similarity (Umeyama, PAMI
/// 1991), over that of the true ones from their mean. `None` where that says nothing.
pub fn trajectory_error(truth: &BTreeMap<u64, Pose>, estimate: &BTreeMap<u64, Pose>) -> Option<f64> {
    let pairs: Vec<(Vector3<f64>, Vector3<f64>)> =
        truth.iter().filter_map(|(k, t)| Some((t.centre(), estimate.get(k)?.centre()))).collect();
    let count = pairs.len() as f64;
    let (true_mean, mean) = pairs
        .iter()
        .fold((Vector3::zeros(), Vector3::zeros()), |sum, (t, e)| (sum.0 + t / count, sum.1 + e / count));
    let correlation: Matrix3<f64> = pairs.iter().map(|(t, e)| (t - true_mean) * (e - mean).transpose()).sum();
    let svd = correlation.svd(true, true);
    let (u, v) = (svd.u?, svd.v_t?);
    let mirror = Matrix3::from_diagonal(&Vector3::new(1.0, 1.0, (u * v).determinant().signum()));
    let rotation = u * mirror * v;
    let scale = scale(truth, estimate)?;
    let off = |(t, e): &(Vector3<f64>, Vector3<f64>)| t - true_mean - scale * (rotation * (e - mean));
    let squares: f64 = pairs.iter().map(|pair| off(pair).norm_squared()).sum();
    let extent: f64 = pairs.iter().map(|(t, _)| (t - true_mean).norm_squared()).sum();
    Some((squares / extent).sqrt())
}

/// Percent of the area under the recall curve of sorted errors up to `limit`.
fn area_under_recall(errors: &[f64], limit: f64) -> f64 {
    let (mut area, mut last, mut recall) = (0.0, 0.0, 0.0);
    for (k, error) in errors.iter().take_while(|e| **e < limit).enumerate() {
        let next = (k + 1) as f64 / errors.len() as f64;
        area += (error - last) * 0.5 * (recall + next);
        (last, recall) = (*error, next);
    }
    100.0 * (area + (limit - last) * recall) / limit
}

#[cfg(test)]
mod tests {
    use super::*;
    use nalgebra::UnitQuaternion;

    fn ring() -> BTreeMap<u64, Pose> {
        (0..8u64)
            .map(|k| {
                let angle = k as f64 * 0.4;
                let position = Vector3::new(angle.sin(), -0.2, angle.cos());
                (k, Pose::look_at(&position, &Vector3::zeros(), &Vector3::new(0.0, -1.0, 0.0)).unwrap())
            })
            .collect()
    }

    #[test]
    fn pictures_have_the_number_at_the_end_of_their_name() {
        let found =
            ["000012", "images/012.jpg", "100_7100.jpg", "templeSR0001.png", "cover.jpg"].map(number_of);
        assert_eq!(found, [Some(12), Some(12), Some(7100), Some(1), None]);
    }

    #[test]
    fn a_moved_world_is_no_error() {
        let truth = ring();
        let turn = UnitQuaternion::from_euler_angles(0.2, 0.4, -1.0);
        let moved = truth
            .iter()
            .map(|(k, p)| (*k, p.in_moved_world(3.0, &turn, &Vector3::new(1.0, 2.0, 3.0))))
            .collect();
        let error = compare(&truth, &moved, &(0..8).collect::<Vec<_>>());
        assert!(error.auc[0] > 99.999 && error.registered == 1.0, "{error:?}");
        assert!((scale(&truth, &moved).unwrap() * 3.0 - 1.0).abs() < 1e-9);
        assert!(trajectory_error(&truth, &moved).unwrap() < 1e-9);
    }

    #[test]
    fn a_turned_camera_and_a_missing_one_cost_their_pairs() {
        let truth = ring();
        let wanted: Vec<u64> = (0..8).collect();
        let mut turned = truth.clone();
        let half_degree = UnitQuaternion::from_axis_angle(&Vector3::x_axis(), 0.5f64.to_radians());
        if let Some(pose) = turned.get_mut(&3) {
            *pose = Pose::from_centre(half_degree * pose.rotation, &pose.centre());
        }
        // 7 of 28 pairs are off by half a degree: of the area up to 1 degree they lose half of a quarter.
        let error = compare(&truth, &turned, &wanted);
        assert!((error.auc[0] - 87.5).abs() < 2.0, "{error:?}");
        let mut missing = truth.clone();
        missing.remove(&3);
        let error = compare(&truth, &missing, &wanted);
        assert!((error.auc[0] - 75.0).abs() < 1e-9 && (error.registered - 0.875).abs() < 1e-9, "{error:?}");
    }
}
