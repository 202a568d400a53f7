//! Corners of a tag from all edges of its pattern, whichever way white and black blur into each other.
//!
//! Cameras encode light nonlinearly, bright areas bleed, ink spreads: in a picture, white meets black some tenths of a
//! pixel beside where it does on paper, everywhere towards the same colour. A square that is measured by its border
//! alone comes out too large or too small by twice that, 1 % at 40 pixels, however many pictures show it. But where the
//! pattern of a tag is known, there are edges that have white on the inside and others that have it on the outside.
//! They shift against each other, so shift and size can be told apart.
//!
//! In: a picture, the pattern of a tag in it, and its corners to a pixel or so. Out: its corners.

use image::GrayImage;
use nalgebra::{Matrix2, SMatrix, SVector, Vector2};

use super::family::{Modules, PRINTED_MODULES, TAG_MODULES};
use crate::statistics::{SIGMA_OF_MAD, median};

type Corners = [[f64; 2]; 4];

/// Corners of the inner white square in modules from its middle, x right and y down, in the detector's order.
const CORNERS: Corners = {
    let half = TAG_MODULES as f64 / 2.0;
    [[-half, half], [half, half], [half, -half], [-half, -half]]
};
/// A homography, and how far edges across the printed x axis and the printed y axis are shifted towards black.
const UNKNOWNS: usize = 10;
const ROUNDS: usize = 4;
/// An edge is looked for within this part of a module, ...
const REACH: f64 = 0.4;
/// ... and never farther away than this many pixels.
const MAX_REACH: f64 = 4.0;
/// Modules of fewer pixels blur into each other.
const MIN_MODULE: f64 = 2.5;
/// Distance of samples in pixels.
const STEP: f64 = 0.25;
/// An edge that is less clear than this part of what is usual in the tag is not counted: something lies over it.
const MIN_RISE: f64 = 0.4;
/// How far edges may be shifted (standard deviation, pixels), and how well a single one can be seen.
const SHIFT: f64 = 0.5;
const NOISE: f64 = 0.1;
/// The corners are as good as those of the border alone if the edges are off by more than this (pixels), ...
const MAX_NOISE: f64 = 0.4;
/// ... or a corner would move farther than this.
const MAX_MOVE: f64 = 1.5;

/// The corners of a tag that is near `corners` (detector's order, pixel centres at the half); `None` where its edges do
/// not show them better than that.
pub(super) fn refined(picture: &GrayImage, pattern: &Modules, corners: &Corners) -> Option<Corners> {
    let edges = edges(pattern);
    let mut tag = Homography::through(corners)?;
    let mut shifts = [0.0; 2];
    for _ in 0..ROUNDS {
        let mut seen: Vec<Seen> = edges.iter().filter_map(|e| see(picture, &tag, shifts, e)).collect();
        let usual = median(&mut seen.iter().map(|s| s.rise).collect::<Vec<_>>())?;
        seen.retain(|s| s.rise > MIN_RISE * usual);
        if 2 * seen.len() < edges.len() {
            return None;
        }
        let x = solve(&seen, shifts)?;
        for (h, step) in tag.0.iter_mut().zip(x.iter()) {
            *h += step;
        }
        shifts = [shifts[0] + x[8], shifts[1] + x[9]];
    }
    let moved = CORNERS.map(|c| tag.at(c).position.into());
    let near = |(a, b): (&[f64; 2], &[f64; 2])| (a[0] - b[0]).hypot(a[1] - b[1]) < MAX_MOVE;
    moved.iter().zip(corners).all(near).then_some(moved)
}

/// A place on a line between a white and a black module.
struct Edge {
    /// In modules from the middle of the tag.
    at: [f64; 2],
    /// Unit vector towards the white module.
    to_white: [f64; 2],
}

/// Three places on every line between two modules, away from its ends.
fn edges(pattern: &Modules) -> Vec<Edge> {
    let half = PRINTED_MODULES as f64 / 2.0;
    let mut edges = Vec::new();
    for (y, row) in pattern.iter().enumerate() {
        for (x, white) in row.iter().enumerate() {
            for (dx, dy) in [(1, 0), (0, 1)] {
                let next = pattern.get(y + dy).and_then(|row| row.get(x + dx));
                let Some(next) = next.filter(|next| *next != white) else { continue };
                let sign = if *next { 1.0 } else { -1.0 };
                let (dx, dy) = (dx as f64, dy as f64);
                let middle = [x as f64 + 0.5 + 0.5 * dx - half, y as f64 + 0.5 + 0.5 * dy - half];
                edges.extend([-0.2, 0.0, 0.2].map(|along| Edge {
                    at: [middle[0] + along * dy, middle[1] + along * dx],
                    to_white: [sign * dx, sign * dy],
                }));
            }
        }
    }
    edges
}

/// From the plane of the tag to pixels: `(h0 x + h1 y + h2, h3 x + h4 y + h5) / (h6 x + h7 y + 1)`.
struct Homography([f64; 8]);

/// A pixel, and how it moves with its place on the tag and with the homography.
struct Projected {
    position: Vector2<f64>,
    by_place: Matrix2<f64>,
    by_homography: SMatrix<f64, 2, 8>,
}

impl Homography {
    /// The one that maps [`CORNERS`] to `corners`.
    fn through(corners: &Corners) -> Option<Self> {
        let mut matrix = SMatrix::<f64, 8, 8>::zeros();
        let mut rhs = SVector::<f64, 8>::zeros();
        for (k, ([x, y], [u, v])) in CORNERS.iter().zip(corners).enumerate() {
            matrix.set_row(2 * k, &[*x, *y, 1.0, 0.0, 0.0, 0.0, -u * x, -u * y].into());
            matrix.set_row(2 * k + 1, &[0.0, 0.0, 0.0, *x, *y, 1.0, -v * x, -v * y].into());
            (rhs[2 * k], rhs[2 * k + 1]) = (*u, *v);
        }
        matrix.lu().solve(&rhs).map(|h| Self(h.into()))
    }

    fn at(&self, [x, y]: [f64; 2]) -> Projected {
        let h = &self.0;
        let w = 1.0 / (h[6] * x + h[7] * y + 1.0);
        let (u, v) = (w * (h[0] * x + h[1] * y + h[2]), w * (h[3] * x + h[4] * y + h[5]));
        let by_place = w * Matrix2::new(h[0] - u * h[6], h[1] - u * h[7], h[3] - v * h[6], h[4] - v * h[7]);
        let mut by_homography = SMatrix::<f64, 2, 8>::zeros();
        by_homography.set_row(0, &[x, y, 1.0, 0.0, 0.0, 0.0, -u * x, -u * y].into());
        by_homography.set_row(1, &[0.0, 0.0, 0.0, x, y, 1.0, -v * x, -v * y].into());
        Projected { position: Vector2::new(u, v), by_place, by_homography: w * by_homography }
    }
}

/// What a picture shows of an edge.
struct Seen {
    /// How its distance changes with the unknowns.
    by: SVector<f64, UNKNOWNS>,
    /// Its distance from where it is expected, towards white, pixels.
    distance: f64,
    /// How much brighter white is than black.
    rise: f64,
}

fn see(picture: &GrayImage, tag: &Homography, shifts: [f64; 2], edge: &Edge) -> Option<Seen> {
    let projected = tag.at(edge.at);
    let to_white = projected.by_place * Vector2::from(edge.to_white);
    let along = projected.by_place * Vector2::new(-edge.to_white[1], edge.to_white[0]);
    let normal = Vector2::new(-along.y, along.x).try_normalize(1e-9)?;
    let normal = if normal.dot(&to_white) < 0.0 { -normal } else { normal };
    let module = normal.dot(&to_white);
    if module < MIN_MODULE {
        return None;
    }
    let axis = usize::from(edge.to_white[0] == 0.0);
    let expected = projected.position - shifts[axis] * normal;
    let (distance, rise) = locate(picture, &expected, &normal, (REACH * module).min(MAX_REACH))?;
    let mut by = SVector::<f64, UNKNOWNS>::zeros();
    by.fixed_rows_mut::<8>(0).copy_from(&(normal.transpose() * projected.by_homography).transpose());
    by[8 + axis] = -1.0;
    Some(Seen { by, distance, rise })
}

/// Where along `normal` the picture rises from black to white, as a distance from `middle`, and by how much it rises.
/// Slopes count by their square. `None` outside of the picture, or where nothing rises.
fn locate(
    picture: &GrayImage,
    middle: &Vector2<f64>,
    normal: &Vector2<f64>,
    reach: f64,
) -> Option<(f64, f64)> {
    let steps = (reach / STEP) as i32;
    let (mut moment, mut mass, mut rise) = (0.0, 0.0, 0.0);
    for k in -steps..=steps {
        let place = f64::from(k) * STEP;
        let value = |offset: f64| brightness(picture, &(middle + (place + offset) * normal));
        let slope = (value(0.5)? - value(-0.5)?).max(0.0);
        moment += slope * slope * place;
        mass += slope * slope;
        rise += slope * STEP;
    }
    (mass > 0.0).then(|| (moment / mass, rise))
}

/// Bilinear, pixel centres at the half; `None` outside.
fn brightness(picture: &GrayImage, at: &Vector2<f64>) -> Option<f64> {
    let (x, y) = (at.x - 0.5, at.y - 0.5);
    if x < 0.0 || y < 0.0 {
        return None;
    }
    let (left, top) = (x as u32, y as u32);
    let (right, down) = (x.fract(), y.fract());
    let value = |dx: u32, dy: u32| {
        picture.get_pixel_checked(left.checked_add(dx)?, top.checked_add(dy)?).map(|p| f64::from(p.0[0]))
    };
    let upper = (1.0 - right) * value(0, 0)? + right * value(1, 0)?;
    let lower = (1.0 - right) * value(0, 1)? + right * value(1, 1)?;
    Some((1.0 - down) * upper + down * lower)
}

/// The step that brings most edges to where they are seen (iteratively reweighted by Tukey's biweight); `None` if they
/// contradict each other.
fn solve(seen: &[Seen], shifts: [f64; 2]) -> Option<SVector<f64, UNKNOWNS>> {
    let prior = (NOISE / SHIFT).powi(2);
    let mut x = SVector::<f64, UNKNOWNS>::zeros();
    let mut limit = f64::INFINITY;
    for _ in 0..5 {
        let mut matrix = SMatrix::<f64, UNKNOWNS, UNKNOWNS>::zeros();
        let mut rhs = SVector::<f64, UNKNOWNS>::zeros();
        for s in seen {
            let off = (s.distance - s.by.dot(&x)) / limit;
            let weight = (1.0 - off * off).max(0.0).powi(2);
            matrix.ger(weight, &s.by, &s.by, 1.0);
            rhs.axpy(weight * s.distance, &s.by, 1.0);
        }
        for (axis, shift) in shifts.into_iter().enumerate() {
            matrix[(8 + axis, 8 + axis)] += prior;
            rhs[8 + axis] -= prior * shift;
        }
        x = matrix.cholesky()?.solve(&rhs);
        let mut errors: Vec<f64> = seen.iter().map(|s| (s.distance - s.by.dot(&x)).abs()).collect();
        let noise = SIGMA_OF_MAD * median(&mut errors)?;
        if noise > MAX_NOISE {
            return None;
        }
        limit = 4.685 * noise.max(0.02);
    }
    Some(x)
}

#[cfg(test)]
#[cfg(feature = "tags")]
mod tests {
    use super::*;
    use crate::fiducial::modules;
    use crate::random::Random;

    /// What a camera sees of tag `id` whose corners are at `corners`: linear light averaged over pixels, then
    /// `encode`d.
    fn filmed(id: u32, corners: &Corners, encode: impl Fn(f64) -> f64, noise: f64) -> GrayImage {
        const FINE: u32 = 12;
        let pattern = modules(id).unwrap();
        let h = Homography::through(corners).unwrap().0;
        let to_pixels = nalgebra::Matrix3::new(h[0], h[1], h[2], h[3], h[4], h[5], h[6], h[7], 1.0);
        let to_tag = to_pixels.try_inverse().unwrap();
        let mut random = Random::new(u64::from(id));
        GrayImage::from_fn(160, 150, |px, py| {
            let mut light = 0.0;
            for k in 0..FINE * FINE {
                let fine =
                    |pixel: u32, part: u32| f64::from(pixel) + (f64::from(part) + 0.5) / f64::from(FINE);
                let (x, y) = (fine(px, k % FINE), fine(py, k / FINE));
                let p = to_tag * nalgebra::Vector3::new(x, y, 1.0);
                let cell = |v: f64| (v / p.z + 4.5).floor();
                let (column, row) = (cell(p.x), cell(p.y));
                let inside = (0.0..9.0).contains(&column) && (0.0..9.0).contains(&row);
                let white = !inside || pattern[row as usize][column as usize];
                light += if white { 0.75 } else { 0.03 };
            }
            let value = 255.0 * encode(light / f64::from(FINE * FINE)) + noise * random.normal();
            image::Luma([value.round().clamp(0.0, 255.0) as u8])
        })
    }

    fn distances(a: &Corners, b: &Corners) -> [f64; 4] {
        std::array::from_fn(|k| (a[k][0] - b[k][0]).hypot(a[k][1] - b[k][1]))
    }

    fn mean_edge(c: &Corners) -> f64 {
        (0..4).map(|k| (c[k][0] - c[(k + 1) % 4][0]).hypot(c[k][1] - c[(k + 1) % 4][1])).sum::<f64>() / 4.0
    }

    /// Seen upright, turned, and aslant; edges of 25 to 42 pixels.
    const VIEWS: [Corners; 3] = [
        [[60.3, 92.4], [100.3, 92.4], [100.3, 52.4], [60.3, 52.4]],
        [[54.2, 78.1], [83.7, 103.3], [107.9, 74.2], [79.1, 49.5]],
        [[55.7, 85.2], [97.1, 91.6], [90.4, 64.3], [59.2, 60.1]],
    ];

    #[test]
    fn corners_are_true_however_light_is_encoded() {
        type Encoding = fn(f64) -> f64;
        let encodings: [(&str, Encoding); 3] =
            [("gamma", |l| l.powf(1.0 / 2.2)), ("linear", |l| l), ("dark", |l| l.powf(1.5))];
        let mut borders = crate::fiducial::library::Search::new().unwrap();
        for (name, encode) in encodings {
            let (mut bare, mut own) = (Vec::new(), Vec::new());
            for (k, corners) in VIEWS.iter().enumerate() {
                for id in [0, 7, 300, 2114] {
                    let mut picture = filmed(id, corners, encode, 1.5);
                    let rough = corners.map(|c| [c[0] + 0.4, c[1] - 0.3]);
                    let found = refined(&picture, &modules(id).unwrap(), &rough).unwrap();
                    let off = distances(&found, corners);
                    assert!(off.iter().all(|d| *d < 0.15), "{name}, view {k}, tag {id}: {off:?}");
                    own.push(mean_edge(&found) / mean_edge(corners) - 1.0);
                    let border = borders.tags(&mut picture);
                    assert_eq!(border[0].id, id);
                    bare.push(mean_edge(&border[0].corners) / mean_edge(corners) - 1.0);
                }
            }
            let mean = |v: &[f64]| v.iter().sum::<f64>() / v.len() as f64;
            println!(
                "{name}: {:+.3} %, by the border alone {:+.3} %",
                100.0 * mean(&own),
                100.0 * mean(&bare)
            );
            assert!(mean(&own).abs() < 1.5e-3, "{name}: {own:?}");
            // What it is for.
            assert!(name == "linear" || mean(&bare).abs() > 3e-3, "{name}: {bare:?}");
        }
    }

    #[test]
    fn what_does_not_show_the_pattern_is_left_as_it_is() {
        let corners = &VIEWS[0];
        let picture = filmed(7, corners, |l| l, 1.0);
        let gray = GrayImage::from_pixel(160, 150, image::Luma([90]));
        assert!(refined(&gray, &modules(7).unwrap(), corners).is_none(), "no tag");
        let outside = corners.map(|c| [c[0] + 140.0, c[1]]);
        assert!(refined(&picture, &modules(7).unwrap(), &outside).is_none(), "beyond the picture");
    }

    #[test]
    fn a_finger_over_a_part_of_the_tag_does_no_harm() {
        let corners = &VIEWS[0];
        let mut picture = filmed(12, corners, |l| l.powf(1.0 / 2.2), 1.0);
        for y in 0..70 {
            for x in 88..150 {
                picture.put_pixel(x, y, image::Luma([140]));
            }
        }
        let found = refined(&picture, &modules(12).unwrap(), corners).unwrap();
        let off = distances(&found, corners);
        assert!(off.iter().all(|d| *d < 0.4), "{off:?}");
    }
}
