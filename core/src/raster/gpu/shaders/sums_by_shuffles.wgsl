// Adds up what the threads of a warp have, on devices whose subgroups are 32 threads next to each other: in five rounds, in
// each of which a thread keeps half of its values and gives its neighbour the other half.

const WARPS = BLOCKS / 2u;
const BATCH = 6u; // splats at a time: no more values than threads

var<workgroup> warp_sums: array<f32, WARPS * BATCH * SLOT>;

// Keeps `a` (`b` where `second`) of both threads of a pair.
fn fold(a: f32, b: f32, second: bool, distance: u32) -> f32 {
    return select(a, b, second) + subgroupShuffleXor(select(b, a, second), distance);
}

// Takes a thread's values of the splat with this number (warp by warp, those of a batch within).
fn put_values(splat: u32, thread: u32, values: array<f32, SLOT>) {
    let bits = vec4<bool>((vec4u(thread) & vec4u(1u, 2u, 4u, 8u)) != vec4u(0u));
    let a0 = fold(values[0], values[5], bits.x, 1u);
    let a1 = fold(values[1], values[6], bits.x, 1u);
    let a2 = fold(values[2], values[7], bits.x, 1u);
    let a3 = fold(values[3], values[8], bits.x, 1u);
    let a4 = fold(values[4], values[9], bits.x, 1u);
    let b0 = fold(a0, a3, bits.y, 2u);
    let b1 = fold(a1, a4, bits.y, 2u);
    let b2 = fold(a2, 0.0, bits.y, 2u);
    let c0 = fold(b0, b2, bits.z, 4u);
    let c1 = fold(b1, 0.0, bits.z, 4u);
    let d = fold(c0, c1, bits.w, 8u);
    let sum = d + subgroupShuffleXor(d, 16u);
    // Which value a thread ends with follows from what it kept; some end with a zero, and half of them with what others have.
    let kept = vec4u(bits) * vec4u(5u, 3u, 2u, 1u);
    let zero = bits.z && (bits.y || bits.w);
    if (!zero && thread < 16u) {
        warp_sums[splat * SLOT + kept.x + kept.y + kept.z + kept.w] = sum;
    }
}

// The sum over a warp of value i of splat s, `row` = SLOT s + i, once all have put theirs.
fn warp_sum(row: u32) -> f32 {
    return warp_sums[row];
}
