//! AprilTags: found in the frames at full resolution, so that structure from motion can measure in metres.
//!
//! ```text
//! video or pictures ─ detect_tags ─▶ Tags (tags.json) ─ sfm::reconstruct_with_tags ─▶ SparseModel in metres
//! ```
//!
//! One family is known, **tagStandard41h12**, and one length belongs to a tag: the edge of its inner white square, at
//! which white meets black. That is 5/9 of the printed width. [`print_tag`] draws a tag to print, [`draw_tags`] shows what
//! was found in a picture.
//!
//! The detector is AprilRobotics' (Wang & Olson, "AprilTag 2: Efficient and robust fiducial detection", IROS 2016; Krogius
//! et al., "Flexible Layouts for Fiducial Tags", IROS 2019); `refine.rs` then finds the corners by all edges of the pattern.
//! Detection runs on the rayon pool of the caller, one detector a thread; the result does not depend on their number.

mod detector;
mod draw;
mod family;
mod print;
mod refine;
mod tags;

pub use draw::{draw_tags, show_tags};
pub use family::{FAMILY, Modules, PRINTED_MODULES, TAG_COUNT, TAG_MODULES, modules};
pub use print::print_tag;
pub use tags::{FrameTags, Tag, Tags, detect_tags, detect_tags_in};
