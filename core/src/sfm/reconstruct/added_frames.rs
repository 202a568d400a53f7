//! Frames that are added to a model: those it was made of keep the poses they have, as far as the new ones agree, and its world
//! stays as it is.

use crate::control::Control;
use crate::error::{Error, ErrorKind, Result};
use crate::stage::Stage;

use super::Reconstructor;
use crate::sfm::base_model::{Base, LEAST};
use crate::sfm::components::Matched;
use crate::sfm::filters::filter_images;
use crate::sfm::front_end::{InitialCameras, initial_cameras};
use crate::sfm::gate;
use crate::sfm::map::Map;
use crate::sfm::options::{MappingMethod, SfmOptions};
use crate::sfm::progress;
use crate::sfm::reconstruction::Reconstruction;
use crate::sfm::report::Stopwatch;
use crate::sfm::retriangulation::retriangulate;
use crate::sfm::rig::Rig;
use crate::sfm::support::support_of_pairs;
use crate::sfm::triangulation::TriangulationOptions;

/// Of the matches between its frames a sound model agrees with nearly all; one of other pictures with few, by chance. Chosen by hand.
const LEAST_AGREEMENT: f64 = 0.5;

impl Reconstructor<'_> {
    /// Makes the model of a capture of which `base` knows some frames.
    ///
    /// # Errors
    /// As [`crate::sfm::add_to_model`].
    pub(super) fn reconstruct_onto(
        base: &Base<'_>,
        capture: &Matched<'_>,
        options: &SfmOptions,
        mut watch: Stopwatch,
        control: &Control,
    ) -> Result<Reconstruction> {
        let rig = Rig::of_frames(capture.frames);
        if rig.is_panoramic() {
            return Err(Error::argument("nothing can be added to a model of 360° pictures")
                .hint("reconstruct them by themselves"));
        }
        let initial = base.cameras(initial_cameras(capture.frames, options));
        let rotation_only = gate::rotation_only_pairs(capture.verified, &initial.cameras[0]);
        gate::check_pairs(&rig, capture.verified, rotation_only, capture.frames)?;
        let known = (rotation_only, initial.known_focals.clone());
        let mut whole = Reconstructor::new(capture, rig, known, options);
        whole.base = Some(base.poses.clone());
        control.progress(Stage::Sfm, "the model to add to", progress::RELATIVE_POSES);
        let map = whole.map_of(base, &initial)?;
        watch.lap("the model to add to");
        let found =
            whole.joined_to(map, MappingMethod::Incremental, Vec::new(), &initial, &mut watch, control)?;
        let placed =
            (0..base.poses.len()).any(|i| base.poses[i].is_none() && found.candidate.map.poses[i].is_some());
        if !placed {
            return Err(nothing_placed(base));
        }
        let finished = whole.finish(found, watch, control)?;
        // A camera of new frames that comes out as none can be costs them their places. Image ids are frame numbers plus 1.
        let images = &finished.model.images;
        let placed = (1u32..).zip(&base.poses).any(|(id, pose)| pose.is_none() && images.contains_key(&id));
        if placed { Ok(finished) } else { Err(nothing_placed(base)) }
    }

    /// The map of the frames that `base` knows: its poses and lenses, and the points that the frames' own matches give.
    ///
    /// # Errors
    /// `InvalidArgument` if the frames do not show what the model does.
    fn map_of(&self, base: &Base<'_>, initial: &InitialCameras) -> Result<Map> {
        let mut map = Map::new(initial.cameras[0].clone(), &self.rig, self.frames.frames.len());
        map.others = initial.others();
        map.poses.clone_from(&base.poses);
        let limits =
            TriangulationOptions { max_error: self.mapper.max_error, min_angle: self.mapper.min_angle };
        map.points = retriangulate(&map, &self.pictures.keypoints, self.matches, &limits);
        let support =
            support_of_pairs(&map, &self.pictures.keypoints, self.verified, self.mapper.max_epipolar_error);
        let (agreeing, matches) =
            support.iter().fold((0, 0), |sum, s| (sum.0 + s.agreeing, sum.1 + s.matches));
        filter_images(&mut map, self.mapper.min_observations);
        if map.registered() < LEAST || (agreeing as f64) < LEAST_AGREEMENT * matches as f64 {
            return Err(Error::argument(format!(
                "of {matches} matches between frames of the model to add to {agreeing} agree with its poses: it is of other pictures",
            ))
            .hint("give the model that was made of these frames"));
        }
        Ok(map)
    }
}

fn nothing_placed(base: &Base<'_>) -> Error {
    let new = base.poses.len() - base.count();
    Error::new(
        ErrorKind::PartialReconstruction,
        format!("none of the {new} new frames sees enough of what the model to add to shows"),
    )
    .hint("begin the new video where the first one was filmed, and go on from there slowly")
}
