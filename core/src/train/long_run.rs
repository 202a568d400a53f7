//! A training that will take hours: who waits for it is told as soon as its speed is known.

use super::workload::Workload;
use crate::control::Warning;

/// Seconds: a run that will take longer than this is warned of,
const LONG: f64 = 2.0 * 3600.0;
/// as soon as its steps have gone on for so long, and its speed is known.
const SPEED_KNOWN: f64 = 30.0;

/// Looks once in a sitting how long the run will take.
#[derive(Debug, Default)]
pub(super) struct LongRun {
    /// The first step of the sitting, and the seconds of the run after it. It does not count: a device makes itself ready in it.
    first: Option<(u32, f64)>,
    /// Seconds since then of what is not done in every step, such as reading pictures.
    aside: f64,
    /// Whether it was looked. Once is enough: later the user sees the time that is left.
    looked: bool,
}

impl LongRun {
    /// So many seconds were not the steps' own.
    pub(super) fn leave_out(&mut self, seconds: f64) {
        if self.first.is_some() {
            self.aside += seconds;
        }
    }

    /// Whether it is time to look, after `step` and so many `seconds` of the run.
    pub(super) fn is_due(&mut self, step: u32, seconds: f64) -> bool {
        self.first.get_or_insert((step, seconds));
        !self.looked && self.seconds_of_steps(seconds) >= SPEED_KNOWN
    }

    fn seconds_of_steps(&self, seconds: f64) -> f64 {
        self.first.map_or(0.0, |(_, first)| seconds - first - self.aside)
    }

    /// The warning, if what is left of the run after `step` will take hours on `device`.
    pub(super) fn look(
        &mut self,
        step: u32,
        seconds: f64,
        workload: &Workload,
        device: &str,
    ) -> Option<Warning> {
        self.looked = true;
        let (first, _) = self.first?;
        let (before, done) = (workload.fraction(first), workload.fraction(step));
        let left = self.seconds_of_steps(seconds) * (1.0 - done) / (done - before).max(1e-9);
        if left <= LONG {
            return None;
        }
        let message = format!(
            "training will take about {:.0} hours more on {device}: fewer steps or Gaussians, or smaller pictures, take less (the \
             quality \"preview\" takes minutes; with a time budget it does what fits into it)",
            left / 3600.0
        );
        Some(Warning::new("long_training", message))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::train::TrainOptions;
    use crate::train::schedule::Schedule;

    #[test]
    fn hours_are_told_once_and_minutes_are_not() {
        let options = TrainOptions { training_num_steps: 1000, ..TrainOptions::default() };
        let schedule = Schedule::new(&options, 1600, 1.0);
        // All steps take the same.
        let workload = Workload::new(&schedule, 1000, (10, 10), &[1.0], |_, _| 1.0);
        // A run that went on at step 100 after two hours has made a tenth of its steps since.
        let after = |seconds: f64| {
            let mut run = LongRun::default();
            // The first picture took an hour to read, and says nothing of the speed; neither does what comes between.
            run.leave_out(3600.0);
            assert!(!run.is_due(100, 7200.0));
            run.leave_out(1000.0);
            assert!(!run.is_due(150, 8229.0) && run.is_due(150, 8231.0));
            let warning = run.look(200, 8200.0 + seconds, &workload, "a machine");
            assert!(!run.is_due(200, 1e9), "it was looked");
            warning
        };
        // The eight tenths that are left take eight times as long.
        assert_eq!(after(880.0), None);
        let warning = after(2700.0).unwrap();
        assert_eq!(warning.code, "long_training");
        assert!(warning.message.contains("about 6 hours more on a machine"), "{}", warning.message);
        assert_eq!(LongRun::default().look(5, 1e9, &workload, "a machine"), None);
    }
}
