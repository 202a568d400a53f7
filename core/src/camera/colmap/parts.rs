//! What the files of a model contain, whichever way they are written, and what is checked about it.

use std::collections::BTreeMap;
use std::path::{Component, Path, PathBuf};

use nalgebra::{Quaternion, UnitQuaternion, Vector3};

use crate::camera::{Camera, CameraModel, Image, Point3D, Pose, SparseModel};
use crate::error::{Error, ErrorKind, Result};
use crate::files;

/// No picture has a longer side; it is also the limit of JPEG.
const MAX_SIDE: u64 = 65_535;
/// No file of a model is larger: about 50 million observations.
const MAX_FILE: u64 = 4 << 30;

pub(super) const NAMES: [&str; 3] = ["cameras", "images", "points3D"];

/// What the files contain, before the references between them are known to be good.
pub(super) struct Parts {
    pub(super) cameras: Vec<(u32, Camera)>,
    pub(super) images: Vec<(u32, Image)>,
    pub(super) points: Vec<(u64, Point3D)>,
}

pub(super) fn file(folder: &Path, name: &str, extension: &str) -> PathBuf {
    folder.join(format!("{name}.{extension}"))
}

/// The whole file, if it is not absurdly large.
pub(super) fn load(path: &Path) -> Result<Vec<u8>> {
    files::read_at_most(path, MAX_FILE)?
        .ok_or_else(|| damaged(path, format!("it has more than the {MAX_FILE} bytes that a model may have")))
}

pub(super) fn damaged(path: &Path, what: impl std::fmt::Display) -> Error {
    Error::new(ErrorKind::InvalidFile, format!("{}: {what}", path.display()))
}

/// A camera from what a file says; the message of a refusal is completed by the caller with file and position.
pub(super) fn camera(
    model: CameraModel,
    width: u64,
    height: u64,
    params: Vec<f64>,
) -> Result<Camera, String> {
    let side = |value: u64| u32::try_from(value).ok().filter(|_| (1..=MAX_SIDE).contains(&value));
    let (Some(width), Some(height)) = (side(width), side(height)) else {
        return Err(format!("a picture of {width} x {height} pixels; sides are 1 to {MAX_SIDE}"));
    };
    let camera = Camera { model, width, height, params };
    let (fx, fy) = camera.focal();
    if !camera.params.iter().all(|p| p.is_finite()) || fx <= 0.0 || fy <= 0.0 {
        return Err(format!(
            "camera parameters {:?}; they must be finite and the focal length positive",
            camera.params
        ));
    }
    Ok(camera)
}

pub(super) fn unknown_model(model: impl std::fmt::Display) -> String {
    let known: Vec<&str> = CameraModel::ALL.iter().map(|m| m.name()).collect();
    format!(
        "camera model {model} is not supported; {} are (undistort the pictures with the program that made the model, or \
         reconstruct with one of these)",
        known.join(", ")
    )
}

pub(super) fn pose(wxyz: [f64; 4], translation: [f64; 3]) -> Result<Pose, String> {
    let [w, x, y, z] = wxyz;
    let quaternion = Quaternion::new(w, x, y, z);
    let norm = quaternion.norm();
    if !norm.is_finite() || norm < 1e-6 || !translation.iter().all(|v| v.is_finite()) {
        return Err(format!(
            "pose {wxyz:?} {translation:?}; it must be finite with a quaternion that is not zero"
        ));
    }
    // Dividing what is of unit length already would change its last bits, and files must come back as they were.
    let rotation = if (norm - 1.0).abs() < 1e-14 {
        UnitQuaternion::new_unchecked(quaternion)
    } else {
        UnitQuaternion::new_normalize(quaternion)
    };
    Ok(Pose { rotation, translation: Vector3::from(translation) })
}

/// Image names become paths below the image folder: they must stay there.
pub(super) fn image_name(name: &str) -> Result<String, String> {
    let inside = Path::new(name).components().all(|c| matches!(c, Component::Normal(_) | Component::CurDir));
    if name.is_empty() || !inside || name.contains('\0') {
        return Err(format!("image name {name:?} does not stay inside the image folder"));
    }
    Ok(name.to_owned())
}

impl Parts {
    /// Looks every reference up. After this, indexing by what the model says cannot fail.
    pub(super) fn into_model(self, folder: &Path, extension: &str) -> Result<SparseModel> {
        let [cameras_file, images_file, points_file] = NAMES.map(|name| file(folder, name, extension));
        let cameras = unique(self.cameras, &cameras_file, "camera")?;
        let images = unique(self.images, &images_file, "image")?;
        let points = unique(self.points, &points_file, "point")?;
        for (id, image) in &images {
            if !cameras.contains_key(&image.camera_id) {
                return Err(damaged(
                    &images_file,
                    format!("image {id} names camera {}, which is not there", image.camera_id),
                ));
            }
            for (k, point2d) in image.points2d.iter().enumerate() {
                if let Some(point) = point2d.point3d.filter(|p| !points.contains_key(p)) {
                    return Err(damaged(
                        &images_file,
                        format!("keypoint {k} of image {id} names point {point}, which is not there"),
                    ));
                }
            }
        }
        for (id, point) in &points {
            for &(image, index) in &point.track {
                let seen = images.get(&image).and_then(|i| i.points2d.get(index as usize)).map(|p| p.point3d);
                if seen != Some(Some(*id)) {
                    let why = match seen {
                        None => "which is not there",
                        Some(_) => "which belongs to another point",
                    };
                    return Err(damaged(
                        &points_file,
                        format!("the track of point {id} names keypoint {index} of image {image}, {why}"),
                    ));
                }
            }
        }
        Ok(SparseModel { cameras, images, points })
    }
}

fn unique<K: Ord + Copy + std::fmt::Display, V>(
    list: Vec<(K, V)>,
    path: &Path,
    kind: &str,
) -> Result<BTreeMap<K, V>> {
    let mut ids: Vec<K> = list.iter().map(|(id, _)| *id).collect();
    ids.sort_unstable();
    if let Some(pair) = ids.windows(2).find(|pair| pair[0] == pair[1]) {
        return Err(damaged(path, format!("{kind} {} is there twice", pair[0])));
    }
    Ok(list.into_iter().collect())
}
