// Blends the picture front to back. One workgroup per tile, one thread per pixel; all threads walk the tile's list with
// the same index, so every load is a broadcast, and a group of pixels that is opaque leaves without waiting for others.

@group(0) @binding(0) var<uniform> view: View;
@group(0) @binding(1) var<uniform> background: vec4f;
@group(0) @binding(2) var<storage, read> projected: array<vec4f>;
@group(0) @binding(3) var<storage, read> intersections: array<vec2u>;
@group(0) @binding(4) var<storage, read> ranges: array<vec2u>;
// Colour over the background; final transmittance.
@group(0) @binding(5) var<storage, read_write> picture: array<vec4f>;
// x: length of the part of the tile's list that the pixel used; y: its colour error, written by the loss.
@group(0) @binding(6) var<storage, read_write> pixels: array<vec2u>;

@compute @workgroup_size(256)
fn rasterise(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_index) thread: u32) {
    let pixel = group.xy * TILE + tile_pixel(thread);
    if (pixel.x >= view.size.x || pixel.y >= view.size.y) {
        return;
    }
    let range = ranges[group.y * view.size.z + group.x];
    let centre = vec2f(pixel) + 0.5;
    var transmittance = 1.0;
    var rgb = vec3f(0.0);
    var used = 0u;
    for (var k = range.x; k < range.y; k++) {
        let at = 3u * intersections[k].x;
        let p0 = projected[at];
        let p1 = projected[at + 1u];
        let p2 = projected[at + 2u];
        let alpha = min(ALPHA_MAX, unclamped_alpha(centre - p0.xy, p0.zw, p1.xy));
        if (alpha < ALPHA_MIN) {
            continue;
        }
        let next = transmittance * (1.0 - alpha);
        if (next < TRANSMITTANCE_MIN) {
            break;
        }
        rgb = fma(vec3f(alpha * transmittance), p2.xyz, rgb);
        transmittance = next;
        used = k + 1u - range.x;
    }
    let at = pixel.y * view.size.x + pixel.x;
    picture[at] = vec4f(fma(vec3f(transmittance), background.xyz, rgb), transmittance);
    pixels[at].x = used;
}
