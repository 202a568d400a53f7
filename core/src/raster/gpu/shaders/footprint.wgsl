// Which tiles hold a pixel centre at which a splat's alpha can reach ALPHA_MIN: the ellipse
// { d : (skew.x dx + skew.y dy)^2 + squeeze dy^2 <= reach }, row of tiles by row of tiles. Counting and emitting share
// this; products that are added are spelled as fma, so that no compiler fuses them differently in the two passes.

struct Footprint {
    mean: vec2f,
    extent: vec2f, // half the width and height of the ellipse, px
    skew: vec2f,
    squeeze: f32,
    lean: f32, // how far below the centre the rightmost point is, px
    size: vec2f, // picture, px
    tiles: vec2u,
}

fn footprint(mean: vec2f, skew: vec2f, squeeze: f32, extent: vec2f, size: vec4u) -> Footprint {
    let lean = -extent.x * (skew.x * skew.y) / fma(skew.y, skew.y, squeeze);
    return Footprint(mean, extent, skew, squeeze, lean, vec2f(size.xy), size.zw);
}

// Tiles [x, y) whose pixel centres reach into [low, high] along one axis.
fn tile_interval(low: f32, high: f32, size: f32, tiles: u32) -> vec2u {
    // The first and the last pixel whose centre lies inside, within the picture.
    let first = clamp(ceil(low - 0.5), 0.0, size);
    let last = clamp(floor(high - 0.5), -1.0, size - 1.0);
    if (!(first <= last)) {
        return vec2u(0u, 0u);
    }
    return vec2u(u32(first) / TILE, min(u32(last) / TILE + 1u, tiles));
}

// Rows of tiles [x, y).
fn footprint_rows(f: Footprint) -> vec2u {
    return tile_interval(f.mean.y - f.extent.y, f.mean.y + f.extent.y, f.size.y, f.tiles.y);
}

// Where the ellipse ends along x at the height dy, to the left (side -1) or right (side 1).
fn footprint_edge(f: Footprint, dy: f32, side: f32) -> f32 {
    let squeezed = f.squeeze * dy;
    let limit = f.squeeze * f.extent.y;
    let root = sqrt(max(0.0, fma(limit, f.extent.y, -(squeezed * dy))));
    return fma(side, root, -(f.skew.y * dy)) / f.skew.x;
}

// Where the ellipse ends to the left and to the right, from its centre, within a band of rows of pixels.
fn footprint_span(f: Footprint, first_row: u32, rows: u32) -> vec2f {
    let top = f32(first_row) + 0.5 - f.mean.y;
    let low = clamp(top, -f.extent.y, f.extent.y);
    let high = clamp(top + f32(rows) - 1.0, -f.extent.y, f.extent.y);
    // The ellipse is convex: within the band it is widest at the height nearest to that of its extreme point.
    return vec2f(
        footprint_edge(f, clamp(-f.lean, low, high), -1.0),
        footprint_edge(f, clamp(f.lean, low, high), 1.0),
    );
}

// Tiles [x, y) of a row of tiles; may be empty.
fn footprint_row(f: Footprint, row: u32) -> vec2u {
    let span = footprint_span(f, row * TILE, TILE);
    return tile_interval(f.mean.x + span.x, f.mean.x + span.y, f.size.x, f.tiles.x);
}
