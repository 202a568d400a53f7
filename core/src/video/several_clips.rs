//! A folder in which there are videos: clips of one scene, by one phone or several, with or without photographs beside them.
//!
//! Each clip gives key frames as if it were alone, in a folder of its own, from where they move into that of all when the last one
//! is done. How long it lasts decides how many. Each counts as a camera: nobody says whether two clips have one lens and zoom.

use std::fs;
use std::path::{Path, PathBuf};

use crate::control::{Control, Warning};
use crate::error::{Error, ErrorKind, Result};

use super::images::{self, VIDEOS, extension, natural_order};
use super::key_frames_of_video::{Thumbnails, from_video};
use super::probe::{Probe, probe};
use super::{Frame, FrameOptions, FrameSource, Frames, Projection};

/// More clips are not taken.
const MOST: usize = 64;
/// Fewer frames of a clip say too little of its lens.
const LEAST_OF_CLIP: usize = 8;
/// Folders of single clips are called so, with a number behind it.
const PART: &str = ".clip-";
/// What a clip is taken to last that does not say so, seconds.
const UNTOLD: f64 = 20.0;

/// The videos of `folder` in the natural order of their names, by what these end with.
pub(super) fn clips_in(folder: &Path) -> Result<Vec<PathBuf>> {
    let failed = |e| Error::io("read", folder, e);
    let mut clips = Vec::new();
    for entry in fs::read_dir(folder).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let name = entry.file_name().to_string_lossy().into_owned();
        // What a link points to counts; a device or pipe must never be opened.
        let is_file = fs::metadata(entry.path()).is_ok_and(|m| m.is_file());
        if is_file && !name.starts_with('.') && VIDEOS.contains(&extension(&name).as_str()) {
            clips.push((name, entry.path()));
        }
        if clips.len() > MOST {
            return Err(Error::new(
                ErrorKind::InvalidMedia,
                format!("{} holds more than {MOST} videos", folder.display()),
            )
            .hint("give those that show the scene best"));
        }
    }
    clips.sort_by(|(a, _), (b, _)| natural_order(a, b));
    Ok(clips.into_iter().map(|(_, path)| path).collect())
}

/// Removes from `output` what an earlier run left of single clips.
pub(super) fn clear(output: &Path) -> Result<()> {
    for entry in fs::read_dir(output).map_err(|e| Error::io("read", output, e))?.flatten() {
        if entry.file_name().to_string_lossy().starts_with(PART) {
            fs::remove_dir_all(entry.path()).map_err(|e| Error::io("remove", &entry.path(), e))?;
        }
    }
    Ok(())
}

/// Takes key frames of the `clips` in `folder`, and its photographs, into `output`.
///
/// # Errors
/// [`ErrorKind::InvalidMedia`] if no clip can be used, or one is a 360° video; those of the disk, and
/// [`ErrorKind::Cancelled`].
pub(super) fn take(
    folder: &Path,
    clips: &[PathBuf],
    output: &Path,
    options: &FrameOptions,
    control: &Control,
) -> Result<(Frames, Thumbnails)> {
    let photographs = images::count(folder)?;
    let mut warnings = Vec::new();
    let mut probes = Vec::new();
    for clip in clips {
        match probe(clip, options.projection, control) {
            Ok(probe) if probe.info.projection == Projection::Equirectangular => return Err(around(clip)),
            Ok(probe) => probes.push(probe),
            Err(error) => warnings.push(skipped(clip, error)?),
        }
    }
    let shares = shares(&probes, photographs, options.max_frames);
    let mut all = Gathered::default();
    let parts = probes.len() as f32 + 1.0;
    if photographs > 0 {
        let part = output.join(format!("{PART}photographs"));
        fs::create_dir_all(&part).map_err(|e| Error::io("make", &part, e))?;
        let own = FrameOptions { max_frames: shares.photographs, ..*options };
        // Without their own progress: it would go back to 0 for each part.
        match images::take(folder, &part, &own, &control.part(0.0, 0.0)) {
            Ok((frames, thumbnails)) => {
                warnings.extend(frames.warnings.iter().cloned());
                all.add(frames, thumbnails, "", &part, output)?;
            }
            Err(error) => warnings.push(skipped(folder, error)?),
        }
    }
    let mut used = 0;
    for (k, (mut probe, &share)) in probes.into_iter().zip(&shares.clips).enumerate() {
        // Its pictures are flat, whatever they look like: a panorama would have been told by the file.
        probe.may_be_panorama = false;
        let (clip, part) = (probe.path.clone(), output.join(format!("{PART}{k}")));
        fs::create_dir_all(&part).map_err(|e| Error::io("make", &part, e))?;
        let own = FrameOptions { max_frames: share, ..*options };
        let progress = control.part((k as f32 + 1.0) / parts, (k as f32 + 2.0) / parts);
        match from_video(probe, &part, &own, &progress) {
            Ok((frames, thumbnails)) => {
                let name = name_of(&clip);
                let named =
                    |w: &Warning| Warning { code: w.code.clone(), message: format!("{name}: {}", w.message) };
                warnings.extend(frames.warnings.iter().map(named));
                all.add(frames, thumbnails, &format!("{name}_"), &part, output)?;
                used += 1;
            }
            Err(error) => warnings.push(skipped(&clip, error)?),
        }
    }
    if used == 0 {
        let why = warnings.last().map_or_else(String::new, |w| format!("; {}", w.message));
        return Err(Error::new(
            ErrorKind::InvalidMedia,
            format!("none of the {} videos in {} can be used{why}", clips.len(), folder.display()),
        )
        .hint("give clips that show one scene from several places"));
    }
    clear(output)?;
    let Gathered { frames, thumbnails, total, .. } = all;
    let folder = output.to_path_buf();
    Ok((Frames { folder, source: FrameSource::Images, total, frames, warnings }, thumbnails))
}

/// A clip that is a 360° video.
fn around(clip: &Path) -> Error {
    let message = format!("{} is a 360° video, and there is something else beside it", clip.display());
    Error::new(ErrorKind::InvalidMedia, message)
        .hint("give it by itself, or as what it is not: projection flat")
}

/// What is said of a part that cannot be used; the error, where it is none of the part.
fn skipped(part: &Path, error: Error) -> Result<Warning> {
    use ErrorKind::{InsufficientParallax, InvalidMedia, TooFewFrames};
    match error.kind() {
        InvalidMedia | InsufficientParallax | TooFewFrames => {
            let message = format!("{} is left out: {}", name_of(part), error.message());
            Ok(Warning::new("clip_skipped", message))
        }
        _ => Err(error),
    }
}

/// Frames of each part at most.
struct Shares {
    photographs: usize,
    clips: Vec<usize>,
}

/// Shares `most` frames: photographs were chosen by a person, and get half of them if there are so many; the rest goes to the
/// clips by how long they last.
fn shares(probes: &[Probe], photographs: usize, most: usize) -> Shares {
    let photographs = photographs.min(if probes.is_empty() { most } else { most / 2 }).max(3);
    let rest = most.saturating_sub(photographs) as f64;
    let seconds = |p: &Probe| if p.info.duration > 0.0 { p.info.duration } else { UNTOLD };
    let all: f64 = probes.iter().map(seconds).sum();
    let share = |p: &Probe| ((rest * seconds(p) / all).round() as usize).max(LEAST_OF_CLIP);
    Shares { photographs, clips: probes.iter().map(share).collect() }
}

/// The name of a file without what it ends with.
pub(super) fn name_of(path: &Path) -> String {
    let stem = path.file_stem().map(|s| s.to_string_lossy().into_owned()).unwrap_or_default();
    // A model file has one line for each image, and names in it end at the line.
    stem.chars().map(|c| if c.is_control() { '_' } else { c }).collect()
}

/// What came of the parts.
#[derive(Default)]
pub(super) struct Gathered {
    pub(super) frames: Vec<Frame>,
    pub(super) thumbnails: Thumbnails,
    pub(super) cameras: u32,
    /// Pictures of all parts.
    pub(super) total: u64,
}

impl Gathered {
    /// Adds the frames in the folder `part`, with names that begin with `prefix`, and moves them into `output`.
    pub(super) fn add(
        &mut self,
        frames: Frames,
        thumbnails: Thumbnails,
        prefix: &str,
        part: &Path,
        output: &Path,
    ) -> Result<()> {
        let cameras = frames.frames.iter().map(|f| f.camera + 1).max().unwrap_or(0);
        for mut frame in frames.frames {
            let from = part.join(&frame.name);
            frame.name = self.free_name(&format!("{prefix}{}", frame.name));
            frame.camera += self.cameras;
            frame.index += self.total;
            frame.timestamp = None;
            fs::rename(&from, output.join(&frame.name)).map_err(|e| Error::io("move", &from, e))?;
            self.frames.push(frame);
        }
        self.thumbnails.extend(thumbnails.into_iter().map(|(index, small)| (index + self.total, small)));
        self.cameras += cameras;
        self.total += frames.total;
        Ok(())
    }

    /// `name`, or what is like it and not taken: two clips may differ only in what their names end with.
    fn free_name(&self, name: &str) -> String {
        let is_taken = |name: &str| self.frames.iter().any(|f| f.name.eq_ignore_ascii_case(name));
        let mut free = name.to_owned();
        while is_taken(&free) {
            free.insert(0, '_');
        }
        free
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::video::tests::{extract, pan, refused};

    #[test]
    fn clips_and_photographs_share_the_frames_and_have_cameras_of_their_own() {
        let folder = tempfile::tempdir().unwrap();
        let (input, output) = (folder.path().join("in"), folder.path().join("out"));
        fs::create_dir(&input).unwrap();
        pan(&input, "kitchen.mp4", 90, 6, (192, 128));
        pan(&input, "clip2.mp4", 30, 6, (160, 120));
        pan(&input, "kitchen.mkv", 30, 6, (192, 128));
        for k in 0..4 {
            let grey = |x: u32, y: u32| image::Luma([(x * 2 + y * k) as u8]);
            image::GrayImage::from_fn(100, 70, grey).save(input.join(format!("IMG_{k}.png"))).unwrap();
        }
        // No video, whatever it is called; and one in which nothing moves.
        fs::write(input.join("notes.avi"), "buy milk").unwrap();
        pan(&input, "still.mp4", 30, 0, (160, 120));

        let frames = extract(&input, &output, 54).unwrap();
        let of = |camera: u32| {
            let own = frames.frames.iter().filter(move |f| f.camera == camera);
            own.map(|f| f.name.as_str()).collect::<Vec<_>>()
        };
        assert_eq!(of(0), ["IMG_0.png", "IMG_1.png", "IMG_2.png", "IMG_3.png"]);
        // In the order of their names, by how long they last.
        let [second, mkv, long] = [1, 2, 3].map(of);
        assert!(second.len() >= LEAST_OF_CLIP && second[0].starts_with("clip2_frame_"), "{second:?}");
        assert!(mkv.len() >= LEAST_OF_CLIP && long.len() > 2 * mkv.len(), "{} {}", long.len(), mkv.len());
        assert!(frames.frames.len() <= 54 && frames.total == 4 + 90 + 30 + 30);
        assert!(!frames.is_sequential() && frames.frames.iter().all(|f| f.timestamp.is_none()));
        for (k, frame) in frames.frames.iter().enumerate() {
            let size = [(100, 70), (160, 120), (192, 128), (192, 128)][frame.camera as usize];
            assert_eq!((frame.width, frame.height), size);
            assert_eq!(frames.rgb(k).unwrap().dimensions(), size);
        }
        let mut indices: Vec<u64> = frames.frames.iter().map(|f| f.index).collect();
        indices.dedup();
        assert!(indices.is_sorted() && indices.len() == frames.frames.len());
        let skipped: Vec<_> = frames.warnings.iter().filter(|w| w.code == "clip_skipped").collect();
        assert!(
            skipped.len() == 2
                && skipped.iter().any(|w| w.message.starts_with("notes is left out"))
                && skipped.iter().any(|w| w.message.contains("the camera does not move")),
            "{:?}",
            frames.warnings
        );
        assert_eq!(Frames::load(&output).unwrap().frames, frames.frames);
        let rest = fs::read_dir(&output).unwrap().flatten().filter(|e| e.path().is_dir()).count();
        assert_eq!(rest, 0);

        // Again into the same folder, after a run that was ended.
        fs::create_dir(output.join(".clip-0")).unwrap();
        assert_eq!(extract(&input, &output, 54).unwrap().frames, frames.frames);
        assert!(!output.join(".clip-0").exists());
    }

    #[test]
    fn a_folder_without_a_clip_that_can_be_used_is_refused_and_says_why() {
        let folder = tempfile::tempdir().unwrap();
        pan(folder.path(), "still.mp4", 30, 0, (160, 120));
        fs::write(folder.path().join("notes.mov"), "buy milk").unwrap();
        let error = refused(folder.path());
        assert_eq!(error.kind(), ErrorKind::InvalidMedia);
        assert!(error.message().contains("none of the 2 videos"), "{error}");
        assert!(error.hint_text().is_some());
    }
}
