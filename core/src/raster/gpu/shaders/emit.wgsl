// Writes the intersections, those of one splat after each other, with the blocks of pixels that the splat reaches in the
// tile. One thread per intersection, so that a splat that covers the picture costs no more time than many small ones.

@group(0) @binding(0) var<uniform> view: View;
@group(0) @binding(1) var<storage, read> counts: array<u32>;
@group(0) @binding(2) var<storage, read> projected: array<vec4f>;
@group(0) @binding(3) var<storage, read> order: array<u32>;
@group(0) @binding(4) var<storage, read> offsets: array<u32>;
@group(0) @binding(5) var<storage, read_write> keys: array<u32>; // tile and blocks, see pair_key
@group(0) @binding(6) var<storage, read_write> owners: array<u32>; // splat

// The blocks of a tile with a pixel centre at which the splat's alpha can reach ALPHA_MIN, a bit each.
fn reached_blocks(f: Footprint, tile: vec2u) -> u32 {
    let column = f32(tile.x * TILE) + 0.5 - f.mean.x; // the first pixel centre, from the splat's
    var blocks = 0u;
    for (var band = 0u; band < TILE / BLOCK_SIDE; band++) {
        let row = tile.y * TILE + band * BLOCK_SIDE;
        let top = f32(row) + 0.5 - f.mean.y;
        if (top > f.extent.y || top + f32(BLOCK_SIDE - 1u) < -f.extent.y) {
            continue;
        }
        let span = footprint_span(f, row, BLOCK_SIDE);
        let left = 1u << (2u * band);
        if (span.x <= column + f32(BLOCK_SIDE - 1u) && span.y >= column) {
            blocks |= left;
        }
        if (span.x <= column + f32(2u * BLOCK_SIDE - 1u) && span.y >= column + f32(BLOCK_SIDE)) {
            blocks |= left << 1u;
        }
    }
    return blocks;
}

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
    var key = view.size.z * view.size.w;
    for (var row = rows.x; row < rows.y; row++) {
        let span = footprint_row(f, row);
        let width = span.y - span.x;
        if (left < width) {
            let tile = vec2u(span.x + left, row);
            key = pair_key(tile.y * view.size.z + tile.x, reached_blocks(f, tile));
            break;
        }
        left -= width;
    }
    keys[slot] = key;
    owners[slot] = splat;
}
