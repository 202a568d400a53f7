//! What residuals have in common that should have nothing in common: the part of them that noise does not explain.

use crate::sfm::map::{Keypoints, Map};

/// Cells of the picture across and down.
const CELLS: (usize, usize) = (8, 6);
/// Parts of one image across and down.
const PATCHES: (usize, usize) = (3, 3);

/// Residuals in common, pixels.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Bias {
    /// Of all images in a cell of the picture.
    pub(super) lens: f64,
    /// Of a part of an image.
    pub(super) patches: f64,
}

/// Sums of one cell.
#[derive(Clone, Copy, Default)]
struct Cell {
    count: f64,
    sum: [f64; 2],
    squares: f64,
}

impl Cell {
    fn add(&mut self, r: [f64; 2]) {
        self.count += 1.0;
        self.sum = [self.sum[0] + r[0], self.sum[1] + r[1]];
        self.squares += r[0] * r[0] + r[1] * r[1];
    }

    /// `n - 1` times the square of the mean without what noise adds to it: the products of different residuals.
    fn common(&self) -> f64 {
        (self.sum[0].powi(2) + self.sum[1].powi(2) - self.squares) / self.count
    }
}

/// Root mean square of the means, weighed by their observations, free of noise; 0 where noise explains all of it.
fn common(cells: &[Cell]) -> f64 {
    let told = || cells.iter().filter(|c| c.count >= 2.0);
    let weight: f64 = told().map(|c| c.count - 1.0).sum();
    if weight > 0.0 { (told().map(Cell::common).sum::<f64>() / weight).max(0.0).sqrt() } else { 0.0 }
}

/// Residuals larger than `limit` pixels are left out.
pub(super) fn bias(map: &Map, keypoints: &Keypoints, limit: f64) -> Bias {
    let index =
        |v: f64, size: f64, cells: usize| ((v / size * cells as f64).max(0.0) as usize).min(cells - 1);
    let mut lens = vec![Cell::default(); map.cameras().count() * CELLS.0 * CELLS.1];
    let mut patches = vec![Cell::default(); map.poses.len() * PATCHES.0 * PATCHES.1];
    for point in &map.points {
        for o in &point.track {
            let Some(pose) = map.poses[o.image as usize] else { continue };
            let pixel = &keypoints[o.image as usize][o.keypoint as usize];
            let camera = map.camera_of(o.image as usize);
            let Some(seen) = camera.project(&pose.transform(&point.xyz)) else { continue };
            let r = [seen.x - pixel.x, seen.y - pixel.y];
            if r[0].hypot(r[1]) > limit {
                continue;
            }
            let (width, height) = (f64::from(camera.width), f64::from(camera.height));
            let at = |(across, down): (usize, usize)| {
                index(pixel.y, height, down) * across + index(pixel.x, width, across)
            };
            // All indices are below the product of the cells, by `index`.
            lens[map.others.index(o.image as usize) * CELLS.0 * CELLS.1 + at(CELLS)].add(r);
            patches[o.image as usize * PATCHES.0 * PATCHES.1 + at(PATCHES)].add(r);
        }
    }
    Bias { lens: common(&lens), patches: common(&patches) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sfm::synthetic::Capture;

    #[test]
    fn noise_is_no_bias_and_a_shift_of_a_corner_is() {
        let mut capture = Capture::orbit(12, 600, 0.3, 4);
        let map = capture.true_map_with_points();
        let none = bias(&map, &capture.keypoints, 10.0);
        assert!(none.lens < 0.06 && none.patches < 0.06, "{none:?}");
        for pixel in capture.keypoints.iter_mut().flatten().filter(|p| p.x < 350.0) {
            pixel.y += 0.5;
        }
        let shifted = bias(&map, &capture.keypoints, 10.0);
        assert!(shifted.lens > 0.15 && shifted.patches > 0.15, "{shifted:?}");
        // Residuals beyond the limit count as wrong matches, not as a bias.
        assert_eq!(bias(&map, &capture.keypoints, 0.0), Bias::default());
    }
}
