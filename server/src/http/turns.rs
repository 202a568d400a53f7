//! Turns for calls that may wait for a database on another machine. Each such call holds a thread; they must never hold all.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

use super::error::ApiError;

/// So many calls may wait for the database of other machines at a time. Each holds a thread: below the 512 that the runtime has,
/// so that a database which stands still never keeps `/healthz` from being answered. Far more than it has connections.
const MOST: usize = 256;
/// How long a request waits for its turn, as long as for a connection of the database.
const PATIENCE: Duration = Duration::from_secs(10);

/// What lets only so many calls wait at a time; everybody through where the rows are in a folder.
pub(crate) struct Turns(Option<Arc<Semaphore>>);

/// A turn, which ends when it is dropped.
pub(crate) struct Turn {
    _place: Option<OwnedSemaphorePermit>,
}

impl Turns {
    /// `are_needed`: whether the rows are on another machine.
    pub(crate) fn new(are_needed: bool) -> Self {
        Self(are_needed.then(|| Arc::new(Semaphore::new(MOST))))
    }

    /// Waits until a call may be made on this thread, which it holds until the turn is dropped.
    ///
    /// # Errors
    /// 503 if there is no turn for too long.
    pub(crate) async fn take(&self) -> Result<Turn, ApiError> {
        let Some(turns) = &self.0 else { return Ok(Turn { _place: None }) };
        // It is never closed.
        match timeout(PATIENCE, turns.clone().acquire_owned()).await {
            Ok(place) => Ok(Turn { _place: place.ok() }),
            Err(_) => Err(ApiError::busy()),
        }
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
        assert!(turns.take().await.is_ok() && before.elapsed() == Duration::ZERO);
    }
}
