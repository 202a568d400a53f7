//! Repeatability and accuracy on textures that are defined everywhere, so that warped pictures need no resampling.

use image::{GrayImage, Luma};

use super::*;
use crate::random::Random;

/// A smooth random texture over the plane: blobs of many sizes.
struct Texture {
    blobs: Vec<[f64; 4]>,
}

impl Texture {
    fn new(seed: u64, extent: f64) -> Self {
        let mut random = Random::new(seed);
        let blobs = (0..4000)
            .map(|_| {
                let radius = 1.5 * 12f64.powf(random.uniform().powi(2));
                let sign = if random.uniform() < 0.5 { -1.0 } else { 1.0 };
                [
                    (random.uniform() - 0.5) * extent,
                    (random.uniform() - 0.5) * extent,
                    radius,
                    sign * (0.3 + 0.7 * random.uniform()) * 60.0,
                ]
            })
            .collect();
        Self { blobs }
    }

    /// The picture of `size` pixels a side whose pixel (u, v), relative to its centre, shows the place `a (u, v) + b`,
    /// with `a` a rotation by `angle` times `zoom`.
    fn picture(&self, size: u32, angle: f64, zoom: f64, shift: [f64; 2]) -> GrayImage {
        let mut values = vec![128.0f64; (size * size) as usize];
        let (sin, cos) = angle.sin_cos();
        let centre = f64::from(size) / 2.0;
        for &[bx, by, radius, height] in &self.blobs {
            // Where the blob lies in the picture.
            let (dx, dy) = (bx - shift[0], by - shift[1]);
            let (px, py) = ((cos * dx + sin * dy) / zoom + centre, (cos * dy - sin * dx) / zoom + centre);
            let radius = radius / zoom;
            let span = 4.0 * radius;
            for y in (py - span).max(0.0) as i64..=((py + span) as i64).min(i64::from(size) - 1) {
                for x in (px - span).max(0.0) as i64..=((px + span) as i64).min(i64::from(size) - 1) {
                    let square = (x as f64 + 0.5 - px).powi(2) + (y as f64 + 0.5 - py).powi(2);
                    values[y as usize * size as usize + x as usize] +=
                        height * (-0.5 * square / (radius * radius)).exp();
                }
            }
        }
        GrayImage::from_fn(size, size, |x, y| {
            Luma([values[(y * size + x) as usize].round().clamp(0.0, 255.0) as u8])
        })
    }
}

/// Of the keypoints of `a` that lie in both pictures, the share found again in `b` within 1.5 pixels, a quarter octave
/// and 20 degrees, and the median distance of those.
fn repeatability(
    a: &Features,
    b: &Features,
    size: u32,
    angle: f64,
    zoom: f64,
    shift: [f64; 2],
) -> (f64, f64, usize) {
    let (sin, cos) = angle.sin_cos();
    let centre = f64::from(size) / 2.0;
    let (mut inside, mut distances) = (0, Vec::new());
    for keypoint in &a.keypoints {
        let (dx, dy) = (f64::from(keypoint.x) - centre - shift[0], f64::from(keypoint.y) - centre - shift[1]);
        let (x, y) = ((cos * dx + sin * dy) / zoom + centre, (cos * dy - sin * dx) / zoom + centre);
        let scale = f64::from(keypoint.scale) / zoom;
        let margin = 6.0 * scale;
        if x < margin || y < margin || x > f64::from(size) - margin || y > f64::from(size) - margin {
            continue;
        }
        inside += 1;
        let turn = |other: &Keypoint| {
            let difference = f64::from(keypoint.orientation) - angle - f64::from(other.orientation);
            difference.sin().atan2(difference.cos()).abs()
        };
        let nearest = b
            .keypoints
            .iter()
            .filter(|other| (f64::from(other.scale) / scale).log2().abs() < 0.25 && turn(other) < 0.35)
            .map(|other| (f64::from(other.x) - x).hypot(f64::from(other.y) - y))
            .fold(f64::INFINITY, f64::min);
        if nearest < 1.5 {
            distances.push(nearest);
        }
    }
    distances.sort_by(f64::total_cmp);
    (distances.len() as f64 / f64::from(inside), distances[distances.len() / 2], distances.len())
}

#[test]
fn keypoints_stay_on_the_scene_under_shift_rotation_and_zoom() {
    let size = 480;
    let texture = Texture::new(3, 900.0);
    for first_octave in [FirstOctave::Native, FirstOctave::Doubled] {
        // The bounds are for keypoints of the usual contrast; weaker ones lie less exactly.
        let options = FeatureOptions { first_octave, few_features: 0, ..FeatureOptions::default() };
        let reference = extract(&texture.picture(size, 0.0, 1.0, [0.0; 2]), None, &options);
        for (angle, zoom, shift, least, accuracy) in [
            (0.0, 1.0, [0.5, 0.25], 0.85, 0.06),
            (0.0, 1.0, [10.3, -7.6], 0.85, 0.06),
            (0.4, 1.0, [3.3, 0.7], 0.75, 0.09),
            (2.0, 1.0, [0.0, 0.0], 0.75, 0.09),
            (0.0, 1.3, [0.0, 0.0], 0.65, 0.12),
            (-0.7, 0.6, [5.0, 5.0], 0.6, 0.2),
        ] {
            let warped = extract(&texture.picture(size, angle, zoom, shift), None, &options);
            let (share, error, count) = repeatability(&reference, &warped, size, angle, zoom, shift);
            println!(
                "{first_octave:?} {angle} {zoom} {shift:?}: {share:.3} within, median {error:.4} px, {count}"
            );
            assert!(count > 100, "{count}");
            assert!(share > least, "{share}");
            assert!(error < accuracy, "{error}");
        }
    }
}

#[test]
fn features_are_sorted_capped_masked_and_repeatable() {
    let texture = Texture::new(5, 500.0);
    let picture = texture.picture(300, 0.3, 1.0, [0.0; 2]);
    let options = FeatureOptions::default();
    let all = extract(&picture, None, &options);
    assert!(all.keypoints.len() > 300);
    assert_eq!(all.keypoints.len(), all.descriptors.len());
    assert!(all.keypoints.windows(2).all(|pair| pair[0].scale >= pair[1].scale));
    assert_eq!(all, extract(&picture, None, &options));
    for descriptor in &all.descriptors {
        let square: f64 = descriptor.iter().map(|&v| f64::from(v).powi(2)).sum();
        assert!((square.sqrt() - 512.0).abs() < 5.0, "{}", square.sqrt());
    }

    let capped = extract(&picture, None, &FeatureOptions { max_num_features: 100, ..options.clone() });
    assert_eq!(capped.keypoints[..], all.keypoints[..100]);
    assert_eq!(capped.descriptors[..], all.descriptors[..100]);

    // A mask of half the size whose left half is cut out.
    let mask = GrayImage::from_fn(150, 150, |x, _| Luma([if x < 75 { 0 } else { 255 }]));
    let masked = extract(&picture, Some(&mask), &options);
    let right: Vec<Keypoint> = all.keypoints.iter().copied().filter(|k| k.x >= 150.0).collect();
    assert_eq!(masked.keypoints, right);
    assert!(!right.is_empty() && right.len() < all.keypoints.len());
}

/// A dim room: contrast so low that nearly nothing passes the usual threshold.
#[test]
fn the_strongest_features_of_a_dim_picture_are_found() {
    let mut picture = Texture::new(5, 500.0).picture(300, 0.3, 1.0, [0.0; 2]);
    picture.pixels_mut().for_each(|p| p.0[0] = 40 + p.0[0] / 8);
    let search =
        |few_features| extract(&picture, None, &FeatureOptions { few_features, ..Default::default() });
    let (usual, all) = (search(0), search(2000));
    let half = all.keypoints.len() / 2;
    let few = search(half);
    println!(
        "{} usual, {} of {} wanted, {} in all",
        usual.keypoints.len(),
        few.keypoints.len(),
        half,
        all.keypoints.len()
    );
    assert!(usual.keypoints.len() < half && all.keypoints.len() > 100);
    // A keypoint can have two orientations, and each makes a feature.
    assert!(half <= few.keypoints.len() && few.keypoints.len() < all.keypoints.len());
    for (less, more) in [(&usual, &few), (&few, &all)] {
        assert!(less.keypoints.iter().all(|k| more.keypoints.contains(k)));
    }
    assert!(all.keypoints.windows(2).all(|pair| pair[0].scale >= pair[1].scale));
}

#[test]
fn pictures_with_nothing_in_them_have_no_features() {
    let options = FeatureOptions::default();
    for (width, height) in [(0, 0), (1, 1), (5, 400), (17, 17), (200, 100)] {
        let flat = GrayImage::from_pixel(width, height, Luma([90]));
        assert_eq!(extract(&flat, None, &options), Features::default(), "{width} x {height}");
    }
    let texture = Texture::new(5, 300.0).picture(100, 0.0, 1.0, [0.0; 2]);
    assert!(!extract(&texture, None, &options).keypoints.is_empty());
    assert_eq!(extract(&texture, Some(&GrayImage::new(0, 0)), &options), Features::default());
}

#[test]
fn neighbouring_pictures_of_a_real_capture_match() {
    let Some(folder) = crate::prerequisites::capture("fox") else { return };
    let open = |name: &str| image::open(folder.join("images").join(name)).unwrap().to_luma8();
    let options = FeatureOptions::default();
    let (a, b) = (extract(&open("0001.jpg"), None, &options), extract(&open("0002.jpg"), None, &options));
    let matches = crate::sfm::matching::match_pair(&a, &b, &Default::default());
    println!("{} and {} features, {} matches", a.keypoints.len(), b.keypoints.len(), matches.len());
    assert!(matches.len() > 1000);
    // The camera hardly moves between them, so a true match stays near its place.
    let near = matches.iter().filter(|[i, j]| {
        let (p, q) = (a.keypoints[*i as usize], b.keypoints[*j as usize]);
        (p.x - q.x).hypot(p.y - q.y) < 150.0
    });
    assert!(near.count() * 20 > matches.len() * 19);
}
