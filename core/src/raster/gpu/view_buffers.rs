//! Buffers that hold one view's intermediate results. Their contents do not outlive a step, so they are replaced by
//! larger ones without copying. (Those for its gradients are made when one is asked for: `gradient_buffers.rs`.)

use glam::{DVec3, Vec4, dvec4};

use super::device::Gpu;
use super::gradient_buffers::{LossBuffers, SlotBuffer};
use super::kernels::{GROUP, PAGE, SORT_BLOCK};
use super::recorder::Recorder;
use super::scene::SceneBuffers;
use crate::error::Result;
use crate::raster::{TILE, View};

/// Positions in the buffer of counts; see common.wgsl.
pub(super) const VISIBLE: usize = 0;
pub(super) const NEEDED: usize = 1;
pub(super) const INTERSECTIONS: usize = 2;
pub(super) const POISONED: usize = 3;

/// Which indirect dispatch; see counts.wgsl.
#[derive(Debug, Clone, Copy)]
pub(super) enum Indirect {
    /// Blocks of 256 visible splats.
    Visible = 0,
    /// Sort blocks of visible splats.
    SortVisible = 1,
    /// Blocks of 256 intersections.
    Intersections = 2,
    /// Sort blocks of intersections.
    SortIntersections = 3,
    /// Blocks of 256 splats of a page; none once poisoned.
    Page = 4,
    /// One; none once poisoned.
    One = 5,
}
const INDIRECTS: u64 = 6;

/// See the struct `View` of common.wgsl.
#[derive(Debug, Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C)]
pub(super) struct ViewUniform {
    rows: [Vec4; 3],
    focal: Vec4,
    limit: Vec4,
    position: Vec4,
    size: [u32; 4],
    scene: [u32; 4],
}

impl ViewUniform {
    pub(super) fn new(view: &View, of: &SceneBuffers, sh_degree: u32, room: u32) -> Self {
        let centre: [f64; 3] = view.centre().into();
        let limit = |side: u32, focal: f64| 1.3 * 0.5 * f64::from(side) / focal;
        Self {
            rows: [0, 1, 2].map(|i| view.rotation.row(i).extend(view.translation[i]).as_vec4()),
            focal: dvec4(view.fx, view.fy, view.cx, view.cy).as_vec4(),
            limit: dvec4(limit(view.width, view.fx), limit(view.height, view.fy), 0.0, 0.0).as_vec4(),
            position: DVec3::from(centre).extend(0.0).as_vec4(),
            size: [view.width, view.height, view.width.div_ceil(TILE), view.height.div_ceil(TILE)],
            scene: [of.len, sh_degree, room, u32::from(of.antialiased)],
        }
    }
}

/// See the struct `Digit` of radix.wgsl.
#[derive(Debug, Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C)]
struct DigitUniform {
    shift: u32,
    count: u32,
    number: u32,
    unused: u32,
}

/// A pair of key and value buffers.
#[derive(Debug)]
pub(super) struct Pairs {
    pub(super) keys: wgpu::Buffer,
    pub(super) values: wgpu::Buffer,
}

impl Pairs {
    pub(super) fn new(gpu: &Gpu, what: &str, count: u64) -> Result<Self> {
        Ok(Self { keys: gpu.buffer(what, count * 4)?, values: gpu.buffer(what, count * 4)? })
    }
}

/// What every view needs, whatever its size.
#[derive(Debug)]
pub(super) struct FixedBuffers {
    pub(super) view: wgpu::Buffer,
    pub(super) background: wgpu::Buffer,
    pub(super) counts: wgpu::Buffer,
    pub(super) dispatches: wgpu::Buffer,
    pub(super) digit_totals: wgpu::Buffer,
    /// Uniforms of the passes that sort by depth, and by tile.
    pub(super) depth_digits: Vec<wgpu::Buffer>,
    pub(super) tile_digits: Vec<wgpu::Buffer>,
}

impl FixedBuffers {
    pub(super) fn new(gpu: &Gpu) -> Result<Self> {
        let digits = |count: usize, number: u32| {
            (0..4)
                .map(|pass| {
                    let number = if pass == 0 { number } else { 0 };
                    gpu.uniform(
                        "digit",
                        &DigitUniform { shift: 8 * pass, count: count as u32, number, unused: 0 },
                    )
                })
                .collect::<Result<Vec<_>>>()
        };
        let uniform = wgpu::BufferUsages::UNIFORM;
        let indirect = wgpu::BufferUsages::INDIRECT | wgpu::BufferUsages::STORAGE;
        Ok(Self {
            view: gpu.buffer_for("view", size_of::<ViewUniform>() as u64, uniform)?,
            background: gpu.buffer_for("background", 16, uniform)?,
            counts: gpu.buffer("counts", 16)?,
            dispatches: gpu.buffer_for("dispatches", INDIRECTS * 12, indirect)?,
            digit_totals: gpu.buffer("digit totals", 256 * 4)?,
            depth_digits: digits(VISIBLE, 0)?,
            tile_digits: digits(INTERSECTIONS, 1)?,
        })
    }
}

/// As many as there are splats.
#[derive(Debug)]
pub(super) struct SplatBuffers {
    pub(super) projected: wgpu::Buffer,
    pub(super) tiles: wgpu::Buffer,
    pub(super) block_sums: wgpu::Buffer,
    /// Depths and numbers of the visible splats; four passes end where they began.
    pub(super) order: [Pairs; 2],
    pub(super) offsets: wgpu::Buffer,
    pub(super) histogram: wgpu::Buffer,
    pub(super) room: u32,
}

impl SplatBuffers {
    fn new(gpu: &Gpu, room: u32) -> Result<Self> {
        let n = u64::from(room);
        Ok(Self {
            projected: gpu.buffer("projected splats", n * 48)?,
            tiles: gpu.buffer("tile counts", n * 8)?,
            block_sums: gpu.buffer("sums", n.div_ceil(u64::from(GROUP)) * 4)?,
            order: [Pairs::new(gpu, "depths", n)?, Pairs::new(gpu, "depths", n)?],
            offsets: gpu.buffer("offsets", n * 4)?,
            histogram: histogram(gpu, n)?,
            room,
        })
    }
}

/// As many as there are intersections.
#[derive(Debug)]
pub(super) struct IntersectionBuffers {
    /// Tile (with the blocks reached in it) and slot; the number of passes decides which one ends up sorted.
    pub(super) tiles: [Pairs; 2],
    pub(super) owners: wgpu::Buffer,
    /// Splat and blocks, sorted.
    pub(super) sorted: wgpu::Buffer,
    pub(super) histogram: wgpu::Buffer,
    pub(super) room: u32,
}

impl IntersectionBuffers {
    pub(super) fn new(gpu: &Gpu, room: u32) -> Result<Self> {
        let n = u64::from(room);
        let what = "pairs of splat and tile";
        Ok(Self {
            tiles: [Pairs::new(gpu, what, n)?, Pairs::new(gpu, what, n)?],
            owners: gpu.buffer(what, n * 4)?,
            sorted: gpu.buffer(what, n * 8)?,
            histogram: histogram(gpu, n)?,
            room,
        })
    }

    /// Most intersections for which the device can bind the largest of the buffers, `sorted`.
    pub(super) fn limit(gpu: &Gpu) -> u32 {
        // Two at a time: buffers take a multiple of 16 bytes.
        (gpu.max_binding / 16 * 2).min(1 << 30) as u32
    }
}

fn histogram(gpu: &Gpu, pairs: u64) -> Result<wgpu::Buffer> {
    gpu.buffer("digit counts", pairs.div_ceil(u64::from(SORT_BLOCK)) * 256 * 4)
}

/// As many as there are pixels or tiles.
#[derive(Debug)]
pub(super) struct PixelBuffers {
    pub(super) ranges: wgpu::Buffer,
    pub(super) picture: wgpu::Buffer,
    pub(super) pixels: wgpu::Buffer,
    pub(super) room: u64,
    pub(super) tile_room: u64,
}

impl PixelBuffers {
    fn new(gpu: &Gpu, room: u64, tile_room: u64) -> Result<Self> {
        Ok(Self {
            ranges: gpu.buffer("tile ranges", (tile_room + 1) * 8)?,
            picture: gpu.buffer("pixels of the picture", room * 16)?,
            pixels: gpu.buffer("pixels of the picture", room * 8)?,
            room,
            tile_room,
        })
    }
}

/// All of the above.
#[derive(Debug)]
pub(super) struct ViewBuffers {
    pub(super) fixed: FixedBuffers,
    pub(super) splats: SplatBuffers,
    pub(super) intersections: IntersectionBuffers,
    pub(super) pixels: PixelBuffers,
    /// What only training needs; next to nothing before.
    pub(super) loss: LossBuffers,
    pub(super) slots: SlotBuffer,
}

impl ViewBuffers {
    /// `room`: for how many intersections at first.
    pub(super) fn new(gpu: &Gpu, room: u32) -> Result<Self> {
        Ok(Self {
            fixed: FixedBuffers::new(gpu)?,
            splats: SplatBuffers::new(gpu, GROUP)?,
            intersections: IntersectionBuffers::new(gpu, room.min(IntersectionBuffers::limit(gpu)))?,
            pixels: PixelBuffers::new(gpu, 1, 1)?,
            loss: LossBuffers::new(gpu, 1, 1)?,
            slots: SlotBuffer::new(gpu, 0)?,
        })
    }

    /// Makes room for a view of `splats` splats, to be rendered.
    ///
    /// # Errors
    /// [`crate::ErrorKind::Gpu`] if the memory is full or the device cannot bind that much.
    pub(super) fn fit(&mut self, gpu: &Gpu, recorder: &mut Recorder, view: &View, splats: u32) -> Result<()> {
        if splats > self.splats.room {
            // A quarter more, so that a scene that grows in small steps does not come here every time.
            let room = (splats + splats / 4).next_multiple_of(GROUP).min(splats.next_multiple_of(PAGE));
            self.splats = SplatBuffers::new(gpu, room)?;
            recorder.forget_buffers();
        }
        let pixels = u64::from(view.width) * u64::from(view.height);
        let tiles = u64::from(view.width.div_ceil(TILE)) * u64::from(view.height.div_ceil(TILE));
        if pixels > self.pixels.room || tiles > self.pixels.tile_room {
            self.pixels =
                PixelBuffers::new(gpu, pixels.max(self.pixels.room), tiles.max(self.pixels.tile_room))?;
            recorder.forget_buffers();
        }
        Ok(())
    }
}
