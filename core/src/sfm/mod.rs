//! Structure from motion: from frames to camera poses and scene points.
//!
//! Global structure from motion as in GLOMAP (Pan et al., ECCV 2024), native, for the case that matters here: many
//! pictures by one camera whose focal length nobody knows.
//!
//! ```text
//! features → pairing → matching → two_view → view_graph (focal length) → rotation_averaging → tracks
//!          → global_positioning → bundle_adjustment → retriangulation → resection → gate → SparseModel
//! ```
//!
//! Estimators compute in f64 and are deterministic for any number of threads: parallel loops write to their own
//! slots, and sums are taken in a fixed order.

mod bundle_adjustment;
pub mod features;
mod filters;
mod global_positioning;
mod levenberg_marquardt;
mod map;
pub mod matching;
pub mod pairing;
mod projection;
pub mod rotation_averaging;
mod scale_averaging;
mod schur;
#[cfg(test)]
mod synthetic;
mod tracks;
mod triangulation;
pub mod two_view;
mod vlad;
