//! Tests of the wgpu implementation. Those that need a device run on any, lavapipe included; without one they are
//! noted as skipped.

mod chain;
mod device;
mod shaders;
mod sorting;
mod steps;

use super::GpuRasteriser;
use super::device::Gpu;
use crate::error::ErrorKind;
use crate::prerequisites::Prerequisite;
use crate::raster::DeviceChoice;

/// As [`rasteriser`], with the passes that every device can do where this one could do others; none if there is no device or
/// it could not.
fn portable_rasteriser(room: u32) -> Option<GpuRasteriser> {
    let mut gpu = Gpu::open(&DeviceChoice::Gpu).ok()?;
    std::mem::take(&mut gpu.has_warps).then(|| GpuRasteriser::on(gpu, room).unwrap())
}

/// A rasteriser on whatever device there is, with room for so many intersections at first; none if there is none.
fn rasteriser(room: u32) -> Option<GpuRasteriser> {
    match GpuRasteriser::with_room(&DeviceChoice::Gpu, room) {
        Ok(rasteriser) => Some(rasteriser),
        Err(error) if error.kind() == ErrorKind::NoGpu => {
            Prerequisite::Gpu.is_missing("a device for wgpu");
            None
        }
        Err(error) => panic!("{error}"),
    }
}
