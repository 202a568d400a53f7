//! Textures: procedural materials, drawn once into pictures with mip levels.

use std::sync::Arc;

use nalgebra::Vector3;

pub(super) type Colour = Vector3<f32>;

/// A picture that repeats, with mip levels; linear light.
pub(super) struct Texture {
    levels: Vec<Level>,
}

struct Level {
    size: usize,
    texels: Vec<Colour>,
}

impl Texture {
    /// Draws `paint(u, v)` (u, v in 0..1; result in sRGB, 0..1) on a grid of `size` x `size`, a power of two.
    pub(super) fn paint(size: usize, paint: impl Fn(f32, f32) -> [f32; 3] + Sync) -> Arc<Self> {
        use rayon::prelude::*;
        let texels = (0..size * size)
            .into_par_iter()
            .map(|i| {
                let (x, y) = (i % size, i / size);
                let c = paint((x as f32 + 0.5) / size as f32, (y as f32 + 0.5) / size as f32);
                Colour::from(c.map(decode_srgb))
            })
            .collect();
        let mut levels = vec![Level { size, texels }];
        while let Some(last) = levels.last().filter(|l| l.size > 1) {
            let half = last.size / 2;
            let texels = (0..half * half)
                .map(|i| {
                    let (x, y) = (2 * (i % half), 2 * (i / half));
                    let row = last.size;
                    let at = |x: usize, y: usize| last.texels[y * row + x];
                    (at(x, y) + at(x + 1, y) + at(x, y + 1) + at(x + 1, y + 1)) * 0.25
                })
                .collect();
            levels.push(Level { size: half, texels });
        }
        Arc::new(Self { levels })
    }

    /// The colour at (u, v), averaged over about `footprint` (in the unit of u and v).
    pub(super) fn sample(&self, u: f32, v: f32, footprint: f32) -> Colour {
        let finest = self.levels[0].size as f32;
        let level = (footprint * finest).max(1.0).log2().min((self.levels.len() - 1) as f32);
        let (low, part) = (level.floor() as usize, level.fract());
        let a = self.levels[low].bilinear(u, v);
        match self.levels.get(low + 1) {
            Some(next) if part > 0.0 => a.lerp(&next.bilinear(u, v), part),
            _ => a,
        }
    }
}

impl Level {
    fn bilinear(&self, u: f32, v: f32) -> Colour {
        let n = self.size as i64;
        // The remainder by a power of two; a division would take most of the time that a sample takes.
        let wrap = |value: f32, more: i64| (value as i64 + more) & (n - 1);
        let (x, y) = (u * n as f32 - 0.5, v * n as f32 - 0.5);
        let (x0, y0) = (floor(x), floor(y));
        let (fx, fy) = (x - x0, y - y0);
        let at = |dx: i64, dy: i64| self.texels[(wrap(y0, dy) * n + wrap(x0, dx)) as usize];
        at(0, 0).lerp(&at(1, 0), fx).lerp(&at(0, 1).lerp(&at(1, 1), fx), fy)
    }
}

pub(super) fn decode_srgb(value: f32) -> f32 {
    if value <= 0.04045 { value / 12.92 } else { ((value + 0.055) / 1.055).powf(2.4) }
}

pub(super) fn encode_srgb(value: f64) -> f64 {
    let value = value.clamp(0.0, 1.0);
    if value <= 0.003_130_8 { value * 12.92 } else { 1.055 * value.powf(1.0 / 2.4) - 0.055 }
}

fn mix(mut key: u64) -> u64 {
    key = key.wrapping_add(0x9e37_79b9_7f4a_7c15);
    key = (key ^ (key >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    key = (key ^ (key >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    key ^ (key >> 31)
}

/// Uniform in 0..1, fixed by its keys.
pub(crate) fn uniform(seed: u64, key: u64) -> f64 {
    (mix(seed ^ mix(key)) >> 11) as f64 / (1u64 << 53) as f64
}

/// Standard normal, fixed by its keys.
pub(super) fn normal(seed: u64, key: u64) -> f64 {
    let radius = (-2.0 * (1.0 - uniform(seed, 2 * key)).ln()).sqrt();
    radius * (std::f64::consts::TAU * uniform(seed, 2 * key + 1)).cos()
}

fn cell(seed: u64, x: i64, y: i64) -> f32 {
    uniform(seed, (x as u64) << 32 ^ (y as u64 & 0xffff_ffff)) as f32
}

/// The largest whole number that is not above `x`. Without the instruction for it, which not every processor has, `floor` is a call.
fn floor(x: f32) -> f32 {
    let whole = x as i64 as f32;
    if whole > x { whole - 1.0 } else { whole }
}

/// Smooth noise in 0..1 that repeats: the values at its cells' corners, with the first row and column once more after the last.
struct Noise {
    period: usize,
    corners: Vec<f32>,
}

impl Noise {
    fn new(seed: u64, period: usize) -> Self {
        let corner = |x: usize, y: usize| cell(seed, (x % period) as i64, (y % period) as i64);
        let corners = (0..=period).flat_map(|y| (0..=period).map(move |x| corner(x, y))).collect();
        Self { period, corners }
    }

    fn at(&self, x: f32, y: f32) -> f32 {
        let (x0, y0) = (floor(x), floor(y));
        let smooth = |t: f32| t * t * (3.0 - 2.0 * t);
        let (fx, fy) = (smooth(x - x0), smooth(y - y0));
        let period = self.period as i64;
        // Nearly all are inside, and a division takes longer than the rest.
        let wrap = |k: i64| if (0..period).contains(&k) { k } else { k.rem_euclid(period) } as usize;
        let first = wrap(y0 as i64) * (self.period + 1) + wrap(x0 as i64);
        let upper = &self.corners[first..first + 2];
        let lower = &self.corners[first + self.period + 1..first + self.period + 3];
        let (a, b) = (upper[0] + (upper[1] - upper[0]) * fx, lower[0] + (lower[1] - lower[0]) * fx);
        a + (b - a) * fy
    }
}

/// Sum of octaves of noise in 0..1. A texture asks at each of its texels: what is at the cells' corners is drawn once.
struct Fractal {
    octaves: Vec<Noise>,
}

impl Fractal {
    /// `cells` of the coarsest octave across the texture.
    fn new(seed: u64, cells: usize, octaves: u32) -> Self {
        let octaves = (0..octaves).map(|k| Noise::new(seed + u64::from(k), cells << k)).collect();
        Self { octaves }
    }

    fn at(&self, u: f32, v: f32) -> f32 {
        let (mut sum, mut weight, mut total) = (0.0, 0.5, 0.0);
        for noise in &self.octaves {
            let n = noise.period as f32;
            sum += weight * noise.at(u * n, v * n);
            total += weight;
            weight *= 0.5;
        }
        sum / total
    }
}

fn scale(colour: [f32; 3], factor: f32) -> [f32; 3] {
    colour.map(|c| (c * factor).clamp(0.0, 1.0))
}

fn blend(a: [f32; 3], b: [f32; 3], t: f32) -> [f32; 3] {
    let t = t.clamp(0.0, 1.0);
    std::array::from_fn(|i| a[i] + (b[i] - a[i]) * t)
}

/// Red bricks in running bond.
pub(super) fn bricks(seed: u64) -> Arc<Texture> {
    let wobbles = Fractal::new(seed + 9, 24, 4);
    let tones = Fractal::new(seed + 3, 32, 5);
    Texture::paint(1024, |u, v| {
        let (rows, columns) = (12.0, 5.0);
        let row = (v * rows).floor();
        let shifted = u * columns + if (row as i64) % 2 == 0 { 0.0 } else { 0.5 };
        let (fx, fy) = (shifted.fract(), (v * rows).fract());
        let edge = (fx.min(1.0 - fx) / 0.03).min(fy.min(1.0 - fy) / 0.08);
        let wobble = wobbles.at(u, v);
        let mortar = scale([0.72, 0.69, 0.64], 0.8 + 0.3 * wobble);
        let tone = cell(seed, (shifted.floor() as i64).rem_euclid(5), row as i64);
        let clay = blend([0.62, 0.28, 0.20], [0.45, 0.24, 0.22], tone);
        let clay = scale(clay, 0.65 + 0.6 * tones.at(u, v));
        blend(mortar, clay, (edge - 0.6 + 0.5 * (wobble - 0.5)) * 2.0)
    })
}

/// Floor boards with grain.
pub(super) fn boards(seed: u64, dark: [f32; 3], light: [f32; 3], planks: f32) -> Arc<Texture> {
    let grains: Vec<_> =
        (0..planks.ceil() as u64).map(|plank| Fractal::new(seed + 5 + plank, 64, 3)).collect();
    let bends = Fractal::new(seed + 1, 6, 3);
    let wear = Fractal::new(seed + 8, 48, 3);
    Texture::paint(1024, |u, v| {
        let plank = (v * planks).floor();
        let shift = cell(seed, plank as i64, 7);
        let along = (u + shift) * 2.0;
        let board = along.floor() as i64;
        let tone = cell(seed, plank as i64, board.rem_euclid(2));
        let grain = grains[plank as usize].at((u * 4.0).fract(), v);
        let rings = (v * planks * 9.0 + 3.0 * bends.at(u, v)).sin() * 0.5 + 0.5;
        let wood = blend(dark, light, 0.5 * tone + 0.3 * grain + 0.2 * rings);
        let (fy, fx) = ((v * planks).fract(), along.fract());
        let gap = (fy.min(1.0 - fy) / 0.02).min(fx.min(1.0 - fx) / 0.004).min(1.0);
        scale(wood, (0.35 + 0.65 * gap) * (0.85 + 0.3 * wear.at(u, v)))
    })
}

/// Painted plaster with stains and scratches.
pub(super) fn plaster(seed: u64, paint: [f32; 3]) -> Arc<Texture> {
    let stained = Fractal::new(seed, 5, 6);
    let gritty = Fractal::new(seed + 17, 96, 3);
    let scratched = Fractal::new(seed + 31, 9, 4);
    Texture::paint(1024, |u, v| {
        let stains = stained.at(u, v);
        let grit = gritty.at(u, v);
        let scratch = ((scratched.at(u, v) - 0.5).abs() / 0.012).min(1.0);
        scale(paint, (0.72 + 0.36 * stains + 0.22 * (grit - 0.5)) * (0.8 + 0.2 * scratch))
    })
}

/// Speckled stone.
pub(super) fn granite(seed: u64, base: [f32; 3]) -> Arc<Texture> {
    let veined = Fractal::new(seed, 4, 5);
    let speckled = Fractal::new(seed + 11, 64, 3);
    Texture::paint(512, |u, v| {
        let veins = ((veined.at(u, v) * 12.0).sin() * 0.5 + 0.5).powi(3);
        let speck = speckled.at(u, v);
        scale(base, (0.5 + 0.9 * speck) * (0.75 + 0.45 * veins))
    })
}

/// A woven rug with rows of figures.
pub(super) fn rug(seed: u64) -> Arc<Texture> {
    let wear = Fractal::new(seed + 2, 40, 4);
    Texture::paint(1024, |u, v| {
        let (x, y) = ((u - 0.5).abs() * 2.0, (v - 0.5).abs() * 2.0);
        let border = x.max(y);
        let (a, b) = ((u * 14.0).floor() as i64, (v * 14.0).floor() as i64);
        let (fx, fy) = ((u * 14.0).fract() - 0.5, (v * 14.0).fract() - 0.5);
        let kind = (cell(seed, a.min(13 - a), b.min(13 - b)) * 4.0) as u32;
        let figure = match kind {
            0 => fx.abs() + fy.abs() < 0.36,
            1 => fx.abs().max(fy.abs()) < 0.3,
            2 => fx * fx + fy * fy < 0.11,
            _ => (fx.abs() - fy.abs()).abs() < 0.12,
        };
        let ground = if border > 0.86 { [0.15, 0.18, 0.35] } else { [0.52, 0.13, 0.14] };
        let ink = if (a + b) % 2 == 0 { [0.85, 0.74, 0.5] } else { [0.2, 0.4, 0.42] };
        let stripe = (0.84..0.87).contains(&border) || (0.95..0.97).contains(&border);
        let colour = if figure || stripe { ink } else { ground };
        let weave = 0.85 + 0.15 * ((u * 700.0).sin() * (v * 700.0).sin());
        scale(colour, weave * (0.7 + 0.5 * wear.at(u, v)))
    })
}

/// An abstract painting: sky, hills, strokes.
pub(super) fn painting(seed: u64) -> Arc<Texture> {
    let hue = |k: u64| -> [f32; 3] {
        std::array::from_fn(|i| 0.22 + 0.5 * uniform(seed, 40 + 3 * k + i as u64) as f32)
    };
    let colours: Vec<[f32; 3]> = (0..6).map(hue).collect();
    let framed = Fractal::new(seed, 32, 2);
    let sky = Fractal::new(seed + 1, 5, 4);
    let ridges = [0, 1, 2, 3].map(|k| Fractal::new(seed + 60 + k, 4, 5));
    let hills = [0, 1, 2, 3].map(|k| Fractal::new(seed + 90 + k, 16, 4));
    let strokes = Fractal::new(seed + 5, 24, 3);
    Texture::paint(512, move |u, v| {
        let frame = u.min(1.0 - u).min(v.min(1.0 - v));
        if frame < 0.05 {
            return scale([0.42, 0.3, 0.14], 0.7 + 12.0 * frame + 0.3 * framed.at(u, v));
        }
        let mut colour = blend(colours[0], colours[1], v + 0.3 * sky.at(u, v));
        for k in 0..4 {
            let ridge = 0.25 + 0.17 * k as f32 + 0.3 * (ridges[k].at(u, 0.3) - 0.5);
            if v > ridge {
                colour = scale(colours[2 + k], 0.6 + 0.7 * hills[k].at(u, v));
            }
        }
        let stroke = strokes.at(u, v);
        scale(colour, 0.8 + 0.4 * stroke)
    })
}

/// A shelf's worth of book spines.
pub(super) fn books(seed: u64) -> Arc<Texture> {
    let wear = Fractal::new(seed + 8, 64, 3);
    Texture::paint(512, |u, v| {
        let count = 26.0;
        let book = (u * count).floor() as i64;
        let across = (u * count).fract();
        let tone: [f32; 3] = std::array::from_fn(|i| 0.14 + 0.45 * cell(seed + i as u64, book, 1));
        let tall = 0.72 + 0.26 * cell(seed + 4, book, 2);
        if 1.0 - v > tall {
            return [0.06, 0.05, 0.05];
        }
        let round = (std::f32::consts::PI * across).sin().max(0.0).sqrt();
        let line = (v * 40.0).floor() as i64;
        let text = (0.25..0.75).contains(&across)
            && cell(seed + 6, book, line) > 0.72
            && cell(seed + 7, (u * 500.0) as i64, line) > 0.35;
        let band = (v - 0.35 - 0.4 * cell(seed + 5, book, 3)).abs() < 0.015;
        let ink = if text || band { [0.88, 0.8, 0.55] } else { tone };
        scale(ink, (0.35 + 0.65 * round) * (0.8 + 0.3 * wear.at(u, v)))
    })
}

/// A printed page: headline, columns of words, a picture.
pub(super) fn poster(seed: u64) -> Arc<Texture> {
    let yellowed = Fractal::new(seed, 12, 4);
    let shades = Fractal::new(seed + 3, 10, 5);
    Texture::paint(512, |u, v| {
        let paper = scale([0.93, 0.91, 0.85], 0.9 + 0.12 * yellowed.at(u, v));
        let inside = (0.08..0.92).contains(&u) && (0.06..0.94).contains(&v);
        if !inside {
            return paper;
        }
        let ink = [0.1, 0.1, 0.13];
        if v < 0.2 {
            let letter = cell(seed, (u * 26.0) as i64, (v * 22.0) as i64) > 0.42;
            return if letter { [0.55, 0.1, 0.1] } else { paper };
        }
        if (0.25..0.55).contains(&v) && u < 0.5 {
            let shade = shades.at(u, v);
            return scale([0.35, 0.5, 0.62], 0.4 + 1.2 * shade);
        }
        let line = v * 60.0;
        let word = cell(seed + 9, (u * 90.0) as i64, line as i64) > 0.35;
        if line.fract() < 0.55 && word { ink } else { paper }
    })
}

/// Glazed ceramic with bands and dots.
pub(super) fn ceramic(seed: u64) -> Arc<Texture> {
    let glazed = Fractal::new(seed, 20, 5);
    Texture::paint(512, |u, v| {
        let band = ((v * 7.0).floor() as i64).rem_euclid(7);
        let (fx, fy) = ((u * 18.0).fract() - 0.5, (v * 7.0).fract() - 0.5);
        let glaze = [[0.9, 0.88, 0.8], [0.15, 0.3, 0.55], [0.75, 0.5, 0.2]][(band % 3) as usize];
        let mark = match band {
            0 | 4 => fx.abs() + fy.abs() < 0.33,
            2 | 5 => fx * fx + fy * fy < 0.08,
            _ => (fx * 6.0).sin() * 0.3 > fy,
        };
        let colour = if mark { [0.2, 0.16, 0.25] } else { glaze };
        scale(colour, 0.7 + 0.5 * glazed.at(u, v))
    })
}

/// One colour with cloth-like irregularity.
pub(super) fn cloth(seed: u64, colour: [f32; 3]) -> Arc<Texture> {
    let worn = Fractal::new(seed, 24, 5);
    Texture::paint(512, |u, v| {
        let check = ((u * 8.0).floor() + (v * 8.0).floor()) as i64 % 2 == 0;
        let thread = 0.9 + 0.1 * (u * 800.0).sin() * (v * 800.0).sin();
        let tone = if check { 1.0 } else { 0.72 };
        scale(colour, tone * thread * (0.6 + 0.7 * worn.at(u, v)))
    })
}

/// Modules of the grid on which tags are painted: a divisor of the texture's size, so that edges are exact.
pub(super) const TAG_GRID: f64 = 16.0;
/// Modules of the grid that are printed, from its corner: the tag with a white margin of one module. The inner white square is
/// 5 of them wide.
pub(super) const TAG_SHEET: f64 = 11.0;

/// Modules on a grid, from (1, 1) on; `white` says which are, and is none outside.
fn modules(white: impl Fn(usize, usize) -> Option<bool> + Sync) -> Arc<Texture> {
    Texture::paint(1024, |u, v| {
        let cell = |w: f32| ((w * TAG_GRID as f32).floor() as usize).checked_sub(1);
        let (Some(x), Some(y)) = (cell(u), cell(v)) else { return [0.92; 3] };
        if white(x, y).unwrap_or(true) { [0.92; 3] } else { [0.06; 3] }
    })
}

/// A tag of the family tagStandard41h12.
pub(super) fn tag(id: u32) -> Arc<Texture> {
    // An id that does not exist would be a blank sheet; those of the room exist.
    let pattern = libreconstruct::fiducial::modules(id).unwrap_or([[true; 9]; 9]);
    modules(|x, y| pattern.get(y)?.get(x).copied())
}

/// Tag 0 of the family tag36h11: 8x8 modules with its black border, 1 = white.
const OTHER_TAG: [&[u8; 8]; 8] =
    [b"00000000", b"01101010", b"00111010", b"00110000", b"01010000", b"00101100", b"00001000", b"00000000"];

/// A tag of another family, which must not be mistaken for one of ours.
pub(super) fn other_tag() -> Arc<Texture> {
    modules(|x, y| Some(OTHER_TAG.get(y)?.get(x)? == &b'1'))
}
