//! The folder of one reconstruction: who works in it, and which stages are finished.
//!
//! A stage is finished when its manifest is there and names the key that the stage would have now: the hash of the
//! program's version, of the keys it builds on and of its parameters. Manifests are written last, atomically, so a
//! killed process leaves either a finished stage or one that is done again from its start (training: from its last
//! checkpoint; camera poses: from the features, matches and verified pairs that were found).

use std::io::Write;
use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::files;
use crate::error::{Error, ErrorKind, Result};
use crate::file_lock::FileLock;
use crate::files::{sync_file, sync_folder, write_atomically};
use crate::hashing::{hash_file, hash_parts};
use crate::hex::hex;
use crate::own_results::check_own;
use crate::stage::Stage;
use crate::video::holds_frames;

/// Hex SHA-256 that identifies what a stage was made from.
pub(super) type Key = String;

/// Where in the folder the lock is. Wherever a reconstruction has been at work it stays.
const LOCK: &str = ".reconstruct/lock";

/// Where in the folder the state of the training is that is being run.
pub(super) const CHECKPOINT: &str = ".reconstruct/checkpoint.bin";

/// Where in the folder what structure from motion has found is kept until its stage is finished.
pub(super) const KEPT: &str = ".reconstruct/sfm";

/// What is kept about a finished stage.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Manifest {
    /// The program that ran it.
    version: String,
    /// See [`stage_key`].
    pub(super) key: Key,
    /// Files it wrote (relative paths) and their sizes: a file that was removed or cut since is noticed.
    pub(super) outputs: Vec<(PathBuf, u64)>,
    /// Its part of the report.
    pub(super) report: serde_json::Value,
    /// What it cost.
    pub(super) cost: StageCost,
}

/// What a stage cost.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct StageCost {
    /// Wall-clock seconds (of all attempts that counted: a resumed training adds up).
    pub seconds: f64,
    /// Seconds of processor time.
    pub cpu_seconds: f64,
    /// Largest resident memory during the stage in MiB, where the system tells.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub peak_memory_mib: Option<f64>,
}

/// The folder of one reconstruction, locked for this process.
pub(super) struct Workspace {
    root: PathBuf,
    /// Holds the lock; the system lets go of it when the process ends, however it ends.
    _lock: FileLock,
}

impl Workspace {
    /// Opens or creates the folder and locks it.
    pub(super) fn open(root: &Path) -> Result<Self> {
        let state = root.join(".reconstruct");
        std::fs::create_dir_all(&state).map_err(|e| Error::io("create", &state, e))?;
        let path = root.join(LOCK);
        let Some(lock) =
            FileLock::try_take(FileLock::open(&path)?).map_err(|e| Error::io("lock", &path, e))?
        else {
            return Err(Error::new(
                ErrorKind::InvalidArgument,
                format!("another reconstruction is at work in {}", root.display()),
            )
            .hint("wait for it, stop it, or choose another output folder"));
        };
        // On the disk before any result that it vouches for.
        sync_folder(&state)?;
        sync_folder(root)?;
        Ok(Self { root: root.to_owned(), _lock: lock })
    }

    /// A path inside the folder.
    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }

    /// The manifest of `stage`, if it is finished with this key and all that it wrote is still there.
    pub(super) fn finished(&self, stage: Stage, key: &Key) -> Option<Manifest> {
        finished_in(&self.root, stage).filter(|manifest| manifest.key == *key)
    }

    /// Forgets that `stage` and all after it were finished: they are about to be done again.
    pub(super) fn forget_from(&self, stage: Stage) -> Result<()> {
        for later in Stage::ALL.into_iter().filter(|s| *s >= stage) {
            remove_if_there(&manifest_path(&self.root, later))?;
        }
        Ok(())
    }

    /// Marks `stage` as finished. `outputs` are files or folders inside the workspace; they, and their names, are on the disk
    /// before the manifest is.
    pub(super) fn finish(
        &self,
        stage: Stage,
        key: Key,
        outputs: &[&str],
        report: serde_json::Value,
        cost: StageCost,
    ) -> Result<Manifest> {
        let mut files = Vec::new();
        for output in outputs {
            self.collect(Path::new(output), &mut files)?;
        }
        sync_folder(&self.root)?;
        let manifest = Manifest { version: crate::VERSION.into(), key, outputs: files, report, cost };
        self.mark(stage, &manifest)?;
        Ok(manifest)
    }

    /// Marks `stage` as finished by what is on the disk already.
    pub(super) fn mark(&self, stage: Stage, manifest: &Manifest) -> Result<()> {
        write_json(&manifest_path(&self.root, stage), manifest)
    }

    /// Lists the files under `relative` with their sizes, in the order of their names, and flushes them to the disk.
    fn collect(&self, relative: &Path, files: &mut Vec<(PathBuf, u64)>) -> Result<()> {
        let path = self.root.join(relative);
        let metadata = std::fs::metadata(&path).map_err(|e| Error::io("find", &path, e))?;
        if metadata.is_dir() {
            let entries = std::fs::read_dir(&path).map_err(|e| Error::io("list", &path, e))?;
            let mut names = Vec::new();
            for entry in entries {
                names.push(entry.map_err(|e| Error::io("list", &path, e))?.file_name());
            }
            names.sort();
            for name in names {
                self.collect(&relative.join(name), files)?;
            }
            // Else the names may lead to what an earlier, killed run wrote: files of the same size without their content.
            sync_folder(&path)?;
        } else {
            sync_file(&path).map_err(|e| Error::io("flush", &path, e))?;
            files.push((relative.to_owned(), metadata.len()));
        }
        Ok(())
    }
}

/// Refuses to make room for results in `root` where something is called as the `outputs` are that no run of this program has left.
///
/// # Errors
/// `InvalidArgument` with the first of them.
pub(super) fn check_own_outputs(root: &Path, outputs: &[&str]) -> Result<()> {
    let is_of_run = root.join(LOCK).exists();
    // The picture of the poses is there before their model is, and as long as that.
    let has_poses = root.join(files::POSES).exists();
    for output in outputs {
        let path = root.join(output);
        let is_own = is_of_run || if *output == files::FRAMES { holds_frames(&path) } else { has_poses };
        check_own(&path, is_own)?;
    }
    Ok(())
}

fn manifest_path(root: &Path, stage: Stage) -> PathBuf {
    root.join(".reconstruct").join(format!("{stage}.json"))
}

/// The manifest of `stage` in a folder, whatever its key, if all that it wrote is still there. Somebody may be at work there.
pub(super) fn finished_in(root: &Path, stage: Stage) -> Option<Manifest> {
    let text = std::fs::read(manifest_path(root, stage)).ok()?;
    let manifest: Manifest = serde_json::from_slice(&text).ok()?;
    let intact =
        |(path, size): &(PathBuf, u64)| std::fs::metadata(root.join(path)).is_ok_and(|m| m.len() == *size);
    manifest.outputs.iter().all(intact).then_some(manifest)
}

/// The key of a stage: version, keys it builds on, parameters.
pub(super) fn stage_key(stage: Stage, inputs: &[&Key], parameters: &impl Serialize) -> Result<Key> {
    let parameters = serde_json::to_vec(parameters)
        .map_err(|e| Error::new(ErrorKind::Internal, "parameters cannot be written as JSON").caused_by(e))?;
    let parts = [crate::VERSION.as_bytes(), stage.name().as_bytes(), &parameters];
    Ok(hex(&hash_parts(parts.into_iter().chain(inputs.iter().map(|k| k.as_bytes())))))
}

/// The key of an input: the hash of a file's bytes, or of the names and bytes of a folder's files.
pub(super) fn input_key(input: &Path) -> Result<Key> {
    let mut hash = Sha256::new();
    let metadata = std::fs::metadata(input).map_err(|e| Error::io("open", input, e))?;
    if metadata.is_dir() {
        let mut names = Vec::new();
        for entry in std::fs::read_dir(input).map_err(|e| Error::io("list", input, e))? {
            let entry = entry.map_err(|e| Error::io("list", input, e))?;
            // Sub-folders are no input of ours.
            if entry.path().is_file() {
                names.push(entry.file_name());
            }
        }
        names.sort();
        for name in names {
            hash.update(name.as_encoded_bytes());
            hash_file(&input.join(&name), &mut hash)?;
        }
    } else {
        hash_file(input, &mut hash)?;
    }
    Ok(hex(&hash.finalize()))
}

/// Writes JSON so that the file is either the old or the new one, also after a power cut.
pub(crate) fn write_json(path: &Path, value: &impl Serialize) -> Result<()> {
    let mut text = serde_json::to_vec_pretty(value)
        .map_err(|e| Error::new(ErrorKind::Internal, "a report cannot be written as JSON").caused_by(e))?;
    text.push(b'\n');
    write_atomically(path, |file| file.write_all(&text))
}

/// Reads JSON that this program wrote earlier.
pub(super) fn read_value<T: DeserializeOwned>(value: serde_json::Value, what: &str) -> Result<T> {
    serde_json::from_value(value).map_err(|e| {
        Error::new(ErrorKind::InvalidFile, format!("{what} of an earlier run cannot be read")).caused_by(e)
    })
}

/// Removes what structure from motion has kept in a folder: its stage is finished. What cannot be removed costs space, no result.
pub(super) fn remove_kept(root: &Path) {
    if let Err(error) = remove_if_there(&root.join(KEPT)) {
        log::warn!("what was kept of the search for poses stays where it is: {error}");
    }
    // It stays where anything else is in it: the folder is a workspace.
    let _ = std::fs::remove_dir(root.join(".reconstruct"));
}

/// Removes a file or folder that may not exist.
pub(super) fn remove_if_there(path: &Path) -> Result<()> {
    let removed = match std::fs::symlink_metadata(path) {
        Ok(m) if m.is_dir() => std::fs::remove_dir_all(path),
        Ok(_) => std::fs::remove_file(path),
        Err(e) => Err(e),
    };
    match removed {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => Err(Error::io("remove", path, e)),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stage_counts_as_finished_only_with_its_key_and_its_files() {
        let folder = tempfile::tempdir().unwrap();
        let workspace = Workspace::open(folder.path()).unwrap();
        std::fs::write(workspace.path("a.txt"), "hello").unwrap();
        let key = stage_key(Stage::Sfm, &[], &1).unwrap();
        let cost = StageCost::default();
        assert!(workspace.finished(Stage::Sfm, &key).is_none());
        workspace.finish(Stage::Sfm, key.clone(), &["a.txt"], serde_json::json!({"x": 1}), cost).unwrap();
        assert_eq!(workspace.finished(Stage::Sfm, &key).unwrap().report["x"], 1);
        let other = stage_key(Stage::Sfm, &[], &2).unwrap();
        assert!(workspace.finished(Stage::Sfm, &other).is_none());
        std::fs::write(workspace.path("a.txt"), "hell").unwrap();
        assert!(workspace.finished(Stage::Sfm, &key).is_none());
    }

    #[test]
    fn redoing_a_stage_forgets_the_later_ones() {
        let folder = tempfile::tempdir().unwrap();
        let workspace = Workspace::open(folder.path()).unwrap();
        let key = stage_key(Stage::Train, &[], &()).unwrap();
        for stage in Stage::ALL {
            workspace.finish(stage, key.clone(), &[], serde_json::Value::Null, StageCost::default()).unwrap();
        }
        workspace.forget_from(Stage::Train).unwrap();
        let left: Vec<bool> = Stage::ALL.iter().map(|s| workspace.finished(*s, &key).is_some()).collect();
        assert_eq!(left, [true, true, false, false]);
    }

    #[test]
    fn two_cannot_work_in_one_folder() {
        let folder = tempfile::tempdir().unwrap();
        let first = Workspace::open(folder.path()).unwrap();
        let error = Workspace::open(folder.path()).err().unwrap();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
        drop(first);
        assert!(Workspace::open(folder.path()).is_ok());
    }

    #[test]
    fn an_input_is_known_by_its_bytes() {
        let folder = tempfile::tempdir().unwrap();
        let (a, b) = (folder.path().join("a.mp4"), folder.path().join("b.mp4"));
        std::fs::write(&a, "one").unwrap();
        std::fs::write(&b, "one").unwrap();
        assert_eq!(input_key(&a).unwrap(), input_key(&b).unwrap());
        std::fs::write(&b, "two").unwrap();
        assert_ne!(input_key(&a).unwrap(), input_key(&b).unwrap());
    }
}
