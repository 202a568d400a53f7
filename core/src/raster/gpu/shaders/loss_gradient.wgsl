// Gradient of the loss by the picture, and the sums for the gradient by the exposure. One workgroup per tile, one thread
// per pixel.

@group(0) @binding(0) var<uniform> view: View;
@group(0) @binding(1) var<uniform> background: vec4f;
@group(0) @binding(2) var<uniform> loss: Loss;
@group(0) @binding(3) var<storage, read> picture: array<vec4f>;
@group(0) @binding(4) var<storage, read> target_picture: array<u32>;
@group(0) @binding(5) var<storage, read> exposures: array<vec4f>;
@group(0) @binding(6) var<storage, read> derivatives: array<f32>;
@group(0) @binding(7) var<storage, read_write> sums: array<vec4f>;
@group(0) @binding(8) var<storage, read_write> gradient: array<vec4f>; // by r, g, b, alpha
@group(0) @binding(9) var<storage, read_write> pixels: array<vec2u>; // y: mean absolute colour error

// The three maps of the tile with its surroundings; in their place, once they were read, their sums along x.
var<workgroup> values: array<f32, 3u * AREA>;

// Sums along x at place `i` of the strip.
fn sums_along(i: u32) -> vec3f {
    let first = (i / TILE) * SIDE + i % TILE;
    var maps = vec3f(0.0);
    for (var tap = 0u; tap < WINDOW; tap++) {
        let source = first + tap;
        maps = fma(vec3f(tap_weight(tap)), vec3f(values[source], values[AREA + source], values[2u * AREA + source]), maps);
    }
    return maps;
}

fn put_sums(i: u32, maps: vec3f) {
    values[i] = maps.x;
    values[STRIP + i] = maps.y;
    values[2u * STRIP + i] = maps.z;
}

@compute @workgroup_size(256)
fn differentiate(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_index) thread: u32) {
    let local = vec2u(thread % TILE, thread / TILE);
    let pixel = group.xy * TILE + local;
    let inside = pixel.x < view.size.x && pixel.y < view.size.y;
    let at = min(pixel.y, view.size.y - 1u) * view.size.x + min(pixel.x, view.size.x - 1u);
    let count = f32(view.size.x) * f32(view.size.y);
    let rendered = picture[at];
    let packed = target_picture[at];
    let wanted = composed(packed, background.xyz);
    var rows = mat3x4f(identity_row(0u), identity_row(1u), identity_row(2u));
    if (loss.exposure != NO_EXPOSURE) {
        let first = 3u * loss.exposure;
        rows = mat3x4f(exposures[first], exposures[first + 1u], exposures[first + 2u]);
    }
    let exposed = vec3f(
        expose(rows[0], rendered.xyz),
        expose(rows[1], rendered.xyz),
        expose(rows[2], rendered.xyz),
    );
    let difference = exposed - wanted;

    var by_exposed = vec3f(0.0);
    for (var channel = 0u; channel < 3u; channel++) {
        for (var i = thread; i < AREA; i += 256u) {
            let near = vec2i(group.xy * TILE) + vec2i(vec2u(i % SIDE, i / SIDE)) - vec2i(i32(RADIUS));
            let known = all(near >= vec2i(0)) && all(near < vec2i(view.size.xy));
            for (var map = 0u; map < 3u; map++) {
                var value = 0.0;
                if (known) {
                    value = derivatives[9u * (u32(near.y) * view.size.x + u32(near.x)) + 3u * channel + map];
                }
                values[map * AREA + i] = value;
            }
        }
        workgroupBarrier();
        let sums0 = sums_along(thread);
        var sums1 = vec3f(0.0);
        if (thread + 256u < STRIP) {
            sums1 = sums_along(thread + 256u);
        }
        workgroupBarrier();
        put_sums(thread, sums0);
        if (thread + 256u < STRIP) {
            put_sums(thread + 256u, sums1);
        }
        workgroupBarrier();
        var maps = vec3f(0.0);
        for (var tap = 0u; tap < WINDOW; tap++) {
            let source = (local.y + tap) * TILE + local.x;
            let sums = vec3f(values[source], values[STRIP + source], values[2u * STRIP + source]);
            maps = fma(vec3f(tap_weight(tap)), sums, maps);
        }
        workgroupBarrier();
        let by_ssim = maps.x + 2.0 * exposed[channel] * maps.y + wanted[channel] * maps.z;
        by_exposed[channel] =
            ((1.0 - loss.ssim_weight) * sign(difference[channel]) - loss.ssim_weight * by_ssim) / (3.0 * count);
    }
    if (inside) {
        let alpha_error = 1.0 - rendered.w - unpack4x8unorm(packed).w;
        gradient[at] = vec4f(
            by_exposed.x * rows[0].xyz + by_exposed.y * rows[1].xyz + by_exposed.z * rows[2].xyz,
            loss.alpha_weight * sign(alpha_error) / count,
        );
        pixels[at].y = bitcast<u32>((abs(difference.x) + abs(difference.y) + abs(difference.z)) / 3.0);
    } else {
        by_exposed = vec3f(0.0);
    }
    if (loss.exposure != NO_EXPOSURE) {
        let tile = 4u * (group.y * view.size.z + group.x);
        for (var channel = 0u; channel < 3u; channel++) {
            let total = sum_group(thread, by_exposed[channel] * vec4f(rendered.xyz, 1.0));
            if (thread == 0u) {
                sums[tile + 1u + channel] = total;
            }
        }
    }
}
