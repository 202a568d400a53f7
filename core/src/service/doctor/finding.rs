//! What was found.

use std::path::PathBuf;
use std::time::Duration;

use serde::Serialize;

use crate::database::RowsFile;
use crate::error::Error;
use crate::job::JobId;
use crate::storage::BlobKey;

/// All that was found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Diagnosis {
    /// Problems first.
    pub findings: Vec<Finding>,
}

impl Diagnosis {
    pub(super) fn of(mut findings: Vec<Finding>) -> Self {
        findings.sort_by_key(|finding| finding.severity);
        Self { findings }
    }

    /// This one and another together.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self::of([self.findings, other.findings].concat())
    }

    /// How many problems there are.
    pub fn problems(&self) -> usize {
        self.findings.iter().filter(|finding| finding.severity == Severity::Problem).count()
    }
}

/// How much a finding matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// Something is wrong: it should be seen to.
    Problem,
    /// Good to know.
    Note,
}

/// Something that was found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// Stable slug, for example `scene_lost`.
    pub code: &'static str,
    /// How much it matters.
    pub severity: Severity,
    /// What was found, and what follows from it.
    pub message: String,
    /// What to do about it.
    pub advice: String,
    /// Whether [`Service::repair`](crate::service::Service::repair) can see to it.
    pub repairable: bool,
    #[serde(skip)]
    pub(super) repair: Option<Repair>,
}

/// What can be done safely.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Repair {
    /// The rows no longer name a file that is lost; one of the wrong size is put aside.
    Lose(RowsFile),
    /// Files that no row names are put aside.
    SetAside(Vec<BlobKey>),
    /// Files that were never complete, and that nobody touched for so long, are removed.
    RemoveStaged(Duration),
    /// Workspaces of jobs that have ended are removed.
    RemoveWorkspaces(Vec<JobId>),
    /// Files are removed that mean nothing any more.
    RemoveLocks(Vec<PathBuf>),
    /// Others' rights are taken away.
    #[cfg_attr(not(unix), expect(dead_code, reason = "files have no such rights there"))]
    Restrict(Vec<PathBuf>),
}

impl Finding {
    pub(super) fn problem(code: &'static str, message: impl Into<String>, advice: impl Into<String>) -> Self {
        let (message, advice) = (message.into(), advice.into());
        Self { code, severity: Severity::Problem, message, advice, repairable: false, repair: None }
    }

    pub(super) fn note(code: &'static str, message: impl Into<String>, advice: impl Into<String>) -> Self {
        Self { severity: Severity::Note, ..Self::problem(code, message, advice) }
    }

    /// Something that could not be looked at.
    pub(super) fn unreadable(error: &Error) -> Self {
        let advice =
            error.hint_text().unwrap_or("see to it that this user can read the folder, then look again");
        Self::problem("unreadable", error.message(), advice)
    }

    /// The same, with what can be done.
    pub(super) fn with(self, repair: Repair) -> Self {
        Self { repairable: true, repair: Some(repair), ..self }
    }
}

/// The first of some names, and how many there are.
pub(super) fn some_of(names: &[String]) -> String {
    const SHOWN: usize = 3;
    let shown = names.iter().take(SHOWN).cloned().collect::<Vec<_>>().join(", ");
    match names.len().saturating_sub(SHOWN) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}
