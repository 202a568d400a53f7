//! `reconstruct train`: fit the Gaussians.

use std::path::PathBuf;

use clap::Args;
use libreconstruct::background::{FinishedScene, ObjectOutline, mask_dataset};
use libreconstruct::raster::{DeviceChoice, open};
use libreconstruct::splats::SceneFormat;
use libreconstruct::train::{Dataset, TrainOptions, Trainer};
use libreconstruct::{Error, Result};

use super::{MaskArguments, mask_summary, masks_of};
use crate::context::Context;

/// Fit a Gaussian scene to undistorted frames
///
/// Takes a folder with images/ and sparse/ (a COLMAP model of PINHOLE cameras), as `reconstruct sfm` writes in
/// undistorted/ and COLMAP's image_undistorter does. Writes the scene; beside it SCENE.checkpoint, from which the same
/// command continues until it is done. A file of that name that is no checkpoint is an error, and stays.
///
/// Where the folder has masks/ (as `reconstruct sfm --remove-background` leaves it), or masks are asked for here, only the
/// object is trained, unless --no-masks is given. Those that are made here go beside the scene, into SCENE.masks/.
#[derive(Args)]
pub(crate) struct Arguments {
    /// Folder with images/ and sparse/
    dataset: PathBuf,
    /// The scene to write (.ply, .spz, .glb or .sog)
    #[arg(short, long, value_name = "SCENE")]
    output: PathBuf,
    /// Time for it: 5m, 90s, 1h30m. There are fewer steps, fewer Gaussians and smaller pictures if this machine would take longer
    #[arg(long, value_name = "TIME", value_parser = super::run::time_budget)]
    time_budget: Option<u32>,
    /// Training steps, 1 to 200,000
    #[arg(long, value_name = "N", default_value_t = 25_000)]
    training_num_steps: u32,
    /// Largest number of Gaussians, 1,000 to 10,000,000
    #[arg(long, value_name = "N", default_value_t = 1_000_000)]
    training_max_num_gaussians: u32,
    /// Degree of the spherical harmonics, 0 to 3
    #[arg(long, value_name = "N", default_value_t = 3)]
    sh_degree: u32,
    /// Long side of the training pictures in pixels at most
    #[arg(long, value_name = "PIXELS", default_value_t = 1600)]
    max_resolution: u32,
    /// Hold out every Nth image, from the first, and score the scene on them
    #[arg(long, value_name = "N")]
    test_every: Option<u32>,
    /// Leave Gaussians that hang in free space where they are (on a graphics device they are left in any case)
    #[arg(long)]
    no_clean: bool,
    #[command(flatten)]
    masks: MaskArguments,
    /// Train on whole pictures, also where the folder has masks/
    #[arg(long, conflicts_with_all = ["remove_background", "mask_model", "mask_dir", "object_at", "keep_floor"])]
    no_masks: bool,
    /// Fixes every random choice
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// auto, cpu, gpu, or part of a graphics adapter's name
    #[arg(long, default_value = "auto")]
    device: DeviceChoice,
}

impl Arguments {
    pub(crate) fn run(&self, context: &Context<'_>) -> Result<()> {
        let control = context.control;
        let options = TrainOptions {
            time_budget_seconds: self.time_budget,
            training_num_steps: self.training_num_steps,
            training_max_num_gaussians: self.training_max_num_gaussians,
            sh_degree: self.sh_degree,
            max_resolution: Some(self.max_resolution),
            test_every: self.test_every,
            seed: self.seed,
            clean: !self.no_clean,
            ..TrainOptions::default()
        };
        options.validate()?;
        // What cannot be written in the end is said before the work.
        SceneFormat::of(&self.output)?;
        if let Some(folder) = self.output.parent() {
            std::fs::create_dir_all(folder).map_err(|e| Error::io("create", folder, e))?;
        }
        let masks = self.masks(context)?;
        if let Some(masks) = masks.as_ref().filter(|_| !context.global.json && !context.global.quiet) {
            crate::ui::say(&format!("only the object of {} is trained", masks.display()));
        }
        let mut dataset =
            Dataset::open(&self.dataset.join("sparse"), &self.dataset.join("images"), self.test_every)?;
        if let Some(masks) = &masks {
            dataset = dataset.with_masks(masks, control)?;
        }
        let outline = if masks.is_some() { ObjectOutline::of(&dataset, control)? } else { None };
        let checkpoint = self.output.with_extension("checkpoint");
        let mut trainer = Trainer::open(dataset, options, open(&self.device)?, &checkpoint, control)?;
        let report = trainer.run(control, Some(&checkpoint))?;
        let device = trainer.device();
        let FinishedScene { splats, evaluation, .. } = FinishedScene::of(trainer, outline.as_ref(), control)?;
        splats.write(&self.output)?;
        if checkpoint.exists() {
            std::fs::remove_file(&checkpoint).map_err(|e| Error::io("remove", &checkpoint, e))?;
        }
        let score = evaluation
            .as_ref()
            .map(|e| {
                format!("\nheld-out PSNR {:.2} dB, SSIM {:.4}, at {} pixels", e.psnr, e.ssim, e.longest_side)
            })
            .unwrap_or_default();
        let text = format!(
            "{} splats after {} steps on {}, {:.1} steps/s{score}\nscene {}",
            splats.len(),
            report.steps,
            device,
            report.steps_per_second,
            self.output.display()
        );
        let masks = masks.map(|masks| masks.display().to_string());
        let value = serde_json::json!({
            "device": device, "masks": masks, "training": report, "evaluation": evaluation,
        });
        context.result(&value, &text);
        Ok(())
    }

    /// The folder of the object's masks, if there is one or it is asked for.
    fn masks(&self, context: &Context<'_>) -> Result<Option<PathBuf>> {
        if self.no_masks {
            return Ok(None);
        }
        // What is asked for by pointing, or with a floor, is not what was made before.
        if self.masks.object_at.is_none()
            && self.masks.keep_floor.is_none()
            && let Some(there) = masks_of(&self.dataset, self.masks.mask_dir.as_deref())
        {
            return Ok(Some(there));
        }
        let Some(options) = self.masks.options() else { return Ok(None) };
        options.check()?;
        let made = self.output.with_extension("masks");
        let sheet = self.output.with_extension("masks.jpg");
        let report = mask_dataset(&self.dataset, &options, &made, &sheet, context.control)?;
        if !context.global.json {
            crate::ui::say(&format!("object {}", mask_summary(&report)));
        }
        Ok((report.masks > 0).then_some(made))
    }
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
    fn masks_beside_the_pictures_are_taken_unless_that_is_refused() {
        let dataset = tempfile::tempdir().unwrap();
        std::fs::create_dir(dataset.path().join("masks")).unwrap();
        let control = libreconstruct::Control::new();
        let global = crate::context::Global { json: true, quiet: true, threads: None };
        let context = Context { global, control: &control };
        let masks = |more: &[&str]| {
            let words = ["train", dataset.path().to_str().unwrap(), "-o", "scene.ply"];
            let parsed = Command::try_parse_from(words.iter().chain(more));
            parsed.map(|command| command.arguments.masks(&context).unwrap()).ok()
        };
        assert_eq!(masks(&[]).unwrap(), Some(dataset.path().join("masks")));
        assert_eq!(masks(&["--mask-dir", "drawn"]).unwrap(), Some(PathBuf::from("drawn")));
        assert_eq!(masks(&["--no-masks"]).unwrap(), None);
        assert_eq!(masks(&["--no-masks", "--mask-dir", "drawn"]), None, "they contradict each other");
        assert_eq!(masks(&["--no-masks", "--object", "3,4"]), None, "they contradict each other");
    }
}
