//! Fits Gaussians to undistorted frames with known poses.
//!
//! In: a PINHOLE [`crate::camera::SparseModel`] and its pictures ([`Dataset`]). Out: [`crate::splats::Splats`], and scores
//! on held-out views. The arithmetic is done by a [`crate::raster::Rasteriser`]; here are schedule and policy: the first
//! Gaussians, learning rates, resolution stages, density control, exposures, checkpoints.
//!
//! ```
//! # fn main() -> libreconstruct::Result<()> {
//! use libreconstruct::Control;
//! use libreconstruct::camera::{Camera, CameraModel, Image, Point3D, Pose, SparseModel};
//! use libreconstruct::raster::{DeviceChoice, open};
//! use libreconstruct::train::{Dataset, TrainOptions, Trainer};
//! use nalgebra::Vector3;
//!
//! # let folder = tempfile::tempdir().unwrap();
//! # let images = folder.path();
//! // Four pictures of a grey wall of 100 points, from four places.
//! let mut model = SparseModel::default();
//! model.cameras.insert(1, Camera::from_focal(CameraModel::Pinhole, 40.0, 48, 32));
//! for id in 1..=4 {
//!     let name = format!("{id}.png");
//!     image::RgbImage::from_pixel(48, 32, image::Rgb([128; 3])).save(images.join(&name)).unwrap();
//!     let position = Vector3::new(0.2 * f64::from(id), 0.0, -2.0);
//!     let pose = Pose::look_at(&position, &Vector3::zeros(), &-Vector3::y()).unwrap();
//!     model.images.insert(id, Image { name, camera_id: 1, pose, points2d: Vec::new() });
//! }
//! for id in 0..100 {
//!     let xyz = Vector3::new((id % 10) as f64 * 0.2 - 1.0, (id / 10) as f64 * 0.2 - 1.0, 0.0);
//!     model.points.insert(id, Point3D { xyz, rgb: [128; 3], error: 0.5, track: Vec::new() });
//! }
//!
//! let control = Control::new();
//! let dataset = Dataset::from_model(&model, images, None)?;
//! let options = TrainOptions { training_num_steps: 5, dense_initialisation: false, ..TrainOptions::default() };
//! let mut trainer = Trainer::new(dataset, options, open(&DeviceChoice::Cpu)?, &control)?;
//! while !trainer.is_finished() {
//!     trainer.step(&control)?;
//! }
//! println!("loss {:.3}, {} Gaussians", trainer.statistics()?.loss, trainer.splats()?.len());
//! # assert!(trainer.statistics()?.loss.is_finite() && trainer.steps_done() == 5);
//! # Ok(())
//! # }
//! ```

mod budget;
mod checkpoint;
mod clean;
mod dataset;
mod density;
mod evaluate;
mod exposure;
mod initialise;
mod layout;
mod long_run;
mod options;
mod picture;
mod precision;
mod report;
mod schedule;
mod seeds;
mod stereo;
#[cfg(test)]
mod tests;
mod trainer;
mod view_order;
mod warnings;
mod workload;
mod writing;

pub(crate) use checkpoint::{Checkpoint, steps_of};
pub use dataset::{Dataset, DatasetView, SeedPoint};
pub use evaluate::{Evaluation, ViewScore, evaluate_splats, psnr, ssim};
#[cfg(feature = "service")]
pub(crate) use layout::TARGET_BYTES_MAX;
pub use options::{TrainOptions, Tuning};
pub use picture::Picture;
pub use report::TrainReport;
pub use trainer::Trainer;
