//! The whole pipeline in one call.

use std::path::PathBuf;

use libreconstruct::pipeline::{self, ReconstructionOptions};
use libreconstruct::{Error, raster};
use pyo3::prelude::*;

use crate::error::{by_name, from_json, raise, to_json};
use crate::work::{long, quick};

/// The options of a preset (`preview`, `standard`, `high`), as JSON.
#[pyfunction]
pub(crate) fn preset(quality: &str) -> PyResult<String> {
    let unknown =
        || raise(Error::argument(format!("quality is {quality:?}: preview, standard and high are known")));
    to_json(&ReconstructionOptions::with_quality(by_name(quality).ok_or_else(unknown)?))
}

/// Makes a scene of a video or a folder of pictures in the folder `output`; the report, as JSON.
#[pyfunction]
pub(crate) fn reconstruct(
    py: Python<'_>,
    input: PathBuf,
    output: PathBuf,
    options: &str,
    listener: Option<&Bound<'_, PyAny>>,
) -> PyResult<String> {
    let options: ReconstructionOptions = from_json(options)?;
    let report = long(py, listener, |control| pipeline::reconstruct(&input, &output, &options, control))?;
    to_json(&report)
}

/// The graphics adapters of this machine, as JSON.
#[pyfunction]
pub(crate) fn devices(py: Python<'_>) -> PyResult<String> {
    to_json(&quick(py, || Ok(raster::adapters()))?)
}
