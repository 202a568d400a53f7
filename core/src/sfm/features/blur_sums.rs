//! The two sums of a blur, for any processor.

use std::ops::Range;

use super::plane::LANES;

/// Rows that are made together: the vertical sums read each row of the source once for all of them.
pub(super) const BAND: usize = 4;

/// `out[j][inner.start + x] = Σᵢ taps[i][j] · rows[i][x]`; every row has the length of `inner`.
pub(super) fn vertical_sums(
    taps: &[[f32; BAND]],
    rows: &[&[f32]],
    out: &mut [Vec<f32>; BAND],
    inner: Range<usize>,
) {
    for (j, out) in out.iter_mut().enumerate() {
        for (chunk, out) in out[inner.clone()].chunks_mut(LANES).enumerate() {
            let columns = chunk * LANES..chunk * LANES + out.len();
            let mut sums = [0.0; LANES];
            for (tap, row) in taps.iter().zip(rows) {
                let values = &row[columns.clone()];
                match values.first_chunk::<LANES>() {
                    Some(values) => {
                        sums.iter_mut().zip(values).for_each(|(sum, value)| *sum += tap[j] * value)
                    }
                    None => sums.iter_mut().zip(values).for_each(|(sum, value)| *sum += tap[j] * value),
                }
            }
            out.copy_from_slice(&sums[..out.len()]);
        }
    }
}

/// `out[x] = Σᵢ half_kernel[i] · (padded[r + x − i] + padded[r + x + i])`, where r is the radius: the length of the half
/// kernel less 1, and half of what `padded` is longer than `out`.
pub(super) fn horizontal_sums(half_kernel: &[f32], padded: &[f32], out: &mut [f32]) {
    let (radius, width) = (half_kernel.len() - 1, out.len());
    out.fill(0.0);
    for (i, &k) in half_kernel.iter().enumerate() {
        let (left, right) = (&padded[radius - i..][..width], &padded[radius + i..][..width]);
        for ((o, l), r) in out.iter_mut().zip(left).zip(right) {
            *o += k * (l + r);
        }
    }
}
