//! Where the key comes from: never from the command line, which others on the machine can see and the shell remembers.

use std::path::Path;

use libreconstruct::{Error, Result};

/// The environment variable with the key.
pub(crate) const VARIABLE: &str = "RECONSTRUCT_API_KEY";

/// The key in `file`, or else in the environment.
///
/// # Errors
/// If there is none, or what is there cannot be one.
pub(crate) fn read(file: Option<&Path>) -> Result<String> {
    let (text, place) = match file {
        Some(file) => {
            let text = std::fs::read_to_string(file).map_err(|e| Error::io("read", file, e))?;
            (text, file.display().to_string())
        }
        None => (std::env::var(VARIABLE).unwrap_or_default(), VARIABLE.to_owned()),
    };
    let key = text.trim();
    if key.is_empty() {
        let what = match file {
            Some(_) => format!("{place} has no API key in it: it is empty"),
            None => "there is no API key".to_owned(),
        };
        return Err(Error::argument(what).hint(format!(
            "set {VARIABLE} to it, or name a file that has it alone with --api-key-file; a key is made on the profile page of \
             the server, or by its operator with `reconstruct keys create`"
        )));
    }
    // What cannot stand in a header is none. It is not shown: it may be most of a key.
    if !key.bytes().all(|b| b.is_ascii_graphic()) {
        return Err(Error::argument(format!("{place} has no API key in it: one has no blanks and no lines"))
            .hint("the whole key is lrk_, eight letters, a dot and 43 letters"));
    }
    Ok(key.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_alone_in_its_file() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("key");
        assert!(read(Some(&file)).unwrap_err().message().contains("does not exist"));
        std::fs::write(&file, "  lrk_12345678.abc\n").unwrap();
        assert_eq!(read(Some(&file)).unwrap(), "lrk_12345678.abc");
        for bad in ["", "\n", "lrk_1.a\nlrk_2.b", "a key"] {
            std::fs::write(&file, bad).unwrap();
            let error = read(Some(&file)).unwrap_err();
            assert!(error.message().contains("no API key") && error.hint_text().is_some(), "{bad}: {error}");
            assert!(!error.to_string().contains("lrk_2"), "{error}");
        }
    }
}
