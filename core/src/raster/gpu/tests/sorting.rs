//! Prefix sums and the radix sort, each alone.

use super::rasteriser;
use crate::random::Random;
use crate::raster::gpu::kernels::SORT_BLOCK;
use crate::raster::gpu::rasteriser::GpuRasteriser;
use crate::raster::gpu::recorder::Groups;
use crate::raster::gpu::view_buffers::{INTERSECTIONS, Indirect, NEEDED, POISONED, VISIBLE};

impl GpuRasteriser {
    fn set_count(&self, which: usize, count: u32, dispatch: Indirect, groups: u32) {
        let fixed = &self.work.fixed;
        self.gpu.queue.write_buffer(&fixed.counts, 4 * which as u64, bytemuck::bytes_of(&count));
        let triple = [groups, 1u32, 1];
        self.gpu.queue.write_buffer(&fixed.dispatches, 12 * dispatch as u64, bytemuck::bytes_of(&triple));
    }
}

#[test]
fn pairs_are_sorted_stably() {
    let Some(mut r) = rasteriser(20_000) else { return };
    let mut random = Random::new(1);
    for count in [0usize, 1, 255, 256, 257, 2047, 2048, 2049, 20_000] {
        for distinct in [1u64, 3, 300, 1 << 32] {
            let keys: Vec<u32> =
                (0..count).map(|_| (random.next_u64() % distinct * ((1 << 32) / distinct)) as u32).collect();
            let blocks = (count as u32).div_ceil(SORT_BLOCK);
            r.set_count(INTERSECTIONS, count as u32, Indirect::SortIntersections, blocks);
            r.gpu.queue.write_buffer(&r.work.intersections.tiles[0].keys, 0, bytemuck::cast_slice(&keys));
            let mut passes = r.passes();
            let work = passes.work;
            for digit in 0..4 {
                let pairs = (&work.intersections.tiles[digit % 2], &work.intersections.tiles[1 - digit % 2]);
                let uniform = &work.fixed.tile_digits[digit];
                let histogram = &work.intersections.histogram;
                passes.sort_digit(&work.fixed, uniform, pairs, histogram, Indirect::SortIntersections);
            }
            let sorted = &r.work.intersections.tiles[0];
            let values: Vec<u32> = r.recorder.read_as(&r.gpu, &sorted.values, count).unwrap();
            let sorted_keys: Vec<u32> = r.recorder.read_as(&r.gpu, &sorted.keys, count).unwrap();
            let mut expected: Vec<u32> = (0..count as u32).collect();
            expected.sort_by_key(|&i| keys[i as usize]); // stable
            assert!(values == expected, "{count} pairs, {distinct} distinct keys");
            assert!(sorted_keys.iter().zip(&expected).all(|(&key, &i)| key == keys[i as usize]));
        }
    }
}

/// Runs one of the two kernels that turn sums of blocks into offsets; returns offsets and counts.
fn scan(r: &mut GpuRasteriser, sums: &[u32], room: u32, visible: bool) -> (Vec<u32>, Vec<u32>) {
    let blocks = sums.len() as u32;
    let buffer = r.gpu.buffer("sums", u64::from(blocks) * 4).unwrap();
    r.gpu.queue.write_buffer(&buffer, 0, bytemuck::cast_slice(sums));
    r.gpu.queue.write_buffer(&r.work.fixed.counts, 0, &[0; 16]);
    if !visible {
        r.set_count(VISIBLE, blocks * 256, Indirect::Visible, blocks);
    }
    // Only the last vector of the view is used: number of splats, -, room, -.
    let scene = [blocks * 256, 0, room, 0u32];
    let fixed = &r.work.fixed;
    r.gpu.queue.write_buffer(&fixed.view, fixed.view.size() - 16, bytemuck::bytes_of(&scene));
    let kernel = if visible { &r.kernels.count_visible } else { &r.kernels.count_intersections };
    let buffers = [&fixed.view, &buffer, &fixed.counts, &fixed.dispatches];
    r.recorder.dispatch(&r.gpu, kernel, &buffers, Groups::Linear(1));
    let offsets = r.recorder.read_as(&r.gpu, &buffer, sums.len()).unwrap();
    let counts = r.recorder.read_as(&r.gpu, &r.work.fixed.counts, 4).unwrap();
    (offsets, counts)
}

#[test]
fn sums_of_blocks_become_offsets() {
    let Some(mut r) = rasteriser(256) else { return };
    let mut random = Random::new(2);
    for blocks in [1usize, 15, 16, 17, 4095, 4096, 4097, 9000] {
        let sums: Vec<u32> = (0..blocks).map(|_| random.below(257) as u32).collect();
        let mut total = 0;
        let expected: Vec<u32> = sums
            .iter()
            .map(|&s| {
                total += s;
                total - s
            })
            .collect();
        let (offsets, counts) = scan(&mut r, &sums, 0, true);
        assert!(offsets == expected, "{blocks} blocks");
        assert_eq!(counts[VISIBLE], total);
        for (room, fits) in [(total, true), (total.saturating_sub(1), total == 0)] {
            let (offsets, counts) = scan(&mut r, &sums, room, false);
            assert!(offsets == expected, "{blocks} blocks");
            let used = if fits { total } else { 0 };
            assert_eq!((counts[NEEDED], counts[INTERSECTIONS]), (total, used));
            assert_eq!(counts[POISONED] == 0, fits);
        }
    }
}

#[test]
fn sums_beyond_32_bits_do_not_wrap_round() {
    let Some(mut r) = rasteriser(256) else { return };
    let sums = vec![1 << 26; 5000];
    let (_, counts) = scan(&mut r, &sums, 1 << 20, false);
    assert_eq!(counts[NEEDED], u32::MAX);
    assert_eq!(counts[POISONED], 1);
}
