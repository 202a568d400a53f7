// Sums over the tiles, in a fixed order. One workgroup per vec4.

@group(0) @binding(0) var<uniform> view: View;
@group(0) @binding(1) var<storage, read> sums: array<vec4f>; // four per tile
@group(0) @binding(2) var<storage, read_write> totals: array<vec4f>; // four

@compute @workgroup_size(128)
fn sum_loss(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_index) thread: u32) {
    var sum = vec4f(0.0);
    for (var tile = thread; tile < view.size.z * view.size.w; tile += 128u) {
        sum += sums[4u * tile + group.x];
    }
    let total = sum_group(thread, sum);
    if (thread == 0u) {
        totals[group.x] = total;
    }
}
