//! The ground under the object, as far as it is to be kept: a disc of the plane on which the object stands. A table ends before
//! such a disc may, and other things stand on it: where the scene has another surface, there is no ground.

use image::GrayImage;
use nalgebra::Vector3;

use super::evidence::Odds;
use super::guided_filter::box_mean;
use super::support_plane::SupportPlane;
use crate::raster;

/// The part (0 to 1) of the object's cells that are nearer to its middle than its radius: a branch that sticks out does not
/// count.
const MOST: f64 = 0.95;

/// What is so near to the plane, in units of the cameras' distance, is ground: a sheet of paper, the folds of a cloth.
const THICKNESS: f64 = 0.02;
/// Pixels to each side of one without ground that must be without it, too: along the object's outline its surface and the
/// ground's are mixed.
const SURE: usize = 2;

/// A disc in space.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Floor {
    plane: SupportPlane,
    /// In the plane.
    centre: Vector3<f64>,
    /// World units.
    radius: f64,
}

impl Floor {
    /// The disc under an object that fills the cells at `places`, `relative` times as wide as the object is. `None` if there is
    /// no object.
    pub(super) fn under(
        plane: SupportPlane,
        places: impl Iterator<Item = Vector3<f64>>,
        relative: f64,
    ) -> Option<Self> {
        let feet: Vec<Vector3<f64>> = places.map(|p| p - plane.height(&p) * plane.normal).collect();
        let centre = feet.iter().sum::<Vector3<f64>>() / feet.len().max(1) as f64;
        let mut off: Vec<f64> = feet.iter().map(|foot| (foot - centre).norm()).collect();
        off.sort_by(f64::total_cmp);
        let radius = off.get((MOST * off.len() as f64) as usize)?;
        Some(Self { plane, centre, radius: relative * radius })
    }

    /// By pixel of `view`: whether it shows something else than ground, by the `surfaces` that the scene has there. `odds` are
    /// those of the object; `distance` is that of the cameras.
    pub(super) fn is_elsewhere(
        &self,
        view: &raster::View,
        surfaces: &[Option<Vector3<f64>>],
        odds: &[Odds],
        distance: f64,
    ) -> Vec<bool> {
        let thickness = THICKNESS * distance;
        let off = |(surface, odds): (&Option<Vector3<f64>>, &Odds)| {
            let is_off = surface.is_some_and(|place| self.plane.height(&place).abs() > thickness);
            f32::from(u8::from(is_off && odds.log_odds() <= 0.0))
        };
        let mut part: Vec<f32> = surfaces.iter().zip(odds).map(off).collect();
        let (width, height) = (view.width as usize, view.height as usize);
        box_mean(&mut part, width, height, SURE);
        // Rounding of the running sums makes less.
        part.iter_mut().for_each(|part| *part = f32::from(u8::from(*part > 0.999)));
        box_mean(&mut part, width, height, SURE);
        part.iter().map(|part| *part > 0.001).collect()
    }

    /// Adds what `view` shows of the disc to its `mask`, which has its size, but for the pixels that `shows_other` says show
    /// something else.
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
            let inside = self.radius - (eye + depth * ray - self.centre).norm();
            // Soft over about a pixel.
            let covered = (0.5 + inside * focal / depth).clamp(0.0, 1.0);
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
        SupportPlane { normal: -Vector3::y(), point: Vector3::zeros(), deviation: 0.0 }
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
        let floor = Floor::under(ground(), column(), 2.0).unwrap();
        assert!((floor.centre - Vector3::new(1.0, 0.0, 0.0)).norm() < 0.03, "{floor:?}");
        assert!(floor.radius > 0.94 && floor.radius < 1.06, "{floor:?}");
        assert_eq!(Floor::under(ground(), std::iter::empty(), 2.0), None);
    }

    #[test]
    fn there_is_no_ground_where_the_scene_has_another_surface() {
        let floor = Floor { plane: ground(), centre: Vector3::zeros(), radius: 1.0 };
        let lens = Camera::from_focal(CameraModel::Pinhole, 60.0, 40, 30);
        let view = raster::View::new(&lens, &Pose::identity());
        // From left to right: ground, a rim of the object that is seen as something in between, ground, the floor below.
        let height = |x: usize| match x {
            12..15 => 0.5,
            25.. => -0.7,
            _ => 0.01,
        };
        let surfaces: Vec<_> = (0..1200).map(|k| Some(Vector3::new(0.0, -height(k % 40), 0.0))).collect();
        let mut odds = vec![Odds::new(-3.0); 1200];
        let is = |odds: &[Odds]| floor.is_elsewhere(&view, &surfaces, odds, 2.0);
        assert!((0..1200).all(|k| is(&odds)[k] == (k % 40 >= 25)));
        // The object itself is no other thing.
        odds.fill(Odds::new(3.0));
        assert!(!is(&odds).contains(&true));
        assert!(!floor.is_elsewhere(&view, &vec![None; 1200], &[Odds::new(-3.0); 1200], 2.0).contains(&true));
    }

    #[test]
    fn a_view_shows_a_disc_but_where_something_is_in_front_of_it() {
        let floor = Floor { plane: ground(), centre: Vector3::zeros(), radius: 1.0 };
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
