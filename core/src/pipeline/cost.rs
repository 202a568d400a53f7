//! What a stage costs: wall clock, processor time, memory.

use std::time::Instant;

use super::workspace::StageCost;

/// Runs from its creation to [`Meter::read`].
pub(super) struct Meter {
    started: Instant,
    cpu_at_start: f64,
}

impl Meter {
    /// Starts to measure; the system's record of the largest memory is set back where that is possible.
    pub(super) fn start() -> Self {
        reset_peak_memory();
        Self { started: Instant::now(), cpu_at_start: cpu_seconds() }
    }

    /// What has been used since.
    pub(super) fn read(&self) -> StageCost {
        StageCost {
            seconds: self.started.elapsed().as_secs_f64(),
            cpu_seconds: cpu_seconds() - self.cpu_at_start,
            peak_memory_mib: peak_memory_mib(),
        }
    }
}

/// Processor time of this process and of the children it waited for, in seconds (Linux; elsewhere 0).
fn cpu_seconds() -> f64 {
    // Fields 14 to 17 of /proc/self/stat: utime, stime, cutime, cstime in ticks of 1/100 s on every Linux there is.
    // The second field is the program's name in parentheses and may hold spaces, so counting starts behind it.
    let Ok(stat) = std::fs::read_to_string("/proc/self/stat") else { return 0.0 };
    let Some((_, fields)) = stat.rsplit_once(')') else { return 0.0 };
    fields.split_whitespace().skip(11).take(4).filter_map(|f| f.parse::<f64>().ok()).sum::<f64>() / 100.0
}

fn peak_memory_mib() -> Option<f64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|l| l.strip_prefix("VmHWM:"))?;
    let kib: f64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib / 1024.0)
}

fn reset_peak_memory() {
    // Not allowed everywhere (containers without the capability); then the peak is that of the whole process so far.
    let _ = std::fs::write("/proc/self/clear_refs", "5");
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn work_and_memory_are_seen() {
        let meter = Meter::start();
        let block = vec![1u8; 64 << 20];
        let mut sum = 0u64;
        while meter.started.elapsed().as_millis() < 60 {
            sum = block.iter().fold(sum, |s, b| s.wrapping_mul(31).wrapping_add(u64::from(*b)));
        }
        let cost = meter.read();
        assert!(std::hint::black_box(sum) != 1);
        assert!(cost.seconds >= 0.06 && cost.cpu_seconds > 0.0, "{cost:?}");
        assert!(cost.peak_memory_mib.unwrap() >= 64.0, "{cost:?}");
    }
}
