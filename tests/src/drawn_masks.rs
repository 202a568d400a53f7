//! Masks of real captures that were drawn by hand: `tests/drawn_masks/`, whose README says how.

use std::path::{Path, PathBuf};

use image::GrayImage;
use libreconstruct::background::{MASKS, MaskOptions, ObjectPoint};
use libreconstruct::masks::{mask_path, read_mask};
use libreconstruct::pipeline::{PosesOptions, PosesReport, files, find_poses, frames_of};
use libreconstruct::sfm::SfmOptions;
use libreconstruct::video::FrameOptions;
use libreconstruct::{Control, Error, Result};

use crate::cost::{MeasuredCost, StepMeter};
use crate::masks::{MaskScore, known_masks, pixel_of_object, scores};

/// A capture with drawn masks. Its pictures are real and no part of the project.
pub struct DrawnCapture {
    /// Name of its folder among the captures, and of that of its masks.
    pub name: &'static str,
    /// Its pictures in that folder: a folder, or a video.
    pub pictures: &'static str,
    /// Width and height of every picture, as it was filmed.
    pub size: (u32, u32),
}

/// Number of masks that were drawn of each capture.
pub const MASKS_OF_A_CAPTURE: usize = 10;

/// The steps of [`find_poses`] that make masks, as its progress names them.
const MASK_STEPS: &[&str] = &["finding the object", "a quick scene", "masks"];

/// All of them.
pub const DRAWN_CAPTURES: &[DrawnCapture] = &[
    DrawnCapture { name: "banana", pictures: "images", size: (1504, 1000) },
    DrawnCapture { name: "drone-object", pictures: "images", size: (1280, 720) },
    DrawnCapture { name: "fox", pictures: "images", size: (1080, 1920) },
    DrawnCapture { name: "stone-sign-orbit", pictures: "video.mp4", size: (450, 800) },
    DrawnCapture { name: "temple-ring", pictures: "images", size: (640, 480) },
    DrawnCapture { name: "tree-snow", pictures: "video.mp4", size: (450, 800) },
];

impl DrawnCapture {
    /// The folder of its masks, named as the frames are that the program makes of its pictures.
    pub fn masks(&self) -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("drawn_masks").join(self.name)
    }

    /// Finds poses and masks of the capture in the folder `captures`, leaves them in `folder`, and says how close the masks came
    /// to those drawn, and what making them took, without the frames and the poses. A picture whose pose was not found has no
    /// score. `point` is the part of the object (percent) that is nearer to its middle than the pixel that is pointed at, in the
    /// first picture. The listener of `control` hears of the frames alone.
    ///
    /// # Errors
    /// Those of [`frames_of`], [`find_poses`], [`known_masks`] and [`scores`].
    pub fn judge(
        &self,
        captures: &Path,
        masks: &MaskOptions,
        point: Option<u32>,
        folder: &Path,
        control: &Control,
    ) -> Result<(Vec<MaskScore>, PosesReport, MeasuredCost)> {
        let pictures = captures.join(self.name).join(self.pictures);
        let (frames, source) = frames_of(&pictures, folder, &FrameOptions::default(), control)?;
        let mut masks = masks.clone();
        if let Some(percent) = point {
            // The rule by which pictures were chosen begins with the first one.
            let first =
                frames.frames.first().ok_or_else(|| Error::argument("the capture has no pictures"))?;
            let mask = read_mask(&mask_path(&self.masks(), &first.name))?;
            let (x, y) = pixel_of_object(&mask, percent)
                .ok_or_else(|| Error::argument("the first picture does not show the object"))?;
            // Frames may be smaller than the pictures.
            let scale = f64::from(first.width) / f64::from(mask.width());
            masks.object_at = Some(ObjectPoint { x: scale * x, y: scale * y, frame: None });
        }
        let options = PosesOptions { sfm: SfmOptions::default(), background: Some(masks), add_to: None };
        let meter = StepMeter::start(MASK_STEPS);
        let report = find_poses(&frames, source, &options, folder, &meter.listening(control))?;
        let cost = meter.read();
        let known = known_masks(folder, &self.masks())?;
        let scores = match &report.background {
            Some(background) if background.masks > 0 => {
                scores(&known, &folder.join(files::UNDISTORTED).join(MASKS))?
            }
            // No mask at all is one that shows nothing.
            _ => known
                .iter()
                .map(|k| MaskScore::of(&k.name, &GrayImage::new(k.mask.width(), k.mask.height()), &k.mask))
                .collect(),
        };
        Ok((scores, report, cost))
    }
}
