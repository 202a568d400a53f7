//! An archive of pictures from a stranger: only plain files come out, in one folder and within bounds.

use std::fs;

use libreconstruct::ErrorKind;
use libreconstruct::fuzzing::unpack_pictures;

use super::super::scratch;

/// So much may come out of any archive.
const ALWAYS_ALLOWED: u64 = 64 << 20;

pub fn run(bytes: &[u8]) {
    let around = scratch::folder().join("pictures");
    // That there is none yet is as good.
    let _ = fs::remove_dir_all(&around);
    let folder = around.join("job");
    fs::create_dir_all(&folder).expect("a temporary folder can be made");
    let archive = scratch::file("pictures.zip", bytes);
    if let Err(error) = unpack_pictures(&archive, &folder) {
        // A name may be one that the file system does not take.
        assert!([ErrorKind::InvalidMedia, ErrorKind::Io].contains(&error.kind()), "{error:?}");
    }
    let beside: Vec<_> =
        fs::read_dir(&around).expect("it is there").flatten().map(|e| e.file_name()).collect();
    assert_eq!(beside, ["job"], "something was written beside the folder");
    let mut written = 0;
    for entry in fs::read_dir(&folder).expect("it is there").flatten() {
        let about = fs::symlink_metadata(entry.path()).expect("it is there");
        assert!(about.is_file(), "{:?} is no plain file", entry.path());
        written += about.len();
    }
    assert!(written <= ALWAYS_ALLOWED.max(4 * bytes.len() as u64), "{written} bytes of {}", bytes.len());
}
