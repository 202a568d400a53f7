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
        let Event::Progress { stage, step, fraction, message, .. } = event else { return target.send(event) };
        // Held until the event is passed on, so that no thread overtakes another. A listener that panicked elsewhere leaves at worst an
        // old start time.
        let mut clock = clock.lock().unwrap_or_else(PoisonError::into_inner);
        // A resumed stage begins in the middle: the rate counts from where it began.
        let (start, first, furthest) = clock.get_or_insert_with(|| (Instant::now(), fraction, fraction));
        // Threads report in any order; a bar never goes back.
        *furthest = furthest.max(fraction);
        let (first, fraction) = (*first, *furthest);
        let elapsed = start.elapsed().as_secs_f64();
        let done = f64::from(fraction - first);
        let remaining_seconds =
            (done > 0.02 && elapsed > 1.0).then(|| elapsed * f64::from(1.0 - fraction) / done);
        let total = Some(total(stage, fraction));
        target.send(Event::Progress { stage, step, fraction, message, total, remaining_seconds });
    })
}

fn total(stage: Stage, fraction: f32) -> f32 {
    let before: f32 = SHARES.iter().filter(|(s, _)| *s < stage).map(|(_, share)| share).sum();
    let own = SHARES.iter().find(|(s, _)| *s == stage).map_or(0.0, |(_, share)| *share);
    (before + own * fraction).min(1.0)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::time::Duration;

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
    fn threads_do_not_overtake_each_other_on_the_way_to_the_listener() {
        let seen = Arc::new(Mutex::new(Vec::new()));
        let sink = seen.clone();
        let outer = Control::new().with_listener(move |event| {
            if let Event::Progress { fraction, .. } = event {
                // Who comes later waits longer.
                let shown = sink.lock().unwrap().len();
                std::thread::sleep(Duration::from_micros(if shown % 2 == 0 { 500 } else { 0 }));
                sink.lock().unwrap().push(fraction);
            }
        });
        let inner = stage_control(&outer);
        let next = AtomicU32::new(0);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..50 {
                        let k = next.fetch_add(1, Ordering::Relaxed);
                        inner.progress(Stage::Sfm, "matching", k as f32 / 200.0);
                    }
                });
            }
        });
        let seen = seen.lock().unwrap();
        assert_eq!(seen.len(), 200);
        assert!(seen.is_sorted(), "{seen:?}");
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
