//! `reconstruct convert`: from one scene format to another.

use std::path::PathBuf;

use clap::Args;
use libreconstruct::Result;
use libreconstruct::splats::{SceneFormat, Splats, SpzOptions, SpzVersion};

use crate::context::Context;

/// Convert a scene between .ply, .spz, .glb and .sog
///
/// Reads 3DGS .ply (any property order; SuperSplat's compressed.ply too), .spz versions 1 to 4, .glb
/// (binary glTF with KHR_gaussian_splatting) and .sog version 2 (the archive of PlayCanvas).
#[derive(Args)]
pub(crate) struct Arguments {
    /// The scene to read
    input: PathBuf,
    /// The scene to write (.ply, .spz, .glb or .sog)
    output: PathBuf,
    /// Version of the .spz file: 3 is what most viewers read
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u8).range(2..=4))]
    spz_version: u8,
    /// Keep at most this many splats, enlarged so that they cover what all of them did, in one colour each: a quick first look
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    thin: Option<u32>,
}

impl Arguments {
    pub(crate) fn run(&self, context: &Context<'_>) -> Result<()> {
        let format = SceneFormat::of(&self.output)?;
        let mut splats = Splats::read(&self.input)?;
        if let Some(count) = self.thin {
            splats = splats.thinned(count as usize);
        }
        match format {
            SceneFormat::Ply => splats.write_ply(&self.output)?,
            SceneFormat::Glb => splats.write_glb(&self.output)?,
            SceneFormat::Sog => splats.write_sog(&self.output)?,
            SceneFormat::Spz => {
                let version = match self.spz_version {
                    2 => SpzVersion::V2,
                    4 => SpzVersion::V4,
                    _ => SpzVersion::V3,
                };
                splats.write_spz(&self.output, &SpzOptions { version, ..SpzOptions::default() })?;
            }
        }
        let value = serde_json::json!({ "splats": splats.len(), "sh_degree": splats.sh_degree, "output": self.output });
        let text =
            format!("{} splats, SH degree {}, in {}", splats.len(), splats.sh_degree, self.output.display());
        context.result(&value, &text);
        Ok(())
    }
}
