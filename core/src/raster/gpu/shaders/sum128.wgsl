// Sum over the 128 threads of a workgroup.

var<workgroup> reduced: array<vec4f, 64>;

// Sum over the workgroup, in a fixed order; only thread 0 gets it. Ends with a barrier.
fn sum_group(thread: u32, value: vec4f) -> vec4f {
    if (thread >= 64u) {
        reduced[thread - 64u] = value;
    }
    workgroupBarrier();
    if (thread < 64u) {
        reduced[thread] += value;
    }
    workgroupBarrier();
    var sum = vec4f(0.0);
    if (thread < 8u) {
        for (var i = 0u; i < 8u; i++) {
            sum += reduced[thread * 8u + i];
        }
        reduced[thread * 8u] = sum;
    }
    workgroupBarrier();
    if (thread == 0u) {
        for (var i = 1u; i < 8u; i++) {
            sum += reduced[i * 8u];
        }
    }
    workgroupBarrier();
    return sum;
}
