//! The box around a child process on Linux, beyond limits: which files it sees (Landlock), what it may ask of the kernel
//! (seccomp), and a network of its own with nothing in it (a namespace).
//!
//! A layer that this host does not have is left out, and [`Host`] says so. A layer that the host has must hold: a child that
//! cannot be confined by it is not started.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use landlock::{
    ABI, Access, AccessFs, AccessNet, BitFlags, PathBeneath, PathFd, Ruleset, RulesetAttr, RulesetCreated,
    RulesetCreatedAttr, Scope,
};

use super::system_calls::{Filter, KNOWN};

/// The newest Landlock interface that is used; older ones give what they have.
const LANDLOCK: ABI = ABI::V6;

/// Folders from which libraries are loaded. Nothing in them is secret; `/opt` and `/usr/local` as a whole may hold more.
const LIBRARIES: [&str; 10] = [
    "/lib",
    "/lib64",
    "/usr/lib",
    "/usr/lib32",
    "/usr/lib64",
    "/usr/local/lib",
    "/usr/local/lib64",
    "/nix/store",
    "/gnu/store",
    "/home/linuxbrew/.linuxbrew",
];

/// Other files and folders that libraries look at when they start: their own index, random numbers, the processors.
const SYSTEM: [&str; 12] = [
    "/etc/ld.so.cache",
    "/etc/ld-musl-x86_64.path",
    "/etc/ld-musl-aarch64.path",
    "/dev/null",
    "/dev/urandom",
    "/dev/random",
    "/proc/cpuinfo",
    "/proc/meminfo",
    "/proc/filesystems",
    "/proc/sys/vm",
    "/sys/devices/system/cpu",
    "/sys/devices/system/node",
];

/// Capabilities that root keeps, so that it can open files of other users: CAP_DAC_OVERRIDE and CAP_DAC_READ_SEARCH.
const KEPT_CAPABILITIES: [libc::c_ulong; 2] = [1, 2];

/// What this host has; `Err` says why it lacks it.
pub(super) struct Host {
    /// Version of the Landlock interface.
    pub(super) landlock: Result<u32, String>,
    pub(super) seccomp: Result<(), String>,
    /// The flags of `unshare` that give a network of its own.
    pub(super) network: Result<libc::c_int, String>,
}

impl Host {
    /// This host. It is looked at once.
    pub(super) fn get() -> &'static Host {
        static HOST: OnceLock<Host> = OnceLock::new();
        HOST.get_or_init(|| Host { landlock: landlock(), seccomp: seccomp(), network: network() })
    }
}

fn landlock() -> Result<u32, String> {
    // SAFETY: with this flag the call takes no pointer and returns the version.
    let version =
        unsafe { libc::syscall(libc::SYS_landlock_create_ruleset, std::ptr::null::<u8>(), 0usize, 1u32) };
    u32::try_from(version).map_err(|_| match io::Error::last_os_error().raw_os_error() {
        Some(libc::ENOSYS) => "this kernel has no Landlock (Linux 5.13 or newer has)".to_owned(),
        Some(libc::EOPNOTSUPP) => {
            "Landlock is switched off; start the kernel with landlock in its list `lsm=`".to_owned()
        }
        _ => format!("Landlock cannot be used: {}", io::Error::last_os_error()),
    })
}

fn seccomp() -> Result<(), String> {
    if !KNOWN {
        return Err(format!("there is no filter of system calls for {} yet", std::env::consts::ARCH));
    }
    let action: u32 = libc::SECCOMP_RET_ERRNO;
    // SAFETY: the kernel reads one number from the pointer.
    let result = unsafe { libc::syscall(libc::SYS_seccomp, libc::SECCOMP_GET_ACTION_AVAIL, 0, &action) };
    if result == 0 {
        Ok(())
    } else {
        Err(format!("this kernel has no seccomp filters: {}", io::Error::last_os_error()))
    }
}

fn network() -> Result<libc::c_int, String> {
    let own = libc::CLONE_NEWNET | libc::CLONE_NEWIPC;
    // Root may have one at once; others must be alone in a user namespace first.
    let mut refusal = String::new();
    for flags in [own, own | libc::CLONE_NEWUSER] {
        let mut command = Command::new("/");
        // SAFETY: one system call; an error that is only a number allocates nothing.
        unsafe {
            command.pre_exec(move || match libc::unshare(flags) {
                0 => Err(io::Error::from_raw_os_error(libc::ECANCELED)), // it works; nothing is to be run
                _ => Err(io::Error::last_os_error()),
            })
        };
        match command.spawn().err() {
            Some(error) if error.raw_os_error() == Some(libc::ECANCELED) => return Ok(flags),
            error => refusal = error.map_or_else(String::new, |e| e.to_string()),
        }
    }
    Err(format!("no network namespace can be made here: {refusal}"))
}

/// A box that is ready to be entered.
pub(super) struct Sandbox {
    ruleset: Option<OwnedFd>,
    filter: Option<Filter>,
    network: Option<libc::c_int>,
}

impl Sandbox {
    /// Prepares a box in which `program` may run, read the file `reads` and write the file `writes`, which must be there.
    ///
    /// # Errors
    /// If Landlock does not take the rules.
    pub(super) fn prepare(
        program: &Path,
        reads: Option<&Path>,
        writes: Option<&Path>,
    ) -> io::Result<Sandbox> {
        let host = Host::get();
        let ruleset = match host.landlock {
            Ok(_) => ruleset(program, reads, writes).map_err(io::Error::other)?,
            Err(_) => None,
        };
        let filter = host.seccomp.is_ok().then(Filter::new);
        Ok(Sandbox { ruleset, filter, network: host.network.as_ref().ok().copied() })
    }

    /// Confines the calling process, for good. Only system calls: it may be called between fork and exec.
    ///
    /// # Errors
    /// What the kernel says.
    pub(super) fn enter(&mut self) -> io::Result<()> {
        let check = |result: libc::c_long| match result {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        };
        // SAFETY: plain system calls without pointers.
        unsafe {
            // Files that some library opened here without closing them on exec must not come along.
            libc::syscall(libc::SYS_close_range, 3u32, u32::MAX, 4u32 /* CLOSE_RANGE_CLOEXEC */);
            check(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0).into())?;
            if let Some(flags) = self.network {
                check(libc::unshare(flags).into())?;
            }
            // Fails for who is not root, and has none to lose.
            for capability in (0..64).filter(|c| !KEPT_CAPABILITIES.contains(c)) {
                libc::prctl(libc::PR_CAPBSET_DROP, capability, 0, 0, 0);
            }
            if let Some(ruleset) = &self.ruleset {
                check(libc::syscall(libc::SYS_landlock_restrict_self, ruleset.as_raw_fd(), 0u32))?;
            }
        }
        match &mut self.filter {
            Some(filter) => filter.install(),
            None => Ok(()),
        }
    }
}

/// Landlock's rules: nothing but what is named here can be opened.
fn ruleset(
    program: &Path,
    reads: Option<&Path>,
    writes: Option<&Path>,
) -> Result<Option<OwnedFd>, landlock::RulesetError> {
    let mut rules = Ruleset::default()
        .handle_access(AccessFs::from_all(LANDLOCK))?
        .handle_access(AccessNet::from_all(LANDLOCK))?
        .scope(Scope::from_all(LANDLOCK))?
        .create()?;
    let read = AccessFs::ReadFile | AccessFs::ReadDir;
    for path in LIBRARIES.iter().chain(&SYSTEM) {
        rules = allow(rules, Path::new(path), read)?;
    }
    let run = AccessFs::Execute | AccessFs::ReadFile;
    let mut runs = vec![program.to_path_buf()];
    while let Some(next) = runs.last().and_then(|path| interpreter(path))
        && runs.len() < 4
    {
        runs.push(next);
    }
    for path in &runs {
        rules = allow(rules, path, run)?;
    }
    // Libraries beside the program, and those that the environment names.
    let beside = program.canonicalize().ok().and_then(|path| Some(path.parent()?.parent()?.join("lib")));
    let named = std::env::var_os("LD_LIBRARY_PATH").unwrap_or_default();
    for folder in beside.into_iter().chain(std::env::split_paths(&named).filter(|path| path.is_absolute())) {
        rules = allow(rules, &folder, read)?;
    }
    if let Some(path) = reads {
        rules = allow(rules, path, AccessFs::ReadFile.into())?;
    }
    // ffmpeg reads what it wrote to put the index in front.
    rules = allow(rules, Path::new("/dev/null"), AccessFs::ReadFile | AccessFs::WriteFile)?;
    if let Some(path) = writes {
        rules = allow(rules, path, AccessFs::ReadFile | AccessFs::WriteFile | AccessFs::Truncate)?;
    }
    Ok(rules.into())
}

/// Adds a rule; a path that is not there needs none.
fn allow(
    rules: RulesetCreated,
    path: &Path,
    access: BitFlags<AccessFs>,
) -> Result<RulesetCreated, landlock::RulesetError> {
    let Ok(file) = PathFd::new(path) else { return Ok(rules) };
    // Folders can be listed; of a file that right is no right.
    let access = if path.is_dir() { access } else { access & AccessFs::from_file(LANDLOCK) };
    rules.add_rule(PathBeneath::new(file, access))
}

/// The program that runs `program`: the loader that an ELF file names, or that after `#!` in a script.
fn interpreter(program: &Path) -> Option<PathBuf> {
    let mut start = Vec::new();
    File::open(program).ok()?.take(64 << 10).read_to_end(&mut start).ok()?;
    let bytes = |from: usize, count: usize| start.get(from..from.checked_add(count)?);
    let path = |bytes: &[u8]| Some(PathBuf::from(std::str::from_utf8(bytes).ok()?));
    if let Some(line) = start.strip_prefix(b"#!") {
        let line = line.split(|b| *b == b'\n').next()?.trim_ascii();
        return path(line.split(|b| *b == b' ').next()?);
    }
    if bytes(0, 6)? != b"\x7fELF\x02\x01" {
        return None; // not 64 bits, little-endian
    }
    let number = |from: usize, count: usize| {
        let value = bytes(from, count)?.iter().rev().fold(0u64, |value, b| value << 8 | u64::from(*b));
        usize::try_from(value).ok()
    };
    // The program headers: their place, size and count. That of type 3 has the place and length of the loader's name.
    let (table, size, count) = (number(32, 8)?, number(54, 2)?, number(56, 2)?);
    let header =
        (0..count).filter_map(|i| table.checked_add(i * size)).find(|&at| number(at, 4) == Some(3))?;
    let name = bytes(number(header + 8, 8)?, number(header + 32, 8)?)?;
    path(name.strip_suffix(b"\0").unwrap_or(name))
}
