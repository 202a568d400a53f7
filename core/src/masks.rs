//! Masks as values and as files: 8-bit grey PNG, 255 = object, 0 = background, of the size of their picture; for training
//! its shape is enough.

use std::io::{Cursor, Write};
use std::path::{Path, PathBuf};

use image::{DynamicImage, GrayImage, ImageFormat};

use crate::error::{Error, ErrorKind, Result};
use crate::files::write_atomically;
use crate::picture_file;

/// A picture of which less is object does not show it.
pub const LEAST_COVERAGE: f64 = 0.0005;

/// Whether a pixel with that value in a mask is object: more of it than not, for 128 is the first value above the half.
pub fn is_object(value: u8) -> bool {
    value > 127
}

/// Whether a point of the scene is on the object, which `on_object` of the `seen` views that observed it show on theirs: at
/// least half of them. Only what most show on the background is beside it.
pub(crate) fn is_object_point(on_object: usize, seen: usize) -> bool {
    seen > 0 && 2 * on_object >= seen
}

/// The file of the mask of the picture `image` in `folder`: the picture's name with the ending `.png`.
pub fn mask_path(folder: &Path, image: &str) -> PathBuf {
    folder.join(image).with_extension("png")
}

/// The folder beside the folder `masks` that says where something else hides the object, `masks_hidden` for `masks`: for pictures
/// in which that is so a mask of the same name, 255 = hidden. Masks are 0 there, as they are on the background, but nobody knows
/// what the object looks like there.
pub fn hidden_folder(masks: &Path) -> PathBuf {
    let mut name = masks.file_name().unwrap_or_default().to_owned();
    name.push("_hidden");
    masks.with_file_name(name)
}

/// Looks for the mask of the picture `image`: `NAME.png`, `NAME.ENDING.png` (COLMAP's way), or for frames of a video
/// `NNNNNN.png` with the frame's number.
pub fn find_mask(folder: &Path, image: &str) -> Option<PathBuf> {
    let number = Path::new(image).file_stem().and_then(|s| s.to_str()).and_then(|s| s.strip_prefix("frame_"));
    let appended = folder.join(format!("{image}.png"));
    let numbered = number.map(|n| folder.join(format!("{n}.png")));
    [Some(mask_path(folder, image)), Some(appended), numbered].into_iter().flatten().find(|p| p.is_file())
}

/// [`find_mask`] for all of `images`.
///
/// # Errors
/// [`ErrorKind::NotFound`] if any has none.
pub fn find_masks<'a>(folder: &Path, images: impl IntoIterator<Item = &'a str>) -> Result<Vec<PathBuf>> {
    let (mut found, mut missing) = (Vec::new(), Vec::new());
    for image in images {
        match find_mask(folder, image) {
            Some(path) => found.push(path),
            None => missing.push(image),
        }
    }
    let Some(first) = missing.first() else { return Ok(found) };
    let (count, all) = (missing.len(), missing.len() + found.len());
    Err(Error::new(
        ErrorKind::NotFound,
        format!("{count} of {all} pictures have no mask in {}, for example {first}", folder.display()),
    )
    .hint("name the masks as the pictures, with .png: white where the object is"))
}

/// Reads a mask: the alpha of a picture that has one, else its brightness.
///
/// # Errors
/// [`ErrorKind::NotFound`], [`ErrorKind::Io`], [`ErrorKind::InvalidMedia`] if it is no picture.
pub fn read_mask(path: &Path) -> Result<GrayImage> {
    let picture = picture_file::read(path).map_err(|e| match e.kind() {
        ErrorKind::InvalidMedia => e.hint("masks are grey PNG pictures, white where the object is"),
        _ => e,
    })?;
    if picture.color().has_alpha() {
        let rgba = picture.into_rgba8();
        if rgba.pixels().any(|p| p[3] != 255) {
            let (width, height) = rgba.dimensions();
            let alpha = rgba.pixels().map(|p| p[3]).collect();
            return GrayImage::from_raw(width, height, alpha)
                .ok_or_else(|| Error::new(ErrorKind::Internal, "a mask does not have its size"));
        }
        return Ok(DynamicImage::from(rgba).into_luma8());
    }
    Ok(picture.into_luma8())
}

/// Writes a mask as PNG, under a temporary name first; the folder must be there.
///
/// # Errors
/// [`ErrorKind::DiskFull`], [`ErrorKind::Io`].
pub fn write_mask(path: &Path, mask: &GrayImage) -> Result<()> {
    let mut bytes = Cursor::new(Vec::new());
    mask.write_to(&mut bytes, ImageFormat::Png).map_err(|e| {
        Error::new(ErrorKind::Internal, format!("cannot encode {}: {e}", path.display())).caused_by(e)
    })?;
    write_atomically(path, |out| out.write_all(bytes.get_ref()))
}

/// The part of the pixels that are object.
pub fn coverage(mask: &GrayImage) -> f64 {
    let object = mask.as_raw().iter().filter(|v| is_object(**v)).count();
    object as f64 / mask.as_raw().len().max(1) as f64
}

/// Intersection over union of the object in two masks of one size; 1 where both are empty.
pub fn intersection_over_union(a: &GrayImage, b: &GrayImage) -> f64 {
    let (mut both, mut either) = (0usize, 0usize);
    for (a, b) in a.as_raw().iter().zip(b.as_raw()) {
        let (a, b) = (is_object(*a), is_object(*b));
        both += usize::from(a && b);
        either += usize::from(a || b);
    }
    if either == 0 { 1.0 } else { both as f64 / either as f64 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mask_comes_back_as_it_was_written() {
        let folder = tempfile::tempdir().unwrap();
        let mask = GrayImage::from_fn(7, 5, |x, y| image::Luma([(x * 30 + y) as u8]));
        let path = mask_path(folder.path(), "frame_000012.jpg");
        write_mask(&path, &mask).unwrap();
        assert_eq!(path.file_name().unwrap(), "frame_000012.png");
        assert_eq!(read_mask(&path).unwrap(), mask);
        assert_eq!(find_mask(folder.path(), "frame_000012.jpg").unwrap(), path);
        assert_eq!(find_mask(folder.path(), "frame_000013.jpg"), None);
        assert_eq!(hidden_folder(Path::new("scene/masks/")), Path::new("scene/masks_hidden"));
    }

    #[test]
    fn masks_are_found_under_the_names_that_are_usual() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["a.jpg.png", "000007.png"] {
            write_mask(&folder.path().join(name), &GrayImage::new(2, 2)).unwrap();
        }
        assert!(find_mask(folder.path(), "a.jpg").unwrap().ends_with("a.jpg.png"));
        assert!(find_mask(folder.path(), "frame_000007.jpg").unwrap().ends_with("000007.png"));
    }

    #[test]
    fn alpha_is_a_mask_and_what_is_no_picture_says_so() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.png");
        image::RgbaImage::from_fn(3, 1, |x, _| image::Rgba([9, 9, 9, x as u8 * 100])).save(&path).unwrap();
        assert_eq!(read_mask(&path).unwrap().as_raw(), &[0, 100, 200]);
        std::fs::write(&path, "text").unwrap();
        let error = read_mask(&path).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidMedia);
        assert!(error.message().contains("a.png"), "{error}");
    }

    #[test]
    fn overlap_is_counted() {
        let mask = |object: &[u8]| GrayImage::from_raw(4, 1, object.to_vec()).unwrap();
        let (a, b) = (mask(&[255, 255, 0, 0]), mask(&[0, 255, 255, 0]));
        assert!((intersection_over_union(&a, &b) - 1.0 / 3.0).abs() < 1e-12);
        assert_eq!(intersection_over_union(&mask(&[0; 4]), &mask(&[100; 4])), 1.0);
        assert_eq!(coverage(&a), 0.5);
    }

    #[test]
    fn half_a_byte_is_background_and_half_the_views_are_enough() {
        assert!(!is_object(127) && is_object(128));
        assert!(is_object_point(2, 4) && is_object_point(2, 3) && !is_object_point(1, 3));
        assert!(!is_object_point(0, 0) && !is_object_point(0, 1));
    }
}
