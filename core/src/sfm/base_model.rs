//! The model that frames are added to, as what it says of them.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use crate::camera::{Camera, Pose, SparseModel};
use crate::error::{Error, Result};
use crate::video::Frames;

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
}

impl<'a> Base<'a> {
    /// Of the frames that have the names of the model's images.
    ///
    /// # Errors
    /// `InvalidArgument` if too few do, or for a frame of another size than its camera.
    pub(crate) fn of(model: &'a SparseModel, frames: &Frames) -> Result<Self> {
        let images: BTreeMap<&str, _> = model.images.values().map(|i| (i.name.as_str(), i)).collect();
        let mut base = Self { model, poses: Vec::new(), cameras: Vec::new() };
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
        Ok(base)
    }

    /// How many frames it knows.
    pub(crate) fn count(&self) -> usize {
        self.poses.iter().flatten().count()
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
