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

/// How far what one unknown says of another has to travel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reach {
    /// A few steps: a step that gains little is the last one.
    Short,
    /// Along chains of hundreds of unknowns, which bend as a whole at next to no cost. The stiffness of such a bend is
    /// below the usual damping, which then holds it back although much is to be gained in the end: what a step gains
    /// counts only if the same is true with less damping.
    Long,
}

/// Where a step leads.
pub(crate) struct Step<S> {
    /// The state after it.
    pub(crate) state: S,
    /// Whether it changes what is wanted by less than that is known: it is the last one, if it is as short without damping.
    pub(crate) is_at_rest: bool,
}

impl<S> Step<S> {
    /// A step of which only the cost says whether it is the last one.
    pub(crate) fn to(state: S) -> Self {
        Self { state, is_at_rest: false }
    }
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
/// The same for chains: a loop of 3,000 images bends with a stiffness of some 1e-10 of the diagonal, the fourth power of
/// what an image sees over the length of the loop. Rounding errors are far below.
const SMALLEST_DAMPING_OF_CHAINS: f64 = 1e-12;
/// By this much damping falls after a step that lowered the cost. Chosen by hand.
const FALL: f64 = 5.0;
/// The same for chains, which have further to go. Chosen by hand: of 5 and 25, on a house of 1,000 frames.
const FALL_OF_CHAINS: f64 = 25.0;
/// By this much less damping still is tried where a step gains little. Chosen by hand.
const PROBE: f64 = 100.0;
/// The same for chains. Chosen by hand.
const PROBE_OF_CHAINS: f64 = 1e4;
/// Where damping has to be larger than this, no step lowers the cost any more.
const LARGEST_DAMPING: f64 = 1e12;

/// Minimises `cost` from `start`. `step` leads on by a step of the given relative damping, or is `None` where the damped
/// equations cannot be solved.
///
/// # Errors
/// [`crate::ErrorKind::Cancelled`] when `control` is cancelled.
pub(crate) fn minimise<S>(
    start: S,
    stopping: Stopping,
    reach: Reach,
    control: &Control,
    cost: impl Fn(&S) -> f64,
    mut step: impl FnMut(&S, f64) -> Option<Step<S>>,
) -> Result<(S, Summary)> {
    let mut state = start;
    let initial_cost = cost(&state);
    let mut summary = Summary { initial_cost, final_cost: initial_cost, iterations: 0, converged: false };
    let (smallest, fall, probe) = match reach {
        Reach::Short => (SMALLEST_DAMPING, FALL, PROBE),
        Reach::Long => (SMALLEST_DAMPING_OF_CHAINS, FALL_OF_CHAINS, PROBE_OF_CHAINS),
    };
    let (mut damping, mut growth) = (INITIAL_DAMPING, 4.0);
    // Whether damping was lowered just to see if that gains more.
    let mut is_probing = false;
    while summary.iterations < stopping.max_iterations && damping < LARGEST_DAMPING {
        control.check()?;
        summary.iterations += 1;
        let candidate = step(&state, damping).map(|s| (cost(&s.state), s));
        match candidate {
            Some((value, next)) if value < summary.final_cost => {
                let gain = (summary.final_cost - value) / summary.final_cost;
                state = next.state;
                summary.final_cost = value;
                let is_undamped = damping <= smallest;
                let gains_little = gain < stopping.tolerance;
                let is_last = if gains_little { reach == Reach::Short || is_undamped } else { is_undamped };
                damping = (damping / fall).max(smallest);
                growth = 4.0;
                is_probing = gains_little || next.is_at_rest;
                if is_probing && is_last {
                    summary.converged = true;
                    break;
                } else if is_probing {
                    damping = (damping / probe).max(smallest);
                }
            }
            _ if is_probing => {
                summary.converged = true;
                break;
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Minimises `x^2 / 2 + stiffness y^2 / 2` from (1, 1) where damping is relative to 1: that of a stiff unknown.
    fn bend(stiffness: f64, reach: Reach) -> ([f64; 2], Summary) {
        let stopping = Stopping { max_iterations: 50, tolerance: 1e-3 };
        let cost = |s: &[f64; 2]| 0.5 * (s[0] * s[0] + stiffness * s[1] * s[1]) + 1e-9;
        let step = |s: &[f64; 2], damping: f64| {
            Some(Step::to([s[0] - s[0] / (1.0 + damping), s[1] - stiffness * s[1] / (stiffness + damping)]))
        };
        minimise([1.0, 1.0], stopping, reach, &Control::new(), cost, step).unwrap()
    }

    #[test]
    fn what_hardly_resists_is_moved_to_its_place_only_where_chains_are_long() {
        let (near, _) = bend(1e-10, Reach::Short);
        let (far, summary) = bend(1e-10, Reach::Long);
        assert!(near[1] > 0.9, "{near:?}");
        assert!(far[1].abs() < 0.1 && summary.converged && summary.iterations < 15, "{far:?} {summary:?}");
    }

    #[test]
    fn a_step_that_only_damping_makes_short_is_not_the_last_one() {
        let stopping = Stopping { max_iterations: 50, tolerance: 0.0 };
        let stiffness = 1e-6;
        let cost = |y: &f64| 0.5 * stiffness * y * y + 1.0;
        let mut dampings = Vec::new();
        let step = |y: &f64, damping: f64| {
            dampings.push(damping);
            let change = stiffness * y / (stiffness + damping);
            Some(Step { state: y - change, is_at_rest: change.abs() < 0.1 })
        };
        let (y, summary) = minimise(1.0, stopping, Reach::Short, &Control::new(), cost, step).unwrap();
        // The first step is short: it is tried with less damping, and then it is not.
        assert!(y.abs() < 0.1 && summary.converged, "{y} {summary:?}");
        assert!(dampings.len() < 8 && dampings.last() == Some(&SMALLEST_DAMPING), "{dampings:?}");
    }
}
