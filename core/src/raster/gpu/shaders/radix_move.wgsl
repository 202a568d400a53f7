// Moves the pairs of one block to their places.

@group(0) @binding(3) var<storage, read> totals: array<u32>; // per digit
@group(0) @binding(4) var<storage, read> keys: array<u32>;
@group(0) @binding(5) var<storage, read> values: array<u32>;
@group(0) @binding(6) var<storage, read_write> sorted_keys: array<u32>;
@group(0) @binding(7) var<storage, read_write> sorted_values: array<u32>;

var<workgroup> places: array<u32, 256>;
// Per digit, which of the 256 threads hold it.
var<workgroup> holders: array<atomic<u32>, 2048>;

@compute @workgroup_size(256)
fn move_pairs(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_index) thread: u32) {
    let block = group_number(group);
    let smaller_digits = exclusive_scan(thread, totals[thread]).x;
    let block_offset = histogram[thread * block_count() + min(block, max(block_count(), 1u) - 1u)];
    places[thread] = smaller_digits + block_offset;
    for (var word = 0u; word < 8u; word++) {
        atomicStore(&holders[word * 256u + thread], 0u);
    }
    workgroupBarrier();
    let count = counts[digit.count];
    let my_word = thread >> 5u;
    let my_bit = 1u << (thread & 31u);
    for (var round = 0u; round < ROUNDS; round++) {
        let i = block * SORT_BLOCK + round * 256u + thread;
        let live = i < count;
        var key = 0u;
        if (live) {
            key = keys[i];
        }
        let d = digit_of(key);
        if (live) {
            atomicOr(&holders[my_word * 256u + d], my_bit);
        }
        workgroupBarrier();
        var before = 0u; // holders of the same digit among the threads before this one
        var all = 0u;
        if (live) {
            for (var word = 0u; word < 8u; word++) {
                let bits = atomicLoad(&holders[word * 256u + d]);
                all += countOneBits(bits);
                before += countOneBits(bits & select(select(0u, my_bit - 1u, word == my_word), 0xffffffffu, word < my_word));
            }
            let to = places[d] + before;
            sorted_keys[to] = key;
            if (digit.number == 1u) {
                sorted_values[to] = i;
            } else {
                sorted_values[to] = values[i];
            }
        }
        workgroupBarrier();
        if (live) {
            atomicStore(&holders[my_word * 256u + d], 0u);
            if (before + 1u == all) { // the last holder moves the place on
                places[d] += all;
            }
        }
        workgroupBarrier();
    }
}
