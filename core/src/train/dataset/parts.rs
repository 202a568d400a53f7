//! What a dataset is made of: posed pictures and sparse points.

use std::path::PathBuf;

use nalgebra::Vector3;

use crate::raster::View;

/// One posed picture.
#[derive(Debug, Clone, PartialEq)]
pub struct DatasetView {
    /// Name in the model.
    pub name: String,
    /// Where the picture is.
    pub path: PathBuf,
    /// The camera, at the size that the model states.
    pub view: View,
    /// The mask of the object, of the camera's shape, where the background was removed.
    pub mask: Option<PathBuf>,
    /// The mask of where something else hides the object, if anything does ([`crate::masks::hidden_folder`]).
    pub hidden: Option<PathBuf>,
}

/// A sparse point, as a seed of Gaussians.
#[derive(Debug, Clone, PartialEq)]
pub struct SeedPoint {
    /// World position.
    pub position: Vector3<f64>,
    /// sRGB, 0..1.
    pub rgb: [f32; 3],
    /// The views (index into [`Dataset::views`](super::Dataset::views)) that see it, ascending.
    pub views: Vec<u32>,
}
