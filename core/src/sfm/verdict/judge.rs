//! The verdict: expected errors, reasons, a grade.

use std::collections::BTreeMap;

use crate::control::Warning;
use crate::error::{Error, ErrorKind};
use crate::stage::Stage;

use super::calibrated::{Expected, expected};
use super::evidence::{Evidence, TURNING_PAIRS};
use super::gather::{FrameSpread, Judged, gather};
use super::statement::{Doubt, FrameDoubt, Grade, Reason, Verdict};

/// A good model's rotations, degrees.
const GOOD_ROTATION: f64 = 1.0;
/// A good model's places, share of the radius of the camera path.
const GOOD_POSITION: f64 = 0.02;
/// Poses that are off by more than this (degrees) say nothing.
const USELESS_ROTATION: f64 = 20.0;
/// Nor do places that are off by this share of the radius.
const USELESS_POSITION: f64 = 0.5;

// The figures of reasons: chosen by hand, between those of sound captures and those of impossible ones;
// `docs/verdict.md` has both.

/// Fewer pairs say nothing.
const LEAST_PAIRS: usize = 10;
/// Share of the pairs in which much stands still that should not, from which the camera may have stood, ...
const STILL_PAIRS: f64 = 0.2;
/// ... and from which it did, ...
const OFTEN_STILL: f64 = 0.5;
/// ... if this part of the border stands still.
const STILL_BORDER: f64 = 0.5;
/// Share of the points in one plane from which a scene is flat, if its pairs show no depth either (a thing on a table may
/// have as many), ...
const FLAT: f64 = 0.8;
/// ... which is this share of them (of photographs it is all; at most 0.72 of sound captures); ...
const FLAT_PAIRS: f64 = 0.9;
/// ... this share of the points is enough if the focal length is unsure: with a wrong one a plane comes out bent (0.79 with one that
/// was known to 16 %; at most 0.65 for sound captures, whose pairs show depth); ...
const FLAT_IF_BENT: f64 = 0.6;
/// ... and from which it is flat anyway.
const ALL_FLAT: f64 = 0.97;
/// Spread of the focal length from which it is doubtful, ...
const UNSURE_FOCAL: f64 = 0.03;
/// ... and from which it is unknown.
const UNKNOWN_FOCAL: f64 = 0.2;
/// Change of the focal length, but for what the poses took up of it, from which there may be a zoom (in the study 0.00055
/// for one of 12 %, at most 0.00015 without), ...
const SLIGHT_ZOOM: f64 = 4e-4;
/// ... and from which there is (0.0016 for one of 50 %).
const ZOOM: f64 = 1e-3;
/// A steady zoom this many standard deviations from none is one, ...
const CERTAIN_ZOOM: f64 = 7.0;
/// ... which is doubtful from this logarithm of the focal lengths' ratio on, ...
const SLIGHT_STEADY_ZOOM: f64 = 0.03;
/// ... and ruins poses from this one on.
const STEADY_ZOOM: f64 = 0.2;
/// Residuals that all frames have in common over their noise, without which no zoom is believed (0.44 in the study with a
/// zoom; a good model of 16 pictures has a change of 0.00053 without), ...
const ZOOMED_BIAS: f64 = 0.2;
/// ... and from which the lens is another (0.57 for a cropped picture, whose rotations are 2 degrees off; 0.24 at most for
/// sound ones), ...
const LENS_BIAS: f64 = 0.35;
/// ... if they are more than this, pixels.
const LEAST_BIAS: f64 = 0.02;
/// Share of pairs that contradict the poses. Where things look alike many verified pairs are false, and a right model contradicts
/// these: up to 0.47 of all in sound captures of the study. Of captures that came out wrong it is 0.11 to 0.29, which tells nothing;
/// of things turned before a still camera 0.61 and more.
const CONTRADICTING: f64 = 0.5;
/// Share of a frame's matches that agree, below which it may be elsewhere (0.54 for an object filmed from two rings of which
/// a stretch came out wrong; at least 0.88 for sound captures of scenes that do not repeat themselves).
const WORST_FRAME: f64 = 0.65;
/// Share of near pairs that see nothing in common.
const MISSING: f64 = 0.5;
/// With fewer points that clips should have in common nothing is known of what they have, ...
const LEAST_COMMON: f64 = 50.0;
/// ... nor with fewer for each pair of their frames (1.3 for two rooms of which one was laid beside the other; 8 at least for
/// sound films), ...
const LEAST_COMMON_OF_PAIR: f64 = 3.0;
/// ... and below this part of them they show different places.
const SHARED: f64 = 0.4;
/// Share of the frames without which a model is partial.
const FEW_REGISTERED: f64 = 0.8;
/// The largest step over the usual one from which the path of a camera that hardly moved ([`TURNING_PAIRS`]) falls apart, here into places to turn at (598 and 924 for
/// these, 300 for one that was bent by half of its length; below 2 for others of the study). It was measured by steps past missing frames
/// that count as one.
const LONE_STEP: f64 = 50.0;
/// The same over the steps beside it, where frames were chosen at equal motion: 14 to 33 for five films whose parts had come
/// apart, one of which nothing else was said of; at most 1.7 times the usual step for sound ones, 3.1 for real videos.
const LONE_STEP_OF_VIDEO: f64 = 8.0;
/// The largest step over the usual one from which a path falls apart into places to turn at, where one past missing frames counts as one
/// however many these are. Who turns a camera by hand moves it by some centimetres from frame to frame, and a few metres of his way on
/// which no frame was placed are 50 to 100 of these. Chosen by hand, between that and what [`LONE_STEP`] was measured by.
const FARTHEST_STEP: f64 = 150.0;
/// Reprojection errors of a camera that only turns, over those of the model, below which nothing tells that it moved (1.2 to 1.8 for four
/// that turned on the spot, and came out on a circle; 17 to 220 for sound captures, and 12 to 110 for turns that came out as several
/// places). Chosen by hand.
const ONLY_TURNED: f64 = 4.0;
/// Points by which pairs of frames must hold the model together, whichever frame is taken out: as many as an image needs to be
/// registered. Of photographs through two lenses, a part of which was 9 % of the path off and nothing else was said of, it was 2; of
/// sound captures 21 and more.
const HINGE: usize = 15;
/// Parallax of the median point (degrees) below which depth is uncertain.
const LITTLE_PARALLAX: f64 = 1.5;

/// Judges a finished map.
pub(crate) fn judge(judged: &Judged<'_>) -> Verdict {
    let (evidence, spreads) = gather(judged);
    let mut verdict = Verdict::of(evidence);
    let mean = |of: fn(&FrameSpread) -> f64| {
        (spreads.iter().map(|s| of(s).powi(2)).sum::<f64>() / spreads.len().max(1) as f64).sqrt()
    };
    let scale = |all: f64, mean: f64| if mean > 0.0 { all / mean } else { 1.0 };
    let turn = scale(verdict.rotation_error_degrees, mean(|s| s.0));
    let shift = scale(verdict.position_error, mean(|s| s.1));
    let registered = (0..judged.adjusted.poses.len()).filter(|&i| judged.adjusted.poses[i].is_some());
    verdict.frames = registered
        .zip(&spreads)
        .map(|(frame, s)| FrameDoubt {
            frame,
            rotation_error_degrees: (turn * s.0).min(180.0),
            position_error: shift * s.1,
        })
        .collect();
    verdict
}

/// Whether the poses are too far off, as `expected` and as they are `likely` to be at most (9 in 10 are not farther), by rotation
/// (degrees) and place (share of the radius). Most good models are far from the limits, so that many fewer than 1 in 10 of those
/// that pass are beyond them.
fn imprecision(expected: (f64, f64), likely: (f64, f64)) -> Option<Reason> {
    let grade = if expected.0 > USELESS_ROTATION || expected.1 > USELESS_POSITION {
        Grade::Broken
    } else if likely.0 > GOOD_ROTATION || likely.1 > GOOD_POSITION {
        Grade::Doubtful
    } else {
        return None;
    };
    let message = format!(
        "the poses are expected to be off by {:.2} degrees and {:.1} % of the camera path",
        expected.0,
        100.0 * expected.1
    );
    Some(Reason { doubt: Doubt::ImprecisePoses, grade, message })
}

/// What speaks against a model with these figures, but for the errors to expect.
fn reasons(e: &Evidence) -> Vec<Reason> {
    let percent = |share: f64| format!("{:.0} %", 100.0 * share);
    let mut reasons = Vec::new();
    let mut add = |grade, doubt, message: String| reasons.push(Reason { doubt, grade, message });
    let graver = |is_broken: bool| if is_broken { Grade::Broken } else { Grade::Doubtful };
    if e.moving_pairs >= LEAST_PAIRS && e.still_pairs > STILL_PAIRS {
        add(
            graver(e.still_pairs > OFTEN_STILL && e.still_border > STILL_BORDER),
            Doubt::StillCamera,
            format!(
                "in {} of the pairs of frames a part of the picture stands still that should move ({} of the picture, {} \
                 of its border): the camera seems to stand while something moves before it",
                percent(e.still_pairs),
                percent(e.still_area),
                percent(e.still_border)
            ),
        );
    }
    let flat = if e.focal_spread > UNSURE_FOCAL { FLAT_IF_BENT } else { FLAT };
    let shows_no_depth = e.flat_points > flat && e.flat_pairs > FLAT_PAIRS;
    if shows_no_depth || e.flat_points > ALL_FLAT {
        add(
            graver(shows_no_depth || e.focal_spread > UNSURE_FOCAL),
            Doubt::FlatScene,
            format!(
                "nearly all that is seen lies in one plane ({} of the points, and {} of the pairs of frames show no depth): \
                 this may be a photograph or a screen",
                percent(e.flat_points),
                percent(e.flat_pairs)
            ),
        );
    }
    if e.focal_spread > UNSURE_FOCAL {
        add(
            graver(e.focal_spread > UNKNOWN_FOCAL),
            Doubt::UnknownFocalLength,
            format!("the focal length is known to {:.1} % only", 100.0 * e.focal_spread),
        );
    }
    let changes = e.zoom > SLIGHT_ZOOM && e.lens_bias > ZOOMED_BIAS * e.noise;
    let steady = e.zoom_change.abs();
    let is_steady = e.zoom_deviation > 0.0 && steady > CERTAIN_ZOOM * e.zoom_deviation;
    if changes || (is_steady && steady > SLIGHT_STEADY_ZOOM) {
        let message = match is_steady && steady > SLIGHT_STEADY_ZOOM {
            true => format!(
                "the focal length seems to change by {:+.0} % from the first frame to the last",
                100.0 * e.zoom_change.exp_m1()
            ),
            false => format!(
                "the focal length seems to change within the capture: {:.2} % of it cannot be taken for motion",
                100.0 * e.zoom
            ),
        };
        add(graver((changes && e.zoom > ZOOM) || (is_steady && steady > STEADY_ZOOM)), Doubt::Zoom, message);
    }
    if e.lens_bias > LENS_BIAS * e.noise && e.lens_bias > LEAST_BIAS {
        add(
            Grade::Doubtful,
            Doubt::OtherLens,
            format!(
                "parts of the picture are off by {:.2} pixels in all frames alike: the picture is cropped, the lens is \
                 unusual, or it changes",
                e.lens_bias
            ),
        );
    }
    if e.contradicting_pairs > CONTRADICTING || e.worst_frame_agreement < WORST_FRAME {
        add(
            Grade::Doubtful,
            Doubt::ContradictingPairs,
            format!(
                "{} of the pairs of frames contradict the poses; of one frame's matches only {} agree",
                percent(e.contradicting_pairs),
                percent(e.worst_frame_agreement)
            ),
        );
    }
    if e.near_pairs >= LEAST_PAIRS && e.missing_overlap > MISSING {
        add(
            Grade::Doubtful,
            Doubt::MissingOverlap,
            format!(
                "{} of {} pairs of frames that should see the same have nothing in common: one place may be taken for \
                 another that looks alike",
                percent(e.missing_overlap),
                e.near_pairs
            ),
        );
    }
    let least_common = LEAST_COMMON.max(LEAST_COMMON_OF_PAIR * e.pairs_across_cuts as f64);
    if e.pairs_across_cuts > 0 && (e.common_across_cuts < least_common || e.shared_across_cuts < SHARED) {
        add(
            Grade::Doubtful,
            Doubt::MissingOverlap,
            format!(
                "the film was cut, and of {:.0} points that both sides of the cut should show they have {} in common: they \
                 may be different places that look alike",
                e.common_across_cuts,
                percent(e.shared_across_cuts)
            ),
        );
    }
    if e.registered < FEW_REGISTERED {
        add(
            Grade::Doubtful,
            Doubt::FewFrames,
            format!("only {} of the frames were placed", percent(e.registered)),
        );
    }
    let falls_apart = e.largest_step > LONE_STEP || e.lone_step > LONE_STEP_OF_VIDEO;
    if e.rotation_only_pairs <= TURNING_PAIRS && falls_apart {
        add(
            Grade::Doubtful,
            Doubt::LooseParts,
            format!(
                "the camera jumps by {:.0} times its usual step: the parts of its path hardly hang together",
                e.largest_step.max(e.lone_step)
            ),
        );
    }
    if e.weakest_hinge < HINGE {
        add(
            Grade::Doubtful,
            Doubt::LooseParts,
            format!(
                "one frame alone holds two parts of the model together: beside it they have {} points in common, and how \
                 large one is beside the other is hardly known",
                e.weakest_hinge
            ),
        );
    }
    if e.rotation_only_pairs > TURNING_PAIRS {
        let only_turned = e.turning_excess > 0.0 && e.turning_excess < ONLY_TURNED;
        add(
            // Frames between places to turn at are those that are not placed. Older figures have but one of the two.
            graver(only_turned || e.largest_step > LONE_STEP || e.farthest_step > FARTHEST_STEP),
            Doubt::LittleParallax,
            format!(
                "{} of the pairs of frames show a camera that turns on the spot: what depth there is may be an illusion",
                percent(e.rotation_only_pairs)
            ),
        );
    }
    if e.parallax_degrees < LITTLE_PARALLAX {
        add(
            Grade::Doubtful,
            Doubt::LittleParallax,
            format!("the median point is seen over {:.1} degrees only", e.parallax_degrees),
        );
    }
    reasons
}

impl Verdict {
    /// What follows from figures alone: all but the errors of single frames.
    pub fn of(evidence: Evidence) -> Self {
        let errors = expected(&evidence);
        let Expected { rotation, position, rotation_bound, position_bound, .. } = errors;
        let mut reasons = reasons(&evidence);
        reasons.extend(imprecision((rotation, position), (errors.likely_rotation, errors.likely_position)));
        // Stable: reasons of one grade stay in their order.
        reasons.sort_by_key(|r| std::cmp::Reverse(r.grade));
        Self {
            grade: reasons.first().map_or(Grade::Good, |r| r.grade),
            rotation_error_degrees: rotation,
            position_error: position,
            rotation_bound_degrees: rotation_bound,
            position_bound,
            frames: Vec::new(),
            reasons,
            evidence,
        }
    }

    /// The grade that follows from what is not known of lens and shutter alone. A part of the capture tells even less of them.
    pub(crate) fn grade_by_lens(&self) -> Grade {
        let errors = expected(&Evidence {
            rotation_spread: [0.0; 5],
            position_spread: [0.0; 5],
            ..self.evidence.clone()
        });
        imprecision((errors.rotation, errors.position), (errors.likely_rotation, errors.likely_position))
            .map_or(Grade::Good, |reason| reason.grade)
    }

    /// How doubtful each registered frame is, by its index: what its errors stay below, as a share of what a good model's
    /// may be (1 degree, 2 % of the camera path), the larger of the two.
    pub fn frame_doubts(&self) -> impl Iterator<Item = (usize, f64)> + '_ {
        let ratio = |bound: f64, expected: f64| if expected > 0.0 { bound / expected } else { 1.0 };
        let turn = ratio(self.rotation_bound_degrees, self.rotation_error_degrees) / GOOD_ROTATION;
        let shift = ratio(self.position_bound, self.position_error) / GOOD_POSITION;
        self.frames
            .iter()
            .map(move |f| (f.frame, (turn * f.rotation_error_degrees).max(shift * f.position_error)))
    }

    /// [`Verdict::frame_doubts`] by the ids of the model's images: numbers of frames plus 1.
    pub fn image_doubts(&self) -> BTreeMap<u32, f64> {
        self.frame_doubts().filter_map(|(k, doubt)| Some((u32::try_from(k + 1).ok()?, doubt))).collect()
    }

    /// The warning of a doubtful model; `None` for a good one.
    pub(crate) fn warning(&self) -> Option<Warning> {
        (self.grade != Grade::Good).then(|| Warning::new("poses_doubtful", self.summary()))
    }

    /// The error of a model that is not passed on.
    pub(crate) fn refusal(&self) -> Error {
        let (kind, hint) = match self.reasons.first().map(|r| r.doubt) {
            Some(Doubt::StillCamera) => (
                ErrorKind::UnreliableReconstruction,
                "leave the object where it is and walk around it with the camera, or remove the background",
            ),
            Some(Doubt::FlatScene | Doubt::LittleParallax) => {
                (ErrorKind::InsufficientParallax, "film something with depth, from different places")
            }
            Some(Doubt::UnknownFocalLength | Doubt::Zoom | Doubt::OtherLens) => (
                ErrorKind::IntrinsicsUnreliable,
                "film without zooming, from different places and directions, or give the focal length (--focal, or focal in a library; \
                 a service reads it from the EXIF data of photographs)",
            ),
            _ => (
                ErrorKind::UnreliableReconstruction,
                "film slowly, in good light, something that stands still, and come back to places seen before",
            ),
        };
        Error::new(kind, self.summary()).hint(hint).at(Stage::Sfm)
    }

    fn summary(&self) -> String {
        self.reasons.iter().map(|r| r.message.as_str()).collect::<Vec<_>>().join("; ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The figures of a walk around a table, as the study has them.
    fn sound() -> Evidence {
        Evidence {
            frames: 24,
            registered: 1.0,
            few_observations: 1500.0,
            parallax_degrees: 9.5,
            relative_radius: 0.22,
            noise: 0.05,
            rotation_spread: [0.007; 5],
            position_spread: [2e-4; 5],
            focal_spread: 5e-4,
            agreeing_matches: 1.0,
            worst_frame_agreement: 1.0,
            moving_pairs: 276,
            flat_points: 0.14,
            flat_pairs: 0.09,
            largest_step: 1.7,
            farthest_step: 1.7,
            lone_step: 1.5,
            weakest_step: 1300,
            weakest_hinge: 400,
            ..Evidence::default()
        }
    }

    #[test]
    fn nothing_speaks_against_a_sound_model() {
        assert_eq!(reasons(&sound()), []);
        // A film that was cut, and both clips of which show one place.
        let (pairs_across_cuts, common_across_cuts, shared_across_cuts) = (60, 900.0, 0.8);
        let cut = Evidence { pairs_across_cuts, common_across_cuts, shared_across_cuts, ..sound() };
        assert_eq!(reasons(&cut), []);
        assert_eq!(imprecision((0.01, 2e-4), (0.05, 1e-3)), None);
    }

    #[test]
    fn each_fault_is_told_by_its_figure() {
        type Spoil = fn(&mut Evidence);
        let faults: [(Spoil, Doubt, Grade); 25] = [
            (|e| (e.still_pairs, e.still_border) = (0.9, 0.9), Doubt::StillCamera, Grade::Broken),
            (|e| (e.still_pairs, e.still_border) = (0.3, 0.1), Doubt::StillCamera, Grade::Doubtful),
            (|e| (e.flat_points, e.flat_pairs) = (0.99, 0.99), Doubt::FlatScene, Grade::Broken),
            (|e| e.focal_spread = 0.4, Doubt::UnknownFocalLength, Grade::Broken),
            (|e| (e.zoom, e.lens_bias) = (0.05, 0.015), Doubt::Zoom, Grade::Broken),
            (|e| e.lens_bias = 0.03, Doubt::OtherLens, Grade::Doubtful),
            (|e| e.contradicting_pairs = 0.6, Doubt::ContradictingPairs, Grade::Doubtful),
            (|e| e.worst_frame_agreement = 0.5, Doubt::ContradictingPairs, Grade::Doubtful),
            (|e| (e.near_pairs, e.missing_overlap) = (20, 0.9), Doubt::MissingOverlap, Grade::Doubtful),
            (
                |e| {
                    (e.pairs_across_cuts, e.common_across_cuts, e.shared_across_cuts) = (60, 900.0, 0.2);
                },
                Doubt::MissingOverlap,
                Grade::Doubtful,
            ),
            (|e| e.pairs_across_cuts = 60, Doubt::MissingOverlap, Grade::Doubtful),
            // They hang together, but by what they show of each other nobody can tell.
            (
                |e| {
                    (e.pairs_across_cuts, e.common_across_cuts, e.shared_across_cuts) = (70, 93.0, 0.52);
                },
                Doubt::MissingOverlap,
                Grade::Doubtful,
            ),
            (|e| e.registered = 0.6, Doubt::FewFrames, Grade::Doubtful),
            (|e| e.parallax_degrees = 1.0, Doubt::LittleParallax, Grade::Doubtful),
            (|e| (e.zoom_change, e.zoom_deviation) = (-0.06, 0.004), Doubt::Zoom, Grade::Doubtful),
            (|e| (e.zoom_change, e.zoom_deviation) = (0.4, 0.004), Doubt::Zoom, Grade::Broken),
            (|e| e.largest_step = 300.0, Doubt::LooseParts, Grade::Doubtful),
            (|e| e.lone_step = 14.0, Doubt::LooseParts, Grade::Doubtful),
            (|e| e.weakest_hinge = 5, Doubt::LooseParts, Grade::Doubtful),
            (|e| e.rotation_only_pairs = 0.8, Doubt::LittleParallax, Grade::Doubtful),
            (
                |e| (e.rotation_only_pairs, e.largest_step) = (0.8, 600.0),
                Doubt::LittleParallax,
                Grade::Broken,
            ),
            (
                |e| (e.rotation_only_pairs, e.farthest_step) = (0.8, 600.0),
                Doubt::LittleParallax,
                Grade::Broken,
            ),
            (
                |e| (e.rotation_only_pairs, e.turning_excess) = (0.8, 1.3),
                Doubt::LittleParallax,
                Grade::Broken,
            ),
            (
                |e| (e.rotation_only_pairs, e.turning_excess) = (0.8, 20.0),
                Doubt::LittleParallax,
                Grade::Doubtful,
            ),
            (
                |e| (e.rotation_only_pairs, e.farthest_step) = (0.8, 100.0),
                Doubt::LittleParallax,
                Grade::Doubtful,
            ),
        ];
        for (spoil, doubt, grade) in faults {
            let mut evidence = sound();
            spoil(&mut evidence);
            let found = reasons(&evidence);
            assert_eq!(found.iter().map(|r| (r.doubt, r.grade)).collect::<Vec<_>>(), [(doubt, grade)]);
        }
    }

    #[test]
    fn a_plane_that_came_out_bent_is_flat() {
        let grade = |flat_points, focal_spread| {
            let evidence = Evidence { flat_points, focal_spread, flat_pairs: 1.0, ..sound() };
            reasons(&evidence).iter().find(|r| r.doubt == Doubt::FlatScene).map(|r| r.grade)
        };
        assert_eq!(grade(0.79, 0.16), Some(Grade::Broken));
        assert_eq!(grade(0.79, 0.01), None);
        assert_eq!(grade(0.5, 0.16), None);
    }

    #[test]
    fn imprecise_poses_are_doubtful_and_useless_ones_broken() {
        let grade = |expected, likely| imprecision(expected, likely).map(|r| r.grade);
        assert_eq!(grade((0.5, 1e-3), (1.5, 3e-3)), Some(Grade::Doubtful));
        assert_eq!(grade((0.1, 0.01), (0.3, 0.03)), Some(Grade::Doubtful));
        assert_eq!(grade((0.1, 0.6), (0.3, 1.8)), Some(Grade::Broken));
        assert_eq!(grade((25.0, 0.01), (75.0, 0.03)), Some(Grade::Broken));
    }

    #[test]
    fn what_is_not_known_of_the_lens_is_told_from_what_is_not_known_of_the_poses() {
        let zoomed = Evidence { zoom_change: -0.086, zoom_deviation: 0.077, zoom_rotation: 1.5, ..sound() };
        let loose = Evidence { rotation_spread: [1.0; 5], position_spread: [0.05; 5], ..sound() };
        for (evidence, by_lens) in [(zoomed, Grade::Doubtful), (loose, Grade::Good), (sound(), Grade::Good)] {
            let verdict = Verdict::of(evidence);
            let is_imprecise = verdict.reasons.iter().any(|r| r.doubt == Doubt::ImprecisePoses);
            assert_eq!(verdict.grade_by_lens(), by_lens);
            assert!(is_imprecise || verdict.grade == Grade::Good, "{verdict:?}");
        }
    }

    #[test]
    fn a_frame_is_as_doubtful_as_the_worse_of_its_errors() {
        let frame = |frame, rotation_error_degrees, position_error| FrameDoubt {
            frame,
            rotation_error_degrees,
            position_error,
        };
        let verdict = Verdict {
            grade: Grade::Good,
            rotation_error_degrees: 0.1,
            position_error: 0.002,
            rotation_bound_degrees: 0.3,
            position_bound: 0.006,
            frames: vec![frame(0, 0.1, 0.0), frame(2, 0.1, 0.004)],
            reasons: Vec::new(),
            evidence: sound(),
        };
        let doubts: Vec<_> = verdict.frame_doubts().collect();
        assert_eq!(verdict.image_doubts().into_keys().collect::<Vec<_>>(), [1, 3]);
        assert_eq!((doubts[0].0, doubts[1].0), (0, 2));
        assert!((doubts[0].1 - 0.3).abs() < 1e-12 && (doubts[1].1 - 0.6).abs() < 1e-12, "{doubts:?}");
    }

    #[test]
    fn a_refusal_says_what_to_do() {
        let of = |evidence: Evidence| Verdict {
            grade: Grade::Broken,
            rotation_error_degrees: 0.1,
            position_error: 0.01,
            rotation_bound_degrees: 0.3,
            position_bound: 0.03,
            frames: Vec::new(),
            reasons: reasons(&evidence),
            evidence,
        };
        let verdict = of(Evidence { still_pairs: 0.9, still_border: 0.9, ..sound() });
        let error = verdict.refusal();
        assert_eq!(error.kind(), ErrorKind::UnreliableReconstruction);
        assert!(error.message().contains("90 % of the pairs") && error.hint_text().is_some(), "{error:?}");
        assert_eq!(verdict.warning().map(|w| w.code), Some("poses_doubtful".into()));
        // How to give the focal length is said for every way to ask for a scene.
        let error = of(Evidence { focal_spread: 0.4, ..sound() }).refusal();
        assert_eq!(error.kind(), ErrorKind::IntrinsicsUnreliable);
        let hint = error.hint_text().unwrap();
        assert!(hint.contains("--focal") && hint.contains("EXIF"), "{hint}");
    }
}
