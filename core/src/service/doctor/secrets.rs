//! The secrets of the service.

use std::path::Path;

use super::finding::Finding;
use crate::database::{JobDatabase, SqliteDatabase};
use crate::service::layout;
use crate::service::secrets::Secrets;

pub(super) fn examine(folder: &Path, rows: Option<&SqliteDatabase>, findings: &mut Vec<Finding>) {
    let path = folder.join(layout::SECRETS);
    if path.exists() {
        if let Err(error) = Secrets::read(&path) {
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
