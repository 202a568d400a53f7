//! Tells of every change of a job's state, for logs, counters and traces.

use std::fmt;
use std::sync::OnceLock;
use std::time::SystemTime;

use crate::job::{JobId, UserId};
use crate::stage::Stage;

/// What became of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct JobChange<'a> {
    /// The job.
    pub job: JobId,
    /// Whose it is, if that is known here: not of a job that was taken from a dead worker or whose files were lost.
    pub user: Option<UserId>,
    /// The number of the attempt, if a worker tells.
    pub attempt: Option<u32>,
    /// The worker, if one tells.
    pub worker: Option<&'a str>,
    /// What happened.
    pub what: JobEvent<'a>,
    /// When it happened. A listener may hear of it a moment later.
    pub when: SystemTime,
}

/// What happens to jobs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum JobEvent<'a> {
    /// It was submitted.
    Queued,
    /// A worker took it.
    Claimed,
    /// Its work came to this stage.
    Stage(Stage),
    /// It waits again at its old place.
    GivenBack {
        /// Why: `unharmed`, `occupied`, `disturbed`, `crashed`, `worker_gone`, or `files_lost` of a job that was finished and is
        /// done again.
        why: &'a str,
    },
    /// It failed for good.
    Failed {
        /// The code that its owner sees.
        code: &'a str,
    },
    /// Its scene is published.
    Finished,
    /// Its worker left it without having changed it: meanwhile it was cancelled, deleted or given to another, or what became of it could
    /// not be written down.
    Left,
    /// Its owner deleted it.
    Deleted,
}

impl JobEvent<'_> {
    /// A word for it: `queued`, `claimed`, `stage`, `given_back`, `failed`, `finished`, `left`, `deleted`.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Queued => "queued",
            Self::Claimed => "claimed",
            Self::Stage(_) => "stage",
            Self::GivenBack { .. } => "given_back",
            Self::Failed { .. } => "failed",
            Self::Finished => "finished",
            Self::Left => "left",
            Self::Deleted => "deleted",
        }
    }

    /// What more is to be said: the stage, the reason, the code.
    pub fn detail(&self) -> Option<&str> {
        match self {
            Self::Stage(stage) => Some(stage.name()),
            Self::GivenBack { why } => Some(why),
            Self::Failed { code } => Some(code),
            Self::Queued | Self::Claimed | Self::Finished | Self::Left | Self::Deleted => None,
        }
    }

    /// Whether a worker that tells this works on the job no longer.
    pub(super) fn ends_attempt(&self) -> bool {
        match self {
            Self::GivenBack { .. } | Self::Failed { .. } | Self::Finished | Self::Left => true,
            Self::Queued | Self::Claimed | Self::Stage(_) | Self::Deleted => false,
        }
    }
}

/// For people.
impl fmt::Display for JobChange<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "job {}: {}", self.job, self.what.name())?;
        if let Some(detail) = self.what.detail() {
            write!(f, " ({detail})")?;
        }
        if let Some(user) = self.user {
            write!(f, ", user {user}")?;
        }
        if let Some(attempt) = self.attempt {
            write!(f, ", attempt {attempt}")?;
        }
        if let Some(worker) = self.worker {
            write!(f, ", worker {worker}")?;
        }
        Ok(())
    }
}

type Listener = Box<dyn Fn(&JobChange<'_>) + Send + Sync>;

/// Who is told in this process.
static LISTENER: OnceLock<Listener> = OnceLock::new();

/// From now on `listener` is told of every change that this process makes, after it is durable, instead of the log; once in the
/// life of the process, later calls change nothing and answer false. It is called on the threads of the work and must be quick.
pub fn on_job_change(listener: impl Fn(&JobChange<'_>) + Send + Sync + 'static) -> bool {
    LISTENER.set(Box::new(listener)).is_ok()
}

/// Tells of a change.
pub(super) fn tell(change: &JobChange<'_>) {
    match LISTENER.get() {
        Some(listener) => listener(change),
        None => log::info!(target: "job", "{change}"),
    }
}

/// Tells of a change that no worker and no owner has made.
pub(super) fn tell_of(job: JobId, what: JobEvent<'_>) {
    tell(&JobChange { job, user: None, attempt: None, worker: None, what, when: SystemTime::now() });
}

/// For tests: what is told in this process.
#[cfg(test)]
pub(in crate::service) mod hearing {
    use std::sync::{Mutex, PoisonError};

    use super::on_job_change;
    use crate::job::JobId;

    static HEARD: Mutex<Vec<(JobId, String)>> = Mutex::new(Vec::new());

    /// Listens from now on, for all tests.
    pub(in crate::service) fn begin() {
        on_job_change(|change| {
            let heard = (change.job, change.to_string());
            HEARD.lock().unwrap_or_else(PoisonError::into_inner).push(heard);
        });
    }

    /// How the changes of `job` read since somebody listens that have this name, the oldest first.
    pub(in crate::service) fn of(job: JobId, event: &str) -> Vec<String> {
        let heard = HEARD.lock().unwrap_or_else(PoisonError::into_inner);
        let begin = format!("job {job}: {event}");
        heard
            .iter()
            .filter(|(of, text)| *of == job && text.starts_with(&begin))
            .map(|(_, t)| t.clone())
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_says_all_that_is_known() {
        let (job, user) = (JobId::random(), UserId::random());
        let what = JobEvent::Stage(Stage::Sfm);
        let when = SystemTime::now();
        let change = JobChange { job, user: Some(user), attempt: Some(2), worker: Some("w/1"), what, when };
        assert_eq!(change.to_string(), format!("job {job}: stage (sfm), user {user}, attempt 2, worker w/1"));
        let what = JobEvent::GivenBack { why: "worker_gone" };
        let change = JobChange { job, user: None, attempt: None, worker: None, what, when };
        assert_eq!(change.to_string(), format!("job {job}: given_back (worker_gone)"));
    }
}
