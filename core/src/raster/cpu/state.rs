//! What outlives a step: parameters, moments, exposures, gathered statistics and targets.
//!
//! A splat's geometry is one record, its spherical harmonics one more for each channel, and each record a vector of 16
//! numbers: in single precision a cache line, so that what is read and written of a splat is no more than it has. The
//! moments have the same shapes.

use std::ops::Range;

use glam::{Vec3, vec3, vec4};

use super::lanes::Row;
use super::scalar::Scalar;
use crate::error::Result;
use crate::raster::{DensityScores, DensityStatistics, Target, TrainState};
use crate::splats::{Splats, sh_coefficients};

/// Index of the mean (3 values) in a [`Geometry`].
pub(super) const MEAN: usize = 0;
/// Index of the logit of the opacity.
pub(super) const OPACITY: usize = 3;
/// Index of the quaternion w, x, y, z.
pub(super) const ROTATION: usize = 4;
/// Index of the logarithms of the scales (3 values).
pub(super) const SCALE: usize = 8;

/// All parameters of a splat but its colour: 11 values, and zeros.
pub(super) type Geometry<T> = Row<T>;

/// The coefficients of red, of green and of blue; zeros above the scene's degree.
pub(super) type Harmonics<T> = [Row<T>; 3];

/// Three values of a record, from `at` on.
fn three<T: Scalar>(g: &Geometry<T>, at: usize) -> Vec3 {
    vec3(g[at].f32(), g[at + 1].f32(), g[at + 2].f32())
}

/// Values in the shape of the parameters: the parameters themselves, a moment, a gradient.
#[derive(Debug, Clone, Default)]
pub(super) struct Parameters<T> {
    /// One record per splat.
    pub(super) geometry: Vec<Geometry<T>>,
    /// Three records per splat.
    pub(super) sh: Vec<Harmonics<T>>,
}

impl<T: Scalar> Parameters<T> {
    /// All zero.
    pub(super) fn zero(len: usize) -> Self {
        Self { geometry: vec![Row::default(); len], sh: vec![Harmonics::default(); len] }
    }

    fn load(splats: &Splats) -> Self {
        let of = T::of_f32;
        let geometry = (0..splats.len())
            .map(|i| {
                let [mx, my, mz] = splats.means[i].to_array();
                let [w, x, y, z] = splats.rotations[i].to_array();
                let [sx, sy, sz] = splats.log_scales[i].to_array();
                let values = [mx, my, mz, splats.opacities[i], w, x, y, z, sx, sy, sz];
                let mut record = Row::default();
                record[..values.len()].copy_from_slice(&values.map(of));
                record
            })
            .collect();
        let coefficients = 3 * sh_coefficients(splats.sh_degree);
        let sh = splats.sh.chunks_exact(coefficients).map(|values| {
            let mut record = Harmonics::default();
            for (k, &value) in values.iter().enumerate() {
                record[k % 3][k / 3] = of(value);
            }
            record
        });
        Self { geometry, sh: sh.collect() }
    }

    /// As the arrays of the seam.
    pub(super) fn store(&self, sh_degree: u32, antialiased: bool) -> Splats {
        let coefficients = 3 * sh_coefficients(sh_degree);
        let values =
            |record: &Harmonics<T>| (0..coefficients).map(|k| record[k % 3][k / 3].f32()).collect::<Vec<_>>();
        Splats {
            means: self.geometry.iter().map(|g| three(g, MEAN)).collect(),
            log_scales: self.geometry.iter().map(|g| three(g, SCALE)).collect(),
            rotations: self
                .geometry
                .iter()
                .map(|g| vec4(g[4].f32(), g[5].f32(), g[6].f32(), g[7].f32()))
                .collect(),
            opacities: self.geometry.iter().map(|g| g[OPACITY].f32()).collect(),
            sh_degree,
            sh: self.sh.iter().flat_map(values).collect(),
            antialiased,
        }
    }
}

/// Sums over steps for density control.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Gathered<T> {
    /// Sum of the norm of the normalised 2D gradient.
    pub(super) gradient: T,
    /// Sum of weighted colour errors.
    pub(super) error: T,
    /// Largest radius on screen.
    pub(super) radius: T,
    /// Steps in which it was visible.
    pub(super) visible: u32,
}

fn load_gathered<T: Scalar>(statistics: &DensityStatistics, splats: usize) -> Vec<Gathered<T>> {
    let DensityStatistics { gradient, error, visible, radius } = statistics;
    if gradient.is_empty() {
        return vec![Gathered::default(); splats];
    }
    let of = T::of_f32;
    let entry = |i: usize| Gathered {
        gradient: of(gradient[i]),
        error: of(error[i]),
        radius: of(radius[i]),
        visible: visible[i],
    };
    (0..splats).map(entry).collect()
}

/// The splats and all that is trained with them.
#[derive(Debug, Clone, Default)]
pub(super) struct Scene<T> {
    pub(super) parameters: Parameters<T>,
    /// The moments; without entries before the first update, so that a scene that is only looked at takes a third of the memory.
    pub(super) first: Parameters<T>,
    pub(super) second: Parameters<T>,
    pub(super) sh_degree: u32,
    pub(super) antialiased: bool,
    pub(super) exposures: Vec<[T; 12]>,
    pub(super) exposures_first: Vec<[T; 12]>,
    pub(super) exposures_second: Vec<[T; 12]>,
    pub(super) gathered: Vec<Gathered<T>>,
}

impl<T: Scalar> Scene<T> {
    /// Number of splats.
    pub(super) fn len(&self) -> usize {
        self.parameters.geometry.len()
    }

    /// # Errors
    /// [`crate::ErrorKind::InvalidFile`] if the parts do not belong together.
    pub(super) fn load(state: &TrainState) -> Result<Self> {
        state.check()?;
        let moments = |moments: &Splats| {
            if moments.is_empty() { Parameters::default() } else { Parameters::load(moments) }
        };
        let exposures = |matrices: &[[f32; 12]]| {
            if matrices.is_empty() {
                vec![[T::default(); 12]; state.exposures.len()]
            } else {
                matrices.iter().map(|m| m.map(T::of_f32)).collect()
            }
        };
        Ok(Self {
            first: moments(&state.first_moments),
            second: moments(&state.second_moments),
            exposures: exposures(&state.exposures),
            exposures_first: exposures(&state.exposure_first_moments),
            exposures_second: exposures(&state.exposure_second_moments),
            gathered: load_gathered(&state.statistics, state.splats.len()),
            ..Self::of(&state.splats)
        })
    }

    /// Of parameters that were checked, with nothing else yet.
    pub(super) fn of(splats: &Splats) -> Self {
        Self {
            parameters: Parameters::load(splats),
            sh_degree: splats.sh_degree,
            antialiased: splats.antialiased,
            gathered: load_gathered(&DensityStatistics::default(), splats.len()),
            ..Self::default()
        }
    }

    /// Gives the moments their entries, where they have none.
    pub(super) fn fill_moments(&mut self) {
        let len = self.len();
        for moments in [&mut self.first, &mut self.second] {
            if moments.geometry.len() < len {
                *moments = Parameters::zero(len);
            }
        }
    }

    /// The exposures in single precision.
    pub(super) fn exposures(&self) -> Vec<[f32; 12]> {
        self.exposures.iter().map(|m| m.map(T::f32)).collect()
    }

    /// Everything as single-precision arrays.
    pub(super) fn store(&self) -> TrainState {
        let matrices = |m: &[[T; 12]]| m.iter().map(|x| x.map(T::f32)).collect();
        let moments = |of: &Parameters<T>| {
            if of.geometry.len() < self.len() {
                return Parameters::<T>::zero(self.len()).store(self.sh_degree, false);
            }
            of.store(self.sh_degree, false)
        };
        TrainState {
            splats: self.splats(),
            first_moments: moments(&self.first),
            second_moments: moments(&self.second),
            exposures: self.exposures(),
            exposure_first_moments: matrices(&self.exposures_first),
            exposure_second_moments: matrices(&self.exposures_second),
            statistics: DensityStatistics {
                gradient: self.gathered.iter().map(|g| g.gradient.f32()).collect(),
                error: self.gathered.iter().map(|g| g.error.f32()).collect(),
                visible: self.gathered.iter().map(|g| g.visible).collect(),
                radius: self.gathered.iter().map(|g| g.radius.f32()).collect(),
            },
        }
    }

    /// The parameters as single-precision arrays.
    pub(super) fn splats(&self) -> Splats {
        self.parameters.store(self.sh_degree, self.antialiased)
    }

    /// What density control decides by.
    pub(super) fn density_scores(&self) -> DensityScores {
        DensityScores {
            opacities: self.parameters.geometry.iter().map(|g| g[OPACITY].f32()).collect(),
            error: self.gathered.iter().map(|g| g.error.f32()).collect(),
        }
    }
}

/// A [`Target`] with one plane per channel, so that rows convert to numbers without a gather.
#[derive(Debug, Clone)]
pub(super) struct TargetPlanes {
    pub(super) width: u32,
    pub(super) height: u32,
    pub(super) rgb: [Vec<u8>; 3],
    pub(super) alpha: Option<Vec<u8>>,
    hides: bool,
}

impl TargetPlanes {
    /// # Errors
    /// [`crate::ErrorKind::InvalidArgument`] if the sizes do not fit together.
    pub(super) fn new(index: usize, target: Target) -> Result<Self> {
        target.check(index)?;
        let pixels = target.width as usize * target.height as usize;
        let plane = |channel: usize| (0..pixels).map(|pixel| target.packed(pixel)[channel]).collect();
        Ok(Self {
            width: target.width,
            height: target.height,
            rgb: [plane(0), plane(1), plane(2)],
            alpha: target.alpha.is_some().then(|| plane(3)),
            hides: target.hides,
        })
    }

    /// Which of these pixels, up to 16, are hidden ([`Target::hides`]): bit i is the i-th of them.
    pub(super) fn hidden(&self, pixels: Range<usize>) -> u16 {
        let Some(alpha) = self.alpha.as_ref().filter(|_| self.hides) else { return 0 };
        // Transparent pixels are white or black.
        let planes = alpha[pixels.clone()].iter().zip(&self.rgb[0][pixels]);
        let hidden = planes.map(|(alpha, red)| u16::from(*alpha == 0 && *red == 255));
        hidden.enumerate().fold(0, |bits, (i, bit)| bits | (bit << i))
    }
}
