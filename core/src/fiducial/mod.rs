//! AprilTags: found in the frames at full resolution, so that structure from motion can measure in metres.
//!
//! ```text
//! video or pictures ─ detect_tags ─▶ Tags (tags.json) ─ sfm::reconstruct_with_tags ─▶ SparseModel in metres
//! ```
//!
//! One family is known, **tagStandard41h12**, and one length belongs to a tag: the edge of its inner white square, at
//! which white meets black. That is 5/9 of the printed width. [`print_tag`] draws a tag to print, [`draw_tags`] shows
//! what was found in a picture.
//!
//! The detector is AprilRobotics' (Wang & Olson, "AprilTag 2: Efficient and robust fiducial detection", IROS 2016;
//! Krogius et al., "Flexible Layouts for Fiducial Tags", IROS 2019); `refine.rs` then finds the corners by all edges of
//! the pattern. Detection runs on the rayon pool of the caller, one detector a thread; the result does not depend on
//! their number.
//!
//! ```
//! # #[cfg(not(feature = "tags"))]
//! # fn main() {}
//! # #[cfg(feature = "tags")]
//! # fn main() -> libreconstruct::Result<()> {
//! use libreconstruct::fiducial::{PRINTED_MODULES, detect_tags_in, modules, print_tag};
//!
//! let svg = print_tag(7, 100.0)?; // to print; the inner white square is 100 mm wide
//! assert!(svg.starts_with("<svg"));
//!
//! // A picture of it: 20 pixels a module, with a white margin of two modules.
//! let (tag, side) = (modules(7)?, 20 * (PRINTED_MODULES + 4));
//! let picture = image::GrayImage::from_fn(side as u32, side as u32, |x, y| {
//!     let (column, row) = ((x as usize / 20).wrapping_sub(2), (y as usize / 20).wrapping_sub(2));
//!     let white = tag.get(row).and_then(|r| r.get(column)).copied().unwrap_or(true);
//!     image::Luma([if white { 255 } else { 0 }])
//! });
//! let found = detect_tags_in(picture)?;
//! assert_eq!(found.len(), 1);
//! assert_eq!(found[0].id, 7);
//! assert!((found[0].edge - 100.0).abs() < 0.5); // 5 modules
//! # Ok(())
//! # }
//! ```

mod detector;
mod draw;
mod family;
mod found;
#[cfg(feature = "tags")]
mod library;
#[cfg(not(feature = "tags"))]
#[path = "library_missing.rs"]
mod library;
mod print;
mod refine;
mod tags;

pub use draw::{draw_tags, show_tags};
pub use family::{FAMILY, Modules, PRINTED_MODULES, TAG_COUNT, TAG_MODULES, modules};
pub use print::print_tag;
pub use tags::{FrameTags, Tag, Tags, detect_tags, detect_tags_in};
