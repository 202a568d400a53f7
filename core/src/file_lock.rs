//! A lock on a file, between processes and between parts of one. The system takes it from a process that ends, however it
//! ends.

use std::fs::{File, TryLockError};
use std::io;
use std::path::Path;

use crate::error::{Error, Result};

/// Held until dropped.
pub(crate) struct FileLock(File);

impl FileLock {
    /// Opens the file of a lock, making it if it is not there.
    pub(crate) fn open(path: &Path) -> Result<File> {
        let mut options = File::options();
        options.create(true).truncate(false).write(true).open(path).map_err(|e| Error::io("open", path, e))
    }

    /// Waits until nobody else holds `file`.
    #[cfg(any(test, feature = "service"))]
    pub(crate) fn wait(file: File) -> io::Result<Self> {
        file.lock()?;
        Ok(Self(file))
    }

    /// Takes `file`, unless somebody else holds it.
    pub(crate) fn try_take(file: File) -> io::Result<Option<Self>> {
        match file.try_lock() {
            Ok(()) => Ok(Some(Self(file))),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(e)) => Err(e),
        }
    }

    /// What is locked.
    #[cfg(any(test, feature = "service"))]
    pub(crate) fn file(&self) -> &File {
        &self.0
    }
}

impl Drop for FileLock {
    fn drop(&mut self) {
        // To close the file is not enough: a child that another thread is just starting has a copy of it until it becomes
        // its program, and the lock would last as long. It cannot fail on a file that is locked.
        let _ = self.0.unlock();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_holds_it_until_it_lets_go_even_if_a_copy_stays_open() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lock");
        let first = FileLock::wait(File::create(&path).unwrap()).unwrap();
        // What a child has, too, until it becomes its program.
        let copy = first.file().try_clone().unwrap();
        assert!(FileLock::try_take(File::open(&path).unwrap()).unwrap().is_none());
        drop(first);
        assert!(FileLock::try_take(File::open(&path).unwrap()).unwrap().is_some());
        drop(copy);
    }
}
