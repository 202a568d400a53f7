// Gradient by the parameters of the visible splats, one optimiser step on them, the noise, and what density control
// gathers. One thread per splat of a page; not run at all once an overflow has poisoned the step.

@group(0) @binding(5) var<storage, read_write> moments: array<vec4f>; // first, then second, plane by plane
// Bits of: sum of gradient norms, sum of errors, number of steps, largest radius.
@group(0) @binding(6) var<storage, read_write> statistics: array<vec4u>;
@group(0) @binding(7) var<uniform> step: Step;

// Splats more opaque than this get no noise: its factor would be below 1e-21.
const NOISE_OPACITY_MAX = 0.5;

fn step_plane(i: u32, k: u32, gradient: vec4f, rates: vec4f) {
    let at = plane_index(i, k, page.planes);
    let at_first = plane_index(i, k, 2u * page.planes);
    let at_second = plane_index(i, k + page.planes, 2u * page.planes);
    let stepped = adam(Moments(parameters[at], moments[at_first], moments[at_second]), gradient, rates);
    parameters[at] = stepped.value;
    moments[at_first] = stepped.first;
    moments[at_second] = stepped.second;
}

// Mixes four words (pcg4d, Jarzynski & Olano, JCGT 2020).
fn pcg4d(key: vec4u) -> vec4u {
    var v = key * 1664525u + 1013904223u;
    v.x += v.y * v.w;
    v.y += v.z * v.x;
    v.z += v.x * v.y;
    v.w += v.y * v.z;
    v ^= v >> vec4u(16u);
    v.x += v.y * v.w;
    v.y += v.z * v.x;
    v.z += v.x * v.y;
    v.w += v.y * v.z;
    return v;
}

// Three standard normal numbers fixed by their key (Box-Muller).
fn normal3(key: vec4u) -> vec3f {
    let uniform_values = (vec4f(pcg4d(key) >> vec4u(8u)) + 0.5) / 16777216.0; // in (0, 1)
    let radius = sqrt(-2.0 * log(uniform_values.xz));
    let angle = 6.283185307179586 * uniform_values.yw;
    return vec3f(radius.x * cos(angle.x), radius.x * sin(angle.x), radius.y * cos(angle.y));
}

// The noise of 3DGS-MCMC (Kheradmand et al. 2024, eq. 8), after the step.
fn perturb(i: u32) {
    let at = plane_index(i, 0u, page.planes);
    let mean = parameters[at];
    let opacity = sigmoid(mean.w);
    if (opacity > NOISE_OPACITY_MAX) {
        return;
    }
    let key = step.key;
    let normal = normal3(vec4u(page.base + i, key.x, key.y, key.z));
    let factor = step.rates.w / (1.0 + exp(100.0 * (opacity - 0.005)));
    let rotation = rotation_matrix(unit_quaternion(parameters[plane_index(i, 1u, page.planes)]));
    let scale = exp(parameters[plane_index(i, 2u, page.planes)].xyz);
    let offset = factor * (rotation * (scale * scale * (normal * rotation)));
    if (is_finite(dot(offset, offset))) {
        parameters[at] = vec4f(mean.xyz + offset, mean.w);
    }
}

@compute @workgroup_size(256)
fn update(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_index) thread: u32) {
    let i = group_number(group) * 256u + thread;
    if (i >= page.count || tiles[page.base + i].x == 0u) {
        return;
    }
    let g = splat_gradient(i);
    let degree = view.scene.y;

    let size = vec2f(view.size.xy);
    let covariance = g.geometry.covariance;
    let half = vec2f(covariance.x + covariance.z, covariance.x - covariance.z) * 0.5;
    let long_axis = sqrt(half.x + length(vec2f(half.y, covariance.y)));
    let radius = 3.0 * long_axis / max(size.x, size.y);
    let before = statistics[i];
    statistics[i] = vec4u(
        bitcast<u32>(bitcast<f32>(before.x) + 0.5 * length(g.by_centre * size)),
        bitcast<u32>(bitcast<f32>(before.y) + g.error),
        before.z + 1u,
        bitcast<u32>(max(bitcast<f32>(before.w), radius)),
    );

    let opacity = sigmoid(parameters[plane_index(i, 0u, page.planes)].w);
    let by_opacity = g.opacity + step.correction.z * opacity * (1.0 - opacity);
    let by_log_scale = g.log_scale + step.correction.w * g.geometry.scale;
    // A gradient that is no number (a splat of absurd brightness or size) must not enter the moments.
    let norm = dot(g.mean, g.mean) + by_opacity * by_opacity + dot(g.rotation, g.rotation)
        + dot(by_log_scale, by_log_scale) + dot(g.colour, g.colour);
    if (is_finite(norm)) {
        let rates = step.geometry_rates;
        step_plane(i, 0u, vec4f(g.mean, by_opacity), vec4f(rates.xxx, rates.y));
        step_plane(i, 1u, g.rotation, rates.zzzz);
        step_plane(i, 2u, vec4f(by_log_scale, 0.0), vec4f(rates.www, 0.0));
        for (var group = 0u; group * 4u < (degree + 1u) * (degree + 1u); group++) {
            let basis = mask_harmonics(harmonics(g.direction, group), degree, group);
            let planes = select(1u, 3u, harmonics_in_group(degree, group) > 1u);
            for (var k = 0u; k < planes; k++) {
                var rate = vec4f(step.rates.y);
                if (group == 0u && k == 0u) {
                    rate = vec4f(step.rates.xxx, step.rates.y);
                }
                step_plane(i, 3u + 3u * group + k, harmonics_plane(basis, g.colour, k), rate);
            }
        }
    }
    if (step.rates.w > 0.0) {
        perturb(i);
    }
}
