//! A video to files, without jobs
//!
//! One call that makes a scene of a video in a folder of the caller's. If it is cancelled, or the program is killed, the
//! same call continues where it was.

use std::ffi::{c_char, c_int, c_void};
use std::mem::MaybeUninit;

use libreconstruct::Control;
use libreconstruct::pipeline::{self, Quality, ReconstructionOptions};
use libreconstruct::video::Projection;

use crate::argument::{Versioned, choice, optional_text, path, versioned};
use crate::cancel::{rc_cancel, token_of};
use crate::entry::fallible;
use crate::error::{Fault, rc_code, rc_error};
use crate::event::rc_event_fn;
use crate::submit::{CAMERA_TYPES, METHODS, rc_camera_type, rc_method};
use crate::text::{json, owned};
use crate::work::told;
use crate::worker::check_threads;

/// A set of options that go together.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum rc_quality {
    /// RC_QUALITY_STANDARD.
    RC_QUALITY_DEFAULT = 0,
    /// A small scene in a few minutes without a graphics processor.
    RC_QUALITY_PREVIEW = 1,
    /// Made for a graphics processor.
    RC_QUALITY_STANDARD = 2,
    /// More frames, pixels, Gaussians and steps.
    RC_QUALITY_HIGH = 3,
}

const QUALITIES: [(rc_quality, Quality); 4] = [
    (rc_quality::RC_QUALITY_DEFAULT, Quality::Standard),
    (rc_quality::RC_QUALITY_PREVIEW, Quality::Preview),
    (rc_quality::RC_QUALITY_STANDARD, Quality::Standard),
    (rc_quality::RC_QUALITY_HIGH, Quality::High),
];

/// How the pictures of a video show directions.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum rc_projection {
    /// As the file says, or as its pictures look where it says nothing.
    RC_PROJECTION_AUTO = 0,
    /// As an ordinary lens does.
    RC_PROJECTION_FLAT = 1,
    /// All directions around the camera (360° video).
    RC_PROJECTION_EQUIRECTANGULAR = 2,
}

pub(crate) const PROJECTIONS: [(rc_projection, Option<Projection>); 3] = [
    (rc_projection::RC_PROJECTION_AUTO, None),
    (rc_projection::RC_PROJECTION_FLAT, Some(Projection::Flat)),
    (rc_projection::RC_PROJECTION_EQUIRECTANGULAR, Some(Projection::Equirectangular)),
];

/// What to make of a video, and how. Start from RC_RECONSTRUCTION_INIT. A number that is 0 is that of the quality.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct rc_reconstruction {
    /// sizeof(rc_reconstruction)
    pub struct_size: usize,
    /// What the other fields change.
    pub quality: MaybeUninit<rc_quality>,
    /// How camera poses are found.
    pub reconstruction_method: MaybeUninit<rc_method>,
    /// How a viewer moves.
    pub camera_type: MaybeUninit<rc_camera_type>,
    /// Largest number of Gaussians, 1000 to 10,000,000.
    pub training_max_num_gaussians: u32,
    /// Number of training steps, 1 to 200,000.
    pub training_num_steps: u32,
    /// At most this many key frames; 0 = as many as the quality has, or up to three times as many where neighbouring ones would share too
    /// little.
    pub max_frames: u32,
    /// Long side of the frames in pixels at most.
    pub max_resolution: u32,
    /// Long side of the training pictures in pixels at most.
    pub training_max_resolution: u32,
    /// Degree of the spherical harmonics, 0 to 3; negative = that of the quality, which RC_RECONSTRUCTION_INIT has.
    pub sh_degree: c_int,
    /// Hold out every n-th picture and score the scene on them; 0 = train on all.
    pub test_every: u32,
    /// Threads to compute with; 0 = as many as there are processors. The scene does not depend on it.
    pub threads: u32,
    /// Fixes every random choice.
    pub seed: u64,
    /// Edge of the inner white square of the AprilTags (tagStandard41h12) in millimetres, 5/9 of their printed width, 1 to
    /// 1000: the scene is then in metres. 0 = there are none.
    pub apriltag_size_mm: f64,
    /// Whether to remove the background.
    pub remove_background: bool,
    /// Whether to leave out turntable.mp4.
    pub no_turntable: bool,
    /// Title for the report; NULL = the name of the file.
    pub title: *const c_char,
    /// Where training runs: "auto", "cpu", "gpu" or part of the name of a graphics adapter; NULL = "auto".
    pub device: *const c_char,
    /// Whether to fail where the tags give no scale; else the scene is in arbitrary units then, and report.json says why. Needs
    /// apriltag_size_mm.
    pub require_scale: bool,
    /// The file of the mask model for remove_background; NULL = the one that is installed.
    pub mask_model: *const c_char,
    /// A folder with a mask (PNG, white where the object is) named like every picture, in place of the mask model; NULL =
    /// there is none.
    pub mask_dir: *const c_char,
    /// Whether to fail where the poses are doubtful; else the scene is made all the same, and report.json says why.
    pub strict: bool,
    /// Milliseconds from the first line of a picture to the last one, 0 to 100, if known; 0 = a global shutter. Negative =
    /// that of a video is estimated where it matters, which RC_RECONSTRUCTION_INIT has.
    pub rolling_shutter_ms: f64,
    /// Where the object is in one frame: "X,Y" in pixels of the first one, or "X,Y,FRAME" with a frame's name or number.
    /// Removes the background, too; for where something else catches the eye more. NULL = it is found without.
    pub object_at: *const c_char,
    /// A disc of the ground to keep under the object, so many times as wide as the object (at most 20). Removes the rest of the
    /// background, too. 0 = none.
    pub keep_floor: f64,
    /// Seconds within which all of it is to end: training makes fewer steps with fewer Gaussians on smaller pictures if this
    /// machine would take longer. 0 = all that was asked for.
    pub time_budget_seconds: u32,
    /// How the pictures of the video show directions.
    pub projection: MaybeUninit<rc_projection>,
    /// Whether to leave Gaussians that hang in free space where they are; on a graphics device they are left in any case.
    pub no_clean: bool,
    /// Focal length in pixels of the frames (those of the camera that made most), if known; it is refined. 0 = it is not.
    pub focal: f64,
}

// SAFETY: numbers, pointers, enums that may be anything, and bool, which C compilers set to 0 or 1.
unsafe impl Versioned for rc_reconstruction {
    const DEFAULT: Self = Self { sh_degree: -1, rolling_shutter_ms: -1.0, ..Self::EMPTY };
    const FIRST_SIZE: usize = std::mem::offset_of!(Self, require_scale);
}

/// What is given of the rolling shutter; negative is nothing. What is no number goes on to be refused.
pub(crate) fn given_shutter(ms: f64) -> Option<f64> {
    (ms >= 0.0 || ms.is_nan()).then_some(ms)
}

/// # Safety
/// The pointers of `asked` are NULL or strings.
unsafe fn options(asked: &rc_reconstruction) -> Result<ReconstructionOptions, Fault> {
    // SAFETY: the caller's promise.
    let (title, device) = unsafe {
        (optional_text(asked.title, "options.title")?, optional_text(asked.device, "options.device")?)
    };
    // SAFETY: the caller's promise.
    let (mask_model, mask_dir, object_at) = unsafe {
        (
            optional_text(asked.mask_model, "options.mask_model")?,
            optional_text(asked.mask_dir, "options.mask_dir")?,
            optional_text(asked.object_at, "options.object_at")?,
        )
    };
    let preset = ReconstructionOptions::with_quality(choice(asked.quality, "options.quality", &QUALITIES)?);
    let method = choice(asked.reconstruction_method, "options.reconstruction_method", &METHODS)?;
    let camera_type = choice(asked.camera_type, "options.camera_type", &CAMERA_TYPES)?;
    let or = |number: u32, preset: u32| if number == 0 { preset } else { number };
    let size = asked.apriltag_size_mm;
    Ok(ReconstructionOptions {
        title: title.map(str::to_owned),
        reconstruction_method: method.unwrap_or(preset.reconstruction_method),
        training_max_num_gaussians: or(asked.training_max_num_gaussians, preset.training_max_num_gaussians),
        training_num_steps: or(asked.training_num_steps, preset.training_num_steps),
        apriltag_size_mm: (size != 0.0).then_some(size),
        time_budget_seconds: (asked.time_budget_seconds != 0).then_some(asked.time_budget_seconds),
        require_scale: asked.require_scale,
        strict: asked.strict,
        rolling_shutter_ms: given_shutter(asked.rolling_shutter_ms),
        focal: (asked.focal != 0.0).then_some(asked.focal),
        remove_background: asked.remove_background,
        camera_type,
        max_frames: if asked.max_frames == 0 { preset.max_frames } else { Some(asked.max_frames as usize) },
        more_frames: asked.max_frames == 0,
        max_resolution: or(asked.max_resolution, preset.max_resolution),
        projection: choice(asked.projection, "options.projection", &PROJECTIONS)?,
        training_max_resolution: or(asked.training_max_resolution, preset.training_max_resolution),
        sh_degree: u32::try_from(asked.sh_degree).unwrap_or(preset.sh_degree),
        test_every: (asked.test_every != 0).then_some(asked.test_every),
        clean: !asked.no_clean,
        seed: asked.seed,
        device: device.map_or(Ok(preset.device), str::parse)?,
        turntable: !asked.no_turntable,
        mask_model: mask_model.map(Into::into),
        mask_dir: mask_dir.map(Into::into),
        object_at: object_at.map(str::parse).transpose()?,
        keep_floor: (asked.keep_floor != 0.0).then_some(asked.keep_floor),
    })
}

/// Makes a scene of a video (or of a folder of pictures, videos or both) in `folder`: scene.ply, scene.spz, preview.jpg, camera.json,
/// turntable.mp4, report.json, and the key frames and camera poses it was made from. All of it is on the disk when this
/// returns. Stages that an earlier call has finished are not done again.
///
/// options: NULL = the defaults. on_event: NULL = nobody is told. cancel: NULL = only on_event can cancel. report_json:
/// gets the content of report.json, to be freed with rc_string_free(); NULL = it is not wanted.
///
/// Fails with RC_INVALID_ARGUMENT for options out of range and for a folder in which frames/, sparse/ or undistorted/ has
/// something in it that no run of this library has left, RC_INVALID_MEDIA for an input that is no usable video, RC_CANCELLED,
/// RC_DISK_FULL, and with one of RC_TOO_FEW_FRAMES to RC_UNRELIABLE_RECONSTRUCTION for a scene that cannot be reconstructed. The
/// error names its stage.
///
/// Thread-safe, for folders that are not the same. Blocks.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rc_reconstruct(
    input: *const c_char,
    folder: *const c_char,
    options: *const rc_reconstruction,
    on_event: rc_event_fn,
    user: *mut c_void,
    cancel: *const rc_cancel,
    report_json: *mut *mut c_char,
    error: *mut *mut rc_error,
) -> rc_code {
    // SAFETY: the caller's promise.
    unsafe {
        fallible(error, || {
            let (input, folder) = (path(input, "input")?, path(folder, "folder")?);
            let asked = versioned(options, "options")?;
            let threads = check_threads(asked.threads, "options.threads")?;
            let options = self::options(&asked)?;
            let token = token_of(cancel)?;
            let work = |control: &Control| pipeline::reconstruct(input, folder, &options, control);
            let report = told(threads, token, work, |signal| signal.tell(on_event, user))?;
            if !report_json.is_null() {
                report_json.write(owned(json(&report)?));
            }
            Ok(())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_said_is_what_the_quality_says() {
        // SAFETY: no pointers.
        let standard = unsafe { options(&rc_reconstruction::DEFAULT) }.unwrap();
        assert_eq!(standard, ReconstructionOptions::default());
        let asked = rc_reconstruction {
            quality: MaybeUninit::new(rc_quality::RC_QUALITY_PREVIEW),
            sh_degree: 0,
            max_frames: 7,
            no_turntable: true,
            apriltag_size_mm: 50.0,
            require_scale: true,
            strict: true,
            rolling_shutter_ms: 0.0,
            time_budget_seconds: 300,
            projection: MaybeUninit::new(rc_projection::RC_PROJECTION_EQUIRECTANGULAR),
            no_clean: true,
            focal: 800.0,
            ..rc_reconstruction::DEFAULT
        };
        let preset = ReconstructionOptions::with_quality(Quality::Preview);
        let expected = ReconstructionOptions {
            sh_degree: 0,
            max_frames: Some(7),
            more_frames: false,
            turntable: false,
            apriltag_size_mm: Some(50.0),
            require_scale: true,
            strict: true,
            rolling_shutter_ms: Some(0.0),
            time_budget_seconds: Some(300),
            projection: Some(Projection::Equirectangular),
            clean: false,
            focal: Some(800.0),
            ..preset
        };
        // SAFETY: no pointers.
        assert_eq!(unsafe { options(&asked) }.unwrap(), expected);
        // What is no number is not taken for "estimate it".
        let asked = rc_reconstruction { rolling_shutter_ms: f64::NAN, ..rc_reconstruction::DEFAULT };
        // SAFETY: no pointers.
        let error = unsafe { options(&asked) }.unwrap().check().unwrap_err();
        assert!(error.message().contains("rolling_shutter_ms is NaN"), "{error}");
        // Nor for "it is not known".
        let asked = rc_reconstruction { focal: f64::NAN, ..rc_reconstruction::DEFAULT };
        // SAFETY: no pointers.
        let error = unsafe { options(&asked) }.unwrap().check().unwrap_err();
        assert!(error.message().contains("focal length is NaN"), "{error}");
    }
}
