//! `reconstruct render`: pictures of a scene.

use std::path::PathBuf;

use clap::Args;
use libreconstruct::camera::SparseModel;
use libreconstruct::raster::{DeviceChoice, open};
use libreconstruct::scene::{Splats, TurntableOptions, render_turntable, write_preview};
use libreconstruct::train::view_of_image;
use libreconstruct::{Error, ErrorKind, Result};

use crate::Context;

/// Render a scene: from where a frame was taken, or a turntable video
///
/// Cameras come from a COLMAP model of PINHOLE cameras (undistorted/sparse of a reconstruction).
#[derive(Args)]
pub(crate) struct Arguments {
    /// The scene (.ply or .spz)
    scene: PathBuf,
    /// Folder of the COLMAP model
    #[arg(long, value_name = "FOLDER")]
    cameras: PathBuf,
    /// What to write: .jpg for one view, .mp4 for a turntable
    #[arg(short, long)]
    output: PathBuf,
    /// Name of the image from whose place to look [default: the first]
    #[arg(long, value_name = "NAME")]
    image: Option<String>,
    /// auto, cpu, gpu, or part of a graphics adapter's name
    #[arg(long, default_value = "auto")]
    device: DeviceChoice,
}

impl Arguments {
    pub(crate) fn run(&self, context: &Context<'_>) -> Result<()> {
        let splats = Splats::read(&self.scene)?;
        let model = SparseModel::read(&self.cameras)?;
        let mut rasteriser = open(&self.device)?;
        let kind = self.output.extension().and_then(|e| e.to_str()).map(str::to_ascii_lowercase);
        match kind.as_deref() {
            Some("mp4") => render_turntable(
                &splats,
                &model,
                &self.output,
                &TurntableOptions::default(),
                rasteriser.as_mut(),
                context.control,
            )?,
            Some("jpg" | "jpeg") => {
                let image = match &self.image {
                    Some(name) => model.images.values().find(|i| i.name == *name).ok_or_else(|| {
                        Error::new(
                            ErrorKind::InvalidArgument,
                            format!("no image of the model is named {name}"),
                        )
                        .hint("reconstruct info lists the names of a model")
                    })?,
                    None => model
                        .images
                        .values()
                        .next()
                        .ok_or_else(|| Error::new(ErrorKind::InvalidFile, "the model has no image"))?,
                };
                let view = view_of_image(&model, image)?;
                write_preview(&splats, &view, &self.output, rasteriser.as_mut())?;
            }
            _ => {
                return Err(Error::argument(format!(
                    "{} ends neither in .jpg nor in .mp4",
                    self.output.display()
                )));
            }
        }
        let value = serde_json::json!({ "output": self.output });
        context.result(&value, &format!("{}", self.output.display()));
        Ok(())
    }
}
