//! A picture of the scene through any camera, rendered from the splats, as JPEG.

use std::path::Path;

use image::RgbImage;

use crate::camera::{Camera, Pose};
use crate::error::{Error, ErrorKind, Result};
use crate::jpeg;
use crate::raster::{Rasteriser, Rendering, View};

/// Long side of a preview in pixels at most.
pub const PREVIEW_SIDE: u32 = 1280;

/// Renders the loaded scene as `camera` at `pose` sees it (without its distortion), at most `max_side` pixels along the
/// longer side, over `background` (0 to 1), and writes it to `path` as JPEG, under a temporary name first.
///
/// # Errors
/// Those of the rasteriser and of the operating system.
pub fn write_preview(
    rasteriser: &mut dyn Rasteriser,
    sh_degree: u32,
    camera: &Camera,
    pose: &Pose,
    background: [f32; 3],
    max_side: u32,
    path: &Path,
) -> Result<()> {
    let view = View::new(&fitted(camera, max_side), pose);
    let picture = picture(&rasteriser.render(&view, sh_degree, background)?)?;
    jpeg::write(&picture, jpeg::VIEWING_QUALITY, path)
}

/// The camera of the picture scaled down to a long side of `max_side`, if it is larger.
pub(super) fn fitted(camera: &Camera, max_side: u32) -> Camera {
    let long = camera.width.max(camera.height);
    if long <= max_side {
        return camera.clone();
    }
    let scaled =
        |side: u32| (f64::from(side) * f64::from(max_side) / f64::from(long)).round().max(1.0) as u32;
    camera.scaled_to(scaled(camera.width), scaled(camera.height))
}

/// The rendering in 8 bits. Its colours are display colours already; what is out of range is clamped.
pub(super) fn picture(rendering: &Rendering) -> Result<RgbImage> {
    // `as` saturates, and turns what is not a number into 0.
    let to_byte = |v: f32| (v * 255.0 + 0.5) as u8;
    let bytes = rendering.rgba.iter().flat_map(|[r, g, b, _]| [*r, *g, *b].map(to_byte)).collect();
    RgbImage::from_raw(rendering.width, rendering.height, bytes)
        .ok_or_else(|| Error::new(ErrorKind::Internal, "a rendering does not have its size"))
}

#[cfg(test)]
pub(super) mod tests {
    use glam::Vec3;
    use nalgebra::Vector3;

    use super::*;
    use crate::camera::CameraModel;
    use crate::raster::cpu::CpuRasteriser;
    use crate::raster::load_for_viewing;
    use crate::splats::{IDENTITY, SH_C0, Splats};

    /// A rasteriser that shows a red ball at (0, 0, 0) and a smaller green one at (1, 0, 0).
    pub(crate) fn two_balls() -> CpuRasteriser<f32> {
        let colour = |rgb: [f32; 3]| rgb.map(|v| (v - 0.5) / SH_C0);
        let splats = Splats {
            means: vec![Vec3::ZERO, Vec3::X],
            log_scales: vec![Vec3::splat(-1.5), Vec3::splat(-2.5)],
            rotations: vec![IDENTITY; 2],
            opacities: vec![12.0; 2],
            sh_degree: 0,
            sh: [colour([0.9, 0.1, 0.1]), colour([0.1, 0.8, 0.1])].concat(),
            antialiased: false,
        };
        let mut rasteriser = CpuRasteriser::<f32>::new();
        load_for_viewing(&mut rasteriser, &splats).unwrap();
        rasteriser
    }

    #[test]
    fn a_preview_shows_the_scene_through_the_camera() {
        let camera = Camera::from_focal(CameraModel::Pinhole, 800.0, 1600, 900);
        let position = Vector3::new(0.0, 0.0, -4.0);
        let pose = Pose::look_at(&position, &Vector3::zeros(), &-Vector3::y()).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("preview.jpg");
        write_preview(&mut two_balls(), 0, &camera, &pose, [0.0, 0.0, 1.0], PREVIEW_SIDE, &path).unwrap();
        let seen = image::open(&path).unwrap().to_rgb8();
        assert_eq!(seen.dimensions(), (1280, 720));
        let near = |x: u32, y: u32, colour: [u8; 3]| {
            let pixel = seen.get_pixel(x, y).0;
            assert!(pixel.iter().zip(colour).all(|(a, b)| a.abs_diff(b) < 12), "{pixel:?} at {x}, {y}");
        };
        near(640, 360, [230, 26, 26]);
        // A unit to the right at distance 4 with a focal length of 640.
        near(640 + 160, 360, [26, 204, 26]);
        near(100, 100, [0, 0, 255]);
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
    }
}
