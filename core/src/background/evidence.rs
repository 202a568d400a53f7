//! What the points of the scene say about object and background: where the cameras look, what stands above the ground
//! there, and how often the network found each point salient.

use nalgebra::{Matrix3, Vector3};
use rayon::prelude::*;

use super::support_plane::{self, SupportPlane};
use super::surfaces;
use super::views::View;
use crate::raster;
use crate::train::{Neighbours, centre};

/// A point on a surface of the scene.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct ScenePoint {
    /// World position.
    pub(super) position: Vector3<f64>,
    /// (view, x, y): where it was seen, in parts of the view's width and height.
    pub(super) seen: Vec<(u32, f32, f32)>,
}

/// Where the capture takes place.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Stage {
    /// The point that the cameras look at.
    pub(super) focus: Vector3<f64>,
    /// Median distance of the cameras from it.
    pub(super) distance: f64,
    /// The scene's up, unit length.
    pub(super) up: Vector3<f64>,
}

/// What a point belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Label {
    Object,
    Background,
    /// Cannot be told.
    Unknown,
}

/// What the points of the scene were found to be.
pub(super) struct Evidence {
    /// By point.
    pub(super) labels: Vec<Label>,
    /// What the object stands on.
    pub(super) plane: Option<SupportPlane>,
}

/// Levelled scenes have their up here.
const WORLD_UP: Vector3<f64> = Vector3::new(0.0, -1.0, 0.0);
/// What stands on the plane within this part of the cameras' distance from the focus (along the plane) is the object.
const STAGE_RADIUS: f64 = 0.4;
/// A point is above the plane from this height on, in units of the distance to the cameras,
const CLEARANCE: f64 = 0.008;
/// and from this many standard deviations of the plane's points.
const DEVIATIONS: f64 = 4.0;
/// Up to this part of the clearance a point is of the plane, and
const ON_PLANE: f64 = 0.2;
/// from this part on it is of the object; in between colours decide.
const ABOVE_PLANE: f64 = 1.0;
/// Points at least this salient, with their neighbours, belong to the object; a network that finds only a part of a large
/// object in each view finds every part in some.
const SALIENT: f32 = 0.25;
/// Below this they belong to the background.
const PLAIN: f32 = 0.15;
/// Without a plane to stand on, what is farther from the focus (in units of the cameras' distance) is background.
const FAR: f64 = 1.2;
const NEIGHBOURS: usize = 12;
const SMOOTHINGS: usize = 4;
/// An object point whose neighbours are this many times farther than usual stands alone: an error.
const LONELY: f64 = 8.0;

impl Stage {
    /// The point nearest to all viewing rays and the scene's up.
    pub(super) fn of(cameras: &[raster::View]) -> Option<Self> {
        let centres: Vec<Vector3<f64>> = cameras.iter().map(centre).collect();
        let axis = |c: &raster::View, row: usize| -> Vector3<f64> { Vector3::from(c.rotation[row]) };
        let (mut a, mut b) = (Matrix3::<f64>::zeros(), Vector3::<f64>::zeros());
        for (camera, centre) in cameras.iter().zip(&centres) {
            let forward = axis(camera, 2);
            let across = Matrix3::identity() - forward * forward.transpose();
            a += across;
            b += across * centre;
        }
        // Rays that are parallel meet nowhere: a little weight keeps the focus near the cameras then.
        let mean = centres.iter().sum::<Vector3<f64>>() / centres.len().max(1) as f64;
        let inverse: Matrix3<f64> = (a + Matrix3::<f64>::identity() * 1e-6).try_inverse()?;
        let focus: Vector3<f64> = inverse * (b + mean * 1e-6);
        let mut distances: Vec<f64> = centres.iter().map(|c| (c - focus).norm()).collect();
        distances.sort_by(f64::total_cmp);
        let distance = *distances.get(distances.len() / 2)?;
        let up = cameras.iter().map(|c| -axis(c, 1)).sum::<Vector3<f64>>().try_normalize(1e-9)?;
        let up = if up.dot(&WORLD_UP) > 0.75 { WORLD_UP } else { up };
        (distance > 0.0 && focus.iter().all(|v| v.is_finite())).then_some(Self { focus, distance, up })
    }
}

/// Mean saliency (0 to 1) of every point over the views in which it was seen.
fn votes(points: &[ScenePoint], views: &[View]) -> Vec<f32> {
    points
        .par_iter()
        .map(|point| {
            let seen = point.seen.iter().filter_map(|&(v, x, y)| views.get(v as usize)?.saliency_at(x, y));
            let (sum, count) = seen.fold((0.0, 0), |(s, n), v| (s + v, n + 1));
            if count == 0 { 0.0 } else { sum / count as f32 }
        })
        .collect()
}

/// Tells object from background among the points, of which those from `dense_from` on are of stereo.
pub(super) fn weigh(
    points: &[ScenePoint],
    dense_from: usize,
    views: &[View],
    stage: &Stage,
    cameras: &[raster::View],
) -> Evidence {
    let saliency = votes(points, views);
    let seen_twice: Vec<(Vector3<f64>, f64)> = points
        .iter()
        .zip(&saliency)
        .filter(|(p, _)| p.seen.len() >= 2)
        .map(|(p, s)| (p.position, f64::from(*s)))
        .collect();
    let plane = support_plane::find(&seen_twice, stage);
    let smooth = smoothed(points, &saliency);
    let mut labels: Vec<Label> = match &plane {
        Some(plane) => above(points, &smooth, plane, stage, cameras),
        None => points
            .iter()
            .zip(&smooth)
            .map(|(p, s)| {
                let far = (p.position - stage.focus).norm() > FAR * stage.distance;
                match *s {
                    s if far || s < PLAIN => Label::Background,
                    s if s > SALIENT && p.seen.len() >= 2 => Label::Object,
                    _ => Label::Unknown,
                }
            })
            .collect(),
    };
    surfaces::forget_doubtful(points, dense_from, &mut labels, stage, cameras);
    forget_lonely(points, &mut labels);
    Evidence { labels, plane }
}

/// Labels by height above the plane and distance from where the cameras look.
fn above(
    points: &[ScenePoint],
    smooth: &[f32],
    plane: &SupportPlane,
    stage: &Stage,
    cameras: &[raster::View],
) -> Vec<Label> {
    let clearance = (CLEARANCE * stage.distance).max(DEVIATIONS * plane.deviation);
    let along = |p: &Vector3<f64>| {
        let d = p - stage.focus;
        (d - plane.normal * d.dot(&plane.normal)).norm()
    };
    let mut radii: Vec<f64> = cameras.iter().map(|c| along(&centre(c))).collect();
    radii.sort_by(f64::total_cmp);
    // Cameras straight above have no radius to speak of.
    let radius = radii.get(radii.len() / 2).copied().unwrap_or(0.0).max(0.5 * stage.distance);
    points
        .iter()
        .zip(smooth)
        .map(|(p, s)| {
            let (height, distance) = (plane.height(&p.position), along(&p.position));
            let inside = distance < STAGE_RADIUS * radius || (distance < radius && *s > SALIENT);
            if !inside || height <= ON_PLANE * clearance {
                Label::Background
            } else if height <= ABOVE_PLANE * clearance {
                Label::Unknown
            } else {
                Label::Object
            }
        })
        .collect()
}

/// Saliency averaged over neighbours in space, some times.
fn smoothed(points: &[ScenePoint], saliency: &[f32]) -> Vec<f32> {
    if points.len() <= NEIGHBOURS {
        return saliency.to_vec();
    }
    let positions: Vec<Vector3<f64>> = points.iter().map(|p| p.position).collect();
    let tree = Neighbours::new(&positions);
    let around: Vec<Vec<u32>> = positions
        .par_iter()
        .map(|p| tree.nearest(p, NEIGHBOURS + 1).into_iter().map(|(_, i)| i).collect())
        .collect();
    let mut smooth = saliency.to_vec();
    for _ in 0..SMOOTHINGS {
        smooth = around
            .par_iter()
            .zip(saliency)
            .map(|(around, own)| {
                let mean =
                    around.iter().map(|&i| smooth[i as usize]).sum::<f32>() / around.len().max(1) as f32;
                0.3 * own + 0.7 * mean
            })
            .collect();
    }
    smooth
}

/// Object points far from all others become unknown.
fn forget_lonely(points: &[ScenePoint], labels: &mut [Label]) {
    let object: Vec<usize> = (0..points.len()).filter(|&i| labels[i] == Label::Object).collect();
    if object.len() < 20 {
        return;
    }
    let positions: Vec<Vector3<f64>> = object.iter().map(|&i| points[i].position).collect();
    let tree = Neighbours::new(&positions);
    let gaps: Vec<f64> =
        positions.par_iter().map(|p| tree.nearest(p, 6).last().map_or(0.0, |e| e.0.sqrt())).collect();
    let mut sorted = gaps.clone();
    sorted.sort_by(f64::total_cmp);
    let usual = sorted[sorted.len() / 2];
    for (&i, gap) in object.iter().zip(&gaps) {
        if *gap > LONELY * usual {
            labels[i] = Label::Unknown;
        }
    }
}
