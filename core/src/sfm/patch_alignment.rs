//! Keypoints moved to where their surroundings look alike: least-squares matching of patches.
//!
//! A detector finds a spot of a surface again to some tenths of a pixel, and it errs alike in neighbouring pictures: the
//! middle of a blob that is seen aslant is not the image of its middle, and wanders as the camera moves. Such errors bend
//! cameras and focal length, however many points there are. Here one observation of each track is the pattern, and the
//! others move to where the picture looks most like it, under an affine map, a gain and an offset (Gruen, "Adaptive
//! least squares correlation", 1985), found by the inverse compositional algorithm (Baker & Matthews, "Lucas-Kanade 20
//! years on", IJCV 2004). The finished map says how the pattern is about to look.
//!
//! In: a map, its keypoints with their scales, the pictures. Out: all keypoints, of which some have moved, and the part of
//! the map that rests on them; what cannot be aligned lies on a contour, is blurred or covered. Pictures are read twice and
//! never held together.

use image::GrayImage;
use nalgebra::{Matrix2, SMatrix, SVector, Vector2, Vector3};
use rayon::prelude::*;

use super::front_end::{Pictures, read_picture};
use super::map::{Map, MapPoint, Observation};
use crate::control::Control;
use crate::error::Result;
use crate::video::Frames;

/// Samples of a pattern on both sides of its middle.
const HALF: usize = 4;
const SIDE: usize = 2 * HALF + 1;
/// With a border for the gradients.
const WIDE: usize = SIDE + 2;
/// Distance of the samples over the keypoint's scale, at least one pixel: a pattern reaches three scales far.
const SPACING: f64 = 0.5;
const ITERATIONS: usize = 15;
/// A step below this many pixels is the last.
const CONVERGED: f64 = 0.005;
/// How alike (normalised cross-correlation) pattern and picture must be in the end.
const ALIKE: f64 = 0.9;
/// How far a keypoint moves at most, in distances of samples.
const FARTHEST: f64 = 1.5;
/// How much its surroundings may be deformed against what the map expects (Frobenius norm).
const DEFORMATION: f64 = 0.6;
/// Standard deviation of the brightness (of 255) below which there is no pattern.
const FLAT: f32 = 1.0;

/// An image keeps its other observations, too, if it has fewer exact ones, ...
const ENOUGH: usize = 100;
/// ... and all images do if less than this part is exact: their blur or rolling shutter differs, and what is alike by chance
/// places cameras no better.
const MOST: f64 = 0.6;

/// Keypoints after alignment.
pub(crate) struct Aligned {
    /// Pixels of all keypoints, by image.
    pub(crate) keypoints: Vec<Vec<Vector2<f64>>>,
    /// Whether they are patterns or aligned with one, by image.
    is_exact: Vec<Vec<bool>>,
}

impl Aligned {
    /// `map` with its exact observations only, wherever an image has enough of them.
    pub(crate) fn exact_part(&self, map: &Map) -> Map {
        let is_exact = |o: &Observation| self.is_exact[o.image as usize][o.keypoint as usize];
        let track = |p: &MapPoint| -> Vec<Observation> {
            let exact: Vec<_> = p.track.iter().filter(|o| is_exact(o)).copied().collect();
            if exact.len() < 2 { Vec::new() } else { exact }
        };
        let mut tracks: Vec<Vec<Observation>> = map.points.iter().map(track).collect();
        let exact: usize = tracks.iter().map(Vec::len).sum();
        if (exact as f64) < MOST * map.observations() as f64 {
            return map.clone();
        }
        let mut counts = vec![0; map.poses.len()];
        tracks.iter().flatten().for_each(|o| counts[o.image as usize] += 1);
        for (track, point) in tracks.iter_mut().zip(&map.points) {
            let is_needed = |o: &Observation| counts[o.image as usize] < ENOUGH && !track.contains(o);
            if point.track.iter().any(is_needed) {
                track.clone_from(&point.track);
            }
        }
        let points = map.points.iter().zip(tracks);
        let kept = points.filter(|(_, track)| !track.is_empty());
        let points = kept.map(|(p, track)| MapPoint { xyz: p.xyz, track }).collect();
        Map { camera: map.camera.clone(), poses: map.poses.clone(), points }
    }
}

/// Moves the keypoints of `map` to where they look like the pattern of their track.
///
/// # Errors
/// Pictures that cannot be read; [`crate::ErrorKind::Cancelled`].
pub(crate) fn align_keypoints(
    map: &Map,
    pictures: &Pictures,
    frames: &Frames,
    control: &Control,
) -> Result<Aligned> {
    let images = map.poses.len();
    let references: Vec<Observation> = map.points.par_iter().map(|p| most_central(map, p)).collect();
    let mut own: Vec<Vec<usize>> = vec![Vec::new(); images];
    let mut others: Vec<Vec<(usize, u32)>> = vec![Vec::new(); images];
    for (p, (point, reference)) in map.points.iter().zip(&references).enumerate() {
        own[reference.image as usize].push(p);
        for o in point.track.iter().filter(|o| *o != reference) {
            others[o.image as usize].push((p, o.keypoint));
        }
    }
    let pyramid = |image: usize| -> Result<Pyramid> {
        control.check()?;
        Ok(Pyramid::new(&image::imageops::grayscale(&read_picture(frames, image)?)))
    };
    let spacing = |o: &Observation| {
        let scale = pictures.features[o.image as usize].keypoints[o.keypoint as usize].scale;
        (SPACING * f64::from(scale)).max(1.0)
    };
    let pixel = |o: &Observation| pictures.keypoints[o.image as usize][o.keypoint as usize];
    let found: Vec<Vec<(usize, Pattern)>> = own
        .par_iter()
        .enumerate()
        .map(|(image, points)| {
            if points.is_empty() {
                return Ok(Vec::new());
            }
            let pyramid = pyramid(image)?;
            let pattern = |&p: &usize| {
                let r = &references[p];
                Some((p, Pattern::new(&pyramid, &pixel(r), spacing(r))?))
            };
            Ok(points.iter().filter_map(pattern).collect())
        })
        .collect::<Result<_>>()?;
    let mut patterns: Vec<Option<Pattern>> = Vec::new();
    patterns.resize_with(map.points.len(), || None);
    for (p, pattern) in found.into_iter().flatten() {
        patterns[p] = Some(pattern);
    }
    let mut aligned = Aligned {
        keypoints: pictures.keypoints.clone(),
        is_exact: pictures.keypoints.iter().map(|k| vec![false; k.len()]).collect(),
    };
    for (reference, _) in references.iter().zip(&patterns).filter(|(_, p)| p.is_some()) {
        aligned.is_exact[reference.image as usize][reference.keypoint as usize] = true;
    }
    let moved: Vec<Vec<(u32, Vector2<f64>)>> = others
        .par_iter()
        .enumerate()
        .map(|(image, observations)| {
            if observations.is_empty() {
                return Ok(Vec::new());
            }
            let pyramid = pyramid(image)?;
            let find = |&(p, keypoint): &(usize, u32)| {
                let pattern = patterns[p].as_ref()?;
                let reference = &references[p];
                let by = expected_map(map, &map.points[p], reference, &pixel(reference), image)?;
                let start = pixel(&Observation::new(image as u32, keypoint));
                Some((keypoint, pattern.find(&pyramid, &start, &(by * pattern.spacing))?))
            };
            Ok(observations.iter().filter_map(find).collect())
        })
        .collect::<Result<_>>()?;
    for (image, moved) in moved.into_iter().enumerate() {
        for (keypoint, place) in moved {
            aligned.keypoints[image][keypoint as usize] = place;
            aligned.is_exact[image][keypoint as usize] = true;
        }
    }
    Ok(aligned)
}

/// Unit vectors from a point to the cameras that see it.
fn towards_cameras(map: &Map, point: &MapPoint) -> Vec<Vector3<f64>> {
    let towards = |o: &Observation| {
        let center = map.poses[o.image as usize].map_or(point.xyz, |pose| pose.center());
        (center - point.xyz).try_normalize(1e-12).unwrap_or_else(Vector3::zeros)
    };
    point.track.iter().map(towards).collect()
}

/// The observation from the middle of all directions: it looks most like the others.
fn most_central(map: &Map, point: &MapPoint) -> Observation {
    let directions = towards_cameras(map, point);
    let mean: Vector3<f64> = directions.iter().sum();
    let best = directions
        .iter()
        .zip(&point.track)
        .max_by(|(a, _), (b, _)| a.dot(&mean).total_cmp(&b.dot(&mean)))
        .map(|(_, o)| *o);
    // A point has at least two observations.
    best.unwrap_or(Observation::new(0, 0))
}

/// How pixels of `image` move with pixels of the reference, on a surface that faces the cameras of the track.
fn expected_map(
    map: &Map,
    point: &MapPoint,
    reference: &Observation,
    pixel: &Vector2<f64>,
    image: usize,
) -> Option<Matrix2<f64>> {
    let (from, to) = (map.poses[reference.image as usize]?, map.poses[image]?);
    let normal = towards_cameras(map, point).iter().sum::<Vector3<f64>>().try_normalize(1e-6)?;
    let center = from.center();
    let height = (point.xyz - center).dot(&normal);
    let across = |dx: f64, dy: f64| {
        let ray = from.rotation.inverse() * map.camera.ray(&(pixel + Vector2::new(dx, dy)));
        let place = center + ray * (height / ray.dot(&normal));
        map.camera.project(&to.transform(&place))
    };
    let (x, y) = (across(1.0, 0.0)? - across(-1.0, 0.0)?, across(0.0, 1.0)? - across(0.0, -1.0)?);
    let a = 0.5 * Matrix2::from_columns(&[x, y]);
    // Not seen from behind, nor much larger or smaller.
    (0.05..20.0).contains(&a.determinant()).then_some(a)
}

/// A picture at full size, half of it, a quarter, ...
struct Pyramid {
    levels: Vec<Level>,
}

/// One size of a picture as a cubic spline: what lies between pixels is exact for all but the finest patterns. Straight lines
/// and cubic convolution shift patterns of a few pixels by hundredths of a pixel, towards where the pixels are (Unser,
/// "Splines: a perfect fit for signal and image processing", IEEE Signal Processing Magazine 1999).
struct Level {
    width: usize,
    height: usize,
    /// Coefficients of the spline, row by row.
    spline: Vec<f32>,
}

impl Pyramid {
    fn new(picture: &GrayImage) -> Self {
        let values = picture.as_raw().iter().map(|v| f32::from(*v)).collect();
        let (mut width, mut height) = (picture.width() as usize, picture.height() as usize);
        let mut pictures: Vec<(usize, usize, Vec<f32>)> = vec![(width, height, values)];
        while let Some((_, _, last)) =
            pictures.last().filter(|_| pictures.len() < 5 && width.min(height) >= 64)
        {
            let half = half(last, width, height);
            (width, height) = (width / 2, height / 2);
            pictures.push((width, height, half));
        }
        Self { levels: pictures.into_iter().map(|(width, height, v)| Level::new(width, height, v)).collect() }
    }

    /// The level on which samples so many pixels apart are one or two apart, and the size of its pixels.
    fn level(&self, spacing: f64) -> (&Level, f64) {
        let k = (spacing.max(1.0).log2() as usize).min(self.levels.len() - 1);
        (&self.levels[k], f64::from(1u32 << k))
    }
}

/// A picture of half the size, whose pixels are means of four.
fn half(values: &[f32], width: usize, height: usize) -> Vec<f32> {
    let mut halved = Vec::with_capacity((width / 2) * (height / 2));
    for y in 0..height / 2 {
        let (upper, lower) = (&values[2 * y * width..], &values[(2 * y + 1) * width..]);
        halved.extend(
            (0..width / 2)
                .map(|x| 0.25 * (upper[2 * x] + upper[2 * x + 1] + lower[2 * x] + lower[2 * x + 1])),
        );
    }
    halved
}

/// From values to the coefficients of the cubic spline through them, in place, for each of `count` lines side by side: value
/// `k` of line `l` is at `k * step + l`. Mirrored at both ends.
fn to_spline(values: &mut [f32], length: usize, step: usize, count: usize) {
    const POLE: f32 = -0.267_949_2;
    if length < 2 {
        return;
    }
    for l in 0..count {
        // The mirrored line before the first value; farther away its weight is nothing.
        let mut first = 0.0;
        for k in (1..length.min(16)).rev() {
            first = POLE * (first + values[k * step + l]);
        }
        values[l] += first;
    }
    for k in 1..length {
        for l in 0..count {
            values[k * step + l] += POLE * values[(k - 1) * step + l];
        }
    }
    let (last, before) = ((length - 1) * step, (length - 2) * step);
    for l in 0..count {
        values[last + l] = POLE / (POLE * POLE - 1.0) * (values[last + l] + POLE * values[before + l]);
    }
    for k in (0..length - 1).rev() {
        for l in 0..count {
            values[k * step + l] = POLE * (values[(k + 1) * step + l] - values[k * step + l]);
        }
    }
    values.iter_mut().for_each(|v| *v *= 6.0);
}

impl Level {
    fn new(width: usize, height: usize, mut values: Vec<f32>) -> Self {
        for row in values.chunks_exact_mut(width.max(1)) {
            to_spline(row, width, 1, 1);
        }
        to_spline(&mut values, height, width, width);
        Self { width, height, spline: values }
    }

    /// (x, y) counts from the centre of the first pixel. `None` at the border and outside.
    fn at(&self, x: f32, y: f32) -> Option<f32> {
        if !(x >= 1.0 && y >= 1.0) {
            return None;
        }
        let (left, top) = (x as usize, y as usize);
        if left + 2 >= self.width || top + 2 >= self.height {
            return None;
        }
        let (across, down) = (cubic(x - left as f32), cubic(y - top as f32));
        let mut value = 0.0;
        for (row, weight) in down.into_iter().enumerate() {
            let first = (top - 1 + row) * self.width + left - 1;
            let pixels = self.spline.get(first..first + 4)?;
            value += weight * pixels.iter().zip(across).map(|(v, w)| v * w).sum::<f32>();
        }
        Some(value)
    }

    /// Samples at `middle` + `by` * (column, row), where both go from -`half` to `half`. `None` if any is outside.
    fn grid<const N: usize>(
        &self,
        size: f64,
        middle: &Vector2<f64>,
        by: &Matrix2<f64>,
        samples: &mut [f32; N],
        side: usize,
    ) -> Option<()> {
        let half = (side / 2) as f64;
        let scaled = by / size;
        let first = middle / size - Vector2::repeat(0.5) - scaled * Vector2::repeat(half);
        let (fx, fy) = (first.x as f32, first.y as f32);
        let [a, c, b, d] = [scaled.m11, scaled.m21, scaled.m12, scaled.m22].map(|v| v as f32);
        for (k, sample) in samples.iter_mut().enumerate() {
            let (x, y) = ((k % side) as f32, (k / side) as f32);
            *sample = self.at(fx + a * x + b * y, fy + c * x + d * y)?;
        }
        Some(())
    }
}

/// Weights of the four coefficients around a place that is `t` (0 to 1) behind the second.
fn cubic(t: f32) -> [f32; 4] {
    let u = 1.0 - t;
    [
        u * u * u / 6.0,
        2.0 / 3.0 - 0.5 * t * t * (2.0 - t),
        2.0 / 3.0 - 0.5 * u * u * (2.0 - u),
        t * t * t / 6.0,
    ]
}

/// Takes the mean away and divides by the norm, which is given back.
fn normalise(values: &mut [f32]) -> f32 {
    let mean = values.iter().sum::<f32>() / values.len() as f32;
    values.iter_mut().for_each(|v| *v -= mean);
    let norm = values.iter().map(|v| v * v).sum::<f32>().sqrt();
    values.iter_mut().for_each(|v| *v /= norm.max(1e-6));
    norm
}

/// What the surroundings of a keypoint look like.
struct Pattern {
    /// Distance of the samples in pixels.
    spacing: f64,
    samples: Box<[f32; WIDE * WIDE]>,
}

impl Pattern {
    /// `None` at the edge of the picture, and where nothing is to be seen.
    fn new(pyramid: &Pyramid, middle: &Vector2<f64>, spacing: f64) -> Option<Self> {
        let mut samples = Box::new([0.0; WIDE * WIDE]);
        let (level, size) = pyramid.level(spacing);
        level.grid(size, middle, &(Matrix2::identity() * spacing), &mut samples, WIDE)?;
        let mut all = *samples;
        (normalise(&mut all) > FLAT * (all.len() as f32).sqrt()).then_some(Self { spacing, samples })
    }

    /// Where the picture looks like this, near `start`; `by` says how pixels move with samples there.
    fn find(&self, pyramid: &Pyramid, start: &Vector2<f64>, by: &Matrix2<f64>) -> Option<Vector2<f64>> {
        const COUNT: usize = SIDE * SIDE;
        let wide = |x: usize, y: usize| self.samples[y * WIDE + x];
        let mut pattern = [0.0; COUNT];
        let mut slopes = [[0.0f32; COUNT]; 2];
        for k in 0..COUNT {
            let (x, y) = (k % SIDE + 1, k / SIDE + 1);
            pattern[k] = wide(x, y);
            slopes[0][k] = 0.5 * (wide(x + 1, y) - wide(x - 1, y));
            slopes[1][k] = 0.5 * (wide(x, y + 1) - wide(x, y - 1));
        }
        let norm = normalise(&mut pattern);
        // How the normalised pattern changes with [d, D], where samples move from p to p + d + D p.
        let mut changes = [[0.0f32; COUNT]; 6];
        for k in 0..COUNT {
            let (x, y) = ((k % SIDE) as f32 - HALF as f32, (k / SIDE) as f32 - HALF as f32);
            let (gx, gy) = (slopes[0][k] / norm, slopes[1][k] / norm);
            for (change, value) in changes.iter_mut().zip([gx, gy, gx * x, gx * y, gy * x, gy * y]) {
                change[k] = value;
            }
        }
        // What gain and offset explain is no motion.
        for change in &mut changes {
            let mean = change.iter().sum::<f32>() / COUNT as f32;
            let along: f32 = change.iter().zip(&pattern).map(|(c, p)| c * p).sum();
            change.iter_mut().zip(&pattern).for_each(|(c, p)| *c -= mean + along * p);
        }
        let dot =
            |a: &[f32; COUNT], b: &[f32; COUNT]| f64::from(a.iter().zip(b).map(|(a, b)| a * b).sum::<f32>());
        let hessian = SMatrix::<f64, 6, 6>::from_fn(|r, c| dot(&changes[r], &changes[c])).cholesky()?;

        let spacing = by.determinant().abs().sqrt();
        let (level, size) = pyramid.level(spacing);
        let (mut middle, mut warp) = (*start, *by);
        let mut seen = [0.0; COUNT];
        let mut converged = false;
        for _ in 0..ITERATIONS {
            level.grid(size, &middle, &warp, &mut seen, SIDE)?;
            if normalise(&mut seen) < FLAT * SIDE as f32 {
                return None;
            }
            if converged {
                break;
            }
            seen.iter_mut().zip(&pattern).for_each(|(s, p)| *s -= p);
            let step = hessian.solve(&SVector::<f64, 6>::from_fn(|r, _| dot(&changes[r], &seen)));
            let turn = Matrix2::new(1.0 + step[2], step[3], step[4], 1.0 + step[5]).try_inverse()?;
            warp *= turn;
            let shift = warp * Vector2::new(step[0], step[1]);
            middle -= shift;
            if (middle - start).norm() > FARTHEST * spacing.max(1.0) {
                return None;
            }
            converged = shift.norm() < CONVERGED;
        }
        let deformation = (by.try_inverse()? * warp - Matrix2::identity()).norm();
        let alike = dot(&seen, &pattern);
        (converged && alike > ALIKE && deformation < DEFORMATION).then_some(middle)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;
    use image::Luma;

    /// A smooth random texture over the plane.
    fn texture(x: f64, y: f64) -> f64 {
        let mut random = Random::new(5);
        let waves = (0..40).map(|_| {
            let (u, v) = (0.5 * random.normal(), 0.5 * random.normal());
            (u * x + v * y + 6.3 * random.uniform()).sin()
        });
        128.0 + 7.0 * waves.sum::<f64>()
    }

    /// The picture of which pixel `p` shows the texture at `a` * (`p` - `middle`), brightness changed.
    fn picture(middle: Vector2<f64>, a: Matrix2<f64>, gain: f64, noise: f64) -> GrayImage {
        let mut random = Random::new(9);
        GrayImage::from_fn(80, 70, |x, y| {
            let p = a * (Vector2::new(f64::from(x) + 0.5, f64::from(y) + 0.5) - middle);
            let value = gain * texture(p.x, p.y) + 10.0 + noise * random.normal();
            Luma([value.round().clamp(0.0, 255.0) as u8])
        })
    }

    #[test]
    fn the_spline_goes_through_the_pixels_and_smoothly_between_them() {
        let wave = |x: f64, y: f64| (120.0 + 60.0 * (0.9 * x + 0.4 * y).sin()) as f32;
        let values = (0..30 * 40).map(|k| wave(f64::from(k % 40), f64::from(k / 40))).collect();
        let level = Level::new(40, 30, values);
        for (x, y) in [(1, 1), (7, 9), (37, 27), (1, 27)] {
            let value = level.at(x as f32, y as f32).unwrap();
            assert!((value - wave(f64::from(x), f64::from(y))).abs() < 0.01, "{value} at {x}, {y}");
        }
        for (x, y) in [(12.5, 10.5), (20.25, 17.75), (9.1, 15.9)] {
            let value = level.at(x as f32, y as f32).unwrap();
            assert!((value - wave(x, y)).abs() < 0.5, "{value}, not {} at {x}, {y}", wave(x, y));
        }
        assert!(
            level.at(0.5, 5.0).is_none()
                && level.at(38.0, 5.0).is_none()
                && level.at(f32::NAN, 5.0).is_none()
        );
    }

    #[test]
    fn a_pattern_is_found_to_hundredths_of_a_pixel_under_affine_maps_and_other_light() {
        let middle = Vector2::new(40.3, 33.8);
        let maps = [
            Matrix2::identity(),
            Matrix2::new(0.9, 0.1, -0.15, 1.1),
            Matrix2::new(0.7, 0.2, 0.0, 0.8),
            Matrix2::new(1.3, -0.2, 0.2, 1.2),
        ];
        for (noise, limit) in [(0.0, 0.01), (1.0, 0.06)] {
            let reference = Pyramid::new(&picture(middle, Matrix2::identity(), 0.8, noise));
            let pattern = Pattern::new(&reference, &middle, 1.0).unwrap();
            for a in maps {
                let truth = Vector2::new(38.61, 36.27);
                let other = Pyramid::new(&picture(truth, a, 0.6, noise));
                let start = truth + Vector2::new(0.4, -0.5);
                // The map knows how the surroundings are deformed to a tenth or so.
                let by = a.try_inverse().unwrap() * Matrix2::new(1.08, 0.05, -0.04, 0.94);
                let found = pattern.find(&other, &start, &by).unwrap();
                assert!((found - truth).norm() < limit, "{a}, noise {noise}: {:?}", found - truth);
            }
        }
    }

    #[test]
    fn what_does_not_look_alike_stays_where_it_is() {
        let middle = Vector2::new(40.3, 33.8);
        let pyramid = Pyramid::new(&picture(middle, Matrix2::identity(), 0.8, 1.0));
        let pattern = Pattern::new(&pyramid, &middle, 1.0).unwrap();
        let elsewhere =
            Pyramid::new(&picture(middle + Vector2::new(7.0, 9.0), Matrix2::identity(), 0.8, 1.0));
        assert!(pattern.find(&elsewhere, &middle, &Matrix2::identity()).is_none(), "another place");
        let mut half = picture(middle, Matrix2::identity(), 0.8, 1.0);
        half.enumerate_pixels_mut().filter(|(x, ..)| *x < 40).for_each(|(_, _, p)| *p = Luma([90]));
        let half = Pyramid::new(&half);
        assert!(pattern.find(&half, &middle, &Matrix2::identity()).is_none(), "half of it is covered");
        let flat = Pyramid::new(&GrayImage::from_pixel(80, 70, Luma([90])));
        assert!(pattern.find(&flat, &middle, &Matrix2::identity()).is_none(), "nothing");
        assert!(Pattern::new(&flat, &middle, 1.0).is_none(), "no pattern");
        assert!(Pattern::new(&pyramid, &Vector2::new(3.0, 30.0), 1.0).is_none(), "at the edge");
        let edge = Vector2::new(78.5, 30.0);
        assert!(pattern.find(&pyramid, &edge, &Matrix2::identity()).is_none(), "at the edge");
    }

    #[test]
    fn an_image_with_few_exact_observations_keeps_all_it_has() {
        let capture = crate::sfm::synthetic::Capture::orbit(6, 400, 0.0, 3);
        let map = capture.true_map_with_points();
        let counts = map.observations_by_image();
        let mut aligned = Aligned {
            keypoints: capture.keypoints.clone(),
            is_exact: capture.keypoints.iter().map(|k| vec![true; k.len()]).collect(),
        };
        // Every eighth keypoint of the others, and most of the last image, cannot be aligned.
        for (image, exact) in aligned.is_exact.iter_mut().enumerate() {
            let of = if image == 5 { 20 } else { 8 };
            exact
                .iter_mut()
                .enumerate()
                .for_each(|(k, e)| *e = if image == 5 { k % of == 0 } else { k % of != 0 });
        }
        let part = aligned.exact_part(&map);
        let after = part.observations_by_image();
        assert_eq!(after[5], counts[5]);
        assert!(part.observations() < map.observations());
        assert!(part.points.iter().all(|p| p.track.len() >= 2));
        // Where nearly nothing can be aligned, nothing is left out.
        aligned.is_exact.iter_mut().for_each(|e| e.iter_mut().enumerate().for_each(|(k, e)| *e = k % 3 == 0));
        assert_eq!(aligned.exact_part(&map).observations(), map.observations());
    }
}
