//! The passes of a step, for implementations that keep account of them.

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
