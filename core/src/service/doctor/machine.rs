//! What the work needs of this machine.

use super::finding::Finding;
use crate::error::ErrorKind;
use crate::raster::{self, DeviceChoice};
use crate::{background, video};

pub(super) fn examine(device: &DeviceChoice, findings: &mut Vec<Finding>) {
    if let Err(error) = video::check_tools() {
        let message = format!("{}: every worker of this machine waits", error.message());
        findings.push(Finding::problem("ffmpeg_missing", message, error.hint_text().unwrap_or_default()));
    }
    for protection in video::containment().into_iter().filter(|protection| !protection.holds) {
        findings.push(Finding::note(
            "not_contained",
            format!("around ffmpeg, {} are not confined here: {}", protection.name, protection.detail),
            "SECURITY.md says what that protects from. Who takes videos from strangers should run a kernel and a container that \
             allow it",
        ));
    }
    match raster::open(device) {
        Err(error) => findings.push(Finding::problem(
            "no_device",
            format!(
                "training is to run on {device}, and that cannot be opened: {}: every worker waits",
                error.message()
            ),
            error.hint_text().unwrap_or("see `reconstruct devices`, and the setting reconstruction.device"),
        )),
        Ok(opened) if *device == DeviceChoice::Auto && !raster::adapters().iter().any(|a| a.usable) => {
            findings.push(Finding::note(
                "slow_device",
                format!(
                    "there is no graphics adapter: training runs on {}, many times slower",
                    opened.name()
                ),
                "nothing, if that is meant; else install a Vulkan driver and see `reconstruct devices`",
            ));
        }
        Ok(_) => {}
    }
    if let Err(error) = background::check_model() {
        let wait = "jobs with remove_background wait for a worker that has them";
        let what = match error.kind() {
            ErrorKind::NotFound => {
                format!("the weights that find the object are not installed: {wait}")
            }
            _ => format!("the weights that find the object cannot be used ({}): {wait}", error.message()),
        };
        findings.push(Finding::note("no_mask_model", what, error.hint_text().unwrap_or_default()));
    }
}
