//! What the scale space is made of: one channel of floats.

/// A grey picture of floats, row by row.
#[derive(Debug, Clone)]
pub(super) struct Plane {
    pub(super) width: usize,
    pub(super) height: usize,
    pub(super) data: Vec<f32>,
}

impl Plane {
    pub(super) fn new(width: usize, height: usize) -> Self {
        Self { width, height, data: vec![0.0; width * height] }
    }

    /// Room for a picture, whose rows are still to come.
    pub(super) fn with_capacity(width: usize, height: usize) -> Self {
        Self { width, height, data: Vec::with_capacity(width * height) }
    }

    pub(super) fn row(&self, y: usize) -> &[f32] {
        &self.data[y * self.width..][..self.width]
    }
}
