//! From the progress of one stage to that of the whole, with an estimate.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use crate::control::{Control, Event};
use crate::stage::Stage;

/// Share of each stage in the whole, as typical runs on a CPU show; only the bar's evenness depends on it.
const SHARES: [(Stage, f32); 4] =
    [(Stage::Frames, 0.05), (Stage::Sfm, 0.2), (Stage::Train, 0.7), (Stage::Export, 0.05)];

/// A control for a stage: it is cancelled with `outer`, and what it reports reaches the listener of `outer` with the
/// fraction of the whole and the estimated seconds to the end of the stage.
pub(super) fn stage_control(outer: &Control) -> Control {
    let target = outer.clone();
    let clock = Arc::new(Mutex::new(None::<(Instant, f32, f32)>));
    outer.clone().with_listener(move |event| {
        target.send(match event {
            Event::Progress { stage, step, fraction, message, .. } => {
                // A listener that panicked elsewhere leaves at worst an old start time.
                let mut clock = clock.lock().unwrap_or_else(PoisonError::into_inner);
                // A resumed stage begins in the middle: the rate counts from where it began.
                let (start, first, furthest) =
                    clock.get_or_insert_with(|| (Instant::now(), fraction, fraction));
                // Threads report in any order; a bar never goes back.
                *furthest = furthest.max(fraction);
                let (first, fraction) = (*first, *furthest);
                let elapsed = start.elapsed().as_secs_f64();
                let done = f64::from(fraction - first);
                let remaining =
                    (done > 0.02 && elapsed > 1.0).then(|| elapsed * f64::from(1.0 - fraction) / done);
                Event::Progress {
                    stage,
                    step,
                    fraction,
                    message,
                    total: Some(total(stage, fraction)),
                    remaining_seconds: remaining,
                }
            }
            warning => warning,
        });
    })
}

fn total(stage: Stage, fraction: f32) -> f32 {
    let before: f32 = SHARES.iter().filter(|(s, _)| *s < stage).map(|(_, share)| share).sum();
    let own = SHARES.iter().find(|(s, _)| *s == stage).map_or(0.0, |(_, share)| *share);
    (before + own * fraction).min(1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_whole_never_goes_back_though_threads_report_in_any_order() {
        let seen = Arc::new(Mutex::new(Vec::new()));
        let sink = seen.clone();
        let outer = Control::new().with_listener(move |event| {
            if let Event::Progress { stage, total: Some(total), .. } = event {
                sink.lock().unwrap().push((stage, total));
            }
        });
        for stage in Stage::ALL {
            let inner = stage_control(&outer);
            for fraction in [0.0, 0.6, 0.4, 1.0, 0.9] {
                inner.progress(stage, "step", fraction);
            }
        }
        let seen = seen.lock().unwrap();
        assert_eq!(seen.len(), 5 * Stage::ALL.len());
        for pair in seen.windows(2) {
            assert!(pair[1].1 >= pair[0].1 - 1e-6, "{pair:?}");
        }
        assert!((seen.last().unwrap().1 - 1.0).abs() < 1e-6);
    }

    #[test]
    fn cancelling_the_outer_cancels_the_stage_and_events_pass() {
        let seen = Arc::new(Mutex::new(Vec::new()));
        let sink = seen.clone();
        let outer = Control::new().with_listener(move |e| sink.lock().unwrap().push(e));
        let inner = stage_control(&outer);
        inner.progress(Stage::Train, "training", 0.5);
        assert!(
            matches!(&seen.lock().unwrap()[0], Event::Progress { total: Some(t), .. } if (*t - 0.6).abs() < 1e-6)
        );
        outer.cancel_token().cancel();
        assert!(inner.check().is_err());
    }
}
