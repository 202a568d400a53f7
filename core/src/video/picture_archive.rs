//! A folder of pictures that comes as one file: a zip archive from a stranger.
//!
//! In: a path whose file begins like an archive. Out: its pictures (JPEG, PNG, WebP) in one new folder, which is then taken as any
//! folder of pictures is. Nothing else is unpacked, no name in the archive becomes a path, and nothing is read to its end because the
//! archive says so: how much comes out is bounded by the size of the archive, and an archive within it is never opened.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read, Write};
use std::path::Path;

use flate2::read::DeflateDecoder;
use rawzip::{CompressionMethod, FileReader, RECOMMENDED_BUFFER_SIZE, ZipArchive, ZipArchiveEntryWayfinder};

use crate::control::Control;
use crate::error::{Error, ErrorKind, Result};
use crate::picture_file;
use crate::stage::Stage;

/// What files of this kind begin with.
const BEGINNINGS: [&[u8]; 2] = [b"PK\x03\x04", b"PK\x05\x06"];
/// Most entries, whatever they are.
const MAX_ENTRIES: u64 = 20_000;
/// Largest picture, bytes.
const MAX_PICTURE: u64 = 256 << 20;
/// Pictures are compressed already: all together become hardly more than the archive has.
const MAX_GROWTH: u64 = 4;
/// So much may come out of any archive: drawings, which do compress, are small.
const ALWAYS_ALLOWED: u64 = 64 << 20;
/// Pixels of all pictures together: 10,000 of 12 megapixels.
const MAX_PIXELS: u64 = 120_000_000_000;
/// Longest name of a picture in its folder, bytes: what file systems take, with room for what is put behind it.
const LONGEST_NAME: usize = 200;
/// A model needs as many views.
const FEWEST: usize = 3;
/// How much is unpacked between two looks whether to go on.
const PIECE: usize = 1 << 20;

/// A picture in an archive.
struct Entry {
    /// The folders that it lies in, and its name.
    path: Vec<String>,
    method: CompressionMethod,
    size: u64,
    place: ZipArchiveEntryWayfinder,
}

/// An archive whose table of contents has been looked through.
struct PictureArchive<'a> {
    path: &'a Path,
    archive: ZipArchive<FileReader>,
    /// By the name that each gets.
    pictures: BTreeMap<String, Entry>,
}

/// Whether the file at `path` is an archive by its first bytes.
///
/// # Errors
/// The system's.
pub(crate) fn is_archive(path: &Path) -> Result<bool> {
    File::open(path).and_then(begins_as_archive).map_err(|e| Error::io("open", path, e))
}

/// The same of what is read from its first byte.
///
/// # Errors
/// The reader's.
pub(crate) fn begins_as_archive(file: impl Read) -> io::Result<bool> {
    let mut first = Vec::new();
    file.take(4).read_to_end(&mut first)?;
    Ok(BEGINNINGS.contains(&first.as_slice()))
}

/// Looks through the table of contents of the archive at `path`, which is at its end.
///
/// # Errors
/// [`ErrorKind::InvalidMedia`] if it is damaged, breaks a bound or has too few pictures; the system's.
pub(crate) fn check(path: &Path) -> Result<()> {
    PictureArchive::open(path).map(drop)
}

/// Bytes that [`unpack`] writes at most of an archive of `length` bytes, whatever its table of contents says.
pub(crate) fn most_unpacked(length: u64) -> u64 {
    length.saturating_mul(MAX_GROWTH).max(ALWAYS_ALLOWED)
}

/// Bytes that [`unpack`] writes at most, as the table of contents has it.
///
/// # Errors
/// Those of [`check`].
pub(crate) fn unpacked_size(path: &Path) -> Result<u64> {
    let archive = PictureArchive::open(path)?;
    Ok(archive.pictures.values().fold(0, |all: u64, entry| all.saturating_add(entry.size)))
}

/// Unpacks the pictures of the archive at `path` into the folder `to`, which is there and empty.
///
/// # Errors
/// Those of [`check`]; [`ErrorKind::InvalidMedia`] for a picture whose bytes are damaged or more than was said,
/// [`ErrorKind::Cancelled`], the disk's.
pub(crate) fn unpack(path: &Path, to: &Path, control: &Control) -> Result<()> {
    let archive = PictureArchive::open(path)?;
    let (count, mut pixels) = (archive.pictures.len(), 0);
    for (done, (name, entry)) in archive.pictures.iter().enumerate() {
        // No part of the stage, whose own progress begins at 0 behind this: what is further already would hide that.
        control.progress_with(Stage::Frames, "unpacking", 0.0, format!("{done} of {count} pictures"));
        let picture = to.join(name);
        archive.unpack_one(name, entry, &picture, control)?;
        // One that is no picture is left out when the folder is read, and told then.
        if let Ok((width, height)) = picture_file::open(&picture).map(|found| found.dimensions()) {
            pixels += u64::from(width) * u64::from(height);
        }
        if pixels > MAX_PIXELS {
            let most = MAX_PIXELS / 1_000_000;
            return Err(archive
                .wrong(&format!("its pictures have more than {most} megapixels together"))
                .hint("send fewer pictures, or smaller ones: a few hundred of 2 megapixels are enough"));
        }
    }
    Ok(())
}

impl<'a> PictureArchive<'a> {
    fn open(path: &'a Path) -> Result<Self> {
        let file = File::open(path).map_err(|e| Error::io("open", path, e))?;
        let length = file.metadata().map_err(|e| Error::io("open", path, e))?.len();
        let mut buffer = vec![0; RECOMMENDED_BUFFER_SIZE];
        let archive = ZipArchive::from_file(file, &mut buffer).map_err(|e| unreadable(path, e))?;
        let mut found = Self { path, archive, pictures: BTreeMap::new() };
        let (entries, heic) = found.list(length, &mut buffer)?;
        found.name(entries)?;
        if found.pictures.len() < FEWEST {
            let others = if heic > 0 { format!(", and {heic} HEIC pictures") } else { String::new() };
            return Err(found
                .wrong(&format!("it has {} pictures (jpg, png, webp){others}", found.pictures.len()))
                .hint(match heic {
                    0 => "pictures of the scene from many sides are needed, at least 3",
                    _ => "convert them to JPEG",
                }));
        }
        Ok(found)
    }

    /// The pictures in it, and how many others there are in HEIC, which is not read. The table is read piece by piece, and no
    /// further than may be.
    fn list(&self, length: u64, buffer: &mut [u8]) -> Result<(Vec<Entry>, usize)> {
        let (mut pictures, mut heic, mut count, mut packed, mut unpacked) = (Vec::new(), 0, 0, 0u64, 0u64);
        let mut entries = self.archive.entries(buffer);
        while let Some(entry) = entries.next_entry().map_err(|e| unreadable(self.path, e))? {
            count += 1;
            if count > MAX_ENTRIES {
                return Err(self.wrong(&format!("it has more than {MAX_ENTRIES} files")));
            }
            let name = String::from_utf8_lossy(entry.file_path().as_bytes()).into_owned();
            let path = self.parts(&name)?;
            if entry.mode().is_symlink() {
                return Err(self.wrong(&format!("{name:?} is a link to something else")));
            }
            // Files in the same place would let a small archive grow without end.
            packed = packed.saturating_add(entry.compressed_size_hint());
            if packed > length {
                return Err(self.wrong("its files overlap"));
            }
            if entry.is_dir() || !is_picture(&path) {
                heic += usize::from(path.last().is_some_and(|name| super::images::is_heic(name)));
                continue;
            }
            if entry.flags().is_encrypted() {
                return Err(self
                    .wrong(&format!("{name:?} is encrypted"))
                    .hint("pack the pictures without a password"));
            }
            let method = entry.compression_method();
            if !matches!(method, CompressionMethod::STORE | CompressionMethod::DEFLATE) {
                return Err(self
                    .wrong(&format!("{name:?} is packed in an unusual way"))
                    .hint("pack the pictures as usual (deflate), or store them as they are"));
            }
            let size = entry.uncompressed_size_hint();
            if size > MAX_PICTURE {
                let most = MAX_PICTURE >> 20;
                return Err(self.wrong(&format!("{name:?} has more than {most} MiB")));
            }
            unpacked = unpacked.saturating_add(size);
            if unpacked > most_unpacked(length) {
                return Err(self.wrong(&format!(
                    "it would become more than {MAX_GROWTH} times as large, which pictures do not"
                )));
            }
            pictures.push(Entry { path, method, size, place: entry.wayfinder() });
        }
        Ok((pictures, heic))
    }

    /// The folders and the name of an entry. Windows' separators count as such, too.
    fn parts(&self, name: &str) -> Result<Vec<String>> {
        let refused = |why: &str| Err(self.wrong(&format!("the name {name:?} {why}")));
        if name.chars().any(char::is_control) {
            return refused("has characters that no name has");
        }
        let is_drive = name.as_bytes().get(1) == Some(&b':');
        if name.starts_with(['/', '\\']) || is_drive {
            return refused("begins outside of the archive");
        }
        let parts: Vec<String> = name
            .split(['/', '\\'])
            .filter(|part| !part.is_empty() && *part != ".")
            .map(str::to_owned)
            .collect();
        match parts.iter().any(|part| part == "..") {
            true => refused("leads out of the archive"),
            false => Ok(parts),
        }
    }

    /// Gives each picture a name in one folder: its own, behind those of the folders that not all have in common.
    fn name(&mut self, entries: Vec<Entry>) -> Result<()> {
        let folders = |entry: &Entry| entry.path.len().saturating_sub(1);
        let mut common = entries.first().map_or(0, folders);
        for pair in entries.windows(2) {
            // Windows of two have both.
            let (a, b) = (&pair[0], &pair[1]);
            let same = a.path.iter().zip(&b.path).take_while(|(a, b)| a == b).count();
            common = common.min(same).min(folders(b));
        }
        let mut taken = BTreeMap::new();
        for entry in entries {
            // Not all systems take the same characters.
            let name = entry.path.get(common..).unwrap_or_default().join("_");
            let name = name.replace([':', '*', '?', '"', '<', '>', '|'], "_");
            if name.len() > LONGEST_NAME {
                return Err(self.wrong(&format!("the name {name:?} is longer than {LONGEST_NAME} bytes")));
            }
            // Case does not tell files apart everywhere.
            if let Some(other) = taken.insert(name.to_lowercase(), name.clone()) {
                return Err(self
                    .wrong(&format!("{other:?} and {name:?} would be the same file"))
                    .hint("give each picture a name of its own"));
            }
            self.pictures.insert(name, entry);
        }
        Ok(())
    }

    /// Writes one picture to the new file `to`.
    fn unpack_one(&self, name: &str, entry: &Entry, to: &Path, control: &Control) -> Result<()> {
        let found = self.archive.get_entry(entry.place).map_err(|e| unreadable(self.path, e))?;
        // Whether size and checksum are those of the table is looked at when all has come.
        match entry.method {
            CompressionMethod::DEFLATE => {
                let inflated = DeflateDecoder::new(found.reader());
                self.copy(name, entry.size, found.verifying_reader(inflated), to, control)
            }
            _ => self.copy(name, entry.size, found.verifying_reader(found.reader()), to, control),
        }
    }

    fn copy(&self, name: &str, size: u64, source: impl Read, to: &Path, control: &Control) -> Result<()> {
        let mut out = File::create_new(to).map_err(|e| Error::io("create", to, e))?;
        // A byte more than was said is enough to know.
        let mut source = source.take(size.saturating_add(1));
        let (mut written, mut piece) = (0, vec![0; PIECE]);
        loop {
            control.check()?;
            let read = match source.read(&mut piece) {
                Ok(0) => break,
                Ok(read) => read,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
                // The disk's fault, not the archive's.
                Err(e) if e.raw_os_error().is_some() => return Err(Error::io("read", self.path, e)),
                Err(e) => return Err(self.wrong(&format!("{name:?} is damaged: {e}"))),
            };
            written += read as u64;
            if written > size {
                return Err(self.wrong(&format!("{name:?} has more bytes than the {size} that it says")));
            }
            // The reader has filled no more than the piece.
            out.write_all(&piece[..read]).map_err(|e| Error::io("write", to, e))?;
        }
        Ok(())
    }

    fn wrong(&self, why: &str) -> Error {
        Error::new(
            ErrorKind::InvalidMedia,
            format!("{} cannot be taken as an archive of pictures: {why}", self.path.display()),
        )
    }
}

/// Whether an entry is a picture by its name. What programs leave beside pictures has names that begin with a dot, or lies in a
/// folder of macOS.
fn is_picture(path: &[String]) -> bool {
    let Some(name) = path.last() else { return false };
    let extension = Path::new(name).extension().map(|e| e.to_string_lossy().to_ascii_lowercase());
    let is_hidden = path.iter().any(|part| part.starts_with('.') || part == "__MACOSX");
    !is_hidden && extension.is_some_and(|e| matches!(e.as_str(), "jpg" | "jpeg" | "png" | "webp"))
}

fn unreadable(path: &Path, error: rawzip::Error) -> Error {
    match error.into_kind() {
        rawzip::ErrorKind::IO(e) if e.raw_os_error().is_some() => Error::io("read", path, e),
        kind => Error::new(
            ErrorKind::InvalidMedia,
            format!("{} cannot be taken as an archive of pictures: it is damaged ({kind})", path.display()),
        )
        .hint("the archive may have been cut off; pack it again"),
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use rawzip::ZipArchiveWriter;
    use rawzip::path::EntryPath;

    use super::*;
    use crate::control::Event;

    /// A small picture.
    fn png(grey: u8) -> Vec<u8> {
        let mut bytes = io::Cursor::new(Vec::new());
        image::GrayImage::from_pixel(8, 6, image::Luma([grey]))
            .write_to(&mut bytes, image::ImageFormat::Png)
            .unwrap();
        bytes.into_inner()
    }

    /// An archive with these files, each deflated if that is said.
    fn archive(folder: &Path, files: &[(&str, Vec<u8>, bool)]) -> PathBuf {
        let path = folder.join("a.zip");
        let mut archive = ZipArchiveWriter::new(File::create(&path).unwrap());
        for (name, content, deflated) in files {
            let method = if *deflated { CompressionMethod::DEFLATE } else { CompressionMethod::STORE };
            let new = archive.new_file(EntryPath::verbatim(name.as_bytes()));
            let (mut entry, config) = new.compression_method(method).start().unwrap();
            let descriptor = if *deflated {
                let encoder = flate2::write::DeflateEncoder::new(&mut entry, flate2::Compression::best());
                let mut writer = config.wrap(encoder);
                writer.write_all(content).unwrap();
                let (encoder, descriptor) = writer.finish().unwrap();
                encoder.finish().unwrap();
                descriptor
            } else {
                let mut writer = config.wrap(&mut entry);
                writer.write_all(content).unwrap();
                writer.finish().unwrap().1
            };
            entry.finish(descriptor).unwrap();
        }
        archive.finish().unwrap();
        path
    }

    fn pictures(names: &[&'static str]) -> Vec<(&'static str, Vec<u8>, bool)> {
        names.iter().enumerate().map(|(n, name)| (*name, png(n as u8), n % 2 == 0)).collect()
    }

    fn unpacked(path: &Path) -> Result<Vec<String>> {
        let to = tempfile::tempdir().unwrap();
        unpack(path, to.path(), &Control::new())?;
        let mut names: Vec<String> = std::fs::read_dir(to.path())
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        Ok(names)
    }

    fn refused(path: &Path) -> String {
        let error = unpacked(path).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidMedia, "{error}");
        error.to_string()
    }

    #[test]
    fn pictures_come_out_and_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let mut files = pictures(&["trip/b/1.PNG", "trip/a/1.png", "trip/a/2.jpeg", "trip\\c\\3.webp"]);
        files.extend(
            ["trip/notes.txt", "trip/inner.zip", "__MACOSX/trip/._1.png", "trip/.hidden.png", "trip/a.exe"]
                .map(|name| (name, b"x".to_vec(), false)),
        );
        let path = archive(folder.path(), &files);
        assert!(is_archive(&path).unwrap());
        check(&path).unwrap();
        assert_eq!(unpacked(&path).unwrap(), ["a_1.png", "a_2.jpeg", "b_1.PNG", "c_3.webp"]);
        // One folder that all have in common is none; the bytes are those that were packed.
        let path = archive(folder.path(), &pictures(&["x/1.png", "x/2.png", "x/10.png"]));
        let to = folder.path().join("to");
        std::fs::create_dir(&to).unwrap();
        unpack(&path, &to, &Control::new()).unwrap();
        let sizes = ["1.png", "2.png", "10.png"].map(|name| to.join(name).metadata().unwrap().len());
        assert_eq!(unpacked_size(&path).unwrap(), sizes.iter().sum::<u64>());
        assert_eq!(std::fs::read(to.join("10.png")).unwrap(), png(2));
        assert_eq!(std::fs::read_dir(&to).unwrap().count(), 3);
        let video = folder.path().join("v.mp4");
        std::fs::write(&video, b"\0\0\0\x20ftypisom").unwrap();
        assert!(!is_archive(&video).unwrap());
    }

    #[test]
    fn unpacking_takes_no_part_of_the_progress_of_the_frames() {
        use std::sync::{Arc, Mutex};
        let folder = tempfile::tempdir().unwrap();
        let path = archive(folder.path(), &pictures(&["1.png", "2.png", "3.png"]));
        let heard = Arc::new(Mutex::new(vec![]));
        let sink = heard.clone();
        let control = Control::new().with_listener(move |event| {
            if let Event::Progress { stage, step, fraction, message, .. } = event {
                sink.lock().unwrap().push((stage, step.into_owned(), fraction, message.unwrap_or_default()));
            }
        });
        let to = tempfile::tempdir().unwrap();
        unpack(&path, to.path(), &control).unwrap();
        let expected = [0, 1, 2]
            .map(|done| (Stage::Frames, "unpacking".to_owned(), 0.0f32, format!("{done} of 3 pictures")));
        assert_eq!(*heard.lock().unwrap(), expected);
    }

    #[test]
    fn names_that_lead_elsewhere_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        for (name, word) in [
            ("../1.png", "leads out"),
            ("a/../../1.png", "leads out"),
            ("a\\..\\1.png", "leads out"),
            ("/etc/1.png", "begins outside"),
            ("\\\\host\\1.png", "begins outside"),
            ("C:\\1.png", "begins outside"),
            ("c:1.png", "begins outside"),
            ("a\n1.png", "no name has"),
            ("a\u{0}.png", "no name has"),
            ("X.png", "the same file"),
            (&format!("{}.png", "x".repeat(300)), "longer than"),
        ] {
            let mut files = pictures(&["x.png", "y.png", "z.png"]);
            files.push((Box::leak(name.to_owned().into_boxed_str()), png(9), true));
            let said = refused(&archive(folder.path(), &files));
            assert!(said.contains(word), "{name}: {said}");
        }
        // Nothing was written beside the folder.
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn what_grows_too_much_or_says_less_than_it_is_ends_early() {
        let folder = tempfile::tempdir().unwrap();
        let mut files = pictures(&["1.png", "2.png", "3.png"]);
        files.push(("4.png", vec![0; (ALWAYS_ALLOWED + 1) as usize], true));
        assert!(refused(&archive(folder.path(), &files)).contains("times as large"));
        files[3].1 = vec![0; (MAX_PICTURE + 1) as usize];
        assert!(refused(&archive(folder.path(), &files)).contains("256 MiB"));
        // Within the bounds it is only no picture, which the folder is told.
        files[3].1 = vec![0; 1 << 20];
        let path = archive(folder.path(), &files);
        assert_eq!(unpacked(&path).unwrap().len(), 4);
        // The table says a tenth of it: its size stands in four bytes.
        let mut bytes = std::fs::read(&path).unwrap();
        let (said, less) = ((1u32 << 20).to_le_bytes(), 100_000u32.to_le_bytes());
        let at: Vec<usize> = (0..bytes.len() - 4).filter(|at| bytes[*at..*at + 4] == said).collect();
        for at in at {
            bytes[at..at + 4].copy_from_slice(&less);
        }
        std::fs::write(&path, &bytes).unwrap();
        let said = refused(&path);
        assert!(said.contains("damaged") || said.contains("more bytes"), "{said}");
    }

    #[test]
    fn files_that_overlap_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = archive(folder.path(), &pictures(&["1.png", "2.png", "3.png"]));
        let bytes = std::fs::read(&path).unwrap();
        // Every entry of the table says that its file is as long as the archive.
        let mut bytes_of_table = bytes.clone();
        let length = (bytes.len() as u32).to_le_bytes();
        let mut at = 0;
        while let Some(found) = bytes_of_table[at..].windows(4).position(|w| w == b"PK\x01\x02") {
            at += found;
            bytes_of_table[at + 20..at + 24].copy_from_slice(&length);
            at += 4;
        }
        std::fs::write(&path, &bytes_of_table).unwrap();
        assert!(refused(&path).contains("overlap"));
    }

    #[test]
    fn damage_is_said_and_never_a_panic() {
        let folder = tempfile::tempdir().unwrap();
        let path = archive(folder.path(), &pictures(&["1.png", "2.png", "3.png"]));
        let whole = std::fs::read(&path).unwrap();
        for length in 0..whole.len() {
            std::fs::write(&path, &whole[..length]).unwrap();
            assert_eq!(unpacked(&path).unwrap_err().kind(), ErrorKind::InvalidMedia, "{length}");
        }
        for at in 0..whole.len() {
            let mut damaged = whole.clone();
            damaged[at] ^= 0xff;
            std::fs::write(&path, &damaged).unwrap();
            if let Err(error) = unpacked(&path) {
                assert_eq!(error.kind(), ErrorKind::InvalidMedia, "{at}: {error}");
            }
        }
        let few = archive(folder.path(), &pictures(&["1.png", "2.png"]));
        assert!(refused(&few).contains("it has 2 pictures"));
        let heic = ["1.HEIC", "2.heif", "._2.heic.txt"].map(|name| (name, b"x".to_vec(), false));
        assert!(
            refused(&archive(folder.path(), &heic))
                .contains("0 pictures (jpg, png, webp), and 2 HEIC pictures")
        );
        let none = archive(folder.path(), &[]);
        assert!(is_archive(&none).unwrap() && refused(&none).contains("it has 0 pictures"));
        let control = Control::new();
        control.cancel_token().cancel();
        let path = archive(folder.path(), &pictures(&["1.png", "2.png", "3.png"]));
        let to = tempfile::tempdir().unwrap();
        assert_eq!(unpack(&path, to.path(), &control).unwrap_err().kind(), ErrorKind::Cancelled);
    }
}
