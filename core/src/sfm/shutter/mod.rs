//! Rolling shutter: the lines of a picture are read one after the other, and the camera moves meanwhile.
//!
//! A point of the world is seen in the line that is read `τ = T phase` after the middle one (`phase` -1/2 to 1/2) where
//! the moved camera sees it: `x_cam(τ) = exp(τ ω) R (x - c - τ v)`. The readout time `T` is one unknown of the capture;
//! the motion ω, v of each frame comes from the camera's path and, within what that leaves open, from the frame itself.
//! If every frame were free to have any motion, all could agree on a scene that is flat (Albl et al., "Degeneracies in
//! rolling shutter SfM", ECCV 2016); hence the path, and hence the test on tracks that took no part.
//!
//! ```text
//! motion (of the path) → correction (keypoints as of a global shutter) → bundle_adjustment::readout (T, poses, points)
//!        → own_motion (what the frames show) → acceptance (is it true?)
//! ```
//!
//! A principal point beside the middle of the picture and a shutter look much alike: a camera that turns evenly shifts
//! every picture by the same. So each is judged with the other free: the readout time is estimated together with the
//! principal point and must gain over a map whose principal point is free too, and the principal point goes back to
//! the middle if it is not told from there once the shutter is known.
//!
//! In: a finished map of a video. Out: the map and all keypoints as a global shutter would have shown them, or the
//! finding that there is nothing to correct; the map is then left as it is.

mod acceptance;
mod correction;
mod motion;
mod own_motion;
mod report;
#[cfg(test)]
mod tests;
mod tracked;

use nalgebra::Vector2;

use crate::camera::{Camera, CameraModel, LineMotion, Readout, ReadoutDirection, RollingShutter};
use crate::control::Control;
use crate::error::Result;
use crate::fiducial::Tags;
use crate::stage::Stage;
use crate::statistics::median;
use crate::video::{FrameSource, Frames};

use super::bundle_adjustment::{
    BundleOptions, adjust, adjust_with_readout, intrinsics_deviations_with, principal_point_index,
    readout_deviations,
};
use super::filters::filter_points;
use super::map::{Keypoints, Map, MapPoint, Observation};
use super::mapper_options::MapperOptions;
use super::polishing::{
    PrincipalPoint, bundle_options, keypoint_noise, principal_point, principal_point_prior,
};
use super::progress;
use super::steady_zoom::fit_steady_zoom;
use super::triangulation::{TriangulationOptions, triangulate_tracks};
use acceptance::{Comparison, focal_deviation, hold_out};
use correction::{Corrected, correct_keypoints, correct_keypoints_with_slopes, correct_tags, depths, rms};
use motion::{LONGEST_STEP, Motion, PathMotion, path_motions};
use own_motion::{centre_looseness, own_motions, pace};
use tracked::Tracked;

pub use report::ShutterReport;

/// Adjustments with the motions of the path at most: each takes the path anew.
const PATH_ROUNDS: usize = 4;
/// The last one changes the readout time by less than this, seconds.
const SETTLED: f64 = 2e-5;
/// Adjustments with the motions that the frames show at most. Frames far apart in time need most of them.
const OWN_ROUNDS: usize = 16;
/// The last one moves keypoints by less than this, standard deviations of theirs (root mean square).
const STILL: f64 = 0.01;
/// ... and the focal length by less than this part. Where the capture tells little of it, it still creeps when keypoints
/// stand still, by a sixth less in every round; and whether the shutter is believed depends on it.
const STILL_ZOOM: f64 = 1e-4;
/// Steps of each of these adjustments at most: what is left of one is taken by the next, which begins with other motions
/// anyway. The first number is that of the rounds after one that has moved keypoints [`FAR`].
const OWN_STEPS: [usize; 2] = [2, 1];
/// Standard deviations of the keypoints (root mean square). Chosen by hand.
const FAR: f64 = 0.25;
/// Steps of the others at most.
const STEPS: usize = 15;
/// A shift below this many standard deviations of the keypoints is not examined further: to lower their error by a
/// twentieth a third would have to go. Chosen by hand.
const LEAST_SHIFT: f64 = 0.2;
/// Lines of a sensor are as long as its long side, and the picture's is seldom another: that they lie along the short one
/// must be this much more significant to be believed. Chosen by hand.
const UNLIKELY: f64 = 3.0;
/// A readout time that is fewer standard deviations from none is none, whatever else the shutter explains.
const SIGNIFICANT: f64 = 2.0;
/// By this part of it the readout time creeps while it is adjusted with the frames' own motions, which the path holds so that they
/// fall short of what pictures show. Of 9 generated films (odd seeds, 8 to 30 ms, frames 0.07 seconds apart).
const CREEP: f64 = 0.035;
/// The frames' own motions may shift keypoints by this many times what the motions of the path do. Motions that are free of
/// the path can explain anything. Chosen by hand.
const WILD: f64 = 3.0;
/// Observations a frame, about, that the estimate begins with, and that a rival explanation is made from. They tell the motion along
/// the path as well as all do; the frames' own motions need all.
const FEW: usize = 300;
/// With fewer frames there is no path.
const FEWEST_FRAMES: usize = 8;

/// What the estimate is made from.
#[derive(Clone, Copy)]
pub(crate) struct ShutterInput<'a> {
    /// The adjusted map.
    pub(crate) map: &'a Map,
    /// Points with tracks, for the depth of keypoints that are in no track of `map`.
    pub(crate) points: &'a [MapPoint],
    /// All keypoints as they were measured.
    pub(crate) keypoints: &'a Keypoints,
    pub(crate) frames: &'a Frames,
    pub(crate) options: &'a MapperOptions,
    /// What became of the principal point without a shutter; `None` if it is to stay where it is.
    pub(crate) centre: Option<PrincipalPoint>,
    /// The readout time in seconds, if it is known.
    pub(crate) known: Option<f64>,
}

/// What was found.
#[derive(Default)]
pub(crate) struct Shutter {
    /// `None` where nothing was examined.
    pub(crate) report: Option<ShutterReport>,
    /// `None` where the map is to stay as it is.
    pub(crate) unrolled: Option<Unrolled>,
    /// Standard deviation of the readout time, seconds, if the motions of the frames are right.
    deviation: Option<f64>,
}

/// A map without the shutter's distortion.
pub(crate) struct Unrolled {
    pub(crate) map: Map,
    /// All keypoints as a global shutter would have shown them.
    pub(crate) keypoints: Vec<Vec<Vector2<f64>>>,
    /// What became of the principal point with the shutter; `None` if it was to stay where it is.
    pub(crate) centre: Option<PrincipalPoint>,
    readout: Readout,
    motions: Vec<Option<Motion>>,
    depths: Vec<Vec<f64>>,
}

impl Unrolled {
    /// The shutter, where the world was scaled by `scale` since.
    pub(crate) fn shutter(&self, scale: f64) -> RollingShutter {
        let motion = |(image, motion): (usize, &Option<Motion>)| {
            let (pose, motion) = (self.map.poses[image]?, (*motion)?);
            let velocity = scale * (pose.rotation * motion.drift);
            Some((image as u32 + 1, LineMotion { turn: motion.turn, velocity }))
        };
        let motions = self.motions.iter().enumerate().filter_map(motion).collect();
        RollingShutter { readout: self.readout, motions }
    }

    /// The tags as a global shutter would have shown them. `keypoints` are those that were measured.
    pub(crate) fn tags(&self, tags: &Tags, keypoints: &Keypoints) -> Tags {
        correct_tags(&self.map, keypoints, &self.depths, &self.motions, &self.readout, tags)
    }
}

/// What is not known of the shutter of a finished map.
pub(crate) struct ShutterDoubt {
    /// How keypoints move as the readout time grows, pixels per second.
    pub(crate) slopes: Vec<Vec<Vector2<f64>>>,
    /// The readout time as the capture shows it, seconds.
    pub(crate) seconds: f64,
    /// Its standard deviation: at most the time from one frame of the video to the next, which it also is where nothing
    /// is known.
    pub(crate) deviation: f64,
    /// Whether the map is corrected for it.
    pub(crate) is_corrected: bool,
}

/// What is not known of the shutter of `input.map`, which was finished after `found` and has these keypoints; `None` for
/// photographs, and where the readout time was given.
pub(crate) fn shutter_doubt(input: &ShutterInput<'_>, found: &Shutter) -> Option<ShutterDoubt> {
    let (longest, times) = times(input.frames)?;
    if input.known.is_some() || input.map.points.is_empty() {
        return None;
    }
    // How far a shutter may have bent the model is asked of long steps, too: they tell the even part of the motion.
    let all = || path_motions(&times, &input.map.poses, f64::INFINITY);
    let path = || all().iter().map(|p| p.map(|p| p.motion)).collect();
    let report = found.report.as_ref();
    let unrolled = found.unrolled.as_ref();
    let motions: Vec<Option<Motion>> = unrolled.map_or_else(path, |u| u.motions.clone());
    let direction = report.map_or_else(|| likely_direction(&input.map.camera), |r| r.direction);
    let depths = depths(input.map, input.points, input.keypoints);
    let still = Readout { seconds: 0.0, direction };
    let slopes = correct_keypoints_with_slopes(input.map, input.keypoints, &depths, &motions, &still).1;
    Some(ShutterDoubt {
        slopes,
        seconds: report.map_or(0.0, |r| 1e-3 * r.readout_ms),
        deviation: found.deviation.unwrap_or(longest).min(longest),
        is_corrected: unrolled.is_some(),
    })
}

/// Where the readout goes if nothing is known of it: across the long side of the picture.
fn likely_direction(camera: &Camera) -> ReadoutDirection {
    if camera.width < camera.height { ReadoutDirection::Right } else { ReadoutDirection::Down }
}

impl ShutterReport {
    /// Nothing can be said of frames that are so many seconds apart.
    fn of_long_steps(camera: &Camera, step: f64) -> Self {
        Self {
            applied: false,
            readout_ms: 0.0,
            direction: likely_direction(camera),
            deviation_ms: None,
            shift: 0.0,
            gain: None,
            refusal: Some(format!(
                "its frames are {step:.1} seconds apart, which does not tell how the camera moved while each was read; \
                 more frames would"
            )),
        }
    }
}

/// Finds the rolling shutter of a video, if there is one that matters.
///
/// # Errors
/// [`crate::ErrorKind::Cancelled`].
pub(crate) fn find_shutter(input: &ShutterInput<'_>, control: &Control) -> Result<Shutter> {
    let Some((longest, times)) = times(input.frames) else { return Ok(Shutter::default()) };
    if input.known == Some(0.0) || input.map.registered() < FEWEST_FRAMES || input.map.points.is_empty() {
        return Ok(Shutter::default());
    }
    control.progress(Stage::Sfm, "rolling shutter", progress::SHUTTER);
    let placed = times.iter().zip(&input.map.poses).filter(|(_, pose)| pose.is_some());
    let mut steps: Vec<f64> =
        placed.map(|(time, _)| *time).collect::<Vec<_>>().windows(2).map(|w| w[1] - w[0]).collect();
    if let Some(step) = median(&mut steps).filter(|&step| step > LONGEST_STEP) {
        return Ok(Shutter {
            report: Some(ShutterReport::of_long_steps(&input.map.camera, step)),
            unrolled: None,
            deviation: None,
        });
    }
    let (part, held_out) = hold_out(input.map);
    let few = Tracked::new(&thinned(&part), input.keypoints);
    // The border has no room for all parameters of OPENCV and its like and the readout along two axes.
    let has_room = !matches!(input.map.camera.model, CameraModel::OpenCv | CameraModel::OpenCvFisheye);
    let may_shift = input.centre.is_some() && has_room;
    let centre_prior = may_shift.then(|| principal_point_prior(&input.map.camera, input.options));
    let ShutterInput { keypoints, points, .. } = *input;
    let estimator = Estimator { input, centre_prior, keypoints, points, times: &times, control };
    let of_few = Estimator { keypoints: &few.keypoints, points: &[], ..estimator };
    let mut fit = of_few.start(few.map.clone())?;
    let report = |fit: &Fit, shift: f64, gain: Option<f64>, refusal: Option<String>| ShutterReport {
        applied: refusal.is_none(),
        readout_ms: 1e3 * fit.readout.seconds.abs(),
        direction: fit.readout.forward().direction,
        deviation_ms: fit.readout_deviation().map(|d| 1e3 * d),
        shift,
        gain,
        refusal,
    };
    let rejected = |report: ShutterReport, fit: &Fit| {
        Ok(Shutter { report: Some(report), unrolled: None, deviation: fit.deviation })
    };
    let noise = keypoint_noise(input.map, input.keypoints).unwrap_or(f64::INFINITY);
    let shift = of_few.shift(&fit);
    if shift < LEAST_SHIFT * noise {
        let why = format!("it would shift keypoints by {shift:.3} pixels, which are known to {noise:.3}");
        return rejected(report(&fit, shift, None, Some(why)), &fit);
    }
    of_few.along_the_path(&mut fit)?;
    let MapperOptions { max_error, min_angle, .. } = *input.options;
    let limits = TriangulationOptions { max_error, min_angle };
    // All points of a map, as the cameras and keypoints of a fit show them.
    let complete = |fit: &mut Fit, map: &Map| {
        let tracks: Vec<Vec<Observation>> = map.points.iter().map(|p| p.track.clone()).collect();
        fit.map.points = triangulate_tracks(&fit.map, &fit.corrected, &tracks, &limits);
    };
    few.give_back_tracks(&mut fit.map);
    if fit.map.points.len() < part.points.len() {
        fit.map.points.clone_from(&part.points);
        fit.corrected = estimator.correct(&fit.map, &fit.motions, &fit.readout);
        complete(&mut fit, &part);
    }
    estimator.settle(&mut fit, noise)?;
    let shift = estimator.shift(&fit);
    let of_path = estimator.motions_of_path(&fit.map);
    let along_path = estimator.correct(&fit.map, &of_path, &fit.readout);
    let usual_shift = rms(&fit.map, input.keypoints, &along_path);
    let without = estimator.without_shutter()?;
    let (before, after) = ((&without, input.keypoints), (&fit.map, &fit.corrected[..]));
    let comparison = Comparison::new(before, after, &held_out, &limits);
    let focal_deviation = focal_deviation(before, &estimator.bundle(&without, input.keypoints));
    let is_known = input.known.is_some();
    let (seconds, deviation) = (fit.readout.seconds.abs(), fit.deviation.unwrap_or(f64::INFINITY));
    let margin = if is_known { 0.0 } else { SIGNIFICANT * fit.readout_deviation().unwrap_or(0.0) };
    let refusal = if seconds > longest + margin {
        Some(format!("it would last longer than the {:.1} ms from frame to frame", 1e3 * longest))
    } else if !is_known && seconds < SIGNIFICANT * deviation {
        Some(format!("its {:.1} ms are known to {:.1} only", 1e3 * seconds, 1e3 * deviation))
    } else if shift > WILD * usual_shift {
        Some(format!("frames would shift keypoints by {shift:.2} pixels, and their path by {usual_shift:.2}"))
    } else if let Some(why) = comparison.refusal(is_known, focal_deviation) {
        Some(why)
    } else if is_known {
        None
    } else {
        estimator.better_zoom(&without, &held_out, &limits, comparison.gain)?
    };
    if refusal.is_some() {
        return rejected(report(&fit, shift, Some(comparison.gain), refusal), &fit);
    }
    let mut at_last = estimator;
    let mut centre = input.centre;
    if let Some(prior) = centre_prior {
        let found = estimator.principal_point(&fit, prior);
        if !found.refined {
            // It is not told from the middle of the picture now that the shutter is known.
            let x = principal_point_index(fit.map.camera.model);
            let middle = [fit.map.camera.width, fit.map.camera.height].map(|side| f64::from(side) / 2.0);
            fit.map.camera.params[x..x + 2].copy_from_slice(&middle);
            at_last = Estimator { centre_prior: None, ..estimator };
            at_last.settle(&mut fit, noise)?;
        }
        centre = Some(found);
    }
    complete(&mut fit, input.map);
    at_last.by_the_frames(&mut fit, STEPS)?;
    if !is_known {
        fit.shorten_to(longest);
    }
    let report = report(&fit, estimator.shift(&fit), Some(comparison.gain), None);
    filter_points(&mut fit.map, &fit.corrected, max_error, min_angle);
    let depths = depths(&fit.map, input.points, input.keypoints);
    let Fit { map, corrected, readout, motions, deviation, .. } = fit;
    let unrolled = Unrolled { map, keypoints: corrected, centre, readout, motions, depths };
    Ok(Shutter { report: Some(report), unrolled: Some(unrolled), deviation })
}

/// `map` with every so many of its points, evenly, so that about [`FEW`] observations a frame are left.
fn thinned(map: &Map) -> Map {
    let every = (map.observations() / (FEW * map.registered()).max(1)).max(1);
    map.with_points(map.points.iter().step_by(every).cloned().collect())
}

/// Seconds from frame to frame of the video, and the time of each of `frames`; `None` for photographs, videos that do not
/// tell, and panoramas: two or more sensors read them, each its own way.
fn times(frames: &Frames) -> Option<(f64, Vec<f64>)> {
    if frames.frames.iter().any(|f| f.side.is_some()) {
        return None;
    }
    let FrameSource::Video(info) = &frames.source else { return None };
    let times = frames.frames.iter().map(|f| f.timestamp).collect::<Option<Vec<f64>>>()?;
    (info.frame_rate > 0.0).then(|| (1.0 / info.frame_rate, times))
}

/// A state of the estimate.
struct Fit {
    map: Map,
    readout: Readout,
    /// Standard deviation of the readout time by the noise of the keypoints if the motions are right, seconds: what may be
    /// wrong with the map, for it depends on the product of both.
    deviation: Option<f64>,
    /// Standard deviation of the pace of the motions, as a part of it.
    pace_deviation: Option<f64>,
    motions: Vec<Option<Motion>>,
    /// The keypoints with this readout and these motions.
    corrected: Corrected,
}

#[derive(Clone, Copy)]
struct Estimator<'a> {
    input: &'a ShutterInput<'a>,
    /// Standard deviation of the principal point's prior in pixels, where it is an unknown.
    centre_prior: Option<f64>,
    /// The keypoints in question as they were measured.
    keypoints: &'a Keypoints,
    /// Points with tracks, for the depth of those that are in no track of the fit.
    points: &'a [MapPoint],
    /// Of the frames, seconds.
    times: &'a [f64],
    control: &'a Control,
}

impl Estimator<'_> {
    fn path(&self, map: &Map) -> Vec<Option<PathMotion>> {
        path_motions(self.times, &map.poses, LONGEST_STEP)
    }

    fn motions_of_path(&self, map: &Map) -> Vec<Option<Motion>> {
        self.path(map).iter().map(|p| p.map(|p| p.motion)).collect()
    }

    fn correct(&self, map: &Map, motions: &[Option<Motion>], readout: &Readout) -> Corrected {
        let depths = depths(map, self.points, self.keypoints);
        correct_keypoints(map, self.keypoints, &depths, motions, readout)
    }

    /// The same, and how keypoints move with the readout time, pixels per second.
    fn correct_with_slopes(
        &self,
        map: &Map,
        motions: &[Option<Motion>],
        readout: &Readout,
    ) -> (Corrected, Corrected) {
        let depths = depths(map, self.points, self.keypoints);
        correct_keypoints_with_slopes(map, self.keypoints, &depths, motions, readout)
    }

    fn bundle(&self, map: &Map, keypoints: &Keypoints) -> BundleOptions {
        let mut options = bundle_options(map, keypoints, self.input.options, self.centre_prior);
        options.stopping.max_iterations = options.stopping.max_iterations.min(STEPS);
        options
    }

    /// The map as a global shutter explains it best, with the principal point as free as with the shutter.
    fn without_shutter(&self) -> Result<Map> {
        let mut map = self.input.map.clone();
        if self.centre_prior.is_some() && !self.input.centre.is_some_and(|c| c.refined) {
            let bundle = self.bundle(&map, self.input.keypoints);
            adjust(&mut map, self.input.keypoints, &bundle, self.control)?;
        }
        Ok(map)
    }

    /// Why the shutter is not believed if a focal length that changes steadily explains the tracks that took no part as well or
    /// better than by `gain`: as the camera turns and comes nearer, lines that are read one after the other show much the same, and
    /// the motions of frames can bend a map to it. `without` is the map without either.
    fn better_zoom(
        &self,
        without: &Map,
        held_out: &[Vec<Observation>],
        limits: &TriangulationOptions,
        gain: f64,
    ) -> Result<Option<String>> {
        let keypoints = self.input.keypoints;
        let mut few = thinned(without);
        let bundle = self.bundle(&few, keypoints);
        adjust(&mut few, keypoints, &bundle, self.control)?;
        let zoomed = fit_steady_zoom(&few, keypoints, &bundle, self.control)?;
        let (before, after) = ((&few, keypoints), (&zoomed.map, &zoomed.keypoints[..]));
        let rival = Comparison::new(before, after, held_out, limits);
        Ok((rival.gain >= gain).then(|| {
            format!(
                "a focal length that changes by {:+.1} % from the first frame to the last explains more: the error of tracks that \
                 took no part falls by {:.0} % with it, and by {:.0} % with the shutter",
                100.0 * zoomed.change.exp_m1(),
                100.0 * rival.gain,
                100.0 * gain
            )
        }))
    }

    /// Where the principal point is, under a prior of this deviation, with the readout time as another unknown.
    fn principal_point(&self, fit: &Fit, prior: f64) -> PrincipalPoint {
        let slopes = self.correct_with_slopes(&fit.map, &fit.motions, &fit.readout).1;
        let slopes: &[&[Vec<Vector2<f64>>]] = if self.input.known.is_some() { &[] } else { &[&slopes] };
        let bundle = self.bundle(&fit.map, &fit.corrected);
        let mut deviations = intrinsics_deviations_with(&fit.map, &fit.corrected, slopes, &bundle);
        let path = self.path(&fit.map);
        let looser = centre_looseness(fit.as_seen(self.keypoints), &path, bundle.loss, bundle.noise);
        let x = principal_point_index(fit.map.camera.model);
        for (parameter, deviation) in deviations.iter_mut().flatten() {
            if let Some(factor) = parameter.checked_sub(x).and_then(|k| looser.get(k)) {
                *deviation *= factor;
            }
        }
        principal_point(&fit.map.camera, deviations.as_deref(), prior, self.input.options)
    }

    /// Rounds of adjustment by what the frames show, until nothing moves.
    fn settle(&self, fit: &mut Fit, noise: f64) -> Result<()> {
        let tracked = Tracked::new(&fit.map, self.keypoints);
        let of_tracked = Estimator { keypoints: &tracked.keypoints, points: &[], ..*self };
        fit.map.clone_from(&tracked.map);
        fit.corrected = of_tracked.correct(&fit.map, &fit.motions, &fit.readout);
        of_tracked.rounds(fit, noise)?;
        tracked.give_back_tracks(&mut fit.map);
        fit.corrected = self.correct(&fit.map, &fit.motions, &fit.readout);
        Ok(())
    }

    fn rounds(&self, fit: &mut Fit, noise: f64) -> Result<()> {
        let mut moved = f64::INFINITY;
        for _ in 0..OWN_ROUNDS {
            let (before, focal) = (fit.corrected.clone(), fit.map.camera.mean_focal());
            self.by_the_frames(fit, OWN_STEPS[usize::from(moved < FAR * noise)])?;
            moved = rms(&fit.map, &before, &fit.corrected);
            let zoom = (fit.map.camera.mean_focal() / focal).ln().abs();
            if moved < STILL * noise && zoom < STILL_ZOOM {
                break;
            }
        }
        Ok(())
    }

    /// Root mean square of the shift of the keypoints of the map, pixels.
    fn shift(&self, fit: &Fit) -> f64 {
        rms(&fit.map, self.keypoints, &fit.corrected)
    }

    /// Adjusts `map` together with the readout time, unless that is known; returns its change.
    fn adjust(
        &self,
        map: &mut Map,
        corrected: &Keypoints,
        slopes: &Keypoints,
        bundle: &BundleOptions,
    ) -> Result<f64> {
        if self.input.known.is_some() {
            adjust(map, corrected, bundle, self.control)?;
            return Ok(0.0);
        }
        let change = adjust_with_readout(map, corrected, &[slopes], bundle, self.control)?;
        Ok(change.first().copied().unwrap_or(0.0))
    }

    /// Along which axis the pictures are read, and roughly for how long, from a map without a shutter.
    fn start(&self, map: Map) -> Result<Fit> {
        let keypoints = self.keypoints;
        let motions = self.motions_of_path(&map);
        let axes = [ReadoutDirection::Down, ReadoutDirection::Right];
        let slopes = axes.map(|direction| {
            self.correct_with_slopes(&map, &motions, &Readout { seconds: 0.0, direction }).1
        });
        let slopes = slopes.each_ref().map(|s| &s[..]);
        let mut tried = map.clone();
        let bundle = self.bundle(&map, keypoints);
        let found = adjust_with_readout(&mut tried, keypoints, &slopes, &bundle, self.control)?;
        let deviations = readout_deviations(&tried, keypoints, &slopes, &bundle);
        let along = |axis: usize| {
            let (seconds, deviation) = (*found.get(axis)?, *deviations.as_ref()?.get(axis)?);
            Some((seconds, deviation, seconds.abs() / deviation))
        };
        let likely = usize::from(map.camera.width < map.camera.height);
        let axis = match (along(likely), along(1 - likely)) {
            (Some(own), Some(other)) if other.2 > UNLIKELY * own.2 => 1 - likely,
            _ => likely,
        };
        let (mut seconds, deviation) = along(axis).map_or((0.0, None), |a| (a.0, Some(a.1)));
        if let Some(known) = self.input.known {
            seconds = known.copysign(seconds);
        }
        let readout = Readout { seconds, direction: axes[axis] };
        let corrected = self.correct(&map, &motions, &readout);
        Ok(Fit { map, readout, deviation, pace_deviation: None, motions, corrected })
    }

    /// Adjusts map and readout time with the motions of the path.
    fn along_the_path(&self, fit: &mut Fit) -> Result<()> {
        for _ in 0..PATH_ROUNDS {
            fit.motions = self.motions_of_path(&fit.map);
            let (corrected, slopes) = self.correct_with_slopes(&fit.map, &fit.motions, &fit.readout);
            let bundle = self.bundle(&fit.map, &corrected);
            let change = self.adjust(&mut fit.map, &corrected, &slopes, &bundle)?;
            fit.readout.seconds += change;
            if change.abs() < SETTLED {
                let deviations = readout_deviations(&fit.map, &corrected, &[&slopes], &bundle);
                fit.deviation = deviations.and_then(|d| d.first().copied());
                break;
            }
        }
        fit.corrected = self.correct(&fit.map, &fit.motions, &fit.readout);
        Ok(())
    }

    /// Adjusts motions, readout time and map to what the frames show.
    fn by_the_frames(&self, fit: &mut Fit, steps: usize) -> Result<()> {
        let path = self.path(&fit.map);
        let mut bundle = self.bundle(&fit.map, &fit.corrected);
        let noise = bundle.noise;
        bundle.stopping.max_iterations = bundle.stopping.max_iterations.min(steps);
        let measured = self.keypoints;
        let own = own_motions(fit.as_seen(measured), &path, bundle.loss, noise);
        let pace = pace(&path, &own);
        fit.motions = own.motions;
        if self.input.known.is_none() {
            fit.pace_deviation = pace.deviation;
            fit.readout.seconds *= pace.factor;
            fit.motions.iter_mut().flatten().for_each(|m| *m = m.scaled(1.0 / pace.factor));
        }
        let (corrected, slopes) = self.correct_with_slopes(&fit.map, &fit.motions, &fit.readout);
        fit.readout.seconds += self.adjust(&mut fit.map, &corrected, &slopes, &bundle)?;
        fit.corrected = self.correct(&fit.map, &fit.motions, &fit.readout);
        Ok(())
    }
}

impl Fit {
    /// Standard deviation of the readout time, seconds. Before the frames' own motions are asked, nothing creeps.
    fn readout_deviation(&self) -> Option<f64> {
        let of_pace = self.pace_deviation.map_or(0.0, |pace| self.readout.seconds * CREEP.hypot(pace));
        self.deviation.map(|of_noise| of_noise.hypot(of_pace))
    }

    /// Makes the readout at most this long, in seconds, with motions as much faster: pictures tell the product of both, and a
    /// sensor has read a frame before it begins with the next.
    fn shorten_to(&mut self, longest: f64) {
        let factor = self.readout.seconds.abs() / longest;
        if factor > 1.0 {
            self.readout.seconds /= factor;
            self.motions.iter_mut().flatten().for_each(|m| *m = m.scaled(factor));
        }
    }

    fn as_seen<'a>(&'a self, measured: &'a Keypoints) -> own_motion::Seen<'a> {
        own_motion::Seen {
            map: &self.map,
            measured,
            corrected: &self.corrected,
            motions: &self.motions,
            readout: self.readout,
        }
    }
}
