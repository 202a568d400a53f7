//! The splats on the device: parameters, and once they are trained moments and gathered statistics, in pages of 2^18 splats.
//!
//! A page grows by copying within the device until it is full; then there is another page, so that a large scene
//! needs no large buffer. Within a page 256 splats lie together, plane by plane (a plane is one vec4 per splat): a
//! workgroup reads one run of memory, its threads next to each other.

use glam::{Vec3, Vec4};
use rayon::prelude::*;

use super::device::Gpu;
use super::kernels::{GROUP, Kernels, PAGE};
use super::recorder::{Groups, Recorder};
use crate::error::Result;
use crate::raster::{DensityScores, DensityStatistics, TrainState};
use crate::splats::{Splats, sh_coefficients};

/// Planes before those of the spherical harmonics: mean and opacity, rotation, scales.
pub(super) const GEOMETRY_PLANES: usize = 3;
const LANES: usize = GROUP as usize;

/// See the struct `Page` of common.wgsl.
#[derive(Debug, Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C)]
struct PageUniform {
    base: u32,
    count: u32,
    planes: u32,
    unused: u32,
}

/// The buffers of up to [`PAGE`] splats.
#[derive(Debug)]
pub(super) struct Page {
    pub(super) uniform: wgpu::Buffer,
    pub(super) parameters: wgpu::Buffer,
    /// The planes of the first moments, then those of the second. These and the two after them only training needs: next to
    /// nothing before, see [`SceneBuffers::fit_training`].
    pub(super) moments: wgpu::Buffer,
    /// One vec4 of bits per splat: gradient, error, number of steps visible, radius.
    pub(super) statistics: wgpu::Buffer,
    /// Two words per splat, for the host: see scores.wgsl.
    scores: wgpu::Buffer,
    pub(super) count: u32,
    capacity: u32,
}

/// All pages.
#[derive(Debug, Default)]
pub(super) struct SceneBuffers {
    pub(super) pages: Vec<Page>,
    pub(super) len: u32,
    pub(super) sh_degree: u32,
    pub(super) antialiased: bool,
    /// Whether there are moments and statistics. Before, all of them are zero.
    trained: bool,
}

/// vec4 planes per splat of a scene of this degree.
pub(super) fn planes(sh_degree: u32) -> usize {
    GEOMETRY_PLANES + (sh_coefficients(sh_degree) * 3).div_ceil(4)
}

/// Numbers of a page in device order; `planes` per splat in all, of which this writes those from `first` on.
fn pack(splats: &Splats, range: std::ops::Range<usize>, planes: usize, first: usize, out: &mut [f32]) {
    let stride = sh_coefficients(splats.sh_degree) * 3;
    for (i, splat) in range.enumerate() {
        let at = |plane: usize| (((i / LANES) * planes + first + plane) * LANES + i % LANES) * 4;
        splats.means[splat].extend(splats.opacities[splat]).write_to_slice(&mut out[at(0)..]);
        splats.rotations[splat].write_to_slice(&mut out[at(1)..]);
        splats.log_scales[splat].write_to_slice(&mut out[at(2)..]);
        for (k, four) in splats.sh[splat * stride..(splat + 1) * stride].chunks(4).enumerate() {
            let plane = at(GEOMETRY_PLANES + k);
            out[plane..plane + four.len()].copy_from_slice(four);
        }
    }
}

/// The inverse of [`pack`]: appends `count` splats.
pub(super) fn unpack(data: &[f32], count: usize, planes: usize, first: usize, splats: &mut Splats) {
    let stride = sh_coefficients(splats.sh_degree) * 3;
    for i in 0..count {
        let at = |plane: usize| (((i / LANES) * planes + first + plane) * LANES + i % LANES) * 4;
        let four = |plane: usize| Vec4::from_slice(&data[at(plane)..]);
        splats.means.push(four(0).truncate());
        splats.opacities.push(four(0).w);
        splats.rotations.push(four(1));
        splats.log_scales.push(four(2).truncate());
        for start in (0..stride).step_by(4) {
            let plane = at(GEOMETRY_PLANES + start / 4);
            splats.sh.extend_from_slice(&data[plane..plane + 4.min(stride - start)]);
        }
    }
}

impl Page {
    fn new(gpu: &Gpu, capacity: u32, planes: usize, trained: bool) -> Result<Self> {
        let plane_bytes = u64::from(capacity) * 16;
        let [moments, statistics, scores] =
            Self::training_buffers(gpu, if trained { capacity } else { 0 }, planes)?;
        Ok(Self {
            uniform: gpu.uniform("page", &PageUniform { base: 0, count: 0, planes: 0, unused: 0 })?,
            parameters: gpu.buffer("parameters of the splats", plane_bytes * planes as u64)?,
            moments,
            statistics,
            scores,
            count: 0,
            capacity,
        })
    }

    /// Moments, statistics and scores of so many splats, all zero.
    fn training_buffers(gpu: &Gpu, capacity: u32, planes: usize) -> Result<[wgpu::Buffer; 3]> {
        let plane_bytes = u64::from(capacity) * 16;
        Ok([
            gpu.buffer("moments of the splats", plane_bytes * 2 * planes as u64)?,
            gpu.buffer("statistics of the splats", plane_bytes)?,
            gpu.buffer("scores of the splats", u64::from(capacity) * 8)?,
        ])
    }

    /// Numbers of all its splats, in a layout with so many planes.
    fn values(&self, planes: usize) -> usize {
        (self.count as usize).next_multiple_of(LANES) * planes * 4
    }

    /// Bytes of all its buffers.
    #[cfg(test)]
    pub(super) fn bytes(&self) -> u64 {
        let Self { uniform, parameters, moments, statistics, scores, .. } = self;
        [uniform, parameters, moments, statistics, scores].map(wgpu::Buffer::size).iter().sum()
    }
}

impl SceneBuffers {
    /// vec4 planes per splat.
    pub(super) fn planes(&self) -> usize {
        planes(self.sh_degree)
    }

    /// Makes room for `len` splats; those that are new are zero. Buffers may be replaced.
    ///
    /// # Errors
    /// [`crate::ErrorKind::Gpu`] if the memory is full.
    pub(super) fn resize(&mut self, gpu: &Gpu, recorder: &mut Recorder, len: u32) -> Result<()> {
        let planes = self.planes();
        for number in 0..len.div_ceil(PAGE) {
            let count = (len - number * PAGE).min(PAGE);
            if let Some(page) = self.pages.get_mut(number as usize) {
                if page.capacity < count {
                    // Half as much again, so that a scene that grows in small steps is not copied in each.
                    let capacity = (count + count / 2).next_multiple_of(GROUP).min(PAGE);
                    let mut larger = Page::new(gpu, capacity, planes, self.trained)?;
                    let encoder = recorder.encoder(gpu);
                    for (from, to) in [
                        (&page.parameters, &larger.parameters),
                        (&page.moments, &larger.moments),
                        (&page.statistics, &larger.statistics),
                    ] {
                        encoder.copy_buffer_to_buffer(from, 0, to, 0, from.size());
                    }
                    std::mem::swap(page, &mut larger);
                    recorder.submit(gpu);
                    recorder.forget_buffers();
                }
            } else {
                let capacity = if number == 0 { count.next_multiple_of(GROUP) } else { PAGE };
                self.pages.push(Page::new(gpu, capacity, planes, self.trained)?);
            }
            let page = &mut self.pages[number as usize]; // there since the lines above
            page.count = count;
            let uniform = PageUniform { base: number * PAGE, count, planes: planes as u32, unused: 0 };
            gpu.queue.write_buffer(&page.uniform, 0, bytemuck::bytes_of(&uniform));
        }
        self.len = len;
        gpu.check()
    }

    /// Makes the buffers that only training needs, unless they are there: who only renders does not hold them.
    ///
    /// # Errors
    /// [`crate::ErrorKind::Gpu`] if the memory is full or the device cannot bind that much.
    pub(super) fn fit_training(&mut self, gpu: &Gpu, recorder: &mut Recorder) -> Result<()> {
        if self.trained {
            return Ok(());
        }
        let planes = self.planes();
        for page in &mut self.pages {
            [page.moments, page.statistics, page.scores] =
                Page::training_buffers(gpu, page.capacity, planes)?;
        }
        self.trained = true;
        recorder.forget_buffers();
        Ok(())
    }

    /// The scene of these splats, with nothing trained or gathered yet.
    ///
    /// # Errors
    /// [`crate::ErrorKind::Gpu`] if the memory is full.
    pub(super) fn load_splats(gpu: &Gpu, recorder: &mut Recorder, splats: &Splats) -> Result<Self> {
        let (sh_degree, antialiased) = (splats.sh_degree, splats.antialiased);
        let mut scene = Self { sh_degree, antialiased, ..Self::default() };
        scene.resize(gpu, recorder, splats.len() as u32)?;
        let planes = scene.planes();
        let mut data = Vec::new();
        for (range, page) in scene.ranges() {
            data.clear();
            data.resize(page.values(planes), 0.0);
            pack(splats, range, planes, 0, &mut data);
            gpu.queue.write_buffer(&page.parameters, 0, bytemuck::cast_slice(&data));
            // Page by page, so that what is written is never there twice as a whole.
            recorder.finish(gpu)?;
        }
        gpu.check()?;
        Ok(scene)
    }

    /// The pages, with the numbers of their splats.
    fn ranges(&self) -> impl Iterator<Item = (std::ops::Range<usize>, &Page)> {
        let starts = (0usize..).step_by(PAGE as usize);
        starts.zip(&self.pages).map(|(start, page)| (start..start + page.count as usize, page))
    }

    /// The scene of `state`, whose parts belong together.
    ///
    /// # Errors
    /// [`crate::ErrorKind::Gpu`] if the memory is full.
    pub(super) fn load(gpu: &Gpu, recorder: &mut Recorder, state: &TrainState) -> Result<Self> {
        let mut scene = Self::load_splats(gpu, recorder, &state.splats)?;
        let gathered = &state.statistics;
        let has_moments = !state.first_moments.is_empty() || !state.second_moments.is_empty();
        let has_statistics = !gathered.gradient.is_empty();
        if !has_moments && !has_statistics {
            return Ok(scene);
        }
        scene.fit_training(gpu, recorder)?;
        let planes = scene.planes();
        let mut data = Vec::new();
        for (range, page) in scene.ranges() {
            if has_moments {
                data.clear();
                data.resize(page.values(planes * 2), 0.0);
                for (moments, first) in [(&state.first_moments, 0), (&state.second_moments, planes)] {
                    if !moments.is_empty() {
                        pack(moments, range.clone(), planes * 2, first, &mut data);
                    }
                }
                gpu.queue.write_buffer(&page.moments, 0, bytemuck::cast_slice(&data));
            }
            if has_statistics {
                let bits: Vec<[u32; 4]> = range
                    .map(|i| {
                        [
                            gathered.gradient[i].to_bits(),
                            gathered.error[i].to_bits(),
                            gathered.visible[i],
                            gathered.radius[i].to_bits(),
                        ]
                    })
                    .collect();
                gpu.queue.write_buffer(&page.statistics, 0, bytemuck::cast_slice(&bits));
            }
            recorder.finish(gpu)?;
        }
        gpu.check()?;
        Ok(scene)
    }

    fn empty_splats(&self) -> Splats {
        let mut splats = Splats::with_capacity(self.len as usize, self.sh_degree);
        splats.antialiased = self.antialiased;
        splats
    }

    /// Reads the parameters back.
    ///
    /// # Errors
    /// [`crate::ErrorKind::Gpu`] if the device fails.
    pub(super) fn splats(&self, gpu: &Gpu, recorder: &mut Recorder) -> Result<Splats> {
        let mut pages = Vec::with_capacity(self.pages.len());
        for page in &self.pages {
            let values = page.values(self.planes());
            pages.push((page.count as usize, recorder.read_as::<f32>(gpu, &page.parameters, values)?));
        }
        Ok(self.unpack_all(&pages, self.planes(), 0))
    }

    /// Reads the first and the second moments back.
    ///
    /// # Errors
    /// [`crate::ErrorKind::Gpu`] if the device fails.
    pub(super) fn moments(&self, gpu: &Gpu, recorder: &mut Recorder) -> Result<(Splats, Splats)> {
        if !self.trained {
            return Ok((self.zero_moments(), self.zero_moments()));
        }
        let planes = self.planes();
        let mut pages = Vec::with_capacity(self.pages.len());
        for page in &self.pages {
            let values = page.values(planes * 2);
            pages.push((page.count as usize, recorder.read_as::<f32>(gpu, &page.moments, values)?));
        }
        let [mut first, mut second] = [0, planes].map(|plane| self.unpack_all(&pages, planes * 2, plane));
        (first.antialiased, second.antialiased) = (false, false);
        Ok((first, second))
    }

    /// What moments are before training.
    fn zero_moments(&self) -> Splats {
        let len = self.len as usize;
        Splats {
            means: vec![Vec3::ZERO; len],
            log_scales: vec![Vec3::ZERO; len],
            rotations: vec![Vec4::ZERO; len],
            opacities: vec![0.0; len],
            sh_degree: self.sh_degree,
            sh: vec![0.0; len * sh_coefficients(self.sh_degree) * 3],
            antialiased: false,
        }
    }

    /// [`unpack`] of the numbers of splats and data of all pages, side by side.
    fn unpack_all(&self, pages: &[(usize, Vec<f32>)], planes: usize, first: usize) -> Splats {
        let unpacked: Vec<Splats> = pages
            .par_iter()
            .map(|(count, data)| {
                let mut splats = Splats::with_capacity(*count, self.sh_degree);
                unpack(data, *count, planes, first, &mut splats);
                splats
            })
            .collect();
        let mut all = self.empty_splats();
        for page in unpacked {
            all.means.extend(page.means);
            all.log_scales.extend(page.log_scales);
            all.rotations.extend(page.rotations);
            all.opacities.extend(page.opacities);
            all.sh.extend(page.sh);
        }
        all
    }

    /// Reads what density control decides by.
    ///
    /// # Errors
    /// [`crate::ErrorKind::Gpu`] if the device fails.
    pub(super) fn scores(
        &self,
        gpu: &Gpu,
        kernels: &Kernels,
        recorder: &mut Recorder,
    ) -> Result<DensityScores> {
        if !self.trained {
            let splats = self.splats(gpu, recorder)?;
            return Ok(DensityScores { error: vec![0.0; splats.len()], opacities: splats.opacities });
        }
        for Page { uniform, parameters, statistics, scores, count, .. } in &self.pages {
            let buffers = [uniform, parameters, statistics, scores];
            recorder.dispatch(gpu, &kernels.copy_scores, &buffers, Groups::Linear(count.div_ceil(GROUP)));
        }
        let mut all = DensityScores::default();
        for page in &self.pages {
            for [opacity, error] in recorder.read_as::<[f32; 2]>(gpu, &page.scores, page.count as usize)? {
                all.opacities.push(opacity);
                all.error.push(error);
            }
        }
        Ok(all)
    }

    /// Reads the gathered statistics back.
    ///
    /// # Errors
    /// [`crate::ErrorKind::Gpu`] if the device fails.
    pub(super) fn statistics(&self, gpu: &Gpu, recorder: &mut Recorder) -> Result<DensityStatistics> {
        if !self.trained {
            let (zero, none) = (vec![0.0; self.len as usize], vec![0; self.len as usize]);
            let (gradient, error, radius) = (zero.clone(), zero.clone(), zero);
            return Ok(DensityStatistics { gradient, error, visible: none, radius });
        }
        let mut gathered = DensityStatistics::default();
        for page in &self.pages {
            for [gradient, error, visible, radius] in
                recorder.read_as::<[u32; 4]>(gpu, &page.statistics, page.count as usize)?
            {
                gathered.gradient.push(f32::from_bits(gradient));
                gathered.error.push(f32::from_bits(error));
                gathered.visible.push(visible);
                gathered.radius.push(f32::from_bits(radius));
            }
        }
        Ok(gathered)
    }
}
