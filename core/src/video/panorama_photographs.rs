//! A folder of photographs by a 360° camera.
//!
//! In: equirectangular pictures. Out: the sides of each, as of a video's panoramas. Cameras and their programs write into a
//! picture that it is one (Google's "Photo Sphere XMP Metadata"); who knows better names the projection.

use std::fs::File;
use std::io::{Cursor, Read};
use std::path::{Path, PathBuf};

use image::{DynamicImage, RgbImage};
use rayon::prelude::*;

use crate::control::{Control, Warning};
use crate::error::{Error, ErrorKind, Result};
use crate::picture_file;
use crate::stage::Stage;
use crate::statistics::median;

use super::contact_sheet::thumbnail;
use super::keyframes::detail;
use super::panorama::{Cutter, has_shape_of_panorama, panoramas, side_size, working_size};
use super::{Frame, FrameOptions, FrameSource, Frames, SURVEY_SIDE, picture};

/// Bytes at the beginning of a file in which what a camera wrote of it lies, before the picture itself.
const HEAD: u64 = 256 << 10;
/// What says how a picture shows directions, ...
const TAG: &[u8] = b"GPano:ProjectionType";
/// ... followed by this within so many bytes: it may be an attribute or an element.
const EQUIRECTANGULAR: &[u8] = b"equirectangular";
const WITHIN: usize = 64;

/// Whether most of these pictures say that they are panoramas.
pub(super) fn are_panoramas(images: &[PathBuf]) -> bool {
    let told = images.par_iter().filter(|path| says_so(path)).count();
    2 * told > images.len()
}

/// Whether a picture says that it is a panorama. What cannot be read says nothing: it is told of where it is used.
fn says_so(path: &Path) -> bool {
    let mut head = Vec::new();
    let read = File::open(path).and_then(|file| file.take(HEAD).read_to_end(&mut head));
    read.is_ok() && head_says_so(&head)
}

fn head_says_so(head: &[u8]) -> bool {
    let mut places = head.windows(TAG.len()).enumerate().filter(|(_, w)| *w == TAG);
    places.any(|(at, _)| {
        let after = &head[at + TAG.len()..];
        let near = &after[..after.len().min(WITHIN)];
        near.windows(EQUIRECTANGULAR.len()).any(|w| w == EQUIRECTANGULAR)
    })
}

/// A panorama that was stored.
struct Stored {
    sides: Vec<Frame>,
    detail: f32,
    thumbnail: RgbImage,
}

/// Takes the panoramas among `images`, which are in `folder`, into `output`: six sides of each, under its name of `names` and
/// that of the side, and a thumbnail of the whole.
///
/// # Errors
/// [`ErrorKind::TooFewFrames`] with fewer than 3 panoramas that can be read; [`ErrorKind::Io`], [`ErrorKind::DiskFull`],
/// [`ErrorKind::Cancelled`].
pub(super) fn take(
    folder: &Path,
    images: &[PathBuf],
    names: &[String],
    output: &Path,
    options: &FrameOptions,
    control: &Control,
) -> Result<(Frames, Vec<(u64, RgbImage)>)> {
    let total = images.len();
    let mut warnings = Vec::new();
    let widths = images
        .par_iter()
        .map(|path| {
            control.check()?;
            let size = picture_file::open(path).map(|file| file.dimensions());
            Ok(size.ok().filter(|&(width, height)| has_shape_of_panorama(width, height)).map(|size| size.0))
        })
        .collect::<Result<Vec<Option<u32>>>>()?;
    let usable: Vec<usize> = (0..total).filter(|&i| widths[i].is_some()).collect();
    // The sides of all have one size, that of the smallest.
    let smallest = widths.iter().flatten().min();
    let (Some(&smallest), true) = (smallest, usable.len() >= 3) else {
        return Err(Error::new(
            ErrorKind::TooFewFrames,
            format!(
                "{} of {total} pictures in {} are panoramas, which are twice as wide as high; at least 3 are needed",
                usable.len(),
                folder.display()
            ),
        )
        .hint("give equirectangular pictures, as a 360° camera's program exports them; projection flat takes them as they are"));
    };
    if usable.len() < total {
        let first = (0..total).find(|&i| widths[i].is_none()).and_then(|i| images[i].file_name());
        let first = first.map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        warnings.push(Warning::new(
            "not_panoramas",
            format!(
                "{} of {total} pictures are not used, since they are no panoramas (the first: {first}); make a scene of their \
                 own from them",
                total - usable.len()
            ),
        ));
    }
    let most = panoramas(options.max_frames);
    let chosen: Vec<usize> = match usable.len() > most {
        true => {
            warnings.push(Warning::new(
                "images_thinned",
                format!(
                    "{most} of {} panoramas are used, evenly spread; raise the number of frames to use more",
                    usable.len()
                ),
            ));
            (0..most).map(|i| usable[i * (usable.len() - 1) / (most - 1)]).collect()
        }
        false => usable,
    };

    let (width, height) = working_size(smallest, options.max_resolution);
    let cutter = Cutter::new(width, height, side_size(width));
    let (mut stored, mut skipped) = (Vec::with_capacity(chosen.len()), Vec::new());
    // Each is large, and its sides are work for all threads.
    for batch in chosen.chunks(rayon::current_num_threads().div_ceil(3)) {
        control.check()?;
        let results: Vec<Result<Stored>> =
            batch.par_iter().map(|&i| store(&images[i], i as u64, &names[i], &cutter, output)).collect();
        for result in results {
            match result {
                Ok(panorama) => stored.push(panorama),
                Err(e) if e.kind() == ErrorKind::InvalidMedia => skipped.push(e),
                Err(e) => return Err(e),
            }
        }
        let done = stored.len() + skipped.len();
        control.progress(Stage::Frames, "reading images", done as f32 / chosen.len() as f32);
    }
    let first = skipped.first().map(|e| e.message().to_owned()).unwrap_or_default();
    if stored.len() < 3 {
        return Err(Error::new(
            ErrorKind::TooFewFrames,
            format!(
                "only {} of {} panoramas can be read; at least 3 are needed; the first fault: {first}",
                stored.len(),
                chosen.len()
            ),
        ));
    }
    if !skipped.is_empty() {
        warnings.push(Warning::new(
            "images_skipped",
            format!("{} of {} images were left out; the first: {first}", skipped.len(), chosen.len()),
        ));
    }
    let usual = median(&mut stored.iter().map(|s| s.detail).collect::<Vec<f32>>()).unwrap_or(1.0).max(1e-3);
    let (mut frames, mut thumbnails) =
        (Vec::with_capacity(6 * stored.len()), Vec::with_capacity(stored.len()));
    for panorama in stored {
        let index = panorama.sides.first().map_or(0, |side| side.index);
        let sharpness = panorama.detail / usual;
        frames.extend(panorama.sides.into_iter().map(|side| Frame { sharpness, ..side }));
        thumbnails.push((index, panorama.thumbnail));
    }
    let folder = output.to_path_buf();
    Ok((Frames { folder, source: FrameSource::Images, total: total as u64, frames, warnings }, thumbnails))
}

/// Reads one panorama and stores its sides.
fn store(path: &Path, index: u64, stem: &str, cutter: &Cutter, output: &Path) -> Result<Stored> {
    let bytes = picture::read_whole(path)?;
    let decoded = picture_file::decode(Cursor::new(&bytes), path)?;
    let panorama = fitted(decoded, cutter.panorama_size());
    let small = picture::shrink_rgb(panorama.clone(), SURVEY_SIDE);
    let luma = picture::luma(&small);
    let whole = Frame::new(format!("{stem}.jpg"), index, panorama.width(), panorama.height());
    Ok(Stored {
        sides: cutter.store(&panorama, &whole, output)?,
        detail: detail(luma.as_raw(), luma.width(), luma.height()),
        thumbnail: thumbnail(panorama),
    })
}

/// The picture in this size, which is no larger but for what its shape is off: it is shrunk, by area.
fn fitted(picture: DynamicImage, (width, height): (u32, u32)) -> RgbImage {
    let rgb = picture.into_rgb8();
    if rgb.dimensions() == (width, height) {
        return rgb;
    }
    if rgb.width() < width || rgb.height() < height {
        // Some rows short of half its width.
        return image::imageops::resize(&rgb, width, height, image::imageops::FilterType::CatmullRom);
    }
    let shrunk = picture::shrink(rgb.as_raw(), rgb.dimensions(), 3, (width, height));
    // The buffer has exactly this size; an empty picture would be seen at once.
    RgbImage::from_raw(width, height, shrunk).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::camera::panorama::Side;
    use crate::video::{Projection, cut_panorama, extract_frames};

    /// A JPEG of these pixels that says it is a panorama, as an attribute or as an element, or says nothing.
    fn photograph(picture: &RgbImage, says: Option<&str>) -> Vec<u8> {
        let jpeg = crate::jpeg::encode(picture, 95).unwrap();
        let Some(says) = says else { return jpeg };
        let xmp = format!("http://ns.adobe.com/xap/1.0/\0<x:xmpmeta><rdf:Description {says}</x:xmpmeta>");
        let mut bytes = jpeg[..2].to_vec();
        bytes.extend([0xff, 0xe1]);
        bytes.extend((xmp.len() as u16 + 2).to_be_bytes());
        bytes.extend(xmp.as_bytes());
        bytes.extend(&jpeg[2..]);
        bytes
    }

    const ATTRIBUTE: &str = "GPano:ProjectionType=\"equirectangular\" GPano:UsePanoramaViewer=\"True\"/>";
    const ELEMENT: &str = "><GPano:ProjectionType>equirectangular</GPano:ProjectionType>";

    fn picture(width: u32, height: u32, seed: u32) -> RgbImage {
        RgbImage::from_fn(width, height, |x, y| {
            let wave = |a: u32, b: u32| (127.0 + 100.0 * f64::from(a * x + b * y + 40 * seed).sin()) as u8;
            image::Rgb([(x / 2) as u8, (y * 2) as u8, wave(1, 2) / 4 + 90])
        })
    }

    #[test]
    fn a_picture_says_that_it_is_a_panorama() {
        let small = picture(64, 32, 0);
        for says in [ATTRIBUTE, ELEMENT] {
            assert!(head_says_so(&photograph(&small, Some(says))), "{says}");
        }
        let far = format!("GPano:ProjectionType=\"{}equirectangular\"/>", " ".repeat(80));
        for says in ["GPano:ProjectionType=\"cubemap\"/>", "dc:title=\"equirectangular\"/>", far.as_str()] {
            assert!(!head_says_so(&photograph(&small, Some(says))), "{says}");
        }
        assert!(!head_says_so(&photograph(&small, None)) && !head_says_so(b"") && !head_says_so(TAG));
    }

    #[test]
    fn photographs_that_are_panoramas_become_their_sides() {
        let (folder, output) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let write = |name: &str, bytes: &[u8]| std::fs::write(folder.path().join(name), bytes).unwrap();
        // One is larger, one some rows short.
        let pictures =
            [picture(400, 200, 1), picture(600, 300, 2), picture(400, 198, 3), picture(400, 200, 4)];
        for (k, (one, says)) in
            pictures.iter().zip([Some(ATTRIBUTE), Some(ELEMENT), Some(ATTRIBUTE), None]).enumerate()
        {
            write(&format!("room {k}.jpg"), &photograph(one, says));
        }
        write("flat.jpg", &photograph(&picture(300, 200, 5), None));
        let extract =
            |options: &FrameOptions| extract_frames(folder.path(), output.path(), options, &Control::new());
        let frames = extract(&FrameOptions::default()).unwrap();
        assert!(frames.is_panoramic() && !frames.is_sequential());
        assert_eq!((frames.chosen(), frames.frames.len(), frames.total), (4, 24, 5));
        assert_eq!(frames.warnings.len(), 1, "{:?}", frames.warnings);
        assert!(
            frames.warnings[0].code == "not_panoramas" && frames.warnings[0].message.contains("flat.jpg")
        );
        let names: Vec<&str> = frames.frames[..6].iter().map(|f| f.name.as_str()).collect();
        assert_eq!(names[0], "room 0_front.jpg");
        assert_eq!(names[5], "room 0_down.jpg");
        let size = side_size(400);
        for (frame, side) in frames.frames.iter().zip(Side::ALL.iter().cycle()) {
            assert_eq!((frame.side, frame.width, frame.height), (Some(*side), size, size));
        }
        // What is stored is what the panorama shows there, but for the coding of both.
        let sides = cut_panorama(&pictures[0], size).unwrap();
        let mean = |k: usize| {
            let stored = frames.rgb(k).unwrap();
            let off: u64 =
                stored.as_raw().iter().zip(sides[k].as_raw()).map(|(a, b)| u64::from(a.abs_diff(*b))).sum();
            off as f64 / stored.as_raw().len() as f64
        };
        assert!((0..6).all(|k| mean(k) < 4.0), "{:?}", (0..6).map(mean).collect::<Vec<_>>());
        // A third as many panoramas as frames; and who says that they are flat is believed.
        let few = extract(&FrameOptions { max_frames: 9, ..FrameOptions::default() }).unwrap();
        assert_eq!(few.chosen(), 3);
        assert!(few.warnings.iter().any(|w| w.code == "images_thinned"));
        let flat = FrameOptions { projection: Some(Projection::Flat), ..FrameOptions::default() };
        // Two of one size are too few.
        assert!(extract(&flat).unwrap_err().message().contains("one camera"));
    }

    #[test]
    fn panoramas_stay_by_themselves() {
        let (folder, output) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        for k in 0..4 {
            let bytes = photograph(&picture(400, 200, k), Some(ATTRIBUTE));
            std::fs::write(folder.path().join(format!("{k}.jpg")), bytes).unwrap();
        }
        let extract = || {
            let options = FrameOptions::default();
            extract_frames(folder.path(), output.path(), &options, &Control::new())
        };
        // A clip that cannot be used is nothing beside them.
        crate::video::tests::pan(folder.path(), "still.mp4", 30, 0, (160, 120));
        let frames = extract().unwrap();
        assert_eq!((frames.is_panoramic(), frames.chosen()), (true, 4));
        crate::video::tests::pan(folder.path(), "walk.mp4", 30, 6, (160, 120));
        let error = extract().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidMedia);
        assert!(error.message().contains("are 360° pictures") && error.hint_text().is_some(), "{error}");
    }

    #[test]
    fn what_are_no_panoramas_is_refused_if_it_is_to_be_taken_for_them() {
        let (folder, output) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        for k in 0..4 {
            let bytes = photograph(&picture(300, 200, k), None);
            std::fs::write(folder.path().join(format!("{k}.jpg")), bytes).unwrap();
        }
        let options =
            FrameOptions { projection: Some(Projection::Equirectangular), ..FrameOptions::default() };
        let error = extract_frames(folder.path(), output.path(), &options, &Control::new()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TooFewFrames);
        assert!(error.message().contains("0 of 4 pictures"), "{error}");
    }
}
