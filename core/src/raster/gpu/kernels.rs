//! The compute pipelines: which WGSL files make up each pass, compiled once per device.

use super::device::Gpu;
use crate::error::Result;
use crate::raster::{ALPHA_MAX, ALPHA_MIN, DILATION, NEAR, TILE, TRANSMITTANCE_MIN};

/// Threads of a workgroup, in most passes.
pub(super) const GROUP: u32 = 256;
/// Workgroups in a row of a dispatch that is too long for one dimension.
pub(super) const FOLD: u32 = 1 << 15;
/// Pairs that one workgroup sorts.
pub(super) const SORT_BLOCK: u32 = 2048;
/// Splats that share buffers: the moments of a page, its largest buffer, fit the 128 MiB that every device can bind.
pub(super) const PAGE: u32 = 1 << 18;
/// Bits of a tile's number in the key of a pair of splat and tile; above it are the blocks of pixels. See common.wgsl.
pub(super) const TILE_BITS: u32 = 24;
/// Values per slot: what [`rasterise_backward`](Kernels) writes for each intersection.
pub(super) const SLOT: u32 = 10;
/// Slots of one splat that are summed ahead of its update; see slot_runs.wgsl.
pub(super) const SLOT_RUN: u32 = 32;
/// Sums per tile and of the picture that the loss makes; see loss_compare.wgsl.
pub(super) const SUMS: u32 = 16;

/// One compiled entry point.
#[derive(Debug)]
pub(super) struct Kernel {
    pub(super) name: &'static str,
    pub(super) pipeline: wgpu::ComputePipeline,
    pub(super) layout: wgpu::BindGroupLayout,
}

impl Kernel {
    fn new(gpu: &Gpu, name: &'static str, source: &str) -> Self {
        let descriptor = wgpu::ShaderModuleDescriptor {
            label: Some(name),
            source: wgpu::ShaderSource::Wgsl(source.into()),
        };
        let checks = wgpu::ShaderRuntimeChecks::unchecked();
        // SAFETY: the loops of our shaders end: each counts towards a bound that it does not change. Their indices lie within
        // the arrays: they come from counts that the host or a pass before has bounded by the buffers' room, and what comes
        // from a splat's numbers is clamped to the picture before it becomes one.
        let module = unsafe { gpu.device.create_shader_module_trusted(descriptor, checks) };
        let pipeline = gpu.device.create_compute_pipeline(&wgpu::ComputePipelineDescriptor {
            label: Some(name),
            layout: None,
            module: &module,
            entry_point: Some(name),
            compilation_options: wgpu::PipelineCompilationOptions {
                // Every pass writes its workgroup memory before it reads it.
                zero_initialize_workgroup_memory: false,
                ..Default::default()
            },
            cache: None,
        });
        let layout = pipeline.get_bind_group_layout(0);
        Self { name, pipeline, layout }
    }
}

/// The constants that host and shaders share, and the text that all passes share.
fn prelude() -> String {
    let half_log2_e = 0.5 * std::f64::consts::LOG2_E;
    format!(
        "const TILE = {TILE}u;\nconst FOLD = {FOLD}u;\nconst SORT_BLOCK = {SORT_BLOCK}u;\nconst PAGE = {PAGE}u;\n\
         const TILE_BITS = {TILE_BITS}u;\nconst SLOT = {SLOT}u;\n\
         const SLOT_RUN = {SLOT_RUN}u;\nconst SUMS = {SUMS}u;\n\
         const NEAR = {NEAR:?}f;\nconst DILATION = {DILATION:?}f;\nconst ALPHA_MIN = {ALPHA_MIN:?}f;\n\
         const ALPHA_MAX = {ALPHA_MAX:?}f;\nconst TRANSMITTANCE_MIN = {TRANSMITTANCE_MIN:?}f;\n\
         const HALF_LOG2_E = {half_log2_e:?}f;\n{}",
        include_str!("shaders/common.wgsl")
    )
}

impl Kernels {
    /// Compiles everything.
    ///
    /// # Errors
    /// [`crate::ErrorKind::Gpu`] if the driver refuses a shader.
    pub(super) fn new(gpu: &Gpu) -> Result<Self> {
        let prelude = prelude();
        let mut kernels = Self::portable(gpu, &prelude);
        if gpu.has_warps {
            kernels.rasterise_backward =
                Kernel::new(gpu, "rasterise_backward", &backward_by_shuffles(&prelude));
        }
        gpu.check()?;
        Ok(kernels)
    }
}

/// The gradient by the projected splats for devices with [`Gpu::has_warps`].
fn backward_by_shuffles(prelude: &str) -> String {
    [
        prelude,
        include_str!("shaders/pixel.wgsl"),
        include_str!("shaders/sums_by_shuffles.wgsl"),
        include_str!("shaders/rasterise_backward.wgsl"),
    ]
    .concat()
}

macro_rules! kernels {
    ($($(#[$doc:meta])* $name:ident: $($file:literal)+;)*) => {
        /// All passes; the name of a field is that of the entry point.
        #[derive(Debug)]
        pub(super) struct Kernels {
            $($(#[$doc])* pub(super) $name: Kernel,)*
        }

        impl Kernels {
            /// Compiles what every device can do.
            fn portable(gpu: &Gpu, prelude: &str) -> Self {
                Self {
                    $($name: Kernel::new(gpu, stringify!($name), &[
                        prelude, $(include_str!(concat!("shaders/", $file, ".wgsl"))),+
                    ].concat()),)*
                }
            }
        }

        /// Entry point and full text of every pass: what every device can do; what only those with [`Gpu::has_warps`] can.
        #[cfg(test)]
        pub(super) fn sources() -> (Vec<(&'static str, String)>, Vec<(&'static str, String)>) {
            let prelude = prelude();
            let portable = vec![$((stringify!($name), [
                prelude.as_str(), $(include_str!(concat!("shaders/", $file, ".wgsl"))),+
            ].concat())),*];
            (portable, vec![("rasterise_backward", backward_by_shuffles(&prelude))])
        }
    };
}

kernels! {
    project: "rotation" "geometry" "harmonics" "footprint" "project";
    count_visible: "scan256" "counts";
    count_intersections: "scan256" "counts";
    compact: "scan256" "compact";
    sum_tiles: "scan256" "offsets";
    write_offsets: "scan256" "offsets";
    emit: "footprint" "emit";
    count_digits: "radix" "radix_count";
    scan_digits: "scan256" "radix" "radix_scan";
    move_pairs: "scan256" "radix" "radix_move";
    find_ranges: "ranges";
    rasterise: "pixel" "rasterise";
    compare: "sum128" "loss_common" "loss_compare";
    differentiate: "sum128" "loss_common" "loss_gradient";
    sum_loss: "sum128" "loss_sum";
    rasterise_backward: "pixel" "sums_in_rows" "rasterise_backward";
    sum_runs: "slot_runs";
    update: "rotation" "geometry" "harmonics" "gradient" "step_common" "update";
    collect: "rotation" "geometry" "harmonics" "gradient" "collect";
    step_exposure: "loss_common" "step_common" "exposure";
    copy_scores: "scores";
    gather_sources: "rotation" "edit";
    write_destinations: "rotation" "edit";
}
