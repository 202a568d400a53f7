//! Frames of a further video, or folder of pictures, beside those of an earlier capture of the same scene.

use std::fs;
use std::path::Path;

use crate::control::Control;
use crate::error::{Error, ErrorKind, Result};
use crate::own_results::check_own;
use crate::stage::Stage;

use super::clips_of_folder::name_of;
use super::contact_sheet::thumbnail;
use super::extract::{check_place, describe, holds_frames, is_same_folder, key_frames, prepare};
use super::several_clips::Gathered;
use super::{FrameOptions, FrameSource, Frames};

/// The folder of the new frames, until they have names beside the others.
const PART: &str = ".clip-added";

/// Chooses key frames of `input`, as [`super::extract_frames`] does, and writes them into the folder `output` beside the frames of
/// an earlier capture, which keep their names. The cameras of the new ones are others than those of the earlier ones. Writes
/// `frames.jpg` and, last, `frames.json`, too.
///
/// # Errors
/// As [`super::extract_frames`]; [`ErrorKind::InvalidArgument`] if `output` is where the earlier frames are, or `input`;
/// [`ErrorKind::InvalidMedia`] if either are 360° pictures, which stay by themselves.
pub fn add_frames(
    earlier: &Frames,
    input: &Path,
    output: &Path,
    options: &FrameOptions,
    control: &Control,
) -> Result<Frames> {
    add(earlier, input, output, options, &control.with_remaining_time()).map_err(|e| e.at(Stage::Frames))
}

fn add(
    earlier: &Frames,
    input: &Path,
    output: &Path,
    options: &FrameOptions,
    control: &Control,
) -> Result<Frames> {
    options.validate()?;
    if is_same_folder(&earlier.folder, output) {
        return Err(Error::argument(format!("the frames in {} would be written over", output.display()))
            .hint("give another folder for the results"));
    }
    if is_same_folder(input, output) {
        return Err(Error::argument(format!("{} is both the input and the output", input.display())));
    }
    if earlier.is_panoramic() {
        return Err(of_panoramas(&earlier.folder));
    }
    let prefix = format!("{}_", name_of(input));
    check_place(input, output, &prefix)?;
    let is_own = holds_frames(output);
    for frame in &earlier.frames {
        check_own(&output.join(&frame.name), is_own)?;
    }
    prepare(output)?;
    let part = output.join(PART);
    fs::create_dir_all(&part).map_err(|e| Error::io("make", &part, e))?;
    let (new, thumbnails) = key_frames(input, &part, options, control)?;
    if new.is_panoramic() {
        return Err(of_panoramas(input));
    }
    let mut all = Gathered { total: earlier.total, ..Gathered::default() };
    for (k, frame) in earlier.frames.iter().enumerate() {
        control.check()?;
        let from = earlier.path(k);
        link_or_copy(&from, &output.join(&frame.name))?;
        let mut frame = frame.clone();
        frame.timestamp = None;
        all.cameras = all.cameras.max(frame.camera + 1);
        all.thumbnails.push((frame.index, thumbnail(earlier.rgb(k)?)));
        all.frames.push(frame);
    }
    let mut warnings = earlier.warnings.clone();
    warnings.extend(new.warnings.iter().cloned());
    all.add(new, thumbnails, &prefix, &part, output)?;
    fs::remove_dir_all(&part).map_err(|e| Error::io("remove", &part, e))?;
    let Gathered { frames, thumbnails, total, .. } = all;
    let frames =
        Frames { folder: output.to_path_buf(), source: FrameSource::Images, total, frames, warnings };
    describe(&frames, &thumbnails, control)?;
    Ok(frames)
}

fn of_panoramas(input: &Path) -> Error {
    Error::new(
        ErrorKind::InvalidMedia,
        format!("{} has 360° pictures: nothing can be added to them, nor they to others", input.display()),
    )
    .hint("reconstruct them by themselves")
}

/// Takes no place twice where the file system can do that. What a run that was ended has left there may be a link to the very
/// same file: it must go before anything is written.
fn link_or_copy(from: &Path, to: &Path) -> Result<()> {
    match fs::remove_file(to) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => return Err(Error::io("replace", to, e)),
        _ => {}
    }
    if fs::hard_link(from, to).is_ok() {
        return Ok(());
    }
    fs::copy(from, to).map(drop).map_err(|e| Error::io("copy", from, e))
}
