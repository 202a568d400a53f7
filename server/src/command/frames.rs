//! `reconstruct frames`: choose key frames.

use std::path::PathBuf;

use clap::Args;
use libreconstruct::Result;
use libreconstruct::video::{FrameOptions, extract_frames};

use super::ProjectionArguments;
use crate::context::Context;

/// Choose sharp key frames of a video
///
/// Equal motion between them rather than equal time, the sharpest around each. Writes frame_NNNNNN.jpg (named by the
/// zero-based number in the video), frames.json and the contact sheet frames.jpg. Each panorama that is chosen of a 360° video
/// becomes six pictures, frame_NNNNNN_front.jpg and so on. Frames of an earlier run in FOLDER are replaced; where it has other
/// pictures that are called so, it is an error, and they stay.
#[derive(Args)]
pub(crate) struct Arguments {
    /// Video file, or folder of pictures, videos or both
    video: PathBuf,
    /// Folder for the frames
    #[arg(short, long, value_name = "FOLDER")]
    output: PathBuf,
    /// At most this many frames [default: 150, or up to 450 where neighbouring ones would share
    /// too little]
    #[arg(long, value_name = "N")]
    max_frames: Option<usize>,
    /// Long side of the frames in pixels at most
    #[arg(long, value_name = "PIXELS", default_value_t = 1600)]
    max_resolution: u32,
    #[command(flatten)]
    projection: ProjectionArguments,
}

impl Arguments {
    pub(crate) fn run(&self, context: &Context<'_>) -> Result<()> {
        let options = FrameOptions {
            max_resolution: self.max_resolution,
            projection: self.projection.named(),
            ..FrameOptions::of_at_most(self.max_frames)
        };
        let frames = extract_frames(&self.video, &self.output, &options, context.control)?;
        let sheet = self.output.join("frames.jpg");
        let text =
            format!("{} in {}\ncontact sheet {}", frames.summary(), self.output.display(), sheet.display());
        context.result(&frames, &text);
        Ok(())
    }
}
