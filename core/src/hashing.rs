//! SHA-256 of what passes by, of files, and of parts that belong together.

use std::fs::File;
use std::io::{Read, Write};
use std::path::Path;

use sha2::{Digest, Sha256};

use crate::error::{Error, Result};

/// Hashes what is read or written through it.
pub(crate) struct Hashing<T> {
    pub(crate) inner: T,
    hash: Sha256,
}

impl<T> Hashing<T> {
    pub(crate) fn new(inner: T) -> Self {
        Self { inner, hash: Sha256::new() }
    }

    /// The hash of all that has passed so far.
    pub(crate) fn digest(&self) -> [u8; 32] {
        self.hash.clone().finalize().into()
    }
}

impl<T: Write> Write for Hashing<T> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let written = self.inner.write(bytes)?;
        self.hash.update(&bytes[..written]);
        Ok(written)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.inner.flush()
    }
}

impl<T: Read> Read for Hashing<T> {
    fn read(&mut self, bytes: &mut [u8]) -> std::io::Result<usize> {
        let read = self.inner.read(bytes)?;
        self.hash.update(&bytes[..read]);
        Ok(read)
    }
}

/// The hash of `parts`, which cannot be taken for that of the same bytes cut otherwise.
pub(crate) fn hash_parts<'a>(parts: impl IntoIterator<Item = &'a [u8]>) -> [u8; 32] {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update((part.len() as u64).to_le_bytes());
        hash.update(part);
    }
    hash.finalize().into()
}

/// Adds the bytes of a file, and how many they are.
///
/// # Errors
/// The disk's.
pub(crate) fn hash_file(path: &Path, hash: &mut Sha256) -> Result<()> {
    let fail = |e| Error::io("read", path, e);
    let mut file = File::open(path).map_err(fail)?;
    let mut buffer = vec![0; 1 << 20];
    let mut size = 0u64;
    loop {
        let n = file.read(&mut buffer).map_err(fail)?;
        if n == 0 {
            break;
        }
        size += n as u64;
        hash.update(&buffer[..n]);
    }
    hash.update(size.to_le_bytes());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_told_apart_and_what_passes_is_hashed() {
        let of = |parts: &[&str]| hash_parts(parts.iter().map(|part| part.as_bytes()));
        assert_ne!(of(&["ab", "c"]), of(&["a", "bc"]));
        assert_ne!(of(&["ab"]), of(&["ab", ""]));
        let mut written = Hashing::new(Vec::new());
        written.write_all(b"hello").unwrap();
        let mut read = Hashing::new(&b"hello, world"[..]);
        read.read_exact(&mut [0; 5]).unwrap();
        assert_eq!(written.digest(), read.digest());
        assert_eq!(written.digest(), <[u8; 32]>::from(Sha256::digest(b"hello")));
    }
}
