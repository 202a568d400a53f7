//! Dense seeds: depth maps of the training views by multi-view stereo, fused into points.
//!
//! A sparse model has points where features were found and matched; walls, ground and fine texture between them would
//! have to be grown step by step. Plane-sweep stereo (Collins 1996) on small pictures finds most of those surfaces in
//! seconds: every view is compared with a few neighbours over fronto-parallel planes ([`sweep`]), the costs are made
//! smooth along paths through the picture ([`smooth`], semi-global matching, Hirschmüller 2008), and depths that the
//! depth maps of neighbouring views confirm become points, each surface once.

/// Compiles `$body` once more for AVX2 and takes that where the machine has it. The arithmetic, and so the result, is the
/// same: only more of it is done at once.
macro_rules! widest {
    ($name:ident, $body:ident, ($($arg:ident: $type:ty),*)) => {
        fn $name($($arg: $type),*) {
            #[cfg(target_arch = "x86_64")]
            {
                #[target_feature(enable = "avx2")]
                unsafe fn avx2($($arg: $type),*) {
                    $body($($arg),*)
                }
                if is_x86_feature_detected!("avx2") {
                    // SAFETY: the machine has what the function was compiled for.
                    return unsafe { avx2($($arg),*) };
                }
            }
            $body($($arg),*)
        }
    };
}

mod small_view;
mod smooth;
mod sweep;

use nalgebra::Vector3;
use rayon::prelude::*;

use super::dataset::Dataset;
use super::seeds::{Seed, keep};
use crate::control::Control;
use crate::error::Result;
use crate::random::hash;
use crate::raster::View;
use small_view::SmallView;

/// Long side of the pictures that are compared, in pixels.
const SIDE: u32 = 240;
/// Pictures with a shorter side than this have no windows to compare.
const LEAST_SIDE: u32 = 8;
/// More reference views than this add time and hardly a surface.
const MAX_REFERENCES: usize = 200;
/// How many neighbours a view is compared with.
const NEIGHBOURS: usize = 4;
/// Depths of two views agree if their inverses differ by less than this many planes,
const PLANE_TOLERANCE: f64 = 0.75;
/// or by less than this fraction.
const DEPTH_TOLERANCE: f64 = 0.01;
/// Of the neighbours, so many must confirm a depth.
const CONFIRMATIONS: usize = 2;
/// Surfaces are sought up to so many times the depth of a view's farthest points.
const FARTHER: f64 = 5.0;
/// Blocks of so many pixels squared in which no point is seen get one all the same.
const BLOCK: usize = 6;

/// The depths that a view shows.
struct DepthMap {
    /// Per pixel; not positive where none was found.
    depth: Vec<f32>,
    /// Distance of the planes in inverse depth.
    step: f64,
}

/// Points on the surfaces that the training views show, beside the `known` ones: at most `count` that neighbouring views
/// confirm, none closer together than the pixels of the small pictures; and one for every small block of a picture that
/// shows no point at all (sky, far background, what only one view sees), so that nothing begins as a hole.
pub(super) fn seeds(
    dataset: &Dataset,
    known: &[Seed],
    count: usize,
    seed: u64,
    control: &Control,
) -> Result<Vec<Seed>> {
    let stride = dataset.train.len().div_ceil(MAX_REFERENCES).max(1);
    let mut references: Vec<usize> = dataset.train.iter().copied().step_by(stride).collect();
    references.retain(|&i| {
        let view = dataset.view_at(i, Some(SIDE));
        view.width.min(view.height) >= LEAST_SIDE
    });
    let frames: Vec<SmallView> = references
        .par_iter()
        .map(|&i| {
            control.check()?;
            frame(dataset, i)
        })
        .collect::<Result<_>>()?;
    let pairs = neighbours(dataset, &references);
    let ranges = depth_ranges(dataset, &references);
    let maps: Vec<Option<DepthMap>> = (0..frames.len())
        .into_par_iter()
        .map(|i| {
            control.check()?;
            let Some(range) = ranges[i].filter(|_| !pairs[i].is_empty()) else {
                return Ok(None);
            };
            let others: Vec<&SmallView> = pairs[i].iter().map(|&j| &frames[j]).collect();
            let volume = sweep::costs(&frames[i], &others, range);
            let total = smooth::along_paths(&volume, &frames[i]);
            Ok(Some(DepthMap { depth: volume.depths(&total), step: volume.inverse.1 }))
        })
        .collect::<Result<_>>()?;
    let mut seeds = fuse(&frames, &maps, &pairs);
    keep(&mut seeds, count, hash(seed ^ 0x57e6));
    let cover = cover(&frames, &maps, known, &seeds);
    seeds.extend(cover);
    Ok(seeds)
}

fn frame(dataset: &Dataset, index: usize) -> Result<SmallView> {
    let picture = dataset.picture(index, Some(SIDE))?;
    let pixels = picture.data.chunks_exact(picture.channels);
    let rgb: Vec<[f32; 3]> = pixels.clone().map(|p| [p[0], p[1], p[2]]).collect();
    let grey = rgb.iter().map(|c| 0.299 * c[0] + 0.587 * c[1] + 0.114 * c[2]).collect();
    let alpha = (picture.channels == 4).then(|| pixels.map(|p| p[3]).collect());
    Ok(SmallView { view: dataset.view_at(index, Some(SIDE)), rgb, grey, alpha })
}

/// For every reference the best others to compare it with: many common points, seen under an angle that is large enough
/// to measure depth and small enough to look alike (the weighting of Yao et al., ECCV 2018).
fn neighbours(dataset: &Dataset, references: &[usize]) -> Vec<Vec<usize>> {
    let count = references.len();
    let mut place = vec![usize::MAX; dataset.views.len()];
    for (k, &i) in references.iter().enumerate() {
        place[i] = k;
    }
    let centres: Vec<Vector3<f64>> = references.iter().map(|&i| dataset.views[i].view.centre()).collect();
    let mut scores = vec![0.0f64; count * count];
    for point in &dataset.points {
        let seen: Vec<usize> =
            point.views.iter().map(|&v| place[v as usize]).filter(|k| *k != usize::MAX).collect();
        for (n, &a) in seen.iter().enumerate() {
            for &b in &seen[n + 1..] {
                let angle = (centres[a] - point.position).angle(&(centres[b] - point.position)).to_degrees();
                let (best, width) = (8.0, if angle < 8.0 { 4.0 } else { 12.0 });
                let score = (-0.5 * ((angle - best) / width).powi(2)).exp();
                scores[a * count + b] += score;
                scores[b * count + a] += score;
            }
        }
    }
    (0..count)
        .map(|a| {
            let row = &scores[a * count..(a + 1) * count];
            let mut others: Vec<usize> = (0..count).filter(|&b| row[b] > 1.0).collect();
            others.sort_by(|&x, &y| row[y].total_cmp(&row[x]).then(x.cmp(&y)));
            others.truncate(NEIGHBOURS);
            others
        })
        .collect()
}

/// Nearest and farthest depth that a view may show, from its sparse points with some room around them.
fn depth_ranges(dataset: &Dataset, references: &[usize]) -> Vec<Option<(f64, f64)>> {
    let mut depths = vec![Vec::new(); dataset.views.len()];
    for point in &dataset.points {
        for &v in &point.views {
            let z = dataset.views[v as usize].view.to_camera(&point.position).z;
            if z > 0.0 {
                depths[v as usize].push(z);
            }
        }
    }
    references
        .iter()
        .map(|&i| {
            let z = &mut depths[i];
            if z.len() < 8 {
                return None;
            }
            z.sort_by(f64::total_cmp);
            let at = |fraction: f64| z[((z.len() - 1) as f64 * fraction) as usize];
            Some((at(0.01) * 0.8, at(0.99) * FARTHER))
        })
        .collect()
}

/// The points of all depth maps that are confirmed by neighbours; a pixel whose surface another view has given already
/// is left out.
fn fuse(frames: &[SmallView], maps: &[Option<DepthMap>], pairs: &[Vec<usize>]) -> Vec<Seed> {
    let mut taken: Vec<Vec<bool>> = frames.iter().map(|f| vec![false; f.grey.len()]).collect();
    let mut seeds = Vec::new();
    let mut seen = Vec::new();
    for (i, frame) in frames.iter().enumerate() {
        let Some(map) = &maps[i] else { continue };
        for pixel in 0..frame.grey.len() {
            let z = f64::from(map.depth[pixel]);
            if z <= 0.0 || taken[i][pixel] || !frame.belongs(pixel) {
                continue;
            }
            let position = unproject(&frame.view, pixel, z);
            seen.clear();
            for &j in &pairs[i] {
                let Some((other, depth)) = project(&frames[j].view, &position) else { continue };
                let Some(map) = &maps[j] else { continue };
                let there = f64::from(map.depth[other]);
                let tolerance = (PLANE_TOLERANCE * map.step).max(DEPTH_TOLERANCE / depth);
                if there > 0.0 && (1.0 / there - 1.0 / depth).abs() < tolerance {
                    seen.push((j, other));
                }
            }
            if seen.len() >= CONFIRMATIONS {
                for &(j, other) in &seen {
                    taken[j][other] = true;
                }
                seeds.push(Seed { position, rgb: frame.rgb[pixel] });
            }
        }
    }
    seeds
}

/// A point for every block of every frame in which no point is seen, at the depth that the frame's own map has there
/// (else at the far end of what the views show).
fn cover(frames: &[SmallView], maps: &[Option<DepthMap>], known: &[Seed], found: &[Seed]) -> Vec<Seed> {
    let columns = |f: &SmallView| f.width().div_ceil(BLOCK);
    let block =
        |f: &SmallView, pixel: usize| pixel / f.width() / BLOCK * columns(f) + pixel % f.width() / BLOCK;
    let mut covered: Vec<Vec<bool>> = frames
        .par_iter()
        .map(|f| {
            let mut blocks = vec![false; columns(f) * f.height().div_ceil(BLOCK)];
            for seed in known.iter().chain(found) {
                if let Some((pixel, _)) = project(&f.view, &seed.position) {
                    blocks[block(f, pixel)] = true;
                }
            }
            blocks
        })
        .collect();
    let mut seeds = Vec::new();
    for (i, frame) in frames.iter().enumerate() {
        let Some(map) = &maps[i] else { continue };
        let farthest = map.depth.iter().copied().fold(0.0, f32::max);
        for row in (BLOCK / 2..frame.height()).step_by(BLOCK) {
            for column in (BLOCK / 2..frame.width()).step_by(BLOCK) {
                let pixel = row * frame.width() + column;
                if covered[i][block(frame, pixel)] || !frame.belongs(pixel) {
                    continue;
                }
                let z = if map.depth[pixel] > 0.0 { map.depth[pixel] } else { farthest };
                if z <= 0.0 {
                    continue;
                }
                let seed =
                    Seed { position: unproject(&frame.view, pixel, f64::from(z)), rgb: frame.rgb[pixel] };
                for (f, blocks) in frames.iter().zip(&mut covered) {
                    if let Some((pixel, _)) = project(&f.view, &seed.position) {
                        blocks[block(f, pixel)] = true;
                    }
                }
                seeds.push(seed);
            }
        }
    }
    seeds
}

/// The world point at depth `z` behind the centre of a pixel.
fn unproject(view: &View, pixel: usize, z: f64) -> Vector3<f64> {
    let (column, row) = (pixel % view.width as usize, pixel / view.width as usize);
    view.unproject(column as f64 + 0.5, row as f64 + 0.5, z)
}

/// The pixel that shows a world point, and its depth there.
fn project(view: &View, point: &Vector3<f64>) -> Option<(usize, f64)> {
    let (x, y, depth) = view.project(point)?;
    Some((view.pixel(x, y)?, depth))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::camera::{Camera, CameraModel, Image, Point3D, Pose, SparseModel};
    use crate::train::dataset::tests::arc;

    /// Brightness of the ground z = 0.1 sin(2x) at (x, y): texture without repetition.
    fn texture(x: f64, y: f64) -> [u8; 3] {
        let wave = |a: f64, b: f64, p: f64| (3.0 * (a * x + b * y) + p).sin();
        let v = wave(7.0, 3.0, 0.0) + wave(-4.0, 9.0, 1.0) + wave(13.0, -11.0, 2.0) + wave(2.0, 17.0, 3.0);
        [(128.0 + 28.0 * v) as u8, 100, (120.0 + 30.0 * wave(5.0, 1.0, 0.5)) as u8]
    }

    fn ground(x: f64) -> f64 {
        0.1 * (2.0 * x).sin()
    }

    #[test]
    fn the_surface_of_a_synthetic_ground_is_found_densely_and_in_place() {
        let folder = tempfile::tempdir().unwrap();
        let mut model = SparseModel::default();
        let camera = Camera::from_focal(CameraModel::Pinhole, 110.0, 120, 90);
        model.cameras.insert(1, camera.clone());
        for i in 0..5u32 {
            let position = Vector3::new(f64::from(i) * 0.3 - 0.6, -0.1 * f64::from(i % 2), -2.5);
            let pose = Pose::look_at(&position, &Vector3::zeros(), &-Vector3::y()).unwrap();
            let mut picture = image::RgbImage::new(120, 90);
            for (u, v, pixel) in picture.enumerate_pixels_mut() {
                let ray = camera.ray(&nalgebra::Vector2::new(f64::from(u) + 0.5, f64::from(v) + 0.5));
                let ray = pose.rotation.inverse() * ray;
                // March to the ground: it is nearly flat, so that a few corrections suffice.
                let mut t = -position.z / ray.z;
                for _ in 0..20 {
                    t = (ground(position.x + t * ray.x) - position.z) / ray.z;
                }
                *pixel = image::Rgb(texture(position.x + t * ray.x, position.y + t * ray.y));
            }
            let name = format!("{i}.png");
            picture.save(folder.path().join(&name)).unwrap();
            model.images.insert(i + 1, Image { name, camera_id: 1, pose, points2d: Vec::new() });
        }
        for k in 0..40u64 {
            let (x, y) = (0.9 * (k as f64 * 1.3).sin(), 0.6 * (k as f64 * 2.1).cos());
            let track = (1..=5).map(|i| (i, 0)).collect();
            let xyz = Vector3::new(x, y, ground(x));
            model.points.insert(k + 1, Point3D { xyz, rgb: [0; 3], error: 0.0, track });
        }
        let dataset = Dataset::from_model(&model, folder.path(), None).unwrap();
        let seeds = seeds(&dataset, &[], 100_000, 1, &Control::new()).unwrap();
        // One picture has 10,800 pixels; together they show hardly more ground than two.
        assert!((7000..25_000).contains(&seeds.len()), "{} seeds", seeds.len());
        let mut errors: Vec<f64> =
            seeds.iter().map(|s| (s.position.z - ground(s.position.x)).abs()).collect();
        errors.sort_by(f64::total_cmp);
        let (half, most) = (errors[errors.len() / 2], errors[errors.len() * 95 / 100]);
        // A pixel is 0.023 wide at that distance.
        assert!(half < 0.01 && most < 0.04, "median {half}, 95 percent {most}");
        let colour_error =
            |s: &Seed| (s.rgb[0] * 255.0 - f32::from(texture(s.position.x, s.position.y)[0])).abs();
        let mut colours: Vec<f32> = seeds.iter().map(colour_error).collect();
        colours.sort_by(f32::total_cmp);
        assert!(colours[colours.len() / 2] < 6.0, "{}", colours[colours.len() / 2]);

        let few = super::seeds(&dataset, &[], 500, 1, &Control::new()).unwrap();
        // 500 that are confirmed, and those that fill holes: at most one for each of a picture's 300 blocks or so.
        assert!((500..1100).contains(&few.len()), "{}", few.len());
        assert_eq!(few, super::seeds(&dataset, &[], 500, 1, &Control::new()).unwrap());
    }

    #[test]
    fn a_picture_of_one_row_is_neither_a_view_nor_a_neighbour() {
        let folder = tempfile::tempdir().unwrap();
        let mut model = arc(folder.path(), 5);
        let found = |model: &SparseModel| {
            let dataset = Dataset::from_model(model, folder.path(), None).unwrap();
            seeds(&dataset, &[], 1000, 1, &Control::new()).unwrap()
        };
        assert!(!found(&model).is_empty());
        model.cameras.insert(2, Camera::from_focal(CameraModel::Pinhole, 40.0, 120, 1));
        let flat = model.images.get_mut(&3).unwrap();
        flat.camera_id = 2;
        image::RgbImage::new(120, 1).save(folder.path().join(&flat.name)).unwrap();
        assert!(!found(&model).is_empty());
        for image in model.images.values_mut() {
            image.camera_id = 2;
            image::RgbImage::new(120, 1).save(folder.path().join(&image.name)).unwrap();
        }
        assert!(found(&model).is_empty());
    }
}
