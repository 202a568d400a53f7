//! How an `.spz` file is written, and in which frame it is read.

/// The versions that can be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SpzVersion {
    /// gzip, rotations in 3 bytes; for old viewers.
    V2,
    /// gzip, rotations in 4 bytes.
    #[default]
    V3,
    /// Zstandard, smaller; not yet known to all viewers.
    V4,
}

/// In which frame the file is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SpzFrame {
    /// x right, y up, z back, as the format demands: the scene is turned on the way.
    #[default]
    RightUpBack,
    /// The frame of the scene as it is, without any turn; some converters write such files.
    Unchanged,
}

/// How to write an `.spz` file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SpzOptions {
    /// The version of the format.
    pub version: SpzVersion,
    /// The frame of the file.
    pub frame: SpzFrame,
    /// Bits after the binary point of positions, 0 to 23. By default as many as the extent of the scene leaves room for,
    /// at most 16. The reference implementation always writes 12.
    pub fractional_bits: Option<u32>,
}
