//! Finds the tags in a picture: the C library finds them, all edges of the pattern say where their corners are.

use image::GrayImage;

use super::family::{Modules, PRINTED_MODULES};
use super::found::Found;
use super::library::Search;
use super::refine::refined;
use crate::error::Result;

/// A detector of the family's tags. Each thread has its own.
pub(crate) struct Detector {
    library: Search,
}

impl Detector {
    /// # Errors
    /// [`crate::ErrorKind::Internal`] where there is no memory for its tables (4 MB); [`crate::ErrorKind::Unsupported`] in a
    /// library that was built without the feature `tags`.
    pub(crate) fn new() -> Result<Self> {
        Ok(Self { library: Search::new()? })
    }

    /// The tags of a picture by id, then by place. A picture of less than 32 or more than 32767 pixels a side has none.
    pub(crate) fn detect(&mut self, picture: &mut GrayImage) -> Vec<Found> {
        let mut found = self.library.tags(picture);
        for tag in &mut found {
            let corners = self.pattern(tag.id).and_then(|p| refined(picture, &p, &tag.corners));
            tag.corners = corners.unwrap_or(tag.corners);
        }
        found
    }

    fn pattern(&self, id: u32) -> Option<Modules> {
        let (_, white) = self.library.family.modules(id).filter(|(side, _)| *side == PRINTED_MODULES)?;
        Some(std::array::from_fn(|y| std::array::from_fn(|x| white[y * PRINTED_MODULES + x])))
    }
}

#[cfg(test)]
#[cfg(feature = "tags")]
mod tests {
    use super::*;
    use crate::fiducial::{PRINTED_MODULES, modules};

    /// Tag `id`, `module` pixels a module, upright on white with a margin of four modules.
    fn sheet(id: u32, module: u32) -> GrayImage {
        let bits = modules(id).unwrap();
        let side = (PRINTED_MODULES as u32 + 8) * module;
        GrayImage::from_fn(side, side, |x, y| {
            let cell = |v: u32| (v / module).checked_sub(4).filter(|c| *c < PRINTED_MODULES as u32);
            let white = match (cell(x), cell(y)) {
                (Some(x), Some(y)) => bits[y as usize][x as usize],
                _ => true,
            };
            image::Luma([if white { 230 } else { 20 }])
        })
    }

    #[test]
    fn the_corners_are_those_of_the_inner_white_square_with_pixel_centres_at_the_half() {
        let mut detector = Detector::new().unwrap();
        for (id, module) in [(0, 6), (7, 8), (2114, 11)] {
            let found = detector.detect(&mut sheet(id, module));
            assert_eq!(found.len(), 1, "{found:?}");
            assert_eq!((found[0].id, found[0].hamming), (id, 0));
            // The inner square begins after the margin (4 modules) and the two outer rings, and is 5 wide.
            let (low, high) = (f64::from(6 * module), f64::from(11 * module));
            let expected = [[low, high], [high, high], [high, low], [low, low]];
            for (corner, expected) in found[0].corners.iter().zip(expected) {
                for k in 0..2 {
                    assert!((corner[k] - expected[k]).abs() < 0.12, "{:?}", found[0].corners);
                }
            }
        }
    }

    #[test]
    fn a_tag_of_another_family_is_none() {
        // tag36h11, id 0, with its black border.
        const OTHER: [&[u8; 8]; 8] = [
            b"00000000",
            b"01101010",
            b"00111010",
            b"00110000",
            b"01010000",
            b"00101100",
            b"00001000",
            b"00000000",
        ];
        let mut picture = GrayImage::from_pixel(200, 200, image::Luma([230]));
        for (x, y, pixel) in picture.enumerate_pixels_mut() {
            let cell = |v: u32| (v / 12).checked_sub(4).map(|c| c as usize);
            if let (Some(x), Some(y)) = (cell(x), cell(y))
                && let Some(b'0') = OTHER.get(y).and_then(|row| row.get(x))
            {
                pixel.0 = [20];
            }
        }
        assert_eq!(Detector::new().unwrap().detect(&mut picture), []);
    }

    #[test]
    fn pictures_of_any_size_are_taken() {
        let mut detector = Detector::new().unwrap();
        for (width, height) in [(0, 0), (1, 1), (31, 400), (32, 32), (33, 1000), (641, 479), (32_768, 40)] {
            let mut picture =
                GrayImage::from_fn(width, height, |x, y| image::Luma([(x * 37 + y * 91) as u8]));
            assert!(detector.detect(&mut picture).is_empty());
        }
    }

    #[test]
    fn detectors_come_and_go_on_many_threads() {
        let threads: Vec<_> = (0..4)
            .map(|k| {
                std::thread::spawn(move || {
                    for _ in 0..3 {
                        let mut detector = Detector::new().unwrap();
                        assert_eq!(detector.detect(&mut sheet(k, 7))[0].id, k);
                    }
                })
            })
            .collect();
        threads.into_iter().for_each(|t| t.join().unwrap());
    }
}
