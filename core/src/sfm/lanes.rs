//! Four numbers of double precision that are multiplied and added together: what the sums of adjustments are made of.
//!
//! One text serves processors with vector instructions and without them; which ones it is compiled for, the type of the lanes says.
//! Such a text must not have closures: the compiler makes functions of them that lack the instructions, and calls one for each sum.

#[cfg(target_arch = "x86_64")]
pub(crate) use self::avx2::Avx2;

/// Numbers in a vector.
pub(crate) const LANES: usize = 4;

/// A vector of [`LANES`] numbers.
pub(crate) trait Lanes: Copy {
    fn splat(value: f64) -> Self;
    fn load(from: &[f64; LANES]) -> Self;
    fn store(self, to: &mut [f64; LANES]);
    fn times(self, factor: Self) -> Self;
    /// `self * factor + term`, rounded once where the processor does so as fast.
    fn fma(self, factor: Self, term: Self) -> Self;
    /// `term - self * factor`, rounded as the sum is.
    fn taken_from(self, factor: Self, term: Self) -> Self;
    /// Says what will be read soon, so that it is fetched meanwhile.
    #[inline(always)]
    fn prefetch<T>(_soon: &[T]) {}

    /// Zeros.
    #[inline(always)]
    fn zero() -> Self {
        Self::splat(0.0)
    }
    /// As many vectors as a row has, or the first of them.
    #[inline(always)]
    fn row<const N: usize>(from: &[f64]) -> [Self; N] {
        let mut row = [Self::zero(); N];
        for (out, from) in row.iter_mut().zip(from.as_chunks().0) {
            *out = Self::load(from);
        }
        row
    }
}

/// Whether every processor of the kind that this is compiled for fuses the two operations of a sum.
const FUSED: bool = cfg!(target_arch = "aarch64");

/// Whatever vectors the compiler may assume.
#[derive(Clone, Copy)]
pub(crate) struct Portable([f64; LANES]);

impl Lanes for Portable {
    #[inline(always)]
    fn splat(value: f64) -> Self {
        Self([value; LANES])
    }
    #[inline(always)]
    fn load(from: &[f64; LANES]) -> Self {
        Self(*from)
    }
    #[inline(always)]
    fn store(self, to: &mut [f64; LANES]) {
        *to = self.0;
    }
    #[inline(always)]
    fn times(self, factor: Self) -> Self {
        Self(std::array::from_fn(|k| self.0[k] * factor.0[k]))
    }
    #[inline(always)]
    fn fma(self, factor: Self, term: Self) -> Self {
        let fma = |a: f64, b: f64, c: f64| if FUSED { a.mul_add(b, c) } else { a * b + c };
        Self(std::array::from_fn(|k| fma(self.0[k], factor.0[k], term.0[k])))
    }
    #[inline(always)]
    fn taken_from(self, factor: Self, term: Self) -> Self {
        Self(self.0.map(|value| -value)).fma(factor, term)
    }
}

#[cfg(target_arch = "x86_64")]
mod avx2 {
    use std::arch::x86_64::*;

    use super::{LANES, Lanes};

    /// A register of AVX2, with FMA: only for functions that are compiled for both, whose callers have asked the processor for them.
    #[derive(Clone, Copy)]
    pub(crate) struct Avx2(__m256d);

    impl Lanes for Avx2 {
        #[inline(always)]
        fn splat(value: f64) -> Self {
            // SAFETY: see the type.
            Self(unsafe { _mm256_set1_pd(value) })
        }
        #[inline(always)]
        fn load(from: &[f64; LANES]) -> Self {
            // SAFETY: as above; the array has the size of a register.
            Self(unsafe { _mm256_loadu_pd(from.as_ptr()) })
        }
        #[inline(always)]
        fn store(self, to: &mut [f64; LANES]) {
            // SAFETY: as above.
            unsafe { _mm256_storeu_pd(to.as_mut_ptr(), self.0) }
        }
        #[inline(always)]
        fn times(self, factor: Self) -> Self {
            // SAFETY: see the type.
            Self(unsafe { _mm256_mul_pd(self.0, factor.0) })
        }
        #[inline(always)]
        fn fma(self, factor: Self, term: Self) -> Self {
            // SAFETY: see the type.
            Self(unsafe { _mm256_fmadd_pd(self.0, factor.0, term.0) })
        }
        #[inline(always)]
        fn taken_from(self, factor: Self, term: Self) -> Self {
            // SAFETY: see the type.
            Self(unsafe { _mm256_fnmadd_pd(self.0, factor.0, term.0) })
        }
        #[inline(always)]
        fn prefetch<T>(soon: &[T]) {
            const LINE: usize = 64;
            for at in (0..size_of_val(soon)).step_by(LINE) {
                // SAFETY: the place lies within the slice, and nothing is read.
                unsafe { _mm_prefetch::<_MM_HINT_T0>(soon.as_ptr().cast::<i8>().add(at)) };
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers<V: Lanes>() -> [[f64; LANES]; 4] {
        let [a, b, c] = [[1.5, -2.0, 0.1, 1e9], [3.0, 0.7, 0.2, 1e-9], [-4.5, 1.4, 1e3, 1.0]];
        let [x, y, z] = V::row(&[a, b, c].concat());
        let mut all = [[0.0; LANES]; 4];
        for (out, value) in all.iter_mut().zip([x.times(y), x.fma(y, z), x.taken_from(y, z), V::splat(0.1)]) {
            value.store(out);
        }
        all
    }

    #[test]
    fn vectors_do_what_numbers_do() {
        let portable = numbers::<Portable>();
        assert_eq!(portable[0], [4.5, -1.4, 0.1 * 0.2, 1.0]);
        assert_eq!((portable[1][0], portable[2][0], portable[3]), (0.0, -9.0, [0.1; LANES]));
        #[cfg(target_arch = "x86_64")]
        if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") {
            for (a, b) in numbers::<Avx2>().as_flattened().iter().zip(portable.as_flattened()) {
                assert!((a - b).abs() <= 1e-12 * b.abs().max(1.0), "{a} {b}");
            }
        }
    }

    #[test]
    fn a_row_may_have_more_than_is_wanted_of_it() {
        let mut out = [0.0; LANES];
        let [first] = Portable::row::<1>(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0]);
        first.store(&mut out);
        assert_eq!(out, [1.0, 2.0, 3.0, 4.0]);
    }
}
