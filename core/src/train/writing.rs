//! A checkpoint on its way to the disk while the training goes on: hashing and writing take seconds.

use std::path::Path;
use std::thread::JoinHandle;

use super::checkpoint::Checkpoint;
use crate::error::{Error, ErrorKind, Result};

/// What is being written, if anything. Nothing is written any more once this is gone.
#[derive(Default)]
pub(super) struct Writing(Option<JoinHandle<Result<()>>>);

impl Writing {
    /// Begins to write a checkpoint to `path`; `options` and `dataset` as in [`Checkpoint::write`].
    pub(super) fn begin(mut checkpoint: Checkpoint, path: &Path, options: &str, dataset: &str) -> Self {
        let (path, options, dataset) = (path.to_owned(), options.to_owned(), dataset.to_owned());
        Self(Some(std::thread::spawn(move || checkpoint.write(&path, &options, &dataset))))
    }

    /// Waits until it is written.
    pub(super) fn finish(&mut self) -> Result<()> {
        let Some(thread) = self.0.take() else { return Ok(()) };
        thread.join().unwrap_or_else(|_| {
            Err(Error::new(ErrorKind::Internal, "the thread that writes the checkpoint has panicked"))
        })
    }
}

impl Drop for Writing {
    fn drop(&mut self) {
        // Whoever wants to know of an error has asked before.
        let _ = self.finish();
    }
}
