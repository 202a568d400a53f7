//! Tests of the wgpu implementation. Those that need a device run on any, lavapipe included; without one they are
//! noted as skipped.

mod chain;
mod device;
mod shaders;
mod sorting;
mod steps;

use super::GpuRasteriser;
use crate::error::ErrorKind;
use crate::prerequisites::Prerequisite;
use crate::raster::DeviceChoice;

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
