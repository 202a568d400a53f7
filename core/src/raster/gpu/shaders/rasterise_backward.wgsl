// Gradient by the projected splats. One workgroup per tile (and one for what is sorted behind all tiles), a batch of splats
// at a time, back to front. First a thread is a pixel and finds the weights of the splats that reach its block, in a place
// for each pair of splat and block; then a thread is such a pair and sums over the block's pixels; then the pairs of a splat
// are added up. Each (splat, tile) has a slot that this pass writes exactly once.

@group(0) @binding(0) var<uniform> view: View;
@group(0) @binding(1) var<uniform> background: vec4f;
@group(0) @binding(2) var<storage, read> projected: array<vec4f>;
@group(0) @binding(3) var<storage, read> intersections: array<vec2u>; // splat, blocks
@group(0) @binding(4) var<storage, read> slot_numbers: array<u32>; // of each intersection
@group(0) @binding(5) var<storage, read> ranges: array<vec2u>;
@group(0) @binding(6) var<storage, read> picture: array<vec4f>;
@group(0) @binding(7) var<storage, read> pixels: array<vec2u>;
@group(0) @binding(8) var<storage, read> gradient: array<vec4f>;
// By centre x, y, covariance xx, xy, yy, opacity, r, g, b; and the sum of blend weight times colour error.
@group(0) @binding(9) var<storage, read_write> slots: array<f32>;

// One more than is stored, so that neighbours use different memory banks.
const PLACE = BLOCK + 1u;
const SUM = SLOT + 1u;

var<workgroup> weights: array<vec2f, PLACES * PLACE>; // dL/d(exponent), blend weight
var<workgroup> pixel_gradient: array<vec4f, BLOCKS * PLACE>; // by r, g, b; colour error
var<workgroup> sums: array<f32, PLACES * SUM>;
var<workgroup> owners: array<u32, PLACES>; // splat of the batch, and from bit 8 the block
// Of the splats at work and, in the other half, those that come next.
var<workgroup> records: array<vec4f, 2u * 3u * BATCH>;
var<workgroup> batch_slots: array<u32, 2u * BATCH>;
var<workgroup> batch_places: array<u32, 2u * BATCH>; // blocks, and from bit 8 the first of the places
var<workgroup> reaching: array<u32, 2u * BLOCKS>; // the splats that reach the block, a bit each
var<workgroup> batch_length: u32;
var<workgroup> longest: atomic<u32>;
var<workgroup> list_length: u32;

// Brings the last splats before `end` of the tile's list into one half of the batch: as many as there are places for. Each
// warp does a part of it, the first of them none: those sum up the batch before.
fn fetch(first: u32, end: u32, half: u32, thread: u32) {
    let most = min(end, BATCH);
    if (thread >= 128u && thread < 128u + 3u * most) {
        let j = (thread - 128u) / 3u;
        let part = (thread - 128u) % 3u;
        let k = first + end - 1u - j;
        records[half * 3u * BATCH + 3u * j + part] = projected[3u * intersections[k].x + part];
        if (part == 0u) {
            batch_slots[half * BATCH + j] = slot_numbers[k];
        }
    }
    if (thread >= 192u && thread < 192u + BLOCKS) {
        let block = thread - 192u;
        var bits = 0u;
        var place = 0u;
        var j = 0u;
        for (; j < most; j++) {
            let blocks = intersections[first + end - 1u - j].y;
            let next = place + countOneBits(blocks);
            if (next > PLACES) {
                break;
            }
            bits |= ((blocks >> block) & 1u) << j;
            if (block == 0u) {
                batch_places[half * BATCH + j] = blocks | (place << 8u);
            }
            place = next;
        }
        reaching[half * BLOCKS + block] = bits;
        if (block == 0u) {
            batch_length = j;
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
    let block = thread / BLOCK;
    let in_block = thread % BLOCK;

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
    pixel_gradient[block * PLACE + in_block] = vec4f(by_rgb, error);
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
        slots[slot_numbers[range.x + length + i / SLOT] * SLOT + i % SLOT] = 0.0;
    }

    fetch(range.x, length, 0u, thread);
    var half = 0u;
    var end = length;
    while (end > 0u) {
        let count = workgroupUniformLoad(&batch_length);
        for (var left = reaching[half * BLOCKS + block]; left != 0u; left &= left - 1u) {
            let j = firstTrailingBit(left);
            let places = batch_places[half * BATCH + j];
            let place = (places >> 8u) + countOneBits(places & ((1u << block) - 1u));
            var weight = vec2f(0.0);
            if (end - 1u - j < used) {
                let at = 3u * (half * BATCH + j);
                let p0 = records[at];
                let p1 = records[at + 1u];
                let unclamped = unclamped_alpha(centre - p0.xy, p0.zw, p1.xy);
                if (unclamped >= ALPHA_MIN) {
                    let alpha = min(ALPHA_MAX, unclamped);
                    let through = 1.0 / (1.0 - alpha);
                    transmittance *= through;
                    let own = dot(records[at + 2u].xyz, by_rgb);
                    let by_alpha = fma(transmittance, own, -behind * through);
                    behind = fma(alpha * transmittance, own, behind);
                    weight = vec2f(select(0.0, -alpha * by_alpha, unclamped <= ALPHA_MAX), alpha * transmittance);
                }
            }
            weights[place * PLACE + in_block] = weight;
            if (in_block == 0u) {
                owners[place] = j | (block << 8u);
            }
        }
        workgroupBarrier();

        fetch(range.x, end - count, 1u - half, thread);
        let last = batch_places[half * BATCH + count - 1u];
        if (thread < (last >> 8u) + countOneBits(last & 255u)) {
            let owner = owners[thread];
            let at = 3u * (half * BATCH + (owner & 255u));
            let p0 = records[at];
            let p1 = records[at + 1u];
            // The bits of a thread's number make up its place: places of disjoint bits add up.
            let corner = vec2f(origin + tile_pixel((owner >> 8u) * BLOCK)) + 0.5 - p0.xy;
            let first_gradient = (owner >> 8u) * PLACE;
            var zeroth = 0.0;
            // Moments of the sheared distance and dy, not of dx and dy: along a needle those are large and nearly
            // proportional, and what is to be known is their small rest.
            var first = vec2f(0.0);
            var second = vec3f(0.0);
            var colour = vec4f(0.0);
            for (var p = 0u; p < BLOCK; p++) {
                let weight = weights[thread * PLACE + p];
                let d = corner + vec2f(tile_pixel(p));
                let sheared = vec2f(fma(p0.z, d.x, p0.w * d.y), d.y);
                let weighted = weight.x * sheared;
                zeroth += weight.x;
                first += weighted;
                second = fma(weighted.xxy, sheared.xyy, second);
                colour = fma(vec4f(weight.y), pixel_gradient[first_gradient + p], colour);
            }
            // -ln alpha = 1/2 dT conic d + const, with conic d = (kx t, ky t + kq dy) for the sheared distance t: its
            // gradient is -conic d by the centre, -1/2 (conic d)(conic d)T by the covariance.
            let kx = p0.z / HALF_LOG2_E;
            let ky = p0.w / HALF_LOG2_E;
            let kq = p1.x / HALF_LOG2_E;
            let to = thread * SUM;
            sums[to] = -kx * first.x;
            sums[to + 1u] = -fma(ky, first.x, kq * first.y);
            sums[to + 2u] = -0.5 * kx * kx * second.x;
            sums[to + 3u] = -kx * fma(ky, second.x, kq * second.y);
            sums[to + 4u] = -0.5 * fma(ky * ky, second.x, kq * kq * second.z) - ky * kq * second.y;
            sums[to + 5u] = -zeroth * exp2(-p1.y);
            sums[to + 6u] = colour.x;
            sums[to + 7u] = colour.y;
            sums[to + 8u] = colour.z;
            sums[to + 9u] = colour.w;
        }
        workgroupBarrier();

        let splat = thread / SLOT;
        if (splat < count) {
            let places = batch_places[half * BATCH + splat];
            let first_place = places >> 8u;
            let end_place = first_place + countOneBits(places & 255u);
            var sum = 0.0;
            for (var place = first_place; place < end_place; place++) {
                sum += sums[place * SUM + thread % SLOT];
            }
            slots[batch_slots[half * BATCH + splat] * SLOT + thread % SLOT] = sum;
        }
        half = 1u - half;
        end -= count;
    }
}
