//! `reconstruct frames`: choose key frames.

use std::path::PathBuf;

use clap::Args;
use libreconstruct::Result;
use libreconstruct::video::{FrameOptions, extract_frames};

use crate::context::Context;

/// Choose sharp key frames of a video
///
/// Equal motion between them rather than equal time, the sharpest around each. Writes frame_NNNNNN.jpg (named by the
/// zero-based number in the video), frames.json and the contact sheet frames.jpg.
#[derive(Args)]
pub(crate) struct Arguments {
    /// Video file or folder of pictures
    video: PathBuf,
    /// Folder for the frames
    #[arg(short, long, value_name = "FOLDER")]
    output: PathBuf,
    /// At most this many frames
    #[arg(long, value_name = "N", default_value_t = 150)]
    max_frames: usize,
    /// Long side of the frames in pixels at most
    #[arg(long, value_name = "PIXELS", default_value_t = 1600)]
    max_resolution: u32,
}

impl Arguments {
    pub(crate) fn run(&self, context: &Context<'_>) -> Result<()> {
        let options = FrameOptions {
            max_frames: self.max_frames,
            max_resolution: self.max_resolution,
            projection: None,
        };
        let frames = extract_frames(&self.video, &self.output, &options, context.control)?;
        let sheet = self.output.join("frames.jpg");
        let text = format!(
            "{} of {} frames in {}\ncontact sheet {}",
            frames.frames.len(),
            frames.total,
            self.output.display(),
            sheet.display()
        );
        context.result(&frames, &text);
        Ok(())
    }
}
