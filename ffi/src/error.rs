//! Errors
//!
//! Every function that can fail returns an rc_code and takes, as its last argument, the address of an `rc_error *`. If
//! the function fails it stores an error there, which the caller frees with rc_error_free(); if it succeeds it does not
//! touch it. NULL instead of an address means that the code is enough.
//!
//!     rc_error *error = NULL;
//!     if (rc_engine_open("scenes", NULL, &engine, &error) != RC_OK) {
//!         fprintf(stderr, "%s\n", rc_error_message(error));
//!         if (rc_error_hint(error)) fprintf(stderr, "%s\n", rc_error_hint(error));
//!         rc_error_free(error);
//!     }

use std::any::Any;
use std::ffi::{CStr, CString, c_char};
use std::mem::MaybeUninit;

use libreconstruct::{Error, ErrorKind, Stage};

use crate::argument::number_of;
use crate::entry::panic_text;
use crate::handle::{Opaque, opaque};
use crate::text::{c_string, static_text};

/// What came of a call. Numbers are never given to another meaning.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum rc_code {
    /// Done. All outputs are written.
    RC_OK = 0,
    /// An option or argument is out of its range or contradicts another one.
    RC_INVALID_ARGUMENT = 1,
    /// Something that this version cannot do.
    RC_UNSUPPORTED = 2,
    /// What was named does not exist, or belongs to another user.
    RC_NOT_FOUND = 3,
    /// The input is no video or image that can be read, or breaks a limit.
    RC_INVALID_MEDIA = 4,
    /// A scene, model or checkpoint file is damaged or of an unknown format.
    RC_INVALID_FILE = 5,
    /// The program ffmpeg or ffprobe is missing or too old.
    RC_FFMPEG_MISSING = 6,
    /// Too few usable frames to reconstruct anything.
    RC_TOO_FEW_FRAMES = 7,
    /// The pictures show too little texture.
    RC_INSUFFICIENT_FEATURES = 8,
    /// The camera only turned or stood still: depth cannot be seen.
    RC_INSUFFICIENT_PARALLAX = 9,
    /// Only part of the frames could be placed.
    RC_PARTIAL_RECONSTRUCTION = 10,
    /// The focal length or distortion that came out is not plausible.
    RC_INTRINSICS_UNRELIABLE = 11,
    /// The geometry that came out contradicts itself.
    RC_UNRELIABLE_RECONSTRUCTION = 12,
    /// A graphics processor was asked for and there is none that can be used.
    RC_NO_GPU = 13,
    /// The graphics device was lost or ran out of memory.
    RC_GPU = 14,
    /// The disk or quota is full.
    RC_DISK_FULL = 15,
    /// Another failure of input or output.
    RC_IO = 16,
    /// The API key is missing, unknown, malformed or revoked.
    RC_UNAUTHENTICATED = 17,
    /// The API key is genuine, but its owner may not do this.
    RC_PERMISSION_DENIED = 18,
    /// It contradicts the state of the thing, for example to cancel a job that is finished.
    RC_CONFLICT = 19,
    /// An idempotency key was used before with another request.
    RC_IDEMPOTENCY_MISMATCH = 20,
    /// The user has too many waiting jobs.
    RC_TOO_MANY_REQUESTS = 21,
    /// More bytes than are accepted.
    RC_TOO_LARGE = 22,
    /// The caller cancelled the work.
    RC_CANCELLED = 23,
    /// It took longer than it was allowed to.
    RC_DEADLINE_EXCEEDED = 24,
    /// A fault of the library.
    RC_INTERNAL = 25,
    /// A pointer that must not be NULL is NULL.
    RC_NULL_ARGUMENT = 100,
    /// A string is not UTF-8.
    RC_INVALID_UTF8 = 101,
    /// A handle is of another type than the function takes.
    RC_INVALID_HANDLE = 102,
    /// A fault of the library that it could not handle. The handles of the call should be freed and not used again.
    RC_PANIC = 103,
}

use rc_code::*;

/// Codes with their names.
macro_rules! named {
    ($($code:ident)*) => { [$(($code, static_text(concat!(stringify!($code), "\0")))),*] };
}

/// Every code with its name.
const CODES: [(rc_code, &CStr); 30] = named![
    RC_OK RC_INVALID_ARGUMENT RC_UNSUPPORTED RC_NOT_FOUND RC_INVALID_MEDIA RC_INVALID_FILE
    RC_FFMPEG_MISSING RC_TOO_FEW_FRAMES RC_INSUFFICIENT_FEATURES RC_INSUFFICIENT_PARALLAX
    RC_PARTIAL_RECONSTRUCTION RC_INTRINSICS_UNRELIABLE RC_UNRELIABLE_RECONSTRUCTION RC_NO_GPU RC_GPU
    RC_DISK_FULL RC_IO RC_UNAUTHENTICATED RC_PERMISSION_DENIED RC_CONFLICT RC_IDEMPOTENCY_MISMATCH
    RC_TOO_MANY_REQUESTS RC_TOO_LARGE RC_CANCELLED RC_DEADLINE_EXCEEDED RC_INTERNAL RC_NULL_ARGUMENT
    RC_INVALID_UTF8 RC_INVALID_HANDLE RC_PANIC
];

/// The code of a kind: the one whose name is that of its slug.
fn code_of(slug: &str) -> rc_code {
    let named = |name: &CStr| {
        let name = name.to_bytes().strip_prefix(b"RC_").unwrap_or_default();
        name.eq_ignore_ascii_case(slug.as_bytes())
    };
    CODES.iter().find(|(_, name)| named(name)).map_or(RC_INTERNAL, |(code, _)| *code)
}

/// The stages of a reconstruction, in their order.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum rc_stage {
    /// None.
    RC_STAGE_NONE = 0,
    /// Key frames are chosen.
    RC_STAGE_FRAMES = 1,
    /// Cameras are placed (structure from motion).
    RC_STAGE_SFM = 2,
    /// Gaussians are fitted to the frames.
    RC_STAGE_TRAIN = 3,
    /// Scene files and pictures are written.
    RC_STAGE_EXPORT = 4,
}

impl From<Stage> for rc_stage {
    fn from(stage: Stage) -> Self {
        match stage {
            Stage::Frames => rc_stage::RC_STAGE_FRAMES,
            Stage::Sfm => rc_stage::RC_STAGE_SFM,
            Stage::Train => rc_stage::RC_STAGE_TRAIN,
            Stage::Export => rc_stage::RC_STAGE_EXPORT,
        }
    }
}

/// Why a call, or a job, failed. Never changes.
pub struct rc_error {
    _opaque: [u8; 0],
}

/// What is behind an `rc_error`.
pub(crate) struct Details {
    code: rc_code,
    retryable: bool,
    stage: rc_stage,
    slug: CString,
    message: CString,
    hint: Option<CString>,
    debug: CString,
}

opaque!(rc_error, Details, "error", b"rc_error");

/// A failure on its way out.
#[derive(Debug)]
pub(crate) struct Fault {
    pub(crate) code: rc_code,
    pub(crate) message: String,
    slug: String,
    hint: Option<String>,
    stage: rc_stage,
    retryable: bool,
    debug: Option<String>,
}

impl Fault {
    pub(crate) fn new(code: rc_code, slug: &str, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
            slug: slug.to_owned(),
            hint: None,
            stage: rc_stage::RC_STAGE_NONE,
            retryable: false,
            debug: None,
        }
    }

    pub(crate) fn argument(message: impl Into<String>) -> Self {
        Self::new(RC_INVALID_ARGUMENT, ErrorKind::InvalidArgument.slug(), message)
    }

    pub(crate) fn null(name: &str) -> Self {
        Self::new(RC_NULL_ARGUMENT, ErrorKind::InvalidArgument.slug(), format!("{name} is NULL"))
    }

    pub(crate) fn internal(message: impl Into<String>) -> Self {
        Self::new(RC_INTERNAL, ErrorKind::Internal.slug(), message)
    }

    pub(crate) fn panic(panic: &(dyn Any + Send)) -> Self {
        let message = format!("the library failed: {}", panic_text(panic));
        Self::new(RC_PANIC, ErrorKind::Internal.slug(), message)
            .hint("this is a fault of the library; please report it with what led to it")
    }

    /// A failure that is told by its slug, as those of jobs are.
    pub(crate) fn of_slug(slug: &str, message: impl Into<String>) -> Self {
        Self::new(code_of(slug), slug, message)
    }

    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    pub(crate) fn into_handle(self) -> *mut rc_error {
        let debug = self.debug.unwrap_or_else(|| match &self.hint {
            Some(hint) => format!("{}: {} ({hint})", self.slug, self.message),
            None => format!("{}: {}", self.slug, self.message),
        });
        rc_error::make(Details {
            code: self.code,
            retryable: self.retryable,
            stage: self.stage,
            slug: c_string(self.slug),
            message: c_string(self.message),
            hint: self.hint.map(c_string),
            debug: c_string(debug),
        })
    }
}

impl From<Error> for Fault {
    fn from(error: Error) -> Self {
        let slug = error.kind().slug();
        Self {
            code: code_of(slug),
            message: error.message().to_owned(),
            slug: slug.to_owned(),
            hint: error.hint_text().map(str::to_owned),
            stage: error.stage().map_or(rc_stage::RC_STAGE_NONE, rc_stage::from),
            retryable: error.kind().is_retryable(),
            debug: Some(format!("{error:?}")),
        }
    }
}

/// Name of a code, for example "RC_NOT_FOUND"; "unknown code" for a number that is none. Static: never freed.
///
/// Thread-safe.
#[unsafe(no_mangle)]
pub extern "C" fn rc_code_name(code: MaybeUninit<rc_code>) -> *const c_char {
    let found = CODES.iter().find(|(known, _)| *known as u32 == number_of(code));
    found.map_or(c"unknown code", |(_, name)| *name).as_ptr()
}

/// The code; RC_OK for NULL.
///
/// Thread-safe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rc_error_code(error: *const rc_error) -> rc_code {
    // SAFETY: the caller's promise.
    unsafe { rc_error::look(error, RC_OK, |e| e.code) }
}

/// Stable name of the kind of error as all faces of the library use it, for example "insufficient_parallax"; "" for
/// NULL. Lives as long as the error.
///
/// Thread-safe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rc_error_slug(error: *const rc_error) -> *const c_char {
    // SAFETY: the caller's promise.
    unsafe { rc_error::look(error, c"".as_ptr(), |e| e.slug.as_ptr()) }
}

/// What was wrong, with which value; "" for NULL. Lives as long as the error.
///
/// Thread-safe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rc_error_message(error: *const rc_error) -> *const c_char {
    // SAFETY: the caller's promise.
    unsafe { rc_error::look(error, c"".as_ptr(), |e| e.message.as_ptr()) }
}

/// What can be done about it; NULL if there is nothing to say. Lives as long as the error.
///
/// Thread-safe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rc_error_hint(error: *const rc_error) -> *const c_char {
    // SAFETY: the caller's promise.
    unsafe { rc_error::text(error, |e| e.hint.as_ref()) }
}

/// Everything in one line, with the causes: for logs. "" for NULL. Lives as long as the error.
///
/// Thread-safe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rc_error_debug(error: *const rc_error) -> *const c_char {
    // SAFETY: the caller's promise.
    unsafe { rc_error::look(error, c"".as_ptr(), |e| e.debug.as_ptr()) }
}

/// The stage of a reconstruction in which it happened; RC_STAGE_NONE if in none, and for NULL.
///
/// Thread-safe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rc_error_stage(error: *const rc_error) -> rc_stage {
    // SAFETY: the caller's promise.
    unsafe { rc_error::look(error, rc_stage::RC_STAGE_NONE, |e| e.stage) }
}

/// Whether the same call may succeed later without any change to its input; false for NULL.
///
/// Thread-safe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rc_error_is_retryable(error: *const rc_error) -> bool {
    // SAFETY: the caller's promise.
    unsafe { rc_error::look(error, false, |e| e.retryable) }
}

/// Frees an error. NULL is allowed.
///
/// Thread-safe, while nobody uses the error.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rc_error_free(error: *mut rc_error) {
    // SAFETY: the caller's promise.
    unsafe { rc_error::free(error) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The names of all kinds are in the message that serde has for an unknown one.
    #[test]
    fn every_kind_of_error_has_a_code_of_its_own() {
        let message = serde_json::from_str::<ErrorKind>("\"?\"").unwrap_err().to_string();
        let slugs: Vec<&str> = message.split('`').skip(1).step_by(2).filter(|s| *s != "?").collect();
        assert!(slugs.len() >= 25, "{message}");
        for slug in &slugs {
            let code = code_of(slug);
            assert!(code != RC_INTERNAL || *slug == "internal", "{slug} has no code");
        }
        // ... and every code below 100 is one of them.
        assert_eq!(CODES.iter().filter(|(code, _)| (1..100).contains(&(*code as u32))).count(), slugs.len());
        assert_eq!(code_of("crashed"), RC_INTERNAL);
    }

    #[test]
    fn every_code_is_named_once_as_in_the_header() {
        for (code, name) in CODES {
            assert_eq!(format!("{code:?}"), name.to_str().unwrap());
        }
        // SAFETY: `MaybeUninit` may hold what is no enumerator; names are static.
        unsafe {
            let wrong: MaybeUninit<rc_code> = std::mem::transmute(4711u32);
            assert_eq!(CStr::from_ptr(rc_code_name(wrong)), c"unknown code");
        }
    }

    #[test]
    fn an_error_of_the_engine_keeps_all_it_says() {
        let error = Error::new(ErrorKind::NoGpu, "no GPU\0").hint("use the CPU").at(Stage::Train);
        let handle = Fault::from(error).into_handle();
        // SAFETY: a handle, freed once.
        unsafe {
            assert_eq!(rc_error_code(handle), RC_NO_GPU);
            assert_eq!(CStr::from_ptr(rc_error_slug(handle)), c"no_gpu");
            assert_eq!(CStr::from_ptr(rc_error_message(handle)).to_str().unwrap(), "no GPU\u{fffd}");
            assert_eq!(CStr::from_ptr(rc_error_hint(handle)), c"use the CPU");
            assert_eq!(rc_error_stage(handle), rc_stage::RC_STAGE_TRAIN);
            assert!(!rc_error_is_retryable(handle));
            rc_error_free(handle);
            rc_error_free(std::ptr::null_mut());
        }
    }
}
