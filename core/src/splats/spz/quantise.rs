//! The attributes of a splat as the bytes of an `.spz` file. All arithmetic is in f32 and rounds halves away from zero, so
//! that the bytes are those of the reference implementation.

use std::f32::consts::FRAC_1_SQRT_2;

use glam::{Vec3, vec3, vec4};
use rayon::prelude::*;

use super::container::{Header, Packed};
use super::options::SpzFrame;
use crate::splats::harmonics::sh_coefficients;
use crate::splats::values::{Splats, normalised};

/// Largest position in units of the last fractional bit.
const MAX_FIXED: f32 = 8_388_607.0;
/// More bits than this are noise that does not compress.
const MAX_FRACTIONAL_BITS: u32 = 16;
/// What the reference implementation writes: a range of 2048 units.
const USUAL_FRACTIONAL_BITS: u32 = 12;
const COLOUR_SCALE: f32 = 0.15;

/// What the turn by 180 degrees about x does to the coefficients of degree 1 to 3: negative where the basis function is
/// odd in y xor z.
const SH_SIGNS: [f32; 15] = {
    const P: f32 = 1.0;
    const N: f32 = -1.0;
    [N, N, P, N, P, P, N, P, N, P, N, N, P, N, P]
};

/// As many bits as the extent leaves room for, 16 at most. A few splats far away must not spoil the others: down to the
/// usual 12 bits all must fit, below that 999 of 1000.
pub(super) fn fractional_bits(means: &[Vec3]) -> u32 {
    let fit = |bits: u32| {
        let limit = MAX_FIXED / (1u32 << bits) as f32;
        means.par_iter().filter(|mean| mean.abs().max_element() <= limit).count()
    };
    (0..=MAX_FRACTIONAL_BITS)
        .rev()
        .find(|&bits| {
            let outside = means.len() - fit(bits);
            outside == 0 || (bits <= USUAL_FRACTIONAL_BITS && outside <= means.len() / 1000)
        })
        .unwrap_or(0)
}

/// Fills `count` records of `stride` bytes, in parallel.
fn fill(count: usize, stride: usize, record: impl Fn(usize, &mut [u8]) + Sync) -> Vec<u8> {
    const BLOCK: usize = 4096;
    let mut bytes = vec![0; count * stride];
    if stride > 0 {
        bytes.par_chunks_mut(BLOCK * stride).enumerate().for_each(|(block, bytes)| {
            for (k, out) in bytes.chunks_exact_mut(stride).enumerate() {
                record(block * BLOCK + k, out);
            }
        });
    }
    bytes
}

/// Clamps and rounds; halves go away from zero.
fn to_u8(value: f32) -> u8 {
    value.round().clamp(0.0, 255.0) as u8
}

pub(super) fn encode(splats: &Splats, header: &Header, frame: SpzFrame) -> [Vec<u8>; 6] {
    let count = splats.len();
    let sign = match frame {
        SpzFrame::RightUpBack => -1.0,
        SpzFrame::Unchanged => 1.0,
    };
    let strides = header.strides();
    let coefficients = sh_coefficients(splats.sh_degree);
    let unit = (1u32 << header.fractional_bits) as f32;
    // By how much a splat must come nearer to be in range.
    let pull = |i: usize| {
        let reach = splats.means[i].abs().max_element() * unit;
        if reach > MAX_FIXED { MAX_FIXED / reach } else { 1.0 }
    };
    let positions = fill(count, strides[0], |i, out| {
        let ([x, y, z], pull) = (splats.means[i].to_array(), pull(i));
        for (value, bytes) in [x, sign * y, sign * z].into_iter().zip(out.chunks_exact_mut(3)) {
            let fixed = (value * pull * unit).round().clamp(-MAX_FIXED, MAX_FIXED) as i32;
            bytes.copy_from_slice(&fixed.to_le_bytes()[..3]);
        }
    });
    let alphas = fill(count, strides[1], |i, out| {
        out[0] = to_u8(1.0 / (1.0 + (-splats.opacities[i]).exp()) * 255.0);
    });
    let colours = fill(count, strides[2], |i, out| {
        for (value, byte) in splats.sh[3 * coefficients * i..][..3].iter().zip(out) {
            *byte = to_u8(value * (COLOUR_SCALE * 255.0) + 0.5 * 255.0);
        }
    });
    let scales = fill(count, strides[3], |i, out| {
        let shrink = pull(i).ln();
        for (value, byte) in splats.log_scales[i].to_array().iter().zip(out) {
            *byte = to_u8((value + shrink + 10.0) * 16.0);
        }
    });
    let rotations = fill(count, strides[4], |i, out| {
        let [w, x, y, z] = splats.rotations[i].to_array();
        let turned = unit_xyzw([x, sign * y, sign * z, w]);
        if header.version <= 2 {
            out.copy_from_slice(&first_three(turned));
        } else {
            out.copy_from_slice(&smallest_three(turned).to_le_bytes());
        }
    });
    let sh = fill(count, strides[5], |i, out| {
        let values = &splats.sh[3 * coefficients * i..][3..3 * coefficients];
        for (k, (value, byte)) in values.iter().zip(out).enumerate() {
            let coefficient = k / 3;
            let sign = if sign < 0.0 { SH_SIGNS[coefficient] } else { 1.0 };
            // 5 bits for degree 1, 4 bits above.
            *byte = quantise_sh(sign * value, if coefficient < 3 { 8 } else { 16 });
        }
    });
    [positions, alphas, colours, scales, rotations, sh]
}

/// Unit length in f32 arithmetic; zero becomes the identity.
fn unit_xyzw(q: [f32; 4]) -> [f32; 4] {
    let norm = (q[0] * q[0] + q[1] * q[1] + q[2] * q[2] + q[3] * q[3]).sqrt();
    if norm > 1e-30 { q.map(|v| v / norm) } else { [0.0, 0.0, 0.0, 1.0] }
}

/// x, y, z of the quaternion whose w is not negative, in a byte each.
fn first_three(q: [f32; 4]) -> [u8; 3] {
    let scale = if q[3] < 0.0 { -127.5 } else { 127.5 };
    [q[0], q[1], q[2]].map(|v| to_u8(v * scale + 127.5))
}

/// Number of the largest component (2 bits) and the others, sign and 9 bits each, as if the largest were positive.
fn smallest_three(q: [f32; 4]) -> u32 {
    let largest = (1..4).fold(0, |best, i| if q[i].abs() > q[best].abs() { i } else { best });
    let mut packed = largest as u32;
    for (i, value) in q.into_iter().enumerate() {
        if i != largest {
            let negative = u32::from((value < 0.0) != (q[largest] < 0.0));
            let magnitude = (511.0 * (value.abs() / FRAC_1_SQRT_2) + 0.5) as u32;
            packed = packed << 10 | negative << 9 | magnitude.min(511);
        }
    }
    packed
}

/// Rounds to a multiple of `step`, a power of two.
fn quantise_sh(value: f32, step: i32) -> u8 {
    let level = (value * 128.0).round() as i32;
    // Saturating: the sum of hostile values must not wrap.
    let level = level.saturating_add(128).saturating_add(step / 2);
    // Division towards zero, as the reference does it; what is negative is clamped anyway.
    (level / step * step).clamp(0, 255) as u8
}

pub(super) fn decode(packed: &Packed, frame: SpzFrame) -> Splats {
    let header = &packed.header;
    let [positions, alphas, colours, scales, rotations, sh] = &packed.attributes;
    let [position, _, _, _, rotation, sh_stride] = header.strides();
    let sign = match frame {
        SpzFrame::RightUpBack => -1.0,
        SpzFrame::Unchanged => 1.0,
    };
    let unit = 1.0 / (1u32 << header.fractional_bits) as f32;
    let means = positions.par_chunks_exact(position).map(|bytes| {
        let value = |axis: usize| match *bytes {
            [a0, a1, b0, b1, c0, c1] => {
                let [low, high] = [[a0, a1], [b0, b1], [c0, c1]][axis];
                f16_to_f32(u16::from_le_bytes([low, high]))
            }
            // The shift back extends the sign.
            _ => {
                let [low, middle, high] = [bytes[3 * axis], bytes[3 * axis + 1], bytes[3 * axis + 2]];
                (i32::from_le_bytes([0, low, middle, high]) >> 8) as f32 * unit
            }
        };
        vec3(value(0), sign * value(1), sign * value(2))
    });
    // Bytes 0 and 255 stand for opacities of 0 and 1, whose logits are infinite: a quarter of a step inside they are
    // finite and are still rounded to the same byte.
    let opacities = alphas.par_iter().map(|&byte| {
        let alpha = f32::from(byte).clamp(0.25, 254.75) / 255.0;
        (alpha / (1.0 - alpha)).ln()
    });
    let log_scales =
        scales.par_chunks_exact(3).map(|b| vec3(b[0].into(), b[1].into(), b[2].into()) / 16.0 - 10.0);
    let rotations = rotations.par_chunks_exact(rotation).map(|bytes| {
        let [x, y, z, w] = match *bytes {
            [x, y, z] => from_first_three([x, y, z]),
            _ => from_smallest_three(u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])),
        };
        normalised(vec4(w, x, sign * y, sign * z))
    });

    let degree = header.sh_degree.min(3);
    let coefficients = sh_coefficients(degree);
    let mut values = vec![0.0; header.count * coefficients * 3];
    values.par_chunks_exact_mut(coefficients * 3).enumerate().for_each(|(i, out)| {
        for (value, &byte) in out.iter_mut().zip(&colours[3 * i..3 * i + 3]) {
            *value = (f32::from(byte) / 255.0 - 0.5) / COLOUR_SCALE;
        }
        let bytes = &sh[i * sh_stride..][..3 * (coefficients - 1)];
        for (k, (value, &byte)) in out[3..].iter_mut().zip(bytes).enumerate() {
            let sign = if sign < 0.0 { SH_SIGNS[k / 3] } else { 1.0 };
            *value = sign * (f32::from(byte) - 128.0) / 128.0;
        }
    });
    Splats {
        means: means.collect(),
        log_scales: log_scales.collect(),
        rotations: rotations.collect(),
        opacities: opacities.collect(),
        sh_degree: degree,
        sh: values,
        antialiased: header.antialiased,
    }
}

fn from_first_three(bytes: [u8; 3]) -> [f32; 4] {
    let [x, y, z] = bytes.map(|b| f32::from(b) / 127.5 - 1.0);
    [x, y, z, (1.0 - x * x - y * y - z * z).max(0.0).sqrt()]
}

fn from_smallest_three(mut packed: u32) -> [f32; 4] {
    let largest = (packed >> 30) as usize;
    let (mut q, mut squares) = ([0.0; 4], 0.0);
    for i in (0..4).rev().filter(|&i| i != largest) {
        let magnitude = FRAC_1_SQRT_2 * (packed & 511) as f32 / 511.0;
        q[i] = if packed >> 9 & 1 == 1 { -magnitude } else { magnitude };
        squares += magnitude * magnitude;
        packed >>= 10;
    }
    q[largest] = (1.0f32 - squares).max(0.0).sqrt();
    q
}

/// Half precision as stored by version 1. What is not finite becomes zero.
fn f16_to_f32(bits: u16) -> f32 {
    let (exponent, fraction) = (i32::from(bits >> 10 & 31), f32::from(bits & 1023));
    let magnitude = match exponent {
        0 => fraction * 2f32.powi(-24),
        31 => 0.0,
        _ => (1024.0 + fraction) * 2f32.powi(exponent - 25),
    };
    if bits >> 15 == 1 { -magnitude } else { magnitude }
}
