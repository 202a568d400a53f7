//! Which pictures of a folder one camera made: those of one size, taken with one focal length as far as they say.
//!
//! A telephone has several lenses behind one button, and a folder easily holds a picture that was cropped. Structure from
//! motion knows one camera only: pictures of a second one would get poses from a wrong focal length, or spoil all.

use std::collections::BTreeMap;
use std::path::Path;

use crate::control::Warning;

/// Focal lengths of one lens differ by less than this part: equivalents are rounded to millimetres.
const SAME_FOCAL: f64 = 0.05;
/// So many pictures are named at most.
const NAMED: usize = 3;

/// What a picture says of its camera.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Seen {
    /// The longer and the shorter side in pixels, as large as the picture is used.
    pub(super) size: (u32, u32),
    /// Focal length in pixels of that size, if it is known.
    pub(super) focal: Option<f64>,
}

/// The pictures of a folder, by the camera that made them.
#[derive(Debug, Default, PartialEq)]
pub(super) struct OneCamera {
    /// Those of the camera that made most, in order; with them those that cannot be read, which are not judged here.
    pub(super) kept: Vec<usize>,
    /// How many of these can be read.
    pub(super) readable: usize,
    /// Those of another size.
    other_size: Vec<usize>,
    /// Those of another focal length.
    other_focal: Vec<usize>,
}

impl OneCamera {
    /// Of pictures that can be read. Those that do not tell their focal length go with most of their size. Of two cameras
    /// that made as many the one that made the first picture.
    pub(super) fn of(seen: &[Option<Seen>]) -> Self {
        let mut sizes: BTreeMap<(u32, u32), Focals> = BTreeMap::new();
        for picture in seen.iter().flatten() {
            let focals = sizes.entry(picture.size).or_default();
            match picture.focal {
                Some(focal) => focals.told.push(focal),
                None => focals.untold += 1,
            }
        }
        sizes.values_mut().for_each(|focals| focals.told.sort_by(f64::total_cmp));
        let mut best: Option<(usize, Seen)> = None;
        for camera in seen.iter().flatten() {
            let made = sizes.get(&camera.size).map_or(0, |focals| focals.near(camera.focal));
            if best.is_none_or(|(most, _)| made > most) {
                best = Some((made, *camera));
            }
        }
        let mut found = Self::default();
        let Some((readable, camera)) = best else { return Self { kept: (0..seen.len()).collect(), ..found } };
        found.readable = readable;
        for (i, picture) in seen.iter().enumerate() {
            match picture {
                Some(s) if s.size != camera.size => found.other_size.push(i),
                Some(s) if !is_by(&camera, s) => found.other_focal.push(i),
                _ => found.kept.push(i),
            }
        }
        found
    }

    /// How many pictures are by other cameras.
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

    /// What the user should know, if pictures are left out.
    pub(super) fn warning<P: AsRef<Path>>(&self, images: &[P]) -> Option<Warning> {
        let (left_out, all) = (self.left_out(), self.left_out() + self.readable);
        let why = self.why(images);
        let message = if left_out == 0 {
            return None;
        } else if 3 * left_out > all {
            format!(
                "ATTENTION: more than a third of the pictures, {left_out} of {all}, is not used, since all must come \
                 from one camera: {why}; make a scene of their own from them"
            )
        } else {
            format!("{left_out} of {all} pictures are not used, since all must come from one camera: {why}")
        };
        Some(Warning::new("other_cameras", message))
    }
}

/// The focal lengths of all pictures of one size.
#[derive(Default)]
struct Focals {
    /// In order.
    told: Vec<f64>,
    /// How many pictures do not tell theirs.
    untold: usize,
}

impl Focals {
    /// How many pictures may be by the camera that made one with this focal length. Where any tell theirs, those that do
    /// not are no camera of their own.
    fn near(&self, focal: Option<f64>) -> usize {
        let told = match focal {
            Some(focal) => {
                let below = self.told.partition_point(|f| *f < focal && !is_same(*f, focal));
                let upto = self.told.partition_point(|f| *f < focal || is_same(*f, focal));
                upto - below
            }
            None if !self.told.is_empty() => return 0,
            None => 0,
        };
        told + self.untold
    }
}

fn is_same(a: f64, b: f64) -> bool {
    (a / b).ln().abs() <= SAME_FOCAL
}

/// Whether the camera that made the first picture may have made the second.
fn is_by(camera: &Seen, picture: &Seen) -> bool {
    camera.size == picture.size && camera.focal.zip(picture.focal).is_none_or(|(a, b)| is_same(a, b))
}

/// `a.jpg, b.jpg, c.jpg and 4 more`
fn names<P: AsRef<Path>>(group: &[usize], images: &[P]) -> String {
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

    fn seen(long: u32, focal: Option<f64>) -> Option<Seen> {
        Some(Seen { size: (long, 1200), focal })
    }

    #[test]
    fn most_pictures_of_one_size_and_lens_are_kept() {
        let mut pictures = vec![seen(1600, Some(1200.0)); 9];
        pictures[1] = seen(1600, Some(620.0)); // the wide lens
        pictures[2] = seen(1600, Some(1230.0)); // the same, rounded to another millimetre
        pictures[3] = seen(1500, Some(1200.0)); // cropped
        pictures[4] = seen(1600, None); // edited, and says nothing
        pictures[5] = None; // damaged: who reads it says so
        pictures[6] = seen(1600, Some(2400.0));
        let found = OneCamera::of(&pictures);
        assert_eq!(found.kept, [0, 2, 4, 5, 7, 8]);
        assert_eq!(
            (found.readable, &found.other_size[..], &found.other_focal[..]),
            (5, &[3][..], &[1, 6][..])
        );
        let images: Vec<String> = (0..9).map(|i| format!("in/{i}.jpg")).collect();
        let warning = found.warning(&images).unwrap();
        assert!(
            warning.message.starts_with("ATTENTION: more than a third of the pictures, 3 of 8,"),
            "{warning:?}"
        );
        assert!(
            warning.message.contains("1 of another size or shape than the others (3.jpg), 2 taken"),
            "{warning:?}"
        );
        assert!(warning.message.contains("(1.jpg, 6.jpg)"), "{warning:?}");
    }

    #[test]
    fn one_that_differs_among_many_is_named_and_no_more_than_some_are() {
        let mut pictures = vec![seen(1600, None); 200];
        pictures[3] = seen(1400, None);
        let images: Vec<String> = (0..200).map(|i| format!("{i}.jpg")).collect();
        let warning = OneCamera::of(&pictures).warning(&images).unwrap();
        assert_eq!(warning.code, "other_cameras");
        assert!(warning.message.starts_with("1 of 200 pictures are not used"), "{warning:?}");
        (10..15).for_each(|i| pictures[i] = seen(1400, None));
        let warning = OneCamera::of(&pictures).warning(&images).unwrap();
        assert!(warning.message.contains("(3.jpg, 10.jpg, 11.jpg and 3 more)"), "{warning:?}");
        assert!(OneCamera::of(&[seen(1600, None); 3]).warning(&images).is_none());
    }

    #[test]
    fn pictures_that_say_nothing_go_with_most_of_their_size() {
        // Three of each lens, and two that say nothing; of the other size there are four, all by one camera.
        let mut pictures = vec![seen(1600, Some(1200.0)); 3];
        pictures.extend([seen(1600, None); 2]);
        pictures.extend([seen(1600, Some(2400.0)); 3]);
        pictures.extend([seen(900, None); 4]);
        assert_eq!(OneCamera::of(&pictures).kept, [0, 1, 2, 3, 4]);
        assert_eq!(OneCamera::of(&[None, None]).kept, [0, 1]);
        assert_eq!(OneCamera::of(&[]), OneCamera::default());
    }
}
