// What the passes of the loss share. They call their uniform `loss`.

struct Loss {
    ssim_weight: f32,
    alpha_weight: f32, // zero if the target has no alpha
    exposure: u32, // number of the exposure, or NO_EXPOSURE
    unused: u32,
    // SSIM's window, a Gaussian of sigma 1.5 over 11 taps, sum 1, as the weights that a value has in the sums of four places
    // next to each other: of value k in sums 0 to 3 the taps k, k-1, k-2, k-3, where there are such.
    window: array<vec4f, 14>,
}

const NO_EXPOSURE = 0xffffffffu;
const RADIUS = 5u;
const SIDE = TILE + 2u * RADIUS; // of a tile with the window's surroundings
const AREA = SIDE * SIDE;
const STRIP = SIDE * TILE; // a tile with the surroundings above and below only
// Two pixels a thread, one below the other.
const THREADS = TILE * TILE / 2u;

// The upper pixel of a thread in its tile.
fn upper_pixel(thread: u32) -> vec2u {
    return vec2u(thread % TILE, 2u * (thread / TILE));
}

// The target over the background.
fn composed(packed: u32, background: vec3f) -> vec3f {
    let rgba = unpack4x8unorm(packed);
    return mix(background, rgba.xyz, rgba.w);
}

// Whether something else stands in front of the scene in that pixel of the target: whatever is rendered there is right.
fn is_hidden(packed: u32) -> bool {
    return packed == 0x00ffffffu; // white and transparent; other transparent pixels are black
}

// What the scene shows in a pixel of the picture (w: its transmittance) without the background behind it, and its alpha.
fn without_background(shown: vec4f, background: vec3f) -> vec4f {
    return vec4f(shown.xyz - shown.w * background, 1.0 - shown.w);
}

// One row of an exposure's 3x4 matrix applied to what the scene shows: the background is in no camera's exposure.
fn expose(row: vec4f, shown: vec4f, background: vec3f, channel: u32) -> f32 {
    let scene = without_background(shown, background);
    let exposed = fma(row.x, scene.x, fma(row.y, scene.y, fma(row.z, scene.z, row.w * scene.w)));
    return fma(shown.w, background[channel], exposed);
}

// Rows of the identity.
fn identity_row(channel: u32) -> vec4f {
    return select(vec4f(0.0), vec4f(1.0), vec4u(channel) == vec4u(0u, 1u, 2u, 3u));
}
