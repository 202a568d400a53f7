//! Training, step by step.

use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};

use libreconstruct::background::ObjectOutline;
use libreconstruct::raster::{self, DeviceChoice};
use libreconstruct::train::{Dataset, TrainOptions, Trainer as CoreTrainer};
use libreconstruct::{Error, Result};
use pyo3::prelude::*;

use crate::array::Array;
use crate::error::{OrRaise, from_json, to_json};
use crate::model::SparseModel;
use crate::splats::{Splats, picture};
use crate::view::{ViewTuple, view, view_tuple};
use crate::work::{long, quick};

/// Step, number of steps of the whole run (which changes where it is to end in time), loss, mean absolute error, SSIM, number of
/// Gaussians.
type Figures = (u32, u32, f64, f64, f64, usize);

/// A training run. `Trainer` in Python is made of this.
#[pyclass(frozen, module = "libreconstruct._native")]
pub(crate) struct Trainer {
    trainer: Mutex<CoreTrainer>,
    device: String,
    /// What was asked for.
    choice: DeviceChoice,
    /// Where the object is, if only that is trained.
    outline: Option<ObjectOutline>,
}

impl Trainer {
    fn lock(&self) -> MutexGuard<'_, CoreTrainer> {
        self.trainer.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[pymethods]
impl Trainer {
    /// Prepares a run: pinhole cameras and their pictures, options of the core as JSON. With the folder `masks`, only the object
    /// is trained. With `checkpoint`, the run that was saved there is continued if it is the same.
    #[new]
    fn new(
        py: Python<'_>,
        model: &SparseModel,
        images: PathBuf,
        masks: Option<PathBuf>,
        options: &str,
        device: &str,
        checkpoint: Option<PathBuf>,
        listener: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Self> {
        let options: TrainOptions = from_json(options)?;
        let choice: DeviceChoice = device.parse().or_raise()?;
        let model = model.inner();
        let (trainer, outline) = long(py, listener, |control| {
            let mut dataset = Dataset::from_model(model, &images, options.test_every)?;
            if let Some(masks) = &masks {
                dataset = dataset.with_masks(masks, control)?;
            }
            // There is none without masks.
            let outline = ObjectOutline::of(&dataset, control)?;
            let rasteriser = raster::open(&choice)?;
            let trainer = match &checkpoint {
                Some(path) => CoreTrainer::open(dataset, options, rasteriser, path, control)?,
                None => CoreTrainer::new(dataset, options, rasteriser, control)?,
            };
            Ok((trainer, outline))
        })?;
        let device = trainer.device();
        Ok(Self { trainer: Mutex::new(trainer), device, choice, outline })
    }

    /// What it runs on, for people.
    #[getter]
    fn device(&self) -> &str {
        &self.device
    }

    /// Step, loss and so on now.
    fn figures(&self, py: Python<'_>) -> PyResult<Figures> {
        quick(py, || figures(&mut self.lock()))
    }

    /// Makes at most `steps` steps, fewer at the end of the run; the figures after the last.
    fn advance(&self, py: Python<'_>, steps: u32) -> PyResult<Figures> {
        long(py, None, |control| {
            let mut trainer = self.lock();
            for _ in 0..steps {
                control.check()?;
                trainer.step(control)?;
            }
            figures(&mut trainer)
        })
    }

    /// (code, message) of what the user should know of the run until now.
    fn warnings(&self, py: Python<'_>) -> PyResult<Vec<(String, String)>> {
        quick(py, || {
            let trainer = self.lock();
            let warnings = trainer.warnings().iter();
            Ok(warnings.map(|warning| (warning.code.to_string(), warning.message.clone())).collect())
        })
    }

    /// Writes a checkpoint.
    fn save(&self, py: Python<'_>, path: PathBuf) -> PyResult<()> {
        quick(py, || self.lock().save(&path))
    }

    /// Scores of the scene as it is now on the held-out views, as JSON.
    fn evaluate(&self, py: Python<'_>) -> PyResult<String> {
        let evaluation = long(py, None, |control| {
            let mut trainer = self.lock();
            let Some(outline) = &self.outline else { return trainer.evaluate(control) };
            let (splats, _) = outline.cut(trainer.splats()?);
            // Beside what is trained, which goes on as it was.
            let mut rasteriser = raster::open(&self.choice)?;
            trainer.evaluate_scene_on(&splats, rasteriser.as_mut(), control)
        })?;
        to_json(&evaluation)
    }

    /// The scene as it is now; of an object, what is inside of its outline.
    fn splats(&self, py: Python<'_>) -> PyResult<Splats> {
        quick(py, || {
            let splats = self.lock().splats()?;
            Ok(Splats::new(match &self.outline {
                Some(outline) => outline.cut(splats).0,
                None => splats,
            }))
        })
    }

    /// (name, whether it is held out) of all views.
    fn views(&self, py: Python<'_>) -> PyResult<Vec<(String, bool)>> {
        quick(py, || {
            let trainer = self.lock();
            let dataset = trainer.dataset();
            let held_out = |i: usize| dataset.test.binary_search(&i).is_ok();
            Ok(dataset.views.iter().enumerate().map(|(i, v)| (v.name.clone(), held_out(i))).collect())
        })
    }

    /// The camera of view `index`, at most `max_side` pixels along its longer side.
    fn view(&self, py: Python<'_>, index: usize, max_side: Option<u32>) -> PyResult<ViewTuple> {
        quick(py, || {
            let trainer = self.lock();
            let dataset = trainer.dataset();
            if index >= dataset.views.len() {
                let message = format!("there is no view {index}: there are {}", dataset.views.len());
                return Err(Error::argument(message));
            }
            Ok(view_tuple(&dataset.view_at(index, max_side)))
        })
    }

    /// The scene as it is now through a camera, (height, width, 4).
    fn render(&self, py: Python<'_>, camera: ViewTuple, as_float: bool) -> PyResult<Array> {
        let rendering = quick(py, || self.lock().render(&view(camera)?))?;
        Ok(picture(py, rendering, as_float))
    }
}

fn figures(trainer: &mut CoreTrainer) -> Result<Figures> {
    let (step, total) = (trainer.steps_done(), trainer.options().training_num_steps);
    if !trainer.has_compared() {
        return Ok((step, total, f64::NAN, f64::NAN, f64::NAN, trainer.len()));
    }
    let statistics = trainer.statistics()?;
    Ok((step, total, statistics.loss, statistics.l1, statistics.ssim, trainer.len()))
}
