//! Files for readers that take a path, written anew for each input.

use std::cell::OnceCell;
use std::path::PathBuf;

use tempfile::TempDir;

thread_local! {
    static FOLDER: OnceCell<TempDir> = const { OnceCell::new() };
}

/// The folder of this thread. Each target has file names of its own in it.
pub(crate) fn folder() -> PathBuf {
    FOLDER.with(|folder| {
        let made = || TempDir::new().expect("a folder for temporary files");
        folder.get_or_init(made).path().to_owned()
    })
}

/// A file with these bytes.
pub(crate) fn file(name: &str, bytes: &[u8]) -> PathBuf {
    let path = folder().join(name);
    std::fs::write(&path, bytes).expect("a temporary file can be written");
    path
}
