//! What the scale space is made of: one channel of floats.

/// Numbers in the widest vectors; loops work on as many at a time.
pub(super) const LANES: usize = 16;

/// A grey picture of floats, which is made row by row.
#[derive(Debug, Clone)]
pub(super) struct Plane {
    pub(super) width: usize,
    pub(super) height: usize,
    /// The rows. After the last one there are [`LANES`] more numbers: a vector that begins in a row may reach beyond it.
    data: Vec<f32>,
}

impl Plane {
    /// Room for a picture, whose rows are still to come: filling it with zeros before would take as long as the sums.
    pub(super) fn with_capacity(width: usize, height: usize) -> Self {
        Self { width, height, data: Vec::with_capacity(width * height + LANES) }
    }

    /// The picture of those pixels.
    pub(super) fn of(width: usize, height: usize, pixels: impl IntoIterator<Item = f32>) -> Self {
        let mut plane = Self::with_capacity(width, height);
        plane.data.extend(pixels);
        plane.data.resize(width * height + LANES, 0.0);
        plane
    }

    pub(super) fn push_row(&mut self, row: &[f32]) {
        self.data.extend_from_slice(row);
        if self.data.len() == self.width * self.height {
            self.data.resize(self.width * self.height + LANES, 0.0);
        }
    }

    pub(super) fn row(&self, y: usize) -> &[f32] {
        self.from(0, y, self.width)
    }

    /// `count` numbers from column `x` of row `y` on; those beyond the row have no meaning.
    pub(super) fn from(&self, x: usize, y: usize, count: usize) -> &[f32] {
        &self.data[y * self.width + x..][..count]
    }
}
