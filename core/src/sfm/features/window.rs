//! The Gaussian window around a keypoint: the product of one factor per column and one per row.

/// `exp(falloff · (first + i)²)` for each i of `window`. `falloff` is negative, and no exponent below −80.
#[inline(always)]
pub(super) fn gaussian_window(first: f32, falloff: f32, window: &mut [f32]) {
    let falloff = falloff * std::f32::consts::LOG2_E;
    for (i, value) in (0i32..).zip(window) {
        let offset = first + i as f32;
        *value = exp2(falloff * offset * offset);
    }
}

/// 2 to the power of a number from −120 to 0, to a relative error of 3e-7 (the polynomial is that of Cephes).
#[inline(always)]
fn exp2(x: f32) -> f32 {
    // Adding 1.5 · 2²³ leaves the nearest whole number in the low bits.
    let shifted = x + 12_582_912.0;
    let f = x - (shifted - 12_582_912.0);
    let mut p = 1.535336188319500e-4;
    p = p * f + 1.339887440266574e-3;
    p = p * f + 9.618437357674640e-3;
    p = p * f + 5.550332471162809e-2;
    p = p * f + 2.402264791363012e-1;
    p = p * f + 6.931472028550421e-1;
    p = p * f + 1.0;
    f32::from_bits(p.to_bits().wrapping_add(shifted.to_bits() << 23))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_a_gaussian() {
        let mut window = [0.0; 100];
        for falloff in [-0.5f32, -0.02, -0.003] {
            gaussian_window(-12.3, falloff, &mut window);
            for (i, &value) in window.iter().enumerate() {
                let exponent = f64::from(falloff) * (i as f64 - 12.3).powi(2);
                if exponent > -80.0 {
                    assert!((f64::from(value) / exponent.exp() - 1.0).abs() < 2e-5, "{i} {falloff}: {value}");
                }
            }
        }
    }
}
