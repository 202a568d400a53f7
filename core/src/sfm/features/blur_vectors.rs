//! The sums of a blur with AVX2, with AVX-512 and with NEON: one text, compiled for each kind of vector.
//!
//! Safety of this file: the vector types are private to the functions at its end, whose callers have asked the processor for
//! the instructions; everything else is inlined into those.

#[cfg(target_arch = "aarch64")]
use std::arch::aarch64::*;
#[cfg(target_arch = "x86_64")]
use std::arch::x86_64::*;
use std::ops::Range;

use super::blur_sums::{BAND, horizontal_sums, vertical_sums};

/// A vector of floats.
trait Vector: Copy {
    /// How many.
    const LANES: usize;
    fn splat(value: f32) -> Self;
    /// # Safety
    /// There are as many numbers there.
    unsafe fn load(from: *const f32) -> Self;
    /// # Safety
    /// There is room for as many numbers there.
    unsafe fn store(self, to: *mut f32);
    fn add(self, other: Self) -> Self;
    /// `self * factor + term`, rounded once.
    fn fma(self, factor: Self, term: Self) -> Self;
}

macro_rules! vector {
    ($type:ty, $lanes:literal, $splat:ident, $load:ident, $store:ident, $add:ident, $fma:ident) => {
        impl Vector for $type {
            const LANES: usize = $lanes;
            #[inline(always)]
            fn splat(value: f32) -> Self {
                // SAFETY: see the top of the file.
                unsafe { $splat(value) }
            }
            #[inline(always)]
            unsafe fn load(from: *const f32) -> Self {
                // SAFETY: as above; the caller says the rest.
                unsafe { $load(from) }
            }
            #[inline(always)]
            unsafe fn store(self, to: *mut f32) {
                // SAFETY: as above; the caller says the rest.
                unsafe { $store(to, self) }
            }
            #[inline(always)]
            fn add(self, other: Self) -> Self {
                // SAFETY: see the top of the file.
                unsafe { $add(self, other) }
            }
            #[inline(always)]
            fn fma(self, factor: Self, term: Self) -> Self {
                // SAFETY: see the top of the file.
                unsafe { $fma(self, factor, term) }
            }
        }
    };
}

#[cfg(target_arch = "x86_64")]
vector!(__m256, 8, _mm256_set1_ps, _mm256_loadu_ps, _mm256_storeu_ps, _mm256_add_ps, _mm256_fmadd_ps);
#[cfg(target_arch = "x86_64")]
vector!(__m512, 16, _mm512_set1_ps, _mm512_loadu_ps, _mm512_storeu_ps, _mm512_add_ps, _mm512_fmadd_ps);
#[cfg(target_arch = "aarch64")]
vector!(float32x4_t, 4, vdupq_n_f32, vld1q_f32, vst1q_f32, vaddq_f32, fma_neon);

/// NEON takes the term first.
#[cfg(target_arch = "aarch64")]
#[target_feature(enable = "neon")]
#[inline]
fn fma_neon(value: float32x4_t, factor: float32x4_t, term: float32x4_t) -> float32x4_t {
    vfmaq_f32(term, value, factor)
}

/// Where chunks begin that cover a row; the last one overlaps the one before it rather than reach beyond the row.
#[inline(always)]
fn chunks(width: usize, size: usize) -> impl Iterator<Item = usize> {
    (0..width.div_ceil(size)).map(move |chunk| (chunk * size).min(width - size))
}

/// See [`vertical_sums`]; `N` vectors of each row at a time.
#[inline(always)]
fn vertical<V: Vector, const N: usize>(
    taps: &[[f32; BAND]],
    rows: &[&[f32]],
    out: &mut [Vec<f32>; BAND],
    inner: Range<usize>,
) {
    let width = inner.len();
    assert!(width >= N * V::LANES && rows.iter().all(|row| row.len() == width));
    let out = out.each_mut().map(|out| &mut out[inner.clone()]);
    for x in chunks(width, N * V::LANES) {
        let mut sums = [[V::splat(0.0); N]; BAND];
        for (tap, row) in taps.iter().zip(rows) {
            // SAFETY: the chunk ends within the width, the length of every row.
            let values: [V; N] =
                std::array::from_fn(|n| unsafe { V::load(row.as_ptr().add(x + n * V::LANES)) });
            for j in 0..BAND {
                let k = V::splat(tap[j]);
                for n in 0..N {
                    sums[j][n] = values[n].fma(k, sums[j][n]);
                }
            }
        }
        for j in 0..BAND {
            for n in 0..N {
                // SAFETY: as above; `out` are slices of that length, too.
                unsafe { sums[j][n].store(out[j].as_mut_ptr().add(x + n * V::LANES)) };
            }
        }
    }
}

/// See [`horizontal_sums`]; `N` vectors at a time.
#[inline(always)]
fn horizontal<V: Vector, const N: usize>(half_kernel: &[f32], padded: &[f32], out: &mut [f32]) {
    let (width, radius) = (out.len(), half_kernel.len() - 1);
    assert!(width >= N * V::LANES && padded.len() == width + 2 * radius);
    for x in chunks(width, N * V::LANES) {
        let mut sums = [V::splat(0.0); N];
        for (i, &k) in half_kernel.iter().enumerate() {
            let k = V::splat(k);
            for n in 0..N {
                let x = x + n * V::LANES;
                // SAFETY: i is at most the radius, and the vector at x ends within the width; so those at x + radius − i
                // and at x + radius + i lie within the width and two radii.
                let (left, right) = unsafe {
                    (
                        V::load(padded.as_ptr().add(x + radius - i)),
                        V::load(padded.as_ptr().add(x + radius + i)),
                    )
                };
                sums[n] = left.add(right).fma(k, sums[n]);
            }
        }
        for n in 0..N {
            // SAFETY: the vector ends within the width.
            unsafe { sums[n].store(out.as_mut_ptr().add(x + n * V::LANES)) };
        }
    }
}

macro_rules! compiled_for {
    (
        $features:literal, $vector:ty,
        $vertical:ident by $rows:literal else $narrow_vertical:ident,
        $horizontal:ident by $columns:literal else $narrow_horizontal:ident
    ) => {
        #[target_feature(enable = $features)]
        pub(super) fn $vertical(
            taps: &[[f32; BAND]],
            rows: &[&[f32]],
            out: &mut [Vec<f32>; BAND],
            inner: Range<usize>,
        ) {
            if inner.len() < $rows * <$vector>::LANES {
                return $narrow_vertical(taps, rows, out, inner);
            }
            vertical::<$vector, $rows>(taps, rows, out, inner);
        }

        #[target_feature(enable = $features)]
        pub(super) fn $horizontal(half_kernel: &[f32], padded: &[f32], out: &mut [f32]) {
            if out.len() < $columns * <$vector>::LANES {
                return $narrow_horizontal(half_kernel, padded, out);
            }
            horizontal::<$vector, $columns>(half_kernel, padded, out);
        }
    };
}

// As many sums as hide the time that an addition takes, and fit the 16 or 32 registers. Rows that are too narrow for those
// of AVX-512 are left to AVX2, so that both give the same bits.
#[cfg(target_arch = "x86_64")]
compiled_for!(
    "avx2,fma", __m256,
    vertical_avx2 by 2 else vertical_sums,
    horizontal_avx2 by 4 else horizontal_sums
);
#[cfg(target_arch = "x86_64")]
compiled_for!(
    "avx512f", __m512,
    vertical_avx512 by 4 else vertical_avx2,
    horizontal_avx512 by 4 else horizontal_avx2
);
#[cfg(target_arch = "aarch64")]
compiled_for!(
    "neon", float32x4_t,
    vertical_neon by 4 else vertical_sums,
    horizontal_neon by 8 else horizontal_sums
);
