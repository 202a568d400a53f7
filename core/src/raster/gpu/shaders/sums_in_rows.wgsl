// Adds up what the threads of a warp have, on any device: the values lie in workgroup memory, one row for each value of each
// splat, and later one thread adds up a row.

const WARPS = BLOCKS / 2u;
// Splats at a time. Few, because memory for more would keep other workgroups off the processor.
const BATCH = 3u;
// vec4s of a row: 32 values, and some that keep neighbours out of each other's memory banks.
const ROW = 9u;

var<workgroup> rows: array<vec4f, WARPS * BATCH * SLOT * ROW>;

// Takes a thread's values of the splat with this number (warp by warp, those of a batch within).
fn put_values(splat: u32, thread: u32, values: array<f32, SLOT>) {
    for (var i = 0u; i < SLOT; i++) {
        rows[(splat * SLOT + i) * ROW + thread / 4u][thread & 3u] = values[i];
    }
}

// The sum over a warp of value i of splat s, `row` = SLOT s + i, once all have put theirs.
fn warp_sum(row: u32) -> f32 {
    var sum = vec4f(0.0);
    for (var i = 0u; i < 8u; i++) {
        sum += rows[row * ROW + i];
    }
    return (sum.x + sum.y) + (sum.z + sum.w);
}
