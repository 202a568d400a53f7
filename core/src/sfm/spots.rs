//! Which pictures were taken from one spot: those of a burst, or the same with several exposures. On the path of the camera they are one.
//!
//! Between them nobody went anywhere, so what is usual on a path must not be taken from them; and they match best of all, in whatever
//! order the spots themselves are.

use std::collections::BTreeSet;

use super::map::Map;
use super::rig::Rig;
use super::two_view::TwoViewGeometry;

/// Pairs of one spot show less parallax than this (radians, half a degree), ...
const PARALLAX: f64 = 0.0087;
/// ... and less than this part of what the best partners of the two show at most. Where a camera moves on evenly, however slowly, it is a
/// sixth and more. Chosen by hand.
const PART: f64 = 0.05;
/// Partners of a station, by number of inliers, that are asked for this. Of longer bursts none shows parallax: they are not noticed.
const PARTNERS: usize = 6;
/// A hand that holds still for a burst turns by less than this (radians, 3 degrees); who looks around turns by more. Chosen by hand.
const TURN: f64 = 0.05;

/// The spots of a capture, in the order of its stations.
pub(crate) struct Spots {
    /// By station: the number of its spot.
    of_station: Vec<usize>,
}

impl Spots {
    /// Every station has a spot of its own: so it is for the frames of a video, which are chosen at equal motion.
    pub(crate) fn of_stations(rig: &Rig) -> Self {
        Self { of_station: (0..rig.stations()).collect() }
    }

    /// Photographs that follow each other without parallax have one spot. Of panoramas this is not asked: two of their sides that look
    /// along the path show none either.
    pub(crate) fn of_photographs(rig: &Rig, pairs: &[TwoViewGeometry]) -> Self {
        if rig.is_panoramic() {
            return Self::of_stations(rig);
        }
        let ends = |pair: &TwoViewGeometry| [pair.first, pair.second].map(|i| rig.station_of(i as usize));
        let mut partners: Vec<Vec<(usize, f64)>> = vec![Vec::new(); rig.stations()];
        for pair in pairs {
            for station in ends(pair) {
                partners[station].push((pair.inliers.len(), pair.median_parallax));
            }
        }
        let widest_of = |partners: &mut Vec<(usize, f64)>| {
            partners.sort_by(|a, b| b.0.cmp(&a.0).then(b.1.total_cmp(&a.1)));
            partners.iter().take(PARTNERS).map(|partner| partner.1).fold(0.0, f64::max)
        };
        let widest: Vec<f64> = partners.iter_mut().map(widest_of).collect();
        let mut is_as_before = vec![false; rig.stations()];
        for pair in pairs {
            let [first, second] = ends(pair);
            let limit = PARALLAX.min(PART * widest[first].max(widest[second]));
            if second == first + 1 && pair.median_parallax < limit {
                is_as_before[second] = true;
            }
        }
        let mut spot = 0;
        let number = |(station, is_as_before): (usize, &bool)| {
            spot += usize::from(station > 0 && !is_as_before);
            spot
        };
        Self { of_station: is_as_before.iter().enumerate().map(number).collect() }
    }

    /// The pairs of pictures of one burst: taken from one spot, and hardly turned against each other. `pairs` have relative poses.
    pub(crate) fn pairs_of_bursts(&self, rig: &Rig, pairs: &[TwoViewGeometry]) -> BTreeSet<(u32, u32)> {
        let is_of_burst = |pair: &&TwoViewGeometry| {
            let [first, second] = [pair.first, pair.second].map(|i| rig.station_of(i as usize));
            let turn = pair.second_from_first.map(|pose| pose.rotation.angle());
            first != second && self.of(first) == self.of(second) && turn.is_some_and(|turn| turn < TURN)
        };
        pairs.iter().filter(is_of_burst).map(|pair| (pair.first, pair.second)).collect()
    }

    /// How many there are.
    pub(crate) fn count(&self) -> usize {
        self.of_station.last().map_or(0, |last| last + 1)
    }

    /// The spot of `station`.
    pub(crate) fn of(&self, station: usize) -> usize {
        self.of_station[station]
    }

    /// The last image that was taken from `spot`, one of these.
    pub(crate) fn last_image(&self, rig: &Rig, spot: usize) -> usize {
        let stations = self.of_station.partition_point(|of| *of <= spot);
        rig.images_of(stations - 1).end - 1
    }

    /// The spots from which `map` has images with a pose, each with the first one of these.
    pub(crate) fn placed(&self, map: &Map) -> Vec<(usize, usize)> {
        let first = |station: usize| (self.of(station), map.rig.images_of(station).start);
        let firsts = (0..map.rig.stations()).map(first);
        let mut placed: Vec<(usize, usize)> =
            firsts.filter(|&(_, image)| map.poses[image].is_some()).collect();
        placed.dedup_by_key(|(spot, _)| *spot);
        placed
    }
}

#[cfg(test)]
mod tests {
    use nalgebra::UnitQuaternion;

    use super::*;
    use crate::sfm::synthetic::Capture;

    #[test]
    fn pictures_of_a_burst_have_one_spot() {
        let capture = Capture::bursts(24, 3000, 0.0, 4);
        let spots = Spots::of_photographs(&capture.rig, &capture.pairs(8));
        assert_eq!(spots.count(), 24);
        assert!((0..72).all(|station| spots.of(station) == station / 3));
        assert_eq!((spots.last_image(&capture.rig, 0), spots.last_image(&capture.rig, 23)), (2, 71));
        let mut map = capture.true_map();
        map.unregister(&[3, 9, 10, 11]);
        let placed = spots.placed(&map);
        assert_eq!(placed[..4], [(0, 0), (1, 4), (2, 6), (4, 12)]);
    }

    #[test]
    fn pairs_of_a_burst_hardly_turn() {
        let capture = Capture::bursts(24, 3000, 0.0, 4);
        let mut pairs = capture.pairs(8);
        let spots = Spots::of_photographs(&capture.rig, &pairs);
        let of_bursts: BTreeSet<(u32, u32)> =
            (0..24).flat_map(|k| [(0, 1), (0, 2), (1, 2)].map(|(a, b)| (3 * k + a, 3 * k + b))).collect();
        assert_eq!(spots.pairs_of_bursts(&capture.rig, &pairs), of_bursts);
        for pose in pairs.iter_mut().filter_map(|pair| pair.second_from_first.as_mut()) {
            pose.rotation = UnitQuaternion::from_euler_angles(0.0, 0.2, 0.0);
        }
        assert!(spots.pairs_of_bursts(&capture.rig, &pairs).is_empty());
        // The sides of a panorama have one station, and nobody took them one after the other.
        let panoramas = Capture::panoramas(8, 1500, 0.0, 3);
        let pairs = panoramas.pairs(30);
        let spots = Spots::of_photographs(&panoramas.rig, &pairs);
        assert!(spots.pairs_of_bursts(&panoramas.rig, &pairs).is_empty());
    }

    #[test]
    fn a_camera_that_moves_on_has_a_spot_for_each_picture() {
        for capture in [Capture::walk(24, 3000, 0.3, 4), Capture::orbit(300, 3000, 0.3, 4)] {
            let spots = Spots::of_photographs(&capture.rig, &capture.pairs(8));
            assert_eq!(spots.count(), capture.rig.stations());
        }
        let panoramas = Capture::panoramas(8, 1500, 0.0, 3);
        assert_eq!(Spots::of_photographs(&panoramas.rig, &panoramas.pairs(30)).count(), 8);
        assert_eq!(Spots::of_stations(&panoramas.rig).count(), 8);
    }
}
