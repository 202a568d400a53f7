//! The stage itself: a video, a folder of images or one with several videos becomes key frames on disk. `frames.json` is written
//! last: where it is, the stage is complete.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs::{self, File};
use std::path::Path;

use crate::camera::panorama::Side;
use crate::control::Control;
use crate::error::{Error, Result};
use crate::files::sync_folder;
use crate::jpeg;
use crate::own_results::check_own;
use crate::stage::Stage;

use super::clips_of_folder::{clips_in, lone_clip};
use super::contact_sheet::contact_sheet;
use super::key_frames_of_video::{Thumbnails, from_video};
use super::probe::probe;
use super::several_clips::{self, with_warnings};
use super::{FrameOptions, Frames, VideoInfo, images};

/// The description of the frames in their folder, which is written last, and
const DESCRIPTION: &str = "frames.json";
/// the contact sheet.
const SHEET: &str = "frames.jpg";
/// There from before the first frame is written until the frames are described: whose they are if the run is ended.
const UNFINISHED: &str = ".frames.partial";

/// Extracts key frames from a video, or takes the images of a folder, into the folder `output` (made if need be; frames
/// of an earlier run in it are replaced, and no others). Writes `frame_NNNNNN.jpg` (or the images), a contact sheet `frames.jpg`
/// and, last, `frames.json`. In a folder may also be videos, by one camera or several: of each come frames in proportion to how long it
/// lasts, named after it, and beside them the images, if there are any. A video that is alone in its folder, or all that can be taken of
/// it, is taken as by itself.
///
/// Frames are upright, have square pixels and ordinary colours (HDR is tone-mapped), and are at most
/// `options.max_resolution` long. Warnings are sent to `control` and kept in the result.
///
/// Of a 360° video (equirectangular) each panorama that is chosen becomes six frames, the sides of the cube around its place
/// ([`crate::video::Frame::side`]), named `frame_NNNNNN_front.jpg` and so on; the contact sheet shows the panoramas.
///
/// # Errors
/// [`InvalidArgument`](crate::ErrorKind::InvalidArgument) for options out of range, and if `output` has pictures that are called as
/// frames are and that no run of this program has left; [`NotFound`](crate::ErrorKind::NotFound);
/// [`InvalidMedia`](crate::ErrorKind::InvalidMedia) for what is no video, cannot be decoded or breaks a limit;
/// [`FfmpegMissing`](crate::ErrorKind::FfmpegMissing); [`TooFewFrames`](crate::ErrorKind::TooFewFrames);
/// [`InsufficientParallax`](crate::ErrorKind::InsufficientParallax) if the camera stands still;
/// [`DiskFull`](crate::ErrorKind::DiskFull), [`Io`](crate::ErrorKind::Io);
/// [`DeadlineExceeded`](crate::ErrorKind::DeadlineExceeded); [`Cancelled`](crate::ErrorKind::Cancelled).
///
/// ```no_run
/// # fn main() -> libreconstruct::Result<()> {
/// use libreconstruct::{Control, video};
/// let options = video::FrameOptions::default();
/// let frames = video::extract_frames("garden.mp4".as_ref(), "work/frames".as_ref(), &options, &Control::new())?;
/// println!("{} of {} frames", frames.frames.len(), frames.total);
/// # Ok(())
/// # }
/// ```
pub fn extract_frames(
    input: &Path,
    output: &Path,
    options: &FrameOptions,
    control: &Control,
) -> Result<Frames> {
    extract(input, output, options, &control.with_remaining_time()).map_err(|e| e.at(Stage::Frames))
}

/// Describes a video without decoding it.
///
/// # Errors
/// [`crate::ErrorKind::NotFound`], [`crate::ErrorKind::InvalidMedia`] for what is no video or breaks a limit,
/// [`crate::ErrorKind::FfmpegMissing`].
pub fn probe_video(input: &Path) -> Result<VideoInfo> {
    probe(input, None, &Control::new()).map(|probe| probe.info).map_err(|e| e.at(Stage::Frames))
}

fn extract(input: &Path, output: &Path, options: &FrameOptions, control: &Control) -> Result<Frames> {
    options.validate()?;
    check_place(input, output, "")?;
    let others = if holds_frames(output) { None } else { Some(names_in(output)) };
    let extracted = key_frames(input, output, options, control).and_then(|(frames, thumbnails)| {
        describe(&frames, &thumbnails, control)?;
        Ok(frames)
    });
    // A run that failed before a frame was there leaves the folder as it was.
    if let (Err(_), Some(mut others)) = (&extracted, others) {
        others.insert(UNFINISHED.into());
        if names_in(output).is_subset(&others) {
            let _ = remove(output, UNFINISHED);
        }
    }
    extracted
}

/// Writes the contact sheet and, last, the description of frames beside them, and tells that they are done.
pub(super) fn describe(frames: &Frames, thumbnails: &Thumbnails, control: &Control) -> Result<()> {
    control.check()?;
    jpeg::write(&contact_sheet(thumbnails), jpeg::VIEWING_QUALITY, &frames.folder.join(SHEET))?;
    frames.save()?;
    remove(&frames.folder, UNFINISHED)?;
    for warning in &frames.warnings {
        control.warn(Stage::Frames, warning.clone());
    }
    // Whoever has heard one may have stopped the work: then these frames are not to be gone on with.
    control.check()?;
    control.progress_with(Stage::Frames, "done", 1.0, frames.summary());
    Ok(())
}

/// The key frames in `output`, without their description.
pub(super) fn key_frames(
    input: &Path,
    output: &Path,
    options: &FrameOptions,
    control: &Control,
) -> Result<(Frames, Thumbnails)> {
    let is_folder = fs::metadata(input).map_err(|e| Error::io("open", input, e))?.is_dir();
    if is_folder && is_same_folder(input, output) {
        return Err(Error::argument(format!("{} is both the input and the output", input.display())));
    }
    control.progress(Stage::Frames, "opening", 0.0);
    let alone = if is_folder { lone_clip(input, control)? } else { Some((input.to_path_buf(), Vec::new())) };
    let Some((video, beside)) = alone else {
        let clips = clips_in(input)?;
        prepare(output)?;
        return match clips.is_empty() {
            true => images::take(input, output, options, control),
            false => several_clips::take(input, &clips, output, options, control),
        };
    };
    let taken = probe(&video, options.projection, control).and_then(|probe| {
        prepare(output)?;
        from_video(probe, output, options, control)
    });
    // What is not read may be what was meant.
    with_warnings(taken, beside, control)
}

pub(super) fn is_same_folder(a: &Path, b: &Path) -> bool {
    matches!((a.canonicalize(), b.canonicalize()), (Ok(a), Ok(b)) if a == b)
}

/// Whether frames were extracted into `folder`, or a run that was ended has begun to.
pub(crate) fn holds_frames(folder: &Path) -> bool {
    let signs = [DESCRIPTION, SHEET, UNFINISHED];
    let is_sign = |name: &str| signs.contains(&name) || several_clips::is_part(name);
    names_in(folder).iter().any(|name| is_sign(&name.to_string_lossy()))
}

/// Of a folder that is not there, or cannot be read, there are none: who writes there will say so.
fn names_in(folder: &Path) -> BTreeSet<OsString> {
    fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.file_name()).collect()
}

/// Refuses an `output` with pictures of somebody else that would be taken for frames of an earlier run, or written over. The names of
/// the frames will begin with `prefix`.
///
/// # Errors
/// `InvalidArgument` with the first of them; what reading `input` reports.
pub(super) fn check_place(input: &Path, output: &Path, prefix: &str) -> Result<()> {
    // That a folder is to be written into itself is said elsewhere.
    if holds_frames(output) || is_same_folder(input, output) {
        return Ok(());
    }
    let (mut stored, mut has_clips) = (BTreeSet::<String>::new(), false);
    if input.is_dir() {
        // Case does not tell files apart everywhere.
        stored = images::stored_names(&images::images_in(input)?).iter().map(|n| n.to_lowercase()).collect();
        has_clips = !clips_in(input)?.is_empty();
    }
    for name in names_in(output) {
        let text = name.to_string_lossy();
        let bare = text.strip_prefix(prefix).unwrap_or(&text);
        let (stem, end) = bare.rsplit_once('.').unwrap_or((bare, ""));
        let stem = stem.to_lowercase();
        // A photograph all around becomes one for each side.
        let side_of = |(whole, side): (&str, &str)| {
            Side::ALL.iter().any(|s| s.name() == side) && stored.contains(whole)
        };
        let is_stored = matches!(end.to_ascii_lowercase().as_str(), "jpg" | "png")
            && (stored.contains(&stem) || stem.rsplit_once('_').is_some_and(side_of));
        // With the names of the clips before it, where there are several.
        let is_of_clip = has_clips && Frames::number_in_video(bare).is_some();
        if Frames::is_name_of_video(&text) || Frames::is_name_of_video(bare) || is_stored || is_of_clip {
            check_own(&output.join(&name), false)?;
        }
    }
    Ok(())
}

/// Makes the folder, and takes away what an earlier run left: its description first, so that it never describes a mixture.
pub(super) fn prepare(output: &Path) -> Result<()> {
    fs::create_dir_all(output).map_err(|e| Error::io("make", output, e))?;
    let has_earlier = holds_frames(output);
    let mark = output.join(UNFINISHED);
    File::create(&mark).map_err(|e| Error::io("make", &mark, e))?;
    // On the disk before any frame that it vouches for.
    sync_folder(output)?;
    if !has_earlier {
        return Ok(());
    }
    let earlier = Frames::load(output).map(|f| f.frames).unwrap_or_default();
    remove(output, DESCRIPTION)?;
    for frame in &earlier {
        remove(output, &frame.name)?;
    }
    several_clips::clear(output)?;
    // A run that was ended left pictures without a description.
    for entry in fs::read_dir(output).map_err(|e| Error::io("read", output, e))?.flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let is_temporary = name.starts_with('.') && name.ends_with(".partial") && name != UNFINISHED;
        if Frames::is_name_of_video(&name) || is_temporary {
            remove(output, &name)?;
        }
    }
    Ok(())
}

/// Removes the file `name` from `folder` if it is there.
fn remove(folder: &Path, name: &str) -> Result<()> {
    let path = folder.join(name);
    match fs::remove_file(&path) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => Err(Error::io("replace", &path, e)),
        _ => Ok(()),
    }
}
