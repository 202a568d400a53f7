//! Real spherical harmonics up to degree 3, in the order and with the signs of the INRIA files, and their derivatives.

use super::real::Real;

/// Coefficients per channel at the highest degree.
pub(super) const MAX_COEFFICIENTS: usize = 16;

const C0: f64 = 0.282_094_791_773_878_14;
const C1: f64 = 0.488_602_511_902_919_9;
const C2: [f64; 3] = [1.092_548_430_592_079_2, 0.315_391_565_252_520_05, 0.546_274_215_296_039_6];
const C3: [f64; 4] =
    [0.590_043_589_926_643_5, 2.890_611_442_640_554, 0.457_045_799_464_465_8, 0.373_176_332_590_115_4];

/// The basis at the unit vector `d`; entries of higher degrees stay zero.
#[inline(always)]
pub(super) fn basis<T: Real>(degree: u32, [x, y, z]: [T; 3]) -> [T; MAX_COEFFICIENTS] {
    let k = T::of;
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

/// The basis at the unit vector `d` in double precision, for code outside the rasteriser.
pub(crate) fn harmonics_at(degree: u32, d: [f64; 3]) -> [f64; MAX_COEFFICIENTS] {
    basis(degree, d)
}

/// The gradient by `d` (as if its entries were independent) of the sum of `weights[i] * basis[i]`.
#[inline(always)]
pub(super) fn gradient<T: Real>(degree: u32, [x, y, z]: [T; 3], w: &[T; MAX_COEFFICIENTS]) -> [T; 3] {
    let k = T::of;
    let mut g = [T::default(); 3];
    if degree >= 1 {
        g = [-k(C1) * w[3], -k(C1) * w[1], k(C1) * w[2]];
    }
    if degree >= 2 {
        let (a, b, c) = (k(C2[0]), k(C2[1]), k(C2[2]));
        g[0] += a * (y * w[4] - z * w[7]) + k(2.0) * x * (c * w[8] - b * w[6]);
        g[1] += a * (x * w[4] - z * w[5]) - k(2.0) * y * (c * w[8] + b * w[6]);
        g[2] += k(4.0) * b * z * w[6] - a * (y * w[5] + x * w[7]);
    }
    if degree >= 3 {
        let (xx, yy, zz) = (x * x, y * y, z * z);
        let (a, b, c, d) = (k(C3[0]), k(C3[1]), k(C3[2]), k(C3[3]));
        g[0] += k(-6.0) * a * x * y * w[9] + b * y * z * w[10] + k(2.0) * c * x * y * w[11]
            - k(6.0) * d * x * z * w[12]
            - c * (k(4.0) * zz - k(3.0) * xx - yy) * w[13]
            + b * x * z * w[14]
            - k(3.0) * a * (xx - yy) * w[15];
        g[1] += k(-3.0) * a * (xx - yy) * w[9] + b * x * z * w[10]
            - c * (k(4.0) * zz - xx - k(3.0) * yy) * w[11]
            - k(6.0) * d * y * z * w[12]
            + k(2.0) * c * x * y * w[13]
            - b * y * z * w[14]
            + k(6.0) * a * x * y * w[15];
        g[2] += b * x * y * w[10] - k(8.0) * c * y * z * w[11] + k(3.0) * d * (k(2.0) * zz - xx - yy) * w[12]
            - k(8.0) * c * x * z * w[13]
            + k(0.5) * b * (xx - yy) * w[14];
    }
    g
}
