// Gradient by the projected splats. One workgroup per tile (and one for what is sorted behind all tiles), a batch of splats
// at a time, back to front. Each warp of 32 threads has two blocks of the tile, a thread two pixels of each, over which it
// sums; then the threads of a warp are added up (sums_in_rows.wgsl or sums_by_shuffles.wgsl), and at last the warps. Each
// (splat, tile) has a slot that this pass writes exactly once.

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

const THREADS = 32u * WARPS;

// Of the splats at work and, in the other half, those that come next.
var<workgroup> records: array<vec4f, 2u * 3u * BATCH>;
var<workgroup> batch_slots: array<u32, 2u * BATCH>;
var<workgroup> batch_blocks: array<u32, 2u * BATCH>;
var<workgroup> longest: atomic<u32>;
var<workgroup> list_length: u32;

// A thread's two pixels of a block.
struct Pixels {
    centre: vec2f, // of the upper one
    used: vec2u,
    transmittance: vec2f, // in front of what was gone through
    behind: vec2f, // dL/d(what lies behind), times what lies behind
    red: vec2f, // dL/d(colour of the pixel)
    green: vec2f,
    blue: vec2f,
    error: vec2f,
}

fn pixels_of(origin: vec2u, block: u32, thread: u32) -> Pixels {
    let upper = origin + upper_pixel(block, thread);
    var p: Pixels;
    p.centre = vec2f(upper) + 0.5;
    p.transmittance = vec2f(1.0);
    for (var i = 0u; i < 2u; i++) {
        let pixel = upper + vec2u(0u, i * PIXEL_GAP);
        if (pixel.x < view.size.x && pixel.y < view.size.y) {
            let at = pixel.y * view.size.x + pixel.x;
            let by_picture = gradient[at];
            let through = picture[at].w;
            p.used[i] = pixels[at].x;
            p.error[i] = bitcast<f32>(pixels[at].y);
            p.transmittance[i] = through;
            p.red[i] = by_picture.x;
            p.green[i] = by_picture.y;
            p.blue[i] = by_picture.z;
            p.behind[i] = through * (dot(by_picture.xyz, background.xyz) - by_picture.w);
        }
    }
    return p;
}

// What a thread has summed over its pixels.
struct Sums {
    // Weighted by dL/d(exponent): 1; sheared distance, dy; their products. Not of dx and dy: along a needle those are large and
    // nearly proportional, and what is to be known is their small rest.
    zeroth: f32,
    first: vec2f,
    second: vec3f,
    // Weighted by the blend weight: dL/d(colour), colour error.
    colour: vec4f,
}

// Goes through one splat, the one at `position` of the tile's list.
fn go_through(p: ptr<function, Pixels>, sums: ptr<function, Sums>, record: u32, position: u32) {
    let reach = reach_of(records[record], records[record + 1u], (*p).centre);
    let counts = (vec2u(position) < (*p).used) & (reach.alpha >= vec2f(ALPHA_MIN));
    if (!any(counts)) {
        return;
    }
    // Where it does not count, zero: then nothing below changes.
    let alpha = select(vec2f(0.0), min(reach.alpha, vec2f(ALPHA_MAX)), counts);
    let through = 1.0 / (1.0 - alpha);
    let rgb = records[record + 2u].xyz;
    let transmittance = (*p).transmittance * through;
    let own = fma(vec2f(rgb.x), (*p).red, fma(vec2f(rgb.y), (*p).green, rgb.z * (*p).blue));
    let by_alpha = fma(transmittance, own, -(*p).behind * through);
    let blend = alpha * transmittance;
    (*p).transmittance = transmittance;
    (*p).behind = fma(blend, own, (*p).behind);
    let by_exponent = select(vec2f(0.0), -alpha * by_alpha, reach.alpha <= vec2f(ALPHA_MAX));
    let by_along = by_exponent * reach.along;
    let by_dy = by_exponent * reach.dy;
    (*sums).zeroth += by_exponent.x + by_exponent.y;
    (*sums).first += vec2f(by_along.x + by_along.y, by_dy.x + by_dy.y);
    (*sums).second += vec3f(dot(by_along, reach.along), dot(by_along, reach.dy), dot(by_dy, reach.dy));
    (*sums).colour +=
        vec4f(dot(blend, (*p).red), dot(blend, (*p).green), dot(blend, (*p).blue), dot(blend, (*p).error));
}

@compute @workgroup_size(THREADS)
fn rasterise_backward(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_index) thread: u32) {
    let tile = group_number(group);
    let tiles = view.size.z * view.size.w;
    if (tile > tiles) {
        return;
    }
    let origin = vec2u(tile % view.size.z, tile / view.size.z) * TILE;
    let range = ranges[tile];
    let warp = thread / 32u;
    var left = pixels_of(origin, 2u * warp, thread);
    var right = pixels_of(origin, 2u * warp + 1u, thread);

    if (thread == 0u) {
        atomicStore(&longest, 0u);
    }
    workgroupBarrier();
    let most = max(left.used, right.used);
    atomicMax(&longest, max(most.x, most.y));
    workgroupBarrier();
    if (thread == 0u) {
        list_length = atomicLoad(&longest);
    }
    let length = workgroupUniformLoad(&list_length);

    // What no pixel used gets no gradient.
    let unused = (range.y - range.x - length) * SLOT;
    for (var i = thread; i < unused; i += THREADS) {
        slots[slot_numbers[range.x + length + i / SLOT] * SLOT + i % SLOT] = 0.0;
    }

    // The thread's part of bringing splats into workgroup memory: a third of a record.
    let fetched = thread / 3u;
    let part = thread % 3u;
    var half = 1u;
    // One turn more than there are batches: the first only fetches.
    for (var turn = 0u; turn <= (length + BATCH - 1u) / BATCH; turn++) {
        let fetched_before = min(turn * BATCH, length);
        let end = length - select(0u, min((turn - 1u) * BATCH, length), turn > 0u);
        let fetches = fetched < BATCH && fetched < length - fetched_before;
        var record = vec4f(0.0);
        var pair = vec2u(0u);
        var slot_number = 0u;
        if (fetches) {
            // Asked for before the work on the batch, needed after it.
            let k = range.x + length - fetched_before - 1u - fetched;
            pair = intersections[k];
            record = projected[3u * pair.x + part];
            slot_number = slot_numbers[k];
        }
        let count = select(0u, min(end, BATCH), turn > 0u);
        for (var j = 0u; j < count; j++) {
            let blocks = (batch_blocks[half * BATCH + j] >> (2u * warp)) & 3u;
            if (blocks == 0u) {
                continue;
            }
            let at = 3u * (half * BATCH + j);
            var sums = Sums();
            if ((blocks & 1u) != 0u) {
                go_through(&left, &sums, at, end - 1u - j);
            }
            if ((blocks & 2u) != 0u) {
                go_through(&right, &sums, at, end - 1u - j);
            }
            // -ln alpha = 1/2 dT conic d + const, with conic d = (kx t, ky t + kq dy) for the sheared distance t: its
            // gradient is -conic d by the centre, -1/2 (conic d)(conic d)T by the covariance.
            let kx = records[at].z / HALF_LOG2_E;
            let ky = records[at].w / HALF_LOG2_E;
            let kq = records[at + 1u].x / HALF_LOG2_E;
            let values = array<f32, SLOT>(
                -kx * sums.first.x,
                -fma(ky, sums.first.x, kq * sums.first.y),
                -0.5 * kx * kx * sums.second.x,
                -kx * fma(ky, sums.second.x, kq * sums.second.y),
                -0.5 * fma(ky * ky, sums.second.x, kq * kq * sums.second.z) - ky * kq * sums.second.y,
                -sums.zeroth * exp2(-records[at + 1u].y),
                sums.colour.x,
                sums.colour.y,
                sums.colour.z,
                sums.colour.w,
            );
            put_values(warp * BATCH + j, thread & 31u, values);
        }
        if (fetches) {
            let to = (1u - half) * BATCH + fetched;
            records[3u * to + part] = record;
            if (part == 0u) {
                batch_slots[to] = slot_number;
                batch_blocks[to] = pair.y;
            }
        }
        workgroupBarrier();

        if (thread < count * SLOT) {
            let splat = half * BATCH + thread / SLOT;
            var sum = 0.0;
            for (var w = 0u; w < WARPS; w++) {
                if (((batch_blocks[splat] >> (2u * w)) & 3u) != 0u) {
                    sum += warp_sum(w * BATCH * SLOT + thread);
                }
            }
            slots[batch_slots[splat] * SLOT + thread % SLOT] = sum;
        }
        half = 1u - half;
        workgroupBarrier();
    }
}
