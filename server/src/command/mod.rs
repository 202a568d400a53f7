//! One file a command.

pub(crate) mod convert;
mod data;
pub(crate) mod devices;
pub(crate) mod eval;
pub(crate) mod frames;
pub(crate) mod info;
pub(crate) mod jobs;
pub(crate) mod keys;
pub(crate) mod render;
pub(crate) mod run;
pub(crate) mod serve;
pub(crate) mod sfm;
pub(crate) mod train;
pub(crate) mod users;
pub(crate) mod worker;

use clap::ValueEnum;
use libreconstruct::pipeline::Quality;

/// A preset as it is written on the command line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum QualityArgument {
    /// 100 frames, 480 px, 50,000 Gaussians, 2,000 steps: minutes on a CPU
    Preview,
    /// 300 frames (150 on a CPU), 1600 px, 1,000,000 Gaussians, 25,000 steps: for a GPU
    Standard,
    /// 600 frames, 2560 px, 3,000,000 Gaussians, 40,000 steps
    High,
}

impl From<QualityArgument> for Quality {
    fn from(argument: QualityArgument) -> Self {
        match argument {
            QualityArgument::Preview => Quality::Preview,
            QualityArgument::Standard => Quality::Standard,
            QualityArgument::High => Quality::High,
        }
    }
}
