//! Which sightings show the same tag: those of one id whose corners meet in space. One id printed twice gives two tags.

use std::collections::BTreeMap;

use nalgebra::Vector2;

use crate::sfm::map::{Map, Observation};
use crate::sfm::triangulation::{Triangulator, Views};

use super::sightings::Sighting;
use super::square::{Corners, Rays};

/// Sightings that agree on where one tag is.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Group {
    /// Indices of sightings, by image, at most one an image.
    pub(super) members: Vec<usize>,
    /// Its corners in the world, each triangulated by itself.
    pub(super) corners: Corners,
}

/// A sighting fits a tag whose corners are all this close to its own (pixels).
const MAX_ERROR: f64 = 3.0;
/// Rays of a pair of sightings must meet at this angle (radians) to begin with.
const MIN_ANGLE: f64 = 0.01;
/// Pairs are made of at most this many sightings of an id, evenly spread.
const MAX_STARTS: usize = 32;

/// Groups the sightings `of` one id: the largest group that agrees, then the largest of the rest, and so on. What is
/// seen once, or contradicts all others, is in none.
pub(super) fn group(map: &Map, sightings: &[Sighting], of: &[usize]) -> Vec<Group> {
    let mut pixels = vec![Vec::new(); map.poses.len()];
    let mut first = Vec::with_capacity(of.len());
    for &s in of {
        let own: &mut Vec<Vector2<f64>> = &mut pixels[sightings[s].image];
        first.push(own.len() as u32);
        own.extend(sightings[s].corners);
    }
    let (views, meeting) = (Views::new(map, &pixels), Triangulator::new(map, &pixels));
    let corner = |m: usize, k: usize| Observation::new(sightings[of[m]].image as u32, first[m] + k as u32);
    let error = |m: usize, corners: &Corners| {
        (0..4).map(|k| views.squared_error(&corner(m, k), &corners[k])).fold(0.0, f64::max)
    };
    let rays = Rays::new(map);
    let mut open: Vec<usize> = (0..of.len()).collect();
    let mut groups = Vec::new();
    loop {
        // The hypothesis that most sightings agree with, and agree with best.
        let mut best: Option<(f64, Corners)> = None;
        let starts: Vec<usize> = match open.len() {
            n if n > MAX_STARTS => (0..MAX_STARTS).map(|k| open[k * (n - 1) / (MAX_STARTS - 1)]).collect(),
            _ => open.clone(),
        };
        for (i, &a) in starts.iter().enumerate() {
            for &b in starts[i + 1..].iter().filter(|&&b| sightings[of[a]].image != sightings[of[b]].image) {
                let meet = |k: usize| {
                    meeting.midpoint(&corner(a, k), &corner(b, k)).filter(|m| m.1 > MIN_ANGLE).map(|m| m.0)
                };
                let (Some(p), Some(q), Some(r), Some(s)) = (meet(0), meet(1), meet(2), meet(3)) else {
                    continue;
                };
                let corners = [p, q, r, s];
                let score: f64 = open.iter().map(|&m| error(m, &corners).min(MAX_ERROR * MAX_ERROR)).sum();
                if best.is_none_or(|(lowest, _)| score < lowest) {
                    best = Some((score, corners));
                }
            }
        }
        let Some((_, mut corners)) = best else { return groups };
        let mut members = Vec::new();
        for _ in 0..3 {
            members = agreeing(&open, sightings, of, |m| error(m, &corners));
            if members.len() < 2 {
                break;
            }
            let seen: Vec<&Sighting> = members.iter().map(|&m| &sightings[of[m]]).collect();
            corners = rays.triangulate(&seen, &corners).map(|c| c.position);
        }
        if members.len() < 2 {
            return groups;
        }
        open.retain(|m| !members.contains(m));
        groups.push(Group { members: members.iter().map(|&m| of[m]).collect(), corners });
    }
}

/// Those of `open` that fit, the best one of each image.
fn agreeing(
    open: &[usize],
    sightings: &[Sighting],
    of: &[usize],
    error: impl Fn(usize) -> f64,
) -> Vec<usize> {
    let mut by_image: BTreeMap<usize, (f64, usize)> = BTreeMap::new();
    for &m in open {
        let off = error(m);
        if off <= MAX_ERROR * MAX_ERROR {
            let entry = by_image.entry(sightings[of[m]].image).or_insert((off, m));
            if off < entry.0 {
                *entry = (off, m);
            }
        }
    }
    by_image.into_values().map(|(_, m)| m).collect()
}
