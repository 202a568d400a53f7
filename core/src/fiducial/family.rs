//! The family of tags: its name, its measures, and the pattern of each tag.

use super::library::Family;
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
