//! Makes the views agree: what they show is one scene, and in it the object is one solid, which stands on something.

use super::consensus::{Consensus, ConsensusOptions, find_object};
use super::evidence::{EvidenceOptions, depth_known, pins, scene_odds};
use super::labelling::{LabelOptions, find_plane, label, saliency};
use super::occlusion::{OcclusionOptions, hidden_depths};
use super::pieces::{Choice, Sought};
use super::pointing::Pointed;
use super::quick_scene::{Places, QuickScene};
use super::support_plane::SupportPlane;
use super::views::SalientView;
use crate::camera::Gaze;
use crate::control::Control;
use crate::defaults::with_defaults;
use crate::error::Result;
use crate::stage::Stage;
use crate::statistics::median;

with_defaults! {
    /// How the views come to agree. Chosen by hand.
    #[derive(Debug, Clone, PartialEq)]
    pub(super) struct AgreementOptions {
        /// Which Gaussians belong to the object.
        pub(super) labels: LabelOptions = LabelOptions::default(),
        /// What a pixel's evidence is worth.
        evidence: EvidenceOptions = EvidenceOptions::default(),
        /// What hides the object from a view.
        occlusion: OcclusionOptions = OcclusionOptions::default(),
        /// How views come to agree.
        pub(super) consensus: ConsensusOptions = ConsensusOptions::default(),
        /// A plane is another one if it is so much higher or lower at the focus, in units of the cameras' distance.
        other_plane: f64 = 0.004,
        /// A person points this exactly, pixels of the small pictures.
        inexact: i32 = 2,
    }
}

/// What the views agree on.
pub(super) struct Agreed {
    pub(super) found: Consensus,
    /// What the object stands on, or hangs on.
    pub(super) plane: Option<SupportPlane>,
}

/// Finds the object at which a person points: what the cameras look at, if it is there, or else what is there. `None` if
/// nothing is: the pixel shows no surface, or none of a thing that the views agree on.
pub(super) fn agree_at(
    scene: &QuickScene,
    views: &[SalientView],
    gaze: &Gaze,
    pointed: Pointed,
    options: &AgreementOptions,
    control: &Control,
) -> Result<Option<Agreed>> {
    let camera = &views[pointed.view].camera;
    let watched = Sought { gaze, choice: Choice::WatchedAlone };
    let agreed = agree_on(scene, views, watched, options, &control.part(0.0, 0.5))?;
    if pointed.is_on_object(camera, &agreed.found.odds[pointed.view], options.inexact) {
        return Ok(Some(agreed));
    }
    let mut places = Places::new(scene, gaze.focus, options.labels.reach * gaze.distance)?;
    let surfaces = places.seen_by(camera, options.labels.opaque)?;
    let Some(focus) = pointed.surface(camera, &surfaces, options.inexact) else { return Ok(None) };
    let distance = median(&mut views.iter().map(|v| (v.camera.centre() - focus).norm()).collect::<Vec<_>>());
    let gaze = Gaze { focus, distance: distance.unwrap_or(gaze.distance), ..*gaze };
    let sought = Sought { gaze: &gaze, choice: Choice::AtFocus };
    let agreed = agree_on(scene, views, sought, options, &control.part(0.5, 1.0))?;
    // The piece nearest to the place may be far from it: another thing. At the place itself a rod may have come apart.
    let near = options.consensus.pieces.pointing * gaze.distance;
    let is_there = pointed.is_on_object(camera, &agreed.found.odds[pointed.view], options.inexact)
        || agreed.found.is_near(&focus, near);
    Ok(is_there.then_some(agreed))
}

/// Finds the object of `views` in the `scene` that they show.
pub(super) fn agree_on(
    scene: &QuickScene,
    views: &[SalientView],
    sought: Sought<'_>,
    options: &AgreementOptions,
    control: &Control,
) -> Result<Agreed> {
    let gaze = sought.gaze;
    let pointed = (sought.choice == Choice::AtFocus).then_some(&gaze.focus);
    let votes = saliency(scene, views, gaze, &options.labels)?;
    let known = depth_known(scene, views, &options.evidence);
    let agree = |plane: Option<&SupportPlane>| {
        control.check()?;
        let labels = label(scene, &votes, views, gaze, plane, pointed, &options.labels);
        let seen = scene_odds(scene, &labels, &known, views, &options.evidence)?;
        let hidden =
            hidden_depths(scene, &labels, &known, views, gaze, plane, &options.labels, &options.occlusion)?;
        let pins = pins(scene, &labels, &known);
        Ok(find_object(views, &seen, &hidden, &pins, sought, plane, &options.evidence, &options.consensus))
    };
    let plane = find_plane(scene, &votes, views, gaze, &options.labels);
    let found = agree(plane.as_ref())?;
    control.progress(Stage::Sfm, "masks", 0.5);
    if !found.is_found() {
        return Ok(Agreed { found, plane });
    }
    // With the object known better, what it stands on may turn out to be something else.
    let votes = saliency(scene, &found.maps(views), gaze, &options.labels)?;
    let other = find_plane(scene, &votes, views, gaze, &options.labels).filter(|other| {
        let apart = |p: &SupportPlane| (p.height(&gaze.focus) - other.height(&gaze.focus)).abs();
        plane.as_ref().is_none_or(|p| apart(p) > options.other_plane * gaze.distance)
    });
    let (found, plane) = match other {
        Some(other) => (agree(Some(&other))?, Some(other)),
        None => (found, plane),
    };
    control.progress(Stage::Sfm, "masks", 1.0);
    Ok(Agreed { found, plane })
}
