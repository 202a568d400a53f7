//! The stage itself: a video or a folder of images becomes key frames on disk.
//!
//! A video is decoded twice: once small, to measure all frames and choose, and once at working size, of which only the
//! chosen frames leave the decoder. `frames.json` is written last: where it is, the stage is complete.

use std::path::Path;

use image::RgbImage;
use rayon::prelude::*;

use crate::control::{Control, Warning};
use crate::error::{Error, ErrorKind, Result};
use crate::jpeg;
use crate::stage::Stage;

use super::contact_sheet::{contact_sheet, thumbnail};
use super::decode::{Decoder, can_tone_map};
use super::ffmpeg::Tools;
use super::keyframes::{Choice, Survey};
use super::probe::{Probe, probe};
use super::{Frame, FrameOptions, FrameSource, Frames, SURVEY_SIDE, VideoInfo, images, picture};

/// Part of the stage's progress that the first pass takes: it decodes as much as the second, which encodes.
const SURVEY_SHARE: f32 = 0.55;

/// Extracts key frames from a video, or takes the images of a folder, into the folder `output` (made if need be; frames
/// of an earlier run in it are replaced). Writes `frame_NNNNNN.jpg` (or the images), a contact sheet `frames.jpg` and,
/// last, `frames.json`.
///
/// Frames are upright, have square pixels and ordinary colours (HDR is tone-mapped), and are at most
/// `options.max_resolution` long. Warnings are sent to `control` and kept in the result.
///
/// # Errors
/// [`ErrorKind::InvalidArgument`] for options out of range; [`ErrorKind::NotFound`]; [`ErrorKind::InvalidMedia`] for what
/// is no video, cannot be decoded or breaks a limit; [`ErrorKind::FfmpegMissing`]; [`ErrorKind::TooFewFrames`];
/// [`ErrorKind::InsufficientParallax`] if the camera stands still; [`ErrorKind::DiskFull`], [`ErrorKind::Io`];
/// [`ErrorKind::DeadlineExceeded`]; [`ErrorKind::Cancelled`].
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
    extract(input, output, options, control).map_err(|e| e.at(Stage::Frames))
}

/// Describes a video without decoding it.
///
/// # Errors
/// [`ErrorKind::NotFound`], [`ErrorKind::InvalidMedia`] for what is no video or breaks a limit,
/// [`ErrorKind::FfmpegMissing`].
pub fn probe_video(input: &Path) -> Result<VideoInfo> {
    probe(input, &Control::new()).map(|probe| probe.info).map_err(|e| e.at(Stage::Frames))
}

fn extract(input: &Path, output: &Path, options: &FrameOptions, control: &Control) -> Result<Frames> {
    options.validate()?;
    let is_folder = std::fs::metadata(input).map_err(|e| Error::io("open", input, e))?.is_dir();
    if is_folder && same_folder(input, output) {
        return Err(Error::argument(format!("{} is both the input and the output", input.display())));
    }
    control.progress(Stage::Frames, "opening", 0.0);
    let source = if is_folder { None } else { Some(probe(input, control)?) };
    prepare(output)?;
    let (frames, thumbnails) = match source {
        Some(probe) => from_video(&probe, output, options, control)?,
        None => images::take(input, output, options, control)?,
    };
    control.check()?;
    jpeg::write(&contact_sheet(&thumbnails), jpeg::VIEWING_QUALITY, &output.join("frames.jpg"))?;
    frames.save()?;
    for warning in &frames.warnings {
        control.warn(Stage::Frames, warning.clone());
    }
    let summary = format!("{} of {} frames", frames.frames.len(), frames.total);
    control.progress_with(Stage::Frames, "done", 1.0, summary);
    Ok(frames)
}

fn same_folder(a: &Path, b: &Path) -> bool {
    matches!((a.canonicalize(), b.canonicalize()), (Ok(a), Ok(b)) if a == b)
}

/// Makes the folder, and takes away what an earlier run left: its description first, so that it never describes a mixture.
fn prepare(output: &Path) -> Result<()> {
    std::fs::create_dir_all(output).map_err(|e| Error::io("make", output, e))?;
    let earlier = Frames::load(output).map(|f| f.frames).unwrap_or_default();
    let remove = |name: &str| {
        let path = output.join(name);
        match std::fs::remove_file(&path) {
            Err(e) if e.kind() != std::io::ErrorKind::NotFound => Err(Error::io("replace", &path, e)),
            _ => Ok(()),
        }
    };
    remove("frames.json")?;
    for frame in &earlier {
        remove(&frame.name)?;
    }
    // A run that was ended left pictures without a description.
    for entry in std::fs::read_dir(output).map_err(|e| Error::io("read", output, e))?.flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let number = name.strip_prefix("frame_").and_then(|n| n.strip_suffix(".jpg"));
        let ours = number.is_some_and(|n| n.len() >= 6 && n.bytes().all(|b| b.is_ascii_digit()));
        if ours || (name.starts_with('.') && name.ends_with(".partial")) {
            remove(&name)?;
        }
    }
    Ok(())
}

type Thumbnails = Vec<(u64, RgbImage)>;

fn from_video(
    probe: &Probe,
    output: &Path,
    options: &FrameOptions,
    control: &Control,
) -> Result<(Frames, Thumbnails)> {
    let mut warnings = probe.warnings.clone();
    let tools = Tools::find()?;
    if probe.info.hdr && !can_tone_map(tools)? {
        warnings.push(Warning::new(
            "hdr_not_mapped",
            "the video is HDR and this ffmpeg has no zscale filter to map it: colours will be pale",
        ));
    }
    if probe.interlaced && !tools.has_filter("bwdif")? {
        warnings.push(Warning::new("interlaced", "the video is interlaced and this ffmpeg cannot undo that"));
    }

    let (survey, times) = survey(probe, control, &mut warnings)?;
    let (choices, about_choice) = survey.choose(options.max_frames, probe.info.frame_rate)?;
    warnings.extend(about_choice);

    let (frames, thumbnails) = store(probe, &choices, &times, output, options, control)?;
    if frames.len() < choices.len() {
        warnings.push(Warning::new(
            "frames_lost",
            format!(
                "{} of {} chosen frames could not be decoded again",
                choices.len() - frames.len(),
                choices.len()
            ),
        ));
    }
    if frames.len() < 3 {
        return Err(Error::new(
            ErrorKind::InvalidMedia,
            format!(
                "{} does not decode reliably: the second time {} frames came",
                probe.path.display(),
                frames.len()
            ),
        ));
    }
    let source = FrameSource::Video(probe.info.clone());
    let folder = output.to_path_buf();
    Ok((Frames { folder, source, total: survey.len() as u64, frames, warnings }, thumbnails))
}

/// The first pass: measures all frames. Also returns their times.
fn survey(probe: &Probe, control: &Control, warnings: &mut Vec<Warning>) -> Result<(Survey, Vec<f64>)> {
    let (width, height) = picture::fit(probe.stored.0, probe.stored.1, SURVEY_SIDE);
    let expected = (probe.info.duration * probe.info.frame_rate).max(1.0);
    let mut decoder = Decoder::luma(probe, width, height)?;
    let mut survey = Survey::new(width, height);
    while let Some(luma) = decoder.next(control)? {
        survey.add(&luma);
        decoder.recycle(luma);
        if survey.len().is_multiple_of(16) {
            let fraction = (survey.len() as f64 / expected).min(1.0) as f32;
            control.progress(Stage::Frames, "measuring frames", SURVEY_SHARE * fraction);
        }
    }
    let log = decoder.finish(probe, control)?;
    if log.errors > 0 {
        warnings.push(Warning::new(
            "damaged_video",
            format!(
                "the decoder met {} faults in the video and went on; the last: {}",
                log.errors,
                log.summary()
            ),
        ));
    }
    let seconds = survey.len() as f64 / probe.info.frame_rate.max(1e-3);
    if probe.info.frame_rate > 0.0 && seconds < 0.9 * probe.info.duration - 0.5 {
        warnings.push(Warning::new(
            "video_cut_off",
            format!(
                "only {} frames could be decoded; the video should last {:.1} s",
                survey.len(),
                probe.info.duration
            ),
        ));
    }
    let times = times(log.timestamps, survey.len(), probe.info.frame_rate);
    Ok((survey, times))
}

/// The times of `count` frames: those that the file gives, or evenly spaced where it gives none.
fn times(given: Vec<f64>, count: usize, frame_rate: f64) -> Vec<f64> {
    if given.len() == count && given.iter().all(|t| t.is_finite()) {
        return given;
    }
    let rate = if frame_rate > 0.0 { frame_rate } else { 30.0 };
    (0..count).map(|i| i as f64 / rate).collect()
}

/// The second pass: decodes the chosen frames at working size and writes them.
fn store(
    probe: &Probe,
    choices: &[Choice],
    times: &[f64],
    output: &Path,
    options: &FrameOptions,
    control: &Control,
) -> Result<(Vec<Frame>, Thumbnails)> {
    let (width, height) = picture::fit(probe.stored.0, probe.stored.1, options.max_resolution);
    let upright = match probe.orientation.degrees {
        90 | 270 => (height, width),
        _ => (width, height),
    };
    let numbers: Vec<u64> = choices.iter().map(|c| c.number).collect();
    let mut decoder = Decoder::rgb(probe, &numbers, width, height)?;
    let mut frames = Vec::with_capacity(choices.len());
    let mut thumbnails = Vec::with_capacity(choices.len());
    // Encoding takes longer than decoding, so a batch is encoded by all threads while ffmpeg fills the pipe.
    let batch_size = 2 * rayon::current_num_threads();
    for batch in choices.chunks(batch_size) {
        let mut pictures = Vec::with_capacity(batch.len());
        for &choice in batch {
            let Some(samples) = decoder.next(control)? else { break };
            let picture = RgbImage::from_raw(upright.0, upright.1, samples)
                .ok_or_else(|| Error::new(ErrorKind::Internal, "a decoded picture has a wrong size"))?;
            pictures.push((choice, picture));
        }
        let ended = pictures.len() < batch.len();
        let written: Vec<Result<(Frame, RgbImage)>> = pictures
            .into_par_iter()
            .map(|(choice, picture)| {
                let name = Frames::name_of(choice.number);
                picture::write(output, &name, &jpeg::encode(&picture, jpeg::WORKING_QUALITY)?)?;
                let frame = Frame {
                    name,
                    index: choice.number,
                    timestamp: times.get(choice.number as usize).copied(),
                    width: upright.0,
                    height: upright.1,
                    sharpness: choice.sharpness,
                    focal_prior: None,
                    quarter_turns: 0,
                    side: None,
                };
                Ok((frame, thumbnail(picture)))
            })
            .collect();
        for result in written {
            let (frame, small) = result?;
            thumbnails.push((frame.index, small));
            frames.push(frame);
        }
        let fraction = frames.len() as f32 / choices.len() as f32;
        control.progress(Stage::Frames, "writing frames", SURVEY_SHARE + (1.0 - SURVEY_SHARE) * fraction);
        if ended {
            break;
        }
    }
    decoder.finish(probe, control)?;
    Ok((frames, thumbnails))
}
