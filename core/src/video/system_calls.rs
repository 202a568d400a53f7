//! What a child process may ask of the Linux kernel: a seccomp filter.
//!
//! All is allowed but what a decoder has no use for: sockets, other processes, signals to others, other files' rights and
//! owners, mounts, namespaces, keys, tracing, and the large interfaces (BPF, io_uring, userfaultfd) in which most faults of
//! kernels are found. System calls newer than this list answer that they do not exist, so that none slips in.
//!
//! The filter is written out here because the crates for it do not see the x32 calls of x86-64, which are the same calls
//! under other numbers.

use libc::{c_long, sock_filter};

/// `AUDIT_ARCH_...` of this processor.
#[cfg(target_arch = "x86_64")]
const ARCHITECTURE: u32 = 0xc000_003e;
#[cfg(target_arch = "aarch64")]
const ARCHITECTURE: u32 = 0xc000_00b7;
/// None: this processor's system calls are not known here.
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
const ARCHITECTURE: u32 = 0;

/// Whether there is a filter for this processor.
pub(super) const KNOWN: bool = ARCHITECTURE != 0;

/// Calls from this number on are x32 calls.
#[cfg(target_arch = "x86_64")]
const X32: u32 = 0x4000_0000;

/// The newest call that was considered for [`REFUSED`].
const NEWEST: c_long = libc::SYS_mseal;

/// Where the parts of a call are in `struct seccomp_data`, bytes.
const NUMBER: u32 = 0;
const ARCH: u32 = 4;
/// The lower half of the first argument: both kinds of processor are little-endian.
const FIRST_ARGUMENT: u32 = 16;

/// Calls that fail with "operation not permitted".
#[rustfmt::skip]
const REFUSED: &[c_long] = &[
    // Sockets of every kind.
    libc::SYS_socket, libc::SYS_socketpair, libc::SYS_connect, libc::SYS_bind, libc::SYS_listen, libc::SYS_accept,
    libc::SYS_accept4,
    // Other processes.
    libc::SYS_ptrace, libc::SYS_process_vm_readv, libc::SYS_process_vm_writev, libc::SYS_process_madvise,
    libc::SYS_kcmp, libc::SYS_pidfd_open, libc::SYS_pidfd_getfd, libc::SYS_pidfd_send_signal, libc::SYS_tkill,
    libc::SYS_rt_sigqueueinfo, libc::SYS_rt_tgsigqueueinfo, libc::SYS_setpriority, libc::SYS_migrate_pages,
    libc::SYS_move_pages, libc::SYS_setpgid, libc::SYS_setsid,
    // Programs that are no files, and so have no rights that could be checked.
    libc::SYS_execveat, libc::SYS_memfd_create, libc::SYS_memfd_secret,
    // Rights, owners, names and times of files, which Landlock leaves alone.
    libc::SYS_fchmod, libc::SYS_fchmodat, 452 /* fchmodat2 */, libc::SYS_fchown, libc::SYS_fchownat,
    libc::SYS_utimensat, libc::SYS_setxattr, libc::SYS_lsetxattr, libc::SYS_fsetxattr, libc::SYS_removexattr,
    libc::SYS_lremovexattr, libc::SYS_fremovexattr, libc::SYS_name_to_handle_at, libc::SYS_open_by_handle_at,
    // Mounts and namespaces.
    libc::SYS_mount, libc::SYS_umount2, libc::SYS_pivot_root, libc::SYS_chroot, libc::SYS_open_tree,
    libc::SYS_move_mount, libc::SYS_fsopen, libc::SYS_fsconfig, libc::SYS_fsmount, libc::SYS_fspick,
    libc::SYS_mount_setattr, libc::SYS_unshare, libc::SYS_setns,
    // Large interfaces of the kernel.
    libc::SYS_bpf, libc::SYS_userfaultfd, libc::SYS_perf_event_open, libc::SYS_io_uring_setup,
    libc::SYS_io_uring_enter, libc::SYS_io_uring_register, libc::SYS_add_key, libc::SYS_request_key,
    libc::SYS_keyctl, libc::SYS_fanotify_init, libc::SYS_personality,
    // The machine as a whole.
    libc::SYS_init_module, libc::SYS_finit_module, libc::SYS_delete_module, libc::SYS_kexec_load,
    libc::SYS_kexec_file_load, libc::SYS_reboot, libc::SYS_swapon, libc::SYS_swapoff, libc::SYS_sethostname,
    libc::SYS_setdomainname, libc::SYS_settimeofday, libc::SYS_clock_settime, libc::SYS_clock_adjtime,
    libc::SYS_adjtimex, libc::SYS_acct, libc::SYS_quotactl, libc::SYS_syslog, libc::SYS_vhangup,
    // Old forms, which other processors never had.
    #[cfg(target_arch = "x86_64")] libc::SYS_fork,
    #[cfg(target_arch = "x86_64")] libc::SYS_vfork,
    #[cfg(target_arch = "x86_64")] libc::SYS_chmod,
    #[cfg(target_arch = "x86_64")] libc::SYS_chown,
    #[cfg(target_arch = "x86_64")] libc::SYS_lchown,
    #[cfg(target_arch = "x86_64")] libc::SYS_utime,
    #[cfg(target_arch = "x86_64")] libc::SYS_utimes,
    #[cfg(target_arch = "x86_64")] libc::SYS_futimesat,
    #[cfg(target_arch = "x86_64")] libc::SYS_iopl,
    #[cfg(target_arch = "x86_64")] libc::SYS_ioperm,
    #[cfg(target_arch = "x86_64")] libc::SYS_modify_ldt,
];

/// A filter that is ready to be installed.
pub(super) struct Filter {
    program: Vec<sock_filter>,
    /// Instructions that compare with the number of the process, which is not known before it is there.
    own: Vec<usize>,
}

impl Filter {
    pub(super) fn new() -> Filter {
        let mut filter = Filter { program: Vec::new(), own: Vec::new() };
        filter.load(ARCH);
        filter.jump(libc::BPF_JEQ, ARCHITECTURE, 1, 0);
        filter.answer(libc::SECCOMP_RET_KILL_PROCESS);
        filter.load(NUMBER);
        #[cfg(target_arch = "x86_64")]
        filter.unless(libc::BPF_JGE, X32, libc::EPERM);
        filter.unless(libc::BPF_JGT, NEWEST as u32, libc::ENOSYS);
        // Its flags are in memory, where a filter cannot see them. The C library then takes `clone`.
        filter.unless(libc::BPF_JEQ, libc::SYS_clone3 as u32, libc::ENOSYS);
        for &call in REFUSED {
            filter.unless(libc::BPF_JEQ, call as u32, libc::EPERM);
        }
        // Threads, but no processes.
        filter.only_if(libc::SYS_clone, libc::BPF_JSET, libc::CLONE_THREAD as u32);
        // Limits of the process itself, which it calls 0.
        filter.only_if(libc::SYS_prlimit64, libc::BPF_JEQ, 0);
        // A signal to itself is how a program aborts.
        for call in [libc::SYS_kill, libc::SYS_tgkill] {
            let comparison = filter.only_if(call, libc::BPF_JEQ, 0);
            filter.own.push(comparison);
        }
        filter.answer(libc::SECCOMP_RET_ALLOW);
        filter
    }

    /// Confines the calling process, for good. Only system calls: it may be called between fork and exec.
    ///
    /// # Errors
    /// What the kernel says.
    pub(super) fn install(&mut self) -> std::io::Result<()> {
        // SAFETY: a plain system call without pointers.
        let own = unsafe { libc::getpid() };
        for &instruction in &self.own {
            if let Some(instruction) = self.program.get_mut(instruction) {
                instruction.k = own as u32;
            }
        }
        let program = libc::sock_fprog { len: self.program.len() as u16, filter: self.program.as_mut_ptr() };
        // SAFETY: `program` points to as many instructions as it says, and the kernel only reads them.
        let result = unsafe { libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, 0, &program) };
        if result == 0 { Ok(()) } else { Err(std::io::Error::last_os_error()) }
    }

    fn push(&mut self, code: u32, k: u32, jt: u8, jf: u8) {
        self.program.push(sock_filter { code: code as u16, jt, jf, k });
    }

    fn load(&mut self, offset: u32) {
        self.push(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, offset, 0, 0);
    }

    /// Skips `yes` instructions if the loaded value compares so with `value`, else `no`.
    fn jump(&mut self, comparison: u32, value: u32, yes: u8, no: u8) {
        self.push(libc::BPF_JMP | comparison | libc::BPF_K, value, yes, no);
    }

    fn answer(&mut self, answer: u32) {
        self.push(libc::BPF_RET | libc::BPF_K, answer, 0, 0);
    }

    /// Answers `error` if the call's number compares so with `value`.
    fn unless(&mut self, comparison: u32, value: u32, error: i32) {
        self.jump(comparison, value, 0, 1);
        self.answer(libc::SECCOMP_RET_ERRNO | error as u32);
    }

    /// Allows `call` only if its first argument compares so with `value`. Returns the place of that comparison.
    fn only_if(&mut self, call: c_long, comparison: u32, value: u32) -> usize {
        self.jump(libc::BPF_JEQ, call as u32, 0, 4);
        self.load(FIRST_ARGUMENT);
        let place = self.program.len();
        self.jump(comparison, value, 0, 1);
        self.answer(libc::SECCOMP_RET_ALLOW);
        self.answer(libc::SECCOMP_RET_ERRNO | libc::EPERM as u32);
        place
    }
}
