//! The Gaussians at the start: one per seed point, as large as the gap to its neighbours.

use glam::{DVec3, Vec3};
use nalgebra::Vector3;
use rayon::prelude::*;

use super::dataset::Dataset;
use super::options::TrainOptions;
use super::seeds::{Seed, keep};
use super::stereo;
use crate::control::Control;
use crate::error::{Error, ErrorKind, Result};
use crate::neighbours::Neighbours;
use crate::splats::{IDENTITY, SH_C0, Splats, sh_coefficients};

/// The Gaussians with which training begins: at most `cap`.
pub(crate) fn splats(
    dataset: &Dataset,
    options: &TrainOptions,
    cap: usize,
    control: &Control,
) -> Result<Splats> {
    control.check()?;
    let mut seeds: Vec<Seed> =
        dataset.points.iter().map(|p| Seed { position: p.position, rgb: p.rgb }).collect();
    if seeds.is_empty() {
        return Err(Error::new(ErrorKind::InvalidFile, "the sparse model has no points to begin with")
            .hint("give a model with points3D"));
    }
    if options.dense_initialisation {
        let wanted = (cap as f64 * f64::from(options.tuning.initial_fraction)) as usize;
        let missing = wanted.saturating_sub(seeds.len());
        let dense = stereo::seeds(dataset, &seeds, missing, options.seed, control)?;
        seeds.extend(dense);
    }
    keep(&mut seeds, cap, options.seed);
    let centres: Vec<Vector3<f64>> = dataset.train.iter().map(|&i| dataset.views[i].view.centre()).collect();
    Ok(from_seeds(&seeds, &centres, options))
}

/// A Gaussian is at first at most this wide, as a fraction of the distance to the nearest camera.
const WIDEST: f64 = 0.1;
/// And at least this wide.
const NARROWEST: f64 = 1e-4;

/// One Gaussian per seed: round, its standard deviation from the mean distance to the three nearest others. `centres` are
/// those of the cameras.
fn from_seeds(seeds: &[Seed], centres: &[Vector3<f64>], options: &TrainOptions) -> Splats {
    let positions: Vec<Vector3<f64>> = seeds.iter().map(|s| s.position).collect();
    let tree = Neighbours::new(&positions);
    let cameras = Neighbours::new(centres);
    let scales: Vec<f64> = positions
        .par_iter()
        .map(|p| {
            // The nearest is the point itself.
            let nearest = tree.nearest(p, 4);
            let others = &nearest[1.min(nearest.len())..];
            let gap = others.iter().map(|e| e.0.sqrt()).sum::<f64>() / others.len().max(1) as f64;
            // Coincident points have no gap, lonely ones a huge one.
            let distance = cameras.nearest(p, 1).first().map_or(1.0, |e| e.0.sqrt()).max(1e-6);
            (gap * f64::from(options.tuning.initial_scale)).clamp(NARROWEST * distance, WIDEST * distance)
        })
        .collect();
    let tuning = &options.tuning;
    let logit = (tuning.initial_opacity / (1.0 - tuning.initial_opacity)).ln();
    let coefficients = sh_coefficients(options.sh_degree) * 3;
    let mut splats = Splats::with_capacity(seeds.len(), options.sh_degree);
    for (seed, scale) in seeds.iter().zip(&scales) {
        splats.means.push(DVec3::from_array(seed.position.into()).as_vec3());
        splats.log_scales.push(Vec3::splat(scale.ln() as f32));
        splats.rotations.push(IDENTITY);
        splats.opacities.push(logit);
        splats.sh.extend(seed.rgb.map(|v| (v - 0.5) / SH_C0));
        splats.sh.resize(splats.means.len() * coefficients, 0.0);
    }
    splats
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grid() -> Vec<Seed> {
        let mut seeds = Vec::new();
        for i in 0..5 {
            for j in 0..5 {
                seeds.push(Seed {
                    position: Vector3::new(f64::from(i) * 0.1, f64::from(j) * 0.1, 2.0),
                    rgb: [0.25, 0.5, 0.75],
                });
            }
        }
        seeds
    }

    #[test]
    fn a_gaussian_is_as_large_as_the_gap_around_it() {
        let options = TrainOptions::default();
        let mut seeds = grid();
        seeds.push(Seed { position: Vector3::new(50.0, 0.0, 0.0), ..seeds[0] });
        seeds.push(seeds[0]);
        let camera = [Vector3::zeros()];
        let splats = from_seeds(&seeds, &camera, &options);
        splats.check().unwrap();
        let scale = |i: usize| splats.log_scales[i][0].exp();
        // In the middle of the grid the three nearest are one cell away.
        assert!((scale(12) - 0.1 * options.tuning.initial_scale).abs() < 1e-6);
        assert!((scale(25) - 5.0).abs() < 1e-6, "a lonely point is bounded by its distance");
        let colour: [f32; 3] = std::array::from_fn(|c| 0.5 + SH_C0 * splats.sh[c]);
        assert!(colour.iter().zip([0.25, 0.5, 0.75]).all(|(a, b)| (a - b).abs() < 1e-6));
        assert!(splats.sh[3..48].iter().all(|v| *v == 0.0));
        assert!(from_seeds(&[], &camera, &options).is_empty());
        assert!(from_seeds(&seeds[..1], &camera, &options).log_scales[0][0].is_finite());
    }

    #[test]
    fn too_many_seeds_are_thinned_out_evenly() {
        let mut seeds = grid();
        keep(&mut seeds, 10, 1);
        assert_eq!(seeds.len(), 10);
        let places: Vec<usize> = seeds.iter().map(|s| grid().iter().position(|g| g == s).unwrap()).collect();
        assert!(places.windows(2).all(|w| w[0] < w[1]));
        assert!(places[0] < 12 && places[9] > 12);
        keep(&mut seeds, 100, 1);
        assert_eq!(seeds.len(), 10);
    }
}
