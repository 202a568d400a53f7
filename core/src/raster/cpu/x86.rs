//! [`Lanes`] of `f32` in the vectors of x86-64: two of AVX2, or one of AVX-512.
//!
//! Safety of this file: the vector types are private to the kernels that [`run_avx2`] and [`run_avx512`] start, whose
//! callers have asked the processor for the instructions; everything else is inlined into those two.

use std::arch::x86_64::*;
use std::ops::{Add, Div, Mul, Neg, Sub};

use super::lanes::{Kernel, LANES, Lanes};
use super::real::{EXP2, LN2, ROUND_MAGIC};

/// # Safety
/// The processor must have AVX2 and FMA.
#[target_feature(enable = "avx2,fma")]
pub(super) unsafe fn run_avx2<K: Kernel<f32>>(kernel: K) -> K::Output {
    kernel.run::<Avx2>()
}

/// # Safety
/// The processor must have AVX-512 F, DQ, BW and VL, AVX2 and FMA.
#[target_feature(enable = "avx512f,avx512dq,avx512bw,avx512vl,avx2,fma")]
pub(super) unsafe fn run_avx512<K: Kernel<f32>>(kernel: K) -> K::Output {
    kernel.run::<Avx512>()
}

/// One vector of 16.
#[derive(Clone, Copy)]
pub(super) struct Avx512(__m512);

/// Two vectors of 8: lanes 0 to 7, lanes 8 to 15.
#[derive(Clone, Copy)]
pub(super) struct Avx2(__m256, __m256);

macro_rules! operator {
    ($trait:ident, $method:ident, $avx512:ident, $avx2:ident) => {
        impl $trait for Avx512 {
            type Output = Self;
            #[inline(always)]
            fn $method(self, other: Self) -> Self {
                // SAFETY: see the top of the file.
                Self(unsafe { $avx512(self.0, other.0) })
            }
        }
        impl $trait for Avx2 {
            type Output = Self;
            #[inline(always)]
            fn $method(self, other: Self) -> Self {
                // SAFETY: see the top of the file.
                unsafe { Self($avx2(self.0, other.0), $avx2(self.1, other.1)) }
            }
        }
    };
}

macro_rules! in_all_lanes {
    ($($type:ident)*) => {$(
        impl Default for $type {
            #[inline(always)]
            fn default() -> Self {
                Self::zero()
            }
        }
        impl Neg for $type {
            type Output = Self;
            #[inline(always)]
            fn neg(self) -> Self {
                Self::zero() - self
            }
        }
    )*};
}

in_all_lanes!(Avx512 Avx2);
operator!(Add, add, _mm512_add_ps, _mm256_add_ps);
operator!(Sub, sub, _mm512_sub_ps, _mm256_sub_ps);
operator!(Mul, mul, _mm512_mul_ps, _mm256_mul_ps);
operator!(Div, div, _mm512_div_ps, _mm256_div_ps);

/// 2^f * 2^n for |f| <= 0.5, where n is in the low bits of `shifted`; the same text for both kinds of vector.
#[inline(always)]
fn exp2_polynomial<V: Lanes<T = f32>>(f: V) -> V {
    // Estrin's scheme: a shorter chain of dependences than Horner's.
    let c = |k: usize| V::splat(EXP2[k]);
    let ff = f * f;
    let (low, middle, high) = (f.fma(c(1), c(0)), f.fma(c(3), c(2)), f.fma(c(5), c(4)));
    ff.fma(c(6), high).fma(ff, middle).fma(ff, low)
}

/// Splits x into (f, shifted): x = f + n with |f| <= 0.5, n in the low bits of `shifted`.
#[inline(always)]
fn split_exp2<V: Lanes<T = f32>>(x: V) -> (V, V) {
    let magic = V::splat(ROUND_MAGIC);
    let shifted = x + magic;
    (x - (shifted - magic), shifted)
}

/// 2^f for f from 0 to 1, of degree 5: relative error 7.5e-8 before rounding (Remez).
#[inline(always)]
fn exp2_of_fraction<V: Lanes<T = f32>>(f: V) -> V {
    const C: [f32; 6] =
        [0.999_999_93, 0.693_153_07, 0.240_153_62, 0.055_826_318, 0.008_989_34, 0.001_877_576_7];
    let c = |k: usize| V::splat(C[k]);
    let ff = f * f;
    let (low, middle, high) = (f.fma(c(1), c(0)), f.fma(c(3), c(2)), f.fma(c(5), c(4)));
    ff.fma(high, middle).fma(ff, low)
}

/// As [`split_exp2`] for x / ln 2.
#[inline(always)]
fn split_exp<V: Lanes<T = f32>>(x: V) -> (V, V) {
    let x = x.max(V::splat(-87.0)).min(V::splat(88.0));
    let (magic, log2e) = (V::splat(ROUND_MAGIC), V::splat(std::f32::consts::LOG2_E));
    let shifted = x.fma(log2e, magic);
    let n = shifted - magic;
    let r = n.fnma(V::splat(LN2[1]), n.fnma(V::splat(LN2[0]), x));
    (r * log2e, shifted)
}

/// log2 of a number from 3/4 to 3/2: absolute error 5e-8 before rounding (minimax).
#[inline(always)]
fn log2_of_mantissa<V: Lanes<T = f32>>(m: V) -> V {
    const C: [f32; 8] = [
        1.442_695_9,
        -0.721_352_12,
        0.480_801_93,
        -0.360_261_04,
        0.290_806_22,
        -0.251_942_12,
        0.201_280_72,
        -0.090_879_07,
    ];
    let f = m - V::splat(1.0);
    let mut p = V::splat(C[7]);
    for k in (0..7).rev() {
        p = p.fma(f, V::splat(C[k]));
    }
    p * f
}

/// Bits of 3/4: what is above them in the bits of a number, shifted by 23, is the exponent that goes with a mantissa from
/// 3/4 to 3/2.
const THREE_QUARTERS: i32 = 0x3f40_0000;

/// Sine and cosine of x turns: absolute errors 2e-9 and 2e-8 before rounding (minimax on half a turn to each side).
#[inline(always)]
fn sin_cos_of_turns<V: Lanes<T = f32>>(x: V) -> [V; 2] {
    const SINE: [f32; 7] =
        [std::f32::consts::TAU, -41.341_697, 81.605_02, -76.701_55, 42.016_167, -14.868_61, 3.199_693];
    const COSINE: [f32; 7] = [1.0, -19.739_204, 64.939_12, -85.450_17, 60.167_83, -25.968_319, 6.529_617];
    let magic = V::splat(ROUND_MAGIC);
    let r = x - ((x + magic) - magic);
    let square = r * r;
    let (mut sine, mut cosine) = (V::splat(SINE[6]), V::splat(COSINE[6]));
    for k in (0..6).rev() {
        sine = sine.fma(square, V::splat(SINE[k]));
        cosine = cosine.fma(square, V::splat(COSINE[k]));
    }
    [sine * r, cosine]
}

/// Methods of [`Lanes`] that one instruction does, for each vector of the type.
macro_rules! by_instruction {
    (one $($method:ident($($other:ident),*): $instruction:ident;)*) => {$(
        #[inline(always)]
        fn $method(self $(, $other: Self)*) -> Self {
            // SAFETY: see the top of the file.
            Self(unsafe { $instruction(self.0 $(, $other.0)*) })
        }
    )*};
    (two $($method:ident($($other:ident),*): $instruction:ident;)*) => {$(
        #[inline(always)]
        fn $method(self $(, $other: Self)*) -> Self {
            // SAFETY: see the top of the file.
            unsafe { Self($instruction(self.0 $(, $other.0)*), $instruction(self.1 $(, $other.1)*)) }
        }
    )*};
}

/// Methods of [`Lanes`] that are the same text for both kinds of vector.
macro_rules! in_both {
    () => {
        #[inline(always)]
        fn exp(self) -> Self {
            let (f, shifted) = split_exp(self);
            exp2_polynomial(f).scale(shifted)
        }
        #[inline(always)]
        fn sin_cos_of_turns(self) -> [Self; 2] {
            sin_cos_of_turns(self)
        }
        #[inline(always)]
        fn prefetch<A>(value: &A) {
            // SAFETY: every x86-64 has the instruction, and it does not access memory as far as the program can see.
            unsafe { _mm_prefetch::<_MM_HINT_T0>(std::ptr::from_ref(value).cast()) }
        }
    };
}

// Every block below is safe for the reason given at the top of the file.
impl Avx512 {
    #[inline(always)]
    fn scale(self, shifted: Self) -> Self {
        // SAFETY: see the top of the file.
        unsafe {
            let exponent = _mm512_slli_epi32::<23>(_mm512_castps_si512(shifted.0));
            Self(_mm512_castsi512_ps(_mm512_add_epi32(_mm512_castps_si512(self.0), exponent)))
        }
    }
}

impl Lanes for Avx512 {
    type T = f32;
    type Mask = __mmask16;

    in_both!();
    by_instruction! { one
        fma(factor, term): _mm512_fmadd_ps;
        fnma(factor, term): _mm512_fnmadd_ps;
        min(other): _mm512_min_ps;
        max(other): _mm512_max_ps;
        sqrt(): _mm512_sqrt_ps;
    }
    #[inline(always)]
    fn exp2(self) -> Self {
        // SAFETY: see the top of the file.
        unsafe {
            // What is above the next lower integer, which the second instruction takes as the exponent.
            let fraction = Self(_mm512_reduce_ps::<{ _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC }>(self.0));
            Self(_mm512_scalef_ps(exp2_of_fraction(fraction).0, self.0))
        }
    }
    #[inline(always)]
    fn log2(self) -> Self {
        // SAFETY: see the top of the file.
        let (mantissa, exponent) = unsafe {
            let bits = _mm512_castps_si512(self.0);
            let exponent = _mm512_srai_epi32::<23>(_mm512_sub_epi32(bits, _mm512_set1_epi32(THREE_QUARTERS)));
            let mantissa = _mm512_castsi512_ps(_mm512_sub_epi32(bits, _mm512_slli_epi32::<23>(exponent)));
            (Self(mantissa), Self(_mm512_cvtepi32_ps(exponent)))
        };
        log2_of_mantissa(mantissa) + exponent
    }
    #[inline(always)]
    fn store_first(self, values: &mut [f32]) {
        let mask = ((1u32 << values.len()) - 1) as u16;
        // SAFETY: see the top of the file; only what is in the slice is written.
        unsafe { _mm512_mask_storeu_ps(values.as_mut_ptr(), mask, self.0) }
    }
    #[inline(always)]
    fn transpose(v: [Self; LANES]) -> [Self; LANES] {
        // Pairs of numbers, then of pairs, within quarters; then quarters.
        // SAFETY: see the top of the file.
        unsafe {
            let mut a = v;
            for i in 0..8 {
                let (x, y) = (v[2 * i].0, v[2 * i + 1].0);
                (a[2 * i], a[2 * i + 1]) = (Self(_mm512_unpacklo_ps(x, y)), Self(_mm512_unpackhi_ps(x, y)));
            }
            let mut b = a;
            for i in 0..4 {
                for k in 0..2 {
                    let (x, y) = (_mm512_castps_pd(a[4 * i + k].0), _mm512_castps_pd(a[4 * i + 2 + k].0));
                    b[4 * i + 2 * k] = Self(_mm512_castpd_ps(_mm512_unpacklo_pd(x, y)));
                    b[4 * i + 2 * k + 1] = Self(_mm512_castpd_ps(_mm512_unpackhi_pd(x, y)));
                }
            }
            let mut out = b;
            for k in 0..4 {
                let rows = Self::regroup([b[k], b[4 + k], b[8 + k], b[12 + k]]);
                for q in 0..4 {
                    out[4 * q + k] = rows[q];
                }
            }
            out
        }
    }
    #[inline(always)]
    fn inverse(self) -> Self {
        // SAFETY: see the top of the file.
        let guess = Self(unsafe { _mm512_rcp14_ps(self.0) });
        guess * self.fnma(guess, Self::of(2.0))
    }
    #[inline(always)]
    fn regroup([a, b, c, d]: [Self; 4]) -> [Self; 4] {
        // SAFETY: see the top of the file.
        unsafe {
            // Quarters 0 and 1 of two vectors, quarters 2 and 3.
            let (ab, cd) = (_mm512_shuffle_f32x4::<0x44>(a.0, b.0), _mm512_shuffle_f32x4::<0x44>(c.0, d.0));
            let (ab_high, cd_high) =
                (_mm512_shuffle_f32x4::<0xee>(a.0, b.0), _mm512_shuffle_f32x4::<0xee>(c.0, d.0));
            [
                Self(_mm512_shuffle_f32x4::<0x88>(ab, cd)),
                Self(_mm512_shuffle_f32x4::<0xdd>(ab, cd)),
                Self(_mm512_shuffle_f32x4::<0x88>(ab_high, cd_high)),
                Self(_mm512_shuffle_f32x4::<0xdd>(ab_high, cd_high)),
            ]
        }
    }
    #[inline(always)]
    fn splat(value: f32) -> Self {
        // SAFETY: see the top of the file.
        Self(unsafe { _mm512_set1_ps(value) })
    }
    #[inline(always)]
    fn load(values: &[f32; LANES]) -> Self {
        // SAFETY: see the top of the file; the array has 16 numbers.
        Self(unsafe { _mm512_loadu_ps(values.as_ptr()) })
    }
    #[inline(always)]
    fn store(self, values: &mut [f32; LANES]) {
        // SAFETY: see the top of the file; the array has 16 numbers.
        unsafe { _mm512_storeu_ps(values.as_mut_ptr(), self.0) }
    }
    #[inline(always)]
    fn abs(self) -> Self {
        // SAFETY: see the top of the file.
        Self(unsafe { _mm512_abs_ps(self.0) })
    }
    #[inline(always)]
    fn ge(self, other: Self) -> __mmask16 {
        // SAFETY: see the top of the file.
        unsafe { _mm512_cmp_ps_mask::<_CMP_GE_OQ>(self.0, other.0) }
    }
    #[inline(always)]
    fn keep(self, mask: __mmask16) -> Self {
        // SAFETY: see the top of the file.
        Self(unsafe { _mm512_maskz_mov_ps(mask, self.0) })
    }
    #[inline(always)]
    fn bits(mask: __mmask16) -> u16 {
        mask
    }
    #[inline(always)]
    fn from_bits(bits: u16) -> __mmask16 {
        bits
    }
    #[inline(always)]
    fn sums(v: [Self; LANES]) -> Self {
        // A tree: each level adds the two halves of the lanes that are left and packs two vectors into one.
        // SAFETY: see the top of the file.
        unsafe {
            let zero = _mm512_setzero_ps();
            let (mut a, mut b, mut c) = ([zero; 8], [zero; 4], [zero; 2]);
            for i in 0..8 {
                let (x, y) = (v[2 * i].0, v[2 * i + 1].0);
                a[i] = _mm512_add_ps(_mm512_unpacklo_ps(x, y), _mm512_unpackhi_ps(x, y));
            }
            for i in 0..4 {
                let (x, y) = (_mm512_castps_pd(a[2 * i]), _mm512_castps_pd(a[2 * i + 1]));
                let (low, high) = (_mm512_unpacklo_pd(x, y), _mm512_unpackhi_pd(x, y));
                b[i] = _mm512_add_ps(_mm512_castpd_ps(low), _mm512_castpd_ps(high));
            }
            for i in 0..2 {
                let (x, y) = (b[2 * i], b[2 * i + 1]);
                c[i] = _mm512_add_ps(_mm512_shuffle_f32x4::<0x88>(x, y), _mm512_shuffle_f32x4::<0xdd>(x, y));
            }
            let (x, y) = (c[0], c[1]);
            Self(_mm512_add_ps(_mm512_shuffle_f32x4::<0x88>(x, y), _mm512_shuffle_f32x4::<0xdd>(x, y)))
        }
    }
    #[inline(always)]
    fn sum(self) -> f32 {
        // SAFETY: see the top of the file.
        unsafe { _mm512_reduce_add_ps(self.0) }
    }
}

impl Avx2 {
    #[inline(always)]
    fn scale(self, shifted: Self) -> Self {
        // SAFETY: see the top of the file.
        unsafe {
            let half = |p: __m256, s: __m256| {
                let exponent = _mm256_slli_epi32::<23>(_mm256_castps_si256(s));
                _mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(p), exponent))
            };
            Self(half(self.0, shifted.0), half(self.1, shifted.1))
        }
    }
}

impl Lanes for Avx2 {
    type T = f32;
    type Mask = (__m256, __m256);

    in_both!();
    by_instruction! { two
        fma(factor, term): _mm256_fmadd_ps;
        fnma(factor, term): _mm256_fnmadd_ps;
        min(other): _mm256_min_ps;
        max(other): _mm256_max_ps;
        sqrt(): _mm256_sqrt_ps;
    }
    #[inline(always)]
    fn exp2(self) -> Self {
        let (f, shifted) = split_exp2(self);
        exp2_polynomial(f).scale(shifted)
    }
    #[inline(always)]
    fn log2(self) -> Self {
        // SAFETY: see the top of the file.
        let (mantissa, exponent) = unsafe {
            let half = |x: __m256| {
                let bits = _mm256_castps_si256(x);
                let exponent =
                    _mm256_srai_epi32::<23>(_mm256_sub_epi32(bits, _mm256_set1_epi32(THREE_QUARTERS)));
                let mantissa = _mm256_castsi256_ps(_mm256_sub_epi32(bits, _mm256_slli_epi32::<23>(exponent)));
                (mantissa, _mm256_cvtepi32_ps(exponent))
            };
            let (low, high) = (half(self.0), half(self.1));
            (Self(low.0, high.0), Self(low.1, high.1))
        };
        log2_of_mantissa(mantissa) + exponent
    }
    #[inline(always)]
    fn store_first(self, values: &mut [f32]) {
        if let Some(all) = values.first_chunk_mut() {
            return self.store(all);
        }
        values.copy_from_slice(&self.array()[..values.len()]);
    }
    #[inline(always)]
    fn transpose(v: [Self; LANES]) -> [Self; LANES] {
        /// Of eight vectors of eight.
        #[inline(always)]
        unsafe fn square(v: [__m256; 8]) -> [__m256; 8] {
            // SAFETY: see the top of the file.
            unsafe {
                let (mut a, mut b, mut out) = (v, v, v);
                for i in 0..4 {
                    a[2 * i] = _mm256_unpacklo_ps(v[2 * i], v[2 * i + 1]);
                    a[2 * i + 1] = _mm256_unpackhi_ps(v[2 * i], v[2 * i + 1]);
                }
                for i in 0..2 {
                    for k in 0..2 {
                        let (x, y) = (a[4 * i + k], a[4 * i + 2 + k]);
                        b[4 * i + 2 * k] = _mm256_shuffle_ps::<0x44>(x, y);
                        b[4 * i + 2 * k + 1] = _mm256_shuffle_ps::<0xee>(x, y);
                    }
                }
                for k in 0..4 {
                    out[k] = _mm256_permute2f128_ps::<0x20>(b[k], b[4 + k]);
                    out[4 + k] = _mm256_permute2f128_ps::<0x31>(b[k], b[4 + k]);
                }
                out
            }
        }
        let mut out = v;
        // SAFETY: see the top of the file.
        unsafe {
            let (mut low, mut high) = ([v[0].0; 8], [v[0].0; 8]);
            for half in 0..2 {
                for i in 0..8 {
                    (low[i], high[i]) = (v[8 * half + i].0, v[8 * half + i].1);
                }
                let (low, high) = (square(low), square(high));
                for i in 0..8 {
                    if half == 0 {
                        (out[i].0, out[8 + i].0) = (low[i], high[i]);
                    } else {
                        (out[i].1, out[8 + i].1) = (low[i], high[i]);
                    }
                }
            }
        }
        out
    }
    #[inline(always)]
    fn inverse(self) -> Self {
        // SAFETY: see the top of the file.
        let guess = unsafe { Self(_mm256_rcp_ps(self.0), _mm256_rcp_ps(self.1)) };
        guess * self.fnma(guess, Self::of(2.0))
    }
    #[inline(always)]
    fn regroup([a, b, c, d]: [Self; 4]) -> [Self; 4] {
        // SAFETY: see the top of the file.
        unsafe {
            let low = |x: __m256, y: __m256| _mm256_permute2f128_ps::<0x20>(x, y);
            let high = |x: __m256, y: __m256| _mm256_permute2f128_ps::<0x31>(x, y);
            [
                Self(low(a.0, b.0), low(c.0, d.0)),
                Self(high(a.0, b.0), high(c.0, d.0)),
                Self(low(a.1, b.1), low(c.1, d.1)),
                Self(high(a.1, b.1), high(c.1, d.1)),
            ]
        }
    }
    #[inline(always)]
    fn splat(value: f32) -> Self {
        // SAFETY: see the top of the file.
        unsafe { Self(_mm256_set1_ps(value), _mm256_set1_ps(value)) }
    }
    #[inline(always)]
    fn load(values: &[f32; LANES]) -> Self {
        // SAFETY: see the top of the file; the array has 16 numbers.
        unsafe { Self(_mm256_loadu_ps(values.as_ptr()), _mm256_loadu_ps(values.as_ptr().add(8))) }
    }
    #[inline(always)]
    fn store(self, values: &mut [f32; LANES]) {
        // SAFETY: see the top of the file; the array has 16 numbers.
        unsafe {
            _mm256_storeu_ps(values.as_mut_ptr(), self.0);
            _mm256_storeu_ps(values.as_mut_ptr().add(8), self.1);
        }
    }
    #[inline(always)]
    fn abs(self) -> Self {
        // SAFETY: see the top of the file.
        unsafe {
            let sign = _mm256_set1_ps(-0.0);
            Self(_mm256_andnot_ps(sign, self.0), _mm256_andnot_ps(sign, self.1))
        }
    }
    #[inline(always)]
    fn ge(self, other: Self) -> Self::Mask {
        // SAFETY: see the top of the file.
        unsafe {
            (_mm256_cmp_ps::<_CMP_GE_OQ>(self.0, other.0), _mm256_cmp_ps::<_CMP_GE_OQ>(self.1, other.1))
        }
    }
    #[inline(always)]
    fn keep(self, mask: Self::Mask) -> Self {
        // SAFETY: see the top of the file.
        unsafe { Self(_mm256_and_ps(mask.0, self.0), _mm256_and_ps(mask.1, self.1)) }
    }
    #[inline(always)]
    fn bits(mask: Self::Mask) -> u16 {
        // SAFETY: see the top of the file.
        unsafe { (_mm256_movemask_ps(mask.0) | _mm256_movemask_ps(mask.1) << 8) as u16 }
    }
    #[inline(always)]
    fn from_bits(bits: u16) -> Self::Mask {
        // SAFETY: see the top of the file.
        unsafe {
            let lane = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128);
            let half = |byte: u16| {
                let set = _mm256_and_si256(_mm256_set1_epi32(i32::from(byte)), lane);
                _mm256_castsi256_ps(_mm256_cmpeq_epi32(set, lane))
            };
            (half(bits & 0xff), half(bits >> 8))
        }
    }
    #[inline(always)]
    fn sums(v: [Self; LANES]) -> Self {
        // SAFETY: see the top of the file.
        unsafe {
            let zero = _mm256_setzero_ps();
            let (mut a, mut b) = ([zero; 16], [zero; 4]);
            for i in 0..16 {
                a[i] = _mm256_add_ps(v[i].0, v[i].1);
            }
            for i in 0..4 {
                let (x, y) =
                    (_mm256_hadd_ps(a[4 * i], a[4 * i + 1]), _mm256_hadd_ps(a[4 * i + 2], a[4 * i + 3]));
                b[i] = _mm256_hadd_ps(x, y);
            }
            let (x, y, z, w) = (b[0], b[1], b[2], b[3]);
            Self(
                _mm256_add_ps(_mm256_permute2f128_ps::<0x20>(x, y), _mm256_permute2f128_ps::<0x31>(x, y)),
                _mm256_add_ps(_mm256_permute2f128_ps::<0x20>(z, w), _mm256_permute2f128_ps::<0x31>(z, w)),
            )
        }
    }
    #[inline(always)]
    fn sum(self) -> f32 {
        // SAFETY: see the top of the file.
        unsafe {
            let eight = _mm256_add_ps(self.0, self.1);
            let four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps::<1>(eight));
            let two = _mm_add_ps(four, _mm_movehl_ps(four, four));
            _mm_cvtss_f32(_mm_add_ss(two, _mm_shuffle_ps::<1>(two, two)))
        }
    }
}
