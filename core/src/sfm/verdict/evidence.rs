//! The figures from which a verdict follows.

use serde::{Deserialize, Serialize};

/// Share of the widest pairs that a turn on the spot explains, from which the camera hardly moved. Of all pairs it was at most 0.34 for
/// sound captures of the study, 0.79 and 0.84 for two that were turned on the spot.
pub(super) const TURNING_PAIRS: f64 = 0.5;

/// A model that hangs together whichever frame is taken out.
fn strong() -> usize {
    1000
}

/// What was measured. All of it is finite.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Evidence {
    /// Frames that went in.
    pub frames: usize,
    /// Share of them with a pose.
    pub registered: f64,
    /// Observations of a registered frame, of which 5 % of the frames have fewer.
    pub few_observations: f64,
    /// Widest angle between two rays of a point, median, degrees.
    pub parallax_degrees: f64,
    /// Radius of the camera path over the median distance of a point from the cameras that see it.
    pub relative_radius: f64,
    /// Standard deviation of a keypoint's x and y, pixels.
    pub noise: f64,
    /// Spread of the rotations (degrees) if what errs alike are tracks, regions of the scene, stretches of frames, cells
    /// of the picture, parts of single frames.
    pub rotation_spread: [f64; 5],
    /// Spread of the places, share of the radius of the camera path; in the same order.
    pub position_spread: [f64; 5],
    /// How far off rotations (degrees) and ...
    pub centre_rotation: f64,
    /// ... places (share of the radius of the camera path) are, if the principal point is off by as much as it may.
    pub centre_position: f64,
    /// Whether the principal point was refined; else it is the middle of the picture.
    pub centre_is_refined: bool,
    /// The same of the principal points of all other cameras together: rotations (degrees) and ...
    pub other_centres_rotation: f64,
    /// ... places (share of the radius of the camera path); of one that was left in the middle of the picture a part.
    pub other_centres_position: f64,
    /// How far off rotations (degrees) and ...
    pub shutter_rotation: f64,
    /// ... places (share of the radius of the camera path) are for each millisecond by which the readout time of a rolling
    /// shutter is off; 0 for photographs, and where it is known.
    pub shutter_position: f64,
    /// The readout time as the capture shows it, milliseconds.
    pub shutter_ms: f64,
    /// Its standard deviation; at most the time from one frame of the video to the next, which it also is where nothing
    /// is known.
    pub shutter_deviation_ms: f64,
    /// Whether the model is corrected for that readout time.
    pub shutter_is_corrected: bool,
    /// Spread of the focal length, as a share of it: the largest of the five.
    pub focal_spread: f64,
    /// Residuals that all frames have in common in a cell of the picture, pixels.
    pub lens_bias: f64,
    /// Residuals that a part of a frame has in common, pixels.
    pub patch_bias: f64,
    /// Angle between the rotation of a pair of frames, from its own matches alone, and that of the model: median, degrees.
    pub pair_rotation: f64,
    /// The same: 90 % of the pairs have less.
    pub pair_rotation_tail: f64,
    /// Share of the pairs most of whose matches contradict the model.
    pub contradicting_pairs: f64,
    /// Share of the verified matches that agree with the model.
    pub agreeing_matches: f64,
    /// Share of a frame's verified matches that agree with the model: that of the worst frame.
    pub worst_frame_agreement: f64,
    /// Pairs of frames in which something moves as the model says, by more than a few pixels.
    pub moving_pairs: usize,
    /// In these: part of the occupied picture that stood still or turned as before a camera on a tripod, and contradicts
    /// the model; median.
    pub still_area: f64,
    /// The same for the border of the picture.
    pub still_border: f64,
    /// Share of these pairs with at least a fifth of the picture so.
    pub still_pairs: f64,
    /// Share of the points within 1 % of their distance of one plane.
    pub flat_points: f64,
    /// Share of the frames' widest verified pairs that a homography explains: between frames that hardly differ one always does.
    pub flat_pairs: f64,
    /// Share of the frames' widest verified pairs that a turn on the spot explains; pairs within a burst do not count.
    pub rotation_only_pairs: f64,
    /// How many times as large reprojection errors are (what 9 in 10 stay below) if the camera stands at one place and only turns; 0
    /// where it was not examined, as a turn on the spot explains less than half of those pairs.
    pub turning_excess: f64,
    /// Largest step of the camera from a frame to the next over the median one; past frames that were not placed it counts as so many
    /// steps, three at most. Of a burst one picture counts, and a step of a video counts for no more than it is over what parallax and
    /// depth show of it. 0 for unordered pictures.
    pub largest_step: f64,
    /// The same where a step past missing frames counts as one, whatever the pictures show of it: how far the camera went at once.
    #[serde(default)]
    pub farthest_step: f64,
    /// The largest step over those beside it, of a video: its frames are chosen at equal motion. A step counts for no more than it is
    /// over what parallax and depth show of it, since of a short video all frames are taken. 0 for photographs.
    #[serde(default)]
    pub lone_step: f64,
    /// How much the focal length changes from frame to frame and keeps to it, as a share of it.
    pub zoom: f64,
    /// Logarithm of the last focal length over the first, if a zoom goes on steadily: what explains the capture best.
    pub zoom_change: f64,
    /// Its standard deviation; 0 where it was not examined: photographs, and where the adjustment says nothing.
    pub zoom_deviation: f64,
    /// How far off rotations (degrees) and ...
    pub zoom_rotation: f64,
    /// ... places (share of the radius of the camera path) are by a zoom as large as it may be.
    pub zoom_position: f64,
    /// Points that are seen on both sides of the weakest step of the path; 0 for unordered pictures.
    pub weakest_step: usize,
    /// Points by which pairs of frames hold the model together, whichever frame is taken out; at most 1000, which is what is taken of
    /// older figures.
    #[serde(default = "strong")]
    pub weakest_hinge: usize,
    /// Pairs of frames that are far apart in time and near in the model.
    pub near_pairs: usize,
    /// Share of them that see nothing in common.
    pub missing_overlap: f64,
    /// Pairs of frames of the model on different sides of a cut of the film.
    pub pairs_across_cuts: usize,
    /// Points that these should have in common, if they show one place.
    pub common_across_cuts: f64,
    /// The part of these that they have.
    pub shared_across_cuts: f64,
}
