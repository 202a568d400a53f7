//! A folder in which there are videos: clips of one scene, by one phone or several, with or without photographs beside them.
//!
//! Each clip gives key frames as if it were alone, in a folder of its own, from where they move into that of all when the last one
//! is done. How long it lasts decides how many. All are measured before any frame is written: what cannot be used takes nothing from the
//! others. Each counts as a camera: nobody says whether two clips have one lens and zoom. If in the end one clip is all that is taken,
//! its frames are those of a video, in the order of time.

use std::fs;
use std::path::{Path, PathBuf};

use crate::control::{Control, Warning};
use crate::error::{Error, ErrorKind, Result};
use crate::stage::Stage;

use super::clips_of_folder::{CLIP_SKIPPED, LEAST_PHOTOGRAPHS, name_of, without_those_of_photographs};
use super::images::{self, Listing};
use super::key_frames_of_video::{SURVEY_SHARE, Surveyed, Thumbnails};
use super::probe::{Probe, probe};
use super::{Frame, FrameOptions, FrameSource, Frames, Projection, VideoInfo};

/// More clips are not taken.
const MOST: usize = 64;
/// Fewer frames of a clip say too little of its lens.
const LEAST_OF_CLIP: usize = 8;
/// Folders of single clips are called so, with a number behind it.
const PART: &str = ".clip-";
/// What a clip is taken to last that does not say so, seconds.
const UNTOLD: f64 = 20.0;

/// Whether a folder of this name in that of the frames is one of a single clip.
pub(super) fn is_part(name: &str) -> bool {
    name.starts_with(PART)
}

/// Removes from `output` what an earlier run left of single clips.
pub(super) fn clear(output: &Path) -> Result<()> {
    for entry in fs::read_dir(output).map_err(|e| Error::io("read", output, e))?.flatten() {
        if is_part(&entry.file_name().to_string_lossy()) {
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
/// [`ErrorKind::InvalidMedia`] if nothing can be used, a clip is a 360° video or the photographs are 360° pictures beside one, or there
/// are too many clips; [`ErrorKind::TooFewFrames`] if all clips are of photographs of which too few can be read; those of the disk, and
/// [`ErrorKind::Cancelled`].
pub(super) fn take(
    folder: &Path,
    clips: &[PathBuf],
    output: &Path,
    options: &FrameOptions,
    control: &Control,
) -> Result<(Frames, Thumbnails)> {
    let listing = images::list(folder)?;
    let mut warnings = Vec::new();
    let taken = take_all(folder, clips, &listing, output, options, &mut warnings, control);
    // Who took the photographs has told of the other files, too.
    let by_photographs = match &taken {
        Ok((frames, _)) => &frames.warnings[..],
        Err(_) => &[],
    };
    let is_told = |w: &Warning| by_photographs.contains(w) || warnings.contains(w);
    let untold: Vec<Warning> = listing.warnings.into_iter().filter(|w| !is_told(w)).collect();
    warnings.extend(untold);
    with_warnings(taken, warnings, control)
}

/// What was taken with the warnings added to it; where that failed they are told.
pub(super) fn with_warnings(
    taken: Result<(Frames, Thumbnails)>,
    warnings: Vec<Warning>,
    control: &Control,
) -> Result<(Frames, Thumbnails)> {
    match taken {
        Ok((mut frames, thumbnails)) => {
            frames.warnings.extend(warnings);
            Ok((frames, thumbnails))
        }
        Err(error) => {
            // The error is of what failed last; why nothing else was left is in these.
            for warning in warnings {
                control.warn(Stage::Frames, warning);
            }
            Err(error)
        }
    }
}

/// What [`take`] does, with what is to be said of the parts in `warnings`.
fn take_all(
    folder: &Path,
    clips: &[PathBuf],
    listing: &Listing,
    output: &Path,
    options: &FrameOptions,
    warnings: &mut Vec<Warning>,
    control: &Control,
) -> Result<(Frames, Thumbnails)> {
    let clips = without_those_of_photographs(clips, listing, warnings, control)?;
    if clips.is_empty() {
        // Who takes them says of photographs that cannot be read what they are.
        return images::take(folder, output, options, control);
    }
    if clips.len() > MOST {
        let many = format!("{} holds {} videos, more than {MOST}", folder.display(), clips.len());
        if listing.images.len() < clips.len() {
            return Err(Error::new(ErrorKind::InvalidMedia, format!("{many}{}", listing.ignored()))
                .hint("give those that show the scene best"));
        }
        warnings.push(Warning::new(CLIP_SKIPPED, format!("{many}: the photographs alone are used")));
        return images::take(folder, output, options, control);
    }
    let mut open = Vec::new();
    for (k, clip) in clips.iter().enumerate() {
        match probe(clip, options.projection, control) {
            Ok(probe) => {
                let part = output.join(format!("{PART}{k}"));
                open.push(Clip { probe, part, survey: None, taken: None });
            }
            Err(error) => warnings.push(skipped(clip, error)?),
        }
    }
    // Beside others all pictures are flat.
    if open.len() > 1 || listing.images.len() >= LEAST_PHOTOGRAPHS {
        for Clip { probe, .. } in &mut open {
            if probe.info.projection == Projection::Equirectangular {
                return Err(around(&probe.path));
            }
            // Whatever they look like: a panorama would have been told by the file.
            probe.may_be_panorama = false;
        }
    }
    let mut photographs = listing.images.len();
    let stills_part = output.join(format!("{PART}photographs"));
    let mut stills = None;
    if photographs > 0 && !open.is_empty() {
        fs::create_dir_all(&stills_part).map_err(|e| Error::io("make", &stills_part, e))?;
        let share = share_of_photographs(photographs, open.len(), options.max_frames);
        let own = FrameOptions { max_frames: share.max(3), ..*options };
        // Without their own progress: it would go back to 0 for each part.
        match images::take(folder, &stills_part, &own, &control.part(0.0, 0.0)) {
            Ok((frames, thumbnails)) => {
                warnings.extend(frames.warnings.iter().cloned());
                // Those that are left out take no frames from the clips.
                photographs = frames.frames.len();
                stills = Some((frames, thumbnails));
            }
            Err(error) => {
                warnings.push(skipped(folder, error)?);
                photographs = 0;
            }
        }
    }
    let are_around = stills.as_ref().is_some_and(|(frames, _)| frames.is_panoramic());
    let (count, mut measured) = (open.len(), 0);
    let shares = loop {
        let lengths: Vec<f64> = open.iter().map(Clip::seconds).collect();
        let shares = shares_of(&lengths, photographs, options.max_frames);
        // Indices are those of all clips that are open, of each of which there is a share.
        let wanting = || (0..open.len()).filter(|&k| shares[k] > open[k].share());
        let Some(k) = wanting().find(|&k| open[k].survey.is_none()).or_else(|| wanting().next()) else {
            break shares;
        };
        let progress = if open[k].survey.is_none() {
            measured += 1;
            first_pass(control, measured - 1, count)
        } else {
            let done = open.iter().filter(|clip| clip.share() > 0).count();
            second_pass(control, done, shares.iter().filter(|&&share| share > 0).count())
        };
        match open[k].go_on(shares[k], options, &progress) {
            Ok(()) if are_around => return Err(around_beside_clips(folder)),
            Ok(()) => {}
            Err(error) => warnings.push(skipped(&open.remove(k).probe.path, error)?),
        }
    };
    if open.is_empty() {
        clear(output)?;
        // All frames are for the photographs now.
        warnings.retain(|w| w.code == CLIP_SKIPPED);
        if photographs >= LEAST_PHOTOGRAPHS {
            return images::take(folder, output, options, control);
        }
        let why = warnings.last().map_or_else(String::new, |w| format!("; {}", w.message));
        return Err(Error::new(
            ErrorKind::InvalidMedia,
            format!(
                "none of the {} videos in {} can be used{why}{}",
                clips.len(),
                folder.display(),
                listing.ignored()
            ),
        )
        .hint("give clips that show one scene from several places"));
    }
    let enough = shares.iter().filter(|&&share| share > 0).count();
    for (clip, _) in open.iter().zip(&shares).filter(|(_, share)| **share == 0) {
        let (name, most) = (name_of(&clip.probe.path), options.max_frames);
        let why =
            format!("{most} frames are enough for {enough} clips; raise the number of frames to use more");
        warnings.push(Warning::new(CLIP_SKIPPED, format!("{name} is left out: {why}")));
    }
    // Its frames are called as by itself, unless another clip is left out only for want of frames.
    let is_alone = stills.is_none() && open.len() == 1;
    let taken = open.iter().filter(|clip| clip.taken.is_some()).count();
    let mut all = Gathered { is_one_video: stills.is_none() && taken == 1, ..Gathered::default() };
    let mut source = FrameSource::Images;
    if let Some((frames, thumbnails)) = stills {
        all.add(frames, thumbnails, "", &stills_part, output)?;
    }
    for clip in open {
        let Clip { probe, part, taken: Some((_, frames, thumbnails)), .. } = clip else { continue };
        let name = name_of(&probe.path);
        let named = |w: &Warning| Warning { code: w.code.clone(), message: format!("{name}: {}", w.message) };
        warnings.extend(frames.warnings.iter().map(named));
        if let (true, FrameSource::Video(info)) = (all.is_one_video, &frames.source) {
            let file = probe.path.file_name().and_then(|file| file.to_str()).map(str::to_owned);
            source = FrameSource::Video(VideoInfo { file, ..info.clone() });
        }
        let prefix = if is_alone { String::new() } else { format!("{name}_") };
        all.add(frames, thumbnails, &prefix, &part, output)?;
    }
    clear(output)?;
    let Gathered { frames, thumbnails, total, .. } = all;
    let folder = output.to_path_buf();
    Ok((Frames { folder, source, total, frames, warnings: Vec::new() }, thumbnails))
}

/// A clip that may be used, and what is known of it so far.
struct Clip {
    probe: Probe,
    /// The folder of its frames.
    part: PathBuf,
    /// Once its frames were measured, if any can be used.
    survey: Option<Surveyed>,
    /// What was taken of it, and how many frames that was allowed to be.
    taken: Option<(usize, Frames, Thumbnails)>,
}

impl Clip {
    /// How long it lasts.
    fn seconds(&self) -> f64 {
        let duration = self.probe.info.duration;
        if duration > 0.0 { duration } else { UNTOLD }
    }

    /// How many frames were taken of it at most.
    fn share(&self) -> usize {
        self.taken.as_ref().map_or(0, |taken| taken.0)
    }

    /// Measures its frames; where that is done takes `share` of them at most.
    ///
    /// # Errors
    /// Why it cannot be used.
    fn go_on(&mut self, share: usize, options: &FrameOptions, control: &Control) -> Result<()> {
        match &self.survey {
            None => {
                let mut survey = Surveyed::new(self.probe.clone(), control)?;
                survey.check(options.max_frames)?;
                self.survey = Some(survey);
            }
            Some(survey) => {
                fs::create_dir_all(&self.part).map_err(|e| Error::io("make", &self.part, e))?;
                let own = FrameOptions { max_frames: share, ..*options };
                let (frames, thumbnails) = survey.key_frames(&self.part, &own, control)?;
                self.taken = Some((share, frames, thumbnails));
            }
        }
        Ok(())
    }
}

/// The progress of measuring clip `k` of `count`, of which there is one: all are measured first.
fn first_pass(control: &Control, k: usize, count: usize) -> Control {
    let from = SURVEY_SHARE * k as f32 / count as f32;
    control.part(from, from + 1.0 / count as f32)
}

/// The progress of writing the frames of clip `k` of `count`, of which there is one.
fn second_pass(control: &Control, k: usize, count: usize) -> Control {
    let begun = (1.0 - SURVEY_SHARE) * k.min(count - 1) as f32;
    // A clip reports as if its own first pass had come just before.
    let from = SURVEY_SHARE + (begun - SURVEY_SHARE) / count as f32;
    control.part(from, from + 1.0 / count as f32)
}

/// A clip that is a 360° video.
fn around(clip: &Path) -> Error {
    let message = format!("{} is a 360° video, and there is something else beside it", clip.display());
    Error::new(ErrorKind::InvalidMedia, message)
        .hint("give it by itself, or as what it is not: projection flat")
}

/// Photographs in `folder` that are 360° pictures, beside clips that are not.
fn around_beside_clips(folder: &Path) -> Error {
    let message =
        format!("the photographs in {} are 360° pictures, and the videos are not", folder.display());
    Error::new(ErrorKind::InvalidMedia, message)
        .hint("give them by themselves, or as what they are not: projection flat")
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

/// What photographs get of `most` frames: a person chose them, so half of the frames if there are so many, and all where there is no
/// clip.
fn share_of_photographs(photographs: usize, clips: usize, most: usize) -> usize {
    photographs.min(if clips == 0 { most } else { most / 2 })
}

/// How many of `most` frames each clip gets, by how many seconds it lasts: what the photographs leave. Where that is not
/// [`LEAST_OF_CLIP`] for each, the shortest get none and are left out.
fn shares_of(seconds: &[f64], photographs: usize, most: usize) -> Vec<usize> {
    let rest = most.saturating_sub(share_of_photographs(photographs, seconds.len(), most));
    // Of equally long ones those that come first stay.
    let mut staying: Vec<usize> = (0..seconds.len()).collect();
    staying.sort_by(|&a, &b| seconds[b].total_cmp(&seconds[a]));
    staying.truncate((rest / LEAST_OF_CLIP).max(1));
    staying.sort_unstable();
    let least = LEAST_OF_CLIP.min(rest.max(3));
    let all: f64 = staying.iter().map(|&k| seconds[k]).sum();
    let mut shares = vec![0usize; seconds.len()];
    for k in staying {
        // What is whole but for rounding is whole: the only clip gets all.
        shares[k] = ((rest as f64 * seconds[k] / all + 1e-9) as usize).max(least);
    }
    // What the short ones get more than their share, those with most go without.
    for _ in rest..shares.iter().sum() {
        if let Some(most) = shares.iter_mut().max().filter(|most| **most > least) {
            *most -= 1;
        }
    }
    shares
}

/// What came of the parts.
#[derive(Default)]
pub(super) struct Gathered {
    pub(super) frames: Vec<Frame>,
    pub(super) thumbnails: Thumbnails,
    pub(super) cameras: u32,
    /// Pictures of all parts.
    pub(super) total: u64,
    /// Whether a video is all of it: the times of several have nothing in common.
    pub(super) is_one_video: bool,
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
            frame.timestamp = frame.timestamp.filter(|_| self.is_one_video);
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
    use std::sync::{Arc, Mutex};

    use super::*;
    use crate::control::Event;
    use crate::video::at_full_size;
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

    /// Small photographs called `name` with a number behind it.
    fn photographs(folder: &Path, name: &str, numbers: std::ops::Range<u32>) {
        for k in numbers {
            let grey = |x: u32, y: u32| image::Luma([(x * 2 + y * k) as u8]);
            image::GrayImage::from_fn(100, 70, grey).save(folder.join(format!("{name}{k}.png"))).unwrap();
        }
    }

    fn skipped_in(frames: &Frames) -> Vec<&str> {
        frames.warnings.iter().filter(|w| w.code == CLIP_SKIPPED).map(|w| w.message.as_str()).collect()
    }

    #[test]
    fn photographs_beside_clips_that_cannot_be_used_get_all_frames() {
        let folder = tempfile::tempdir().unwrap();
        let (input, output) = (folder.path().join("in"), folder.path().join("out"));
        fs::create_dir(&input).unwrap();
        photographs(&input, "IMG_", 0..8);
        pan(&input, "still.mp4", 30, 0, (160, 120));
        fs::write(input.join("notes.avi"), "buy milk").unwrap();
        let frames = extract(&input, &output, 8).unwrap();
        assert_eq!((frames.frames.len(), skipped_in(&frames).len()), (8, 2), "{:?}", frames.warnings);
        assert!(frames.warnings.iter().all(|w| w.code != "images_thinned"), "{:?}", frames.warnings);
        assert!(frames.frames.iter().all(|f| output.join(&f.name).exists()));
        // More clips than are taken: some pictures among them are not what was meant, ...
        for k in 0..=MOST {
            fs::write(input.join(format!("clip{k}.mov")), "").unwrap();
        }
        assert!(refused(&input).message().contains("more than 64"));
        // ... as many are.
        photographs(&input, "IMG_", 8..8 + MOST as u32 + 3);
        let frames = extract(&input, &output, 8).unwrap();
        assert_eq!((frames.frames.len(), skipped_in(&frames).len()), (8, 1), "{:?}", frames.warnings);
    }

    #[test]
    fn what_a_phone_films_beside_a_photograph_takes_none_of_its_frames() {
        let folder = tempfile::tempdir().unwrap();
        let (input, output) = (folder.path().join("in"), folder.path().join("out"));
        fs::create_dir(&input).unwrap();
        photographs(&input, "IMG_", 0..8);
        pan(&input, "img_2.mp4", 30, 6, (160, 120));
        for k in 0..8 {
            fs::write(input.join(format!("IMG_{k}.MOV")), "").unwrap();
        }
        let frames = extract(&input, &output, 8).unwrap();
        assert!(frames.frames.len() == 8 && frames.frames.iter().all(|f| f.camera == 0), "{frames:?}");
        let [left_out] = skipped_in(&frames)[..] else { panic!("{:?}", frames.warnings) };
        assert!(left_out.starts_with("9 videos are left out"), "{left_out}");
        assert!(left_out.contains("at most 4 seconds"), "{left_out}");
        // A clip with a name of its own is taken beside them.
        pan(&input, "kitchen.mp4", 30, 6, (160, 120));
        let frames = extract(&input, &output, 30).unwrap();
        let clip = frames.frames.iter().filter(|f| f.name.starts_with("kitchen_frame_")).count();
        assert!(clip >= LEAST_OF_CLIP && frames.frames.len() == 8 + clip, "{frames:?}");
        // A picture or two are no capture, whatever they are called.
        for k in 0..8 {
            fs::remove_file(input.join(format!("IMG_{k}.png"))).unwrap();
        }
        photographs(&input, "kitchen", 0..1);
        fs::rename(input.join("kitchen0.png"), input.join("kitchen.png")).unwrap();
        let frames = extract(&input, &output, 30).unwrap();
        assert!(frames.frames.iter().any(|f| f.name.starts_with("kitchen_frame_")), "{frames:?}");
    }

    #[test]
    fn a_clip_that_lasts_longer_is_none_of_a_photograph_whatever_it_is_called() {
        let folder = tempfile::tempdir().unwrap();
        let (input, output) = (folder.path().join("in"), folder.path().join("out"));
        fs::create_dir(&input).unwrap();
        photographs(&input, "IMG_", 0..4);
        pan(&input, "img_1.mp4", 30, 6, (160, 120));
        // Of 4.4 seconds.
        pan(&input, "img_2.mp4", 110, 6, (160, 120));
        let frames = extract(&input, &output, 30).unwrap();
        let clip = frames.frames.iter().filter(|f| f.name.starts_with("img_2_frame_")).count();
        assert!(clip >= LEAST_OF_CLIP && frames.frames.len() == 4 + clip, "{frames:?}");
        let [left_out] = skipped_in(&frames)[..] else { panic!("{:?}", frames.warnings) };
        assert!(left_out.starts_with("1 videos") && left_out.contains("img_1.mp4"), "{left_out}");
    }

    #[test]
    fn photographs_that_are_left_out_take_no_frames_from_the_clips() {
        let folder = tempfile::tempdir().unwrap();
        let (input, output) = (folder.path().join("in"), folder.path().join("out"));
        fs::create_dir(&input).unwrap();
        photographs(&input, "IMG_", 0..4);
        // As many cameras as pictures: none of them has made enough.
        for k in 0..9 {
            image::GrayImage::new(110 + k, 70).save(input.join(format!("other{k}.png"))).unwrap();
        }
        pan(&input, "walk.mp4", 90, 6, (160, 120));
        let frames = extract(&input, &output, 26).unwrap();
        let clip = frames.frames.iter().filter(|f| f.name.starts_with("walk_frame_")).count();
        // Of 22, and not of the 13 that would be left by 13 photographs.
        assert!(clip > 16 && frames.frames.len() == 4 + clip, "{clip} {frames:?}");
    }

    #[test]
    fn what_is_left_out_is_told_also_where_the_photographs_fail() {
        let folder = tempfile::tempdir().unwrap();
        let (input, output) = (folder.path().join("in"), folder.path().join("out"));
        fs::create_dir(&input).unwrap();
        for k in 0..3 {
            fs::write(input.join(format!("IMG_{k}.png")), "no picture").unwrap();
            fs::write(input.join(format!("IMG_{k}.MOV")), "").unwrap();
        }
        fs::write(input.join("notes.avi"), "buy milk").unwrap();
        let told = Arc::new(Mutex::new(Vec::new()));
        let log = Arc::clone(&told);
        let control = Control::new().with_listener(move |event| {
            if let Event::Warning { warning, .. } = event {
                log.lock().unwrap().push(warning.message);
            }
        });
        let error =
            crate::video::extract_frames(&input, &output, &FrameOptions::default(), &control).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TooFewFrames, "{error}");
        let told = told.lock().unwrap();
        assert!(told.iter().any(|said| said.starts_with("3 videos are left out")), "{told:?}");
        assert!(told.iter().any(|said| said.starts_with("notes is left out")), "{told:?}");
    }

    #[test]
    fn what_cannot_be_used_takes_nothing_from_the_others() {
        let folder = tempfile::tempdir().unwrap();
        let (input, output) = (folder.path().join("in"), folder.path().join("out"));
        fs::create_dir(&input).unwrap();
        pan(&input, "a tripod.mp4", 200, 0, (160, 120));
        pan(&input, "walk1.mp4", 60, 6, (160, 120));
        pan(&input, "walk2.mp4", 60, 6, (160, 120));
        let of = |frames: &Frames, walk: &str| {
            frames.frames.iter().filter(|f| f.name.starts_with(&format!("{walk}_frame_"))).count()
        };
        // Enough for two clips, the longest of which is the one that stands.
        let frames = extract(&input, &output, 2 * LEAST_OF_CLIP).unwrap();
        let both = [of(&frames, "walk1"), of(&frames, "walk2")];
        assert!(both.iter().all(|&count| count > LEAST_OF_CLIP / 2), "{both:?}");
        let [left_out] = skipped_in(&frames)[..] else { panic!("{:?}", frames.warnings) };
        assert!(left_out.starts_with("a tripod is left out: the camera does not move"), "{left_out}");
        // Enough for one.
        let frames = extract(&input, &output, 12).unwrap();
        assert!(of(&frames, "walk1") > LEAST_OF_CLIP / 2 && of(&frames, "walk2") == 0, "{frames:?}");
        assert!(frames.is_sequential() && frames.frames.iter().all(|f| f.timestamp.is_some()));
        assert!(skipped_in(&frames).iter().any(|said| said.starts_with("walk2 is left out: 12 frames")));
        let frames = extract(&input, &output, 54).unwrap();
        let both = [of(&frames, "walk1"), of(&frames, "walk2")];
        assert!(both.iter().sum::<usize>() >= 40 && frames.frames.len() <= 54, "{both:?}");
    }

    #[test]
    fn the_only_video_of_a_folder_is_taken_as_by_itself() {
        let folder = tempfile::tempdir().unwrap();
        let (input, output) = (folder.path().join("in"), folder.path().join("out"));
        fs::create_dir(&input).unwrap();
        let video = pan(&input, "walk.mp4", 40, 6, (192, 128));
        // What cameras put beside their videos.
        for beside in ["walk.LRV", "walk.THM", "walk.SRT"] {
            fs::write(input.join(beside), "beside it").unwrap();
        }
        let frames = extract(&input, &output, 20).unwrap();
        let alone = extract(&video, &folder.path().join("alone"), 20).unwrap();
        assert_eq!((&frames.frames, &frames.source), (&alone.frames, &alone.source));
        assert!(frames.is_sequential() && frames.frames.iter().all(|f| f.timestamp.is_some()));
        // What is looked at more closely is the video, too.
        let options = FrameOptions { max_frames: 5, max_resolution: 96, ..Default::default() };
        let small = crate::video::extract_frames(&input, &output, &options, &Control::new()).unwrap();
        assert!(small.frames.iter().all(|f| f.width == 96));
        let control = Control::new();
        let sizes =
            at_full_size(&small, Some(&input), &control, || Ok(()), |(), _, p| p.dimensions()).unwrap();
        assert_eq!(sizes, vec![(192, 128); small.frames.len()]);
    }

    #[test]
    fn a_clip_beside_which_nothing_can_be_used_is_a_video() {
        let folder = tempfile::tempdir().unwrap();
        let (input, output) = (folder.path().join("in"), folder.path().join("out"));
        fs::create_dir(&input).unwrap();
        let video = pan(&input, "walk.mp4", 40, 6, (192, 128));
        let alone = extract(&video, &folder.path().join("alone"), 20).unwrap();
        let check = |left_out: usize| {
            let frames = extract(&input, &output, 20).unwrap();
            assert!(frames.is_sequential() && frames.frames.iter().all(|f| f.timestamp.is_some()));
            assert_eq!((&frames.frames, frames.total), (&alone.frames, alone.total));
            assert_eq!(skipped_in(&frames).len(), left_out, "{:?}", frames.warnings);
            let FrameSource::Video(info) = &frames.source else { panic!("a video is a video") };
            assert_eq!(info.file.as_deref(), Some("walk.mp4"));
            assert_eq!(Frames::load(&output).unwrap(), frames);
            // What is looked at more closely is that video.
            let options = FrameOptions { max_frames: 5, max_resolution: 96, ..Default::default() };
            let control = Control::new();
            let small = crate::video::extract_frames(&input, &output, &options, &control).unwrap();
            assert!(small.frames.iter().all(|f| f.width == 96));
            let sizes =
                at_full_size(&small, Some(&input), &control, || Ok(()), |(), _, p| p.dimensions()).unwrap();
            assert_eq!(sizes, vec![(192, 128); small.frames.len()]);
        };
        fs::write(input.join("notes.avi"), "buy milk").unwrap();
        check(1);
        photographs(&input, "cover", 0..1);
        check(2);
        fs::remove_file(input.join("notes.avi")).unwrap();
        pan(&input, "still.mp4", 30, 0, (160, 120));
        check(2);
        // The video itself may be named, too. Where nobody has noted which one it was, the frames are as they are stored.
        let mut frames = extract(&input, &output, 20).unwrap();
        let control = Control::new();
        let seen = |frames: &Frames, source: &Path| {
            at_full_size(frames, Some(source), &control, || Ok(()), |(), _, p| p.dimensions()).unwrap().len()
        };
        assert_eq!(seen(&frames, &video), frames.frames.len());
        let FrameSource::Video(info) = &mut frames.source else { panic!("a video is a video") };
        info.file = None;
        assert_eq!(seen(&frames, &input), frames.frames.len());
    }

    #[test]
    fn clips_get_no_more_frames_together_than_there_are() {
        let mut random = crate::random::Random::new(3);
        for case in 0..200 {
            let seconds: Vec<f64> =
                (0..1 + case % 61).map(|_| (1.0 + 9.0 * random.uniform()).floor()).collect();
            let (photographs, most) = (case % 7 * 10, 3 + case);
            let shares = shares_of(&seconds, photographs, most);
            assert_eq!(shares.len(), seconds.len());
            let rest = most - share_of_photographs(photographs, seconds.len(), most);
            let given: Vec<usize> = shares.iter().copied().filter(|&share| share > 0).collect();
            assert!(!given.is_empty() && given.iter().sum::<usize>() <= rest.max(3), "{most} {photographs}");
            assert!(given.iter().all(|&c| c >= LEAST_OF_CLIP || c == rest.max(3)), "{given:?}");
            // Those that last longest stay.
            let of_staying = |is_in: bool| {
                let lengths = seconds.iter().zip(&shares).filter(move |(_, share)| (**share > 0) == is_in);
                lengths.map(|(length, _)| *length)
            };
            let shortest = of_staying(true).fold(f64::INFINITY, f64::min);
            assert!(of_staying(false).all(|length| length <= shortest), "{seconds:?} {shares:?}");
        }
        let shares = shares_of(&[5.0, 9.0, 5.0, 7.0], 0, 3 * LEAST_OF_CLIP);
        assert_eq!(shares.iter().map(|&share| share > 0).collect::<Vec<_>>(), [true, true, false, true]);
        assert_eq!(shares_of(&[], 5, 20), [0usize; 0]);
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
