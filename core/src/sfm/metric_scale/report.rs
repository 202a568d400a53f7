//! What was measured, for people and programs.

use serde::{Deserialize, Serialize};

use crate::control::Warning;
use crate::fiducial::Tags;
use crate::statistics::median;

use super::consensus::{Candidate, Finding, MIN_EDGE, MIN_VIEWS};
use super::sightings::Sighting;

/// The scale of a model and the tags it was taken from.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ScaleReport {
    /// Edge of the tags' inner white square as it was given, millimetres.
    pub apriltag_size_mm: f64,
    /// Whether the model is in metres. Else it has arbitrary units, and a warning says why.
    pub applied: bool,
    /// Standard deviation of the scale relative to it: of lengths in the model, if the size of the tags is true. It
    /// holds the noise of the corners, the uncertainty of poses and intrinsics, and what the tags disagree. Absent
    /// without a scale.
    pub relative_sigma: Option<f64>,
    /// Frames in which tags were seen.
    pub frames: usize,
    /// Sightings of tags in all frames.
    pub sightings: usize,
    /// The tags, by id. An id that is printed twice has two entries.
    pub tags: Vec<TagReport>,
}

/// One tag.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TagReport {
    /// Its id.
    pub id: u32,
    /// Whether the scale was taken from it.
    pub used: bool,
    /// Why not: `too_small`, `too_few_views`, `low_parallax`, `deformed`, `contradictory` or `other_size`.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub problem: Option<String>,
    /// Frames with a pose that show it.
    pub views: usize,
    /// Edge of the inner white square in pixels of the source, median over these.
    pub edge_pixels: f64,
    /// Edge as this tag by itself measures in the finished model, millimetres; absent without a scale.
    pub edge_mm: Option<f64>,
    /// `edge_mm` relative to the size that was given, minus 1.
    pub relative_residual: Option<f64>,
    /// Standard deviation of the edge relative to it, of this tag by itself with the cameras as they are.
    pub relative_sigma: Option<f64>,
    /// Distance of its corners from where they are seen, pixels, mean.
    pub reprojection_error: Option<f64>,
    /// Widest angle between two directions from which it is seen.
    pub parallax_degrees: Option<f64>,
    /// How far it is from a flat square, relative to the edge, where that is certain; else 0.
    pub deformation: Option<f64>,
}

impl ScaleReport {
    /// No scale yet.
    pub(super) fn new(size_mm: f64, tags: &Tags) -> Self {
        Self {
            apriltag_size_mm: size_mm,
            applied: false,
            relative_sigma: None,
            frames: tags.frames.iter().filter(|f| !f.tags.is_empty()).count(),
            sightings: tags.count(),
            tags: Vec::new(),
        }
    }

    /// There is no scale: it was taken from no tag.
    pub(super) fn not_applied(&mut self) {
        self.tags.iter_mut().for_each(|t| t.used = false);
    }

    /// Fills in the edges of the tags, where `edge` of the map is the size that was given.
    pub(super) fn in_units_of(&mut self, edge: f64, candidates: &[Candidate]) {
        for (tag, candidate) in self.tags.iter_mut().zip(candidates) {
            tag.relative_residual = candidate.fit.map(|f| f.edge / edge - 1.0);
            tag.edge_mm = tag.relative_residual.map(|r| self.apriltag_size_mm * (1.0 + r));
        }
    }
}

impl TagReport {
    pub(super) fn new(candidate: &Candidate, sightings: &[Sighting]) -> Self {
        let fit = candidate.fit.as_ref();
        Self {
            id: candidate.id,
            used: candidate.finding == Finding::Used,
            problem: candidate.finding.slug().map(str::to_owned),
            views: candidate.members.len(),
            edge_pixels: edge_pixels(candidate, sightings),
            edge_mm: None,
            relative_residual: None,
            relative_sigma: fit.map(|_| candidate.deviation()),
            reprojection_error: fit.map(|f| f.error),
            parallax_degrees: fit.map(|f| f.parallax.to_degrees()),
            deformation: candidate.shape.map(|s| s.deformation()),
        }
    }
}

fn edge_pixels(candidate: &Candidate, sightings: &[Sighting]) -> f64 {
    let mut edges: Vec<f64> = candidate.members.iter().map(|&s| sightings[s].edge).collect();
    median(&mut edges).unwrap_or(0.0)
}

/// Why there is no scale: the reason that is nearest to one, with its figures.
pub(super) fn why_none(
    candidates: &[Candidate],
    sightings: &[Sighting],
    tags: &Tags,
    size_mm: f64,
) -> Warning {
    let frames = tags.frames.len();
    let none = "the model has no metric scale";
    let with = |finding: Finding| candidates.iter().filter(move |c| c.finding == finding);
    let best = |finding: Finding| with(finding).max_by_key(|c| c.members.len());
    if tags.count() == 0 {
        return Warning::new(
            "apriltag_not_found",
            format!(
                "no AprilTag of the family tagStandard41h12 is in any of the {frames} frames: {none}. Check the family, and \
                 that tags are flat, with a white margin, and at least {MIN_EDGE:.0} pixels wide in the video"
            ),
        );
    }
    if candidates.is_empty() {
        return Warning::new(
            "apriltag_too_few_views",
            format!(
                "AprilTags are in {} frames, but the camera's pose is not known in any of them: {none}",
                tags.frames.iter().filter(|f| !f.tags.is_empty()).count()
            ),
        );
    }
    let sized: Vec<&Candidate> =
        candidates.iter().filter(|c| matches!(c.finding, Finding::OtherSize | Finding::Used)).collect();
    if !sized.is_empty() {
        let edges: Vec<String> = sized
            .iter()
            .filter_map(|c| {
                Some(format!("tag {} {:.1}", c.id, size_mm * c.fit?.edge / sized.first()?.fit?.edge))
            })
            .collect();
        return Warning::new(
            "apriltag_inconsistent",
            format!(
                "the AprilTags do not agree on one size: if the first measures {size_mm} mm, they measure {} mm: {none}. Use \
                 tags of one size, and give the edge of their inner white square",
                edges.join(", ")
            ),
        );
    }
    if let Some(c) = best(Finding::Deformed) {
        let off = 100.0 * c.shape.map_or(0.0, |s| s.deformation());
        return Warning::new(
            "apriltag_bent",
            format!(
                "AprilTag {} is no flat square (it differs by {off:.1} % of its edge): {none}. Print without stretching, and \
                 fix the tag to something flat",
                c.id
            ),
        );
    }
    if let Some(c) = best(Finding::Contradictory) {
        return Warning::new(
            "apriltag_inconsistent",
            format!(
                "the {} frames that show AprilTag {} do not see it in one place: {none}. Tags must not move, and each id \
                 may be there once",
                c.members.len(),
                c.id
            ),
        );
    }
    if let Some(c) = best(Finding::LowParallax) {
        return Warning::new(
            "apriltag_low_parallax",
            format!(
                "the {} frames that show AprilTag {} see it from nearly the same direction: {none}. Film the tag from \
                 several sides",
                c.members.len(),
                c.id
            ),
        );
    }
    if let Some(c) = best(Finding::TooSmall) {
        return Warning::new(
            "apriltag_too_small",
            format!(
                "AprilTag {} is {:.0} pixels wide in the video, {MIN_EDGE:.0} are needed in {MIN_VIEWS} frames: {none}. Go \
                 nearer, or print it larger",
                c.id,
                edge_pixels(c, sightings)
            ),
        );
    }
    let most = candidates.iter().map(|c| c.members.len()).max().unwrap_or(0);
    Warning::new(
        "apriltag_too_few_views",
        format!(
            "no AprilTag is seen in {MIN_VIEWS} frames, at most in {most}: {none}. Film the tag for longer, from several sides"
        ),
    )
}

/// Tags agree, but tell too little.
pub(super) fn too_uncertain(deviation: Option<f64>, candidates: &[Candidate]) -> Warning {
    let used = candidates.iter().filter(|c| c.finding == Finding::Used).count();
    let known = deviation.map_or_else(|| "not at all".into(), |d| format!("to {:.0} % only", 100.0 * d));
    Warning::new(
        "apriltag_uncertain",
        format!(
            "{used} AprilTags are measured, but tell the scale {known}: the model has no metric scale. Film the tags from \
             several sides, and nearer"
        ),
    )
}

/// A scale was found, but not from all tags: those that contradict it. `edge` is that of the others.
pub(super) fn left_out(candidates: &[Candidate], size_mm: f64, edge: f64) -> Option<Warning> {
    let what = |c: &Candidate| {
        let measured = c.fit.map_or(0.0, |f| size_mm * f.edge / edge);
        match c.finding {
            Finding::OtherSize => Some(format!("tag {} measures {measured:.1} mm", c.id)),
            Finding::Deformed => Some(format!(
                "tag {} is no flat square ({:.1} % off)",
                c.id,
                100.0 * c.shape.map_or(0.0, |s| s.deformation())
            )),
            Finding::Contradictory => {
                Some(format!("tag {} is not in one place in {} frames", c.id, c.members.len()))
            }
            _ => None,
        }
    };
    let wrong: Vec<String> = candidates.iter().filter_map(what).collect();
    let used: Vec<&Candidate> = candidates.iter().filter(|c| c.finding == Finding::Used).collect();
    let views: usize = used.iter().map(|c| c.members.len()).sum();
    (!wrong.is_empty()).then(|| {
        Warning::new(
            "apriltag_inconsistent",
            format!(
                "the scale is that of {} AprilTags ({views} sightings) of {size_mm} mm; left out: {}",
                used.len(),
                wrong.join(", ")
            ),
        )
    })
}
