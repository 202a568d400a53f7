//! The network that finds the most salient object of one picture: U²-Net (Qin et al., Pattern Recognition 2020) or
//! another with the same input and output, run by `rten`.
//!
//! Input: 1 x 3 x 320 x 320, the picture resized (aspect ratio not kept), divided by its largest value, then by channel
//! (v - mean) / deviation of ImageNet. Output: the first map, 1 x 1 x 320 x 320, after a sigmoid. It is not stretched
//! to the full range: a picture without an object would then get a mask all the same.

#[cfg(feature = "background")]
mod session;
#[cfg(not(feature = "background"))]
#[path = "network/session_missing.rs"]
mod session;

use std::path::Path;

use image::imageops::{FilterType, resize};
use image::{GrayImage, RgbImage};

use super::weights::read_model;
use crate::error::{Error, ErrorKind, Result};
use session::Session;

/// Side of the network's pictures in pixels.
pub const NETWORK_SIDE: u32 = 320;
/// Mean and standard deviation of the colours (0 to 1) of ImageNet, with which the network was trained.
const MEAN: [f32; 3] = [0.485, 0.456, 0.406];
const DEVIATION: [f32; 3] = [0.229, 0.224, 0.225];

/// A loaded network. Runs on as many threads as the rayon pool in which it was opened has.
pub struct SaliencyNetwork {
    session: Session,
}

impl SaliencyNetwork {
    /// Reads an ONNX file.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`], [`ErrorKind::Io`]; [`ErrorKind::InvalidFile`] if it is no network with this input and output;
    /// [`ErrorKind::Unsupported`] in a library that was built without the feature `background`.
    pub fn open(path: &Path) -> Result<Self> {
        let opened = Self::read(path);
        #[cfg(feature = "service")]
        if let Err(error) = &opened {
            super::usable_weights::note_trouble(path, error);
        }
        opened
    }

    fn read(path: &Path) -> Result<Self> {
        let unusable = |why: String| {
            Error::new(ErrorKind::InvalidFile, format!("{} is no mask model: {why}", path.display()))
                .hint("an ONNX file with the inputs and outputs of U²-Net (320 x 320) is needed")
        };
        let network = Self { session: Session::open(read_model(path)?, unusable)? };
        // A model of another size is refused here, before a video is decoded for it.
        network.saliency(&RgbImage::new(8, 8)).map_err(|e| unusable(e.message().to_owned()))?;
        Ok(network)
    }

    /// The same network `count` times, for as many pictures at the same time; each has its part of the threads.
    pub(super) fn side_by_side(&self, count: usize) -> Vec<Self> {
        let threads = (rayon::current_num_threads() / count.max(1)).max(1);
        let own = |_| Self { session: self.session.with_threads(threads) };
        (0..count.max(1)).map(own).collect()
    }

    /// The probability (0 to 255) of each pixel to belong to the object. 320 x 320 pixels that cover the whole picture.
    ///
    /// # Errors
    /// [`ErrorKind::Internal`] if the network cannot be run.
    pub fn saliency(&self, picture: &RgbImage) -> Result<GrayImage> {
        let fails = |why: String| Error::new(ErrorKind::Internal, format!("the mask model fails: {why}"));
        let side = NETWORK_SIDE as usize;
        let (shape, map) = self.session.run([1, 3, side, side], input_of(picture)).map_err(fails)?;
        if shape != [1, 1, side, side] {
            return Err(fails(format!("its output has the shape {shape:?}")));
        }
        // `as` saturates, and turns what is not a number into 0.
        let bytes = map.iter().map(|v| (v * 255.0 + 0.5) as u8).collect();
        GrayImage::from_raw(NETWORK_SIDE, NETWORK_SIDE, bytes)
            .ok_or_else(|| fails("its output is short".into()))
    }
}

/// The values of the input, channel by channel.
fn input_of(picture: &RgbImage) -> Vec<f32> {
    let small = resize(picture, NETWORK_SIDE, NETWORK_SIDE, FilterType::Lanczos3);
    // A black picture stays black.
    let largest = f32::from(small.as_raw().iter().copied().max().unwrap_or(0).max(1));
    let mut values = Vec::with_capacity(small.as_raw().len());
    for channel in 0..3 {
        let scaled =
            |p: &image::Rgb<u8>| (f32::from(p[channel]) / largest - MEAN[channel]) / DEVIATION[channel];
        values.extend(small.pixels().map(scaled));
    }
    values
}

#[cfg(test)]
#[cfg(feature = "background")]
mod tests {
    use super::*;
    use image::Rgb;

    #[test]
    fn the_input_is_normalised_by_channel_and_by_the_largest_value() {
        let values = input_of(&RgbImage::from_pixel(40, 20, Rgb([100, 50, 0])));
        let plane = (NETWORK_SIDE * NETWORK_SIDE) as usize;
        assert_eq!(values.len(), 3 * plane);
        for (channel, scaled) in [1.0, 0.5, 0.0].into_iter().enumerate() {
            let expected = (scaled - MEAN[channel]) / DEVIATION[channel];
            assert!((values[channel * plane + 777] - expected).abs() < 1e-5);
        }
        assert!(input_of(&RgbImage::new(4, 4)).iter().all(|v| v.is_finite()));
    }

    #[test]
    fn what_is_no_network_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.onnx");
        std::fs::write(&path, "no network").unwrap();
        let error = SaliencyNetwork::open(&path).err().unwrap();
        assert_eq!(error.kind(), ErrorKind::InvalidFile);
        assert!(error.message().contains("a.onnx"), "{error}");
    }

    /// A textured ball on a plain ground.
    fn ball() -> RgbImage {
        RgbImage::from_fn(400, 300, |x, y| {
            let (dx, dy) = (x as f32 - 220.0, y as f32 - 140.0);
            if dx * dx + dy * dy < 80.0 * 80.0 {
                Rgb([200, (60.0 + 40.0 * (dx * 0.1).sin()) as u8, 30])
            } else {
                Rgb([150 + (y / 20) as u8, 155, 160])
            }
        })
    }

    #[test]
    fn the_object_is_found_where_it_is_alike_on_any_number_of_threads() {
        let Some(path) = crate::prerequisites::mask_model() else { return };
        let network = SaliencyNetwork::open(&path).unwrap();
        let map = network.saliency(&ball()).unwrap();
        let at = |x: u32, y: u32| map.get_pixel(x * 320 / 400, y * 320 / 300).0[0];
        assert!(at(220, 140) > 200 && at(180, 110) > 200, "{} {}", at(220, 140), at(180, 110));
        assert!(at(20, 20) < 30 && at(380, 280) < 30);
        let one = rayon::ThreadPoolBuilder::new().num_threads(1).build().unwrap();
        let alone = one.install(|| SaliencyNetwork::open(&path).unwrap().saliency(&ball()).unwrap());
        assert_eq!(map, alone);
        // Nothing to be seen: no mask is made up.
        let empty = network.saliency(&RgbImage::from_pixel(64, 64, Rgb([120, 120, 120]))).unwrap();
        let sure = empty.pixels().filter(|p| p.0[0] > 127).count();
        assert!(sure < 320 * 320 / 3, "{sure} pixels of a grey picture");
    }
}
