//! Levenberg-Marquardt's outer loop, the same for every problem: try a damped step, keep it if the cost falls.

use crate::control::Control;
use crate::error::Result;

/// When to stop.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Stopping {
    /// At most this many steps are tried.
    pub(crate) max_iterations: usize,
    /// Stop when a step lowers the cost by less than this fraction.
    pub(crate) tolerance: f64,
}

/// What a minimisation did.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Summary {
    /// Cost at the start.
    pub(crate) initial_cost: f64,
    /// Cost at the end.
    pub(crate) final_cost: f64,
    /// Steps tried.
    pub(crate) iterations: usize,
    /// Whether it stopped because nothing was to be gained any more.
    pub(crate) converged: bool,
}

/// Damping at the start, relative to the diagonal of the normal equations (Ceres' initial trust region).
const INITIAL_DAMPING: f64 = 1e-4;
/// Damping does not fall below this: next to it the equations of problems without a fixed gauge would be singular.
const SMALLEST_DAMPING: f64 = 1e-8;
/// Where damping has to be larger than this, no step lowers the cost any more.
const LARGEST_DAMPING: f64 = 1e12;

/// Minimises `cost` from `start`. `step` gives the state after a step of the given relative damping, or `None` where
/// the damped equations cannot be solved.
///
/// # Errors
/// [`crate::ErrorKind::Cancelled`] when `control` is cancelled.
pub(crate) fn minimise<S>(
    start: S,
    stopping: Stopping,
    control: &Control,
    cost: impl Fn(&S) -> f64,
    mut step: impl FnMut(&S, f64) -> Option<S>,
) -> Result<(S, Summary)> {
    let mut state = start;
    let initial_cost = cost(&state);
    let mut summary = Summary { initial_cost, final_cost: initial_cost, iterations: 0, converged: false };
    let (mut damping, mut growth) = (INITIAL_DAMPING, 4.0);
    while summary.iterations < stopping.max_iterations && damping < LARGEST_DAMPING {
        control.check()?;
        summary.iterations += 1;
        let candidate = step(&state, damping).map(|s| (cost(&s), s));
        match candidate {
            Some((value, next)) if value < summary.final_cost => {
                let gain = (summary.final_cost - value) / summary.final_cost;
                state = next;
                summary.final_cost = value;
                damping = (damping / 5.0).max(SMALLEST_DAMPING);
                growth = 4.0;
                if gain < stopping.tolerance {
                    summary.converged = true;
                    break;
                }
            }
            Some((value, _)) if value - summary.final_cost <= 1e-12 * summary.final_cost => {
                summary.converged = true;
                break;
            }
            _ => {
                damping *= growth;
                growth *= 2.0;
            }
        }
    }
    Ok((state, summary))
}
