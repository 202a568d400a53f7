//! Which videos of a folder are clips of the scene: not those that phones add to their photographs, whether these can be read or not.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use crate::control::{Control, Warning};
use crate::error::{Error, ErrorKind, Result};

use super::Projection;
use super::images::{self, Listing, VIDEOS, extension, natural_order};
use super::probe::probe;

/// Fewer photographs are no capture by themselves.
pub(super) const LEAST_PHOTOGRAPHS: usize = 3;
/// What a phone films with a photograph lasts about 3 seconds. What lasts longer than this, seconds, is a clip of its own, whatever it is
/// called.
const LONGEST_OF_PHOTOGRAPH: f64 = 4.0;
/// The code of the warning that a part is not used.
pub(super) const CLIP_SKIPPED: &str = "clip_skipped";

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

/// The one video of `folder`, where frames can come from nothing else in it.
pub(super) fn only_clip(folder: &Path) -> Result<Option<PathBuf>> {
    match &clips_in(folder)?[..] {
        [clip] if images::images_in(folder)?.is_empty() => Ok(Some(clip.clone())),
        _ => Ok(None),
    }
}

/// The same, where it is no video that a phone added to one of several photographs that cannot be read; with what is to be said of the
/// files beside it.
///
/// # Errors
/// Those of [`without_those_of_photographs`] and of the disk.
pub(super) fn lone_clip(folder: &Path, control: &Control) -> Result<Option<(PathBuf, Vec<Warning>)>> {
    let Some(clip) = only_clip(folder)? else { return Ok(None) };
    let listing = images::list(folder)?;
    let clips = [clip];
    // Of one that is left out those tell who find nothing else.
    let own = without_those_of_photographs(&clips, &listing, &mut Vec::new(), control)?;
    Ok(own.first().map(|&clip| (clip.clone(), listing.warnings)))
}

/// The clips but those that a phone adds to its photographs, which have the names of these and are short; without photographs all. Of those
/// that have such names and cannot be read no more is said than of the short ones: a phone may add one to each photograph. Photographs
/// that cannot be read count: the clips beside them are no more meant than beside others.
///
/// # Errors
/// As [`probe`], but for what is wrong with a clip.
pub(super) fn without_those_of_photographs<'a>(
    clips: &'a [PathBuf],
    listing: &Listing,
    warnings: &mut Vec<Warning>,
    control: &Control,
) -> Result<Vec<&'a PathBuf>> {
    if listing.images.len() + listing.heic.len() < LEAST_PHOTOGRAPHS {
        return Ok(clips.iter().collect());
    }
    let stem = |path: &Path| name_of(path).to_lowercase();
    let photographs: BTreeSet<String> =
        listing.images.iter().chain(&listing.heic).map(|picture| stem(picture)).collect();
    let (mut of_photographs, mut own) = (Vec::new(), Vec::new());
    for clip in clips {
        let belongs = photographs.contains(&stem(clip)) && is_short_or_unreadable(clip, listing, control)?;
        if belongs { of_photographs.push(clip) } else { own.push(clip) }
    }
    if let Some(first) = of_photographs.first().and_then(|clip| clip.file_name()) {
        let (count, first) = (of_photographs.len(), first.to_string_lossy());
        let message = format!(
            "{count} videos are left out, which have the names of photographs and last at most {LONGEST_OF_PHOTOGRAPH} seconds, as \
             phones add them to these, or cannot be read (the first: {first})"
        );
        warnings.push(Warning::new(CLIP_SKIPPED, message));
    }
    Ok(own)
}

/// Whether a clip of a folder lasts no longer than what a phone films with a photograph, or cannot be read.
fn is_short_or_unreadable(clip: &Path, listing: &Listing, control: &Control) -> Result<bool> {
    // As a flat one, which every video can be taken for: only how long it lasts is asked.
    match probe(clip, Some(Projection::Flat), control) {
        Ok(probe) => Ok(probe.info.duration > 0.0 && probe.info.duration <= LONGEST_OF_PHOTOGRAPH),
        Err(error) if error.kind() == ErrorKind::InvalidMedia => Ok(true),
        // The photographs can be read without ffmpeg, if there are enough.
        Err(error)
            if error.kind() == ErrorKind::FfmpegMissing && listing.images.len() >= LEAST_PHOTOGRAPHS =>
        {
            Ok(true)
        }
        Err(error) => Err(error),
    }
}

/// The name of a file without what it ends with.
pub(super) fn name_of(path: &Path) -> String {
    let stem = path.file_stem().map(|s| s.to_string_lossy().into_owned()).unwrap_or_default();
    // A model file has one line for each image, and names in it end at the line.
    stem.chars().map(|c| if c.is_control() { '_' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::video::Frames;
    use crate::video::tests::{extract, pan, refused};

    /// Files that are called as pictures in HEIC are.
    fn heic(folder: &Path, count: usize) {
        for k in 0..count {
            fs::write(folder.join(format!("IMG_{k}.HEIC")), "x").unwrap();
        }
    }

    /// What is said of files that are not read.
    fn ignored_in(frames: &Frames) -> Vec<&str> {
        frames.warnings.iter().filter(|w| w.code == "files_ignored").map(|w| w.message.as_str()).collect()
    }

    #[test]
    fn photographs_that_cannot_be_read_are_told_of_beside_videos() {
        let folder = tempfile::tempdir().unwrap();
        let (input, output) = (folder.path().join("in"), folder.path().join("out"));
        fs::create_dir(&input).unwrap();
        heic(&input, 5);
        let advice = "5 of them are HEIC pictures: convert them to JPEG";
        pan(&input, "walk.mp4", 30, 6, (160, 120));
        let alone = extract(&input, &output, 20).unwrap();
        assert!(alone.is_sequential(), "{alone:?}");
        pan(&input, "stairs.mp4", 30, 6, (160, 120));
        let several = extract(&input, &output, 20).unwrap();
        for k in 0..4u32 {
            let grey = |x: u32, y: u32| image::Luma([(x * 2 + y * k) as u8]);
            image::GrayImage::from_fn(100, 70, grey).save(input.join(format!("own{k}.png"))).unwrap();
        }
        let with_photographs = extract(&input, &output, 30).unwrap();
        assert!(with_photographs.frames.iter().any(|f| f.name == "own0.png"));
        for frames in [alone, several, with_photographs] {
            let [ignored] = ignored_in(&frames)[..] else { panic!("{:?}", frames.warnings) };
            assert!(ignored.contains(advice), "{ignored}");
        }
    }

    #[test]
    fn videos_of_photographs_that_cannot_be_read_are_no_clips() {
        let folder = tempfile::tempdir().unwrap();
        // A picture or two are no capture.
        heic(folder.path(), 2);
        pan(folder.path(), "img_0.mp4", 30, 6, (160, 120));
        let output = tempfile::tempdir().unwrap();
        assert!(extract(folder.path(), output.path(), 20).unwrap().is_sequential());
        for count in [5, 70] {
            heic(folder.path(), count);
            let error = refused(folder.path());
            assert_eq!(error.kind(), ErrorKind::TooFewFrames, "{error}");
            let advice = format!("{count} of them are HEIC pictures: convert them to JPEG");
            assert!(error.message().contains(&advice), "{error}");
            for k in 0..count {
                fs::write(folder.path().join(format!("IMG_{k}.MOV")), "").unwrap();
            }
            let error = refused(folder.path());
            assert!(error.message().contains(&advice), "{error}");
        }
        // A clip with a name of its own is one.
        pan(folder.path(), "walk.mp4", 30, 6, (160, 120));
        let frames = extract(folder.path(), output.path(), 20).unwrap();
        assert!(frames.frames.len() >= 8 && ignored_in(&frames).len() == 1, "{frames:?}");
        // Of too many the photographs may be what was meant.
        for k in 0..70 {
            fs::write(folder.path().join(format!("clip{k}.mov")), "").unwrap();
        }
        let error = refused(folder.path());
        assert!(error.message().contains("more than 64"), "{error}");
        assert!(error.message().contains("70 of them are HEIC pictures"), "{error}");
    }
}
