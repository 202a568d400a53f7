//! From pictures to verified pairs, a focal length and rotations: everything before the mapper, in order.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};

use image::RgbImage;
use nalgebra::{UnitQuaternion, Vector2};
use rayon::prelude::*;

use crate::camera::Camera;
use crate::camera::panorama::side_camera;
use crate::control::{Control, Warning};
use crate::error::Result;
use crate::stage::Stage;
use crate::video::{Frame, Frames, luma};

use super::calibration::{contradicting_focal, estimate_focal};
use super::cut_out::CutOut;
use super::features::{FeatureOptions, Features, extract_where};
use super::kept::{FeaturesAndColors, Kept};
use super::matching::PairMatches;
use super::options::SfmOptions;
use super::other_cameras::OtherCameras;
use super::rig::Rig;
use super::rotation_averaging::{RelativeRotation, RotationAveragingOptions, average_rotations};
use super::two_view::{TwoViewGeometry, TwoViewOptions, Views, estimate_relative_poses};

/// What was read from the pictures, by image.
pub(crate) struct Pictures {
    pub(crate) features: Vec<Features>,
    /// Pixels of the keypoints.
    pub(crate) keypoints: Vec<Vec<Vector2<f64>>>,
    /// Colours at the keypoints.
    pub(crate) colors: Vec<Vec<[u8; 3]>>,
}

impl Pictures {
    /// Lets go of what only matching needs: four fifths of all that is known of the pictures.
    pub(crate) fn forget_descriptors(&mut self) {
        self.features.iter_mut().for_each(|features| features.descriptors = Vec::new());
    }
}

/// Reads every picture once, unless its features were kept: features, and colours at them; where something was cut out there is
/// nothing. Progress goes from 0 to `to`.
pub(crate) fn read_pictures(
    frames: &Frames,
    options: &FeatureOptions,
    kept: &Kept,
    control: &Control,
    to: f32,
) -> Result<Pictures> {
    let count = frames.frames.len();
    let (done, taken_over) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let tell = |n: usize| {
        let message = match taken_over.load(Ordering::Relaxed) {
            0 => format!("{n} of {count} frames"),
            taken => format!("{n} of {count} frames, {taken} taken over"),
        };
        control.progress_with(Stage::Sfm, "features", to * n as f32 / count as f32, message);
    };
    let read: Vec<FeaturesAndColors> = (0..count)
        .into_par_iter()
        .map(|i| {
            control.check()?;
            let found = match kept.features(i) {
                Some(found) => {
                    taken_over.fetch_add(1, Ordering::Relaxed);
                    found
                }
                None => {
                    let found = features_and_colors(frames, i, options)?;
                    kept.keep_features(i, &found);
                    found
                }
            };
            tell(done.fetch_add(1, Ordering::Relaxed) + 1);
            Ok(found)
        })
        .collect::<Result<_>>()?;
    // Threads overtake each other on the way to the listener: the last word is that all are read.
    tell(count);
    let (features, colors): (Vec<_>, Vec<_>) = read.into_iter().unzip();
    let pixel = |k: &super::features::Keypoint| Vector2::new(f64::from(k.x), f64::from(k.y));
    let keypoints = features.iter().map(|f| f.keypoints.iter().map(pixel).collect()).collect();
    Ok(Pictures { features, keypoints, colors })
}

fn features_and_colors(frames: &Frames, image: usize, options: &FeatureOptions) -> Result<FeaturesAndColors> {
    let (picture, cut_out) = read_picture(frames, image)?;
    let is_there = |x, y, scale| cut_out.as_ref().is_none_or(|cut| cut.shows(x, y, scale));
    let features = extract_where(&luma(&picture), is_there, options);
    let colors = features.keypoints.iter().map(|k| color_at(&picture, k.x, k.y)).collect();
    Ok((features, colors))
}

/// A picture, and what of it does not count.
pub(crate) fn read_picture(frames: &Frames, index: usize) -> Result<(RgbImage, Option<CutOut>)> {
    let (picture, alpha) = frames.rgb_and_alpha(index)?;
    Ok((picture, alpha.as_ref().and_then(CutOut::of)))
}

/// The colour of the pixel that contains (x, y).
fn color_at(picture: &RgbImage, x: f32, y: f32) -> [u8; 3] {
    let column = (x.max(0.0) as u32).min(picture.width().saturating_sub(1));
    let row = (y.max(0.0) as u32).min(picture.height().saturating_sub(1));
    picture.get_pixel(column, row).0
}

/// The cameras of a capture before anything was measured.
pub(crate) struct InitialCameras {
    /// The one that made most images, then the others.
    pub(crate) cameras: Vec<Camera>,
    /// By camera: the focal length in pixels that the caller or EXIF names.
    pub(crate) known_focals: Vec<Option<f64>>,
    /// By camera: whether EXIF names it, and nobody else.
    pub(crate) is_of_exif: Vec<bool>,
    /// By image: its camera.
    pub(crate) of_image: Vec<usize>,
}

impl InitialCameras {
    /// The images that a camera made.
    pub(crate) fn images_of(&self, camera: usize) -> Vec<usize> {
        (0..self.of_image.len()).filter(|&i| self.of_image[i] == camera).collect()
    }

    /// All but the first, as a map has them.
    pub(crate) fn others(&self) -> OtherCameras {
        OtherCameras::new(self.cameras.iter().skip(1).cloned().collect(), &self.of_image)
    }

    /// The same cameras with this one first.
    pub(crate) fn led_by(mut self, camera: usize) -> Self {
        self.cameras.swap(0, camera);
        self.known_focals.swap(0, camera);
        self.is_of_exif.swap(0, camera);
        for of in &mut self.of_image {
            *of = match *of {
                0 => camera,
                k if k == camera => 0,
                k => k,
            };
        }
        self
    }
}

/// The numbers of the cameras, that of the one that made most images first.
fn camera_numbers(frames: &Frames) -> Vec<u32> {
    let mut numbers: BTreeMap<u32, usize> = BTreeMap::new();
    frames.frames.iter().for_each(|f| *numbers.entry(f.camera).or_default() += 1);
    let mut numbers: Vec<(u32, usize)> = numbers.into_iter().collect();
    numbers.sort_by_key(|&(number, images)| (Reverse(images), number));
    numbers.into_iter().map(|(number, _)| number).collect()
}

/// The number of the camera that made most images, of which the caller names the focal length if he names one.
pub(crate) fn leading_camera(frames: &Frames) -> Option<u32> {
    camera_numbers(frames).first().copied()
}

/// The cameras to begin with: the focal length that the caller (of the camera that made most images) or EXIF names, else
/// COLMAP's guess of 1.2 times the longer side.
pub(crate) fn initial_cameras(frames: &Frames, options: &SfmOptions) -> InitialCameras {
    let numbers = camera_numbers(frames);
    // Every number is in the list: it was made of them.
    let rank = |f: &Frame| numbers.iter().position(|&number| number == f.camera).unwrap_or(0);
    let of_image: Vec<usize> = frames.frames.iter().map(rank).collect();
    let of_camera = |k: usize| -> Option<(Camera, Option<f64>, bool)> {
        let images = || frames.frames.iter().zip(&of_image).filter(move |(_, of)| **of == k).map(|(f, _)| f);
        let first = images().next()?;
        if first.side.is_some() {
            let camera = side_camera(first.width);
            let focal = camera.mean_focal();
            return Some((camera, Some(focal), false));
        }
        let mut exif: Vec<f64> = images().filter_map(|f| f.focal_prior).filter(|f| *f > 0.0).collect();
        let given = options.focal.filter(|_| k == 0);
        let known = given.or_else(|| crate::statistics::median(&mut exif));
        let guess = 1.2 * f64::from(first.width.max(first.height));
        let focal = known.unwrap_or(guess);
        let camera = Camera::from_focal(options.camera_model, focal, first.width, first.height);
        Some((camera, known, given.is_none() && known.is_some()))
    };
    let found: Vec<_> = (0..numbers.len()).filter_map(of_camera).collect();
    let mut initial =
        InitialCameras { cameras: Vec::new(), known_focals: Vec::new(), is_of_exif: Vec::new(), of_image };
    for (camera, known, is_of_exif) in found {
        initial.cameras.push(camera);
        initial.known_focals.push(known);
        initial.is_of_exif.push(is_of_exif);
    }
    initial
}

/// A camera to begin with, and what is known of its focal length.
pub(crate) struct Calibrated {
    pub(crate) camera: Camera,
    /// The focal length in pixels that the caller or EXIF names, if it is believed.
    pub(crate) known: Option<f64>,
    /// What EXIF says, if it is not believed.
    not_believed: Option<f64>,
}

impl Calibrated {
    /// That what EXIF says is not believed, if it is not.
    pub(crate) fn warning(&self) -> Option<Warning> {
        let found = self.camera.mean_focal();
        self.not_believed.map(|said| {
            let message = format!(
                "the EXIF data say a focal length of {said:.0} pixels, and the pictures by themselves determine one of {found:.0}: the \
                 EXIF data are not believed; one that is given (--focal) is"
            );
            Warning::new("focal_not_believed", message)
        })
    }
}

/// Camera `k` of these, which made all `pictures`, with the focal length to begin with, and what is known of it. What the caller says is
/// believed; what EXIF says, unless the verified pairs clearly say something else, after which nothing is known. Where nothing is, it is
/// what the pairs agree on; the guess stays where they say nothing.
///
/// # Errors
/// [`ErrorKind::Cancelled`](crate::ErrorKind::Cancelled).
pub(crate) fn calibrated(
    initial: &InitialCameras,
    k: usize,
    pictures: &Pictures,
    verified: &[TwoViewGeometry],
    control: &Control,
) -> Result<Calibrated> {
    let (mut camera, known) = (initial.cameras[k].clone(), initial.known_focals[k]);
    let camera_of = vec![0; pictures.features.len()];
    let cameras = [camera.clone()];
    let views = Views { features: &pictures.features, camera_of: &camera_of, cameras: &cameras };
    let estimate = match known {
        None => estimate_focal(&views, verified, control)?,
        Some(focal) if initial.is_of_exif[k] => contradicting_focal(&views, verified, focal, control)?,
        Some(_) => None,
    };
    let Some(estimate) = estimate else { return Ok(Calibrated { camera, known, not_believed: None }) };
    log::debug!("focal length {known:?} in the EXIF data, {estimate:?} by the pairs");
    camera.params = Camera::from_focal(camera.model, estimate.focal, camera.width, camera.height).params;
    // What was known, if anything was, is what the estimate contradicts.
    Ok(Calibrated { camera, known: None, not_believed: known })
}

/// Relative poses of the verified pairs for calibrated `cameras`, in their order; degenerate pairs are left out. `camera_of` says
/// which of them made each image.
pub(crate) fn relative_poses(
    pictures: &Pictures,
    (cameras, camera_of): (&[Camera], &[usize]),
    matches: &[PairMatches],
    verified: &[TwoViewGeometry],
    options: &TwoViewOptions,
    control: &Control,
) -> Result<Vec<TwoViewGeometry>> {
    let views = Views { features: &pictures.features, camera_of, cameras };
    let mut pairs = estimate_relative_poses(&views, matches, verified, options, control)?;
    pairs.retain(|p| p.second_from_first.is_some() && !p.inliers.is_empty());
    Ok(pairs)
}

/// Absolute rotations by image; pairs that contradict them are taken out of `pairs`. Those of one station are averaged as
/// one.
pub(crate) fn absolute_rotations(
    rig: &Rig,
    pairs: &mut Vec<TwoViewGeometry>,
    control: &Control,
) -> Result<Vec<Option<UnitQuaternion<f64>>>> {
    let relative: Vec<RelativeRotation> = pairs
        .iter()
        .filter_map(|p| {
            let (first, second) = (p.first as usize, p.second as usize);
            let rotation = p.second_from_first?.rotation;
            Some(RelativeRotation {
                first: rig.station_of(first) as u32,
                second: rig.station_of(second) as u32,
                second_from_first: rig.between_stations(first, second, &rotation),
                weight: p.inliers.len() as f64,
            })
        })
        .collect();
    let options = RotationAveragingOptions::default();
    let averaged = average_rotations(rig.stations(), &relative, &options, control)?;
    let mut kept = averaged.kept.iter();
    pairs.retain(|_| kept.next().copied().unwrap_or(false));
    let of_image = |i| averaged.cam_from_world[rig.station_of(i)].map(|r| rig.rotation_of_image(i, &r));
    Ok((0..rig.images()).map(of_image).collect())
}

#[cfg(test)]
mod tests {
    use image::{Rgba, RgbaImage};

    use super::*;
    use crate::camera::CameraModel;
    use crate::random::Random;
    use crate::sfm::calibration::tests::{asked, coming_closer};

    #[test]
    fn it_is_told_that_what_exif_says_is_not_believed() {
        asked(&coming_closer(2), 900.0, 9, 2, |views, verified| {
            let (features, count) = (views.features.to_vec(), views.features.len());
            let pictures = Pictures { features, keypoints: Vec::new(), colors: Vec::new() };
            let begun = |focal: f64, is_of_exif: bool| {
                let initial = InitialCameras {
                    cameras: vec![Camera::from_focal(CameraModel::SimplePinhole, focal, 1000, 800)],
                    known_focals: vec![Some(focal)],
                    is_of_exif: vec![is_of_exif],
                    of_image: vec![0; count],
                };
                calibrated(&initial, 0, &pictures, verified, &Control::new()).unwrap()
            };
            let cropped = begun(1500.0, true);
            let found = cropped.camera.mean_focal();
            assert!(cropped.known.is_none() && (found / 900.0).ln().abs() < 0.02, "{found}");
            let warning = cropped.warning().unwrap();
            assert_eq!(warning.code, "focal_not_believed");
            for said in ["1500 pixels", format!("one of {found:.0}").as_str(), "--focal"] {
                assert!(warning.message.contains(said), "{warning:?}");
            }
            // What agrees, and what somebody gave.
            for (focal, is_of_exif) in [(900.0, true), (1500.0, false)] {
                let believed = begun(focal, is_of_exif);
                assert_eq!((believed.known, believed.camera.mean_focal()), (Some(focal), focal));
                assert_eq!(believed.warning(), None);
            }
        });
    }

    #[test]
    fn what_the_caller_says_of_the_camera_that_made_most_is_not_what_exif_says() {
        let frame = |(i, (camera, focal_prior)): (usize, (u32, Option<f64>))| Frame {
            camera,
            focal_prior,
            ..Frame::new(format!("{i}.jpg"), i as u64, 800, 600)
        };
        let made = [(7, Some(500.0)), (2, Some(900.0)), (7, Some(520.0)), (4, None), (7, None)];
        let frames = Frames::of_images("", made.into_iter().enumerate().map(frame).collect());
        assert_eq!(leading_camera(&frames), Some(7));
        let by_exif = initial_cameras(&frames, &SfmOptions::default());
        assert_eq!(by_exif.known_focals, [Some(520.0), Some(900.0), None]);
        assert_eq!(by_exif.is_of_exif, [true, true, false]);
        let told = initial_cameras(&frames, &SfmOptions { focal: Some(640.0), ..SfmOptions::default() });
        assert_eq!(told.known_focals, [Some(640.0), Some(900.0), None]);
        assert_eq!(
            (&told.is_of_exif[..], &told.of_image[..]),
            (&[false, true, false][..], &[0, 1, 0, 2, 0][..])
        );
        assert_eq!(told.led_by(1).is_of_exif, [true, false, false]);
    }

    #[test]
    fn what_was_cut_out_has_no_features_nor_has_its_outline() {
        let folder = tempfile::tempdir().unwrap();
        // Soft spots everywhere, on the object and under what was cut out.
        let mut random = Random::new(7);
        let spots: Vec<[f64; 4]> = (0..900)
            .map(|_| {
                [
                    random.uniform() * 400.0,
                    random.uniform() * 300.0,
                    1.5 + 4.0 * random.uniform(),
                    random.normal(),
                ]
            })
            .collect();
        let grey = |x: u32, y: u32| {
            let spot = |[u, v, r, height]: &[f64; 4]| {
                let square = (f64::from(x) - u).powi(2) + (f64::from(y) - v).powi(2);
                if square > 16.0 * r * r { 0.0 } else { 60.0 * height * (-0.5 * square / (r * r)).exp() }
            };
            (128.0 + spots.iter().map(spot).sum::<f64>()).clamp(1.0, 255.0) as u8
        };
        let inside = |x: f64, y: f64| 100.0 - (x - 200.0).hypot(y - 150.0);
        let on_object = |x: u32, y: u32| inside(f64::from(x) + 0.5, f64::from(y) + 0.5) > 0.0;
        let whole = RgbaImage::from_fn(400, 300, |x, y| Rgba([grey(x, y), grey(x, y), grey(x, y), 255]));
        let hidden = RgbaImage::from_fn(400, 300, |x, y| {
            let [r, g, b, _] = whole.get_pixel(x, y).0;
            Rgba([r, g, b, if on_object(x, y) { 255 } else { 0 }])
        });
        let black =
            RgbaImage::from_fn(
                400,
                300,
                |x, y| {
                    if on_object(x, y) { *whole.get_pixel(x, y) } else { Rgba([0; 4]) }
                },
            );
        let frame = |(i, picture): (usize, &RgbaImage)| {
            let name = format!("{i}.png");
            picture.save(folder.path().join(&name)).unwrap();
            Frame::new(name, i as u64, 400, 300)
        };
        let pictures = [&whole, &hidden, &black].into_iter().enumerate();
        let frames = Frames::of_images(folder.path(), pictures.map(frame).collect());
        let options = FeatureOptions::default();
        let read = read_pictures(&frames, &options, &Kept::nowhere(), &Control::new(), 1.0).unwrap();
        let apart = |k: &super::super::features::Keypoint| {
            inside(f64::from(k.x), f64::from(k.y)) / f64::from(k.scale)
        };
        let [all, hidden, black] = [0, 1, 2].map(|i| &read.features[i].keypoints);
        assert!(all.iter().filter(|k| apart(k) < 0.0).count() > 200);
        for kept in [hidden, black] {
            assert!(
                kept.iter().all(|k| apart(k) > 2.5),
                "{:?}",
                kept.iter().map(apart).min_by(f64::total_cmp)
            );
        }
        // Those on the object are found all the same.
        let clear = all.iter().filter(|k| apart(k) > 4.0).count();
        assert!(clear > 100 && hidden.len() >= clear && black.len() * 10 >= clear * 9);
        assert_eq!(read.colors[1].len(), hidden.len());
    }
}
