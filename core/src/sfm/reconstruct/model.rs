//! From the map that is taken to the model that is handed over: exact keypoints, lens, shutter and scale, and what it is worth.

use std::borrow::Cow;

use crate::control::{Control, Warning};
use crate::error::Result;
use crate::fiducial::Tags;
use crate::stage::Stage;

use super::{Found, Reconstructor, ViewGraph, scale_missing};
use crate::sfm::fisheye::as_fisheye;
use crate::sfm::gate;
use crate::sfm::map::{Keypoints, Map, MapPoint, Observation};
use crate::sfm::mapper_options::MapperOptions;
use crate::sfm::metric_scale::{PrincipalPointIs, measure_scale};
use crate::sfm::output::{move_onto, normalise, sparse_model};
use crate::sfm::patch_alignment::align_keypoints;
use crate::sfm::polishing::{PrincipalPoint, adapt, bundle_options, principal_point_prior};
use crate::sfm::progress;
use crate::sfm::reconstruction::Reconstruction;
use crate::sfm::report::{SfmReport, Stopwatch};
use crate::sfm::shutter::{ShutterDoubt, ShutterInput, find_shutter, shutter_doubt};
use crate::sfm::triangulation::{TriangulationOptions, triangulate_tracks};
use crate::sfm::verdict::{Grade, Judged, judge};

/// What is not known of how the pictures were taken.
struct Unsure {
    centre: Option<PrincipalPoint>,
    /// By camera beside the one that made most images.
    other_centres: Vec<Option<PrincipalPoint>>,
    shutter: Option<ShutterDoubt>,
}

/// What a map is completed with after it was adjusted to exact observations only.
struct Refined<'a> {
    keypoints: &'a Keypoints,
    /// All observations.
    tracks: &'a [Vec<Observation>],
    limits: TriangulationOptions,
}

impl Refined<'_> {
    /// The cameras of `exact` with all points that fit them.
    fn complete(&self, exact: &Map) -> Map {
        let mut map = Map { points: Vec::new(), ..exact.clone() };
        map.points = triangulate_tracks(&map, self.keypoints, self.tracks, &self.limits);
        map
    }
}

impl Reconstructor<'_> {
    /// The model of a map, if it is worth to be passed on.
    ///
    /// # Errors
    /// Those of [`model_of`](Self::model_of) and [`accepted`](Self::accepted).
    pub(super) fn finish(
        &self,
        found: Found,
        mut watch: Stopwatch,
        control: &Control,
    ) -> Result<Reconstruction> {
        self.accepted(self.model_of(found, &mut watch, control)?)
    }

    /// `found`, unless it is not to be passed on.
    ///
    /// # Errors
    /// As [`crate::sfm::verdict::Verdict::refusal`], for a broken model, and for a doubtful one where that is asked for.
    pub(super) fn accepted(&self, found: Reconstruction) -> Result<Reconstruction> {
        let refused = |grade: Grade| match grade {
            Grade::Good => false,
            Grade::Doubtful => self.options.strict,
            Grade::Broken => !self.options.keep_broken,
        };
        match &found.report.verdict {
            Some(verdict) if refused(verdict.grade) => Err(verdict.refusal()),
            _ => Ok(found),
        }
    }

    /// Makes the model of a map: exact keypoints, lens, shutter and scale, and what it is worth.
    pub(super) fn model_of(
        &self,
        found: Found,
        watch: &mut Stopwatch,
        control: &Control,
    ) -> Result<Reconstruction> {
        let Found { candidate: found, graph, mut attempts } = found;
        if let Some(attempt) = attempts.get_mut(found.attempt) {
            attempt.chosen = true;
        }
        control.progress(Stage::Sfm, "aligning keypoints", progress::ALIGNMENT);
        let tracks: Vec<_> = found.map.points.iter().map(|p| p.track.clone()).collect();
        let aligned = align_keypoints(&found.map, self.pictures, self.frames, control)?;
        watch.lap("keypoint alignment");
        let MapperOptions { max_error, min_angle, .. } = self.mapper;
        let limits = TriangulationOptions { max_error, min_angle };
        let mut refined = Refined { keypoints: &aligned.keypoints, tracks: &tracks, limits };
        let mut exact = aligned.exact_part(&found.map);
        adapt(&mut exact, refined.keypoints, &self.mapper, control)?;
        watch.lap("adjustment to aligned keypoints");
        if let Some(camera) = as_fisheye(&exact, refined.keypoints, &self.mapper, control)? {
            exact.camera = camera;
        }
        watch.lap("kind of lens");
        control.progress(Stage::Sfm, "lens", progress::LENS);
        let may_move = self.options.refine_principal_point && !self.rig.is_panoramic();
        let mut centres = self.refine_possible(&mut exact, refined.keypoints, may_move, control)?.into_iter();
        // The camera that made most images is the first.
        let mut centre = centres.next().flatten();
        watch.lap("lens");
        let measured = &aligned.keypoints;
        let points = &found.map.points;
        let shutter = find_shutter(&self.shutter_input(&exact, points, measured, centre), control)?;
        let mut tags = self.tags.map(|(size, tags)| (size, Cow::Borrowed(tags)));
        if let Some(unrolled) = &shutter.unrolled {
            exact.clone_from(&unrolled.map);
            refined.keypoints = &unrolled.keypoints;
            tags = self.tags.map(|(size, tags)| (size, Cow::Owned(unrolled.tags(tags, measured))));
            // The shutter had bent what was said of it.
            centre = unrolled.centre;
        }
        watch.lap("rolling shutter");
        let mut map = refined.complete(&exact);
        let mut report = self.report(&map, refined.keypoints, found.report.method, &graph);
        let elsewhere = self.elsewhere(&map);
        report.warnings = gate::check_model(&report, &map, self.frames, &self.known_focals, elsewhere)?;
        report.rolling_shutter.clone_from(&shutter.report);
        report.principal_point_refined = centre.is_some_and(|c| c.refined);
        report.principal_point_deviation = centre.and_then(|c| c.deviation());
        report.principal_point_shift = centre.and_then(|c| c.shift());
        let metres = match &tags {
            Some((size, tags)) => {
                self.measure_scale((*size, tags), &exact, &refined, &mut map, &mut report, &graph, control)?
            }
            None => None,
        };
        if tags.is_some() {
            watch.lap("metric scale");
        }
        let finished = self.shutter_input(&exact, points, refined.keypoints, centre);
        let shutter_doubt = shutter_doubt(&finished, &shutter);
        let unsure = Unsure { centre, other_centres: centres.collect(), shutter: shutter_doubt };
        control.progress(Stage::Sfm, "judging the model", progress::VERDICT);
        self.judge(&exact, &map, refined.keypoints, &graph, &unsure, &mut report);
        watch.lap("verdict");
        // Not before: it is no doubt about the map, by which maps are compared.
        report.warnings.extend(self.about_focal.clone());
        let scale = match self.base {
            Some(base) => move_onto(&mut map, &base.poses, metres),
            None => normalise(&mut map, self.frames, metres),
        };
        let model = sparse_model(&map, refined.keypoints, &self.pictures.colors, self.frames);
        watch.lap("output");
        report.attempts = attempts;
        report.times = watch.clone().times();
        let shutter = shutter.unrolled.map(|unrolled| unrolled.shutter(scale));
        Ok(Reconstruction { model, report, shutter, components: Vec::new() })
    }

    /// What a shutter is looked for in: `points` tell the depth of keypoints that are in no track of `map`.
    fn shutter_input<'b>(
        &'b self,
        map: &'b Map,
        points: &'b [MapPoint],
        keypoints: &'b Keypoints,
        centre: Option<PrincipalPoint>,
    ) -> ShutterInput<'b> {
        let known = self.options.rolling_shutter_ms.map(|ms| 1e-3 * ms);
        ShutterInput { map, points, keypoints, frames: self.frames, options: &self.mapper, centre, known }
    }

    /// Puts the verdict into `report`.
    fn judge(
        &self,
        exact: &Map,
        map: &Map,
        keypoints: &Keypoints,
        graph: &ViewGraph,
        unsure: &Unsure,
        report: &mut SfmReport,
    ) {
        let centre_prior = principal_point_prior(&exact.camera, &self.mapper);
        let prior = report.principal_point_refined.then_some(centre_prior);
        let other_priors = exact.others.cameras.iter().map(|c| principal_point_prior(c, &self.mapper));
        let other_centres: Vec<_> = other_priors.zip(unsure.other_centres.iter().copied()).collect();
        let mut bundle = bundle_options(exact, keypoints, &self.mapper, prior);
        let is_refined = |c: Option<PrincipalPoint>| c.is_some_and(|c| c.refined);
        bundle.other_centres =
            other_centres.iter().map(|&(prior, centre)| is_refined(centre).then_some(prior)).collect();
        let verdict = judge(&Judged {
            adjusted: exact,
            complete: map,
            keypoints,
            bundle: &bundle,
            centre_prior,
            centre: unsure.centre,
            other_centres: &other_centres,
            shutter: unsure.shutter.as_ref(),
            matches: self.matches,
            verified: self.verified,
            pairs: &graph.pairs,
            max_epipolar_error: self.mapper.max_epipolar_error,
            is_ordered: graph.is_ordered,
            is_video: self.frames.is_sequential(),
            report,
        });
        report.warnings.extend(verdict.warning());
        report.verdict = Some(verdict);
    }

    /// Measures the scale by the tags and their size in millimetres: `map` is then `exact` adjusted with them,
    /// completed. Metres per unit of the map; `None` where it has no scale, which the warnings of the report explain.
    fn measure_scale(
        &self,
        (size, tags): (f64, &Tags),
        exact: &Map,
        refined: &Refined<'_>,
        map: &mut Map,
        report: &mut SfmReport,
        graph: &ViewGraph,
        control: &Control,
    ) -> Result<Option<f64>> {
        let centre = match report.principal_point_refined {
            _ if !self.options.refine_principal_point => PrincipalPointIs::Fixed,
            true => PrincipalPointIs::Refined,
            false => PrincipalPointIs::Central,
        };
        let mut measured =
            measure_scale(exact, refined.keypoints, tags, size, centre, &self.mapper, control)?;
        let mut metres = None;
        if let Some((adjusted, unit)) = measured.metric {
            let adjusted = refined.complete(&adjusted);
            let mut changed = self.report(&adjusted, refined.keypoints, report.method, graph);
            changed.principal_point_refined = report.principal_point_refined;
            changed.principal_point_deviation = report.principal_point_deviation;
            changed.principal_point_shift = report.principal_point_shift;
            changed.rolling_shutter.clone_from(&report.rolling_shutter);
            let elsewhere = self.elsewhere(&adjusted);
            match gate::check_model(&changed, &adjusted, self.frames, &self.known_focals, elsewhere) {
                Ok(warnings) => {
                    changed.warnings = warnings;
                    (*map, *report, metres) = (adjusted, changed, Some(unit));
                }
                // The tags would break a sound model: they are wrong somehow.
                Err(why) => {
                    measured.report.applied = false;
                    measured.warnings = vec![Warning::new(
                        "apriltag_inconsistent",
                        format!(
                            "the AprilTags contradict the rest of the scene ({}): the model has no metric scale",
                            why.message()
                        ),
                    )];
                }
            }
        }
        if let (true, None, Some(why)) = (self.options.require_scale, metres, measured.warnings.first()) {
            return Err(scale_missing(&why.message));
        }
        report.warnings.extend(measured.warnings);
        report.scale = Some(measured.report);
        Ok(metres)
    }
}
