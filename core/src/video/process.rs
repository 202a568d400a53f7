//! Runs ffmpeg and ffprobe as boxed child processes.
//!
//! A decoder reads files that strangers made, so it is treated as if it could turn against us: it gets an empty
//! environment, its own process group, limits on memory, files and processor time, and on Linux a box in which it sees no
//! files but its own, no network and no other process ([`super::sandbox`]). Its stderr is
//! always drained by a thread of its own (a full pipe would stop it for ever), of which only the end is kept. A child
//! never outlives its [`Process`].

mod limits;
mod stderr;

use std::io::{self, Read};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::control::Control;
use crate::error::{Error, ErrorKind, Result};
pub(super) use limits::Limits;
use limits::confine;
pub(super) use stderr::Log;

/// Environment variables that a child keeps: without them some installations cannot load their own libraries.
const KEPT_VARIABLES: [&str; 5] =
    ["LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "DYLD_FALLBACK_LIBRARY_PATH", "SystemRoot", "PATH"];

/// A running child. Dropping it kills it.
pub(super) struct Process {
    child: Child,
    log: Option<JoinHandle<Log>>,
    seen: Arc<AtomicU64>,
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

#[cfg(test)]
mod tests {
    use super::*;

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
        let host = crate::video::sandbox::Host::get();
        // What one of the two keeps from happening is looked at where the other is missing, too.
        let (files, system_calls) = (host.landlock.is_ok(), host.seccomp.is_ok());
        for missing in [host.landlock.as_ref().err(), host.seccomp.as_ref().err()].into_iter().flatten() {
            Prerequisite::Sandbox.is_missing(missing);
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
        assert_eq!(std::fs::read(path("output.mp4")).unwrap(), b"a film");
        if files {
            // A kernel with Landlock can close what was open before, too.
            assert_eq!(outcome("use an open file"), libc::EBADF.to_string(), "{said}");
            refused("read the secrets");
            refused("read the database");
            refused("list the folder");
            refused("write beside its output");
            refused("write to its video");
            refused("remove its video");
            refused("read the accounts");
            refused("read the environment of the server");
            refused("become another program");
            assert!(!said.contains("<free>"), "{said}");
            // Nothing of it left a trace.
            assert!(path("video.mp4").exists() && !path("other.mp4").exists());
        }
        if system_calls {
            // The network.
            refused("connect by TCP");
            refused("open a UDP socket");
            refused("open a socket of the system");
            // Rights, and other processes.
            refused("change rights");
            refused("signal the server");
            refused("signal everybody");
            refused("trace the server");
            refused("fork");
            refused("start a program");
            // Ways out.
            refused("enter a namespace");
            refused("set up io_uring");
        }
        // Without seccomp, an own network keeps it from others as well.
        if system_calls || host.network.is_ok() {
            listener.set_nonblocking(true).unwrap();
            assert_eq!(listener.accept().unwrap_err().kind(), io::ErrorKind::WouldBlock);
        }
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn memory_is_limited_to_what_the_host_has() {
        let script = "ulimit -d";
        let process =
            Process::spawn(Command::new("/bin/sh").args(["-c", script]), &Limits::default()).unwrap();
        let output = run(process, 1000, Duration::from_secs(20), &Control::new()).unwrap();
        let kib: u64 = String::from_utf8_lossy(&output.stdout).trim().parse().unwrap();
        let host = limits::host_memory().unwrap();
        assert!(kib << 10 <= host.max(1 << 30), "{kib} KiB");
        // Under a limit of a systemd unit that is the unit's.
        assert!(host <= crate::memory::Memory::of_this_machine().all);
    }
}
