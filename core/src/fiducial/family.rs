//! The family of tags: its name, its measures, and the pattern of each tag from the C library's own table.

use std::ptr::NonNull;

use apriltag_sys as c;

use crate::error::{Error, ErrorKind, Result};

/// The only family of tags that is looked for.
pub const FAMILY: &str = "tagStandard41h12";
/// Modules on a side of the printed tag.
pub const PRINTED_MODULES: usize = 9;
/// Modules on a side of the inner white square, whose edge is the tag's size.
pub const TAG_MODULES: usize = 5;
/// Tags in the family: ids are 0 to 2114.
pub const TAG_COUNT: u32 = 2115;
/// The pattern of a tag: rows from the top, columns from the left, true = white.
pub type Modules = [[bool; PRINTED_MODULES]; PRINTED_MODULES];

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
        // SAFETY: made by the matching function, and no detector uses it any more (`Detector` drops itself first).
        unsafe { c::tagStandard41h12_destroy(self.0.as_ptr()) }
    }
}

/// The pattern of tag `id`, from the detector's own table.
///
/// # Errors
/// [`crate::ErrorKind::InvalidArgument`] for an id above 2114.
pub fn modules(id: u32) -> Result<Modules> {
    let unknown =
        || Error::argument(format!("tag {id} does not exist: {FAMILY} has ids 0 to {}", TAG_COUNT - 1));
    let (side, white) = Family::new()?.modules(id).ok_or_else(unknown)?;
    if side != PRINTED_MODULES {
        return Err(Error::new(ErrorKind::Internal, format!("a tag of {side} modules")));
    }
    Ok(std::array::from_fn(|y| std::array::from_fn(|x| white[y * side + x])))
}

pub(super) fn out_of_memory() -> Error {
    Error::new(ErrorKind::Internal, "there is no memory for the tables of the tag detector")
}
