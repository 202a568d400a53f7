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

use crate::argument::{Output, Versioned, VersionedOutput, optional_text, path, slice, versioned};
use crate::entry::{fallible, infallible};
use crate::error::{Fault, rc_code, rc_error};
use crate::handle::Opaque;
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

impl Opaque for rc_renderer {
    type Value = Renderer;
    const MARK: u64 = u64::from_le_bytes(*b"rc_rende");
    const NAME: &'static str = "rc_renderer";
}

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
    const DEFAULT: Self = Self {
        struct_size: size_of::<Self>(),
        rotation: [1.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 1.0],
        translation: [0.0; 3],
        fx: 0.0,
        fy: 0.0,
        cx: 0.0,
        cy: 0.0,
        width: 0,
        height: 0,
        background: [0.0; 3],
    };
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
        fallible(error, || {
            let scene = rc_scene::get(scene, "scene")?;
            let device: DeviceChoice = optional_text(device, "device")?.unwrap_or("auto").parse()?;
            let renderer = Output::new(renderer, "renderer")?;
            let mut rasteriser = raster::open(&device)?;
            load_for_viewing(rasteriser.as_mut(), scene)?;
            let device = c_string(rasteriser.name());
            let sh_degree = scene.sh_degree;
            renderer.set(rc_renderer::make(Renderer {
                rasteriser: Mutex::new(rasteriser),
                sh_degree,
                device,
            }));
            Ok(())
        })
    }
}

/// What the renderer runs on, for people, for example "cpu (AVX2, f32)"; NULL for NULL. Lives as long as the renderer.
///
/// Thread-safe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rc_renderer_device(renderer: *const rc_renderer) -> *const c_char {
    infallible(std::ptr::null(), || {
        // SAFETY: the caller's promise.
        unsafe { rc_renderer::get(renderer, "renderer") }.map_or(std::ptr::null(), |r| r.device.as_ptr())
    })
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
        fallible(error, || {
            let renderer = rc_renderer::get(renderer, "renderer")?;
            if view.is_null() {
                return Err(Fault::null("view"));
            }
            let view = versioned(view, "view")?;
            let camera = check(&view)?;
            let rgba = Output::new(rgba, "rgba")?;
            let needed = 4 * camera.width as usize * camera.height as usize;
            if size < needed {
                return Err(Fault::argument(format!("rgba has {size} bytes: the picture has {needed}")));
            }
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

/// Writes a picture (4 * width * height bytes, as rc_renderer_render() makes it) to a PNG file.
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
    unsafe {
        fallible(error, || {
            let file = path(file, "file")?;
            check_size(width, height)?;
            if rgba.is_null() {
                return Err(Fault::null("rgba"));
            }
            let needed = 4 * width as usize * height as usize;
            if size < needed {
                return Err(Fault::argument(format!("rgba has {size} bytes: the picture has {needed}")));
            }
            write_png(file, slice(rgba, needed, "rgba")?, width, height)
        })
    }
}

fn write_png(file: &Path, rgba: &[u8], width: u32, height: u32) -> Result<(), Fault> {
    let mut bytes = std::io::Cursor::new(Vec::new());
    let encoder = image::codecs::png::PngEncoder::new(&mut bytes);
    image::ImageEncoder::write_image(encoder, rgba, width, height, image::ExtendedColorType::Rgba8)
        .map_err(|e| Fault::internal(format!("a picture cannot be encoded: {e}")))?;
    std::fs::write(file, bytes.into_inner()).map_err(|e| libreconstruct::Error::io("write", file, e))?;
    Ok(())
}
