//! What a caller can ask of the trainer, checked once, and the constants behind the schedules.
//!
//! Every rate and weight that shapes the optimisation is a field here with its unit and its source, and none of them
//! depends on the length of the run: [`super::schedule`] spreads them over `training_num_steps`, and makes the rates of a
//! short run larger.

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::defaults::with_defaults;
use crate::error::{Error, Result};
use crate::hex::hex;

with_defaults! {
    /// What to train, and for how long.
    #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
    #[serde(default, deny_unknown_fields)]
    pub struct TrainOptions {
        /// Number of optimiser steps, 1 to 200,000; one training view each.
        pub training_num_steps: u32 = 25_000,
        /// Largest number of Gaussians, 1,000 to 10,000,000.
        pub training_max_num_gaussians: u32 = 1_000_000,
        /// Degree of the spherical harmonics of the colour, 0 to 3.
        pub sh_degree: u32 = 3,
        /// Pictures are averaged down until their long side has at most this many pixels (16 to 16,384); `None` = full
        /// size.
        pub max_resolution: Option<u32> = Some(1600),
        /// Every n-th view by sorted name, beginning with the first, is held out for evaluation (at least 2); `None` =
        /// train on all.
        pub test_every: Option<u32> = None,
        /// Fixes every random choice.
        pub seed: u64 = 0,
        /// Seconds, 1 to 2,592,000, within which the training is to end: where more was asked for than this device does in that time,
        /// there are fewer steps and Gaussians, and smaller pictures (all cut to the same share). What is left is measured when
        /// the training begins, so that the same input may become another scene on another day. `None` = all that was
        /// asked for, however long it takes.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub time_budget_seconds: Option<u32> = None,
        /// Seconds between checkpoints, 1 to 86,400.
        pub checkpoint_interval_seconds: u32 = 60,
        /// Whether an affine colour correction per training picture is learnt. The exported colours are then those of
        /// the mean exposure. For pictures whose exposures have nothing to do with where they were taken from.
        // With it held-out views of nine captures, automatic exposure and all, score 0.02 to 3.1 dB less.
        pub exposure_compensation: bool = false,
        /// Whether training starts on smaller pictures.
        pub coarse_to_fine: bool = true,
        /// Whether depth maps of the training views add Gaussians to those of the sparse points.
        pub dense_initialisation: bool = true,
        /// Whether Gaussians that hang in free space, in front of the surfaces that the views show, are moved to where they are
        /// needed, three times in the second half of the run. Not on a graphics device: the views are measured on the processor,
        /// which takes longer than such a device trains.
        pub clean: bool = true,
        /// The constants of the optimisation.
        pub tuning: Tuning = Tuning::default(),
    }
}

with_defaults! {
    /// The constants of the optimisation; the defaults suit captures of any size.
    ///
    /// Learning rates are those of a run of 30,000 steps, for which the authors of 3DGS chose them. Adam moves a parameter by
    /// about its rate a step, whatever the gradient: in a run of 1,000 steps of the same rates the Gaussians stay
    /// near where they began. A shorter run therefore takes larger rates: (30,000 / steps)^e times as large, with the
    /// exponents below; runs of fewer than 1,000 steps take those of 1,000.
    #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
    #[serde(default, deny_unknown_fields)]
    pub struct Tuning {
        /// Exponent e of the rates of scales, quaternions, opacities and constant colours, 0 to 1.
        pub short_run: f32 = 0.4,
        /// Exponent e of the rate of the means (and of their noise), 0 to 1.
        pub short_run_means: f32 = 0.2,
        /// Exponent e of the rate of the other colour coefficients, 0 to 1.
        pub short_run_sh_rest: f32 = 0.8,
        /// Learning rate of the means at the start, in units of the scene scale
        /// ([`super::dataset::Dataset::scene_scale`]).
        pub lr_means: f32 = 1.6e-4,
        /// The same at the end, as a fraction of the start (exponential in between).
        pub lr_means_final: f32 = 0.01,
        /// Learning rate of the logarithms of the scales.
        pub lr_scales: f32 = 5e-3,
        /// Learning rate of the quaternions.
        pub lr_rotations: f32 = 1e-3,
        /// Learning rate of the logits of the opacities.
        pub lr_opacities: f32 = 5e-2,
        /// Learning rate of the constant colour coefficients.
        pub lr_sh_dc: f32 = 2.5e-3,
        /// Learning rate of the other colour coefficients.
        pub lr_sh_rest: f32 = 1.25e-4,
        /// Learning rate of the exposures.
        pub lr_exposure: f32 = 1e-3,
        /// Fraction to which all learning rates but that of the means fall over the last part of the run.
        pub lr_final: f32 = 0.1,
        /// Fraction of the run after which they begin to fall.
        pub lr_decay_start: f32 = 0.5,
        /// Weight of 1 - SSIM in the loss; L1 has the rest.
        pub ssim_weight: f32 = 0.2,
        /// Weight of the alpha of pictures that have one.
        pub alpha_weight: f32 = 0.1,
        /// Weight of the mean opacity in the loss (3DGS-MCMC).
        pub opacity_regularisation: f32 = 0.01,
        /// Weight of the mean scale, in units of the scene scale, in the loss (3DGS-MCMC).
        pub scale_regularisation: f32 = 0.01,
        /// Factor of the noise on the means (3DGS-MCMC eq. 8; times the learning rate of the means).
        pub noise: f32 = 5e5,
        /// Opacity of the Gaussians at the start.
        pub initial_opacity: f32 = 0.5,
        /// Scale of the Gaussians at the start, in units of the mean distance to the three nearest neighbours.
        pub initial_scale: f32 = 0.5,
        /// Fraction of the cap that initialisation may use.
        pub initial_fraction: f32 = 0.7,
        /// The halves of a Gaussian that is split along its longest axis are this many standard deviations from its centre, 0 to
        /// 0.9; 0 = they are copies at one place (3DGS-MCMC).
        pub split: f32 = 0.5,
        /// Gaussians less opaque than this are moved to where they are needed.
        pub dead_opacity: f32 = 0.005,
        /// Growth begins after this fraction of the run,
        pub growth_start: f32 = 0.05,
        /// and the cap is reached after this fraction.
        pub growth_end: f32 = 0.5,
        /// Dead Gaussians are moved until this fraction of the run.
        pub refine_end: f32 = 0.85,
        /// Largest number of Gaussians per training pixel (all pictures together).
        pub max_gaussians_per_pixel: f32 = 0.05,
    }
}

impl TrainOptions {
    /// # Errors
    /// [`crate::ErrorKind::InvalidArgument`] with the option, its value and its range.
    pub fn validate(&self) -> Result<()> {
        whole("training_num_steps", self.training_num_steps, 1, 200_000)?;
        whole("training_max_num_gaussians", self.training_max_num_gaussians, 1000, 10_000_000)?;
        whole("sh_degree", self.sh_degree, 0, 3)?;
        if let Some(side) = self.max_resolution {
            whole("max_resolution", side, 16, 16_384)?;
        }
        if let Some(every) = self.test_every {
            whole("test_every", every, 2, 1_000_000)?;
        }
        if let Some(seconds) = self.time_budget_seconds {
            whole("time_budget_seconds", seconds, 1, 2_592_000)?;
        }
        whole("checkpoint_interval_seconds", self.checkpoint_interval_seconds, 1, 86_400)?;
        self.tuning.validate()
    }

    /// Hash of all that changes the result of a run: a checkpoint is continued only under the same.
    pub(crate) fn hash(&self) -> Result<String> {
        let result_only = Self { checkpoint_interval_seconds: 1, ..self.clone() };
        let json = serde_json::to_vec(&result_only).map_err(|e| {
            Error::new(crate::ErrorKind::Internal, "the training options cannot be written as JSON")
                .caused_by(e)
        })?;
        Ok(hex(&Sha256::digest(json)))
    }
}

impl Tuning {
    fn validate(&self) -> Result<()> {
        let rates = [
            ("lr_means", self.lr_means),
            ("lr_scales", self.lr_scales),
            ("lr_rotations", self.lr_rotations),
            ("lr_opacities", self.lr_opacities),
            ("lr_sh_dc", self.lr_sh_dc),
            ("lr_sh_rest", self.lr_sh_rest),
            ("lr_exposure", self.lr_exposure),
            ("alpha_weight", self.alpha_weight),
            ("opacity_regularisation", self.opacity_regularisation),
            ("scale_regularisation", self.scale_regularisation),
            ("noise", self.noise),
        ];
        for (name, value) in rates {
            real(name, value, 0.0, f32::MAX)?;
        }
        let fractions = [
            ("short_run", self.short_run),
            ("short_run_means", self.short_run_means),
            ("short_run_sh_rest", self.short_run_sh_rest),
            ("lr_decay_start", self.lr_decay_start),
            ("ssim_weight", self.ssim_weight),
            ("growth_start", self.growth_start),
            ("growth_end", self.growth_end),
            ("refine_end", self.refine_end),
        ];
        for (name, value) in fractions {
            real(name, value, 0.0, 1.0)?;
        }
        real("split", self.split, 0.0, 0.9)?;
        let positive = [
            ("lr_means_final", self.lr_means_final, 1.0),
            ("lr_final", self.lr_final, 1.0),
            ("initial_opacity", self.initial_opacity, 0.99),
            ("initial_scale", self.initial_scale, 100.0),
            ("initial_fraction", self.initial_fraction, 1.0),
            ("dead_opacity", self.dead_opacity, 0.5),
            ("max_gaussians_per_pixel", self.max_gaussians_per_pixel, 1e6),
        ];
        for (name, value, high) in positive {
            real(name, value, 1e-6, high)?;
        }
        Ok(())
    }
}

fn whole(name: &'static str, value: u32, low: u32, high: u32) -> Result<()> {
    if (low..=high).contains(&value) {
        return Ok(());
    }
    Err(Error::argument(format!("{name} is {value}")).hint(format!("it must be between {low} and {high}")))
}

fn real(name: &'static str, value: f32, low: f32, high: f32) -> Result<()> {
    // Written so that NaN fails.
    if value >= low && value <= high {
        return Ok(());
    }
    let range =
        if high == f32::MAX { format!("at least {low}") } else { format!("between {low} and {high}") };
    Err(Error::argument(format!("tuning.{name} is {value}")).hint(format!("it must be {range}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_are_valid_and_survive_json() {
        let options = TrainOptions::default();
        options.validate().unwrap();
        assert_eq!((options.training_num_steps, options.training_max_num_gaussians), (25_000, 1_000_000));
        let back: TrainOptions = serde_json::from_str(&serde_json::to_string(&options).unwrap()).unwrap();
        assert_eq!(back, options);
        let partial: TrainOptions = serde_json::from_str(r#"{"seed": 7}"#).unwrap();
        assert_eq!(partial, TrainOptions { seed: 7, ..options });
    }

    #[test]
    fn out_of_range_options_are_named_with_their_value() {
        let base = TrainOptions::default();
        let wrong = [
            (TrainOptions { training_num_steps: 0, ..base.clone() }, "training_num_steps is 0"),
            (TrainOptions { training_num_steps: 200_001, ..base.clone() }, "200001"),
            (
                TrainOptions { training_max_num_gaussians: 999, ..base.clone() },
                "training_max_num_gaussians is 999",
            ),
            (TrainOptions { sh_degree: 4, ..base.clone() }, "sh_degree is 4"),
            (TrainOptions { test_every: Some(1), ..base.clone() }, "test_every is 1"),
            (TrainOptions { max_resolution: Some(8), ..base.clone() }, "max_resolution is 8"),
            (
                TrainOptions { tuning: Tuning { lr_means: f32::NAN, ..Tuning::default() }, ..base.clone() },
                "tuning.lr_means is NaN",
            ),
            (
                TrainOptions { tuning: Tuning { ssim_weight: 1.5, ..Tuning::default() }, ..base },
                "tuning.ssim_weight is 1.5",
            ),
        ];
        for (options, expected) in wrong {
            let error = options.validate().unwrap_err();
            assert_eq!(error.kind(), crate::ErrorKind::InvalidArgument);
            assert!(error.to_string().contains(expected), "{error}");
        }
    }

    #[test]
    fn the_hash_sees_what_changes_the_result_and_nothing_else() {
        let base = TrainOptions::default();
        let sooner = TrainOptions { checkpoint_interval_seconds: 5, ..base.clone() };
        let seeded = TrainOptions { seed: 1, ..base.clone() };
        assert_eq!(base.hash().unwrap(), sooner.hash().unwrap());
        assert_ne!(base.hash().unwrap(), seeded.hash().unwrap());
    }
}
