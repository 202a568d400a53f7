//! The whole of it: from maps of single pictures to masks of the undistorted ones, on disk.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use image::imageops::{FilterType, resize};
use image::{GrayImage, RgbImage};
use rayon::prelude::*;
use serde::{Deserialize, Serialize};

use super::evidence::{Stage, weigh};
use super::frame_masks::{BackgroundOptions, FrameMasks};
use super::object_poses::{ObjectPoses, PosesFrom};
use super::quick_scene::QuickScene;
use super::sheet::{thumbnail, write_sheet};
use super::views::{View, mask_of, through_lens};
use crate::camera::{Camera, SparseModel};
use crate::control::{Control, Warning};
use crate::error::{Error, ErrorKind, Result};
use crate::masks::{LEAST_COVERAGE, coverage, intersection_over_union, mask_path, read_mask, write_mask};
use crate::raster;
use crate::stage::Stage as PipelineStage;
use crate::train::{Dataset, scaled_view};
use crate::video::Frames;

/// The folder of the masks, beside `images/` and `sparse/` of the undistorted frames.
pub const MASKS: &str = "masks";

/// Long side of the pictures on which the views come to agree, pixels.
const WORKING_SIDE: u32 = 480;
/// Long side at which masks are fitted to the edges of the pictures, pixels at most.
const EDGE_SIDE: u32 = 1280;
/// If the network finds something in fewer frames than this part, it has found nothing.
const LEAST_FOUND: f64 = 0.05;
/// With fewer points on the object than this, all stay in the model.
const FEW_POINTS: usize = 20;

/// What background removal did, in figures.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct BackgroundReport {
    /// Whether the masks were given by the user.
    pub given: bool,
    /// Pictures that were looked at.
    pub pictures: usize,
    /// Pictures in which an object was found by itself.
    pub found: usize,
    /// Mean overlap (intersection over union) of the masks of neighbouring pictures, before they were made to agree.
    pub neighbour_overlap: f64,
    /// Pictures whose own mask contradicted both neighbours.
    pub replaced: usize,
    /// What the camera poses were found from.
    pub poses_from: PosesFrom,
    /// Masks that were written; 0 if no object was found and the scene stays whole.
    pub masks: usize,
    /// Of them, those without any object: they are not trained on.
    pub empty: usize,
    /// Mean part of a picture that is object.
    pub coverage: f64,
    /// Mean overlap of the final masks with what the network saw in the single pictures.
    pub overlap_with_single: f64,
    /// Whether the object stands on a plane that was found.
    pub support_plane: bool,
    /// Gaussians of a quick scene that belong to the object.
    pub object_gaussians: usize,
    /// Gaussians of the quick scene beside it.
    pub background_gaussians: usize,
    /// What the user should know.
    pub warnings: Vec<Warning>,
}

impl BackgroundReport {
    fn new(masks: &FrameMasks, poses_from: PosesFrom) -> Self {
        Self {
            given: masks.given,
            pictures: masks.maps.len(),
            found: masks.found(),
            neighbour_overlap: masks.agreement,
            replaced: masks.replaced,
            poses_from,
            masks: 0,
            empty: 0,
            coverage: 0.0,
            overlap_with_single: 0.0,
            support_plane: false,
            object_gaussians: 0,
            background_gaussians: 0,
            warnings: Vec::new(),
        }
    }
}

/// The map of a picture, and the camera of the picture that the network saw.
struct Map<'a> {
    map: &'a GrayImage,
    lens: &'a Camera,
}

/// The maps of single pictures, by name.
type Maps<'a> = BTreeMap<&'a str, Map<'a>>;

/// `model` has the cameras of the pictures that the network saw; those without a pose have no map.
fn maps<'a>(names: impl Iterator<Item = &'a str>, maps: &'a [GrayImage], model: &'a SparseModel) -> Maps<'a> {
    let lenses: BTreeMap<&str, &Camera> = model
        .images
        .values()
        .filter_map(|i| Some((i.name.as_str(), model.cameras.get(&i.camera_id)?)))
        .collect();
    names.zip(maps).filter_map(|(n, map)| Some((n, Map { map, lens: lenses.get(n)? }))).collect()
}

/// Writes the masks of the undistorted frames in `undistorted` (`images/`, `sparse/`) to its folder [`MASKS`], and a contact
/// sheet to `sheet`. `frames` and their `masks` are those that `poses` are of. Points beside the object leave
/// `undistorted/sparse`. If no object was found, nothing is written and the report has the warning `background_not_found`.
///
/// # Errors
/// What reading pictures and writing files report; [`ErrorKind::Cancelled`].
pub fn mask_frames(
    frames: &Frames,
    masks: &FrameMasks,
    poses: &ObjectPoses,
    undistorted: &Path,
    sheet: &Path,
    control: &Control,
) -> Result<BackgroundReport> {
    let sparse = undistorted.join("sparse");
    let mut pinhole = SparseModel::read(&sparse)?;
    let dataset = Dataset::from_model(&pinhole, &undistorted.join("images"), None)?;
    let names = frames.frames.iter().map(|f| f.name.as_str());
    let maps = maps(names, &masks.maps, &poses.reconstruction.model);
    let folder = undistorted.join(MASKS);
    let mut report = BackgroundReport::new(masks, poses.from);
    report.warnings.extend(poses.warning.clone());
    write_masks(&dataset, &maps, &folder, sheet, &mut report, control)?;
    if report.masks > 0 {
        keep_object_points(&mut pinhole, &folder, control)?;
        pinhole.write_binary(&sparse)?;
    }
    Ok(report)
}

/// Masks the undistorted pictures of a dataset (`images/`, `sparse/`), whose poses are known, into the folder `masks`, with a
/// contact sheet at `sheet`.
///
/// # Errors
/// Those of [`FrameMasks::make`] and [`mask_frames`].
pub fn mask_dataset(
    dataset: &Path,
    options: &BackgroundOptions,
    masks: &Path,
    sheet: &Path,
    control: &Control,
) -> Result<BackgroundReport> {
    let model = SparseModel::read(&dataset.join("sparse"))?;
    let dataset = Dataset::from_model(&model, &dataset.join("images"), None)?;
    let names: Vec<String> = dataset.views.iter().map(|v| v.name.clone()).collect();
    let read = |i: usize| read_picture(&dataset.views[i].path);
    let found = FrameMasks::make(&names, &read, true, options, &control.part(0.0, 0.5))?;
    let maps = maps(names.iter().map(String::as_str), &found.maps, &model);
    let mut report = BackgroundReport::new(&found, PosesFrom::Frame);
    write_masks(&dataset, &maps, masks, sheet, &mut report, &control.part(0.5, 1.0))?;
    Ok(report)
}

/// The maps of `frames`: what [`mask_frames`] and [`super::reconstruct_object`] begin with.
///
/// # Errors
/// Those of [`FrameMasks::make`].
pub fn remove_background(
    frames: &Frames,
    options: &BackgroundOptions,
    control: &Control,
) -> Result<FrameMasks> {
    let names: Vec<String> = frames.frames.iter().map(|f| f.name.clone()).collect();
    FrameMasks::make(&names, &|i| frames.rgb(i), frames.is_sequential(), options, control)
}

/// What a mask that was written leaves.
struct Written {
    thumbnail: RgbImage,
    coverage: f64,
    overlap_with_single: f64,
}

/// Makes the masks of all views of `dataset` and writes them into `folder`, unless no object is found.
fn write_masks(
    dataset: &Dataset,
    maps: &Maps<'_>,
    folder: &Path,
    sheet: &Path,
    report: &mut BackgroundReport,
    control: &Control,
) -> Result<()> {
    let nowhere = (report.found as f64) < (LEAST_FOUND * report.pictures as f64).max(1.0);
    if nowhere {
        not_found(report, control);
        return Ok(());
    }
    let judged = match report.given {
        true => None,
        false => Some(judge(dataset, maps, report, &control.part(0.0, 0.7))?),
    };
    if judged.as_ref().is_some_and(|j| !j.shows_object) {
        not_found(report, control);
        return Ok(());
    }
    std::fs::create_dir_all(folder).map_err(|e| Error::io("create", folder, e))?;
    let control = control.part(0.7, 1.0);
    let count = dataset.views.len();
    let written: Vec<Written> = (0..count)
        .into_par_iter()
        .map(|i| {
            control.check()?;
            let view = &dataset.views[i];
            let picture = read_picture(&view.path)?;
            let map = map_of(maps, &view.name)?;
            let own = through_lens(map.map, map.lens, &view.view);
            let mask = match &judged {
                None => own.clone(),
                Some(judged) => final_mask(&picture, &judged.odds[i], &view.view),
            };
            let path = mask_path(folder, &view.name);
            if let Some(parent) = path.parent() {
                std::fs::create_dir_all(parent).map_err(|e| Error::io("create", parent, e))?;
            }
            write_mask(&path, &mask)?;
            let overlap_with_single = intersection_over_union(&mask, &own);
            Ok(Written {
                thumbnail: thumbnail(&picture, &mask),
                coverage: coverage(&mask),
                overlap_with_single,
            })
        })
        .collect::<Result<_>>()?;
    control.progress(PipelineStage::Sfm, "masks", 1.0);
    let thumbnails: Vec<&RgbImage> = written.iter().map(|w| &w.thumbnail).collect();
    write_sheet(&thumbnails, sheet)?;
    let mean = |value: fn(&Written) -> f64| written.iter().map(value).sum::<f64>() / count.max(1) as f64;
    report.masks = count;
    report.empty = written.iter().filter(|w| w.coverage <= LEAST_COVERAGE).count();
    report.coverage = mean(|w| w.coverage);
    report.overlap_with_single = mean(|w| w.overlap_with_single);
    if report.empty > 0 {
        let message =
            format!("{} of {count} pictures do not show the object: they are not trained on", report.empty);
        warn(report, Warning::new("frames_without_object", message), &control);
    }
    Ok(())
}

fn map_of<'a>(maps: &'a Maps<'_>, name: &str) -> Result<&'a Map<'a>> {
    maps.get(name).ok_or_else(|| {
        let message = format!("the model names the picture {name}, for which there is no map");
        Error::new(ErrorKind::InvalidFile, message)
    })
}

fn warn(report: &mut BackgroundReport, warning: Warning, control: &Control) {
    control.warn(PipelineStage::Sfm, warning.clone());
    report.warnings.push(warning);
}

fn not_found(report: &mut BackgroundReport, control: &Control) {
    let message = format!(
        "no object was found: the mask model sees one in {} of {} pictures; the background stays. Film one object from all \
         sides so that it fills a good part of the picture, or give masks by --mask-dir",
        report.found, report.pictures
    );
    warn(report, Warning::new("background_not_found", message), control);
}

/// What all views together say.
struct Judged {
    /// By view of the dataset: log odds of its pixels at working size.
    odds: Vec<Vec<f32>>,
    /// Whether there is an object in any of them.
    shows_object: bool,
}

/// Makes the views agree: what they show is one scene, whose Gaussians belong to the object or do not.
fn judge(
    dataset: &Dataset,
    maps: &Maps<'_>,
    report: &mut BackgroundReport,
    control: &Control,
) -> Result<Judged> {
    let views: Vec<View> = dataset
        .views
        .par_iter()
        .map(|view| {
            control.check()?;
            let map = map_of(maps, &view.name)?;
            let camera = scaled_view(&view.view, Some(WORKING_SIDE));
            Ok(View::new(camera, through_lens(map.map, map.lens, &camera)))
        })
        .collect::<Result<_>>()?;
    let cameras: Vec<raster::View> = dataset.views.iter().map(|v| v.view).collect();
    let stage = Stage::of(&cameras).ok_or_else(|| {
        Error::new(
            ErrorKind::UnreliableReconstruction,
            "the cameras look at no common place: no object can be found",
        )
    })?;
    let scene = QuickScene::train(dataset.clone(), &control.part(0.0, 0.9))?;
    let evidence = weigh(&scene, &views, &stage)?;
    let count = |wanted: fn(f32) -> bool| evidence.object.iter().flatten().filter(|o| wanted(**o)).count();
    report.support_plane = evidence.plane.is_some();
    report.object_gaussians = count(|o| o > 0.5);
    report.background_gaussians = count(|o| o <= 0.5);
    let mut labels = scene.painted(|i| evidence.paint(i))?;
    let mut odds = Vec::with_capacity(views.len());
    for view in &views {
        control.check()?;
        odds.push(view.odds(&labels.seen_by(&view.camera)?));
    }
    control.progress(PipelineStage::Sfm, "masks", 1.0);
    Ok(Judged { odds, shows_object: report.object_gaussians > 0 })
}

/// The mask at the size of `view`.
fn final_mask(picture: &RgbImage, odds: &[f32], view: &raster::View) -> GrayImage {
    let small = scaled_view(view, Some(WORKING_SIDE));
    let edges = scaled_view(view, Some(EDGE_SIDE));
    let (width, height) = (small.width as usize, small.height as usize);
    let whole = (edges.width, edges.height) == picture.dimensions();
    if whole {
        return mask_of(picture, odds, width, height);
    }
    let picture = resize(picture, edges.width, edges.height, FilterType::Triangle);
    let mask = mask_of(&picture, odds, width, height);
    resize(&mask, view.width, view.height, FilterType::Triangle)
}

/// Takes the points beside the object out of a model whose masks are in `folder`: those that most of their observations
/// show on the background. Leaves all, if hardly any is on the object.
fn keep_object_points(model: &mut SparseModel, folder: &Path, control: &Control) -> Result<()> {
    let masks: BTreeMap<u32, GrayImage> = model
        .images
        .par_iter()
        .map(|(id, image)| {
            control.check()?;
            Ok((*id, read_mask(&mask_path(folder, &image.name))?))
        })
        .collect::<Result<_>>()?;
    let is_seen_on_object = |(image, keypoint): &(u32, u32)| {
        let point = model.images.get(image).and_then(|i| i.points2d.get(*keypoint as usize));
        point.zip(masks.get(image)).is_some_and(|(p, mask)| {
            let inside = p.xy.x >= 0.0 && p.xy.y >= 0.0;
            inside && mask.get_pixel_checked(p.xy.x as u32, p.xy.y as u32).is_some_and(|p| p[0] > 127)
        })
    };
    let kept: BTreeSet<u64> = model
        .points
        .iter()
        .filter(|(_, p)| 2 * p.track.iter().filter(|o| is_seen_on_object(o)).count() > p.track.len())
        .map(|(id, _)| *id)
        .collect();
    if kept.len() < FEW_POINTS {
        return Ok(());
    }
    model.points.retain(|id, _| kept.contains(id));
    for image in model.images.values_mut() {
        for point in &mut image.points2d {
            point.point3d = point.point3d.filter(|id| kept.contains(id));
        }
    }
    Ok(())
}

fn read_picture(path: &Path) -> Result<RgbImage> {
    let picture = image::open(path).map_err(|e| {
        Error::new(ErrorKind::InvalidMedia, format!("{} cannot be read: {e}", path.display())).caused_by(e)
    })?;
    Ok(picture.into_rgb8())
}
