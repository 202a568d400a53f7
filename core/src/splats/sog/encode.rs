//! From splats to pictures and their description.

use rayon::prelude::*;

use super::archive::DESCRIPTION;
use super::codebook::{codebook, nearest};
use super::meta::{Asset, Coded, Files, Harmonics, MAX_PALETTE, Means, Meta, VERSION};
use super::palette::palette;
use super::picture::Picture;
use super::points::Points;
use super::webp;
use crate::splats::harmonics::sh_coefficients;
use crate::splats::order::morton;
use crate::splats::values::{Splats, normalised};

/// Sets of coefficients in a row of the picture of the palette.
pub(super) const PER_ROW: usize = 64;
/// As many splats share a set of spherical harmonics, on average, where there are enough: in so many dimensions four times as
/// many sets make the error hardly smaller, and the file larger by a half.
const SPLATS_PER_ENTRY: usize = 16;
/// So many sets are worth their bytes in any scene.
const FEW_ENTRIES: usize = 1024;
/// Alpha of a quaternion whose first component is the largest.
pub(super) const FIRST_LARGEST: u8 = 252;
const OPAQUE: u8 = 255;

/// The files of a scene, which is not empty and all of whose values are finite.
pub(super) fn encode(splats: &Splats) -> Vec<(&'static str, Vec<u8>)> {
    let (places, mins, maxs) = places(splats);
    let order = morton(&places);
    let picture = |pixel: &(dyn Fn(usize) -> [u8; 4] + Sync)| {
        Picture::square(order.par_iter().map(|number| pixel(*number as usize)).collect())
    };
    let bytes = |k: usize| {
        picture(&|i| {
            let [x, y, z] = places[i].map(|place| place.to_le_bytes()[k]);
            [x, y, z, OPAQUE]
        })
    };
    let scales = codebook(splats.log_scales.iter().flat_map(|scale| scale.to_array()).collect());
    let colours = 3 * sh_coefficients(splats.sh_degree);
    let sh0 = codebook(splats.sh.chunks_exact(colours).flat_map(|sh| sh[..3].to_vec()).collect());
    let mut files = vec![
        ("means_l.webp", bytes(0)),
        ("means_u.webp", bytes(1)),
        ("quats.webp", picture(&|i| quaternion(splats, i))),
        (
            "scales.webp",
            picture(&|i| {
                let [x, y, z] = splats.log_scales[i].to_array().map(|scale| nearest(&scales, scale));
                [x, y, z, OPAQUE]
            }),
        ),
        (
            "sh0.webp",
            picture(&|i| {
                let [r, g, b] = [0, 1, 2].map(|k| nearest(&sh0, splats.sh[colours * i + k]));
                let opacity = 1.0 / (1.0 + (-splats.opacities[i]).exp());
                [r, g, b, (opacity * 255.0).round() as u8]
            }),
        ),
    ];
    let sh_n = (splats.sh_degree > 0).then(|| {
        let shared = harmonics(splats);
        files.push(("shN_centroids.webp", shared.palette));
        let label = |i: usize| {
            let [low, high, ..] = shared.labels[i].to_le_bytes();
            [low, high, 0, OPAQUE]
        };
        files.push(("shN_labels.webp", picture(&label)));
        Harmonics {
            count: Some(shared.count),
            bands: splats.sh_degree,
            codebook: shared.codebook,
            files: ["shN_centroids.webp", "shN_labels.webp"].map(str::to_owned),
        }
    });
    let meta = Meta {
        version: VERSION,
        asset: Some(Asset { generator: format!("libreconstruct {}", env!("CARGO_PKG_VERSION")) }),
        count: splats.len(),
        antialias: splats.antialiased,
        means: Means { mins, maxs, files: ["means_l.webp", "means_u.webp"].map(str::to_owned) },
        scales: Coded { codebook: scales, files: ["scales.webp".to_owned()] },
        quats: Files { files: ["quats.webp".to_owned()] },
        sh0: Coded { codebook: sh0, files: ["sh0.webp".to_owned()] },
        sh_n,
    };
    // Numbers and strings only: that cannot fail.
    let description = serde_json::to_vec(&meta).unwrap_or_default();
    // First what readers need first.
    let pictures = files.into_par_iter().map(|(name, picture)| (name, webp::encode(&picture)));
    [(DESCRIPTION, description)].into_par_iter().chain(pictures).collect()
}

/// Positions in 16 bits, and what 0 and 65535 stand for on each axis: logarithms, so that what is far away takes no bits from
/// what is near the origin.
fn places(splats: &Splats) -> (Vec<[u16; 3]>, [f64; 3], [f64; 3]) {
    let logarithms = |i: usize| {
        splats.means[i].to_array().map(|value| {
            let value = f64::from(value);
            value.abs().ln_1p().copysign(value)
        })
    };
    let none = ([f64::INFINITY; 3], [f64::NEG_INFINITY; 3]);
    let merge = |a: ([f64; 3], [f64; 3]), b: ([f64; 3], [f64; 3])| {
        ([0, 1, 2].map(|k| a.0[k].min(b.0[k])), [0, 1, 2].map(|k| a.1[k].max(b.1[k])))
    };
    let all = (0..splats.len()).into_par_iter();
    let (mins, maxs) = all.clone().map(|i| (logarithms(i), logarithms(i))).reduce(|| none, merge);
    let place = |i: usize| {
        let logarithms = logarithms(i);
        [0, 1, 2].map(|k| {
            let range = maxs[k] - mins[k];
            let fraction = if range > 0.0 { (logarithms[k] - mins[k]) / range } else { 0.0 };
            (fraction * 65_535.0).round() as u16
        })
    };
    (all.map(place).collect(), mins, maxs)
}

/// The three smaller components, as if the largest were positive, from -1/√2 to 1/√2; alpha says which that is.
fn quaternion(splats: &Splats, i: usize) -> [u8; 4] {
    // w, x, y, z.
    let q = normalised(splats.rotations[i]).to_array();
    let largest = (1..4).fold(0, |best, k| if q[k].abs() > q[best].abs() { k } else { best });
    let factor = std::f32::consts::FRAC_1_SQRT_2.copysign(q[largest]);
    let byte = |k: usize| ((q[k] * factor + 0.5) * 255.0).round() as u8;
    let mut others = (0..4).filter(|k| *k != largest).map(byte);
    let mut next = || others.next().unwrap_or_default(); // there are three
    [next(), next(), next(), FIRST_LARGEST + largest as u8]
}

/// Spherical harmonics that splats share.
struct Shared {
    count: usize,
    codebook: Vec<f32>,
    palette: Picture,
    /// By the number of the splat.
    labels: Vec<u32>,
}

fn harmonics(splats: &Splats) -> Shared {
    let coefficients = sh_coefficients(splats.sh_degree) - 1;
    let dimensions = 3 * coefficients;
    let points = Points::new(splats.len(), dimensions, |i, row| {
        row.copy_from_slice(&splats.sh[(dimensions + 3) * i + 3..][..dimensions]);
    });
    let weights: Vec<f32> = (0..splats.len()).into_par_iter().map(|i| weight(splats, i)).collect();
    let few = splats.len().min(FEW_ENTRIES);
    let most = (splats.len() / SPLATS_PER_ENTRY).clamp(few, MAX_PALETTE);
    let palette = palette(&points, &weights, most);
    drop(points);
    let entries = &palette.entries;
    let count = entries.len();
    let codebook = codebook((0..count).flat_map(|entry| entries.row(entry)[..dimensions].to_vec()).collect());
    let mut pixels = vec![[0, 0, 0, OPAQUE]; PER_ROW * coefficients * count.div_ceil(PER_ROW)];
    // Entries follow each other as their pixels do.
    pixels.par_chunks_exact_mut(coefficients).take(count).enumerate().for_each(|(entry, pixels)| {
        for (pixel, values) in pixels.iter_mut().zip(entries.row(entry).chunks_exact(3)) {
            for (byte, value) in pixel.iter_mut().zip(values) {
                *byte = nearest(&codebook, *value);
            }
        }
    });
    let palette_picture = Picture { width: PER_ROW * coefficients, height: count.div_ceil(PER_ROW), pixels };
    Shared { count, codebook, palette: palette_picture, labels: palette.labels }
}

/// How much a splat is seen: its colours are kept the better.
fn weight(splats: &Splats, i: usize) -> f32 {
    let opacity = 1.0 / (1.0 + (-splats.opacities[i]).exp());
    // The two larger axes are seen, and single huge splats must not have all.
    let [a, b, c] = splats.log_scales[i].to_array();
    let size = (a + b + c - a.min(b).min(c)) / 2.0;
    opacity * size.clamp(-12.0, 4.0).exp()
}
