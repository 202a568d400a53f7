//! What the passes leave behind, for the tests that compare implementations and for benchmarks.

use super::Rasteriser;
use crate::error::Result;
use crate::splats::Splats;

/// What [`Rasteriser::project`] computes for a visible splat.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ProjectedSplat {
    /// Number of the splat.
    pub index: u32,
    /// Centre in pixels.
    pub mean: [f64; 2],
    /// Inverse 2D covariance: xx, xy, yy.
    pub conic: [f64; 3],
    /// Camera depth.
    pub depth: f64,
    /// Opacity, 0 to 1.
    pub opacity: f64,
    /// Colour.
    pub rgb: [f64; 3],
}

/// A rasteriser whose intermediate results can be read. A result whose pass did not run is an internal error.
pub trait Inspect: Rasteriser {
    /// The visible splats of the last `project`, by number.
    fn inspect_projected(&mut self) -> Result<Vec<ProjectedSplat>>;
    /// (tile, splat) of the last `sort`, in its order. Tiles are numbered row by row.
    fn inspect_intersections(&mut self) -> Result<Vec<(u32, u32)>>;
    /// dL/d(r, g, b, alpha) per pixel of the last `loss`.
    fn inspect_loss_gradient(&mut self) -> Result<Vec<[f32; 4]>>;
    /// dL/d(mean.x, mean.y, covariance xx, xy, yy, opacity, r, g, b) per splat of the last `rasterise_backward`; zero for
    /// those that are not visible.
    fn inspect_projected_gradient(&mut self) -> Result<Vec<[f64; 9]>>;
    /// The gradient by all parameters of the last `rasterise_backward`, in the shape of the splats, without
    /// regularisers; and by the exposure. Does not step.
    fn inspect_gradient(&mut self) -> Result<(Splats, [f32; 12])>;
}
