//! Keypoints moved to where their surroundings look alike: least-squares matching of patches.
//!
//! A detector finds a spot of a surface again to some tenths of a pixel, and it errs alike in neighbouring pictures:
//! the middle of a blob that is seen aslant is not the image of its middle, and wanders as the camera moves. Such
//! errors bend cameras and focal length, however many points there are. Here one observation of each track is the
//! pattern, and the others move to where the picture looks most like it, under an affine map, a gain and an offset
//! (Gruen, "Adaptive least squares correlation", 1985), found by the inverse compositional algorithm (Baker & Matthews,
//! "Lucas-Kanade 20 years on", IJCV 2004). The finished map says how the pattern is about to look.
//!
//! ```text
//! pyramid (pictures as splines) → pattern (what a keypoint looks like, and where else that is seen) → here (which)
//! ```
//!
//! In: a map, its keypoints with their scales, the pictures. Out: all keypoints, of which some have moved, and the part
//! of the map that rests on them; what cannot be aligned lies on a contour, is blurred or covered. Pictures are read
//! twice and never held together.

mod pattern;
mod pyramid;

use nalgebra::{Matrix2, Vector2, Vector3};
use rayon::prelude::*;

use super::cut_out::CutOut;
use super::front_end::{Pictures, read_picture};
use super::map::{Map, MapPoint, Observation};
use crate::control::Control;
use crate::error::Result;
use crate::video::{Frames, luma};
use pattern::Pattern;
use pyramid::Pyramid;

/// Distance of the samples over the keypoint's scale, at least one pixel: a pattern reaches three scales far.
const SPACING: f64 = 0.5;
/// An image keeps its other observations, too, if it has fewer exact ones, ...
const ENOUGH: usize = 100;
/// ... and all images do if less than this part is exact: their blur or rolling shutter differs, and what is alike by
/// chance places cameras no better.
const MOST: f64 = 0.6;

/// Keypoints after alignment.
pub(crate) struct Aligned {
    /// Pixels of all keypoints, by image.
    pub(crate) keypoints: Vec<Vec<Vector2<f64>>>,
    /// Whether they are patterns or aligned with one, by image.
    is_exact: Vec<Vec<bool>>,
}

impl Aligned {
    /// `map` with its exact observations only, wherever an image has enough of them.
    pub(crate) fn exact_part(&self, map: &Map) -> Map {
        let is_exact = |o: &Observation| self.is_exact[o.image as usize][o.keypoint as usize];
        let track = |p: &MapPoint| -> Vec<Observation> {
            let exact: Vec<_> = p.track.iter().filter(|o| is_exact(o)).copied().collect();
            if exact.len() < 2 { Vec::new() } else { exact }
        };
        let mut tracks: Vec<Vec<Observation>> = map.points.iter().map(track).collect();
        let exact: usize = tracks.iter().map(Vec::len).sum();
        if (exact as f64) < MOST * map.observations() as f64 {
            return map.clone();
        }
        let mut counts = vec![0; map.poses.len()];
        tracks.iter().flatten().for_each(|o| counts[o.image as usize] += 1);
        for (track, point) in tracks.iter_mut().zip(&map.points) {
            let is_needed = |o: &Observation| counts[o.image as usize] < ENOUGH && !track.contains(o);
            if point.track.iter().any(is_needed) {
                track.clone_from(&point.track);
            }
        }
        let points = map.points.iter().zip(tracks);
        let kept = points.filter(|(_, track)| !track.is_empty());
        let points = kept.map(|(p, track)| MapPoint { xyz: p.xyz, track }).collect();
        map.with_points(points)
    }
}

/// Moves the keypoints of `map` to where they look like the pattern of their track.
///
/// # Errors
/// Pictures that cannot be read; [`crate::ErrorKind::Cancelled`].
pub(crate) fn align_keypoints(
    map: &Map,
    pictures: &Pictures,
    frames: &Frames,
    control: &Control,
) -> Result<Aligned> {
    let images = map.poses.len();
    let references: Vec<Observation> = map.points.par_iter().map(|p| most_central(map, p)).collect();
    let pixel = |o: &Observation| pictures.keypoints[o.image as usize][o.keypoint as usize];
    let surfaces: Vec<Option<Surface>> = map
        .points
        .par_iter()
        .zip(&references)
        .map(|(point, reference)| Surface::new(map, point, reference, &pixel(reference)))
        .collect();
    let mut own: Vec<Vec<usize>> = vec![Vec::new(); images];
    let mut others: Vec<Vec<(usize, u32)>> = vec![Vec::new(); images];
    for (p, (point, reference)) in map.points.iter().zip(&references).enumerate() {
        own[reference.image as usize].push(p);
        for o in point.track.iter().filter(|o| *o != reference) {
            others[o.image as usize].push((p, o.keypoint));
        }
    }
    let pyramid = |image: usize| -> Result<(Pyramid, Option<CutOut>)> {
        control.check()?;
        let (picture, cut_out) = read_picture(frames, image)?;
        Ok((Pyramid::new(&luma(&picture)), cut_out))
    };
    let spacing = |o: &Observation| {
        let scale = pictures.features[o.image as usize].keypoints[o.keypoint as usize].scale;
        (SPACING * f64::from(scale)).max(1.0)
    };
    let found: Vec<Vec<(usize, Pattern)>> = own
        .par_iter()
        .enumerate()
        .map(|(image, points)| {
            if points.is_empty() {
                return Ok(Vec::new());
            }
            let (pyramid, cut_out) = pyramid(image)?;
            let pattern = |&p: &usize| {
                let r = &references[p];
                if !is_there(cut_out.as_ref(), &pixel(r), spacing(r)) {
                    return None;
                }
                Some((p, Pattern::new(&pyramid, &pixel(r), spacing(r))?))
            };
            Ok(points.iter().filter_map(pattern).collect())
        })
        .collect::<Result<_>>()?;
    let mut patterns: Vec<Option<Pattern>> = Vec::new();
    patterns.resize_with(map.points.len(), || None);
    for (p, pattern) in found.into_iter().flatten() {
        patterns[p] = Some(pattern);
    }
    let mut aligned = Aligned {
        keypoints: pictures.keypoints.clone(),
        is_exact: pictures.keypoints.iter().map(|k| vec![false; k.len()]).collect(),
    };
    for (reference, _) in references.iter().zip(&patterns).filter(|(_, p)| p.is_some()) {
        aligned.is_exact[reference.image as usize][reference.keypoint as usize] = true;
    }
    let moved: Vec<Vec<(u32, Vector2<f64>)>> = others
        .par_iter()
        .enumerate()
        .map(|(image, observations)| {
            if observations.is_empty() {
                return Ok(Vec::new());
            }
            let (pyramid, cut_out) = pyramid(image)?;
            let find = |&(p, keypoint): &(usize, u32)| {
                let pattern = patterns[p].as_ref()?;
                let by = surfaces[p].as_ref()?.seen_by(map, image)?;
                let observation = Observation::new(image as u32, keypoint);
                let start = pixel(&observation);
                if !is_there(cut_out.as_ref(), &start, spacing(&observation)) {
                    return None;
                }
                Some((keypoint, pattern.find(&pyramid, &start, &(by * pattern.spacing))?))
            };
            Ok(observations.iter().filter_map(find).collect())
        })
        .collect::<Result<_>>()?;
    for (image, moved) in moved.into_iter().enumerate() {
        for (keypoint, place) in moved {
            aligned.keypoints[image][keypoint as usize] = place;
            aligned.is_exact[image][keypoint as usize] = true;
        }
    }
    Ok(aligned)
}

/// Whether nothing was cut out where the pattern of a keypoint reaches. That of a small one reaches further than its scale
/// says, since its samples are a pixel apart at least.
fn is_there(cut_out: Option<&CutOut>, pixel: &Vector2<f64>, spacing: f64) -> bool {
    cut_out.is_none_or(|cut| cut.shows(pixel.x as f32, pixel.y as f32, (spacing / SPACING) as f32))
}

/// Unit vectors from a point to the cameras that see it.
fn towards_cameras(map: &Map, point: &MapPoint) -> Vec<Vector3<f64>> {
    let towards = |o: &Observation| {
        let centre = map.poses[o.image as usize].map_or(point.xyz, |pose| pose.centre());
        (centre - point.xyz).try_normalize(1e-12).unwrap_or_else(Vector3::zeros)
    };
    point.track.iter().map(towards).collect()
}

/// The observation from the middle of all directions: it looks most like the others.
fn most_central(map: &Map, point: &MapPoint) -> Observation {
    let directions = towards_cameras(map, point);
    let mean: Vector3<f64> = directions.iter().sum();
    let best = directions
        .iter()
        .zip(&point.track)
        .max_by(|(a, _), (b, _)| a.dot(&mean).total_cmp(&b.dot(&mean)))
        .map(|(_, o)| *o);
    // A point has at least two observations.
    best.unwrap_or(Observation::new(0, 0))
}

/// A point with its surroundings, on a surface that faces the cameras of its track.
struct Surface {
    /// What the reference sees one pixel to the right, left, below and above of its keypoint.
    around: [Vector3<f64>; 4],
}

impl Surface {
    fn new(map: &Map, point: &MapPoint, reference: &Observation, pixel: &Vector2<f64>) -> Option<Self> {
        let from = map.poses[reference.image as usize]?;
        let normal = towards_cameras(map, point).iter().sum::<Vector3<f64>>().try_normalize(1e-6)?;
        let (centre, to_world) = (from.centre(), from.rotation.inverse());
        let height = (point.xyz - centre).dot(&normal);
        let camera = map.camera_of(reference.image as usize);
        let around = [(1.0, 0.0), (-1.0, 0.0), (0.0, 1.0), (0.0, -1.0)].map(|(dx, dy)| {
            let ray = to_world * camera.ray(&(pixel + Vector2::new(dx, dy)));
            centre + ray * (height / ray.dot(&normal))
        });
        Some(Self { around })
    }

    /// How pixels of `image` move with pixels of the reference.
    fn seen_by(&self, map: &Map, image: usize) -> Option<Matrix2<f64>> {
        let (pose, camera) = (map.poses[image]?, map.camera_of(image));
        let [right, left, below, above] =
            self.around.each_ref().map(|place| camera.project(&pose.transform(place)));
        let a = 0.5 * Matrix2::from_columns(&[right? - left?, below? - above?]);
        // Not seen from behind, nor much larger or smaller.
        (0.05..20.0).contains(&a.determinant()).then_some(a)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_with_few_exact_observations_keeps_all_it_has() {
        let capture = crate::sfm::synthetic::Capture::orbit(6, 400, 0.0, 3);
        let map = capture.true_map_with_points();
        let counts = map.observations_by_image();
        let mut aligned = Aligned {
            keypoints: capture.keypoints.clone(),
            is_exact: capture.keypoints.iter().map(|k| vec![true; k.len()]).collect(),
        };
        // Every eighth keypoint of the others, and most of the last image, cannot be aligned.
        for (image, exact) in aligned.is_exact.iter_mut().enumerate() {
            let of = if image == 5 { 20 } else { 8 };
            exact
                .iter_mut()
                .enumerate()
                .for_each(|(k, e)| *e = if image == 5 { k % of == 0 } else { k % of != 0 });
        }
        let part = aligned.exact_part(&map);
        let after = part.observations_by_image();
        assert_eq!(after[5], counts[5]);
        assert!(part.observations() < map.observations());
        assert!(part.points.iter().all(|p| p.track.len() >= 2));
        // Where nearly nothing can be aligned, nothing is left out.
        aligned.is_exact.iter_mut().for_each(|e| e.iter_mut().enumerate().for_each(|(k, e)| *e = k % 3 == 0));
        assert_eq!(aligned.exact_part(&map).observations(), map.observations());
    }
}
