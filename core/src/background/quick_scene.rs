//! A quickly trained scene of all that the pictures show, object and background. Its Gaussians end where surfaces end,
//! as neither sparse points nor small depth maps do. A value that is given to each Gaussian becomes a value of each
//! pixel by rendering.

use nalgebra::Vector3;

use crate::control::Control;
use crate::error::Result;
use crate::raster::load_for_viewing;
use crate::raster::{self, DeviceChoice, Rasteriser};
use crate::splats::{SH_C0, Splats, sh_coefficients};
use crate::stage::Stage;
use crate::train::{Dataset, TrainOptions, Trainer, Tuning};

/// Long side (pixels) of the pictures in training. Masks are fitted to edges afterwards, and larger pictures need more
/// steps to make surfaces as even. Chosen by hand.
const SIDE: u32 = 400;
/// Number of training steps for each picture. Enough for surfaces to be in their places; colours need not be finished.
/// Chosen by hand.
const STEPS_PER_PICTURE: u32 = 6;
/// Least and most number of steps. Chosen by hand.
const STEPS: (u32, u32) = (300, 1000);
/// Number of Gaussians at most. Chosen by hand.
const GAUSSIANS: u32 = 50_000;
/// Gaussians of less opacity (0 to 1) are left out: they show no surface. Chosen by hand.
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
            // Nor were they calibrated with scenes that are cleaned.
            clean: false,
            tuning: Tuning {
                // The limits of what a mask is were calibrated with scenes that stay near their first Gaussians, and whose
                // new ones lie where others do.
                short_run: 0.0,
                short_run_means: 0.0,
                short_run_sh_rest: 0.0,
                split: 0.0,
                ..Tuning::default()
            },
            ..TrainOptions::default()
        };
        // The trainer would report progress of the training stage, which is yet to come.
        let quiet = Control::new().with_cancel(control.cancel_token().clone());
        let mut trainer = Trainer::new(dataset, options, raster::open(&DeviceChoice::Cpu)?, &quiet)?;
        while !trainer.is_finished() {
            trainer.step(&quiet)?;
            let done = trainer.steps_done();
            if done.is_multiple_of(50) {
                let message = format!("step {done} of {steps}");
                control.progress_with(Stage::Sfm, "a quick scene", done as f32 / steps as f32, message);
            }
        }
        trainer.statistics()?;
        Ok(Self::of(trainer.splats()?))
    }

    /// From any splats: those that are opaque enough to show a surface.
    pub(super) fn of(mut splats: Splats) -> Self {
        let least = (LEAST_OPACITY / (1.0 - LEAST_OPACITY)).ln();
        let opacities = splats.opacities.clone();
        splats.retain(|i| opacities[i] > least);
        let centres = splats.means.iter().map(|m| Vector3::from(m.as_dvec3().to_array())).collect();
        Self { splats, centres }
    }

    /// The colour (about 0 to 1) of a Gaussian without the part that depends on the direction of view.
    pub(super) fn colour(&self, gaussian: usize) -> [f32; 3] {
        let sh = &self.splats.sh[gaussian * sh_coefficients(self.splats.sh_degree) * 3..];
        std::array::from_fn(|c| 0.5 + SH_C0 * sh[c])
    }

    /// The scene with three values (0 to 1) in place of each Gaussian's colour, ready to be rendered.
    pub(super) fn painted(&self, values: impl Fn(usize) -> [f32; 3]) -> Result<Painted> {
        let sh = (0..self.splats.len()).flat_map(|i| values(i).map(|v| (v - 0.5) / SH_C0)).collect();
        let splats = Splats { sh_degree: 0, sh, ..self.splats.clone() };
        let mut rasteriser = raster::open(&DeviceChoice::Cpu)?;
        load_for_viewing(rasteriser.as_mut(), &splats)?;
        Ok(Painted { rasteriser })
    }
}

/// A scene that shows where its surfaces are, up to a distance from a place.
pub(super) struct Places {
    painted: Painted,
    around: Vector3<f64>,
    reach: f64,
}

impl Places {
    /// With its position painted on every Gaussian, as far as `reach` (world units) from `around`, a rendering shows where
    /// the surface is that a pixel shows.
    pub(super) fn new(scene: &QuickScene, around: Vector3<f64>, reach: f64) -> Result<Self> {
        let painted = scene.painted(|i| {
            let offset = (scene.centres[i] - around) / reach;
            std::array::from_fn(|k| (0.5 + 0.5 * offset[k]).clamp(0.0, 1.0) as f32)
        })?;
        Ok(Self { painted, around, reach })
    }

    /// By pixel of `view`: the place of the surface, where Gaussians cover more than `opaque` (0 to 1) of the pixel.
    pub(super) fn seen_by(&mut self, view: &raster::View, opaque: f64) -> Result<Vec<Option<Vector3<f64>>>> {
        let place = |pixel: [f32; 4]| {
            let [a, b, c, weight] = pixel.map(f64::from);
            let offset = 2.0 * Vector3::new(a, b, c) / weight - Vector3::repeat(1.0);
            (weight > opaque).then(|| self.around + offset * self.reach)
        };
        Ok(self.painted.seen_by(view)?.into_iter().map(place).collect())
    }
}

/// A scene that shows values in place of colours.
pub(super) struct Painted {
    rasteriser: Box<dyn Rasteriser>,
}

impl Painted {
    /// By pixel of `view`, row by row: the sums of the three values of all Gaussians, weighted by how much each
    /// contributes to the pixel, and the sum of these weights (0 to 1).
    pub(super) fn seen_by(&mut self, view: &raster::View) -> Result<Vec<[f32; 4]>> {
        Ok(self.rasteriser.render(view, 0, [0.0; 3])?.rgba)
    }
}
