//! What a worker is, and when it ends.

use std::time::Duration;

/// How long a worker that is asked to end may take to store its job, if nothing else is said: Kubernetes gives 30 seconds.
const DRAIN: Duration = Duration::from_secs(25);

/// When a worker ends by itself.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum WorkerEnd {
    /// Never.
    #[default]
    Never,
    /// When there was no job for it for this long, or when its machine could not work for this long: then with what keeps it from
    /// that.
    Idle(Duration),
    /// After one job, however that ended; it waits for one for as long as it takes, also for its machine to work again.
    OneJob,
    /// After one job, or as [`WorkerEnd::Idle`].
    OneJobOrIdle(Duration),
}

impl WorkerEnd {
    /// How long it waits for a job, or for its machine, at most.
    pub(super) fn patience(self) -> Option<Duration> {
        match self {
            WorkerEnd::Never | WorkerEnd::OneJob => None,
            WorkerEnd::Idle(limit) | WorkerEnd::OneJobOrIdle(limit) => Some(limit),
        }
    }

    pub(super) fn is_after_one(self) -> bool {
        matches!(self, WorkerEnd::OneJob | WorkerEnd::OneJobOrIdle(_))
    }
}

/// What a worker is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkerOptions {
    /// For people; shown beside the jobs that it holds.
    pub name: String,
    /// Threads of its rayon pool; 0 = as many as there are processors.
    pub threads: usize,
    /// How much it yields to others, 0 (not) to 19 (to everybody), as `nice` counts.
    pub niceness: u8,
    /// When it ends by itself.
    pub end: WorkerEnd,
    /// When it is asked to end: how long after that it may go on to store how far its job is, for other machines. Where the
    /// rows are in a folder nothing has to be stored.
    pub drain: Duration,
    /// Whether users are to see what their scenes look like while they are trained ([`Service::live_picture`](super::Service::live_picture)):
    /// of use where something shows it to them.
    pub live_pictures: bool,
}

impl Default for WorkerOptions {
    fn default() -> Self {
        Self {
            name: "worker".into(),
            threads: 0,
            niceness: 10,
            end: WorkerEnd::Never,
            drain: DRAIN,
            live_pictures: false,
        }
    }
}
