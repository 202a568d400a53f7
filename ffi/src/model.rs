//! Sparse models
//!
//! A sparse model is what structure from motion finds: cameras (lenses), images with their poses, and points. An rc_model
//! holds it in arrays, which can be looked at in place. World and camera axes are COLMAP's: x right, y down, z forward. A
//! model never changes.

use std::collections::BTreeMap;
use std::ffi::{CString, c_char, c_void};
use std::sync::{Arc, OnceLock};

use libreconstruct::CancelToken;
use libreconstruct::camera::{SparseModel, plot_doubtful_poses, undistort};

use crate::argument::{Output, Versioned, VersionedOutput, first, path};
use crate::cancel::{rc_cancel, token_of};
use crate::entry::{answer, fallible};
use crate::error::{Fault, rc_code, rc_error};
use crate::event::rc_event_fn;
use crate::handle::{Opaque, opaque};
use crate::text::c_string;
use crate::work::told;
use crate::worker::check_threads;

/// Cameras, images with poses, and points.
pub struct rc_model {
    _opaque: [u8; 0],
}

/// What is behind an `rc_model`.
pub(crate) struct Model {
    sparse: Arc<SparseModel>,
    /// How doubtful poses are, by image id, if that is known.
    doubts: BTreeMap<u32, f64>,
    report: Option<CString>,
    components: Vec<Component>,
    /// Made when they are first asked for.
    arrays: OnceLock<Arrays>,
}

/// The model of another place of the same capture, and its doubts.
pub(crate) type Component = (Arc<SparseModel>, BTreeMap<u32, f64>);

opaque!(rc_model, Model, "model", b"rc_model");

impl Model {
    /// A model of which nothing else is known.
    fn plain(sparse: SparseModel) -> Self {
        Self::new((Arc::new(sparse), BTreeMap::new()), None, Vec::new())
    }

    pub(crate) fn new(
        (sparse, doubts): Component,
        report: Option<String>,
        components: Vec<Component>,
    ) -> Self {
        let report = report.map(c_string);
        Self { sparse, doubts, report, components, arrays: OnceLock::new() }
    }
}

/// Addresses of strings that lie beside them.
struct Addresses(Vec<*const c_char>);

// SAFETY: what they point to belongs to the same `Arrays` and is only read.
unsafe impl Send for Addresses {}
// SAFETY: the same.
unsafe impl Sync for Addresses {}

impl Addresses {
    fn of(texts: &[CString]) -> Self {
        Self(texts.iter().map(|text| text.as_ptr()).collect())
    }
}

/// What `rc_model_arrays` points to.
struct Arrays {
    camera_ids: Vec<u32>,
    camera_sizes: Vec<u32>,
    camera_params: Vec<f64>,
    camera_models: Addresses,
    image_ids: Vec<u32>,
    image_camera_ids: Vec<u32>,
    image_poses: Vec<f64>,
    image_names: Addresses,
    points: Vec<f64>,
    colors: Vec<u8>,
    errors: Vec<f64>,
    track_lengths: Vec<u32>,
    _texts: [Vec<CString>; 2],
}

/// Places for the parameters of a camera; what its model has no use for is 0.
const PARAMS: usize = 8;

impl Arrays {
    fn of(model: &SparseModel) -> Self {
        let models: Vec<CString> = model.cameras.values().map(|c| c_string(c.model.name())).collect();
        let names: Vec<CString> = model.images.values().map(|i| c_string(i.name.as_str())).collect();
        let padded = |params: &[f64]| {
            let mut row = [0.0; PARAMS];
            row.iter_mut().zip(params).for_each(|(to, from)| *to = *from);
            row
        };
        // Column by column is row by row of the transpose; the last row, 0 0 0 1, is left out.
        let rows = |pose: &libreconstruct::camera::Pose| {
            let matrix = pose.to_matrix4().transpose();
            matrix.as_slice().iter().take(12).copied().collect::<Vec<f64>>()
        };
        let points = model.points.values();
        Self {
            camera_ids: model.cameras.keys().copied().collect(),
            camera_sizes: model.cameras.values().flat_map(|c| [c.width, c.height]).collect(),
            camera_params: model.cameras.values().flat_map(|c| padded(&c.params)).collect(),
            camera_models: Addresses::of(&models),
            image_ids: model.images.keys().copied().collect(),
            image_camera_ids: model.images.values().map(|i| i.camera_id).collect(),
            image_poses: model.images.values().flat_map(|i| rows(&i.pose)).collect(),
            image_names: Addresses::of(&names),
            points: points.clone().flat_map(|p| <[f64; 3]>::from(p.xyz)).collect(),
            colors: points.clone().flat_map(|p| p.rgb).collect(),
            errors: points.clone().map(|p| p.error).collect(),
            track_lengths: points.map(|p| u32::try_from(p.track.len()).unwrap_or(u32::MAX)).collect(),
            _texts: [models, names],
        }
    }
}

/// The arrays of a sparse model. Start from RC_MODEL_ARRAYS_INIT. Everything is in the order of its ids.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct rc_model_arrays {
    /// sizeof(rc_model_arrays)
    pub struct_size: usize,
    /// Number of cameras.
    pub camera_count: usize,
    /// camera_count: their ids.
    pub camera_ids: *const u32,
    /// camera_count: SIMPLE_PINHOLE, PINHOLE, SIMPLE_RADIAL, RADIAL, OPENCV, SIMPLE_RADIAL_FISHEYE, RADIAL_FISHEYE or
    /// OPENCV_FISHEYE.
    pub camera_models: *const *const c_char,
    /// 2 * camera_count: width and height in pixels.
    pub camera_sizes: *const u32,
    /// 8 * camera_count: COLMAP's parameters of the model in their order, lengths in pixels, then zeros.
    pub camera_params: *const f64,
    /// Number of images.
    pub image_count: usize,
    /// image_count: their ids.
    pub image_ids: *const u32,
    /// image_count: names of their files.
    pub image_names: *const *const c_char,
    /// image_count: the id of the camera of each.
    pub image_camera_ids: *const u32,
    /// 12 * image_count: world to camera, `[R | t]`, three rows of four.
    pub image_poses: *const f64,
    /// Number of points.
    pub point_count: usize,
    /// 3 * point_count: where they are in the world.
    pub points: *const f64,
    /// 3 * point_count: red, green, blue.
    pub colors: *const u8,
    /// point_count: mean reprojection error, pixels.
    pub errors: *const f64,
    /// point_count: in how many images each is seen.
    pub track_lengths: *const u32,
}

// SAFETY: numbers and pointers.
unsafe impl Versioned for rc_model_arrays {}

/// Reads a folder of COLMAP's files (cameras, images, points3D; binary or text), stores the model in *model; free it with
/// rc_model_free().
///
/// Fails with RC_NOT_FOUND, RC_INVALID_FILE if one is damaged, RC_IO.
///
/// Thread-safe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rc_model_load(
    folder: *const c_char,
    model: *mut *mut rc_model,
    error: *mut *mut rc_error,
) -> rc_code {
    // SAFETY: the caller's promise.
    unsafe {
        answer(model, "model", error, || {
            Ok(rc_model::make(Model::plain(SparseModel::read(path(folder, "folder")?)?)))
        })
    }
}

/// Writes COLMAP's files of a model into a folder, binary (bit-exact) or as text.
///
/// Fails with RC_DISK_FULL, RC_IO.
///
/// Thread-safe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rc_model_save(
    model: *const rc_model,
    folder: *const c_char,
    as_text: bool,
    error: *mut *mut rc_error,
) -> rc_code {
    // SAFETY: the caller's promise.
    unsafe {
        rc_model::call(model, error, |model| {
            let folder = path(folder, "folder")?;
            match as_text {
                true => model.sparse.write_text(folder)?,
                false => model.sparse.write_binary(folder)?,
            }
            Ok(())
        })
    }
}

/// Number of images with a pose; 0 for NULL.
///
/// Thread-safe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rc_model_count(model: *const rc_model) -> usize {
    // SAFETY: the caller's promise.
    unsafe { rc_model::look(model, 0, |model| model.sparse.images.len()) }
}

/// Fills *arrays with the model's. The pointers are those of the model, live as long as it, and are only read. They are
/// NULL where the number is 0.
///
/// Thread-safe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rc_model_show(
    model: *const rc_model,
    arrays: *mut rc_model_arrays,
    error: *mut *mut rc_error,
) -> rc_code {
    // SAFETY: the caller's promise.
    unsafe {
        rc_model::call(model, error, |model| {
            let out = VersionedOutput::new(arrays, "arrays")?;
            let shown = model.arrays.get_or_init(|| Arrays::of(&model.sparse));
            out.set(&rc_model_arrays {
                struct_size: size_of::<rc_model_arrays>(),
                camera_count: shown.camera_ids.len(),
                camera_ids: first(&shown.camera_ids),
                camera_models: first(&shown.camera_models.0),
                camera_sizes: first(&shown.camera_sizes),
                camera_params: first(&shown.camera_params),
                image_count: shown.image_ids.len(),
                image_ids: first(&shown.image_ids),
                image_names: first(&shown.image_names.0),
                image_camera_ids: first(&shown.image_camera_ids),
                image_poses: first(&shown.image_poses),
                point_count: shown.errors.len(),
                points: first(&shown.points),
                colors: first(&shown.colors),
                errors: first(&shown.errors),
                track_lengths: first(&shown.track_lengths),
            });
            Ok(())
        })
    }
}

/// How the model was found, as JSON: its verdict, figures and warnings; NULL if rc_sfm() did not make it. Belongs to the
/// model.
///
/// Thread-safe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rc_model_report(model: *const rc_model) -> *const c_char {
    // SAFETY: the caller's promise.
    unsafe { rc_model::text(model, |model| model.report.as_ref()) }
}

/// In how many more models the capture fell apart: places that share nothing with this one. 0 for NULL.
///
/// Thread-safe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rc_model_component_count(model: *const rc_model) -> usize {
    // SAFETY: the caller's promise.
    unsafe { rc_model::look(model, 0, |model| model.components.len()) }
}

/// Stores the model of another place, number 0 to rc_model_component_count() - 1, in *component; free it with
/// rc_model_free(). It lives on without this one.
///
/// Fails with RC_NOT_FOUND if there is none of that number.
///
/// Thread-safe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rc_model_component(
    model: *const rc_model,
    number: usize,
    component: *mut *mut rc_model,
    error: *mut *mut rc_error,
) -> rc_code {
    // SAFETY: the caller's promise.
    unsafe {
        rc_model::ask(model, component, "component", error, |model| {
            let count = model.components.len();
            let (sparse, doubts) = model.components.get(number).ok_or_else(|| {
                let message = format!("there is no component {number}: the model has {count}");
                Fault::new(rc_code::RC_NOT_FOUND, "not_found", message)
            })?;
            Ok(rc_model::make(Model::new((Arc::clone(sparse), doubts.clone()), None, Vec::new())))
        })
    }
}

/// Writes a picture of cameras and points, from above and from the side, as JPEG of 1800 x 900 pixels. Cameras go from blue to
/// orange in the order of their names; those of a model of rc_sfm() from green (sure) over yellow to red (as far off as a good
/// pose may be).
///
/// Fails with RC_INVALID_ARGUMENT for a model without images, RC_DISK_FULL, RC_IO.
///
/// Thread-safe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rc_model_plot(
    model: *const rc_model,
    file: *const c_char,
    error: *mut *mut rc_error,
) -> rc_code {
    // SAFETY: the caller's promise.
    unsafe {
        rc_model::call(model, error, |model| {
            Ok(plot_doubtful_poses(&model.sparse, &model.doubts, path(file, "file")?)?)
        })
    }
}

/// Writes the pictures of the folder `images` without lens distortion to folder/images and their model, whose cameras are
/// PINHOLE, to folder/sparse.
///
/// undistorted: gets that model as well, to be freed with rc_model_free(); NULL = it is not wanted. threads: 0 = as many as
/// there are processors. on_event: NULL = nobody is told. cancel: NULL = only on_event can cancel.
///
/// Fails with RC_INVALID_ARGUMENT if `images` is, or is in, one of these two folders, RC_NOT_FOUND for a picture that is not there,
/// RC_INVALID_MEDIA for one that is damaged or not of its camera's size, RC_INTRINSICS_UNRELIABLE for a lens that folds so much of
/// the picture over itself that it cannot be undistorted, RC_CANCELLED, RC_DISK_FULL, RC_IO.
///
/// Thread-safe, for folders that are not the same. Blocks.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rc_model_undistort(
    model: *const rc_model,
    images: *const c_char,
    folder: *const c_char,
    threads: u32,
    on_event: rc_event_fn,
    user: *mut c_void,
    cancel: *const rc_cancel,
    undistorted: *mut *mut rc_model,
    error: *mut *mut rc_error,
) -> rc_code {
    // SAFETY: the caller's promise.
    unsafe {
        fallible(error, || {
            let model = rc_model::get(model)?;
            let (images, folder) = (path(images, "images")?, path(folder, "folder")?);
            let threads = check_threads(threads, "threads")?;
            let token: CancelToken = token_of(cancel)?;
            let work = |control: &_| undistort(&model.sparse, images, folder, control);
            let made = told(threads, token, work, |signal| signal.tell(on_event, user))?;
            if !undistorted.is_null() {
                Output::new(undistorted, "undistorted")?.set(rc_model::make(Model::plain(made)));
            }
            Ok(())
        })
    }
}

/// Frees a model, and with it the arrays that rc_model_show() showed. NULL is allowed.
///
/// Thread-safe, while nobody uses the model.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rc_model_free(model: *mut rc_model) {
    // SAFETY: the caller's promise.
    unsafe { rc_model::free(model) }
}
