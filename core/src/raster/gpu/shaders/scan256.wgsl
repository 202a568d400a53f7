// Prefix sum over the 256 threads of a workgroup: sixteen runs of sixteen, three barriers.

var<workgroup> scan_values: array<u32, 256>;
var<workgroup> scan_runs: array<u32, 16>;

// Sum of two counts that stops at the largest number instead of wrapping round.
fn saturating_add(a: u32, b: u32) -> u32 {
    let sum = a + b;
    return select(sum, 0xffffffffu, sum < a);
}

// x: the sum of the values of the threads before this one; y: the sum of all. Ends with a barrier.
fn exclusive_scan(thread: u32, value: u32) -> vec2u {
    scan_values[thread] = value;
    workgroupBarrier();
    if (thread < 16u) {
        var sum = 0u;
        for (var i = 0u; i < 16u; i++) {
            let at = thread * 16u + i;
            let next = scan_values[at];
            scan_values[at] = sum;
            sum = saturating_add(sum, next);
        }
        scan_runs[thread] = sum;
    }
    workgroupBarrier();
    var before = 0u;
    var total = 0u;
    for (var run = 0u; run < 16u; run++) {
        let sum = scan_runs[run];
        before = saturating_add(before, select(0u, sum, run < (thread >> 4u)));
        total = saturating_add(total, sum);
    }
    before = saturating_add(before, scan_values[thread]);
    workgroupBarrier();
    return vec2u(before, total);
}
