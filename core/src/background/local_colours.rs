//! What colours the object has near each place of its outline, and what is beside it there. Over the whole outline many colours are
//! on both sides: bricks before a red wall, and the wall before grey ground. Near one place few are (after Bai, Wang, Simons &
//! Sapiro, "Video SnapCut", SIGGRAPH 2009).

use super::colours::brightness_and_differences as colour;
use super::evidence::Odds;
use super::guided_filter::{NONE, box_mean};
use super::shown::Shown;
use super::views::SalientView;
use crate::defaults::with_defaults;

with_defaults! {
    /// How colours on both sides of an outline are compared. Chosen by hand.
    #[derive(Debug, Clone, PartialEq)]
    pub(super) struct LocalColourOptions {
        /// Half of the side (pixels) of the square around a pixel in which colours teach what it is.
        window: usize = 16,
        /// Number of colours that are told apart in a view.
        colours: usize = 24,
        /// Colours farther than this from each other (in levels of 0 to 255) are different ones.
        same: f32 = 30.0,
        /// Part (0 to 1) of the square that must be object and part that must be around it for the colours to be fully believed.
        least: f32 = 0.03,
        /// Part (0 to 1) of the pixels of a side that a colour must have for its odds to be believed.
        rare: f32 = 0.01,
        /// Most that the log odds may be, either way.
        most: f32 = 3.0,
        /// Part (0 to 1) of them that counts. With all of them real captures came out a little better, and films of pictures as small
        /// as those in which colours are compared, so that an outline's own pixels are a mixture, a little worse than without any.
        weight: f32 = 0.6,
        /// Part (0 to 1) that is left of what else a pixel was told, where both sides differ altogether: it knows nothing of the place.
        left: f32 = 0.5,
    }
}

/// Number of pixels from which the colours of a view are taken, about.
const SAMPLES: usize = 4096;
/// Number of times that the colours of a view move to the middle of the pixels that look like them.
const MOVES: usize = 4;

/// By pixel of `view`: the log odds of object that it was `told`, and those by its colour and the colours nearby that are surely object
/// or surely not: farther than `rim` pixels from the outline. They count the less the more alike both sides look. Pixels near which there
/// are none of either side keep what they were told.
pub(super) fn with_local_colours(
    view: &SalientView,
    told: &[Odds],
    shown: &[Shown],
    rim: usize,
    options: &LocalColourOptions,
) -> Vec<Odds> {
    let mut odds = told.to_vec();
    let Some(part) = Part::around_object(view, shown, options.window + rim + 1) else { return odds };
    let (width, height) = (part.width, part.height);
    let colours: Vec<Colour> = part.pixels().map(|pixel| colour(view.colours[pixel])).collect();
    let is = |wanted: Shown| part.pixels().map(move |pixel| f32::from(u8::from(shown[pixel] == wanted)));
    let averaged = |mut plane: Vec<f32>, radius: usize| {
        box_mean(&mut plane, width, height, radius);
        plane
    };
    let inside = averaged(is(Shown::Object).collect(), rim);
    let free: Vec<f32> = is(Shown::Nothing).collect();
    let object: Vec<f32> = inside.iter().map(|part| f32::from(u8::from(*part > 1.0 - NONE))).collect();
    let around: Vec<f32> =
        inside.iter().zip(&free).map(|(part, free)| if *part < NONE { *free } else { 0.0 }).collect();
    let object_near = averaged(object.clone(), options.window);
    let around_near = averaged(around.clone(), options.window);
    let is_asked = |k: &usize| object_near[*k] > NONE && around_near[*k] > NONE;
    let asked: Vec<usize> = (0..inside.len()).filter(is_asked).collect();
    let teaches = |k: &&usize| object[**k] + around[**k] > 0.0;
    let teachers: Vec<Colour> = asked.iter().filter(teaches).map(|&k| colours[k]).collect();
    let palette = palette(&teachers, options.colours);
    let likeness = |k: usize, of: &Colour| likeness(&colours[k], of, options.same);
    let mut total = vec![1e-6f32; colours.len()];
    for of in &palette {
        total.iter_mut().enumerate().for_each(|(k, total)| *total += likeness(k, of));
    }
    let (mut said, mut alike) = (vec![0.0f32; asked.len()], vec![0.0f32; asked.len()]);
    for of in &palette {
        let like: Vec<f32> = total.iter().enumerate().map(|(k, total)| likeness(k, of) / total).collect();
        let seen_on = |side: &[f32]| {
            averaged(side.iter().zip(&like).map(|(side, like)| side * like).collect(), options.window)
        };
        let (on_object, on_around) = (seen_on(&object), seen_on(&around));
        for (place, &k) in asked.iter().enumerate() {
            // Running sums may leave less than nothing.
            let a = (on_object[k] / object_near[k]).max(0.0);
            let b = (on_around[k] / around_near[k]).max(0.0);
            alike[place] += (a * b).sqrt();
            said[place] += like[k] * ((a + options.rare) / (b + options.rare)).ln();
        }
    }
    for (place, &k) in asked.iter().enumerate() {
        // Of a colour that is like none of them nothing is known.
        let known = (object_near[k].min(around_near[k]) / options.least).min(1.0) * total[k].min(1.0);
        // One less the Bhattacharyya coefficient of what is on either side: 0 if they are the same.
        let differ = known * (1.0 - alike[place]).clamp(0.0, 1.0);
        let said = options.weight * said[place].clamp(-options.most, options.most);
        let odds = &mut odds[part.pixel(k)];
        *odds = Odds::new((1.0 - (1.0 - options.left) * differ) * odds.log_odds() + differ * said);
    }
    odds
}

/// A rectangle of a picture.
struct Part {
    /// The pixel in its corner.
    first: usize,
    width: usize,
    height: usize,
    /// Width of the picture.
    stride: usize,
}

impl Part {
    /// What is so near to the object; `None` if there is none.
    fn around_object(view: &SalientView, shown: &[Shown], margin: usize) -> Option<Self> {
        let (stride, rows) = view.size();
        let (mut left, mut right, mut top, mut bottom) = (stride, 0, rows, 0);
        for (pixel, _) in shown.iter().enumerate().filter(|(_, shown)| **shown == Shown::Object) {
            let (x, y) = (pixel % stride, pixel / stride);
            (left, right, top, bottom) = (left.min(x), right.max(x), top.min(y), bottom.max(y));
        }
        if left > right {
            return None;
        }
        let (left, top) = (left.saturating_sub(margin), top.saturating_sub(margin));
        let (right, bottom) = ((right + margin).min(stride - 1), (bottom + margin).min(rows - 1));
        Some(Self { first: top * stride + left, width: right - left + 1, height: bottom - top + 1, stride })
    }

    /// The pixel of the picture that is the `k`-th of the part, row by row.
    fn pixel(&self, k: usize) -> usize {
        self.first + k / self.width * self.stride + k % self.width
    }

    fn pixels(&self) -> impl Iterator<Item = usize> + '_ {
        (0..self.width * self.height).map(|k| self.pixel(k))
    }
}

/// Brightness and two colour differences, in levels of 0 to 255 and around 0: of the same differences, eyes see those of brightness
/// best.
type Colour = [f32; 3];

fn square_distance(a: &Colour, b: &Colour) -> f32 {
    (a[0] - b[0]).powi(2) + (a[1] - b[1]).powi(2) + (a[2] - b[2]).powi(2)
}

/// 1 for the same colours, less the farther they are apart, and 0 from a distance of `same` on.
fn likeness(a: &Colour, b: &Colour, same: f32) -> f32 {
    let left = (1.0 - square_distance(a, b) / (same * same)).max(0.0);
    left * left
}

/// So many of the `colours` that all of them are near to one: k-means, begun with those that are farthest from each other. Fewer, if
/// there are not so many.
fn palette(colours: &[Colour], count: usize) -> Vec<Colour> {
    let samples: Vec<Colour> =
        colours.iter().step_by(colours.len().div_ceil(SAMPLES).max(1)).copied().collect();
    let mut palette: Vec<Colour> = Vec::with_capacity(count);
    let mut nearest = vec![f32::INFINITY; samples.len()];
    while palette.len() < count {
        let farthest = nearest.iter().enumerate().max_by(|a, b| a.1.total_cmp(b.1).then(b.0.cmp(&a.0)));
        let Some((farthest, _)) = farthest.filter(|(_, distance)| **distance > 0.0) else { break };
        let next = samples[farthest];
        palette.push(next);
        for (sample, nearest) in samples.iter().zip(&mut nearest) {
            *nearest = nearest.min(square_distance(sample, &next));
        }
    }
    for _ in 0..MOVES {
        let mut sums = vec![([0.0f32; 3], 0.0f32); palette.len()];
        for sample in &samples {
            let distance = |of: &(usize, &Colour)| square_distance(sample, of.1);
            let nearest = palette.iter().enumerate().min_by(|a, b| distance(a).total_cmp(&distance(b)));
            if let Some((sum, count)) = nearest.and_then(|(nearest, _)| sums.get_mut(nearest)) {
                sum.iter_mut().zip(sample).for_each(|(sum, level)| *sum += level);
                *count += 1.0;
            }
        }
        for (of, (sum, count)) in palette.iter_mut().zip(&sums).filter(|(_, (_, count))| *count > 0.0) {
            *of = sum.map(|sum| sum / count);
        }
    }
    palette
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::camera::{Camera, CameraModel, Pose};
    use crate::random::Random;
    use crate::raster;

    const WIDTH: usize = 120;
    const HEIGHT: usize = 80;
    const RED: [u8; 3] = [180, 60, 50];
    const GREEN: [u8; 3] = [70, 150, 60];

    /// By pixel the log odds, where a picture shows an object in its upper half, if the views think that it ends above row 40, and each
    /// pixel was told as much.
    fn odds(
        picture: impl Fn(usize, usize) -> [u8; 3],
        beside: impl Fn(usize) -> Shown,
        told: f32,
    ) -> Vec<f32> {
        let camera = Camera::from_focal(CameraModel::Pinhole, 100.0, WIDTH as u32, HEIGHT as u32);
        let places = || (0..WIDTH * HEIGHT).map(|k| (k % WIDTH, k / WIDTH));
        let view = SalientView {
            camera: raster::View::new(&camera, &Pose::identity()),
            saliency: vec![0; WIDTH * HEIGHT],
            colours: places().map(|(x, y)| picture(x, y)).collect(),
        };
        let shown: Vec<Shown> =
            places().map(|(x, y)| if y < 40 { Shown::Object } else { beside(x) }).collect();
        let told = vec![Odds::new(told); WIDTH * HEIGHT];
        let odds = with_local_colours(&view, &told, &shown, 4, &LocalColourOptions::default());
        odds.iter().map(|odds| odds.log_odds()).collect()
    }

    #[test]
    fn colours_are_those_of_the_place() {
        // It ends above row 42. On the left it is red before green, and on the right the reverse.
        let picture = |x: usize, y: usize| if (x < 60) == (y < 42) { RED } else { GREEN };
        let odds = odds(picture, |_| Shown::Nothing, -1.0);
        let at = |x: usize, y: usize| odds[y * WIDTH + x];
        for x in [10, 30, 90, 110] {
            // All of the colours' odds, but for their weight, and half of what else was told.
            assert!((at(x, 41) - 1.3).abs() < 0.1 && (at(x, 38) - 1.3).abs() < 0.1, "{x}: {}", at(x, 41));
            assert!((at(x, 42) + 2.3).abs() < 0.1, "{x}: {}", at(x, 42));
            // What is surely one or the other is told the same; what is far from the outline nothing.
            assert!((at(x, 30) - 1.3).abs() < 0.1 && (at(x, 50) + 2.3).abs() < 0.1);
            assert_eq!((at(x, 20), at(x, 60)), (-1.0, -1.0));
        }
    }

    #[test]
    fn every_colour_is_near_to_one_of_the_palette() {
        let mut random = Random::new(7);
        let mut level = || (255.0 * random.uniform()) as u8;
        let places: Vec<Colour> = (0..5).map(|_| colour([level(), level(), level()])).collect();
        let colours: Vec<Colour> = places.iter().cycle().take(SAMPLES * 2 + 1).copied().collect();
        assert_eq!(palette(&colours, 24).len(), 5);
        let found = palette(&colours, 5);
        assert!(places.iter().all(|place| found.iter().any(|of| square_distance(of, place) < 1e-3)));
        assert!(palette(&[], 24).is_empty());
    }

    #[test]
    fn what_looks_alike_on_both_sides_says_nothing() {
        let speckled = |x: usize, y: usize| if (3 * x + 5 * y) % 7 < 3 { RED } else { GREEN };
        let odds = odds(speckled, |_| Shown::Nothing, 1.0);
        assert!(odds.iter().all(|odds| (odds - 1.0).abs() < 0.1));
    }

    #[test]
    fn another_thing_beside_it_teaches_nothing() {
        let picture = |_: usize, y: usize| if y < 40 { RED } else { GREEN };
        let odds = odds(picture, |x| if x < 60 { Shown::Nothing } else { Shown::Other }, 0.0);
        assert!(odds[38 * WIDTH + 30] > 1.7 && odds[38 * WIDTH + 90] == 0.0);
    }
}
