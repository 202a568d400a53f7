//! Which unknown pose an image has: its own, or that of its station, against which its turn is known.

use nalgebra::{UnitQuaternion, Vector3};

use crate::camera::Pose;
use crate::sfm::map::Map;
use crate::sfm::projection::Extrinsics;

/// The registered images, and the stations whose poses are the unknowns: the cameras of the structure.
pub(super) struct Stations {
    /// Registered images, in order.
    pub(super) images: Vec<usize>,
    /// By place in `images`: the camera of the structure.
    camera: Vec<u32>,
    /// By camera: the place in `images` of its first one.
    first: Vec<u32>,
    /// By place in `images`; empty where every image is a station by itself.
    turns: Vec<Turn>,
}

/// The rotation from the axes of a station to those of one of its images.
struct Turn {
    rotation: UnitQuaternion<f64>,
    matrix: [[f64; 3]; 3],
}

impl Stations {
    pub(super) fn new(map: &Map) -> Self {
        let images: Vec<usize> = (0..map.poses.len()).filter(|&i| map.poses[i].is_some()).collect();
        let (mut camera, mut first) = (Vec::with_capacity(images.len()), Vec::new());
        let mut last = None;
        for (place, &image) in images.iter().enumerate() {
            let station = map.rig.station_of(image);
            if last != Some(station) {
                first.push(place as u32);
                last = Some(station);
            }
            camera.push(first.len() as u32 - 1);
        }
        let turn = |&image: &usize| {
            let rotation = *map.rig.turn(image)?;
            let r = rotation.to_rotation_matrix();
            let matrix = std::array::from_fn(|i| std::array::from_fn(|j| r[(i, j)]));
            Some(Turn { rotation, matrix })
        };
        let turns = images.iter().filter_map(turn).collect();
        Self { images, camera, first, turns }
    }

    /// Number of cameras of the structure.
    pub(super) fn count(&self) -> usize {
        self.first.len()
    }

    /// The camera of the image at this place.
    pub(super) fn camera(&self, place: usize) -> usize {
        self.camera[place] as usize
    }

    /// The place of the first image of a camera.
    pub(super) fn first(&self, camera: usize) -> usize {
        self.first[camera] as usize
    }

    /// The rotation of a station, whose first image has this one.
    pub(super) fn rotation(&self, camera: usize, of_first: &UnitQuaternion<f64>) -> UnitQuaternion<f64> {
        self.turns.get(self.first(camera)).map_or(*of_first, |turn| turn.rotation.inverse() * of_first)
    }

    /// The pose of the image at this place, whose station has this rotation and centre.
    pub(super) fn pose(&self, place: usize, rotation: &UnitQuaternion<f64>, centre: &Vector3<f64>) -> Pose {
        let rotation = self.turns.get(place).map_or(*rotation, |turn| turn.rotation * rotation);
        Pose::from_centre(rotation, centre)
    }

    /// The same as the kernels want it. The centre is taken as it is: computed back from a pose it would lose bits.
    pub(super) fn extrinsics(
        &self,
        place: usize,
        rotation: &UnitQuaternion<f64>,
        centre: &Vector3<f64>,
    ) -> Extrinsics {
        Extrinsics { centre: (*centre).into(), ..Extrinsics::from_pose(&self.pose(place, rotation, centre)) }
    }

    /// Derivatives by a rotation of the station, of those by one of the image at this place: it turns by the same, seen
    /// from its own axes.
    #[inline(always)]
    pub(super) fn by_station(&self, place: usize, by_rotation: [[f64; 3]; 2]) -> [[f64; 3]; 2] {
        let Some(Turn { matrix: m, .. }) = self.turns.get(place) else { return by_rotation };
        by_rotation.map(|g| [0, 1, 2].map(|j| g[0] * m[0][j] + g[1] * m[1][j] + g[2] * m[2][j]))
    }

    /// What cameras do, for every image: turns in its own axes, and shifts.
    pub(super) fn by_image(
        &self,
        turns: &[Vector3<f64>],
        shifts: &[Vector3<f64>],
    ) -> (Vec<Vector3<f64>>, Vec<Vector3<f64>>) {
        let of = |place: usize| {
            let (turn, shift) = (turns[self.camera(place)], shifts[self.camera(place)]);
            (self.turns.get(place).map_or(turn, |t| t.rotation * turn), shift)
        };
        (0..self.images.len()).map(of).unzip()
    }
}
