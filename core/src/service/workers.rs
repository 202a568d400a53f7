//! The workers of this process, on threads of their own: for programs that hold the service themselves.

use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::{Service, WorkerOptions};
use crate::control::CancelToken;
use crate::error::{Error, ErrorKind, Result};

/// How often it is looked whether a worker has ended.
const LOOK: Duration = Duration::from_millis(20);

/// Running workers. When this is dropped they are asked to stop and waited for.
#[derive(Debug)]
pub struct Workers {
    cancel: CancelToken,
    threads: Vec<JoinHandle<()>>,
}

impl Service {
    /// Starts `count` workers, each on a thread of its own ([`Service::run_worker`]). They are told apart by a number behind
    /// the name in `options`.
    ///
    /// # Errors
    /// [`ErrorKind::Io`] if the system gives no thread; the workers that were started already are stopped.
    pub fn start_workers(&self, count: usize, options: &WorkerOptions) -> Result<Workers> {
        let mut workers = Workers { cancel: CancelToken::new(), threads: Vec::with_capacity(count) };
        for number in 1..=count {
            let (service, cancel) = (self.clone(), workers.cancel.clone());
            let options = WorkerOptions { name: format!("{}/{number}", options.name), ..options.clone() };
            let thread = std::thread::Builder::new().name(format!("worker {number}")).spawn(move || {
                if let Err(error) = service.run_worker(&options, &cancel) {
                    log::error!("worker {} ended: {error:?}", options.name);
                }
            });
            let no_thread = |e| Error::new(ErrorKind::Io, format!("cannot start a worker: {e}")).caused_by(e);
            workers.threads.push(thread.map_err(no_thread)?);
        }
        Ok(workers)
    }
}

impl Workers {
    /// Asks the workers to stop: each writes a checkpoint of its job and puts it back into the queue.
    pub fn cancel(&self) {
        self.cancel.cancel();
    }

    /// Asks the workers to stop and waits for them, for `limit` at most. Returns whether all have ended; a job whose worker
    /// has not is taken by another one when its lease has run out.
    pub fn stop(mut self, limit: Duration) -> bool {
        self.cancel();
        let end = Instant::now() + limit;
        while !self.threads.iter().all(JoinHandle::is_finished) {
            if Instant::now() >= end {
                // Nobody waits for them any more, not even the destructor.
                self.threads.clear();
                return false;
            }
            std::thread::sleep(LOOK);
        }
        true
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        self.cancel();
        for thread in self.threads.drain(..) {
            // A worker that panicked has nothing more to say than what its panic said.
            let _ = thread.join();
        }
    }
}
