//! Folders of a reconstruction as zip archives, for whoever goes on with them elsewhere.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use flate2::Compression;
use flate2::write::DeflateEncoder;
use rawzip::{CompressionMethod, ZipArchiveWriter};

use crate::error::{Error, Result};
use crate::files::write_atomically;

/// Packs the files below `folder` that have one of these extensions into `archive`, under the name of the folder: whole or not at all,
/// and always the same bytes of the same files. Says whether there were any.
pub(super) fn pack(folder: &Path, extensions: &[&str], archive: &Path) -> Result<bool> {
    let mut files = Vec::new();
    collect(folder, extensions, &mut files)?;
    files.sort();
    if files.is_empty() {
        return Ok(false);
    }
    let root = folder.parent().unwrap_or(folder);
    write_atomically(archive, |out| {
        let mut zip = ZipArchiveWriter::new(out);
        for file in &files {
            // Below `root`, since it was found there; the separator is the same on all systems.
            let parts = file.strip_prefix(root).unwrap_or(file).components();
            let parts: Vec<_> = parts.map(|part| part.as_os_str().to_string_lossy().into_owned()).collect();
            let name = parts.join("/");
            let entry = zip.new_file(&name).compression_method(CompressionMethod::DEFLATE);
            let (mut entry, config) = entry.start().map_err(io::Error::other)?;
            let mut data = config.wrap(DeflateEncoder::new(&mut entry, Compression::fast()));
            io::copy(&mut fs::File::open(file)?, &mut data)?;
            data.flush()?;
            let (encoder, descriptor) = data.finish().map_err(io::Error::other)?;
            encoder.finish()?;
            entry.finish(descriptor).map_err(io::Error::other)?;
        }
        zip.finish().map_err(io::Error::other)?;
        Ok(())
    })?;
    Ok(true)
}

/// The files below a folder, if there is one.
fn collect(folder: &Path, extensions: &[&str], files: &mut Vec<PathBuf>) -> Result<()> {
    let entries = match fs::read_dir(folder) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
        entries => entries.map_err(|e| Error::io("read", folder, e))?,
    };
    for entry in entries {
        let path = entry.map_err(|e| Error::io("read", folder, e))?.path();
        if path.is_dir() {
            collect(&path, extensions, files)?;
        } else if path.extension().is_some_and(|own| extensions.iter().any(|wanted| own == *wanted)) {
            files.push(path);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use rawzip::ZipArchive;

    use super::*;

    #[test]
    fn a_folder_is_packed_with_what_is_below_it_and_always_alike() {
        let place = tempfile::tempdir().unwrap();
        let folder = place.path().join("sparse");
        fs::create_dir_all(folder.join("0")).unwrap();
        fs::create_dir_all(folder.join("1")).unwrap();
        for (name, text) in
            [("1/images.bin", "b"), ("0/images.bin", "aaaa"), ("notes.txt", "no"), ("0/cameras.bin", "")]
        {
            fs::write(folder.join(name), text.repeat(1000)).unwrap();
        }
        let (first, second) = (place.path().join("a.zip"), place.path().join("b.zip"));
        assert!(pack(&folder, &["bin"], &first).unwrap() && pack(&folder, &["bin"], &second).unwrap());
        let bytes = fs::read(&first).unwrap();
        assert_eq!(bytes, fs::read(&second).unwrap());
        assert!(bytes.len() < 1000);
        let archive = ZipArchive::from_slice(&bytes).unwrap();
        let mut found = Vec::new();
        for entry in archive.entries() {
            let entry = entry.unwrap();
            let name = entry.file_path().try_normalize().unwrap().as_ref().to_owned();
            let wayfinder = entry.wayfinder();
            let packed = archive.get_entry(wayfinder).unwrap();
            let mut text = String::new();
            flate2::read::DeflateDecoder::new(packed.data()).read_to_string(&mut text).unwrap();
            found.push((name, text.len()));
        }
        let expected =
            [("sparse/0/cameras.bin", 0), ("sparse/0/images.bin", 4000), ("sparse/1/images.bin", 1000)];
        assert_eq!(found, expected.map(|(name, length)| (name.to_owned(), length)));
        // Nothing to pack: no archive.
        assert!(!pack(&folder, &["png"], &place.path().join("c.zip")).unwrap());
        assert!(!pack(&place.path().join("none"), &["bin"], &place.path().join("c.zip")).unwrap());
        assert!(!place.path().join("c.zip").exists());
    }
}
