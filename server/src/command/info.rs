//! `reconstruct info`: what is in a file.

use std::path::PathBuf;

use clap::Args;
use libreconstruct::camera::SparseModel;
use libreconstruct::glam::Vec3;
use libreconstruct::splats::{SceneFormat, Splats};
use libreconstruct::video::{Projection, probe};
use libreconstruct::{Error, Result};

use crate::context::Context;

/// Say what is in a scene (.ply, .spz, .glb, .sog), a COLMAP model (folder) or a video
#[derive(Args)]
pub(crate) struct Arguments {
    /// The file or folder
    path: PathBuf,
}

impl Arguments {
    pub(crate) fn run(&self, context: &Context<'_>) -> Result<()> {
        if self.path.is_dir() {
            return self.model(context);
        }
        if !self.path.exists() {
            return Err(Error::io("open", &self.path, std::io::ErrorKind::NotFound.into()));
        }
        match SceneFormat::of(&self.path) {
            Ok(_) => self.scene(context),
            Err(_) => self.video(context),
        }
    }

    fn scene(&self, context: &Context<'_>) -> Result<()> {
        let splats = Splats::read(&self.path)?;
        // A scene without splats reaches from nowhere to nowhere.
        let corner =
            |of: fn(Vec3, Vec3) -> Vec3| splats.means.iter().copied().reduce(of).map(|v| v.to_array());
        let (low, high) = (corner(Vec3::min), corner(Vec3::max));
        let reach = low
            .zip(high)
            .map_or(String::new(), |(low, high)| format!("\n  from {low:.3?}\n  to   {high:.3?}"));
        let size = std::fs::metadata(&self.path).map_or(0, |m| m.len());
        let value = serde_json::json!({
            "kind": "scene", "splats": splats.len(), "sh_degree": splats.sh_degree,
            "antialiased": splats.antialiased, "low": low, "high": high, "bytes": size,
        });
        let text = format!(
            "Gaussian scene: {} splats, SH degree {}, {:.1} MB{reach}",
            splats.len(),
            splats.sh_degree,
            size as f64 / 1e6
        );
        context.result(&value, &text);
        Ok(())
    }

    fn model(&self, context: &Context<'_>) -> Result<()> {
        let model = SparseModel::read(&self.path)?;
        let names: Vec<&str> = model.images.values().map(|i| i.name.as_str()).collect();
        let cameras: Vec<String> = model
            .cameras
            .iter()
            .map(|(id, c)| format!("{id}: {} {}x{} {:.6?}", c.model.name(), c.width, c.height, c.params))
            .collect();
        let value = serde_json::json!({
            "kind": "model", "images": names, "points": model.points.len(), "cameras": cameras,
            "mean_track_length": model.mean_track_length(),
            "mean_reprojection_error": model.mean_reprojection_error(),
        });
        let text = format!(
            "COLMAP model: {} images, {} points, mean track length {:.2}, reprojection error {:.3} px\n  {}\n  {}",
            model.images.len(),
            model.points.len(),
            model.mean_track_length(),
            model.mean_reprojection_error(),
            cameras.join("\n  "),
            names.join(" ")
        );
        context.result(&value, &text);
        Ok(())
    }

    fn video(&self, context: &Context<'_>) -> Result<()> {
        let info = probe(&self.path)?;
        let text = format!(
            "Video: {} in {}, {}x{}, {:.2} s, {:.2} frames/s{}{}{}",
            info.codec,
            info.container,
            info.width,
            info.height,
            info.duration,
            info.frame_rate,
            if info.rotation == 0 { String::new() } else { format!(", turned by {} degrees", info.rotation) },
            if info.hdr { ", HDR (tone-mapped)" } else { "" },
            if info.projection == Projection::Equirectangular { ", 360° (equirectangular)" } else { "" }
        );
        context.result(&info, &text);
        Ok(())
    }
}
