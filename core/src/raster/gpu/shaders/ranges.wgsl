// Finds where each tile's intersections begin and end in the sorted list, and looks up their splats. One thread per
// intersection.

@group(0) @binding(0) var<storage, read> counts: array<u32>;
@group(0) @binding(1) var<storage, read> keys: array<u32>; // tiles and blocks, sorted by tile
@group(0) @binding(2) var<storage, read> slots: array<u32>; // which emitted intersection each is
@group(0) @binding(3) var<storage, read> owners: array<u32>;
@group(0) @binding(4) var<storage, read_write> ranges: array<vec2u>; // per tile; zero before this pass
@group(0) @binding(5) var<storage, read_write> intersections: array<vec2u>; // splat, blocks

@compute @workgroup_size(256)
fn find_ranges(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_index) thread: u32) {
    let k = group_number(group) * 256u + thread;
    let count = counts[INTERSECTIONS];
    if (k >= count) {
        return;
    }
    let tile = pair_tile(keys[k]);
    if (k == 0u || pair_tile(keys[max(k, 1u) - 1u]) != tile) {
        ranges[tile].x = k;
    }
    if (k + 1u == count || pair_tile(keys[min(k + 1u, count - 1u)]) != tile) {
        ranges[tile].y = k + 1u;
    }
    intersections[k] = vec2u(owners[slots[k]], pair_blocks(keys[k]));
}
