// What density control decides by, of the splats of one page: a copy of what lies in two places, for the host to read. One
// thread per splat.

@group(0) @binding(0) var<uniform> page: Page;
@group(0) @binding(1) var<storage, read> parameters: array<vec4f>;
@group(0) @binding(2) var<storage, read> statistics: array<vec4u>;
@group(0) @binding(3) var<storage, read_write> scores: array<vec2u>; // bits of the logit of the opacity, and of the error

@compute @workgroup_size(256)
fn copy_scores(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_index) thread: u32) {
    let i = group_number(group) * 256u + thread;
    if (i < page.count) {
        let opacity = bitcast<u32>(parameters[plane_index(i, 0u, page.planes)].w);
        scores[i] = vec2u(opacity, statistics[i].y);
    }
}
