//! Instruction sets in which the kernels are compiled.

/// A way to compute on 16 numbers at once. One that this machine cannot run never leaves [`Isa::available`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Isa {
    /// Plain Rust; the compiler uses what every processor of this family has.
    Portable,
    /// Two vectors of 8 numbers (x86-64 with AVX2 and FMA).
    Avx2,
    /// One vector of 16 numbers (x86-64 with AVX-512 F, DQ, BW and VL).
    Avx512,
}

impl Isa {
    /// Those that this machine can run, the slowest first.
    pub(super) fn available() -> Vec<Self> {
        #[allow(unused_mut)]
        let mut all = vec![Self::Portable];
        #[cfg(target_arch = "x86_64")]
        {
            if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") {
                all.push(Self::Avx2);
                if is_x86_feature_detected!("avx512f")
                    && is_x86_feature_detected!("avx512dq")
                    && is_x86_feature_detected!("avx512bw")
                    && is_x86_feature_detected!("avx512vl")
                {
                    all.push(Self::Avx512);
                }
            }
        }
        all
    }

    /// For people.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Portable => "portable",
            Self::Avx2 => "AVX2",
            Self::Avx512 => "AVX-512",
        }
    }
}
