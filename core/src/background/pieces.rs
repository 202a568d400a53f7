//! Which of the connected pieces of a solid are the object: the one that the cameras look at, and what belongs to it.

use nalgebra::Vector3;

use super::solid::{self, Grid};
use crate::camera::Gaze;
use crate::defaults::with_defaults;
use crate::neighbours::Neighbours;

with_defaults! {
    /// When a piece belongs to the object. Chosen by hand, on films of things on tables with others beside them.
    #[derive(Debug, Clone, PartialEq)]
    pub(super) struct PieceOptions {
        /// Standard deviation of the Gaussian around the focus by which cells count for which piece is looked at, in units
        /// of the cameras' distance from the focus.
        pub(super) looked_at: f64 = 0.25,
        /// Pieces with less than this part (0 to 1) of the cells of the one that is looked at are noise,
        pub(super) least: f64 = 0.002,
        /// and those with less than this part, if they do not belong to it,
        pub(super) least_other: f64 = 0.02,
        /// or if Gaussians pin their surface down less densely than this part (0 to 1) of how densely they do that of the one that is
        /// looked at: over a blank table the views agree on cells that no one of them sees anything in. On such a table, such pieces
        /// had up to 0.1 of it, what stood there beside the thing that was looked at 0.7 or more.
        pub(super) least_pinned: f64 = 0.25,
        /// A piece belongs to the object if the gap between them is narrower than this part of the object's size.
        pub(super) narrow: f64 = 0.2,
        /// It does, too, if the centre of both together is nearer to the focus by more than this, in units of the cameras'
        /// distance: of a pair the cameras look at the middle.
        pub(super) nearer: f64 = 0.04,
        /// Number of cells of a piece, evenly chosen, that the gap is measured from.
        pub(super) measured: usize = 2000,
        /// What a person points at is found this exactly, in units of the cameras' distance: of the pieces that are nearest to
        /// the place, the largest is meant. A rod may have come apart.
        pub(super) pointing: f64 = 0.03,
    }
}

/// A solid taken apart.
pub(super) struct Apart {
    /// By cell: whether it is the object.
    pub(super) object: Vec<bool>,
    /// By cell: whether it is another thing.
    pub(super) other: Vec<bool>,
}

/// What is sought.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sought<'a> {
    pub(super) gaze: &'a Gaze,
    pub(super) choice: Choice,
}

/// Which piece is the object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Choice {
    /// The one that the cameras look at; of a pair, both.
    Watched,
    /// The one that the cameras look at, by itself.
    WatchedAlone,
    /// The one at the focus, which a person has pointed at.
    AtFocus,
}

/// Tells the object among what is `inside` from other things and from noise. `pinned` has by cell how many Gaussians are there whose
/// depth is known.
pub(super) fn take_apart(
    grid: &Grid,
    inside: &[bool],
    pinned: &[f32],
    sought: Sought<'_>,
    options: &PieceOptions,
) -> Apart {
    let gaze = sought.gaze;
    let mut apart = Apart { object: vec![false; inside.len()], other: vec![false; inside.len()] };
    let width = options.looked_at * gaze.distance;
    let watched = |piece: &Vec<usize>| -> f64 {
        let weight = |&cell: &usize| (-0.5 * ((grid.place(cell) - gaze.focus).norm() / width).powi(2)).exp();
        piece.iter().map(weight).sum()
    };
    let off = |piece: &Vec<usize>| {
        piece.iter().map(|&cell| (grid.place(cell) - gaze.focus).norm()).fold(f64::MAX, f64::min)
    };
    let pieces = solid::pieces(grid, inside);
    let nearest = pieces.iter().map(off).fold(f64::MAX, f64::min);
    let rank = |piece: &Vec<usize>| match sought.choice {
        Choice::Watched | Choice::WatchedAlone => watched(piece),
        Choice::AtFocus if off(piece) < nearest + options.pointing * gaze.distance => piece.len() as f64,
        Choice::AtFocus => -off(piece),
    };
    let mut pieces: Vec<(f64, Vec<usize>)> = pieces.into_iter().map(|piece| (rank(&piece), piece)).collect();
    pieces.sort_by(|a, b| b.0.total_cmp(&a.0));
    let mut pieces = pieces.into_iter().map(|(_, cells)| cells);
    let Some(first) = pieces.next() else { return apart };
    let part_of_first = |part: f64| part * first.len() as f64;
    let (least, least_other) = (part_of_first(options.least), part_of_first(options.least_other));
    let density = |piece: &[usize]| {
        let surface = piece.iter().filter(|&&cell| solid::is_surface(grid, inside, cell)).count();
        piece.iter().map(|&cell| f64::from(pinned[cell])).sum::<f64>() / surface.max(1) as f64
    };
    let least_density = options.least_pinned * density(&first);
    let is_thing = |piece: &Vec<usize>| {
        let cells = piece.len() as f64;
        cells >= least_other || (cells >= least && density(piece) >= least_density)
    };
    let mut object = Group::new(grid, first, options);
    let mut left: Vec<Group> = pieces.filter(is_thing).map(|p| Group::new(grid, p, options)).collect();
    while let Some(next) = left.iter().position(|piece| object.includes(piece, sought, options)) {
        object.add(left.remove(next));
    }
    object.cells.iter().for_each(|&cell| apart.object[cell] = true);
    let others = left.iter().filter(|piece| piece.cells.len() as f64 >= least_other);
    others.flat_map(|piece| &piece.cells).for_each(|&cell| apart.other[cell] = true);
    apart
}

/// Pieces that belong together.
struct Group {
    cells: Vec<usize>,
    /// Centres of cells, evenly chosen.
    places: Vec<Vector3<f64>>,
    /// Mean of the cells' centres.
    centre: Vector3<f64>,
}

impl Group {
    fn new(grid: &Grid, cells: Vec<usize>, options: &PieceOptions) -> Self {
        let centre = cells.iter().map(|&c| grid.place(c)).sum::<Vector3<f64>>() / cells.len().max(1) as f64;
        let every = cells.len().div_ceil(options.measured.max(1)).max(1);
        let places = cells.iter().step_by(every).map(|&c| grid.place(c)).collect();
        Self { cells, places, centre }
    }

    fn includes(&self, other: &Self, sought: Sought<'_>, options: &PieceOptions) -> bool {
        let gaze = sought.gaze;
        let off = |centre: &Vector3<f64>| (centre - gaze.focus).norm();
        let size = 2.0 * self.places.iter().map(|p| (p - self.centre).norm()).fold(0.0, f64::max);
        let is_pair = || off(&self.with(other)) < off(&self.centre) - options.nearer * gaze.distance;
        (sought.choice == Choice::Watched && is_pair()) || self.gap(other) < options.narrow * size
    }

    /// The centre of both together.
    fn with(&self, other: &Self) -> Vector3<f64> {
        let (own, others) = (self.cells.len() as f64, other.cells.len() as f64);
        (self.centre * own + other.centre * others) / (own + others)
    }

    fn gap(&self, other: &Self) -> f64 {
        let own = Neighbours::new(&self.places);
        let squares = other.places.iter().flat_map(|p| own.nearest(p, 1)).map(|(square, _)| square);
        squares.fold(f64::MAX, f64::min).sqrt()
    }

    fn add(&mut self, other: Self) {
        self.centre = self.with(&other);
        self.cells.extend(other.cells);
        self.places.extend(other.places);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gaze() -> Gaze {
        Gaze { focus: Vector3::zeros(), converges: true, distance: 4.0, up: -Vector3::y() }
    }

    fn tell(balls: &[(f64, f64)]) -> Vec<&'static str> {
        tell_by(balls, 0.0, Choice::Watched, &[])
    }

    /// The same, with a person who points at a place along x.
    fn tell_at(balls: &[(f64, f64)], pointed: f64) -> Vec<&'static str> {
        tell_by(balls, pointed, Choice::AtFocus, &[])
    }

    /// Which of the balls, given by their places along x and their radii, are the object and which other things. Nothing pins down the
    /// `blank` ones.
    fn tell_by(balls: &[(f64, f64)], focus: f64, choice: Choice, blank: &[usize]) -> Vec<&'static str> {
        let grid = Grid::new(&Vector3::zeros(), [2.0, 1.0, 1.0], &-Vector3::y(), 0.05);
        let middle = |x: f64| Vector3::new(x, 0.0, 0.0);
        let ball =
            |i: usize| balls.iter().position(|(x, radius)| (grid.place(i) - middle(*x)).norm() < *radius);
        let balls_of: Vec<Option<usize>> = (0..grid.len()).map(ball).collect();
        let inside: Vec<bool> = balls_of.iter().map(Option::is_some).collect();
        let is_pinned = |ball: &Option<usize>| ball.is_some_and(|ball| !blank.contains(&ball));
        let pinned: Vec<f32> = balls_of.iter().map(|ball| f32::from(u8::from(is_pinned(ball)))).collect();
        let gaze = Gaze { focus: middle(focus), ..gaze() };
        let sought = Sought { gaze: &gaze, choice };
        let apart = take_apart(&grid, &inside, &pinned, sought, &PieceOptions::default());
        let name = |(x, _): &(f64, f64)| {
            let cell = grid.cell_at(&middle(*x)).unwrap();
            match (apart.object[cell], apart.other[cell]) {
                (true, _) => "object",
                (_, true) => "other",
                _ => "noise",
            }
        };
        balls.iter().map(name).collect()
    }

    #[test]
    fn what_stands_apart_is_another_thing_and_what_is_close_is_not() {
        assert_eq!(tell(&[(0.0, 0.4), (1.2, 0.3), (-1.6, 0.06)]), ["object", "other", "noise"]);
        assert_eq!(tell(&[(0.0, 0.4), (0.75, 0.25)]), ["object", "object"]);
    }

    #[test]
    fn a_small_piece_that_nothing_pins_down_is_noise() {
        let tell = |balls: &[(f64, f64)], blank: &[usize]| tell_by(balls, 0.0, Choice::Watched, blank);
        let close = [(0.0, 0.4), (0.6, 0.1)];
        assert_eq!(tell(&close, &[]), ["object", "object"]);
        assert_eq!(tell(&close, &[1]), ["object", "noise"]);
        // A blank thing of some size is one; and where the object is blank itself, so may be what belongs to it.
        assert_eq!(tell(&[(0.0, 0.4), (0.75, 0.25)], &[1]), ["object", "object"]);
        assert_eq!(tell(&close, &[0, 1]), ["object", "object"]);
    }

    #[test]
    fn what_a_person_points_at_is_the_object_however_small() {
        assert_eq!(tell_at(&[(0.0, 0.4), (1.2, 0.2)], 1.1), ["other", "object"]);
        assert_eq!(tell_at(&[(-0.6, 0.3), (0.6, 0.3)], 0.6), ["other", "object"]);
    }

    #[test]
    fn of_pieces_at_the_place_that_a_person_points_at_the_largest_is_meant() {
        // The place is a little nearer to the smaller one.
        assert_eq!(tell_at(&[(0.0, 0.1), (0.55, 0.3)], 0.165), ["other", "object"]);
    }

    #[test]
    fn of_a_pair_both_are_the_object_unless_one_is_asked_for() {
        let pair = [(-0.6, 0.3), (0.62, 0.3)];
        assert_eq!(tell(&pair), ["object", "object"]);
        assert_eq!(tell_by(&pair, 0.0, Choice::WatchedAlone, &[]), ["object", "other"]);
    }
}
