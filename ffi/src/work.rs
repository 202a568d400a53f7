//! Work that takes long, and tells of itself.

use std::sync::mpsc;

use libreconstruct::{CancelToken, Control, Error, ErrorKind};

use crate::error::Fault;
use crate::event::Signal;

/// Runs `work` on a thread of its own and tells of its events on this one, so that the caller's function needs no lock.
/// If `tell` says so, this work is cancelled; `token` is not, since it may stop other calls too.
pub(crate) fn told<T: Send>(
    threads: usize,
    token: CancelToken,
    work: impl FnOnce(&Control) -> libreconstruct::Result<T> + Send,
    tell: impl Fn(Signal) -> bool,
) -> Result<T, Fault> {
    let internal = |what: &'static str| {
        move |e: std::io::Error| {
            Error::new(ErrorKind::Io, format!("{what} cannot be started: {e}")).caused_by(e)
        }
    };
    let pool = rayon::ThreadPoolBuilder::new()
        .num_threads(threads)
        .build()
        .map_err(|e| internal("the threads")(std::io::Error::other(e)))?;
    let (sender, receiver) = mpsc::channel();
    let (events, pictures) = (sender.clone(), sender);
    let own = token.child();
    // A send fails only when nobody listens any more.
    let control = Control::new()
        .with_cancel(own.clone())
        .with_listener(move |event| drop(events.send(Signal::Event(event))))
        .with_viewer(move |picture| drop(pictures.send(Signal::Preview(picture))));
    std::thread::scope(|scope| {
        let body = move || pool.install(|| work(&control));
        let worker = std::thread::Builder::new()
            .name("reconstruct".into())
            .spawn_scoped(scope, body)
            .map_err(internal("the thread"))?;
        // The channel ends with the control, and so with the work.
        let mut cancelled = false;
        for signal in receiver {
            if !cancelled && tell(signal) {
                cancelled = true;
                own.cancel();
            }
        }
        match worker.join() {
            Ok(result) => Ok(result?),
            Err(panic) => Err(Fault::panic(panic.as_ref())),
        }
    })
}

#[cfg(test)]
mod tests {
    use libreconstruct::Stage;

    use super::*;
    use crate::error::rc_code;

    #[test]
    fn events_come_on_the_callers_thread_and_can_cancel() {
        let here = std::thread::current().id();
        let token = CancelToken::new();
        let result = told(
            1,
            token.clone(),
            |control| {
                assert_ne!(std::thread::current().id(), here);
                loop {
                    control.check()?;
                    control.progress(Stage::Frames, "counting", 0.5);
                    std::thread::sleep(std::time::Duration::from_millis(1));
                }
                #[allow(unreachable_code, reason = "it tells the type")]
                Ok(())
            },
            |_| {
                assert_eq!(std::thread::current().id(), here);
                true
            },
        );
        assert_eq!(result.unwrap_err().code, rc_code::RC_CANCELLED);
        // It serves again, and still stops what it is given to.
        assert!(!token.is_cancelled());
        assert!(told(1, token.clone(), Control::check, |_| false).is_ok());
        token.cancel();
        let result = told(1, token, Control::check, |_| false);
        assert_eq!(result.unwrap_err().code, rc_code::RC_CANCELLED);
    }

    #[test]
    fn a_panic_of_the_work_is_an_error() {
        let result =
            told(1, CancelToken::new(), |_| -> libreconstruct::Result<()> { panic!("oh") }, |_| false);
        assert_eq!(result.unwrap_err().code, rc_code::RC_PANIC);
    }
}
