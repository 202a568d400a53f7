//! From the progress of one stage to that of the whole, with an estimate.

use crate::control::{Control, Event};
use crate::stage::Stage;

/// Share of each stage in the whole, as typical runs on a CPU show; only the bar's evenness depends on it.
const SHARES: [(Stage, f32); 4] =
    [(Stage::Frames, 0.05), (Stage::Sfm, 0.2), (Stage::Train, 0.7), (Stage::Export, 0.05)];

/// A control for a stage: it is cancelled with `outer`, and what it reports reaches the listener of `outer` with the
/// fraction of the whole and the estimated seconds to the end of the stage.
pub(super) fn stage_control(outer: &Control) -> Control {
    let target = outer.clone();
    let of_whole = outer.clone().with_listener(move |mut event| {
        if let Event::Progress { stage, fraction, total, .. } = &mut event {
            *total = Some(total_of(*stage, *fraction));
        }
        target.send(event);
    });
    of_whole.with_remaining_time()
}

fn total_of(stage: Stage, fraction: f32) -> f32 {
    let before: f32 = SHARES.iter().filter(|(s, _)| *s < stage).map(|(_, share)| share).sum();
    let own = SHARES.iter().find(|(s, _)| *s == stage).map_or(0.0, |(_, share)| *share);
    (before + own * fraction).min(1.0)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::sync::{Arc, Mutex};
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
    fn a_stage_in_the_pipeline_tells_its_own_seconds_and_the_fraction_of_the_whole() {
        let seen = Arc::new(Mutex::new(Vec::new()));
        let sink = seen.clone();
        let outer = Control::new().with_listener(move |event| {
            if let Event::Progress { fraction, total, remaining_seconds, .. } = event {
                sink.lock().unwrap().push((fraction, total, remaining_seconds));
            }
        });
        // Within it are a stage that could run alone, and a part of that.
        let stage = stage_control(&outer);
        let part = stage.with_remaining_time().part(0.5, 1.0);
        stage.progress(Stage::Sfm, "beginning", 0.0);
        part.progress(Stage::Sfm, "matching", 0.0);
        std::thread::sleep(Duration::from_millis(1100));
        part.progress(Stage::Sfm, "matching", 0.5);
        part.progress(Stage::Sfm, "matching", 0.25);
        let seen = seen.lock().unwrap();
        assert_eq!(seen[..2].iter().map(|told| told.2).collect::<Vec<_>>(), [None, None]);
        for (fraction, total, seconds) in &seen[2..] {
            assert_eq!(*fraction, 0.75);
            assert!((total.unwrap() - (0.05 + 0.2 * 0.75)).abs() < 1e-6, "{total:?}");
            // A third of the time that three quarters took.
            let seconds = seconds.unwrap();
            assert!((1.1 / 3.0..20.0).contains(&seconds), "{seconds}");
        }
        assert_eq!(seen.len(), 4);
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
