//! Where the network's weights are, and whether they are the ones that are meant.
//!
//! They are not part of the program: `make mask-model` installs them beside it, and the Python package finds those of
//! its extra `background`. Nothing here uses the network.

use std::env;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use sha2::{Digest, Sha256};

use crate::error::{Error, ErrorKind, Result};
use crate::files;

/// The file name under which the weights are looked for.
pub const MODEL_FILE: &str = "u2netp.onnx";
/// SHA-256 of the file that `make mask-model` installs.
pub const MODEL_SHA256: &str = "309c8469258dda742793dce0ebea8e6dd393174f89934733ecc8b14c76f4ddd8";
/// The environment variable that names another file.
pub const MODEL_VARIABLE: &str = "LIBRECONSTRUCT_MASK_MODEL";
/// Larger files are no such network.
const LARGEST: u64 = 1 << 30;

/// The file of the network: `asked` if given, else what [`MODEL_VARIABLE`] names, else [`MODEL_FILE`] beside the
/// running program, in a folder that belongs to its installation or to that of the library which the program uses
/// (`../share/libreconstruct`), or in `/usr/local/share/libreconstruct` and `/usr/share/libreconstruct`.
///
/// # Errors
/// [`ErrorKind::NotFound`] with the places that were looked at and the command that installs the file.
pub fn find_model(asked: Option<&Path>) -> Result<PathBuf> {
    let program = env::current_exe().ok();
    let variable = env::var_os(MODEL_VARIABLE).map(PathBuf::from);
    locate(asked.map(Path::to_owned), variable, &Installed { program, library: library() })
}

/// Files of an installation that is at work.
#[derive(Default)]
struct Installed {
    program: Option<PathBuf>,
    library: Option<PathBuf>,
}

/// The library that this code was loaded from, if it is one. A program in C lies anywhere; the library lies where
/// `make install` put it, and the weights with it.
#[cfg(unix)]
fn library() -> Option<PathBuf> {
    use std::ffi::{CStr, OsStr, c_void};
    use std::os::unix::ffi::OsStrExt;

    let here: fn() -> Option<PathBuf> = library;
    let mut info = std::mem::MaybeUninit::<libc::Dl_info>::zeroed();
    // SAFETY: dladdr() takes any address and writes to `info` only. Zeroed it is valid, too: numbers and pointers.
    let info = unsafe {
        if libc::dladdr(here as *const c_void, info.as_mut_ptr()) == 0 {
            return None;
        }
        info.assume_init()
    };
    if info.dli_fname.is_null() {
        return None;
    }
    // SAFETY: a string of the loader's, which lives while the code that runs here is loaded.
    let name = unsafe { CStr::from_ptr(info.dli_fname) };
    let path = PathBuf::from(OsStr::from_bytes(name.to_bytes()));
    // Other names may be relative to a folder that is not the working directory any more; and that of a program is
    // whatever it was called by.
    path.is_absolute().then_some(path)
}

/// Elsewhere the program's place has to do.
#[cfg(not(unix))]
fn library() -> Option<PathBuf> {
    None
}

/// A file that a face of the engine knows of, for example one that came with a Python package.
static KNOWN: OnceLock<PathBuf> = OnceLock::new();

/// Tells [`find_model`] of one more place, which it looks at after the others. Only the first call counts.
pub fn set_model_place(path: PathBuf) {
    KNOWN.get_or_init(|| path);
}

/// [`find_model`] with its surroundings as arguments.
fn locate(asked: Option<PathBuf>, variable: Option<PathBuf>, installed: &Installed) -> Result<PathBuf> {
    let named = [(asked, "the mask model"), (variable.filter(|p| !p.as_os_str().is_empty()), MODEL_VARIABLE)];
    for (path, what) in named {
        let Some(path) = path else { continue };
        if path.is_file() {
            return Ok(path);
        }
        return Err(missing(format!("{what} {} is no file", path.display())));
    }
    let places = places(installed);
    if let Some(found) = places.iter().find(|p| p.is_file()) {
        return Ok(found.clone());
    }
    let folders: Vec<String> =
        places.iter().filter_map(|p| p.parent()).map(|p| p.display().to_string()).collect();
    Err(missing(format!(
        "removing the background needs the file {MODEL_FILE}, which is in none of: {}",
        folders.join(", ")
    )))
}

fn missing(message: String) -> Error {
    Error::new(ErrorKind::NotFound, message).hint(
        "in a checkout of libreconstruct run `make mask-model` (for Python: pip install '.[background]'), or name the file by \
         --mask-model (in programs: the option mask_model) or LIBRECONSTRUCT_MASK_MODEL, or give masks of your own by --mask-dir",
    )
}

fn places(installed: &Installed) -> Vec<PathBuf> {
    let shared = |folder: &Path| folder.parent().map(|prefix| prefix.join("share/libreconstruct"));
    let mut folders = Vec::new();
    if let Some(folder) = installed.program.as_deref().and_then(Path::parent) {
        folders.push(folder.to_owned());
        // Programs of the tests are one folder below.
        if folder.ends_with("deps") {
            folders.extend(folder.parent().map(Path::to_owned));
        }
        folders.extend(shared(folder));
    }
    let of_library = installed.library.as_deref().and_then(Path::parent).and_then(shared);
    let of_system = ["/usr/local/share/libreconstruct", "/usr/share/libreconstruct"].map(PathBuf::from);
    for folder in of_library.into_iter().chain(of_system) {
        if !folders.contains(&folder) {
            folders.push(folder);
        }
    }
    folders.into_iter().map(|f| f.join(MODEL_FILE)).chain(KNOWN.get().cloned()).collect()
}

/// The bytes of a model file. A file named [`MODEL_FILE`] must be the known one: a damaged download would otherwise
/// give masks that are merely bad.
///
/// # Errors
/// [`ErrorKind::NotFound`], [`ErrorKind::Io`]; [`ErrorKind::InvalidFile`] if it is not what its name says, or too
/// large.
pub(super) fn read_model(path: &Path) -> Result<Vec<u8>> {
    let bytes = files::read_at_most(path, LARGEST)?.ok_or_else(|| {
        let message = format!("{} has more than {LARGEST} bytes: that is no mask model", path.display());
        Error::new(ErrorKind::InvalidFile, message)
    })?;
    let found = crate::hex::hex(&Sha256::digest(&bytes));
    if path.file_name().is_some_and(|n| n == MODEL_FILE) && found != MODEL_SHA256 {
        return Err(Error::new(
            ErrorKind::InvalidFile,
            format!("{} is damaged: its SHA-256 is {found}, not {MODEL_SHA256}", path.display()),
        )
        .hint("delete it and run `make mask-model`; another model must have another file name"));
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_place_that_has_it_wins() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| {
            let path = folder.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(&path, "x").unwrap();
            path
        };
        let program = Installed { program: Some(folder.path().join("bin/reconstruct")), library: None };
        let shared = at("share/libreconstruct/u2netp.onnx");
        assert_eq!(locate(None, None, &program).unwrap(), shared);
        let beside = at("bin/u2netp.onnx");
        assert_eq!(locate(None, None, &program).unwrap(), beside);
        let variable = at("variable.onnx");
        assert_eq!(locate(None, Some(variable.clone()), &program).unwrap(), variable);
        let asked = at("asked.onnx");
        assert_eq!(locate(Some(asked.clone()), Some(variable), &program).unwrap(), asked);
        // An empty variable is one that is not set.
        assert_eq!(locate(None, Some(PathBuf::new()), &program).unwrap(), beside);
    }

    #[test]
    fn a_program_of_somebody_elses_finds_what_lies_with_the_library() {
        let prefix = tempfile::tempdir().unwrap();
        let shared = prefix.path().join("share/libreconstruct").join(MODEL_FILE);
        std::fs::create_dir_all(shared.parent().unwrap()).unwrap();
        std::fs::write(&shared, "x").unwrap();
        let installed = Installed {
            program: Some("/home/anna/scan/build/scan".into()),
            library: Some(prefix.path().join("lib/libreconstruct.so.1")),
        };
        assert_eq!(locate(None, None, &installed).unwrap(), shared);
        // The tests are a program; if the loader knows it by its whole name, it is this one.
        let here = library().and_then(|path| path.canonicalize().ok());
        let program = env::current_exe().and_then(|path| path.canonicalize()).unwrap();
        assert!(here.is_none_or(|path| path == program));
    }

    #[test]
    fn a_file_that_was_named_is_not_replaced_by_another() {
        let folder = tempfile::tempdir().unwrap();
        let program = Installed { program: Some(folder.path().join("reconstruct")), library: None };
        std::fs::write(folder.path().join(MODEL_FILE), "x").unwrap();
        let error = locate(Some("/nowhere/a.onnx".into()), None, &program).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotFound);
        assert!(error.message().contains("/nowhere/a.onnx"), "{error}");
        let error = locate(None, Some("/nowhere/b.onnx".into()), &program).unwrap_err();
        assert!(error.message().contains(MODEL_VARIABLE), "{error}");
    }

    #[test]
    fn without_weights_the_error_says_where_it_looked_and_the_one_command() {
        let folder = tempfile::tempdir().unwrap();
        let program = Installed { program: Some(folder.path().join("bin/reconstruct")), library: None };
        match locate(None, None, &program) {
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::NotFound);
                assert!(
                    error.message().contains(&folder.path().join("bin").display().to_string()),
                    "{error}"
                );
                assert!(error.hint_text().unwrap().contains("make mask-model"), "{error}");
            }
            // Installed on this machine.
            Ok(path) => assert!(path.starts_with("/usr"), "{}", path.display()),
        }
    }

    #[test]
    fn a_damaged_file_under_the_known_name_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let known = folder.path().join(MODEL_FILE);
        std::fs::write(&known, "damaged").unwrap();
        let error = read_model(&known).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidFile);
        assert!(error.message().contains(MODEL_SHA256), "{error}");
        let other = folder.path().join("mine.onnx");
        std::fs::write(&other, "whatever").unwrap();
        assert_eq!(read_model(&other).unwrap(), b"whatever");
    }
}
