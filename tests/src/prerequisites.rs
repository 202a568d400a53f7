//! What some tests need and a machine may lack: other programs, a GPU, real captures. Without it such a test, or that
//! part of it, is skipped, and the skip is noted:
//!
//! - `LIBRECONSTRUCT_REQUIRE` lists what must be here, for example `interop,gpu`. The test then fails instead.
//! - `LIBRECONSTRUCT_SKIPS` names a file that gets a line for each skip. `make test` shows it at its end.
//!
//! `tests/prerequisites.py` is the same for tests in Python. The unit tests of the core include this file, because they
//! cannot depend on this crate, which depends on the core.

use std::env;
use std::fs::OpenOptions;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::thread;

/// A kind of thing that tests need and a machine may lack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Prerequisite {
    /// The programs of others that read and write our files.
    Interop,
    /// Chromium.
    Browser,
    /// A device for wgpu, be it a driver that computes on the CPU.
    Gpu,
    /// Real captures, which are not part of the project.
    Captures,
    /// The weights of the network that finds the object.
    MaskModel,
    /// An ffmpeg with the encoders and filters that make clips of all kinds. ffmpeg itself must always be here.
    Encoders,
    /// PostgreSQL's server.
    Postgres,
    /// Servers that speak like S3, Google Cloud Storage and Azure Blob Storage.
    Stores,
    /// A Linux kernel with Landlock and seccomp.
    Sandbox,
}

impl Prerequisite {
    const ALL: [Self; 9] = [
        Self::Interop,
        Self::Browser,
        Self::Gpu,
        Self::Captures,
        Self::MaskModel,
        Self::Encoders,
        Self::Postgres,
        Self::Stores,
        Self::Sandbox,
    ];

    /// Its name in `LIBRECONSTRUCT_REQUIRE`.
    fn word(self) -> &'static str {
        match self {
            Self::Interop => "interop",
            Self::Browser => "browser",
            Self::Gpu => "gpu",
            Self::Captures => "captures",
            Self::MaskModel => "mask-model",
            Self::Encoders => "encoders",
            Self::Postgres => "postgres",
            Self::Stores => "stores",
            Self::Sandbox => "sandbox",
        }
    }

    /// How to get it.
    fn remedy(self) -> &'static str {
        match self {
            Self::Interop => "`make test-rust` installs what it needs",
            Self::Browser => "apt-get install chromium",
            Self::Gpu => "a software driver will do: apt-get install mesa-vulkan-drivers",
            Self::Captures => {
                "put the captures into ../shared/data beside the workspace, or name their folder in LIBRECONSTRUCT_CAPTURES"
            }
            Self::MaskModel => "make mask-model",
            Self::Postgres => "apt-get install postgresql",
            Self::Stores => "`make test-rust` installs and starts them; by hand: tests/stores/__main__.py",
            Self::Sandbox => "run Linux 5.13 or newer with landlock in the list of /sys/kernel/security/lsm",
            Self::Encoders => "install a full build of ffmpeg, such as Debian's",
        }
    }

    /// Notes that the running test skips what needs `what`, which is not here.
    ///
    /// # Panics
    /// If `LIBRECONSTRUCT_REQUIRE` asks for it, or has a word that is not known.
    #[track_caller]
    pub fn is_missing(self, what: &str) {
        let required = match required(&env::var("LIBRECONSTRUCT_REQUIRE").unwrap_or_default()) {
            Ok(required) => required,
            Err(message) => panic!("{message}"),
        };
        let word = self.word();
        if required.contains(&self) {
            panic!(
                "{what} is not here, and LIBRECONSTRUCT_REQUIRE asks for `{word}`. To get it: {}",
                self.remedy()
            );
        }
        let test = thread::current().name().unwrap_or("a test").to_owned();
        let line = format!("{test}: {what} is not here ({word})");
        eprintln!("skipped: {line}");
        if let Some(path) = env::var_os("LIBRECONSTRUCT_SKIPS") {
            let file = OpenOptions::new().append(true).create(true).open(&path);
            // One write, so that the lines of tests that run at once do not mix.
            if let Err(error) = file.and_then(|mut file| file.write_all(format!("{line}\n").as_bytes())) {
                panic!("{} (LIBRECONSTRUCT_SKIPS): {error}", Path::new(&path).display());
            }
        }
    }
}

/// What a list of words asks for.
fn required(list: &str) -> Result<Vec<Prerequisite>, String> {
    let words = list.split(',').map(str::trim).filter(|word| !word.is_empty());
    let known = |word: &str| Prerequisite::ALL.into_iter().find(|p| p.word() == word);
    words
        .map(|word| {
            let all = Prerequisite::ALL.map(Prerequisite::word).join(", ");
            known(word).ok_or(format!("LIBRECONSTRUCT_REQUIRE does not know `{word}`; it knows {all}"))
        })
        .collect()
}

/// A path beside the workspace: what is shared and no part of it.
fn beside_workspace(path: &str) -> PathBuf {
    // The core and this crate lie equally deep.
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path)
}

/// The folder `name` of the real captures: under `LIBRECONSTRUCT_CAPTURES`, else in `../shared/data` beside the workspace.
/// None, and noted as skipped, if it is not there.
#[track_caller]
pub fn capture(name: &str) -> Option<PathBuf> {
    let root = env::var_os("LIBRECONSTRUCT_CAPTURES").map(PathBuf::from);
    let folder = root.unwrap_or_else(|| beside_workspace("shared/data")).join(name);
    let found = folder.is_dir();
    if !found {
        Prerequisite::Captures.is_missing(&format!("the capture {name}"));
    }
    found.then_some(folder)
}

/// The weights of the network that finds the object: what `LIBRECONSTRUCT_MASK_MODEL` names, else where `make mask-model`
/// puts them, beside the program, else beside the captures. None, and noted as skipped, if they are in no such place.
#[track_caller]
pub fn mask_model() -> Option<PathBuf> {
    const FILE: &str = "u2netp.onnx";
    // Programs are in `release`, tests in `release/deps`.
    let test = env::current_exe().ok();
    let places = [
        env::var_os("LIBRECONSTRUCT_MASK_MODEL").map(PathBuf::from),
        test.as_deref().and_then(|t| t.ancestors().nth(2)).map(|folder| folder.join(FILE)),
        Some(beside_workspace("shared/models/u2netp").join(FILE)),
    ];
    let found = places.into_iter().flatten().find(|path| path.is_file());
    if found.is_none() {
        Prerequisite::MaskModel.is_missing("the mask model");
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_that_are_not_known_are_refused() {
        required(&env::var("LIBRECONSTRUCT_REQUIRE").unwrap_or_default()).unwrap();
        assert_eq!(required(""), Ok(vec![]));
        assert_eq!(required("gpu, captures,"), Ok(vec![Prerequisite::Gpu, Prerequisite::Captures]));
        assert!(required("gpu,cpu").unwrap_err().contains("`cpu`; it knows interop, browser, gpu,"));
    }

    /// What CI does not ask for may be missing there for years, and its tests skipped.
    #[test]
    fn ci_asks_for_every_prerequisite() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../.ci/run");
        let script = std::fs::read_to_string(path).unwrap();
        let asked: Vec<&str> = script
            .lines()
            .filter_map(|line| line.split_once("LIBRECONSTRUCT_REQUIRE")?.1.split_once('='))
            .flat_map(|(_, words)| words.split([',', ';', ' ']))
            .collect();
        for word in Prerequisite::ALL.map(Prerequisite::word) {
            assert!(asked.contains(&word), "{word} is not in LIBRECONSTRUCT_REQUIRE of .ci/run: {asked:?}");
        }
    }
}
