// Blends the picture front to back. One workgroup per tile, two pixels per thread. The splats of the tile's list are brought
// into workgroup memory together, with a word of bits for each block of pixels that tells which of them reach it, so that
// the threads of a block walk through those only.

@group(0) @binding(0) var<uniform> view: View;
@group(0) @binding(1) var<uniform> background: vec4f;
@group(0) @binding(2) var<storage, read> projected: array<vec4f>;
@group(0) @binding(3) var<storage, read> intersections: array<vec2u>; // splat, blocks
@group(0) @binding(4) var<storage, read> ranges: array<vec2u>;
// Colour over the background; final transmittance.
@group(0) @binding(5) var<storage, read_write> picture: array<vec4f>;
// x: length of the part of the tile's list that the pixel used; y: its colour error, written by the loss.
@group(0) @binding(6) var<storage, read_write> pixels: array<vec2u>;

const THREADS = 32u * BLOCKS;
// Splats that are brought together. Few, because memory for more would keep other workgroups off the processor.
const STAGE = 64u;
const WORDS = STAGE / 32u;

var<workgroup> records: array<vec4f, 3u * STAGE>;
var<workgroup> reaching: array<atomic<u32>, BLOCKS * WORDS>; // block by block, a bit for each splat
var<workgroup> open_threads: atomic<u32>; // with a pixel that light still passes through
var<workgroup> goes_on: u32;

@compute @workgroup_size(THREADS)
fn rasterise(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_index) thread: u32) {
    let block = thread / 32u;
    let pixel = group.xy * TILE + upper_pixel(block, thread);
    let range = ranges[group.y * view.size.z + group.x];
    let centre = vec2f(pixel) + 0.5;
    let inside = vec2<bool>(pixel.x < view.size.x) & (vec2u(pixel.y, pixel.y + PIXEL_GAP) < vec2u(view.size.y));
    var transmittance = vec2f(1.0);
    var red = vec2f(0.0);
    var green = vec2f(0.0);
    var blue = vec2f(0.0);
    var used = vec2u(0u);
    var open = inside;
    if (thread == 0u) {
        atomicStore(&open_threads, 0u);
    }
    workgroupBarrier();
    if (any(open)) {
        atomicAdd(&open_threads, 1u);
    }
    for (var first = range.x; first < range.y; first += STAGE) {
        workgroupBarrier();
        if (thread == 0u) {
            goes_on = atomicLoad(&open_threads);
        }
        if (thread < BLOCKS * WORDS) {
            atomicStore(&reaching[thread], 0u);
        }
        if (workgroupUniformLoad(&goes_on) == 0u) {
            break;
        }
        for (var k = thread; k < min(STAGE, range.y - first); k += THREADS) {
            let pair = intersections[first + k];
            for (var part = 0u; part < 3u; part++) {
                records[3u * k + part] = projected[3u * pair.x + part];
            }
            for (var left = pair.y; left != 0u; left &= left - 1u) {
                atomicOr(&reaching[firstTrailingBit(left) * WORDS + k / 32u], 1u << (k % 32u));
            }
        }
        workgroupBarrier();
        for (var word = 0u; word < WORDS && any(open); word++) {
            for (var left = atomicLoad(&reaching[block * WORDS + word]); left != 0u; left &= left - 1u) {
                let k = word * 32u + firstTrailingBit(left);
                let reach = reach_of(records[3u * k], records[3u * k + 1u], centre);
                let counts = open & (reach.alpha >= vec2f(ALPHA_MIN));
                if (!any(counts)) {
                    continue;
                }
                let alpha = min(reach.alpha, vec2f(ALPHA_MAX));
                let next = transmittance * (1.0 - alpha);
                let takes = counts & (next >= vec2f(TRANSMITTANCE_MIN));
                let blend = select(vec2f(0.0), alpha * transmittance, takes);
                let rgb = records[3u * k + 2u].xyz;
                red = fma(blend, vec2f(rgb.x), red);
                green = fma(blend, vec2f(rgb.y), green);
                blue = fma(blend, vec2f(rgb.z), blue);
                transmittance = select(transmittance, next, takes);
                used = select(used, vec2u(first + k + 1u - range.x), takes);
                open &= takes | !counts;
                if (!any(open)) {
                    atomicSub(&open_threads, 1u);
                    break;
                }
            }
        }
    }
    for (var i = 0u; i < 2u; i++) {
        if (inside[i]) {
            let at = (pixel.y + i * PIXEL_GAP) * view.size.x + pixel.x;
            let rgb = fma(vec3f(transmittance[i]), background.xyz, vec3f(red[i], green[i], blue[i]));
            picture[at] = vec4f(rgb, transmittance[i]);
            pixels[at].x = used[i];
        }
    }
}
