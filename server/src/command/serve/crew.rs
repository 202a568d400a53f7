//! The workers of a server: each in a process of its own, so that a video which brings one down (memory, a fault in a driver)
//! leaves the interface and the others alone; or in the server's process, if the operator wants that.

use std::io::Write;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use libreconstruct::service::{Service, Workers};
use libreconstruct::{CancelToken, Error, ErrorKind, Result};

use crate::config::Config;

/// How often it is looked whether a worker still lives.
const LOOK: Duration = Duration::from_millis(100);
/// The first pause before a worker that ended is started again; each further one is twice as long.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);
/// One that has worked for this long has not ended because it could not begin.
const SETTLED: Duration = Duration::from_secs(60);

pub(super) enum Crew {
    Here(Workers),
    Apart(WorkerProcesses),
}

impl Crew {
    /// Starts the workers that the configuration asks for.
    ///
    /// # Errors
    /// If they cannot be set up.
    pub(super) fn start(service: &Service, config: &Config, address: SocketAddr) -> Result<Self> {
        let name = format!("{address}/{}", std::process::id());
        if config.separate_workers {
            return WorkerProcesses::start(config, &name).map(Self::Apart);
        }
        let options = config.worker_options(name);
        service.start_workers(config.workers.into(), &options).map(Self::Here)
    }

    /// Asks the workers to stop: each writes a checkpoint of its job and puts it back into the queue.
    pub(super) fn cancel(&self) {
        match self {
            Self::Here(workers) => workers.cancel(),
            Self::Apart(workers) => workers.stop.cancel(),
        }
    }

    /// Asks the workers to stop and waits for them, for `limit` at most. Returns whether all have ended; a job whose worker
    /// has not is taken by another one when its lease has run out.
    pub(super) fn stop(self, limit: Duration) -> bool {
        match self {
            Self::Here(workers) => workers.stop(limit),
            Self::Apart(workers) => workers.end(limit),
        }
    }
}

/// Workers in processes of their own. One that ends is started again.
///
/// Such a process gets its configuration in the first line of its input, and ends when its input does: so it ends also if the
/// server is killed.
pub(super) struct WorkerProcesses {
    stop: CancelToken,
    keepers: Vec<JoinHandle<()>>,
}

impl WorkerProcesses {
    fn start(config: &Config, name: &str) -> Result<Self> {
        let config_line = serde_json::to_string(config).map_err(|e| {
            Error::new(ErrorKind::Internal, format!("the configuration cannot be passed on: {e}"))
        })?;
        let mut workers = Self { stop: CancelToken::new(), keepers: Vec::new() };
        for number in 1..=config.workers {
            let keeper = Keeper {
                name: format!("{name}-{number}"),
                config_line: config_line.clone(),
                stop: workers.stop.clone(),
            };
            let thread = std::thread::Builder::new().name("keeper".into()).spawn(move || keeper.run());
            let no_thread = |e| Error::new(ErrorKind::Io, format!("a thread cannot be started: {e}"));
            workers.keepers.push(thread.map_err(no_thread)?);
        }
        Ok(workers)
    }

    fn end(mut self, limit: Duration) -> bool {
        self.stop.cancel();
        let end = Instant::now() + limit;
        while !self.keepers.iter().all(JoinHandle::is_finished) {
            if Instant::now() >= end {
                // The processes see that their input has ended, whatever becomes of this one.
                self.keepers.clear();
                return false;
            }
            std::thread::sleep(LOOK);
        }
        true
    }
}

impl Drop for WorkerProcesses {
    fn drop(&mut self) {
        self.stop.cancel();
        for keeper in self.keepers.drain(..) {
            let _ = keeper.join();
        }
    }
}

/// Keeps one worker running.
struct Keeper {
    name: String,
    config_line: String,
    stop: CancelToken,
}

impl Keeper {
    fn run(&self) {
        let mut pause = FIRST_PAUSE;
        while !self.stop.is_cancelled() {
            let began = Instant::now();
            match self.worker() {
                Ok((mut worker, input)) => self.watch(&mut worker, input),
                Err(error) => tracing::error!(worker = self.name, %error, "cannot start a worker"),
            }
            if began.elapsed() >= SETTLED {
                pause = FIRST_PAUSE;
            }
            let end = Instant::now() + pause;
            while !self.stop.is_cancelled() && Instant::now() < end {
                std::thread::sleep(LOOK);
            }
            pause = (2 * pause).min(LONGEST_PAUSE);
        }
    }

    /// Waits until the worker has ended, of itself or because it was asked to.
    fn watch(&self, worker: &mut Child, input: ChildStdin) {
        let mut input = Some(input);
        loop {
            match worker.try_wait() {
                Ok(None) => {}
                Ok(Some(status)) => {
                    if input.is_some() {
                        tracing::error!(worker = self.name, %status, "a worker ended; it is started again");
                    }
                    return;
                }
                Err(error) => {
                    return tracing::error!(worker = self.name, %error, "cannot watch a worker");
                }
            }
            if self.stop.is_cancelled() {
                input = None;
            }
            std::thread::sleep(LOOK);
        }
    }

    fn worker(&self) -> std::io::Result<(Child, ChildStdin)> {
        let mut command = Command::new(this_program()?);
        command.args(["worker", "--supervised", "--name", &self.name]).stdin(Stdio::piped());
        // The keys that stop a server at a terminal are for the server: it lets its workers end in order.
        #[cfg(unix)]
        std::os::unix::process::CommandExt::process_group(&mut command, 0);
        let mut worker = command.spawn()?;
        // Where memory runs out, the system should end a worker and not the server. It may refuse; then it chooses by itself.
        #[cfg(target_os = "linux")]
        let _ = std::fs::write(format!("/proc/{}/oom_score_adj", worker.id()), "500");
        let mut input = worker.stdin.take().ok_or(std::io::ErrorKind::BrokenPipe)?;
        // One that has ended already is seen by whoever watches it.
        let _ = writeln!(input, "{}", self.config_line);
        Ok((worker, input))
    }
}

/// This program as it was started, also if another version has taken its place on the disk since.
fn this_program() -> std::io::Result<PathBuf> {
    let running = PathBuf::from("/proc/self/exe");
    if running.exists() { Ok(running) } else { std::env::current_exe() }
}
