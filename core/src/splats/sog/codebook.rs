//! Codebooks: 256 values that stand for many, with the least squared error.
//!
//! On a line that is solved exactly: groups are intervals, so the best groups of the first values follow from the best of
//! fewer. To be fast it is done on some thousand cells instead of the values, and the borders are then moved between single
//! values, as Lloyd's algorithm does.

use rayon::prelude::*;

use super::meta::CODEBOOK;

/// Cells of as many values each, and as many again of the same width.
const CELLS: usize = 2048;
/// Rounds of Lloyd's algorithm; hardly anything changes after the first.
const ROUNDS: usize = 8;

/// A sorted codebook of 256 values for these, which are finite. Where fewer are enough the last is repeated.
pub(super) fn codebook(mut values: Vec<f32>) -> Vec<f32> {
    values.par_sort_unstable_by(f32::total_cmp);
    let sums = Sums::new(&values);
    let mut borders = best_groups(&sums, &cells(&values), CODEBOOK);
    for _ in 0..ROUNDS {
        let means: Vec<f32> = borders.windows(2).map(|pair| sums.mean(pair[0], pair[1])).collect();
        let mut moved = vec![0];
        for pair in means.windows(2) {
            moved.push(values.partition_point(|value| *value <= middle(pair[0], pair[1])));
        }
        moved.push(values.len());
        moved.dedup();
        borders = moved;
    }
    let mut means: Vec<f32> = borders.windows(2).map(|pair| sums.mean(pair[0], pair[1])).collect();
    means.resize(CODEBOOK, means.last().copied().unwrap_or(0.0));
    means
}

/// The number of the nearest value in a sorted codebook.
pub(super) fn nearest(codebook: &[f32], value: f32) -> u8 {
    let above = codebook.partition_point(|own| *own < value);
    let below = above.saturating_sub(1);
    let distance = |k: usize| codebook.get(k).map_or(f32::INFINITY, |own| (own - value).abs());
    // A codebook has at most 256 values.
    (if distance(above) < distance(below) { above } else { below }) as u8
}

fn middle(a: f32, b: f32) -> f32 {
    a + (b - a) / 2.0
}

/// Sums over the first values, from which follow those over any interval.
struct Sums {
    /// What is taken off each value, so that squares do not drown the differences.
    shift: f64,
    first: Vec<f64>,
    second: Vec<f64>,
}

impl Sums {
    fn new(sorted: &[f32]) -> Self {
        let shift = f64::from(sorted.get(sorted.len() / 2).copied().unwrap_or(0.0));
        let (mut first, mut second) = (vec![0.0], vec![0.0]);
        let (mut sum, mut squares) = (0.0, 0.0);
        for value in sorted {
            let value = f64::from(*value) - shift;
            sum += value;
            squares += value * value;
            first.push(sum);
            second.push(squares);
        }
        Self { shift, first, second }
    }

    /// The mean of values `from..to`, which is not empty.
    fn mean(&self, from: usize, to: usize) -> f32 {
        ((self.first[to] - self.first[from]) / (to - from) as f64 + self.shift) as f32
    }

    /// The squared error if the mean stands for the values `from..to`, which are not none.
    fn error(&self, from: usize, to: usize) -> f64 {
        let sum = self.first[to] - self.first[from];
        self.second[to] - self.second[from] - sum * sum / (to - from) as f64
    }
}

/// Where cells begin, and the end: as many values in each of some, the same width of others.
fn cells(sorted: &[f32]) -> Vec<usize> {
    let (Some(&low), Some(&high)) = (sorted.first(), sorted.last()) else { return vec![0] };
    let mut borders = vec![0, sorted.len()];
    for k in 1..CELLS {
        borders.push(k * sorted.len() / CELLS);
        let border = f64::from(low) + (f64::from(high) - f64::from(low)) * k as f64 / CELLS as f64;
        borders.push(sorted.partition_point(|value| f64::from(*value) < border));
    }
    borders.sort_unstable();
    borders.dedup();
    borders
}

/// Borders of at most `most` groups of whole cells with the least squared error.
fn best_groups(sums: &Sums, cells: &[usize], most: usize) -> Vec<usize> {
    let count = cells.len() - 1;
    if count <= most {
        return cells.to_vec();
    }
    // The least error of the first cells in so many groups, and where the last of them begins.
    let mut errors: Vec<f64> =
        (0..=count).map(|to| if to == 0 { 0.0 } else { sums.error(0, cells[to]) }).collect();
    let mut begins: Vec<Vec<u16>> = Vec::with_capacity(most);
    for groups in 2..=most {
        let mut layer =
            Layer { sums, cells, before: &errors, errors: vec![0.0; count + 1], begin: vec![0; count + 1] };
        // Groups are not empty.
        layer.solve(groups..count + 1, groups - 1..count);
        let Layer { errors: own, begin, .. } = layer;
        errors = own;
        begins.push(begin);
    }
    let mut borders = vec![cells[count]];
    let mut to = count;
    for begin in begins.iter().rev() {
        to = usize::from(begin[to]);
        borders.push(cells[to]);
    }
    borders.push(0);
    borders.reverse();
    borders
}

/// One more group than `before`.
struct Layer<'a> {
    sums: &'a Sums,
    cells: &'a [usize],
    before: &'a [f64],
    errors: Vec<f64>,
    begin: Vec<u16>,
}

impl Layer<'_> {
    /// Solves for all these ends. The further the end, the further the best beginning of the last group: those of the middle
    /// bound the others.
    fn solve(&mut self, ends: std::ops::Range<usize>, begins: std::ops::Range<usize>) {
        if ends.is_empty() {
            return;
        }
        let end = ends.start + ends.len() / 2;
        let (mut best, mut least) = (begins.start, f64::INFINITY);
        for begin in begins.start..begins.end.min(end) {
            let error = self.before[begin] + self.sums.error(self.cells[begin], self.cells[end]);
            if error < least {
                (best, least) = (begin, error);
            }
        }
        self.errors[end] = least;
        // There are some thousand cells.
        self.begin[end] = best as u16;
        self.solve(ends.start..end, begins.start..best + 1);
        self.solve(end + 1..ends.end, best..begins.end);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;

    fn error(codebook: &[f32], values: &[f32]) -> f64 {
        values.iter().map(|v| f64::from(codebook[usize::from(nearest(codebook, *v))] - v).powi(2)).sum()
    }

    #[test]
    fn few_values_are_kept() {
        assert_eq!(codebook(vec![2.5; 1000]), [2.5; 256]);
        let values: Vec<f32> = (0..1000).map(|k| (k * 7 % 200) as f32).collect();
        assert_eq!(error(&codebook(values.clone()), &values), 0.0);
        assert_eq!(codebook(vec![-1.0, 1e6])[..2], [-1.0, 1e6]);
    }

    /// The best that can be done with evenly spread values is even steps.
    #[test]
    fn the_error_is_the_least_that_is_possible() {
        let values: Vec<f32> = (0..200_000).map(|k| k as f32 / 200_000.0).collect();
        let even = (1.0f64 / 256.0).powi(2) / 12.0 * 200_000.0;
        let own = error(&codebook(values.clone()), &values);
        assert!(own < 1.002 * even, "{own} and {even}");
        let mut random = Random::new(7);
        let mut values: Vec<f32> = (0..100_000).map(|_| random.normal() as f32).collect();
        // A few far ones.
        values[..3].copy_from_slice(&[-40.0, 55.0, 1000.0]);
        let own = error(&codebook(values.clone()), &values) / 100_000.0;
        // Panter and Dite: (√3 π / 2) / N² for a normal distribution.
        let best = 3f64.sqrt() * std::f64::consts::PI / 2.0 / 253f64.powi(2);
        assert!(own < 1.05 * best, "{own} and {best}");
    }

    #[test]
    fn the_nearest_is_found() {
        let codebook = [-1.0, 0.0, 2.0, 2.0];
        for (value, expected) in [(-9.0, 0), (-0.6, 0), (-0.4, 1), (0.9, 1), (1.1, 2), (2.0, 1), (9.0, 3)] {
            let found = nearest(&codebook, value);
            assert_eq!(
                codebook[usize::from(found)],
                codebook[if value == 2.0 { 2 } else { expected }],
                "{value}"
            );
        }
    }
}
