// Gradient of the loss by the picture, and the sums for the gradient by the exposure. One workgroup per tile, two pixels a
// thread.

@group(0) @binding(0) var<uniform> view: View;
@group(0) @binding(1) var<uniform> background: vec4f;
@group(0) @binding(2) var<uniform> loss: Loss;
@group(0) @binding(3) var<storage, read> picture: array<vec4f>;
@group(0) @binding(4) var<storage, read> target_picture: array<u32>;
@group(0) @binding(5) var<storage, read> exposures: array<vec4f>;
@group(0) @binding(6) var<storage, read> derivatives: array<f32>; // nine planes; see loss_compare.wgsl
@group(0) @binding(7) var<storage, read_write> sums: array<vec4f>;
@group(0) @binding(8) var<storage, read_write> gradient: array<vec4f>; // by r, g, b, alpha
@group(0) @binding(9) var<storage, read_write> pixels: array<vec2u>; // y: mean absolute colour error

// The three maps of the tile with its surroundings; in their place, once they were read, their sums along x.
var<workgroup> values: array<f32, 3u * AREA>;

// One pixel, rendered and wanted.
struct Compared {
    at: u32,
    rendered: vec4f,
    exposed: vec3f,
    wanted: vec3f,
    alpha: f32, // of the target
    hidden: bool,
}

fn compared(pixel: vec2u, rows: mat3x4f) -> Compared {
    let at = min(pixel.y, view.size.y - 1u) * view.size.x + min(pixel.x, view.size.x - 1u);
    let rendered = picture[at];
    let packed = target_picture[at];
    let behind = background.xyz;
    let exposed = vec3f(
        expose(rows[0], rendered, behind, 0u),
        expose(rows[1], rendered, behind, 1u),
        expose(rows[2], rendered, behind, 2u),
    );
    if (is_hidden(packed)) {
        return Compared(at, rendered, exposed, exposed, 1.0 - rendered.w, true);
    }
    return Compared(at, rendered, exposed, composed(packed, background.xyz), unpack4x8unorm(packed).w, false);
}

@compute @workgroup_size(THREADS)
fn differentiate(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_index) thread: u32) {
    let local = upper_pixel(thread);
    let pixel = group.xy * TILE + local;
    let inside = vec2<bool>(pixel.x < view.size.x) & (vec2u(pixel.y, pixel.y + 1u) < vec2u(view.size.y));
    let plane = view.size.x * view.size.y;
    let count = f32(view.size.x) * f32(view.size.y);
    var rows = mat3x4f(identity_row(0u), identity_row(1u), identity_row(2u));
    if (loss.exposure != NO_EXPOSURE) {
        let first = 3u * loss.exposure;
        rows = mat3x4f(exposures[first], exposures[first + 1u], exposures[first + 2u]);
    }
    let upper = compared(pixel, rows);
    let lower = compared(pixel + vec2u(0u, 1u), rows);

    var by_upper = vec3f(0.0); // by the exposed colour
    var by_lower = vec3f(0.0);
    for (var channel = 0u; channel < 3u; channel++) {
        for (var i = thread; i < AREA; i += THREADS) {
            let near = vec2i(group.xy * TILE) + vec2i(vec2u(i % SIDE, i / SIDE)) - vec2i(i32(RADIUS));
            let known = all(near >= vec2i(0)) && all(near < vec2i(view.size.xy));
            let from_pixel = 3u * channel * plane + u32(near.y) * view.size.x + u32(near.x);
            for (var map = 0u; map < 3u; map++) {
                var value = 0.0;
                if (known) {
                    value = derivatives[from_pixel + map * plane];
                }
                values[map * AREA + i] = value;
            }
        }
        workgroupBarrier();
        let strip = 4u * thread;
        let first = strip / TILE * SIDE + strip % TILE;
        var map0 = vec4f(0.0);
        var map1 = vec4f(0.0);
        var map2 = vec4f(0.0);
        if (strip < STRIP) {
            for (var k = 0u; k < 14u; k++) {
                let weight = loss.window[k];
                map0 = fma(weight, vec4f(values[first + k]), map0);
                map1 = fma(weight, vec4f(values[AREA + first + k]), map1);
                map2 = fma(weight, vec4f(values[2u * AREA + first + k]), map2);
            }
        }
        workgroupBarrier();
        if (strip < STRIP) {
            for (var i = 0u; i < 4u; i++) {
                values[strip + i] = map0[i];
                values[STRIP + strip + i] = map1[i];
                values[2u * STRIP + strip + i] = map2[i];
            }
        }
        workgroupBarrier();
        var upper_maps = vec3f(0.0);
        var lower_maps = vec3f(0.0);
        for (var k = 0u; k < 12u; k++) {
            let i = (local.y + k) * TILE + local.x;
            let maps = vec3f(values[i], values[STRIP + i], values[2u * STRIP + i]);
            upper_maps = fma(vec3f(loss.window[k].x), maps, upper_maps);
            lower_maps = fma(vec3f(loss.window[k].y), maps, lower_maps);
        }
        workgroupBarrier();
        by_upper[channel] = by_channel(upper.exposed[channel], upper.wanted[channel], upper_maps) / (3.0 * count);
        by_lower[channel] = by_channel(lower.exposed[channel], lower.wanted[channel], lower_maps) / (3.0 * count);
    }
    // Windows around other pixels reach over the hidden ones, too.
    if (upper.hidden) {
        by_upper = vec3f(0.0);
    }
    if (lower.hidden) {
        by_lower = vec3f(0.0);
    }
    if (inside.x) {
        put_gradient(upper, by_upper, rows, count);
    } else {
        by_upper = vec3f(0.0);
    }
    if (inside.y) {
        put_gradient(lower, by_lower, rows, count);
    } else {
        by_lower = vec3f(0.0);
    }
    if (loss.exposure != NO_EXPOSURE) {
        let tile = 4u * (group.y * view.size.z + group.x);
        for (var channel = 0u; channel < 3u; channel++) {
            let both = by_upper[channel] * without_background(upper.rendered, background.xyz)
                + by_lower[channel] * without_background(lower.rendered, background.xyz);
            let total = sum_group(thread, both);
            if (thread == 0u) {
                sums[tile + 1u + channel] = total;
            }
        }
    }
}

// Gradient by one channel of a pixel as it was compared, times the number of values; `maps`: the window over the derivatives.
fn by_channel(exposed: f32, wanted: f32, maps: vec3f) -> f32 {
    let by_ssim = maps.x + 2.0 * exposed * maps.y + wanted * maps.z;
    return (1.0 - loss.ssim_weight) * sign(exposed - wanted) - loss.ssim_weight * by_ssim;
}

fn put_gradient(pixel: Compared, by_exposed: vec3f, rows: mat3x4f, count: f32) {
    let alpha_error = 1.0 - pixel.rendered.w - pixel.alpha;
    let by_shown = by_exposed.x * rows[0].xyz + by_exposed.y * rows[1].xyz + by_exposed.z * rows[2].xyz;
    // It is by the colour over the background, and the exposure leaves the background as it is: how much of it alpha covers, and
    // what offset alpha brings, is added to the gradient by alpha.
    let by_alpha = dot(by_exposed, vec3f(rows[0].w, rows[1].w, rows[2].w))
        + dot(by_shown - by_exposed, background.xyz);
    // Exactly nothing where nothing is known, however the difference is rounded.
    let by_error = select(loss.alpha_weight * sign(alpha_error) / count, 0.0, pixel.hidden);
    gradient[pixel.at] = vec4f(by_shown, by_alpha + by_error);
    let difference = abs(pixel.exposed - pixel.wanted);
    pixels[pixel.at].y = bitcast<u32>((difference.x + difference.y + difference.z) / 3.0);
}
