//! Pictures of scenes
//!
//! A renderer shows a scene through any camera, as a picture in memory.

use std::ffi::{CString, c_char};
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use libreconstruct::camera::{Camera, CameraModel, Pose};
use libreconstruct::raster::load_for_viewing;
use libreconstruct::raster::{self, DeviceChoice, Rasteriser, Rendering, View};
use nalgebra::{Matrix3, Vector3};

use crate::argument::{Output, Versioned, VersionedOutput, not_null, optional_text, path, slice, versioned};
use crate::entry::fallible;
use crate::error::{Fault, rc_code, rc_error};
use crate::handle::{Opaque, opaque};
use crate::scene::rc_scene;
use crate::text::c_string;

/// Most pixels along a side of a picture.
const LARGEST_SIDE: u32 = 16_384;

/// A scene on a device, ready to be shown.
pub struct rc_renderer {
    _opaque: [u8; 0],
}

/// What is behind an `rc_renderer`.
pub(crate) struct Renderer {
    rasteriser: Mutex<Box<dyn Rasteriser>>,
    sh_degree: u32,
    device: CString,
}

opaque!(rc_renderer, Renderer, "renderer", b"rc_rende");

/// A pinhole camera: where it is and the picture it takes. Start from RC_VIEW_INIT; rc_view_look_at() fills it.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct rc_view {
    /// sizeof(rc_view)
    pub struct_size: usize,
    /// World to camera, row by row: x_camera = rotation * x_world + translation; the camera's x is right, y down, z
    /// forward.
    pub rotation: [f64; 9],
    /// World to camera, world units.
    pub translation: [f64; 3],
    /// Focal length in pixels along x.
    pub fx: f64,
    /// Focal length in pixels along y.
    pub fy: f64,
    /// Principal point in pixels; the centre of the top left pixel is (0.5, 0.5).
    pub cx: f64,
    /// Principal point in pixels.
    pub cy: f64,
    /// Width of the picture in pixels, 1 to 16384.
    pub width: u32,
    /// Height of the picture in pixels, 1 to 16384.
    pub height: u32,
    /// Red, green, blue of what is behind the scene, 0 to 1.
    pub background: [f32; 3],
}

// SAFETY: numbers.
unsafe impl Versioned for rc_view {
    const DEFAULT: Self = Self { rotation: [1.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 1.0], ..Self::EMPTY };
}

/// Opens a renderer on a scene, which is copied to its device, and stores it in *renderer; free it with
/// rc_renderer_free().
///
/// device: "auto", "cpu", "gpu" or part of the name of a graphics adapter; NULL = "auto".
///
/// Fails with RC_NO_GPU if there is no such device, RC_GPU.
///
/// Thread-safe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rc_renderer_open(
    scene: *const rc_scene,
    device: *const c_char,
    renderer: *mut *mut rc_renderer,
    error: *mut *mut rc_error,
) -> rc_code {
    // SAFETY: the caller's promise.
    unsafe {
        rc_scene::ask(scene, renderer, "renderer", error, |scene| {
            let device: DeviceChoice = optional_text(device, "device")?.unwrap_or("auto").parse()?;
            let mut rasteriser = raster::open(&device)?;
            load_for_viewing(rasteriser.as_mut(), scene)?;
            let device = c_string(rasteriser.name());
            let rasteriser = Mutex::new(rasteriser);
            Ok(rc_renderer::make(Renderer { rasteriser, sh_degree: scene.sh_degree, device }))
        })
    }
}

/// What the renderer runs on, for people, for example "cpu (AVX2, f32)"; NULL for NULL. Lives as long as the renderer.
///
/// Thread-safe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rc_renderer_device(renderer: *const rc_renderer) -> *const c_char {
    // SAFETY: the caller's promise.
    unsafe { rc_renderer::text(renderer, |renderer| Some(&renderer.device)) }
}

/// Makes *view, whose other fields stay, a camera at `position` that looks at `target`, with `up` upwards in the picture
/// as far as can be; all in world coordinates, three numbers each. The vertical field of view is in degrees.
///
/// Fails with RC_INVALID_ARGUMENT if the three do not define a direction, or width, height or field of view is out of
/// range.
///
/// Thread-safe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rc_view_look_at(
    view: *mut rc_view,
    position: *const f64,
    target: *const f64,
    up: *const f64,
    field_of_view: f64,
    width: u32,
    height: u32,
    error: *mut *mut rc_error,
) -> rc_code {
    // SAFETY: the caller's promise.
    unsafe {
        fallible(error, || {
            let out = VersionedOutput::new(view, "view")?;
            let before = versioned(view, "view")?;
            let vector = |pointer, name| slice(pointer, 3, name).map(Vector3::from_column_slice);
            let (position, target) = (vector(position, "position")?, vector(target, "target")?);
            let up = vector(up, "up")?;
            check_size(width, height)?;
            if !(1.0..=179.0).contains(&field_of_view) {
                let message = format!("field_of_view is {field_of_view}: 1 to 179 degrees are allowed");
                return Err(Fault::argument(message));
            }
            let pose = Pose::look_at(&position, &target, &up).filter(Pose::is_finite);
            let pose = pose.ok_or_else(|| {
                Fault::argument("position, target and up do not define a direction")
                    .hint("target must not be position, and up must not lie along the view")
            })?;
            let matrix = pose.rotation_matrix();
            let focal = 0.5 * f64::from(height) / (0.5 * field_of_view).to_radians().tan();
            out.set(&rc_view {
                rotation: std::array::from_fn(|k| matrix[(k / 3, k % 3)]),
                translation: pose.translation.into(),
                fx: focal,
                fy: focal,
                cx: 0.5 * f64::from(width),
                cy: 0.5 * f64::from(height),
                width,
                height,
                ..before
            });
            Ok(())
        })
    }
}

fn check_size(width: u32, height: u32) -> Result<(), Fault> {
    if (1..=LARGEST_SIDE).contains(&width) && (1..=LARGEST_SIDE).contains(&height) {
        return Ok(());
    }
    let message = format!("the picture is {width} x {height}: 1 to {LARGEST_SIDE} pixels a side are allowed");
    Err(Fault::argument(message))
}

/// How many of the `size` bytes at `rgba` the picture takes.
fn bytes_of_picture(width: u32, height: u32, size: usize) -> Result<usize, Fault> {
    let needed = 4 * width as usize * height as usize;
    if size < needed {
        return Err(Fault::argument(format!("rgba has {size} bytes: the picture has {needed}")));
    }
    Ok(needed)
}

fn check(view: &rc_view) -> Result<View, Fault> {
    check_size(view.width, view.height)?;
    let lens = [view.fx, view.fy, view.cx, view.cy];
    let numbers = view.rotation.iter().chain(&view.translation).chain(&lens);
    if !numbers.chain(view.background.map(f64::from).iter()).all(|v| v.is_finite()) {
        return Err(Fault::argument("view has a number that is not finite"));
    }
    if view.fx <= 0.0 || view.fy <= 0.0 {
        let message =
            format!("view has the focal lengths {} and {}: they must be positive", view.fx, view.fy);
        return Err(Fault::argument(message));
    }
    let rotation = Matrix3::from_row_slice(&view.rotation);
    if (rotation * rotation.transpose() - Matrix3::identity()).norm() > 1e-3 || rotation.determinant() < 0.0 {
        return Err(Fault::argument(
            "view.rotation is no rotation: its rows must be of length 1, at right angles",
        ));
    }
    let (model, params) = (CameraModel::Pinhole, lens.to_vec());
    let camera = Camera { model, width: view.width, height: view.height, params };
    Ok(View::new(&camera, &Pose::from_matrix(&rotation, view.translation.into())))
}

/// Renders a picture into `rgba`: 4 * width * height bytes, row by row from the top, red, green, blue over the background,
/// and alpha: how much of the pixel the scene covers. `size` says how many bytes there are; more than needed are left
/// alone.
///
/// Fails with RC_INVALID_ARGUMENT for a view that cannot be or a buffer that is too small, RC_GPU.
///
/// Thread-safe; pictures of one renderer are made one after the other.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rc_renderer_render(
    renderer: *const rc_renderer,
    view: *const rc_view,
    rgba: *mut u8,
    size: usize,
    error: *mut *mut rc_error,
) -> rc_code {
    // SAFETY: the caller's promise.
    unsafe {
        rc_renderer::call(renderer, error, |renderer| {
            not_null(view, "view")?;
            let view = versioned(view, "view")?;
            let camera = check(&view)?;
            let rgba = Output::new(rgba, "rgba")?;
            bytes_of_picture(camera.width, camera.height, size)?;
            let mut rasteriser = renderer.rasteriser.lock().unwrap_or_else(PoisonError::into_inner);
            let rendering = rasteriser.render(&camera, renderer.sh_degree, view.background)?;
            drop(rasteriser);
            rgba.set_all(&pixels(&rendering));
            Ok(())
        })
    }
}

/// In 8 bits. The colours are display colours already; what is out of range is clamped, what is no number becomes 0.
fn pixels(rendering: &Rendering) -> Vec<u8> {
    rendering.rgba.iter().flatten().map(|v| (v * 255.0 + 0.5) as u8).collect()
}

/// Frees a renderer. NULL is allowed.
///
/// Thread-safe, while nobody uses the renderer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rc_renderer_free(renderer: *mut rc_renderer) {
    // SAFETY: the caller's promise.
    unsafe { rc_renderer::free(renderer) }
}

/// Writes a picture (4 * width * height bytes, as rc_renderer_render() makes it) to a PNG file. If it fails, a file that was there
/// stays.
///
/// Fails with RC_INVALID_ARGUMENT for a size out of range or fewer bytes than it needs, RC_IO, RC_DISK_FULL.
///
/// Thread-safe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rc_write_png(
    file: *const c_char,
    rgba: *const u8,
    size: usize,
    width: u32,
    height: u32,
    error: *mut *mut rc_error,
) -> rc_code {
    // SAFETY: the caller's promise.
    unsafe { fallible(error, || write_png(path(file, "file")?, rgba, size, width, height)) }
}

/// # Safety
/// `rgba` is NULL or points to `size` bytes.
unsafe fn write_png(file: &Path, rgba: *const u8, size: usize, width: u32, height: u32) -> Result<(), Fault> {
    check_size(width, height)?;
    // SAFETY: the caller's promise; it is the size that the picture needs, and not more than there is.
    let rgba = unsafe { slice(rgba, bytes_of_picture(width, height, size)?, "rgba") }?;
    let mut bytes = std::io::Cursor::new(Vec::new());
    let encoder = image::codecs::png::PngEncoder::new(&mut bytes);
    image::ImageEncoder::write_image(encoder, rgba, width, height, image::ExtendedColorType::Rgba8)
        .map_err(|e| Fault::internal(format!("a picture cannot be encoded: {e}")))?;
    libreconstruct::write_file(file, &bytes.into_inner())?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_png_is_written_beside_the_old_one() {
        let folder = tempfile::tempdir().unwrap();
        let (path, old) = (folder.path().join("view.png"), folder.path().join("old.png"));
        std::fs::write(&path, "old").unwrap();
        std::fs::hard_link(&path, &old).unwrap();
        let rgba = [1, 2, 3, 255];
        // SAFETY: the size is that of the picture.
        let written = unsafe { write_png(&path, rgba.as_ptr(), rgba.len(), 1, 1) };
        assert!(written.is_ok());
        assert_eq!(image::open(&path).unwrap().to_rgba8().into_raw(), rgba);
        assert_eq!(std::fs::read(&old).unwrap(), b"old");
    }
}
