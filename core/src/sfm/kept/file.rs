//! A file of kept results: magic, version, the key of what they were made from, arrays, SHA-256 of all that.
//!
//! Numbers are in the byte order of the machine: one of the other order does not know the version.

use std::fs::File;
use std::io::{BufReader, BufWriter, Read, Write};
use std::path::Path;

use bytemuck::{AnyBitPattern, NoUninit, cast_slice, cast_slice_mut};

use crate::error::{Error, Result};
use crate::hashing::Hashing;

const MAGIC: &[u8; 8] = b"LRFOUND\n";
const VERSION: u32 = 1;
/// Bytes around the arrays: magic, version and key before them, the sum behind.
const AROUND: u64 = (8 + 4 + 32) + 32;

/// What results were made from, as a hash.
pub(super) type Key = [u8; 32];

/// Takes the arrays of a file, one after the other.
pub(super) struct Writer<'a>(Hashing<&'a mut BufWriter<File>>);

impl Writer<'_> {
    pub(super) fn array<T: NoUninit>(&mut self, values: &[T]) -> std::io::Result<()> {
        self.0.write_all(&(values.len() as u64).to_ne_bytes())?;
        self.0.write_all(cast_slice(values))
    }
}

/// Gives the arrays of a file, one after the other.
pub(super) struct Reader {
    file: Hashing<BufReader<File>>,
    /// Bytes that the arrays still have.
    left: u64,
}

impl Reader {
    /// The next array; nothing if the file does not have that many bytes. No more memory is taken than it has.
    pub(super) fn array<T: NoUninit + AnyBitPattern>(&mut self) -> Option<Vec<T>> {
        let mut count = [0; 8];
        self.take(&mut count)?;
        let count = u64::from_ne_bytes(count);
        count.checked_mul(size_of::<T>() as u64).filter(|bytes| *bytes <= self.left)?;
        let mut values = vec![T::zeroed(); usize::try_from(count).ok()?];
        self.take(cast_slice_mut(&mut values))?;
        Some(values)
    }

    fn take(&mut self, bytes: &mut [u8]) -> Option<()> {
        self.left = self.left.checked_sub(bytes.len() as u64)?;
        self.file.read_exact(bytes).ok()
    }
}

/// Writes what `arrays` hands over to the file `name` in `folder`. Nothing is flushed to the disk: a killed process leaves what the
/// system has, and what a power cut tears the sum tells.
///
/// # Errors
/// The disk's.
pub(super) fn write(
    folder: &Path,
    name: &str,
    key: &Key,
    arrays: impl FnOnce(&mut Writer<'_>) -> std::io::Result<()>,
) -> Result<()> {
    let (path, temporary) = (folder.join(name), folder.join(format!("writing-{name}")));
    let fail = |e| Error::io("write", &path, e);
    let written = File::create(&temporary).and_then(|file| {
        let mut file = BufWriter::with_capacity(1 << 18, file);
        let mut writer = Writer(Hashing::new(&mut file));
        for part in [&MAGIC[..], &VERSION.to_ne_bytes(), key] {
            writer.0.write_all(part)?;
        }
        arrays(&mut writer)?;
        let digest = writer.0.digest();
        file.write_all(&digest)?;
        file.flush()?;
        std::fs::rename(&temporary, &path)
    });
    if written.is_err() {
        // The first failure is what matters; there may be nothing to remove.
        let _ = std::fs::remove_file(&temporary);
    }
    written.map_err(fail)
}

/// What `arrays` makes of the file `path`; nothing unless it is whole and was written under `key`.
pub(super) fn read<T>(path: &Path, key: &Key, arrays: impl FnOnce(&mut Reader) -> Option<T>) -> Option<T> {
    let file = File::open(path).ok()?;
    let left = file.metadata().ok()?.len().checked_sub(AROUND)?;
    let mut file = Hashing::new(BufReader::with_capacity(1 << 18, file));
    for part in [&MAGIC[..], &VERSION.to_ne_bytes(), key] {
        let mut found = [0; 32];
        let found = &mut found[..part.len()];
        file.read_exact(found).ok()?;
        if found != part {
            return None;
        }
    }
    let mut reader = Reader { file, left };
    let made = arrays(&mut reader).filter(|_| reader.left == 0)?;
    let digest = reader.file.digest();
    let mut sum = [0; 32];
    reader.file.inner.read_exact(&mut sum).ok()?;
    (sum == digest).then_some(made)
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: Key = [7; 32];

    fn read_numbers(path: &Path, key: &Key) -> Option<(Vec<u32>, Vec<[u8; 3]>)> {
        read(path, key, |reader| Some((reader.array()?, reader.array()?)))
    }

    #[test]
    fn only_a_whole_file_under_its_key_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.kept");
        let (numbers, colors) = (vec![1, 2, u32::MAX], vec![[4, 5, 6]; 2]);
        write(folder.path(), "a.kept", &KEY, |writer| {
            writer.array(&numbers)?;
            writer.array(&colors)
        })
        .unwrap();
        assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 1);
        assert_eq!(read_numbers(&path, &KEY), Some((numbers, colors)));
        assert_eq!(read_numbers(&path, &[8; 32]), None, "of another key");
        assert_eq!(read(&path, &KEY, |reader| reader.array::<u32>()), None, "bytes are left");
        assert_eq!(read_numbers(&folder.path().join("none"), &KEY), None);
        assert_eq!(read_numbers(folder.path(), &KEY), None, "a folder");

        let whole = std::fs::read(&path).unwrap();
        for length in 0..whole.len() {
            std::fs::write(&path, &whole[..length]).unwrap();
            assert_eq!(read_numbers(&path, &KEY), None, "the first {length} bytes");
        }
        for at in 0..whole.len() {
            for bit in [1, 0x80] {
                let mut flipped = whole.clone();
                flipped[at] ^= bit;
                std::fs::write(&path, &flipped).unwrap();
                assert_eq!(read_numbers(&path, &KEY), None, "byte {at} is another");
            }
        }
        let longer: Vec<u8> = whole.iter().copied().chain([0]).collect();
        std::fs::write(&path, longer).unwrap();
        assert_eq!(read_numbers(&path, &KEY), None, "a byte more");
    }
}
