//! Splats in an order in which neighbours in space come together: along a space-filling curve.

use rayon::prelude::*;

/// The numbers of places in the order of their Morton codes.
pub(super) fn morton(places: &[[u16; 3]]) -> Vec<u32> {
    let codes = places.par_iter().zip(0u32..places.len() as u32);
    let mut codes: Vec<(u64, u32)> = codes.map(|(place, number)| (code(*place), number)).collect();
    // The numbers make all entries different, so the order does not depend on the threads.
    codes.par_sort_unstable();
    codes.into_iter().map(|(_, number)| number).collect()
}

/// The bits of x, y and z in turns.
fn code([x, y, z]: [u16; 3]) -> u64 {
    spread(x) | spread(y) << 1 | spread(z) << 2
}

/// Bits with two zeros between each and the next.
fn spread(value: u16) -> u64 {
    let mut bits = u64::from(value);
    for (shift, mask) in [
        (16, 0x00ff_0000_ff00_00ff),
        (8, 0xf00f_00f0_0f00_f00f),
        (4, 0x30c3_0c30_c30c_30c3),
        (2, 0x9249_2492_4924_9249),
    ] {
        bits = (bits | bits << shift) & mask;
    }
    bits
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_take_turns() {
        for [x, y, z] in [[0, 0, 0], [1, 0, 0], [0xffff; 3], [0x8001, 0x5555, 0x1234]] {
            let expected = (0..16).fold(0, |code, bit| {
                let at = |value: u16, axis: u32| u64::from(value >> bit & 1) << (3 * bit + axis);
                code | at(x, 0) | at(y, 1) | at(z, 2)
            });
            assert_eq!(code([x, y, z]), expected);
        }
    }

    #[test]
    fn neighbours_come_together() {
        assert_eq!(morton(&[[9, 9, 9], [0, 0, 0], [9, 9, 8], [0, 0, 1], [9, 9, 9]]), [1, 3, 2, 0, 4]);
    }
}
