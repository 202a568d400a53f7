//! What pairs of frames say of the poses by their own matches.

use crate::sfm::map::Map;
use crate::sfm::support::{Support, support_of_images};
use crate::sfm::two_view::TwoViewGeometry;
use crate::statistics::{median, quantile};

/// Pairs with fewer matches say little of their rotation.
const LEAST: usize = 30;
/// A pair contradicts the model if a smaller share of its matches agrees.
const AGREEING: f64 = 0.5;
/// Images with fewer verified matches are not judged by them.
const LEAST_OF_IMAGE: usize = 50;

/// How far pairs and model are apart.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Agreement {
    /// Angle between rotations, degrees: median.
    pub(super) rotation: f64,
    /// The same, 90 %.
    pub(super) rotation_tail: f64,
    /// Share of the pairs whose matches mostly contradict the model.
    pub(super) contradicting: f64,
    /// Share of agreeing matches of the frame that has least.
    pub(super) worst_image: f64,
}

/// `support` is that of `pairs`.
pub(super) fn agreement(map: &Map, pairs: &[TwoViewGeometry], support: &[Support]) -> Agreement {
    let angle = |p: &TwoViewGeometry| {
        let (a, b) = (map.poses[p.first as usize]?, map.poses[p.second as usize]?);
        let own = p.second_from_first?.rotation;
        (p.inliers.len() >= LEAST).then(|| own.angle_to(&(b.rotation * a.rotation.inverse())).to_degrees())
    };
    let mut angles: Vec<f64> = pairs.iter().filter_map(angle).collect();
    let judged = support.iter().filter(|s| s.matches >= LEAST).count();
    let against = support.iter().filter(|s| s.matches >= LEAST && s.ratio() < AGREEING).count();
    let worst = support_of_images(map.poses.len(), pairs, support)
        .iter()
        .filter(|s| s.matches >= LEAST_OF_IMAGE)
        .map(Support::ratio)
        .fold(1.0, f64::min);
    Agreement {
        rotation: median(&mut angles).unwrap_or(0.0),
        rotation_tail: quantile(&mut angles, 0.9).unwrap_or(0.0),
        contradicting: against as f64 / judged.max(1) as f64,
        worst_image: worst,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sfm::support::support_of_pairs;
    use crate::sfm::synthetic::Capture;
    use nalgebra::{UnitQuaternion, Vector3};

    #[test]
    fn a_turned_frame_contradicts_its_pairs() {
        let capture = Capture::orbit(12, 800, 0.2, 5);
        let pairs = capture.pairs(4);
        let mut map = capture.true_map();
        let of = |map: &Map| agreement(map, &pairs, &support_of_pairs(map, &capture.keypoints, &pairs, 8.0));
        let right = of(&map);
        assert!(right.rotation < 0.3 && right.contradicting == 0.0 && right.worst_image > 0.95, "{right:?}");
        for pose in map.poses[6..].iter_mut().flatten() {
            pose.rotation = UnitQuaternion::from_axis_angle(&Vector3::x_axis(), 0.1) * pose.rotation;
        }
        let wrong = of(&map);
        assert!(
            wrong.rotation_tail > 4.0 && wrong.contradicting > 0.1 && wrong.worst_image < 0.7,
            "{wrong:?}"
        );
    }
}
