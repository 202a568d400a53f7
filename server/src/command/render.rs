//! `reconstruct render`: pictures of a scene.

use std::fs::File;
use std::io::Read;
use std::path::PathBuf;

use clap::Args;
use libreconstruct::camera::{Camera, CameraModel, Pose, SparseModel};
use libreconstruct::presentation::{CameraData, TurntableOptions, write_preview, write_turntable};
use libreconstruct::raster::load_for_viewing;
use libreconstruct::raster::{DeviceChoice, open};
use libreconstruct::splats::Splats;
use libreconstruct::{Error, ErrorKind, Result};

use crate::context::Context;

/// More bytes of a file with camera_data are not read: it has some hundred.
const CAMERA_BYTES: u64 = 64 << 10;

/// Render a scene: from where a frame was taken, as a viewer begins, or a turntable video
///
/// Cameras come from a COLMAP model of PINHOLE cameras (undistorted/sparse of a reconstruction), or from the camera_data
/// of a job (camera.json of a reconstruction), which is how a viewer begins.
#[derive(Args)]
pub(crate) struct Arguments {
    /// The scene (.ply, .spz, .glb or .sog)
    scene: PathBuf,
    /// Folder of the COLMAP model
    #[arg(long, value_name = "FOLDER", required_unless_present = "camera")]
    cameras: Option<PathBuf>,
    /// File with the camera_data to look from (position, lookAt, up), instead of --cameras
    #[arg(long, value_name = "FILE", conflicts_with_all = ["cameras", "image"])]
    camera: Option<PathBuf>,
    /// Vertical field of view for --camera in degrees, 1 to 170
    #[arg(long, value_name = "DEGREES", default_value_t = 50.0, requires = "camera")]
    field_of_view: f64,
    /// Width over height of the picture for --camera
    #[arg(long, value_name = "RATIO", default_value_t = 16.0 / 9.0, requires = "camera")]
    aspect: f64,
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
        let model = self.cameras.as_ref().map(|folder| SparseModel::read(folder)).transpose()?;
        let mut rasteriser = open(&self.device)?;
        let rasteriser = rasteriser.as_mut();
        let side = self.max_resolution;
        let kind = self.output.extension().and_then(|e| e.to_str()).map(str::to_ascii_lowercase);
        match (kind.as_deref(), &model) {
            (Some("mp4"), Some(model)) => {
                load_for_viewing(rasteriser, &splats)?;
                let options = TurntableOptions { max_side: side, ..Default::default() };
                write_turntable(
                    rasteriser,
                    splats.sh_degree,
                    model,
                    &options,
                    &self.output,
                    context.control,
                )?;
            }
            (Some("mp4"), None) => {
                return Err(Error::argument("a turntable needs the cameras that filmed the scene")
                    .hint("give their COLMAP model with --cameras"));
            }
            (Some("jpg" | "jpeg"), model) => {
                let (camera, pose) = match model {
                    Some(model) => self.camera_of_image(model)?,
                    None => self.camera_of_viewer()?,
                };
                load_for_viewing(rasteriser, &splats)?;
                let (degree, black) = (splats.sh_degree, [0.0; 3]);
                write_preview(rasteriser, degree, &camera, &pose, black, side, &self.output)?;
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

    /// The camera that took the wanted image.
    fn camera_of_image(&self, model: &SparseModel) -> Result<(Camera, Pose)> {
        let wanted = self.image.as_deref();
        let image = model.images.values().find(|i| wanted.is_none_or(|name| i.name == name));
        let image = image.ok_or_else(|| {
            let name = wanted.unwrap_or("any name");
            Error::argument(format!("no image of the model has {name}"))
                .hint("reconstruct info FOLDER lists the names of a model")
        })?;
        let camera = model.cameras.get(&image.camera_id).ok_or_else(|| {
            Error::new(ErrorKind::InvalidFile, format!("{} has no camera in the model", image.name))
        })?;
        Ok((camera.clone(), image.pose))
    }

    /// The camera with which a viewer begins.
    fn camera_of_viewer(&self) -> Result<(Camera, Pose)> {
        let (angle, aspect) = (self.field_of_view, self.aspect);
        if !(1.0..=170.0).contains(&angle) {
            return Err(Error::argument(format!("field-of-view is {angle}: 1 to 170 degrees are allowed")));
        }
        if !(0.1..=10.0).contains(&aspect) {
            return Err(Error::argument(format!("aspect is {aspect}: 0.1 to 10 is allowed")));
        }
        // Without --cameras there is --camera: the command line is checked for it.
        let path =
            self.camera.as_ref().ok_or_else(|| Error::argument("neither --camera nor --cameras is given"))?;
        let mut bytes = Vec::new();
        File::open(path)
            .and_then(|file| file.take(CAMERA_BYTES).read_to_end(&mut bytes))
            .map_err(|e| Error::io("read", path, e))?;
        let data: CameraData = serde_json::from_slice(&bytes).map_err(|e| {
            Error::new(ErrorKind::InvalidFile, format!("{} holds no camera_data: {e}", path.display()))
                .caused_by(e)
        })?;
        let long = f64::from(self.max_resolution.max(1));
        let (width, height) = if aspect > 1.0 { (long, long / aspect) } else { (long * aspect, long) };
        let focal = height / 2.0 / (angle.to_radians() / 2.0).tan();
        let (width, height) = (width.round().max(1.0) as u32, height.round().max(1.0) as u32);
        Ok((Camera::from_focal(CameraModel::Pinhole, focal, width, height), data.pose()?))
    }
}
