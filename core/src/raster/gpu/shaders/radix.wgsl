// Stable least-significant-digit radix sort of (key, value) pairs, 8 bits a pass: count the digits of each block
// (radix_count.wgsl), turn the counts into places (radix_scan.wgsl), move (radix_move.wgsl). No subgroup operations and no
// waiting between workgroups (reduce, then scan).

struct Digit {
    shift: u32,
    count: u32, // position in `counts` of the number of pairs
    number: u32, // 1: the values are the numbers of the pairs and are not read
    unused: u32,
}

@group(0) @binding(0) var<uniform> digit: Digit;
@group(0) @binding(1) var<storage, read> counts: array<u32>;
@group(0) @binding(2) var<storage, read_write> histogram: array<u32>; // digit by digit, block by block within

const ROUNDS = SORT_BLOCK / 256u;

fn block_count() -> u32 {
    return (counts[digit.count] + SORT_BLOCK - 1u) / SORT_BLOCK;
}

fn digit_of(key: u32) -> u32 {
    return (key >> digit.shift) & 255u;
}
