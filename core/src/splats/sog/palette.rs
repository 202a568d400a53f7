//! A palette: some ten thousand points that stand for a million.
//!
//! The points are halved again and again, across the direction in which they are spread most (a tree), and a part gets as many
//! entries as its error asks for; then each point goes to the nearest of the entries around its own, and each entry to the
//! middle of its points (Lloyd's algorithm), a few times. All that takes about as long as reading the points some dozen times.
//! The result does not depend on the number of threads: what is computed side by side is always cut in the same places.

use rayon::prelude::*;

use super::points::{Points, Sum, distance, dot};
use crate::random::Random;

/// Halvings after which a part is taken as it is. Only points that lie further and further out need so many.
const DEEPEST: usize = 64;
/// Points by which the direction of a part is found.
const SAMPLE: usize = 256;
/// Rounds of the power iteration that finds it. It need not be exact.
const POWER_ROUNDS: usize = 4;
/// Rounds that find the border between two halves.
const BORDER_ROUNDS: usize = 4;
/// How many entries a part gets for its share of the error E: E^(d / (d + 2)) makes the sum least where points fill d
/// dimensions; colours of real scenes fill about ten.
const ERROR_POWER: f64 = 10.0 / 12.0;
/// Rounds of Lloyd's algorithm behind the tree.
const ROUNDS: usize = 3;
/// Entries around an entry that are looked at.
const NEIGHBOURS: usize = 16;
/// Entries that lie together in the tree, and how many such groups are searched for neighbours.
const GROUP: usize = 128;
const GROUPS: usize = 8;
/// Parts of fewer points are not worth a thread.
const ALONE: usize = 8192;

/// What stands for points.
pub(super) struct Palette {
    pub(super) entries: Points,
    /// The number of its entry for each point.
    pub(super) labels: Vec<u32>,
}

/// A palette of at most `most` entries, in an order in which neighbours are alike. No weight is negative.
pub(super) fn palette(points: &Points, weights: &[f32], most: usize) -> Palette {
    let mut numbers: Vec<u32> = (0u32..points.len() as u32).collect();
    let parts = divide(points, weights, &mut numbers, most, 0);
    let mut labels = vec![0; points.len()];
    let mut rest = numbers.as_slice();
    for (label, size) in (0..).zip(&parts) {
        // The sizes are those of parts of the numbers.
        let (part, behind) = rest.split_at(*size);
        part.iter().for_each(|number| labels[*number as usize] = label);
        rest = behind;
    }
    let mut entries = means(points, weights, &labels, parts.len(), None);
    // Where every point has an entry of its own nothing can become better.
    if parts.len() < points.len() {
        // Entries move too little to get other neighbours.
        let around = neighbours(&entries);
        for _ in 0..ROUNDS {
            labels.par_iter_mut().enumerate().for_each(|(i, label)| {
                let row = points.row(i);
                let mut best = (distance(row, entries.row(*label as usize)), *label);
                for &other in &around[*label as usize] {
                    let far = distance(row, entries.row(other as usize));
                    if far < best.0 {
                        best = (far, other);
                    }
                }
                *label = best.1;
            });
            entries = means(points, weights, &labels, parts.len(), Some(&entries));
        }
    }
    Palette { entries, labels }
}

/// Puts the numbers of points in the order of at most `most` parts, and gives the sizes of these.
fn divide(points: &Points, weights: &[f32], numbers: &mut [u32], most: usize, depth: usize) -> Vec<usize> {
    if most <= 1 || numbers.len() <= 1 || depth == DEEPEST {
        return vec![numbers.len()];
    }
    let axis = direction(points, weights, numbers);
    let along: Vec<f32> = numbers
        .par_iter()
        .with_min_len(ALONE)
        .map(|number| dot(points.row(*number as usize), &axis))
        .collect();
    let border = border(&along, weights, numbers);
    let (mut low, mut high) = (Vec::new(), Vec::new());
    for (number, place) in numbers.iter().zip(&along) {
        if *place <= border { low.push(*number) } else { high.push(*number) }
    }
    drop(along);
    if low.is_empty() || high.is_empty() {
        return vec![numbers.len()]; // all the same
    }
    let share = |part: &[u32]| sum(points, weights, part).error().powf(ERROR_POWER);
    let (of_low, of_high) = (share(&low), share(&high));
    let whole = of_low + of_high;
    let wanted = if whole > 0.0 { (most as f64 * of_low / whole).round() as usize } else { most / 2 };
    // No part gets more entries than it has points, and none gets nothing.
    let for_low = wanted.max(most.saturating_sub(high.len())).min(low.len()).clamp(1, most - 1);
    let for_high = most - for_low;
    // As many as there were.
    let (left, right) = numbers.split_at_mut(low.len());
    left.copy_from_slice(&low);
    right.copy_from_slice(&high);
    drop((low, high));
    let (mut parts, others) = rayon::join(
        || divide(points, weights, left, for_low, depth + 1),
        || divide(points, weights, right, for_high, depth + 1),
    );
    parts.extend(others);
    parts
}

/// The direction in which the points are spread most, about; of no particular length.
fn direction(points: &Points, weights: &[f32], numbers: &[u32]) -> Vec<f32> {
    let mut sample = numbers.to_vec();
    if numbers.len() > SAMPLE {
        // Not every so many: what repeats itself must not be missed.
        let mut random = Random::new(numbers.len() as u64);
        sample = (0..SAMPLE).map(|_| numbers[random.below(numbers.len())]).collect();
    }
    let mut mean = sum(points, weights, &sample).mean();
    let mut variances = variances(points, weights, &sample, &mean);
    if sample.len() < numbers.len() && variances.iter().all(|variance| *variance == 0.0) {
        // Few of them differ from the others.
        sample = numbers.to_vec();
        mean = sum(points, weights, &sample).mean();
        variances = self::variances(points, weights, &sample, &mean);
    }
    // Begins with the dimension of the largest variance.
    let widest = (0..variances.len()).max_by(|a, b| variances[*a].total_cmp(&variances[*b])).unwrap_or(0);
    let mut axis = vec![0.0f32; points.stride()];
    axis[widest] = 1.0;
    for _ in 0..POWER_ROUNDS {
        let mut next = vec![0.0f32; axis.len()];
        let of_mean = dot(&mean, &axis);
        for number in &sample {
            let row = points.row(*number as usize);
            let factor = weights[*number as usize] * (dot(row, &axis) - of_mean);
            for ((next, value), mean) in next.iter_mut().zip(row).zip(&mean) {
                *next += factor * (value - mean);
            }
        }
        let length = dot(&next, &next).sqrt();
        if !(length.is_finite() && length > 0.0) {
            break; // all the same, or beyond what single precision holds
        }
        axis = next.into_iter().map(|value| value / length).collect();
    }
    axis
}

/// How far points are from their mean in each dimension, as sums of squares.
fn variances(points: &Points, weights: &[f32], numbers: &[u32], mean: &[f32]) -> Vec<f64> {
    let mut variances = vec![0.0; points.stride()];
    for number in numbers {
        // Points without weight must be told apart, too.
        let weight = f64::from(weights[*number as usize]) + f64::from(f32::MIN_POSITIVE);
        for ((variance, value), mean) in variances.iter_mut().zip(points.row(*number as usize)).zip(mean) {
            *variance += weight * f64::from(value - mean).powi(2);
        }
    }
    variances
}

/// Where to cut: in the middle between the means of both sides.
fn border(along: &[f32], weights: &[f32], numbers: &[u32]) -> f32 {
    let mut border = f64::NAN;
    for _ in 0..=BORDER_ROUNDS {
        let (mut sums, mut masses) = ([0.0f64; 2], [0.0f64; 2]);
        for (place, number) in along.iter().zip(numbers) {
            let side = usize::from(f64::from(*place) > border);
            // Points without weight must be cut, too.
            let weight = f64::from(weights[*number as usize]) + f64::from(f32::MIN_POSITIVE);
            sums[side] += weight * f64::from(*place);
            masses[side] += weight;
        }
        // At first all are on one side: the border is their mean.
        border = match masses {
            [low, high] if low > 0.0 && high > 0.0 => (sums[0] / low + sums[1] / high) / 2.0,
            [low, high] => (sums[0] + sums[1]) / (low + high),
        };
    }
    border as f32
}

/// The sum of some of the points.
fn sum(points: &Points, weights: &[f32], numbers: &[u32]) -> Sum {
    let of = |numbers: &[u32]| {
        let mut sum = Sum::new(points.stride());
        numbers.iter().for_each(|number| sum.add(points.row(*number as usize), weights[*number as usize]));
        sum
    };
    let parts: Vec<Sum> = numbers.par_chunks(ALONE).map(of).collect();
    parts.iter().fold(Sum::new(points.stride()), Sum::merge)
}

/// The means of the points of each label; an entry without any stays where it was.
fn means(points: &Points, weights: &[f32], labels: &[u32], count: usize, before: Option<&Points>) -> Points {
    // Where the points of each label are in `order`.
    let mut begins = vec![0usize; count + 1];
    labels.iter().for_each(|label| begins[*label as usize + 1] += 1);
    (0..count).for_each(|label| begins[label + 1] += begins[label]);
    let mut next = begins.clone();
    let mut order = vec![0u32; labels.len()];
    for (number, label) in (0u32..).zip(labels) {
        let place = &mut next[*label as usize];
        order[*place] = number;
        *place += 1;
    }
    let stride = points.stride();
    let mut values = vec![0.0; count * stride];
    values.par_chunks_exact_mut(stride).enumerate().for_each(|(label, row)| {
        let own = &order[begins[label]..begins[label + 1]];
        let mut sum = Sum::new(stride);
        own.iter().for_each(|number| sum.add(points.row(*number as usize), weights[*number as usize]));
        if sum.weight <= 0.0 {
            // Points that nobody sees, or none.
            own.iter().for_each(|number| sum.add(points.row(*number as usize), 1.0));
        }
        match before {
            Some(before) if own.is_empty() => row.copy_from_slice(before.row(label)),
            _ => row.copy_from_slice(&sum.mean()),
        }
    });
    Points::of_rows(values, stride)
}

/// The entries around each, without itself. They are looked for in the groups that are nearest to its own.
fn neighbours(entries: &Points) -> Vec<Vec<u32>> {
    let all: Vec<u32> = (0u32..entries.len() as u32).collect();
    let ones = vec![1.0; all.len()];
    let groups: Vec<&[u32]> = all.chunks(GROUP).collect();
    let middles: Vec<Vec<f32>> = groups.iter().map(|group| sum(entries, &ones, group).mean()).collect();
    let near: Vec<Vec<u32>> = middles
        .par_iter()
        .map(|middle| {
            nearest(GROUPS, (0u32..).zip(&middles).map(|(group, other)| (distance(middle, other), group)))
        })
        .collect();
    all.par_iter()
        .map(|&entry| {
            let row = entries.row(entry as usize);
            let groups = near[entry as usize / GROUP].iter().map(|group| groups[*group as usize]);
            let others = groups.flatten().copied().filter(|other| *other != entry);
            nearest(NEIGHBOURS, others.map(|other| (distance(row, entries.row(other as usize)), other)))
        })
        .collect()
}

/// The numbers of the `most` least distances.
fn nearest(most: usize, of: impl Iterator<Item = (f32, u32)>) -> Vec<u32> {
    let mut found: Vec<(f32, u32)> = of.collect();
    let order = |a: &(f32, u32), b: &(f32, u32)| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1));
    if found.len() > most {
        found.select_nth_unstable_by(most, order);
        found.truncate(most);
    }
    found.sort_unstable_by(order);
    found.into_iter().map(|(_, number)| number).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;

    fn random_points(count: usize, dimensions: usize, centres: u64) -> Points {
        Points::new(count, dimensions, |i, row| {
            let mut centre = Random::new(i as u64 % centres);
            let mut random = Random::new(1 << 32 | i as u64);
            row.iter_mut()
                .for_each(|value| *value = (10.0 * centre.normal() + 0.01 * random.normal()) as f32);
        })
    }

    fn error(points: &Points, palette: &Palette) -> f64 {
        let of =
            |i: usize| f64::from(distance(points.row(i), palette.entries.row(palette.labels[i] as usize)));
        (0..points.len()).map(of).sum::<f64>() / points.len() as f64
    }

    #[test]
    fn clusters_are_found() {
        let points = random_points(20_000, 9, 100);
        let palette = palette(&points, &vec![1.0; 20_000], 400);
        assert_eq!(palette.entries.len(), 400);
        // 9 dimensions of noise of 0.01; a cluster without an entry of its own would add more than 1.
        assert!(error(&points, &palette) < 2.0 * 9e-4, "{}", error(&points, &palette));
    }

    #[test]
    fn few_points_are_kept_and_equal_ones_share_an_entry() {
        let points = random_points(50, 45, u64::MAX);
        let own = palette(&points, &[1.0; 50], 64);
        assert!(error(&points, &own) < 1e-9);
        let same = Points::new(1000, 3, |i, row| row.fill((i % 2) as f32));
        let own = palette(&same, &vec![0.0; 1000], 500);
        assert_eq!((own.entries.len(), error(&same, &own)), (2, 0.0));
    }

    #[test]
    fn the_number_of_threads_changes_nothing() {
        let points = random_points(30_000, 24, 5000);
        let weights: Vec<f32> = (0..30_000).map(|i| (i % 17) as f32).collect();
        let with = |threads: usize| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            let palette = pool.install(|| palette(&points, &weights, 700));
            let rows: Vec<u32> = (0..palette.entries.len())
                .flat_map(|i| palette.entries.row(i).iter().map(|v| v.to_bits()).collect::<Vec<_>>())
                .collect();
            (rows, palette.labels)
        };
        assert!(with(1) == with(3));
    }
}
