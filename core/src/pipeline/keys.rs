//! The keys of the stages of one reconstruction: known before any of them has run.

use std::path::Path;

use super::options::ReconstructionOptions;
use super::workspace::{Key, input_key, stage_key};
use crate::background::find_model;
use crate::error::Result;
use crate::raster;
use crate::stage::Stage;

/// What the keys are made of, beside the input.
pub(super) struct Keyring<'a> {
    options: &'a ReconstructionOptions,
    /// What training runs on.
    device: String,
}

impl<'a> Keyring<'a> {
    /// # Errors
    /// If there is no such device.
    pub(super) fn new(options: &'a ReconstructionOptions) -> Result<Self> {
        Ok(Self { options, device: raster::open(&options.device)?.name() })
    }

    /// Whether training runs on a graphics adapter.
    pub(super) fn is_on_gpu(&self) -> bool {
        self.device.starts_with("gpu")
    }

    pub(super) fn frames(&self, source: &Key) -> Result<Key> {
        stage_key(Stage::Frames, &[source], &self.options.frame_options(self.is_on_gpu()))
    }

    pub(super) fn sfm(&self, frames: &Key) -> Result<Key> {
        let options = self.options.poses_options();
        let mut inputs = vec![frames.clone()];
        if let Some(removal) = &options.background {
            // The network that is installed may be another one than yesterday.
            inputs.push(match &removal.masks {
                Some(masks) => input_key(masks)?,
                None => input_key(&find_model(removal.model.as_deref())?)?,
            });
        }
        stage_key(Stage::Sfm, &inputs.iter().collect::<Vec<_>>(), &options)
    }

    pub(super) fn train(&self, sfm: &Key) -> Result<Key> {
        // The device belongs to the key: results are the same on one device, not across them.
        stage_key(Stage::Train, &[sfm], &(&self.options.train_options(), &self.device))
    }
}

/// The keys that the stages up to training have in one reconstruction on this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StageKeys {
    frames: Key,
    sfm: Key,
    train: Key,
}

impl StageKeys {
    /// For `input` under `options`. Reads all of the input, as [`reconstruct`](super::reconstruct) does when it begins.
    ///
    /// # Errors
    /// Options out of range, a device or an input that is not there.
    pub fn of(input: &Path, options: &ReconstructionOptions) -> Result<Self> {
        options.check()?;
        let keyring = Keyring::new(options)?;
        let frames = keyring.frames(&input_key(input)?)?;
        let sfm = keyring.sfm(&frames)?;
        let train = keyring.train(&sfm)?;
        Ok(Self { frames, sfm, train })
    }

    /// Keys that are all `key`, for trying what is read under them.
    #[cfg(feature = "service")]
    pub(crate) fn all(key: &str) -> Self {
        Self { frames: key.to_owned(), sfm: key.to_owned(), train: key.to_owned() }
    }

    /// The key of a stage that comes before the files are made; nothing for that one, which is quickly done.
    pub(super) fn get(&self, stage: Stage) -> Option<&Key> {
        match stage {
            Stage::Frames => Some(&self.frames),
            Stage::Sfm => Some(&self.sfm),
            Stage::Train => Some(&self.train),
            Stage::Export => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::raster::DeviceChoice;

    #[test]
    fn a_scene_whose_floaters_are_left_is_another_one() {
        let usual = ReconstructionOptions { device: DeviceChoice::Cpu, ..ReconstructionOptions::default() };
        let left = ReconstructionOptions { clean: false, ..usual.clone() };
        let poses = Key::from("some poses");
        let key = |options| Keyring::new(options).unwrap().train(&poses).unwrap();
        assert_eq!(key(&usual), key(&usual));
        assert_ne!(key(&usual), key(&left));
    }

    #[test]
    fn another_focal_length_means_other_poses_of_the_same_frames() {
        let usual = ReconstructionOptions { device: DeviceChoice::Cpu, ..ReconstructionOptions::default() };
        let told = ReconstructionOptions { focal: Some(800.0), ..usual.clone() };
        let input = Key::from("some input");
        let keys = |options| {
            let keyring = Keyring::new(options).unwrap();
            let frames = keyring.frames(&input).unwrap();
            let poses = keyring.sfm(&frames).unwrap();
            (frames, poses)
        };
        let (of_usual, of_told) = (keys(&usual), keys(&told));
        assert_eq!(of_usual.0, of_told.0);
        assert_ne!(of_usual.1, of_told.1);
    }
}
