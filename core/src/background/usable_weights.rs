//! Whether the installed weights can be used: asked before each job, so the file is read only when it has changed.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use super::weights::{find_model, read_model};
use crate::error::{Error, ErrorKind, Result};

/// What changes when a file is written to, or another takes its place.
#[derive(PartialEq, Eq)]
struct State {
    size: u64,
    modified: Option<SystemTime>,
    /// Number of the file and when anything of it changed: a copy may have the time of the old one. Unix only.
    changed: (u64, i64, i64),
}

impl State {
    fn of(path: &Path) -> Result<Self> {
        let metadata = fs::metadata(path).map_err(|e| Error::io("open", path, e))?;
        #[cfg(unix)]
        let changed = {
            use std::os::unix::fs::MetadataExt;
            (metadata.ino(), metadata.ctime(), metadata.ctime_nsec())
        };
        #[cfg(not(unix))]
        let changed = (0, 0, 0);
        Ok(Self { size: metadata.len(), modified: metadata.modified().ok(), changed })
    }
}

/// The files that were read, as they were then, and what was wrong with them.
type Known = BTreeMap<PathBuf, (State, Option<String>)>;

static KNOWN: Mutex<Known> = Mutex::new(BTreeMap::new());

fn known() -> MutexGuard<'static, Known> {
    KNOWN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether the network's weights are there, and those that are meant.
///
/// # Errors
/// [`ErrorKind::NotFound`] if they are not installed, [`ErrorKind::InvalidFile`] if they are damaged; the disk's.
pub(crate) fn check_model() -> Result<()> {
    check(&find_model(None)?)
}

fn check(path: &Path) -> Result<()> {
    let state = State::of(path)?;
    let found = known().get(path).filter(|(then, _)| *then == state).map(|(_, trouble)| trouble.clone());
    let trouble = match found {
        Some(trouble) => trouble,
        None => {
            let trouble = match read_model(path) {
                Ok(_) => None,
                Err(error) if error.kind() == ErrorKind::InvalidFile => Some(error.message().to_owned()),
                Err(error) => return Err(error),
            };
            if let Some(trouble) = &trouble {
                log::warn!("{trouble}: no background is removed on this machine");
            }
            known().insert(path.to_owned(), (state, trouble.clone()));
            trouble
        }
    };
    match trouble {
        None => Ok(()),
        Some(trouble) => Err(Error::new(ErrorKind::InvalidFile, trouble)
            .hint("put the right file in its place: in a checkout of libreconstruct run `make mask-model`")),
    }
}

/// Notes why the network could not be opened from `path`: where its file is to blame, until that changes.
pub(super) fn note_trouble(path: &Path, why: &Error) {
    let trouble = (why.kind() == ErrorKind::InvalidFile).then(|| State::of(path).ok()).flatten();
    match trouble {
        Some(state) => {
            log::warn!("{}: no background is removed on this machine", why.message());
            known().insert(path.to_owned(), (state, Some(why.message().to_owned())))
        }
        // It is read anew.
        None => known().remove(path),
    };
}

#[cfg(test)]
mod tests {
    use super::super::weights::MODEL_FILE;
    use super::*;

    #[test]
    fn damaged_weights_are_noticed_and_so_are_those_that_break_or_are_mended_later() {
        let folder = tempfile::tempdir().unwrap();
        let kind = |path: &Path| check(path).map_err(|error| error.kind());
        let known_name = folder.path().join(MODEL_FILE);
        assert_eq!(kind(&known_name), Err(ErrorKind::NotFound));
        fs::write(&known_name, "damaged").unwrap();
        for _ in 0..2 {
            let error = check(&known_name).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidFile);
            assert!(error.message().contains("is damaged") && error.hint_text().is_some(), "{error}");
        }
        // Of another name nobody knows what it should be, until it is opened.
        let own = folder.path().join("mine.onnx");
        fs::write(&own, "no network").unwrap();
        assert_eq!(kind(&own), Ok(()));
        note_trouble(&own, &Error::new(ErrorKind::InvalidFile, "no network"));
        assert_eq!(kind(&own), Err(ErrorKind::InvalidFile));
        fs::write(&own, "another network").unwrap();
        assert_eq!(kind(&own), Ok(()));
        note_trouble(&own, &Error::new(ErrorKind::Io, "the disk"));
        assert_eq!(kind(&own), Ok(()));
        fs::remove_file(&own).unwrap();
        assert_eq!(kind(&own), Err(ErrorKind::NotFound));
    }
}
