//! The training loop: which view, which pass, when density control, when a checkpoint.

use std::path::Path;
use std::time::{Duration, Instant};

use super::budget::{self, Mark, Plan};
use super::checkpoint::{Checkpoint, Progress};
use super::clean;
use super::dataset::Dataset;
use super::density::{self, DensityPlan};
use super::evaluate::{Evaluation, evaluate_splats, evaluate_views, psnr_of};
use super::exposure;
use super::initialise;
use super::layout::Layout;
use super::long_run::LongRun;
use super::options::TrainOptions;
use super::picture::Picture;
use super::precision;
use super::report::TrainReport;
use super::view_order::ViewOrder;
use super::warnings;
use super::workload::Workload;
use super::writing::Writing;
use crate::control::{Control, Preview, Warning};
use crate::error::{Error, ErrorKind, Result};
use crate::random::{Random, hash};
use crate::raster::{LossOptions, Rasteriser, Rendering, StepStatistics, TrainState, View};
use crate::splats::Splats;
use crate::stage::Stage;

/// Least time between two reports of progress.
const REPORT_EVERY: Duration = Duration::from_millis(500);
/// Least time between two renderings for the PSNR that is reported.
const PROBE_EVERY: Duration = Duration::from_secs(5);
/// Code of the warning that a run is cut down.
const TIME_BUDGET: &str = "time_budget";
/// The background where nothing is known about it.
const BLACK: [f32; 3] = [0.0; 3];

/// Fits Gaussians to a [`Dataset`].
///
/// Deterministic for one device: the same dataset and options give the same result bit for bit, whether the run was
/// interrupted or not. (What a time budget leaves of the options follows from the speed of the machine when the run begins.)
pub struct Trainer {
    dataset: Dataset,
    /// Those that were asked for, cut down where they do not fit into the time.
    options: TrainOptions,
    asked: TrainOptions,
    options_hash: String,
    layout: Layout,
    rasteriser: Box<dyn Rasteriser>,
    /// Steps that were done.
    step: u32,
    /// Whether the last of them is still owed its round of density control, from which a cancel kept it.
    refine_due: bool,
    /// Highest degree of the spherical harmonics that a step was made with. A plan that grows would come to it later: it stays.
    sh_degree: u32,
    /// The resolution stage whose pictures are loaded.
    loaded_stage: Option<usize>,
    /// Which of them know their alpha.
    has_alpha: Vec<bool>,
    initial_count: usize,
    /// Gaussians that were taken out of free space.
    cleaned: u64,
    /// What the run was cut down to, if it is to end in time.
    plan: Option<Plan>,
    /// Where the run was when the plan was last looked at.
    mark: Option<Mark>,
    /// Which view a step trains on.
    order: ViewOrder,
    /// Whether it is known what a step found out,
    has_compared: bool,
    /// and what the last one of an earlier sitting did, until there is one in this.
    earlier: Option<StepStatistics>,
    /// Seconds that all this took, in earlier sittings too.
    pub(super) seconds: f64,
    long_run: LongRun,
    warnings: Vec<Warning>,
}

impl Trainer {
    /// Prepares a run from its beginning: reads pictures for the dense initialisation if asked, and places the first
    /// Gaussians.
    ///
    /// # Errors
    /// `InvalidArgument` for options out of range and for a model far from its origin, whose places single precision cannot tell
    /// apart; `TooFewFrames` for a dataset that leaves no view to train on; what reading the pictures and the rasteriser report;
    /// `Cancelled`.
    pub fn new(
        dataset: Dataset,
        options: TrainOptions,
        mut rasteriser: Box<dyn Rasteriser>,
        control: &Control,
    ) -> Result<Self> {
        options.validate()?;
        if dataset.train.is_empty() {
            return Err(Error::new(ErrorKind::TooFewFrames, "there is no view to train on")
                .hint("hold out fewer views"));
        }
        // Before anything is measured for the plan.
        precision::check(&dataset)?;
        let began = Instant::now();
        let budget = options.time_budget_seconds.map(f64::from);
        let planned = budget
            .map(|seconds| budget::plan(&dataset, &options, rasteriser.as_mut(), seconds, control))
            .transpose()?;
        let mut trainer = Self::prepare(dataset, options, rasteriser, planned.map(|(plan, _)| plan))?;
        let splats = initialise::splats(&trainer.dataset, &trainer.options, trainer.layout.cap, control)?;
        trainer.initial_count = splats.len();
        if let (Some(seconds), Some((plan, speed))) = (budget, planned) {
            // What placing the Gaussians took is known now.
            let left = (seconds - began.elapsed().as_secs_f64()).max(0.0);
            let takes = trainer.workload().work() / speed;
            if takes > left {
                trainer.follow(plan.shortened(left / takes));
            }
            trainer.tell_plan();
        }
        trainer.seconds = began.elapsed().as_secs_f64();
        let exposures = if trainer.options.exposure_compensation { trainer.dataset.train.len() } else { 0 };
        trainer.rasteriser.load(&TrainState {
            splats,
            exposures: vec![exposure::IDENTITY; exposures],
            exposure_first_moments: vec![[0.0; 12]; exposures],
            exposure_second_moments: vec![[0.0; 12]; exposures],
            ..TrainState::default()
        })?;
        Ok(trainer)
    }

    /// Continues the run of the checkpoint at `path`, which must have been made with the same dataset and options.
    ///
    /// # Errors
    /// `NotFound` without the file, `InvalidFile` if it is damaged or none, `InvalidArgument` if it belongs to something else.
    pub fn resume(
        dataset: Dataset,
        options: TrainOptions,
        rasteriser: Box<dyn Rasteriser>,
        path: &Path,
    ) -> Result<Self> {
        let checkpoint = Checkpoint::read(path, &options.hash()?, dataset.hash())?;
        Self::continued(dataset, options, rasteriser, checkpoint)
    }

    fn continued(
        dataset: Dataset,
        options: TrainOptions,
        rasteriser: Box<dyn Rasteriser>,
        checkpoint: Checkpoint,
    ) -> Result<Self> {
        let Progress { step, refine_due, initial_count, cleaned, sh_degree, seconds, plan, statistics } =
            checkpoint.progress;
        let mut trainer = Self::prepare(dataset, options, rasteriser, plan)?;
        trainer.tell_plan();
        trainer.rasteriser.load(&checkpoint.state)?;
        (trainer.step, trainer.initial_count, trainer.seconds) = (step, initial_count as usize, seconds);
        (trainer.refine_due, trainer.cleaned) = (refine_due, cleaned);
        (trainer.has_compared, trainer.earlier) = (statistics.is_some(), statistics);
        // Those of earlier versions do not say it.
        let due = trainer.layout.schedule.sh_degree(step.max(1));
        trainer.sh_degree = sh_degree.max(due).min(trainer.options.sh_degree);
        Ok(trainer)
    }

    /// Continues the run of the checkpoint at `path` if there is one and it belongs to this dataset and these options,
    /// else begins anew, with a warning if there is one.
    ///
    /// # Errors
    /// Those of [`Trainer::new`]; `InvalidFile` for a file at `path` that is no checkpoint, not even a damaged one: the run would write
    /// over it; what keeps a checkpoint that is there from being read, but for its own faults.
    pub fn open(
        dataset: Dataset,
        options: TrainOptions,
        rasteriser: Box<dyn Rasteriser>,
        path: &Path,
        control: &Control,
    ) -> Result<Self> {
        Self::continue_or_begin(dataset, options, rasteriser, (path, false), control)
    }

    /// As [`Trainer::open`], for a `path` at which nobody else has a file: whatever is there may be written over.
    pub(crate) fn open_in_workspace(
        dataset: Dataset,
        options: TrainOptions,
        rasteriser: Box<dyn Rasteriser>,
        path: &Path,
        control: &Control,
    ) -> Result<Self> {
        Self::continue_or_begin(dataset, options, rasteriser, (path, true), control)
    }

    fn continue_or_begin(
        dataset: Dataset,
        options: TrainOptions,
        rasteriser: Box<dyn Rasteriser>,
        (path, is_ours): (&Path, bool),
        control: &Control,
    ) -> Result<Self> {
        let why = match Checkpoint::read(path, &options.hash()?, dataset.hash()) {
            Ok(checkpoint) => return Self::continued(dataset, options, rasteriser, checkpoint),
            Err(why) => why,
        };
        let warning = warnings::of_checkpoint(path, is_ours, why)?;
        let mut trainer = Self::new(dataset, options, rasteriser, control)?;
        trainer.warnings.extend(warning);
        Ok(trainer)
    }

    /// `plan` is what the run is cut down to.
    fn prepare(
        dataset: Dataset,
        asked: TrainOptions,
        rasteriser: Box<dyn Rasteriser>,
        plan: Option<Plan>,
    ) -> Result<Self> {
        asked.validate()?;
        let options = plan.map_or_else(|| asked.clone(), |plan| plan.applied(&asked));
        let layout = Layout::new(&dataset, &options);
        let warnings = warnings::of_run(&dataset, &options, &layout);
        Ok(Self {
            options_hash: asked.hash()?,
            // At least one: without it there is no dataset.
            order: ViewOrder::new(dataset.train.len() as u32, asked.seed),
            dataset,
            options,
            asked,
            layout,
            plan,
            mark: None,
            rasteriser,
            step: 0,
            refine_due: false,
            sh_degree: 0,
            loaded_stage: None,
            has_alpha: Vec::new(),
            initial_count: 0,
            cleaned: 0,
            has_compared: false,
            earlier: None,
            seconds: 0.0,
            long_run: LongRun::default(),
            warnings,
        })
    }

    /// Makes `plan` the run's.
    fn follow(&mut self, plan: Plan) {
        self.options = plan.applied(&self.asked);
        self.layout = Layout::new(&self.dataset, &self.options);
        self.plan = Some(plan);
    }

    /// Now and then, where there is a time to keep: as many steps as fit into it, by what the last ones took.
    fn keep_time(&mut self, control: &Control) -> Result<()> {
        let (Some(plan), Some(budget)) = (self.plan, self.asked.time_budget_seconds) else { return Ok(()) };
        if !budget::is_due(plan, self.mark, self.step, &self.layout) || self.is_finished() {
            return Ok(());
        }
        // The device may be far behind what it was told.
        self.statistics()?;
        let now = Mark { step: self.step, seconds: self.seconds };
        if let Some(mark) = self.mark {
            let asked = budget::Asked {
                options: &self.asked,
                initial_count: self.initial_count,
                seconds: f64::from(budget),
            };
            let steps =
                budget::steps_in_time(&self.dataset, &asked, plan, (mark, now), self.rasteriser.as_ref());
            self.follow(Plan { steps, ..plan });
            let known = self.warnings.iter().any(|w| w.code == TIME_BUDGET);
            self.tell_plan();
            if let Some(warning) = self.warnings.iter().find(|w| w.code == TIME_BUDGET && !known) {
                control.warn(Stage::Train, warning.clone());
            }
        }
        self.mark = Some(now);
        Ok(())
    }

    /// Warns, once the speed is known, of a run that will take hours.
    fn tell_if_long(&mut self, control: &Control) -> Result<()> {
        if !self.long_run.is_due(self.step, self.seconds) || self.is_finished() {
            return Ok(());
        }
        // The device may be far behind what it was told.
        self.statistics()?;
        let (workload, device) = (self.workload(), self.device());
        if let Some(warning) = self.long_run.look(self.step, self.seconds, &workload, &device) {
            control.warn(Stage::Train, warning.clone());
            self.warnings.push(warning);
        }
        Ok(())
    }

    /// Has a warning of what the run is cut down to, if it is; one that was there says what is so now.
    fn tell_plan(&mut self) {
        let (Some(plan), Some(seconds)) = (self.plan, self.asked.time_budget_seconds) else { return };
        self.warnings.retain(|w| w.code != TIME_BUDGET);
        let asked = &self.asked;
        if plan.applied(asked) == *asked {
            return;
        }
        let message = format!(
            "to end within {seconds} seconds, training makes about {} of {} steps, with {} of {} Gaussians at most, on pictures of {} \
             pixels at most",
            plan.steps,
            asked.training_num_steps,
            plan.gaussians,
            asked.training_max_num_gaussians,
            self.dataset.longest_side(self.layout.max_side),
        );
        self.warnings.push(Warning::new(TIME_BUDGET, message));
    }

    /// Steps that were done.
    pub fn steps_done(&self) -> u32 {
        self.step
    }

    /// Number of Gaussians now.
    pub fn len(&self) -> usize {
        self.rasteriser.len()
    }

    /// Whether there are no Gaussians.
    pub fn is_empty(&self) -> bool {
        self.rasteriser.is_empty()
    }

    /// What it runs on, for people.
    pub fn device(&self) -> String {
        self.rasteriser.name()
    }

    /// The options of the run: those that were asked for, or what of them fits into its time.
    pub fn options(&self) -> &TrainOptions {
        &self.options
    }

    /// What the user should know of the run until now. [`Trainer::run`] tells of it; who makes the steps one by one asks.
    pub fn warnings(&self) -> &[Warning] {
        &self.warnings
    }

    /// Whether all steps are done, and the density control that belongs to them.
    pub fn is_finished(&self) -> bool {
        self.step >= self.options.training_num_steps && !self.refine_due
    }

    /// One optimiser step on one view, and density control if it is due. Does nothing once the run is finished.
    ///
    /// # Errors
    /// What reading pictures and the rasteriser report; `Cancelled`.
    pub fn step(&mut self, control: &Control) -> Result<()> {
        if self.is_finished() {
            return Ok(());
        }
        let began = Instant::now();
        self.advance(control)?;
        self.seconds += began.elapsed().as_secs_f64();
        self.keep_time(control)?;
        self.tell_if_long(control)
    }

    fn advance(&mut self, control: &Control) -> Result<()> {
        // What a cancel has left of the step before: without it the run would not end like one that was never stopped.
        self.refine_if_due(control)?;
        if self.is_finished() {
            return Ok(());
        }
        let step = self.step + 1;
        let stage = self.layout.schedule.stage(step);
        let side = self.layout.stage_side(stage);
        if self.loaded_stage != Some(stage) {
            let began = Instant::now();
            let targets = self.dataset.targets(side, control)?;
            self.has_alpha = targets.iter().map(|t| t.alpha.is_some()).collect();
            self.rasteriser.set_targets(targets)?;
            self.loaded_stage = Some(stage);
            self.long_run.leave_out(began.elapsed().as_secs_f64());
        }
        let target = self.order.view_of(step);
        let view = self.dataset.view_at(self.dataset.train[target as usize], side);
        // Where the picture knows what does not belong to the scene, any colour may stand there: a new one every step
        // keeps Gaussians from painting it.
        let background = if self.has_alpha[target as usize] {
            let mut random = Random::new(hash(self.options.seed) ^ hash(u64::from(step)));
            std::array::from_fn(|_| random.uniform() as f32)
        } else {
            BLACK
        };
        let tuning = &self.options.tuning;
        let loss = LossOptions {
            ssim_weight: tuning.ssim_weight,
            alpha_weight: tuning.alpha_weight,
            exposure: self.options.exposure_compensation.then_some(target),
        };
        self.sh_degree = self.sh_degree.max(self.layout.schedule.sh_degree(step));
        let rasteriser = &mut self.rasteriser;
        rasteriser.project(&view, self.sh_degree)?;
        rasteriser.intersect()?;
        rasteriser.sort()?;
        rasteriser.rasterise(background)?;
        rasteriser.loss(target, &loss)?;
        rasteriser.rasterise_backward()?;
        rasteriser.update(&self.layout.schedule.step_options(step, self.dataset.train.len() as u32))?;
        self.step = step;
        (self.has_compared, self.earlier) = (true, None);
        self.refine_due = self.layout.schedule.refines_after(step);
        self.refine_if_due(control)
    }

    fn refine_if_due(&mut self, control: &Control) -> Result<()> {
        if self.refine_due {
            self.refine(control)?;
            self.refine_due = false;
        }
        Ok(())
    }

    /// All steps that are left, with reports of progress. With a path, a checkpoint is written there from time to time,
    /// when the run is cancelled, and at its end.
    ///
    /// # Errors
    /// As [`Trainer::step`]; what writing the checkpoint reports; `Internal` if the optimisation diverged.
    pub fn run(&mut self, control: &Control, checkpoint: Option<&Path>) -> Result<TrainReport> {
        let control = &control.with_remaining_time();
        for warning in &self.warnings {
            control.warn(Stage::Train, warning.clone());
        }
        let (began, first, owed) = (Instant::now(), self.step, self.refine_due);
        let before = self.seconds;
        let interval = Duration::from_secs(u64::from(self.options.checkpoint_interval_seconds));
        let (mut reported, mut saved) = (began, began);
        let mut probe = Probe::default();
        let mut writing = Writing::default();
        let ran = loop {
            if self.is_finished() {
                break Ok(());
            }
            if self.cleans_after(self.step + 1) {
                // The copy that is being written and what cleaning takes are not to fill the memory together.
                writing.finish()?;
            }
            if let Err(stopped) = control.check().and_then(|()| self.advance(control)) {
                break Err(stopped);
            }
            self.seconds = before + began.elapsed().as_secs_f64();
            self.keep_time(control)?;
            self.tell_if_long(control)?;
            // Even the shortest run is heard of, and can be cancelled then.
            if reported.elapsed() >= REPORT_EVERY || self.step == first + 1 {
                reported = Instant::now();
                self.report(control, (began, first), &mut probe)?;
            }
            if let Some(path) = checkpoint
                && saved.elapsed() >= interval
            {
                writing.finish()?;
                writing = self.save_aside(path)?;
                saved = Instant::now();
            }
        };
        writing.finish()?;
        if let (Some(path), true) = (checkpoint, self.step > first || self.refine_due != owed) {
            // A cancelled run continues here; a finished one is not trained again if what follows fails.
            if ran.as_ref().err().is_none_or(|e| e.kind() == ErrorKind::Cancelled) {
                self.save(path)?;
            }
        }
        ran?;
        let statistics = self.statistics()?;
        let seconds = began.elapsed().as_secs_f64();
        Ok(TrainReport {
            steps: self.step,
            splats: self.len(),
            cleaned: self.cleaned,
            seconds: self.seconds,
            steps_per_second: f64::from(self.step - first) / seconds.max(1e-9),
            statistics,
            warnings: self.warnings.clone(),
        })
    }

    /// Whether a step has compared a picture, so that [`Trainer::statistics`] says something: in this sitting, or in an earlier one
    /// whose checkpoint says what came out.
    pub fn has_compared(&self) -> bool {
        self.has_compared
    }

    /// What the last step found out. Waits for the device.
    ///
    /// # Errors
    /// What the rasteriser reports; `Internal` if the optimisation diverged.
    pub fn statistics(&mut self) -> Result<StepStatistics> {
        let began = Instant::now();
        let statistics = self.found()?;
        self.seconds += began.elapsed().as_secs_f64();
        check_finite(&statistics, self.step)?;
        Ok(statistics)
    }

    fn found(&mut self) -> Result<StepStatistics> {
        let now = self.rasteriser.statistics()?;
        Ok(self.earlier.unwrap_or(now))
    }

    /// The scene as it is now through any camera, in the exposure of the training pictures' mean, over black. Colours are
    /// clamped to 0..1.
    ///
    /// # Errors
    /// What the rasteriser reports.
    pub fn render(&mut self, view: &View) -> Result<Rendering> {
        let mean = self.mean_exposure()?;
        let mut rendering = self.rasteriser.render(view, self.sh_degree, BLACK)?;
        for pixel in &mut rendering.rgba {
            let [r, g, b, alpha] = *pixel;
            let [r, g, b] = exposure::apply(&mean, [r, g, b], alpha).map(|v| v.clamp(0.0, 1.0));
            *pixel = [r, g, b, alpha];
        }
        Ok(rendering)
    }

    /// The views that are trained on and held out.
    pub fn dataset(&self) -> &Dataset {
        &self.dataset
    }

    /// Writes a checkpoint to `path`.
    ///
    /// # Errors
    /// What the file system and the rasteriser report.
    pub fn save(&mut self, path: &Path) -> Result<()> {
        self.save_aside(path)?.finish()
    }

    /// Takes the state as it is now and writes it while the training goes on.
    fn save_aside(&mut self, path: &Path) -> Result<Writing> {
        let statistics = if self.has_compared { Some(self.found()?) } else { None };
        let progress = Progress {
            step: self.step,
            refine_due: self.refine_due,
            initial_count: self.initial_count as u64,
            cleaned: self.cleaned,
            sh_degree: self.sh_degree,
            seconds: self.seconds,
            plan: self.plan,
            statistics: statistics.filter(|s| s.loss.is_finite()),
        };
        let checkpoint = Checkpoint { progress, state: self.rasteriser.store()? };
        Ok(Writing::begin(checkpoint, path, &self.options_hash, self.dataset.hash()))
    }

    /// Renders every held-out view at the training resolution, in the mean exposure, over black, and scores it.
    ///
    /// # Errors
    /// `InvalidArgument` if no view is held out; what reading the pictures and the rasteriser report.
    pub fn evaluate(&mut self, control: &Control) -> Result<Evaluation> {
        let mean = self.mean_exposure()?;
        let degree = self.sh_degree;
        let (splats, rasteriser) = (self.rasteriser.len(), &mut self.rasteriser);
        evaluate_views(&self.dataset, self.layout.max_side, self.step, splats, control, |view| {
            let rendering = rasteriser.render(view, degree, BLACK)?;
            let shown =
                |p: &[f32; 4]| exposure::apply(&mean, [p[0], p[1], p[2]], p[3]).map(|v| v.clamp(0.0, 1.0));
            Ok(rendering.rgba.iter().map(shown).collect())
        })
    }

    /// Scores a scene that was made of this run's ([`Trainer::splats`]), as [`Trainer::evaluate`] scores the run's own. It takes the
    /// place of that on the device: the run ends here.
    ///
    /// # Errors
    /// As [`Trainer::evaluate`].
    pub fn evaluate_scene(mut self, splats: &Splats, control: &Control) -> Result<Evaluation> {
        // What was trained is let go of first: there may be no room for both.
        self.rasteriser.load(&TrainState::default())?;
        let rasteriser = self.rasteriser.as_mut();
        let scored = evaluate_splats(splats, &self.dataset, self.layout.max_side, rasteriser, control)?;
        Ok(Evaluation { step: self.step, ..scored })
    }

    /// As [`Trainer::evaluate_scene`], on another rasteriser: the run goes on.
    ///
    /// # Errors
    /// As [`Trainer::evaluate`].
    pub fn evaluate_scene_on(
        &self,
        splats: &Splats,
        rasteriser: &mut dyn Rasteriser,
        control: &Control,
    ) -> Result<Evaluation> {
        let scored = evaluate_splats(splats, &self.dataset, self.layout.max_side, rasteriser, control)?;
        Ok(Evaluation { step: self.step, ..scored })
    }

    /// The scene for export: in the mean exposure of the training pictures, without Gaussians that cannot be seen or
    /// are not finite.
    ///
    /// # Errors
    /// What the rasteriser reports.
    pub fn splats(&mut self) -> Result<Splats> {
        let mean = self.mean_exposure()?;
        let mut splats = self.rasteriser.splats()?;
        exposure::bake(&mut splats, &mean);
        splats.remove_invisible();
        Ok(splats)
    }

    fn mean_exposure(&mut self) -> Result<[f32; 12]> {
        if !self.options.exposure_compensation {
            return Ok(exposure::IDENTITY);
        }
        Ok(exposure::mean(&self.rasteriser.exposures()?))
    }

    fn refine(&mut self, control: &Control) -> Result<()> {
        let mut scores = self.rasteriser.density_scores()?;
        if self.cleans_after(self.step) {
            let began = Instant::now();
            // They are as good as dead: density control has better places for them.
            let mut splats = self.rasteriser.splats()?;
            exposure::bake(&mut splats, &self.mean_exposure()?);
            let seen_at = (self.layout.max_side, self.sh_degree);
            for floater in clean::floaters(&splats, &self.dataset, seen_at, control)? {
                scores.opacities[floater] = f32::NEG_INFINITY;
                self.cleaned += 1;
            }
            self.long_run.leave_out(began.elapsed().as_secs_f64());
        }
        let plan = DensityPlan {
            target_count: self.layout.schedule.target_count(self.step, self.initial_count, self.layout.cap),
            dead_opacity: self.options.tuning.dead_opacity,
            split: self.options.tuning.split,
            seed: hash(self.options.seed ^ 0xde45) ^ u64::from(self.step),
        };
        let edits = density::edits(&scores, &plan);
        if !edits.is_empty() {
            self.rasteriser.edit(&edits)?;
        }
        self.rasteriser.reset_density_statistics()
    }

    /// Whether floaters are sought after `step`.
    fn cleans_after(&self, step: u32) -> bool {
        let cleans = self.options.clean && self.rasteriser.is_on_processor();
        cleans && self.layout.schedule.cleans_after(step)
    }

    fn workload(&self) -> Workload {
        let steps = self.options.training_num_steps;
        self.layout.workload(&self.dataset, steps, self.initial_count, self.rasteriser.as_ref())
    }

    /// Tells how far the run is that went on at step `first` when it `began`.
    fn report(&mut self, control: &Control, (began, first): (Instant, u32), probe: &mut Probe) -> Result<()> {
        let statistics = self.statistics()?;
        if probe.last.is_none_or(|t| t.elapsed() >= PROBE_EVERY) {
            self.measure(control, probe)?;
        }
        let rate = f64::from(self.step - first) / began.elapsed().as_secs_f64();
        let total = self.options.training_num_steps;
        let message = format!(
            "step {} of {total}, loss {:.4}, {}PSNR {:.2} dB, {} splats, {rate:.1} steps/s",
            self.step,
            statistics.loss,
            if self.dataset.test.is_empty() { "" } else { "held-out " },
            probe.psnr,
            self.len(),
        );
        // Anew every time: a run that is to end in time may have got another number of steps.
        let done = self.workload().fraction(self.step);
        control.progress_with(Stage::Train, "training", done as f32, message);
        Ok(())
    }

    /// Renders one view, held out if there is one, compares it, and shows it to whoever looks. It is one from the middle: at
    /// the ends of a camera path much is seen that no other view shows.
    fn measure(&mut self, control: &Control, probe: &mut Probe) -> Result<()> {
        let views = if self.dataset.test.is_empty() { &self.dataset.train } else { &self.dataset.test };
        let index = views.get(views.len() / 2).copied().unwrap_or(0);
        let picture = match probe.picture.take() {
            Some(picture) => picture,
            None => self.dataset.picture(index, self.layout.max_side)?,
        };
        let rendered = self.render(&self.dataset.view_at(index, self.layout.max_side))?;
        let rendered: Vec<[f32; 3]> = rendered.rgba.iter().map(|p| [p[0], p[1], p[2]]).collect();
        probe.psnr = psnr_of(&picture, &rendered);
        control.show(|| {
            let view = self.dataset.view_at(index, self.layout.max_side);
            // Within 0..1, so that `as` only rounds.
            let rgb = rendered.iter().flatten().map(|v| (v * 255.0 + 0.5) as u8).collect();
            Preview { width: view.width, height: view.height, rgb }
        });
        probe.picture = Some(picture);
        probe.last = Some(Instant::now());
        Ok(())
    }
}

/// The view by which progress is reported.
#[derive(Default)]
struct Probe {
    picture: Option<Picture>,
    psnr: f64,
    last: Option<Instant>,
}

fn check_finite(statistics: &StepStatistics, step: u32) -> Result<()> {
    if statistics.loss.is_finite() {
        return Ok(());
    }
    Err(Error::new(
        ErrorKind::Internal,
        format!("training diverged: the loss of step {step} is {}", statistics.loss),
    )
    .hint("lower the learning rates, or check the poses")
    .at(Stage::Train))
}
