//! The stages before the training, one by one: key frames and camera poses.

use std::path::PathBuf;

use libreconstruct::background::MaskOptions;
use libreconstruct::camera::SparseModel as CoreModel;
use libreconstruct::pipeline::{PosedModels, PosesOptions, poses_in_folder, poses_in_memory};
use libreconstruct::sfm::{SfmOptions, Verdict};
use libreconstruct::video::{self, FrameOptions, Frames};
use libreconstruct::{Error, ErrorKind};
use pyo3::prelude::*;

use crate::error::{OrRaise, from_json, to_json};
use crate::model::SparseModel;
use crate::work::{long, quick};

/// Chooses key frames of a video or a folder of pictures, into the folder `output`; their description, as JSON.
#[pyfunction]
pub(crate) fn extract_frames(
    py: Python<'_>,
    input: PathBuf,
    output: PathBuf,
    options: &str,
    listener: Option<&Bound<'_, PyAny>>,
) -> PyResult<String> {
    let options: FrameOptions = from_json(options)?;
    to_json(&long(py, listener, |control| video::extract_frames(&input, &output, &options, control))?)
}

/// The description of the frames in a folder, as JSON.
#[pyfunction]
pub(crate) fn load_frames(py: Python<'_>, folder: PathBuf) -> PyResult<String> {
    to_json(&quick(py, || Frames::load(&folder))?)
}

/// How to make masks: the file of the network, the folder of masks, the place of the object, how much floor to keep.
type Masks = (Option<PathBuf>, Option<PathBuf>, Option<String>, Option<f64>);

/// Finds the camera poses of a video, a folder of pictures, or a folder of frames: the model, those of other places that it
/// shows, and the report as JSON. With `output`, all that the stage makes is in that folder too; without it nothing is left.
/// `masks`, if the background is to be removed; `add_to`, the folder of an earlier result whose model the frames are added to.
#[pyfunction]
pub(crate) fn sfm(
    py: Python<'_>,
    input: PathBuf,
    output: Option<PathBuf>,
    frame_options: &str,
    options: &str,
    masks: Option<Masks>,
    add_to: Option<PathBuf>,
    listener: Option<&Bound<'_, PyAny>>,
) -> PyResult<(SparseModel, Vec<SparseModel>, String)> {
    let frame_options: FrameOptions = from_json(frame_options)?;
    let sfm: SfmOptions = from_json(options)?;
    let background = match masks {
        Some((model, masks, point, keep_floor)) => {
            let object_at = point.map(|p| p.parse()).transpose().or_raise()?;
            Some(MaskOptions { model, masks, object_at, keep_floor })
        }
        None => None,
    };
    let options = PosesOptions { sfm, background, add_to };
    let PosedModels { model, components, report } = long(py, listener, |control| match &output {
        Some(folder) => poses_in_folder(&input, folder, &frame_options, &options, control),
        None if options.background.is_some() => {
            Err(Error::argument("masks are files: they need a folder for the results")
                .hint("name one as output"))
        }
        None => {
            let temporary = |e| Error::new(ErrorKind::Io, format!("no place for temporary files: {e}"));
            let folder = tempfile::tempdir().map_err(temporary)?;
            poses_in_memory(&input, folder.path(), &frame_options, &options, control)
        }
    })?;
    let with_doubts = |model: CoreModel, verdict: &Option<Verdict>| {
        SparseModel::new(model, verdict.as_ref().map(Verdict::image_doubts).unwrap_or_default())
    };
    let others = components.into_iter().zip(&report.components);
    let others = others.map(|(model, figures)| with_doubts(model, &figures.verdict)).collect();
    Ok((with_doubts(model, &report.verdict), others, to_json(&report)?))
}
