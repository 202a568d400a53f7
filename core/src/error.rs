//! The one error type of the engine.
//!
//! Every face maps an [`Error`] to its own world (exit code, HTTP status, C code, Python exception) by its
//! [`ErrorKind`] alone; the message is written for the person who started the work: what was wrong, with which
//! value, and in the hint what to do about it.

use std::borrow::Cow;
use std::fmt;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::stage::Stage;

/// Result of everything in this crate that can fail.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What went wrong, as a stable class. The slug ([`ErrorKind::slug`]) is part of the public interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ErrorKind {
    /// An option or argument is out of its range or contradicts another one.
    InvalidArgument,
    /// Something that this build cannot do.
    Unsupported,
    /// A file or folder that was named does not exist.
    NotFound,
    /// The input is no video or image that can be read, or breaks a limit (size, duration, codec).
    InvalidMedia,
    /// A scene, model or checkpoint file is damaged or of an unknown format.
    InvalidFile,
    /// The `ffmpeg` or `ffprobe` program is missing or too old.
    FfmpegMissing,
    /// Too few usable frames to reconstruct anything.
    TooFewFrames,
    /// The pictures show too little texture to find features in.
    InsufficientFeatures,
    /// The camera only turned or stood still: depth cannot be seen.
    InsufficientParallax,
    /// Only part of the frames could be placed.
    PartialReconstruction,
    /// The focal length or distortion that came out is not plausible.
    IntrinsicsUnreliable,
    /// The geometry that came out contradicts itself (symmetric or moving scene, broken poses).
    UnreliableReconstruction,
    /// `gpu` was asked for and there is none that can be used.
    NoGpu,
    /// The graphics device was lost or ran out of memory.
    Gpu,
    /// The disk or quota is full.
    DiskFull,
    /// Another input or output failure of the operating system.
    Io,
    /// The API key is missing, unknown, malformed or revoked.
    Unauthenticated,
    /// The API key is genuine, but its owner may not do this.
    PermissionDenied,
    /// What was asked for contradicts the state of the resource, for example an upload that is in use already.
    Conflict,
    /// An idempotency key was used before with another request.
    IdempotencyMismatch,
    /// A limit on how much one user may ask for.
    TooManyRequests,
    /// More bytes than are accepted.
    TooLarge,
    /// The caller cancelled the work.
    Cancelled,
    /// The work took longer than it was allowed to.
    DeadlineExceeded,
    /// A fault of this program.
    Internal,
}

impl ErrorKind {
    /// All kinds.
    pub const ALL: [ErrorKind; 25] = [
        Self::InvalidArgument,
        Self::Unsupported,
        Self::NotFound,
        Self::InvalidMedia,
        Self::InvalidFile,
        Self::FfmpegMissing,
        Self::TooFewFrames,
        Self::InsufficientFeatures,
        Self::InsufficientParallax,
        Self::PartialReconstruction,
        Self::IntrinsicsUnreliable,
        Self::UnreliableReconstruction,
        Self::NoGpu,
        Self::Gpu,
        Self::DiskFull,
        Self::Io,
        Self::Unauthenticated,
        Self::PermissionDenied,
        Self::Conflict,
        Self::IdempotencyMismatch,
        Self::TooManyRequests,
        Self::TooLarge,
        Self::Cancelled,
        Self::DeadlineExceeded,
        Self::Internal,
    ];

    /// Stable machine-readable name, for example `insufficient_parallax`.
    pub fn slug(self) -> &'static str {
        use ErrorKind::*;
        match self {
            InvalidArgument => "invalid_argument",
            Unsupported => "unsupported",
            NotFound => "not_found",
            InvalidMedia => "invalid_media",
            InvalidFile => "invalid_file",
            FfmpegMissing => "ffmpeg_missing",
            TooFewFrames => "too_few_frames",
            InsufficientFeatures => "insufficient_features",
            InsufficientParallax => "insufficient_parallax",
            PartialReconstruction => "partial_reconstruction",
            IntrinsicsUnreliable => "intrinsics_unreliable",
            UnreliableReconstruction => "unreliable_reconstruction",
            NoGpu => "no_gpu",
            Gpu => "gpu",
            DiskFull => "disk_full",
            Io => "io",
            Unauthenticated => "unauthenticated",
            PermissionDenied => "permission_denied",
            Conflict => "conflict",
            IdempotencyMismatch => "idempotency_mismatch",
            TooManyRequests => "too_many_requests",
            TooLarge => "too_large",
            Cancelled => "cancelled",
            DeadlineExceeded => "deadline_exceeded",
            Internal => "internal",
        }
    }

    /// Exit status of the command line for this kind: 2 wrong use, 3 bad input, 4 missing program or device,
    /// 5 the scene cannot be reconstructed, 6 system, 7 refused by the service, 130 cancelled, 1 a fault of ours.
    pub fn exit_code(self) -> u8 {
        use ErrorKind::*;
        match self {
            InvalidArgument | Unsupported => 2,
            NotFound | InvalidMedia | InvalidFile => 3,
            FfmpegMissing | NoGpu => 4,
            TooFewFrames
            | InsufficientFeatures
            | InsufficientParallax
            | PartialReconstruction
            | IntrinsicsUnreliable
            | UnreliableReconstruction => 5,
            Gpu | DiskFull | Io | DeadlineExceeded => 6,
            Unauthenticated | PermissionDenied | Conflict | IdempotencyMismatch | TooManyRequests
            | TooLarge => 7,
            Cancelled => 130,
            Internal => 1,
        }
    }

    /// Whether the same work may succeed when it is tried again without any change to its input.
    pub fn is_retryable(self) -> bool {
        matches!(self, ErrorKind::Gpu | ErrorKind::DiskFull | ErrorKind::Io | ErrorKind::Internal)
    }
}

/// What went wrong, where, and what to do about it.
pub struct Error {
    kind: ErrorKind,
    stage: Option<Stage>,
    message: Cow<'static, str>,
    hint: Option<Cow<'static, str>>,
    source: Option<Box<dyn std::error::Error + Send + Sync>>,
}

impl Error {
    /// An error of `kind`; `message` says what was wrong and with which value.
    pub fn new(kind: ErrorKind, message: impl Into<Cow<'static, str>>) -> Self {
        Self { kind, stage: None, message: message.into(), hint: None, source: None }
    }

    /// Shorthand for a wrong option or argument.
    pub fn argument(message: impl Into<Cow<'static, str>>) -> Self {
        Self::new(ErrorKind::InvalidArgument, message)
    }

    /// An operating-system error about `path`; a full disk and a missing file get their own kinds, and a missing file the hint
    /// from where on its path is missing.
    pub fn io(doing: &str, path: &Path, source: std::io::Error) -> Self {
        use std::io::ErrorKind as Os;
        let shown = path.display();
        let error = match source.kind() {
            Os::NotFound => {
                let error = Self::new(ErrorKind::NotFound, format!("cannot {doing} {shown}: it does not exist"));
                match first_missing(path) {
                    Some(hint) => error.hint(hint),
                    None => error,
                }
            }
            Os::StorageFull | Os::QuotaExceeded => Self::new(
                ErrorKind::DiskFull,
                format!("cannot {doing} {shown}: the disk is full"),
            )
            .hint("free some space or choose another output folder, then run the same command again: it continues"),
            _ => Self::new(ErrorKind::Io, format!("cannot {doing} {shown}: {source}")),
        };
        error.caused_by(source)
    }

    /// Why the picture at `path` cannot be read: the system's reason if it has one (a disk that fails says nothing about the
    /// picture), else what `damaged` makes of it.
    pub(crate) fn picture(
        path: &Path,
        source: image::ImageError,
        damaged: impl FnOnce(image::ImageError) -> Self,
    ) -> Self {
        match source {
            image::ImageError::IoError(e) if e.raw_os_error().is_some() => Self::io("read", path, e),
            other => damaged(other),
        }
    }

    /// Adds what the reader can do about it.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<Cow<'static, str>>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// Adds the stage in which it happened; an inner, more precise stage is kept.
    #[must_use]
    pub fn at(mut self, stage: Stage) -> Self {
        self.stage.get_or_insert(stage);
        self
    }

    /// Adds the underlying error.
    #[must_use]
    pub fn caused_by(mut self, source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        self.source = Some(source.into());
        self
    }

    /// The class of the error.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// The stage in which it happened, if it happened in one.
    pub fn stage(&self) -> Option<Stage> {
        self.stage
    }

    /// What was wrong, without the hint.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// What the reader can do about it.
    pub fn hint_text(&self) -> Option<&str> {
        self.hint.as_deref()
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)?;
        if let Some(hint) = &self.hint {
            write!(f, " ({hint})")?;
        }
        Ok(())
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.kind.slug())?;
        if let Some(stage) = self.stage {
            write!(f, " in {stage}")?;
        }
        write!(f, ": {self}")?;
        match &self.source {
            Some(source) => write!(f, ": {source}"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.source.as_deref().map(|s| s as _)
    }
}

/// Which part of a path is the first that is not there. A relative path is told with the folder in which it begins.
fn first_missing(path: &Path) -> Option<String> {
    let whole = std::path::absolute(path).ok().filter(|whole| !whole.exists())?;
    let (mut folder, mut name) = (whole.parent()?, whole.file_name()?);
    while !folder.exists() {
        (folder, name) = (folder.parent()?, folder.file_name()?);
    }
    Some(format!("there is no {} in {}", Path::new(name).display(), folder.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_disk_and_a_missing_file_are_told_apart() {
        let full = Error::io("write", Path::new("a.ply"), std::io::ErrorKind::StorageFull.into());
        assert_eq!(full.kind(), ErrorKind::DiskFull);
        assert!(full.kind().is_retryable());
        let missing = Error::io("open", Path::new("b.mp4"), std::io::ErrorKind::NotFound.into());
        assert_eq!(missing.kind(), ErrorKind::NotFound);
        assert!(missing.to_string().contains("b.mp4"));
    }

    #[test]
    fn a_picture_that_the_disk_cannot_read_is_not_a_damaged_one() {
        let kind = |source| {
            let damaged = |e: image::ImageError| Error::new(ErrorKind::InvalidMedia, e.to_string());
            Error::picture(Path::new("a.jpg"), source, damaged).kind()
        };
        // EIO, as the system numbers it everywhere that it knows it.
        assert_eq!(kind(image::ImageError::IoError(std::io::Error::from_raw_os_error(5))), ErrorKind::Io);
        assert_eq!(
            kind(image::ImageError::IoError(std::io::ErrorKind::UnexpectedEof.into())),
            ErrorKind::InvalidMedia
        );
    }

    #[test]
    fn the_hint_of_a_missing_file_is_the_first_part_that_is_missing() {
        let folder = tempfile::tempdir().unwrap();
        let hint = |path: &Path| {
            let error = Error::io("open", path, std::io::ErrorKind::NotFound.into());
            error.hint_text().map(str::to_owned)
        };
        let shown = folder.path().display();
        let expected = |name: &str| Some(format!("there is no {name} in {shown}"));
        assert_eq!(hint(&folder.path().join("a.mp4")), expected("a.mp4"));
        assert_eq!(hint(&folder.path().join("clips/new/a.mp4")), expected("clips"));
        let here = std::env::current_dir().unwrap();
        assert_eq!(hint(Path::new("none.mp4")), Some(format!("there is no none.mp4 in {}", here.display())));
        // What has come meanwhile is not missing.
        assert_eq!(hint(folder.path()), None);
    }

    #[test]
    fn the_slug_is_the_serialised_name() {
        for kind in ErrorKind::ALL {
            assert_eq!(serde_json::to_string(&kind).unwrap(), format!("\"{}\"", kind.slug()));
        }
        // What serde lists as known is all there is: nothing is missing from `ALL`.
        let unknown = serde_json::from_str::<ErrorKind>("\"?\"").unwrap_err().to_string();
        assert_eq!(unknown.matches('`').count(), 2 * (ErrorKind::ALL.len() + 1), "{unknown}");
    }
}
