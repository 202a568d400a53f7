//! API keys
//!
//! With a key its owner reaches the REST interface of a server on the same folder, and rc_engine_for_key() tells whose
//! it is.

use std::ffi::c_char;

use crate::argument::text;
use crate::engine::rc_engine;
use crate::error::{rc_code, rc_error};
use crate::handle::Opaque;
use crate::text::owned;

/// Makes an API key for the engine's user and stores it in *secret: it is shown now and never again. Free it with
/// rc_string_free().
///
/// Fails with RC_INVALID_ARGUMENT for a name that is empty, too long or has control characters, with RC_PERMISSION_DENIED
/// for a user who is not of the Enterprise tier.
///
/// Thread-safe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rc_engine_create_key(
    engine: *const rc_engine,
    name: *const c_char,
    secret: *mut *mut c_char,
    error: *mut *mut rc_error,
) -> rc_code {
    // SAFETY: the caller's promise.
    unsafe {
        rc_engine::ask(engine, secret, "secret", error, |engine| {
            let (_, key) = engine.service.create_key(engine.user, text(name, "name")?)?;
            Ok(owned(key.reveal()))
        })
    }
}

/// Stores in *json the keys of the engine's user, oldest first, without their secrets:
/// [{"name", "prefix", "created_at", "last_used", "revoked_at"}]. Free it with rc_string_free().
///
/// Thread-safe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rc_engine_keys_json(
    engine: *const rc_engine,
    json: *mut *mut c_char,
    error: *mut *mut rc_error,
) -> rc_code {
    // SAFETY: the caller's promise.
    unsafe { rc_engine::ask_json(engine, json, error, |engine| Ok(engine.service.keys(engine.user)?)) }
}

/// Makes a key of the engine's user useless, at once and for ever. It is named by its prefix: what is before its dot.
///
/// Fails with RC_NOT_FOUND if the user has no such key.
///
/// Thread-safe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rc_engine_revoke_key(
    engine: *const rc_engine,
    prefix: *const c_char,
    error: *mut *mut rc_error,
) -> rc_code {
    // SAFETY: the caller's promise.
    unsafe {
        rc_engine::call(engine, error, |engine| {
            Ok(engine.service.revoke_key(engine.user, text(prefix, "prefix")?)?)
        })
    }
}
