//! Looks at a video before anything of it is decoded, and refuses what we do not want to decode.
//!
//! In: an untrusted path. Out: [`Probe`], all that the decoder needs to know. Order: file type by its first bytes,
//! then ffprobe (boxed, bounded in time and output), then our limits.

use std::ffi::OsString;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use serde_json::Value;

use crate::control::Control;
use crate::error::{Error, ErrorKind, Result};

use super::ffmpeg::Tools;
use super::panorama::has_shape_of_panorama;
#[cfg(feature = "service")]
use super::picture_archive;
use super::process::{self, Limits, Process};
use super::{Projection, VideoInfo};

/// The demuxers that may run. All others stay shut, above all those that open further files by name (HLS, concat).
pub(super) const CONTAINERS: &str = "mov,mp4,m4a,3gp,3g2,mj2,matroska,webm,avi";

/// The codecs that may be decoded, by ffmpeg's names for them.
const CODECS: [&str; 17] = [
    "h264",
    "hevc",
    "av1",
    "vp9",
    "vp8",
    "mpeg4",
    "mpeg2video",
    "mpeg1video",
    "h263",
    "mjpeg",
    "prores",
    "dnxhd",
    "cinepak",
    "msmpeg4v2",
    "msmpeg4v3",
    "ffv1",
    "rawvideo",
];

/// The decoders that may run: those of [`CODECS`]. Most are named as their codec; some codecs have several decoders, of which
/// a build of ffmpeg has one or the other. ffmpeg and ffprobe refuse to open any that is not in this list.
pub(super) const DECODERS: &str = "h264,libopenh264,hevc,av1,libdav1d,libaom-av1,vp9,libvpx-vp9,vp8,libvpx,mpeg4,mpeg2video,\
    mpeg1video,h263,mjpeg,prores,dnxhd,cinepak,msmpeg4v2,msmpeg4,ffv1,rawvideo";

/// Decoders that ffprobe may open beside [`DECODERS`], for cover pictures. It opens one for every stream and gives up if it
/// cannot, but no packet is decoded with them.
const COVER_DECODERS: &str = "png";
/// The same for sound: the codecs that cameras and editors write.
const SOUND_DECODERS: &str = "aac,aac_fixed,mp3float,mp3,mp2float,mp2,ac3,eac3,dca,flac,alac,opus,libopus,vorbis,libvorbis,\
    amrnb,libopencore_amrnb,amrwb,libopencore_amrwb,adpcm_ima_wav,adpcm_ima_qt,adpcm_ms,pcm_alaw,pcm_mulaw,pcm_u8,pcm_s8,\
    pcm_s16le,pcm_s16be,pcm_s24le,pcm_s24be,pcm_s32le,pcm_s32be,pcm_f32le,pcm_f32be,pcm_bluray,pcm_dvd";
/// The same for subtitles: drones write their flight data as such.
const SUBTITLE_DECODERS: &str = "mov_text,text,subrip,srt,ass,ssa,webvtt,cc_dec";

/// Most pixels in a picture: 8192x4320 has them, and every 8:7 of 5.3K. A larger one is refused by the decoder itself too.
pub(super) const MAX_PIXELS: u64 = 36_000_000;
/// Longest side, in either orientation.
const MAX_SIDE: u32 = 8192;
/// Longest video, seconds.
pub(super) const MAX_DURATION: f64 = 1800.0;
/// Most frames: half an hour at 120 frames a second.
pub(super) const MAX_FRAMES: u64 = 216_000;
/// Most streams. Telephones write up to ten (sound twice, five of sensor data).
const MAX_STREAMS: usize = 32;

/// All that the decoder needs to know about a video.
#[derive(Debug, Clone)]
pub(super) struct Probe {
    /// Absolute path.
    pub(super) path: PathBuf,
    pub(super) info: VideoInfo,
    /// Number of the video stream in the file.
    pub(super) stream: u64,
    /// Size as coded, before pixels are made square.
    pub(super) coded: (u32, u32),
    /// Size with square pixels but as stored, before [`Orientation`].
    pub(super) stored: (u32, u32),
    pub(super) orientation: Orientation,
    pub(super) interlaced: bool,
    pub(super) colour: Colour,
    /// Whether the video may be a panorama although nobody says so: by its shape it could be.
    pub(super) may_be_panorama: bool,
}

/// How the stored picture must be turned to be upright, as the filters of ffmpeg that do it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Orientation {
    /// Clockwise degrees: 0, 90, 180 or 270.
    pub(super) degrees: u32,
    /// Filters, empty if there is nothing to do.
    pub(super) filters: &'static str,
}

/// Colour tags as ffmpeg names them; empty where the file says nothing.
#[derive(Debug, Clone, Default)]
pub(super) struct Colour {
    pub(super) space: String,
    pub(super) transfer: String,
    pub(super) primaries: String,
    pub(super) range: String,
}

/// `path` as the address that ffmpeg is given: absolute, so that it never looks like an option, and with the protocol.
pub(super) fn address(path: &Path) -> OsString {
    let mut address = OsString::from("file:");
    address.push(path);
    address
}

/// Describes the video at `input`, whose pictures are `wanted` to be taken for this projection, whatever the file says of them.
///
/// # Errors
/// [`ErrorKind::InvalidArgument`] if they cannot be of that projection;
/// [`ErrorKind::NotFound`], [`ErrorKind::InvalidMedia`] for what is no video or breaks a limit,
/// [`ErrorKind::FfmpegMissing`], [`ErrorKind::DeadlineExceeded`], [`ErrorKind::Cancelled`], [`ErrorKind::Io`].
pub(super) fn probe(input: &Path, wanted: Option<Projection>, control: &Control) -> Result<Probe> {
    let limit = Duration::from_secs(60);
    probe_within(input, wanted, limit, control).map_err(|e| match e.kind() {
        // No word about the video: the disk or the whole machine may stand still.
        ErrorKind::DeadlineExceeded => Error::new(
            ErrorKind::DeadlineExceeded,
            format!("the description of {} cannot be read within a minute", input.display()),
        )
        .hint("play it to see whether the file is whole; if it is, the machine is too busy: try again later"),
        _ => e,
    })
}

#[cfg(feature = "service")]
/// Refuses what is clearly no video, and no archive of pictures, that can be read, within `limit`. Its content decides.
///
/// # Errors
/// As [`probe`] and [`picture_archive::check`]; [`ErrorKind::DeadlineExceeded`] if it cannot be told in that time.
pub(crate) fn quick_check(input: &Path, limit: Duration) -> Result<()> {
    if input.is_file() && picture_archive::is_archive(input)? {
        return picture_archive::check(input);
    }
    probe_within(input, None, limit, &Control::new()).map(drop)
}

fn probe_within(
    input: &Path,
    wanted: Option<Projection>,
    limit: Duration,
    control: &Control,
) -> Result<Probe> {
    let path = std::path::absolute(input).map_err(|e| Error::io("open", input, e))?;
    sniff(&path)?;
    let tools = Tools::find()?;
    let mut command = Command::new(&tools.ffprobe);
    command.args(["-hide_banner", "-loglevel", "level+warning", "-protocol_whitelist", "file"]);
    command.args(["-format_whitelist", CONTAINERS, "-max_pixels", &MAX_PIXELS.to_string()]);
    // The first list holds for all that is decoded. Those for a kind of stream (v, a, s) hold only for what ffprobe opens.
    command.args(["-codec_whitelist", DECODERS]);
    command.args(["-codec_whitelist:v", &format!("{DECODERS},{COVER_DECODERS}")]);
    command.args(["-codec_whitelist:a", SOUND_DECODERS, "-codec_whitelist:s", SUBTITLE_DECODERS]);
    command.args(["-print_format", "json", "-show_entries"]).arg(
        "format=format_name,duration,nb_streams:stream=index,codec_type,codec_name,width,height,\
         sample_aspect_ratio,field_order,avg_frame_rate,r_frame_rate,nb_frames,duration,color_transfer,color_space,\
         color_primaries,color_range:stream_disposition=attached_pic:stream_side_data",
    );
    command.arg("-i").arg(address(&path));
    let limits = Limits { processor: 60, reads: Some(path.clone()), ..Limits::default() };
    let output = process::run(Process::spawn(&mut command, &limits)?, 1 << 20, limit, control)?;
    process::check_ended_by_itself(output.status, &output.log)?;
    let json: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
    let no_streams = json["streams"].as_array().is_none_or(Vec::is_empty);
    if !output.status.success() || no_streams {
        if output.log.says("moov atom not found") {
            return Err(invalid(&path, "it is incomplete: its index (moov) is missing")
                .hint("the recording or the copy was cut off; copy the file again from the camera"));
        }
        if let Some(decoder) = output.log.refused_decoder() {
            return Err(unsupported(&path, decoder));
        }
        return Err(invalid(&path, output.log.summary()).hint("play it to see whether the file is whole"));
    }
    interpret(path, &json, wanted)
}

fn invalid(path: &Path, why: &str) -> Error {
    Error::new(ErrorKind::InvalidMedia, format!("{} cannot be read as a video: {why}", path.display()))
}

/// The refusal of a video with a stream in `codec`, be it its picture or its sound.
fn unsupported(path: &Path, codec: &str) -> Error {
    invalid(path, &format!("its codec is {codec}, which is not supported"))
        .hint("convert it, without its sound, with: ffmpeg -i <video> -map 0:V:0 -c:v libx264 -crf 18 converted.mp4")
}

/// Checks that the file begins like one of our containers.
fn sniff(path: &Path) -> Result<()> {
    let formats = "give a video (mp4, mov, m4v, webm, mkv, avi) or a folder of images (jpg, png, webp)";
    let metadata = std::fs::metadata(path).map_err(|e| Error::io("open", path, e))?;
    let shown = path.display();
    let not = |what: &str| {
        Error::new(ErrorKind::InvalidMedia, format!("not a video: {shown} {what}")).hint(formats)
    };
    if metadata.is_dir() {
        return Err(not("is a folder"));
    }
    if !metadata.is_file() {
        return Err(not("is a device, pipe or socket"));
    }
    if metadata.len() == 0 {
        return Err(not("is empty (0 bytes)"));
    }
    let mut start = Vec::with_capacity(16);
    File::open(path)
        .and_then(|file| file.take(16).read_to_end(&mut start))
        .map_err(|e| Error::io("read", path, e))?;
    if is_container(&start) {
        return Ok(());
    }
    Err(not(&format!("is {}", describe(&start))))
}

fn is_container(start: &[u8]) -> bool {
    let at = |from: usize, len: usize| start.get(from..from + len).unwrap_or_default();
    // The first box of MP4 is `ftyp`; older QuickTime files start with one of the others.
    let iso: [&[u8]; 6] = [b"ftyp", b"moov", b"mdat", b"wide", b"free", b"skip"];
    iso.contains(&at(4, 4))
        || at(0, 4) == [0x1a, 0x45, 0xdf, 0xa3] // EBML: Matroska and WebM
        || (at(0, 4) == b"RIFF" && at(8, 4) == b"AVI ")
}

/// What the file seems to be, for the message.
fn describe(start: &[u8]) -> &'static str {
    match start {
        [0xff, 0xd8, 0xff, ..] => "a JPEG picture (one picture is not enough: give the folder)",
        [0x89, b'P', b'N', b'G', ..] => "a PNG picture (one picture is not enough: give the folder)",
        [b'G', b'I', b'F', b'8', ..] => "a GIF",
        [b'P', b'K', ..] => "a zip archive",
        [b'%', b'P', b'D', b'F', ..] => "a PDF document",
        [b'#', b'E', b'X', b'T', ..] => "a playlist, which names other files",
        [b'f', b'f', b'c', b'o', ..] => "a list of files for ffmpeg",
        _ if start.is_ascii() => "a text file or of an unknown kind",
        _ => "of an unknown kind",
    }
}

/// What ffprobe's description of a video says; for fuzzing.
pub(crate) fn info_of(description: &[u8]) -> Result<VideoInfo> {
    let json: Value = serde_json::from_slice(description).unwrap_or_default();
    Ok(interpret(PathBuf::from("video"), &json, None)?.info)
}

/// Turns ffprobe's description into ours and applies the limits.
fn interpret(path: PathBuf, json: &Value, wanted: Option<Projection>) -> Result<Probe> {
    let streams = json["streams"].as_array().map(Vec::as_slice).unwrap_or_default();
    let refuse = |why: String| Err(invalid(&path, &why));
    if streams.len() > MAX_STREAMS {
        return refuse(format!("it has {} streams; at most {MAX_STREAMS} are read", streams.len()));
    }
    // A cover picture is stored as a video stream of one frame.
    let video = streams
        .iter()
        .find(|s| s["codec_type"] == "video" && s["disposition"]["attached_pic"].as_u64() != Some(1));
    let Some(video) = video else {
        return refuse("it has no video stream".to_owned());
    };
    let text = |name: &str| video[name].as_str().unwrap_or_default().to_owned();
    let codec = text("codec_name");
    if !CODECS.contains(&codec.as_str()) {
        let name = if codec.is_empty() { "unknown" } else { &codec };
        return Err(unsupported(&path, name));
    }
    let side = |name: &str| video[name].as_u64().and_then(|v| u32::try_from(v).ok()).unwrap_or(0);
    let (width, height) = (side("width"), side("height"));
    if width == 0 || height == 0 {
        return refuse("its size is unknown (no picture could be found in it)".to_owned());
    }
    let (long, short) = (width.max(height), width.min(height));
    if long > MAX_SIDE || u64::from(long) * u64::from(short) > MAX_PIXELS {
        return refuse(format!(
            "it is {width}x{height}; sides of at most {MAX_SIDE} and {} million pixels are read",
            MAX_PIXELS / 1_000_000
        ));
    }
    if short < 16 {
        return refuse(format!("it is {width}x{height}; nothing can be reconstructed from so few pixels"));
    }

    let number = |value: &Value| value.as_str().and_then(|s| s.parse::<f64>().ok()).filter(|v| v.is_finite());
    let duration =
        number(&video["duration"]).or_else(|| number(&json["format"]["duration"])).unwrap_or(0.0).max(0.0);
    if duration > MAX_DURATION {
        return Err(invalid(
            &path,
            &format!(
                "it is {:.0} minutes long; at most {:.0} are read",
                duration / 60.0,
                MAX_DURATION / 60.0
            ),
        )
        .hint("cut it: ffmpeg -i <video> -t 300 -c copy part.mp4"));
    }
    let frame_rate = ["avg_frame_rate", "r_frame_rate"]
        .iter()
        .filter_map(|name| ratio(video[*name].as_str()?, '/'))
        .find(|rate| *rate > 0.0 && rate.is_finite())
        .unwrap_or(0.0);
    let counted = number(&video["nb_frames"]).unwrap_or(0.0);
    if counted.max(duration * frame_rate) > MAX_FRAMES as f64 {
        return refuse(format!(
            "it has {:.0} frames ({frame_rate:.0} a second); at most {MAX_FRAMES} are read",
            counted.max(duration * frame_rate)
        ));
    }

    let side_data = video["side_data_list"].as_array().map(Vec::as_slice).unwrap_or_default();
    let of_kind = |kind: &str| side_data.iter().find(|data| data["side_data_type"] == kind);
    let views = of_kind("Stereo 3D").and_then(|data| data["type"].as_str()).unwrap_or("2D");
    let said = match of_kind("Spherical Mapping") {
        None => None,
        Some(data) => projection_of(&path, data["projection"].as_str().unwrap_or("unknown"), views, wanted)?,
    };
    let projection = wanted.or(said).unwrap_or_default();
    if matches!(views, "side by side" | "top and bottom") {
        return Err(invalid(&path, "it shows two views at once (3D video)")
            .hint("keep one of them, for example with: ffmpeg -i <video> -vf crop=iw/2:ih:0:0 left.mp4"));
    }
    let mut orientation = of_kind("Display Matrix")
        .map(|data| Orientation::from_matrix(data["displaymatrix"].as_str().unwrap_or_default()))
        .unwrap_or_default();

    let aspect = ratio(video["sample_aspect_ratio"].as_str().unwrap_or("1:1"), ':').unwrap_or(1.0);
    let stored = square_pixels(width, height, aspect);
    let is_panorama = projection == Projection::Equirectangular;
    if is_panorama && has_shape_of_panorama(stored.0, stored.1) && matches!(orientation.degrees, 90 | 270) {
        // A panorama on its side is none. Who wrote this turned the camera, and the program that joined its pictures had
        // done so before.
        orientation = Orientation::default();
    }
    let (upright_width, upright_height) = match orientation.degrees {
        90 | 270 => (stored.1, stored.0),
        _ => stored,
    };
    if is_panorama && !has_shape_of_panorama(upright_width, upright_height) {
        return Err(no_panorama(&path, (upright_width, upright_height), wanted.is_some()));
    }
    let colour = Colour {
        space: text("color_space"),
        transfer: text("color_transfer"),
        primaries: text("color_primaries"),
        range: text("color_range"),
    };
    Ok(Probe {
        info: VideoInfo {
            container: json["format"]["format_name"].as_str().unwrap_or_default().to_owned(),
            codec,
            width: upright_width,
            height: upright_height,
            rotation: orientation.degrees,
            duration,
            frame_rate,
            hdr: matches!(colour.transfer.as_str(), "smpte2084" | "arib-std-b67"),
            projection,
            file: None,
        },
        stream: video["index"].as_u64().unwrap_or(0),
        coded: (width, height),
        stored,
        orientation,
        interlaced: matches!(video["field_order"].as_str(), Some("tt" | "bb" | "tb" | "bt")),
        colour,
        may_be_panorama: wanted.or(said).is_none() && upright_width == 2 * upright_height,
        path,
    })
}

/// The projection that a file names, where it is one that can be worked on. Where one is `wanted`, what the file names does not
/// matter.
fn projection_of(
    path: &Path,
    named: &str,
    views: &str,
    wanted: Option<Projection>,
) -> Result<Option<Projection>> {
    let refuse = |what: &str| {
        Err(invalid(path, &format!("it is a 360° video {what}, which is not supported")).hint(
            "export it as a plain (monoscopic) equirectangular 360° video with the program of the camera",
        ))
    };
    let is_flat = named == "rectilinear" || wanted == Some(Projection::Flat);
    if !is_flat && views != "2D" {
        return refuse(&format!("in 3D ({views})"));
    }
    match named {
        _ if wanted.is_some() => Ok(wanted),
        "rectilinear" => Ok(Some(Projection::Flat)),
        "equirectangular" => Ok(Some(Projection::Equirectangular)),
        "tiled equirectangular" => {
            refuse("of which only a part is stored (tiled or cropped equirectangular)")
        }
        "half equirectangular" => refuse("of one half of all directions (VR180, half equirectangular)"),
        other => refuse(&format!("in the projection {other:?}")),
    }
}

/// The refusal of pictures of this size as panoramas, which somebody asked for or the file says that they are.
fn no_panorama(path: &Path, (width, height): (u32, u32), is_wanted: bool) -> Error {
    let (kind, who, hint) = match is_wanted {
        true => (ErrorKind::InvalidArgument, "it was to be taken for", "leave the projection to the file"),
        false => {
            (ErrorKind::InvalidMedia, "it says that it is", "if it is no 360° video, say so: projection flat")
        }
    };
    Error::new(
        kind,
        format!(
            "{} cannot be read as a 360° video, which {who}: its pictures have {width}x{height} pixels; an equirectangular \
             one is twice as wide as high ({}x{height} or {width}x{})",
            path.display(),
            2 * height,
            width / 2
        ),
    )
    .hint(hint)
}

/// `30000/1001` as a number; none if it makes no sense.
fn ratio(text: &str, separator: char) -> Option<f64> {
    let (a, b) = text.split_once(separator)?;
    let (a, b): (f64, f64) = (a.parse().ok()?, b.parse().ok()?);
    (a > 0.0 && b > 0.0).then_some(a / b)
}

/// The size at which pixels of this aspect (width to height) become square; the longer side shrinks, so that nothing is
/// invented. An aspect within half a percent of 1 is left alone: resampling would cost more than it corrects.
fn square_pixels(width: u32, height: u32, aspect: f64) -> (u32, u32) {
    if (aspect - 1.0).abs() <= 0.005 || !(0.1..=10.0).contains(&aspect) {
        return (width, height);
    }
    let scaled = |side: u32, factor: f64| ((f64::from(side) * factor).round() as u32).max(1);
    if aspect > 1.0 { (width, scaled(height, 1.0 / aspect)) } else { (scaled(width, aspect), height) }
}

impl Orientation {
    /// Reads ffprobe's dump of a display matrix: three lines `00000000:  a  b  u`. Its upper left part takes stored to
    /// shown coordinates by (x, y) -> (a x + c y, b x + d y); angles between right angles take the nearest one.
    fn from_matrix(dump: &str) -> Orientation {
        let rows: Vec<Vec<i64>> = dump
            .lines()
            .filter_map(|line| Some(line.split_once(':')?.1))
            .map(|line| line.split_whitespace().filter_map(|n| n.parse().ok()).collect())
            .collect();
        let at = |row: usize, column: usize| rows.get(row).and_then(|r| r.get(column)).copied().unwrap_or(0);
        let (a, b, c, d) = (at(0, 0), at(0, 1), at(1, 0), at(1, 1));
        let turned = a.abs().max(d.abs()) < b.abs().max(c.abs());
        let (degrees, filters) = if turned {
            match (b > 0, c > 0) {
                (true, false) => (90, "transpose=clock"),
                (false, true) => (270, "transpose=cclock"),
                (true, true) => (90, "transpose=cclock_flip"),
                (false, false) => (270, "transpose=clock_flip"),
            }
        } else {
            match (a < 0, d < 0) {
                (false, false) => (0, ""),
                (true, true) => (180, "hflip,vflip"),
                (true, false) => (0, "hflip"),
                (false, true) => (0, "vflip"),
            }
        };
        Orientation { degrees, filters }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn video(extra: Value) -> Value {
        let mut stream = json!({"index": 0, "codec_type": "video", "codec_name": "h264", "width": 1920, "height": 1080,
            "avg_frame_rate": "30000/1001", "duration": "10.0", "disposition": {"attached_pic": 0}});
        for (key, value) in extra.as_object().unwrap() {
            stream[key] = value.clone();
        }
        json!({"streams": [stream], "format": {"format_name": "mov,mp4", "duration": "10.0"}})
    }

    fn message(json: &Value) -> String {
        let error = interpret("/v.mp4".into(), json, None).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidMedia);
        error.to_string()
    }

    #[test]
    fn limits_hold_before_anything_is_decoded() {
        assert!(message(&video(json!({"width": 8193, "height": 100}))).contains("8193x100"));
        assert!(message(&video(json!({"width": 8192, "height": 8192}))).contains("8192x8192"));
        assert!(message(&video(json!({"width": 0}))).contains("size is unknown"));
        assert!(message(&video(json!({"codec_name": "ansi"}))).contains("ansi"));
        assert!(message(&video(json!({"duration": "7200"}))).contains("120 minutes"));
        assert!(message(&video(json!({"avg_frame_rate": "100000/1"}))).contains("frames"));
        assert!(message(&video(json!({"disposition": {"attached_pic": 1}}))).contains("no video stream"));
        let portrait =
            interpret("/v.mp4".into(), &video(json!({"width": 4320, "height": 8192})), None).unwrap();
        assert_eq!(portrait.stored, (4320, 8192));
        // What an action camera films with the whole of its sensor.
        let tall = interpret("/v.mp4".into(), &video(json!({"width": 5312, "height": 4648})), None).unwrap();
        assert_eq!(tall.stored, (5312, 4648));
    }

    #[test]
    fn nonsense_in_the_description_is_survived() {
        for value in [json!(null), json!(-1), json!("nan"), json!([]), json!({"a": 1}), json!(1e300)] {
            for key in
                ["duration", "avg_frame_rate", "nb_frames", "sample_aspect_ratio", "side_data_list", "index"]
            {
                let mut extra = json!({});
                extra[key] = value.clone();
                let _ = interpret("/v.mp4".into(), &video(extra), None);
            }
        }
        assert!(message(&json!({"streams": [1, "x"]})).contains("no video stream"));
        // Infinitely many frames in no time are a number of frames that is not known.
        let infinite = video(json!({"duration": "0", "avg_frame_rate": "1e300/1e-300"}));
        assert_eq!(interpret("/v.mp4".into(), &infinite, None).unwrap().info.frame_rate, 0.0);
    }

    /// A video of this size with these side data.
    fn described(width: u32, height: u32, side_data: Value) -> Value {
        video(json!({"width": width, "height": height, "side_data_list": side_data}))
    }

    const QUARTER: &str = "\n00000000:            0       65536           0\n00000001:       -65536           0           0\n\
                           00000002:            0           0  1073741824\n";

    #[test]
    fn a_file_says_that_it_is_a_panorama() {
        let spherical =
            |name: &str| json!([{"side_data_type": "Spherical Mapping", "projection": name, "yaw": 0}]);
        let found = |json: &Value, wanted| interpret("/v.mp4".into(), json, wanted).unwrap();
        let (flat, around) = (Projection::Flat, Projection::Equirectangular);
        let panorama = described(3840, 1920, spherical("equirectangular"));
        assert_eq!(found(&panorama, None).info.projection, around);
        assert!(!found(&panorama, None).may_be_panorama);
        assert_eq!(found(&panorama, Some(flat)).info.projection, flat);
        assert_eq!(found(&described(1920, 1080, spherical("rectilinear")), None).info.projection, flat);
        // Nothing is said: it may be one by its shape, unless it is told what it is.
        let silent = described(3840, 1920, json!([]));
        assert_eq!(found(&silent, None).info.projection, flat);
        assert!(found(&silent, None).may_be_panorama && !found(&silent, Some(flat)).may_be_panorama);
        assert_eq!(found(&silent, Some(around)).info.projection, around);
        assert!(!found(&described(3840, 1922, json!([])), None).may_be_panorama);

        for (name, says) in [
            ("cubemap", "cubemap"),
            ("tiled equirectangular", "tiled"),
            ("half equirectangular", "VR180"),
            ("fisheye", "fisheye"),
            ("", "projection"),
        ] {
            let said = message(&described(3840, 1920, spherical(name)));
            assert!(said.contains("360°") && said.contains(says), "{name}: {said}");
            // Who knows better is believed.
            assert_eq!(found(&described(3840, 1920, spherical(name)), Some(around)).info.projection, around);
        }
        let stereo = |kind: &str| {
            json!([{"side_data_type": "Spherical Mapping", "projection": "equirectangular"},
                {"side_data_type": "Stereo 3D", "type": kind, "inverted": 0}])
        };
        assert_eq!(found(&described(3840, 1920, stereo("2D")), None).info.projection, around);
        for kind in ["top and bottom", "side by side", "frame alternate"] {
            let said = message(&described(3840, 1920, stereo(kind)));
            assert!(said.contains("360°") && said.contains(kind), "{said}");
        }
        let two_views =
            message(&described(3840, 1080, json!([{"side_data_type": "Stereo 3D", "type": "side by side"}])));
        assert!(two_views.contains("two views") && !two_views.contains("360°"), "{two_views}");
    }

    #[test]
    fn a_panorama_is_twice_as_wide_as_high_and_upright() {
        let spherical = json!({"side_data_type": "Spherical Mapping", "projection": "equirectangular"});
        let said = message(&described(1920, 1080, json!([spherical])));
        assert!(said.contains("1920x1080") && said.contains("1920x960"), "{said}");
        let wanted = Some(Projection::Equirectangular);
        let error = interpret("/v.mp4".into(), &described(1920, 1080, json!([])), wanted).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
        assert!(error.message().contains("1920x1080") && error.message().contains("1920x960"), "{error}");
        // A turn that would lay it on its side is not meant; one that sets it upright is.
        let turned = json!([spherical, {"side_data_type": "Display Matrix", "displaymatrix": QUARTER}]);
        for (stored, degrees) in [((3840, 1920), 0), ((1920, 3840), 90)] {
            let probe =
                interpret("/v.mp4".into(), &described(stored.0, stored.1, turned.clone()), None).unwrap();
            assert_eq!((probe.info.width, probe.info.height, probe.info.rotation), (3840, 1920, degrees));
        }
    }

    #[test]
    fn aspect_and_rotation_give_the_upright_size() {
        let rotated =
            video(json!({"side_data_list": [{"side_data_type": "Display Matrix", "displaymatrix": QUARTER,
            "rotation": -90}]}));
        let probe = interpret("/v.mp4".into(), &rotated, None).unwrap();
        assert_eq!((probe.info.width, probe.info.height, probe.info.rotation), (1080, 1920, 90));
        assert_eq!(probe.orientation.filters, "transpose=clock");
        assert_eq!(square_pixels(1440, 1080, 4.0 / 3.0), (1440, 810));
        assert_eq!(square_pixels(720, 480, 8.0 / 9.0), (640, 480));
        assert_eq!(square_pixels(426, 320, 640.0 / 639.0), (426, 320));
    }

    #[test]
    fn only_known_containers_pass_the_first_look() {
        assert!(is_container(b"\0\0\0\x20ftypisom\0\0\0\0"));
        assert!(is_container(b"RIFF\0\0\0\0AVI LIST"));
        assert!(!is_container(b"RIFF\0\0\0\0WEBPVP8 "));
        assert!(!is_container(b"#EXTM3U\n#EXT-X-T"));
        assert!(!is_container(b"ffconcat version"));
        assert!(!is_container(b"ft"));
    }
}
