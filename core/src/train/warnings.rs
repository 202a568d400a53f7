//! What the user is told of a run before its first step.

use std::path::Path;

use super::checkpoint::is_other_file;
use super::dataset::Dataset;
use super::layout::{Layout, TARGET_BYTES_MAX};
use super::options::TrainOptions;
use super::precision;
use crate::control::Warning;
use crate::error::{Error, ErrorKind, Result};

/// What the run will be otherwise than its `options` say.
pub(super) fn of_run(dataset: &Dataset, options: &TrainOptions, layout: &Layout) -> Vec<Warning> {
    let mut warnings = Vec::new();
    if layout.max_side != options.max_resolution {
        let message = format!(
            "{} pictures are trained on at {} pixels: more would take over {} GiB",
            dataset.train.len(),
            dataset.longest_side(layout.max_side),
            TARGET_BYTES_MAX >> 30
        );
        warnings.push(Warning::new("resolution_reduced", message));
    }
    let is_masked = dataset.views.iter().any(|view| view.mask.is_some());
    if options.test_every.is_some() && dataset.test.is_empty() && is_masked {
        let message = "no held-out view shows the object: the scene is not scored";
        warnings.push(Warning::new("no_held_out_view", message));
    }
    warnings.extend(precision::warning(dataset));
    warnings
}

/// Of the checkpoint at `path`, which cannot be continued; nothing if there is none. `is_ours` says that nobody else has a file there.
///
/// # Errors
/// `why` itself, if the fault is not the checkpoint's: it may be a good one, or a file of another kind, which a new run would write
/// over.
pub(super) fn of_checkpoint(path: &Path, is_ours: bool, why: Error) -> Result<Option<Warning>> {
    match why.kind() {
        ErrorKind::NotFound => Ok(None),
        ErrorKind::InvalidFile if !is_ours && is_other_file(path) => Err(why),
        // One of another run, or a damaged one, is no reason to fail: what it would have saved is done again.
        ErrorKind::InvalidFile | ErrorKind::InvalidArgument => {
            // Reports of a service are shown to others: without the folder.
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            let why = why.message().replace(&path.display().to_string(), &name);
            Ok(Some(Warning::new("checkpoint_not_used", format!("training begins anew: {why}"))))
        }
        _ => Err(why),
    }
}
