//! The inputs of the fuzz targets, and those that once broke one, without the fuzzing engine: what held while they were found
//! still holds. `fuzz/src/lib.rs` says what that is.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::print_stdout, reason = "a test fails by it")]

use std::collections::BTreeSet;
use std::panic::catch_unwind;
use std::path::{Path, PathBuf};

#[path = "../../fuzz/src/lib.rs"]
#[allow(missing_docs, dead_code, unreachable_pub, reason = "it is a library of its own")]
mod fuzz;

/// What is in a folder, in order; nothing if it is not there.
fn list(folder: &Path) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(folder) else { return Vec::new() };
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths
}

/// Without the usual harness, whose threads would be counted with the memory that an input takes.
fn main() {
    let fuzz = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().join("fuzz");
    if std::env::var_os("UPDATE_FUZZ_CORPUS").is_some() {
        write_seeds(&fuzz.join("corpus"));
    }
    folders_and_programs_are_those_of_the_targets(&fuzz);
    every_input_is_survived(&fuzz);
}

fn write_seeds(corpus: &Path) {
    for (target, inputs) in fuzz::seeds::all() {
        let folder = corpus.join(target);
        std::fs::create_dir_all(&folder).unwrap();
        for (name, bytes) in inputs {
            std::fs::write(folder.join(name), bytes).unwrap();
        }
    }
}

fn every_input_is_survived(fuzz: &Path) {
    let mut broken = Vec::new();
    for target in &fuzz::TARGETS {
        let inputs = list(&fuzz.join("corpus").join(target.name));
        assert!(!inputs.is_empty(), "fuzz/corpus has nothing for {}", target.name);
        let regressions = list(&fuzz.join("regressions").join(target.name));
        println!("{}: {} inputs, {} regressions", target.name, inputs.len(), regressions.len());
        // What is made once and kept is no memory of an input.
        fuzz::run(target.name, b"");
        for path in inputs.iter().chain(&regressions) {
            let bytes = std::fs::read(path).unwrap();
            if catch_unwind(|| fuzz::run(target.name, &bytes)).is_err() {
                broken.push(path.display().to_string());
            }
        }
    }
    for (number, (target, bytes)) in fuzz::seeds::dense().into_iter().enumerate() {
        if catch_unwind(|| fuzz::run(target, &bytes)).is_err() {
            broken.push(format!("dense input {number}, of {target}"));
        }
    }
    assert!(broken.is_empty(), "these break what is promised of them:\n{}", broken.join("\n"));
}

fn folders_and_programs_are_those_of_the_targets(fuzz: &Path) {
    let names: BTreeSet<String> = fuzz::TARGETS.iter().map(|target| target.name.to_owned()).collect();
    let stems = |folder: &str| -> BTreeSet<String> {
        let paths = list(&fuzz.join(folder));
        paths.iter().map(|path| path.file_stem().unwrap().to_str().unwrap().to_owned()).collect()
    };
    assert_eq!(stems("fuzz_targets"), names);
    for folder in ["corpus", "regressions", "dictionaries"] {
        let unknown: Vec<String> = stems(folder).difference(&names).cloned().collect();
        assert!(unknown.is_empty(), "fuzz/{folder} has {unknown:?}, which no target is called");
    }
}
