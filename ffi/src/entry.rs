//! Where every call comes in: catches panics and hands errors out.

use std::any::Any;
use std::borrow::Cow;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::argument::Output;
use crate::error::{Fault, rc_code, rc_error};

/// Runs the body of a function that can fail. On failure, and only then, `error` is written, unless it is NULL.
///
/// # Safety
/// `error` is NULL or can be written.
pub(crate) unsafe fn fallible(
    error: *mut *mut rc_error,
    body: impl FnOnce() -> Result<(), Fault>,
) -> rc_code {
    // What a panic leaves behind is either dropped here or behind a mutex that tells of it.
    let fault = match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(())) => return rc_code::RC_OK,
        Ok(Err(fault)) => fault,
        Err(panic) => Fault::panic(panic.as_ref()),
    };
    let code = fault.code;
    if !error.is_null() {
        // SAFETY: the caller's promise.
        unsafe { error.write(fault.into_handle()) };
    }
    code
}

/// Runs the body of a function that can fail and stores what it returns in `*output`, the argument `name`.
///
/// # Safety
/// `output` and `error` are NULL or can be written.
pub(crate) unsafe fn answer<T>(
    output: *mut T,
    name: &str,
    error: *mut *mut rc_error,
    body: impl FnOnce() -> Result<T, Fault>,
) -> rc_code {
    // SAFETY: the caller's promise.
    unsafe {
        fallible(error, || {
            let output = Output::new(output, name)?;
            output.set(body()?);
            Ok(())
        })
    }
}

/// Runs the body of a function that cannot fail; `default` stands in for a panic.
pub(crate) fn infallible<T>(default: T, body: impl FnOnce() -> T) -> T {
    catch_unwind(AssertUnwindSafe(body)).unwrap_or(default)
}

/// What a panic had to say.
pub(crate) fn panic_text(panic: &(dyn Any + Send)) -> Cow<'static, str> {
    match (panic.downcast_ref::<&'static str>(), panic.downcast_ref::<String>()) {
        (Some(text), _) => Cow::Borrowed(text),
        (_, Some(text)) => Cow::Owned(text.clone()),
        _ => Cow::Borrowed("no message"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::{rc_error_code, rc_error_free, rc_error_message};

    #[test]
    fn a_panic_becomes_an_error() {
        let mut error = std::ptr::null_mut();
        // SAFETY: `error` can be written, and what is written is a handle.
        unsafe {
            assert_eq!(fallible(&mut error, || panic!("seven is {}", 8)), rc_code::RC_PANIC);
            assert_eq!(rc_error_code(error), rc_code::RC_PANIC);
            let message = std::ffi::CStr::from_ptr(rc_error_message(error)).to_str().unwrap();
            assert!(message.contains("seven is 8"), "{message}");
            rc_error_free(error);
            assert_eq!(fallible(std::ptr::null_mut(), || panic!("nobody listens")), rc_code::RC_PANIC);
        }
        assert_eq!(infallible(3, || panic!("three stands in")), 3);
    }

    #[test]
    fn success_writes_no_error() {
        let mut error = std::ptr::null_mut();
        // SAFETY: `error` can be written.
        unsafe { assert_eq!(fallible(&mut error, || Ok(())), rc_code::RC_OK) };
        assert!(error.is_null());
    }
}
