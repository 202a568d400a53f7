//! Versions
//!
//! A header and a library fit together if their ABI versions are equal. Within one ABI version functions, codes and
//! fields at the end of structures are only added, so a program that was built with an older header goes on working.

use std::ffi::{CStr, c_char};

use crate::entry::infallible;
use crate::text::static_text;

/// Number of the binary interface that this header describes; compare it with rc_abi_version().
pub const RC_ABI_VERSION: u32 = 1;
/// First part of the version of the library that this header came with.
pub const RC_VERSION_MAJOR: u32 = 0;
/// Second part of the version.
pub const RC_VERSION_MINOR: u32 = 1;
/// Third part of the version.
pub const RC_VERSION_PATCH: u32 = 0;

const VERSION: &CStr = static_text(concat!(env!("CARGO_PKG_VERSION"), "\0"));

/// Number of the binary interface of the library that is loaded. A program that may meet another library than the one
/// it was built for compares it with RC_ABI_VERSION before anything else.
///
/// Thread-safe.
#[unsafe(no_mangle)]
pub extern "C" fn rc_abi_version() -> u32 {
    infallible(0, || RC_ABI_VERSION)
}

/// Version of the library that is loaded, for example "0.1.0". Static: never freed.
///
/// Thread-safe.
#[unsafe(no_mangle)]
pub extern "C" fn rc_version() -> *const c_char {
    VERSION.as_ptr()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_numbers_of_the_header_are_the_engines() {
        let numbers = format!("{RC_VERSION_MAJOR}.{RC_VERSION_MINOR}.{RC_VERSION_PATCH}");
        assert_eq!(numbers, libreconstruct::VERSION);
        assert_eq!(VERSION.to_str().unwrap(), libreconstruct::VERSION);
    }
}
