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
    /// Step and seconds of the run when the sitting began.
    began: Option<(u32, f64)>,
    /// Whether it was looked. Once is enough: later the user sees the time that is left.
    looked: bool,
}

impl LongRun {
    /// The sitting goes on from `step`, after so many `seconds` of the run; it began where this was called first.
    pub(super) fn begin(&mut self, step: u32, seconds: f64) {
        self.began.get_or_insert((step, seconds));
    }

    /// Whether it is time to look.
    pub(super) fn is_due(&self, seconds: f64) -> bool {
        !self.looked && self.began.is_some_and(|(_, began)| seconds - began >= SPEED_KNOWN)
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
        let (first, began) = self.began?;
        let (before, done) = (workload.fraction(first), workload.fraction(step));
        let left = (seconds - began) * (1.0 - done) / (done - before).max(1e-9);
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
        // A run that went on at step 100 after two hours, and has made a tenth of its steps since.
        let after = |seconds: f64| {
            let mut run = LongRun::default();
            run.begin(100, 7200.0);
            run.begin(150, 7210.0);
            assert!(!run.is_due(7229.0) && run.is_due(7231.0));
            let warning = run.look(200, 7200.0 + seconds, &workload, "a machine");
            assert!(!run.is_due(1e9), "it was looked");
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
