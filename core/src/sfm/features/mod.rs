//! Local features: where a picture can be recognised again.
//!
//! In: the luma of a picture and, if wanted, a mask. Out: [`Features`]. [`extract`] works on one thread, so callers
//! spread pictures over threads. It is SIFT (Lowe, *Distinctive Image Features from Scale-Invariant Keypoints*, IJCV
//! 2004) with RootSIFT descriptors, in this order:
//!
//! ```text
//! scale_space (Gaussian octaves) → detector (extrema of differences, sub-pixel) → orientation → descriptor
//! ```

/// Defines a function of plain loops that is compiled again, with all that is inlined into it, with AVX2 and with AVX-512
/// allowed, which is what runs where the CPU has them. All give the same bits: the compiler never fuses operations by
/// itself.
macro_rules! vectorised {
    ($(#[$attribute:meta])* $visibility:vis fn $name:ident($($argument:ident: $type:ty),* $(,)?) $(-> $result:ty)? $body:block) => {
        $(#[$attribute])*
        $visibility fn $name($($argument: $type),*) $(-> $result)? {
            #[inline(always)]
            fn portable($($argument: $type),*) $(-> $result)? $body
            #[cfg(target_arch = "x86_64")]
            {
                #[target_feature(enable = "avx2,fma")]
                fn with_avx2($($argument: $type),*) $(-> $result)? {
                    portable($($argument),*)
                }
                #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")]
                fn with_avx512($($argument: $type),*) $(-> $result)? {
                    portable($($argument),*)
                }
                if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") {
                    if is_x86_feature_detected!("avx512f")
                        && is_x86_feature_detected!("avx512bw")
                        && is_x86_feature_detected!("avx512dq")
                        && is_x86_feature_detected!("avx512vl")
                    {
                        // SAFETY: the CPU has the instructions.
                        return unsafe { with_avx512($($argument),*) };
                    }
                    // SAFETY: as above.
                    return unsafe { with_avx2($($argument),*) };
                }
            }
            portable($($argument),*)
        }
    };
}

mod blur;
mod blur_sums;
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
mod blur_vectors;
mod descriptor;
mod detector;
mod gradient;
mod orientation;
mod plane;
mod scale_space;
mod sift;
#[cfg(test)]
mod tests;
mod window;

use bytemuck::{Pod, Zeroable};
use serde::Serialize;

use crate::defaults::with_defaults;
pub use sift::extract;
pub(crate) use sift::{extract_where, is_masked_in};

/// A keypoint. Pixels with the centre of the top-left pixel at (0.5, 0.5).
#[derive(Debug, Clone, Copy, PartialEq, Pod, Zeroable)]
#[repr(C)]
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

/// A RootSIFT descriptor (Arandjelović & Zisserman, CVPR 2012), quantised: the 128 components of the square root of the
/// L1-normalised histogram times 512, at most 255. Two equal descriptors have a dot product of about 512².
pub type Descriptor = [u8; 128];

/// The features of one picture; both vectors have the same length, until nothing is left to match: descriptors are not kept longer. The
/// largest scale comes first.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Features {
    /// Where.
    pub keypoints: Vec<Keypoint>,
    /// What it looks like.
    pub descriptors: Vec<Descriptor>,
}

/// The size at which the scale space starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum FirstOctave {
    /// [`FirstOctave::Doubled`] for pictures of less than 1.25 million pixels, else [`FirstOctave::Native`].
    #[default]
    Auto,
    /// The picture as it is: the finest keypoints have a scale of about 2 pixels.
    Native,
    /// The picture enlarged twofold (COLMAP's `first_octave = -1`): keypoints from a scale of about 1 pixel, three
    /// times as many, at four times the cost.
    Doubled,
}

with_defaults! {
    /// What [`extract`] looks for. The defaults are COLMAP's, except for the first octave and pictures of little
    /// contrast.
    #[derive(Debug, Clone, PartialEq, Serialize)]
    pub struct FeatureOptions {
        /// Features kept per picture, largest scales first.
        pub max_num_features: usize = 8192,
        /// Where the scale space starts.
        pub first_octave: FirstOctave = FirstOctave::Auto,
        /// Least absolute difference of Gaussians at a keypoint, for luma from 0 to 1.
        pub peak_threshold: f32 = 0.02 / 3.0,
        /// A picture with fewer keypoints than this is searched again with
        /// [`weak_peak_threshold`](Self::weak_peak_threshold), and its strongest ones are kept up to this number.
        pub few_features: usize = 2000,
        /// The least difference of Gaussians in pictures that have little contrast: dim rooms, plain walls.
        pub weak_peak_threshold: f32 = 0.005 / 3.0,
        /// Largest ratio of the principal curvatures of a keypoint: above it, it lies on an edge.
        pub edge_threshold: f32 = 10.0,
        /// Most orientations for one keypoint; each one makes a feature.
        pub max_num_orientations: usize = 2,
    }
}
