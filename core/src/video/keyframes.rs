//! Chooses key frames: equal steps of motion, and in each step the sharpest frame.
//!
//! In: small luma pictures of all frames in their order ([`Survey::add`]). Out: the numbers of the frames to keep
//! ([`Survey::choose`]). Motion, not time, is divided evenly: a pause gives one frame and a quick turn gives all it has,
//! so that neighbours overlap alike throughout.

use crate::control::Warning;
use crate::error::{Error, ErrorKind, Result};

use super::motion::{Pyramid, Reference, Tracker};

/// A frame closer to the one before than this fraction of the long side repeats it.
const REPEAT: f32 = 0.001;
/// Frames are not chosen closer than this fraction of the long side if there are more than are wanted.
const LEAST_STEP: f32 = 0.003;
/// Where key frames would be further apart than this, more are taken, if there may be more: a thing in the picture is then seen by ten or
/// so, and a quick turn does not tear the path.
const ENOUGH_STEP: f32 = 0.1;
/// Frames further apart than this share too little for reliable matches.
const WIDE_STEP: f32 = 0.25;
/// A picture with a smaller standard deviation of luma (of 255) shows nothing.
const BLANK: f32 = 3.0;
/// Sharpness is compared with the median of the frames within this many seconds.
const NEIGHBOURHOOD: f64 = 1.0;
/// How many frames, evenly spread, are kept to see whether anything stands still from beginning to end.
const SAMPLES: usize = 16;
/// A camera stands still if in most samples at least this fraction of the corners is where it was.
/// Videos of moving cameras stay below 0.03, of cameras on stands with moving things before them above 0.35.
const STILL_FRACTION: f32 = 0.2;
/// Frames between which the picture has gone by less, net, show one place of the camera: as long as it waits there.
const WAITING: f32 = 0.01;
/// With fewer samples from elsewhere nothing is known of elsewhere: a hand that ends the film is before the lens in one.
const LEAST_ELSEWHERE: usize = 3;

/// What was measured on one frame.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Measure {
    /// Standard deviation of the Laplacian, grey levels: falls with blur, rises with contrast.
    pub(super) detail: f32,
    /// Mean luma, 0 to 255.
    pub(super) brightness: f32,
    /// Standard deviation of luma.
    pub(super) contrast: f32,
    /// Fraction of pixels that are black or white to the stop.
    pub(super) clipped: f32,
    /// Net way of the picture since the first frame, in its long sides; see [`Tracker`].
    pub(super) position: f32,
    /// Way since the frame before, also if it leads back.
    pub(super) step: f32,
}

/// One chosen frame.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Choice {
    /// Zero-based number in the video.
    pub(super) number: u64,
    /// Detail relative to the median of the frames around it.
    pub(super) sharpness: f32,
}

/// What is known about all frames of a video.
pub(super) struct Survey {
    width: usize,
    height: usize,
    measures: Vec<Measure>,
    tracker: Tracker,
    /// Every `spacing`-th frame.
    samples: Vec<Sample>,
    spacing: usize,
    /// What [`Survey::still`] found, once the samples are let go of.
    known_still: Option<f32>,
}

/// A frame that is kept to be compared with others.
struct Sample {
    picture: Pyramid,
    /// As in [`Measure`].
    position: f32,
}

impl Survey {
    /// A survey of luma pictures of this size.
    pub(super) fn new(width: u32, height: u32) -> Survey {
        Survey {
            width: width as usize,
            height: height as usize,
            measures: Vec::new(),
            tracker: Tracker::default(),
            samples: Vec::new(),
            spacing: 1,
            known_still: None,
        }
    }

    /// How many frames were added.
    pub(super) fn len(&self) -> usize {
        self.measures.len()
    }

    /// Measures the next frame; `luma` has width x height bytes.
    pub(super) fn add(&mut self, luma: &[u8]) {
        let (detail, brightness, contrast, clipped) = texture(luma, self.width, self.height);
        let pyramid = Pyramid::new(luma, self.width, self.height);
        let mut picture = None;
        if self.measures.len().is_multiple_of(self.spacing) {
            if self.samples.len() == 2 * SAMPLES {
                let mut number = 0;
                self.samples.retain(|_| {
                    number += 1;
                    number % 2 == 1
                });
                self.spacing *= 2;
            }
            if self.measures.len().is_multiple_of(self.spacing) {
                picture = Some(pyramid.clone());
            }
        }
        let (position, step) = self.tracker.advance(pyramid);
        self.samples.extend(picture.map(|picture| Sample { picture, position }));
        self.measures.push(Measure { detail, brightness, contrast, clipped, position, step });
    }

    /// Compares the samples once all frames were added, and lets go of the pictures, which are tens of megabytes. What
    /// [`Survey::choose`] says stays the same.
    pub(super) fn let_go_of_pictures(&mut self) {
        self.known_still = Some(self.known_still.unwrap_or_else(|| self.still()));
        self.samples = Vec::new();
        self.tracker = Tracker::default();
    }

    /// How many pictures it keeps to compare others with.
    #[cfg(test)]
    pub(super) fn pictures_kept(&self) -> usize {
        self.samples.len()
    }

    /// The frames to keep, and what is to be said about the video: at most `most` of them, or up to `needed` where neighbours would share
    /// too little. `frame_rate` may be 0 if it is not known.
    ///
    /// # Errors
    /// [`ErrorKind::TooFewFrames`] if fewer than 3 frames show anything; [`ErrorKind::InsufficientParallax`] if the
    /// camera stands still.
    pub(super) fn choose(
        &self,
        most: usize,
        needed: usize,
        frame_rate: f64,
    ) -> Result<(Vec<Choice>, Vec<Warning>)> {
        let usable: Vec<usize> =
            (0..self.measures.len()).filter(|&i| self.measures[i].contrast >= BLANK).collect();
        if usable.len() < 3 {
            let blank = self.measures.len() - usable.len();
            let without = if blank > 0 { format!(", of which {blank} show nothing") } else { String::new() };
            return Err(Error::new(
                ErrorKind::TooFewFrames,
                format!("the video has {} frames{without}; at least 3 are needed", self.measures.len()),
            )
            .hint("record for at least some seconds while moving around the scene"));
        }
        let sharpness = self.sharpness(frame_rate);
        let usual = most;
        let most = usual.max(needed.min(steps(&self.measures, &usable, ENOUGH_STEP.into()).len()));
        let choices: Vec<Choice> = bins(&self.measures, &usable, most)
            .into_iter()
            .map(|bin| sharpest(&self.measures, &sharpness, bin))
            .map(|i| Choice { number: i as u64, sharpness: sharpness[i] })
            .collect();
        let still = self.known_still.unwrap_or_else(|| self.still());
        if choices.len() < 3 || still >= STILL_FRACTION {
            return Err(Error::new(
                ErrorKind::InsufficientParallax,
                format!(
                    "the camera does not move: {:.0} % of the picture's corners stand still from beginning to end, and \
                     {} of {} frames differ",
                    100.0 * still,
                    choices.len(),
                    self.measures.len()
                ),
            )
            .hint("move the camera sideways around the scene; a camera on a stand sees no depth"));
        }
        let mut warnings = self.warnings(&choices, usable.len());
        if choices.len() > usual {
            let far = self.median_step(&bins(&self.measures, &usable, usual));
            let message = format!(
                "{} key frames instead of {usual}: with {usual} the picture would move by {:.0} % of its width from one to the next",
                choices.len(),
                100.0 * far
            );
            warnings.push(Warning::new("more_frames", message));
        }
        Ok((choices, warnings))
    }

    /// How far the picture moves from one of these runs of frames to the next, in its long sides: the median.
    fn median_step(&self, runs: &[&[usize]]) -> f32 {
        let at = |run: &[usize]| run.first().map_or(0.0, |&i| self.measures[i].position);
        let mut steps: Vec<f64> = runs.windows(2).map(|w| f64::from(at(w[1]) - at(w[0]))).collect();
        crate::statistics::median(&mut steps).unwrap_or(0.0) as f32
    }

    /// Detail of each frame relative to the median around it.
    fn sharpness(&self, frame_rate: f64) -> Vec<f32> {
        let reach = ((NEIGHBOURHOOD * frame_rate).round() as usize).clamp(5, 60);
        let detail: Vec<f32> = self.measures.iter().map(|m| m.detail).collect();
        (0..detail.len())
            .map(|i| {
                let mut around = detail[i.saturating_sub(reach)..(i + reach + 1).min(detail.len())].to_vec();
                let middle = around.len() / 2;
                let (_, median, _) = around.select_nth_unstable_by(middle, f32::total_cmp);
                detail[i] / median.max(1e-3)
            })
            .collect()
    }

    /// The fraction of corners that stand still all through: the first quartile over samples of the video of the corners
    /// of the first (or of the middle) sample that are where they were. Things that move in front of a camera on a stand
    /// hide some for a while; a moving camera leaves none but by chance. Samples up to which the picture has not moved say
    /// only that the camera waited, for however long; where it moved later, they are not asked.
    fn still(&self) -> f32 {
        let count = self.samples.len();
        if count < 4 {
            return 0.0;
        }
        [0, count / 2]
            .into_iter()
            .map(|anchor| {
                let own = &self.samples[anchor];
                let is_elsewhere = |s: &Sample| (s.position - own.position).abs() >= WAITING;
                let elsewhere = self.samples.iter().filter(|s| is_elsewhere(s)).count();
                let is_asked = |other: usize| {
                    other != anchor && (elsewhere < LEAST_ELSEWHERE || is_elsewhere(&self.samples[other]))
                };
                let mut stills: Vec<f32> = (0..count)
                    .filter(|&other| is_asked(other))
                    .map(|other| {
                        // A new reference each time: the search starts at rest.
                        Reference::new(&own.picture)
                            .shift(&self.samples[other].picture)
                            .map_or(0.0, |s| s.still)
                    })
                    .collect();
                stills.sort_by(f32::total_cmp);
                stills[stills.len() / 4]
            })
            .fold(0.0, f32::max)
    }

    fn warnings(&self, choices: &[Choice], usable: usize) -> Vec<Warning> {
        let mut warnings = Vec::new();
        let at = |choice: &Choice| self.measures[choice.number as usize];
        let wide = choices.windows(2).filter(|w| at(&w[1]).position - at(&w[0]).position > WIDE_STEP).count();
        if wide > 0 {
            warnings.push(Warning::new(
                "little_overlap",
                format!(
                    "between {wide} of {} pairs of neighbouring frames the picture moves by more than {:.0} % of its \
                     width: allow more frames, or move more slowly",
                    choices.len() - 1,
                    100.0 * WIDE_STEP
                ),
            ));
        }
        let dark = choices.iter().filter(|c| at(c).brightness < 30.0).count();
        if 2 * dark > choices.len() {
            warnings.push(Warning::new("dark", format!("{dark} of {} frames are very dark", choices.len())));
        }
        let clipped = choices.iter().filter(|c| at(c).clipped > 0.4).count();
        if 2 * clipped > choices.len() {
            warnings.push(Warning::new(
                "clipped",
                format!(
                    "in {clipped} of {} frames much of the picture is black or white to the stop",
                    choices.len()
                ),
            ));
        }
        let blank = self.measures.len() - usable;
        if blank > 0 {
            warnings
                .push(Warning::new("blank_frames", format!("{blank} frames show nothing and were left out")));
        }
        warnings
    }
}

/// The step of net motion, each this long, in which a frame lies.
fn step_of(measures: &[Measure], step: f64, frame: usize) -> u64 {
    (f64::from(measures[frame].position) / step) as u64
}

/// The usable frames by steps of net motion, each this long.
fn steps<'a>(measures: &[Measure], usable: &'a [usize], step: f64) -> Vec<&'a [usize]> {
    usable.chunk_by(|&a, &b| step_of(measures, step, a) == step_of(measures, step, b)).collect()
}

/// Splits the usable frames into at most `most` runs of which each gives one frame.
///
/// If there is room, every frame that does not repeat the one before it is a run of its own. Otherwise runs are equal
/// steps of net motion, none below [`LEAST_STEP`], by the shortest step that gives no more runs than allowed. A jump in the motion leaves steps without
/// frames, which is why the step is searched for instead of divided out.
fn bins<'a>(measures: &[Measure], usable: &'a [usize], most: usize) -> Vec<&'a [usize]> {
    let split = |step: f64| steps(measures, usable, step);
    let repeats = |a: usize, b: usize| {
        let step = f64::from(REPEAT);
        measures[b].step < REPEAT && step_of(measures, step, a) == step_of(measures, step, b)
    };
    let all: Vec<&[usize]> = usable.chunk_by(|&a, &b| repeats(a, b)).collect();
    if all.len() <= most {
        return all;
    }
    let least = f64::from(LEAST_STEP);
    if split(least).len() <= most {
        return split(least);
    }
    // Bisection between a step that gives too many runs and one that gives a single run.
    let end = usable.last().map_or(0.0, |&i| f64::from(measures[i].position));
    let (mut short, mut long) = (least, end + least);
    for _ in 0..40 {
        let middle = 0.5 * (short + long);
        if split(middle).len() > most { short = middle } else { long = middle }
    }
    split(long)
}

/// The sharpest frame of a run. Frames at its ends count for less: two neighbours that meet there would show the same.
fn sharpest(measures: &[Measure], sharpness: &[f32], bin: &[usize]) -> usize {
    let position = |i: usize| measures[i].position;
    let (first, last) = (bin[0], bin[bin.len() - 1]); // a run is never empty
    let (middle, half) = (0.5 * (position(first) + position(last)), 0.5 * (position(last) - position(first)));
    let value = |i: usize| {
        let off = if half > 0.0 { (position(i) - middle) / half } else { 0.0 };
        sharpness[i] * (1.0 - 0.3 * off * off)
    };
    bin.iter().copied().fold(first, |best, i| if value(i) > value(best) { i } else { best })
}

/// Standard deviation of the Laplacian of a luma picture: how much fine detail it shows.
pub(super) fn detail(luma: &[u8], width: u32, height: u32) -> f32 {
    texture(luma, width as usize, height as usize).0
}

/// Detail, brightness, contrast and clipped fraction of a luma picture.
fn texture(luma: &[u8], width: usize, height: usize) -> (f32, f32, f32, f32) {
    let (mut sum, mut squares, mut clipped) = (0u64, 0u64, 0u64);
    for row in luma.chunks_exact(width) {
        // 32 bits hold a row: 8192 x 255² < 2^32.
        let (mut s, mut q, mut c) = (0u32, 0u32, 0u32);
        for &v in row {
            let v = u32::from(v);
            s += v;
            q += v * v;
            c += u32::from(v <= 2 || v >= 253);
        }
        sum += u64::from(s);
        squares += u64::from(q);
        clipped += u64::from(c);
    }
    let count = (width * height) as f64;
    let mean = sum as f64 / count;
    let variance = (squares as f64 / count - mean * mean).max(0.0);

    let (mut laplacian, mut laplacian_squares) = (0i64, 0i64);
    for y in 1..height.saturating_sub(1) {
        let row = |y: usize| &luma[y * width..(y + 1) * width];
        let (above, here, below) = (row(y - 1), row(y), row(y + 1));
        // 64 bits only for the row sums: a square is below 2^21, so 32 bits hold 1024 of them.
        for start in (1..width.saturating_sub(1)).step_by(1024) {
            let (mut s, mut q) = (0i32, 0i32);
            for x in start..(start + 1024).min(width - 1) {
                let v = 4 * i32::from(here[x])
                    - i32::from(here[x - 1])
                    - i32::from(here[x + 1])
                    - i32::from(above[x])
                    - i32::from(below[x]);
                s += v;
                q += v * v;
            }
            laplacian += i64::from(s);
            laplacian_squares += i64::from(q);
        }
    }
    let inner = (width.saturating_sub(2) * height.saturating_sub(2)).max(1) as f64;
    let mean_laplacian = laplacian as f64 / inner;
    let detail = (laplacian_squares as f64 / inner - mean_laplacian * mean_laplacian).max(0.0).sqrt();
    (detail as f32, mean as f32, variance.sqrt() as f32, (clipped as f64 / count) as f32)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measures(positions: impl IntoIterator<Item = f32>) -> Vec<Measure> {
        let measure = |position| Measure {
            detail: 10.0,
            brightness: 100.0,
            contrast: 40.0,
            clipped: 0.0,
            position,
            step: 0.0,
        };
        positions.into_iter().map(measure).collect()
    }

    fn sizes(measures: &[Measure], most: usize) -> Vec<usize> {
        let usable: Vec<usize> = (0..measures.len()).collect();
        bins(measures, &usable, most).iter().map(|b| b.len()).collect()
    }

    #[test]
    fn a_thin_video_keeps_every_frame() {
        assert_eq!(sizes(&measures((0..83).map(|i| i as f32 * 0.04)), 150), vec![1; 83]);
    }

    #[test]
    fn steps_of_equal_motion_fill_the_cap() {
        // 300 frames at rest, then 600 that move by 1 % each.
        let all = measures((0..900).map(|i| (i.max(300) - 300) as f32 * 0.01));
        let sizes = sizes(&all, 100);
        assert!((95..=100).contains(&sizes.len()), "{} frames", sizes.len());
        assert!(sizes[0] >= 300, "the pause gives one frame");
        assert!(sizes[1..].iter().all(|&s| s <= 7));
    }

    #[test]
    fn a_video_that_moves_far_gets_more_frames_if_it_may() {
        let film = |step: f32| {
            let measures = measures((0..324).map(|i| i as f32 * step));
            Survey { measures, ..Survey::new(64, 48) }
        };
        let count = |film: &Survey, needed| {
            let (choices, warnings) = film.choose(100, needed, 10.0).unwrap();
            let codes: Vec<String> = warnings.into_iter().map(|w| w.code.to_string()).collect();
            (choices.len(), codes)
        };
        // 26 widths in all: of 100 frames most are three frames of the film apart.
        let walk = film(0.08);
        assert_eq!(count(&walk, 100).0, 100);
        let (more, codes) = count(&walk, 300);
        assert!((250..=262).contains(&more) && codes == ["more_frames"], "{more} {codes:?}");
        assert_eq!(count(&walk, 200).0, 200);
        let told = walk.choose(100, 300, 10.0).unwrap().1;
        assert!(
            told[0].message.contains("instead of 100: with 100 the picture would move by 24 %"),
            "{told:?}"
        );
        // One that moves little does with as many as ever.
        let (count, codes) = count(&film(0.02), 300);
        assert!(count <= 100 && codes.is_empty(), "{count} {codes:?}");
    }

    #[test]
    fn frames_on_both_sides_of_a_jump_are_kept() {
        let all = measures((0..400).map(|i| i as f32 * 0.001 + if i >= 200 { 5.0 } else { 0.0 }));
        let usable: Vec<usize> = (0..400).collect();
        let bins = bins(&all, &usable, 20);
        assert!(bins.len() > 15, "{} frames: the jump must not eat the cap", bins.len());
        assert!(bins.iter().any(|b| b[0] == 200));
    }

    #[test]
    fn blur_lowers_the_detail_and_the_sharp_frame_is_taken() {
        let (width, height) = (64, 48);
        let sharp: Vec<u8> =
            (0..width * height).map(|k| if (k % width + k / width) % 4 < 2 { 40 } else { 200 }).collect();
        let blurred: Vec<u8> = (0..sharp.len())
            .map(|k| (sharp[k] as u32 + sharp[(k + 1) % sharp.len()] as u32).div_ceil(2) as u8)
            .collect();
        assert!(texture(&sharp, width, height).0 > 1.2 * texture(&blurred, width, height).0);
        let all = measures([0.0, 0.001, 0.002]);
        assert_eq!(sharpest(&all, &[0.5, 1.0, 1.1], &[0, 1, 2]), 1);
        assert_eq!(sharpest(&all, &[0.5, 1.0, 2.0], &[0, 1, 2]), 2);
    }

    #[test]
    fn black_frames_and_a_camera_at_rest_are_refused() {
        let mut black = Survey::new(64, 48);
        (0..10).for_each(|_| black.add(&[0; 64 * 48]));
        assert_eq!(black.choose(10, 10, 30.0).unwrap_err().kind(), ErrorKind::TooFewFrames);
        let mut random = crate::random::Random::new(1);
        let picture: Vec<u8> = (0..160 * 120).map(|_| random.below(256) as u8).collect();
        let mut still = Survey::new(160, 120);
        (0..40).for_each(|_| still.add(&picture));
        let error = still.choose(10, 10, 30.0).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InsufficientParallax);
        assert!(error.message().contains("does not move"), "{error}");
    }

    /// Spots on a wall, seen from a camera that has gone `shift` pixels; before them, a box at `x` of `side` pixels.
    fn wall(shift: f64, x: f64, side: f64, noise: u64) -> Vec<u8> {
        let spots = |u: f64, v: f64, cell: f64, seed: u64| {
            let key = ((u / cell).floor() as i64 as u64) << 32 ^ (v / cell).floor() as u64 ^ seed << 50;
            (crate::random::hash(key) % 120) as f64
        };
        (0..240 * 160)
            .map(|k| {
                let (u, v) = (f64::from(k % 240), f64::from(k / 240));
                let on_box = (x..x + side).contains(&u) && (20.0..20.0 + side).contains(&v);
                // Not sharper than a lens makes it: mean of four.
                let value: f64 = [(0.0, 0.0), (0.5, 0.0), (0.0, 0.5), (0.5, 0.5)]
                    .iter()
                    .map(|(a, b)| match on_box {
                        true => spots(u - x + a, v + b, 9.0, 1),
                        false => spots(u + shift + a, v + b, 11.0, 0),
                    })
                    .sum();
                let grain = crate::random::hash(noise << 32 ^ k as u64) % 5;
                (40.0 + value / 4.0) as u8 + grain as u8
            })
            .collect()
    }

    #[test]
    fn a_survey_that_let_go_of_its_pictures_says_the_same() {
        for is_moving in [true, false] {
            let film = || {
                let mut film = Survey::new(240, 160);
                for k in 0..80u64 {
                    let shift = if is_moving { 3.0 * k as f64 } else { 0.0 };
                    film.add(&wall(shift, 0.0, 0.0, k));
                }
                film
            };
            let said = |film: &Survey| film.choose(20, 20, 30.0).map_err(|e| e.to_string());
            let (whole, mut light) = (film(), film());
            light.let_go_of_pictures();
            assert!(whole.pictures_kept() >= SAMPLES && light.pictures_kept() == 0);
            assert_eq!(said(&light), said(&whole));
            assert_eq!(said(&light).is_ok(), is_moving);
            // Twice is as once.
            light.let_go_of_pictures();
            assert_eq!(said(&light), said(&whole));
        }
    }

    #[test]
    fn a_film_that_waits_for_most_of_its_time_is_taken_for_the_rest() {
        // First four fifths at rest, then round the scene; or in the middle, or at the end.
        for (before, moving, after) in [(320u64, 80, 0), (0, 80, 320), (160, 80, 160)] {
            let mut film = Survey::new(240, 160);
            for k in 0..before + moving + after {
                let gone = k.saturating_sub(before).min(moving);
                film.add(&wall(3.0 * gone as f64, 0.0, 0.0, k));
            }
            let (choices, _) = film.choose(60, 60, 30.0).unwrap();
            let inside = choices.iter().filter(|c| (before..before + moving).contains(&c.number)).count();
            assert!(inside > 40 && choices.len() <= inside + 3, "{inside} of {}", choices.len());
        }
    }

    #[test]
    fn a_thing_that_begins_to_move_before_a_camera_at_rest_is_no_way_of_the_camera() {
        let mut film = Survey::new(240, 160);
        for k in 0..400u64 {
            let x = 20.0 + 1.5 * k.saturating_sub(300) as f64;
            film.add(&wall(0.0, x, 110.0, k));
        }
        let error = film.choose(60, 60, 30.0).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InsufficientParallax, "{error}");
        // Before that a hand is before the lens, and takes the camera for moved.
        let mut film = Survey::new(240, 160);
        for k in 0..400u64 {
            let hand = if (100..130).contains(&k) { 200.0 * (k - 90) as f64 } else { 0.0 };
            film.add(&wall(hand, 20.0 + 0.2 * k as f64, 80.0, k));
        }
        let error = film.choose(60, 60, 30.0).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InsufficientParallax, "{error}");
    }
}
