//! The scale space: a picture at every blur at which keypoints are sought.
//!
//! Levels of an octave are blurred by `1.6 · 2^(i/3)`, i = 0…5, in pixels of that octave; the next octave starts from
//! level 3 at half the size (Lowe 2004, section 3). Pixel (i, j) of an octave lies on pixel (2i, 2j) of the next finer
//! one.

use std::ops::Range;

use image::GrayImage;

use super::blur::Blur;
use super::blur_sums::BAND;
use super::plane::Plane;

/// Levels per doubling of the scale.
pub(super) const SCALES_PER_OCTAVE: usize = 3;
/// Blur of the first level of an octave.
pub(super) const BASE_SIGMA: f32 = 1.6;
/// Gaussian levels of an octave: extrema of three differences need five differences, these six levels.
pub(super) const LEVELS: usize = SCALES_PER_OCTAVE + 3;
/// Octaves from the native one on. Keypoints of coarser ones would be few and badly localised.
const MAX_OCTAVE: i32 = 3;
/// An octave with a shorter side than this has no room for a descriptor.
const MIN_SIDE: usize = 16;

/// Blur of level `level` (fractions allowed) in pixels of its octave.
pub(super) fn sigma_of_level(level: f32) -> f32 {
    BASE_SIGMA * (level / SCALES_PER_OCTAVE as f32).exp2()
}

/// Rows on either side that the search for extrema may look at.
pub(super) const REACH: usize = 5;
/// Rows behind the last one that a blur or the search still looks at, with room to spare: the largest radius is 13.
const MAX_LOOK_BACK: usize = 32;

/// One octave, which is made from the top down: all levels advance together, so that what the next level and the search
/// for extrema need of a level is still in the cache, and levels that nobody needs later are never there as a whole.
pub(super) struct Octave<'a> {
    /// Pixels of the picture per pixel of the octave, as a power of two: −1 is the doubled picture.
    pub(super) index: i32,
    /// Rows of the picture and the blur to the first level, in the finest octave.
    picture: Option<(PictureRows<'a>, Blur)>,
    /// The Gaussian levels.
    pub(super) levels: [Plane; LEVELS],
    /// From each level to the next.
    blurs: [Blur; LEVELS - 1],
    /// Rows that the search for extrema has seen.
    searched: usize,
}

impl<'a> Octave<'a> {
    /// The finest octave of a picture, of which no row is made yet; none of one that is too small.
    pub(super) fn finest(luma: &'a GrayImage, doubled: bool) -> Option<Self> {
        let rows = PictureRows::new(luma, doubled);
        let (width, height) = (rows.plane.width, rows.plane.height);
        // Lowe subtracts the blur that a camera picture has already (0.5 pixels). Leaving it in gives 5 to 35 % more
        // correct matches on real captures, with smaller errors: noise and pixel grid disturb the finest level less.
        let blur = Blur::new(BASE_SIGMA, width);
        let index = if doubled { -1 } else { 0 };
        Self::new(index, width, height, |kept| (Plane::rolling(width, height, kept), Some((rows, blur))))
    }

    fn new(
        index: i32,
        width: usize,
        height: usize,
        first: impl FnOnce(usize) -> (Plane, Option<(PictureRows<'a>, Blur)>),
    ) -> Option<Self> {
        if width.min(height) < MIN_SIDE || index > MAX_OCTAVE {
            return None;
        }
        let blurs: [Blur; LEVELS - 1] = std::array::from_fn(|i| {
            let (from, to) = (sigma_of_level(i as f32), sigma_of_level(i as f32 + 1.0));
            Blur::new((to.powi(2) - from.powi(2)).sqrt(), width)
        });
        // How far a level is ahead of the last one; a band is made at a time, and the search looks back.
        let ahead = |level: usize| blurs[level..].iter().map(|blur| blur.radius() + BAND).sum::<usize>();
        let kept = |level: usize| ahead(level) + 2 * BAND + MAX_LOOK_BACK;
        let (first, picture) = first(kept(0));
        let mut first = Some(first);
        let levels = std::array::from_fn(|level| match level {
            0 => first.take().unwrap_or_else(|| Plane::with_capacity(0, 0)),
            1..=SCALES_PER_OCTAVE => Plane::with_capacity(width, height),
            _ => Plane::rolling(width, height, kept(level)),
        });
        Some(Self { index, picture, levels, blurs, searched: 0 })
    }

    /// Makes further rows. Returns those that extrema can be sought in: they and the [`REACH`] rows on either side are
    /// there in all levels, until the next call. None if all were returned.
    pub(super) fn extend(&mut self) -> Option<Range<usize>> {
        let height = self.levels[0].height;
        if self.searched == height {
            return None;
        }
        let mut wanted = [0; LEVELS];
        wanted[LEVELS - 1] = (self.levels[LEVELS - 1].rows() + BAND).min(height);
        for level in (1..LEVELS).rev() {
            let radius = self.blurs[level - 1].radius();
            wanted[level - 1] = (wanted[level].next_multiple_of(BAND) + radius).min(height);
        }
        if let Some((rows, blur)) = &mut self.picture {
            let first = &mut self.levels[0];
            while first.rows() < wanted[0] {
                blur.extend(rows.up_to(first.rows() + BAND + blur.radius()), first);
            }
        }
        for level in 1..LEVELS {
            let (below, above) = self.levels.split_at_mut(level);
            while above[0].rows() < wanted[level] {
                self.blurs[level - 1].extend(&below[level - 1], &mut above[0]);
            }
        }
        let made = self.levels[LEVELS - 1].rows();
        let end = if made == height { height } else { made.saturating_sub(REACH) };
        let rows = self.searched..end;
        self.searched = end;
        Some(rows)
    }

    /// The levels at which keypoints are described, 1, 2 and 3, and the next octave, once all rows are made.
    pub(super) fn finish(self) -> ([Plane; SCALES_PER_OCTAVE], Option<Self>) {
        let [_, first, second, third, ..] = self.levels;
        let base = halve(&third);
        let next = Self::new(self.index + 1, base.width, base.height, |_| (base, None));
        ([first, second, third], next)
    }
}

/// The rows of a picture, luma from 0 to 1, made when they are needed.
struct PictureRows<'a> {
    luma: &'a GrayImage,
    doubled: bool,
    plane: Plane,
    /// Rows of the picture, above and below a row between them.
    above: Vec<f32>,
    below: Vec<f32>,
}

impl<'a> PictureRows<'a> {
    fn new(luma: &'a GrayImage, doubled: bool) -> Self {
        let size =
            |pixels: u32| if doubled { (2 * pixels as usize).saturating_sub(1) } else { pixels as usize };
        let (width, height) = (size(luma.width()), size(luma.height()));
        let plane = Plane::rolling(width, height, 2 * MAX_LOOK_BACK);
        let between = || vec![0.0; luma.width() as usize];
        Self { luma, doubled, plane, above: between(), below: between() }
    }

    /// With at least that many rows, or all.
    fn up_to(&mut self, rows: usize) -> &Plane {
        while self.plane.rows() < rows.min(self.plane.height) {
            let y = self.plane.rows();
            if self.doubled {
                read_row(self.luma, y / 2, &mut self.above);
                read_row(self.luma, y.div_ceil(2), &mut self.below);
                double(&self.above, &self.below, self.plane.next_row());
            } else {
                read_row(self.luma, y, self.plane.next_row());
            }
        }
        &self.plane
    }
}

/// Row `y` of the picture.
fn read_row(luma: &GrayImage, y: usize, row: &mut [f32]) {
    let start = y * row.len();
    for (value, luma) in row.iter_mut().zip(&luma.as_raw()[start..]) {
        *value = f32::from(*luma) / 255.0;
    }
}

/// Every second pixel of every second row.
fn halve(plane: &Plane) -> Plane {
    let (width, height) = (plane.width.div_ceil(2), plane.height.div_ceil(2));
    let mut halved = Plane::with_capacity(width, height);
    for y in 0..height {
        let row = halved.next_row();
        row.iter_mut().zip(plane.row(2 * y).iter().step_by(2)).for_each(|(to, from)| *to = *from);
    }
    halved
}

/// A row of the picture at twice its size (less one row and column), between two rows or, if they are the same, on one:
/// pixel (2i, 2j) is pixel (i, j), those between are means of their neighbours. That blurs a little more than a cubic
/// would, which is to the good (see [`Octave::finest`]).
fn double(above: &[f32], below: &[f32], row: &mut [f32]) {
    let mean = |x: usize| 0.5 * (above[x] + below[x]);
    for (x, pixels) in row.chunks_mut(2).enumerate() {
        pixels[0] = mean(x);
        if let Some(between) = pixels.get_mut(1) {
            *between = 0.5 * (mean(x) + mean(x + 1));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ramp_stays_a_ramp_in_every_octave() {
        // Luma 40 + x + 2 y at pixel (x, y) of the picture.
        let luma = GrayImage::from_fn(60, 50, |x, y| image::Luma([(40 + x + 2 * y) as u8]));
        for doubled in [false, true] {
            let mut seen = Vec::new();
            let mut octave = Octave::finest(&luma, doubled);
            while let Some(mut here) = octave {
                seen.push(here.index);
                let mut searched = 0;
                while let Some(rows) = here.extend() {
                    assert_eq!(rows.start, searched);
                    searched = rows.end;
                }
                assert_eq!(searched, here.levels[0].height);
                let pixel = (here.index as f32).exp2();
                let plane = &here.levels[1];
                let (x, y) = (plane.width / 2, plane.height / 2);
                // The coarser octaves are border all over.
                if here.index <= 0 {
                    let expected = (40.0 + pixel * (x as f32 + 2.0 * y as f32)) / 255.0;
                    assert!((plane.row(y)[x] - expected).abs() < 1e-4);
                }
                octave = here.finish().1;
            }
            assert_eq!(seen, if doubled { vec![-1, 0, 1] } else { vec![0, 1] });
        }
    }

    /// Rows that are not kept any more would be missed here.
    #[test]
    fn the_surroundings_of_rows_are_there_at_any_height() {
        for height in [16, 17, 63, 64, 129, 530] {
            for doubled in [false, true] {
                let luma = GrayImage::from_fn(20, height, |_, y| image::Luma([(y * y % 251) as u8]));
                let mut octave = Octave::finest(&luma, doubled);
                while let Some(mut here) = octave {
                    let mut copies: [Vec<f32>; LEVELS] = Default::default();
                    while let Some(rows) = here.extend() {
                        for y in
                            rows.start.saturating_sub(REACH)..(rows.end + REACH).min(here.levels[0].height)
                        {
                            if rows.is_empty() {
                                break;
                            }
                            for (level, copy) in here.levels.iter().zip(&mut copies) {
                                match copy.get(y) {
                                    Some(&before) => assert_eq!(level.row(y)[7], before),
                                    None => copy.push(level.row(y)[7]),
                                }
                            }
                        }
                    }
                    for (level, copy) in here.levels.iter().zip(&copies) {
                        assert_eq!(copy.len(), level.height);
                    }
                    octave = here.finish().1;
                }
            }
        }
    }

    #[test]
    fn doubling_keeps_pixels_and_fills_between_them() {
        let luma = GrayImage::from_raw(2, 2, vec![0, 51, 102, 255]).unwrap();
        let mut rows = PictureRows::new(&luma, true);
        let doubled = rows.up_to(3);
        assert_eq!((doubled.width, doubled.height), (3, 3));
        let expected = [[0.0, 0.1, 0.2], [0.2, 0.4, 0.6], [0.4, 0.7, 1.0]];
        for (y, expected) in expected.iter().enumerate() {
            assert!(doubled.row(y).iter().zip(expected).all(|(a, b): (&f32, &f32)| (a - b).abs() < 1e-6));
        }
        let halved = halve(doubled);
        assert!((0..2).all(|y| halved.row(y) == [doubled.row(2 * y)[0], doubled.row(2 * y)[2]]));
    }
}
