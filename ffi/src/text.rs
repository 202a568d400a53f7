//! Strings that the library returns
//!
//! Text of what never changes (errors, lists, artifacts, the id of a job) is returned as `const char *` and belongs to
//! its handle. Text of what may change is returned through a `char **` as a copy that the caller frees.

use std::ffi::{CStr, CString, c_char};

use serde::Serialize;

use crate::entry::infallible;
use crate::error::Fault;

/// Frees a string that a function of this library returned through a `char **`. NULL is allowed.
///
/// Thread-safe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rc_string_free(string: *mut c_char) {
    infallible((), || {
        if !string.is_null() {
            // SAFETY: the caller's promise: it comes from `into_raw` of this file.
            drop(unsafe { CString::from_raw(string) });
        }
    });
}

/// Text of the program itself, with the NUL that ends it in C: nothing has to be allocated or freed.
pub(crate) const fn static_text(text: &'static str) -> &'static CStr {
    match CStr::from_bytes_with_nul(text.as_bytes()) {
        Ok(text) => text,
        Err(_) => panic!("the text does not end in its only NUL"),
    }
}

/// Text as C knows it; NUL, which would end it early, is replaced.
pub(crate) fn c_string(text: impl Into<String>) -> CString {
    let text = text.into();
    CString::new(text)
        .or_else(|e| CString::new(String::from_utf8_lossy(&e.into_vec()).replace('\0', "\u{fffd}")))
        .unwrap_or_default()
}

/// Where a text is, or NULL.
pub(crate) fn pointer_to(text: Option<&CString>) -> *const c_char {
    text.map_or(std::ptr::null(), |text| text.as_ptr())
}

/// A copy that the caller frees with [`rc_string_free`].
pub(crate) fn owned(text: impl Into<String>) -> *mut c_char {
    c_string(text).into_raw()
}

/// A value as JSON text.
pub(crate) fn json(value: &impl Serialize) -> Result<String, Fault> {
    serde_json::to_string(value)
        .map_err(|e| Fault::internal(format!("a value cannot be written as JSON: {e}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_string_ends_where_its_text_ends() {
        assert_eq!(c_string("a\0b").to_str().unwrap(), "a\u{fffd}b");
        let text = owned("é");
        // SAFETY: made by `owned`; NULL is allowed.
        unsafe {
            assert_eq!(std::ffi::CStr::from_ptr(text).to_str().unwrap(), "é");
            rc_string_free(text);
            rc_string_free(std::ptr::null_mut());
        }
    }
}
