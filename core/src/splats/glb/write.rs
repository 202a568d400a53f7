//! What is written: one primitive of points, each attribute in a buffer view of its own, in this order.

use std::io::{self, Write};

use glam::Vec3;
use serde_json::{Value, json};

use super::container::{BINARY, JSON, MAGIC, VERSION};
use super::document::EXTENSION;
use super::frame::{sh_sign, turned_position, turned_rotation};
use crate::error::{Error, Result};
use crate::splats::harmonics::{SH_C0, sh_coefficients};
use crate::splats::values::{Splats, normalised};

const FLOAT: u32 = 5126;
const BYTE: u32 = 5121;
const ARRAY_BUFFER: u32 = 34_962;
/// Header of the file, and of two chunks.
const HEADERS: usize = 12 + 2 * 8;

/// An attribute of the primitive.
#[derive(Clone, Copy)]
enum Attribute {
    Position,
    /// What programs draw that know glTF but no splats: colour and opacity of a point.
    Colour,
    Rotation,
    Scale,
    Opacity,
    /// Coefficient `k` of degree `l` of the spherical harmonics.
    Harmonic {
        l: u32,
        k: u32,
    },
}

impl Attribute {
    fn name(self) -> String {
        match self {
            Self::Position => "POSITION".to_owned(),
            Self::Colour => "COLOR_0".to_owned(),
            Self::Rotation => format!("{EXTENSION}:ROTATION"),
            Self::Scale => format!("{EXTENSION}:SCALE"),
            Self::Opacity => format!("{EXTENSION}:OPACITY"),
            Self::Harmonic { l, k } => format!("{EXTENSION}:SH_DEGREE_{l}_COEF_{k}"),
        }
    }

    /// Type and bytes of a value.
    fn shape(self) -> (&'static str, usize) {
        match self {
            Self::Position | Self::Scale | Self::Harmonic { .. } => ("VEC3", 12),
            Self::Colour => ("VEC4", 4),
            Self::Rotation => ("VEC4", 16),
            Self::Opacity => ("SCALAR", 4),
        }
    }

    /// Writes the values of all splats, in glTF's frame.
    fn write(self, splats: &Splats, out: &mut impl Write) -> io::Result<()> {
        let colours = 3 * sh_coefficients(splats.sh_degree);
        let opacity = |i: usize| 1.0 / (1.0 + (-f64::from(splats.opacities[i])).exp());
        for i in 0..splats.len() {
            match self {
                Self::Position => floats(out, turned_position(splats.means[i]).to_array())?,
                Self::Colour => {
                    let colour = splats.sh[colours * i..][..3].iter().map(|value| value * SH_C0 + 0.5);
                    for value in colour.chain([opacity(i) as f32]) {
                        out.write_all(&[(value * 255.0).round().clamp(0.0, 255.0) as u8])?;
                    }
                }
                Self::Rotation => {
                    let [w, x, y, z] = turned_rotation(normalised(splats.rotations[i])).to_array();
                    floats(out, [x, y, z, w])?;
                }
                Self::Scale => {
                    let scale = |value: f32| f64::from(value).exp().min(f64::from(f32::MAX)) as f32;
                    floats(out, splats.log_scales[i].to_array().map(scale))?;
                }
                Self::Opacity => floats(out, [opacity(i) as f32])?,
                Self::Harmonic { l, k } => {
                    // Degree l begins at coefficient l².
                    let coefficient = (l * l + k) as usize;
                    let [r, g, b] = [0, 1, 2].map(|c| splats.sh[colours * i + 3 * coefficient + c]);
                    floats(out, [r, g, b].map(|value| value * sh_sign(coefficient)))?;
                }
            }
        }
        Ok(())
    }
}

fn floats<const N: usize>(out: &mut impl Write, values: [f32; N]) -> io::Result<()> {
    values.into_iter().try_for_each(|value| out.write_all(&value.to_le_bytes()))
}

/// A file whose size and description are known.
pub(super) struct Layout {
    attributes: Vec<Attribute>,
    /// Filled up to a multiple of four bytes.
    json: Vec<u8>,
    buffer: u32,
    file: u32,
}

impl Layout {
    /// # Errors
    /// [`InvalidArgument`](crate::ErrorKind::InvalidArgument) if the splats do not fit into a file.
    pub(super) fn new(splats: &Splats) -> Result<Self> {
        let harmonics = (0..=splats.sh_degree).flat_map(|l| (0..=2 * l).map(move |k| (l, k)));
        let attributes: Vec<Attribute> = [
            Attribute::Position,
            Attribute::Colour,
            Attribute::Rotation,
            Attribute::Scale,
            Attribute::Opacity,
        ]
        .into_iter()
        .chain(harmonics.map(|(l, k)| Attribute::Harmonic { l, k }))
        .collect();
        let buffer = attributes.iter().map(|attribute| attribute.shape().1 * splats.len()).sum::<usize>();
        let mut json = description(splats, &attributes, buffer).to_string().into_bytes();
        json.resize(json.len().next_multiple_of(4), b' ');
        let counted = |size: usize| {
            u32::try_from(size).map_err(|_| {
                let message = format!("a .glb file has at most 4 GB: {} splats do not fit", splats.len());
                Error::argument(message).hint("write an .spz or .sog file")
            })
        };
        let file = counted(HEADERS + json.len() + buffer)?;
        Ok(Self { attributes, json, buffer: counted(buffer)?, file })
    }

    pub(super) fn write(&self, splats: &Splats, out: &mut impl Write) -> io::Result<()> {
        out.write_all(&MAGIC)?;
        out.write_all(&VERSION.to_le_bytes())?;
        out.write_all(&self.file.to_le_bytes())?;
        // Shorter than the file, whose size was counted.
        out.write_all(&(self.json.len() as u32).to_le_bytes())?;
        out.write_all(&JSON)?;
        out.write_all(&self.json)?;
        out.write_all(&self.buffer.to_le_bytes())?;
        out.write_all(&BINARY)?;
        self.attributes.iter().try_for_each(|attribute| attribute.write(splats, out))
    }
}

fn description(splats: &Splats, attributes: &[Attribute], buffer: usize) -> Value {
    let (mut views, mut accessors, mut offset) = (Vec::new(), Vec::new(), 0);
    for attribute in attributes {
        let (shape, size) = attribute.shape();
        let length = size * splats.len();
        views.push(json!({
            "buffer": 0, "byteOffset": offset, "byteLength": length, "target": ARRAY_BUFFER,
        }));
        let component = if matches!(attribute, Attribute::Colour) { BYTE } else { FLOAT };
        let mut accessor = json!({
            "bufferView": accessors.len(), "componentType": component, "count": splats.len(), "type": shape,
        });
        match attribute {
            Attribute::Colour => accessor["normalized"] = json!(true),
            // The format asks for the extent of positions.
            Attribute::Position => {
                let places = || splats.means.iter().map(|mean| turned_position(*mean));
                let (low, high) = (places().reduce(Vec3::min), places().reduce(Vec3::max));
                accessor["min"] = json!(low.unwrap_or_default().to_array());
                accessor["max"] = json!(high.unwrap_or_default().to_array());
            }
            _ => {}
        }
        accessors.push(accessor);
        offset += length;
    }
    let names = attributes.iter().enumerate().map(|(number, attribute)| (attribute.name(), json!(number)));
    let mut primitive = json!({
        "attributes": names.collect::<serde_json::Map<_, _>>(),
        "mode": 0,
        "extensions": { EXTENSION: {
            "kernel": "ellipse",
            "colorSpace": "srgb_rec709_display",
            "projection": "perspective",
            "sortingMethod": "cameraDistance",
        }},
    });
    if splats.antialiased {
        primitive["extras"] = json!({ "antialiased": true });
    }
    json!({
        "asset": { "version": "2.0", "generator": format!("libreconstruct {}", env!("CARGO_PKG_VERSION")) },
        "extensionsUsed": [EXTENSION],
        "scene": 0,
        "scenes": [{ "nodes": [0] }],
        "nodes": [{ "mesh": 0 }],
        "meshes": [{ "primitives": [primitive] }],
        "accessors": accessors,
        "bufferViews": views,
        "buffers": [{ "byteLength": buffer }],
    })
}
