//! What is removed to make room for results was made by a run of this program. What somebody else has put there stays: COLMAP's
//! model in `sparse/`, frames that a person chose.

use std::fs;
use std::io::ErrorKind;
use std::path::Path;

use crate::error::{Error, Result};

/// Refuses to make room for results at `path` if something is there and no run of this program has left it, as `is_own` says.
///
/// # Errors
/// [`InvalidArgument`](crate::ErrorKind::InvalidArgument) if it is a file, or a folder that is not empty, and not our own.
pub(crate) fn check_own(path: &Path, is_own: bool) -> Result<()> {
    if is_own || !is_occupied(path) {
        return Ok(());
    }
    let message = format!(
        "{} was not made by a run of this program, and would be removed to make room for results",
        path.display()
    );
    Err(Error::argument(message)
        .hint("give another folder for the results, or remove or rename what is there"))
}

/// Whether there is a file, or a folder with something in it.
fn is_occupied(path: &Path) -> bool {
    match fs::read_dir(path) {
        Ok(mut entries) => entries.next().is_some(),
        Err(e) if e.kind() == ErrorKind::NotFound => false,
        // What is wrong with a folder that cannot be read is said by who writes there.
        Err(_) => path.is_file(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_others_put_there_is_in_the_way() {
        let place = tempfile::tempdir().unwrap();
        let at = |name: &str| place.path().join(name);
        fs::create_dir_all(at("theirs/0")).unwrap();
        fs::create_dir(at("empty")).unwrap();
        fs::write(at("file"), "a note").unwrap();
        for free in ["none", "empty", "file/below a file"] {
            check_own(&at(free), false).unwrap();
        }
        for name in ["theirs", "file"] {
            check_own(&at(name), true).unwrap();
            let error = check_own(&at(name), false).unwrap_err();
            assert_eq!(error.kind(), crate::ErrorKind::InvalidArgument);
            assert!(error.message().contains(&at(name).display().to_string()), "{error}");
            assert!(error.message().contains("not made by a run of this program"), "{error}");
            assert!(error.hint_text().is_some_and(|hint| hint.contains("another folder")), "{error}");
        }
    }
}
