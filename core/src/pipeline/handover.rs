//! What of the folder of one reconstruction another machine needs to go on with it: the files of a finished stage, and the
//! state of a training that is not finished. How they travel is the caller's business; what arrives is not believed.
//!
//! A folder is read here while [`reconstruct`](super::reconstruct) works in it: a stage that it has left behind does not
//! change any more, and the state of the training is replaced as a whole, by a rename. What arrives is taken in before it
//! works there.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, Read, Seek};
use std::path::{Component, Path, PathBuf};

use super::files;
use super::keys::StageKeys;
use super::workspace::{CHECKPOINT, Key, Manifest, Workspace, finished_in, remove_if_there};
use crate::error::{Error, ErrorKind, Result};
use crate::files::{rename, sync_folder};
use crate::stage::Stage;
use crate::train::steps_of;

/// Whether `stage` is finished in `folder` under the key that it has here.
pub fn is_finished(folder: &Path, stage: Stage, keys: &StageKeys) -> bool {
    finished_in(folder, stage).is_some_and(|manifest| keys.get(stage) == Some(&manifest.key))
}

/// What a finished stage left.
#[derive(Debug, Clone, PartialEq)]
pub struct FinishedStage {
    /// How it was made, for [`StageArrival::begin`].
    pub manifest: Vec<u8>,
    /// Its files, relative to the folder, and their sizes in bytes.
    pub files: Vec<(PathBuf, u64)>,
}

impl FinishedStage {
    /// Of `stage` in `folder`, if it is finished there.
    ///
    /// # Errors
    /// [`Internal`](ErrorKind::Internal) if its manifest cannot be written as JSON.
    pub fn of(folder: &Path, stage: Stage) -> Result<Option<Self>> {
        let Some(manifest) = finished_in(folder, stage) else { return Ok(None) };
        let text = serde_json::to_vec(&manifest).map_err(|e| {
            Error::new(ErrorKind::Internal, "a manifest cannot be written as JSON").caused_by(e)
        })?;
        Ok(Some(Self { manifest: text, files: manifest.outputs }))
    }

    /// What the file with this number is called on its way, in at most 100 bytes.
    pub fn name(&self, number: usize) -> PathBuf {
        self.files.get(number).map(|(path, _)| name_of(number, path)).unwrap_or_default()
    }
}

/// Longer names have no room in the archive that the files travel in.
const LONGEST_NAME: usize = 100;

/// The path of a file in the folder, or its number where that is too long. No path is a number: all begin with an output.
fn name_of(number: usize, path: &Path) -> PathBuf {
    if path.as_os_str().len() <= LONGEST_NAME { path.to_owned() } else { number.to_string().into() }
}

/// A stage that comes from another machine. Until [`StageArrival::finish`] it does not count as finished.
pub struct StageArrival {
    workspace: Workspace,
    folder: PathBuf,
    stage: Stage,
    manifest: Manifest,
    /// How many of its files are there.
    arrived: usize,
}

impl StageArrival {
    /// Whether a stage that was made as `manifest` says is what `stage` would make here.
    ///
    /// # Errors
    /// [`InvalidFile`](ErrorKind::InvalidFile) for a manifest that cannot be read.
    pub fn fits(stage: Stage, manifest: &[u8], keys: &StageKeys) -> Result<bool> {
        Ok(keys.get(stage) == Some(&read_manifest(stage, manifest)?.key))
    }

    /// Begins to take `stage` into `folder`, made as `manifest` says; nothing if its key is another than that of `keys`: by
    /// another version, of another video, with other options, for another device. What the stage and later ones had left in
    /// the folder is forgotten.
    ///
    /// # Errors
    /// [`InvalidFile`](ErrorKind::InvalidFile) for a manifest that cannot be read or that names files which such a stage does
    /// not make; somebody is at work in the folder; the disk's.
    pub fn begin(folder: &Path, stage: Stage, manifest: &[u8], keys: &StageKeys) -> Result<Option<Self>> {
        let manifest = read_manifest(stage, manifest)?;
        if keys.get(stage) != Some(&manifest.key) {
            return Ok(None);
        }
        if let Some((path, _)) = manifest.outputs.iter().find(|(path, _)| !is_output_of(stage, path)) {
            return Err(odd(stage, &format!("its manifest names {path:?}")));
        }
        let workspace = Workspace::open(folder)?;
        workspace.forget_from(stage)?;
        for output in outputs(stage) {
            remove_if_there(&folder.join(output))?;
        }
        Ok(Some(Self { workspace, folder: folder.to_owned(), stage, manifest, arrived: 0 }))
    }

    /// Writes the next of its files, which must be called as [`FinishedStage::name`] says and have `size` bytes.
    ///
    /// # Errors
    /// [`InvalidFile`](ErrorKind::InvalidFile) for another file than the manifest names there; those of `content`; the disk's.
    pub fn take(&mut self, name: &Path, size: u64, content: &mut dyn Read) -> Result<()> {
        let number = self.arrived;
        let next = self.manifest.outputs.get(number);
        let is_it = |(path, bytes): &&(PathBuf, u64)| name_of(number, path) == name && *bytes == size;
        let Some((path, _)) = next.filter(is_it) else {
            return Err(odd(self.stage, &format!("{name:?} with {size} bytes is not the next of its files")));
        };
        let place = self.folder.join(path);
        if let Some(above) = place.parent() {
            std::fs::create_dir_all(above).map_err(|e| Error::io("create", above, e))?;
        }
        // A name that comes twice fails here, and nothing is followed elsewhere.
        let file = File::create_new(&place).map_err(|e| Error::io("create", &place, e))?;
        copy_exactly(content, &file, size, &place)?;
        self.arrived += 1;
        Ok(())
    }

    /// Makes it a finished stage, durably.
    ///
    /// # Errors
    /// [`InvalidFile`](ErrorKind::InvalidFile) if files are missing; the disk's.
    pub fn finish(self) -> Result<()> {
        if self.arrived != self.manifest.outputs.len() {
            let (came, all) = (self.arrived, self.manifest.outputs.len());
            return Err(odd(self.stage, &format!("only {came} of its {all} files came")));
        }
        // The files are on the disk; their names have to be, too, before the manifest says so.
        let above = self.manifest.outputs.iter().flat_map(|(path, _)| path.ancestors().skip(1));
        for folder in above.map(|folder| self.folder.join(folder)).collect::<BTreeSet<_>>() {
            sync_folder(&folder)?;
        }
        self.workspace.mark(self.stage, &self.manifest)
    }
}

/// The state of a training that is not finished.
#[derive(Debug)]
pub struct TrainingState {
    /// It, open at its beginning. What replaces it has another file.
    pub file: File,
    /// Bytes.
    pub size: u64,
    /// Steps that are done.
    pub step: u32,
    /// The key of the poses that it is trained on.
    pub poses: String,
}

impl TrainingState {
    /// That in `folder`, if there is one.
    ///
    /// # Errors
    /// The disk's.
    pub fn of(folder: &Path) -> Result<Option<Self>> {
        let path = folder.join(CHECKPOINT);
        let mut file = match File::open(&path) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
            opened => opened.map_err(|e| Error::io("open", &path, e))?,
        };
        let (Some(step), Some(poses)) = (steps_of(&mut file), poses_key(folder)) else { return Ok(None) };
        let failed = |e| Error::io("read", &path, e);
        let size = file.metadata().map_err(failed)?.len();
        file.rewind().map_err(failed)?;
        Ok(Some(Self { file, size, step, poses }))
    }
}

/// A state of the training that comes from another machine. Until [`StateArrival::finish`] the one that was there stays.
///
/// Whether it is whole and fits the options is seen when training goes on from it; if not, training begins anew.
pub struct StateArrival {
    workspace: Workspace,
    arrived: PathBuf,
}

impl StateArrival {
    /// Begins to take one into `folder`; nothing if the poses there have another key than `poses`.
    ///
    /// # Errors
    /// Somebody is at work in the folder; the disk's.
    pub fn begin(folder: &Path, poses: &str) -> Result<Option<Self>> {
        if poses_key(folder).as_deref() != Some(poses) {
            return Ok(None);
        }
        let workspace = Workspace::open(folder)?;
        let arrived = workspace.path(&format!("{CHECKPOINT}.arriving"));
        remove_if_there(&arrived)?;
        Ok(Some(Self { workspace, arrived }))
    }

    /// Writes it; it has `size` bytes.
    ///
    /// # Errors
    /// [`InvalidFile`](ErrorKind::InvalidFile) if `content` has fewer bytes or is no such state; its own; the disk's.
    pub fn take(&mut self, size: u64, content: &mut dyn Read) -> Result<()> {
        let file = File::create_new(&self.arrived).map_err(|e| Error::io("create", &self.arrived, e))?;
        copy_exactly(content, &file, size, &self.arrived)?;
        let mut whole = File::open(&self.arrived).map_err(|e| Error::io("open", &self.arrived, e))?;
        match steps_of(&mut whole) {
            Some(_) => Ok(()),
            None => Err(odd(Stage::Train, "it is no state of a training")),
        }
    }

    /// Makes it the state from which training goes on, durably.
    ///
    /// # Errors
    /// If nothing was taken; the disk's.
    pub fn finish(self) -> Result<()> {
        rename(&self.arrived, &self.workspace.path(CHECKPOINT))
    }
}

impl Drop for StateArrival {
    fn drop(&mut self) {
        // What stays is replaced by the next.
        let _ = std::fs::remove_file(&self.arrived);
    }
}

/// The key of the poses in a folder.
fn poses_key(folder: &Path) -> Option<Key> {
    finished_in(folder, Stage::Sfm).map(|manifest| manifest.key)
}

fn read_manifest(stage: Stage, text: &[u8]) -> Result<Manifest> {
    serde_json::from_slice(text).map_err(|e| odd(stage, "its manifest is unreadable").caused_by(e))
}

/// Writes `size` bytes and flushes them to the disk.
fn copy_exactly(content: &mut dyn Read, mut file: &File, size: u64, path: &Path) -> Result<()> {
    let copied = io::copy(&mut content.take(size), &mut file).map_err(|e| Error::io("write", path, e))?;
    if copied != size {
        let what = format!("{} came with {copied} of its {size} bytes", path.display());
        return Err(Error::new(ErrorKind::InvalidFile, what));
    }
    file.sync_all().map_err(|e| Error::io("flush", path, e))
}

/// What a stage may leave in the folder.
fn outputs(stage: Stage) -> &'static [&'static str] {
    match stage {
        Stage::Frames => &[files::FRAMES, files::FRAMES_SHEET],
        Stage::Sfm => &[files::SPARSE, files::UNDISTORTED, files::POSES, files::TAGS],
        Stage::Train => &[files::PLY],
        Stage::Export => &[files::SPZ, files::PREVIEW, files::CAMERA, files::TURNTABLE],
    }
}

/// Whether a path is one that `stage` may have written: below one of its outputs, of names that hide nothing and are one on every
/// system. Frames of pictures are called as those are.
fn is_output_of(stage: Stage, path: &Path) -> bool {
    let plain = |part: Component<'_>| match part {
        Component::Normal(name) => name.to_str().is_some_and(|name| {
            !name.starts_with('.') && !name.chars().any(|c| c.is_control() || matches!(c, '/' | '\\' | ':'))
        }),
        _ => false,
    };
    path.components().all(plain) && outputs(stage).iter().any(|output| path.starts_with(output))
}

fn odd(stage: Stage, what: &str) -> Error {
    Error::new(ErrorKind::InvalidFile, format!("what another machine left of {stage}: {what}"))
}

/// Marks a stage as finished by `outputs`, as if the pipeline had done it.
#[cfg(test)]
pub(crate) fn finish_stage(folder: &Path, stage: Stage, keys: &StageKeys, outputs: &[&str]) {
    use super::workspace::StageCost;
    let workspace = Workspace::open(folder).unwrap();
    workspace.forget_from(stage).unwrap();
    let key = keys.get(stage).unwrap().clone();
    workspace.finish(stage, key, outputs, serde_json::Value::Null, StageCost::default()).unwrap();
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pipeline::ReconstructionOptions;
    use crate::raster::DeviceChoice;

    fn keys(folder: &Path, video: &str) -> StageKeys {
        let path = folder.join("video.mp4");
        std::fs::write(&path, video).unwrap();
        let options = ReconstructionOptions { device: DeviceChoice::Cpu, ..ReconstructionOptions::default() };
        StageKeys::of(&path, &options).unwrap()
    }

    fn folder() -> (tempfile::TempDir, PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let run = folder.path().join("run");
        std::fs::create_dir_all(run.join("frames")).unwrap();
        std::fs::write(run.join("frames/frame_000000.jpg"), "one").unwrap();
        std::fs::write(run.join("frames.jpg"), "sheet").unwrap();
        (folder, run)
    }

    #[test]
    fn a_stage_counts_there_once_all_of_it_has_come() {
        let (here, run) = folder();
        let keys = keys(here.path(), "a video");
        assert_eq!(FinishedStage::of(&run, Stage::Frames).unwrap(), None);
        finish_stage(&run, Stage::Frames, &keys, &["frames", "frames.jpg"]);
        let left = FinishedStage::of(&run, Stage::Frames).unwrap().unwrap();
        assert!(is_finished(&run, Stage::Frames, &keys) && !is_finished(&run, Stage::Sfm, &keys));

        // There an earlier attempt left other frames, and what it made of them.
        let (_there, other) = folder();
        std::fs::write(other.join("frames/frame_000009.jpg"), "old").unwrap();
        finish_stage(&other, Stage::Sfm, &keys, &[]);
        let begin = || StageArrival::begin(&other, Stage::Frames, &left.manifest, &keys).unwrap().unwrap();
        let mut arrival = begin();
        assert!(!is_finished(&other, Stage::Sfm, &keys));
        let refused = |arrival: &mut StageArrival, path: &str, size, bytes: &str| {
            let error = arrival.take(path.as_ref(), size, &mut bytes.as_bytes()).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidFile, "{error}");
        };
        refused(&mut arrival, "frames/frame_000001.jpg", 3, "one");
        refused(&mut arrival, "frames/frame_000000.jpg", 4, "ones");
        refused(&mut arrival, "frames/frame_000000.jpg", 3, "on");
        assert!(arrival.finish().is_err());
        assert!(!is_finished(&other, Stage::Frames, &keys));
        let mut arrival = begin();
        arrival.take("frames/frame_000000.jpg".as_ref(), 3, &mut &b"one"[..]).unwrap();
        arrival.take("frames.jpg".as_ref(), 5, &mut &b"sheet"[..]).unwrap();
        refused(&mut arrival, "frames.jpg", 5, "sheet");
        arrival.finish().unwrap();
        assert!(is_finished(&other, Stage::Frames, &keys));
        assert!(!other.join("frames/frame_000009.jpg").exists());
        assert_eq!(FinishedStage::of(&other, Stage::Frames).unwrap().unwrap(), left);
    }

    #[test]
    fn pictures_keep_their_names_however_long_they_are() {
        let (here, run) = folder();
        let keys = keys(here.path(), "pictures");
        let long = "W".repeat(150);
        for name in ["IMG_2001 (1).jpg", "Küche~2.jpg", &format!("{long}.jpg")] {
            std::fs::write(run.join("frames").join(name), name).unwrap();
        }
        finish_stage(&run, Stage::Frames, &keys, &["frames"]);
        let left = FinishedStage::of(&run, Stage::Frames).unwrap().unwrap();
        let (_there, other) = folder();
        let mut arrival = StageArrival::begin(&other, Stage::Frames, &left.manifest, &keys).unwrap().unwrap();
        for (number, (path, size)) in left.files.iter().enumerate() {
            let (name, bytes) = (left.name(number), std::fs::read(run.join(path)).unwrap());
            assert!(name.as_os_str().len() <= LONGEST_NAME);
            arrival.take(&name, *size, &mut &bytes[..]).unwrap();
        }
        arrival.finish().unwrap();
        assert_eq!(FinishedStage::of(&other, Stage::Frames).unwrap().unwrap(), left);
    }

    #[test]
    fn what_was_made_of_something_else_or_lies_elsewhere_is_not_taken() {
        let (here, run) = folder();
        let ours = keys(here.path(), "a video");
        finish_stage(&run, Stage::Frames, &ours, &["frames", "frames.jpg"]);
        let manifest = FinishedStage::of(&run, Stage::Frames).unwrap().unwrap().manifest;
        let (there, other) = folder();
        let others = keys(there.path(), "another video");
        assert!(StageArrival::begin(&other, Stage::Frames, &manifest, &others).unwrap().is_none());
        for path in [
            "../frames/a.jpg",
            "/frames/a.jpg",
            "frames/../../a.jpg",
            "frames/.hidden",
            "sparse/a",
            "frames/a:b",
            "frames/a\\\\b",
            "frames/a\\nb",
            ".reconstruct/lock",
            "framesx",
        ] {
            let text = String::from_utf8(manifest.clone()).unwrap().replace("frames.jpg", path);
            let error = StageArrival::begin(&other, Stage::Frames, text.as_bytes(), &ours).err().unwrap();
            assert_eq!(error.kind(), ErrorKind::InvalidFile, "{path}");
        }
        assert!(StageArrival::begin(&other, Stage::Frames, b"{", &ours).is_err());
        assert!(other.join("frames.jpg").exists(), "nothing was removed for it");
    }

    #[test]
    fn a_state_of_the_training_goes_where_the_same_poses_are() {
        let (here, run) = folder();
        let keys = keys(here.path(), "a video");
        let header = br#"{"options":"","dataset":"","progress":{"step":17,"initial_count":5,"seconds":1.5},
            "splats":0,"sh_degree":0,"exposures":0,"statistics":false}"#;
        let mut bytes = b"LRTRAIN\n\x01\0\0\0".to_vec();
        bytes.extend((header.len() as u32).to_le_bytes());
        bytes.extend(header);
        let size = bytes.len() as u64;
        assert!(StateArrival::begin(&run, "no such key").unwrap().is_none());
        finish_stage(&run, Stage::Sfm, &keys, &[]);
        let poses = keys.get(Stage::Sfm).unwrap();
        for bad in [&bytes[1..], &vec![7; bytes.len()]] {
            let mut arrival = StateArrival::begin(&run, poses).unwrap().unwrap();
            assert!(arrival.take(size, &mut &bad[..]).is_err());
        }
        let mut arrival = StateArrival::begin(&run, poses).unwrap().unwrap();
        arrival.take(size, &mut &bytes[..]).unwrap();
        assert!(TrainingState::of(&run).unwrap().is_none());
        arrival.finish().unwrap();
        let state = TrainingState::of(&run).unwrap().unwrap();
        assert_eq!((state.step, state.size, &state.poses), (17, size, poses));
    }
}
