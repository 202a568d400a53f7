//! The last step: from the maps of single pictures to the masks of the undistorted ones, on disk.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use image::imageops::{FilterType, resize};
use image::{GrayImage, RgbImage};
use nalgebra::Vector2;
use rayon::prelude::*;
use serde::{Deserialize, Serialize};

use super::agreement::{AgreementOptions, agree_at, agree_on};
use super::consensus::Consensus;
use super::evidence::Odds;
use super::floor::Floor;
use super::frame_masks::{FrameMasks, MaskOptions};
use super::object_point::ObjectPoint;
use super::object_poses::{ObjectPoses, PosesFrom};
use super::pieces::{Choice, Sought};
use super::pointing::Pointed;
use super::quick_scene::QuickScene;
use super::sampled_maps::foretell;
use super::sheet::{thumbnail, write_sheet};
use super::views::{SalientView, mask_of, through_lens};
use crate::camera::{Camera, Gaze, SparseModel};
use crate::control::{Control, Warning};
use crate::defaults::with_defaults;
use crate::error::{Error, ErrorKind, Result};
use crate::masks::{
    LEAST_COVERAGE, coverage, hidden_folder, intersection_over_union, is_object, is_object_point, mask_path,
    read_mask, write_mask,
};
use crate::picture_file;
use crate::raster;
use crate::stage::Stage;
use crate::train::Dataset;
use crate::video::Frames;

/// The folder of the masks, beside `images/` and `sparse/` of the undistorted frames.
pub const MASKS: &str = "masks";

with_defaults! {
    /// How masks are made of what the network saw. Chosen by hand.
    #[derive(Debug, Clone, PartialEq)]
    pub(super) struct MakingOptions {
        /// Long side (pixels) of the pictures for which Gaussians are labelled.
        working_side: u32 = 480,
        /// Long side (pixels at most) at which masks are fitted to the edges of the pictures.
        edge_side: u32 = 1280,
        /// Part of the pictures (0 to 1) in which the network must see an object for there to be one.
        least_found: f64 = 0.05,
        /// Number of scene points on the object without which the model keeps all its points.
        least_points: usize = 20,
        /// The overlap of what either half of the views makes of the object below which masks are doubtful. It is 0.87 or more
        /// for 26 views from all around, 0.74 or more for 13 of them, 0.57 to 0.76 for 7. Of 39 parts of films below it, 6 had
        /// masks with an overlap of less than 0.85 with the true ones; of 73 above it, one had.
        doubtful: f64 = 0.7,
        /// How the views come to agree on the object.
        agreement: AgreementOptions = AgreementOptions::default(),
    }
}

/// How the masks were made, in figures.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct MaskReport {
    /// Whether the masks were given by the user.
    pub given: bool,
    /// Pictures at which the network looked, or for which a mask was given.
    pub pictures: usize,
    /// Pictures in which the network saw an object.
    pub found: usize,
    /// Mean overlap (intersection over union) of what the network saw in neighbouring pictures.
    pub neighbour_overlap: f64,
    /// Pictures in which the network saw something else than in both neighbours, whose map they took.
    pub replaced: usize,
    /// What the camera poses were found from.
    pub poses_from: PosesFrom,
    /// Masks that were written; 0 if no object was found and the scene stays whole.
    pub masks: usize,
    /// Of them, those without an object: these pictures are not trained on.
    pub empty: usize,
    /// Mean part (0 to 1) of a picture that is object.
    pub coverage: f64,
    /// Mean overlap (intersection over union) of the masks with what the network saw in the single pictures.
    pub overlap_with_single: f64,
    /// How well (0 to 1) the views agree on the object: the mean overlap (intersection over union) of what each shows by
    /// itself with the outline of the solid that all show together. 1 for masks that were given.
    pub agreement: f64,
    /// How well (0 to 1) the views determine the object: the overlap (intersection over union) of the solids that either half
    /// of them makes by itself. 1 for masks that were given.
    pub determined: f64,
    /// Whether a plane was found on which the object stands, or hangs.
    pub support_plane: bool,
    /// Gaussians of the quick scene that belong to the object.
    pub object_gaussians: usize,
    /// Gaussians of the quick scene that do not.
    pub background_gaussians: usize,
    /// What the user should know.
    pub warnings: Vec<Warning>,
}

impl MaskReport {
    fn new(masks: &FrameMasks, poses_from: PosesFrom) -> Self {
        Self {
            given: masks.given,
            pictures: masks.pictures(),
            found: masks.found(),
            neighbour_overlap: masks.agreement,
            replaced: masks.replaced,
            poses_from,
            masks: 0,
            empty: 0,
            coverage: 0.0,
            overlap_with_single: 0.0,
            agreement: 1.0,
            determined: 1.0,
            support_plane: false,
            object_gaussians: 0,
            background_gaussians: 0,
            warnings: Vec::new(),
        }
    }
}

/// The map of a picture, and the camera of the picture that the network saw.
struct PictureMap<'a> {
    map: &'a GrayImage,
    /// Whether the network looked at the picture.
    looked: bool,
    lens: &'a Camera,
}

/// The maps of single pictures by the picture's name.
type PictureMaps<'a> = BTreeMap<&'a str, PictureMap<'a>>;

/// Pairs the maps of `masks` with the cameras of their pictures. `model` has these cameras; pictures that it does not have are left
/// out.
fn maps<'a>(
    names: impl Iterator<Item = &'a str>,
    masks: &'a FrameMasks,
    model: &'a SparseModel,
) -> PictureMaps<'a> {
    let lenses: BTreeMap<&str, &Camera> = model
        .images
        .values()
        .filter_map(|i| Some((i.name.as_str(), model.cameras.get(&i.camera_id)?)))
        .collect();
    let maps = masks.maps.iter().zip(&masks.looked);
    let of_picture = |(name, (map, looked)): (&'a str, (&'a GrayImage, &bool))| {
        Some((name, PictureMap { map, looked: *looked, lens: lenses.get(name)? }))
    };
    names.zip(maps).filter_map(of_picture).collect()
}

/// Writes the masks of the undistorted frames in `undistorted` (`images/`, `sparse/`) to its folder [`MASKS`], where another thing
/// hides the object to the folder beside it ([`hidden_folder`]), and a contact sheet to `sheet`. `poses` are those of
/// `frames`, as are `masks`. Points that are not on the object are removed from `undistorted/sparse`. If no object was found, nothing is written and the report has the warning
/// `background_not_found`.
///
/// # Errors
/// What reading pictures and writing files report; [`ErrorKind::InvalidArgument`] if no object is found where the user points;
/// [`ErrorKind::Cancelled`].
pub fn mask_frames(
    frames: &Frames,
    masks: &FrameMasks,
    poses: &ObjectPoses,
    undistorted: &Path,
    sheet: &Path,
    control: &Control,
) -> Result<MaskReport> {
    let control = &control.with_remaining_time();
    let sparse = undistorted.join("sparse");
    let mut pinhole = SparseModel::read(&sparse)?;
    let dataset = Dataset::from_model(&pinhole, &undistorted.join("images"), None)?;
    let names = frames.frames.iter().map(|f| f.name.as_str());
    let maps = maps(names, masks, &poses.reconstruction.model);
    let folder = undistorted.join(MASKS);
    let mut report = MaskReport::new(masks, poses.from);
    report.warnings.extend(poses.warning.clone());
    let options = MakingOptions::default();
    let object_at =
        masks.object_at.as_ref().map(|(index, point)| (frames.frames[*index].name.as_str(), point.clone()));
    let pictures =
        Pictures { dataset: &dataset, model: &pinhole, maps, object_at, keep_floor: masks.keep_floor };
    write_masks(&pictures, &folder, sheet, &options, &mut report, control)?;
    if report.masks > 0 {
        keep_object_points(&mut pinhole, &folder, options.least_points, control)?;
        pinhole.write_binary(&sparse)?;
    }
    Ok(report)
}

/// Writes masks of the undistorted pictures of a dataset (`images/`, `sparse/`) to the folder `masks`, where another thing hides the
/// object to the folder beside it ([`hidden_folder`]), and a contact sheet to `sheet`.
///
/// # Errors
/// Those of [`FrameMasks::make`] and [`mask_frames`].
pub fn mask_dataset(
    dataset: &Path,
    options: &MaskOptions,
    masks: &Path,
    sheet: &Path,
    control: &Control,
) -> Result<MaskReport> {
    let control = control.with_remaining_time();
    let model = SparseModel::read(&dataset.join("sparse"))?;
    let dataset = Dataset::from_model(&model, &dataset.join("images"), None)?;
    let names: Vec<String> = dataset.views.iter().map(|v| v.name.clone()).collect();
    let read = |i: usize| read_picture(&dataset.views[i].path);
    let found = FrameMasks::make(&names, &read, true, options, &control.part(0.0, 0.5))?;
    let maps = maps(names.iter().map(String::as_str), &found, &model);
    let mut report = MaskReport::new(&found, PosesFrom::Frame);
    let making = MakingOptions::default();
    let object_at = found.object_at.as_ref().map(|(index, point)| (names[*index].as_str(), point.clone()));
    let pictures =
        Pictures { dataset: &dataset, model: &model, maps, object_at, keep_floor: found.keep_floor };
    write_masks(&pictures, masks, sheet, &making, &mut report, &control.part(0.5, 1.0))?;
    Ok(report)
}

/// What is remembered of a mask that was written.
struct Written {
    thumbnail: RgbImage,
    coverage: f64,
    /// With what the network saw, if it looked.
    overlap_with_single: Option<f64>,
}

/// What masks are made of.
struct Pictures<'a> {
    /// The undistorted pictures.
    dataset: &'a Dataset,
    /// Their poses.
    model: &'a SparseModel,
    /// What the network saw, or the user gave.
    maps: PictureMaps<'a>,
    /// Where the user says that the object is: in the picture of this name, and there.
    object_at: Option<(&'a str, ObjectPoint)>,
    /// The disc of ground to keep, in units of the object's radius.
    keep_floor: Option<f64>,
}

/// Whether nothing need be sought: the network sees an object in hardly any picture. Who points at one knows better.
fn is_hopeless(report: &MaskReport, is_pointed_at: bool, options: &MakingOptions) -> bool {
    let least = (options.least_found * report.pictures as f64).max(1.0);
    !is_pointed_at && (report.found as f64) < least
}

/// Makes the masks of all pictures and writes them into `folder`, unless no object is found.
fn write_masks(
    pictures: &Pictures<'_>,
    folder: &Path,
    sheet: &Path,
    options: &MakingOptions,
    report: &mut MaskReport,
    control: &Control,
) -> Result<()> {
    if is_hopeless(report, pictures.object_at.is_some(), options) {
        not_found(report, control);
        return Ok(());
    }
    let (agreed, floor) = match report.given {
        true => (None, None),
        false => {
            let (agreed, floor) = agree(pictures, options, report, &control.part(0.0, 0.7))?;
            (Some(agreed), floor)
        }
    };
    if agreed.as_ref().is_some_and(|a| !a.is_found()) {
        not_found(report, control);
        return Ok(());
    }
    if report.determined < options.doubtful {
        let message = format!(
            "either half of the pictures by itself makes another object (overlap {:.2}): too few pictures show it, or from too \
             few sides. Look at the sheet of masks, and film it from all around",
            report.determined
        );
        warn(report, Warning::new("masks_doubtful", message), control);
    }
    if agreed.as_ref().is_some_and(|agreed| agreed.is_cut) {
        let message = "the object does not end within the space in which it is sought, far around the place at which the cameras \
                       look: masks may be cut off. Look at the sheet of masks, and film the object from farther away and from \
                       all around";
        warn(report, Warning::new("object_cut_off", message), control);
    }
    if pictures.keep_floor.is_some() && floor.is_none() {
        let message = "no surface was found on which the object stands: no floor is kept. Film it from higher up, on something \
                       with a texture";
        warn(report, Warning::new("floor_not_found", message), control);
    }
    std::fs::create_dir_all(folder).map_err(|e| Error::io("create", folder, e))?;
    let of_hidden = hidden_folder(folder);
    let control = control.part(0.7, 1.0);
    let dataset = pictures.dataset;
    let count = dataset.views.len();
    let written: Vec<Written> = (0..count)
        .into_par_iter()
        .map(|i| {
            control.check()?;
            let view = &dataset.views[i];
            let picture = read_picture(&view.path)?;
            let map = pictures.map_of(&view.name)?;
            let own = through_lens(map.map, map.lens, &view.view);
            let (mask, hidden) = match &agreed {
                None => (own.clone(), None),
                Some(agreed) => {
                    let mut mask = final_mask(&picture, &agreed.odds[i], &view.view, options);
                    let hidden = hide(&mut mask, &view.view, agreed, i, floor.as_ref(), options);
                    (mask, hidden)
                }
            };
            write_in(folder, &view.name, Some(&mask))?;
            write_in(&of_hidden, &view.name, hidden.as_ref())?;
            let overlap_with_single = map.looked.then(|| intersection_over_union(&mask, &own));
            Ok(Written {
                thumbnail: thumbnail(&picture, &mask),
                coverage: coverage(&mask),
                overlap_with_single,
            })
        })
        .collect::<Result<_>>()?;
    control.progress(Stage::Sfm, "masks", 1.0);
    let thumbnails: Vec<&RgbImage> = written.iter().map(|w| &w.thumbnail).collect();
    write_sheet(&thumbnails, sheet)?;
    let mean = |values: Vec<f64>| values.iter().sum::<f64>() / values.len().max(1) as f64;
    report.masks = count;
    report.empty = written.iter().filter(|w| w.coverage <= LEAST_COVERAGE).count();
    report.coverage = mean(written.iter().map(|w| w.coverage).collect());
    report.overlap_with_single = mean(written.iter().filter_map(|w| w.overlap_with_single).collect());
    if report.empty > 0 {
        let message =
            format!("{} of {count} pictures do not show the object: they are not trained on", report.empty);
        warn(report, Warning::new("frames_without_object", message), &control);
    }
    Ok(())
}

/// Adds the floor, if any is kept, to the mask of view `i`, and gives the mask of where another thing hides the object or that floor;
/// `None` if nothing does.
fn hide(
    mask: &mut GrayImage,
    view: &raster::View,
    agreed: &Consensus,
    i: usize,
    floor: Option<&Floor>,
    options: &MakingOptions,
) -> Option<GrayImage> {
    let small = view.scaled(Some(options.working_side));
    let scale = f64::from(small.width) / f64::from(view.width);
    let is_among = |pixels: &[u32], x: f64, y: f64| {
        let pixel = small.pixel(x * scale, y * scale);
        pixel.is_some_and(|pixel| pixels.binary_search(&(pixel as u32)).is_ok())
    };
    let mut hidden = GrayImage::new(view.width, view.height);
    let of_object = &agreed.hidden[i];
    if !of_object.is_empty() {
        for (x, y, pixel) in hidden.enumerate_pixels_mut() {
            pixel[0] = 255 * u8::from(is_among(of_object, f64::from(x) + 0.5, f64::from(y) + 0.5));
        }
    }
    if let Some(floor) = floor {
        let others = &agreed.others[i];
        floor.add_to(mask, view, |x, y| is_among(others, x, y));
        if !others.is_empty() {
            floor.add_to(&mut hidden, view, |x, y| !is_among(others, x, y));
        }
    }
    // What the picture's edges say shows the object is not hidden.
    for (hidden, mask) in hidden.pixels_mut().zip(mask.pixels()) {
        hidden[0] = 255 * u8::from(hidden[0] > 0 && !is_object(mask[0]));
    }
    hidden.as_raw().contains(&255).then_some(hidden)
}

/// Writes the mask of a picture into `folder`; without one, removes that of an earlier call.
fn write_in(folder: &Path, picture: &str, mask: Option<&GrayImage>) -> Result<()> {
    let path = mask_path(folder, picture);
    let Some(mask) = mask else {
        return match std::fs::remove_file(&path) {
            Err(e) if e.kind() != std::io::ErrorKind::NotFound => Err(Error::io("remove", &path, e)),
            _ => Ok(()),
        };
    };
    if let Some(parent) = path.parent() {
        std::fs::create_dir_all(parent).map_err(|e| Error::io("create", parent, e))?;
    }
    write_mask(&path, mask)
}

impl Pictures<'_> {
    fn map_of(&self, name: &str) -> Result<&PictureMap<'_>> {
        self.maps.get(name).ok_or_else(|| {
            let message = format!("the model names the picture {name}, for which there is no map");
            Error::new(ErrorKind::InvalidFile, message)
        })
    }

    /// Where in the small pictures the place is that a person has pointed at in the picture of this name.
    fn pointed(&self, name: &str, point: &ObjectPoint, options: &MakingOptions) -> Result<Pointed> {
        let view = self.dataset.views.iter().position(|v| v.name == name);
        let view = view.ok_or_else(|| fails(point, "the camera pose of that picture was not found"))?;
        let camera = self.dataset.views[view].view.scaled(Some(options.working_side));
        let ray = self.map_of(name)?.lens.ray(&Vector2::new(point.x, point.y));
        let (x, y) = (camera.fx * ray.x / ray.z + camera.cx, camera.fy * ray.y / ray.z + camera.cy);
        camera.pixel(x, y).ok_or_else(|| fails(point, "the undistorted picture does not show that place"))?;
        Ok(Pointed { view, x, y })
    }
}

fn fails(point: &ObjectPoint, why: &str) -> Error {
    Error::argument(format!("the object is to be at {point}, but {why}"))
}

fn warn(report: &mut MaskReport, warning: Warning, control: &Control) {
    control.warn(Stage::Sfm, warning.clone());
    report.warnings.push(warning);
}

fn not_found(report: &mut MaskReport, control: &Control) {
    let message = format!(
        "no object was found: the mask model sees one in {} of {} pictures; the background stays. Film one object from \
         all sides so that it fills a good part of the picture, or give masks by --mask-dir",
        report.found, report.pictures
    );
    warn(report, Warning::new("background_not_found", message), control);
}

/// Tells who has not pointed at the object what was taken for it, where the cameras do not go around one thing.
fn warn_of_gaze(gaze: &Gaze, is_pointed_at: bool, report: &mut MaskReport, control: &Control) {
    if gaze.converges || is_pointed_at {
        return;
    }
    let message = "the cameras do not go around one thing: too few pictures show the place at which they look, or from too few sides. \
                   What is nearest to that place was taken for the object. Look at the sheet of masks, and if it is not what you \
                   mean, point at the object by --object X,Y,FRAME (object_at in programs)";
    warn(report, Warning::new("object_assumed", message), control);
}

/// Makes the views agree: what they show is one scene, and in it the object is one solid. With the ground to keep, if any is
/// asked for and there is some.
fn agree(
    pictures: &Pictures<'_>,
    options: &MakingOptions,
    report: &mut MaskReport,
    control: &Control,
) -> Result<(Consensus, Option<Floor>)> {
    let mut views: Vec<SalientView> = pictures
        .dataset
        .views
        .par_iter()
        .map(|view| {
            control.check()?;
            let map = pictures.map_of(&view.name)?;
            let camera = view.view.scaled(Some(options.working_side));
            let picture = read_picture(&view.path)?;
            Ok(SalientView::new(camera, through_lens(map.map, map.lens, &camera), &picture))
        })
        .collect::<Result<_>>()?;
    let gaze = Gaze::of(pictures.model).ok_or_else(|| {
        Error::new(
            ErrorKind::UnreliableReconstruction,
            "the cameras look at no common place: no object can be found",
        )
    })?;
    let scene = QuickScene::train(pictures.dataset.clone(), &control.part(0.0, 0.9))?;
    let control = control.part(0.9, 1.0);
    let looked: Vec<bool> = pictures
        .dataset
        .views
        .iter()
        .map(|view| Ok(pictures.map_of(&view.name)?.looked))
        .collect::<Result<_>>()?;
    foretell(&mut views, &looked, &scene, &gaze, &options.agreement.labels)?;
    let mut agreed = match &pictures.object_at {
        None => agree_on(
            &scene,
            &views,
            Sought { gaze: &gaze, choice: Choice::Watched },
            &options.agreement,
            &control,
        )?,
        Some((name, point)) => {
            let pointed = pictures.pointed(name, point, options)?;
            let agreed = agree_at(&scene, &views, &gaze, pointed, &options.agreement, &control)?;
            agreed.ok_or_else(|| {
                let why = "no object was found there: the pixel shows no surface, or none of a thing on which the pictures \
                           agree";
                let hint = "point at the middle of the object, in a picture that shows it well; others must show it, too, from \
                            different sides. What looks like the surface around it cannot be told from that: give masks by \
                            --mask-dir";
                fails(point, why).hint(hint)
            })?
        }
    };
    if agreed.found.is_found() {
        warn_of_gaze(&gaze, pictures.object_at.is_some(), report, &control);
    }
    agreed.found.refine(&views, &options.agreement.consensus.outlines);
    let on_object = scene.centres.iter().filter(|p| agreed.found.contains(p)).count();
    report.support_plane = agreed.plane.is_some();
    report.agreement = agreed.found.agreement;
    report.determined = agreed.found.determined;
    let ground = agreed.plane.filter(|plane| !plane.is_wall);
    let floor = pictures.keep_floor.zip(ground).and_then(|(wide, plane)| {
        Floor::under(plane, agreed.found.places(), wide, &scene.centres, gaze.distance)
    });
    report.object_gaussians = on_object;
    report.background_gaussians = scene.centres.len() - on_object;
    Ok((agreed.found, floor))
}

/// The mask of `view`, at its size.
fn final_mask(picture: &RgbImage, odds: &[Odds], view: &raster::View, options: &MakingOptions) -> GrayImage {
    let small = view.scaled(Some(options.working_side));
    let large = view.scaled(Some(options.edge_side));
    let (width, height) = (small.width as usize, small.height as usize);
    let edges = &options.agreement.consensus.outlines.edges;
    let log_odds: Vec<f32> = odds.iter().map(|o| o.log_odds()).collect();
    // The picture may be smaller than its camera.
    let whole = [(large.width, large.height), (view.width, view.height)] == [picture.dimensions(); 2];
    if whole {
        return mask_of(picture, &log_odds, width, height, edges);
    }
    let picture = resize(picture, large.width, large.height, FilterType::Triangle);
    let mask = mask_of(&picture, &log_odds, width, height, edges);
    resize(&mask, view.width, view.height, FilterType::Triangle)
}

/// Removes from a model, whose masks are in `folder`, the points that are not on the object ([`is_object_point`]). If
/// fewer than `least` points are on the object, all stay.
fn keep_object_points(model: &mut SparseModel, folder: &Path, least: usize, control: &Control) -> Result<()> {
    // By image and keypoint: whether it is on the object. All masks at once may be gigabytes.
    let on_object: BTreeMap<u32, Vec<bool>> = model
        .images
        .par_iter()
        .map(|(id, image)| {
            control.check()?;
            let mask = read_mask(&mask_path(folder, &image.name))?;
            let is_on_object = |(x, y): (f64, f64)| {
                let pixel = (x >= 0.0 && y >= 0.0).then(|| mask.get_pixel_checked(x as u32, y as u32));
                pixel.flatten().is_some_and(|p| is_object(p[0]))
            };
            Ok((*id, image.points2d.iter().map(|p| is_on_object((p.xy.x, p.xy.y))).collect()))
        })
        .collect::<Result<_>>()?;
    let is_seen_on_object = |(image, keypoint): &(u32, u32)| {
        on_object.get(image).and_then(|own| own.get(*keypoint as usize)).is_some_and(|on| *on)
    };
    let kept: BTreeSet<u64> = model
        .points
        .iter()
        .filter(|(_, p)| {
            is_object_point(p.track.iter().filter(|o| is_seen_on_object(o)).count(), p.track.len())
        })
        .map(|(id, _)| *id)
        .collect();
    if kept.len() < least {
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
    Ok(picture_file::read(path)?.into_rgb8())
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use nalgebra::Vector3;

    use super::*;
    use crate::camera::{CameraModel, Pose};
    use crate::control::Event;

    /// A report of twenty pictures, in so many of which the network saw an object.
    fn report(found: usize) -> MaskReport {
        let object = GrayImage::from_pixel(4, 4, image::Luma([255]));
        let map = |i: usize| if i < found { object.clone() } else { GrayImage::new(4, 4) };
        let masks = FrameMasks {
            maps: (0..20).map(map).collect(),
            given: false,
            agreement: 1.0,
            replaced: 0,
            looked: vec![true],
            object_at: None,
            keep_floor: None,
        };
        MaskReport::new(&masks, PosesFrom::Frame)
    }

    #[test]
    fn what_a_person_points_at_is_sought_whatever_the_network_sees() {
        let options = MakingOptions::default();
        assert!(is_hopeless(&report(0), false, &options) && !is_hopeless(&report(1), false, &options));
        assert!(!is_hopeless(&report(0), true, &options));
    }

    #[test]
    fn who_films_no_single_thing_is_told_what_was_taken_for_the_object() {
        let warned = |converges: bool, is_pointed_at: bool| -> Vec<Warning> {
            let gaze = Gaze { focus: Vector3::zeros(), converges, distance: 1.0, up: -Vector3::y() };
            let heard = Arc::new(Mutex::new(Vec::new()));
            let sink = Arc::clone(&heard);
            let control = Control::new().with_listener(move |event| sink.lock().unwrap().push(event));
            let mut report = report(20);
            warn_of_gaze(&gaze, is_pointed_at, &mut report, &control);
            let told = |warning: &Warning| Event::Warning { stage: Stage::Sfm, warning: warning.clone() };
            assert_eq!(*heard.lock().unwrap(), report.warnings.iter().map(told).collect::<Vec<_>>());
            report.warnings
        };
        let assumed = warned(false, false);
        assert_eq!(assumed.iter().map(|w| w.code.as_ref()).collect::<Vec<&str>>(), ["object_assumed"]);
        assert!(assumed[0].message.contains("--object") && assumed[0].message.contains("object_at"));
        assert!(warned(true, false).is_empty() && warned(false, true).is_empty());
    }

    #[test]
    fn a_mask_has_the_size_of_its_camera_whatever_that_of_the_picture() {
        let options = MakingOptions { working_side: 20, edge_side: 40, ..MakingOptions::default() };
        let camera = Camera::from_focal(CameraModel::Pinhole, 80.0, 80, 60);
        let view = raster::View::new(&camera, &Pose::identity());
        let odds = [Odds::new(2.0); 20 * 15];
        for (width, height) in [(20, 15), (40, 30), (80, 60)] {
            let mask = final_mask(&RgbImage::new(width, height), &odds, &view, &options);
            assert_eq!(mask.dimensions(), (80, 60), "of a picture of {width}x{height}");
        }
    }
}
