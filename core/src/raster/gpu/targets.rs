//! The pictures to be matched: packed on the host, and on the device as long as there is room for them.

use rayon::prelude::*;

use super::device::Gpu;
use super::recorder::Recorder;
use crate::error::Result;
use crate::raster::check::check_target;
use crate::raster::{Target, TargetId, View};

/// Bytes of targets that stay on a device whose memory is not known,
const RESIDENT_BYTES: u64 = 1 << 30;
/// and the part of its memory that they may take where it is. The rest is for the splats.
const RESIDENT_PART: u64 = 4;

#[derive(Debug)]
struct Entry {
    width: u32,
    height: u32,
    /// r, g, b, alpha (255 where it is not known) per pixel; see `is_hidden` of loss_common.wgsl.
    rgba: Vec<u32>,
    has_alpha: bool,
    resident: Option<wgpu::Buffer>,
    last_used: u64,
}

/// All targets.
#[derive(Debug, Default)]
pub(super) struct Targets {
    entries: Vec<Entry>,
    uses: u64,
}

impl Targets {
    /// # Errors
    /// [`crate::ErrorKind::InvalidArgument`] if a target's arrays do not have its size.
    pub(super) fn new(targets: Vec<Target>) -> Result<Self> {
        let entries = targets
            .into_par_iter()
            .enumerate()
            .map(|(index, target)| {
                target.check(index)?;
                let pixels = target.width as usize * target.height as usize;
                let rgba = (0..pixels).map(|pixel| u32::from_le_bytes(target.packed(pixel))).collect();
                Ok(Entry {
                    width: target.width,
                    height: target.height,
                    rgba,
                    has_alpha: target.alpha.is_some(),
                    resident: None,
                    last_used: 0,
                })
            })
            .collect::<Result<_>>()?;
        Ok(Self { entries, uses: 0 })
    }

    /// How many are on the device.
    #[cfg(test)]
    pub(super) fn resident(&self) -> usize {
        self.entries.iter().filter(|e| e.resident.is_some()).count()
    }

    /// Target `id` on the device, and whether it has alpha.
    ///
    /// # Errors
    /// [`crate::ErrorKind::InvalidArgument`] if there is none, or it is not of the size of the rendering;
    /// [`crate::ErrorKind::Gpu`] if the memory is full.
    pub(super) fn buffer(
        &mut self,
        gpu: &Gpu,
        recorder: &mut Recorder,
        id: TargetId,
        view: &View,
    ) -> Result<(wgpu::Buffer, bool)> {
        let sizes = self.entries.iter().map(|e| (e.width, e.height));
        check_target(id, sizes, (view.width, view.height))?;
        self.uses += 1;
        let entry = &mut self.entries[id as usize];
        entry.last_used = self.uses;
        if let Some(buffer) = &entry.resident {
            return Ok((buffer.clone(), entry.has_alpha));
        }
        let needed = entry.rgba.len() as u64 * 4;
        let room = gpu.memory.map_or(RESIDENT_BYTES, |memory| memory / RESIDENT_PART);
        let mut resident: u64 = self.entries.iter().flat_map(|e| &e.resident).map(wgpu::Buffer::size).sum();
        let mut reused = None;
        while reused.is_none() && resident > 0 && resident + needed > room {
            let oldest = self.entries.iter_mut().filter(|e| e.resident.is_some()).min_by_key(|e| e.last_used);
            let Some(buffer) = oldest.and_then(|e| e.resident.take()) else { break };
            resident -= buffer.size();
            if buffer.size() == needed.next_multiple_of(16) {
                // Pictures of one size take each other's place, and what was made for the buffer stays good. What was
                // recorded for it reads the picture before.
                recorder.submit(gpu);
                reused = Some(buffer);
            } else {
                recorder.forget_buffers();
            }
        }
        let buffer = match reused {
            Some(buffer) => buffer,
            None => gpu.buffer("target picture", needed)?,
        };
        let entry = &mut self.entries[id as usize];
        gpu.queue.write_buffer(&buffer, 0, bytemuck::cast_slice(&entry.rgba));
        entry.resident = Some(buffer.clone());
        Ok((buffer, entry.has_alpha))
    }
}
