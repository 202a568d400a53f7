//! Runs work of the core without the GIL.
//!
//! [`quick`] is for what ends by itself soon, [`wait_for`] for what computes nothing. [`long`] is for what can be cancelled:
//! the work runs on a thread of its own while the calling thread looks ten times a second for Ctrl-C, and passes progress on;
//! so callbacks come from the thread that made the call, at most ten times a second, and an exception in one of them stops
//! the work and comes out of the call.
//!
//! Each call has a rayon pool to itself, so that none waits behind another; pools are kept for the next call. Their threads
//! do not survive `fork`: in a child that uses a pool of its parent every parallel loop would wait for ever, so a child makes
//! its own.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use libreconstruct::{CancelToken, Control, Error, ErrorKind, Event, Result};
use pyo3::prelude::*;
use rayon::{ThreadPool, ThreadPoolBuilder};

use crate::error::{OrRaise, raise, to_json};

/// How often the calling thread looks for signals and passes progress on.
const LOOK: Duration = Duration::from_millis(100);

/// Pools that nobody uses now, with the processes that they belong to and the number of threads that was asked for.
static IDLE: Mutex<Vec<(u32, usize, ThreadPool)>> = Mutex::new(Vec::new());
/// So many of them are kept.
const KEPT: usize = 4;

/// Threads of the pools of the next calls; 0 = as many as rayon makes by itself.
static THREADS: AtomicUsize = AtomicUsize::new(0);
/// A pool has at most this many, as in C.
const MOST_THREADS: usize = 1024;

/// With how many threads the next calls compute: 1 to 1024; 0 = as many as there are processors.
#[pyfunction]
pub(crate) fn set_num_threads(threads: usize) -> PyResult<()> {
    if threads > MOST_THREADS {
        let why = format!("threads is {threads}: 0 to {MOST_THREADS} is allowed");
        return Err(raise(Error::new(ErrorKind::InvalidArgument, why)));
    }
    THREADS.store(threads, Ordering::Relaxed);
    Ok(())
}

/// The number of threads that the next call computes with.
#[pyfunction]
pub(crate) fn num_threads(py: Python<'_>) -> PyResult<usize> {
    quick(py, || Ok(rayon::current_num_threads()))
}

/// A pool that nobody else uses, and the number of threads that was asked for. `try_lock`, since a lock that is held during
/// `fork` stays held in the child.
fn take_pool() -> Result<(usize, ThreadPool)> {
    let threads = THREADS.load(Ordering::Relaxed);
    if let Ok(mut idle) = IDLE.try_lock() {
        while let Some((process, asked, pool)) = idle.pop() {
            if process != std::process::id() {
                // Its threads are the parent's, and do not exist here.
                std::mem::forget(pool);
            } else if asked == threads {
                return Ok((threads, pool));
            }
        }
    }
    let pool = ThreadPoolBuilder::new()
        .num_threads(threads)
        .thread_name(|k| format!("libreconstruct-{k}"))
        .build()
        .map_err(|e| Error::new(ErrorKind::Io, format!("cannot start threads: {e}")))?;
    Ok((threads, pool))
}

fn put_back((threads, pool): (usize, ThreadPool)) {
    if let Ok(mut idle) = IDLE.try_lock()
        && idle.len() < KEPT
    {
        idle.push((std::process::id(), threads, pool));
    }
}

/// A panic becomes an error.
fn guarded<T>(work: impl FnOnce() -> Result<T>) -> Result<T> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
        let text = text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default();
        Err(Error::new(ErrorKind::Internal, format!("a fault of this program: {text}")))
    })
}

fn on_pool<T: Send>(work: impl FnOnce() -> Result<T> + Send) -> Result<T> {
    let pool = take_pool()?;
    let result = guarded(|| pool.1.install(work));
    put_back(pool);
    result
}

/// Runs `work`, which waits for the disk rather than computes, without the GIL.
pub(crate) fn wait_for<T: Send>(py: Python<'_>, work: impl FnOnce() -> Result<T> + Send) -> PyResult<T> {
    py.detach(|| guarded(work)).or_raise()
}

/// Runs `work` without the GIL.
pub(crate) fn quick<T: Send>(py: Python<'_>, work: impl FnOnce() -> Result<T> + Send) -> PyResult<T> {
    py.detach(|| on_pool(work)).or_raise()
}

enum Message {
    Event(Event),
    Done,
}

/// What came during one look.
#[derive(Default)]
struct Heard {
    done: bool,
    warnings: Vec<Event>,
    /// The latest of each stage: earlier progress is out of date, but no stage goes unheard.
    progress: Vec<Event>,
}

impl Heard {
    fn progress(&mut self, event: Event) {
        let stage = |event: &Event| match event {
            Event::Progress { stage, .. } | Event::Warning { stage, .. } => *stage,
        };
        match self.progress.last_mut() {
            Some(last) if stage(last) == stage(&event) => *last = event,
            _ => self.progress.push(event),
        }
    }
}

fn listen(inbox: &mut Receiver<Message>) -> Heard {
    let mut heard = Heard::default();
    let end = Instant::now() + LOOK;
    while !heard.done {
        match inbox.recv_timeout(end.saturating_duration_since(Instant::now())) {
            Ok(Message::Done) | Err(RecvTimeoutError::Disconnected) => heard.done = true,
            Ok(Message::Event(event @ Event::Progress { .. })) => heard.progress(event),
            Ok(Message::Event(event)) => heard.warnings.push(event),
            Err(RecvTimeoutError::Timeout) => break,
        }
    }
    heard
}

/// Runs `work` without the GIL and with a control that Ctrl-C cancels. `listener` is called with events as JSON.
pub(crate) fn long<T: Send>(
    py: Python<'_>,
    listener: Option<&Bound<'_, PyAny>>,
    work: impl FnOnce(&Control) -> Result<T> + Send,
) -> PyResult<T> {
    let cancel = CancelToken::new();
    let (sender, mut inbox) = mpsc::channel();
    let mut control = Control::new().with_cancel(cancel.clone());
    if listener.is_some() {
        let sender = sender.clone();
        // The receiver is there until the work is done.
        control = control.with_listener(move |event| drop(sender.send(Message::Event(event))));
    }
    std::thread::scope(|scope| {
        let body = move || {
            let result = on_pool(|| work(&control));
            let _ = sender.send(Message::Done);
            result
        };
        let worker = std::thread::Builder::new().name("libreconstruct".into()).spawn_scoped(scope, body);
        let worker =
            worker.map_err(|e| raise(Error::new(ErrorKind::Io, format!("cannot start a thread: {e}"))))?;
        let mut stopped: Option<PyErr> = None;
        loop {
            let heard = py.detach(|| listen(&mut inbox));
            if stopped.is_none() {
                let passed = py.check_signals().and_then(|()| {
                    let Some(listener) = listener else { return Ok(()) };
                    heard
                        .warnings
                        .iter()
                        .chain(&heard.progress)
                        .try_for_each(|event| listener.call1((to_json(event)?,)).map(drop))
                });
                if let Err(error) = passed {
                    cancel.cancel();
                    stopped = Some(error);
                }
            }
            if heard.done {
                break;
            }
        }
        let result = py.detach(|| worker.join());
        match (stopped, result) {
            (Some(error), _) => Err(error),
            (None, Ok(result)) => result.or_raise(),
            // Panics are caught inside.
            (None, Err(_)) => Err(raise(Error::new(ErrorKind::Internal, "a thread ended unexpectedly"))),
        }
    })
}
