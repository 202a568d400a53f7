//! Tests of the wgpu implementation. Those that need a device run on any, lavapipe included; without one they say so
//! and pass.

mod chain;
mod device;
mod shaders;
mod sorting;
mod steps;

use super::GpuRasteriser;
use crate::error::ErrorKind;
use crate::raster::DeviceChoice;

/// A rasteriser on whatever device there is, with room for so many intersections at first; none if there is none.
fn rasteriser(room: u32) -> Option<GpuRasteriser> {
    match GpuRasteriser::with_room(&DeviceChoice::Gpu, room) {
        Ok(rasteriser) => Some(rasteriser),
        Err(error) if error.kind() == ErrorKind::NoGpu => {
            println!("SKIPPED: {error}");
            None
        }
        Err(error) => panic!("{error}"),
    }
}
