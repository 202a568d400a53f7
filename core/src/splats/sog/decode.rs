//! From pictures and their description to splats.

use glam::{DVec4, Vec3, vec3};

use super::archive::{Archive, DESCRIPTION};
use super::encode::{FIRST_LARGEST, PER_ROW};
use super::meta::{Harmonics, MAX_PALETTE, Meta};
use super::picture::Picture;
use crate::splats::harmonics::sh_coefficients;
use crate::splats::values::{Splats, normalised};

/// What a file of any size may become, bytes: 280,000 splats with all their colours.
const ALWAYS: usize = 64 << 20;
/// How many times its size a larger one may become. A real scene comes to 15; WebP makes any number of pixels that are all the
/// same of a hundred bytes.
const MAX_RATIO: usize = 128;
/// How many times as many pixels as splats a picture may have, and how many more: some programs write squares whose sides are
/// powers of two, or rows of a fixed width.
const MAX_WASTE: usize = 4;
const MAX_SPARE: usize = 1 << 16;

/// The splats of an archive. The error is the sentence that says what is wrong.
pub(super) fn decode(bytes: &[u8]) -> Result<Splats, String> {
    let mut archive = Archive::open(bytes)?;
    let meta = Meta::parse(&archive.read(DESCRIPTION)?)?;
    let degree = meta.sh_n.as_ref().map_or(0, |sh_n| sh_n.bands);
    // At most 100 million times 236.
    let size = meta.count * size_of::<f32>() * (11 + 3 * sh_coefficients(degree));
    if size > ALWAYS && size / MAX_RATIO > bytes.len() {
        return Err(format!("its {} bytes cannot hold the {} splats it promises", bytes.len(), meta.count));
    }
    let mut splats = Splats::with_capacity(meta.count, degree);
    splats.antialiased = meta.antialias;
    means(&mut archive, &meta, &mut splats)?;
    rotations(&mut archive, &meta, &mut splats)?;

    let codes = pixels(&mut archive, &meta.scales.files[0], meta.count)?;
    for (i, [x, y, z, _]) in codes.iter().take(meta.count).enumerate() {
        let scale = coded(&meta.scales.codebook, [*x, *y, *z]);
        splats.log_scales.push(scale.ok_or_else(|| outside("scale", i))?.into());
    }
    drop(codes);

    let codes = pixels(&mut archive, &meta.sh0.files[0], meta.count)?;
    let palette =
        meta.sh_n.as_ref().map(|sh_n| SharedColours::read(&mut archive, sh_n, meta.count)).transpose()?;
    for (i, [r, g, b, a]) in codes.iter().take(meta.count).enumerate() {
        let colour = coded(&meta.sh0.codebook, [*r, *g, *b]);
        splats.sh.extend(colour.ok_or_else(|| outside("colour", i))?);
        if let Some(palette) = &palette {
            splats.sh.extend_from_slice(palette.of(i).ok_or_else(|| outside("palette entry", i))?);
        }
        // Bytes 0 and 255 have infinite logits: a quarter of a step inside they have not.
        let alpha = f32::from(*a).clamp(0.25, 254.75) / 255.0;
        splats.opacities.push((alpha / (1.0 - alpha)).ln());
    }
    Ok(splats)
}

fn outside(what: &str, i: usize) -> String {
    format!("the {what} of splat {i} has a number that stands for nothing")
}

/// Three values of a codebook.
fn coded(codebook: &[f32], numbers: [u8; 3]) -> Option<[f32; 3]> {
    let [a, b, c] = numbers.map(|number| codebook.get(usize::from(number)).copied());
    Some([a?, b?, c?])
}

/// A picture with a pixel for each splat.
fn pixels(archive: &mut Archive<'_>, name: &str, count: usize) -> Result<Vec<[u8; 4]>, String> {
    let file = archive.read(name)?;
    let most = count.saturating_mul(MAX_WASTE).saturating_add(MAX_SPARE);
    let fits = |width: usize, height: usize| (count..=most).contains(&(width * height));
    let picture = Picture::decode(&file, fits).map_err(|why| format!("its picture {name:?} {why}"))?;
    Ok(picture.pixels)
}

fn means(archive: &mut Archive<'_>, meta: &Meta, splats: &mut Splats) -> Result<(), String> {
    let [low, high] = &meta.means.files;
    let (low, high) = (pixels(archive, low, meta.count)?, pixels(archive, high, meta.count)?);
    let (mins, maxs) = (meta.means.mins, meta.means.maxs);
    for (low, high) in low.iter().zip(&high).take(meta.count) {
        let value = |k: usize| {
            let fraction = f64::from(u16::from_le_bytes([low[k], high[k]])) / 65_535.0;
            let logarithm = mins[k] + (maxs[k] - mins[k]) * fraction;
            logarithm.abs().exp_m1().copysign(logarithm) as f32
        };
        let mean: Vec3 = vec3(value(0), value(1), value(2));
        if !mean.is_finite() {
            return Err(format!("the position of splat {} is not finite", splats.means.len()));
        }
        splats.means.push(mean);
    }
    Ok(())
}

fn rotations(archive: &mut Archive<'_>, meta: &Meta, splats: &mut Splats) -> Result<(), String> {
    for (i, [a, b, c, tag]) in
        pixels(archive, &meta.quats.files[0], meta.count)?.iter().take(meta.count).enumerate()
    {
        let largest = tag.checked_sub(FIRST_LARGEST).ok_or_else(|| outside("rotation", i))?;
        let others = [*a, *b, *c].map(|byte| (f64::from(byte) / 255.0 - 0.5) * std::f64::consts::SQRT_2);
        let mut q = [0.0; 4];
        let mut squares = 0.0;
        let places = (0..4).filter(|k| *k != usize::from(largest));
        for (k, value) in places.zip(others) {
            q[k] = value;
            squares += value * value;
        }
        // 252 to 255.
        q[usize::from(largest)] = (1.0 - squares).max(0.0).sqrt();
        splats.rotations.push(normalised(DVec4::from(q).as_vec4()));
    }
    Ok(())
}

/// The palette of spherical harmonics, and the entry of each splat.
struct SharedColours {
    entries: Vec<f32>,
    /// Values of an entry.
    per_entry: usize,
    labels: Vec<[u8; 4]>,
}

impl SharedColours {
    fn read(archive: &mut Archive<'_>, meta: &Harmonics, count: usize) -> Result<Self, String> {
        let coefficients = sh_coefficients(meta.bands) - 1;
        let [palette, labels] = &meta.files;
        let file = archive.read(palette)?;
        let least = meta.count.unwrap_or(1).div_ceil(PER_ROW);
        let fits = |width: usize, height: usize| {
            width == PER_ROW * coefficients && (least..=MAX_PALETTE / PER_ROW).contains(&height)
        };
        let picture = Picture::decode(&file, fits).map_err(|why| format!("its picture {palette:?} {why}"))?;
        let entries = meta.count.unwrap_or(picture.pixels.len() / coefficients);
        let pixels = picture.pixels.iter().take(entries * coefficients);
        let values = pixels.map(|[r, g, b, _]| coded(&meta.codebook, [*r, *g, *b]));
        let values: Option<Vec<[f32; 3]>> = values.collect();
        let values = values.ok_or("a colour of its palette has a number that stands for nothing")?;
        let labels = self::pixels(archive, labels, count)?;
        Ok(Self { entries: values.into_flattened(), per_entry: 3 * coefficients, labels })
    }

    /// The coefficients of splat `i`.
    fn of(&self, i: usize) -> Option<&[f32]> {
        let [low, high, ..] = *self.labels.get(i)?;
        let start = usize::from(u16::from_le_bytes([low, high])) * self.per_entry;
        self.entries.get(start..start + self.per_entry)
    }
}
