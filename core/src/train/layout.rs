//! What follows from the options and the pictures: how large the pictures are when, how many Gaussians there may be, and what
//! work that makes.

use super::dataset::Dataset;
use super::options::TrainOptions;
use super::schedule::Schedule;
use super::workload::Workload;
use crate::raster::Rasteriser;

/// Pictures that would take more than this in the rasteriser are trained on at a lower resolution.
pub(crate) const TARGET_BYTES_MAX: u64 = 8 << 30;

/// What follows from the options and the pictures.
pub(super) struct Layout {
    /// Long side of the pictures at most.
    pub(super) max_side: Option<u32>,
    pub(super) schedule: Schedule,
    /// Gaussians at most.
    pub(super) cap: usize,
}

impl Layout {
    pub(super) fn new(dataset: &Dataset, options: &TrainOptions) -> Self {
        let mut max_side = options.max_resolution;
        while dataset.target_bytes(max_side) > TARGET_BYTES_MAX && dataset.longest_side(max_side) > 64 {
            max_side = Some(dataset.longest_side(max_side) * 9 / 10);
        }
        let schedule = Schedule::new(options, dataset.longest_side(max_side), dataset.scene_scale());
        let useful =
            dataset.train_pixels(max_side) as f64 * f64::from(options.tuning.max_gaussians_per_pixel);
        let cap = (options.training_max_num_gaussians as usize).min((useful as usize).max(1000));
        Self { max_side, schedule, cap }
    }

    /// The long side of the pictures of a stage; the last stage has the caller's limit.
    pub(super) fn stage_side(&self, stage: usize) -> Option<u32> {
        let stages = self.schedule.stages();
        if stage + 1 == stages.len() { self.max_side } else { Some(stages[stage].long_side) }
    }

    /// The work of a run of `steps` that begins with `initial` Gaussians.
    pub(super) fn workload(
        &self,
        dataset: &Dataset,
        steps: u32,
        initial: usize,
        rasteriser: &dyn Rasteriser,
    ) -> Workload {
        let pixels =
            |stage| dataset.train_pixels(self.stage_side(stage)) as f64 / dataset.train.len().max(1) as f64;
        let pixels: Vec<f64> = (0..self.schedule.stages().len()).map(pixels).collect();
        Workload::new(&self.schedule, steps, (initial, self.cap), &pixels, |pixels, splats| {
            rasteriser.step_cost(pixels, splats)
        })
    }
}
