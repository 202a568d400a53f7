//! Pictures on their way to the tag detector: files (JPEG, PNG, WebP), and after the word `grey` two bytes of width and height
//! and the pixels themselves, row by row, repeated if there are too few. Corners that are found are in the picture.

use image::{GrayImage, ImageReader};
use libreconstruct::ErrorKind;
use libreconstruct::fiducial::{TAG_COUNT, detect_tags_in};
use libreconstruct::fuzzing::read_picture;

/// Larger pictures take too long to be tried often.
pub const MAX_PIXELS: u64 = 256 * 256;
/// What stands before pixels.
pub const PIXELS: &[u8] = b"grey";

pub fn run(bytes: &[u8]) {
    if let Some(picture) = pixels(bytes).or_else(|| decoded(bytes)) {
        let (width, height) = picture.dimensions();
        for tag in detect_tags_in(picture).expect("there is memory for a detector") {
            assert!(tag.id < TAG_COUNT && tag.hamming <= 1 && tag.edge.is_finite(), "{tag:?}");
            let inside = |[x, y]: &[f64; 2]| {
                (0.0..=f64::from(width)).contains(x) && (0.0..=f64::from(height)).contains(y)
            };
            assert!(tag.corners.iter().all(inside), "{tag:?} in {width}x{height}");
        }
    }
}

fn pixels(bytes: &[u8]) -> Option<GrayImage> {
    let &[width, height, ref pixels @ ..] = bytes.strip_prefix(PIXELS)? else { return None };
    let size = usize::from(width) * usize::from(height);
    if pixels.is_empty() || size == 0 {
        return None;
    }
    let pixels = pixels.iter().copied().cycle().take(size).collect();
    GrayImage::from_raw(width.into(), height.into(), pixels)
}

fn decoded(bytes: &[u8]) -> Option<GrayImage> {
    let header = ImageReader::new(std::io::Cursor::new(bytes)).with_guessed_format().ok()?;
    let small = |(width, height)| u64::from(width) * u64::from(height) <= MAX_PIXELS;
    if header.format().is_some() && !header.into_dimensions().is_ok_and(small) {
        return None;
    }
    match read_picture(bytes) {
        Ok(picture) => Some(picture.into_luma8()),
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::InvalidMedia, "{error}");
            None
        }
    }
}
