// What the forward and the backward rasteriser share. A thread has two pixels of a block, one four rows below the other, and
// works on both at once: what it computes for one waits for the other's.

// The upper pixel of a thread, in the tile.
fn upper_pixel(block: u32, thread: u32) -> vec2u {
    return vec2u(block & 1u, block >> 1u) * BLOCK_SIDE + vec2u(thread & 7u, (thread & 31u) >> 3u);
}

// How far the other one is below it.
const PIXEL_GAP = 4u;

struct Reach {
    along: vec2f, // sheared distance from the centre along the skew
    dy: vec2f,
    alpha: vec2f, // before it is bounded above
}

// opacity * exp(-1/2 dT conic d) at two pixels, of which the upper one has this centre; see project.wgsl for the form.
fn reach_of(p0: vec4f, p1: vec4f, centre: vec2f) -> Reach {
    let d = centre - p0.xy;
    let dy = vec2f(d.y, d.y + f32(PIXEL_GAP));
    let along = fma(vec2f(p0.w), dy, vec2f(p0.z * d.x));
    return Reach(along, dy, exp2(fma(-along, along, fma(-p1.x * dy, dy, vec2f(p1.y)))));
}
