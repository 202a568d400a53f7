// Gradient by the parameters of the visible splats, one optimiser step on them, the noise, and what density control
// gathers. One thread per splat of a page; not run at all once an overflow has poisoned the step.

@group(0) @binding(5) var<storage, read_write> moments: array<vec4f>; // first, then second, plane by plane
// Bits of: sum of gradient norms, sum of errors, number of steps, largest radius.
@group(0) @binding(6) var<storage, read_write> statistics: array<vec4u>;
@group(0) @binding(7) var<uniform> step: Step;

// Splats more opaque than this get no noise: its factor would be below 1e-21.
const NOISE_OPACITY_MAX = 0.5;

fn load_plane(i: u32, k: u32) -> Moments {
    return Moments(
        parameters[plane_index(i, k, page.planes)],
        moments[plane_index(i, k, 2u * page.planes)],
        moments[plane_index(i, k + page.planes, 2u * page.planes)],
    );
}

fn store_plane(i: u32, k: u32, stepped: Moments) {
    parameters[plane_index(i, k, page.planes)] = stepped.value;
    moments[plane_index(i, k, 2u * page.planes)] = stepped.first;
    moments[plane_index(i, k + page.planes, 2u * page.planes)] = stepped.second;
}

// One step of three planes from `k` on. All is read before anything is written: a compiler must not move reads over writes,
// and would wait for the memory three times.
fn step_planes(i: u32, k: u32, gradients: mat3x4f, rates: mat3x4f) {
    let a = load_plane(i, k);
    let b = load_plane(i, k + 1u);
    let c = load_plane(i, k + 2u);
    store_plane(i, k, adam(a, gradients[0], rates[0]));
    store_plane(i, k + 1u, adam(b, gradients[1], rates[1]));
    store_plane(i, k + 2u, adam(c, gradients[2], rates[2]));
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
        step_planes(
            i,
            0u,
            mat3x4f(vec4f(g.mean, by_opacity), g.rotation, vec4f(by_log_scale, 0.0)),
            mat3x4f(vec4f(rates.xxx, rates.y), rates.zzzz, vec4f(rates.www, 0.0)),
        );
        for (var group = 0u; group * 4u < (degree + 1u) * (degree + 1u); group++) {
            let basis = mask_harmonics(harmonics(g.direction, group), degree, group);
            let first = 3u + 3u * group;
            let rest = vec4f(step.rates.y);
            let rate = select(rest, vec4f(step.rates.xxx, step.rates.y), group == 0u);
            let gradient = harmonics_plane(basis, g.colour, 0u);
            if (harmonics_in_group(degree, group) > 1u) {
                let second = harmonics_plane(basis, g.colour, 1u);
                let third = harmonics_plane(basis, g.colour, 2u);
                step_planes(i, first, mat3x4f(gradient, second, third), mat3x4f(rate, rest, rest));
            } else {
                store_plane(i, first, adam(load_plane(i, first), gradient, rate));
            }
        }
    }
    if (step.rates.w > 0.0) {
        perturb(i);
    }
}
