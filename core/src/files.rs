//! Files appear whole or not at all: written beside their place, flushed, renamed over it, and the folder flushed as well, since
//! it is the folder that holds the name. What is read does not lie where they are written.

use std::fs::{self, File};
use std::io::{self, BufWriter, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
#[cfg(feature = "service")]
use std::time::{Duration, SystemTime};

use crate::error::{Error, ErrorKind, Result};
use crate::failpoints;

/// Makes the file `path` from what `write` writes. A reader sees the old file or the complete new one; after a failure
/// the old one stays, unless it was the last step that failed, the flush of the folder. The content and its name are on the disk when this returns.
///
/// # Errors
/// Those of `write`, or the operating system's.
pub(crate) fn write_atomically(
    path: &Path,
    write: impl FnOnce(&mut BufWriter<File>) -> io::Result<()>,
) -> Result<()> {
    replace_atomically(path, |temporary| {
        let file = File::create(temporary).map_err(|e| Error::io("create", path, e))?;
        let mut writer = BufWriter::with_capacity(1 << 18, file);
        let written = write(&mut writer)
            .and_then(|()| writer.flush())
            .and_then(|()| failpoints::pass("files.sync"))
            .and_then(|()| writer.get_ref().sync_all());
        written.map_err(|e| Error::io("write", path, e))
    })
}

/// Writes a file whole: there is the old one or the complete new one, also after a failure, a kill or a power cut. What is no file
/// (a pipe, a device) is written to as it is.
///
/// # Errors
/// [`ErrorKind::DiskFull`]; [`ErrorKind::Io`].
pub fn write_file(path: &Path, bytes: &[u8]) -> Result<()> {
    if fs::metadata(path).is_ok_and(|there| !there.is_file()) {
        return fs::write(path, bytes).map_err(|e| Error::io("write", path, e));
    }
    // A link stays one: what it leads to is replaced.
    let path = &fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    write_atomically(path, |out| out.write_all(bytes))
}

/// Like [`write_atomically`], for content that somebody else writes: `make` is given the path beside `path` at which
/// it must leave the complete file. The temporary name keeps the extension.
pub(crate) fn replace_atomically(path: &Path, make: impl FnOnce(&Path) -> Result<()>) -> Result<()> {
    let temporary = temporary_path(path)?;
    let result = make(&temporary).and_then(|()| rename(&temporary, path));
    if result.is_err() {
        // The first failure is what matters. Nothing is left to remove if only the folder could not be flushed.
        let _ = fs::remove_file(&temporary);
    }
    result
}

/// The bytes of a file, `None` if it has more than `most`. What it says about its size is not believed: pipes and files that
/// grow are cut off, too.
///
/// # Errors
/// Those of the operating system.
pub(crate) fn read_at_most(path: &Path, most: u64) -> Result<Option<Vec<u8>>> {
    let file = File::open(path).map_err(|e| Error::io("open", path, e))?;
    let size = file.metadata().map_err(|e| Error::io("open", path, e))?.len();
    if size > most {
        return Ok(None);
    }
    let mut bytes = Vec::with_capacity(usize::try_from(size).unwrap_or(0));
    file.take(most.saturating_add(1)).read_to_end(&mut bytes).map_err(|e| Error::io("read", path, e))?;
    Ok((bytes.len() as u64 <= most).then_some(bytes))
}

/// Gives the complete, flushed file `from` the name `to` in the same folder, in place of what had it; the name is on the disk
/// when this returns.
pub(crate) fn rename(from: &Path, to: &Path) -> Result<()> {
    failpoints::pass("files.rename")
        .and_then(|()| fs::rename(from, to))
        .map_err(|e| Error::io("write", to, e))?;
    let folder = to.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    failpoints::pass("files.sync_folder").map_err(|e| Error::io("flush", folder, e))?;
    sync_folder(folder)
}

/// Brings the content of the file `path` to the disk, whoever wrote it.
pub(crate) fn sync_file(path: &Path) -> io::Result<()> {
    // Windows flushes only what may be written; elsewhere a file is flushed too that may only be read.
    fs::OpenOptions::new().read(true).write(cfg!(windows)).open(path)?.sync_all()
}

/// Makes the names in `folder` durable, where the system has a way to.
pub(crate) fn sync_folder(folder: &Path) -> Result<()> {
    // Windows has no such call: there a rename is durable by itself.
    if cfg!(windows) {
        return Ok(());
    }
    match File::open(folder).and_then(|f| f.sync_all()) {
        // A folder that may be written but not listed, and file systems whose folders cannot be flushed: the file is there,
        // and nothing more can be done for it.
        Err(e)
            if matches!(
                e.kind(),
                io::ErrorKind::PermissionDenied | io::ErrorKind::InvalidInput | io::ErrorKind::Unsupported
            ) =>
        {
            Ok(())
        }
        synced => synced.map_err(|e| Error::io("flush", folder, e)),
    }
}

/// Refuses an input that lies where results are written: it would be gone before it is read, or replaced by them.
///
/// # Errors
/// `InvalidArgument` if `input` is, or is in, one of `cleared`.
pub(crate) fn check_outside(input: &Path, cleared: &[&Path]) -> Result<()> {
    // Folders that are not there hold nothing.
    let Ok(real) = input.canonicalize() else { return Ok(()) };
    for folder in cleared {
        let Ok(cleared) = folder.canonicalize() else { continue };
        if real.starts_with(&cleared) {
            let (input, folder) = (input.display(), folder.display());
            let message = match real == cleared {
                true => format!("{input} would be written anew"),
                false => format!("{input} is in {folder}, which is written anew"),
            };
            return Err(Error::argument(message).hint("give another folder for the results"));
        }
    }
    Ok(())
}

#[cfg(feature = "service")]
/// Makes a folder, and those above it that are missing, which only its owner may enter; durable when this returns. Outside of
/// Unix its rights are those of the folder above.
pub(crate) fn create_private_folder(folder: &Path) -> Result<()> {
    if folder.is_dir() {
        return Ok(());
    }
    let above = folder.parent().filter(|p| !p.as_os_str().is_empty());
    if let Some(above) = above {
        create_private_folder(above)?;
    }
    #[cfg_attr(not(unix), expect(unused_mut, reason = "there are no rights to set"))]
    let mut builder = fs::DirBuilder::new();
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    match builder.create(folder) {
        // Somebody else was faster.
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists && folder.is_dir() => {}
        made => made.map_err(|e| Error::io("create", folder, e))?,
    }
    above.map_or(Ok(()), sync_folder)
}

/// Makes a new file that only its owner may read; outside of Unix its rights are those of the folder.
#[cfg(feature = "service")]
pub(crate) fn create_private_file(path: &Path) -> io::Result<File> {
    let mut options = fs::OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path)
}

/// How the names of files end that are only needed for a moment.
#[cfg(feature = "service")]
const TRY: &str = "try";

/// Writes a small file in `folder`, brings it to the disk and removes it: what a disk that is full, broken or read-only refuses.
#[cfg(feature = "service")]
pub(crate) fn try_disk(folder: &Path) -> Result<()> {
    let path = new_try(folder)?;
    let written = File::create(&path).and_then(|mut file| {
        file.write_all(&[0; 4096])?;
        file.sync_all()
    });
    let removed = fs::remove_file(&path);
    written.and(removed).map_err(|e| Error::io("write", &path, e))
}

/// The name of a new file in `folder` that is only needed for a moment.
#[cfg(feature = "service")]
pub(crate) fn new_try(folder: &Path) -> Result<PathBuf> {
    temporary_path(&folder.join(TRY))
}

/// Removes such files from `folder` that a killed process left, if nobody touched them for `older_than`.
#[cfg(feature = "service")]
pub(crate) fn sweep_tries(folder: &Path, older_than: Duration) -> Result<()> {
    let fails = |e| Error::io("list", folder, e);
    for entry in fs::read_dir(folder).map_err(fails)? {
        let path = entry.map_err(fails)?.path();
        let is_try = path.extension().is_some_and(|extension| extension == TRY);
        if is_try && is_older(&path, older_than) {
            match fs::remove_file(&path) {
                // Another process sweeps too.
                Err(e) if e.kind() == io::ErrorKind::NotFound => {}
                removed => removed.map_err(|e| Error::io("remove", &path, e))?,
            }
        }
    }
    Ok(())
}

/// Bytes that can still be written to the disk of `folder`, if there is a way to know.
#[cfg(all(feature = "service", unix))]
pub(crate) fn free_space(folder: &Path) -> Result<Option<u64>> {
    use std::os::unix::ffi::OsStrExt;
    let path = std::ffi::CString::new(folder.as_os_str().as_bytes())
        .map_err(|e| Error::io("measure", folder, e.into()))?;
    let mut statistics = std::mem::MaybeUninit::<libc::statvfs>::zeroed();
    // SAFETY: `path` ends with 0 and both pointers live through the call, which fills the structure (all zeros is a valid one).
    let statistics = unsafe {
        if libc::statvfs(path.as_ptr(), statistics.as_mut_ptr()) != 0 {
            return Err(Error::io("measure", folder, io::Error::last_os_error()));
        }
        statistics.assume_init()
    };
    // The field types differ between systems.
    #[allow(clippy::unnecessary_cast)]
    Ok(Some((statistics.f_bavail as u64).saturating_mul(statistics.f_frsize as u64)))
}

/// Unknown; the limit on free space has no effect there.
#[cfg(all(feature = "service", not(unix)))]
pub(crate) fn free_space(_folder: &Path) -> Result<Option<u64>> {
    Ok(None)
}

/// Whether nothing happened to the file for `age`. A link to an old file is new: the change of its name counts too.
#[cfg(feature = "service")]
pub(crate) fn is_older(path: &Path, age: Duration) -> bool {
    let Ok(metadata) = fs::symlink_metadata(path) else { return false };
    let touched = metadata.modified().unwrap_or(SystemTime::UNIX_EPOCH);
    #[cfg(unix)]
    let touched = {
        let seconds = std::os::unix::fs::MetadataExt::ctime(&metadata);
        touched.max(SystemTime::UNIX_EPOCH + Duration::from_secs(u64::try_from(seconds).unwrap_or(0)))
    };
    // A clock that was set back makes files of the future: they are not old.
    SystemTime::now().duration_since(touched).is_ok_and(|d| d >= age)
}

/// A name in the same folder that no other process and no other thread of this one uses.
pub(crate) fn temporary_path(path: &Path) -> Result<PathBuf> {
    static COUNTER: AtomicU64 = AtomicU64::new(0);
    let name = path.file_name().and_then(|n| n.to_str()).ok_or_else(|| {
        Error::new(
            ErrorKind::InvalidArgument,
            format!("{} does not name a file that can be written", path.display()),
        )
    })?;
    let number = COUNTER.fetch_add(1, Ordering::Relaxed);
    Ok(path.with_file_name(format!(".{}-{number}.{name}", std::process::id())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_write_leaves_the_old_file_and_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.bin");
        write_atomically(&path, |w| w.write_all(b"old")).unwrap();
        let error = write_atomically(&path, |w| {
            w.write_all(b"half")?;
            Err(io::ErrorKind::StorageFull.into())
        })
        .unwrap_err();
        assert_eq!(error.kind(), ErrorKind::DiskFull);
        assert_eq!(fs::read(&path).unwrap(), b"old");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
        write_atomically(&path, |w| w.write_all(b"new")).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"new");
    }

    #[test]
    fn a_file_is_written_beside_the_old_one_and_a_device_as_it_is() {
        let folder = tempfile::tempdir().unwrap();
        let (path, old) = (folder.path().join("a.bin"), folder.path().join("old.bin"));
        write_file(&path, b"old").unwrap();
        fs::hard_link(&path, &old).unwrap();
        write_file(&path, b"new").unwrap();
        assert_eq!((fs::read(&path).unwrap(), fs::read(&old).unwrap()), (b"new".to_vec(), b"old".to_vec()));
        assert!(write_file(folder.path(), b"new").is_err());
        #[cfg(unix)]
        {
            write_file(Path::new("/dev/null"), b"new").unwrap();
            assert!(!fs::metadata("/dev/null").unwrap().is_file());
            let link = folder.path().join("link");
            std::os::unix::fs::symlink(&path, &link).unwrap();
            write_file(&link, b"newer").unwrap();
            assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
            assert_eq!(fs::read(&path).unwrap(), b"newer");
        }
    }

    #[test]
    fn what_others_wrote_is_flushed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.bin");
        assert_eq!(sync_file(&path).unwrap_err().kind(), io::ErrorKind::NotFound);
        fs::write(&path, b"content").unwrap();
        sync_file(&path).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"content");
    }

    #[test]
    fn an_input_lies_outside_of_what_is_written() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::create_dir_all(at("out/images/deep")).unwrap();
        fs::create_dir_all(at("out/images beside")).unwrap();
        let check = |input: &str| check_outside(&at(input), &[&at("out/images"), &at("out/sparse")]);
        for inside in ["out/images", "out/images/deep", "out/images beside/../images"] {
            let error = check(inside).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidArgument);
            assert!(error.message().contains("written anew") && error.hint_text().is_some(), "{error}");
        }
        for outside in ["out", "out/images beside", "none", "out/sparse"] {
            check(outside).unwrap();
        }
    }

    #[test]
    fn no_more_is_read_than_is_allowed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.bin");
        fs::write(&path, b"12345").unwrap();
        assert_eq!(read_at_most(&path, 5).unwrap().unwrap(), b"12345");
        assert_eq!(read_at_most(&path, 4).unwrap(), None);
        assert_eq!(read_at_most(&folder.path().join("b"), 4).unwrap_err().kind(), ErrorKind::NotFound);
        // Says that it has no bytes, and never ends.
        #[cfg(unix)]
        assert_eq!(read_at_most(Path::new("/dev/zero"), 1000).unwrap(), None);
    }

    #[cfg(feature = "service")]
    #[test]
    fn what_a_killed_process_tried_is_swept() {
        let folder = tempfile::tempdir().unwrap();
        try_disk(folder.path()).unwrap();
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
        let (left, other) = (folder.path().join(".17-0.try"), folder.path().join("a.bin"));
        fs::write(&left, "left").unwrap();
        fs::write(&other, "other").unwrap();
        sweep_tries(folder.path(), Duration::from_secs(3600)).unwrap();
        assert!(left.exists());
        sweep_tries(folder.path(), Duration::ZERO).unwrap();
        assert!(!left.exists() && other.exists());
    }

    /// A name must not be on the disk before its content is, and is not there before its folder is flushed.
    #[cfg(feature = "failpoints")]
    #[test]
    fn the_content_is_flushed_before_the_rename_and_the_folder_after_it() {
        use std::sync::{Arc, Mutex};
        const PLACES: [&str; 3] = ["files.sync", "files.rename", "files.sync_folder"];
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.bin");
        fs::write(&path, b"old").unwrap();
        let passed = Arc::new(Mutex::new(vec![]));
        for place in PLACES {
            let (passed, path, here) = (passed.clone(), path.clone(), std::thread::current().id());
            // Other tests write files at the same time, on threads of their own.
            let note = move || {
                if std::thread::current().id() == here {
                    passed.lock().unwrap().push((place, fs::read(&path).unwrap()));
                }
            };
            fail::cfg_callback(place, note).unwrap();
        }
        write_atomically(&path, |w| w.write_all(b"new")).unwrap();
        PLACES.iter().for_each(fail::remove);
        let at = |place, content: &[u8]| (place, content.to_vec());
        let expected =
            vec![at("files.sync", b"old"), at("files.rename", b"old"), at("files.sync_folder", b"new")];
        assert_eq!(*passed.lock().unwrap(), expected);
    }
}
