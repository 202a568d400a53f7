//! Scenes
//!
//! A scene is a set of Gaussians. An rc_scene holds it in arrays, which can be looked at in place. Its frame is that of
//! scene.ply: x right, y down, z forward; .spz and .glb files, whose frames are others, are converted. A scene never changes.

use std::ffi::c_char;

use bytemuck::cast_slice;
use libreconstruct::glam::{Vec3, Vec4};
use libreconstruct::splats::{SceneFormat, Splats, sh_coefficients};

use crate::argument::{Versioned, VersionedOutput, first, not_null, path, slice, versioned};
use crate::entry::answer;
use crate::error::{Fault, rc_code, rc_error};
use crate::handle::{Opaque, opaque};

/// A Gaussian scene.
pub struct rc_scene {
    _opaque: [u8; 0],
}

opaque!(rc_scene, Splats, "scene", b"rc_scene");

/// The arrays of a scene. Start from RC_SPLATS_INIT. A splat is `opacity * exp(-1/2 (x - mean)' S^-1 (x - mean))` with
/// `S = R diag(scale^2) R'`; values are stored as in the .ply files of 3D Gaussian Splatting.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct rc_splats {
    /// sizeof(rc_splats)
    pub struct_size: usize,
    /// Number of splats.
    pub count: usize,
    /// Degree of the spherical harmonics, 0 to 3.
    pub sh_degree: u32,
    /// Coefficients per colour of that degree: 1, 4, 9 or 16.
    pub sh_coefficients: u32,
    /// Whether the scene was trained with, and is to be rendered with, the anti-aliasing filter.
    pub antialiased: bool,
    /// 3 * count: centres, world units.
    pub means: *const f32,
    /// 3 * count: natural logarithms of the standard deviations along the axes, world units.
    pub log_scales: *const f32,
    /// 4 * count: quaternions w, x, y, z, splat to world; not necessarily of unit length.
    pub rotations: *const f32,
    /// count: logits of the opacities.
    pub opacities: *const f32,
    /// 3 * sh_coefficients * count: splat by splat, coefficient by coefficient, red green blue. The colour from a
    /// direction d is 0.5 + sum of coefficient * basis(d).
    pub sh: *const f32,
}

// SAFETY: numbers, pointers, and bool, which C compilers set to 0 or 1.
unsafe impl Versioned for rc_splats {}

/// Reads a scene from a .ply file (plain or packed), an .spz, a .glb or a .sog file and stores it in *scene; free
/// it with rc_scene_free(). The content decides, not the name.
///
/// Fails with RC_NOT_FOUND, RC_INVALID_FILE if it is none of these or damaged, RC_IO.
///
/// Thread-safe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rc_scene_load(
    file: *const c_char,
    scene: *mut *mut rc_scene,
    error: *mut *mut rc_error,
) -> rc_code {
    // SAFETY: the caller's promise.
    unsafe { answer(scene, "scene", error, || Ok(rc_scene::make(Splats::read(path(file, "file")?)?))) }
}

/// Writes a scene as .ply, .spz, .glb or .sog, as the name says: whole or not at all, in place of what was there. An
/// .spz file is smaller and rounds the values; a .sog file is still smaller, and its splats are in another order.
///
/// Fails with RC_INVALID_ARGUMENT for another name, RC_DISK_FULL, RC_IO.
///
/// Thread-safe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rc_scene_save(
    scene: *const rc_scene,
    file: *const c_char,
    error: *mut *mut rc_error,
) -> rc_code {
    // SAFETY: the caller's promise.
    unsafe {
        rc_scene::call(scene, error, |scene| {
            let file = path(file, "file")?;
            SceneFormat::of(file)?;
            Ok(scene.write(file)?)
        })
    }
}

/// Makes a scene of the caller's arrays, which are copied, and stores it in *scene; free it with rc_scene_free().
/// sh_coefficients may be 0: it follows from sh_degree.
///
/// Fails with RC_INVALID_ARGUMENT for a degree above 3 or numbers of coefficients that contradict it.
///
/// Thread-safe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rc_scene_new(
    splats: *const rc_splats,
    scene: *mut *mut rc_scene,
    error: *mut *mut rc_error,
) -> rc_code {
    // SAFETY: the caller's promise.
    unsafe {
        answer(scene, "scene", error, || {
            not_null(splats, "splats")?;
            Ok(rc_scene::make(copy(&versioned(splats, "splats")?)?))
        })
    }
}

/// # Safety
/// The pointers of `splats` are NULL or arrays of the lengths that its type says.
unsafe fn copy(splats: &rc_splats) -> Result<Splats, Fault> {
    let (count, degree) = (splats.count, splats.sh_degree);
    if degree > 3 {
        return Err(Fault::argument(format!("splats.sh_degree is {degree}: 0 to 3 is allowed")));
    }
    let coefficients = sh_coefficients(degree);
    if splats.sh_coefficients != 0 && splats.sh_coefficients as usize != coefficients {
        let found = splats.sh_coefficients;
        let message = format!("splats.sh_coefficients is {found}: degree {degree} has {coefficients}");
        return Err(Fault::argument(message));
    }
    let values = count.checked_mul(3 * coefficients);
    let values = values.ok_or_else(|| Fault::argument(format!("splats.count is {count}: too many")))?;
    // SAFETY: the caller's promise; arrays and `Vec3` lie in memory like the numbers in them.
    unsafe {
        Ok(Splats {
            means: slice(splats.means.cast::<Vec3>(), count, "splats.means")?.to_vec(),
            log_scales: slice(splats.log_scales.cast::<Vec3>(), count, "splats.log_scales")?.to_vec(),
            // The caller's need not be aligned as `Vec4` is.
            rotations: slice(splats.rotations.cast::<[f32; 4]>(), count, "splats.rotations")?
                .iter()
                .copied()
                .map(Vec4::from_array)
                .collect(),
            opacities: slice(splats.opacities, count, "splats.opacities")?.to_vec(),
            sh_degree: degree,
            sh: slice(splats.sh, values, "splats.sh")?.to_vec(),
            antialiased: splats.antialiased,
        })
    }
}

/// Number of splats; 0 for NULL.
///
/// Thread-safe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rc_scene_count(scene: *const rc_scene) -> usize {
    // SAFETY: the caller's promise.
    unsafe { rc_scene::look(scene, 0, Splats::len) }
}

/// Fills *splats with the scene's arrays. Nothing is copied: the pointers are those of the scene, live as long as it, and
/// are only read. They are NULL if there are no splats.
///
/// Thread-safe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rc_scene_splats(
    scene: *const rc_scene,
    splats: *mut rc_splats,
    error: *mut *mut rc_error,
) -> rc_code {
    // SAFETY: the caller's promise.
    unsafe {
        rc_scene::call(scene, error, |scene| {
            let out = VersionedOutput::new(splats, "splats")?;
            let coefficients = sh_coefficients(scene.sh_degree);
            out.set(&rc_splats {
                struct_size: size_of::<rc_splats>(),
                count: scene.len(),
                sh_degree: scene.sh_degree,
                sh_coefficients: u32::try_from(coefficients).unwrap_or_default(),
                antialiased: scene.antialiased,
                means: first(cast_slice(&scene.means)),
                log_scales: first(cast_slice(&scene.log_scales)),
                rotations: first(cast_slice(&scene.rotations)),
                opacities: first(&scene.opacities),
                sh: first(&scene.sh),
            });
            Ok(())
        })
    }
}

/// Frees a scene, and with it the arrays that rc_scene_splats() showed. NULL is allowed, and so are renderers that were
/// opened on it: they have what they need.
///
/// Thread-safe, while nobody uses the scene.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rc_scene_free(scene: *mut rc_scene) {
    // SAFETY: the caller's promise.
    unsafe { rc_scene::free(scene) }
}
