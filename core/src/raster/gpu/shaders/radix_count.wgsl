// Counts the digits of one block of pairs.

@group(0) @binding(3) var<storage, read> keys: array<u32>;

var<workgroup> digit_counts: array<atomic<u32>, 256>;

@compute @workgroup_size(256)
fn count_digits(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_index) thread: u32) {
    let block = group_number(group);
    atomicStore(&digit_counts[thread], 0u);
    workgroupBarrier();
    let count = counts[digit.count];
    for (var round = 0u; round < ROUNDS; round++) {
        let i = block * SORT_BLOCK + round * 256u + thread;
        if (i < count) {
            atomicAdd(&digit_counts[digit_of(keys[i])], 1u);
        }
    }
    workgroupBarrier();
    if (block < block_count()) {
        histogram[thread * block_count() + block] = atomicLoad(&digit_counts[thread]);
    }
}
