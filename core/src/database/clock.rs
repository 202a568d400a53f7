//! The clocks of the service: one for people, one for leases.

use crate::job::Timestamp;

/// Tells the time. Replaced in tests.
pub trait Clock: Send + Sync {
    /// The time of the day, which may jump.
    fn now(&self) -> Timestamp;
    /// Microseconds that only ever grow, the same for all processes of this machine while it runs. Jumps of the system's
    /// time do not change it, nor does it go on while the machine sleeps: nobody loses a lease by either.
    fn lease_micros(&self) -> i64;
    /// Identifies the run of the machine during which [`Clock::lease_micros`] can be compared.
    fn boot(&self) -> &str;
}

/// The clocks of the system.
pub struct SystemClock {
    boot: String,
}

impl SystemClock {
    /// Reads which run of the machine this is.
    pub fn new() -> Self {
        // Where there is no such file, leases of an earlier run are told by their process being gone.
        let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        Self { boot: boot.trim().to_owned() }
    }
}

impl Default for SystemClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        Timestamp::now()
    }

    #[cfg(unix)]
    fn lease_micros(&self) -> i64 {
        let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: the pointer is valid for the call, which only writes through it. It cannot fail with this clock.
        unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut time) };
        // The field types differ between systems.
        #[allow(clippy::unnecessary_cast)]
        let micros = time.tv_sec as i64 * 1_000_000 + time.tv_nsec as i64 / 1000;
        micros
    }

    // There is no clock that all processes share and nobody sets, so a jump of the time of the day can end a lease too early
    // or too late. Who has lost its lease can write nothing more, here too.
    #[cfg(not(unix))]
    fn lease_micros(&self) -> i64 {
        Timestamp::now().as_micros()
    }

    fn boot(&self) -> &str {
        &self.boot
    }
}

/// A clock that stands still until a test moves it.
#[cfg(test)]
pub(crate) struct ManualClock {
    micros: std::sync::atomic::AtomicI64,
    /// That of the machine: what opens a folder by the system's clock beside it is on the same one.
    boot: String,
}

#[cfg(test)]
impl ManualClock {
    pub(crate) fn new() -> Self {
        let micros = std::sync::atomic::AtomicI64::new(1_700_000_000_000_000);
        Self { micros, boot: SystemClock::new().boot }
    }

    pub(crate) fn advance(&self, seconds: i64) {
        self.advance_micros(seconds * 1_000_000);
    }

    pub(crate) fn advance_micros(&self, micros: i64) {
        self.micros.fetch_add(micros, std::sync::atomic::Ordering::SeqCst);
    }
}

#[cfg(test)]
impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_micros(self.lease_micros())
    }

    fn lease_micros(&self) -> i64 {
        // A microsecond passes with every look, so that no two things happen at once.
        self.micros.fetch_add(1, std::sync::atomic::Ordering::SeqCst)
    }

    fn boot(&self) -> &str {
        &self.boot
    }
}
