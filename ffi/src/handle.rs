//! Handles: boxes that C holds by an opaque pointer.

use crate::entry::infallible;
use crate::error::{Fault, rc_code};

/// A type that C knows by name only, for example `rc_engine`, and the Rust value behind it.
///
/// All functions but the one that frees take the value by shared reference, so the value must be `Sync`: that is what
/// lets the header promise that a handle may be used by several threads at once.
pub(crate) trait Opaque: Sized {
    /// The value behind the pointer.
    type Value: Send + Sync;
    /// Begins every box of this type; another box begins otherwise.
    const MARK: u64;
    /// The name in C.
    const NAME: &'static str;

    /// Boxes a value for C, which owns it from now on.
    fn make(value: Self::Value) -> *mut Self {
        Box::into_raw(Box::new(Boxed { mark: Self::MARK, value })).cast()
    }

    /// The value behind `pointer`, the argument `name`.
    ///
    /// # Safety
    /// `pointer` is NULL or comes from this library and was not freed.
    unsafe fn get<'a>(pointer: *const Self, name: &str) -> Result<&'a Self::Value, Fault> {
        if pointer.is_null() {
            return Err(Fault::null(name));
        }
        // SAFETY: every box begins with a mark, whatever its type.
        if !unsafe { has_mark(pointer.cast(), Self::MARK) } {
            return Err(Fault::new(
                rc_code::RC_INVALID_HANDLE,
                "invalid_argument",
                format!("{name} is not an {} or was freed already", Self::NAME),
            ));
        }
        // SAFETY: the mark says that it is a box of this type.
        Ok(unsafe { &(*pointer.cast::<Boxed<Self::Value>>()).value })
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
