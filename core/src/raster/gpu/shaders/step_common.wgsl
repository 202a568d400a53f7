// One optimiser step (Adam, Kingma & Ba 2015). The passes that make one call their uniform `step`.

struct Step {
    geometry_rates: vec4f, // means, opacities, rotations, scales
    rates: vec4f, // constant colour, other colour, exposure; noise
    decay: vec4f, // beta1, beta2, epsilon, unused
    correction: vec4f, // 1 / (1 - beta1^step), sqrt(1 / (1 - beta2^step)); weights of opacity and scale
    key: vec4u, // step, seed (low, high), unused
}

struct Moments {
    value: vec4f,
    first: vec4f,
    second: vec4f,
}

fn adam(old: Moments, gradient: vec4f, rates: vec4f) -> Moments {
    let beta = step.decay.xy;
    let first = beta.x * old.first + (1.0 - beta.x) * gradient;
    let second = beta.y * old.second + (1.0 - beta.y) * (gradient * gradient);
    let by = sqrt(second) * step.correction.y + step.decay.z;
    return Moments(old.value - rates * (step.correction.x * first / by), first, second);
}

// Whether a number is one. On the bits, because compilers may assume that floats are.
fn is_finite(x: f32) -> bool {
    return (bitcast<u32>(x) & 0x7f800000u) != 0x7f800000u;
}
