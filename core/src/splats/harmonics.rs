//! Real spherical harmonics up to degree 3, in the order and with the signs of the INRIA files.

use std::ops::{Add, Mul, Neg, Sub};

/// Value of the constant spherical harmonic; colour = 0.5 + `SH_C0` * f_dc + ...
pub const SH_C0: f32 = 0.282_094_79;

/// Number of spherical-harmonics coefficients per channel of `degree` (0 to 3): 1, 4, 9, 16.
pub const fn sh_coefficients(degree: u32) -> usize {
    ((degree + 1) * (degree + 1)) as usize
}

/// Coefficients per channel at the highest degree.
pub(crate) const MAX_COEFFICIENTS: usize = sh_coefficients(3);

/// Factor of the only function of band 0: 1 / (2 √π).
const C0: f64 = 0.282_094_791_773_878_14;
/// Factor of all functions of band 1.
pub(crate) const C1: f64 = 0.488_602_511_902_919_9;
/// Factors of band 2, from the middle of the band outwards where they differ.
pub(crate) const C2: [f64; 3] = [1.092_548_430_592_079_2, 0.315_391_565_252_520_05, 0.546_274_215_296_039_6];
/// Factors of band 3.
pub(crate) const C3: [f64; 4] =
    [0.590_043_589_926_643_5, 2.890_611_442_640_554, 0.457_045_799_464_465_8, 0.373_176_332_590_115_4];

/// The basis at the unit vector `d`; entries of higher degrees stay zero. `k` makes a number of type `T` of a constant, so
/// that the rasteriser computes it for single numbers and for whole vectors of them.
#[inline(always)]
pub(crate) fn basis<T>(degree: u32, [x, y, z]: [T; 3], k: impl Fn(f64) -> T) -> [T; MAX_COEFFICIENTS]
where
    T: Copy + Default + Add<Output = T> + Sub<Output = T> + Mul<Output = T> + Neg<Output = T>,
{
    let mut b = [T::default(); MAX_COEFFICIENTS];
    b[0] = k(C0);
    if degree >= 1 {
        b[1] = -k(C1) * y;
        b[2] = k(C1) * z;
        b[3] = -k(C1) * x;
    }
    if degree >= 2 {
        let (xx, yy, zz) = (x * x, y * y, z * z);
        b[4] = k(C2[0]) * x * y;
        b[5] = -k(C2[0]) * y * z;
        b[6] = k(C2[1]) * (k(2.0) * zz - xx - yy);
        b[7] = -k(C2[0]) * x * z;
        b[8] = k(C2[2]) * (xx - yy);
        if degree >= 3 {
            b[9] = -k(C3[0]) * y * (k(3.0) * xx - yy);
            b[10] = k(C3[1]) * x * y * z;
            b[11] = -k(C3[2]) * y * (k(4.0) * zz - xx - yy);
            b[12] = k(C3[3]) * z * (k(2.0) * zz - k(3.0) * (xx + yy));
            b[13] = -k(C3[2]) * x * (k(4.0) * zz - xx - yy);
            b[14] = k(0.5 * C3[1]) * z * (xx - yy);
            b[15] = -k(C3[0]) * x * (xx - k(3.0) * yy);
        }
    }
    b
}
