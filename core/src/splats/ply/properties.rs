//! What plain and packed files have in common: the columns of colours.

use super::header::{Element, PlyReader};
use crate::error::Result;
use crate::splats::harmonics::sh_coefficients;

/// The degree of the spherical harmonics by the number of properties `f_rest_*` (at most 3), and their columns in the
/// order of memory: coefficient by coefficient, r g b within each.
pub(super) fn degree_of(reader: &PlyReader, element: &Element) -> Result<(u32, Vec<usize>)> {
    let rest: Vec<usize> = (0..).map_while(|k| element.column(&format!("f_rest_{k}"))).collect();
    let stored = (0..=4).find(|&degree| 3 * (sh_coefficients(degree) - 1) == rest.len());
    let stored = stored.ok_or_else(|| {
        reader.fail(format!("it has {} properties f_rest_*; 0, 9, 24 and 45 make sense", rest.len()))
    })?;
    let (degree, per_channel) = (stored.min(3), rest.len() / 3);
    let coefficients = 0..sh_coefficients(degree) - 1;
    let columns =
        coefficients.flat_map(|k| [rest[k], rest[per_channel + k], rest[2 * per_channel + k]]).collect();
    Ok((degree, columns))
}
