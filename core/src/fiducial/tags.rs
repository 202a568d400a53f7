//! Tags in the frames of a capture, and the file that keeps them.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::detector::Detector;
use super::family::FAMILY;
use super::found::Found;
use crate::control::Control;
use crate::error::{Error, ErrorKind, Result};
use crate::files::write_atomically;
use crate::stage::Stage;
use crate::video::{Frames, at_full_size};

/// A tag whose bits are nearer to the threshold than this (mean, of 255) is noise, or too blurred to be measured.
const MIN_MARGIN: f32 = 10.0;
/// Corners nearer to the border of the picture than this (pixels of the picture that was searched) may be cut off.
const BORDER: f64 = 3.0;

/// A tag in a frame.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Tag {
    /// Its number in the family, 0 to 2114.
    pub id: u32,
    /// Wrong bits that were corrected, 0 or 1.
    pub hamming: u32,
    /// How clearly its bits could be read: mean distance of their brightness from the threshold, of 255.
    pub decision_margin: f32,
    /// Shortest edge of the inner white square in pixels of the picture that was searched, which may be larger than the
    /// frame.
    pub edge: f64,
    /// Corners of the inner white square in pixels of the frame, the centre of the top-left pixel at (0.5, 0.5): bottom
    /// left, bottom right, top right, top left of the upright tag.
    pub corners: [[f64; 2]; 4],
}

/// The tags in one frame.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FrameTags {
    /// File name of the frame.
    pub name: String,
    /// Tags by id, then by place.
    pub tags: Vec<Tag>,
}

/// The tags in all frames; `tags.json`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Tags {
    /// The family that was looked for.
    pub family: String,
    /// One entry a frame, in the order of the frames.
    pub frames: Vec<FrameTags>,
}

impl Tags {
    /// Frames in which each id was seen.
    pub fn frames_by_id(&self) -> BTreeMap<u32, usize> {
        let mut counts = BTreeMap::new();
        for frame in &self.frames {
            let mut ids: Vec<u32> = frame.tags.iter().map(|t| t.id).collect();
            ids.dedup(); // they are in order
            ids.into_iter().for_each(|id| *counts.entry(id).or_default() += 1);
        }
        counts
    }

    /// Number of sightings in all frames.
    pub fn count(&self) -> usize {
        self.frames.iter().map(|f| f.tags.len()).sum()
    }

    /// Writes them as JSON: complete or not at all.
    ///
    /// # Errors
    /// [`ErrorKind::DiskFull`], [`ErrorKind::Io`].
    pub fn write(&self, path: &Path) -> Result<()> {
        let mut text = serde_json::to_vec_pretty(self)
            .map_err(|e| Error::new(ErrorKind::Internal, "tags cannot be written as JSON").caused_by(e))?;
        text.push(b'\n');
        write_atomically(path, |file| file.write_all(&text))
    }
}

/// Looks for tags in `frames`, in the full resolution of `source` (the video or folder that they were made from), or in
/// the frames as they are stored. Corners are in pixels of the stored frames.
///
/// # Errors
/// A source or frame that cannot be read; [`ErrorKind::Cancelled`].
pub fn detect_tags(frames: &Frames, source: Option<&Path>, control: &Control) -> Result<Tags> {
    let control = &control.with_remaining_time();
    let found = at_full_size(frames, source, control, Detector::new, |detector, i, mut picture| {
        let frame = &frames.frames[i];
        let size = picture.dimensions();
        let found = detector.detect(&mut picture);
        FrameTags { name: frame.name.clone(), tags: accepted(&found, size, (frame.width, frame.height)) }
    })
    .map_err(|e| e.at(Stage::Sfm))?;
    Ok(Tags { family: FAMILY.to_owned(), frames: found })
}

/// Looks for tags in one picture; corners in its pixels.
///
/// # Errors
/// [`ErrorKind::Internal`] without memory.
pub fn detect_tags_in(mut picture: image::GrayImage) -> Result<Vec<Tag>> {
    let size = picture.dimensions();
    Ok(accepted(&Detector::new()?.detect(&mut picture), size, size))
}

/// What can be trusted of `found` in a picture of the given size, in pixels of a frame of the size `stored`.
fn accepted(found: &[Found], size: (u32, u32), stored: (u32, u32)) -> Vec<Tag> {
    let (width, height) = (f64::from(size.0), f64::from(size.1));
    // Pixel centres are at the half on both sides, so scaling needs no shift.
    let scale = [f64::from(stored.0) / width, f64::from(stored.1) / height];
    let inside = |c: &[f64; 2]| {
        (BORDER..=width - BORDER).contains(&c[0]) && (BORDER..=height - BORDER).contains(&c[1])
    };
    found
        .iter()
        .filter(|f| f.margin >= MIN_MARGIN && f.corners.iter().all(inside))
        .map(|f| Tag {
            id: f.id,
            hamming: f.hamming,
            decision_margin: f.margin,
            edge: shortest_edge(&f.corners),
            corners: f.corners.map(|c| [c[0] * scale[0], c[1] * scale[1]]),
        })
        .collect()
}

fn shortest_edge(corners: &[[f64; 2]; 4]) -> f64 {
    let edge = |k: usize| {
        let (a, b) = (corners[k], corners[(k + 1) % 4]);
        (a[0] - b[0]).hypot(a[1] - b[1])
    };
    (0..4).map(edge).fold(f64::INFINITY, f64::min)
}

#[cfg(test)]
#[cfg(feature = "tags")]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::control::tests::{assert_seconds_were_told, told_slowly};
    use crate::video::Frame;

    fn frames(folder: &Path, sizes: &[(&str, u32, u32)]) -> Frames {
        let frame = |&(name, width, height): &(&str, u32, u32)| Frame::new(name, 0, width, height);
        Frames::of_images(folder, sizes.iter().map(frame).collect())
    }

    /// A page with a tag of `module` pixels a module whose inner square begins at (`x`, `y`).
    fn page(id: u32, module: u32, x: u32, y: u32) -> image::GrayImage {
        let pattern = crate::fiducial::modules(id).unwrap();
        image::GrayImage::from_fn(640, 480, |px, py| {
            let cell = |p: u32, from: u32| (p + 2 * module).checked_sub(from).map(|d| (d / module) as usize);
            let white = match (cell(px, x), cell(py, y)) {
                (Some(cx), Some(cy)) => pattern.get(cy).and_then(|row| row.get(cx)).copied().unwrap_or(true),
                _ => true,
            };
            image::Luma([if white { 225 } else { 25 }])
        })
    }

    #[test]
    fn corners_found_in_the_source_are_those_of_the_smaller_frame() {
        let folder = tempfile::tempdir().unwrap();
        let source = folder.path().join("source");
        std::fs::create_dir(&source).unwrap();
        for k in 0..3 {
            page(9, 12, 200 + 8 * k, 160).save(source.join(format!("{k}.png"))).unwrap();
        }
        let options = crate::video::FrameOptions { max_resolution: 320, ..Default::default() };
        let stored = folder.path().join("frames");
        let control = Control::new();
        let small = crate::video::extract_frames(&source, &stored, &options, &control).unwrap();
        let tags = detect_tags(&small, Some(&source), &control).unwrap();
        assert_eq!(tags.frames_by_id(), [(9, 3)].into());
        for (k, frame) in tags.frames.iter().enumerate() {
            let tag = &frame.tags[0];
            assert!((tag.edge - 60.0).abs() < 0.3, "{tag:?}");
            let (left, top) = (0.5 * (200.0 + 8.0 * k as f64), 80.0);
            let expected = [[left, top + 30.0], [left + 30.0, top + 30.0], [left + 30.0, top], [left, top]];
            for (a, b) in tag.corners.as_flattened().iter().zip(expected.as_flattened()) {
                assert!((a - b).abs() < 0.1, "{:?} instead of {expected:?}", tag.corners);
            }
        }
        // In the stored frames themselves it is half as large, and in the same place.
        let again = detect_tags(&small, None, &control).unwrap();
        let (a, b) = (&again.frames[1].tags[0], &tags.frames[1].tags[0]);
        assert!(
            (a.edge - 30.0).abs() < 0.5 && (a.corners[0][0] - b.corners[0][0]).abs() < 0.3,
            "{a:?} {b:?}"
        );
        // One thread looks at two frames at a time.
        let (control, told) = told_slowly(Duration::ZERO);
        let pool = rayon::ThreadPoolBuilder::new().num_threads(1).build().unwrap();
        assert_eq!(pool.install(|| detect_tags(&small, None, &control)).unwrap(), again);
        assert_seconds_were_told(&told);
        let path = folder.path().join("tags.json");
        tags.write(&path).unwrap();
        assert_eq!(serde_json::from_slice::<Tags>(&std::fs::read(&path).unwrap()).unwrap(), tags);
    }

    #[test]
    fn a_tag_at_the_border_of_the_picture_is_left_out() {
        assert_eq!(detect_tags_in(page(3, 10, 30, 200)).unwrap().len(), 1);
        // Its inner square begins at the second pixel: the detector may see it, but perhaps not all of it.
        assert_eq!(detect_tags_in(page(3, 10, 2, 200)).unwrap(), []);
    }

    #[test]
    fn the_tags_of_real_captures_are_found_and_no_others() {
        for (name, list, folder, count) in [
            ("desk-tags", "tags_41h12_gt.json", "images_41h12", 734),
            ("dtu-scan24", "tags_gt.json", "images_tags", 47),
        ] {
            let Some(capture) = crate::prerequisites::capture(name) else { continue };
            let truth: serde_json::Value =
                serde_json::from_slice(&std::fs::read(capture.join(list)).unwrap()).unwrap();
            let listed = truth["frames"].as_array().unwrap();
            let mut pictures = Vec::new();
            for frame in listed {
                let name = frame["file"].as_str().unwrap();
                let (width, height) = image::image_dimensions(capture.join(folder).join(name)).unwrap();
                pictures.push((name, width, height));
            }
            let tags = detect_tags(&frames(&capture.join(folder), &pictures), None, &Control::new()).unwrap();
            let (mut all, mut found) = (0, 0);
            for (frame, seen) in listed.iter().zip(&tags.frames) {
                let here = frame["tags"].as_array().unwrap();
                // What the reference detector, AprilTag 3 in its own program, finds too.
                let wanted = |t: &&serde_json::Value| {
                    t["fully_visible"] != false && t["detected_by_apriltag3"] != false
                };
                for tag in here.iter().filter(wanted) {
                    all += 1;
                    found += usize::from(seen.tags.iter().any(|t| tag["id"] == t.id));
                }
                for tag in &seen.tags {
                    assert!(here.iter().any(|t| t["id"] == tag.id), "{}: {tag:?}", seen.name);
                }
            }
            println!("{name}: {found} of {all}");
            assert!(all == count && 100 * found >= 99 * all, "{name}: {found} of {all}");
        }
        let Some(capture) = crate::prerequisites::capture("tags-41h12") else { return };
        let ids = |path: &str| -> Vec<u32> {
            let picture = image::open(capture.join(path)).unwrap().into_luma8();
            detect_tags_in(picture).unwrap().iter().map(|t| t.id).collect()
        };
        assert_eq!(ids("photos/strandbraid_frame1_41h12_id123.jpg"), [123]);
        assert_eq!(ids("renders/tag41_12_640x480.png"), [0, 1, 2, 3, 4]);
        assert_eq!(ids("renders/tag36_11_640x480.png"), [] as [u32; 0]);
    }
}
