//! The stage as a whole, on clips that ffmpeg makes on the spot and on real captures where they are at hand.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use image::{GenericImageView, RgbImage};

use super::ffmpeg::Tools;
use super::*;
use crate::control::tests::{assert_seconds_were_told, told_slowly};
use crate::control::{CancelToken, Control, Event};
use crate::error::ErrorKind;
use crate::jpeg;
use crate::prerequisites::{Prerequisite, capture};

/// Runs ffmpeg to make a clip; none, and noted as skipped, if this ffmpeg lacks what it needs.
fn make(folder: &Path, name: &str, input: Option<&Path>, arguments: &str) -> Option<PathBuf> {
    let tools = Tools::find().unwrap();
    let path = folder.join(name);
    let mut command = Command::new(&tools.ffmpeg);
    command.args(["-v", "error", "-nostdin", "-y"]);
    if let Some(input) = input {
        command.arg("-i").arg(probe::address(input));
    }
    let status = command.args(arguments.split_whitespace()).arg(probe::address(&path)).status().unwrap();
    if !status.success() {
        Prerequisite::Encoders.is_missing(&format!("an ffmpeg that can make {name}"));
    }
    status.success().then_some(path)
}

/// A clip of a camera that pans by `step` pixels a frame over a still picture full of corners, 25 frames a second.
pub(super) fn pan(folder: &Path, name: &str, frames: u32, step: u32, (width, height): (u32, u32)) -> PathBuf {
    let path = folder.join(name);
    let mut writer = VideoWriter::create(&path, width, height, 25.0).unwrap();
    for frame in 0..frames {
        let picture = RgbImage::from_fn(width, height, |x, y| {
            let block = |size: u32| {
                let key =
                    u64::from(size) << 48 ^ u64::from((x + frame * step) / size) << 24 ^ u64::from(y / size);
                crate::random::hash(key)
            };
            let (coarse, fine) = (block(24), block(5));
            let mix = |k: u32| ((coarse >> k & 127) + (fine >> k & 63) + 30) as u8;
            image::Rgb([mix(0), mix(1), mix(2)])
        });
        writer.write(&picture).unwrap();
    }
    writer.finish().unwrap();
    path
}

pub(super) fn extract(input: &Path, output: &Path, max_frames: usize) -> crate::Result<Frames> {
    extract_frames(input, output, &FrameOptions { max_frames, ..FrameOptions::default() }, &Control::new())
}

/// Mean absolute difference of two pictures of one size, 0 to 255.
fn difference(a: &RgbImage, b: &RgbImage) -> f64 {
    assert_eq!(a.dimensions(), b.dimensions());
    let sum: u64 = a.as_raw().iter().zip(b.as_raw()).map(|(a, b)| u64::from(a.abs_diff(*b))).sum();
    sum as f64 / a.as_raw().len() as f64
}

pub(super) fn refused(path: &Path) -> crate::Error {
    let output = tempfile::tempdir().unwrap();
    let error = extract(path, output.path(), 10).unwrap_err();
    assert!(!Frames::description_path(output.path()).exists());
    error
}

#[test]
fn a_panning_clip_becomes_frames_with_progress_and_a_sheet() {
    let folder = tempfile::tempdir().unwrap();
    // A name that looks like an option, with a space and a letter outside ASCII.
    let clip = pan(folder.path(), "-ä pan.mp4", 120, 6, (480, 360));
    let output = folder.path().join("frames");
    let events = Arc::new(Mutex::new(Vec::new()));
    let log = Arc::clone(&events);
    let control = Control::new().with_listener(move |event| log.lock().unwrap().push(event));
    let options = FrameOptions { max_frames: 20, max_resolution: 320, ..FrameOptions::default() };
    let frames = extract_frames(&clip, &output, &options, &control).unwrap();
    assert_eq!(frames.total, 120);
    assert!((15..=20).contains(&frames.frames.len()), "{} frames", frames.frames.len());
    let steps: Vec<u64> = frames.frames.windows(2).map(|w| w[1].index - w[0].index).collect();
    assert!(steps.iter().all(|s| (1..=12).contains(s)), "{steps:?}");
    for (i, frame) in frames.frames.iter().enumerate() {
        assert_eq!((frame.width, frame.height), (320, 240));
        assert!((frame.timestamp.unwrap() - frame.index as f64 / 25.0).abs() < 1e-3);
        assert_eq!(frames.rgb(i).unwrap().dimensions(), (320, 240));
        assert!(frames.alpha(i).unwrap().is_none());
    }
    assert_eq!(Frames::load(&output).unwrap(), frames);
    assert!(output.join("frames.jpg").is_file());
    let names = std::fs::read_dir(&output).unwrap().count();
    assert_eq!(names, frames.frames.len() + 2, "nothing else is left");
    let fractions: Vec<f32> = events
        .lock()
        .unwrap()
        .iter()
        .filter_map(|e| match e {
            Event::Progress { fraction, .. } => Some(*fraction),
            Event::Warning { .. } => None,
        })
        .collect();
    assert!(fractions.len() > 5 && fractions.is_sorted() && fractions.last() == Some(&1.0), "{fractions:?}");

    // A second run with other options replaces the first, and the same run gives the same bytes.
    let bytes = |f: &Frames, i: usize| std::fs::read(f.path(i)).unwrap();
    let again = extract_frames(&clip, &folder.path().join("again"), &options, &Control::new()).unwrap();
    assert_eq!(again.frames, frames.frames);
    assert_eq!(bytes(&again, 3), bytes(&frames, 3));
    let fewer = extract(&clip, &output, 5).unwrap();
    assert_eq!(std::fs::read_dir(&output).unwrap().count(), fewer.frames.len() + 2);
}

#[test]
fn choosing_and_adding_frames_tell_the_seconds_that_are_left() {
    let folder = tempfile::tempdir().unwrap();
    let clip = pan(folder.path(), "a.mp4", 30, 6, (160, 120));
    let options = FrameOptions { max_frames: 5, ..FrameOptions::default() };
    let (control, told) = told_slowly(Duration::ZERO);
    let earlier = extract_frames(&clip, &folder.path().join("earlier"), &options, &control).unwrap();
    assert_seconds_were_told(&told);
    let (control, told) = told_slowly(Duration::ZERO);
    add_frames(&earlier, &clip, &folder.path().join("both"), &options, &control).unwrap();
    assert_seconds_were_told(&told);
}

#[test]
fn pictures_that_no_run_has_left_are_no_frames_of_an_earlier_one() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let names = |folder: &str| {
        let entries = std::fs::read_dir(at(folder)).unwrap().map(|e| e.unwrap().file_name());
        entries.map(|name| name.into_string().unwrap()).collect::<Vec<_>>()
    };
    let clip = pan(folder.path(), "a.mp4", 30, 6, (160, 120));
    std::fs::create_dir(at("photographs")).unwrap();
    for k in 0..3 {
        image::GrayImage::new(64, 48).save(at(&format!("photographs/{k}.png"))).unwrap();
    }
    for (input, name) in [("of_camera", "2.JPG"), ("clips", "walk.mp4"), ("clips", "stairs.mp4")] {
        std::fs::create_dir_all(at(input)).unwrap();
        std::fs::write(at(input).join(name), "").unwrap();
    }
    // Called as a frame is, and as a photograph or a frame of one of several clips that would be stored there.
    std::fs::create_dir(at("theirs")).unwrap();
    for (name, input) in [
        ("frame_000003.jpg", &clip),
        ("2.png", &at("photographs")),
        ("2.jpg", &at("photographs")),
        ("2.jpg", &at("of_camera")),
        ("2_left.jpg", &at("of_camera")),
        ("walk_frame_000003.jpg", &at("clips")),
    ] {
        std::fs::write(at("theirs").join(name), "chosen by hand").unwrap();
        let error = extract(input, &at("theirs"), 5).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
        assert!(error.message().contains(&at("theirs").join(name).display().to_string()), "{error}");
        assert!(error.hint_text().is_some(), "{error}");
        assert_eq!(std::fs::read(at("theirs").join(name)).unwrap(), b"chosen by hand");
        assert_eq!(names("theirs"), [name]);
        std::fs::remove_file(at("theirs").join(name)).unwrap();
    }
    // Those that are added to others have the name of their video before their own.
    let (added, earlier) =
        (at("theirs/a_frame_000003.jpg"), Frames::of_images(at("photographs"), Vec::new()));
    std::fs::write(&added, "chosen by hand").unwrap();
    let options = FrameOptions::default();
    let error = add_frames(&earlier, &clip, &at("theirs"), &options, &Control::new()).unwrap_err();
    assert!(error.message().contains(&added.display().to_string()), "{error}");
    assert_eq!(names("theirs"), ["a_frame_000003.jpg"]);
    std::fs::remove_file(&added).unwrap();
    // What is called otherwise stays, and is in nobody's way; also in that of a run that fails.
    std::fs::write(at("theirs/notes.txt"), "buy milk").unwrap();
    let still = pan(folder.path(), "still.mp4", 30, 0, (160, 120));
    extract(&still, &at("theirs"), 5).unwrap_err();
    assert_eq!(names("theirs"), ["notes.txt"]);
    let frames = extract(&clip, &at("theirs"), 5).unwrap();
    assert_eq!(names("theirs").len(), frames.frames.len() + 3);
    // A run that was ended has said that it had begun: the frames are its own.
    std::fs::create_dir(at("ended")).unwrap();
    std::fs::write(at("ended/.frames.partial"), "").unwrap();
    std::fs::write(at("ended/frame_000003.jpg"), "half a picture").unwrap();
    let frames = extract(&clip, &at("ended"), 5).unwrap();
    assert_eq!(names("ended").len(), frames.frames.len() + 2);
    assert!(image::open(frames.path(0)).is_ok());
}

#[test]
fn the_right_frames_are_stored_and_upright() {
    let folder = tempfile::tempdir().unwrap();
    let clip = pan(folder.path(), "a.mp4", 24, 20, (320, 180));
    for degrees in [0, 90, 180, 270] {
        let arguments = format!("-c copy -metadata:s:v:0 rotate={degrees}");
        let Some(turned) = make(folder.path(), "turned.mp4", Some(&clip), &arguments) else { continue };
        let frames = extract(&turned, &folder.path().join("t"), 7).unwrap();
        let FrameSource::Video(info) = &frames.source else { panic!("a video is a video") };
        if info.rotation == 0 && degrees > 0 {
            println!("this ffmpeg no longer writes rotations this way");
            continue;
        }
        assert!((4..=7).contains(&frames.frames.len()));
        // ffmpeg's own idea of upright.
        make(folder.path(), "reference%03d.png", Some(&turned), "-pix_fmt rgb24").unwrap();
        let reference = |index: u64| {
            image::open(folder.path().join(format!("reference{:03}.png", index + 1))).unwrap().into_rgb8()
        };
        for (i, frame) in frames.frames.iter().enumerate() {
            let picture = frames.rgb(i).unwrap();
            let own = difference(&picture, &reference(frame.index));
            let next = difference(&picture, &reference((frame.index + 1) % 24));
            assert!(
                own < 5.0 && next > 3.0 * own,
                "{degrees}: frame {}: {own:.1}, next {next:.1}",
                frame.index
            );
        }
    }
}

#[test]
fn uneven_times_are_kept() {
    let folder = tempfile::tempdir().unwrap();
    let clip = pan(folder.path(), "a.mp4", 20, 16, (320, 240));
    let arguments = "-vf setpts=N*N*0.01/TB -enc_time_base 1:1000 -vsync passthrough";
    let Some(clip) = make(folder.path(), "vfr.mkv", Some(&clip), arguments) else { return };
    let frames = extract(&clip, &folder.path().join("o"), 100).unwrap();
    assert_eq!((frames.total, frames.frames.len()), (20, 20), "none doubled, none dropped");
    for frame in &frames.frames {
        let expected = (frame.index * frame.index) as f64 * 0.01;
        assert!((frame.timestamp.unwrap() - expected).abs() < 2e-3, "{frame:?}");
    }
}

#[test]
fn other_codecs_depths_and_shapes_work() {
    let folder = tempfile::tempdir().unwrap();
    let base = pan(folder.path(), "base.mp4", 12, 16, (320, 240));
    let hevc = "-c:v libx265 -x265-params log-level=error -pix_fmt yuv420p10le -preset ultrafast";
    let cases = [
        ("hevc10.mp4", hevc, (320, 240)),
        ("interlaced.mp4", "-vf interlace -c:v libx264 -flags +ilme+ildct -preset ultrafast", (320, 240)),
        ("anamorphic.mp4", "-vf setsar=4/3 -c:v libx264 -preset ultrafast", (320, 180)),
        ("odd.avi", "-vf crop=319:239:0:0:exact=1 -c:v mjpeg -pix_fmt yuvj444p", (319, 239)),
        ("prores.mov", "-c:v prores_ks -profile:v 3", (320, 240)),
        ("vp8.webm", "-c:v libvpx -b:v 2M -deadline realtime", (320, 240)),
    ];
    for (name, arguments, size) in cases {
        let Some(clip) = make(folder.path(), name, Some(&base), arguments) else { continue };
        let frames =
            extract(&clip, &folder.path().join("o"), 100).unwrap_or_else(|e| panic!("{name}: {e:?}"));
        assert_eq!((frames.frames[0].width, frames.frames[0].height), size, "{name}");
        assert_eq!(frames.frames.len() as u64, frames.total, "{name}");
        // The filter that interlaces makes one frame of two.
        assert_eq!(frames.total, if name.starts_with("interlaced") { 6 } else { 12 }, "{name}");
        let picture = frames.rgb(0).unwrap();
        let (darkest, brightest) =
            picture.pixels().map(|p| p[1]).fold((255, 0), |(d, b), v| (v.min(d), v.max(b)));
        assert!(brightest - darkest > 60, "{name}: {darkest} to {brightest}");
    }
}

#[test]
fn hdr_looks_like_the_same_scene_without() {
    let folder = tempfile::tempdir().unwrap();
    let base = pan(folder.path(), "base.mp4", 4, 16, (320, 240));
    let plain = extract(&base, &folder.path().join("plain"), 100).unwrap();
    let tools = Tools::find().unwrap();
    for transfer in ["arib-std-b67", "smpte2084"] {
        let arguments = format!(
            "-vf format=yuv444p10le,zscale=pin=bt709:tin=bt709:min=bt709:rin=limited:p=bt2020:t={transfer}:m=2020_ncl:\
             r=limited:npl=203,format=yuv420p10le -c:v libx265 -x265-params log-level=error -preset ultrafast -crf 12 \
             -color_trc {transfer} -color_primaries bt2020 -colorspace bt2020nc"
        );
        let Some(clip) = make(folder.path(), "hdr.mp4", Some(&base), &arguments) else { continue };
        let frames = extract(&clip, &folder.path().join("hdr"), 100).unwrap();
        let FrameSource::Video(info) = &frames.source else { panic!("a video is a video") };
        assert!(info.hdr);
        let mapped = decode::can_tone_map(tools).unwrap();
        assert_eq!(mapped, !frames.warnings.iter().any(|w| w.code == "hdr_not_mapped"));
        let difference = difference(&frames.rgb(0).unwrap(), &plain.rgb(0).unwrap());
        assert!(!mapped || difference < 16.0, "{transfer}: differs by {difference:.1}");
    }
}

#[test]
fn hostile_and_broken_inputs_are_refused_and_say_why() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, bytes: &[u8]| {
        let path = folder.path().join(name);
        std::fs::write(&path, bytes).unwrap();
        path
    };
    let says = |path: &Path, text: &str| {
        let error = refused(path);
        assert_eq!(error.kind(), ErrorKind::InvalidMedia, "{error:?}");
        assert!(error.to_string().contains(text), "{text:?} is not in {error}");
    };
    says(&write("empty.mp4", b""), "is empty");
    says(&write("text.mp4", b"hello, this is no video"), "not a video");
    let playlist = b"#EXTM3U\n#EXT-X-TARGETDURATION:1\n#EXTINF:1,\n/etc/passwd\n#EXT-X-ENDLIST\n";
    says(&write("playlist.mp4", playlist), "playlist");
    says(&write("script.mp4", b"ffconcat version 1.0\nfile /etc/passwd\n"), "list of files");
    says(&write("picture.mp4", b"\xff\xd8\xff\xe0 a picture"), "JPEG");
    assert_eq!(refused(&folder.path().join("missing.mp4")).kind(), ErrorKind::NotFound);
    let empty = folder.path().join("empty");
    std::fs::create_dir(&empty).unwrap();
    assert_eq!(refused(&empty).kind(), ErrorKind::TooFewFrames);
    assert_eq!(super::probe(&empty).unwrap_err().kind(), ErrorKind::InvalidMedia);
    #[cfg(unix)]
    says(Path::new("/dev/zero"), "not a video");

    // The right first bytes, then nonsense.
    let mut garbage = b"\0\0\0\x18ftypmp42\0\0\0\0mp42isom".to_vec();
    let mut random = crate::random::Random::new(7);
    garbage.extend((0..200_000).map(|_| random.below(256) as u8));
    says(&write("garbage.mp4", &garbage), "cannot be read as a video");
    let mut ebml = vec![0x1a, 0x45, 0xdf, 0xa3, 0x01, 0xff, 0xff, 0xff];
    ebml.extend((0..100_000).map(|_| random.below(256) as u8));
    says(&write("garbage.webm", &ebml), "cannot be read as a video");
    // A playlist behind a box: whitelisted containers only, so it is never followed.
    let mut hidden = b"\0\0\0\x08free".to_vec();
    hidden.extend_from_slice(playlist);
    says(&write("hidden.mp4", &hidden), "cannot be read as a video");

    if let Some(bomb) = make(
        folder.path(),
        "bomb.mp4",
        None,
        "-f lavfi -i color=s=8192x8192:r=1 -frames:v 2 -c:v libx264 -preset ultrafast",
    ) {
        says(&bomb, "8192x8192");
    }
    if let Some(sound) = make(folder.path(), "sound.mp4", None, "-f lavfi -i sine -t 1 -c:a aac") {
        says(&sound, "no video stream");
    }
    let base = pan(folder.path(), "base.mp4", 100, 8, (320, 240));
    let whole = make(folder.path(), "whole.mp4", Some(&base), "-c copy").unwrap();
    let bytes = std::fs::read(whole).unwrap();
    says(&write("cut.mp4", &bytes[..bytes.len() / 2]), "incomplete");
    // With the index in front the first part can still be used.
    let arguments = "-g 10 -bf 0 -movflags +faststart";
    if let Some(whole) = make(folder.path(), "front.mp4", Some(&base), arguments) {
        let bytes = std::fs::read(whole).unwrap();
        let cut = write("front_cut.mp4", &bytes[..bytes.len() / 2]);
        let frames = extract(&cut, &folder.path().join("cut"), 100).unwrap();
        assert!(frames.total < 80 && frames.warnings.iter().any(|w| w.code == "video_cut_off"), "{frames:?}");
    }
}

#[test]
fn only_listed_decoders_run() {
    let folder = tempfile::tempdir().unwrap();
    let base = pan(folder.path(), "base.mp4", 10, 16, (320, 240));
    // A decoder that is not on the list is told by name, be it that of the picture or of the sound.
    let refusals = [
        ("asv1.avi", "-c:v asv1", "asv1"),
        ("wma.mkv", "-f lavfi -i sine=d=0.4 -c:v copy -c:a wmav2", "wmav2"),
    ];
    for (name, arguments, codec) in refusals {
        let Some(clip) = make(folder.path(), name, Some(&base), arguments) else { continue };
        let error = refused(&clip);
        assert_eq!(error.kind(), ErrorKind::InvalidMedia, "{error:?}");
        assert!(
            error.message().contains(&format!("its codec is {codec}, which is not supported")),
            "{error}"
        );
        assert!(error.hint_text().unwrap().contains("ffmpeg -i"), "{error}");
    }
    // Usual sound, subtitles and cover pictures are there and not decoded, and that is no fault of the video.
    let (subtitles, cover) = (folder.path().join("a.srt"), folder.path().join("cover.png"));
    std::fs::write(&subtitles, "1\n00:00:00,000 --> 00:00:00,400\nheight 12 m\n").unwrap();
    RgbImage::new(64, 64).save(&cover).unwrap();
    let arguments = format!(
        "-f lavfi -i sine=d=0.4 -i {} -i {} -map 0 -map 1 -map 2 -map 3 -c:v copy -c:a aac -c:s mov_text \
         -disposition:v:1 attached_pic",
        subtitles.display(),
        cover.display()
    );
    if let Some(clip) = make(folder.path(), "beside.mp4", Some(&base), &arguments) {
        let frames = extract(&clip, &folder.path().join("beside"), 10).unwrap();
        assert_eq!((frames.total, &frames.warnings[..]), (10, &[][..]));
    }
}

#[test]
fn a_size_that_changes_in_the_middle_is_taken() {
    let folder = tempfile::tempdir().unwrap();
    let small = pan(folder.path(), "small.mp4", 25, 16, (320, 240));
    let large = pan(folder.path(), "large.mp4", 25, 16, (640, 480));
    let stream = |clip: &Path, name: &str| make(folder.path(), name, Some(clip), "-c copy -f h264");
    let (Some(a), Some(b)) = (stream(&small, "a.h264"), stream(&large, "b.h264")) else { return };
    let both = folder.path().join("both.h264");
    std::fs::write(&both, [std::fs::read(a).unwrap(), std::fs::read(b).unwrap()].concat()).unwrap();
    let Some(clip) = make(folder.path(), "both.avi", Some(&both), "-c copy") else { return };
    let frames = extract(&clip, &folder.path().join("o"), 100).unwrap();
    // Frames after the change are still found by their numbers, and are of the size before it.
    assert!(frames.total >= 48, "{frames:?}");
    assert!(frames.frames.iter().filter(|f| f.index >= 26).count() > 15, "{frames:?}");
    assert!(frames.frames.iter().all(|f| (f.width, f.height) == (320, 240)));
    assert!(!frames.warnings.iter().any(|w| w.code == "frames_lost"), "{:?}", frames.warnings);
}

#[test]
fn more_frames_than_are_read_are_refused_before_decoding() {
    let folder = tempfile::tempdir().unwrap();
    let arguments =
        "-f lavfi -i color=s=16x16:r=1000 -frames:v 216010 -c:v libx264 -preset ultrafast -g 10000";
    let Some(clip) = make(folder.path(), "many.mp4", None, arguments) else { return };
    let start = std::time::Instant::now();
    let error = refused(&clip);
    assert_eq!(error.kind(), ErrorKind::InvalidMedia, "{error:?}");
    assert!(error.message().contains("it has 216010 frames (1000 a second); at most 216000"), "{error}");
    assert!(start.elapsed().as_secs() < 20, "{:?}", start.elapsed());
}

#[test]
fn durations_that_lie_change_no_frames() {
    let folder = tempfile::tempdir().unwrap();
    let base = pan(folder.path(), "base.mp4", 20, 16, (320, 240));
    let Some(clip) = make(folder.path(), "a.mkv", Some(&base), "-c copy") else { return };
    let bytes = std::fs::read(&clip).unwrap();
    // Matroska's element `Duration` (0x4489) of 8 bytes: a number of milliseconds.
    let at = 3 + bytes.windows(3).position(|w| w == [0x44, 0x89, 0x88]).unwrap();
    let lie = |name: &str, milliseconds: f64| {
        let mut bytes = bytes.clone();
        bytes[at..at + 8].copy_from_slice(&milliseconds.to_be_bytes());
        let path = folder.path().join(name);
        std::fs::write(&path, bytes).unwrap();
        path
    };
    let short = extract(&lie("short.mkv", 40.0), &folder.path().join("short"), 100).unwrap();
    assert_eq!(short.total, 20);
    let long = extract(&lie("long.mkv", 60_000.0), &folder.path().join("long"), 100).unwrap();
    assert_eq!(long.total, 20);
    assert!(long.warnings.iter().any(|w| w.code == "video_cut_off"), "{:?}", long.warnings);
    let error = refused(&lie("endless.mkv", 7.2e6));
    assert!(error.message().contains("it is 120 minutes long; at most 30"), "{error}");
    for nonsense in [f64::NAN, f64::INFINITY, -1.0, 1e300] {
        if let Err(error) = extract(&lie("nonsense.mkv", nonsense), &folder.path().join("nonsense"), 100) {
            assert_eq!(error.kind(), ErrorKind::InvalidMedia, "{nonsense}: {error:?}");
        }
    }
}

#[test]
fn a_header_with_a_giant_picture_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let base = pan(folder.path(), "base.mp4", 5, 16, (320, 240));
    // The size stands in the header alone: AVI's `strf`, a BITMAPINFOHEADER of 40 bytes, has width and height after it.
    let Some(clip) = make(folder.path(), "a.avi", Some(&base), "-c:v mjpeg -pix_fmt yuvj420p") else {
        return;
    };
    let mut bytes = std::fs::read(&clip).unwrap();
    let at = 12 + bytes.windows(4).position(|w| w == b"strf").unwrap();
    bytes[at..at + 8].copy_from_slice(&[0xff, 0xff, 0, 0, 0xff, 0xff, 0, 0]);
    // Raw pictures have no other size than that.
    bytes[at + 8..at + 16].copy_from_slice(&[1, 0, 24, 0, 0, 0, 0, 0]);
    let path = folder.path().join("giant.avi");
    std::fs::write(&path, bytes).unwrap();
    let start = std::time::Instant::now();
    let error = refused(&path);
    assert_eq!(error.kind(), ErrorKind::InvalidMedia, "{error:?}");
    println!("{error}");
    assert!(
        error.message().contains("65535x65535") || error.message().contains("size is unknown"),
        "{error}"
    );
    assert!(start.elapsed().as_secs() < 10, "{:?}", start.elapsed());
}

#[test]
fn a_camera_at_rest_is_refused_and_a_cancel_is_heard() {
    let folder = tempfile::tempdir().unwrap();
    let still = "-f lavfi -i testsrc2=s=320x240,loop=-1:1:0,noise=alls=6:allf=t -frames:v 60";
    if let Some(clip) = make(folder.path(), "still.mp4", None, still) {
        let error = refused(&clip);
        assert_eq!(error.kind(), ErrorKind::InsufficientParallax, "{error:?}");
        let cancel = CancelToken::new();
        cancel.cancel();
        let control = Control::new().with_cancel(cancel);
        let error =
            extract_frames(&clip, &folder.path().join("o"), &FrameOptions::default(), &control).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Cancelled);
    }
    let clip = pan(folder.path(), "two.mp4", 2, 40, (320, 240));
    assert_eq!(refused(&clip).kind(), ErrorKind::TooFewFrames);
    let wrong = FrameOptions { max_frames: 2, ..FrameOptions::default() };
    let error = extract_frames(Path::new("a.mp4"), folder.path(), &wrong, &Control::new()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
}

#[test]
fn a_folder_of_images_is_taken_as_it_is_where_it_can_be() {
    let folder = tempfile::tempdir().unwrap();
    let (input, output) = (folder.path().join("in"), folder.path().join("out"));
    std::fs::create_dir(&input).unwrap();
    let picture =
        |seed: u32| RgbImage::from_fn(96, 64, |x, y| image::Rgb([(x * 2) as u8, (y * 3 + seed) as u8, 90]));
    let encoded = jpeg::encode(&picture(0), jpeg::WORKING_QUALITY).unwrap();
    std::fs::write(input.join("a2.jpg"), &encoded).unwrap();
    picture(1).save(input.join("a10.png")).unwrap();
    picture(2).save(input.join("a1.webp")).unwrap();
    let cut_out =
        image::RgbaImage::from_fn(96, 64, |x, _| image::Rgba([9, 9, 9, if x < 48 { 0 } else { 255 }]));
    cut_out.save(input.join("b.png")).unwrap();
    picture(3).save(input.join("c large.png")).unwrap();
    std::fs::write(input.join("broken.jpg"), &encoded[..encoded.len() / 2]).unwrap();
    std::fs::write(input.join("notes.txt"), b"notes").unwrap();
    std::fs::write(input.join(".hidden.jpg"), b"no").unwrap();

    let frames = extract(&input, &output, 100).unwrap();
    let names: Vec<&str> = frames.frames.iter().map(|f| f.name.as_str()).collect();
    assert_eq!(names, ["a1.jpg", "a2.jpg", "a10.png", "b.png", "c large.png"]);
    assert_eq!(frames.total, 6);
    assert_eq!(std::fs::read(output.join("a2.jpg")).unwrap(), encoded, "copied byte by byte");
    assert_eq!(frames.alpha(3).unwrap().unwrap().get_pixel(0, 0).0, [0]);
    assert!(frames.alpha(0).unwrap().is_none() && frames.alpha(2).unwrap().is_none());
    assert!(difference(&frames.rgb(0).unwrap(), &picture(2)) < 3.0);
    let codes: Vec<&str> = frames.warnings.iter().map(|w| w.code.as_ref()).collect();
    assert_eq!(codes, ["files_ignored", "images_skipped"]);

    // Smaller, and thinned.
    let options = FrameOptions { max_frames: 4, max_resolution: 64, ..FrameOptions::default() };
    let frames = extract_frames(&input, &output, &options, &Control::new()).unwrap();
    assert!(frames.frames.iter().all(|f| (f.width, f.height) == (64, 43)));
    assert!(!output.join("a10.png").exists() || frames.frames.iter().any(|f| f.name == "a10.png"));
    assert!(frames.warnings.iter().any(|w| w.code == "images_thinned"));
    let error = extract(&input, &input, 10).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
}

/// A JPEG picture that says how it must be turned (EXIF 2.3, tag 0x0112).
fn jpeg_to_turn(pixels: &RgbImage, orientation: u8) -> Vec<u8> {
    let encoded = jpeg::encode(pixels, 98).unwrap();
    let mut tiff = b"Exif\0\0II*\0\x08\0\0\0\x01\0\x12\x01\x03\0\x01\0\0\0".to_vec();
    tiff.extend([orientation, 0, 0, 0, 0, 0, 0, 0]);
    let length = (tiff.len() as u16 + 2).to_be_bytes();
    [&encoded[..2], &[0xff, 0xe1], &length, &tiff, &encoded[2..]].concat()
}

#[test]
fn pictures_taken_level_and_on_end_are_all_stored_as_the_sensor_saw_them() {
    let folder = tempfile::tempdir().unwrap();
    let (input, output) = (folder.path().join("in"), folder.path().join("out"));
    std::fs::create_dir(&input).unwrap();
    // Dark at the top left, red to the right, green downwards.
    let seen = RgbImage::from_fn(96, 64, |x, y| image::Rgb([(x * 2) as u8, (y * 3) as u8, 20]));
    for name in ["a.jpg", "b.jpg", "c.jpg"] {
        std::fs::write(input.join(name), jpeg_to_turn(&seen, 1)).unwrap();
    }
    // The phone was turned to the one side, and to the other.
    std::fs::write(input.join("d.jpg"), jpeg_to_turn(&seen, 6)).unwrap();
    std::fs::write(input.join("e.jpg"), jpeg_to_turn(&seen, 8)).unwrap();
    // A program turned these pixels, and nothing says which way: stored as a file of another kind than at first.
    image::imageops::rotate270(&seen).save(input.join("f.png")).unwrap();

    let frames = extract(&input, &output, 100).unwrap();
    assert_eq!(frames.frames.iter().map(|f| f.quarter_turns).collect::<Vec<_>>(), [0, 0, 0, 3, 1, 1]);
    for (k, frame) in frames.frames.iter().enumerate() {
        assert_eq!((frame.width, frame.height), (96, 64), "{frame:?}");
        let apart = difference(&frames.rgb(k).unwrap(), &seen);
        assert!(apart < 3.0, "{}: {apart}", frame.name);
    }
    assert!(frames.warnings.iter().any(|w| w.code == "pictures_turned" && w.message.starts_with("3 of 6")));
    assert!(!output.join("f.png").exists());
    assert_eq!(Frames::load(&output).unwrap().frames, frames.frames);

    // Most of them on end: the others are turned.
    for name in ["a.jpg", "b.jpg"] {
        std::fs::write(input.join(name), jpeg_to_turn(&seen, 6)).unwrap();
    }
    let frames = extract(&input, &output, 100).unwrap();
    assert_eq!(frames.frames.iter().map(|f| f.quarter_turns).collect::<Vec<_>>(), [0, 0, 1, 0, 0, 0]);
    assert!(difference(&frames.rgb(2).unwrap(), &image::imageops::rotate90(&seen)) < 3.0);

    // Another camera made one of them: it is left out, and the others are turned as before.
    seen.view(0, 0, 80, 64).to_image().save(input.join("g.png")).unwrap();
    let frames = extract(&input, &output, 100).unwrap();
    assert_eq!(frames.frames.iter().map(|f| f.quarter_turns).collect::<Vec<_>>(), [0, 0, 1, 0, 0, 0]);
    assert!(!output.join("g.png").exists());
    assert!(frames.warnings.iter().any(|w| w.code == "other_cameras" && w.message.contains("(g.png)")));
}

/// A JPEG picture by a lens of this equivalent focal length (EXIF 2.3, tag 0xa405).
fn jpeg_by_lens(pixels: &RgbImage, millimetres: u8) -> Vec<u8> {
    let encoded = jpeg::encode(pixels, 98).unwrap();
    let mut tiff = b"Exif\0\0II*\0\x08\0\0\0\x01\0\x69\x87\x04\0\x01\0\0\0\x1a\0\0\0\0\0\0\0".to_vec();
    tiff.extend([&b"\x01\0\x05\xa4\x03\0\x01\0\0\0"[..], &[millimetres, 0, 0, 0, 0, 0, 0, 0]].concat());
    let length = (tiff.len() as u16 + 2).to_be_bytes();
    [&encoded[..2], &[0xff, 0xe1], &length, &tiff, &encoded[2..]].concat()
}

#[test]
fn pictures_by_several_lenses_and_of_several_sizes_are_told_apart() {
    let folder = tempfile::tempdir().unwrap();
    let (input, output) = (folder.path().join("in"), folder.path().join("out"));
    std::fs::create_dir(&input).unwrap();
    let picture = RgbImage::from_fn(96, 64, |x, y| image::Rgb([(x * 2) as u8, (y * 3) as u8, 20]));
    for (k, lens) in [13, 26, 26, 25, 52, 26, 26, 13, 26, 13].into_iter().enumerate() {
        std::fs::write(input.join(format!("{k}.jpg")), jpeg_by_lens(&picture, lens)).unwrap();
    }
    picture.view(3, 0, 90, 64).to_image().save(input.join("cropped.png")).unwrap();
    let frames = extract(&input, &output, 100).unwrap();
    let of: Vec<(&str, u32)> = frames.frames.iter().map(|f| (f.name.as_str(), f.camera)).collect();
    let wide = |name| (name, 1);
    let usual = |name| (name, 0);
    let expected = [
        wide("0.jpg"),
        usual("1.jpg"),
        usual("2.jpg"),
        usual("3.jpg"),
        usual("5.jpg"),
        usual("6.jpg"),
        wide("7.jpg"),
        usual("8.jpg"),
        wide("9.jpg"),
    ];
    assert_eq!(of, expected);
    assert_eq!(frames.total, 11);
    assert_eq!(Frames::load(&output).unwrap().frames, frames.frames);
    let [several, left_out] = &frames.warnings[..] else { panic!("{:?}", frames.warnings) };
    assert!(several.code == "several_cameras" && several.message.contains("(6, 3 pictures)"), "{several:?}");
    assert_eq!(left_out.code, "other_cameras");
    assert!(left_out.message.starts_with("2 of 11 pictures are left out"), "{left_out:?}");
    assert!(
        left_out.message.contains("(cropped.png)") && left_out.message.contains("(4.jpg)"),
        "{left_out:?}"
    );

    // A second phone, held on end for one picture: that is turned like its own.
    for k in 10..14 {
        picture.view(0, 0, 80, 64).to_image().save(input.join(format!("{k}.png"))).unwrap();
    }
    image::imageops::rotate270(&picture.view(0, 0, 80, 64).to_image()).save(input.join("14.png")).unwrap();
    let frames = extract(&input, &output, 100).unwrap();
    let second: Vec<_> = frames.frames.iter().filter(|f| f.camera == 1).collect();
    assert_eq!(second.iter().map(|f| f.quarter_turns).collect::<Vec<_>>(), [0, 0, 0, 0, 1]);
    assert!(second.iter().all(|f| (f.width, f.height) == (80, 64)));
    assert!(frames.frames.iter().all(|f| f.camera == 1 || (f.width, f.height) == (96, 64)));

    // No two alike.
    for k in 0..15u32 {
        let name = if k < 10 { format!("{k}.jpg") } else { format!("{k}.png") };
        picture.view(0, 0, 96 - 2 * k, 64).to_image().save(input.join(name)).unwrap();
    }
    let error = refused(&input);
    assert_eq!(error.kind(), ErrorKind::TooFewFrames);
    assert!(
        error.message().contains("come from one camera") && error.message().contains("0.jpg, 1.jpg"),
        "{error}"
    );
}

/// A JPEG picture by a lens of so many tenths of a millimetre (EXIF 2.3, tag 0x920a). Where an equivalent (0xa405) is given the picture
/// says, too, that it was 4938 pixels wide with 82 of them a millimetre (0xa002, 0xa20e), which contradicts that.
fn jpeg_by_millimetres(pixels: &RgbImage, tenths: u32, equivalent: Option<u32>) -> Vec<u8> {
    let encoded = jpeg::encode(pixels, 98).unwrap();
    // Behind the entries, of which there are six or one.
    let data = 32 + 12 * if equivalent.is_some() { 6 } else { 1 };
    let mut entries: Vec<(u16, u16, u32)> = vec![(0x920a, 5, data)];
    if let Some(equivalent) = equivalent {
        entries.extend([(0xa002, 4, 4938), (0xa003, 4, 3292), (0xa20e, 5, data + 8)]);
        entries.extend([(0xa210, 3, 3), (0xa405, 3, equivalent)]);
    }
    let mut tiff = b"Exif\0\0II*\0\x08\0\0\0\x01\0\x69\x87\x04\0\x01\0\0\0\x1a\0\0\0\0\0\0\0".to_vec();
    tiff.extend((entries.len() as u16).to_le_bytes());
    for (tag, kind, value) in entries {
        let (tag, kind, value) = (tag.to_le_bytes(), kind.to_le_bytes(), value.to_le_bytes());
        tiff.extend([&tag[..], &kind, &[1, 0, 0, 0], &value].concat());
    }
    // No further directory; the two fractions.
    tiff.extend([0, tenths, 10, 820, 1].map(u32::to_le_bytes).concat());
    let length = (tiff.len() as u16 + 2).to_be_bytes();
    [&encoded[..2], &[0xff, 0xe1], &length, &tiff, &encoded[2..]].concat()
}

#[test]
fn lenses_are_told_apart_where_what_exif_data_say_of_them_is_no_focal_length_in_pixels() {
    let picture = RgbImage::from_fn(96, 64, |x, y| image::Rgb([(x * 2) as u8, (y * 3) as u8, 20]));
    for equivalents in [[Some(38), Some(24)], [None, None]] {
        let folder = tempfile::tempdir().unwrap();
        let (input, output) = (folder.path().join("in"), folder.path().join("out"));
        std::fs::create_dir(&input).unwrap();
        for k in 0..8 {
            let bytes = jpeg_by_millimetres(&picture, [256, 160][k % 2], equivalents[k % 2]);
            std::fs::write(input.join(format!("{k}.jpg")), bytes).unwrap();
        }
        let frames = extract(&input, &output, 100).unwrap();
        assert!(frames.frames.iter().all(|f| f.focal_prior.is_none()), "{frames:?}");
        let cameras: Vec<u32> = frames.frames.iter().map(|f| f.camera).collect();
        assert_eq!(cameras, [0, 1, 0, 1, 0, 1, 0, 1], "{equivalents:?}");
    }
}

/// Processor seconds of the children of this process that have ended, and of the process itself.
#[cfg(unix)]
fn processor_seconds() -> f64 {
    [libc::RUSAGE_SELF, libc::RUSAGE_CHILDREN]
        .into_iter()
        .map(|who| {
            // SAFETY: `getrusage` fills the structure, of which all bit patterns are valid.
            let usage = unsafe {
                let mut usage: libc::rusage = std::mem::zeroed();
                libc::getrusage(who, &mut usage);
                usage
            };
            let seconds = |t: libc::timeval| t.tv_sec as f64 + t.tv_usec as f64 * 1e-6;
            seconds(usage.ru_utime) + seconds(usage.ru_stime)
        })
        .sum()
}

#[cfg(unix)]
#[test]
fn real_videos_give_the_frames_they_should() {
    // Name, cap, fewest and most frames. Those that are thinned out already keep all.
    let cases = [
        ("stone-sign-orbit", 150, 83, 83),
        ("tree-snow", 150, 80, 80),
        ("ditch-walk", 150, 48, 48),
        ("holiday-night", 150, 60, 60),
        ("redkitchen-walk", 150, 130, 150),
        ("office-loop", 150, 140, 150),
        ("office-loop", 300, 225, 237),
    ];
    for (name, cap, fewest, most) in cases {
        let Some(folder) = capture(name) else { continue };
        let output = tempfile::tempdir().unwrap();
        let before = processor_seconds();
        let frames = extract(&folder.join("video.mp4"), output.path(), cap).unwrap();
        let seconds = processor_seconds() - before;
        let count = frames.frames.len();
        let widest = frames.frames.windows(2).map(|w| w[1].index - w[0].index).max().unwrap_or(0);
        println!(
            "{name:18} cap {cap}: {count}/{} frames, widest gap {widest}, {seconds:.2} CPU s, {:?}",
            frames.total, frames.warnings
        );
        assert!((fewest..=most).contains(&count), "{name}: {count} frames");
    }
}

#[test]
fn real_containers_and_negative_videos() {
    if let (Some(variants), Some(stone)) = (capture("container-variants"), capture("stone-sign-orbit")) {
        let folder = tempfile::tempdir().unwrap();
        let original = extract(&stone.join("video.mp4"), &folder.path().join("o"), 150).unwrap();
        let cases = [
            ("rotation_plus90_h264.mov", 24),
            ("rotation_minus90_h264.mov", 24),
            ("hevc10_with_audio.mp4", 24),
            ("vp9.webm", 24),
            ("variable_frame_rate.mp4", 30),
        ];
        for (name, count) in cases {
            let output = folder.path().join(name);
            let frames =
                extract(&variants.join(name), &output, 150).unwrap_or_else(|e| panic!("{name}: {e:?}"));
            let difference = difference(&frames.rgb(0).unwrap(), &original.rgb(0).unwrap());
            println!(
                "{name}: {}/{} frames, first differs by {difference:.2}",
                frames.frames.len(),
                frames.total
            );
            assert!(difference < 6.0, "{name} differs by {difference:.1}");
            assert_eq!((frames.frames.len() as u64, frames.total), (count, count), "{name}");
        }
        let error = refused(&variants.join("truncated.mp4"));
        assert_eq!(error.kind(), ErrorKind::InvalidMedia);
        assert!(error.message().contains("moov"), "{error}");
    }
    if let Some(negative) = capture("negative-videos") {
        for name in ["moving_object_static_camera_box.mp4", "static_camera_tree.avi"] {
            let error = refused(&negative.join(name));
            println!("{name}: {error}");
            assert_eq!(error.kind(), ErrorKind::InsufficientParallax, "{name}: {error:?}");
        }
        // That it only turns cannot be seen here; it must pass for structure from motion to see it.
        let output = tempfile::tempdir().unwrap();
        let frames = extract(&negative.join("pure_rotation_parking_lot.mp4"), output.path(), 150).unwrap();
        println!("rotation: {}/{} frames {:?}", frames.frames.len(), frames.total, frames.warnings);
    }
}

#[test]
fn real_photographs_give_their_focal_length() {
    // Focal lengths in pixels from self-calibration, which the EXIF data do not know of.
    for (name, count, expected) in [("sceaux-castle", 11, 1486.3), ("banana", 16, 2600.8)] {
        let Some(folder) = capture(name) else { continue };
        let output = tempfile::tempdir().unwrap();
        let options = FrameOptions { max_frames: 100, max_resolution: 800, ..FrameOptions::default() };
        let frames =
            extract_frames(&folder.join("images"), output.path(), &options, &Control::new()).unwrap();
        assert_eq!((frames.frames.len(), &frames.warnings[..]), (count, &[][..]), "{name}");
        for frame in &frames.frames {
            let original = if name == "banana" { 1504.0 } else { 1416.0 };
            let focal = frame.focal_prior.unwrap() * original / f64::from(frame.width.max(frame.height));
            assert!((focal / expected - 1.0).abs() < 0.05, "{name}: {focal:.0} pixels");
        }
    }
}
