// Writes the gradient by the parameters down, in the shape of the parameters; zero where a splat is not visible. For
// tests. One thread per splat of a page.

@group(0) @binding(5) var<storage, read_write> collected: array<vec4f>;

@compute @workgroup_size(256)
fn collect(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_index) thread: u32) {
    let i = group_number(group) * 256u + thread;
    if (i >= page.count) {
        return;
    }
    for (var k = 0u; k < page.planes; k++) {
        collected[plane_index(i, k, page.planes)] = vec4f(0.0);
    }
    if (tiles[page.base + i].x == 0u) {
        return;
    }
    let g = splat_gradient(i);
    collected[plane_index(i, 0u, page.planes)] = vec4f(g.mean, g.opacity);
    collected[plane_index(i, 1u, page.planes)] = g.rotation;
    collected[plane_index(i, 2u, page.planes)] = vec4f(g.log_scale, 0.0);
    let degree = view.scene.y;
    for (var group = 0u; group * 4u < (degree + 1u) * (degree + 1u); group++) {
        let basis = mask_harmonics(harmonics(g.direction, group), degree, group);
        let planes = select(1u, 3u, harmonics_in_group(degree, group) > 1u);
        for (var k = 0u; k < planes; k++) {
            collected[plane_index(i, 3u + 3u * group + k, page.planes)] = harmonics_plane(basis, g.colour, k);
        }
    }
}
