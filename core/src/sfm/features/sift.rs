//! From a picture to its features: the order of the steps.

use image::GrayImage;

use super::descriptor::{Scratch, describe};
use super::detector::{Extremum, Search};
use super::orientation::{self, orientations};
use super::plane::Plane;
use super::scale_space::{Octave, SCALES_PER_OCTAVE};
use super::{Descriptor, FeatureOptions, Features, FirstOctave, Keypoint};

/// Pictures with fewer pixels are doubled by [`FirstOctave::Auto`].
const AUTO_NATIVE_AREA: u64 = 1_250_000;

/// Finds and describes the features of a picture.
///
/// Features on pixels where `mask` is 0 are dropped; a mask of another size is stretched over the picture. A picture
/// without texture, or with a side below 16 pixels, has no features. Deterministic, and on the calling thread only.
pub fn extract(luma: &GrayImage, mask: Option<&GrayImage>, options: &FeatureOptions) -> Features {
    extract_where(
        luma,
        |x, y, _| mask.is_none_or(|mask| is_masked_in(mask, luma.dimensions(), x, y)),
        options,
    )
}

/// [`extract`], but only where `keeps` says so of a feature's column, row and scale.
pub(crate) fn extract_where(
    luma: &GrayImage,
    keeps: impl Fn(f32, f32, f32) -> bool,
    options: &FeatureOptions,
) -> Features {
    let doubled = match options.first_octave {
        FirstOctave::Auto => u64::from(luma.width()) * u64::from(luma.height()) < AUTO_NATIVE_AREA,
        FirstOctave::Native => false,
        FirstOctave::Doubled => true,
    };
    let Detected { octaves, mut found, weak } = detect(luma, keeps, doubled, options);
    if found.len() < options.few_features {
        // Plain walls and dim light: the strongest of what is there says more than nothing.
        found = weak;
        let rank = |a: &Located, b: &Located| {
            b.extremum
                .contrast
                .total_cmp(&a.extremum.contrast)
                .then(a.y.total_cmp(&b.y))
                .then(a.x.total_cmp(&b.x))
        };
        found.sort_by(rank);
        let strong = found.partition_point(|located| located.extremum.contrast >= options.peak_threshold);
        found.truncate(strong.max(options.few_features));
    }

    found.sort_by(|a, b| b.scale.total_cmp(&a.scale).then(a.y.total_cmp(&b.y)).then(a.x.total_cmp(&b.x)));
    found.truncate(options.max_num_features);

    // Row by row through each level, so that most of what a keypoint looks at is still in the cache.
    let mut order: Vec<usize> = (0..found.len()).collect();
    order.sort_by(|&a, &b| {
        let place = |i: usize| (found[i].octave, found[i].extremum.level);
        place(a).cmp(&place(b)).then(found[a].extremum.y.total_cmp(&found[b].extremum.y))
    });
    let mut described: Vec<Vec<(f32, Descriptor)>> = vec![Vec::new(); found.len()];
    let mut scratch = (orientation::Scratch::default(), Scratch::new());
    for (k, &i) in order.iter().enumerate() {
        if let Some(&next) = order.get(k + 1) {
            let Located { octave, extremum, .. } = &found[next];
            let radius = 9.0 * extremum.sigma;
            octaves[*octave][extremum.level].prefetch(extremum.x, extremum.y, radius);
        }
        let Located { octave, extremum, .. } = &found[i];
        let plane = &octaves[*octave][extremum.level];
        let angles = orientations(plane, extremum, options.max_num_orientations, &mut scratch.0);
        described[i] = angles
            .into_iter()
            .map(|angle| (angle, describe(plane, extremum, angle, &mut scratch.1)))
            .collect();
    }

    let mut features = Features::default();
    for (located, described) in found.iter().zip(&described) {
        for &(orientation, descriptor) in described {
            let (x, y, scale) = (located.x, located.y, located.scale);
            features.keypoints.push(Keypoint { x, y, scale, orientation });
            features.descriptors.push(descriptor);
        }
    }
    features.keypoints.truncate(options.max_num_features);
    features.descriptors.truncate(options.max_num_features);
    features
}

/// What a picture shows.
#[derive(Default)]
struct Detected {
    /// The Gaussian planes of all octaves.
    octaves: Vec<[Plane; SCALES_PER_OCTAVE]>,
    /// The extrema of at least the peak threshold.
    found: Vec<Located>,
    /// Those of at least the weak one, if `found` are few.
    weak: Vec<Located>,
}

fn detect(
    luma: &GrayImage,
    keeps: impl Fn(f32, f32, f32) -> bool,
    doubled: bool,
    options: &FeatureOptions,
) -> Detected {
    let weak_threshold = options.weak_peak_threshold.min(options.peak_threshold);
    let mut detected = Detected::default();
    let mut next = Octave::finest(luma, doubled);
    while let Some(mut octave) = next {
        let index = detected.octaves.len();
        // Whether there are few is known only after the last octave, when the differences are gone.
        let are_few = detected.found.len() < options.few_features;
        let threshold = if are_few { weak_threshold } else { options.peak_threshold };
        let mut search = Search::new(threshold, options.edge_threshold);
        while let Some(rows) = octave.extend() {
            search.search(&octave, rows);
        }
        let pixel = (octave.index as f32).exp2();
        for (extremum, is_strong) in search.finish(options.peak_threshold) {
            let located = Located {
                octave: index,
                extremum,
                x: extremum.x * pixel + 0.5,
                y: extremum.y * pixel + 0.5,
                scale: extremum.sigma * pixel,
            };
            if keeps(located.x, located.y, located.scale) {
                if is_strong {
                    detected.found.push(located);
                }
                detected.weak.push(located);
            }
        }
        let (described, coarser) = octave.finish();
        detected.octaves.push(described);
        next = coarser;
    }
    detected
}

/// An extremum with its place in the picture.
#[derive(Clone, Copy)]
struct Located {
    octave: usize,
    extremum: Extremum,
    x: f32,
    y: f32,
    scale: f32,
}

/// Whether the mask pixel at (x, y) of a picture of that size is not 0.
pub(crate) fn is_masked_in(mask: &GrayImage, (width, height): (u32, u32), x: f32, y: f32) -> bool {
    let column = (x * mask.width() as f32 / width as f32) as u32;
    let row = (y * mask.height() as f32 / height as f32) as u32;
    mask.get_pixel_checked(
        column.min(mask.width().saturating_sub(1)),
        row.min(mask.height().saturating_sub(1)),
    )
    .is_some_and(|pixel| pixel.0[0] != 0)
}
