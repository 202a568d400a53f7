//! `reconstruct devices`: what training can run on.

use clap::Args;
use libreconstruct::Result;
use libreconstruct::raster::{DeviceChoice, adapters, open};

use crate::context::Context;

/// List what training can run on, and what `--device auto` takes
#[derive(Args)]
pub(crate) struct Arguments {}

impl Arguments {
    pub(crate) fn run(&self, context: &Context<'_>) -> Result<()> {
        let adapters = adapters();
        let auto = open(&DeviceChoice::Auto)?.name();
        let cpu = open(&DeviceChoice::Cpu)?.name();
        let mut text = format!("auto takes: {auto}\n  {cpu}");
        for adapter in &adapters {
            let state = if adapter.usable { "usable" } else { "not usable" };
            let reason = adapter.reason.as_ref().map(|r| format!(": {r}")).unwrap_or_default();
            text += &format!("\n  {} ({}, {}), {state}{reason}", adapter.name, adapter.kind, adapter.backend);
        }
        if adapters.is_empty() {
            text += "\n  no graphics adapter (on Debian and Ubuntu: apt-get install mesa-vulkan-drivers libvulkan1)";
        }
        context.result(&serde_json::json!({ "auto": auto, "cpu": cpu, "adapters": adapters }), &text);
        Ok(())
    }
}
