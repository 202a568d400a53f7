//! Which map of the verified pairs is taken: one or more are made, by other methods or from other pairs, where the one before
//! leaves a doubt.

use std::borrow::Cow;
use std::collections::BTreeSet;

use crate::control::{Control, Warning};
use crate::error::Result;
use crate::stage::Stage;

use super::{Candidate, Reconstructor, ViewGraph};
use crate::sfm::completion::complete;
use crate::sfm::even_steps::{with_equal_steps, with_even_steps};
use crate::sfm::front_end::absolute_rotations;
use crate::sfm::gate;
use crate::sfm::global_mapper::{adjust_drift, adjust_start, map_roughly, rough_map};
use crate::sfm::incremental_mapper::map_incrementally;
use crate::sfm::map::Map;
use crate::sfm::mapper_input::MapperInput;
use crate::sfm::options::MappingMethod;
use crate::sfm::path::{
    Trusted, broken_steps, clearly_broken_steps, fitting_the_path, steps_broken_by_rotations,
};
use crate::sfm::progress;
use crate::sfm::report::{Attempt, SfmReport, Stopwatch};
use crate::sfm::sections::map_in_sections;
use crate::sfm::stretches::{along_the_path, with_loops};
use crate::sfm::support::{Support, support_of_pairs};
use crate::sfm::two_view::TwoViewGeometry;

/// How often loops are looked for in a map that was made along the path.
const LOOP_ROUNDS: usize = 3;
/// Fewer more pairs than this share change the map too little to look again.
const MORE_LOOPS: f64 = 0.002;
/// Loops that cost a larger share of the observations than this leaves were none. Chosen by hand.
const LEAST_KEPT: f64 = 0.99;

/// When the global mapper gives up a map that tears the camera's path, since other pairs will be tried.
#[derive(Clone, Copy, PartialEq, Eq)]
enum GiveUp {
    /// Where its positions show it, before they are adjusted, or before the map is completed: no adjustment mends that.
    AtPositions,
    /// Where rotations show it already. Of tears that rotations show, a map may still heal some.
    AtRotations,
}

/// What the global mapper made of pairs.
enum Global {
    /// A map that is not completed, and the pairs with which its rotations are consistent.
    Map(Map, Vec<TwoViewGeometry>),
    /// One that is given up, since it tears the camera's path.
    Torn(Box<Candidate>),
}

impl Reconstructor<'_> {
    /// The best map of one view graph: the method asked for; where the map breaks the camera's path, without pairs that contradict
    /// the path, and where that does not mend it without those between its stretches (the other way round where rotations
    /// show the break already); the incremental method, where the result is doubtful; and from even steps, where some are weak
    /// or uneven, or few matches agree.
    pub(super) fn map(
        &self,
        graph: &ViewGraph,
        attempts: &mut Vec<Attempt>,
        watch: &mut Stopwatch,
        control: &Control,
    ) -> Result<Candidate> {
        let count = self.frames.frames.len();
        let all = Trusted { pairs: Cow::Borrowed(&graph.pairs), matches: Cow::Borrowed(self.matches) };
        let method = self.options.method;
        let mut best =
            self.attempt(method, &all, graph, Some(GiveUp::AtRotations), (attempts, watch), control)?;
        let mut trusted = all;
        let mut torn: BTreeSet<usize> = best.report.broken_steps.iter().copied().collect();
        // What rotations contradict is no chance: places look alike, and of those that are turned alike rotations say nothing.
        let at_rotations = !torn.is_empty() && best.map.registered() == 0;
        if at_rotations {
            (best, trusted) = self.by_stretches(&torn, graph, attempts, watch, control)?;
        }
        if !torn.is_empty() && !best.is_whole() {
            let fitting = fitting_the_path(&self.rig, &graph.pairs, self.matches, control)?;
            let known = torn.len();
            // What does not fit may be what the averaged rotations had left out before: the map would be the same.
            if at_rotations || !best.given_up || self.begins_otherwise(&trusted, &fitting, control)? {
                let give_up = Some(GiveUp::AtPositions);
                let other = self.attempt(method, &fitting, graph, give_up, (attempts, watch), control)?;
                torn.extend(&other.report.broken_steps);
                if self.is_better(&other, &best) {
                    (best, trusted) = (other, fitting);
                }
            }
            if !best.report.broken_steps.is_empty() && (!at_rotations || torn.len() > known) {
                let (other, pairs) = self.by_stretches(&torn, graph, attempts, watch, control)?;
                if self.is_better(&other, &best) {
                    (best, trusted) = (other, pairs);
                }
            }
        }
        let when = &self.mapper.attempts;
        let is_complete = best.report.registered == count && best.verdict.as_ref().is_ok_and(Vec::is_empty);
        let is_certain = is_complete && best.report.agreeing_matches >= when.certain_matches;
        // Frames elsewhere excuse a map of few, but another method may place more.
        let wanting = best.verdict.is_err()
            || 2 * best.report.registered < count
            || (count <= when.few_images && !is_certain)
            || (count <= when.some_images && !is_complete)
            || (count <= when.many_images && best.report.agreeing_matches < when.agreeing_matches);
        if wanting && self.options.method == MappingMethod::Global {
            let method = MappingMethod::Incremental;
            let other = self.attempt(method, &trusted, graph, None, (attempts, watch), control)?;
            if self.is_better(&other, &best) {
                best = other;
            }
        }
        let starts = if graph.is_ordered { self.evened(&best, &trusted) } else { Vec::new() };
        for start in starts {
            let other = self.adjusted(start, &trusted, graph, attempts, control)?;
            watch.lap("even steps");
            if let Some(attempt) = attempts.last_mut() {
                attempt.even_steps = true;
            }
            if self.is_better(&other, &best) {
                best = other;
            }
        }
        Ok(best)
    }

    /// Whether the global mapper would make another map of the pairs `a` than of `b`, before it is completed.
    fn begins_otherwise(&self, a: &Trusted<'_>, b: &Trusted<'_>, control: &Control) -> Result<bool> {
        let start = |trusted: &Trusted<'_>| {
            let mut consistent = trusted.pairs.to_vec();
            let rotations = absolute_rotations(&self.rig, &mut consistent, control)?;
            let pairs: Vec<_> = consistent.into_iter().map(|p| (p.first, p.second)).collect();
            Ok((pairs, rotations))
        };
        Ok(start(a)? != start(b)?)
    }

    /// The map of what matches along the path, cut where it was `torn`, with the loops that close in it; and the pairs it was made
    /// of.
    fn by_stretches(
        &self,
        torn: &BTreeSet<usize>,
        graph: &ViewGraph,
        attempts: &mut Vec<Attempt>,
        watch: &mut Stopwatch,
        control: &Control,
    ) -> Result<(Candidate, Trusted<'static>)> {
        let keypoints = &self.pictures.keypoints;
        let mut trusted = along_the_path(&self.rig, &graph.pairs, self.matches, torn);
        let mut map = match self.map_globally(&trusted, graph, None, (attempts, watch), control)? {
            Global::Map(map, _) => map,
            Global::Torn(candidate) => return Ok((*candidate, trusted)),
        };
        let is_torn = |map: &Map| {
            !broken_steps(&self.rig, &graph.others, &graph.pairs, &self.support(map, graph)).is_empty()
        };
        // What closes a loop takes drift away, and then more loops are seen to close.
        for round in 0..LOOP_ROUNDS {
            let Some(closed) = with_loops(&trusted, &map, keypoints, &graph.pairs, self.matches) else {
                break;
            };
            log::debug!("{} pairs, {} with loops", trusted.pairs.len(), closed.pairs.len());
            if round > 0 && (closed.pairs.len() as f64) < (1.0 + MORE_LOOPS) * trusted.pairs.len() as f64 {
                break;
            }
            let input = self.input(&closed, graph);
            let other = adjust_drift(map.clone(), &input, &self.mapper, control)?;
            watch.lap("loops");
            // A map that is free of loops has bent to fit a few more observations.
            let kept = other.observations() as f64 / map.observations().max(1) as f64;
            if kept < LEAST_KEPT || is_torn(&other) && !is_torn(&map) {
                break;
            }
            (map, trusted) = (other, closed);
        }
        complete(&mut map, &self.input(&trusted, graph), &self.mapper, control)?;
        watch.lap("refinement");
        Ok((self.candidate(map, MappingMethod::Global, &trusted, graph, attempts), trusted))
    }

    /// Other starts for a map whose steps are not what they should be, or with which few matches agree.
    fn evened(&self, best: &Candidate, trusted: &Trusted<'_>) -> Vec<Map> {
        let (is_video, options) = (self.frames.is_sequential(), &self.mapper.even_steps);
        let doubted = best.report.agreeing_matches < self.mapper.attempts.agreeing_matches;
        let even = with_even_steps(&best.map, &trusted.pairs, is_video, options);
        let equal = is_video.then(|| with_equal_steps(&best.map, &trusted.pairs, doubted, options)).flatten();
        even.into_iter().chain(equal).collect()
    }

    /// Makes a map of the `trusted` pairs from the poses of `start`; one that tears the path is given up before it is completed.
    fn adjusted(
        &self,
        start: Map,
        trusted: &Trusted<'_>,
        graph: &ViewGraph,
        attempts: &mut Vec<Attempt>,
        control: &Control,
    ) -> Result<Candidate> {
        let input = self.input(trusted, graph);
        let mut map = adjust_start(with_cameras_of(start, graph), &input, &self.mapper, control)?;
        let broken = clearly_broken_steps(&self.rig, &graph.others, &graph.pairs, &self.support(&map, graph));
        if !broken.is_empty() {
            return Ok(self.torn(map, broken, trusted, graph, attempts));
        }
        complete(&mut map, &input, &self.mapper, control)?;
        Ok(self.candidate(map, MappingMethod::Global, trusted, graph, attempts))
    }

    pub(super) fn input<'a>(&'a self, trusted: &'a Trusted<'_>, graph: &ViewGraph) -> MapperInput<'a> {
        MapperInput {
            keypoints: &self.pictures.keypoints,
            rig: &self.rig,
            matches: &trusted.matches,
            pairs: &trusted.pairs,
            camera: graph.camera.clone(),
            others: graph.others.clone(),
            rotations: &[],
        }
    }

    /// Makes a map of the `trusted` pairs by `method`, and judges it by all pairs.
    fn attempt(
        &self,
        method: MappingMethod,
        trusted: &Trusted<'_>,
        graph: &ViewGraph,
        give_up: Option<GiveUp>,
        (attempts, watch): (&mut Vec<Attempt>, &mut Stopwatch),
        control: &Control,
    ) -> Result<Candidate> {
        let input = self.input(trusted, graph);
        let map = match method {
            MappingMethod::Global => {
                match self.map_globally(trusted, graph, give_up, (attempts, watch), control)? {
                    Global::Map(mut map, consistent) => {
                        let input = MapperInput { pairs: &consistent, ..input };
                        complete(&mut map, &input, &self.mapper, control)?;
                        map
                    }
                    Global::Torn(candidate) => return Ok(*candidate),
                }
            }
            MappingMethod::Incremental => {
                control.progress(Stage::Sfm, "incremental mapping", progress::INCREMENTAL_MAP);
                let mut map = map_incrementally(&input, &self.mapper, control)?;
                watch.lap("incremental mapping");
                complete(&mut map, &input, &self.mapper, control)?;
                map
            }
        };
        watch.lap("refinement");
        Ok(self.candidate(map, method, trusted, graph, attempts))
    }

    /// The map of the `trusted` pairs by the global mapper. Whether it tears the path is asked as soon as rotations, and then
    /// positions, are there: not before all of it is adjusted.
    fn map_globally(
        &self,
        trusted: &Trusted<'_>,
        graph: &ViewGraph,
        give_up: Option<GiveUp>,
        (attempts, watch): (&mut Vec<Attempt>, &mut Stopwatch),
        control: &Control,
    ) -> Result<Global> {
        control.progress(Stage::Sfm, "global mapping", progress::GLOBAL_MAP);
        let mut consistent = trusted.pairs.to_vec();
        let rotations = absolute_rotations(&self.rig, &mut consistent, control)?;
        watch.lap("rotation averaging");
        let input = MapperInput { rotations: &rotations, pairs: &consistent, ..self.input(trusted, graph) };
        let give_up = give_up.filter(|_| graph.is_ordered);
        if give_up == Some(GiveUp::AtRotations) {
            let broken = steps_broken_by_rotations(&self.rig, &graph.others, &graph.pairs, &consistent);
            if !broken.is_empty() {
                let torn = self.torn(input.empty_map(), broken, trusted, graph, attempts);
                return Ok(Global::Torn(Box::new(torn)));
            }
        }
        let tears = |map: &Map| match give_up {
            Some(_) => {
                clearly_broken_steps(&self.rig, &graph.others, &graph.pairs, &self.support(map, graph))
            }
            None => Vec::new(),
        };
        let of_sections = match graph.is_ordered {
            true => map_in_sections(&input, &self.mapper, self.options.seed, control)?,
            false => None,
        };
        let rough = match of_sections {
            Some(map) => rough_map(map, &input, &self.mapper),
            None => map_roughly(&input, &self.mapper, self.options.seed, control)?,
        };
        let mut broken = tears(&rough.map);
        let map = if broken.is_empty() {
            let map = rough.narrowed(&input, &self.mapper, control)?;
            broken = tears(&map);
            map
        } else {
            rough.map
        };
        watch.lap("global mapping");
        if broken.is_empty() {
            return Ok(Global::Map(map, consistent));
        }
        Ok(Global::Torn(Box::new(self.torn(map, broken, trusted, graph, attempts))))
    }

    /// How many matches of all pairs agree with a map.
    fn support(&self, map: &Map, graph: &ViewGraph) -> Vec<Support> {
        support_of_pairs(map, &self.pictures.keypoints, &graph.pairs, self.mapper.max_epipolar_error)
    }

    /// A map that is given up, with the steps that it has `broken`; `attempts` lists it.
    fn torn(
        &self,
        map: Map,
        broken: Vec<usize>,
        trusted: &Trusted<'_>,
        graph: &ViewGraph,
        attempts: &mut Vec<Attempt>,
    ) -> Candidate {
        let report = self.report(&map, &self.pictures.keypoints, MappingMethod::Global, graph);
        let verdict = Err(gate::torn(&broken, self.frames));
        let torn = self.listed(map, SfmReport { broken_steps: broken, ..report }, verdict, trusted, attempts);
        Candidate { given_up: true, ..torn }
    }

    /// A map with its figures, which `attempts` lists.
    pub(super) fn candidate(
        &self,
        map: Map,
        method: MappingMethod,
        trusted: &Trusted<'_>,
        graph: &ViewGraph,
        attempts: &mut Vec<Attempt>,
    ) -> Candidate {
        let report = self.report(&map, &self.pictures.keypoints, method, graph);
        let elsewhere = self.elsewhere(&map);
        let verdict = gate::check_model(&report, &map, self.frames, &self.known_focals, elsewhere);
        self.listed(map, report, verdict, trusted, attempts)
    }

    /// The candidate that these make, after `attempts` has it.
    fn listed(
        &self,
        map: Map,
        report: SfmReport,
        verdict: Result<Vec<Warning>>,
        trusted: &Trusted<'_>,
        attempts: &mut Vec<Attempt>,
    ) -> Candidate {
        log::debug!(
            "{:?} of {} pairs: {} images, {} observations, {:.4} of the matches agree, broken steps {:?}, {:?}",
            report.method,
            trusted.pairs.len(),
            report.registered,
            report.observations,
            report.agreeing_matches,
            report.broken_steps,
            verdict.as_ref().map(|warnings| warnings.iter().map(|w| w.message.as_str()).collect::<Vec<_>>())
        );
        attempts.push(Attempt {
            method: report.method,
            pairs: trusted.pairs.len(),
            registered: report.registered,
            observations: report.observations,
            agreeing_matches: report.agreeing_matches,
            refusal: verdict.as_ref().err().map(|e| e.message().to_string()),
            even_steps: false,
            chosen: false,
        });
        Candidate { map, report, verdict, given_up: false, attempt: attempts.len() - 1 }
    }

    /// Whether `a` is the better map: a sound one; with more images, then with more observations that fit well.
    pub(super) fn is_better(&self, a: &Candidate, b: &Candidate) -> bool {
        let quality = |c: &Candidate| gate::quality(&c.map, &self.pictures.keypoints);
        match (&a.verdict, &b.verdict) {
            (_, Err(_)) => true,
            (Err(_), Ok(_)) => false,
            (Ok(_), Ok(_)) => quality(a) > quality(b),
        }
    }
}

/// The poses of `map`, with the cameras as they were before any adjustment.
fn with_cameras_of(map: Map, graph: &ViewGraph) -> Map {
    Map { camera: graph.camera.clone(), others: graph.others.clone(), ..map }
}
