//! From figures to expected errors: the constants and where they are from.
//!
//! What the spread of the adjustment and the principal point say is already in the unit of the errors, and nearly as large:
//! what is left to calibrate are factors, and how much a bias of the residuals adds. Fitted to the captures of odd seeds of
//! `verdict-study` against which nothing spoke (54 of 90); `docs/verdict.md` has how they do on the others.

use super::evidence::Evidence;

/// True rotation error over the largest spread, and ...
const ROTATION_FACTOR: f64 = 1.4;
/// ... what is left of it where all seems exact, degrees: no lens and no coded picture is quite as the model has it.
const LEAST_ROTATION: f64 = 0.01;
/// True error of the places over the largest spread, without bias.
const POSITION_FACTOR: f64 = 1.2;
/// Readout times of cameras: the root of their mean square, milliseconds, where the capture says nothing of its own.
const USUAL_READOUT: f64 = 15.0;
/// How far a readout time is off that the model was corrected for, over its standard deviation, ...
const READOUT_FACTOR: f64 = 2.0;
/// ... and as a share of it: what the path does not tell of the motion meanwhile.
const READOUT_SHARE: f64 = 0.1;
/// The bound of the rotations over the expectation: 19 of 20 stay below, conformally (Lei et al., "Distribution-free
/// predictive inference for regression", JASA 2018).
const ROTATION_BOUND: f64 = 2.3;
/// The same of the places.
const POSITION_BOUND: f64 = 3.5;

/// Expected errors.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Expected {
    /// Rotations, degrees.
    pub(super) rotation: f64,
    /// Places, share of the radius of the camera path.
    pub(super) position: f64,
    /// What 19 in 20 stay below: rotations, degrees.
    pub(super) rotation_bound: f64,
    /// The same of the places.
    pub(super) position_bound: f64,
}

/// The errors to expect.
pub(super) fn expected(evidence: &Evidence) -> Expected {
    let largest = |spread: &[f64; 5]| spread.iter().copied().fold(0.0, f64::max);
    // What the parts of a frame have in common is what poses could not take up of an error of the whole model, such as
    // a rolling shutter's: about as much again went into them.
    let bias = (1.0 + evidence.patch_bias / evidence.noise.max(1e-6)).min(10.0);
    let readout = readout_error(evidence);
    let rotation = (ROTATION_FACTOR * largest(&evidence.rotation_spread))
        .hypot(evidence.centre_rotation)
        .hypot(readout * evidence.shutter_rotation)
        .hypot(LEAST_ROTATION)
        .min(180.0);
    let position = (POSITION_FACTOR * bias * largest(&evidence.position_spread))
        .hypot(evidence.centre_position)
        .hypot(readout * evidence.shutter_position)
        .min(10.0);
    Expected {
        rotation,
        position,
        rotation_bound: (ROTATION_BOUND * rotation).min(180.0),
        position_bound: POSITION_BOUND * position,
    }
}

/// How far the readout time of a shutter may be off, milliseconds.
fn readout_error(evidence: &Evidence) -> f64 {
    let found = evidence.shutter_ms;
    // What the capture says, and what is usual, each by its weight.
    let (own, usual) = (evidence.shutter_deviation_ms.max(1e-6).powi(-2), USUAL_READOUT.powi(-2));
    let deviation = (own + usual).sqrt().recip();
    match evidence.shutter_is_corrected {
        true => (READOUT_FACTOR * deviation).hypot(READOUT_SHARE * found),
        false => (found * own / (own + usual)).hypot(deviation),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_spread_counts_and_a_bias_adds_to_it() {
        let mut evidence = Evidence { noise: 0.1, ..Evidence::default() };
        evidence.rotation_spread = [0.01, 0.1, 0.0, 0.02, 0.0];
        evidence.position_spread = [0.001, 0.0, 0.002, 0.0, 0.0];
        let plain = expected(&evidence);
        let about = |a: f64, b: f64| (a / b - 1.0).abs() < 0.01;
        assert!(about(plain.rotation, 0.14) && about(plain.position, 0.0024), "{plain:?}");
        assert!(about(plain.rotation_bound, 0.322) && about(plain.position_bound, 0.0084), "{plain:?}");
        evidence.patch_bias = 0.1;
        assert!(about(expected(&evidence).position, 0.0048));
        // A principal point that may be off adds to both.
        (evidence.centre_rotation, evidence.centre_position) = (1.0, 0.05);
        let off = expected(&evidence);
        assert!(about(off.rotation, 1.01) && about(off.position, 0.0502), "{off:?}");
        // What cannot be computed stays finite.
        evidence.noise = 0.0;
        evidence.position_spread = [10.0; 5];
        assert_eq!(expected(&evidence).position, 10.0);
    }
}
