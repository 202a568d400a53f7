//! The implementation of [`Rasteriser`]: which pass may run when, what is read back, and the steps that have to be run
//! again for lack of room.

use std::collections::BTreeMap;

use super::backward::TrainingBuffers;
use super::device::Gpu;
use super::edit;
use super::forward::{Passes, sorted_tiles, tiles};
use super::gradient_buffers::SlotBuffer;
use super::journal::{IN_FLIGHT, Journal, Step};
use super::kernels::{Kernels, SLOT, SLOT_RUN, SUMS, TILE_BITS};
use super::profiler::{PassTime, Profiler};
use super::recorder::{Pending, Recorder};
use super::scene::{SceneBuffers, unpack};
use super::targets::Targets;
use super::view_buffers::{INTERSECTIONS, IntersectionBuffers, NEEDED, POISONED, VISIBLE, ViewBuffers};
use crate::error::{Error, ErrorKind, Result};
use crate::raster::check::{check_background, check_edits, check_splats, check_trainable};
use crate::raster::pass::Pass;
use crate::raster::{
    DensityScores, DeviceChoice, Inspect, LossOptions, ProjectedSplat, Rasteriser, Rendering, SplatEdit,
    StepOptions, StepStatistics, Target, TargetId, TrainState, View,
};
use crate::splats::Splats;

/// Room for intersections at first.
const ROOM: u32 = 1 << 18;

/// The rasteriser on a graphics device.
pub struct GpuRasteriser {
    pub(super) gpu: Gpu,
    pub(super) kernels: Kernels,
    pub(super) recorder: Recorder,
    pub(super) scene: SceneBuffers,
    pub(super) work: ViewBuffers,
    training: TrainingBuffers,
    exposures: usize,
    pub(super) targets: Targets,
    /// The step under way, and those before it that may have to be run again.
    step: Step,
    journal: Journal,
    /// What the totals of the loss are of: they outlive the pictures that are rendered after it.
    measured: Option<(View, LossOptions)>,
    /// Whether a loss was asked for since the scene was loaded: from then on there must be room for gradients too.
    trains: bool,
    /// Room for intersections from the next step on.
    wanted_room: u32,
}

impl std::fmt::Debug for GpuRasteriser {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("GpuRasteriser").field("device", &self.gpu.to_string()).finish_non_exhaustive()
    }
}

impl GpuRasteriser {
    /// An empty one on the device that `choice` asks for.
    ///
    /// # Errors
    /// [`ErrorKind::NoGpu`] if there is none, [`ErrorKind::Gpu`] if it fails, [`ErrorKind::InvalidArgument`] for
    /// [`DeviceChoice::Cpu`].
    pub fn new(choice: &DeviceChoice) -> Result<Self> {
        Self::with_room(choice, ROOM)
    }

    /// The driver's name of the adapter that it runs on.
    #[cfg(feature = "service")]
    pub(in crate::raster) fn adapter(&self) -> &str {
        self.gpu.adapter()
    }

    /// As [`GpuRasteriser::new`], with room for so many intersections at first.
    pub(super) fn with_room(choice: &DeviceChoice, room: u32) -> Result<Self> {
        Self::on(Gpu::open(choice)?, room)
    }

    /// As [`GpuRasteriser::with_room`], on this device.
    pub(super) fn on(gpu: Gpu, room: u32) -> Result<Self> {
        let kernels = Kernels::new(&gpu)?;
        let work = ViewBuffers::new(&gpu, room)?;
        let training = TrainingBuffers::new(&gpu, 0)?;
        Ok(Self {
            gpu,
            kernels,
            recorder: Recorder::default(),
            scene: SceneBuffers::default(),
            work,
            training,
            exposures: 0,
            targets: Targets::default(),
            step: Step::default(),
            journal: Journal::default(),
            measured: None,
            trains: false,
            wanted_room: 0,
        })
    }

    /// From now on every pass of a step is timed, and steps do not overlap. For benchmarks.
    ///
    /// # Errors
    /// [`ErrorKind::Gpu`] if the device cannot time passes.
    #[doc(hidden)]
    pub fn time_passes(&mut self) -> Result<()> {
        self.recorder.profiler = Some(Profiler::new(&self.gpu)?);
        Ok(())
    }

    /// What passes took on the device since the last call, by the names of their entry points.
    #[doc(hidden)]
    pub fn pass_times(&mut self) -> BTreeMap<&'static str, PassTime> {
        self.recorder.profiler.as_mut().map(Profiler::times).unwrap_or_default()
    }

    pub(super) fn passes(&mut self) -> Passes<'_> {
        Passes {
            gpu: &self.gpu,
            kernels: &self.kernels,
            recorder: &mut self.recorder,
            scene: &self.scene,
            work: &self.work,
        }
    }

    /// Records all passes of `step`.
    fn record(&mut self, step: &Step) -> Result<()> {
        let Some(view) = step.view else { return Ok(()) };
        self.work.fit(&self.gpu, &mut self.recorder, &view, self.scene.len)?;
        self.passes().project(&view, step.sh_degree);
        if step.done >= Pass::Intersect {
            self.passes().intersect();
        }
        if step.done >= Pass::Sort {
            self.passes().sort(&view);
        }
        if step.done >= Pass::Rasterise {
            self.passes().rasterise(&view, step.background);
        }
        if let Some((target, options)) = &step.loss {
            self.record_loss(&view, *target, options)?;
        }
        if step.done >= Pass::RasteriseBackward {
            self.record_backward(&view)?;
        }
        if let Some(options) = &step.update {
            self.record_update(step, options)?;
        }
        Ok(())
    }

    fn record_loss(&mut self, view: &View, target: TargetId, options: &LossOptions) -> Result<()> {
        let (x, y) = tiles(view);
        let sizes = (pixels(view) as u64, u64::from(x) * u64::from(y));
        self.work.loss.fit(&self.gpu, &mut self.recorder, sizes)?;
        let (buffer, has_alpha) = self.targets.buffer(&self.gpu, &mut self.recorder, target, view)?;
        let Self { gpu, kernels, recorder, scene, work, training, .. } = self;
        Passes { gpu, kernels, recorder, scene, work }.loss(training, &buffer, has_alpha, view, options);
        Ok(())
    }

    fn record_backward(&mut self, view: &View) -> Result<()> {
        self.work.slots.fit(&self.gpu, &mut self.recorder, self.work.intersections.room)?;
        self.passes().rasterise_backward(view);
        Ok(())
    }

    fn record_update(&mut self, step: &Step, options: &StepOptions) -> Result<()> {
        self.scene.fit_training(&self.gpu, &mut self.recorder)?;
        let exposure = step.loss.is_some_and(|(_, loss)| loss.exposure.is_some());
        let Self { gpu, kernels, recorder, scene, work, training, .. } = self;
        Passes { gpu, kernels, recorder, scene, work }.update(training, options, exposure);
        Ok(())
    }

    /// Submits what was recorded, and asks for its counts.
    fn submit_with_counts(&mut self) -> Pending {
        let counts = &self.work.fixed.counts;
        self.recorder.submit_and_read(&self.gpu, counts, 0, counts.size())
    }

    /// Takes note of a step's counts; false if there was no room for it.
    fn note(&mut self, counts: &[u8]) -> bool {
        let counts: Vec<u32> = bytemuck::pod_collect_to_vec(counts);
        let needed = counts[NEEDED];
        if needed > self.work.intersections.room / 5 * 4 {
            // Half as much again: the next views may have more.
            self.wanted_room = self.wanted_room.max(needed.saturating_add(needed / 2));
        }
        counts[POISONED] == 0
    }

    /// Most intersections for which the device can bind what is needed of them.
    fn limit(&self) -> u32 {
        let gradients = if self.trains { SlotBuffer::limit(&self.gpu) } else { u32::MAX };
        IntersectionBuffers::limit(&self.gpu).min(gradients)
    }

    /// Puts a scene, with what the optimiser has of so many exposures, in the place of the one that is there.
    fn take_over(&mut self, scene: SceneBuffers, training: TrainingBuffers, exposures: usize) -> Result<()> {
        // Steps on their way belong to the scene that is dropped here.
        self.recorder.submit(&self.gpu);
        self.journal.steps.clear();
        self.gpu.queue.write_buffer(&self.work.fixed.counts, 0, &[0; 16]);
        self.scene = scene;
        self.training = training;
        self.exposures = exposures;
        self.step = Step::default();
        self.measured = None;
        self.trains = false;
        self.recorder.forget_buffers();
        self.gpu.check()
    }

    /// Where there is more room for the intersections than there can be for their gradients, makes less, and the picture again.
    fn begin_training(&mut self) -> Result<()> {
        self.trains = true;
        let limit = self.limit();
        if self.work.intersections.room > limit {
            self.work.intersections = IntersectionBuffers::new(&self.gpu, limit)?;
            self.recorder.forget_buffers();
            let step = self.step;
            self.record(&step)?;
        }
        Ok(())
    }

    /// Makes as much room as was found to be wanted.
    fn make_room(&mut self) -> Result<()> {
        let room = self.work.intersections.room;
        let limit = self.limit();
        let wanted = self.wanted_room.min(limit.max(room));
        self.wanted_room = 0;
        if wanted > room {
            self.work.intersections = IntersectionBuffers::new(&self.gpu, wanted)?;
            self.recorder.forget_buffers();
        }
        Ok(())
    }

    /// Sees what became of the submitted steps, waiting until at most `pending` are on their way; runs those again for
    /// which there was no room.
    fn review(&mut self, pending: usize) -> Result<()> {
        self.gpu
            .device
            .poll(wgpu::PollType::Poll)
            .map_err(|e| self.gpu.failed("look at the state of the work", e))?;
        while let Some((step, counts)) = self.journal.steps.pop_front() {
            let counts = match counts.try_take(&self.gpu)? {
                Ok(counts) => counts,
                Err(waiting) if self.journal.steps.len() < pending => {
                    self.journal.steps.push_front((step, waiting));
                    return Ok(());
                }
                Err(waiting) => waiting.wait(&self.gpu)?,
            };
            if !self.note(&counts) {
                let mut again = vec![step];
                again.extend(self.journal.steps.drain(..).map(|(step, _)| step));
                return again.iter().try_for_each(|step| self.run_again(step));
            }
        }
        Ok(())
    }

    /// Runs a step, with as much room as it turns out to need.
    fn run_again(&mut self, step: &Step) -> Result<()> {
        loop {
            self.make_room()?;
            self.gpu.queue.write_buffer(&self.work.fixed.counts, 4 * POISONED as u64, &[0; 4]);
            self.record(step)?;
            let counts = self.submit_with_counts().wait(&self.gpu)?;
            if self.note(&counts) {
                return Ok(());
            }
            let needed = bytemuck::pod_collect_to_vec::<u8, u32>(&counts)[NEEDED];
            let limit = self.limit();
            if needed > limit {
                return Err(Error::new(
                    ErrorKind::Gpu,
                    format!(
                        "the view has {needed} pairs of splat and tile; the graphics device {} can bind {} MiB at \
                         most (max_storage_buffer_binding_size), which is enough for {limit}",
                        self.gpu,
                        self.gpu.max_binding >> 20
                    ),
                )
                .hint("lower the quality or the resolution, or use another device"));
            }
        }
    }

    /// Brings everything up to date that was asked for: after this the buffers hold the results of the present step.
    fn settle(&mut self) -> Result<()> {
        let counts = self.submit_with_counts();
        let poisoned_before = self.journal.steps.len();
        self.review(0)?;
        let counts = counts.wait(&self.gpu)?;
        let fits = self.note(&counts);
        // If a step before was run again, the buffers hold its results, not those of the present one.
        let replayed = !fits && poisoned_before > 0;
        if !fits || replayed {
            // A finished step is in the journal and was run again as part of it.
            let step = self.step;
            if step.done != Pass::Finished {
                self.run_again(&step)?;
            }
        }
        self.gpu.check()
    }

    /// Reads `count` numbers of a buffer that `choose` names, after the present step is through.
    fn read<T: bytemuck::Pod>(
        &mut self,
        count: usize,
        choose: impl Fn(&ViewBuffers, &TrainingBuffers) -> wgpu::Buffer,
    ) -> Result<Vec<T>> {
        self.settle()?;
        let buffer = choose(&self.work, &self.training);
        self.recorder.read_as(&self.gpu, &buffer, count)
    }

    fn counts(&mut self) -> Result<Vec<u32>> {
        self.read(4, |work, _| work.fixed.counts.clone())
    }
}

/// Pixels of a view.
fn pixels(view: &View) -> usize {
    view.width as usize * view.height as usize
}

impl Rasteriser for GpuRasteriser {
    fn name(&self) -> String {
        format!("gpu ({})", self.gpu)
    }

    // On an H100 a step of 300,000 splats on half a million pixels takes 2.3 ms, of a million on two million 2.9 ms: small ones
    // wait for the passes to begin.
    fn step_cost(&self, pixels: f64, splats: f64) -> f64 {
        7e6 + pixels + splats
    }

    fn load(&mut self, state: &TrainState) -> Result<()> {
        let count = state.exposures.len();
        state.check()?;
        let scene = SceneBuffers::load(&self.gpu, &mut self.recorder, state)?;
        let training = TrainingBuffers::new(&self.gpu, count)?;
        self.gpu.queue.write_buffer(&training.exposures, 0, bytemuck::cast_slice(&state.exposures));
        let mut moments = vec![[[0.0f32; 12]; 2]; count];
        for (k, source) in [&state.exposure_first_moments, &state.exposure_second_moments].iter().enumerate()
        {
            for (to, from) in moments.iter_mut().zip(source.iter()) {
                to[k] = *from;
            }
        }
        self.gpu.queue.write_buffer(
            &training.exposure_moments,
            0,
            bytemuck::cast_slice(moments.as_flattened()),
        );
        self.take_over(scene, training, count)
    }

    fn load_splats(&mut self, splats: &Splats) -> Result<()> {
        check_splats(splats)?;
        let scene = SceneBuffers::load_splats(&self.gpu, &mut self.recorder, splats)?;
        let training = TrainingBuffers::new(&self.gpu, 0)?;
        self.take_over(scene, training, 0)
    }

    fn store(&mut self) -> Result<TrainState> {
        let splats = self.splats()?;
        let (first_moments, second_moments) = self.scene.moments(&self.gpu, &mut self.recorder)?;
        let statistics = self.scene.statistics(&self.gpu, &mut self.recorder)?;
        let exposures = self.exposures()?;
        let moments: Vec<[[f32; 12]; 2]> = self
            .recorder
            .read_as::<[f32; 12]>(&self.gpu, &self.training.exposure_moments, self.exposures * 2)?
            .chunks_exact(2)
            .map(|pair| [pair[0], pair[1]])
            .collect();
        Ok(TrainState {
            splats,
            first_moments,
            second_moments,
            exposures,
            exposure_first_moments: moments.iter().map(|m| m[0]).collect(),
            exposure_second_moments: moments.iter().map(|m| m[1]).collect(),
            statistics,
        })
    }

    fn exposures(&mut self) -> Result<Vec<[f32; 12]>> {
        self.settle()?;
        self.recorder.read_as(&self.gpu, &self.training.exposures, self.exposures)
    }

    fn splats(&mut self) -> Result<Splats> {
        self.settle()?;
        self.scene.splats(&self.gpu, &mut self.recorder)
    }

    fn len(&self) -> usize {
        self.scene.len as usize
    }

    fn set_targets(&mut self, targets: Vec<Target>) -> Result<()> {
        let targets = Targets::new(targets)?;
        self.settle()?;
        if self.step.done != Pass::Finished {
            self.step.loss = None;
            self.step.done = self.step.done.min(Pass::Rasterise);
        }
        self.targets = targets;
        self.recorder.forget_buffers();
        Ok(())
    }

    fn project(&mut self, view: &View, sh_degree: u32) -> Result<()> {
        view.check(sh_degree, self.scene.sh_degree)?;
        if matches!(self.step.done, Pass::Loss | Pass::RasteriseBackward) {
            // Its loss can be asked for later, and there may have been no room for it.
            self.settle()?;
        }
        // What is recorded and not submitted is an unfinished step that nobody wants any more; but what it reads of
        // the uniforms must not become this step's.
        self.recorder.submit(&self.gpu);
        self.review(IN_FLIGHT - 1)?;
        self.make_room()?;
        self.step = Step { done: Pass::Project, view: Some(*view), sh_degree, ..Step::default() };
        self.work.fit(&self.gpu, &mut self.recorder, view, self.scene.len)?;
        self.passes().project(view, sh_degree);
        self.gpu.check()
    }

    fn intersect(&mut self) -> Result<()> {
        self.step.need(Pass::Project)?;
        self.passes().intersect();
        self.step.done = Pass::Intersect;
        Ok(())
    }

    fn sort(&mut self) -> Result<()> {
        let view = self.step.need(Pass::Intersect)?;
        self.passes().sort(&view);
        self.step.done = Pass::Sort;
        Ok(())
    }

    fn rasterise(&mut self, background: [f32; 3]) -> Result<()> {
        let view = self.step.need(Pass::Sort)?;
        check_background(background)?;
        self.passes().rasterise(&view, background);
        self.step.done = Pass::Rasterise;
        self.step.background = background;
        Ok(())
    }

    fn loss(&mut self, target: TargetId, options: &LossOptions) -> Result<()> {
        let view = self.step.need(Pass::Rasterise)?;
        options.check(self.exposures)?;
        if !self.trains {
            self.begin_training()?;
        }
        self.record_loss(&view, target, options)?;
        self.step.done = Pass::Loss;
        self.step.loss = Some((target, *options));
        self.measured = Some((view, *options));
        Ok(())
    }

    fn rasterise_backward(&mut self) -> Result<()> {
        let view = self.step.need(Pass::Loss)?;
        check_trainable(self.scene.antialiased)?;
        self.record_backward(&view)?;
        self.step.done = Pass::RasteriseBackward;
        Ok(())
    }

    fn update(&mut self, options: &StepOptions) -> Result<()> {
        self.step.need(Pass::RasteriseBackward)?;
        options.check()?;
        let step = Step { done: Pass::Finished, update: Some(*options), ..self.step };
        self.record_update(&step, options)?;
        self.step = step;
        self.recorder.take_times(&self.gpu)?;
        let counts = self.submit_with_counts();
        self.journal.steps.push_back((step, counts));
        self.gpu.check()
    }

    fn density_scores(&mut self) -> Result<DensityScores> {
        self.settle()?;
        self.scene.scores(&self.gpu, &self.kernels, &mut self.recorder)
    }

    fn reset_density_statistics(&mut self) -> Result<()> {
        self.settle()?;
        for page in &self.scene.pages {
            self.recorder.encoder(&self.gpu).clear_buffer(&page.statistics, 0, None);
        }
        self.recorder.submit(&self.gpu);
        self.gpu.check()
    }

    fn edit(&mut self, edits: &[SplatEdit]) -> Result<()> {
        let len = check_edits(edits, self.scene.len)?;
        self.settle()?;
        // The last picture can still be read.
        self.step.done = if self.step.done >= Pass::Rasterise { Pass::Finished } else { Pass::Start };
        edit::apply(&self.gpu, &self.kernels, &mut self.recorder, &mut self.scene, edits, len)
    }

    fn rendering(&mut self) -> Result<Rendering> {
        let view = self
            .step
            .view
            .filter(|_| self.step.done >= Pass::Rasterise)
            .ok_or_else(|| Error::new(ErrorKind::Internal, "no picture was rasterised"))?;
        let mut rgba: Vec<[f32; 4]> = self.read(pixels(&view), |work, _| work.pixels.picture.clone())?;
        for pixel in &mut rgba {
            pixel[3] = 1.0 - pixel[3];
        }
        Ok(Rendering { width: view.width, height: view.height, rgba })
    }

    fn statistics(&mut self) -> Result<StepStatistics> {
        let counts = self.counts()?;
        let mut statistics = StepStatistics {
            visible: u64::from(counts[VISIBLE]),
            intersections: u64::from(counts[INTERSECTIONS]),
            ..StepStatistics::default()
        };
        if let Some((view, options)) = self.measured {
            let totals: Vec<f32> = self.read(SUMS as usize, |_, training| training.totals.clone())?;
            let count = pixels(&view) as f64;
            let weight = f64::from(options.ssim_weight);
            statistics.l1 = f64::from(totals[0]) / (3.0 * count);
            statistics.ssim = f64::from(totals[1]) / (3.0 * count);
            statistics.loss = (1.0 - weight) * statistics.l1
                + weight * (1.0 - statistics.ssim)
                + f64::from(options.alpha_weight) * f64::from(totals[2]) / count;
        }
        Ok(statistics)
    }
}

impl Inspect for GpuRasteriser {
    fn inspect_projected(&mut self) -> Result<Vec<ProjectedSplat>> {
        self.step.need(Pass::Project)?;
        let len = self.scene.len as usize;
        let tiles: Vec<[u32; 2]> = self.read(len, |work, _| work.splats.tiles.clone())?;
        let records: Vec<[f32; 12]> = self.read(len, |work, _| work.splats.projected.clone())?;
        let two_ln_2 = 2.0 * std::f64::consts::LN_2;
        Ok((0..len)
            .filter(|&i| tiles[i][0] > 0)
            .map(|i| {
                let [u, v, skew_x, skew_y, squeeze, log2_opacity, _, _, r, g, b, depth] =
                    records[i].map(f64::from);
                ProjectedSplat {
                    index: i as u32,
                    mean: [u, v],
                    conic: [skew_x * skew_x, skew_x * skew_y, skew_y * skew_y + squeeze]
                        .map(|x| two_ln_2 * x),
                    depth,
                    opacity: log2_opacity.exp2(),
                    rgb: [r, g, b],
                }
            })
            .collect())
    }

    fn inspect_intersections(&mut self) -> Result<Vec<(u32, u32)>> {
        let view = self.step.need(Pass::Sort)?;
        let count = self.counts()?[INTERSECTIONS] as usize;
        let which = sorted_tiles(&view);
        let keys: Vec<u32> = self.read(count, |work, _| work.intersections.tiles[which].keys.clone())?;
        let sorted: Vec<[u32; 2]> = self.read(count, |work, _| work.intersections.sorted.clone())?;
        let (x, y) = tiles(&view);
        Ok(keys
            .into_iter()
            .zip(sorted)
            .map(|(key, [splat, _])| (key & ((1 << TILE_BITS) - 1), splat))
            .filter(|&(tile, _)| tile < x * y)
            .collect())
    }

    fn inspect_loss_gradient(&mut self) -> Result<Vec<[f32; 4]>> {
        let view = self.step.need(Pass::Loss)?;
        self.read(pixels(&view), |work, _| work.loss.gradient.clone())
    }

    fn inspect_projected_gradient(&mut self) -> Result<Vec<[f64; 9]>> {
        self.step.need(Pass::RasteriseBackward)?;
        let count = self.counts()?[INTERSECTIONS] as usize;
        let slot = SLOT as usize;
        let slots: Vec<f32> = self.read(count * slot, |work, _| work.slots.values.clone())?;
        let tiles: Vec<[u32; 2]> = self.read(self.scene.len as usize, |work, _| work.splats.tiles.clone())?;
        Ok(tiles
            .into_iter()
            .map(|[tiles, first]| {
                let mut sum = [0.0; 9];
                let (mut at, end) = (first, first + tiles.saturating_sub(1));
                while at < end {
                    for (sum, &value) in sum.iter_mut().zip(&slots[at as usize * slot..]) {
                        *sum += f64::from(value);
                    }
                    // The first slot of a whole run holds the sum of the run; see slot_runs.wgsl.
                    at += if at % SLOT_RUN == 0 && at + SLOT_RUN <= end { SLOT_RUN } else { 1 };
                }
                sum
            })
            .collect())
    }

    fn inspect_gradient(&mut self) -> Result<(Splats, [f32; 12])> {
        self.step.need(Pass::RasteriseBackward)?;
        self.settle()?;
        let planes = self.scene.planes();
        let mut gradient = Splats::with_capacity(self.len(), self.scene.sh_degree);
        for number in 0..self.scene.pages.len() {
            let count = self.scene.pages[number].count as usize;
            let values = count.next_multiple_of(256) * planes * 4;
            let collected = self.gpu.buffer("gradient of the splats", values as u64 * 4)?;
            self.passes().collect(number, &collected);
            let data: Vec<f32> = self.recorder.read_as(&self.gpu, &collected, values)?;
            unpack(&data, count, planes, 0, &mut gradient);
        }
        self.recorder.forget_buffers();
        let mut exposure = [0.0; 12];
        if self.step.loss.is_some_and(|(_, options)| options.exposure.is_some()) {
            let totals: Vec<f32> = self.read(SUMS as usize, |_, training| training.totals.clone())?;
            exposure.copy_from_slice(&totals[4..]);
        }
        Ok((gradient, exposure))
    }
}
