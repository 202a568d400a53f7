//! Which camera made which picture of a capture, and what of it was filmed: in a folder each clip counts as a camera, and so does what
//! is added to an earlier capture.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use crate::video::Frames;

/// The pictures of a capture by camera.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Clips {
    /// By image: the number of its camera.
    pub(super) camera: Vec<u32>,
    /// Of each camera that filmed: its images, which follow each other in the order of time.
    pub(super) filmed: Vec<Range<usize>>,
}

impl Clips {
    /// Those of `frames`. What was filmed is told by the names: they end with the number of the frame in its video.
    pub(super) fn of_frames(frames: &Frames) -> Self {
        let camera: Vec<u32> = frames.frames.iter().map(|f| f.camera).collect();
        let mut made: BTreeMap<u32, usize> = BTreeMap::new();
        camera.iter().for_each(|&number| *made.entry(number).or_default() += 1);
        let (mut filmed, mut end) = (Vec::new(), 0);
        for run in frames.frames.chunk_by(|a, b| a.camera == b.camera) {
            let images = end..end + run.len();
            end = images.end;
            let is_all = run.first().is_some_and(|f| made.get(&f.camera) == Some(&run.len()));
            let numbers: Option<Vec<u64>> = run.iter().map(|f| Frames::number_in_video(&f.name)).collect();
            if is_all && numbers.is_some_and(|numbers| numbers.is_sorted_by(|a, b| a < b)) {
                filmed.push(images);
            }
        }
        Self { camera, filmed }
    }

    /// How many cameras there are.
    pub(super) fn cameras(&self) -> usize {
        self.camera.iter().collect::<BTreeSet<_>>().len()
    }

    /// The images that are photographs.
    pub(super) fn photographs(&self) -> impl Iterator<Item = usize> {
        (0..self.camera.len()).filter(move |image| !self.filmed.iter().any(|clip| clip.contains(image)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::video::Frame;

    fn clips(pictures: &[(&str, u32)]) -> Clips {
        let frame = |(i, &(name, camera)): (usize, &(&str, u32))| Frame {
            camera,
            ..Frame::new(name, i as u64, 8, 6)
        };
        Clips::of_frames(&Frames::of_images("", pictures.iter().enumerate().map(frame).collect()))
    }

    #[test]
    fn what_was_filmed_is_told_by_the_names() {
        // An earlier video, a folder of photographs and clips that was added to it, two of them called alike.
        let found = clips(&[
            ("frame_000003.jpg", 0),
            ("frame_000011.jpg", 0),
            ("kitchen_IMG_1.jpg", 1),
            ("kitchen_IMG_2.jpg", 2),
            ("kitchen_IMG_3.jpg", 1),
            ("kitchen_anna_frame_000000.jpg", 3),
            ("kitchen_anna_frame_000007.jpg", 3),
            ("_kitchen_anna_frame_000000.jpg", 4),
            ("_kitchen_anna_frame_1000000.jpg", 4),
        ]);
        assert_eq!(found.camera, [0, 0, 1, 2, 1, 3, 3, 4, 4]);
        assert_eq!((&found.filmed[..], found.cameras()), (&[0..2, 5..7, 7..9][..], 5));
        assert_eq!(found.photographs().collect::<Vec<_>>(), [2, 3, 4]);
        assert_eq!(clips(&[]).cameras(), 0);
    }

    #[test]
    fn frames_that_are_in_no_order_of_time_are_photographs() {
        let backwards = [("frame_000003.jpg", 0), ("frame_000002.jpg", 0)];
        let two_videos = [("a_frame_000003.jpg", 0), ("b_frame_000003.jpg", 0)];
        let mixed = [("frame_000003.jpg", 0), ("IMG_1.jpg", 1), ("frame_000004.jpg", 0)];
        for pictures in [&backwards[..], &two_videos, &mixed] {
            assert!(clips(pictures).filmed.is_empty(), "{pictures:?}");
        }
    }
}
