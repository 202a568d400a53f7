// Blends the picture front to back. One workgroup per tile, one thread per pixel. The splats of the tile's list are brought
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

const STAGE = 256u; // splats that are brought together, one by each thread
const WORDS = STAGE / 32u;

var<workgroup> records: array<vec4f, 3u * STAGE>;
var<workgroup> reaching: array<atomic<u32>, BLOCKS * WORDS>; // block by block, a bit for each splat
var<workgroup> open_pixels: atomic<u32>; // that light still passes through
var<workgroup> goes_on: u32;

@compute @workgroup_size(256)
fn rasterise(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_index) thread: u32) {
    let pixel = group.xy * TILE + tile_pixel(thread);
    let range = ranges[group.y * view.size.z + group.x];
    let centre = vec2f(pixel) + 0.5;
    let first_word = thread / BLOCK * WORDS;
    var transmittance = 1.0;
    var rgb = vec3f(0.0);
    var used = 0u;
    var open = pixel.x < view.size.x && pixel.y < view.size.y;
    if (thread == 0u) {
        atomicStore(&open_pixels, 0u);
    }
    workgroupBarrier();
    if (open) {
        atomicAdd(&open_pixels, 1u);
    }
    for (var first = range.x; first < range.y; first += STAGE) {
        workgroupBarrier();
        if (thread == 0u) {
            goes_on = atomicLoad(&open_pixels);
        }
        if (thread < BLOCKS * WORDS) {
            atomicStore(&reaching[thread], 0u);
        }
        if (workgroupUniformLoad(&goes_on) == 0u) {
            break;
        }
        if (first + thread < range.y) {
            let pair = intersections[first + thread];
            for (var part = 0u; part < 3u; part++) {
                records[3u * thread + part] = projected[3u * pair.x + part];
            }
            for (var left = pair.y; left != 0u; left &= left - 1u) {
                atomicOr(&reaching[firstTrailingBit(left) * WORDS + thread / 32u], 1u << (thread % 32u));
            }
        }
        workgroupBarrier();
        for (var word = 0u; word < WORDS && open; word++) {
            for (var left = atomicLoad(&reaching[first_word + word]); left != 0u; left &= left - 1u) {
                let k = word * 32u + firstTrailingBit(left);
                let p0 = records[3u * k];
                let p1 = records[3u * k + 1u];
                let alpha = min(ALPHA_MAX, unclamped_alpha(centre - p0.xy, p0.zw, p1.xy));
                if (alpha < ALPHA_MIN) {
                    continue;
                }
                let next = transmittance * (1.0 - alpha);
                if (next < TRANSMITTANCE_MIN) {
                    open = false;
                    atomicSub(&open_pixels, 1u);
                    break;
                }
                rgb = fma(vec3f(alpha * transmittance), records[3u * k + 2u].xyz, rgb);
                transmittance = next;
                used = first + k + 1u - range.x;
            }
        }
    }
    if (pixel.x < view.size.x && pixel.y < view.size.y) {
        let at = pixel.y * view.size.x + pixel.x;
        picture[at] = vec4f(fma(vec3f(transmittance), background.xyz, rgb), transmittance);
        pixels[at].x = used;
    }
}
