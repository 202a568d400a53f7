//! Fits Gaussians to undistorted frames with known poses.
//!
//! In: a PINHOLE [`crate::camera::SparseModel`] and its pictures ([`Dataset`]). Out: [`crate::splats::Splats`], and scores
//! on held-out views. The arithmetic is done by a [`crate::raster::Rasteriser`]; here are schedule and policy: the first
//! Gaussians, learning rates, resolution stages, density control, exposures, checkpoints.

mod checkpoint;
mod dataset;
mod density;
mod evaluate;
mod exposure;
mod initialise;
mod neighbours;
mod options;
mod picture;
mod schedule;
mod stereo;
#[cfg(test)]
mod tests;
mod trainer;

pub use dataset::{Dataset, DatasetView, SeedPoint};
pub(crate) use dataset::{centre, scaled_view, to_camera};
pub use evaluate::{Evaluation, ViewScore, evaluate_splats, psnr, ssim};
pub(crate) use neighbours::Neighbours;
pub use options::{TrainOptions, Tuning};
pub use picture::Picture;
pub use trainer::{TrainReport, Trainer};
