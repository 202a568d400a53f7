//! What structure from motion did, in figures: for people, for the job's manifest, and to compare runs.

use std::time::Instant;

use serde::{Deserialize, Serialize};

use crate::camera::CameraModel;
use crate::control::Warning;

use super::metric_scale::ScaleReport;
use super::options::MappingMethod;
use super::shutter::ShutterReport;
use super::verdict::Verdict;

/// Time that a part of the work took.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StepTime {
    /// The part, for example `matching`.
    pub step: String,
    /// Elapsed seconds.
    pub wall_s: f64,
    /// Processor seconds of the whole process in that time, all threads; absent where the system does not tell.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_s: Option<f64>,
}

/// Images `first..=last` (zero-based, in the order of the frames).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct FrameRange {
    /// First image of the range.
    pub first: usize,
    /// Last image of the range.
    pub last: usize,
}

/// A map that was made on the way to the model. The one chosen is sound (it has no refusal), and of those it has most
/// images, then most observations that fit well.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Attempt {
    /// The mapper that made it.
    pub method: MappingMethod,
    /// Pairs of images that it was made from; fewer than were verified where those that contradict the camera's path
    /// were left out.
    pub pairs: usize,
    /// Images with a pose.
    pub registered: usize,
    /// Observations of all points.
    pub observations: usize,
    /// Fraction of the verified matches that agree with it.
    pub agreeing_matches: f64,
    /// Why it is not sound.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub refusal: Option<String>,
    /// Whether it began from the poses of another one with steps made even, because it hung together by few points, its steps were
    /// uneven or few matches agreed with it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub even_steps: bool,
    /// Whether it became the model.
    pub chosen: bool,
}

/// Another place that the capture shows, in figures.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ComponentReport {
    /// Its images (numbers of the whole capture).
    pub images: Vec<FrameRange>,
    /// How many these are.
    pub registered: usize,
    /// Scene points.
    pub points: usize,
    /// Reprojection error of an observation, mean, pixels.
    pub mean_reprojection_error: f64,
    /// The lens model.
    pub camera_model: CameraModel,
    /// Its parameters, in the model's order.
    pub camera_params: Vec<f64>,
    /// Whether its unit is the metre.
    pub is_metric: bool,
    /// What it is worth. Frames are numbers of the whole capture.
    pub verdict: Option<Verdict>,
}

/// A camera that made a part of the pictures, in figures.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CameraReport {
    /// Its images.
    pub images: Vec<FrameRange>,
    /// How many of them have a pose.
    pub registered: usize,
    /// The lens model.
    pub camera_model: CameraModel,
    /// Its parameters, in the model's order.
    pub camera_params: Vec<f64>,
}

/// Figures of a reconstruction. Angles in degrees, lengths in pixels.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SfmReport {
    /// Images that went in.
    pub frames: usize,
    /// Images with a pose.
    pub registered: usize,
    /// Images without a pose.
    pub unregistered: Vec<FrameRange>,
    /// The mapper that made the model.
    pub method: MappingMethod,
    /// Features of an image, median.
    pub median_features: usize,
    /// Pairs of images that were matched.
    pub candidate_pairs: usize,
    /// Pairs with verified geometry.
    pub verified_pairs: usize,
    /// Fraction of the images' widest verified pairs that a camera turning on the spot would explain, on average over the images; of
    /// photographs in bursts that of the pairs from spot to spot.
    pub rotation_only_pairs: f64,
    /// Fraction of the verified matches that agree with the finished model.
    pub agreeing_matches: f64,
    /// Scene points.
    pub points: usize,
    /// Observations of all points.
    pub observations: usize,
    /// Images that see a point, mean.
    pub mean_track_length: f64,
    /// Images that see a point, median.
    pub median_track_length: usize,
    /// Observations of a registered image, median.
    pub median_observations: usize,
    /// Observations of a registered image; 5 % of the images have fewer.
    pub few_observations: usize,
    /// Reprojection error of an observation, mean.
    pub mean_reprojection_error: f64,
    /// Reprojection error of an observation, median.
    pub median_reprojection_error: f64,
    /// Widest angle between two rays of a point, median.
    pub median_parallax_degrees: f64,
    /// The lens model.
    pub camera_model: CameraModel,
    /// Its parameters, in the model's order.
    pub camera_params: Vec<f64>,
    /// Cameras beside the one of `camera_model` and `camera_params`, which made most of the pictures; in the model they are 2 and up.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub other_cameras: Vec<CameraReport>,
    /// Whether the principal point was refined (else it is the image centre).
    pub principal_point_refined: bool,
    /// Standard deviation of the principal point (the larger of x and y) that this capture would determine it with;
    /// absent where it was not examined, or the capture says nothing about it.
    #[serde(default)]
    pub principal_point_deviation: Option<f64>,
    /// How far from the image centre the capture would put it; absent where `principal_point_deviation` is.
    #[serde(default)]
    pub principal_point_shift: Option<f64>,
    /// Steps `k` to `k + 1` of the camera's path that the model breaks: the matches of neighbouring frames by one camera
    /// contradict it.
    #[serde(default)]
    pub broken_steps: Vec<usize>,
    /// Other places that the capture shows: frames that share nothing with the model and became models of their own.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub components: Vec<ComponentReport>,
    /// The maps that were made, in their order; one of them became the model.
    #[serde(default)]
    pub attempts: Vec<Attempt>,
    /// The rolling shutter, where the capture was examined for one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rolling_shutter: Option<ShutterReport>,
    /// The metric scale, where it was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scale: Option<ScaleReport>,
    /// What the model is worth: how far off its poses are expected to be, and why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verdict: Option<Verdict>,
    /// What the user should know.
    pub warnings: Vec<Warning>,
    /// Where the time went.
    pub times: Vec<StepTime>,
}

/// Measures the parts of the work, one after the other.
#[derive(Clone)]
pub(crate) struct Stopwatch {
    times: Vec<StepTime>,
    start: (Instant, Option<f64>),
}

impl Stopwatch {
    pub(crate) fn new() -> Self {
        Self { times: Vec::new(), start: (Instant::now(), process_seconds()) }
    }

    /// Ends the part that runs since the last call. A part that was measured before goes on.
    pub(crate) fn lap(&mut self, step: &str) {
        let now = (Instant::now(), process_seconds());
        let wall_s = now.0.duration_since(self.start.0).as_secs_f64();
        let cpu_s = now.1.zip(self.start.1).map(|(after, before)| after - before);
        match self.times.iter_mut().find(|t| t.step == step) {
            Some(t) => {
                t.wall_s += wall_s;
                t.cpu_s = t.cpu_s.zip(cpu_s).map(|(a, b)| a + b);
            }
            None => self.times.push(StepTime { step: step.to_string(), wall_s, cpu_s }),
        }
        self.start = now;
    }

    pub(crate) fn times(self) -> Vec<StepTime> {
        self.times
    }
}

/// Processor seconds of this process so far, where the system tells (Linux; ticks of 10 ms).
fn process_seconds() -> Option<f64> {
    let stat = std::fs::read_to_string("/proc/self/stat").ok()?;
    // The program's name, in parentheses, may hold spaces; utime and stime are the 12th and 13th field after it.
    let mut fields = stat.rsplit_once(')')?.1.split_ascii_whitespace().skip(11);
    let user: f64 = fields.next()?.parse().ok()?;
    let system: f64 = fields.next()?.parse().ok()?;
    Some((user + system) / 100.0)
}

/// Consecutive runs of increasing `indices`.
pub(crate) fn ranges(indices: impl IntoIterator<Item = usize>) -> Vec<FrameRange> {
    let mut ranges: Vec<FrameRange> = Vec::new();
    for i in indices {
        match ranges.last_mut() {
            Some(range) if range.last + 1 == i => range.last = i,
            _ => ranges.push(FrameRange { first: i, last: i }),
        }
    }
    ranges
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_are_joined() {
        let range = |first, last| FrameRange { first, last };
        assert_eq!(ranges([0, 1, 2, 5, 7, 8]), vec![range(0, 2), range(5, 5), range(7, 8)]);
        assert!(ranges([]).is_empty());
    }

    #[test]
    fn processor_time_is_measured_where_the_system_tells() {
        if !std::path::Path::new("/proc/self/stat").exists() {
            return;
        }
        let mut watch = Stopwatch::new();
        let start = Instant::now();
        let mut x = 1u64;
        while start.elapsed().as_millis() < 60 {
            x = std::hint::black_box(crate::random::hash(x));
        }
        watch.lap("work");
        watch.lap("work");
        let times = watch.times();
        assert_eq!(times.len(), 1);
        assert!(times[0].cpu_s.is_some_and(|s| s >= 0.0) && times[0].wall_s >= 0.06);
    }
}
