//! What colours the object has, and what is around it: two histograms, learnt from outlines that are nearly right.

/// Levels of brightness and of each of the two colour differences.
const LEVELS: [usize; 3] = [32, 24, 24];

/// How much likelier each colour is on the object than around it.
pub(super) struct ColourOdds {
    log_odds: Vec<f32>,
}

/// Counts of the colours of pixels.
pub(super) struct Counts(Vec<u32>);

impl Counts {
    /// None yet.
    pub(super) fn new() -> Self {
        Self(vec![0; LEVELS.iter().product()])
    }

    /// Counts a pixel.
    pub(super) fn add(&mut self, colour: [u8; 3]) {
        self.0[cell(colour)] += 1;
    }

    /// Adds what another one has counted.
    pub(super) fn merge(mut self, other: &Self) -> Self {
        self.0.iter_mut().zip(&other.0).for_each(|(a, b)| *a += b);
        self
    }

    fn total(&self) -> f32 {
        self.0.iter().map(|c| u64::from(*c)).sum::<u64>() as f32
    }

    /// Each count spread to its neighbours, in every direction by weights of 1 2 1.
    fn spread(&self) -> Vec<f32> {
        let mut counts: Vec<f32> = self.0.iter().map(|c| *c as f32).collect();
        let strides = [LEVELS[1] * LEVELS[2], LEVELS[2], 1];
        for k in 0..3 {
            let before = counts.clone();
            for (i, count) in counts.iter_mut().enumerate() {
                let at = i / strides[k] % LEVELS[k];
                let lower = if at > 0 { before[i - strides[k]] } else { before[i] };
                let upper = if at + 1 < LEVELS[k] { before[i + strides[k]] } else { before[i] };
                *count = 0.5 * before[i] + 0.25 * (lower + upper);
            }
        }
        counts
    }
}

impl ColourOdds {
    /// From counts on the object and around it. `prior`: part of all pixels that a colour must have for its odds to be
    /// believed.
    pub(super) fn of(object: &Counts, around: &Counts, prior: f32) -> Self {
        let part = |counts: &Counts| {
            let total = counts.total().max(1.0);
            counts.spread().into_iter().map(move |c| c / total).collect::<Vec<f32>>()
        };
        let (object, around) = (part(object), part(around));
        let log_odds = object.iter().zip(&around).map(|(o, a)| ((o + prior) / (a + prior)).ln()).collect();
        Self { log_odds }
    }

    /// The log odds of a pixel, but for how much of the picture the object fills.
    pub(super) fn of_pixel(&self, colour: [u8; 3]) -> f32 {
        self.log_odds[cell(colour)]
    }
}

/// Brightness, 0 to 255, and how much more than that a colour has of blue and of red.
pub(super) fn brightness_and_differences(colour: [u8; 3]) -> [f32; 3] {
    let [r, g, b] = colour.map(f32::from);
    let brightness = 0.299 * r + 0.587 * g + 0.114 * b;
    [brightness, b - brightness, r - brightness]
}

/// The place of a colour in a histogram.
fn cell(colour: [u8; 3]) -> usize {
    let [brightness, blue, red] = brightness_and_differences(colour);
    // Differences are mostly small: the levels are finer around grey.
    let difference = |d: f32| 0.5 + 0.5 * (d / 255.0).signum() * (d.abs() / 255.0).sqrt();
    let level = |value: f32, k: usize| ((value * LEVELS[k] as f32) as usize).min(LEVELS[k] - 1);
    let [y, u, v] = [level(brightness / 256.0, 0), level(difference(blue), 1), level(difference(red), 2)];
    (y * LEVELS[1] + u) * LEVELS[2] + v
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colours_tell_the_object_from_what_is_around_it_and_say_nothing_of_those_never_seen() {
        let (mut object, mut around) = (Counts::new(), Counts::new());
        for shade in 0..200u8 {
            object.add([200, 40 + shade / 8, 40]);
            around.add([90, 90 + shade / 8, 110]);
            // White is on both.
            object.add([250, 250, 250]);
            around.add([250, 250, 250]);
        }
        let odds = ColourOdds::of(&object, &around, 1e-3);
        assert!(odds.of_pixel([202, 50, 42]) > 2.0, "{}", odds.of_pixel([202, 50, 42]));
        assert!(odds.of_pixel([90, 100, 110]) < -2.0);
        assert!(odds.of_pixel([250, 250, 250]).abs() < 0.1);
        assert_eq!(odds.of_pixel([20, 200, 20]), 0.0);
    }
}
