//! What is said where there is no caller to tell
//!
//! Workers and maintenance have nobody to return an error to: what goes wrong there is logged.

use std::ffi::{c_char, c_int, c_void};
use std::mem::MaybeUninit;
use std::sync::{OnceLock, PoisonError, RwLock};

use crate::argument::choice;
use crate::entry::fallible;
use crate::error::{Fault, rc_code, rc_error};
use crate::text::c_string;

/// How much a line of the log matters.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum rc_log_level {
    /// Nothing is logged.
    RC_LOG_OFF = 0,
    /// Something failed.
    RC_LOG_ERROR = 1,
    /// Something may be wrong.
    RC_LOG_WARN = 2,
    /// What an operator may want to know.
    RC_LOG_INFO = 3,
    /// What a developer may want to know.
    RC_LOG_DEBUG = 4,
}

const LEVELS: [(rc_log_level, log::LevelFilter); 5] = [
    (rc_log_level::RC_LOG_OFF, log::LevelFilter::Off),
    (rc_log_level::RC_LOG_ERROR, log::LevelFilter::Error),
    (rc_log_level::RC_LOG_WARN, log::LevelFilter::Warn),
    (rc_log_level::RC_LOG_INFO, log::LevelFilter::Info),
    (rc_log_level::RC_LOG_DEBUG, log::LevelFilter::Debug),
];

/// A function that takes a line of the log. It is called from any thread, from several at once, must not throw, and must
/// not call this library. `level` is an rc_log_level.
pub type rc_log_fn = Option<unsafe extern "C" fn(user: *mut c_void, level: c_int, message: *const c_char)>;

#[derive(Clone, Copy)]
struct Sink {
    function: unsafe extern "C" fn(*mut c_void, c_int, *const c_char),
    user: *mut c_void,
}

// SAFETY: the header demands of the function, and so of what `user` points to, that any thread may come.
unsafe impl Send for Sink {}
// SAFETY: the same.
unsafe impl Sync for Sink {}

static SINK: RwLock<Option<Sink>> = RwLock::new(None);

struct Logger;

impl log::Log for Logger {
    fn enabled(&self, _: &log::Metadata<'_>) -> bool {
        true
    }

    fn log(&self, record: &log::Record<'_>) {
        // The graphics libraries talk much, at levels that mean something to their authors.
        let ours =
            record.target().starts_with("libreconstruct") || record.target().starts_with("reconstruct");
        if !ours && record.level() > log::Level::Warn {
            return;
        }
        let sink = SINK.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(Sink { function, user }) = *sink {
            let message = c_string(record.args().to_string());
            // SAFETY: whoever set the function promised that it may be called, until another one is set.
            unsafe { function(user, record.level() as c_int, message.as_ptr()) };
        }
    }

    fn flush(&self) {}
}

/// Sends what the library logs, up to `level`, to a function of the caller's; NULL = to nobody, as at the start. It is one
/// for the whole program. When this returns, the function that was there before is not running and will not be called.
///
/// Fails with RC_CONFLICT if the program is one of Rust and has a logger of its own.
///
/// Thread-safe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rc_set_log(
    level: MaybeUninit<rc_log_level>,
    function: rc_log_fn,
    user: *mut c_void,
    error: *mut *mut rc_error,
) -> rc_code {
    static IS_OURS: OnceLock<bool> = OnceLock::new();
    // SAFETY: the caller's promise.
    unsafe {
        fallible(error, || {
            let level = choice(level, "level", &LEVELS)?;
            if !IS_OURS.get_or_init(|| log::set_logger(&Logger).is_ok()) {
                return Err(Fault::of_slug("conflict", "the program has a logger already"));
            }
            *SINK.write().unwrap_or_else(PoisonError::into_inner) =
                function.map(|function| Sink { function, user });
            log::set_max_level(if function.is_some() { level } else { log::LevelFilter::Off });
            Ok(())
        })
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::CStr;
    use std::sync::Mutex;

    use super::*;

    unsafe extern "C" fn keep(user: *mut c_void, level: c_int, message: *const c_char) {
        // SAFETY: `user` is the list below, and the message a string.
        let (lines, message) = unsafe { (&*user.cast::<Mutex<Vec<String>>>(), CStr::from_ptr(message)) };
        lines.lock().unwrap().push(format!("{level} {}", message.to_str().unwrap()));
    }

    #[test]
    fn lines_come_up_to_the_level_until_nobody_wants_them() {
        let lines = Mutex::new(Vec::<String>::new());
        let user: *mut c_void = std::ptr::from_ref(&lines).cast_mut().cast();
        let none = std::ptr::null_mut();
        let set = |level, function, user| {
            // SAFETY: the list outlives the function, which is taken away below.
            unsafe { rc_set_log(MaybeUninit::new(level), function, user, none) }
        };
        assert_eq!(set(rc_log_level::RC_LOG_WARN, Some(keep), user), rc_code::RC_OK);
        log::error!(target: "libreconstruct::service", "one");
        log::warn!(target: "wgpu_hal", "two");
        log::info!(target: "libreconstruct::service", "not asked for");
        assert_eq!(set(rc_log_level::RC_LOG_DEBUG, Some(keep), user), rc_code::RC_OK);
        log::info!(target: "libreconstruct::service", "three");
        log::info!(target: "wgpu_hal", "too much talk");
        assert_eq!(set(rc_log_level::RC_LOG_DEBUG, None, std::ptr::null_mut()), rc_code::RC_OK);
        log::error!(target: "libreconstruct::service", "nobody listens");
        assert_eq!(*lines.lock().unwrap(), ["1 one", "2 two", "3 three"]);
    }
}
