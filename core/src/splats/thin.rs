//! A scene with fewer splats: what a viewer shows until it has the whole.

use glam::Vec3;

use super::harmonics::sh_coefficients;
use super::order::morton;
use super::values::Splats;

impl Splats {
    /// At most `count` of the splats, without the colours that depend on the direction. They are enlarged so that together
    /// they cover what all of them did; all are kept as large as they are where `count` suffices for all.
    ///
    /// A splat is kept with a probability that grows with its size, and the area it covers is divided by that probability:
    /// stochastic simplification (Cook, Halstead, Planck and Ryu 2007). Which ones are kept is no matter of luck:
    /// they are counted off along a Morton curve, so that those kept lie as evenly in space as the others.
    pub fn thinned(&self, count: usize) -> Splats {
        let probabilities = probabilities(&self.weights(), count);
        let mut kept = Splats::with_capacity(count.min(self.len()), 0);
        kept.antialiased = self.antialiased;
        let stride = 3 * sh_coefficients(self.sh_degree);
        // Half of a splat is owed at first, so that neither end of the curve is preferred.
        let mut owed = 0.5;
        for i in along_the_curve(&self.means) {
            let i = i as usize;
            owed += probabilities[i];
            if owed < 1.0 || kept.len() == count {
                continue;
            }
            owed -= 1.0;
            kept.means.push(self.means[i]);
            kept.log_scales.push(self.log_scales[i] - (0.5 * probabilities[i].ln()) as f32);
            kept.rotations.push(self.rotations[i]);
            kept.opacities.push(self.opacities[i]);
            kept.sh.extend_from_slice(&self.sh[stride * i..stride * i + 3]);
        }
        kept
    }

    /// How much of a picture depends on each: its opacity times its width, the mean of the two larger standard deviations in
    /// world units. With the area instead the large ones, of which skies and walls are made, leave too few for what is fine.
    fn weights(&self) -> Vec<f64> {
        let weight = |(log_scales, opacity): (&Vec3, &f32)| {
            let log_scales = log_scales.as_dvec3();
            let larger = log_scales.element_sum() - log_scales.min_element();
            let weight = (0.5 * larger).exp() / (1.0 + (-f64::from(*opacity)).exp());
            if weight.is_finite() { weight } else { 0.0 }
        };
        self.log_scales.iter().zip(&self.opacities).map(weight).collect()
    }
}

/// Probabilities in the ratio of the weights, at most 1, whose sum is `count`, or fewer if not so many weigh anything.
fn probabilities(weights: &[f64], count: usize) -> Vec<f64> {
    let mut certain = vec![false; weights.len()];
    loop {
        let left = count.saturating_sub(certain.iter().filter(|&&c| c).count());
        let sum: f64 = weights.iter().zip(&certain).filter(|(_, certain)| !**certain).map(|(w, _)| w).sum();
        let factor = if sum > 0.0 { left as f64 / sum } else { 0.0 };
        let mut more = false;
        for (weight, certain) in weights.iter().zip(&mut certain) {
            if !*certain && weight * factor >= 1.0 {
                (*certain, more) = (true, true);
            }
        }
        if !more {
            let of = |(weight, certain): (&f64, &bool)| if *certain { 1.0 } else { weight * factor };
            return weights.iter().zip(&certain).map(of).collect();
        }
    }
}

/// The numbers of the points, in the order in which a Morton curve through the box around them comes by.
fn along_the_curve(points: &[Vec3]) -> Vec<u32> {
    let low = points.iter().copied().fold(Vec3::INFINITY, Vec3::min);
    let high = points.iter().copied().fold(Vec3::NEG_INFINITY, Vec3::max);
    let steps = f32::from(u16::MAX) / (high - low).max_element().max(f32::MIN_POSITIVE);
    // `as` makes a place of what is no number, too.
    let place = |point: &Vec3| ((*point - low) * steps).to_array().map(|v| v as u16);
    morton(&points.iter().map(place).collect::<Vec<_>>())
}

#[cfg(test)]
mod tests {
    use glam::{vec3, vec4};

    use super::super::test_scenes::random_splats;
    use super::*;

    fn opacity(splats: &Splats, i: usize) -> f64 {
        1.0 / (1.0 + (-f64::from(splats.opacities[i])).exp())
    }

    /// Opacity times the area, summed.
    fn covered(splats: &Splats) -> f64 {
        let of = |i: usize| {
            let s = splats.log_scales[i].as_dvec3();
            opacity(splats, i) * (s.element_sum() - s.min_element()).exp()
        };
        (0..splats.len()).map(of).sum()
    }

    #[test]
    fn what_is_kept_covers_as_much_as_all_did() {
        let whole = random_splats(3, 40_000, 2);
        let few = whole.thinned(4_000);
        few.check().unwrap();
        assert!((3_990..=4_000).contains(&few.len()), "{}", few.len());
        assert_eq!(few.sh_degree, 0);
        assert!(
            (covered(&few) / covered(&whole) - 1.0).abs() < 0.05,
            "{} of {}",
            covered(&few),
            covered(&whole)
        );
        assert_eq!(few, whole.thinned(4_000));
    }

    #[test]
    fn where_there_is_room_for_all_nothing_is_enlarged() {
        let whole = random_splats(5, 500, 0);
        let kept = whole.thinned(500);
        assert_eq!(kept.len(), 500);
        let mut sizes = [kept.log_scales.clone(), whole.log_scales.clone()];
        sizes.iter_mut().for_each(|all| all.sort_by(|a, b| a.x.total_cmp(&b.x)));
        assert_eq!(sizes[0], sizes[1]);
    }

    #[test]
    fn the_large_ones_stay_as_they_are() {
        let mut whole = random_splats(7, 10_000, 1);
        whole.log_scales.iter_mut().for_each(|s| *s = Vec3::splat(-6.0));
        whole.opacities.iter_mut().for_each(|o| *o = 1.0);
        whole.log_scales[4321] = Vec3::splat(2.0);
        let few = whole.thinned(100);
        let kept = few.means.iter().position(|mean| *mean == whole.means[4321]).unwrap();
        assert_eq!(few.log_scales[kept], whole.log_scales[4321]);
        assert_eq!(few.sh[3 * kept..3 * kept + 3], whole.sh[12 * 4321..12 * 4321 + 3]);
    }

    /// All over the place in which they were, not in some corner of it.
    #[test]
    fn those_kept_lie_as_evenly_as_all_did() {
        let mut whole = Splats::with_capacity(64_000, 0);
        for i in 0..64_000 {
            let place = |step: usize| (i / step % 40) as f32;
            whole.means.push(vec3(place(1), place(40), place(1600)));
            whole.log_scales.push(Vec3::splat(-1.0));
            whole.rotations.push(vec4(1.0, 0.0, 0.0, 0.0));
            whole.opacities.push(2.0);
            whole.sh.extend([0.1; 3]);
        }
        let few = whole.thinned(8_000);
        let mut counts = [0; 64];
        for mean in &few.means {
            let [x, y, z] = (*mean / 10.0).to_array().map(|v| v as usize);
            counts[x + 4 * y + 16 * z] += 1;
        }
        assert!(counts.iter().all(|count| (120..=130).contains(count)), "{counts:?}");
    }

    #[test]
    fn odd_scenes_are_no_trouble() {
        assert!(Splats::default().thinned(10).is_empty());
        assert!(random_splats(1, 10, 3).thinned(0).is_empty());
        let mut odd = random_splats(1, 10, 3);
        odd.means[3] = Vec3::NAN;
        odd.log_scales[4] = Vec3::INFINITY;
        odd.opacities[5] = f32::NEG_INFINITY;
        let kept = odd.thinned(5);
        kept.check().unwrap();
        assert!(kept.len() <= 5 && kept.log_scales.iter().all(|s| s.is_finite()));
    }
}
