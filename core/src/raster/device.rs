//! Which device does the rasterising: the caller's wish, and what this machine has.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::Rasteriser;
use super::cpu::CpuRasteriser;
#[cfg(feature = "gpu")]
use super::gpu;
use crate::error::{Error, Result};

/// The caller's wish: `auto`, `cpu`, `gpu`, or part of the name of a graphics adapter.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum DeviceChoice {
    /// A graphics processor (discrete before integrated before virtual) if there is one, else the CPU. Drivers that
    /// compute on the CPU do not count: the CPU implementation is faster than they are.
    #[default]
    Auto,
    /// The CPU implementation.
    Cpu,
    /// The wgpu implementation, even on a driver that computes on the CPU (lavapipe).
    Gpu,
    /// The wgpu implementation on the first adapter whose name contains this (case does not matter).
    Adapter(String),
}

impl FromStr for DeviceChoice {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let name = text.trim();
        match name.to_ascii_lowercase().as_str() {
            "auto" => Ok(Self::Auto),
            "cpu" => Ok(Self::Cpu),
            "gpu" => Ok(Self::Gpu),
            "" => Err(Error::argument("the name of the device is empty")
                .hint("give auto, cpu, gpu or part of the name of a graphics adapter")),
            _ => Ok(Self::Adapter(name.to_owned())),
        }
    }
}

impl TryFrom<String> for DeviceChoice {
    type Error = Error;

    fn try_from(text: String) -> Result<Self> {
        text.parse()
    }
}

impl From<DeviceChoice> for String {
    fn from(choice: DeviceChoice) -> String {
        choice.to_string()
    }
}

impl fmt::Display for DeviceChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.write_str("auto"),
            Self::Cpu => f.write_str("cpu"),
            Self::Gpu => f.write_str("gpu"),
            Self::Adapter(name) => f.write_str(name),
        }
    }
}

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

/// The graphics adapters of this machine, in the order in which they are preferred.
pub fn adapters() -> Vec<AdapterInfo> {
    #[cfg(feature = "gpu")]
    return gpu::adapters();
    #[cfg(not(feature = "gpu"))]
    Vec::new()
}

/// One graphics adapter of this machine, for people.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AdapterInfo {
    /// The driver's name of it.
    pub name: String,
    /// `Vulkan`, `Metal` or `Dx12`.
    pub backend: String,
    /// `discrete`, `integrated`, `virtual`, `cpu` or `other`.
    pub kind: String,
    /// Whether the rasteriser can run on it.
    pub usable: bool,
    /// Why it cannot, or why `auto` does not take it.
    pub reason: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_choice_survives_being_written_and_read() {
        for text in ["auto", "cpu", "gpu", "NVIDIA H200"] {
            let choice: DeviceChoice = text.parse().unwrap();
            assert_eq!(choice.to_string(), text);
            let json = serde_json::to_string(&choice).unwrap();
            assert_eq!(serde_json::from_str::<DeviceChoice>(&json).unwrap(), choice);
        }
        assert_eq!(" GPU ".parse::<DeviceChoice>().unwrap(), DeviceChoice::Gpu);
        assert!(" ".parse::<DeviceChoice>().is_err());
    }
}
