//! What pictures have in common: their matches, and which of these fit two pictures. Taken over where they were kept, else found
//! and kept.

use super::clips::Clips;
use super::front_end::{InitialCameras, Pictures};
use super::kept::KeptPairs;
use super::matching::{MatchOptions, PairMatches, match_pairs};
use super::pairing::{PairingOptions, candidate_pairs, pairs_of_several};
use super::progress;
use super::rig::Rig;
use super::station_pairing::station_pairs;
use super::two_view::{TwoViewGeometry, TwoViewOptions, Views, verify_pairs};
use crate::control::Control;
use crate::error::Result;
use crate::stage::Stage;
use crate::video::Frames;

/// Which pictures are matched, and how.
pub(crate) type MatchingOptions = (PairingOptions, MatchOptions);

/// Candidate matches of the pairs worth comparing. They are those of [`KeptPairs`] for the same frames and options.
pub(crate) fn find_matches(
    frames: &Frames,
    pictures: &Pictures,
    (pairing, matching): &MatchingOptions,
    kept: &KeptPairs<'_>,
    control: &Control,
) -> Result<Vec<PairMatches>> {
    control.progress(Stage::Sfm, "matching", progress::MATCHING);
    if let Some(matches) = kept.matches(&pictures.features) {
        control.progress_with(Stage::Sfm, "matching", progress::TWO_VIEWS, "taken over");
        return Ok(matches);
    }
    let (rig, sequential) = (Rig::of_frames(frames), frames.is_sequential());
    let pairs = match (rig.is_panoramic(), sequential) {
        (true, _) => station_pairs(&pictures.features, &rig, sequential, pairing),
        (false, true) => candidate_pairs(&pictures.features, true, pairing),
        (false, false) => pairs_of_several(&pictures.features, &Clips::of_frames(frames), pairing),
    };
    let part = control.part(progress::MATCHING, progress::TWO_VIEWS);
    let matches = match_pairs(&pictures.features, &pairs, matching, &part)?;
    kept.keep_matches(&matches);
    Ok(matches)
}

/// What of `matches` fits two pictures, while focal lengths are unknown.
pub(crate) fn find_verified(
    pictures: &Pictures,
    matches: &[PairMatches],
    cameras: &InitialCameras,
    options: &TwoViewOptions,
    kept: &KeptPairs<'_>,
    control: &Control,
) -> Result<Vec<TwoViewGeometry>> {
    control.progress(Stage::Sfm, "two-view geometry", progress::TWO_VIEWS);
    let InitialCameras { cameras, of_image, .. } = cameras;
    let made_with = (options, cameras, of_image);
    if let Some(verified) = kept.verified(&pictures.features, matches, &made_with)? {
        control.progress_with(Stage::Sfm, "two-view geometry", progress::RELATIVE_POSES, "taken over");
        return Ok(verified);
    }
    let views = Views { features: &pictures.features, camera_of: of_image, cameras };
    let part = control.part(progress::TWO_VIEWS, progress::RELATIVE_POSES);
    let verified = verify_pairs(&views, matches, options, &part)?;
    kept.keep_verified(&verified, &made_with)?;
    Ok(verified)
}
