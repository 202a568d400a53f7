//! `reconstruct eval`: score a scene.

use std::path::PathBuf;

use clap::Args;
use libreconstruct::Result;
use libreconstruct::raster::{DeviceChoice, open};
use libreconstruct::splats::Splats;
use libreconstruct::train::{Dataset, evaluate_splats};

use crate::context::Context;

/// Score a scene on held-out pictures (PSNR, SSIM)
#[derive(Args)]
pub(crate) struct Arguments {
    /// The scene (.ply, .spz, .glb or .sog)
    scene: PathBuf,
    /// Folder with images/ and sparse/ (PINHOLE cameras)
    dataset: PathBuf,
    /// Score every Nth image, from the first; 1 = all of them
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..))]
    test_every: u32,
    /// Long side of the pictures in pixels at most
    #[arg(long, value_name = "PIXELS")]
    max_resolution: Option<u32>,
    /// auto, cpu, gpu, or part of a graphics adapter's name
    #[arg(long, default_value = "auto")]
    device: DeviceChoice,
}

impl Arguments {
    pub(crate) fn run(&self, context: &Context<'_>) -> Result<()> {
        let splats = Splats::read(&self.scene)?;
        let (sparse, images) = (self.dataset.join("sparse"), self.dataset.join("images"));
        let dataset = Dataset::open_to_score(&sparse, &images, self.test_every)?;
        let mut rasteriser = open(&self.device)?;
        let evaluation =
            evaluate_splats(&splats, &dataset, self.max_resolution, rasteriser.as_mut(), context.control)?;
        let mut text = format!(
            "PSNR {:.2} dB, SSIM {:.4} over {} pictures",
            evaluation.psnr,
            evaluation.ssim,
            evaluation.views.len()
        );
        for view in &evaluation.views {
            text += &format!("\n  {:<24} {:.2} dB  {:.4}", view.name, view.psnr, view.ssim);
        }
        context.result(&evaluation, &text);
        Ok(())
    }
}
