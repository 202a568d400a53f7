// Where the intersections of each visible splat begin, front to back. One thread per visible splat.

@group(0) @binding(0) var<storage, read> counts: array<u32>;
@group(0) @binding(1) var<storage, read> order: array<u32>; // visible splats, front to back
@group(0) @binding(2) var<storage, read_write> tiles: array<vec2u>;
@group(0) @binding(3) var<storage, read_write> block_sums: array<u32>;
@group(0) @binding(4) var<storage, read_write> offsets: array<u32>;

var<workgroup> block_sum: atomic<u32>;

fn tile_count(rank: u32) -> u32 {
    if (rank < counts[VISIBLE]) {
        return tiles[order[rank]].x - 1u;
    }
    return 0u;
}

@compute @workgroup_size(256)
fn sum_tiles(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_index) thread: u32) {
    let block = group_number(group);
    if (thread == 0u) {
        atomicStore(&block_sum, 0u);
    }
    workgroupBarrier();
    atomicAdd(&block_sum, tile_count(block * 256u + thread));
    workgroupBarrier();
    if (thread == 0u && block * 256u < counts[VISIBLE]) {
        block_sums[block] = atomicLoad(&block_sum);
    }
}

@compute @workgroup_size(256)
fn write_offsets(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_index) thread: u32) {
    let block = group_number(group);
    let rank = block * 256u + thread;
    let before = exclusive_scan(thread, tile_count(rank)).x;
    if (rank < counts[VISIBLE]) {
        let offset = saturating_add(block_sums[block], before);
        offsets[rank] = offset;
        tiles[order[rank]].y = offset;
    }
}
