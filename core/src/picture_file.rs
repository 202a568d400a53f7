//! Pictures from files that nobody has looked at: how large one is, is known and checked before room is made for it.

use std::fs::File;
use std::io::{BufRead, BufReader, Seek};
use std::path::Path;

use image::{DynamicImage, ImageDecoder, ImageFormat, ImageReader};

use crate::error::{Error, ErrorKind, Result};

/// Most pixels of a picture that is read. With the most bytes that a pixel takes, 8, that is 1 GB.
const MAX_PIXELS: u64 = 128_000_000;
/// Longest side of a picture that is read.
const MAX_SIDE: u32 = 32_768;

/// A picture whose header has been read.
pub(crate) struct PictureFile<'a, D> {
    path: &'a Path,
    /// How it is stored.
    pub(crate) format: ImageFormat,
    decoder: D,
}

impl<'a> PictureFile<'a, ()> {
    /// Reads the header of a picture; `path` is only for messages.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidMedia`] if it is no picture in a known format, or too large; [`ErrorKind::Io`].
    pub(crate) fn new<R: BufRead + Seek + 'a>(
        source: R,
        path: &'a Path,
    ) -> Result<PictureFile<'a, impl ImageDecoder + 'a>> {
        let mut reader =
            ImageReader::new(source).with_guessed_format().map_err(|e| Error::io("read", path, e))?;
        let format = reader.format().ok_or_else(|| {
            let message = format!("{} is no picture in a known format", path.display());
            Error::new(ErrorKind::InvalidMedia, message).hint("JPEG, PNG and WebP are known")
        })?;
        let mut limits = image::Limits::default();
        limits.max_image_width = Some(MAX_SIDE);
        limits.max_image_height = Some(MAX_SIDE);
        limits.max_alloc = Some(MAX_PIXELS * 8);
        reader.limits(limits);
        let decoder = reader.into_decoder().map_err(|e| unreadable(path, e))?;
        let (width, height) = decoder.dimensions();
        check_size(width, height)
            .map_err(|why| Error::new(ErrorKind::InvalidMedia, format!("{} {why}", path.display())))?;
        Ok(PictureFile { path, format, decoder })
    }
}

impl<D: ImageDecoder> PictureFile<'_, D> {
    /// Width and height in pixels, as stored.
    pub(crate) fn dimensions(&self) -> (u32, u32) {
        self.decoder.dimensions()
    }

    /// The picture itself.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidMedia`] if it is damaged.
    pub(crate) fn decode(self) -> Result<DynamicImage> {
        DynamicImage::from_decoder(self.decoder).map_err(|e| unreadable(self.path, e))
    }
}

/// Whether pictures of this size, in pixels, are read; if not, the end of the sentence that says so.
pub(crate) fn check_size(width: u32, height: u32) -> Result<(), String> {
    if width.max(height) <= MAX_SIDE && u64::from(width) * u64::from(height) <= MAX_PIXELS {
        return Ok(());
    }
    let most = MAX_PIXELS / 1_000_000;
    Err(format!("is {width}x{height}; at most {most} megapixels and {MAX_SIDE} pixels a side are read"))
}

/// Opens the picture at `path` without decoding it.
///
/// # Errors
/// [`ErrorKind::InvalidMedia`] if it is no picture or too large; [`ErrorKind::NotFound`], [`ErrorKind::Io`].
pub(crate) fn open(path: &Path) -> Result<PictureFile<'_, impl ImageDecoder + '_>> {
    let file = File::open(path).map_err(|e| Error::io("open", path, e))?;
    PictureFile::new(BufReader::new(file), path)
}

/// Decodes a picture; `path` is only for messages.
///
/// # Errors
/// Those of [`PictureFile::new`]; [`ErrorKind::InvalidMedia`] if it is damaged.
pub(crate) fn decode(source: impl BufRead + Seek, path: &Path) -> Result<DynamicImage> {
    PictureFile::new(source, path)?.decode()
}

/// Reads the picture at `path`.
///
/// # Errors
/// Those of [`open`]; [`ErrorKind::InvalidMedia`] if it is damaged.
pub(crate) fn read(path: &Path) -> Result<DynamicImage> {
    open(path)?.decode()
}

fn unreadable(path: &Path, source: image::ImageError) -> Error {
    Error::picture(path, source, |source| {
        let message = format!("{} cannot be read as a picture: {source}", path.display());
        Error::new(ErrorKind::InvalidMedia, message).caused_by(source)
    })
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use super::*;

    /// A PNG picture that says that it has this size, and holds nothing.
    fn png_of(width: u32, height: u32) -> Vec<u8> {
        let mut fields = b"IHDR".to_vec();
        fields.extend(width.to_be_bytes());
        fields.extend(height.to_be_bytes());
        fields.extend([8, 2, 0, 0, 0]);
        let mut crc = flate2::Crc::new();
        crc.update(&fields);
        let mut bytes = b"\x89PNG\r\n\x1a\n\0\0\0\x0d".to_vec();
        bytes.extend(fields);
        bytes.extend(crc.sum().to_be_bytes());
        bytes.extend(b"\0\0\0\x04IDAT\0\0\0\0");
        bytes
    }

    #[test]
    fn a_picture_that_claims_to_be_huge_is_refused_before_it_is_decoded() {
        for (width, height) in [(30_000, 30_000), (40_000, 1), (1, 40_000), (u32::MAX >> 1, u32::MAX >> 1)] {
            let bytes = png_of(width, height);
            let error = decode(Cursor::new(&bytes), Path::new("huge.png")).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidMedia);
            assert!(error.message().contains("huge.png"), "{error}");
        }
        let bytes = png_of(30_000, 30_000);
        let error = decode(Cursor::new(&bytes), Path::new("huge.png")).unwrap_err();
        assert!(error.message().contains("30000x30000"), "{error}");
    }

    #[test]
    fn what_is_no_picture_says_so() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.png");
        for bytes in [&b"text"[..], b"", &png_of(4, 4)] {
            std::fs::write(&path, bytes).unwrap();
            let error = read(&path).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidMedia);
            assert!(error.message().contains("a.png"), "{error}");
        }
        assert_eq!(read(&folder.path().join("b.png")).unwrap_err().kind(), ErrorKind::NotFound);
        image::RgbImage::new(3, 2).save(&path).unwrap();
        assert_eq!(open(&path).unwrap().dimensions(), (3, 2));
        assert_eq!(read(&path).unwrap().to_rgb8().dimensions(), (3, 2));
    }
}
