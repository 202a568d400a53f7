//! What a machine stored of a job, as another one takes it: archives as they are, and archives that are in order with contents
//! that are not, so that more than the checksum is tried.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use libreconstruct::fuzzing::{archive_of, take_stage};
use libreconstruct::{ErrorKind, Stage};

use super::super::scratch;

/// Between the manifest, the names and the contents from which an archive in order is made.
pub const CUT: &[u8] = b"\xff\xfe\xfd";

pub fn run(bytes: &[u8]) {
    take(bytes);
    let mut parts = split(bytes).into_iter();
    let manifest = parts.next().unwrap_or_default();
    let (names, contents): (Vec<_>, Vec<_>) = parts.enumerate().partition(|(k, _)| k % 2 == 0);
    let files: Vec<(&Path, &[u8])> = names
        .into_iter()
        .zip(contents)
        .map(|((_, name), (_, content))| (Path::new(OsStr::from_bytes(name)), content))
        .collect();
    if let Some(archive) = archive_of(manifest, &files) {
        take(&archive);
    }
}

fn split(mut bytes: &[u8]) -> Vec<&[u8]> {
    let mut parts = Vec::new();
    while let Some(at) = bytes.windows(CUT.len()).position(|window| window == CUT) {
        parts.push(&bytes[..at]);
        bytes = &bytes[at + CUT.len()..];
    }
    parts.push(bytes);
    parts
}

fn take(archive: &[u8]) {
    let around = scratch::folder().join("archive");
    // That there is none yet is as good.
    let _ = fs::remove_dir_all(&around);
    let folder = around.join("job");
    fs::create_dir_all(&folder).expect("a temporary folder can be made");
    for stage in [Stage::Frames, Stage::Sfm, Stage::Train] {
        if let Err(error) = take_stage(archive, &folder, stage) {
            assert!([ErrorKind::InvalidFile, ErrorKind::Io].contains(&error.kind()), "{error:?}");
        }
    }
    let beside: Vec<_> =
        fs::read_dir(&around).expect("it is there").flatten().map(|e| e.file_name()).collect();
    assert_eq!(beside, ["job"], "something was written beside the folder");
    let written = size_of(&folder);
    // The manifest is kept, once a stage, in a form that is longer.
    assert!(written <= 8 * archive.len() as u64 + 4096, "{written} bytes of {}", archive.len());
}

/// Bytes of all plain files below; there is nothing else but folders.
fn size_of(folder: &Path) -> u64 {
    let entries = fs::read_dir(folder).expect("it is there").flatten();
    let sizes = entries.map(|entry| {
        let about = fs::symlink_metadata(entry.path()).expect("it is there");
        assert!(about.is_dir() || about.is_file(), "{:?} is neither a file nor a folder", entry.path());
        if about.is_dir() { size_of(&entry.path()) } else { about.len() }
    });
    sizes.sum()
}
