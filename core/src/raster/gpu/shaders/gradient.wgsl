// Gradient by the parameters of one splat: sums its slots, then the chain rule back through the projection.

@group(0) @binding(0) var<uniform> view: View;
@group(0) @binding(1) var<uniform> page: Page;
@group(0) @binding(2) var<storage, read_write> parameters: array<vec4f>;
@group(0) @binding(3) var<storage, read> slots: array<vec2f>; // five per intersection
@group(0) @binding(4) var<storage, read> tiles: array<vec2u>;

struct Gradient {
    mean: vec3f,
    opacity: f32,
    rotation: vec4f,
    log_scale: vec3f,
    colour: vec3f, // by 0.5 + harmonics; zero where the colour was cut off at zero
    direction: vec3f,
    by_centre: vec2f, // by the projected centre
    error: f32,
    geometry: Geometry,
}

// Colour before it is cut off, and its gradient by the direction, given the gradient by the colour.
struct Colour {
    rgb: vec3f,
    by_direction: vec3f,
}

fn colour_and_gradient(i: u32, direction: vec3f, degree: u32, by_rgb: vec3f) -> Colour {
    var rgb = vec3f(0.5);
    var by_direction = mat3x3f();
    for (var group = 0u; group * 4u < (degree + 1u) * (degree + 1u); group++) {
        let basis = mask_harmonics(harmonics(direction, group), degree, group);
        let first = 3u + 3u * group;
        let p0 = parameters[plane_index(i, first, page.planes)];
        var p1 = vec4f(0.0);
        var p2 = vec4f(0.0);
        if (harmonics_in_group(degree, group) > 1u) {
            p1 = parameters[plane_index(i, first + 1u, page.planes)];
            p2 = parameters[plane_index(i, first + 2u, page.planes)];
        }
        let red = mask_harmonics(vec4f(p0.x, p0.w, p1.z, p2.y), degree, group);
        let green = mask_harmonics(vec4f(p0.y, p1.x, p1.w, p2.z), degree, group);
        let blue = mask_harmonics(vec4f(p0.z, p1.y, p2.x, p2.w), degree, group);
        rgb += vec3f(dot(basis, red), dot(basis, green), dot(basis, blue));
        by_direction[0] += harmonics_gradient(direction, group, red);
        by_direction[1] += harmonics_gradient(direction, group, green);
        by_direction[2] += harmonics_gradient(direction, group, blue);
    }
    let open = select(vec3f(0.0), by_rgb, rgb > vec3f(0.0));
    return Colour(rgb, by_direction * open);
}

// What is added up over a splat's slots.
fn slot_sums(first: u32, end: u32) -> array<vec2f, 5> {
    var sums: array<vec2f, 5>;
    for (var slot = first; slot < end;) {
        // The first slot of a whole run holds the sum of the run.
        let run_end = (slot / SLOT_RUN + 1u) * SLOT_RUN;
        let whole = slot % SLOT_RUN == 0u && run_end <= end;
        let count = select(min(4u, min(end, run_end) - slot), 1u, whole);
        // Four at a time, so that they are waited for together.
        let s1 = slot + min(1u, count - 1u);
        let s2 = slot + min(2u, count - 1u);
        let s3 = slot + min(3u, count - 1u);
        let w1 = select(0.0, 1.0, count > 1u);
        let w2 = select(0.0, 1.0, count > 2u);
        let w3 = select(0.0, 1.0, count > 3u);
        for (var part = 0u; part < 5u; part++) {
            let a = slots[5u * slot + part];
            let b = slots[5u * s1 + part];
            let c = slots[5u * s2 + part];
            let d = slots[5u * s3 + part];
            sums[part] += (a + w1 * b) + (w2 * c + w3 * d);
        }
        slot = select(slot + count, run_end, whole);
    }
    return sums;
}

// Of a visible splat.
fn splat_gradient(i: u32) -> Gradient {
    let emitted = tiles[page.base + i];
    let sums = slot_sums(emitted.y, emitted.y + emitted.x - 1u);
    let slot0 = sums[0];
    let slot1 = sums[1];
    let slot2 = sums[2];
    let slot3 = sums[3];
    let slot4 = sums[4];
    let by_rgb = vec3f(slot3, slot4.x);

    let mean = parameters[plane_index(i, 0u, page.planes)];
    let q = parameters[plane_index(i, 1u, page.planes)];
    let log_scale = parameters[plane_index(i, 2u, page.planes)].xyz;
    let camera = world_to_camera(mean.xyz) + vec3f(view.row0.w, view.row1.w, view.row2.w);
    let g = project_geometry(camera, q, log_scale);
    var out: Gradient;
    out.geometry = g;
    out.by_centre = slot0;
    out.error = slot4.y;

    let opacity = sigmoid(mean.w);
    out.opacity = slot2.y * opacity * (1.0 - opacity);

    let offset = mean.xyz - view.position.xyz;
    let distance = length(offset);
    out.direction = offset / distance;
    let colour = colour_and_gradient(i, out.direction, view.scene.y, by_rgb);
    out.colour = select(vec3f(0.0), by_rgb, colour.rgb > vec3f(0.0));

    // covariance = u uT + dilation.
    let by_covariance = vec3f(slot1, slot2.x);
    let by_u0 = 2.0 * by_covariance.x * g.u0 + by_covariance.y * g.u1;
    let by_u1 = 2.0 * by_covariance.z * g.u1 + by_covariance.y * g.u0;

    // u0 = fx/z (x - slope_x z), u1 = fy/z (y - slope_y z), with x, y, z the rows of the axes in the camera frame.
    let inverse_z = 1.0 / camera.z;
    let focal = view.focal.xy * inverse_z;
    let z_row = vec3f(g.axes[0].z, g.axes[1].z, g.axes[2].z);
    let by_x_row = focal.x * by_u0;
    let by_y_row = focal.y * by_u1;
    let by_z_row = -g.slope.x * by_x_row - g.slope.y * by_y_row;
    let by_slope = -vec2f(dot(by_x_row, z_row), dot(by_y_row, z_row));
    let free = abs(camera.xy * inverse_z) < view.limit.xy; // where it is clamped, the slope is constant
    let by_free_slope = select(vec2f(0.0), by_slope, free);
    let by_centre = view.focal.xy * slot0; // the centre is focal * (x/z, y/z) + principal point
    var by_camera = vec3f((by_centre + by_free_slope) * inverse_z, 0.0);
    by_camera.z = -inverse_z
        * (dot(by_centre + by_free_slope, camera.xy) * inverse_z + dot(by_u0, g.u0) + dot(by_u1, g.u1));

    let across = (colour.by_direction - out.direction * dot(out.direction, colour.by_direction)) / distance;
    out.mean = camera_to_world(by_camera) + across;

    // axes[k] = world to camera (rotation[k] * scale[k])
    let by_axis0 = camera_to_world(vec3f(by_x_row.x, by_y_row.x, by_z_row.x));
    let by_axis1 = camera_to_world(vec3f(by_x_row.y, by_y_row.y, by_z_row.y));
    let by_axis2 = camera_to_world(vec3f(by_x_row.z, by_y_row.z, by_z_row.z));
    out.log_scale = by_u0 * g.u0 + by_u1 * g.u1; // u is linear in the scales
    let unit = unit_quaternion(q);
    let w = unit.x;
    let x = unit.y;
    let y = unit.z;
    let z = unit.w;
    let r0 = by_axis0 * g.scale.x; // by column 0 of the rotation: rows 0, 1, 2
    let r1 = by_axis1 * g.scale.y;
    let r2 = by_axis2 * g.scale.z;
    let by_unit = 2.0 * vec4f(
        x * (r1.z - r2.y) + y * (r2.x - r0.z) + z * (r0.y - r1.x),
        -2.0 * x * (r1.y + r2.z) + y * (r1.x + r0.y) + z * (r2.x + r0.z) + w * (r1.z - r2.y),
        x * (r1.x + r0.y) - 2.0 * y * (r0.x + r2.z) + z * (r2.y + r1.z) + w * (r2.x - r0.z),
        x * (r2.x + r0.z) + y * (r2.y + r1.z) - 2.0 * z * (r0.x + r1.y) + w * (r0.y - r1.x),
    );
    out.rotation = (by_unit - unit * dot(unit, by_unit)) / max(length(q), 1e-20);
    return out;
}

// Gradient of plane `k` of a group of harmonics: four values in the order of the parameters.
fn harmonics_plane(basis: vec4f, by_colour: vec3f, k: u32) -> vec4f {
    switch k {
        case 0u: {
            return vec4f(basis.x * by_colour, basis.y * by_colour.x);
        }
        case 1u: {
            return vec4f(basis.y * by_colour.yz, basis.z * by_colour.xy);
        }
        default: {
            return vec4f(basis.z * by_colour.z, basis.w * by_colour);
        }
    }
}
