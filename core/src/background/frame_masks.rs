//! A map for every frame, before anything is known of the cameras: from the network, or given by the user.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

use image::imageops::{FilterType, resize, rotate90, rotate180, rotate270};
use image::{GrayImage, ImageBuffer, Pixel, RgbImage};
use rayon::prelude::*;
use serde::{Deserialize, Serialize};

use super::guided_filter::box_mean;
use super::network::{NETWORK_SIDE, SaliencyNetwork};
use super::object_point::ObjectPoint;
use super::sampled_maps::{in_between, sampled};
use super::weights::find_model;
use crate::control::Control;
use crate::defaults::with_defaults;
use crate::error::{Error, ErrorKind, Result};
use crate::masks::{LEAST_COVERAGE, coverage, find_masks, intersection_over_union, is_object, read_mask};
use crate::stage::Stage;
use crate::video::Frames;

/// Where masks come from.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct MaskOptions {
    /// The network's file; `None` = the installed one ([`find_model`]).
    pub model: Option<PathBuf>,
    /// A folder of masks to use instead of the network: one for every picture, see [`crate::masks::find_mask`].
    pub masks: Option<PathBuf>,
    /// Where the object is in one picture, where it is not what catches the eye most.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub object_at: Option<ObjectPoint>,
    /// A disc of the ground to keep under the object, so many times as wide as the object, up to [`WIDEST_FLOOR`]; `None` =
    /// no ground.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub keep_floor: Option<f64>,
}

/// The largest disc of ground that can be kept, in units of the object's radius.
pub const WIDEST_FLOOR: f64 = 20.0;

impl MaskOptions {
    /// These options, if the user `asked` for the background to be removed or they imply it: by a folder of masks, with which
    /// `model` is not needed, by pointing at the object, or by a floor to keep.
    pub fn wanted(self, asked: bool) -> Option<Self> {
        let implied = self.masks.is_some() || self.object_at.is_some() || self.keep_floor.is_some();
        let model = self.model.filter(|_| self.masks.is_none());
        (asked || implied).then_some(Self { model, ..self })
    }

    /// Whether masks can be made; asked before any work is done.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] if the weights or the folder are not there; [`ErrorKind::InvalidArgument`] if the object is
    /// pointed at, or a floor is to be kept, though masks are given, or if the floor is no size.
    pub fn check(&self) -> Result<()> {
        if let Some(wide) = self.keep_floor.filter(|wide| !(*wide > 0.0 && *wide <= WIDEST_FLOOR)) {
            return Err(Error::argument(format!("the floor to keep is {wide} times as wide as the object"))
                .hint(format!("give more than 0 and at most {WIDEST_FLOOR}, for example 1.5")));
        }
        let at = self.object_at.as_ref().map(|at| format!("the object is to be at {at}"));
        let floor =
            self.keep_floor.map(|wide| format!("a floor {wide} times as wide as the object is to be kept"));
        if let (Some(wish), Some(folder)) = (at.or(floor), &self.masks) {
            let folder = folder.display();
            return Err(Error::argument(format!(
                "{wish}, but masks are given in {folder}, which are taken as they are"
            )));
        }
        match &self.masks {
            Some(folder) if folder.is_dir() => Ok(()),
            Some(folder) => Err(Error::new(
                ErrorKind::NotFound,
                format!("the folder of masks {} does not exist", folder.display()),
            )),
            None => find_model(self.model.as_deref()).map(|_| ()),
        }
    }
}

/// A map for every frame: the probability of each pixel to be object. A map covers its whole frame, at any size.
#[derive(Debug, Clone)]
pub struct FrameMasks {
    /// 255 = certainly object.
    pub maps: Vec<GrayImage>,
    /// Whether the user gave them: they are taken as they are.
    pub given: bool,
    /// Mean overlap (intersection over union) of the maps of neighbouring frames.
    pub agreement: f64,
    /// Frames whose map was replaced by the mean of its neighbours', because they agree with each other and not with
    /// it.
    pub replaced: usize,
    /// By frame: whether its map is of itself. Of a long video the network looks at some frames only, and the maps of those between are
    /// means of theirs.
    pub looked: Vec<bool>,
    /// Where the user says that the object is: in which picture, and there.
    pub object_at: Option<(usize, ObjectPoint)>,
    /// The disc of ground to keep, in units of the object's radius.
    pub keep_floor: Option<f64>,
}

with_defaults! {
    /// What is made of the maps of single frames. Chosen by hand.
    #[derive(Debug, Clone, PartialEq)]
    struct FrameMaskOptions {
        /// Number of pictures that go through the network at the same time, at most. One is read while another is
        /// computed; each needs some 150 MB.
        most_at_once: usize = 4,
        /// Number of frames of a video at which the network looks, at most: looking is half of the work. With 50 of the 80 to 103
        /// frames of three videos masks had an overlap larger by 0.001 to 0.007 than with all, with 25 by 0.007 to -0.004.
        most_frames: usize = 50,
        /// The network is taken to be wrong in a frame whose map overlaps (intersection over union) less than this with
        /// both neighbours',
        flicker: f64 = 0.3,
        /// if these overlap more than this with each other.
        steady: f64 = 0.6,
        /// Features this near to the object (pixels of 320) are kept: those at its edge belong to it.
        feature_margin: usize = 8,
    }
}

impl FrameMasks {
    /// The maps of the pictures `names`, which `picture` reads by their index: by the network, or from the folder of
    /// masks. `sequential` pictures are the frames of a video.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] without weights, or if a picture has no mask; [`ErrorKind::InvalidArgument`] if the object
    /// is to be where there is no picture; what reading pictures and the network report; [`ErrorKind::Cancelled`].
    pub fn make(
        names: &[String],
        picture: &(dyn Fn(usize) -> Result<RgbImage> + Sync),
        sequential: bool,
        options: &MaskOptions,
        control: &Control,
    ) -> Result<Self> {
        Self::make_laid(names, picture, &vec![0; names.len()], sequential, options, control)
    }

    /// [`make`](Self::make) where pictures are stored turned clockwise from upright by so many `quarter_turns` each: the
    /// network knows upright things, and people draw masks over upright pictures.
    fn make_laid(
        names: &[String],
        picture: &(dyn Fn(usize) -> Result<RgbImage> + Sync),
        quarter_turns: &[u8],
        sequential: bool,
        options: &MaskOptions,
        control: &Control,
    ) -> Result<Self> {
        let control = &control.with_remaining_time();
        let fixed = FrameMaskOptions::default();
        let object_at = match &options.object_at {
            Some(point) => {
                let index = point.picture(names)?;
                let (width, height) = picture(index)?.dimensions();
                point.check_inside(width, height)?;
                Some((index, point.clone()))
            }
            None => None,
        };
        let (count, is_given) = (names.len(), options.masks.is_some());
        let frames = sampled(count, if sequential && !is_given { fixed.most_frames } else { count });
        let mut maps = match &options.masks {
            Some(folder) => given(names, folder, picture, quarter_turns)?,
            None => {
                let upright = |i: usize| Ok(turned(picture(i)?, 4 - quarter_turns[i] % 4));
                let maps = found(&frames, &upright, options.model.as_deref(), fixed.most_at_once, control)?;
                let turned = |(map, frame): (GrayImage, &usize)| turned(map, quarter_turns[*frame]);
                maps.into_iter().zip(&frames).map(turned).collect()
            }
        };
        let replaced = if sequential && !is_given { steady(&mut maps, &fixed) } else { 0 };
        let agreement = agreement(&maps);
        if frames.len() < count {
            let looked: Vec<(usize, GrayImage)> = frames.iter().copied().zip(maps).collect();
            maps = in_between(&looked, count);
        }
        let masks = Self {
            maps,
            given: is_given,
            agreement,
            replaced,
            looked: (0..count).map(|frame| frames.binary_search(&frame).is_ok()).collect(),
            object_at,
            keep_floor: options.keep_floor,
        };
        if let (Some(folder), true) = (&options.masks, masks.maps.iter().all(|map| coverage(map) == 0.0)) {
            let (count, folder) = (masks.maps.len(), folder.display());
            let what = format!("none of the {count} masks in {folder} shows an object");
            return Err(Error::new(ErrorKind::InvalidMedia, what).hint(
                "masks are white (more than 127 of 255) where the object is; those of 0 and 1 have to be multiplied by 255",
            ));
        }
        Ok(masks)
    }

    /// The maps of `frames`, with which [`mask_frames`](super::mask_frames) and
    /// [`reconstruct_object`](super::reconstruct_object) begin.
    ///
    /// # Errors
    /// Those of [`make`](Self::make).
    pub fn of(frames: &Frames, options: &MaskOptions, control: &Control) -> Result<Self> {
        let names: Vec<String> = frames.frames.iter().map(|f| f.name.clone()).collect();
        let turns: Vec<u8> = frames.frames.iter().map(|f| f.quarter_turns).collect();
        // The sides of a panorama, which follow each other, show different things.
        let sequential = frames.is_sequential() && !frames.is_panoramic();
        Self::make_laid(&names, &|i| frames.rgb(i), &turns, sequential, options, control)
    }

    /// Number of frames whose map is of themselves ([`looked`](Self::looked)).
    pub fn pictures(&self) -> usize {
        self.looked.iter().filter(|looked| **looked).count()
    }

    /// Number of these in which there is an object.
    pub fn found(&self) -> usize {
        let own = self.maps.iter().zip(&self.looked).filter(|(_, looked)| **looked);
        own.filter(|(map, _)| coverage(map) > LEAST_COVERAGE).count()
    }

    /// Where features are kept (255): on the object and a little around it. 320 x 320.
    pub fn for_features(&self) -> Vec<GrayImage> {
        let margin = FrameMaskOptions::default().feature_margin;
        self.maps.iter().map(|map| widened(map, margin)).collect()
    }
}

/// The object with `margin` pixels around it, 320 x 320.
fn widened(map: &GrayImage, margin: usize) -> GrayImage {
    let side = NETWORK_SIDE as usize;
    let small = match map.dimensions() {
        (NETWORK_SIDE, NETWORK_SIDE) => map.clone(),
        _ => resize(map, NETWORK_SIDE, NETWORK_SIDE, FilterType::Triangle),
    };
    let mut plane: Vec<f32> = small.as_raw().iter().map(|v| f32::from(u8::from(is_object(*v)))).collect();
    box_mean(&mut plane, side, side, margin);
    // One pixel of object in the window of 17 x 17 makes a mean of 1/289; rounding of the running sums makes far less.
    GrayImage::from_fn(NETWORK_SIDE, NETWORK_SIDE, |x, y| {
        image::Luma([255 * u8::from(plane[y as usize * side + x as usize] > 1e-3)])
    })
}

/// What the network says of these frames.
fn found(
    frames: &[usize],
    picture: &(dyn Fn(usize) -> Result<RgbImage> + Sync),
    model: Option<&Path>,
    most_at_once: usize,
    control: &Control,
) -> Result<Vec<GrayImage>> {
    let lanes = rayon::current_num_threads().clamp(1, most_at_once.max(1));
    let networks = SaliencyNetwork::open(&find_model(model)?)?.side_by_side(lanes);
    let (done, count) = (AtomicUsize::new(0), frames.len());
    let map = |network: &SaliencyNetwork, at: usize| {
        control.check()?;
        let map = network.saliency(&picture(frames[at])?)?;
        let done = 1 + done.fetch_add(1, Ordering::Relaxed);
        let message = format!("{done} of {count} frames");
        control.progress_with(Stage::Sfm, "finding the object", done as f32 / count as f32, message);
        Ok((at, map))
    };
    let mut maps: Vec<(usize, GrayImage)> = networks
        .par_iter()
        .enumerate()
        .map(|(lane, network)| {
            (lane..count).step_by(lanes).map(|at| map(network, at)).collect::<Result<Vec<_>>>()
        })
        .collect::<Result<Vec<_>>>()?
        .concat();
    maps.sort_by_key(|(at, _)| *at);
    Ok(maps.into_iter().map(|(_, map)| map).collect())
}

/// The masks in `folder`, laid as the pictures are. A mask of a picture that lies on its side was drawn over the upright
/// one, unless it lies as the picture does.
fn given(
    names: &[String],
    folder: &Path,
    picture: &(dyn Fn(usize) -> Result<RgbImage> + Sync),
    quarter_turns: &[u8],
) -> Result<Vec<GrayImage>> {
    let paths = find_masks(folder, names.iter().map(String::as_str))?;
    let read = |(i, (path, &turns)): (usize, (&PathBuf, &u8))| {
        let mask = read_mask(path)?;
        if turns % 4 == 0 {
            return Ok(mask);
        }
        let (width, height) = picture(i)?.dimensions();
        let lies_as_the_picture =
            mask.width() != mask.height() && (mask.width() > mask.height()) == (width > height);
        Ok(if lies_as_the_picture { mask } else { turned(mask, turns) })
    };
    paths.iter().zip(quarter_turns).enumerate().map(read).collect()
}

/// The picture, turned clockwise.
fn turned<P: Pixel + 'static>(
    picture: ImageBuffer<P, Vec<P::Subpixel>>,
    quarter_turns: u8,
) -> ImageBuffer<P, Vec<P::Subpixel>> {
    match quarter_turns % 4 {
        1 => rotate90(&picture),
        2 => rotate180(&picture),
        3 => rotate270(&picture),
        _ => picture,
    }
}

/// Replaces what flickers: maps of single frames that contradict both neighbours. Returns how many.
fn steady(maps: &mut [GrayImage], options: &FrameMaskOptions) -> usize {
    let flickers: Vec<usize> = (1..maps.len().saturating_sub(1))
        .filter(|&k| {
            let overlap = |a: usize, b: usize| intersection_over_union(&maps[a], &maps[b]);
            overlap(k - 1, k) < options.flicker
                && overlap(k, k + 1) < options.flicker
                && overlap(k - 1, k + 1) > options.steady
        })
        .collect();
    for &k in &flickers {
        let mean = |a: &u8, b: &u8| ((u16::from(*a) + u16::from(*b)) / 2) as u8;
        let values: Vec<u8> =
            maps[k - 1].as_raw().iter().zip(maps[k + 1].as_raw()).map(|(a, b)| mean(a, b)).collect();
        if let Some(map) = GrayImage::from_raw(maps[k].width(), maps[k].height(), values) {
            maps[k] = map;
        }
    }
    flickers.len()
}

fn agreement(maps: &[GrayImage]) -> f64 {
    let overlaps: Vec<f64> = maps
        .windows(2)
        .filter(|w| w[0].dimensions() == w[1].dimensions())
        .map(|w| intersection_over_union(&w[0], &w[1]))
        .collect();
    if overlaps.is_empty() { 1.0 } else { overlaps.iter().sum::<f64>() / overlaps.len() as f64 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::masks::write_mask;

    /// A square object at column `x`.
    fn square(x: u32) -> GrayImage {
        GrayImage::from_fn(NETWORK_SIDE, NETWORK_SIDE, |u, v| {
            image::Luma([255 * u8::from((x..x + 60).contains(&u) && (100..160).contains(&v))])
        })
    }

    #[test]
    fn a_frame_that_contradicts_both_neighbours_takes_theirs() {
        let mut maps = vec![square(100), square(105), GrayImage::new(320, 320), square(115), square(120)];
        let before = agreement(&maps);
        assert_eq!(steady(&mut maps, &FrameMaskOptions::default()), 1);
        assert!(intersection_over_union(&maps[2], &square(110)) > 0.7);
        assert!(agreement(&maps) > before);
        // An object that leaves for good is no flicker.
        let mut leaves = vec![square(100), square(105), GrayImage::new(320, 320), GrayImage::new(320, 320)];
        assert_eq!(steady(&mut leaves, &FrameMaskOptions::default()), 0);
    }

    #[test]
    fn features_are_kept_on_the_object_and_at_its_edge() {
        let masks = FrameMasks {
            maps: vec![square(100)],
            given: false,
            agreement: 1.0,
            replaced: 0,
            looked: vec![true],
            object_at: None,
            keep_floor: None,
        };
        let mask = &masks.for_features()[0];
        let at = |x: u32, y: u32| mask.get_pixel(x, y).0[0];
        assert_eq!((at(130, 130), at(93, 130), at(80, 130), at(130, 180)), (255, 255, 0, 0));
        assert_eq!(masks.found(), 1);
    }

    #[test]
    fn a_mask_of_an_upright_picture_is_turned_as_its_frame_was() {
        let folder = tempfile::tempdir().unwrap();
        let names = ["a.jpg".to_owned(), "b.jpg".to_owned(), "c.jpg".to_owned(), "d.jpg".to_owned()];
        // What the photograph on end shows at its top is at the right of the frame that was turned clockwise.
        let upright = GrayImage::from_fn(30, 40, |_, y| image::Luma([255 * u8::from(y < 10)]));
        let stored = GrayImage::from_fn(40, 30, |x, _| image::Luma([255 * u8::from(x >= 30)]));
        let square = GrayImage::from_fn(20, 20, |_, y| image::Luma([255 * u8::from(y < 5)]));
        let masks = [("a.png", &stored), ("b.png", &upright), ("c.png", &stored), ("d.png", &square)];
        for (name, mask) in masks {
            write_mask(&folder.path().join(name), mask).unwrap();
        }
        let options = MaskOptions { masks: Some(folder.path().to_owned()), ..MaskOptions::default() };
        let picture = |_: usize| Ok(RgbImage::new(400, 300));
        let turns = [0, 1, 1, 1];
        let made = FrameMasks::make_laid(&names, &picture, &turns, false, &options, &Control::new()).unwrap();
        // A mask that lies as the frame does was drawn over the frame.
        assert!(made.maps[..3].iter().all(|map| *map == stored));
        assert_eq!(made.maps[3], GrayImage::from_fn(20, 20, |x, _| image::Luma([255 * u8::from(x >= 15)])));
    }

    #[test]
    fn given_masks_must_be_there_for_every_picture() {
        let folder = tempfile::tempdir().unwrap();
        let names = ["frame_000001.jpg".to_owned(), "frame_000004.jpg".to_owned()];
        let options = MaskOptions { masks: Some(folder.path().to_owned()), ..MaskOptions::default() };
        write_mask(&folder.path().join("frame_000001.png"), &square(10)).unwrap();
        let make = || {
            let unread = |_| Err(Error::new(ErrorKind::Internal, "no picture is needed"));
            FrameMasks::make(&names, &unread, true, &options, &Control::new())
        };
        let error = make().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotFound);
        assert!(
            error.message().contains("1 of 2") && error.message().contains("frame_000004.jpg"),
            "{error}"
        );
        write_mask(&folder.path().join("000004.png"), &square(20)).unwrap();
        let masks = make().unwrap();
        assert!(masks.given && masks.maps[1] == square(20));
        // What a program writes that counts objects from 1.
        for name in ["frame_000001.png", "000004.png"] {
            GrayImage::from_pixel(8, 8, image::Luma([1])).save(folder.path().join(name)).unwrap();
        }
        let ones = make().unwrap_err();
        assert!(ones.kind() == ErrorKind::InvalidMedia && ones.to_string().contains("255"), "{ones}");
        let pointed = MaskOptions { object_at: Some("3,4".parse().unwrap()), ..options.clone() };
        assert_eq!(pointed.check().unwrap_err().kind(), ErrorKind::InvalidArgument);
        let floor = MaskOptions { keep_floor: Some(1.5), ..options.clone() };
        assert!(floor.check().unwrap_err().message().contains("1.5 times"));
        for wide in [0.0, -1.0, 21.0, f64::NAN, f64::INFINITY] {
            let floor = MaskOptions { keep_floor: Some(wide), ..MaskOptions::default() };
            let error = floor.check().unwrap_err();
            assert!(error.to_string().contains("at most 20"), "{wide}: {error}");
        }
        let none = MaskOptions { masks: Some(folder.path().join("no")), ..MaskOptions::default() };
        assert_eq!(none.check().unwrap_err().kind(), ErrorKind::NotFound);
    }
}
