//! COLMAP's sparse-model folder: `cameras`, `images`, `points3D`, as `.bin` or as `.txt`.
//!
//! In: a folder from this program or any other; nothing in it is trusted. Out: a [`SparseModel`] whose references all
//! lead somewhere. It is the interchange between structure from motion and training, so that either can be replaced by
//! another tool. The layout is that of COLMAP's documentation ("Output format"): little-endian, quaternions w x y z,
//! world-to-camera, pixels with the centre of the top-left one at (0.5, 0.5), which is this engine's own convention.

mod binary;
mod text;

use std::collections::BTreeMap;
use std::path::{Component, Path, PathBuf};

use nalgebra::{Quaternion, UnitQuaternion, Vector3};

use super::{Camera, CameraModel, Image, Point3D, Pose, SparseModel};
use crate::error::{Error, ErrorKind, Result};
use crate::files;

/// No picture has a longer side; it is also the limit of JPEG.
const MAX_SIDE: u64 = 65_535;
/// No file of a model is larger: about 50 million observations.
const MAX_FILE: u64 = 4 << 30;

const NAMES: [&str; 3] = ["cameras", "images", "points3D"];

/// What the files contain, before the references between them are known to be good.
struct Parts {
    cameras: Vec<(u32, Camera)>,
    images: Vec<(u32, Image)>,
    points: Vec<(u64, Point3D)>,
}

impl SparseModel {
    /// Reads the model in `folder`. The binary files are taken if all three are there, else the text files.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] if neither kind is complete; [`ErrorKind::InvalidFile`] with file and position if one
    /// is damaged, uses a camera model that is not in [`CameraModel`], or refers to something that is not there.
    pub fn read(folder: &Path) -> Result<Self> {
        let complete = |extension| NAMES.iter().all(|name| file(folder, name, extension).is_file());
        let (parts, extension) = if complete("bin") {
            (binary::read(folder)?, "bin")
        } else if complete("txt") {
            (text::read(folder)?, "txt")
        } else {
            return Err(Error::new(
                ErrorKind::NotFound,
                format!("{} holds no complete sparse model", folder.display()),
            )
            .hint("it needs cameras, images and points3D, all three as .bin or all three as .txt"));
        };
        parts.into_model(folder, extension)
    }

    /// Writes `cameras.bin`, `images.bin` and `points3D.bin` into `folder`, which is made if need be. Bit-exact: reading
    /// them gives the same model.
    ///
    /// # Errors
    /// Those of the operating system.
    pub fn write_binary(&self, folder: &Path) -> Result<()> {
        write(folder, "bin", |name, out| match name {
            "cameras" => binary::write_cameras(self, out),
            "images" => binary::write_images(self, out),
            _ => binary::write_points(self, out),
        })
    }

    /// Writes `cameras.txt`, `images.txt` and `points3D.txt` into `folder`, which is made if need be. Numbers have all
    /// their digits. Note that [`SparseModel::read`] prefers binary files that lie beside them.
    ///
    /// # Errors
    /// Those of the operating system.
    pub fn write_text(&self, folder: &Path) -> Result<()> {
        write(folder, "txt", |name, out| match name {
            "cameras" => text::write_cameras(self, out),
            "images" => text::write_images(self, out),
            _ => text::write_points(self, out),
        })
    }
}

fn file(folder: &Path, name: &str, extension: &str) -> PathBuf {
    folder.join(format!("{name}.{extension}"))
}

fn write(
    folder: &Path,
    extension: &str,
    mut write_one: impl FnMut(&str, &mut dyn std::io::Write) -> std::io::Result<()>,
) -> Result<()> {
    std::fs::create_dir_all(folder).map_err(|e| Error::io("create", folder, e))?;
    for name in NAMES {
        files::write_atomically(&file(folder, name, extension), |out| write_one(name, out))?;
    }
    Ok(())
}

/// The whole file, if it is not absurdly large.
fn load(path: &Path) -> Result<Vec<u8>> {
    let size = std::fs::metadata(path).map_err(|e| Error::io("open", path, e))?.len();
    if size > MAX_FILE {
        return Err(damaged(
            path,
            format!("it has {size} bytes, more than the {MAX_FILE} that a model may have"),
        ));
    }
    std::fs::read(path).map_err(|e| Error::io("read", path, e))
}

fn damaged(path: &Path, what: impl std::fmt::Display) -> Error {
    Error::new(ErrorKind::InvalidFile, format!("{}: {what}", path.display()))
}

/// A camera from what a file says; the message of a refusal is completed by the caller with file and position.
fn camera(model: CameraModel, width: u64, height: u64, params: Vec<f64>) -> Result<Camera, String> {
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

fn unknown_model(model: impl std::fmt::Display) -> String {
    format!(
        "camera model {model} is not supported; SIMPLE_PINHOLE, PINHOLE, SIMPLE_RADIAL, RADIAL and OPENCV are \
         (undistort the pictures with the program that made the model, or reconstruct with one of these)"
    )
}

fn pose(wxyz: [f64; 4], translation: [f64; 3]) -> Result<Pose, String> {
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
fn image_name(name: &str) -> Result<String, String> {
    let inside = Path::new(name).components().all(|c| matches!(c, Component::Normal(_) | Component::CurDir));
    if name.is_empty() || !inside || name.contains('\0') {
        return Err(format!("image name {name:?} does not stay inside the image folder"));
    }
    Ok(name.to_owned())
}

impl Parts {
    /// Looks every reference up. After this, indexing by what the model says cannot fail.
    fn into_model(self, folder: &Path, extension: &str) -> Result<SparseModel> {
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

#[cfg(test)]
mod tests;
