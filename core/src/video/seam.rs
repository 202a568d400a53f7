//! Whether pictures are panoramas, where the file does not say so: editors and messengers drop what the camera wrote.
//!
//! In: luma pictures that are twice as wide as high. Out: yes, if all that is true of a panorama is seen in them: the left
//! edge goes on at the right one; at the upper and the lower edge, each of which is one direction, the picture has one
//! colour. Any doubt is a no: to take an ordinary film for a panorama would spoil it.

use crate::statistics::median;

/// So many pictures must agree.
const LEAST_AGREEING: usize = 5;
/// For each that disagrees so many must agree.
const AGREEING_FOR_ONE: usize = 8;
/// Rows nearer to the poles than this part of the height say nothing about the edges: there all columns are alike.
const POLAR: f64 = 0.125;
/// Grey levels by which unrelated columns must differ, or all is alike and nothing is known.
const LEAST_DIFFERENCE: f64 = 8.0;
/// Standard deviation, grey levels, of the fine detail down the edges that is theirs alone; with less, a blank wall
/// continues any other.
const LEAST_DETAIL: f64 = 1.5;
/// Unrelated columns differ so many times as much as the edges do.
const CLEARLY: f64 = 3.0;
/// Correlation of the fine detail of both edges, at least: that of unrelated columns is below 0.3.
const LEAST_CORRELATION: f64 = 0.4;
/// The same, as a part of that of columns that are neighbours.
const LEAST_OF_NEIGHBOURS: f64 = 0.7;
/// Standard deviation along the row at a pole at most, as a part of what rows usually have.
const POLE_PART: f64 = 0.2;
/// Grey levels that it may always have: noise of compression.
const POLE_NOISE: f64 = 2.0;
/// Grey levels by which the left edge must change in the course of the film: a frame around a film does not.
const LEAST_CHANGE: f64 = 1.5;

/// Whether `pictures` (luma, row by row, `width` pixels wide, all of one size), taken at different times, are panoramas.
pub(super) fn are_panoramas(pictures: &[Vec<u8>], width: usize) -> bool {
    let looks: Vec<(Picture, Look)> = pictures
        .iter()
        .filter_map(|pixels| {
            let picture = Picture::new(pixels, width)?;
            let look = picture.look();
            Some((picture, look))
        })
        .collect();
    let agreeing: Vec<&Picture> =
        looks.iter().filter(|(_, l)| *l == Look::Panorama).map(|(p, _)| p).collect();
    let disagreeing = looks.iter().filter(|(_, l)| *l == Look::Ordinary).count();
    if agreeing.len() < LEAST_AGREEING || agreeing.len() < AGREEING_FOR_ONE * disagreeing {
        return false;
    }
    let first = agreeing[0].column(0);
    agreeing.iter().any(|picture| difference(&first, &picture.column(0)) >= LEAST_CHANGE)
}

/// What one picture says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Look {
    Panorama,
    Ordinary,
    /// Too little is seen at its edges.
    Unknown,
}

struct Picture<'a> {
    pixels: &'a [u8],
    width: usize,
    height: usize,
}

impl<'a> Picture<'a> {
    /// None of what is too small to tell.
    fn new(pixels: &'a [u8], width: usize) -> Option<Self> {
        let height = pixels.len().checked_div(width)?;
        (width >= 64 && height >= 32).then_some(Self { pixels, width, height })
    }

    fn row(&self, y: usize) -> &'a [u8] {
        &self.pixels[y * self.width..][..self.width]
    }

    /// Column `x` without its ends at the poles.
    fn column(&self, x: usize) -> Vec<f64> {
        let polar = (POLAR * self.height as f64) as usize;
        (polar..self.height - polar).map(|y| f64::from(self.row(y)[x])).collect()
    }

    /// The mean of each row, of the rows that [`Picture::column`] has.
    fn mean_column(&self) -> Vec<f64> {
        let polar = (POLAR * self.height as f64) as usize;
        (polar..self.height - polar).map(|y| mean(self.row(y).iter().map(|&v| f64::from(v)))).collect()
    }

    fn look(&self) -> Look {
        let last = self.width - 1;
        let [left, inner_left, inner_right, right] = [0, 1, last - 1, last].map(|x| self.column(x));
        let usual = self.mean_column();
        let detail = |column: &[f64]| fine_detail(column, &usual);
        let details = [&left, &inner_left, &inner_right, &right].map(|c| detail(c));
        let apart = |near: usize| difference(&self.column(near), &self.column(last - near));
        let from_edges = |x: usize| {
            let column = self.column(x);
            difference(&left, &column).min(difference(&right, &column))
        };
        let eighth = self.width / 8;
        let mut unrelated: Vec<f64> =
            (eighth..=last - eighth).step_by((self.width / 64).max(1)).map(from_edges).collect();
        let unrelated = median(&mut unrelated).unwrap_or(0.0);
        if unrelated < LEAST_DIFFERENCE
            || deviation(&details[0]) < LEAST_DETAIL
            || deviation(&details[3]) < LEAST_DETAIL
        {
            return Look::Unknown;
        }

        let seam = difference(&left, &right);
        let neighbours = difference(&left, &inner_left).max(difference(&right, &inner_right));
        let alike = correlation(&details[0], &details[3]);
        let neighbours_alike =
            correlation(&details[0], &details[1]).min(correlation(&details[2], &details[3]));
        let goes_on = seam <= 1.5 * neighbours + 1.0
            && CLEARLY * seam <= unrelated
            // A picture beside its mirror image goes on at the edges, and everywhere else.
            && CLEARLY * seam <= apart(eighth)
            && apart(eighth) >= LEAST_DIFFERENCE
            && alike >= LEAST_CORRELATION.max(LEAST_OF_NEIGHBOURS * neighbours_alike);
        let along = |y: usize| deviation(&self.row(y).iter().map(|&v| f64::from(v)).collect::<Vec<_>>());
        let mut rows: Vec<f64> = (0..self.height).step_by((self.height / 32).max(1)).map(along).collect();
        let usual = median(&mut rows).unwrap_or(0.0);
        let is_pole = |y: usize| along(y) <= POLE_NOISE.max(POLE_PART * usual);
        match goes_on && is_pole(0) && is_pole(self.height - 1) {
            true => Look::Panorama,
            false => Look::Ordinary,
        }
    }
}

/// How a column changes downwards, other than all columns do: a horizon continues any other.
fn fine_detail(column: &[f64], usual: &[f64]) -> Vec<f64> {
    let own: Vec<f64> = column.iter().zip(usual).map(|(c, u)| c - u).collect();
    own.windows(2).map(|w| w[1] - w[0]).collect()
}

fn mean(values: impl ExactSizeIterator<Item = f64>) -> f64 {
    let count = values.len().max(1) as f64;
    values.sum::<f64>() / count
}

fn deviation(values: &[f64]) -> f64 {
    let middle = mean(values.iter().copied());
    mean(values.iter().map(|v| (v - middle).powi(2))).sqrt()
}

/// Mean absolute difference.
fn difference(a: &[f64], b: &[f64]) -> f64 {
    mean(a.iter().zip(b).map(|(a, b)| (a - b).abs()))
}

fn correlation(a: &[f64], b: &[f64]) -> f64 {
    let (mean_a, mean_b) = (mean(a.iter().copied()), mean(b.iter().copied()));
    let covariance = mean(a.iter().zip(b).map(|(a, b)| (a - mean_a) * (b - mean_b)));
    covariance / (deviation(a) * deviation(b)).max(1e-9)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::camera::panorama::direction_in_panorama;
    use crate::video::panorama_tests::texture;
    use nalgebra::Vector3;

    const WIDTH: usize = 256;
    const HEIGHT: usize = 128;

    fn film(pixel: impl Fn(usize, usize, usize) -> f64) -> Vec<Vec<u8>> {
        let picture = |k| {
            (0..WIDTH * HEIGHT)
                .map(|i| {
                    // Noise of compression.
                    let noise = (crate::random::hash((k * WIDTH * HEIGHT + i) as u64) % 5) as f64 - 2.0;
                    (pixel(k, i % WIDTH, i / WIDTH) + noise).clamp(0.0, 255.0) as u8
                })
                .collect()
        };
        (0..9).map(picture).collect()
    }

    fn direction(x: usize, y: usize) -> Vector3<f64> {
        direction_in_panorama([(x as f64 + 0.5) / WIDTH as f64, (y as f64 + 0.5) / HEIGHT as f64])
    }

    /// What an ordinary lens sees that turns and goes on.
    fn ordinary(k: usize, x: usize, y: usize) -> f64 {
        let side = 0.9 / WIDTH as f64;
        let at = Vector3::new((x as f64 - 128.0) * side, (y as f64 - 64.0) * side, 1.0);
        texture(&(2.0 * at.normalize() + Vector3::new(0.08 * k as f64, 0.0, 0.0)))
    }

    #[test]
    fn a_panorama_without_its_description_is_recognised() {
        let walk =
            |k: usize, x, y| texture(&(1.5 * direction(x, y) + Vector3::new(0.05 * k as f64, 0.0, 0.0)));
        assert!(are_panoramas(&film(walk), WIDTH));
        // Behind the camera is a blank wall for most of the time: what is seen in the rest is enough.
        let past_a_wall = |k: usize, x, y| {
            let seen = direction(x, y);
            if k < 4 && seen.z < -0.6 { 150.0 } else { walk(k, x, y) }
        };
        assert!(are_panoramas(&film(past_a_wall), WIDTH));
        // One title or transition does not count.
        let titled = |k: usize, x, y| if k == 0 { ordinary(k, x, y) } else { walk(k, x, y) };
        assert!(are_panoramas(&film(titled), WIDTH));
    }

    #[test]
    fn ordinary_films_are_none() {
        assert!(!are_panoramas(&film(ordinary), WIDTH));
        let bars =
            |k: usize, x: usize, y: usize| if (16..112).contains(&y) { ordinary(k, x, y) } else { 0.0 };
        assert!(!are_panoramas(&film(bars), WIDTH), "black bars above and below");
        let all_round =
            |k: usize, x: usize, y: usize| if (24..232).contains(&x) { bars(k, x, y) } else { 0.0 };
        assert!(!are_panoramas(&film(all_round), WIDTH), "black bars all round");
        let before_a_wall =
            |k: usize, x: usize, y: usize| if (48..208).contains(&x) { bars(k, x, y) } else { 140.0 };
        assert!(!are_panoramas(&film(before_a_wall), WIDTH), "a thing before a blank wall");
        let shaded = |k: usize, x: usize, y: usize| {
            if (48..208).contains(&x) { ordinary(k, x, y) } else { 60.0 + 1.2 * y as f64 }
        };
        assert!(!are_panoramas(&film(shaded), WIDTH), "a thing before a wall that gets lighter downwards");
        let sea = |k: usize, x: usize, y: usize| {
            if (48..208).contains(&x) && (32..96).contains(&y) {
                ordinary(k, x, y)
            } else if y < 64 {
                200.0
            } else {
                70.0
            }
        };
        assert!(!are_panoramas(&film(sea), WIDTH), "a thing before the sea");
        let mirrored = |k: usize, x: usize, y: usize| bars(k, x.min(WIDTH - 1 - x), y);
        assert!(!are_panoramas(&film(mirrored), WIDTH), "beside its mirror image");
        let ornament = |k: usize, x: usize, y: usize| {
            let edge = x.min(WIDTH - 1 - x);
            if edge < 24 { ordinary(0, edge, y) } else { bars(k, x, y) }
        };
        assert!(!are_panoramas(&film(ornament), WIDTH), "within an ornament");
        assert!(!are_panoramas(&film(|_, _, _| 120.0), WIDTH), "nothing at all");
        assert!(!are_panoramas(&[], WIDTH) && !are_panoramas(&[vec![0; 20]], 6));
    }

    #[test]
    fn edges_that_continue_each_other_without_poles_are_not_enough() {
        // A cylinder: it goes round, but its upper and lower edges are no points.
        let cylinder = |k: usize, x: usize, y: usize| {
            let around = direction(x, HEIGHT / 2);
            texture(&(1.5 * around + Vector3::new(0.05 * k as f64, y as f64 * 0.015, 0.0)))
        };
        assert!(!are_panoramas(&film(cylinder), WIDTH));
        // And poles without the edges: a panorama of which a part was cut off.
        let cut = |k: usize, x: usize, y: usize| {
            let place = [0.4 * (x as f64 + 0.5) / WIDTH as f64 + 0.2, (y as f64 + 0.5) / HEIGHT as f64];
            texture(&(1.5 * direction_in_panorama(place) + Vector3::new(0.05 * k as f64, 0.0, 0.0)))
        };
        assert!(!are_panoramas(&film(cut), WIDTH));
    }
}
