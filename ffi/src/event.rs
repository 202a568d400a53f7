//! Progress
//!
//! A long call tells how far it is through a function of the caller's, to which it hands back the pointer `user`. The
//! function is called on the thread that made the long call, never on another and never after that call has returned;
//! so `user` needs no lock. It should be quick, must not throw or jump out, and may call any function of this library.
//! What it is given lives until it returns. By returning a number other than 0 it cancels the call.

use std::ffi::{c_char, c_int, c_void};

use libreconstruct::{Event, Preview};

use crate::error::rc_stage;
use crate::text::{c_string, pointer_to};

/// What an event tells.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum rc_event_kind {
    /// How far a stage is: step, stage_fraction, total_fraction, remaining_seconds, message.
    RC_EVENT_PROGRESS = 1,
    /// Something did not stop the work but should be known: code, message.
    RC_EVENT_WARNING = 2,
    /// A picture of the scene as it is now, every few seconds of training: preview.
    RC_EVENT_PREVIEW = 3,
}

/// A picture: 8 bits a channel, sRGB, row by row from the top without gaps.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct rc_picture {
    /// Width in pixels; 0 = no picture.
    pub width: u32,
    /// Height in pixels.
    pub height: u32,
    /// 4 * width * height bytes: red, green, blue, alpha (255).
    pub rgba: *const u8,
}

/// One thing that a running call tells. A field that its kind does not name is 0 or NULL, but for
/// total_fraction and remaining_seconds, which are -1.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct rc_event {
    /// What it tells.
    pub kind: rc_event_kind,
    /// The stage.
    pub stage: rc_stage,
    /// The part of the stage, for people, for example "matching".
    pub step: *const c_char,
    /// Stable name of a warning, for example "low_parallax".
    pub code: *const c_char,
    /// A sentence for people; may be NULL.
    pub message: *const c_char,
    /// How much of the stage is done, 0 to 1.
    pub stage_fraction: f32,
    /// How much of the whole is done, 0 to 1; negative = not known.
    pub total_fraction: f32,
    /// Estimated seconds until the stage is done; negative = not known yet.
    pub remaining_seconds: f64,
    /// The picture.
    pub preview: rc_picture,
}

/// A function that is told of events. Returns 0 to go on, another number to cancel the call.
pub type rc_event_fn = Option<unsafe extern "C" fn(user: *mut c_void, event: *const rc_event) -> c_int>;

/// What the thread that works sends to the one that called.
pub(crate) enum Signal {
    Event(Event),
    Preview(Preview),
}

impl Signal {
    /// Tells `function`; true if it wants the call to be cancelled.
    ///
    /// # Safety
    /// `function` may be called with `user`.
    pub(crate) unsafe fn tell(self, function: rc_event_fn, user: *mut c_void) -> bool {
        let Some(function) = function else { return false };
        // What the event points to lives until the end of this block.
        let (event, _texts, _pixels);
        match self {
            Signal::Event(Event::Progress { stage, step, fraction, message, total, remaining_seconds }) => {
                let texts = [Some(c_string(step)), message.map(c_string)];
                event = rc_event {
                    step: pointer_to(texts[0].as_ref()),
                    message: pointer_to(texts[1].as_ref()),
                    stage_fraction: fraction,
                    total_fraction: total.unwrap_or(-1.0),
                    remaining_seconds: remaining_seconds.unwrap_or(-1.0),
                    ..empty(rc_event_kind::RC_EVENT_PROGRESS, stage.into())
                };
                _texts = texts;
            }
            Signal::Event(Event::Warning { stage, warning }) => {
                let texts = [Some(c_string(warning.code)), Some(c_string(warning.message))];
                event = rc_event {
                    code: pointer_to(texts[0].as_ref()),
                    message: pointer_to(texts[1].as_ref()),
                    ..empty(rc_event_kind::RC_EVENT_WARNING, stage.into())
                };
                _texts = texts;
            }
            Signal::Preview(Preview { width, height, rgb }) => {
                let rgba: Vec<u8> = rgb.chunks_exact(3).flat_map(|p| [p[0], p[1], p[2], 255]).collect();
                event = rc_event {
                    preview: rc_picture { width, height, rgba: rgba.as_ptr() },
                    ..empty(rc_event_kind::RC_EVENT_PREVIEW, rc_stage::RC_STAGE_TRAIN)
                };
                _pixels = rgba;
            }
        }
        // SAFETY: the caller's promise.
        unsafe { function(user, &event) != 0 }
    }
}

fn empty(kind: rc_event_kind, stage: rc_stage) -> rc_event {
    rc_event {
        kind,
        stage,
        step: std::ptr::null(),
        code: std::ptr::null(),
        message: std::ptr::null(),
        stage_fraction: 0.0,
        total_fraction: -1.0,
        remaining_seconds: -1.0,
        preview: rc_picture { width: 0, height: 0, rgba: std::ptr::null() },
    }
}
