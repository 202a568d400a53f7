//! What the scale space is made of: one channel of floats.

/// Numbers in the widest vectors; loops work on as many at a time.
pub(super) const LANES: usize = 16;

/// A grey picture of floats, which is made row by row. It keeps all of its rows, or the last ones.
#[derive(Debug, Clone)]
pub(super) struct Plane {
    pub(super) width: usize,
    pub(super) height: usize,
    /// Rows that were made, from the first on.
    rows: usize,
    /// Rows that are kept: a power of two, or more than there are.
    kept: usize,
    /// The rows, row y in place y modulo `kept`. After the last one of a whole picture there are [`LANES`] more numbers: a
    /// vector that begins in a row may reach beyond it.
    data: Vec<f32>,
}

impl Plane {
    /// Room for a picture, whose rows are still to come: filling it with zeros before would take as long as the sums.
    pub(super) fn with_capacity(width: usize, height: usize) -> Self {
        let data = Vec::with_capacity(width * height + LANES);
        Self { width, height, rows: 0, kept: usize::MAX, data }
    }

    /// A picture of which at least the last `kept` rows can be read.
    pub(super) fn rolling(width: usize, height: usize, kept: usize) -> Self {
        let kept = kept.next_power_of_two();
        if kept >= height {
            return Self::with_capacity(width, height);
        }
        Self { width, height, rows: 0, kept, data: Vec::with_capacity(width * kept) }
    }

    /// The picture of those pixels.
    #[cfg(test)]
    pub(super) fn of(width: usize, height: usize, pixels: impl IntoIterator<Item = f32>) -> Self {
        let mut plane = Self::with_capacity(width, height);
        plane.data.extend(pixels);
        plane.data.resize(width * height + LANES, 0.0);
        plane.rows = height;
        plane
    }

    /// Rows that were made, from the first on.
    pub(super) fn rows(&self) -> usize {
        self.rows
    }

    /// The next row, to be filled in.
    pub(super) fn next_row(&mut self) -> &mut [f32] {
        let y = self.rows;
        assert!(y < self.height);
        self.rows += 1;
        let start = self.place(y) * self.width;
        if y < self.kept {
            let padding = if self.rows == self.height { LANES } else { 0 };
            self.data.resize(start + self.width + padding, 0.0);
        }
        &mut self.data[start..][..self.width]
    }

    fn place(&self, y: usize) -> usize {
        if self.kept == usize::MAX { y } else { y & (self.kept - 1) }
    }

    pub(super) fn row(&self, y: usize) -> &[f32] {
        self.from(0, y, self.width)
    }

    /// `count` numbers from column `x` of row `y` on; of a whole picture up to [`LANES`] beyond the row, which have no
    /// meaning.
    pub(super) fn from(&self, x: usize, y: usize, count: usize) -> &[f32] {
        assert!(y < self.rows && self.rows - y <= self.kept, "row {y} is not there");
        &self.data[self.place(y) * self.width + x..][..count]
    }

    /// Asks for the square of `radius` around a pixel, which will be read soon: the processor itself foresees that along a
    /// row, but not from row to row.
    pub(super) fn prefetch(&self, x: f32, y: f32, radius: f32) {
        #[cfg(target_arch = "x86_64")]
        {
            let range = |centre: f32, size: usize| {
                (centre - radius).max(0.0) as usize..((centre + radius).max(0.0) as usize).min(size)
            };
            for y in range(y, self.rows) {
                for x in range(x, self.width).step_by(LANES) {
                    let value: *const f32 = &raw const self.from(x, y, 1)[0];
                    // SAFETY: it is a hint, about an address within the plane.
                    unsafe {
                        std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(value.cast());
                    }
                }
            }
        }
        #[cfg(not(target_arch = "x86_64"))]
        let _ = (x, y, radius);
    }
}
