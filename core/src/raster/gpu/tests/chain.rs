//! The whole chain, pass by pass, against the CPU implementation in double precision.

use super::rasteriser;
use crate::raster::Rasteriser;
use crate::raster::cpu::CpuRasteriser;
use crate::raster::parity::{cases, compare};

#[test]
fn every_pass_agrees_with_double_precision() {
    let Some(mut gpu) = rasteriser(1 << 16) else { return };
    println!("{}", gpu.name());
    let mut reference = CpuRasteriser::<f64>::new();
    for case in cases() {
        compare(&mut gpu, &mut reference, &case).assert_below(2e-3);
    }
}
