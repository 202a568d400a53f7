//! Where the tags were seen in the images of a map.

use nalgebra::Vector2;

use crate::fiducial::Tags;
use crate::sfm::map::Map;

/// A tag in an image that has a pose.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Sighting {
    pub(super) id: u32,
    /// Index of the image.
    pub(super) image: usize,
    /// Pixels, in the detector's order.
    pub(super) corners: [Vector2<f64>; 4],
    /// Shortest edge in pixels of the picture that was searched.
    pub(super) edge: f64,
}

/// The sightings in registered images.
pub(super) fn in_map(tags: &Tags, map: &Map) -> Vec<Sighting> {
    let mut sightings = Vec::new();
    for (image, frame) in tags.frames.iter().enumerate() {
        if map.poses.get(image).is_some_and(Option::is_some) {
            sightings.extend(frame.tags.iter().map(|t| Sighting {
                id: t.id,
                image,
                corners: t.corners.map(Vector2::from),
                edge: t.edge,
            }));
        }
    }
    sightings
}
