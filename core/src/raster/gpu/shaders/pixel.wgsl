// What the forward and the backward rasteriser share.

// Position in the tile: threads next to each other form small squares, which see the same splats.
fn tile_pixel(thread: u32) -> vec2u {
    let x = (thread & 1u) | ((thread >> 1u) & 2u) | ((thread >> 2u) & 4u) | ((thread >> 3u) & 8u);
    let y = ((thread >> 1u) & 1u) | ((thread >> 2u) & 2u) | ((thread >> 3u) & 4u) | ((thread >> 4u) & 8u);
    return vec2u(x, y);
}

// opacity * exp(-1/2 dT conic d); see project.wgsl for the form. `shape`: squeeze, log2 of the opacity.
fn unclamped_alpha(d: vec2f, skew: vec2f, shape: vec2f) -> f32 {
    let along = fma(skew.x, d.x, skew.y * d.y);
    return exp2(fma(-along, along, fma(-shape.x * d.y, d.y, shape.y)));
}
