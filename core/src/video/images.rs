//! A folder of images instead of a video.
//!
//! In: a folder; its JPEG, PNG and WebP files in the natural order of their names are the frames. Out: the same
//! pictures in the frame folder, upright, 8-bit sRGB, at most the working size. A file that is so already is copied byte
//! by byte. Alpha (a cut-out object) is kept, as PNG. Where one camera took some pictures level and others on end, the
//! fewer lie beside the others: all are as the sensor saw them.

use std::cmp::Ordering;
use std::collections::BTreeSet;
use std::fs::File;
use std::io::{BufReader, Cursor};
use std::path::{Path, PathBuf};

use image::{DynamicImage, GenericImageView, GrayImage, ImageFormat, RgbImage};
use rayon::prelude::*;

use crate::control::{Control, Warning};
use crate::error::{Error, ErrorKind, Result};
use crate::jpeg;
use crate::picture_file;
use crate::stage::Stage;
use crate::statistics::median;

use super::by_camera::{ByCamera, LEAST, Seen, names};
use super::contact_sheet::thumbnail;
use super::exif::{Exif, Focal};
use super::keyframes::detail;
use super::panorama_photographs;
use super::picture;
use super::{Frame, FrameOptions, FrameSource, Frames, Projection};

/// Most files of a folder that are looked at.
const MAX_FILES: usize = 100_000;

/// A picture that was stored.
struct Stored {
    frame: Frame,
    detail: f32,
    /// Upright.
    thumbnail: RgbImage,
    /// Clockwise quarter turns that made it upright; none for one that was also mirrored.
    righted: Option<u8>,
}

/// Takes the images of `folder` into `output`, with a thumbnail each.
///
/// # Errors
/// [`ErrorKind::TooFewFrames`] with fewer than 3 images that can be read; [`ErrorKind::Io`], [`ErrorKind::DiskFull`],
/// [`ErrorKind::Cancelled`].
pub(super) fn take(
    folder: &Path,
    output: &Path,
    options: &FrameOptions,
    control: &Control,
) -> Result<(Frames, Vec<(u64, RgbImage)>)> {
    let listing = list(folder)?;
    let total = listing.images.len();
    if total < 3 {
        return Err(Error::new(
            ErrorKind::TooFewFrames,
            format!(
                "{} holds {total} images (jpg, png, webp); at least 3 are needed{}",
                folder.display(),
                listing.ignored()
            ),
        )
        .hint("give a folder with pictures of the scene from many sides, or a video"));
    }
    let mut warnings = listing.warnings;
    let is_around = match options.projection {
        Some(projection) => projection == Projection::Equirectangular,
        None => panorama_photographs::are_panoramas(&listing.images),
    };
    if is_around {
        let names = stored_names(&listing.images);
        let (mut frames, thumbnails) =
            panorama_photographs::take(folder, &listing.images, &names, output, options, control)?;
        warnings.append(&mut frames.warnings);
        return Ok((Frames { warnings, ..frames }, thumbnails));
    }
    let by = look(&listing.images, options.max_resolution, control)?;
    if by.readable() < 3 && by.left_out() + by.readable() >= 3 {
        return Err(Error::new(
            ErrorKind::TooFewFrames,
            format!(
                "only {} of {total} pictures come from one camera, at least 3 are needed; left out are {}",
                by.readable(),
                by.why(&listing.images)
            ),
        )
        .hint("give at least three pictures by each camera, of one size, without zooming"));
    }
    warnings.extend(by.warnings(&listing.images));
    let usable = by.kept().len();
    let (chosen, lost) = by.thinned(options.max_frames, control)?;
    if chosen.len() < usable {
        let without = match lost.len() {
            0 => String::new(),
            count => format!(
                ", without {count} by cameras of which fewer than {LEAST} would be left ({})",
                names(&lost, &listing.images)
            ),
        };
        warnings.push(Warning::new(
            "images_thinned",
            format!(
                "{} of {usable} images are used, evenly spread{without}; raise the number of frames to use more",
                chosen.len()
            ),
        ));
    }

    let names = stored_names(&listing.images);
    let mut stored = Vec::with_capacity(chosen.len());
    let mut skipped = Vec::new();
    for batch in chosen.chunks(2 * rayon::current_num_threads()) {
        control.check()?;
        let results: Vec<Result<Stored>> = batch
            .par_iter()
            .map(|&i| {
                let image = &listing.images[i];
                let mut stored = store(image, i as u64, &names[i], output, options.max_resolution, 0)?;
                stored.frame.camera = by.camera[i].unwrap_or(0);
                Ok(stored)
            })
            .collect();
        for (result, &i) in results.into_iter().zip(batch) {
            match result {
                Ok(picture) => stored.push(picture),
                Err(e) if e.kind() == ErrorKind::InvalidMedia => skipped.push((i, e)),
                Err(e) => return Err(e),
            }
        }
        let done = stored.len() + skipped.len();
        control.progress(Stage::Frames, "reading images", done as f32 / chosen.len() as f32);
    }
    if stored.len() < 3 {
        let first =
            skipped.first().map(|(_, e)| format!("; the first fault: {}", e.message())).unwrap_or_default();
        return Err(Error::new(
            ErrorKind::TooFewFrames,
            format!(
                "only {} of {} images can be read; at least 3 are needed{first}",
                stored.len(),
                chosen.len()
            ),
        ));
    }
    if let Some((_, first)) = skipped.first() {
        warnings.push(Warning::new(
            "images_skipped",
            format!(
                "{} of {} images were left out; the first: {}",
                skipped.len(),
                chosen.len(),
                first.message()
            ),
        ));
    }
    let turns = turns_to_one_size(&stored, by.made.len());
    let turned = turns.iter().filter(|&&t| t != 0).count();
    if turned > 0 {
        control.check()?;
        let again = |(picture, turn): (&mut Stored, &u8)| -> Result<()> {
            // Indices are those of the listing.
            let i = picture.frame.index as usize;
            if let (true, Some(image), Some(name)) = (*turn != 0, listing.images.get(i), names.get(i)) {
                let (upright, camera) = (std::mem::take(&mut picture.frame.name), picture.frame.camera);
                *picture = store(image, i as u64, name, output, options.max_resolution, *turn)?;
                picture.frame.camera = camera;
                if picture.frame.name != upright {
                    let path = output.join(upright);
                    std::fs::remove_file(&path).map_err(|e| Error::io("remove", &path, e))?;
                }
            }
            Ok(())
        };
        stored.par_iter_mut().zip(&turns).try_for_each(again)?;
        warnings.push(Warning::new(
            "pictures_turned",
            format!(
                "{turned} of {} pictures were taken with the camera turned; they are used as its sensor saw them, beside \
                 the others",
                stored.len()
            ),
        ));
    }
    normalise_sharpness(&mut stored);
    let thumbnails = stored.iter().map(|s| (s.frame.index, s.thumbnail.clone())).collect();
    let frames = stored.into_iter().map(|s| s.frame).collect();
    let folder = output.to_path_buf();
    Ok((Frames { folder, source: FrameSource::Images, total: total as u64, frames, warnings }, thumbnails))
}

/// Looks at the headers of all pictures: which were made by which camera?
///
/// # Errors
/// [`ErrorKind::Cancelled`].
fn look(images: &[PathBuf], longest: u32, control: &Control) -> Result<ByCamera> {
    let seen = images
        .par_iter()
        .map(|path| {
            control.check()?;
            Ok(header(path, longest).ok())
        })
        .collect::<Result<Vec<_>>>()?;
    Ok(ByCamera::of(&seen))
}

/// What the header of a picture says, for the size that it is used in.
fn header(path: &Path, longest: u32) -> Result<Seen> {
    let (width, height) = picture_file::open(path)?.dimensions();
    let size = picture::fit(width.max(height), width.min(height), longest);
    let scale = f64::from(size.0) / f64::from(width.max(height));
    let mut file = BufReader::new(File::open(path).map_err(|e| Error::io("open", path, e))?);
    let exif = Exif::of(&mut file);
    let focal = exif.focal(width, height).map(|focal| Focal { pixels: focal.pixels * scale, ..focal });
    Ok(Seen { size, focal, lens: exif.lens() })
}

/// Names of videos end so.
pub(super) const VIDEOS: [&str; 8] = ["mp4", "mov", "m4v", "mkv", "webm", "avi", "3gp", "3g2"];

/// What is in a folder beside its videos.
pub(super) struct Listing {
    /// The pictures that are read, in the natural order of their names.
    pub(super) images: Vec<PathBuf>,
    /// Pictures that phones take and we cannot read, in no order.
    pub(super) heic: Vec<PathBuf>,
    /// What is to be said of all that is not read.
    pub(super) warnings: Vec<Warning>,
}

impl Listing {
    /// What is not read, as the end of a message: it may be all that was meant.
    pub(super) fn ignored(&self) -> String {
        self.warnings.iter().map(|w| format!("; {}", w.message)).collect()
    }
}

/// The images of `folder` in the natural order of their names.
pub(super) fn images_in(folder: &Path) -> Result<Vec<PathBuf>> {
    list(folder).map(|listing| listing.images)
}

/// The same, and what is to be said of other files but videos.
pub(super) fn list(folder: &Path) -> Result<Listing> {
    let failed = |e| Error::io("read", folder, e);
    let (mut images, mut heic, mut ignored) = (Vec::new(), Vec::new(), Vec::new());
    for entry in std::fs::read_dir(folder).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let name = entry.file_name().to_string_lossy().into_owned();
        // What a link points to counts; a device or pipe must never be opened.
        let is_file = std::fs::metadata(entry.path()).is_ok_and(|m| m.is_file());
        if name.starts_with('.') || !is_file {
            continue;
        }
        match extension(&name).as_str() {
            "jpg" | "jpeg" | "png" | "webp" => images.push((name, entry.path())),
            // They are taken apart.
            kind if VIDEOS.contains(&kind) => {}
            _ => {
                if is_heic(&name) {
                    heic.push(entry.path());
                }
                ignored.push(name);
            }
        }
        if images.len() + ignored.len() > MAX_FILES {
            return Err(Error::new(
                ErrorKind::InvalidMedia,
                format!("{} holds more than {MAX_FILES} files", folder.display()),
            ));
        }
    }
    images.sort_by(|(a, _), (b, _)| natural_order(a, b));
    ignored.sort_by(|a, b| natural_order(a, b));
    let mut warnings = Vec::new();
    if let Some(first) = ignored.first() {
        let advice = match heic.len() {
            0 => String::new(),
            count => format!("; {count} of them are HEIC pictures: convert them to JPEG"),
        };
        warnings.push(Warning::new(
            "files_ignored",
            format!(
                "{} files of kinds that are not read were ignored (the first: {first}){advice}",
                ignored.len()
            ),
        ));
    }
    Ok(Listing { images: images.into_iter().map(|(_, path)| path).collect(), heic, warnings })
}

/// Whether a file is called as a picture in HEIC is, which phones take and we cannot read.
pub(super) fn is_heic(name: &str) -> bool {
    matches!(extension(name).as_str(), "heic" | "heif")
}

pub(super) fn extension(name: &str) -> String {
    Path::new(name).extension().map(|e| e.to_string_lossy().to_ascii_lowercase()).unwrap_or_default()
}

/// Compares names so that numbers in them count by value: `a2` before `a10`.
pub(super) fn natural_order(a: &str, b: &str) -> Ordering {
    let (mut left, mut right) = (a, b);
    loop {
        let ((l, l_rest), (r, r_rest)) = (leading_run(left), leading_run(right));
        let ordering = match (
            l.starts_with(|c: char| c.is_ascii_digit()),
            r.starts_with(|c: char| c.is_ascii_digit()),
        ) {
            (true, true) => {
                let (l, r) = (l.trim_start_matches('0'), r.trim_start_matches('0'));
                l.len().cmp(&r.len()).then_with(|| l.cmp(r))
            }
            _ => l.cmp(r),
        };
        if ordering != Ordering::Equal {
            return ordering;
        }
        if l.is_empty() && r.is_empty() {
            return a.cmp(b); // `a1` and `a01`
        }
        (left, right) = (l_rest, r_rest);
    }
}

/// Splits off the digits, or the other characters, with which `text` starts.
fn leading_run(text: &str) -> (&str, &str) {
    let digits = text.starts_with(|c: char| c.is_ascii_digit());
    let end = text.find(|c: char| c.is_ascii_digit() != digits).unwrap_or(text.len());
    text.split_at(end)
}

/// A name in the frame folder for each image: its own without the extension, as far as that is unique and free.
pub(super) fn stored_names(images: &[PathBuf]) -> Vec<String> {
    let mut taken: BTreeSet<String> = ["frames".to_owned()].into();
    images
        .iter()
        .map(|path| {
            let stem = path.file_stem().map(|s| s.to_string_lossy().into_owned()).unwrap_or_default();
            // A model file has one line for each image, and names in it end at the line.
            let stem: String = stem.chars().map(|c| if c.is_control() { '_' } else { c }).collect();
            let mut name = stem.clone();
            let mut count = 1;
            // Case does not tell files apart everywhere.
            while !taken.insert(name.to_lowercase()) {
                count += 1;
                name = format!("{stem}_{count}");
            }
            name
        })
        .collect()
}

/// The pictures that stored frames were made from.
#[derive(Default)]
pub(super) struct Originals {
    /// By frame; none where it cannot be told any more.
    paths: Vec<Option<PathBuf>>,
    /// By frame: see [`Frame::quarter_turns`].
    quarter_turns: Vec<u8>,
}

impl Originals {
    /// Finds them in `folder`, by their place in it and their names.
    pub(super) fn find(folder: &Path, frames: &Frames) -> Result<Self> {
        let images = images_in(folder)?;
        let names = stored_names(&images);
        let of = |frame: &Frame| {
            let index = usize::try_from(frame.index).ok()?;
            let stem = Path::new(&frame.name).file_stem()?.to_str()?;
            (names.get(index)? == stem).then(|| images.get(index).cloned()).flatten()
        };
        let quarter_turns = frames.frames.iter().map(|f| f.quarter_turns).collect();
        Ok(Self { paths: frames.frames.iter().map(of).collect(), quarter_turns })
    }

    /// Luma of the picture that frame `index` was made from, laid as the frame is, in its full size; `None` if it is not
    /// known.
    pub(super) fn luma(&self, index: usize) -> Option<Result<GrayImage>> {
        let path = self.paths.get(index)?.as_ref()?;
        let read = || {
            let bytes = picture::read_whole(path)?;
            let mut picture = picture_file::decode(Cursor::new(&bytes), path)?;
            picture.apply_orientation(Exif::of(&mut Cursor::new(&bytes)).orientation);
            picture = turn(picture, self.quarter_turns.get(index).copied().unwrap_or(0));
            Ok(picture.into_luma8())
        };
        Some(read())
    }
}

/// By how many clockwise quarter turns each picture is to be stored beside upright, so that those of a camera have one size: none,
/// unless all have that of most of them or the same with its sides exchanged.
fn turns_to_one_size(stored: &[Stored], cameras: usize) -> Vec<u8> {
    let mut turns = vec![0; stored.len()];
    for camera in 0..cameras as u32 {
        let own = || stored.iter().filter(|s| s.frame.camera == camera);
        let Some(by) = Turned::of(&own().collect::<Vec<_>>()) else { continue };
        for (turn, picture) in turns.iter_mut().zip(stored).filter(|(_, s)| s.frame.camera == camera) {
            *turn = by.turn(picture);
        }
    }
    turns
}

/// How one camera was held.
struct Turned {
    /// Width and height of most of its pictures.
    size: (u32, u32),
    /// Clockwise quarter turns by which most of these were righted.
    usual: u8,
}

impl Turned {
    /// `None` where its pictures are not of one size and its turn.
    fn of(stored: &[&Stored]) -> Option<Self> {
        let size = |s: &Stored| (s.frame.width, s.frame.height);
        let level = stored.iter().filter(|s| s.frame.width > s.frame.height).count();
        let is_usual = |s: &&&Stored| (s.frame.width > s.frame.height) == (2 * level >= stored.len());
        let (width, height) = stored.iter().find(is_usual).map(|s| size(s))?;
        if !stored.iter().all(|s| size(s) == (width, height) || size(s) == (height, width)) {
            return None;
        }
        // What most of the usual pictures were turned by is how the camera was held for them.
        let mut held = [0usize; 4];
        for turn in stored.iter().filter(is_usual).filter_map(|s| s.righted) {
            held[usize::from(turn % 4)] += 1;
        }
        let usual = (0u8..4).max_by_key(|&t| (held[usize::from(t)], std::cmp::Reverse(t))).unwrap_or(0);
        Some(Self { size: (width, height), usual })
    }

    fn turn(&self, s: &Stored) -> u8 {
        match (s.frame.width, s.frame.height) == self.size {
            true => 0,
            // A program that turned the pixels left no trace of the way it did, and a mirror has none.
            false => s.righted.map(|own| (4 + self.usual - own) % 4).filter(|t| t % 2 == 1).unwrap_or(1),
        }
    }
}

/// The picture, turned clockwise.
fn turn(picture: DynamicImage, quarter_turns: u8) -> DynamicImage {
    match quarter_turns {
        1 => picture.rotate90(),
        2 => picture.rotate180(),
        3 => picture.rotate270(),
        _ => picture,
    }
}

/// Reads one image and stores it under `stem` and the extension of its kind, turned clockwise from upright by
/// `quarter_turns`.
fn store(
    path: &Path,
    index: u64,
    stem: &str,
    output: &Path,
    longest: u32,
    quarter_turns: u8,
) -> Result<Stored> {
    let invalid = |why: &str| Error::new(ErrorKind::InvalidMedia, format!("{} {why}", path.display()));
    let bytes = picture::read_whole(path)?;
    let format = image::guess_format(&bytes).map_err(|_| invalid("is no JPEG, PNG or WebP picture"))?;
    if format == ImageFormat::Jpeg && is_cut_off(&bytes) {
        return Err(invalid("is cut off: its end is missing"));
    }
    let decoded = picture_file::decode(Cursor::new(&bytes), path)?;
    let exif = Exif::of(&mut Cursor::new(&bytes));
    let (old_width, old_height) = decoded.dimensions();
    let fits = old_width.max(old_height) <= longest;
    let as_stored = match format {
        ImageFormat::Jpeg => true,
        ImageFormat::Png => !matches!(
            decoded,
            DynamicImage::ImageLuma16(_)
                | DynamicImage::ImageLumaA16(_)
                | DynamicImage::ImageRgb16(_)
                | DynamicImage::ImageRgba16(_)
        ),
        _ => false,
    };
    let righted = quarter_turns_of(exif.orientation);
    let copied = fits && as_stored && righted.is_some_and(|r| (r + quarter_turns).is_multiple_of(4));

    let mut laid = decoded;
    laid.apply_orientation(exif.orientation);
    laid = turn(laid, quarter_turns);
    // An alpha channel that hides nothing is none.
    let cut_out = laid.color().has_alpha() && laid.to_rgba8().pixels().any(|p| p[3] < 255);
    let (name, encoded, rgb) = if cut_out {
        let small = picture::shrink_rgba(laid.into_rgba8(), longest);
        let encoded = if copied { bytes } else { picture::png(&small)? };
        (format!("{stem}.png"), encoded, DynamicImage::ImageRgba8(small).into_rgb8())
    } else {
        let small = picture::shrink_rgb(laid.into_rgb8(), longest);
        let png = copied && format == ImageFormat::Png;
        let encoded = if copied { bytes } else { jpeg::encode(&small, jpeg::WORKING_QUALITY)? };
        (format!("{stem}.{}", if png { "png" } else { "jpg" }), encoded, small)
    };
    picture::write(output, &name, &encoded)?;
    let (width, height) = rgb.dimensions();
    let luma = picture::luma(&picture::shrink_rgb(rgb.clone(), super::SURVEY_SIDE));
    let scale = f64::from(width.max(height)) / f64::from(old_width.max(old_height));
    Ok(Stored {
        detail: detail(luma.as_raw(), luma.width(), luma.height()),
        thumbnail: turn(DynamicImage::ImageRgb8(thumbnail(rgb)), (4 - quarter_turns) % 4).into_rgb8(),
        righted,
        frame: Frame {
            name,
            index,
            timestamp: None,
            width,
            height,
            sharpness: 1.0,
            focal_prior: exif.focal(old_width, old_height).map(|focal| focal.pixels * scale),
            quarter_turns,
            camera: 0,
            side: None,
        },
    })
}

/// Clockwise quarter turns of an orientation that does not mirror.
fn quarter_turns_of(orientation: image::metadata::Orientation) -> Option<u8> {
    use image::metadata::Orientation;
    match orientation {
        Orientation::NoTransforms => Some(0),
        Orientation::Rotate90 => Some(1),
        Orientation::Rotate180 => Some(2),
        Orientation::Rotate270 => Some(3),
        _ => None,
    }
}

/// Whether a JPEG file ends before its picture does. A decoder would fill the rest with grey.
fn is_cut_off(bytes: &[u8]) -> bool {
    // Segments up to the first scan; thumbnails in them have an end mark of their own, which must not count.
    let mut at = 2;
    while let Some(&[0xff, marker, high, low]) =
        bytes.get(at..at + 4).and_then(|s| <&[u8; 4]>::try_from(s).ok())
    {
        if marker == 0xff {
            at += 1; // a fill byte
            continue;
        }
        at += 2 + usize::from(u16::from_be_bytes([high, low]));
        if marker == 0xda {
            // In a scan every 0xff is followed by zero or a restart mark, so that the end mark is unmistakable.
            return !bytes.get(at..).unwrap_or_default().windows(2).any(|w| w == [0xff, 0xd9]);
        }
    }
    true
}

/// Sharpness relative to the median of all images: other than in a video, neighbours need not show the same.
fn normalise_sharpness(stored: &mut [Stored]) {
    let mut details: Vec<f32> = stored.iter().map(|s| s.detail).collect();
    let usual = median(&mut details).unwrap_or(1.0).max(1e-3);
    stored.iter_mut().for_each(|s| s.frame.sharpness = s.detail / usual);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_in_names_count_by_value() {
        let mut names =
            ["img10.png", "img2.png", "img1.png", "a", "img02.png", "img2b.png", "b1000000000000000000000"];
        names.sort_by(|a, b| natural_order(a, b));
        assert_eq!(
            names,
            ["a", "b1000000000000000000000", "img1.png", "img02.png", "img2.png", "img2b.png", "img10.png"]
        );
    }

    #[test]
    fn a_folder_of_pictures_that_are_not_read_says_what_they_are() {
        let folder = tempfile::tempdir().unwrap();
        for k in 0..5 {
            std::fs::write(folder.path().join(format!("IMG_{k}.HEIC")), "x").unwrap();
        }
        let output = tempfile::tempdir().unwrap();
        let taken = take(folder.path(), output.path(), &FrameOptions::default(), &Control::new());
        let error = taken.err().unwrap().to_string();
        assert!(error.contains("5 of them are HEIC pictures: convert them to JPEG"), "{error}");
    }

    #[test]
    fn stored_names_are_unique_and_keep_off_our_own_files() {
        let names = stored_names(&["a.jpg".into(), "A.png".into(), "frames.jpg".into(), "x\ny.jpg".into()]);
        assert_eq!(names, ["a", "A_2", "frames_2", "x_y"]);
    }

    #[test]
    fn a_jpeg_without_its_end_is_noticed() {
        let picture = RgbImage::from_fn(64, 64, |x, y| image::Rgb([(x * y) as u8, (x * 7) as u8, y as u8]));
        let whole = jpeg::encode(&picture, jpeg::WORKING_QUALITY).unwrap();
        assert!(!is_cut_off(&whole));
        assert!(is_cut_off(&whole[..whole.len() / 2]));
        assert!(is_cut_off(&whole[..10]) && is_cut_off(&[]));
        let mut trailer = whole.clone();
        trailer.extend_from_slice(b"a telephone puts a film behind the picture");
        assert!(!is_cut_off(&trailer));
    }

    #[test]
    fn a_camera_of_which_thinning_leaves_too_few_is_left_out_and_named() {
        let (folder, output) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        for k in 0..15u32 {
            let width = if (4..7).contains(&k) { 60 } else { 64 };
            let grey = RgbImage::from_fn(width, 48, |x, y| image::Rgb([(x * 3 + y * k) as u8; 3]));
            grey.save(folder.path().join(format!("{k}.png"))).unwrap();
        }
        let taken = |max_frames: usize| {
            let options = FrameOptions { max_frames, ..FrameOptions::default() };
            take(folder.path(), output.path(), &options, &Control::new()).unwrap().0
        };
        let frames = taken(8);
        assert!(frames.frames.len() == 8 && frames.frames.iter().all(|f| f.camera == 0), "{frames:?}");
        let thinned = frames.warnings.iter().find(|w| w.code == "images_thinned").unwrap();
        assert!(thinned.message.contains("(4.png, 5.png, 6.png)"), "{thinned:?}");
        assert_eq!(taken(15).frames.iter().filter(|f| f.camera == 1).count(), 3);
    }
}
