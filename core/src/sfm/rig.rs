//! Which images were taken from one place at one time, and how they are turned against each other.
//!
//! The sides of a panorama have one centre, and their turns are known exactly. Together they are a station: what is
//! sought is its pose, and each of its images tells of it (COLMAP calls such a set a frame of a rig).
//! An ordinary picture is a station by itself.

use std::sync::Arc;

use nalgebra::{UnitQuaternion, Vector3};

use crate::camera::Pose;
use crate::camera::panorama::Side;
use crate::video::Frames;

/// The stations of a capture.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Rig {
    /// By image.
    station: Vec<u32>,
    /// By station: the first of its images, which follow each other.
    first: Vec<u32>,
    /// By image: the rotation from the axes of its station; empty where every image is a station by itself.
    turns: Vec<UnitQuaternion<f64>>,
}

impl Rig {
    /// `images` pictures, each taken by itself.
    pub(crate) fn of_single_images(images: usize) -> Arc<Self> {
        let each: Vec<u32> = (0..images as u32).collect();
        Arc::new(Self { station: each.clone(), first: each, turns: Vec::new() })
    }

    /// The stations of `frames`: neighbours in the list that are sides of one panorama.
    pub(crate) fn of_frames(frames: &Frames) -> Arc<Self> {
        if frames.frames.iter().all(|f| f.side.is_none()) {
            return Self::of_single_images(frames.frames.len());
        }
        Self::of_sides(frames.frames.iter().map(|f| (f.index, f.side)))
    }

    /// The stations of pictures with these numbers, of which neighbours with one number are sides of one panorama.
    pub(crate) fn of_sides(pictures: impl Iterator<Item = (u64, Option<Side>)>) -> Arc<Self> {
        let mut rig = Self { station: Vec::new(), first: Vec::new(), turns: Vec::new() };
        let mut before = None;
        for (i, (number, side)) in pictures.enumerate() {
            let panorama = side.map(|_| number);
            if panorama.is_none() || panorama != before {
                rig.first.push(i as u32);
            }
            rig.station.push(rig.first.len() as u32 - 1);
            rig.turns.push(side.map_or_else(UnitQuaternion::identity, Side::side_from_panorama));
            before = panorama;
        }
        Arc::new(rig)
    }

    /// These stations by themselves; the first of their images is image 0 there.
    pub(crate) fn of_stations(&self, stations: std::ops::Range<usize>) -> Arc<Self> {
        let images = self.images_of_stations(&stations);
        let station = self.station[images.clone()].iter().map(|s| s - stations.start as u32).collect();
        let first = self.first[stations].iter().map(|i| i - images.start as u32).collect();
        let turns = if self.turns.is_empty() { Vec::new() } else { self.turns[images].to_vec() };
        Arc::new(Self { station, first, turns })
    }

    /// The images of these stations, of which there is one at least.
    pub(crate) fn images_of_stations(&self, stations: &std::ops::Range<usize>) -> std::ops::Range<usize> {
        self.images_of(stations.start).start..self.images_of(stations.end - 1).end
    }

    /// Whether there are stations of several images.
    pub(crate) fn is_panoramic(&self) -> bool {
        !self.turns.is_empty()
    }

    /// Number of images.
    pub(crate) fn images(&self) -> usize {
        self.station.len()
    }

    /// Number of stations.
    pub(crate) fn stations(&self) -> usize {
        self.first.len()
    }

    /// The station of `image`.
    pub(crate) fn station_of(&self, image: usize) -> usize {
        self.station[image] as usize
    }

    /// The images of `station`.
    pub(crate) fn images_of(&self, station: usize) -> std::ops::Range<usize> {
        let end = self.first.get(station + 1).map_or(self.station.len(), |&next| next as usize);
        self.first[station] as usize..end
    }

    /// The rotation from the axes of its station to those of `image`; `None` where they are the same.
    pub(crate) fn turn(&self, image: usize) -> Option<&UnitQuaternion<f64>> {
        self.turns.get(image)
    }

    /// The rotation of `image` (world to camera), whose station has this one.
    pub(crate) fn rotation_of_image(
        &self,
        image: usize,
        station: &UnitQuaternion<f64>,
    ) -> UnitQuaternion<f64> {
        self.turn(image).map_or(*station, |turn| turn * station)
    }

    /// The rotation of the station of `image`, which has this one.
    pub(crate) fn rotation_of_station(
        &self,
        image: usize,
        rotation: &UnitQuaternion<f64>,
    ) -> UnitQuaternion<f64> {
        self.turn(image).map_or(*rotation, |turn| turn.inverse() * rotation)
    }

    /// The rotation from the station of `first` to that of `second`, images of which the second is turned so against the
    /// first.
    pub(crate) fn between_stations(
        &self,
        first: usize,
        second: usize,
        second_from_first: &UnitQuaternion<f64>,
    ) -> UnitQuaternion<f64> {
        match (self.turn(first), self.turn(second)) {
            (Some(a), Some(b)) => b.inverse() * second_from_first * a,
            _ => *second_from_first,
        }
    }

    /// The images of the station of `image`, which has this pose, with theirs.
    pub(crate) fn poses_of_station(&self, image: usize, pose: &Pose) -> Vec<(usize, Pose)> {
        if !self.is_panoramic() {
            return vec![(image, *pose)];
        }
        let (station, centre) = (self.rotation_of_station(image, &pose.rotation), pose.centre());
        let of = |i: usize| match i {
            i if i == image => (i, *pose),
            i => (i, Pose::from_centre(self.rotation_of_image(i, &station), &centre)),
        };
        self.images_of(self.station_of(image)).map(of).collect()
    }

    /// What is known of every station, for each of its images.
    pub(crate) fn by_image(&self, of_stations: &[Option<Vector3<f64>>]) -> Vec<Option<Vector3<f64>>> {
        self.station.iter().map(|&s| of_stations[s as usize]).collect()
    }

    /// The centres of the stations that `poses` (by image) has placed, in their order.
    pub(crate) fn placed_centres(&self, poses: &[Option<Pose>]) -> Vec<Vector3<f64>> {
        self.first.iter().filter_map(|&first| poses[first as usize].map(|pose| pose.centre())).collect()
    }

    /// The poses of these stations.
    pub(crate) fn placed_poses(&self, poses: &[Option<Pose>]) -> Vec<Pose> {
        let of_station = |&first: &u32| {
            let pose = poses[first as usize]?;
            let rotation = self.rotation_of_station(first as usize, &pose.rotation);
            Some(Pose::from_centre(rotation, &pose.centre()))
        };
        self.first.iter().filter_map(of_station).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::Control;
    use crate::sfm::bundle_adjustment::{
        ASSUMED_NOISE, BundleOptions, PoseUnknowns, RefineIntrinsics, adjust, pose_draws,
    };
    use crate::sfm::completion::complete;
    use crate::sfm::front_end::absolute_rotations;
    use crate::sfm::global_mapper::map_globally;
    use crate::sfm::incremental_mapper::map_incrementally;
    use crate::sfm::levenberg_marquardt::Stopping;
    use crate::sfm::map::Map;
    use crate::sfm::mapper_options::MapperOptions;
    use crate::sfm::projection::Loss;
    use crate::sfm::synthetic::Capture;

    /// Whether all images of every station have one centre and the turns of the rig, or none a pose.
    fn holds_together(map: &Map) -> bool {
        (0..map.rig.stations()).all(|s| {
            let images = map.rig.images_of(s);
            let Some(first) = map.poses[images.start] else {
                return images.clone().all(|i| map.poses[i].is_none());
            };
            map.rig.poses_of_station(images.start, &first).iter().all(|(i, told)| {
                map.poses[*i].is_some_and(|own| {
                    (own.centre() - told.centre()).norm() < 1e-9
                        && own.rotation.angle_to(&told.rotation) < 1e-9
                })
            })
        })
    }

    fn options() -> BundleOptions {
        BundleOptions {
            loss: Loss::Cauchy(1.0),
            noise: ASSUMED_NOISE,
            rest: 0.0,
            stopping: Stopping { max_iterations: 30, tolerance: 1e-8 },
            poses: PoseUnknowns::All,
            intrinsics: RefineIntrinsics::default(),
            other_centres: Vec::new(),
        }
    }

    #[test]
    fn neighbours_of_one_number_are_a_station() {
        let sides = |n: u64| [(n, Some(Side::Front)), (n, Some(Side::Left))];
        let pictures = sides(4).into_iter().chain([(4, None), (5, None)]).chain(sides(9));
        let rig = Rig::of_sides(pictures);
        assert!(rig.is_panoramic());
        assert_eq!((rig.stations(), rig.images()), (4, 6));
        assert_eq!((0..4).map(|s| rig.images_of(s)).collect::<Vec<_>>(), [0..2, 2..3, 3..4, 4..6]);
        assert_eq!(rig.station_of(5), 3);
        let single = Rig::of_single_images(3);
        assert!(!single.is_panoramic() && single.stations() == 3 && single.images_of(2) == (2..3));
    }

    #[test]
    fn exact_keypoints_give_the_exact_stations() {
        let capture = Capture::panoramas(8, 1500, 0.0, 3);
        let mut map = capture.true_map_with_points();
        for s in 0..8 {
            let pose = map.poses[6 * s].unwrap();
            let off = 0.05 * Vector3::new((s as f64).sin(), (2.0 * s as f64).cos(), 0.3);
            let turned = UnitQuaternion::from_scaled_axis(0.4 * off) * pose.rotation;
            map.register(6 * s, &Pose::from_centre(turned, &(pose.centre() + off)));
        }
        assert!(capture.errors(&map).1 > 0.5);
        let summary = adjust(&mut map, &capture.keypoints, &options(), &Control::new()).unwrap();
        let (centres, rotations) = capture.errors(&map);
        assert!(centres < 1e-5 && rotations < 1e-4, "{centres} {rotations} {summary:?}");
        assert!(holds_together(&map));
    }

    #[test]
    fn stations_are_known_better_than_their_images_alone() {
        // The same keypoints, once with the rig and once with every side by itself.
        let errors = |rig: Arc<Rig>, seed: u64| {
            let mut capture = Capture::panoramas(8, 1500, 0.5, seed);
            capture.rig = rig;
            let mut map = capture.true_map_with_points();
            adjust(&mut map, &capture.keypoints, &options(), &Control::new()).unwrap();
            capture.errors(&map)
        };
        for seed in 0..3 {
            let (together, _) = errors(Capture::panoramas(8, 10, 0.0, 0).rig, seed);
            let (apart, _) = errors(Rig::of_single_images(48), seed);
            assert!(together < 0.7 * apart, "{together} {apart}");
        }
    }

    #[test]
    fn the_spread_of_stations_is_told_for_every_image() {
        let capture = Capture::panoramas(6, 1200, 0.4, 2);
        let mut map = capture.true_map_with_points();
        adjust(&mut map, &capture.keypoints, &options(), &Control::new()).unwrap();
        let draws = pose_draws(&map, &capture.keypoints, &options()).unwrap();
        let draw = &draws[0][0];
        assert_eq!((draw.turns.len(), draw.shifts.len()), (36, 36));
        for i in 0..36 {
            let own = |i: usize| map.poses[i].unwrap().rotation.inverse() * draw.turns[i];
            let first = 6 * (i / 6);
            assert!((own(i) - own(first)).norm() < 1e-9 && draw.shifts[i] == draw.shifts[first]);
        }
    }

    #[test]
    fn both_mappers_find_the_stations() {
        let capture = Capture::panoramas(10, 4000, 0.4, 5);
        let (mut pairs, matches) = capture.pairs_and_matches(30);
        pairs.retain(|p| {
            capture.rig.station_of(p.first as usize) != capture.rig.station_of(p.second as usize)
        });
        let options = MapperOptions { refine_focal: false, ..MapperOptions::default() };
        let control = Control::new();
        let rotations = absolute_rotations(&capture.rig, &mut pairs, &control).unwrap();
        let input = capture.input((&pairs, &matches), capture.camera.clone(), &rotations);
        let global = map_globally(&input, &options, 1, &control).unwrap();
        let incremental = map_incrementally(&input, &options, &control).unwrap();
        for mut map in [global, incremental] {
            // One station is lost, and found again.
            map.unregister(&[20]);
            assert_eq!(map.registered(), 54);
            complete(&mut map, &input, &options, &control).unwrap();
            assert_eq!(map.registered(), 60);
            let (centres, rotations) = capture.errors(&map);
            assert!(centres < 0.003 && rotations < 0.1, "{centres} {rotations}");
            assert!(holds_together(&map) && map.camera == capture.camera);
        }
    }
}
