//! How much memory there is for this process, and with whom it shares that.

/// Bytes of memory, as many as there can be where the system does not tell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Memory {
    pub(crate) all: u64,
    pub(crate) free: u64,
}

impl Memory {
    /// What this process may use: the machine's, or less if its control group (a container, a systemd unit) has a limit.
    pub(crate) fn of_this_machine() -> Self {
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
        // What files have been read is kept while there is room, and goes when there is none, however often it was read. Files in memory
        // (tmpfs) are not among it: they count as "shmem", and lie with what programs have allocated.
        let goes = ["inactive_file", "active_file", "slab_reclaimable"]
            .iter()
            .fold(0, |all: u64, name| all.saturating_add(number_after(statistics, name).unwrap_or(0)));
        let used = used.saturating_sub(goes);
        Self { all: all.min(limit), free: free.min(limit.saturating_sub(used)) }
    }
}

/// The name of the control group whose memory this process shares, where that is less than the machine's. Containers on one machine
/// may all have the same group, as they see it, but not the same name of their system; units of one system are the other way round.
#[cfg(feature = "postgres")]
pub(crate) fn limited_group() -> Option<String> {
    let group = own_control_group(&read("/proc/self/cgroup"));
    let limit = read(&format!("/sys/fs/cgroup{group}/memory.max"));
    name_of_limited(&read("/proc/meminfo"), &limit, &read("/proc/sys/kernel/hostname"), &group)
}

#[cfg(any(test, feature = "postgres"))]
fn name_of_limited(machine: &str, limit: &str, system: &str, group: &str) -> Option<String> {
    let limit = limit.trim().parse::<u64>().ok()?;
    let all = number_after(machine, "MemTotal:")?.saturating_mul(1024);
    (limit < all).then(|| format!("{}{group}", system.trim()))
}

fn read(path: &str) -> String {
    std::fs::read_to_string(path).unwrap_or_default()
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
        let free = |statistics| Memory::read(MACHINE, "4096000\n", "3072000\n", statistics).free;
        assert_eq!(free("anon 5\nfile 2048000\ninactive_file 1024000\nactive_file 1024000\n"), 3_072_000);
        assert_eq!(free("inactive_file 1000\nactive_file 24\nslab_reclaimable 1000\n"), 1_026_024);
        assert_eq!(free("file 1000\nshmem 1000\nslab_unreclaimable 1000\nslab 1000\n"), 1_024_000);
        assert_eq!(Memory::read("", "", "", ""), Memory { all: u64::MAX, free: u64::MAX });
        assert_eq!(own_control_group("0::/system.slice/a.service\n"), "/system.slice/a.service");
        assert_eq!(own_control_group("1:cpu:/x\n0::/\n"), "");
    }

    #[test]
    fn a_group_has_a_name_of_its_own_if_it_has_a_limit_of_its_own() {
        let name = |limit: &str, group: &str| name_of_limited(MACHINE, limit, "pod-7\n", group);
        assert_eq!(name("4096000\n", "").as_deref(), Some("pod-7"));
        assert_eq!(
            name("4096000\n", "/system.slice/a.service").as_deref(),
            Some("pod-7/system.slice/a.service")
        );
        for without in ["", "max\n", "16384000\n", "999999999999\n"] {
            assert_eq!(name(without, ""), None, "{without}");
        }
    }
}
