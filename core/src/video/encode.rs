//! Writes RGB pictures to an H.264 video (`.mp4`), through ffmpeg.
//!
//! In: pictures of one size at a fixed rate, from the scene's turntable or from a generator of test captures. Out: a
//! file that every browser plays. It appears under its name only when it is complete and on the disk.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ChildStdin;
use std::time::Duration;

use ffmpeg_sidecar::command::FfmpegCommand;
use image::RgbImage;

use crate::control::Control;
use crate::error::{Error, ErrorKind, Result};
use crate::files;

use super::ffmpeg::Tools;
use super::process::{Limits, Process};

/// H.264 encoders in the order of preference: x264, Cisco's, Apple's, Microsoft's.
const ENCODERS: [&str; 4] = ["libx264", "libopenh264", "h264_videotoolbox", "h264_mf"];

/// Longest time that ffmpeg may take to finish a file after its last picture.
const FINISH_LIMIT: Duration = Duration::from_secs(300);

/// Writes pictures to an H.264 video (`yuv420p`, BT.709, index first so that it plays while it loads).
///
/// Chroma is stored at half size, so a last odd row or column is cut off. Dropping the writer without
/// [`VideoWriter::finish`] leaves no file.
///
/// ```no_run
/// # fn main() -> libreconstruct::Result<()> {
/// use libreconstruct::video::VideoWriter;
/// let mut writer = VideoWriter::create("turntable.mp4".as_ref(), 640, 480, 30.0)?;
/// for _ in 0..60 {
///     writer.write(&image::RgbImage::new(640, 480))?;
/// }
/// writer.finish()
/// # }
/// ```
pub struct VideoWriter {
    process: Process,
    input: Option<ChildStdin>,
    path: PathBuf,
    partial: PathBuf,
    size: (u32, u32),
    written: u64,
}

impl VideoWriter {
    /// Starts a video at `path` of `width` x `height` pixels (2 to 8192 each) and `frame_rate` pictures per second.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`] for a size or rate out of range, [`ErrorKind::FfmpegMissing`] if ffmpeg is
    /// missing or has no H.264 encoder, [`ErrorKind::NotFound`] if the folder does not exist.
    pub fn create(path: &Path, width: u32, height: u32, frame_rate: f64) -> Result<VideoWriter> {
        if !(2..=8192).contains(&width) || !(2..=8192).contains(&height) {
            return Err(Error::argument(format!(
                "a video cannot be {width}x{height}: each side must be 2 to 8192"
            )));
        }
        if !(0.1..=240.0).contains(&frame_rate) {
            return Err(Error::argument(format!("frame rate {frame_rate} is out of its range 0.1 to 240")));
        }
        let tools = Tools::find()?;
        let mut encoder = None;
        for name in ENCODERS {
            if tools.has_encoder(name)? {
                encoder = Some(name);
                break;
            }
        }
        let encoder = encoder.ok_or_else(|| {
            Error::new(ErrorKind::FfmpegMissing, format!("{} has no H.264 encoder", tools.ffmpeg.display()))
                .hint("install a build of ffmpeg with libx264")
        })?;
        let path = std::path::absolute(path).map_err(|e| Error::io("write", path, e))?;
        let Some(name) = path.file_name() else {
            return Err(Error::argument(format!("{} is no file name", path.display())));
        };
        let partial = path.with_file_name(format!(".{}.partial", name.to_string_lossy()));
        // ffmpeg would report a missing or read-only folder in its own words.
        std::fs::File::create(&partial).map_err(|e| Error::io("write", &partial, e))?;

        let mut url = std::ffi::OsString::from("file:");
        url.push(&partial);
        let mut command = FfmpegCommand::new_with_path(&tools.ffmpeg);
        command.args(["-hide_banner", "-nostdin", "-nostats", "-loglevel", "level+warning"]);
        command.args(["-f", "rawvideo", "-pixel_format", "rgb24"]);
        command.args(["-video_size", &format!("{width}x{height}"), "-framerate", &format!("{frame_rate}")]);
        command.args(["-i", "pipe:0", "-map_metadata", "-1", "-an"]);
        command.arg("-vf").arg(
            "crop=trunc(iw/2)*2:trunc(ih/2)*2:0:0,\
             scale=out_color_matrix=bt709:out_range=tv:flags=area+accurate_rnd+full_chroma_int,format=yuv420p",
        );
        command.args(["-colorspace", "bt709", "-color_primaries", "bt709", "-color_trc", "bt709"]);
        command.args(["-color_range", "tv", "-c:v", encoder]);
        match encoder {
            // The number of threads changes the stream, so it is fixed: equal pictures give equal bytes anywhere.
            "libx264" => command.args(["-preset", "medium", "-crf", "18", "-threads", "4"]),
            _ => command.args(["-b:v", &bit_rate(width, height, frame_rate)]),
        };
        command.args(["-fflags", "+bitexact", "-flags:v", "+bitexact", "-movflags", "+faststart"]);
        command.args(["-f", "mp4", "-y"]).arg(&url);
        // The writer may move to another thread, whose start is not this one's end.
        let limits = Limits {
            writes: Some(partial.clone()),
            file: 64 << 30,
            die_with_parent: false,
            ..Limits::default()
        };
        let mut process = Process::spawn(command.as_inner_mut(), &limits).inspect_err(|_| {
            let _ = std::fs::remove_file(&partial);
        })?;
        let input = process.stdin();
        Ok(VideoWriter { process, input, path, partial, size: (width, height), written: 0 })
    }

    /// Adds a picture; blocks while ffmpeg is busy with those before it.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`] for a picture of another size; [`ErrorKind::Io`] or [`ErrorKind::DiskFull`] if
    /// ffmpeg gave up.
    pub fn write(&mut self, picture: &RgbImage) -> Result<()> {
        if picture.dimensions() != self.size {
            return Err(Error::argument(format!(
                "picture {} of {} is {}x{}; the video is {}x{}",
                self.written,
                self.path.display(),
                picture.width(),
                picture.height(),
                self.size.0,
                self.size.1
            )));
        }
        let written = self.input.as_mut().map(|input| input.write_all(picture.as_raw()));
        match written {
            Some(Ok(())) => {
                self.written += 1;
                Ok(())
            }
            // ffmpeg closed its end: its log says why.
            _ => {
                self.input = None;
                let _ = self.process.wait(Duration::from_secs(5), &Control::new());
                Err(self.failure())
            }
        }
    }

    /// Ends the video; when this returns it lies complete at its path.
    ///
    /// # Errors
    /// As for [`VideoWriter::write`], and [`ErrorKind::InvalidArgument`] if no picture was written.
    pub fn finish(mut self) -> Result<()> {
        if self.written == 0 {
            return Err(Error::argument(format!("{} would have no picture", self.path.display())));
        }
        self.input = None; // end of the input
        let status = self.process.wait(FINISH_LIMIT, &Control::new())?;
        if !status.success() {
            return Err(self.failure());
        }
        files::sync_file(&self.partial).map_err(|e| Error::io("write", &self.path, e))?;
        files::rename(&self.partial, &self.path)
    }

    fn failure(&mut self) -> Error {
        self.process.kill();
        let log = self.process.log();
        let kind = match log.says("No space left") {
            true => ErrorKind::DiskFull,
            false => ErrorKind::Io,
        };
        Error::new(kind, format!("ffmpeg could not write {}: {}", self.path.display(), log.summary()))
    }
}

impl Drop for VideoWriter {
    fn drop(&mut self) {
        self.input = None;
        self.process.kill();
        // After `finish` it has its final name and this finds nothing.
        let _ = std::fs::remove_file(&self.partial);
    }
}

/// A bit rate at which encoders without a constant-quality mode look about as good as x264 at CRF 18.
fn bit_rate(width: u32, height: u32, frame_rate: f64) -> String {
    let bits = f64::from(width) * f64::from(height) * frame_rate * 0.2;
    format!("{}", bits.clamp(500_000.0, 100_000_000.0) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn picture(width: u32, height: u32, shift: u32) -> RgbImage {
        RgbImage::from_fn(width, height, |x, y| image::Rgb([(x * 3 + shift) as u8, (y * 2) as u8, 128]))
    }

    #[test]
    fn a_wrong_size_rate_or_folder_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.mp4");
        let kind = |r: Result<VideoWriter>| r.err().unwrap().kind();
        assert_eq!(kind(VideoWriter::create(&path, 1, 10, 30.0)), ErrorKind::InvalidArgument);
        assert_eq!(kind(VideoWriter::create(&path, 10, 9000, 30.0)), ErrorKind::InvalidArgument);
        assert_eq!(kind(VideoWriter::create(&path, 10, 10, f64::NAN)), ErrorKind::InvalidArgument);
        let nowhere = folder.path().join("missing/a.mp4");
        assert_eq!(kind(VideoWriter::create(&nowhere, 10, 10, 30.0)), ErrorKind::NotFound);
    }

    #[test]
    fn a_video_appears_when_finished_and_equal_pictures_give_equal_bytes() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str| {
            let path = folder.path().join(name);
            let mut writer = VideoWriter::create(&path, 65, 47, 12.5).unwrap();
            assert_eq!(writer.write(&picture(64, 47, 0)).unwrap_err().kind(), ErrorKind::InvalidArgument);
            for i in 0..10 {
                writer.write(&picture(65, 47, i)).unwrap();
            }
            assert!(!path.exists());
            writer.finish().unwrap();
            std::fs::read(path).unwrap()
        };
        let bytes = write("a name with ünicode.mp4");
        assert_eq!(&bytes[4..8], b"ftyp");
        assert_eq!(bytes, write("-b.mp4"));
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 2, "no partial file is left");
    }

    #[test]
    fn an_abandoned_video_leaves_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let mut writer = VideoWriter::create(&folder.path().join("a.mp4"), 64, 48, 30.0).unwrap();
        writer.write(&picture(64, 48, 0)).unwrap();
        drop(writer);
        let empty = VideoWriter::create(&folder.path().join("b.mp4"), 64, 48, 30.0).unwrap();
        assert_eq!(empty.finish().unwrap_err().kind(), ErrorKind::InvalidArgument);
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    }
}
