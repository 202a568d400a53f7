//! Key frames of one video. It is decoded twice: once small, to measure all frames and choose, and once at working size, of which
//! only the chosen frames leave the decoder.

use std::path::Path;

use image::RgbImage;
use rayon::prelude::*;

use crate::control::{Control, Warning};
use crate::error::{Error, ErrorKind, Result};
use crate::jpeg;
use crate::stage::Stage;

use super::contact_sheet::thumbnail;
use super::decode::{Decoder, can_tone_map};
use super::ffmpeg::Tools;
use super::keyframes::{Choice, Survey};
use super::panorama::{Cutter, panoramas, side_size, working_size};
use super::probe::Probe;
use super::seam::are_panoramas;
use super::{Frame, FrameOptions, FrameSource, Frames, Projection, SURVEY_SIDE, picture};

/// Part of the stage's progress that the first pass takes: it decodes as much as the second, which encodes.
pub(super) const SURVEY_SHARE: f32 = 0.55;
/// How a video that may be a panorama is looked at: so many pictures of its first seconds,
const GLANCES: u64 = 16;
/// of which so many are enough to have moved,
const GLANCED_SECONDS: f64 = 20.0;
/// and so wide, in pixels.
const GLANCE_SIDE: u32 = 960;
/// The narrowest pictures that 360° cameras write, pixels.
const SMALLEST_OF_CAMERAS: u32 = 2880;

/// Small pictures by [`Frame::index`].
pub(super) type Thumbnails = Vec<(u64, RgbImage)>;

/// Key frames of a video into the folder `output`, with a thumbnail each.
pub(super) fn from_video(
    probe: Probe,
    output: &Path,
    options: &FrameOptions,
    control: &Control,
) -> Result<(Frames, Thumbnails)> {
    Surveyed::new(probe, control)?.key_frames(output, options, control)
}

/// A video whose frames were measured: what the first pass leaves.
pub(super) struct Surveyed {
    probe: Probe,
    survey: Survey,
    /// Of all frames, seconds.
    times: Vec<f64>,
    warnings: Vec<Warning>,
}

impl Surveyed {
    /// Measures the frames of a video. Progress goes from 0 to [`SURVEY_SHARE`].
    pub(super) fn new(mut probe: Probe, control: &Control) -> Result<Self> {
        let mut warnings = Vec::new();
        if probe.may_be_panorama {
            warnings.extend(recognise_panorama(&mut probe, control)?);
        }
        let tools = Tools::find()?;
        if probe.info.hdr && !can_tone_map(tools)? {
            warnings.push(Warning::new(
                "hdr_not_mapped",
                "the video is HDR and this ffmpeg has no zscale filter to map it: colours will be pale",
            ));
        }
        if probe.interlaced && !tools.has_filter("bwdif")? {
            let message = "the video is interlaced and this ffmpeg cannot undo that";
            warnings.push(Warning::new("interlaced", message));
        }
        let (survey, times) = survey(&probe, control, &mut warnings)?;
        Ok(Self { probe, survey, times, warnings })
    }

    /// Keeps of what was measured only figures, no pictures: many videos may wait for their second pass.
    ///
    /// # Errors
    /// Why there are no key frames in it, if there may be `most` of them.
    pub(super) fn check(&mut self, most: usize) -> Result<()> {
        self.survey.let_go_of_pictures();
        self.survey.choose(most, most, self.probe.info.frame_rate).map(drop)
    }

    /// Writes key frames into the folder `output`: the second pass. Progress goes on to 1.
    pub(super) fn key_frames(
        &self,
        output: &Path,
        options: &FrameOptions,
        control: &Control,
    ) -> Result<(Frames, Thumbnails)> {
        let Self { probe, survey, times, warnings } = self;
        let mut warnings = warnings.clone();
        let is_panorama = probe.info.projection == Projection::Equirectangular;
        let pictures = |frames: usize| if is_panorama { panoramas(frames) } else { frames };
        let (most, needed) = (pictures(options.max_frames), pictures(options.most_frames()));
        let (choices, about_choice) = survey.choose(most, needed, probe.info.frame_rate)?;
        warnings.extend(about_choice);

        let (frames, thumbnails) = store(probe, &choices, times, output, options, control)?;
        // One for each picture that came.
        let came = thumbnails.len();
        if came < choices.len() {
            let lost = choices.len() - came;
            let message = format!("{lost} of {} chosen frames could not be decoded again", choices.len());
            warnings.push(Warning::new("frames_lost", message));
        }
        if came < 3 {
            let path = probe.path.display();
            let message = format!("{path} does not decode reliably: the second time {came} frames came");
            return Err(Error::new(ErrorKind::InvalidMedia, message));
        }
        let source = FrameSource::Video(probe.info.clone());
        let folder = output.to_path_buf();
        Ok((Frames { folder, source, total: survey.len() as u64, frames, warnings }, thumbnails))
    }
}

/// Looks at some pictures of a video that may be a panorama and takes it for one if they look so. Says what the user should
/// know of that.
fn recognise_panorama(probe: &mut Probe, control: &Control) -> Result<Option<Warning>> {
    let (width, height) = picture::fit(probe.info.width, probe.info.height, GLANCE_SIDE);
    let seconds = match probe.info.duration {
        duration if duration > 0.0 => duration.min(GLANCED_SECONDS) / GLANCES as f64,
        _ => GLANCED_SECONDS / GLANCES as f64,
    };
    let (decoded_width, decoded_height) = match probe.orientation.degrees {
        90 | 270 => (height, width),
        _ => (width, height),
    };
    let mut decoder = Decoder::glances(probe, (seconds, GLANCES), decoded_width, decoded_height)?;
    let mut pictures = Vec::new();
    while let Some(luma) = decoder.next(control)? {
        pictures.push(luma);
    }
    decoder.finish(probe, control)?;
    let size = format!("{}x{}", probe.info.width, probe.info.height);
    if are_panoramas(&pictures, width as usize) {
        probe.info.projection = Projection::Equirectangular;
        let message = format!(
            "the video does not say what it is, but its pictures ({size}) look like a 360° video and are taken for one: \
             their left and right edges continue each other; if it is an ordinary video, say so: projection flat"
        );
        return Ok(Some(Warning::new("taken_for_360", message)));
    }
    let is_large = probe.info.width >= SMALLEST_OF_CAMERAS;
    Ok(is_large.then(|| {
        let message = format!(
            "the video is {size}, twice as wide as high, and is taken for an ordinary one; if it is a 360° video, say so: \
             projection equirectangular"
        );
        Warning::new("maybe_spherical", message)
    }))
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

/// The second pass: decodes the chosen frames at working size and writes them. There is one thumbnail for each that came, and
/// one frame, or six of a panorama.
fn store(
    probe: &Probe,
    choices: &[Choice],
    times: &[f64],
    output: &Path,
    options: &FrameOptions,
    control: &Control,
) -> Result<(Vec<Frame>, Thumbnails)> {
    let (upright, cutter) = match probe.info.projection {
        Projection::Flat => (picture::fit(probe.info.width, probe.info.height, options.max_resolution), None),
        Projection::Equirectangular => {
            let (width, height) = working_size(probe.info.width, options.max_resolution);
            ((width, height), Some(Cutter::new(width, height, side_size(width))))
        }
    };
    let (width, height) = match probe.orientation.degrees {
        90 | 270 => (upright.1, upright.0),
        _ => upright,
    };
    let numbers: Vec<u64> = choices.iter().map(|c| c.number).collect();
    let mut decoder = Decoder::rgb(probe, &numbers, width, height)?;
    let mut frames = Vec::with_capacity(choices.len());
    let mut thumbnails = Vec::with_capacity(choices.len());
    // Encoding takes longer than decoding, so a batch is encoded by all threads while ffmpeg fills the pipe. The sides of a
    // panorama are work for six of them, and it is large: a batch of few keeps the memory small.
    let threads = rayon::current_num_threads();
    let batch_size = if cutter.is_some() { threads.div_ceil(3) } else { 2 * threads };
    for batch in choices.chunks(batch_size) {
        let mut pictures = Vec::with_capacity(batch.len());
        for &choice in batch {
            let Some(samples) = decoder.next(control)? else { break };
            let picture = RgbImage::from_raw(upright.0, upright.1, samples)
                .ok_or_else(|| Error::new(ErrorKind::Internal, "a decoded picture has a wrong size"))?;
            pictures.push((choice, picture));
        }
        let ended = pictures.len() < batch.len();
        let written: Vec<Result<(Vec<Frame>, RgbImage)>> = pictures
            .into_par_iter()
            .map(|(choice, picture)| {
                let name = Frames::name_of(choice.number);
                let one = Frame {
                    timestamp: times.get(choice.number as usize).copied(),
                    sharpness: choice.sharpness,
                    ..Frame::new(name, choice.number, upright.0, upright.1)
                };
                let stored = match &cutter {
                    None => {
                        picture::write(output, &one.name, &jpeg::encode(&picture, jpeg::WORKING_QUALITY)?)?;
                        vec![one]
                    }
                    Some(cutter) => cutter.store(&picture, &one, output)?,
                };
                Ok((stored, thumbnail(picture)))
            })
            .collect();
        for (result, choice) in written.into_iter().zip(batch) {
            let (stored, small) = result?;
            thumbnails.push((choice.number, small));
            frames.extend(stored);
        }
        let fraction = thumbnails.len() as f32 / choices.len() as f32;
        control.progress(Stage::Frames, "writing frames", SURVEY_SHARE + (1.0 - SURVEY_SHARE) * fraction);
        if ended {
            break;
        }
    }
    decoder.finish(probe, control)?;
    Ok((frames, thumbnails))
}

#[cfg(test)]
mod tests {
    use super::super::probe::probe;
    use super::super::tests::pan;
    use super::*;

    #[test]
    fn a_video_that_waits_for_its_second_pass_keeps_no_pictures_and_gives_the_same_frames() {
        let folder = tempfile::tempdir().unwrap();
        let (alone, later) = (folder.path().join("alone"), folder.path().join("later"));
        std::fs::create_dir(&alone).unwrap();
        std::fs::create_dir(&later).unwrap();
        let video = pan(folder.path(), "walk.mp4", 60, 6, (160, 120));
        let (options, control) = (FrameOptions { max_frames: 20, ..FrameOptions::default() }, Control::new());
        let probed = probe(&video, None, &control).unwrap();
        let mut surveyed = Surveyed::new(probed.clone(), &control).unwrap();
        assert!(surveyed.survey.pictures_kept() > 0);
        surveyed.check(options.max_frames).unwrap();
        assert_eq!(surveyed.survey.pictures_kept(), 0);
        let (frames, _) = surveyed.key_frames(&later, &options, &control).unwrap();
        let (expected, _) = from_video(probed, &alone, &options, &control).unwrap();
        assert_eq!((frames.frames, frames.warnings), (expected.frames, expected.warnings));
    }
}
