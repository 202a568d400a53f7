//! What is kept, as arrays.

use std::io::Result;

use bytemuck::{Pod, Zeroable};
use nalgebra::Matrix3;

use super::file::{Reader, Writer};
use crate::sfm::features::Features;
use crate::sfm::matching::PairMatches;
use crate::sfm::two_view::{TwoViewConfig, TwoViewGeometry};

/// The features of one picture, and the colours at them.
pub(crate) type FeaturesAndColors = (Features, Vec<[u8; 3]>);

pub(super) fn write_features(writer: &mut Writer<'_>, (features, colors): &FeaturesAndColors) -> Result<()> {
    writer.array(&features.keypoints)?;
    writer.array(&features.descriptors)?;
    writer.array(colors)
}

pub(super) fn read_features(reader: &mut Reader) -> Option<FeaturesAndColors> {
    let features = Features { keypoints: reader.array()?, descriptors: reader.array()? };
    let colors: Vec<_> = reader.array()?;
    let count = features.keypoints.len();
    (features.descriptors.len() == count && colors.len() == count).then_some((features, colors))
}

pub(super) fn write_matches(writer: &mut Writer<'_>, matches: &[PairMatches]) -> Result<()> {
    let pairs: Vec<[u32; 2]> = matches.iter().map(|pair| [pair.first, pair.second]).collect();
    writer.array(&pairs)?;
    matches.iter().try_for_each(|pair| writer.array(&pair.matches))
}

pub(super) fn read_matches(reader: &mut Reader, features: &[Features]) -> Option<Vec<PairMatches>> {
    let pairs: Vec<[u32; 2]> = reader.array()?;
    let matches = |[first, second]: [u32; 2]| {
        let matches = reader.array()?;
        is_of(features, first, second, &matches).then_some(PairMatches { first, second, matches })
    };
    pairs.into_iter().map(matches).collect()
}

/// A verified pair but for its inliers. It has no pose yet: that takes focal lengths, which are found from such pairs.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct PairRecord {
    first: u32,
    second: u32,
    config: u32,
    has_fundamental: u16,
    has_homography: u16,
    fundamental: [f64; 9],
    homography: [f64; 9],
    homography_inliers: u64,
    median_parallax: f64,
}

/// By their numbers in a file.
const CONFIGS: [TwoViewConfig; 4] = [
    TwoViewConfig::Degenerate,
    TwoViewConfig::Uncalibrated,
    TwoViewConfig::Calibrated,
    TwoViewConfig::PlanarOrPanoramic,
];

fn numbers(matrix: Option<&Matrix3<f64>>) -> [f64; 9] {
    let mut numbers = [0.0; 9];
    if let Some(matrix) = matrix {
        numbers.copy_from_slice(matrix.as_slice());
    }
    numbers
}

impl PairRecord {
    fn of(pair: &TwoViewGeometry) -> Self {
        Self {
            first: pair.first,
            second: pair.second,
            config: CONFIGS.iter().position(|config| *config == pair.config).unwrap_or(0) as u32,
            has_fundamental: pair.fundamental.is_some().into(),
            has_homography: pair.homography.is_some().into(),
            fundamental: numbers(pair.fundamental.as_ref()),
            homography: numbers(pair.homography.as_ref()),
            homography_inliers: pair.homography_inliers as u64,
            median_parallax: pair.median_parallax,
        }
    }

    fn with(&self, inliers: Vec<[u32; 2]>) -> Option<TwoViewGeometry> {
        let matrix = |has, numbers| (has != 0).then(|| Matrix3::from_column_slice(numbers));
        Some(TwoViewGeometry {
            first: self.first,
            second: self.second,
            config: *CONFIGS.get(self.config as usize)?,
            fundamental: matrix(self.has_fundamental, &self.fundamental),
            homography: matrix(self.has_homography, &self.homography),
            second_from_first: None,
            inliers,
            homography_inliers: usize::try_from(self.homography_inliers).ok()?,
            median_parallax: self.median_parallax,
        })
    }
}

pub(super) fn write_verified(writer: &mut Writer<'_>, verified: &[TwoViewGeometry]) -> Result<()> {
    debug_assert!(verified.iter().all(|pair| pair.second_from_first.is_none()));
    writer.array(&verified.iter().map(PairRecord::of).collect::<Vec<_>>())?;
    verified.iter().try_for_each(|pair| writer.array(&pair.inliers))
}

/// Those of `matches`, in their order.
pub(super) fn read_verified(
    reader: &mut Reader,
    features: &[Features],
    matches: &[PairMatches],
) -> Option<Vec<TwoViewGeometry>> {
    let records: Vec<PairRecord> = reader.array()?;
    if records.len() != matches.len() {
        return None;
    }
    let verified = |(record, pair): (&PairRecord, &PairMatches)| {
        let inliers = reader.array()?;
        let is_it = (record.first, record.second) == (pair.first, pair.second)
            && is_of(features, pair.first, pair.second, &inliers);
        is_it.then(|| record.with(inliers)).flatten()
    };
    records.iter().zip(matches).map(verified).collect()
}

/// Whether there are such images with such keypoints: what follows relies on it.
fn is_of(features: &[Features], first: u32, second: u32, matches: &[[u32; 2]]) -> bool {
    let count = |image: u32| features.get(image as usize).map(|f| f.keypoints.len());
    let (Some(n1), Some(n2)) = (count(first), count(second)) else { return false };
    first < second && matches.iter().all(|&[a, b]| (a as usize) < n1 && (b as usize) < n2)
}
