//! The differentiable rasteriser of 3D Gaussians, pass by pass.
//!
//! [`Rasteriser`] is the seam: one method per pass, the state (splats, moments, pictures) inside. The trainer above
//! holds schedule and policy and does not know which implementation runs.
//!
//! Image formation is that of 3D Gaussian Splatting (Kerbl et al., SIGGRAPH 2023) with EWA projection (Zwicker et al.,
//! 2001):
//!
//! - x/z and y/z are clamped to 1.3 times the field of view (half the picture over the focal length, measured from the
//!   principal point as if it were central) in the Jacobian only;
//! - the 2D covariance gets [`DILATION`] px² on its diagonal;
//! - `alpha = min(ALPHA_MAX, opacity * exp(-½ dᵀ conic d))`, dropped where it is below [`ALPHA_MIN`], and only there;
//! - front to back by camera depth (ties by index); a pixel stops *before* the splat that would take its
//!   transmittance below [`TRANSMITTANCE_MIN`];
//! - colour = max(0, 0.5 + SH(direction from the camera centre to the mean)); the picture is not clamped;
//! - pixel (i, j) is sampled at (i + 0.5, j + 0.5);
//! - scenes that were trained with the anti-aliasing filter ([`Splats::antialiased`]) get it: the opacity is multiplied by the root
//!   of the ratio of the determinants of the 2D covariance without and with [`DILATION`] (Yu et al., Mip-Splatting, CVPR 2024).
//!   They are rendered only, not trained.
//!
//! Three things differ from the authors' program: splats nearer than [`NEAR`] = 0.01 to the camera plane are dropped (0.2
//! there), [`ALPHA_MAX`] is 0.999 (0.99 there), and a splat reaches as far as its alpha is not below [`ALPHA_MIN`] (there
//! only into the tiles within three standard deviations of its long axis).
//!
//! ```
//! # fn main() -> libreconstruct::Result<()> {
//! use libreconstruct::camera::{Camera, CameraModel, Pose};
//! use libreconstruct::glam::{Vec3, vec3, vec4};
//! use libreconstruct::raster::{DeviceChoice, View, load_for_viewing, open};
//! use libreconstruct::splats::Splats;
//!
//! let splats = Splats {
//!     means: vec![vec3(-0.2, 0.0, 2.0), vec3(0.2, 0.0, 3.0)],
//!     log_scales: vec![Vec3::splat(-2.0); 2],
//!     rotations: vec![vec4(1.0, 0.0, 0.0, 0.0); 2],
//!     opacities: vec![3.0; 2],
//!     sh: vec![1.5, -1.5, -1.5, -1.5, -1.5, 1.5], // the left one red, the right one blue
//!     ..Splats::default()
//! };
//! let camera = Camera::from_focal(CameraModel::Pinhole, 64.0, 64, 48);
//! let view = View::new(&camera, &Pose::identity());
//! let mut rasteriser = open(&DeviceChoice::Cpu)?;
//! load_for_viewing(rasteriser.as_mut(), &splats)?;
//! let picture = rasteriser.render(&view, 0, [0.0; 3])?;
//! let [r, _, b, alpha] = picture.rgba[24 * 64 + 25]; // row 24, column 25
//! assert!(r > b && alpha > 0.9);
//! # Ok(())
//! # }
//! ```

mod check;
pub mod cpu;
mod device;
#[cfg(feature = "gpu")]
pub mod gpu;
mod inspect;
mod open;
#[cfg(test)]
mod parity;
mod pass;
mod view;

pub use device::{AdapterInfo, DeviceChoice};
#[doc(hidden)]
pub use inspect::{Inspect, ProjectedSplat};
#[cfg(feature = "service")]
pub(crate) use open::adapter_of_auto;
pub use open::{adapters, open};
pub use view::View;

use serde::{Deserialize, Serialize};

use crate::error::Result;
use crate::splats::{OPACITY_MIN, Splats};

/// Side of the square tiles in pixels.
pub const TILE: u32 = 16;
/// Splats nearer to the camera plane than this (world units) are dropped.
pub const NEAR: f64 = 0.01;
/// Added to the diagonal of the 2D covariance, px².
pub const DILATION: f64 = 0.3;
/// Contributions below this are dropped.
pub const ALPHA_MIN: f64 = OPACITY_MIN;
/// No splat is more opaque than this.
pub const ALPHA_MAX: f64 = 0.999;
/// A pixel stops before its transmittance would fall below this.
pub const TRANSMITTANCE_MIN: f64 = 1e-4;

/// A picture to be matched. It lives in the implementation once added.
#[derive(Debug, Clone, PartialEq)]
pub struct Target {
    /// Width in pixels.
    pub width: u32,
    /// Height in pixels.
    pub height: u32,
    /// sRGB, 8 bits, row by row, three bytes per pixel.
    pub rgb: Vec<u8>,
    /// One byte per pixel, 255 = belongs to the scene, if it is known. Colour is not premultiplied.
    pub alpha: Option<Vec<u8>>,
    /// Whether white pixels whose alpha is 0 are hidden: something else stands in front of the scene there, so that nothing is known
    /// of it. They are compared with nothing: no error, and no gradient.
    pub hides: bool,
}

impl Target {
    /// Red, green, blue and alpha of a pixel as implementations keep them. The colour of what is transparent means nothing: it is
    /// white where the pixel is hidden, else black, so that nothing else need be kept to tell one from the other.
    fn packed(&self, pixel: usize) -> [u8; 4] {
        let [r, g, b]: [u8; 3] = std::array::from_fn(|channel| self.rgb[3 * pixel + channel]);
        match self.alpha.as_ref().map_or(255, |alpha| alpha[pixel]) {
            0 if self.hides && [r, g, b] == [255; 3] => [255, 255, 255, 0],
            0 => [0; 4],
            alpha => [r, g, b, alpha],
        }
    }
}

/// Number of a [`Target`] inside an implementation: its position in the list given to [`Rasteriser::set_targets`].
pub type TargetId = u32;

/// How a rendering is compared with its target.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct LossOptions {
    /// Weight w of 1-SSIM; L1 has 1-w. SSIM has an 11x11 Gaussian window of sigma 1.5 with zero padding, C1 = 0.01²,
    /// C2 = 0.03², mean over pixels and channels.
    pub ssim_weight: f32,
    /// Weight of the mean |alpha - target alpha|, where the target has one.
    pub alpha_weight: f32,
    /// Index of the affine exposure to apply to the rendering before it is compared, if any.
    pub exposure: Option<u32>,
}

/// One optimiser step (Adam, Kingma & Ba 2015). Learning rates are per parameter group and final for this step.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct StepOptions {
    /// Number of this step, from 1: bias correction and the key of the noise.
    pub step: u32,
    /// Means, world units.
    pub lr_means: f32,
    /// Natural logarithms of the scales.
    pub lr_scales: f32,
    /// Quaternions.
    pub lr_rotations: f32,
    /// Logits of the opacities.
    pub lr_opacities: f32,
    /// Constant colour coefficients.
    pub lr_sh_dc: f32,
    /// The other colour coefficients.
    pub lr_sh_rest: f32,
    /// The affine exposure of the picture of this step.
    pub lr_exposure: f32,
    /// Decay of the first moment.
    pub beta1: f32,
    /// Decay of the second moment.
    pub beta2: f32,
    /// Added to the root of the second moment.
    pub epsilon: f32,
    /// Weight of the mean opacity in the loss (3DGS-MCMC, Kheradmand et al. 2024).
    pub opacity_regularisation: f32,
    /// Weight of the mean scale in the loss (3DGS-MCMC).
    pub scale_regularisation: f32,
    /// Factor of the noise on the means: noise = factor * lr_means * sigmoid(-100 (opacity - 0.005)) * Σ * normal
    /// (3DGS-MCMC eq. 8, with gsplat's constants); 0 = none.
    pub noise: f32,
    /// Seed of the noise; with the step and the splat's number it fixes every random value.
    pub seed: u64,
}

/// What density control decides by, per splat.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct DensityScores {
    /// Logits of the opacities now.
    pub opacities: Vec<f32>,
    /// [`DensityStatistics::error`].
    pub error: Vec<f32>,
}

/// Statistics for density control, per splat, gathered since [`Rasteriser::reset_density_statistics`].
#[derive(Debug, Clone, Default, PartialEq)]
pub struct DensityStatistics {
    /// Sum over steps of |dL/d mean2d| in normalised units (gradient by pixel times half the picture size).
    pub gradient: Vec<f32>,
    /// Sum over steps and pixels of (blend weight alpha*T) * mean absolute colour error of the pixel.
    pub error: Vec<f32>,
    /// In how many steps it was visible.
    pub visible: Vec<u32>,
    /// Largest radius on screen (3 sigma of the long axis over the long side of the picture).
    pub radius: Vec<f32>,
}

/// One edit of density control: a copy of a splat. All sources are read before any destination is written.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SplatEdit {
    /// The splat to write; may be past the end by up to the number of edits that grow the scene (no gaps).
    pub destination: u32,
    /// The splat whose parameters are taken.
    pub source: u32,
    /// By how many of its standard deviations the copy is moved along its longest axis (the first of equal ones), between -1
    /// and 1. That axis becomes √(1 - shift²) times as long: two copies moved by ±shift have together the mean and the
    /// covariance of the one.
    pub shift: f32,
    /// Added to the logarithms of all three scales.
    pub log_scale_offset: f32,
    /// The new logit of the opacity.
    pub opacity: f32,
}

/// Parameters, optimiser moments and gathered statistics: all that a checkpoint needs from the rasteriser. Moments
/// without any entry stand for zero moments.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct TrainState {
    /// The parameters.
    pub splats: Splats,
    /// First moments, in the shape of the parameters (`antialiased` unused).
    pub first_moments: Splats,
    /// Second moments, in the shape of the parameters (`antialiased` unused).
    pub second_moments: Splats,
    /// Affine exposures, one 3x4 matrix (row by row: `rgb' = M [rgb alpha]`, without the background) per picture.
    pub exposures: Vec<[f32; 12]>,
    /// First moments of the exposures.
    pub exposure_first_moments: Vec<[f32; 12]>,
    /// Second moments of the exposures.
    pub exposure_second_moments: Vec<[f32; 12]>,
    /// What was gathered for density control; all of it empty = nothing gathered yet.
    pub statistics: DensityStatistics,
}

/// What a step found out; reading it may wait for the device.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct StepStatistics {
    /// The loss (without the regularisers).
    pub loss: f64,
    /// Its mean absolute colour error.
    pub l1: f64,
    /// Its mean SSIM.
    pub ssim: f64,
    /// Splats in view.
    pub visible: u64,
    /// Pairs of splat and tile.
    pub intersections: u64,
}

/// A rendered picture: linear in the trained colours, not clamped.
#[derive(Debug, Clone, PartialEq)]
pub struct Rendering {
    /// Width in pixels.
    pub width: u32,
    /// Height in pixels.
    pub height: u32,
    /// Row by row: r, g, b over the background, and alpha (1 - final transmittance).
    pub rgba: Vec<[f32; 4]>,
}

/// The passes of one implementation and the state they work on.
///
/// Order within a step: `project`, `intersect`, `sort`, `rasterise`, then for training `loss`,
/// `rasterise_backward`, `update`. A pass before which its predecessor did not run is an internal error. Deterministic
/// for one device (and driver), whatever the number of threads.
pub trait Rasteriser: Send {
    /// What runs, for people: `cpu (AVX2, f32)`, `gpu (NVIDIA H200, Vulkan)`.
    fn name(&self) -> String;
    /// Whether it computes on the processor: what is to be asked of views beside the training costs little there, compared with it.
    fn is_on_processor(&self) -> bool {
        false
    }

    /// Loads parameters, moments, exposures and the statistics of density control (zero where the state has none).
    fn load(&mut self, state: &TrainState) -> Result<()>;
    /// As [`Rasteriser::load`] of a state with these parameters and nothing else, which need not be copied into one.
    fn load_splats(&mut self, splats: &Splats) -> Result<()>;
    /// Reads everything back: `load(store())` changes nothing, bit for bit.
    fn store(&mut self) -> Result<TrainState>;
    /// Reads the affine exposures back.
    fn exposures(&mut self) -> Result<Vec<[f32; 12]>>;
    /// Reads the parameters back.
    fn splats(&mut self) -> Result<Splats>;
    /// Number of splats.
    fn len(&self) -> usize;
    /// Whether there are none.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// What a training step takes on a picture of so many pixels and a scene of so many splats, in a unit of its own. (A step
    /// of 50,000 splats on 130,000 pixels takes 15 ms on two cores, of a million on two million 306 ms.)
    fn step_cost(&self, pixels: f64, splats: f64) -> f64 {
        pixels + 1.3 * splats
    }
    /// Replaces the pictures to be matched.
    fn set_targets(&mut self, targets: Vec<Target>) -> Result<()>;

    /// Culls, projects and colours the splats for `view`, with spherical harmonics up to `sh_degree` (at most the
    /// scene's).
    fn project(&mut self, view: &View, sh_degree: u32) -> Result<()>;
    /// Counts and emits the pairs (tile, splat) in which the splat's alpha can reach [`ALPHA_MIN`].
    fn intersect(&mut self) -> Result<()>;
    /// Sorts the pairs by tile, then depth, then number.
    fn sort(&mut self) -> Result<()>;
    /// Blends the picture over `background`.
    fn rasterise(&mut self, background: [f32; 3]) -> Result<()>;
    /// Compares the picture with a target; computes the gradient by the picture (and by the exposure). A target with
    /// alpha is composed over the same background.
    fn loss(&mut self, target: TargetId, options: &LossOptions) -> Result<()>;
    /// Gradient by the projected splats; refused for scenes with the anti-aliasing filter.
    fn rasterise_backward(&mut self) -> Result<()>;
    /// Gradient by the parameters of the visible splats and one optimiser step on them; then the noise.
    fn update(&mut self, options: &StepOptions) -> Result<()>;

    /// What density control decides by. (All that was gathered is part of [`Rasteriser::store`].)
    fn density_scores(&mut self) -> Result<DensityScores>;
    /// Sets the gathered statistics to zero.
    fn reset_density_statistics(&mut self) -> Result<()>;
    /// Applies edits; moments and gathered statistics of every destination become zero.
    fn edit(&mut self, edits: &[SplatEdit]) -> Result<()>;

    /// The picture of the last `rasterise`.
    fn rendering(&mut self) -> Result<Rendering>;
    /// The figures of the last step: its loss stays when pictures are rendered after it, what is in view is that of the last
    /// picture.
    fn statistics(&mut self) -> Result<StepStatistics>;

    /// Renders a view: the four forward passes.
    fn render(&mut self, view: &View, sh_degree: u32, background: [f32; 3]) -> Result<Rendering> {
        self.project(view, sh_degree)?;
        self.intersect()?;
        self.sort()?;
        self.rasterise(background)?;
        self.rendering()
    }
}

/// Loads a scene that is only looked at, not trained.
///
/// # Errors
/// Those of [`Splats::check`] and [`Rasteriser::load`].
pub fn load_for_viewing(rasteriser: &mut dyn Rasteriser, splats: &Splats) -> Result<()> {
    rasteriser.load_splats(splats)
}
