//! What is said of a model: a grade, how far off it is expected to be, and why.

use serde::{Deserialize, Serialize};

use super::evidence::Evidence;

/// What a model is worth.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Grade {
    /// Rotations are known to a degree and positions to 2 % of the camera path, as far as can be told.
    Good,
    /// It may be worse than that, or of something else than the user thinks.
    Doubtful,
    /// It is wrong, or says nothing. Never passed on as a success.
    Broken,
}

/// What speaks against a model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Doubt {
    /// The poses are expected to be off by more than a good model's.
    ImprecisePoses,
    /// The camera stood, and what was reconstructed moved before it.
    StillCamera,
    /// All that is seen lies in one plane.
    FlatScene,
    /// The focal length is hardly determined.
    UnknownFocalLength,
    /// The focal length changes within the capture.
    Zoom,
    /// The lens bends or shifts the picture in a way that the camera model does not have.
    OtherLens,
    /// Pairs of frames contradict the poses.
    ContradictingPairs,
    /// Frames that should see the same do not: one place may be taken for another.
    MissingOverlap,
    /// Parts of the capture hang together by hardly anything.
    LooseParts,
    /// Many frames could not be placed.
    FewFrames,
    /// The camera hardly moved.
    LittleParallax,
}

/// One thing that speaks against a model.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Reason {
    /// Which.
    pub doubt: Doubt,
    /// How grave it is.
    pub grade: Grade,
    /// The figures, for people.
    pub message: String,
}

/// How far off a frame is expected to be.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct FrameDoubt {
    /// Index of the frame.
    pub frame: usize,
    /// Expected error of its rotation, degrees.
    pub rotation_error_degrees: f64,
    /// Expected error of its place, as a share of the radius of the camera path.
    pub position_error: f64,
}

/// What is thought of a model, without knowing the truth.
///
/// Errors are root-mean-squares over the registered frames, after the model was moved, turned and scaled onto the truth
/// as well as it goes. Of captures with the same expectation half are off by less. The radius of the camera path is the root-mean-square distance of the camera centres from their
/// mean.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Verdict {
    /// The grade: that of the gravest reason.
    pub grade: Grade,
    /// Expected error of the rotations, degrees.
    pub rotation_error_degrees: f64,
    /// Expected error of the places, as a share of the radius of the camera path.
    pub position_error: f64,
    /// What the rotation error stays below in 19 of 20 captures, degrees.
    pub rotation_bound_degrees: f64,
    /// What the error of the places stays below in 19 of 20 captures, as a share of the radius of the camera path.
    pub position_bound: f64,
    /// The registered frames, in their order.
    pub frames: Vec<FrameDoubt>,
    /// What speaks against the model, gravest first; empty for a good one.
    pub reasons: Vec<Reason>,
    /// What all of it follows from.
    pub evidence: Evidence,
}
