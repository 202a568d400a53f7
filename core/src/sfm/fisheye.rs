//! Whether the pictures were taken through a fisheye.
//!
//! Action cameras show angles, not their tangents. The polynomials of ordinary lenses follow that up to 80 degrees or so;
//! beyond, what they leave out bends the poses. A map that was made with such a polynomial tells: it is adjusted once more
//! with either kind of lens, and the one that explains the keypoints better is right. Where angles are large a map of rough
//! keypoints tells, and matches can be verified anew that did not fit; where they are small only aligned keypoints do.

use crate::camera::{Camera, CameraModel};
use crate::control::Control;
use crate::error::Result;

use super::bundle_adjustment::adjust;
use super::map::{Keypoints, Map};
use super::mapper_options::MapperOptions;
use super::polishing::bundle_options;

/// A lens that moves the corners of the picture inwards by less than this part of their distance from the middle is asked no
/// further: lenses of phones, and pictures that a camera has corrected, are below it.
const BENT: f64 = 0.08;
/// The cost with a fisheye over that with an ordinary lens, below which it is one.
const BETTER: f64 = 0.9;

/// The camera of `map` as a fisheye (SIMPLE_RADIAL_FISHEYE), if that explains the keypoints better than RADIAL; `None` if not,
/// and for every camera but a SIMPLE_RADIAL that bends much.
///
/// # Errors
/// [`crate::ErrorKind::Cancelled`].
pub(crate) fn as_fisheye(
    map: &Map,
    keypoints: &Keypoints,
    options: &MapperOptions,
    control: &Control,
) -> Result<Option<Camera>> {
    let camera = &map.camera;
    let &[focal, cx, cy, k] = camera.params.as_slice() else { return Ok(None) };
    let corner = 0.5 * f64::from(camera.width).hypot(f64::from(camera.height)) / focal;
    if camera.model != CameraModel::SimpleRadial || -k * corner * corner < BENT {
        return Ok(None);
    }
    let bundle = bundle_options(map, keypoints, options, None);
    let adjusted = |model, params| -> Result<(Camera, f64)> {
        let mut map = Map { camera: Camera { model, params, ..camera.clone() }, ..map.clone() };
        let summary = adjust(&mut map, keypoints, &bundle, control)?;
        Ok((map.camera, summary.final_cost))
    };
    let (_, ordinary) = adjusted(CameraModel::Radial, vec![focal, cx, cy, k, 0.0])?;
    // The series of the tangent, up to the fifth power of the angle.
    let angles = vec![focal, cx, cy, k + 1.0 / 3.0, k + 2.0 / 15.0];
    let (fisheye, bent) = adjusted(CameraModel::RadialFisheye, angles)?;
    log::debug!("cost as RADIAL {ordinary}, as RADIAL_FISHEYE {bent} ({:?})", fisheye.params);
    let mut params = fisheye.params;
    params.truncate(4);
    Ok((bent < BETTER * ordinary).then(|| Camera {
        model: CameraModel::SimpleRadialFisheye,
        params,
        ..camera.clone()
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;
    use crate::sfm::synthetic::Capture;
    use nalgebra::Vector2;

    /// A walk with pictures of 120 degrees (of the diagonal), through a lens of this kind.
    fn filmed(model: CameraModel, k: f64) -> (Capture, Map) {
        let mut capture = Capture::walk(12, 1500, 0.0, 5);
        let mut lens = Camera::from_focal(model, 480.0, 800, 600);
        lens.params[3] = k;
        let mut random = Random::new(9);
        // Some of it so near that it lies far from the axis.
        capture.points.iter_mut().for_each(|p| p.z *= 0.15 + 0.85 * random.uniform());
        for (i, pose) in capture.poses.iter().enumerate() {
            capture.keypoints[i].clear();
            capture.seen[i].clear();
            for (p, point) in capture.points.iter().enumerate() {
                let seen = lens.project(&pose.transform(point));
                let inside = |p: &Vector2<f64>| (0.0..800.0).contains(&p.x) && (0.0..600.0).contains(&p.y);
                let Some(seen) = seen.filter(inside) else { continue };
                capture.keypoints[i].push(seen + 0.3 * Vector2::new(random.normal(), random.normal()));
                capture.seen[i].push(p);
            }
        }
        // What a mapper would have made of it.
        let mut map = capture.true_map_with_points();
        map.camera = Camera::from_focal(CameraModel::SimpleRadial, 480.0, 800, 600);
        map.camera.params[3] = if model.is_fisheye() { -0.2 } else { k };
        let bundle = bundle_options(&map, &capture.keypoints, &MapperOptions::default(), None);
        adjust(&mut map, &capture.keypoints, &bundle, &Control::new()).unwrap();
        (capture, map)
    }

    #[test]
    fn a_fisheye_is_told_from_a_lens_that_bends() {
        let told = |model, k| {
            let (capture, map) = filmed(model, k);
            as_fisheye(&map, &capture.keypoints, &MapperOptions::default(), &Control::new()).unwrap()
        };
        let camera = told(CameraModel::SimpleRadialFisheye, 0.02).unwrap();
        assert_eq!(camera.model, CameraModel::SimpleRadialFisheye);
        assert!((camera.params[0] / 480.0 - 1.0).abs() < 0.01 && camera.params[3].abs() < 0.08, "{camera:?}");
        assert_eq!(told(CameraModel::SimpleRadial, -0.12), None);
        assert_eq!(told(CameraModel::SimpleRadial, 0.0), None);
    }
}
