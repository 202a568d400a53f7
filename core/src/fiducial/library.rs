//! AprilRobotics' detector, a C library, behind values that own what it makes. All calls of C are in this file.

use std::ptr::NonNull;

use apriltag_sys as c;
use image::GrayImage;

use super::found::Found;
use crate::error::{Error, ErrorKind, Result};

/// Wrong bits of a code that are corrected. The codes of the family differ in 12 bits or more.
const MAX_HAMMING: i32 = 1;
/// Sides of a picture that the detector takes; its tables hold 32767 at most, and its tiles are 4 pixels wide.
const SIDES: std::ops::RangeInclusive<u32> = 32..=32_767;

/// The family's table of codes, owned.
pub(super) struct Family(NonNull<c::apriltag_family_t>);

impl Family {
    pub(super) fn new() -> Result<Self> {
        // SAFETY: the function takes nothing and gives a new family.
        let family = unsafe { c::tagStandard41h12_create() };
        NonNull::new(family).map(Self).ok_or_else(out_of_memory)
    }

    /// For the C library; valid as long as `self`.
    pub(super) fn as_ptr(&self) -> *mut c::apriltag_family_t {
        self.0.as_ptr()
    }

    /// Number of tags in the family.
    pub(super) fn count(&self) -> u32 {
        // SAFETY: the family is alive as long as `self`.
        unsafe { self.0.as_ref() }.ncodes
    }

    /// Modules of tag `id` row by row, true = white, and their number on a side; `None` for an id that the family lacks.
    pub(super) fn modules(&self, id: u32) -> Option<(usize, Vec<bool>)> {
        if id >= self.count() {
            return None;
        }
        // SAFETY: the family is alive and has this id; the picture is read within its height, stride and width, and freed
        // once.
        unsafe {
            let picture = NonNull::new(c::apriltag_to_image(self.0.as_ptr(), id))?;
            let (width, height, stride) = {
                let p = picture.as_ref();
                (p.width as usize, p.height as usize, p.stride as usize)
            };
            let bytes = std::slice::from_raw_parts(picture.as_ref().buf, stride * height);
            let white =
                (0..height).flat_map(|y| bytes[y * stride..y * stride + width].iter().map(|&v| v > 127));
            let white: Vec<bool> = white.collect();
            c::image_u8_destroy(picture.as_ptr());
            (white.len() == width * width).then_some((width, white))
        }
    }
}

impl Drop for Family {
    fn drop(&mut self) {
        // SAFETY: made by the matching function, and no detector uses it any more (`Search` drops itself first).
        unsafe { c::tagStandard41h12_destroy(self.0.as_ptr()) }
    }
}

/// The library's detector, set to the family's tags. Each thread has its own.
pub(super) struct Search {
    detector: NonNull<c::apriltag_detector_t>,
    /// Must outlive what `detector` points to: fields are dropped after `Drop::drop`, which ends the detector.
    pub(super) family: Family,
}

// SAFETY: the C objects belong to this value alone and are bound to no thread.
unsafe impl Send for Search {}

impl Search {
    /// # Errors
    /// [`crate::ErrorKind::Internal`] where there is no memory for its tables (4 MB).
    pub(super) fn new() -> Result<Self> {
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

    /// The tags of a picture by id, then by place, with the corners that their borders say. A picture of less than 32 or more
    /// than 32767 pixels a side has none.
    pub(super) fn tags(&mut self, picture: &mut GrayImage) -> Vec<Found> {
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

impl Drop for Search {
    fn drop(&mut self) {
        // SAFETY: made by the matching function; the family it refers to is still alive.
        unsafe { c::apriltag_detector_destroy(self.detector.as_ptr()) }
    }
}

fn out_of_memory() -> Error {
    Error::new(ErrorKind::Internal, "there is no memory for the tables of the tag detector")
}
