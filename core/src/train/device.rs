//! Chooses what the passes run on.

use serde::{Deserialize, Serialize};

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
