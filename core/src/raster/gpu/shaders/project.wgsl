// Projects the splats of one page: culls, colours and counts the tiles of each. One thread per splat.

@group(0) @binding(0) var<uniform> view: View;
@group(0) @binding(1) var<uniform> page: Page;
@group(0) @binding(2) var<storage, read> parameters: array<vec4f>;
// Three per splat, only of visible ones: centre x, y, skew x, y; squeeze, log2 of the opacity, half width, half height;
// colour, depth. alpha = 2^(log2 opacity - (skew . d)^2 - squeeze d.y^2): the Cholesky form of the conic, which no
// rounding can make negative.
@group(0) @binding(3) var<storage, read_write> projected: array<vec4f>;
// Per splat: number of tiles plus one (0 = not visible); its first intersection, written later.
@group(0) @binding(4) var<storage, read_write> tiles: array<vec2u>;
// Visible splats among each 256.
@group(0) @binding(5) var<storage, read_write> block_sums: array<u32>;

var<workgroup> block_visible: atomic<u32>;

fn colour(i: u32, direction: vec3f, degree: u32) -> vec3f {
    var rgb = vec3f(0.5);
    for (var group = 0u; group * 4u < (degree + 1u) * (degree + 1u); group++) {
        let basis = mask_harmonics(harmonics(direction, group), degree, group);
        let first = 3u + 3u * group;
        let p0 = parameters[plane_index(i, first, page.planes)];
        rgb = fma(vec3f(basis.x), p0.xyz, rgb);
        if (harmonics_in_group(degree, group) > 1u) {
            let p1 = parameters[plane_index(i, first + 1u, page.planes)];
            let p2 = parameters[plane_index(i, first + 2u, page.planes)];
            rgb = fma(vec3f(basis.y), vec3f(p0.w, p1.xy), rgb);
            rgb = fma(vec3f(basis.z), vec3f(p1.zw, p2.x), rgb);
            rgb = fma(vec3f(basis.w), p2.yzw, rgb);
        }
    }
    return rgb;
}

// Whether all are numbers. On the bits, because compilers may assume that floats are.
fn finite(v: vec4f) -> bool {
    return all((bitcast<vec4u>(v) & vec4u(0x7f800000u)) != vec4u(0x7f800000u));
}

// Number of tiles plus one, 0 if it is not visible; writes the projected splat if it is.
fn project_splat(i: u32) -> u32 {
    let mean = parameters[plane_index(i, 0u, page.planes)];
    let camera = world_to_camera(mean.xyz) + vec3f(view.row0.w, view.row1.w, view.row2.w);
    var opacity = sigmoid(mean.w);
    if (!(camera.z > NEAR && opacity >= ALPHA_MIN)) {
        return 0u;
    }
    let q = parameters[plane_index(i, 1u, page.planes)];
    let log_scale = parameters[plane_index(i, 2u, page.planes)];
    let g = project_geometry(camera, q, log_scale.xyz);
    if (view.scene.w != 0u) {
        opacity *= sqrt(g.own_determinant / g.determinant);
        if (!(opacity >= ALPHA_MIN)) {
            return 0u;
        }
    }
    let centre = fma(view.focal.xy, camera.xy / camera.z, view.focal.zw);
    let log2_opacity = log2(opacity);
    // With some slack, so that rounding never cuts off a pixel that counts.
    let reach = log2_opacity - log2(ALPHA_MIN) + 1e-3;
    let extent = sqrt(reach / HALF_LOG2_E * g.covariance.xz);
    let skew_x = sqrt(HALF_LOG2_E * g.covariance.z / g.determinant);
    let skew = vec2f(skew_x, -g.covariance.y / g.covariance.z * skew_x);
    let squeeze = HALF_LOG2_E / g.covariance.z;
    let touches = all(centre + extent >= vec2f(0.0)) && all(centre - extent <= vec2f(view.size.xy));
    if (!touches || !finite(mean) || !finite(q) || !finite(log_scale) || !finite(vec4f(centre, skew))
        || !finite(vec4f(extent, squeeze, g.determinant)) || dot(q, q) == 0.0) {
        return 0u;
    }
    // Most of what is read of a splat: only if it is in the picture.
    let rgb = colour(i, normalize(mean.xyz - view.position.xyz), view.scene.y);
    if (!finite(vec4f(rgb, camera.z))) {
        return 0u;
    }
    let at = 3u * (page.base + i);
    projected[at] = vec4f(centre, skew);
    projected[at + 1u] = vec4f(squeeze, log2_opacity, extent);
    projected[at + 2u] = vec4f(max(rgb, vec3f(0.0)), camera.z);
    let f = footprint(centre, skew, squeeze, extent, view.size);
    let rows = footprint_rows(f);
    var count = 0u;
    for (var row = rows.x; row < rows.y; row++) {
        let span = footprint_row(f, row);
        count += span.y - span.x;
    }
    return count + 1u;
}

@compute @workgroup_size(256)
fn project(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_index) thread: u32) {
    let block = group_number(group);
    let i = block * 256u + thread;
    if (thread == 0u) {
        atomicStore(&block_visible, 0u);
    }
    workgroupBarrier();
    if (i < page.count) {
        let count = project_splat(i);
        tiles[page.base + i] = vec2u(count, 0u);
        if (count > 0u) {
            atomicAdd(&block_visible, 1u);
        }
    }
    workgroupBarrier();
    if (thread == 0u && block * 256u < page.count) {
        block_sums[(page.base >> 8u) + block] = atomicLoad(&block_visible);
    }
}
