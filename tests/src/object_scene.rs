//! What masks are for: a scene of the object alone, as good as the object is in a scene of everything.

use std::path::Path;

use image::{GrayImage, RgbImage};
use libreconstruct::background::ObjectOutline;
use libreconstruct::camera::{Image, SparseModel};
use libreconstruct::masks::{find_mask, is_object, read_mask};
use libreconstruct::raster::{DeviceChoice, open};
use libreconstruct::train::{Dataset, TrainOptions, Trainer, psnr};
use libreconstruct::{Control, Error, ErrorKind, Result};
use rayon::prelude::*;

use crate::masks::{KnownMask, opacity_outside};

/// Every so many views one is held out.
const TEST_EVERY: u32 = 8;
/// Pixels by which a splat may be beside a known mask.
const MARGIN: u32 = 4;

/// A scene of the object alone beside one of everything, both trained on the same views and as long.
#[derive(Debug, Clone)]
pub struct ObjectScene {
    /// Part (0 to 1) of the opacity of the object's scene that is beside the object.
    pub opacity_outside: f64,
    /// PSNR of the object's pixels in held-out views.
    pub psnr: f64,
    /// The same of the scene of everything.
    pub psnr_of_everything: f64,
}

impl ObjectScene {
    /// Trains both on a dataset (`images/`, `sparse/`, the known masks in `masks/`), one with the masks in `found`.
    ///
    /// # Errors
    /// What reading files and training report.
    pub fn train(folder: &Path, found: &Path, steps: u32, control: &Control) -> Result<Self> {
        let model = SparseModel::read(&folder.join("sparse"))?;
        let dataset = Dataset::from_model(&model, &folder.join("images"), Some(TEST_EVERY))?;
        let known = known_masks(&model, &folder.join("masks"))?;
        let (_, psnr_of_everything) = train(dataset.clone(), &known, steps, control)?;
        let masked = dataset.with_masks(found, control)?;
        let outline = ObjectOutline::of(&masked, control)?;
        let (mut trainer, psnr) = train(masked, &known, steps, control)?;
        let splats = trainer.splats()?;
        let splats = match outline {
            Some(outline) => outline.cut(splats).0,
            None => splats,
        };
        Ok(Self { opacity_outside: opacity_outside(&splats, &known, MARGIN), psnr, psnr_of_everything })
    }
}

/// Trains, and scores the object's pixels in the held-out views.
fn train(dataset: Dataset, known: &[KnownMask], steps: u32, control: &Control) -> Result<(Trainer, f64)> {
    let options = TrainOptions {
        training_num_steps: steps,
        training_max_num_gaussians: 30_000,
        test_every: Some(TEST_EVERY),
        ..TrainOptions::default()
    };
    let mut trainer = Trainer::new(dataset, options, open(&DeviceChoice::Cpu)?, control)?;
    trainer.run(control, None)?;
    let (mut rendered, mut truth) = (Vec::new(), Vec::new());
    for index in trainer.dataset().test.clone() {
        let view = &trainer.dataset().views[index];
        let Some(known) = known.iter().find(|k| k.name == view.name) else { continue };
        let unreadable =
            |e| Error::new(ErrorKind::InvalidFile, format!("cannot read {}: {e}", view.path.display()));
        let picture = image::open(&view.path).map_err(unreadable)?.into_rgb8();
        let shown = trainer.render(&trainer.dataset().view_at(index, None))?;
        for (pixel, value) in on_object(&known.mask, &picture) {
            let [r, g, b, _] = shown.rgba[pixel];
            rendered.push([r, g, b]);
            truth.push(value);
        }
    }
    Ok((trainer, psnr(&rendered, &truth)))
}

/// The pixels of the object and their colours, but for its rim, which shows what is behind it, too.
fn on_object(mask: &GrayImage, picture: &RgbImage) -> Vec<(usize, [f32; 3])> {
    let is_inside = |x: u32, y: u32| mask.get_pixel_checked(x, y).is_none_or(|p| is_object(p[0]));
    let is_on = |x: u32, y: u32| {
        let beside = [(x.wrapping_sub(1), y), (x + 1, y), (x, y.wrapping_sub(1)), (x, y + 1)];
        is_inside(x, y) && beside.into_iter().all(|(x, y)| is_inside(x, y))
    };
    let pixels = picture.enumerate_pixels().filter(|(x, y, _)| is_on(*x, *y));
    let index = |x: u32, y: u32| y as usize * picture.width() as usize + x as usize;
    pixels.map(|(x, y, p)| (index(x, y), p.0.map(|v| f32::from(v) / 255.0))).collect()
}

fn known_masks(model: &SparseModel, folder: &Path) -> Result<Vec<KnownMask>> {
    let read = |image: &Image| {
        let missing = || format!("{} has no mask of {}", folder.display(), image.name);
        let path =
            find_mask(folder, &image.name).ok_or_else(|| Error::new(ErrorKind::NotFound, missing()))?;
        let (name, pose) = (image.name.clone(), image.pose);
        // A model names only cameras that it has.
        Ok(KnownMask { name, camera: model.cameras[&image.camera_id].clone(), pose, mask: read_mask(&path)? })
    };
    model.images.values().collect::<Vec<_>>().into_par_iter().map(read).collect()
}
