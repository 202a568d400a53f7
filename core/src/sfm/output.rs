//! The finished map as a sparse model: levelled, coloured, with COLMAP's ids.

use nalgebra::{Matrix3, UnitQuaternion, Vector3};

use crate::camera::{Image, Point2D, Point3D, Pose, SparseModel, gravity, levelling};
use crate::video::{Frame, Frames};

use super::map::{Keypoints, Map};
use crate::statistics::median;

/// The median distance from a camera to what it sees, in the units of the model. Scale is unknown, but far from 1 it
/// would run into the near planes and thresholds of programs that expect metres.
const MEDIAN_DISTANCE: f64 = 5.0;

/// Turns and scales the world of `map`, the images of which are `frames`: +y is down, the origin is the mean of the camera centres, and its unit is the
/// metre, of which `metres` make one unit as it is; where they are not known, cameras are 5 units away from what they
/// see (median). Returns by how much it was scaled.
pub(crate) fn normalise(map: &mut Map, frames: &Frames, metres: Option<f64>) -> f64 {
    // Level are the rows of the upright pictures, not those of pictures that are stored on their side; and of panoramas those
    // of the front.
    let turned_back =
        |(pose, frame): (&Option<Pose>, &Frame)| Some((*pose)?.turned_back(frame.quarter_turns));
    let upright: Vec<Pose> = match map.rig.is_panoramic() {
        true => map.rig.placed_poses(&map.poses),
        false => map.poses.iter().zip(&frames.frames).filter_map(turned_back).collect(),
    };
    let rotation = gravity(upright.iter()).map_or_else(Default::default, |down| levelling(&down));
    let mut distances: Vec<f64> = map
        .points
        .iter()
        .flat_map(|p| p.track.iter().map(move |o| (p, o)))
        .filter_map(|(p, o)| Some((map.poses[o.image as usize]?.centre() - p.xyz).norm()))
        .collect();
    let scale = match (metres, median(&mut distances)) {
        (Some(metres), _) => metres,
        (None, Some(distance)) if distance > 0.0 && distance.is_finite() => MEDIAN_DISTANCE / distance,
        _ => 1.0,
    };
    let count = map.registered().max(1) as f64;
    let middle = map.poses.iter().flatten().map(|p| p.centre()).sum::<Vector3<f64>>() / count;
    let translation = -scale * (rotation * middle);
    map.move_world(scale, &rotation, &translation);
    scale
}

/// Turns, moves and scales the world of `map` onto that of a model in which some of its images have the poses `base`: the mean
/// rotation, and the scale and place of their centres. Where it is in metres (`metres` make one unit) it stays so. Returns by
/// how much it was scaled.
pub(crate) fn move_onto(map: &mut Map, base: &[Option<Pose>], metres: Option<f64>) -> f64 {
    let both: Vec<(Pose, Pose)> =
        map.poses.iter().zip(base).filter_map(|(own, base)| Some(((*own)?, (*base)?))).collect();
    let count = both.len().max(1) as f64;
    // The rotations agree but for their noise, so that the nearest rotation to their sum is their mean (Hartley et al., IJCV 2013).
    let turns = both.iter().map(|(own, base)| base.rotation_matrix().transpose() * own.rotation_matrix());
    let rotation = UnitQuaternion::from_matrix(&(turns.sum::<Matrix3<f64>>() / count));
    let mean = |of: fn(&(Pose, Pose)) -> Vector3<f64>| both.iter().map(of).sum::<Vector3<f64>>() / count;
    let (own_mean, base_mean) = (mean(|b| b.0.centre()), mean(|b| b.1.centre()));
    let spread = |of: fn(&(Pose, Pose)) -> Vector3<f64>, mean: Vector3<f64>| {
        both.iter().map(|b| (of(b) - mean).norm_squared()).sum::<f64>().sqrt()
    };
    let (own, wanted) = (spread(|b| b.0.centre(), own_mean), spread(|b| b.1.centre(), base_mean));
    let scale = match metres {
        Some(metres) => metres,
        None if own > 0.0 && wanted > 0.0 => wanted / own,
        None => 1.0,
    };
    let translation = base_mean - scale * (rotation * own_mean);
    map.move_world(scale, &rotation, &translation);
    scale
}

/// The model of `map`. Image ids are frame numbers plus 1; camera 1 made most images. An image keeps the keypoints that belong to points. `colors`
/// are those of all keypoints, by image.
pub(crate) fn sparse_model(
    map: &Map,
    keypoints: &Keypoints,
    colors: &[Vec<[u8; 3]>],
    frames: &Frames,
) -> SparseModel {
    let mut model = SparseModel::default();
    for (i, pose) in map.poses.iter().enumerate() {
        if let Some(pose) = *pose {
            let name = frames.frames[i].name.clone();
            let camera_id = map.others.index(i) as u32 + 1;
            model.cameras.entry(camera_id).or_insert_with(|| map.camera_of(i).clone());
            model.images.insert(i as u32 + 1, Image { name, camera_id, pose, points2d: Vec::new() });
        }
    }
    for (p, point) in map.points.iter().enumerate() {
        let id = p as u64 + 1;
        let mut track = Vec::with_capacity(point.track.len());
        let mut sums = [0u32; 3];
        let mut error = 0.0;
        for o in &point.track {
            let (image, keypoint) = (o.image as usize, o.keypoint as usize);
            let xy = keypoints[image][keypoint];
            // Tracks hold registered images only, and those are in the model.
            let Some(entry) = model.images.get_mut(&(o.image + 1)) else { continue };
            track.push((o.image + 1, entry.points2d.len() as u32));
            entry.points2d.push(Point2D { xy, point3d: Some(id) });
            error += map.reprojection_error(image, &point.xyz, &xy);
            for c in 0..3 {
                sums[c] += u32::from(colors[image][keypoint][c]);
            }
        }
        let count = track.len().max(1) as u32;
        let rgb = sums.map(|s| ((s + count / 2) / count) as u8);
        model.points.insert(id, Point3D { xyz: point.xyz, rgb, error: error / f64::from(count), track });
    }
    model
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sfm::synthetic::Capture;

    fn frames_of(count: usize) -> Frames {
        let frame = |i| Frame::new(format!("{i}.png"), i as u64, 800, 600);
        Frames::of_images("", (0..count).map(frame).collect())
    }

    #[test]
    fn pictures_that_are_stored_on_their_side_do_not_lay_the_world_there() {
        // Of one side of something; every tenth with the camera on end.
        let mut map = Capture::orbit(120, 50, 0.2, 9).true_map_with_points();
        map.poses.truncate(20);
        map.points.clear();
        let mut frames = frames_of(20);
        let turn = UnitQuaternion::from_euler_angles(1.0, 0.4, -2.0);
        for (i, pose) in map.poses.iter_mut().enumerate() {
            let turns = if i % 10 == 4 { 1 } else { 0 };
            frames.frames[i].quarter_turns = turns;
            *pose = pose.map(|p| p.in_moved_world(1.0, &turn, &Vector3::zeros()).turned_back(4 - turns));
        }
        normalise(&mut map, &frames, None);
        let upright = map.poses.iter().zip(&frames.frames);
        for (pose, frame) in upright {
            let pose = pose.unwrap().turned_back(frame.quarter_turns);
            let right = pose.rotation.inverse() * Vector3::x();
            assert!(right.y.abs() < 0.1 && pose.up().y < -0.5, "{right} {}", pose.up());
        }
    }

    #[test]
    fn the_model_is_level_consistent_and_sees_what_it_saw() {
        let capture = Capture::orbit(8, 200, 0.2, 9);
        let mut map = capture.true_map_with_points();
        let turn = UnitQuaternion::from_euler_angles(1.0, 0.4, -2.0);
        for pose in map.poses.iter_mut().flatten() {
            *pose = pose.in_moved_world(0.01, &turn, &Vector3::new(3.0, 4.0, 5.0));
        }
        for point in &mut map.points {
            point.xyz = 0.01 * (turn * point.xyz) + Vector3::new(3.0, 4.0, 5.0);
        }
        let frames = frames_of(8);
        let size = (map.points[0].xyz - map.points[1].xyz).norm();
        let mut metric = map.clone();
        normalise(&mut metric, &frames, Some(3.0));
        assert!(((metric.points[0].xyz - metric.points[1].xyz).norm() / size - 3.0).abs() < 1e-9);
        normalise(&mut map, &frames, None);
        let mean_up: Vector3<f64> =
            map.poses.iter().flatten().map(|p| p.up()).sum::<Vector3<f64>>().normalize();
        assert!(mean_up.y < -0.95, "{mean_up}");
        let colors: Vec<Vec<[u8; 3]>> =
            capture.keypoints.iter().map(|k| vec![[10, 20, 30]; k.len()]).collect();
        let model = sparse_model(&map, &capture.keypoints, &colors, &frames);
        assert_eq!(model.images.len(), 8);
        assert_eq!(model.images[&3].name, "2.png");
        for (id, point) in &model.points {
            assert!(point.error < 2.0 && point.rgb == [10, 20, 30]);
            for &(image, index) in &point.track {
                assert_eq!(model.images[&image].points2d[index as usize].point3d, Some(*id));
            }
        }
        let mut distances: Vec<f64> = model
            .points
            .values()
            .flat_map(|p| p.track.iter().map(|(i, _)| (model.images[i].pose.centre() - p.xyz).norm()))
            .collect();
        assert!((median(&mut distances).unwrap() - MEDIAN_DISTANCE).abs() < 1e-9);
    }
}
