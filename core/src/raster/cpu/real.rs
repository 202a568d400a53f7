//! The scalar types that the rasteriser runs in: `f32` (the product) and `f64` (the reference).

use std::fmt::Debug;
use std::ops::{Add, AddAssign, Div, Mul, MulAssign, Neg, Sub, SubAssign};

/// `f32` or `f64`; no other type can implement it.
pub trait Real:
    Copy
    + Send
    + Sync
    + Debug
    + Default
    + PartialOrd
    + Add<Output = Self>
    + Sub<Output = Self>
    + Mul<Output = Self>
    + Div<Output = Self>
    + Neg<Output = Self>
    + AddAssign
    + SubAssign
    + MulAssign
    + sealed::Sealed
    + 'static
{
    /// Name of the type, for people.
    const NAME: &'static str;
    /// Of [`Real::depth_key`].
    type Key: Copy + Send + Sync + Debug + Default + Into<u64>;
    /// Rounded from double precision.
    fn of(value: f64) -> Self;
    /// Rounded from single precision (exact).
    fn of_f32(value: f32) -> Self;
    /// In double precision (exact).
    fn f64(self) -> f64;
    /// Rounded to single precision.
    fn f32(self) -> f32;
    /// Square root.
    fn sqrt(self) -> Self;
    /// Absolute value.
    fn abs(self) -> Self;
    /// Base-2 logarithm.
    fn log2(self) -> Self;
    /// Sine and cosine.
    fn sin_cos(self) -> (Self, Self);
    /// The larger one; the other one if one is not a number.
    fn max(self, other: Self) -> Self;
    /// The smaller one; the other one if one is not a number.
    fn min(self, other: Self) -> Self;
    /// `self * factor + term`, rounded once where that is one instruction on every machine of this kind.
    fn fma(self, factor: Self, term: Self) -> Self;
    /// 2 to the power of `self`, to a relative error of 1e-7 (`f32`; arguments are clamped to -126..=127) or exactly.
    fn exp2(self) -> Self;
    /// e to the power of `self`, to a relative error of 1e-7 (`f32`; arguments are clamped to -87..=88) or exactly.
    fn exp(self) -> Self;
    /// Neither infinite nor not a number.
    fn is_finite(self) -> bool;
    /// An integer that sorts like `self`, for positive numbers.
    fn depth_key(self) -> Self::Key;
    /// Towards zero; saturates, and 0 for what is not a number.
    fn to_i32(self) -> i32;
    /// From an integer, rounded.
    fn from_i32(value: i32) -> Self;
}

mod sealed {
    pub trait Sealed {}
    impl Sealed for f32 {}
    impl Sealed for f64 {}
}

/// Adding this to a small number leaves the nearest integer in the low bits of the sum.
pub(super) const ROUND_MAGIC: f32 = 12_582_912.0; // 1.5 * 2^23
/// Polynomial of 2^x on [-0.5, 0.5], from the constant term on: relative error 2e-9 before rounding.
pub(super) const EXP2: [f32; 7] = [
    1.0,
    std::f32::consts::LN_2,
    0.240_226_46,
    0.055_503_286,
    0.009_618_489,
    0.001_339_993,
    0.000_153_458_11,
];
/// ln 2 in two parts, the first with few bits, so that an integer times it is exact.
pub(super) const LN2: [f32; 2] = [0.693_359_375, -2.121_944_4e-4];

/// Methods that the type itself has under the same name.
macro_rules! of_the_type {
    ($($method:ident($($other:ident: $type:ty)?) -> $result:ty;)*) => {$(
        #[inline(always)]
        fn $method(self $(, $other: $type)?) -> $result {
            Self::$method(self $(, $other)?)
        }
    )*};
}

/// 2^(f + n) for |f| <= 0.5, where n is in the low bits of `shifted`.
#[inline(always)]
fn exp2_of_parts(f: f32, shifted: f32) -> f32 {
    let mut p = EXP2[6];
    for k in (0..6).rev() {
        p = p.fma(f, EXP2[k]);
    }
    f32::from_bits(p.to_bits().wrapping_add(shifted.to_bits() << 23))
}

impl Real for f32 {
    const NAME: &'static str = "f32";
    type Key = u32;
    of_the_type! {
        sqrt() -> f32;
        abs() -> f32;
        log2() -> f32;
        sin_cos() -> (f32, f32);
        is_finite() -> bool;
        max(other: f32) -> f32;
        min(other: f32) -> f32;
    }
    #[inline(always)]
    fn of(value: f64) -> Self {
        value as f32
    }
    #[inline(always)]
    fn of_f32(value: f32) -> Self {
        value
    }
    #[inline(always)]
    fn f64(self) -> f64 {
        f64::from(self)
    }
    #[inline(always)]
    fn f32(self) -> f32 {
        self
    }
    #[inline(always)]
    fn fma(self, factor: Self, term: Self) -> Self {
        if cfg!(target_arch = "aarch64") { self.mul_add(factor, term) } else { self * factor + term }
    }
    #[inline(always)]
    fn exp2(self) -> Self {
        let x = self.clamp(-126.0, 127.0);
        let shifted = x + ROUND_MAGIC;
        exp2_of_parts(x - (shifted - ROUND_MAGIC), shifted)
    }
    #[inline(always)]
    fn exp(self) -> Self {
        let x = self.clamp(-87.0, 88.0);
        let shifted = x.fma(std::f32::consts::LOG2_E, ROUND_MAGIC);
        let n = shifted - ROUND_MAGIC;
        let r = n.fma(-LN2[1], n.fma(-LN2[0], x));
        exp2_of_parts(r * std::f32::consts::LOG2_E, shifted)
    }
    #[inline(always)]
    fn depth_key(self) -> u32 {
        self.to_bits()
    }
    #[inline(always)]
    fn to_i32(self) -> i32 {
        self as i32
    }
    #[inline(always)]
    fn from_i32(value: i32) -> Self {
        value as f32
    }
}

impl Real for f64 {
    const NAME: &'static str = "f64";
    type Key = u64;
    of_the_type! {
        sqrt() -> f64;
        abs() -> f64;
        log2() -> f64;
        sin_cos() -> (f64, f64);
        is_finite() -> bool;
        max(other: f64) -> f64;
        min(other: f64) -> f64;
        exp2() -> f64;
        exp() -> f64;
    }
    #[inline(always)]
    fn of(value: f64) -> Self {
        value
    }
    #[inline(always)]
    fn of_f32(value: f32) -> Self {
        f64::from(value)
    }
    #[inline(always)]
    fn f64(self) -> f64 {
        self
    }
    #[inline(always)]
    fn f32(self) -> f32 {
        self as f32
    }
    #[inline(always)]
    fn fma(self, factor: Self, term: Self) -> Self {
        self * factor + term
    }
    #[inline(always)]
    fn depth_key(self) -> u64 {
        self.to_bits()
    }
    #[inline(always)]
    fn to_i32(self) -> i32 {
        self as i32
    }
    #[inline(always)]
    fn from_i32(value: i32) -> Self {
        f64::from(value)
    }
}
