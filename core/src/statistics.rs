//! Robust statistics: what holds of most values, however wrong the others are.

/// Standard deviation of a normal distribution whose median absolute deviation is 1: `1 / Φ⁻¹(3/4)` (Hampel, "The
/// influence curve and its role in robust estimation", 1974).
pub(crate) const SIGMA_OF_MAD: f64 = 1.4826;

/// Median distance of a point of the plane from where it should be, in standard deviations of its coordinates, if these are
/// normal and independent: `√(2 ln 2)` (Rayleigh's distribution).
pub(crate) const MEDIAN_OF_RAYLEIGH: f64 = 1.1774;

/// Numbers that have an order in which even NaN has a place.
pub(crate) trait Ordered: Copy {
    /// `total_cmp` of the type.
    fn order(&self, other: &Self) -> std::cmp::Ordering;
}

impl Ordered for f32 {
    fn order(&self, other: &Self) -> std::cmp::Ordering {
        self.total_cmp(other)
    }
}

impl Ordered for f64 {
    fn order(&self, other: &Self) -> std::cmp::Ordering {
        self.total_cmp(other)
    }
}

/// Median of `values` (the upper one of an even number); `None` if there are none. The order of `values` changes.
pub(crate) fn median<T: Ordered>(values: &mut [T]) -> Option<T> {
    quantile(values, 0.5)
}

/// The value below which the fraction `q` (0 to 1) of `values` lies; `None` if there are none. The order of `values`
/// changes.
pub(crate) fn quantile<T: Ordered>(values: &mut [T], q: f64) -> Option<T> {
    let last = values.len().checked_sub(1)?;
    let rank = ((values.len() as f64 * q) as usize).min(last);
    Some(*values.select_nth_unstable_by(rank, T::order).1)
}

/// The least value at which half of the weight is reached, of pairs (value, weight); `None` if there are none. The order of
/// `values` changes.
pub(crate) fn weighted_median(values: &mut [(f64, f64)]) -> Option<f64> {
    values.sort_by(|a, b| a.0.total_cmp(&b.0));
    let half = 0.5 * values.iter().map(|v| v.1).sum::<f64>();
    let mut sum = 0.0;
    let reaches_half = |v: &&(f64, f64)| {
        sum += v.1;
        sum >= half
    };
    values.iter().find(reaches_half).map(|v| v.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_the_upper_one_and_does_not_mind_outliers() {
        assert_eq!(median(&mut [3.0, 1.0, f64::INFINITY]), Some(3.0));
        assert_eq!(median(&mut [4.0f32, 1.0, 2.0, 3.0]), Some(3.0));
        assert_eq!(median(&mut [] as &mut [f64]), None);
    }

    #[test]
    fn quantiles_reach_from_the_least_to_the_largest() {
        let values: Vec<f64> = (0..100).rev().map(f64::from).collect();
        let of = |q| quantile(&mut values.clone(), q);
        assert_eq!((of(0.0), of(0.25), of(1.0)), (Some(0.0), Some(25.0), Some(99.0)));
    }

    #[test]
    fn heavy_values_move_the_weighted_median() {
        assert_eq!(weighted_median(&mut [(3.0, 1.0), (1.0, 1.0), (2.0, 1.0)]), Some(2.0));
        assert_eq!(weighted_median(&mut [(3.0, 5.0), (1.0, 1.0), (2.0, 1.0)]), Some(3.0));
        assert_eq!(weighted_median(&mut []), None);
    }
}
