//! Whether this machine can work: what is checked before a job is taken, and what keeps a worker waiting.

use std::io::Write;
use std::time::{Duration, Instant};

use super::paused::PausedWorker;
use super::{Runner, Service};
use crate::database::Abilities;
use crate::error::{Error, ErrorKind, Result};
use crate::job::{BlobName, VideoExtension};
use crate::storage::BlobKey;

/// The first pause of a worker whose machine cannot work; each further one is twice as long.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
/// The longest: so much later than the end of the trouble work goes on at most.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);
/// How long a machine that proved to be in order is taken to be so.
const GOOD_FOR: Duration = Duration::from_secs(60);
/// Bytes of memory that a Gaussian takes while it is trained: 59 values of 4 bytes, their gradients and two moments, and as
/// much again for what refinement and a checkpoint copy.
const BYTES_PER_GAUSSIAN: u64 = 2 * 4 * 59 * 4;
/// Bytes of memory that a reconstruction needs beside its Gaussians: pictures, features, the program itself.
const BYTES_BESIDE: u64 = 512 << 20;

impl Service {
    /// The workers that wait because the machine cannot work, by name, and why: those of all processes of the folder.
    pub fn paused_workers(&self) -> Vec<PausedWorker> {
        let mut all = self.inner.paused.list();
        for word in self.inner.process.told_by_others() {
            // Somebody may be writing it at this moment.
            all.extend(serde_json::from_str::<Vec<PausedWorker>>(&word).unwrap_or_default());
        }
        all.sort_by(|a, b| a.name.cmp(&b.name));
        all
    }

    /// Lets other processes know which workers of this one wait.
    fn tell_paused(&self) {
        let told = serde_json::to_string(&self.inner.paused.list())
            .map_err(|e| Error::new(ErrorKind::Internal, e.to_string()))
            .and_then(|word| self.inner.process.tell(&word));
        if let Err(error) = told {
            log::warn!("other processes do not learn which workers wait: {error:?}");
        }
    }
}

/// What a worker knows of its machine.
pub(super) struct Machine<'a> {
    service: &'a Service,
    runner: &'a dyn Runner,
    worker: &'a str,
    /// When it last proved to be in order.
    good: Option<Instant>,
    pause: Duration,
}

/// Tries whether the storage takes something.
///
/// # Errors
/// What keeps it from that.
pub(super) fn try_storage(service: &Service) -> Result<()> {
    let inner = &service.inner;
    // Nothing is ever seen of it: it is not committed.
    let name = BlobName::random(VideoExtension::Mp4);
    let mut blob = inner.storage.create(&BlobKey::Video { name, version: 0 })?;
    blob.write_all(b"try").map_err(|e| Error::io("write", &inner.folder, e))
}

impl<'a> Machine<'a> {
    pub(super) fn new(service: &'a Service, runner: &'a dyn Runner, worker: &'a str) -> Self {
        Self { service, runner, worker, good: None, pause: FIRST_PAUSE }
    }

    /// What can be done here now. What costs next to nothing is looked at each time, the rest once a minute.
    ///
    /// # Errors
    /// What keeps the machine from all work.
    pub(super) fn abilities(&mut self) -> Result<Abilities> {
        self.free_space()?;
        if self.good.is_none_or(|good| good.elapsed() >= GOOD_FOR) {
            self.prove()?;
        }
        // A job that has just begun takes little of what it will need: so what running jobs will need is held against all
        // memory, and what others use against the free.
        let memory = Memory::of_this_machine();
        let max_gaussians = memory.free.saturating_sub(BYTES_BESIDE) / BYTES_PER_GAUSSIAN;
        Ok(Abilities {
            masks: self.runner.can_make_masks(),
            max_gaussians: max_gaussians.try_into().unwrap_or(u32::MAX),
            all_gaussians: memory.all / BYTES_PER_GAUSSIAN,
            beside: (BYTES_BESIDE / BYTES_PER_GAUSSIAN) as u32,
        })
    }

    /// Tries out what every job needs: the disk, the device, the programs.
    ///
    /// # Errors
    /// The first that fails.
    pub(super) fn prove(&mut self) -> Result<()> {
        self.good = None;
        self.free_space()?;
        let inner = &self.service.inner;
        inner.workspaces.try_disk()?;
        try_storage(self.service)?;
        self.runner.check(&inner.options.reconstruction)?;
        self.good = Some(Instant::now());
        Ok(())
    }

    fn free_space(&self) -> Result<()> {
        let inner = &self.service.inner;
        let least = inner.options.min_free_bytes;
        // Where the work is done and where its results go, which may be two disks.
        for free in [inner.workspaces.free_space()?, inner.storage.free_space()?].into_iter().flatten() {
            if free < least {
                return Err(Error::new(
                    ErrorKind::DiskFull,
                    format!(
                        "the disk of {} has {free} bytes left, {least} must stay free",
                        inner.folder.display()
                    ),
                )
                .hint("free some space; work goes on by itself"));
            }
        }
        Ok(())
    }

    /// Notes that `error` keeps the machine from work. Returns how long to wait before the next look.
    pub(super) fn pause(&mut self, error: &Error) -> Duration {
        self.good = None;
        let pause = self.pause;
        self.pause = (2 * pause).min(LONGEST_PAUSE);
        let paused = PausedWorker {
            name: self.worker.to_owned(),
            since: self.service.inner.clock.now(),
            code: error.kind().slug().to_owned(),
            message: error.to_string(),
        };
        self.service.inner.paused.with(|workers| {
            let known = workers.get(self.worker);
            // Once is enough for the log, until something else is wrong.
            if known.is_none_or(|known| known.message != paused.message) {
                log::error!("worker {} waits, the machine cannot work: {error:?}", self.worker);
            }
            let since = known.map_or(paused.since, |known| known.since);
            workers.insert(self.worker.to_owned(), PausedWorker { since, ..paused });
        });
        self.service.tell_paused();
        pause
    }

    /// Notes that the machine works again.
    pub(super) fn resume(&mut self) {
        self.pause = FIRST_PAUSE;
        if self.service.inner.paused.with(|workers| workers.remove(self.worker)).is_some() {
            log::info!("worker {} goes on", self.worker);
            self.service.tell_paused();
        }
    }
}

impl Drop for Machine<'_> {
    fn drop(&mut self) {
        if self.service.inner.paused.with(|workers| workers.remove(self.worker)).is_some() {
            self.service.tell_paused();
        }
    }
}

/// Bytes of memory, as many as there can be where the system does not tell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Memory {
    all: u64,
    free: u64,
}

impl Memory {
    /// What this process may use: the machine's, or less if its control group (a container, a systemd unit) has a limit.
    fn of_this_machine() -> Self {
        let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
        let group = own_control_group(&read("/proc/self/cgroup"));
        let in_group = |name: &str| read(&format!("/sys/fs/cgroup{group}/{name}"));
        Self::read(
            &read("/proc/meminfo"),
            &in_group("memory.max"),
            &in_group("memory.current"),
            &in_group("memory.stat"),
        )
    }

    /// From the texts of the system: of `/proc/meminfo`, and of the files of a control group, which may be empty.
    fn read(machine: &str, limit: &str, used: &str, statistics: &str) -> Self {
        let kib = |name: &str| Some(number_after(machine, name)?.saturating_mul(1024));
        let all = kib("MemTotal:").unwrap_or(u64::MAX);
        let free = kib("MemAvailable:").unwrap_or(all);
        // "max" is no number, and no limit.
        let (Ok(limit), Ok(used)) = (limit.trim().parse::<u64>(), used.trim().parse::<u64>()) else {
            return Self { all, free };
        };
        // What files have been read is kept while there is room, and goes when there is none.
        let used = used.saturating_sub(number_after(statistics, "inactive_file").unwrap_or(0));
        Self { all: all.min(limit), free: free.min(limit.saturating_sub(used)) }
    }
}

/// The number behind `name` at the beginning of a line.
fn number_after(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_whitespace().next()?.parse().ok()
}

/// The path of the process's group among the control groups (version 2) in the text of `/proc/self/cgroup`.
fn own_control_group(text: &str) -> String {
    let path = text.lines().find_map(|line| line.strip_prefix("0::")).unwrap_or("");
    path.trim_end_matches('/').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    const MACHINE: &str = "MemTotal:       16000 kB\nMemFree:          100 kB\nMemAvailable:    8000 kB\n";

    #[test]
    fn memory_is_that_of_the_machine_or_of_the_group() {
        let machine = Memory { all: 16000 << 10, free: 8000 << 10 };
        assert_eq!(Memory::read(MACHINE, "", "", ""), machine);
        assert_eq!(Memory::read(MACHINE, "max\n", "5000\n", "inactive_file 1\n"), machine);
        let group = Memory::read(MACHINE, "4096000\n", "3072000\n", "anon 5\ninactive_file 1024000\n");
        assert_eq!(group, Memory { all: 4_096_000, free: 2_048_000 });
        assert_eq!(Memory::read("", "", "", ""), Memory { all: u64::MAX, free: u64::MAX });
        assert_eq!(own_control_group("0::/system.slice/a.service\n"), "/system.slice/a.service");
        assert_eq!(own_control_group("1:cpu:/x\n0::/\n"), "");
    }
}
