//! Where in a picture that was read line by line each pixel of its undistorted one is seen.
//!
//! A point that the middle line's camera has at `x` is at `exp(t turn) (x - t velocity)` for the line that is read `t` later.
//! How far the velocity shifts it depends on its depth: known at the points of the model, interpolated between them.

use nalgebra::{Vector2, Vector3};

use super::lens::{Undistortion, seen_at};
use crate::camera::{LineMotion, Readout, SparseModel};
use crate::statistics::median;

/// Cells of the grid of depths, across and down.
const CELLS: (usize, usize) = (16, 12);
/// Which line shows a point follows from where it is seen, and that from the line. Each round takes the error times the
/// shift over the height of the picture, below 1/20: three leave less than a hundredth of a pixel of 50.
const ROUNDS: usize = 3;
/// Rounds in which empty cells take the mean of their neighbours: as many as there are across.
const SPREADING: usize = 16;

/// The places of all pixels of the undistorted picture of image `id`, row by row, as [`Undistortion::map`].
pub(super) fn unrolled_map(
    lens: &Undistortion,
    model: &SparseModel,
    id: u32,
    readout: Readout,
    motion: &LineMotion,
) -> Vec<[f32; 2]> {
    let depths = InverseDepths::new(lens, model, id);
    let (width, height) = (lens.pinhole.width, lens.pinhole.height);
    let still = lens.map();
    let mut map = Vec::with_capacity(width as usize * height as usize);
    for j in 0..height {
        for i in 0..width {
            let pixel = Vector2::new(f64::from(i) + 0.5, f64::from(j) + 0.5);
            let plane = lens.pinhole.unproject(&pixel);
            // In units of the depth.
            let velocity = motion.velocity * depths.at(&pixel);
            let known = still.get(map.len()).map(|&[x, y]| Vector2::new(f64::from(x), f64::from(y)));
            let mut source = known.unwrap_or(pixel);
            for _ in 0..ROUNDS {
                let time = readout.seconds * readout.phase(&source, lens.camera());
                source = seen_after(lens, &plane, &velocity, &motion.turn, time).unwrap_or(source);
            }
            map.push([source.x as f32, source.y as f32]);
        }
    }
    map
}

/// Where the point `plane` (z = 1) is seen `time` after the middle line; `None` behind the camera.
fn seen_after(
    lens: &Undistortion,
    plane: &Vector2<f64>,
    velocity: &Vector3<f64>,
    turn: &Vector3<f64>,
    time: f64,
) -> Option<Vector2<f64>> {
    let moved = Vector3::new(plane.x, plane.y, 1.0) - time * velocity;
    // To the second order: a hand turns by less than 0.05 radians in that time, of which the third is 2e-5.
    let turned = turn.cross(&moved);
    let seen = moved + time * turned + (0.5 * time * time) * turn.cross(&turned);
    (seen.z > 0.1).then(|| seen_at(lens.camera(), &(seen.xy() / seen.z)))
}

/// Inverse depths over an undistorted picture.
struct InverseDepths {
    /// Cells across and down for a pixel.
    scale: Vector2<f64>,
    cells: Vec<f64>,
}

impl InverseDepths {
    fn new(lens: &Undistortion, model: &SparseModel, id: u32) -> Self {
        let size = Vector2::new(f64::from(lens.pinhole.width), f64::from(lens.pinhole.height));
        let scale = Vector2::new(CELLS.0 as f64, CELLS.1 as f64).component_div(&size);
        let mut found: Vec<Vec<f64>> = vec![Vec::new(); CELLS.0 * CELLS.1];
        if let Some(image) = model.images.get(&id) {
            for keypoint in &image.points2d {
                let point = keypoint.point3d.and_then(|point| model.points.get(&point));
                let Some(depth) = point.map(|p| image.pose.transform(&p.xyz).z).filter(|&z| z > 0.0) else {
                    continue;
                };
                let place = lens.undistort_pixel(&keypoint.xy).component_mul(&scale);
                if place.x >= 0.0 && place.y >= 0.0 && place.x < CELLS.0 as f64 && place.y < CELLS.1 as f64 {
                    found[place.y as usize * CELLS.0 + place.x as usize].push(1.0 / depth);
                }
            }
        }
        let mut cells: Vec<Option<f64>> = found.iter_mut().map(|values| median(values)).collect();
        for _ in 0..SPREADING {
            let before = cells.clone();
            for (k, cell) in cells.iter_mut().enumerate().filter(|(_, cell)| cell.is_none()) {
                let (x, y) = (k % CELLS.0, k / CELLS.0);
                let (mut sum, mut count) = (0.0, 0);
                for beside in [
                    (x > 0).then(|| k - 1),
                    (x + 1 < CELLS.0).then(|| k + 1),
                    (y > 0).then(|| k - CELLS.0),
                    (y + 1 < CELLS.1).then(|| k + CELLS.0),
                ] {
                    if let Some(value) = beside.and_then(|at| before[at]) {
                        sum += value;
                        count += 1;
                    }
                }
                *cell = (count > 0).then(|| sum / f64::from(count));
            }
        }
        // Without any point there is no depth, as if all were far away.
        Self { scale, cells: cells.into_iter().map(|cell| cell.unwrap_or(0.0)).collect() }
    }

    /// Between the middles of the cells, linearly.
    fn at(&self, pixel: &Vector2<f64>) -> f64 {
        let along = |place: f64, cells: usize| {
            let place = (place - 0.5).clamp(0.0, (cells - 1) as f64);
            let low = (place as usize).min(cells - 2);
            (low, place - low as f64)
        };
        let (x, fx) = along(pixel.x * self.scale.x, CELLS.0);
        let (y, fy) = along(pixel.y * self.scale.y, CELLS.1);
        let row = |y: usize| {
            let (left, right) = (self.cells[y * CELLS.0 + x], self.cells[y * CELLS.0 + x + 1]);
            left + fx * (right - left)
        };
        let (above, below) = (row(y), row(y + 1));
        above + fy * (below - above)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::camera::{Camera, CameraModel, Image, Point2D, Point3D, Pose, ReadoutDirection};
    use nalgebra::UnitQuaternion;

    #[test]
    fn a_pixel_is_looked_for_where_its_line_saw_the_point() {
        let mut camera = Camera::from_focal(CameraModel::SimpleRadial, 500.0, 640, 480);
        camera.params[3] = -0.05;
        let motion =
            LineMotion { turn: Vector3::new(0.3, -0.8, 0.5), velocity: Vector3::new(0.6, -0.2, 0.3) };
        let readout = Readout { seconds: 0.02, direction: ReadoutDirection::Down };
        // A wall at an angle: its depth is 2 / (1 + 0.3 x) on the plane z = 1.
        let depth = |x: f64| 2.0 / (1.0 + 0.3 * x);
        let lens = Undistortion::new(&camera).unwrap();
        let mut model = SparseModel::default();
        let mut image =
            Image { name: "1.jpg".into(), camera_id: 1, pose: Pose::identity(), points2d: Vec::new() };
        for k in 0..4000u64 {
            let plane = Vector2::new((k % 80) as f64 / 60.0 - 0.66, (k / 80) as f64 / 50.0 - 0.5);
            let xyz = Vector3::new(plane.x, plane.y, 1.0) * depth(plane.x);
            let xy = seen_at(&camera, &plane);
            image.points2d.push(Point2D { xy, point3d: Some(k + 1) });
            model.points.insert(k + 1, Point3D { xyz, rgb: [0; 3], error: 0.0, track: Vec::new() });
        }
        model.images.insert(1, image);
        let map = unrolled_map(&lens, &model, 1, readout, &motion);
        let (width, height) = (lens.pinhole.width as usize, lens.pinhole.height as usize);
        assert_eq!(map.len(), width * height);
        let mut largest: f64 = 0.0;
        for (k, &[x, y]) in map.iter().enumerate().step_by(97) {
            let pixel = Vector2::new((k % width) as f64 + 0.5, (k / width) as f64 + 0.5);
            let plane = lens.pinhole.unproject(&pixel);
            let point = Vector3::new(plane.x, plane.y, 1.0) * depth(plane.x);
            // The line that found it there, moved as exactly as can be.
            let time = readout.seconds * readout.phase(&Vector2::new(f64::from(x), f64::from(y)), &camera);
            let turn = UnitQuaternion::from_scaled_axis(time * motion.turn);
            let seen = turn * (point - time * motion.velocity);
            let seen = camera.project(&seen).unwrap();
            largest = largest.max((seen - Vector2::new(f64::from(x), f64::from(y))).norm());
        }
        assert!(largest < 0.05, "{largest}");
        // Who does not move is undistorted as ever.
        let still = LineMotion { turn: Vector3::zeros(), velocity: Vector3::zeros() };
        let map = unrolled_map(&lens, &model, 1, readout, &still);
        let off = map.iter().zip(lens.map()).map(|(a, b)| (a[0] - b[0]).abs().max((a[1] - b[1]).abs()));
        assert!(off.fold(0.0, f32::max) < 1e-3);
    }
}
