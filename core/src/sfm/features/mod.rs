//! Local features: where a picture can be recognised again.

/// A keypoint. Pixels with the centre of the top-left pixel at (0.5, 0.5).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Keypoint {
    /// Column.
    pub x: f32,
    /// Row.
    pub y: f32,
    /// Standard deviation of the blur at which it was found, in pixels of the picture.
    pub scale: f32,
    /// Dominant gradient direction in radians, from +x towards +y.
    pub orientation: f32,
}

/// A RootSIFT descriptor (Arandjelović & Zisserman, CVPR 2012), quantised: the 128 components of the square root of the L1-normalised
/// histogram times 512, at most 255. Two equal descriptors have a dot product of about 512².
pub type Descriptor = [u8; 128];

/// The features of one picture; both vectors have the same length.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Features {
    /// Where.
    pub keypoints: Vec<Keypoint>,
    /// What it looks like.
    pub descriptors: Vec<Descriptor>,
}
