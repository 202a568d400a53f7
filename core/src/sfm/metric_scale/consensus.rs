//! Each tag by itself, and which of them agree on one edge length.

use std::collections::BTreeMap;

use crate::sfm::map::Map;
use crate::statistics::weighted_median;

use super::groups::group;
use super::sightings::Sighting;
use super::square::{Corners, Fit, Rays, Shape};

/// Sightings with a shorter edge (pixels of the picture that was searched) are not measured: blur and the pixels
/// themselves bias their corners.
pub(super) const MIN_EDGE: f64 = 24.0;
/// Images that must see a tag.
pub(super) const MIN_VIEWS: usize = 3;
/// They must see it at this angle (radians), ...
const MIN_PARALLAX: f64 = 0.0175;
/// ... and by itself tell its size at least this well.
const MAX_DEVIATION: f64 = 0.15;
/// A square that is this far off on average (pixels) is none, or moved.
const MAX_ERROR: f64 = 2.0;
/// Edges that differ by more than this (of their logarithm) are not of one size, ...
const TOLERANCE: f64 = 0.03;
/// ... if it is this many standard deviations.
const CERTAIN: f64 = 3.0;

/// What became of a tag.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Finding {
    Used,
    TooSmall,
    TooFewViews,
    /// Seen from too nearly the same direction.
    LowParallax,
    /// Bent, folded or stretched.
    Deformed,
    /// Sightings that do not show one square at rest.
    Contradictory,
    /// Not of the size of the others.
    OtherSize,
}

impl Finding {
    /// The name in the report; `None` for a tag that was used.
    pub(super) fn slug(self) -> Option<&'static str> {
        match self {
            Finding::Used => None,
            Finding::TooSmall => Some("too_small"),
            Finding::TooFewViews => Some("too_few_views"),
            Finding::LowParallax => Some("low_parallax"),
            Finding::Deformed => Some("deformed"),
            Finding::Contradictory => Some("contradictory"),
            Finding::OtherSize => Some("other_size"),
        }
    }
}

/// One tag of the scene.
#[derive(Debug, Clone)]
pub(super) struct Candidate {
    pub(super) id: u32,
    /// Indices of its sightings.
    pub(super) members: Vec<usize>,
    /// Its corners, each by itself, where they meet at all.
    corners: Option<Corners>,
    pub(super) fit: Option<Fit>,
    pub(super) shape: Option<Shape>,
    pub(super) finding: Finding,
}

impl Candidate {
    /// Standard deviation of the edge relative to it, of this tag by itself.
    pub(super) fn deviation(&self) -> f64 {
        let noise = self.fit.map_or(1.0, |f| f.deviation);
        noise.hypot(self.shape_variance().sqrt())
    }

    /// Half of what the shape is certainly off may be off in the size.
    pub(super) fn shape_variance(&self) -> f64 {
        self.shape.map_or(0.0, |s| (0.5 * s.deformation()).powi(2))
    }

    /// Measures it with the cameras of `rays`.
    fn measure(&mut self, rays: &Rays, sightings: &[Sighting]) {
        let Some(start) = &self.corners else { return };
        let seen: Vec<&Sighting> = self.members.iter().map(|&s| &sightings[s]).collect();
        let corners = rays.triangulate(&seen, start);
        self.fit = rays.fit(&seen, &corners.map(|c| c.position));
        self.shape = rays.shape(&seen, &corners);
    }
}

/// The tags of the scene, in the order of their ids, each measured by itself.
pub(super) fn examine(map: &Map, sightings: &[Sighting]) -> Vec<Candidate> {
    let mut by_id: BTreeMap<u32, Vec<usize>> = BTreeMap::new();
    for (s, sighting) in sightings.iter().enumerate() {
        by_id.entry(sighting.id).or_default().push(s);
    }
    let rays = Rays::new(map);
    let mut candidates = Vec::new();
    for (id, all) in by_id {
        let large: Vec<usize> = all.iter().copied().filter(|&s| sightings[s].edge >= MIN_EDGE).collect();
        let bare = |members: Vec<usize>, finding| Candidate {
            id,
            members,
            corners: None,
            fit: None,
            shape: None,
            finding,
        };
        if large.len() < MIN_VIEWS {
            let finding = if all.len() >= MIN_VIEWS { Finding::TooSmall } else { Finding::TooFewViews };
            candidates.push(bare(all, finding));
            continue;
        }
        let groups = group(map, sightings, &large);
        let enough = groups.iter().filter(|g| g.members.len() >= MIN_VIEWS);
        let before = candidates.len();
        candidates.extend(enough.map(|g| {
            let corners = Some(g.corners);
            let mut c = Candidate { corners, ..bare(g.members.clone(), Finding::Used) };
            c.measure(&rays, sightings);
            c.finding = judge(&c);
            c
        }));
        if candidates.len() == before {
            // Either the rays never meet at an angle, or they contradict each other.
            candidates.push(bare(
                large,
                if groups.is_empty() { Finding::LowParallax } else { Finding::Contradictory },
            ));
        }
    }
    candidates
}

/// What is wrong with a tag by itself.
fn judge(candidate: &Candidate) -> Finding {
    match (&candidate.fit, &candidate.shape) {
        (Some(fit), _) if fit.parallax < MIN_PARALLAX => Finding::LowParallax,
        (Some(_), Some(shape)) if shape.is_deformed() => Finding::Deformed,
        (Some(fit), Some(_)) if fit.error > MAX_ERROR => Finding::Contradictory,
        (Some(fit), Some(_)) if fit.deviation > MAX_DEVIATION => Finding::LowParallax,
        (Some(_), Some(_)) => Finding::Used,
        _ => Finding::Contradictory,
    }
}

/// Finds the edge length that more than half of the usable tags agree on, and marks the others. Whether there is one.
pub(super) fn agree(candidates: &mut [Candidate]) -> bool {
    let usable =
        |c: &Candidate| Some((c.fit?.edge.ln(), c.deviation())).filter(|_| c.finding == Finding::Used);
    let measured: Vec<(f64, f64)> = candidates.iter().filter_map(usable).collect();
    let count = measured.len();
    if count == 0 {
        return false;
    }
    let middle = median_by_deviation(&measured);
    let mut agreeing = 0;
    for candidate in candidates.iter_mut() {
        let Some((log, deviation)) = usable(candidate) else { continue };
        if (log - middle).abs() > TOLERANCE.max(CERTAIN * deviation) {
            candidate.finding = Finding::OtherSize;
        } else {
            agreeing += 1;
        }
    }
    2 * agreeing > count
}

/// Measures the used tags by themselves with the cameras of the adjusted map.
pub(super) fn measure_again(candidates: &mut [Candidate], map: &Map, sightings: &[Sighting], used: &[usize]) {
    let rays = Rays::new(map);
    for &k in used {
        let before = (candidates[k].fit, candidates[k].shape);
        candidates[k].measure(&rays, sightings);
        if candidates[k].fit.is_none() || candidates[k].shape.is_none() {
            (candidates[k].fit, candidates[k].shape) = before;
        }
    }
}

/// What tags differ from `edge` beyond their own deviations: the variance between them (DerSimonian & Laird,
/// "Meta-analysis in clinical trials", 1986), relative.
pub(super) fn excess_variance(tags: &[&Candidate], edge: f64) -> f64 {
    let measured: Vec<(f64, f64)> =
        tags.iter().filter_map(|c| Some(((c.fit?.edge / edge).ln(), c.deviation().powi(-2)))).collect();
    let sum: f64 = measured.iter().map(|m| m.1).sum();
    let mean = measured.iter().map(|m| m.0 * m.1).sum::<f64>() / sum;
    let q: f64 = measured.iter().map(|m| m.1 * (m.0 - mean).powi(2)).sum();
    let c = sum - measured.iter().map(|m| m.1 * m.1).sum::<f64>() / sum;
    let freedom = measured.len() as f64 - 1.0;
    if freedom > 0.0 && c > 0.0 { ((q - freedom) / c).max(0.0) } else { 0.0 }
}

/// Median of (value, standard deviation), each counting by its inverse variance; no deviation counts as below 0.1 %. 0
/// of nothing.
pub(super) fn median_by_deviation(values: &[(f64, f64)]) -> f64 {
    let weighted = |&(value, deviation): &(f64, f64)| (value, 1.0 / (deviation * deviation + 1e-6));
    weighted_median(&mut values.iter().map(weighted).collect::<Vec<_>>()).unwrap_or(0.0)
}
