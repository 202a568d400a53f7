//! When what happens: learning rates, resolution stages, colour degrees, growth, as functions of the step.
//!
//! Everything is spread over the length of the run, so that 1,000 and 25,000 steps are both whole trainings. Steps
//! count from 1.

use super::options::{TrainOptions, Tuning};
use crate::raster::StepOptions;

/// From which step on which resolution is trained.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ResolutionStage {
    /// The first step of the stage.
    pub(crate) first_step: u32,
    /// Largest long side of the pictures in pixels.
    pub(crate) long_side: u32,
}

/// The plan of a run.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Schedule {
    steps: u32,
    sh_degree: u32,
    seed: u64,
    scene_scale: f64,
    tuning: Tuning,
    stages: Vec<ResolutionStage>,
    refine_every: u32,
}

/// Decay of Adam's moments.
const BETA1: f32 = 0.9;
const BETA2: f32 = 0.999;

/// The number of steps for which the rates of [`Tuning`] are.
const RATES_STEPS: u32 = 30_000;
/// Runs of fewer steps take the rates of a run of so many: larger ones were not tried.
const SHORTEST_RATES_STEPS: u32 = 1_000;

/// Fractions of the run after which Gaussians in free space are sought: as soon as all are there, and again once those that were
/// moved have settled.
const CLEANINGS: [f32; 3] = [0.5, 0.65, 0.8];

/// Pictures are not made smaller than this for the coarse stages: less carries no structure.
const COARSEST_SIDE: u32 = 200;

impl Schedule {
    /// The plan for pictures with a long side of `long_side` pixels and a scene of the size `scene_scale`.
    pub(crate) fn new(options: &TrainOptions, long_side: u32, scene_scale: f64) -> Self {
        let steps = options.training_num_steps;
        let mut stages = Vec::new();
        if options.coarse_to_fine {
            for (divisor, begins) in [(4, 0.0), (2, 0.05)] {
                let side = long_side.div_ceil(divisor);
                if side >= COARSEST_SIDE {
                    stages.push((begins, side));
                }
            }
        }
        stages.push((if stages.is_empty() { 0.0 } else { 0.15 }, long_side));
        stages[0].0 = 0.0;
        let mut stages: Vec<ResolutionStage> = stages
            .into_iter()
            .map(|(begins, side)| ResolutionStage { first_step: at(begins, steps) + 1, long_side: side })
            .collect();
        // In a very short run several stages begin at once: the finest of them is meant.
        stages.reverse();
        stages.dedup_by_key(|s| s.first_step);
        stages.reverse();
        Self {
            steps,
            sh_degree: options.sh_degree,
            seed: options.seed,
            scene_scale,
            tuning: options.tuning.clone(),
            stages,
            refine_every: (steps / 20).clamp(25, 100),
        }
    }

    /// The resolution stages, first to last.
    pub(crate) fn stages(&self) -> &[ResolutionStage] {
        &self.stages
    }

    /// The stage to which `step` belongs.
    pub(crate) fn stage(&self, step: u32) -> usize {
        self.stages.partition_point(|s| s.first_step <= step).saturating_sub(1)
    }

    /// Degree of the spherical harmonics in `step`: one more every 1,000 steps, or every tenth of a shorter run.
    pub(crate) fn sh_degree(&self, step: u32) -> u32 {
        let interval = (self.steps / 10).clamp(1, 1000);
        ((step - 1) / interval).min(self.sh_degree)
    }

    /// Whether density control runs after `step`.
    pub(crate) fn refines_after(&self, step: u32) -> bool {
        step.is_multiple_of(self.refine_every) && step <= at(self.tuning.refine_end, self.steps)
    }

    /// Whether the round of density control after `step` is one that takes Gaussians out of free space: the first at or after
    /// each of [`CLEANINGS`].
    pub(crate) fn cleans_after(&self, step: u32) -> bool {
        let due = |fraction: &f32| {
            let due = at(*fraction, self.steps);
            step >= due && step - due < self.refine_every
        };
        self.refines_after(step) && CLEANINGS.iter().any(due)
    }

    /// How many Gaussians there should be after `step`, if there were `initial` at the start and `cap` are allowed:
    /// grows exponentially.
    pub(crate) fn target_count(&self, step: u32, initial: usize, cap: usize) -> usize {
        let (start, end) = (at(self.tuning.growth_start, self.steps), at(self.tuning.growth_end, self.steps));
        if initial >= cap || step <= start {
            return initial.min(cap);
        }
        if step >= end {
            return cap;
        }
        let fraction = f64::from(step - start) / f64::from(end - start);
        let ratio = cap as f64 / initial.max(1) as f64;
        ((initial as f64 * ratio.powf(fraction)) as usize).min(cap)
    }

    /// Rates, weights and noise of `step`, in a run over `views` training pictures.
    pub(crate) fn step_options(&self, step: u32, views: u32) -> StepOptions {
        let t = &self.tuning;
        let progress = f64::from(step - 1) / f64::from(self.steps.max(2) - 1);
        let short_run = |exponent: f32| {
            let steps = self.steps.clamp(SHORTEST_RATES_STEPS, RATES_STEPS);
            (f64::from(RATES_STEPS) / f64::from(steps)).powf(f64::from(exponent))
        };
        let means = f64::from(t.lr_means)
            * self.scene_scale
            * short_run(t.short_run_means)
            * f64::from(t.lr_means_final).powf(progress);
        let late = ((progress - f64::from(t.lr_decay_start)) / (1.0 - f64::from(t.lr_decay_start)).max(1e-9))
            .max(0.0);
        let fall = f64::from(t.lr_final).powf(late) as f32;
        let rate = fall * short_run(t.short_run) as f32;
        // An exposure moves once in an epoch, in which every view comes once: its moments are as young as the number of
        // epochs, while the optimiser corrects their bias for the number of steps.
        let epoch = (step - 1) / views.max(1) + 1;
        let exposure_fall = fall * (bias_correction(epoch) / bias_correction(step)) as f32;
        StepOptions {
            step,
            lr_means: means as f32,
            lr_scales: t.lr_scales * rate,
            lr_rotations: t.lr_rotations * rate,
            lr_opacities: t.lr_opacities * rate,
            lr_sh_dc: t.lr_sh_dc * rate,
            lr_sh_rest: t.lr_sh_rest * fall * short_run(t.short_run_sh_rest) as f32,
            lr_exposure: t.lr_exposure * exposure_fall,
            beta1: BETA1,
            beta2: BETA2,
            epsilon: 1e-15,
            opacity_regularisation: t.opacity_regularisation,
            scale_regularisation: (f64::from(t.scale_regularisation) / self.scene_scale) as f32,
            // noise = factor * lr_means * Σ * normal: with Σ in squares of the scene scale the factor is free of units.
            noise: (f64::from(t.noise) / (self.scene_scale * self.scene_scale)) as f32,
            seed: self.seed,
        }
    }
}

/// What Adam multiplies the ratio of first moment and root of the second with after `updates` (Kingma & Ba 2015, algorithm 1).
fn bias_correction(updates: u32) -> f64 {
    let left = |beta: f32| 1.0 - f64::from(beta).powf(f64::from(updates));
    left(BETA2).sqrt() / left(BETA1)
}

/// The step at a fraction of the run.
fn at(fraction: f32, steps: u32) -> u32 {
    (f64::from(fraction) * f64::from(steps)).round() as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    fn schedule(steps: u32, side: u32) -> Schedule {
        Schedule::new(&TrainOptions { training_num_steps: steps, ..TrainOptions::default() }, side, 2.0)
    }

    #[test]
    fn every_run_ends_at_full_resolution_with_all_colours() {
        for steps in [1, 2, 7, 100, 1000, 25_000, 200_000] {
            for side in [16, 480, 1600] {
                let schedule = schedule(steps, side);
                let stages = schedule.stages();
                assert_eq!(stages[0].first_step, 1);
                assert!(stages.windows(2).all(|s| s[0].first_step < s[1].first_step));
                assert_eq!(
                    stages[schedule.stage(steps)].long_side,
                    side,
                    "{steps} steps at {side}: {stages:?}"
                );
                if steps >= 100 {
                    assert_eq!((schedule.sh_degree(1), schedule.sh_degree(steps)), (0, 3));
                }
            }
        }
        let sides: Vec<u32> = schedule(1000, 1600).stages().iter().map(|s| s.long_side).collect();
        assert_eq!(sides, [400, 800, 1600]);
    }

    #[test]
    fn growth_starts_at_the_initial_count_and_reaches_the_cap() {
        let s = schedule(1000, 480);
        let counts: Vec<usize> = (1..=1000).map(|t| s.target_count(t, 10_000, 50_000)).collect();
        assert_eq!((counts[0], counts[999]), (10_000, 50_000));
        assert!(counts.windows(2).all(|w| w[0] <= w[1]));
        assert_eq!(s.target_count(500, 60_000, 50_000), 50_000);
    }

    #[test]
    fn free_space_is_cleaned_three_times_by_rounds_of_density_control() {
        let cleanings =
            |steps: u32| (1..=steps).filter(|&s| schedule(steps, 480).cleans_after(s)).collect::<Vec<_>>();
        assert_eq!(cleanings(1000), [500, 650, 800]);
        assert_eq!(cleanings(25_000), [12_500, 16_300, 20_000]);
        assert_eq!(cleanings(20), Vec::<u32>::new());
    }

    #[test]
    fn rates_are_in_world_units_and_fall() {
        let (small, large) = (schedule(1000, 480), {
            let options = TrainOptions { training_num_steps: 1000, ..TrainOptions::default() };
            Schedule::new(&options, 480, 20.0)
        });
        let ratio = large.step_options(10, 50).lr_means / small.step_options(10, 50).lr_means;
        assert!((ratio - 10.0).abs() < 1e-4);
        // The noise of a scene ten times as large is ten times as large: its covariances are a hundred times larger.
        let noise = |s: &Schedule, scale: f32| {
            s.step_options(10, 50).noise * s.step_options(10, 50).lr_means * scale * scale
        };
        assert!((noise(&large, 20.0) / noise(&small, 2.0) - 10.0).abs() < 1e-3);
        let (first, last) = (small.step_options(1, 50), small.step_options(1000, 50));
        let tuning = Tuning::default();
        assert!((last.lr_means / first.lr_means - tuning.lr_means_final).abs() < 1e-5);
        assert!((last.lr_scales / first.lr_scales - tuning.lr_final).abs() < 1e-4);
    }

    #[test]
    fn short_runs_have_larger_rates() {
        let rates = |steps| {
            let StepOptions { lr_means, lr_scales, lr_sh_rest, .. } =
                schedule(steps, 480).step_options(1, 50);
            [lr_means, lr_scales, lr_sh_rest]
        };
        let Tuning { lr_means, lr_scales, lr_sh_rest, .. } = Tuning::default();
        // The scene of the tests has the scale 2.
        let full = [2.0 * lr_means, lr_scales, lr_sh_rest];
        assert_eq!(rates(30_000), full);
        assert_eq!(rates(200_000), full);
        for (steps, ratio) in [(3_000, 10f32), (1_000, 30.0), (10, 30.0)] {
            for ((rate, full), exponent) in rates(steps).into_iter().zip(full).zip([0.2, 0.4, 0.8]) {
                assert!((rate / full / ratio.powf(exponent) - 1.0).abs() < 1e-5, "{steps}: {rate} of {full}");
            }
        }
        // Nobody's exposure moves by them: its rate is that of the pictures.
        let exposure = |steps| schedule(steps, 480).step_options(1, 50).lr_exposure;
        assert_eq!(exposure(1_000), exposure(30_000));
    }

    #[test]
    fn exposures_of_steady_gradient_move_by_their_rate() {
        // Adam as the rasteriser does it: one exposure of 50, moved once an epoch by the same gradient.
        let schedule = schedule(1000, 480);
        let (mut first, mut second, gradient) = (0.0f64, 0.0f64, 0.3f64);
        for epoch in 0..10u32 {
            let step = 50 * epoch + 17;
            let o = schedule.step_options(step, 50);
            let (b1, b2) = (f64::from(o.beta1), f64::from(o.beta2));
            first = b1 * first + (1.0 - b1) * gradient;
            second = b2 * second + (1.0 - b2) * gradient * gradient;
            let correction = |b: f64| 1.0 / (1.0 - b.powf(f64::from(step)));
            let moved = f64::from(o.lr_exposure) * correction(b1) * first / (second * correction(b2)).sqrt();
            assert!(
                (moved / f64::from(Tuning::default().lr_exposure) - 1.0).abs() < 1e-3,
                "{epoch}: {moved}"
            );
        }
    }
}
