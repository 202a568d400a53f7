//! What structure from motion hands over.

use crate::camera::{RollingShutter, SparseModel};

use super::report::SfmReport;

/// A sparse model and how it came about.
#[derive(Debug, Clone, PartialEq)]
pub struct Reconstruction {
    /// Camera, poses and points. The world is level (+y is down) and the origin is the mean of the camera centres. Its
    /// unit is the metre where `report.scale` says so; else there is no metric scale, and a camera is 5 units (median)
    /// from what it sees. Where frames were added to a model ([`super::add_to_model`]) the world is that model's. Image ids are
    /// frame numbers plus 1.
    pub model: SparseModel,
    /// Figures.
    pub report: SfmReport,
    /// The rolling shutter that poses, points and keypoints are freed of; the pictures have it still.
    pub shutter: Option<RollingShutter>,
    /// Models of other places that the capture shows, which share nothing with the first: in the order of
    /// `report.components`, each in a world of its own. Image ids are those of the whole capture.
    pub components: Vec<SparseModel>,
}
