//! The object as one solid in space: the cells of a grid that the views show as object (a visual hull; Laurentini, TPAMI
//! 1994), and what the views show of it.

use std::ops::Range;

use nalgebra::Vector3;
use rayon::prelude::*;

use super::evidence::Odds;
use crate::raster;

/// A box of cells.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Grid {
    /// Centre of the first cell.
    origin: Vector3<f64>,
    /// From a cell to the next in each direction, world units; the third one is up.
    steps: [Vector3<f64>; 3],
    /// Number of cells in each direction.
    count: [usize; 3],
}

impl Grid {
    /// Cells of the size `cell` around `centre`, over `half` on both sides (all in world units); `up` is the third
    /// direction.
    pub(super) fn new(centre: &Vector3<f64>, half: [f64; 3], up: &Vector3<f64>, cell: f64) -> Self {
        let beside = if up.x.abs() < 0.7 { Vector3::x() } else { Vector3::z() };
        let first = (beside - up * beside.dot(up)).normalize();
        let steps = [first, up.cross(&first), *up].map(|axis| axis * cell);
        let count = half.map(|h| ((2.0 * h / cell).ceil() as usize).max(1));
        let origin = (0..3).fold(*centre, |o, k| o - steps[k] * (0.5 * (count[k] as f64 - 1.0)));
        Self { origin, steps, count }
    }

    /// A finer grid around the cells that are `inside`: `margin` cells of this grid wider, of cells of the size `cell`
    /// (world units), or larger ones if they would be more than `most` in a direction. `None` if none is inside.
    pub(super) fn around(&self, inside: &[bool], margin: f64, cell: f64, most: usize) -> Option<Self> {
        let (mut low, mut high) = ([usize::MAX; 3], [0; 3]);
        for (i, _) in inside.iter().enumerate().filter(|(_, inside)| **inside) {
            for (k, at) in self.coordinates(i).into_iter().enumerate() {
                low[k] = low[k].min(at);
                high[k] = high[k].max(at);
            }
        }
        if low[0] > high[0] {
            return None;
        }
        let middle = (0..3).fold(self.origin, |p, k| p + self.steps[k] * (0.5 * (low[k] + high[k]) as f64));
        let half: [f64; 3] =
            std::array::from_fn(|k| (0.5 * (high[k] - low[k] + 1) as f64 + margin) * self.cell());
        let longest = half.iter().copied().fold(0.0, f64::max);
        let cell = cell.max(2.0 * longest / most as f64);
        Some(Self::new(&middle, half, &self.steps[2].normalize(), cell))
    }

    /// Number of cells.
    pub(super) fn len(&self) -> usize {
        self.count.iter().product()
    }

    /// Number of cells in a level.
    pub(super) fn level(&self) -> usize {
        self.count[0] * self.count[1]
    }

    /// Number of levels.
    pub(super) fn levels(&self) -> usize {
        self.count[2]
    }

    /// Side of a cell, world units.
    pub(super) fn cell(&self) -> f64 {
        self.steps[0].norm()
    }

    /// The centre of a cell.
    pub(super) fn place(&self, cell: usize) -> Vector3<f64> {
        let at = self.coordinates(cell);
        (0..3).fold(self.origin, |p, k| p + self.steps[k] * at[k] as f64)
    }

    /// The cell in which a point is.
    pub(super) fn cell_at(&self, point: &Vector3<f64>) -> Option<usize> {
        let from = point - self.origin;
        let mut index = 0;
        for k in (0..3).rev() {
            let at = (from.dot(&self.steps[k]) / self.steps[k].norm_squared()).round();
            if !(at >= 0.0 && at < self.count[k] as f64) {
                return None;
            }
            index = index * self.count[k] + at as usize;
        }
        Some(index)
    }

    /// Number of cells that are `inside` in the grid's outermost layers: on all its sides, but for the lower one where `below` is
    /// false.
    pub(super) fn at_border(&self, inside: &[bool], below: bool) -> usize {
        let is_at_border = |cell: usize| {
            let at = self.coordinates(cell);
            let is_last = |k: usize| at[k] + 1 == self.count[k];
            is_last(2) || (below && at[2] == 0) || (0..2).any(|k| at[k] == 0 || is_last(k))
        };
        inside.iter().enumerate().filter(|(cell, inside)| **inside && is_at_border(*cell)).count()
    }

    fn coordinates(&self, cell: usize) -> [usize; 3] {
        let [a, b, _] = self.count;
        [cell % a, cell / a % b, cell / (a * b)]
    }

    /// The cells that have a side in common with `cell`: six, at the grid's border fewer.
    fn beside(&self, cell: usize) -> impl Iterator<Item = usize> + use<> {
        let (at, count) = (self.coordinates(cell), self.count);
        let strides = [1, count[0], count[0] * count[1]];
        (0..3).flat_map(move |k| {
            let lower = (at[k] > 0).then(|| cell - strides[k]);
            let upper = (at[k] + 1 < count[k]).then(|| cell + strides[k]);
            [lower, upper].into_iter().flatten()
        })
    }
}

/// What the views say of a cell.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct CellVotes {
    /// Number of views that have it in their picture and nothing before it.
    pub(super) views: u16,
    /// Number of views that have it in their picture behind something that is no part of the object.
    pub(super) hidden: u16,
    /// Sum of the probabilities that they show background there.
    pub(super) against: f32,
    /// Sum of their log odds.
    pub(super) log_odds: f32,
    /// The strongest run of neighbouring views that show background there: the most that their log odds against the object sum
    /// up to, each between [`RELIEF`] and [`STRONGEST`] (a CUSUM chart; Page, Biometrika 1954).
    pub(super) run: f32,
}

/// What a view adds to a run at most, log odds: what is certain,
const STRONGEST: f32 = 3.0;
/// and what one takes from it at most that shows object. Less than that, because beside an object most views show it in front of
/// the place or behind it.
const RELIEF: f32 = 1.5;

/// Number of rows of cells for which the views are asked one after the other: a view's odds stay in the processor's cache
/// meanwhile.
const ROWS_AT_ONCE: usize = 512;

/// What a view shows, by pixel, row by row.
#[derive(Debug, Clone, Copy)]
pub(super) struct Seen<'a> {
    pub(super) camera: &'a raster::View,
    /// What its pixels say.
    pub(super) odds: &'a [Odds],
    /// The depth (world units) from which on something else hides what is there; infinite where nothing does. Empty if nothing
    /// does in all of the picture.
    pub(super) hidden_from: &'a [f32],
}

impl Seen<'_> {
    /// Whether what a pixel shows is something else than the object, before what is at this depth: of that it says nothing. A pixel
    /// that shows the object says so of all that is behind the object's surface.
    pub(super) fn is_hidden(&self, pixel: usize, depth: f32) -> bool {
        self.hidden_from.get(pixel).is_some_and(|from| *from < depth) && self.odds[pixel].log_odds() <= 0.0
    }
}

/// How much the views may say against a cell. Of one against which they have said more, the others are not asked.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    /// Of [`CellVotes::against`]: less than this,
    pub(super) against: f32,
    /// and of [`CellVotes::run`]: as much at most.
    pub(super) run: f32,
}

impl Limits {
    /// Any amount: all views are asked.
    pub(super) const NONE: Self = Self { against: f32::INFINITY, run: f32::INFINITY };

    fn are_passed_by(&self, votes: &CellVotes) -> bool {
        votes.against >= self.against || votes.run > self.run
    }
}

/// By cell: what the views say, for the cells of these `levels`; the others have no votes. Views next to each other look from next to
/// each other. Where the views say more against a cell than the `limits`, its votes are those until then.
///
/// Most cells are beside the object, where soon some views say so: of each row only the part between the first and the last cell that
/// is within the limits goes on to be asked about.
pub(super) fn votes(
    grid: &Grid,
    views: &[Seen<'_>],
    levels: &Range<usize>,
    limits: Limits,
) -> Vec<CellVotes> {
    let against = Odds::table(|o| 1.0 - o.probability());
    let log_odds = Odds::table(Odds::log_odds);
    let steps = Odds::table(|o| (-o.log_odds()).clamp(-RELIEF, STRONGEST));
    let [across, deep, _] = grid.count;
    let mut votes = vec![CellVotes::default(); grid.len()];
    votes.par_chunks_mut(across * ROWS_AT_ONCE).enumerate().for_each(|(chunk, rows)| {
        let mut runs = vec![0.0f32; rows.len()];
        let is_asked = |row: usize| levels.contains(&((chunk * ROWS_AT_ONCE + row) / deep));
        let part = |row: usize| if is_asked(row) { 0..across } else { 0..0 };
        let mut parts: Vec<Range<usize>> = (0..rows.len() / across).map(part).collect();
        for view in views {
            let Seen { camera, odds, .. } = *view;
            let step = camera.to_camera(&(grid.origin + grid.steps[0])) - camera.to_camera(&grid.origin);
            let step = step.map(|v| v as f32);
            let (wide, high) = (camera.width as f32, camera.height as f32);
            let [fx, fy, cx, cy] = [camera.fx, camera.fy, camera.cx, camera.cy].map(|v| v as f32);
            let rows = rows.chunks_mut(across).zip(runs.chunks_mut(across)).zip(&mut parts);
            for (row, ((cells, runs), part)) in rows.enumerate() {
                if Range::is_empty(part) {
                    continue;
                }
                let row = chunk * ROWS_AT_ONCE + row;
                let (y, z) = ((row % deep) as f64, (row / deep) as f64);
                let start = camera.to_camera(&(grid.origin + grid.steps[1] * y + grid.steps[2] * z));
                let start = start.map(|v| v as f32);
                let asked = cells.iter_mut().zip(runs).enumerate().skip(part.start).take(part.len());
                for (k, (votes, run)) in asked {
                    let p = start + step * k as f32;
                    let (x, y) = (fx * p.x / p.z + cx, fy * p.y / p.z + cy);
                    if p.z < raster::NEAR as f32 || !(x >= 0.0 && y >= 0.0 && x < wide && y < high) {
                        continue;
                    }
                    let pixel = y as usize * camera.width as usize + x as usize;
                    let odds = odds[pixel];
                    if view.is_hidden(pixel, p.z) {
                        votes.hidden += 1;
                    } else if odds != Odds::HIDDEN {
                        votes.views += 1;
                        votes.against += against[odds.index()];
                        votes.log_odds += log_odds[odds.index()];
                        *run = (*run + steps[odds.index()]).max(0.0);
                        votes.run = votes.run.max(*run);
                    }
                }
                let left = |cell: &CellVotes| !limits.are_passed_by(cell);
                let (first, last) =
                    (cells[part.clone()].iter().position(left), cells[part.clone()].iter().rposition(left));
                *part = match (first, last) {
                    (Some(first), Some(last)) => part.start + first..part.start + last + 1,
                    _ => 0..0,
                };
            }
        }
    });
    votes
}

/// The centres of the cells at the surface of what is `inside`.
pub(super) fn surface(grid: &Grid, inside: &[bool]) -> Vec<Vector3<f64>> {
    let is_at_surface = |&cell: &usize| is_surface(grid, inside, cell);
    (0..inside.len()).into_par_iter().filter(is_at_surface).map(|cell| grid.place(cell)).collect()
}

/// Whether a cell is `inside`, and at the surface of what is.
pub(super) fn is_surface(grid: &Grid, inside: &[bool], cell: usize) -> bool {
    inside[cell] && grid.beside(cell).filter(|&other| inside[other]).count() < 6
}

/// By pixel of `view`: the depth of the nearest of the cells with these centres and this size that it shows; infinite where
/// it shows none.
pub(super) fn depths(centres: &[Vector3<f64>], cell: f64, view: &raster::View) -> Vec<f32> {
    let (wide, high) = (view.width as usize, view.height as usize);
    let mut depths = vec![f32::INFINITY; wide * high];
    for centre in centres {
        let Some((x, y, depth)) = view.project(centre) else { continue };
        let radius = (0.5 * cell * view.fx.max(view.fy) / depth).max(0.5);
        let range = |at: f64, count: usize| {
            let edge = |at: f64| at.round().clamp(0.0, count as f64) as usize;
            edge(at - radius)..edge(at + radius)
        };
        let columns = range(x, wide);
        for row in range(y, high) {
            for nearest in &mut depths[row * wide..][columns.clone()] {
                *nearest = nearest.min(depth as f32);
            }
        }
    }
    depths
}

/// The connected pieces of what is `inside`, by the cells of each.
pub(super) fn pieces(grid: &Grid, inside: &[bool]) -> Vec<Vec<usize>> {
    let mut left = inside.to_vec();
    let mut pieces = Vec::new();
    for first in 0..left.len() {
        if !std::mem::take(&mut left[first]) {
            continue;
        }
        let (mut piece, mut next) = (vec![first], 0);
        while let Some(&cell) = piece.get(next) {
            next += 1;
            piece.extend(grid.beside(cell).filter(|&other| std::mem::take(&mut left[other])));
        }
        pieces.push(piece);
    }
    pieces
}

#[cfg(test)]
mod tests {
    use glam::{DMat3, dvec3};

    use super::*;
    use crate::random::Random;

    /// A camera at (0, 0, -4) that looks along z, and one at (-4, 0, 0) that looks along x.
    fn cameras() -> [raster::View; 2] {
        let view = |rotation| raster::View {
            rotation,
            translation: dvec3(0.0, 0.0, 4.0),
            fx: 100.0,
            fy: 100.0,
            cx: 50.0,
            cy: 50.0,
            width: 100,
            height: 100,
        };
        let along_x = DMat3::from_cols(dvec3(0.0, 0.0, 1.0), dvec3(0.0, 1.0, 0.0), dvec3(-1.0, 0.0, 0.0));
        [view(DMat3::IDENTITY), view(along_x)]
    }

    /// What a view shows before which nothing is.
    fn seen<'a>(camera: &'a raster::View, odds: &'a [Odds]) -> Seen<'a> {
        Seen { camera, odds, hidden_from: &[] }
    }

    fn grid() -> Grid {
        Grid::new(&Vector3::zeros(), [1.0; 3], &-Vector3::y(), 0.1)
    }

    fn all_votes(grid: &Grid, views: &[Seen<'_>]) -> Vec<CellVotes> {
        votes(grid, views, &(0..grid.levels()), Limits::NONE)
    }

    #[test]
    fn a_cell_is_found_where_it_is() {
        let grid = grid();
        assert_eq!((grid.len(), grid.level()), (8000, 400));
        for cell in [0, 17, 4321, 7999] {
            assert_eq!(grid.cell_at(&grid.place(cell)), Some(cell));
        }
        assert_eq!(grid.cell_at(&Vector3::new(0.0, -1.2, 0.0)), None);
        // The third direction is up: -y.
        assert!(grid.place(grid.level()).y < grid.place(0).y);
    }

    #[test]
    fn what_reaches_the_border_is_counted_there() {
        let grid = grid();
        let count = |place: Vector3<f64>, below: bool| {
            let mut inside = vec![false; grid.len()];
            inside[grid.cell_at(&place).unwrap()] = true;
            grid.at_border(&inside, below)
        };
        for side in [-0.95, 0.95] {
            assert_eq!(count(Vector3::new(side, 0.05, 0.05), false), 1);
            assert_eq!(count(Vector3::new(0.05, 0.05, side), false), 1);
        }
        assert_eq!(count(Vector3::new(0.05, -0.95, 0.05), false), 1, "above");
        let lowest = Vector3::new(0.05, 0.95, 0.05);
        assert_eq!((count(lowest, false), count(lowest, true)), (0, 1));
        assert_eq!(count(Vector3::new(0.85, 0.05, 0.05), true), 0);
    }

    #[test]
    fn what_all_views_show_is_inside_and_is_shown_as_it_was() {
        let (grid, cameras) = (grid(), cameras());
        // Both views show a square of 30 pixels in their middle; the second one cannot see its upper half.
        let square = |hidden: bool| -> Vec<Odds> {
            (0..10_000)
                .map(|k| match ((35..65).contains(&(k % 100)), k / 100) {
                    (true, 35..50) if hidden => Odds::HIDDEN,
                    (true, 35..65) => Odds::new(3.0),
                    _ => Odds::new(-3.0),
                })
                .collect()
        };
        let odds = [square(false), square(true)];
        let views: Vec<Seen> = cameras.iter().zip(&odds).map(|(camera, odds)| seen(camera, odds)).collect();
        let votes = all_votes(&grid, &views);
        let at = |x: f64, y: f64, z: f64| votes[grid.cell_at(&Vector3::new(x, y, z)).unwrap()];
        assert_eq!((at(0.0, 0.3, 0.0).views, at(0.0, -0.3, 0.0).views), (2, 1));
        assert!((at(0.0, 0.3, 0.0).log_odds - 6.0).abs() < 1e-5);
        assert!((at(0.9, 0.3, 0.0).against - 1.0).abs() < 1e-5, "{:?}", at(0.9, 0.3, 0.0));
        let inside: Vec<bool> = votes.iter().map(|v| v.log_odds > 1.0).collect();
        let shown = depths(&surface(&grid, &inside), grid.cell(), &cameras[0]);
        let seen = (0..10_000usize).filter(|&k| shown[k].is_finite()).count();
        // The cells' outline is that of the square to the size of a cell.
        assert!((900..1300).contains(&seen), "{seen}");
        assert!(shown[50 * 100 + 50] < 4.0 && shown[10 * 100 + 10].is_infinite());
    }

    #[test]
    fn a_view_says_nothing_of_what_is_behind_something_before_the_object() {
        let (grid, [camera, _]) = (grid(), cameras());
        // Something covers the middle of the picture, up to a depth of 4: the place that the camera looks at.
        let hidden_from: Vec<f32> =
            (0..10_000).map(|k| if (35..65).contains(&(k % 100)) { 4.0 } else { f32::INFINITY }).collect();
        let told = |log_odds: f32, x: f64, z: f64| {
            let odds = vec![Odds::new(log_odds); 10_000];
            let views = [Seen { camera: &camera, odds: &odds, hidden_from: &hidden_from }];
            let votes = all_votes(&grid, &views)[grid.cell_at(&Vector3::new(x, 0.3, z)).unwrap()];
            (votes.views, votes.hidden)
        };
        assert_eq!((told(-3.0, 0.0, 0.5), told(-3.0, 0.0, -0.5)), ((0, 1), (1, 0)));
        assert_eq!((told(-3.0, 0.9, 0.5), told(3.0, 0.0, 0.5)), ((1, 0), (1, 0)));
    }

    #[test]
    fn a_run_is_what_neighbouring_views_say_against_the_object_one_after_the_other() {
        let (grid, [camera, _]) = (grid(), cameras());
        let run = |log_odds: &[f32]| {
            let odds: Vec<Vec<Odds>> = log_odds.iter().map(|o| vec![Odds::new(*o); 10_000]).collect();
            let views: Vec<Seen> = odds.iter().map(|odds| seen(&camera, odds)).collect();
            all_votes(&grid, &views)[grid.cell_at(&Vector3::zeros()).unwrap()].run
        };
        assert_eq!(run(&[2.0, 0.5]), 0.0);
        assert_eq!(run(&[-1.0, -1.0, 0.5, -1.0, 3.0, 3.0, -0.5]), 2.5);
        // One view says no more than what is certain, and takes less.
        assert_eq!(run(&[-7.0, 7.0, -7.0]), STRONGEST - RELIEF + STRONGEST);
        assert_eq!(run(&[-7.0, 7.0, 7.0, -1.0]), STRONGEST);
    }

    #[test]
    fn views_are_not_asked_about_what_is_beyond_the_limits_and_of_all_else_say_the_same() {
        let (grid, [camera, _]) = (grid(), cameras());
        let mut random = Random::new(3);
        // A round object, in views that err by themselves in one pixel of ten.
        let view = |random: &mut Random| -> Vec<Odds> {
            let shows = |k: usize| ((k % 100) as f64 - 50.0).hypot((k / 100) as f64 - 50.0) < 15.0;
            (0..10_000)
                .map(|k| Odds::new(if shows(k) == (random.uniform() < 0.9) { 2.5 } else { -2.5 }))
                .collect()
        };
        let odds: Vec<Vec<Odds>> = (0..20).map(|_| view(&mut random)).collect();
        let views: Vec<Seen> = odds.iter().map(|odds| seen(&camera, odds)).collect();
        let all = all_votes(&grid, &views);
        let limits = Limits { against: 5.0, run: 8.0 };
        let levels = 3..17;
        let some = votes(&grid, &views, &levels, limits);
        let (mut within, mut ended) = (0, 0);
        for (cell, (all, some)) in all.iter().zip(&some).enumerate() {
            if !levels.contains(&(cell / grid.level())) {
                assert_eq!(*some, CellVotes::default());
            } else if limits.are_passed_by(all) {
                assert!(limits.are_passed_by(some) && some.views <= all.views);
                ended += usize::from(some.views < all.views);
            } else {
                assert_eq!(some, all);
                within += 1;
            }
        }
        assert!(within > 200 && ended > 3000, "{within} {ended}");
    }

    #[test]
    fn pieces_are_what_is_connected_and_a_finer_grid_is_around_them() {
        let grid = grid();
        let near = |p: &Vector3<f64>, x: f64| (p - Vector3::new(x, 0.2, 0.0)).norm() < 0.25;
        let inside: Vec<bool> =
            (0..grid.len()).map(|i| near(&grid.place(i), -0.5) || near(&grid.place(i), 0.5)).collect();
        let pieces = pieces(&grid, &inside);
        assert_eq!(pieces.len(), 2);
        assert_eq!(pieces[0].len() + pieces[1].len(), inside.iter().filter(|i| **i).count());
        let finer = grid.around(&inside, 1.0, 0.02, 40).unwrap();
        assert!(finer.cell() > 0.02 && finer.count.iter().all(|c| *c <= 40), "{finer:?}");
        assert!(finer.cell_at(&Vector3::new(0.7, 0.2, 0.0)).is_some());
        assert!(finer.cell_at(&Vector3::new(0.7, 0.9, 0.0)).is_none());
        assert_eq!(grid.around(&vec![false; grid.len()], 1.0, 0.02, 40), None);
    }
}
