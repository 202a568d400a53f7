// A splat as it is trained, and its projection (EWA, Zwicker et al. 2001). The forward and the backward pass share it;
// both call their uniform `view`.

struct Geometry {
    camera: vec3f, // mean in the camera frame
    slope: vec2f, // x/z and y/z, clamped
    rotation: mat3x3f, // columns: the axes of the splat in the world
    scale: vec3f,
    axes: mat3x3f, // columns: the axes times their scales, in the camera frame
    u0: vec3f, // rows of the projected axes, px: the 2D covariance is u uT + DILATION
    u1: vec3f,
    covariance: vec3f, // xx, xy, yy, px^2
    determinant: f32,
    own_determinant: f32, // without the DILATION
}

fn world_to_camera(v: vec3f) -> vec3f {
    return vec3f(dot(view.row0.xyz, v), dot(view.row1.xyz, v), dot(view.row2.xyz, v));
}

fn camera_to_world(v: vec3f) -> vec3f {
    return view.row0.xyz * v.x + view.row1.xyz * v.y + view.row2.xyz * v.z;
}

fn sigmoid(x: f32) -> f32 {
    return 1.0 / (1.0 + exp(-x));
}

// Everything after the depth test: `camera.z` must be positive.
fn project_geometry(camera: vec3f, q: vec4f, log_scale: vec3f) -> Geometry {
    var g: Geometry;
    g.camera = camera;
    g.slope = clamp(camera.xy / camera.z, -view.limit.xy, view.limit.xy);
    g.rotation = rotation_matrix(unit_quaternion(q));
    g.scale = exp(log_scale);
    g.axes = mat3x3f(
        world_to_camera(g.rotation[0] * g.scale.x),
        world_to_camera(g.rotation[1] * g.scale.y),
        world_to_camera(g.rotation[2] * g.scale.z),
    );
    let focal = view.focal.xy / camera.z;
    let x = vec3f(g.axes[0].x, g.axes[1].x, g.axes[2].x);
    let y = vec3f(g.axes[0].y, g.axes[1].y, g.axes[2].y);
    let z = vec3f(g.axes[0].z, g.axes[1].z, g.axes[2].z);
    g.u0 = focal.x * (x - g.slope.x * z);
    g.u1 = focal.y * (y - g.slope.y * z);
    let xx = dot(g.u0, g.u0);
    let yy = dot(g.u1, g.u1);
    let area = cross(g.u0, g.u1);
    g.covariance = vec3f(xx + DILATION, dot(g.u0, g.u1), yy + DILATION);
    // Lagrange's identity: no difference of large numbers, so that thin splats keep their shape.
    g.own_determinant = dot(area, area);
    g.determinant = g.own_determinant + DILATION * (xx + yy) + DILATION * DILATION;
    return g;
}
