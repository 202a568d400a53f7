//! A place in one view at which a person points.

use nalgebra::Vector3;

use super::evidence::Odds;
use crate::raster;

/// A place in one of the views, pixels of its small picture.
#[derive(Debug, Clone, Copy)]
pub(super) struct Pointed {
    pub(super) view: usize,
    pub(super) x: f64,
    pub(super) y: f64,
}

impl Pointed {
    /// The pixels of `camera`, which is this view's, up to `inexact` pixels to each side.
    fn pixels(&self, camera: &raster::View, inexact: i32) -> Vec<usize> {
        let side = -inexact..=inexact;
        let offsets = side.clone().flat_map(|dy| side.clone().map(move |dx| (f64::from(dx), f64::from(dy))));
        offsets.filter_map(|(dx, dy)| camera.pixel(self.x + dx, self.y + dy)).collect()
    }

    /// Whether the object is there. `odds` are those of this view's pixels.
    pub(super) fn is_on_object(&self, camera: &raster::View, odds: &[Odds], inexact: i32) -> bool {
        let is_object = |pixel: usize| odds.get(pixel).is_some_and(|o| o.log_odds() > 0.0);
        self.pixels(camera, inexact).into_iter().any(is_object)
    }

    /// Of the surfaces that this view's pixels show there, the one nearest to the camera: beside the edge of a thin thing,
    /// the thing is meant.
    pub(super) fn surface(
        &self,
        camera: &raster::View,
        surfaces: &[Option<Vector3<f64>>],
        inexact: i32,
    ) -> Option<Vector3<f64>> {
        let places = self.pixels(camera, inexact).into_iter().filter_map(|pixel| *surfaces.get(pixel)?);
        let off = |place: &Vector3<f64>| (place - camera.centre()).norm();
        places.min_by(|a, b| off(a).total_cmp(&off(b)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::camera::{Camera, CameraModel, Pose};

    fn camera() -> raster::View {
        let lens = Camera::from_focal(CameraModel::Pinhole, 8.0, 8, 6);
        raster::View::new(&lens, &Pose::identity())
    }

    #[test]
    fn a_hand_is_not_exact() {
        let mut odds = vec![Odds::new(-3.0); 48];
        odds[8 + 4] = Odds::new(3.0);
        let is_on = |x, y, inexact| Pointed { view: 0, x, y }.is_on_object(&camera(), &odds, inexact);
        assert!(is_on(4.5, 1.5, 0) && !is_on(6.5, 1.5, 0));
        assert!(is_on(6.5, 3.5, 2) && !is_on(7.5, 1.5, 2));
        // At the edge of the picture there is less around.
        assert!(!is_on(0.5, 5.5, 2));
    }

    #[test]
    fn the_surface_in_front_is_meant() {
        let (near, far) = (Vector3::new(0.0, 0.0, 2.0), Vector3::new(0.0, 0.0, 3.0));
        let mut surfaces = vec![Some(far); 48];
        surfaces[8 + 4] = Some(near);
        let surface = |x, surfaces: &[_]| Pointed { view: 0, x, y: 1.5 }.surface(&camera(), surfaces, 1);
        assert_eq!(surface(5.5, &surfaces), Some(near));
        assert_eq!(surface(7.5, &surfaces), Some(far));
        assert_eq!(surface(7.5, &[None; 48]), None);
    }
}
