//! The value that leaves this stage: key frames on disk and what is known about them.

use std::fs::File;
use std::io::Read;
use std::path::{Component, Path, PathBuf};

use image::{DynamicImage, GrayImage, RgbImage};
use serde::{Deserialize, Serialize};

use crate::camera::panorama::Side;
use crate::control::Warning;
use crate::error::{Error, ErrorKind, Result};
use crate::files::sync_folder;
use crate::picture_file;

use super::picture;

/// Longest `frames.json` that is read, bytes: 5000 frames take about 1 MB.
const MAX_DESCRIPTION: u64 = 16 << 20;

/// How the pictures of a video show directions.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Projection {
    /// As an ordinary lens does.
    #[default]
    Flat,
    /// All directions around the camera: columns are longitudes, rows are latitudes (360° video).
    Equirectangular,
}

impl Projection {
    /// Whether it is what a file has that says nothing.
    fn is_flat(&self) -> bool {
        *self == Self::Flat
    }
}

/// What to take from a video.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct FrameOptions {
    /// At most this many key frames (3 to 5000). Of a 360° video a third of this number of panoramas (rounded up, at least 3):
    /// each gives six frames, and they see as much.
    pub max_frames: usize,
    /// Whether up to three times as many are taken of a video whose picture moves so far from one key frame to the next that they would
    /// share too little: by more than a tenth of its longer side.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub more_frames: bool,
    /// Long side of the stored frames in pixels at most (64 to 8192); larger ones are scaled down (area averaging). Of a 360°
    /// video it is the side of each of the six squares.
    pub max_resolution: u32,
    /// How the pictures show directions; absent = as the file says, or as its pictures look where it says nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub projection: Option<Projection>,
}

impl Default for FrameOptions {
    fn default() -> Self {
        Self { max_frames: 150, more_frames: false, max_resolution: 1600, projection: None }
    }
}

/// How many times as many key frames there may be where the motion needs more.
const MORE_FRAMES: usize = 3;
/// There are never more.
const MOST_FRAMES: usize = 5000;

impl FrameOptions {
    /// At most so many key frames, if a number is named; else the usual number, or more where the motion needs them.
    pub fn of_at_most(max_frames: Option<usize>) -> Self {
        let usual = Self::default();
        Self {
            max_frames: max_frames.unwrap_or(usual.max_frames),
            more_frames: max_frames.is_none(),
            ..usual
        }
    }

    /// How many key frames there may be where the motion needs them.
    pub(super) fn most_frames(&self) -> usize {
        match self.more_frames {
            true => self.max_frames.max(MOST_FRAMES.min(MORE_FRAMES * self.max_frames)),
            false => self.max_frames,
        }
    }

    /// # Errors
    /// [`ErrorKind::InvalidArgument`] unless `max_frames` is 3 to 5000 and `max_resolution` 64 to 8192.
    pub fn validate(&self) -> Result<()> {
        if !(3..=MOST_FRAMES).contains(&self.max_frames) {
            return Err(Error::argument(format!("max_frames is {}; it must be 3 to 5000", self.max_frames)));
        }
        if !(64..=8192).contains(&self.max_resolution) {
            return Err(Error::argument(format!(
                "max_resolution is {}; it must be 64 to 8192 pixels",
                self.max_resolution
            )));
        }
        Ok(())
    }
}

/// What is known about a video before it is decoded.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct VideoInfo {
    /// Container, as ffmpeg names it, for example `mov,mp4,m4a,3gp,3g2,mj2`.
    pub container: String,
    /// Codec, for example `h264`.
    pub codec: String,
    /// Width of the upright picture with square pixels.
    pub width: u32,
    /// Height of the upright picture with square pixels.
    pub height: u32,
    /// Clockwise rotation that the container asks for: 0, 90, 180 or 270 degrees. It has been applied to width and height.
    pub rotation: u32,
    /// Seconds.
    pub duration: f64,
    /// Mean frames per second.
    pub frame_rate: f64,
    /// Whether the colours are HDR (PQ or HLG) and are tone-mapped.
    pub hdr: bool,
    /// How its pictures show directions.
    #[serde(default, skip_serializing_if = "Projection::is_flat")]
    pub projection: Projection,
    /// Its file name in the folder that was given, where it is all that was taken of what lies there; absent for a video that was
    /// given itself or is alone in its folder.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
}

/// Where frames came from.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum FrameSource {
    /// A video: frames are in the order of time, made by one camera.
    Video(VideoInfo),
    /// A folder of images, in the order of their names.
    Images,
}

/// One key frame.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Frame {
    /// File name in the folder: `frame_NNNNNN.jpg` with the zero-based number in the video (`walk_frame_NNNNNN.jpg` of a `walk.mp4`
    /// beside others), or the image's own name. A side of a panorama has its name behind it: `frame_NNNNNN_front.jpg`.
    pub name: String,
    /// Zero-based number in the video (in the list of images).
    pub index: u64,
    /// Seconds from the start of the video; absent for images.
    pub timestamp: Option<f64>,
    /// Width in pixels.
    pub width: u32,
    /// Height in pixels.
    pub height: u32,
    /// Sharpness relative to the frames around it; 1 is usual, larger is sharper.
    pub sharpness: f32,
    /// Focal length in pixels of this picture from EXIF, if it says so.
    pub focal_prior: Option<f64>,
    /// Clockwise quarter turns (0 to 3) from the upright picture to the stored one: pictures of one camera, some taken
    /// with it held on end, are stored as its sensor saw them, so that one lens made them all.
    #[serde(default, skip_serializing_if = "is_upright")]
    pub quarter_turns: u8,
    /// Which camera made it: pictures with one number have one size, and were taken through one lens without zooming. 0 is the
    /// camera that made most.
    #[serde(default, skip_serializing_if = "is_first")]
    pub camera: u32,
    /// Which side of a panorama this is; absent for an ordinary picture. The sides with the same `index` were taken at
    /// one place and time, as pinhole pictures with an angle of 90 degrees ([`crate::camera::panorama::side_camera`]).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub side: Option<Side>,
}

impl Frame {
    /// A picture of which no more is known: it stands upright, was made by the first camera at no known time, and is as sharp as
    /// others.
    pub fn new(name: impl Into<String>, index: u64, width: u32, height: u32) -> Self {
        Self {
            name: name.into(),
            index,
            timestamp: None,
            width,
            height,
            sharpness: 1.0,
            focal_prior: None,
            quarter_turns: 0,
            camera: 0,
            side: None,
        }
    }
}

fn is_upright(quarter_turns: &u8) -> bool {
    *quarter_turns == 0
}

fn is_first(camera: &u32) -> bool {
    *camera == 0
}

/// Key frames on disk. Written to `frames.json` in the folder; pictures are 8-bit sRGB JPEG or PNG.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Frames {
    /// The folder of the pictures. Not stored: it is where `frames.json` is.
    #[serde(skip)]
    pub folder: PathBuf,
    /// Where they came from.
    pub source: FrameSource,
    /// How many pictures the source had in all.
    pub total: u64,
    /// The chosen frames, in order.
    pub frames: Vec<Frame>,
    /// What the user should know (rotation on the spot, mixed lenses, ...).
    pub warnings: Vec<Warning>,
}

impl Frames {
    /// All pictures of a folder, in no order of time.
    pub fn of_images(folder: impl Into<PathBuf>, frames: Vec<Frame>) -> Self {
        Self {
            folder: folder.into(),
            source: FrameSource::Images,
            total: frames.len() as u64,
            frames,
            warnings: Vec::new(),
        }
    }

    /// Path of frame `index` (of `frames`, not of the video).
    ///
    /// # Panics
    /// If there is no such frame.
    pub fn path(&self, index: usize) -> PathBuf {
        self.folder.join(&self.frames[index].name)
    }

    /// Whether neighbours in the list are neighbours in time.
    pub fn is_sequential(&self) -> bool {
        matches!(self.source, FrameSource::Video(_))
    }

    /// The name of a video's frame: `frame_NNNNNN.jpg`.
    pub fn name_of(index: u64) -> String {
        format!("frame_{index:06}.jpg")
    }

    /// The name of a side of a video's panorama: `frame_NNNNNN_front.jpg`.
    pub fn side_name_of(index: u64, side: Side) -> String {
        format!("frame_{index:06}_{}.jpg", side.name())
    }

    /// Whether `name` is one that a video's frame or a side of it has.
    pub(super) fn is_name_of_video(name: &str) -> bool {
        let Some(stem) = name.strip_prefix("frame_").and_then(|n| n.strip_suffix(".jpg")) else {
            return false;
        };
        let (number, side) = stem.split_once('_').map_or((stem, None), |(number, side)| (number, Some(side)));
        let is_side = side.is_none_or(|side| Side::ALL.iter().any(|s| s.name() == side));
        number.len() >= 6 && number.bytes().all(|b| b.is_ascii_digit()) && is_side
    }

    /// The number in its video that the name of a frame ends with, whatever is before it: `kitchen_frame_000120.jpg`. None if it is
    /// another name.
    pub(crate) fn number_in_video(name: &str) -> Option<u64> {
        let (before, number) = name.strip_suffix(".jpg")?.rsplit_once("frame_")?;
        let is_number = number.len() >= 6 && number.bytes().all(|b| b.is_ascii_digit());
        let is_name = is_number && (before.is_empty() || before.ends_with('_'));
        if is_name { number.parse().ok() } else { None }
    }

    /// Whether frames are sides of panoramas.
    pub fn is_panoramic(&self) -> bool {
        self.frames.iter().any(|f| f.side.is_some())
    }

    /// How many pictures of the source were chosen: a panorama counts once, although each of its sides is a frame.
    pub fn chosen(&self) -> usize {
        self.frames.chunk_by(|a, b| a.side.is_some() && b.side.is_some() && a.index == b.index).count()
    }

    /// What was chosen, for a person: `150 of 900 frames`, or `50 of 900 panoramas (300 pictures)`.
    pub fn summary(&self) -> String {
        match self.is_panoramic() {
            true => format!("{} of {} panoramas ({} pictures)", self.chosen(), self.total, self.frames.len()),
            false => format!("{} of {} frames", self.frames.len(), self.total),
        }
    }

    /// Where the description is stored in `folder`.
    pub fn description_path(folder: &Path) -> PathBuf {
        folder.join("frames.json")
    }

    /// Reads the description of the frames in `folder`.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] if there is none (the stage did not finish); [`ErrorKind::InvalidFile`] if it is damaged
    /// or names a file outside the folder.
    pub fn load(folder: &Path) -> Result<Frames> {
        let path = Self::description_path(folder);
        let mut text = String::new();
        File::open(&path).and_then(|file| file.take(MAX_DESCRIPTION + 1).read_to_string(&mut text)).map_err(
            |e| match e.kind() {
                std::io::ErrorKind::InvalidData => damaged(&path, "it is no text"),
                _ => Error::io("read", &path, e),
            },
        )?;
        if text.len() as u64 > MAX_DESCRIPTION {
            return Err(damaged(&path, "it is longer than 16 MB"));
        }
        let mut frames: Frames = serde_json::from_str(&text).map_err(|e| damaged(&path, &e.to_string()))?;
        let check_name = |name: &str| {
            let mut parts = Path::new(name).components();
            match (parts.next(), parts.next()) {
                (Some(Component::Normal(_)), None) => Ok(()),
                _ => Err(damaged(&path, &format!("{name:?} is no plain file name"))),
            }
        };
        if let FrameSource::Video(VideoInfo { file: Some(file), .. }) = &frames.source {
            check_name(file)?;
        }
        for frame in &frames.frames {
            check_name(&frame.name)?;
            if frame.width == 0 || frame.height == 0 {
                return Err(damaged(&path, &format!("{} is {}x{}", frame.name, frame.width, frame.height)));
            }
        }
        frames.folder = folder.to_path_buf();
        Ok(frames)
    }

    /// Writes the description into the folder. Everything else must be there already: it says that the stage is done.
    ///
    /// # Errors
    /// [`ErrorKind::DiskFull`], [`ErrorKind::Io`].
    pub fn save(&self) -> Result<()> {
        let json = serde_json::to_vec_pretty(self)
            .map_err(|e| Error::new(ErrorKind::Internal, format!("cannot describe the frames: {e}")))?;
        picture::write(&self.folder, "frames.json", &json)?;
        // The entries of the folder, too, must survive a loss of power.
        sync_folder(&self.folder)
    }

    /// Frame `index` (of `frames`) in colour; what is transparent has its stored colour.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`], [`ErrorKind::InvalidFile`] if the picture is damaged or of another size.
    ///
    /// # Panics
    /// If there is no such frame.
    pub fn rgb(&self, index: usize) -> Result<RgbImage> {
        Ok(self.picture(index)?.into_rgb8())
    }

    /// Frame `index` as luma, BT.709 weights on the stored values, 0 to 255.
    ///
    /// # Errors
    /// As for [`Frames::rgb`].
    ///
    /// # Panics
    /// If there is no such frame.
    pub fn luma(&self, index: usize) -> Result<GrayImage> {
        Ok(self.picture(index)?.into_luma8())
    }

    /// The alpha of frame `index`, 255 where the scene is; none if the picture has no alpha.
    ///
    /// # Errors
    /// As for [`Frames::rgb`].
    ///
    /// # Panics
    /// If there is no such frame.
    pub fn alpha(&self, index: usize) -> Result<Option<GrayImage>> {
        // JPEG has none: nothing need be decoded to know it.
        if self.frames[index].name.to_ascii_lowercase().ends_with(".jpg") {
            return Ok(None);
        }
        Ok(alpha_of(&self.picture(index)?))
    }

    /// [`rgb`](Self::rgb) and [`alpha`](Self::alpha) of frame `index`, which is read once.
    ///
    /// # Errors
    /// As for [`Frames::rgb`].
    ///
    /// # Panics
    /// If there is no such frame.
    pub(crate) fn rgb_and_alpha(&self, index: usize) -> Result<(RgbImage, Option<GrayImage>)> {
        let picture = self.picture(index)?;
        let alpha = alpha_of(&picture);
        Ok((picture.into_rgb8(), alpha))
    }

    fn picture(&self, index: usize) -> Result<DynamicImage> {
        let path = self.path(index);
        let picture = picture_file::read(&path).map_err(|e| match e.kind() {
            ErrorKind::InvalidMedia => Error::new(ErrorKind::InvalidFile, e.message().to_owned()),
            _ => e,
        })?;
        let frame = &self.frames[index];
        if (picture.width(), picture.height()) != (frame.width, frame.height) {
            let (width, height) = (picture.width(), picture.height());
            return Err(damaged(
                &path,
                &format!("it is {width}x{height}, frames.json says {}x{}", frame.width, frame.height),
            ));
        }
        Ok(picture)
    }
}

fn alpha_of(picture: &DynamicImage) -> Option<GrayImage> {
    if !picture.color().has_alpha() {
        return None;
    }
    let rgba = picture.to_rgba8();
    GrayImage::from_raw(rgba.width(), rgba.height(), rgba.pixels().map(|p| p[3]).collect())
}

fn damaged(path: &Path, why: &str) -> Error {
    Error::new(ErrorKind::InvalidFile, format!("{} is damaged: {why}", path.display()))
        .hint("delete the folder of the frames and run the stage again")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frames(folder: &Path, name: &str) -> Frames {
        let frame = Frame { timestamp: Some(0.125), sharpness: 1.25, ..Frame::new(name, 4, 8, 6) };
        Frames {
            total: 9,
            warnings: vec![Warning::new("dark", "it is dark")],
            ..Frames::of_images(folder, vec![frame])
        }
    }

    #[test]
    fn sides_count_as_one_panorama_and_their_files_are_known() {
        let folder = tempfile::tempdir().unwrap();
        let mut saved = frames(folder.path(), "a.png");
        assert!(!saved.is_panoramic());
        assert_eq!((saved.chosen(), saved.summary().as_str()), (1, "1 of 9 frames"));
        let one = saved.frames.remove(0);
        for index in [2, 7, 8] {
            let side = |&side: &Side| Frame {
                name: Frames::side_name_of(index, side),
                index,
                side: Some(side),
                ..one.clone()
            };
            saved.frames.extend(Side::ALL.iter().map(side));
        }
        assert!(saved.is_panoramic());
        assert_eq!((saved.chosen(), saved.summary().as_str()), (3, "3 of 9 panoramas (18 pictures)"));
        assert_eq!(saved.frames[7].name, "frame_000007_right.jpg");
        assert!(saved.frames.iter().all(|f| Frames::is_name_of_video(&f.name)));
        saved.save().unwrap();
        assert_eq!(Frames::load(folder.path()).unwrap(), saved);
        assert!(
            Frames::is_name_of_video("frame_000012.jpg") && Frames::is_name_of_video("frame_1234567.jpg")
        );
        for other in [
            "frame_12.jpg",
            "frame_000012_inside.jpg",
            "frame_000012_front.png",
            "frame_00001a.jpg",
            "frame_.jpg",
        ] {
            assert!(!Frames::is_name_of_video(other), "{other}");
        }
    }

    #[test]
    fn frames_of_several_videos_have_their_numbers_in_their_names() {
        for (name, number) in [
            ("frame_000012.jpg", Some(12)),
            ("anna_frame_1234567.jpg", Some(1_234_567)),
            ("_a_frame_b_frame_000000.jpg", Some(0)),
            ("mainframe_000012.jpg", None),
            ("frame_000012_front.jpg", None),
            ("anna_frame_00012.jpg", None),
            ("anna_frame_000012.png", None),
            ("frame_99999999999999999999.jpg", None),
            ("IMG_000012.jpg", None),
        ] {
            assert_eq!(Frames::number_in_video(name), number, "{name}");
        }
    }

    #[test]
    fn what_is_saved_is_loaded() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(Frames::load(folder.path()).unwrap_err().kind(), ErrorKind::NotFound);
        let saved = frames(folder.path(), "a.png");
        saved.save().unwrap();
        assert_eq!(Frames::load(folder.path()).unwrap(), saved);
    }

    #[test]
    fn a_description_that_names_other_folders_or_is_damaged_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["../a.png", "/etc/passwd", "", "a/b.png", ".."] {
            frames(folder.path(), name).save().unwrap();
            assert_eq!(Frames::load(folder.path()).unwrap_err().kind(), ErrorKind::InvalidFile, "{name:?}");
        }
        let mut saved = frames(folder.path(), "a.png");
        for (file, is_taken) in [("walk.mp4", true), ("../walk.mp4", false), ("/etc/passwd", false)] {
            let info = serde_json::json!({
                "container": "mov", "codec": "h264", "width": 8, "height": 6, "rotation": 0, "duration": 1.0, "frame_rate": 25.0,
                "hdr": false, "file": file,
            });
            saved.source = FrameSource::Video(serde_json::from_value(info).unwrap());
            saved.save().unwrap();
            assert_eq!(Frames::load(folder.path()).is_ok(), is_taken, "{file}");
        }
        for text in [&b"{"[..], b"\xff\xfe", b"", b"{\"source\":{\"kind\":\"tape\"}}"] {
            std::fs::write(Frames::description_path(folder.path()), text).unwrap();
            assert_eq!(Frames::load(folder.path()).unwrap_err().kind(), ErrorKind::InvalidFile);
        }
    }

    #[test]
    fn pictures_come_back_with_their_alpha_and_must_have_their_size() {
        let folder = tempfile::tempdir().unwrap();
        let saved = frames(folder.path(), "a.png");
        assert_eq!(saved.rgb(0).unwrap_err().kind(), ErrorKind::NotFound);
        let cut_out = image::RgbaImage::from_fn(8, 6, |x, y| image::Rgba([10, 20, 30, (x * 8 + y) as u8]));
        picture::write(folder.path(), "a.png", &picture::png(&cut_out).unwrap()).unwrap();
        assert_eq!(saved.rgb(0).unwrap().get_pixel(3, 3).0, [10, 20, 30]);
        assert_eq!(saved.luma(0).unwrap().dimensions(), (8, 6));
        assert_eq!(saved.alpha(0).unwrap().unwrap().get_pixel(7, 5).0, [61]);
        assert_eq!(saved.rgb_and_alpha(0).unwrap(), (saved.rgb(0).unwrap(), saved.alpha(0).unwrap()));
        std::fs::write(folder.path().join("a.png"), b"\x89PNG\r\n\x1a\nnothing").unwrap();
        assert_eq!(saved.rgb(0).unwrap_err().kind(), ErrorKind::InvalidFile);
        let other = image::RgbaImage::new(6, 8);
        picture::write(folder.path(), "a.png", &picture::png(&other).unwrap()).unwrap();
        assert_eq!(saved.rgb(0).unwrap_err().kind(), ErrorKind::InvalidFile);
    }
}
