//! The memory in which the equations of a bundle adjustment are made.

use crate::sfm::schur::{BORDER, CHUNK, PointTerms, Structure};

/// Slices of the points at most, each a task: fixed, so that sums do not depend on the number of threads.
const SLICES: usize = 16;

/// What the equations of a step are made in. Its memory is used again by the next one: to get it anew from the system
/// costs as much as the arithmetic.
pub(super) struct Workspace {
    pub(super) points: PointTerms<8>,
    /// By slice of the points.
    pub(super) parts: Vec<Part>,
}

impl Workspace {
    /// For equations with so many shared unknowns.
    pub(super) fn new(structure: &Structure, border: usize) -> Self {
        let slices = (structure.points() / CHUNK).clamp(1, SLICES);
        let part = || Part {
            cameras: vec![CameraPart::ZERO; structure.cameras()],
            border: [[0.0; BORDER]; BORDER],
            border_gradient: [0.0; BORDER],
        };
        Self { points: PointTerms::new(structure, border), parts: (0..slices).map(|_| part()).collect() }
    }
}

/// What a slice of the points adds to the equations of cameras and border.
pub(super) struct Part {
    pub(super) cameras: Vec<CameraPart>,
    /// `J_border^T J_border`
    pub(super) border: [[f64; BORDER]; BORDER],
    /// `J_border^T r`
    pub(super) border_gradient: [f64; BORDER],
}

impl Part {
    pub(super) fn clear(&mut self) {
        self.cameras.fill(CameraPart::ZERO);
        self.border = [[0.0; BORDER]; BORDER];
        self.border_gradient = [0.0; BORDER];
    }
}

/// What it adds to those of one camera, see [`CameraTerms`].
#[derive(Clone)]
pub(super) struct CameraPart {
    pub(super) u: [[f64; 8]; 6],
    /// `J_c^T J` by the intrinsics of its lens.
    pub(super) u_lens: [[f64; BORDER]; 6],
    pub(super) gradient: [f64; 8],
}

impl CameraPart {
    const ZERO: Self = Self { u: [[0.0; 8]; 6], u_lens: [[0.0; BORDER]; 6], gradient: [0.0; 8] };
}
