//! What of a picture belongs to the scene: all but what its alpha hides.
//!
//! An editor keeps the colours under what was cut out, or makes them black. The hidden ones show a background that need
//! not have moved with the object; the black ones make corners where the outline is, which lie elsewhere on the object in
//! each picture. Neither may be looked at, not even by what only reaches there.

use image::GrayImage;

use crate::masks::is_object;

/// What is looked at around a keypoint, in its scales: most of what its descriptor weighs, and all of the pattern that it
/// is aligned by.
const REACH: f32 = 3.0;

/// By how much each pixel is away from what was cut out of its picture.
pub(crate) struct CutOut {
    width: usize,
    height: usize,
    /// Pixels, by rows; 0 where it is cut out.
    distances: Vec<f32>,
}

impl CutOut {
    /// `None` if nothing is cut out.
    pub(crate) fn of(alpha: &GrayImage) -> Option<Self> {
        let (width, height) = (alpha.width() as usize, alpha.height() as usize);
        let far = (width + height) as f32;
        let distances: Vec<f32> =
            alpha.as_raw().iter().map(|&a| if is_object(a) { far } else { 0.0 }).collect();
        distances.contains(&0.0).then(|| {
            let mut found = Self { width, height, distances };
            found.spread();
            found
        })
    }

    /// Distances from nearest to nearest (Borgefors, "Distance transformations in digital images", 1986): once from the
    /// top left, once from the bottom right.
    fn spread(&mut self) {
        let (width, height) = (self.width, self.height);
        let diagonal = std::f32::consts::SQRT_2;
        let d = &mut self.distances;
        for at in 0..width * height {
            let (x, y) = (at % width, at / width);
            let mut least = d[at];
            if x > 0 {
                least = least.min(d[at - 1] + 1.0);
            }
            if y > 0 {
                least = least.min(d[at - width] + 1.0);
                if x > 0 {
                    least = least.min(d[at - width - 1] + diagonal);
                }
                if x + 1 < width {
                    least = least.min(d[at - width + 1] + diagonal);
                }
            }
            d[at] = least;
        }
        for at in (0..width * height).rev() {
            let (x, y) = (at % width, at / width);
            let mut least = d[at];
            if x + 1 < width {
                least = least.min(d[at + 1] + 1.0);
            }
            if y + 1 < height {
                least = least.min(d[at + width] + 1.0);
                if x + 1 < width {
                    least = least.min(d[at + width + 1] + diagonal);
                }
                if x > 0 {
                    least = least.min(d[at + width - 1] + diagonal);
                }
            }
            d[at] = least;
        }
    }

    /// Whether what is looked at around a keypoint of this scale at (x, y) was not cut out.
    pub(crate) fn shows(&self, x: f32, y: f32, scale: f32) -> bool {
        let column = (x.max(0.0) as usize).min(self.width.saturating_sub(1));
        let row = (y.max(0.0) as usize).min(self.height.saturating_sub(1));
        self.distances.get(row * self.width + column).is_some_and(|d| *d > REACH * scale)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_keypoint_keeps_off_what_was_cut_out_by_three_of_its_scales() {
        let disc = |x: u32, y: u32| (f64::from(x) - 40.0).hypot(f64::from(y) - 30.0);
        let alpha =
            GrayImage::from_fn(90, 60, |x, y| image::Luma([if disc(x, y) < 20.0 { 255 } else { 60 }]));
        let cut = CutOut::of(&alpha).unwrap();
        assert!(cut.shows(40.5, 30.5, 5.0) && cut.shows(50.5, 30.5, 2.5) && cut.shows(40.5, 20.5, 2.5));
        assert!(!cut.shows(40.5, 30.5, 7.5) && !cut.shows(50.5, 30.5, 4.5) && !cut.shows(80.0, 30.0, 0.1));
        for (x, y, distance) in alpha.enumerate_pixels().map(|(x, y, _)| (x, y, 20.0 - disc(x, y))) {
            let found = f64::from(cut.distances[(y * 90 + x) as usize]);
            assert!(
                (found - distance.max(0.0)).abs() < 1.2 + 0.09 * distance.max(0.0),
                "{x} {y}: {found} {distance}"
            );
        }
        // The border of the picture cuts nothing out, and a picture that is all there needs nothing.
        let half =
            CutOut::of(&GrayImage::from_fn(90, 60, |x, _| image::Luma([if x < 30 { 0 } else { 255 }])))
                .unwrap();
        assert!(half.shows(89.5, 0.5, 9.0) && !half.shows(-1.0, 70.0, 9.0));
        assert!(CutOut::of(&GrayImage::from_pixel(9, 6, image::Luma([255]))).is_none());
        assert!(CutOut::of(&GrayImage::new(0, 0)).is_none());
    }
}
