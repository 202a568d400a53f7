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
/// The code of the warning that a part is not used.
const CLIP_SKIPPED: &str = "clip_skipped";

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
/// Where no clip can be used, as none of those that a phone adds to its photographs can, the photographs alone are taken.
///
/// # Errors
/// [`ErrorKind::InvalidMedia`] if nothing can be used, one clip is a 360° video, or there are too many; those of the disk, and
/// [`ErrorKind::Cancelled`].
pub(super) fn take(
    folder: &Path,
    clips: &[PathBuf],
    output: &Path,
    options: &FrameOptions,
    control: &Control,
) -> Result<(Frames, Thumbnails)> {
    let photographs = images::count(folder)?;
    if clips.len() > MOST {
        let many = format!("{} holds {} videos, more than {MOST}", folder.display(), clips.len());
        if photographs < 3 {
            return Err(Error::new(ErrorKind::InvalidMedia, many).hint("give those that show the scene best"));
        }
        let (mut frames, thumbnails) = images::take(folder, output, options, control)?;
        frames.warnings.push(Warning::new(CLIP_SKIPPED, format!("{many}: the photographs alone are used")));
        return Ok((frames, thumbnails));
    }
    let mut warnings = Vec::new();
    let mut probes = Vec::new();
    for clip in clips {
        match probe(clip, options.projection, control) {
            Ok(probe) if probe.info.projection == Projection::Equirectangular => return Err(around(clip)),
            Ok(probe) => probes.push(probe),
            Err(error) => warnings.push(skipped(clip, error)?),
        }
    }
    leave_out_the_short(&mut probes, photographs, options.max_frames, &mut warnings);
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
    clear(output)?;
    if used == 0 && !all.frames.is_empty() {
        // All frames are for them now; what was taken lies where it would be written again.
        warnings.retain(|w| w.code == CLIP_SKIPPED);
        for frame in &all.frames {
            let path = output.join(&frame.name);
            fs::remove_file(&path).map_err(|e| Error::io("replace", &path, e))?;
        }
        let (mut frames, thumbnails) = images::take(folder, output, options, control)?;
        frames.warnings.extend(warnings);
        return Ok((frames, thumbnails));
    }
    if used == 0 {
        let why = warnings.last().map_or_else(String::new, |w| format!("; {}", w.message));
        return Err(Error::new(
            ErrorKind::InvalidMedia,
            format!("none of the {} videos in {} can be used{why}", clips.len(), folder.display()),
        )
        .hint("give clips that show one scene from several places"));
    }
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
            Ok(Warning::new(CLIP_SKIPPED, message))
        }
        _ => Err(error),
    }
}

/// Frames of each part at most.
struct Shares {
    photographs: usize,
    clips: Vec<usize>,
}

/// Seconds that a clip counts as.
fn seconds(probe: &Probe) -> f64 {
    if probe.info.duration > 0.0 { probe.info.duration } else { UNTOLD }
}

/// What photographs get of `most` frames: a person chose them, so half of the frames if there are so many, and all where there is no
/// clip.
fn share_of_photographs(photographs: usize, clips: usize, most: usize) -> usize {
    photographs.min(if clips == 0 { most } else { most / 2 })
}

/// Leaves out the shortest clips where there are more than `most` frames are enough for.
fn leave_out_the_short(
    probes: &mut Vec<Probe>,
    photographs: usize,
    most: usize,
    warnings: &mut Vec<Warning>,
) {
    let rest = most.saturating_sub(share_of_photographs(photographs, probes.len(), most));
    let enough = (rest / LEAST_OF_CLIP).max(1);
    let mut lengths: Vec<f64> = probes.iter().map(seconds).collect();
    lengths.sort_by(|a, b| b.total_cmp(a));
    // As long as the last one that stays: of equally long ones those that come first stay.
    let Some(&shortest) = lengths.get(enough - 1).filter(|_| lengths.len() > enough) else { return };
    let mut ties = lengths[..enough].iter().filter(|&&l| l == shortest).count();
    probes.retain(|probe| {
        let length = seconds(probe);
        let stays = length > shortest || (length == shortest && ties > 0);
        ties -= usize::from(stays && length == shortest);
        if !stays {
            let why = format!(
                "{most} frames are enough for {enough} clips; raise the number of frames to use more"
            );
            warnings.push(Warning::new(CLIP_SKIPPED, format!("{} is left out: {why}", name_of(&probe.path))));
        }
        stays
    });
}

/// Shares `most` frames: what the photographs leave goes to the clips by how long they last, and each gets
/// [`LEAST_OF_CLIP`] if there are so many.
fn shares(probes: &[Probe], photographs: usize, most: usize) -> Shares {
    let photographs = share_of_photographs(photographs, probes.len(), most);
    let rest = most.saturating_sub(photographs);
    let least = LEAST_OF_CLIP.min(rest.max(3));
    let all: f64 = probes.iter().map(seconds).sum();
    let share = |p: &Probe| ((rest as f64 * seconds(p) / all) as usize).max(least);
    let mut clips: Vec<usize> = probes.iter().map(share).collect();
    // What the short ones get more than their share, those with most go without.
    for _ in rest..clips.iter().sum() {
        if let Some(most) = clips.iter_mut().max().filter(|most| **most > least) {
            *most -= 1;
        }
    }
    Shares { photographs: photographs.max(3), clips }
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
    fn photographs_beside_clips_that_cannot_be_used_get_all_frames() {
        let folder = tempfile::tempdir().unwrap();
        let (input, output) = (folder.path().join("in"), folder.path().join("out"));
        fs::create_dir(&input).unwrap();
        for k in 0..8 {
            let grey = |x: u32, y: u32| image::Luma([(x * 2 + y * k) as u8]);
            image::GrayImage::from_fn(100, 70, grey).save(input.join(format!("IMG_{k}.png"))).unwrap();
        }
        pan(&input, "IMG_0.mp4", 30, 0, (160, 120));
        fs::write(input.join("notes.avi"), "buy milk").unwrap();
        let skipped = |frames: &Frames| frames.warnings.iter().filter(|w| w.code == CLIP_SKIPPED).count();
        let frames = extract(&input, &output, 8).unwrap();
        assert_eq!((frames.frames.len(), skipped(&frames)), (8, 2), "{:?}", frames.warnings);
        assert!(frames.warnings.iter().all(|w| w.code != "images_thinned"), "{:?}", frames.warnings);
        assert!(frames.frames.iter().all(|f| output.join(&f.name).exists()));
        // As many as a phone adds to its photographs.
        for k in 0..MOST {
            fs::write(input.join(format!("IMG_{k}.mov")), "").unwrap();
        }
        let frames = extract(&input, &output, 8).unwrap();
        assert_eq!((frames.frames.len(), skipped(&frames)), (8, 1), "{:?}", frames.warnings);
        for k in 0..8 {
            fs::remove_file(input.join(format!("IMG_{k}.png"))).unwrap();
        }
        assert!(refused(&input).message().contains("more than 64"));
    }

    #[test]
    fn clips_get_no_more_frames_together_than_there_are() {
        let folder = tempfile::tempdir().unwrap();
        pan(folder.path(), "one.mp4", 30, 6, (160, 120));
        let probe = probe(&folder.path().join("one.mp4"), None, &Control::new()).unwrap();
        let lasting = |seconds: f64| {
            let mut probe = probe.clone();
            probe.info.duration = seconds;
            probe
        };
        let mut random = crate::random::Random::new(3);
        for case in 0..200 {
            let mut probes: Vec<Probe> =
                (0..1 + case % 61).map(|_| lasting((1.0 + 9.0 * random.uniform()).floor())).collect();
            let (photographs, most) = (case % 7 * 10, 3 + case);
            let mut warnings = Vec::new();
            let count = probes.len();
            leave_out_the_short(&mut probes, photographs, most, &mut warnings);
            assert_eq!(probes.len() + warnings.len(), count);
            let shares = shares(&probes, photographs, most);
            let rest = most - share_of_photographs(photographs, count, most);
            assert!(
                !probes.is_empty() && shares.clips.iter().sum::<usize>() <= rest.max(3),
                "{most} {photographs}"
            );
            assert!(shares.clips.iter().all(|&c| c >= LEAST_OF_CLIP || (count > 0 && c == rest.max(3))));
        }
        // Those that last longest stay.
        let mut probes: Vec<Probe> = [5.0, 9.0, 5.0, 7.0].map(lasting).into();
        leave_out_the_short(&mut probes, 0, 3 * LEAST_OF_CLIP, &mut Vec::new());
        assert_eq!(probes.iter().map(seconds).collect::<Vec<_>>(), [5.0, 9.0, 7.0]);
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
