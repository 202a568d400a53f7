// Compares the picture with its target: SSIM (Wang et al. 2004) over a separable window with zero padding, its
// derivatives by the window's moments, and the sums of the loss. One workgroup per tile, one thread per pixel; the three
// channels one after the other, so that 16 KiB of workgroup memory hold everything.

@group(0) @binding(0) var<uniform> view: View;
@group(0) @binding(1) var<uniform> background: vec4f;
@group(0) @binding(2) var<uniform> loss: Loss;
@group(0) @binding(3) var<storage, read> picture: array<vec4f>;
@group(0) @binding(4) var<storage, read> target_picture: array<u32>; // r, g, b, alpha: 8 bits each
@group(0) @binding(5) var<storage, read> exposures: array<vec4f>; // three rows each
// Nine per pixel: per channel the derivatives of SSIM by E[x], E[x^2] and E[xy].
@group(0) @binding(6) var<storage, read_write> derivatives: array<f32>;
// Four per tile: sums of absolute colour errors, SSIM and absolute alpha errors first; the exposure's later.
@group(0) @binding(7) var<storage, read_write> sums: array<vec4f>;

// First the tile with its surroundings, x and then y; in its place, once it was read, the strips: E[x], E[y], E[x^2], E[y^2],
// E[xy]. The less memory a workgroup takes, the more of them run at a time.
var<workgroup> values: array<f32, 5u * STRIP>;

fn load_tile(origin: vec2i, thread: u32, channel: u32) {
    var row = identity_row(channel);
    if (loss.exposure != NO_EXPOSURE) {
        row = exposures[3u * loss.exposure + channel];
    }
    for (var i = thread; i < AREA; i += 256u) {
        let pixel = origin + vec2i(vec2u(i % SIDE, i / SIDE)) - vec2i(i32(RADIUS));
        var x = 0.0;
        var y = 0.0;
        if (all(pixel >= vec2i(0)) && all(pixel < vec2i(view.size.xy))) {
            let at = u32(pixel.y) * view.size.x + u32(pixel.x);
            x = expose(row, picture[at].xyz);
            y = composed(target_picture[at], background.xyz)[channel];
        }
        values[i] = x;
        values[AREA + i] = y;
    }
}

// The five sums along x at place `i` of the strip.
fn sums_along(i: u32) -> array<f32, 5> {
    let first = (i / TILE) * SIDE + i % TILE;
    var mean = vec2f(0.0);
    var square = vec2f(0.0);
    var xy = 0.0;
    for (var tap = 0u; tap < WINDOW; tap++) {
        let pair = vec2f(values[first + tap], values[AREA + first + tap]);
        let weighted = tap_weight(tap) * pair;
        mean += weighted;
        square = fma(weighted, pair, square);
        xy = fma(weighted.x, pair.y, xy);
    }
    return array<f32, 5>(mean.x, mean.y, square.x, square.y, xy);
}

@compute @workgroup_size(256)
fn compare(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_index) thread: u32) {
    let c1 = 0.01 * 0.01;
    let c2 = 0.03 * 0.03;
    let local = vec2u(thread % TILE, thread / TILE);
    let pixel = group.xy * TILE + local;
    let inside = pixel.x < view.size.x && pixel.y < view.size.y;
    let at = pixel.y * view.size.x + pixel.x;
    var sum = vec4f(0.0);
    for (var channel = 0u; channel < 3u; channel++) {
        load_tile(vec2i(group.xy * TILE), thread, channel);
        workgroupBarrier();
        // Along x. A thread keeps its sums, of two places, until all have read the tile.
        let sums0 = sums_along(thread);
        var sums1: array<f32, 5>;
        if (thread + 256u < STRIP) {
            sums1 = sums_along(thread + 256u);
        }
        let middle = (local.y + RADIUS) * SIDE + local.x + RADIUS;
        let own = vec2f(values[middle], values[AREA + middle]);
        workgroupBarrier();
        for (var map = 0u; map < 5u; map++) {
            values[map * STRIP + thread] = sums0[map];
            if (thread + 256u < STRIP) {
                values[map * STRIP + thread + 256u] = sums1[map];
            }
        }
        workgroupBarrier();
        // Along y.
        var mean = vec2f(0.0);
        var square = vec2f(0.0);
        var xy = 0.0;
        for (var tap = 0u; tap < WINDOW; tap++) {
            let i = (local.y + tap) * TILE + local.x;
            let weight = tap_weight(tap);
            mean = fma(vec2f(weight), vec2f(values[i], values[STRIP + i]), mean);
            square = fma(vec2f(weight), vec2f(values[2u * STRIP + i], values[3u * STRIP + i]), square);
            xy = fma(weight, values[4u * STRIP + i], xy);
        }
        workgroupBarrier();
        let variance = square - mean * mean;
        let covariance = xy - mean.x * mean.y;
        let a1 = 2.0 * mean.x * mean.y + c1;
        let a2 = 2.0 * covariance + c2;
        let b1 = dot(mean, mean) + c1;
        let b2 = variance.x + variance.y + c2;
        let scale = 1.0 / (b1 * b2);
        let ssim = a1 * a2 * scale;
        if (inside) {
            let to = 9u * at + 3u * channel;
            derivatives[to] = 2.0 * mean.y * (a2 - a1) * scale - 2.0 * mean.x * ssim * (1.0 / b1 - 1.0 / b2);
            derivatives[to + 1u] = -ssim / b2;
            derivatives[to + 2u] = 2.0 * a1 * scale;
            sum += vec4f(abs(own.x - own.y), ssim, 0.0, 0.0);
        }
    }
    if (inside) {
        if (loss.alpha_weight != 0.0) {
            sum.z = abs(1.0 - picture[at].w - unpack4x8unorm(target_picture[at]).w);
        }
    }
    let total = sum_group(thread, sum);
    if (thread == 0u) {
        sums[4u * (group.y * view.size.z + group.x)] = total;
    }
}
