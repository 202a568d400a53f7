//! Edits of density control: copies of splats, moved and resized, in place of others or past the end.

use super::device::Gpu;
use super::kernels::{GROUP, Kernels, PAGE};
use super::recorder::{Groups, Recorder};
use super::scene::{Page, SceneBuffers};
use crate::error::Result;
use crate::raster::SplatEdit;

/// Edits whose sources share a buffer.
const CHUNK: usize = (PAGE / 2) as usize;

/// See the struct `Edit` of edit.wgsl.
#[derive(Debug, Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C)]
struct EditRecord {
    splats: [u32; 2],
    shift: f32,
    log_scale_offset: f32,
    opacity: f32,
    padding: f32,
}

/// Applies edits that were checked; the scene grows.
///
/// # Errors
/// [`crate::ErrorKind::Gpu`] if the memory is full.
pub(super) fn apply(
    gpu: &Gpu,
    kernels: &Kernels,
    recorder: &mut Recorder,
    scene: &mut SceneBuffers,
    edits: &[SplatEdit],
    len: u32,
) -> Result<()> {
    scene.fit_training(gpu, recorder)?;
    scene.resize(gpu, recorder, len)?;
    let mut chunks = Vec::new();
    for edits in edits.chunks(CHUNK) {
        let records: Vec<EditRecord> = edits
            .iter()
            .map(|e| EditRecord {
                splats: [e.destination, e.source],
                shift: e.shift,
                log_scale_offset: e.log_scale_offset,
                opacity: e.opacity,
                padding: 0.0,
            })
            .collect();
        let buffer = gpu.buffer("edits", size_of_val(records.as_slice()) as u64)?;
        gpu.queue.write_buffer(&buffer, 0, bytemuck::cast_slice(&records));
        let lanes = (edits.len() as u64).next_multiple_of(u64::from(GROUP));
        let sources = gpu.buffer("sources of the edits", lanes * 16 * scene.planes() as u64)?;
        chunks.push((buffer, sources, Groups::Linear((edits.len() as u32).div_ceil(GROUP))));
    }
    for (records, sources, groups) in &chunks {
        for Page { uniform, parameters, .. } in &scene.pages {
            let buffers = [uniform, records, sources, parameters];
            recorder.dispatch(gpu, &kernels.gather_sources, &buffers, *groups);
        }
    }
    for (records, sources, groups) in &chunks {
        for Page { uniform, parameters, moments, statistics, .. } in &scene.pages {
            let buffers = [uniform, records, sources, parameters, moments, statistics];
            recorder.dispatch(gpu, &kernels.write_destinations, &buffers, *groups);
        }
    }
    recorder.submit(gpu);
    recorder.forget_buffers();
    gpu.check()
}
