//! The cameras of a capture beside the one that made most of it: a second phone, another lens of the same one.

use std::sync::Arc;

use crate::camera::Camera;

/// Further cameras, and which images they made.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct OtherCameras {
    pub(crate) cameras: Vec<Camera>,
    /// By image: 0 for the camera that made most, `k + 1` for `cameras[k]`; empty where there is none but that.
    of_image: Arc<[u32]>,
}

impl OtherCameras {
    /// `of_image` says of every image which camera made it: 0 the one that made most, `k + 1` the one that is `cameras[k]`.
    pub(crate) fn new(cameras: Vec<Camera>, of_image: &[usize]) -> Self {
        debug_assert!(of_image.iter().all(|&k| k <= cameras.len()));
        Self { cameras, of_image: of_image.iter().map(|&k| k as u32).collect() }
    }

    /// Which camera made an image: 0 the one that made most, `k + 1` the one that is `cameras[k]`.
    #[inline(always)]
    pub(crate) fn index(&self, image: usize) -> usize {
        self.of_image.get(image).map_or(0, |&k| k as usize)
    }

    /// The one that made an image; `None` if that is the one that made most.
    pub(crate) fn of(&self, image: usize) -> Option<&Camera> {
        self.cameras.get(self.index(image).checked_sub(1)?)
    }
}
