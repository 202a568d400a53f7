//! From a video file (or a folder of images) to a few hundred sharp key frames.
//!
//! In: a path nobody has looked at yet; it may be anything, also hostile. Out: [`Frames`], pictures on disk, complete
//! once `frames.json` is there. ffmpeg runs as a child process that may open one local file in a few named containers
//! and nothing else. Called by the pipeline on its own thread; encoding uses the rayon pool of that thread.

mod contact_sheet;
mod decode;
mod encode;
mod extract;
mod ffmpeg;
mod frames;
mod full_size;
mod images;
mod keyframes;
mod motion;
mod picture;
mod probe;
mod process;
#[cfg(test)]
mod tests;

pub(crate) use contact_sheet::{contact_sheet, thumbnail, write_number};
pub use encode::VideoWriter;
pub use extract::{extract_frames, probe_video as probe};
pub use frames::{Frame, FrameOptions, FrameSource, Frames, VideoInfo};
pub(crate) use full_size::at_full_size;
pub(crate) use probe::quick_check;

/// Long side of the pictures on which frames are measured.
const SURVEY_SIDE: u32 = 480;
