//! Keypoints: extrema of the differences of Gaussians over place and scale, refined by a quadratic.
//!
//! Lowe 2004, sections 3.1 to 4.1. The differences are nowhere stored: difference s is level s + 1 less level s, wherever it
//! is looked at.

use std::ops::Range;

use nalgebra::{Matrix3, Vector3};

use super::plane::{LANES, Plane};
use super::scale_space::{LEVELS, Octave, REACH, SCALES_PER_OCTAVE, sigma_of_level};

/// An extremum in one octave.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Extremum {
    /// Column and row in pixels of the octave, the centre of the top-left pixel at (0, 0).
    pub(super) x: f32,
    pub(super) y: f32,
    /// Blur in pixels of the octave.
    pub(super) sigma: f32,
    /// Absolute difference of Gaussians there, for luma from 0 to 1.
    pub(super) contrast: f32,
    /// The Gaussian level nearest in scale, less one.
    pub(super) level: usize,
}

/// Pixels at the border where no extremum is sought: there it would be one of the repeated border.
const BORDER: usize = 4;
/// Refinement stops after this many moves.
const MAX_MOVES: usize = 4;
/// Each move goes a row further, and the quadratic is of the rows around.
const _: () = assert!(MAX_MOVES < REACH);

/// The search for the extrema of an octave.
pub(super) struct Search {
    peak_threshold: f32,
    edge_threshold: f32,
    marks: Vec<u32>,
    found: Vec<Found>,
}

/// An extremum as it was found.
struct Found {
    /// The sample nearest to it: scale, row, column.
    nearest: (usize, usize, usize),
    /// Absolute difference of Gaussians at the sample where the search for it began.
    began_with: f32,
    extremum: Extremum,
}

/// The quadratic may lift a sample above the threshold, hence a lower one for samples.
fn sample_threshold(peak_threshold: f32) -> f32 {
    0.8 * peak_threshold
}

impl Search {
    pub(super) fn new(peak_threshold: f32, edge_threshold: f32) -> Self {
        Self { peak_threshold, edge_threshold, marks: Vec::new(), found: Vec::new() }
    }

    /// Searches rows of an octave, whose surroundings are there.
    pub(super) fn search(&mut self, octave: &Octave<'_>, rows: Range<usize>) {
        let (width, height) = (octave.levels[0].width, octave.levels[0].height);
        if width <= 2 * BORDER {
            return;
        }
        self.marks.resize(width, 0);
        for y in rows.start.max(BORDER)..rows.end.min(height.saturating_sub(BORDER)) {
            let around = octave.levels.each_ref().map(|level| [y - 1, y, y + 1].map(|y| level.row(y)));
            mark_row(&around, sample_threshold(self.peak_threshold), &mut self.marks);
            self.marks[..BORDER].fill(0);
            self.marks[width - BORDER..].fill(0);
            for (chunk, marks) in self.marks.chunks(LANES).enumerate() {
                if marks.iter().fold(0, |all, mark| all | mark) == 0 {
                    continue;
                }
                for (i, mark) in marks.iter().enumerate() {
                    let x = chunk * LANES + i;
                    for s in (1..=SCALES_PER_OCTAVE).filter(|s| mark >> s & 1 != 0) {
                        let cube = cube(&octave.levels, s, y, x);
                        if is_strict_extremum(&cube) {
                            let began_with = cube[1][1][1].abs();
                            let refined =
                                refine(&octave.levels, s, y, x, self.peak_threshold, self.edge_threshold);
                            self.found.extend(refined.map(|(nearest, extremum)| Found {
                                nearest,
                                began_with,
                                extremum,
                            }));
                        }
                    }
                }
            }
        }
    }

    /// All extrema that were found, by level, row and column, each with whether it would have been found with that
    /// threshold, too.
    pub(super) fn finish(mut self, threshold: f32) -> impl Iterator<Item = (Extremum, bool)> {
        // Neighbouring samples may end in the same place.
        self.found.sort_by(|a, b| a.nearest.cmp(&b.nearest).then(b.began_with.total_cmp(&a.began_with)));
        self.found.dedup_by_key(|found| found.nearest);
        self.found.into_iter().map(move |Found { began_with, extremum, .. }| {
            let is_strong = began_with >= sample_threshold(threshold) && extremum.contrast >= threshold;
            (extremum, is_strong)
        })
    }
}

/// A sample and its 26 neighbours, by scale, row and column.
type Cube = [[[f32; 3]; 3]; 3];

fn cube(levels: &[Plane; LEVELS], s: usize, y: usize, x: usize) -> Cube {
    let around: [[&[f32]; 3]; 4] =
        [0, 1, 2, 3].map(|ds| [0, 1, 2].map(|dy| levels[s + ds - 1].from(x - 1, y + dy - 1, 3)));
    std::array::from_fn(|ds| {
        std::array::from_fn(|dy| std::array::from_fn(|dx| around[ds + 1][dy][dx] - around[ds][dy][dx]))
    })
}

/// Columns that [`mark_row`] works on at a time: what it computes in between stays in the first-level cache.
const BLOCK: usize = 256;

vectorised! {
    /// Sets bit s where difference s of the middle row is not exceeded by any of its 26 neighbours and passes the
    /// threshold. Branch-free loops, for the vectoriser.
    fn mark_row(levels: &[[&[f32]; 3]; LEVELS], threshold: f32, marks: &mut [u32]) {
        let width = marks.len();
        let mut start = 1;
        while start < width - 1 {
            let count = BLOCK.min(width - 1 - start);
            // With one more column on either side.
            let rows = levels.map(|rows| rows.map(|row| &row[start - 1..][..count + 2]));
            let (mut largest, mut smallest) = ([[0.0f32; BLOCK + 2]; 3], [[0.0f32; BLOCK + 2]; 3]);
            for x in 0..count + 2 {
                // Over the three rows, of each difference.
                let (mut high, mut low) = ([0.0f32; LEVELS - 1], [0.0f32; LEVELS - 1]);
                for s in 0..LEVELS - 1 {
                    let [a, b, c] = [0, 1, 2].map(|y| rows[s + 1][y][x] - rows[s][y][x]);
                    let (most, least) = if a > b { (a, b) } else { (b, a) };
                    high[s] = if c > most { c } else { most };
                    low[s] = if c < least { c } else { least };
                }
                for s in 0..SCALES_PER_OCTAVE {
                    let most = if high[s] > high[s + 1] { high[s] } else { high[s + 1] };
                    largest[s][x] = if high[s + 2] > most { high[s + 2] } else { most };
                    let least = if low[s] < low[s + 1] { low[s] } else { low[s + 1] };
                    smallest[s][x] = if low[s + 2] < least { low[s + 2] } else { least };
                }
            }
            let marks = &mut marks[start..][..count];
            for x in 0..count {
                let mut mark = 0;
                for s in 0..SCALES_PER_OCTAVE {
                    let value = rows[s + 2][1][x + 1] - rows[s + 1][1][x + 1];
                    let (around, below) = (&largest[s], &smallest[s]);
                    let high = if around[x] > around[x + 1] { around[x] } else { around[x + 1] };
                    let high = if around[x + 2] > high { around[x + 2] } else { high };
                    let low = if below[x] < below[x + 1] { below[x] } else { below[x + 1] };
                    let low = if below[x + 2] < low { below[x + 2] } else { low };
                    let maximum = (value >= high) & (value >= threshold);
                    let minimum = (value <= low) & (value <= -threshold);
                    mark |= u32::from(maximum | minimum) << (s + 1);
                }
                marks[x] = mark;
            }
            start += count;
        }
    }
}

/// Whether the sample lies strictly above, or strictly below, all of its 26 neighbours.
fn is_strict_extremum(cube: &Cube) -> bool {
    let value = cube[1][1][1];
    let sign = value.signum();
    let samples = cube.as_flattened().as_flattened();
    samples.iter().filter(|&&sample| sign * sample >= sign * value).count() == 1
}

/// Fits a quadratic around a sample, moves to the pixel nearest to its extremum until that is the same one, and checks
/// contrast and curvature there. Returns the final sample (scale, row, column) with the extremum.
///
/// It moves over the picture only: were the extremum nearer to another level, that level would have one of its own. For
/// the same reason an offset of more than half a sample is accepted where moving does not settle.
fn refine(
    levels: &[Plane; LEVELS],
    s: usize,
    mut y: usize,
    mut x: usize,
    peak_threshold: f32,
    edge_threshold: f32,
) -> Option<((usize, usize, usize), Extremum)> {
    let (width, height) = (levels[0].width, levels[0].height);
    let mut moves = 0;
    let (value, gradient, hessian, offset) = loop {
        let cube = cube(levels, s, y, x);
        let (gradient, hessian) = derivatives(&cube);
        let offset = -(hessian.lu().solve(&gradient)?);
        // A dead zone beyond one half keeps it from jumping to and fro.
        let step = |offset: f32| if offset.abs() > 0.6 { offset.signum() as isize } else { 0 };
        let next_x = x.saturating_add_signed(step(offset.x)).clamp(BORDER, width - BORDER - 1);
        let next_y = y.saturating_add_signed(step(offset.y)).clamp(BORDER, height - BORDER - 1);
        if moves == MAX_MOVES || (next_x, next_y) == (x, y) {
            break (cube[1][1][1], gradient, hessian, offset);
        }
        (x, y) = (next_x, next_y);
        moves += 1;
    };
    let value = value + 0.5 * gradient.dot(&offset);
    let (xx, yy, xy) = (hessian[(0, 0)], hessian[(1, 1)], hessian[(0, 1)]);
    let (trace, determinant) = (xx + yy, xx * yy - xy * xy);
    let is_near = offset.iter().all(|o| o.abs() < 1.5);
    let is_edge = trace * trace * edge_threshold >= (edge_threshold + 1.0).powi(2) * determinant;
    if !is_near || value.abs() < peak_threshold || determinant <= 0.0 || is_edge {
        return None;
    }
    let scale = s as f32 + offset.z;
    let extremum = Extremum {
        x: x as f32 + offset.x,
        y: y as f32 + offset.y,
        sigma: sigma_of_level(scale),
        contrast: value.abs(),
        level: (scale.round() as usize).clamp(1, SCALES_PER_OCTAVE) - 1,
    };
    Some(((s, y, x), extremum))
}

/// Gradient and Hessian over (x, y, scale level) by central differences.
fn derivatives(cube: &Cube) -> (Vector3<f32>, Matrix3<f32>) {
    let at = |ds: usize, dy: usize, dx: usize| cube[ds][dy][dx];
    let centre = at(1, 1, 1);
    let gradient =
        0.5 * Vector3::new(at(1, 1, 2) - at(1, 1, 0), at(1, 2, 1) - at(1, 0, 1), at(2, 1, 1) - at(0, 1, 1));
    let xx = at(1, 1, 2) + at(1, 1, 0) - 2.0 * centre;
    let yy = at(1, 2, 1) + at(1, 0, 1) - 2.0 * centre;
    let ss = at(2, 1, 1) + at(0, 1, 1) - 2.0 * centre;
    let xy = 0.25 * (at(1, 2, 2) + at(1, 0, 0) - at(1, 0, 2) - at(1, 2, 0));
    let xs = 0.25 * (at(2, 1, 2) + at(0, 1, 0) - at(2, 1, 0) - at(0, 1, 2));
    let ys = 0.25 * (at(2, 2, 1) + at(0, 0, 1) - at(2, 0, 1) - at(0, 2, 1));
    (gradient, Matrix3::new(xx, xy, xs, xy, yy, ys, xs, ys, ss))
}
