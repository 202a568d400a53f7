//! Handles: boxes that C holds by an opaque pointer, and what the functions that take one have in common.

use std::ffi::{CString, c_char};

use serde::Serialize;

use crate::argument::not_null;
use crate::entry::{answer, fallible, infallible};
use crate::error::{Fault, rc_code, rc_error};
use crate::text::{json, owned, pointer_to};

/// A type that C knows by name only, for example `rc_engine`, and the Rust value behind it.
///
/// All functions but the one that frees take the value by shared reference, so the value must be `Sync`: that is what
/// lets the header promise that a handle may be used by several threads at once.
pub(crate) trait Opaque: Sized {
    /// The value behind the pointer.
    type Value: Send + Sync + 'static;
    /// Begins every box of this type; another box begins otherwise.
    const MARK: u64;
    /// The name in C.
    const NAME: &'static str;
    /// What every argument of this type is called.
    const ARGUMENT: &'static str;

    /// Boxes a value for C, which owns it from now on.
    fn make(value: Self::Value) -> *mut Self {
        Box::into_raw(Box::new(Boxed { mark: Self::MARK, value })).cast()
    }

    /// The value behind `pointer`.
    ///
    /// # Safety
    /// `pointer` is NULL or comes from this library and was not freed.
    unsafe fn get<'a>(pointer: *const Self) -> Result<&'a Self::Value, Fault> {
        not_null(pointer, Self::ARGUMENT)?;
        // SAFETY: every box begins with a mark, whatever its type.
        if !unsafe { has_mark(pointer.cast(), Self::MARK) } {
            return Err(Fault::new(
                rc_code::RC_INVALID_HANDLE,
                "invalid_argument",
                format!("{} is not an {} or was freed already", Self::ARGUMENT, Self::NAME),
            ));
        }
        // SAFETY: the mark says that it is a box of this type.
        Ok(unsafe { &(*pointer.cast::<Boxed<Self::Value>>()).value })
    }

    /// A function that can fail: runs `body` on what is behind the handle.
    ///
    /// # Safety
    /// As for [`Opaque::get`]; `error` is NULL or can be written.
    unsafe fn call<T>(
        pointer: *const Self,
        error: *mut *mut rc_error,
        body: impl FnOnce(&Self::Value) -> Result<T, Fault>,
    ) -> rc_code {
        // SAFETY: the caller's promise.
        unsafe { fallible(error, || body(Self::get(pointer)?).map(drop)) }
    }

    /// A function that can fail and stores what `body` returns in `*output`, its argument `name`.
    ///
    /// # Safety
    /// As for [`Opaque::call`]; `output` is NULL or can be written.
    unsafe fn ask<T>(
        pointer: *const Self,
        output: *mut T,
        name: &str,
        error: *mut *mut rc_error,
        body: impl FnOnce(&Self::Value) -> Result<T, Fault>,
    ) -> rc_code {
        // SAFETY: the caller's promise.
        unsafe { answer(output, name, error, || body(Self::get(pointer)?)) }
    }

    /// A function that can fail and stores what `body` returns in `*json`, as JSON.
    ///
    /// # Safety
    /// As for [`Opaque::ask`].
    unsafe fn ask_json<T: Serialize>(
        pointer: *const Self,
        json_out: *mut *mut c_char,
        error: *mut *mut rc_error,
        body: impl FnOnce(&Self::Value) -> Result<T, Fault>,
    ) -> rc_code {
        // SAFETY: the caller's promise.
        unsafe { Self::ask(pointer, json_out, "json", error, |value| Ok(owned(json(&body(value)?)?))) }
    }

    /// A function that cannot fail: what `read` finds behind the handle, or `default` if there is nothing.
    ///
    /// # Safety
    /// As for [`Opaque::get`].
    unsafe fn look<T>(pointer: *const Self, default: T, read: impl FnOnce(&Self::Value) -> T) -> T {
        infallible(None, || {
            // SAFETY: the caller's promise.
            unsafe { Self::get(pointer) }.ok().map(read)
        })
        .unwrap_or(default)
    }

    /// A function that cannot fail and returns a text of the handle, or NULL.
    ///
    /// # Safety
    /// As for [`Opaque::get`].
    unsafe fn text(
        pointer: *const Self,
        read: impl FnOnce(&Self::Value) -> Option<&CString>,
    ) -> *const c_char {
        // SAFETY: the caller's promise.
        unsafe { Self::look(pointer, std::ptr::null(), |value| pointer_to(read(value))) }
    }

    /// Frees a handle; does nothing for NULL and for a handle of another type.
    ///
    /// # Safety
    /// `pointer` is NULL or comes from this library, was not freed, and is used by nobody.
    unsafe fn free(pointer: *mut Self) {
        infallible((), || {
            // SAFETY: every box begins with a mark, whatever its type; this one was made by `make` of the same type.
            unsafe {
                if !pointer.is_null() && has_mark(pointer.cast(), Self::MARK) {
                    // Found again by mistake, it is no handle any more.
                    pointer.cast::<u64>().write_volatile(0);
                    drop(Box::from_raw(pointer.cast::<Boxed<Self::Value>>()));
                }
            }
        });
    }
}

/// Says what is behind a handle, what arguments of its type are called, and the eight letters of its mark.
macro_rules! opaque {
    ($handle:ident, $value:ty, $argument:literal, $mark:literal) => {
        impl Opaque for $handle {
            type Value = $value;
            const MARK: u64 = u64::from_le_bytes(*$mark);
            const NAME: &'static str = stringify!($handle);
            const ARGUMENT: &'static str = $argument;
        }
    };
}
pub(crate) use opaque;

#[repr(C)]
struct Boxed<T> {
    mark: u64,
    value: T,
}

/// # Safety
/// `pointer` points to eight bytes, if it is aligned for them.
unsafe fn has_mark(pointer: *const u64, mark: u64) -> bool {
    // SAFETY: the caller's promise.
    pointer.is_aligned() && unsafe { pointer.read() } == mark
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    enum rc_thing {}
    enum rc_other {}

    opaque!(rc_thing, Arc<i32>, "thing", b"rc_thing");
    opaque!(rc_other, u64, "other", b"rc_other");

    #[test]
    fn a_handle_holds_its_value_until_it_is_freed() {
        let value = Arc::new(7);
        let handle = rc_thing::make(Arc::clone(&value));
        // SAFETY: a handle that is freed once, at the end; NULL is allowed.
        unsafe {
            assert_eq!(**rc_thing::get(handle).unwrap(), 7);
            assert_eq!(rc_thing::look(handle, 0, |value| **value), 7);
            assert_eq!(Arc::strong_count(&value), 2);
            rc_thing::free(handle);
            rc_thing::free(std::ptr::null_mut());
            assert_eq!(rc_thing::look(std::ptr::null(), 5, |value| **value), 5);
        }
        assert_eq!(Arc::strong_count(&value), 1);
    }

    #[test]
    fn what_is_no_handle_of_the_type_is_refused_and_stays() {
        let handle = rc_thing::make(Arc::new(7));
        let wrong: *mut rc_other = handle.cast();
        // SAFETY: pointers to and into a box that begins with a mark and is freed at the end; NULL is allowed.
        unsafe {
            let fault = rc_other::get(wrong).unwrap_err();
            assert_eq!(fault.code, rc_code::RC_INVALID_HANDLE);
            assert_eq!(fault.message, "other is not an rc_other or was freed already");
            rc_other::free(wrong);
            let inside = handle.cast::<u8>().add(1).cast::<rc_thing>();
            assert_eq!(rc_thing::get(inside).unwrap_err().code, rc_code::RC_INVALID_HANDLE);
            let null: *const rc_thing = std::ptr::null();
            assert_eq!(rc_thing::get(null).unwrap_err().code, rc_code::RC_NULL_ARGUMENT);
            assert_eq!(**rc_thing::get(handle).unwrap(), 7);
            rc_thing::free(handle);
        }
    }
}
