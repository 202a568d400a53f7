//! The secrets of the service.

use std::path::Path;

use super::finding::Finding;
use crate::database::JobDatabase;
use crate::service::secrets::Secrets;
#[cfg(feature = "postgres")]
use crate::service::secrets::SecretsSource;

/// `path` is their file.
pub(super) fn examine(path: &Path, rows: Option<&dyn JobDatabase>, findings: &mut Vec<Finding>) {
    if path.exists() {
        if let Err(error) = Secrets::read(path) {
            findings.push(Finding::problem(
                "secrets_unreadable",
                format!("{}: no server can be started", error.message()),
                error.hint_text().unwrap_or("see to it that the user of the service can read it"),
            ));
        }
        return;
    }
    let keys = rows.and_then(|rows| rows.statistics().ok()).map_or(0, |statistics| statistics.keys);
    if keys > 0 {
        findings.push(Finding::problem(
            "secrets_lost",
            format!("{} is missing: {keys} API keys cannot be checked without it", path.display()),
            "copy it from a backup before a server is started: that makes a new one, and all API keys have to be made anew",
        ));
    }
}

/// Those that many machines have alike.
#[cfg(feature = "postgres")]
pub(super) fn examine_shared(source: &SecretsSource, findings: &mut Vec<Finding>) {
    if let Err(error) = source.read() {
        findings.push(Finding::problem(
            "secrets_unreadable",
            format!("{}: no server can be started on this machine", error.message()),
            error.hint_text().unwrap_or("give this machine the secrets that the others have"),
        ));
    }
}
