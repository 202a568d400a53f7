//! libreconstruct: a video goes in; camera poses, a Gaussian scene (`scene.ply`, `scene.spz`) and a preview come out.
//!
//! The way the data flows; every arrow is one value type, and every stage is usable by itself:
//!
//! ```text
//! video file ─ video::extract_frames ─▶ Frames ─ sfm::reconstruct ─▶ SparseModel
//!            ─ camera::undistort ─▶ PINHOLE frames ─ train::Trainer ─▶ Splats ─ presentation ─▶ preview
//! ```
//!
//! - [`video`]: probe, decode (ffmpeg as a child process), pick sharp key frames.
//! - [`fiducial`]: AprilTags in the frames, for metric scale.
//! - [`sfm`]: structure from motion, from features to bundle adjustment.
//! - [`camera`]: camera models, poses, undistortion, COLMAP's files. States the frame convention.
//! - [`background`]: masks of the object, on which all views agree; only if asked for. [`masks`]: masks as files.
//! - [`raster`]: the differentiable rasteriser's passes, on the CPU and through wgpu.
//! - [`train`]: fits Gaussians to the frames with those passes.
//! - [`splats`]: Gaussian scenes and their files. [`presentation`]: what is shown of them: preview, turntable.
//! - [`pipeline`]: runs the stages in a folder, resumably.
//! - [`service`]: users, uploads and jobs over one folder, with workers that run the pipeline; [`job`], [`database`] and
//!   [`storage`] are its values, rows and files.
//!
//! Long calls take a [`Control`]: it cancels them and hears of their progress. Calls block; run them on a thread of
//! their own. They use the rayon pool on which they are called (`ThreadPool::install` sets the number of threads),
//! and their results do not depend on it.

#[cfg(any(feature = "cloud", feature = "postgres"))]
mod async_runtime;
pub mod background;
pub mod camera;
pub mod control;
#[cfg(feature = "service")]
pub mod database;
mod defaults;
pub mod error;
pub mod failpoints;
pub mod fiducial;
mod file_lock;
mod files;
#[doc(hidden)]
pub mod fuzzing;
mod hashing;
mod hex;
#[cfg(test)]
mod interop;
#[cfg(feature = "service")]
pub mod job;
mod jpeg;
pub mod masks;
mod memory;
mod neighbours;
mod own_results;
mod picture_file;
pub mod pipeline;
#[cfg(test)]
#[cfg_attr(not(feature = "background"), allow(dead_code, reason = "nothing else needs the weights"))]
#[path = "../../tests/src/prerequisites.rs"]
#[allow(unreachable_pub)] // the crate whose file it is makes it public
mod prerequisites;
pub mod presentation;
mod random;
pub mod raster;
mod remaining_time;
#[cfg(feature = "service")]
pub mod service;
pub mod sfm;
pub mod splats;
mod stage;
mod statistics;
#[cfg(feature = "service")]
pub mod storage;
pub mod train;
pub mod video;

/// The vectors and matrices of [`splats`] and [`raster`], in the version that they are of.
pub use glam;

/// The version of the engine, for example `0.1.0`.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

pub use control::{CancelToken, Control, Event, Preview, Warning};
pub use error::{Error, ErrorKind, Result};
pub use files::write_file;
pub use stage::Stage;
