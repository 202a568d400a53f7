//! What the search for surfaces knows of a training view.

use crate::raster::View;

/// A training view, small.
pub(super) struct SmallView {
    /// The camera at that size.
    pub(super) view: View,
    /// r, g, b per pixel, 0..1.
    pub(super) rgb: Vec<[f32; 3]>,
    /// Brightness per pixel.
    pub(super) grey: Vec<f32>,
    /// Which pixels belong to the scene, if that is known.
    pub(super) alpha: Option<Vec<f32>>,
}

impl SmallView {
    pub(super) fn width(&self) -> usize {
        self.view.width as usize
    }

    pub(super) fn height(&self) -> usize {
        self.view.height as usize
    }

    /// Whether a pixel shows the scene, as far as that is known.
    pub(super) fn belongs(&self, pixel: usize) -> bool {
        self.alpha.as_ref().is_none_or(|a| a[pixel] >= 0.5)
    }
}
