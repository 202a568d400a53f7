//! A tag in one picture.

/// A tag as the detector reports it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Found {
    pub(crate) id: u32,
    /// Wrong bits that were corrected.
    pub(crate) hamming: u32,
    /// Mean distance of a bit's brightness from the threshold, of 255.
    pub(crate) margin: f32,
    /// Corners of the inner white square in pixels, the centre of the top-left pixel at (0.5, 0.5): bottom left, bottom right,
    /// top right, top left of the upright tag.
    pub(crate) corners: [[f64; 2]; 4],
}
