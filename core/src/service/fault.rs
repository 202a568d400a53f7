//! Whose fault it is that an attempt ended without a scene.

use crate::error::ErrorKind;

/// Whose fault an error is, as far as its kind tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fault {
    /// The job's: its video or its options. The next attempt would end in the same way.
    Job,
    /// The program's: something in this job brings it out. It may be luck, so a few attempts are made.
    Program,
    /// The machine's, unless the machine proves to be in order: then it may be the job that asks too much of it.
    Machine,
}

impl Fault {
    /// Whose fault an error of this kind is.
    pub(super) fn of(kind: ErrorKind) -> Self {
        use ErrorKind::*;
        match kind {
            // How long a step takes depends on what else the machine does.
            DiskFull | Io | Gpu | NoGpu | FfmpegMissing | DeadlineExceeded => Fault::Machine,
            // A bad file of the user's is `InvalidMedia`. This one the worker has made, or brings along.
            InvalidFile => Fault::Machine,
            Internal => Fault::Program,
            InvalidArgument
            | Unsupported
            | NotFound
            | InvalidMedia
            | TooFewFrames
            | InsufficientFeatures
            | InsufficientParallax
            | PartialReconstruction
            | IntrinsicsUnreliable
            | UnreliableReconstruction
            | Unauthenticated
            | PermissionDenied
            | Conflict
            | IdempotencyMismatch
            | TooManyRequests
            | TooLarge
            | Cancelled => Fault::Job,
        }
    }

    /// Whose fault an error is that the service met in its own files and tables.
    pub(super) fn of_the_service(kind: ErrorKind) -> Self {
        match Self::of(kind) {
            // A row that cannot be read, a file that is gone.
            Fault::Job => Fault::Machine,
            fault => fault,
        }
    }

    /// Whether an error of this kind says what is in a file, as a program or the disk has told; the others are worked out.
    pub(super) fn is_of_what_was_read(kind: ErrorKind) -> bool {
        use ErrorKind::*;
        matches!(kind, Unsupported | NotFound | InvalidMedia | InvalidFile | TooFewFrames)
    }
}
