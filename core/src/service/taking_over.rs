//! Before a worker begins with a job, it takes what another machine stored of it and its own workspace lacks.
//!
//! What was stored counts only if its key is the one that the stage has here; it costs nothing but time if it does not, or if it
//! cannot be used for any other reason: the stage is then done again.

use std::io::{self, Read};
use std::path::Path;

use super::Service;
use super::archive::ArchiveReader;
use crate::control::Control;
use crate::error::{Error, ErrorKind, Result};
use crate::job::JobId;
use crate::pipeline::{
    ReconstructionOptions, StageArrival, StageKeys, StateArrival, TrainingState, is_finished,
};
use crate::stage::Stage;
use crate::storage::{BlobKey, Reached};

/// The stages that are stored: the last one is quickly done, and what it makes is stored by the publication.
pub(super) const STAGES: [Stage; 3] = [Stage::Frames, Stage::Sfm, Stage::Train];

/// What is stored of a job and fits.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct TakenOver {
    /// Finished stages.
    pub(super) stages: Vec<Stage>,
    /// A state of the training, and its steps.
    pub(super) state: Option<(BlobKey, u32)>,
}

/// A job that is taken over.
pub(super) struct Takeover<'a> {
    pub(super) job: JobId,
    /// Where it is worked on.
    pub(super) folder: &'a Path,
    pub(super) control: &'a Control,
    /// Writes a line into its log.
    pub(super) log: &'a (dyn Fn(&str) + Sync),
}

impl Service {
    /// Takes what is stored of a job, in the order of the stages, up to the first that is neither there nor here. The video is
    /// read once more for it, but only if something is stored.
    ///
    /// # Errors
    /// [`ErrorKind::Cancelled`] only: all else is logged, and what it concerns is done again.
    pub(super) fn take_over(
        &self,
        takeover: &Takeover<'_>,
        video: &Path,
        options: &ReconstructionOptions,
    ) -> Result<TakenOver> {
        let mut taken = TakenOver::default();
        if let Err(error) = self.take_all(takeover, video, options, &mut taken) {
            takeover.ignore("what other machines stored", &error)?;
        }
        Ok(taken)
    }

    fn take_all(
        &self,
        takeover: &Takeover<'_>,
        video: &Path,
        options: &ReconstructionOptions,
        taken: &mut TakenOver,
    ) -> Result<()> {
        let stored = self.inner.storage.checkpoints(takeover.job)?;
        if stored.is_empty() {
            return Ok(());
        }
        let keys = StageKeys::of(video, options)?;
        self.take_stages(takeover, &stored, &keys, taken)?;
        if is_finished(takeover.folder, Stage::Train, &keys) {
            return Ok(());
        }
        self.take_state(takeover, stored, taken)
    }

    fn take_stages(
        &self,
        takeover: &Takeover<'_>,
        stored: &[(BlobKey, u64)],
        keys: &StageKeys,
        taken: &mut TakenOver,
    ) -> Result<()> {
        for stage in STAGES {
            let is_of_stage = |key: &BlobKey| matches!(key, BlobKey::Checkpoint { reached: Reached::Finished(of), .. } if *of == stage);
            for (key, size) in stored.iter().filter(|(key, _)| is_of_stage(key)) {
                match self.take_stage(takeover, key, *size, stage, keys) {
                    Ok(true) => {
                        taken.stages.push(stage);
                        break;
                    }
                    Ok(false) => {}
                    Err(error) => takeover.ignore(&key.to_string(), &error)?,
                }
            }
            if !is_finished(takeover.folder, stage, keys) {
                break;
            }
        }
        Ok(())
    }

    /// Takes the stage that is stored under `key`, unless it is finished here; says whether it fits.
    fn take_stage(
        &self,
        takeover: &Takeover<'_>,
        key: &BlobKey,
        size: u64,
        stage: Stage,
        keys: &StageKeys,
    ) -> Result<bool> {
        let blob = Watched { inner: self.inner.storage.open(key)?.file, control: takeover.control };
        let mut tar = tar::Archive::new(blob);
        let mut archive = ArchiveReader::begin(&mut tar)?;
        let manifest = archive.about()?;
        if is_finished(takeover.folder, stage, keys) {
            return StageArrival::fits(stage, &manifest, keys);
        }
        self.has_space_to_take(size)?;
        let Some(mut arrival) = StageArrival::begin(takeover.folder, stage, &manifest, keys)? else {
            return Ok(false);
        };
        while archive.next(&mut |path, size, content| arrival.take(path, size, content))? {}
        arrival.finish()?;
        (takeover.log)(&format!("the stage {stage} was done on another machine ({size} bytes)"));
        Ok(true)
    }

    /// Takes the newest state of the training that fits the poses, unless there is a newer one here.
    fn take_state(
        &self,
        takeover: &Takeover<'_>,
        stored: Vec<(BlobKey, u64)>,
        taken: &mut TakenOver,
    ) -> Result<()> {
        let here = TrainingState::of(takeover.folder)?.map_or(0, |state| state.step);
        let step_of = |key: &BlobKey| match key {
            BlobKey::Checkpoint { reached: Reached::Training { step }, .. } => Some(*step),
            _ => None,
        };
        let mut states: Vec<(u32, BlobKey, u64)> =
            stored.into_iter().filter_map(|(key, size)| Some((step_of(&key)?, key, size))).collect();
        states.sort_by(|a, b| b.cmp(a));
        for (step, key, size) in states.into_iter().filter(|(step, ..)| *step > here) {
            match self.take_one_state(takeover, &key, size) {
                Ok(true) => {
                    (takeover.log)(&format!("training goes on after {step} steps of another machine"));
                    taken.state = Some((key, step));
                    break;
                }
                Ok(false) => {}
                Err(error) => takeover.ignore(&key.to_string(), &error)?,
            }
        }
        Ok(())
    }

    fn take_one_state(&self, takeover: &Takeover<'_>, key: &BlobKey, size: u64) -> Result<bool> {
        let blob = Watched { inner: self.inner.storage.open(key)?.file, control: takeover.control };
        let mut tar = tar::Archive::new(blob);
        let mut archive = ArchiveReader::begin(&mut tar)?;
        let poses = archive.about()?;
        // What is no text is no key.
        let poses = String::from_utf8(poses).unwrap_or_default();
        self.has_space_to_take(size)?;
        let Some(mut arrival) = StateArrival::begin(takeover.folder, &poses)? else { return Ok(false) };
        while archive.next(&mut |_, size, content| arrival.take(size, content))? {}
        arrival.finish()?;
        Ok(true)
    }

    /// # Errors
    /// [`ErrorKind::DiskFull`] if so many bytes are too many for the disk on which the work is done.
    fn has_space_to_take(&self, size: u64) -> Result<()> {
        match self.inner.workspaces.free_space()? {
            Some(free) if free < self.inner.options.min_free_bytes.saturating_add(size) => {
                Err(Error::new(ErrorKind::DiskFull, format!("{free} bytes are free, {size} are needed")))
            }
            _ => Ok(()),
        }
    }
}

impl Takeover<'_> {
    /// Notes why `what` is not used.
    ///
    /// # Errors
    /// [`ErrorKind::Cancelled`] if that is why.
    fn ignore(&self, what: &str, error: &Error) -> Result<()> {
        self.control.check()?;
        log::warn!("job {}: {what} is not used: {error:?}", self.job);
        (self.log)(&format!("{what} is not used: {}", error.kind().slug()));
        Ok(())
    }
}

/// A reader that ends when the work is cancelled.
struct Watched<'a, R> {
    inner: R,
    control: &'a Control,
}

impl<R: Read> Read for Watched<'_, R> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        self.control.check().map_err(io::Error::other)?;
        self.inner.read(bytes)
    }
}
