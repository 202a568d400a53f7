//! What the commands that remove the background have in common.

use std::path::{Path, PathBuf};

use clap::Args;
use libreconstruct::background::{MASKS, MaskOptions, MaskReport, ObjectPoint, PosesFrom};

/// Where masks come from.
#[derive(Args)]
pub(crate) struct MaskArguments {
    /// Remove the background: only the object that is filmed is reconstructed
    #[arg(long)]
    pub(crate) remove_background: bool,
    /// The file of the mask model (ONNX, as U²-Net) [default: what `make mask-model` installed, or
    /// LIBRECONSTRUCT_MASK_MODEL]
    #[arg(long, value_name = "PATH")]
    pub(crate) mask_model: Option<PathBuf>,
    /// Remove the background by masks of your own: a folder with a PNG named like each picture, white where the object is
    #[arg(long, value_name = "DIR", conflicts_with = "mask_model")]
    pub(crate) mask_dir: Option<PathBuf>,
    /// Remove the background, and say where the object is: a pixel of the first frame, or of the one that is named
    /// (`frame_000012.jpg`, or 12). For where something else catches the eye more
    #[arg(long = "object", value_name = "X,Y[,FRAME]", conflicts_with = "mask_dir")]
    pub(crate) object_at: Option<ObjectPoint>,
    /// Remove the background, but keep a disc of the ground under the object, so many times as wide as the object: 1.5, say
    #[arg(long, value_name = "TIMES", conflicts_with = "mask_dir")]
    pub(crate) keep_floor: Option<f64>,
}

impl MaskArguments {
    /// How to make masks of the object, if the background is to be removed or masks were given.
    pub(crate) fn options(&self) -> Option<MaskOptions> {
        let options = MaskOptions {
            model: self.mask_model.clone(),
            masks: self.mask_dir.clone(),
            object_at: self.object_at.clone(),
            keep_floor: self.keep_floor,
        };
        options.wanted(self.remove_background)
    }
}

/// Masks of the pictures in `dataset` that are there already: in the folder that is `given`, else beside the pictures.
pub(crate) fn masks_of(dataset: &Path, given: Option<&Path>) -> Option<PathBuf> {
    let beside = || Some(dataset.join(MASKS)).filter(|masks| masks.is_dir());
    given.map(Path::to_owned).or_else(beside)
}

/// The figures of the masks, for people.
pub(crate) fn mask_summary(report: &MaskReport) -> String {
    if report.masks == 0 {
        return "not found: the background stays".into();
    }
    format!(
        "{} masks, {} without object, {:.0} % of a picture; poses from {}",
        report.masks,
        report.empty,
        100.0 * report.coverage,
        match report.poses_from {
            PosesFrom::Object => "the object",
            PosesFrom::Frame => "whole frames",
        }
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn masks_that_are_given_come_before_those_beside_the_pictures() {
        let dataset = tempfile::tempdir().unwrap();
        assert_eq!(masks_of(dataset.path(), None), None);
        let (beside, given) = (dataset.path().join("masks"), Path::new("drawn"));
        std::fs::create_dir(&beside).unwrap();
        assert_eq!(masks_of(dataset.path(), None), Some(beside));
        assert_eq!(masks_of(dataset.path(), Some(given)).as_deref(), Some(given));
    }
}
