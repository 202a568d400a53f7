//! What a piece of work costs: processor time, wall clock, memory.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use libreconstruct::{Control, Event};

/// What a piece of work took.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct MeasuredCost {
    /// Seconds of processor time of all threads of this process, to 10 ms; `None` where the system does not tell (Linux does).
    pub cpu_seconds: Option<f64>,
    /// Seconds of wall clock.
    pub seconds: f64,
    /// Largest resident memory in MiB, with all that was there before the work; `None` where the system does not tell.
    pub peak_mib: Option<u64>,
}

impl MeasuredCost {
    /// What stands above the columns of a table in which costs are shown.
    pub const HEADING: &str = "  cpu s   wall s  peak MiB";

    /// Of this work and of other work that followed it.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self {
            cpu_seconds: self.cpu_seconds.zip(other.cpu_seconds).map(|(a, b)| a + b),
            seconds: self.seconds + other.seconds,
            peak_mib: self.peak_mib.zip(other.peak_mib).map(|(a, b)| a.max(b)),
        }
    }
}

/// Columns as wide as those of [`MeasuredCost::HEADING`].
impl fmt::Display for MeasuredCost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let unknown = || "-".to_owned();
        let cpu = self.cpu_seconds.map_or_else(unknown, |s| format!("{s:.1}"));
        let peak = self.peak_mib.map_or_else(unknown, |mib| mib.to_string());
        write!(f, "{cpu:>7}  {:7.1}  {peak:>8}", self.seconds)
    }
}

/// Measures from its creation to [`Meter::read`]. Of several that run at the same time, none knows the peak of memory before the
/// last one started.
pub struct Meter {
    started: Instant,
    cpu_at_start: Option<f64>,
    /// Whether the peak of memory before was forgotten: else it would be taken for the work's.
    forgot_peak: bool,
}

impl Meter {
    /// Starts to measure.
    pub fn start() -> Self {
        // Not allowed everywhere.
        let forgot_peak = std::fs::write("/proc/self/clear_refs", "5").is_ok();
        Self { started: Instant::now(), cpu_at_start: cpu_seconds(), forgot_peak }
    }

    /// What was taken since.
    pub fn read(&self) -> MeasuredCost {
        MeasuredCost {
            cpu_seconds: cpu_seconds().zip(self.cpu_at_start).map(|(now, before)| now - before),
            seconds: self.started.elapsed().as_secs_f64(),
            peak_mib: self.forgot_peak.then(peak_mib).flatten(),
        }
    }
}

/// Measures some steps of a longer work, by what it tells of its progress. A step is told of when it, or a part of it, is done: what
/// passed before is the step's.
pub struct StepMeter {
    steps: &'static [&'static str],
    measured: Arc<Mutex<MeasuredSteps>>,
}

struct MeasuredSteps {
    /// Runs since a step was told of.
    meter: Meter,
    cost: Option<MeasuredCost>,
}

impl MeasuredSteps {
    /// With what passed since a step was told of.
    fn cost_until_now(&self) -> MeasuredCost {
        let passed = self.meter.read();
        self.cost.map_or(passed, |cost| cost.and(passed))
    }

    fn hear(&mut self, is_measured: bool) {
        if is_measured {
            self.cost = Some(self.cost_until_now());
        }
        self.meter = Meter::start();
    }
}

impl StepMeter {
    /// Starts to measure the steps of these names.
    pub fn start(steps: &'static [&'static str]) -> Self {
        let measured = MeasuredSteps { meter: Meter::start(), cost: None };
        Self { steps, measured: Arc::new(Mutex::new(measured)) }
    }

    /// The control for the work: as `control`, whose own listener is told nothing of it.
    pub fn listening(&self, control: &Control) -> Control {
        let (steps, measured) = (self.steps, Arc::clone(&self.measured));
        control.clone().with_listener(move |event| {
            if let Event::Progress { step, .. } = event {
                let mut measured = measured.lock().unwrap_or_else(PoisonError::into_inner);
                measured.hear(steps.contains(&step.as_ref()));
            }
        })
    }

    /// What these steps took, of work that has just ended with one of them.
    pub fn read(&self) -> MeasuredCost {
        self.measured.lock().unwrap_or_else(PoisonError::into_inner).cost_until_now()
    }
}

/// Seconds of processor time of this process so far.
fn cpu_seconds() -> Option<f64> {
    cpu_seconds_in(&std::fs::read_to_string("/proc/self/stat").ok()?)
}

fn cpu_seconds_in(stat: &str) -> Option<f64> {
    // The program's name, in parentheses, may hold spaces; the 12th and 13th field after it are the time in the program and that in
    // the system for it, in ticks of 10 ms.
    let mut fields = stat.rsplit_once(')')?.1.split_ascii_whitespace().skip(11);
    let user: f64 = fields.next()?.parse().ok()?;
    let system: f64 = fields.next()?.parse().ok()?;
    Some((user + system) / 100.0)
}

/// Peak of this process's resident memory since it was last forgotten.
fn peak_mib() -> Option<u64> {
    peak_mib_in(&std::fs::read_to_string("/proc/self/status").ok()?)
}

fn peak_mib_in(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|l| l.strip_prefix("VmHWM:"))?;
    Some(line.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok()? / 1024)
}

#[cfg(test)]
mod tests {
    use std::thread::sleep;
    use std::time::Duration;

    use libreconstruct::Stage;

    use super::*;

    fn cost(cpu_seconds: Option<f64>, seconds: f64, peak_mib: Option<u64>) -> MeasuredCost {
        MeasuredCost { cpu_seconds, seconds, peak_mib }
    }

    #[test]
    fn the_system_is_understood() {
        let stat = "7 (a (b) c) R 1 2 3 4 5 6 7 8 9 10 150 25 4000 5000 20 0";
        assert_eq!(cpu_seconds_in(stat), Some(1.75));
        assert_eq!(cpu_seconds_in("7 (short) R 1 2"), None);
        let status = "VmPeak:\t  900000 kB\nVmHWM:\t  204900 kB\nVmRSS:\t  1024 kB\n";
        assert_eq!(peak_mib_in(status), Some(200));
        assert_eq!(peak_mib_in("VmRSS:\t  1024 kB\n"), None);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn work_and_memory_are_seen() {
        let meter = Meter::start();
        let block = vec![1u8; 64 << 20];
        let mut sum = 0u64;
        for _ in 0..3 {
            sum = std::hint::black_box(&block)
                .iter()
                .fold(sum, |s, b| s.wrapping_mul(31).wrapping_add(u64::from(*b)));
        }
        let cost = meter.read();
        std::hint::black_box((sum, &block));
        assert!(cost.seconds > 0.0 && cost.cpu_seconds.unwrap() > 0.0, "{cost:?}");
        // None where the peak cannot be forgotten. Some kernels count pages roughly.
        assert!(cost.peak_mib.is_none_or(|mib| mib >= 48), "{cost:?}");
    }

    #[test]
    fn only_the_steps_that_are_named_are_measured() {
        let (long, short) = (Duration::from_millis(100), Duration::from_millis(30));
        let begun = Instant::now();
        let meter = StepMeter::start(&["network", "masks"]);
        let control = meter.listening(&Control::new());
        for (step, took) in [("network", short), ("features", long), ("matching", long), ("masks", short)] {
            sleep(took);
            control.progress(Stage::Sfm, step, 0.5);
        }
        sleep(short);
        let measured = meter.read().seconds;
        let all = begun.elapsed().as_secs_f64();
        assert!(measured >= 0.09 && all - measured >= 0.2, "{measured} of {all} seconds");
    }

    #[test]
    fn costs_add_up_and_the_higher_peak_counts() {
        let (one, other) = (cost(Some(2.0), 1.0, Some(300)), cost(Some(0.5), 0.25, Some(200)));
        assert_eq!(one.and(other), cost(Some(2.5), 1.25, Some(300)));
        assert_eq!(one.and(cost(None, 1.0, None)), cost(None, 2.0, None));
    }

    #[test]
    fn a_cost_stands_below_its_heading() {
        let (known, unknown) = (cost(Some(123.46), 65.0, Some(1234)), cost(None, 0.04, None));
        assert_eq!(known.to_string(), "  123.5     65.0      1234");
        assert_eq!(unknown.to_string(), "      -      0.0         -");
        assert_eq!(known.to_string().len(), MeasuredCost::HEADING.len());
    }
}
