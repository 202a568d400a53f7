//! The wgpu implementation: Vulkan, Metal, DX12.
//!
//! Written to be correct on any device: no float atomics (gradients go to one slot per intersection and are summed in
//! order), no waiting between workgroups, no more than WebGPU's default limits. Where a device runs its threads in warps of 32
//! that can pass values to each other, one pass uses that; its sums then differ in the last bits from those of other devices.
//! Counts stay on the device; see `journal.rs` for what happens when there are more intersections than there is room for.
//! `docs/training.md` has what the passes take.

mod backward;
mod device;
mod edit;
mod forward;
mod gradient_buffers;
mod journal;
mod kernels;
mod profiler;
mod rasteriser;
mod recorder;
mod scene;
mod targets;
#[cfg(test)]
mod tests;
mod view_buffers;

pub use device::adapters;
#[doc(hidden)]
pub use profiler::PassTime;
pub use rasteriser::GpuRasteriser;
