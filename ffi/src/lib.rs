//! The C face. `include/reconstruct.h` is its manual.

use std::ffi::{CStr, c_char};

// A C string has to end in NUL; `concat!` makes it at compile time, so nothing has to be allocated or freed.
const VERSION: &CStr = match CStr::from_bytes_with_nul(concat!(env!("CARGO_PKG_VERSION"), "\0").as_bytes()) {
    Ok(version) => version,
    Err(_) => panic!("the version holds a NUL byte"),
};

/// The version of the library, for example `0.1.0`.
///
/// The string is static: it must not be freed. May be called from any thread.
#[unsafe(no_mangle)]
pub extern "C" fn rc_version() -> *const c_char {
    VERSION.as_ptr()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_c_version_is_the_engines() {
        // SAFETY: rc_version returns a NUL-terminated static string.
        let version = unsafe { CStr::from_ptr(rc_version()) };
        assert_eq!(version.to_str().unwrap(), libreconstruct::VERSION);
    }
}
