//! The AprilTag detector: a safe owner of AprilRobotics' C library, set to one family.

use std::ptr::NonNull;

use apriltag_sys as c;
use image::GrayImage;

use super::family::{Family, Modules, PRINTED_MODULES, out_of_memory};
use super::refine::refined;
use crate::error::Result;

/// Wrong bits of a code that are corrected. The codes of the family differ in 12 bits or more.
const MAX_HAMMING: i32 = 1;
/// Sides of a picture that the detector takes; its tables hold 32767 at most, and its tiles are 4 pixels wide.
const SIDES: std::ops::RangeInclusive<u32> = 32..=32_767;

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

/// A detector of the family's tags. Each thread has its own.
pub(crate) struct Detector {
    detector: NonNull<c::apriltag_detector_t>,
    /// Must outlive what `detector` points to: fields are dropped after `Drop::drop`, which ends the detector.
    family: Family,
}

// SAFETY: the C objects belong to this value alone and are bound to no thread.
unsafe impl Send for Detector {}

impl Detector {
    /// # Errors
    /// [`crate::ErrorKind::Internal`] where there is no memory for its tables (4 MB).
    pub(crate) fn new() -> Result<Self> {
        let family = Family::new()?;
        // SAFETY: a new detector, whose settings are plain fields. The family is one of the library's own, added to one
        // detector only. Without memory for the decoding table `impl_` stays null, which must not be used.
        unsafe {
            let detector = NonNull::new(c::apriltag_detector_create()).ok_or_else(out_of_memory)?;
            let settings = &mut *detector.as_ptr();
            settings.nthreads = 1;
            // Full resolution: corners of a picture at half its size are twice as wrong, and shifted.
            settings.quad_decimate = 1.0;
            settings.quad_sigma = 0.0;
            settings.refine_edges = true;
            settings.debug = false;
            c::apriltag_detector_add_family_bits(detector.as_ptr(), family.as_ptr(), MAX_HAMMING);
            let own = Self { detector, family };
            if (*own.family.as_ptr()).impl_.is_null() {
                return Err(out_of_memory());
            }
            Ok(own)
        }
    }

    /// The tags of a picture by id, then by place. A picture of less than 32 or more than 32767 pixels a side has none.
    pub(crate) fn detect(&mut self, picture: &mut GrayImage) -> Vec<Found> {
        let mut found = self.search(picture);
        for tag in &mut found {
            let corners = self.pattern(tag.id).and_then(|p| refined(picture, &p, &tag.corners));
            tag.corners = corners.unwrap_or(tag.corners);
        }
        found
    }

    fn pattern(&self, id: u32) -> Option<Modules> {
        let (_, white) = self.family.modules(id).filter(|(side, _)| *side == PRINTED_MODULES)?;
        Some(std::array::from_fn(|y| std::array::from_fn(|x| white[y * PRINTED_MODULES + x])))
    }

    /// The same with the corners of the border alone, which the library finds.
    pub(super) fn search(&mut self, picture: &mut GrayImage) -> Vec<Found> {
        let (width, height) = picture.dimensions();
        if !SIDES.contains(&width) || !SIDES.contains(&height) {
            return Vec::new();
        }
        let mut view = c::image_u8_t {
            width: width as i32,
            height: height as i32,
            stride: width as i32,
            buf: picture.as_mut_ptr(),
        };
        let mut found = Vec::new();
        // SAFETY: `view` describes the samples of `picture`, which nobody else touches meanwhile. The array holds pointers to
        // detections that are valid until they are destroyed, together with it, below.
        unsafe {
            let list = c::apriltag_detector_detect(self.detector.as_ptr(), &mut view);
            let Some(array) = NonNull::new(list) else { return found };
            let items = array.as_ref().data.cast::<*const c::apriltag_detection_t>();
            for k in 0..usize::try_from(array.as_ref().size).unwrap_or(0) {
                let tag = &*items.add(k).read_unaligned();
                found.push(Found {
                    id: tag.id as u32,
                    hamming: tag.hamming as u32,
                    margin: tag.decision_margin,
                    corners: tag.p,
                });
            }
            c::apriltag_detections_destroy(list);
        }
        found.retain(|tag| tag.corners.as_flattened().iter().all(|v| v.is_finite()));
        // The library sorts by id only.
        found.sort_by(|a, b| {
            let place = |f: &Found| (f.corners[0][0], f.corners[0][1]);
            let (p, q) = (place(a), place(b));
            a.id.cmp(&b.id).then(p.0.total_cmp(&q.0)).then(p.1.total_cmp(&q.1))
        });
        found
    }
}

impl Drop for Detector {
    fn drop(&mut self) {
        // SAFETY: made by the matching function; the family it refers to is still alive.
        unsafe { c::apriltag_detector_destroy(self.detector.as_ptr()) }
    }
}

#[cfg(test)]
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
