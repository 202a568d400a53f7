//! Structure from motion: from frames to camera poses and scene points.
//!
//! Global structure from motion as in GLOMAP (Pan et al., ECCV 2024), native, for the case that matters here: many
//! pictures by one camera whose focal length nobody knows.
//!
//! ```text
//! features → pairing → matching → two_view → calibration (focal length) → rotation_averaging → tracks
//!          → global_positioning → bundle_adjustment → retriangulation → resection → gate → patch_alignment → shutter
//!          → metric_scale → verdict → SparseModel
//! ```
//!
//! Frames that are left and hang together by themselves go the same way again (`components`).
//!
//! Where the global path finds no sound model, the incremental one is tried. [`reconstruct`] is the whole of it.
//!
//! Estimators compute in f64 and are deterministic for any number of threads: parallel loops write to their own
//! slots, and sums are taken in a fixed order.

pub mod calibration;
pub mod features;
pub mod matching;
pub mod pairing;
pub mod rotation_averaging;
pub mod two_view;

mod base_model;
mod block_sparse;
mod bundle_adjustment;
mod clips;
mod completion;
mod components;
mod cut_out;
mod even_steps;
mod filters;
mod fisheye;
mod front_end;
mod gate;
mod geometry;
mod global_mapper;
mod global_positioning;
mod incremental_mapper;
mod joining;
mod kept;
mod lanes;
mod laplacian;
mod levenberg_marquardt;
mod map;
mod mapper_input;
mod mapper_options;
mod memory_needed;
mod metric_scale;
mod object_features;
mod options;
mod other_cameras;
mod output;
mod pairs_of_pictures;
mod patch_alignment;
mod path;
mod polishing;
mod progress;
mod projection;
mod reconstruct;
mod reconstruction;
mod report;
mod resection;
mod retriangulation;
mod rig;
mod scale_averaging;
mod schur;
mod sections;
mod shutter;
mod spots;
mod station_pairing;
mod steady_zoom;
mod stretches;
mod support;
#[cfg(test)]
mod synthetic;
mod tracks;
mod triangulation;
mod verdict;
mod vlad;
mod wide_pairs;

pub use metric_scale::{ScaleReport, TagReport};
pub use object_features::ObjectMasks;
pub use options::{MappingMethod, SfmOptions};
pub use reconstruct::{
    Given, add_to_model, reconstruct, reconstruct_given, reconstruct_object, reconstruct_with_tags,
};
pub use reconstruction::Reconstruction;
pub use report::{Attempt, CameraReport, ComponentReport, FrameRange, SfmReport, StepTime};
pub use shutter::ShutterReport;
pub use verdict::{Doubt, Evidence, FrameDoubt, Grade, Reason, Verdict};
