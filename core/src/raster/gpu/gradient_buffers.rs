//! Buffers that only training needs: for the loss of a picture, and for the gradients of the pairs of splat and tile. They are made
//! when a step asks for them, so that who only renders neither holds them nor is held to what the device can bind of them. Their
//! contents do not outlive a step.

use super::device::Gpu;
use super::kernels::{SLOT, SUMS};
use super::recorder::Recorder;
use crate::error::Result;

/// As many as there are pixels or tiles.
#[derive(Debug)]
pub(super) struct LossBuffers {
    /// dL/d(r, g, b, alpha).
    pub(super) gradient: wgpu::Buffer,
    /// Nine planes of derivatives of SSIM; see loss_compare.wgsl.
    pub(super) derivatives: wgpu::Buffer,
    /// [`SUMS`] per tile.
    pub(super) sums: wgpu::Buffer,
    room: u64,
    tile_room: u64,
}

impl LossBuffers {
    pub(super) fn new(gpu: &Gpu, room: u64, tile_room: u64) -> Result<Self> {
        Ok(Self {
            gradient: gpu.buffer("gradients of the pixels", room * 16)?,
            derivatives: gpu.buffer("derivatives of the pixels", room * 36)?,
            sums: gpu.buffer("sums of the tiles", tile_room * u64::from(SUMS) * 4)?,
            room,
            tile_room,
        })
    }

    /// Makes room for a picture of so many pixels and tiles.
    ///
    /// # Errors
    /// [`crate::ErrorKind::Gpu`] if the memory is full or the device cannot bind that much.
    pub(super) fn fit(
        &mut self,
        gpu: &Gpu,
        recorder: &mut Recorder,
        (pixels, tiles): (u64, u64),
    ) -> Result<()> {
        if pixels > self.room || tiles > self.tile_room {
            *self = Self::new(gpu, pixels.max(self.room), tiles.max(self.tile_room))?;
            recorder.forget_buffers();
        }
        Ok(())
    }
}

/// One for each pair of splat and tile, in the order in which they are emitted.
#[derive(Debug)]
pub(super) struct SlotBuffer {
    /// [`SLOT`] values of gradient each.
    pub(super) values: wgpu::Buffer,
    pub(super) room: u32,
}

impl SlotBuffer {
    pub(super) fn new(gpu: &Gpu, room: u32) -> Result<Self> {
        let bytes = u64::from(room) * u64::from(SLOT) * 4;
        Ok(Self { values: gpu.buffer("gradients of the pairs of splat and tile", bytes)?, room })
    }

    /// Most pairs for which the device can bind it.
    pub(super) fn limit(gpu: &Gpu) -> u32 {
        // Two at a time: buffers take a multiple of 16 bytes.
        (gpu.max_binding / (2 * u64::from(SLOT) * 4) * 2).min(1 << 30) as u32
    }

    /// Makes room for so many pairs.
    ///
    /// # Errors
    /// As [`LossBuffers::fit`].
    pub(super) fn fit(&mut self, gpu: &Gpu, recorder: &mut Recorder, pairs: u32) -> Result<()> {
        if pairs > self.room {
            *self = Self::new(gpu, pairs)?;
            recorder.forget_buffers();
        }
        Ok(())
    }
}
