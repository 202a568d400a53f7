//! The passes of a step, for implementations that keep account of them.

use crate::error::{Error, ErrorKind};

/// The last pass that ran on the present parameters, in the order in which they run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Pass {
    /// None: the parameters are new, or were stepped or edited.
    #[default]
    Start,
    Project,
    Intersect,
    Sort,
    Rasterise,
    Loss,
    RasteriseBackward,
    /// The parameters are others now; what was read of them can still be looked at.
    #[cfg(feature = "gpu")]
    Finished,
}

impl Pass {
    /// A pass needs the result of this one, but only `done` was reached.
    pub(super) fn is_missing(self, done: Pass) -> Error {
        let message = format!("a pass needs the result of {self:?}, but the last one that ran is {done:?}");
        Error::new(ErrorKind::Internal, message)
    }
}
