//! Which pictures to match with which.
//!
//! All with all if they are few. Else, in a video, each frame with some that follow it and with those elsewhere in the
//! video that look alike (loop closures); in an unordered set, each with those that look alike (`vlad.rs`) and with its
//! nearest neighbours by name, which in most folders are neighbours in time.
//!
//! Of several cameras each picture is matched with some of the others', too. What looks most like a frame of a clip are the frames
//! beside it, so by looks alone clips of one place would never meet.

use std::collections::BTreeSet;
use std::ops::Range;

use serde::Serialize;

use crate::defaults::with_defaults;

use super::clips::Clips;
use super::features::Features;
use super::vlad::similarities;

with_defaults! {
    /// How pairs are chosen.
    #[derive(Debug, Clone, PartialEq, Serialize)]
    pub struct PairingOptions {
        /// Of an unordered set: all pairs up to this many pictures.
        pub exhaustive_max: usize = 60,
        /// Of a video: all pairs up to this many frames. Their order tells more than that of pictures.
        pub exhaustive_frames: usize = 30,
        /// A frame is matched with those this far behind it.
        pub offsets: Vec<u32> = vec![1, 2, 3, 4, 6, 8, 12, 16, 24],
        /// In a video: pairs per frame with frames further away than the largest offset.
        pub loop_pairs: usize = 5,
        /// In an unordered set: pairs per picture.
        pub retrieval_pairs: usize = 25,
        /// Of several cameras: pairs per picture with pictures of other cameras, of which those by looks may be some.
        pub across_pairs: usize = 8,
    }
}

/// Loop pairs of one frame lead to frames at least this far from each other, and so do its pairs with another camera: neighbours all
/// look alike and say the same.
const LOOP_SPACING: usize = 3;

/// In an unordered set a picture is matched with the next ones in the list up to this offset: few pairs beside those by
/// looks, and they are those that tell when a picture was taken for one that only looks alike.
const NAME_NEIGHBOURS: u32 = 4;

/// The pairs (first < second) to match, sorted and unique. `sequential`: the pictures are frames of a video in their
/// order.
pub fn candidate_pairs(features: &[Features], sequential: bool, options: &PairingOptions) -> Vec<(u32, u32)> {
    let n = features.len();
    if n <= if sequential { options.exhaustive_frames } else { options.exhaustive_max } {
        return exhaustive_pairs(n);
    }
    let mut pairs = BTreeSet::new();
    let (window, count, spacing) = if sequential {
        pairs.extend(sequential_pairs(n, &options.offsets));
        (window(options), options.loop_pairs, LOOP_SPACING)
    } else {
        pairs.extend(name_neighbours(n, options));
        (0, options.retrieval_pairs, 1)
    };
    if count > 0 {
        pairs.extend(similar_pairs(&similarities(features), n, 0..n, 0..n, window, count, spacing));
    }
    pairs.into_iter().collect()
}

/// The pairs (first < second) to match of pictures that are no frames of a single video, sorted and unique: those of
/// [`candidate_pairs`] where one camera made them all. Else a clip is paired as if it were alone, photographs as if one camera had
/// made all pictures, and each picture with some by other cameras.
///
/// # Panics
/// Unless `clips` is of as many pictures as there are `features`.
pub(super) fn pairs_of_several(
    features: &[Features],
    clips: &Clips,
    options: &PairingOptions,
) -> Vec<(u32, u32)> {
    let n = features.len();
    assert_eq!(n, clips.camera.len(), "every picture was made by a camera");
    let cameras = clips.cameras();
    if cameras < 2 || n <= options.exhaustive_max {
        return candidate_pairs(features, false, options);
    }
    let similarities = similarities(features);
    // Those of clips, too: a camera may begin a new file while it films.
    let mut pairs: BTreeSet<(u32, u32)> = name_neighbours(n, options).into_iter().collect();
    for clip in &clips.filmed {
        let (first, length) = (clip.start as u32, clip.len());
        let own = if length <= options.exhaustive_frames {
            exhaustive_pairs(length)
        } else {
            let (window, count) = (window(options), options.loop_pairs);
            let all = || clip.clone();
            pairs.extend(similar_pairs(&similarities, n, all(), all(), window, count, LOOP_SPACING));
            sequential_pairs(length, &options.offsets)
        };
        pairs.extend(own.into_iter().map(|(i, j)| (first + i, first + j)));
    }
    let count = options.retrieval_pairs;
    pairs.extend(similar_pairs(&similarities, n, clips.photographs(), 0..n, 0, count, 1));
    for i in 0..n {
        let row = &similarities[i * n..][..n];
        let chosen = chosen_across(row, i, &clips.camera, cameras, options.across_pairs);
        pairs.extend(chosen.into_iter().map(|j| ordered(i, j)));
    }
    pairs.into_iter().collect()
}

/// How far behind a frame those are that it is matched with for that alone.
fn window(options: &PairingOptions) -> usize {
    options.offsets.iter().max().map_or(0, |&o| o as usize)
}

/// The pairs of `n` pictures in the order of their names that are next to each other in it.
fn name_neighbours(n: usize, options: &PairingOptions) -> Vec<(u32, u32)> {
    let near: Vec<u32> = options.offsets.iter().copied().filter(|&o| o <= NAME_NEIGHBOURS).collect();
    sequential_pairs(n, &near)
}

/// The pair of two pictures.
fn ordered(i: usize, j: usize) -> (u32, u32) {
    (i.min(j) as u32, i.max(j) as u32)
}

/// All pairs of `n` pictures.
pub fn exhaustive_pairs(n: usize) -> Vec<(u32, u32)> {
    let n = n as u32;
    (0..n).flat_map(|i| (i + 1..n).map(move |j| (i, j))).collect()
}

/// Pairs of frames whose numbers differ by one of `offsets`, sorted.
pub fn sequential_pairs(n: usize, offsets: &[u32]) -> Vec<(u32, u32)> {
    let offsets: BTreeSet<u32> = offsets.iter().copied().filter(|&offset| offset > 0).collect();
    let pair = |i: u32, offset: u32| i.checked_add(offset).filter(|&j| (j as usize) < n).map(|j| (i, j));
    (0..n as u32).flat_map(|i| offsets.iter().filter_map(move |&offset| pair(i, offset))).collect()
}

/// Sorts pictures by how alike they look to the one whose similarities are `row`, the most similar first.
fn sort_by_likeness(pictures: &mut [usize], row: &[f32]) {
    pictures.sort_by(|&a, &b| row[b].total_cmp(&row[a]).then(a.cmp(&b)));
}

/// For each of `pictures` the `count` most similar ones `among` these (`similarities` is `n × n`) further than `window` from it and
/// at least `spacing` apart.
fn similar_pairs(
    similarities: &[f32],
    n: usize,
    pictures: impl Iterator<Item = usize>,
    among: Range<usize>,
    window: usize,
    count: usize,
    spacing: usize,
) -> BTreeSet<(u32, u32)> {
    let mut pairs = BTreeSet::new();
    for i in pictures {
        let row = &similarities[i * n..][..n];
        let mut others: Vec<usize> = among.clone().filter(|&j| j.abs_diff(i) > window).collect();
        sort_by_likeness(&mut others, row);
        let mut chosen: Vec<usize> = Vec::with_capacity(count);
        for j in others {
            if chosen.len() == count {
                break;
            }
            if chosen.iter().all(|&other| other.abs_diff(j) >= spacing) {
                chosen.push(j);
                pairs.insert(ordered(i, j));
            }
        }
    }
    pairs
}

/// The `count` pictures by other cameras to match picture `i` with, or all if they are fewer. `row` are its similarities, `camera` says
/// of each picture which of so many `cameras` made it.
fn chosen_across(row: &[f32], i: usize, camera: &[u32], cameras: usize, count: usize) -> Vec<usize> {
    let mut others: Vec<usize> = (0..row.len()).filter(|&j| camera[j] != camera[i]).collect();
    sort_by_likeness(&mut others, row);
    // Half of them are for the other cameras alike: two clips by one phone look more like each other than like those by another phone,
    // and could be all that they are matched with.
    let share = (count / 2 / (cameras - 1).max(1)).max(1);
    let mut chosen: Vec<usize> = Vec::with_capacity(count);
    // The last round is for those by cameras that made few pictures.
    for (most, spacing) in [(share, LOOP_SPACING), (count, LOOP_SPACING), (count, 1)] {
        for &j in &others {
            if chosen.len() == count {
                return chosen;
            }
            let by_same = || chosen.iter().filter(|&&other| camera[other] == camera[j]);
            if by_same().count() < most && by_same().all(|&other| other.abs_diff(j) >= spacing) {
                chosen.push(j);
            }
        }
    }
    chosen
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;
    use crate::sfm::features::{Descriptor, Keypoint};

    #[test]
    fn few_pictures_are_paired_exhaustively() {
        let none = vec![Features::default(); 4];
        let pairs = candidate_pairs(&none, true, &PairingOptions::default());
        assert_eq!(pairs, [(0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 3)]);
        assert_eq!(candidate_pairs(&[], false, &PairingOptions::default()), []);
    }

    #[test]
    fn frames_are_paired_at_the_offsets() {
        assert_eq!(
            sequential_pairs(5, &[2, 1, 4, 0]),
            [(0, 1), (0, 2), (0, 4), (1, 2), (1, 3), (2, 3), (2, 4), (3, 4)]
        );
        assert_eq!(sequential_pairs(0, &[1]), []);
    }

    /// Pictures on a circle: each sees the landmarks next to it, so the last ones see those of the first ones again.
    fn circle(pictures: usize, seen: usize) -> Vec<Features> {
        let mut random = Random::new(4);
        let landmarks = landmarks(pictures, &mut random);
        around(&landmarks, seen, 1, &mut random)
    }

    const PER_PLACE: usize = 12;

    /// Those of so many places.
    fn landmarks(places: usize, random: &mut Random) -> Vec<Descriptor> {
        (0..places * PER_PLACE)
            .map(|_| std::array::from_fn(|_| (random.normal().abs() * 40.0).min(255.0) as u8))
            .collect()
    }

    /// A picture at each place of a circle with these landmarks, of which `seen` places and in these every `step`-th landmark.
    fn around(landmarks: &[Descriptor], seen: usize, step: usize, random: &mut Random) -> Vec<Features> {
        (0..landmarks.len() / PER_PLACE)
            .map(|i| {
                let descriptors: Vec<Descriptor> = (0..seen * PER_PLACE)
                    .step_by(step)
                    .map(|k| {
                        let landmark = landmarks[(i * PER_PLACE + k) % landmarks.len()];
                        landmark.map(|v| (f64::from(v) + 3.0 * random.normal()).clamp(0.0, 255.0) as u8)
                    })
                    .collect();
                let keypoint = Keypoint { x: 1.0, y: 1.0, scale: 2.0, orientation: 0.0 };
                Features { keypoints: vec![keypoint; descriptors.len()], descriptors }
            })
            .collect()
    }

    #[test]
    fn a_loop_is_closed_and_neighbours_are_retrieved() {
        let n = 80;
        let features = circle(n, 16);
        let options = PairingOptions { exhaustive_frames: 10, loop_pairs: 2, ..Default::default() };
        let pairs = candidate_pairs(&features, true, &options);
        assert!(pairs.is_sorted() && pairs.windows(2).all(|w| w[0] != w[1]));
        assert!(pairs.iter().all(|&(i, j)| i < j && (j as usize) < n));
        // Picture 0 shares 15 of 16 places with the last one.
        for (first, second) in [(0, 79), (1, 79), (0, 78)] {
            assert!(pairs.contains(&(first, second)), "{first} {second}");
        }
        let options = PairingOptions { exhaustive_max: 10, retrieval_pairs: 8, ..Default::default() };
        let pairs = candidate_pairs(&features, false, &options);
        for i in 0..n as u32 {
            for offset in 1..=2 {
                let j = (i + offset) % n as u32;
                assert!(pairs.contains(&(i.min(j), i.max(j))), "{i} {j}");
            }
        }
        assert!((0..n as u32 - 1).all(|i| pairs.contains(&(i, i + 1))));
        assert!(pairs.len() <= (8 + 4) * n);
    }

    #[test]
    fn pictures_without_features_do_not_break_retrieval() {
        let mut features = vec![Features::default(); 12];
        let options = PairingOptions {
            exhaustive_max: 3,
            exhaustive_frames: 3,
            offsets: vec![1, 2],
            loop_pairs: 1,
            retrieval_pairs: 2,
            across_pairs: 2,
        };
        assert!(candidate_pairs(&features, true, &options).len() >= 21);
        features[3] = circle(12, 2).remove(0);
        assert!(!candidate_pairs(&features, false, &options).is_empty());
    }

    /// Pictures by these cameras, of which none filmed.
    fn photographs(camera: Vec<u32>) -> Clips {
        Clips { camera, filmed: Vec::new() }
    }

    #[test]
    fn a_place_that_was_filmed_twice_is_paired_across_both_clips() {
        // The second clip shows every third landmark: its pictures are less like those of the first than neighbours are like each
        // other.
        let n = 80;
        let mut random = Random::new(5);
        let landmarks = landmarks(n, &mut random);
        let mut features = around(&landmarks, 40, 1, &mut random);
        features.extend(around(&landmarks, 40, 3, &mut random));
        let options = PairingOptions { exhaustive_max: 10, retrieval_pairs: 10, ..Default::default() };
        // How many pictures of both are paired with one of the other clip that was taken near them.
        let paired_across = |pairs: &[(u32, u32)]| {
            let is_near = |i: usize, j: usize| {
                let steps = i.abs_diff(j - n);
                i < n && steps.min(n - steps) <= 5
            };
            let across = pairs.iter().filter(|&&(i, j)| j as usize >= n && is_near(i as usize, j as usize));
            across.flat_map(|&(i, j)| [i, j]).collect::<BTreeSet<_>>().len()
        };
        let by_looks = candidate_pairs(&features, false, &options);
        assert!(paired_across(&by_looks) < n / 2, "{}", paired_across(&by_looks));

        let camera = (0..2 * n).map(|i| u32::from(i >= n)).collect();
        let clips = Clips { camera, filmed: vec![0..n, n..2 * n] };
        let pairs = pairs_of_several(&features, &clips, &options);
        assert!(pairs.is_sorted() && pairs.windows(2).all(|w| w[0] != w[1]));
        assert!(pairs.iter().all(|&(i, j)| i < j && (j as usize) < 2 * n));
        assert!(paired_across(&pairs) >= 2 * n - n / 10, "{}", paired_across(&pairs));
        // Each clip as a video by itself.
        for first in [0, n as u32] {
            let along = sequential_pairs(n, &options.offsets);
            assert!(along.iter().all(|&(i, j)| pairs.contains(&(first + i, first + j))));
            let (begin, end) = (first..first + 5, first + n as u32 - 5..first + n as u32);
            assert!(pairs.iter().any(|(i, j)| begin.contains(i) && end.contains(j)), "the loop from {first}");
        }
        // Those at the offsets, loops, across, and the neighbours by name where one clip ends and the other begins.
        assert!(pairs.len() <= 2 * n * (9 + 5 + 8) + 10, "{}", pairs.len());
        assert_eq!(pairs, pairs_of_several(&features, &clips, &options));
    }

    #[test]
    fn pictures_by_one_camera_and_few_pictures_are_paired_as_before() {
        let features = circle(40, 16);
        let options = PairingOptions { exhaustive_max: 10, retrieval_pairs: 8, ..Default::default() };
        let before = candidate_pairs(&features, false, &options);
        // Of one camera, even if it filmed: these may be frames that somebody else chose.
        let one = Clips { camera: vec![7; 40], filmed: vec![Range { start: 0, end: 40 }] };
        for clips in [one, photographs(vec![0; 40])] {
            assert_eq!(pairs_of_several(&features, &clips, &options), before);
        }
        let two = |pictures: u32| photographs((0..pictures).map(|i| i % 2).collect());
        let of_few = pairs_of_several(&features[..10], &two(10), &options);
        assert_eq!(of_few, exhaustive_pairs(10));
        assert_eq!(pairs_of_several(&[], &photographs(Vec::new()), &options), []);
        // Of photographs by several cameras no pair is lost, and there are not many more.
        let mixed = pairs_of_several(&features, &two(40), &options);
        assert!(before.iter().all(|pair| mixed.contains(pair)));
        assert!(mixed.len() <= before.len() + 8 * 40);
    }

    #[test]
    fn clips_are_paired_as_videos_whatever_else_there_is() {
        let features = vec![Features::default(); 75];
        let camera = (0..75).map(|i| [0, 1, 2][usize::from(i >= 5) + usize::from(i >= 25)]).collect();
        let clips = Clips { camera, filmed: vec![5..25, 25..75] };
        let pairs = pairs_of_several(&features, &clips, &PairingOptions::default());
        // A short clip exhaustively, a long one at the offsets.
        assert!(exhaustive_pairs(20).iter().all(|&(i, j)| pairs.contains(&(5 + i, 5 + j))));
        let along = sequential_pairs(50, &PairingOptions::default().offsets);
        assert!(along.iter().all(|&(i, j)| pairs.contains(&(25 + i, 25 + j))));
        for i in 0..5 {
            assert!(pairs.iter().filter(|&&(a, b)| a == i || b == i).count() >= 25, "photograph {i}");
        }
    }

    #[test]
    fn every_other_camera_has_a_share_of_the_pairs_across() {
        // Three clips of 12 pictures and 2 photographs. The second clip looks most like the first, the photographs least.
        let camera: Vec<u32> = (0..38).map(|j| j / 12).collect();
        let row: Vec<f32> = (0..38).map(|j| 1.0 - 0.01 * j as f32).collect();
        let chosen = chosen_across(&row, 4, &camera, 4, 8);
        // One by each; those that are alike, apart from each other; and the rest.
        assert_eq!(chosen, [12, 24, 36, 15, 18, 21, 27, 30]);
        // Of few pictures all.
        assert_eq!(chosen_across(&row[..15], 4, &camera[..15], 2, 8), [12, 13, 14]);
        assert!(chosen_across(&row, 4, &camera, 4, 0).is_empty());
        // Of more cameras than there are pairs those that look most alike.
        let each: Vec<u32> = (0..38).collect();
        assert_eq!(chosen_across(&row, 4, &each, 38, 6), [0, 1, 2, 3, 5, 6]);
    }
}
