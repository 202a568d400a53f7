//! The capture that is trained on: views, their pictures on disk, the sparse points.
//!
//! In: a sparse model whose cameras are pinholes, and the folder of its (undistorted) pictures. Pictures stay on disk;
//! they are decoded when a resolution stage begins, so memory holds one resolution only, in the rasteriser.

mod masks;
mod parts;

use std::path::{Component, Path, PathBuf};

use nalgebra::Vector3;
use rayon::prelude::*;
use sha2::{Digest, Sha256};

use super::picture::Picture;
use crate::camera::{CameraModel, SparseModel};
use crate::control::Control;
use crate::error::{Error, ErrorKind, Result};
use crate::hex::hex;
use crate::picture_file;
use crate::raster::{Target, View};
use crate::statistics::median;
pub use parts::{DatasetView, SeedPoint};

/// Posed pictures, split in those to train on and those held out, and seed points.
#[derive(Debug, Clone)]
pub struct Dataset {
    /// All views, by name.
    pub views: Vec<DatasetView>,
    /// Indices of the views to train on, ascending.
    pub train: Vec<usize>,
    /// Indices of the views that are held out, ascending.
    pub test: Vec<usize>,
    /// The sparse points, in the order of their ids.
    pub points: Vec<SeedPoint>,
    /// Whether nothing need be left to train on.
    is_scored_only: bool,
    hash: String,
}

impl Dataset {
    /// Reads a COLMAP model folder (`.bin` or `.txt`) and finds its pictures in `images`.
    ///
    /// # Errors
    /// As reading the model and [`Dataset::from_model`].
    pub fn open(model: &Path, images: &Path, test_every: Option<u32>) -> Result<Self> {
        Self::from_model(&SparseModel::read(model)?, images, test_every)
    }

    /// As [`Dataset::open`], but to score a scene on the views that are held out ([`super::evaluate_splats`]): none need be left to
    /// train on, so that `test_every` may be 1, which holds out all of them.
    ///
    /// # Errors
    /// As [`Dataset::open`], but `TooFewFrames` only if the model has no view at all.
    pub fn open_to_score(model: &Path, images: &Path, test_every: u32) -> Result<Self> {
        Self::of_views(&SparseModel::read(model)?, images, Some(test_every), true)
    }

    /// Takes over a model; `test_every` as in [`super::TrainOptions`].
    ///
    /// # Errors
    /// `InvalidArgument` if a camera has a lens distortion or `test_every` is 0, `NotFound` with the names if pictures are missing,
    /// `InvalidFile` if the model contradicts itself, `TooFewFrames` if nothing is left to train on.
    pub fn from_model(model: &SparseModel, images: &Path, test_every: Option<u32>) -> Result<Self> {
        Self::of_views(model, images, test_every, false)
    }

    fn of_views(
        model: &SparseModel,
        images: &Path,
        test_every: Option<u32>,
        is_scored_only: bool,
    ) -> Result<Self> {
        if test_every == Some(0) {
            return Err(
                Error::argument("test_every is 0").hint("it must be at least 1, which holds out every view")
            );
        }
        let mut views = Vec::with_capacity(model.images.len());
        let mut missing = Vec::new();
        let mut digest = Sha256::new();
        for (&id, image) in &model.images {
            let camera = model.cameras.get(&image.camera_id).ok_or_else(|| {
                Error::new(
                    ErrorKind::InvalidFile,
                    format!(
                        "image {} names camera {}, which the model does not have",
                        image.name, image.camera_id
                    ),
                )
            })?;
            if !matches!(camera.model, CameraModel::SimplePinhole | CameraModel::Pinhole) {
                return Err(Error::argument(format!(
                    "image {} was taken through a {} lens",
                    image.name,
                    camera.model.name()
                ))
                .hint("training needs pinhole pictures: undistort the model and its pictures first"));
            }
            let (fx, fy) = camera.focal();
            let usable = |v: f64| v.is_finite() && v > 0.0;
            if !(image.pose.is_finite() && usable(fx) && usable(fy) && camera.width > 0 && camera.height > 0)
            {
                return Err(Error::new(
                    ErrorKind::InvalidFile,
                    format!("the pose or camera of image {} is not finite or has no size", image.name),
                ));
            }
            picture_file::check_size(camera.width, camera.height).map_err(|why| {
                Error::new(ErrorKind::InvalidFile, format!("the camera of image {} {why}", image.name))
            })?;
            let view = View::new(camera, &image.pose);
            match find_picture(images, &image.name)? {
                Some(path) => {
                    let name = image.name.clone();
                    views.push((id, DatasetView { name, path, view, mask: None, hidden: None }));
                }
                None => missing.push(image.name.clone()),
            }
        }
        if !missing.is_empty() {
            let shown = missing.iter().take(3).cloned().collect::<Vec<_>>().join(", ");
            return Err(Error::new(
                ErrorKind::NotFound,
                format!(
                    "{} of {} pictures are not in {}: {shown}",
                    missing.len(),
                    model.images.len(),
                    images.display()
                ),
            )
            .hint("give the folder of the undistorted pictures that belongs to this model"));
        }
        views.sort_by(|a, b| a.1.name.cmp(&b.1.name));
        for (_, view) in &views {
            digest.update(view.name.as_bytes());
            digest.update(
                std::fs::metadata(&view.path)
                    .map_err(|e| Error::io("read", &view.path, e))?
                    .len()
                    .to_le_bytes(),
            );
            digest.update(serde_json::to_vec(&view.view).unwrap_or_default());
        }
        let held_out = |i: usize| test_every.is_some_and(|n| i.is_multiple_of(n as usize));
        let (test, train): (Vec<usize>, Vec<usize>) = (0..views.len()).partition(|&i| held_out(i));
        if is_scored_only && views.is_empty() {
            return Err(Error::new(ErrorKind::TooFewFrames, "the model has no picture to score a scene on"));
        }
        if !is_scored_only && train.is_empty() {
            return Err(Error::new(
                ErrorKind::TooFewFrames,
                format!("{} registered pictures leave none to train on", views.len()),
            )
            .hint("hold out fewer views, or give a model with more registered pictures"));
        }
        // The place of an image id in `views`.
        let mut place: Vec<(u32, u32)> =
            views.iter().enumerate().map(|(i, (id, _))| (*id, i as u32)).collect();
        place.sort_unstable();
        let points: Vec<SeedPoint> = model
            .points
            .values()
            .filter(|p| p.xyz.iter().all(|v| v.is_finite()))
            .map(|p| {
                let mut seen: Vec<u32> = p
                    .track
                    .iter()
                    .filter_map(|(id, _)| place.binary_search_by_key(id, |e| e.0).ok().map(|i| place[i].1))
                    .collect();
                seen.sort_unstable();
                seen.dedup();
                SeedPoint { position: p.xyz, rgb: p.rgb.map(|v| f32::from(v) / 255.0), views: seen }
            })
            .collect();
        for point in &points {
            digest.update(bytes_of(&point.position));
        }
        digest.update((train.len() as u64).to_le_bytes());
        let views = views.into_iter().map(|(_, view)| view).collect();
        Ok(Self { views, train, test, points, is_scored_only, hash: hex(&digest.finalize()) })
    }

    /// Takes the object's masks from `folder` ([`crate::masks::find_mask`]): they become the alpha of the pictures. Where
    /// something else hides the object ([`crate::masks::hidden_folder`]), nothing is learnt or scored. Views
    /// that do not show the object are neither trained on nor held out, and of the points those on the object stay (all, if
    /// hardly any is on it).
    ///
    /// # Errors
    /// `NotFound` if a picture has no mask, `InvalidMedia` if a mask cannot be read or has not the shape of its camera,
    /// `TooFewFrames` if no training view shows the object (where a scene is only scored, no view that is held out), `Cancelled`.
    pub fn with_masks(mut self, folder: &Path, control: &Control) -> Result<Self> {
        let masks: Vec<masks::ViewMask> = masks::read(&self.views, &self.points, folder, control)?;
        let mut digest = Sha256::new();
        digest.update(&self.hash);
        for (view, mask) in self.views.iter_mut().zip(&masks) {
            view.mask = Some(mask.path.clone());
            view.hidden = mask.hidden.clone();
            digest.update(mask.digest);
        }
        self.train.retain(|&i| masks[i].shows_object);
        self.test.retain(|&i| masks[i].shows_object);
        if self.is_scored_only && self.test.is_empty() {
            return Err(Error::new(
                ErrorKind::TooFewFrames,
                format!("no view that is held out shows the object of the masks in {}", folder.display()),
            )
            .hint("hold out more views, with a smaller test_every; masks are white where the object is"));
        }
        if !self.is_scored_only && self.train.is_empty() {
            return Err(Error::new(
                ErrorKind::TooFewFrames,
                format!("none of the masks of {} views in {} shows an object", masks.len(), folder.display()),
            )
            .hint("masks are white where the object is"));
        }
        masks::keep_object_points(&mut self.points, &masks);
        self.hash = hex(&digest.finalize());
        Ok(self)
    }

    /// Hash of names, sizes on disk, cameras, poses and points: a checkpoint is continued only with the same.
    pub(crate) fn hash(&self) -> &str {
        &self.hash
    }

    /// The camera of view `index`, its picture averaged down to a long side of at most `max_side` pixels.
    pub fn view_at(&self, index: usize, max_side: Option<u32>) -> View {
        self.views[index].view.scaled(max_side)
    }

    /// The picture of view `index` at the size of [`Dataset::view_at`]. Its file may be smaller than its camera, as in a folder of
    /// pictures at half the size, and so may its mask, whatever the size of the picture.
    ///
    /// # Errors
    /// As [`Picture::read`]; `InvalidMedia` if the picture or its mask has not the shape of its camera.
    pub fn picture(&self, index: usize, max_side: Option<u32>) -> Result<Picture> {
        let view = self.view_at(index, max_side);
        let DatasetView { path, mask, hidden, view: full, .. } = &self.views[index];
        let masks = (mask.as_deref(), hidden.as_deref());
        Picture::read_of((full.width, full.height), path, masks, (view.width, view.height))
    }

    /// The pictures of all training views, in the order of `train`, read in parallel.
    ///
    /// # Errors
    /// As [`Dataset::picture`]; `Cancelled`.
    pub fn targets(&self, max_side: Option<u32>, control: &Control) -> Result<Vec<Target>> {
        self.train
            .par_iter()
            .map(|&index| {
                control.check()?;
                Ok(self.picture(index, max_side)?.to_target())
            })
            .collect()
    }

    /// Bytes that [`Dataset::targets`] takes at most.
    pub fn target_bytes(&self, max_side: Option<u32>) -> u64 {
        self.train_pixels(max_side) * 4
    }

    /// Long side in pixels of the largest training view at that size.
    pub fn longest_side(&self, max_side: Option<u32>) -> u32 {
        let views = self.train.iter().map(|&i| self.view_at(i, max_side));
        views.map(|v| v.width.max(v.height)).max().unwrap_or(1)
    }

    /// Number of pixels of all training views at that size.
    pub fn train_pixels(&self, max_side: Option<u32>) -> u64 {
        let size = |&index: &usize| {
            let view = self.view_at(index, max_side);
            u64::from(view.width) * u64::from(view.height)
        };
        self.train.iter().map(size).sum()
    }

    /// The unit in which the optimisation measures lengths: the median over the training views of the median depth of
    /// the points they see; without points, the median distance of the camera centres from their mean.
    pub fn scene_scale(&self) -> f64 {
        let mut depths = vec![Vec::new(); self.views.len()];
        for point in &self.points {
            for &v in &point.views {
                let depth = self.views[v as usize].view.to_camera(&point.position).z;
                if depth > 0.0 {
                    depths[v as usize].push(depth);
                }
            }
        }
        let mut medians: Vec<f64> = self.train.iter().filter_map(|&v| median(&mut depths[v])).collect();
        if let Some(scale) = median(&mut medians) {
            return scale;
        }
        let centres: Vec<Vector3<f64>> = self.train.iter().map(|&v| self.views[v].view.centre()).collect();
        let mean = centres.iter().sum::<Vector3<f64>>() / centres.len() as f64;
        let mut distances: Vec<f64> = centres.iter().map(|c| (c - mean).norm()).collect();
        median(&mut distances).filter(|d| *d > 0.0).unwrap_or(1.0)
    }
}

fn bytes_of(v: &Vector3<f64>) -> [u8; 24] {
    let mut bytes = [0; 24];
    for k in 0..3 {
        bytes[8 * k..8 * k + 8].copy_from_slice(&v[k].to_le_bytes());
    }
    bytes
}

/// The picture `name`, or the PNG beside it that takes its place once its background was removed.
fn find_picture(folder: &Path, name: &str) -> Result<Option<PathBuf>> {
    let relative = Path::new(name);
    if name.is_empty()
        || relative.components().any(|c| !matches!(c, Component::Normal(_) | Component::CurDir))
    {
        return Err(Error::new(
            ErrorKind::InvalidFile,
            format!("the model names a picture {name:?}, which is no path inside the image folder"),
        ));
    }
    let path = folder.join(relative);
    let png = path.with_extension("png");
    Ok([path, png].into_iter().find(|p| p.is_file()))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::camera::{Camera, Image, Point2D, Point3D, Pose};
    use nalgebra::Vector2;

    /// `count` cameras on an arc around a cloud of points; grey pictures of 40x30 are written to `folder`.
    pub(crate) fn arc(folder: &Path, count: u32) -> SparseModel {
        let mut model = SparseModel::default();
        model.cameras.insert(1, Camera::from_focal(CameraModel::Pinhole, 40.0, 40, 30));
        for i in 1..=count {
            let angle = 0.1 * f64::from(i);
            let position = Vector3::new(4.0 * angle.sin(), 0.0, -4.0 * angle.cos());
            let pose = Pose::look_at(&position, &Vector3::zeros(), &-Vector3::y()).unwrap();
            // Names run against the ids, so that sorting by name matters.
            let name = format!("{:03}.png", 100 - i);
            image::RgbImage::from_pixel(40, 30, image::Rgb([i as u8, 2, 3]))
                .save(folder.join(&name))
                .unwrap();
            model.images.insert(i, Image { name, camera_id: 1, pose, points2d: Vec::new() });
        }
        for p in 1..=20u64 {
            let xyz = Vector3::new((p as f64).sin(), (p as f64 * 1.7).cos(), (p as f64 * 0.7).sin()) * 0.5;
            let mut track = Vec::new();
            for (&id, image) in &mut model.images {
                track.push((id, image.points2d.len() as u32));
                image.points2d.push(Point2D { xy: Vector2::zeros(), point3d: Some(p) });
            }
            model.points.insert(p, Point3D { xyz, rgb: [p as u8, 100, 200], error: 0.5, track });
        }
        model
    }

    #[test]
    fn every_nth_by_name_is_held_out() {
        let folder = tempfile::tempdir().unwrap();
        let model = arc(folder.path(), 9);
        let dataset = Dataset::from_model(&model, folder.path(), Some(4)).unwrap();
        assert_eq!(dataset.test, [0, 4, 8]);
        assert_eq!(dataset.views[0].name, "091.png");
        assert_eq!(dataset.train.len(), 6);
        assert_eq!(dataset.points[0].views, (0..9).collect::<Vec<u32>>());
        let all = Dataset::from_model(&model, folder.path(), None).unwrap();
        assert!(all.test.is_empty() && all.train.len() == 9);
        assert_ne!(all.hash(), dataset.hash());
        let targets = all.targets(Some(20), &Control::new()).unwrap();
        // View 0 is 091.png, which image 9 is.
        assert_eq!((targets[0].width, targets[0].height, targets[0].rgb[0]), (20, 15, 9));
        assert!(targets[0].alpha.is_none());
    }

    #[test]
    fn who_only_scores_needs_nothing_to_train_on() {
        let folder = tempfile::tempdir().unwrap();
        let model = arc(folder.path(), 3);
        let sparse = folder.path().join("sparse");
        model.write_binary(&sparse).unwrap();
        let scored = |every| Dataset::open_to_score(&sparse, folder.path(), every);
        let all = scored(1).unwrap();
        assert!(all.test == [0, 1, 2] && all.train.is_empty());
        assert_eq!(scored(2).unwrap().test, [0, 2]);
        let none = scored(0).unwrap_err();
        assert_eq!((none.kind(), none.message()), (ErrorKind::InvalidArgument, "test_every is 0"));
        let trained = |every| Dataset::open(&sparse, folder.path(), Some(every)).unwrap_err().kind();
        assert_eq!((trained(0), trained(1)), (ErrorKind::InvalidArgument, ErrorKind::TooFewFrames));
        // Nor is anything trained on it.
        let options = crate::train::TrainOptions::default();
        let rasteriser = crate::raster::open(&crate::raster::DeviceChoice::Cpu).unwrap();
        let begun = crate::train::Trainer::new(all.clone(), options, rasteriser, &Control::new());
        assert_eq!(begun.err().unwrap().kind(), ErrorKind::TooFewFrames);

        // Of the views that are scored one shows the object, of the others none.
        let masks = folder.path().join("masks");
        std::fs::create_dir(&masks).unwrap();
        for (view, value) in all.views.iter().zip([255, 0, 0]) {
            image::GrayImage::from_pixel(40, 30, image::Luma([value])).save(masks.join(&view.name)).unwrap();
        }
        let of_object = |every| scored(every).unwrap().with_masks(&masks, &Control::new());
        assert_eq!((of_object(1).unwrap().test, of_object(2).unwrap().test), (vec![0], vec![0]));
        std::fs::copy(masks.join(&all.views[1].name), masks.join(&all.views[0].name)).unwrap();
        let error = of_object(1).unwrap_err();
        assert!(error.kind() == ErrorKind::TooFewFrames && error.message().contains("held out"), "{error}");
        assert_eq!(scored(8).unwrap().test, [0]);
    }

    #[test]
    fn depth_of_the_points_is_the_unit_of_length() {
        let folder = tempfile::tempdir().unwrap();
        let mut model = arc(folder.path(), 5);
        let scale = Dataset::from_model(&model, folder.path(), None).unwrap().scene_scale();
        assert!((scale - 4.0).abs() < 0.3, "{scale}");
        model.transform(10.0, &nalgebra::UnitQuaternion::identity(), &Vector3::zeros());
        let grown = Dataset::from_model(&model, folder.path(), None).unwrap().scene_scale();
        assert!((grown / scale - 10.0).abs() < 1e-6);
    }

    #[test]
    fn a_smaller_picture_sees_the_same_rays() {
        let folder = tempfile::tempdir().unwrap();
        let dataset = Dataset::from_model(&arc(folder.path(), 3), folder.path(), None).unwrap();
        let (full, small) = (dataset.view_at(0, None), dataset.view_at(0, Some(17)));
        assert_eq!((full.width, full.height), (40, 30));
        assert_eq!((small.width, small.height), (17, 13));
        assert!((small.fx / 17.0 - full.fx / 40.0).abs() < 1e-12);
        assert!((small.cy / 13.0 - full.cy / 30.0).abs() < 1e-12);
        assert!(full.to_camera(&full.centre()).norm() < 1e-12);
    }

    #[test]
    fn a_picture_has_the_shape_of_its_camera_and_may_be_smaller() {
        let folder = tempfile::tempdir().unwrap();
        let dataset = Dataset::from_model(&arc(folder.path(), 3), folder.path(), None).unwrap();
        let of_size = |width, height| {
            image::RgbImage::new(width, height).save(&dataset.views[1].path).unwrap();
            dataset.targets(None, &Control::new())
        };
        assert_eq!((of_size(20, 15).unwrap()[1].width, dataset.picture(1, Some(8)).unwrap().height), (40, 6));
        let turned = of_size(30, 40).unwrap_err();
        assert_eq!(turned.kind(), ErrorKind::InvalidMedia);
        assert!(turned.message().contains("098.png is 30x40, its camera 40x30"), "{turned}");
        assert!(turned.hint_text().is_some(), "{turned}");
    }

    #[test]
    fn a_mask_has_the_shape_of_its_camera_and_may_be_smaller() {
        let folder = tempfile::tempdir().unwrap();
        let masks = folder.path().join("masks");
        std::fs::create_dir(&masks).unwrap();
        let mut model = arc(folder.path(), 3);
        // So many points that those beside the object can be left out.
        let track = model.points[&1].track.clone();
        for p in 21..=80u64 {
            let xyz = Vector3::new((p as f64).sin(), (p as f64 * 1.7).cos(), (p as f64 * 0.7).sin()) * 0.5;
            model.points.insert(p, Point3D { xyz, rgb: [9; 3], error: 0.5, track: track.clone() });
        }
        // The object is in the left halves.
        let of_sizes = |(w, h): (u32, u32), (mw, mh): (u32, u32)| {
            for taken in model.images.values() {
                let picture = image::RgbImage::from_pixel(w, h, image::Rgb([9; 3]));
                picture.save(folder.path().join(&taken.name)).unwrap();
                let mask =
                    image::GrayImage::from_fn(mw, mh, |x, _| image::Luma([255 * u8::from(2 * x < mw)]));
                mask.save(masks.join(&taken.name)).unwrap();
            }
            let dataset = Dataset::from_model(&model, folder.path(), None).unwrap();
            dataset.with_masks(&masks, &Control::new())
        };
        let (full, half) = ((40, 30), (20, 15));
        let whole = of_sizes(full, full).unwrap();
        let expected = whole.targets(None, &Control::new()).unwrap();
        let alpha: Vec<u8> = (0..40 * 30).map(|i| 255 * u8::from(i % 40 < 20)).collect();
        assert_eq!(expected[0].alpha.as_ref(), Some(&alpha));
        assert!((20..60).contains(&whole.points.len()), "{}", whole.points.len());
        for (picture, mask) in [(half, half), (half, full), (full, half)] {
            let dataset = of_sizes(picture, mask).unwrap();
            assert!(dataset.targets(None, &Control::new()).unwrap() == expected, "{picture:?} {mask:?}");
            assert_eq!(dataset.points, whole.points, "{picture:?} {mask:?}");
        }
        let turned = of_sizes(full, (30, 40)).unwrap_err();
        assert_eq!(turned.kind(), ErrorKind::InvalidMedia);
        assert!(turned.message().contains(".png is 30x40, its camera 40x30"), "{turned}");
    }

    #[test]
    fn where_something_hides_the_object_nothing_is_known() {
        let folder = tempfile::tempdir().unwrap();
        let (masks, of_hidden) = (folder.path().join("masks"), folder.path().join("masks_hidden"));
        let dataset = Dataset::from_model(&arc(folder.path(), 3), folder.path(), None).unwrap();
        for place in [&masks, &of_hidden] {
            std::fs::create_dir(place).unwrap();
        }
        // The object is in the left halves; of that of the second picture something else hides the lower part.
        let save = |path: PathBuf, is_in: &dyn Fn(u32, u32) -> bool| {
            let mask = image::GrayImage::from_fn(40, 30, |x, y| image::Luma([255 * u8::from(is_in(x, y))]));
            mask.save(path).unwrap();
        };
        for view in &dataset.views {
            image::RgbImage::from_pixel(40, 30, image::Rgb([255; 3])).save(&view.path).unwrap();
            save(masks.join(&view.name), &|x, _| x < 20);
        }
        let second = dataset.views[1].name.clone();
        save(masks.join(&second), &|x, y| x < 20 && y < 15);
        let masked = || dataset.clone().with_masks(&masks, &Control::new()).unwrap();
        let untold = masked();
        save(of_hidden.join(&second), &|x, y| x < 20 && y >= 15);
        let told = masked();
        assert_ne!(untold.hash(), told.hash());
        assert_eq!(untold.views[1].hidden, None);
        let targets = told.targets(None, &Control::new()).unwrap();
        assert!(targets[1].hides && !targets[0].hides && !targets[2].hides);
        let alpha = targets[1].alpha.as_ref().unwrap();
        for (pixel, rgb) in targets[1].rgb.chunks_exact(3).enumerate() {
            let (is_left, is_upper) = (pixel % 40 < 20, pixel / 40 < 15);
            assert_eq!(alpha[pixel], 255 * u8::from(is_left && is_upper), "{pixel}");
            assert_eq!(rgb, [255 * u8::from(is_left); 3], "{pixel}");
        }
        // A pixel of which any part is hidden is so.
        let small = told.picture(1, Some(8)).unwrap();
        let hidden = small.hidden.as_ref().unwrap();
        assert_eq!((small.width, small.height), (8, 6));
        assert!((0..48).all(|pixel| hidden[pixel] == (pixel % 8 < 4 && pixel / 8 >= 3)), "{hidden:?}");
    }

    #[test]
    fn what_is_wrong_with_a_model_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let good = arc(folder.path(), 4);
        let kind = |model: &SparseModel, every| Dataset::from_model(model, folder.path(), every).unwrap_err();
        std::fs::remove_file(folder.path().join("098.png")).unwrap();
        let missing = kind(&good, None);
        assert_eq!(missing.kind(), ErrorKind::NotFound);
        assert!(
            missing.to_string().contains("1 of 4") && missing.to_string().contains("098.png"),
            "{missing}"
        );

        let mut distorted = good.clone();
        distorted.cameras.insert(1, Camera::from_focal(CameraModel::SimpleRadial, 40.0, 40, 30));
        assert_eq!(kind(&distorted, None).kind(), ErrorKind::InvalidArgument);

        let mut huge = good.clone();
        huge.cameras.insert(1, Camera::from_focal(CameraModel::Pinhole, 40.0, 65_535, 65_535));
        assert_eq!(kind(&huge, None).kind(), ErrorKind::InvalidFile);

        let mut orphan = good.clone();
        orphan.cameras.clear();
        assert_eq!(kind(&orphan, None).kind(), ErrorKind::InvalidFile);

        let mut outside = good.clone();
        outside.images.get_mut(&1).unwrap().name = "../secret.png".into();
        assert_eq!(kind(&outside, None).kind(), ErrorKind::InvalidFile);

        assert_eq!(kind(&SparseModel::default(), None).kind(), ErrorKind::TooFewFrames);
    }
}
