//! The rasteriser on the CPU: runs anywhere, needs no driver.
//!
//! One file per pass. Generic in the scalar type: `CpuRasteriser<f32>` is the product, `CpuRasteriser<f64>` the
//! reference that everything is compared with. The trainer and the preview call it through
//! [`Rasteriser`], on any thread; it works on the rayon pool on which it is called.
//!
//! Parallelism: tiles (blending), bands of pixel rows (loss), chunks of splats (the rest). Every task writes to slots
//! of its own and sums are added in a fixed order, so results do not depend on the number of threads. Within a task
//! the 16 lanes of a vector are pixels or splats; the instruction set is chosen when the rasteriser is made.

mod contributions;
mod edit;
mod harmonics;
mod intersect;
mod isa;
mod lanes;
mod loss;
mod project;
mod rasterise;
mod rasterise_backward;
mod real;
mod scalar;
mod sort;
mod state;
#[cfg(test)]
pub(crate) mod tests;
mod update;
#[cfg(target_arch = "x86_64")]
mod x86;

use std::sync::atomic::Ordering::Relaxed;

pub(crate) use self::contributions::Contribution;
use self::intersect::Pairs;
use self::isa::Isa;
use self::loss::Loss;
use self::project::Projection;
use self::rasterise::Picture;
use self::rasterise_backward::{ProjectedGradients, conic};
pub use self::scalar::Scalar;
use self::sort::TileLists;
use self::state::{Gathered, Scene, TargetPlanes};
use super::check::{check_background, check_splats, check_target, check_trainable};
use super::pass::Pass;
use super::{
    DensityScores, Inspect, LossOptions, ProjectedSplat, Rasteriser, Rendering, SplatEdit, StepOptions,
    StepStatistics, Target, TargetId, TrainState, View,
};
use crate::error::{Error, ErrorKind, Result};
use crate::splats::Splats;

/// The implementation of [`Rasteriser`] on the CPU. `T` is `f32` or, as the reference, `f64`.
#[derive(Debug)]
pub struct CpuRasteriser<T: Scalar = f32> {
    isa: Isa,
    scene: Scene<T>,
    targets: Vec<TargetPlanes>,
    done: Pass,
    projection: Projection<T>,
    pairs: Pairs,
    lists: TileLists<T>,
    picture: Picture<T>,
    loss: Loss<T>,
    gradients: ProjectedGradients<T>,
}

impl<T: Scalar> Default for CpuRasteriser<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T: Scalar> CpuRasteriser<T> {
    /// An empty one that uses the best instruction set of this machine.
    pub fn new() -> Self {
        Self::with_isa(T::best_isa())
    }

    /// An empty one that uses `isa`, which must be one of [`Isa::available`].
    fn with_isa(isa: Isa) -> Self {
        Self {
            isa,
            scene: Scene::default(),
            targets: Vec::new(),
            done: Pass::Start,
            projection: Projection::default(),
            pairs: Pairs::default(),
            lists: TileLists::default(),
            picture: Picture::default(),
            loss: Loss::default(),
            gradients: ProjectedGradients::default(),
        }
    }

    /// What the visible splats contribute to the picture of the last `rasterise`, which must be over black, compared with `truth`
    /// (row by row); in front of a surface is what is nearer to the camera than `nearer` times (0 to 1) the median depth of
    /// the pixel.
    ///
    /// # Errors
    /// [`crate::ErrorKind::Internal`] if no picture was rasterised, or `truth` has another size.
    pub(crate) fn contributions(&mut self, truth: &[[f32; 3]], nearer: f64) -> Result<Vec<Contribution>> {
        self.need(Pass::Rasterise)?;
        let camera = self.projection.camera()?;
        if truth.len() != camera.width as usize * camera.height as usize {
            return Err(Error::new(ErrorKind::Internal, "a picture was compared with one of another size"));
        }
        let measure = contributions::Measure { truth, nearer };
        contributions::contributions(
            self.isa,
            &self.projection,
            &self.pairs,
            &self.lists,
            &self.picture,
            &measure,
        )
    }

    fn need(&self, pass: Pass) -> Result<()> {
        if self.done >= pass {
            return Ok(());
        }
        Err(pass.is_missing(self.done))
    }
}

impl<T: Scalar> Rasteriser for CpuRasteriser<T> {
    fn name(&self) -> String {
        format!("cpu ({}, {})", self.isa.name(), T::NAME)
    }

    fn is_on_processor(&self) -> bool {
        true
    }

    fn load(&mut self, state: &TrainState) -> Result<()> {
        self.scene = Scene::load(state)?;
        self.done = Pass::Start;
        Ok(())
    }

    fn load_splats(&mut self, splats: &Splats) -> Result<()> {
        check_splats(splats)?;
        self.scene = Scene::of(splats);
        self.done = Pass::Start;
        Ok(())
    }

    fn store(&mut self) -> Result<TrainState> {
        Ok(self.scene.store())
    }

    fn exposures(&mut self) -> Result<Vec<[f32; 12]>> {
        Ok(self.scene.exposures())
    }

    fn splats(&mut self) -> Result<Splats> {
        Ok(self.scene.splats())
    }

    fn len(&self) -> usize {
        self.scene.len()
    }

    fn set_targets(&mut self, targets: Vec<Target>) -> Result<()> {
        self.targets = targets
            .into_iter()
            .enumerate()
            .map(|(index, target)| TargetPlanes::new(index, target))
            .collect::<Result<_>>()?;
        Ok(())
    }

    fn project(&mut self, view: &View, sh_degree: u32) -> Result<()> {
        self.done = Pass::Start;
        self.projection.run(self.isa, &self.scene, view, sh_degree)?;
        self.done = Pass::Project;
        Ok(())
    }

    fn intersect(&mut self) -> Result<()> {
        self.need(Pass::Project)?;
        self.done = Pass::Project;
        self.pairs.run(&self.projection)?;
        self.done = Pass::Intersect;
        Ok(())
    }

    fn sort(&mut self) -> Result<()> {
        self.need(Pass::Intersect)?;
        self.lists.run(self.isa, &self.projection, &self.pairs)?;
        self.done = Pass::Sort;
        Ok(())
    }

    fn rasterise(&mut self, background: [f32; 3]) -> Result<()> {
        self.need(Pass::Sort)?;
        check_background(background)?;
        self.picture.run(self.isa, &self.projection, &self.lists, background)?;
        self.done = Pass::Rasterise;
        Ok(())
    }

    fn loss(&mut self, target: TargetId, options: &LossOptions) -> Result<()> {
        self.need(Pass::Rasterise)?;
        let camera = self.projection.camera()?;
        let sizes = self.targets.iter().map(|t| (t.width, t.height));
        check_target(target, sizes, (camera.width, camera.height))?;
        options.check(self.scene.exposures.len())?;
        let exposure = options.exposure.map(|index| self.scene.exposures[index as usize]);
        let planes = &self.targets[target as usize];
        self.loss.run(self.isa, &camera, &self.picture, planes, options, exposure);
        self.done = Pass::Loss;
        Ok(())
    }

    fn rasterise_backward(&mut self) -> Result<()> {
        self.need(Pass::Loss)?;
        check_trainable(self.scene.antialiased)?;
        self.gradients.run(
            self.isa,
            &self.projection,
            &self.pairs,
            &self.lists,
            &self.picture,
            &self.loss.tiles,
            &mut self.scene.gathered,
        )?;
        self.done = Pass::RasteriseBackward;
        Ok(())
    }

    fn update(&mut self, options: &StepOptions) -> Result<()> {
        self.need(Pass::RasteriseBackward)?;
        options.check()?;
        self.done = Pass::Start;
        let gradients = &self.gradients.splats;
        update::update(self.isa, &mut self.scene, &self.projection, gradients, self.loss.exposure, options)
    }

    fn density_scores(&mut self) -> Result<DensityScores> {
        Ok(self.scene.density_scores())
    }

    fn reset_density_statistics(&mut self) -> Result<()> {
        self.scene.gathered.fill(Gathered::default());
        Ok(())
    }

    fn edit(&mut self, edits: &[SplatEdit]) -> Result<()> {
        edit::edit(&mut self.scene, edits)?;
        self.done = Pass::Start;
        Ok(())
    }

    fn rendering(&mut self) -> Result<Rendering> {
        self.picture.rendering()
    }

    fn statistics(&mut self) -> Result<StepStatistics> {
        Ok(StepStatistics {
            loss: self.loss.value,
            l1: self.loss.l1,
            ssim: self.loss.ssim,
            visible: self.projection.visible.len() as u64,
            intersections: self.pairs.tiles.len() as u64,
        })
    }
}

impl<T: Scalar> Inspect for CpuRasteriser<T> {
    fn inspect_projected(&mut self) -> Result<Vec<ProjectedSplat>> {
        self.need(Pass::Project)?;
        let record = |&index: &u32| {
            let s = &self.projection.projected[index as usize];
            ProjectedSplat {
                index,
                mean: [s.u.f64(), s.v.f64()],
                conic: conic(s).map(T::f64),
                depth: s.depth.f64(),
                opacity: s.opacity.f64(),
                rgb: s.rgb.map(T::f64),
            }
        };
        Ok(self.projection.visible.iter().map(record).collect())
    }

    fn inspect_intersections(&mut self) -> Result<Vec<(u32, u32)>> {
        self.need(Pass::Sort)?;
        let tiles = self.projection.camera()?.tiles();
        let list = |tile: usize| self.lists.tile(tile).iter().map(move |s| (tile as u32, s.load(Relaxed)));
        Ok((0..tiles).flat_map(list).collect())
    }

    fn inspect_loss_gradient(&mut self) -> Result<Vec<[f32; 4]>> {
        self.need(Pass::Loss)?;
        Ok(self.loss.gradient(&self.projection.camera()?))
    }

    fn inspect_projected_gradient(&mut self) -> Result<Vec<[f64; 9]>> {
        self.need(Pass::RasteriseBackward)?;
        let mut all = vec![[0.0; 9]; self.scene.len()];
        for (&splat, gradient) in self.projection.visible.iter().zip(&self.gradients.splats) {
            all[splat as usize] = std::array::from_fn(|k| gradient[k].f64());
        }
        Ok(all)
    }

    fn inspect_gradient(&mut self) -> Result<(Splats, [f32; 12])> {
        self.need(Pass::RasteriseBackward)?;
        let gradient = update::gradient(self.isa, &self.scene, &self.projection, &self.gradients.splats)?;
        let exposure = self.loss.exposure.map_or([0.0; 12], |(_, m)| m.map(T::f32));
        Ok((gradient.store(self.scene.sh_degree, false), exposure))
    }
}
