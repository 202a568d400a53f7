//! Which passes ran, so that steps can be run again.
//!
//! The host does not know how many intersections a view has; it learns it one or two steps later. If there were more
//! than there is room for, the device sets a flag in `counts` (see counts.wgsl), and from then on no step writes
//! anything that lasts: parameters, moments, exposures, statistics. Once the host sees the flag it makes room, clears
//! the flag and runs those steps again from the journal. The result is the same, bit for bit, as if there had been
//! room from the start.

use std::collections::VecDeque;

use super::recorder::Pending;
use crate::error::Result;
use crate::raster::pass::Pass;
use crate::raster::{LossOptions, StepOptions, TargetId, View};

/// Steps that may be on their way; the host waits for the oldest before it records one more.
pub(super) const IN_FLIGHT: usize = 3;

/// The passes of one step up to `done`, with their arguments.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Step {
    pub(super) done: Pass,
    pub(super) view: Option<View>,
    pub(super) sh_degree: u32,
    pub(super) background: [f32; 3],
    pub(super) loss: Option<(TargetId, LossOptions)>,
    pub(super) update: Option<StepOptions>,
}

impl Step {
    /// The view, if the passes up to `pass` have run on the present parameters.
    ///
    /// # Errors
    /// [`ErrorKind::Internal`] if they have not.
    pub(super) fn need(&self, pass: Pass) -> Result<View> {
        let reached = self.done >= pass && self.done != Pass::Finished;
        self.view.filter(|_| reached).ok_or_else(|| pass.is_missing(self.done))
    }
}

/// Steps that were submitted but whose counts have not been seen, oldest first.
#[derive(Debug, Default)]
pub(super) struct Journal {
    pub(super) steps: VecDeque<(Step, Pending)>,
}
