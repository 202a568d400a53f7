// One optimiser step on the exposure that the loss has used: three vec4, one per row of its matrix.

@group(0) @binding(0) var<uniform> loss: Loss;
@group(0) @binding(1) var<uniform> step: Step;
@group(0) @binding(2) var<storage, read> totals: array<vec4f>; // the gradient is in the last three
@group(0) @binding(3) var<storage, read_write> exposures: array<vec4f>;
@group(0) @binding(4) var<storage, read_write> exposure_moments: array<vec4f>; // six each: first, second

@compute @workgroup_size(3)
fn step_exposure(@builtin(local_invocation_index) row: u32) {
    let norm = dot(totals[1], totals[1]) + dot(totals[2], totals[2]) + dot(totals[3], totals[3]);
    if (!is_finite(norm)) {
        return;
    }
    let at = 3u * loss.exposure + row;
    let first = 6u * loss.exposure + row;
    let old = Moments(exposures[at], exposure_moments[first], exposure_moments[first + 3u]);
    let stepped = adam(old, totals[1u + row], vec4f(step.rates.z));
    exposures[at] = stepped.value;
    exposure_moments[first] = stepped.first;
    exposure_moments[first + 3u] = stepped.second;
}
