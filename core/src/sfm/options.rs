//! What the caller may choose.

use serde::{Deserialize, Serialize};

use crate::camera::CameraModel;
use crate::defaults::with_defaults;
use crate::error::{Error, Result};

/// The two ways to a map.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MappingMethod {
    /// All images at once: rotation averaging, global positioning, bundle adjustment (GLOMAP).
    Global,
    /// Two images first, then one after the other (COLMAP).
    Incremental,
}

with_defaults! {
    /// How to reconstruct.
    #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
    #[serde(default)]
    pub struct SfmOptions {
        /// The mapper to begin with. [`MappingMethod::Global`] falls back to the incremental one where it finds no
        /// sound model.
        pub method: MappingMethod = MappingMethod::Global,
        /// The lens model to begin with; each camera has parameters of its own. SIMPLE_RADIAL becomes RADIAL where the capture tells
        /// the second coefficient from zero, and SIMPLE_RADIAL_FISHEYE or RADIAL_FISHEYE where it was a fisheye.
        pub camera_model: CameraModel = CameraModel::SimpleRadial,
        /// Focal length in pixels of the frames, if known: of those of the camera that made most. It is refined.
        pub focal: Option<f64> = None,
        /// Whether the principal point may leave the image centre, where the capture determines it.
        pub refine_principal_point: bool = true,
        /// Features per frame at most, largest first.
        pub max_features: usize = 8192,
        /// Seed of everything random.
        pub seed: u64 = 0,
        /// Edge of the inner white square of the AprilTags (tagStandard41h12) in the scene, millimetres, 1 to 1000: the
        /// model is then in metres. It is 5/9 of the printed width.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub apriltag_size_mm: Option<f64> = None,
        /// Whether to fail where the tags give no scale, rather than to warn and leave the units arbitrary.
        #[serde(skip_serializing_if = "std::ops::Not::not")]
        pub require_scale: bool = false,
        /// Whether to fail where the verdict on the model is not good, rather than to warn.
        #[serde(skip_serializing_if = "std::ops::Not::not")]
        pub strict: bool = false,
        /// Whether to hand over also a model whose verdict is that it is broken: for who wants to look at it.
        #[serde(skip_serializing_if = "std::ops::Not::not")]
        pub keep_broken: bool = false,
        /// Milliseconds from the first line of a picture to the last one, 0 to 100, if known; 0 for a global shutter, or
        /// to leave a rolling one as it is. Absent: a video's is estimated where it matters. Photographs have none.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub rolling_shutter_ms: Option<f64> = None,
    }
}

impl SfmOptions {
    /// # Errors
    /// [`crate::ErrorKind::InvalidArgument`] for a focal length that is not a positive number, fewer than 100 features,
    /// a size of tags or a readout time out of range, or a scale that is required without a size.
    pub fn validate(&self) -> Result<()> {
        if let Some(focal) = self.focal.filter(|f| !(f.is_finite() && *f > 0.0)) {
            return Err(Error::argument(format!(
                "the focal length is {focal}; it must be a positive number of pixels"
            )));
        }
        if !(100..=100_000).contains(&self.max_features) {
            return Err(Error::argument(format!(
                "max_features is {}; it must be 100 to 100000",
                self.max_features
            )));
        }
        if let Some(size) = self.apriltag_size_mm.filter(|s| !(1.0..=1000.0).contains(s)) {
            return Err(Error::argument(format!("apriltag_size_mm is {size}: 1 to 1000 is allowed")));
        }
        if let Some(readout) = self.rolling_shutter_ms.filter(|t| !(0.0..=100.0).contains(t)) {
            return Err(Error::argument(format!("rolling_shutter_ms is {readout}: 0 to 100 is allowed")));
        }
        if self.require_scale && self.apriltag_size_mm.is_none() {
            return Err(Error::argument(
                "require_scale needs apriltag_size_mm: tags of that size give the scale",
            ));
        }
        Ok(())
    }
}
