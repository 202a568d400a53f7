// Gradient by the projected splats. One workgroup per tile (and one for what is sorted behind all tiles), a few splats at
// a time, back to front: first a thread is a pixel and finds the weights of the splats in it, then a thread is a splat
// and a sixteenth of the tile's pixels and sums over them. Each (splat, tile) has a slot that this pass writes exactly once.

@group(0) @binding(0) var<uniform> view: View;
@group(0) @binding(1) var<uniform> background: vec4f;
@group(0) @binding(2) var<storage, read> projected: array<vec4f>;
@group(0) @binding(3) var<storage, read> intersections: array<vec2u>;
@group(0) @binding(4) var<storage, read> ranges: array<vec2u>;
@group(0) @binding(5) var<storage, read> picture: array<vec4f>;
@group(0) @binding(6) var<storage, read> pixels: array<vec2u>;
@group(0) @binding(7) var<storage, read> gradient: array<vec4f>;
// By centre x, y, conic xx, xy, yy, opacity, r, g, b; and the sum of blend weight times colour error.
@group(0) @binding(8) var<storage, read_write> slots: array<f32>;

const SEGMENTS = 16u;
const PARTIALS = BATCH * SLOT + 1u; // one more than needed: neighbours use different memory banks

var<workgroup> weights: array<vec2f, BATCH * 256u>; // dL/d(exponent), blend weight
var<workgroup> pixel_gradient: array<vec4f, 256>; // by r, g, b; colour error
var<workgroup> partials: array<f32, SEGMENTS * PARTIALS>;
var<workgroup> longest: atomic<u32>;
var<workgroup> list_length: u32;

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

    for (var end = length; end > 0u; end -= min(end, BATCH)) {
        for (var j = 0u; j < min(end, BATCH); j++) {
            let k = end - 1u - j;
            let at = 3u * intersections[range.x + k].x;
            let p0 = projected[at];
            let p1 = projected[at + 1u];
            let p2 = projected[at + 2u];
            let unclamped = unclamped_alpha(centre - p0.xy, p0.zw, p1.xy);
            let alpha = min(ALPHA_MAX, unclamped);
            var weight = vec2f(0.0);
            if (k < used && alpha >= ALPHA_MIN) {
                transmittance /= 1.0 - alpha;
                let own = dot(p2.xyz, by_rgb);
                let by_alpha = transmittance * own - behind / (1.0 - alpha);
                behind = fma(alpha * transmittance, own, behind);
                weight = vec2f(select(0.0, -alpha * by_alpha, unclamped <= ALPHA_MAX), alpha * transmittance);
            }
            weights[j * 256u + thread] = weight;
        }
        workgroupBarrier();

        let j = thread / SEGMENTS;
        if (j < min(end, BATCH)) {
            let segment = thread % SEGMENTS;
            let at = 3u * intersections[range.x + end - 1u - j].x;
            let p0 = projected[at];
            let p1 = projected[at + 1u];
            var zeroth = 0.0;
            var first = vec2f(0.0);
            var second = vec3f(0.0);
            var colour = vec4f(0.0);
            for (var p = segment; p < 256u; p += SEGMENTS) {
                let weight = weights[j * 256u + p];
                let d = vec2f(origin + tile_pixel(p)) + 0.5 - p0.xy;
                let weighted = weight.x * d;
                zeroth += weight.x;
                first += weighted;
                second = fma(vec3f(weighted.x, weighted.x, weighted.y), vec3f(d.x, d.y, d.y), second);
                colour = fma(vec4f(weight.y), pixel_gradient[p], colour);
            }
            let skew = p0.zw;
            let conic = vec3f(skew.x * skew.x, skew.x * skew.y, fma(skew.y, skew.y, p1.x)) / HALF_LOG2_E;
            let to = segment * PARTIALS + j * SLOT;
            partials[to] = -(conic.x * first.x + conic.y * first.y);
            partials[to + 1u] = -(conic.y * first.x + conic.z * first.y);
            partials[to + 2u] = 0.5 * second.x;
            partials[to + 3u] = second.y;
            partials[to + 4u] = 0.5 * second.z;
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
            slots[intersections[range.x + end - 1u - splat].y * SLOT + thread % SLOT] = sum;
        }
    }
}
