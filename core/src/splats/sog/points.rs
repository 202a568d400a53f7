//! Points in a space of many dimensions, with weights, and what is computed of them.

/// As many numbers are computed with at a time: sums over them have always the same order, and fit the machine's vectors.
const LANES: usize = 8;

/// Points, one behind the other, each filled up with zeros to whole lanes.
pub(super) struct Points {
    values: Vec<f32>,
    /// Numbers of a point in memory.
    stride: usize,
}

impl Points {
    /// `count` points of `dimensions` numbers, which `fill` writes.
    pub(super) fn new(count: usize, dimensions: usize, fill: impl Fn(usize, &mut [f32]) + Sync) -> Self {
        use rayon::prelude::*;
        let stride = dimensions.next_multiple_of(LANES);
        let mut values = vec![0.0; count * stride];
        let rows = values.par_chunks_exact_mut(stride).enumerate();
        rows.for_each(|(i, row)| fill(i, &mut row[..dimensions]));
        Self { values, stride }
    }

    /// Of points that are filled up already.
    pub(super) fn of_rows(values: Vec<f32>, stride: usize) -> Self {
        Self { values, stride }
    }

    pub(super) fn len(&self) -> usize {
        self.values.len() / self.stride
    }

    pub(super) fn stride(&self) -> usize {
        self.stride
    }

    /// Point `i`, which must be one of them, with the zeros behind it.
    pub(super) fn row(&self, i: usize) -> &[f32] {
        &self.values[i * self.stride..][..self.stride]
    }
}

/// The squared distance of two rows.
pub(super) fn distance(a: &[f32], b: &[f32]) -> f32 {
    sum_of(a, b, |a, b| (a - b) * (a - b))
}

/// The scalar product of two rows.
pub(super) fn dot(a: &[f32], b: &[f32]) -> f32 {
    sum_of(a, b, |a, b| a * b)
}

#[inline(always)]
fn sum_of(a: &[f32], b: &[f32], term: impl Fn(f32, f32) -> f32) -> f32 {
    let mut sums = [0.0; LANES];
    for (a, b) in a.as_chunks::<LANES>().0.iter().zip(b.as_chunks::<LANES>().0) {
        for lane in 0..LANES {
            sums[lane] += term(a[lane], b[lane]);
        }
    }
    sums.iter().sum()
}

/// What is added up of points.
#[derive(Clone)]
pub(super) struct Sum {
    pub(super) weight: f64,
    squares: f64,
    row: Vec<f64>,
}

impl Sum {
    pub(super) fn new(stride: usize) -> Self {
        Self { weight: 0.0, squares: 0.0, row: vec![0.0; stride] }
    }

    pub(super) fn add(&mut self, row: &[f32], weight: f32) {
        let weight = f64::from(weight);
        self.weight += weight;
        self.squares += weight * f64::from(dot(row, row));
        for (sum, value) in self.row.iter_mut().zip(row) {
            *sum += weight * f64::from(*value);
        }
    }

    pub(super) fn merge(mut self, other: &Self) -> Self {
        self.weight += other.weight;
        self.squares += other.squares;
        self.row.iter_mut().zip(&other.row).for_each(|(sum, value)| *sum += value);
        self
    }

    /// The mean; zero of nothing.
    pub(super) fn mean(&self) -> Vec<f32> {
        let factor = if self.weight > 0.0 { 1.0 / self.weight } else { 0.0 };
        self.row.iter().map(|sum| (sum * factor) as f32).collect()
    }

    /// The squared error if the mean stands for all.
    pub(super) fn error(&self) -> f64 {
        let of_mean: f64 = self.row.iter().map(|sum| sum * sum).sum();
        if self.weight > 0.0 { (self.squares - of_mean / self.weight).max(0.0) } else { 0.0 }
    }
}
