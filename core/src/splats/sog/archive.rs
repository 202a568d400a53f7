//! The container: a zip archive, whose files are stored as they are, because pictures are compressed already.

use std::io::{self, Read, Write};

use flate2::read::DeflateDecoder;
use rawzip::{CompressionMethod, ZipArchive, ZipArchiveEntryWayfinder, ZipArchiveWriter, ZipSliceArchive};

/// The file that says what the others are.
pub(super) const DESCRIPTION: &str = "meta.json";
/// Most files of an archive. A scene has eight.
const MAX_FILES: u64 = 1000;
/// How much may come out of an archive in which somebody compressed the files once more: they do not become much smaller by it.
const MAX_GROWTH: u64 = 2;
const ALWAYS_ALLOWED: u64 = 2 << 20;

/// Writes an archive of these files.
pub(super) fn write(files: &[(&str, Vec<u8>)]) -> io::Result<Vec<u8>> {
    let mut archive = ZipArchiveWriter::new(Vec::new());
    for (name, content) in files {
        let entry = archive.new_file(name).compression_method(CompressionMethod::STORE);
        let (mut entry, config) = entry.start().map_err(io::Error::other)?;
        let mut data = config.wrap(&mut entry);
        data.write_all(content)?;
        let (_, descriptor) = data.finish().map_err(io::Error::other)?;
        entry.finish(descriptor).map_err(io::Error::other)?;
    }
    archive.finish().map_err(io::Error::other)
}

/// An archive whose table of contents has been looked through.
pub(super) struct Archive<'a> {
    archive: ZipSliceArchive<&'a [u8]>,
    /// Bytes of the whole.
    size: u64,
    /// What the names of all files begin with: the folder that the description lies in.
    folder: Vec<u8>,
    /// Bytes that may still be read out of it.
    allowance: u64,
}

impl<'a> Archive<'a> {
    /// Opens an archive with a description in it.
    pub(super) fn open(bytes: &'a [u8]) -> Result<Self, String> {
        let archive = ZipArchive::from_slice(bytes).map_err(|e| format!("it is damaged: {e}"))?;
        let size = bytes.len() as u64;
        let allowance = size.saturating_mul(MAX_GROWTH).max(ALWAYS_ALLOWED);
        let mut found = Self { archive, size, folder: Vec::new(), allowance };
        found.folder = found.folder_of_description()?;
        Ok(found)
    }

    /// The folder of the description nearest to the root.
    fn folder_of_description(&self) -> Result<Vec<u8>, String> {
        let (mut best, mut count, mut packed) = (None::<Vec<u8>>, 0, 0u64);
        for entry in self.archive.entries() {
            let entry = entry.map_err(|e| format!("its table of contents is damaged: {e}"))?;
            count += 1;
            packed = packed.saturating_add(entry.compressed_size_hint());
            if count > MAX_FILES {
                return Err(format!("it has more than {MAX_FILES} files"));
            }
            // Files in the same place would let a small archive grow.
            if packed > self.size {
                return Err("its files overlap".into());
            }
            let path = entry.file_path();
            let Some(folder) = path.as_bytes().strip_suffix(DESCRIPTION.as_bytes()) else { continue };
            let is_name = folder.is_empty() || folder.ends_with(b"/");
            if is_name && best.as_ref().is_none_or(|best| folder.len() < best.len()) {
                best = Some(folder.to_vec());
            }
        }
        best.ok_or_else(|| format!("it has no {DESCRIPTION}"))
    }

    /// The content of a file beside the description, whose checksum is verified. All together give only so much.
    pub(super) fn read(&mut self, name: &str) -> Result<Vec<u8>, String> {
        let wrong = |why: &str| format!("its file {name:?} {why}");
        let (place, method) = self.find(name)?.ok_or_else(|| wrong("is missing"))?;
        let entry = self.archive.get_entry(place).map_err(|e| wrong(&format!("is damaged: {e}")))?;
        let size = entry.claim_verifier().uncompressed_size;
        self.allowance = self.allowance.checked_sub(size).ok_or_else(|| {
            wrong(&format!("would become {size} bytes, which is more than such an archive can hold"))
        })?;
        // Room for what is there; what compression makes of it shows on the way.
        let mut content = Vec::with_capacity(entry.data().len().min(usize::try_from(size).unwrap_or(0)));
        let read = match method {
            CompressionMethod::STORE => {
                entry.verifying_reader(entry.data()).take(size + 1).read_to_end(&mut content)
            }
            CompressionMethod::DEFLATE => {
                let inflated = DeflateDecoder::new(entry.data());
                entry.verifying_reader(inflated).take(size + 1).read_to_end(&mut content)
            }
            _ => return Err(wrong("is packed in an unusual way")),
        };
        read.map_err(|e| wrong(&format!("is damaged: {e}")))?;
        if content.len() as u64 != size {
            return Err(wrong(&format!("does not have the {size} bytes that the archive says")));
        }
        Ok(content)
    }

    fn find(&self, name: &str) -> Result<Option<(ZipArchiveEntryWayfinder, CompressionMethod)>, String> {
        for entry in self.archive.entries() {
            let entry = entry.map_err(|e| format!("its table of contents is damaged: {e}"))?;
            let path = entry.file_path();
            if path.as_bytes().strip_prefix(self.folder.as_slice()) != Some(name.as_bytes()) {
                continue;
            }
            if entry.flags().is_encrypted() {
                return Err(format!("its file {name:?} is encrypted"));
            }
            return Ok(Some((entry.wayfinder(), entry.compression_method())));
        }
        Ok(None)
    }
}
