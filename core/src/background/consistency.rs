//! Masks on which all views agree.
//!
//! A network that looks at one picture misses parts of the object and takes in shadows. What it says of all pictures
//! together is better, once they are tied by the geometry: points of the scene are told apart by votes and by what stands
//! on the ground ([`super::evidence`]); they and the network give first probabilities; from those come the object's
//! colours and its visual hull, which correct the probabilities of every view, over and over (after Campbell et al.,
//! "Automatic object segmentation from calibrated images", CVMP 2011, with filtering in place of graph cuts).

use nalgebra::Vector3;
use rayon::prelude::*;

use super::colours::{ColourCounts, Colours};
use super::evidence::{Evidence, Label, ScenePoint, Stage};
use super::hull::{Hull, Silhouette};
use super::views::View;
use crate::control::{Control, Stage as PipelineStage};
use crate::error::Result;

/// Rounds of colours and hull.
const ROUNDS: usize = 3;
/// Weights of the log odds: in the first probabilities, once colours are known, and once the hull is.
const NETWORK: f32 = 0.7;
const NETWORK_WITH_COLOUR: f32 = 0.6;
const COLOUR: f32 = 0.7;
const POINTS_AT_LAST: f32 = 0.6;
const NETWORK_AT_LAST: f32 = 0.4;
const COLOUR_LIMIT: f32 = 2.5;
const INSIDE_HULL: f32 = 1.5;
const EDGE_OF_HULL: f32 = 0.3;
const OUTSIDE_HULL: f32 = -2.5;
/// Points whose colours have a log ratio (mean over where they were seen) below this look like the background.
const UNLIKE: f32 = -0.25;
/// The grid of the hull reaches this much over the object's points, as a part of their longest extent.
const MARGIN: f64 = 0.2;
/// With fewer object points, the hull is sought around the focus.
const FEW_POINTS: usize = 20;
/// In a ball of this radius, in units of the distance to the cameras.
const AROUND_FOCUS: f64 = 0.5;

/// What remains of the search: the evidence by which every pixel of every view can be judged.
pub(super) struct Agreement {
    colours: Colours,
}

/// Makes the probabilities of `views` agree; progress from 0 to 1 of `control`. Of `points`, those from `dense_from` on are of
/// stereo.
pub(super) fn agree(
    views: &mut [View],
    points: &[ScenePoint],
    dense_from: usize,
    evidence: &Evidence,
    stage: &Stage,
    control: &Control,
) -> Result<Agreement> {
    let progress = |part: f32| control.progress(PipelineStage::Sfm, "masks", part);
    let (low, high) = bounds(points, &evidence.labels, stage);
    let plane = evidence.plane.as_ref();
    judge(views, control, |index, view| {
        view.take_points(index, points, &evidence.labels);
        (0..view.rgb.len()).map(|k| view.geometry(k) + NETWORK * view.salience(k)).collect()
    })?;
    progress(0.25);
    let mut agreement = Agreement { colours: colours_of(views) };
    for round in 0..ROUNDS {
        if round > 0 {
            agreement.colours = colours_of(views);
        }
        let labels = without_unlike(points, dense_from, &evidence.labels, views, &agreement.colours);
        judge(views, control, |index, view| {
            view.take_points(index, points, &labels);
            let odds = |k| {
                view.geometry(k)
                    + NETWORK_WITH_COLOUR * view.salience(k)
                    + agreement.colour_odds(view, k)
                    + hull_odds(view, k)
            };
            (0..view.rgb.len()).map(odds).collect()
        })?;
        let hull = Hull::carve(views, &low, &high, plane);
        judge(views, control, |_, view| {
            view.hull = hull.seen_in(view);
            agreement.odds(view)
        })?;
        progress(0.25 + 0.75 * (round + 1) as f32 / ROUNDS as f32);
    }
    Ok(agreement)
}

/// Decides on all views by the log odds of their pixels.
fn judge(
    views: &mut [View],
    control: &Control,
    odds: impl Fn(usize, &mut View) -> Vec<f32> + Sync,
) -> Result<()> {
    views.par_iter_mut().enumerate().try_for_each(|(index, view)| {
        control.check()?;
        let odds = odds(index, view);
        view.decide(&odds);
        Ok(())
    })
}

impl Agreement {
    /// The log odds of a view's pixels, before they are smoothed along its edges.
    pub(super) fn odds(&self, view: &View) -> Vec<f32> {
        let odds = |k| {
            POINTS_AT_LAST * view.geometry(k)
                + NETWORK_AT_LAST * view.salience(k)
                + self.colour_odds(view, k)
                + hull_odds(view, k)
        };
        (0..view.rgb.len()).map(odds).collect()
    }

    fn colour_odds(&self, view: &View, pixel: usize) -> f32 {
        COLOUR * self.colours.log_ratio(&view.rgb[pixel]).clamp(-COLOUR_LIMIT, COLOUR_LIMIT)
    }
}

fn hull_odds(view: &View, pixel: usize) -> f32 {
    // There is none in the first round.
    view.hull.get(pixel).map_or(0.0, |seen| match seen {
        Silhouette::Inside => INSIDE_HULL,
        Silhouette::Edge => EDGE_OF_HULL,
        Silhouette::Outside => OUTSIDE_HULL,
    })
}

/// The labels, but object points of stereo that have the colours of the background are unknown: a surface that reaches over
/// the outline of what is in front shows what is behind.
fn without_unlike(
    points: &[ScenePoint],
    dense_from: usize,
    labels: &[Label],
    views: &[View],
    colours: &Colours,
) -> Vec<Label> {
    let is_unlike = |point: &ScenePoint| {
        let ratios = point.seen.iter().filter_map(|&(view, x, y)| {
            let view = views.get(view as usize)?;
            Some(colours.log_ratio(&view.rgb[view.pixel_at(x, y)?]).clamp(-COLOUR_LIMIT, COLOUR_LIMIT))
        });
        let (sum, count) = ratios.fold((0.0, 0), |(s, n), ratio| (s + ratio, n + 1));
        sum < UNLIKE * count as f32
    };
    let label = |(index, (point, label)): (usize, (&ScenePoint, &Label))| {
        let doubtful = index >= dense_from && *label == Label::Object && is_unlike(point);
        if doubtful { Label::Unknown } else { *label }
    };
    points.par_iter().zip(labels).enumerate().map(label).collect()
}

fn colours_of(views: &[View]) -> Colours {
    let counts = views
        .par_iter()
        .map(|v| ColourCounts::of(&v.rgb, &v.probability))
        .reduce_with(|mut a, b| {
            a.add(&b);
            a
        })
        .unwrap_or_else(|| ColourCounts::of(&[], &[]));
    Colours::new(&counts)
}

/// The box around nearly all of the object's points, with some room.
fn bounds(points: &[ScenePoint], labels: &[Label], stage: &Stage) -> (Vector3<f64>, Vector3<f64>) {
    let object: Vec<&Vector3<f64>> =
        points.iter().zip(labels).filter(|(_, l)| **l == Label::Object).map(|(p, _)| &p.position).collect();
    if object.len() < FEW_POINTS {
        let reach = Vector3::repeat(AROUND_FOCUS * stage.distance);
        return (stage.focus - reach, stage.focus + reach);
    }
    let (mut low, mut high) = (Vector3::<f64>::zeros(), Vector3::<f64>::zeros());
    for k in 0..3 {
        let mut values: Vec<f64> = object.iter().map(|p| p[k]).collect();
        values.sort_by(f64::total_cmp);
        let at = |part: f64| values[((values.len() - 1) as f64 * part).round() as usize];
        (low[k], high[k]) = (at(0.01), at(0.99));
    }
    let margin = Vector3::repeat(MARGIN * (high - low).max().max(1e-6));
    (low - margin, high + margin)
}
