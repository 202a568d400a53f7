//! The value that leaves this stage: key frames on disk and what is known about them.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::control::Warning;

/// What to take from a video.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FrameOptions {
    /// At most this many key frames (at least 3).
    pub max_frames: usize,
    /// Long side of the stored frames in pixels at most; larger ones are scaled down (area averaging).
    pub max_resolution: u32,
}

impl Default for FrameOptions {
    fn default() -> Self {
        Self { max_frames: 150, max_resolution: 1600 }
    }
}

/// What is known about a video before it is decoded.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct VideoInfo {
    /// Container, as ffmpeg names it, for example `mov,mp4,m4a,3gp,3g2,mj2`.
    pub container: String,
    /// Codec, for example `h264`.
    pub codec: String,
    /// Width of the upright picture with square pixels.
    pub width: u32,
    /// Height of the upright picture with square pixels.
    pub height: u32,
    /// Clockwise rotation that the container asks for: 0, 90, 180 or 270 degrees. It has been applied to width and height.
    pub rotation: u32,
    /// Seconds.
    pub duration: f64,
    /// Mean frames per second.
    pub frame_rate: f64,
    /// Whether the colours are HDR (PQ or HLG) and are tone-mapped.
    pub hdr: bool,
}

/// Where frames came from.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum FrameSource {
    /// A video: frames are in the order of time, made by one camera.
    Video(VideoInfo),
    /// A folder of images, in the order of their names.
    Images,
}

/// One key frame.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Frame {
    /// File name in the folder: `frame_NNNNNN.jpg` with the zero-based number in the video, or the image's own name.
    pub name: String,
    /// Zero-based number in the video (in the list of images).
    pub index: u64,
    /// Seconds from the start of the video; absent for images.
    pub timestamp: Option<f64>,
    /// Width in pixels.
    pub width: u32,
    /// Height in pixels.
    pub height: u32,
    /// Sharpness relative to the frames around it; 1 is usual, larger is sharper.
    pub sharpness: f32,
    /// Focal length in pixels of this picture from EXIF, if it says so.
    pub focal_prior: Option<f64>,
}

/// Key frames on disk. Written to `frames.json` in the folder; pictures are 8-bit sRGB JPEG or PNG.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Frames {
    /// The folder of the pictures. Not stored: it is where `frames.json` is.
    #[serde(skip)]
    pub folder: PathBuf,
    /// Where they came from.
    pub source: FrameSource,
    /// How many pictures the source had in all.
    pub total: u64,
    /// The chosen frames, in order.
    pub frames: Vec<Frame>,
    /// What the user should know (rotation on the spot, mixed lenses, ...).
    pub warnings: Vec<Warning>,
}

impl Frames {
    /// Path of frame `index` (of `frames`, not of the video).
    ///
    /// # Panics
    /// If there is no such frame.
    pub fn path(&self, index: usize) -> PathBuf {
        self.folder.join(&self.frames[index].name)
    }

    /// Whether neighbours in the list are neighbours in time.
    pub fn is_sequential(&self) -> bool {
        matches!(self.source, FrameSource::Video(_))
    }

    /// The name of a video's frame: `frame_NNNNNN.jpg`.
    pub fn name_of(index: u64) -> String {
        format!("frame_{index:06}.jpg")
    }

    /// Where the description is stored in `folder`.
    pub fn description_path(folder: &Path) -> PathBuf {
        folder.join("frames.json")
    }
}
