//! Whether uploads and jobs are taken: not where the storage does not seem to be that of the rows. What was stored there would be
//! removed by the service whose storage it is, and looked for in vain once the address is put right.

use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::error::{Error, ErrorKind, Result};

/// What was found is looked at again when it is so old, where no maintenance has done that: it may be put right by now.
const HOLDS_FOR: Duration = Duration::from_secs(60);

/// The cause of an error by which an upload or a job is not taken, because the storage does not seem to be that of the rows. It is for
/// the operator of the service to mend: whoever only asks again is refused again.
#[derive(Debug)]
pub struct WrongStorage;

impl fmt::Display for WrongStorage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("no upload and no job is taken")
    }
}

impl std::error::Error for WrongStorage {}

/// What was found when rows and storage were last compared: nothing, or why they do not seem to belong together.
#[derive(Default)]
pub(super) struct Refusal(Mutex<Option<Found>>);

struct Found {
    message: String,
    hint: Option<String>,
    at: Instant,
}

impl Refusal {
    /// Notes what was found now.
    pub(super) fn note(&self, error: Option<&Error>) {
        let mut found = self.lock();
        match error {
            // Once is enough for the log.
            Some(error) if found.is_none() => log::error!("no upload and no job is taken: {error:?}"),
            None if found.is_some() => log::info!("uploads and jobs are taken again"),
            _ => {}
        }
        *found = error.map(|error| Found {
            message: error.message().to_owned(),
            hint: error.hint_text().map(str::to_owned),
            at: Instant::now(),
        });
    }

    /// Whether something was found, and so long ago that it is time to look again. Says so to one who asks, who does it then.
    pub(super) fn is_old(&self) -> bool {
        let mut found = self.lock();
        let old = found.as_mut().filter(|found| found.at.elapsed() >= HOLDS_FOR);
        match old {
            Some(old) => {
                old.at = Instant::now();
                true
            }
            None => false,
        }
    }

    /// # Errors
    /// [`ErrorKind::Conflict`], caused by [`WrongStorage`], if something was found.
    pub(super) fn check(&self) -> Result<()> {
        let found = self.lock();
        let Some(Found { message, hint, .. }) = &*found else { return Ok(()) };
        let error = Error::new(ErrorKind::Conflict, message.clone()).caused_by(WrongStorage);
        Err(match hint {
            Some(hint) => error.hint(hint.clone()),
            None => error,
        })
    }

    fn lock(&self) -> MutexGuard<'_, Option<Found>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::error::Error as _;

    use super::*;

    #[test]
    fn what_was_found_holds_until_something_else_is() {
        let refusal = Refusal::default();
        refusal.check().unwrap();
        refusal.note(Some(&Error::new(ErrorKind::Conflict, "another one").hint("mend the address")));
        for _ in 0..2 {
            let error = refusal.check().unwrap_err();
            assert_eq!((error.kind(), error.message()), (ErrorKind::Conflict, "another one"));
            assert_eq!(error.hint_text(), Some("mend the address"));
            assert!(error.source().is_some_and(|cause| cause.is::<WrongStorage>()));
        }
        assert!(!refusal.is_old(), "it was found now");
        refusal.note(None);
        refusal.check().unwrap();
    }

    #[test]
    fn one_of_those_who_are_refused_looks_again() {
        let refusal = Refusal::default();
        assert!(!refusal.is_old());
        refusal.note(Some(&Error::new(ErrorKind::Conflict, "another one")));
        let a_while_ago = Instant::now().checked_sub(HOLDS_FOR).unwrap();
        refusal.lock().as_mut().unwrap().at = a_while_ago;
        assert_eq!([refusal.is_old(), refusal.is_old()], [true, false]);
        assert!(refusal.check().is_err(), "nothing else was found yet");
    }
}
