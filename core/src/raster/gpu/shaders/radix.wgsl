// Stable least-significant-digit radix sort of (key, value) pairs, 8 bits a pass: count the digits of each block, turn
// the counts into places, move. No subgroup operations and no waiting between workgroups (reduce, then scan).

struct Digit {
    shift: u32,
    count: u32, // position in `counts` of the number of pairs
    number: u32, // 1: the values are the numbers of the pairs and are not read
    unused: u32,
}

@group(0) @binding(0) var<uniform> digit: Digit;
@group(0) @binding(1) var<storage, read> counts: array<u32>;
@group(0) @binding(2) var<storage, read> keys: array<u32>;
@group(0) @binding(3) var<storage, read> values: array<u32>;
@group(0) @binding(4) var<storage, read_write> sorted_keys: array<u32>;
@group(0) @binding(5) var<storage, read_write> sorted_values: array<u32>;
@group(0) @binding(6) var<storage, read_write> histogram: array<u32>; // digit by digit, block by block within
@group(0) @binding(7) var<storage, read_write> totals: array<u32>; // per digit

const ROUNDS = SORT_BLOCK / 256u;

var<workgroup> digit_counts: array<atomic<u32>, 256>;
var<workgroup> places: array<u32, 256>;
// Per digit, which of the 256 threads hold it.
var<workgroup> holders: array<atomic<u32>, 2048>;
var<workgroup> row_length: u32;

fn block_count() -> u32 {
    return (counts[digit.count] + SORT_BLOCK - 1u) / SORT_BLOCK;
}

fn digit_of(key: u32) -> u32 {
    return (key >> digit.shift) & 255u;
}

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

// One workgroup per digit: the counts of its blocks become offsets.
@compute @workgroup_size(256)
fn scan_digits(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_index) thread: u32) {
    if (thread == 0u) {
        row_length = block_count();
    }
    let length = workgroupUniformLoad(&row_length);
    var carry = 0u;
    for (var start = 0u; start < length; start += 256u) {
        let i = start + thread;
        let at = group.x * length + i;
        var value = 0u;
        if (i < length) {
            value = histogram[at];
        }
        let scan = exclusive_scan(thread, value);
        if (i < length) {
            histogram[at] = carry + scan.x;
        }
        carry += scan.y;
    }
    if (thread == 0u) {
        totals[group.x] = carry;
    }
}

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
