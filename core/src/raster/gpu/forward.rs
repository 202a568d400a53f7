//! Records the forward passes: project, intersect, sort, rasterise.

use super::device::Gpu;
use super::kernels::{GROUP, Kernel, Kernels};
use super::recorder::{Groups, Recorder};
use super::scene::SceneBuffers;
use super::view_buffers::{
    FixedBuffers, Indirect, IntersectionBuffers, Pairs, PixelBuffers, SplatBuffers, ViewBuffers, ViewUniform,
};
use crate::raster::{TILE, View};

/// What all recording functions work with.
pub(super) struct Passes<'a> {
    pub(super) gpu: &'a Gpu,
    pub(super) kernels: &'a Kernels,
    pub(super) recorder: &'a mut Recorder,
    pub(super) scene: &'a SceneBuffers,
    pub(super) work: &'a ViewBuffers,
}

/// Number of tiles along both sides.
pub(super) fn tiles(view: &View) -> (u32, u32) {
    (view.width.div_ceil(TILE), view.height.div_ceil(TILE))
}

/// 8-bit digits of the largest tile number, the one behind all tiles included.
fn tile_digits(view: &View) -> usize {
    let (x, y) = tiles(view);
    (32 - (x * y).leading_zeros()).div_ceil(8) as usize
}

/// Which of the two buffers of pairs holds the sorted tiles.
pub(super) fn sorted_tiles(view: &View) -> usize {
    tile_digits(view) % 2
}

impl<'a> Passes<'a> {
    /// Splats to projected splats; counts the visible ones.
    pub(super) fn project(&mut self, view: &View, sh_degree: u32) {
        let ViewBuffers { fixed, splats, intersections, .. } = self.work;
        let uniform = ViewUniform::new(view, self.scene, sh_degree, intersections.room);
        self.gpu.queue.write_buffer(&fixed.view, 0, bytemuck::bytes_of(&uniform));
        let SplatBuffers { projected, tiles, block_sums, .. } = splats;
        for page in &self.scene.pages {
            let buffers = [&fixed.view, &page.uniform, &page.parameters, projected, tiles, block_sums];
            self.dispatch(&self.kernels.project, &buffers, Groups::Linear(page.count.div_ceil(GROUP)));
        }
        let buffers = [&fixed.view, block_sums, &fixed.counts, &fixed.dispatches];
        self.dispatch(&self.kernels.count_visible, &buffers, Groups::Linear(1));
    }

    /// Visible splats, front to back, to pairs of tile and slot.
    pub(super) fn intersect(&mut self) {
        let ViewBuffers { fixed, splats, intersections, .. } = self.work;
        let FixedBuffers { view, counts, .. } = fixed;
        let SplatBuffers { projected, tiles, block_sums, offsets, order: [order, _], .. } = splats;
        let kernels = self.kernels;
        let buffers = [view, projected, tiles, block_sums, &order.keys, &order.values];
        self.dispatch(&kernels.compact, &buffers, Groups::Linear(self.scene.len.div_ceil(GROUP)));
        for pass in 0..4 {
            let pairs = (&splats.order[pass % 2], &splats.order[1 - pass % 2]);
            let digit = &fixed.depth_digits[pass];
            self.sort_digit(fixed, digit, pairs, &splats.histogram, Indirect::SortVisible);
        }
        let visible = self.indirect(Indirect::Visible);
        self.dispatch(&kernels.sum_tiles, &[counts, &order.values, tiles, block_sums], visible);
        let buffers = [view, block_sums, counts, &fixed.dispatches];
        self.dispatch(&kernels.count_intersections, &buffers, Groups::Linear(1));
        let buffers = [counts, &order.values, tiles, block_sums, offsets];
        self.dispatch(&kernels.write_offsets, &buffers, visible);
        let (keys, owners) = (&intersections.tiles[0].keys, &intersections.owners);
        let buffers = [view, counts, projected, &order.values, offsets, keys, owners];
        self.dispatch(&kernels.emit, &buffers, self.indirect(Indirect::Intersections));
    }

    /// Pairs by tile; they are by depth already, and the sort is stable.
    pub(super) fn sort(&mut self, view: &View) {
        let ViewBuffers { fixed, intersections, pixels, .. } = self.work;
        for pass in 0..tile_digits(view) {
            let pairs = (&intersections.tiles[pass % 2], &intersections.tiles[1 - pass % 2]);
            let digit = &fixed.tile_digits[pass];
            self.sort_digit(fixed, digit, pairs, &intersections.histogram, Indirect::SortIntersections);
        }
        let Pairs { keys, values } = &intersections.tiles[sorted_tiles(view)];
        self.recorder.encoder(self.gpu).clear_buffer(&pixels.ranges, 0, None);
        let IntersectionBuffers { owners, sorted, .. } = intersections;
        let buffers = [&fixed.counts, keys, values, owners, &pixels.ranges, sorted];
        self.dispatch(&self.kernels.find_ranges, &buffers, self.indirect(Indirect::Intersections));
    }

    /// One digit of the radix sort, from one pair of buffers to the other.
    pub(super) fn sort_digit(
        &mut self,
        fixed: &FixedBuffers,
        digit: &wgpu::Buffer,
        (from, to): (&Pairs, &Pairs),
        histogram: &wgpu::Buffer,
        blocks: Indirect,
    ) {
        let FixedBuffers { counts, digit_totals: totals, .. } = fixed;
        let (kernels, blocks) = (self.kernels, self.indirect(blocks));
        self.dispatch(&kernels.count_digits, &[digit, counts, histogram, &from.keys], blocks);
        self.dispatch(&kernels.scan_digits, &[digit, counts, histogram, totals], Groups::Grid(256, 1));
        let buffers = [digit, counts, histogram, totals, &from.keys, &from.values, &to.keys, &to.values];
        self.dispatch(&kernels.move_pairs, &buffers, blocks);
    }

    /// Blends the picture.
    pub(super) fn rasterise(&mut self, view: &View, background: [f32; 3]) {
        let ViewBuffers { fixed, splats, intersections, pixels, .. } = self.work;
        let [r, g, b] = background;
        self.gpu.queue.write_buffer(&fixed.background, 0, bytemuck::bytes_of(&[r, g, b, 0.0]));
        let PixelBuffers { ranges, picture, pixels, .. } = pixels;
        let sorted = &intersections.sorted;
        let buffers = [&fixed.view, &fixed.background, &splats.projected, sorted, ranges, picture, pixels];
        let (x, y) = tiles(view);
        self.dispatch(&self.kernels.rasterise, &buffers, Groups::Grid(x, y));
    }

    /// Records one pass. `buffers` are those that the entry point uses, in the order of their bindings.
    pub(super) fn dispatch(&mut self, kernel: &Kernel, buffers: &[&wgpu::Buffer], groups: Groups<'_>) {
        self.recorder.dispatch(self.gpu, kernel, buffers, groups);
    }

    /// As many workgroups as the device has counted.
    pub(super) fn indirect(&self, which: Indirect) -> Groups<'a> {
        Groups::Indirect(&self.work.fixed.dispatches, which as u64)
    }
}
