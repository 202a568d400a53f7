//! The ground under the object, as far as it is to be kept: a disc of the plane on which the object stands. A table may end before
//! such a disc does: there is no ground beyond what the scene has of it.

use std::collections::HashMap;
use std::f64::consts::TAU;

use image::GrayImage;
use nalgebra::Vector3;

use super::support_plane::SupportPlane;
use crate::raster;

/// The part (0 to 1) of the object's cells that are nearer to its middle than its radius: a branch that sticks out does not
/// count.
const MOST: f64 = 0.95;
/// What is so near to the plane, in units of the cameras' distance, is ground.
const THICKNESS: f64 = 0.015;
/// Side of the cells of the plane in which ground is looked for, in units of the cameras' distance,
const CELL: f64 = 0.03;
/// and number of Gaussians without which there is none in one: single ones float.
const FEWEST: usize = 2;
/// Number of directions in which it is known how far the ground reaches. A table of any shape without dents is well described.
const DIRECTIONS: usize = 32;

/// A disc in space, cut where the ground ends.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Floor {
    plane: SupportPlane,
    /// In the plane.
    centre: Vector3<f64>,
    /// World units.
    radius: f64,
    /// Directions in the plane, and how far the ground reaches in each, world units from the centre.
    reach: [(Vector3<f64>, f64); DIRECTIONS],
}

impl Floor {
    /// The disc under an object that fills the cells at `places`, `relative` times as wide as the object is, as far as there is
    /// ground among the `centres` of the scene's Gaussians. `distance` is that of the cameras. `None` if there is no object.
    pub(super) fn under(
        plane: SupportPlane,
        places: impl Iterator<Item = Vector3<f64>>,
        relative: f64,
        centres: &[Vector3<f64>],
        distance: f64,
    ) -> Option<Self> {
        let feet: Vec<Vector3<f64>> = places.map(|p| p - plane.height(&p) * plane.normal).collect();
        let centre = feet.iter().sum::<Vector3<f64>>() / feet.len().max(1) as f64;
        let mut off: Vec<f64> = feet.iter().map(|foot| (foot - centre).norm()).collect();
        off.sort_by(f64::total_cmp);
        let radius = relative * off.get((MOST * off.len() as f64) as usize)?;
        // Two directions of the plane that are perpendicular to each other.
        let least = plane.normal.iamin();
        let right = Vector3::ith(least, 1.0).cross(&plane.normal).normalize();
        let ahead = right.cross(&plane.normal);
        let cell = CELL * distance;
        let mut counts: HashMap<(i64, i64), usize> = HashMap::new();
        for point in centres {
            let off = point - centre;
            if plane.height(point).abs() < THICKNESS * distance && off.norm() < radius + cell {
                let at = |direction: &Vector3<f64>| (off.dot(direction) / cell).floor() as i64;
                *counts.entry((at(&right), at(&ahead))).or_default() += 1;
            }
        }
        let place = |(x, y): &(i64, i64)| cell * ((*x as f64 + 0.5) * right + (*y as f64 + 0.5) * ahead);
        let ground: Vec<Vector3<f64>> =
            counts.iter().filter(|(_, count)| **count >= FEWEST).map(|(cell, _)| place(cell)).collect();
        let reach = std::array::from_fn(|k| {
            let angle = TAU * k as f64 / DIRECTIONS as f64;
            let direction = angle.cos() * right + angle.sin() * ahead;
            // A maximum, whatever the order.
            let farthest = ground.iter().map(|place| place.dot(&direction)).fold(f64::MIN, f64::max);
            (direction, if ground.is_empty() { f64::MAX } else { farthest + 0.5 * cell })
        });
        Some(Self { plane, centre, radius, reach })
    }

    /// How far a point of the plane is inside, world units; less than 0 outside.
    fn inside(&self, point: &Vector3<f64>) -> f64 {
        let off = point - self.centre;
        let within = self.radius - off.norm();
        match within > 0.0 {
            true => self.reach.iter().map(|(direction, far)| far - off.dot(direction)).fold(within, f64::min),
            false => within,
        }
    }

    /// Adds what `view` shows of it to its `mask`, which has its size, but for the pixels that `shows_other` says show another
    /// thing.
    pub(super) fn add_to(
        &self,
        mask: &mut GrayImage,
        view: &raster::View,
        shows_other: impl Fn(f64, f64) -> bool,
    ) {
        let (eye, focal) = (view.centre(), view.fx.max(view.fy));
        let height = self.plane.height(&eye);
        for (u, v, pixel) in mask.enumerate_pixels_mut() {
            let (x, y) = (f64::from(u) + 0.5, f64::from(v) + 0.5);
            let ray = view.unproject(x, y, 1.0) - eye;
            let depth = -height / ray.dot(&self.plane.normal);
            // Comparisons that fail for a ray along the plane.
            let is_ahead = depth > 0.0 && depth < f64::MAX;
            if !is_ahead || pixel[0] == 255 || shows_other(x, y) {
                continue;
            }
            // Soft over about a pixel.
            let covered = (0.5 + self.inside(&(eye + depth * ray)) * focal / depth).clamp(0.0, 1.0);
            pixel[0] = pixel[0].max((255.0 * covered).round() as u8);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::camera::{Camera, CameraModel, Pose};

    /// The ground is the plane y = 0; y points down.
    fn ground() -> SupportPlane {
        SupportPlane { normal: -Vector3::y(), point: Vector3::zeros(), deviation: 0.0, is_wall: false }
    }

    /// A column of radius 0.5 around (1, 0), and a branch.
    fn column() -> impl Iterator<Item = Vector3<f64>> {
        let circle = (0..400).map(|i| {
            let (angle, off) = (f64::from(i) * 2.4, 0.5 * (f64::from(i) / 400.0).sqrt());
            Vector3::new(1.0 + off * angle.cos(), -f64::from(i % 7), off * angle.sin())
        });
        circle.chain((0..8).map(|i| Vector3::new(1.0, -2.0, 0.5 + 0.2 * f64::from(i))))
    }

    #[test]
    fn it_is_as_wide_as_the_object_without_its_branches() {
        let floor = Floor::under(ground(), column(), 2.0, &[], 3.0).unwrap();
        assert!((floor.centre - Vector3::new(1.0, 0.0, 0.0)).norm() < 0.03, "{floor:?}");
        assert!(floor.radius > 0.94 && floor.radius < 1.06, "{floor:?}");
        assert_eq!(Floor::under(ground(), std::iter::empty(), 2.0, &[], 3.0), None);
    }

    #[test]
    fn it_ends_where_the_ground_does() {
        // A table that ends 0.6 to the right of the column's middle, a Gaussian beyond, and a floor far below.
        let table = (0..4000)
            .map(|k| Vector3::new(1.6 - 0.05 * f64::from(k % 80), 0.004, -2.0 + 0.08 * f64::from(k / 80)));
        let below =
            (0..4000).map(|k| Vector3::new(0.05 * f64::from(k % 80), 0.8, -2.0 + 0.08 * f64::from(k / 80)));
        let scene: Vec<_> = table.chain(below).chain([Vector3::new(1.9, 0.0, 0.0)]).collect();
        let floor = Floor::under(ground(), column(), 2.0, &scene, 3.0).unwrap();
        let inside = |x: f64, z: f64| floor.inside(&Vector3::new(x, 0.0, z));
        assert!(inside(1.55, 0.0) > 0.0 && inside(1.75, 0.0) < 0.0, "{floor:?}");
        assert!(inside(0.1, 0.0) > 0.0 && inside(1.0, 0.9) > 0.0 && inside(-0.2, 0.0) < 0.0, "{floor:?}");
    }

    #[test]
    fn a_view_shows_a_disc_but_where_something_is_in_front_of_it() {
        let reach = [(Vector3::x(), f64::MAX); DIRECTIONS];
        let floor = Floor { plane: ground(), centre: Vector3::zeros(), radius: 1.0, reach };
        let lens = Camera::from_focal(CameraModel::Pinhole, 60.0, 120, 100);
        let (above, level) = (Vector3::new(0.0, -3.0, 0.0), Vector3::new(0.0, -1.0, -5.0));
        let down = Pose::look_at(&above, &Vector3::zeros(), &Vector3::z()).unwrap();
        let view = raster::View::new(&lens, &down);
        let mut mask = GrayImage::new(120, 100);
        floor.add_to(&mut mask, &view, |x, _| x < 50.0);
        let area = |mask: &GrayImage| mask.as_raw().iter().map(|v| f64::from(*v) / 255.0).sum::<f64>();
        // A radius of 20 pixels around the middle, of which a part is hidden.
        let hidden = 400.0 * (0.5_f64.acos() - 0.5 * 0.75_f64.sqrt());
        assert!((area(&mask) - (400.0 * std::f64::consts::PI - hidden)).abs() < 6.0, "{}", area(&mask));
        // The horizon, and what is above it.
        let ahead = Pose::look_at(&level, &Vector3::new(0.0, -1.0, 0.0), &-Vector3::y()).unwrap();
        let mut mask = GrayImage::new(120, 100);
        floor.add_to(&mut mask, &raster::View::new(&lens, &ahead), |_, _| false);
        assert!(mask.rows().take(50).flatten().all(|p| p[0] == 0) && area(&mask) > 20.0, "{}", area(&mask));
    }
}
