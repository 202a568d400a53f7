//! Which processes live: each holds a lock that the system takes from it when it ends, however it ends.

use std::fs::{self, File, TryLockError};
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::error::{Error, Result};
use crate::file_lock::FileLock;
use crate::files::{create_private_folder, is_older};
use crate::service::layout;

/// The life of this process, or rather of this opened service.
pub(super) struct ProcessLock {
    folder: PathBuf,
    id: String,
    _lock: FileLock,
}

impl ProcessLock {
    /// Takes a new lock in `folder`.
    pub(super) fn take(folder: &Path) -> Result<Self> {
        create_private_folder(folder)?;
        let id = uuid::Uuid::new_v4().as_simple().to_string();
        let (fresh, path) = (folder.join(format!(".{id}")), folder.join(&id));
        // Locked before it has its name: whoever finds the name finds it locked.
        let file = File::create_new(&fresh).map_err(|e| Error::io("create", &fresh, e))?;
        let lock = FileLock::wait(file).map_err(|e| Error::io("lock", &fresh, e))?;
        fs::rename(&fresh, &path).map_err(|e| Error::io("write", &path, e))?;
        Ok(Self { folder: folder.to_owned(), id, _lock: lock })
    }

    /// Names this process in leases.
    pub(super) fn id(&self) -> &str {
        &self.id
    }

    /// Whether the process `id` lives. In doubt the answer is yes: if it is dead, its leases run out.
    pub(super) fn is_alive(&self, id: &str) -> bool {
        id == self.id || is_locked(&self.folder.join(id))
    }

    /// Whether the process `id` was one of this machine and is dead: its lock is there, and nobody holds it. One of another
    /// machine has no lock here.
    pub(super) fn has_died(&self, id: &str) -> bool {
        self.folder.join(id).exists() && !self.is_alive(id)
    }

    /// Whether there is another process that lives; in doubt there is.
    pub(super) fn others_live(&self) -> bool {
        self.others().is_none_or(|others| others.iter().any(|id| self.is_alive(id)))
    }

    /// The names of all processes but this one, if they can be read.
    fn others(&self) -> Option<Vec<String>> {
        let names =
            fs::read_dir(&self.folder).ok()?.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
        Some(names.filter(|name| !name.starts_with('.') && *name != self.id).collect())
    }

    /// Leaves a word for other processes, in place of the one before.
    pub(super) fn tell(&self, word: &str) -> Result<()> {
        let path = self.folder.join(&self.id);
        // In place, because the lock is on this file. Who reads half of it reads again later.
        fs::write(&path, word).map_err(|e| Error::io("write", &path, e))
    }

    /// What the other processes that live have told.
    pub(super) fn told_by_others(&self) -> Vec<String> {
        let others = self.others().unwrap_or_default();
        let living = others.into_iter().filter(|id| self.is_alive(id));
        living.filter_map(|id| fs::read_to_string(self.folder.join(id)).ok()).collect()
    }

    /// Removes the files of dead processes; those without their name yet once nobody touched them for `age`. Where there are any, `before`
    /// is called first: what is to be done for the dead cannot be seen any more afterwards. If it fails, they stay.
    pub(super) fn sweep(&self, age: Duration, before: impl FnOnce() -> Result<()>) -> Result<()> {
        let mut dead = Vec::new();
        let entries = fs::read_dir(&self.folder).map_err(|e| Error::io("list", &self.folder, e))?;
        for entry in entries {
            let entry = entry.map_err(|e| Error::io("list", &self.folder, e))?;
            let name = entry.file_name();
            let is_dead =
                |n: &str| !self.is_alive(n) && (!n.starts_with('.') || is_older(&entry.path(), age));
            if name.to_str().is_some_and(is_dead) {
                dead.push(entry.path());
            }
        }
        if dead.is_empty() {
            return Ok(());
        }
        before()?;
        for path in dead {
            // Another process may do the same at the same time.
            let _ = fs::remove_file(path);
        }
        Ok(())
    }
}

/// Whether somebody holds the lock at `path`; in doubt the answer is yes.
fn is_locked(path: &Path) -> bool {
    match File::open(path) {
        Ok(file) => matches!(file.try_lock_shared(), Err(TryLockError::WouldBlock)),
        Err(e) => e.kind() != std::io::ErrorKind::NotFound,
    }
}

/// The locks in `folder`, each with whether its process lives. None if there is no such folder.
pub(super) fn locks(folder: &Path) -> Result<Vec<(PathBuf, bool)>> {
    let entries = match fs::read_dir(folder) {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(vec![]),
        entries => entries.map_err(|e| Error::io("list", folder, e))?,
    };
    let mut locks = Vec::new();
    for entry in entries {
        let path = entry.map_err(|e| Error::io("list", folder, e))?.path();
        let alive = is_locked(&path);
        locks.push((path, alive));
    }
    locks.sort();
    Ok(locks)
}

impl Drop for ProcessLock {
    fn drop(&mut self) {
        // What stays is swept by another.
        let _ = fs::remove_file(self.folder.join(&self.id));
    }
}

/// Held while a process makes what is missing in the folder of the service.
pub(super) fn initial_lock(folder: &Path) -> Result<FileLock> {
    let path = folder.join(layout::LOCK);
    FileLock::wait(FileLock::open(&path)?).map_err(|e| Error::io("lock", &path, e))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_dead_are_told_from_the_living() {
        let folder = tempfile::tempdir().unwrap();
        let (a, b) = (ProcessLock::take(folder.path()).unwrap(), ProcessLock::take(folder.path()).unwrap());
        assert!(a.is_alive(a.id()) && a.is_alive(b.id()) && b.is_alive(a.id()));
        b.tell("a longer word").unwrap();
        b.tell("a word").unwrap();
        assert_eq!(a.told_by_others(), ["a word"]);
        assert!(a.others_live());
        let gone = b.id().to_owned();
        // As a killed process leaves it: the file is there, the lock is not.
        let path = folder.path().join(&gone);
        drop(b);
        File::create(&path).unwrap();
        assert!(!a.is_alive(&gone) && !a.is_alive("never") && !a.others_live());
        assert!(a.has_died(&gone) && !a.has_died("never") && !a.has_died(a.id()));
        assert_eq!(a.told_by_others(), [""; 0]);
        // And one that was killed before its file had its name.
        let fresh = folder.path().join(".fresh");
        File::create(&fresh).unwrap();
        let fails = || Err(Error::new(crate::error::ErrorKind::Io, "not now"));
        assert!(a.sweep(Duration::from_secs(3600), fails).is_err() && path.exists());
        a.sweep(Duration::from_secs(3600), || Ok(())).unwrap();
        assert!(!path.exists() && folder.path().join(a.id()).exists() && fresh.exists());
        a.sweep(Duration::ZERO, || Ok(())).unwrap();
        assert!(folder.path().join(a.id()).exists() && !fresh.exists());
    }
}
