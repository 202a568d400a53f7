// Compares the picture with its target: SSIM (Wang et al. 2004) over a separable window with zero padding, its
// derivatives by the window's moments, and the sums of the loss. One workgroup per tile; the three channels one after the
// other. A thread makes four sums along x and two along y from the values that it has read: reading is what takes the time.

@group(0) @binding(0) var<uniform> view: View;
@group(0) @binding(1) var<uniform> background: vec4f;
@group(0) @binding(2) var<uniform> loss: Loss;
@group(0) @binding(3) var<storage, read> picture: array<vec4f>;
@group(0) @binding(4) var<storage, read> target_picture: array<u32>; // r, g, b, alpha: 8 bits each
@group(0) @binding(5) var<storage, read> exposures: array<vec4f>; // three rows each
// Nine planes: per channel the derivatives of SSIM by E[x], E[x^2] and E[xy].
@group(0) @binding(6) var<storage, read_write> derivatives: array<f32>;
// Four per tile: sums of absolute colour errors, SSIM and absolute alpha errors first; the exposure's later.
@group(0) @binding(7) var<storage, read_write> sums: array<vec4f>;

// First the tile with its surroundings, x and then y; in its place, once it was read, the strips: E[x], E[y], E[x^2], E[y^2],
// E[xy].
var<workgroup> values: array<f32, 5u * STRIP>;

fn load_tile(origin: vec2i, thread: u32, channel: u32) {
    var row = identity_row(channel);
    if (loss.exposure != NO_EXPOSURE) {
        row = exposures[3u * loss.exposure + channel];
    }
    for (var i = thread; i < AREA; i += THREADS) {
        let pixel = origin + vec2i(vec2u(i % SIDE, i / SIDE)) - vec2i(i32(RADIUS));
        var x = 0.0;
        var y = 0.0;
        if (all(pixel >= vec2i(0)) && all(pixel < vec2i(view.size.xy))) {
            let at = u32(pixel.y) * view.size.x + u32(pixel.x);
            x = expose(row, picture[at], background.xyz, channel);
            let packed = target_picture[at];
            y = select(composed(packed, background.xyz)[channel], x, is_hidden(packed));
        }
        values[i] = x;
        values[AREA + i] = y;
    }
}

@compute @workgroup_size(THREADS)
fn compare(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_index) thread: u32) {
    let c1 = 0.01 * 0.01;
    let c2 = 0.03 * 0.03;
    let local = upper_pixel(thread);
    let pixel = group.xy * TILE + local;
    let inside = vec2<bool>(pixel.x < view.size.x) & (vec2u(pixel.y, pixel.y + 1u) < vec2u(view.size.y));
    let at = pixel.y * view.size.x + pixel.x;
    let plane = view.size.x * view.size.y;
    var sum = vec4f(0.0);
    for (var channel = 0u; channel < 3u; channel++) {
        load_tile(vec2i(group.xy * TILE), thread, channel);
        workgroupBarrier();
        // Along x: four places of a row. They are kept until all have read the tile.
        let strip = 4u * thread;
        let first = strip / TILE * SIDE + strip % TILE;
        var x1 = vec4f(0.0);
        var y1 = vec4f(0.0);
        var x2 = vec4f(0.0);
        var y2 = vec4f(0.0);
        var xy = vec4f(0.0);
        if (strip < STRIP) {
            for (var k = 0u; k < 14u; k++) {
                let x = values[first + k];
                let y = values[AREA + first + k];
                let weight = loss.window[k];
                let weighted_x = weight * x;
                let weighted_y = weight * y;
                x1 += weighted_x;
                y1 += weighted_y;
                x2 = fma(weighted_x, vec4f(x), x2);
                y2 = fma(weighted_y, vec4f(y), y2);
                xy = fma(weighted_x, vec4f(y), xy);
            }
        }
        let middle = (local.y + RADIUS) * SIDE + local.x + RADIUS;
        let own_x = vec2f(values[middle], values[middle + SIDE]);
        let own_y = vec2f(values[AREA + middle], values[AREA + middle + SIDE]);
        workgroupBarrier();
        if (strip < STRIP) {
            for (var i = 0u; i < 4u; i++) {
                values[strip + i] = x1[i];
                values[STRIP + strip + i] = y1[i];
                values[2u * STRIP + strip + i] = x2[i];
                values[3u * STRIP + strip + i] = y2[i];
                values[4u * STRIP + strip + i] = xy[i];
            }
        }
        workgroupBarrier();
        // Along y: two pixels of a column.
        var mean_x = vec2f(0.0);
        var mean_y = vec2f(0.0);
        var square_x = vec2f(0.0);
        var square_y = vec2f(0.0);
        var product = vec2f(0.0);
        for (var k = 0u; k < 12u; k++) {
            let i = (local.y + k) * TILE + local.x;
            let weight = loss.window[k].xy;
            mean_x = fma(weight, vec2f(values[i]), mean_x);
            mean_y = fma(weight, vec2f(values[STRIP + i]), mean_y);
            square_x = fma(weight, vec2f(values[2u * STRIP + i]), square_x);
            square_y = fma(weight, vec2f(values[3u * STRIP + i]), square_y);
            product = fma(weight, vec2f(values[4u * STRIP + i]), product);
        }
        workgroupBarrier();
        let variances = (square_x - mean_x * mean_x) + (square_y - mean_y * mean_y);
        let covariance = product - mean_x * mean_y;
        let a1 = 2.0 * mean_x * mean_y + c1;
        let a2 = 2.0 * covariance + c2;
        let b1 = fma(mean_x, mean_x, mean_y * mean_y) + c1;
        let b2 = variances + c2;
        let scale = 1.0 / (b1 * b2);
        let ssim = a1 * a2 * scale;
        let by_mean = 2.0 * mean_y * (a2 - a1) * scale - 2.0 * mean_x * ssim * (1.0 / b1 - 1.0 / b2);
        let by_square = -ssim / b2;
        let by_product = 2.0 * a1 * scale;
        for (var i = 0u; i < 2u; i++) {
            if (inside[i]) {
                let to = 3u * channel * plane + at + i * view.size.x;
                derivatives[to] = by_mean[i];
                derivatives[to + plane] = by_square[i];
                derivatives[to + 2u * plane] = by_product[i];
                sum += vec4f(abs(own_x[i] - own_y[i]), ssim[i], 0.0, 0.0);
            }
        }
    }
    if (loss.alpha_weight != 0.0) {
        for (var i = 0u; i < 2u; i++) {
            if (inside[i]) {
                let here = at + i * view.size.x;
                let packed = target_picture[here];
                if (!is_hidden(packed)) {
                    sum.z += abs(1.0 - picture[here].w - unpack4x8unorm(packed).w);
                }
            }
        }
    }
    let total = sum_group(thread, sum);
    if (thread == 0u) {
        sums[4u * (group.y * view.size.z + group.x)] = total;
    }
}
