//! The CPU implementation: plain Rust, SIMD and rayon; generic in the float type, so that f64 is the reference.
