//! Turns for calls that may wait for a database or a storage on another machine. Each such call holds a thread; they must never hold
//! all, and those that wait for the storage must leave some to those that need the database alone.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

use super::error::ApiError;

/// So many calls may wait for the database of other machines at a time. Each holds a thread: the runtime has more (see [`threads`]),
/// so that a database which stands still never keeps `/healthz` from being answered. Far more than it has connections.
const MOST: usize = 256;
/// So many of them may wait for the storage: one that stands still leaves half of the turns to calls that need rows alone. A
/// later transfer to an upload holds one until the earlier one has stored what it has, which takes none.
const MOST_AT_STORAGE: usize = 128;
/// So many chunks of files that go out may be read at a time.
const MOST_READS: usize = 256;
/// Threads for all else that waits: maintenance, the delivery of webhooks, the end.
const SPARE_THREADS: usize = 64;
/// More threads than this are never useful.
const MOST_THREADS: usize = 4096;
/// How long a request waits for its turn, as long as for a connection of the database.
const PATIENCE: Duration = Duration::from_secs(10);

/// What lets only so many calls wait at a time; everybody through where rows and files are in a folder, but for the reads of files.
pub(crate) struct Turns {
    all: Option<Arc<Semaphore>>,
    at_storage: Option<Arc<Semaphore>>,
    reads: Arc<Semaphore>,
}

/// A turn, which ends when it is dropped.
#[derive(Default)]
pub(crate) struct Turn {
    _place: Option<OwnedSemaphorePermit>,
    _at_storage: Option<OwnedSemaphorePermit>,
}

/// How many threads that may wait the runtime must have, so that no call with a turn waits for one. Each upload may have one more,
/// which writes.
pub(crate) fn threads(max_uploads: usize) -> usize {
    max_uploads.saturating_add(MOST + MOST_READS + SPARE_THREADS).min(MOST_THREADS)
}

impl Turns {
    /// `are_needed`: whether rows and files are on other machines.
    pub(crate) fn new(are_needed: bool) -> Self {
        let turns = |most| are_needed.then(|| Arc::new(Semaphore::new(most)));
        Self {
            all: turns(MOST),
            at_storage: turns(MOST_AT_STORAGE),
            reads: Arc::new(Semaphore::new(MOST_READS)),
        }
    }

    /// Waits until a call may be made on this thread, which it holds until the turn is dropped.
    ///
    /// # Errors
    /// 503 if there is no turn for too long.
    pub(crate) async fn take(&self) -> Result<Turn, ApiError> {
        Ok(Turn { _place: place(self.all.as_ref()).await?, _at_storage: None })
    }

    /// The same for a call that may wait for the storage, too.
    ///
    /// # Errors
    /// As for [`Turns::take`].
    pub(crate) async fn take_at_storage(&self) -> Result<Turn, ApiError> {
        // In this order: nobody may hold one of the turns of all while it waits for one of these.
        let at_storage = place(self.at_storage.as_ref()).await?;
        Ok(Turn { _place: place(self.all.as_ref()).await?, _at_storage: at_storage })
    }

    /// Waits, as long as it takes, until a chunk of a file may be read: its client has been promised the rest.
    pub(crate) async fn take_read(&self) -> Turn {
        // It is never closed.
        Turn { _place: self.reads.clone().acquire_owned().await.ok(), _at_storage: None }
    }
}

async fn place(turns: Option<&Arc<Semaphore>>) -> Result<Option<OwnedSemaphorePermit>, ApiError> {
    let Some(turns) = turns else { return Ok(None) };
    match timeout(PATIENCE, turns.clone().acquire_owned()).await {
        // It is never closed.
        Ok(place) => Ok(place.ok()),
        Err(_) => Err(ApiError::busy()),
    }
}

#[cfg(test)]
mod tests {
    use hyper::StatusCode;
    use tokio::time::Instant;

    use super::*;

    async fn take_all(turns: &Turns) -> Vec<Turn> {
        let mut taken = Vec::new();
        for _ in 0..MOST {
            taken.push(turns.take().await.ok().unwrap());
        }
        taken
    }

    #[tokio::test(start_paused = true)]
    async fn who_gets_no_turn_is_told_so_in_time() {
        let turns = Turns::new(true);
        let mut taken = take_all(&turns).await;
        let before = Instant::now();
        assert_eq!(turns.take().await.err().unwrap().status, StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!(before.elapsed(), PATIENCE);
        taken.pop();
        let turn = turns.take().await.ok().unwrap();
        // The next in line comes as soon as one has ended.
        let before = Instant::now();
        let end = async {
            tokio::time::sleep(PATIENCE / 2).await;
            drop(turn);
        };
        let (next, ()) = tokio::join!(turns.take(), end);
        assert!(next.is_ok() && before.elapsed() == PATIENCE / 2);
    }

    #[tokio::test(start_paused = true)]
    async fn a_database_in_a_folder_needs_none() {
        let turns = Turns::new(false);
        let _taken = take_all(&turns).await;
        let before = Instant::now();
        assert!(turns.take().await.is_ok() && turns.take_at_storage().await.is_ok());
        assert_eq!(before.elapsed(), Duration::ZERO);
    }

    #[tokio::test(start_paused = true)]
    async fn a_storage_that_stands_still_leaves_turns_to_who_needs_rows() {
        let turns = Arc::new(Turns::new(true));
        let began = Instant::now();
        let want = || {
            let turns = turns.clone();
            // Whoever has got a turn keeps it.
            tokio::spawn(async move { turns.take_at_storage().await.ok() })
        };
        let waiting: Vec<_> = (0..300).map(|_| want()).collect();
        tokio::time::sleep(PATIENCE / 2).await;
        let mut held = Vec::new();
        for _ in MOST_AT_STORAGE..MOST {
            held.push(turns.take().await.ok().unwrap());
        }
        assert_eq!(began.elapsed(), PATIENCE / 2);
        let mut at_storage = Vec::new();
        for wanted in waiting {
            at_storage.extend(wanted.await.unwrap());
        }
        assert_eq!((at_storage.len(), began.elapsed()), (MOST_AT_STORAGE, PATIENCE));
    }

    /// As a server has them: whoever has a turn gets a thread at once, whatever the others wait for.
    #[test]
    fn there_is_a_thread_for_every_turn() {
        assert_eq!(threads(usize::MAX), MOST_THREADS);
        assert_eq!(threads(64), 64 + MOST + MOST_READS + SPARE_THREADS);
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .max_blocking_threads(threads(0))
            .enable_all()
            .build()
            .unwrap();
        let (stand_still, stands) = std::sync::mpsc::channel::<()>();
        let stands = Arc::new(std::sync::Mutex::new(stands));
        runtime.block_on(async {
            let turns = Arc::new(Turns::new(true));
            for _ in 0..300 {
                let (turns, stands) = (turns.clone(), stands.clone());
                tokio::spawn(async move {
                    let Ok(turn) = turns.take_at_storage().await else { return };
                    let call = move || {
                        let _turn = turn;
                        // Until the test has ended.
                        drop(stands.lock().map(|stands| stands.recv()));
                    };
                    let _ = tokio::task::spawn_blocking(call).await;
                });
            }
            for _ in 0..MOST_READS {
                let (turn, stands) = (turns.take_read().await, stands.clone());
                tokio::task::spawn_blocking(move || {
                    let _turn = turn;
                    drop(stands.lock().map(|stands| stands.recv()));
                });
            }
            let turn = turns.take().await.ok().unwrap();
            let rows = tokio::task::spawn_blocking(move || drop(turn));
            timeout(Duration::from_secs(2), rows).await.unwrap().unwrap();
        });
        drop(stand_still);
    }
}
