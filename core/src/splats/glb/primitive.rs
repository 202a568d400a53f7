//! One primitive: its attributes as splats, in glTF's frame and without the motion of its nodes.

use super::columns::Column;
use super::document::{Document, EXTENSION, MeshPrimitive};
use crate::splats::harmonics::sh_coefficients;
use crate::splats::values::{MAX_LOGIT, MIN_LOG_SCALE, Splats, normalised};

/// How far an opacity may be outside of 0 to 1 by somebody's rounding.
const OPACITY_SLACK: f64 = 1e-4;

pub(super) struct Primitive<'a> {
    positions: Column<'a, 3>,
    rotations: Column<'a, 4>,
    scales: Column<'a, 3>,
    opacities: Column<'a, 1>,
    /// A column a coefficient.
    colours: Vec<Column<'a, 3>>,
    pub(super) count: usize,
    /// Of the spherical harmonics, 0 to 3.
    pub(super) degree: u32,
    pub(super) antialiased: bool,
}

impl<'a> Primitive<'a> {
    /// Finds the attributes of a primitive in the buffer; their values are not looked at.
    pub(super) fn open(
        document: &Document,
        primitive: &MeshPrimitive,
        buffer: &'a [u8],
    ) -> Result<Self, String> {
        let attributes = &primitive.attributes;
        let required = |name: String| match attributes.get(&name) {
            Some(number) => Ok((*number, name)),
            None => Err(format!("its splats have no attribute {name}")),
        };
        let own = |name: &str| required(format!("{EXTENSION}:{name}"));
        let (position, name) = required("POSITION".to_owned())?;
        let positions = Column::open(document, position, &name, buffer)?;
        let (rotation, name) = own("ROTATION")?;
        let rotations = Column::open(document, rotation, &name, buffer)?;
        let (scale, name) = own("SCALE")?;
        let scales = Column::open(document, scale, &name, buffer)?;
        let (opacity, name) = own("OPACITY")?;
        let opacities = Column::open(document, opacity, &name, buffer)?;

        let has = |degree: u32| {
            let prefix = format!("{EXTENSION}:SH_DEGREE_{degree}_");
            attributes.keys().any(|name| name.starts_with(&prefix))
        };
        let degree = (1..=3).rev().find(|&degree| has(degree)).unwrap_or(0);
        let mut colours = Vec::with_capacity(sh_coefficients(degree));
        for (degree, k) in (0..=degree).flat_map(|degree| (0..=2 * degree).map(move |k| (degree, k))) {
            let (number, name) = own(&format!("SH_DEGREE_{degree}_COEF_{k}"))?;
            colours.push(Column::open(document, number, &name, buffer)?);
        }
        let count = positions.count;
        let all = [rotations.count, scales.count, opacities.count];
        if all.into_iter().chain(colours.iter().map(|column| column.count)).any(|other| other != count) {
            return Err("the attributes of its splats are not all of the same length".into());
        }
        let antialiased = primitive.is_antialiased();
        Ok(Self { positions, rotations, scales, opacities, colours, count, degree, antialiased })
    }

    /// Appends the splats to `splats`, whose degree is not lower: colours of a higher degree are zero.
    pub(super) fn append(&self, splats: &mut Splats) -> Result<(), String> {
        let missing = 3 * (sh_coefficients(splats.sh_degree) - self.colours.len());
        for i in 0..self.count {
            let wrong = |what: &str| format!("the {what} of splat {i} of a primitive");
            let finite = |values: &[f32], what: &str| match values.iter().all(|v| v.is_finite()) {
                true => Ok(()),
                false => Err(format!("{} is not finite", wrong(what))),
            };
            let position = self.positions.row(i);
            finite(&position, "position")?;
            splats.means.push(position.into());

            let scale = self.scales.row(i);
            finite(&scale, "scale")?;
            if scale.iter().any(|&v| v < 0.0) {
                let drafts = "drafts of the extension had logarithms here, which are not supported";
                return Err(format!("{} is negative ({drafts})", wrong("scale")));
            }
            splats.log_scales.push(scale.map(|v| (f64::from(v).ln() as f32).max(MIN_LOG_SCALE)).into());

            let [x, y, z, w] = self.rotations.row(i);
            finite(&[x, y, z, w], "rotation")?;
            splats.rotations.push(normalised([w, x, y, z].into()));

            let [opacity] = self.opacities.row(i).map(f64::from);
            if !(-OPACITY_SLACK..=1.0 + OPACITY_SLACK).contains(&opacity) {
                return Err(format!("{} is not from 0 to 1", wrong("opacity")));
            }
            let logit = (opacity / (1.0 - opacity)).ln() as f32;
            // Of what rounding left outside, the logarithm is no number.
            let logit = match opacity {
                _ if opacity >= 1.0 => MAX_LOGIT,
                _ if opacity <= 0.0 => -MAX_LOGIT,
                _ => logit,
            };
            splats.opacities.push(logit);

            for column in &self.colours {
                let colour = column.row(i);
                finite(&colour, "colour")?;
                splats.sh.extend(colour);
            }
            splats.sh.extend(std::iter::repeat_n(0.0, missing));
        }
        Ok(())
    }
}
