//! Features on the object only, for captures whose background is not to count.

use image::GrayImage;

use super::features::{Features, is_masked_in};
use super::front_end::Pictures;
use crate::error::{Error, ErrorKind, Result};
use crate::stage::Stage;
use crate::statistics::median;
use crate::video::Frames;

/// Which features to keep.
#[derive(Clone, Copy)]
pub struct ObjectMasks<'a> {
    /// By frame, of any size, stretched over it: features where it is 0 are dropped.
    pub masks: &'a [GrayImage],
    /// Features on the object that a frame must have (median).
    pub least: usize,
}

impl ObjectMasks<'_> {
    /// # Errors
    /// `InvalidArgument` unless there is a mask for every frame.
    pub(crate) fn check(&self, frames: &Frames) -> Result<()> {
        let (masks, count) = (self.masks.len(), frames.frames.len());
        if masks == count {
            return Ok(());
        }
        Err(Error::argument(format!("{masks} masks were given for {count} frames")))
    }
}

/// The features on the object. Frames without any object have none.
///
/// # Errors
/// `InsufficientFeatures` if too few are left.
pub(crate) fn keep_object(pictures: &Pictures, frames: &Frames, object: ObjectMasks<'_>) -> Result<Pictures> {
    let sizes = frames.frames.iter().map(|f| (f.width, f.height));
    let mut kept = Pictures { features: Vec::new(), keypoints: Vec::new(), colors: Vec::new() };
    for (image, (mask, size)) in object.masks.iter().zip(sizes).enumerate() {
        let features = &pictures.features[image];
        let on_object: Vec<usize> = (0..features.keypoints.len())
            .filter(|&k| is_masked_in(mask, size, features.keypoints[k].x, features.keypoints[k].y))
            .collect();
        kept.features.push(Features {
            keypoints: on_object.iter().map(|&k| features.keypoints[k]).collect(),
            descriptors: on_object.iter().map(|&k| features.descriptors[k]).collect(),
        });
        kept.keypoints.push(on_object.iter().map(|&k| pictures.keypoints[image][k]).collect());
        kept.colors.push(on_object.iter().map(|&k| pictures.colors[image][k]).collect());
    }
    let mut counts: Vec<f64> = kept.features.iter().map(|f| f.keypoints.len() as f64).collect();
    let usual = median(&mut counts).unwrap_or(0.0) as usize;
    if usual < object.least {
        return Err(Error::new(
            ErrorKind::InsufficientFeatures,
            format!(
                "the object shows {usual} features in a frame (median; {} are needed to place the cameras by it)",
                object.least
            ),
        )
        .at(Stage::Sfm));
    }
    Ok(kept)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sfm::features::Keypoint;
    use crate::video::Frame;
    use nalgebra::Vector2;

    fn one_frame(width: u32, height: u32) -> Frames {
        Frames::of_images("", vec![Frame::new("0.png", 0, width, height)])
    }

    fn pictures() -> Pictures {
        let keypoints: Vec<Keypoint> = (0..100)
            .map(|k| Keypoint { x: k as f32 * 8.0 + 4.0, y: 300.0, scale: 2.0, orientation: 0.0 })
            .collect();
        Pictures {
            keypoints: vec![keypoints.iter().map(|k| Vector2::new(f64::from(k.x), f64::from(k.y))).collect()],
            colors: vec![(0..100).map(|k| [k as u8; 3]).collect()],
            features: vec![Features { descriptors: (0..100).map(|k| [k as u8; 128]).collect(), keypoints }],
        }
    }

    #[test]
    fn what_is_beside_the_object_is_dropped_everywhere() {
        let frames = one_frame(800, 600);
        // The left quarter of the picture.
        let masks = [GrayImage::from_fn(40, 30, |x, _| image::Luma([u8::from(x < 10)]))];
        let object = ObjectMasks { masks: &masks, least: 25 };
        object.check(&frames).unwrap();
        let kept = keep_object(&pictures(), &frames, object).unwrap();
        assert_eq!(kept.features[0].keypoints.len(), 25);
        assert_eq!(kept.features[0].descriptors[24], [24; 128]);
        assert_eq!((kept.keypoints[0].len(), kept.colors[0].len()), (25, 25));
        assert_eq!(kept.colors[0][24], [24; 3]);
        let few = ObjectMasks { least: 26, ..object };
        let error = keep_object(&pictures(), &frames, few).err().unwrap();
        assert_eq!(error.kind(), ErrorKind::InsufficientFeatures);
        assert!(error.message().contains("25 features"), "{error}");
        let none = ObjectMasks { masks: &[], least: 1 };
        assert_eq!(none.check(&frames).unwrap_err().kind(), ErrorKind::InvalidArgument);
    }
}
