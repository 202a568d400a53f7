//! Cancelling from elsewhere
//!
//! A long call can be cancelled by its own callback, or through an rc_cancel that is given to it and raised by another
//! thread or a signal handler. The call then returns RC_CANCELLED within a few seconds. A callback cancels its own call
//! only: an rc_cancel that was given beside it is not raised.

use libreconstruct::CancelToken;

use crate::entry::infallible;
use crate::handle::{Opaque, opaque};

/// A flag that stops long calls. Once raised it stays so.
pub struct rc_cancel {
    _opaque: [u8; 0],
}

opaque!(rc_cancel, CancelToken, "cancel", b"rc_cancl");

/// A flag that is not raised; free it with rc_cancel_free().
///
/// Thread-safe.
#[unsafe(no_mangle)]
pub extern "C" fn rc_cancel_new() -> *mut rc_cancel {
    infallible(std::ptr::null_mut(), || rc_cancel::make(CancelToken::new()))
}

/// Asks all calls that were given this flag to stop. Does nothing for NULL.
///
/// Thread-safe, and may be called in a signal handler.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rc_cancel_raise(cancel: *const rc_cancel) {
    infallible((), || {
        // A pointer that is none is not reported here: making the message would not be safe in a signal handler.
        if !cancel.is_null() {
            // SAFETY: the caller's promise.
            if let Ok(token) = unsafe { rc_cancel::get(cancel) } {
                token.cancel();
            }
        }
    });
}

/// Whether the flag was raised; false for NULL.
///
/// Thread-safe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rc_cancel_is_raised(cancel: *const rc_cancel) -> bool {
    // SAFETY: the caller's promise.
    unsafe { rc_cancel::look(cancel, false, CancelToken::is_cancelled) }
}

/// Frees a flag. NULL is allowed, and so are calls that still run with it: they keep what they need.
///
/// Thread-safe, while nobody uses the flag.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rc_cancel_free(cancel: *mut rc_cancel) {
    // SAFETY: the caller's promise.
    unsafe { rc_cancel::free(cancel) }
}

/// A token for a call: the caller's, or one of its own for NULL.
///
/// # Safety
/// `cancel` is NULL or a handle.
pub(crate) unsafe fn token_of(cancel: *const rc_cancel) -> Result<CancelToken, crate::error::Fault> {
    if cancel.is_null() {
        return Ok(CancelToken::new());
    }
    // SAFETY: the caller's promise.
    unsafe { rc_cancel::get(cancel) }.cloned()
}
