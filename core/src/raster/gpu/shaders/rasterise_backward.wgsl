// Gradient by the projected splats. One workgroup per tile (and one for what is sorted behind all tiles), a few splats at
// a time, back to front: first a thread is a pixel and finds the weights of the splats in it, then a thread is a splat
// and a share of the tile's pixels (one of SEGMENTS) and sums over them. Each (splat, tile) has a slot that this pass
// writes exactly once.

@group(0) @binding(0) var<uniform> view: View;
@group(0) @binding(1) var<uniform> background: vec4f;
@group(0) @binding(2) var<storage, read> projected: array<vec4f>;
@group(0) @binding(3) var<storage, read> intersections: array<vec2u>;
@group(0) @binding(4) var<storage, read> ranges: array<vec2u>;
@group(0) @binding(5) var<storage, read> picture: array<vec4f>;
@group(0) @binding(6) var<storage, read> pixels: array<vec2u>;
@group(0) @binding(7) var<storage, read> gradient: array<vec4f>;
// By centre x, y, covariance xx, xy, yy, opacity, r, g, b; and the sum of blend weight times colour error.
@group(0) @binding(8) var<storage, read_write> slots: array<f32>;

const PARTIALS = BATCH * SLOT + 1u; // one more than needed: neighbours use different memory banks
const BLOCK = 32u; // pixels that are summed or skipped together

var<workgroup> weights: array<vec2f, BATCH * 256u>; // dL/d(exponent), blend weight
var<workgroup> pixel_gradient: array<vec4f, 256>; // by r, g, b; colour error
var<workgroup> partials: array<f32, SEGMENTS * PARTIALS>;
// Of the splats at work and, in the other half, those that come next.
var<workgroup> records: array<vec4f, 2u * 3u * BATCH>;
var<workgroup> slot_numbers: array<u32, 2u * BATCH>;
var<workgroup> seen: array<atomic<u32>, 2u * BATCH>; // blocks of pixels that the splat reaches, a bit each
var<workgroup> longest: atomic<u32>;
var<workgroup> list_length: u32;

// Brings the splats before `end` of the tile's list into one half of `records`.
fn fetch(first: u32, end: u32, half: u32, thread: u32) {
    let j = thread / 3u;
    if (j < min(end, BATCH)) {
        let pair = intersections[first + end - 1u - j];
        let part = thread % 3u;
        records[half * 3u * BATCH + thread] = projected[3u * pair.x + part];
        if (part == 0u) {
            slot_numbers[half * BATCH + j] = pair.y;
            atomicStore(&seen[half * BATCH + j], 0u);
        }
    }
}

@compute @workgroup_size(256)
fn rasterise_backward(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_index) thread: u32) {
    let tile = group_number(group);
    let tiles = view.size.z * view.size.w;
    if (tile > tiles) {
        return;
    }
    let origin = vec2u(tile % view.size.z, tile / view.size.z) * TILE;
    let pixel = origin + tile_pixel(thread);
    let centre = vec2f(pixel) + 0.5;
    let range = ranges[tile];

    var used = 0u;
    var transmittance = 1.0;
    var by_rgb = vec3f(0.0);
    var error = 0.0;
    var behind = 0.0; // dL/d(what lies behind), times what lies behind
    if (pixel.x < view.size.x && pixel.y < view.size.y) {
        let at = pixel.y * view.size.x + pixel.x;
        let by_picture = gradient[at];
        used = pixels[at].x;
        error = bitcast<f32>(pixels[at].y);
        transmittance = picture[at].w;
        by_rgb = by_picture.xyz;
        behind = transmittance * (dot(by_rgb, background.xyz) - by_picture.w);
    }
    pixel_gradient[thread] = vec4f(by_rgb, error);
    if (thread == 0u) {
        atomicStore(&longest, 0u);
    }
    workgroupBarrier();
    atomicMax(&longest, used);
    workgroupBarrier();
    if (thread == 0u) {
        list_length = atomicLoad(&longest);
    }
    let length = workgroupUniformLoad(&list_length);

    // What no pixel used gets no gradient.
    let unused = (range.y - range.x - length) * SLOT;
    for (var i = thread; i < unused; i += 256u) {
        slots[intersections[range.x + length + i / SLOT].y * SLOT + i % SLOT] = 0.0;
    }

    fetch(range.x, length, 0u, thread);
    workgroupBarrier();
    var half = 0u;
    for (var end = length; end > 0u; end -= min(end, BATCH)) {
        for (var j = 0u; j < min(end, BATCH); j++) {
            let at = 3u * (half * BATCH + j);
            let p0 = records[at];
            let p1 = records[at + 1u];
            let p2 = records[at + 2u];
            let unclamped = unclamped_alpha(centre - p0.xy, p0.zw, p1.xy);
            let alpha = min(ALPHA_MAX, unclamped);
            var weight = vec2f(0.0);
            if (end - 1u - j < used && alpha >= ALPHA_MIN) {
                transmittance /= 1.0 - alpha;
                let own = dot(p2.xyz, by_rgb);
                let by_alpha = transmittance * own - behind / (1.0 - alpha);
                behind = fma(alpha * transmittance, own, behind);
                weight = vec2f(select(0.0, -alpha * by_alpha, unclamped <= ALPHA_MAX), alpha * transmittance);
                atomicOr(&seen[half * BATCH + j], 1u << (thread / BLOCK));
            }
            weights[j * 256u + thread] = weight;
        }
        workgroupBarrier();

        fetch(range.x, end - min(end, BATCH), 1u - half, thread);
        let j = thread / SEGMENTS;
        if (j < min(end, BATCH)) {
            let segment = thread % SEGMENTS;
            let at = 3u * (half * BATCH + j);
            let p0 = records[at];
            let p1 = records[at + 1u];
            let blocks = atomicLoad(&seen[half * BATCH + j]);
            // The bits of a thread's number make up its place: places of disjoint bits add up.
            let first_pixel = vec2f(origin + tile_pixel(segment)) + 0.5 - p0.xy;
            var zeroth = 0.0;
            // Moments of the sheared distance and dy, not of dx and dy: along a needle those are large and nearly
            // proportional, and what is to be known is their small rest.
            var first = vec2f(0.0);
            var second = vec3f(0.0);
            var colour = vec4f(0.0);
            for (var block = 0u; block < 256u; block += BLOCK) {
                if ((blocks & (1u << (block / BLOCK))) == 0u) {
                    continue;
                }
                for (var p = block; p < block + BLOCK; p += SEGMENTS) {
                    let weight = weights[j * 256u + p + segment];
                    let d = first_pixel + vec2f(tile_pixel(p));
                    let sheared = vec2f(fma(p0.z, d.x, p0.w * d.y), d.y);
                    let weighted = weight.x * sheared;
                    zeroth += weight.x;
                    first += weighted;
                    second = fma(weighted.xxy, sheared.xyy, second);
                    colour = fma(vec4f(weight.y), pixel_gradient[p + segment], colour);
                }
            }
            // -ln alpha = 1/2 dT conic d + const, with conic d = (kx t, ky t + kq dy) for the sheared distance t: its
            // gradient is -conic d by the centre, -1/2 (conic d)(conic d)T by the covariance.
            let kx = p0.z / HALF_LOG2_E;
            let ky = p0.w / HALF_LOG2_E;
            let kq = p1.x / HALF_LOG2_E;
            let to = segment * PARTIALS + j * SLOT;
            partials[to] = -kx * first.x;
            partials[to + 1u] = -fma(ky, first.x, kq * first.y);
            partials[to + 2u] = -0.5 * kx * kx * second.x;
            partials[to + 3u] = -kx * fma(ky, second.x, kq * second.y);
            partials[to + 4u] = -0.5 * fma(ky * ky, second.x, kq * kq * second.z) - ky * kq * second.y;
            partials[to + 5u] = -zeroth * exp2(-p1.y);
            partials[to + 6u] = colour.x;
            partials[to + 7u] = colour.y;
            partials[to + 8u] = colour.z;
            partials[to + 9u] = colour.w;
        }
        workgroupBarrier();

        let splat = thread / SLOT;
        if (splat < min(end, BATCH)) {
            var sum = 0.0;
            for (var segment = 0u; segment < SEGMENTS; segment++) {
                sum += partials[segment * PARTIALS + thread];
            }
            slots[slot_numbers[half * BATCH + splat] * SLOT + thread % SLOT] = sum;
        }
        half = 1u - half;
    }
}
