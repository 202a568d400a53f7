//! Work goes on at low priority, so that requests to the same machine come first.

/// Lets this thread, and the programs that it starts, run when nobody else wants to.
#[cfg(target_os = "linux")]
pub(super) fn lower_priority(niceness: u8) {
    if niceness == 0 {
        return;
    }
    // SAFETY: plain system calls; both concern the calling thread only. Not being allowed to is no harm.
    unsafe {
        libc::setpriority(libc::PRIO_PROCESS, 0, i32::from(niceness.min(19)));
        let parameters: libc::sched_param = std::mem::zeroed();
        libc::sched_setscheduler(0, libc::SCHED_BATCH, &parameters);
    }
}

/// Elsewhere such calls concern the whole process, and with it whoever holds the engine: its priority stays.
#[cfg(not(target_os = "linux"))]
pub(super) fn lower_priority(_niceness: u8) {}
