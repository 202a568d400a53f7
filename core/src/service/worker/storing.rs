//! What a job has reached is stored beside the work, for other machines to go on with.

use std::thread::{Scope, ScopedJoinHandle};
use std::time::Duration;

use super::super::handing_over::HandingOver;
use super::priority::lower_priority;
use super::watch::{Stop, Watch};

/// How often it is looked whether what is being stored has been.
pub(super) const LOOK_AT_STORING: Duration = Duration::from_millis(10);

/// The thread that stores how far a job is, beside the work. It ends with this.
pub(super) struct Storing<'scope, 'a> {
    of: &'a HandingOver<'a>,
    thread: ScopedJoinHandle<'scope, ()>,
}

impl<'scope, 'a> Storing<'scope, 'a> {
    /// Nothing if there is no thread to be had: the work goes on without.
    pub(super) fn start(
        scope: &'scope Scope<'scope, '_>,
        of: &'a HandingOver<'a>,
        niceness: u8,
    ) -> Option<Self>
    where
        'a: 'scope,
    {
        let run = move || {
            lower_priority(niceness);
            of.run();
        };
        match std::thread::Builder::new().name("checkpoints".into()).spawn_scoped(scope, run) {
            Ok(thread) => Some(Self { of, thread }),
            Err(error) => {
                log::warn!("what jobs have reached is not stored, a thread cannot be started: {error}");
                None
            }
        }
    }

    /// Ends it when the work has stopped. A job that `goes_back` to the queue, because the worker is to end or its disk is full, is
    /// stored once more before, if there is time for that; signs of life are given meanwhile.
    pub(super) fn end(self, watch: &mut Watch<'_>, goes_back: bool) {
        let may_store = |watch: &Watch<'_>| match watch.stop {
            None => goes_back,
            Some(Stop::Shutdown) => goes_back && !watch.has_drained(),
            Some(Stop::Deleted | Stop::Lost | Stop::TooLong) => false,
        };
        if goes_back && matches!(watch.stop, None | Some(Stop::Shutdown)) {
            self.of.orders.store_the_last();
        } else {
            self.of.orders.stop();
        }
        while !self.thread.is_finished() {
            std::thread::sleep(LOOK_AT_STORING);
            watch.look();
            if !may_store(watch) {
                self.of.orders.stop();
            }
        }
    }
}

impl Drop for Storing<'_, '_> {
    fn drop(&mut self) {
        self.of.orders.stop();
    }
}
