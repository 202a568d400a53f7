//! Which points of stereo can be believed: its surfaces reach over the outline of what is in front, by the size of the
//! windows that it compares, and some of them float in the air.

use rayon::prelude::*;

use super::evidence::{Label, ScenePoint, Stage};
use super::views::project;
use crate::raster;

/// Long side of the grids on which views are compared: that of the pictures of the stereo.
const GRID_SIDE: f32 = 240.0;
/// An object point this many cells from a background point in most of its views may be background seen beside the object.
const OUTLINE: usize = 3;
/// Depths differ if they differ by more than this part of the cameras' distance.
const DEPTH_MARGIN: f64 = 0.03;

/// What one view saw of the points of stereo, by cell.
struct Grid {
    width: usize,
    height: usize,
    /// Depth of the surface; 0 where none was seen.
    depth: Vec<f32>,
    background: Vec<bool>,
}

impl Grid {
    fn cell(&self, x: f32, y: f32) -> Option<(usize, usize)> {
        let (x, y) = (x * self.width as f32, y * self.height as f32);
        // Comparisons that fail for what is not a number.
        let inside = x >= 0.0 && y >= 0.0 && x < self.width as f32 && y < self.height as f32;
        inside.then_some((x as usize, y as usize))
    }

    /// Whether background was seen within `radius` cells.
    fn background_near(&self, (column, row): (usize, usize), radius: usize) -> bool {
        let columns = column.saturating_sub(radius)..(column + radius + 1).min(self.width);
        (row.saturating_sub(radius)..(row + radius + 1).min(self.height))
            .any(|y| self.background[y * self.width..][columns.clone()].contains(&true))
    }
}

/// Makes object points of stereo (`points[first..]`) unknown that lie at the outline of the object in most of the views that
/// saw them, and those that are looked through more often than seen.
pub(super) fn forget_doubtful(
    points: &[ScenePoint],
    first: usize,
    labels: &mut [Label],
    stage: &Stage,
    cameras: &[raster::View],
) {
    let grids = grids(&points[first..], &labels[first..], cameras);
    let margin = DEPTH_MARGIN * stage.distance;
    let at_outline = |point: &ScenePoint| {
        let beside_background = |&&(view, x, y): &&(u32, f32, f32)| {
            let grid = &grids[view as usize];
            grid.cell(x, y).is_some_and(|cell| grid.background_near(cell, OUTLINE))
        };
        2 * point.seen.iter().filter(beside_background).count() > point.seen.len()
    };
    let floats = |point: &ScenePoint| {
        let (mut through, mut seen) = (0, 0);
        for (camera, grid) in cameras.iter().zip(&grids) {
            let Some((x, y, depth)) = project(camera, &point.position) else { continue };
            let (x, y) = (x / f64::from(camera.width), y / f64::from(camera.height));
            let Some((column, row)) = grid.cell(x as f32, y as f32) else { continue };
            let surface = f64::from(grid.depth[row * grid.width + column]);
            if surface > depth + margin {
                through += 1;
            } else if surface > depth - margin {
                seen += 1;
            }
        }
        2 * through > seen
    };
    labels[first..].par_iter_mut().zip(&points[first..]).for_each(|(label, point)| {
        if *label == Label::Object && (at_outline(point) || floats(point)) {
            *label = Label::Unknown;
        }
    });
}

fn grids(points: &[ScenePoint], labels: &[Label], cameras: &[raster::View]) -> Vec<Grid> {
    let mut grids: Vec<Grid> = cameras
        .iter()
        .map(|c| {
            let scale = (GRID_SIDE / c.width.max(c.height) as f32).min(1.0);
            let side = |of: u32| ((of as f32 * scale).round() as usize).max(1);
            let (width, height) = (side(c.width), side(c.height));
            Grid { width, height, depth: vec![0.0; width * height], background: vec![false; width * height] }
        })
        .collect();
    for (point, label) in points.iter().zip(labels) {
        for &(view, x, y) in &point.seen {
            let (camera, grid) = (&cameras[view as usize], &mut grids[view as usize]);
            let Some((column, row)) = grid.cell(x, y) else { continue };
            let cell = row * grid.width + column;
            if let Some((_, _, depth)) = project(camera, &point.position) {
                grid.depth[cell] = depth as f32;
            }
            grid.background[cell] |= *label == Label::Background;
        }
    }
    grids
}
