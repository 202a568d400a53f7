//! Whether all that is seen lies in one plane: a photograph, a screen, a wall.

use nalgebra::Vector3;
use rayon::prelude::*;

use crate::random::Random;
use crate::sfm::map::Map;

/// Points that are looked at, evenly chosen.
const POINTS: usize = 1500;
/// Planes through three of them that are tried.
const PLANES: usize = 300;
/// A point lies in a plane within this share of its distance from the cameras.
const THICKNESS: f64 = 0.01;

/// Share of the points that lie in the plane that most of them lie in; 0 for a map with fewer than four.
pub(super) fn flat_points(map: &Map) -> f64 {
    let step = map.points.len().div_ceil(POINTS).max(1);
    let points: Vec<(Vector3<f64>, f64)> = map
        .points
        .iter()
        .step_by(step)
        .filter_map(|p| {
            let mut nearest = f64::INFINITY;
            for o in &p.track {
                nearest = nearest.min((map.poses[o.image as usize]?.centre() - p.xyz).norm());
            }
            Some((p.xyz, THICKNESS * nearest))
        })
        .collect();
    if points.len() < 4 {
        return 0.0;
    }
    let counts: Vec<usize> = (0..PLANES as u64)
        .into_par_iter()
        .map(|seed| {
            let mut random = Random::new(seed);
            let [a, b, c] = std::array::from_fn(|_| points[random.below(points.len())].0);
            let Some(normal) = (b - a).cross(&(c - a)).try_normalize(1e-12) else { return 0 };
            points.iter().filter(|(x, limit)| normal.dot(&(x - a)).abs() <= *limit).count()
        })
        .collect();
    counts.into_iter().max().unwrap_or(0) as f64 / points.len() as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sfm::synthetic::Capture;

    #[test]
    fn a_ball_of_points_is_not_flat_and_a_wall_is() {
        let capture = Capture::orbit(8, 400, 0.0, 1);
        let mut map = capture.true_map_with_points();
        assert!(flat_points(&map) < 0.2, "{}", flat_points(&map));
        map.points.iter_mut().for_each(|p| p.xyz.z = 0.001 * p.xyz.x.sin());
        assert!(flat_points(&map) > 0.99, "{}", flat_points(&map));
        map.points.clear();
        assert_eq!(flat_points(&map), 0.0);
    }
}
