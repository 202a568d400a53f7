//! Records the passes of training: loss, rasterise backward, update.

use super::forward::{Passes, sorted_tiles, tiles};
use super::gradient_buffers::LossBuffers;
use super::kernels::{GROUP, SUMS};
use super::recorder::Groups;
use super::scene::Page;
use super::view_buffers::{FixedBuffers, Indirect, IntersectionBuffers, PixelBuffers, ViewBuffers};
use crate::error::Result;
use crate::raster::{LossOptions, StepOptions, View};

/// See loss_common.wgsl.
const NO_EXPOSURE: u32 = u32::MAX;

/// See the struct `Loss` of loss_common.wgsl.
#[derive(Debug, Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C)]
pub(super) struct LossUniform {
    ssim_weight: f32,
    alpha_weight: f32,
    exposure: u32,
    unused: u32,
    window: [[f32; 4]; 14],
}

/// Weights of SSIM's window, a Gaussian of sigma 1.5 over 11 taps, sum 1: of each of 14 values in the sums of four places next
/// to each other.
fn window() -> [[f32; 4]; 14] {
    let weight = |tap: usize| if tap < 11 { (-0.5 * ((tap as f64 - 5.0) / 1.5).powi(2)).exp() } else { 0.0 };
    let sum: f64 = (0..11).map(weight).sum();
    let of = |value: usize, place: usize| value.checked_sub(place).map_or(0.0, weight) / sum;
    std::array::from_fn(|value| std::array::from_fn(|place| of(value, place) as f32))
}

/// See the struct `Step` of step_common.wgsl.
#[derive(Debug, Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C)]
pub(super) struct StepUniform {
    geometry_rates: [f32; 4],
    rates: [f32; 4],
    decay: [f32; 4],
    correction: [f32; 4],
    key: [u32; 4],
}

impl StepUniform {
    fn new(options: &StepOptions, splats: u32) -> Self {
        let correction = |beta: f32| 1.0 / (1.0 - f64::from(beta).powf(f64::from(options.step)));
        let splats = f64::from(splats);
        Self {
            geometry_rates: [options.lr_means, options.lr_opacities, options.lr_rotations, options.lr_scales],
            rates: [
                options.lr_sh_dc,
                options.lr_sh_rest,
                options.lr_exposure,
                (f64::from(options.noise) * f64::from(options.lr_means)) as f32,
            ],
            decay: [options.beta1, options.beta2, options.epsilon, 0.0],
            correction: [
                correction(options.beta1) as f32,
                correction(options.beta2).sqrt() as f32,
                (f64::from(options.opacity_regularisation) / splats) as f32,
                (f64::from(options.scale_regularisation) / (3.0 * splats)) as f32,
            ],
            key: [options.step, options.seed as u32, (options.seed >> 32) as u32, 0],
        }
    }
}

/// Buffers of the loss and the optimiser, whatever the size of the picture.
#[derive(Debug)]
pub(super) struct TrainingBuffers {
    loss: wgpu::Buffer,
    step: wgpu::Buffer,
    /// [`SUMS`] values; see loss_compare.wgsl.
    pub(super) totals: wgpu::Buffer,
    /// Twelve values per picture.
    pub(super) exposures: wgpu::Buffer,
    /// Twelve values of the first, twelve of the second moment per picture.
    pub(super) exposure_moments: wgpu::Buffer,
}

impl TrainingBuffers {
    pub(super) fn new(gpu: &super::device::Gpu, exposures: usize) -> Result<Self> {
        let uniform = wgpu::BufferUsages::UNIFORM;
        let matrices = exposures.max(1) as u64 * 48;
        Ok(Self {
            loss: gpu.buffer_for("loss", size_of::<LossUniform>() as u64, uniform)?,
            step: gpu.buffer_for("step", size_of::<StepUniform>() as u64, uniform)?,
            totals: gpu.buffer("sums", u64::from(SUMS) * 4)?,
            exposures: gpu.buffer("exposures", matrices)?,
            exposure_moments: gpu.buffer("moments of the exposures", matrices * 2)?,
        })
    }
}

impl Passes<'_> {
    /// Loss and gradient by the picture and the exposure.
    pub(super) fn loss(
        &mut self,
        training: &TrainingBuffers,
        target: &wgpu::Buffer,
        has_alpha: bool,
        view: &View,
        options: &LossOptions,
    ) {
        let ViewBuffers { fixed, pixels, loss: buffers, .. } = self.work;
        let uniform = LossUniform {
            ssim_weight: options.ssim_weight,
            alpha_weight: if has_alpha { options.alpha_weight } else { 0.0 },
            exposure: options.exposure.unwrap_or(NO_EXPOSURE),
            unused: 0,
            window: window(),
        };
        self.gpu.queue.write_buffer(&training.loss, 0, bytemuck::bytes_of(&uniform));
        let PixelBuffers { picture, pixels, .. } = pixels;
        let LossBuffers { gradient, derivatives, sums, .. } = buffers;
        let TrainingBuffers { loss, exposures, totals, .. } = training;
        let (x, y) = tiles(view);
        let compared = [&fixed.view, &fixed.background, loss, picture, target, exposures, derivatives, sums];
        self.dispatch(&self.kernels.compare, &compared, Groups::Grid(x, y));
        let buffers = [&compared[..], &[gradient, pixels]].concat();
        self.dispatch(&self.kernels.differentiate, &buffers, Groups::Grid(x, y));
        self.dispatch(&self.kernels.sum_loss, &[&fixed.view, sums, totals], Groups::Grid(4, 1));
    }

    /// Gradient by the projected splats, slot by slot.
    pub(super) fn rasterise_backward(&mut self, view: &View) {
        let ViewBuffers { fixed, splats, intersections, pixels, loss, slots } = self.work;
        let FixedBuffers { view: uniform, background, counts, .. } = fixed;
        let IntersectionBuffers { sorted, owners, tiles: pairs, .. } = intersections;
        let numbers = &pairs[sorted_tiles(view)].values;
        let PixelBuffers { ranges, picture, pixels, .. } = pixels;
        let (projected, gradient, slots) = (&splats.projected, &loss.gradient, &slots.values);
        let buffers =
            [uniform, background, projected, sorted, numbers, ranges, picture, pixels, gradient, slots];
        let (x, y) = tiles(view);
        self.dispatch(&self.kernels.rasterise_backward, &buffers, Groups::Linear(x * y + 1));
        let runs = self.indirect(Indirect::SortIntersections);
        self.dispatch(&self.kernels.sum_runs, &[counts, owners, slots], runs);
    }

    /// One optimiser step on the visible splats, and on the exposure if the loss used one.
    pub(super) fn update(&mut self, training: &TrainingBuffers, options: &StepOptions, exposure: bool) {
        let ViewBuffers { fixed, splats, slots, .. } = self.work;
        let uniform = StepUniform::new(options, self.scene.len);
        self.gpu.queue.write_buffer(&training.step, 0, bytemuck::bytes_of(&uniform));
        for Page { uniform, parameters, moments, statistics, .. } in &self.scene.pages {
            let (slots, tiles) = (&slots.values, &splats.tiles);
            let buffers =
                [&fixed.view, uniform, parameters, slots, tiles, moments, statistics, &training.step];
            self.dispatch(&self.kernels.update, &buffers, self.indirect(Indirect::Page));
        }
        if exposure {
            let TrainingBuffers { loss, step, totals, exposures, exposure_moments } = training;
            let buffers = [loss, step, totals, exposures, exposure_moments];
            self.dispatch(&self.kernels.step_exposure, &buffers, self.indirect(Indirect::One));
        }
    }

    /// The gradient by the parameters of one page's splats, in the layout of the page.
    pub(super) fn collect(&mut self, page: usize, collected: &wgpu::Buffer) {
        let ViewBuffers { fixed, splats, slots, .. } = self.work;
        let Page { uniform, parameters, count, .. } = &self.scene.pages[page];
        let buffers = [&fixed.view, uniform, parameters, &slots.values, &splats.tiles, collected];
        self.dispatch(&self.kernels.collect, &buffers, Groups::Linear(count.div_ceil(GROUP)));
    }
}
