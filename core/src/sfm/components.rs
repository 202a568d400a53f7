//! Other places that a capture shows: frames that share nothing with its model (two clips joined, a door gone through in
//! the dark) and hang together by themselves. Each such component becomes a model of its own, as if it had been filmed
//! alone.

use std::collections::{BTreeMap, BTreeSet};

use crate::camera::SparseModel;
use crate::control::{Control, Warning};
use crate::error::{ErrorKind, Result};
use crate::fiducial::Tags;
use crate::stage::Stage;
use crate::video::Frames;

use super::front_end::Pictures;
use super::gate::describe;
use super::matching::PairMatches;
use super::progress;
use super::reconstruction::Reconstruction;
use super::report::{ComponentReport, ranges};
use super::scale_averaging::components;
use super::two_view::TwoViewGeometry;

/// Fewer frames are no place but some that could not be placed.
const LEAST_FRAMES: usize = 8;
/// Nor is a smaller share of the capture.
const LEAST_SHARE: f64 = 0.05;
/// A frame shows what the model shows if its matches with frames of the model are this part of those of its best pair beside, or more.
/// Chosen by hand.
const SHARED: f64 = 0.15;

/// The frames of a capture, with what was found in them and between them.
#[derive(Clone, Copy)]
pub(super) struct Matched<'a> {
    pub(super) frames: &'a Frames,
    pub(super) pictures: &'a Pictures,
    /// Candidate matches.
    pub(super) matches: &'a [PairMatches],
    /// Verified pairs, found without a focal length.
    pub(super) verified: &'a [TwoViewGeometry],
    pub(super) tags: Option<&'a Tags>,
}

/// Adds to `found`, the model of the capture, those of the other places that it shows, largest first. `reconstruct` makes
/// a model of a capture.
///
/// # Errors
/// `Cancelled`. Frames of which no sound model can be made are left alone.
pub(super) fn add_components(
    found: &mut Reconstruction,
    capture: &Matched<'_>,
    reconstruct: impl Fn(&Matched<'_>, &Control) -> Result<Reconstruction>,
    control: &Control,
) -> Result<()> {
    let count = capture.frames.frames.len();
    let least = least_frames(count);
    let in_model: Vec<bool> =
        (0..count).map(|image| found.model.images.contains_key(&(image as u32 + 1))).collect();
    let mut open: Vec<bool> = in_model.iter().map(|placed| !placed).collect();
    let silent = Control::new().with_cancel(control.cancel_token().clone());
    while let Some(images) = largest_component(&open, capture.verified).filter(|c| c.len() >= least) {
        if show_the_same(&images, &in_model, capture) {
            log::debug!("{} frames by cameras that were left out show what the model shows", images.len());
            images.iter().for_each(|&image| open[image] = false);
            continue;
        }
        control.progress(Stage::Sfm, "another place", progress::OTHER_PLACES);
        let own = Part::new(capture, &images);
        match reconstruct(&own.matched(), &silent) {
            Ok(part) => {
                let placed: Vec<usize> =
                    part.model.images.keys().filter_map(|id| images.get(*id as usize - 1).copied()).collect();
                placed.iter().for_each(|&image| open[image] = false);
                let report = component_report(&part, &images, &placed);
                let warning = Warning::new(
                    "other_place",
                    format!(
                        "{} frames show another place, which shares nothing with the model: {}; they became a model of \
                         their own",
                        placed.len(),
                        describe(&report.images, capture.frames)
                    ),
                );
                found.report.warnings.push(warning);
                found.report.components.push(report);
                found.components.push(renumbered(part.model, &images));
            }
            Err(error) if error.kind() == ErrorKind::Cancelled => return Err(error),
            Err(error) => {
                log::debug!("{} frames that hang together give no model: {error}", images.len());
                images.iter().for_each(|&image| open[image] = false);
            }
        }
    }
    Ok(())
}

/// How many of the frames of a capture are a place, at least.
fn least_frames(count: usize) -> usize {
    LEAST_FRAMES.max((LEAST_SHARE * count as f64).ceil() as usize)
}

/// How many frames hang together in other places than that of which some are `placed`: as many in each as a model of its own needs.
/// None where those that are placed are no such place themselves, or one that is more than twice as large was not mapped: a small one is
/// no excuse for it.
pub(super) fn frames_elsewhere(placed: &[bool], verified: &[TwoViewGeometry]) -> usize {
    let least = least_frames(placed.len());
    let groups = joined_images(&vec![true; placed.len()], verified);
    let (here, elsewhere): (Vec<_>, Vec<_>) =
        groups.into_values().partition(|images| images.iter().any(|&image| placed[image]));
    let own = here.iter().map(Vec::len).max().unwrap_or(0);
    if own < least || elsewhere.iter().any(|images| images.len() > 2 * own) {
        return 0;
    }
    elsewhere.iter().map(Vec::len).filter(|&count| count >= least).sum()
}

/// The most images among the `open` ones that verified pairs join; `None` if there are none.
fn largest_component(open: &[bool], verified: &[TwoViewGeometry]) -> Option<Vec<usize>> {
    // Of two that are as large the first, whatever the order of the pairs.
    joined_images(open, verified).into_values().rev().max_by_key(Vec::len)
}

/// Those of the `open` images that verified pairs join, by the first of them.
fn joined_images(open: &[bool], verified: &[TwoViewGeometry]) -> BTreeMap<usize, Vec<usize>> {
    let links: Vec<(usize, usize)> = verified
        .iter()
        .filter(|p| !p.inliers.is_empty())
        .map(|p| (p.first as usize, p.second as usize))
        .filter(|&(a, b)| open[a] && open[b])
        .collect();
    let mut groups: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    for (image, root) in components(open.len(), &links).into_iter().enumerate() {
        if open[image] {
            groups.entry(root).or_default().push(image);
        }
    }
    groups
}

/// Whether `images`, in order, which the model does not have, show what it shows: it has no frame by their cameras, as where the
/// lens of a camera is not found, and matches join most of them to frames that it has. That is no other place.
fn show_the_same(images: &[usize], in_model: &[bool], capture: &Matched<'_>) -> bool {
    let frames = &capture.frames.frames;
    let placed = frames.iter().zip(in_model).filter(|(_, placed)| **placed);
    let cameras: BTreeSet<u32> = placed.map(|(frame, _)| frame.camera).collect();
    if images.iter().any(|&image| cameras.contains(&frames[image].camera)) {
        return false;
    }
    // By image: matches of the best pair with a frame of the model, and with another of `images`.
    let mut matches = vec![(0, 0); in_model.len()];
    for pair in capture.verified {
        let (first, second, count) = (pair.first as usize, pair.second as usize, pair.inliers.len());
        for (image, other) in [(first, second), (second, first)] {
            let (with_model, beside) = &mut matches[image];
            if in_model[other] {
                *with_model = count.max(*with_model);
            } else if images.binary_search(&other).is_ok() {
                *beside = count.max(*beside);
            }
        }
    }
    let is_joined = |&&image: &&usize| {
        let (with_model, beside) = matches[image];
        with_model > 0 && with_model as f64 >= SHARED * beside as f64
    };
    2 * images.iter().filter(is_joined).count() >= images.len()
}

/// Some of the frames of a capture as a capture of its own.
pub(super) struct Part {
    frames: Frames,
    pictures: Pictures,
    matches: Vec<PairMatches>,
    verified: Vec<TwoViewGeometry>,
    tags: Option<Tags>,
}

impl Part {
    /// The frames whose numbers are `images`, in order.
    pub(super) fn new(capture: &Matched<'_>, images: &[usize]) -> Self {
        let of = |image: u32| images.binary_search(&(image as usize)).ok().map(|at| at as u32);
        let pictures = capture.pictures;
        Self {
            frames: Frames {
                frames: images.iter().map(|&i| capture.frames.frames[i].clone()).collect(),
                warnings: Vec::new(),
                ..capture.frames.clone()
            },
            pictures: Pictures {
                features: images.iter().map(|&i| pictures.features[i].clone()).collect(),
                keypoints: images.iter().map(|&i| pictures.keypoints[i].clone()).collect(),
                colors: images.iter().map(|&i| pictures.colors[i].clone()).collect(),
            },
            matches: capture
                .matches
                .iter()
                .filter_map(|m| Some(PairMatches { first: of(m.first)?, second: of(m.second)?, ..m.clone() }))
                .collect(),
            verified: capture
                .verified
                .iter()
                .filter_map(|p| {
                    Some(TwoViewGeometry { first: of(p.first)?, second: of(p.second)?, ..p.clone() })
                })
                .collect(),
            tags: capture.tags.map(|tags| Tags {
                frames: images.iter().map(|&i| tags.frames[i].clone()).collect(),
                ..tags.clone()
            }),
        }
    }

    pub(super) fn matched(&self) -> Matched<'_> {
        Matched {
            frames: &self.frames,
            pictures: &self.pictures,
            matches: &self.matches,
            verified: &self.verified,
            tags: self.tags.as_ref(),
        }
    }
}

/// The figures of `part`, a model of some of `images`.
fn component_report(part: &Reconstruction, images: &[usize], placed: &[usize]) -> ComponentReport {
    let report = &part.report;
    let verdict = report.verdict.clone().map(|mut verdict| {
        for frame in &mut verdict.frames {
            frame.frame = images.get(frame.frame).copied().unwrap_or(frame.frame);
        }
        verdict
    });
    ComponentReport {
        images: ranges(placed.iter().copied()),
        registered: report.registered,
        points: report.points,
        mean_reprojection_error: report.mean_reprojection_error,
        camera_model: report.camera_model,
        camera_params: report.camera_params.clone(),
        is_metric: report.scale.as_ref().is_some_and(|s| s.applied),
        verdict,
    }
}

/// `model` with the ids that its images have in the whole capture: the numbers of their frames plus 1.
fn renumbered(mut model: SparseModel, images: &[usize]) -> SparseModel {
    let of = |id: u32| images.get(id as usize - 1).map_or(id, |&image| image as u32 + 1);
    model.images = std::mem::take(&mut model.images).into_iter().map(|(id, image)| (of(id), image)).collect();
    for point in model.points.values_mut() {
        point.track.iter_mut().for_each(|(id, _)| *id = of(*id));
    }
    model
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::camera::{Image, Point3D, Pose};
    use crate::video::Frame;
    use nalgebra::Vector3;

    fn pair(first: u32, second: u32, inliers: usize) -> TwoViewGeometry {
        TwoViewGeometry { inliers: vec![[0, 0]; inliers], ..TwoViewGeometry::degenerate(first, second) }
    }

    #[test]
    fn the_largest_open_component_counts_and_pairs_without_matches_join_nothing() {
        let pairs =
            [pair(0, 1, 9), pair(1, 5, 9), pair(2, 3, 9), pair(3, 4, 9), pair(4, 5, 0), pair(6, 7, 9)];
        let open = [false, true, true, true, true, true, true, true];
        assert_eq!(largest_component(&open, &pairs), Some(vec![2, 3, 4]));
        let open = [true, true, false, true, false, false, true, true];
        assert_eq!(largest_component(&open, &pairs), Some(vec![0, 1]), "the first of two");
        assert_eq!(largest_component(&[false; 8], &pairs), None);
    }

    #[test]
    fn frames_elsewhere_hang_together_without_what_is_placed() {
        let chain = |from: u32, to: u32| (from..to).map(|i| pair(i, i + 1, 9));
        // Three clips of 10 frames; what follows hangs together by too little, or not at all.
        let clips = || chain(0, 9).chain(chain(10, 19)).chain(chain(20, 29));
        let pairs: Vec<TwoViewGeometry> = clips().chain(chain(30, 36)).chain([pair(36, 40, 0)]).collect();
        let elsewhere = |placed: &[usize], pairs: &[TwoViewGeometry]| {
            let placed: Vec<bool> = (0..60).map(|image| placed.contains(&image)).collect();
            frames_elsewhere(&placed, pairs)
        };
        assert_eq!(elsewhere(&[12, 13, 14], &pairs), 20);
        assert_eq!(elsewhere(&[12, 25], &pairs), 10);
        assert_eq!(elsewhere(&[55], &pairs), 0);
        assert_eq!(elsewhere(&[], &pairs), 0);
        // A large place that cannot be mapped is not excused by a small one that can.
        let large: Vec<TwoViewGeometry> = chain(0, 9).chain(chain(10, 40)).collect();
        assert_eq!((elsewhere(&[2, 3, 4], &large), elsewhere(&[12], &large)), (0, 10));
        // One pair between two of the clips makes them one place.
        let joined: Vec<TwoViewGeometry> = clips().chain([pair(9, 10, 9)]).collect();
        assert_eq!(elsewhere(&[12, 13, 14], &joined), 10);
    }

    #[test]
    fn frames_by_a_camera_that_was_left_out_are_no_other_place_if_they_match_the_model() {
        let frames = |camera_of: fn(u32) -> u32| {
            let of = |i: u32| Frame {
                camera: camera_of(i),
                ..Frame::new(format!("{i}.jpg"), u64::from(i), 640, 480)
            };
            Frames::of_images("", (0..20).map(of).collect())
        };
        let pictures = Pictures { features: Vec::new(), keypoints: Vec::new(), colors: Vec::new() };
        // The model has the first 12 frames.
        let in_model: Vec<bool> = (0..20).map(|i| i < 12).collect();
        let others: Vec<usize> = (12..20).collect();
        let is_same = |frames: &Frames, joined: std::ops::Range<u32>, inliers: usize| {
            let mut verified: Vec<TwoViewGeometry> = (0..19).map(|i| pair(i, i + 1, 200)).collect();
            verified[11] = pair(11, 12, 0);
            verified.extend(joined.flat_map(|i| [pair(i - 12, i, inliers), pair(i - 11, i, inliers)]));
            let capture =
                Matched { frames, pictures: &pictures, matches: &[], verified: &verified, tags: None };
            show_the_same(&others, &in_model, &capture)
        };
        let by_two = frames(|i| u32::from(i >= 12));
        assert!(is_same(&by_two, 12..20, 40) && is_same(&by_two, 14..18, 60));
        assert!(!is_same(&by_two, 12..20, 0));
        assert!(!is_same(&by_two, 12..20, 20), "what two places have in common");
        assert!(!is_same(&by_two, 17..20, 60), "few of them");
        assert!(!is_same(&frames(|_| 0), 12..20, 60), "the lens is known");
    }

    #[test]
    fn images_get_back_the_ids_of_the_whole_capture() {
        let mut model = SparseModel::default();
        for id in [1, 3] {
            let image =
                Image { name: format!("{id}"), camera_id: 1, pose: Pose::identity(), points2d: Vec::new() };
            model.images.insert(id, image);
        }
        let track = vec![(1, 0), (3, 0)];
        model.points.insert(1, Point3D { xyz: Vector3::zeros(), rgb: [0; 3], error: 0.0, track });
        let model = renumbered(model, &[4, 7, 8]);
        assert_eq!(
            model.images.iter().map(|(id, i)| (*id, i.name.as_str())).collect::<Vec<_>>(),
            [(5, "1"), (9, "3")]
        );
        assert_eq!(model.points[&1].track, [(5, 0), (9, 0)]);
    }
}
