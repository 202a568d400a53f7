//! Keypoints: extrema of the differences of Gaussians over place and scale, refined by a quadratic.
//!
//! Lowe 2004, sections 3.1 to 4.1.

use nalgebra::{Matrix3, Vector3};

use super::plane::Plane;
use super::scale_space::{Octave, SCALES_PER_OCTAVE, sigma_of_level};

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
    /// The Gaussian level nearest in scale, as an index into [`Octave::gaussians`].
    pub(super) level: usize,
}

/// Pixels at the border where no extremum is sought: there it would be one of the repeated border.
const BORDER: usize = 4;
/// Refinement stops after this many moves.
const MAX_MOVES: usize = 4;

/// All extrema of an octave, by level, row and column.
pub(super) fn extrema(octave: &Octave, peak_threshold: f32, edge_threshold: f32) -> Vec<Extremum> {
    let (width, height) = (octave.differences[0].width, octave.differences[0].height);
    if width <= 2 * BORDER || height <= 2 * BORDER {
        return Vec::new();
    }
    let mut found: Vec<((usize, usize, usize), Extremum)> = Vec::new();
    // The quadratic may lift a sample above the threshold, hence a lower one for samples.
    let sample_threshold = 0.8 * peak_threshold;
    let mut candidates = vec![0; width];
    let (mut largest, mut smallest) = (vec![0.0; width], vec![0.0; width]);
    for s in 1..=SCALES_PER_OCTAVE {
        for y in BORDER..height - BORDER {
            mark_row(octave, s, y, sample_threshold, &mut largest, &mut smallest, &mut candidates);
            for x in BORDER..width - BORDER {
                if candidates[x] != 0 && is_strict_extremum(octave, s, y, x) {
                    found.extend(refine(octave, s, y, x, peak_threshold, edge_threshold));
                }
            }
        }
    }
    // Neighbouring samples may end in the same place.
    found.sort_by_key(|(sample, _)| *sample);
    found.dedup_by_key(|(sample, _)| *sample);
    found.into_iter().map(|(_, extremum)| extremum).collect()
}

vectorised! {
    /// Marks where a row of the difference `s` is not exceeded by any of its 26 neighbours and passes the threshold.
    /// Branch-free loops over whole rows, for the vectoriser.
    fn mark_row(octave: &Octave, s: usize, y: usize, threshold: f32, largest: &mut [f32], smallest: &mut [f32], marks: &mut [u32]) {
        let width = marks.len();
        let rows: [&[f32]; 9] =
            std::array::from_fn(|i| &octave.differences[s - 1 + i / 3].row(y - 1 + i % 3)[..width]);
        let (largest, smallest) = (&mut largest[..width], &mut smallest[..width]);
        for x in 0..width {
            let (mut high, mut low) = (rows[0][x], rows[0][x]);
            for row in &rows[1..] {
                high = if row[x] > high { row[x] } else { high };
                low = if row[x] < low { row[x] } else { low };
            }
            largest[x] = high;
            smallest[x] = low;
        }
        let centre = rows[4];
        for x in 1..width - 1 {
            let value = centre[x];
            let high = if largest[x - 1] > largest[x] { largest[x - 1] } else { largest[x] };
            let high = if largest[x + 1] > high { largest[x + 1] } else { high };
            let low = if smallest[x - 1] < smallest[x] { smallest[x - 1] } else { smallest[x] };
            let low = if smallest[x + 1] < low { smallest[x + 1] } else { low };
            let maximum = (value >= high) & (value >= threshold);
            let minimum = (value <= low) & (value <= -threshold);
            marks[x] = u32::from(maximum | minimum);
        }
    }
}

/// Whether the sample lies strictly above, or strictly below, all of its 26 neighbours.
fn is_strict_extremum(octave: &Octave, s: usize, y: usize, x: usize) -> bool {
    let value = octave.differences[s].row(y)[x];
    let sign = value.signum();
    (0..27).filter(|&i| i != 13).all(|i| {
        let (ds, dy, dx) = (i / 9, i / 3 % 3, i % 3);
        sign * value > sign * octave.differences[s + ds - 1].row(y + dy - 1)[x + dx - 1]
    })
}

/// Fits a quadratic around a sample, moves to the pixel nearest to its extremum until that is the same one, and checks
/// contrast and curvature there. Returns the final sample (scale, row, column) with the extremum.
///
/// It moves over the picture only: were the extremum nearer to another level, that level would have one of its own. For
/// the same reason an offset of more than half a sample is accepted where moving does not settle.
fn refine(
    octave: &Octave,
    s: usize,
    mut y: usize,
    mut x: usize,
    peak_threshold: f32,
    edge_threshold: f32,
) -> Option<((usize, usize, usize), Extremum)> {
    let (width, height) = (octave.differences[0].width, octave.differences[0].height);
    let mut moves = 0;
    let (gradient, hessian, offset) = loop {
        let (gradient, hessian) = derivatives(&octave.differences, s, y, x);
        let offset = -(hessian.lu().solve(&gradient)?);
        // A dead zone beyond one half keeps it from jumping to and fro.
        let step = |offset: f32| if offset.abs() > 0.6 { offset.signum() as isize } else { 0 };
        let next_x = x.saturating_add_signed(step(offset.x)).clamp(BORDER, width - BORDER - 1);
        let next_y = y.saturating_add_signed(step(offset.y)).clamp(BORDER, height - BORDER - 1);
        if moves == MAX_MOVES || (next_x, next_y) == (x, y) {
            break (gradient, hessian, offset);
        }
        (x, y) = (next_x, next_y);
        moves += 1;
    };
    let value = octave.differences[s].row(y)[x] + 0.5 * gradient.dot(&offset);
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
fn derivatives(differences: &[Plane], s: usize, y: usize, x: usize) -> (Vector3<f32>, Matrix3<f32>) {
    let at = |ds: usize, dy: usize, dx: usize| differences[s + ds - 1].row(y + dy - 1)[x + dx - 1];
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
