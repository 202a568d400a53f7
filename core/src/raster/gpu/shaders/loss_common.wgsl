// What the passes of the loss share.

struct Loss {
    ssim_weight: f32,
    alpha_weight: f32, // zero if the target has no alpha
    exposure: u32, // number of the exposure, or NO_EXPOSURE
    unused: u32,
}

const NO_EXPOSURE = 0xffffffffu;
const WINDOW = 11u;
const RADIUS = 5u;
const SIDE = TILE + 2u * RADIUS; // of a tile with the window's surroundings
const AREA = SIDE * SIDE;
const STRIP = SIDE * TILE; // a tile with the surroundings above and below only

// Gaussian of sigma 1.5 over 11 taps, sum 1.
const WEIGHTS = array<f32, 11>(
    0.0010283801, 0.0075987582, 0.036000773, 0.10936069, 0.21300553, 0.26601172,
    0.21300553, 0.10936069, 0.036000773, 0.0075987582, 0.0010283801,
);

// The target over the background.
fn composed(packed: u32, background: vec3f) -> vec3f {
    let rgba = unpack4x8unorm(packed);
    return mix(background, rgba.xyz, rgba.w);
}

// One row of an exposure's 3x4 matrix applied to a colour.
fn expose(row: vec4f, rgb: vec3f) -> f32 {
    return fma(row.x, rgb.x, fma(row.y, rgb.y, fma(row.z, rgb.z, row.w)));
}

// Rows of the identity.
fn identity_row(channel: u32) -> vec4f {
    return select(vec4f(0.0), vec4f(1.0), vec4u(channel) == vec4u(0u, 1u, 2u, 3u));
}

var<workgroup> reduced: array<vec4f, 128>;

// Sum over the workgroup, in a fixed order; only thread 0 gets it. Ends with a barrier.
fn sum_group(thread: u32, value: vec4f) -> vec4f {
    if (thread >= 128u) {
        reduced[thread - 128u] = value;
    }
    workgroupBarrier();
    if (thread < 128u) {
        reduced[thread] += value;
    }
    workgroupBarrier();
    var sum = vec4f(0.0);
    if (thread < 16u) {
        for (var i = 0u; i < 8u; i++) {
            sum += reduced[thread * 8u + i];
        }
        reduced[thread * 8u] = sum;
    }
    workgroupBarrier();
    if (thread == 0u) {
        for (var i = 1u; i < 16u; i++) {
            sum += reduced[i * 8u];
        }
    }
    workgroupBarrier();
    return sum;
}
