//! What the caller holds while work runs: cancel it, and be told how far it is.
//!
//! A [`Control`] goes by reference into every long call. Stages report a fraction of *themselves*; the pipeline turns
//! that into an estimate for the whole. Callbacks come from the thread that runs the stage, so they must be quick;
//! [`Control::with_listener`] says what else they must not do.

use std::borrow::Cow;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use serde::{Deserialize, Serialize};

use crate::error::{Error, ErrorKind, Result};
use crate::remaining_time::RemainingTime;
use crate::stage::Stage;

/// Something that did not stop the work but that the user should know. The code is a stable slug.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Warning {
    /// Stable slug, for example `low_parallax`.
    pub code: Cow<'static, str>,
    /// One sentence with the figures, for a person.
    pub message: String,
}

impl Warning {
    /// A warning with a stable `code` and a sentence for a person.
    pub fn new(code: &'static str, message: impl Into<String>) -> Self {
        Self { code: Cow::Borrowed(code), message: message.into() }
    }
}

/// One thing that a running stage tells its caller.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Event {
    /// How far a stage is.
    Progress {
        /// The stage.
        stage: Stage,
        /// The part of the stage, for example `matching`; shown to people.
        step: Cow<'static, str>,
        /// Fraction of the *stage* that is done, 0 to 1. While a stage runs it never goes back.
        fraction: f32,
        /// Details for people, for example `loss 0.031, 42,000 splats`.
        #[serde(skip_serializing_if = "Option::is_none")]
        message: Option<String>,
        /// Fraction of the whole reconstruction, 0 to 1, where a pipeline runs it.
        #[serde(skip_serializing_if = "Option::is_none")]
        total: Option<f32>,
        /// Estimated seconds until the stage is done, by its rate so far; 0 when it is. None until there is something to go by (more
        /// than a fiftieth of the stage, in more than a second), and of what is only a part of a stage or of the caller's own work
        /// ([`Control::part`]).
        #[serde(skip_serializing_if = "Option::is_none")]
        remaining_seconds: Option<f64>,
    },
    /// A warning; it is also kept in the stage's report.
    Warning {
        /// The stage.
        stage: Stage,
        /// The warning.
        #[serde(flatten)]
        warning: Warning,
    },
}

/// A flag that many threads can look at and any can raise. Once cancelled it stays so.
#[derive(Debug, Clone, Default)]
pub struct CancelToken {
    raised: Arc<AtomicBool>,
    /// What this is a child of.
    above: Option<Arc<CancelToken>>,
}

impl CancelToken {
    /// A token that is not cancelled.
    pub fn new() -> Self {
        Self::default()
    }

    /// Asks the work to stop. It stops at its next check, at the latest after a few seconds.
    pub fn cancel(&self) {
        self.raised.store(true, Ordering::Release);
    }

    /// Whether the work was asked to stop.
    pub fn is_cancelled(&self) -> bool {
        self.raised.load(Ordering::Acquire) || self.above.as_ref().is_some_and(|above| above.is_cancelled())
    }

    /// A token that is cancelled with this one and can be cancelled without it: for one of several that share this one.
    #[must_use]
    pub fn child(&self) -> Self {
        Self { raised: Arc::default(), above: Some(Arc::new(self.clone())) }
    }
}

/// A picture of a scene that is not finished yet: one of its views as it is rendered now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Preview {
    /// Width in pixels.
    pub width: u32,
    /// Height in pixels.
    pub height: u32,
    /// sRGB, 8 bits, row by row, three bytes per pixel.
    pub rgb: Vec<u8>,
}

type Listener = dyn Fn(Event) + Send + Sync;
type Viewer = dyn Fn(Preview) + Send + Sync;

/// The caller's side of a long call: a cancel token, a listener for events, a viewer of previews. Cheap to clone.
///
/// ```
/// use libreconstruct::{Control, ErrorKind, Event, Stage};
///
/// let (sender, events) = std::sync::mpsc::channel();
/// let control = Control::new().with_listener(move |event| {
///     if let Event::Progress { fraction, .. } = event {
///         let _ = sender.send(fraction);
///     }
/// });
/// // What a stage does with it, on a thread of its own.
/// let work = control.clone();
/// let stage = std::thread::spawn(move || {
///     for n in 0..10_000 {
///         work.check()?;
///         work.progress(Stage::Train, "training", n as f32 / 10_000.0);
///         std::thread::sleep(std::time::Duration::from_millis(1));
///     }
///     Ok::<(), libreconstruct::Error>(())
/// });
/// assert!(events.recv().unwrap() < 1.0);
/// control.cancel_token().cancel();
/// assert_eq!(stage.join().unwrap().unwrap_err().kind(), ErrorKind::Cancelled);
/// ```
#[derive(Clone, Default)]
pub struct Control {
    cancel: CancelToken,
    listener: Option<Arc<Listener>>,
    viewer: Option<Arc<Viewer>>,
}

impl Control {
    /// A control that is never cancelled and that nobody listens to.
    pub fn new() -> Self {
        Self::default()
    }

    /// Uses this cancel token.
    #[must_use]
    pub fn with_cancel(mut self, cancel: CancelToken) -> Self {
        self.cancel = cancel;
        self
    }

    /// Sends events to `listener`, from whichever thread works; those of a stage's progress one at a time, so that what reports
    /// meanwhile waits. What is done at progress should be quick, and must not compute on rayon, in whatever pool, nor wait for
    /// what does: a thread that waits for such work takes up another piece of the stage, and if that reports too, it waits for
    /// itself for ever. What takes longer is for a thread of the listener's own.
    #[must_use]
    pub fn with_listener(mut self, listener: impl Fn(Event) + Send + Sync + 'static) -> Self {
        self.listener = Some(Arc::new(listener));
        self
    }

    /// Sends pictures of the growing scene to `viewer`, every few seconds of training. The result is the same with and
    /// without.
    #[must_use]
    pub fn with_viewer(mut self, viewer: impl Fn(Preview) + Send + Sync + 'static) -> Self {
        self.viewer = Some(Arc::new(viewer));
        self
    }

    /// The cancel token, to raise it from elsewhere.
    pub fn cancel_token(&self) -> &CancelToken {
        &self.cancel
    }

    /// # Errors
    /// [`ErrorKind::Cancelled`] once the token is raised. Every loop that can take longer than a second calls this.
    pub fn check(&self) -> Result<()> {
        if self.cancel.is_cancelled() {
            return Err(Error::new(ErrorKind::Cancelled, "cancelled"));
        }
        Ok(())
    }

    /// Reports that `fraction` (0 to 1) of `stage` is done and that it is now at `step`.
    pub fn progress(&self, stage: Stage, step: impl Into<Cow<'static, str>>, fraction: f32) {
        self.report(stage, step.into(), fraction, None);
    }

    /// Like [`Control::progress`], with details for people.
    pub fn progress_with(
        &self,
        stage: Stage,
        step: impl Into<Cow<'static, str>>,
        fraction: f32,
        message: impl Into<String>,
    ) {
        self.report(stage, step.into(), fraction, Some(message.into()));
    }

    fn report(&self, stage: Stage, step: Cow<'static, str>, fraction: f32, message: Option<String>) {
        let fraction = fraction.clamp(0.0, 1.0);
        self.send(Event::Progress { stage, step, fraction, message, total: None, remaining_seconds: None });
    }

    /// A control for a part of the work: what it reports as 0 to 1 is `from` to `to` of the whole. The seconds that the part will still
    /// take are not those of the whole, and are not passed on.
    #[must_use]
    pub fn part(&self, from: f32, to: f32) -> Self {
        let whole = self.clone();
        self.clone().with_listener(move |mut event| {
            if let Event::Progress { fraction, remaining_seconds, .. } = &mut event {
                *fraction = from + (to - from) * *fraction;
                // What it says is of the part alone.
                *remaining_seconds = None;
            }
            whole.send(event);
        })
    }

    /// A control for a whole stage: its fractions never go back, and come with the estimated seconds until the stage is done. Of
    /// one within another the outermost counts.
    #[must_use]
    pub(crate) fn with_remaining_time(&self) -> Self {
        self.telling_remaining_time(Instant::now)
    }

    fn telling_remaining_time(&self, now: impl Fn() -> Instant + Send + Sync + 'static) -> Self {
        let outer = self.clone();
        let remaining = Mutex::new(RemainingTime::default());
        self.clone().with_listener(move |mut event| {
            let Event::Progress { fraction, remaining_seconds, .. } = &mut event else {
                return outer.send(event);
            };
            // Held until the event is passed on, so that no thread overtakes another. Of stages within each other the inner one's is
            // taken first, always. No listener may run work on rayon meanwhile (`with_listener` says why), and none of this crate's
            // does so at progress; warnings pass without the lock. A listener that panicked elsewhere leaves at worst an old start
            // time.
            let mut remaining = remaining.lock().unwrap_or_else(PoisonError::into_inner);
            (*fraction, *remaining_seconds) = remaining.hear(*fraction, now());
            outer.send(event);
        })
    }

    /// Passes a warning on.
    pub fn warn(&self, stage: Stage, warning: Warning) {
        self.send(Event::Warning { stage, warning });
    }

    /// Shows a picture of the scene, which is made only if somebody looks.
    pub(crate) fn show(&self, picture: impl FnOnce() -> Preview) {
        if let Some(viewer) = &self.viewer {
            viewer(picture());
        }
    }

    /// Hands an event to the listener as it is.
    pub(crate) fn send(&self, event: Event) {
        if let Some(listener) = &self.listener {
            listener(event);
        }
    }
}

impl fmt::Debug for Control {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Control")
            .field("cancelled", &self.cancel.is_cancelled())
            .field("listener", &self.listener.is_some())
            .field("viewer", &self.viewer.is_some())
            .finish()
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::time::Duration;

    use super::*;

    /// The fractions that were told, with the seconds that were left.
    pub(crate) type Told = Arc<Mutex<Vec<(f32, Option<f64>)>>>;

    /// A control whose listener takes so long over the first progress that it hears that all later one has a rate, and `pause` over
    /// each later one; and what it hears.
    pub(crate) fn told_slowly(pause: Duration) -> (Control, Told) {
        let told = Told::default();
        let sink = told.clone();
        let control = Control::new().with_listener(move |event| {
            let Event::Progress { fraction, remaining_seconds, .. } = event else { return };
            let mut sink = sink.lock().unwrap();
            std::thread::sleep(if sink.is_empty() { Duration::from_millis(1100) } else { pause });
            sink.push((fraction, remaining_seconds));
        });
        (control, told)
    }

    /// What a stage told slowly never went back, and had the seconds that were left from its second part on, to the end.
    pub(crate) fn assert_seconds_were_told(told: &Told) {
        let told = told.lock().unwrap();
        assert!(told.is_sorted_by(|a, b| a.0 <= b.0), "{told:?}");
        assert_eq!(told.first().map(|first| first.1), Some(None), "{told:?}");
        assert_eq!(told.last(), Some(&(1.0, Some(0.0))), "{told:?}");
    }

    #[test]
    fn a_part_reports_its_share_and_is_cancelled_with_the_whole() {
        let seen = Arc::new(Mutex::new(Vec::new()));
        let sink = seen.clone();
        let whole = Control::new().with_listener(move |e| sink.lock().unwrap().push(e));
        let part = whole.part(0.5, 0.75);
        part.progress(Stage::Sfm, "matching", 0.5);
        assert!(
            matches!(&seen.lock().unwrap()[0], Event::Progress { fraction, .. } if (*fraction - 0.625).abs() < 1e-6)
        );
        whole.cancel_token().cancel();
        assert!(part.check().is_err());
    }

    #[test]
    fn a_stage_alone_tells_the_seconds_that_are_left_once_it_has_moved() {
        let seen = Arc::new(Mutex::new(Vec::new()));
        let sink = seen.clone();
        let outer = Control::new().with_listener(move |event| {
            if let Event::Progress { fraction, remaining_seconds, .. } = event {
                sink.lock().unwrap().push((fraction, remaining_seconds));
            }
        });
        let (start, passed) = (Instant::now(), Arc::new(Mutex::new(Duration::ZERO)));
        let clock = |passed: &Arc<Mutex<Duration>>| {
            let passed = passed.clone();
            move || start + *passed.lock().unwrap()
        };
        let stage = outer.telling_remaining_time(clock(&passed));
        // What a part takes is no time of the whole.
        let part = stage.part(0.0, 0.5).telling_remaining_time(clock(&passed));
        part.progress(Stage::Sfm, "matching", 0.0);
        *passed.lock().unwrap() = Duration::from_secs(10);
        part.progress(Stage::Sfm, "matching", 0.0);
        part.progress(Stage::Sfm, "matching", 0.5);
        stage.progress(Stage::Sfm, "mapping", 0.125);
        stage.progress(Stage::Sfm, "done", 1.0);
        let told = [(0.0, None), (0.0, None), (0.25, Some(30.0)), (0.25, Some(30.0)), (1.0, Some(0.0))];
        assert_eq!(*seen.lock().unwrap(), told);
        // Nor does a caller who gives a stage a part of his own bar hear of that part's end.
        let own = outer.part(0.0, 0.5).telling_remaining_time(clock(&passed));
        own.progress(Stage::Sfm, "matching", 0.0);
        *passed.lock().unwrap() = Duration::from_secs(20);
        own.progress(Stage::Sfm, "matching", 0.5);
        assert_eq!(seen.lock().unwrap()[5..], [(0.0, None), (0.25, None)]);
        own.cancel_token().cancel();
        assert!(outer.check().is_err());
    }

    #[test]
    fn a_child_is_cancelled_with_what_is_above_it_and_by_itself() {
        let above = CancelToken::new();
        let (one, other) = (above.child(), above.child());
        one.cancel();
        assert!(one.is_cancelled() && one.clone().is_cancelled() && one.child().is_cancelled());
        assert!(!above.is_cancelled() && !other.is_cancelled() && !other.child().is_cancelled());
        above.cancel();
        assert!(other.is_cancelled() && other.child().is_cancelled() && above.child().is_cancelled());
    }

    #[test]
    fn a_part_shows_its_pictures_to_the_viewer_of_the_whole() {
        Control::new().show(|| unreachable!("a picture that nobody looks at is not made"));
        let seen = Arc::new(Mutex::new(Vec::new()));
        let sink = seen.clone();
        let whole = Control::new().with_viewer(move |p| sink.lock().unwrap().push(p));
        let picture = Preview { width: 1, height: 1, rgb: vec![1, 2, 3] };
        whole.part(0.5, 0.75).show(|| picture.clone());
        assert_eq!(*seen.lock().unwrap(), [picture]);
    }
}
