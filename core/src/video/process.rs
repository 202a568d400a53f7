//! Runs ffmpeg and ffprobe as boxed child processes.
//!
//! A decoder reads files that strangers made, so it is treated as if it could turn against us: it gets an empty
//! environment, its own process group, limits on memory, files and processor time, and no new privileges. Its stderr is
//! always drained by a thread of its own (a full pipe would stop it for ever), of which only the end is kept. A child
//! never outlives its [`Process`].

use std::collections::VecDeque;
use std::io::{self, Read};
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::control::Control;
use crate::error::{Error, ErrorKind, Result};

/// Environment variables that a child keeps: without them some installations cannot load their own libraries.
const KEPT_VARIABLES: [&str; 5] =
    ["LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "DYLD_FALLBACK_LIBRARY_PATH", "SystemRoot", "PATH"];

/// Longest part of a log line that is kept, bytes.
const LINE_LIMIT: usize = 1024;

/// How many of the last log lines are kept.
const TAIL: usize = 24;

/// What a child may use. Limits are those of Unix; elsewhere only the environment is restricted.
#[derive(Debug, Clone)]
#[cfg_attr(not(target_os = "linux"), expect(dead_code, reason = "other systems know some of them, or none"))]
pub(super) struct Limits {
    /// Address space, bytes. Threads reserve far more of it than they use.
    pub(super) memory: u64,
    /// Processor time, seconds.
    pub(super) processor: u64,
    /// Size of a file that it writes, bytes.
    pub(super) file: u64,
    /// Whether it dies with the thread that started it (Linux). Only for children that stay on that thread.
    pub(super) die_with_parent: bool,
}

impl Default for Limits {
    fn default() -> Self {
        Self { memory: 16 << 30, processor: 8 * 3600, file: 0, die_with_parent: true }
    }
}

/// A running child. Dropping it kills it.
pub(super) struct Process {
    child: Child,
    log: Option<JoinHandle<Log>>,
}

/// What a child wrote to stderr.
#[derive(Debug, Clone, Default)]
pub(super) struct Log {
    /// The last lines, without the addresses that ffmpeg puts in front.
    tail: VecDeque<String>,
    /// How many lines were marked as errors.
    pub(super) errors: u64,
    /// Time stamps in seconds, as the `showinfo` filter printed them: one for each frame.
    pub(super) timestamps: Vec<f64>,
}

/// What a child that ran to its end left.
pub(super) struct Output {
    pub(super) status: ExitStatus,
    pub(super) stdout: Vec<u8>,
    pub(super) log: Log,
}

impl Process {
    /// Starts `command` within `limits`, all three streams as pipes.
    pub(super) fn spawn(command: &mut Command, limits: &Limits) -> Result<Process> {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.env_clear();
        for name in KEPT_VARIABLES {
            if let Some(value) = std::env::var_os(name) {
                command.env(name, value);
            }
        }
        confine(command, limits);
        let program = command.get_program().to_string_lossy().into_owned();
        let mut child = command.spawn().map_err(|source| {
            Error::new(ErrorKind::Io, format!("cannot start {program}: {source}")).caused_by(source)
        })?;
        let log = child.stderr.take().map(|stderr| std::thread::spawn(move || Log::drain(stderr)));
        Ok(Process { child, log })
    }

    /// The child's output, once.
    pub(super) fn stdout(&mut self) -> Option<ChildStdout> {
        self.child.stdout.take()
    }

    /// The child's input, once. Dropping it tells the child that there is no more.
    pub(super) fn stdin(&mut self) -> Option<ChildStdin> {
        self.child.stdin.take()
    }

    /// Waits for the end of the child.
    ///
    /// # Errors
    /// [`ErrorKind::DeadlineExceeded`] after `limit`; [`ErrorKind::Cancelled`].
    pub(super) fn wait(&mut self, limit: Duration, control: &Control) -> Result<ExitStatus> {
        let end = Instant::now() + limit;
        let mut pause = Duration::from_millis(1);
        loop {
            match self.child.try_wait() {
                Ok(Some(status)) => return Ok(status),
                Ok(None) => {}
                Err(source) => {
                    return Err(Error::new(ErrorKind::Io, format!("cannot wait for ffmpeg: {source}")));
                }
            }
            control.check()?;
            if Instant::now() >= end {
                return Err(Error::new(
                    ErrorKind::DeadlineExceeded,
                    format!("ffmpeg did not end within {} s", limit.as_secs()),
                ));
            }
            std::thread::sleep(pause);
            pause = (pause * 2).min(Duration::from_millis(20));
        }
    }

    /// Ends the child now, with all that it started.
    pub(super) fn kill(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) {
            // The child leads its own group. It has not been waited for, so its number cannot belong to another yet.
            #[cfg(unix)]
            if let Ok(group) = libc::pid_t::try_from(self.child.id()) {
                // SAFETY: plain system call without pointers.
                unsafe { libc::kill(-group, libc::SIGKILL) };
            }
            // Both fail only if the child is gone already, which is what is wanted.
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }

    /// What the child wrote to stderr; waits for its end, so call it after the child's.
    pub(super) fn log(&mut self) -> Log {
        self.log.take().and_then(|thread| thread.join().ok()).unwrap_or_default()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Lets `process` run to its end and keeps what it prints.
///
/// # Errors
/// [`ErrorKind::DeadlineExceeded`] after `limit`, [`ErrorKind::InvalidMedia`] if it prints more than `most` bytes,
/// [`ErrorKind::Cancelled`].
pub(super) fn run(mut process: Process, most: u64, limit: Duration, control: &Control) -> Result<Output> {
    drop(process.stdin());
    let reader = process.stdout().map(|stdout| {
        std::thread::spawn(move || {
            let mut bytes = Vec::new();
            // At the limit the pipe is closed and the child ends by itself.
            stdout.take(most + 1).read_to_end(&mut bytes).map(|_| bytes)
        })
    });
    let status = match process.wait(limit, control) {
        Ok(status) => status,
        Err(error) => {
            process.kill();
            return Err(error);
        }
    };
    let stdout =
        reader.and_then(|thread| thread.join().ok()).transpose().unwrap_or_default().unwrap_or_default();
    if stdout.len() as u64 > most {
        return Err(Error::new(ErrorKind::InvalidMedia, "the description of the media is unreasonably long"));
    }
    Ok(Output { status, stdout, log: process.log() })
}

impl Log {
    fn drain(mut stderr: impl Read) -> Log {
        let mut log = Log::default();
        let mut chunk = [0u8; 8192];
        let mut line = Vec::with_capacity(LINE_LIMIT);
        loop {
            let count = match stderr.read(&mut chunk) {
                Ok(0) => break,
                Ok(count) => count,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
                Err(_) => break,
            };
            for &byte in &chunk[..count] {
                if byte == b'\n' || byte == b'\r' {
                    log.take_line(&line);
                    line.clear();
                } else if line.len() < LINE_LIMIT {
                    line.push(byte);
                }
            }
        }
        log.take_line(&line);
        log
    }

    fn take_line(&mut self, line: &[u8]) {
        let line = String::from_utf8_lossy(line);
        if line.contains("Parsed_showinfo") {
            if let Some(time) = showinfo_time(&line) {
                self.timestamps.push(time);
            }
            return;
        }
        // Uneven times offend the raw output, which has no times.
        if line.contains("[info]") || line.contains(" to muxer in stream ") {
            return;
        }
        self.errors += u64::from(line.contains("[error]") || line.contains("[fatal]"));
        let text = without_prefix(&line).trim();
        if text.is_empty() {
            return;
        }
        if self.tail.len() == TAIL {
            self.tail.pop_front();
        }
        self.tail.push_back(text.to_owned());
    }

    /// The last thing of weight that the child said, for a message.
    pub(super) fn summary(&self) -> &str {
        // The limit on pixels makes everything after it fail too.
        if let Some(line) = self.tail.iter().find(|line| line.contains("exceeds specified max pixel count")) {
            return line.split_once(", see the documentation").map_or(line, |(line, _)| line);
        }
        // The last lines only repeat that the conversion failed.
        let vague =
            ["Conversion failed", "Error while decoding stream", "Exiting normally", "received signal"];
        self.tail
            .iter()
            .rev()
            .find(|line| !vague.iter().any(|v| line.contains(v)))
            .map_or("it gave no reason", String::as_str)
    }

    /// Whether the child said `text`.
    pub(super) fn says(&self, text: &str) -> bool {
        self.tail.iter().any(|line| line.contains(text))
    }
}

/// The time in `[Parsed_showinfo_1 @ 0x5581] [info] n:   3 pts:   1536 pts_time:0.12 ...`; NaN if the frame has none.
fn showinfo_time(line: &str) -> Option<f64> {
    let (_, rest) = line.split_once(" pts_time:")?;
    Some(rest.split_whitespace().next()?.parse().unwrap_or(f64::NAN))
}

/// Cuts `[h264 @ 0x5581] [error] ` from the front of a line.
fn without_prefix(line: &str) -> &str {
    let mut rest = line.trim_start();
    while let Some(inner) = rest.strip_prefix('[') {
        match inner.split_once("] ") {
            Some((_, tail)) => rest = tail,
            None => break,
        }
    }
    rest
}

#[cfg(unix)]
fn confine(command: &mut Command, limits: &Limits) {
    use std::os::unix::process::CommandExt;
    command.process_group(0);
    let limits = limits.clone();
    // SAFETY: between fork and exec only async-signal-safe system calls are made (setrlimit, prctl); nothing allocates.
    unsafe {
        command.pre_exec(move || {
            let set = |resource, value: u64| {
                let limit = libc::rlimit { rlim_cur: value as libc::rlim_t, rlim_max: value as libc::rlim_t };
                // A limit that is already lower cannot be raised; it is as good.
                libc::setrlimit(resource, &limit);
            };
            set(libc::RLIMIT_CORE, 0);
            set(libc::RLIMIT_CPU, limits.processor);
            set(libc::RLIMIT_FSIZE, limits.file);
            set(libc::RLIMIT_NOFILE, 64);
            #[cfg(target_os = "linux")]
            {
                set(libc::RLIMIT_AS, limits.memory);
                libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
                if limits.die_with_parent {
                    libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
                }
            }
            Ok(())
        });
    }
}

#[cfg(not(unix))]
fn confine(_command: &mut Command, _limits: &Limits) {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_keeps_times_errors_and_the_reason() {
        let text = "[Parsed_showinfo_0 @ 0x55] [info] n:   0 pts:      0 pts_time:0       pos:  48 fmt:gray\n\
                    [Parsed_showinfo_0 @ 0x55] [info] n:   1 pts:    512 pts_time:0.04    pos:  99\n\
                    [mov,mp4 @ 0x1] [error] moov atom not found\n\
                    [error] Conversion failed!\n";
        let log = Log::drain(text.as_bytes());
        assert_eq!(log.timestamps, [0.0, 0.04]);
        assert_eq!(log.errors, 2);
        assert_eq!(log.summary(), "moov atom not found");
    }

    #[test]
    fn an_endless_line_and_many_lines_stay_small() {
        let mut text = vec![b'x'; 1 << 20];
        for _ in 0..10_000 {
            text.extend_from_slice(b"\n[error] again");
        }
        let log = Log::drain(&text[..]);
        assert_eq!(log.errors, 10_000);
        assert!(log.tail.len() <= TAIL && log.tail.iter().all(|l| l.len() <= LINE_LIMIT));
    }

    #[cfg(unix)]
    #[test]
    fn a_child_that_hangs_is_ended_at_its_limit_and_by_a_cancel() {
        let hang =
            || Process::spawn(Command::new("/bin/sh").args(["-c", "sleep 60"]), &Limits::default()).unwrap();
        let error = run(hang(), 10, Duration::from_millis(50), &Control::new()).err().unwrap();
        assert_eq!(error.kind(), ErrorKind::DeadlineExceeded);
        let control = Control::new();
        control.cancel_token().cancel();
        let error = run(hang(), 10, Duration::from_secs(60), &control).err().unwrap();
        assert_eq!(error.kind(), ErrorKind::Cancelled);
    }

    #[cfg(unix)]
    #[test]
    fn a_child_that_floods_both_streams_neither_hangs_nor_fills_memory() {
        let flood = "i=0; while [ $i -lt 20000 ]; do echo 0123456789; echo '[error] x' >&2; i=$((i+1)); done";
        let process =
            Process::spawn(Command::new("/bin/sh").args(["-c", flood]), &Limits::default()).unwrap();
        let error = run(process, 1000, Duration::from_secs(60), &Control::new()).err().unwrap();
        assert_eq!(error.kind(), ErrorKind::InvalidMedia);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_child_is_confined() {
        let script = "ulimit -c; ulimit -f; ulimit -n; echo \"home=$HOME\"";
        let process =
            Process::spawn(Command::new("/bin/sh").args(["-c", script]), &Limits::default()).unwrap();
        let output = run(process, 1000, Duration::from_secs(20), &Control::new()).unwrap();
        assert_eq!(String::from_utf8_lossy(&output.stdout), "0\n0\n64\nhome=\n");
    }
}
