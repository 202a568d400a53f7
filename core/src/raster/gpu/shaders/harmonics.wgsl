// Real spherical harmonics up to degree 3 in INRIA's order and signs, four at a time: harmonics 4g .. 4g+3 are group g.

fn harmonics(d: vec3f, group: u32) -> vec4f {
    let x = d.x;
    let y = d.y;
    let z = d.z;
    let xx = x * x;
    let yy = y * y;
    let zz = z * z;
    switch group {
        case 0u: {
            return vec4f(0.28209479177387814, -0.4886025119029199 * y, 0.4886025119029199 * z, -0.4886025119029199 * x);
        }
        case 1u: {
            return vec4f(
                1.0925484305920792 * x * y,
                -1.0925484305920792 * y * z,
                0.31539156525252005 * (2.0 * zz - xx - yy),
                -1.0925484305920792 * x * z,
            );
        }
        case 2u: {
            return vec4f(
                0.5462742152960396 * (xx - yy),
                -0.5900435899266435 * y * (3.0 * xx - yy),
                2.890611442640554 * x * y * z,
                -0.4570457994644658 * y * (4.0 * zz - xx - yy),
            );
        }
        default: {
            return vec4f(
                0.3731763325901154 * z * (2.0 * zz - 3.0 * xx - 3.0 * yy),
                -0.4570457994644658 * x * (4.0 * zz - xx - yy),
                1.445305721320277 * z * (xx - yy),
                -0.5900435899266435 * x * (xx - 3.0 * yy),
            );
        }
    }
}

// Gradient by the direction of sum_k w[k] * harmonic 4*group+k.
fn harmonics_gradient(d: vec3f, group: u32, w: vec4f) -> vec3f {
    let x = d.x;
    let y = d.y;
    let z = d.z;
    let xx = x * x;
    let yy = y * y;
    let zz = z * z;
    switch group {
        case 0u: {
            return 0.4886025119029199 * vec3f(-w.w, -w.y, w.z);
        }
        case 1u: {
            return 1.0925484305920792 * (w.x * vec3f(y, x, 0.0) - w.y * vec3f(0.0, z, y) - w.w * vec3f(z, 0.0, x))
                + 0.31539156525252005 * w.z * vec3f(-2.0 * x, -2.0 * y, 4.0 * z);
        }
        case 2u: {
            return 0.5462742152960396 * w.x * vec3f(2.0 * x, -2.0 * y, 0.0)
                - 0.5900435899266435 * w.y * vec3f(6.0 * x * y, 3.0 * xx - 3.0 * yy, 0.0)
                + 2.890611442640554 * w.z * vec3f(y * z, x * z, x * y)
                - 0.4570457994644658 * w.w * vec3f(-2.0 * x * y, 4.0 * zz - xx - 3.0 * yy, 8.0 * y * z);
        }
        default: {
            return 0.3731763325901154 * w.x * vec3f(-6.0 * x * z, -6.0 * y * z, 6.0 * zz - 3.0 * xx - 3.0 * yy)
                - 0.4570457994644658 * w.y * vec3f(4.0 * zz - 3.0 * xx - yy, -2.0 * x * y, 8.0 * x * z)
                + 1.445305721320277 * w.z * vec3f(2.0 * x * z, -2.0 * y * z, xx - yy)
                - 0.5900435899266435 * w.w * vec3f(3.0 * xx - 3.0 * yy, -6.0 * x * y, 0.0);
        }
    }
}

// Number of harmonics of group `group` that a scene of `degree` uses, and so of the planes that hold them.
fn harmonics_in_group(degree: u32, group: u32) -> u32 {
    let count = (degree + 1u) * (degree + 1u);
    return min(4u, count - min(count, 4u * group));
}

// Weights of the group's harmonics above `degree` become zero.
fn mask_harmonics(basis: vec4f, degree: u32, group: u32) -> vec4f {
    let count = harmonics_in_group(degree, group);
    return select(vec4f(0.0), basis, vec4u(0u, 1u, 2u, 3u) < vec4u(count));
}
