//! Sparse models: camera poses and points.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use libreconstruct::Error;
use libreconstruct::camera::{Camera, CameraModel, Image, SparseModel as CoreModel, draw_poses, undistort};
use pyo3::prelude::*;

use crate::array::Array;
use crate::error::OrRaise;
use crate::view::{SimilarityTuple, pose_of, similarity};
use crate::work::{long, quick};

/// Id, name of the lens model, width, height, parameters.
type CameraTuple = (u32, String, u32, u32, Vec<f64>);

/// Cameras, registered images and points, which do not change. `SparseModel` in Python is made of this.
#[pyclass(frozen, module = "libreconstruct._native")]
pub(crate) struct SparseModel {
    model: Arc<CoreModel>,
    /// How doubtful poses are, by image id, if that is known ([`libreconstruct::sfm::Verdict::image_doubts`]).
    doubts: BTreeMap<u32, f64>,
}

impl SparseModel {
    pub(crate) fn new(model: CoreModel, doubts: BTreeMap<u32, f64>) -> Self {
        Self { model: Arc::new(model), doubts }
    }

    pub(crate) fn inner(&self) -> &CoreModel {
        &self.model
    }
}

#[pymethods]
impl SparseModel {
    /// Reads COLMAP's files, binary or text.
    #[staticmethod]
    fn read(py: Python<'_>, folder: PathBuf) -> PyResult<Self> {
        quick(py, || Ok(Self::new(CoreModel::read(&folder)?, BTreeMap::new())))
    }

    /// A model without points: cameras, and images as (name, camera id, world-to-camera). Images are numbered from 1.
    #[staticmethod]
    fn from_cameras(cameras: Vec<CameraTuple>, images: Vec<(String, u32, [[f64; 4]; 4])>) -> PyResult<Self> {
        let mut model = CoreModel { cameras: BTreeMap::new(), ..CoreModel::default() };
        for (id, name, width, height, params) in cameras {
            let lens = CameraModel::from_name(&name)
                .filter(|lens| lens.num_params() == params.len())
                .ok_or_else(|| {
                    Error::argument(format!("camera model {name} with {} parameters", params.len()))
                })
                .or_raise()?;
            model.cameras.insert(id, Camera { model: lens, width, height, params });
        }
        for (number, (name, camera_id, pose)) in (1..).zip(images) {
            if !model.cameras.contains_key(&camera_id) {
                let message = format!("image {name} names camera {camera_id}, which is not there");
                return Err(Error::argument(message)).or_raise();
            }
            let pose = pose_of(&pose).or_raise()?;
            model.images.insert(number, Image { name, camera_id, pose, points2d: Vec::new() });
        }
        Ok(Self::new(model, BTreeMap::new()))
    }

    /// Writes COLMAP's files.
    fn write(&self, py: Python<'_>, folder: PathBuf, text: bool) -> PyResult<()> {
        quick(py, || if text { self.model.write_text(&folder) } else { self.model.write_binary(&folder) })
    }

    /// How doubtful poses are, by image id, as far as that is known.
    fn doubts(&self) -> BTreeMap<u32, f64> {
        self.doubts.clone()
    }

    /// The same model, of whose poses this is known.
    fn with_doubts(&self, doubts: BTreeMap<u32, f64>) -> Self {
        Self { model: self.model.clone(), doubts }
    }

    /// The cameras by ascending id.
    fn cameras(&self) -> Vec<CameraTuple> {
        let tuple =
            |(id, c): (&u32, &Camera)| (*id, c.model.name().to_owned(), c.width, c.height, c.params.clone());
        self.model.cameras.iter().map(tuple).collect()
    }

    /// (id, name, camera id) of the images by ascending id, the order of `poses`.
    fn images(&self) -> Vec<(u32, String, u32)> {
        self.model.images.iter().map(|(id, image)| (*id, image.name.clone(), image.camera_id)).collect()
    }

    /// World-to-camera of the images, (n, 4, 4).
    fn poses(&self) -> Array {
        let poses = self.model.images.values().flat_map(|image| {
            // Column by column is row by row of the transpose.
            let rows = image.pose.to_matrix4().transpose();
            <[f64; 16]>::try_from(rows.as_slice()).unwrap_or_default()
        });
        Array::new(poses.collect(), &[self.model.images.len(), 4, 4])
    }

    /// Positions (m, 3), colours (m, 3), reprojection errors (m), ids (m), track lengths (m), by ascending id.
    fn points(&self, py: Python<'_>) -> (Array, Array, Array, Array, Array) {
        let points = &self.model.points;
        let n = points.len();
        let (xyz, rgb, error, ids, tracks) = py.detach(|| {
            let xyz: Vec<f64> = points.values().flat_map(|p| <[f64; 3]>::from(p.xyz)).collect();
            let rgb: Vec<u8> = points.values().flat_map(|p| p.rgb).collect();
            let error: Vec<f64> = points.values().map(|p| p.error).collect();
            let ids: Vec<u64> = points.keys().copied().collect();
            let tracks: Vec<u32> = points.values().map(|p| p.track.len() as u32).collect();
            (xyz, rgb, error, ids, tracks)
        });
        (
            Array::new(xyz, &[n, 3]),
            Array::new(rgb, &[n, 3]),
            Array::new(error, &[n]),
            Array::new(ids, &[n]),
            Array::new(tracks, &[n]),
        )
    }

    /// Numbers of images and points, mean track length, mean reprojection error in pixels.
    fn summary(&self) -> (usize, usize, f64, f64) {
        let model = &self.model;
        (model.images.len(), model.points.len(), model.mean_track_length(), model.mean_reprojection_error())
    }

    /// The model in a moved world.
    fn transform(&self, py: Python<'_>, motion: SimilarityTuple) -> PyResult<Self> {
        quick(py, || {
            let (scale, _, translation) = motion;
            if !(scale.is_finite() && scale > 0.0 && translation.iter().all(|v| v.is_finite())) {
                return Err(Error::argument(format!(
                    "scale {scale}, translation {translation:?}: the scale must be positive, and all finite"
                )));
            }
            let (scale, rotation, translation) = similarity(motion)?;
            let mut moved = CoreModel::clone(&self.model);
            moved.transform(scale, &rotation, &translation);
            Ok(Self::new(moved, self.doubts.clone()))
        })
    }

    /// A picture of poses and points from above and from the side, sRGB, (height, width, 3).
    fn plot(&self, py: Python<'_>) -> PyResult<Array> {
        let picture = quick(py, || draw_poses(&self.model, &self.doubts))?;
        let shape = [picture.height() as usize, picture.width() as usize, 3];
        Ok(Array::new(picture.into_raw(), &shape))
    }

    /// Undistorts the pictures in `images` into `output`, with the model that belongs to them, which is returned.
    fn undistort(
        &self,
        py: Python<'_>,
        images: PathBuf,
        output: PathBuf,
        listener: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Self> {
        let model = long(py, listener, |control| undistort(&self.model, &images, &output, control))?;
        Ok(Self::new(model, BTreeMap::new()))
    }
}
