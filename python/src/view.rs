//! Cameras as they come from Python.

use libreconstruct::camera::{Camera, CameraModel, Pose};
use libreconstruct::raster::View;
use libreconstruct::{Error, Result};
use nalgebra::{Matrix3, Quaternion, UnitQuaternion, Vector3};
use pyo3::prelude::*;

use crate::error::raise;

/// World-to-camera as rows of four, then width, height, fx, fy, cx, cy.
pub(crate) type ViewTuple = ([[f64; 4]; 4], u32, u32, f64, f64, f64, f64);

/// Pictures are not larger: a mistyped size must not take all memory.
const MAX_SIDE: u32 = 16_384;

pub(crate) fn view(of: ViewTuple) -> Result<View> {
    let (pose, width, height, fx, fy, cx, cy) = of;
    if !(1..=MAX_SIDE).contains(&width) || !(1..=MAX_SIDE).contains(&height) {
        return Err(Error::argument(format!(
            "a picture of {width} x {height} pixels: sides are 1 to {MAX_SIDE}"
        )));
    }
    if !(fx.is_finite() && fx > 0.0 && fy.is_finite() && fy > 0.0 && cx.is_finite() && cy.is_finite()) {
        return Err(Error::argument(format!(
            "fx {fx}, fy {fy}, cx {cx}, cy {cy}: all must be finite, and the focal lengths positive"
        )));
    }
    let pose = pose_of(&pose)?;
    let camera = Camera { model: CameraModel::Pinhole, width, height, params: vec![fx, fy, cx, cy] };
    Ok(View::new(&camera, &pose))
}

pub(crate) fn view_tuple(view: &View) -> ViewTuple {
    let row = |k: usize| view.rotation.row(k).extend(view.translation[k]).to_array();
    let pose = [row(0), row(1), row(2), [0.0, 0.0, 0.0, 1.0]];
    (pose, view.width, view.height, view.fx, view.fy, view.cx, view.cy)
}

/// # Errors
/// If the matrix is no rigid motion.
pub(crate) fn pose_of(matrix: &[[f64; 4]; 4]) -> Result<Pose> {
    let rotation = Matrix3::from_fn(|r, c| matrix[r][c]);
    let translation = Vector3::from_fn(|r, _| matrix[r][3]);
    let rigid = (rotation * rotation.transpose() - Matrix3::identity()).abs().max() < 1e-4
        && rotation.determinant() > 0.0
        && matrix[3] == [0.0, 0.0, 0.0, 1.0]
        && translation.iter().all(|v| v.is_finite());
    if !rigid {
        return Err(Error::argument(format!("world_to_camera is no rigid motion: {matrix:?}"))
            .hint("a rotation without scale or reflection, a translation, and 0 0 0 1 in the last row"));
    }
    Ok(Pose::from_matrix(&rotation, translation))
}

/// `x' = scale * rotation * x + translation`, rotation as w, x, y, z.
pub(crate) type SimilarityTuple = (f64, [f64; 4], [f64; 3]);

/// A similarity from Python.
///
/// # Errors
/// If the rotation is none.
pub(crate) fn similarity(of: SimilarityTuple) -> Result<(f64, UnitQuaternion<f64>, Vector3<f64>)> {
    let (scale, rotation, translation) = of;
    let [w, x, y, z] = rotation;
    let quaternion = Quaternion::new(w, x, y, z);
    let norm = quaternion.norm();
    if !norm.is_finite() || norm < 1e-9 {
        return Err(Error::argument(format!("rotation {rotation:?} is no quaternion that turns")));
    }
    Ok((scale, UnitQuaternion::new_normalize(quaternion), Vector3::from(translation)))
}

/// World-to-camera of the camera at `position` that looks at `target`, image up towards `up`.
#[pyfunction]
pub(crate) fn look_at(position: [f64; 3], target: [f64; 3], up: [f64; 3]) -> PyResult<[[f64; 4]; 4]> {
    let [position, target, up] = [position, target, up].map(Vector3::from);
    let pose = Pose::look_at(&position, &target, &up).ok_or_else(|| {
        raise(
            Error::argument("position, target and up do not define a view")
                .hint("target must not be position, and up not the direction of the view"),
        )
    })?;
    let matrix = pose.to_matrix4();
    Ok(std::array::from_fn(|r| std::array::from_fn(|c| matrix[(r, c)])))
}
