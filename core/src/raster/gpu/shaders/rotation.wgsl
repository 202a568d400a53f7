// Rotation matrix of a unit quaternion; its parts w, x, y, z are the vector's x, y, z, w.
fn rotation_matrix(q: vec4f) -> mat3x3f {
    let w = q.x;
    let x = q.y;
    let y = q.z;
    let z = q.w;
    return mat3x3f(
        vec3f(1.0 - 2.0 * (y * y + z * z), 2.0 * (x * y + w * z), 2.0 * (x * z - w * y)),
        vec3f(2.0 * (x * y - w * z), 1.0 - 2.0 * (x * x + z * z), 2.0 * (y * z + w * x)),
        vec3f(2.0 * (x * z + w * y), 2.0 * (y * z - w * x), 1.0 - 2.0 * (x * x + y * y)),
    );
}

fn unit_quaternion(q: vec4f) -> vec4f {
    return q / max(length(q), 1e-20);
}
