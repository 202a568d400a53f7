//! What the pixels of a view show of the solid and of other things.

use nalgebra::Vector3;

use super::guided_filter::{NONE, box_mean};
use super::solid::{self, Seen};
use super::views::SalientView;

/// What a pixel shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Shown {
    Nothing,
    Object,
    /// Another thing, and the object behind it.
    Hidden,
    /// Another thing.
    Other,
}

/// What the pixels of a view show of the surfaces of the object and of other things, by the centres of their cells.
pub(super) fn show([object, other]: &[Vec<Vector3<f64>>; 2], cell: f64, view: &Seen<'_>) -> Vec<Shown> {
    let [object, other] = [object, other].map(|cells| solid::depths(cells, cell, view.camera));
    let pixel = |(k, (object, other)): (usize, (&f32, &f32))| match (object.is_finite(), other < object) {
        (true, false) if view.is_hidden(k, *object) => Shown::Hidden,
        (true, false) => Shown::Object,
        (true, true) => Shown::Hidden,
        (false, true) => Shown::Other,
        // It hides at least what is farther than itself: the ground, if that is kept.
        (false, false) if view.is_hidden(k, f32::MAX) => Shown::Other,
        (false, false) => Shown::Nothing,
    };
    object.iter().zip(&other).enumerate().map(pixel).collect()
}

/// The pixels that show another thing.
pub(super) fn others(shown: &[Shown]) -> Vec<u32> {
    let is_other = |shown: &Shown| matches!(shown, Shown::Hidden | Shown::Other);
    shown.iter().enumerate().filter(|(_, shown)| is_other(shown)).map(|(pixel, _)| pixel as u32).collect()
}

/// The pixels in which another thing hides the object, and those around them as far as `radius`.
pub(super) fn hidden(view: &SalientView, shown: &[Shown], radius: usize) -> Vec<u32> {
    if !shown.contains(&Shown::Hidden) {
        return Vec::new();
    }
    let (width, height) = view.size();
    let mut part: Vec<f32> = shown.iter().map(|s| f32::from(u8::from(*s == Shown::Hidden))).collect();
    box_mean(&mut part, width, height, radius);
    part.iter().enumerate().filter(|(_, part)| **part > NONE).map(|(pixel, _)| pixel as u32).collect()
}

/// The part of the pixels around each pixel that show the object.
pub(super) fn part_around(view: &SalientView, shown: &[Shown], radius: usize) -> Vec<f32> {
    let (width, height) = view.size();
    let mut part: Vec<f32> = shown.iter().map(|s| f32::from(u8::from(*s == Shown::Object))).collect();
    box_mean(&mut part, width, height, radius);
    part
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::camera::{Camera, CameraModel, Pose};
    use crate::raster;

    #[test]
    fn what_hides_the_object_is_told_from_what_is_beside_it() {
        let camera = Camera::from_focal(CameraModel::Pinhole, 40.0, 40, 30);
        let view = SalientView {
            camera: raster::View::new(&camera, &Pose::identity()),
            saliency: vec![0; 1200],
            colours: vec![[0; 3]; 1200].into(),
        };
        // Another thing in the left half, and the object behind its middle.
        let pixel = |k: usize| match (k % 40, k / 40) {
            (10..15, 10..15) => Shown::Hidden,
            (15..25, 10..15) => Shown::Object,
            (0..20, _) => Shown::Other,
            _ => Shown::Nothing,
        };
        let shown: Vec<Shown> = (0..1200).map(pixel).collect();
        let expected: Vec<u32> =
            (0..1200).filter(|k| (8..17).contains(&(k % 40)) && (8..17).contains(&(k / 40))).collect();
        assert_eq!(hidden(&view, &shown, 2), expected);
        assert!(hidden(&view, &[Shown::Other; 1200], 2).is_empty());
    }
}
