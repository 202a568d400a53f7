//! Watches over a job that is worked on: gives signs of life, tells how far it is, finds out whether to stop.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use super::super::Service;
use super::super::job_changes::JobEvent;
use super::super::live_picture::LivePictures;
use super::hold::Hold;
use crate::control::{CancelToken, Event, Warning};
use crate::database::{Claim, Lease, LeaseState, Progress};
use crate::stage::Stage;

/// How often progress is written at most: each time is a flush of the disk.
const REPORT: Duration = Duration::from_secs(1);

/// Why a run was stopped before its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stop {
    /// The worker is to end.
    Shutdown,
    /// The job is to be deleted.
    Deleted,
    /// The job is not this worker's any more.
    Lost,
    /// It was worked on for as long as a job may be.
    TooLong,
}

/// How far the work is, as its events tell.
#[derive(Default)]
pub(super) struct Watched {
    pub(super) progress: Option<Progress>,
    /// The stages that began since they were told of last, and when.
    begun: Vec<(Stage, SystemTime)>,
    pub(super) warnings: Vec<Warning>,
}

/// Who watches, over what.
pub(super) struct Watching<'a> {
    pub(super) service: &'a Service,
    pub(super) claim: &'a Claim,
    pub(super) watched: &'a Mutex<Watched>,
    /// None if nobody is to see them.
    pub(super) pictures: Option<&'a LivePictures>,
    /// Whether the worker is to end, and how long it may then take.
    pub(super) cancel: &'a CancelToken,
    pub(super) drain: Duration,
    /// Writes a line to the job's log.
    pub(super) log: &'a dyn Fn(&str),
    /// Tells of a change of the job, and when it was.
    pub(super) tell: &'a dyn Fn(SystemTime, JobEvent<'_>),
}

/// The watching side of a run.
pub(super) struct Watch<'a> {
    of: Watching<'a>,
    lease: &'a Lease,
    hold: Hold<'a>,
    /// Why the work is to stop, if it is.
    pub(super) stop: Option<Stop>,
    /// When the worker was asked to end.
    asked_to_end: Option<Instant>,
    /// When the work was told to stop.
    told_to_stop: Option<Instant>,
    /// Whether nobody waits any longer for the work to stop: the job is no longer kept from others.
    pub(super) is_given_up: bool,
    /// When the job will have been worked on for as long as it may be.
    end: Option<Instant>,
    reported: Option<(Instant, Progress)>,
}

impl<'a> Watch<'a> {
    pub(super) fn new(of: Watching<'a>) -> Self {
        let now = Instant::now();
        let longest = of.service.inner.options.longest_job();
        let end = longest.and_then(|longest| now.checked_add(longest.saturating_sub(of.claim.worked)));
        Self {
            lease: &of.claim.lease,
            hold: Hold::new(of.service, &of.claim.lease),
            of,
            stop: None,
            asked_to_end: None,
            told_to_stop: None,
            is_given_up: false,
            end,
            reported: None,
        }
    }

    /// Tells the database that we live and how far we are; finds out whether to stop.
    pub(super) fn look(&mut self) {
        if self.stop.is_none() && self.of.cancel.is_cancelled() {
            self.stop = Some(Stop::Shutdown);
            self.asked_to_end = Some(Instant::now());
        }
        if self.stop.is_none() && self.end.is_some_and(|end| Instant::now() >= end) {
            self.stop = Some(Stop::TooLong);
        }
        // Also while the work is being stopped: until it has stopped, nobody else should begin.
        if !self.is_given_up {
            let state = self.hold.look();
            self.obey(state);
        }
        self.tell_stages();
        if self.stop.is_none() {
            self.report();
        }
        if self.stop.is_none() {
            self.show_picture();
        }
    }

    /// Gives the job up if its work, which was told to stop, has not done so for `patience`. Says whether it does so now.
    pub(super) fn gives_up_after(&mut self, patience: Duration) -> bool {
        let told = *self.told_to_stop.get_or_insert_with(Instant::now);
        let gives_up = !self.is_given_up && told.elapsed() >= patience;
        self.is_given_up |= gives_up;
        gives_up
    }

    /// Whether a worker that was asked to end has had its time.
    pub(super) fn has_drained(&self) -> bool {
        self.asked_to_end.is_none_or(|moment| moment.elapsed() >= self.of.drain)
    }

    /// Tells of the stages that have begun, also of those that are too short to be written to the job.
    pub(super) fn tell_stages(&mut self) {
        let begun = std::mem::take(&mut self.of.watched.lock().unwrap_or_else(PoisonError::into_inner).begun);
        for (stage, when) in begun {
            (self.of.log)(&format!("stage {stage}"));
            (self.of.tell)(when, JobEvent::Stage(stage));
        }
    }

    fn report(&mut self) {
        let progress = self.of.watched.lock().unwrap_or_else(PoisonError::into_inner).progress;
        let Some(progress) = progress else { return };
        let due = match &self.reported {
            None => true,
            Some((when, before)) => when.elapsed() >= REPORT && *before != progress,
        };
        if !due {
            return;
        }
        self.reported = Some((Instant::now(), progress));
        let state = self.of.service.inner.database.progress(self.lease, &progress);
        let state = self.hold.hear(state);
        self.obey(state);
        self.of.service.inner.changes.notify();
    }

    /// Shows what the scene looks like. If that does not work, the work goes on without.
    fn show_picture(&mut self) {
        let Some(pictures) = self.of.pictures else { return };
        match pictures.take_due() {
            Ok(None) => {}
            Ok(Some(picture)) => {
                let state = self.of.service.inner.database.show_picture(self.lease, &picture);
                let state = self.hold.hear(state);
                self.obey(state);
            }
            Err(error) => log::warn!("job {}: {error:?}", self.lease.job),
        }
    }

    fn obey(&mut self, state: LeaseState) {
        match state {
            LeaseState::Held => {}
            LeaseState::Deleted => self.stop = Some(Stop::Deleted),
            LeaseState::Lost => self.stop = Some(Stop::Lost),
        }
    }
}

impl Watched {
    pub(super) fn hear(&mut self, event: Event) {
        match event {
            Event::Progress { stage, fraction, remaining_seconds, .. } => {
                // A stage that an earlier attempt finished is said to be done at once; that does not take us back.
                if self.progress.is_none_or(|p| (stage, fraction) >= (p.stage, p.fraction)) {
                    if self.progress.is_none_or(|p| stage != p.stage) {
                        self.begun.push((stage, SystemTime::now()));
                    }
                    // `as` saturates: what is longer than anybody lives is that.
                    let seconds_left = remaining_seconds.map(|seconds| seconds.ceil() as u64);
                    let percent = percent(stage, fraction);
                    self.progress = Some(Progress { stage, fraction, percent, seconds_left });
                }
            }
            Event::Warning { warning, .. } => self.warnings.push(warning),
        }
    }
}

/// `percent_complete`: training is the first 95 parts, the files the next four; the last is published, not reached.
fn percent(stage: Stage, fraction: f32) -> Option<u8> {
    let fraction = fraction.clamp(0.0, 1.0);
    match stage {
        Stage::Train => Some((95.0 * fraction) as u8),
        Stage::Export => Some(95 + (4.0 * fraction) as u8),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_heard_of_after_their_archive_was_unpacked() {
        let mut watched = Watched::default();
        let mut hear = |step: &'static str, fraction| {
            let stage = Stage::Frames;
            let (total, remaining_seconds) = (None, None);
            let step = step.into();
            watched.hear(Event::Progress { stage, step, fraction, message: None, total, remaining_seconds });
            watched.progress.map(|progress| progress.fraction)
        };
        assert_eq!(hear("unpacking", 0.0), Some(0.0));
        assert_eq!(hear("unpacking", 0.0), Some(0.0));
        assert_eq!(hear("selecting", 0.3), Some(0.3));
        assert_eq!(hear("selecting", 0.2), Some(0.3));
        assert_eq!(watched.begun.len(), 1);
    }
}
