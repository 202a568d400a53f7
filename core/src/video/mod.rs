//! From a video file (or a folder of images) to a few hundred sharp key frames.
//!
//! In: a path nobody has looked at yet; it may be anything, also hostile. Out: [`Frames`], pictures on disk, complete
//! once `frames.json` is there. ffmpeg runs as a child process that may open one local file in a few named containers
//! and codecs and nothing else; [`containment`] says what holds it to that. Called by the pipeline on its own thread; encoding uses the rayon pool of that thread.
//!
//! ```
//! # fn main() -> libreconstruct::Result<()> {
//! use libreconstruct::Control;
//! use libreconstruct::video::{FrameOptions, VideoWriter, extract_frames, probe};
//!
//! # let folder = tempfile::tempdir().unwrap();
//! # let folder = folder.path();
//! let video = folder.join("clip.mp4");
//! let mut writer = VideoWriter::create(&video, 160, 120, 10.0)?;
//! for n in 0..10 {
//!     let grey = |x, y| 200 * (((x + 4 * n) / 8 + y / 8) % 2) as u8; // squares that move to the left
//!     writer.write(&image::RgbImage::from_fn(160, 120, |x, y| image::Rgb([grey(x, y); 3])))?;
//! }
//! writer.finish()?;
//!
//! assert_eq!(probe(&video)?.codec, "h264");
//! let options = FrameOptions { max_frames: 5, ..FrameOptions::default() };
//! let frames = extract_frames(&video, &folder.join("frames"), &options, &Control::new())?;
//! assert!(frames.frames.len() >= 3);
//! assert_eq!(frames.rgb(0)?.dimensions(), (160, 120));
//! # Ok(())
//! # }
//! ```

mod adding;
mod by_camera;
mod clips_of_folder;
mod contact_sheet;
mod containment;
mod decode;
mod encode;
mod exif;
mod extract;
mod ffmpeg;
mod frames;
mod full_size;
mod images;
mod key_frames_of_video;
mod keyframes;
mod motion;
mod panorama;
mod panorama_photographs;
#[cfg(test)]
mod panorama_tests;
mod picture;
#[cfg(feature = "service")]
mod picture_archive;
mod probe;
mod process;
#[cfg(target_os = "linux")]
mod sandbox;
mod seam;
mod several_clips;
#[cfg(target_os = "linux")]
mod system_calls;
#[cfg(test)]
mod tests;

pub use adding::add_frames;
pub(crate) use contact_sheet::{contact_sheet, thumbnail, write_number};
pub use containment::{Protection, containment};
pub use encode::VideoWriter;
pub(crate) use exif::exif_of;
pub(crate) use extract::holds_frames;
pub use extract::{extract_frames, probe_video as probe};
#[cfg(feature = "service")]
pub(crate) use ffmpeg::check_tools;
pub use frames::{Frame, FrameOptions, FrameSource, Frames, Projection, VideoInfo};
pub(crate) use full_size::at_full_size;
pub use panorama::{cut_panorama, side_size};
pub(crate) use picture::luma;
#[cfg(feature = "service")]
pub(crate) use picture_archive::{
    begins_as_archive, is_archive, most_unpacked, unpack as unpack_pictures, unpacked_size,
};
pub(crate) use probe::info_of;
#[cfg(feature = "service")]
pub(crate) use probe::quick_check;

/// Long side of the pictures on which frames are measured.
const SURVEY_SIDE: u32 = 480;
