//! Which colours are the object's: one histogram for all views, since one camera saw them in one light.

/// Cells along each colour channel.
const CELLS: usize = 20;
/// The part of a histogram that every cell has, so that a colour never seen says nothing.
const FLOOR: f64 = 3e-6;

/// Logarithm of how much more frequent a colour is on the object than beside it.
pub(super) struct Colours {
    log_ratio: Vec<f32>,
}

/// Soft counts of colours in one view.
#[derive(Clone)]
pub(super) struct ColourCounts {
    object: Vec<u64>,
    rest: Vec<u64>,
}

fn cell(rgb: &[u8; 3]) -> usize {
    let index = |v: u8| usize::from(v) * CELLS / 256;
    (index(rgb[0]) * CELLS + index(rgb[1])) * CELLS + index(rgb[2])
}

impl ColourCounts {
    /// Counts the colours of a view with the probability (0 to 255) that a pixel is object: the surer, the more. Whole
    /// numbers, so that sums do not depend on their order.
    pub(super) fn of(rgb: &[[u8; 3]], probability: &[u8]) -> Self {
        let mut counts = Self { object: vec![0; CELLS.pow(3)], rest: vec![0; CELLS.pow(3)] };
        for (rgb, p) in rgb.iter().zip(probability) {
            let sure = 2 * i32::from(*p) - 255;
            let histogram = if sure > 0 { &mut counts.object } else { &mut counts.rest };
            histogram[cell(rgb)] += u64::from(sure.unsigned_abs());
        }
        counts
    }

    pub(super) fn add(&mut self, other: &Self) {
        self.object.iter_mut().zip(&other.object).for_each(|(a, b)| *a += b);
        self.rest.iter_mut().zip(&other.rest).for_each(|(a, b)| *a += b);
    }
}

impl Colours {
    pub(super) fn new(counts: &ColourCounts) -> Self {
        let (object, rest) = (normalised(&counts.object), normalised(&counts.rest));
        let ratio = |(o, r): (&f64, &f64)| ((o + FLOOR) / (r + FLOOR)).ln() as f32;
        Self { log_ratio: object.iter().zip(&rest).map(ratio).collect() }
    }

    /// Above 0 for a colour of the object, below for one of the background.
    pub(super) fn log_ratio(&self, rgb: &[u8; 3]) -> f32 {
        self.log_ratio[cell(rgb)]
    }
}

/// Smoothed over neighbouring cells, with sum 1.
fn normalised(counts: &[u64]) -> Vec<f64> {
    let mut values: Vec<f64> = counts.iter().map(|c| *c as f64).collect();
    for stride in [1, CELLS, CELLS * CELLS] {
        let before = values.clone();
        for (k, value) in values.iter_mut().enumerate() {
            let place = k / stride % CELLS;
            let below = if place > 0 { before[k - stride] } else { before[k] };
            let above = if place + 1 < CELLS { before[k + stride] } else { before[k] };
            *value = 0.5 * before[k] + 0.25 * (below + above);
        }
    }
    let sum: f64 = values.iter().sum::<f64>().max(1e-9);
    values.iter().map(|v| v / sum).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_colour_belongs_to_where_it_is_frequent() {
        let rgb =
            [[200, 20, 20], [205, 25, 20], [20, 20, 200], [20, 20, 210], [120, 120, 120], [120, 120, 120]];
        let mut counts = ColourCounts::of(&rgb, &[255, 250, 0, 10, 255, 0]);
        counts.add(&counts.clone());
        let colours = Colours::new(&counts);
        assert!(colours.log_ratio(&[202, 22, 22]) > 2.0);
        assert!(colours.log_ratio(&[22, 22, 205]) < -2.0);
        assert!(colours.log_ratio(&[120, 120, 120]).abs() < 0.3, "on both");
        assert!(colours.log_ratio(&[0, 255, 0]).abs() < 0.3, "never seen");
    }
}
