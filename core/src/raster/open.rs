//! Opens the device that does the rasterising.

use super::Rasteriser;
use super::cpu::CpuRasteriser;
use super::device::{AdapterInfo, DeviceChoice};
#[cfg(feature = "gpu")]
use super::gpu;
#[cfg(not(feature = "gpu"))]
use crate::error::Error;
use crate::error::Result;

/// The rasteriser that `choice` asks for.
///
/// # Errors
/// [`crate::ErrorKind::NoGpu`] if a graphics device is asked for and there is none that fits (the message lists those
/// there are); [`crate::ErrorKind::Gpu`] if it cannot be opened. `auto` and `cpu` do not fail.
pub fn open(choice: &DeviceChoice) -> Result<Box<dyn Rasteriser>> {
    match choice {
        DeviceChoice::Cpu => Ok(Box::new(CpuRasteriser::<f32>::new())),
        #[cfg(feature = "gpu")]
        DeviceChoice::Auto => match gpu::GpuRasteriser::new(choice) {
            Ok(rasteriser) => Ok(Box::new(rasteriser)),
            Err(_) => Ok(Box::new(CpuRasteriser::<f32>::new())),
        },
        #[cfg(feature = "gpu")]
        DeviceChoice::Gpu | DeviceChoice::Adapter(_) => Ok(Box::new(gpu::GpuRasteriser::new(choice)?)),
        #[cfg(not(feature = "gpu"))]
        DeviceChoice::Auto => Ok(Box::new(CpuRasteriser::<f32>::new())),
        #[cfg(not(feature = "gpu"))]
        DeviceChoice::Gpu | DeviceChoice::Adapter(_) => Err(Error::new(
            crate::ErrorKind::NoGpu,
            format!("this program was built without support for graphics devices, `{choice}` is asked for"),
        )
        .hint("build it with the feature `gpu`, or use the device `cpu`")),
    }
}

/// The driver's name of the graphics adapter that `auto` takes, which is opened to see whether it works.
///
/// # Errors
/// [`crate::ErrorKind::NoGpu`] if there is none: then `auto` takes the processor. [`crate::ErrorKind::Gpu`] if it cannot be opened.
#[cfg(all(feature = "service", feature = "gpu"))]
pub(crate) fn adapter_of_auto() -> Result<String> {
    Ok(gpu::GpuRasteriser::new(&DeviceChoice::Auto)?.adapter().to_owned())
}

/// The driver's name of the graphics adapter that `auto` takes.
///
/// # Errors
/// [`crate::ErrorKind::NoGpu`], always.
#[cfg(all(feature = "service", not(feature = "gpu")))]
pub(crate) fn adapter_of_auto() -> Result<String> {
    Err(Error::new(crate::ErrorKind::NoGpu, "this program was built without support for graphics devices"))
}

/// The graphics adapters of this machine, in the order in which they are preferred.
pub fn adapters() -> Vec<AdapterInfo> {
    #[cfg(feature = "gpu")]
    return gpu::adapters();
    #[cfg(not(feature = "gpu"))]
    Vec::new()
}
