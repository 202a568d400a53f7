//! A long path, mapped section by section.
//!
//! How large what lies behind a door is hangs on the few points that are seen from both sides of it. Where pictures follow each
//! other by the thousand, the lengths of their steps, each told from the ones before, wander by some percent from door to door, and an
//! adjustment of them all takes that back only slowly, if at all: what it would need to see was left out as wrong. Of a few
//! hundred pictures an adjustment is right after some steps. So the path is cut into sections that overlap, each is mapped by
//! itself, and one is put onto the next by pictures which both have, where they agree best about them: in the midst of a room
//! rather than at its door. From there all pictures are adjusted together.

use std::ops::Range;

use nalgebra::{Quaternion, UnitQuaternion, Vector3};
use rayon::prelude::*;

use crate::camera::{Camera, Pose};
use crate::control::Control;
use crate::error::Result;

use super::global_mapper::map_roughly;
use super::map::Map;
use super::mapper_input::MapperInput;
use super::mapper_options::{GlobalOptions, MapperOptions, SectionOptions};
use super::other_cameras::OtherCameras;
use super::two_view::TwoViewGeometry;
use crate::statistics::median;

/// A part of the path by itself.
struct Section {
    stations: Range<usize>,
    /// Of these stations alone.
    map: Map,
}

/// The poses of all images, whose stations are in the order of the path, from maps of its sections; without points. `None` where the
/// path is short, where it is more than a chain, and where sections do not hang together.
///
/// # Errors
/// [`crate::ErrorKind::Cancelled`].
pub(crate) fn map_in_sections(
    input: &MapperInput<'_>,
    options: &MapperOptions,
    seed: u64,
    control: &Control,
) -> Result<Option<Map>> {
    let wanted = &options.sections;
    let stations = input.rig.stations();
    if stations < wanted.fewest || !input.others.cameras.is_empty() || has_loops(input, wanted) {
        return Ok(None);
    }
    let sections = sections(stations, wanted)
        .into_par_iter()
        .map(|stations| Ok(Section { map: map_section(input, &stations, options, seed, control)?, stations }))
        .collect::<Result<Vec<_>>>()?;
    Ok(put_together(&sections, input, wanted))
}

/// Whether more than a few pairs lead from one section past the next.
fn has_loops(input: &MapperInput<'_>, options: &SectionOptions) -> bool {
    let station = |image: u32| input.rig.station_of(image as usize);
    let loops = input.pairs.iter().filter(|p| station(p.first).abs_diff(station(p.second)) > options.length);
    loops.count() as f64 > options.most_loops * input.pairs.len() as f64
}

/// Sections of about the same length, of which neighbours share stations.
fn sections(stations: usize, options: &SectionOptions) -> Vec<Range<usize>> {
    let SectionOptions { length, overlap, .. } = *options;
    let count = (stations - overlap).div_ceil(length - overlap).max(1);
    let start = |k: usize| k * (stations - overlap) / count;
    (0..count).map(|k| start(k)..start(k + 1) + overlap).collect()
}

/// The map of the images of these stations, as if there were no others.
fn map_section(
    input: &MapperInput<'_>,
    stations: &Range<usize>,
    options: &MapperOptions,
    seed: u64,
    control: &Control,
) -> Result<Map> {
    let images = input.rig.images_of_stations(stations);
    let is_inside = |image: u32| images.contains(&(image as usize));
    let own = |image: u32| image - images.start as u32;
    let pairs: Vec<TwoViewGeometry> = input
        .pairs
        .iter()
        .filter(|p| is_inside(p.first) && is_inside(p.second))
        .map(|p| TwoViewGeometry { first: own(p.first), second: own(p.second), ..p.clone() })
        .collect();
    let of_section = MapperInput {
        keypoints: &input.keypoints[images.clone()],
        rig: &input.rig.of_stations(stations.clone()),
        matches: &[],
        pairs: &pairs,
        camera: input.camera.clone(),
        others: OtherCameras::default(),
        rotations: &input.rotations[images],
    };
    let global = GlobalOptions { adjustment_tracks: options.sections.tracks, ..options.global.clone() };
    let options = MapperOptions { global, ..options.clone() };
    map_roughly(&of_section, &options, seed, control)?.narrowed(&of_section, &options, control)
}

/// Every section in the world of the first one. From the middle of a joint on the poses are those of the next section.
fn put_together(sections: &[Section], input: &MapperInput<'_>, options: &SectionOptions) -> Option<Map> {
    let mut map = input.empty_map();
    let cameras: Vec<&Camera> = sections.iter().map(|s| &s.map.camera).collect();
    map.camera = middle_camera(&cameras, &input.camera);
    let mut from = 0;
    for (k, section) in sections.iter().enumerate() {
        let joint = match k.checked_sub(1).map(|before| &sections[before]) {
            None => Joint { station: 0, motion: Similarity::none(), disagreement: 0.0 },
            Some(before) => {
                let shared = section.stations.start..before.stations.end;
                best_joint(&shared, &map, section, options)?
            }
        };
        log::debug!("stations {:?} begin at {} ({:.5})", section.stations, joint.station, joint.disagreement);
        from = joint.station.max(from);
        let images = input.rig.images_of_stations(&(from..section.stations.end));
        let offset = input.rig.images_of(section.stations.start).start;
        for image in images {
            let pose = section.map.poses[image - offset];
            map.poses[image] = pose.map(|pose| joint.motion.of(&pose));
        }
    }
    Some(map)
}

/// Where a section is put onto the ones before it.
struct Joint {
    station: usize,
    /// From the world of the section to that of the ones before.
    motion: Similarity,
    /// How far centres are from each other then (root mean square), over how far they are from their middle.
    disagreement: f64,
}

/// The joint in the middle half of the `shared` stations at which `section` agrees best with `map`, the ones before it. At the ends
/// poses are held from one side only.
fn best_joint(
    shared: &Range<usize>,
    map: &Map,
    section: &Section,
    options: &SectionOptions,
) -> Option<Joint> {
    let reach = options.joint / 2;
    let rig = &map.rig;
    let offset = rig.images_of(section.stations.start).start;
    let poses = |station: usize| {
        let image = rig.images_of(station).start;
        Some((section.map.poses[image - offset]?, map.poses[image]?))
    };
    let joint_at = |station: usize| {
        let both: Vec<(Pose, Pose)> = (station - reach..=station + reach).filter_map(poses).collect();
        let (motion, disagreement) = Similarity::between(&both)?;
        let holds = 2 * both.len() > options.joint && disagreement < options.most_disagreement;
        holds.then_some(Joint { station, motion, disagreement })
    };
    let margin = (shared.len() / 4).max(reach);
    (shared.start + margin..shared.end.saturating_sub(margin))
        .filter_map(joint_at)
        .min_by(|a, b| a.disagreement.total_cmp(&b.disagreement))
}

/// `x' = scale * rotation * x + translation`
struct Similarity {
    scale: f64,
    rotation: UnitQuaternion<f64>,
    translation: Vector3<f64>,
}

impl Similarity {
    fn none() -> Self {
        Self { scale: 1.0, rotation: UnitQuaternion::identity(), translation: Vector3::zeros() }
    }

    fn of(&self, pose: &Pose) -> Pose {
        pose.in_moved_world(self.scale, &self.rotation, &self.translation)
    }

    /// The one that takes the first poses of `both` nearest to the second ones, and the distances that it leaves over the
    /// second ones' spread. The rotation is the mean one of the cameras, the scale that of least squares.
    fn between(both: &[(Pose, Pose)]) -> Option<(Self, f64)> {
        let count = both.len() as f64;
        let mut sum = nalgebra::Vector4::zeros();
        for (from, to) in both {
            let turn = (to.rotation.inverse() * from.rotation).coords;
            sum += if turn.dot(&sum) < 0.0 { -turn } else { turn };
        }
        let rotation = UnitQuaternion::try_new(Quaternion::from(sum), 1e-9)?;
        let centres: Vec<(Vector3<f64>, Vector3<f64>)> =
            both.iter().map(|(from, to)| (rotation * from.centre(), to.centre())).collect();
        let middle = centres.iter().fold((Vector3::zeros(), Vector3::zeros()), |m, c| (m.0 + c.0, m.1 + c.1));
        let middle = (middle.0 / count, middle.1 / count);
        let arms = || centres.iter().map(|c| (c.0 - middle.0, c.1 - middle.1));
        let (along, own, other) = arms().fold((0.0, 0.0, 0.0), |(along, own, other), (a, b)| {
            (along + a.dot(&b), own + a.norm_squared(), other + b.norm_squared())
        });
        let scale = along / own;
        if !(scale.is_finite() && scale > 0.0 && other > 0.0) {
            return None;
        }
        let left: f64 = arms().map(|(a, b)| (b - scale * a).norm_squared()).sum();
        let motion = Self { scale, rotation, translation: middle.1 - scale * middle.0 };
        Some((motion, (left / other).sqrt()))
    }
}

/// The camera whose parameters are the medians of those of `cameras`, which are of one kind; `otherwise` if there are none.
fn middle_camera(cameras: &[&Camera], otherwise: &Camera) -> Camera {
    let mut camera = otherwise.clone();
    for (k, param) in camera.params.iter_mut().enumerate() {
        let mut values: Vec<f64> = cameras.iter().filter_map(|c| c.params.get(k).copied()).collect();
        *param = median(&mut values).unwrap_or(*param);
    }
    camera
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sfm::front_end::absolute_rotations;
    use crate::sfm::global_mapper::map_globally;
    use crate::sfm::synthetic::Capture;

    fn options() -> MapperOptions {
        let sections = SectionOptions { fewest: 60, length: 30, overlap: 14, joint: 7, ..Default::default() };
        MapperOptions { sections, ..Default::default() }
    }

    /// The map in sections of what these pairs of a capture tell.
    fn mapped(capture: &Capture, mut pairs: Vec<TwoViewGeometry>, options: &MapperOptions) -> Option<Map> {
        let control = Control::new();
        let rotations = absolute_rotations(&capture.rig, &mut pairs, &control).unwrap();
        let input = capture.input((&pairs, &[]), capture.camera.clone(), &rotations);
        map_in_sections(&input, options, 0, &control).unwrap()
    }

    #[test]
    fn neighbours_share_stations_and_all_are_in_a_section() {
        let options = SectionOptions { length: 30, overlap: 10, ..Default::default() };
        for stations in [30, 31, 50, 97, 400] {
            let sections = sections(stations, &options);
            assert_eq!((sections[0].start, sections.last().unwrap().end), (0, stations));
            assert!(sections.iter().all(|s| s.len() <= 30), "{sections:?}");
            assert!(sections.windows(2).all(|w| w[0].end - w[1].start == 10), "{sections:?}");
        }
    }

    #[test]
    fn sections_of_a_long_walk_are_put_together() {
        let capture = Capture::walk(80, 6000, 0.3, 4);
        let map = mapped(&capture, capture.pairs(5), &options()).unwrap();
        assert_eq!(map.registered(), 80);
        // Noise bends a walk as straight as this; no more so than where all of it is mapped at once.
        let control = Control::new();
        let mut pairs = capture.pairs(5);
        let rotations = absolute_rotations(&capture.rig, &mut pairs, &control).unwrap();
        let input = capture.input((&pairs, &[]), capture.camera.clone(), &rotations);
        let at_once = map_globally(&input, &options(), 0, &control).unwrap();
        let (found, plain) = (capture.errors(&map), capture.errors(&at_once));
        assert!(found.0 < plain.0.max(0.01) && found.1 < plain.1.max(0.5), "{found:?} {plain:?}");
    }

    #[test]
    fn sections_of_panoramas_are_put_together() {
        let capture = Capture::panoramas(16, 600, 0.2, 3);
        let sections = SectionOptions { fewest: 10, length: 9, overlap: 5, joint: 3, ..Default::default() };
        let options = MapperOptions { sections, refine_focal: false, ..Default::default() };
        let map = mapped(&capture, capture.pairs(12), &options).unwrap();
        assert_eq!(map.registered(), 6 * 16);
        let (centres, rotations) = capture.errors(&map);
        assert!(centres < 0.01 && rotations < 0.5, "{centres} {rotations}");
    }

    #[test]
    fn short_paths_and_those_that_close_loops_are_left() {
        let capture = Capture::walk(50, 3000, 0.3, 4);
        assert!(mapped(&capture, capture.pairs(5), &options()).is_none());
        let capture = Capture::circuit(70, 60, 0.3, 3);
        assert!(mapped(&capture, capture.pairs_around(4), &options()).is_none());
        assert!(mapped(&capture, capture.pairs(4), &options()).is_some());
    }

    #[test]
    fn sections_that_share_no_poses_or_contradict_each_other_are_not_put_together() {
        let capture = Capture::walk(80, 6000, 0.3, 4);
        let (pairs, options) = (capture.pairs(5), options());
        let input = capture.input((&pairs, &[]), capture.camera.clone(), &[]);
        let truth = capture.true_map();
        let of = |stations: Range<usize>| {
            let rig = capture.rig.of_stations(stations.clone());
            let map = Map { rig, poses: truth.poses[stations.clone()].to_vec(), ..truth.clone() };
            Section { stations, map }
        };
        let mut parts = [of(0..47), of(33..80)];
        let map = put_together(&parts, &input, &options.sections).unwrap();
        assert!(capture.errors(&map).0 < 1e-9);
        // Steps of other lengths than the ones before have.
        let whole = parts[0].map.poses.clone();
        for (station, pose) in (0..).zip(parts[0].map.poses.iter_mut().flatten()) {
            let aside = Vector3::new(0.0, 0.0, 0.4 * f64::from(station * 7 % 5));
            *pose = Pose::from_centre(pose.rotation, &(pose.centre() + aside));
        }
        assert!(put_together(&parts, &input, &options.sections).is_none());
        parts[0].map.poses = whole;
        (33..47).for_each(|station| parts[0].map.poses[station] = None);
        assert!(put_together(&parts, &input, &options.sections).is_none());
    }

    #[test]
    fn the_similarity_between_poses_is_the_one_that_moved_them() {
        let capture = Capture::walk(12, 100, 0.0, 4);
        let rotation = UnitQuaternion::from_euler_angles(0.4, -1.0, 2.0);
        let moved = Similarity { scale: 2.5, rotation, translation: Vector3::new(1.0, -2.0, 3.0) };
        let both: Vec<(Pose, Pose)> = capture.poses.iter().map(|pose| (*pose, moved.of(pose))).collect();
        let (found, left) = Similarity::between(&both).unwrap();
        assert!((found.scale - 2.5).abs() < 1e-9 && found.rotation.angle_to(&rotation) < 1e-9);
        assert!((found.translation - moved.translation).norm() < 1e-9 && left < 1e-9);
        // Cameras in one spot say nothing of a scale.
        assert!(Similarity::between(&[both[0], both[0]]).is_none());
    }
}
