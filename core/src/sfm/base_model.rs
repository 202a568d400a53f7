//! The model that frames are added to, as what it says of them.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use crate::camera::{Camera, Pose, SparseModel};
use crate::error::{Error, ErrorKind, Result};
use crate::video::{Frame, Frames};

use super::front_end::InitialCameras;

/// Fewer frames that see what the model shows hold nothing.
pub(crate) const LEAST: usize = 3;

/// What a model says of the frames that it was made of.
#[derive(Debug, Clone)]
pub(crate) struct Base<'a> {
    model: &'a SparseModel,
    /// By frame: its pose in the model.
    pub(crate) poses: Vec<Option<Pose>>,
    /// By frame: the id of the camera that the model has for it.
    cameras: Vec<Option<u32>>,
    /// By frame: whether it is new. One that the model left out when it was made is not.
    is_new: Vec<bool>,
}

impl<'a> Base<'a> {
    /// Of the frames that have the names of the model's images. It was made of the frames `earlier`, as far as is known.
    ///
    /// # Errors
    /// `InvalidArgument` if too few do, or for a frame of another size than its camera.
    pub(crate) fn of(model: &'a SparseModel, frames: &Frames, earlier: Option<&Frames>) -> Result<Self> {
        let images: BTreeMap<&str, _> = model.images.values().map(|i| (i.name.as_str(), i)).collect();
        let mut base = Self { model, poses: Vec::new(), cameras: Vec::new(), is_new: Vec::new() };
        for frame in &frames.frames {
            let image = images.get(frame.name.as_str());
            let camera = image.and_then(|image| model.cameras.get(&image.camera_id));
            if let Some(camera) = camera.filter(|c| (c.width, c.height) != (frame.width, frame.height)) {
                return Err(Error::argument(format!(
                    "{} has {}x{} pixels, and its camera in the model to add to {}x{}: the model is of other pictures",
                    frame.name, frame.width, frame.height, camera.width, camera.height
                ))
                .hint("give the model of the frames as they are, sparse/, not that of the undistorted ones"));
            }
            let known = camera.and(image);
            base.poses.push(known.map(|image| image.pose));
            base.cameras.push(known.map(|image| image.camera_id));
        }
        let count = base.count();
        if count < LEAST {
            return Err(Error::argument(format!(
                "{count} of the {} frames have the name of one of the {} images of the model to add to; {LEAST} at least are needed",
                frames.frames.len(),
                model.images.len()
            ))
            .hint("give the frames that the model was made of, and the new ones beside them"));
        }
        base.is_new = base.new_frames(frames, earlier);
        Ok(base)
    }

    /// By frame: whether it is none of the frames `earlier`. Where these are not known: whether the camera that made it made none of the
    /// model's images. Where no frame is new by that, all without an image are: they are what is to be added.
    fn new_frames(&self, frames: &Frames, earlier: Option<&Frames>) -> Vec<bool> {
        let frames = &frames.frames;
        let is_without: Vec<bool> = self.poses.iter().map(Option::is_none).collect();
        let is_new: Vec<bool> = if let Some(earlier) = earlier {
            let names: BTreeSet<&str> = earlier.frames.iter().map(|f| f.name.as_str()).collect();
            let is_later =
                |(frame, &without): (&Frame, &bool)| without && !names.contains(frame.name.as_str());
            frames.iter().zip(&is_without).map(is_later).collect()
        } else {
            let with_image = frames.iter().zip(&is_without).filter(|(_, without)| !**without);
            let known: BTreeSet<u32> = with_image.map(|(frame, _)| frame.camera).collect();
            frames.iter().map(|frame| !known.contains(&frame.camera)).collect()
        };
        if is_new.contains(&true) { is_new } else { is_without }
    }

    /// How many frames it knows.
    pub(crate) fn count(&self) -> usize {
        self.poses.iter().flatten().count()
    }

    /// # Errors
    /// `PartialReconstruction` if no new frame `is_placed`.
    pub(crate) fn check_placed(&self, is_placed: impl Fn(usize) -> bool) -> Result<()> {
        let new: Vec<usize> = (0..self.is_new.len()).filter(|&i| self.is_new[i]).collect();
        if new.iter().any(|&i| is_placed(i)) {
            return Ok(());
        }
        Err(Error::new(
            ErrorKind::PartialReconstruction,
            format!(
                "none of the {} new frames could be placed: they see too little of what the model to add to shows",
                new.len()
            ),
        )
        .hint("begin the new video or pictures where the first ones were taken, and go on from there slowly"))
    }

    /// Whether most of the frames that it knows have one of these `poses`, by frame: a map without them is of something else.
    pub(crate) fn is_in(&self, poses: &[Option<Pose>]) -> bool {
        let both = self.poses.iter().zip(poses).filter(|(known, pose)| known.is_some() && pose.is_some());
        2 * both.count() > self.count()
    }

    /// The cameras to begin with: those of the model as it has them, the one that made most of its frames first.
    pub(crate) fn cameras(&self, initial: InitialCameras) -> InitialCameras {
        let known = |initial: &InitialCameras, k: usize| {
            initial.images_of(k).into_iter().filter(|&i| self.cameras[i].is_some()).count()
        };
        let leader = (0..initial.cameras.len()).max_by_key(|&k| (known(&initial, k), Reverse(k)));
        let mut initial = initial.led_by(leader.unwrap_or(0));
        for k in 0..initial.cameras.len() {
            let id = initial.images_of(k).into_iter().find_map(|i| self.cameras[i]);
            if let Some(camera) = id.and_then(|id| self.model.cameras.get(&id)) {
                initial.cameras[k] = Camera::clone(camera);
            }
        }
        initial
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::camera::{CameraModel, Image};

    fn frames(cameras: &[u32]) -> Frames {
        let of = |(i, &camera): (usize, &u32)| Frame {
            camera,
            ..Frame::new(format!("{i}.jpg"), i as u64, 800, 600)
        };
        Frames::of_images("", cameras.iter().enumerate().map(of).collect())
    }

    /// A model that has the frames 0, 1 and 2, by one camera.
    fn model() -> SparseModel {
        let mut model = SparseModel::default();
        model.cameras.insert(1, Camera::from_focal(CameraModel::SimpleRadial, 700.0, 800, 600));
        for i in 0..3 {
            let (name, pose) = (format!("{i}.jpg"), Pose::identity());
            model.images.insert(i + 1, Image { name, camera_id: 1, pose, points2d: Vec::new() });
        }
        model
    }

    #[test]
    fn a_frame_that_the_model_left_out_is_not_new() {
        let model = model();
        // The model left out 3, and all of another camera.
        let (earlier, all) = (frames(&[0, 0, 0, 0, 1]), frames(&[0, 0, 0, 0, 1, 5, 5]));
        let new = |frames: &Frames, earlier: Option<&Frames>| {
            let base = Base::of(&model, frames, earlier).unwrap();
            (0..frames.frames.len()).filter(|&i| base.check_placed(|k| k == i).is_ok()).collect::<Vec<_>>()
        };
        assert_eq!(new(&all, Some(&earlier)), [5, 6]);
        // Without the earlier frames it is the cameras that tell, as far as they do.
        assert_eq!(new(&all, None), [4, 5, 6]);
        assert_eq!(new(&frames(&[0; 6]), None), [3, 4, 5]);
        // Nothing but earlier frames is added.
        assert_eq!(new(&earlier, Some(&earlier)), [3, 4]);

        let base = Base::of(&model, &all, Some(&earlier)).unwrap();
        let error = base.check_placed(|i| i < 5).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::PartialReconstruction);
        assert!(error.message().contains("none of the 2 new frames"), "{error}");
    }

    #[test]
    fn a_map_of_other_frames_is_none_of_the_model() {
        let (model, all) = (model(), frames(&[0, 0, 0, 1, 1, 1, 1]));
        let base = Base::of(&model, &all, None).unwrap();
        let with = |placed: &[usize]| {
            let poses: Vec<_> = (0..7).map(|i| placed.contains(&i).then(Pose::identity)).collect();
            base.is_in(&poses)
        };
        assert!(with(&[0, 2]) && with(&[0, 1, 2, 5]) && !with(&[1, 3, 4, 5, 6]));
    }
}
