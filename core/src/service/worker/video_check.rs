//! Whether it is the disk that makes a video look bad: a program that cannot read a part of a file says nearly the same of it as of a
//! damaged one, or takes what it could read for all of it. So where there is such a doubt, and only there, the worker reads the file
//! itself.

use std::fmt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use super::super::Service;
use super::super::runner::Outcome;
use crate::control::{Control, Event, Warning};
use crate::error::{Error, ErrorKind, Result};
use crate::job::BlobName;

/// The warnings that a part of the video was not decoded.
const DOUBTS: [&str; 3] = ["damaged_video", "frames_lost", "video_cut_off"];

/// The cause of an error by which the video of the job could not be read as it came: what was made of it is not to be gone on with.
#[derive(Debug)]
pub(super) struct UnreadableVideo;

impl fmt::Display for UnreadableVideo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the video cannot be read as it came")
    }
}

impl std::error::Error for UnreadableVideo {}

/// Looks after the video of one attempt.
pub(super) struct VideoCheck {
    service: Service,
    name: BlobName,
    version: u64,
    /// Where it lies.
    file: PathBuf,
    control: Control,
    has_looked: AtomicBool,
    trouble: Mutex<Option<Error>>,
}

impl VideoCheck {
    pub(super) fn new(
        service: &Service,
        (name, version): (BlobName, u64),
        file: PathBuf,
        control: &Control,
    ) -> Arc<Self> {
        let (service, control) = (service.clone(), control.clone());
        let (has_looked, trouble) = (AtomicBool::new(false), Mutex::default());
        Arc::new(Self { service, name, version, file, control, has_looked, trouble })
    }

    /// The control for the work on the video. At a warning that raises a doubt the video is read before the work goes on, which is
    /// cancelled if the video is not what came: else hours would go into a scene of half of it.
    pub(super) fn control(self: &Arc<Self>) -> Control {
        let check = Arc::clone(self);
        self.control.clone().with_listener(move |event| {
            let raises_doubt = matches!(&event, Event::Warning { warning, .. } if is_doubt(warning));
            check.control.send(event);
            if raises_doubt {
                check.look();
            }
        })
    }

    /// What came of the work, unless the disk is to blame for it.
    pub(super) fn judge(&self, result: Result<Outcome>) -> Result<Outcome> {
        let is_doubtful = match &result {
            Err(error) => matches!(error.kind(), ErrorKind::InvalidMedia | ErrorKind::TooFewFrames),
            // A stage that was finished by an earlier attempt has sent its warnings to that.
            Ok(outcome) => outcome.warnings.iter().any(is_doubt),
        };
        if is_doubtful {
            self.look();
        }
        match self.trouble.lock().unwrap_or_else(PoisonError::into_inner).take() {
            Some(trouble) => Err(trouble),
            None => result,
        }
    }

    /// Reads all of the video, once in an attempt.
    fn look(&self) {
        if self.has_looked.swap(true, Ordering::Relaxed) {
            return;
        }
        let Err(error) = self.service.check_video(&self.name, self.version, &self.file, &self.control) else {
            return;
        };
        let error = match error.kind() {
            ErrorKind::Cancelled => error,
            _ => error.caused_by(UnreadableVideo),
        };
        *self.trouble.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
        self.control.cancel_token().cancel();
    }
}

fn is_doubt(warning: &Warning) -> bool {
    DOUBTS.contains(&warning.code.as_ref())
}
