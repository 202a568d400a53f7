//! How what a job has reached lies in the storage: one tar of plain files.
//!
//! First comes an entry that says what it is, then the files, then the SHA-256 of all bytes before: a storage may hand out half
//! an object or a wrong one. Only plain entries with short names are written, and nothing else is read, so that a name or a
//! length can only come from one place.

use std::io::{self, Cursor, Read, Write};
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use crate::error::{Error, ErrorKind, Result};
use crate::hex::hex;

/// The entry that says what the others are.
const ABOUT: &str = "about";
/// The last entry: SHA-256 of the contents of all others, as hexadecimal digits.
const SUM: &str = "sha256";
/// So many bytes that entry may have: some 100,000 files.
const ABOUT_MAX: u64 = 16 << 20;

/// Writes an archive.
pub(crate) struct ArchiveWriter<W: Write> {
    tar: tar::Builder<W>,
    hash: Sha256,
}

impl<W: Write> ArchiveWriter<W> {
    /// # Errors
    /// Those of `to`.
    pub(crate) fn begin(to: W, about: &[u8]) -> io::Result<Self> {
        let mut writer = Self { tar: tar::Builder::new(to), hash: Sha256::new() };
        writer.append(Path::new(ABOUT), about.len() as u64, Cursor::new(about))?;
        Ok(writer)
    }

    /// Appends the file `name` of `size` bytes.
    ///
    /// # Errors
    /// A name of more than 100 bytes; `content` with fewer bytes; its own and those of the archive.
    pub(crate) fn append(&mut self, name: &Path, size: u64, content: impl Read) -> io::Result<()> {
        let mut header = tar::Header::new_gnu();
        header.set_size(size);
        header.set_mode(0o600);
        // The short form: what does not fit is refused instead of being put into an entry of its own.
        header.set_path(name)?;
        header.set_cksum();
        let mut content = Hashing { inner: content.take(size), hash: &mut self.hash, count: 0 };
        self.tar.append(&header, &mut content)?;
        if content.count != size {
            return Err(io::Error::new(
                io::ErrorKind::UnexpectedEof,
                format!("{} has become shorter", name.display()),
            ));
        }
        Ok(())
    }

    /// Writes the end.
    ///
    /// # Errors
    /// Those of the archive.
    pub(crate) fn finish(mut self) -> io::Result<W> {
        let sum = hex(&self.hash.clone().finalize());
        self.append(Path::new(SUM), sum.len() as u64, Cursor::new(&sum))?;
        self.tar.into_inner()
    }
}

/// Reads an archive, of which nothing is believed.
pub(crate) struct ArchiveReader<'a, R: Read> {
    entries: tar::Entries<'a, R>,
    hash: Sha256,
}

impl<'a, R: Read> ArchiveReader<'a, R> {
    /// # Errors
    /// [`InvalidFile`](ErrorKind::InvalidFile) if that is no archive.
    pub(crate) fn begin(tar: &'a mut tar::Archive<R>) -> Result<Self> {
        // Raw: entries that would change the name or the length of others are seen, and refused.
        let entries = tar.entries().map_err(unreadable)?.raw(true);
        Ok(Self { entries, hash: Sha256::new() })
    }

    /// What the archive is; to be asked first.
    ///
    /// # Errors
    /// [`InvalidFile`](ErrorKind::InvalidFile) if it does not say that, the storage's.
    pub(crate) fn about(&mut self) -> Result<Vec<u8>> {
        let mut about = Vec::new();
        self.entry(&mut |name, size, content| {
            if name != Path::new(ABOUT) || size > ABOUT_MAX {
                return Err(odd(&format!("it begins with {name:?} of {size} bytes")));
            }
            content.read_to_end(&mut about).map(drop).map_err(unreadable)
        })?;
        Ok(about)
    }

    /// Gives the next file to `take`, with its name, its bytes and how many they are; says no if there is none, and all was as
    /// it had been written.
    ///
    /// # Errors
    /// [`InvalidFile`](ErrorKind::InvalidFile) for an archive that is cut off, changed, or not one of ours; those of `take`, the
    /// storage's.
    pub(crate) fn next(
        &mut self,
        take: &mut dyn FnMut(&Path, u64, &mut dyn Read) -> Result<()>,
    ) -> Result<bool> {
        let expected = hex(&self.hash.clone().finalize());
        let mut is_end = false;
        self.entry(&mut |name, size, content| {
            if name != Path::new(SUM) {
                return take(name, size, content);
            }
            is_end = true;
            let mut sum = String::new();
            content.take(2 * expected.len() as u64).read_to_string(&mut sum).map_err(unreadable)?;
            match sum == expected {
                true => Ok(()),
                false => Err(odd("its checksum does not fit its contents")),
            }
        })?;
        Ok(!is_end)
    }

    /// Reads one entry whole, whatever `take` leaves of it.
    fn entry(&mut self, take: &mut dyn FnMut(&Path, u64, &mut dyn Read) -> Result<()>) -> Result<()> {
        let entry = self.entries.next().ok_or_else(|| odd("it is cut off"))?.map_err(unreadable)?;
        let kind = entry.header().entry_type();
        let size = entry.header().entry_size().map_err(unreadable)?;
        let name: PathBuf = entry.path().map_err(unreadable)?.into_owned();
        if kind != tar::EntryType::Regular {
            return Err(odd(&format!("{name:?} in it is no plain file")));
        }
        let mut content = Hashing { inner: entry, hash: &mut self.hash, count: 0 };
        take(&name, size, &mut content)?;
        io::copy(&mut content, &mut io::sink()).map_err(unreadable)?;
        match content.count == size {
            true => Ok(()),
            false => Err(odd("it is cut off")),
        }
    }
}

/// Hashes and counts what is read.
struct Hashing<'a, R> {
    inner: R,
    hash: &'a mut Sha256,
    count: u64,
}

impl<R: Read> Read for Hashing<'_, R> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(bytes)?;
        if let Some(bytes) = bytes.get(..read) {
            self.hash.update(bytes);
        }
        self.count += read as u64;
        Ok(read)
    }
}

fn odd(what: &str) -> Error {
    Error::new(ErrorKind::InvalidFile, format!("what was stored of a job is not usable: {what}"))
}

fn unreadable(error: io::Error) -> Error {
    odd(&error.to_string()).caused_by(error)
}

#[cfg(test)]
mod tests {
    use super::*;

    type Files = Vec<(String, Vec<u8>)>;

    fn archive(files: &[(&str, &[u8])]) -> Vec<u8> {
        let mut writer = ArchiveWriter::begin(Vec::new(), b"it").unwrap();
        for (name, content) in files {
            writer.append(name.as_ref(), content.len() as u64, *content).unwrap();
        }
        writer.finish().unwrap()
    }

    fn read(bytes: &[u8]) -> Result<(Vec<u8>, Files)> {
        let mut tar = tar::Archive::new(bytes);
        let mut reader = ArchiveReader::begin(&mut tar)?;
        let (about, mut files) = (reader.about()?, Vec::new());
        while reader.next(&mut |name, size, content| {
            let mut bytes = Vec::new();
            content.read_to_end(&mut bytes).unwrap();
            assert_eq!(bytes.len() as u64, size);
            files.push((name.to_str().unwrap().to_owned(), bytes));
            Ok(())
        })? {}
        Ok((about, files))
    }

    #[test]
    fn what_is_read_is_what_was_written_and_all_else_is_refused() {
        let good = archive(&[("frames/a.jpg", b"picture"), ("empty", b"")]);
        let (about, files) = read(&good).unwrap();
        assert_eq!(about, b"it");
        assert_eq!(files, [("frames/a.jpg".into(), b"picture".to_vec()), ("empty".into(), vec![])]);
        // Cut off anywhere, or with any byte of a file changed.
        for end in [0, 100, 512, 1024, 1500, 2048, 2560, 3072, 3100] {
            assert_eq!(read(&good[..end]).unwrap_err().kind(), ErrorKind::InvalidFile, "{end}");
        }
        let at = good.windows(7).position(|w| w == b"picture").unwrap();
        let mut changed = good.clone();
        changed[at] ^= 1;
        assert!(read(&changed).unwrap_err().to_string().contains("checksum"));
        assert!(read(&[7; 2048]).is_err());
    }

    #[test]
    fn a_byte_that_has_changed_anywhere_changes_nothing_that_is_read_or_is_noticed() {
        let good = archive(&[("frames/a.jpg", b"picture"), ("frames/b.jpg", b"")]);
        let what = read(&good).unwrap();
        for at in 0..good.len() {
            for changed in [good[at] ^ 1, 0, b'7', 0xff] {
                let mut bytes = good.clone();
                bytes[at] = changed;
                match read(&bytes) {
                    Ok(read) => assert_eq!(read, what, "{at}"),
                    Err(error) => assert_eq!(error.kind(), ErrorKind::InvalidFile, "{at}"),
                }
            }
        }
    }

    #[test]
    fn only_plain_entries_with_plain_headers_are_read() {
        let mut header = tar::Header::new_gnu();
        header.set_path("frames/a.jpg").unwrap();
        header.set_size(0);
        for kind in [
            tar::EntryType::Symlink,
            tar::EntryType::Link,
            tar::EntryType::Directory,
            tar::EntryType::GNULongName,
            tar::EntryType::XHeader,
            tar::EntryType::GNUSparse,
            tar::EntryType::Fifo,
        ] {
            let mut writer = ArchiveWriter::begin(Vec::new(), b"it").unwrap();
            header.set_entry_type(kind);
            header.set_cksum();
            writer.tar.append(&header, io::empty()).unwrap();
            let error = read(&writer.finish().unwrap()).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidFile, "{kind:?}");
        }
        // One that claims to be as long as no storage is.
        let mut header = tar::Header::new_gnu();
        header.set_path(ABOUT).unwrap();
        header.set_size(u64::MAX >> 1);
        header.set_cksum();
        assert!(read(header.as_bytes()).is_err());
    }

    #[test]
    fn a_file_that_became_shorter_or_has_a_long_name_is_not_archived() {
        let mut writer = ArchiveWriter::begin(Vec::new(), b"it").unwrap();
        assert!(writer.append("a".as_ref(), 3, &b"ab"[..]).is_err());
        let mut writer = ArchiveWriter::begin(Vec::new(), b"it").unwrap();
        assert!(writer.append("a".repeat(200).as_ref(), 1, &b"a"[..]).is_err());
    }
}
