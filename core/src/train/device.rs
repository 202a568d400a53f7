//! Chooses what the passes run on.

use serde::{Deserialize, Serialize};

use crate::error::{Error, ErrorKind, Result};
use crate::raster::Rasteriser;
use crate::raster::cpu::CpuRasteriser;

/// What training runs on.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DeviceChoice {
    /// A real graphics device if there is one, else the CPU.
    #[default]
    Auto,
    /// The CPU.
    Cpu,
    /// A graphics device, a software one too.
    Gpu,
}

/// An empty rasteriser on the chosen device.
///
/// # Errors
/// `NoGpu` if `gpu` was asked for and there is none that can be used.
pub fn open_device(choice: DeviceChoice) -> Result<Box<dyn Rasteriser>> {
    match choice {
        DeviceChoice::Auto | DeviceChoice::Cpu => Ok(Box::new(CpuRasteriser::<f32>::new())),
        DeviceChoice::Gpu => Err(Error::new(ErrorKind::NoGpu, "this build cannot use a graphics device")
            .hint("use the device cpu, or auto")),
    }
}
