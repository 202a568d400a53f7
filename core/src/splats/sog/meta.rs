//! The description of a scene, `meta.json`.

use serde::{Deserialize, Serialize};

/// The version that is written and read.
pub(super) const VERSION: u32 = 2;
/// Most splats of a scene that is read or written: ten times what the largest training makes.
pub(super) const MAX_SPLATS: usize = 100_000_000;
/// Most values of a codebook: its numbers are bytes.
pub(super) const CODEBOOK: usize = 256;
/// Most sets of spherical harmonics that splats share: their numbers are two bytes.
pub(super) const MAX_PALETTE: usize = 1 << 16;
/// Longest description that is read, bytes. Three codebooks have 15,000.
const MAX_DESCRIPTION: usize = 1 << 20;

#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Meta {
    pub(super) version: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) asset: Option<Asset>,
    pub(super) count: usize,
    /// Whether the scene was trained with the anti-aliasing filter.
    #[serde(default)]
    pub(super) antialias: bool,
    pub(super) means: Means,
    pub(super) scales: Coded,
    pub(super) quats: Files<1>,
    pub(super) sh0: Coded,
    #[serde(default, rename = "shN", skip_serializing_if = "Option::is_none")]
    pub(super) sh_n: Option<Harmonics>,
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Asset {
    #[serde(default)]
    pub(super) generator: String,
}

/// Positions, as logarithms: from 0 to 65535 they go from the least to the greatest.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Means {
    pub(super) mins: [f64; 3],
    pub(super) maxs: [f64; 3],
    /// Low bytes, high bytes.
    pub(super) files: [String; 2],
}

/// Numbers of values in a codebook.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Coded {
    pub(super) codebook: Vec<f32>,
    pub(super) files: [String; 1],
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Files<const N: usize>
where
    [String; N]: Serialize + for<'a> Deserialize<'a>,
{
    pub(super) files: [String; N],
}

/// Spherical harmonics beyond degree 0: a palette of sets of coefficients, and for each splat the number of its set.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Harmonics {
    /// Sets in the palette; some files do not say it.
    pub(super) count: Option<usize>,
    /// The degree.
    pub(super) bands: u32,
    pub(super) codebook: Vec<f32>,
    /// The palette, the numbers.
    pub(super) files: [String; 2],
}

impl Meta {
    pub(super) fn parse(json: &[u8]) -> Result<Self, String> {
        #[derive(Deserialize)]
        struct Versioned {
            version: Option<u32>,
        }
        if json.len() > MAX_DESCRIPTION {
            return Err(format!(
                "its description has {} bytes; up to {MAX_DESCRIPTION} are read",
                json.len()
            ));
        }
        let damaged = |e: serde_json::Error| format!("its description is damaged: {e}");
        // Other versions have other fields.
        match serde_json::from_slice::<Versioned>(json).map_err(damaged)?.version {
            Some(VERSION) => {}
            Some(other) => return Err(format!("version {other} of .sog is unknown; {VERSION} is known")),
            None => return Err(format!("it is of version 1 of .sog; {VERSION} is known")),
        }
        let meta: Self = serde_json::from_slice(json).map_err(damaged)?;
        meta.check()?;
        Ok(meta)
    }

    fn check(&self) -> Result<(), String> {
        if self.count == 0 || self.count > MAX_SPLATS {
            return Err(format!("it promises {} splats; 1 to {MAX_SPLATS} make sense", self.count));
        }
        let codebooks =
            [Some(&self.scales.codebook), Some(&self.sh0.codebook), self.sh_n.as_ref().map(|n| &n.codebook)];
        for codebook in codebooks.into_iter().flatten() {
            if codebook.len() > CODEBOOK || !codebook.iter().all(|value| value.is_finite()) {
                return Err(format!(
                    "a codebook has more than {CODEBOOK} values or some that are not finite"
                ));
            }
        }
        let finite = |values: &[f64; 3]| values.iter().all(|value| value.is_finite());
        if !finite(&self.means.mins) || !finite(&self.means.maxs) {
            return Err("the range of its positions is not finite".into());
        }
        match &self.sh_n {
            Some(Harmonics { bands, .. }) if !(1..=3).contains(bands) => {
                Err(format!("it has spherical harmonics of degree {bands}; 1 to 3 are known"))
            }
            Some(Harmonics { count: Some(count), .. }) if !(1..=MAX_PALETTE).contains(count) => {
                Err(format!("its palette has {count} entries; 1 to {MAX_PALETTE} make sense"))
            }
            _ => Ok(()),
        }
    }
}
