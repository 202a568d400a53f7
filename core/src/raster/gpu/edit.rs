//! Edits of density control: copies of splats with an offset, in place of others or past the end.

use glam::Vec4;

use super::device::Gpu;
use super::kernels::{GROUP, Kernels, PAGE};
use super::recorder::{Groups, Recorder};
use super::scene::SceneBuffers;
use crate::error::{Error, Result};
use crate::raster::SplatEdit;

/// Edits whose sources share a buffer.
const CHUNK: usize = (PAGE / 2) as usize;

/// See the struct `Edit` of edit.wgsl.
#[derive(Debug, Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C)]
struct EditRecord {
    splats: [u32; 4],
    mean_offset: Vec4,
    scale_offset: Vec4,
}

/// Length of the scene after the edits.
///
/// # Errors
/// [`crate::ErrorKind::InvalidArgument`] if a source does not exist, a destination is written twice, or the
/// destinations past the end leave a gap.
pub(super) fn check(edits: &[SplatEdit], len: u32) -> Result<u32> {
    let mut destinations: Vec<u32> = edits.iter().map(|e| e.destination).collect();
    destinations.sort_unstable();
    if let Some(twice) = destinations.windows(2).find(|w| w[0] == w[1]) {
        return Err(Error::argument(format!("splat {} is written by two edits", twice[0])));
    }
    let grown = destinations.iter().filter(|&&d| d >= len).count() as u32;
    if let Some(&last) = destinations.last()
        && u64::from(last) >= u64::from(len) + u64::from(grown)
    {
        return Err(Error::argument(format!(
            "an edit writes splat {last}, but {len} splats grow by {grown} only"
        )));
    }
    if let Some(e) = edits.iter().find(|e| e.source >= len) {
        return Err(Error::argument(format!("an edit reads splat {} of {len}", e.source)));
    }
    Ok(len + grown)
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
    scene.resize(gpu, recorder, len)?;
    let mut chunks = Vec::new();
    for edits in edits.chunks(CHUNK) {
        let records: Vec<EditRecord> = edits
            .iter()
            .map(|e| EditRecord {
                splats: [e.destination, e.source, 0, 0],
                mean_offset: e.mean_offset.extend(0.0),
                scale_offset: e.log_scale_offset.extend(e.opacity),
            })
            .collect();
        let buffer = gpu.buffer("edits", size_of_val(records.as_slice()) as u64)?;
        gpu.queue.write_buffer(&buffer, 0, bytemuck::cast_slice(&records));
        let lanes = (edits.len() as u64).next_multiple_of(u64::from(GROUP));
        let sources = gpu.buffer("sources of the edits", lanes * 16 * scene.planes() as u64)?;
        chunks.push((buffer, sources, Groups::Linear((edits.len() as u32).div_ceil(GROUP))));
    }
    for (records, sources, groups) in &chunks {
        for page in &scene.pages {
            let bindings = [(0, &page.uniform), (1, records), (2, sources), (3, &page.parameters)];
            recorder.dispatch(gpu, &kernels.gather_sources, &bindings, *groups);
        }
    }
    for (records, sources, groups) in &chunks {
        for page in &scene.pages {
            let bindings = [
                (0, &page.uniform),
                (1, records),
                (2, sources),
                (3, &page.parameters),
                (4, &page.moments),
                (5, &page.statistics),
            ];
            recorder.dispatch(gpu, &kernels.write_destinations, &bindings, *groups);
        }
    }
    recorder.submit(gpu);
    recorder.forget_buffers();
    gpu.check()
}
