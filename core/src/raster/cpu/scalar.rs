//! The types of numbers that the rasteriser computes in, and how their kernels are started.

use super::isa::Isa;
use super::lanes::{Kernel, Portable};
use super::real::Real;
#[cfg(target_arch = "x86_64")]
use super::x86;

/// A type of numbers with compiled kernels: `f32`, the product, and `f64`, the reference.
pub trait Scalar: Real {
    /// The instruction set to use for this type on this machine.
    fn best_isa() -> Isa;
    /// Runs `kernel` with the vectors of `isa`.
    fn run<K: Kernel<Self>>(isa: Isa, kernel: K) -> K::Output;
}

impl Scalar for f32 {
    fn best_isa() -> Isa {
        Isa::available().last().copied().unwrap_or(Isa::Portable)
    }
    #[inline]
    fn run<K: Kernel<Self>>(isa: Isa, kernel: K) -> K::Output {
        match isa {
            // SAFETY: an `Isa` other than `Portable` comes from `Isa::available`, which asked the processor.
            #[cfg(target_arch = "x86_64")]
            Isa::Avx2 => unsafe { x86::run_avx2(kernel) },
            #[cfg(target_arch = "x86_64")]
            // SAFETY: as above.
            Isa::Avx512 => unsafe { x86::run_avx512(kernel) },
            _ => kernel.run::<Portable<f32>>(),
        }
    }
}

impl Scalar for f64 {
    fn best_isa() -> Isa {
        Isa::Portable
    }
    #[inline]
    fn run<K: Kernel<Self>>(_: Isa, kernel: K) -> K::Output {
        kernel.run::<Portable<f64>>()
    }
}
