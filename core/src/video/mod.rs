//! From a video file (or a folder of images) to a few hundred sharp key frames.
//!
//! In: a path nobody has looked at yet; it may be anything, also hostile. Out: [`Frames`], pictures on disk. ffmpeg
//! runs as a child process that may open one local file in a few named containers and nothing else.

mod encode;
mod ffmpeg;
mod frames;
mod process;

pub use encode::VideoWriter;
pub use frames::{Frame, FrameOptions, FrameSource, Frames, VideoInfo};
