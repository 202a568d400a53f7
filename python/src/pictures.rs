//! PNG for notebooks.

use std::io::Cursor;

use image::codecs::png::PngEncoder;
use image::{ExtendedColorType, ImageEncoder, ImageFormat};
use libreconstruct::{Error, ErrorKind};
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::PyBytes;

use crate::work::quick;

/// 8-bit pixels (3 or 4 channels, row by row) as PNG.
#[pyfunction]
pub(crate) fn encode_png<'py>(
    py: Python<'py>,
    pixels: PyBackedBytes,
    width: u32,
    height: u32,
    channels: u32,
) -> PyResult<Bound<'py, PyBytes>> {
    let png = quick(py, || {
        let colour = match channels {
            3 => ExtendedColorType::Rgb8,
            4 => ExtendedColorType::Rgba8,
            _ => return Err(Error::argument(format!("{channels} channels: 3 and 4 are possible"))),
        };
        let expected = u64::from(width) * u64::from(height) * u64::from(channels);
        if pixels.len() as u64 != expected || expected == 0 {
            return Err(Error::argument(format!(
                "{} bytes for {width} x {height} pixels of {channels} channels",
                pixels.len()
            )));
        }
        let mut png = Vec::new();
        PngEncoder::new(&mut png).write_image(&pixels, width, height, colour).map_err(cannot_encode)?;
        Ok(png)
    })?;
    Ok(PyBytes::new(py, &png))
}

/// A JPEG picture as PNG.
#[pyfunction]
pub(crate) fn jpeg_to_png(py: Python<'_>, jpeg: PyBackedBytes) -> PyResult<Bound<'_, PyBytes>> {
    let png = quick(py, || {
        let picture = image::load_from_memory_with_format(&jpeg, ImageFormat::Jpeg)
            .map_err(|e| Error::new(ErrorKind::InvalidMedia, format!("not a JPEG picture: {e}")))?;
        let mut png = Cursor::new(Vec::new());
        picture.write_to(&mut png, ImageFormat::Png).map_err(cannot_encode)?;
        Ok(png.into_inner())
    })?;
    Ok(PyBytes::new(py, &png))
}

fn cannot_encode(error: image::ImageError) -> Error {
    Error::new(ErrorKind::Internal, format!("cannot encode a picture: {error}")).caused_by(error)
}
