//! Frames that are added to a model: those it was made of keep the poses they have, as far as the new ones agree, and its world
//! stays as it is.

use crate::control::Control;
use crate::error::{Error, Result};
use crate::stage::Stage;

use super::{Candidate, Reconstructor};
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
        whole.base = Some(base);
        control.progress(Stage::Sfm, "the model to add to", progress::RELATIVE_POSES);
        let map = whole.map_of(base, &initial)?;
        watch.lap("the model to add to");
        let found =
            whole.joined_to(map, MappingMethod::Incremental, Vec::new(), &initial, &mut watch, control)?;
        base.check_placed(|i| found.candidate.map.poses[i].is_some())?;
        let finished = whole.finish(found, watch, control)?;
        // A camera of new frames that comes out as none can be costs them their places. Image ids are frame numbers plus 1.
        base.check_placed(|i| finished.model.images.contains_key(&(i as u32 + 1)))?;
        Ok(finished)
    }

    /// Whether all is to be mapped anew after pictures joined a map one by one: any warning is reason enough. A model that is added to
    /// stays unless it is not sound with them or matches contradict it; that some of them find no place says nothing against it.
    pub(super) fn is_to_be_mapped_anew(&self, joined: &Candidate) -> bool {
        match &joined.verdict {
            Ok(warnings) if self.base.is_some() => {
                warnings.iter().any(|warning| warning.code == "contradicting_matches")
            }
            Ok(warnings) => !warnings.is_empty(),
            Err(_) => true,
        }
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

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::camera::{Camera, CameraModel, Image, SparseModel};
    use crate::error::ErrorKind;
    use crate::sfm::synthetic::Capture;
    use crate::video::{Frame, Frames};

    const IMAGES: usize = 24;

    /// Of every three images the second is new, by another camera.
    fn is_new(image: usize) -> bool {
        image % 3 == 1
    }

    /// What becomes of a model to which new images are added of which the `strays` match nothing, and which lacks the `lost` ones of its
    /// own: how many maps were made, and the last of them.
    fn added_to(capture: &Capture, lens: &Camera, strays: &[usize], lost: &[usize]) -> Result<(usize, Map)> {
        let mut pairs = capture.pairs(6);
        pairs.retain(|p| [p.first, p.second].iter().all(|&i| !strays.contains(&(i as usize))));
        let (verified, matches) = Capture::with_matches(pairs);
        let pictures = capture.pictures();
        let of = |i: usize| {
            let (width, height) = if is_new(i) { (1200, 900) } else { (800, 600) };
            let camera = u32::from(is_new(i));
            Frame { camera, ..Frame::new(format!("{i}.jpg"), i as u64, width, height) }
        };
        let all: Vec<Frame> = (0..IMAGES).map(of).collect();
        let earlier = all.iter().filter(|f| f.camera == 0).cloned().collect();
        let (frames, earlier) = (Frames::of_images("", all), Frames::of_images("", earlier));

        let mut model = SparseModel::default();
        model.cameras.insert(1, capture.camera.clone());
        for i in (0..IMAGES).filter(|i| !is_new(*i) && !lost.contains(i)) {
            let (name, pose) = (format!("{i}.jpg"), capture.poses[i]);
            model.images.insert(i as u32 + 1, Image { name, camera_id: 1, pose, points2d: Vec::new() });
        }
        let base = Base::of(&model, &frames, Some(&earlier)).unwrap();
        let initial = InitialCameras {
            cameras: vec![capture.camera.clone(), lens.clone()],
            known_focals: vec![None; 2],
            is_of_exif: vec![false; 2],
            of_image: (0..IMAGES).map(|i| usize::from(is_new(i))).collect(),
        };
        let matched = Matched {
            frames: &frames,
            pictures: &pictures,
            matches: &matches,
            verified: &verified,
            tags: None,
        };
        let options = SfmOptions::default();
        let mut whole =
            Reconstructor::new(&matched, Arc::clone(&capture.rig), (0.0, vec![None; 2]), &options);
        whole.base = Some(&base);
        let map = whole.map_of(&base, &initial)?;
        let (mut watch, control) = (Stopwatch::new(), Control::new());
        let method = MappingMethod::Incremental;
        let found = whole.joined_to(map, method, Vec::new(), &initial, &mut watch, &control)?;
        Ok((found.attempts.len(), found.candidate.map))
    }

    #[test]
    fn pictures_without_a_place_are_no_reason_to_map_a_model_anew() {
        let lens = Camera::from_focal(CameraModel::SimpleRadial, 980.0, 1200, 900);
        let capture = Capture::walk(IMAGES, 2500, 0.3, 5).with_other_camera(lens.clone(), is_new);
        let (attempts, map) = added_to(&capture, &lens, &[10, 16], &[6]).unwrap();
        assert_eq!(attempts, 1);
        // What the model had left out has its place now, beside the new ones.
        assert!((0..IMAGES).all(|i| map.poses[i].is_some() != [10, 16].contains(&i)));
        let (centres, rotations) = capture.errors(&map);
        assert!(centres < 0.02 && rotations < 0.2, "{centres} {rotations}");
    }

    #[test]
    fn an_earlier_frame_that_finds_its_place_is_no_new_one() {
        let lens = Camera::from_focal(CameraModel::SimpleRadial, 980.0, 1200, 900);
        let capture = Capture::walk(IMAGES, 2500, 0.3, 5).with_other_camera(lens.clone(), is_new);
        let strays: Vec<usize> = (0..IMAGES).filter(|&i| is_new(i)).collect();
        let error = added_to(&capture, &lens, &strays, &[6]).map(drop).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::PartialReconstruction, "{error}");
        assert!(error.message().contains("none of the 8 new frames could be placed"), "{error}");
    }
}
