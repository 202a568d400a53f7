//! What a person or a program sees while work runs: bars on a terminal, plain lines elsewhere, JSON lines for machines.

use std::io::{IsTerminal, Write};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle, WeakProgressBar};
use libreconstruct::{CancelToken, Control, Event, Stage};

/// How to show progress.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    /// A bar that moves (standard error is a terminal).
    Bar,
    /// A line now and then.
    Lines,
    /// One JSON object a line on standard output.
    Json,
    /// Nothing but warnings and errors.
    Quiet,
}

impl Mode {
    /// The mode that suits where the output goes.
    pub(crate) fn choose(json: bool, quiet: bool) -> Self {
        match (json, quiet) {
            (true, _) => Mode::Json,
            (_, true) => Mode::Quiet,
            _ if std::io::stderr().is_terminal() => Mode::Bar,
            _ => Mode::Lines,
        }
    }
}

struct Shown {
    stage: Option<Stage>,
    step: String,
    bar: Option<ProgressBar>,
    last_line: Instant,
}

/// The bar of a transfer or of a server's job that was shown last: what is said meanwhile must not be written into it.
static LAST_BAR: Mutex<Option<WeakProgressBar>> = Mutex::new(None);

/// A [`Control`] that shows its events in `mode` and is cancelled by `cancel`.
pub(crate) fn control(mode: Mode, cancel: CancelToken) -> Control {
    let shown = Mutex::new(Shown { stage: None, step: String::new(), bar: None, last_line: Instant::now() });
    Control::new().with_cancel(cancel).with_listener(move |event| {
        let mut shown = shown.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        match mode {
            Mode::Json => print_json(&event),
            Mode::Quiet => {
                if let Event::Warning { warning, .. } = &event {
                    eprintln!("warning: {}", warning.message);
                }
            }
            Mode::Bar => bar(&mut shown, &event),
            Mode::Lines => line(&mut shown, &event),
        }
    })
}

/// Shows how many of `total` bytes are done in `mode`, as `what`: a function to be called again and again, with both numbers.
pub(crate) fn bytes(mode: Mode, what: &'static str) -> impl FnMut(u64, u64) {
    let mut bar: Option<ProgressBar> = None;
    let mut last_line: Option<Instant> = None;
    move |done, total| match mode {
        Mode::Quiet => {}
        Mode::Bar => {
            let bar = bar.get_or_insert_with(|| {
                let style = ProgressStyle::with_template(
                    "{prefix:>8} [{bar:30}] {percent:>3}% {bytes} of {total_bytes}, {eta} left",
                )
                .unwrap_or_else(|_| ProgressStyle::default_bar());
                remembered(ProgressBar::new(total).with_style(style.progress_chars("=> ")).with_prefix(what))
            });
            bar.set_length(total);
            bar.set_position(done);
            if done >= total {
                bar.finish();
            }
        }
        Mode::Lines | Mode::Json => {
            if last_line.is_some_and(|last| last.elapsed() < Duration::from_secs(10)) && done < total {
                return;
            }
            last_line = Some(Instant::now());
            match mode {
                Mode::Json => print_json(
                    &serde_json::json!({ "event": "progress", "step": what, "bytes": done, "total_bytes": total }),
                ),
                _ => eprintln!("{what:>8} {:>3}% of {total} bytes", percent(done, total)),
            }
        }
    }
}

/// The bar, which is the last one from now on.
fn remembered(bar: ProgressBar) -> ProgressBar {
    *LAST_BAR.lock().unwrap_or_else(PoisonError::into_inner) = Some(bar.downgrade());
    bar
}

/// Says in `mode` why something takes longer.
pub(crate) fn waiting(mode: Mode, why: &str) {
    match mode {
        Mode::Quiet => {}
        Mode::Json => print_json(&serde_json::json!({ "event": "waiting", "message": why })),
        Mode::Lines => eprintln!("waiting: {why}"),
        Mode::Bar => {
            let last = LAST_BAR.lock().unwrap_or_else(PoisonError::into_inner);
            match last.as_ref().and_then(WeakProgressBar::upgrade) {
                Some(bar) => bar.println(format!("waiting: {why}")),
                None => eprintln!("waiting: {why}"),
            }
        }
    }
}

/// Shows a job of a server in `mode`: a function to be called with the job again and again. What has not changed is not repeated.
pub(crate) fn job(mode: Mode) -> impl FnMut(&serde_json::Value) {
    let mut bar: Option<ProgressBar> = None;
    let mut before = String::new();
    move |job| {
        let line = job_line(job);
        if line == before {
            return;
        }
        match mode {
            Mode::Quiet => {}
            Mode::Json => print_json(&serde_json::json!({ "event": "job", "job": job })),
            Mode::Lines => eprintln!("{line}"),
            Mode::Bar => {
                let bar = bar.get_or_insert_with(|| {
                    let style = ProgressStyle::with_template("[{bar:30}] {percent:>3}% {msg}, {elapsed}")
                        .unwrap_or_else(|_| ProgressStyle::default_bar());
                    let bar = remembered(ProgressBar::new(100).with_style(style.progress_chars("=> ")));
                    bar.enable_steady_tick(Duration::from_secs(1));
                    bar
                });
                bar.set_position(job["percent_complete"].as_u64().unwrap_or_default());
                bar.set_message(line.clone());
            }
        }
        before = line;
    }
}

/// What a job of a server is doing, for people.
pub(crate) fn job_line(job: &serde_json::Value) -> String {
    let status = job["status"].as_str().unwrap_or("unknown");
    match (status, job["percent_complete"].as_u64()) {
        ("Generating 3D scene", Some(percent)) => format!("{status} ({percent} %)"),
        _ => status.to_owned(),
    }
}

/// How much of `total` is done, in whole percent; all of nothing.
fn percent(done: u64, total: u64) -> u64 {
    (u128::from(done) * 100).checked_div(u128::from(total)).map_or(100, |p| p as u64)
}

/// Prints one JSON object as a line. A reader that has gone away is no reason to stop the work.
pub(crate) fn print_json(value: &impl serde::Serialize) {
    if let Ok(text) = serde_json::to_string(value) {
        let _ = writeln!(std::io::stdout().lock(), "{text}");
    }
}

/// Prints a line on standard output.
pub(crate) fn say(text: &str) {
    let _ = writeln!(std::io::stdout().lock(), "{text}");
}

fn bar(shown: &mut Shown, event: &Event) {
    match event {
        Event::Progress { stage, step, fraction, message, remaining_seconds, .. } => {
            if shown.stage != Some(*stage) {
                if let Some(bar) = shown.bar.take() {
                    bar.finish();
                }
                let style = ProgressStyle::with_template("{prefix:>8} [{bar:30}] {percent:>3}% {msg}")
                    .unwrap_or_else(|_| ProgressStyle::default_bar());
                let bar = ProgressBar::new(1000).with_style(style.progress_chars("=> "));
                bar.set_prefix(stage.name());
                shown.bar = Some(bar);
                shown.stage = Some(*stage);
            }
            if let Some(bar) = &shown.bar {
                bar.set_position((fraction * 1000.0) as u64);
                bar.set_message(with_details(step.to_string(), message.as_deref(), *remaining_seconds));
            }
        }
        Event::Warning { warning, .. } => match &shown.bar {
            Some(bar) => bar.println(format!("warning: {}", warning.message)),
            None => eprintln!("warning: {}", warning.message),
        },
    }
}

fn line(shown: &mut Shown, event: &Event) {
    match event {
        Event::Progress { stage, step, fraction, message, remaining_seconds, .. } => {
            let new_step = shown.stage != Some(*stage) || shown.step != step.as_ref();
            if !new_step && shown.last_line.elapsed() < Duration::from_secs(10) {
                return;
            }
            shown.stage = Some(*stage);
            shown.step = step.to_string();
            shown.last_line = Instant::now();
            let text = format!("{:>8} {:>3.0}% {step}", stage.name(), fraction * 100.0);
            eprintln!("{}", with_details(text, message.as_deref(), *remaining_seconds));
        }
        Event::Warning { warning, .. } => eprintln!("warning: {}", warning.message),
    }
}

/// What is done, and what else is known of it. Of a stage that is done nothing is left to tell.
fn with_details(mut text: String, message: Option<&str>, remaining_seconds: Option<f64>) -> String {
    if let Some(message) = message {
        text += &format!(": {message}");
    }
    if let Some(seconds) = remaining_seconds.filter(|seconds| *seconds > 0.0) {
        text += &format!(", {} left", duration(seconds));
    }
    text
}

/// Seconds as people say them.
pub(crate) fn duration(seconds: f64) -> String {
    let whole = seconds.round().max(0.0) as u64;
    match (whole / 3600, whole / 60 % 60, whole % 60) {
        (0, 0, s) => format!("{s} s"),
        (0, m, s) => format!("{m} min {s:02} s"),
        (h, m, _) => format!("{h} h {m:02} min"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_that_is_left_is_said_as_long_as_there_is_some() {
        let said = |message, seconds| with_details("training".into(), message, seconds);
        assert_eq!(said(Some("step 7 of 9"), Some(65.0)), "training: step 7 of 9, 1 min 05 s left");
        assert_eq!(said(None, Some(12.0)), "training, 12 s left");
        assert_eq!(said(None, None), "training");
        assert_eq!(said(None, Some(0.0)), "training");
    }

    #[test]
    fn durations_read_naturally() {
        assert_eq!(duration(7.4), "7 s");
        assert_eq!(duration(65.0), "1 min 05 s");
        assert_eq!(duration(3.0 * 3600.0 + 125.0), "3 h 02 min");
    }
}
