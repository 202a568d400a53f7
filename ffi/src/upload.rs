//! Videos
//!
//! A video is copied into the folder before a job can use it: from a file, or piece by piece from memory. It gets a
//! name, "videos/<uuid>.<extension>"; one that no job uses is removed after a day.

use std::ffi::{c_char, c_void};
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use libreconstruct::job::BlobName;
use libreconstruct::service::{UploadFacts, UploadWriter};

use crate::argument::{path, slice, text};
use crate::engine::rc_engine;
use crate::error::{Fault, rc_code, rc_error};
use crate::handle::{Opaque, opaque};
use crate::text::owned;

/// A video that is being sent piece by piece.
pub struct rc_upload {
    _opaque: [u8; 0],
}

/// What is behind an `rc_upload`; the writer is gone once it is finished.
pub(crate) struct Upload {
    name: BlobName,
    writer: Mutex<Option<UploadWriter>>,
}

opaque!(rc_upload, Upload, "upload", b"rc_uploa");

fn finished_already() -> Fault {
    Fault::of_slug("conflict", "the upload is finished, or failed, already").hint("begin another one")
}

/// Copies a video file into the folder and stores its name in *blob_name; free that with rc_string_free(). mp4, mov, m4v,
/// mkv, webm and avi are accepted, and zip for pictures.
///
/// Fails with RC_NOT_FOUND, RC_INVALID_ARGUMENT for another kind of file, RC_TOO_LARGE, RC_DISK_FULL, RC_IO.
///
/// Thread-safe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rc_engine_import_video(
    engine: *const rc_engine,
    file: *const c_char,
    blob_name: *mut *mut c_char,
    error: *mut *mut rc_error,
) -> rc_code {
    // SAFETY: the caller's promise.
    unsafe {
        rc_engine::ask(engine, blob_name, "blob_name", error, |engine| {
            let name = engine.service.import_video(engine.user, path(file, "file")?)?;
            Ok(owned(name.to_string()))
        })
    }
}

/// Removes a video that no job uses and that is not wanted any more, for example one that could not be submitted.
/// Else it stays for a day.
///
/// Fails with RC_NOT_FOUND if the user has no such video, RC_INVALID_ARGUMENT for what is no name of one, RC_CONFLICT
/// if a job uses it.
///
/// Thread-safe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rc_engine_discard_upload(
    engine: *const rc_engine,
    blob_name: *const c_char,
    error: *mut *mut rc_error,
) -> rc_code {
    // SAFETY: the caller's promise.
    unsafe {
        rc_engine::call(engine, error, |engine| {
            let name: BlobName = text(blob_name, "blob_name")?.parse()?;
            Ok(engine.service.discard_upload(engine.user, &name)?)
        })
    }
}

/// Begins to take a video from memory and stores the upload in *upload; free it with rc_upload_free(). Its file name, for
/// example "garden.mp4", says what kind of video it is and becomes the title of a job that has none.
///
/// Fails with RC_INVALID_ARGUMENT for another kind of file, RC_DISK_FULL, RC_IO.
///
/// Thread-safe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rc_engine_begin_upload(
    engine: *const rc_engine,
    file_name: *const c_char,
    upload: *mut *mut rc_upload,
    error: *mut *mut rc_error,
) -> rc_code {
    // SAFETY: the caller's promise.
    unsafe {
        rc_engine::ask(engine, upload, "upload", error, |engine| {
            let file_name = text(file_name, "file_name")?;
            let extension = Path::new(file_name).extension().and_then(|e| e.to_str()).unwrap_or_default();
            let name = engine.service.create_upload(engine.user, extension)?.blob_name;
            let facts = UploadFacts { file_name: Some(file_name.to_owned()), ..UploadFacts::default() };
            let writer = engine.service.begin_upload(&name, facts)?;
            Ok(rc_upload::make(Upload { name, writer: Mutex::new(Some(writer)) }))
        })
    }
}

/// Takes the next `size` bytes of the video.
///
/// Fails with RC_TOO_LARGE, RC_DISK_FULL, RC_IO, after which the upload can only be freed, and with RC_CONFLICT after
/// that.
///
/// Thread-safe; but then the order of the pieces is that of chance.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rc_upload_append(
    upload: *const rc_upload,
    data: *const c_void,
    size: usize,
    error: *mut *mut rc_error,
) -> rc_code {
    // SAFETY: the caller's promise.
    unsafe {
        rc_upload::call(upload, error, |upload| {
            let data = slice(data.cast::<u8>(), size, "data")?;
            let mut writer = upload.writer.lock().unwrap_or_else(PoisonError::into_inner);
            // Out of its place while it writes, so that it is gone if it fails.
            let mut current = writer.take().ok_or_else(finished_already)?;
            current.append(data)?;
            *writer = Some(current);
            Ok(())
        })
    }
}

/// Ends the transfer: the video is on the disk when this returns. Stores its name in *blob_name; free that with
/// rc_string_free(). The upload is still to be freed.
///
/// Fails with RC_CONFLICT if it is finished already, RC_DISK_FULL, RC_IO.
///
/// Thread-safe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rc_upload_finish(
    upload: *const rc_upload,
    blob_name: *mut *mut c_char,
    error: *mut *mut rc_error,
) -> rc_code {
    // SAFETY: the caller's promise.
    unsafe {
        rc_upload::ask(upload, blob_name, "blob_name", error, |upload| {
            let writer = upload.writer.lock().unwrap_or_else(PoisonError::into_inner).take();
            writer.ok_or_else(finished_already)?.finish()?;
            Ok(owned(upload.name.to_string()))
        })
    }
}

/// Frees an upload. One that was not finished leaves nothing behind. NULL is allowed.
///
/// Thread-safe, while nobody uses the upload.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rc_upload_free(upload: *mut rc_upload) {
    // SAFETY: the caller's promise.
    unsafe { rc_upload::free(upload) }
}
