//! The splats on the device: parameters, moments and gathered statistics, in pages of 2^18 splats.
//!
//! A page grows by copying within the device until it is full; then there is another page, so that a large scene
//! needs no large buffer. Within a page 256 splats lie together, plane by plane (a plane is one vec4 per splat): a
//! workgroup reads one run of memory, its threads next to each other.

use glam::Vec4;
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
    /// The planes of the first moments, then those of the second.
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
    fn new(gpu: &Gpu, capacity: u32, planes: usize) -> Result<Self> {
        let plane_bytes = u64::from(capacity) * 16;
        Ok(Self {
            uniform: gpu.uniform("page", &PageUniform { base: 0, count: 0, planes: 0, unused: 0 })?,
            parameters: gpu.buffer("parameters of the splats", plane_bytes * planes as u64)?,
            moments: gpu.buffer("moments of the splats", plane_bytes * 2 * planes as u64)?,
            statistics: gpu.buffer("statistics of the splats", plane_bytes)?,
            scores: gpu.buffer("scores of the splats", u64::from(capacity) * 8)?,
            count: 0,
            capacity,
        })
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
                    let mut larger = Page::new(gpu, capacity, planes)?;
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
                self.pages.push(Page::new(gpu, capacity, planes)?);
            }
            let page = &mut self.pages[number as usize]; // there since the lines above
            page.count = count;
            let uniform = PageUniform { base: number * PAGE, count, planes: planes as u32, unused: 0 };
            gpu.queue.write_buffer(&page.uniform, 0, bytemuck::bytes_of(&uniform));
        }
        self.len = len;
        gpu.check()
    }

    /// Replaces the scene by that of `state`, whose parts belong together.
    ///
    /// # Errors
    /// [`crate::ErrorKind::Gpu`] if the memory is full.
    pub(super) fn load(gpu: &Gpu, recorder: &mut Recorder, state: &TrainState) -> Result<Self> {
        let splats = &state.splats;
        let gathered = &state.statistics;
        let mut scene =
            Self { pages: Vec::new(), len: 0, sh_degree: splats.sh_degree, antialiased: splats.antialiased };
        scene.resize(gpu, recorder, splats.len() as u32)?;
        let planes = scene.planes();
        let mut data = Vec::new();
        for (number, page) in scene.pages.iter().enumerate() {
            let start = number * PAGE as usize;
            let range = start..start + page.count as usize;
            let values = range.len().next_multiple_of(LANES) * planes * 4;
            data.clear();
            data.resize(values, 0.0);
            pack(splats, range.clone(), planes, 0, &mut data);
            gpu.queue.write_buffer(&page.parameters, 0, bytemuck::cast_slice(&data));
            if !state.first_moments.is_empty() || !state.second_moments.is_empty() {
                data.clear();
                data.resize(values * 2, 0.0);
                for (moments, first) in [(&state.first_moments, 0), (&state.second_moments, planes)] {
                    if !moments.is_empty() {
                        pack(moments, range.clone(), planes * 2, first, &mut data);
                    }
                }
                gpu.queue.write_buffer(&page.moments, 0, bytemuck::cast_slice(&data));
            }
            if !gathered.gradient.is_empty() {
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
            // Page by page, so that what is written is never there twice as a whole.
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
            let count = page.count as usize;
            let values = count.next_multiple_of(LANES) * self.planes() * 4;
            pages.push((count, recorder.read_as::<f32>(gpu, &page.parameters, values)?));
        }
        Ok(self.unpack_all(&pages, self.planes(), 0))
    }

    /// Reads the first and the second moments back.
    ///
    /// # Errors
    /// [`crate::ErrorKind::Gpu`] if the device fails.
    pub(super) fn moments(&self, gpu: &Gpu, recorder: &mut Recorder) -> Result<(Splats, Splats)> {
        let planes = self.planes();
        let mut pages = Vec::with_capacity(self.pages.len());
        for page in &self.pages {
            let count = page.count as usize;
            let values = count.next_multiple_of(LANES) * planes * 8;
            pages.push((count, recorder.read_as::<f32>(gpu, &page.moments, values)?));
        }
        let [mut first, mut second] = [0, planes].map(|plane| self.unpack_all(&pages, planes * 2, plane));
        (first.antialiased, second.antialiased) = (false, false);
        Ok((first, second))
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
