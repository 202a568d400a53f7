//! `reconstruct eval`: score a scene.

use std::path::PathBuf;

use clap::Args;
use libreconstruct::Result;
use libreconstruct::pipeline::files;
use libreconstruct::raster::{DeviceChoice, open};
use libreconstruct::splats::Splats;
use libreconstruct::train::{Dataset, Evaluation, evaluate_splats};

use super::masks_of;
use crate::context::Context;

/// Long side of the pictures that are scored at most, where nothing says another: that of `reconstruct train`.
const SIDE: u32 = 1600;

/// Score a scene on held-out pictures (PSNR, SSIM)
///
/// At the size at which `reconstruct train` and `run` scored it, which they say, and with the masks with which it was trained, the
/// scores are theirs. Where the folder has masks/, or others are given, only the object counts, over black, in the pictures that show
/// it. Of a scene for which `train` made masks of its own they are in SCENE.masks/.
#[derive(Args)]
pub(crate) struct Arguments {
    /// The scene (.ply, .spz, .glb or .sog)
    scene: PathBuf,
    /// Folder with images/ and sparse/ (PINHOLE cameras)
    dataset: PathBuf,
    /// Score every Nth image, from the first; 1 = all of them
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..))]
    test_every: u32,
    /// Long side of the pictures in pixels at most [default: that at which `run` scored the scene, if its report.json is beside it, else
    /// 1600]
    #[arg(long, value_name = "PIXELS")]
    max_resolution: Option<u32>,
    /// Score only the object of these masks: a folder with a PNG named like each picture, white where the object is [default: masks/
    /// of the folder, if it is there]
    #[arg(long, value_name = "DIR")]
    mask_dir: Option<PathBuf>,
    /// Score whole pictures, also where the folder has masks/
    #[arg(long, conflicts_with = "mask_dir")]
    no_masks: bool,
    /// auto, cpu, gpu, or part of a graphics adapter's name
    #[arg(long, default_value = "auto")]
    device: DeviceChoice,
}

impl Arguments {
    pub(crate) fn run(&self, context: &Context<'_>) -> Result<()> {
        let splats = Splats::read(&self.scene)?;
        let (sparse, images) = (self.dataset.join("sparse"), self.dataset.join("images"));
        let mut dataset = Dataset::open_to_score(&sparse, &images, self.test_every)?;
        let masks = self.masks();
        if let Some(masks) = &masks {
            dataset = dataset.with_masks(masks, context.control)?;
        }
        let mut rasteriser = open(&self.device)?;
        let evaluation =
            evaluate_splats(&splats, &dataset, Some(self.side()), rasteriser.as_mut(), context.control)?;
        let count = evaluation.views.len();
        let of = match &masks {
            Some(masks) => format!("the object of {} in {count} pictures", masks.display()),
            None => format!("{count} whole pictures"),
        };
        let mut text = format!(
            "PSNR {:.2} dB, SSIM {:.4} over {of}, at {} pixels",
            evaluation.psnr, evaluation.ssim, evaluation.longest_side
        );
        for view in &evaluation.views {
            text += &format!("\n  {:<24} {:.2} dB  {:.4}", view.name, view.psnr, view.ssim);
        }
        let masks = masks.map(|masks| masks.display().to_string());
        context.result(&Scored { evaluation: &evaluation, masks }, &text);
        Ok(())
    }

    /// Long side of the pictures that are scored at most.
    fn side(&self) -> u32 {
        self.max_resolution.or_else(|| self.reported_side()).unwrap_or(SIDE)
    }

    /// The side at which the run that made the scene scored it. Without a report, or with one that does not say it, nobody knows.
    fn reported_side(&self) -> Option<u32> {
        let report = std::fs::read(self.scene.with_file_name(files::REPORT)).ok()?;
        let report: serde_json::Value = serde_json::from_slice(&report).ok()?;
        let side = u32::try_from(report["train"]["evaluation"]["longest_side"].as_u64()?).ok()?;
        (side > 0).then_some(side)
    }

    /// The folder of the masks by which the scene is scored, as `reconstruct train` takes it.
    fn masks(&self) -> Option<PathBuf> {
        if self.no_masks { None } else { masks_of(&self.dataset, self.mask_dir.as_deref()) }
    }
}

/// The result, for machines.
#[derive(serde::Serialize)]
struct Scored<'a> {
    #[serde(flatten)]
    evaluation: &'a Evaluation,
    /// The folder of the masks, if only the object was scored.
    masks: Option<String>,
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Command {
        #[command(flatten)]
        arguments: Arguments,
    }

    #[test]
    fn pictures_are_scored_at_the_size_of_the_run_that_made_the_scene() {
        let folder = tempfile::tempdir().unwrap();
        let side = |more: &[&str]| {
            let scene = folder.path().join("scene.spz");
            let words = ["eval", scene.to_str().unwrap(), "garden"];
            Command::try_parse_from(words.iter().chain(more)).unwrap().arguments.side()
        };
        assert_eq!(side(&[]), 1600);
        for (report, expected) in [
            ("no report", 1600),
            (r#"{"train": {"evaluation": null}}"#, 1600),
            (r#"{"train": {"evaluation": {"psnr": 20.0}}}"#, 1600),
            (r#"{"train": {"evaluation": {"longest_side": 0}}}"#, 1600),
            (r#"{"train": {"evaluation": {"longest_side": 480}}}"#, 480),
        ] {
            std::fs::write(folder.path().join(files::REPORT), report).unwrap();
            assert_eq!(side(&[]), expected, "{report}");
            assert_eq!(side(&["--max-resolution", "60"]), 60);
        }
    }

    #[test]
    fn the_masks_of_the_training_are_taken_unless_that_is_refused() {
        let dataset = tempfile::tempdir().unwrap();
        let masks = |more: &[&str]| {
            let words = ["eval", "scene.ply", dataset.path().to_str().unwrap()];
            Command::try_parse_from(words.iter().chain(more)).map(|command| command.arguments.masks()).ok()
        };
        assert_eq!(masks(&[]).unwrap(), None);
        std::fs::create_dir(dataset.path().join("masks")).unwrap();
        assert_eq!(masks(&[]).unwrap(), Some(dataset.path().join("masks")));
        assert_eq!(masks(&["--no-masks"]).unwrap(), None);
        assert_eq!(masks(&["--mask-dir", "drawn"]).unwrap(), Some(PathBuf::from("drawn")));
        assert_eq!(masks(&["--no-masks", "--mask-dir", "drawn"]), None, "they contradict each other");
        assert!(masks(&["--test-every", "1"]).is_some() && masks(&["--test-every", "0"]).is_none());
    }
}
