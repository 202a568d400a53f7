//! How long a stage will still take, by the rate at which it came as far as it is.

use std::time::{Duration, Instant};

/// What is done of a stage must have grown by more than this,
const LEAST_DONE: f32 = 0.02;
/// in more than this time, before its rate says something.
const LEAST_ELAPSED: Duration = Duration::from_secs(1);

/// Hears how far a stage is, and estimates when it will be done.
#[derive(Debug, Default)]
pub(crate) struct RemainingTime {
    /// When it was heard of first, and with which fraction: a stage that is resumed begins in the middle.
    began: Option<(Instant, f32)>,
    furthest: f32,
}

impl RemainingTime {
    /// Hears that `fraction` (0 to 1) is done `now`. The largest fraction so far, and the seconds that the rest will take; `None` until
    /// enough has been done to go by.
    pub(crate) fn hear(&mut self, fraction: f32, now: Instant) -> (f32, Option<f64>) {
        let (began, first) = *self.began.get_or_insert((now, fraction));
        // Threads report in any order, and what is tried again begins anew; a bar never goes back.
        self.furthest = self.furthest.max(fraction);
        let elapsed = now.saturating_duration_since(began);
        let done = self.furthest - first;
        let seconds = (done > LEAST_DONE && elapsed > LEAST_ELAPSED)
            .then(|| elapsed.as_secs_f64() * f64::from(1.0 - self.furthest) / f64::from(done));
        (self.furthest, seconds)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is told of fractions that are heard so many seconds after the first.
    fn told(heard: &[(f64, f32)]) -> Vec<(f32, Option<f64>)> {
        let (mut remaining, start) = (RemainingTime::default(), Instant::now());
        heard
            .iter()
            .map(|&(at, fraction)| remaining.hear(fraction, start + Duration::from_secs_f64(at)))
            .collect()
    }

    #[test]
    fn seconds_are_told_once_the_fraction_has_moved() {
        let told = told(&[(0.0, 0.0), (600.0, 0.0), (610.0, 0.01), (620.0, 0.25), (660.0, 1.0)]);
        let seconds: Vec<Option<f64>> = told.iter().map(|t| t.1).collect();
        assert_eq!(seconds, [None, None, None, Some(1860.0), Some(0.0)]);
    }

    #[test]
    fn a_moment_says_nothing_about_the_rate() {
        assert_eq!(told(&[(0.0, 0.0), (0.5, 0.5), (2.0, 0.5)])[1..], [(0.5, None), (0.5, Some(2.0))]);
    }

    #[test]
    fn the_rate_counts_from_where_it_began_and_nothing_goes_back() {
        let told = told(&[(0.0, 0.5), (10.0, 0.75), (20.0, 0.625)]);
        assert_eq!(told, [(0.5, None), (0.75, Some(10.0)), (0.75, Some(20.0))]);
    }
}
