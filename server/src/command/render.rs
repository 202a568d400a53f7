//! `reconstruct render`: pictures of a scene.

use std::path::PathBuf;

use clap::Args;
use libreconstruct::camera::SparseModel;
use libreconstruct::raster::{DeviceChoice, open};
use libreconstruct::scene::{Splats, TurntableOptions, load_for_viewing, write_preview, write_turntable};
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
    /// Long side of the pictures in pixels at most
    #[arg(long, value_name = "PIXELS", default_value_t = 1280)]
    max_resolution: u32,
    /// auto, cpu, gpu, or part of a graphics adapter's name
    #[arg(long, default_value = "auto")]
    device: DeviceChoice,
}

impl Arguments {
    pub(crate) fn run(&self, context: &Context<'_>) -> Result<()> {
        let splats = Splats::read(&self.scene)?;
        let model = SparseModel::read(&self.cameras)?;
        let mut rasteriser = open(&self.device)?;
        let rasteriser = rasteriser.as_mut();
        let kind = self.output.extension().and_then(|e| e.to_str()).map(str::to_ascii_lowercase);
        match kind.as_deref() {
            Some("mp4") => {
                load_for_viewing(rasteriser, &splats)?;
                let options = TurntableOptions { max_side: self.max_resolution, ..Default::default() };
                write_turntable(
                    rasteriser,
                    splats.sh_degree,
                    &model,
                    &options,
                    &self.output,
                    context.control,
                )?;
            }
            Some("jpg" | "jpeg") => {
                let wanted = self.image.as_deref();
                let image = model.images.values().find(|i| wanted.is_none_or(|name| i.name == name));
                let image = image.ok_or_else(|| {
                    let name = wanted.unwrap_or("any name");
                    Error::argument(format!("no image of {} has {name}", self.cameras.display()))
                        .hint("reconstruct info FOLDER lists the names of a model")
                })?;
                let camera = model.cameras.get(&image.camera_id).ok_or_else(|| {
                    Error::new(ErrorKind::InvalidFile, format!("{} has no camera in the model", image.name))
                })?;
                load_for_viewing(rasteriser, &splats)?;
                let (degree, black) = (splats.sh_degree, [0.0; 3]);
                let side = self.max_resolution;
                write_preview(rasteriser, degree, camera, &image.pose, black, side, &self.output)?;
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
