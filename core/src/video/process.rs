//! Runs ffmpeg and ffprobe as boxed child processes.
//!
//! A decoder reads files that strangers made, so it is treated as if it could turn against us: it gets an empty
//! environment, its own process group, limits on memory, files and processor time, and on Linux a box in which it sees no
//! files but its own, no network and no other process ([`super::sandbox`]). Its stderr is
//! always drained by a thread of its own (a full pipe would stop it for ever), of which only the end is kept. A child
//! never outlives its [`Process`].

use std::collections::VecDeque;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::control::Control;
use crate::error::{Error, ErrorKind, Result};

#[cfg(target_os = "linux")]
use super::sandbox::Sandbox;

/// Environment variables that a child keeps: without them some installations cannot load their own libraries.
const KEPT_VARIABLES: [&str; 5] =
    ["LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "DYLD_FALLBACK_LIBRARY_PATH", "SystemRoot", "PATH"];

/// Longest part of a log line that is kept, bytes.
const LINE_LIMIT: usize = 1024;

/// How many of the last log lines are kept.
const TAIL: usize = 24;

/// What a child may use. Limits are those of Unix, and files are kept from it on Linux; elsewhere only the environment is
/// restricted.
#[derive(Debug, Clone)]
#[cfg_attr(not(target_os = "linux"), expect(dead_code, reason = "other systems know some of them, or none"))]
pub(super) struct Limits {
    /// Address space, bytes. Threads reserve far more of it than they use; what they use is limited by what the host has.
    pub(super) memory: u64,
    /// The one file that it reads, absolute.
    pub(super) reads: Option<PathBuf>,
    /// The one file that it writes, absolute. It must be there.
    pub(super) writes: Option<PathBuf>,
    /// Processor time, seconds.
    pub(super) processor: u64,
    /// Size of a file that it writes, bytes.
    pub(super) file: u64,
    /// Whether it dies with the thread that started it (Linux). Only for children that stay on that thread.
    pub(super) die_with_parent: bool,
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

/// A running child. Dropping it kills it.
pub(super) struct Process {
    child: Child,
    log: Option<JoinHandle<Log>>,
    seen: Arc<AtomicU64>,
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
    /// The last decoder that was not opened because it is not on the list.
    refused_decoder: Option<String>,
    /// How many frames `showinfo` has seen, for those who cannot wait for the log.
    seen: Arc<AtomicU64>,
    /// The signal after which ffmpeg ended in order.
    signal: Option<i32>,
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
        let program = command.get_program().to_string_lossy().into_owned();
        let fails = |doing: &str, source: io::Error| {
            // It was there when it was looked for.
            let kind = if Path::new(&program).exists() { ErrorKind::Io } else { ErrorKind::FfmpegMissing };
            Error::new(kind, format!("cannot {doing} {program}: {source}")).caused_by(source)
        };
        confine(command, limits).map_err(|source| fails("confine", source))?;
        let mut child = command.spawn().map_err(|source| fails("start", source))?;
        let log = Log::default();
        let seen = Arc::clone(&log.seen);
        let log = child.stderr.take().map(|stderr| std::thread::spawn(move || log.drain(stderr)));
        Ok(Process { child, log, seen })
    }

    /// How many frames have come to the child's `showinfo` filter by now.
    pub(super) fn frames_seen(&self) -> u64 {
        self.seen.load(Ordering::Relaxed)
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

/// What a child that was ended from outside left is no word about its video, nor the end of it: the system ends programs
/// where memory runs out, and who stops the service may end all of its processes at once.
///
/// # Errors
/// [`ErrorKind::Io`] if that is how the child ended.
pub(super) fn check_ended_by_itself(status: ExitStatus, log: &Log) -> Result<()> {
    match signal_of(status).or(log.signal).filter(|signal| is_from_outside(*signal)) {
        None => Ok(()),
        Some(signal) => Err(Error::new(
            ErrorKind::Io,
            format!("ffmpeg was ended from outside (signal {signal})"),
        )
        .hint(
            "perhaps the memory of this machine ran out: its system log says so; run the same command again",
        )),
    }
}

#[cfg(unix)]
fn signal_of(status: ExitStatus) -> Option<i32> {
    std::os::unix::process::ExitStatusExt::signal(&status)
}

#[cfg(not(unix))]
fn signal_of(_status: ExitStatus) -> Option<i32> {
    None
}

/// Whether others send this signal. The remaining ones a program brings upon itself, by a fault or by breaking its limits.
#[cfg(unix)]
fn is_from_outside(signal: i32) -> bool {
    [libc::SIGKILL, libc::SIGTERM, libc::SIGINT, libc::SIGHUP, libc::SIGQUIT].contains(&signal)
}

#[cfg(not(unix))]
fn is_from_outside(_signal: i32) -> bool {
    false
}

/// The number of SIGTERM.
const TERMINATE: i32 = 15;

impl Log {
    /// Reads to the end of `stderr`.
    fn drain(mut self, mut stderr: impl Read) -> Log {
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
                    self.take_line(&line);
                    line.clear();
                } else if line.len() < LINE_LIMIT {
                    line.push(byte);
                }
            }
        }
        self.take_line(&line);
        self
    }

    fn take_line(&mut self, line: &[u8]) {
        let line = String::from_utf8_lossy(line);
        if line.contains("Parsed_showinfo") {
            if let Some(time) = showinfo_time(&line) {
                self.timestamps.push(time);
                self.seen.fetch_add(1, Ordering::Relaxed);
            }
            return;
        }
        // Sound is not decoded, by intent. If the picture is refused, no frame comes, which is told elsewhere.
        if let Some(decoder) = refused_decoder(&line) {
            self.refused_decoder = Some(decoder.to_owned());
            return;
        }
        if let Some((_, number)) = line.split_once("Exiting normally, received signal ") {
            self.signal = number.trim_end().trim_end_matches('.').parse().ok();
        } else if line.contains("system signals, hard exiting") {
            // Asked too often: then it does not say which signal it was, and what it had still to write is lost.
            self.signal = Some(TERMINATE);
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

    /// The last decoder that the child wanted to open and must not.
    pub(super) fn refused_decoder(&self) -> Option<&str> {
        self.refused_decoder.as_deref()
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

/// The decoder in `[aac @ 0x55] [error] Codec (aac) not on whitelist 'h264,...'`.
fn refused_decoder(line: &str) -> Option<&str> {
    let (_, rest) = line.split_once("Codec (")?;
    rest.split_once(") not on whitelist").map(|(name, _)| name)
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
fn confine(command: &mut Command, limits: &Limits) -> io::Result<()> {
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

/// Memory that processes of this host, or of its container, may use, bytes.
#[cfg(target_os = "linux")]
fn host_memory() -> Option<u64> {
    // SAFETY: plain calls without pointers.
    let (pages, size) = unsafe { (libc::sysconf(libc::_SC_PHYS_PAGES), libc::sysconf(libc::_SC_PAGESIZE)) };
    let physical = u64::try_from(pages).ok()?.checked_mul(u64::try_from(size).ok()?)?;
    // Of control groups version 2 and 1.
    let container = ["/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"]
        .iter()
        .filter_map(|path| std::fs::read_to_string(path).ok()?.trim().parse().ok())
        .min();
    Some(container.map_or(physical, |limit: u64| limit.min(physical)))
}

#[cfg(not(unix))]
fn confine(_command: &mut Command, _limits: &Limits) -> io::Result<()> {
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_keeps_times_errors_and_the_reason() {
        let text = "[Parsed_showinfo_0 @ 0x55] [info] n:   0 pts:      0 pts_time:0       pos:  48 fmt:gray\n\
                    [Parsed_showinfo_0 @ 0x55] [info] n:   1 pts:    512 pts_time:0.04    pos:  99\n\
                    [mov,mp4 @ 0x1] [error] moov atom not found\n\
                    [error] Conversion failed!\n";
        let log = Log::default().drain(text.as_bytes());
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
        let log = Log::default().drain(&text[..]);
        assert_eq!(log.errors, 10_000);
        assert!(log.tail.len() <= TAIL && log.tail.iter().all(|l| l.len() <= LINE_LIMIT));
    }

    #[cfg(unix)]
    #[test]
    fn a_child_that_hangs_is_ended_at_its_limit_and_by_a_cancel() {
        let hang = || {
            Process::spawn(Command::new("/bin/sh").args(["-c", "while :; do :; done"]), &Limits::default())
                .unwrap()
        };
        let error = run(hang(), 10, Duration::from_millis(50), &Control::new()).err().unwrap();
        assert_eq!(error.kind(), ErrorKind::DeadlineExceeded);
        let control = Control::new();
        control.cancel_token().cancel();
        let error = run(hang(), 10, Duration::from_secs(60), &control).err().unwrap();
        assert_eq!(error.kind(), ErrorKind::Cancelled);
    }

    #[cfg(unix)]
    #[test]
    fn who_was_ended_from_outside_is_told_from_who_broke_down() {
        let ended = |script: &str| {
            let process =
                Process::spawn(Command::new("/bin/sh").args(["-c", script]), &Limits::default()).unwrap();
            let output = run(process, 1000, Duration::from_secs(20), &Control::new()).unwrap();
            check_ended_by_itself(output.status, &output.log).map_err(|error| error.kind())
        };
        for signal in ["KILL", "TERM", "INT", "HUP"] {
            assert_eq!(
                ended(&format!("kill -{signal} $$; while :; do :; done")),
                Err(ErrorKind::Io),
                "{signal}"
            );
        }
        // ffmpeg ends in order when it is asked to.
        let in_order = "echo '[info] Exiting normally, received signal 15.' >&2; exit 255";
        assert_eq!(ended(in_order), Err(ErrorKind::Io));
        // Or at once when it is asked again and again.
        let at_once = "echo 'Received > 3 system signals, hard exiting' >&2; exit 123";
        assert_eq!(ended(at_once), Err(ErrorKind::Io));
        // Its own fault, its own limit, and a plain end.
        for script in ["kill -SEGV $$", "kill -XCPU $$", "exit 1", "exit 0"] {
            assert_eq!(ended(script), Ok(()), "{script}");
        }
        // Its processor time is over.
        let limits = Limits { processor: 1, ..Limits::default() };
        let busy =
            Process::spawn(Command::new("/bin/sh").args(["-c", "while :; do :; done"]), &limits).unwrap();
        let output = run(busy, 1000, Duration::from_secs(60), &Control::new()).unwrap();
        assert!(!output.status.success());
        assert!(check_ended_by_itself(output.status, &output.log).is_ok());
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

    /// What a decoder that was taken over would try. It runs as the child of the test below, which tells it where things are.
    #[cfg(target_os = "linux")]
    #[test]
    #[ignore = "runs only as the child of another test"]
    fn a_prisoner() {
        use std::io::BufRead;
        use std::net::{TcpStream, UdpSocket};
        let lines: Vec<String> = io::stdin().lock().lines().map(|line| line.unwrap()).collect();
        let [folder, port, parent, open] = &lines[..] else { return };
        let folder = Path::new(folder);
        let parent: libc::pid_t = parent.parse().unwrap();
        let tell = |what: &str, result: io::Result<()>| match result {
            Ok(()) => println!("<{what}: done>"),
            Err(error) => println!("<{what}: {}>", error.raw_os_error().unwrap_or(0)),
        };
        let call = |result: libc::c_long| match result {
            -1 => Err(io::Error::last_os_error()),
            _ => Ok(()),
        };
        tell("read its video", std::fs::read(folder.join("video.mp4")).map(drop));
        tell("write its output", std::fs::write(folder.join("output.mp4"), "a film"));
        tell("start a thread", std::thread::Builder::new().spawn(|| {}).map(|t| t.join().unwrap()));
        tell("read the secrets", std::fs::read(folder.join("secrets.json")).map(drop));
        tell("read the database", std::fs::read(folder.join("service.sqlite")).map(drop));
        tell("list the folder", std::fs::read_dir(folder).map(drop));
        tell("write beside its output", std::fs::write(folder.join("other.mp4"), "x"));
        tell(
            "write to its video",
            std::fs::OpenOptions::new().write(true).open(folder.join("video.mp4")).map(drop),
        );
        tell("remove its video", std::fs::remove_file(folder.join("video.mp4")));
        tell(
            "read the environment of the server",
            std::fs::read(format!("/proc/{parent}/environ")).map(drop),
        );
        tell("read the accounts", std::fs::read("/etc/passwd").map(drop));
        tell("connect by TCP", TcpStream::connect(format!("127.0.0.1:{port}")).map(drop));
        tell("open a UDP socket", UdpSocket::bind("127.0.0.1:0").map(drop));
        // SAFETY: plain system calls; the path is a valid string, and a child of `fork` ends at once.
        unsafe {
            let secrets = std::ffi::CString::new(folder.join("secrets.json").to_str().unwrap()).unwrap();
            tell("change rights", call(libc::chmod(secrets.as_ptr(), 0o777).into()));
            tell(
                "open a socket of the system",
                call(libc::socket(libc::AF_UNIX, libc::SOCK_STREAM, 0).into()),
            );
            tell("signal the server", call(libc::kill(parent, 0).into()));
            tell("use an open file", call(libc::fcntl(open.parse().unwrap(), libc::F_GETFD).into()));
            tell("signal itself", call(libc::kill(libc::getpid(), 0).into()));
            tell("signal everybody", call(libc::kill(-1, 0).into()));
            tell("trace the server", call(libc::syscall(libc::SYS_ptrace, 0x4206, parent, 0, 0)));
            tell("enter a namespace", call(libc::unshare(libc::CLONE_NEWUSER).into()));
            tell("set up io_uring", call(libc::syscall(libc::SYS_io_uring_setup, 1, 0)));
            let fork = libc::fork();
            if fork == 0 {
                libc::_exit(0);
            }
            tell("fork", call(fork.into()));
        }
        tell("start a program", Command::new("/bin/true").spawn().map(drop));
        // In the place of this program: it must not come so far as to print anything.
        use std::os::unix::process::CommandExt;
        tell("become another program", Err(Command::new("/bin/echo").arg("<free>").exec()));
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_child_that_was_taken_over_reaches_nothing() {
        use crate::prerequisites::Prerequisite;
        use std::io::Write;
        let host = super::super::sandbox::Host::get();
        if let Some(missing) = host.landlock.as_ref().err().or(host.seccomp.as_ref().err()) {
            Prerequisite::Sandbox.is_missing(missing);
            return;
        }
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        for name in ["video.mp4", "secrets.json", "service.sqlite", "output.mp4"] {
            std::fs::write(path(name), "something").unwrap();
        }
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        // A file that is open here and stays so in programs that are started, under a number that they do not come to.
        let secrets = std::fs::File::open(path("secrets.json")).unwrap();
        // SAFETY: plain system calls without pointers; the number is closed below and nobody else has it.
        let open = unsafe { libc::fcntl(std::os::fd::AsRawFd::as_raw_fd(&secrets), libc::F_DUPFD, 200) };
        assert!(open >= 200);
        // This test program, in the place of ffmpeg.
        let mut command = Command::new(std::env::current_exe().unwrap());
        let name = concat!(module_path!(), "::a_prisoner").split_once("::").unwrap().1;
        command.args([name, "--exact", "--ignored", "--nocapture", "--test-threads=1"]);
        let limits = Limits {
            reads: Some(path("video.mp4")),
            writes: Some(path("output.mp4")),
            file: 1 << 20,
            ..Limits::default()
        };
        let mut process = Process::spawn(&mut command, &limits).unwrap();
        let mut input = process.stdin().unwrap();
        let parent = std::process::id();
        write!(input, "{}\n{port}\n{parent}\n{open}\n", folder.path().display()).unwrap();
        drop(input);
        let output = run(process, 1 << 20, Duration::from_secs(60), &Control::new()).unwrap();
        // SAFETY: as above.
        unsafe { libc::close(open) };
        let said = String::from_utf8_lossy(&output.stdout);
        let outcome = |what: &str| {
            let (_, rest) =
                said.split_once(&format!("<{what}: ")).unwrap_or_else(|| panic!("{what}?\n{said}"));
            rest.split_once('>').unwrap().0.to_owned()
        };
        let refused = |what: &str| {
            let outcome = outcome(what);
            let errors = [libc::EPERM, libc::EACCES].map(|e| e.to_string());
            assert!(errors.contains(&outcome), "{what}: {outcome}\n{said}");
        };
        // What it needs.
        assert_eq!(outcome("read its video"), "done", "{said}");
        assert_eq!(outcome("write its output"), "done", "{said}");
        assert_eq!(outcome("start a thread"), "done", "{said}");
        assert_eq!(outcome("signal itself"), "done", "{said}");
        // Files.
        refused("read the secrets");
        refused("read the database");
        refused("list the folder");
        refused("write beside its output");
        refused("write to its video");
        refused("remove its video");
        refused("change rights");
        refused("read the accounts");
        assert_eq!(outcome("use an open file"), libc::EBADF.to_string(), "{said}");
        // The network.
        refused("connect by TCP");
        refused("open a UDP socket");
        refused("open a socket of the system");
        // Other processes.
        refused("signal the server");
        refused("signal everybody");
        refused("trace the server");
        refused("read the environment of the server");
        refused("fork");
        refused("start a program");
        refused("become another program");
        assert!(!said.contains("<free>"), "{said}");
        // Ways out.
        refused("enter a namespace");
        refused("set up io_uring");
        // Nothing of it left a trace.
        assert_eq!(std::fs::read(path("output.mp4")).unwrap(), b"a film");
        assert!(path("video.mp4").exists() && !path("other.mp4").exists());
        listener.set_nonblocking(true).unwrap();
        assert_eq!(listener.accept().unwrap_err().kind(), io::ErrorKind::WouldBlock);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn memory_is_limited_to_what_the_host_has() {
        let script = "ulimit -d";
        let process =
            Process::spawn(Command::new("/bin/sh").args(["-c", script]), &Limits::default()).unwrap();
        let output = run(process, 1000, Duration::from_secs(20), &Control::new()).unwrap();
        let kib: u64 = String::from_utf8_lossy(&output.stdout).trim().parse().unwrap();
        assert!(kib << 10 <= host_memory().unwrap().max(1 << 30), "{kib} KiB");
    }
}
