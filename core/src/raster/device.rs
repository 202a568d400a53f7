//! Which device is to do the rasterising, and what a machine has: as values.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

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
