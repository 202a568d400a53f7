//! A quick scene of all that the pictures show, object and background. Its Gaussians end where surfaces end, which neither
//! sparse points nor small depth maps do: seen through the cameras, values given to Gaussians become values of pixels.

use nalgebra::Vector3;

use crate::control::Control;
use crate::error::Result;
use crate::raster::load_for_viewing;
use crate::raster::{self, DeviceChoice, Rasteriser};
use crate::splats::{SH_C0, Splats, sh_coefficients};
use crate::stage::Stage as PipelineStage;
use crate::train::{Dataset, TrainOptions, Trainer};

/// Long side of the pictures in training. Edges are found on the pictures afterwards, and what is trained on finer ones needs
/// more steps to become as even.
const SIDE: u32 = 400;
/// Steps for each picture, and least and most of them: enough for surfaces to be in their places; colours need not be finished.
const STEPS_PER_PICTURE: u32 = 6;
const STEPS: (u32, u32) = (300, 1000);
const GAUSSIANS: u32 = 50_000;
/// Less opaque Gaussians say nothing.
const LEAST_OPACITY: f32 = 0.1;

/// A trained scene.
pub(super) struct QuickScene {
    splats: Splats,
    /// By Gaussian: its centre in the world.
    pub(super) centres: Vec<Vector3<f64>>,
}

impl QuickScene {
    /// Trains on the pictures of `dataset`, made small, on the CPU: the same on every machine.
    ///
    /// # Errors
    /// Those of [`Trainer::new`] and [`Trainer::step`].
    pub(super) fn train(dataset: Dataset, control: &Control) -> Result<Self> {
        let pictures = dataset.views.len() as u32;
        let steps = pictures.saturating_mul(STEPS_PER_PICTURE).clamp(STEPS.0, STEPS.1);
        let options = TrainOptions {
            training_num_steps: steps,
            training_max_num_gaussians: GAUSSIANS,
            sh_degree: 1,
            max_resolution: Some(SIDE),
            ..TrainOptions::default()
        };
        // Its own reports are of a stage that is yet to come.
        let quiet = Control::new().with_cancel(control.cancel_token().clone());
        let mut trainer = Trainer::new(dataset, options, raster::open(&DeviceChoice::Cpu)?, &quiet)?;
        while !trainer.is_finished() {
            trainer.step(&quiet)?;
            let done = trainer.steps_done();
            if done.is_multiple_of(50) {
                let message = format!("step {done} of {steps}");
                control.progress_with(
                    PipelineStage::Sfm,
                    "a quick scene",
                    done as f32 / steps as f32,
                    message,
                );
            }
        }
        trainer.statistics()?;
        Ok(Self::of(trainer.splats()?))
    }

    /// Of any splats: those that are opaque enough to say something.
    pub(super) fn of(mut splats: Splats) -> Self {
        let least = (LEAST_OPACITY / (1.0 - LEAST_OPACITY)).ln();
        let opacities = splats.opacities.clone();
        splats.retain(|i| opacities[i] > least);
        let centres = splats.means.iter().map(|m| Vector3::from(m.map(f64::from))).collect();
        Self { splats, centres }
    }

    /// The colour (about 0 to 1) of a Gaussian as it is seen from everywhere.
    pub(super) fn colour(&self, gaussian: usize) -> [f32; 3] {
        let sh = &self.splats.sh[gaussian * sh_coefficients(self.splats.sh_degree) * 3..];
        std::array::from_fn(|c| 0.5 + SH_C0 * sh[c])
    }

    /// The scene with three values (0 to 1) in place of each Gaussian's colour, ready to be seen.
    pub(super) fn painted(&self, values: impl Fn(usize) -> [f32; 3]) -> Result<Painted> {
        let sh = (0..self.splats.len()).flat_map(|i| values(i).map(|v| (v - 0.5) / SH_C0)).collect();
        let splats = Splats { sh_degree: 0, sh, ..self.splats.clone() };
        let mut rasteriser = raster::open(&DeviceChoice::Cpu)?;
        load_for_viewing(rasteriser.as_mut(), &splats)?;
        Ok(Painted { rasteriser })
    }
}

/// A scene that shows values in place of colours.
pub(super) struct Painted {
    rasteriser: Box<dyn Rasteriser>,
}

impl Painted {
    /// By pixel of `view`, row by row: the three values, each weighed by how much its Gaussian contributes, and the sum of
    /// these weights (0 to 1).
    pub(super) fn seen_by(&mut self, view: &raster::View) -> Result<Vec<[f32; 4]>> {
        Ok(self.rasteriser.render(view, 0, [0.0; 3])?.rgba)
    }
}
