//! How the work of a run is spread over its steps, so that progress, and the time that is left by it, go by the clock.
//!
//! The first steps are made on small pictures and with few Gaussians: by the number of steps, a run on a CPU seems ten times as
//! quick at first as it turns out to be.

use super::schedule::Schedule;

/// At most so many steps are looked at, evenly over the run: the cost of the others is that of the nearest one.
const PLACES: u32 = 1000;

/// The work of a run.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Workload {
    steps: u32,
    work: f64,
    /// `done[k]` is the share of the whole work, 0 to 1, that is done after `steps * k / (done.len() - 1)` steps.
    done: Vec<f64>,
}

impl Workload {
    /// That of a run of `steps` by `schedule`, which grows from `initial` to `cap` Gaussians. `pixels` are those of a picture in
    /// each resolution stage; `cost` says what a step takes on so many pixels and with so many Gaussians, in any unit.
    pub(super) fn new(
        schedule: &Schedule,
        steps: u32,
        (initial, cap): (usize, usize),
        pixels: &[f64],
        cost: impl Fn(f64, f64) -> f64,
    ) -> Self {
        let places = steps.clamp(1, PLACES);
        // No overflow: at most 200,000 steps and 1,000 places.
        let border = |place: u32| steps * place / places;
        let mut done = vec![0.0];
        let mut sum = 0.0;
        for place in 0..places {
            let (first, last) = (border(place) + 1, border(place + 1));
            let middle = first.midpoint(last);
            let pixels = pixels.get(schedule.stage(middle)).copied().unwrap_or(0.0);
            let splats = schedule.target_count(middle, initial, cap) as f64;
            sum += f64::from(last + 1 - first) * cost(pixels, splats);
            done.push(sum);
        }
        for part in &mut done {
            *part /= sum.max(f64::MIN_POSITIVE);
        }
        Self { steps, work: sum, done }
    }

    /// All of it, in the unit of the cost.
    pub(super) fn work(&self) -> f64 {
        self.work
    }

    /// The share of the work, 0 to 1, that is done after `step` steps.
    pub(super) fn fraction(&self, step: u32) -> f64 {
        if step >= self.steps {
            return 1.0;
        }
        let place = f64::from(step) * (self.done.len() - 1) as f64 / f64::from(self.steps);
        let below = place as usize;
        match self.done.get(below..below + 2) {
            Some(&[from, to]) => from + (place - below as f64) * (to - from),
            _ => 1.0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::train::TrainOptions;

    fn workload(steps: u32, cost: impl Fn(f64, f64) -> f64) -> (Schedule, Workload) {
        let options = TrainOptions { training_num_steps: steps, ..TrainOptions::default() };
        let schedule = Schedule::new(&options, 1600, 1.0);
        let workload =
            Workload::new(&schedule, steps, (10_000, 1_000_000), &[90_000.0, 360_000.0, 1_440_000.0], cost);
        (schedule, workload)
    }

    #[test]
    fn shares_are_those_of_all_steps_added_up() {
        let cost = |pixels: f64, splats: f64| pixels + 1.3 * splats;
        for steps in [1, 7, 999, 25_000] {
            let (schedule, workload) = workload(steps, cost);
            let pixels = [90_000.0, 360_000.0, 1_440_000.0];
            let of = |step: u32| {
                cost(pixels[schedule.stage(step)], schedule.target_count(step, 10_000, 1_000_000) as f64)
            };
            let whole: f64 = (1..=steps).map(of).sum();
            assert!((workload.work() / whole - 1.0).abs() < 1e-3);
            let mut before = 0.0;
            for step in 1..=steps {
                before += of(step);
                let share = workload.fraction(step);
                assert!((share - before / whole).abs() < 1e-3, "{step} of {steps}: {share}");
            }
            assert_eq!((workload.fraction(0), workload.fraction(steps)), (0.0, 1.0));
        }
    }

    #[test]
    fn the_first_steps_are_a_small_part_where_pixels_and_splats_cost() {
        let (_, on_a_cpu) = workload(25_000, |pixels, splats| pixels + 1.3 * splats);
        assert!(on_a_cpu.fraction(1250) < 0.005, "{}", on_a_cpu.fraction(1250));
        let (_, even) = workload(25_000, |_, _| 1.0);
        assert!((even.fraction(1250) - 0.05).abs() < 1e-9);
    }
}
