// Lists the visible splats in the order of their numbers, with their depths as keys. One thread per splat.

@group(0) @binding(0) var<uniform> view: View;
@group(0) @binding(1) var<storage, read> projected: array<vec4f>;
@group(0) @binding(2) var<storage, read> tiles: array<vec2u>;
@group(0) @binding(3) var<storage, read> block_sums: array<u32>;
@group(0) @binding(4) var<storage, read_write> keys: array<u32>;
@group(0) @binding(5) var<storage, read_write> values: array<u32>;

@compute @workgroup_size(256)
fn compact(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_index) thread: u32) {
    let block = group_number(group);
    let i = block * 256u + thread;
    var visible = 0u;
    if (i < view.scene.x) {
        visible = select(0u, 1u, tiles[i].x > 0u);
    }
    let before = exclusive_scan(thread, visible).x;
    if (visible > 0u) {
        let at = block_sums[block] + before;
        keys[at] = bitcast<u32>(projected[3u * i + 2u].w); // positive floats sort like their bits
        values[at] = i;
    }
}
