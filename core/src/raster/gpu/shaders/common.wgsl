// Shared by all passes. The constants TILE, NEAR, DILATION, ALPHA_MIN, ALPHA_MAX, TRANSMITTANCE_MIN, FOLD, SORT_BLOCK
// and others stand before this text: the host writes them from its own.

// One view; see the host's ViewUniform.
struct View {
    row0: vec4f, // world to camera: a row of the rotation, and the translation
    row1: vec4f,
    row2: vec4f,
    focal: vec4f, // fx, fy, cx, cy in pixels
    limit: vec4f, // clamp of x/z and y/z in the Jacobian
    position: vec4f, // camera centre, world
    size: vec4u, // width, height, tiles along x, tiles along y
    scene: vec4u, // number of splats, degree of the harmonics in use, room for intersections, anti-aliasing
}

// A run of splats that shares its buffers; see the host's Page.
struct Page {
    base: u32, // number of its first splat
    count: u32,
    planes: u32, // vec4 planes per splat
    unused: u32,
}

// Positions in the buffer of counts.
const VISIBLE = 0u;
const NEEDED = 1u; // intersections there are
const INTERSECTIONS = 2u; // intersections there was room for: all or none
const POISONED = 3u; // set once there was no room; nothing that lasts is written until the host has made room

// A tile's pixels in quarters: 8x8 pixels each, for 32 threads with two pixels each. Bit 0 of a block's number is its column,
// bit 1 its row.
const BLOCK_SIDE = 8u;
const BLOCKS = 4u;

// What pairs of splat and tile are sorted by: the tile, and above it, out of the sort's sight, the blocks that the splat
// reaches, a bit each.

fn pair_key(tile: u32, blocks: u32) -> u32 {
    return tile | (blocks << TILE_BITS);
}

fn pair_tile(key: u32) -> u32 {
    return key & ((1u << TILE_BITS) - 1u);
}

fn pair_blocks(key: u32) -> u32 {
    return key >> TILE_BITS;
}

// Workgroups are numbered along x first, FOLD in a row: one dimension alone ends at 65,535.
fn group_number(id: vec3u) -> u32 {
    return id.x + id.y * FOLD;
}

// Position of plane `k` of a page's splat `i`: 256 splats at a time, plane by plane within.
fn plane_index(i: u32, k: u32, planes: u32) -> u32 {
    return ((i >> 8u) * planes + k) * 256u + (i & 255u);
}
