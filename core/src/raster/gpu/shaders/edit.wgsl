// Edits of density control, for the splats of one page. First all sources are copied aside (`gather_sources` on every
// page), then all destinations are written (`write_destinations` on every page). One thread per edit.

struct Edit {
    splats: vec2u, // destination, source
    shift: f32, // standard deviations along the longest axis
    log_scale_offset: f32,
    opacity: f32, // the new logit
    padding: f32,
}

@group(0) @binding(0) var<uniform> page: Page;
@group(0) @binding(1) var<storage, read> edits: array<Edit>;
@group(0) @binding(2) var<storage, read_write> sources: array<vec4f>; // plane by plane like a page
@group(0) @binding(3) var<storage, read_write> parameters: array<vec4f>;
@group(0) @binding(4) var<storage, read_write> moments: array<vec4f>;
@group(0) @binding(5) var<storage, read_write> statistics: array<vec4u>;

@compute @workgroup_size(256)
fn gather_sources(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_index) thread: u32) {
    let e = group_number(group) * 256u + thread;
    if (e >= arrayLength(&edits)) {
        return;
    }
    let i = edits[e].splats.y - page.base;
    if (i >= page.count) { // also if it lies before the page: the difference wraps round
        return;
    }
    for (var k = 0u; k < page.planes; k++) {
        sources[plane_index(e, k, page.planes)] = parameters[plane_index(i, k, page.planes)];
    }
}

@compute @workgroup_size(256)
fn write_destinations(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_index) thread: u32) {
    let e = group_number(group) * 256u + thread;
    if (e >= arrayLength(&edits)) {
        return;
    }
    let edit = edits[e];
    let i = edit.splats.x - page.base;
    if (i >= page.count) {
        return;
    }
    var scales = sources[plane_index(e, 2u, page.planes)];
    scales += vec4f(vec3f(edit.log_scale_offset), 0.0);
    var offset = vec3f(0.0);
    if (edit.shift != 0.0) {
        var axis = 0u;
        for (var k = 1u; k < 3u; k++) {
            if (scales[k] > scales[axis]) {
                axis = k;
            }
        }
        var turn = rotation_matrix(unit_quaternion(sources[plane_index(e, 1u, page.planes)]));
        offset = turn[axis] * (edit.shift * exp(scales[axis]));
        scales[axis] += 0.5 * log(1.0 - edit.shift * edit.shift);
    }
    for (var k = 0u; k < page.planes; k++) {
        var value = sources[plane_index(e, k, page.planes)];
        if (k == 0u) {
            value = vec4f(value.xyz + offset, edit.opacity);
        } else if (k == 2u) {
            value = scales;
        }
        parameters[plane_index(i, k, page.planes)] = value;
        moments[plane_index(i, k, 2u * page.planes)] = vec4f(0.0);
        moments[plane_index(i, k + page.planes, 2u * page.planes)] = vec4f(0.0);
    }
    statistics[i] = vec4u(0u);
}
