//! Tracks and points anew, from all matches, once the poses are known.
//!
//! Two-view geometry had to judge every pair by itself; the poses judge better. Every candidate match that is near its
//! epipolar line counts, also those of pairs that were too weak to be verified, so tracks become longer and complete.

use nalgebra::Vector3;
use rayon::prelude::*;

use super::geometry::epipolar_angle;
use super::map::{Keypoints, Map, MapPoint, angle_of_pixels};
use super::matching::PairMatches;
use super::tracks::build_tracks;
use super::triangulation::{TriangulationOptions, triangulate_tracks_with_rays, world_rays};

/// Matches of one pair that agree with the poses.
struct Agreeing {
    first: u32,
    second: u32,
    matches: Vec<[u32; 2]>,
}

/// Points from all `matches` that agree with the poses of `map` within `options.max_error` pixels.
pub(crate) fn retriangulate(
    map: &Map,
    keypoints: &Keypoints,
    matches: &[PairMatches],
    options: &TriangulationOptions,
) -> Vec<MapPoint> {
    let rays = world_rays(map, keypoints);
    let mut agreeing: Vec<Agreeing> = matches
        .par_iter()
        .filter_map(|pair| {
            let limit = angle_of_pixels(map, options.max_error, pair.first as usize, pair.second as usize);
            let matches = agreeing_matches(map, &rays, pair, limit)?;
            Some(Agreeing { first: pair.first, second: pair.second, matches })
        })
        .collect();
    // Pairs with many agreeing matches are trusted first; the sort is stable.
    agreeing.sort_by_key(|pair| std::cmp::Reverse(pair.matches.len()));
    let tracks = build_tracks(keypoints, agreeing.iter().map(|p| (p.first, p.second, p.matches.as_slice())));
    triangulate_tracks_with_rays(map, keypoints, &rays, &tracks, options)
}

/// The matches whose rays are both within `limit` radians of the other's epipolar plane; `None` if an image has no
/// pose.
fn agreeing_matches(
    map: &Map,
    rays: &[Vec<Vector3<f64>>],
    pair: &PairMatches,
    limit: f64,
) -> Option<Vec<[u32; 2]>> {
    let (i, j) = (pair.first as usize, pair.second as usize);
    let baseline = map.poses[j]?.centre() - map.poses[i]?.centre();
    let agree =
        |m: &&[u32; 2]| epipolar_angle(&rays[i][m[0] as usize], &rays[j][m[1] as usize], &baseline) <= limit;
    Some(pair.matches.iter().filter(agree).copied().collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sfm::synthetic::Capture;

    #[test]
    fn broken_tracks_are_joined_again_and_wrong_matches_left_out() {
        let capture = Capture::orbit(12, 300, 0.2, 5);
        let map = capture.true_map();
        let mut matches: Vec<PairMatches> = capture
            .pairs(8)
            .into_iter()
            .map(|p| PairMatches { first: p.first, second: p.second, matches: p.inliers })
            .collect();
        for pair in &mut matches {
            // Every fifth match is wrong: it takes the partner of the next one.
            for k in (0..pair.matches.len() - 1).step_by(5) {
                let (a, b) = (pair.matches[k][1], pair.matches[k + 1][1]);
                pair.matches[k][1] = b;
                pair.matches[k + 1][1] = a;
            }
        }
        let options = TriangulationOptions { max_error: 2.0, min_angle: 0.02 };
        let points = retriangulate(&map, &capture.keypoints, &matches, &options);
        let observations: usize = points.iter().map(|p| p.track.len()).sum();
        let possible: usize = capture.tracks().iter().map(Vec::len).sum();
        assert!(observations as f64 > 0.9 * possible as f64, "{observations} of {possible}");
        let right = points.iter().filter(|p| (p.xyz - capture.point_of(&p.track[0])).norm() < 0.05).count();
        assert!(right as f64 > 0.97 * points.len() as f64, "{right} of {}", points.len());
    }
}
