//! How long each pass takes on the device, by its own clock. For benchmarks: every pass is on its own while it is looked
//! at, so that a whole step takes a little longer than without.

use std::collections::BTreeMap;

use super::device::Gpu;
use crate::error::{Error, ErrorKind, Result};

/// Passes of one submission that can be looked at.
const PASSES: u32 = 1024;

/// What was found out about one pass.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct PassTime {
    /// Seconds of all runs together.
    pub seconds: f64,
    /// How often it ran.
    pub runs: u32,
}

/// Two moments per pass, and what they came to.
#[derive(Debug)]
pub(super) struct Profiler {
    moments: wgpu::QuerySet,
    resolved: wgpu::Buffer,
    /// Passes of the submission under construction.
    names: Vec<&'static str>,
    times: BTreeMap<&'static str, PassTime>,
}

impl Profiler {
    /// # Errors
    /// [`ErrorKind::Gpu`] if the device has no clock that passes can be timed with.
    pub(super) fn new(gpu: &Gpu) -> Result<Self> {
        if !gpu.device.features().contains(wgpu::Features::TIMESTAMP_QUERY) {
            return Err(Error::new(
                ErrorKind::Gpu,
                format!("the graphics device {gpu} cannot time its passes (no timestamp queries)"),
            ));
        }
        let moments = gpu.device.create_query_set(&wgpu::QuerySetDescriptor {
            label: Some("moments"),
            ty: wgpu::QueryType::Timestamp,
            count: 2 * PASSES,
        });
        let resolve = wgpu::BufferUsages::QUERY_RESOLVE;
        let resolved = gpu.buffer_for("moments", u64::from(PASSES) * 16, resolve)?;
        Ok(Self { moments, resolved, names: Vec::new(), times: BTreeMap::new() })
    }

    /// Where the next pass is to write when it begins and ends; none if there are too many.
    pub(super) fn next(&mut self, name: &'static str) -> Option<wgpu::ComputePassTimestampWrites<'_>> {
        let number = self.names.len() as u32;
        (number < PASSES).then(|| {
            self.names.push(name);
            wgpu::ComputePassTimestampWrites {
                query_set: &self.moments,
                beginning_of_pass_write_index: Some(2 * number),
                end_of_pass_write_index: Some(2 * number + 1),
            }
        })
    }

    /// Records the copy of the moments, after the last pass of a submission; its buffer and bytes.
    pub(super) fn resolve(&self, encoder: &mut wgpu::CommandEncoder) -> Option<(&wgpu::Buffer, u64)> {
        let count = 2 * self.names.len() as u32;
        (count > 0).then(|| {
            encoder.resolve_query_set(&self.moments, 0..count, &self.resolved, 0);
            (&self.resolved, u64::from(count) * 8)
        })
    }

    /// Adds up the moments of the last submission.
    pub(super) fn add(&mut self, gpu: &Gpu, moments: &[u8]) {
        let moments: Vec<u64> = bytemuck::pod_collect_to_vec(moments);
        let period = f64::from(gpu.queue.get_timestamp_period()) * 1e-9;
        for (name, moment) in self.names.drain(..).zip(moments.chunks_exact(2)) {
            let time = self.times.entry(name).or_default();
            time.seconds += moment[1].saturating_sub(moment[0]) as f64 * period;
            time.runs += 1;
        }
    }

    /// What was found out since the last call.
    pub(super) fn times(&mut self) -> BTreeMap<&'static str, PassTime> {
        std::mem::take(&mut self.times)
    }
}
