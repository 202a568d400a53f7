//! What all views together say of the object. In turns: the cells of space that the views show as object, then what colours
//! these have and what is around them, then with these colours again what each view shows (after Campbell, Vogiatzis,
//! Hernández & Cipolla, "Automatic 3D object segmentation in multiple views using volumetric graph-cuts", IVC 2010, whose
//! cut is replaced by a limit to how many views may contradict).

use std::ops::Range;
use std::sync::Arc;

use nalgebra::Vector3;
use rayon::prelude::*;

use super::colours::{ColourOdds, Counts};
use super::evidence::{EvidenceOptions, Odds, network_odds};
use super::guided_filter::NONE;
use super::outlines::{OutlineOptions, refined, within_outline};
use super::pieces::{Apart, PieceOptions, Sought, take_apart};
use super::shown::{Shown, hidden, others, part_around, show};
use super::solid::{self, CellVotes, Grid, Limits, Seen};
use super::support_plane::SupportPlane;
use super::views::SalientView;
use crate::defaults::with_defaults;
use crate::statistics::median;

/// Number of turns.
const TURNS: usize = 4;
/// The turn from which on cells are fine.
const FINE_TURN: usize = 2;

with_defaults! {
    /// How views come to agree. Chosen by hand on films of things on tables whose masks are known (`mask-study`), with the
    /// effect that is stated.
    #[derive(Debug, Clone, PartialEq)]
    pub(super) struct ConsensusOptions {
        /// Half of the side of the space that is looked at is what half a picture shows at the focus, but within these limits, in
        /// units of the cameras' distance.
        pub(super) reach: (f64, f64) = (0.2, 0.7),
        /// Where the object does not end in this space, the space is made wider, each time so many times,
        pub(super) widening: f64 = 1.5,
        /// until half of its side is this, in units of the cameras' distance.
        pub(super) widest: f64 = 1.5,
        /// It ends there if it has fewer cells than this at the border.
        pub(super) at_border: usize = 9,
        /// Number of cells across this space at first.
        pub(super) cells: usize = 96,
        /// Side of the fine cells, in pixels of a view at the distance of the focus. With the first cells throughout, of
        /// some 3 pixels, the mean overlap was 0.955 instead of 0.960.
        pub(super) fine: f64 = 1.5,
        /// Number of fine cells at most in each direction.
        pub(super) most_cells: usize = 160,
        /// Number of views, evenly chosen, that are asked about cells, at most.
        pub(super) most_views: usize = 100,
        /// A cell that fewer views than this part (0 to 1) have in their picture is not object.
        pub(super) least_views: f64 = 0.2,
        /// By turn: part (0 to 1) of the views that may show background where the object is. Single maps are wrong too often
        /// for less in the first turns.
        pub(super) against: [f32; TURNS] = [0.5, 0.35, 0.25, 0.18],
        /// By turn: how strong a run of neighbouring views may show background where the object is, log odds for each view that has
        /// the place in its picture. What is beside the object shows from few sides: a place that is a twentieth of its radius
        /// off does from a fifth of all, and the views there are neighbours. What a single frame errs in is no run, unless views are
        /// so few that each stands for a wide angle. Without: a temple between whose columns one sees had a mean overlap of 0.931
        /// instead of 0.960, a trunk before bushes 0.964 instead of 0.976.
        pub(super) run: [f32; TURNS] = [f32::INFINITY, f32::INFINITY, 0.15, 0.05],
        /// By turn: weight of the network's log odds.
        pub(super) network: [f32; TURNS] = [1.0, 0.5, 0.3, 0.3],
        /// Most that the colours' log odds may be, either way.
        pub(super) colours: f32 = 3.0,
        /// Part (0 to 1) of these that is left where the scene is certain. With all of them the mean overlap was 0.962
        /// instead of 0.966.
        pub(super) beside_scene: f32 = 0.4,
        /// Part of all pixels that a colour must have for its odds to be believed.
        pub(super) rare: f32 = 2e-5,
        /// Colours around the object are taken from a ring this wide, in units of the square root of its area.
        pub(super) ring: f64 = 0.4,
        /// Pixels around the outline that teach no colours: they may be either.
        pub(super) unsure: usize = 3,
        /// What is lower than this number of cells above the plane in all of a column lies flat,
        pub(super) flat: f64 = 2.5,
        /// and belongs to the plane if the network's mean log odds there are less.
        pub(super) flat_salient: f32 = 1.0,
        /// Which pieces are the object.
        pub(super) pieces: PieceOptions = PieceOptions::default(),
        /// How the outline of the solid becomes that of the object.
        pub(super) outlines: OutlineOptions = OutlineOptions::default(),
    }
}

/// What the views agree on.
pub(super) struct Consensus {
    /// By view and pixel: the odds that it shows the object.
    pub(super) odds: Vec<Vec<Odds>>,
    /// By view: the pixels, in order, that show another thing.
    pub(super) others: Vec<Vec<u32>>,
    /// By view: the pixels, in order, in which another thing hides the object, and a margin around them.
    pub(super) hidden: Vec<Vec<u32>>,
    /// How well (0 to 1) the views agree: the mean overlap (intersection over union) of the pixels that a view by itself
    /// takes for object with the outline of the solid in it, around that outline.
    pub(super) agreement: f64,
    /// How well (0 to 1) the views determine the solid: the overlap (intersection over union) of those that either half of
    /// them, every other one, makes by itself.
    pub(super) determined: f64,
    /// Whether the object reaches out of the space in which it is sought, however wide that is.
    pub(super) is_cut: bool,
    grid: Grid,
    object: Vec<bool>,
    /// By view and pixel: the odds before the outline was known.
    told: Vec<Vec<Odds>>,
    /// By view and pixel: what it shows.
    shown: Vec<Vec<Shown>>,
}

impl Consensus {
    /// Whether there is an object at all.
    pub(super) fn is_found(&self) -> bool {
        self.object.contains(&true)
    }

    /// Whether a point is on the object.
    pub(super) fn contains(&self, point: &Vector3<f64>) -> bool {
        self.grid.cell_at(point).is_some_and(|cell| self.object[cell])
    }

    /// Whether a part of the object is nearer to a point than `distance`, world units.
    pub(super) fn is_near(&self, point: &Vector3<f64>, distance: f64) -> bool {
        self.places().any(|place| (place - point).norm() < distance)
    }

    /// The centres of the object's cells.
    pub(super) fn places(&self) -> impl Iterator<Item = Vector3<f64>> {
        let cells = self.object.iter().enumerate().filter(|(_, is_object)| **is_object);
        cells.map(|(cell, _)| self.grid.place(cell))
    }

    /// Makes the `odds` of the `views`, which were not made so before, those of their own pictures ([`refined`]).
    pub(super) fn refine(&mut self, views: &[SalientView], options: &OutlineOptions) {
        self.odds
            .par_iter_mut()
            .zip(views)
            .zip(&self.told)
            .zip(&self.shown)
            .for_each(|(((odds, view), told), shown)| *odds = refined(view, odds, told, shown, options));
    }

    /// Maps of the views as the network would have made them had it known what all of them show.
    pub(super) fn maps(&self, views: &[SalientView]) -> Vec<SalientView> {
        let map = |(view, odds): (&SalientView, &Vec<Odds>)| {
            let saliency = odds.iter().map(|o| (255.0 * o.probability()).round() as u8).collect();
            SalientView { camera: view.camera, saliency, colours: Arc::clone(&view.colours) }
        };
        views.iter().zip(&self.odds).map(map).collect()
    }
}

/// Finds the object. `scene` has by view and pixel what the Gaussians say, `hidden_from` from which depth on something before the
/// object hides what is there ([`Seen::hidden_from`]).
pub(super) fn find_object(
    views: &[SalientView],
    scene: &[Vec<Odds>],
    hidden_from: &[Vec<f32>],
    pins: &[(Vector3<f64>, f32)],
    sought: Sought<'_>,
    plane: Option<&SupportPlane>,
    evidence: &EvidenceOptions,
    options: &ConsensusOptions,
) -> Consensus {
    let asked = asked(views, &sought.gaze.focus, options.most_views);
    let network = network_odds(evidence);
    Search { views, scene, hidden_from, pins, sought, plane, network, asked, options }.run()
}

/// The views that are asked about cells: `most` of them at most, evenly chosen, in an order in which each looks at the focus from
/// next to where the one before does. Pictures may be in any order.
fn asked(views: &[SalientView], focus: &Vector3<f64>, most: usize) -> Vec<usize> {
    let every = views.len().div_ceil(most.max(1)).max(1);
    let direction = |i: usize| (views[i].camera.centre() - focus).normalize();
    let mut left: Vec<(usize, Vector3<f64>)> =
        (0..views.len()).step_by(every).map(|i| (i, direction(i))).collect();
    let mut order = Vec::with_capacity(left.len());
    let mut next = (!left.is_empty()).then_some(0);
    while let Some(at) = next {
        let (view, from) = left.remove(at);
        order.push(view);
        let near = |(_, direction): &(usize, Vector3<f64>)| direction.dot(&from);
        next = left.iter().map(near).enumerate().max_by(|a, b| a.1.total_cmp(&b.1)).map(|(place, _)| place);
    }
    order
}

/// What is known while the object is sought.
struct Search<'a> {
    views: &'a [SalientView],
    /// By view and pixel: what the Gaussians say.
    scene: &'a [Vec<Odds>],
    /// By view and pixel: from which depth on something hides what is there.
    hidden_from: &'a [Vec<f32>],
    /// Gaussians of the object, each as far as its depth is known.
    pins: &'a [(Vector3<f64>, f32)],
    sought: Sought<'a>,
    plane: Option<&'a SupportPlane>,
    /// The network's log odds by its saliency.
    network: [f32; 256],
    /// The views that are asked about cells ([`asked`]).
    asked: Vec<usize>,
    options: &'a ConsensusOptions,
}

/// Where the object is sought at first.
struct FirstGrid {
    grid: Grid,
    /// By cell: what the network says.
    saliency: Vec<CellVotes>,
    /// Whether the object reaches out of it.
    is_cut: bool,
}

impl Search<'_> {
    fn run(&self) -> Consensus {
        let options = self.options;
        let mut odds = self.odds(0, |_, _, _| Some(0.0));
        let FirstGrid { mut grid, mut saliency, is_cut } = self.first_grid(&odds);
        let mut shown: Vec<Vec<Shown>> = Vec::new();
        let mut inside = Vec::new();
        let mut object = Vec::new();
        for turn in 0..TURNS {
            if turn == FINE_TURN
                && let Some(finer) =
                    grid.around(&inside, 2.0, options.fine * self.pixel(), options.most_cells)
            {
                grid = finer;
                saliency = self.ask_network(&grid);
            }
            let apart = self.solid(turn, &grid, &odds, &saliency, &self.asked);
            inside = apart.object.iter().zip(&apart.other).map(|(a, b)| *a || *b).collect();
            let surfaces = [&apart.object, &apart.other].map(|cells| solid::surface(&grid, cells));
            let show = |(i, odds): (usize, &Vec<Odds>)| show(&surfaces, grid.cell(), &self.seen(i, odds));
            shown = odds.par_iter().enumerate().map(show).collect();
            object = apart.object;
            if turn + 1 == TURNS || surfaces[0].is_empty() {
                break;
            }
            let colours = learn(self.views, &shown, options);
            odds = self.odds(turn + 1, |view, pixel, scene| {
                let left = 1.0 - (1.0 - options.beside_scene) * (scene.abs() / 3.0).min(1.0);
                let colour = colours.of_pixel(self.views[view].colours[pixel]);
                let said = left * colour.clamp(-options.colours, options.colours);
                if shown[view][pixel] == Shown::Hidden {
                    // By a thing whose depth is known: of what is before that, the pixel goes on to say that it is empty.
                    let from = self.hidden_from.get(view).and_then(|from| from.get(pixel));
                    return from.is_some_and(|from| from.is_finite()).then_some(said.min(0.0));
                }
                Some(said)
            });
        }
        let told = odds;
        let (odds, overlaps): (Vec<Vec<Odds>>, Vec<f64>) = (self.views.par_iter().zip(&told).zip(&shown))
            .map(|((view, odds), shown)| within_outline(view, odds, shown, &options.outlines))
            .unzip();
        let agreement = overlaps.iter().sum::<f64>() / overlaps.len().max(1) as f64;
        let others = shown.par_iter().map(|shown| others(shown)).collect();
        let hidden = (self.views.par_iter().zip(&shown))
            .map(|(view, shown)| hidden(view, shown, options.outlines.beside_hidden))
            .collect();
        let determined = self.determined(&grid, &told, &saliency);
        // In the first turn it may have had a tail that it lost since.
        let is_cut = is_cut && self.reaches_border(&grid, &object);
        Consensus { odds, others, hidden, agreement, determined, is_cut, grid, object, told, shown }
    }

    /// The space around the focus that the pictures show, or a wider one if the object does not end there, by the `odds` of the
    /// first turn. What ends in none of them may be no object at all: then it is the first one.
    fn first_grid(&self, odds: &[Vec<Odds>]) -> FirstGrid {
        let half = |v: &SalientView| 0.5 * f64::from(v.camera.width.max(v.camera.height)) / v.camera.fx;
        let (least, most) = self.options.reach;
        let half = median(&mut self.views.iter().map(half).collect::<Vec<_>>()).unwrap_or(most);
        let mut half = half.clamp(least, most);
        let first = self.grid_over(half, odds);
        while first.is_cut && half < self.options.widest {
            half = (half * self.options.widening).min(self.options.widest);
            let wider = self.grid_over(half, odds);
            if !wider.is_cut {
                return wider;
            }
        }
        first
    }

    /// Cells around the focus, over `half` on all sides, in units of the cameras' distance.
    fn grid_over(&self, half: f64, odds: &[Vec<Odds>]) -> FirstGrid {
        let gaze = self.sought.gaze;
        let half = gaze.distance * half;
        let up = self.plane.map_or(gaze.up, |p| p.normal);
        let grid = Grid::new(&gaze.focus, [half; 3], &up, 2.0 * half / self.options.cells as f64);
        let saliency = self.ask_network(&grid);
        // Stricter than in the first turn, in which half of the views may contradict: a solid reaches far towards the cameras, then.
        let object = self.solid(FINE_TURN, &grid, odds, &saliency, &self.asked).object;
        let is_cut = self.reaches_border(&grid, &object);
        FirstGrid { grid, saliency, is_cut }
    }

    /// Whether the object seems to go on beyond the cells.
    fn reaches_border(&self, grid: &Grid, object: &[bool]) -> bool {
        // Below the object the views of a ring show it, too. On a plane there is nothing below.
        let below = self.plane.is_some_and(|plane| !plane.is_wall);
        grid.at_border(object, below) >= self.options.at_border
    }

    /// Size of a pixel at the distance of the focus, world units.
    fn pixel(&self) -> f64 {
        let focal = median(&mut self.views.iter().map(|v| v.camera.fx).collect::<Vec<_>>());
        self.sought.gaze.distance / focal.unwrap_or(1.0)
    }

    /// By cell: what the network says, of those that are so low that they may lie flat on the plane ([`remove_flat`]); of others nothing
    /// is asked.
    fn ask_network(&self, grid: &Grid) -> Vec<CellVotes> {
        let Some(plane) = self.plane else { return Vec::new() };
        let levels = levels(grid, plane, f64::NEG_INFINITY, self.options.flat);
        let asked = &self.asked;
        let odds: Vec<Vec<Odds>> = asked
            .par_iter()
            .map(|&i| {
                self.views[i].saliency.iter().map(|s| Odds::new(self.network[usize::from(*s)])).collect()
            })
            .collect();
        let views: Vec<Seen> = asked.iter().zip(&odds).map(|(&i, odds)| self.seen(i, odds)).collect();
        solid::votes(grid, &views, &levels, Limits::NONE)
    }

    /// What the view shows, with these odds of its pixels.
    fn seen<'b>(&'b self, view: usize, odds: &'b [Odds]) -> Seen<'b> {
        let hidden_from = self.hidden_from.get(view).map(Vec::as_slice).unwrap_or_default();
        Seen { camera: &self.views[view].camera, odds, hidden_from }
    }

    /// The solid that the views `asked` show together, taken apart.
    fn solid(
        &self,
        turn: usize,
        grid: &Grid,
        odds: &[Vec<Odds>],
        saliency: &[CellVotes],
        asked: &[usize],
    ) -> Apart {
        let mut inside = self.inside(turn, grid, odds, asked);
        if let Some(plane) = self.plane {
            remove_flat(grid, &mut inside, plane, saliency, self.options);
        }
        take_apart(grid, &inside, &self.pinned(grid), self.sought, &self.options.pieces)
    }

    /// By cell: how many Gaussians pin it down.
    fn pinned(&self, grid: &Grid) -> Vec<f32> {
        let mut pinned = vec![0.0; grid.len()];
        for (place, known) in self.pins {
            if let Some(cell) = grid.cell_at(place) {
                pinned[cell] += known;
            }
        }
        pinned
    }

    /// How well the views determine the solid, with the `odds` of the last turn.
    fn determined(&self, grid: &Grid, odds: &[Vec<Odds>], saliency: &[CellVotes]) -> f64 {
        let [even, odd] = [0, 1].map(|first| {
            let half: Vec<usize> = self.asked.iter().copied().skip(first).step_by(2).collect();
            self.solid(TURNS - 1, grid, odds, saliency, &half).object
        });
        let count = |is_counted: fn(bool, bool) -> bool| {
            even.iter().zip(&odd).filter(|(a, b)| is_counted(**a, **b)).count() as f64
        };
        count(|a, b| a && b) / count(|a, b| a || b).max(1.0)
    }

    /// By cell: whether the views `asked` show object there, as their `odds` are in this turn.
    fn inside(&self, turn: usize, grid: &Grid, odds: &[Vec<Odds>], asked: &[usize]) -> Vec<bool> {
        let views: Vec<Seen> = asked.iter().map(|&i| self.seen(i, &odds[i])).collect();
        let least = (self.options.least_views * views.len() as f64).max(2.0) as u16;
        let (against, run) = (self.options.against[turn], self.options.run[turn]);
        // The cells of the plane itself are left to `remove_flat`.
        let lowest = -0.5;
        let is_above =
            |cell| self.plane.is_none_or(|plane| plane.height(&grid.place(cell)) > lowest * grid.cell());
        let levels = self.plane.map_or(0..grid.levels(), |plane| levels(grid, plane, lowest, f64::INFINITY));
        let all = views.len() as f32;
        let limits = Limits { against: against * all, run: run * all };
        let is_object = |(cell, votes): (usize, &CellVotes)| {
            votes.views >= least
                // What most views do not see is not known by the others: they may see through the object only.
                && votes.hidden <= votes.views
                && votes.log_odds > 0.0
                && votes.against < against * f32::from(votes.views)
                && votes.run <= run * f32::from(votes.views)
                && is_above(cell)
        };
        solid::votes(grid, &views, &levels, limits).par_iter().enumerate().map(is_object).collect()
    }

    /// By view and pixel: what the network, the scene and the colours say together. `colours` gives the last, by view, pixel
    /// and what the scene says there; `None` where the object is hidden.
    fn odds(&self, turn: usize, colours: impl Fn(usize, usize, f32) -> Option<f32> + Sync) -> Vec<Vec<Odds>> {
        let weight = self.options.network[turn];
        let of_view = |i: usize| {
            let pixel = |(k, (saliency, scene)): (usize, (&u8, &Odds))| {
                let (network, scene) = (weight * self.network[usize::from(*saliency)], scene.log_odds());
                colours(i, k, scene).map_or(Odds::HIDDEN, |colour| Odds::new(network + scene + colour))
            };
            self.views[i].saliency.iter().zip(&self.scene[i]).enumerate().map(pixel).collect()
        };
        (0..self.views.len()).into_par_iter().map(of_view).collect()
    }
}

/// The levels of the grid, which lie along the plane, whose cells are from `low` to `high` above it, in cells; one more on either side.
fn levels(grid: &Grid, plane: &SupportPlane, low: f64, high: f64) -> Range<usize> {
    let height = |level: usize| plane.height(&grid.place(level * grid.level())) / grid.cell();
    let is_within = |level: &usize| (low - 1.0..high + 1.0).contains(&height(*level));
    let within: Vec<usize> = (0..grid.levels()).filter(is_within).collect();
    within.first().zip(within.last()).map_or(0..0, |(first, last)| *first..last + 1)
}

/// Removes what lies flat on the plane and is not salient: shadows.
fn remove_flat(
    grid: &Grid,
    inside: &mut [bool],
    plane: &SupportPlane,
    saliency: &[CellVotes],
    options: &ConsensusOptions,
) {
    let is_salient = |cell: usize| {
        let votes = &saliency[cell];
        votes.log_odds >= options.flat_salient * f32::from(votes.views)
    };
    for foot in 0..grid.level() {
        let column = || (foot..grid.len()).step_by(grid.level());
        let top = column().rev().find(|&cell| inside[cell]);
        if top.is_some_and(|top| plane.height(&grid.place(top)) < options.flat * grid.cell()) {
            column().filter(|&cell| !is_salient(cell)).for_each(|cell| inside[cell] = false);
        }
    }
}

/// Learns the colours of the object and of what is around it.
fn learn(views: &[SalientView], shown: &[Vec<Shown>], options: &ConsensusOptions) -> ColourOdds {
    let count = |(view, shown): (&SalientView, &Vec<Shown>)| {
        let area = shown.iter().filter(|s| **s == Shown::Object).count() as f64;
        let ring = (options.ring * area.sqrt()) as usize + options.unsure + 1;
        let (near, rim) = (part_around(view, shown, ring), part_around(view, shown, options.unsure));
        let (mut object, mut around) = (Counts::new(), Counts::new());
        for (k, colour) in view.colours.iter().enumerate() {
            if shown[k] == Shown::Object {
                object.add(*colour);
            } else if near[k] > NONE && rim[k] < NONE {
                around.add(*colour);
            }
        }
        (object, around)
    };
    let (object, around) = (views.par_iter().zip(shown))
        .map(count)
        .reduce(|| (Counts::new(), Counts::new()), |a, b| (a.0.merge(&b.0), a.1.merge(&b.1)));
    ColourOdds::of(&object, &around, options.rare)
}

#[cfg(test)]
mod tests {
    use std::f64::consts::TAU;

    use super::super::pieces::Choice;
    use super::*;
    use crate::camera::{Camera, CameraModel, Gaze, Pose};
    use crate::raster;

    const VIEWS: usize = 72;

    /// Views from all around, in this order of their places on the circle.
    fn views(order: &[usize]) -> Vec<SalientView> {
        views_through(&Camera::from_focal(CameraModel::Pinhole, 40.0, 40, 30), order)
    }

    fn views_through(lens: &Camera, order: &[usize]) -> Vec<SalientView> {
        let pixels = (lens.width * lens.height) as usize;
        let view = |place: &usize| {
            let angle = TAU * *place as f64 / VIEWS as f64;
            let centre = Vector3::new(3.0 * angle.cos(), -1.0, 3.0 * angle.sin());
            let pose = Pose::look_at(&centre, &Vector3::zeros(), &-Vector3::y()).unwrap();
            let camera = raster::View::new(lens, &pose);
            SalientView { camera, saliency: vec![0; pixels], colours: vec![[0; 3]; pixels].into() }
        };
        order.iter().map(view).collect()
    }

    /// Whether a place at the focus is object in the last turn if these views, by their places on the circle, say that it is not,
    /// with such log odds, and all others that it is.
    fn is_object(order: &[usize], contradicting: &[usize], log_odds: f32) -> bool {
        let views = views(order);
        let gaze = Gaze { focus: Vector3::zeros(), converges: true, distance: 3.0, up: -Vector3::y() };
        let options = ConsensusOptions::default();
        let search = Search {
            views: &views,
            scene: &[],
            hidden_from: &[],
            pins: &[],
            sought: Sought { gaze: &gaze, choice: Choice::Watched },
            plane: None,
            network: [0.0; 256],
            asked: asked(&views, &gaze.focus, options.most_views),
            options: &options,
        };
        let says = |place: &usize| if contradicting.contains(place) { log_odds } else { 3.0 };
        let odds: Vec<Vec<Odds>> = order.iter().map(|place| vec![Odds::new(says(place)); 1200]).collect();
        let grid = Grid::new(&Vector3::zeros(), [0.1; 3], &-Vector3::y(), 0.2);
        search.inside(TURNS - 1, &grid, &odds, &search.asked)[0]
    }

    #[test]
    fn views_that_err_by_themselves_are_outvoted_and_neighbours_that_agree_are_not() {
        let order: Vec<usize> = (0..VIEWS).collect();
        let scattered: Vec<usize> = (3..VIEWS).step_by(7).collect();
        let side: Vec<usize> = (20..20 + scattered.len()).collect();
        assert_eq!(scattered.len(), 10);
        assert!(is_object(&order, &[], -3.0) && is_object(&order, &scattered, -3.0));
        assert!(!is_object(&order, &side, -3.0) && !is_object(&order, &[40, 41], -3.0));
        // Doubt of the same neighbours is weaker.
        assert!(is_object(&order, &side, -0.3) && is_object(&order, &[40, 41], -1.5));
    }

    #[test]
    fn neighbours_are_known_by_where_they_look_from() {
        // 25 has no divisor in common with the number of views: every view comes once.
        let order: Vec<usize> = (0..VIEWS).map(|k| 25 * k % VIEWS).collect();
        let pictures: Vec<usize> = order[20..30].to_vec();
        let side: Vec<usize> = (20..30).collect();
        assert!(!is_object(&order, &side, -3.0));
        // Neighbours in the order of the pictures alone err by themselves.
        assert!(pictures.iter().all(|p| pictures.iter().all(|q| p.abs_diff(*q) != 1)), "{pictures:?}");
        assert!(is_object(&order, &pictures, -3.0));
        let chosen = asked(&views(&order), &Vector3::zeros(), 40);
        assert_eq!(chosen.len(), 36);
    }

    /// Whether the ray of a pixel hits the box around the origin that reaches so far to both sides.
    fn hits(camera: &raster::View, x: f64, y: f64, half: &Vector3<f64>) -> bool {
        let centre = camera.centre();
        let direction = camera.unproject(x, y, 1.0) - centre;
        let (mut enters, mut leaves) = (0.0f64, f64::INFINITY);
        for k in 0..3 {
            let [a, b] = [-half[k], half[k]].map(|side| (side - centre[k]) / direction[k]);
            (enters, leaves) = (enters.max(a.min(b)), leaves.min(a.max(b)));
        }
        enters < leaves
    }

    #[test]
    fn an_object_that_is_longer_than_the_pictures_are_wide_is_whole() {
        // A bar nearly as long as the round is wide, and one that is all in the space that is looked at first. All views are right.
        let lens = Camera::from_focal(CameraModel::Pinhole, 40.0, 80, 60);
        let order: Vec<usize> = (0..VIEWS).step_by(2).collect();
        let gaze =
            Gaze { focus: Vector3::zeros(), converges: true, distance: 10f64.sqrt(), up: -Vector3::y() };
        let options = ConsensusOptions { cells: 48, most_cells: 64, ..ConsensusOptions::default() };
        let find = |half: Vector3<f64>| {
            let mut views = views_through(&lens, &order);
            let mut scene: Vec<Vec<Odds>> = Vec::new();
            for view in &mut views {
                let camera = view.camera;
                let hits = |k: usize| hits(&camera, (k % 80) as f64 + 0.5, (k / 80) as f64 + 0.5, &half);
                let shown: Vec<bool> = (0..4800).map(hits).collect();
                view.saliency = shown.iter().map(|shown| 255 * u8::from(*shown)).collect();
                scene.push(shown.iter().map(|shown| Odds::new(if *shown { 3.0 } else { -3.0 })).collect());
            }
            let sought = Sought { gaze: &gaze, choice: Choice::Watched };
            find_object(&views, &scene, &[], &[], sought, None, &EvidenceOptions::default(), &options)
        };
        let long = find(Vector3::new(2.7, 0.3, 0.3));
        assert!(!long.is_cut);
        for x in [-2.5, -1.0, 0.0, 1.0, 2.5] {
            assert!(long.contains(&Vector3::new(x, 0.0, 0.0)), "{x}");
            assert!(!long.contains(&Vector3::new(x, 0.0, 1.0)), "beside {x}");
        }
        let short = find(Vector3::new(0.6, 0.3, 0.3));
        assert!(!short.is_cut && short.contains(&Vector3::new(0.45, 0.0, 0.0)));
        assert!(!short.contains(&Vector3::new(1.2, 0.0, 0.0)));
    }
}
