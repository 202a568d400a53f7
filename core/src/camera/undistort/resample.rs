//! Resampling a picture at given places, with the cubic kernel of Catmull and Rom (Keys 1981, a = -1/2).

use image::DynamicImage;

/// A picture in f32: r, g, b times alpha, and alpha (0 to 255). Premultiplied, so that the colour of what is transparent
/// does not leak into what is not.
pub(super) struct Premultiplied {
    width: usize,
    height: usize,
    pixels: Vec<[f32; 4]>,
}

impl Premultiplied {
    pub(super) fn new(picture: &DynamicImage) -> Self {
        let (width, height) = (picture.width() as usize, picture.height() as usize);
        let pixels = if picture.color().has_alpha() {
            let premultiplied = |p: &image::Rgba<u8>| {
                let [r, g, b, a] = p.0.map(f32::from);
                [r * a / 255.0, g * a / 255.0, b * a / 255.0, a]
            };
            picture.to_rgba8().pixels().map(premultiplied).collect()
        } else {
            let opaque = |p: &image::Rgb<u8>| {
                let [r, g, b] = p.0.map(f32::from);
                [r, g, b, 255.0]
            };
            match picture.as_rgb8() {
                Some(rgb) => rgb.pixels().map(opaque).collect(),
                None => picture.to_rgb8().pixels().map(opaque).collect(),
            }
        };
        Self { width, height, pixels }
    }

    /// The picture of `width` x `height` pixels whose pixel k shows what this one shows at `map[k]` (pixels, centre of the
    /// top-left one at 0.5). 8-bit r g b, and a if `has_alpha`.
    ///
    /// Where the places are more than a pixel apart the kernel is widened as much, so that nothing aliases.
    pub(super) fn resample(&self, map: &[[f32; 2]], width: u32, height: u32, has_alpha: bool) -> Vec<u8> {
        let (width, height) = (width as usize, height as usize);
        let mut bytes = Vec::with_capacity(width * height * if has_alpha { 4 } else { 3 });
        for j in 0..height {
            for i in 0..width {
                let place = map[j * width + i];
                // Distance to the neighbours; at the border to the one neighbour there is.
                let right = map[j * width + if i + 1 < width { i + 1 } else { i.saturating_sub(1) }];
                let below = map[if j + 1 < height { j + 1 } else { j.saturating_sub(1) } * width + i];
                let stretch = |axis: usize| {
                    let (x, y) = (right[axis] - place[axis], below[axis] - place[axis]);
                    (x * x + y * y).sqrt().max(1.0)
                };
                let [r, g, b, a] = self.at(place, [stretch(0), stretch(1)]);
                let straight = if has_alpha && a > 0.5 { 255.0 / a } else { 1.0 };
                // `as` saturates, which is the clamping that overshoot needs.
                bytes.extend([r, g, b].map(|v| (v * straight + 0.5) as u8));
                if has_alpha {
                    bytes.push((a + 0.5) as u8);
                }
            }
        }
        bytes
    }

    fn at(&self, [x, y]: [f32; 2], [stretch_x, stretch_y]: [f32; 2]) -> [f32; 4] {
        // A little stretch is common in the corners of wide lenses and aliases little: keep the 4 x 4 kernel for it.
        if stretch_x < 1.05 && stretch_y < 1.05 {
            let (left, wx) = weights(x);
            let (top, wy) = weights(y);
            if left >= 0 && top >= 0 && left as usize + 4 <= self.width && top as usize + 4 <= self.height {
                let mut sum = [0.0; 4];
                for (row, wy) in wy.iter().enumerate() {
                    let start = (top as usize + row) * self.width + left as usize;
                    let mut line = [0.0; 4];
                    for (pixel, wx) in self.pixels[start..start + 4].iter().zip(wx) {
                        line = std::array::from_fn(|c| line[c] + wx * pixel[c]);
                    }
                    sum = std::array::from_fn(|c| sum[c] + wy * line[c]);
                }
                return sum;
            }
        }
        self.at_any([x, y], [stretch_x, stretch_y])
    }

    /// The general case: any width of the kernel, pixels outside are those of the border.
    fn at_any(&self, [x, y]: [f32; 2], [stretch_x, stretch_y]: [f32; 2]) -> [f32; 4] {
        let range = |x: f32, stretch: f32| {
            let radius = 2.0 * stretch;
            ((x - 0.5 - radius).ceil() as i64, (x - 0.5 + radius).floor() as i64)
        };
        let ((left, right), (top, bottom)) = (range(x, stretch_x), range(y, stretch_y));
        let (mut sum, mut total) = ([0.0; 4], 0.0);
        for j in top..=bottom {
            let wy = kernel((j as f32 + 0.5 - y) / stretch_y);
            let row = j.clamp(0, self.height as i64 - 1) as usize * self.width;
            for i in left..=right {
                let w = wy * kernel((i as f32 + 0.5 - x) / stretch_x);
                let pixel = self.pixels[row + i.clamp(0, self.width as i64 - 1) as usize];
                sum = std::array::from_fn(|c| sum[c] + w * pixel[c]);
                total += w;
            }
        }
        sum.map(|v| v / total)
    }
}

/// Keys' cubic with a = -1/2.
fn kernel(t: f32) -> f32 {
    let t = t.abs();
    if t < 1.0 {
        (1.5 * t - 2.5) * t * t + 1.0
    } else if t < 2.0 {
        ((-0.5 * t + 2.5) * t - 4.0) * t + 2.0
    } else {
        0.0
    }
}

/// The first of the four pixels around coordinate `x`, and their weights, which sum to 1.
fn weights(x: f32) -> (i64, [f32; 4]) {
    let below = (x - 0.5).floor();
    let t = x - 0.5 - below;
    let (t2, t3) = (t * t, t * t * t);
    let weights = [
        -0.5 * t3 + t2 - 0.5 * t,
        1.5 * t3 - 2.5 * t2 + 1.0,
        -1.5 * t3 + 2.0 * t2 + 0.5 * t,
        0.5 * t3 - 0.5 * t2,
    ];
    (below as i64 - 1, weights)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_four_weights_are_the_kernel() {
        for x in [3.5, 3.75, 4.0, 4.25, 4.4999] {
            let (first, weights) = weights(x);
            for (k, w) in weights.into_iter().enumerate() {
                assert!((w - kernel(first as f32 + k as f32 + 0.5 - x)).abs() < 1e-5);
            }
        }
    }

    #[test]
    fn the_narrow_and_the_general_kernel_agree() {
        let picture = image::RgbaImage::from_fn(9, 8, |x, y| {
            image::Rgba([(x * 28) as u8, (y * 31) as u8, (x * y) as u8, (255 - x * 20) as u8])
        });
        let picture = Premultiplied::new(&picture.into());
        for (x, y) in [(4.5, 4.5), (4.7, 3.1), (2.51, 5.49)] {
            let (a, b) = (picture.at([x, y], [1.0, 1.0]), picture.at_any([x, y], [1.0, 1.0]));
            for c in 0..4 {
                assert!((a[c] - b[c]).abs() < 1e-3, "{a:?} {b:?}");
            }
        }
    }

    #[test]
    fn shrinking_averages_what_would_alias() {
        let stripes =
            image::RgbImage::from_fn(64, 64, |x, _| image::Rgb([if x % 2 == 0 { 0 } else { 255 }; 3]));
        let map: Vec<[f32; 2]> =
            (0..16 * 16).map(|k| [(k % 16) as f32 * 4.0 + 0.5, (k / 16) as f32 * 4.0 + 0.5]).collect();
        let bytes = Premultiplied::new(&stripes.into()).resample(&map, 16, 16, false);
        for row in bytes.chunks(16 * 3) {
            for value in &row[9..16 * 3 - 9] {
                assert!((i32::from(*value) - 127).abs() <= 3, "{value}");
            }
        }
    }
}
