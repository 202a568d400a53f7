//! A training that is to end in time: how many steps, Gaussians and pixels fit into it.
//!
//! What a step takes on this device is measured on the sparse points before the training begins. Then steps, Gaussians and pixels are
//! all cut down to the same share of what was asked for, until the work fits: that is the line on which the presets of a
//! reconstruction lie (a preview has a twelfth of the steps of a standard one, a twentieth of the Gaussians, an eleventh of
//! the pixels). Steps take longer where splats have come to cover one another than they do on the sparse points, by how much
//! nobody can tell before: on the way the number of steps follows what they take.

use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::dataset::Dataset;
use super::initialise;
use super::layout::Layout;
use super::options::TrainOptions;
use crate::control::Control;
use crate::error::Result;
use crate::raster::{LossOptions, Rasteriser, Target, TrainState};

/// Less of each is not worth training, unless less was asked for.
const LEAST_STEPS: u32 = 500;
const LEAST_GAUSSIANS: u32 = 5_000;
const LEAST_SIDE: u32 = 240;
/// The share of the time that is planned by what steps on the sparse points take.
const PLANNED: f64 = 0.4;
/// The share of it that steps and reports may take: the last checkpoint comes after them.
const USED: f64 = 0.97;
/// The plan is looked at after every such part of its steps.
const LOOKS: u32 = 20;
/// Views on which steps are timed, evenly among those that are trained on,
const TIMED_VIEWS: usize = 5;
/// for so long,
const TIMED_FOR: Duration = Duration::from_millis(1000);
/// but with so many steps at least.
const TIMED_STEPS: u32 = 5;

/// What a run was cut down to. A checkpoint keeps it: on another day the same machine has another speed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Plan {
    pub(crate) steps: u32,
    pub(crate) gaussians: u32,
    /// Long side of the pictures in pixels at most.
    pub(crate) side: Option<u32>,
}

impl Plan {
    /// All of what is asked for.
    fn of(options: &TrainOptions) -> Self {
        Self {
            steps: options.training_num_steps,
            gaussians: options.training_max_num_gaussians,
            side: options.max_resolution,
        }
    }

    /// The options with this in them.
    pub(crate) fn applied(&self, options: &TrainOptions) -> TrainOptions {
        TrainOptions {
            training_num_steps: self.steps,
            training_max_num_gaussians: self.gaussians,
            max_resolution: self.side,
            ..options.clone()
        }
    }

    /// A share of it, 0 to 1; `full` is the long side of the largest picture.
    fn cut(&self, share: f64, full: u32) -> Self {
        // Rounded down: within what the whole numbers were.
        let part = |whole: u32, least: u32| ((f64::from(whole) * share) as u32).max(whole.min(least));
        let side = self.side.unwrap_or(full).min(full);
        Self {
            steps: part(self.steps, LEAST_STEPS),
            gaussians: part(self.gaussians, LEAST_GAUSSIANS),
            side: Some(((f64::from(side) * share.sqrt()) as u32).max(side.min(LEAST_SIDE))),
        }
    }

    /// This plan with fewer steps, `share` of them.
    pub(crate) fn shortened(self, share: f64) -> Self {
        Self { steps: ((f64::from(self.steps) * share) as u32).max(self.steps.min(LEAST_STEPS)), ..self }
    }
}

/// How fast a device is with a dataset: units of [`Rasteriser::step_cost`] in a second.
pub(super) type Speed = f64;

/// What of `options` fits into `seconds` on this rasteriser, and how fast that is. Its scene is replaced.
///
/// # Errors
/// What the rasteriser reports; `Cancelled`.
pub(super) fn plan(
    dataset: &Dataset,
    options: &TrainOptions,
    rasteriser: &mut dyn Rasteriser,
    seconds: f64,
    control: &Control,
) -> Result<(Plan, Speed)> {
    let speed = measure(dataset, options, rasteriser, control)?;
    let full = dataset.longest_side(None);
    let asked = Plan::of(options);
    let takes = |plan: &Plan| {
        let layout = Layout::new(dataset, &plan.applied(options));
        let initial = (layout.cap as f64 * f64::from(options.tuning.initial_fraction)) as usize;
        layout.workload(dataset, plan.steps, initial, rasteriser).work() / speed
    };
    Ok((largest(&asked, full, PLANNED * seconds, takes), speed))
}

/// A moment of a run.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Mark {
    pub(super) step: u32,
    /// Seconds that the run took until then.
    pub(super) seconds: f64,
}

/// What a run was to do.
pub(super) struct Asked<'a> {
    pub(super) options: &'a TrainOptions,
    /// Number of Gaussians with which it began.
    pub(super) initial_count: usize,
    /// The time that it has.
    pub(super) seconds: f64,
}

/// Whether `plan` is to be looked at after `step`, if it was last at `mark`. Only steps on pictures of full size tell what the
/// others will take.
pub(super) fn is_due(plan: Plan, mark: Option<Mark>, step: u32, layout: &Layout) -> bool {
    let full = layout.schedule.stages().len() - 1;
    layout.schedule.stage(step) == full
        && mark.is_none_or(|mark| step >= mark.step + (plan.steps / LOOKS).max(1))
}

/// How many steps of `plan` there should be in all, if those between the two marks took what they did, so that the run ends in its
/// time. It is never fewer than are done or worth training, or more than were asked for; and pictures do not become
/// smaller again.
pub(super) fn steps_in_time(
    dataset: &Dataset,
    asked: &Asked,
    plan: Plan,
    (before, now): (Mark, Mark),
    rasteriser: &dyn Rasteriser,
) -> u32 {
    let ahead = |steps: u32, from: u32, to: u32| {
        let layout = Layout::new(dataset, &Plan { steps, ..plan }.applied(asked.options));
        let workload = layout.workload(dataset, steps, asked.initial_count, rasteriser);
        workload.work() * (workload.fraction(to) - workload.fraction(from))
    };
    let speed = ahead(plan.steps, before.step, now.step) / (now.seconds - before.seconds).max(1e-9);
    let left = USED * asked.seconds - now.seconds;
    let full = |steps: u32| {
        let layout = Layout::new(dataset, &Plan { steps, ..plan }.applied(asked.options));
        layout.schedule.stage(now.step) + 1 == layout.schedule.stages().len()
    };
    let least = now.step.max(asked.options.training_num_steps.min(LEAST_STEPS));
    let fits = |steps: u32| full(steps) && ahead(steps, now.step, steps) <= left * speed;
    // The least is made whether it fits or not; then the largest that fits.
    let (mut low, mut high) = (least, asked.options.training_num_steps.max(least) + 1);
    while high - low > 1 {
        let middle = low.midpoint(high);
        if fits(middle) { low = middle } else { high = middle }
    }
    low
}

/// The largest share of `asked` that `takes` at most so many seconds, or the least that there is.
fn largest(asked: &Plan, full: u32, seconds: f64, takes: impl Fn(&Plan) -> f64) -> Plan {
    if takes(asked) <= seconds {
        return *asked;
    }
    let (mut low, mut high) = (0.0, 1.0);
    for _ in 0..20 {
        let share = f64::midpoint(low, high);
        if takes(&asked.cut(share, full)) <= seconds { low = share } else { high = share }
    }
    asked.cut(low, full)
}

/// Makes some steps on the sparse points and grey pictures of full size.
fn measure(
    dataset: &Dataset,
    options: &TrainOptions,
    rasteriser: &mut dyn Rasteriser,
    control: &Control,
) -> Result<Speed> {
    let sparse = TrainOptions { dense_initialisation: false, ..options.clone() };
    let layout = Layout::new(dataset, &sparse);
    let splats = initialise::splats(dataset, &sparse, layout.cap, control)?;
    rasteriser.load(&TrainState { splats, ..TrainState::default() })?;
    let count = dataset.train.len();
    let views: Vec<_> = (0..count.min(TIMED_VIEWS))
        .map(|k| dataset.view_at(dataset.train[k * count / count.min(TIMED_VIEWS)], layout.max_side))
        .collect();
    let grey = |view: &crate::raster::View| {
        let pixels = view.width as usize * view.height as usize;
        let (width, height) = (view.width, view.height);
        Target { width, height, rgb: vec![128; 3 * pixels], alpha: None, hides: false }
    };
    rasteriser.set_targets(views.iter().map(grey).collect())?;
    let loss = LossOptions { ssim_weight: options.tuning.ssim_weight, alpha_weight: 0.0, exposure: None };
    let mut step = 0;
    let mut once = |rasteriser: &mut dyn Rasteriser| -> Result<f64> {
        control.check()?;
        let target = step as usize % views.len();
        step += 1;
        let view = &views[target];
        rasteriser.project(view, options.sh_degree)?;
        rasteriser.intersect()?;
        rasteriser.sort()?;
        rasteriser.rasterise([0.0; 3])?;
        rasteriser.loss(target as u32, &loss)?;
        rasteriser.rasterise_backward()?;
        rasteriser.update(&layout.schedule.step_options(step, count as u32))?;
        let pixels = f64::from(view.width) * f64::from(view.height);
        Ok(rasteriser.step_cost(pixels, rasteriser.len() as f64))
    };
    // The first ones compile programs and fill buffers. Reading the figures waits for the device.
    for _ in 0..views.len() {
        once(rasteriser)?;
    }
    rasteriser.statistics()?;
    let (began, mut work, mut steps) = (Instant::now(), 0.0, 0);
    while steps < TIMED_STEPS || began.elapsed() < TIMED_FOR {
        work += once(rasteriser)?;
        steps += 1;
        // A device may be far behind what it was told.
        if steps % 16 == 0 {
            rasteriser.statistics()?;
        }
    }
    rasteriser.statistics()?;
    Ok(work / began.elapsed().as_secs_f64().max(1e-6))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ASKED: Plan = Plan { steps: 25_000, gaussians: 1_000_000, side: Some(1600) };

    #[test]
    fn all_three_are_cut_to_the_same_share_until_the_work_fits() {
        let takes = |p: &Plan| {
            let side = f64::from(p.side.unwrap());
            f64::from(p.steps) * (side * side + f64::from(p.gaussians)) * 1e-8
        };
        assert_eq!(largest(&ASKED, 2000, 1e9, takes), ASKED);
        let whole = takes(&ASKED);
        for share in [0.5, 0.1, 0.02] {
            let plan = largest(&ASKED, 2000, whole * share, takes);
            let used = takes(&plan) / (whole * share);
            assert!((0.98..=1.0).contains(&used), "{plan:?}: {used}");
            let steps = f64::from(plan.steps) / 25_000.0;
            let pixels = (f64::from(plan.side.unwrap()) / 1600.0).powi(2);
            assert!((f64::from(plan.gaussians) / 1e6 / steps - 1.0).abs() < 0.01, "{plan:?}");
            assert!((pixels / steps - 1.0).abs() < 0.02, "{plan:?}");
        }
    }

    #[test]
    fn nothing_is_cut_below_what_is_worth_training_or_was_asked_for() {
        let never = |_: &Plan| f64::INFINITY;
        let least = Plan { steps: LEAST_STEPS, gaussians: LEAST_GAUSSIANS, side: Some(LEAST_SIDE) };
        assert_eq!(largest(&ASKED, 2000, 1.0, never), least);
        let small = Plan { steps: 30, gaussians: 2000, side: Some(100) };
        assert_eq!(largest(&small, 2000, 1.0, never), small);
        // Pictures that are smaller than the limit.
        assert_eq!(largest(&ASKED, 90, 1.0, never).side, Some(90));
        assert_eq!(largest(&Plan { side: None, ..ASKED }, 900, 1.0, never).side, Some(LEAST_SIDE));
        assert_eq!(ASKED.shortened(0.5).steps, 12_500);
        assert_eq!(ASKED.shortened(0.0).steps, LEAST_STEPS);
    }
}
