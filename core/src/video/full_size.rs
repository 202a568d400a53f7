//! The chosen frames once more, as large as the source has them: for what must be measured finer than it is stored.

use std::path::{Path, PathBuf};

use image::GrayImage;
use rayon::prelude::*;

use crate::control::Control;
use crate::error::{Error, ErrorKind, Result};
use crate::stage::Stage;

use super::clips_of_folder::only_clip;
use super::decode::Decoder;
use super::probe::probe;
use super::{FrameSource, Frames, VideoInfo, images};

/// Calls `look` with the luma of every frame (and its index), upright and in the full resolution of `source`, the video or
/// folder that the frames were made from; without one, where nothing was scaled down, or where what a frame was made from cannot be told
/// any more, with the stored frame. So are sides of panoramas, which are as fine as the panorama unless it was scaled down. Runs on the
/// current rayon pool; `prepare` makes what a thread needs. Results are in the order of the frames. Progress goes from 0 to 1.
///
/// # Errors
/// Those of decoding and of `look`.
pub(crate) fn at_full_size<D: Send, T: Send>(
    frames: &Frames,
    source: Option<&Path>,
    control: &Control,
    prepare: impl Fn() -> Result<D> + Sync + Send,
    look: impl Fn(&mut D, usize, GrayImage) -> T + Sync + Send,
) -> Result<Vec<T>> {
    let total = frames.frames.len();
    let source = source.filter(|_| !frames.is_panoramic());
    let mut done = Vec::with_capacity(total);
    let mut decoder = match (source, &frames.source) {
        (Some(source), FrameSource::Video(info)) => Video::open(source, info, frames, control)?,
        _ => None,
    };
    let folder = match (source, &frames.source) {
        (Some(source), FrameSource::Images) => images::Originals::find(source, frames)?,
        _ => images::Originals::default(),
    };
    let batch = 2 * rayon::current_num_threads();
    while done.len() < total {
        control.check()?;
        let first = done.len();
        let indices = first..total.min(first + batch);
        let mut large: Vec<Option<GrayImage>> = vec![None; indices.len()];
        if let Some(video) = &mut decoder {
            for place in &mut large {
                *place = video.next(control)?;
            }
        }
        let results: Vec<Result<T>> = indices
            .into_par_iter()
            .zip(large)
            .map_init(&prepare, |tools, (i, large)| {
                let tools = tools.as_mut().map_err(|e| Error::new(e.kind(), e.message().to_owned()))?;
                let picture = match large {
                    Some(picture) => picture,
                    None => folder.luma(i).unwrap_or_else(|| frames.luma(i))?,
                };
                Ok(look(tools, i, picture))
            })
            .collect();
        for result in results {
            done.push(result?);
        }
        let fraction = done.len() as f32 / total as f32;
        control.progress(Stage::Sfm, "looking for tags", fraction);
    }
    if let Some(video) = decoder {
        video.finish(control)?;
    }
    Ok(done)
}

/// A video that is decoded once more.
struct Video {
    decoder: Decoder,
    probe: super::probe::Probe,
    /// Of the upright picture.
    size: (u32, u32),
}

impl Video {
    /// `None` if the stored frames are as large, or which video it was cannot be told any more.
    fn open(given: &Path, info: &VideoInfo, frames: &Frames, control: &Control) -> Result<Option<Self>> {
        let Some(path) = file_of(given, info)? else { return Ok(None) };
        let probe = probe(&path, Some(info.projection), control)?;
        let (width, height) = probe.stored;
        let size = match probe.orientation.degrees {
            90 | 270 => (height, width),
            _ => (width, height),
        };
        if frames.frames.iter().all(|f| (f.width, f.height) == size) {
            return Ok(None);
        }
        let numbers: Vec<u64> = frames.frames.iter().map(|f| f.index).collect();
        let decoder = Decoder::gray(&probe, &numbers, width, height)?;
        Ok(Some(Self { decoder, probe, size }))
    }

    /// The next frame; none where the video has fewer than were chosen (then the stored one must do).
    fn next(&mut self, control: &Control) -> Result<Option<GrayImage>> {
        let Some(samples) = self.decoder.next(control)? else { return Ok(None) };
        GrayImage::from_raw(self.size.0, self.size.1, samples)
            .map(Some)
            .ok_or_else(|| Error::new(ErrorKind::Internal, "a decoded picture has a wrong size"))
    }

    fn finish(self, control: &Control) -> Result<()> {
        self.decoder.finish(&self.probe, control).map(drop)
    }
}

/// The file of a video that may have been given as the folder in which it lies; `None` where other files have come to lie there and
/// nobody has noted which it was.
fn file_of(given: &Path, info: &VideoInfo) -> Result<Option<PathBuf>> {
    match &info.file {
        _ if !given.is_dir() => Ok(Some(given.to_path_buf())),
        Some(name) => Ok(Some(given.join(name))),
        None => only_clip(given),
    }
}
