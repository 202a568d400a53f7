//! Sixteen numbers at once: the one vector type in which the kernels are written, and its portable form.
//!
//! A kernel is written once, generic in [`Lanes`]; [`Scalar::run`](super::scalar::Scalar::run) compiles it for every instruction set
//! and chooses one at run time. Lanes are 16 pixels (of a row, or 4x4), or 16 splats.

use std::ops::{Add, Deref, DerefMut, Div, Mul, Neg, Sub};

use super::real::Real;

/// Numbers in a [`Lanes`].
pub(super) const LANES: usize = 16;

/// Sixteen numbers; operations act on each.
pub trait Lanes:
    Copy
    + Default
    + Add<Output = Self>
    + Sub<Output = Self>
    + Mul<Output = Self>
    + Div<Output = Self>
    + Neg<Output = Self>
{
    /// Of what.
    type T: Real;
    /// Sixteen truth values.
    type Mask: Copy;

    fn splat(value: Self::T) -> Self;
    fn load(values: &[Self::T; LANES]) -> Self;
    fn store(self, values: &mut [Self::T; LANES]);
    /// As many of the first lanes as the slice has numbers, which are up to 16.
    fn store_first(self, values: &mut [Self::T]);
    /// `self * factor + term`.
    fn fma(self, factor: Self, term: Self) -> Self;
    /// `term - self * factor`.
    fn fnma(self, factor: Self, term: Self) -> Self;
    fn min(self, other: Self) -> Self;
    fn max(self, other: Self) -> Self;
    fn abs(self) -> Self;
    fn sqrt(self) -> Self;
    /// 2 to the power of `self`, to a relative error of 3e-7, for arguments from -126 to 127; for others the result means
    /// nothing.
    fn exp2(self) -> Self;
    /// As [`Real::exp`].
    fn exp(self) -> Self;
    /// Base-2 logarithm of positive normal numbers, to an absolute error of 2e-7; for others the result means nothing.
    fn log2(self) -> Self;
    /// Sine and cosine of as many whole turns, from 0 to 1, to an absolute error of 3e-7.
    fn sin_cos_of_turns(self) -> [Self; 2];
    /// `self >= other`; false for what is not a number.
    fn ge(self, other: Self) -> Self::Mask;
    /// Zero where `mask` is false.
    fn keep(self, mask: Self::Mask) -> Self;
    /// Bit i is lane i.
    fn bits(mask: Self::Mask) -> u16;
    fn from_bits(bits: u16) -> Self::Mask;
    /// Asks for the cache line of `value`, which will be read soon.
    fn prefetch<A>(value: &A);
    /// Lane i is the sum of the lanes of `vectors[i]`.
    fn sums(vectors: [Self; LANES]) -> Self;
    /// The sum of the lanes.
    fn sum(self) -> Self::T;
    /// 1 / self, to a relative error of 4e-7, for normal numbers whose inverse is normal, too.
    fn inverse(self) -> Self;
    /// Lane j of vector i becomes lane i of vector j.
    fn transpose(vectors: [Self; LANES]) -> [Self; LANES];
    /// Four lanes of each vector, from the first to the last: `out[i]` has the i-th four of all. Twice is as it was.
    fn regroup(vectors: [Self; 4]) -> [Self; 4];

    /// A constant.
    #[inline(always)]
    fn of(value: f64) -> Self {
        Self::splat(Self::T::of(value))
    }
    #[inline(always)]
    fn zero() -> Self {
        Self::splat(Self::T::default())
    }
    #[inline(always)]
    fn array(self) -> [Self::T; LANES] {
        let mut out = [Self::T::default(); LANES];
        self.store(&mut out);
        out
    }
}

/// `[f(0), f(1), f(2)]` (or 2, 4) without a closure: what a kernel calls must be inlined into it, because only there its
/// instructions are allowed, and closures are not always.
macro_rules! each {
    ($i:ident in 2 => $e:expr) => {
        [each!(@ $i 0 $e), each!(@ $i 1 $e)]
    };
    ($i:ident in 3 => $e:expr) => {
        [each!(@ $i 0 $e), each!(@ $i 1 $e), each!(@ $i 2 $e)]
    };
    ($i:ident in 4 => $e:expr) => {
        [each!(@ $i 0 $e), each!(@ $i 1 $e), each!(@ $i 2 $e), each!(@ $i 3 $e)]
    };
    (@ $i:ident $n:literal $e:expr) => {{
        let $i: usize = $n;
        $e
    }};
}
pub(super) use each;

/// Sixteen numbers in memory, aligned: in single precision one cache line.
#[derive(Debug, Clone, Copy, Default)]
#[repr(C, align(64))]
pub(super) struct Row<T>(pub(super) [T; LANES]);

impl<T> Deref for Row<T> {
    type Target = [T; LANES];
    #[inline(always)]
    fn deref(&self) -> &[T; LANES] {
        &self.0
    }
}

impl<T> DerefMut for Row<T> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut [T; LANES] {
        &mut self.0
    }
}

/// A piece of work that is written once for all kinds of [`Lanes`]. `run` must be `#[inline(always)]`.
pub trait Kernel<T: Real> {
    type Output;
    fn run<V: Lanes<T = T>>(self) -> Self::Output;
}

/// The columns of up to 16 rows.
#[inline(always)]
pub(super) fn columns<'a, V: Lanes>(rows: impl Iterator<Item = &'a Row<V::T>>) -> [V; LANES]
where
    V::T: 'a,
{
    let mut vectors = [V::zero(); LANES];
    for (vector, row) in vectors.iter_mut().zip(rows) {
        *vector = V::load(row);
    }
    V::transpose(vectors)
}

/// The form without any intrinsic.
#[derive(Clone, Copy, Default)]
pub(super) struct Portable<T>([T; LANES]);

impl<T: Real> Portable<T> {
    #[inline(always)]
    fn zip(self, other: Self, f: impl Fn(T, T) -> T) -> Self {
        let mut out = self.0;
        for i in 0..LANES {
            out[i] = f(self.0[i], other.0[i]);
        }
        Self(out)
    }

    #[inline(always)]
    fn map(self, f: impl Fn(T) -> T) -> Self {
        let mut out = self.0;
        for i in 0..LANES {
            out[i] = f(self.0[i]);
        }
        Self(out)
    }
}

macro_rules! operator {
    ($trait:ident, $method:ident) => {
        impl<T: Real> $trait for Portable<T> {
            type Output = Self;
            #[inline(always)]
            fn $method(self, other: Self) -> Self {
                self.zip(other, T::$method)
            }
        }
    };
}

impl<T: Real> Neg for Portable<T> {
    type Output = Self;
    #[inline(always)]
    fn neg(self) -> Self {
        self.map(T::neg)
    }
}

operator!(Add, add);
operator!(Sub, sub);
operator!(Mul, mul);
operator!(Div, div);

impl<T: Real> Lanes for Portable<T> {
    type T = T;
    type Mask = [bool; LANES];

    #[inline(always)]
    fn splat(value: T) -> Self {
        Self([value; LANES])
    }
    #[inline(always)]
    fn load(values: &[T; LANES]) -> Self {
        Self(*values)
    }
    #[inline(always)]
    fn store(self, values: &mut [T; LANES]) {
        *values = self.0;
    }
    #[inline(always)]
    fn fma(self, factor: Self, term: Self) -> Self {
        let mut out = self.0;
        for i in 0..LANES {
            out[i] = self.0[i].fma(factor.0[i], term.0[i]);
        }
        Self(out)
    }
    #[inline(always)]
    fn fnma(self, factor: Self, term: Self) -> Self {
        let mut out = self.0;
        for i in 0..LANES {
            out[i] = (-self.0[i]).fma(factor.0[i], term.0[i]);
        }
        Self(out)
    }
    #[inline(always)]
    fn min(self, other: Self) -> Self {
        self.zip(other, |a, b| if a < b { a } else { b })
    }
    #[inline(always)]
    fn max(self, other: Self) -> Self {
        self.zip(other, |a, b| if a > b { a } else { b })
    }
    #[inline(always)]
    fn abs(self) -> Self {
        self.map(T::abs)
    }
    #[inline(always)]
    fn sqrt(self) -> Self {
        self.map(T::sqrt)
    }
    #[inline(always)]
    fn exp2(self) -> Self {
        self.map(T::exp2)
    }
    #[inline(always)]
    fn exp(self) -> Self {
        self.map(T::exp)
    }
    #[inline(always)]
    fn ge(self, other: Self) -> Self::Mask {
        let mut out = [false; LANES];
        for i in 0..LANES {
            out[i] = self.0[i] >= other.0[i];
        }
        out
    }
    #[inline(always)]
    fn keep(self, mask: Self::Mask) -> Self {
        let mut out = self.0;
        for i in 0..LANES {
            out[i] = if mask[i] { out[i] } else { T::default() };
        }
        Self(out)
    }
    #[inline(always)]
    fn bits(mask: Self::Mask) -> u16 {
        let mut bits = 0;
        for i in 0..LANES {
            bits |= u16::from(mask[i]) << i;
        }
        bits
    }
    #[inline(always)]
    fn from_bits(bits: u16) -> Self::Mask {
        let mut mask = [false; LANES];
        for i in 0..LANES {
            mask[i] = (bits >> i) & 1 == 1;
        }
        mask
    }
    #[inline(always)]
    fn prefetch<A>(_: &A) {}
    #[inline(always)]
    fn sums(vectors: [Self; LANES]) -> Self {
        let mut out = [T::default(); LANES];
        for i in 0..LANES {
            out[i] = vectors[i].sum();
        }
        Self(out)
    }
    #[inline(always)]
    fn log2(self) -> Self {
        self.map(T::log2)
    }
    #[inline(always)]
    fn sin_cos_of_turns(self) -> [Self; 2] {
        let (mut sine, mut cosine) = (self, self);
        for i in 0..LANES {
            (sine.0[i], cosine.0[i]) = (self.0[i] * T::of(std::f64::consts::TAU)).sin_cos();
        }
        [sine, cosine]
    }
    #[inline(always)]
    fn store_first(self, values: &mut [T]) {
        values.copy_from_slice(&self.0[..values.len()]);
    }
    #[inline(always)]
    fn transpose(vectors: [Self; LANES]) -> [Self; LANES] {
        let mut out = vectors;
        for i in 0..LANES {
            for j in 0..LANES {
                out[j].0[i] = vectors[i].0[j];
            }
        }
        out
    }
    #[inline(always)]
    fn inverse(self) -> Self {
        self.map(|x| T::of(1.0) / x)
    }
    #[inline(always)]
    fn regroup(vectors: [Self; 4]) -> [Self; 4] {
        let mut out = vectors;
        for i in 0..4 {
            for j in 0..4 {
                for k in 0..4 {
                    out[i].0[4 * j + k] = vectors[j].0[4 * i + k];
                }
            }
        }
        out
    }
    #[inline(always)]
    fn sum(self) -> T {
        let mut a = self.0;
        let mut half = LANES / 2;
        while half > 0 {
            for i in 0..half {
                let other = a[i + half];
                a[i] += other;
            }
            half /= 2;
        }
        a[0]
    }
}
