//! Smoothing that stops at the edges of a picture: the guided filter with colour guidance (He, Sun & Tang, TPAMI 2013).
//!
//! To smooth the log odds of two labels with it and take the likelier label is as good as to minimise an energy with a
//! contrast term (Rhemann et al., "Fast cost-volume filtering", CVPR 2011), in linear time.

/// A plane of numbers, row by row.
pub(super) type Plane = Vec<f32>;

/// Of a plane of ones and zeros: a single one in a window makes a mean of more than this, rounding of the running sums of less.
pub(super) const NONE: f32 = 1e-5;

/// Mean over the square of `2 radius + 1` pixels around each pixel; at the border over what is inside. In place.
pub(super) fn box_mean(plane: &mut [f32], width: usize, height: usize, radius: usize) {
    let mut line = vec![0.0f32; width.max(height)];
    for row in plane.chunks_exact_mut(width) {
        sliding_mean(row, &mut line[..width], radius);
        row.copy_from_slice(&line[..width]);
    }
    // Down the columns, a running sum for all of a row at once.
    let mut sums = vec![0.0f32; width];
    let mut out = vec![0.0f32; plane.len()];
    let row = |y: usize| y * width..(y + 1) * width;
    for y in 0..radius.min(height) {
        sums.iter_mut().zip(&plane[row(y)]).for_each(|(s, v)| *s += v);
    }
    for y in 0..height {
        if y + radius < height {
            sums.iter_mut().zip(&plane[row(y + radius)]).for_each(|(s, v)| *s += v);
        }
        if y > radius {
            sums.iter_mut().zip(&plane[row(y - radius - 1)]).for_each(|(s, v)| *s -= v);
        }
        let count = ((y + radius).min(height - 1) - y.saturating_sub(radius) + 1) as f32;
        out[row(y)].iter_mut().zip(&sums).for_each(|(o, s)| *o = s / count);
    }
    plane.copy_from_slice(&out);
}

fn sliding_mean(row: &[f32], out: &mut [f32], radius: usize) {
    let width = row.len();
    let mut sum: f32 = row[..radius.min(width)].iter().sum();
    for x in 0..width {
        if x + radius < width {
            sum += row[x + radius];
        }
        if x > radius {
            sum -= row[x - radius - 1];
        }
        let count = (x + radius).min(width - 1) - x.saturating_sub(radius) + 1;
        out[x] = sum / count as f32;
    }
}

/// The filter for one picture.
pub(super) struct GuidedFilter {
    width: usize,
    height: usize,
    radius: usize,
    /// The picture's channels, around 0.
    guide: [Plane; 3],
    /// Their local means.
    mean: [Plane; 3],
    /// The inverse of their local covariance: 00, 01, 02, 11, 12, 22.
    inverse: [Plane; 6],
}

impl GuidedFilter {
    /// For a picture of 8-bit colours, row by row. `epsilon`: local variances (of colours 0 to 1) above it are edges.
    pub(super) fn new(rgb: &[[u8; 3]], width: usize, height: usize, radius: usize, epsilon: f32) -> Self {
        let guide: [Plane; 3] =
            std::array::from_fn(|c| rgb.iter().map(|p| f32::from(p[c]) / 255.0 - 0.5).collect());
        let averaged = |mut plane: Plane| {
            box_mean(&mut plane, width, height, radius);
            plane
        };
        let mean: [Plane; 3] = std::array::from_fn(|c| averaged(guide[c].clone()));
        const PAIRS: [(usize, usize); 6] = [(0, 0), (0, 1), (0, 2), (1, 1), (1, 2), (2, 2)];
        let mut inverse: [Plane; 6] = PAIRS.map(|(i, j)| {
            let product = guide[i].iter().zip(&guide[j]).map(|(a, b)| a * b).collect();
            let mut covariance = averaged(product);
            for ((c, a), b) in covariance.iter_mut().zip(&mean[i]).zip(&mean[j]) {
                *c -= a * b;
                if i == j {
                    *c = c.max(0.0) + epsilon;
                }
            }
            covariance
        });
        for k in 0..width * height {
            let [a, b, c, d, e, f] = std::array::from_fn(|n| inverse[n][k]);
            let (m0, m1, m2) = (d * f - e * e, c * e - b * f, b * e - c * d);
            // Positive definite but for rounding: `epsilon` is on the diagonal.
            let scale = 1.0 / (a * m0 + b * m1 + c * m2).max(1e-12);
            let values = [m0, m1, m2, a * f - c * c, b * c - a * e, a * d - b * b];
            for n in 0..6 {
                inverse[n][k] = values[n] * scale;
            }
        }
        Self { width, height, radius, guide, mean, inverse }
    }

    /// `plane`, smoothed where the picture is smooth.
    pub(super) fn apply(&self, plane: &[f32]) -> Plane {
        let averaged = |mut values: Plane| {
            box_mean(&mut values, self.width, self.height, self.radius);
            values
        };
        let mean = averaged(plane.to_vec());
        let mut slope: [Plane; 3] =
            std::array::from_fn(|c| averaged(self.guide[c].iter().zip(plane).map(|(g, p)| g * p).collect()));
        let mut offset = mean.clone();
        let v = &self.inverse;
        for k in 0..plane.len() {
            let c: [f32; 3] = std::array::from_fn(|n| slope[n][k] - self.mean[n][k] * mean[k]);
            let a = [
                v[0][k] * c[0] + v[1][k] * c[1] + v[2][k] * c[2],
                v[1][k] * c[0] + v[3][k] * c[1] + v[4][k] * c[2],
                v[2][k] * c[0] + v[4][k] * c[1] + v[5][k] * c[2],
            ];
            for n in 0..3 {
                offset[k] -= a[n] * self.mean[n][k];
                slope[n][k] = a[n];
            }
        }
        let mut out = averaged(offset);
        for (n, slope) in slope.into_iter().enumerate() {
            let slope = averaged(slope);
            out.iter_mut().zip(&slope).zip(&self.guide[n]).for_each(|((o, a), g)| *o += a * g);
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_box_mean_is_the_mean_of_what_is_inside() {
        let (width, height) = (7, 5);
        let values: Plane = (0..35).map(|v| ((v * 37) % 11) as f32).collect();
        for radius in [1, 2, 9] {
            let mut fast = values.clone();
            box_mean(&mut fast, width, height, radius);
            for y in 0..height {
                for x in 0..width {
                    let (mut sum, mut count) = (0.0, 0.0);
                    for v in y.saturating_sub(radius)..(y + radius + 1).min(height) {
                        for u in x.saturating_sub(radius)..(x + radius + 1).min(width) {
                            sum += values[v * width + u];
                            count += 1.0;
                        }
                    }
                    assert!((fast[y * width + x] - sum / count).abs() < 1e-4, "{radius} {x} {y}");
                }
            }
        }
    }

    #[test]
    fn odds_spread_to_the_edge_of_the_picture_and_not_over_it() {
        let (width, height) = (40, 20);
        let rgb: Vec<[u8; 3]> =
            (0..width * height).map(|k| if k % width < 17 { [200, 40, 40] } else { [40, 60, 200] }).collect();
        // The odds change two pixels too far to the right.
        let odds: Plane = (0..width * height).map(|k| if k % width < 19 { 1.0 } else { -1.0 }).collect();
        let filter = GuidedFilter::new(&rgb, width, height, 6, 1e-3);
        let out = filter.apply(&odds);
        let at = |x: usize| out[10 * width + x];
        assert!(at(16) > 0.9, "{}", at(16));
        // A window with n columns of the right colour fits their mean, (2 - (n - 2)) / n (1 for n = 1), to all of them;
        // the windows around column 17 have 1 to 13.
        let exact = (1..=13).map(|n| f32::min(1.0, (4.0 - n as f32) / n as f32)).sum::<f32>() / 13.0;
        assert!((at(17) - exact).abs() < 0.03 && exact < -0.17, "{} {exact}", at(17));
        assert!(at(22) < -0.5, "{}", at(22));
        // A constant stays what it is.
        let constant = filter.apply(&vec![0.7; width * height]);
        assert!(constant.iter().all(|v| (v - 0.7).abs() < 1e-3));
    }
}
