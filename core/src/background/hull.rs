//! The visual hull: what in space is seen as object by (nearly) all views that see it (Laurentini, TPAMI 1994), on a
//! grid of cubes. Some views may be wrong: a mask that missed a part must not carve it away.

use nalgebra::Vector3;
use rayon::prelude::*;

use super::support_plane::SupportPlane;
use super::views::View;

/// Cubes along the longest side of the grid.
const CUBES: usize = 128;
/// A cube may be object if at least this part of the views that see it see the object there,
const POSSIBLE: f64 = 0.85;
/// and it is, if this part does. What lies between is a shell around the object that becomes thicker the more views may be
/// wrong: a point just beside a round object hides before it in all views but those from the side.
const CERTAIN: f64 = 0.97;
/// Cubes that fewer views see are not judged, and not kept.
const LEAST_VIEWS: u32 = 3;

/// What is known of a place in space.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Cube {
    Empty,
    Possible,
    Certain,
}

/// What is known of a pixel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Silhouette {
    /// No cube is seen: background.
    Outside,
    /// Only cubes of which it is not certain that they are object.
    Edge,
    /// Object.
    Inside,
}

/// Cubes in space, some of them object.
pub(super) struct Hull {
    /// The corner with the smallest coordinates.
    corner: Vector3<f64>,
    /// Side of a cube.
    step: f64,
    size: [usize; 3],
    pub(super) cubes: Vec<Cube>,
    /// Centres of the cubes at the surface of what may be object: they cover what all of it covers.
    possible: Vec<Vector3<f64>>,
    /// The same of what certainly is, without its outermost cubes.
    certain: Vec<Vector3<f64>>,
}

impl Hull {
    /// Carves the box from `low` to `high` by the probabilities of `views`; nothing below `plane`, if there is one. Views
    /// whose object is nowhere say nothing.
    pub(super) fn carve(
        views: &[View],
        low: &Vector3<f64>,
        high: &Vector3<f64>,
        plane: Option<&SupportPlane>,
    ) -> Self {
        let step = (high - low).max() / CUBES as f64;
        let size: [usize; 3] =
            std::array::from_fn(|k| (((high - low)[k] / step).ceil() as usize).clamp(1, CUBES));
        let useful: Vec<&View> = views.iter().filter(|v| v.probability.iter().any(|p| *p > 127)).collect();
        let mut hull =
            Self { corner: *low, step, size, cubes: Vec::new(), possible: Vec::new(), certain: Vec::new() };
        hull.cubes = (0..size[0])
            .into_par_iter()
            .flat_map_iter(|i| {
                let (hull, useful) = (&hull, &useful);
                (0..size[1] * size[2]).map(move |jk| {
                    let centre = hull.centre([i, jk / size[2], jk % size[2]]);
                    let above = plane.is_none_or(|p| p.height(&centre) > 0.0);
                    if above { judge(&centre, useful) } else { Cube::Empty }
                })
            })
            .collect();
        for index in 0..hull.cubes.len() {
            let cube = [index / size[2] / size[1], index / size[2] % size[1], index % size[2]];
            match (hull.cubes[index], hull.least_neighbour(cube)) {
                (Cube::Empty, _) => {}
                (_, Cube::Empty) => hull.possible.push(hull.centre(cube)),
                (Cube::Certain, Cube::Certain) => hull.certain.push(hull.centre(cube)),
                _ => {}
            }
        }
        hull
    }

    fn centre(&self, cube: [usize; 3]) -> Vector3<f64> {
        self.corner + Vector3::from_fn(|k, _| (cube[k] as f64 + 0.5) * self.step)
    }

    /// The least that is known of the six neighbours; beside the grid is nothing.
    fn least_neighbour(&self, cube: [usize; 3]) -> Cube {
        let neighbours = (0..3).flat_map(|axis| [-1, 1].map(|step| (axis, step)));
        let known = neighbours.map(|(axis, step): (usize, isize)| {
            let mut other = cube;
            other[axis] = other[axis].wrapping_add_signed(step);
            if other[axis] >= self.size[axis] {
                return Cube::Empty;
            }
            self.cubes[(other[0] * self.size[1] + other[1]) * self.size[2] + other[2]]
        });
        known.min().unwrap_or(Cube::Empty)
    }

    /// The pixels of `view` at which the hull is seen.
    pub(super) fn seen_in(&self, view: &View) -> Vec<Silhouette> {
        let (width, height) = (view.width(), view.height());
        let mut seen = vec![Silhouette::Outside; width * height];
        for (centres, margin, value) in
            [(&self.possible, 0.5, Silhouette::Edge), (&self.certain, 0.0, Silhouette::Inside)]
        {
            for centre in centres {
                let Some((x, y, depth)) = super::views::project(&view.camera, centre) else { continue };
                let half = 0.5 * (self.step * view.camera.fx / depth).min(width as f64) + margin;
                let range = |at: f64, count: usize| {
                    let low = (at - half).max(0.0).min(count as f64) as usize;
                    low..((at + half).ceil().max(0.0) as usize).clamp(low, count)
                };
                for row in range(y, height) {
                    seen[row * width..][range(x, width)].fill(value);
                }
            }
        }
        seen
    }
}

/// What the views know of a point.
fn judge(point: &Vector3<f64>, views: &[&View]) -> Cube {
    let (mut seen, mut object) = (0u32, 0u32);
    // More misses than this cannot be made up for.
    let most_misses = ((1.0 - POSSIBLE) * views.len() as f64).floor() as u32;
    for view in views {
        let Some((x, y, _)) = super::views::project(&view.camera, point) else { continue };
        let Some(pixel) = view.pixel(x, y) else { continue };
        seen += 1;
        object += u32::from(view.probability[pixel] > 127);
        if seen - object > most_misses {
            return Cube::Empty;
        }
    }
    let part = f64::from(object) / f64::from(seen.max(1));
    match part {
        _ if seen < LEAST_VIEWS || part < POSSIBLE => Cube::Empty,
        _ if part < CERTAIN => Cube::Possible,
        _ => Cube::Certain,
    }
}
