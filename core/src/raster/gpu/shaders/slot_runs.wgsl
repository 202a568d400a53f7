// Sums each run of SLOT_RUN slots that belong to one splat into the first of them, so that a splat that covers the
// picture does not keep one thread of the next pass busy with thousands of slots. One thread per run.

@group(0) @binding(0) var<storage, read> counts: array<u32>;
@group(0) @binding(1) var<storage, read> owners: array<u32>;
@group(0) @binding(2) var<storage, read_write> slots: array<vec2f>; // five per intersection

@compute @workgroup_size(SORT_BLOCK / SLOT_RUN)
fn sum_runs(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_index) thread: u32) {
    let first = group_number(group) * SORT_BLOCK + thread * SLOT_RUN;
    let last = first + SLOT_RUN - 1u;
    if (last >= counts[INTERSECTIONS] || owners[first] != owners[last]) {
        return;
    }
    for (var part = 0u; part < 5u; part++) {
        var sum = vec2f(0.0);
        for (var slot = first; slot <= last; slot++) {
            sum += slots[5u * slot + part];
        }
        slots[5u * first + part] = sum;
    }
}
