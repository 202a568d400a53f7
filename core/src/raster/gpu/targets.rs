//! The pictures to be matched: packed on the host, and on the device as long as there is room for them.

use super::device::Gpu;
use super::recorder::Recorder;
use crate::error::{Error, Result};
use crate::raster::Target;

/// Bytes of targets that stay on the device. Beyond it the one unused for longest makes room.
const RESIDENT_BYTES: u64 = 1 << 30;

#[derive(Debug)]
struct Entry {
    width: u32,
    height: u32,
    /// r, g, b, alpha (255 where it is not known) per pixel.
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
            .into_iter()
            .enumerate()
            .map(|(index, target)| {
                let pixels = target.width as usize * target.height as usize;
                let alpha = target.alpha.as_deref();
                if pixels == 0 || target.rgb.len() != pixels * 3 || alpha.is_some_and(|a| a.len() != pixels) {
                    return Err(Error::argument(format!(
                        "target {index} is {}x{} but has {} bytes of colour and {:?} of alpha",
                        target.width,
                        target.height,
                        target.rgb.len(),
                        alpha.map(<[u8]>::len)
                    )));
                }
                let rgba = target
                    .rgb
                    .chunks_exact(3)
                    .enumerate()
                    .map(|(i, p)| u32::from_le_bytes([p[0], p[1], p[2], alpha.map_or(255, |a| a[i])]))
                    .collect();
                Ok(Entry {
                    width: target.width,
                    height: target.height,
                    rgba,
                    has_alpha: alpha.is_some(),
                    resident: None,
                    last_used: 0,
                })
            })
            .collect::<Result<_>>()?;
        Ok(Self { entries, uses: 0 })
    }

    /// Whether target `index` has alpha.
    ///
    /// # Errors
    /// [`crate::ErrorKind::InvalidArgument`] if there is none, or it is not of the size of the rendering.
    pub(super) fn check(&self, index: u32, width: u32, height: u32) -> Result<bool> {
        let Some(entry) = self.entries.get(index as usize) else {
            return Err(Error::argument(format!("target {index} of {} is asked for", self.entries.len())));
        };
        if (entry.width, entry.height) != (width, height) {
            return Err(Error::argument(format!(
                "target {index} is {}x{}, the rendering {width}x{height}",
                entry.width, entry.height
            )));
        }
        Ok(entry.has_alpha)
    }

    /// Target `index` on the device.
    ///
    /// # Errors
    /// [`crate::ErrorKind::InvalidArgument`] if there is none, [`crate::ErrorKind::Gpu`] if the memory is full.
    pub(super) fn buffer(&mut self, gpu: &Gpu, recorder: &mut Recorder, index: u32) -> Result<wgpu::Buffer> {
        self.uses += 1;
        let number = self.entries.len();
        let needed = match self.entries.get_mut(index as usize) {
            None => return Err(Error::argument(format!("target {index} of {number} is asked for"))),
            Some(entry) => {
                entry.last_used = self.uses;
                if let Some(buffer) = &entry.resident {
                    return Ok(buffer.clone());
                }
                entry.rgba.len() as u64 * 4
            }
        };
        let mut resident: u64 = self.entries.iter().flat_map(|e| &e.resident).map(wgpu::Buffer::size).sum();
        while resident > 0 && resident + needed > RESIDENT_BYTES {
            let oldest = self.entries.iter_mut().filter(|e| e.resident.is_some()).min_by_key(|e| e.last_used);
            let Some(buffer) = oldest.and_then(|e| e.resident.take()) else { break };
            resident -= buffer.size();
            recorder.forget_buffers();
        }
        let entry = &mut self.entries[index as usize]; // looked up above
        let buffer = gpu.buffer("target picture", needed)?;
        gpu.queue.write_buffer(&buffer, 0, bytemuck::cast_slice(&entry.rgba));
        entry.resident = Some(buffer.clone());
        Ok(buffer)
    }
}
