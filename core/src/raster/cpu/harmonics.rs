//! How colours change with the direction from which they are seen, for the backward pass.

use super::lanes::Lanes;
use crate::splats::harmonics::{C1, C2, C3, MAX_COEFFICIENTS};

/// The gradient by `d` (as if its entries were independent) of the sum of `weights[i] * basis[i]`.
#[inline(always)]
pub(super) fn gradient<V: Lanes>(degree: u32, [x, y, z]: [V; 3], w: &[V; MAX_COEFFICIENTS]) -> [V; 3] {
    let k = V::of;
    let mut g = [V::zero(); 3];
    if degree >= 1 {
        g = [-k(C1) * w[3], -k(C1) * w[1], k(C1) * w[2]];
    }
    if degree >= 2 {
        let (a, b, c) = (k(C2[0]), k(C2[1]), k(C2[2]));
        g[0] = g[0] + a * (y * w[4] - z * w[7]) + k(2.0) * x * (c * w[8] - b * w[6]);
        g[1] = g[1] + a * (x * w[4] - z * w[5]) - k(2.0) * y * (c * w[8] + b * w[6]);
        g[2] = g[2] + k(4.0) * b * z * w[6] - a * (y * w[5] + x * w[7]);
    }
    if degree >= 3 {
        let (xx, yy, zz) = (x * x, y * y, z * z);
        let (a, b, c, d) = (k(C3[0]), k(C3[1]), k(C3[2]), k(C3[3]));
        g[0] = g[0] + k(-6.0) * a * x * y * w[9] + b * y * z * w[10] + k(2.0) * c * x * y * w[11]
            - k(6.0) * d * x * z * w[12]
            - c * (k(4.0) * zz - k(3.0) * xx - yy) * w[13]
            + b * x * z * w[14]
            - k(3.0) * a * (xx - yy) * w[15];
        g[1] = g[1] + k(-3.0) * a * (xx - yy) * w[9] + b * x * z * w[10]
            - c * (k(4.0) * zz - xx - k(3.0) * yy) * w[11]
            - k(6.0) * d * y * z * w[12]
            + k(2.0) * c * x * y * w[13]
            - b * y * z * w[14]
            + k(6.0) * a * x * y * w[15];
        g[2] = g[2] + b * x * y * w[10] - k(8.0) * c * y * z * w[11]
            + k(3.0) * d * (k(2.0) * zz - xx - yy) * w[12]
            - k(8.0) * c * x * z * w[13]
            + k(0.5) * b * (xx - yy) * w[14];
    }
    g
}
