//! Camera poses, without a scene
//!
//! The stages before the training, one by one: key frames of a video, and structure from motion. rc_sfm() takes a video as
//! well and chooses frames itself; rc_reconstruct() does all of it.

use std::ffi::{c_char, c_void};
use std::mem::MaybeUninit;
use std::path::Path;
use std::sync::Arc;

use libreconstruct::background::MaskOptions;
use libreconstruct::camera::{CameraModel, SparseModel};
use libreconstruct::pipeline::{
    PosedModels, PosesOptions, ReconstructionMethod, poses_in_folder, poses_in_memory,
};
use libreconstruct::sfm::{SfmOptions, Verdict};
use libreconstruct::video::{FrameOptions, extract_frames};
use libreconstruct::{Control, Error, ErrorKind};

use crate::argument::{Output, Versioned, choice, optional_path, optional_text, path, versioned};
use crate::cancel::{rc_cancel, token_of};
use crate::entry::{answer, fallible};
use crate::error::{Fault, rc_code, rc_error};
use crate::event::rc_event_fn;
use crate::handle::Opaque;
use crate::model::{Component, Model, rc_model};
use crate::reconstruct::{PROJECTIONS, given_shutter, rc_projection};
use crate::submit::{METHODS, rc_method};
use crate::text::{json, owned};
use crate::work::told;
use crate::worker::check_threads;

/// What to take from a video. Start from RC_FRAME_OPTIONS_INIT. A number that is 0 is the usual one.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct rc_frame_options {
    /// sizeof(rc_frame_options)
    pub struct_size: usize,
    /// At most this many key frames, 3 to 5000; usually 150, or up to 450 where neighbouring ones would share too little. Of a 360° video a third as many panoramas, six pictures each.
    pub max_frames: u32,
    /// Long side of the frames in pixels at most, 64 to 8192; usually 1600.
    pub max_resolution: u32,
    /// Threads to compute with; 0 = as many as there are processors.
    pub threads: u32,
    /// How the pictures show directions.
    pub projection: MaybeUninit<rc_projection>,
}

// SAFETY: numbers, and an enum that may be anything.
unsafe impl Versioned for rc_frame_options {}

/// Which frames numbers of C ask for.
fn frame_options(
    max_frames: u32,
    max_resolution: u32,
    projection: MaybeUninit<rc_projection>,
) -> Result<FrameOptions, Fault> {
    let usual = FrameOptions::of_at_most((max_frames != 0).then_some(max_frames as usize));
    Ok(FrameOptions {
        max_resolution: if max_resolution == 0 { usual.max_resolution } else { max_resolution },
        projection: choice(projection, "options.projection", &PROJECTIONS)?,
        ..usual
    })
}

/// Chooses sharp key frames of a video, at equal motion rather than equal time, and writes them into `folder`, with a contact
/// sheet, frames.jpg. `input` may be a folder of pictures, videos or both, too, by one camera or several.
///
/// options: NULL = the defaults. on_event: NULL = nobody is told. cancel: NULL = only on_event can cancel. frames_json: gets
/// what is known of the frames (the content of frames.json), to be freed with rc_string_free(); NULL = it is not wanted.
///
/// Fails with RC_INVALID_ARGUMENT for options out of range and for a folder with pictures that are called as frames are and that
/// no run of this library has left, RC_INVALID_MEDIA for an input that is no usable video, RC_TOO_FEW_FRAMES, RC_CANCELLED,
/// RC_DISK_FULL, RC_IO.
///
/// Thread-safe, for folders that are not the same. Blocks.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rc_extract_frames(
    input: *const c_char,
    folder: *const c_char,
    options: *const rc_frame_options,
    on_event: rc_event_fn,
    user: *mut c_void,
    cancel: *const rc_cancel,
    frames_json: *mut *mut c_char,
    error: *mut *mut rc_error,
) -> rc_code {
    // SAFETY: the caller's promise.
    unsafe {
        fallible(error, || {
            let (input, folder) = (path(input, "input")?, path(folder, "folder")?);
            let asked = versioned(options, "options")?;
            let threads = check_threads(asked.threads, "options.threads")?;
            let options = frame_options(asked.max_frames, asked.max_resolution, asked.projection)?;
            let work = |control: &Control| extract_frames(input, folder, &options, control);
            let frames = told(threads, token_of(cancel)?, work, |signal| signal.tell(on_event, user))?;
            if !frames_json.is_null() {
                Output::new(frames_json, "frames_json")?.set(owned(json(&frames)?));
            }
            Ok(())
        })
    }
}

/// How to find camera poses. Start from RC_SFM_OPTIONS_INIT. A number that is 0 is the usual one.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct rc_sfm_options {
    /// sizeof(rc_sfm_options)
    pub struct_size: usize,
    /// Which mapper begins.
    pub reconstruction_method: MaybeUninit<rc_method>,
    /// Where frames have yet to be chosen: at most this many, 3 to 5000; usually 150, or up to 450 where neighbouring ones would share
    /// too little.
    pub max_frames: u32,
    /// Where frames have yet to be made: their long side in pixels at most, 64 to 8192; usually 1600.
    pub max_resolution: u32,
    /// Threads to compute with; 0 = as many as there are processors. The model does not depend on it.
    pub threads: u32,
    /// Fixes every random choice.
    pub seed: u64,
    /// Focal length in pixels of the frames (those of the camera that made most), if known; it is refined. 0 = it is not.
    pub focal: f64,
    /// Edge of the inner white square of the AprilTags (tagStandard41h12) in millimetres, 5/9 of their printed width, 1 to
    /// 1000: the model is then in metres. 0 = there are none.
    pub apriltag_size_mm: f64,
    /// Milliseconds from the first line of a picture to the last one, 0 to 100, if known; 0 = a global shutter. Negative =
    /// that of a video is estimated where it matters, which RC_SFM_OPTIONS_INIT has.
    pub rolling_shutter_ms: f64,
    /// Whether to fail where the tags give no scale. Needs apriltag_size_mm.
    pub require_scale: bool,
    /// Whether to fail where the poses are doubtful.
    pub strict: bool,
    /// Whether to hand over a model that is broken, too, rather than to fail: for who wants to look at it.
    pub keep_broken: bool,
    /// Whether to make masks of the object, in undistorted/masks. Needs a folder.
    pub remove_background: bool,
    /// The file of the mask model for remove_background; NULL = the one that is installed.
    pub mask_model: *const c_char,
    /// A folder with a mask (PNG, white where the object is) named like every picture, in place of the mask model; NULL =
    /// there is none.
    pub mask_dir: *const c_char,
    /// Where the object is in one frame: "X,Y" in pixels of the first one, or "X,Y,FRAME" with a frame's name or number. Makes
    /// masks, too; for where something else catches the eye more. NULL = it is found without.
    pub object_at: *const c_char,
    /// A disc of the ground to keep under the object in its masks, so many times as wide as the object (at most 20). Makes masks,
    /// too. 0 = none.
    pub keep_floor: f64,
    /// Where frames have yet to be chosen: how the pictures of the video show directions.
    pub projection: MaybeUninit<rc_projection>,
    /// The lens that all frames share, by COLMAP's name: "SIMPLE_PINHOLE", "PINHOLE", "SIMPLE_RADIAL", "RADIAL", "OPENCV",
    /// "SIMPLE_RADIAL_FISHEYE", "RADIAL_FISHEYE" or "OPENCV_FISHEYE". NULL = "SIMPLE_RADIAL", which becomes "RADIAL", or a
    /// fisheye, where the capture asks for it.
    pub camera_model: *const c_char,
    /// The folder of an earlier result, with its frames/ and sparse/: the input, a further video or folder of pictures of the same
    /// scene, is added to that model, whose world stays as it is. NULL = there is none.
    pub add_to: *const c_char,
}

// SAFETY: numbers, pointers, an enum that may be anything, and bool, which C compilers set to 0 or 1.
unsafe impl Versioned for rc_sfm_options {
    const DEFAULT: Self = Self { rolling_shutter_ms: -1.0, ..Self::EMPTY };
}

/// # Safety
/// The pointers of `asked` are NULL or strings.
unsafe fn poses_options(asked: &rc_sfm_options) -> Result<PosesOptions, Fault> {
    // SAFETY: the caller's promise.
    let (camera_model, mask_model, mask_dir, object_at, add_to) = unsafe {
        (
            optional_text(asked.camera_model, "options.camera_model")?,
            optional_path(asked.mask_model, "options.mask_model")?,
            optional_path(asked.mask_dir, "options.mask_dir")?,
            optional_text(asked.object_at, "options.object_at")?,
            optional_path(asked.add_to, "options.add_to")?,
        )
    };
    let method = choice(asked.reconstruction_method, "options.reconstruction_method", &METHODS)?;
    let given = |number: f64| (number != 0.0).then_some(number);
    let usual = SfmOptions::default();
    let sfm = SfmOptions {
        method: method.map_or(usual.method, ReconstructionMethod::mapping),
        camera_model: camera_model.map(lens).transpose()?.unwrap_or(usual.camera_model),
        seed: asked.seed,
        focal: given(asked.focal),
        apriltag_size_mm: given(asked.apriltag_size_mm),
        rolling_shutter_ms: given_shutter(asked.rolling_shutter_ms),
        require_scale: asked.require_scale,
        strict: asked.strict,
        keep_broken: asked.keep_broken,
        ..usual
    };
    let masks = MaskOptions {
        model: mask_model.map(Into::into),
        masks: mask_dir.map(Into::into),
        object_at: object_at.map(str::parse).transpose()?,
        keep_floor: given(asked.keep_floor),
    };
    let background = masks.wanted(asked.remove_background);
    Ok(PosesOptions { sfm, background, add_to: add_to.map(Into::into) })
}

fn lens(name: &str) -> Result<CameraModel, Fault> {
    CameraModel::from_name(name).ok_or_else(|| {
        let known: Vec<&str> = CameraModel::ALL.into_iter().map(CameraModel::name).collect();
        Fault::argument(format!("options.camera_model is \"{name}\": one of {} is known", known.join(", ")))
    })
}

/// Finds where the camera was: poses, lens and points, which are stored in *model; free it with rc_model_free(). `input` is a
/// folder that rc_extract_frames() has filled, a video, or a folder of pictures, videos or both.
///
/// folder: gets COLMAP's files of the model (sparse/), the undistorted pictures and theirs (undistorted/), and poses.jpg;
/// NULL = the model is wanted in memory only. options: NULL = the defaults. on_event: NULL = nobody is told. cancel: NULL =
/// only on_event can cancel.
///
/// Fails with RC_INVALID_ARGUMENT for options out of range, masks without a folder, and a folder in which sparse/, undistorted/
/// or frames/ has something in it that no run of this library has left, RC_INVALID_MEDIA for an input that is no usable video,
/// RC_CANCELLED, RC_DISK_FULL, and with one of RC_TOO_FEW_FRAMES to RC_UNRELIABLE_RECONSTRUCTION for poses that cannot be found.
///
/// Thread-safe, for folders that are not the same. Blocks.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rc_sfm(
    input: *const c_char,
    folder: *const c_char,
    options: *const rc_sfm_options,
    on_event: rc_event_fn,
    user: *mut c_void,
    cancel: *const rc_cancel,
    model: *mut *mut rc_model,
    error: *mut *mut rc_error,
) -> rc_code {
    // SAFETY: the caller's promise.
    unsafe {
        answer(model, "model", error, || {
            let (input, folder) = (path(input, "input")?, optional_path(folder, "folder")?);
            let asked = versioned(options, "options")?;
            let threads = check_threads(asked.threads, "options.threads")?;
            let frames = frame_options(asked.max_frames, asked.max_resolution, asked.projection)?;
            let options = poses_options(&asked)?;
            let work = |control: &Control| find(input, folder, &frames, &options, control);
            let found = told(threads, token_of(cancel)?, work, |signal| signal.tell(on_event, user))?;
            let report = json(&found.report)?;
            let verdicts = found.report.components.iter().map(|c| &c.verdict);
            let components = found.components.into_iter().zip(verdicts).map(with_doubts).collect();
            let first = with_doubts((found.model, &found.report.verdict));
            Ok(rc_model::make(Model::new(first, Some(report), components)))
        })
    }
}

fn find(
    input: &Path,
    folder: Option<&Path>,
    frames: &FrameOptions,
    options: &PosesOptions,
    control: &Control,
) -> libreconstruct::Result<PosedModels> {
    match folder {
        Some(folder) => poses_in_folder(input, folder, frames, options, control),
        None => {
            let temporary = |e| Error::new(ErrorKind::Io, format!("no place for temporary files: {e}"));
            let folder = tempfile::tempdir().map_err(temporary)?;
            poses_in_memory(input, folder.path(), frames, options, control)
        }
    }
}

fn with_doubts((model, verdict): (SparseModel, &Option<Verdict>)) -> Component {
    (Arc::new(model), verdict.as_ref().map(Verdict::image_doubts).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use libreconstruct::sfm::MappingMethod;

    use super::*;

    #[test]
    fn what_is_not_said_is_the_default() {
        // SAFETY: no pointers.
        let usual = unsafe { poses_options(&rc_sfm_options::DEFAULT) }.unwrap();
        assert_eq!(usual, PosesOptions { sfm: SfmOptions::default(), background: None, add_to: None });
        let projection = MaybeUninit::new(rc_projection::RC_PROJECTION_AUTO);
        assert_eq!(frame_options(0, 0, projection).unwrap(), FrameOptions::of_at_most(None));
        assert!(!frame_options(9, 0, projection).unwrap().more_frames, "a number that is named is meant");
        let projection = MaybeUninit::new(rc_projection::RC_PROJECTION_EQUIRECTANGULAR);
        let around = Some(libreconstruct::video::Projection::Equirectangular);
        assert_eq!(frame_options(9, 0, projection).unwrap().projection, around);
        let asked = rc_sfm_options {
            reconstruction_method: MaybeUninit::new(rc_method::RC_METHOD_COLMAP),
            seed: 7,
            focal: 800.0,
            apriltag_size_mm: 50.0,
            rolling_shutter_ms: 0.0,
            require_scale: true,
            strict: true,
            keep_broken: true,
            camera_model: c"OPENCV".as_ptr(),
            mask_dir: c"masks".as_ptr(),
            ..rc_sfm_options::DEFAULT
        };
        // SAFETY: a string.
        let options = unsafe { poses_options(&asked) }.unwrap();
        let expected = SfmOptions {
            method: MappingMethod::Incremental,
            seed: 7,
            focal: Some(800.0),
            apriltag_size_mm: Some(50.0),
            rolling_shutter_ms: Some(0.0),
            require_scale: true,
            strict: true,
            keep_broken: true,
            camera_model: CameraModel::OpenCv,
            ..SfmOptions::default()
        };
        assert_eq!(options.sfm, expected);
        assert_eq!(options.background.unwrap().masks.unwrap(), Path::new("masks"));
        let pointed = rc_sfm_options { object_at: c"10,20,3".as_ptr(), ..rc_sfm_options::DEFAULT };
        // SAFETY: a string.
        let background = unsafe { poses_options(&pointed) }.unwrap().background.unwrap();
        assert_eq!(background.object_at, Some("10,20,3".parse().unwrap()));
        let floor = rc_sfm_options { keep_floor: 1.5, ..rc_sfm_options::DEFAULT };
        // SAFETY: no pointer is set.
        assert_eq!(unsafe { poses_options(&floor) }.unwrap().background.unwrap().keep_floor, Some(1.5));
        let nonsense = rc_sfm_options { camera_model: c"opencv".as_ptr(), ..rc_sfm_options::DEFAULT };
        // SAFETY: a string.
        assert!(unsafe { poses_options(&nonsense) }.unwrap_err().message.contains("OPENCV_FISHEYE"));
        let nonsense = rc_sfm_options { object_at: c"here".as_ptr(), ..rc_sfm_options::DEFAULT };
        // SAFETY: a string.
        assert!(unsafe { poses_options(&nonsense) }.is_err());
    }
}
