//! Where each step begins in the whole, 0 to 1: by the time that steps take of usual captures, between photographs (whose time is
//! that of the mappers) and videos (where it is the last adjustments and the shutter).

/// Features come first; then what they have in common, ...
pub(crate) const MATCHING: f32 = 0.25;
/// ... which of it fits two pictures, ...
pub(crate) const TWO_VIEWS: f32 = 0.38;
/// ... how these lie to each other, ...
pub(crate) const RELATIVE_POSES: f32 = 0.42;
/// ... and all of them: at once, ...
pub(crate) const GLOBAL_MAP: f32 = 0.47;
/// ... or one after the other.
pub(crate) const INCREMENTAL_MAP: f32 = 0.53;
/// Pictures by other cameras join it.
pub(crate) const OTHER_CAMERAS: f32 = 0.58;
/// What is left is to make the map exact.
pub(crate) const ALIGNMENT: f32 = 0.62;
pub(crate) const LENS: f32 = 0.74;
pub(crate) const SHUTTER: f32 = 0.79;
pub(crate) const TAGS: f32 = 0.9;
pub(crate) const VERDICT: f32 = 0.91;
pub(crate) const OTHER_PLACES: f32 = 0.97;
