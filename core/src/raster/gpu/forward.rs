//! Records the forward passes: project, intersect, sort, rasterise.

use super::device::Gpu;
use super::kernels::{GROUP, Kernel, Kernels};
use super::recorder::{Groups, Recorder};
use super::scene::SceneBuffers;
use super::view_buffers::{FixedBuffers, Indirect, Pairs, SplatBuffers, ViewBuffers, ViewUniform};
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
        let uniform = ViewUniform::new(view, self.scene.len, sh_degree, intersections.room);
        self.gpu.queue.write_buffer(&fixed.view, 0, bytemuck::bytes_of(&uniform));
        for page in &self.scene.pages {
            self.dispatch(
                &self.kernels.project,
                &[
                    (0, &fixed.view),
                    (1, &page.uniform),
                    (2, &page.parameters),
                    (3, &splats.projected),
                    (4, &splats.tiles),
                    (5, &splats.block_sums),
                ],
                Groups::Linear(page.count.div_ceil(GROUP)),
            );
        }
        self.dispatch(
            &self.kernels.count_visible,
            &[(0, &fixed.view), (1, &splats.block_sums), (2, &fixed.counts), (3, &fixed.dispatches)],
            Groups::Linear(1),
        );
    }

    /// Visible splats, front to back, to pairs of tile and slot.
    pub(super) fn intersect(&mut self) {
        let ViewBuffers { fixed, splats, intersections, .. } = self.work;
        self.dispatch(
            &self.kernels.compact,
            &[
                (0, &fixed.view),
                (1, &splats.projected),
                (2, &splats.tiles),
                (3, &splats.block_sums),
                (4, &splats.order[0].keys),
                (5, &splats.order[0].values),
            ],
            Groups::Linear(self.scene.len.div_ceil(GROUP)),
        );
        for pass in 0..4 {
            let pairs = (&splats.order[pass % 2], &splats.order[1 - pass % 2]);
            let digit = &fixed.depth_digits[pass];
            self.sort_digit(fixed, digit, pairs, &splats.histogram, Indirect::SortVisible);
        }
        let SplatBuffers { order: [order, _], tiles, block_sums, offsets, .. } = splats;
        self.dispatch(
            &self.kernels.sum_tiles,
            &[(0, &fixed.counts), (1, &order.values), (2, tiles), (3, block_sums)],
            self.indirect(Indirect::Visible),
        );
        self.dispatch(
            &self.kernels.count_intersections,
            &[(0, &fixed.view), (1, block_sums), (2, &fixed.counts), (3, &fixed.dispatches)],
            Groups::Linear(1),
        );
        self.dispatch(
            &self.kernels.write_offsets,
            &[(0, &fixed.counts), (1, &order.values), (2, tiles), (3, block_sums), (4, offsets)],
            self.indirect(Indirect::Visible),
        );
        self.dispatch(
            &self.kernels.emit,
            &[
                (0, &fixed.view),
                (1, &fixed.counts),
                (2, &splats.projected),
                (3, &order.values),
                (4, offsets),
                (5, &intersections.tiles[0].keys),
                (6, &intersections.owners),
            ],
            self.indirect(Indirect::Intersections),
        );
    }

    /// Pairs by tile; they are by depth already, and the sort is stable.
    pub(super) fn sort(&mut self, view: &View) {
        let ViewBuffers { fixed, intersections, pixels, .. } = self.work;
        for pass in 0..tile_digits(view) {
            let pairs = (&intersections.tiles[pass % 2], &intersections.tiles[1 - pass % 2]);
            let digit = &fixed.tile_digits[pass];
            self.sort_digit(fixed, digit, pairs, &intersections.histogram, Indirect::SortIntersections);
        }
        let sorted = &intersections.tiles[sorted_tiles(view)];
        self.recorder.encoder(self.gpu).clear_buffer(&pixels.ranges, 0, None);
        self.dispatch(
            &self.kernels.find_ranges,
            &[
                (0, &fixed.counts),
                (1, &sorted.keys),
                (2, &sorted.values),
                (3, &intersections.owners),
                (4, &pixels.ranges),
                (5, &intersections.sorted),
            ],
            self.indirect(Indirect::Intersections),
        );
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
        let totals = &fixed.digit_totals;
        self.dispatch(
            &self.kernels.count_digits,
            &[(0, digit), (1, &fixed.counts), (2, &from.keys), (6, histogram)],
            self.indirect(blocks),
        );
        self.dispatch(
            &self.kernels.scan_digits,
            &[(0, digit), (1, &fixed.counts), (6, histogram), (7, totals)],
            Groups::Grid(256, 1),
        );
        self.dispatch(
            &self.kernels.move_pairs,
            &[
                (0, digit),
                (1, &fixed.counts),
                (2, &from.keys),
                (3, &from.values),
                (4, &to.keys),
                (5, &to.values),
                (6, histogram),
                (7, totals),
            ],
            self.indirect(blocks),
        );
    }

    /// Blends the picture.
    pub(super) fn rasterise(&mut self, view: &View, background: [f32; 3]) {
        let ViewBuffers { fixed, splats, intersections, pixels } = self.work;
        let [r, g, b] = background;
        self.gpu.queue.write_buffer(&fixed.background, 0, bytemuck::bytes_of(&[r, g, b, 0.0]));
        let (x, y) = tiles(view);
        self.dispatch(
            &self.kernels.rasterise,
            &[
                (0, &fixed.view),
                (1, &fixed.background),
                (2, &splats.projected),
                (3, &intersections.sorted),
                (4, &pixels.ranges),
                (5, &pixels.picture),
                (6, &pixels.pixels),
            ],
            Groups::Grid(x, y),
        );
    }

    /// Records one pass. `bindings` are those that the entry point uses.
    pub(super) fn dispatch(
        &mut self,
        kernel: &Kernel,
        bindings: &[(u32, &wgpu::Buffer)],
        groups: Groups<'_>,
    ) {
        self.recorder.dispatch(self.gpu, kernel, bindings, groups);
    }

    /// As many workgroups as the device has counted.
    pub(super) fn indirect(&self, which: Indirect) -> Groups<'a> {
        Groups::Indirect(&self.work.fixed.dispatches, which as u64)
    }
}
