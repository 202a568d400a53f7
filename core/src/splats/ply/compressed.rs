//! The packed `.ply` of SuperSplat: 16 bytes a splat, ranges per 256 splats.
//!
//! Element `chunk` holds the ranges of position, log scale and (in newer files) colour of 256 splats each, `vertex` four
//! packed words per splat, `sh` (where there is one) a byte per further colour coefficient. Read only.

use glam::{DVec4, Vec4};

use super::header::{Element, PlyReader};
use super::properties::degree_of;
use crate::error::Result;
use crate::splats::harmonics::{SH_C0, sh_coefficients};
use crate::splats::values::{MIN_LOG_SCALE, Splats, normalised};

const SPLATS_PER_CHUNK: usize = 256;
const RANGES: [&str; 12] = [
    "min_x",
    "min_y",
    "min_z",
    "max_x",
    "max_y",
    "max_z",
    "min_scale_x",
    "min_scale_y",
    "min_scale_z",
    "max_scale_x",
    "max_scale_y",
    "max_scale_z",
];
const COLOUR_RANGES: [&str; 6] = ["min_r", "min_g", "min_b", "max_r", "max_g", "max_b"];
const ALL_RANGES: usize = RANGES.len() + COLOUR_RANGES.len();
/// Colours of older files range from 0 to 1.
const NO_RANGES: [f64; ALL_RANGES] = {
    let mut ranges = [0.0; ALL_RANGES];
    let mut high = RANGES.len() + 3;
    while high < ALL_RANGES {
        ranges[high] = 1.0;
        high += 1;
    }
    ranges
};
const PACKED: [&str; 4] = ["packed_position", "packed_rotation", "packed_scale", "packed_color"];

/// Reads the rest of a file whose next element is `chunk`.
pub(super) fn read(reader: &mut PlyReader, chunk: &Element) -> Result<Splats> {
    let missing =
        |reader: &PlyReader, what: &str| reader.fail(format!("it is a packed scene without {what}"));
    let columns_of = |element: &Element, names: &[&str]| -> Option<Vec<usize>> {
        names.iter().map(|name| element.column(name)).collect()
    };
    let mut columns = columns_of(chunk, &RANGES).ok_or_else(|| missing(reader, "ranges"))?;
    let colour_columns = columns_of(chunk, &COLOUR_RANGES);
    columns.extend(colour_columns.into_iter().flatten());
    let mut chunks: Vec<[f64; ALL_RANGES]> = Vec::with_capacity(reader.room(chunk));
    reader.for_each_row(chunk, &columns, |index, row| {
        if !row.iter().all(|&v| (v as f32).is_finite()) {
            return Err(format!("a range of chunk {index} is not finite"));
        }
        let mut ranges = NO_RANGES;
        ranges[..row.len()].copy_from_slice(row);
        chunks.push(ranges);
        Ok(())
    })?;

    let vertices = reader.next_element().filter(|element| element.name == "vertex");
    let vertices = vertices.ok_or_else(|| missing(reader, "vertices"))?;
    let columns = columns_of(&vertices, &PACKED).ok_or_else(|| missing(reader, "packed vertices"))?;
    if chunks.len() != vertices.count.div_ceil(SPLATS_PER_CHUNK) {
        return Err(reader.fail(format!("{} splats cannot have {} chunks", vertices.count, chunks.len())));
    }
    let room = reader.room(&vertices);
    let mut splats = Splats::with_capacity(room, 0);
    let mut colours = Vec::with_capacity(room);
    reader.for_each_row(&vertices, &columns, |index, row| {
        let [position, rotation, scale, colour] = row[..PACKED.len()] else {
            return Ok(()); // as many columns as that were asked for
        };
        let ranges = &chunks[index / SPLATS_PER_CHUNK];
        let blend = |fractions: [f64; 3], at: usize| -> [f32; 3] {
            std::array::from_fn(|k| {
                let (low, high) = (ranges[at + k], ranges[at + 3 + k]);
                (low + (high - low) * fractions[k]) as f32
            })
        };
        splats.means.push(blend(unpack_11_10_11(position as u32), 0).into());
        let log_scales = blend(unpack_11_10_11(scale as u32), 6).map(|v| v.max(MIN_LOG_SCALE));
        splats.log_scales.push(log_scales.into());
        splats.rotations.push(unpack_rotation(rotation as u32));
        let [r, g, b, a] = (colour as u32).to_be_bytes();
        let colour = blend([r, g, b].map(|v| f64::from(v) / 255.0), 12).map(|v| (v - 0.5) / SH_C0);
        if !colour.iter().all(|v| v.is_finite()) {
            return Err(format!("the colour of splat {index} is not finite"));
        }
        colours.push(colour);
        // Bytes 0 and 255 have infinite logits: a quarter of a step inside they have not.
        let alpha = f32::from(a).clamp(0.25, 254.75) / 255.0;
        splats.opacities.push((alpha / (1.0 - alpha)).ln());
        Ok(())
    })?;

    let Some(sh) = reader.next_element().filter(|element| element.name == "sh") else {
        splats.sh = colours.into_flattened();
        return Ok(splats);
    };
    if sh.count != splats.len() {
        return Err(reader.fail(format!("{} splats have {} rows of colours", splats.len(), sh.count)));
    }
    let (degree, columns) = degree_of(reader, &sh)?;
    splats.sh_degree = degree;
    splats.sh.reserve(splats.len() * 3 * sh_coefficients(degree));
    reader.for_each_row(&sh, &columns, |index, row| {
        if !row.iter().all(|byte| (0.0..=255.0).contains(byte)) {
            return Err(format!("a colour coefficient of splat {index} is no byte"));
        }
        splats.sh.extend(colours[index]);
        splats.sh.extend(row.iter().map(|&byte| {
            let fraction = if byte == 0.0 || byte == 255.0 { byte / 255.0 } else { (byte + 0.5) / 256.0 };
            ((fraction - 0.5) * 8.0) as f32
        }));
        Ok(())
    })?;
    Ok(splats)
}

fn unpack_11_10_11(word: u32) -> [f64; 3] {
    [f64::from(word >> 21) / 2047.0, f64::from(word >> 11 & 1023) / 1023.0, f64::from(word & 2047) / 2047.0]
}

/// Two bits name the largest of w, x, y, z; the other three follow in 10 bits each, from -1/√2 to 1/√2.
fn unpack_rotation(word: u32) -> Vec4 {
    let largest = (word >> 30) as usize;
    let mut others = [20, 10, 0]
        .map(|shift| (f64::from(word >> shift & 1023) / 1023.0 - 0.5) * std::f64::consts::SQRT_2)
        .into_iter();
    let mut q = [0.0; 4];
    let mut squares = 0.0;
    for (i, value) in q.iter_mut().enumerate() {
        if i != largest {
            *value = others.next().unwrap_or(0.0);
            squares += *value * *value;
        }
    }
    q[largest] = (1.0 - squares).max(0.0).sqrt();
    normalised(DVec4::from(q).as_vec4())
}
