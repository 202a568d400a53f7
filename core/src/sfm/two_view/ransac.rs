//! Locally optimised RANSAC (Chum et al., DAGM 2003) with the MSAC score, deterministic for a seed.
//!
//! Matches come best first. Samples are drawn from a growing set of the best ones (as in PROSAC, Chum & Matas, CVPR
//! 2005), every second one from all: the best matches of an image often crowd on one object. Each new best model is
//! refined on its inliers at once, so the loop stops soon after the first sample without outliers.

use super::score::Score;
use crate::random::Random;

/// What is to be estimated.
pub(crate) trait Problem {
    /// A hypothesis.
    type Model: Clone;
    /// Data that the minimal solver takes.
    const SAMPLE: usize;
    /// Number of data, best first.
    fn len(&self) -> usize;
    /// The models that agree with the sample (indices of data), into `models`, which comes empty.
    fn solve(&self, sample: &[usize], models: &mut Vec<Self::Model>);
    /// The score of a model; [`Score::WORST`] once its cost exceeds `limit`.
    fn score(&self, model: &Self::Model, limit: f64) -> Score;
    /// A better model from the inliers of this one, if there is one.
    fn refine(&self, model: &Self::Model) -> Option<Self::Model>;
}

/// When to stop.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Stopping {
    /// Probability with which a sample without outliers is to be found.
    pub(crate) confidence: f64,
    /// A model with fewer inliers is of no use: no search for it.
    pub(crate) min_inliers: usize,
    /// Likewise as a fraction of all data.
    pub(crate) min_inlier_ratio: f64,
    /// Samples drawn at least, however soon one has many inliers.
    pub(crate) min_iterations: usize,
    /// At most this many samples.
    pub(crate) max_iterations: usize,
}

/// Samples after which draws come from all data.
const GROWTH: usize = 300;

/// The best model found, or `None` if there is none with enough inliers. `start` are hypotheses to try first.
pub(crate) fn lo_ransac<P: Problem>(
    problem: &P,
    stopping: &Stopping,
    seed: u64,
    start: &[P::Model],
) -> Option<(P::Model, Score)> {
    let n = problem.len();
    if n < P::SAMPLE.max(stopping.min_inliers) {
        return None;
    }
    let floor = stopping.min_inlier_ratio.max(stopping.min_inliers as f64 / n as f64);
    let mut random = Random::new(seed);
    let mut best: Option<(P::Model, Score)> = None;
    let mut sample = vec![0; P::SAMPLE];
    let mut models = start.to_vec();
    let mut needed = iterations_for(floor, P::SAMPLE, stopping);
    let mut iteration = 0;
    loop {
        for model in models.drain(..) {
            consider(problem, model, &mut best);
        }
        if let Some((_, score)) = &best {
            let ratio = (score.inliers as f64 / n as f64).max(floor);
            needed = needed.min(iterations_for(ratio, P::SAMPLE, stopping));
        }
        if iteration >= needed.max(stopping.min_iterations) {
            break;
        }
        let pool = if iteration % 2 == 0 && iteration < GROWTH {
            let first = (4 * P::SAMPLE).min(n);
            first + (n - first) * iteration / GROWTH
        } else {
            n
        };
        draw(&mut random, pool, &mut sample);
        problem.solve(&sample, &mut models);
        iteration += 1;
    }
    best.filter(|(_, score)| score.inliers >= stopping.min_inliers)
}

/// Scores a model, and refines it for as long as that helps if it is the best so far.
fn consider<P: Problem>(problem: &P, model: P::Model, best: &mut Option<(P::Model, Score)>) {
    let limit = |best: &Option<(P::Model, Score)>| best.as_ref().map_or(f64::INFINITY, |b| b.1.cost);
    let score = problem.score(&model, limit(best));
    if score.cost >= limit(best) {
        return;
    }
    *best = Some((model.clone(), score));
    let mut current = model;
    for _ in 0..2 {
        let Some(refined) = problem.refine(&current) else { break };
        let score = problem.score(&refined, limit(best));
        if score.cost >= limit(best) {
            break;
        }
        *best = Some((refined.clone(), score));
        current = refined;
    }
}

/// Samples needed to draw one without outliers with the confidence asked for.
fn iterations_for(inlier_ratio: f64, sample: usize, stopping: &Stopping) -> usize {
    let clean = inlier_ratio.min(1.0).powi(sample as i32);
    if clean >= 1.0 {
        return 0;
    }
    let needed = (1.0 - stopping.confidence).ln() / (-clean).ln_1p();
    if needed.is_finite() {
        (needed.ceil() as usize).min(stopping.max_iterations)
    } else {
        stopping.max_iterations
    }
}

/// Different numbers below `pool`.
fn draw(random: &mut Random, pool: usize, sample: &mut [usize]) {
    for k in 0..sample.len() {
        sample[k] = loop {
            let candidate = random.below(pool);
            if !sample[..k].contains(&candidate) {
                break candidate;
            }
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A line y = a x + b through points, some of which lie elsewhere.
    struct Line(Vec<(f64, f64)>);

    impl Problem for Line {
        type Model = (f64, f64);
        const SAMPLE: usize = 2;
        fn len(&self) -> usize {
            self.0.len()
        }
        fn solve(&self, sample: &[usize], models: &mut Vec<(f64, f64)>) {
            let ((x1, y1), (x2, y2)) = (self.0[sample[0]], self.0[sample[1]]);
            let a = (y2 - y1) / (x2 - x1);
            models.push((a, y1 - a * x1));
        }
        fn score(&self, &(a, b): &(f64, f64), _: f64) -> Score {
            let squares = self.0.iter().map(|(x, y)| (y - a * x - b).powi(2));
            Score {
                cost: squares.clone().map(|s| s.min(0.01)).sum(),
                inliers: squares.filter(|s| *s < 0.01).count(),
            }
        }
        fn refine(&self, _: &(f64, f64)) -> Option<(f64, f64)> {
            None
        }
    }

    #[test]
    fn the_line_among_outliers_is_found_and_noise_alone_is_refused() {
        let stopping = Stopping {
            confidence: 0.999,
            min_inliers: 20,
            min_inlier_ratio: 0.1,
            min_iterations: 40,
            max_iterations: 5000,
        };
        let mut random = Random::new(7);
        let point = |i: usize, random: &mut Random, good: bool| {
            let x = i as f64;
            (x, if good { 2.0 * x + 1.0 } else { 300.0 * random.uniform() })
        };
        let line = Line((0..100).map(|i| point(i, &mut random, i % 4 == 3)).collect());
        let ((a, b), score) = lo_ransac(&line, &stopping, 1, &[]).unwrap();
        assert!((a - 2.0).abs() < 1e-9 && (b - 1.0).abs() < 1e-9);
        assert_eq!(score.inliers, 25);
        let noise = Line((0..100).map(|i| point(i, &mut random, false)).collect());
        assert!(lo_ransac(&noise, &stopping, 1, &[]).is_none());
        assert!(lo_ransac(&Line(vec![(0.0, 0.0)]), &stopping, 1, &[]).is_none());
    }

    #[test]
    fn the_number_of_samples_follows_the_inlier_ratio() {
        let stopping = Stopping {
            confidence: 0.99,
            min_inliers: 1,
            min_inlier_ratio: 0.0,
            min_iterations: 0,
            max_iterations: 10_000,
        };
        assert_eq!(iterations_for(0.5, 2, &stopping), 17); // ln 0.01 / ln 0.75 = 16.0078
        assert_eq!(iterations_for(1.0, 7, &stopping), 0);
        assert_eq!(iterations_for(0.01, 7, &stopping), 10_000);
    }
}
