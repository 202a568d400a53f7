//! Which camera made which picture of a folder: those of one size, taken with one focal length as far as they say, are by one. They
//! say it in pixels, or only in millimetres, by which lenses can be told from each other too.
//!
//! A telephone has several lenses behind one button, and two people may have taken pictures of one thing. Structure from motion
//! gives each camera a lens of its own. What only one or two pictures say of their lens is not enough to trust them: a picture
//! that was cropped beside its middle looks like one that was taken from elsewhere.

use std::collections::BTreeMap;
use std::path::Path;

use crate::control::{Control, Warning};
use crate::error::Result;

use super::exif::{Focal, Lens};

/// Fewer pictures are left out, as too few to tell a lens by.
pub(super) const LEAST: usize = 3;
/// So many pictures are named at most.
const NAMED: usize = 3;
/// How many figures tell a lens from others.
const FIGURES: usize = 3;

/// The logarithms between which each of these figures lies, the surest first; `None` for those that are not known.
type Figures = [Option<(f64, f64)>; FIGURES];
/// Which figures are known.
type Known = [bool; FIGURES];

/// What a picture says of its camera.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Seen {
    /// The longer and the shorter side in pixels, as large as the picture is used.
    pub(super) size: (u32, u32),
    /// The focal length for that size, if it is known.
    pub(super) focal: Option<Focal>,
    /// What tells its lens from others where the focal length of one picture is not known.
    pub(super) lens: Lens,
}

impl Seen {
    fn figures(&self) -> Figures {
        [self.focal.map(|focal| focal.range()), self.lens.equivalent, self.lens.physical]
    }
}

/// The pictures of a folder, by the camera that made them.
#[derive(Debug, Default, PartialEq)]
pub(super) struct ByCamera {
    /// By picture: its camera, the one that made most being 0; `None` for those that are left out. Those that cannot be read are
    /// not judged here: they go with the first camera.
    pub(super) camera: Vec<Option<u32>>,
    /// How many that can be read each camera made.
    pub(super) made: Vec<usize>,
    /// Left out: those of another size than the first camera's.
    other_size: Vec<usize>,
    /// Those of its size, but another focal length.
    other_focal: Vec<usize>,
}

impl ByCamera {
    /// Of pictures that can be read. Those that do not tell their lens go with most of their size. Of two cameras
    /// that made as many the one that made the first picture comes first.
    pub(super) fn of(seen: &[Option<Seen>]) -> Self {
        let mut found = Self { camera: vec![None; seen.len()], ..Self::default() };
        let mut open: Vec<Option<Seen>> = seen.to_vec();
        let mut first = None;
        while let Some((made, camera)) = most(&open).filter(|(made, _)| first.is_none() || *made >= LEAST) {
            first.get_or_insert(camera);
            let number = found.made.len() as u32;
            found.made.push(made);
            for (picture, of) in open.iter_mut().zip(&mut found.camera) {
                if picture.as_ref().is_some_and(|s| is_by(&camera, s)) {
                    (*picture, *of) = (None, Some(number));
                }
            }
        }
        for (i, picture) in seen.iter().enumerate() {
            match (picture, found.camera[i], first) {
                (None, ..) => found.camera[i] = Some(0),
                (Some(s), None, Some(camera)) if s.size != camera.size => found.other_size.push(i),
                (Some(_), None, _) => found.other_focal.push(i),
                _ => {}
            }
        }
        found
    }

    /// The pictures that are used, in order.
    pub(super) fn kept(&self) -> Vec<usize> {
        (0..self.camera.len()).filter(|&i| self.camera[i].is_some()).collect()
    }

    /// At most `most` of these, evenly spread; and those that are not among them because fewer than [`LEAST`] by their camera would be.
    ///
    /// # Errors
    /// [`ErrorKind::Cancelled`](crate::ErrorKind::Cancelled).
    pub(super) fn thinned(&self, most: usize, control: &Control) -> Result<(Vec<usize>, Vec<usize>)> {
        let (mut kept, mut lost) = (self.kept(), Vec::<usize>::new());
        loop {
            control.check()?;
            let chosen = evenly(&kept, most);
            // There may be thousands of cameras: all are counted at once.
            let (of_chosen, of_kept) = (self.count(&chosen), self.count(&kept));
            // Of the others first, which are tried again without it.
            let is_lost = |&camera: &usize| of_chosen[camera] < LEAST && of_kept[camera] > 0;
            let Some(camera) = (1..of_kept.len()).rev().find(is_lost) else {
                lost.sort_unstable();
                return Ok((chosen, lost));
            };
            let (out, rest): (Vec<usize>, Vec<usize>) =
                kept.iter().partition(|&&i| self.camera[i] == Some(camera as u32));
            lost.extend(out);
            kept = rest;
        }
    }

    /// How many of these pictures each camera made.
    fn count(&self, pictures: &[usize]) -> Vec<usize> {
        // Where no picture can be read, all are of a first camera that made none.
        let mut counts = vec![0; self.made.len().max(1)];
        for camera in pictures.iter().filter_map(|&i| self.camera[i]) {
            counts[camera as usize] += 1;
        }
        counts
    }

    /// How many pictures that can be read are used.
    pub(super) fn readable(&self) -> usize {
        self.made.iter().sum()
    }

    /// How many pictures are left out.
    pub(super) fn left_out(&self) -> usize {
        self.other_size.len() + self.other_focal.len()
    }

    /// Which pictures are left out and why, as the end of a sentence.
    pub(super) fn why<P: AsRef<Path>>(&self, images: &[P]) -> String {
        let part = |group: &[usize], what: &str| match group.len() {
            0 => None,
            count => Some(format!("{count} {what} ({})", names(group, images))),
        };
        let parts = [
            part(&self.other_size, "of another size or shape than the others"),
            part(&self.other_focal, "taken with another lens or zoom than the others"),
        ];
        parts.into_iter().flatten().collect::<Vec<_>>().join(", ")
    }

    /// What the user should know: how many cameras there are, and if pictures are left out.
    pub(super) fn warnings<P: AsRef<Path>>(&self, images: &[P]) -> Vec<Warning> {
        let mut warnings = Vec::new();
        if self.made.len() > 1 {
            let counts: Vec<String> = self.made.iter().map(usize::to_string).collect();
            warnings.push(Warning::new(
                "several_cameras",
                format!(
                    "the pictures come from {} cameras, lenses or zooms ({} pictures): each is given a lens of its own",
                    self.made.len(),
                    counts.join(", ")
                ),
            ));
        }
        let (left_out, all) = (self.left_out(), self.left_out() + self.readable());
        if left_out > 0 {
            let why = self.why(images);
            let attention = match 3 * left_out > all {
                true => "ATTENTION: more than a third of the pictures is not used: ",
                false => "",
            };
            warnings.push(Warning::new(
                "other_cameras",
                format!(
                    "{attention}{left_out} of {all} pictures are left out, since there are fewer than {LEAST} by the camera \
                     that made them: {why}"
                ),
            ));
        }
        warnings
    }
}

/// `most` of the pictures that are `kept`, evenly spread, if there are more.
fn evenly(kept: &[usize], most: usize) -> Vec<usize> {
    if kept.len() <= most {
        return kept.to_vec();
    }
    let last = most.saturating_sub(1).max(1);
    (0..most).filter_map(|i| kept.get(i * (kept.len() - 1) / last).copied()).collect()
}

/// The camera that made most of the pictures, and how many.
fn most(seen: &[Option<Seen>]) -> Option<(usize, Seen)> {
    let mut sizes: BTreeMap<(u32, u32), BTreeMap<Known, Alike>> = BTreeMap::new();
    for picture in seen.iter().flatten() {
        let figures = picture.figures();
        let of_size = sizes.entry(picture.size).or_default();
        of_size.entry(figures.map(|figure| figure.is_some())).or_default().add(&figures);
    }
    for alike in sizes.values_mut().flat_map(|of_size| of_size.values_mut()) {
        alike.sort();
    }
    let mut best: Option<(usize, Seen)> = None;
    for camera in seen.iter().flatten() {
        let made = sizes.get(&camera.size).map_or(0, |of_size| near(of_size, &camera.figures()));
        if best.is_none_or(|(most, _)| made > most) {
            best = Some((made, *camera));
        }
    }
    best
}

/// How many pictures of one size may be by the camera that made one with these figures. Where any of them tells by a surer figure which
/// camera that is, one that does not is no camera of its own: it might be any of several.
fn near(of_size: &BTreeMap<Known, Alike>, figures: &Figures) -> usize {
    let own = surest(&figures.map(|figure| figure.is_some()));
    let mut all = 0;
    for (known, alike) in of_size {
        let count = alike.near(figures);
        if count > 0 && surest(known) < own {
            return 0;
        }
        all += count;
    }
    all
}

/// The number of the surest figure that is known.
fn surest(known: &Known) -> usize {
    known.iter().position(|is_known| *is_known).unwrap_or(FIGURES)
}

/// The pictures of one size of which the same figures are known.
#[derive(Default)]
struct Alike {
    count: usize,
    /// By figure that is known: logarithms below which those of the pictures do not lie, in order, ...
    low: [Vec<f64>; FIGURES],
    /// ... and above which they do not.
    high: [Vec<f64>; FIGURES],
}

impl Alike {
    fn add(&mut self, figures: &Figures) {
        self.count += 1;
        for (k, figure) in figures.iter().enumerate() {
            if let Some((low, high)) = figure {
                self.low[k].push(*low);
                self.high[k].push(*high);
            }
        }
    }

    fn sort(&mut self) {
        self.low.iter_mut().chain(&mut self.high).for_each(|ends| ends.sort_by(f64::total_cmp));
    }

    /// How many of them may be by the camera that made a picture with these figures.
    fn near(&self, figures: &Figures) -> usize {
        // There is a picture at least: of figures that are known there are ends.
        let by_both = (0..FIGURES).find(|&k| figures[k].is_some() && !self.low[k].is_empty());
        let Some((k, (low, high))) = by_both.and_then(|k| Some((k, figures[k]?))) else { return self.count };
        // Of those that do not lie above it, all but those that lie below it, which are some of them.
        self.low[k].partition_point(|l| *l <= high) - self.high[k].partition_point(|h| *h < low)
    }
}

/// Whether the camera that made the first picture may have made the second: by the surest figure that both tell, as exactly as it is
/// known.
fn is_by(camera: &Seen, picture: &Seen) -> bool {
    let mut told_by_both = camera.figures().into_iter().zip(picture.figures()).filter_map(|(a, b)| a.zip(b));
    camera.size == picture.size && told_by_both.next().is_none_or(|(a, b)| a.0 <= b.1 && b.0 <= a.1)
}

/// `a.jpg, b.jpg, c.jpg and 4 more`
pub(super) fn names<P: AsRef<Path>>(group: &[usize], images: &[P]) -> String {
    let name = |i: &usize| {
        let file = images.get(*i).and_then(|path| path.as_ref().file_name());
        file.map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
    };
    let named: Vec<String> = group.iter().take(NAMED).map(name).collect();
    let more = group.len() - named.len();
    let named = named.join(", ");
    if more == 0 { named } else { format!("{named} and {more} more") }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// By an equivalent of about 26 mm, if it is told.
    fn seen(long: u32, focal: Option<f64>) -> Option<Seen> {
        let rounded = |pixels| Focal { pixels, tolerance: 0.019 };
        Some(Seen { size: (long, 1200), focal: focal.map(rounded), lens: Lens::default() })
    }

    #[test]
    fn thinning_leaves_no_camera_too_few() {
        let thinned = |others: std::ops::Range<usize>, count: usize, most: usize| {
            let size = |i: usize| if others.contains(&i) { 1500 } else { 1600 };
            let pictures: Vec<_> = (0..count).map(|i| seen(size(i), None)).collect();
            ByCamera::of(&pictures).thinned(most, &Control::new()).unwrap()
        };
        // Every fourth would be one of three.
        let (chosen, lost) = thinned(8..11, 33, 9);
        assert_eq!((chosen.len(), &lost[..]), (9, &[8, 9, 10][..]));
        assert!(chosen.iter().all(|i| !lost.contains(i)) && chosen.is_sorted());
        assert_eq!((chosen[0], chosen[8]), (0, 32));
        // Three of nine are enough, and all where there is room.
        let (chosen, lost) = thinned(0..9, 39, 13);
        assert_eq!((chosen.len(), lost.len()), (13, 0));
        assert_eq!(chosen[..4], [0, 3, 6, 9]);
        assert_eq!(thinned(8..11, 33, 33), ((0..33).collect::<Vec<_>>(), Vec::new()));
        // Without those of the other camera there is room for the rest.
        assert_eq!(thinned(4..7, 10, 8), (vec![0, 1, 2, 3, 7, 8, 9], vec![4, 5, 6]));
    }

    #[test]
    fn of_many_cameras_thinning_leaves_none_too_few_and_can_be_cancelled() {
        // 300 cameras of 3 to 9 pictures each, one after the other.
        let of_camera = |k: u32| (0..3 + k % 7).map(move |_| seen(1300 + k, None));
        let found = ByCamera::of(&(0..300).flat_map(of_camera).collect::<Vec<_>>());
        let control = Control::new();
        for most in [50, 400, 1700] {
            let (chosen, lost) = found.thinned(most, &control).unwrap();
            let (of_chosen, of_lost) = (found.count(&chosen), found.count(&lost));
            assert!(chosen.len() <= most && chosen.is_sorted() && lost.is_sorted());
            for (camera, &made) in found.made.iter().enumerate().skip(1) {
                let (left, out) = (of_chosen[camera], of_lost[camera]);
                assert!(left >= LEAST && out == 0 || left == 0 && out == made, "{camera}");
            }
        }
        control.cancel_token().cancel();
        assert_eq!(found.thinned(400, &control).unwrap_err().kind(), crate::ErrorKind::Cancelled);
    }

    #[test]
    fn focal_lengths_are_told_apart_as_exactly_as_they_are_known() {
        let made = |focals: &[(f64, f64)]| {
            let of = |&(pixels, tolerance): &(f64, f64)| {
                let focal = Some(Focal { pixels, tolerance });
                Some(Seen { size: (1600, 1200), focal, lens: Lens::default() })
            };
            ByCamera::of(&focals.iter().map(of).collect::<Vec<_>>()).made
        };
        let mixed = |tolerance: f64| -> Vec<(f64, f64)> {
            (0..10).map(|k| (if k % 2 == 0 { 1600.0 } else { 1666.0 }, tolerance)).collect()
        };
        assert_eq!(made(&mixed(0.0075)), [5, 5]);
        assert_eq!(made(&mixed(0.025)), [10]);
        // Of one camera some pictures were edited, and have lost what was exact.
        let edited = [(1600.0, 0.0075), (1600.0, 0.0075), (1640.0, 0.02), (1610.0, 0.0075), (1560.0, 0.02)];
        assert_eq!(made(&edited), [5]);
    }

    /// By a focal length in pixels, an equivalent and one in mm, as far as they are told.
    fn by_lens(focal: Option<f64>, equivalent: Option<f64>, physical: Option<f64>) -> Option<Seen> {
        let range = |mm: f64| (mm.ln() - 0.02, mm.ln() + 0.02);
        let lens = Lens { equivalent: equivalent.map(range), physical: physical.map(range) };
        seen(1600, focal).map(|seen| Seen { lens, ..seen })
    }

    #[test]
    fn lenses_are_told_apart_in_millimetres_where_the_focal_length_in_pixels_is_not_known() {
        let cameras = |pictures: &[Option<Seen>]| {
            let found = ByCamera::of(pictures);
            found.camera.iter().map(|c| c.map_or(-1, |c| c as i32)).collect::<Vec<_>>()
        };
        let of_lenses = |lenses: [Option<Seen>; 2]| {
            let pictures: Vec<_> = (0..7).map(|k| lenses[k % 2]).collect();
            cameras(&pictures)
        };
        let (one, two) = ([0; 7], [0, 1, 0, 1, 0, 1, 0]);
        assert_eq!(of_lenses([by_lens(None, None, Some(1.8)), by_lens(None, None, Some(4.7))]), two);
        // What they are equivalent to counts before what they are: a part of the picture may have been enlarged.
        let told = by_lens(None, Some(26.0), Some(4.7));
        assert_eq!(of_lenses([told, by_lens(None, Some(52.0), Some(4.7))]), two);
        assert_eq!(of_lenses([told, by_lens(None, Some(26.0), Some(9.0))]), one);
        assert_eq!(of_lenses([told, by_lens(None, Some(26.5), None)]), one);
        // Only one lens of a telephone is known in pixels: another one is still another one.
        let usual = by_lens(Some(1200.0), Some(26.0), Some(4.7));
        assert_eq!(of_lenses([usual, by_lens(None, None, Some(1.8))]), two);
        assert_eq!(of_lenses([by_lens(None, None, Some(1.8)), usual]), two);
        // Nor does it matter of how few pictures.
        let mut few = vec![by_lens(None, None, Some(1.8)); 6];
        few[2] = usual;
        assert_eq!(cameras(&few), [0, 0, -1, 0, 0, 0]);
        // Two that are known in pixels stay two, whatever they have in common with what is not.
        let mut three = vec![by_lens(None, None, Some(4.7)); 8];
        (0..5).for_each(|k| three[k] = usual);
        (5..8).for_each(|k| three[k] = by_lens(Some(2400.0), Some(52.0), Some(4.7)));
        three.insert(0, by_lens(None, None, Some(4.7)));
        three.push(by_lens(None, None, None));
        assert_eq!(cameras(&three), [0, 0, 0, 0, 0, 0, 1, 1, 1, 0]);
    }

    #[test]
    fn pictures_of_one_size_and_lens_are_by_one_camera() {
        let mut pictures = vec![seen(1600, Some(1200.0)); 12];
        for i in [1, 9, 10, 11] {
            pictures[i] = seen(1600, Some(620.0)); // the wide lens
        }
        pictures[2] = seen(1600, Some(1230.0)); // the same, rounded to another millimetre
        pictures[3] = seen(1500, Some(1200.0)); // cropped
        pictures[4] = seen(1600, None); // edited, and says nothing
        pictures[5] = None; // damaged: who reads it says so
        pictures[6] = seen(1600, Some(2400.0));
        let found = ByCamera::of(&pictures);
        let of: Vec<i32> = found.camera.iter().map(|c| c.map_or(-1, |c| c as i32)).collect();
        assert_eq!(of, [0, 1, 0, -1, 0, 0, -1, 0, 0, 1, 1, 1]);
        assert_eq!(
            (&found.made[..], &found.other_size[..], &found.other_focal[..]),
            (&[5, 4][..], &[3][..], &[6][..])
        );
        let images: Vec<String> = (0..12).map(|i| format!("in/{i}.jpg")).collect();
        let [several, left_out] = &found.warnings(&images)[..] else { panic!() };
        assert_eq!((&several.code[..], &left_out.code[..]), ("several_cameras", "other_cameras"));
        assert!(several.message.contains("2 cameras, lenses or zooms (5, 4 pictures)"), "{several:?}");
        assert!(left_out.message.starts_with("2 of 11 pictures are left out"), "{left_out:?}");
        assert!(
            left_out.message.contains("1 of another size or shape than the others (3.jpg), 1 taken"),
            "{left_out:?}"
        );
    }

    #[test]
    fn one_that_differs_among_many_is_named_and_no_more_than_some_are() {
        let mut pictures = vec![seen(1600, None); 200];
        pictures[3] = seen(1400, None);
        let images: Vec<String> = (0..200).map(|i| format!("{i}.jpg")).collect();
        let [warning] = &ByCamera::of(&pictures).warnings(&images)[..] else { panic!() };
        assert!(warning.message.starts_with("1 of 200 pictures are left out"), "{warning:?}");
        (10..16).for_each(|i| pictures[i] = seen(1390 - i as u32, None));
        let [warning] = &ByCamera::of(&pictures).warnings(&images)[..] else { panic!() };
        assert!(warning.message.contains("(3.jpg, 10.jpg, 11.jpg and 4 more)"), "{warning:?}");
        // No two alike: the first is taken, and there is one picture.
        let all: Vec<_> = (0..9).map(|i| seen(1300 + i, None)).collect();
        let found = ByCamera::of(&all);
        assert_eq!((found.readable(), found.left_out()), (1, 8));
        assert!(found.warnings(&images)[0].message.starts_with("ATTENTION"));
    }
}
