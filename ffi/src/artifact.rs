//! Results of jobs
//!
//! An rc_artifact is one file of a job. Its bytes never change. It can be saved to a file, or read from any place.

use std::ffi::{CString, c_char, c_void};
use std::io::{Read, Seek, SeekFrom};
use std::mem::MaybeUninit;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use libreconstruct::Error;
use libreconstruct::job::ArtifactKind;
use libreconstruct::service::{Artifact as Found, Service};
use libreconstruct::storage::BlobReader;

use crate::argument::{choice, not_null, path};
use crate::error::{Fault, rc_code, rc_error};
use crate::handle::{Opaque, opaque};
use crate::job::{Job, rc_job};
use crate::text::c_string;

/// A file that a job has made.
pub struct rc_artifact {
    _opaque: [u8; 0],
}

/// What is behind an `rc_artifact`.
pub(crate) struct Artifact {
    service: Service,
    found: Found,
    file: Mutex<BlobReader>,
    file_name: CString,
    etag: CString,
    content_type: CString,
}

opaque!(rc_artifact, Artifact, "artifact", b"rc_artif");

/// What can be fetched of a job.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum rc_artifact_kind {
    /// The scene as .ply.
    RC_ARTIFACT_PLY = 1,
    /// The scene as .spz.
    RC_ARTIFACT_SPZ = 2,
    /// A picture of the scene, JPEG.
    RC_ARTIFACT_PREVIEW = 3,
    /// Every figure of the reconstruction, JSON.
    RC_ARTIFACT_REPORT = 4,
    /// What the worker wrote, text. The only one that a failed job may have.
    RC_ARTIFACT_LOG = 5,
    /// The camera poses as COLMAP has them, zip.
    RC_ARTIFACT_CAMERAS = 6,
    /// Masks of the object in the undistorted frames, if the background was removed, zip.
    RC_ARTIFACT_MASKS = 7,
    /// A film around the scene, MP4, if the service makes it.
    RC_ARTIFACT_TURNTABLE = 8,
    /// The scene as .sog, if the service makes it.
    RC_ARTIFACT_SOG = 9,
    /// The scene as glTF, .glb, if the service makes it.
    RC_ARTIFACT_GLB = 10,
    /// A large scene with few splats, as .spz: what a viewer shows until it has the whole.
    RC_ARTIFACT_FIRST_LOOK = 11,
    /// A picture of the camera poses, JPEG.
    RC_ARTIFACT_POSES = 12,
}

const KINDS: [(rc_artifact_kind, ArtifactKind); 12] = [
    (rc_artifact_kind::RC_ARTIFACT_PLY, ArtifactKind::Ply),
    (rc_artifact_kind::RC_ARTIFACT_SPZ, ArtifactKind::Spz),
    (rc_artifact_kind::RC_ARTIFACT_PREVIEW, ArtifactKind::Preview),
    (rc_artifact_kind::RC_ARTIFACT_REPORT, ArtifactKind::Report),
    (rc_artifact_kind::RC_ARTIFACT_LOG, ArtifactKind::Log),
    (rc_artifact_kind::RC_ARTIFACT_CAMERAS, ArtifactKind::Cameras),
    (rc_artifact_kind::RC_ARTIFACT_MASKS, ArtifactKind::Masks),
    (rc_artifact_kind::RC_ARTIFACT_TURNTABLE, ArtifactKind::Turntable),
    (rc_artifact_kind::RC_ARTIFACT_SOG, ArtifactKind::Sog),
    (rc_artifact_kind::RC_ARTIFACT_GLB, ArtifactKind::Glb),
    (rc_artifact_kind::RC_ARTIFACT_FIRST_LOOK, ArtifactKind::FirstLook),
    (rc_artifact_kind::RC_ARTIFACT_POSES, ArtifactKind::Poses),
];

impl Job {
    fn artifact(&self, kind: MaybeUninit<rc_artifact_kind>) -> Result<Found, Fault> {
        Ok(self.service.artifact(self.user, self.id, choice(kind, "kind", &KINDS)?)?)
    }
}

/// Opens a file of a job and stores it in *artifact; free it with rc_artifact_free(). It can be read to its end even if
/// the job is deleted meanwhile.
///
/// Fails with RC_NOT_FOUND if the job does not have it (yet).
///
/// Thread-safe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rc_job_artifact(
    job: *const rc_job,
    kind: MaybeUninit<rc_artifact_kind>,
    artifact: *mut *mut rc_artifact,
    error: *mut *mut rc_error,
) -> rc_code {
    // SAFETY: the caller's promise.
    unsafe {
        rc_job::ask(job, artifact, "artifact", error, |job| {
            let found = job.artifact(kind)?;
            Ok(rc_artifact::make(Artifact {
                file: Mutex::new(job.service.open_blob(&found.key)?),
                file_name: c_string(found.file_name.as_str()),
                etag: c_string(found.etag.as_str()),
                content_type: c_string(found.content_type),
                service: job.service.clone(),
                found,
            }))
        })
    }
}

/// Writes a file of a job to `file`: whole or not at all, in place of what was there.
///
/// Fails with RC_NOT_FOUND if the job does not have it (yet), RC_DISK_FULL, RC_IO.
///
/// Thread-safe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rc_job_download(
    job: *const rc_job,
    kind: MaybeUninit<rc_artifact_kind>,
    file: *const c_char,
    error: *mut *mut rc_error,
) -> rc_code {
    // SAFETY: the caller's promise.
    unsafe {
        rc_job::call(job, error, |job| {
            let file = path(file, "file")?;
            Ok(job.service.save_artifact(&job.artifact(kind)?, file)?)
        })
    }
}

/// Writes the artifact to `file`: whole or not at all, in place of what was there.
///
/// Fails with RC_NOT_FOUND if the job was deleted meanwhile, RC_DISK_FULL, RC_IO.
///
/// Thread-safe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rc_artifact_save(
    artifact: *const rc_artifact,
    file: *const c_char,
    error: *mut *mut rc_error,
) -> rc_code {
    // SAFETY: the caller's promise.
    unsafe {
        rc_artifact::call(artifact, error, |artifact| {
            Ok(artifact.service.save_artifact(&artifact.found, path(file, "file")?)?)
        })
    }
}

/// Reads up to `capacity` bytes from the byte `offset` on into `buffer` and stores in *count how many there were: fewer
/// only at the end, 0 beyond it. `buffer` may hold anything after a failure.
///
/// Fails with RC_IO.
///
/// Thread-safe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rc_artifact_read(
    artifact: *const rc_artifact,
    offset: u64,
    buffer: *mut c_void,
    capacity: usize,
    count: *mut usize,
    error: *mut *mut rc_error,
) -> rc_code {
    // SAFETY: the caller's promise.
    unsafe {
        rc_artifact::ask(artifact, count, "count", error, |artifact| {
            if capacity > 0 {
                not_null(buffer, "buffer")?;
            }
            // Systems refuse to seek to where no file can reach.
            if offset >= artifact.found.size {
                return Ok(0);
            }
            let mut reader = artifact.file.lock().unwrap_or_else(PoisonError::into_inner);
            let failed = |e| Error::io("read", Path::new(&artifact.found.file_name), e);
            reader.file.seek(SeekFrom::Start(offset)).map_err(failed)?;
            let mut filled = 0;
            // Through memory of our own: the caller's may never have been written, and a slice of it must have been.
            let mut chunk = vec![0; capacity.min(1 << 18)];
            while filled < capacity {
                let wanted = chunk.len().min(capacity - filled);
                let read = match reader.file.read(&mut chunk[..wanted]) {
                    Ok(0) => break,
                    Ok(read) => read,
                    Err(e) if e.kind() == std::io::ErrorKind::Interrupted => continue,
                    Err(e) => return Err(failed(e).into()),
                };
                chunk.as_ptr().copy_to_nonoverlapping(buffer.cast::<u8>().add(filled), read);
                filled += read;
            }
            Ok(filled)
        })
    }
}

/// Size in bytes; 0 for NULL.
///
/// Thread-safe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rc_artifact_size(artifact: *const rc_artifact) -> u64 {
    // SAFETY: the caller's promise.
    unsafe { rc_artifact::look(artifact, 0, |a| a.found.size) }
}

/// A name for the user's disk: the title of the job with an extension. Text of the user's; NULL for NULL. Lives as long
/// as the artifact.
///
/// Thread-safe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rc_artifact_file_name(artifact: *const rc_artifact) -> *const c_char {
    // SAFETY: the caller's promise.
    unsafe { rc_artifact::text(artifact, |a| Some(&a.file_name)) }
}

/// Strong entity tag, with quotes, for HTTP; NULL for NULL. Lives as long as the artifact.
///
/// Thread-safe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rc_artifact_etag(artifact: *const rc_artifact) -> *const c_char {
    // SAFETY: the caller's promise.
    unsafe { rc_artifact::text(artifact, |a| Some(&a.etag)) }
}

/// Media type, for example "image/jpeg"; NULL for NULL. Lives as long as the artifact.
///
/// Thread-safe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rc_artifact_content_type(artifact: *const rc_artifact) -> *const c_char {
    // SAFETY: the caller's promise.
    unsafe { rc_artifact::text(artifact, |a| Some(&a.content_type)) }
}

/// Frees an artifact. NULL is allowed.
///
/// Thread-safe, while nobody uses the artifact.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rc_artifact_free(artifact: *mut rc_artifact) {
    // SAFETY: the caller's promise.
    unsafe { rc_artifact::free(artifact) }
}
