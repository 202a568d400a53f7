//! The pinhole camera that belongs to a lens, and the way from its pixels to those of the lens.

use nalgebra::Vector2;
use rayon::prelude::*;

use crate::camera::{Camera, CameraModel};
use crate::error::{Error, ErrorKind, Result};
use crate::picture_file;

/// The undistorted picture may be this much larger than the original along each side; strong barrel distortion would
/// otherwise spend most pixels on blurred borders.
const MAX_GROWTH: f64 = 2.0;
/// A lens of which less than this part of each side can be undistorted is not plausible.
const MIN_PART: f64 = 0.2;
/// How far outside the original a point may map before it counts, pixels: far above rounding, far below a blank border.
const TOLERANCE: f64 = 1e-3;

/// How the pictures of one camera are undistorted.
pub(super) struct Undistortion {
    camera: Camera,
    /// The camera of the undistorted pictures.
    pub(super) pinhole: Camera,
    /// Where in the original each pixel of the result is seen, row by row; empty for the identity.
    map: Vec<[f32; 2]>,
}

impl Undistortion {
    /// # Errors
    /// [`ErrorKind::IntrinsicsUnreliable`] if too little of the picture can be undistorted; [`ErrorKind::InvalidMedia`] if it is
    /// larger than any that is read.
    pub(super) fn new(camera: &Camera) -> Result<Self> {
        picture_file::check_size(camera.width, camera.height)
            .map_err(|why| Error::new(ErrorKind::InvalidMedia, format!("the picture of a camera {why}")))?;
        let (fx, fy) = camera.focal();
        let centre = camera.principal_point();
        let pinhole = |width, height, centre: Vector2<f64>| Camera {
            model: CameraModel::Pinhole,
            width,
            height,
            params: vec![fx, fy, centre.x, centre.y],
        };
        if !camera.has_distortion() {
            let pinhole = pinhole(camera.width, camera.height, centre);
            return Ok(Self { camera: camera.clone(), pinhole, map: Vec::new() });
        }
        let [x0, y0, x1, y1] = frame(camera)?;
        // Whole pixels; what is left over is shared by both sides. The sum guards against 639.9999999.
        let (width, height) = ((x1 - x0 + 1e-6).floor(), (y1 - y0 + 1e-6).floor());
        let corner = Vector2::new(x0 + (x1 - x0 - width) / 2.0, y0 + (y1 - y0 - height) / 2.0);
        let pinhole = pinhole(width as u32, height as u32, centre - corner);
        let map = map(camera, &pinhole);
        Ok(Self { camera: camera.clone(), pinhole, map })
    }

    pub(super) fn camera(&self) -> &Camera {
        &self.camera
    }

    /// Whether pictures need not be touched.
    pub(super) fn is_identity(&self) -> bool {
        self.map.is_empty()
    }

    pub(super) fn map(&self) -> &[[f32; 2]] {
        &self.map
    }

    /// The pixel of the undistorted picture that shows what `pixel` of the original shows. It may lie outside.
    pub(super) fn undistort_pixel(&self, pixel: &Vector2<f64>) -> Vector2<f64> {
        if self.is_identity() {
            return *pixel;
        }
        let (fx, fy) = self.pinhole.focal();
        let moved = self.camera.unproject(pixel).component_mul(&Vector2::new(fx, fy))
            + self.pinhole.principal_point();
        // Where the lens has no inverse Newton's iteration may leave every bound; such a keypoint is in no picture.
        if moved.iter().all(|v| v.is_finite()) { moved } else { Vector2::repeat(-1.0) }
    }
}

fn map(camera: &Camera, pinhole: &Camera) -> Vec<[f32; 2]> {
    let (width, height) = (pinhole.width as usize, pinhole.height as usize);
    let mut map = vec![[0.0; 2]; width * height];
    map.par_chunks_mut(width).enumerate().for_each(|(j, row)| {
        for (i, place) in row.iter_mut().enumerate() {
            let pixel = Vector2::new(i as f64 + 0.5, j as f64 + 0.5);
            let source = seen_at(camera, &pinhole.unproject(&pixel));
            *place = [source.x as f32, source.y as f32];
        }
    });
    map
}

/// The pixel at which `camera` sees a point of the plane z = 1.
pub(super) fn seen_at(camera: &Camera, point: &Vector2<f64>) -> Vector2<f64> {
    let (fx, fy) = camera.focal();
    camera.distort(point).0.component_mul(&Vector2::new(fx, fy)) + camera.principal_point()
}

/// The largest frame [x0, y0, x1, y1] all of whose pixels are in the original: in pixels of a pinhole camera with the
/// lens's focal length and principal point.
fn frame(camera: &Camera) -> Result<[f64; 4]> {
    let (width, height) = (f64::from(camera.width), f64::from(camera.height));
    let (fx, fy) = camera.focal();
    let centre = camera.principal_point();
    let focal = Vector2::new(fx, fy);
    // The centres of the outermost pixels must map onto or inside the original's: half a pixel less on every side.
    let bounds = [0.5, 0.5, width - 0.5, height - 0.5];
    let undistorted = |x: f64, y: f64| {
        let pixel = Vector2::new(x, y);
        let point = camera.unproject(&pixel);
        // Outside the range of a lens there is no such point, or one on the far side of the fold.
        let fits = (seen_at(camera, &point) - pixel).norm() < TOLERANCE && is_regular_up_to(camera, &point);
        fits.then(|| point.component_mul(&focal) + centre)
    };
    let limit = |low: f64, high: f64, middle: f64, size: f64| {
        [low.max(middle - MAX_GROWTH * size), high.min(middle + MAX_GROWTH * size)]
    };
    let ([mut x0, mut x1], [mut y0, mut y1]) = (
        limit(f64::NEG_INFINITY, f64::INFINITY, centre.x, width / 2.0),
        limit(f64::NEG_INFINITY, f64::INFINITY, centre.y, height / 2.0),
    );
    for k in 0..camera.height {
        let y = f64::from(k) + 0.5;
        x0 = undistorted(bounds[0], y).map_or(x0, |p| x0.max(p.x));
        x1 = undistorted(bounds[2], y).map_or(x1, |p| x1.min(p.x));
    }
    for k in 0..camera.width {
        let x = f64::from(k) + 0.5;
        y0 = undistorted(x, bounds[1]).map_or(y0, |p| y0.max(p.y));
        y1 = undistorted(x, bounds[3]).map_or(y1, |p| y1.min(p.y));
    }

    // A lens that folds the outer picture over itself has no inverse at some of those places: shrink the frame about
    // the principal point until all of its border is seen and nothing is folded on the way there.
    let reaches = |part: f64| {
        let at =
            |x: f64, y: f64| Vector2::new((x - centre.x) * part, (y - centre.y) * part).component_div(&focal);
        let side = |k: u32| f64::from(k) / 64.0;
        (0..=64).all(|k| {
            let (x, y) = (x0 + (x1 - x0) * side(k), y0 + (y1 - y0) * side(k));
            [at(x, y0), at(x, y1), at(x0, y), at(x1, y)].iter().all(|point| {
                let seen = seen_at(camera, point);
                seen.x > bounds[0] - TOLERANCE
                    && seen.y > bounds[1] - TOLERANCE
                    && seen.x < bounds[2] + TOLERANCE
                    && seen.y < bounds[3] + TOLERANCE
                    && is_regular_up_to(camera, point)
            })
        })
    };
    let mut part = 1.0;
    if !reaches(1.0) {
        let (mut good, mut bad) = (0.0, 1.0);
        for _ in 0..40 {
            part = 0.5 * (good + bad);
            if reaches(part) { good = part } else { bad = part }
        }
        part = good;
    }
    // Back from pixel centres to the frame around them.
    let frame = [
        centre.x + (x0 - centre.x) * part - 0.5,
        centre.y + (y0 - centre.y) * part - 0.5,
        centre.x + (x1 - centre.x) * part + 0.5,
        centre.y + (y1 - centre.y) * part + 0.5,
    ];
    let (kept_x, kept_y) = ((frame[2] - frame[0]) / width, (frame[3] - frame[1]) / height);
    if kept_x < MIN_PART || kept_y < MIN_PART || kept_x.is_nan() || kept_y.is_nan() {
        return Err(Error::new(
            ErrorKind::IntrinsicsUnreliable,
            format!(
                "the lens distortion {:?} of a {} x {} {} camera folds the picture over itself: it cannot be removed",
                camera.params,
                camera.width,
                camera.height,
                camera.model.name()
            ),
        )
        .hint("reconstruct with a simpler lens model or with a known focal length"));
    }
    Ok(frame)
}

/// Whether the lens keeps its orientation, neither folded nor mirrored, from the axis to a point of the plane z = 1.
fn is_regular_up_to(camera: &Camera, point: &Vector2<f64>) -> bool {
    (0..=16).all(|step| {
        let (_, jacobian) = camera.distort(&(point * (f64::from(step) / 16.0)));
        jacobian.determinant() > 0.0 && jacobian.trace() > 0.0
    })
}
