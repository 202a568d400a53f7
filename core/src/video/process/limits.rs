//! What a child may use, and how it is held to that.

use std::io;
#[cfg(target_os = "linux")]
use std::path::Path;
use std::path::PathBuf;
use std::process::Command;

#[cfg(target_os = "linux")]
use crate::memory::Memory;
#[cfg(target_os = "linux")]
use crate::video::sandbox::Sandbox;

/// What a child may use. Limits are those of Unix, and files are kept from it on Linux; elsewhere only the environment is
/// restricted.
#[derive(Debug, Clone)]
#[cfg_attr(not(target_os = "linux"), expect(dead_code, reason = "other systems know some of them, or none"))]
pub(in crate::video) struct Limits {
    /// Address space, bytes. Threads reserve far more of it than they use; what they use is limited by what the host has.
    pub(in crate::video) memory: u64,
    /// The one file that it reads, absolute.
    pub(in crate::video) reads: Option<PathBuf>,
    /// The one file that it writes, absolute. It must be there.
    pub(in crate::video) writes: Option<PathBuf>,
    /// Processor time, seconds.
    pub(in crate::video) processor: u64,
    /// Size of a file that it writes, bytes.
    pub(in crate::video) file: u64,
    /// Whether it dies with the thread that started it (Linux). Only for children that stay on that thread.
    pub(in crate::video) die_with_parent: bool,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            memory: 16 << 30,
            reads: None,
            writes: None,
            processor: 8 * 3600,
            file: 0,
            die_with_parent: true,
        }
    }
}

/// Lets `command` start within `limits`.
#[cfg(unix)]
pub(super) fn confine(command: &mut Command, limits: &Limits) -> io::Result<()> {
    use std::os::unix::process::CommandExt;
    command.process_group(0);
    // All that allocates is done here, before the fork.
    #[cfg(target_os = "linux")]
    let mut sandbox = Sandbox::prepare(
        Path::new(command.get_program()),
        limits.reads.as_deref(),
        limits.writes.as_deref(),
    )?;
    #[cfg(target_os = "linux")]
    let data = host_memory().map(|bytes| (bytes / 4 * 3).max(1 << 30));
    let (memory, processor, file) = (limits.memory, limits.processor, limits.file);
    let die_with_parent = limits.die_with_parent;
    let begin = move || {
        // Whoever started this program may have it ignore some (`nohup`, a shell in the background), and children inherit
        // that: a child that cannot be asked to end would run on until its limit.
        for signal in [libc::SIGHUP, libc::SIGINT, libc::SIGQUIT, libc::SIGTERM] {
            // SAFETY: sets the default for a signal of this process, which is about to become the child's program.
            unsafe { libc::signal(signal, libc::SIG_DFL) };
        }
        let set_to = |resource, value: u64, most: u64| {
            let limit = libc::rlimit { rlim_cur: value as libc::rlim_t, rlim_max: most as libc::rlim_t };
            // A limit that is already lower cannot be raised; it is as good.
            // SAFETY: the kernel reads one structure from the pointer.
            unsafe { libc::setrlimit(resource, &limit) };
        };
        let set = |resource, value: u64| set_to(resource, value, value);
        set(libc::RLIMIT_CORE, 0);
        // Before it is killed the child is told that its time is over: so it can be seen who ended it.
        set_to(libc::RLIMIT_CPU, processor, processor.saturating_add(5));
        set(libc::RLIMIT_FSIZE, file);
        set(libc::RLIMIT_NOFILE, 64);
        // No limit on processes: it counts all of the user's, and threads too. The box refuses processes.
        #[cfg(target_os = "linux")]
        {
            set(libc::RLIMIT_AS, memory);
            if let Some(data) = data {
                set(libc::RLIMIT_DATA, data);
            }
            sandbox.enter()?;
            if die_with_parent {
                // Last, because entering a namespace forgets it.
                // SAFETY: a plain system call without pointers.
                unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
            }
        }
        Ok(())
    };
    // SAFETY: between fork and exec only async-signal-safe system calls are made, and nothing allocates.
    unsafe { command.pre_exec(begin) };
    Ok(())
}

/// Memory that this process and its children may use, bytes: the host's, or less where a container or their control group (a systemd
/// unit) has a limit.
#[cfg(target_os = "linux")]
pub(super) fn host_memory() -> Option<u64> {
    // SAFETY: plain calls without pointers.
    let (pages, size) = unsafe { (libc::sysconf(libc::_SC_PHYS_PAGES), libc::sysconf(libc::_SC_PAGESIZE)) };
    let physical = u64::try_from(pages).ok()?.checked_mul(u64::try_from(size).ok()?)?;
    // Of the uppermost control group that is seen here, version 2 and 1.
    let container = ["/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"]
        .iter()
        .filter_map(|path| std::fs::read_to_string(path).ok()?.trim().parse::<u64>().ok())
        .min();
    Some(container.unwrap_or(u64::MAX).min(physical).min(Memory::of_this_machine().all))
}

#[cfg(not(unix))]
pub(super) fn confine(_command: &mut Command, _limits: &Limits) -> io::Result<()> {
    Ok(())
}
