// Writes the intersections, those of one splat after each other. One thread per intersection, so that a splat that
// covers the picture costs no more time than many small ones.

@group(0) @binding(0) var<uniform> view: View;
@group(0) @binding(1) var<storage, read> counts: array<u32>;
@group(0) @binding(2) var<storage, read> projected: array<vec4f>;
@group(0) @binding(3) var<storage, read> order: array<u32>;
@group(0) @binding(4) var<storage, read> offsets: array<u32>;
@group(0) @binding(5) var<storage, read_write> keys: array<u32>; // tile
@group(0) @binding(6) var<storage, read_write> owners: array<u32>; // splat

@compute @workgroup_size(256)
fn emit(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_index) thread: u32) {
    let slot = group_number(group) * 256u + thread;
    if (slot >= counts[INTERSECTIONS]) {
        return;
    }
    // The last splat whose intersections begin at or before this one.
    var low = 0u;
    var high = counts[VISIBLE];
    while (high - low > 1u) {
        let middle = (low + high) / 2u;
        if (offsets[middle] <= slot) {
            low = middle;
        } else {
            high = middle;
        }
    }
    let splat = order[low];
    let p0 = projected[3u * splat];
    let p1 = projected[3u * splat + 1u];
    let f = footprint(p0.xy, p0.zw, p1.x, p1.zw, view.size);
    let rows = footprint_rows(f);
    var left = slot - offsets[low];
    // Past the last tile: only if the count was rounded otherwise; such an entry is sorted behind all tiles.
    var tile = view.size.z * view.size.w;
    for (var row = rows.x; row < rows.y; row++) {
        let span = footprint_row(f, row);
        let width = span.y - span.x;
        if (left < width) {
            tile = row * view.size.z + span.x + left;
            break;
        }
        left -= width;
    }
    keys[slot] = tile;
    owners[slot] = splat;
}
