//! Tests of the passes against definitions written a second time, of the paths against each other, and of all that can
//! go wrong.

mod contributions;
mod gradients;
mod hostile;
pub(crate) mod picture;
mod steps;

use super::*;
use crate::raster::parity;

#[test]
fn single_precision_agrees_with_double_pass_by_pass() {
    for case in parity::cases() {
        let differences =
            parity::compare(&mut CpuRasteriser::<f32>::new(), &mut CpuRasteriser::<f64>::new(), &case);
        differences.assert_below(1e-4);
    }
}

#[test]
fn instruction_sets_agree_pass_by_pass() {
    for isa in Isa::available() {
        for case in parity::cases() {
            let mut portable = CpuRasteriser::<f32>::with_isa(Isa::Portable);
            parity::compare(&mut CpuRasteriser::<f32>::with_isa(isa), &mut portable, &case)
                .assert_below(1e-4);
        }
    }
}
