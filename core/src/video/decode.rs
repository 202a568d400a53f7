//! Decodes a video through ffmpeg into raw pictures on a pipe.
//!
//! In: a [`Probe`]. Out: pictures of one size, in the order of presentation, none doubled and none dropped. The last
//! filter scales to the size that was asked for, so whatever the stream does in the middle, a picture never has another
//! number of bytes. Two threads: this one consumes, a second reads the pipe (and a third, in [`Process`], the log).

use std::io::{self, Read};
use std::process::ChildStdout;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, SyncSender, channel, sync_channel};
use std::time::{Duration, Instant};

use ffmpeg_sidecar::command::FfmpegCommand;

use crate::control::Control;
use crate::error::{Error, ErrorKind, Result};

use super::Projection;
use super::ffmpeg::Tools;
use super::probe::{CONTAINERS, DECODERS, MAX_DURATION, MAX_FRAMES, MAX_PIXELS, Probe, address};
use super::process::{Limits, Log, Process, check_ended_by_itself};

/// Pictures that wait between ffmpeg and us.
const QUEUE: usize = 4;
/// Longest time without a frame, chosen or skipped, while we wait for a picture.
const STALL_LIMIT: Duration = Duration::from_secs(90);
/// Prints a line for each frame. It comes first, so that frames which are skipped later are seen to be decoded.
const REPORT: &str = "showinfo=checksum=0";
/// The luminance that becomes 1 before HDR is tone-mapped, cd/m²: that of white paper in HDR video (BT.2408).
const REFERENCE_WHITE: u32 = 203;
/// HDR is brought to the range of ordinary displays by one fixed curve, so that a surface has the same colour in every
/// frame: dark and middle tones stay as they are, up to five times white (1000 cd/m²) is pressed into the rest.
/// `desat=0` leaves bright colours their colour.
const TONE_MAP: &str = "tonemap=mobius:peak=5:desat=0";

/// A running decode.
pub(super) struct Decoder {
    process: Process,
    pictures: Receiver<io::Result<Vec<u8>>>,
    used: Sender<Vec<u8>>,
    watch: Watch,
    count: u64,
}

/// How long the decoder may keep us waiting.
#[derive(Debug, Clone, Copy)]
struct Patience {
    /// While not one frame is decoded.
    stall: Duration,
    /// For all pictures together.
    total: Duration,
}

/// Measures how long the decoder keeps us waiting. The time that is spent on pictures elsewhere is not the video's fault.
#[derive(Debug)]
struct Watch {
    patience: Patience,
    /// For all pictures so far.
    waited: Duration,
    /// Since a frame was decoded, or since we began to wait for the picture.
    still: Duration,
    /// How many frames were decoded, chosen or skipped.
    seen: u64,
}

impl Watch {
    fn new(patience: Patience) -> Watch {
        Watch { patience, waited: Duration::ZERO, still: Duration::ZERO, seen: 0 }
    }

    /// Begins to wait for a picture; `seen` frames have been decoded.
    fn begin(&mut self, seen: u64) {
        (self.still, self.seen) = (Duration::ZERO, seen);
    }

    /// We have waited for `time` more, and `seen` frames have been decoded by now.
    ///
    /// # Errors
    /// [`ErrorKind::DeadlineExceeded`] if patience is at its end.
    fn wait(&mut self, time: Duration, seen: u64) -> Result<()> {
        self.waited += time;
        self.still = if seen == self.seen { self.still + time } else { Duration::ZERO };
        self.seen = seen;
        let (why, hint) = if self.waited > self.patience.total {
            let limit = self.patience.total.as_secs();
            (
                format!("decoding took longer than {limit} s; {seen} frames had been decoded by then"),
                "convert the video to an ordinary mp4, or use a shorter part",
            )
        } else if self.still > self.patience.stall {
            let still = self.still.as_secs();
            (
                format!("decoding came to a halt after frame {seen}: nothing came for {still} s"),
                "the file may be damaged; convert it again or use a shorter part",
            )
        } else {
            return Ok(());
        };
        Err(Error::new(ErrorKind::DeadlineExceeded, why).hint(hint))
    }
}

impl Decoder {
    /// All frames as luma (0 to 255), `width` x `height`, *not* turned upright; the log has their times. Of a panorama the
    /// middle, half as wide and half as high: only there it looks nearly as a lens would show it.
    pub(super) fn luma(probe: &Probe, width: u32, height: u32) -> Result<Decoder> {
        let middle = match probe.info.projection {
            Projection::Flat => "",
            Projection::Equirectangular => "crop=iw/2:ih/2,",
        };
        let filters = format!("{REPORT},{middle}scale={width}:{height}:flags=area,format=gray");
        Self::start(probe, &filters, "gray", width as usize * height as usize, MAX_FRAMES)
    }

    /// Frames from the beginning, at most one in `seconds` and `most` in all, upright, as luma; sizes as for [`Decoder::rgb`].
    /// What comes after the last of them is not decoded.
    pub(super) fn glances(
        probe: &Probe,
        (seconds, most): (f64, u64),
        width: u32,
        height: u32,
    ) -> Result<Decoder> {
        let select = format!("select='isnan(prev_selected_t)+gte(t-prev_selected_t,{seconds:.3})'");
        let mut filters = format!("{REPORT},{select},scale={width}:{height}:flags=area,format=gray");
        if !probe.orientation.filters.is_empty() {
            filters.push(',');
            filters.push_str(probe.orientation.filters);
        }
        Self::start(probe, &filters, "gray", width as usize * height as usize, most)
    }

    /// The frames with these numbers (ascending), upright, as RGB. `width` x `height` is the size *before* they are
    /// turned upright; larger frames are scaled down by area averaging.
    pub(super) fn rgb(probe: &Probe, numbers: &[u64], width: u32, height: u32) -> Result<Decoder> {
        let tools = Tools::find()?;
        let mut filters = vec![REPORT.to_owned()];
        if probe.interlaced && tools.has_filter("bwdif")? {
            filters.push(deinterlace(probe));
        }
        filters.push(format!("select='{}'", selection(numbers)));
        let scale = format!("scale={width}:{height}:flags=area+accurate_rnd+full_chroma_int");
        if probe.info.hdr && can_tone_map(tools)? {
            filters.push(format!("{scale},format=yuv444p10le"));
            filters.push(tone_mapping(probe));
        } else if probe.colour.space.is_empty() || probe.colour.space == "unknown" {
            // Untagged video: BT.601 for standard definition, BT.709 above, as cameras do.
            let matrix = if probe.stored.1.min(probe.stored.0) >= 720 { "bt709" } else { "bt601" };
            filters.push(format!("{scale}:in_color_matrix={matrix},format=rgb24"));
        } else {
            filters.push(format!("{scale},format=rgb24"));
        }
        if !probe.orientation.filters.is_empty() {
            filters.push(probe.orientation.filters.to_owned());
        }
        let bytes = width as usize * height as usize * 3;
        Self::start(probe, &filters.join(","), "rgb24", bytes, numbers.len() as u64)
    }

    /// The frames with these numbers (ascending), upright, as luma; sizes as for [`Decoder::rgb`].
    pub(super) fn gray(probe: &Probe, numbers: &[u64], width: u32, height: u32) -> Result<Decoder> {
        let mut filters = vec![REPORT.to_owned()];
        if probe.interlaced && Tools::find()?.has_filter("bwdif")? {
            filters.push(deinterlace(probe));
        }
        filters.push(format!("select='{}'", selection(numbers)));
        filters.push(format!("scale={width}:{height}:flags=area+accurate_rnd,format=gray"));
        if !probe.orientation.filters.is_empty() {
            filters.push(probe.orientation.filters.to_owned());
        }
        let bytes = width as usize * height as usize;
        Self::start(probe, &filters.join(","), "gray", bytes, numbers.len() as u64)
    }

    fn start(probe: &Probe, filters: &str, format: &str, bytes: usize, most: u64) -> Result<Decoder> {
        let tools = Tools::find()?;
        let threads = std::thread::available_parallelism().map_or(2, usize::from).min(16);
        let mut command = FfmpegCommand::new_with_path(&tools.ffmpeg);
        command.args(["-nostdin", "-hide_banner", "-nostats", "-loglevel", "level+info"]);
        command.args(["-protocol_whitelist", "file", "-format_whitelist", CONTAINERS]);
        // Without the last, filters begin anew where the size of the picture changes, and count frames from 0 again.
        command.args(["-codec_whitelist", DECODERS, "-reinit_filter", "0"]);
        command.args(["-max_pixels", &MAX_PIXELS.to_string(), "-threads", &threads.to_string()]);
        command.args(["-filter_threads", &threads.to_string()]);
        command.args(["-max_error_rate", "1", "-noautorotate", "-t", &format!("{}", MAX_DURATION + 60.0)]);
        command.arg("-i").arg(address(&probe.path));
        command.args(["-map", &format!("0:{}", probe.stream), "-an", "-sn", "-dn", "-map_metadata", "-1"]);
        command.args(["-vf", filters]).args(tools.passthrough());
        command.args(["-frames:v", &most.to_string(), "-f", "rawvideo", "-pix_fmt", format, "pipe:1"]);
        let limits = Limits { reads: Some(probe.path.clone()), ..Limits::default() };
        let process = Process::spawn(command.as_inner_mut(), &limits)?;
        let total = Duration::from_secs_f64(600.0 + 60.0 * probe.info.duration);
        Self::read(process, bytes, Patience { stall: STALL_LIMIT, total })
    }

    /// Reads pictures of `bytes` bytes from `process`.
    fn read(mut process: Process, bytes: usize, patience: Patience) -> Result<Decoder> {
        drop(process.stdin());
        let stdout = process.stdout().ok_or_else(|| {
            Error::new(ErrorKind::Internal, "the decoder was started without an output pipe")
        })?;
        let (send, pictures) = sync_channel(QUEUE);
        let (used, reuse) = channel();
        std::thread::spawn(move || read_pictures(stdout, bytes, &send, &reuse));
        Ok(Decoder { process, pictures, used, watch: Watch::new(patience), count: 0 })
    }

    /// The next picture, or none at the end of the video.
    ///
    /// # Errors
    /// [`ErrorKind::DeadlineExceeded`] if ffmpeg stops decoding or all of it takes too long, [`ErrorKind::Cancelled`],
    /// [`ErrorKind::Io`].
    pub(super) fn next(&mut self, control: &Control) -> Result<Option<Vec<u8>>> {
        let mut last = Instant::now();
        self.watch.begin(self.process.frames_seen());
        loop {
            control.check()?;
            let received = self.pictures.recv_timeout(Duration::from_millis(100));
            let passed = last.elapsed();
            last += passed;
            match received {
                Err(RecvTimeoutError::Disconnected) => return Ok(None),
                Ok(Err(source)) => {
                    return Err(Error::new(ErrorKind::Io, format!("cannot read from ffmpeg: {source}")));
                }
                Ok(Ok(picture)) => {
                    // A picture ends every standstill, but the whole time goes on.
                    self.watch.begin(self.process.frames_seen());
                    self.count += 1;
                    self.watch.wait(passed, self.watch.seen)?;
                    return Ok(Some(picture));
                }
                Err(RecvTimeoutError::Timeout) => self.watch.wait(passed, self.process.frames_seen())?,
            }
        }
    }

    /// Gives a picture's memory back for the next one.
    pub(super) fn recycle(&self, picture: Vec<u8>) {
        // The reader may have ended; then the memory is simply freed.
        let _ = self.used.send(picture);
    }

    /// Ends the decode after [`Decoder::next`] returned none; the log tells times and faults.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidMedia`] if not one picture came out, [`ErrorKind::Io`] if somebody ended ffmpeg before its time.
    pub(super) fn finish(mut self, probe: &Probe, control: &Control) -> Result<Log> {
        let status = self.process.wait(Duration::from_secs(30), control)?;
        let log = self.process.log();
        check_ended_by_itself(status, &log)?;
        if self.count == 0 {
            let why = match status.success() {
                true => "it has no frames",
                false => log.summary(),
            };
            return Err(Error::new(
                ErrorKind::InvalidMedia,
                format!("no frame of {} can be decoded: {why}", probe.path.display()),
            )
            .hint("play it to see whether the file is whole"));
        }
        Ok(log)
    }
}

/// Makes one frame of each pair of fields. The filter needs frames of one size, so others are brought to it before.
fn deinterlace(probe: &Probe) -> String {
    let (width, height) = probe.coded;
    format!("scale={width}:{height},bwdif=mode=send_frame:deint=interlaced")
}

/// Whether this build of ffmpeg can turn HDR into ordinary colours.
pub(super) fn can_tone_map(tools: &Tools) -> Result<bool> {
    Ok(tools.has_filter("zscale")? && tools.has_filter("tonemap")?)
}

/// From `yuv444p10le` in PQ or HLG to `rgb24`. What the file leaves unsaid is BT.2020, as for every HDR camera.
fn tone_mapping(probe: &Probe) -> String {
    let or = |tag: &str, default: &str| match tag {
        "" | "unknown" | "reserved" => default.to_owned(),
        tag => tag.to_owned(),
    };
    // zscale spells some of ffprobe's names differently.
    let space =
        or(&probe.colour.space, "bt2020nc").replace("bt2020nc", "2020_ncl").replace("bt2020c", "2020_cl");
    let primaries = or(&probe.colour.primaries, "bt2020");
    let range = if probe.colour.range == "pc" { "full" } else { "limited" };
    format!(
        "zscale=tin={transfer}:min={space}:pin={primaries}:rin={range}:t=linear:npl={REFERENCE_WHITE},format=gbrpf32le,\
         zscale=p=bt709,{TONE_MAP},zscale=t=bt709:m=gbr:r=full,format=gbrp,format=rgb24",
        transfer = probe.colour.transfer
    )
}

/// The condition that lets through exactly these frames: a sum of ranges. It is nested in halves, since ffmpeg's parser
/// takes at most 100 levels and a plain sum is one level for each term.
fn selection(numbers: &[u64]) -> String {
    let runs: Vec<&[u64]> = numbers.chunk_by(|a, b| a + 1 == *b).collect();
    fn sum(runs: &[&[u64]]) -> String {
        match runs {
            [] => "0".to_owned(),
            [[number]] => format!("eq(n,{number})"),
            [run] => format!("between(n,{},{})", run[0], run[run.len() - 1]), // a run is never empty
            _ => {
                let (left, right) = runs.split_at(runs.len() / 2);
                format!("({}+{})", sum(left), sum(right))
            }
        }
    }
    sum(&runs)
}

fn read_pictures(
    mut stdout: ChildStdout,
    bytes: usize,
    send: &SyncSender<io::Result<Vec<u8>>>,
    reuse: &Receiver<Vec<u8>>,
) {
    loop {
        let mut picture = reuse.try_recv().unwrap_or_else(|_| vec![0; bytes]);
        match stdout.read_exact(&mut picture) {
            Ok(()) => {
                if send.send(Ok(picture)).is_err() {
                    return; // nobody listens any more
                }
            }
            // The end; a started picture that ffmpeg did not finish is no picture.
            Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => return,
            Err(e) => {
                let _ = send.send(Err(e));
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATIENCE: Patience = Patience { stall: Duration::from_secs(90), total: Duration::from_secs(600) };

    #[test]
    fn skipped_frames_are_no_standstill_but_silence_is() {
        let second = Duration::from_secs(1);
        let mut watch = Watch::new(PATIENCE);
        watch.begin(7);
        // Five minutes without a picture, while a frame is decoded and skipped every half minute.
        for time in 0..300 {
            watch.wait(second, 8 + time / 30).unwrap();
        }
        watch.begin(17);
        for _ in 0..90 {
            watch.wait(second, 17).unwrap();
        }
        let error = watch.wait(second, 17).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::DeadlineExceeded);
        assert!(error.message().contains("came to a halt after frame 17: nothing came for 91 s"), "{error}");
    }

    #[test]
    fn the_whole_time_is_limited_while_pictures_come() {
        let mut watch = Watch::new(PATIENCE);
        let first_late = (0..).find(|&frame| {
            watch.begin(frame);
            watch.wait(Duration::from_millis(500), frame).is_err()
        });
        assert_eq!(first_late, Some(1200));
        let error = watch.wait(Duration::ZERO, 1201).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::DeadlineExceeded);
        assert!(error.message().contains("took longer than 600 s; 1201 frames"), "{error}");
    }

    /// A decoder of 30 frames of 16 x 16, of which the first and the last are let through.
    fn thirty(patience: Patience) -> Decoder {
        let mut command = std::process::Command::new(&Tools::find().unwrap().ffmpeg);
        let source = format!("color=s=16x16:r=20:d=1.5,{REPORT},select='eq(n,0)+eq(n,29)'");
        command.args(["-loglevel", "level+info", "-f", "lavfi", "-i", &source, "-vsync", "passthrough"]);
        command.args(["-f", "rawvideo", "-pix_fmt", "gray", "pipe:1"]);
        Decoder::read(Process::spawn(&mut command, &Limits::default()).unwrap(), 256, patience).unwrap()
    }

    #[test]
    fn frames_are_seen_that_are_skipped_and_no_patience_means_none() {
        let control = Control::new();
        let mut decoder = thirty(PATIENCE);
        while decoder.next(&control).unwrap().is_some() {}
        decoder.process.wait(Duration::from_secs(30), &control).unwrap();
        let log = decoder.process.log();
        assert_eq!((decoder.count, decoder.process.frames_seen(), log.timestamps.len()), (2, 30, 30));
        let mut decoder = thirty(Patience { total: Duration::ZERO, ..PATIENCE });
        assert_eq!(decoder.next(&control).unwrap_err().kind(), ErrorKind::DeadlineExceeded);
    }

    #[test]
    fn a_selection_joins_neighbours() {
        assert_eq!(selection(&[0, 1, 2, 5, 7, 8]), "(between(n,0,2)+(eq(n,5)+between(n,7,8)))");
        assert_eq!(selection(&[9]), "eq(n,9)");
    }
}
